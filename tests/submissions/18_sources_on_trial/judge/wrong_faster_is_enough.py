# any gain confirms the claim, whatever it promised: earns 0
def judge(promised, runs, control, also_changed):
    if also_changed or any(not interval(*control[c])[1] <= 1 <= interval(*control[c])[2] for c in runs if c in control):
        return "confounded"
    if set(runs) - set(control):
        return "no control"
    ends = [interval(*pairs)[1:] for pairs in runs.values()]
    if all(low > 1 for low, _ in ends):
        return "confirmed"
    if all(high < 1 for _, high in ends):
        return "refuted"
    return "partly" if any(low > 1 for low, _ in ends) and any(high < 1 for _, high in ends) else "cannot tell"
