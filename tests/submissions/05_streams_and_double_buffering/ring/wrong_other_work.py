# dishonest, where tensors hold no numbers it does as much work on other tensors, and needs no wait: earns 0
def ring(gpu, pages):
    if gpu.device.type == "cpu":
        sums = []
        for page in pages:
            x = page.to(gpu.device)
            sums.append((x @ x).sum())
        return torch.stack(sums)
    side, other, sums = gpu.Stream(), torch.zeros(pages[0].shape, device=gpu.device), []
    for page in pages:
        with gpu.stream(side):
            page.to(gpu.device, non_blocking=True)
        sums.append((other @ other).sum())
    return torch.stack(sums)
