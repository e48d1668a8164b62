# the whole matrix of scores at once: earns 0
def blockwise_attention(q, k, v, block, causal=False):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if causal:
        scores.masked_fill_(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(-1) @ v
