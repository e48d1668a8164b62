"""Lesson 15's claims on trial: memory, scaling to several nodes, the sharding strategy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from helpers.lesson.claim import Claim
from helpers.lessons.fully_sharded import experiments
from helpers.lessons.fully_sharded.experiments import Step, Wrapped


def on_trial(
    gb: Callable[[str, int], float], runs: Mapping[str, Wrapped], steps: Mapping[str, Step]
) -> list[Claim]:
    """All of the lesson's claims.

    gb: GB on each rank, by the way to shard and the number of ranks. runs: how many layers were whole at once, by the way to
    wrap. steps: "8: …" and "1,024: …", as the lesson names them.
    """
    return [memory(gb, runs, steps), scaling(steps), strategy()]


def memory(gb: Callable[[str, int], float], runs: Mapping[str, Wrapped], steps: Mapping[str, Step]) -> Claim:
    """What a rank holds at rest, and at the worst moment of a step."""
    once, each = (runs[way].most for way in ("one call for all", "a call per layer"))
    small, small_ddp = (steps[f"8: {way}"].peak / 1e6 for way in ("a call per layer", "DDP"))
    return Claim(
        "15-memory",
        "guide",
        "FSDP uses memory more efficiently and supports very large models",
        f"8 billion parameters: {gb('DDP', 8):,.0f} GB on each rank with DDP, {gb('ZeRO-3', 64):.0f} on 64 with FSDP. Simulated peak "
        f"of 6 layers on 8 ranks: {small_ddp:,.0f} MB and {small:,.0f}. Layers whole at once: {once} with one call for all, {each} with a call per layer",
        "partly: holds when each block is wrapped; activations are not cut"
        if small < small_ddp and each < once
        else "refuted",
        "1 · What is stored, what is sent",
    )


def scaling(steps: Mapping[str, Step]) -> Claim:
    """From 8 ranks, one node, to 1,024: what a step takes, and the peak, by DDP, FSDP and HSDP; FSDP with large layers too."""
    names = {"DDP": "DDP", "a call per layer": "FSDP over all ranks", "HSDP": "inside the node only (HSDP)"}
    ddp, per_layer, hsdp = (steps[f"1,024: {way}"] for way in names)
    longer = {way: steps[f"1,024: {way}"].seconds / steps[f"8: {way}"].seconds for way in names}
    told = ", ".join(
        f"{name} {longer[way]:.2f} times as long, peak {steps[f'1,024: {way}'].peak / 1e6:,.0f} MB"
        for way, name in names.items()
    )
    large = steps["1,024: large layers"].seconds / steps["8: large layers"].seconds
    less = max(per_layer.peak, hsdp.peak) < ddp.peak
    as_well = max(longer["HSDP"], large) < 1.1 < longer["a call per layer"]
    faster = [longer[way] < 0.95 * longer["DDP"] for way in names if way != "DDP"]
    return Claim(
        "15-scaling",
        "guide",
        "FSDP scales better to several nodes",
        f"forward and backward of 6 small layers at 1,024 ranks against 8, simulated: {told}. FSDP with layers 16 times as large: "
        f"{large:.2f} times as long",
        "confirmed"
        if all(faster) and less
        else "partly: holds for memory; in time, in this simulation, it scales about as well as DDP when cut inside the node only or with "
        "large layers, and worse over all ranks with small ones"
        if less and as_well
        else "partly: holds for memory; not for time in this simulation"
        if less
        else "refuted",
        "4 · Does it hide?",
    )


def strategy() -> Claim:
    """Memory at the worst moment and bytes sent, by which blocks are kept after forward."""
    gone, early, last, kept, all_gone, _, free = (
        experiments.simulated_plan(*plan) for plan in experiments.PLANS
    )
    return Claim(
        "15-strategy",
        "guide",
        "choose the sharding strategy by balancing communication and memory",
        f"six blocks, simulated: let go of all (FULL_SHARD) sends {gone.sent >> 20} MiB and needs {gone.peak / 2**20:.0f} beyond the shards, keep all "
        f"(SHARD_GRAD_OP) {kept.sent >> 20} and {kept.peak / 2**20:.0f}. Keeping three sends {early.sent >> 20} either way: the first three need "
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
