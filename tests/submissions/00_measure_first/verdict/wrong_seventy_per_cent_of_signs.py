# seven pairs of ten, or 21 of 30, are the same to it: earns 0
def verdict(before, after):
    if len(before) != len(after):
        raise ValueError
    if len(before) < 6:
        return "cannot tell"
    won = float(np.mean(before > after))
    return "faster" if won >= 0.7 else "slower" if won <= 0.3 else "cannot tell"
