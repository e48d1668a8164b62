"""How long a compilation takes: with empty caches, from the cache on disk; and what it saves once it is in memory."""

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import torch

from helpers.pytorch import private_torch
from helpers.text.seconds import LIVE_CPU, Speedup, format_seconds
from helpers.text.tables import ShownAsTable, Table, table
from helpers.timing import compare

from .torches import CannotCompile, alone, dynamo, explained, original

#: a number of calls by its power of ten: a clock supports no more than that
_CALLS = ("some calls", "tens of calls", "hundreds of calls", "thousands of calls", "tens of thousands of calls",
          "hundreds of thousands of calls", "millions of calls")  # fmt: skip


@dataclass(frozen=True, repr=False)
class Seconds(ShownAsTable):
    """Seconds of one call by the clock. cold: every cache empty. warm: what an earlier process would have left on
    disk is there, this process has to trace again. gain: calls without torch.compile against compiled ones, in pairs.
    See :func:`seconds`.
    """

    cold: float
    warm: float
    gain: Speedup

    def calls_to_pay(self) -> tuple[float, float] | None:
        """After how many calls the cold compilation has paid for itself, at least and at most, by the interval of the
        gain; None where the pairs do not say that a compiled call is faster."""
        if self.gain.low <= 1:
            return None
        eager = sorted(self.gain.before_s)[len(self.gain.before_s) // 2]
        least, most = (self.cold / (eager * (1 - 1 / ratio)) for ratio in (self.gain.high, self.gain.low))
        return least, most

    def payback(self) -> str:
        """:meth:`calls_to_pay` in words, and by their power of ten."""
        calls = self.calls_to_pay()
        if calls is None:
            why = "no faster" if self.gain.high < 1 else "not clearly faster"
            return f"nothing says that the cold compilation pays here: in {self.gain.pairs} pairs a compiled call is {why} than an eager one"
        said = dict.fromkeys(_CALLS[min(max(int(math.log10(n)), 0), len(_CALLS) - 1)] for n in calls)
        return f"the cold compilation has paid after {' to '.join(said)}"

    def table(self) -> Table:
        calls = {"first call, caches empty": self.cold, "first call, cache on disk": self.warm}
        rows = [[call, f"≈ {format_seconds(taken)}"] for call, taken in calls.items()]
        rows.append(["later calls, against those without torch.compile", str(self.gain).rpartition(" · ")[0]])
        return table(rows, ["call", "takes"], evidence=LIVE_CPU)


@contextmanager
def empty_caches() -> Iterator[Callable[[], None]]:
    """Inductor's caches in an empty folder of their own; gives a function that forgets what is in memory.

    What the processor can do is asked before: that takes seconds of building little programs, whose results torch keeps in
    its usual folder.
    """
    # torch names that folder in the environment; and what fails here is asked again by who compiles, and explained there
    with mock.patch.dict(os.environ), suppress(Exception):
        private_torch.cpu_vec_isa.valid_vec_isa_list()
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

    >>> paid = compiling.seconds(torch.relu, x, backend="eager")
    >>> paid.cold > 0, paid.gain.pairs
    (True, 30)
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
        warm = clocked(again)
        return Seconds(cold, warm, compare(partial(plain, *args, **kwargs), partial(again, *args, **kwargs)))


def _little(x: torch.Tensor) -> torch.Tensor:
    return x + 1
