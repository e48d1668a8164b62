def flat_index(index, stride, offset=0):
    if len(index) != len(stride):
        raise ValueError("lengths differ")
    cell = offset
    for i, s in zip(index, stride):
        cell += i * s
    return cell


def unflatten(cell, shape, stride, offset=0):
    """From the finest stride to the coarsest, as one reads digits: what the coarser ones cannot have paid."""
    order = sorted((d for d in range(len(shape)) if stride[d] and shape[d] > 1), key=lambda d: stride[d])
    rest, index = cell - offset, [0] * len(shape)
    if 0 in shape or rest < 0:
        return None
    for place, d in enumerate(order):
        coarser = stride[order[place + 1]] if place + 1 < len(order) else None
        part = rest if coarser is None else rest % coarser
        if coarser is not None and part // stride[d] >= shape[d]:
            return None
        if part % stride[d] or part // stride[d] >= shape[d]:
            return None
        index[d] = part // stride[d]
        rest -= part
    return tuple(index) if rest == 0 else None
