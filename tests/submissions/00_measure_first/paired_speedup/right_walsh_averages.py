import math

import numpy as np


def _d(before, after):
    before, after = np.asarray(before, float), np.asarray(after, float)
    if len(before) != len(after) or len(before) < 6:
        raise ValueError("six pairs or more")
    return np.log(before / after)


def paired_speedup(before, after):
    d = _d(before, after)
    n = len(d)
    i, j = np.triu_indices(n)
    w = np.sort((d[i] + d[j]) / 2)
    k = int(len(w) / 2 - 1.96 * math.sqrt(n * (n + 1) * (2 * n + 1) / 24))
    return math.exp(np.median(w)), math.exp(w[k]), math.exp(w[-k - 1])
