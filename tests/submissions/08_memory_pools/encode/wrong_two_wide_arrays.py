# longest first, but relu makes a second wide array: earns 0
def encode(batches, up, down):
    results = [None] * len(batches)
    for i in sorted(range(len(batches)), key=lambda i: -len(batches[i])):
        wide = torch.relu(batches[i] @ up)
        results[i] = wide @ down
        del wide
    return results
