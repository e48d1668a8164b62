"""Read a lesson's master (py:percent) and refuse it, with file and line, when it breaks a rule.

Every code cell is of one kind, written on its ``# %%`` line:

    # %% setup                          imports and data that exercises need; runs when grading
    # %% experiment                     for the reader; skipped when grading
    # %% exercise="windows"             the learner's answer, between ### BEGIN SOLUTION and ### END SOLUTION
    # %% test="windows" points=1        visible test
    # %% hidden="windows" points=2      hidden test, between ### BEGIN HIDDEN TESTS and ### END HIDDEN TESTS
"""

import ast
import builtins
import contextlib
import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import jupytext

from helpers.text.names import names

KINDS = ("setup", "experiment", "exercise", "test", "hidden")
MARKERS = {
    "exercise": ("### BEGIN SOLUTION", "### END SOLUTION"),
    "hidden": ("### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"),
}
EXERCISE_HEADING = re.compile(
    r"\*\*Exercise (?P<number>\d+\.\d+) — (?P<title>.+?)\*\* \((?P<stars>★+), (?P<minutes>\d+) min\)"
)
#: names that IPython puts into every notebook's namespace
NOTEBOOK_NAMES = {"display", "get_ipython", "__name__", "__file__"}
#: lines of a visible test, blank ones not counted
LONGEST_TEST = 14
CLOCKS = re.compile(r"perf_counter|time\.time\(|process_time|monotonic|timeit")


class BadMaster(Exception):
    """A rule of the master format is broken; the text says which, in which file and on which line."""


@dataclass
class Cell:
    """One cell: ``kind`` is ``"markdown"`` or one of :data:`KINDS`; ``line`` is that of its ``# %%`` mark."""

    kind: str
    source: str
    line: int
    exercise: str = ""
    points: int = 0
    grade_id: str = ""
    tags: list[str] = field(default_factory=list)


@dataclass
class Exercise:
    """What the index keeps of an exercise. ``checks``: the learner's names that its visible tests check."""

    id: str
    number: str
    title: str
    stars: int
    minutes: int
    points: int
    checks: list[str]


@dataclass
class Master:
    name: str
    path: Path
    cells: list[Cell]
    title: str
    question: str
    exercises: list[Exercise]

    def where(self, cell: Cell) -> str:
        return f"{self.path.name}:{cell.line}"


def read(path: Path) -> Master:
    """The checked master at ``path``. Raises :class:`BadMaster`."""
    return parse(path, path.read_text(encoding="utf-8"))


@lru_cache(maxsize=64)
def parse(path: Path, text: str) -> Master:
    """The master that ``text`` would be at ``path``: of the same text the same one, which nobody changes.

    Raises :class:`BadMaster`.
    """
    lines = [i for i, line in enumerate(text.splitlines(), 1) if re.match(r"# %%", line)]
    notebook = jupytext.reads(text, fmt="py:percent")
    if not lines or len(lines) != len(notebook.cells):
        raise BadMaster(
            f"{path.name}: {len(notebook.cells)} cells but {len(lines)} '# %%' lines; begin the file with a '# %%' line"
        )
    cells = [_cell(path, raw, line) for raw, line in zip(notebook.cells, lines, strict=True)]
    master = Master(path.stem, path, cells, *_title(path, cells), [])
    _name_tests(master)
    _check_markers(master)
    _check_names(master)
    master.exercises = _exercises(master)
    return master


def _cell(path: Path, raw: dict, line: int) -> Cell:
    where = f"{path.name}:{line}"
    meta = dict(raw["metadata"])
    if raw["cell_type"] == "markdown":
        return Cell("markdown", raw["source"].rstrip("\n"), line)
    title = meta.pop("title", "")
    kinds = [k for k in KINDS if k in meta or k == title]
    if len(kinds) != 1:
        raise BadMaster(
            f"{where}: a code cell needs one kind of {', '.join(KINDS)} on its '# %%' line; this one has {kinds or title or 'none'}"
        )
    kind = kinds[0]
    cell = Cell(
        kind,
        raw["source"].rstrip("\n"),
        line,
        exercise=str(meta.get(kind, "")),
        tags=list(meta.get("tags", [])),
    )
    if kind in ("exercise", "test", "hidden") and not re.fullmatch(r"[a-z][a-z0-9_]*", cell.exercise):
        raise BadMaster(
            f'{where}: write {kind}="exercise_id" with lower-case letters, digits and underscores, got {cell.exercise!r}'
        )
    if kind in ("test", "hidden"):
        points = meta.get("points")
        if not isinstance(points, int) or points < 1:
            raise BadMaster(f'{where}: {kind}="{cell.exercise}" needs points=N with N ≥ 1, got {points!r}')
        cell.points = points
    if unknown := set(meta) - {kind, "points", "tags", "lines_to_next_cell"}:
        raise BadMaster(f"{where}: unknown option {sorted(unknown)}")
    return cell


def _title(path: Path, cells: list[Cell]) -> tuple[str, str]:
    heading = re.match(r"# (.+)\n+## (.+)", cells[0].source) if cells[0].kind == "markdown" else None
    if heading is None:
        raise BadMaster(
            f"{path.name}:{cells[0].line}: the first cell must be markdown: '# NN · Title', then '## The question?'"
        )
    return heading[1].strip(), heading[2].strip()


def _name_tests(master: Master) -> None:
    """Give every graded cell its nbgrader ``grade_id``; refuse duplicates and tests without an exercise."""
    seen: dict[str, Cell] = {}
    solved: set[str] = set()
    for cell in master.cells:
        if cell.kind == "exercise":
            cell.grade_id = cell.exercise
            solved.add(cell.exercise)
        elif cell.kind in ("test", "hidden"):
            if cell.exercise not in solved:
                raise BadMaster(
                    f'{master.where(cell)}: {cell.kind}="{cell.exercise}" comes before any exercise="{cell.exercise}"'
                )
            n = sum(c.kind == cell.kind and c.exercise == cell.exercise for c in seen.values()) + 1
            cell.grade_id = f"{cell.exercise}__{cell.kind}{n if n > 1 else ''}"
        else:
            continue
        if cell.grade_id in seen:
            raise BadMaster(
                f"{master.where(cell)}: duplicate grade_id {cell.grade_id!r}, first on line {seen[cell.grade_id].line}"
            )
        seen[cell.grade_id] = cell


def _check_markers(master: Master) -> None:
    for cell in master.cells:
        for kind, (begin, end) in MARKERS.items():
            if begin not in cell.source and end not in cell.source:
                if cell.kind == kind:
                    raise BadMaster(f"{master.where(cell)}: a cell of kind {kind} needs '{begin}' … '{end}'")
                continue
            if cell.kind != kind:
                raise BadMaster(
                    f"{master.where(cell)}: '{begin}' belongs in a cell of kind {kind}, not {cell.kind}"
                )
            marks = re.findall(f"{re.escape(begin)}|{re.escape(end)}", cell.source)
            if marks != [begin, end] * (len(marks) // 2):
                raise BadMaster(f"{master.where(cell)}: '{begin}' and '{end}' do not alternate")


#: lesson → names that its answers may use and no cell defines: lent by the script whose functions they replace
LENT = {
    "17_capstone": frozenset(
        ["LOG_EVERY", "SAVE_EVERY", "augment", "fetch", "forward", "normalise", "pieces", "share", "to_host"]
    )
}


def _check_names(master: Master) -> None:
    """Graded cells parse, read no clock, and use only names of the graded path; tests use none but their own."""
    known = set(dir(builtins)) | NOTEBOOK_NAMES | LENT.get(master.path.stem, frozenset())
    elsewhere = _bound_outside_tests(master)
    for cell in master.cells:
        if cell.kind in ("markdown", "experiment"):
            continue
        where = master.where(cell)
        try:
            free, bound, _ = names(cell.source)
        except SyntaxError as problem:
            raise BadMaster(
                f"{master.path.name}:{cell.line + (problem.lineno or 0)}: {problem.msg} (magics belong in experiments)"
            ) from None
        if cell.kind in ("test", "hidden"):
            if CLOCKS.search(cell.source):
                raise BadMaster(f"{where}: a graded cell reads a clock; grade on counters")
            if unknown := free - set(dir(builtins)):
                raise BadMaster(
                    f"{where}: a test must stand alone, but uses {sorted(unknown)}: import it here, or name the learner's function as a string"
                )
            # what is imported elsewhere too is the same thing, but for what a test takes from its exercises' module
            own = bound - imports(cell.source) | imports(cell.source, "helpers.lessons")
            if taken := own & elsewhere:
                raise BadMaster(
                    f"{where}: a test shares the notebook's names and would overwrite {sorted(taken)}: name its own otherwise"
                )
            lines = sum(bool(line.strip()) for line in cell.source.splitlines())
            if cell.kind == "test" and lines > LONGEST_TEST:
                raise BadMaster(
                    f"{where}: a visible test of {lines} lines; a learner reads at most {LONGEST_TEST}: the rest belongs in the lesson's exercises.py"
                )
            if not _checked(cell.source):
                raise BadMaster(
                    f"{where}: a test reaches the learner's code through a check_… of helpers.lessons, or check.function"
                )
            continue
        if unknown := free - known:
            raise BadMaster(
                f"{where}: {cell.kind} uses {sorted(unknown)}, which no setup or exercise cell above defines (experiments are skipped when grading)"
            )
        known |= bound


def _bound_outside_tests(master: Master) -> set[str]:
    """What setup, exercise and experiment cells define; cells with magics, which are no Python, are passed over."""
    bound: set[str] = set()
    for cell in master.cells:
        if cell.kind in ("setup", "exercise", "experiment"):
            with contextlib.suppress(SyntaxError):
                bound |= names(cell.source).made
    return bound


def imports(source: str, package: str = "") -> set[str]:
    """The names that top-level imports bind, or only those from a package."""
    statements = [n for n in ast.parse(source).body if isinstance(n, ast.Import | ast.ImportFrom)]
    if package:
        statements = [
            n for n in statements if isinstance(n, ast.ImportFrom) and (n.module or "").startswith(package)
        ]
    return {(a.asname or a.name).partition(".")[0] for n in statements for a in n.names}


def _exercises(master: Master) -> list[Exercise]:
    exercises = []
    text = ""
    for cell in master.cells:
        if cell.kind == "markdown":
            text = cell.source
        if cell.kind != "exercise":
            continue
        heading = EXERCISE_HEADING.search(text)
        if heading is None:
            raise BadMaster(
                f"{master.where(cell)}: the markdown above an exercise needs '**Exercise 1.3 — title** (★★, 8 min)'"
            )
        mine = [c for c in master.cells if c.exercise == cell.exercise and c.kind in ("test", "hidden")]
        for kind in ("test", "hidden"):
            if not any(c.kind == kind for c in mine):
                raise BadMaster(
                    f'{master.where(cell)}: exercise="{cell.exercise}" has no {"visible" if kind == "test" else "hidden"} test'
                )
        if text.count("<details>") < 3:
            raise BadMaster(
                f"{master.where(cell)}: exercise {cell.exercise!r} needs two hints and the idea in <details>, found {text.count('<details>')}"
            )
        checks = list(dict.fromkeys(n for c in mine if c.kind == "test" for n in _checked(c.source)))
        exercises.append(
            Exercise(
                cell.exercise,
                heading["number"],
                heading["title"],
                len(heading["stars"]),
                int(heading["minutes"]),
                sum(c.points for c in mine),
                checks,
            )
        )
    return exercises


def _checked(source: str) -> list[str]:
    """The learner's names that a test checks: check_windows(…) checks `windows`, as check.function("windows", …) does."""
    checked = []
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call):
            continue
        if isinstance(call.func, ast.Name) and call.func.id.startswith("check_"):
            checked.append(call.func.id.removeprefix("check_"))
        elif isinstance(call.func, ast.Attribute) and call.func.attr in ("function", "value") and call.args:
            if isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str):
                checked.append(call.args[0].value)
    return checked
