# the clock is read before the GPU is done: earns 0
def time_on_gpu(gpu, work, repeats=10):
    if repeats < 1:
        raise ValueError
    work()
    gpu.synchronize()
    t = gpu.clock()
    for _ in range(repeats):
        work()
    return (gpu.clock() - t) / repeats
