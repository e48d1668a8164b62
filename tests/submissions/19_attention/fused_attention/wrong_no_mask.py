# forgets the mask: earns 1
def fused_attention(q, k, v, mask=None):
    d, e, missing = q.shape[-1], v.shape[-1], 4 - q.dim()

    def ready(t):
        t = F.pad(t, (0, max(d, e) - t.shape[-1])) if t.shape[-1] < max(d, e) else t
        t = t if t.stride(-1) == 1 else t.contiguous()
        return t[(None,) * missing]

    return SDPA(ready(q), ready(k), ready(v), scale=d**-0.5)[(0,) * missing][..., :e]
