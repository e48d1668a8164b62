# lean, but inf · 0 gives nan for large x: earns 2
class Lean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.exp().tanh()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        t = x.exp().tanh()
        return grad * (t + x * x.exp() * (1 - t * t))


def tanhexp(x):
    return Lean.apply(x)
