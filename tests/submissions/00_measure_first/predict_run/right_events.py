def predict_run(gpu, step, steps):
    t0 = gpu.clock()
    step()
    gpu.synchronize()
    first = gpu.clock() - t0
    marks = [gpu.Event(enable_timing=True) for _ in range(2)]
    k = steps // 10 - 2
    step()  # so that the queue is busy when the first mark arrives
    marks[0].record()
    for _ in range(k):
        step()
    marks[1].record()
    gpu.synchronize()
    return first + (steps - 1) * marks[0].elapsed_time(marks[1]) / 1e3 / k
