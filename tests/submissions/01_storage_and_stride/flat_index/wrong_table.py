# a table of all cells, which never ends for a large tensor: earns 0
def flat_index(index, stride, offset=0):
    if len(index) != len(stride):
        raise ValueError("one stride for each index")
    cell = offset
    for i, s in zip(index, stride):
        cell += i * s
    return cell


def unflatten(cell, shape, stride, offset=0):
    cells = {offset: ()}
    for size, step in zip(shape, stride):
        longer = {}
        for start, index in cells.items():
            for i in range(size):
                longer.setdefault(start + i * step, index + (i,))
        cells = longer
    return cells.get(cell)
