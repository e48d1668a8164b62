# takes the kernels in the order of the list, and each gap from one kernel's end to the next one's start: earns 0
def read_queue(kernels, copies, waits):
    if not kernels:
        raise ValueError
    idle = {"copy": 0, "in flight": 0, "sync": 0, "host": 0}
    for (_, _, end), (launch, start, _) in zip(kernels, kernels[1:]):
        if start > end:
            idle["in flight" if launch <= end else "host"] += start - end
    return idle
