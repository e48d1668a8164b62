# the norm is fp32, but the stream is fp16 and swallows its updates: earns 0
def mixed_loss(x, target, w_in, w_up, w_down, w_out, depth):
    w_in, w_up, w_down, w_out = (w.half() for w in (w_in, w_up, w_down, w_out))
    h = x.half() @ w_in
    for _ in range(depth):
        size = (h.float().square().mean(-1, keepdim=True) + 1e-8).sqrt()
        h = h + F.gelu((h.float() / size).half() @ w_up) @ w_down
    return ((h @ w_out).float() - target).square().mean()
