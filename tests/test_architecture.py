"""How the modules and rooms of helpers hang together: no circle of imports, arrows that only go down, a simulator in few files."""

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


def room(module: str) -> str:
    """The room of a module: "trace"; a lesson's is "lessons.optimizers"; "" for the package itself."""
    _, *parts = module.split(".")
    return ".".join(parts[: 1 + (parts[0] == "lessons")]) if parts else ""


def storey(room: str) -> int:
    """2: the classroom. 1: the lessons. 0: what all share."""
    return 2 if room == "classroom" else int(room.partition(".")[0] == "lessons")


def rooms(graph: Mapping[str, set[str]]) -> dict[str, dict[str, str]]:
    """room → each other room that it imports, and by which modules ("helpers.a.b imports helpers.c.d")."""
    arrows: dict[str, dict[str, str]] = {}
    for module, others in sorted(graph.items()):
        for other in sorted(others):
            if room(module) != room(other):
                arrows.setdefault(room(module), {}).setdefault(room(other), f"{module} imports {other}")
    return arrows


def upward(arrows: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The arrows that lead from a storey to one above it."""
    return [
        why
        for here, others in arrows.items()
        for there, why in others.items()
        if storey(there) > storey(here)
    ]


def around(arrows: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The arrows of one circle of rooms, in order; [] where there is none."""
    names = circle({here: set(others) for here, others in arrows.items()})
    return [arrows[here][there] for here, there in zip(names, [*names[1:], *names[:1]], strict=True)]


def test_no_module_imports_itself_through_others() -> None:
    found = circle(modules())
    assert not found, " → ".join([*found, found[0]])


def test_rooms_form_no_circle() -> None:
    found = around(rooms(modules()))
    assert not found, "\n".join(found)


def test_arrows_only_go_down() -> None:
    """classroom → lessons → shared."""
    found = upward(rooms(modules()))
    assert not found, "\n".join(found)


def test_a_circle_of_rooms_and_an_arrow_upward_are_found() -> None:
    graph = {"h.a.x": {"h.b.x"}, "h.b.x": {"h.b.y"}, "h.b.y": {"h.c"}, "h.c": {"h.a.y"}, "h.a.y": set[str]()}
    assert not circle(graph)
    assert around(rooms(graph)) == ["h.a.x imports h.b.x", "h.b.y imports h.c", "h.c imports h.a.y"]
    assert around(rooms(graph | {"h.c": set()})) == []
    graph = {
        "h.classroom.x": {"h.lessons.one.x", "h.a"},
        "h.lessons.one.x": {"h.lessons.two.x", "h.a"},
        "h.lessons.two.x": {"h.classroom.y"},
        "h.a": {"h.lessons.one.y"},
    }
    assert upward(rooms(graph)) == ["h.a imports h.lessons.one.y", "h.lessons.two.x imports h.classroom.y"]


def test_few_modules_stand_loose() -> None:
    """Beside the package's own files and its six tools: what is about one subject stands in a room."""
    tools = {"__init__", "__main__"}
    assert len([file for file in HELPERS.glob("*.py") if file.stem not in tools]) <= 8


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
