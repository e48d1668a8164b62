def bottleneck(t):
    if not t.has_gpu:
        return "no GPU"
    o = trace.overlap(t)
    if o.compute + o.memory > 0.8 * o.span:
        return "GPU"
    if sum(s.wait_s for s in trace.steps(t)) < 0.18 * o.span:
        return "CPU"
    idle = o.span - o.compute - o.memory
    return "copies" if o.exposed_copy > 0.5 * idle else "syncs"
