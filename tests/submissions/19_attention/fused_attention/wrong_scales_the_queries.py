# scales the queries by hand in place of scale=, which copies them also where the kernel would take them as they lie: earns 1
def fused_attention(q, k, v, mask=None):
    d, e, missing = q.shape[-1], v.shape[-1], 4 - q.dim()
    width = max(d, e)

    def ready(t):
        t = F.pad(t, (0, width - t.shape[-1])) if t.shape[-1] < width else t
        t = t if t.stride(-1) == 1 else t.contiguous()
        return t[(None,) * missing]

    out = SDPA(ready(q * (width / d) ** 0.5), ready(k), ready(v), attn_mask=mask)
    return out[(0,) * missing][..., :e]
