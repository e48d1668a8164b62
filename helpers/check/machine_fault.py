"""Faults of the machine that a test runs on, told apart from faults of an answer."""

import re
from collections.abc import Mapping
from typing import Any

#: how a verdict on the machine begins
NOT_YOURS = "this machine, not your answer: "

_SHARED = (
    "worker processes need a /dev/shm that can be written to and has room (in a container: --shm-size=1g)"
)
_DISK = "make room in the folder for temporary files, or set TMPDIR to another and restart the kernel"
_MEMORY = (
    "it cannot start another process or thread: close other programs, or ask for more memory or processes"
)

_TRITON = "install the extra `kernels`: make lab EXTRAS=kernels (or make grade … EXTRAS=kernels)"

#: what a fault's text holds → what to do about it
_SIGNS = (
    (re.compile(r"SemLock|shared memory|unable to write to file </torch_"), _SHARED),
    (re.compile(r"\[Errno (?:28|30|122)\]|No space left on device|Disk quota exceeded"), _DISK),
    (re.compile(r"\[Errno 1[12]\]|can't start new thread"), _MEMORY),
    (re.compile("needs Triton, which is not installed here"), _TRITON),
)


def machine_fault(error: Mapping[str, Any]) -> str | None:
    """What is wrong with this machine, if that is what an exception says; ``None`` where it may be the answer's fault.

    error: ``type``, ``mro`` (names of its classes), ``text`` and ``where`` (the line that raised it).
    """
    if not {"OSError", "RuntimeError"} & set(error.get("mro", [error["type"]])):
        return None
    for sign, remedy in _SIGNS:
        if sign.search(f"{error['text']} {error['where']}"):
            return f"{NOT_YOURS}{error['type']}: {error['text']}\n  {remedy}"
    return None


def machine_fault_of(problem: BaseException) -> str | None:
    """The same of an exception that was raised here, on the test's side."""
    names = [kind.__name__ for kind in type(problem).__mro__]
    return machine_fault({"type": names[0], "mro": names, "text": str(problem), "where": ""})
