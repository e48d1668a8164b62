# sinks count although the text is shorter: earns 1
@triton.jit
def window_kernel(q, k, v, filled, out, sinks, window, PLACES: tl.constexpr, D: tl.constexpr):
    text, d = tl.program_id(0), tl.arange(0, D)[None, :]
    place = tl.arange(0, PLACES)[:, None]
    n = tl.load(filled + text)
    mask = (place < sinks) | ((place >= n - window) & (place < n))
    at = (text * PLACES + place) * D + d
    keys = tl.load(k + at, mask=mask, other=0.0)
    scores = tl.sum(keys * tl.load(q + text * D + d), 1, keep_dims=True) / D**0.5
    scores = tl.where(mask, scores, -float("inf"))
    powers = tl.exp(scores - tl.max(scores, 0))
    values = tl.load(v + at, mask=mask, other=0.0)
    tl.store(out + text * D + d, tl.sum(values * powers / tl.sum(powers, 0), 0, keep_dims=True))


def attend_window(q, k, v, filled, sinks, window):
    out = torch.empty_like(q)
    window_kernel[(len(q),)](q, k, v, filled, out, sinks, window, PLACES=k.shape[2], D=k.shape[3])
    return out
