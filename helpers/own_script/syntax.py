"""What a line stands in: loops, a branch that asks a value. From the script's text; a file that cannot be read says nothing."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple


class Stands(NamedTuple):
    """loops: first lines of the loops around it in its function, the outermost first; asks: it is a branch's condition;
    asserts: it is an assertion's that denies nothing."""

    loops: tuple[int, ...] = ()
    asks: bool = False
    asserts: bool = False


@lru_cache(maxsize=256)
def lines(file: str) -> dict[int, Stands]:
    """What each line of a file stands in."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))  # a notebook's cell has no file
    except (SyntaxError, ValueError):
        return {}
    found: dict[int, Stands] = {}
    for line, stands in _walk(tree, ()):  # what is inside comes after what is around it
        before = found.get(line, stands)
        found[line] = stands._replace(
            asks=stands.asks or before.asks, asserts=stands.asserts or before.asserts
        )
    return found


def _affirms(node: ast.AST) -> bool:
    """Whether a statement asserts something without a "not" in it."""
    return isinstance(node, ast.Assert) and not any(isinstance(part, ast.Not) for part in ast.walk(node.test))


def _walk(node: ast.AST, loops: tuple[int, ...]) -> Iterator[tuple[int, Stands]]:
    for child in ast.iter_child_nodes(node):
        inside = loops
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            inside = ()
        elif isinstance(
            child,
            (ast.For, ast.While, ast.AsyncFor, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
        ):
            inside = (*loops, child.lineno)
        if isinstance(child, (ast.stmt, ast.expr)):
            end = child.end_lineno or child.lineno
            simple = isinstance(child, ast.expr) or not hasattr(child, "body")
            for line in range(child.lineno, (end if simple else child.lineno) + 1):
                yield line, Stands(inside)
        if isinstance(child, (ast.If, ast.While, ast.Assert, ast.IfExp)):
            test = child.test
            for line in range(test.lineno, (test.end_lineno or test.lineno) + 1):
                yield line, Stands(inside, asks=True, asserts=_affirms(child))
        yield from _walk(child, inside)
