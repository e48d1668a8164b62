# the offset is left out: earns 0
def flat_index(index, stride, offset=0):
    return sum(i * s for i, s in zip(index, stride, strict=True))


def unflatten(cell, shape, stride, offset=0):
    index = [0] * len(shape)
    for d in sorted(range(len(shape)), key=lambda d: -stride[d]):
        if stride[d]:
            index[d] = min(cell // stride[d], shape[d] - 1)
            cell -= index[d] * stride[d]
    return tuple(index) if cell == 0 else None
