"""What PyTorch does to the simulated GPU: operators become launches, copies and syncs on its timeline.

A dispatch mode sees every aten operator on a `meta` tensor; a function mode sees what never reaches the
dispatcher on a CPU build (pinned memory, torch.tensor(..., device=...), printing, the choice of attention
kernel). Nothing in dispatch raises of its own accord: an exception there can end the process while
autograd builds its graph. What goes wrong is recorded in gpu.faults, and raised when the `with gpu:` block
ends. PyTorch's own errors (a shape that does not fit) pass through as they are.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from helpers.simulator import cost, fused, hints, remember
from helpers.simulator.attention import attention, plain_attention
from helpers.simulator.autocast import cuda_autocast
from helpers.simulator.kineto import Annotation
from helpers.simulator.memory import record_stream

if TYPE_CHECKING:
    from helpers.simulator.gpu import SimGPU

__all__ = ["Calls", "Operators", "Pinned", "cuda_defaults", "puts_number"]

aten = torch.ops.aten
_TWO_DEVICES = (
    "CUDA raises 'Expected all tensors to be on the same device'. Move it first: t.to(gpu.device), and a model "
    "with model.to(gpu.device)"
)
# Whose lengths stay in host memory on CUDA too.
_PUTS = (aten.index_put_, aten.index_put, aten._index_put_impl_)
_MASKS = (torch.bool, torch.uint8)
_FILLS = {f.Tensor: f.Scalar for f in (aten.masked_fill, aten.masked_fill_)}
_HOST_LENGTHS = {f"aten._{name}" for name in (
    "pack_padded_sequence", "pack_padded_sequence_backward", "ctc_loss", "ctc_loss_backward",
)}  # fmt: skip


class Pinned:
    """Which host storages are page-locked. CPU builds of PyTorch can neither pin memory nor tell."""

    def __init__(self) -> None:
        self._held: set[int] = set()

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._held:
            self._held.add(storage._cdata)
            weakref.finalize(storage, self._held.discard, storage._cdata)
        return tensor

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._held


class Operators(TorchDispatchMode):
    """Below autograd: every aten operator, forward, backward and optimizer."""

    _hidden: bool

    def __init__(self, gpu: SimGPU) -> None:
        super().__init__()
        if "torch._dynamo" in sys.modules:
            self.hide_from_dynamo()
        self._gpu = gpu
        self._zeros: dict[torch.dtype, torch.Tensor] = {}
        self._open: list[Annotation] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise PyTorch imports its compiler, for a second or two, at the first operator

    @classmethod
    def hide_from_dynamo(cls) -> None:
        """Where the compiler is loaded anyway: it shall not try to compile this class."""
        if "_hidden" not in cls.__dict__:
            cls.__torch_dispatch__ = torch._disable_dynamo(cls.__torch_dispatch__)  # type: ignore[method-assign]
            cls._hidden = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, gpu = kwargs or {}, self._gpu
        if func.namespace != "aten":
            out = func(*args, **kwargs)
            if func.namespace == "profiler":
                self._guard(self._annotate, func, args)
            return out
        before = self._guard(self._from_device, func, args, kwargs)
        if before is not None:
            return before[0]
        if func in _FILLS and args[2].device.type == "cpu" and not args[2].dim():
            # allowed on CUDA, and refused by the rule for meta: the number is an argument of the kernel
            func, args = _FILLS[func], (*args[:2], args[2].item())
        try:
            out = remember.run(func, args, kwargs)
        except RuntimeError as error:
            if "is not on the expected device" in str(error):
                error.add_note(_TWO_DEVICES)
            raise
        if func._overloadpacket in (aten.all, aten._is_all_true):
            out._holds = True  # what a program checks is so
        self._guard(gpu._memory.produced, func, args, kwargs, out)
        self._guard(self._account, func, args, kwargs, out)
        return out

    def _annotate(self, func: Any, args: Any) -> None:
        """record_function enters with its name and leaves with a handle; spans nest."""
        gpu, name = self._gpu, func._schema.name
        if "enter" in name:
            gpu._annotations.append(Annotation(str(args[0]), gpu._timeline.host_ns))
            self._open.append(gpu._annotations[-1])
        elif "exit" in name and self._open:
            self._open.pop().end_ns = gpu._timeline.host_ns

    def _guard(self, step: Callable[..., Any], func: Any, *rest: Any) -> Any:
        try:
            return step(func, *rest)
        except Exception as error:  # see the module's first lines
            told = f"{func._overloadpacket}: {type(error).__name__}: {error}"
            odd = [t for t in cost.tensors(rest) if t.layout is not torch.strided]
            if odd:
                told = (
                    "sparse tensors are not simulated: their time and memory are missing from this run. Use dense "
                    "ones on the simulated GPU (nn.Embedding and nn.EmbeddingBag: sparse=False)"
                )
            if not odd or (any(t.is_meta for t in odd) and told not in self._gpu.faults):
                self._gpu.faults.append(told)
            return None

    def _from_device(self, func: Any, args: Any, kwargs: Any) -> tuple[Any] | None:
        """Operators whose result the host needs: wait, and make one up (zeros, "equal", "all selected")."""
        gpu, packet = self._gpu, func._overloadpacket
        if gpu._noting:
            gpu._note(args, kwargs)
        source = args[1] if packet is aten.copy_ else args[0] if args else None
        if not isinstance(source, torch.Tensor) or not source.is_meta:
            return None
        if packet is aten._local_scalar_dense:
            gpu._copy(str(packet), "copy d2h", source, pinned=True, non_blocking=False)
            number = self._zero(source.dtype)
            return (func(number if not hasattr(source, "_holds") else number == number),)
        if packet in (aten.equal, aten.allclose):
            gpu._launch(func, cost.Work(source.numel(), 2 * source.nbytes, "fp32"), source.dtype)
            gpu._sync(str(packet))
            zero = self._zero(source.dtype)
            return (func(zero, zero),)
        if packet is aten._to_copy and torch.device(kwargs.get("device") or "meta").type == "cpu":
            non_blocking = bool(kwargs.get("non_blocking"))
            with _disable_current_modes():
                zeros = self._zero(source.dtype).expand(source.shape)
            out = func(zeros, **kwargs)
            # With non_blocking PyTorch takes a pinned target, and hands it out before the bytes have arrived.
            gpu._copy(str(packet), "copy d2h", source, pinned=non_blocking, non_blocking=non_blocking)
            return (gpu._pinned.add(out) if non_blocking else out,)
        if packet is aten.copy_ and args[0].device.type == "cpu":
            non_blocking = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking"))
            gpu._copy(str(packet), "copy d2h", source, args[0] in gpu._pinned, non_blocking)
            return (func(args[0], self._zero(args[0].dtype)),)
        if packet is aten._unique2:  # all of them differ
            n, wanted = source.numel(), [*args[2:], False, False]
            with _disable_current_modes():
                sizes = [n, n * bool(wanted[0]), n * bool(wanted[1])]
                made = [torch.empty(k, dtype=torch.int64, device="meta") for k in sizes[1:]]
                out = (torch.empty(n, dtype=source.dtype, device="meta"), *made)
            gpu._memory.produced(func, args, kwargs, out)
            self._account(func, args, kwargs, out)
            return (out,)
        if packet is aten.masked_select:
            with _disable_current_modes():
                out = torch.empty(source.numel(), dtype=source.dtype, device="meta")
            gpu._memory.produced(func, args, kwargs, out)
            self._account(func, args, kwargs, out)
            return (out,)
        return None

    def _account(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        gpu, packet = self._gpu, func._overloadpacket
        inputs = list(cost.tensors([args, kwargs]))
        if not any(t.is_meta for t in inputs) and not any(t.is_meta for t in cost.tensors(out)):
            return  # the host's own business
        if not cost.launches_kernel(func, out):
            gpu._timeline.spend(str(packet), "operator", gpu.card.assumptions.view_s)
            return
        on_host = [t for t in inputs if t.device.type == "cpu"]
        if packet in (aten._to_copy, aten.copy_) and on_host:
            non_blocking = kwargs.get("non_blocking") or (packet is aten.copy_ and len(args) > 2 and args[2])
            gpu._copy(str(packet), "copy h2d", on_host[0], on_host[0] in gpu._pinned, bool(non_blocking))
            return
        fills = packet in _PUTS and self._fills(args)
        for tensor in on_host:
            if fills:
                continue  # one number on its way into a mask: an argument of masked_fill_'s kernel
            if packet in (aten.index, aten.index_put_, aten.index_put, aten._index_put_impl_):
                gpu._copy(str(packet), "copy h2d", tensor, pinned=False, non_blocking=False)
            elif tensor.dim() and str(packet) not in _HOST_LENGTHS:
                # (A number in a CPU tensor travels as a kernel's argument.)
                gpu.faults.append(
                    f"{packet}: a CPU tensor of shape {tuple(tensor.shape)} among GPU tensors; {_TWO_DEVICES}"
                )
        result = next((t for t in cost.tensors(out) if t.is_meta), inputs[0] if inputs else None)
        shares = fused.launches(func, args, kwargs, out) if fused.is_list_operator(func) else None
        dtype = result.dtype if result is not None else None
        if packet in (aten.masked_fill, aten.masked_fill_):
            for value in cost.tensors([args[2:3], kwargs.get("value")]):
                if value.is_meta:  # ATen/native/cuda/Indexing.cu: masked_fill_(mask, value.item())
                    gpu._copy("aten._local_scalar_dense", "copy d2h", value, pinned=True, non_blocking=False)
        gpu._launch(func, cost.work(func, args, kwargs, out), dtype, shares)
        if self._must_count(func, args):
            gpu._sync(str(packet))  # the host must learn how many, to allocate the result

    def _must_count(self, func: Any, args: Any) -> bool:
        """Whether the size of what is selected depends on values."""
        packet = func._overloadpacket
        if packet is aten.index or packet in _PUTS:
            masked = any(t.dtype in _MASKS for t in cost.tensors(args[1:2]))
            return masked and (packet is aten.index or not self._fills(args))
        return torch.Tag.dynamic_output_shape in func.tags

    def _fills(self, args: Any) -> bool:
        """Whether what is put into a mask is one number in host memory: then it becomes masked_fill_.

        That need not count the mask's elements. A number on the device does not: its mask becomes indices, by
        nonzero(), which waits (ATen/native/TensorAdvancedIndexingUtils.h, canDispatchToMaskedFill; a Python
        number is a CPU tensor there: python_variable_indexing.cpp, THPVariable_setitem).
        """
        indices, value = list(cost.tensors(args[1:2])), args[2]
        on_host = value.device.type == "cpu" or self._gpu._puts_number
        accumulates = len(args) > 3 and args[3]
        one_mask = len(indices) == 1 and indices[0].dtype in _MASKS and indices[0].is_meta
        return bool(value.numel() == 1 and on_host and one_mask and not accumulates)

    def _zero(self, dtype: torch.dtype) -> torch.Tensor:
        """A CPU zero, made unseen by any other mode that is counting."""
        if dtype not in self._zeros:
            with _disable_current_modes():
                self._zeros[dtype] = torch.zeros((), dtype=dtype)
        return self._zeros[dtype]


def puts_number(func: Any, args: Any) -> bool:
    """x[…] = 2.0: the number becomes a tensor in host memory on CUDA; on other devices, one of theirs."""
    return func == torch.Tensor.__setitem__ and len(args) == 3 and not isinstance(args[2], torch.Tensor)


class Calls(TorchFunctionMode):
    """Above autograd: calls that mean something else on a CUDA build."""

    def __init__(self, gpu: SimGPU) -> None:
        super().__init__()
        self._gpu = gpu

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, gpu = dict(kwargs or {}), self._gpu
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if func is torch.Tensor.is_pinned and first is not None:
            return first in gpu._pinned
        if func is torch.Tensor.pin_memory and first is not None and first.device.type == "cpu":
            if first in gpu._pinned:
                return first
            gpu._timeline.spend(
                "pin_memory", "work", first.nbytes / gpu.card.assumptions.pageable_bytes_per_s
            )
            return gpu._pinned.add(first.clone())
        if func is torch.Tensor.__repr__ and first is not None and first.is_meta:
            gpu._sync("print")
        if func is torch.Tensor.__format__ and first is not None and first.is_meta and not first.dim():
            return format(first.item(), *args[1:])  # as for any number on a GPU: f"{loss:.3f}" waits for it
        hint = hints.cuda_call(func, args, kwargs)
        if hint is not None:
            raise RuntimeError(hint)
        if func is plain_attention:
            return attention(*args, **kwargs, capability=gpu.card.capability)
        pin, seen = kwargs.pop("pin_memory", None), gpu._timeline.started
        gpu._puts_number = puts_number(func, args)
        try:
            out = func(*args, **kwargs)
        finally:
            gpu._puts_number = False
        if pin and isinstance(out, torch.Tensor) and out.device.type == "cpu":
            gpu._pinned.add(out)
        made = func in (torch.tensor, torch.as_tensor, torch.asarray) and first is None and out.is_meta
        if made and gpu._timeline.started == seen:  # from a list, which is copied without the dispatcher
            gpu._copy(f"torch.{func.__name__}", "copy h2d", out, pinned=False, non_blocking=False)
        return out


def cuda_defaults(gpu: SimGPU) -> ExitStack:
    """What CUDA tensors have and the simulated GPU's lack; closing the stack puts everything back."""
    stack = ExitStack()
    stack.enter_context(mock.patch.object(torch.Tensor, "record_stream", record_stream))
    # Also for nn.MultiheadAttention: inside PyTorch's own Python functions the function mode is off.
    functional = torch.nn.functional
    fitting = partial(attention, capability=gpu.card.capability)
    stack.enter_context(mock.patch.object(functional, "scaled_dot_product_attention", fitting))
    # nonzero() of unknown data: as many as there are elements.
    import torch.fx.experimental._config as config

    if hasattr(config, "meta_nonzero_assume_all_nonzero"):
        stack.enter_context(mock.patch.object(config, "meta_nonzero_assume_all_nonzero", True))
    # foreach by default, fused and capturable on request; CUDA's autocast.
    stack.enter_context(fused.optimizers(gpu.device))
    stack.enter_context(cuda_autocast(gpu.device))
    # model.to(gpu.device) keeps its Parameter objects, and what shares them: tied weights, an optimizer made before.
    if gpu.device.type == "meta":
        future = torch.__future__
        stack.callback(
            future.set_swap_module_params_on_conversion, future.get_swap_module_params_on_conversion()
        )
        future.set_swap_module_params_on_conversion(True)
    # torch.cuda's names say what to write instead; DataLoader pins.
    stack.enter_context(hints.names(gpu))
    stack.enter_context(hints.loaders(gpu))
    return stack
