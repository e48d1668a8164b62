"""Lesson 08's claims on trial whose experiment stands in no cell above the verdicts: a function a claim."""

from __future__ import annotations

from collections.abc import Callable

import torch

from helpers import simulate
from helpers.lesson.claim import Claim

MIB = 2**20
WHO_ELSE = "Further: Who else holds memory"


def nccl() -> Claim:
    """NCCL's own memory: one process has no communicator."""
    return Claim(
        "08-nccl",
        "book-notes",
        "NCCL manages the memory of its communication itself",
        "nothing: one process has no communicator",
        "untested",
        WHO_ELSE,
    )


def pool_allocator() -> Claim:
    """Whether the class that a source recommends exists in this torch."""
    try:
        torch.cuda.memory.change_current_allocator(torch.cuda.memory.PoolAllocator)  # type: ignore[attr-defined]
        found = "the class exists"
    except AttributeError as problem:
        found = f"AttributeError: {problem}"
    return Claim(
        "08-pool-allocator",
        "compile-300",
        "change_current_allocator(torch.cuda.memory.PoolAllocator) switches a memory pool on",
        found,
        "refuted: there is no such class, and the pool is what PyTorch uses anyway"
        if found.startswith("AttributeError")
        else "partly: holds when the class exists",
        "Sources on trial",
    )


def fraction() -> Claim:
    """What set_per_process_memory_fraction reserves, and what a request above the fraction gets."""
    gpu = simulate("H100", strict=False)
    with gpu:
        before = gpu.memory_reserved()
        gpu.set_per_process_memory_fraction(0.5)
        after, free = gpu.memory_reserved(), gpu.mem_get_info()[0]
        torch.empty(gpu.card.memory_bytes * 6 // 10, dtype=torch.uint8, device=gpu.device)
    failed = any("out of memory" in fault for fault in gpu.faults)
    return Claim(
        "08-fraction",
        "compile-300",
        "set_per_process_memory_fraction(0.8) allocates memory in advance",
        f"reserved before {before // MIB} MiB, after {after // MIB} MiB; a request for 60 % of the card, above the "
        f"fraction of 50 %, with {free / 2**30:.0f} GiB free: {'failed' if failed else 'granted'}",
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


CLAIMS: tuple[Callable[[], Claim], ...] = (nccl, pool_allocator, fraction, monitor)
