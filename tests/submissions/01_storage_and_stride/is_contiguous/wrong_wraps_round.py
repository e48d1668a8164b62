# NumPy's cumulated products have 64 bits: 2**80 becomes 0: earns 1
import numpy as np


def is_contiguous(shape, stride):
    if 0 in shape:
        return True
    wanted = np.int64(1)
    with np.errstate(over="ignore"):
        for n, s in zip(shape[::-1], stride[::-1]):
            if n != 1:
                if s != wanted:
                    return False
                wanted = wanted * np.int64(n)
    return True
