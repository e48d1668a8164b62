"""A submission's cells held against the master's: which cell is whose, what was split, copied, merged or lost.

A cell belongs to the master's cell with the same text, else to the one that its ``grade_id`` or ``id`` names, else to
the exercise whose names it defines, else the one with which it shares most lines. What counts as an answer does not
rest on that: it is the code that defines an exercise's names, wherever the student wrote it.
"""

import builtins
import copy
import itertools
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from nbformat import NotebookNode, from_dict

from helpers.classroom.master import KINDS, MARKERS, names
from helpers.classroom.reading import NotGradable, Written
from helpers.classroom.settings import OPEN_STUB, STUB

#: where a top-level definition begins: def, class, or a name that is assigned
_DEFINES = re.compile(r"(?:async[ \t]+def|def|class)[ \t]+(\w+)|([A-Za-z_]\w*)[ \t]*(?::[^=\n]+)?=(?!=)")
_CONFLICT = re.compile(r"(?m)^(?:<{7}|>{7}) ")
#: what cannot begin a cell
_INDENTED = re.compile(r"\n*[ \t]+\S")
#: characters of a text that says which cell it is wherever it stands
_TELLING = 30
#: parts of a split cell for which every way of joining is tried, and their characters
_MOST_PARTS, _LONGEST_PARTS = 5, 20_000
#: of the lines of two cells that may be the same cell, edited: the share that both have
_ALIKE = 0.5
_ADDED = "added"
#: an experiment that a student has changed
_EDITED = "edited"
#: roles of cells whose text is the master's
_LOCKED = ("setup", "test", "hidden")


@dataclass(frozen=True)
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
    def given(self) -> str:
        """The text that the student was given, to the letter."""
        return _as_given(self.stub)

    @cached_property
    def pieces(self) -> dict[str, str]:
        """The definitions that the student was given: name → text."""
        return {name: text for name, text in _pieces(self.stub) if name}

    @cached_property
    def asked(self) -> frozenset[str]:
        """The names whose definition the student has to write."""
        return frozenset(name for name, text in self.pieces.items() if STUB in text)

    def answered(self, pieces: Iterable[tuple[str, str]]) -> frozenset[str]:
        """The asked names that ``pieces`` of code define otherwise than they were given."""
        return frozenset(
            name
            for name, text in pieces
            if name in self.asked and _normal(text) != _normal(self.pieces[name])
        )


@dataclass
class Matched:
    """notebook: the clean one. answered: how many exercises are not as they were given. notes, human: sentences."""

    notebook: NotebookNode
    answered: int
    notes: list[str] = field(default_factory=list)
    human: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Cell:
    """A cell on its way into the clean notebook. order: where it stood. own: the master's that it is, if any."""

    order: int
    kind: str
    source: str
    id: str
    own: Own | None = None

    @cached_property
    def pieces(self) -> list[tuple[str, str]]:
        return _pieces(self.source)

    @cached_property
    def defines(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.pieces if name)

    def answers(self, own: Own) -> frozenset[str]:
        """The names asked by an exercise that this cell defines otherwise than they were given."""
        return own.answered(self.pieces) if own.asked & self.defines else frozenset()

    def is_exercise(self) -> bool:
        return self.own is not None and self.own.role == "exercise"


@dataclass(frozen=True)
class _Version:
    """One answer to an exercise: the cells that it is made of, their text, and those that only stood beside it."""

    cells: list[_Cell]
    text: str
    beside: list[_Cell]
    answers: frozenset[str]


def match(written: Sequence[Written], reference: NotebookNode, name: str) -> Matched:
    """The clean notebook of a submission. Raises :class:`NotGradable` where it is no notebook of this lesson."""
    owns = list(owned(reference))
    written = [_dedented(w) for w in written]
    cells = _labelled(written, owns)
    _refuse_another_lesson(cells, written, owns, name)
    result = Matched(NotebookNode(), 0)
    apart = _taken_apart(cells, owns, result.notes)
    cells = [replace(cell, order=order) for order, cell in enumerate(apart)]
    kept: dict[int, _Cell] = {}
    for own in owns:
        if own.role == "exercise":
            kept[own.place], cells = _answer(own, owns, cells, result)
    for own in owns:
        if own.role != "exercise":
            cells = _settle(own, cells, kept, result)
    result.answered = sum(
        _normal(kept[o.place].source) != _normal(o.stub) for o in owns if o.role == "exercise"
    )
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
        for text in {_normal(own.node.source), _normal(own.stub)}:
            by_text[text].append(own)
    owners: list[Own | None] = []
    for w in written:
        same = by_text.get(_normal(w.source), [])
        owners.append(same[0] if len(same) == 1 else by_grade_id.get(w.grade_id) or by_id.get(w.id))
    taken = {own.place for own in owners if own}
    for i, w in enumerate(written):
        if owners[i] is None and (several := by_text.get(_normal(w.source))) and w.source.strip():
            # several cells of the master's may have one text: they come in their order
            own = next((own for own in several if own.place not in taken), several[-1])
            owners[i] = own
            taken.add(own.place)
    cells = [
        _Cell(i, w.kind, w.source, w.id, own) for i, (w, own) in enumerate(zip(written, owners, strict=True))
    ]
    free = [own for own in owns if own.place not in taken]
    for own in free:
        if own.role == "exercise":
            cells = [
                replace(c, own=own) if c.own is None and c.kind == "code" and own.asked & c.defines else c
                for c in cells
            ]
    cells = _labelled_by_lines(cells, [own for own in free if own.role != "exercise"])
    # the rest of a split cell cannot stand alone
    for i in range(1, len(cells)):
        if cells[i].own is None and cells[i].kind == "code" and _INDENTED.match(cells[i].source):
            if cells[i - 1].is_exercise():
                cells[i] = replace(cells[i], own=cells[i - 1].own)
    return cells


def _labelled_by_lines(cells: list[_Cell], free: Sequence[Own]) -> list[_Cell]:
    """Edited cells without marks: each gets the free cell of the master's with which it shares most lines."""
    holders: dict[str, list[int]] = defaultdict(list)
    left = {own.place: own for own in free}
    for own in free:
        for line in set(_lines(own.stub)):
            holders[line].append(own.place)
    labelled = list(cells)
    for i, cell in enumerate(cells):
        lines = set(_lines(cell.source)) if cell.own is None else set()
        shared = Counter(place for line in lines for place in holders.get(line, ()) if place in left)
        if not shared:
            continue
        place, many = shared.most_common(1)[0]
        own = left[place]
        if many / len(lines | set(_lines(own.stub))) >= _ALIKE and (own.role == "text") == (
            cell.kind != "code"
        ):
            labelled[i] = replace(cell, own=left.pop(place))
    return labelled


def _refuse_another_lesson(
    cells: Sequence[_Cell], written: Sequence[Written], owns: Sequence[Own], name: str
) -> None:
    started = {
        s for w in written for s in re.findall(r"""lesson\.start\(\s*["']([\w-]{1,60})["']""", w.source)
    }
    # set-up cells, texts and the comments that stand for hidden tests may be the same in several lessons
    telling = {o.place for o in owns if o.role in ("experiment", "exercise", "test")}
    known = telling & {c.own.place for c in cells if c.own}
    ids = {o.grade_id for o in owns}
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
    """Cells of exercises that were merged with others, as the cells that they were."""
    exercises = [own for own in owns if own.role == "exercise"]
    given: dict[str, list[Own]] = defaultdict(list)
    for each in owns:
        for text in {each.node.source.strip(), each.stub}:
            if len(text) >= _TELLING and each.role != "exercise":
                given[text].append(each)
    longest_first = sorted(given, key=len, reverse=True)
    answered = {c.own.place for c in cells if c.own and c.answers(c.own)}
    for cell in cells:
        own = cell.own
        # an experiment of the master's may have a name of an exercise's
        about = [
            e
            for e in exercises
            if own is e
            or e.asked & (cell.defines - (own.pieces.keys() if own and own.role == "experiment" else set()))
        ]
        as_given = own is not None and _normal(cell.source) in (_normal(own.stub), _normal(own.node.source))
        locked = own is not None and own.role in _LOCKED
        if as_given or not about and not locked:
            yield cell
            continue
        pieces = [cell]
        start = own.place if own else about[0].place
        for text in longest_first:
            # of several cells with one text it was the next
            other = next((o for o in given[text] if o.place >= start), given[text][-1])
            pieces = [part for piece in pieces for part in _cut(piece, text, other)]
        open_ones = [e for e in about if e is own or e.place not in answered]
        pieces = [
            part
            for piece in pieces
            for part in (
                _by_owner(piece, open_ones) if not piece.own or piece.own.role not in _LOCKED else [piece]
            )
        ]
        if len(pieces) > 1:
            what = about[0] if about else own
            notes.append(
                f"cell {what.grade_id if what else ''} held more than its own text, and was taken apart"
            )
        yield from pieces


def _cut(piece: _Cell, text: str, other: Own) -> list[_Cell]:
    """A cell cut where it holds the whole ``text`` of another; the cell itself where it does not."""
    if text not in piece.source or piece.own is other and piece.source.strip() == text:
        return [piece]
    span = re.search(rf"(?m)^{re.escape(text)}[ \t]*$", piece.source)
    if span is None:
        return [piece]
    own = piece.own if piece.is_exercise() else None
    parts = [
        replace(piece, source=piece.source[: span.start()].strip("\n"), own=own),
        replace(piece, kind="markdown" if other.role == "text" else "code", source=text, id="", own=other),
        replace(piece, source=piece.source[span.end() :].strip("\n"), id="", own=own),
    ]
    return [part for part in parts if part.source.strip()]


def _by_owner(cell: _Cell, exercises: Sequence[Own]) -> list[_Cell]:
    """A cell that defines names of several exercises, as one cell for each."""
    # what stands above the first definition belongs to it, but where it is prose or an experiment's
    apart = cell.kind != "code" or cell.own is not None and not cell.is_exercise()
    parts: list[tuple[Own | None, str]] = []
    for name, text in cell.pieces:
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


# --- answers ------------------------------------------------------------------------------------------------------


def _answer(own: Own, owns: Sequence[Own], cells: list[_Cell], result: Matched) -> tuple[_Cell, list[_Cell]]:
    """An exercise's cell as it counts, and the cells that are left."""
    mine = [cell for cell in cells if cell.own is own]
    mine = [cell for cell in mine if cell.source.strip()] or mine
    strangers = [cell for cell in cells if not cell.is_exercise() and cell.answers(own)]
    # an experiment of the master's may have a name of an exercise's
    strangers = [c for c in strangers if not (c.own and own.asked & c.own.pieces.keys())]
    known = {name for cell in cells for name in cell.defines} | own.pieces.keys()
    code = _versions(own, [c for c in mine if c.kind == "code"], known)
    versions = sorted(
        code + [v for c in strangers if c.kind == "code" for v in _versions(own, [c], known)],
        key=lambda v: v.cells[0].order,
    )
    answering = [v for v in versions if v.answers]
    if not answering:
        others = [[c for c in mine if c.kind != "code"], *([c] for c in strangers if c.kind != "code")]
        versions = [v for parts in others for v in _versions(own, parts, known)]
        answering = [v for v in versions if v.answers and _problems([v.text], known)[0] == 0]
        if answering:
            result.notes.append(
                f"exercise {own.grade_id}: its cell was no code cell any more, and was made one again"
            )
    if not answering:
        return _unanswered(own, mine, code, cells, result)
    chosen = _chosen(own, answering, _first_test(own, owns, cells))
    text = "\n\n\n".join(v.text.strip("\n") for v in chosen)
    foreign = any(c.own is not own for v in chosen for c in v.cells)
    if foreign:  # what the exercise's own cell gave besides
        defined = {name for name, _ in _pieces(text)}
        given = [t.strip("\n") for n, t in _pieces(own.stub) if n not in defined and t.strip() not in text]
        text = "\n\n\n".join([*given, text])
        result.notes.append(
            f"exercise {own.grade_id}: the answer, or a part of it, stood in another cell, and was taken from there"
        )
    if any(len(v.cells) - len(v.beside) > 1 for v in chosen):
        result.notes.append(f"exercise {own.grade_id}: its cell was split, and was joined again")
    if len({_normal(v.text) for v in answering}) > len(chosen):
        result.human.append(
            f"exercise {own.grade_id}: it is answered {len(answering)} times, and differently; of the answers above its "
            "test the last one was graded"
        )
    elif len(code) > 1:
        result.notes.append(
            f"exercise {own.grade_id}: its cell was there {len(code)} times, and was graded once"
        )
    if _CONFLICT.search(text):
        result.human.append(f"exercise {own.grade_id}: its cell holds the marks of a merge conflict")
    answer = _Cell(chosen[0].cells[0].order, "code", _as_given(text), "", own)
    used = {c.order for v in chosen for c in v.cells}
    spare = {c.order for v in answering for c in v.cells} | {c.order for c in mine}
    left = [c for c in cells if c.order not in used | spare]
    left += [c for v in chosen for c in v.beside]
    left += [s for c in cells if c.order in spare - used and (s := _spare(own, c, answer))]
    return answer, left


def _unanswered(
    own: Own, mine: Sequence[_Cell], code: Sequence[_Version], cells: list[_Cell], result: Matched
) -> tuple[_Cell, list[_Cell]]:
    """As :func:`_answer`, where nothing in the notebook answers the exercise."""
    written = [v for v in code if _normal(v.text) not in ("", _normal(own.stub))]
    text = written[0].text if written else own.stub
    if not mine:
        result.notes.append(f"exercise {own.grade_id}: its cell was gone, and was put back as it was given")
    elif not written and any(_normal(c.source) != _normal(own.stub) for c in mine):
        result.notes.append(
            f"exercise {own.grade_id}: its cell was empty or no code, and was put back as it was given"
        )
    answer = _Cell(mine[0].order if mine else -1, "code", _as_given(text), "", own)
    used = {c.order for v in written[:1] for c in v.cells}
    left = [c for c in cells if c.own is not own] + [c for v in written[:1] for c in v.beside]
    return answer, left + [s for c in mine if c.order not in used and (s := _spare(own, c, answer))]


def _versions(own: Own, mine: Sequence[_Cell], known: set[str]) -> list[_Version]:
    """An exercise's cells, one version for each time that its names are defined anew."""
    groups: list[list[_Cell]] = []
    seen: set[str] = set()
    for cell in mine:
        defined = cell.defines & own.pieces.keys()
        if not groups or defined & seen:
            groups.append([])
            seen = set()
        groups[-1].append(cell)
        seen |= defined
    versions = []
    for group in groups:
        text, beside = _joined(own, group, known)
        versions.append(_Version(group, text, beside, own.answered(_pieces(text))))
    return versions


def _chosen(own: Own, answering: Sequence[_Version], test: int) -> list[_Version]:
    """For each name the last answer above the exercise's test, as when the notebook runs from top to bottom."""
    chosen = set()
    for name in own.asked:
        able = [i for i, version in enumerate(answering) if name in version.answers]
        above = [i for i in able if answering[i].cells[0].order < test]
        if able:
            chosen.add(above[-1] if above else able[0])
    return [answering[i] for i in sorted(chosen)]


def _spare(own: Own, cell: _Cell, answer: _Cell) -> _Cell | None:
    """What becomes of a cell whose answer was not the one that counts: kept to be read, run only for other names."""
    if _normal(cell.source) in ("", _normal(own.stub), _normal(answer.source)):
        return None
    runs = cell.kind == "code" and cell.defines - own.pieces.keys() and cell.order < answer.order
    return replace(cell, own=None, kind="code" if runs else "raw" if cell.kind == "code" else cell.kind)


def _first_test(own: Own, owns: Sequence[Own], cells: Sequence[_Cell]) -> int:
    """Where the exercise's first test stands in the submission; without one, where the next exercise begins."""
    tests = [o.place for o in owns if o.exercise == own.exercise and o.place != own.place]
    orders = [c.order for c in cells if c.own and c.own.place in tests]
    last = max(tests, default=own.place)
    orders = orders or [c.order for c in cells if c.own and c.own.exercise and c.own.place > last]
    return min(orders, default=cells[-1].order + 1)


def _joined(own: Own, parts: Sequence[_Cell], known: set[str]) -> tuple[str, list[_Cell]]:
    """The text of a cell that was split into ``parts``, and the parts that are cells of their own beside it."""
    parts = [part for part in parts if part.source.strip()] or parts[:1]
    if len(parts) == 1:
        return parts[0].source, []
    if len(parts) > _MOST_PARTS or sum(len(part.source) for part in parts) > _LONGEST_PARTS:
        return "\n".join(part.source for part in parts), []
    best: tuple[tuple[int, int], str, list[_Cell]] | None = None
    # apart, one below the other, or in the middle of a line: the first way that parses and leaves no name unknown
    for ways in itertools.product((None, "\n", ""), repeat=len(parts) - 1):
        whole = [parts[0]]
        for way, part in zip(ways, parts[1:], strict=True):
            if way is None:
                whole.append(part)
            else:
                whole[-1] = replace(whole[-1], source=whole[-1].source + way + part.source)
        main = [cell for cell in whole if cell.defines & own.pieces.keys()] or whole[:1]
        beside = [replace(cell, own=None) for cell in whole if cell not in main]
        text = "\n\n\n".join(cell.source.strip("\n") for cell in main)
        problems = _problems([text, *(cell.source for cell in beside)], known)
        if best is None or problems < best[0]:
            best = (problems, text, beside)
    assert best is not None
    return best[1], best[2]


def _problems(texts: Iterable[str], known: set[str]) -> tuple[int, int]:
    """(how many of the texts are no Python, how many names they use that nothing defines)."""
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
                unknown |= names(text)[0]
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
            broken += 1
    return broken, len(unknown - known - set(dir(builtins)))


# --- the other cells, and the whole ---------------------------------------------------------------------------------


def _settle(own: Own, cells: list[_Cell], kept: dict[int, _Cell], result: Matched) -> list[_Cell]:
    """Settle a cell of the master's that is no exercise; the cells that are left."""
    mine = [c for c in cells if c.own is own]
    free = own.role in ("experiment", "text")
    if not free:
        kept[own.place] = _Cell(mine[0].order if mine else -1, "code", own.node.source, "", own)
        given = (_normal(own.stub), _normal(own.node.source))
        if not mine:
            result.notes.append(f"cell {own.grade_id} was gone, and was put back")
        elif len(mine) > 1:
            result.notes.append(f"cell {own.grade_id} was there {len(mine)} times, and was graded once")
        if any(_normal(c.source) not in given for c in mine):
            result.notes.append(f"cell {own.grade_id} was changed, and is the course's again")
    elif mine:
        edited = [c for c in mine if _normal(c.source) != _normal(own.node.source)]
        first = (edited or mine)[0]
        kept[own.place] = replace(first, kind=own.node.cell_type if first.kind == "code" else first.kind)
        mine = [c for c in mine if c is not first]
    left = []
    for cell in cells:
        if cell.own is not own:
            left.append(cell)
        elif any(cell is c for c in mine):
            extra = _extra(own, cell)
            left += [replace(cell, own=None, source=extra)] if extra else []
    return left


def _extra(own: Own, cell: _Cell) -> str:
    """What a student wrote into a copy of the master's cell beyond its text."""
    source = cell.source
    if own.role in ("experiment", "text"):
        return "" if _normal(source) in (_normal(own.node.source), "") else source
    for text in (own.node.source, own.stub):
        if len(text) > 20 and text in source:
            source = source.replace(text, "", 1)
            break
    source = source.strip("\n")
    return "" if own.role in ("test", "hidden") and source == cell.source.strip("\n") else source


def _notebook(
    owns: Sequence[Own], kept: dict[int, _Cell], added: Sequence[_Cell], reference: NotebookNode
) -> NotebookNode:
    ids = {o.node.get("id") for o in owns}
    at: dict[int, list[_Cell]] = defaultdict(list)
    fixed = sorted((c.order, place) for place, c in kept.items() if c.order >= 0)
    exercises = [(c.order, p) for p, c in kept.items() if c.order >= 0 and owns[p].role == "exercise"]
    for cell in added:
        if cell.source.strip():
            before = [place for order, place in fixed if order <= cell.order]
            after = before[-1] if before else -1
            # what an exercise may use stays above it
            later = [place for order, place in exercises if order > cell.order and place <= after]
            at[min(later) - 1 if later else after].append(cell)
    cells: list[NotebookNode] = []

    def add(many: Sequence[_Cell], exercise: str) -> None:
        for cell in many:
            name = cell.id if cell.id and cell.id not in ids else f"added-{len(ids)}"
            ids.add(name)
            about = {"course": {"role": _ADDED, "exercise": exercise}}
            cells.append(_made(cell.kind, cell.source, name, about))

    add(at[-1], "")
    for own in owns:
        if own.place in kept:
            edited = own.role == "experiment" and kept[own.place].source != own.node.source
            about = copy.deepcopy(dict(own.node.metadata)) | {
                "course": {"role": _EDITED if edited else own.role, "exercise": own.exercise}
            }
            cells.append(_made(kept[own.place].kind, kept[own.place].source, own.node["id"], about))
        add(at[own.place], _between(own, owns))
    about = {
        key: reference.metadata[key] for key in ("kernelspec", "language_info") if key in reference.metadata
    }
    return from_dict({"nbformat": 4, "nbformat_minor": 5, "metadata": copy.deepcopy(about), "cells": cells})


def _between(own: Own, owns: Sequence[Own]) -> str:
    """The exercise that a cell added after ``own`` belongs to: it stands between that exercise and its last test."""
    if not own.exercise:
        return ""
    later = any(o.exercise == own.exercise and o.place > own.place for o in owns)
    return own.exercise if later else ""


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
    pieces: list[tuple[str, str]] = []
    pending = ""
    for line in source.splitlines(keepends=True):
        definition = _DEFINES.match(line)
        if definition:
            pieces.append((definition[1] or definition[2], pending + line))
            pending = ""
        elif pending or line.startswith(("@", "#")):  # they belong to what follows
            pending += line
            if not line.startswith(("@", "#")) and line.strip():
                pieces, pending = _onto(pieces, pending), ""
        else:
            pieces = _onto(pieces, line)
    return _onto(pieces, pending) if pending else pieces


def _onto(pieces: list[tuple[str, str]], text: str) -> list[tuple[str, str]]:
    if not pieces:
        return [("", text)]
    name, before = pieces[-1]
    pieces[-1] = (name, before + text)
    return pieces


def _as_given(text: str) -> str:
    """With the comment that a student was given, where the master's text has a raise in no function."""
    return re.sub(rf"(?m)^{re.escape(STUB)}$", OPEN_STUB, text)


def _normal(text: str) -> str:
    """A text without what an editor may change: blank lines, and blanks at a line's end."""
    return "\n".join(STUB if line == OPEN_STUB else line for line in _lines(text))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]
