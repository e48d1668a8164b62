# Hooks in place of a Function: the first tensor that backward asks for brings all of them back.
def checkpointed(fn, *inputs):
    state, again, count = torch.get_rng_state(), [], [0]

    def pack(t):
        count[0] += 1
        return count[0] - 1

    def unpack(i):
        if not again:
            again.extend([None] * count[0])
            made = []

            def keep(t):
                made.append(t.detach())
                return t

            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                torch.set_rng_state(state)
                with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
                    fn(*[t.detach().requires_grad_(t.requires_grad) for t in inputs])
            again[:] = made
        t, again[i] = again[i], None
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return fn(*inputs)
