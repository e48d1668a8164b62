# warms up in front of the clock, but what was in the queue is measured too: earns 0
def time_on_gpu(gpu, work, repeats=10):
    if repeats < 1:
        raise ValueError
    start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
    work()
    t = gpu.clock()
    for _ in range(repeats):
        work()
    gpu.synchronize()
    return (gpu.clock() - t) / repeats
