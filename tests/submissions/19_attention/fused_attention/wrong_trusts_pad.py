# trusts F.pad to make the last stride 1, and it keeps channels_last: earns 1
def fused_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    d, e = q.shape[-1], v.shape[-1]
    width = max(d, e)
    missing = 4 - q.dim()

    def prepare(t):
        for _ in range(missing):
            t = t.unsqueeze(0)
        if t.shape[-1] < width:
            t = F.pad(t, (0, width - t.shape[-1]))  # a new tensor, so it is contiguous
        elif t.stride(-1) != 1:
            t = t.clone(memory_format=torch.contiguous_format)
        return t

    out = SDPA(prepare(q), prepare(k), prepare(v), attn_mask=mask, scale=d**-0.5)
    for _ in range(missing):
        out = out.squeeze(0)
    return out[..., :e]
