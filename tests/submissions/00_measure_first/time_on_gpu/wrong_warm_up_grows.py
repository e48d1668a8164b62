# one warm-up for every ten calls measured: with many of them more than five: earns 1
def time_on_gpu(gpu: Any, work: Callable[[], object], repeats: int = 10) -> float:
    if repeats < 1:
        raise ValueError("repeats must be at least 1")
    for _ in range(max(1, repeats // 10)):
        work()
    gpu.synchronize()
    start = gpu.clock()
    for _ in range(repeats):
        work()
    gpu.synchronize()
    return (gpu.clock() - start) / repeats
