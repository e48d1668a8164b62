"""Lesson 14: a ring step by step, links and topologies, one training step on simulated ranks, what hooks send, tools."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import itertools
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor, nn

from helpers import ranks, simulate, widgets
from helpers.plots import style
from helpers.plots.picture import Picture, drawn
from helpers.simulator.world.buckets import Plan, overlap
from helpers.text.tables import Table, table

NDR, PCIE = "InfiniBand NDR", "PCIe 4.0 x16"
MB, GB = 10**6, 10**9
GPT2 = 124_439_808  #: parameters
DDP = nn.parallel.DistributedDataParallel
Takes = Callable[[int, int, str], float]


# --- 1, what is sent ----------------------------------------------------------------------------------------------


def layers(n: int = 4, width: int = 64) -> nn.Sequential:
    """n linear layers of width × width, each followed by tanh; the same weights on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(*(m for _ in range(n) for m in (nn.Linear(width, width), nn.Tanh())))


def batch() -> Tensor:
    """32 samples of 64 numbers."""
    return torch.randn(32, 64, generator=torch.Generator().manual_seed(1))


def _own_rows() -> Tensor:
    """In each rank: its samples of the batch."""
    return batch().chunk(dist.get_world_size())[dist.get_rank()]


def same_gradients(grads: Sequence[Tensor]) -> str:
    """Whether grads are those of layers() in one process that has the whole batch."""
    alone = layers()
    alone(batch()).square().mean().backward()
    wanted = [p.grad for p in alone.parameters() if p.grad is not None]
    same = all(torch.allclose(a, b, rtol=1e-4, atol=1e-7) for a, b in zip(wanted, grads, strict=True))
    return "yes" if same else "no"


def times_many(sent: int, parameters: int) -> str:
    """The numbers sent, against the parameters, in words."""
    words = {0.5: "half as many", 1.0: "as many", 2.0: "twice as many"}
    return words.get(sent / parameters, f"{sent / parameters:.2f} times as many")


def calls_in_words(record: ranks.Record) -> str:
    """The all-reduces of a step of layers()."""
    n = record.count("all_reduce")
    return {4: "4, one a layer", 8: "8, one a parameter"}.get(n, str(n))


def records_table(records: Mapping[str, ranks.Record]) -> Table:
    """The collectives of each moment, with their bytes."""
    rows = [
        (when, " · ".join(f"{c.kind} {c.bytes:,}" for c in record.calls)) for when, record in records.items()
    ]
    return table(
        rows,
        ["", "collectives of one rank, with their bytes (all_gather: of all ranks together)"],
        evidence="live (CPU)",
    )


# --- 2, what it takes ---------------------------------------------------------------------------------------------

RANGES = ("less than 2 times", "2 to 20 times", "more than 20 times")


def in_range(ratio: float) -> str:
    """Which of RANGES a ratio is in."""
    return RANGES[0] if ratio < 2 else RANGES[1] if ratio < 20 else RANGES[2]


_CELL = 0.255  #: inches of one piece in the picture of the ring


def _ring_states(n: int) -> list[tuple[list[list[int]], dict[int, int]]]:
    """After each step: addends in each rank's pieces, and which piece each rank has just received."""
    held = [[1] * n for _ in range(n)]
    states: list[tuple[list[list[int]], dict[int, int]]] = [([row[:] for row in held], {})]
    for step in range(2 * (n - 1)):
        got = {rank: (rank - step - 1) % n for rank in range(n)}
        sent = {rank: held[rank - 1][piece] for rank, piece in got.items()}
        for rank, piece in got.items():
            held[rank][piece] = held[rank][piece] + sent[rank] if step < n - 1 else sent[rank]
        states.append(([row[:] for row in held], got))
    return states


@drawn
def ring_steps(n: int = 4) -> Picture:
    """The pieces of each rank after each step of a ring all-reduce; the number in a piece: how many ranks' numbers are in it."""
    title = f"A ring all-reduce among {n} ranks, step by step"
    note = (
        "a row is a rank, with its pieces 0, 1, 2, …; the number in a piece says how many ranks' numbers are added up in it; "
        "framed: just received from the row above (rank 0 receives from the last row)"
    )
    fig, header = style.figure(n * _CELL + 0.85, evidence="arithmetic", title=title, note=note, placed=True)
    ax, states = style.inches_axes(fig), _ring_states(n)
    left, wide, top = 0.75, n * _CELL, header + 0.42
    gap = (style.WIDTH - left - 0.15 - len(states) * wide) / (len(states) - 1)
    for rank in range(n):
        ax.text(left - 0.1, top + (rank + 0.5) * _CELL, f"rank {rank}", ha="right", va="center")
    for step, (held, got) in enumerate(states):
        at = left + step * (wide + gap)
        _one_state(ax, at, top, held, got)
        ax.text(at + wide / 2, top - 0.08, f"step {step}" if step else "before", ha="center", va="bottom")
    for first, last, round_ in ((1, n - 1, "round 1: add"), (n, 2 * (n - 1), "round 2: pass the sums on")):
        begin, end = left + first * (wide + gap), left + last * (wide + gap) + wide
        low = top + n * _CELL + 0.1
        ax.plot([begin, end], [low, low], color=style.MUTED, lw=1.2)
        ax.text((begin + end) / 2, low + 0.06, round_, ha="center", va="top")
    return Picture(
        fig,
        "arithmetic",
        f"{title}: after {n - 1} steps each rank has one whole sum, after {2 * (n - 1)} all of them",
    )


def _one_state(ax: Axes, at: float, top: float, held: list[list[int]], got: Mapping[int, int]) -> None:
    n = len(held)
    for rank, row in enumerate(held):
        for piece, addends in enumerate(row):
            colour = style.blend(style.PAPER, style.BLUE, 0.12 + 0.88 * (addends - 1) / (n - 1))
            x, y = at + piece * _CELL, top + rank * _CELL
            ax.add_patch(Rectangle((x, y), _CELL, _CELL, facecolor=colour, edgecolor=style.MUTED, lw=0.6))
            ax.text(
                x + _CELL / 2, y + _CELL / 2, str(addends), ha="center", va="center", color=style.ink(colour)
            )
    for rank, piece in got.items():
        ax.add_patch(
            Rectangle(
                (at + piece * _CELL, top + rank * _CELL),
                _CELL,
                _CELL,
                fill=False,
                edgecolor=style.VERMILLION,
                lw=2.2,
            )
        )


def ways_table(takes: Takes) -> Table:
    """Ring and tree, for 1 MB and 1 GB."""
    rows = [
        (f"{n:,}", *(f"{takes(s, n, way) * 1e3:.2f} ms" for s in (MB, GB) for way in ("ring", "tree")))
        for n in (8, 64, 1024)
    ]
    return table(
        rows, ["ranks", "1 MB, ring", "1 MB, tree", "1 GB, ring", "1 GB, tree"], evidence="arithmetic"
    )


# --- 3 and 4, a training step on simulated ranks -------------------------------------------------------------------


class Run(NamedTuple):
    """Some training steps on a simulated GPU: the GPU, mean seconds of a step, and when the last step began on its clock."""

    gpu: Any
    seconds: float
    began_s: float


@functools.cache
def step_on(
    n: int,
    wrap: Callable[[nn.Module], Any] | None = None,
    after: Callable[[Any], None] | None = None,
    *,
    steps: int = 1,
    slow: tuple[tuple[int, float], ...] = (),
    jitter: float = 0.0,
    contention: bool = True,
) -> Run:
    """Rank 0 of n simulated H100s in nodes of 8; the model is 8 layers of 4096 × 4096 in bf16.

    wrap: what is trained in the model's place, such as DDP. after: called with it after each backward. slow: (rank,
    how many times as long its kernels take); jitter, contention: as `simulate(…).world` takes them.
    """
    across: dict[str, Any] = {"nodes": n // 8, "between": NDR} if n > 8 else {}
    gpu = simulate("H100").world(
        n, link="NVLink 4", slow=dict(slow) or None, jitter=jitter, contention=contention, **across
    )
    with gpu:
        kind: dict[str, Any] = {"device": gpu.device, "dtype": torch.bfloat16}
        plain = nn.Sequential(*(nn.Linear(4096, 4096, bias=False, **kind) for _ in range(8)))
        model = plain if wrap is None else wrap(plain)
        x = torch.empty(4096, 4096, **kind)
        begins = []
        for _ in range(2 + steps):  # two to warm up
            gpu.synchronize()
            begins.append(gpu.clock())
            model(x).sum().backward()
            if after is not None:
                after(model)
            model.zero_grad()
        gpu.synchronize()
        ended = gpu.clock()
    return Run(gpu, (ended - begins[2]) / steps, begins[-1])


def alone() -> Run:
    """The step without anybody else."""
    return step_on(1)


def uneven(n: int) -> Run:
    """DDP among n, with kernels that take longer or shorter at random, typically by 10 %."""
    return step_on(n, DDP, steps=4, jitter=0.1)


def one_slow(n: int = 64) -> Run:
    """DDP among n, with one rank whose kernels take half as long again."""
    return step_on(n, DDP, slow=((3, 1.5),))


def with_views(n: int) -> Run:
    """DDP among n, whose gradients become views of its buckets."""
    return step_on(n, functools.partial(DDP, gradient_as_bucket_view=True))


def left(run: Run) -> float:
    """What is left of n-fold work: the time of a step alone ÷ the time of a step among n."""
    return alone().seconds / run.seconds


def share(part: float) -> str:
    """A share in words."""
    if part >= 0.8:
        return "over 95 %" if part > 0.95 else "80 to 95 %"
    return "65 to 80 %" if part >= 0.65 else "under 65 %"


def points_of_2() -> tuple[float, ...]:
    """Points that DDP on 2 GPUs lacks to 100 %, then what they go into: copies, the exposed last all-reduce, a shared GPU."""
    both, free, single = (left(run) for run in (step_on(2, DDP), _without_contention(), step_on(1, DDP)))
    return tuple(100 * part for part in (1 - both, 1 - single, single - free, free - both))


def _without_contention() -> Run:
    return step_on(2, DDP, contention=False)


def efficiency_table(lump: Callable[[Any], None]) -> Table:
    """What is left of n-fold work, by the number of GPUs and the way; lump: sends all gradients after backward."""
    rows = []
    for n in (2, 8, 64, 1024):
        ways = [step_on(n, None, lump), step_on(n, DDP)]
        more = [f"{left(uneven(n)):.0%}" if n > 2 else "", f"{left(one_slow()):.0%}" if n == 64 else ""]
        rows.append((f"{n:,}", *(f"{left(run):.0%}" for run in ways), *more))
    free, single = _without_contention(), step_on(1, DDP)
    note = (
        f"time of a step alone ({alone().seconds * 1e3:.2f} ms) ÷ time of a step among n; nodes of 8, NVLink 4 inside, {NDR} between. "
        f"2 GPUs, if collectives took nothing from the kernels beside them: {left(free):.0%}; DDP on one GPU: {left(single):.0%}"
    )
    columns = ["GPUs", "in one message", "DDP", "DDP, uneven kernels", "DDP, one slow rank"]
    return table(rows, columns, evidence="simulated (H100)", caption=note)


# --- which bucket size? ---------------------------------------------------------------------------------------------

LEFT_OUT = "Without DDP's copies, and without what collectives take from the kernels"
CAPS: dict[str, Any] = {
    "default": "default", "1 MiB": 1, "5 MiB": 5, "25 MiB": 25, "100 MiB": 100, "all in one": 1000,
}  # fmt: skip


@functools.cache
def _explorer() -> widgets.BucketExplorer:
    return widgets.bucket_explorer(ranks=64)


@functools.cache
def plan(n: int, cap: str = "default") -> Plan:
    """A step of GPT-2 among n simulated H100s, with buckets of one of CAPS."""
    explorer = _explorer()
    explorer.set(ranks=n, cap_mb=CAPS[cap])
    return explorer.plan


def longer(run: Plan) -> str:
    """By how much the step is longer than forward and backward alone."""
    part = run.exposed_s / run.backward.seconds
    bounds = (("less than 1 %", 0.01), ("1 to 5 %", 0.05), ("5 to 25 %", 0.25))
    return next((name for name, most in bounds if part < most), "more than 25 %")


def against(a: float, b: float) -> str:
    """a beside b, where 5 % are about the same."""
    return "about the same" if abs(a / b - 1) < 0.05 else "shorter" if a < b else "longer"


def buckets_table() -> Table:
    """What GPT-2's step waits for, by bucket size and ranks, and what the largest gradient's own all-reduce takes."""
    counts = (8, 64, 1024)
    rows: list[tuple[Any, ...]] = [
        (name, len(plan(64, name).buckets), *(f"{plan(n, name).exposed_s * 1e6:,.0f} µs" for n in counts))
        for name in CAPS
    ]
    step = plan(64).backward
    largest = max(step.gradients, key=lambda g: g.bytes)
    floor = []
    for n in counts:
        _explorer().set(ranks=n)
        floor.append(_all_reduce(_explorer().world, n, largest.bytes))
    rows.append(("(the embedding alone)", 1, *(f"{t * 1e6:,.0f} µs" for t in floor)))
    note = (
        f"forward and backward alone take {step.seconds * 1e3:.1f} ms. Of {step.bytes / 1e6:.0f} MB of gradients "
        f"{largest.bytes / 1e6:.0f} are {largest.name}'s, number {step.gradients.index(largest) + 1} of {len(step.gradients)} to be ready. "
        f"{LEFT_OUT}"
    )
    columns = ["bucket", "all-reduces", "exposed, 8 ranks", "64 ranks", "1,024 ranks"]
    return table(rows, columns, evidence="simulated (H100)", caption=note)


@functools.cache
def _slow_network(n: int) -> Callable[[int], float]:
    """Bytes → seconds of an all-reduce among n ranks in nodes of 8, NVLink 4 inside, joined by 25 Gbit/s."""
    world = widgets.bucket_explorer(plan(64).backward, ranks=n, between="Ethernet 25G").world
    return functools.partial(_all_reduce, world, n)


def slow_plan(n: int, cap: str) -> Plan:
    """A step of GPT-2 among n over that network, with buckets of one of CAPS."""
    return overlap(plan(64).backward, _slow_network(n), None if cap == "default" else CAPS[cap])


def waits_less(n: int, *caps: str) -> str:
    """Which of these sizes leaves the least time exposed among n, over that network."""
    return min(caps, key=lambda cap: slow_plan(n, cap).exposed_s)


def slow_numbers() -> tuple[float, ...]:
    """Of that step: ms alone, ms of one message among 64, ms from the first gradient to the end of backward; MB of gradients."""
    step, lump = plan(64).backward, slow_plan(64, "all in one")
    times = step.seconds, lump.communication_s, step.seconds - step.gradients[0].ready_s
    return *(1e3 * seconds for seconds in times), step.bytes / MB


SLOW = (
    "GPT-2, forward and backward alone take {:.1f} ms; NVLink 4 inside, Ethernet 25G between nodes. "
    + LEFT_OUT
)


def slow_table() -> Table:
    """What GPT-2's step waits for over that network, by bucket size."""
    rows = []
    for name in CAPS:
        plans = [slow_plan(n, name) for n in (16, 64)]
        what = "default: 1 MiB, then 25" if name == "default" else name
        rows.append((what, len(plans[0].buckets), *(f"{run.exposed_s * 1e3:.1f} ms" for run in plans)))
    columns = ["bucket", "all-reduces", "exposed, 16 ranks", "exposed, 64 ranks"]
    note = SLOW.format(plan(64).backward.seconds * 1e3)
    return table(rows, columns, evidence="simulated (H100)", caption=note)


def caps_table(choose: Callable[[list[int], list[float], float, float], float]) -> Table | str:
    """choose_cap on GPT-2 over that network, 16 and 64 ranks, beside the best of all sizes for 64 and DDP's default."""
    step, slow = plan(64).backward, {n: _slow_network(n) for n in (16, 64)}
    try:
        caps: dict[str, float | None] = {}
        for n, seconds in slow.items():
            byte_s = (seconds(100 * MB) - seconds(0)) / (100 * MB)
            sizes, ready_s = [g.bytes for g in step.gradients], [g.ready_s for g in step.gradients]
            caps[f"yours, for {n} ranks"] = choose(sizes, ready_s, seconds(0), byte_s) / 2**20
    except NotImplementedError:
        return "for later: this cell wants your choose_cap of exercise 14.2"
    caps["the best of all, for 64"] = _best_cap(step, slow[64]) / 2**20
    rows = [
        (
            name,
            f"{mib:.1f} MiB" if mib else "1 MiB, then 25",
            *(f"{overlap(step, f, mib).exposed_s * 1e3:.1f} ms" for f in slow.values()),
        )
        for name, mib in (caps | {"DDP's default": None}).items()
    ]
    columns = ["", "bucket", "exposed, 16 ranks", "exposed, 64 ranks"]
    return table(
        rows, columns, evidence="simulated (H100)", caption=SLOW.format(plan(64).backward.seconds * 1e3)
    )


def _best_cap(step: Any, seconds: Callable[[int], float]) -> int:
    """Bytes of a bucket, of all the sizes that cut differently, that leave least exposed."""
    ends = [0, *itertools.accumulate(gradient.bytes for gradient in step.gradients)]
    sums = {b - a for a, b in itertools.combinations(ends, 2)}
    return min(sorted(sums), key=lambda size: overlap(step, seconds, size / 2**20).exposed_s)


def _all_reduce(world: Any, n: int, size: int) -> float:
    """Seconds among all n ranks."""
    return float(world.seconds("all_reduce", size, tuple(range(n))))


def try_ddp(own: Callable[[nn.Module], Any]) -> Any:
    """The learner's BucketedDDP among 64, as a picture; a word where it is not written yet."""
    from helpers import plots

    try:
        run = step_on(64, own, lambda ddp: ddp.finish())
    except NotImplementedError:
        return "for later: this cell wants your BucketedDDP of exercise 14.3"
    torchs = step_on(64, DDP)
    pair = {"yours": (run.gpu, run.began_s), "torch's": (torchs.gpu, torchs.began_s)}
    return plots.compared(pair, title="One step on rank 0 of 64: your DDP and torch's")


# --- who is joined to whom ------------------------------------------------------------------------------------------


@functools.cache
def among_64(way: str) -> float:
    """Seconds to sum GPT-2's gradients (bf16) over 64 GPUs in 8 nodes; way: ring, tree, hierarchical."""
    world = simulate("H100").world(64, nodes=8, link="NVLink 4", between=NDR, algorithm=way).ranks
    assert world is not None
    return _all_reduce(world, 64, 2 * GPT2)


def among_8(link: str, way: str) -> float:
    """The same over 8 GPUs, all over one kind of link."""
    return ranks.seconds("all_reduce", 2 * GPT2, 8, link, way)


def topology_table() -> Table:
    """Four links, and one all-reduce of GPT-2's gradients over each, by algorithm; and over 64 GPUs in nodes."""
    rows: list[tuple[str, ...]] = []
    for name in ("NVLink 4", "PCIe 5.0 x16", NDR, "Ethernet 25G"):
        link = ranks.LINKS[name]
        times = [f"{among_8(name, way) * 1e3:.2f} ms" for way in ("star", "ring", "tree")]
        gbs = link.bytes_per_s / 1e9
        alpha, rate = f"{link.latency_s * 1e6:.1f} µs", f"{gbs:.{0 if gbs > 10 else 1}f}"
        rows.append((f"8, {name}", alpha, rate, *times, ""))
    ways = "ring", "tree", "hierarchical"
    rows.append(("64 in 8 nodes", "", "", "", *(f"{among_64(way) * 1e3:.2f} ms" for way in ways)))
    note = (
        f"one all-reduce of {2 * GPT2 / MB:.0f} MB; 64: NVLink 4 inside, {NDR} between. Rates: published; α: NCCL's of 2020, "
        "Ethernet's assumed; sources: helpers/ranks/links.csv"
    )
    columns = ["GPUs, over", "α", "GB/s", "star", "ring", "tree", "the node first"]
    return table(rows, columns, evidence="arithmetic", caption=note)


# --- DataParallel ---------------------------------------------------------------------------------------------------


def copying(n: int, way: str) -> float:
    """Seconds in which DataParallel sends GPT-2's weights to n GPUs and its gradients back; way: star, ring."""
    return sum(ranks.seconds(kind, 4 * GPT2, n, PCIE, way) for kind in ("broadcast", "reduce"))


def summing(n: int) -> float:
    """Seconds of DDP's all-reduce of the same gradients."""
    return ranks.seconds("all_reduce", 4 * GPT2, n, PCIE)


def starts_threads() -> bool:
    """Whether DataParallel runs its replicas in threads, by its source."""
    return "threading.Thread(" in inspect.getsource(nn.parallel.parallel_apply)


def limits_of_eight() -> int:
    """Conditions with a device and the number 8 in DataParallel's source."""
    lines = inspect.getsource(nn.DataParallel).splitlines()
    return sum("device" in line and "8" in line for line in lines if "if " in line)


# --- send less often, and less --------------------------------------------------------------------------------------


def top_tenth(bucket: Any) -> torch.futures.Future[Tensor]:
    """A comm hook: of each bucket only the tenth of the numbers that is largest, with their places, by all-gather."""
    flat, n = bucket.buffer(), dist.get_world_size()
    at = flat.abs().topk(max(1, len(flat) // 10)).indices
    places, values = at.int(), flat[at]
    every = [(torch.empty_like(places), torch.empty_like(values)) for _ in range(n)]
    dist.all_gather([p for p, _ in every], places)
    dist.all_gather([v for _, v in every], values)
    mean = torch.zeros_like(flat)
    for p, v in every:
        mean.index_add_(0, p.long(), v / n)
    future: torch.futures.Future[Tensor] = torch.futures.Future()
    future.set_result(mean)
    return future


def four_passes(
    accumulated: Callable[[Any, Sequence[Tensor]], None] | None = None, own: Any = None
) -> dict[str, ranks.Record]:
    """In each rank: what four backward passes send, each way. accumulated: how a learner writes them with no_sync; own: a hook."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

    logging.getLogger(power.__name__).setLevel("ERROR")
    hooks: dict[str, tuple[Any, Any]] = {
        "16 bits": (None, default_hooks.fp16_compress_hook),
        "the largest tenth": (None, lambda state, bucket: top_tenth(bucket)),  # torch reads annotations
        "rank-1 factors": (power.PowerSGDState(None, 1, start_powerSGD_iter=2), power.powerSGD_hook),
    }
    if own is not None:
        hooks = {"8 bits, fed back": ({}, own)}
    ways = ["plain", *(["no_sync"] if accumulated is not None else []), *hooks]
    mine, sent = _own_rows(), {}
    for way in ways:
        model = layers()
        ddp = DDP(model)
        if way in hooks:
            ddp.register_comm_hook(*hooks[way])
        for _ in range(3):  # these are not counted
            ddp(mine).square().mean().backward()
        with ranks.sent(model) as record:
            if way == "no_sync" and accumulated is not None:
                accumulated(ddp, [mine] * 4)
            else:
                for _ in range(4):
                    ddp(mine).square().mean().backward()
        sent[way] = record
    return sent


@functools.cache
def sending() -> dict[str, ranks.Record]:
    """four_passes on two live ranks: way → what rank 0 sent."""
    sent: dict[str, ranks.Record] = ranks.run_ranks(four_passes, 2)[0]
    return sent


def passes_table(sent: Mapping[str, ranks.Record]) -> Table:
    """Collectives, bytes on the wire and the types of the largest, of each way."""

    def types(record: ranks.Record) -> str:
        most = max(call.bytes for call in record.calls)
        return " and ".join(dict.fromkeys(str(call.dtype) for call in record.calls if call.bytes == most))

    rows = [(way, r.count(), f"{r.wire_bytes():,.0f}", types(r)) for way, r in sent.items()]
    columns = ["four backward passes", "collectives", "bytes that a rank sends", "as"]
    return table(rows, columns, evidence="live (CPU)", caption="two ranks, 16,640 parameters")


def try_hook(own: Any) -> Table | str:
    """passes_table with the learner's hook; a word where it is not written yet."""
    try:
        return passes_table(ranks.run_ranks(four_passes, 2, None, own)[0])
    except ranks.RankError as problem:
        if problem.kind == "NotImplementedError":
            return "for later: this cell wants your int8_hook of exercise 14.4"
        return str(problem)


def float_and_int8(numbers: int, link: str) -> tuple[float, float]:
    """Seconds to sum so many numbers over 8 ranks, as float32 and as int8 after a message for the common scale."""
    whole, eighth = (ranks.seconds("all_reduce", numbers * size, 8, link) for size in (4, 1))
    return whole, eighth + ranks.seconds("all_reduce", 4, 8, link)


def bits_table() -> Table:
    """float_and_int8 for three sizes and two links."""
    rows = []
    for numbers in (10**4, 10**6, 10**8):
        for link in ("NVLink 4", "Ethernet 25G"):
            whole, less = float_and_int8(numbers, link)
            rows.append((f"{numbers:,}", link, f"{whole * 1e6:,.0f} µs", f"{less * 1e6:,.0f} µs"))
    return table(rows, ["numbers", "8 ranks over", "float32", "int8, after the scale"], evidence="arithmetic")


# --- the tools ------------------------------------------------------------------------------------------------------


def torchrun(script: str, n: int = 2) -> str:
    """What the script's n processes print, started by torchrun, sorted by rank."""
    path = Path(tempfile.mkdtemp()) / "train.py"
    path.write_text(script, encoding="utf-8")
    line = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(n),
        str(path),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            line, env=environment, capture_output=True, encoding="utf-8", timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        return "torchrun had not finished after two minutes here"
    lines = "\n".join(sorted(done.stdout.splitlines()))
    return lines or f"it did not run here; its last words: {done.stderr.strip()[-300:]}"


def third_step(by_accelerate: bool) -> tuple[str, int, int]:
    """In each rank: what layers() becomes by DDP or by Accelerate, and the all-reduces and bytes of its third step."""
    model, mine = layers(), _own_rows()
    wrapped: nn.Module = model
    backward: Callable[[Tensor], None] = Tensor.backward
    if by_accelerate:
        # torchrun would have set them; nobody connects
        os.environ.update({"MASTER_PORT": "29500", "OMP_NUM_THREADS": "1"})
        accelerator: Any = importlib.import_module("accelerate").Accelerator(cpu=True)  # part of an extra
        wrapped, backward = accelerator.prepare(model), accelerator.backward
    else:
        wrapped = DDP(model)
    for _ in range(3):
        with ranks.sent(model) as record:
            backward(wrapped(mine).square().mean())
    return type(wrapped).__name__, record.count("all_reduce"), record.bytes("all_reduce")


@functools.cache
def third_steps() -> dict[str, tuple[str, int, int]]:
    """third_step on two live ranks, by DDP and, where it is installed, by Accelerate."""
    ways = {"DDP": False} | ({"Accelerate": True} if importlib.util.find_spec("accelerate") else {})
    return {way: ranks.run_ranks(third_step, 2, by)[0] for way, by in ways.items()}


def accelerate_table() -> Table:
    """The third step of DDP and of Accelerate."""
    rows = [(way, *step) for way, step in third_steps().items()]
    note = "" if len(rows) > 1 else "accelerate is not installed here (`make lab EXTRAS=models`)"
    columns = ["third step", "the model is a", "all-reduces", "bytes"]
    return table(rows, columns, evidence="live (CPU)", caption=note)
