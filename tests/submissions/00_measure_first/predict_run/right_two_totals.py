def predict_run(gpu, step, steps):
    """A straight line through two totals of one cold run."""
    t0 = gpu.clock()
    step()
    gpu.synchronize()
    a = gpu.clock() - t0
    few, many = 1, steps // 10
    for _ in range(many - few):
        step()
    gpu.synchronize()
    b = gpu.clock() - t0
    slope = (b - a) / (many - few)
    return a + slope * (steps - few)
