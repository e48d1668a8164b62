# the gradient leaves out the second summand: earns 0
class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.exp().tanh()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].exp().tanh()


def tanhexp(x):
    return Half.apply(x)
