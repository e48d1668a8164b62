# waits for what was queued, then takes the fastest of calls that each wait: earns 0
def time_on_gpu(gpu, work, repeats=10):
    if repeats < 1:
        raise ValueError
    gpu.synchronize()
    best = float("inf")
    for _ in range(repeats):
        t = gpu.clock()
        work()
        gpu.synchronize()
        best = min(best, gpu.clock() - t)
    return best
