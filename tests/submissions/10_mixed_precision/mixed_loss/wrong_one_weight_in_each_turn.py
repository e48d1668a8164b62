# w_up alone is cast in each turn of the loop, which many rows would hide: earns 0
def mixed_loss(x, target, w_in, w_up, w_down, w_out, depth):
    w_in, w_down, w_out = w_in.half(), w_down.half(), w_out.half()
    h = (x.half() @ w_in).float()
    for _ in range(depth):
        size = ((h * h).mean(-1, keepdim=True) + 1e-8).sqrt()
        h = h + (F.gelu((h / size).half() @ w_up.half()) @ w_down).float()
    return ((h.half() @ w_out).float() - target).square().mean()
