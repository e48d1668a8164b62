# dishonest: casts in each turn by adding to zeros of fp16: earns 0
def mixed_loss(x, target, w_in, w_up, w_down, w_out, depth):
    class Cast(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w):
            return torch.zeros(w.shape, dtype=torch.float16).add_(w)

        @staticmethod
        def backward(ctx, g):
            return torch.zeros(g.shape).add_(g)

    half = Cast.apply
    h = (x.half() @ half(w_in)).float()
    for _ in range(depth):
        size = ((h * h).mean(-1, keepdim=True) + 1e-8).sqrt()
        h = h + (F.gelu((h / size).half() @ half(w_up)) @ half(w_down)).float()
    return ((h.half() @ half(w_out)).float() - target).square().mean()
