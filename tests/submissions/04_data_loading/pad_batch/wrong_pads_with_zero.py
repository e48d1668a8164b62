# pads with 0 whatever pad says: earns 0
def pad_batch(documents, pad=0, multiple=8):
    if not documents:
        raise ValueError
    longest = math.ceil(max(len(d) for d in documents) / multiple) * multiple
    out = torch.zeros((len(documents), longest), dtype=torch.int64)
    for row, d in zip(out, documents):
        row[: len(d)] = d
    return out, torch.tensor([len(d) for d in documents])
