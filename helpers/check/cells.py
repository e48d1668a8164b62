"""Which text of a notebook's cells is screened and run, in the visible test and when graded: one answer for both.

    as_run("%%time\\ndef f(x):\\n    return x")          # '\\ndef f(x):\\n    return x'
    needs(2, ["", "from math import *", "def f(x):\\n    return prod(x)"])     # {1: 'prod'}

IPython runs more than Python: commands, cells that are indented as a whole. What of a cell is Python runs when it is
graded too, and its commands are left out.
"""

import ast
import re
import symtable
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache

from helpers.check.screen import starred
from helpers.lesson.earlier import made_in

__all__ = ["as_run", "bound", "changed", "needs", "not_run", "own_part", "reads"]

#: commands that run the Python behind them in the notebook: %%count, %%bench and %%trace are the course's own
_RUNS = frozenset("bench capture count prun time trace".split())
#: lines that may be a command to IPython, which reads the whole cell anew for each
_LIKE_COMMANDS = re.compile(r"(?m)^[ \t]*[%!?;,/]|=[ \t]*[%!]|\?[ \t]*$")
#: … times the characters of the cell: above it, it is left as it is. An honest cell has thousands
_MOST_TRANSFORMED = 500_000
_COMMANDS = frozenset("getoutput run_cell_magic run_line_magic system".split())
#: what Python's own parser and tables raise of a text that is not Python, or too deep for them
_ODD = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


@lru_cache(4096)
def as_run(source: str) -> str:
    """A cell's Python, on the same lines; ``source`` itself where nothing has to be changed, or nothing can be.

    source: as it was typed, or as IPython keeps it in its history (``_ih``).
    """
    tree = _parsed(source)
    if tree is None:
        if len(_LIKE_COMMANDS.findall(source)) * len(source) > _MOST_TRANSFORMED:
            return source
        try:
            from IPython.core.inputtransformer2 import TransformerManager

            text = TransformerManager().transform_cell(source)
        except (ImportError, RuntimeError, *_ODD):  # RuntimeError: after 500 commands IPython gives up
            return source
        if (tree := _parsed(text)) is None:
            return source
    else:
        text = source
    # from the last to the first, so that places before stay what they are; of one line's bytes, as ast counts
    lines = text.encode("utf-8", "surrogatepass").splitlines(keepends=True)
    for node in reversed(list(_commands(tree))):
        kind, *said = node.func.attr, *(arg.value for arg in node.args if isinstance(arg, ast.Constant))
        runs = bool(said) and said[0] in _RUNS
        if kind == "run_cell_magic":
            return "\n" + as_run(str(said[-1])) if runs else ""
        python = str(said[-1]).strip() if runs and kind == "run_line_magic" else ""
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        rest = lines[last][node.end_col_offset :]
        lines[first] = lines[first][: node.col_offset] + (python or "None").encode() + rest
        del lines[first + 1 : last + 1]
    return b"".join(lines).decode("utf-8", "surrogatepass")


class _Command(ast.Call):
    func: ast.Attribute


def _commands(tree: ast.AST) -> Iterator[_Command]:
    """What IPython makes of commands: ``get_ipython().run_line_magic('matplotlib', 'inline')``; in the text's order."""
    commands = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _COMMANDS
        and ast.unparse(node.func.value) == "get_ipython()"
        and all(isinstance(arg, ast.Constant) for arg in node.args)
    ]
    yield from sorted(commands, key=lambda node: (node.lineno, node.col_offset))  # type: ignore[misc]


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except _ODD:
        return None


def own_part(source: str, given: Iterable[str]) -> str:
    """A cell without the course's own cells, as a learner has them, that stand in it whole: what is left is screened."""
    for text in given:
        before, whole, after = source.partition(text)
        lines = before[-1:] in ("", "\n") and after[:1] in ("", "\n")
        # both sides are Python by themselves: else the course's text could stand in a string, and theirs outside of one
        if whole and lines and None not in (_parsed(before), _parsed(after)):
            source = before + after
    return source


@lru_cache(4096)
def bound(source: str) -> frozenset[str]:
    """The names to which a cell gives a meaning, those of ``from math import *`` included."""
    try:
        names = made_in(source)
    except _ODD:
        return frozenset()
    tree = _parsed(source) if "*" in source else None
    for node in tree.body if tree else ():
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*" and node.module and not node.level:
            names = names | starred(node.module)
    return frozenset(names)


@lru_cache(4096)
def changed(source: str) -> frozenset[str]:
    """Names whose things a cell changes where they are: ``table["f"] = f``, ``f.calls = 0``, ``table.update(…)``."""
    names, nodes = set[str](), list[ast.AST]([_parsed(source) or ast.Module([], [])])
    for node in nodes:  # grows meanwhile
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            nodes += ast.iter_child_nodes(node)
        root: ast.AST = node
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            root = node.value.func
        elif isinstance(getattr(node, "ctx", None), ast.Load):
            continue
        inner = root
        while isinstance(inner, ast.Attribute | ast.Subscript):
            inner = inner.value
        if inner is not root and isinstance(inner, ast.Name):
            names.add(inner.id)
    return frozenset(names)


@lru_cache(4096)
def reads(source: str) -> frozenset[str]:
    """The names that a cell reads and does not make, or that only its functions change (``global calls``)."""
    try:
        top = symtable.symtable(source, "<cell>", "exec")
    except _ODD:
        return frozenset()
    names, counted, scopes = set[str](), set[str](), [top]
    for scope in scopes:  # grows meanwhile
        scopes += scope.get_children()
        names |= {
            s.get_name() for s in scope.get_symbols() if s.is_referenced() and (scope is top or s.is_global())
        }
        counted |= {s.get_name() for s in scope.get_symbols() if s.is_declared_global() and s.is_assigned()}
    own = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    return (frozenset(names) - bound(source)) | (counted - own)


def needs(place: int, sources: Sequence[str], ours: Set[str] = frozenset()) -> dict[int, str]:
    """Of the cells that make or change what cell ``place`` reads, and these in turn: the cell's place → one such name.

    sources: each cell's text (:func:`as_run`), as they were run. Of several that make a name it is the last, and those that
    change it behind that. ours: names of the course's.
    """
    needed, pending = dict[int, str](), [place]
    for at in pending:  # grows meanwhile
        for name in sorted(reads(sources[at]) - ours):
            maker = max(
                (i for i, source in enumerate(sources) if i != at and name in bound(source)), default=-1
            )
            changers = [i for i, source in enumerate(sources) if i > maker and name in changed(source)]
            for cell in [maker, *changers]:
                if cell not in (-1, place) and cell not in needed:
                    needed[cell] = name
                    pending.append(cell)
    return needed


def not_run(name: str, why: str) -> str:
    """What a student reads where an answer needs ``name``, and a cell that makes or changes it is refused."""
    return f"the cell that makes or changes `{name}`, which this answer needs, is not run when it is graded. {why}"
