"""Inside `with gpu:`, what is written for a real GPU only says how it is written for both.

torch.cuda's functions ask the CUDA driver, which knows nothing of a simulated GPU: most raise "Torch not
compiled with CUDA enabled", some answer 0. The same names on `gpu` work on both.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch.utils.data import _utils, dataloader

if TYPE_CHECKING:
    from helpers.simulator.gpu import SimGPU

__all__ = ["cuda_call", "loaders", "names"]

# Names of torch.cuda that `gpu` has too. Functions that PyTorch itself calls only where CUDA is available.
_SAME = """
    synchronize stream current_stream default_stream memory_allocated max_memory_allocated memory_reserved
    max_memory_reserved reset_peak_memory_stats memory_stats memory_snapshot empty_cache mem_get_info
    set_per_process_memory_fraction graph graph_pool_handle make_graphed_callables reset_accumulated_memory_stats
    set_sync_debug_mode get_sync_debug_mode
"""
_HISTORY = "_record_memory_history _snapshot _dump_snapshot"  # of torch.cuda.memory
_CLASSES = "Stream Event CUDAGraph"


def names(gpu: SimGPU) -> ExitStack:
    """Until the stack is closed: torch.cuda's names say what to write; torch.Generator takes gpu.device."""
    stack = ExitStack()
    if not torch.cuda.is_available():
        for name in _SAME.split():
            if hasattr(torch.cuda, name):
                stack.enter_context(mock.patch.object(torch.cuda, name, _refuse(name, gpu.name)))
        for name in _HISTORY.split():
            if hasattr(torch.cuda.memory, name):
                stack.enter_context(
                    mock.patch.object(torch.cuda.memory, name, _refuse(f"memory.{name}", gpu.name))
                )
        for name in _CLASSES.split():
            here = getattr(torch.cuda, name, None)
            if isinstance(here, type):
                made = type(name, (here,), {"__new__": _refuse(name, gpu.name, "(...)")})
                stack.enter_context(mock.patch.object(torch.cuda, name, made))
    # Emulated on cards before Ampere: slow, and not refused.
    native = gpu.card.capability >= (8, 0)
    stack.enter_context(
        mock.patch.object(
            torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or native
        )
    )
    stack.enter_context(mock.patch.object(torch, "Generator", _Generator))
    # Dynamo leaves code alone while a dispatch mode is on.
    stack.enter_context(mock.patch.object(torch, "compile", _eager(gpu, torch.compile)))
    wrapped = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", None)
    if wrapped is not None:  # compiled before the block
        stack.enter_context(mock.patch.object(wrapped, "__call__", _eager(gpu, wrapped.__call__)))
    return stack


def _refuse(name: str, card: str, call: str = "(...)") -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"torch.cuda.{name} asks a real GPU; this one, a simulated {card}, answers to gpu.{name}{call}, which "
            "is right on both"
        )

    return refuse


def _eager(gpu: SimGPU, call: Any) -> Any:
    def warned(*args: Any, **kwargs: Any) -> Any:
        gpu._mode.hide_from_dynamo()
        warnings.warn(
            f"torch.compile changes nothing on the simulated {gpu.name}: every operator runs by itself, as without it",
            stacklevel=2,
        )
        return call(*args, **kwargs)

    return warned


class _Any(type(torch.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, thing: object) -> bool:
        return isinstance(thing, torch._C.Generator)


class _Generator(torch.Generator, metaclass=_Any):
    """A generator for gpu.device. Meta tensors hold no random numbers, so any generator will do."""

    def __new__(cls, device: Any = "cpu") -> Any:
        kind = torch.device(device).type
        return torch._C.Generator.__new__(cls, "cpu" if kind == "meta" else device)  # type: ignore[call-arg]


def cuda_call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """What to write instead, where a call puts something on "cuda"; None for any other call."""
    if func is torch.Tensor.cuda:
        return ".cuda() needs a real GPU: write .to(gpu.device), which is right on both"
    named = [kwargs.get("device"), *(args[1:2] if func is torch.Tensor.to else ())]
    for device in named:
        if isinstance(device, (str, torch.device)) and str(device).partition(":")[0] == "cuda":
            return f"device {str(device)!r} is a real GPU: write gpu.device, which is right on both"
    return None


def loaders(gpu: SimGPU) -> ExitStack:
    """Until the stack is closed, DataLoader(pin_memory=True) pins what it loads.

    In the process itself, where there are no workers, at the host's cost; else at no cost for this thread, as
    PyTorch's pinning thread does it.
    """
    stack, base = ExitStack(), dataloader._BaseDataLoaderIter
    begin, proceed = base.__init__, base.__next__

    def init(self: Any, loader: Any) -> None:
        pin, loader.pin_memory = loader.pin_memory, False  # PyTorch would warn that there is no accelerator
        try:
            begin(self, loader)
        finally:
            loader.pin_memory = pin
        self._pin_simulated = pin

    def following(self: Any) -> Any:
        data = proceed(self)
        if not getattr(self, "_pin_simulated", False):
            return data
        if self._num_workers:
            _mark(gpu, data)
            return data
        return _utils.pin_memory.pin_memory(data)

    stack.enter_context(mock.patch.object(base, "__init__", init))
    stack.enter_context(mock.patch.object(base, "__next__", following))
    return stack


def _mark(gpu: SimGPU, data: Any) -> None:
    if isinstance(data, torch.Tensor):
        if data.device.type == "cpu":
            gpu._pinned.add(data)
    elif isinstance(data, Mapping):
        for item in data.values():
            _mark(gpu, item)
    elif isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        for item in data:
            _mark(gpu, item)
