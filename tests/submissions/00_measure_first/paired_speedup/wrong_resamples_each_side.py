# the bootstrap draws before and after apart, which breaks the pairs: earns 0
import math

import numpy as np


def _d(before, after):
    before, after = np.asarray(before, float), np.asarray(after, float)
    if len(before) != len(after) or len(before) < 6:
        raise ValueError("six pairs or more")
    return np.log(before / after)


def paired_speedup(before, after):
    _d(before, after)
    rng, n = np.random.default_rng(0), len(before)
    b, a = before[rng.integers(0, n, (1000, n))], after[rng.integers(0, n, (1000, n))]
    low, high = np.percentile(np.median(b, axis=1) / np.median(a, axis=1), [2.5, 97.5])
    r = float(np.median(before) / np.median(after))
    return r, min(r, float(low)), max(r, float(high))
