# goes from the last document to the first, which is longest first only in the given case: earns 1
def encode(batches, up, down):
    results=[]
    for x in reversed(batches):
        wide=(x @ up).relu_()
        results.append(wide @ down)
        del wide
    return results[::-1]
