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
    POINTS,
    PROGRAMS,
    Fused,
    crossing_on,
    right_gradients,
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
    crossing = crossing_on(card)
    return Claim(
        "02-overhead",
        "book-notes",
        "operator overhead is a main performance killer",
        f"x + y, simulated {card.name}: below {crossing / 1e6:.1f} million elements the time is the launch's; section 2 "
        "shows this CPU and a recorded GPU, which cross at other sizes",
        "partly: holds when tensors are smaller than the crossover; above it, bytes or arithmetic take the time"
        if 1000 < crossing < 2**30
        else "refuted"
        if crossing <= 1000
        else "confirmed",
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
        f"of {len(fused)} computations against PyTorch's fused operators, in the simulator: fewer launches in {fewer}, "
        f"fewer bytes moved in {leaner}",
        "confirmed"
        if fewer == leaner == len(fused)
        else "partly: holds when the fused operator is one kernel",
        "3 · Operators that exist already",
    )


class _Doubled(torch.autograd.Function):
    """Twice x, whose backward writes into the gradient that it is given."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient.mul_(2)


#: graphs in which _Doubled and another operator are given gradients; the last one is a chain, where nobody else reads them
_SHARED = {
    "a sum of two branches": lambda double, x: (double(x) + x.sin()).square().sum(),
    "a difference": lambda double, x: (x.exp() - double(x)).square().sum(),
    "a residual": lambda double, x: (x + double(x.tanh())).square().sum(),
    "a chain": lambda double, x: double(x.sin()).square().sum(),
}


def in_place() -> Claim:
    """What backward's own operators change in place, and what becomes of gradients where one of them does."""
    first, second, parameters, _ = _two_backwards()
    none = not _in_place(first) and _in_place(second) == {"aten.add_": parameters}
    x = torch.linspace(-1, 1, 9)
    wrong = []
    for name, graph in _SHARED.items():
        right, changed = (
            torch.autograd.grad(graph(double, leaf), leaf)[0]
            for double in (lambda y: y * 2, _Doubled.apply)
            for leaf in [x.clone().requires_grad_()]
        )
        wrong += [name] if not torch.allclose(right, changed) else []
    return Claim(
        "02-in-place",
        "book-notes",
        "backward's operators are usually not in place, since that easily gives wrong numbers",
        f"in-place operators of a first backward: {sum(_in_place(first).values())}, of a second, which adds into .grad: "
        f"{sum(_in_place(second).values())}, one a parameter. A backward that writes into its gradient: wrong, without an error, "
        f"in {len(wrong)} of {len(_SHARED)} graphs ({', '.join(wrong)})",
        "confirmed: where another operator is given the same gradient later"
        if none and wrong
        else "partly: holds when none goes wrong",
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
        "partly: holds when nodes are the operators' backwards and edges the way of gradients; data is saved in nodes"
        if len(nodes) != forward.operators
        else "confirmed",
        "Further · What a node keeps",
    )


def _recursion(x: torch.Tensor) -> torch.Tensor:
    return x.square().sum() if x.norm() > 100 else _recursion(2 * x)


def accumulate() -> Claim:
    """Gradients through data-dependent code against finite differences; and a second backward into the same .grad."""
    programs = (*PROGRAMS, _recursion)
    agree, tried = sum(map(right_gradients, programs)), len(programs) * len(POINTS)
    *_, doubled = _two_backwards()
    return Claim(
        "02-accumulate",
        "book-notes",
        "gradients accumulate as numbers, so control flow is no problem",
        f"{agree} of {tried} gradients through a branch, two loops and a recursion that follow the data equal finite differences; a second backward "
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
