# much copying is called the limit though it hides behind the kernels: earns 2
def bottleneck(t):
    if not t.has_gpu:
        return "no GPU"
    o = trace.overlap(t)
    if o.copy > 0.3 * o.span:
        return "copies"
    if o.compute + o.memory > 0.8 * o.span:
        return "GPU"
    return "CPU" if sum(s.wait_s for s in trace.steps(t)) < 0.18 * o.span else "syncs"
