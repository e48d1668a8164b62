# the set-up is multiplied with the steps: earns 0
def predict_run(gpu, step, steps):
    k = steps // 10
    begin = gpu.clock()
    for _ in range(k):
        step()
    gpu.synchronize()
    return (gpu.clock() - begin) * steps / k
