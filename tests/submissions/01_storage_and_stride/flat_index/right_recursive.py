def flat_index(index, stride, offset=0):
    if len(index) != len(stride):
        raise ValueError(f"{len(index)} indices, {len(stride)} strides")
    return offset if not index else flat_index(index[1:], stride[1:], offset + index[0] * stride[0])


def unflatten(cell, shape, stride, offset=0):
    if not shape:
        return () if cell == offset else None
    for i in range(shape[0] if stride[0] else min(shape[0], 1)):
        rest = unflatten(cell - i * stride[0], shape[1:], stride[1:], offset)
        if rest is not None:
            return (i, *rest)
    return None
