# a tensor without dimensions is said to have nothing anywhere: earns 1
def flat_index(index, stride, offset=0):
    if len(index) != len(stride):
        raise ValueError("lengths differ")
    return offset + sum(i * s for i, s in zip(index, stride))


def unflatten(cell, shape, stride, offset=0):
    if not shape or 0 in shape:
        return None
    rest, found = cell - offset, [0] * len(shape)
    for d in sorted(range(len(shape)), key=lambda d: -stride[d]):
        if stride[d]:
            found[d] = max(0, min(rest // stride[d], shape[d] - 1))
            rest -= found[d] * stride[d]
    return tuple(found) if rest == 0 else None
