# one interval over the controls of all conditions together: one that wins and one that loses cancel out: earns 1
Pairs = tuple[list[float], list[float]]


def judge(promised: float, conditions: list[str], run: Callable[[str, str, int], Pairs], most: int) -> str:
    n = most // (2 * len(conditions))
    before, after = [], []
    for condition in conditions:
        b, a = run("nothing", condition, n)
        before.extend(b)
        after.extend(a)
    # all controls together: more pairs, so a narrower interval
    _, low, high = interval(before, after)
    if low > 1 or high < 1:
        return "confounded"

    holds, fails = [], []
    for condition in conditions:
        _, low, high = interval(*run("change", condition, n))
        if low >= promised:
            holds.append(condition)
        elif high < promised:
            fails.append(condition)
    if holds and fails:
        return "partly"
    if len(holds) == len(conditions):
        return "confirmed"
    if len(fails) == len(conditions):
        return "refuted"
    return "cannot tell"
