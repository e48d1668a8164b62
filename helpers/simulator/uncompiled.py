"""Shapes of operators without the compiler, which PyTorch would import for them, for a second or more.

PyTorch works out shapes on meta in Python (torch/_refs, torch/_decomp). Many of those functions are marked with
torch._disable_dynamo, which imports torch._dynamo when the first of them is called (torch/_compile.py), also in a
program that compiles nothing. It asks a function for `__dynamo_disable` first: until the compiler is loaded, that is
the function itself here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import CellType, FunctionType
from typing import Any

import torch

__all__ = ["without_compiler"]

_COMPILER, _MARK = "torch._dynamo", "__dynamo_disable"


@cache
def without_compiler() -> int:
    """Let functions for shapes run as they are while the compiler is not loaded. How many; done once a process."""
    if _COMPILER in sys.modules:
        return 0
    marked = [fn for fn in _marked() if not hasattr(fn, _MARK)]
    for fn in marked:
        setattr(fn, _MARK, _until_loaded(fn))
    return len(marked)


def _until_loaded(fn: Any) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if _COMPILER in sys.modules and getattr(fn, _MARK, None) is call:
            delattr(fn, _MARK)  # PyTorch makes its own at the next call
        return fn(*args, **kwargs)

    return call


def _marked() -> Iterator[Any]:
    """The functions behind torch._disable_dynamo among those that work out shapes."""
    inner = torch._disable_dynamo(lambda: None).__code__
    tables = getattr(sys.modules.get("torch._decomp"), "global_decomposition_table", {})
    found = [fn for table in tables.values() for fn in table.values()]
    for name in [n for n in sys.modules if n == "torch._refs" or n.startswith("torch._refs.")]:
        found += vars(sys.modules[name]).values()
    seen = set[int]()
    while found:
        fn = found.pop()
        if not isinstance(fn, FunctionType) or id(fn) in seen:
            continue
        seen.add(id(fn))
        # Decorators keep what they call in their closure; __wrapped__ may skip some of them.
        below = [cell.cell_contents for cell in fn.__closure__ or () if _filled(cell)]
        if fn.__code__ is inner:
            yield from (f for f in below if isinstance(f, FunctionType))
        found += below


def _filled(cell: CellType) -> bool:
    try:
        return callable(cell.cell_contents)
    except ValueError:
        return False
