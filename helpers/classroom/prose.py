"""Numbers in prose: a cell keeps them (``lesson.keep(step_ms=…)``), the text names them (``{{step_ms:.1f}}``), the build fills them in.

What was kept lies in the reference's outputs: nbval compares it, and the text is checked without running a cell.
"""

import ast
import re
from collections.abc import Iterator

from nbformat import NotebookNode

from helpers.classroom.master import CLOCKS, BadMaster, Cell, Master, names
from helpers.lesson import KEPT_MIME

SLOT = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
#: a name, and how Python's format() is to write its value
NAMED = re.compile(r"\s*([a-z]\w*)\s*(?::([^{}]*))?")
#: they read the wall clock unless they are given a GPU, which is then asked for its own
TIMERS = {"bench", "compare"}
BLOCKS = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.ExceptHandler)
CHANGES = {"append", "extend", "insert", "update", "setdefault"}


def check(master: Master) -> None:
    """Refuse a named value that no cell keeps, a kept one that no text names, and one that a clock gave."""
    slots = list(_slots(master))
    kept, clocks = dict[str, Cell](), set[str]()
    for cell in master.cells:
        for keyword, clocked in _kept(cell, master, clocks):
            where = f"{master.where(cell)}: lesson.keep({keyword}=…)"
            if keyword in kept:
                raise BadMaster(f"{where}: kept already on line {kept[keyword].line}; give it another name")
            if clocked or "nbval-ignore-output" in cell.tags:
                raise BadMaster(
                    f"{where}: a clock gave this, and the next machine's says otherwise: say it in words, and keep counts and simulated times only"
                )
            if keyword not in {name for name, *_ in slots}:
                raise BadMaster(f"{where}: no text uses it; write {{{{{keyword}}}}} or do not keep it")
            kept[keyword] = cell
    for name, _, where in slots:
        if name not in kept:
            raise BadMaster(f"{where}: no cell keeps {{{{{name}}}}}; there are {', '.join(kept) or 'none'}")


def _slots(master: Master) -> Iterator[tuple[str, str, str]]:
    for cell in master.cells:
        for slot in SLOT.finditer(cell.source) if cell.kind == "markdown" else ():
            where = f"{master.path.name}:{cell.line + 1 + cell.source[: slot.start()].count(chr(10))}"
            named = NAMED.fullmatch(slot[1])
            if named is None:
                raise BadMaster(f"{where}: {slot[0]} is not {{{{name}}}} or {{{{name:format}}}}")
            yield named[1], named[2] or "", where


def _kept(cell: Cell, master: Master, clocks: set[str]) -> Iterator[tuple[str, bool]]:
    """What a cell keeps, and whether it rests on a clock; ``clocks``: the names that do so far, brought up to date."""
    try:
        pending: list[ast.AST] = [] if cell.kind == "markdown" else list(ast.parse(cell.source).body)
    except SyntaxError:  # magics
        return
    while pending:
        statement = pending.pop(0)
        if isinstance(statement, BLOCKS):  # its head, then what it holds, in order
            pairs = [(item.optional_vars, item.context_expr) for item in getattr(statement, "items", ())]
            if isinstance(statement, ast.For):
                pairs = [(statement.target, statement.iter)]
            heads = [ast.Assign([to], value, lineno=0) if to else value for to, value in pairs]
            held = [n for n in ast.iter_child_nodes(statement) if isinstance(n, ast.stmt | ast.ExceptHandler)]
            pending[:0] = [*heads, *held]
            continue
        for call in (n for n in ast.walk(statement) if isinstance(n, ast.Call)):
            if ast.unparse(call.func) == "lesson.keep":
                if call.args or not all(k.arg for k in call.keywords):
                    raise BadMaster(f"{master.where(cell)}: write lesson.keep(name=value), each by its name")
                yield from ((str(k.arg), _reads_a_clock(k.value, clocks)) for k in call.keywords)
        if _reads_a_clock(statement, clocks):
            clocks |= _written(statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            clocks -= {
                t.id for t in ast.walk(statement) if isinstance(t, ast.Name) and isinstance(t.ctx, ast.Store)
            }


def _reads_a_clock(node: ast.AST, clocks: set[str]) -> bool:
    live = any(
        isinstance(n, ast.Call) and ast.unparse(n.func) in TIMERS and "gpu" not in {k.arg for k in n.keywords}
        for n in ast.walk(node)
    )
    node = getattr(node, "value", None) or node if isinstance(node, ast.Assign | ast.AnnAssign) else node
    source = ast.unparse(node)
    return live or bool(names(source)[0] & clocks) or CLOCKS.search(source) is not None


def _written(statement: ast.AST) -> set[str]:
    """The names that a statement binds or changes: x, f, times[n] = …, rows.append(…)."""
    bound = {getattr(statement, "name", "")}
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute) and node.attr in CHANGES:
            node = node.value
        elif not isinstance(getattr(node, "ctx", None), ast.Store):
            continue
        while isinstance(node, ast.Subscript | ast.Attribute):
            node = node.value
        bound.add(getattr(node, "id", ""))
    return bound - {""}


def fill(nb: NotebookNode, master: Master, ran: NotebookNode) -> None:
    """Write into the text of ``nb`` what the cells of ``ran``, the same notebook executed, have kept."""
    values: dict[str, object] = {}
    for output in (o for node in ran.cells for o in node.get("outputs", ())):
        values |= output.get("data", {}).get(KEPT_MIME, {})
    where = {(name, form): place for name, form, place in _slots(master)}

    def written(slot: re.Match[str]) -> str:
        name, form = NAMED.fullmatch(slot[1]).groups(default="")  # type: ignore[union-attr]
        try:
            return format(values[name], form)
        except (KeyError, ValueError) as problem:
            raise BadMaster(f"{where[name, form]}: {slot[0]} cannot be filled in: {problem!r}") from None

    for node, cell in zip(nb.cells, master.cells, strict=False):
        if cell.kind == "markdown":
            node.source = SLOT.sub(written, cell.source)
