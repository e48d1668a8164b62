"""The storage as a row of numbered cells, and a tensor as the path in which its elements are visited."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from helpers.plots import key as keys
from helpers.plots import style
from helpers.plots.marks import Labels, marked
from helpers.plots.picture import Picture, drawn
from helpers.plots.strip import LEFT, STEP_COLOURS, UNVISITED, Line, Strip, fill_of, frame_of
from helpers.plots.walk import Walk, walks

if TYPE_CHECKING:
    import torch

_GAP = 0.16  # inches between the pieces of a caption


@drawn
def storage_path(
    views: torch.Tensor | Mapping[str, torch.Tensor | Callable[[torch.Tensor], torch.Tensor]] | Sequence[str],
    base: torch.Tensor | None = None, evidence: str = "live (CPU)", title: str = "", *,
    labels: Labels | None = None, colour_by: int | None = None,
) -> Picture:  # fmt: skip
    """The storage as a row of numbered cells; each of `views` as the path in which its elements are visited.

    `views` is a tensor; or a dict of name → tensor, or name → function of `base`; or a list of expressions
    in `x`, where x is `base`. With `base` each strip says "view" or "copy". An expression (or function)
    that copies is drawn over the cells of base's storage that it reads, in the order of the copy: "reads x
    in steps …", and of the result only shape and stride are said. A *tensor* that is a copy can only be drawn in its
    own storage.

    `labels` stand in the cells: a function of an element's index (`lambda n, c, h, w: …`, as many arguments as
    the result has dimensions). `colour_by` is the dimension whose index colours the cells, in place of the shade.

    Forward steps arch above the cells, backward steps below, one colour for each step length; the first
    cell is framed, fill darkens from first to last visit, grey cells are not visited, ×n counts repeated
    visits. At most 64 cells (of a larger storage, the part that is visited): else ValueError.
    """
    walked = [marked(walk, labels, colour_by) for walk in walks(views, base)]
    if not title and len(walked) > 1:
        same = base is not None and not any(walk.owns for walk in walked)
        title = "Different walks through the same storage" if same else "Walks through their storage"
    return paths(walked, evidence=evidence, title=title or "The walk through the storage")


def paths(walked: Sequence[Walk], *, evidence: str, title: str) -> Picture:
    """The picture of walks that are computed already: one strip each, from the top down."""
    strips = [Strip(walk, _flow(_caption(walk))) for walk in walked]
    key = keys.lines(entries_of(walked), LEFT)
    under = keys.height(key) + (0.06 if key else 0.0)
    body = under + sum(strip.height for strip in strips) + 0.2 * (len(strips) - 1) + 0.08
    fig, header = style.figure(body, evidence=evidence, title=title, placed=True)
    ax = style.inches_axes(fig)
    keys.draw(fig, key, header - 0.04)
    top = header + under
    for i, strip in enumerate(strips):
        if i:
            ax.plot([LEFT, style.WIDTH - LEFT], [top + 0.08] * 2, color=style.FAINT, linewidth=0.8)
            top += 0.2
        strip.draw(ax, top)
        top += strip.height
    return Picture(fig, evidence, f"{title}. {'; '.join(walk.describe() for walk in walked)}")


def entries_of(walked: Sequence[Walk]) -> list[keys.Entry]:
    """What the picture of these walks has to explain, and nothing that it does not show."""
    drawn = [walk for walk in walked if walk.cells]
    entries: list[keys.Entry] = []
    plain = [walk for walk in drawn if not walk.groups]
    for owns, words in ((False, "stronger: visited later"), (True, "the same, in the copy's own storage")):
        of_kind = [walk for walk in plain if walk.owns == owns]
        if any(len(walk.counts) > 1 for walk in of_kind):
            entries.append(([fill_of(of_kind[0], part=k / 4) for k in range(5)], words))
    groups = {g: fill_of(walk, group=g) for walk in drawn for g in sorted(set(walk.groups.values()))}
    if groups:
        dims = sorted({walk.dimension for walk in drawn if walk.dimension is not None})
        words = f"index in dimension {' or '.join(map(str, dims))}: {', '.join(map(str, sorted(groups)))}"
        entries.append(([groups[g] for g in sorted(groups)], words))
    if any(len(walk.counts) < walk.size for walk in drawn):
        entries.append(([UNVISITED], "not visited"))
    if any(max(walk.counts.values()) > 1 for walk in drawn):
        entries.append(([], "×n: visited n times"))
    if any(walk.labels for walk in drawn):
        entries.append(([], "small figure: number of the cell"))
    return entries


def signed(step: int) -> str:
    """A step with its sign, a true minus: "+6", "−17", "0"."""
    return f"{'+' if step > 0 else '−' if step else ''}{abs(step)}"


def _caption(walk: Walk) -> list[tuple[str, dict[str, Any]]]:
    """Caption of a strip as pieces (text, look) that are kept whole when the line is broken."""
    small: dict[str, Any] = {"fontsize": style.SMALL, "color": style.MUTED}
    bold: dict[str, Any] = {"fontsize": style.SMALL, "fontweight": "bold"}
    copied = bold | {"color": style.VERMILLION}
    layout = f"shape {walk.shape}   stride {walk.stride}"
    pieces: list[tuple[str, dict[str, Any]]] = []
    if walk.name:
        code = {"fontsize": style.TEXT, "fontweight": "bold", "family": "DejaVu Sans Mono"}
        pieces.append((walk.name, code))
    if walk.kind:
        pieces.append((walk.kind, copied | ({"color": style.GREEN} if walk.kind == "view" else {})))
    if walk.owns:
        pieces.append(("its own storage", copied))
    if not (walk.reads and walk.cells):
        pieces.append((f"{layout}   offset {walk.offset}", small))
    if not walk.cells:
        return [*pieces, ("no elements: nothing is visited", small)]
    steps = list(walk.steps.items())
    if walk.reads:
        pieces.append((f"reads {walk.reads} in steps" if steps else f"reads one cell of {walk.reads}", small))
    elif steps:
        pieces.append(("steps", small))
    ranks = {step: i for i, step in enumerate(step for step, _ in steps if step)}
    for step, n in steps[:4]:
        colour = style.INK if step == 0 else (*STEP_COLOURS, style.MUTED)[min(ranks[step], 3)]
        pieces.append((f"{signed(step)} ×{n}", bold | {"color": colour}))
    if len(steps) > 4:
        pieces.append((f"others ×{sum(n for _, n in steps[4:])}", small))
    if steps:
        pieces.append(("flat: no single stride" if len(steps) > 1 else "flat: one stride", small))
    frame = frame_of(walk)
    if frame.last - frame.first < walk.size:
        pieces.append((f"cells {frame.first}–{frame.last - 1} of {walk.size:,}", small))
    if walk.reads:
        pieces.append((f"result: own storage, shape {walk.shape}, stride {walk.stride}", small))
    return pieces


def _flow(pieces: list[tuple[str, dict[str, Any]]]) -> list[Line]:
    """Pieces laid on lines no wider than the picture: for each line its (x in inches, text, look)."""
    lines: list[Line] = [[]]
    x = LEFT
    for text, look in pieces:
        family, weight = look.get("family", "DejaVu Sans"), look.get("fontweight", "normal")

        def wide(text: str) -> float:
            return style.text_width(text, look["fontsize"], weight, family)  # noqa: B023

        while wide(text) > style.WIDTH - 2 * LEFT:
            text = text[: int(len(text) * 0.95) - 1] + "…"
        width = wide(text)
        if lines[-1] and x + width > style.WIDTH - LEFT:
            lines.append([])
            x = LEFT
        lines[-1].append((x, text, look))
        x += width + _GAP
    return lines
