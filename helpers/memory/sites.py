"""Who allocated it: from a stack of frames to one line of the user's code."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Frame", "frame", "site_of"]

#: frames of libraries, of Python itself, and of this course's own tools: not where a user would look
_LIBRARY = re.compile(
    r"/(site|dist)-packages/|/torch/|/lib/python3[.\d]*/|/helpers/(simulator|memory|recordings|widgets|lesson)\b"
    r"|^<frozen |^<__array_function__|^torch/|\.(cpp|cc|cu|h|hpp|c|so)(\.\d+)*$|^\?\?$|^$"
)
#: file names that IPython gives to a notebook's cells: a folder of the process, and a hash of the cell
_CELL = re.compile(r"ipykernel_\d+/\d+\.py$|^<ipython-input-|^<stdin>$|^<string>$")


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a stack: the file's name without its folder ("cell" for a notebook's), line, function."""

    file: str
    line: int
    function: str
    user: bool = True

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}" if self.file else self.function


def frame(filename: str, line: int, function: str) -> Frame:
    """A frame as it is shown. The folder stays out: it says where someone lives and nothing about memory."""
    path = filename.replace("\\", "/")
    user = "::" not in function and (
        not _LIBRARY.search(path) or not (path or line)
    )  # a name alone: a model's
    return Frame("cell" if _CELL.search(path) else path.rsplit("/", 1)[-1], line, function, user)


def site_of(frames: tuple[Frame, ...]) -> str:
    """The innermost frame of user code, "train.py:12 step"; the innermost of all where none is the user's."""
    found = next((one for one in frames if one.user), frames[0] if frames else None)
    return str(found) if found else ""
