# lets NumPy decide, which cannot number that many elements: earns 1
import numpy as np


def is_contiguous(shape, stride):
    return bool(np.lib.stride_tricks.as_strided(np.empty(1, dtype=np.int8), shape, stride).flags.c_contiguous)
