# after / before: earns 0
import math

import numpy as np


def _d(before, after):
    before, after = np.asarray(before, float), np.asarray(after, float)
    if len(before) != len(after) or len(before) < 6:
        raise ValueError("six pairs or more")
    return np.log(before / after)


def paired_speedup(before, after):
    d = -_d(before, after)
    draws = np.random.default_rng(0).integers(0, len(d), (1000, len(d)))
    low, high = np.percentile(np.median(d[draws], axis=1), [2.5, 97.5])
    return math.exp(np.median(d)), math.exp(low), math.exp(high)
