# where it holds at the smallest and at the largest size, nothing between is tried: earns 4
def trial(before, after, nothing, sizes):
    def holds(n):
        after(n), nothing(n)
        return 2 * count(after, n).operators <= count(nothing, n).operators

    if holds(min(sizes)) and holds(max(sizes)):
        return "confirmed", sizes
    held = [n for n in sizes if holds(n)]
    return "partly" if held else "refuted", held
