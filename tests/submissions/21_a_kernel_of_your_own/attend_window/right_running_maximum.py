BLOCK = 8


@triton.jit
def kernel(q, k, v, filled, out, sinks, window, PLACES: tl.constexpr, D: tl.constexpr, STEP: tl.constexpr):
    text = tl.program_id(0)
    d = tl.arange(0, D)
    n = tl.load(filled + text)
    query = tl.load(q + text * D + d) / D**0.5
    top, total, weighted = -float("inf"), 0.0, tl.zeros((D,), tl.float32)
    for start in range(0, PLACES, STEP):
        place = start + tl.arange(0, STEP)
        counts = (place < n) & ((place < sinks) | (place + window >= n))
        if tl.max(counts.to(tl.int32), 0) > 0:
            at = (text * PLACES + place)[:, None] * D + d[None, :]
            scores = tl.sum(tl.load(k + at, mask=counts[:, None], other=0.0) * query[None, :], 1)
            scores = tl.where(counts, scores, -float("inf"))
            new = tl.maximum(top, tl.max(scores, 0))
            powers, shrink = tl.exp(scores - new), tl.exp(top - new)
            values = tl.load(v + at, mask=counts[:, None], other=0.0)
            weighted = weighted * shrink + tl.sum(powers[:, None] * values, 0)
            total = total * shrink + tl.sum(powers, 0)
            top = new
    tl.store(out + text * D + d, weighted / total)


def attend_window(q, k, v, filled, sinks, window):
    out = torch.empty_like(q)
    kernel[(q.shape[0],)](q, k, v, filled, out, sinks, window, PLACES=k.shape[2], D=q.shape[-1], STEP=BLOCK)
    return out
