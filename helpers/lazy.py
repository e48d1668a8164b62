"""Names of a package that load on first use, listed once (PEP 562).

A package lists them where type checkers and editors look, and nothing of it is imported until a name is asked for:

    if TYPE_CHECKING:
        from .blocks import segments as segments

    __getattr__, __dir__, __all__ = lazy.attach(__name__)
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from importlib.util import resolve_name
from pathlib import Path
from typing import Any


def attach(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """__getattr__, __dir__ and __all__ for the names that its file imports `as` themselves under `if TYPE_CHECKING`."""
    module = sys.modules[package]
    assert module.__file__ is not None
    home = listed(Path(module.__file__).read_text(encoding="utf-8"), package)
    names = sorted(home)

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"{package} has no {name!r}; it has {', '.join(names)}")
        return getattr(importlib.import_module(home[name]), name)

    return load, lambda: names, names


def listed(source: str, package: str) -> dict[str, str]:
    """Name → the module that holds it."""
    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    typed = [line for b in blocks if ast.unparse(b.test) == "TYPE_CHECKING" for line in b.body]
    lines = [line for line in typed if isinstance(line, ast.ImportFrom)]
    # helpers, or the other name that a project's own `helpers` makes necessary
    top = package.partition(".")[0]

    def holder(line: ast.ImportFrom) -> str:
        module = line.module or ""
        return (
            resolve_name("." * line.level + module, package)
            if line.level
            else top + module[module.index(".") :]
        )

    return {alias.name: holder(line) for line in lines for alias in line.names if alias.asname == alias.name}
