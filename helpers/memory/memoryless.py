"""A training step without memory: devices on which tensors take none, and twins of modules, inputs and optimizers there."""

from __future__ import annotations

import copy
import inspect
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from helpers.pytorch import private_torch
from helpers.pytorch.dispatch_mode import Mode

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
        fake = private_torch.FakeTensorMode(allow_non_fake_inputs=True)

        @contextmanager
        def inside() -> Iterator[None]:
            with fake, _Workspaces():
                yield

        # Unseen by counts around it, which would take fake tensors for real ones.
        with private_torch.disable_current_modes(), torch.random.fork_rng(devices=[]), _quiet():
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
            with private_torch.disable_current_modes():
                real = [
                    torch.zeros(a.shape, dtype=a.dtype) if isinstance(a, torch.Tensor) else a for a in args
                ]
                self._sizes[key] = func(*real)[3].nbytes
        return self._sizes[key]


class Twins:
    """Makes twins on a device where tensors have no memory. Tensors that share a storage have twins that do.

    device: "meta", or with a fake mode on, "cpu".
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self._storages: dict[int, torch.Tensor] = {}
        # The originals are kept: ids stay theirs.
        self._tensors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The twin of one tensor; always the same one. NotImplementedError for tensors without a plain storage."""
        if id(tensor) in self._tensors:
            return self._tensors[id(tensor)][1]
        if tensor.layout is not torch.strided or hasattr(type(tensor), "__tensor_flatten__"):
            raise NotImplementedError(
                f"a {type(tensor).__name__} of layout {tensor.layout}: only plain dense tensors are modelled"
            )
        with torch.no_grad():
            twin = self._view(tensor)
        if isinstance(tensor, nn.Parameter):
            twin = nn.Parameter(twin, requires_grad=tensor.requires_grad)
        else:
            twin = twin.detach().requires_grad_(tensor.requires_grad)
        self._tensors[id(tensor)] = (tensor, twin)
        return twin

    def _view(self, tensor: torch.Tensor) -> torch.Tensor:
        storage, size = tensor.untyped_storage(), tensor.element_size()
        if storage._cdata not in self._storages:
            count = storage.nbytes() // size
            self._storages[storage._cdata] = torch.empty(count, dtype=tensor.dtype, device=self.device)
        whole = self._storages[storage._cdata]
        if whole.dtype is not tensor.dtype:
            whole = whole.view(torch.uint8).view(tensor.dtype)
        return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def module(self, module: nn.Module) -> nn.Module:
        """A copy of a module whose parameters and buffers are twins. The original is not touched."""
        memo: dict[int, Any] = {}
        for tensor in [*module.parameters(), *module.buffers()]:
            if getattr(tensor, "_post_accumulate_grad_hooks", None) or getattr(
                tensor, "_backward_hooks", None
            ):
                raise ValueError(
                    "a parameter has hooks, which act on that parameter and not on its copy: give a function that "
                    "builds the module and registers them, e.g. memory.estimate(build, inputs)"
                )
            memo[id(tensor)] = self.of(tensor)
        return copy.deepcopy(module, memo)

    def tree(self, tree: Any) -> Any:
        """Nested tuples, lists and dicts with twins in place of their tensors."""
        return private_torch.tree_map_only(torch.Tensor, self.of, tree)


def checkpointed(module: nn.Module, which: Any) -> list[str]:
    """Run the chosen submodules under torch.utils.checkpoint; returns their names.

    which: a class of module, or a function (name, module) → bool; None: none. What lies inside a chosen one is not
    chosen again. ValueError where nothing is chosen.
    """
    from torch.utils.checkpoint import checkpoint

    if which is None:
        return []
    parts = dict(module.named_modules())
    chooses = (lambda name, part: isinstance(part, which)) if isinstance(which, type) else which
    chosen = [name for name, part in parts.items() if chooses(name, part)]
    outer = [name for name in chosen if not any(name.startswith(f"{other}.") for other in chosen)]
    if not outer:
        raise ValueError(f"checkpoint={which!r} chooses none of the submodules: there are {_some(parts)}")
    for name in outer:
        part = parts[name]

        def forward(*args: Any, _run: Callable[..., Any] = part.forward, **kwargs: Any) -> Any:
            return checkpoint(_run, *args, use_reentrant=False, **kwargs)

        part.forward = forward  # type: ignore[method-assign]
    return outer


def optimizer_of(
    spec: Any, parameters: Iterable[nn.Parameter], twins: Twins, foreach: bool | None
) -> torch.optim.Optimizer | None:
    """An optimizer over the twins: by name ("adamw"), class, function of the parameters, or like an existing one."""
    if spec is None:
        return None
    extra = {} if foreach is None else {"foreach": foreach}
    if isinstance(spec, torch.optim.Optimizer):
        # Its twins exist: the module's copy was made before. A parameter of no module gets one here.
        groups = [g | extra | {"params": [twins.of(p) for p in g["params"]]} for g in spec.param_groups]
        known = inspect.signature(type(spec)).parameters
        made = type(spec)(groups, **{k: v for k, v in groups[0].items() if k in known and k != "params"})
    else:
        make = _optimizer_class(spec) if isinstance(spec, str) else spec
        if not callable(make):
            raise TypeError(
                f"optimizer={spec!r}: give a name such as 'adamw', a class, a function of the parameters, or an "
                "optimizer of the module"
            )
        made = make(list(parameters), **extra)
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(f"optimizer={spec!r} made a {type(made).__name__}, which is no torch.optim.Optimizer")
    return made


def _optimizer_class(name: str) -> Any:
    known = {kind.lower(): value for kind, value in vars(torch.optim).items() if isinstance(value, type)}
    base = torch.optim.Optimizer
    kinds = {kind: value for kind, value in known.items() if issubclass(value, base) and value is not base}
    if name.lower() not in kinds:
        raise ValueError(f"optimizer={name!r}: torch.optim has {', '.join(sorted(kinds))}")
    return kinds[name.lower()]


def _some(parts: dict[str, nn.Module]) -> str:
    names = [name for name in parts if name]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
