"""Whether the course's own code, and what it calls of PyTorch, are still what they were before a submission ran.

    before = Intact()
    …                    # cells of a stranger
    before.changed()     # "" or "helpers.counters.counts.Counts.as_dict"

The screen refuses most ways to replace a function that counts or compares. Here it is told whichever way was found.
"""

import ctypes
import gc
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from operator import attrgetter, is_
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
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
        self._kept: list[tuple[str, Any, dict[str, Any], int, tuple[Any, ...], Set[str]]] = []
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
            self._keep(name, kind, set(dir(kind)) - vars(kind).keys() - {_WRAPPED})
        self._inside = [(inside, [*map(inside, self._functions)]) for inside in _INSIDE]
        dicts = [_dict_of(owner) for _, owner, *_ in self._kept]
        self._words = _Words(dicts, [*self._functions]) if _words_tell() else None
        self._keys = self._excluded()

    def _keep(self, name: str, owner: Any, inherited: Set[str] = frozenset()) -> None:
        now = vars(owner)
        passed_over = {_WRAPPED, _SET} if owner is torch else {_WRAPPED}
        held = {key: value for key, value in now.items() if _is_code(value) and key not in passed_over}
        self._kept.append((name, owner, held, len(now), (*now.values(),), inherited))
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
        # asked after every cell and every answer, about 25,000 names: what has not changed at all is passed over
        dicts, functions = self._words.others() if self._words else (range(len(self._kept)), True)
        for name, owner, held, size, values, inherited in map(self._kept.__getitem__, dicts):
            now = vars(owner)
            if len(now) != size or not all(map(is_, now.values(), values)):
                yield from (f"`{name}.{key}`" for key, value in held.items() if now.get(key) is not value)
            if not inherited.isdisjoint(now):
                yield f"`{name}.{min(inherited & now.keys())}`"
        for inside, was in self._inside if functions else ():
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


class _Words:
    """Words of memory that tell which dicts and functions have changed, without a look at what they hold.

    A look at a value counts a reference to it, where it lies: in a forked process each page with one is copied then, and that
    is most of them. CPython writes another number into a dict at each change (PEP 509; 3.11 to 3.13), and a function points
    to its code and its defaults; whether that is so here, :func:`_words_tell` tries.
    """

    _OF_DICT, _OF_FUNCTION = (24,), (48, 56, 64)

    def __init__(self, dicts: Sequence[dict[str, Any]], functions: Sequence[FunctionType]) -> None:
        places = [id(one) + at for one in dicts for at in self._OF_DICT]
        self._dicts = len(places)
        places += [id(one) + at for one in functions for at in self._OF_FUNCTION]
        # all memory as one array (a process has 2⁴⁷ bytes on x86, 2⁴⁸ on Arm), from the second word on: there is none at 0
        self._memory = np.ctypeslib.as_array((ctypes.c_uint64 * (1 << 45)).from_address(8))
        self._places = np.array(places, dtype=np.int64) // 8 - 1
        self._was = self._memory.take(self._places)

    def others(self) -> tuple[Sequence[int], bool]:
        """The places of the dicts that have changed; and whether a function has."""
        other: list[int] = (self._memory.take(self._places) != self._was).nonzero()[0].tolist()
        return [i for i in other if i < self._dicts], bool(other and other[-1] >= self._dicts)


def _words_tell() -> bool:
    """Whether each kind of change is seen in the words of this Python; tried on a class, a module and a function."""
    if sys.implementation.name != "cpython" or sys.maxsize < 1 << 62:
        return False
    kind, module, function = type("kind", (), {}), ModuleType("module"), FunctionType(_is_code.__code__, {})
    inside = {"__code__": _dict_of.__code__, "__defaults__": (3,), "__kwdefaults__": {"y": 3}}
    changes: list[Callable[[], object]] = [
        partial(setattr, function, name, value) for name, value in inside.items()
    ]
    for owner in (kind, module):
        for value in (1, 2):
            changes.append(partial(setattr, owner, "x", value))
        changes.append(partial(delattr, owner, "x"))
    for change in changes:
        try:
            words = _Words([_dict_of(kind), _dict_of(module)], [function])
        except (IndexError, ValueError):  # addresses beyond what is thought of here
            return False
        if words.others() != ([], False):
            return False
        change()
        if words.others() == ([], False):
            return False
    return True


def _dict_of(owner: Any) -> dict[str, Any]:
    """The dict itself, which of a class `vars` only shows."""
    shown = vars(owner)
    return shown if isinstance(shown, dict) else gc.get_referents(shown)[0]
