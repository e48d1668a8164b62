# elapsed_time is in milliseconds: earns 0
def time_on_gpu(gpu, work, repeats=10):
    if repeats < 1:
        raise ValueError
    work()
    start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / repeats
