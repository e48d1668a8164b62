# the two programs as they were: earns 0
def squares(gpu, pages):
    side, sums = gpu.Stream(), []
    for page in pages:
        with gpu.stream(side):
            x = page.to(gpu.device, non_blocking=True)
        sums.append((x @ x).sum())
    return torch.stack(sums)


def norms(gpu, chunks):
    arrived = [(x @ x).sum().to("cpu", non_blocking=True) for x in chunks]
    return [value.item() for value in arrived]
