# a tie counts as a pair that "after" won: equal times come out as "faster": earns 1
def verdict(before, after):
    if len(before) != len(after):
        raise ValueError("unequal lengths")
    n = len(before)
    if n < 6:
        return "cannot tell"
    wins = int((after <= before).sum())
    def tail(k):
        return sum(math.comb(n, i) for i in range(k, n + 1)) / 2**n
    if 2 * tail(wins) < 0.05:
        return "faster"
    if 2 * tail(n - wins) < 0.05:
        return "slower"
    return "cannot tell"
