# norms returns tensors: earns 1
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


def norms(gpu, chunks):
    arrived = [(x @ x).sum().to("cpu", non_blocking=True) for x in chunks]
    gpu.synchronize()
    return arrived
