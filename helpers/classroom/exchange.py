"""nbgrader's exchange with care: what students hand in is collected, and feedback goes back, whatever one of them sends.

A submission is a folder that the student's own process writes and names. Stock nbgrader believes the name, follows
links as the instructor (a link to the reference would be full marks), and ends at the first one that is odd.
"""

import os
import pwd
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

from nbgrader.exchange import ExchangeError
from nbgrader.exchange.default import ExchangeCollect, ExchangeReleaseFeedback
from nbgrader.utils import notebook_hash, parse_utc

from helpers.classroom.intake import plain

#: the word that a student's server and the submission share: feedback is found by it
SECRET = "submission_secret.txt"
#: more notebooks than these are not looked at
MOST_NOTEBOOKS = 20


def handed_in(folder: str | Path) -> datetime | None:
    """The time in a submission's timestamp.txt (UTC); ``None`` if there is no such file, or no time that can be shown."""
    if (file := plain(Path(folder, "timestamp.txt"), 100)) is None:
        return None
    with file:
        try:
            time: datetime = parse_utc(file.read(100).decode("ascii").strip())
        except (ValueError, OverflowError):
            return None
    # at the ends of the calendar another time zone's time is none
    return time if datetime.min.year < time.year < datetime.max.year else None


class Collect(ExchangeCollect):
    """``nbgrader collect`` and the formgrader's button. ``check_owner = False``: all students are one system user."""

    src_records: list[dict[str, Any]]

    def init_src(self) -> None:
        self._owners: dict[str, int | None] = {}
        super().init_src()
        self.src_records = [record for record in self.src_records if record["username"]]

    def _path_to_record(self, path: str) -> dict[str, Any]:
        try:
            record: dict[str, Any] = super()._path_to_record(path)
            owner = os.lstat(path).st_uid
            self._owners[path] = owner if self.check_owner else None
            if not self.check_owner or _name(owner) == record["username"]:
                return record
            why = f"it belongs to {_name(owner)}"
        except (ExchangeError, ValueError, OverflowError, OSError):
            why = "its name is none that nbgrader gives"
        self.log.warning("%r is not collected: %s", Path(path).name, why)
        return {"username": "", "timestamp": datetime.min}

    def do_copy(self, src: str, dest: str, log: Any = None) -> None:
        """A submission's notebooks, its time and its secret, where they are plain files of the student's."""
        os.makedirs(dest)
        try:
            folder = os.open(src, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            self.log.warning("%s is empty: what was handed in is no folder", dest)
            return
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith(".ipynb"))[:MOST_NOTEBOOKS]
            for name in [*names, "timestamp.txt", SECRET]:
                file = plain(name, self.coursedir.max_file_size * 1000, folder, self._owners[src])
                if file is None:
                    self.log.warning("%s: %r is missing, too large, a link, or somebody else's", dest, name)
                    continue
                with file, open(os.path.join(dest, name), "xb") as copy:
                    shutil.copyfileobj(file, copy)
        finally:
            os.close(folder)


class ReleaseFeedback(ExchangeReleaseFeedback):
    """``nbgrader release_feedback`` and the formgrader's button: to whoever handed in by the exchange."""

    def copy_files(self) -> None:
        course = self.coursedir
        left_out = set(course.student_id_exclude.split(","))
        for page in sorted(Path(course.root).glob(str(Path(self.src_path).relative_to(course.root)))):
            student, lesson = page.parent.name, page.name
            html = page / f"{lesson}.html"
            ticket = Path(course.format_path(course.submitted_directory, student, lesson), SECRET)
            file = plain(ticket, 1000)
            secret = file.read().decode(errors="replace") if file else ""
            if student in left_out or not secret or not html.exists():
                self.log.info("%s: no feedback to release in the exchange", student)
                continue
            if ticket.stat().st_mtime > html.stat().st_mtime:
                self.log.warning("%s handed in anew: grade %s first; nothing is released", student, lesson)
                continue
            released = Path(self.dest_path, f"{notebook_hash(secret=secret, notebook_id=lesson)}.html")
            shutil.copy(html, released.with_suffix(".tmp"))
            released.with_suffix(".tmp").replace(released)
            self.log.info("%s: feedback is released", student)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
