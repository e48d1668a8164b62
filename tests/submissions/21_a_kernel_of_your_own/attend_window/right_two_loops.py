@triton.jit
def add_block(start, first, end, q, k, v, top, total, result, D: tl.constexpr, BLOCK: tl.constexpr):
    place, d = start + tl.arange(0, BLOCK)[:, None], tl.arange(0, D)[None, :]
    mask = (place >= first) & (place < end)
    scores = tl.sum(tl.load(k + place * D + d, mask=mask, other=0.0) * q, 1, keep_dims=True) / D**0.5
    scores = tl.where(mask, scores, -float("inf"))
    new = tl.maximum(top, tl.max(scores))
    powers, shrink = tl.exp(scores - new), tl.exp(top - new)
    values = tl.load(v + place * D + d, mask=mask, other=0.0)
    return new, total * shrink + tl.sum(powers), result * shrink + tl.sum(powers * values, 0, keep_dims=True)


@triton.jit
def window_kernel(q, k, v, filled, out, sinks, window, places, D: tl.constexpr, BLOCK: tl.constexpr):
    text, d = tl.program_id(0), tl.arange(0, D)[None, :]
    n = tl.load(filled + text)
    query = tl.load(q + text * D + d)
    k, v = k + text * places * D, v + text * places * D
    top, total, result = -float("inf"), 0.0, tl.zeros((1, D), tl.float32)
    end = tl.minimum(sinks, n)
    for start in range(0, end, BLOCK):
        top, total, result = add_block(start, 0, end, query, k, v, top, total, result, D, BLOCK)
    first = tl.maximum(n - window, end)
    for start in range(first, n, BLOCK):
        top, total, result = add_block(start, first, n, query, k, v, top, total, result, D, BLOCK)
    tl.store(out + text * D + d, result / total)


def attend_window(q, k, v, filled, sinks, window):
    out = torch.empty_like(q)
    window_kernel[(len(q),)](q, k, v, filled, out, sinks, window, k.shape[2], D=k.shape[3], BLOCK=16)
    return out
