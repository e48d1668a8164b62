# the time of all calls: earns 0
def time_on_gpu(gpu, work, repeats=10):
    if repeats < 1:
        raise ValueError
    work()
    gpu.synchronize()
    t = gpu.clock()
    for _ in range(repeats):
        work()
    gpu.synchronize()
    return gpu.clock() - t
