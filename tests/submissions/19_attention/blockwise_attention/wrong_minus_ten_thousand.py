# gives hidden keys the score −10,000, which is the largest where the true ones are lower: earns 1
def blockwise_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block: int, causal: bool = False
) -> torch.Tensor:
    highest = q.new_full((*q.shape[:-1], 1), float("-inf"))  # (…, n, 1): the running maximum of each query
    total = torch.zeros_like(highest)  # (…, n, 1): its running sum
    out = q.new_zeros(*q.shape[:-1], v.shape[-1])  # (…, n, e): its running result
    for start in range(0, k.shape[-2], block):
        keys, values = k[..., start : start + block, :], v[..., start : start + block, :]
        rows = slice(start if causal else 0, None)
        scores = q[..., rows, :] @ keys.mT
        scores /= math.sqrt(q.shape[-1])
        if causal:
            scores.masked_fill_(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -1e4)
        new = torch.maximum(highest[..., rows, :], scores.amax(-1, keepdim=True))
        weights = scores.sub_(new).exp_()
        shrink = (highest[..., rows, :] - new).exp_()
        total[..., rows, :] = total[..., rows, :] * shrink + weights.sum(-1, keepdim=True)
        out[..., rows, :] *= shrink
        out[..., rows, :] += weights @ values
        highest[..., rows, :] = new
    return out / total
