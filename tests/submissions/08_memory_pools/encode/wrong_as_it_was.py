# the function as it was: earns 0
def encode(batches, up, down):
    results = []
    for x in batches:
        wide = torch.relu(x @ up)
        results.append(wide @ down)
    return results
