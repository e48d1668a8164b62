# right, but all calls of a shape return the same tensor: earns 0
results = {}


def blockwise_attention(q, k, v, block, causal=False):
    size = (*q.shape[:-1], v.shape[-1], q.dtype)
    out = results.setdefault(size, torch.zeros(*size[:-1], dtype=q.dtype)).zero_()
    logs = torch.full(q.shape[:-1], -torch.inf, dtype=q.dtype)
    for keys, values, start in zip(k.split(block, -2), v.split(block, -2), range(0, k.shape[-2], block)):
        at = start if causal else 0
        scores = torch.matmul(q[..., at:, :], keys.transpose(-1, -2)).mul_(q.shape[-1] ** -0.5)
        if causal:
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            scores.masked_fill_(~seen, -torch.inf)
        here = scores.logsumexp(-1)
        both = torch.logaddexp(logs[..., at:], here)
        weights = scores.sub_(both[..., None]).exp_()
        out[..., at:, :] *= (logs[..., at:] - both).exp_()[..., None]
        out[..., at:, :] += weights @ values
        logs[..., at:] = both
    return out
