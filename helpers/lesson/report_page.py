"""What a learner did in the course, as one page to show to a colleague: no network, no script, pictures in it.

    python -m helpers report --name "Ada"      writes report.html; lesson.report() does the same in a notebook

What stands on it is what the course kept while the learner worked (helpers.progress): it is no grade.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from helpers import keeping, progress
from helpers.text.seconds import format_seconds
from helpers.text.sizes import size_text
from helpers.text.tables import cell_html

#: nothing is fetched, nothing runs, nothing is sent; the one style is this page's own
POLICY = "default-src 'none'; style-src '{style}'; img-src data:; base-uri 'none'; form-action 'none'"
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
class Lesson:
    """A lesson in which something was done. exercises: title, stars, points, "passes", "fails" or "not run yet".
    outcomes: question → what `progress.came_out` kept. boards: title → what `progress.keep_board` kept.
    """

    name: str
    title: str
    question: str
    exercises: tuple[tuple[str, int, int, str], ...]
    outcomes: Mapping[str, Mapping[str, Any]]
    boards: Mapping[str, Mapping[str, Any]]

    @property
    def solved(self) -> int:
        return sum(state == "passes" for *_, state in self.exercises)

    @property
    def points(self) -> int:
        return sum(points for _, _, points, state in self.exercises if state == "passes")

    @property
    def predicted(self) -> list[Mapping[str, Any]]:
        """What was said before its result was seen."""
        return [one for one in self.outcomes.values() if one["said"] is not None]


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
    lesson = Lesson(
        name, about["title"], about["question"], exercises, own.get("outcomes", {}), own.get("boards", {})
    )
    for part, keys in ((lesson.outcomes, _OUTCOME), (lesson.boards, _BOARD)):
        for key, one in part.items():
            if not isinstance(one, Mapping) or not all(isinstance(one.get(k), t) for k, t in keys.items()):
                raise progress.Damaged(f"what is kept of {key!r} in {name} is not whole")
    if not all(_is_ladder(board["rungs"]) for board in lesson.boards.values()):
        raise progress.Damaged(f"a ladder that is kept in {name} is not whole")
    return lesson


def _is_ladder(rungs: list[Any]) -> bool:
    try:
        return not rungs or any([kept for _, seconds, nbytes, kept in rungs if seconds > 0 < nbytes])
    except (TypeError, ValueError):
        return False


_OUTCOME: dict[str, Any] = {
    "said": str | None, "measured": str, "right": bool, "choices": int, "evidence": str,
}  # fmt: skip
_BOARD: dict[str, Any] = {
    "columns": list, "rows": list, "evidence": str, "caption": str, "rungs": list, "drawn": str,
}  # fmt: skip


def figures(lessons: Sequence[Lesson], index: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What stands on top: a number, and what of."""
    asked = [e for about in index.values() for e in about["exercises"]]
    right, made, _ = calibration(lessons)
    return [
        (f"{sum(one.solved for one in lessons)} of {len(asked)}", "exercises solved"),
        (
            f"{sum(one.points for one in lessons)} of {sum(int(e['points']) for e in asked)}",
            "points of these",
        ),
        (f"{right} of {made}", "predictions right"),
        (f"{len(lessons)} of {len(index)}", "lessons worked in"),
    ]


def calibration(lessons: Sequence[Lesson]) -> tuple[int, int, float]:
    """Predictions that came out as said; how many were made; how many of them guesses at random would get right."""
    made = [one for lesson in lessons for one in lesson.predicted]
    return sum(one["right"] for one in made), len(made), sum(1 / one["choices"] for one in made)


def page(lessons: Sequence[Lesson], index: Mapping[str, Any], name: str = "") -> str:
    """The page's HTML, on which every text of the learner is escaped."""
    style = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    title = f"PyTorch performance, measured{f' by {name}' if name else ''}"
    body = "\n".join(
        part
        for part in (
            _top(title, lessons, index),
            _repaired(lessons),
            _ladder(lessons),
            _predictions(lessons),
            "<h2>Lesson by lesson</h2>",
            *map(_section, lessons),
            _foot(),
        )
        if part
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
{MARK}
<meta http-equiv="Content-Security-Policy" content="{POLICY.format(style=f"sha256-{digest}")}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _top(title: str, lessons: Sequence[Lesson], index: Mapping[str, Any]) -> str:
    tiles = "".join(f"<li><b>{escape(n)}</b> {escape(what)}</li>" for n, what in figures(lessons, index))
    return f"""<h1>{escape(title)}</h1>
<p>What one learner solved, predicted and made faster in a course on PyTorch's speed and memory. Each claim is predicted
first and then measured. Exercises are judged by counters (operators, copies, bytes, syncs), never by clocks.</p>
<ul class="figures">{tiles}</ul>"""


def _repaired(lessons: Sequence[Lesson]) -> str:
    """What the learner's own repair of the last lesson's slow script bought."""
    boards = [board for one in lessons if one.name.startswith(CAPSTONE) for board in one.boards.items()]
    climbed = [board["rows"] for _, board in boards if board["rungs"]]
    repairs = [(title, board) for title, board in boards if board["rungs"] or board["rows"] not in climbed]
    if not repairs:
        return ""
    says = "A training script that was given: correct, clean to read, and slow in many ways, none of them marked."
    return f"<h2>A slow script, found and repaired</h2>\n<p>{says}</p>\n" + "\n".join(
        _board(*one) for one in repairs
    )


def _ladder(lessons: Sequence[Lesson]) -> str:
    from helpers import running_example  # with it comes torch
    from helpers.running_example.rungs import RUNGS

    begun = {one.name[:2] for one in lessons}
    if not begun & (set(RUNGS) - {"00"}):
        return ""
    says = "One training script went through the lessons: each gave it what the lesson is about."
    return f"<h2>The ladder</h2>\n<p>{says}</p>\n{_picture(running_example.ladder(begun))}"


def _predictions(lessons: Sequence[Lesson]) -> str:
    right, made, luck = calibration(lessons)
    if not made:
        return ""
    rows = [
        (
            one.title,
            f"{sum(p['right'] for p in one.predicted)} of {len(one.predicted)}",
            _meter(one.predicted),
        )
        for one in lessons
        if one.predicted
    ]
    body = "".join(f"<tr><td>{escape(a)}</td><td>{b}</td><td>{c}</td></tr>" for a, b, c in rows)
    return f"""<h2>Predicted before it was measured</h2>
<p>{right} of {made} came out as predicted. Guessing would give about {luck:.0f}. What was answered after its result could be
seen is not counted.</p>
<div class="scroll"><table><thead><tr><th>lesson</th><th>right</th><th></th></tr></thead><tbody>{body}</tbody></table></div>"""


def _meter(made: Sequence[Mapping[str, Any]]) -> str:
    share = sum(one["right"] for one in made) / len(made)
    return f'<meter value="{share:.3f}" aria-label="share that was right">{share:.0%}</meter>'


_SIGNS = {
    "passes": '<span class="right">✓ passes</span>', "fails": '<span class="wrong">✗ fails</span>',
    "not run yet": '<span class="muted">– not run yet</span>',
}  # fmt: skip


def _section(one: Lesson) -> str:
    made = one.predicted
    summary = f"{one.solved} of {len(one.exercises)} exercises"
    summary += f", {sum(p['right'] for p in made)} of {len(made)} predictions right" if made else ""
    parts = [
        f"<details><summary>{escape(one.title)} <span class='muted'>· {summary}</span></summary>",
        f"<p class='muted'>{escape(one.question)}</p>",
        _rows(
            ["exercise", "difficulty", "points", "its visible test"],
            [
                (cell_html(title), "★" * stars, str(points), _SIGNS[state])
                for title, stars, points, state in one.exercises
            ],
        ),
    ]
    if one.outcomes:
        parts.append(
            _rows(
                ["question", "predicted", "measured", "evidence"],
                [
                    (cell_html(q), _said(p), cell_html(p["measured"]), escape(p["evidence"]))
                    for q, p in one.outcomes.items()
                ],
            )
        )
    if not one.name.startswith(CAPSTONE):
        parts += [_board(*board) for board in one.boards.items()]
    return "\n".join([*parts, "</details>"])


def _said(outcome: Mapping[str, Any]) -> str:
    if outcome["said"] is None:
        return '<span class="muted">–</span>'
    kind, sign = ("right", "✓") if outcome["right"] else ("wrong", "✗")
    return f'<span class="{kind}">{sign}</span> {cell_html(outcome["said"])}'


def _board(title: str, board: Mapping[str, Any]) -> str:
    from helpers import plots
    from helpers.plots.ladders import Rung

    rows = [[cell_html(_whole(str(cell))) for cell in row] for row in board["rows"]]
    note = f"<b>{escape(board['evidence'])}</b>" + (
        f" · {escape(board['caption'])}" if board["caption"] else ""
    )
    parts = [f"<h3>{cell_html(title)}</h3>", _rows([str(c) for c in board["columns"]], rows)]
    parts.append(f"<small>{note}</small>")
    if board["rungs"]:
        rungs = [Rung(str(n), float(s), float(b), bool(k)) for n, s, b, k in board["rungs"]]
        parts.append(f"<p>{escape(_bought(rungs, board['drawn']))}</p>")
        parts.append(_picture(plots.ladder(rungs, evidence=board["drawn"], title=title)))
    return "\n".join(parts)


def _whole(cell: str) -> str:
    """A number keeps its unit in its line."""
    return re.sub(r"(?<=\d) (?=\w{1,4}$)", "\u00a0", cell)


def _bought(rungs: Sequence[Any], evidence: str) -> str:
    first, last = rungs[0], [rung for rung in rungs if rung.kept][-1]
    time = f"{format_seconds(first.seconds)} to {format_seconds(last.seconds)} ({first.seconds / last.seconds:.1f}×)"
    memory = f"{size_text(first.nbytes)} to {size_text(last.nbytes)}"
    return f"A step went from {time}, its peak memory from {memory}: {evidence}."


def _rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


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
    made = f"Made on {date.today().isoformat()} with " + " · ".join(_versions())
    return (
        f"<footer><h2>What the labels mean</h2><dl>{labels}</dl><p>{points}</p><p>{escape(made)}</p></footer>"
    )


def _versions() -> Iterator[str]:
    for package, words in (("pytorch-performance-measured", "the course"), ("torch", "torch")):
        try:
            yield f"{words} {version(package).partition('+')[0]}"
        except PackageNotFoundError:  # run from a folder, without an install
            continue
    yield f"Python {platform.python_version()}"
    yield f"{platform.system()} {platform.machine()}"


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
    except (ValueError, OSError) as problem:
        print(f"report: {problem}", file=sys.stderr)
        return 2
    return 0
