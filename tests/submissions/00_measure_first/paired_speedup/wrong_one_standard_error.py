# one standard error is 68 %: earns 0
import math

import numpy as np


def _d(before, after):
    before, after = np.asarray(before, float), np.asarray(after, float)
    if len(before) != len(after) or len(before) < 6:
        raise ValueError("six pairs or more")
    return np.log(before / after)


def paired_speedup(before, after):
    d = _d(before, after)
    h = d.std(ddof=1) / math.sqrt(len(d))
    return math.exp(d.mean()), math.exp(d.mean() - h), math.exp(d.mean() + h)
