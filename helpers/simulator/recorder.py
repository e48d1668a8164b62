"""The true values of a graph: its operators, recorded at capture and run again at each replay.

While a graph is captured operators run, for their shapes, and are undone at its end: memory that was there
before gets its old bytes back, new memory holds NaN (integers: -1) until the first replay, and the random
numbers are put back. A replay runs the recorded operators again on the same storages, with the numbers that
Python had at capture. Storages of a graph stay alive as long as it does, also those that on a real GPU would
share their memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from helpers.simulator.cost import tensors

if TYPE_CHECKING:
    from helpers.simulator.values import Values

__all__ = ["Recorder", "map_leaves"]


def map_leaves(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The same nest of tuples, lists and dicts with every leaf changed."""
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_leaves(x, change) for x in tree) if type(tree) in (list, tuple) else tree
    if isinstance(tree, dict):
        return {k: map_leaves(v, change) for k, v in tree.items()}
    return change(tree)


class Recorder:
    """The operators of one graph. Made at its capture's beginning."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._known: set[int] = set()
        self._before: list[tuple[torch.UntypedStorage, torch.UntypedStorage]] = []  # (memory, its old bytes)
        self._fresh: list[tuple[torch.UntypedStorage, bool]] = []  # (memory, whether it holds bools)
        self._steps: list[tuple[Any, Any, Any, list[tuple[Any, torch.Tensor]]]] = []
        self._generators = {id(torch.default_generator): torch.default_generator}
        self._states = {id(torch.default_generator): torch.default_generator.get_state()}

    def before(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator is about to run: keep the old bytes of what it may change, and its arguments."""
        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
            for tensor in tensors([args, kwargs]):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._known and not self._values.on_host(tensor):
                    self._known.add(storage._cdata)
                    self._before.append((storage, storage.clone()))
            for value in kwargs.values():
                if isinstance(value, torch.Generator) and id(value) not in self._states:
                    self._generators[id(value)], self._states[id(value)] = value, value.get_state()
            return func, map_leaves(args, self._argument), map_leaves(kwargs, self._argument)

    def _argument(self, leaf: Any) -> Any:
        """What the graph keeps of an argument: a tensor's address, a number's value."""
        if not isinstance(leaf, torch.Tensor):
            return leaf
        storage = leaf.untyped_storage()
        if storage._cdata in self._values.host:
            return leaf.detach().clone()  # travels as a kernel's argument: its value now
        return leaf.data

    def after(self, note: Any, out: Any, launched: bool) -> None:
        """It ran. Only what launched a kernel is part of the graph."""
        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
            results = [out] if isinstance(out, torch.Tensor) else list(out or ()) if launched else []
            new: list[tuple[Any, torch.Tensor]] = []
            for tensor in tensors(out):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._known:
                    self._known.add(storage._cdata)
                    self._fresh.append((storage, tensor.dtype == torch.bool))
            arguments = {t.untyped_storage()._cdata for t in tensors([note[1], note[2]])}
            for path, tensor in _leaves(results):
                if tensor.untyped_storage()._cdata not in arguments:
                    new.append((path, tensor.data))
            if launched:
                self._steps.append((*note, new))

    def end(self) -> None:
        """Nothing has happened: old memory as it was, new memory unwritten."""
        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
            for storage, saved in self._before:
                storage.copy_(saved)
            for storage, holds_bools in self._fresh:
                # Bytes of ones: NaN in every float format, -1 in signed integers.
                _bytes(storage).fill_(0 if holds_bools else 255)
            for key, generator in self._generators.items():
                generator.set_state(self._states[key])
        self._before, self._fresh = [], []

    def replay(self) -> None:
        """Run the recorded operators again."""
        guards = (torch.no_grad(), torch._C.DisableTorchFunction(), torch._C._DisableAutocast())
        with _disable_current_modes(), guards[0], guards[1], guards[2]:
            for func, args, kwargs, new in self._steps:
                out = func(*args, **kwargs)
                results = [out] if isinstance(out, torch.Tensor) else out
                for path, target in new:
                    target.copy_(_at(results, path))


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))  # type: ignore[call-overload]


def _leaves(results: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], torch.Tensor]]:
    for i, item in enumerate(results):
        if isinstance(item, torch.Tensor):
            yield (*path, i), item
        elif isinstance(item, (list, tuple)):
            yield from _leaves(item, (*path, i))


def _at(results: Any, path: tuple[int, ...]) -> torch.Tensor:
    for i in path:
        results = results[i]
    return results  # type: ignore[no-any-return]
