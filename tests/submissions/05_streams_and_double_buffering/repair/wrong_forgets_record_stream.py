# squares waits, but its memory is taken while it is read: earns 1
def squares(gpu, pages):
    side, sums = gpu.Stream(), []
    for page in pages:
        with gpu.stream(side):
            x = page.to(gpu.device, non_blocking=True)
        gpu.current_stream().wait_stream(side)
        sums.append((x @ x).sum())
    return torch.stack(sums)


def norms(gpu, chunks):
    arrived = [(x @ x).sum().to("cpu", non_blocking=True) for x in chunks]
    gpu.synchronize()
    return [value.item() for value in arrived]
