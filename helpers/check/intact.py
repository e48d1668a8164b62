"""Whether the course's own code, and what it calls of PyTorch, are still what they were before a submission ran.

    before = Intact()
    …                    # cells of a stranger
    before.changed()     # "" or "helpers.counters.counts.Counts.as_dict"

The screen refuses most ways to replace a function that counts or compares. Here it is told whichever way was found.
"""

import inspect
import sys
from collections.abc import Iterator
from operator import is_
from types import FunctionType, ModuleType
from typing import Any

import torch

from helpers import private_torch

_MODULES = """builtins base64 contextlib copy gc inspect io json json.decoder json.encoder linecache random socket struct
traceback warnings weakref torch torch.autograd torch.nn.functional torch.utils.dlpack""".split()
_CLASSES = (torch.Tensor, torch.UntypedStorage, torch.nn.Parameter)
#: `helpers.dispatch_mode.Mode.hide_from_dynamo` wraps it, where torch._dynamo has been loaded meanwhile
_WRAPPED = "__torch_dispatch__"


class Intact:
    """What functions, classes and modules there are now, to be compared with what there are later."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, Any, dict[str, Any]]] = []
        self._inherited: list[tuple[str, type, set[str]]] = []
        self._inside: list[tuple[str, FunctionType, tuple[Any, ...]]] = []
        classes = dict.fromkeys([*_CLASSES, private_torch.TorchDispatchMode])
        for name, module in list(sys.modules.items()):
            if name in _MODULES or name.partition(".")[0] == "helpers" and isinstance(module, ModuleType):
                self._keep(name, module)
                classes |= dict.fromkeys(
                    kind
                    for kind in vars(module).values()
                    if inspect.isclass(kind) and kind.__module__ == name
                )
        for kind in classes:
            name = f"{kind.__module__}.{kind.__qualname__}"
            self._keep(name, kind)
            self._inherited.append((name, kind, set(dir(kind)) - vars(kind).keys() - {_WRAPPED}))
        self._keys = self._excluded()

    def _keep(self, name: str, owner: Any) -> None:
        held = {key: value for key, value in vars(owner).items() if _is_code(value) and key != _WRAPPED}
        self._kept.append((name, owner, held))
        self._inside += [
            (f"{name}.{key}", value, _inside(value))
            for key, value in held.items()
            if isinstance(value, FunctionType)
        ]

    def changed(self) -> str:
        """The name of the first that is another now; "" if all are the same. A dispatch mode left on is told, too."""
        if private_torch.modes_on():
            return "what operators do (a dispatch mode was entered and not left)"
        if self._excluded() != self._keys:
            return "what operators do (a dispatch key was excluded)"
        return next(self._changes(), "")

    def _changes(self) -> Iterator[str]:
        for name, owner, held in self._kept:
            now = vars(owner)
            if not all(map(is_, map(now.get, held), held.values())):
                yield from (f"`{name}.{key}`" for key, value in held.items() if now.get(key) is not value)
        for name, kind, inherited in self._inherited:
            if not inherited.isdisjoint(vars(kind)):
                yield f"`{name}.{min(inherited & vars(kind).keys())}`"
        for name, function, was in self._inside:
            if any(one is not other for one, other in zip(_inside(function), was, strict=True)):
                yield f"the inside of `{name}`"

    @staticmethod
    def _excluded() -> Any:
        return private_torch.excluded_keys().raw_repr()


def _is_code(value: Any) -> bool:
    return callable(value) or isinstance(value, ModuleType) or hasattr(type(value), "__get__")


def _inside(function: FunctionType) -> tuple[Any, ...]:
    return function.__code__, function.__defaults__, function.__kwdefaults__
