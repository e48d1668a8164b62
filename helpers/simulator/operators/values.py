"""simulate(..., values=True): operators run on CPU tensors for real and are timed as if on the GPU.

`gpu.device` is the CPU. Each storage has a shadow on `meta`, and everything that the simulator does (time,
copies, memory, races) it does with the shadows. Every tensor counts as on the GPU, except pinned memory, what
`.cpu()` returns, and numbers made without a device (`torch.tensor(2.0)`): those are the host's, like the
results of operators on nothing but them.

Autocast is the CPU's in this mode: use it on meta.

While a graph is captured operators run, for their shapes, and are undone at its end: memory that was there
before gets its old bytes back, new memory holds NaN (integers: -1) until the first replay, and the random
numbers are put back. A replay runs the recorded operators again on the same storages, with the numbers that
Python had at capture. What was made in the capture stays alive as long as the graph, also storages that on a real GPU
would share their memory. What was made outside does not: where it is gone, a replay finds NaN, and that is a fault.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from helpers.pytorch import private_torch
from helpers.pytorch.attention_on_cpu import ATTENTION
from helpers.pytorch.dispatch_mode import CallMode, Unseen
from helpers.pytorch.tensors import tensors
from helpers.simulator.machine import Machine, Storages
from helpers.simulator.operators import shapes
from helpers.simulator.operators.calls import copy_lists, puts_number
from helpers.simulator.operators.cuda_kernels import plain_attention
from helpers.simulator.operators.dispatch import Dispatch
from helpers.simulator.operators.shapes import map_leaves

if TYPE_CHECKING:
    from helpers.simulator.world.traffic import Traffic
    from helpers.simulator.written.profile import Notes

aten = torch.ops.aten


_META = torch.device("meta")
_MOST = 64  # tensors of one storage that are kept


class _Shadow:
    """Memory on meta, and the tensors in it that were asked for: the same few come with every step."""

    def __init__(self, nbytes: int) -> None:
        with Unseen():
            self.storage = torch.empty(nbytes, dtype=torch.uint8, device=_META).untyped_storage()
        self._tensors: dict[Any, torch.Tensor] = {}

    def tensor(self, like: torch.Tensor) -> torch.Tensor:
        geometry = like.dtype, like.storage_offset(), like.shape, like.stride()
        kept = self._tensors.get(geometry)
        if kept is None:
            if len(self._tensors) == _MOST:
                self._tensors.clear()
            with Unseen(), torch.no_grad():
                flat = torch.empty(0, dtype=like.dtype, device=_META)
                kept = flat.set_(self.storage, *geometry[1:])  # type: ignore[call-overload]
            self._tensors[geometry] = kept
        return kept


class Values:
    """Shadows of storages, and which tensors are the host's."""

    def __init__(self, machine: Machine) -> None:
        self._pinned = machine.pinned
        self._shadows: dict[int, _Shadow] = {}
        self.host = Storages()  # ordinary host memory
        machine.seen, machine.on_host, machine.recorder = self.shadow, self.on_host, self.recorder

    def on_host(self, tensor: torch.Tensor) -> bool:
        try:
            return tensor in self.host or tensor in self._pinned
        except NotImplementedError:  # vmap's and grad's wrappers have no memory of their own; sparse tensors
            return tensor.layout is not torch.strided

    def shadow(self, tree: Any) -> Any:
        """The same arguments as the GPU would see them: meta tensors for those on it."""
        with private_torch.DisableTorchFunction():
            return map_leaves(tree, self._one)

    def _one(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return _META if isinstance(leaf, torch.device) and leaf.type == "cpu" else leaf
        if leaf.device.type != "cpu" or self.on_host(leaf):
            return leaf
        storage = leaf.untyped_storage()
        shadow = self._shadows.get(storage._cdata)
        if shadow is None or shadow.storage.nbytes() != storage.nbytes():
            if shadow is None:
                weakref.finalize(storage, self._shadows.pop, storage._cdata, None).atexit = False
            shadow = self._shadows[storage._cdata] = _Shadow(storage.nbytes())
        return shadow.tensor(leaf)

    def recorder(self) -> Recorder:
        """For a capture that begins."""
        return Recorder(self)


class ValueDispatch(Dispatch):
    """Every operator for real, and its shadow on the simulated GPU."""

    def __init__(self, values: Values, machine: Machine, notes: Notes, traffic: Traffic | None) -> None:
        super().__init__(machine, notes, traffic)
        self.values = values

    def run(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, tuple[Any, Any, Any]]:
        """One operator: (result, what the shadow saw)."""
        machine, values, inputs = self.machine, self.values, list(tensors([args, kwargs]))
        if inputs and all(values.on_host(t) for t in inputs):
            out = func(*args, **kwargs)
            for tensor in tensors(out):
                if not values.on_host(tensor):
                    values.host.add(tensor)
            return out, (args, kwargs, out)
        capture = machine.current.capture
        note = self.guard(capture.values.before, func, args, kwargs) if capture is not None else None
        like = self.guard(self._shadowed, func, (args, kwargs))
        if like is None:
            out = func(*args, **kwargs)
            return out, (args, kwargs, out)
        started = machine.line.started
        answered = None
        if func._overloadpacket is not aten.masked_select:
            with Unseen():  # the shadow's answer is thrown away: nobody else is to count it
                answered = self.guard(self.answer, func, *like)
        try:
            out = _for_real(func)(*args, **kwargs)
        except (
            Exception
        ):  # of the CPU's kernel, whose text may tell values: a program that reads on has waited for them
            self.guard(lambda func: machine.sync(f"an error of {func._overloadpacket}"), func)
            raise
        if answered is not None:
            return out, (*like, None)
        result = self.guard(self._shadowed, func, out)
        self.guard(machine.memory.produced, func, *like, result)
        self.guard(self.account, func, *like, result)
        if note is not None:
            capture.values.after(note, out, machine.line.started != started)
        return out, (*like, result)

    def _shadowed(self, func: Any, tree: Any) -> Any:
        return self.values.shadow(tree)


class ValueCalls(CallMode):
    """Calls that go between host and GPU, which on CPU tensors never reach the dispatcher."""

    def __init__(self, mode: ValueDispatch) -> None:
        super().__init__()
        self._mode, self._machine, self._values = mode, mode.machine, mode.values

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, machine, values, T = dict(kwargs or {}), self._machine, self._values, torch.Tensor
        if func is plain_attention:
            # what stands there now: the card's (`calls.stand_ins`)
            return torch.nn.functional.scaled_dot_product_attention(*args, **kwargs)
        first = args[0] if args and isinstance(args[0], T) and args[0].device.type == "cpu" else None
        if first is None:
            device, pin = kwargs.get("device"), kwargs.pop("pin_memory", None)
            out = func(*args, **kwargs)
            if isinstance(out, T):
                if pin:
                    machine.pinned.add(out)
                elif func in (torch.tensor, torch.as_tensor, torch.asarray):
                    if device is not None and device != "cpu":  # the text "cpu" means the host
                        machine.copy(f"torch.{func.__name__}", "copy h2d", values.shadow(out), False, False)
                    elif not out.dim():
                        values.host.add(out)
            return out
        on_host = values.on_host(first)
        if func == T.is_cpu.__get__:  # type: ignore[attr-defined]
            return on_host
        if func is T.is_pinned:
            return first in machine.pinned
        if func is T.pin_memory:
            return machine.pin(first)
        if func not in (T.to, T.cuda) and not {"device", "pin_memory"}.isdisjoint(kwargs):  # empty_like, …
            device, pin = kwargs.get("device"), kwargs.pop("pin_memory", None)
            out = func(*args, **kwargs)
            if isinstance(out, T) and (pin or device == "cpu"):
                return machine.pinned.add(out) if pin else values.host.add(out)
            if isinstance(out, T) and device is not None:
                values.host.discard(out)
            return out
        if func is T.to and _names_host(args, kwargs):
            return self._to_host(first, on_host, args, kwargs)
        if func in (T.to, T.cuda) and on_host:
            parsed: Any = private_torch.parse_to(*args[1:], **_without(kwargs, "copy"))
            device, dtype, non_blocking, _ = parsed
            if device is not None or func is T.cuda:
                target = torch.empty(first.shape, dtype=dtype or first.dtype, device=machine.device)
                return target.copy_(first, non_blocking=non_blocking)
        # NumPy takes a tensor by either of the last two; a real GPU's it refuses
        if func in (T.cpu, T.tolist, T.numpy, T.__array__, T.__dlpack__) and not on_host:
            machine.copy(f"Tensor.{func.__name__}", "copy d2h", values.shadow(first), False, False)
            if func is T.cpu:
                with Unseen():
                    return values.host.add(torch.Tensor.clone(first))
        elif func in (T.tolist, T.numpy, T.__repr__):
            machine.races.host_touch(f"Tensor.{func.__name__}", first, False)
        if func is T.__repr__ and not on_host:
            machine.sync("print")
        if not on_host:
            copy_lists(machine, func, args)
        self._mode.puts_number = puts_number(func, args)
        try:
            return func(*args, **kwargs)
        finally:
            self._mode.puts_number = False

    def _to_host(self, tensor: torch.Tensor, on_host: bool, args: Any, kwargs: dict[str, Any]) -> Any:
        """tensor.to("cpu", …): as `.cpu()`; with a dtype, converted where it is and then copied."""
        machine, values = self._machine, self._values
        parsed: Any = private_torch.parse_to(*args[1:], **_without(kwargs, "copy"))
        _, dtype, non_blocking, _ = parsed
        found = tensor if dtype is None or dtype == tensor.dtype else tensor.to(dtype)
        if on_host:
            return found.clone() if found is tensor and kwargs.get("copy") else found
        # With non_blocking PyTorch takes a pinned target, and hands it out before the bytes have arrived.
        shadow = values.shadow(found)
        machine.copy("aten._to_copy", "copy d2h", shadow, bool(non_blocking), bool(non_blocking))
        with Unseen():
            out = torch.Tensor.clone(found)
        if not non_blocking:
            return values.host.add(out)
        machine.pinned.add(out)
        machine.races.operator(machine.current.number, torch.ops.aten._to_copy.default, (shadow,), {}, out)
        return out


def _names_host(args: Any, kwargs: Any) -> bool:
    """Whether .to() is asked for "cpu": that text means the host, while gpu.device is torch.device("cpu")."""
    asked = kwargs.get("device", args[1] if len(args) > 1 else None)
    return isinstance(asked, str) and asked.partition(":")[0] == "cpu"


def _without(kwargs: dict[str, Any], *names: str) -> dict[str, Any]:
    return {k: v for k, v in kwargs.items() if k not in names}


class _Address:
    """Where a tensor lies, as a graph keeps it. The tensor may go: then what is read there is NaN (a real GPU reads what
    the next owner of the memory wrote). The graph's replay says so."""

    __slots__ = ("_geometry", "_grave", "_nbytes", "_storage")

    def __init__(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self._storage, self._nbytes = weakref.ref(storage), storage.nbytes()
        self._grave: torch.UntypedStorage | None = None  # in its place, when it is gone
        self._geometry = tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()

    def tensor(self) -> torch.Tensor:
        storage = self._storage() or self._grave
        if storage is None:
            storage = self._grave = _unwritten(torch.UntypedStorage(self._nbytes), self._geometry[0])
        dtype, *geometry = self._geometry
        return torch.empty(0, dtype=dtype).set_(storage, *geometry)  # type: ignore[call-overload]


class Recorder:
    """The operators of one graph. Made at its capture's beginning."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._known: set[int] = set()
        self._own: set[int] = set()  # storages made in the capture: they live as long as the graph
        self._before: list[tuple[torch.UntypedStorage, torch.UntypedStorage]] = []  # (memory, its old bytes)
        self._fresh: list[tuple[torch.UntypedStorage, torch.dtype]] = []  # (memory, what it holds)
        self._steps: list[tuple[Any, Any, Any, list[tuple[int, torch.Tensor]]]] = []
        self._generators = {id(torch.default_generator): torch.default_generator}
        self._states = {id(torch.default_generator): torch.default_generator.get_state()}

    def before(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator is about to run: keep the old bytes of what it may change, and its arguments."""
        with Unseen(), private_torch.DisableTorchFunction(), torch.no_grad():
            for tensor in tensors([args, kwargs]):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._known and not self._values.on_host(tensor):
                    self._known.add(storage._cdata)
                    self._before.append((storage, storage.clone()))
            for value in kwargs.values():
                if isinstance(value, torch.Generator) and id(value) not in self._states:
                    self._generators[id(value)], self._states[id(value)] = value, value.get_state()
            passed = {tensor.untyped_storage()._cdata for tensor in tensors([args, kwargs])}
            return (func, map_leaves(args, self._argument), map_leaves(kwargs, self._argument)), passed

    def _argument(self, leaf: Any) -> Any:
        """What the graph keeps of an argument: a tensor's address, a number's value."""
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf in self._values.host:
            return leaf.detach().clone()  # travels as a kernel's argument: its value now
        if leaf.untyped_storage()._cdata in self._own or leaf.is_conj() or leaf.is_neg():
            return leaf.data
        return _Address(leaf)

    def after(self, note: Any, out: Any, launched: bool) -> None:
        """It ran. Only what launched a kernel is part of the graph."""
        step, passed = note
        with Unseen(), private_torch.DisableTorchFunction(), torch.no_grad():
            for tensor in tensors(out):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._known:
                    self._known.add(storage._cdata)
                    self._own.add(storage._cdata)
                    self._fresh.append((storage, tensor.dtype))
            if launched:
                new = [
                    (i, result.data)
                    for i, result in enumerate(tensors(out))
                    if result.untyped_storage()._cdata not in passed
                ]
                self._steps.append((*step, new))

    def end(self) -> None:
        """Nothing has happened: old memory as it was, new memory unwritten."""
        with Unseen(), private_torch.DisableTorchFunction(), torch.no_grad():
            for storage, saved in self._before:
                storage.copy_(saved)
            for storage, dtype in self._fresh:
                _unwritten(storage, dtype)
            for key, generator in self._generators.items():
                generator.set_state(self._states[key])
        self._before, self._fresh = [], []

    def replay(self) -> None:
        """Run the recorded operators again."""
        guards = (torch.no_grad(), private_torch.DisableTorchFunction(), private_torch.DisableAutocast())
        with Unseen(), guards[0], guards[1], guards[2]:
            for func, args, kwargs, new in self._steps:
                out = _for_real(func)(*map_leaves(args, _found), **map_leaves(kwargs, _found))
                results = tensors(out)
                for i, target in new:
                    target.copy_(results[i])


def _for_real(func: Any) -> Callable[..., Any]:
    """The operator, or what stands for it on a CPU."""
    on_cpu = ATTENTION.get(func._overloadpacket)
    if on_cpu is None:
        return func  # type: ignore[no-any-return]

    def complete(*args: Any, **kwargs: Any) -> Any:
        """Its results as the card's kernel lays them, with those that only a GPU's has, as random states: zeros."""
        found = on_cpu(*args, **kwargs)
        with Unseen(), torch.no_grad():
            on_meta = lambda leaf: leaf.to(_META) if isinstance(leaf, torch.Tensor) else leaf  # noqa: E731
            like = shapes.run(func, map_leaves(args, on_meta), map_leaves(kwargs, on_meta))
            return tuple(_laid_as(*pair) for pair in zip(like, found, strict=True))

    return complete


def _laid_as(like: Any, found: torch.Tensor | None) -> Any:
    if not isinstance(like, torch.Tensor):
        return like
    if found is not None and found.stride() == like.stride():
        return found
    laid = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
    return laid.zero_() if found is None else laid.copy_(found)


def _found(leaf: Any) -> Any:
    return leaf.tensor() if isinstance(leaf, _Address) else leaf


def _unwritten(storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.UntypedStorage:
    """Bytes of ones, NaN in every float format and -1 in signed integers; a bool has no such byte."""
    flat = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))  # type: ignore[call-overload]
    flat.fill_(0 if dtype == torch.bool else 255)
    return storage
