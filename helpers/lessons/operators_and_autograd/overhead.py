"""Time against size on two logarithmic axes: a flat floor of overhead, then the slope of the elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from helpers import plots
from helpers.plots.picture import Picture
from helpers.text.seconds import approx, format_seconds

_LAWS = {"sum": "A call takes the sum of the two.", "max": "A call takes the larger of the two."}


def fit_overhead(
    sizes: Sequence[float] | np.ndarray, seconds: Sequence[float] | np.ndarray, law: str = "sum"
) -> tuple[float, float]:
    """The floor a (seconds) and the cost b (seconds per element) of the law that fit best.

    "sum" is t(n) = a + b·n, one after the other, as on a CPU: at n = a / b the overhead is half of the
    time. Least squares of the *relative* error, so that small sizes count as much as large ones; neither is
    negative. "max" is t(n) = max(a, b·n), both at once, as where a CPU launches while a GPU works: the floor
    ends at n = a / b. No time is below a, and none per element below b. ValueError under two sizes, or for another
    law.
    """
    if law not in _LAWS:
        raise ValueError(f"law={law!r}: give one of {', '.join(map(repr, _LAWS))}")
    n, t = np.asarray(sizes, dtype=float), np.asarray(seconds, dtype=float)
    if n.shape != t.shape or n.ndim != 1 or len(n) < 2:
        got = f"{n.size} sizes and {t.size} times"
        raise ValueError(f"wants one time for each of at least two sizes; got {got}")
    if law == "max":
        return float(t.min()), float((t / n).min())
    fit, *_ = np.linalg.lstsq(np.column_stack([1 / t, n / t]), np.ones_like(t), rcond=None)
    a, b = np.maximum(fit, 0)
    return float(a), float(b)


def crossover(
    sizes: Sequence[int], seconds: Sequence[float], *, evidence: str, title: str, law: str = "sum"
) -> Picture:
    """Time against size, both logarithmic; dashed the overhead's floor and the slope, and a mark where they are equal.

    seconds: one for each of `sizes`. Floor a and slope b are fitted (`fit_overhead`) to `law`. ValueError if lengths
    differ, under two sizes, or for another law.
    """
    floor_s, slope_s = fit_overhead(sizes, seconds, law)
    equal, last, sign = floor_s / slope_s, sizes[-1], approx(evidence)
    note = f"floor {sign}{format_seconds(floor_s)} · slope {sign}{format_seconds(slope_s)} per element · equal at "
    lines: dict[str, tuple[Sequence[float], Sequence[float]]] = {
        "x + y": (sizes, seconds),
        "floor: the call": ([sizes[0], last], [floor_s, floor_s]),
        "slope: the work": ([equal / 2, last], [floor_s / 2, slope_s * last]),
        "equal": ([equal], [floor_s]),
    }
    return plots.curves(
        {"": lines},
        evidence=evidence,
        title=title,
        note=f"{note}{sign}{_round(equal)} elements. {_LAWS[law]}",
        xlabel="elements",
        ylabel="time per call",
        log="xy",
        times=True,
        ticks={size: _round(size) for size in sizes},
        dashed=("floor: the call", "slope: the work", "equal"),
    )


def _round(number: float) -> str:
    """A count with two significant digits: 950, 21 k, 1.3 M."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= 0.995 * size:
            return f"{float(f'{number / size:.2g}'):g}{letter}"
    return f"{float(f'{number:.2g}'):g}"
