"""One look for every picture of the course, and the badge that says where its numbers came from.

Pictures are drawn on plain `matplotlib.figure.Figure` objects and never on pyplot: there is no global
figure list that could show a picture twice, and nothing depends on the notebook's backend. Drawing happens
inside `look()`, matplotlib's defaults plus the settings below, so a learner's own rcParams change nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from helpers.text.evidence import check_evidence

# Okabe & Ito, "Color Universal Design" (2008): eight colours that stay apart for colour-blind readers.
BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
SKY, PURPLE, YELLOW, BLACK = "#56B4E9", "#CC79A7", "#F0E442", "#000000"
SERIES = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
"""Order in which curves, lanes and kernels take their colours (yellow is too pale for lines on white)."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Marker of each series, so that no curve is told apart by colour alone."""

INK, MUTED, FAINT, PAPER = "#1b1f24", "#59616b", "#d9dde2", "#ffffff"
TEXT, SMALL, TITLE = 10.0, 9.0, 12.0
"""Font sizes in points; a picture is shown at 96 pixels an inch, so SMALL is 12 CSS pixels."""
WIDTH = 9.2
"""Width of every picture, inches: 883 CSS pixels, what a JupyterLab cell shows without shrinking it."""
DPI, CSS_DPI = 144, 96
_MARGIN = 0.12

_KIND_COLOURS = {
    "live": GREEN, "recorded": BLUE, "simulated": "#A04300", "arithmetic": MUTED, "published": "#7A3B69",
}  # fmt: skip
_MACHINE_KEYS = tuple(
    "backend interactive toolbar timezone tk. webagg. docstring. date.epoch savefig.directory figure.max_open_warning "
    "figure.hooks".split()
)


@contextmanager
def look() -> Iterator[None]:
    """Draw inside this: matplotlib's own defaults, then the course's settings; undone at the end."""
    # rcParamsDefault's own items() hides nothing and warns about nothing; machine settings stay as they are.
    rc: Any = {k: v for k, v in dict.items(matplotlib.rcParamsDefault) if not k.startswith(_MACHINE_KEYS)}
    rc |= {
        "font.size": TEXT, "axes.titlesize": TEXT, "axes.labelsize": TEXT, "legend.fontsize": SMALL,
        "xtick.labelsize": SMALL, "ytick.labelsize": SMALL, "font.family": "DejaVu Sans",
        "figure.facecolor": PAPER, "axes.facecolor": PAPER, "savefig.facecolor": PAPER,
        "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": MUTED,
        "xtick.color": INK, "ytick.color": INK,
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
        "grid.color": FAINT, "grid.linewidth": 0.7, "lines.linewidth": 1.8, "legend.frameon": False,
        "axes.unicode_minus": True,
    }  # fmt: skip
    with matplotlib.rc_context(rc):
        yield


@functools.cache
def _canvas() -> FigureCanvasAgg:
    return FigureCanvasAgg(Figure(dpi=DPI))


@functools.lru_cache(maxsize=4096)
def text_width(text: str, size: float, weight: str = "normal", family: str = "DejaVu Sans") -> float:
    """Width of one line of `text` in inches, as it will be drawn."""
    font = FontProperties(family=family, size=size, weight=weight)
    width, _, _ = _canvas().get_renderer().get_text_width_height_descent(text, font, False)
    return float(width) / DPI


def wrap(text: str, size: float, width: float, weight: str = "normal") -> list[str]:
    """`text` in lines no wider than `width` inches; a single word that is wider is cut, with an ellipsis."""
    lines: list[str] = []
    for word in text.split():
        while len(word) > 1 and text_width(word, size, weight) > width:
            word = word[:-2] + "…"
        joined = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(joined, size, weight) <= width:
            lines[-1] = joined
        else:
            lines.append(word)
    return lines


def figure(
    height: float,
    *,
    evidence: str,
    title: str = "",
    note: str = "",
    placed: bool = False,
) -> tuple[Figure, float]:
    """A figure with a header: title and note at the left, the evidence badge at the right.

    `height` is the body's, inches; the header's is added. Returns the figure and the header's height. The
    layout engine is constrained and keeps axes out of the header; there is none for pictures that place everything
    themselves (`placed`).
    """
    check_evidence(evidence)
    fig = Figure(figsize=(WIDTH, 1.0), dpi=DPI)
    FigureCanvasAgg(fig)
    badge = text_width(evidence, SMALL, "bold") + 0.2
    room = WIDTH - 2 * _MARGIN
    titles = wrap(title, TITLE, room - badge - 0.25, "bold")
    notes = wrap(note, SMALL, room if titles else room - badge - 0.25)
    header = _MARGIN + max(0.26, 0.24 * len(titles)) + (0.04 + 0.18 * len(notes) if notes else 0) + 0.10
    total = header + height
    fig.set_size_inches(WIDTH, total)

    def put(x: float, y: float, text: str, **style: Any) -> None:
        fig.text(x / WIDTH, 1 - y / total, text, va="center", **style)

    for i, line in enumerate(titles):
        put(_MARGIN, _MARGIN + 0.12 + 0.24 * i, line, fontsize=TITLE, fontweight="bold")
    under = _MARGIN + (0.24 * len(titles) + 0.04 if titles else 0.03)
    for i, line in enumerate(notes):
        put(_MARGIN, under + 0.10 + 0.18 * i, line, fontsize=SMALL, color=MUTED)
    colour = _KIND_COLOURS[evidence.split()[0]]
    put(
        WIDTH - _MARGIN - 0.06, _MARGIN + 0.12, evidence, ha="right", fontsize=SMALL,
        fontweight="bold", color=colour,
        bbox={"boxstyle": "round,pad=0.32", "facecolor": PAPER, "edgecolor": colour, "linewidth": 1.1},
        gid="evidence",
    )  # fmt: skip
    if not placed:
        fig.set_layout_engine("constrained", rect=(0, 0, 1, 1 - header / total), w_pad=0.12, h_pad=0.06)
    return fig, header


def row_names(ax: Axes, names: Iterable[str]) -> None:
    """A row for each name, from 0 on, without ticks and lines."""
    labels = list(names)
    ax.set_yticks(range(len(labels)), labels)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)


_UNITS = ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns"))


def time_unit(seconds: float) -> tuple[float, str]:
    """Factor and name of the unit in which `seconds` reads best: (1e6, "µs") for 12e-6."""
    smallest = _UNITS[-1] if seconds else _UNITS[0]
    return next(((f, u) for f, u in _UNITS if abs(seconds) * f >= 0.9995), smallest)


def inches_axes(fig: Figure) -> Axes:
    """Bare axes over the whole figure in inches, y down, for pictures that place everything themselves."""
    width, height = fig.get_size_inches()
    ax = fig.add_axes((0.0, 0.0, 1.0, 1.0))
    ax.set_axis_off()
    ax.set_xlim(0, width)
    ax.set_ylim(height, 0)
    return ax


def ground(pad: float, colour: str = PAPER) -> dict[str, Any]:
    """`bbox` of a text under which lines or hatching would run; pad: its margin, a share of the font's size."""
    return {"boxstyle": f"square,pad={pad}", "facecolor": colour, "edgecolor": "none"}


def ink(colour: str | tuple[float, float, float]) -> str:
    """What can be read on a bar of this colour: white where its contrast is 3.5 to 1 at least (WCAG 2), else black."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return PAPER if 1.05 / (float(linear @ (0.2126, 0.7152, 0.0722)) + 0.05) >= 3.5 else INK


def blend(low: str, high: str, part: float) -> tuple[float, float, float]:
    """The colour `part` (0…1) of the way from one hex colour to another."""
    a, b = np.array(to_rgb(low)), np.array(to_rgb(high))
    mixed = a + (b - a) * part
    return float(mixed[0]), float(mixed[1]), float(mixed[2])
