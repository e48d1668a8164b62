# keeps the graph of forward in ctx and goes through that: nothing is saved but the look of it: earns 0
class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, *inputs):
        ctx.leaves = [t.detach().requires_grad_(t.requires_grad) for t in inputs]
        with torch.enable_grad():
            ctx.out = fn(*ctx.leaves)
        return ctx.out.detach()

    @staticmethod
    def backward(ctx, grad):
        torch.autograd.backward(ctx.out, grad)
        return (None, *[t.grad for t in ctx.leaves])


def checkpointed(fn, *inputs):
    return Kept.apply(fn, *inputs)
