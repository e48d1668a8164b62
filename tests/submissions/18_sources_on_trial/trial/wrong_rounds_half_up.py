# half of an odd number is rounded up, so 4 of 7 count as half: earns 4
def trial(before, after, nothing, sizes):
    holds = []
    for n in sizes:
        after(n), nothing(n)
        if count(after, n).operators <= (count(nothing, n).operators + 1) // 2:
            holds.append(n)
    return "confirmed" if len(holds) == len(sizes) else "partly" if holds else "refuted", holds
