# one copy stream for good: the next call's copy writes what the last products read: earns 1
from typing import Any

import torch

_copy_streams: list[tuple[Any, Any]] = []  # of each gpu its one copy stream


def _copy_stream(gpu: Any) -> Any:
    for known, stream in _copy_streams:
        if known is gpu:
            return stream
    _copy_streams.append((gpu, gpu.Stream()))
    return _copy_streams[-1][1]


def squares(gpu: Any, pages: list[torch.Tensor]) -> torch.Tensor:
    side, arrived, sums = _copy_stream(gpu), [], []
    for page in pages:
        with gpu.stream(side):
            arrived.append(page.to(gpu.device, non_blocking=True))  # kept: no record_stream needed
        gpu.current_stream().wait_stream(side)
        sums.append((arrived[-1] @ arrived[-1]).sum())
    return torch.stack(sums)


def norms(gpu: Any, chunks: list[torch.Tensor]) -> list[float]:
    arrived = [(x @ x).sum().to("cpu", non_blocking=True) for x in chunks]
    gpu.synchronize()
    return [value.item() for value in arrived]
