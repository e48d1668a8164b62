# moves the first result to the host, to look at it: earns 0
def encode(batches, up, down):
    results = []
    for x in batches:
        wide = (x @ up).relu_()
        out = wide @ down
        results.append(out if results else out.cpu())
        del wide
    return results
