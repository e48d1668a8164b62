"""Private names belong to an answer's own objects: held where they are used, since a parameter that is called ``self`` may be
anything.

    tree = guarded(ast.parse(source))  # graph._codegen = mine → __own__(graph, "_codegen")._codegen = mine
    exec(compile(tree, place, "exec"), {GUARD: own, WHEN: when})

What :func:`helpers.check.screen` reads off a tree is a name; whose it is, only the run tells.
"""

import ast
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from helpers.check.screen import CALLED_BACK, is_private
from helpers.pytorch import private_torch

#: what the guard is called in the answer's module. The screen lets no answer bind or read such a name
GUARD = "__own__"
#: … and the one at the beginning of methods that PyTorch calls back
WHEN = "__when__"
_excluded, _PYTHON = private_torch.excluded_keys, private_torch.DispatchKey.Python
_BY_TEXT = frozenset({"getattr", "hasattr", "setattr"})


def own(thing: Any, name: Any) -> Any:
    """The thing. AttributeError where that name is a private one and the thing is no object, class or function of the notebook."""
    if (
        not isinstance(name, str)
        or not is_private(name)
        or isinstance(thing, (ModuleType, super, SimpleNamespace))
    ):
        return thing  # of modules and `super()`, the screen has read the names
    of = thing if isinstance(thing, (type, FunctionType)) else type(thing)
    if of.__module__ != "__main__":
        raise AttributeError(
            f"`{name}` is a private name of {of.__qualname__}, which is not yours: use public names, and private ones on your own `self`"
        )
    return thing


def when() -> None:
    """RuntimeError in the middle of an operator: what would run there, of all that counts, nobody would see."""
    if _excluded().has(_PYTHON):
        raise RuntimeError(
            "PyTorch calls this where nothing is counted: give `torch.tensor` and the like plain lists of numbers"
        )


def guarded(tree: ast.Module) -> ast.Module:
    """The same cell, in which each use of a private name asks first, and so does what PyTorch calls back."""
    return ast.fix_missing_locations(_Guards().visit(tree))


class _Guards(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if node.name in CALLED_BACK:
            at = ast.get_docstring(node, clean=False) is not None
            node.body.insert(
                at, ast.Expr(ast.copy_location(ast.Call(ast.Name(WHEN, ast.Load()), [], []), node))
            )
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if is_private(node.attr):
            node.value = _asked(node.value, ast.Constant(node.attr))
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if getattr(node.func, "id", "") in _BY_TEXT and len(node.args) > 1:
            node.args[0] = _asked(node.args[0], node.args[1])
        return node

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.AST:
        return node  # Python allows no call here; and it only compares


def _asked(value: ast.expr, name: ast.expr) -> ast.expr:
    asked = ast.Call(ast.Name(GUARD, ast.Load()), [value, name], [])
    return ast.copy_location(asked, value)
