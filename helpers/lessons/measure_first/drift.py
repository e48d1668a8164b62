"""Times by the number of the run: what a drifting machine does to a comparison."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.ticker import MaxNLocator

from helpers.plots import style
from helpers.plots.picture import Picture, drawn
from helpers.plots.timing import samples_axis

Pair = tuple[np.ndarray, np.ndarray]
"""Before, after: one number for each run."""


@drawn
def before_and_after(sessions: Mapping[str, tuple[Pair, Pair]], *, evidence: str, title: str) -> Picture:
    """Every time as a dot over the number of its run, the medians of before and after as dashed lines.

    sessions: panel → numbers of the runs in the session, their seconds. The panels stand side by side on one time
    axis, logarithmic where the largest time is more than six times the smallest.
    """
    every = np.concatenate([seconds for _, times in sessions.values() for seconds in times])
    fig, _ = style.figure(2.9, evidence=evidence, title=title, note="dot: one run · dashed: median")
    axes = fig.subplots(1, len(sessions), sharey=True, squeeze=False)[0]
    for ax, (panel, (places, times)) in zip(axes, sessions.items(), strict=True):
        looks = zip(("before", "after"), style.SERIES[:2], style.MARKERS[:2], strict=True)
        for (name, colour, marker), place, seconds in zip(looks, places, times, strict=True):
            ax.plot(place, seconds, marker, color=colour, markersize=4.5, alpha=0.85, label=name)
            middle = float(np.median(seconds))
            ax.axhline(middle, color=colour, linewidth=1.3, linestyle=(0, (5, 2.5)), zorder=1)
        ax.set(title=panel, xlabel="run")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    samples_axis(axes[0], float(every.min()), float(every.max()), "y", pad=0.08)
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
    # How many runs there were may depend on the machine: not in the text, which nbval compares.
    return Picture(fig, evidence, f"{title}: time against run for before, after ({'; '.join(sessions)})")
