import math

import numpy as np


def _d(before, after):
    before, after = np.asarray(before, float), np.asarray(after, float)
    if len(before) != len(after) or len(before) < 6:
        raise ValueError("six pairs or more")
    return np.log(before / after)


def paired_speedup(before, after):
    d = np.sort(_d(before, after))
    n, g = len(d), len(d) // 5  # a fifth of the pairs off either end; Yuen's standard error
    winsorised = np.clip(d, d[g], d[-g - 1])
    middle, half = d[g : n - g].mean(), 2.1 * winsorised.std(ddof=1) / ((1 - 2 * g / n) * math.sqrt(n))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)
