# the number of calls is rounded up: 61 calls for 609 steps: earns 1
def predict_run(gpu: Any, step: Callable[[], object], steps: int) -> float:
    calls = math.ceil(steps / 10)
    t0 = gpu.clock()
    step()
    gpu.synchronize()
    t1 = gpu.clock()
    for _ in range(calls - 1):
        step()
    gpu.synchronize()
    t2 = gpu.clock()
    return (t1 - t0) + (steps - 1) * (t2 - t1) / (calls - 1)
