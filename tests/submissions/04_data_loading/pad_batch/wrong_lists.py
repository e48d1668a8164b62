# a list of lists of Python's numbers, each an object: earns 1
def pad_batch(documents, pad=0, multiple=8):
    if not documents:
        raise ValueError
    longest = math.ceil(max(len(d) for d in documents) / multiple) * multiple
    rows = [d.tolist() + [pad] * (longest - len(d)) for d in documents]
    tokens = torch.tensor(rows, dtype=torch.int64).reshape(len(rows), longest)
    return tokens, torch.tensor([len(d) for d in documents])
