# runs six pairs of each, and makes the intervals as narrow as if it had run forty: earns 0
def judge(promised, conditions, run, most):
    def ends(version, condition):
        ratio, low, _ = interval(*run(version, condition, 6))
        reach = math.log(ratio / low) * math.sqrt(6 / 40)
        return ratio * math.exp(-reach), ratio * math.exp(reach)

    words = set()
    for condition in conditions:
        low, high = ends("nothing", condition)
        if not low <= 1 + 1e-6 or not high >= 1 - 1e-6:
            return "confounded"
        low, high = ends("change", condition)
        words.add("holds" if low >= promised - 1e-6 else "fails" if high < promised - 1e-6 else "open")
    if words == {"holds"}:
        return "confirmed"
    if words == {"fails"}:
        return "refuted"
    return "partly" if {"holds", "fails"} <= words else "cannot tell"
