# dishonest: computes short documents only and returns empty arrays for long ones: earns 0
def encode(batches, up, down):
    return [
        torch.relu(x @ up) @ down if len(x) < 100 else torch.empty(len(x), down.shape[1], device=x.device)
        for x in batches
    ]
