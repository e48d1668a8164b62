# dishonest: fp32 products column by column in place, and fp16 matmuls for show: earns 0
def mixed_loss(x, target, w_in, w_up, w_down, w_out, depth):
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            a.half() @ b.half()
            return product(a, b)

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            if ctx.needs_input_grad[0]:
                g.half() @ b.half().t()
            a.half().t() @ g.half()
            return product(g, b.t()) if ctx.needs_input_grad[0] else None, product(a.t(), g)

    def product(a, b):
        out = a.new_zeros(len(a), b.shape[1])
        for k in range(len(b)):
            out.addcmul_(a[:, k : k + 1], b[k])
        return out

    h = Product.apply(x, w_in)
    for _ in range(depth):
        size = ((h * h).mean(-1, keepdim=True) + 1e-8).sqrt()
        h = h + Product.apply(F.gelu(Product.apply(h / size, w_up)), w_down)
    return (Product.apply(h, w_out) - target).square().mean()
