# pads to the longest, not to the multiple: earns 0
def pad_batch(documents, pad=0, multiple=8):
    if not documents:
        raise ValueError
    out = torch.full((len(documents), max(len(d) for d in documents)), pad)
    for row, d in zip(out, documents):
        row[: len(d)] = d
    return out, torch.tensor([len(d) for d in documents])
