"""Lesson 21's claims on trial: the reads and writes of a softmax, blocks that an order of tiles saves, operators without a fake."""

from __future__ import annotations

import torch
from torch import Tensor

from helpers import compiling
from helpers.lesson.claim import Claim
from helpers.lessons.a_kernel_of_your_own.experiments import by_operators, on_card
from helpers.text.terminal import quiet


def on_trial() -> list[Claim]:
    """The claims of the core."""
    return [softmax_traffic()]


def softmax_traffic() -> Claim:
    """The claim "21-softmax-traffic", on a matrix of 2,048 × 1,024."""
    m, n = 2048, 1024
    moved = on_card(by_operators, torch.empty(m, n)).bytes / 4
    claimed = 8 * m * n + 4 * m
    return Claim(
        "21-softmax-traffic", "triton-softmax",
        "written naively in PyTorch, a softmax reads 5MN + 2M elements and writes back 3MN + 2M",
        f"M = {m:,}, N = {n:,}: the operators read and write {moved / (m * n):.2f} MN (the source: {claimed / (m * n):.2f}); one kernel "
        f"that reads once and writes once moves 2 MN",
        "confirmed" if abs(moved / claimed - 1) < 0.01 else "refuted",
        "2 · What a kernel costs",
    )  # fmt: skip


def _blocks(tiles: list[tuple[int, int]], inner: int) -> int:
    """Different blocks of a and b that these tiles of c need."""
    a = {(i, q) for i, _ in tiles for q in range(inner)}
    b = {(q, j) for _, j in tiles for q in range(inner)}
    return len(a) + len(b)


def grouped_order(side: int = 9, group: int = 3) -> Claim:
    """The claim "21-grouped-order", on the source's matrices of 9 × 9 blocks."""
    by_rows = [divmod(p, side) for p in range(side)]
    grouped = [(p % group, p // group) for p in range(side)]
    first, second = _blocks(by_rows, side), _blocks(grouped, side)
    # a program loads a row of blocks of a and a column of b, whoever else has loaded them
    loads = [sum(_blocks([tile], side) for tile in order) for order in (by_rows, grouped)]
    return Claim(
        "21-grouped-order", "triton-matmul",
        "for the first 9 blocks of a product of 9 × 9 blocks, row-major order loads 90 blocks into SRAM, grouped order 54",
        f"different blocks needed: row by row {first}, in groups of {group} rows {second}; blocks that the programs load into SRAM: "
        f"{loads[0]} and {loads[1]}",
        "confirmed" if loads == [90, 54]
        else f"partly: so of different blocks, which must come from device memory; into SRAM the programs load {loads[0]} in either order"
        if (first, second) == (90, 54) and loads[0] == loads[1] else "refuted",
        "Further: A product in tiles",
    )  # fmt: skip


def without_a_fake() -> Claim:
    """The claim "21-fake", on an operator with a fake and on the same without."""
    said = {}
    for fake in (True, False):
        name = f"lesson21::doubled_{'with' if fake else 'without'}"

        @torch.library.custom_op(name, mutates_args=())
        def doubled(x: Tensor) -> Tensor:
            return x * 2

        if fake:
            doubled.register_fake(torch.empty_like)
        try:
            with quiet(), compiling.watch("aot_eager") as w:
                torch.compile(lambda x, op=doubled: op(x) + 1, fullgraph=True)(torch.ones(3))
            said[fake] = f"{w.counts()['graphs']} graph"
        except Exception as problem:
            said[fake] = f"an error ({type(problem).__name__})"
    return Claim(
        "21-fake", "custom-ops", "an operator that has to work with torch.compile needs a fake kernel",
        f"fullgraph=True, with a fake: {said[True]}; without: {said[False]}",
        "confirmed" if "error" in said[False] and "error" not in said[True] else "refuted",
        "Further: The labels, one by one",
    )  # fmt: skip
