def verdict(before, after):
    if len(before) != len(after):
        raise ValueError("pairs")
    wins = int(sum(b > a for b, a in zip(before, after)))
    losses = int(sum(b < a for b, a in zip(before, after)))
    n = wins + losses
    chance = 2 * sum(math.comb(n, k) for k in range(max(wins, losses), n + 1)) / 2**n if n else 1.0
    if len(before) < 6 or chance > 0.05:
        return "cannot tell"
    return "faster" if wins > losses else "slower"
