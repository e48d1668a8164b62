# the event is recorded before the product that it should cover: earns 0
def ring(gpu, pages):
    side, sums = gpu.Stream(), []
    buffers = [torch.empty(pages[0].shape, device=gpu.device) for _ in range(2)]
    side.wait_stream(gpu.current_stream())
    used = [gpu.Event(), gpu.Event()]
    for i, page in enumerate(pages):
        x = buffers[i % 2]
        with gpu.stream(side):
            used[i % 2].wait()
            x.copy_(page, non_blocking=True)
        gpu.current_stream().wait_stream(side)
        used[i % 2].record()
        sums.append((x @ x).sum())
    return torch.stack(sums)
