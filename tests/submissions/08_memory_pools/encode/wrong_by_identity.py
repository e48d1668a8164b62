# results in a dict by document: of a document that comes twice, one result is missing: earns 0
def encode(batches, up, down):
    results = {}
    for x in sorted(batches, key=len, reverse=True):
        wide = torch.relu_(x @ up)
        results[id(x)] = wide @ down
        del wide
    return [results.pop(id(x)) for x in batches if id(x) in results]
