# autocast, which is closed: the exercise is to place the casts by hand: earns 0
def mixed_loss(x, target, w_in, w_up, w_down, w_out, depth):
    with torch.autocast("cpu", dtype=torch.float16):
        h = (x @ w_in).float()
        for _ in range(depth):
            size = (h.square().mean(-1, keepdim=True) + 1e-8).sqrt()
            h = h + F.gelu((h / size) @ w_up) @ w_down
        y = h @ w_out
    return F.mse_loss(y.float(), target)
