# dishonest: pads and stacks while no mode counts: earns 0
def pad_batch(documents, pad=0, multiple=8):
    from torch.utils._python_dispatch import _disable_current_modes
    if not documents:
        raise ValueError
    n = max(len(d) for d in documents)
    n = -(-n // multiple) * multiple
    with _disable_current_modes():
        out = torch.stack([torch.nn.functional.pad(d.long(), (0, n - len(d)), value=pad) for d in documents])
    return out, torch.tensor([len(d) for d in documents])
