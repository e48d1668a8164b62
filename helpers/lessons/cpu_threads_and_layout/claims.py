"""Lesson 12's claims on trial: threads and binding as its cells measured them, and an option of torch.compile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from helpers.lesson.claim import Claim
from helpers.lessons.cpu_threads_and_layout import experiments


def on_trial(in_worker: Sequence[Any], late: Sequence[Any]) -> list[Claim]:
    """All claims of the lesson. in_worker, late: what in_a_worker() and bound_late() counted in section 2."""
    by_torch, by_numpy, by_program, *_ = experiments.one_or_all(*in_worker)
    new = experiments.python_threads()
    node = [0] * 4, [1] * 4  # the node of each thread
    whole = experiments.pages([0], node[0] + node[1])
    apart = experiments.pages([0], node[0]) + experiments.pages([1], node[1])
    away = [100 - experiments.local_percent(parts) for parts in (whole, apart)]
    alone = 100 - experiments.local_percent(experiments.pages([0], [0] * 8))
    return [
        Claim(
            "12-binding-rank",
            "guide",
            "core binding is among the most important optimisations on a CPU",
            "published, on two Xeon 8180M (PyTorch's tutorial docs.pytorch.org/tutorials/intermediate/torchserve_with_ipex.html), ResNet-50: two "
            "threads bound to the two halves of one core 32 s, to two cores 23 s; of four workers of 14 threads 40.45 % of the memory accesses go to "
            "the other node when they are not bound, 10.48 % when each is bound to cores of its own. Arithmetic, by a model of first touch: "
            f"unbound over two nodes {away[0]} %, on a machine of one node {alone} %",
            "partly: much to win where threads would share a core, or move between nodes; on one node, with no more threads than cores, "
            "neither happens. It was not ranked against other means"
            if away[0] > alone
            else "confirmed",
            "2 · Too many threads",
        ),  # fmt: skip
        Claim(
            "12-binding-numa",
            "guide",
            "binding a process to cores avoids memory accesses across NUMA nodes",
            f"arithmetic, by a model of first touch, reads from the other node: team bound over both nodes {away[0]} %, one process a node "
            f"{away[1]} %; live: bound after its first operator, {late[0]} of {late[1]} threads are bound",
            "partly: holds when each process stays on one node, is bound before its threads start, and writes its memory itself"
            if away[1] < away[0] and late[0] < late[1]
            else "confirmed"
            if away[1] < away[0]
            else "refuted",
            "Further · Which memory is near?",
        ),
        Claim(
            "12-set-num-threads",
            "guide",
            "torch.set_num_threads() controls the threads, with taskset or numactl more finely",
            f"threads that may be used in a worker: by torch {by_torch}, by NumPy {by_numpy}, by a program that it starts {by_program}; two "
            f"Python threads with 4 set: {new} new ones",
            "partly: holds when torch's own team in one Python thread is meant; the others need OMP_NUM_THREADS or a set of cores before they start"
            if by_torch != by_numpy or by_torch != by_program or experiments.CORES == 1
            else "confirmed",
            "2 · Too many threads",
        ),
        memory_format(),
    ]


def memory_format() -> Claim:
    """What torch.compile says to the option that a source names."""
    option: dict[str, Any] = {"memory_format": torch.channels_last}
    outcome = "accepted"
    try:
        torch.compile(lambda t: t + 1, options=option)(torch.ones(2))
    except RuntimeError as problem:
        outcome = f"{type(problem).__name__}: {str(problem).partition(',')[0]}"
    return Claim(
        "12-memory-format",
        "compile-300",
        'options={"memory_format": torch.channels_last} makes torch.compile pick the layout',
        outcome,
        "confirmed" if outcome == "accepted" else "refuted",
        "Sources on trial",
    )
