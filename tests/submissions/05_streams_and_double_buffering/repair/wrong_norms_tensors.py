# norms returns tensors: earns 2
def squares(gpu, pages):
    side, sums = gpu.Stream(), []
    here = gpu.current_stream()
    for page in pages:
        with gpu.stream(side):
            x = page.to(gpu.device, non_blocking=True)
            e = gpu.Event()
            e.record()
        here.wait_event(e)
        x.record_stream(here)
        sums.append((x @ x).sum())
    return torch.stack(sums)


def ring(gpu, pages):
    side, sums, here = gpu.Stream(), [], gpu.current_stream()
    buffers = [torch.empty(pages[0].shape, device=gpu.device) for _ in range(2)]
    used = [gpu.Event(), gpu.Event()]
    for u in used:
        u.record()
    for i, page in enumerate(pages):
        k = i % 2
        with gpu.stream(side):
            side.wait_event(used[k])
            buffers[k].copy_(page, non_blocking=True)
            there = gpu.Event()
            there.record()
        here.wait_event(there)
        sums.append((buffers[k] @ buffers[k]).sum())
        used[k].record()
    return torch.stack(sums)


def norms(gpu, chunks):
    arrived = [(x @ x).sum().to("cpu", non_blocking=True) for x in chunks]
    gpu.synchronize()
    return arrived
