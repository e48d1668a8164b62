"""What the lessons with several processes share: jobs that run on ranks, and numbers that only one rank knows."""

import os
from collections.abc import Callable
from typing import Any

import torch

from helpers import ranks


def on_ranks(job: Callable[..., Any], n: int, *args: Any, timeout: float = 5) -> list[Any]:
    """What `job` returns on each of n ranks; an answer that is not written yet says so as it would in one process."""
    try:
        return ranks.run_ranks(job, n, *args, backend="gloo", timeout=timeout)
    except ranks.RankError as odd:
        if odd.kind == "NotImplementedError":
            raise NotImplementedError from None
        raise


def secret() -> int:
    """A seed of this rank's own: what is made from it, no other rank can know but by messages."""
    return int.from_bytes(os.urandom(6), "big")


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
