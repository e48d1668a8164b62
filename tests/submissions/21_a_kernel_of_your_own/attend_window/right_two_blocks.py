@triton.jit
def two_blocks(q, k, v, filled, out, sinks, window, places, D: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr):
    text, d = tl.program_id(0), tl.arange(0, D)
    n = tl.load(filled + text)
    query = tl.load(q + text * D + d)
    k, v = k + text * places * D, v + text * places * D

    first = tl.arange(0, FIRST)
    is_first = (first < sinks) & (first < n)
    begin = tl.maximum(n - window, tl.minimum(sinks, n))
    last = begin + tl.arange(0, LAST)
    is_last = last < n

    k1 = tl.load(k + first[:, None] * D + d[None, :], mask=is_first[:, None], other=0.0)
    k2 = tl.load(k + last[:, None] * D + d[None, :], mask=is_last[:, None], other=0.0)
    s1 = tl.where(is_first, tl.sum(k1 * query[None, :], 1) / tl.sqrt(D * 1.0), -float("inf"))
    s2 = tl.where(is_last, tl.sum(k2 * query[None, :], 1) / tl.sqrt(D * 1.0), -float("inf"))
    top = tl.maximum(tl.max(s1, 0), tl.max(s2, 0))
    p1, p2 = tl.exp(s1 - top), tl.exp(s2 - top)
    v1 = tl.load(v + first[:, None] * D + d[None, :], mask=is_first[:, None], other=0.0)
    v2 = tl.load(v + last[:, None] * D + d[None, :], mask=is_last[:, None], other=0.0)
    total = tl.sum(p1, 0) + tl.sum(p2, 0)
    result = (tl.sum(p1[:, None] * v1, 0) + tl.sum(p2[:, None] * v2, 0)) / total
    tl.store(out + text * D + d, result)


def attend_window(q, k, v, filled, sinks, window):
    texts, _, places, d = k.shape
    out = torch.empty(texts, 1, 1, d)
    first, last = triton.next_power_of_2(max(sinks, 1)), triton.next_power_of_2(window)
    two_blocks[(texts,)](q, k, v, filled, out, sinks, window, places, D=d, FIRST=first, LAST=last)
    return out
