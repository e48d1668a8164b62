# two medians always differ: earns 0
def verdict(before, after):
    if len(before) != len(after):
        raise ValueError
    if len(before) < 6:
        return "cannot tell"
    return "faster" if np.median(before) > np.median(after) else "slower"
