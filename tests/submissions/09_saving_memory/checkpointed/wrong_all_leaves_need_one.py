# in backward every input's copy gets a gradient, also where nobody wants one: earns 1
def checkpointed(fn, *inputs):
    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            ctx.state = torch.get_rng_state()
            ctx.save_for_backward(*tensors)
            return fn(*tensors)

        @staticmethod
        def backward(ctx, grad):
            again = [t.detach().requires_grad_() for t in ctx.saved_tensors]
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                torch.set_rng_state(ctx.state)
                out = fn(*again)
            torch.autograd.backward(out, grad)
            return tuple(t.grad for t in again)

    return Again.apply(*inputs)
