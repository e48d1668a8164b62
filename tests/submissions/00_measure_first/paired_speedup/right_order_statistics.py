import math

import numpy as np


def _d(before, after):
    before, after = np.asarray(before, float), np.asarray(after, float)
    if len(before) != len(after) or len(before) < 6:
        raise ValueError("six pairs or more")
    return np.log(before / after)


def paired_speedup(before, after):
    d = np.sort(_d(before, after))
    n, tail, k = len(d), 0.0, 0
    while True:  # how many of n coins may fall alike before it is rarer than 2.5 % on either side
        tail += math.comb(n, k) / 2**n
        if tail > 0.025:
            break
        k += 1
    return math.exp(np.median(d)), math.exp(d[k - 1]), math.exp(d[n - k])
