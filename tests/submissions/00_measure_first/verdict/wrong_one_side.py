# the chance of so many wins, without that of so few: a word for one series in ten of the same code: earns 1
def verdict(before, after):
    if len(before) != len(after):
        raise ValueError("pairs")
    won, lost = int((before > after).sum()), int((before < after).sum())
    n, most = won + lost, max(won, lost)
    chance = sum(math.comb(n, k) for k in range(most, n + 1)) / 2**n
    if len(before) < 6 or chance >= 0.05:
        return "cannot tell"
    return "faster" if won > lost else "slower"
