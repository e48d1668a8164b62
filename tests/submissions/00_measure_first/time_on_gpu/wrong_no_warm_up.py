# the first call's set-up is in the mean: earns 0
def time_on_gpu(gpu, work, repeats=10):
    if repeats < 1:
        raise ValueError
    gpu.synchronize()
    t = gpu.clock()
    for _ in range(repeats):
        work()
    gpu.synchronize()
    return (gpu.clock() - t) / repeats
