import math

import numpy as np


def _d(before, after):
    before, after = np.asarray(before, float), np.asarray(after, float)
    if len(before) != len(after) or len(before) < 6:
        raise ValueError("six pairs or more")
    return np.log(before / after)


import random


def paired_speedup(before, after):
    d = sorted(_d(before, after).tolist())
    rng = random.Random(1)
    means = sorted(sum(rng.choices(d, k=len(d))) / len(d) for _ in range(1000))
    return math.exp(sum(d) / len(d)), math.exp(means[24]), math.exp(means[974])
