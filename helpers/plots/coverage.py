"""Colours of traces, and how much of each pixel's time something runs: what thousands of short bars come to."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log10
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from . import style

FAMILY = {
    "compute": style.BLUE, "memory": style.SKY, "copy": style.ORANGE, "communication": style.PURPLE,
}  # fmt: skip
FAMILY_SAID = {
    "compute": "kernel", "memory": "copy or fill inside the GPU", "copy": "copy to or from the host",
    "communication": "collective",
}  # fmt: skip
CAUSE = {
    "nothing launched": style.VERMILLION, "short kernels": "#B5A200", "sync": style.INK,
    "waiting for a copy": style.ORANGE, "waiting for communication": style.PURPLE,
    "waiting for another stream": style.GREEN, "no cause seen": "#9aa3ad",
}  # fmt: skip
HOST = {
    "annotation": "#c9ced6",
    "operator": "#a9cfe8",
    "launch": style.GREEN,
    "wait": style.INK,
    "other call": style.MUTED,
}
HOST_SAID = {
    "annotation": "named span", "operator": "operator", "launch": "launch or copy call",
    "wait": "call that waits for the GPU", "other call": "other call",
}  # fmt: skip

Ints = NDArray[np.int64]


def shares(starts: Ints, ends: Ints, edges: NDArray[Any]) -> NDArray[np.float64]:
    """Of each bin between two neighbouring edges, the share that these disjoint, sorted spans cover (0…1)."""
    if not len(starts):
        return np.zeros(len(edges) - 1)
    moments = np.stack((starts, ends), 1).ravel()
    length = np.cumsum(ends - starts)
    until = np.stack((length - (ends - starts), length), 1).ravel()
    return np.diff(np.interp(edges, moments, until)) / np.diff(edges)


def fill(ax: Axes, edges: Any, share: NDArray[Any], base: Any, high: float, colour: str) -> Any:
    """Columns from `base` up (the axis points down), `high` where the share is 1. Returns their tops."""
    top = base - high * share
    x = np.repeat(edges, 2)[1:-1]
    ax.fill_between(
        x, np.repeat(np.broadcast_to(base, share.shape), 2), np.repeat(top, 2), color=colour, linewidth=0, zorder=3
    )  # fmt: skip
    return top


def key(fig: Figure, entries: Sequence[tuple[str, str]], left: float) -> list[list[tuple[float, str, str]]]:
    """Lines of (x in inches, colour, words), no wider than the picture."""
    lines: list[list[tuple[float, str, str]]] = []
    x = style.WIDTH
    for colour, words in entries:
        width = 0.17 + style.text_width(fig, words, style.SMALL) + 0.22
        if not lines or x + width > style.WIDTH - 0.1:
            lines.append([])
            x = left
        lines[-1].append((x, colour, words))
        x += width
    return lines


LINE = 0.24
"""Inches that a line of the key takes."""


def draw_key(fig: Figure, lines: Sequence[Sequence[tuple[float, str, str]]], low: float = 0.06) -> None:
    """The key at the bottom of the figure, `low` inches above its edge."""
    width, tall = fig.get_size_inches()
    for i, line in enumerate(lines):
        y = (low + LINE * (len(lines) - i - 0.5)) / tall
        for x, colour, words in line:
            fig.text(x / width, y, "■", color=colour, va="center", fontsize=style.TEXT)
            fig.text((x + 0.17) / width, y, words, va="center", fontsize=style.SMALL)


def moment(ns: int, window_ns: int) -> str:
    """A moment with as many digits as a window of that length can show: "1.2345 s"."""
    factor, unit = style.time_unit(ns / 1e9)
    digits = max(0, ceil(-log10(window_ns / 50 * factor / 1e9)))
    text = f"{ns * factor / 1e9:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"


class TimeAxis:
    """The time axis of a window: labels `ax`, and says where a moment in nanoseconds lies on it.

    It counts from the trace's own start, or, in a window far from there, from the window's.
    """

    def __init__(self, ax: Axes, begin_ns: int, end_ns: int, label: bool = True) -> None:
        factor, unit = style.time_unit((end_ns - begin_ns) / 1e9)
        self.scale = factor / 1e9
        self.origin = 0 if begin_ns <= 2 * (end_ns - begin_ns) else begin_ns
        since = f" after {moment(begin_ns, end_ns - begin_ns)}" if self.origin else ""
        ax.set_xlabel(f"time, {unit}{since}" if label else "")
        ax.set_xlim(self.at(begin_ns), self.at(end_ns))
        width = ax.get_position().width * style.WIDTH
        self.inch = (end_ns - begin_ns) * self.scale / width
        """Axis units in an inch."""

    def at(self, ns: Any) -> Any:
        return (ns - self.origin) * self.scale
