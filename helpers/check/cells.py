"""Which text of a notebook's cells is screened and run, in the visible test and when graded: one answer for both.

    as_run("%%time\\ndef f(x):\\n    return x")          # '\\ndef f(x):\\n    return x'
    needs(2, ["", "from math import *", "def f(x):\\n    return prod(x)"])     # {1: 'prod'}

IPython runs more than Python: commands, cells that are indented as a whole. What of a cell is Python runs when it is
graded too, and its commands are left out.
"""

import __future__

import ast
import builtins
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache

from helpers.check.screen import starred
from helpers.text.names import Names
from helpers.text.names import names as names_of

__all__ = [
    "FUTURES",
    "as_run",
    "answered",
    "bound",
    "changed",
    "futures",
    "gone",
    "needs",
    "not_run",
    "own_part",
    "reads",
]

#: commands that run the Python behind them in the notebook: %%count, %%bench and %%trace are the course's own
_RUNS = frozenset("bench capture count prun time trace".split())
#: lines that may be a command to IPython, which reads the whole cell anew for each
_LIKE_COMMANDS = re.compile(r"(?m)^[ \t]*[%!?;,/]|=[ \t]*[%!]|\?[ \t]*$")
#: … times the characters of the cell: above it, it is left as it is. An honest cell has thousands
_MOST_TRANSFORMED = 500_000
_COMMANDS = frozenset("getoutput run_cell_magic run_line_magic system".split())
#: names by which IPython keeps what was typed and shown
_KEPT = frozenset("_ __ ___ _dh _i _ih _ii _iii _oh In Out".split())
#: the compiler's flags that `from __future__ import …` can set
FUTURES = 0
for _name in __future__.all_feature_names:
    FUTURES |= getattr(__future__, _name).compiler_flag
#: what Python's own parser and tables raise of a text that is not Python, or too deep for them
_ODD = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


@lru_cache(4096)
def as_run(source: str) -> str:
    """A cell's Python, on the same lines; ``source`` itself where nothing has to be changed, or nothing can be.

    source: as it was typed, or as IPython keeps it in its history (``_ih``).
    """
    text, tree = _typed(source)
    if tree is None:
        return source
    # from the last to the first, so that places before stay what they are; of one line's bytes, as ast counts
    lines = text.encode("utf-8", "surrogatepass").splitlines(keepends=True)
    assigned = {node.value: node for node in ast.walk(tree) if isinstance(node, ast.Assign)}
    for node in reversed(list(_commands(tree))):
        kind, *said = node.func.attr, *(arg.value for arg in node.args if isinstance(arg, ast.Constant))
        runs = bool(said) and said[0] in _RUNS
        if kind == "run_cell_magic":
            return "\n" + as_run(str(said[-1])) if runs else ""
        python = str(said[-1]).strip() if runs and kind == "run_line_magic" else ""
        # what a command answers is not there when graded, and so the name that it is given is not, either
        whole = node if python else assigned.get(node, node)
        first, last = whole.lineno - 1, (whole.end_lineno or whole.lineno) - 1
        rest = lines[last][whole.end_col_offset :]
        lines[first] = lines[first][: whole.col_offset] + (python or "None").encode() + rest
        del lines[first + 1 : last + 1]
    return b"".join(lines).decode("utf-8", "surrogatepass")


def _typed(source: str) -> tuple[str, ast.Module | None]:
    """A cell as Python that calls IPython for its commands, and its tree; ``None`` for what is not Python even so."""
    if (tree := _parsed(source)) is not None:
        return source, tree
    if len(_LIKE_COMMANDS.findall(source)) * len(source) > _MOST_TRANSFORMED:
        return source, None
    try:
        from IPython.core.inputtransformer2 import TransformerManager

        text = TransformerManager().transform_cell(source)
    except (ImportError, RuntimeError, *_ODD):  # RuntimeError: after 500 commands IPython gives up
        return source, None
    return text, _parsed(text)


def answered(sources: Iterable[str]) -> frozenset[str]:
    """The names that IPython alone makes, where these cells are typed: those of commands' answers, and those that it keeps."""
    names = set(_KEPT)
    for source in sources:
        _, tree = _typed(source) if "%" in source or "!" in source else ("", None)
        commands = set(_commands(tree)) if tree else set[_Command]()
        for node in ast.walk(tree) if commands and tree else ():
            if isinstance(node, ast.Assign) and node.value in commands:
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        for node in commands:
            said = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            if node.func.attr == "run_cell_magic" and said[0] == "capture":
                names |= {name for name in str(said[1]).split() if name.isidentifier()}
    return frozenset(names)


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
    names = _names(source).made
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


def reads(source: str) -> frozenset[str]:
    """The names that a cell reads and does not make, or that only its functions change (``global calls``)."""
    of = _names(source)
    return (of.read - bound(source)) | of.counted


def _names(source: str) -> Names:
    try:
        return names_of(source)
    except _ODD:
        return Names(frozenset(), frozenset(), frozenset())


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


def gone(source: str, sources: Iterable[str], there: Iterable[str]) -> str | None:
    """One sentence, where a cell reads a name that no cell's Python makes: what IPython keeps (`_`, `Out`), or a command made.

    sources: the text of all cells (:func:`as_run`). there: the names that exist all the same.
    """
    names = reads(source) & frozenset(there) - frozenset((*dir(builtins), "display"))
    for cell in sources if names else ():
        names -= bound(cell) | _names(cell).counted
    if not names:
        return None
    return (
        f"`{min(names)}`, which this answer needs, is made by IPython alone (by a command, or as a cell's output), and is "
        "not there when it is graded: make it in a cell, in Python."
    )


def futures(source: str) -> int:
    """The compiler's flags that a cell's `from __future__ import …` sets: in a notebook all later cells have them, too."""
    tree, flags = _parsed(source) if "__future__" in source else None, 0
    for node in tree.body if tree else ():
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            features = [getattr(__future__, alias.name, None) for alias in node.names]
            flags |= sum({f.compiler_flag for f in features if f is not None})
    return flags


def not_run(name: str, why: str) -> str:
    """What a student reads where an answer needs ``name``, and a cell that makes or changes it is refused."""
    return f"the cell that makes or changes `{name}`, which this answer needs, is not run when it is graded. {why}"
