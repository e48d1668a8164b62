"""The picture of the graph that backward will walk, from the result down to the leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path

from helpers.lessons.operators_and_autograd.backward import Node, nodes_of, saved_bytes
from helpers.lessons.operators_and_autograd.layered import arrange
from helpers.plots import style
from helpers.plots.picture import Picture, drawn

if TYPE_CHECKING:
    import torch

_LEFT, _HIGH, _DOWN = 0.2, 0.19, 0.36
_TROUBLE = {"freed": "freed: backward has run", "changed in place": "changed in place: backward raises"}


def _lines(nodes: list[Node]) -> list[list[str]]:
    """The small lines in each node's box: what it saves, and which of that is not new."""
    leaves = {node.key: node for node in nodes if node.leaf}
    seen: dict[int, str] = {}
    out = []
    for node in nodes:
        lines = []
        for saved in node.saved:
            if saved.number:
                lines.append(f"{saved.name}: the number {saved.number}")
                continue
            leaf = leaves.get(saved.key)
            name = f"{leaf.label.split('  ')[0]}, " if leaf else ""
            if leaf and leaf.parameter:
                lines.append(f"{saved.name}: {name}a parameter")
            elif saved.key in seen:
                lines.append(f"{saved.name}: {name}same storage")
            else:
                lines.append(f"{saved.name}: {name}{saved.nbytes:,} B")
            seen[saved.key] = node.label
        lines = [*lines[:3], f"and {len(lines) - 3} more"] if len(lines) > 4 else lines
        if node.trouble:
            lines.append(_TROUBLE[node.trouble])
        out.append(["accumulates .grad"] if node.leaf else lines)
    return out


@drawn
def autograd_graph(
    tensor: torch.Tensor, evidence: str = "live (CPU)", *, names: Mapping[str, torch.Tensor] | None = None,
    title: str = "What backward will walk",
) -> Picture:  # fmt: skip
    """The graph behind `tensor`, from its own grad_fn down to the leaves, with the bytes saved on the way.

    `names`: name → leaf tensor, for readable leaves. Bytes are of whole storages, each counted once and
    parameters not at all, as `helpers.count` counts `saved_bytes`; a Python number is shown and costs none. What was saved cannot be read after
    backward has freed it, nor what was changed in place: the node says so. ValueError for a tensor without
    grad_fn, or over 40 nodes.
    """
    nodes = nodes_of(tensor, names)
    lines = _lines(nodes)
    note = f"{len(nodes)} nodes · kept alive until backward: {saved_bytes(nodes):,} bytes"
    if any(node.trouble for node in nodes):
        note = f"{len(nodes)} nodes · what some of them saved can no longer be read"
    widths = []
    for node, small in zip(nodes, lines, strict=True):
        bold = style.text_width(node.label, style.SMALL, "bold")
        widths.append(max([bold, *(style.text_width(line, 8.5) for line in small)]) + 0.24)
    plan = arrange(widths, nodes, style.WIDTH - 2 * _LEFT)
    row, centre = plan.row, plan.centre
    tall = [0.14 + _HIGH * (1 + len(small)) for small in lines]
    deep = [max(tall[i] for i in range(len(nodes)) if row[i] == r) for r in range(max(row) + 1)]
    body, width = sum(deep) + _DOWN * (len(deep) - 1) + 0.2, plan.width + 2 * _LEFT
    fig, header = style.figure(body, evidence=evidence, title=title, note=note, width=width, placed=True)
    ax = style.inches_axes(fig)
    top = [header + 0.04 + sum(deep[:r]) + _DOWN * r for r in range(len(deep))]
    for i, node in enumerate(nodes):
        apart = min(0.16, 0.8 * widths[i] / max(len(node.following) - 1, 1))
        # Arrows leave in the order in which they arrive, so that they do not cross under the box.
        for k, j in enumerate(sorted(node.following, key=lambda j: (plan.across[i, j] or [centre[j]])[0])):  # noqa: B023
            aside = k - (len(node.following) - 1) / 2
            x = _LEFT + centre[i] + apart * aside
            points = [(x, top[row[i]] + tall[i])]
            for r, middle in enumerate(plan.across[i, j], row[i] + 1):
                points += [(_LEFT + middle, top[r] - 0.04), (_LEFT + middle, top[r] + deep[r] + 0.04)]
            _edge(ax, [*points, (_LEFT + centre[j] + 0.05 * aside, top[row[j]])])
    for i, node in enumerate(nodes):
        _draw(ax, _LEFT + centre[i], top[row[i]], widths[i], tall[i], node, lines[i])
    return Picture(fig, evidence, f"{title}: {', '.join(node.label for node in nodes)}. {note}")


def _edge(ax: Axes, points: list[tuple[float, float]]) -> None:
    look: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 9, "shrinkA": 0, "shrinkB": 0}
    arrow = FancyArrowPatch(path=Path(points), joinstyle="round", edgecolor=style.MUTED, **look)
    arrow.set(facecolor="none" if len(points) > 2 else style.MUTED, linewidth=1.1, zorder=1)
    ax.add_patch(arrow)


def _draw(ax: Axes, x: float, y: float, wide: float, tall: float, node: Node, lines: list[str]) -> None:
    keeps = any(not saved.number for saved in node.saved)
    colour = style.GREEN if node.leaf else style.BLUE if keeps else style.MUTED
    fill = "#e6f5f0" if node.leaf else "#e8f2f9" if keeps else "#f4f5f6"
    shape = f"round,pad=0,rounding_size={0.14 if node.leaf else 0.04}"
    box = FancyBboxPatch((x - wide / 2, y), wide, tall, boxstyle=shape, facecolor=fill, edgecolor=colour)
    box.set(linewidth=1.3, zorder=2)
    ax.add_patch(box)
    for i, line in enumerate([node.label, *lines]):
        size, weight = (style.SMALL, "bold") if i == 0 else (8.5, "normal")
        colour = style.INK if i == 0 or not line.endswith((" run", "raises")) else style.VERMILLION
        look: dict[str, Any] = {"fontsize": size, "fontweight": weight, "color": colour, "zorder": 3}
        ax.text(x, y + 0.07 + _HIGH * (i + 0.5), line, ha="center", va="center", **look)
