# a mean, which one disturbed run carries away: earns 0
def verdict(before, after):
    if len(before) != len(after):
        raise ValueError
    if len(before) < 6:
        return "cannot tell"
    d = np.log(before / after)
    h = 2.05 * d.std(ddof=1) / math.sqrt(len(d))
    return "faster" if d.mean() > h else "slower" if d.mean() < -h else "cannot tell"
