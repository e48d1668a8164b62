# backward draws other random numbers than forward did: earns 0
class Rerun(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, *inputs):
        ctx.fn, ctx.state = fn, torch.get_rng_state()
        ctx.save_for_backward(*inputs)
        return fn(*inputs)

    @staticmethod
    def backward(ctx, grad):
        leaves = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]
        with torch.enable_grad():
            out = ctx.fn(*leaves)
        torch.autograd.backward(out, grad)
        return (None, *[t.grad for t in leaves])


def checkpointed(fn, *inputs):
    return Rerun.apply(fn, *inputs)
