# the largest cause of idle time names it: the Python after a read is blamed on the CPU: earns 0
def bottleneck(t):
    if not t.has_gpu:
        return "no GPU"
    gaps = trace.idle(t)
    if gaps.total < 0.2 * gaps.span:
        return "GPU"
    word = {"sync": "syncs", "waiting for a copy": "copies"}
    return word.get(next(iter(gaps.seconds)), "CPU")
