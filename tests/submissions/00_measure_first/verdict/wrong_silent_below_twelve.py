# of fewer than twelve pairs it never says anything, however clear they are: earns 1
import math
import numpy as np


def verdict(before, after):
    if len(before) != len(after):
        raise ValueError("pairs")
    if len(before) < 12:
        return "cannot tell"
    d = np.log(np.asarray(before) / np.asarray(after))
    d = d[d != 0]
    n = len(d)
    if n < 6:
        return "cannot tell"
    ranks = np.argsort(np.argsort(abs(d))) + 1
    w = float((np.sign(d) * ranks).sum())
    z = w / math.sqrt(n * (n + 1) * (2 * n + 1) / 6)
    return "cannot tell" if abs(z) < 1.96 else "faster" if z > 0 else "slower"
