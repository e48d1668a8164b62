# where a condition is open, the claim counts as failed there: earns 0
def judge(promised, runs, control, also_changed):
    if also_changed or any(not interval(*control[c])[1] <= 1 <= interval(*control[c])[2] for c in runs if c in control):
        return "confounded"
    if set(runs) - set(control):
        return "no control"
    holds = [interval(*pairs)[1] >= promised for pairs in runs.values()]
    return "confirmed" if all(holds) else "partly" if any(holds) else "refuted"
