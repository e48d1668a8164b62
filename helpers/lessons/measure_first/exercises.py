"""Tests of lesson 00: clocks and a GPU's queue, intervals and words for paired runs, runs that repeat."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from helpers import check, simulate
from helpers.check.judges import each
from helpers.check.sealed import sealed

# --- 0.1 time_on_gpu ----------------------------------------------------------------------------------------------

_ALLOWED_S = 20e-6
_WARM_UP = 5
#: for `check.function`
_ONCE = "hundreds of series, in which whatever a call leaves behind shows already"


@dataclass(frozen=True)
class Calls:
    """Calls of so many products of (size, size); others have queued more of them before."""

    size: int
    products: int
    repeats: int
    queued: int = 0


def _time(time_on_gpu: Callable[..., float], **fields: Any) -> dict[str, Any]:
    """The seconds that the answer reads, how often it called work(), and how often it asked for a clock."""
    asked, gpu, reads = Calls(**fields), simulate("H100"), []
    shown = sealed(gpu)

    class Card:  # what a real GPU offers
        def __getattr__(self, name: str) -> Any:
            if name in ("clock", "clock_ns", "Event"):
                reads.append(name)
            return getattr(shown, name)

    with gpu:
        x = torch.empty(asked.size, asked.size, device=gpu.device)
        for _ in range(asked.queued):
            x @ x

        def work() -> None:
            y = x
            for _ in range(asked.products):
                y = y @ x

        seconds = float(time_on_gpu(Card(), work, asked.repeats))
        calls = (len(gpu.kernels) - asked.queued) // asked.products  # by the device's own record
    return {"seconds": seconds, "calls": calls, "reads": len(reads)}


@cache
def _product_s(size: int) -> float:
    with (gpu := simulate("H100")):
        x = torch.empty(size, size, device=gpu.device)
        x @ x
    return float(gpu.kernels[-1].duration_s)


def _timed(report: check.Report) -> str | None:
    asked, got = report.case, report.value
    if not got["reads"]:
        return "neither gpu.clock() nor an event was read: no other clock sees this GPU"
    if text := _misread(asked, got["seconds"]):
        return text
    if asked.repeats <= got["calls"] <= asked.repeats + _WARM_UP:
        return None
    wanted = f"wanted {asked.repeats}, and up to {_WARM_UP} to warm up"
    return f"work() ran {got['calls']} times for repeats={asked.repeats}; {wanted}"


def _misread(asked: Calls, got: float) -> str | None:
    """What is wrong with a reading of so many seconds a call, by the mistake that would give it."""
    product, repeats, queued = _product_s(asked.size), asked.repeats, asked.queued
    exact, allowed, before = asked.products * product, _ALLOWED_S / repeats, queued * product
    extra = got - exact
    if abs(extra) <= allowed:
        return None
    what = (
        f"repeats={repeats}, a call of {asked.products} product(s) of {asked.size} × {asked.size}, {queued} more in "
        f"the queue before: you read {got * 1e6:.2f} µs, the device worked {exact * 1e6:.2f} µs a call"
    )
    one_more, others = abs(extra * repeats - exact) < 20e-6, queued and extra * repeats > before / 2
    waits = not queued and 8e-6 < extra < 16e-6
    mistakes = {
        "The clock was read before the GPU was done: that is the launch.": not got > exact / 2,
        "That is a thousand times as long: elapsed_time() is in milliseconds.": 900 < got / exact < 1100,
        f"That is the time of all {repeats} calls: divide.": abs(got - exact * repeats) < 30e-6,
        "All calls together, and in milliseconds?": got > exact * 1000,
        "The set-up of the first call is in the measurement.": got * repeats > 0.1,
        "That is a launch and a wait more, in every call: wait once, at the end.": waits,
        "What others had queued was still running when your clock started.": others,
        "One call too many was timed: did the warm-up still run when your clock started?": one_more,
    }
    why = next((f". {text}" for text, fits in mistakes.items() if fits), None)
    return what + (why or f"; at most {allowed * 1e6:.1f} µs off are allowed")


def check_time_on_gpu(*cases: Calls) -> None:
    look = '"What does a clock around a GPU call read?" and "The first call", above'
    check.function("time_on_gpu", cases, drive=_time, verify=each(_timed), look=look)
    none = [check.case(size=8, products=1, repeats=n, raises=ValueError) for n in (0, -2)]
    check.function("time_on_gpu", none, drive=_time, look="the docstring: repeats")


# --- 0.2 verdict and 0.3 paired_speedup ---------------------------------------------------------------------------

#: runs before, runs after: seconds
Pair = Sequence[np.ndarray]
_SERIES = 200
#: pairs, from which on the counts and the widths are looked at closely
_JUDGED = 20


@dataclass(frozen=True)
class Machine:
    """200 series of n paired runs of `typical_s`, `ratio` = time before ÷ time after; one run in twelve is disturbed.

    For paired_speedup each series has a ratio of its own, within a tenth of that.

    scatter: of single runs. drift: how far the machine slows by the end of a series (below 0: becomes faster), with
    a slow wobble; jumpy: in place of it, every pair meets another machine.
    """

    n: int
    ratio: float = 1.0
    scatter: float = 0.03
    drift: float = 0.3
    jumpy: bool = False
    typical_s: float = 3e-3

    def __str__(self) -> str:
        return f"{self.n} pairs, scatter {100 * self.scatter:.2g} %"


@cache
def _series(machine: Machine) -> np.ndarray:
    """Seconds (series, before and after, n)."""
    n, drift, shape = machine.n, machine.drift, (_SERIES, 2, machine.n)
    rng = np.random.default_rng([7, n, round(1000 * machine.ratio)])
    at, pairs = np.arange(2 * n), 2 * np.arange(n)
    swap = rng.permuted(np.tile(np.arange(n) % 2, (_SERIES, 1)), axis=1)  # which of a pair runs first
    slower = drift * (at / n + np.sin(at / 7 + rng.uniform(0, 6, (_SERIES, 1))) / 6)
    if machine.jumpy:
        slower = rng.normal(0, 0.25, (_SERIES, n)).repeat(2, axis=1)
    places = np.stack([pairs + swap, pairs + 1 - swap], axis=1)
    slower = np.take_along_axis(slower[:, None], places, axis=2)
    disturbed = np.where(rng.random(shape) < 1 / 12, rng.uniform(1, 4, shape), 1.0)
    typical = np.array([[machine.typical_s], [machine.typical_s / machine.ratio]])
    return np.asarray(typical * np.exp(slower + rng.normal(0, machine.scatter, shape)) * disturbed)


def _refused(lengths: Sequence[tuple[int, int]]) -> list[check.Case]:
    """So many runs before and after, for which no ratio can be given."""
    return [check.case(series=[[np.ones(n), np.ones(m) * 2]], raises=ValueError) for n, m in lengths]


def _answers(answer: Callable[..., Any], series: Sequence[Pair] = (), **machine: Any) -> list[Any]:
    """What the answer says of each pair of series: these, or a machine's."""
    return [answer(before.copy(), after.copy()) for before, after in series or _series(Machine(**machine))]


@cache
def _own(machine: Machine) -> np.ndarray:
    """By what each series' true ratio is above the machine's: ratios that nobody can know but from the series itself."""
    return np.exp(np.random.default_rng([machine.n, round(1000 * machine.ratio)]).uniform(-0.1, 0.1, _SERIES))


def _intervals(
    paired_speedup: Callable[..., Any], series: Sequence[Pair] = (), **fields: Any
) -> list[list[float]]:
    if not series:
        machine = Machine(**fields)
        series = [
            (before * own, after)
            for (before, after), own in zip(_series(machine), _own(machine), strict=True)
        ]
    return [[float(v) for v in three] for three in _answers(paired_speedup, series)]


def _wrong_intervals(report: check.Report) -> str | None:
    """What is wrong with (ratio, low, high), one row a series."""
    machine, intervals = report.case, np.array(report.value)
    ratio, (middle, low, high) = machine.ratio, intervals.T
    if (bad := intervals[~((low <= middle) & (middle <= high))]).size:
        return f"wanted low ≤ ratio ≤ high, got (ratio, low, high) = {tuple(bad[0].round(4).tolist())}"
    intervals = intervals / _own(machine)[:, None]  # as if each series' true ratio were the machine's
    middle, low, high = intervals.T
    if machine.n < _JUDGED:
        return _wrong_of_few(machine, intervals)
    typical = float(np.median(middle))
    if abs(typical - math.log(ratio)) < 0.02:
        return f"the typical ratio is {typical:.3f}, the logarithm of {ratio}: exp() takes it back to a ratio"
    if abs(typical - 1 / ratio) < 0.02:
        return f"the typical ratio is {typical:.3f}, the true {ratio}: after / before, that is upside down"
    if not (intervals > 0).all():
        return "a ratio of times is positive; some of yours are not"
    held = int(((low <= ratio) & (ratio <= high)).sum())
    if text := _too_wide(machine, float(np.median(np.log(high / low))), held):
        return text
    if held < 180:
        over, under = int((low > ratio).sum()), int((high < ratio).sum())
        aside = max(over, under) > 5 * (min(over, under) + 1)
        return (
            f"the interval holds its series' true ratio (about {ratio}) in {held} of {_SERIES} (wanted 180 to 199); it lies above in "
            f"{over}, below in {under}: {'off to one side' if aside else 'too narrow for 95 %'}. Does its width follow "
            "the scatter, and shrink with more pairs?"
        )
    if held > 199:
        return f"the interval holds the truth in {held} of {_SERIES} series: it is too wide for 95 %"
    if (off := abs(math.log(typical / ratio))) > 0.01:
        return f"the typical ratio is {off:.1%} off the true {ratio}"
    return None


def _wrong_of_few(machine: Machine, intervals: np.ndarray) -> str | None:
    """Of a few pairs honest methods differ more: the truth is in most intervals, and they are no wider than without need."""
    _, low, high = intervals.T
    if (held := int(((low <= machine.ratio) & (machine.ratio <= high)).sum())) < 160:
        return f"the interval holds its series' true ratio (about {machine.ratio}) in {held} of {_SERIES} (wanted 160 or more): of few pairs an interval is wide, and still goes by what was measured"
    if not (low > 0).all():
        return "a ratio of times is positive; some of yours are not"
    of_paired = _width_of_paired(machine)
    if not (width := float(np.median(np.log(high / low)))) <= 2 * of_paired:
        return f"the interval is {width / of_paired:.2f} times as wide as that of `paired` (wanted at most 2, of so few pairs)"
    return None


def _width_of_paired(machine: Machine) -> float:
    """Typical width, as a logarithm, of the mean and two standard errors of the logarithms on both sides."""
    before, after = np.log(_series(machine)).swapaxes(0, 1)  # (series, n)
    return float(4 * np.median(np.sqrt((before - after).var(axis=1, ddof=1) / machine.n)))


def _too_wide(machine: Machine, width: float, held: int) -> str | None:
    """Beside the mean and two standard errors of the logarithms (`paired`), and beside two mistakes."""
    before, after = np.log(_series(machine)).swapaxes(0, 1)  # (series, n)
    d, n, of_paired = before - after, machine.n, _width_of_paired(machine)
    if width <= of_paired / 2:
        return None
    of_each = 4 * np.median(np.sqrt((before.var(axis=1, ddof=1) + after.var(axis=1, ddof=1)) / n))
    of_pairs = np.median(np.ptp(np.percentile(d, [2.5, 97.5], axis=1), axis=0))
    wide = f"the interval is {width / of_paired:.2f} times as wide as that of `paired` (wanted at most 0.5)"
    if 0.8 < width / of_pairs < 1.25:
        return f"{wide}. It says where the single pairs lie; wanted: how sure their *middle* is"
    if 0.95 < width / of_paired < 1.05:
        return (
            f"{wide}: {width:.0%} wide, for a change of {100 * abs(machine.ratio - 1):.0f} %. It holds the truth in {held} of "
            f"{_SERIES} and is of no use: a few disturbed pairs blow up a mean and its standard error. Which middle "
            "drops them?"
        )
    if 0.85 < width / of_each < 1.2:
        return f"{wide}. So wide it is when before and after are summarised apart, disturbed runs and all."
    return f"{wide}: do disturbed runs, or the drift, still count in it?"


def check_paired_speedup(*machines: Machine, refused: Sequence[tuple[int, int]] = ((5, 5),)) -> None:
    """refused: lengths of before and after that raise ValueError."""
    look, judge = '"Noise" and "Drift, and runs in pairs", above', each(_wrong_intervals, told=True)
    check.function("paired_speedup", machines, drive=_intervals, verify=judge, look=look, once=_ONCE)
    check.function("paired_speedup", _refused(refused), drive=_intervals, look="the docstring: ValueError")


def _runs_to_see() -> dict[str, Pair]:
    """By name: runs of which it can be seen with the naked eye what they allow one to say."""
    base = 1e-3 + 1e-5 * np.array([0, 2, -1, 1, 0, -2, 3, 1, -1, 0, 2, -2, 1])
    other = base * (1 + 0.01 * np.array([0, -1, 1, 0, 1, -1, 0, -1, 1, 0, -1, 1, 0]))
    wild = 1 + 0.01 * np.array([9, 6, -11, 11, 5, 10, -8, 7, 13, -10, 6, 12])
    fine = 1e-3 + 1e-6 * np.array([2, -3, 1, 3, -1, 0, 2, -2, 1, -4, 2, 0])
    one_bad = np.where(np.arange(13) == 4, 4.0, 1.0)
    turn = np.arange(13) % 2  # which of the pair ran first
    first, second = 2 * np.arange(13) + turn, 2 * np.arange(13) + 1 - turn  # places of before and after
    # wins among losses of the same sizes: who weighs the differences is to say the same as who counts them
    won = np.diff(np.arange(1300) * 682 // 1300, append=682) > 0
    even = np.linspace(0.004, 0.016, 1300) * np.where(won, -1, 1)
    slowing, jump = np.linspace(1, 3, 26), np.where(np.arange(26) < 13, 1.0, 1.5)
    slowed = [base * slowing[first], other * slowing[second] / 1.1]
    jumped = [base * jump[first], other * jump[second]]
    return {
        "clearly faster": [base, other / 1.5],
        "clearly slower": [base, other * 1.2],
        "1,300 pairs, of which after won 780": [np.ones(1300), np.tile([0.98, 0.98, 0.98, 1.01, 1.01], 260)],
        "1,300 pairs, of which after won 682": [np.ones(1300), np.exp(even)],  # 8 % of tosses are as uneven
        "the same code": [base, other],
        "the same code; half-way the machine becomes 1.5 times as slow": jumped,
        "10 % faster, on a machine that slows threefold": slowed,
        "the same code, scatter 10 %": [base[:12] * wild, base[:12]],
        "1 % faster, scatter 0.3 %": [fine, fine[::-1] / 1.01],
        "10 % faster, one run of after disturbed": [base, other * one_bad / 1.1],
        "the same code, one run of before disturbed": [base * one_bad, other],
        "twice as fast, but three pairs": [base[:3], base[:3] / 2],
        "twice as fast, and six pairs": [base[:6], base[:6] / 2],
        "the very same times": [base, base],
        "a clock of whole ticks: after won 3 pairs, 10 were even": [base, base - 1e-5 * (np.arange(13) > 9)],
    }


def _wrong_words(machine: Machine, words: list[str]) -> str | None:
    if strange := {str(v) for v in words} - {"faster", "slower", "cannot tell"}:
        return f"wanted one of three words, got {sorted(strange)[0]!r}"
    unsure = words.count("cannot tell")
    ratio = machine.ratio
    right, opposite = ("faster", "slower") if ratio > 1 else ("slower", "faster")
    if ratio == 1 and (alarms := _SERIES - unsure) > 25:
        return (
            f"{alarms} of {_SERIES} series without a difference ({machine}) were called faster or slower "
            "(wanted at most 25)"
        )
    if ratio != 1 and (words.count(right) < 160 or words.count(opposite)):
        return (
            f"of {_SERIES} series that are {100 * (max(ratio, 1 / ratio) - 1):.2g} % {right} ({machine}), "
            f"{words.count(right)} were called so (wanted at least 160), {unsure} "
            f'"cannot tell", {words.count(opposite)} "{opposite}" (wanted 0)'
        )
    return None


def check_verdict(expected: Mapping[str, str], machines: Sequence[Machine] = ()) -> None:
    """expected: name of runs → the word for them. machines: judged by counting. Always: too few pairs, unequal lengths."""
    runs = _runs_to_see()
    few = [[np.full(n, 2.0), 1 + 0.01 * np.arange(n)] for n in (1, 2, 5)]
    cases = [*(check.case([runs[name]]) for name in expected), *machines, check.case(few)]

    def wrong_words(reports: list[check.Report]) -> str | None:
        words = [report.value for report in reports]
        wrong = [
            f'{name}: you say "{got}", wanted "{want}"'
            for (name, want), (got,) in zip(expected.items(), words[: len(expected)], strict=True)
            if got != want
        ]
        if wrong:
            return f"{len(expected) - len(wrong)} of {len(expected)} right.\n  " + "\n  ".join(wrong)
        for machine, of_series in zip(machines, words[len(expected) :], strict=False):
            if text := _wrong_words(machine, of_series):
                return text
        if set(words[-1]) != {"cannot tell"}:
            return "five pairs or fewer can tell nothing at 95 %"
        return None

    look = '"Noise" and "Drift, and runs in pairs", above: what a disturbed run does to a mean and a median'
    check.function("verdict", cases, drive=_answers, verify=wrong_words, look=look, once=_ONCE)
    check.function("verdict", _refused([(9, 8), (5, 4)]), drive=_answers, look="the docstring: ValueError")


# --- 0.4 reproducible ---------------------------------------------------------------------------------------------

_SETTINGS = ("deterministic", "threads", "warn_only")
_GENERATORS = ("Python's generator", "Python's generator", "NumPy's generator", "torch's generator")


class _Stop(BaseException):
    """Like KeyboardInterrupt, no Exception."""


_FAILURES = {"KeyError": KeyError, "Stop": _Stop}


@dataclass(frozen=True)
class Turns:
    """One call a seed; in some of them train raises. nested: each run holds another one, of seed 99."""

    seeds: tuple[int, ...]
    fails: tuple[str, ...]
    nested: bool = False


def _draw() -> list[float]:
    return [random.random(), random.gauss(0, 1), np.random.standard_normal(), torch.randn(1).item()]


def _set_up(turn: int) -> list[Any]:
    """What the caller has set before his call of this number, as _settings() tells it."""
    random.seed(turn)
    np.random.seed(turn)
    torch.manual_seed(turn)
    random.gauss(0, 1)  # the generators keep a second normal number in store
    np.random.standard_normal()
    torch.set_num_threads(1 + turn % 2)
    torch.use_deterministic_algorithms(turn > 1, warn_only=turn % 2 == 1)
    return _settings()


def _settings() -> list[Any]:
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    return [torch.are_deterministic_algorithms_enabled(), torch.get_num_threads(), warn]


def _repeat(reproducible: Callable[..., Any], **fields: Any) -> dict[str, Any]:
    """What each call drew, what was set inside, and what the caller found changed afterwards."""
    asked = Turns(**fields)
    usual, inside = _settings(), []
    turns: list[dict[str, Any]] = []

    def train() -> list[Any]:
        inside.append(_settings())
        drawn = [_draw()]
        if asked.nested:
            drawn += [reproducible(_draw, 99), _draw()]
            torch.set_num_threads(3)
        if failure := asked.fails[len(turns)]:
            raise _FAILURES[failure]("train failed, as the test meant it to")
        return drawn

    try:
        for turn, seed in enumerate(asked.seeds):
            before = _set_up(turn)
            try:
                result: Any = reproducible(train, seed)
            except (KeyError, _Stop):
                result = "raised"
            turns.append({"result": result, "before": before, "after": _settings(), "drew": _draw()})
    finally:
        torch.set_num_threads(usual[1])
        torch.use_deterministic_algorithms(usual[0], warn_only=usual[2])
    return {"turns": turns, "inside": inside}


def _expected(turn: int) -> list[float]:
    """What the generators give that were as _set_up left them, each in a generator of its own."""
    python, numpy, generator = random.Random(turn), np.random.RandomState(turn), torch.Generator()
    python.gauss(0, 1)
    numpy.standard_normal()
    by_torch = torch.randn(1, generator=generator.manual_seed(turn)).item()
    return [python.random(), python.gauss(0, 1), numpy.standard_normal(), by_torch]


def _not_repeated(report: check.Report) -> str | None:
    """What is wrong while train runs, and with what it returned."""
    asked, got = report.case, report.value
    results = [turn["result"] for turn in got["turns"]]
    if len(got["inside"]) != len(asked.seeds):
        return f"train ran {len(got['inside'])} times in {len(asked.seeds)} calls; wanted once a call"
    if [r == "raised" for r in results] != [bool(failure) for failure in asked.fails]:
        raising = ", ".join(str(i + 1) for i, failure in enumerate(asked.fails) if failure)
        return f"train raised in call {raising}, and only there: its exception has to reach the caller"
    kept = [(seed, r) for seed, r in zip(asked.seeds, results, strict=True) if r != "raised"]
    for place, name in enumerate(_GENERATORS):
        drawn = {seed: {str([d[place] for d in r]) for s, r in kept if s == seed} for seed, _ in kept}
        if (most := max(len(d) for d in drawn.values())) > 1:
            return f"{name}: the same seed gave {most} different results"
        if len({r[0][place] for _, r in kept}) < len(drawn):
            return f"{name}: different seeds gave the same numbers"
    if asked.nested and len({str(r[1]) for _, r in kept}) > 1:
        return "reproducible inside a reproducible run, with the same seed each time, gave different results"
    if asked.nested and any(r[0][k] in (r[1][k], r[2][k]) for _, r in kept for k in range(len(_GENERATORS))):
        return "a reproducible call inside train turned back the generators of the run around it"
    if odd := [tuple(i) for i in got["inside"] if i != [True, 1, False]]:
        return f"while train runs, (deterministic, threads, warn_only) was {odd[0]}; wanted (True, 1, False)"
    return None


def _left_behind(report: check.Report) -> str | None:
    """What the caller found changed, and whether only where train had raised."""
    asked, changed, where = report.case, list[str](), list[bool]()
    for i, turn in enumerate(report.value["turns"]):
        after, wanted = turn["drew"] + turn["after"], _expected(i) + turn["before"]
        odd = [name for name, a, w in zip(_GENERATORS + _SETTINGS, after, wanted, strict=True) if a != w]
        changed += dict.fromkeys(odd)
        where += [asked.fails[i] != ""] if odd else []
    if not changed:
        return None
    where_it_changed = "the calls in which train raised" if all(where) else f"{len(asked.seeds)} calls"
    times = ", ".join(f"{name} ×{changed.count(name)}" for name in dict.fromkeys(changed))
    return f"after {where_it_changed} the caller found changed: {times}"


def check_reproducible(*cases: Turns) -> None:
    look = '"The same seed, the same result", above: put back also when train raises'
    check.function("reproducible", cases, drive=_repeat, verify=each(_not_repeated, _left_behind), look=look)


# --- 0.5 predict_run ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A run from a cold start: in each step cpu_s seconds of the CPU and a product of (size, size).

    log: it reads a number from the GPU in each step. ahead: the product is launched before the CPU's part.
    """

    size: int
    cpu_s: float
    steps: int
    log: bool = False
    card: str = "H100"
    ahead: bool = False


def _one_step(gpu: Any, asked: Run, x: torch.Tensor) -> None:
    if not asked.ahead:
        gpu.host_work(asked.cpu_s)
    y = x @ x
    if asked.ahead:
        gpu.host_work(asked.cpu_s)
    if asked.log:
        y[0, 0].item()


def _predict(predict_run: Callable[..., float], **fields: Any) -> dict[str, Any]:
    """The seconds that the answer predicts, and how many steps it ran."""
    asked = Run(**fields)
    with (gpu := simulate(asked.card)):
        x = torch.empty(asked.size, asked.size, device="meta")
        seconds = float(predict_run(sealed(gpu), lambda: _one_step(gpu, asked, x), asked.steps))
    return {"seconds": seconds, "calls": sum(k.kind == "kernel" for k in gpu.kernels)}  # one product a step


@cache
def _full_run(asked: Run) -> tuple[float, float, float]:
    """Seconds: of the run, of its set-up, and of a product."""
    with (gpu := simulate(asked.card)):
        x = torch.empty(asked.size, asked.size, device="meta")
        _one_step(gpu, asked, x)
        setup = gpu.clock() - asked.cpu_s
        for _ in range(asked.steps - 1):
            _one_step(gpu, asked, x)
        gpu.synchronize()
        return gpu.clock(), setup, next(k.duration_s for k in gpu.kernels if k.kind == "kernel")


def _predicted(report: check.Report) -> str | None:
    asked, got, calls = report.case, report.value["seconds"], report.value["calls"]
    if calls > asked.steps // 10:
        return f"ran {calls} of {asked.steps} steps; wanted at most {asked.steps // 10}"
    full, setup, work = _full_run(asked)
    if abs(got / full - 1) <= 0.03:
        return None
    what = (
        f"{asked.steps} steps, each {asked.cpu_s * 1e6:.0f} µs on the CPU and a product of {asked.size} × "
        f"{asked.size}, which takes the GPU {work * 1e6:.0f} µs: you predict {got * 1e3:.1f} ms, the run takes "
        f"{full * 1e3:.1f} ms ({got / full - 1:+.1%}; wanted within 3 %).\n  "
    )
    yours = (got - setup) / asked.steps  # what it would charge a step, if its set-up is right
    if 0.97 < yours / (asked.cpu_s + work) < 1.1:
        return (
            f"{what}That is ≈ {yours * 1e6:.0f} µs a step: CPU + GPU, one after the other. They overlap in the run; a "
            "wait after every step takes that away."
        )
    if got > full + setup / 2:
        return f"{what}The set-up, {setup * 1e3:.0f} ms, comes once; yours seems to count it more often."
    if 0.9 < (full - got) / setup < 1.1:
        return f"{what}About the set-up of {setup * 1e3:.0f} ms is missing: the first step pays it."
    if got < full:
        return f"{what}Too little: was the clock read while the GPU still worked?"
    each_step = (full - setup) / asked.steps
    return (
        f"{what}That is ≈ {yours * 1e6:.0f} µs a step; in the run it is {each_step * 1e6:.0f} µs. The overlap is lost "
        f"at every wait: measure more steps in one stretch (you used {calls} of {asked.steps // 10})."
    )


def check_predict_run(*cases: Run) -> None:
    look = '"Start small", above: the start apart from the steps'
    check.function("predict_run", cases, drive=_predict, verify=each(_predicted), look=look)
