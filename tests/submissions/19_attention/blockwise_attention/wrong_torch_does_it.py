# PyTorch's own kernel, whose scores no counter sees: earns 0
def blockwise_attention(q, k, v, block, causal=False):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
