# enters the block that ends where the window begins: a first block in which nothing counts makes NaN: earns 1
@triton.jit
def window_kernel(
    q, k, v, filled, out, sinks, window, PLACES: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr
):
    text = tl.program_id(0)
    n = tl.load(filled + text)
    d = tl.arange(0, D)[None, :]
    query = tl.load(q + text * D + d)
    top, total, result = -float("inf"), 0.0, tl.zeros((1, D), tl.float32)
    for start in range(0, n, BLOCK):
        if (start < sinks) | (start + BLOCK >= n - window):
            place = start + tl.arange(0, BLOCK)[:, None]
            mask = (place < n) & ((place < sinks) | (place >= n - window))
            at = (text * PLACES + place) * D + d
            keys = tl.load(k + at, mask=mask, other=0.0)
            values = tl.load(v + at, mask=mask, other=0.0)
            scores = tl.sum(keys * query, 1, keep_dims=True) / D**0.5
            scores = tl.where(mask, scores, -float("inf"))
            new = tl.maximum(top, tl.max(scores))
            shrink = tl.exp(top - new)
            powers = tl.exp(scores - new)
            total = total * shrink + tl.sum(powers)
            result = result * shrink + tl.sum(powers * values, 0, keep_dims=True)
            top = new
    tl.store(out + text * D + d, result / total)


def attend_window(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, filled: torch.Tensor, sinks: int, window: int
) -> torch.Tensor:
    out = q.new_empty(q.shape)
    window_kernel[(len(q),)](
        q, k, v, filled, out, sinks, window, PLACES=k.shape[2], D=k.shape[3], BLOCK=16
    )
    return out
