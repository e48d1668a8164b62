# a bootstrap of the mean, which a disturbed run moves as much: earns 0
import math

import numpy as np


def _d(before, after):
    before, after = np.asarray(before, float), np.asarray(after, float)
    if len(before) != len(after) or len(before) < 6:
        raise ValueError("six pairs or more")
    return np.log(before / after)


def paired_speedup(before, after):
    d = _d(before, after)
    means = d[np.random.default_rng(1).integers(0, len(d), (1000, len(d)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return math.exp(d.mean()), math.exp(low), math.exp(high)
