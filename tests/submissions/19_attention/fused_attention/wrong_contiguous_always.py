# copies what lies head by head, though its last stride is 1: earns 1
def fused_attention(q, k, v, mask=None):
    d, e, missing = q.shape[-1], v.shape[-1], 4 - q.dim()

    def ready(t):
        t = F.pad(t, (0, max(d, e) - t.shape[-1])) if t.shape[-1] < max(d, e) else t
        return t.contiguous()[(None,) * missing]

    return SDPA(ready(q), ready(k), ready(v), attn_mask=mask, scale=d**-0.5)[(0,) * missing][..., :e]
