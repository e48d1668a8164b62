class Derivative(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        e = x.clamp(max=20).exp()
        t = e.tanh()
        ctx.save_for_backward(t + x * (e * (1 - t * t)))
        return x * t

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


tanhexp = Derivative.apply
