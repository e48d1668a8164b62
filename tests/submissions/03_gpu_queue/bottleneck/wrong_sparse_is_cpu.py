# the flow without the second number: sparse is the CPU, gaps are syncs: earns 0
def bottleneck(t):
    if not t.has_gpu:
        return "no GPU"
    gaps = trace.idle(t)
    busy = 1 - gaps.total / gaps.span
    if busy > 0.9:
        return "GPU"
    return "CPU" if busy < 0.5 else "syncs"
