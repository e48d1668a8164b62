"""Files are replaced whole, and what a person wrote into one is kept beside it."""

import json
import os
import shutil
from datetime import datetime
from pathlib import Path


def write(path: Path, data: str | bytes) -> None:
    """Replace ``path`` at once and whole, or not at all. Raises OSError; the file is then what it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_bytes(data.encode() if isinstance(data, str) else data)
        os.replace(half, path)
    finally:
        half.unlink(missing_ok=True)


def copy_beside(path: Path) -> Path:
    """A copy named by the time, in the same folder; never over an earlier one."""
    stem, n = f"{path.stem}.answers-{datetime.now():%Y%m%d-%H%M%S}", 1
    copy = path.with_name(f"{stem}.ipynb")
    while copy.exists():
        n += 1
        copy = path.with_name(f"{stem}-{n}.ipynb")
    shutil.copy2(path, copy)
    return copy


def has_work(text: str, made: str) -> bool:
    """Whether the notebook ``text`` has a cell that ``made`` lacks: then a person wrote into it.

    Outputs do not count, they can be had again. What cannot be read as a notebook counts all the more.
    """
    try:
        return not _sources(text) <= _sources(made)
    except (ValueError, KeyError, TypeError):
        return True


def _sources(text: str) -> set[str]:
    return {"".join(cell["source"]) for cell in json.loads(text)["cells"]}


def keep(path: Path, made: str) -> Path | None:
    """Copy the notebook at ``path`` beside itself if a person wrote into it since it was ``made``; the copy's path."""
    if not path.exists() or not has_work(path.read_text(encoding="utf-8", errors="replace"), made):
        return None
    return copy_beside(path)
