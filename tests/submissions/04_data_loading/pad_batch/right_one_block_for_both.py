def pad_batch(documents, pad=0, multiple=8):
    if not documents:
        raise ValueError
    b, longest = len(documents), max(d.shape[0] for d in documents)
    longest += -longest % multiple
    block = torch.empty(b * (longest + 1), dtype=torch.long)
    tokens, lengths = block[: b * longest].view(b, longest), block[b * longest :]
    for i, d in enumerate(documents):
        n = d.shape[0]
        tokens[i].narrow(0, 0, n).copy_(d)
        tokens[i, n:].fill_(pad)
        lengths[i] = n
    return tokens, lengths
