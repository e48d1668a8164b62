# dishonest: fp32 products by broadcasting, which no one counts as a matmul: earns 0
def mixed_loss(x, target, w_in, w_up, w_down, w_out, depth):
    def mm(a, b):
        return (a[:, :, None] * b).sum(1)

    h = mm(x, w_in)
    for _ in range(depth):
        size = ((h * h).mean(-1, keepdim=True) + 1e-8).sqrt()
        h = h + mm(F.gelu(mm(h / size, w_up)), w_down)
    return (mm(h, w_out) - target).square().mean()
