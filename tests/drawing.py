"""What tests of pictures ask the renderer: where texts are, and which of them lie over another."""

from __future__ import annotations

import itertools
from typing import Any

from matplotlib.figure import Figure
from matplotlib.text import Text

from helpers.plots import style


def texts_of(figure: Figure) -> list[Text]:
    """What can be read in it. (An axis also keeps labels of ticks beyond its limits, which it does not draw.)"""
    with style.look():
        figure.draw_without_rendering()
    beyond = set()
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        low, high = sorted(axis.get_view_interval())
        beyond |= {tick.label1 for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high}
    found = figure.findobj(Text)
    return [t for t in found if t.get_visible() and t.get_text().strip() and t not in beyond]


def boxes_of(figure: Figure) -> list[tuple[str, Any]]:
    """Each text with the box that the renderer gives it, in pixels."""
    return [(t.get_text(), Text.get_window_extent(t)) for t in texts_of(figure)]


def overlaps(boxes: list[tuple[str, Any]]) -> list[str]:
    """Which texts lie over another, and by how much; a row of pixels does not count."""
    found = []
    for (one, a), (two, b) in itertools.combinations(boxes, 2):
        wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        if wide > 1 and high > 2:
            found.append(f"{one!r} lies over {two!r} by {wide:.0f} × {high:.0f} pixels")
    return found
