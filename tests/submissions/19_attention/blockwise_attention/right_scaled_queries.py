# Divides all queries by √d beforehand, for which the budget has room.
def blockwise_attention(q, k, v, block, causal=False):
    highest = q.new_full((*q.shape[:-1], 1), float("-inf"))
    total = torch.zeros_like(highest)
    out = q.new_zeros(*q.shape[:-1], v.shape[-1])
    scaled = q / math.sqrt(q.shape[-1])
    for start in range(0, k.shape[-2], block):
        keys, values = k[..., start : start + block, :], v[..., start : start + block, :]
        rows = slice(start if causal else 0, None)
        scores = scaled[..., rows, :] @ keys.mT
        if causal:
            scores.masked_fill_(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
        new = torch.maximum(highest[..., rows, :], scores.amax(-1, keepdim=True))
        weights = scores.sub_(new).exp_()
        shrink = (highest[..., rows, :] - new).exp_()
        total[..., rows, :] = total[..., rows, :] * shrink + weights.sum(-1, keepdim=True)
        out[..., rows, :] *= shrink
        out[..., rows, :] += weights @ values
        highest[..., rows, :] = new
    return out / total
