"""Fit the simulator's efficiencies to measured operators, and say how wrong it is where the fit never looked.

python -m helpers.calibration.fit          print the table
python -m helpers.calibration.fit --fit    fit anew (about a minute) and write efficiencies.json

For every card, family of operators and kind of arithmetic two numbers are chosen, the share of the published
peak and the ramp, so that the mean of |log(simulated / measured)| over the rows of the set "fit" is least: a
robust fit, in which one odd row counts as one row. The rows of the set "held-out" are only ever compared.
Rows recorded with this course's recorder fill in what the public ones say nothing of (`collect`); the others test the fit.

What no operator's rows tell of a card (convolutions with Tensor Cores, all of a GeForce) is fitted to whole steps,
two thirds of them, in the same way: share after share, until none of them betters the mean. The last third is only
ever compared.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from helpers.calibration import four_gpus, measured
from helpers.calibration.measured import Measurement, Step
from helpers.simulator import devices
from helpers.simulator.cost import roofline
from helpers.simulator.cost.roofline import ARITHMETIC, Work
from helpers.text.tables import Table, read_rows, table
from helpers.text.terminal import lenient

SHARES = np.geomspace(0.04, 2.0, 160)  # above 1: Winograd convolutions need fewer FLOPs than are counted
RAMPS_S = np.array([0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0]) * 1e-6
#: products in fp32 are slow while they are small: on an H100 a tenth of a millisecond's reaches two thirds of a large one's share
LONG_RAMPS_S = np.array([*RAMPS_S, 30e-6, 45e-6, 70e-6, 100e-6, 150e-6, 200e-6])
LONG = {("matmul", "fp32"), ("linear", "fp32"), ("bmm", "fp32")}
FEWEST = 6  # rows to fit two numbers from
FEWEST_OWN = 4  # of this course's recordings: few are long enough, and chosen for their sizes
#: recorded rows shorter than so many times their operator's shortest are left out: of many calls in a row those take what the CPU takes to launch
SHORT = 1.5
#: what a pair of events around nothing takes, by source: NeuSight's tables list calls without a kernel at 7 µs
AROUND_S = {"NeuSight": 7e-6, "NeuSight models": 7e-6}
#: from papers, where nothing was measured: shares of peak that PyTorch's flash kernel (version 2) reaches
LITERATURE = [
    ("A100", "attention", "fp16", 0.62, "FlashAttention-2, arXiv 2307.08691: 50 to 73 % of an A100's peak"),
    ("H100", "attention", "fp16", 0.35, "FlashAttention-3, arXiv 2407.08608: version 2 reaches 35 % of an H100"),
]  # fmt: skip


@dataclass(frozen=True)
class Fit:
    """One row of the table. Errors are |simulated / measured − 1|, in the held-out set."""

    card: str
    family: str
    kind: str
    flop_share: float
    bandwidth_share: float
    ramp_us: float
    fitted: int = 0  # rows
    held_out: int = 0
    error_median: float | None = None
    error_p90: float | None = None
    bias: float | None = None  # median of simulated / measured − 1
    error_before: float | None = None  # median error with the two round shares
    basis: str = "fitted"

    @property
    def efficiency(self) -> devices.Efficiency:
        return devices.Efficiency(self.flop_share, self.bandwidth_share, self.ramp_us / 1e6)


@dataclass(frozen=True)
class _Row:
    one: Measurement
    work: Work
    seconds: float


def _key(one: Measurement) -> tuple[str, str, str]:
    work, _ = measured.main_work(one)
    card = one.card.partition("-")[0]  # an A100 is one card here, whatever its memory
    kind = "fp16" if work.kind == "bf16" else work.kind  # Tensor Cores have one rate for both
    return card, work.family, kind if work.family in ARITHMETIC else "any"


def collect() -> list[Measurement]:
    """The rows of the fit: public ones, and this course's own for families of which too few public rows (under FEWEST) tell on that card.

    Where the public ones are enough, the own ones test what these say, and do not enter the fit. Nor does what was recorded on an
    H200: it has the H100's shares, and tests them.
    """
    public = measured.public()
    seen = Counter(_key(one) for one in public if not one.held_out)
    told = {key for key, count in seen.items() if count >= FEWEST}
    own = [one for _, one in recorded() if not is_short(one)]
    return public + [one for one in own if _key(one) not in told and one.card not in devices.SAME_CHIP]


def is_own(one: Measurement) -> bool:
    return one.source.startswith(("recorded ", "19/", "calibration/"))


def is_short(one: Measurement) -> bool:
    """Of it not the kernel was measured, but the CPU's launches, many calls in a row. (In a step the profiler measured each kernel.)"""
    key = one.source, one.op.partition("/")[0]
    return one.source.startswith("recorded ") and one.seconds < SHORT * _shortest_s()[key]


@cache
def _shortest_s() -> dict[tuple[str, str], float]:
    """(source, operator) → its least seconds there."""
    least: dict[tuple[str, str], float] = {}
    for _, one in recorded():
        key = one.source, one.op.partition("/")[0]
        least[key] = min(one.seconds, least.get(key, one.seconds))
    return least


def recorded() -> list[tuple[str, Measurement]]:
    """(the recording's label, one operator) of this course's own recordings."""
    from helpers import recordings
    from helpers.calibration import recorded as _  # noqa: F401 - makes the experiment known

    operators = recordings.load_all("calibration/operators")
    cards = {own.device: own.table[0]["card"] for own in operators if own.table}
    own = [(recording, recording.table or []) for recording in operators]
    own += [
        (way, list(_attention(way, cards[way.device])))
        for way in recordings.load_all("19/ways")
        if way.device in cards
    ]
    own += [
        (steps, list(_of_steps(steps, cards[steps.device])))
        for steps in recordings.load_all("calibration/steps")
        if steps.device in cards
    ]
    return [
        (
            f"recorded ({row['card']}, {recording.date})",
            measured.parse(row, f"{recording.name} on {recording.device}, row {i}"),
        )
        for recording, rows in own
        for i, row in enumerate(rows, 1)
        if row.get("card") in measured.CARDS  # somebody's own card has no line in the table to compare
    ]


def _attention(recording: Any, card: str) -> Iterator[dict[str, Any]]:
    """Lesson 19's rows of attention by backend, as rows of operators: 8 × 16 heads of 64 in bfloat16."""
    for row in recording.table or []:
        if row["way"] in measured.BACKENDS:
            of = {"source": "19/ways", "card": card, "set": "fit", "dtype": "bfloat16"}
            shapes = " ".join([f"8x16x{row['tokens']}x64"] * 3)
            for part, column in (("forward", "us"), ("both", "both_us")):
                yield of | {"op": f"attention/{row['way']}/{part}", "shapes": shapes, "us": row[column]}


#: operator of a recorded step → of a row, and how many of its inputs are tensors that a row has
_IN_STEPS = {
    "aten::cudnn_convolution": ("conv2d", 2),
    "aten::convolution_backward": ("conv2d_backward", 3),
    "aten::cudnn_batch_norm": ("batch_norm", 1),
    "aten::cudnn_batch_norm_backward": ("batch_norm_backward", 2),
}


def _of_steps(recording: Any, card: str) -> Iterator[dict[str, Any]]:
    """ResNet-50's convolutions and batch norms in a recorded step, as rows of operators; every third held out.

    An operator is all of its kernels. Of 16-bit convolutions in NCHW most are kernels that turn: they are left out. What takes less
    than three kernel floors, and the first convolution's backward, which has no gradient of the images, are too.
    """
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in recording.table or []:
        if row["op"] in _IN_STEPS and "ResNet" in row["step"]:
            groups[row["step"], row["op"], row["shapes"]].append(row)
    sizes = {key: [shape.split("x") for shape in key[2].split()] for key in groups}
    stride: dict[tuple[Any, Any], int] = {}  # of forward's shapes, which do not tell it
    for (_, op, _), shapes in sizes.items():
        if op == "aten::convolution_backward":
            grad, x, weight = map(tuple, shapes[:3])
            stride[x, weight] = int(x[-1]) // int(grad[-1])
    place: Counter[str] = Counter()
    for key, kernels in groups.items():
        (name, many), shapes = _IN_STEPS[key[1]], sizes[key]
        x, weight = (tuple(shape) for shape in shapes[many - 2 : many]) if "conv2d" in name else ((), ())
        half, last = "fp16" in key[0], "channels last" in key[0]
        us = sum(row["us"] for row in kernels) / min(row["calls"] for row in kernels)
        if us < 3e6 * devices.Assumptions.kernel_floor_s or (weight and (x[1] == "3" or (half and not last))):
            continue
        how = f"/{stride[x, weight]}/{int(weight[-1]) // 2}" if weight else ""
        place[name] += 1
        yield {
            "source": recording.name,
            "card": card,
            "set": "fit" if place[name] % 3 else "held-out",
            "op": name + how + "/nhwc" * last,
            "dtype": "float16" if half else "float32",
            "shapes": " ".join("x".join(shape) for shape in shapes[:many]),
            "us": round(us, 2),
        }


def fit(rows: Sequence[Measurement], tapes: Sequence[Tape] = ()) -> list[Fit]:
    """The table for some measurements of operators and of steps. ValueError where no operator is of the set "fit"."""
    if not any(not row.held_out for row in rows):
        raise ValueError("nothing to fit: no row of the set 'fit'")
    groups: dict[tuple[str, str, str], list[_Row]] = defaultdict(list)
    for measurement in rows:
        work, beside_s = measured.main_work(measurement)
        seconds = measurement.seconds - AROUND_S.get(measurement.source, 0.0) - beside_s
        if seconds > 0:
            groups[_key(measurement)].append(_Row(measurement, work, seconds))
    known: list[Fit] = []
    # What moves bytes first: products need its share of the bandwidth.
    for key in sorted(groups, key=lambda k: (k[1] in ARITHMETIC, k)):
        group = groups[key]
        own = any(is_own(r.one) for r in group)  # `collect` adds them only where the public ones are too few
        if sum(not r.one.held_out for r in group) >= (FEWEST_OWN if own else FEWEST):
            made = _fit_one(key, group, known)
            known.append(replace(made, basis=OWN) if own else made)
    for card, family, kind, share, source in LITERATURE:
        bandwidth = _bandwidth(known, card)
        known.append(Fit(card, family, kind, share, bandwidth, 0.0, basis=f"literature: {source}"))
    for card in sorted({tape.step.group[0] for tape in tapes}):
        known += _fit_steps([tape for tape in tapes if tape.step.group[0] == card], known)
    typical = _typical(known)
    recorded = {(f.card, f.family, f.kind) for f in known if f.basis == OWN}
    return [f for f in known if f.basis == OWN or (f.card, f.family, f.kind) not in recorded] + typical


def _fit_one(key: tuple[str, str, str], group: list[_Row], known: list[Fit]) -> Fit:
    card, family, kind = key
    seen = [r for r in group if not r.one.held_out]
    bandwidth = _bandwidth(known, card)

    def both(share: float) -> tuple[float, float]:
        return (share, bandwidth) if family in ARITHMETIC else (devices.Assumptions.flop_share, share)

    def wrong(share: float, ramp_s: float) -> float:
        return float(np.mean(np.abs(np.log(_ratios(seen, *both(share), ramp_s)))))

    ramps = LONG_RAMPS_S if (family, kind) in LONG else RAMPS_S
    share, ramp_s = _least(SHARES, wrong, ramps)
    flops, moved = (round(part, 4) for part in both(share))
    made = Fit(card, family, kind, flops, moved, round(ramp_s * 1e6, 1), len(seen))
    return _with_errors(made, [r for r in group if r.one.held_out])


def _least(
    shares: np.ndarray, wrong: Callable[[float, float], float], ramps_s: np.ndarray = RAMPS_S
) -> tuple[float, float]:
    """The share and the ramp of the grid that are least wrong; of equal ones the first."""
    grid = [(float(share), float(ramp_s)) for ramp_s in ramps_s for share in shares]
    return min(grid, key=lambda pair: round(wrong(*pair), 12))


def _with_errors(made: Fit, unseen: list[_Row]) -> Fit:
    if not unseen:
        return made
    wrong = _ratios(unseen, made.flop_share, made.bandwidth_share, made.ramp_us / 1e6) - 1
    standard = devices.Assumptions
    before = _ratios(unseen, standard.flop_share, standard.bandwidth_share, 0.0) - 1
    figures = {
        "error_median": np.median(np.abs(wrong)),
        "error_p90": np.percentile(np.abs(wrong), 90),
        "bias": np.median(wrong),
        "error_before": np.median(np.abs(before)),
    }
    plain = {name: round(float(value), 4) for name, value in figures.items()}
    return Fit(**{**made.__dict__, **plain, "held_out": len(unseen)})


# ------------------------------------------------------------------------------------ whole steps


@dataclass(frozen=True)
class Tape:
    """A measured step, and the kernels that it is here."""

    step: Step
    works: list[Work]


STEPS = "fitted to whole steps"
OWN = "fitted to this course's recording"
MOST_BANDWIDTH = 1.3  # above 1: kernels that find their input in the L2 cache
TOLD_BY_STEPS = {*ARITHMETIC} - {"convolution backward"}  # the other families are what stands in for them
LEAST_SHARE = 0.1  # of one step's time, in which a family must take more to be told from it


def tapes() -> list[Tape]:
    """Every measured step's kernels (minutes)."""
    return [Tape(step, measured.simulate_step(step, collect=True)[1]) for step in measured.steps()]


def _fit_steps(tapes: list[Tape], known: list[Fit]) -> list[Fit]:
    """Shares of one card for the families that no operator's rows tell, from the steps that may be seen."""
    card = tapes[0].step.group[0]
    have = {(f.family, f.kind) for f in known if f.card == card}
    have |= {(family, "bf16") for family, kind in have if kind == "fp16"}
    measured_here = ("elementwise", "any") in have  # then only what Tensor Cores do is left to tell
    seen = [_Counted(tape) for tape in tapes if not tape.step.held_out]
    keys = {key for step in seen for key in step.kernels}
    kept: dict[tuple[str, str, str], devices.Efficiency] = {}
    for f in [*known, *_typical(known)]:
        kept.setdefault((f.card, f.family, f.kind), f.efficiency)
    standing = {key: devices.stands_for(kept, (card, "any"), *key) for key in keys}
    parts = [{key: step.seconds(key, standing[key]) for key in keys} for step in seen]
    weights = {key: max(part[key] / sum(part.values()) for part in parts) for key in keys} if parts else {}
    free = [
        key
        for key in sorted(weights, key=lambda k: -weights[k])
        if key not in have and weights[key] > LEAST_SHARE and (key[0] in ARITHMETIC or not measured_here)
    ]
    if len(seen) < FEWEST or not free:
        return []
    times = np.array([[step.seconds(key, standing[key]) for key in sorted(keys)] for step in seen])
    real = np.array([step.step.seconds for step in seen])
    place = {key: i for i, key in enumerate(sorted(keys))}
    before = np.inf
    while (wrong := _wrong(times, real)) < before - 1e-6:
        before = wrong
        for key in free:

            def tried(share: float, ramp_s: float, key: tuple[str, str] = key) -> float:
                standing[key] = _with_share(key, share, ramp_s, standing)
                times[:, place[key]] = [step.seconds(key, standing[key]) for step in seen]
                return _wrong(times, real)

            tried(*_least(SHARES if key[0] in ARITHMETIC else SHARES[SHARES < MOST_BANDWIDTH], tried))
    held = sum(tape.step.held_out for tape in tapes)
    return [
        Fit(
            card, *key, round(e.flop_share, 4), round(e.bandwidth_share, 4), round(e.ramp_s * 1e6, 1), len(seen), held,
            basis=STEPS,
        )
        for key in free
        for e in [standing[key]]
    ]  # fmt: skip


def _wrong(times: np.ndarray, real: np.ndarray) -> float:
    """The mean error, and its square, so that of two steps neither is right at the other's cost."""
    off = np.log(times.sum(axis=1) / real)
    return float(np.mean(np.abs(off) + off**2))


def _with_share(
    key: tuple[str, str], share: float, ramp: float, standing: dict[Any, Any]
) -> devices.Efficiency:
    if key[0] not in ARITHMETIC:
        return devices.Efficiency(devices.Assumptions.flop_share, share, ramp)
    moves = standing.get(("elementwise", "any"))
    return devices.Efficiency(share, moves.bandwidth_share if moves else standing[key].bandwidth_share, ramp)


class _Counted:
    """A step's kernels by family and kind, equal ones counted."""

    def __init__(self, tape: Tape) -> None:
        self.step = tape.step
        groups: dict[tuple[str, str], dict[tuple[float, int, int, str], int]] = defaultdict(
            lambda: defaultdict(int)
        )
        for w in tape.works:
            family = w.family if w.family in TOLD_BY_STEPS else devices.STANDS_IN.get(w.family, w.family)
            key = family, w.kind if family in ARITHMETIC else "any"
            groups[key][w.flops * w.effort, w.bytes, w.serial, w.kind] += 1
        self.kernels = groups
        device = measured.CARDS[tape.step.card]
        peaks, speed = device.peak_flops, device.memory_bytes_per_s
        self._arrays = {
            key: (
                np.array([f / peaks.get(kind, peaks["fp32"]) for f, _, _, kind in counts]),
                np.array([b / speed for _, b, _, _ in counts]),
                np.array([serial for _, _, serial, _ in counts]),
                np.array(list(counts.values())),
            )
            for key, counts in groups.items()
        }

    def seconds(self, key: tuple[str, str], e: devices.Efficiency) -> float:
        if key not in self._arrays:
            return 0.0
        flops, moved, serial, count = self._arrays[key]
        each = _seconds(flops / e.flop_share, moved / e.bandwidth_share, e.ramp_s)
        return float(((each + serial * devices.Assumptions.kernel_floor_s) * count).sum())


def _seconds(compute_s: np.ndarray, moved_s: np.ndarray, ramp_s: float) -> np.ndarray:
    """`roofline.seconds` for arrays: of kernels that compute and move for so long."""
    busy, floor = np.maximum(compute_s, moved_s), devices.Assumptions.kernel_floor_s
    seconds: np.ndarray = np.maximum(busy + ramp_s * busy / (busy + max(ramp_s / 10, floor)), floor)
    return seconds


def _ratios(rows: Sequence[_Row], flop_share: float, bandwidth_share: float, ramp_s: float) -> np.ndarray:
    """simulated / measured of every row, with these shares."""
    peaks = [r.one.device.peak_flops.get(r.work.kind, r.one.device.peak_flops["fp32"]) for r in rows]
    compute = np.array([r.work.flops * r.work.effort for r in rows]) / (flop_share * np.array(peaks))
    speeds = np.array([r.one.device.memory_bytes_per_s for r in rows])
    moved = np.array([r.work.bytes for r in rows]) / (bandwidth_share * speeds)
    return _seconds(compute, moved, ramp_s) / np.array([r.seconds for r in rows])


def _bandwidth(known: Iterable[Fit], card: str) -> float:
    """The card's share for elementwise kernels, else the median of the other cards', else the round one."""
    known = [f for f in known if f.family == "elementwise"]
    own = [f.bandwidth_share for f in known if f.card == card]
    if own or known:
        return own[0] if own else float(median(f.bandwidth_share for f in known))
    return devices.Assumptions.bandwidth_share


def _typical(known: list[Fit]) -> list[Fit]:
    """For cards and kinds that were not measured: medians over those that were."""
    groups: dict[tuple[str, str], list[Fit]] = defaultdict(list)
    for f in known:
        if f.basis == OWN:  # one recording says nothing of other cards
            continue
        groups[f.family, f.kind].append(f)
        if f.kind != "any":
            groups[f.family, "any"].append(f)
    rows = []
    for (family, kind), group in sorted(groups.items()):
        # Operators tell more of a family than steps do.
        group = [f for f in group if f.basis != STEPS] or group
        flops, moved, ramp = (
            float(median(getattr(f, name) for f in group))
            for name in ("flop_share", "bandwidth_share", "ramp_us")
        )
        cards = ", ".join(sorted({f.card for f in group}))
        rows.append(Fit("any", family, kind, flops, moved, ramp, basis=f"median of {cards}"))
    return rows


def basis() -> str:
    """What the table rests on, in one line."""
    return (
        "calibrated on public measurements (NeuSight, Vidur, HTA, timm, NVIDIA), "
        "and on an H100 that this course recorded where they tell nothing of it"
    )


def report() -> Table:
    """The table that the build prints: shares, and errors on what the fit never saw."""
    kept = devices.efficiencies()
    rows = []
    for row in kept["shares"]:
        if row["card"] == "any":
            continue
        share, of = (
            ("flop_share", "FLOP/s") if row["family"] in ARITHMETIC else ("bandwidth_share", "bytes/s")
        )
        kernels = row["family"] + ("" if row["kind"] == "any" else f" {row['kind']}")
        errors = ["—", "—", row["basis"].partition(":")[0], "—"]
        if row["error_median"] is not None:
            each = [f"{row[name]:.0%}" for name in ("error_median", "error_p90", "error_before")]
            errors = [*each[:2], f"{row['bias']:+.0%}", each[2]]
        counts = row["fitted"] or "—", row["held_out"] or "—"
        rows.append((row["card"], kernels, f"{row[share]:.0%} of {of}", *counts, *errors))
    columns = "card, kernels, reach, fitted on, held out, error, 90 % below, bias, uncalibrated".split(", ")
    caption = f"{kept['basis']}; errors in rows the fit never saw"
    return table(rows, columns, evidence="arithmetic", caption=caption)


def errors() -> Table:
    """Whole steps: measured by others, simulated here."""
    rows = []
    for s in devices.efficiencies().get("steps", []):
        times = f"{s['measured_ms']:.0f} ms", f"{s['simulated_ms']:.0f} ms"
        side = "held out" if s["held_out"] else "fit"
        rows.append((s["card"], s["what"], side, *times, f"{s['error']:+.0%}"))
    columns, caption = "card step set measured simulated error".split(), "; ".join(summary())
    return table(rows, columns, evidence="arithmetic", caption=f"{caption}; sources in docs/recording.md")


def summary() -> list[str]:
    """Median and worst error of whole steps, of those that were fitted and of those that were held out."""
    parts = []
    for name, held in (("fitted", False), ("held out", True)):
        off = [abs(s["error"]) for s in devices.efficiencies().get("steps", []) if s["held_out"] == held]
        if off:
            parts.append(f"{len(off)} {name}: median {median(off):.1%}, worst {max(off):.1%}")
    return parts


NEUSIGHT = Path(__file__).with_name("neusight.csv")
PAGE = Path(__file__).parents[2] / "docs" / "recording.md"
_TABLE = "<!-- made by python -m helpers.calibration.fit --page -->"


def beside() -> str:
    """Steps that entered no fit, in Markdown: the simulator's errors by card, and NeuSight's own on the same steps."""
    theirs = {
        (row["card"], row["model"], row["mode"], int(row["batch"])): float(row["percent"]) / 100
        for row in read_rows(NEUSIGHT)
    }
    kept = {(s["source"], s["card"], s["what"]): abs(s["error"]) for s in devices.efficiencies()["steps"]}
    groups: dict[tuple[str, str], list[tuple[float, float | None]]] = defaultdict(list)
    for step in measured.steps():
        if step.held_out:
            ours = kept[step.source, step.card, step.what]
            pair = ours, theirs.get((step.card, step.model, step.mode, step.batch))
            kind = "transformers" if step.source == "NeuSight" else "images"
            groups[kind, step.card] += [pair]
            groups[kind, "all"] += [pair]
    for four in four_gpus.steps():
        pair = abs(four_gpus.simulate_step(four) / four.seconds - 1), abs(four.neusight_s / four.seconds - 1)
        groups["transformers, four GPUs", four.card] += [pair]
        groups["transformers, four GPUs", "all"] += [pair]
    lines = [
        "| steps held out | card | rows | simulated: mean, median, worst | NeuSight: mean, median, worst |",
        "|---|---|---|---|---|",
    ]
    for (kind, card), pairs in sorted(
        groups.items(), key=lambda g: (g[0][0] == "images", g[0][0], g[0][1] == "all", g[0][1])
    ):
        others = [other for _, other in pairs if other is not None]
        lines.append(
            f"| {kind} | {card} | {len(pairs)} | {_spread([own for own, _ in pairs])} | {_spread(others)} |"
        )
    return "\n".join([*lines, "", *_own()])


def _own() -> list[str]:
    """Operators of this course's own recordings that entered no fit, in Markdown: the simulator's errors by kernels.

    Without what is short (:func:`is_short`).
    """
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    fitted = {one for one in collect() if not one.held_out}
    for label, one in recorded():
        if is_short(one) or one in fitted:
            continue
        work, beside_s = measured.main_work(one)
        off = abs((roofline.seconds(work, one.device) + beside_s) / one.seconds - 1)
        kernels = f"{work.family} {work.kind}" if work.family in ARITHMETIC else work.family
        groups[label, kernels].append(off)
    lines = [
        "| operators of our own, none in the fit | kernels | rows | simulated: mean, median, worst |",
        "|---|---|---|---|",
    ]
    return [
        *lines,
        *(
            f"| {label} | {kernels} | {len(off)} | {_spread(off)} |"
            for (label, kernels), off in sorted(groups.items())
        ),
    ]


def _spread(errors: list[float]) -> str:
    if not errors:
        return "—"
    return f"{np.mean(errors):.1%}, {median(errors):.1%}, {max(errors):.1%}"


def page() -> None:
    """Put `beside()` where docs/recording.md has its table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_TABLE)
    after = rest.partition(_TABLE)[2]
    PAGE.write_text(f"{before}{_TABLE}\n\n{beside()}\n\n{_TABLE}{after}", encoding="utf-8")


def digest(rows: Iterable[Measurement]) -> str:
    """Which measurements a table was fitted on."""
    return hashlib.sha256("\n".join(sorted(map(repr, rows))).encode()).hexdigest()[:16]


def write(rows: Sequence[Measurement]) -> dict[str, Any]:
    """Fit, simulate the whole steps with the result, and keep both in efficiencies.json."""
    taped = tapes()
    shares: dict[str, Any] = {
        "format": 1,
        "basis": basis(),
        "measurements": digest(rows),
        "shares": [f.__dict__ for f in fit(rows, taped)],
        "steps": [],
    }
    _keep(shares)
    # What the device does of a step: the host is far ahead in all of them.
    for tape in taped:
        step, card = tape.step, measured.CARDS[tape.step.card]
        ms = 1e3 * sum(roofline.seconds(work, card) for work in tape.works)
        error, what = (
            round(ms / (1e3 * step.seconds) - 1, 4),
            {"source": step.source, "card": step.card, "what": step.what},
        )
        times = {"measured_ms": round(1e3 * step.seconds, 3), "simulated_ms": round(ms, 1), "error": error}
        shares["steps"].append(what | times | {"held_out": step.held_out})
    _keep(shares)
    return shares


def _keep(found: dict[str, Any]) -> None:
    text = json.dumps({**found, "shares": [], "steps": []}, indent=1)
    for name in ("shares", "steps"):
        body = "[\n  " + ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in found[name]) + "\n ]"
        text = text.replace(f'"{name}": []', f'"{name}": {body}')
    devices.EFFICIENCIES.write_text(text + "\n", encoding="utf-8")
    devices.forget_efficiencies()


def main() -> None:
    lenient()
    parser = argparse.ArgumentParser(prog="python -m helpers.calibration.fit", description=__doc__)
    parser.add_argument("--fit", action="store_true", help="fit anew and write efficiencies.json")
    parser.add_argument(
        "--page", action="store_true", help="write the errors on held-out steps into docs/recording.md"
    )
    given = parser.parse_args()
    if given.fit:
        write(collect())
    if given.page:
        page()
    print(report(), errors(), *summary(), sep="\n\n")


if __name__ == "__main__":
    main()
