"""Lesson 15's claim about the sharding strategy."""

from __future__ import annotations

from helpers.lesson.claim import Claim
from helpers.lessons.fully_sharded import experiments


def strategy() -> Claim:
    """Memory at the worst moment and bytes sent, by which blocks are kept after forward."""
    gone, early, last, kept, all_gone, _, free = (
        experiments.simulated_plan(*one) for one in experiments.PLANS
    )
    return Claim(
        "15-strategy",
        "guide",
        "choose the sharding strategy by balancing communication and memory",
        f"six blocks, simulated: let go of all sends {gone.sent >> 20} MiB and needs {gone.peak / 2**20:.0f} beyond the shards, keep all "
        f"{kept.sent >> 20} and {kept.peak / 2**20:.0f}. Keeping three sends {early.sent >> 20} either way: the first three need "
        f"{early.peak / 2**20:.0f}, the last three {last.peak / 2**20:.0f}. Unequal blocks: one plan sends {free.sent >> 20} instead of "
        f"{all_gone.sent >> 20} and needs no more",
        "partly: holds when keeping a block raises the worst moment; keeping other blocks is free, and which ones counts as much as how many"
        if gone.peak < kept.peak
        and last.peak < early.peak
        and free.sent < all_gone.sent
        and free.peak <= all_gone.peak
        else "confirmed",
        "Further · Which blocks to keep",
    )
