"""What Triton's compiler would refuse of a kernel, and its interpreter, which runs the kernel as Python, lets pass."""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np

#: of Python's own functions, those that a kernel may call
_BUILTINS = frozenset("abs bool float int len max min print range".split())
#: of Triton beside its language
_OF_TRITON = frozenset({"cdiv", "next_power_of_2", "language", "constexpr"})
#: kinds of syntax that a kernel has no use for, and what they are called
_CLOSED: dict[type[ast.AST], str] = {
    ast.Import: "an import", ast.ImportFrom: "an import", ast.Global: "`global`", ast.Nonlocal: "`nonlocal`",
    ast.Lambda: "a lambda", ast.ListComp: "a list comprehension", ast.SetComp: "a set comprehension",
    ast.DictComp: "a dict comprehension", ast.GeneratorExp: "a generator", ast.ClassDef: "a class", ast.Try: "`try`",
    ast.With: "`with`", ast.Yield: "`yield`", ast.Dict: "a dict", ast.Set: "a set", ast.Delete: "`del`",
    ast.Raise: "`raise`", ast.JoinedStr: "a formatted text", ast.List: "a list", ast.NamedExpr: "`:=`",
}  # fmt: skip


class NotTriton(TypeError):
    """A kernel uses what Triton's compiler has not."""


def read(function: FunctionType) -> ast.FunctionDef:
    """The function as its file has it: where its code begins there, whatever texts look like functions around it."""
    try:
        code = function.__code__
        for node in ast.walk(ast.parse("".join(inspect.findsource(function)[0]))):
            if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
                if min([node.lineno, *(d.lineno for d in node.decorator_list)]) == code.co_firstlineno:
                    return node
        raise OSError
    except (OSError, SyntaxError, TypeError):
        raise NotTriton(
            f"the source of {function.__name__} cannot be read: write it as a function, in a cell"
        ) from None


def hold(
    tree: ast.FunctionDef, names: dict[str, Any], tl: Any, is_kernel: Callable[[Any], bool]
) -> dict[str, Any]:
    """The names from outside that a kernel uses; :class:`NotTriton` for what it uses beside its arguments, its own names,
    other kernels and Triton's language.

    tree: the kernel as it was written. names: what its names from outside mean. tl: triton.language.
    is_kernel: whether a value is another jitted function.
    """
    for line, what in _refused(tree, names, tl, is_kernel):
        raise NotTriton(
            f"line {line} of {tree.name} uses {what}. The interpreter runs a kernel as Python and lets it pass; "
            "Triton's compiler knows arguments, local names and triton.language"
        )
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return {name: names[name] for name in used & names.keys()}


def is_plain(value: Any, tl: Any) -> bool:
    """Whether a value has nothing of Python to run: a number, a text, a type of Triton's, or a constexpr of one of these."""
    if type(value) is tl.constexpr:
        return is_plain(value.value, tl)
    return value is None or type(value) in (
        bool, int, float, str, np.float64, tl.dtype, tl.pointer_type, tl.block_type
    )  # fmt: skip


def _refused(
    tree: ast.FunctionDef, names: dict[str, Any], tl: Any, is_kernel: Callable[[Any], bool]
) -> Iterator[tuple[int, str]]:
    public = {
        name
        for of in (tl, tl.tensor, tl.math, tl.pointer_type(tl.int8))
        for name in dir(of)
        if name[0] != "_"
    }
    public = (public | _OF_TRITON | {"value", "type"}) - {"handle", "core", "semantic", "extra", "inspect"}
    arguments = [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs]
    local = {a.arg for a in arguments}
    local |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    if tree.args.vararg or tree.args.kwarg:
        yield 1, "`*` in its arguments"
    for part in tree.body:
        for node in ast.walk(part):
            line = getattr(node, "lineno", tree.lineno) - tree.lineno + 1
            if closed := _CLOSED.get(type(node)):
                yield line, closed
            elif isinstance(node, ast.FunctionDef):
                yield line, "a function within it"
            elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
                yield line, f"an assignment to `{ast.unparse(node)}`"
            elif isinstance(node, ast.Attribute) and node.attr not in public:
                yield line, f"`{node.attr}`"
            elif isinstance(node, ast.Name) and node.id not in local:
                value = names.get(node.id, getattr(builtins, node.id, None))
                fine = node.id in _BUILTINS and value is getattr(builtins, node.id)
                fine = fine or value is tl or value is sys.modules["triton"] or is_kernel(value)
                if not fine and not (isinstance(value, tl.constexpr | tl.dtype) and is_plain(value, tl)):
                    yield (
                        line,
                        f"`{node.id}`, a name from outside (a number may come in as an argument, or as tl.constexpr)",
                    )
