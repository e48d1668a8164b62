# no control: what the rewriting does is counted as the change's: earns 2
def trial(before, after, nothing, sizes):
    holds = []
    for n in sizes:
        for step in (before, after, nothing):
            step(n)
        if count(after, n).operators <= count(before, n).operators / 2:
            holds.append(n)
    return "confirmed" if len(holds) == len(sizes) else "partly" if holds else "refuted", holds
