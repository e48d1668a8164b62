# everything in fp16: the squares are infinite, and the block adds 0: earns 0
def mixed_loss(x, target, w_in, w_up, w_down, w_out, depth):
    x, target, w_in, w_up, w_down, w_out = (t.half() for t in (x, target, w_in, w_up, w_down, w_out))
    h = x @ w_in
    for _ in range(depth):
        size = ((h * h).mean(-1, keepdim=True) + 1e-8).sqrt()
        h = h + F.gelu((h / size) @ w_up) @ w_down
    return (h @ w_out - target).square().mean().float()
