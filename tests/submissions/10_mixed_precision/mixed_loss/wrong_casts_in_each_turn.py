# weights are cast in each turn of the loop: earns 0
def mixed_loss(x, target, w_in, w_up, w_down, w_out, depth):
    h = (x.half() @ w_in.half()).float()
    for _ in range(depth):
        size = ((h * h).mean(-1, keepdim=True) + 1e-8).sqrt()
        h = h + (F.gelu((h / size).half() @ w_up.half()) @ w_down.half()).float()
    return ((h.half() @ w_out.half()).float() - target).square().mean()
