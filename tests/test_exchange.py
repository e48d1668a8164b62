"""nbgrader's exchange between system users: who can do what in it, and what collecting makes of odd submissions."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from nbgrader.apps import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
from nbgrader.server_extensions.formgrader.base import BaseHandler
from nbgrader.utils import notebook_hash
from traitlets.config import Config

from helpers.classroom.formgrader import Formgrader
from helpers.classroom.grading import configure
from helpers.classroom.settings import COURSE_ID
from tests.small_course import Course

LESSON = "01_storage_and_stride"
ME = pwd.getpwuid(os.getuid()).pw_name
#: accounts that every Linux has, to be students
STUDENT, OTHER = "daemon", "nobody"
#: an environment may lie where others cannot read it
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin")
TIME = "2026-11-02 10:00:00.000000 UTC"


class Room:
    """A course with one released lesson, and its exchange, as docs/jupyterhub.md makes it."""

    def __init__(self, place: Path) -> None:
        self.course, self.exchange = place / "course", place / "exchange"
        (self.course / "notebooks" / LESSON).mkdir(parents=True)
        (self.course / "notebooks" / LESSON / f"{LESSON}.ipynb").write_text("as it was handed out")
        self.exchange.mkdir()
        self.exchange.chmod(0o1777)
        config = Config()
        configure(config, self.course)
        config.Exchange.root = str(self.exchange)
        self.api = NbGraderAPI(config=config)
        said = self.api.release_assignment(LESSON)
        assert said["success"], said
        self.inbound = self.exchange / COURSE_ID / "inbound"

    def hand_in(self, student: str, text: str = "an answer", when: str = TIME, end: str = "+x") -> Path:
        folder = self.inbound / f"{student}+{LESSON}+{when}{end}"
        folder.mkdir()
        for name, data in {f"{LESSON}.ipynb": text, "timestamp.txt": when, "submission_secret.txt": f"of {student}"}.items():  # fmt: skip
            (folder / name).write_text(data)
        return folder

    def collect(self) -> str:
        said = self.api.collect(LESSON)
        assert said["success"], said
        return str(said["log"])

    def collected(self, student: str = ME) -> dict[str, str]:
        return {p.name: p.read_text() for p in (self.course / "submitted" / student / LESSON).glob("*")}


@pytest.fixture(scope="module", autouse=True)
def gradebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One for all: making it takes seconds, and collecting only asks it for a due date."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADEBOOK", f"sqlite:///{tmp_path_factory.mktemp('book')}/gradebook.db")
        yield


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def test_the_newest_of_its_owner_is_collected(room: Room) -> None:
    room.hand_in(ME, "early")
    room.hand_in(ME, "late", "2026-11-03 10:00:00.000000 UTC")
    room.hand_in("ada", "in ada's name, latest of all", "2026-11-04 10:00:00.000000 UTC")
    assert f"'ada+{LESSON}" in (said := room.collect()) and f"it belongs to {ME}" in said
    assert room.collected()[f"{LESSON}.ipynb"] == "late" and not room.collected("ada")
    assert set(room.collected()) == {f"{LESSON}.ipynb", "timestamp.txt", "submission_secret.txt"}
    room.hand_in(ME, "later", "2026-11-05 10:00:00.000000 UTC")
    room.collect()
    assert room.collected()[f"{LESSON}.ipynb"] == "later"


def test_links_lead_nowhere(room: Room) -> None:
    reference = room.course / "reference.ipynb"
    reference.write_text("all answers")
    notebook = room.hand_in(ME) / f"{LESSON}.ipynb"
    notebook.unlink()
    notebook.symlink_to(reference)
    assert "a link" in room.collect()
    assert "all answers" not in room.collected().values() and "timestamp.txt" in room.collected()
    later = "2026-11-05 10:00:00.000000 UTC"
    (room.inbound / f"{ME}+{LESSON}+{later}+y").symlink_to(room.course, target_is_directory=True)
    room.collect()
    assert not room.collected()


def test_an_odd_name_is_one_submission_lost(room: Room) -> None:
    room.hand_in(ME)
    for odd in ("yesterday, honestly+x", "9" * 60, "", "+", "+x+y+z", f"{TIME}\n+x", "x+" * 9):
        (room.inbound / f"{ME}+{LESSON}+{odd}").mkdir()
    (room.inbound / f"+{LESSON}+").mkdir()
    room.collect()
    assert room.collected()[f"{LESSON}.ipynb"] == "an answer"


def test_feedback_goes_to_whoever_has_the_secret(room: Room) -> None:
    room.hand_in(ME)
    room.collect()
    for student in (ME, "by_mail"):
        page = room.course / "feedback" / student / LESSON / f"{LESSON}.html"
        page.parent.mkdir(parents=True)
        page.write_text(f"for {student}")
    said = room.api.release_feedback(LESSON)
    assert said["success"] and "by_mail: no feedback to release" in said["log"], said
    (released,) = (room.exchange / COURSE_ID / "feedback").iterdir()
    assert released.name == f"{notebook_hash(secret=f'of {ME}', notebook_id=LESSON)}.html"
    assert released.read_text() == f"for {ME}"
    assert (released.parent.stat().st_mode & 0o777) == 0o711, "nobody can list it"

    later = time.time() + 10
    os.utime(room.course / "submitted" / ME / LESSON / "submission_secret.txt", (later, later))
    assert "grade" in room.api.release_feedback(LESSON)["log"], "what was handed in anew has no feedback yet"


#: what a student may not do, tried as that student; what did go is printed
TRIES = """
import os, sys
from pathlib import Path
exchange, course, others = map(Path, sys.argv[1:])
def tries(what, action):
    try:
        action()
    except PermissionError:
        return
    print(what)
tries("lists what was handed in", lambda: os.listdir(course / "inbound"))
tries("lists feedback", lambda: os.listdir(course / "feedback"))
tries("puts another course in place of this", lambda: course.rename(exchange / "mine"))
tries("puts another inbox in place of this", lambda: (course / "inbound").rename(course / "mine"))
tries("writes into what is released", lambda: (course / "outbound" / "x").mkdir())
tries("reads the course", lambda: os.listdir(exchange.parent / "course"))
tries("changes what another handed in", lambda: (others / "timestamp.txt").write_text("late"))
"""
#: and what a student does
HANDS_IN = """
import sys
from pathlib import Path
folder = Path(sys.argv[1])
folder.mkdir()
(folder / sys.argv[2]).write_text("by " + sys.argv[3])
"""


@pytest.mark.skipif(
    os.getuid() != 0 or not PYTHON,
    reason="only root can try what other system users may do; CI is root",
)
def test_system_users_are_kept_apart() -> None:
    with tempfile.TemporaryDirectory() as place:  # pytest's own folders let nobody through
        Path(place).chmod(0o755)
        room = Room(Path(place))
        room.course.chmod(0o700)
        (room.exchange / COURSE_ID / "feedback").mkdir(mode=0o711)
        as_student = {"user": STUDENT, "group": STUDENT, "extra_groups": [], "cwd": "/", "check": True}
        others = room.hand_in(OTHER)
        for whose, end in ((STUDENT, "+own"), (OTHER, "+forged")):
            folder = room.inbound / f"{whose}+{LESSON}+{TIME}{end}"
            subprocess.run([PYTHON, "-c", HANDS_IN, folder, f"{LESSON}.ipynb", STUDENT], **as_student)
        shutil.chown(others, OTHER)
        tried = [PYTHON, "-c", TRIES, room.exchange, room.exchange / COURSE_ID, others]
        done = subprocess.run(tried, **as_student, capture_output=True, text=True)
        assert done.stdout == "", done.stdout
        said = room.collect()
        assert f"it belongs to {STUDENT}" in said
        assert room.collected(STUDENT) == {f"{LESSON}.ipynb": f"by {STUDENT}"}
        assert not room.collected(OTHER), "its files are root's here, not the student's"


def test_a_time_that_is_none_blanks_no_page_of_the_formgrader(tmp_path: Path) -> None:
    """The lists of all submissions of a lesson, and of one student, as the pages ask for them."""
    course = Course(tmp_path)
    none = ("never", "", "é", "9" * 23, "0001-01-01 00:00:00 +10", "9999-12-31 23:59:59 UTC")
    odd = {f"odd{i}": text for i, text in enumerate(none)}
    for student, when in (odd | {"other": "2026-11-22 10:00:00 UTC"}).items():
        folder = tmp_path / "submitted" / student / LESSON
        folder.mkdir(parents=True)
        (folder / "timestamp.txt").write_text(when, encoding="utf-8")
        course.add(student, None, None)
    config = course.api().config
    config.NbGraderAPI.timezone = "Asia/Tokyo"
    app = Formgrader(config=config)
    app.load_config_file = lambda: None  # it has been read
    page = SimpleNamespace(log=app.log, coursedir=CourseDirectory(parent=app), authenticator=None)
    api = BaseHandler.api.fget(page)
    shown = {one["student"]: one["timestamp"] for one in api.get_submissions(LESSON)}
    assert shown == dict.fromkeys(odd) | {"other": "2026-11-22T10:00:00"}
    for student in odd:
        assert [one["timestamp"] for one in api.get_student_submissions(student)] == [None], student
