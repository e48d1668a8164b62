"""Time against size on two logarithmic axes: a flat floor of overhead, then the slope of the elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from helpers.plots import style
from helpers.plots.picture import Picture, drawn
from helpers.plots.timing import seconds_of, time_axis
from helpers.text.seconds import approx, format_seconds


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


_LAWS = {
    "sum": "time = floor + slope × elements · dotted: floor · dashed: slope · ring: the two are equal",
    "max": "time = the larger of the two · dotted: floor · dashed: slope · ring: where the slope takes over",
}


@drawn
def crossover(
    sizes: Sequence[int], times: Mapping[str, Sequence[float]], *, evidence: str, title: str = "Overhead against size",
    law: str = "sum",
) -> Picture:  # fmt: skip
    """Log-log curves of time against size; for each the overhead floor, the slope, and where they are equal.

    `times`: name → seconds, one for each of `sizes`. Floor a and slope b are fitted (`fit_overhead`) to
    `law`: "sum", t = a + b·n, where overhead and work follow each other; "max", t = max(a, b·n), where they
    run at the same time. The floor is dotted, the slope dashed, and a ring marks n = a / b. ValueError if
    lengths differ, under two sizes, a time that is not positive, or another law.
    """
    if not times:
        raise ValueError("crossover: no times; give a dict of name → seconds, one for each size")
    data = {name: seconds_of(name, value) for name, value in times.items()}
    n = np.asarray(sizes, dtype=float)
    if (n <= 0).any():
        raise ValueError("crossover: sizes must be positive: the axis is logarithmic")
    fits = {name: fit_overhead(n, seconds, law) for name, seconds in data.items()}
    low, high = min(d.min() for d in data.values()), max(d.max() for d in data.values())
    fig, _ = style.figure(3.7, evidence=evidence, title=title, note=_LAWS[law])
    ax = fig.add_subplot()
    sign = approx(evidence)
    fine = np.geomspace(n.min(), n.max(), 100)
    for i, (name, seconds) in enumerate(data.items()):
        floor, each = fits[name]
        colour, marker = style.SERIES[i % len(style.SERIES)], style.MARKERS[i % len(style.MARKERS)]
        per = f"slope {sign}{format_seconds(each)} per element" if each else "no slope in these sizes"
        half = bool(each) and n.min() < floor / each < n.max()
        label = f"{name}\n  floor {sign}{format_seconds(floor)}\n  {per}"
        label += f"\n  equal at {sign}{_round(floor / each)}" if half else ""
        ax.plot(n, seconds, marker=marker, markersize=5.5, color=colour, label=label, zorder=4)
        if floor:
            ax.plot(n, np.full_like(n, floor), color=colour, linestyle=(0, (1, 1.6)), linewidth=1.5, zorder=2)
        if each:
            ax.plot(fine, each * fine, color=colour, linestyle=(0, (5, 2.5)), linewidth=1.1, zorder=2)
        if half:
            ring: dict[str, Any] = {"markeredgecolor": colour, "markeredgewidth": 1.8, "zorder": 5}
            ax.plot([floor / each], [floor], "o", markersize=9, markerfacecolor=style.PAPER, **ring)
    ax.set_xscale("log")
    ax.set_xlim(n.min() / 1.4, n.max() * 1.4)
    ax.xaxis.set_major_locator(LogLocator(10, numticks=12))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _round(x)))
    time_axis(ax, low / 2, high * 1.6, log=True, axis="y")
    ax.set_xlabel("elements")
    ax.set_ylabel("time per call")
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), labelspacing=1.1, handlelength=1.6)
    return Picture(fig, evidence, f"{title}: time against elements for {', '.join(data)}")


def _round(number: float) -> str:
    """A count with two significant digits: 950, 21 k, 1.3 M."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, "")):
        if number >= 0.995 * size:
            value = number / size
            few = f"{value:.1f}".removesuffix(".0") if value < 9.95 else f"{float(f'{value:.2g}'):.0f}"
            return few + letter
    return f"{number:g}"
