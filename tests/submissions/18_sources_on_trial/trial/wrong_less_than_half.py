# exactly half is not enough for it: earns 2
def trial(before, after, nothing, sizes):
    holds = []
    for n in sizes:
        before(n), after(n), nothing(n)
        if count(after, n).operators < count(nothing, n).operators / 2:
            holds.append(n)
    return "confirmed" if len(holds) == len(sizes) else "partly" if holds else "refuted", holds
