# bf16: range enough, but the last cast of h leaves too few digits: earns 0
def mixed_loss(x, target, w_in, w_up, w_down, w_out, depth):
    w_in, w_up, w_down, w_out = (w.bfloat16() for w in (w_in, w_up, w_down, w_out))
    h = (x.bfloat16() @ w_in).float()
    for _ in range(depth):
        size = ((h * h).mean(-1, keepdim=True) + 1e-8).sqrt()
        h = h + (F.gelu((h / size).bfloat16() @ w_up) @ w_down).float()
    return ((h.bfloat16() @ w_out).float() - target).square().mean()
