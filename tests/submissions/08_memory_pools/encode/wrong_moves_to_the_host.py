# keeps the results on the host: earns 0
def encode(batches, up, down):
    results = []
    for x in batches:
        wide = (x @ up).relu_()
        results.append((wide @ down).cpu())
        del wide
    return results
