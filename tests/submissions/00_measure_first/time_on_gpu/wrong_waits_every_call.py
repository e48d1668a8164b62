# a launch and a wait in every sample: earns 0
import statistics


def time_on_gpu(gpu, work, repeats=10):
    if repeats < 1:
        raise ValueError
    work()
    gpu.synchronize()
    samples = []
    for _ in range(repeats):
        t = gpu.clock()
        work()
        gpu.synchronize()
        samples.append(gpu.clock() - t)
    return statistics.median(samples)
