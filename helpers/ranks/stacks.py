"""Which of a stack's lines are the learner's: of an exception, and of a process that was asked where it is."""

import linecache
import re
import sysconfig
import traceback
from pathlib import Path
from typing import Any

from helpers.text.places import where

_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')
_LIBRARIES = tuple(
    {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {str(Path(__file__).parents[1]), "<frozen", "<string>"}
)


def described(problem: BaseException) -> dict[str, Any]:
    """Class, text and the learner's own lines of an exception, the innermost last."""
    frames = [
        (f.filename, f.lineno or 0, f.name)
        for f in traceback.extract_tb(problem.__traceback__)
        if not f.filename.startswith(_LIBRARIES)
    ]
    if isinstance(problem, SyntaxError) and problem.filename:
        frames.append((problem.filename, problem.lineno or 0, "<module>"))
    return {"kind": type(problem).__name__, "text": str(problem), "where": [line(*frame) for frame in frames]}


def line(file: str, number: int, function: str) -> str:
    """``cell, line 3, in train: dist.all_reduce(x)``."""
    text = linecache.getline(file, number).strip()
    inside = "" if function == "<module>" else f", in {function}"
    return where(file, number) + inside + (f": {text}" if text else "")


def asked(dump: str) -> str:
    """The learner's innermost line in what faulthandler wrote; of torch's, the function that it had called."""
    best = ""
    for block in re.split(r"^(?=(?:Current t|T)hread )", dump, flags=re.MULTILINE):
        calls = [(m[1], int(m[2]), m[3]) for m in map(_FRAME.match, block.splitlines()) if m]
        for place, frame in enumerate(calls):  # the most recent call comes first
            if not frame[0].startswith(_LIBRARIES):
                inner = calls[0][2] if place else ""
                best = line(*frame) + (f"  (waiting in {inner})" if inner else "")
                break
    return best
