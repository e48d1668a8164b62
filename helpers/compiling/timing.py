"""How long a compilation takes: with empty caches, from the cache on disk, and once it is in memory."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from helpers import private_torch
from helpers.tables import Table, table

from .records import clock
from .torches import CannotCompile, dynamo


@dataclass(frozen=True)
class Seconds:
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
        rows = [
            ["first call, caches empty", clock(self.cold)],
            ["first call, cache on disk", clock(self.warm)],
            ["later calls", clock(self.compiled)],
            ["without torch.compile", clock(self.eager)],
        ]
        return table(rows, ["call", "takes"], evidence="live (CPU)")

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


@contextmanager
def empty_caches() -> Iterator[Callable[[], None]]:
    """Inductor's caches in an empty folder of their own; gives a function that forgets what is in memory."""
    try:
        clear = private_torch.clear_caches
    except AttributeError as problem:
        raise CannotCompile(str(problem)) from problem
    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    before = {name: os.environ.get(name) for name in names}

    def forget() -> None:
        dynamo().reset()
        clear()

    with tempfile.TemporaryDirectory(prefix="compiling-", ignore_cleanup_errors=True) as folder:
        os.environ.update(dict(zip(names, (folder, os.path.join(folder, "triton")), strict=True)))
        forget()
        try:
            yield forget
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
            forget()


def timed(
    make: Callable[[], Callable[..., Any]], eager: Callable[..., Any], *args: Any, **kwargs: Any
) -> Seconds:
    """make: gives a newly compiled function, of which the call with the arguments is timed."""

    def clocked(fn: Callable[..., Any]) -> float:
        start = time.perf_counter()
        fn(*args, **kwargs)
        return time.perf_counter() - start

    with empty_caches() as forget:
        # the compiler's own modules and C++ headers are loaded and built once: they are not this function's cost
        torch.compile(_little)(torch.zeros(4))
        forget()
        cold = clocked(make())
        forget()
        again = make()
        warm, compiled = clocked(again), min(clocked(again) for _ in range(3))
    clocked(eager)
    return Seconds(cold, warm, compiled, min(clocked(eager) for _ in range(3)))


def _little(x: torch.Tensor) -> torch.Tensor:
    return x + 1
