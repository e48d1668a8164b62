"""Masters in, notebooks out: the executed reference in ``solutions/``, the learner's copy in ``notebooks/``.

python -m helpers.classroom.build             rebuild what changed
python -m helpers.classroom.build 01 02       only these, if they changed
python -m helpers.classroom.build --force     all of it
python -m helpers.classroom.build --check     build nothing; fail if anything is out of date
"""

import ast
import hashlib
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from helpers import keeping, start
from helpers.classroom import claims_page, collecting, processors, prose
from helpers.classroom import master as masters
from helpers.classroom.master import BadMaster, Cell, Master
from helpers.classroom.release import release
from helpers.classroom.settings import (
    CELL_TIMEOUT,
    NOTEBOOKS,
    ONE_THREAD,
    QUIET_KERNEL,
    ROOT,
    SOLUTIONS,
    parser,
)
from helpers.lessons.capstone import given
from helpers.lessons.sources_on_trial import verdicts
from helpers.ranks.starting import NO_GPU
from helpers.text.terminal import lenient

INDEX = ROOT / "helpers" / "lessons.json"
START = NOTEBOOKS / "start.ipynb"
CLAIMS = ROOT / "docs" / "claims.md"
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
#: what a kernel that runs a reference is told: record no progress, hash alike, show widgets as pictures
BUILD_ENVIRONMENT = {"COURSE_BUILD": "1", "PYTHONHASHSEED": "0", "HELPERS_STATIC_WIDGETS": "1"}
HIDDEN_NOTE = "# Further tests of this exercise run here when the lesson is graded."
#: stands in the lines that Python shows when an import of the set-up cell fails
KERNEL_NOTE = "# An import fails? A wrong Jupyter kernel: start with `make lab`, then Kernel > Change Kernel… > Python 3."
TEST_NOTE = "# Test of exercise {number}, {title}: run this cell."
#: an experiment with this tag is shown folded: code that carries no idea
FOLD_TAG = "fold"
#: raise it when notebooks are made otherwise than before, and all are rebuilt
FORMAT = 3
#: what a lesson's numbers may rest on besides code
DATA = (".json", ".gz", ".csv", ".pickle")
#: two threads in ast.parse at once can end in a SystemError ("AST constructor recursion depth mismatch", Python 3.11)
_PARSING = threading.Lock()
#: what an output must not hold: it would differ on the next machine
MACHINE = re.compile(r"(?<![\w.~/])/(?:home|root|Users|tmp|work|usr|opt|var)/[^\s'\"\\]*")


# --- from master to notebook --------------------------------------------------------------------------------------


def notebook(master: Master) -> NotebookNode:
    """The notebook of a master, not yet executed; the same master gives the same bytes."""
    nb = new_notebook(
        cells=[_node(cell, place, _note(cell, master)) for place, cell in enumerate(master.cells)],
        metadata=json.loads(json.dumps(METADATA)),
    )
    return nb


def _note(cell: Cell, master: Master) -> str:
    """The comment that the build puts at the top of a cell."""
    if cell.kind == "setup" and cell is next(c for c in master.cells if c.kind == "setup"):
        return KERNEL_NOTE + "\n"
    if cell.kind == "test":
        exercise = next(e for e in master.exercises if e.id == cell.exercise)
        return TEST_NOTE.format(number=exercise.number, title=exercise.title) + "\n"
    return HIDDEN_NOTE + "\n" if cell.kind == "hidden" else ""


def _node(cell: Cell, place: int, note: str) -> NotebookNode:
    if cell.kind == "markdown":
        node = new_markdown_cell(cell.source)
    else:
        node = new_code_cell(note + cell.source, metadata={"tags": [cell.kind, *cell.tags]})
        if FOLD_TAG in cell.tags:
            node.metadata["jupyter"] = {"source_hidden": True}
        if cell.kind != "experiment":
            graded = cell.kind in ("test", "hidden")
            node.metadata["nbgrader"] = {
                "grade": graded,
                "grade_id": cell.grade_id or f"setup_{place}",
                "locked": cell.kind != "exercise",
                "schema_version": 3,
                "solution": cell.kind == "exercise",
                "task": False,
            } | ({"points": cell.points} if graded else {})
    node["id"] = cell.grade_id or hashlib.sha256(f"{place}\n{cell.source}".encode()).hexdigest()[:12]
    return node


def fingerprint(master: Master, modules: Iterable[str] = ()) -> str:
    """Changes when the master changes, or a helper that it loaded: their code (comments and docstrings left out) or data;
    or PyTorch, by the version that its builds for the CPU and for CUDA have in common."""
    with _PARSING:
        return _fingerprint(master, modules)


def _fingerprint(master: Master, modules: Iterable[str]) -> str:
    torch = version("torch").partition("+")[0]
    digest = hashlib.sha256(
        json.dumps([FORMAT, torch, [asdict(c) | {"line": 0} for c in master.cells]]).encode()
    )
    paths = {ROOT / name for name in modules}
    folders = {path.parent for path in paths}
    data = {p for f in folders for p in f.rglob("*.*") if p.suffix in DATA and _package(p) == f}
    for path in sorted(paths):
        digest.update(_meaning(path).encode() if path.exists() else b"gone")
    made_here = {INDEX} if Path(verdicts.__file__) in paths else {INDEX, verdicts.KEPT}
    for path in sorted(data - made_here - {given.CLASS}):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _package(data: Path) -> Path:
    """The modules' folder that a data file belongs to: what is below another is that one's, loaded or not."""
    return next(folder for folder in data.parents if any(folder.glob("*.py")))


def _loaded(client: NotebookClient, nb: NotebookNode) -> list[str]:
    """The helpers' files that the kernel has loaded, as names from the repository's root (the classroom's excepted)."""
    source = (
        "import sys as _sys\n"
        "for _m in sorted(n for n in _sys.modules if n.startswith('helpers.')): print(_sys.modules[_m].__file__)"
    )
    nb.cells.append(new_code_cell(source, id="loaded"))
    try:
        node = client.execute_cell(nb.cells[-1], len(nb.cells) - 1)
    finally:
        nb.cells.pop()
    files = {Path(line).resolve() for output in node.outputs for line in output.get("text", "").splitlines()}
    names = {path.relative_to(ROOT).as_posix() for path in files if path.is_relative_to(ROOT / "helpers")}
    return sorted(n for n in names if not n.startswith("helpers/classroom/"))


def _meaning(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[0] = ast.Pass()
    return ast.dump(tree)


# --- running ------------------------------------------------------------------------------------------------------


def environment(master: Master) -> dict[str, str]:
    """Of the kernel that runs a reference: no GPU and one thread, as where grades are made, but where threads are the subject."""
    about_threads = any(name in cell.source for cell in master.cells for name in ONE_THREAD)
    own = {name: value for name, value in os.environ.items() if name not in ONE_THREAD}
    return own | NO_GPU | BUILD_ENVIRONMENT | ({} if about_threads else ONE_THREAD)


def execute(nb: NotebookNode, master: Master, more: Mapping[str, str] | None = None) -> float:
    """Run every cell in a fresh kernel; outputs into ``nb``. Returns seconds. Raises :class:`BadMaster` with the line.

    more: environment variables of this run beside those of `environment`.
    """
    prose.check(master)
    began = time.monotonic()
    client = NotebookClient(
        nb,
        timeout=CELL_TIMEOUT,
        iopub_timeout=CELL_TIMEOUT,  # of its own accord it waits four seconds, and goes on without what a cell has printed
        raise_on_iopub_timeout=True,
        kernel_name="python3",
        extra_arguments=QUIET_KERNEL,
        resources={"metadata": {"path": str(master.path.parent)}},
        store_widget_state=False,
        record_timing=False,
        skip_cells_with_tag="",
    )
    with client.setup_kernel(env=environment(master) | dict(more or {})):
        for place, (node, cell) in enumerate(zip(nb.cells, master.cells, strict=True)):
            try:
                client.execute_cell(node, place)
            except CellExecutionError as problem:
                raise BadMaster(
                    f"{master.where(cell)}: this {cell.kind} cell raised {problem.ename}: {problem.evalue}"
                ) from None
            except CellTimeoutError:
                raise BadMaster(
                    f"{master.where(cell)}: this {cell.kind} cell took more than {CELL_TIMEOUT} s"
                ) from None
            except DeadKernelError:
                raise BadMaster(f"{master.where(cell)}: the kernel died in this {cell.kind} cell") from None
            if cell.kind != "markdown":
                _tidy(node, cell, master)
        modules = _loaded(client, nb)
    prose.fill(nb, master, nb)
    nb.metadata["course"] = {"built_from": fingerprint(master, modules), "helpers": modules}
    nb.metadata["language_info"] = dict(METADATA["language_info"])
    nb.metadata["kernelspec"] = dict(METADATA["kernelspec"])
    return time.monotonic() - began


def _tidy(node: NotebookNode, cell: Cell, master: Master) -> None:
    """Drop what differs from run to run; refuse what names this machine."""
    node.metadata.pop("execution", None)
    for output in node.outputs:
        data = output.get("data", {})
        if "application/vnd.jupyter.widget-view+json" in data:
            raise BadMaster(
                f"{master.where(cell)}: an output is a live widget, which ends with its kernel; show its picture"
            )
        text = output.get("text", "") + " ".join(
            str(v) for k, v in data.items() if not k.startswith("image/")
        )
        needles = [m.group(0) for m in MACHINE.finditer(text)]
        needles += [w for w in (str(ROOT), socket.gethostname()) if len(w) > 4 and w in text]
        if needles:
            raise BadMaster(f"{master.where(cell)}: an output names this machine: {needles[0]!r}")


# --- the index and the start page ---------------------------------------------------------------------------------


def index_entry(master: Master) -> dict[str, Any]:
    # of the core path: "**Time** 60 min"; or a range, "30–45 min"
    minutes = re.search(r"(\d+)(?:\s*(?:–|-|to)\s*(\d+))?\s*min\b", master.cells[0].source)
    if minutes is None:
        raise BadMaster(
            f"{master.where(master.cells[0])}: the first cell must say the time needed, as in '**Time** 60 min'"
        )
    return {
        "title": master.title,
        "question": master.question,
        "minutes": "–".join(filter(None, minutes.groups())),
        "points": sum(e.points for e in master.exercises),
        "exercises": [asdict(e) for e in master.exercises],
    }


def start_page(index: dict[str, Any]) -> NotebookNode:
    """The page that ``make lab`` opens: where to begin, where one is, what a file of one's own needs, and every lesson."""
    made = {"markdown": new_markdown_cell, "code": new_code_cell}
    cells = [made[kind](text) for kind, text in start.page(index)]
    for place, node in enumerate(cells):
        node["id"] = f"start-{place}"
    return new_notebook(cells=cells, metadata=json.loads(json.dumps(METADATA)))


# --- the command --------------------------------------------------------------------------------------------------


def text_of(nb: NotebookNode) -> str:
    return nbformat.writes(nb, version=4) + "\n"


def find(wanted: list[str]) -> list[Path]:
    """The masters, or those whose folder begins with one of ``wanted``. Raises :class:`BadMaster` for a lesson not there."""
    paths = sorted(p for p in SOLUTIONS.glob("[0-9][0-9]_*/*.py") if p.stem == p.parent.name)
    for name in wanted:
        if not any(p.stem.startswith(name) for p in paths):
            raise BadMaster(
                f"no lesson {name!r} in {SOLUTIONS.name}/; there are {', '.join(p.stem for p in paths)}"
            )
    return [p for p in paths if not wanted or p.stem.startswith(tuple(wanted))]


def reference_path(master: Master) -> Path:
    return master.path.with_suffix(".ipynb")


def release_path(name: str) -> Path:
    return NOTEBOOKS / name / f"{name}.ipynb"


def is_current(master: Master) -> bool:
    path = reference_path(master)
    if not path.exists() or not release_path(master.name).exists():
        return False
    course = json.loads(path.read_text(encoding="utf-8"))["metadata"].get("course", {})
    return bool(course.get("built_from") == fingerprint(master, course.get("helpers", ())))


def _last_release(reference: Path) -> str:
    """What the last build gave to learners: where their notebook differs from it, a person wrote into it."""
    try:
        return release(reference)
    # whatever nbgrader says of a reference that is missing or broken: then there is nothing to compare
    except Exception:
        return ""


def build_one(path: Path, force: bool) -> str:
    """Rebuild one lesson if it changed; a line that says what was done."""
    with _PARSING:
        master = masters.read(path)
    if not force and is_current(master):
        return f"{master.name}: up to date"
    nb, plain = notebook(master), notebook(master)
    seconds, again = execute(nb, master), execute(plain, master, processors.plain(master))
    processors.compare(nb, plain, master)
    reference, target = reference_path(master), release_path(master.name)
    before = _last_release(reference) if target.exists() else ""
    keeping.write(reference, text_of(nb))
    fresh = release(reference)
    kept = keeping.keep(target, before)
    target.parent.mkdir(parents=True, exist_ok=True)
    keeping.write(target, fresh)
    return f"{master.name}: built, ran in {seconds:.0f} s, with plain instructions in {again:.0f} s" + (
        f"; your answers are kept in {kept.name}" if kept else ""
    )


def of_all(paths: list[Path]) -> dict[Path, str]:
    """What is made of all lessons together: file → its text. While the last lesson is not built, no page of claims."""
    index = {p.stem: index_entry(masters.read(p)) for p in paths}
    built = {p.stem: p.with_suffix(".ipynb") for p in paths}
    made = {
        INDEX: json.dumps(index, indent=1, ensure_ascii=False) + "\n",
        START: text_of(start_page(index)),
        verdicts.KEPT: collecting.text(built.values()),
    }
    last = built.get(verdicts.HERE)
    if claims := claims_page.rows(last) if last and last.exists() else []:
        made[CLAIMS] = claims_page.page(claims, {name: about["title"] for name, about in index.items()})
    return made


def write_of_all(paths: list[Path]) -> None:
    made = of_all(paths)
    before = json.loads(INDEX.read_text(encoding="utf-8")) if INDEX.exists() else {}
    NOTEBOOKS.mkdir(exist_ok=True)
    keeping.keep(START, text_of(start_page(before)))
    for file, text in made.items():
        keeping.write(file, text)


def drift(path: Path) -> list[str]:
    """What of one lesson is not as its master says; empty when all is."""
    master = masters.read(path)
    if not is_current(master):
        return [
            f"{master.name}: the master, a helper that it uses or PyTorch has changed since the reference was built"
        ]
    reference, fresh = nbformat.read(reference_path(master), as_version=4), notebook(master)
    prose.fill(fresh, master, reference)
    problems = []
    for cell, wanted in zip(reference.cells, fresh.cells, strict=False):
        if (cell.source, cell.id, cell.metadata) != (wanted.source, wanted.id, wanted.metadata):
            problems.append(f"{master.name}: cell {wanted.id!r} of the reference was edited by hand")
    if len(reference.cells) != len(fresh.cells):
        problems.append(
            f"{master.name}: the reference has {len(reference.cells)} cells, its master {len(fresh.cells)}"
        )
    if release(reference_path(master)) != release_path(master.name).read_text(encoding="utf-8"):
        problems.append(f"{master.name}: the learner's notebook is not what nbgrader makes of the reference")
    return problems


def main(argv: list[str] | None = None) -> int:
    lenient()
    asks = parser("build", __doc__)
    asks.add_argument("lessons", nargs="*", help="e.g. 01 02; default: all")
    asks.add_argument("--force", action="store_true", help="rebuild also what has not changed")
    asks.add_argument("--check", action="store_true", help="build nothing; exit 1 if anything is out of date")
    asked = asks.parse_args(argv)
    try:
        everything, paths = find([]), find(asked.lessons)
        if asked.check:
            problems = [problem for p in paths for problem in drift(p)]
            problems += [
                f"{file.relative_to(ROOT)} is not what the lessons say"
                for file, text in of_all(everything).items()
                if not file.exists() or file.read_text(encoding="utf-8") != text
            ]
            print(
                "\n".join(problems) + "\nrun `make build`"
                if problems
                else f"{len(paths)} lessons are as their masters say"
            )
            return bool(problems)
        with suppress(BadMaster):  # said at the end: another lesson's fault need not stop this one
            write_of_all(everything)  # a lesson that ends with its progress reads it
        last = [p for p in paths if p.stem == verdicts.HERE]  # it reads what all others keep
        for some in ([p for p in paths if p not in last], last):
            with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
                for line in pool.map(lambda p: build_one(p, asked.force), some):
                    print(line, flush=True)
            write_of_all(everything)
    except BadMaster as problem:
        print(f"build: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
