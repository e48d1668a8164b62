# autocast around everything, which is closed (and the loss would be wrong too): earns 0
def mixed_loss(x, target, w_in, w_up, w_down, w_out, depth):
    with torch.autocast("cpu", dtype=torch.float16):
        return plain_loss(x, target, w_in, w_up, w_down, w_out, depth)


def plain_loss(x, target, w_in, w_up, w_down, w_out, depth):
    h = x @ w_in
    for _ in range(depth):
        size = ((h * h).mean(-1, keepdim=True) + 1e-8).sqrt()
        h = h + F.gelu((h / size) @ w_up) @ w_down
    return (h @ w_out - target).square().mean()
