# right inside the tensor, but finds elements beyond its sizes (no index is cut down to size - 1): earns 0
def flat_index(index, stride, offset=0):
    if len(index) != len(stride):
        raise ValueError("one stride for each index")
    cell = offset
    for i, s in zip(index, stride):
        cell += i * s
    return cell


def unflatten(cell, shape, stride, offset=0):
    rest, index = cell - offset, [0] * len(shape)
    for d in sorted(range(len(shape)), key=lambda d: -stride[d]):
        if stride[d]:
            index[d], rest = divmod(rest, stride[d])
    return tuple(index) if rest == 0 else None
