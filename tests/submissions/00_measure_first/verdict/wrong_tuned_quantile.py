# one quantile of the pairs, tuned to 10 and 30 of them; 100 pairs tell it no more: earns 1
def verdict(before, after):
    if len(before) != len(after):
        raise ValueError("pairs")
    if len(before) < 6:
        return "cannot tell"
    low, high = np.quantile(np.log(before / after), [0.2, 0.8])
    return "faster" if low > 0 else "slower" if high < 0 else "cannot tell"
