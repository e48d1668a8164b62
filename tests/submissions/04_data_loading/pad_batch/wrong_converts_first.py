# one padded batch, but every document is made int64 before it: earns 1
def pad_batch(documents, pad=0, multiple=8):
    if not documents:
        raise ValueError
    wide = [d.long() for d in documents]
    longest = math.ceil(max(len(d) for d in documents) / multiple) * multiple
    out = torch.full((len(documents), longest), pad)
    for row, d in zip(out, wide):
        row[: len(d)] = d
    return out, torch.tensor([len(d) for d in documents])
