"""A class: nobody's submission costs another a grade, whoever grades, in however many processes, killed or not."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from traitlets.config import PyFileConfigLoader

from helpers.classroom import build, exports, journal
from helpers.classroom.bench import Bench
from helpers.classroom.grade import Class, Writer, grade
from helpers.classroom.submission import clean, key_of
from tests.corpus.broken import BROKEN
from tests.corpus.cases import Case, saved
from tests.corpus.honest import HONEST
from tests.corpus.hostile import CORPUS as HOSTILE
from tests.small_course import laid_out
from tests.test_intake import LESSON, RUN_OTHERWISE, answered, reference

#: what nbgrader's own way may find in a folder instead of a notebook of the right name, or beside it
ODD_FOLDERS = [
    "nothing",
    "other-case",
    "subfolder",
    "other-files",
    "bad-timestamp",
    "link",
    "folder-for-a-file",
]
#: of files that tests/test_intake.py takes in: those of which something of their own is run, and of those that come to
#: the very cells of the right notebook, or to no notebook, one or two: what follows is the same for all. Files that a
#: converter which read them itself would stumble over are among both
TAKEN = {*RUN_OTHERWISE - {"deleted"}, "two-answered", "a-number", "fifo", "socket", *ODD_FOLDERS}
CORPUS: dict[str, Case] = {n: case for n, case in (BROKEN | HONEST).items() if n in TAKEN} | HOSTILE
CLEAN = [f"clean-{i:02}" for i in range(2)]
#: one of each kind, where a test takes another way to the same verdicts: the batch is what proves these for everybody
FEW = ["clean-00", "untouched", "a-number", "two-answered", "helper-cell-patches"]
POSSIBLE = {
    c.metadata.nbgrader.grade_id: c.metadata.nbgrader.points
    for c in reference(LESSON).cells
    if c.metadata.get("nbgrader", {}).get("grade")
}

ENVIRONMENT = os.environ | {"PYTHONPATH": str(build.ROOT)}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def begin(root: Path, students: list[str]) -> Path:
    """A course of lesson 01 in which these have handed in."""
    laid_out(root, LESSON)
    right = answered(LESSON)
    for student in students:
        folder = root / "submitted" / student / LESSON
        folder.mkdir(parents=True)
        if student in CORPUS:
            CORPUS[student].write(right, folder, LESSON)
        else:
            saved(right, folder / f"{LESSON}.ipynb")
    return root


def files_of(root: Path) -> dict[str, tuple[int, int]]:
    """What the course holds that grading must leave alone."""
    kept = [p for name in ("solutions", "submitted") for p in (root / name).rglob("*")]
    kept.append(root / "nbgrader_config.py")
    return {
        str(p.relative_to(root)): (p.lstat().st_size, p.lstat().st_mtime_ns) for p in kept if not p.is_dir()
    }


def scores(root: Path, url: str = "") -> dict[str, dict[str, float | None]]:
    """student → points by exercise in the gradebook; ``None``: a person's to give."""
    found: dict[str, dict[str, float | None]] = {}
    with Gradebook(url or f"sqlite:///{root / 'gradebook.db'}", "pytorch-performance-measured") as book:
        for submission in book.assignment_submissions(LESSON):
            points: dict[str, float | None] = {}
            for one in (g for nb in submission.notebooks for g in nb.grades):
                exercise = one.name.rpartition("__")[0]
                before = points.get(exercise, 0.0)
                points[exercise] = (
                    None if one.auto_score is None or before is None else before + one.auto_score
                )
            found[submission.student.id] = points
    return found


def wanted(student: str) -> dict[str, float | None]:
    full: dict[str, float] = {}
    for name, points in POSSIBLE.items():
        exercise = name.rpartition("__")[0]
        full[exercise] = full.get(exercise, 0.0) + points
    earns = CORPUS[student].earns if student in CORPUS else "full"
    if isinstance(earns, dict):
        return {**full, **earns}
    return {"full": dict(full), "nothing": dict.fromkeys(full, 0.0), "not gradable": dict.fromkeys(full)}[
        earns
    ]


class Judges(threading.local):
    """The judge of each thread that grades, as :mod:`helpers.classroom.grade` keeps it, and all of them: one more costs
    some seconds."""

    all: ClassVar[list[Bench]] = []

    def __init__(self) -> None:
        self.bench = Bench()
        self.all.append(self.bench)


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole corpus and some right notebooks, graded in one batch by the command."""
    root = begin(tmp_path_factory.mktemp("class"), [*CORPUS, *CLEAN])
    before = files_of(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADE_CPU_S", "3")  # for those that never end; nobody honest takes two
        patch.setattr("helpers.classroom.grade._own", Judges())
        assert grade(root, LESSON, jobs=2) == 3  # somebody needs a person
    assert files_of(root) == before
    return root


def test_everybody_has_what_is_due(graded: Path) -> None:
    found = scores(graded)
    assert set(found) == {*CORPUS, *CLEAN}
    assert {s: found[s] for s in found if found[s] != wanted(s)} == {}


def test_a_person_is_asked_where_one_is_needed(graded: Path) -> None:
    room = Class(graded, LESSON)
    asked = {s for s in room.students() if (n := journal.load(room.note(s)))["human"] or n["not_gradable"]}
    due = {s for s, case in CORPUS.items() if case.human or case.earns == "not gradable"}
    assert asked == due
    assert "timestamp.txt holds no time" in journal.load(room.note("bad-timestamp"))["notes"][-1]


def test_everybody_gets_a_page_and_a_line(graded: Path) -> None:
    for student in (*CORPUS, *CLEAN):
        assert (graded / "feedback" / student / LESSON / f"{LESSON}.html").exists(), student
    lines = (graded / f"grades-{LESSON}.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + len(CORPUS) + len(CLEAN)
    wrong = graded / "feedback" / "says-contiguous" / LESSON / f"{LESSON}.html"
    page = wrong.read_text(encoding="utf-8")
    assert "✗" in page and "CheckFailed" not in page.split("</style>")[0], "what was measured and what wanted"
    states = {line.split(",")[0]: line.split(",")[4] for line in lines[1:]}
    not_gradable = {s for s, case in CORPUS.items() if case.earns == "not gradable"}
    assert {s for s, state in states.items() if state == exports.NOT_GRADABLE} == not_gradable


def test_nothing_new_is_graded_again(graded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = {p: p.stat().st_mtime_ns for p in (graded / "autograded").rglob("*.ipynb")}
    assert grade(graded, LESSON) == 3
    assert "0 of them graded now" in capsys.readouterr().out
    assert made == {p: p.stat().st_mtime_ns for p in (graded / "autograded").rglob("*.ipynb")}


def test_a_newer_submission_is_graded_by_itself(graded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    student = CLEAN[-1]
    notebook = graded / "submitted" / student / LESSON / f"{LESSON}.ipynb"
    right = notebook.read_bytes()
    by_hand(graded, student, 1.5)
    assert grade(graded, LESSON) == 3
    assert "0 of them graded now" in capsys.readouterr().out
    lines = (graded / f"grades-{LESSON}.csv").read_text(encoding="utf-8").splitlines()
    assert (
        next(line for line in lines if line.startswith(student)).split(",")[-3] == "16.5"
    )  # the table follows
    HONEST["untouched"].write(answered(LESSON), notebook.parent, LESSON)
    try:
        grade(graded, LESSON)
        said = capsys.readouterr().out
        assert "1 of them graded now" in said and said.count(f"changed: {student}: ") == 5
        assert scores(graded)[student] == wanted("untouched")
        assert f"{student}: windows__hidden: 1.5 points set by hand for an earlier submission" in said
    finally:
        by_hand(graded, student, None)
        notebook.write_bytes(right)
        grade(graded, LESSON)
    assert scores(graded)[student] == wanted(student)


def by_hand(root: Path, student: str, points: float | None) -> None:
    """What the formgrader does when a person types points, or takes them out."""
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}", "pytorch-performance-measured") as book:
        one = book.find_grade("windows__hidden", LESSON, LESSON, student)
        one.manual_score, one.needs_manual_grade = points, False
        book.db.commit()


def test_nbgraders_own_command_and_button_give_the_same(graded: Path, tmp_path: Path) -> None:
    """Whatever a folder holds: nbgrader's way through it; and what this one judges itself."""
    judges = ["clean-00", "helper-cell-patches"]
    students = [*judges, *ODD_FOLDERS]
    root = begin(tmp_path, students)
    shutil.copytree(graded / journal.FOLDER, root / journal.FOLDER)
    for student in judges:
        nb = clean(root / "submitted" / student / LESSON, root / "solutions" / LESSON / f"{LESSON}.ipynb")
        (root / journal.FOLDER / f"{key_of(nb)}.json").unlink()
    Writer(Class(root, LESSON))  # the gradebook has to know the lesson
    nbgrader(root, "autograde", LESSON)
    for student in ("clean-00", "other-case", "nothing"):  # the formgrader's button, in its one server
        loaded = PyFileConfigLoader("nbgrader_config.py", path=str(root)).load_config()
        said = NbGraderAPI(config=loaded).autograde(LESSON, student)
        assert said["success"], said
    hold(root, students)


def nbgrader(course: Path, *command: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "nbgrader", *command],
        cwd=course,
        env=ENVIRONMENT,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-6000:]


# --- other ways to the same grades ------------------------------------------------------------------------------------


def command(course: Path, *more: str, lesson: str = LESSON) -> subprocess.Popen[bytes]:
    code = "import sys; from pathlib import Path; from helpers.classroom.grade import grade\n"
    code += f"sys.exit(grade(Path({str(course)!r}), {lesson!r}, {', '.join(more)}))"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=ENVIRONMENT,
        start_new_session=True,
    )


def hold(root: Path, students: list[str], url: str = "") -> None:
    found = scores(root, url)
    assert set(found) == set(students)
    assert {s: found[s] for s in found if found[s] != wanted(s)} == {}


def test_killed_it_goes_on_and_grades_the_same(
    graded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice: while it only writes, since all verdicts are known; and while it judges."""
    root, dice = begin(tmp_path, FEW), random.Random(11)
    shutil.copytree(graded / journal.FOLDER, root / journal.FOLDER, ignore=shutil.ignore_patterns(LESSON))
    for judges in (False, True):
        if judges:
            for verdicts in (root / journal.FOLDER).glob("*.json"):
                verdicts.unlink()
        done = len(list((root / "feedback").glob("*")))
        running = command(root, "jobs=1")  # which judges and writes at the same time too
        while len(list((root / "feedback").glob("*"))) < done + 1 and running.poll() is None:
            time.sleep(0.01)
        time.sleep(dice.random() * 0.2)
        os.killpg(running.pid, signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL, "it ended before it could be killed"
    monkeypatch.setattr("helpers.classroom.grade._own", SimpleNamespace(bench=Judges.all[0]))
    assert grade(root, LESSON, jobs=1) in (0, 3)
    hold(root, FEW)


Dask = tuple[str, list[subprocess.Popen[bytes]]]


@contextlib.contextmanager
def dask() -> Iterator[Dask]:
    """A Dask scheduler on this machine with two workers, each a process: (its address, the workers)."""
    from distributed import Client

    port = 20_000 + os.getpid() % 20_000
    address = f"tcp://127.0.0.1:{port}"
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "distributed.cli.dask_scheduler",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                "--no-dashboard",
            ],
            env=ENVIRONMENT,
            start_new_session=True,
        )
    ]
    workers = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "distributed.cli.dask_worker",
                address,
                "--nthreads",
                "1",
                "--no-dashboard",
                "--no-nanny",
            ],
            env=ENVIRONMENT,
            start_new_session=True,
        )
        for _ in range(2)
    ]
    try:
        with Client(address, timeout=60, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        yield address, workers
    finally:
        for process in [*workers, *started]:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def scheduler() -> Iterator[Dask]:
    with dask() as found:
        yield found


def test_dask_loses_a_worker_and_no_grade(tmp_path: Path, scheduler: Dask) -> None:
    address, workers = scheduler
    root = begin(tmp_path, FEW)
    left: list[int] = []

    def kill() -> None:
        while not (done := list((root / "feedback").glob("*"))):
            time.sleep(0.05)
        left.append(len(FEW) - len(done))
        os.killpg(workers[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    assert grade(root, LESSON, scheduler=address) in (0, 3)
    killer.join()
    assert left[0] > 0, "it ended before a worker could be killed"
    hold(root, FEW)


@pytest.fixture
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an empty database on a PostgreSQL server of this test's own."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [Path(shutil.which("initdb") or "")]
    programs = found[-1].parent
    if not (programs / "initdb").is_file():
        if os.environ.get("REQUIRE_BROWSER") == "1":
            pytest.fail("CI installs PostgreSQL, and it is not there")
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    # the server refuses to be root, and a socket's path is at most 107 bytes
    folder = Path(tempfile.mkdtemp())
    own = []
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        own = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    subprocess.run(
        [*own, programs / "initdb", "-D", folder / "data", "-U", "teacher", "-A", "trust", "-E", "UTF8"],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=folder,
    )
    server = subprocess.Popen(
        [*own, programs / "postgres", "-D", folder / "data", "-k", folder, "-c", "listen_addresses=", "-F"],
        cwd=folder,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            if (folder / ".s.PGSQL.5432").exists():
                break
            time.sleep(0.05)
        yield f"postgresql+psycopg://teacher@/postgres?host={folder}"
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder)


def test_postgresql_holds_the_same_grades(
    graded: Path, tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = begin(tmp_path, FEW)
    shutil.copytree(graded / journal.FOLDER, root / journal.FOLDER, ignore=shutil.ignore_patterns(LESSON))
    monkeypatch.setenv("GRADEBOOK", postgres)
    for _ in range(2):  # the second finds everything done
        assert grade(root, LESSON) in (0, 3)
    hold(root, FEW, postgres)
    assert not (root / "gradebook.db").exists()
