# predicts the run by running it: earns 0
def predict_run(gpu, step, steps):
    begin = gpu.clock()
    for _ in range(steps):
        step()
    gpu.synchronize()
    return gpu.clock() - begin
