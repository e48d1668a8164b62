# a sync in every step is the verdict, however busy the GPU is: earns 0
def bottleneck(t):
    if not t.has_gpu:
        return "no GPU"
    steps = trace.steps(t)
    if sum(s.syncs for s in steps) > len(steps):
        return "syncs"
    return "GPU" if sum(s.compute_s for s in steps) > 0.8 * sum(s.seconds_s for s in steps) else "CPU"
