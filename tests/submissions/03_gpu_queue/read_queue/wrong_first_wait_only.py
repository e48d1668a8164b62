# goes by the lists' order: a copy or wait that lies inside an earlier one, or before it, is passed over: earns 1
def read_queue(kernels, copies, waits):
    if not kernels:
        raise ValueError("no kernels")
    begin, end = min(k[1] for k in kernels), max(k[2] for k in kernels)
    edges = sorted({t for times in (kernels, copies, waits) for one in times for t in one if begin <= t <= end})
    idle = {"copy": 0, "in flight": 0, "sync": 0, "host": 0}
    at = {"copy": 0, "sync": 0}
    for a, b in zip(edges, edges[1:]):
        for cause, spans in (("copy", copies), ("sync", waits)):
            while at[cause] < len(spans) and spans[at[cause]][1] <= a:
                at[cause] += 1
        if any(k[1] <= a and b <= k[2] for k in kernels):
            continue
        covered = {c: at[c] < len(x) and x[at[c]][0] <= a for c, x in (("copy", copies), ("sync", waits))}
        launch = min((k[1], k[0]) for k in kernels if k[1] >= b)[1]
        cause = "copy" if covered["copy"] else "in flight" if launch <= a else "sync" if covered["sync"] else "host"
        idle[cause] += b - a
    return idle
