# a wait counts before what is in flight: earns 0
def read_queue(kernels, copies, waits):
    if not kernels:
        raise ValueError("no kernels")
    edges = sorted({t for times in (kernels, copies, waits) for one in times for t in one})
    begin, end = min(k[1] for k in kernels), max(k[2] for k in kernels)
    idle = {"copy": 0, "in flight": 0, "sync": 0, "host": 0}
    for a, b in zip(edges, edges[1:]):
        if a < begin or b > end or any(k[1] <= a and b <= k[2] for k in kernels):
            continue
        launch = min((k[1], k[0]) for k in kernels if k[1] >= b)[1]
        copy, wait = (any(s[0] <= a and b <= s[1] for s in spans) for spans in (copies, waits))
        cause = "copy" if copy else "sync" if wait else "in flight" if launch <= a else "host"
        idle[cause] += b - a
    return idle
