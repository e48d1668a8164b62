# tries the largest size only, and says it of all: earns 2
def trial(before, after, nothing, sizes):
    n = max(sizes)
    for step in (before, after, nothing):
        step(n)
    if count(after, n).operators <= count(nothing, n).operators / 2:
        return "confirmed", list(sizes)
    return "refuted", []
