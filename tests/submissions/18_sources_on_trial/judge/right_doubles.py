def judge(promised, conditions, run, most):
    """Twice as many pairs, until an interval answers or its share is spent."""
    share = most // (2 * len(conditions))

    def answer(version, condition, answered):
        before, after, n = [], [], 6
        while True:
            more = run(version, condition, n)
            before, after = before + list(more[0]), after + list(more[1])
            _, low, high = interval(before, after)
            left = share - len(before)
            if answered(low, high) or left < 6:
                return low, high
            n = min(len(before), left) if left - min(len(before), left) >= 6 else left

    verdicts = []
    for condition in conditions:
        low, high = answer("nothing", condition, lambda low, high: low > 1 or high < 1)
        if low > 1 or high < 1:
            return "confounded"
    for condition in conditions:
        low, high = answer("change", condition, lambda low, high: low >= promised or high < promised)
        verdicts.append((low >= promised) - (high < promised))
    if min(verdicts) == 1:
        return "confirmed"
    if max(verdicts) == -1:
        return "refuted"
    return "partly" if 1 in verdicts and -1 in verdicts else "cannot tell"
