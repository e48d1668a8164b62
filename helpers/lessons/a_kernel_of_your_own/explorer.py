"""The loads-and-stores explorer: a product in tiles, what one program loads and stores, and what all of them do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from helpers.plots import style
from helpers.plots.picture import Picture, drawn
from helpers.widgets.movable import Explorer

EVIDENCE = "arithmetic"
SIDES = (16, 24, 40, 64, 100)
TILES = (1, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Tiling:
    """c = a @ b in tiles: a (m, k), b (k, n); rows, columns: of a tile of c; program: the one that is shown."""

    m: int
    k: int
    n: int
    rows: int
    columns: int
    program: int

    @property
    def down(self) -> int:
        return -(-self.m // self.rows)

    @property
    def across(self) -> int:
        return -(-self.n // self.columns)

    @property
    def programs(self) -> int:
        return self.down * self.across

    @property
    def at(self) -> tuple[int, int]:
        """Row and column of the shown program's tile, in tiles; the last program where there are fewer."""
        return divmod(min(self.program, self.programs - 1), self.across)

    @property
    def loads(self) -> int:
        return self.m * self.k * self.across + self.k * self.n * self.down

    @property
    def stores(self) -> int:
        return self.m * self.n

    @property
    def masked(self) -> int:
        """Lanes of all tiles of c that lie outside of c."""
        return self.programs * self.rows * self.columns - self.stores

    @property
    def facts(self) -> str:
        return (
            f"{self.programs} programs · load a {self.across} × and b {self.down} ×: {self.loads:,} elements · store "
            f"{self.stores:,} · {self.masked:,} lanes masked at the store · {2 * self.m * self.k * self.n / self.loads:.1f} FLOPs for each element loaded"
        )


@drawn
def tiling_picture(t: Tiling) -> Picture:
    """The three matrices to one scale: the shown program's band of a, its band of b, its tile of c."""
    i, j = t.at
    program = i * t.across + j
    title = f"Program {program} of {t.programs}: what it loads of a and b, and stores of c"
    note = "Dark: this program. Below: how often all programs together load or store each element. Hatched: lanes that the mask switches off."
    scale = 2.6 / max(t.m, t.k, t.down * t.rows, (t.k + t.n + t.across * t.columns) / 2.9)
    high = max(t.m, t.k, t.down * t.rows) * scale
    fig, header = style.figure(high + 0.62, evidence=EVIDENCE, title=title, note=note, placed=True)
    ax = style.inches_axes(fig)
    wide = [t.k, t.n, t.across * t.columns]
    gap = (style.WIDTH - sum(wide) * scale) / 4
    lefts = [gap, 2 * gap + wide[0] * scale, 3 * gap + (wide[0] + wide[1]) * scale]
    top = header + 0.3
    rows = (i * t.rows, min(t.rows, t.m - i * t.rows))
    columns = (j * t.columns, min(t.columns, t.n - j * t.columns))
    whole_k = (0, t.k)
    _matrix(ax, lefts[0], top, scale, (t.m, t.k), rows, whole_k, f"a, {t.m} × {t.k}", f"loaded {t.across} ×")
    _matrix(ax, lefts[1], top, scale, (t.k, t.n), whole_k, columns, f"b, {t.k} × {t.n}", f"loaded {t.down} ×")
    _matrix(ax, lefts[2], top, scale, (t.m, t.n), rows, columns, f"c, {t.m} × {t.n}", "stored once", t)
    return Picture(fig, EVIDENCE, f"{title}. {t.facts}")


def _matrix(
    ax: Axes, left: float, top: float, scale: float, shape: tuple[int, int], rows: Sequence[int], columns: Sequence[int],
    name: str, how_often: str, tiles: Tiling | None = None,
) -> None:  # fmt: skip
    """A matrix as a rectangle, the part of the shown program in it, and of c the grid of tiles."""
    high, wide = shape
    if tiles is not None:
        over = (tiles.across * tiles.columns, tiles.down * tiles.rows)
        look: dict[str, Any] = {
            "facecolor": style.PAPER,
            "edgecolor": style.MUTED,
            "hatch": "////",
            "linewidth": 0.6,
        }
        ax.add_patch(Rectangle((left, top), over[0] * scale, over[1] * scale, **look))
    ax.add_patch(
        Rectangle(
            (left, top), wide * scale, high * scale, facecolor="#dcebf5", edgecolor=style.INK, linewidth=1.0
        )
    )
    part = (left + columns[0] * scale, top + rows[0] * scale), columns[1] * scale, rows[1] * scale
    ax.add_patch(Rectangle(*part, facecolor=style.BLUE, edgecolor="none"))
    if tiles is not None and tiles.programs <= 1024:
        for row in range(tiles.down + 1):
            y = top + row * tiles.rows * scale
            ax.plot([left, left + over[0] * scale], [y, y], color=style.MUTED, linewidth=0.6)
        for column in range(tiles.across + 1):
            x = left + column * tiles.columns * scale
            ax.plot([x, x], [top, top + over[1] * scale], color=style.MUTED, linewidth=0.6)
    ax.text(left, top - 0.13, name, fontsize=style.SMALL, va="center")
    below = top + (tiles.down * tiles.rows if tiles is not None else high) * scale + 0.16
    ax.text(left, below, how_often, fontsize=style.SMALL, va="center")


class TrafficExplorer(Explorer):
    """Controls for a product in tiles; a widget if live, else a picture. `settings`: the fields of :class:`Tiling`."""

    kind = "loads-and-stores explorer"

    tiling: Tiling

    def _compute(self) -> None:
        self.tiling = Tiling(**self.settings)

    def static(self) -> Picture:
        return tiling_picture(self.tiling)

    def _build(self, ipywidgets: Any) -> None:
        slider = ipywidgets.SelectionSlider
        for name, label, options in (
            ("m", "m (rows of a)", SIDES), ("k", "k (inner)", SIDES), ("n", "n (columns of b)", SIDES),
            ("rows", "rows of a tile", TILES), ("columns", "columns of a tile", TILES),
        ):  # fmt: skip
            self._control(slider, name, label, self.settings[name], options=[(str(o), o) for o in options])
        self._control(ipywidgets.IntSlider, "program", "program", self.settings["program"], min=0, max=63)
        self._stack([list(self.controls.values())])

    def _told(self) -> tuple[str, str]:
        return EVIDENCE, self.tiling.facts


def traffic_explorer(
    m: int = 40, k: int = 24, n: int = 64, rows: int = 16, columns: int = 16, program: int = 5
) -> TrafficExplorer:
    """A movable product in tiles: its sides, a tile's rows and columns, and the program that is shown."""
    return TrafficExplorer(m=m, k=k, n=n, rows=rows, columns=columns, program=program)
