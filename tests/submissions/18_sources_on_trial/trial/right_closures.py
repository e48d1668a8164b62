def trial(before, after, nothing, sizes):
    def warm_operators(step, n):
        step(n)
        with count() as counts:
            step(n)
        return counts.operators

    held = [n for n in sizes if 2 * warm_operators(after, n) <= warm_operators(nothing, n)]
    if not held:
        return "refuted", []
    return ("confirmed" if held == sizes else "partly"), held
