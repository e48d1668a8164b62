"""Colours of traces, and how much of each pixel's time something runs: what thousands of short bars come to."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log10
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from helpers.trace import Trace, names

from . import style

FAMILY = {
    "compute": style.BLUE, "memory": style.SKY, "copy": style.ORANGE, "communication": style.PURPLE,
}  # fmt: skip
FAMILY_SAID = {
    "compute": "kernel", "memory": "copy or fill inside the GPU", "copy": "copy to or from the host",
    "communication": "collective",
}  # fmt: skip
# No colour stands for two things: a copy that runs and an idle GPU that waits for a copy are not the same news.
CAUSE = {
    "nothing launched": style.VERMILLION, "short kernels": "#C9B800", "sync": "#A50034",
    "waiting for a copy": "#7A4A12", "waiting for communication": "#5E2A84",
    "waiting for another stream": "#1F7A8C", "no cause seen": "#9aa3ad",
}  # fmt: skip
HOST = {
    "python": "#efe3cf",
    "annotation": "#c9ced6",
    "operator": "#a9cfe8",
    "launch": style.GREEN,
    "wait": style.INK,
    "other call": style.MUTED,
}
HOST_SAID = {
    "python": "Python", "annotation": "named span", "operator": "operator", "launch": "launch or copy call",
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


def stream_name(t: Trace, stream: int) -> str:
    """A lane's label: which stream is the default one, and what the others are for, as far as their work tells.

    The profiler numbers streams as CUPTI does, where the default stream of a process's first context is 7
    (HIP's is 0); other streams have no names in a trace.
    """
    if stream in (0, 7):
        return f"stream {stream} (default)"
    families = set(t.work.family[t.work.stream == stream].tolist())
    said = {names.FAMILIES.index("copy"): "copies", names.FAMILIES.index("communication"): "collectives"}
    only = said.get(families.pop(), "") if len(families) == 1 else ""
    return f"stream {stream} ({only or 'side'})"


Line = list[tuple[float, str, str]]
"""One line of a key: (x in inches, colour, words); without a colour the words are what the line is about."""


def key(fig: Figure, entries: Sequence[tuple[str, str]], left: float, about: str = "") -> list[Line]:
    """Lines no wider than the picture. about: what they are about, written left of the first."""
    lines: list[Line] = []
    x = style.WIDTH
    for colour, words in entries:
        width = 0.17 + style.text_width(fig, words, style.SMALL) + 0.22
        if not lines or x + width > style.WIDTH - 0.1:
            lines.append([])
            x = left
            if about and len(lines) == 1:
                lines[-1].append((left, "", about))
        lines[-1].append((x, colour, words))
        x += width
    return lines


LINE = 0.24
"""Inches that a line of the key takes."""


def draw_key(fig: Figure, lines: Sequence[Line], low: float = 0.06) -> None:
    """The key at the bottom of the figure, `low` inches above its edge."""
    width, tall = fig.get_size_inches()
    for i, line in enumerate(lines):
        y = (low + LINE * (len(lines) - i - 0.5)) / tall
        for x, colour, words in line:
            if not colour:
                fig.text(
                    (x - 0.1) / width,
                    y,
                    words,
                    ha="right",
                    va="center",
                    fontsize=style.SMALL,
                    color=style.MUTED,
                )
                continue
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
