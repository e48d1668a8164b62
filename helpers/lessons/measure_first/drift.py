"""Times by the number of the run: what a drifting machine does to a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from helpers.plots import style
from helpers.plots.picture import Picture, drawn
from helpers.plots.timing import samples_axis, seconds_of

Runs = dict[str, tuple[np.ndarray, np.ndarray]]
"""Name → numbers of its runs, their seconds."""


def runs_of(times: Mapping[str, Any], order: Mapping[str, Sequence[int]] | None = None) -> Runs:
    """Run numbers and seconds of each name. ValueError where `order` does not fit `times`."""
    found: Runs = {}
    for name, value in times.items():
        seconds = seconds_of(name, value)
        places = np.arange(len(seconds)) if order is None else np.asarray(order.get(name, ()), dtype=float)
        if places.shape != seconds.shape:
            raise ValueError(
                f"{name}: {len(seconds)} times and {places.size} run numbers; order= wants one for each time"
            )
        found[name] = (places, seconds)
    return found


@drawn
def series(
    times: Mapping[str, Any],
    order: Mapping[str, Any] | None = None,
    *,
    evidence: str,
    title: str = "Time by run",
) -> Picture:
    """Every time as a dot over the number of its run, each name's median as a dashed line.

    `times`: name → seconds, or Timing; `order`: name → the number of each of its runs in the session (None:
    each name counts its own from 0). Or both one level deeper, panel → name → …: the panels stand side by
    side on one time axis. Logarithmic where the largest time is more than six times the smallest.
    ValueError for no times, a time that is not positive, or run numbers that are not one for each time.
    """
    if not times:
        raise ValueError("series: no times; give a dict of name → seconds")
    nested = all(isinstance(value, Mapping) for value in times.values())
    panels = {
        panel: runs_of(inner, order[panel] if order else None)
        for panel, inner in times.items()
    } if nested else {"": runs_of(times, order)}  # fmt: skip
    names = list(dict.fromkeys(name for runs in panels.values() for name in runs))
    every = np.concatenate([seconds for runs in panels.values() for _, seconds in runs.values()])
    low, high = float(every.min()), float(every.max())
    fig, _ = style.figure(2.9, evidence=evidence, title=title, note="dot: one run · dashed: median")
    axes = fig.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for ax, (panel, runs) in zip(axes, panels.items(), strict=True):
        for name, (places, seconds) in runs.items():
            i = names.index(name)
            colour, marker = style.SERIES[i % len(style.SERIES)], style.MARKERS[i % len(style.MARKERS)]
            ax.plot(places, seconds, marker, color=colour, markersize=4.5, alpha=0.85, label=name)
            middle = float(np.median(seconds))
            ax.axhline(middle, color=colour, linewidth=1.3, linestyle=(0, (5, 2.5)), zorder=1)
        ax.set(title=panel, xlabel="run")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    samples_axis(axes[0], low, high, "y", pad=0.08)
    handles = {
        label: handle
        for ax in axes
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }  # fmt: skip
    fig.legend(handles.values(), handles.keys(), loc="outside right center")
    # How many runs there were may depend on the machine: not in the text, which nbval compares.
    where = f" ({'; '.join(panels)})" if nested else ""
    return Picture(fig, evidence, f"{title}: time against run for {', '.join(names)}{where}")
