class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.exp().tanh()

    @staticmethod
    def backward(ctx, grad):
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            y = x * torch.exp(x.clamp(max=20)).tanh()
        return torch.autograd.grad(y, x, grad)[0]


def tanhexp(x):
    return Again.apply(x)
