# counts the steps by their names, of which some traces have none: earns 4
def bottleneck(t):
    if not t.has_gpu:
        return "no GPU"
    steps = [s for s in trace.steps(t) if s.name.startswith("ProfilerStep")]
    whole = sum(s.seconds_s for s in steps)
    if sum(s.compute_s for s in steps) > 0.82 * whole:
        return "GPU"
    if sum(s.wait_s for s in steps) < 0.17 * whole:
        return "CPU"
    gaps = trace.idle(t)
    return "copies" if gaps.seconds.get("waiting for a copy", 0.0) > 0.5 * gaps.total else "syncs"
