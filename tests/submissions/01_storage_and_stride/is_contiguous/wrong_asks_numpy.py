# lets NumPy decide, whose as_strided reaches past every array and is refused: earns 0
import numpy as np


def is_contiguous(shape, stride):
    return bool(np.lib.stride_tricks.as_strided(np.empty(1, dtype=np.int8), shape, stride).flags.c_contiguous)
