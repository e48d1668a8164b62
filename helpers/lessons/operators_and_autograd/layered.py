"""Where the boxes of a small directed graph go, so that every edge runs down and none runs under a box."""

from __future__ import annotations

from dataclasses import dataclass

from helpers.lessons.operators_and_autograd.backward import Node

_GAP, _THREAD = 0.25, 0.05  # inches: between neighbours, and the width of an edge that passes a row


@dataclass
class Layout:
    """Row and centre (inches) of each node; for each edge the centres at which it crosses rows between."""

    row: list[int]
    centre: list[float]
    across: dict[tuple[int, int], list[float]]
    width: float


def arrange(widths: list[float], nodes: list[Node], room: float) -> Layout:
    """Every edge goes down, no two boxes overlap, no edge runs under a box.

    Rows are the layers; a layer wider than the room is dealt over several rows. An edge over several rows
    gets a place of its own in each row between, as if there were a narrow box. Within a row the order is
    that of the mean place of the neighbours above (and in one sweep back up, below): K. Sugiyama and
    others' layered drawing (1981).
    """
    row = [0] * len(nodes)
    rows = 0
    for layer in range(max(node.layer for node in nodes) + 1):
        members = [i for i, node in enumerate(nodes) if node.layer == layer]
        parts = min(len(members), int(sum(widths[i] + _GAP for i in members) // room) + 1)
        for k, i in enumerate(members):
            row[i] = rows + k * parts // len(members)
        rows += parts
    places, above = list(row), [[] for _ in nodes]  # type: tuple[list[int], list[list[int]]]
    below: list[list[int]] = [[] for _ in nodes]
    wide = list(widths)
    chains: dict[tuple[int, int], list[int]] = {}
    for i, node in enumerate(nodes):
        for j in dict.fromkeys(node.following):
            chain = list(range(len(wide), len(wide) + row[j] - row[i] - 1))
            chains[i, j] = chain
            wide += [_THREAD] * len(chain)
            places += range(row[i] + 1, row[j])
            above += [[] for _ in chain]
            below += [[] for _ in chain]
            for a, b in zip([i, *chain], [*chain, j], strict=True):
                below[a].append(b)
                above[b].append(a)
    members_of = [[i for i, r in enumerate(places) if r == k] for k in range(rows)]
    width = max(room, *(sum(wide[i] + _GAP for i in members) for members in members_of))
    centre = [width / 2] * len(wide)
    for near, order in ((above, range(rows)), (below, reversed(range(rows))), (above, range(rows))):
        for k in order:
            wish = {}
            for i in members_of[k]:
                # Children of one parent keep the order of its inputs.
                pulls = [centre[p] + 0.02 * (below[p].index(i) if near is above else 0) for p in near[i]]
                wish[i] = sum(pulls) / len(pulls) if pulls else centre[i]
            members_of[k].sort(key=wish.__getitem__)
            centres = _spread([wish[i] for i in members_of[k]], [wide[i] for i in members_of[k]], width)
            for i, x in zip(members_of[k], centres, strict=True):
                centre[i] = x
    across = {edge: [centre[i] for i in chain] for edge, chain in chains.items()}
    return Layout(row, centre[: len(nodes)], across, width)


def _spread(wishes: list[float], widths: list[float], room: float) -> list[float]:
    """Places near the wishes (sorted) at which boxes of these widths neither overlap nor leave the room."""
    places = list(wishes)
    distance = [(a + b) / 2 + _GAP for a, b in zip(widths, widths[1:], strict=False)]
    for _ in range(60):  # push neighbours apart, half each: few boxes, and it settles quickly
        for i, apart in enumerate(distance):
            short = apart - (places[i + 1] - places[i])
            if short > 0:
                places[i] -= short / 2
                places[i + 1] += short / 2
    for i, width in enumerate(widths):  # then exactly: from the left wall, and back from the right one
        least = width / 2 if i == 0 else places[i - 1] + distance[i - 1]
        places[i] = max(places[i], least)
    for i in reversed(range(len(widths))):
        most = room - widths[i] / 2 if i == len(widths) - 1 else places[i + 1] - distance[i]
        places[i] = min(places[i], most)
    return places
