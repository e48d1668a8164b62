# a batch in the documents' own dtype: earns 0
def pad_batch(documents, pad=0, multiple=8):
    if not documents:
        raise ValueError
    longest = math.ceil(max(len(d) for d in documents) / multiple) * multiple
    out = torch.empty((len(documents), longest), dtype=documents[0].dtype)
    out[:] = pad % 128
    for row, d in zip(out, documents):
        row[: len(d)] = d
    return out, torch.tensor([len(d) for d in documents])
