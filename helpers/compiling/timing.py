"""How long a compilation takes: with empty caches, from the cache on disk, and once it is in memory."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch

from helpers import private_torch
from helpers.seconds import LIVE_CPU, format_seconds
from helpers.tables import ShownAsTable, Table, table

from .torches import CannotCompile, alone, dynamo, explained, original


@dataclass(frozen=True, repr=False)
class Seconds(ShownAsTable):
    """Seconds of one call by the clock. cold: every cache empty. warm: what an earlier process would have left on
    disk is there, this process has to trace again. compiled: all in memory. eager: without torch.compile."""

    cold: float
    warm: float
    compiled: float
    eager: float

    def calls_to_pay(self) -> float:
        """After how many calls the cold compilation has paid for itself; infinite where it never does."""
        gain = self.eager - self.compiled
        return self.cold / gain if gain > 0 else float("inf")

    def payback(self) -> str:
        """:meth:`calls_to_pay` in words."""
        calls = self.calls_to_pay()
        if calls == float("inf"):
            return "the cold compilation never pays here: a compiled call takes no less than an eager one"
        return f"the cold compilation has paid after ≈ {calls:,.0f} calls"

    def table(self) -> Table:
        calls = {
            "first call, caches empty": self.cold,
            "first call, cache on disk": self.warm,
            "later calls": self.compiled,
            "without torch.compile": self.eager,
        }
        rows = [[call, f"≈ {format_seconds(taken)}"] for call, taken in calls.items()]
        return table(rows, ["call", "takes"], evidence=LIVE_CPU)


@contextmanager
def empty_caches() -> Iterator[Callable[[], None]]:
    """Inductor's caches in an empty folder of their own; gives a function that forgets what is in memory."""
    try:
        clear = private_torch.clear_caches
    except AttributeError as problem:
        raise CannotCompile(str(problem)) from problem

    def forget() -> None:
        dynamo().reset()
        clear()

    with tempfile.TemporaryDirectory(prefix="compiling-", ignore_cleanup_errors=True) as folder:
        caches = {"TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": os.path.join(folder, "triton")}
        with mock.patch.dict(os.environ, caches):
            forget()
            try:
                yield forget
            finally:
                forget()


def seconds(
    fn: Callable[..., Any], *args: Any, mode: str | None = None, backend: str = "inductor", **kwargs: Any
) -> Seconds:
    """What compiling ``fn`` costs with empty caches, with the cache on disk, and what a call takes before and after.

    For the eye, not for grades. Builds real code in a temporary folder, so it takes seconds and needs a C++ compiler.
    """
    plain = original(fn)

    def clocked(fn: Callable[..., Any]) -> float:
        start = time.perf_counter()
        fn(*args, **kwargs)
        return time.perf_counter() - start

    with explained(), alone(), empty_caches() as forget:
        # the compiler's own modules and C++ headers are loaded and built once: they are not this function's cost
        torch.compile(_little, backend=backend)(torch.zeros(4))
        forget()
        cold = clocked(torch.compile(plain, mode=mode, backend=backend))
        forget()
        again = torch.compile(plain, mode=mode, backend=backend)
        warm, compiled = clocked(again), min(clocked(again) for _ in range(3))
        clocked(plain)
        return Seconds(cold, warm, compiled, min(clocked(plain) for _ in range(3)))


def _little(x: torch.Tensor) -> torch.Tensor:
    return x + 1
