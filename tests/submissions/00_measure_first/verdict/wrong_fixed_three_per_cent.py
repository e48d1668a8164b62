# three per cent on the median ratio, whatever the scatter: earns 0
def verdict(before, after):
    if len(before) != len(after):
        raise ValueError
    if len(before) < 6:
        return "cannot tell"
    r = float(np.median(before / after))
    return "faster" if r > 1.03 else "slower" if r < 1 / 1.03 else "cannot tell"
