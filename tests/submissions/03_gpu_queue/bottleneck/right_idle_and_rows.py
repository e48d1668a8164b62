def bottleneck(t):
    if not t.has_gpu:
        return "no GPU"
    gaps = trace.idle(t)
    begin, end = (round(s * 1e9) for s in gaps.window_s)
    if gaps.total / gaps.span < 0.18:
        return "GPU"
    waits = sorted(zip(t.start_ns[t.waiting].tolist(), t.end_ns[t.waiting].tolist()))
    waited, until = 0, begin
    for a, b in waits:
        a, b = max(a, until), min(b, end)
        if b > a:
            waited, until = waited + b - a, b
    if waited < 0.17 * (end - begin):
        return "CPU"
    return "copies" if gaps.share.get("waiting for a copy", 0) > gaps.total / gaps.span / 2 else "syncs"
