"""A finished picture: PNG bytes that are the same every time, shown once by the cell that ends in it."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from . import style

#: colours are rounded to steps of this many levels of 255: nobody sees it, and it takes a third off a committed PNG
STEP = 8

P = ParamSpec("P")


class Picture:
    """A finished picture: a cell that ends in one shows it exactly once.

    `figure` is the matplotlib Figure, `evidence` its label, `alt` one sentence for those who cannot see it.
    """

    def __init__(self, figure: Figure, evidence: str, alt: str) -> None:
        self.figure, self.evidence, self.alt = figure, evidence, alt
        self._png: bytes | None = None

    def png(self) -> bytes:
        """The picture as PNG bytes; the same bytes every time in one environment."""
        if self._png is None:
            self._png = self._draw_png()
        return self._png

    def save(self, path: str | Path) -> Path:
        """Write it as .png. ValueError for another suffix."""
        path = Path(path)
        if path.suffix != ".png":
            raise ValueError(f"a picture is saved as .png, not as {path.suffix or 'a name with no suffix'!r}")
        path.write_bytes(self.png())
        return path

    def _draw_png(self) -> bytes:
        from PIL import Image
        from PIL.PngImagePlugin import PngInfo

        canvas = self.figure.canvas
        assert isinstance(canvas, FigureCanvasAgg)
        with style.look():
            canvas.draw()
        levels = np.asarray(canvas.buffer_rgba())[:, :, :3].astype(int)
        image = Image.fromarray(((levels + STEP // 2) // STEP * STEP).clip(0, 255).astype(np.uint8))
        about = PngInfo()  # no date and no library version: what it shows, and where that came from
        about.add_itxt("Description", f"{self.alt} [{self.evidence}]")
        buffer = io.BytesIO()
        image.save(buffer, "png", optimize=True, pnginfo=about, dpi=(style.DPI, style.DPI))
        return buffer.getvalue()

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
        width, height = (round(inches * style.CSS_DPI) for inches in self.figure.get_size_inches())
        return self.png(), {"width": width, "height": height, "alt": self.alt}

    def __repr__(self) -> str:
        return f"[picture, {self.evidence}] {self.alt}"


def drawn(draw: Callable[P, Picture]) -> Callable[P, Picture]:
    """Decorator of every picture function: it draws inside `look()`."""

    @functools.wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> Picture:
        with style.look():
            return draw(*args, **kwargs)

    return inside


def message(text: str, *, evidence: str, title: str = "") -> Picture:
    """A picture that only says something: used where nothing can be drawn."""
    with style.look():
        fig, header = style.figure(0.9, evidence=evidence, title=title)
        lines = style.wrap(text, style.TEXT, style.WIDTH - 1.2)
        fig.text(0.5, 0.45 / (0.9 + header), "\n".join(lines), ha="center", va="center", fontsize=style.TEXT)
        return Picture(fig, evidence, f"{title}: {text}" if title else text)
