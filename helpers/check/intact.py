"""Whether the course's own code, and what it calls of PyTorch, are still what they were before a submission ran.

    before = Intact()
    …                    # cells of a stranger
    before.changed()     # "" or "helpers.counters.counts.Counts.as_dict"

The screen refuses most ways to replace a function that counts or compares. Here it is told whichever way was found.
"""

import inspect
import sys
from collections.abc import Iterator
from operator import attrgetter, is_
from types import FunctionType, ModuleType
from typing import Any

import torch

from helpers.pytorch import private_torch

_MODULES = """builtins base64 contextlib copy gc inspect io json json.decoder json.encoder linecache random socket struct
traceback warnings weakref torch torch.autograd torch.nn.functional torch.utils.dlpack""".split()
_CLASSES = (torch.Tensor, torch.UntypedStorage, torch.nn.Parameter)
#: `helpers.pytorch.dispatch_mode.Mode.hide_from_dynamo` wraps it, where torch._dynamo has been loaded meanwhile
_WRAPPED = "__torch_dispatch__"
#: `torch.set_default_dtype` sets `torch.Storage`, which nothing here calls; that one, probe.py tells by its name
_SET = "Storage"
_INSIDE = [attrgetter(name) for name in ("__code__", "__defaults__", "__kwdefaults__")]


class Intact:
    """What functions, classes and modules there are now, to be compared with what there are later."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, Any, dict[str, Any], int, tuple[Any, ...]]] = []
        self._inherited: list[tuple[str, type, set[str]]] = []
        self._functions: dict[FunctionType, str] = {}
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
        self._inside = [(inside, [*map(inside, self._functions)]) for inside in _INSIDE]
        self._keys = self._excluded()

    def _keep(self, name: str, owner: Any) -> None:
        now = vars(owner)
        passed_over = {_WRAPPED, _SET} if owner is torch else {_WRAPPED}
        held = {key: value for key, value in now.items() if _is_code(value) and key not in passed_over}
        self._kept.append((name, owner, held, len(now), (*now.values(),)))
        for key, value in held.items():
            if isinstance(value, FunctionType):
                self._functions.setdefault(value, f"{name}.{key}")

    def changed(self) -> str:
        """The name of the first that is another now; "" if all are the same. A dispatch mode left on is told, too."""
        if private_torch.modes_on():
            return "what operators do (a dispatch mode was entered and not left)"
        if self._excluded() != self._keys:
            return "what operators do (a dispatch key was excluded)"
        return next(self._changes(), "")

    def _changes(self) -> Iterator[str]:
        # asked after every cell and every answer, about 16,000 names: what has not changed at all is seen in C loops
        for name, owner, held, size, values in self._kept:
            now = vars(owner)
            if len(now) != size or not all(map(is_, now.values(), values)):
                yield from (f"`{name}.{key}`" for key, value in held.items() if now.get(key) is not value)
        for name, kind, inherited in self._inherited:
            if not inherited.isdisjoint(vars(kind)):
                yield f"`{name}.{min(inherited & vars(kind).keys())}`"
        for inside, was in self._inside:
            if not all(map(is_, map(inside, self._functions), was)):
                pairs = zip(self._functions, was, strict=True)
                yield from (
                    f"the inside of `{self._functions[f]}`" for f, one in pairs if inside(f) is not one
                )

    @staticmethod
    def _excluded() -> Any:
        return private_torch.excluded_keys().raw_repr()


def _is_code(value: Any) -> bool:
    return callable(value) or isinstance(value, ModuleType) or hasattr(type(value), "__get__")
