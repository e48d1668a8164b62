"""The same script for real, on this machine's GPU, or on its CPU where there is none: where its steps' time goes, line by line.

Read twice, since looking costs time. First, some steps run untouched but for a timer, which looks every millisecond which line
the host is at. Then a few run under torch.profiler, each call marked with its line: what PyTorch's operators took there and, on a
GPU, their kernels. What a backward pass does belongs to the line whose forward pass made it.

All figures are clocks', and differ from run to run. What a repair could buy is not said: that would take a replay of what is not
known of a real machine.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile, record_function

from helpers.own_script.host_time import now, ticking
from helpers.own_script.places import NOWHERE, Place, place, running
from helpers.own_script.stepping import Enough
from helpers.text import pages
from helpers.text.seconds import format_seconds
from helpers.text.sizes import size_text
from helpers.text.tables import Table, table

_MARK, _PROFILED, _SHOWN, _CODE = "line of the script ", 3, 25, 60
#: calls of CUDA's by which the host waits
_WAITS = frozenset({"cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"})


@dataclass
class Line:
    """What a line took in a step. host_s: of the host, at this line; torch_s: of PyTorch's operators on the host, backward
    passes of this line included; kernels_s: of their kernels on the GPU. operators, waits: how many."""

    host_s: float = 0.0
    torch_s: float = 0.0
    kernels_s: float = 0.0
    operators: float = 0.0
    waits: float = 0.0


@dataclass(frozen=True)
class Live:
    """What a real run said. steps: how many were timed; step_s: their mean. lines: by place. peak_bytes: of the GPU's
    memory; None on a CPU."""

    script: str
    evidence: str
    step_s: float
    slowest_s: float
    steps: int
    lines: dict[Place, Line] = field(repr=False)
    profiler: Any = field(repr=False)
    peak_bytes: int | None = None

    @property
    def kernels_s(self) -> float:
        """Seconds a step of all kernels, 0 on a CPU."""
        return sum(line.kernels_s for line in self.lines.values())

    @property
    def table(self) -> Table:
        """The lines that take most, on the side that limits the step: the GPU's where kernels fill most of it, else the host's."""
        on_gpu = self.kernels_s > self.step_s / 2
        cost = lambda line: line.kernels_s if on_gpu else max(line.host_s, line.torch_s)  # noqa: E731
        ranked = sorted(self.lines.items(), key=lambda item: -cost(item[1]))[:_SHOWN]
        rows = [
            (str(where), f"`{where.text[:_CODE]}`", _share(line.host_s, self.step_s), f"≈ {format_seconds(line.torch_s)}",
             *([f"≈ {format_seconds(line.kernels_s)}", f"{line.waits:.1f}"] if self.peak_bytes is not None else []),
             f"{line.operators:.0f}")
            for where, line in ranked
            if cost(line) >= self.step_s / 1000
        ]  # fmt: skip
        gpu = ["kernels", "waits"] if self.peak_bytes is not None else []
        columns = ["line", "code", "host, at this line", "its operators", *gpu, "operators"]
        caption = "in a step; operators and kernels: with this line's backward pass, under the profiler"
        return table(rows, columns, evidence=self.evidence, caption=caption)

    def __str__(self) -> str:
        said = [
            f"{Path(self.script).name} · {self.evidence} · {self.steps} steps",
            f"a step: ≈ {format_seconds(self.step_s)} on average (the slowest ≈ {format_seconds(self.slowest_s)})",
        ]
        if self.peak_bytes is not None:
            said.append(
                f"  the GPU's kernels ≈ {format_seconds(self.kernels_s)} of it, peak memory {size_text(self.peak_bytes)}"
            )
        return "\n".join([*said, "", str(self.table)])

    def write(self, folder: Path) -> list[Path]:
        """A page, and torch.profiler's trace of the last steps, for ui.perfetto.dev, in that folder: where they lie."""
        name = Path(self.script).stem
        page, trace = folder / f"{name}-live.html", folder / f"{name}-live-trace.json.gz"
        first, step, *more = str(self).partition("\n\n")[0].splitlines()
        body = f"<h1>{escape(first)}</h1><p>{escape('; '.join([step, *more]))}</p>"
        page.write_text(pages.page(first, body + pages.shown(self.table, "Lines")), encoding="utf-8")
        self.profiler.export_chrome_trace(str(trace))
        return [page, trace]


def _share(part_s: float, whole_s: float) -> str:
    return f"≈ {format_seconds(part_s)} ({part_s / whole_s:.0%})"


class _Marking(TorchFunctionMode):
    """Above all calls: while one runs, the profiler notes its line."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[Place, int] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "__get__":
            return func(*args, **(kwargs or {}))
        number = self.numbers.setdefault(running() or NOWHERE, len(self.numbers))
        with record_function(f"{_MARK}{number}"):
            return func(*args, **(kwargs or {}))


class Listener:
    """Follows a script that runs: `warm` steps alone, `steps` with the timer, a few under the profiler; then `Enough`.

    seconds: steps with the timer are fewer where they take longer than that, three at least.
    """

    def __init__(self, steps: float, warm: int, seconds: float = math.inf) -> None:
        self._wanted, self._warm, self._limit = steps, warm, seconds
        self._ends: list[float] = []
        self._first = 0
        self._stack = ExitStack()
        self._at: dict[Place, float] = defaultdict(float)
        self._profiler: Any = None
        self._profiled = 0
        self._marks = _Marking()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within this block an optimizer's steps are counted."""
        handle = register_optimizer_step_post_hook(self._stepped)
        try:
            yield
        except Enough:
            pass
        finally:
            handle.remove()
            self._stack.close()

    def _stepped(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._first = self._first or id(optimizer)
        if id(optimizer) != self._first:
            return
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        if self._profiler is not None:
            self._profiled += 1
            if self._profiled == _PROFILED:
                self._stack.close()
                raise Enough
            return
        self._ends.append(now())
        timed = len(self._ends) - 1 - self._warm
        if timed == 0:
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            self._stack.enter_context(_timer(self._at))
        late = timed >= 3 and self._ends[-1] - self._ends[self._warm] > self._limit
        if timed >= self._wanted or late:
            self._stack.close()
            both = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
            self._profiler = self._stack.enter_context(profile(activities=both))
            self._stack.enter_context(self._marks)

    def found(self, script: str) -> Live:
        """What was seen. ValueError where the script ended before the steps were over."""
        ends = self._ends[self._warm :]
        if self._profiled < _PROFILED:
            raise ValueError(
                f"{len(self._ends) + self._profiled} call(s) of optimizer.step() ran; {self._warm} for the warm-up, "
                f"{self._wanted:g} by the clock and {_PROFILED} under the profiler are wanted"
            )
        lengths = [b - a for a, b in zip(ends, ends[1:], strict=False)]
        lines: dict[Place, Line] = defaultdict(Line)
        for where, seconds in self._at.items():
            lines[where].host_s = seconds / len(lengths)
        _read(
            self._profiler.events(), {number: where for where, number in self._marks.numbers.items()}, lines
        )
        there = torch.cuda.is_available()
        evidence = f"live ({torch.cuda.get_device_name()})" if there else "live (CPU)"
        peak = torch.cuda.max_memory_allocated() if there else None
        return Live(
            script,
            evidence,
            statistics.fmean(lengths),  # as the lines are: their shares add up
            max(lengths),
            len(lengths),
            dict(lines),
            self._profiler,
            peak,
        )


@contextmanager
def _timer(at: dict[Place, float]) -> Iterator[None]:
    """Within this block the time since the last look is put down to the line that is found."""
    last = now()

    def look(frame: FrameType | None) -> None:
        nonlocal last
        since, last = last, now()
        at[place(frame) or NOWHERE] += last - since

    with ticking(look):
        yield


def _read(events: Sequence[Any], places: dict[int, Place], lines: dict[Place, Line]) -> None:
    """Adds to `lines` what the profiler saw: each operator's own time, and its kernels', at the line that it belongs to."""
    forward: dict[int, Place] = {}
    for event in events:
        if event.sequence_nr >= 0 and not _node(event):
            forward.setdefault(event.sequence_nr, _line(event, places, {}))
    for event in events:
        operator = event.name.startswith("aten::")
        if not (operator or event.kernels or event.name in _WAITS):
            continue
        line = lines[_line(event, places, forward)]
        line.torch_s += event.self_cpu_time_total / 1e6 / _PROFILED * operator
        line.kernels_s += sum(kernel.duration for kernel in event.kernels) / 1e6 / _PROFILED
        line.waits += (event.name in _WAITS) / _PROFILED
        outer = event.cpu_parent is None or not event.cpu_parent.name.startswith("aten::")
        line.operators += (operator and outer) / _PROFILED


def _node(event: Any) -> bool:
    """Whether an event is part of a backward pass, or the node of one."""
    while event is not None:
        if event.name.startswith("autograd::engine"):
            return True
        event = event.cpu_parent
    return False


def _line(event: Any, places: dict[int, Place], forward: dict[int, Place]) -> Place:
    """The line of an event: of the forward pass that made its node, or of the call that it runs in."""
    while event is not None:
        if event.name.startswith("autograd::engine") and event.sequence_nr in forward:
            return forward[event.sequence_nr]
        if event.name.startswith(_MARK):
            return places.get(int(event.name.removeprefix(_MARK)), NOWHERE)
        event = event.cpu_parent
    return NOWHERE
