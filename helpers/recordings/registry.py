"""Which experiments there are, and the hash of the code of each.

    @experiment("03/item_in_loop", seconds=10)
    def item_in_loop(gpu): ...
        return {"trace": prof}

An experiment takes a gpu (`simulator.SimGPU` or `simulator.RealGPU`), is called inside `with gpu:`, uses only
names that both have, and returns a dict with any of

    "trace"     a profiler (`gpu.profile(...)`)
    "snapshot"  what `gpu.memory._snapshot()` returns
    "table"     a list of dicts of plain values
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import io
import re
import tokenize
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Function = Callable[[Any], Mapping[str, Any]]
_NAME = re.compile(r"[a-z0-9]+/[a-z0-9_]+")


@dataclass(frozen=True)
class Experiment:
    """name: "03/item_in_loop". run: gpu → results. seconds: what it may take on a real GPU, start included.

    alloc_conf: what PYTORCH_ALLOC_CONF says meanwhile.
    """

    name: str
    run: Function
    seconds: float
    alloc_conf: str = ""

    @property
    def code(self) -> str:
        """Hash of the code that this experiment runs (see :func:`code_hash`)."""
        path = inspect.getsourcefile(self.run)
        assert path is not None
        return code_hash(Path(path).read_text(encoding="utf-8"), self.run.__name__)


EXPERIMENTS: dict[str, Experiment] = {}


def experiment(name: str, *, seconds: float = 12.0, alloc_conf: str = "") -> Callable[[Function], Function]:
    """Register a function as an experiment. ValueError for a malformed name, or one that is taken."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"an experiment's name is lesson/name in small letters, not {name!r}")

    def register(run: Function) -> Function:
        old = EXPERIMENTS.get(name)
        # Reloading a module registers its functions again; two different functions may not share a name.
        if old is not None and (old.run.__module__, old.run.__name__) != (run.__module__, run.__name__):
            raise ValueError(f"two experiments are named {name!r}: {old.run.__name__} and {run.__name__}")
        EXPERIMENTS[name] = Experiment(name, run, seconds, alloc_conf)
        return run

    return register


def find(name: str) -> Experiment:
    """The experiment of that name, once its module is imported. ValueError, with the names that there are, for another."""
    if name not in EXPERIMENTS:
        raise ValueError(
            f"no experiment {name!r}; there are {', '.join(sorted(EXPERIMENTS)) or 'none'}. Those of a lesson are known "
            "when helpers.lessons.<its name>.recorded is imported"
        )
    return EXPERIMENTS[name]


def select(only: list[str]) -> list[Experiment]:
    """The experiments of some lessons or names ("03", "03/item_in_loop"); all where the list is empty."""
    for name in only:
        if not any(name in (known, known.partition("/")[0]) for known in EXPERIMENTS):
            raise ValueError(f"no experiment {name}; there are {', '.join(sorted(EXPERIMENTS))}")
    return [e for n, e in sorted(EXPERIMENTS.items()) if not only or n in only or n.partition("/")[0] in only]


def code_hash(source: str, function: str) -> str:
    """16 hex digits that change when the function, or what else its module defines, changes in meaning.

    Comments, docstrings and white space do not count, nor do the module's other experiments, so that adding
    one leaves the recordings of the rest valid. The text is hashed and not the syntax tree, whose form
    differs between versions of Python: a recording made under one is read under another.
    """
    tree, lines = ast.parse(source), source.splitlines()
    left_out: set[int] = set()  # line numbers
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and ast.get_docstring(node) is not None
        ):
            left_out |= _lines(node.body[0])
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name != function and _registered(statement):
            left_out |= _lines(statement.decorator_list[0]) | _lines(statement)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    kept = " ".join(line for number, line in enumerate(lines, 1) if number not in left_out)
    return hashlib.sha256(" ".join(kept.split()).encode()).hexdigest()[:16]


def _registered(node: ast.FunctionDef) -> bool:
    calls = [d.func for d in node.decorator_list if isinstance(d, ast.Call)]
    return any(isinstance(c, ast.Name) and c.id == "experiment" for c in calls)


def _lines(node: ast.stmt | ast.expr) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
