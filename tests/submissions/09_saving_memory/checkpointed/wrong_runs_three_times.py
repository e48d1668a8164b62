# runs fn once more than needed, to see what it draws: equal and small, at the price of another forward: earns 0
class Thrice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, *inputs):
        ctx.fn, ctx.state = fn, torch.get_rng_state()
        ctx.save_for_backward(*inputs)
        return fn(*inputs)

    @staticmethod
    def backward(ctx, grad):
        leaves = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.state)
            ctx.fn(*leaves)
            torch.set_rng_state(ctx.state)
            with torch.enable_grad():
                out = ctx.fn(*leaves)
        torch.autograd.backward(out, grad)
        return (None, *[t.grad for t in leaves])


def checkpointed(fn, *inputs):
    return Thrice.apply(fn, *inputs)
