"""The storage as a row of numbered cells, and a tensor as the path in which its elements are visited."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from . import style
from .picture import Picture, drawn
from .strip import LEFT, STEP_COLOURS, Line, Strip, frame_of
from .walk import Walk, walks

if TYPE_CHECKING:
    import torch

_GAP = 0.16  # inches between the pieces of a caption


@drawn
def storage_path(
    views: torch.Tensor | Mapping[str, torch.Tensor | Callable[[torch.Tensor], torch.Tensor]] | Sequence[str],
    base: torch.Tensor | None = None,
    evidence: str = "live (CPU)",
    title: str = "",
) -> Picture:
    """The storage as a row of numbered cells; each of `views` as the path in which its elements are visited.

    `views` is a tensor; or a dict of name → tensor, or name → function of `base`; or a list of expressions
    in `x`, where x is `base`. With `base` each strip says "view" or "copy". An expression that copies is
    drawn over the cells of base's storage it reads, in the order of the copy; a *tensor* that is a copy
    over its own storage.

    Forward steps arch above the cells, backward steps below, one colour for each step length; the first
    cell is framed, fill darkens from first to last visit, grey cells are not visited, ×n counts repeated
    visits. At most 64 cells (of a larger storage, the part that is visited): else ValueError.
    """
    found = walks(views, base)
    if not title and len(found) > 1:
        title = (
            "Different walks through the same storage" if base is not None else "Walks through their storage"
        )
    return paths(found, evidence=evidence, title=title or "The walk through the storage")


def paths(found: Sequence[Walk], *, evidence: str, title: str) -> Picture:
    """The picture of walks that are computed already: one strip each, from the top down."""
    scratch, _ = style.figure(1.0, evidence=evidence, title=title)
    strips = [Strip(walk, _flow(scratch, _caption(walk))) for walk in found]
    body = sum(strip.height for strip in strips) + 0.2 * (len(strips) - 1) + 0.08
    fig, header = style.figure(body, evidence=evidence, title=title)
    fig.set_layout_engine("none")
    ax = style.inches_axes(fig)
    top = header
    for i, strip in enumerate(strips):
        if i:
            ax.plot([LEFT, style.WIDTH - LEFT], [top + 0.08] * 2, color=style.FAINT, linewidth=0.8)
            top += 0.2
        strip.draw(ax, top)
        top += strip.height
    return Picture(fig, evidence, f"{title}. {'; '.join(walk.describe() for walk in found)}")


def signed(step: int) -> str:
    """A step with its sign, a true minus: "+6", "−17", "0"."""
    return f"{'+' if step > 0 else '−' if step else ''}{abs(step)}"


def _caption(walk: Walk) -> list[tuple[str, dict[str, Any]]]:
    """Caption of a strip as pieces (text, look) that are kept whole when the line is broken."""
    small: dict[str, Any] = {"fontsize": style.SMALL, "color": style.MUTED}
    pieces: list[tuple[str, dict[str, Any]]] = []
    if walk.name:
        pieces.append(
            (walk.name, {"fontsize": style.TEXT, "fontweight": "bold", "family": "DejaVu Sans Mono"})
        )
    if walk.kind:
        colour = style.GREEN if walk.kind == "view" else style.VERMILLION
        pieces.append((walk.kind, {"fontsize": style.SMALL, "fontweight": "bold", "color": colour}))
    pieces.append((f"shape {walk.shape}   stride {walk.stride}   offset {walk.offset}", small))
    if not walk.cells:
        return [*pieces, ("no elements: nothing is visited", small)]
    steps = list(walk.steps.items())
    if steps:
        pieces.append(("steps", small))
    ranks = {step: i for i, step in enumerate(step for step, _ in steps if step)}
    for step, n in steps[:4]:
        colour = style.INK if step == 0 else (*STEP_COLOURS, style.MUTED)[min(ranks[step], 3)]
        pieces.append(
            (f"{signed(step)} ×{n}", {"fontsize": style.SMALL, "fontweight": "bold", "color": colour})
        )
    if len(steps) > 4:
        pieces.append((f"others ×{sum(n for _, n in steps[4:])}", small))
    if steps:
        pieces.append(("flat: no single stride" if len(steps) > 1 else "flat: one stride", small))
    frame = frame_of(walk)
    if frame.last - frame.first < walk.size:
        pieces.append((f"cells {frame.first}–{frame.last - 1} of {walk.size:,}", small))
    return pieces


def _flow(figure: Figure, pieces: list[tuple[str, dict[str, Any]]]) -> list[Line]:
    """Pieces laid on lines no wider than the picture: for each line its (x in inches, text, look)."""
    lines: list[Line] = [[]]
    x = LEFT
    for text, look in pieces:
        family, weight = look.get("family", "DejaVu Sans"), look.get("fontweight", "normal")

        def wide(text: str) -> float:
            return style.text_width(figure, text, look["fontsize"], weight, family)  # noqa: B023

        while wide(text) > style.WIDTH - 2 * LEFT:
            text = text[: int(len(text) * 0.95) - 1] + "…"
        width = wide(text)
        if lines[-1] and x + width > style.WIDTH - LEFT:
            lines.append([])
            x = LEFT
        lines[-1].append((x, text, look))
        x += width + _GAP
    return lines
