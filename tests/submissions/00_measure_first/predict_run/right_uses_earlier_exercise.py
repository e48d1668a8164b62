def predict_run(gpu, step, steps):
    begin = gpu.clock()
    step()
    gpu.synchronize()
    first = gpu.clock() - begin
    return first + (steps - 1) * time_on_gpu(gpu, step, repeats=max(1, steps // 10 - 2))
