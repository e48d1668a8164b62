# takes the kernels in the order of the list, and each gap from one kernel's end to the next one's start: earns 2
def read_queue(kernels, copies, waits):
    if not kernels:
        raise ValueError
    idle = {"copy": 0, "in flight": 0, "sync": 0, "host": 0}
    for (_, _, end), (launch, start, _) in zip(kernels, kernels[1:]):
        if start > end:
            idle["in flight" if launch <= end else "host"] += start - end
    changes = sorted([(k[0], 1) for k in kernels] + [(k[1], -1) for k in kernels])
    depth = deepest = empty = 0
    for (a, change), (b, _) in zip(changes, changes[1:]):
        depth += change
        deepest = max(deepest, depth)
        empty += b - a if depth == 0 else 0
    return {"deepest": deepest, "waiting": sum(k[1] - k[0] for k in kernels), "empty": empty, "idle": idle}
