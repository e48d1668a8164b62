"""Lesson 08, memory pools: results that are cut out of the blocks of growing temporaries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from helpers.recordings.registry import experiment

MIB = 2**20
LENGTHS = range(10, 42, 2)


@experiment("08/growing")
def growing(gpu: Any) -> dict[str, Any]:
    """Documents by length: each makes a temporary (length × 8 MiB), then its result (× 3 MiB), which stays."""
    return _documents(gpu, LENGTHS)


@experiment("08/growing_expandable", alloc_conf="expandable_segments:True")
def growing_expandable(gpu: Any) -> dict[str, Any]:
    """The same with segments that grow."""
    return _documents(gpu, LENGTHS)


@experiment("08/longest_first")
def longest_first(gpu: Any) -> dict[str, Any]:
    """The same documents, the longest first, with the default allocator."""
    return _documents(gpu, reversed(LENGTHS))


def _state(gpu: Any) -> dict[str, int]:
    return {"allocated": gpu.memory_allocated(), "reserved": gpu.memory_reserved()}


def _documents(gpu: Any, lengths: Iterable[int]) -> dict[str, Any]:
    gpu.synchronize()
    gpu.empty_cache()
    gpu.memory._record_memory_history(max_entries=10_000)
    results, rows = [], []
    for length in lengths:
        temporary = torch.empty(length * 8 * MIB, dtype=torch.uint8, device=gpu.device)
        results.append(torch.empty(length * 3 * MIB, dtype=torch.uint8, device=gpu.device))
        del temporary
        rows.append({"length": length, **_state(gpu), "segments": len(gpu.memory_snapshot())})
    snapshot = gpu.memory._snapshot()
    gpu.memory._record_memory_history(enabled=None)
    return {"snapshot": snapshot, "table": rows}
