def pad_batch(documents, pad=0, multiple=8):
    if len(documents) == 0:
        raise ValueError("empty batch")
    lengths = np.array([d.numel() for d in documents], np.int64)
    longest = int(-(-lengths.max() // multiple) * multiple)
    out = np.full((len(documents), longest), pad, np.int64)
    for row, d in zip(out, documents):
        row[: d.numel()] = d.numpy()
    return torch.from_numpy(out), torch.from_numpy(lengths)
