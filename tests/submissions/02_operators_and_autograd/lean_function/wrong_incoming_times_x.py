# the product rule, a summand at a time: grad · x overflows before the 0 comes: earns 4
class TanhExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.tanh(torch.exp(x))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        e = torch.exp(torch.clamp(x, max=20))
        t = torch.tanh(e)
        # product rule, one summand for each factor
        through_x = grad * t
        through_tanh = grad * x * (e * (1 - t**2))
        return through_x + through_tanh


def tanhexp(x: torch.Tensor) -> torch.Tensor:
    return TanhExp.apply(x)
