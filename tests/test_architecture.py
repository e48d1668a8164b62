"""How the modules of helpers hang together: no circle of imports, and a simulator in few files."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

HELPERS = Path(__file__).parents[1] / "helpers"


def imports(source: str, name: str, known: Iterable[str], package: bool = False) -> set[str]:
    """Which of the `known` modules a module's text imports, wherever it does: in functions, for types only.

    package: the text is an __init__.py, whose relative imports begin in itself.
    """
    known, found = set(known), set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = name.split(".")[: len(name.split(".")) - node.level + package] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                found.add(f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base)
    return (found & known) - {name}


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """The modules of one circle, in order; [] where there is none."""
    done, path = set[str](), list[str]()

    def visit(module: str) -> list[str]:
        if module in path:
            return path[path.index(module) :]
        if module in done:
            return []
        path.append(module)
        for other in sorted(graph.get(module, ())):
            if found := visit(other):
                return found
        path.pop()
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := visit(module))), [])


def modules() -> dict[str, set[str]]:
    """Every module of helpers, and which others it imports."""
    files = {}
    for file in HELPERS.rglob("*.py"):
        parts = file.relative_to(HELPERS.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return {
        name: imports(file.read_text(encoding="utf-8"), name, files, file.name == "__init__.py")
        for name, file in files.items()
    }


def test_no_module_imports_itself_through_others() -> None:
    found = circle(modules())
    assert not found, " → ".join([*found, found[0]])


def test_a_circle_is_found() -> None:
    names = ("m", "m.a", "m.b", "m.c")
    texts = {
        "m.a": "def f():\n    from m import b",
        "m.b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .c import C",
        "m.c": "import os\nimport m.a",
    }
    graph = {name: imports(text, name, names) for name, text in texts.items()}
    assert graph == {"m.a": {"m.b"}, "m.b": {"m.c"}, "m.c": {"m.a"}}
    assert circle(graph) == ["m.a", "m.b", "m.c"] and circle(graph | {"m.c": set()}) == []
    assert imports("from . import a", "m", names, package=True) == {"m.a"}


def test_the_simulator_is_in_few_files() -> None:
    assert len(list((HELPERS / "simulator").rglob("*.py"))) <= 40
