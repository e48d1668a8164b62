# all documents are taken for the first one's dtype: earns 3
def pad_batch(documents, pad=0, multiple=8):
    if not documents:
        raise ValueError("no documents")
    longest = -(-max(map(len, documents)) // multiple) * multiple
    tokens = torch.full((len(documents), longest), pad, dtype=torch.int64)
    for i, d in enumerate(documents):
        tokens[i, : len(d)] = d.to(documents[0].dtype)
    return tokens, torch.tensor([len(d) for d in documents])
