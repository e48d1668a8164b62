"""Claims on trial in lesson 00. Those measured in the lesson itself are handed their measurements."""

from collections.abc import Mapping

from helpers.lesson.claim import Claim
from helpers.lessons.measure_first import experiments


def on_trial(
    gain: Mapping[str, Mapping[str, float]], naive: Mapping[str, float], waited: Mapping[str, float]
) -> list[Claim]:
    """Every claim of the lesson.

    gain: two models → change → time before ÷ time after. naive, waited: seconds that a clock charges to each line of a
    step, without and with waiting.
    """
    return [
        measure_optimise_measure(gain),
        simple_time(naive, waited),
        event_kernel_time(),
        percent_table(),
        three_hundred_percent(),
        start_small(),
        one_at_a_time(),
    ]


def measure_optimise_measure(gain: Mapping[str, Mapping[str, float]]) -> Claim:
    """The best change of one model, tried on another."""
    (model, ratios), (other, of_other) = gain.items()
    best, best_other = max(ratios, key=ratios.__getitem__), max(of_other, key=of_other.__getitem__)
    measured = (
        f"best of three: {best} on the {model} ({ratios[best]:.2f}×), {best_other} on the {other} "
        f"({of_other[best_other]:.2f}×); swapped: {ratios[best_other]:.2f}×, {of_other[best]:.2f}×"
    )
    verdict = "confirmed" if best != best_other else "refuted"
    claim = "Measure first, optimise, then measure again"
    return Claim("00-measure-optimise-measure", "guide", claim, measured, verdict, "5 · The golden loop")


def simple_time(naive: Mapping[str, float], waited: Mapping[str, float]) -> Claim:
    """The line that a clock blames, and the slowest one."""
    blamed, guilty = max(naive, key=naive.__getitem__), max(waited, key=waited.__getitem__)
    measured = (
        f"naive clock: {blamed} with {naive[blamed] / sum(naive.values()):.0%} of the step; after synchronize: "
        f"{guilty} with {waited[guilty] / sum(waited.values()):.0%}"
    )
    verdict = (
        "confirmed"
        if blamed == guilty
        else "partly: holds when the device is synchronized before each reading"
    )
    claim = "A simple `time` measurement locates the bottleneck quickly"
    return Claim("00-simple-time", "guide", claim, measured, verdict, "1 · Which line is slow?")


def event_kernel_time() -> Claim:
    """What two events read, against the kernels' own record."""
    error = {
        (n, calls): read / kernel
        for n, calls in ((4096, 50), (128, 1), (128, 50))
        for read, kernel in [experiments.events_around(n, calls)]
    }
    measured = (
        f"events ÷ kernel: {error[4096, 50]:.2f} for fifty large products, {error[128, 1]:.2f} for one small one on an "
        f"idle GPU, {error[128, 50]:.2f} for fifty small ones"
    )
    verdict = (
        "partly: holds when the queue is full; events read all that passes between two marks, gaps included"
        if error[128, 1] > 1.1
        else "confirmed"
    )
    claim = "`torch.cuda.Event` records kernel execution time"
    where = "Further · What a pair of events reads"
    return Claim("00-event-kernel-time", "compile-300", claim, measured, verdict, where)


def meanings(before: float, after: float, more_is_better: bool) -> dict[str, float]:
    """Three usual meanings of "improved by x %", in per cent: the ratio, the rate gained, the amount saved."""
    times = after / before if more_is_better else before / after
    return {
        "ratio × 100": 100 * times,
        "rate gained": 100 * (times - 1),
        "amount saved": 100 * (1 - after / before),
    }


def percent_table() -> Claim:
    """Which meaning of per cent each row of the article's table uses."""
    printed = [(800, 200, 400, False), (45, 90, 100, True), (12, 6, 50, False), (72, 24, 300, False)]
    told, gains, ratios = [], [], []
    for before, after, percent, more in printed:
        ways = meanings(before, after, more)
        what = next(name for name, value in ways.items() if abs(value - percent) < 0.5)
        told.append(f"{percent} % is the {what}")
        if what == "ratio × 100":
            ratios.append(f"{percent} % (as a rate gained {ways['rate gained']:.0f} %)")
        else:
            gains.append(f"{percent} %")
    measured = f"arithmetic: {', '.join(told)}"
    claim = "improved by 400 % (800 → 200 ms), 100 % (45 → 90 %), 50 % (12 → 6 GB), 300 % (72 → 24 h)"
    verdict = (
        "confirmed" if not ratios
        else f"partly: {' and '.join(gains)} are improvements; {' and '.join(ratios)} are ratios" if gains
        else "refuted: all are ratios"
    )  # fmt: skip
    return Claim("00-percent-table", "compile-300", claim, measured, verdict, "Sources on trial")


def three_hundred_percent() -> Claim:
    """The article's headline beside its own figures."""
    hours, step = meanings(72, 24, False)["rate gained"], meanings(800, 200, False)["rate gained"]
    measured = (
        f"arithmetic: 72 → 24 h of training is {hours:.0f} % more speed ({72 / 24:.1f}×); 800 → 200 ms a step is "
        f"{step:.0f} % more ({800 / 200:.1f}×)"
    )
    verdict = (
        "partly: holds when one step is meant, not the whole training" if hours < 300 <= step else "confirmed"
    )
    claim = "Training speed improved by 300 %"
    return Claim("00-300-percent-faster", "compile-300", claim, measured, verdict, "Sources on trial")


def start_small() -> Claim:
    """A run of 1,000 steps predicted from its first three."""
    full, first, k = experiments.cold_run(1000), experiments.cold_run(1), 3
    scaled = experiments.cold_run(k) * 1000 / k / full - 1
    apart = (first + experiments.cold_run(k, skip=1) * 999 / k) / full - 1
    measured = (
        f"read as: a short run tells of a long one. Three steps after the first predict 1,000 within {abs(apart):.1%}; three from a cold start, scaled up, are "
        f"off by {scaled:+.0%}"
    )
    verdict = (
        "partly: holds when start-up is taken apart, and later steps are like early ones"
        if abs(apart) < 0.03 < abs(scaled)
        else "confirmed"
    )
    where = "Further · Start small"
    return Claim("00-start-small", "book-notes", "Always start small", measured, verdict, where)


def one_at_a_time() -> Claim:
    """A loss that hides behind a gain, and two gains."""
    ratios = experiments.together()
    slow, item, foreach, both = (
        experiments.training_step(512, 256, item=waits, foreach=lists).seconds
        for waits, lists in ((True, False), (False, False), (True, True), (False, True))
    )
    measured = (
        f"two changes at once: {ratios['both at once']:.2f}×, which looks like a gain; alone they are "
        f"{ratios['foreach alone']:.2f}× and {ratios['forward twice alone']:.2f}×. Two others: {slow / both:.2f}×; alone "
        f"{slow / foreach:.2f}× and {slow / item:.2f}×"
    )
    hides = ratios["both at once"] > 1 > ratios["forward twice alone"]
    verdict = (
        "partly: holds when one of the changes loses, which the two together hide; where each gains, nothing is hidden"
        if hides and both < min(item, foreach) <= max(item, foreach) < slow
        else "confirmed" if hides else "refuted"
    )  # fmt: skip
    claim = "Begin with a single optimisation and verify step by step"
    where = "Further · One change at a time"
    return Claim("00-one-at-a-time", "five-strategies", claim, measured, verdict, where)
