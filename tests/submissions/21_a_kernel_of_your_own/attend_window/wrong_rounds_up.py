# the first and the last in a block each, of the next power of two: a window of 150 takes a block of 256: earns 1
@triton.jit
def two_blocks(q, k, v, filled, out, sinks, window, places, D: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr):
    text, d = tl.program_id(0), tl.arange(0, D)[None, :]
    n = tl.load(filled + text)
    query = tl.load(q + text * D + d)
    k, v = k + text * places * D, v + text * places * D
    first = tl.arange(0, FIRST)[:, None]
    is_first = (first < sinks) & (first < n)
    last = tl.maximum(n - window, tl.minimum(sinks, n)) + tl.arange(0, LAST)[:, None]
    is_last = last < n
    keys_first = tl.load(k + first * D + d, mask=is_first, other=0.0)
    keys_last = tl.load(k + last * D + d, mask=is_last, other=0.0)
    s1 = tl.where(is_first, tl.sum(keys_first * query, 1, keep_dims=True) / D**0.5, -float("inf"))
    s2 = tl.where(is_last, tl.sum(keys_last * query, 1, keep_dims=True) / D**0.5, -float("inf"))
    top = tl.maximum(tl.max(s1), tl.max(s2))
    p1, p2 = tl.exp(s1 - top), tl.exp(s2 - top)
    result = tl.sum(p1 * tl.load(v + first * D + d, mask=is_first, other=0.0), 0, keep_dims=True)
    result += tl.sum(p2 * tl.load(v + last * D + d, mask=is_last, other=0.0), 0, keep_dims=True)
    tl.store(out + text * D + d, result / (tl.sum(p1) + tl.sum(p2)))


def attend_window(q, k, v, filled, sinks, window):
    texts, _, places, d = k.shape
    out = torch.empty(texts, 1, 1, d)
    first, last = triton.next_power_of_2(max(sinks, 1)), triton.next_power_of_2(min(window, places))
    two_blocks[(texts,)](q, k, v, filled, out, sinks, window, places, D=d, FIRST=first, LAST=last)
    return out
