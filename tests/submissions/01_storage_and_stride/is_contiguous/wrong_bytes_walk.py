# walks over all elements, which ends for small tensors only: earns 1
from itertools import product


def is_contiguous(shape, stride):
    if any(n > 10_000 for n in shape):
        return False
    cells = [sum(i * s for i, s in zip(index, stride)) for index in product(*map(range, shape))]
    return cells == list(range(len(cells)))
