# the clock is read while the GPU still works: earns 0
def predict_run(gpu, step, steps):
    begin = gpu.clock()
    step()
    first = gpu.clock() - begin
    begin = gpu.clock()
    for _ in range(steps // 20):
        step()
    return first + (steps - 1) * (gpu.clock() - begin) / (steps // 20)
