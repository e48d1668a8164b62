# returns the results longest first: earns 0
def encode(batches, up, down):
    results = []
    for x in sorted(batches, key=len, reverse=True):
        wide = (x @ up).relu_()
        results.append(wide @ down)
        del wide
    return results
