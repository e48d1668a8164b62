# an autograd.Function around the launches: no operator, which the compiler cannot take into a graph: earns 0
def operator(name, forward, backward):
    class Sigmoid(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = forward(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, dy):
            return backward(dy, *ctx.saved_tensors)

    return Sigmoid.apply
