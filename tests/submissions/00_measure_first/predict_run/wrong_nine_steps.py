# the right idea, with so few steps that filling the overlap counts: earns 0
def predict_run(gpu, step, steps):
    begin = gpu.clock()
    step()
    gpu.synchronize()
    first = gpu.clock() - begin
    begin = gpu.clock()
    for _ in range(9):
        step()
    gpu.synchronize()
    return first + (steps - 1) * (gpu.clock() - begin) / 9
