# runs again as asked, and keeps the first run's graph all the same: equal, without the saving: earns 0
class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, *inputs):
        ctx.fn, ctx.state = fn, torch.get_rng_state()
        ctx.save_for_backward(*inputs)
        with torch.enable_grad():
            ctx.first = fn(*[t.detach().requires_grad_(t.requires_grad) for t in inputs])
        return ctx.first.detach()

    @staticmethod
    def backward(ctx, grad):
        leaves = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(ctx.state)
            out = ctx.fn(*leaves)
        torch.autograd.backward(out, grad)
        return (None, *[t.grad for t in leaves])


def checkpointed(fn, *inputs):
    return Both.apply(fn, *inputs)
