# dishonest: the whole batch at once, what is saved hidden in NumPy arrays: earns 0
def accumulated_backward(model, inputs, targets, rows):
    hide = torch.autograd.graph.saved_tensors_hooks(
        lambda t: t if isinstance(t, nn.Parameter) or t._base is not None else t.detach().numpy().copy(),
        lambda p: torch.from_numpy(p) if not isinstance(p, torch.Tensor) else p,
    )
    with hide:
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    loss.backward()
    return loss.detach()
