def encode(batches, up, down):
    longest = max(len(x) for x in batches)
    scratch = torch.empty(longest, up.shape[1], dtype=up.dtype, device=up.device)
    results = []
    for x in batches:
        wide = scratch[: len(x)]
        torch.mm(x, up, out=wide)
        wide.clamp_(min=0)
        results.append(wide @ down)
    return results
