"""The scoreboard of the running example: what a change bought, on a simulated H100 and on this machine's CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from unittest import mock

import torch
from torch import nn

from helpers import progress, timing
from helpers.ranks import run_ranks
from helpers.running_example.plain import Record, Size
from helpers.running_example.script import Script
from helpers.simulator import simulate
from helpers.text.seconds import LIVE_CPU, Speedup, format_seconds
from helpers.text.sizes import size_text
from helpers.text.tables import BESIDE, ShownAsTable, Table, number_text, table

#: the example's size on this machine's CPU, and on the simulated H100
SMALL, LARGE = Size(), Size(width=512, heads=8, context=256, batch=8)
CARD = "H100"
SIMULATED = f"simulated ({CARD})"

WARM_UP, STEPS = 4, 5  # steps before the counting, and counted ones
TRIED = 6  # steps whose losses are compared


class NeedsGPU(RuntimeError):
    """A part asked for something that a CPU has not."""


class NoGPU:
    """The names of torch.cuda that the parts use, on the CPU: there is one stream, and nothing to pin memory for."""

    device = torch.device("cpu")

    def Stream(self) -> NoGPU:
        return self

    current_stream = Stream

    def stream(self, stream: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def wait_stream(self, stream: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        raise NeedsGPU(f"the CPU has no {name}")

    def __enter__(self) -> NoGPU:
        self._stack = ExitStack()
        for name, new in [
            ("pin_memory", lambda tensor: tensor),
            ("record_stream", lambda tensor, stream: None),
        ]:
            self._stack.enter_context(mock.patch.object(torch.Tensor, name, new))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()


@dataclass(frozen=True, repr=False)
class Score(ShownAsTable):
    """What a step of the script takes on the simulated GPU: means of five steps.

    busy_s: its kernels together. peak_bytes: the most that the allocator reserved. sent_bytes: payload of the
    collectives, where there are several ranks.
    """

    step_s: float
    busy_s: float
    launches: float
    operators: float
    syncs: float
    copied_bytes: float
    peak_bytes: int
    sent_bytes: float = 0.0

    def table(self) -> Table:
        rows = [(name, form(getattr(self, key))) for key, name, form in _rows_of(self)]
        return table(rows, ["a step of the script", "takes"], evidence=SIMULATED)


@lru_cache(maxsize=64)
def score(script: Script, ranks: int = 1) -> Score:
    """Run the script on a simulated H100 at size LARGE, five steps after four, as one of so many ranks."""
    gpu = simulate(CARD)
    if ranks > 1:
        gpu = gpu.world(ranks)
    with gpu:
        # the last one is never taken, but may be loaded ahead
        run = script.train(LARGE, gpu, WARM_UP + STEPS + 1)
        _go(run, WARM_UP)
        gpu.synchronize()
        gpu.reset_peak_memory_stats()
        kernels, host, sent = len(gpu.kernels), len(gpu.host), len(gpu.collectives)
        start_s, launches, syncs = gpu.clock(), gpu.launches, gpu.syncs
        _go(run, STEPS)
        launches, syncs = gpu.launches - launches, gpu.syncs - syncs
        gpu.synchronize()
        ran = gpu.kernels[kernels:]
        return Score(
            step_s=(gpu.clock() - start_s) / STEPS,
            busy_s=sum(k.duration_s for k in ran if k.kind == "kernel") / STEPS,
            launches=launches / STEPS,
            operators=sum(record.kind == "operator" for record in gpu.host[host:]) / STEPS,
            syncs=syncs / STEPS,
            copied_bytes=sum(k.bytes for k in ran if k.kind == "copy h2d") / STEPS,
            peak_bytes=gpu.max_memory_reserved(),
            sent_bytes=sum(call.bytes for call in gpu.collectives[sent:]) / STEPS,
        )


def _go(run: Iterator[Record], steps: int) -> None:
    for _ in range(steps):
        next(run)


@lru_cache(maxsize=64)
def losses(script: Script, ranks: int = 1, steps: int = TRIED) -> tuple[float, ...]:
    """The script's first losses at size SMALL.

    On the CPU; with the simulated GPU's true values if a part needs a GPU; on two real processes if `ranks` are several.
    """
    if ranks > 1:
        values: tuple[float, ...] = run_ranks(_losses, 2, script, steps)[0]
        return values
    try:
        return _losses(script, steps)
    # with values, host tensors count as the GPU's: what orders them is looked at in `score` alone
    except NeedsGPU:
        with simulate(CARD, values=True, strict=False) as gpu:
            return _losses(script, steps, gpu)


def _losses(script: Script, steps: int, gpu: Any = None) -> tuple[float, ...]:
    with nullcontext(gpu) if gpu is not None else NoGPU() as device:
        run = script.train(SMALL, device, steps)
        record = next(run)
        _go(run, steps - 1)
        return tuple(map(float, record.losses))


def trained(script: Script, steps: int) -> nn.Module:
    """The model of size SMALL after so many steps on the CPU."""
    models: list[nn.Module] = []

    def prepare(model: nn.Module, gpu: Any) -> nn.Module:
        models.append(model)
        return script.prepare(model, gpu)

    with NoGPU() as gpu:
        _go(script.replace(prepare=prepare).train(SMALL, gpu, steps), steps)
    return models[0]


def on_cpu(script: Script) -> Callable[[], Record]:
    """A function that does the script's next step, at size SMALL, on the CPU."""
    with NoGPU() as gpu:
        run = script.train(SMALL, gpu, 10_000)
        next(run)

    def step() -> Record:
        with NoGPU():
            return next(run)

    return step


def live(before: Script, after: Script, pairs: int = 8) -> Speedup | None:
    """Steps of both on this CPU, one thread, in pairs. None where one of them needs a GPU."""
    try:
        steps = [on_cpu(script) for script in (before, after)]
    except NeedsGPU:
        return None
    return timing.compare(*steps, pairs=pairs, number=1, num_threads=1)


class Board(ShownAsTable):
    """before, after: their scores. same: whether they train alike, within the tolerance. ratio: live, on the CPU."""

    def __init__(
        self, before: Score, after: Score, *, apart: float, tolerance: float, ratio: Speedup | None = None,
        ranks: tuple[int, int] = (1, 1),
    ) -> None:  # fmt: skip
        self.before, self.after, self.ratio, self.ranks = before, after, ratio, ranks
        self.apart, self.tolerance, self.same = apart, tolerance, apart <= tolerance

    def table(self) -> Table:
        rows = beside(_rows_of(self.before, self.after), self.before, self.after)
        if self.ranks == (1, 1):
            cpu = "needs a GPU" if self.ratio is None else self.ratio.cell
            rows.append((f"time on the CPU, {LIVE_CPU}", "", "", cpu))
        note = f"the losses of {TRIED} steps agree within {self.tolerance:.2%}"
        if not self.same:
            note = f"THE LOSSES DIFFER by up to {self.apart:.2%}: this is another training"
        old, new = (
            f"{name}, each of {n} GPUs" if n > 1 else name
            for name, n in zip(("before", "after"), self.ranks, strict=True)
        )
        columns = ["a step of the script", old, new, "before ÷ after"]
        evidence, caption = f"{SIMULATED} · {LIVE_CPU}", f"{BESIDE[SIMULATED]} · {note}"
        return table(rows, columns, evidence=evidence, caption=caption)


#: a field of a score, its name in a table, and how its number is written there
Row = tuple[str, str, Callable[[float], str]]


def beside(rows: Iterable[Row], before: Any, after: Any) -> list[tuple[str, str, str, str]]:
    """Two scores as rows of a table: name, both numbers, and how many times as much the first one is."""
    lines = []
    for key, name, form in rows:
        old, new = getattr(before, key), getattr(after, key)
        lines.append((name, form(old), form(new), f"{old / new:.2f}×" if old and new else ""))
    return lines


#: a score's fields in the order of the table: field, name, form
ROWS: list[Row] = [
    ("step_s", "time", format_seconds),
    ("busy_s", "time of its kernels", format_seconds),
    ("launches", "launches", number_text),
    ("operators", "operators", number_text),
    ("syncs", "syncs", number_text),
    ("copied_bytes", "bytes copied to the device", size_text),
    ("sent_bytes", "bytes given to collectives and sends", size_text),
    ("peak_bytes", "peak memory", size_text),
]


def _rows_of(*scores: Score) -> list[Row]:
    """What a table shows of them: what is sent, only where one of them sends something."""
    return [row for row in ROWS if row[0] != "sent_bytes" or any(score.sent_bytes for score in scores)]


def compare(
    before: Script, after: Script, *, tolerance: float = 1e-4, ranks: int | tuple[int, int] = 1
) -> Board:
    """What the step from one script to the other bought.

    tolerance: how far the losses of both may be apart, as a share. ranks: on how many GPUs each of them runs; their
    losses are then those of two real processes.
    """
    for script in (before, after):
        if not isinstance(script, Script):
            raise TypeError(f"compare wants two scripts, such as before.replace(…), not {script!r}")
    a, b = both = (ranks, ranks) if isinstance(ranks, int) else ranks
    pairs = zip(losses(before, a), losses(after, b), strict=True)
    apart = max(abs(old - new) / old if math.isfinite(new) else math.inf for old, new in pairs)
    ratio = live(before, after) if both == (1, 1) else None
    scored = score(before, a), score(after, b)
    board = Board(*scored, apart=apart, tolerance=tolerance, ratio=ratio, ranks=both)
    progress.keep_board(f"another {', '.join(after.unlike(before))}", board.table())
    return board
