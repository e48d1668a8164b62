def trial(before, after, nothing, sizes):
    table = {}
    for n in sizes:
        counts = {}
        for name, step in {"before": before, "nothing": nothing, "after": after}.items():
            runs = [count(step, n).operators for _ in range(3)]
            counts[name] = sorted(runs)[0] if min(runs) == runs[-1] else runs[-1]
        table[n] = counts["nothing"] / counts["after"]
    holds = [n for n, ratio in table.items() if ratio >= 2]
    words = {0: "refuted", len(table): "confirmed"}
    return words.get(len(holds), "partly"), holds
