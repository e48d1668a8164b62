"""Curves in panels side by side: one quantity against another, with a colour and a marker for each series."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from helpers.text.seconds import format_seconds

from . import style
from .picture import Picture, drawn

#: name → (x, y)
Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]


@drawn
def curves(
    panels: Mapping[str, Series], *, evidence: str, title: str, xlabel: str, ylabel: str, note: str = "", log: str = "",
    ticks: Mapping[int, str] | None = None, times: bool = False, dashed: Collection[str] = (),
) -> Picture:  # fmt: skip
    """Panels with one y axis: head of the panel → name of the curve → (x, y). One panel needs no head: "".

    log: the axes that are logarithmic, "x", "y" or "xy". ticks: place on the x axis → its label, in place of numbers.
    times: y is seconds. dashed: curves that lie on others, drawn above them. ValueError for a panel without curves.
    """
    if not panels or not all(panels.values()):
        raise ValueError("curves: no curves; give panel → name → (x, y)")
    fig, _ = style.figure(3.3, evidence=evidence, title=title, note=note)
    for ax, (head, series) in zip(
        fig.subplots(1, len(panels), squeeze=False, sharey=True)[0], panels.items(), strict=True
    ):
        for i, (name, (x, y)) in enumerate(series.items()):
            top: dict[str, Any] = {"linestyle": "--", "zorder": 5} if name in dashed else {}
            colour, marker = style.SERIES[i % len(style.SERIES)], style.MARKERS[i % len(style.MARKERS)]
            ax.plot(x, y, marker=marker, markersize=5, color=colour, label=name, **top)
        _scales(ax, log, times)
        if ticks:
            ax.set_xticks(list(ticks), list(ticks.values()))
        ax.set_title(head)
        ax.set_xlabel(xlabel)
    fig.axes[0].set_ylabel(ylabel)
    fig.axes[-1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5), labelspacing=1.0)
    names = dict.fromkeys(name for series in panels.values() for name in series)
    return Picture(fig, evidence, f"{title}: {ylabel} against {xlabel} for {', '.join(names)}")


def _scales(ax: Axes, log: str, times: bool) -> None:
    for axis in log:
        ax.set(**{f"{axis}scale": "log"})
        getattr(ax, f"{axis}axis").set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_locator(
        LogLocator(subs=(1, 2, 5)) if "y" in log else MaxNLocator("auto", steps=[1, 2, 5, 10])
    )
    ax.xaxis.set_major_formatter(FuncFormatter(_number))
    ax.yaxis.set_major_formatter(
        FuncFormatter(lambda s, _: format_seconds(s)) if times else FuncFormatter(_number)
    )


def _number(value: float, _: Any) -> str:
    return f"{value:,.10g}"
