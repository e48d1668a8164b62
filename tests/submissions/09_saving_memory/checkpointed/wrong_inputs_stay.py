# keeps the inputs as an attribute of ctx, where they stay until all of backward is through: earns 0
def checkpointed(fn, *inputs):
    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            ctx.state, ctx.inputs = torch.get_rng_state(), tensors
            return fn(*tensors)

        @staticmethod
        def backward(ctx, grad):
            again = [t.detach().requires_grad_(t.requires_grad) for t in ctx.inputs]
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                torch.set_rng_state(ctx.state)
                out = fn(*again)
            torch.autograd.backward(out, grad)
            return tuple(t.grad for t in again)

    return Again.apply(*inputs)
