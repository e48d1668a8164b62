"""Where in the user's code something was allocated: Python frames, without the machine's paths."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from types import FrameType
from typing import Any

from helpers.pytorch import private_torch

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# its modes stand between too
_OWN_SCRIPT = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "own_script") + os.sep
_LIBRARIES = ("site-packages", "dist-packages")
_NOT_THE_PROGRAM = (
    "torch",
    "helpers.simulator",
    "helpers.own_script",
    "contextlib",
    "helpers.counters",
    "unittest",
)
# What stands between an operator and the simulator, and would not be there on a real GPU.
_BETWEEN = ("torch/_compile.py", "torch/_dynamo/eval_frame.py", "torch/utils/_python_dispatch.py")


#: the innermost frames of a real stack with C++ in it: what notes the stack, the allocator, the operator
_CPP = [
    {"filename": "??", "line": 0, "name": "torch::unwind::unwind()"},
    {"filename": "??", "line": 0, "name": "torch::CapturedTraceback::gather(bool, bool, bool)"},
    {"filename": "??", "line": 0, "name": "at::detail::empty_cuda(c10::ArrayRef<long>, c10::ScalarType)"},
]


def frames(cpp: bool = False) -> list[dict[str, Any]]:
    """The callers' frames, innermost first, as a snapshot has them: filename, line, name.

    The simulator's own frames are left out. cpp: with C++'s, as torch has them unless told otherwise; of backward those
    alone, because on a real GPU autograd runs in a thread of its own, without Python. Without them, backward shows more
    than a real GPU does: the line that called it.
    """
    node = private_torch.current_autograd_node() if cpp else None
    if node is not None:
        asked = f"torch::autograd::generated::{node.name()}::apply(std::vector<at::Tensor>&&)"
        return [*_CPP, {"filename": "??", "line": 0, "name": asked}]
    return [*_CPP, *_python()] if cpp else _python()


def _python() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        name = _short(code.co_filename)
        if name and (rows or name not in _BETWEEN):
            rows.append({"filename": name, "line": frame.f_lineno or 0, "name": code.co_name})
        frame = frame.f_back
    return rows


def caller() -> FrameType | None:
    """The line of the program that is running: the innermost frame outside PyTorch, the simulator and what counts."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _not_the_program(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame


@lru_cache(4096)
def _not_the_program(module: str) -> bool:
    return module.startswith(_NOT_THE_PROGRAM)


@lru_cache(4096)
def _short(path: str) -> str:
    """From the package on, for libraries; the file's name alone for the user's; "" for the simulator's."""
    if path.startswith((_HERE, _OWN_SCRIPT)):
        return ""
    parts = path.replace("\\", "/").split("/")
    for library in _LIBRARIES:
        if library in parts:
            return "/".join(parts[parts.index(library) + 1 :])
    if any(part.startswith("ipykernel_") for part in parts) or path.startswith("<ipython-input"):
        return "notebook"
    return parts[-1]
