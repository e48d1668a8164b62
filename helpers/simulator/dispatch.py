"""Around the modes of `modes`: the stream of backward passes, races, and true values."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from helpers.simulator import modes
from helpers.simulator.sharded import copies

__all__ = ["Calls", "Dispatch"]

# Reads of CPU tensors that the dispatcher does not see; by name, since helpers.count puts stand-ins in their place.
_COPY = torch.ops.aten.copy_.default
_READS = ("tolist", "numpy", "__array__", "__repr__")


class Dispatch(modes.Operators):
    """Every aten operator: what `modes.Operators` does, and who touched which memory."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, gpu = kwargs or {}, self._gpu
        if types and any(kind.__name__ == "FakeTensor" for kind in types):
            return func(*args, **kwargs)  # somebody works out shapes, as DTensor does
        if types and any(_unwraps(kind) for kind in types):
            return NotImplemented  # nested tensors and the like: what is inside comes back here
        if func.namespace in ("c10d", "_c10d_functional") and gpu._traffic is not None:
            return gpu._traffic.call(func, args, kwargs)
        if func.namespace == "fsdp":
            with self:
                out = copies(func, args, kwargs)
            if out is not NotImplemented:
                return out
        if func.namespace != "aten":
            return super().__torch_dispatch__(func, types, args, kwargs)
        if gpu._traffic is not None:
            if gpu._traffic.reducing:
                gpu._traffic.reduced()
            if func is _COPY and (same := gpu._traffic.comes_back(args)) is not None:
                out = self._any(func, types, args, kwargs)
                with _disable_current_modes():
                    args[0].copy_(same)
                return out
        return self._any(func, types, args, kwargs)

    def _any(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        gpu = self._gpu
        if _composite(func):  # these arrive whole only in inference mode: take them apart, as elsewhere
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        backward, started = gpu._backward, gpu._timeline.started
        before = self._guard(backward.enter, func, args, kwargs) if backward.several else None
        if before is None:
            return self._run(func, types, args, kwargs)
        out = None
        try:
            out = self._run(func, types, args, kwargs)
        finally:
            launched = gpu._timeline.started != started
            self._guard(backward.leave, func, before, launched, args, kwargs, out)
            gpu._current = before
        return out

    def _run(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        gpu, line = self._gpu, self._gpu._timeline
        started = line.started
        if gpu._values is None:
            out = super().__torch_dispatch__(func, types, args, kwargs)
            seen = args, kwargs, out
        else:
            out, seen = gpu._values.run(self, func, args, kwargs)
        if line.started != started:
            self._guard(self._touched, func, *seen)
        else:
            self._guard(line.races.on_host, func, *seen)
        return out

    def _touched(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        self._gpu._timeline.races.operator(self._gpu._current._lane.number, func, args, kwargs, out)


@cache
def _composite(func: Any) -> bool:
    """Whether it is made of other operators only."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return has_kernel(func.name(), "CompositeImplicitAutograd") and not has_kernel(func.name(), "Meta")


def _unwraps(kind: type) -> bool:
    """A tensor subclass that does its own dispatch on the tensors it holds."""
    plain = torch._C._disabled_torch_dispatch_impl
    return kind is not torch.Tensor and getattr(kind, "__torch_dispatch__", plain) is not plain


class Calls(modes.Calls):
    """What `modes.Calls` does, and reads of host memory that never reach the dispatcher."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _READS and args and isinstance(args[0], torch.Tensor) and args[0].device.type == "cpu":
            self._gpu._timeline.races.host_touch(f"Tensor.{name}", args[0], False)
        return super().__torch_function__(func, types, args, kwargs)
