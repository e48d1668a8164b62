def interval_of_the_median(ratios):
    """Low and high, from the order of the ratios: the median of all possible pairs lies outside in 1 of 20 cases."""
    ordered, n = sorted(ratios), len(ratios)
    outside, below = 0.0, 0
    while outside + math.comb(n, below) / 2**n <= 0.025:
        outside += math.comb(n, below) / 2**n
        below += 1
    return ordered[below - 1], ordered[n - below]


def verdict(before, after):
    if len(before) != len(after):
        raise ValueError("pairs")
    if len(before) < 6:
        return "cannot tell"
    low, high = interval_of_the_median([b / a for b, a in zip(before, after)])
    if low > 1:
        return "faster"
    if high < 1:
        return "slower"
    return "cannot tell"
