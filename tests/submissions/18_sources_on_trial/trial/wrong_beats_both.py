# the change must also halve what there was before the rewriting, which doubles it: earns 4
def trial(before, after, nothing, sizes):
    holds = []
    for n in sizes:
        before(n), after(n), nothing(n)
        least = min(count(before, n).operators, count(nothing, n).operators)
        if count(after, n).operators <= least / 2:
            holds.append(n)
    return "confirmed" if len(holds) == len(sizes) else "partly" if holds else "refuted", holds
