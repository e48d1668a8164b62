"""The claims on trial of lesson 14: data parallel. Each function runs its experiment and returns its row."""

from __future__ import annotations

import os

import torch.distributed as dist

from helpers.lesson.claim import Claim
from helpers.lessons.data_parallel import experiments


def eight_cards() -> Claim:
    """Is there a limit of 8 in DataParallel, what does it send, and what is left of DDP's speed at 1,024."""
    limits, sizes = experiments.limits_of_eight(), (2, 4, 8)
    slower = all(
        experiments.copying(n, way) > experiments.summing(n) for n in sizes for way in ("star", "ring")
    )

    def ms(seconds: float) -> str:
        return f"{seconds * 1e3:.0f}"

    return Claim(
        "14-eight-cards",
        "five-strategies",
        "DataParallel scales to 8 cards, DDP to a thousand",
        f"its source has {limits or 'no'} limit of 8; weights and gradients over PCIe at 2 → 8 cards, copy by copy {ms(experiments.copying(2, 'star'))} → "
        f"{ms(experiments.copying(8, 'star'))} ms, by ring {ms(experiments.copying(2, 'ring'))} → {ms(experiments.copying(8, 'ring'))}, DDP "
        f"{ms(experiments.summing(2))} → {ms(experiments.summing(8))}; DDP at 1,024, 8 layers: {experiments.left(experiments.step_on(1024, experiments.DDP)):.0%}",
        "partly: holds when 8 stands for one machine's cards; but DataParallel sends more, and none of it hidden, from 2 cards on"
        if slower and not limits
        else "refuted",
        "Further · DataParallel",
    )


def ddp_table() -> Claim:
    """Threads or processes."""
    threads, record = experiments.starts_threads(), experiments.sending()["plain"]
    return Claim(
        "14-ddp-table",
        "five-strategies",
        "DataParallel: one process, many threads; DDP: many processes",
        f"DataParallel's parallel_apply starts {'threads' if threads else 'no threads'}, by its source (to run it takes GPUs); DDP ran in "
        f"{record.world_size} processes",
        "confirmed" if threads and record.world_size > 1 else "refuted",
        "Further · torchrun and Accelerate",
    )


def start_script() -> Claim:
    """What starts DDP's processes; lesson 18 runs this trial."""
    record = experiments.sending()["plain"]
    return Claim(
        "14-start-script",
        "five-strategies",
        "DataParallel starts simply, DDP needs a launch script",
        f"DDP ran in {record.world_size} processes that a function call started, without a script",
        "partly: holds for torchrun, the usual way; torch.multiprocessing starts the processes from the program itself"
        if record.world_size > 1
        else "confirmed",
        "Further · torchrun and Accelerate",
    )


def topology() -> Claim:
    """64 GPUs in nodes of 8: one ring, and the node first."""
    ring, tree, first = map(experiments.among_64, ("ring", "tree", "hierarchical"))
    return Claim(
        "14-topology",
        "book-notes",
        "collectives that follow the topology are cheaper",
        f"{2 * experiments.GPT2 / experiments.MB:.0f} MB among 64 in nodes of 8: one ring {ring * 1e3:.1f} ms, the node first {first * 1e3:.1f}",
        "confirmed" if first < min(ring, tree) else "refuted",
        "Further · Who is joined to whom",
    )


def buckets() -> Claim:
    """GPT-2 among 64: DDP's default buckets, and all gradients in one."""
    default, lump = experiments.plan(64), experiments.plan(64, "all in one")
    gradients = len(default.backward.gradients)
    fewer = len(default.buckets) < gradients and default.exposed_s < lump.exposed_s
    return Claim(
        "14-buckets",
        "book-notes",
        "DDP groups gradients into few messages, and sends the first while backward runs",
        f"GPT-2 at 64: {gradients} gradients in {len(default.buckets)} messages, {default.exposed_s * 1e6:,.0f} of "
        f"{default.communication_s * 1e6:,.0f} µs exposed; all in one: {lump.exposed_s * 1e6:,.0f}",
        "confirmed" if fewer else "refuted",
        "3 · Hide it: buckets and overlap",
    )


def nodes() -> Claim:
    """What is left of n-fold work at 8, 64 and 1,024, with even and uneven kernels, and with one slow rank."""
    steps = {n: experiments.step_on(n, experiments.DDP) for n in (8, 64, 1024)}
    even = {n: experiments.left(step) for n, step in steps.items()}
    # a ring: each rank sends its share 2 (n − 1) times
    sent = {n: (2 * (n - 1), 2 * (n - 1) / n) for n in steps}
    uneven = {n: experiments.left(experiments.uneven(n)) for n in steps}
    cost = {n: 100 * (even[n] - uneven[n]) for n in steps}  # points
    heavier = cost[8] < cost[64] < cost[1024]
    return Claim(
        "14-nodes",
        "book-notes",
        "more nodes: more latency, and unstable parts weigh more",
        f"from 8 to 1,024 ranks, an all-reduce by a ring: {sent[8][0]:,} → {sent[1024][0]:,} messages a rank, of {sent[8][1]:.2f} → "
        f"{sent[1024][1]:.2f} times the gradients in all; efficiency {even[8]:.0%} → {even[1024]:.0%}; uneven kernels cost {cost[8]:.1f} points at 8, "
        f"{cost[64]:.1f} at 64, {cost[1024]:.1f} at 1,024; one slow rank of 64: {experiments.left(experiments.one_slow()):.0%}",
        "confirmed" if heavier and even[8] > even[1024]
        else "partly: latency grows; unstable parts do not weigh more" if even[8] > even[1024] else "refuted",
        "4 · What is left of n GPUs",
    )  # fmt: skip


def compression() -> Claim:
    """Bytes and messages of four backward passes: plain, 16 bits, sparse, low rank."""
    records = experiments.sending()
    sent = {way: record.wire_bytes() for way, record in records.items()}
    thin, sparse = "rank-1 factors", "the largest tenth"
    whole, less = experiments.float_and_int8(10**4, "NVLink 4")
    return Claim(
        "14-compression",
        "book-notes",
        "compressing gradients (quantized, sparse, low rank) lowers what is sent",
        f"four passes: {sent['plain']:,.0f} bytes plain, {sent['16 bits']:,.0f} in 16 bits, {sent[sparse]:,.0f} as the largest tenth and its "
        f"places, {sent[thin]:,.0f} as rank-1 factors in {records[thin].count()} messages and not {records['plain'].count()}. 10,000 numbers over "
        f"NVLink: {'int8' if less < whole else 'float32'} is faster",
        "refuted"
        if max(sent[way] for way in ("16 bits", sparse, thin)) >= sent["plain"]
        else "confirmed"
        if less < whole
        else "partly: holds when bytes, and not messages, are what takes the time",
        "Further · Send less often, and less",
    )


def accelerate() -> Claim:
    """The third step of Accelerate beside DDP's."""
    steps = experiments.third_steps()
    own, step = steps["DDP"], steps.get("Accelerate")
    return Claim(
        "14-accelerate",
        "book-notes",
        "Accelerate does the same as DDP, with more optimizations",
        f"the model is a {step[0]}; {step[1]} all-reduce of {step[2]:,} bytes, DDP's own" if step else "",
        "untested: it takes the package accelerate, which is not installed here"
        if step is None
        else "partly: holds for what is sent; which optimizations more, the source does not say"
        if step == own
        else "refuted",
        "Further · torchrun and Accelerate",
    )


def listing() -> Claim:
    """The article's set-up of a process, without what torchrun puts into the environment."""
    names = "MASTER_ADDR", "MASTER_PORT"
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        next(dist.rendezvous("env://", rank=0, world_size=2))  # what init_process_group calls first
        message = "nothing"
    except ValueError as problem:
        message = str(problem).partition("rendezvous: ")[2]
    finally:
        os.environ.update(kept)
    return Claim(
        "14-listing",
        "five-strategies",
        '`init_process_group("nccl", rank=…, world_size=…)`, then `DDP(model.cuda(), device_ids=[local_rank])`, sets a process up',
        f"without torchrun it raises: {message}. `torch.cuda.set_device` is not in the listing either: not tried, without two GPUs",
        "partly: holds when torchrun or the caller has set the address"
        if "MASTER_ADDR" in message
        else "untested: this version says otherwise",
        "Further · torchrun and Accelerate",
    )


def on_trial() -> list[Claim]:
    """All of the lesson's claims."""
    claims = eight_cards, ddp_table, topology, buckets, nodes, compression, accelerate, listing
    return [claim() for claim in claims]
