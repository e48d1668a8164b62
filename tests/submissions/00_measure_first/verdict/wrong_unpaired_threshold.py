# two medians and two per cent, the pairs not used: earns 0
def verdict(before, after):
    if len(before) != len(after):
        raise ValueError
    if len(before) < 6:
        return "cannot tell"
    r = float(np.median(before) / np.median(after))
    return "faster" if r > 1.02 else "slower" if r < 1 / 1.02 else "cannot tell"
