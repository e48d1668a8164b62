# the control gets six pairs, the change all others: what it wins in noise is not seen: earns 0
def judge(promised, conditions, run, most):
    words = set()
    for condition in conditions:
        _, low, high = interval(*run("nothing", condition, 6))
        if not low <= 1 <= high:
            return "confounded"
        _, low, high = interval(*run("change", condition, most // len(conditions) - 6))
        words.add("holds" if low >= promised else "fails" if high < promised else "open")
    if words == {"holds"}:
        return "confirmed"
    if words == {"fails"}:
        return "refuted"
    return "partly" if {"holds", "fails"} <= words else "cannot tell"
