# saves bytes by saving x in float16: the gradient is too coarse: earns 0
class Coarse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.half())
        return x * x.exp().tanh()

    @staticmethod
    def backward(ctx, grad):
        x = ctx.saved_tensors[0].to(grad.dtype)
        e = x.clamp(max=20).exp()
        t = e.tanh()
        return grad * (t + x * (e * (1 - t * t)))


def tanhexp(x):
    return Coarse.apply(x)
