# a wait in every measured step, which the program does not have: earns 0
def predict_run(gpu, step, steps):
    times = []
    for _ in range(steps // 10):
        begin = gpu.clock()
        step()
        gpu.synchronize()
        times.append(gpu.clock() - begin)
    return times[0] + (steps - 1) * sorted(times)[len(times) // 2]
