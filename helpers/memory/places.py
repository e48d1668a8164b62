"""Where a step is gone through without memory: the CPU's operators on fake tensors, or a simulated GPU."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from helpers.dispatch_mode import Mode

__all__ = ["Place", "place"]

_MOST = 1 << 28  # bytes of real memory, to learn the size of one workspace


@dataclass(frozen=True)
class Place:
    """kind: the type of device on which twins lie. autocast: whose lists apply. inside: for all but the optimizer."""

    kind: str
    autocast: str
    evidence: str
    inside: Callable[[], AbstractContextManager[Any]]

    def build(self, make: Callable[[], Any]) -> nn.Module:
        """The module that make() gives, without memory."""
        with torch.device(self.kind):
            made = make()
        if not isinstance(made, nn.Module):
            raise TypeError(
                f"estimate() takes a module or a function that makes one; this made a {type(made).__name__}"
            )
        return made


@contextmanager
def place(device: Any) -> Iterator[Place]:
    """The CPU ("cpu"), or the simulated GPU of that name. ValueError for others."""
    if str(device) == "cpu":
        from torch._subclasses.fake_tensor import FakeTensorMode

        fake = FakeTensorMode(allow_non_fake_inputs=True)

        @contextmanager
        def inside() -> Iterator[None]:
            with fake, _Workspaces():
                yield

        # Unseen by counts around it, which would take fake tensors for real ones.
        with _disable_current_modes(), torch.random.fork_rng(devices=[]), _quiet():
            yield Place("cpu", "cpu", "arithmetic", inside)
        return
    if str(device).startswith("cuda"):
        raise ValueError(f"device={str(device)!r}: say which card is simulated, e.g. 'H100'; or 'cpu'")
    from helpers.simulator import simulate

    with simulate(device, memory_bytes=1 << 50) as gpu:  # what does not fit is to be estimated too
        yield Place("meta", "cuda", gpu.evidence, ExitStack)


@contextmanager
def _quiet() -> Iterator[None]:
    """PyTorch logs a wrong shape, with a traceback, before it raises it."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


class _Workspaces(Mode):
    """Fills in what PyTorch's rules for shapes leave out: oneDNN's workspace of an LSTM, which backward needs."""

    _sizes: dict[Any, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.mkldnn_rnn_layer.default:
            *rest, workspace = out
            needed = self._workspace(func, args)
            out = (*rest, workspace.new_empty(needed))
        return out

    def _workspace(self, func: Any, args: tuple[Any, ...]) -> int:
        key = tuple((a.shape, a.dtype) if isinstance(a, torch.Tensor) else str(a) for a in args)
        if key not in self._sizes:
            sizes = [a.nbytes for a in args if isinstance(a, torch.Tensor)]
            if sum(sizes) > _MOST:
                warnings.warn("an LSTM's workspace is left out: its layer is too large to try", stacklevel=2)
                return 0
            with _disable_current_modes():
                real = [
                    torch.zeros(a.shape, dtype=a.dtype) if isinstance(a, torch.Tensor) else a for a in args
                ]
                self._sizes[key] = func(*real)[3].nbytes
        return self._sizes[key]
