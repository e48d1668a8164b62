"""From a folder of anything to one clean notebook of a lesson, or to the reason why there is none.

    taken = take(Path("submitted/ada/01_storage_and_stride"), reference, "01_storage_and_stride")
    taken.notebook   # the master's cells with the student's answers; what the student added, in its place
    taken.notes      # what was put right, a sentence each
    taken.human      # what a person should look at

Files are found here, read in :mod:`helpers.classroom.reading`, and their cells are held against the master's in
:mod:`helpers.classroom.matching`. Nothing of a submission is run, and nothing is written.
"""

import contextlib
import hashlib
import itertools
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from helpers.classroom.matching import Matched, match
from helpers.classroom.reading import NotGradable, read

__all__ = ["LARGEST", "NotGradable", "Taken", "take"]

#: bytes of a notebook's file
LARGEST = 20 * 2**20
#: entries of a folder and folders in it that are looked at, and notebooks that are read
MOST_ENTRIES, MOST_FOLDERS, MOST_NOTEBOOKS = 2_000, 50, 8
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Taken:
    """A submission that can be graded.

    notebook: nbformat 4.5, metadata and locked cells the master's. notes: what was put right. human: what a person
    should look at, since it could have been meant otherwise. digest: sha256 of the bytes that were read.
    """

    notebook: NotebookNode
    notes: tuple[str, ...]
    human: tuple[str, ...]
    digest: str


@dataclass(frozen=True)
class _File:
    """A notebook's file in a submission. path: from the folder. changed: seconds since 1970."""

    path: str
    folder: int
    name: str
    size: int
    changed: float
    regular: bool


@dataclass(frozen=True)
class _Candidate:
    file: _File
    matched: Matched
    notes: tuple[str, ...]
    digest: str


def take(folder: Path, reference: NotebookNode, name: str) -> Taken:
    """The submission in ``folder``, as a clean notebook of lesson ``name``.

    reference: the lesson's notebook with solutions and hidden tests, as built. Raises :class:`NotGradable`, and
    nothing else whatever the folder holds.
    """
    with contextlib.ExitStack() as opened:
        files = _files(folder, opened)
        if not files:
            raise NotGradable(f"no notebook was handed in: {name}.ipynb has to be in the folder")
        files.sort(key=lambda f: (f.path != f"{name}.ipynb", not f.regular, -f.changed, f.path))
        candidates, refused = [], []
        for file in files[:MOST_NOTEBOOKS]:
            try:
                candidates.append(_candidate(file, reference, name))
            except NotGradable as why:
                refused.append((file, str(why)))
    if not candidates:
        worst, reason = refused[0]
        raise NotGradable(f"{worst.path}: {reason}")
    return _chosen(candidates, refused, len(files), name)


def _chosen(candidates: list[_Candidate], refused: list[tuple[_File, str]], many: int, name: str) -> Taken:
    # candidates stand in the order in which they are believed: the file with the right name, then the newest
    best = max(candidates, key=lambda c: c.matched.answered)
    notes, human = [*best.notes], [*best.matched.human]
    notes += best.matched.notes
    if best.file.path != f"{name}.ipynb":
        notes.insert(0, f"the notebook was found as {best.file.path!r} and taken as {name}.ipynb")
    for other in candidates:
        if other is not best and other.matched.answered and not _same(other.matched, best.matched):
            human.append(
                f"{best.file.path!r} was graded, and {other.file.path!r} has other answers "
                f"({other.matched.answered} exercises answered there, {best.matched.answered} here)"
            )
    for file, why in refused:
        if file.path == f"{name}.ipynb":
            human.append(f"{best.file.path!r} was graded instead of {file.path!r}: {why}")
    if many > MOST_NOTEBOOKS:
        human.append(f"the folder holds {many} notebooks, of which {MOST_NOTEBOOKS} were looked at")
    return Taken(best.matched.notebook, tuple(notes), tuple(human), best.digest)


def _same(matched: Matched, other: Matched) -> bool:
    return [c.source for c in matched.notebook.cells] == [c.source for c in other.notebook.cells]


def _candidate(file: _File, reference: NotebookNode, name: str) -> _Candidate:
    data = _bytes(file)
    notes: list[str] = []
    cells = read(data, notes)
    matched = match(cells, reference, name)
    return _Candidate(file, matched, tuple(notes), hashlib.sha256(data).hexdigest())


# --- files --------------------------------------------------------------------------------------------------------


def _files(folder: Path, opened: contextlib.ExitStack) -> list[_File]:
    """The notebooks in a folder and in its folders, none of them behind a symbolic link."""
    try:
        top = os.open(folder, _OPEN | os.O_DIRECTORY)
    except OSError as problem:
        raise NotGradable(
            f"the submission's folder cannot be read ({problem.strerror}): hand in a folder with the notebook"
        ) from None
    opened.callback(os.close, top)
    files, folders = [], []
    for name, about in _entries(top):
        if stat.S_ISDIR(about.st_mode):
            if not name.startswith((".", "__")):
                folders.append(name)
        elif name.lower().endswith(".ipynb"):
            files.append(_file(name, top, name, about))
    for name in sorted(folders)[:MOST_FOLDERS]:
        try:
            below = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=top)
        except OSError:
            continue
        inside = [
            _file(f"{name}/{inner}", below, inner, about)
            for inner, about in _entries(below)
            if inner.lower().endswith(".ipynb") and not stat.S_ISDIR(about.st_mode)
        ]
        if inside:
            opened.callback(os.close, below)
            files += inside
        else:
            os.close(below)
    return files


def _entries(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in itertools.islice(entries, MOST_ENTRIES):
            with contextlib.suppress(OSError):
                yield entry.name, entry.stat(follow_symlinks=False)


def _file(path: str, folder: int, name: str, about: os.stat_result) -> _File:
    shown = path.encode("utf-8", "replace").decode("utf-8")
    return _File(shown, folder, name, about.st_size, about.st_mtime, stat.S_ISREG(about.st_mode))


def _bytes(file: _File) -> bytes:
    try:
        # a FIFO would wait for its writer, and a link could lead anywhere: both are refused by the opening itself
        descriptor = os.open(file.name, _OPEN, dir_fd=file.folder)
    except OSError as problem:
        if file.regular:
            raise NotGradable(
                f"the file cannot be read ({problem.strerror}): see that it may be read, and collect it again"
            ) from None
        raise NotGradable(_NO_FILE) from None
    with open(descriptor, "rb") as opened:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise NotGradable(_NO_FILE)
        if about.st_size > LARGEST:
            raise NotGradable(
                f"the file has {about.st_size / 2**20:.0f} MiB, and at most {LARGEST // 2**20} are read: choose Edit > "
                "Clear Outputs of All Cells, save, and hand it in again"
            )
        try:
            return opened.read(LARGEST)
        except OSError as problem:
            raise NotGradable(
                f"the file cannot be read ({problem.strerror}): copy it to the folder once more"
            ) from None


_NO_FILE = "it is a link or a device and no file: hand in the notebook itself"
