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
from typing import IO

from nbformat import NotebookNode

from helpers.classroom.matching import Matched, match
from helpers.classroom.reading import NotGradable, read

__all__ = ["LARGEST", "NotGradable", "plain", "take"]

#: bytes of a notebook's file
LARGEST = 20 * 2**20
#: entries of a folder and folders in it that are looked at, and notebooks that are read
MOST_ENTRIES, MOST_FOLDERS, MOST_NOTEBOOKS = 2_000, 50, 8
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class _File:
    """A notebook's file in a submission. path: from the folder. changed: seconds since 1970."""

    path: str
    folder: int
    name: str
    size: int
    changed: float
    regular: bool


def take(folder: Path, reference: NotebookNode, name: str) -> Matched:
    """The submission in ``folder``, as a clean notebook of lesson ``name``: nbformat 4.5, metadata and locked cells the
    master's.

    reference: the lesson's notebook with solutions and hidden tests, as built. Raises :class:`NotGradable`, and
    nothing else whatever the folder holds.
    """
    with contextlib.ExitStack() as opened:
        files = _files(folder, opened)
        if not files:
            raise NotGradable(f"no notebook was handed in: {name}.ipynb has to be in the folder")
        # in the order in which they are believed: the file with the right name, then the newest
        files.sort(key=lambda f: (f.path != f"{name}.ipynb", not f.regular, -f.changed, f.path))
        candidates: list[tuple[_File, Matched]] = []
        refused: list[tuple[_File, NotGradable]] = []
        for file in files[:MOST_NOTEBOOKS]:
            try:
                candidates.append((file, _matched(file, reference, name)))
            except NotGradable as why:
                refused.append((file, why))
    if not candidates:
        worst, why = refused[0]
        raise NotGradable(f"{worst.path}: {why}")
    file, best = max(candidates, key=lambda candidate: candidate[1].answered)
    if file.path != f"{name}.ipynb":
        best.notes.insert(0, f"the notebook was found as {file.path!r} and taken as {name}.ipynb")
    for other, matched in candidates:
        if matched is not best and matched.answered and not _same(matched, best):
            best.human.append(
                f"{file.path!r} was graded, and {other.path!r} has other answers "
                f"({matched.answered} exercises answered there, {best.answered} here)"
            )
    for other, why in refused:
        if other.path == f"{name}.ipynb":
            best.human.append(f"{file.path!r} was graded instead of {other.path!r}: {why}")
    if len(files) > MOST_NOTEBOOKS:
        best.human.append(
            f"the folder holds {len(files)} notebooks, of which {MOST_NOTEBOOKS} were looked at"
        )
    return best


def _matched(file: _File, reference: NotebookNode, name: str) -> Matched:
    data = _bytes(file)
    notes: list[str] = []
    matched = match(read(data, notes), reference, name)
    matched.notes[:0] = notes
    matched.digest = hashlib.sha256(data).hexdigest()
    return matched


def _same(matched: Matched, other: Matched) -> bool:
    return [c.source for c in matched.notebook.cells] == [c.source for c in other.notebook.cells]


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
    if not file.regular:
        raise NotGradable("it is a link or a device and no file: hand in the notebook itself")
    if file.size > LARGEST:
        raise NotGradable(
            f"the file has {file.size / 2**20:.0f} MiB, and at most {LARGEST // 2**20} are read: choose Edit > "
            "Clear Outputs of All Cells, save, and hand it in again"
        )
    try:
        if opened := plain(file.name, LARGEST, file.folder):
            with opened:
                return opened.read(LARGEST)
    except OSError:  # of the disk, or of what only looks like a file
        pass
    raise NotGradable("the file cannot be read: see that it may be read, and collect or hand it in again")


def plain(
    name: str | Path, most: int, folder: int | None = None, owner: int | None = None
) -> IO[bytes] | None:
    """An opened file, if it is a plain one of at most ``most`` bytes. folder: a descriptor it lies in; owner: a uid."""
    try:
        # a FIFO would wait for its writer, and a link could lead anywhere: both are refused by the opening itself
        handle = os.open(name, _OPEN, dir_fd=folder)
    except OSError:
        return None
    about = os.fstat(handle)
    if stat.S_ISREG(about.st_mode) and about.st_size <= most and owner in (None, about.st_uid):
        return os.fdopen(handle, "rb")
    os.close(handle)
    return None
