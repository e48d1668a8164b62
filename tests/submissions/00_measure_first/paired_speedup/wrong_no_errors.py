# takes five pairs, and unequal lengths, without a word: earns 0
import math

import numpy as np


def paired_speedup(before, after):
    n = min(len(before), len(after))
    d = np.log(before[:n] / after[:n])
    draws = np.random.default_rng(0).integers(0, len(d), (1000, len(d)))
    low, high = np.percentile(np.median(d[draws], axis=1), [2.5, 97.5])
    return math.exp(np.median(d)), math.exp(low), math.exp(high)
