def time_on_gpu(gpu, work, repeats=10):
    if repeats <= 0:
        raise ValueError(repeats)
    for _ in range(5):
        work()
    gpu.current_stream().synchronize()
    t = gpu.clock_ns()
    for _ in range(repeats):
        work()
    gpu.current_stream().synchronize()
    return (gpu.clock_ns() - t) / repeats * 1e-9
