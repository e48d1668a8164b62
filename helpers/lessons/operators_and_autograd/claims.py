"""Claims on trial in lesson 02."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import TopologicalSorter
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from helpers import count
from helpers.counters import Counts
from helpers.lesson.claim import Claim
from helpers.lessons.operators_and_autograd.experiments import (
    CHANGES,
    CODES,
    POINTS,
    PROGRAMS,
    Fused,
    crossing_on,
    outcomes,
    right_gradients,
    tally,
)
from helpers.lessons.operators_and_autograd.graph import graph_of

IF_AND_WHILE = "Further · if and while do not hurt autograd"


def on_trial(card: Any, fused: Fused) -> list[Claim]:
    """Every claim of the lesson.

    card: a simulated one. fused: of each computation, what it did written out and what PyTorch's operator did.
    """
    return [overhead(card), fusion(fused), in_place(), graph(), accumulate()]


def overhead(card: Any) -> Claim:
    """Where on this card the time begins to follow the size."""
    return Claim(
        "02-overhead",
        "book-notes",
        "operator overhead is a main performance killer",
        f"x + y, simulated {card.name}: below {crossing_on(card):,} elements the time is the launch's; on this CPU "
        "the picture of section 2 has the same shape",
        "partly: holds when tensors are smaller than the crossover; above it, bytes or arithmetic take the time",
        "2 · Overhead against size",
    )


def fusion(fused: Fused) -> Claim:
    """Launches and bytes, written out and as PyTorch has it."""
    fewer = sum(has.launches < hand.launches for hand, has in fused.values())
    leaner = sum(has.bytes < hand.bytes for hand, has in fused.values())
    return Claim(
        "02-fusion",
        "guide",
        "fusion means fewer launches, less memory access",
        f"of {len(fused)} computations against PyTorch's fused operators: fewer launches in {fewer}, fewer bytes "
        f"moved in {leaner}",
        "confirmed"
        if fewer == leaner == len(fused)
        else "partly: holds when the fused operator is one kernel",
        "3 · Operators that exist already",
    )


def in_place() -> Claim:
    """Every operator's input and result changed in five ways; and what backward itself changes in place."""
    endings = outcomes()
    unchecked = [c for c in CHANGES if "data" in c or "numpy" in c]
    checked = [c for c in CHANGES if c not in unchecked]
    tried, tried_unchecked = (2 * len(CODES) * len(changes) for changes in (checked, unchecked))
    raised, wrong = tally(endings, checked, "raises"), tally(endings, checked, "wrong")
    first, second, parameters, _ = _two_backwards()
    none = not _in_place(first) and _in_place(second) == {"aten.add_": parameters}
    verdict = "confirmed" if wrong else "partly: holds when the version check is evaded"
    return Claim(
        "02-in-place",
        "book-notes",
        "in-place backward easily gives wrong numbers, so it is avoided",
        f"of {tried} changes in place {raised} raised, {wrong} went wrong; through .data or NumPy "
        f"{tally(endings, unchecked, 'wrong')} of {tried_unchecked} went wrong",
        verdict + (". Except for adding into .grad, backward used no in-place operators" if none else ""),
        "Further · In place, and what it breaks",
    )


def graph() -> Claim:
    """The graphs of programs that decide by looking at their data, searched for cycles; and one, node by node."""
    graphs = [graph_of(program(p.clone().requires_grad_())) for program in PROGRAMS for p in POINTS]
    for nodes in graphs:
        TopologicalSorter(nodes).prepare()  # raises CycleError if the graph has a cycle
    x = torch.randn(100)
    w, v = torch.randn(100, requires_grad=True), torch.randn(100, requires_grad=True)
    forward = count(lambda: ((s := x * 2 - w).tanh() * s + v.exp()).sum())
    nodes = graph_of(forward.result)
    leaves = sum(not following for following in nodes.values())
    return Claim(
        "02-dag",
        "book-notes",
        "the graph is a DAG of operators, data on its edges",
        f"no cycle in {len(graphs)} graphs; of the one drawn {forward.operators} operators made {len(nodes)} nodes, "
        f"{leaves} of them leaves",
        "partly: holds when nodes are the operators' backwards and edges the way of gradients; data is saved in nodes",
        "Further · What a node keeps",
    )


def accumulate() -> Claim:
    """Gradients through data-dependent code against finite differences; and a second backward into the same .grad."""
    agree, tried = sum(map(right_gradients, PROGRAMS)), len(PROGRAMS) * len(POINTS)
    *_, doubled = _two_backwards()
    return Claim(
        "02-accumulate",
        "book-notes",
        "gradients accumulate as numbers, so control flow is no problem",
        f"{agree} of {tried} gradients through data-dependent code equal finite differences; a second backward "
        f"doubled .grad in place: {doubled}",
        "confirmed" if agree == tried and doubled else "refuted",
        IF_AND_WHILE,
    )


def _two_backwards() -> tuple[Counts, Counts, int, bool]:
    """(first backward, second backward, number of parameters, whether gradients doubled where they were)."""
    layers = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    parameters = list(layers.parameters())
    data, target = torch.randn(32, 8), torch.randint(4, (32,))
    first = count(F.cross_entropy(layers(data), target).backward)
    once = [(_grad(p).clone(), _grad(p).data_ptr()) for p in parameters]
    second = count(F.cross_entropy(layers(data), target).backward)
    doubled = all(
        torch.allclose(_grad(p), 2 * g) and _grad(p).data_ptr() == place
        for p, (g, place) in zip(parameters, once, strict=True)
    )
    return first, second, len(parameters), doubled


def _grad(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad


def _in_place(counts: Counts) -> Mapping[str, int]:
    return {name: n for name, n in counts.by_operator.items() if name.endswith("_")}
