"""Lesson 08's claims on trial: by what its cells measured, and a function for each whose experiment stands in none of them."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from helpers import simulate
from helpers.lesson.claim import Claim
from helpers.lessons.memory_pools import experiments

MIB = 2**20
WHO_ELSE = "Further: Who else holds memory"


def on_trial(
    taken: Mapping[str, tuple[int, int, int]],
    cards: Mapping[tuple[str, str], experiments.Card],
    fates: Mapping[str, str],
) -> list[Claim]:
    """All claims of the lesson.

    taken: tensor → bytes asked for, allocated and reserved. cards: (program, option) → the card behind it. fates: way to
    keep a tensor → what became of it.
    """
    asked, _, held = taken["1 MiB + 1 byte"]
    split = {program: cards[program, "max_split_size_mb:128"] for program in ("documents", "survivors")}
    mended = [program for program, card in split.items() if card.outcome == "fits"]
    cycle = fates["an object holds it, and itself"]
    globally = experiments.fate_under_a_name()
    return [
        Claim(
            "08-larger",
            "book-notes",
            "PyTorch reserves a larger piece of memory than the tensor needs, and manages it itself",
            f"{asked:,} bytes asked for, {held:,} reserved; of {len(taken)} sizes tried "
            f"{sum(n[2] > n[0] for n in taken.values())} reserved more than they needed",
            "confirmed"
            if all(n[2] > n[0] for n in taken.values())
            else "partly: holds when it is no multiple of 2 MiB from 10 MiB on; of that it reserves just as much"
            if any(n[2] > n[0] for n in taken.values())
            else "refuted",
            "1 · What does one tensor take?",
        ),
        Claim(
            "08-max-split",
            "book-notes",
            "against fragmentation the practical remedy is max_split_size_mb",
            f"of {len(split)} programs that fail by default it mended {len(mended)} ({', '.join(mended)}), with "
            f"{split['documents'].calls[1]} cudaFree",
            "partly: holds when large blocks are cut by smaller ones that stay; not where small survivors lie in every "
            "segment. expandable_segments does the former without a cudaFree"
            if mended == ["documents"]
            else "refuted",
            "3 · Free, and out of memory",
        ),
        Claim(
            "08-cycles",
            "book-notes",
            "the cycle collector breaks cycles; tensors in global scope are another important reason why memory stays",
            f"a cycle: {cycle}; a tensor under a module's name: {globally['module']}, also after a collection, {globally['bound anew']} when the "
            f"name is bound anew; under a function's own name: {globally['function']} when it returns",
            "confirmed"
            if cycle == "until gc" and list(globally.values()) == ["kept", "freed", "freed"]
            else "partly: so for cycles"
            if cycle == "until gc"
            else "refuted",
            "5 · What keeps a tensor",
        ),  # fmt: skip
        nccl(),
        pool_allocator(),
        fraction(),
        monitor(),
    ]


def nccl() -> Claim:
    """NCCL's own memory."""
    return Claim(
        "08-nccl",
        "book-notes",
        "NCCL manages the memory of its communication itself",
        "published: PyTorch's page on CUDA memory (docs.pytorch.org/docs/stable/torch_cuda_memory) names NCCL as a library that allocates GPU "
        "memory which PyTorch's allocator does not see",
        "confirmed: by documentation; NCCL was not run",
        WHO_ELSE,
    )


def pool_allocator() -> Claim:
    """Whether the class that a source recommends exists in this torch."""
    try:
        torch.cuda.memory.change_current_allocator(torch.cuda.memory.PoolAllocator)  # type: ignore[attr-defined]
        answer = "the class exists"
    except AttributeError as problem:
        answer = f"AttributeError: {problem}"
    return Claim(
        "08-pool-allocator",
        "compile-300",
        "change_current_allocator(torch.cuda.memory.PoolAllocator) switches a memory pool on",
        answer,
        "refuted: there is no such class, and the pool is what PyTorch uses anyway"
        if answer.startswith("AttributeError")
        else "partly: holds when the class exists",
        "Sources on trial",
    )


def fraction() -> Claim:
    """What set_per_process_memory_fraction reserves, and what a request above the fraction gets."""
    gpu = simulate("H100", strict=False)
    with gpu:
        before = gpu.memory_reserved()
        gpu.set_per_process_memory_fraction(0.8)
        after, free = gpu.memory_reserved(), gpu.mem_get_info()[0]
        torch.empty(gpu.card.memory_bytes * 9 // 10, dtype=torch.uint8, device=gpu.device)
    failed = any("out of memory" in fault for fault in gpu.faults)
    return Claim(
        "08-fraction",
        "compile-300",
        "set_per_process_memory_fraction(0.8) allocates memory in advance",
        f"reserved before {before // MIB} MiB, after {after // MIB} MiB; a request for 90 % of the card, above the "
        f"fraction, with {free / 2**30:.0f} GiB free: {'failed' if failed else 'granted'}",
        "refuted: it is a limit, and reserves nothing" if before == after and failed else "confirmed",
        WHO_ELSE,
    )


def monitor() -> Claim:
    """What memory_allocated and memory_reserved see of a card that a product was computed on."""
    gpu = simulate("H100")
    with gpu:
        x = torch.empty(4096, 4096, device=gpu.device)
        y = x @ x
        del x, y
        gpu.empty_cache()
        free, total = gpu.mem_get_info()
        mine, held = gpu.memory_allocated() // MIB, gpu.memory_reserved() // MIB
    used = (total - free) // MIB
    return Claim(
        "08-monitor",
        "compile-300",
        "watch GPU memory with memory_allocated() and memory_reserved()",
        f"after empty_cache() {mine} and {held} MiB, while {used} MiB of the card were in use",
        "partly: holds when the question is about your tensors; the context, NCCL and other processes are in neither"
        if used > held
        else "confirmed",
        WHO_ELSE,
    )
