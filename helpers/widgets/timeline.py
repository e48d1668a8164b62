"""Timeline zoom: a slider and buttons over the window of a trace, and what happened in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from helpers.plots.picture import Picture
from helpers.text.seconds import approx, format_seconds
from helpers.trace import Trace, idle, read

from .movable import Movable

SHORTEST_NS = 1_000
"""Closer than this there is nothing: no kernel is much shorter than a microsecond."""


class TimelineZoom(Movable):
    """A window of a trace that can be moved: a widget if live, else a picture of the window.

    `window_s`: start and end of what is shown, seconds; `set` changes it; `static()` is the picture; `widget`
    the ipywidgets box (None without ipywidgets).
    """

    kind = "timeline zoom"

    def __init__(self, trace: Trace, start_s: float, end_s: float) -> None:
        super().__init__()
        self.trace = trace
        self._whole = int(trace.end_ns.max())
        self._begin, self._end = 0, self._whole
        self.slider: Any = None
        self.set(start_s, end_s)

    @property
    def window_s(self) -> tuple[float, float]:
        return self._begin / 1e9, self._end / 1e9

    @property
    def facts(self) -> str:
        """What the window shows, in one line."""
        from helpers.plots.gantt import moment

        begin, end = self.window_s
        about = approx(self.trace.evidence)
        text = f"{about}{format_seconds(end - begin)}"
        if self._begin:
            text += f" from {about}{moment(self._begin / 1e9, (self._end - self._begin) / 1e9)}"
        if not self.trace.has_gpu:
            return f"{text} · no GPU work"
        gaps = idle(self.trace, begin, end)
        causes = ", ".join(f"{cause} {about}{s / gaps.span:.0%}" for cause, s in gaps.seconds.items())
        text += f" · GPU computes {about}{gaps.busy:.0%}"
        return text + (f" · idle: {causes}" if causes else "")

    def static(self) -> Picture:
        """The picture of the present window."""
        from helpers.plots import zoom

        return zoom(self.trace, *self.window_s)

    def set(self, start_s: float, end_s: float) -> None:
        """Show this window, moved into the trace and made at least a microsecond long."""
        length = int(np.clip(round((end_s - start_s) * 1e9), min(SHORTEST_NS, self._whole), self._whole))
        self._begin = int(np.clip(round(start_s * 1e9), 0, self._whole - length))
        self._end = self._begin + length
        if self._widget is not None:
            with self._following():
                self.slider.value = self._shown()
            self._draw()

    def scale(self, factor: float) -> None:
        """Show `factor` times as long a window around the same middle."""
        middle, half = (self._begin + self._end) / 2e9, (self._end - self._begin) / 2e9
        self.set(middle - half * factor, middle + half * factor)

    def pan(self, windows: float) -> None:
        """Move on by so many windows; back if negative."""
        step = (self._end - self._begin) / 1e9 * windows
        begin = float(np.clip(self._begin / 1e9 + step, 0, (self._whole - self._end + self._begin) / 1e9))
        self.set(begin, begin + (self._end - self._begin) / 1e9)

    def gap(self) -> None:
        """Show the next large gap: of the ten largest, the first that begins after the window's middle."""
        if not self.trace.has_gpu:
            return
        gaps = idle(self.trace)
        number, first = np.unique(gaps.gap, return_index=True)
        if not len(number):
            return
        last = np.concatenate((first[1:], [len(gaps.gap)])) - 1
        begin, end = gaps.start_ns[first], gaps.end_ns[last]
        largest = np.sort(np.argsort(begin - end, kind="stable")[:10])
        after = largest[begin[largest] > (self._begin + self._end) / 2]
        i = after[0] if len(after) else largest[0]
        length = int(end[i] - begin[i])
        self.set((begin[i] - length) / 1e9, (end[i] + length) / 1e9)

    def _build(self, ipywidgets: Any) -> None:
        whole = self._whole / 1e9
        actions: dict[str, tuple[str, Callable[[], None]]] = {
            "◀": ("earlier", lambda: self.pan(-0.5)),
            "▶": ("later", lambda: self.pan(0.5)),
            "zoom in": ("half as long", lambda: self.scale(0.5)),
            "zoom out": ("twice as long", lambda: self.scale(2.0)),
            "next gap": ("the next of the ten largest gaps in which the GPU computes nothing", self.gap),
            "whole trace": ("from the first event to the last", lambda: self.set(0.0, whole)),
        }
        for name, (tip, action) in actions.items():
            self._button(name, action, tip)
        self.buttons["next gap"].disabled = not self.trace.has_gpu
        self.slider = ipywidgets.FloatRangeSlider(
            value=self._shown(), min=0.0, max=self._whole / 1e6, step=max(self._whole / 1e6 / 2000, 1e-3),
            description="window, ms", readout_format=".3f", continuous_update=False,
            layout=self._fit(),
        )  # fmt: skip
        self.slider.observe(self._moved, names="value")
        self._stack([list(self.buttons.values()), [self.slider]])

    def _shown(self) -> tuple[float, float]:
        return self._begin / 1e6, self._end / 1e6

    def _moved(self, change: Any) -> None:
        if not self._busy:
            begin, end = self.slider.value
            self.set(begin / 1e3, end / 1e3)

    def _told(self) -> tuple[str, str]:
        return self.trace.evidence, self.facts


def timeline_zoom(source: Any, start_s: float | None = None, end_s: float | None = None) -> TimelineZoom:
    """A movable close-up of a trace: host threads, calls, streams and idle time in a window.

    `source`: a Trace, or what `trace.read` takes. start_s, end_s: where it starts, seconds (None: the trace's
    ends). ValueError for an empty window.
    """
    t = read(source)
    begin, end = 0.0 if start_s is None else start_s, t.span_s if end_s is None else end_s
    if not begin < end:
        raise ValueError(f"timeline_zoom: the window from {begin} s to {end} s is empty")
    return TimelineZoom(t, begin, end)
