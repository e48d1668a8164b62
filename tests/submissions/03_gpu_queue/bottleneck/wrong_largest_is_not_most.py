# copies that are the largest cause of the idle time, though not of most of it, get the blame: earns 4
def bottleneck(t):
    if not t.has_gpu:
        return "no GPU"
    computes, waits = shares(t)
    if computes > 0.82:
        return "GPU"
    if waits < 0.17:
        return "CPU"
    seconds = trace.idle(t).seconds
    return "copies" if max(seconds, key=seconds.get) == "waiting for a copy" else "syncs"
