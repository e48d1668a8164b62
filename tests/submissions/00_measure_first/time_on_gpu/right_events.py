def time_on_gpu(gpu, work, repeats=10):
    if repeats < 1:
        raise ValueError("repeats")
    work()
    start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
    start.record()  # marks stand in the queue: behind the warm-up, no wait needed
    for _ in range(repeats):
        work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / repeats
