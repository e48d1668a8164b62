# mean and standard error, both blown up by disturbed runs: earns 0
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
    # Student's t at 97.5 %, Cornish and Fisher's expansion around the normal quantile
    z, nu = 1.959964, n - 1
    t = z + (z**3 + z) / (4 * nu) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * nu**2)
    half = t * d.std(ddof=1) / math.sqrt(n)
    return math.exp(d.mean()), math.exp(d.mean() - half), math.exp(d.mean() + half)
