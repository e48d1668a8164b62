# before it counts, it runs all three with one row, which nobody asked about: earns 0
def trial(before, after, nothing, sizes):
    holds = []
    for n in sizes:
        for rows in (1, n):
            before(rows), after(rows), nothing(rows)
        if 2 * count(after, n).operators <= count(nothing, n).operators:
            holds.append(n)
    return "confirmed" if len(holds) == len(sizes) else "partly" if holds else "refuted", holds
