def find_leak(snapshots):
    """The course's own reader adds blocks up by line; what is left is to compare."""
    held = [
        {h.site: h.bytes for h in memory.holders(memory.read(s, evidence="arithmetic")) if ".py:" in h.site or "notebook:" in h.site}
        for s in snapshots
    ]
    growth = {}
    for line in held[-1]:
        series = [h.get(line, 0) for h in held]
        if series == sorted(set(series)):
            growth[line] = series[-1] - series[0]
    return max(growth.items(), key=lambda pair: pair[1], default=None)
