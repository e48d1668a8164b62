# norms waits for the copies before the last one is launched: earns 1
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
    arrived = []
    for x in chunks:
        if len(arrived) == len(chunks) - 1:
            gpu.synchronize()
        arrived.append((x @ x).sum().to("cpu", non_blocking=True))
    return [value.item() for value in arrived]
