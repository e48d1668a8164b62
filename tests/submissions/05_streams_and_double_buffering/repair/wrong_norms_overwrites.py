# norms overwrites the caller's chunks: earns 1
def squares(gpu: Any, pages: list[torch.Tensor]) -> torch.Tensor:
    side, sums = gpu.Stream(), []
    for page in pages:
        with gpu.stream(side):
            x = page.to(gpu.device, non_blocking=True)
        gpu.current_stream().wait_stream(side)
        x.record_stream(gpu.current_stream())
        sums.append((x @ x).sum())
    return torch.stack(sums)


def norms(gpu: Any, chunks: list[torch.Tensor]) -> list[float]:
    arrived = [x.copy_(x @ x).sum().to("cpu", non_blocking=True) for x in chunks]
    gpu.synchronize()
    return [value.item() for value in arrived]
