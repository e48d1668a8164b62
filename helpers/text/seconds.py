"""What a measurement of time says of itself: a median with its spread, a ratio with its interval, in words.

All times are seconds. Whatever was read off a wall clock prints with "≈ " before the number; simulated time
is deterministic and prints bare.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

LIVE_CPU = "live (CPU)"


def format_seconds(seconds: float) -> str:
    """A duration with three significant digits and the unit that suits it: 1.23e-5 → "12.3 µs"."""
    if not math.isfinite(seconds):
        return f"{seconds} s"
    if abs(seconds) < 1e-13:  # no clock sees it: the rounding of a subtraction
        return "0 s"
    sign, size = ("-" if seconds < 0 else ""), abs(seconds)
    for scale, unit in ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s")):
        digits = f"{size / scale:#.3g}"  # '#' keeps the zeros of 1.00
        if unit != "s" and ("e" in digits or float(digits) >= 1000):
            continue  # 999.9 ns rounds up to the next unit's 1.00
        return f"{sign}{size:,.0f} s" if "e" in digits else f"{sign}{digits.rstrip('.')} {unit}"
    raise AssertionError("unreachable: the last unit always returns")


def approx(evidence: str) -> str:
    """What stands before a number: "≈ " where a clock read it, here or when it was recorded; "" where every run gives it."""
    return "≈ " if evidence.startswith(("live", "recorded")) else ""


@dataclass(frozen=True, repr=False)
class Timing:
    """How long one call takes, in seconds.

    samples_s: one number a sample, each the mean of a block of calls. median_s: their median. iqr_s: 75th
    minus 25th percentile. evidence: where the clock was, e.g. "live (CPU)".
    """

    median_s: float
    iqr_s: float
    samples_s: tuple[float, ...] = field(compare=False)
    evidence: str = LIVE_CPU

    @property
    def cell(self) -> str:
        """The median as a table cell: "≈ 12.3 µs"; without "≈ " where the clock was simulated."""
        return approx(self.evidence) + format_seconds(self.median_s)

    def __str__(self) -> str:
        # The number of samples depends on the machine's speed; it stays out of the text, which nbval
        # compares.
        iqr = approx(self.evidence) + format_seconds(self.iqr_s)
        return f"median {self.cell}, interquartile range {iqr} · {self.evidence}"

    __repr__ = __str__


@dataclass(frozen=True, repr=False)
class Speedup:
    """Time before / time after: above 1, "after" is faster.

    ratio: exp of the median of the pairs' log ratios. low, high: its bootstrap interval at `confidence`.
    verdict: "faster", "slower", or "cannot tell" where the interval holds 1.
    """

    ratio: float
    low: float
    high: float
    confidence: float
    pairs: int
    verdict: str
    evidence: str = LIVE_CPU
    before_s: tuple[float, ...] = field(default=(), compare=False)
    after_s: tuple[float, ...] = field(default=(), compare=False)

    @property
    def cell(self) -> str:
        """The ratio as a table cell: "≈ 1.42×"."""
        return f"{approx(self.evidence)}{self.ratio:.2f}×"

    def __str__(self) -> str:
        sign = approx(self.evidence)
        return (
            f"{self.verdict}: {self.cell} ({self.confidence:.0%} interval {sign}{self.low:.2f}× to "
            f"{sign}{self.high:.2f}×, {self.pairs} pairs) · {self.evidence}"
        )

    __repr__ = __str__
