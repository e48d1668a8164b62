"""From a folder of anything to one clean notebook of a lesson, or to the reason why there is none.

    taken = take(Path("submitted/ada/01_storage_and_stride"), reference, "01_storage_and_stride")
    taken.notebook   # the master's cells with the student's answers; what the student added, in its place
    taken.notes      # what was put right, a sentence each
    taken.human      # what a person should look at

Files are found here, read in :mod:`helpers.classroom.reading`, and their cells are held against the master's in
:mod:`helpers.classroom.matching`. Nothing of a submission is run, and nothing is written.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nbformat import NotebookNode

from helpers.classroom.matching import Matched, match
from helpers.classroom.reading import NotGradable, read
from helpers.text.terminal import printable

__all__ = ["LARGEST", "NotGradable", "plain", "take"]

#: bytes of a notebook's file
LARGEST = 20 * 2**20
#: entries of a folder and folders in it that are looked at, and notebooks that are read
MOST_ENTRIES, MOST_FOLDERS, MOST_NOTEBOOKS = 2_000, 50, 8
_ARCHIVES = (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".rar")
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class _File:
    """A notebook's file in a submission. path: where it is. shown: from the folder. changed: seconds since 1970."""

    path: str
    shown: str
    size: int
    changed: float
    regular: bool


def take(folder: Path, reference: NotebookNode, name: str) -> Matched:
    """The submission in ``folder``, as a clean notebook of lesson ``name``: nbformat 4.5, metadata and locked cells the
    master's.

    reference: the lesson's notebook with solutions and hidden tests, as built. Raises :class:`NotGradable`, and
    nothing else whatever the folder holds.
    """
    files = list(_files(folder))
    if not files and (packed := _packed(folder)):
        raise NotGradable(
            f"{packed!r} was handed in as it is packed: unpack it, and hand in {name}.ipynb itself"
        )
    if not files:
        raise NotGradable(f"no notebook was handed in: {name}.ipynb has to be in the folder")
    # in the order in which they are believed: the file with the right name, then the newest
    files.sort(key=lambda f: (f.shown != f"{name}.ipynb", not f.regular, -f.changed, f.shown))
    candidates: list[tuple[_File, Matched]] = []
    refused: list[tuple[_File, NotGradable]] = []
    for file in files[:MOST_NOTEBOOKS]:
        try:
            candidates.append((file, _matched(file, reference, name)))
        except NotGradable as why:
            refused.append((file, why))
    if not candidates:
        worst, reason = refused[0]
        raise NotGradable(f"{worst.shown}: {reason}")
    file, best = max(candidates, key=lambda candidate: candidate[1].answered)
    if file.shown != f"{name}.ipynb":
        best.notes.insert(0, f"the notebook was found as {file.shown!r} and taken as {name}.ipynb")
    for other, matched in candidates:
        if matched is not best and matched.answered and not _same(matched, best):
            best.human.append(
                f"{file.shown!r} was graded, and {other.shown!r} has other answers "
                f"({matched.answered} exercises answered there, {best.answered} here)"
            )
    for other, reason in refused:
        if other.shown == f"{name}.ipynb":
            best.human.append(f"{file.shown!r} was graded instead of {other.shown!r}: {reason}")
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


def _files(folder: Path) -> Iterator[_File]:
    """The notebooks in a folder and in its folders, none of them behind a symbolic link."""
    if folder.is_symlink() or not os.access(folder, os.R_OK | os.X_OK):
        raise NotGradable("the submission's folder cannot be read: hand in a folder with the notebook")
    for path in _entries(folder):
        if path.lower().endswith(".ipynb"):
            shown = printable(os.path.relpath(path, folder))
            about = os.lstat(path)
            yield _File(path, shown, about.st_size, about.st_mtime, stat.S_ISREG(about.st_mode))


def _entries(folder: Path) -> Iterator[str]:
    """The paths of the files in a folder and in its folders."""
    for place, folders, names in os.walk(folder):  # links to folders are not followed
        inside = sorted(name for name in folders if not name.startswith((".", "__")))
        folders[:] = inside[:MOST_FOLDERS] if place == str(folder) else []
        yield from (os.path.join(place, name) for name in names[:MOST_ENTRIES])


def _packed(folder: Path) -> str:
    """An archive in a folder or in its folders, by its name; "" if there is none."""
    packed = [path for path in _entries(folder) if path.lower().endswith(_ARCHIVES)]
    return printable(os.path.basename(min(packed, default="")))


def _bytes(file: _File) -> bytes:
    if not file.regular:
        raise NotGradable("it is a link or a device and no file: hand in the notebook itself")
    if file.size > LARGEST:
        raise NotGradable(
            f"the file has {file.size / 2**20:.0f} MiB, and at most {LARGEST // 2**20} are read: choose Edit > "
            "Clear Outputs of All Cells, save, and hand it in again"
        )
    try:
        if opened := plain(file.path, LARGEST):
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
