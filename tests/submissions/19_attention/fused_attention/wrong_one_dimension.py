# adds one dimension, whatever is missing: earns 1
def fused_attention(q, k, v, mask=None):
    d, e = q.shape[-1], v.shape[-1]

    def ready(t):
        t = F.pad(t, (0, max(d, e) - t.shape[-1])) if t.shape[-1] < max(d, e) else t
        t = t if t.stride(-1) == 1 else t.contiguous()
        return t if t.dim() == 4 else t[None]

    out = SDPA(ready(q), ready(k), ready(v), attn_mask=mask, scale=d**-0.5)[..., :e]
    return out if q.dim() == 4 else out[0]
