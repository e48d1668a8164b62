# asks for missing controls first, and looks at controls of other conditions: earns 1
def judge(promised, runs, control, also_changed):
    if set(runs) - set(control):
        return "no control"
    if also_changed or any(not interval(*pairs)[1] <= 1 <= interval(*pairs)[2] for pairs in control.values()):
        return "confounded"
    ends = [interval(*pairs)[1:] for pairs in runs.values()]
    holds, fails = [low >= promised for low, _ in ends], [high < promised for _, high in ends]
    if all(holds):
        return "confirmed"
    if all(fails):
        return "refuted"
    return "partly" if any(holds) and any(fails) else "cannot tell"
