# every batch lies in one buffer, and the next one writes over it: earns 0
_buffer = torch.empty(10_000_000, dtype=torch.int64)


def pad_batch(documents, pad=0, multiple=8):
    if not documents:
        raise ValueError
    n = max(len(d) for d in documents)
    n = -(-n // multiple) * multiple
    out = _buffer[: n * len(documents)].view(len(documents), n)
    out.fill_(pad)
    for row, d in zip(out, documents):
        row[: len(d)] = d
    return out, torch.tensor([len(d) for d in documents])
