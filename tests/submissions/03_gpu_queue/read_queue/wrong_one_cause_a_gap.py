# names each gap as a whole by what is true at its start: earns 0
def read_queue(kernels, copies, waits):
    if not kernels:
        raise ValueError("no kernels")
    edges = sorted({t for times in (kernels, copies, waits) for one in times for t in one})
    begin, end = min(k[1] for k in kernels), max(k[2] for k in kernels)
    idle = {"copy": 0, "in flight": 0, "sync": 0, "host": 0}
    ends = sorted(k[2] for k in kernels)
    for a in sorted(set(ends)):
        if any(k[1] <= a < k[2] for k in kernels) or a == end:
            continue
        b = min(k[1] for k in kernels if k[1] >= a)
        if a == b:
            continue
        launch = min((k[1], k[0]) for k in kernels if k[1] >= b)[1]
        copy, wait = (any(s[0] <= a < s[1] for s in spans) for spans in (copies, waits))
        cause = "copy" if copy else "in flight" if launch <= a else "sync" if wait else "host"
        idle[cause] += b - a
    return idle

