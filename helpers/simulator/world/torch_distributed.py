"""torch.distributed on the simulated GPU: one rank of a world is run, and its collectives take the time they would.

    gpu = simulate("H100").world(64, link="NVLink 4", nodes=8, between="InfiniBand NDR")
    with gpu:
        dist.get_world_size()                            # 64
        work = dist.all_reduce(grad, async_op=True)      # returns when it is launched
        work.wait()                                      # the current stream waits; the host goes on

As with NCCL (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp) each group has a stream of its own, which waits for
the current stream when a collective is called; `wait()` makes the then current stream wait for it, and only
`barrier` makes the host wait. Sends and receives have a stream for each pair of ranks. Without `async_op` recent
PyTorch puts the kernel into the current stream itself; here it stays in the group's, and the current stream waits,
which takes as long. A collective begins when its stream is free and the last of its ranks has arrived, and takes
`World.seconds`. Two groups know nothing of each other: what they share of a link is not simulated.

Values: none, as everywhere; with `simulate(..., values=True)` every rank holds what this one holds, so that a sum is
world_size times it and a mean the same. Inside a CUDA graph's capture collectives are refused (NCCL can be captured;
that is not simulated).

fully_shard (FSDP2) asks a module torch.<device type> for streams, which meta lacks. What is put in place for it stays,
and asks first whether a simulated GPU with a world is in use: names that torch's modules have imported could not be
taken back.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from helpers.pytorch import private_torch
from helpers.simulator.machine import Machine
from helpers.simulator.world.network import World
from helpers.simulator.world.traffic import SentFuture, Traffic

_FSDP = "torch.distributed.fsdp._fully_shard"
_HANDLE = "_get_device_handle"
Active = Callable[[], Any]  # the simulated GPU in use, with torch.cuda's names; None where there is none


@contextmanager
def joined(traffic: Traffic, active: Active) -> Iterator[None]:
    """While active, torch.distributed is a group of the declared size, and what is built on it runs on this GPU."""
    try:
        with _ddp(traffic), _sharding(traffic.machine, active), _group(traffic.world):
            yield
    finally:
        traffic.forget()


@contextmanager
def _group(world: World) -> Iterator[None]:
    """A process group with nobody else in it."""
    made = not dist.is_initialized()
    if made:
        hook = sys.excepthook
        dist.init_process_group(
            "cpu:fake,meta:fake", store=private_torch.FakeStore(), rank=world.rank, world_size=world.size
        )
    else:
        kind, rank, size = dist.get_backend(), dist.get_rank(), dist.get_world_size()
        if "fake" not in kind or (size, rank) != (world.size, world.rank):
            raise RuntimeError(
                f"torch.distributed is initialised already ({kind}, rank {rank} of {size}), and this simulated GPU is "
                f"rank {world.rank} of {world.size}: leave the other group first, dist.destroy_process_group()"
            )
    try:
        yield
    finally:
        if made:
            if dist.is_initialized():
                dist.destroy_process_group()
            sys.excepthook = hook  # torch's own writes the rank before each line, and stays


def _ddp(traffic: Traffic) -> ExitStack:
    """DistributedDataParallel runs on the simulated GPU."""
    from torch.nn.parallel import distributed

    plain, stack = distributed.DistributedDataParallel.register_comm_hook, ExitStack()

    def register_comm_hook(module: Any, state: Any, hook: Any) -> Any:
        @functools.wraps(hook)
        def told(state: Any, bucket: Any) -> Any:
            future = hook(state, bucket)
            if isinstance(future, SentFuture):
                traffic.reduces(future)
            return future

        return plain(module, state, told)

    for at, new in [
        ((distributed.DistributedDataParallel, "register_comm_hook"), register_comm_hook),
        # compares shapes with the other ranks', of which there are none
        (private_torch.place("verify_shapes"), lambda *args: None),
        # warns of a group whose backends are told by device, as this one's are
        (private_torch.place("has_hooks"), lambda group: False),
    ]:
        stack.enter_context(mock.patch.object(*at, new))
    return stack


class _Handle:
    """torch.cuda's names, for torch.distributed."""

    def __init__(self, gpu: Any) -> None:
        self._gpu = gpu

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def is_initialized(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gpu, name)


def _in_use(active: Active, device_type: str) -> Any:
    gpu = active()
    return gpu if gpu is not None and gpu.ranks is not None and device_type == gpu.device.type else None


def _asking(plain: Callable[..., Any], active: Active) -> Callable[..., Any]:
    def handle(device_type: str = "cuda") -> Any:
        gpu = _in_use(active, device_type)
        if gpu is None:
            return plain(device_type)
        group: Any = getattr(sys.modules.get(f"{_FSDP}._fsdp_param_group"), "FSDPParamGroup", None)
        check = getattr(group, "_validate_no_meta_params", None)
        if check is not None and not hasattr(check, "_simulated"):

            def validate(self: Any) -> None:
                if _in_use(active, self.device.type) is None:
                    check(self)

            vars(validate)["_simulated"] = True
            group._validate_no_meta_params = validate
        return _Handle(gpu)

    vars(handle)["_simulated"] = True
    return handle


def _sharding(machine: Machine, active: Active) -> ExitStack:
    """fully_shard finds its streams, and memory that it frees by resizing is free; closing the stack ends the latter. A mesh
    that was not given is of this GPU."""
    from torch.distributed import device_mesh

    for module in [device_mesh, *(m for n, m in list(sys.modules.items()) if n.startswith(_FSDP))]:
        plain = getattr(module, _HANDLE, None)
        if plain is not None and not hasattr(plain, "_simulated"):
            setattr(module, _HANDLE, _asking(plain, active))
    stack, resize = ExitStack(), torch.UntypedStorage.resize_

    def resized(storage: torch.UntypedStorage, size: int) -> Any:
        out = resize(storage, size)
        if storage.device.type == "meta":
            machine.memory.resized(storage)
        return out

    stack.enter_context(mock.patch.object(torch.UntypedStorage, "resize_", resized))
    # where no mesh was given
    here = mock.patch.object(
        *private_torch.place("default_device"), lambda *_: torch.device(machine.device.type)
    )
    stack.enter_context(here)
    return stack
