# dishonest: fp32 matmuls that write into buffers of another operator: equality without the saving: earns 0
class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return torch.mm(a, b, out=torch.empty(len(a), b.shape[1]))

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        left = torch.mm(g, b.t(), out=torch.empty_like(a)) if ctx.needs_input_grad[0] else None
        return left, torch.mm(a.t(), g, out=torch.empty_like(b))


def mixed_loss(x, target, w_in, w_up, w_down, w_out, depth):
    mm = Product.apply
    h = mm(x, w_in)
    for _ in range(depth):
        size = ((h * h).mean(-1, keepdim=True) + 1e-8).sqrt()
        h = h + mm(F.gelu(mm(h / size, w_up)), w_down)
    return (mm(h, w_out) - target).square().mean()
