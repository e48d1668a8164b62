"""Numbers in prose: a cell keeps them (``lesson.keep(step_ms=…)``), the text names them (``{{step_ms:.1f}}``), the build fills them in.

What was kept lies in the reference's outputs. So the text is checked without running a cell; nbval compares what was
kept, and the build refuses what its two runs keep differently, as they do where a clock gave it.
"""

import ast
import re
from collections.abc import Iterator

from nbformat import NotebookNode

from helpers.classroom.master import BadMaster, Cell, Master
from helpers.lesson import KEPT_MIME

SLOT = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
#: a name, and how Python's format() is to write its value
NAMED = re.compile(r"\s*([a-z]\w*)\s*(?::([^{}]*))?")


def check(master: Master) -> None:
    """Refuse a named value that no cell keeps, and a kept one that no text names or no run compares."""
    slots = list(_slots(master))
    kept = dict[str, Cell]()
    for cell in master.cells:
        for keyword in _kept(cell, master):
            where = f"{master.where(cell)}: lesson.keep({keyword}=…)"
            if keyword in kept:
                raise BadMaster(f"{where}: kept already on line {kept[keyword].line}; give it another name")
            if "nbval-ignore-output" in cell.tags:
                raise BadMaster(
                    f"{where}: nothing compares what this cell shows, so that a clock may have given it: keep it in "
                    "another cell, and keep counts and simulated times only"
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


def _kept(cell: Cell, master: Master) -> Iterator[str]:
    """The names under which a cell keeps something."""
    try:
        tree = ast.parse("" if cell.kind == "markdown" else cell.source)
    except SyntaxError:  # magics
        return
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if ast.unparse(call.func) == "lesson.keep":
            if call.args or not all(keyword.arg for keyword in call.keywords):
                raise BadMaster(f"{master.where(cell)}: write lesson.keep(name=value), each by its name")
            yield from (str(keyword.arg) for keyword in call.keywords)


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
