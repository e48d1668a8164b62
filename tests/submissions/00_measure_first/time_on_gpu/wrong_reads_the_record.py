# asks the simulator for its list of kernels, which no real GPU has: earns 0
def time_on_gpu(gpu, work, repeats=10):
    if repeats < 1:
        raise ValueError
    first = len(gpu.kernels)
    for _ in range(repeats):
        work()
    return sum(k.duration_s for k in gpu.kernels[first:]) / repeats
