# a sum of floats: with 1,300 pairs comb(n, k) has none: earns 1
import math

import numpy as np


def verdict(before: np.ndarray, after: np.ndarray) -> str:
    if len(before) != len(after):
        raise ValueError("before and after are not paired")
    n = int((before != after).sum())  # a tie is no toss
    if n < 6:
        return "cannot tell"
    won = int((after < before).sum())
    alike = max(won, n - won)
    chance = 2 * sum(math.comb(n, k) * 0.5**n for k in range(alike, n + 1))
    if chance >= 0.05:
        return "cannot tell"
    return "faster" if won > n - won else "slower"
