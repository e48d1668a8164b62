# no wait between warm-up and clock, the warm-up's work is measured too: earns 0
def time_on_gpu(gpu, work, repeats=10):
    if repeats < 1:
        raise ValueError
    work()
    t = gpu.clock()
    for _ in range(repeats):
        work()
    gpu.synchronize()
    return (gpu.clock() - t) / repeats
