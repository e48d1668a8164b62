def judge(promised, conditions, run, most):
    each = most // len(conditions) // 2
    controls = [interval(*run("nothing", name, each)) for name in conditions]
    if any(low > 1 or high < 1 for _, low, high in controls):
        return "confounded"
    ends = [interval(*run("change", name, each))[1:] for name in conditions]
    holds, fails = [low >= promised for low, _ in ends], [high < promised for _, high in ends]
    if all(holds):
        return "confirmed"
    if all(fails):
        return "refuted"
    return "partly" if any(holds) and any(fails) else "cannot tell"
