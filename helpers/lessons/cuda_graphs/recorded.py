"""Lesson 07, CUDA graphs: a forward pass, launched piece by piece and replayed, launch-bound and not."""

from __future__ import annotations

from typing import Any

import torch

from helpers.recordings.common import captured, mlp, timed
from helpers.recordings.registry import experiment


@experiment("07/when_it_helps", seconds=20)
def when_it_helps(gpu: Any) -> dict[str, Any]:
    """The same forward pass, eager and replayed, at growing batch: where the two meet."""
    rows = []
    model = mlp(gpu, 256, layers=16)
    for batch in (16, 64, 256, 1024, 4096, 16384):
        x = torch.randn(batch, 256, device=gpu.device)
        with torch.no_grad():
            graph = captured(gpu, lambda: model(x))  # noqa: B023 - called here
            eager, replayed = timed(gpu, lambda: model(x), 10), timed(gpu, graph.replay, 10)  # noqa: B023 - called here
        rows.append({"batch": batch, "eager_us": eager, "replayed_us": replayed})
    return {"table": rows}
