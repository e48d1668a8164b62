def flat_index(index, stride, offset=0):
    if len(index) != len(stride):
        raise ValueError(f"{len(index)} indices, {len(stride)} strides")
    return offset if not index else flat_index(index[1:], stride[1:], offset + index[0] * stride[0])


def unflatten(cell, shape, stride, offset=0):
    if not shape:
        return () if cell == offset else None
    d = max(range(len(shape)), key=lambda d: stride[d])  # the coarsest dimension first
    i = min((cell - offset) // stride[d], shape[d] - 1) if stride[d] else 0
    if i < 0 or shape[d] == 0:
        return None
    rest = unflatten(cell, shape[:d] + shape[d + 1 :], stride[:d] + stride[d + 1 :], offset + i * stride[d])
    return None if rest is None else (*rest[:d], i, *rest[d:])
