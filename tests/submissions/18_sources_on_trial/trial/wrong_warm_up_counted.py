# the first call, which sets something up, is counted: earns 0
def trial(before, after, nothing, sizes):
    holds = []
    for n in sizes:
        was, control, now = (count(step, n).operators for step in (before, nothing, after))
        if now <= max(was, control) / 2:
            holds.append(n)
    return "confirmed" if len(holds) == len(sizes) else "partly" if holds else "refuted", holds
