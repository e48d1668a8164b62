# x on a plain attribute: not counted as saved, and silently wrong when x is changed: earns 2
class Attribute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * x.exp().tanh()

    @staticmethod
    def backward(ctx, grad):
        e = ctx.x.clamp(max=20).exp()
        t = e.tanh()
        return grad * (t + ctx.x * (e * (1 - t * t)))


def tanhexp(x):
    return Attribute.apply(x)
