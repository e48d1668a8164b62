"""simulate(..., values=True): operators run on CPU tensors for real and are timed as if on the GPU.

`gpu.device` is the CPU. Each storage has a shadow on `meta`, and everything that the simulator does (time,
copies, memory, races) it does with the shadows. Every tensor counts as on the GPU, except pinned memory, what
`.cpu()` returns, and numbers made without a device (`torch.tensor(2.0)`): those are the host's, like the
results of operators on nothing but them.

Autocast is the CPU's in this mode: use it on meta.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from helpers.simulator.cost import tensors
from helpers.simulator.modes import puts_number
from helpers.simulator.recorder import Recorder, map_leaves

if TYPE_CHECKING:
    from helpers.simulator.dispatch import Dispatch
    from helpers.simulator.gpu import SimGPU

__all__ = ["ValueCalls", "Values"]

aten = torch.ops.aten


class Values:
    """Shadows of storages, and which tensors are the host's."""

    def __init__(self, gpu: SimGPU) -> None:
        self._gpu = gpu
        self._shadows: dict[int, torch.UntypedStorage] = {}
        self.host: set[int] = set()  # storages of ordinary host memory

    def on_host(self, tensor: torch.Tensor) -> bool:
        try:
            return tensor.untyped_storage()._cdata in self.host or tensor in self._gpu._pinned
        except NotImplementedError:  # vmap's and grad's wrappers have no memory of their own; sparse tensors
            return tensor.layout is not torch.strided

    def keep_on_host(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.host:
            self.host.add(storage._cdata)
            weakref.finalize(storage, self.host.discard, storage._cdata).atexit = False
        return tensor

    def shadow(self, tree: Any) -> Any:
        """The same arguments as the GPU would see them: meta tensors for those on it."""
        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
            return map_leaves(tree, self._one)

    def _shadowed(self, func: Any, tree: Any) -> Any:
        return self.shadow(tree)

    def _one(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.device) and leaf.type == "cpu":
            return torch.device("meta")
        if not isinstance(leaf, torch.Tensor) or leaf.device.type != "cpu" or self.on_host(leaf):
            return leaf
        storage = leaf.untyped_storage()
        known = self._shadows.get(storage._cdata)
        if known is None or known.nbytes() != storage.nbytes():
            fresh = known is None
            known = torch.empty(storage.nbytes(), dtype=torch.uint8, device="meta").untyped_storage()
            self._shadows[storage._cdata] = known
            if fresh:
                weakref.finalize(storage, self._shadows.pop, storage._cdata, None).atexit = False
        flat = torch.empty(0, dtype=leaf.dtype, device="meta")
        return flat.set_(known, leaf.storage_offset(), leaf.shape, leaf.stride())  # type: ignore[call-overload]

    def run(self, mode: Dispatch, func: Any, args: Any, kwargs: Any) -> tuple[Any, tuple[Any, Any, Any]]:
        """One operator: for real, and its shadow on the simulated GPU. (result, what the shadow saw)"""
        gpu, inputs = self._gpu, list(tensors([args, kwargs]))
        if inputs and all(self.on_host(t) for t in inputs):
            out = func(*args, **kwargs)
            for tensor in tensors(out):
                if not self.on_host(tensor):
                    self.keep_on_host(tensor)
            return out, (args, kwargs, out)
        capture = gpu._current._lane.capture
        note = mode._guard(capture.values.before, func, args, kwargs) if capture is not None else None
        like = mode._guard(self._shadowed, func, (args, kwargs))
        if like is None:
            out = func(*args, **kwargs)
            return out, (args, kwargs, out)
        started = gpu._timeline.started
        answered = None
        if func._overloadpacket is not aten.masked_select:
            with _disable_current_modes():  # the shadow's answer is thrown away: nobody else is to count it
                answered = mode._guard(mode._from_device, func, *like)
        out = func(*args, **kwargs)
        if answered is not None:
            return out, (*like, None)
        result = mode._guard(self._shadowed, func, out)
        mode._guard(gpu._memory.produced, func, *like, result)
        mode._guard(mode._account, func, *like, result)
        if note is not None:
            capture.values.after(note, out, gpu._timeline.started != started)
        return out, (*like, result)

    def recorder(self) -> Recorder:
        """For a capture that begins."""
        return Recorder(self)


class ValueCalls(TorchFunctionMode):
    """Calls that go between host and GPU, which on CPU tensors never reach the dispatcher."""

    def __init__(self, gpu: SimGPU) -> None:
        super().__init__()
        self._gpu = gpu

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, gpu, T = dict(kwargs or {}), self._gpu, torch.Tensor
        values = gpu._values
        assert values is not None
        first = args[0] if args and isinstance(args[0], T) and args[0].device.type == "cpu" else None
        if first is None:
            device, pin = kwargs.get("device"), kwargs.pop("pin_memory", None)
            out = func(*args, **kwargs)
            if isinstance(out, T):
                if pin:
                    gpu._pinned.add(out)
                elif func in (torch.tensor, torch.as_tensor, torch.asarray):
                    if device is not None and device != "cpu":  # the text "cpu" means the host
                        gpu._copy(f"torch.{func.__name__}", "copy h2d", values.shadow(out), False, False)
                    elif not out.dim():
                        values.keep_on_host(out)
            return out
        on_host = values.on_host(first)
        if func == T.is_cpu.__get__:  # type: ignore[attr-defined]
            return on_host
        if func is T.is_pinned:
            return first in gpu._pinned
        if func is T.pin_memory:
            if first in gpu._pinned:
                return first
            a = gpu.card.assumptions
            gpu._timeline.spend("pin_memory", "work", first.nbytes / a.pageable_bytes_per_s)
            return gpu._pinned.add(first.clone())
        if func not in (T.to, T.cuda) and not {"device", "pin_memory"}.isdisjoint(kwargs):  # empty_like, …
            device, pin = kwargs.get("device"), kwargs.pop("pin_memory", None)
            out = func(*args, **kwargs)
            if isinstance(out, T) and (pin or device == "cpu"):
                return gpu._pinned.add(out) if pin else values.keep_on_host(out)
            if isinstance(out, T) and device is not None:
                values.host.discard(out.untyped_storage()._cdata)
            return out
        if func is T.to and _names_host(args, kwargs):
            return self._to_host(first, on_host, args, kwargs)
        if func in (T.to, T.cuda) and on_host:
            parsed: Any = torch._C._nn._parse_to(*args[1:], **_without(kwargs, "copy"))
            device, dtype, non_blocking, _ = parsed
            if device is not None or func is T.cuda:
                target = torch.empty(first.shape, dtype=dtype or first.dtype, device=gpu.device)
                return target.copy_(first, non_blocking=non_blocking)
        if func in (T.cpu, T.tolist, T.numpy) and not on_host:
            gpu._copy(f"Tensor.{func.__name__}", "copy d2h", values.shadow(first), False, False)
            if func is T.cpu:
                with _disable_current_modes():
                    return values.keep_on_host(first.clone())
        elif func in (T.tolist, T.numpy, T.__repr__):
            gpu._timeline.races.host_touch(f"Tensor.{func.__name__}", first, False)
        if func is T.__repr__ and not on_host:
            gpu._sync("print")
        gpu._puts_number = puts_number(func, args)
        try:
            return func(*args, **kwargs)
        finally:
            gpu._puts_number = False

    def _to_host(self, tensor: torch.Tensor, on_host: bool, args: Any, kwargs: dict[str, Any]) -> Any:
        """tensor.to("cpu", …): as `.cpu()`; with a dtype, converted where it is and then copied."""
        gpu, values = self._gpu, self._gpu._values
        assert values is not None
        parsed: Any = torch._C._nn._parse_to(*args[1:], **_without(kwargs, "copy"))
        _, dtype, non_blocking, _ = parsed
        found = tensor if dtype is None or dtype == tensor.dtype else tensor.to(dtype)
        if on_host:
            return found.clone() if found is tensor and kwargs.get("copy") else found
        # With non_blocking PyTorch takes a pinned target, and hands it out before the bytes have arrived.
        shadow = values.shadow(found)
        gpu._copy("aten._to_copy", "copy d2h", shadow, bool(non_blocking), bool(non_blocking))
        with _disable_current_modes():
            out = found.clone()
        if not non_blocking:
            return values.keep_on_host(out)
        gpu._pinned.add(out)
        gpu._timeline.races.operator(
            gpu._current._lane.number, torch.ops.aten._to_copy.default, (shadow,), {}, out
        )
        return out


def _names_host(args: Any, kwargs: Any) -> bool:
    """Whether .to() is asked for "cpu": that text means the host, while gpu.device is torch.device("cpu")."""
    asked = kwargs.get("device", args[1] if len(args) > 1 else None)
    return isinstance(asked, str) and asked.partition(":")[0] == "cpu"


def _without(kwargs: dict[str, Any], *names: str) -> dict[str, Any]:
    return {k: v for k, v in kwargs.items() if k not in names}
