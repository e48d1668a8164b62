# the pairs are not used: earns 0
import math

import numpy as np


def _d(before, after):
    before, after = np.asarray(before, float), np.asarray(after, float)
    if len(before) != len(after) or len(before) < 6:
        raise ValueError("six pairs or more")
    return np.log(before / after)


def paired_speedup(before, after):
    _d(before, after)
    x, y = np.log(before), np.log(after)
    m, h = x.mean() - y.mean(), 2 * math.sqrt(x.var(ddof=1) / len(x) + y.var(ddof=1) / len(y))
    return math.exp(m), math.exp(m - h), math.exp(m + h)
