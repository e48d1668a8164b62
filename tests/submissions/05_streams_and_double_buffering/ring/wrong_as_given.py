# the program as it was: earns 0
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
