# asks fn for its parameters, which a function has not, and wants gradients of all of them: earns 1
class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, *tensors):
        ctx.fn, ctx.state = fn, torch.get_rng_state()
        ctx.save_for_backward(*tensors)
        return fn(*tensors)

    @staticmethod
    def backward(ctx, grad):
        again = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]
        weights = list(ctx.fn.parameters())
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(ctx.state)
            out = ctx.fn(*again)
        wanted = [t for t in again if t.requires_grad] + weights
        grads = list(torch.autograd.grad(out, wanted, grad))
        back = [grads.pop(0) if t.requires_grad else None for t in again]
        for w, g in zip(weights, grads):
            w.grad = g if w.grad is None else w.grad + g
        return (None, *back)


def checkpointed(fn, *inputs):
    return Again.apply(fn, *inputs)
