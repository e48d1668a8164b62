"""Lesson 17: what an unknown script does on the simulated GPU, by part, by line, on other machines; repairs tried, rung by rung."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import itertools
import json
import linecache
import math
import os
import signal
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import torch

from helpers import capstone, memory, plots, ranks, trace
from helpers.capstone import given, scores
from helpers.capstone.parts import AREAS, PARTS, Script
from helpers.experiments.gpu_queue import _machine, _source
from helpers.plots import ladders
from helpers.seconds import format_seconds
from helpers.simulator import simulate
from helpers.sizes import size_text
from helpers.tables import Table, table

SIMULATED = scores.SIMULATED
STEPS = scores.STEPS


@contextmanager
def _running(script: Script, card: Any = scores.CARD) -> Iterator[tuple[Any, ModuleType, Any]]:
    """The simulated GPU, one of two; the script's module; and its run, warm."""
    gpu = simulate(card).world(scores.RANKS)
    with scores.running(script, gpu) as (made, run, _):
        yield gpu, made, run


# --- 1, the script, and 2, its scoreboard --------------------------------------------------------------------------


def parts(script: Script) -> Table:
    """The functions that may be replaced, by area, and how long each is."""
    rows = [(area, ", ".join(f"`{name}`" for name in names)) for area, names in AREAS.items()]
    return table(rows, ["area", "functions that you may replace"], evidence="arithmetic")


def scoreboard(script: Script) -> Table:
    """What a step takes, what it may take when all is repaired, and how far it is over that."""
    limits, found = given.budget()["all"], capstone.score(script).as_dict()
    rows = []
    for key, name, form in scores.ROWS:
        now, limit = found[key], limits[key]
        over = "within" if now <= limit else f"{now / limit:.1f} × the budget" if limit else "should be 0"
        rows.append((name, form(now), form(limit), over))
    return table(rows, ["a step of the script", "now", "budget", ""], evidence=SIMULATED)


# --- 1, which part of the machine ----------------------------------------------------------------------------------


def step_s(script: Script, cpu: float = 1, gpu: float = 1, pcie: float = 1, loading: float = 1) -> float:
    """Seconds of a step on a machine of which a part is so many times as fast."""
    rates = {"REQUEST_S": 1 / loading, "READ_BYTES_PER_S": loading, "MAKE_BYTES_PER_S": loading}
    faster = {name: getattr(scores, name) * rate for name, rate in rates.items()}
    with mock.patch.multiple(scores, **faster), _running(script, _machine(cpu, gpu, pcie)) as (there, _, run):
        began = there.clock()
        for _ in range(STEPS):
            next(run)
        there.synchronize()
        return (there.clock() - began) / STEPS


def gains(script: Script) -> dict[str, float]:
    """Part of the machine → how many times as fast a step is when that part is twice as fast."""
    plain = step_s(script)
    return {
        name: plain / step_s(script, **{key: 2})
        for name, key in (("CPU", "cpu"), ("GPU", "gpu"), ("copies", "pcie"), ("loading", "loading"))
    }


def of_the_machine(found: Mapping[str, float]) -> Table:
    """`gains` as a table."""
    rows = [(name, f"{gain:.2f}×") for name, gain in found.items()]
    return table(rows, ["twice as fast", "makes a step faster"], evidence=SIMULATED)


# --- 3, which part of the script -----------------------------------------------------------------------------------


class Spent(NamedTuple):
    """What a part of the script took in a step, without the parts that it calls."""

    host_s: float
    kernels_s: float
    launches: float
    syncs: float


class _Meter:
    """Charges what happens on the GPU to the part that runs."""

    def __init__(self, gpu: Any) -> None:
        self.gpu, self.stack = gpu, ["train, and the classes"]
        self.spent: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
        self.seen = self._now()

    def _now(self) -> tuple[float, int, int, int]:
        return self.gpu.clock(), len(self.gpu.kernels), self.gpu.launches, self.gpu.syncs

    def charge(self) -> None:
        now = self._now()
        kernels = self.gpu.kernels[self.seen[1] : now[1]]
        busy = sum(k.duration_s for k in kernels if k.kind == "kernel")
        news = now[0] - self.seen[0], busy, now[2] - self.seen[2], now[3] - self.seen[3]
        spent = self.spent[self.stack[-1]]
        spent[:] = [a + b for a, b in zip(spent, news, strict=True)]
        self.seen = now

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        self.charge()
        self.stack.append(name)
        try:
            yield
        finally:
            self.charge()
            self.stack.pop()

    def wrap(self, name: str, part: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            with self.within(name):
                found = part(*args, **named)
            return self.each(name, found) if inspect.isgenerator(found) else found

        return call

    def each(self, name: str, made: Iterator[Any]) -> Iterator[Any]:
        """A generator's own work: what happens until it yields."""
        while True:
            with self.within(name):
                try:
                    item = next(made)
                except StopIteration:
                    return
            yield item


def spent(script: Script) -> dict[str, Spent]:
    """Part of the script → what it took: a mean of four steps."""
    with _running(script) as (gpu, made, run):
        meter = _Meter(gpu)
        names = vars(made)
        names.update({name: meter.wrap(name, names[name]) for name in PARTS})
        step = meter.wrap("the optimizer's step", torch.optim.AdamW.step)
        backward = meter.wrap("backward", torch.Tensor.backward)
        with (
            mock.patch.object(torch.Tensor, "backward", backward),
            mock.patch.object(torch.optim.AdamW, "step", step),
        ):
            for _ in range(STEPS):
                next(run)
            meter.charge()
        return {name: Spent(*(number / STEPS for number in of)) for name, of in meter.spent.items()}


def worst(found: Mapping[str, Spent]) -> dict[str, str]:
    """The area of the part with the most launches, and of the one with the most syncs."""
    area = {part: name for name, names in AREAS.items() for part in names}
    launches, syncs = (
        max(found, key=lambda name: getattr(found[name], key)) for key in ("launches", "syncs")
    )
    return {
        "most launches": area.get(launches, "none of them"),
        "most syncs": area.get(syncs, "none of them"),
    }


def by_part(found: Mapping[str, Spent]) -> Table:
    """`spent` as a table, the longest on the CPU first."""
    area = {part: name for name, parts in AREAS.items() for part in parts}
    rows = [
        (f"`{name}`" if name in area else name, area.get(name, ""), format_seconds(s.host_s), format_seconds(s.kernels_s),
         f"{s.launches:,.1f}", f"{s.syncs:.1f}")
        for name, s in sorted(found.items(), key=lambda one: -one[1].host_s)
        if s.host_s > 1e-6 or s.launches
    ]  # fmt: skip
    columns = [
        "part, without the parts that it calls",
        "area",
        "CPU, waits included",
        "its kernels",
        "launches",
        "syncs",
    ]
    return table(rows, columns, evidence=SIMULATED)


# --- 2, the trace, and 3, the lines --------------------------------------------------------------------------------


def traced(script: Script) -> trace.Trace:
    """Four steps, as torch.profiler would record them."""
    with _running(script) as (gpu, _, run):
        with gpu.profile() as prof:
            for _ in range(STEPS):
                next(run)
                prof.step()
        gpu.synchronize()
    return trace.read(prof)


def computes(t: trace.Trace) -> str:
    """How much of the time the GPU computes, in the words of lesson 03."""
    share = trace.shares(t).computes
    return "over 90 %" if share >= 0.9 else "50 to 90 %" if share >= 0.5 else "under 50 %"


def waits(script: Script) -> Table:
    """The lines of the script that make the CPU wait for the GPU, and how often in a step."""
    with _running(script) as (gpu, _, run), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gpu.set_sync_debug_mode("warn")
        for _ in range(STEPS):
            next(run)
        gpu.set_sync_debug_mode("default")
    lines: dict[str, list[str]] = defaultdict(list)
    for one in told:
        if "synchronizing" in str(one.message):
            lines[_source(one)].append(str(one.message).rpartition(" ")[2])
    rows = [
        (f"`{line}`", ", ".join(sorted(set(what))), f"{len(what) / STEPS:.1f}")
        for line, what in sorted(lines.items(), key=lambda found: -len(found[1]))
    ]
    return table(rows, ["line", "what waits", "times a step"], evidence=SIMULATED)


def snapshot(script: Script) -> memory.Snapshot:
    """Two steps, as torch.cuda.memory would have recorded them."""
    with _running(script) as (gpu, _, run):
        gpu.memory._record_memory_history()
        for _ in range(2):
            next(run)
        return memory.read(gpu)


def held(found: memory.Snapshot, most: int = 8) -> Table:
    """The lines that hold most at the peak."""
    peak = memory.peak(found)
    rows = [(f"`{_line(one.site)}`", size_text(one.bytes), one.blocks) for one in peak.holders[:most]]
    caption = f"at the peak of {size_text(peak.bytes)}"
    return table(rows, ["line that allocated it", "holds", "blocks"], evidence=SIMULATED, caption=caption)


def _line(site: str) -> str:
    """What stands in the script at "train_….py:12 forward"."""
    name, _, rest = site.partition(":")
    number, _, function = rest.partition(" ")
    text = linecache.getline(name, int(number)).strip() if number.isdigit() else ""
    return f"{text}` in `{function}" if text and function else text or site


# --- repairs -------------------------------------------------------------------------------------------------------

Repair = Callable[[Script], Script]


def tried(script: Script, *repairs: Repair) -> capstone.Board | str:
    """The script before and after these repairs; a word where one is not written yet."""
    after = script
    for repair in repairs:
        try:
            after = repair(after)
        except NotImplementedError:
            return f"for later: this cell wants your {repair.__name__}"
    return capstone.compare(script, after)


def own_ladder(script: Script, *repairs: Repair) -> plots.Picture:
    """Time and peak memory of a step, repair by repair, as far as they are written."""
    rows = [_rung("as it was", script)]
    for repair in repairs:
        try:
            script = repair(script)
        except NotImplementedError:
            continue
        rows.append(_rung(repair.__name__, script))
    return plots.ladder(rows, evidence=SIMULATED, title="Your repairs, one on the other")


def _rung(name: str, script: Script) -> ladders.Rung:
    found = capstone.score(script)
    return ladders.Rung(name, found.step_s, found.peak_bytes)


def best(script: Script, repairs: Mapping[str, Repair]) -> str:
    """Whose repair alone shortens a step most, of those that are written; the first one's where none is."""
    took = {}
    for name, repair in repairs.items():
        try:
            took[name] = capstone.score(repair(script)).step_s
        except NotImplementedError:
            took[name] = math.inf
    return min(took, key=took.__getitem__)


def from_and_to(script: Script, *repairs: Repair) -> tuple[scores.Score, scores.Score]:
    """The script's score as it was, and with all repairs that are written."""
    after = script
    for repair in repairs:
        with contextlib.suppress(NotImplementedError):
            after = repair(after)
    return capstone.score(script), capstone.score(after)


# --- Further: on two ranks, killed ---------------------------------------------------------------------------------

RAN, EVERY, DIES = 8, 4, 6  # steps, steps from one checkpoint to the next, and the step in which rank 0 dies


def _train(by: str, to: str, dies: int, until: int) -> None:
    """In a rank: the fast script until a step; rank 0 is killed in step `dies`."""
    from helpers.capstone import fast, spread

    os.environ.setdefault("MASTER_PORT", "29500")  # torchrun would have set it, and Accelerate asks
    torch.compiler.set_stance("force_eager")  # here it would take longer than the run
    plain, calls = spread.accumulate, itertools.count(1)

    def accumulate(*args: Any) -> torch.Tensor:
        if next(calls) == dies and spread.dist.get_rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*args)

    spread.accumulate = accumulate
    spread.train(by, Path(to), fast.Size(), until, EVERY)


def _losses(to: str) -> list[float]:
    lines = (Path(to) / "losses.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        loss
        for _, loss in sorted({json.loads(line)["step"]: json.loads(line)["loss"] for line in lines}.items())
    ]


def _one_run(*parts: tuple[str, int, int]) -> list[float]:
    """The losses of a run in parts: (way, step in which rank 0 is killed or 0, step until which it trains) each."""
    with tempfile.TemporaryDirectory() as to:
        for by, dies, until in parts:
            try:
                ranks.run_ranks(_train, 2, by, to, dies, until)
            except ranks.RankError as problem:
                if not dies or "SIGKILL" not in str(problem):
                    raise
        return _losses(to)


@functools.cache
def killed() -> dict[str, tuple[list[float], list[float]]]:
    """What was tried → the losses of the run that nobody killed, and of the one that went on."""
    ways = {"DDP": "parallel", "FSDP2": "sharded"}
    if importlib.util.find_spec("accelerate") is not None:
        ways["Accelerate"] = "accelerated"
    found = {}
    for name, by in ways.items():
        found[f"{name}, killed"] = _one_run((by, 0, RAN)), _one_run((by, DIES, RAN), (by, 0, RAN))
    found["FSDP2 from DDP's checkpoint"] = (
        found["DDP, killed"][0],
        _one_run(("parallel", 0, EVERY), ("sharded", 0, RAN)),
    )
    return found


def _apart(one: Sequence[float], other: Sequence[float]) -> float:
    return max(abs(a - b) / a for a, b in zip(one, other, strict=True))


def same_losses(found: Mapping[str, tuple[list[float], list[float]]]) -> dict[str, str]:
    """How near the losses are, in words: of all that were killed, and of the one that went on another way."""

    def said(far: float) -> str:
        return "to the last bit" if far == 0 else "to rounding" if far < 1e-2 else "no"

    *own, across = (_apart(*losses) for losses in found.values())
    return {
        "killed, against not killed": said(max(own)),
        "sharded, going on from data parallel": said(across),
    }


def killed_table(found: Mapping[str, tuple[list[float], list[float]]]) -> Table:
    """`killed` as a table."""
    rows = [
        (name, f"{whole[-1]:.2f}", f"{gone_on[-1]:.2f}", "0" if not (far := _apart(whole, gone_on)) else "under 1 %" if far < 1e-2 else f"{far:.0%}")
        for name, (whole, gone_on) in found.items()
    ]  # fmt: skip
    columns = [
        "two ranks",
        "last loss, not killed",
        "last loss, gone on with",
        "largest difference of a loss",
    ]
    return table(rows, columns, evidence="live (CPU)")
