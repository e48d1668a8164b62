# right, but repeats=0 divides by zero: earns 0
def time_on_gpu(gpu, work, repeats=10):
    work()
    gpu.synchronize()
    t = gpu.clock()
    for _ in range(repeats):
        work()
    gpu.synchronize()
    return (gpu.clock() - t) / repeats
