# masks with -1000 in place of -inf, so scores thousands below 0 lose against masked ones: earns 1
def blockwise_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block: int, causal: bool = False
) -> torch.Tensor:
    """softmax(q @ k.mT / √d) @ v, with the scores of at most `block` keys alive at once. Without gradients.

    q: (…, n, d); k: (…, m, d); v: (…, m, e). All float32 or all float64; the same leading dimensions, perhaps none.
    m is 1 or more, n may be 0. k and v may be expanded views (then n is 64 or more). Scores may be thousands above or below 0.
    block: 1 or more; it need not divide m, and may be larger. causal: query i sees keys 0 to i only; then n is m.

    Returns (…, n, e), of q's dtype: what F.scaled_dot_product_attention(q, k, v, is_causal=causal) gives. Do not call that.

    Budget:
    - FLOPs: 2 · (d + e) for each pair of a query and a key. With causal, a block of keys has no pairs with the queries
      before its first key.
    - Peak live bytes: 4 · (min(block, m) + e + 2) numbers for each query.
    """
    most = q.new_full((*q.shape[:-1], 1), float("-inf"))  # (…, n, 1): the running maximum of each query
    total = torch.zeros_like(most)  # (…, n, 1): its running sum
    out = q.new_zeros(*q.shape[:-1], v.shape[-1])  # (…, n, e): its running result
    for start in range(0, k.shape[-2], block):
        keys, values = k[..., start : start + block, :], v[..., start : start + block, :]
        rows = slice(start, None) if causal else slice(None)
        scores = (q[..., rows, :] @ keys.mT).div_(math.sqrt(q.shape[-1]))
        if causal:
            scores.masked_fill_(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -1e3)
        new = torch.maximum(most[..., rows, :], scores.amax(-1, keepdim=True))
        weights = scores.sub_(new).exp_()
        shrink = (most[..., rows, :] - new).exp_()
        total[..., rows, :] = total[..., rows, :] * shrink + weights.sum(-1, keepdim=True)
        out[..., rows, :] = out[..., rows, :] * shrink + weights @ values
        most[..., rows, :] = new
    return out / total
