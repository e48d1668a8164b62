# looks at the runs only: earns 0
def judge(promised, runs, control, also_changed):
    ends = [interval(*pairs)[1:] for pairs in runs.values()]
    holds, fails = [low >= promised for low, _ in ends], [high < promised for _, high in ends]
    if all(holds):
        return "confirmed"
    if all(fails):
        return "refuted"
    return "partly" if any(holds) and any(fails) else "cannot tell"
