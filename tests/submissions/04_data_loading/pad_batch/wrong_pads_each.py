# pads each to a tensor of its own, then stacks: earns 1
def pad_batch(documents, pad=0, multiple=8):
    if not documents:
        raise ValueError
    longest = math.ceil(max(len(d) for d in documents) / multiple) * multiple
    padded = [torch.nn.functional.pad(d.long(), (0, longest - len(d)), value=pad) for d in documents]
    return torch.stack(padded), torch.tensor([len(d) for d in documents])
