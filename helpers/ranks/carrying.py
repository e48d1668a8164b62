"""Take a function and its arguments to another process: its code, and what it names in its notebook.

cloudpickle does the work: functions and classes of a notebook travel as code, with the globals that they
name, theirs in turn, closures and defaults; those of an importable module travel as a name. Without
cloudpickle only the latter can.
"""

from __future__ import annotations

import copyreg
import dis
import importlib.machinery
import io
import linecache
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .errors import CannotCarry

try:
    import cloudpickle
except ImportError:
    cloudpickle = None

#: bytes: what a function names and is given may weigh this much; more is a sign that something came along
#: unasked
MOST = 256 * 2**20


def carry(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """``(fn, args)`` as bytes for :func:`pickle.load`. CannotCarry names what cannot go."""
    if not callable(fn):
        raise CannotCarry(f"run_ranks wants a function, got a {type(fn).__name__}")
    with _by_value(fn):
        try:
            data = _dumps((fn, args))
        except Exception as problem:
            raise CannotCarry(_blame(fn, args, problem)) from None
        if len(data) > MOST:
            raise CannotCarry(_heavy(fn, args, len(data)))
    return data


def _dumps(value: Any) -> bytes:
    if cloudpickle is None:
        return pickle.dumps(value)
    copyreg.pickle(type(torch.ops), _reduced_ops)  # looks like a module, and cloudpickle takes it for one
    file = io.BytesIO()
    cloudpickle.Pickler(file, protocol=pickle.DEFAULT_PROTOCOL).dump(value)
    return file.getvalue()


def _reduced_ops(ops: Any) -> tuple[Any, ...]:
    return getattr, (torch, "ops")


@contextmanager
def _by_value(fn: Callable[..., Any]) -> Iterator[None]:
    """The function's own module travels as code where a fresh process could not import it under its name."""
    module = sys.modules.get(getattr(fn, "__module__", None) or "")
    if cloudpickle is None or module is None or module.__name__ == "__main__" or _importable(module):
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _importable(module: types.ModuleType) -> bool:
    package, path = "", None
    for part in module.__name__.split("."):
        package = f"{package}.{part}" if package else part
        spec = importlib.machinery.PathFinder.find_spec(package, path)
        if spec is None:
            # built in, or found by an importer of another kind, as editable installs have
            return package in sys.builtin_module_names or package == "helpers"
        path = spec.submodule_search_locations
    return spec is not None and spec.origin == getattr(module, "__file__", None)


def lines() -> dict[str, list[str]]:
    """Source that lies in no file (a notebook's cells): name → its lines, so that tracebacks show them elsewhere."""
    entries = [(name, entry) for name, entry in linecache.cache.items() if len(entry) == 4]
    return {name: list(entry[2]) for name, entry in entries if not os.path.exists(name)}


def named(fn: Any) -> dict[str, Any]:
    """What a function's code names: its globals and its closure, by name."""
    fn = getattr(fn, "__wrapped__", fn)
    code = getattr(fn, "__code__", None)
    if code is None:
        return {}
    steps = [i for part in _nested(code) for i in dis.get_instructions(part)]
    names = {i.argval for i in steps if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    values = {n: fn.__globals__[n] for n in sorted(names) if n in fn.__globals__}
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    return values


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _parts(fn: Any, args: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Everything that travels, with what to call it: arguments, then names, those of functions named in turn."""
    for i, arg in enumerate(args):
        yield f"argument {i + 1}", arg
    seen: set[int] = set()
    todo: list[tuple[str, Any]] = [(getattr(fn, "__name__", "the function"), fn)]
    while todo:
        user, one = todo.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        for name, value in named(one).items():
            yield f"{name!r}, which {user} uses,", value
            if isinstance(value, types.FunctionType) and value.__module__ == getattr(fn, "__module__", ""):
                todo.append((name, value))
        if isinstance(one, type):
            todo += [(f"{user}.{k}", v) for k, v in vars(one).items() if isinstance(v, types.FunctionType)]


def _blame(fn: Any, args: tuple[Any, ...], problem: Exception) -> str:
    name = getattr(fn, "__name__", str(fn))
    if cloudpickle is None:
        return (
            f"{name} cannot be carried to another process ({problem}). Functions of a notebook need cloudpickle: "
            "`pip install cloudpickle`; without it only functions of an importable module can go."
        )
    culprit = ""
    for title, value in _parts(fn, args):
        try:
            _dumps(value)
        except Exception as why:
            # the last one found lies deepest: a function that cannot go is followed by what it uses
            culprit = f"{title} is {_kind(value)} and cannot be carried to another process ({_first(why)})"
    return (culprit or f"{name} cannot be carried to another process ({_first(problem)})") + (
        ". Make it inside the function, or hand over plain data."
    )


def _heavy(fn: Any, args: tuple[Any, ...], size: int) -> str:
    weights = [(len(_dumps(value)), title, value) for title, value in _parts(fn, args)]
    most, title, value = max(weights, key=lambda w: w[0], default=(size, getattr(fn, "__name__", ""), fn))
    return (
        f"{title} is {_kind(value)} of {most:,} bytes; together {size:,} would be carried to each rank, wanted at "
        f"most {MOST:,}. Make it inside the function."
    )


def _kind(value: Any) -> str:
    if isinstance(value, io.IOBase):
        return f"an open file ({getattr(value, 'name', '')!r})"
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


def _first(problem: Exception) -> str:
    return f"{type(problem).__name__}: {str(problem).splitlines()[0][:200] if str(problem) else ''}"
