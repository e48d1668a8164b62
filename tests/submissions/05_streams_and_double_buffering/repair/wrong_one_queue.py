# squares without a second stream: no race, no overlap: earns 1
def squares(gpu, pages):
    return torch.stack([(x @ x).sum() for x in (page.to(gpu.device, non_blocking=True) for page in pages)])


def norms(gpu, chunks):
    arrived = [(x @ x).sum().to("cpu", non_blocking=True) for x in chunks]
    gpu.synchronize()
    return [value.item() for value in arrived]
