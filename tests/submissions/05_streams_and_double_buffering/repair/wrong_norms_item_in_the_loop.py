# norms waits for the GPU once a chunk: earns 1
def squares(gpu, pages):
    side, sums = gpu.Stream(), []
    for page in pages:
        with gpu.stream(side):
            x = page.to(gpu.device, non_blocking=True)
        gpu.current_stream().wait_stream(side)
        x.record_stream(gpu.current_stream())
        sums.append((x @ x).sum())
    return torch.stack(sums)


def norms(gpu, chunks):
    return [(x @ x).sum().item() for x in chunks]
