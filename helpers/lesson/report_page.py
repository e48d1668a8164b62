"""What a learner did in the course, as one page to show to a colleague: no network, no script, pictures in it.

    python -m helpers report --name "Ada"      writes report.html; lesson.report() does the same in a notebook

What stands on it is what the course kept while the learner worked (helpers.progress): it is no grade.
"""

from __future__ import annotations

import argparse
import base64
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import keeping, progress
from helpers.text import pages
from helpers.text.seconds import format_seconds
from helpers.text.sizes import size_text
from helpers.text.tables import cell_html, table

if TYPE_CHECKING:
    from helpers.plots.ladders import Rung

#: by this a page is known for one that was written here, and may be written again
MARK = '<meta name="generator" content="pytorch-performance-measured report">'
CAPSTONE = "17"
LABELS = {
    "live (CPU), live (GPU)": "measured on this learner's own machine",
    "recorded": "measured on a real GPU, once, and kept; the label says which and when",
    "simulated (H100)": "computed by the course's model of that GPU; it was measured nowhere",
    "published": "others measured it, and are named",
    "arithmetic": "needed no run",
}


class NothingYet(Exception):
    """There is no progress to report."""


@dataclass(frozen=True)
class Outcome:
    """What came of a prediction, as `progress.came_out` kept it. said: None where it was looked at unanswered."""

    said: str | None
    measured: str
    right: bool
    choices: int
    evidence: str


@dataclass(frozen=True)
class Board:
    """A table and its ladder, as `progress.keep_board` kept them. drawn: the ladder's evidence."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    evidence: str
    caption: str
    rungs: Sequence[tuple[str, float, float, bool]]
    drawn: str


@dataclass(frozen=True)
class Lesson:
    """A lesson in which something was done. exercises: title, stars, points, one of `progress.STATES`.
    outcomes: by question. boards: by title.
    """

    name: str
    title: str
    question: str
    exercises: tuple[tuple[str, int, int, str], ...]
    outcomes: Mapping[str, Outcome]
    boards: Mapping[str, Board]

    @property
    def solved(self) -> int:
        return sum(state == "passes" for *_, state in self.exercises)

    @property
    def points(self) -> int:
        return sum(points for _, _, points, state in self.exercises if state == "passes")

    @property
    def predicted(self) -> list[Outcome]:
        """What was said before its result was seen."""
        return [outcome for outcome in self.outcomes.values() if outcome.said is not None]


@dataclass(frozen=True)
class Report:
    """A page that was written. Shows as what stands on top of it, with a link."""

    path: Path
    says: str

    def __repr__(self) -> str:
        return f"{self.says}\n{self.path}"

    def _repr_html_(self) -> str:
        path = escape(self.path.as_posix())
        return f'<p>{escape(self.says)}: <a href="{path}">{path}</a></p>'


def write(to: Path, name: str = "") -> Report:
    """Write the page. name: whose it is; may be "".

    :class:`NothingYet` where nothing is kept, ValueError where what is kept cannot be read, FileExistsError where `to`
    is a file that was not written here. Then nothing is written.
    """
    lessons, total = done(), progress.index()
    if not lessons:
        raise NothingYet(
            "Nothing to report yet: no prediction was made, no test run. Work in a lesson, then try again."
        )
    if to.is_dir():
        raise FileExistsError(f"{to} is a folder: name a file, such as {to / 'report.html'}")
    if to.exists() and MARK not in to.read_text(encoding="utf-8", errors="replace")[:2000]:
        raise FileExistsError(f"{to} is there and is no report: choose another name")
    text = page(lessons, total, name)
    keeping.write(to, text)
    return Report(to, "; ".join(f"{what}: {number}" for number, what in figures(lessons, total)))


def done() -> list[Lesson]:
    """The lessons in which something is kept, in the course's order. ValueError: the file cannot be read."""
    try:
        state = progress.kept()
        return [
            _lesson(name, about, state[name]) for name, about in progress.index().items() if state.get(name)
        ]
    except progress.Damaged as problem:
        raise ValueError(
            f"{problem}. It is left as it is: mend it, or move it away and run your tests and predictions again"
        ) from None


def _lesson(name: str, about: Mapping[str, Any], own: Mapping[str, Any]) -> Lesson:
    exercises = tuple(
        (f"{e['number']} {e['title']}", int(e["stars"]), int(e["points"]), progress.status(e, own))
        for e in about["exercises"]
    )
    try:
        outcomes = {question: Outcome(**kept) for question, kept in own.get("outcomes", {}).items()}
        boards = {title: Board(**kept) for title, kept in own.get("boards", {}).items()}
        whole = all(len(rung) == 4 for board in boards.values() for rung in board.rungs)
    except TypeError:
        whole = False
    if not whole:
        raise progress.Damaged(f"a prediction or a table that is kept of {name} is not whole")
    return Lesson(name, about["title"], about["question"], exercises, outcomes, boards)


def figures(lessons: Sequence[Lesson], index: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What stands on top: a number, and what of."""
    asked = [e for about in index.values() for e in about["exercises"]]
    right, made, _ = calibration(lessons)
    tiles = [
        (f"{sum(lesson.solved for lesson in lessons)} of {len(asked)}", "exercises solved"),
        (
            f"{sum(lesson.points for lesson in lessons)} of {sum(int(e['points']) for e in asked)}",
            "points of these",
        ),
        (f"{right} of {made}", "predictions right"),
        (f"{len(lessons)} of {len(index)}", "lessons worked in"),
    ]
    return [tile for tile in tiles if not tile[0].startswith("0 of 0")]  # of nothing there is nothing to say


def calibration(lessons: Sequence[Lesson]) -> tuple[int, int, float]:
    """Predictions that came out as said; how many were made; how many of them guesses at random would get right."""
    made = [outcome for lesson in lessons for outcome in lesson.predicted]
    return sum(o.right for o in made), len(made), sum(1 / o.choices for o in made)


def page(lessons: Sequence[Lesson], index: Mapping[str, Any], name: str = "") -> str:
    """The page's HTML, on which every text of the learner is escaped."""
    title = f"PyTorch performance, measured{f' by {name}' if name else ''}"
    body = "\n".join(
        part
        for part in (
            _top(title, lessons, index),
            _repaired(lessons),
            _ladder(lessons),
            "<h2>Lesson by lesson</h2>",
            *map(_section, lessons),
            _foot(),
        )
        if part
    )
    return pages.page(title, body, MARK)


def _top(title: str, lessons: Sequence[Lesson], index: Mapping[str, Any]) -> str:
    tiles = "".join(f"<li><b>{escape(n)}</b> {escape(what)}</li>" for n, what in figures(lessons, index))
    _, made, chance = calibration(lessons)
    guessed = (
        f"\n<p>Of the predictions, guessing would give about {chance:.0f}. What was answered after its result could be\n"
        "seen is not counted.</p>"
        if made
        else ""
    )
    return f"""<h1>{escape(title)}</h1>
<p>What one learner solved, predicted and made faster in a course on PyTorch's speed and memory. Each claim is predicted
first and then measured. Exercises are judged by counters (operators, copies, bytes, syncs), never by clocks.</p>
<ul class="figures">{tiles}</ul>{guessed}"""


def _repaired(lessons: Sequence[Lesson]) -> str:
    """What the learner's own repair of the last lesson's slow script bought."""
    boards = [
        board for lesson in lessons if lesson.name.startswith(CAPSTONE) for board in lesson.boards.items()
    ]
    climbed = [board.rows for _, board in boards if board.rungs]
    repairs = [(title, board) for title, board in boards if board.rungs or board.rows not in climbed]
    if not repairs:
        return ""
    says = "A training script that was given: correct, clean to read, and slow in many ways, none of them marked."
    parts = [f"<h2>A slow script, found and repaired</h2>\n<p>{says}</p>"]
    return "\n".join([*parts, *(_board(title, board) for title, board in repairs)])


def _ladder(lessons: Sequence[Lesson]) -> str:
    from helpers import running_example  # with it comes torch
    from helpers.running_example.rungs import RUNGS

    begun = {lesson.name[:2] for lesson in lessons}
    if not begun & (set(RUNGS) - {"00"}):
        return ""
    says = "One training script went through the lessons: each gave it what the lesson is about."
    return f"<h2>The ladder</h2>\n<p>{says}</p>\n{_picture(running_example.ladder(begun))}"


_SIGNS = dict(
    zip(progress.STATES, ("✓ passes", "✗ fails", "– not written yet", "– not run yet"), strict=True)
)


def _section(lesson: Lesson) -> str:
    made = lesson.predicted
    summary = f"{lesson.solved} of {len(lesson.exercises)} exercises"
    summary += f", {sum(o.right for o in made)} of {len(made)} predictions right" if made else ""
    rows = [(title, "★" * stars, points, _SIGNS[state]) for title, stars, points, state in lesson.exercises]
    parts = [
        f"<details><summary>{escape(lesson.title)} <span class='muted'>· {summary}</span></summary>",
        f"<p class='muted'>{escape(lesson.question)}</p>",
        _table(rows, ["exercise", "difficulty", "points", "its visible test"], "this learner's runs"),
    ]
    if lesson.outcomes:
        asked = [(q, _said(o), o.measured, o.evidence) for q, o in lesson.outcomes.items()]
        parts.append(
            _table(asked, ["question", "predicted", "came out", "evidence"], "this learner's answers")
        )
    if not lesson.name.startswith(CAPSTONE):
        parts += [_board(title, board) for title, board in lesson.boards.items()]
    return "\n".join([*parts, "</details>"])


def _said(outcome: Outcome) -> str:
    return "–" if outcome.said is None else f"{'✓' if outcome.right else '✗'} {outcome.said}"


def _board(title: str, board: Board) -> str:
    from helpers import plots
    from helpers.plots.ladders import Rung

    parts = [f"<h3>{cell_html(title)}</h3>", _table(board.rows, board.columns, board.evidence, board.caption)]
    if board.rungs:
        rungs = [Rung(*rung) for rung in board.rungs]
        parts.append(f"<p>{escape(_bought(rungs, board.drawn))}</p>")
        parts.append(_picture(plots.ladder(rungs, evidence=board.drawn, title=title)))
    return "\n".join(parts)


def _bought(rungs: Sequence[Rung], evidence: str) -> str:
    first, last = rungs[0], [rung for rung in rungs if rung.kept][-1]
    time = f"{format_seconds(first.seconds)} to {format_seconds(last.seconds)} ({first.seconds / last.seconds:.1f}×)"
    memory = f"{size_text(first.nbytes)} to {size_text(last.nbytes)}"
    return f"A step went from {time}, its peak memory from {memory}: {evidence}."


def _table(rows: Sequence[Sequence[Any]], columns: Sequence[str], evidence: str, caption: str = "") -> str:
    return pages.shown(table(rows, columns, evidence=evidence, caption=caption), columns[0])


def _picture(picture: Any) -> str:
    png, about = picture._repr_png_()
    data = base64.b64encode(png).decode("ascii")
    source = f'src="data:image/png;base64,{data}" width="{about["width"]}" height="{about["height"]}"'
    return f'<figure><img {source} alt="{escape(about["alt"])} [{escape(picture.evidence)}]"></figure>'


def _foot() -> str:
    labels = "".join(f"<dt>{escape(label)}</dt><dd>{escape(says)}</dd>" for label, says in LABELS.items())
    points = (
        "An exercise counts as solved when the test that the learner can see passes; the tests that run when work is graded "
        "are stricter. The course kept all of this while the learner worked: it is no grade."
    )
    torch, python = version("torch").partition("+")[0], platform.python_version()
    made = f"Made on {date.today().isoformat()} with torch {torch} · Python {python} · {platform.system()} {platform.machine()}"
    return (
        f"<footer><h2>What the labels mean</h2><dl>{labels}</dl><p>{points}</p><p>{escape(made)}</p></footer>"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """0; 1 where there is nothing to report yet; 2 for what cannot be read or written, with why on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m helpers report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--to", type=Path, default=Path("report.html"), help="the file (default: report.html)"
    )
    parser.add_argument("--name", default="", help="whose it is, for the page's head")
    given = parser.parse_args(argv)
    try:
        print(write(given.to, given.name))
    except NothingYet as nothing:
        print(nothing, file=sys.stderr)
        return 1
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as problem:
        print(f"report: {problem}", file=sys.stderr)
        return 2
    return 0
