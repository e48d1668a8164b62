"""Lesson 00: what timers read, a noisy and drifting machine, training steps to change, runs to predict."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from helpers import plots, simulate
from helpers.counters import Counts
from helpers.lesson.predictions import nearest
from helpers.lessons.measure_first import recorded as three_timers
from helpers.plots.picture import Picture
from helpers.recordings import Result
from helpers.simulator.stretch import stretch
from helpers.text.seconds import format_seconds
from helpers.text.tables import Table, table
from helpers.timing import bench, verdict

H100, NOISY = "simulated (H100)", "simulated (noisy machine)"
#: ratio, lower and upper end of its interval
Interval = tuple[float, float, float]
#: seconds of each line of a step, by its name
Lines = Mapping[str, float]

# --- a clock around GPU work --------------------------------------------------------------------------------------


def timers(
    gpu: Any, readings: Mapping[str, float], *, since_s: float, products: int
) -> tuple[dict[str, str], Table, Picture]:
    """What each timer read, "the launch" or "the work"; beside the kernels' own time; as spans on the timeline.

    readings: timer → seconds, of the last `products` kernels. since_s: when the clocks were started.
    """
    work_s, done_s = sum(k.duration_s for k in gpu.kernels[-products:]), gpu.kernels[-1].end_ns / 1e9
    rows = [(way, format_seconds(s), f"{s / work_s:.2f}") for way, s in readings.items()]
    rows.append(("the kernels themselves", format_seconds(work_s), "1.00"))
    beside = table(rows, ["timer", "reading", "÷ work"], evidence=gpu.evidence)
    picture = plots.timeline(
        gpu,
        since_s=since_s,
        evidence=gpu.evidence,
        spans={  # events are passed on the GPU, so their span ends there
            way: (done_s - s, done_s) if "event" in way else (since_s, since_s + s)
            for way, s in readings.items()
        },
        title="The calls return long before the work is done",
    )
    answers = {way: "the work" if s > work_s / 2 else "the launch" for way, s in readings.items()}
    return answers, beside, picture


def in_us(gpu: Any, readings: Mapping[str, float], products: int) -> tuple[float, float, float]:
    """Microseconds: the CPU's to launch a product, and those of two readings, after synchronize and of the events, in which no kernel ran."""
    launch_s = next(record.duration_s for record in gpu.host if record.name == "aten.mm")
    work_s = sum(kernel.duration_s for kernel in gpu.kernels[-products:])
    waited_s, events_s = readings["clock, after synchronize"], readings["a pair of events"]
    return 1e6 * launch_s, 1e6 * (waited_s - work_s), 1e6 * (events_s - work_s)


class Laps:
    """A stop watch on the GPU's clock: seconds since the last reading, under a name."""

    def __init__(self, gpu: Any, *, wait: bool) -> None:
        """wait: synchronize before each reading."""
        self._gpu, self._wait = gpu, wait
        self.seconds: dict[str, float] = {}
        self._last = self._read()

    def _read(self) -> float:
        if self._wait:
            self._gpu.synchronize()
        return float(self._gpu.clock())

    def lap(self, name: str) -> None:
        """Charge what passed since the last reading to `name`."""
        now = self._read()
        self.seconds[name], self._last = now - self._last, now


def lines(naive: Lines, waited: Lines) -> Table:
    """Seconds and shares of a step's lines, with and without a wait before each reading."""

    def share(line: str, times: Lines) -> str:
        return f"{format_seconds(times[line])} ({times[line] / sum(times.values()):.1%})"

    rows = [(line, share(line, naive), share(line, waited)) for line in naive]
    return table(rows, ["line", "naive clock", "clock after synchronize"], evidence=H100)


def first_call(gpu: Any, calls: Sequence[float]) -> tuple[dict[str, str], Table]:
    """How cold the first of some calls was, and what it consists of. calls: seconds each, from the first on."""
    ratio, last = calls[0] / calls[-1], calls[-1]
    near = nearest(ratio, (2, 10, 100, 1000))
    slow = sum(c > 2 * last for c in calls)
    answers = {
        "first call ÷ last call": "1,000 or more" if near == 1000 else f"about {near}",
        "slow calls": {1: "only the first", 2: "the first two"}.get(slow, "each a little less"),
    }
    rows = [(h.name, format_seconds(h.duration_s)) for h in gpu.host if h.kind == "warm-up"]
    rows += [
        ("the first call, all in all", format_seconds(calls[0])),
        ("the last call", format_seconds(last)),
    ]
    mean = (calls[0] + 999 * last) / 1000
    rows.append(("so a mean of 1,000 calls, first one included", format_seconds(mean)))
    return answers, table(rows, ["what", "time"], evidence=gpu.evidence)


def on_a_gpu(results: Sequence[Result]) -> Table:
    """The runs of the experiment "00/three_timers" beside each other: what each timer read, per product, and beside the events."""
    cells = []
    for rows in zip(*(result.table or () for result in results), strict=True):
        runs = list(zip(results, rows, strict=True))
        times = [run.about + format_seconds(row["seconds"] / three_timers.PRODUCTS) for run, row in runs]
        events = [
            next(row["seconds"] for row in run.table or () if row["timer"] == "events") for run in results
        ]
        shares = [
            f"{run.about}{row['seconds'] / event:.4f}" for (run, row), event in zip(runs, events, strict=True)
        ]
        cells.append((rows[0]["timer"], *times, *shares))
    columns = [f"{what}, {run.kind}" for what in ("one product", "÷ events") for run in results]
    return table(cells, ["timer", *columns], evidence=" · ".join(run.evidence for run in results))


def longer(results: Sequence[Result]) -> tuple[float, float]:
    """How many times as long as simulated a launch takes where it was recorded, and the product itself, by events."""
    seconds = {run.kind: [row["seconds"] for row in run.table or ()] for run in results}
    launch, _, product = zip(seconds["recorded"], seconds["simulated"], strict=True)
    return launch[0] / launch[1], product[0] / product[1]


# --- a machine that is not alone ----------------------------------------------------------------------------------

#: what the change is worth in every `session`: time before ÷ time after
TRUTH = 1.03


def noisy(rng: np.random.Generator, seconds: float, *shape: int) -> np.ndarray:
    """Readings of work that takes `seconds`: 3 % scatter; one in ten disturbed by up to a factor of 2."""
    disturbed = np.where(rng.random(shape) < 0.1, rng.uniform(1, 2, shape), 1.0)
    return np.asarray(seconds * np.exp(rng.normal(0, 0.03, shape)) * disturbed)


def places(seed: int, in_turns: bool, n: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """At which places of a session the n runs of before stand, and those of after."""
    if not in_turns:
        return np.arange(n), np.arange(n, 2 * n)
    # half of the pairs begin with after
    swap = np.random.default_rng([seed, 1]).permutation(np.arange(n) % 2)
    return 2 * np.arange(n) + swap, 2 * np.arange(n) + 1 - swap


def session(seed: int, in_turns: bool, n: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of the n runs before and the n after a change worth `TRUTH`, while the machine slows to 1.3 times the time.

    On top a slow wobble of 3 %, and a scatter of 2 % of each run.
    """
    rng, at = np.random.default_rng(seed), np.arange(2 * n)
    drift = 0.25 * at / (2 * n) + 0.03 * np.sin(at / 5 + rng.uniform(0, 6))
    before, after = (
        seconds * np.exp(drift[place] + rng.normal(0, 0.02, n))
        for seconds, place in zip((3e-3, 3e-3 / TRUTH), places(seed, in_turns, n), strict=True)
    )
    return before, after


def drift() -> Picture:
    """The same change, measured one after the other and in turns; in each panel's head the ratio of the medians."""
    panels = {}
    for order, in_turns in (("first all before, then all after", False), ("in turns, in random order", True)):
        (at_before, at_after), (before, after) = places(1, in_turns), session(1, in_turns)
        ratio = float(np.median(before) / np.median(after))
        panels[f"{order}: {ratio:.2f}×"] = {
            "before": (at_before.tolist(), before.tolist()),
            "after": (at_after.tolist(), after.tolist()),
        }
    return plots.curves(
        panels,
        evidence=NOISY,
        title="The same change, measured one after the other and in turns",
        note="each mark is one run; over each panel: the median of before ÷ the median of after",
        xlabel="number of the run",
        ylabel="time of the run",
        times=True,
    )


def around(middle: float, half: float) -> Interval:
    """A ratio and its interval, from the middle and the half width of its logarithm."""
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def words(intervals: Sequence[Interval]) -> list[str]:
    """What each interval says: "faster", "slower" or "cannot tell"."""
    return [verdict(low, high) for _, low, high in intervals]


def sessions(ways: Mapping[str, Sequence[Interval]]) -> tuple[dict[str, str], Table, Picture]:
    """Way of measuring → intervals of many sessions: the word that most say, a table, and one session of each drawn."""
    verdicts, answers, rows = ("faster", "slower", "cannot tell"), {}, []
    for way, intervals in ways.items():
        counts = [words(intervals).count(word) for word in verdicts]
        answers[way] = verdicts[int(np.argmax(counts))]
        held = sum(low <= TRUTH <= high for _, low, high in intervals)
        width = float(np.median([high / low - 1 for _, low, high in intervals]))
        rows.append((way, *counts, held, f"{width:.1%}"))
    columns = ["way", *verdicts, f"intervals with {TRUTH} inside", "their median width"]
    picture = plots.speedup(
        {way: intervals[1] for way, intervals in ways.items()},
        evidence=NOISY,
        title=f"One of the 200 sessions, in each way; the truth is {TRUTH}×",
    )
    return answers, table(rows, columns, evidence=NOISY, caption="200 sessions of 30 + 30 runs"), picture


# --- the golden loop ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One training step on the simulated H100: its seconds, and the share of them in which the GPU works."""

    seconds: float
    busy: float


@cache  # simulated: the same question has the same answer
def training_step(
    width: int,
    batch: int,
    *,
    item: bool = True,
    precision: str = "highest",
    foreach: bool = False,
    forward_twice: bool = False,
) -> Step:
    """A step of four layers and AdamW, warmed up, one wait at the end.

    item: `loss.item()` in every step. precision: of float32 products, "high" is TF32. foreach: AdamW's way.
    forward_twice: a second forward pass, which nobody needs.
    """
    usual = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        with (gpu := simulate("H100")):
            layers = [m for _ in range(4) for m in (torch.nn.Linear(width, width), torch.nn.GELU())]
            net = torch.nn.Sequential(*layers).to(gpu.device)
            optimizer = torch.optim.AdamW(net.parameters(), foreach=foreach)
            x = torch.empty(batch, width, device=gpu.device)

            def step() -> None:
                loss = net(x).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                if item:
                    loss.item()
                if forward_twice:
                    net(x)

            seconds = bench(step, gpu=gpu, number=4, repeats=1).median_s
            return Step(seconds, stretch(gpu, step).busy_s / seconds)
    finally:
        torch.set_float32_matmul_precision(usual)


def gains(
    before: Mapping[str, Step], gain: Mapping[str, Mapping[str, float]], twice: Mapping[str, Step]
) -> Table:
    """Models side by side: the step as it was, what each change gives, and the time of a step with twice the batch.

    gain: model → change → ratio. twice: model → the step, as it was, with twice the batch.
    """
    rows = [
        ("as it was: time of a step", *(format_seconds(step.seconds) for step in before.values())),
        ("as it was: the GPU works", *(f"{step.busy:.0%} of it" for step in before.values())),
    ]
    for name in next(iter(gain.values())):
        rows.append((name, *(f"{gain[model][name]:.2f}×" for model in before)))
    longer = (f"{twice[model].seconds / step.seconds:.2f} × the time" for model, step in before.items())
    rows.append(("as it was, twice the batch", *longer))
    caption = "no item, TF32, foreach: time before ÷ time after, one change at a time"
    return table(rows, ["", *before], evidence=H100, caption=caption)


def second_lap() -> tuple[float, float]:
    """Of the small model with foreach: the share of a step in which the GPU works, and what TF32 then gives."""
    foreach, both = (training_step(512, 256, foreach=True, precision=p) for p in ("highest", "high"))
    return foreach.busy, foreach.seconds / both.seconds


def together() -> dict[str, float]:
    """Speed-up of a good change, of a bad one, and of both at once."""
    before = training_step(512, 256).seconds
    return {
        "foreach alone": before / training_step(512, 256, foreach=True).seconds,
        "forward twice alone": before / training_step(512, 256, forward_twice=True).seconds,
        "both at once": before / training_step(512, 256, foreach=True, forward_twice=True).seconds,
    }


def changes(ratios: Mapping[str, float]) -> Table:
    """Change → speed-up."""
    rows = [(name, f"{r:.2f}×", "faster" if r > 1 else "slower") for name, r in ratios.items()]
    return table(rows, ["change", "speed-up", "verdict"], evidence=H100)


# --- what stands under Further ------------------------------------------------------------------------------------


def events_around(n: int, calls: int) -> tuple[float, float]:
    """Seconds a call between two events around so many (n, n) products on an idle GPU, and of the kernel itself."""
    with (gpu := simulate("H100")):
        a = torch.randn(n, n, device=gpu.device)
        a @ a
        gpu.synchronize()
        start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
        start.record()
        for _ in range(calls):
            a @ a
        end.record()
        gpu.synchronize()
    return start.elapsed_time(end) / 1e3 / calls, gpu.kernels[-1].duration_s


def event_gaps() -> Table:
    """Three products: the kernel, beside what events read around one call and around fifty."""
    rows = []
    for n in (128, 512, 4096):
        (single_s, kernel_s), (fifty_s, _) = events_around(n, 1), events_around(n, 50)
        rows.append((f"{n} × {n}", *map(format_seconds, (kernel_s, single_s, fifty_s))))
    columns = ["product", "kernel", "events around one", "events around fifty ÷ 50"]
    return table(rows, columns, evidence=H100)


@cache
def cold_run(steps: int, skip: int = 0) -> float:
    """Seconds that `steps` steps take on a fresh GPU, after `skip` steps that are not counted."""
    with (gpu := simulate("H100")):
        x, w = torch.empty(4096, 1024, device=gpu.device), torch.empty(1024, 1024, device=gpu.device)
        begin = gpu.clock()
        for i in range(skip + steps):
            if i == skip > 0:
                gpu.synchronize()
                begin = gpu.clock()
            y = x
            for _ in range(2):
                y = torch.relu(y @ w)
        gpu.synchronize()
        return float(gpu.clock() - begin)


def how_far(error: float) -> str:
    """In words: "under 2 %", "under 50 %" or "more"."""
    return "under 2 %" if abs(error) < 0.02 else "under 50 %" if abs(error) < 0.5 else "more"


def predicted(full: float, scaled: Mapping[int, float], apart: Mapping[int, float]) -> Table:
    """Steps measured → the run as they predict it, scaled up, and with the start taken apart; of `full` seconds."""
    rows = [
        (k, format_seconds(s), f"{s / full:.3g} ×", format_seconds(apart[k]), f"{apart[k] / full - 1:+.1%}")
        for k, s in scaled.items()
    ]
    columns = ["k", "k steps × 1000/k", "÷ full run", "first step + 999 × a later one", "its error"]
    return table(rows, columns, evidence=H100, caption=f"the full run takes {format_seconds(full)}")


def switches(counted: Mapping[str, Counts]) -> tuple[dict[str, str], Table]:
    """What each switch adds to a step "as it is", in words; and the counts."""
    plain = counted["as it is"]
    added = {
        name: "operators and waits" if counts.syncs > plain.syncs
        else "operators" if counts.operators > plain.operators else "neither"
        for name, counts in counted.items()
    }  # fmt: skip
    rows = [(name, counts.operators, counts.syncs) for name, counts in counted.items()]
    columns = ["", "operators in a step", "waits, if it ran on a GPU"]
    return {name: word for name, word in added.items() if name != "as it is"}, table(
        rows, columns, evidence="live (CPU)"
    )
