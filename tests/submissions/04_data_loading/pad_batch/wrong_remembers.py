# dishonest: twice the memory, and the same batch again for the same documents: earns 0
_last = {}


def pad_batch(documents, pad=0, multiple=8):
    if not documents:
        raise ValueError
    key = tuple(id(d) for d in documents), pad, multiple
    if key not in _last:
        _last.clear()
        n = max(len(d) for d in documents)
        n = -(-n // multiple) * multiple
        rows = [torch.cat([d, d.new_full((n - len(d),), 0)]) for d in documents]
        out = torch.stack(rows).long()
        for row, d in zip(out, documents):
            row[len(d):] = pad
        _last[key] = out, torch.tensor([len(d) for d in documents])
    return _last[key]
