# a promise that is met exactly does not count: earns 1
def judge(promised, conditions, run, most):
    words = set()
    for condition in conditions:
        _, low, high = interval(*run("nothing", condition, most // (2 * len(conditions))))
        if not low <= 1 <= high:
            return "confounded"
        _, low, high = interval(*run("change", condition, most // (2 * len(conditions))))
        words.add("holds" if low > promised else "fails" if high < promised else "open")
    if words == {"holds"}:
        return "confirmed"
    if words == {"fails"}:
        return "refuted"
    return "partly" if {"holds", "fails"} <= words else "cannot tell"
