# compares the middle with the promise, and so can always tell: earns 0
def judge(promised, runs, control, also_changed):
    if also_changed:
        return "confounded"
    if any(abs(interval(*control[c])[0] - 1) > 0.1 for c in runs if c in control):
        return "confounded"
    if set(runs) - set(control):
        return "no control"
    holds = [interval(*pairs)[0] >= promised for pairs in runs.values()]
    return "confirmed" if all(holds) else "partly" if any(holds) else "refuted"
