"""The graph that backward will walk: its nodes, what each of them keeps, and a picture with a row for each node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.patches import FancyArrowPatch

from helpers.plots import style
from helpers.plots.picture import Picture, drawn
from helpers.pytorch.tensors import tensors

MAX_NODES = 40
_ROW, _DOTS, _NAMES, _KEPT = 0.34, 1.2, 1.5, 3.7  # inches: a row's height, and where its three parts begin
_TROUBLE = {"freed": "freed: backward has run", "changed in place": "changed in place: backward raises"}


@dataclass(frozen=True)
class Node:
    """One node of the backward graph.

    leaf: the tensor whose .grad it fills, if it is a leaf's. saved: (name, tensor) of what it keeps. trouble: "", or
    why that cannot be read, "freed" or "changed in place". following: indexes of the nodes that it hands gradients to.
    """

    label: str
    leaf: torch.Tensor | None
    saved: list[tuple[str, torch.Tensor]]
    trouble: str
    following: list[int]


def graph_of(tensor: torch.Tensor) -> dict[Any, list[Any]]:
    """node → the nodes that it hands gradients to, from the result to the leaves, which have none."""
    graph: dict[Any, list[Any]] = {}
    waiting: list[Any] = [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node not in graph:
            graph[node] = [following for following, _ in node.next_functions if following]
            waiting += graph[node]
    return graph


def nodes_of(tensor: torch.Tensor, names: Mapping[str, torch.Tensor] | None = None) -> list[Node]:
    """Nodes of the graph behind `tensor`, its own first; each stands before those that it hands gradients to.

    `names` gives leaves their names. ValueError if the tensor has no graph, or one of more than 40 nodes.
    """
    if tensor.grad_fn is None:
        why = "it is a leaf" if tensor.requires_grad else "nothing behind it asked for a gradient"
        raise ValueError(f"this tensor has no grad_fn: {why}, so backward has nothing to walk")
    graph = graph_of(tensor)
    if len(graph) > MAX_NODES:
        raise ValueError(f"this graph has over {MAX_NODES} nodes: draw one layer, or a smaller expression")
    order: list[Any] = []

    def visit(function: Any) -> None:  # depth first, so that a chain of nodes stays together
        for following in reversed(graph[function]):
            if following not in order:
                visit(following)
        order.append(function)

    visit(tensor.grad_fn)
    order.reverse()
    known = {_storage(t): name for name, t in (names or {}).items()}
    nodes = []
    for function in order:
        leaf = getattr(function, "variable", None)
        saved, trouble = _saved(function)
        label = function.name().rpartition("::")[2]
        if leaf is not None:
            label = f"{known.get(_storage(leaf), 'leaf')}  {tuple(leaf.shape)}"
        following = [order.index(node) for node in dict.fromkeys(graph[function])]
        nodes.append(Node(label, leaf, saved, trouble, following))
    return nodes


def _saved(function: Any) -> tuple[list[tuple[str, torch.Tensor]], str]:
    """What a node saved, by name; and "" or why it cannot be read: "freed" or "changed in place"."""
    saved: list[tuple[str, torch.Tensor]] = []
    names = ["saved_tensors"] if hasattr(type(function), "saved_tensors") else []
    for name in [*names, *(n for n in dir(function) if n.startswith("_saved_"))]:
        try:
            value = getattr(function, name)
        except RuntimeError as error:
            return saved, "changed in place" if "inplace" in str(error) else "freed"
        short = "saved" if name == "saved_tensors" else name.removeprefix("_saved_")
        saved += [(short, t) for t in tensors(value)]
    return saved, ""


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def saved_bytes(nodes: list[Node]) -> int:
    """Bytes kept for backward, nearly as `helpers.count` counts them: each storage once, parameters and numbers not."""
    parameters = {_storage(n.leaf) for n in nodes if isinstance(n.leaf, torch.nn.Parameter)}
    kept = {_storage(t): t.untyped_storage().nbytes() for n in nodes for _, t in n.saved if t.dim()}
    return sum(nbytes for storage, nbytes in kept.items() if storage not in parameters)


def _kept(nodes: list[Node]) -> list[str]:
    """The words beside each node: what it keeps, and which of that another node keeps too."""
    leaves = {_storage(node.leaf): node.label.split("  ")[0] for node in nodes if node.leaf is not None}
    seen: set[int] = set()
    words = []
    for node in nodes:
        parts = []
        for name, saved in node.saved:
            storage = _storage(saved)
            size = f"{saved.untyped_storage().nbytes():,} B"
            what = f"the number {saved.item():g}" if not saved.dim() else leaves.get(storage, size)
            parts.append(f"{name}: {what}" + (", counted above" if storage in seen else ""))
            seen.add(storage)
        leaf = "a leaf: accumulates .grad" if node.leaf is not None else ""
        words.append(_TROUBLE.get(node.trouble) or ("keeps " + " · ".join(parts) if parts else leaf))
    return words


@drawn
def autograd_graph(
    tensor: torch.Tensor, evidence: str = "live (CPU)", *, names: Mapping[str, torch.Tensor] | None = None,
    title: str = "What backward will walk",
) -> Picture:  # fmt: skip
    """The graph behind `tensor`: a row for each node, from its own grad_fn down to the leaves; what a node keeps.

    `names`: name → leaf tensor, for readable leaves. Bytes are of whole storages, each counted once and parameters
    not at all; a single number is shown and not counted. What was saved cannot be read after backward has freed it,
    nor what was changed in place: the row says so. ValueError for a tensor without grad_fn, or over 40 nodes.
    """
    nodes = nodes_of(tensor, names)
    note = f"{len(nodes)} nodes · kept alive until backward: {saved_bytes(nodes):,} bytes"
    if any(node.trouble for node in nodes):
        note = f"{len(nodes)} nodes · what some of them saved can no longer be read"
    fig, header = style.figure(
        _ROW * len(nodes) + 0.1, evidence=evidence, title=title, note=note, placed=True
    )
    ax = style.inches_axes(fig)
    heights = [header + _ROW * (i + 0.5) for i in range(len(nodes))]
    for i, (node, words) in enumerate(zip(nodes, _kept(nodes), strict=True)):
        for j in node.following:
            # an arrow to the next row is straight; one that passes rows bends around them, an inch at most
            bend = min(0.6, 1.8 / (heights[j] - heights[i])) if j > i + 1 else 0.0
            ends = (_DOTS, heights[i]), (_DOTS, heights[j])
            look: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 9, "shrinkA": 5, "shrinkB": 5}
            arrow = FancyArrowPatch(*ends, connectionstyle=f"arc3,rad={bend}", color=style.MUTED, **look)
            ax.add_patch(arrow)
        colour = style.MUTED if not words else style.BLUE if node.leaf is None else style.GREEN
        ax.plot(_DOTS, heights[i], "o" if node.leaf is not None else "s", color=colour, markersize=7)
        room = style.WIDTH - _KEPT - 0.15
        ink = style.VERMILLION if node.trouble else style.INK
        small: dict[str, Any] = {"fontsize": style.SMALL, "va": "center"}
        ax.text(_NAMES, heights[i], node.label, fontweight="bold", **small)
        ax.text(_KEPT, heights[i], "".join(style.wrap(words, style.SMALL, room)[:1]), color=ink, **small)
    return Picture(fig, evidence, f"{title}: {', '.join(node.label for node in nodes)}. {note}")
