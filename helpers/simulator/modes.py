"""What PyTorch does to the simulated GPU: operators become launches, copies and syncs on its timeline.

A dispatch mode sees every aten operator on a `meta` tensor; a function mode sees what never reaches the
dispatcher on a CPU build (pinned memory, torch.tensor(..., device=...), printing, the choice of attention
kernel). Nothing here raises of its own accord: an exception inside dispatch can end the process while
autograd builds its graph. What goes wrong is recorded in gpu.faults, and raised when the `with gpu:` block
ends. PyTorch's own errors (a shape that does not fit) pass through as they are.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from helpers.simulator import cost

if TYPE_CHECKING:
    from helpers.simulator.gpu import SimGPU

__all__ = ["Calls", "Operators", "Pinned", "cuda_defaults"]

aten = torch.ops.aten


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

    def __init__(self, gpu: SimGPU) -> None:
        super().__init__()
        self._gpu = gpu
        self._zeros: dict[torch.dtype, torch.Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace != "aten":
            return func(*args, **kwargs)
        before = self._guard(self._from_device, func, args, kwargs)
        if before is not None:
            return before[0]
        out = func(*args, **kwargs)
        self._guard(self._account, func, args, kwargs, out)
        return out

    def _guard(self, step: Callable[..., Any], func: Any, *rest: Any) -> Any:
        try:
            return step(func, *rest)
        except Exception as error:  # see the module's first lines
            self._gpu.faults.append(f"{func._overloadpacket}: {type(error).__name__}: {error}")
            return None

    def _from_device(self, func: Any, args: Any, kwargs: Any) -> tuple[Any] | None:
        """Operators whose result the host needs: wait, and make one up (zeros, "equal", "all selected")."""
        gpu, packet = self._gpu, func._overloadpacket
        source = args[1] if packet is aten.copy_ else args[0] if args else None
        if not isinstance(source, torch.Tensor) or not source.is_meta:
            return None
        if packet is aten._local_scalar_dense:
            gpu._copy(str(packet), "copy d2h", source, pinned=True, non_blocking=False)
            return (func(self._zero(source.dtype)),)
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
        if packet is aten.masked_select:
            with _disable_current_modes():
                out = torch.empty(source.numel(), dtype=source.dtype, device="meta")
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
        for tensor in on_host:
            if packet in (aten.index, aten.index_put_, aten.index_put, aten._index_put_impl_):
                gpu._copy(str(packet), "copy h2d", tensor, pinned=False, non_blocking=False)
            elif tensor.dim():  # a number in a CPU tensor travels as a kernel's argument
                gpu.faults.append(
                    f"{packet}: a CPU tensor of shape {tuple(tensor.shape)} among GPU tensors; CUDA raises "
                    "'Expected all tensors to be on the same device'. Move it first: t.to(gpu.device)"
                )
        result = next((t for t in cost.tensors(out) if t.is_meta), inputs[0] if inputs else None)
        gpu._launch(func, cost.work(func, args, kwargs, out), result.dtype if result is not None else None)
        if self._must_count(packet, args):
            gpu._sync(str(packet))  # the host must learn how many, to allocate the result

    @staticmethod
    def _must_count(packet: Any, args: Any) -> bool:
        """Whether the size of what is selected depends on values."""
        if packet in (aten.index, aten.index_put_, aten.index_put):
            masked = any(t.dtype in (torch.bool, torch.uint8) for t in cost.tensors(args[1:2]))
            # One number into a mask becomes masked_fill_, which need not count.
            return masked and (packet is aten.index or args[2].numel() != 1)
        return packet in (aten.nonzero, aten.masked_select)

    def _zero(self, dtype: torch.dtype) -> torch.Tensor:
        """A CPU zero, made unseen by any other mode that is counting."""
        if dtype not in self._zeros:
            with _disable_current_modes():
                self._zeros[dtype] = torch.zeros((), dtype=dtype)
        return self._zeros[dtype]


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
        if func is _plain_attention:
            return _attention(*args, **kwargs)
        pin, seen = kwargs.pop("pin_memory", None), len(gpu.kernels)
        out = func(*args, **kwargs)
        if pin and isinstance(out, torch.Tensor) and out.device.type == "cpu":
            gpu._pinned.add(out)
        made = func in (torch.tensor, torch.as_tensor, torch.asarray) and first is None and out.is_meta
        if made and len(gpu.kernels) == seen:  # from a list, which is copied without the dispatcher
            gpu._copy(f"torch.{func.__name__}", "copy h2d", out, pinned=False, non_blocking=False)
        return out


_plain_attention = torch.nn.functional.scaled_dot_product_attention


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """CUDA takes the flash kernel in 16 bits, the efficient one in 32; meta would take the slow path."""
    if not query.is_meta or attn_mask is not None or enable_gqa or query.dim() != 4:
        plain = _plain_attention
        return plain(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if query.dtype in (torch.float16, torch.bfloat16):
        flash = aten._scaled_dot_product_flash_attention
        return flash(query, key, value, dropout_p, is_causal, scale=scale)[0]
    efficient = aten._scaled_dot_product_efficient_attention
    needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    return efficient(query, key, value, None, needs_grad, dropout_p, is_causal, scale=scale)[0]


def cuda_defaults() -> ExitStack:
    """What CUDA tensors have and meta tensors lack; closing the stack puts everything back."""
    stack = ExitStack()
    # Also for nn.MultiheadAttention: inside PyTorch's own Python functions the function mode is off.
    functional = torch.nn.functional
    stack.enter_context(mock.patch.object(functional, "scaled_dot_product_attention", _attention))
    # nonzero() of unknown data: as many as there are elements.
    import torch.fx.experimental._config as config

    if hasattr(config, "meta_nonzero_assume_all_nonzero"):
        stack.enter_context(mock.patch.object(config, "meta_nonzero_assume_all_nonzero", True))
    # Optimizers and clip_grad_norm_ take their foreach versions by themselves on CUDA.
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    name = "_get_foreach_kernels_supported_devices"
    for module in (optimizer, _foreach_utils):
        if hasattr(module, name):
            devices = [*getattr(module, name)(), "meta"]
            stack.enter_context(mock.patch.object(module, name, lambda devices=devices: devices))
    return stack
