"""fully_shard (FSDP2) on the simulated GPU: it asks a module torch.<device type> for streams, which meta lacks.

What is put in place stays, and asks first whether a simulated GPU with a world is in use: names that torch's modules
have imported could not be taken back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch

if TYPE_CHECKING:
    from helpers.simulator.gpu import SimGPU

__all__ = ["copies", "sharding"]

_FSDP = "torch.distributed.fsdp._fully_shard"
_HANDLE = "_get_device_handle"


class _Handle:
    """torch.cuda's names, for torch.distributed."""

    def __init__(self, gpu: SimGPU) -> None:
        self._gpu = gpu

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def is_initialized(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gpu, name)


def _in_use(device_type: str) -> SimGPU | None:
    from helpers.simulator.gpu import active

    gpu = active()
    return gpu if gpu is not None and gpu._traffic is not None and device_type == gpu.device.type else None


def _asking(plain: Callable[..., Any]) -> Callable[..., Any]:
    def handle(device_type: str = "cuda") -> Any:
        gpu = _in_use(device_type)
        if gpu is None:
            return plain(device_type)
        group: Any = getattr(sys.modules.get(f"{_FSDP}._fsdp_param_group"), "FSDPParamGroup", None)
        check = getattr(group, "_validate_no_meta_params", None)
        if check is not None and not hasattr(check, "_simulated"):

            def validate(self: Any) -> None:
                if _in_use(self.device.type) is None:
                    check(self)

            validate._simulated = True  # type: ignore[attr-defined]
            group._validate_no_meta_params = validate
        return _Handle(gpu)

    handle._simulated = True  # type: ignore[attr-defined]
    return handle


def sharding(gpu: SimGPU) -> ExitStack:
    """fully_shard finds its streams, and memory that it frees by resizing is free; closing the stack ends the latter."""
    from torch.distributed import device_mesh

    for module in [device_mesh, *(m for n, m in list(sys.modules.items()) if n.startswith(_FSDP))]:
        plain = getattr(module, _HANDLE, None)
        if plain is not None and not hasattr(plain, "_simulated"):
            setattr(module, _HANDLE, _asking(plain))
    stack, resize = ExitStack(), torch.UntypedStorage.resize_

    def resized(storage: torch.UntypedStorage, size: int) -> Any:
        out = resize(storage, size)
        if storage.device.type == "meta":
            gpu._memory.resized(storage)
        return out

    stack.enter_context(mock.patch.object(torch.UntypedStorage, "resize_", resized))
    return stack


def copies(func: Any, args: Any, kwargs: Any) -> Any:
    """An operator of torch.ops.fsdp, in the operators that it is made of (torch/distributed/fsdp/_fully_shard/
    _fsdp_collectives.py). NotImplemented for one that is not known."""
    name = str(func._schema.name).partition("::")[2]
    given = dict(zip([a.name for a in func._schema.arguments], args, strict=False)) | kwargs
    if name == "split_with_sizes_copy":
        whole, sizes = given["all_gather_output"], given["all_gather_input_split_sizes"]
        torch.split_with_sizes_copy(whole, sizes, dim=given.get("dim", 0), out=given["out"])
        return None
    if name == "chunk_cat":
        torch._chunk_cat(given["tensors"], given["dim"], given["num_chunks"], out=given["out"])
        return None
    if name != "all_gather_copy_in":
        return NotImplemented
    whole, length = given["all_gather_output"], given["all_gather_input_numel"]
    mine = whole.narrow(0, length * given["rank"], length)
    with torch.no_grad():
        torch._foreach_copy_(torch.split(mine, given["inp_split_sizes"]), given["all_gather_inputs"])
    return mine, whole
