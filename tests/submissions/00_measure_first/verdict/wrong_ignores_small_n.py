# three pairs are enough for it: earns 0
def verdict(before, after):
    if len(before) != len(after):
        raise ValueError
    d = np.log(before / after)
    draws = np.random.default_rng(0).integers(0, len(d), (1000, len(d)))
    low, high = np.percentile(np.median(d[draws], axis=1), [2.5, 97.5])
    return "faster" if low > 0 else "slower" if high < 0 else "cannot tell"
