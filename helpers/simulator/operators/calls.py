"""Calls that never reach the dispatcher: what they mean on CUDA, and what to write instead where they ask a real GPU.

A function mode sees them above autograd (pinned memory, torch.tensor(..., device=...), printing); what PyTorch's own
Python functions ask about a CUDA device is answered by stand-ins, which last as long as the `with gpu:` block.
torch.cuda's functions ask the CUDA driver, which knows nothing of a simulated GPU: most raise "Torch not compiled
with CUDA enabled", some answer 0. Here they say that the same names on `gpu` work on both.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch

from helpers.pytorch import private_torch
from helpers.pytorch.dispatch_mode import CallMode, Unseen
from helpers.pytorch.waiting import lists_in
from helpers.simulator.machine import Machine
from helpers.simulator.operators.autocast import cuda_autocast
from helpers.simulator.operators.cuda_kernels import attention, dropout, optimizers, plain_attention, rms_norm
from helpers.simulator.operators.dispatch import Dispatch

# Reads of CPU tensors that the dispatcher does not see; by name, since helpers.count puts stand-ins in their place.
READS = ("tolist", "numpy", "__array__", "__repr__")
# Names of functions that mean something else on CUDA, and arguments by which any function does: of every other call
# nothing is asked. By name here too.
_SPECIAL = frozenset(
    """is_pinned pin_memory __format__ __getitem__ __setitem__ cuda to scaled_dot_product_attention tensor as_tensor
    asarray""".split()
).union(READS)
_SPECIAL_ARGUMENTS = frozenset({"device", "pin_memory"})
# Names of torch.cuda that `gpu` has too. Functions that PyTorch itself calls only where CUDA is available.
SAME = """
    synchronize stream current_stream default_stream memory_allocated max_memory_allocated memory_reserved
    max_memory_reserved reset_peak_memory_stats memory_stats memory_snapshot empty_cache mem_get_info
    set_per_process_memory_fraction graph graph_pool_handle make_graphed_callables set_sync_debug_mode get_sync_debug_mode
""".split()
HISTORY = ("_record_memory_history", "_snapshot", "_dump_snapshot")  # of torch.cuda.memory
_CLASSES = "Stream Event CUDAGraph"


# What is refused: words in PyTorch's error → what it is, why, and what to do instead.
_REFUSED = {
    "FlexAttention is only supported": "flex_attention is a kernel that torch.compile writes, and nothing is compiled here: "
    "use torch.nn.functional.scaled_dot_product_attention, whose kernels are simulated",
    "NestedTensorImpl": "nested tensors of layout torch.strided keep their sizes in memory that a simulated GPU has not: use "
    "layout=torch.jagged, or pad to one length",
    "Sparse": "sparse tensors are not simulated: how much a kernel does depends on values, which tensors here have not. Use "
    "dense ones (nn.Embedding and nn.EmbeddingBag: sparse=False), or simulate(..., values=True) for the results alone",
    "ctc_loss": "ctc_loss is not simulated: its kernel's length is in the values of input_lengths and target_lengths, which "
    "tensors here have not. Use simulate(..., values=True) for its result, and leave it out of a timed step",
}


def refused(error: BaseException) -> str | None:
    """What to do instead, where an error came from something that is not simulated; None for any other error."""
    frames = traceback.extract_tb(error.__traceback__)
    where = {f.name for f in frames}
    return next((said for word, said in _REFUSED.items() if word in str(error) or word in where), None)


def puts_number(func: Any, args: Any) -> bool:
    """x[…] = 2.0: the number becomes a tensor in host memory on CUDA; on other devices, one of theirs."""
    return func == torch.Tensor.__setitem__ and len(args) == 3 and not isinstance(args[2], torch.Tensor)


def copy_lists(machine: Machine, func: Any, args: Any) -> None:
    """x[[0, 2]], also where it is written to: the list becomes a tensor on the device."""
    if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
        for found in lists_in(args[1]):
            if isinstance(found, np.ndarray) and args[0].is_meta:
                continue  # torch makes a tensor of it first, and that one's copy is seen
            with Unseen():
                places = torch.empty(np.shape(found), dtype=_index_type(found))
            machine.copy("aten._to_copy", "copy h2d", places, pinned=False, non_blocking=False)


def _index_type(index: Any) -> torch.dtype:
    array = np.asarray(index)
    return torch.bool if array.dtype == np.bool_ and array.size else torch.int64


class Calls(CallMode):
    """Above autograd: calls that mean something else on a CUDA build, and reads of host memory."""

    def __init__(self, mode: Dispatch) -> None:
        super().__init__()
        self._mode, self._machine = mode, mode.machine

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name not in _SPECIAL and (not kwargs or _SPECIAL_ARGUMENTS.isdisjoint(kwargs)):
            return func(*args, **(kwargs or {}))
        kwargs, machine = dict(kwargs or {}), self._machine
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if first is not None and first.device.type == "cpu" and name in READS:
            machine.races.host_touch(f"Tensor.{func.__name__}", first, False)
        if func is torch.Tensor.is_pinned and first is not None:
            return first in machine.pinned
        if func is torch.Tensor.pin_memory and first is not None and first.device.type == "cpu":
            return machine.pin(first)
        if func is torch.Tensor.__repr__ and first is not None and first.is_meta:
            machine.sync("print")
        if func is torch.Tensor.__format__ and first is not None and first.is_meta and not first.dim():
            return format(first.item(), *args[1:])  # as for any number on a GPU: f"{loss:.3f}" waits for it
        hint = cuda_call(func, args, kwargs)
        if hint is not None:
            raise RuntimeError(hint)
        if func is plain_attention:
            # what stands there now: the card's (`stand_ins`)
            return torch.nn.functional.scaled_dot_product_attention(*args, **kwargs)
        if first is not None and first.is_meta:
            copy_lists(machine, func, args)
        pin, seen = kwargs.pop("pin_memory", None), machine.line.started
        self._mode.puts_number = puts_number(func, args)
        try:
            out = func(*args, **kwargs)
        finally:
            self._mode.puts_number = False
        if pin and isinstance(out, torch.Tensor) and out.device.type == "cpu":
            machine.pinned.add(out)
        made = func in (torch.tensor, torch.as_tensor, torch.asarray) and first is None and out.is_meta
        if made and machine.line.started == seen:  # from a list, which is copied without the dispatcher
            machine.copy(f"torch.{func.__name__}", "copy h2d", out, pinned=False, non_blocking=False)
        return out


def cuda_call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """What to write instead, where a call puts something on "cuda"; None for any other call."""
    if func is torch.Tensor.cuda:
        return ".cuda() needs a real GPU: write .to(gpu.device), which is right on both"
    named = [kwargs.get("device"), *(args[1:2] if func is torch.Tensor.to else ())]
    for device in named:
        if isinstance(device, (str, torch.device)) and str(device).partition(":")[0] == "cuda":
            return f"device {str(device)!r} is a real GPU: write gpu.device, which is right on both"
    return None


def stand_ins(machine: Machine) -> ExitStack:
    """What CUDA tensors have and the simulated GPU's lack; closing the stack puts everything back."""
    stack = ExitStack()
    _tensors(machine, stack)
    # Also for nn.MultiheadAttention: inside PyTorch's own Python functions the function mode is off.
    on_gpu = lambda tensor: not machine.on_host(tensor)  # noqa: E731
    fitting = partial(attention, on_gpu, capability=machine.card.capability)
    _put(stack, torch.nn.functional, "scaled_dot_product_attention", fitting)
    for owner in (torch, private_torch.VF):  # torch.nn.functional asks the second
        _put(stack, owner, "dropout", partial(dropout, on_gpu))
        _put(stack, owner, "rms_norm", partial(rms_norm, on_gpu))
    # Where values are kept, host and GPU are one device to `.to`, also in its hooks.
    if machine.device.type == "meta":
        _put(stack, torch.autograd.graph, "save_on_cpu", _save_on_cpu(machine))
    # foreach by default, fused and capturable on request; CUDA's autocast.
    stack.enter_context(optimizers(machine.device))
    stack.enter_context(cuda_autocast(machine.device))
    _names(machine, stack)
    _loaders(machine, stack)
    _captured_optimizers(machine, stack)
    return stack


def _save_on_cpu(machine: Machine) -> type:
    """torch.autograd.graph.save_on_cpu that pins on request: PyTorch's own does not where it finds no CUDA device."""

    def pinned(tensor: torch.Tensor) -> tuple[torch.device, torch.Tensor]:
        packed = machine.pinned.add(torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu"))
        packed.copy_(tensor, non_blocking=True)
        return tensor.device, packed

    class SaveOnCPU(torch.autograd.graph.save_on_cpu):
        def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
            super().__init__(pin_memory, device_type)
            if pin_memory:
                self.pack_hook = pinned

    return SaveOnCPU


def _put(stack: ExitStack, owner: Any, name: str, new: Any) -> None:
    stack.enter_context(mock.patch.object(owner, name, new))


def _tensors(machine: Machine, stack: ExitStack) -> None:
    """Tensors have addresses and streams; model.to(gpu.device) keeps its Parameter objects."""
    address, lend = torch.Tensor.data_ptr, torch.Tensor.record_stream

    def data_ptr(tensor: torch.Tensor) -> int:
        where = machine.memory.extent(tensor) if tensor.is_meta else None
        return where[0] if where else address(tensor)

    def record_stream(tensor: torch.Tensor, stream: Any) -> None:
        if hasattr(stream, "_lane"):  # PyTorch's own takes no stream but its own
            machine.memory.record_stream(machine.seen(tensor), stream._lane)
        else:
            lend(tensor, stream)

    _put(stack, torch.Tensor, "data_ptr", data_ptr)
    _put(stack, torch.Tensor, "record_stream", record_stream)
    # nonzero() of unknown data: as many as there are elements.
    config = private_torch.fx_config

    if hasattr(config, "meta_nonzero_assume_all_nonzero"):
        _put(stack, config, "meta_nonzero_assume_all_nonzero", True)
    if machine.device.type == "meta":  # and what shares parameters: tied weights, an optimizer made before
        future = torch.__future__
        before = future.get_swap_module_params_on_conversion()
        stack.callback(future.set_swap_module_params_on_conversion, before)
        future.set_swap_module_params_on_conversion(True)


def _names(machine: Machine, stack: ExitStack) -> None:
    """torch.cuda's names say what to write; torch.Generator takes gpu.device."""
    card = machine.card
    if not torch.cuda.is_available():
        for owner, names, within in ((torch.cuda, SAME, ""), (torch.cuda.memory, HISTORY, "memory.")):
            for name in names:
                if hasattr(owner, name):
                    _put(stack, owner, name, _refuse(within + name, card.name))
        for name in _CLASSES.split():
            here = getattr(torch.cuda, name, None)
            if isinstance(here, type):
                made = type(name, (here,), {"__new__": _refuse(name, card.name)})
                _put(stack, torch.cuda, name, made)
    # Emulated on cards before Ampere: slow, and not refused.
    native = card.capability >= (8, 0)
    _put(
        stack, torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or native
    )
    _put(stack, torch, "Generator", _Generator)
    # Dynamo leaves code alone while a dispatch mode is on.
    _put(stack, torch, "compile", _eager(card.name, torch.compile))
    wrapped = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", None)
    if wrapped is not None:  # compiled before the block
        _put(stack, wrapped, "__call__", _eager(card.name, wrapped.__call__))


def _refuse(name: str, card: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"torch.cuda.{name} asks a real GPU; this one, a simulated {card}, answers to gpu.{name}(...), which "
            "is right on both"
        )

    return refuse


def _eager(card: str, call: Any) -> Any:
    def warned(*args: Any, **kwargs: Any) -> Any:
        Dispatch.hide_from_dynamo()
        warnings.warn(
            f"torch.compile changes nothing on the simulated {card}: every operator runs by itself, as without it",
            stacklevel=2,
        )
        return call(*args, **kwargs)

    return warned


_OWN = torch.Generator  # torch.Generator is another one while a GPU is in use


class _Any(type(torch.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, thing: object) -> bool:
        return isinstance(thing, _OWN)


class _Generator(torch.Generator, metaclass=_Any):
    """A generator for gpu.device. Meta tensors hold no random numbers, so any generator will do."""

    def __new__(cls, device: Any = "cpu") -> Any:
        kind = torch.device(device).type
        return _OWN.__new__(cls, "cpu" if kind == "meta" else device)  # type: ignore[call-arg]


def _loaders(machine: Machine, stack: ExitStack) -> None:
    """DataLoader(pin_memory=True) pins what it loads.

    In the process itself, where there are no workers, at the host's cost; else at no cost for this thread, as
    PyTorch's pinning thread does it.
    """
    base = private_torch.DataLoaderIterator
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
            _mark(machine, data)
            return data
        return private_torch.data_utils.pin_memory.pin_memory(data)

    _put(stack, base, "__init__", init)
    _put(stack, base, "__next__", following)


def _mark(machine: Machine, data: Any) -> None:
    if isinstance(data, torch.Tensor):
        if data.device.type == "cpu":
            machine.pinned.add(data)
    elif isinstance(data, Mapping):
        for item in data.values():
            _mark(machine, item)
    elif isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        for item in data:
            _mark(machine, item)


def _captured_optimizers(machine: Machine, stack: ExitStack) -> None:
    """What optimizers ask a CUDA build about graphs."""

    def health_check(self: torch.optim.Optimizer) -> None:
        # torch/optim/optimizer.py, _accelerator_graph_capture_health_check: the same words
        if machine.current.capture is not None and not all(
            group["capturable"] for group in self.param_groups
        ):
            raise RuntimeError(
                f"Attempting CUDA graph capture of step() for an instance of {type(self).__name__} but "
                "param_groups' capturable is False."
            )

    for check in ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"):
        if hasattr(torch.optim.Optimizer, check):
            _put(stack, torch.optim.Optimizer, check, health_check)
