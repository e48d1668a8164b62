# norms reads once for every 8 chunks: with many chunks the host waits many times: earns 2
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
    values = []
    for first in range(0, len(chunks), 8):
        block = [(x @ x).sum() for x in chunks[first : first + 8]]
        values += torch.stack(block).tolist()
    return values
