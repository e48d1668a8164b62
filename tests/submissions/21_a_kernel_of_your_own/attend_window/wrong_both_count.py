# a place that is a sink and in the window counts twice: earns 1
@triton.jit
def window_kernel(q, k, v, filled, out, sinks, window, PLACES: tl.constexpr, D: tl.constexpr):
    text, d = tl.program_id(0), tl.arange(0, D)[None, :]
    place = tl.arange(0, PLACES)[:, None]
    n = tl.load(filled + text)
    query = tl.load(q + text * D + d)
    at = (text * PLACES + place) * D + d

    first = (place < n) & (place < sinks)
    last = (place < n) & (place >= n - window)
    keys_first = tl.load(k + at, mask=first, other=0.0)
    keys_last = tl.load(k + at, mask=last, other=0.0)
    scores_first = tl.where(first, tl.sum(keys_first * query, 1, keep_dims=True) / D**0.5, -float("inf"))
    scores_last = tl.where(last, tl.sum(keys_last * query, 1, keep_dims=True) / D**0.5, -float("inf"))
    top = tl.maximum(tl.max(scores_first, 0), tl.max(scores_last, 0))
    powers_first, powers_last = tl.exp(scores_first - top), tl.exp(scores_last - top)
    total = tl.sum(powers_first, 0) + tl.sum(powers_last, 0)
    weighted = tl.sum(tl.load(v + at, mask=first, other=0.0) * powers_first, 0, keep_dims=True)
    weighted += tl.sum(tl.load(v + at, mask=last, other=0.0) * powers_last, 0, keep_dims=True)
    tl.store(out + text * D + d, weighted / total)


def attend_window(q, k, v, filled, sinks, window):
    out = torch.empty_like(q)
    window_kernel[(len(q),)](q, k, v, filled, out, sinks, window, PLACES=k.shape[2], D=k.shape[3])
    return out
