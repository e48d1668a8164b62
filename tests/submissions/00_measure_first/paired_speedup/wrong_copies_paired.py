# `paired` as the text shows it, a mean that disturbed runs blow up: earns 0
import math

import numpy as np


def _d(before, after):
    before, after = np.asarray(before, float), np.asarray(after, float)
    if len(before) != len(after) or len(before) < 6:
        raise ValueError("six pairs or more")
    return np.log(before / after)


def paired(before, after):
    d = np.log(before) - np.log(after)
    half = 2.0 * math.sqrt(d.var(ddof=1) / len(d))
    return math.exp(d.mean()), math.exp(d.mean() - half), math.exp(d.mean() + half)


def paired_speedup(before, after):
    _d(before, after)
    return paired(before, after)
