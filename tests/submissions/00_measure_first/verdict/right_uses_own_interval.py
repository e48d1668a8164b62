def verdict(before, after):
    if len(before) != len(after):
        raise ValueError("pairs")
    if len(before) < 6:
        return "cannot tell"
    _, low, high = paired_speedup(np.asarray(before), np.asarray(after))
    if low > 1:
        return "faster"
    if high < 1:
        return "slower"
    return "cannot tell"
