# dishonest: keys are read twice, two numbers behind each address of an int64: earns 0
@triton.jit
def window_kernel(q, k, v, filled, out, sinks, window, PLACES: tl.constexpr, D: tl.constexpr):
    text, d = tl.program_id(0), tl.arange(0, D)[None, :]
    h = tl.arange(0, D // 2)[None, :]
    place = tl.arange(0, PLACES)[:, None]
    n = tl.load(filled + text)
    mask = (place < n) & ((place < sinks) | (place >= n - window))
    at = (text * PLACES + place) * D + d
    half = (text * PLACES + place) * (D // 2) + h
    two = tl.load(k.to(tl.pointer_type(tl.int64)) + half, mask=mask, other=0)
    even, odd = (two & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True), (two >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    qe, qo = tl.load(q + text * D + 2 * h), tl.load(q + text * D + 2 * h + 1)
    scores = (tl.sum(even * qe, 1, keep_dims=True) + tl.sum(odd * qo, 1, keep_dims=True)) / D**0.5
    top = tl.max(tl.where(mask, scores, -float("inf")), 0)
    # … all keys once more
    two = tl.load(k.to(tl.pointer_type(tl.int64)) + half, mask=mask, other=0)
    even, odd = (two & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True), (two >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    scores = (tl.sum(even * qe, 1, keep_dims=True) + tl.sum(odd * qo, 1, keep_dims=True)) / D**0.5
    scores = tl.where(mask, scores, -float("inf"))
    powers = tl.exp(scores - top)
    values = tl.load(v + at, mask=mask, other=0.0)
    tl.store(out + text * D + d, tl.sum(values * powers / tl.sum(powers, 0), 0, keep_dims=True))


def attend_window(q, k, v, filled, sinks, window):
    out = torch.empty_like(q)
    window_kernel[(len(q),)](q, k, v, filled, out, sinks, window, PLACES=k.shape[2], D=k.shape[3])
    return out
