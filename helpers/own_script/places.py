"""Which line of somebody's script runs: files of the script's own, not of Python, of installed packages or of this course."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from helpers.text.places import where

_COURSE = str(Path(__file__).parents[1]) + os.sep
_PYTHON = tuple({str(Path(sysconfig.get_path(name))) + os.sep for name in ("stdlib", "platstdlib")})
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_TORCH = f"{os.sep}site-packages{os.sep}torch{os.sep}"


class Place(NamedTuple):
    """A line. file: its path, "" for what no line of the script asked for."""

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """The line's code, without a comment behind it."""
        return linecache.getline(self.file, self.line).partition("  #")[0].strip() if self.file else ""

    def __str__(self) -> str:
        return where(self.file, self.line) if self.file else "(no line of the script)"


NOWHERE = Place("", 0, "")


@lru_cache(maxsize=4096)
def own(file: str) -> bool:
    """Whether a file belongs to somebody's own code. A notebook's cells do."""
    if file.startswith("<"):
        return file.startswith("<ipython-input")
    return not (file.startswith((_COURSE, *_PYTHON)) or any(part in file for part in _INSTALLED))


def function_of(code: CodeType) -> str:
    """A code's function as its author says it."""
    return _function(code.co_qualname)


@lru_cache(maxsize=4096)
def _function(name: str) -> str:
    """A function's name as its author says it: a comprehension is part of the function that it stands in."""
    return (
        ".".join(part for part in name.split(".") if not part.startswith("<") or part == "<module>")
        or "<module>"
    )


def _line_of(frame: FrameType) -> int:
    """The line that a frame is at. A jump back to a loop's head has none of its own: it is of the line before it."""
    if frame.f_lineno:
        return frame.f_lineno
    lines = [line for start, _, line in frame.f_code.co_lines() if start <= frame.f_lasti and line]
    return lines[-1] if lines else frame.f_code.co_firstlineno


def _at(frame: FrameType) -> Place:
    return Place(frame.f_code.co_filename, _line_of(frame), function_of(frame.f_code))


def place(frame: FrameType | None, until: str = "") -> Place | None:
    """The innermost line of somebody's own code from a frame on; None where there is none below a function named `until`."""
    while frame is not None:
        code = frame.f_code
        if own(code.co_filename):
            return _at(frame)
        if until and code.co_name == until:
            return None
        frame = frame.f_back
    return NOWHERE


def running(until: str = "") -> Place | None:
    """The line that runs now, in this thread."""
    return place(sys._getframe(1), until)


def calling() -> Place | None:
    """The outermost line of somebody's own code that called a module, in this thread: the one that called the model."""
    frame: FrameType | None = sys._getframe(1)
    found, inside = None, False
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_call_impl":
            inside = True
        elif inside and own(code.co_filename):
            found, inside = frame, False
        frame = frame.f_back
    return _at(found) if found else None


def called_by(function: str) -> Place | None:
    """The line of somebody's own code that runs, in this thread, in what the function of that name called."""
    frame: FrameType | None = sys._getframe(1)
    below = None
    while frame is not None:
        code = frame.f_code
        if own(code.co_filename):
            if code.co_name == function:
                break
            below = frame
        frame = frame.f_back
    return place(below) if frame is not None and below is not None else None


def in_torch(frame: FrameType | None) -> bool:
    """Whether the innermost frame that is not this course's is PyTorch's own."""
    while frame is not None and frame.f_code.co_filename.startswith(_COURSE):
        frame = frame.f_back
    return frame is not None and _TORCH in frame.f_code.co_filename
