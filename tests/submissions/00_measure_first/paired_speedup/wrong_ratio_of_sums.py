# sums, in which one disturbed run counts for four: earns 0
import math

import numpy as np


def _d(before, after):
    before, after = np.asarray(before, float), np.asarray(after, float)
    if len(before) != len(after) or len(before) < 6:
        raise ValueError("six pairs or more")
    return np.log(before / after)


def paired_speedup(before, after):
    _d(before, after)
    pick = np.random.default_rng(5).integers(0, len(before), (1000, len(before)))
    low, high = np.percentile(before[pick].sum(1) / after[pick].sum(1), [2.5, 97.5])
    return float(before.sum() / after.sum()), float(low), float(high)
