# adds what is left after the calls to nothing: the larger of the calls (CPU) and of the wait after them (GPU): earns 1
def predict_run(gpu, step, steps):
    t = gpu.clock(); step(); gpu.synchronize(); first = gpu.clock() - t
    t = gpu.clock(); step(); cpu = gpu.clock() - t
    gpu.synchronize(); both = gpu.clock() - t
    return first + (steps - 1) * max(cpu, both - cpu)
