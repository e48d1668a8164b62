# signs, but eight pairs of ten are enough: it knows the visible test, not the coin: earns 1
def verdict(before, after):
    if len(before) != len(after):
        raise ValueError
    if len(before) < 6:
        return "cannot tell"
    won = float(np.mean(before > after))
    lost = float(np.mean(before < after))
    return "faster" if won > 0.75 or won >= 0.65 and len(before) > 13 else "slower" if lost > 0.75 or lost >= 0.65 and len(before) > 13 else "cannot tell"
