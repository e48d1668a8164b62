"""A submission's cells held against the master's: which cell is whose, what was split, copied, merged or lost.

A cell is the master's cell with the same text, else the one that its ``grade_id`` or ``id`` names. What counts as an
answer does not rest on that: it is the code that defines an exercise's names, wherever the student wrote it.
"""

import builtins
import copy
import re
import warnings
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from nbformat import NotebookNode, from_dict

from helpers.classroom.master import KINDS, MARKERS
from helpers.classroom.reading import NotGradable, Written
from helpers.classroom.settings import OPEN_STUB, STUB
from helpers.text.names import names

#: the line of a top-level definition: def, class, or a name that is assigned
_DEFINES = re.compile(
    r"(?m)^(?:(?:async[ \t]+def|def|class)[ \t]+(\w+)|([A-Za-z_]\w*)[ \t]*(?::[^=\n]+)?=(?!=))"
)
_CONFLICT = re.compile(r"(?m)^(?:<{7}|>{7}) ")
#: what cannot begin a cell
_INDENTED = re.compile(r"\n*[ \t]+\S")
#: characters of a text that says which cell it is wherever it stands
_TELLING = 30
#: characters of a split cell whose parts are joined, and how often that is tried in a notebook: each time it is compiled
_LONGEST_SPLIT, _MOST_JOINS = 10_000, 200
#: roles of cells whose text is the master's
_LOCKED = ("setup", "test", "hidden")


@dataclass(frozen=True, eq=False)
class Own:
    """A cell of the master's. exercise: whose it is, "" where no exercise's. node: as built, with the solution."""

    place: int
    role: str
    exercise: str
    grade_id: str
    node: NotebookNode

    @cached_property
    def stub(self) -> str:
        """The text that the student was given, with a raise wherever an answer goes."""
        text = self.node.source
        begin, end = (re.escape(mark) for mark in MARKERS["exercise"])
        text = re.sub(rf"(?ms)^([ \t]*){begin}.*?{end}[^\n]*", rf"\1{STUB}", text)
        begin, end = (re.escape(mark) for mark in MARKERS["hidden"])
        return re.sub(rf"(?s){begin}.*?{end}", "", text).strip()

    @cached_property
    def pieces(self) -> dict[str, str]:
        """The definitions that the student was given: name → text."""
        return {name: text for name, text in _pieces(self.stub) if name}

    @cached_property
    def asked(self) -> frozenset[str]:
        """The names whose definition the student has to write; none where the cell is no exercise."""
        return frozenset(name for name, text in self.pieces.items() if STUB in text)

    def is_given(self, text: str) -> bool:
        """Whether this is its text, as it was handed out or as it was built."""
        return _normal(text) in (_normal(self.stub), _normal(self.node.source))


@dataclass
class Matched:
    """A submission that can be graded.

    notebook: the clean one. answered: how many exercises are not as they were given. notes: what was put right. human:
    what a person should look at, since it could have been meant otherwise. digest: sha256 of the bytes that were read.
    """

    notebook: NotebookNode
    answered: int
    notes: list[str] = field(default_factory=list)
    human: list[str] = field(default_factory=list)
    digest: str = ""


@dataclass(frozen=True, eq=False)
class _Cell:
    """A cell on its way into the clean notebook. own: the master's that it is, if any. order: where it stood."""

    kind: str
    source: str
    id: str = ""
    own: Own | None = None
    order: int = -1

    @cached_property
    def defines(self) -> frozenset[str]:
        return frozenset(name for name, _ in _pieces(self.source) if name)

    @property
    def role(self) -> str:
        return self.own.role if self.own else ""

    def answers(self, exercise: Own) -> frozenset[str]:
        """The names asked by an exercise that this cell defines otherwise than they were given."""
        asked = self._beside(exercise)
        return frozenset(
            name
            for name, text in (_pieces(self.source) if asked else ())
            if name in asked and _normal(text) != _normal(exercise.pieces[name])
        )

    def _beside(self, exercise: Own) -> frozenset[str]:
        """The names asked by an exercise that this cell defines, but for those that an experiment of the master's has too."""
        own = self.own.pieces.keys() if self.own and self.role != "exercise" else frozenset()
        return exercise.asked & (self.defines - own)

    def is_about(self, exercise: Own) -> bool:
        return self.own is exercise or bool(self._beside(exercise))


def match(written: Sequence[Written], reference: NotebookNode, name: str) -> Matched:
    """The clean notebook of a submission. Raises :class:`NotGradable` where it is no notebook of this lesson."""
    owns = list(owned(reference))
    cells = _labelled(written, owns)
    _refuse_another_lesson(cells, written, owns, name)
    result = Matched(NotebookNode(), 0)
    apart = _joined(_taken_apart(cells, owns, result.notes), owns, result.notes)
    cells = [replace(cell, order=order) for order, cell in enumerate(apart)]
    kept: dict[int, _Cell] = {}
    for own in owns:
        if own.role == "exercise":
            kept[own.place], cells = _answer(own, cells, result)
            result.answered += _normal(kept[own.place].source) != _normal(own.stub)
    for own in owns:
        if own.role != "exercise":
            cells = _settled(own, cells, kept, result.notes)
    if not result.answered:
        result.notes.append("no exercise was answered: every exercise's cell is as it was given")
    result.notebook = _notebook(owns, kept, sorted(cells, key=lambda c: c.order), reference)
    return result


def owned(reference: NotebookNode) -> Iterator[Own]:
    """The master's cells, with their roles."""
    for place, node in enumerate(reference.cells):
        marks = node.metadata.get("nbgrader", {})
        grade_id = str(marks.get("grade_id", ""))
        tags = [tag for tag in node.metadata.get("tags", []) if tag in KINDS]
        role = tags[0] if tags and node.cell_type == "code" else "text"
        exercise = grade_id if role == "exercise" else ""
        if role in ("test", "hidden"):
            exercise = grade_id.rpartition("__")[0]
        yield Own(place, role, exercise, grade_id, node)


# --- which cell is which ------------------------------------------------------------------------------------------


def _labelled(written: Sequence[Written], owns: Sequence[Own]) -> list[_Cell]:
    by_grade_id = {o.grade_id: o for o in owns if o.grade_id}
    by_id = {o.node.get("id"): o for o in owns}
    by_text: dict[str, list[Own]] = defaultdict(list)
    for own in owns:
        for text in {_normal(own.node.source), _normal(own.stub)} - {""}:
            by_text[text].append(own)
    cells: list[_Cell] = []
    taken: set[Own | None] = set()
    for w in map(_dedented, written):
        named = by_grade_id.get(w.grade_id) or by_id.get(w.id)
        same = by_text.get(_normal(w.source), [])
        if same and named not in same:
            # several cells of the master's may have one text: they come in their order
            named = next((own for own in same if own not in taken), same[-1])
        taken.add(named)
        cells.append(_Cell(w.kind, w.source, w.id, named))
    return cells


def _refuse_another_lesson(
    cells: Sequence[_Cell], written: Sequence[Written], owns: Sequence[Own], name: str
) -> None:
    started = {
        s for w in written for s in re.findall(r"""lesson\.start\(\s*["']([\w-]{1,60})["']""", w.source)
    }
    # set-up cells, texts and the comments that stand for hidden tests may be the same in several lessons
    telling = {own for own in owns if own.role in ("experiment", "exercise", "test")}
    known = {own for own in telling if any(c.own is own or c.answers(own) for c in cells)}
    ids = {own.grade_id for own in owns}
    foreign = {w.grade_id for w in written if w.grade_id and w.grade_id not in ids}
    if started and name not in started and (len(foreign) > len(known) or len(known) < len(telling) / 4):
        raise NotGradable(
            f"this is the notebook of lesson {min(started)} and not of {name}: hand in {name}.ipynb here"
        )
    if not known:
        raise NotGradable(
            f"no cell of lesson {name} is in it ({len(written)} cells, none with an exercise's name): hand in "
            f"{name}.ipynb, with your answers"
        )


def _taken_apart(cells: Sequence[_Cell], owns: Sequence[Own], notes: list[str]) -> Iterator[_Cell]:
    """Cells that were merged, as the cells that they were, where an exercise's or a locked one is among them."""
    given: dict[str, list[Own]] = defaultdict(list)
    for own in owns:
        for text in {own.node.source.strip(), own.stub}:
            if len(text) >= _TELLING and own.role != "exercise":
                given[text].append(own)
    longest_first = sorted(given, key=len, reverse=True)
    others = re.compile(rf"(?m)^({'|'.join(map(re.escape, longest_first))})[ \t]*$")
    answered = {c.own for c in cells if c.own and c.answers(c.own)}
    for cell in cells:
        about = [own for own in owns if own.role == "exercise" and cell.is_about(own)]
        locked = cell.role in _LOCKED
        if cell.own and cell.own.is_given(cell.source) or not about and not locked:
            yield cell
            continue
        start = (cell.own or about[0]).place
        open_ones = [own for own in about if own is cell.own or own not in answered]
        pieces = others.split(cell.source) if given else [cell.source]
        parts: list[_Cell] = []
        for i, text in enumerate(pieces):
            if i % 2:
                # of several cells with one text it was the next
                other = next((own for own in given[text] if own.place >= start), given[text][-1])
                parts.append(_Cell("markdown" if other.role == "text" else "code", text, "", other))
            elif text.strip():
                whose = None if locked and len(pieces) > 1 else cell.own
                part = replace(cell, source=text.strip("\n"), id="" if parts else cell.id, own=whose)
                parts += [part] if part.role in _LOCKED else _by_owner(part, open_ones)
        if len(parts) > 1:
            what = about[0] if about else cell.own
            notes.append(
                f"cell {what.grade_id if what else ''} held more than its own text, and was taken apart"
            )
        yield from parts or [cell]


def _by_owner(cell: _Cell, exercises: Sequence[Own]) -> list[_Cell]:
    """A cell that defines names of several exercises, as one cell for each."""
    # what stands above the first definition belongs to it, but where it is prose or an experiment's
    apart = cell.kind != "code" or cell.own is not None and cell.role != "exercise"
    parts: list[tuple[Own | None, str]] = []
    for name, text in _pieces(cell.source):
        owner = next((e for e in exercises if name in e.asked), parts[-1][0] if parts else None)
        if parts and (parts[-1][0] is owner or parts[-1][0] is None and not apart):
            parts[-1] = (owner, parts[-1][1] + text)
        else:
            parts.append((owner, text))
    if len(parts) < 2:
        owner = parts[0][0] if parts else None
        return [replace(cell, own=owner) if owner and cell.own else cell]
    return [
        replace(
            cell, source=text.strip("\n"), id="" if i else cell.id, own=own or (cell.own if apart else None)
        )
        for i, (own, text) in enumerate(parts)
    ]


def _joined(cells: Iterator[_Cell], owns: Sequence[Own], notes: list[str]) -> list[_Cell]:
    """The cells, those that were split put together again: parts that say whose they are, and an indented rest."""
    apart = list(cells)
    known = {name for cell in apart for name in cell.defines} | set(dir(builtins))
    known |= {name for own in owns for name in own.pieces}
    whole: list[_Cell] = []
    last: dict[Own | None, int] = {}  # an exercise or experiment → its latest cell in `whole`
    tried = 0
    for cell in apart:
        at = last.get(cell.own, -1)
        if cell.own is None and _INDENTED.match(cell.source) and whole and whole[-1].role not in _LOCKED:
            at = len(whole) - 1
        before = whole[-1].own if whole and whole[-1].role == "setup" else None
        if before and cell.own in (None, before):  # a set-up cell only if it comes out as it was given
            given = [whole[-1].source + between + cell.source for between in ("\n", "")]
            if source := next(filter(before.is_given, given), ""):
                whole[-1] = replace(whole[-1], source=source)
                continue
        first = whole[at] if at >= 0 else None
        short = first and len(first.source) + len(cell.source) < _LONGEST_SPLIT
        if first and short and cell.kind == first.kind == "code" and tried < _MOST_JOINS:
            tried += 1
            # one below the other, or in the middle of a line: where that is better Python, or leaves fewer names unknown
            ways = [first.source + "\n" + cell.source, first.source + cell.source]
            best = min(ways, key=lambda text: _problems([text], known))
            if _problems([best], known) < _problems([first.source, cell.source], known):
                whole[at] = replace(first, source=best)
                if first.own and first.role == "exercise":
                    notes.append(f"exercise {first.own.grade_id}: its cell was split, and was joined again")
                continue
        if cell.role in ("exercise", "experiment") and cell.source.strip():
            last[cell.own] = len(whole)
        whole.append(cell)
    return whole


def _problems(texts: Sequence[str], known: set[str]) -> tuple[int, int]:
    """(how many of the texts are no Python, and where all are, how many names they use that nothing defines)."""
    broken, unknown = 0, set[str]()
    for text in texts:
        text = re.sub(r"(?m)^[ \t]*[%!].*$", "", text)
        if _INDENTED.match(text):
            broken += 1
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(text, "<cell>", "exec", dont_inherit=True)
                unknown |= names(text).read
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
            broken += 1
    return broken, 0 if broken else len(unknown - known)


# --- answers ------------------------------------------------------------------------------------------------------


def _answer(own: Own, cells: list[_Cell], result: Matched) -> tuple[_Cell, list[_Cell]]:
    """An exercise's cell as it counts, and the cells that are left."""
    told = f"exercise {own.grade_id}: "
    mine = [cell for cell in cells if cell.own is own]
    able = [c for c in cells if (c.own is own or c.role != "exercise") and c.answers(own)]
    answering = [c for c in able if c.kind == "code"]
    if not answering and (answering := [c for c in able if _problems([c.source], set())[0] == 0]):
        result.notes.append(told + "its cell was no code cell any more, and was made one again")
    chosen = _chosen(own, answering, _first_test(own, cells))
    if not answering:
        given = _normal(own.stub)
        chosen = [c for c in mine if c.kind == "code" and _normal(c.source) not in ("", given)][:1]
        if not chosen and not any(_normal(c.source) == given for c in mine):
            result.notes.append(
                told + "its cell was gone, empty or no code, and was put back as it was given"
            )
    copies = [c for c in mine if c.kind == "code" and c.defines & own.asked]
    if any(c.own is not own for c in chosen):
        result.notes.append(told + "the answer, or a part of it, was taken from another cell, where it stood")
    elif len(chosen) > 1:
        result.notes.append(told + "its cell was split, and was joined again")
    if len({_normal(c.source) for c in answering}) > len(chosen):
        result.human.append(
            f"{told}it is answered {len(answering)} times, and differently; of the answers above its test the last one "
            "was graded"
        )
    elif len(copies) > max(1, len(chosen)):
        result.notes.append(f"{told}its cell was there {len(copies)} times, and was graded once")
    text = "\n\n\n".join(c.source.strip("\n") for c in chosen) or own.stub
    if chosen != mine:  # what the exercise's own cell gave besides
        defined = {name for name, _ in _pieces(text)}
        besides = [t.strip("\n") for n, t in _pieces(own.stub) if n not in defined and t.strip() not in text]
        text = "\n\n\n".join([*besides, text])
    if _CONFLICT.search(text):
        result.human.append(told + "its cell holds the marks of a merge conflict")
    order = (chosen or mine or [_Cell("code", "")])[0].order
    answer = _Cell("code", as_given(text), "", own, order)
    spare = [_spare(own, c, answer) for c in cells if c in {*mine, *answering} - {*chosen}]
    others = [c for c in cells if c not in {*mine, *answering}]
    return answer, others + [c for c in spare if c]


def _chosen(own: Own, answering: Sequence[_Cell], test: int) -> list[_Cell]:
    """For each name the last answer above the exercise's test, as when the notebook runs from top to bottom."""
    chosen = set()
    for name in own.asked:
        able = [i for i, cell in enumerate(answering) if name in cell.answers(own)]
        above = [i for i in able if answering[i].order < test]
        if able:
            chosen.add(above[-1] if above else able[0])
    return [answering[i] for i in sorted(chosen)]


def _first_test(own: Own, cells: Sequence[_Cell]) -> int:
    """Where the exercise's first test stands in the submission; without one, below all."""
    tests = [c for c in cells if c.own and c.own.exercise == own.exercise and c.role in ("test", "hidden")]
    return min((c.order for c in tests), default=cells[-1].order + 1)


def _spare(own: Own, cell: _Cell, answer: _Cell) -> _Cell | None:
    """What becomes of a cell that is not the answer: kept to be read, and to be run for names that are not the exercise's."""
    if any(_normal(cell.source) == _normal(text) for text in ("", own.stub, answer.source)):
        return None
    runs = not cell.defines & own.pieces.keys() or (
        cell.defines - own.pieces.keys() and cell.order < answer.order
    )
    return replace(cell, own=None, kind=cell.kind if runs or cell.kind != "code" else "raw")


# --- the other cells, and the whole ---------------------------------------------------------------------------------


def _settled(own: Own, cells: list[_Cell], kept: dict[int, _Cell], notes: list[str]) -> list[_Cell]:
    """Settle a cell of the master's that is no exercise; the cells that are left."""
    mine = [c for c in cells if c.own is own]
    left = [c for c in cells if c.own is not own]
    edited = [c for c in mine if not own.is_given(c.source)]
    if own.role in _LOCKED:
        kept[own.place] = _Cell("code", own.node.source, "", own, mine[0].order if mine else -1)
        if not mine:
            notes.append(f"cell {own.grade_id} was gone, and was put back")
        elif edited:
            notes.append(f"cell {own.grade_id} was changed, and is the course's again")
        elif len(mine) > 1:
            notes.append(f"cell {own.grade_id} was there {len(mine)} times, and was graded once")
        more = edited if own.role == "setup" else []
    elif mine:
        first = (edited or mine)[0]
        kept[own.place] = replace(first, kind=own.node.cell_type if first.kind == "code" else first.kind)
        more = [c for c in edited if c is not first]
    else:
        more = []
    return left + [replace(c, own=None) for c in more]


def _notebook(
    owns: Sequence[Own], kept: dict[int, _Cell], added: Sequence[_Cell], reference: NotebookNode
) -> NotebookNode:
    """kept: place → the cell that stands there. added: what the student added, each below what it stood below."""
    ids = {o.node.get("id") for o in owns}
    fixed = sorted((cell.order, place) for place, cell in kept.items() if cell.order >= 0)
    below: dict[int, list[_Cell]] = defaultdict(list)
    for cell in added:
        if cell.source.strip():
            at = bisect_right(fixed, cell.order, key=lambda stood: stood[0])
            below[fixed[at - 1][1] if at else -1].append(cell)
    cells: list[NotebookNode] = []
    places: list[tuple[int, Own | None]] = [(-1, None), *enumerate(owns)]
    for place, own in places:
        if own and (matched := kept.get(place)):
            edited = own.role == "experiment" and matched.source != own.node.source
            about = {"role": "edited" if edited else own.role, "exercise": own.exercise}
            metadata = copy.deepcopy(dict(own.node.metadata)) | {"course": about}
            cells.append(_made(matched.kind, matched.source, own.node["id"], metadata))
        # between an exercise and its last test it belongs to that exercise
        tested = own and any(o.exercise == own.exercise and o.place > place for o in owns)
        for cell in below[place]:
            name = cell.id if cell.id and cell.id not in ids else f"added-{len(ids)}"
            ids.add(name)
            about = {"role": "added", "exercise": own.exercise if own and tested else ""}
            cells.append(_made(cell.kind, cell.source, name, {"course": about}))
    about = {
        key: reference.metadata[key] for key in ("kernelspec", "language_info") if key in reference.metadata
    }
    return from_dict({"nbformat": 4, "nbformat_minor": 5, "metadata": copy.deepcopy(about), "cells": cells})


def _made(kind: str, source: str, name: str, metadata: dict[str, Any]) -> NotebookNode:
    # nbformat's new_code_cell holds each against the schema, which takes longer than all the rest here
    cell: dict[str, Any] = {"cell_type": kind, "id": name, "metadata": metadata, "source": source}
    if kind == "code":
        cell |= {"outputs": [], "execution_count": None}
    return from_dict(cell)


# --- text ---------------------------------------------------------------------------------------------------------


def _dedented(cell: Written) -> Written:
    """A cell that is indented as a whole, as IPython runs it; of a split cell's rest nothing is taken away."""
    if cell.kind != "code" or not _INDENTED.match(cell.source):
        return cell
    indent = re.match(r"\n*([ \t]+)", cell.source)[1]  # type: ignore[index]
    source = re.sub(rf"(?m)^{indent}", "", cell.source)
    begins = re.match(r"\s*(?:@|#|(?:async|def|class|import|from)\b)", source) or cell.grade_id
    return replace(cell, source=source) if begins and _problems([source], set())[0] == 0 else cell


def _pieces(source: str) -> list[tuple[str, str]]:
    """Code cut where a top-level definition begins: (its name, text), in order; what stands before has no name."""
    begins = [
        (_with_above(source, found.start()), found[1] or found[2]) for found in _DEFINES.finditer(source)
    ]
    ends = [*(start for start, _ in begins), len(source)]
    pieces = [("", source[: ends[0]])] if ends[0] else []
    return pieces + [(name, source[start:end]) for (start, name), end in zip(begins, ends[1:], strict=True)]


def _with_above(source: str, start: int) -> int:
    """Where a definition begins with the decorators and comments above it; one regular expression for all would look at
    ten thousand lines of comments ten thousand times."""
    while start:
        above = source.rfind("\n", 0, start - 1) + 1
        if source[above] not in "@#":
            break
        start = above
    return start


def as_given(text: str) -> str:
    """With the comment that a student was given, where the master's text has a raise in no function."""
    return re.sub(rf"(?m)^{re.escape(STUB)}$", OPEN_STUB, text)


def _normal(text: str) -> str:
    """A text without what an editor may change: blank lines, and blanks at a line's end."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(STUB if line == OPEN_STUB else line for line in lines)
