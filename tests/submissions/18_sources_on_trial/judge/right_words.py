def judge(promised, runs, control, also_changed):
    def place(pairs):
        _, low, high = interval(*pairs)
        return "holds" if low >= promised else "fails" if high < promised else "open"

    for name in runs:
        if name in control:
            _, low, high = interval(*control[name])
            if low > 1 or high < 1:
                return "confounded"
    if len(also_changed) > 0:
        return "confounded"
    if set(runs) - set(control):
        return "no control"
    found = {place(pairs) for pairs in runs.values()}
    if found == {"holds"}:
        return "confirmed"
    if found == {"fails"}:
        return "refuted"
    return "partly" if {"holds", "fails"} <= found else "cannot tell"
