# walks over all elements, more than there is time or memory for: earns 0
def flat_index(index, stride, offset=0):
    if len(index) != len(stride):
        raise ValueError("one stride for each index")
    cell = offset
    for i, s in zip(index, stride):
        cell += i * s
    return cell


from itertools import product


def unflatten(cell, shape, stride, offset=0):
    for index in product(*map(range, shape)):
        if flat_index(index, stride, offset) == cell:
            return index
    return None
