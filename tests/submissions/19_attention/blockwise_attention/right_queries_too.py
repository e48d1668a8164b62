# Blocks of queries outside, blocks of keys inside; the result is written block by block.
def blockwise_attention(q, k, v, block, causal=False):
    n, m = q.shape[-2], k.shape[-2]
    result = q.new_empty(*q.shape[:-1], v.shape[-1])
    for first in range(0, n, block):
        mine = q[..., first : first + block, :] / math.sqrt(q.shape[-1])
        most, total, out = None, None, None
        for start in range(0, m, block):
            if causal and start > first:
                break
            scores = torch.einsum("...id,...jd->...ij", mine, k[..., start : start + block, :])
            if causal and start == first:
                i, j = torch.arange(scores.shape[-2])[:, None], torch.arange(scores.shape[-1])
                scores = scores.masked_fill(j > i, -math.inf)
            top = scores.max(-1, keepdim=True).values
            if most is not None:
                top = torch.maximum(top, most)
            weights = torch.exp_(scores - top)
            add = torch.einsum("...ij,...je->...ie", weights, v[..., start : start + block, :])
            sums = weights.sum(-1, keepdim=True)
            if most is None:
                total, out = sums, add
            else:
                keep = torch.exp(most - top)
                total, out = total * keep + sums, out * keep + add
            most = top
        result[..., first : first + block, :] = out / total
    return result
