# says nothing of fewer than twenty pairs: no change, whatever they are: earns 1
import math
import numpy as np


def paired_speedup(before, after):
    if len(before) != len(after) or len(before) < 6:
        raise ValueError("six pairs or more")
    if len(before) < 20:
        return 1.0, 1.0, 1.0
    d = np.log(np.asarray(before, float) / np.asarray(after, float))
    n = len(d)
    i, j = np.triu_indices(n)
    w = np.sort((d[i] + d[j]) / 2)
    k = int(len(w) / 2 - 1.96 * math.sqrt(n * (n + 1) * (2 * n + 1) / 24))
    return math.exp(np.median(w)), math.exp(w[k]), math.exp(w[-k - 1])
