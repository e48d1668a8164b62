"""How sure one can be of a speed-up: paired samples, a bootstrap interval, a verdict. No clock here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# The chance that all n of n fair coins fall alike is 2 / 2**n: with five pairs 6 %, so that no
# distribution-free interval for a median can promise 95 % from fewer than six.
MIN_PAIRS = 6


class Interval(NamedTuple):
    """A ratio of times with the interval around it (dimensionless)."""

    ratio: float
    low: float
    high: float


def paired_interval(
    before_s: Sequence[float] | np.ndarray,
    after_s: Sequence[float] | np.ndarray,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """Speed-up of paired samples, with a percentile-bootstrap interval (Efron & Tibshirani 1993, chapter 13).

    before_s, after_s: (n,) positive seconds, n >= 6; entries i were taken next to each other. Statistic:
    the median of log(before / after), so that 2× and ½× lie equally far from 1 and one outlier moves
    nothing. Whole pairs are drawn with replacement, `resamples` times, by PCG64(seed): the same samples
    give the same interval. Returns Interval(ratio, low, high), ratio = before / after. ValueError for
    anything else.
    """
    before, after = _samples(before_s, "before_s"), _samples(after_s, "after_s")
    if before.shape != after.shape:
        raise ValueError(
            f"before_s has {before.size} samples and after_s {after.size}: pairs need as many of each"
        )
    if before.size < MIN_PAIRS:
        raise ValueError(f"{before.size} pairs are too few: at least {MIN_PAIRS} for a 95 % interval")
    check_confidence(confidence)
    if resamples < 100:
        raise ValueError(f"resamples must be at least 100, not {resamples}")
    log_ratio = np.log(before / after)
    picks = np.random.default_rng(seed).integers(0, before.size, size=(resamples, before.size))
    medians = np.median(log_ratio[picks], axis=1)
    tail = 50 * (1 - confidence)
    low, high = np.exp(np.percentile(medians, [tail, 100 - tail]))
    return Interval(float(np.exp(np.median(log_ratio))), float(low), float(high))


def verdict(low: float, high: float) -> str:
    """What an interval of before / after lets one say: "faster", "slower", or "cannot tell" if it holds 1."""
    if not low <= high:
        raise ValueError(f"low must not lie above high: [{low}, {high}]")
    return "faster" if low > 1 else "slower" if high < 1 else "cannot tell"


def pair_order(pairs: int, seed: int = 0) -> list[bool]:
    """Who goes first in each pair (True: before). Half and half, in a seeded random order."""
    first = np.arange(pairs) % 2 == 0
    return [bool(x) for x in np.random.default_rng(seed).permutation(first)]


def _samples(values: Sequence[float] | np.ndarray, name: str) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, not of shape {array.shape}")
    if not (np.isfinite(array).all() and (array > 0).all()):
        raise ValueError(f"{name} must hold positive, finite seconds")
    return array


def check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")
