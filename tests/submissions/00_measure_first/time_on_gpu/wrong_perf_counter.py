# the computer's clock, which cannot see the simulated GPU: earns 0
import time


def time_on_gpu(gpu, work, repeats=10):
    if repeats < 1:
        raise ValueError
    work()
    gpu.synchronize()
    t = time.perf_counter()
    for _ in range(repeats):
        work()
    gpu.synchronize()
    return (time.perf_counter() - t) / repeats
