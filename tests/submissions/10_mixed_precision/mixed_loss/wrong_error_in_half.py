# squares the error in fp16 and casts last: infinite from an error of 256 on: earns 0
def mixed_loss(x, target, w_in, w_up, w_down, w_out, depth):
    w_in, w_up, w_down, w_out = (w.half() for w in (w_in, w_up, w_down, w_out))
    h = (x.half() @ w_in).float()
    for _ in range(depth):
        size = ((h * h).mean(-1, keepdim=True) + 1e-8).sqrt()
        h = h + (F.gelu((h / size).half() @ w_up) @ w_down).float()
    return (h.half() @ w_out - target.half()).square().mean().float()
