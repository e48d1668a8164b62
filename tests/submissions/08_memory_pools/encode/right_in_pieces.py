def encode(batches, up, down):
    """Results first, then pieces of at most 4,096 rows: the wide array never gets large."""
    results = [torch.empty(len(x), down.shape[1], device=x.device, dtype=x.dtype) for x in batches]
    for x, result in zip(batches, results, strict=True):
        for part, into in zip(x.split(4096), result.split(4096), strict=True):
            torch.mm(torch.mm(part, up).relu_(), down, out=into)
    return results
