"""Inside `names(gpu)` and under `CudaNames(gpu)`, "cuda" is the simulated card: a script that asks for a GPU runs on it, unchanged.

Devices in arguments ("cuda", "cuda:0", torch.device("cuda")), .cuda(), what tensors say of their device, and the names of
torch.cuda and torch.accelerator. Everything else of CUDA's raises PyTorch's own error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from helpers.pytorch import private_torch
from helpers.simulator import Event, SimGPU, Stream
from helpers.simulator.graphs import CUDAGraph
from helpers.simulator.operators.calls import HISTORY, SAME

_CUDA = torch.device("cuda", 0)
T = torch.Tensor
#: what a tensor on the card says of itself; a property is known by its descriptor
_ANSWERS: dict[Any, tuple[Any]] = {T.device: (_CUDA,), T.is_cuda: (True,), T.get_device: (0,)}
#: streaming multiprocessors of a card, where somebody asks: a round number, since the simulator has no use for it
_SMS = 132
#: names of torch.cuda that the simulated GPU answers to under the same name
_SAME = (*SAME, "is_current_stream_capturing")


class CudaNames(TorchFunctionMode):
    """Above all other modes: "cuda" in a call becomes the simulated GPU's device, and tensors on it say "cuda:0"."""

    def __init__(self, gpu: SimGPU) -> None:
        super().__init__()
        self.device = gpu.device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (answer := answered(func)) is not None:
            with private_torch.DisableTorchFunction():
                return answer[0] if args[0].is_meta else func(*args)
        func, args, kwargs = self.here(func, args, kwargs or {})
        return func(*args, **kwargs)

    def here(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
        """The same call with the simulated GPU's device in place of "cuda"."""
        if func is torch.device:  # what a script says of the device it wants stays as it is
            return func, args, kwargs
        if func is T.cuda:  # .cuda(device, non_blocking)
            also = {"non_blocking": args[2]} if len(args) > 2 else {}
            return T.to, args[:1], {**kwargs, **also, "device": self.device}
        if any(map(is_cuda, args)):
            args = tuple(self.device if is_cuda(argument) else argument for argument in args)
        if func is T.to and len(args) > 1 and type(args[1]) is int:  # a GPU's number
            args = (args[0], self.device, *args[2:])
        if is_cuda(kwargs.get("device")) or type(kwargs.get("device")) is int:
            kwargs = {**kwargs, "device": self.device}
        return func, args, kwargs


def answered(func: Any) -> tuple[Any] | None:
    """What such a call answers for a tensor on the card, in a tuple; None for calls that do something."""
    asked = func.__self__ if getattr(func, "__name__", "") == "__get__" else func
    try:
        return _ANSWERS.get(asked)
    except TypeError:  # not hashable
        return None


def is_cuda(thing: Any) -> bool:
    """Whether a call's argument names a CUDA device."""
    if isinstance(thing, torch.device):
        return thing.type == "cuda"
    return isinstance(thing, str) and (thing == "cuda" or thing.startswith("cuda:"))


@contextlib.contextmanager
def names(gpu: SimGPU, seeded: Callable[[int], None] = lambda seed: None) -> Iterator[None]:
    """While active, torch.cuda and torch.accelerator answer for the simulated GPU. Inside `with gpu:`. seeded: is told of a
    seed for the card's random numbers."""
    with ExitStack() as stack:

        def put(owner: Any, name: str, new: Any) -> None:
            if hasattr(owner, name):
                stack.enter_context(mock.patch.object(owner, name, new))

        cuda, card = torch.cuda, gpu.card
        for name in _SAME:
            put(cuda, name, getattr(gpu, name))
            put(cuda.memory, name, getattr(gpu, name))
        for name in HISTORY:
            put(cuda.memory, name, getattr(gpu.memory, name))
        answers: dict[str, Any] = {
            "is_available": True, "is_initialized": True, "device_count": 1, "current_device": 0, "init": None,
            "get_device_name": f"{card.name} (simulated)", "get_device_capability": card.capability,
            "set_device": None, "ipc_collect": None, "device": nullcontext(),
            "get_device_properties": SimpleNamespace(
                name=f"{card.name} (simulated)", total_memory=card.memory_bytes, major=card.capability[0],
                minor=card.capability[1], multi_processor_count=_SMS,
            ),
            "utilization": 0, "memory_summary": "(not simulated)",
        }  # fmt: skip
        for name, answer in answers.items():
            put(cuda, name, _answers(answer))
        for name in ("manual_seed", "manual_seed_all"):
            put(cuda, name, seeded)
        for name in ("range_push", "range_pop", "mark"):
            put(cuda.nvtx, name, _answers(0))
        put(cuda.nvtx, "range", _answers(nullcontext()))
        if hasattr(torch, "accelerator"):
            asked = {"is_available": True, "current_accelerator": _CUDA, "device_count": 1, "set_device_index": None,
                     "set_device_idx": None, "current_device_index": 0, "current_device_idx": 0}  # fmt: skip
            for name, answer in asked.items():
                put(torch.accelerator, name, _answers(answer))
            for name in _SAME:
                put(torch.accelerator, name, getattr(gpu, name))
        own = torch.Generator
        on = lambda device="cpu": own(device=gpu.device if is_cuda(device) else device)  # noqa: E731
        put(torch, "Generator", _class(own, on))
        for kind, made in ((Stream, gpu.Stream), (Event, gpu.Event), (CUDAGraph, gpu.CUDAGraph)):
            put(cuda, kind.__name__, _class(kind, made))
        # With one device it hands its inputs on; how it scatters them, a CPU build does not have.
        put(torch.nn.DataParallel, "forward", lambda self, *inputs, **named: self.module(*inputs, **named))
        put(torch, "load", _loaded(gpu, torch.load))
        parse = private_torch.parse_to  # Module.to(0): a GPU's number
        numbered = lambda *args, **kwargs: parse(*(_CUDA if type(a) is int else a for a in args), **kwargs)  # noqa: E731
        put(private_torch.C._nn, "_parse_to", numbered)
        joined = {"init_process_group": _joining(gpu), "destroy_process_group": _answers(None)}
        joined |= {"get_backend": _answers("nccl"), "is_nccl_available": _answers(True)}
        for name, answer in joined.items():
            put(torch.distributed, name, answer)
            put(torch.distributed.distributed_c10d, name, answer)
        yield


def _answers(answer: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: answer


def _class(kind: type, made: Callable[..., Any]) -> type:
    """A class that `made` makes the objects of, and whose objects are those of `kind`."""

    class Meta(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return made(*args, **kwargs)

        def __instancecheck__(cls, thing: object) -> bool:
            return isinstance(thing, kind)

    return Meta(kind.__name__, (), {"__doc__": kind.__doc__})


def _joining(gpu: SimGPU) -> Callable[..., None]:
    """torch.distributed.init_process_group: the simulated ranks have joined already."""

    def joining(*args: Any, **kwargs: Any) -> None:
        if gpu.ranks is None:
            raise RuntimeError("a process group: say of how many GPUs, with --ranks 8 (in Python, ranks=8)")

    return joining


def _loaded(gpu: SimGPU, load: Callable[..., Any]) -> Callable[..., Any]:
    """torch.load: what a file has on "cuda", or is asked to put there, goes to the simulated card."""

    def loaded(file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        there = is_cuda(map_location)
        found = load(file, "cpu" if there else map_location, *args, **kwargs)
        to = lambda tensor: tensor.to(gpu.device)  # noqa: E731
        return private_torch.tree_map_only(torch.Tensor, to, found) if there else found

    return loaded
