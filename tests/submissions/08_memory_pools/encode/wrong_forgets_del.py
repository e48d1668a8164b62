# longest first and in place, but the name holds the last wide array while the next is made: earns 0
def encode(batches, up, down):
    results = [None] * len(batches)
    for i in sorted(range(len(batches)), key=lambda i: -len(batches[i])):
        wide = (batches[i] @ up).relu_()
        results[i] = wide @ down
    return results
