# the three programs as they were: earns 0
def squares(gpu, pages):
    side, sums = gpu.Stream(), []
    for page in pages:
        with gpu.stream(side):
            x = page.to(gpu.device, non_blocking=True)
        sums.append((x @ x).sum())
    return torch.stack(sums)


def ring(gpu, pages):
    side, sums = gpu.Stream(), []
    buffers = [torch.empty(pages[0].shape, device=gpu.device) for _ in range(2)]
    for i, page in enumerate(pages):
        x = buffers[i % 2]
        with gpu.stream(side):
            x.copy_(page, non_blocking=True)
        gpu.current_stream().wait_stream(side)
        sums.append((x @ x).sum())
    return torch.stack(sums)


def norms(gpu, chunks):
    arrived = [(x @ x).sum().to("cpu", non_blocking=True) for x in chunks]
    return [value.item() for value in arrived]
