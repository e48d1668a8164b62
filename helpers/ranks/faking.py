"""One rank of a group of any size, in this process, with nobody at the other end: to count calls and bytes."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from helpers.pytorch import private_torch

from . import listening


@contextmanager
def fake(world_size: int, rank: int = 0, *, mesh: Mapping[str, int] | None = None) -> Iterator[Any]:
    """Within the block, this process is ``rank`` of ``world_size``; collectives return at once and move
    nothing.

    What is sent can be recorded (:func:`helpers.ranks.sent`): it is what this rank of such a group would
    send. Values are wrong: an all-reduce leaves its tensor as it was.

    mesh: name of a dimension → its size, the outermost first; their product is the world size. None: one
        dimension, ``"ranks"``. What the block gets is this DeviceMesh.

    RuntimeError if torch.distributed is initialised already; ValueError for a mesh of another size.

    >>> with ranks.fake(1024, rank=3):
    ...     dist.get_rank(), dist.get_world_size()
    (3, 1024)
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} of {world_size}: ranks are numbered from 0")
    if dist.is_initialized():
        raise RuntimeError(
            f"torch.distributed is initialised already ({dist.get_backend()}, {dist.get_world_size()} ranks): a fake "
            "group needs a process of its own. Leave the other group first: dist.destroy_process_group()"
        )

    shape = dict(mesh or {"ranks": world_size})
    if (size := math.prod(shape.values())) != world_size:
        raise ValueError(f"a mesh of {shape} has {size} ranks, the group {world_size}")
    hook = sys.excepthook
    dist.init_process_group("fake", store=private_torch.FakeStore(), rank=rank, world_size=world_size)
    done = _Done()
    try:
        with ExitStack() as stack:
            stack.enter_context(listening.listening(None))
            # a torch built for CUDA takes it where no device is named, as in fully_shard without a mesh
            cpu = mock.patch.object(*private_torch.place("default_device"), lambda *_: torch.device("cpu"))
            stack.enter_context(cpu)
            listening.finished.append(done)
            stack.callback(listening.finished.remove, done)
            yield dist.init_device_mesh("cpu", tuple(shape.values()), mesh_dim_names=tuple(shape))
    finally:
        dist.destroy_process_group()
        # torch puts its own there, which writes the rank before each line, and leaves it
        sys.excepthook = hook


class _Work(dist.Work):
    """What DDP's reducer takes for a finished all-reduce; the fake group's own has no result to give it."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._future: torch.futures.Future[Any] = torch.futures.Future()
        self._future.set_result(tensors)

    def get_future(self) -> torch.futures.Future[Any]:
        return self._future

    def wait(self, timeout: Any = None) -> bool:
        return True


class _Done:
    def __init__(self) -> None:
        self._works: list[_Work] = []  # C++ holds only its half of each

    def __call__(self, tensors: list[torch.Tensor]) -> Any:
        work = _Work(list(tensors))
        self._works.append(work)
        return work.boxed()
