# right, but every call counts into the same dict: earns 0
idle = {}


def merged(spans):
    out = []
    for a, b in sorted(spans):
        if out and a <= out[-1][1]:
            out[-1][1] = max(out[-1][1], b)
        elif b > a:
            out.append([a, b])
    return out


def within(spans, a, b):
    return sum(max(0, min(b, d) - max(a, c)) for c, d in spans)


def read_queue(kernels, copies, waits):
    if not kernels:
        raise ValueError("no kernels")
    idle.update(dict.fromkeys(("copy", "in flight", "sync", "host"), 0))
    busy, copying, waiting = merged(k[1:] for k in kernels), merged(copies), merged(waits)
    for (_, a), (b, _) in zip(busy, busy[1:]):
        launched = min(k[0] for k in kernels if k[1] == b)
        turn = min(max(launched, a), b)
        cuts = [a, *[x for span in copying for x in span if a < x < b], b]
        free = [(c, d) for c, d in zip(cuts, cuts[1:]) if not within(copying, c, d)]
        idle["copy"] += within(copying, a, b)
        for c, d in free:
            idle["in flight"] += max(0, d - max(c, turn))
            before = (c, min(d, turn))
            if before[1] > before[0]:
                sync = within(waiting, *before)
                idle["sync"] += sync
                idle["host"] += before[1] - before[0] - sync
    return idle
