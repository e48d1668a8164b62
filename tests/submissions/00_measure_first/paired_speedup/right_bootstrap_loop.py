import math

import numpy as np


def _d(before, after):
    before, after = np.asarray(before, float), np.asarray(after, float)
    if len(before) != len(after) or len(before) < 6:
        raise ValueError("six pairs or more")
    return np.log(before / after)


import random
import statistics


def paired_speedup(before, after):
    d = _d(before, after).tolist()
    rng = random.Random(1)
    middles = sorted(statistics.median(rng.choices(d, k=len(d))) for _ in range(200))
    return math.exp(statistics.median(d)), math.exp(middles[4]), math.exp(middles[195])
