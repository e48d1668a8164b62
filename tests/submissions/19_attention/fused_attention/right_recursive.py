from torch.nn.attention import SDPBackend, sdpa_kernel


def fused_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    # The easy way to count dimensions: let the function call itself with one more.
    if q.dim() < 4:
        return fused_attention(q[None], k[None], v[None], mask)[0]

    d, e = q.size(-1), v.size(-1)

    if d < e:
        more = e - d
        q = torch.cat([q, q.new_zeros(*q.shape[:-1], more)], dim=-1)
        k = torch.cat([k, k.new_zeros(*k.shape[:-1], more)], dim=-1)
    elif e < d:
        v = torch.cat([v, v.new_zeros(*v.shape[:-1], d - e)], dim=-1)

    q, k, v = (
        t if t.stride(-1) == 1 else torch.empty(t.shape, dtype=t.dtype, device=t.device).copy_(t)
        for t in (q, k, v)
    )

    # rather an error than math
    with sdpa_kernel(
        [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]
    ):
        out = SDPA(q, k, v, attn_mask=mask, scale=d**-0.5)
    return out if e >= d else out[..., :e]
