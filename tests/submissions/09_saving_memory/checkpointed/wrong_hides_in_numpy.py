# dishonest: what forward saved lies in NumPy arrays that no counter sees, and is not computed again: earns 0
def checkpointed(fn, *inputs):
    return_to = torch.autograd.graph.saved_tensors_hooks(
        lambda t: (t.detach().numpy().copy(), None) if not isinstance(t, nn.Parameter) and t._base is None else (None, t),
        lambda p: p[1] if p[0] is None else torch.from_numpy(p[0]),
    )
    with return_to:
        return fn(*inputs)
