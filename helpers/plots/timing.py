"""Pictures of measured times: how samples spread, whether a change helped, overhead against size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, NullFormatter, NullLocator

from helpers.text.seconds import approx, format_seconds
from helpers.timing.intervals import verdict as verdict_of

from . import style
from .picture import Picture, drawn


def seconds_of(name: str, value: Any) -> np.ndarray:
    """Samples of a list of seconds or of a helpers.timing.Timing, as an array. ValueError if none."""
    array = np.asarray(getattr(value, "samples_s", value), dtype=float).reshape(-1)
    if array.size == 0 or not np.isfinite(array).all() or (array <= 0).any():
        raise ValueError(
            f"{name}: wants at least one sample, all of them positive seconds; got {array.tolist()[:6]}"
        )
    return array


def _time_axis(ax: Axes, low: float, high: float) -> None:
    """Ticks that read "10 µs", for samples from low to high; logarithmic where the largest is more than six times the smallest."""
    if high > 6 * low:
        free = (high / low) ** 0.06
        low, high = low / free, high * free
        ax.set_xscale("log")
        decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
        digits = (1,) if len(decades) > 4 else (1, 2, 5)
        ax.xaxis.set_major_locator(FixedLocator([d * 10.0**e for e in decades for d in digits]))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.xaxis.set_major_formatter(EngFormatter("s"))
        ax.set_xlabel("time (logarithmic)")
    else:
        free = 0.06 * (high - low) or 0.1 * high
        low, high = max(low - free, 0.0), high + free
        factor, unit = style.time_unit(high)
        ax.xaxis.set_major_formatter(FuncFormatter(lambda t, _: f"{t * factor:g}"))
        ax.set_xlabel(f"time, {unit}")
    ax.set_xlim(low, high)


@drawn
def samples(times: Mapping[str, Any], *, evidence: str, title: str = "How the samples spread") -> Picture:
    """Every sample as a dot, the quartiles as a bar, the median as a line with its value; one row a name.

    `times`: name → seconds (a sequence), or name → Timing. The axis is logarithmic where the largest sample
    is more than six times the smallest. ValueError for no samples, or one that is not positive.
    """
    if not times:
        raise ValueError("samples: no times; give a dict of name → seconds")
    data = {name: seconds_of(name, value) for name, value in times.items()}
    low, high = min(d.min() for d in data.values()), max(d.max() for d in data.values())
    note = "dot: one sample · bar: the middle half (interquartile range) · line: median"
    fig, _ = style.figure(0.65 + 0.62 * len(data), evidence=evidence, title=title, note=note)
    ax = fig.add_subplot()
    for row, seconds in enumerate(data.values()):
        q1, middle, q3 = map(float, np.percentile(seconds, [25, 50, 75]))
        colour = style.SERIES[row % len(style.SERIES)]
        # The jitter is a fixed low-discrepancy sequence, so that the picture is the same every time.
        up = (np.arange(len(seconds)) * 0.6180339887) % 1 - 0.5
        few = len(seconds) < 8  # then the median must not hide them
        size, alpha, above = (26, 0.9, 5) if few else (13, 0.45, 2)
        ax.scatter(seconds, row + 0.40 * up, size, colour, alpha=alpha, linewidths=0, zorder=above)
        box: dict[str, Any] = {"facecolor": colour, "edgecolor": colour, "alpha": 0.22, "zorder": 1}
        ax.broken_barh([(q1, q3 - q1)], (row - 0.24, 0.48), **box)
        ax.plot([middle, middle], [row - 0.30, row + 0.30], color=style.INK, linewidth=2.2, zorder=4)
        text = f"{approx(evidence)}{format_seconds(middle)}"
        look: dict[str, Any] = {"va": "bottom", "fontsize": style.SMALL, "fontweight": "bold", "zorder": 5}
        ax.text(middle, row - 0.33, text, ha="center", **look)
    style.row_names(ax, [f"{name}  (n = {len(d)})" for name, d in data.items()])
    ax.set_ylim(len(data) - 0.45, -0.62)
    _time_axis(ax, low, high)
    # How many samples a live run takes depends on the machine: not in the text, which nbval compares.
    return Picture(fig, evidence, f"{title}: {', '.join(data)}")


_VERDICTS = {
    "faster": (style.BLUE, "o"),
    "slower": (style.VERMILLION, "s"),
    "cannot tell": (style.MUTED, "D"),
}


@drawn
def speedup(ratios: Any, *, evidence: str | None = None, title: str = "Time before ÷ time after") -> Picture:
    """Each ratio as a point with its interval, against 1: over 1 the change made it faster.

    `ratios`: a helpers.timing.Speedup, or a dict of name → Speedup or (ratio, low, high). `evidence` is
    read from a Speedup that has one, else it must be given. ValueError if an interval does not hold its
    ratio.
    """
    given: Mapping[str, Any] = ratios if isinstance(ratios, Mapping) else {"": ratios}
    if not given:
        raise ValueError("speedup: nothing to draw; give a Speedup or a dict of name → (ratio, low, high)")
    labels = (getattr(r, "evidence", None) for r in given.values())
    evidence = evidence or next(filter(None, labels), "")
    rows: dict[str, tuple[float, float, float, str]] = {}
    for name, r in given.items():
        ratio, low, high = (r.ratio, r.low, r.high) if hasattr(r, "ratio") else r
        if not 0 < low <= ratio <= high:
            got = f"{ratio}, [{low}, {high}]"
            raise ValueError(f"{name or 'speedup'}: wants 0 < low ≤ ratio ≤ high, got {got}")
        rows[name] = (ratio, low, high, getattr(r, "verdict", None) or verdict_of(low, high))
    fig, _ = style.figure(0.75 + 0.5 * len(rows), evidence=evidence, title=title)
    ax = fig.add_subplot()
    reach = max(max(high, 1 / low) for _, low, high, _ in rows.values()) ** 1.12 * 1.05
    ax.set_xscale("log")
    ax.set_xlim(1 / reach, reach)
    ax.axvspan(1, reach, color="#eef5fa", zorder=0)
    ax.axvline(1, color=style.INK, linewidth=1.4, zorder=1)
    for row, (ratio, low, high, verdict) in enumerate(rows.values()):
        colour, marker = _VERDICTS[verdict]
        ax.plot([low, high], [row, row], color=colour, linewidth=3, solid_capstyle="butt", zorder=2)
        ax.plot([low, high], [row, row], "|", color=colour, markersize=14, markeredgewidth=2, zorder=2)
        ax.plot([ratio], [row], marker, color=colour, markersize=8, markeredgecolor=style.PAPER, zorder=3)
    ticks = _round_ratios(reach)
    ax.set_xticks(ticks, [f"{round(t, 2) if t > 0.1 else float(f'{t:.1g}'):g}×" for t in ticks])
    ax.minorticks_off()
    style.row_names(ax, rows)
    ax.set_ylim(len(rows) - 0.5, -0.62)
    ax.set_xlabel("← slower        1× = no change        faster →")
    right = ax.twinx()
    sign = approx(evidence)
    said = [f"{sign}{_short(r)}×  [{_short(a)}, {_short(b)}]  {word}" for r, a, b, word in rows.values()]
    style.row_names(right, said)
    right.set_ylim(ax.get_ylim())
    for label, (_, _, _, verdict) in zip(right.get_yticklabels(), rows.values(), strict=True):
        label.set_color(_VERDICTS[verdict][0])
    return Picture(fig, evidence, f"{title}, with intervals" + (f": {', '.join(rows)}" if any(rows) else ""))


def _short(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.1f}" if ratio < 99.95 else f"{ratio:,.0f}"


def _round_ratios(reach: float) -> list[float]:
    """Round ratios on both sides of 1 to label an axis from 1/reach to reach."""
    steps: dict[float, tuple[float, ...]] = {
        1.12: (1.02, 1.05),
        1.4: (1.1, 1.25),
        2.6: (1.25, 1.5, 2),
        7: (2, 3, 5),
    }
    wide = [10.0**e * d for e in range(int(np.log10(reach)) + 1) for d in (1, 3)][1:]
    over = [t for t in next((found for most, found in steps.items() if reach < most), wide) if t < reach]
    under = [2 - t for t in over] if reach < 1.12 else [1 / t for t in over]
    return sorted({*under, 1.0, *over})
