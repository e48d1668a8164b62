# sorts the caller's list: earns 0
def encode(batches, up, down):
    batches.sort(key=len, reverse=True)
    results = []
    for x in batches:
        wide = (x @ up).relu_()
        results.append(wide @ down)
        del wide
    return results
