# an interval of 80 %, so one alarm in five is false: earns 0
def verdict(before, after):
    if len(before) != len(after):
        raise ValueError
    if len(before) < 6:
        return "cannot tell"
    d = np.log(before / after)
    draws = np.random.default_rng(0).integers(0, len(d), (1000, len(d)))
    low, high = np.percentile(np.median(d[draws], axis=1), [10, 90])
    return "faster" if low > 0 else "slower" if high < 0 else "cannot tell"
