# a threshold on the ratio in place of an interval, too high for the real change and blind to noise: earns 0
def verdict(before, after):
    if len(before) != len(after):
        raise ValueError
    if len(before) < 6:
        return "cannot tell"
    r = float(np.median(before / after))
    return "faster" if r > 1.05 else "slower" if r < 1 / 1.05 else "cannot tell"
