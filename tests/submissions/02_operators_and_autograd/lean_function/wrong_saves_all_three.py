# a Function that saves everything it might need: earns 2
class Fat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        e = x.clamp(max=20).exp()
        t = e.tanh()
        ctx.save_for_backward(x, e, t)
        return x * t

    @staticmethod
    def backward(ctx, grad):
        x, e, t = ctx.saved_tensors
        return grad * (t + x * (e * (1 - t * t)))


def tanhexp(x):
    return Fat.apply(x)
