# falls over a trace without a GPU: earns 4
def bottleneck(t):
    gaps = trace.idle(t)
    steps = trace.steps(t)
    whole = sum(s.seconds_s for s in steps)
    if sum(s.compute_s for s in steps) > 0.82 * whole:
        return "GPU"
    if sum(s.wait_s for s in steps) < 0.17 * whole:
        return "CPU"
    return "copies" if gaps.seconds.get("waiting for a copy", 0.0) > 0.5 * gaps.total else "syncs"
