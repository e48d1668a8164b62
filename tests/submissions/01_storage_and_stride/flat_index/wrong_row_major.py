# reads the dimensions from left to right, as if no tensor were ever transposed: earns 0
def flat_index(index, stride, offset=0):
    if len(index) != len(stride):
        raise ValueError("one stride for each index")
    cell = offset
    for i, s in zip(index, stride):
        cell += i * s
    return cell


def unflatten(cell, shape, stride, offset=0):
    rest, index = cell - offset, []
    if rest < 0:
        return None
    for size, step in zip(shape, stride):
        i = min(rest // step, size - 1) if step else 0
        index.append(i)
        rest -= i * step
    return tuple(index) if rest == 0 else None
