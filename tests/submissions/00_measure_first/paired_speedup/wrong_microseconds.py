# rounds to whole microseconds first: nothing is left of shorter runs: earns 1
def paired_speedup(before, after):
    if len(before) != len(after) or len(before) < 6:
        raise ValueError("unequal or too few")
    before, after = np.round(before, 6), np.round(after, 6)
    d = np.log(before / after)
    rng = np.random.default_rng(0)
    mids = np.median(d[rng.integers(0, len(d), (1000, len(d)))], axis=1)
    low, high = np.percentile(mids, [2.5, 97.5])
    return float(np.exp(np.median(d))), float(np.exp(low)), float(np.exp(high))
