# causal masks all queries of each block, and so computes twice as many scores as are needed: earns 0
def blockwise_attention(q, k, v, block, causal=False):
    n = q.shape[-2]
    most = q.new_full((*q.shape[:-1], 1), -math.inf)
    total, out = torch.zeros_like(most), q.new_zeros(*q.shape[:-1], v.shape[-1])
    for start in range(0, k.shape[-2], block):
        s = q @ k[..., start : start + block, :].mT / math.sqrt(q.shape[-1])
        if causal:
            s.masked_fill_(start + torch.arange(s.shape[-1]) > torch.arange(n)[:, None], -math.inf)
        new = torch.maximum(most, s.amax(-1, keepdim=True))
        weights, shrink = s.sub_(new).exp_(), (most - new).exp_()
        total = total * shrink + weights.sum(-1, keepdim=True)
        out = out * shrink + weights @ v[..., start : start + block, :]
        most = new
    return out / total
