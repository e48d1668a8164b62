# views a gradient that may be transposed: earns 2
class _T(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.tanh(torch.exp(x))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        e = x.clamp(max=20).exp()
        t = e.tanh()
        d = t + x * (e * (1 - t * t))
        return (grad.view(-1) * d.reshape(-1)).view(x.shape)


def tanhexp(x):
    return _T.apply(x)
