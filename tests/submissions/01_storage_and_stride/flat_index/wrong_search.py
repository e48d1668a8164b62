# searches with loops that never end for a large tensor: earns 0
def flat_index(index, stride, offset=0):
    if len(index) != len(stride):
        raise ValueError("one stride for each index")
    cell = offset
    for i, s in zip(index, stride):
        cell += i * s
    return cell


def unflatten(cell, shape, stride, offset=0):
    if not shape:
        return () if cell == offset else None
    for i in range(shape[0] if stride[0] else min(shape[0], 1)):
        rest = unflatten(cell - i * stride[0], shape[1:], stride[1:], offset)
        if rest is not None:
            return (i, *rest)
    return None
