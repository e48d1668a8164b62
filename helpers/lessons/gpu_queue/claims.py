"""Claims on trial in lesson 03."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from helpers import trace
from helpers.lesson.claim import Claim
from helpers.lessons.gpu_queue import experiments
from helpers.lessons.gpu_queue.experiments import BUSY, Tried, steps_kept, used

MAP = "3 · A map"
GAPS = "2 · A read in every step"


def on_trial(tried: Mapping[str, Tried], prepare_alone: float) -> list[Claim]:
    """Every claim of the lesson.

    tried: the loops of the map. prepare_alone: a step with the Python and without the read, against one without both.
    """
    return [
        sparse(tried),
        dense(tried),
        zoom(tried),
        nsight_compute(),
        before_and_after(tried, prepare_alone),
        utilization(),
        schedule_recipe(),
        cuda_time_total(),
        nsys_memory(),
    ]


def sparse(tried: Mapping[str, Tried]) -> Claim:
    small, copied = tried["small layers"], tried["narrow, copied"]
    busy, waits = trace.shares(small.ran.trace).computes, trace.shares(copied.ran.trace)
    return Claim(
        "03-sparse-cpu",
        "book-notes",
        "A sparse GPU queue means that the bottleneck is on the CPU",
        f"small layers: GPU busy {busy:.0%}, CPU ×2 gives {small.gains['CPU']:.2f}×. Batches copied: GPU busy "
        f"{waits.computes:.0%}, CPU ×2 gives {copied.gains['CPU']:.2f}×, copies ×2 {copied.gains['copies']:.2f}×",
        "partly: holds when the CPU itself does not wait"
        if copied.gains["CPU"] < 1.1 < small.gains["CPU"]
        else "confirmed",
        MAP,
    )


def dense(tried: Mapping[str, Tried]) -> Claim:
    large, read = tried["large layers"].gains, tried["middle, read"].gains
    return Claim(
        "03-dense-gpu",
        "book-notes",
        "A dense GPU queue without gaps means that the bottleneck is the GPU's operators",
        f"large layers: GPU ×2 gives {large['GPU']:.2f}×, CPU ×2 {large['CPU']:.2f}×; with a read in each step: "
        f"{read['GPU']:.2f}× and {read['CPU']:.2f}×",
        "confirmed" if large["GPU"] > 1.5 > large["CPU"] else "refuted",
        MAP,
    )


def zoom(tried: Mapping[str, Tried]) -> Claim:
    turns = tried["middle, read and prepare"]
    gap_us, inside, before = experiments.waits_around_largest_gap(turns.ran.trace, 40)
    won = turns.gains["no reads"]
    return Claim(
        "03-gaps-zoom",
        "book-notes",
        "Dense with gaps: zoom in on the gap",
        f"read and prepare: “{trace.classify(turns.ran.trace).density}”; the CPU waits for the GPU in {inside:.0%} of the largest gap "
        f"({gap_us:,.0f} µs), and in {before:.0%} of the 40 µs before it; without the reads {won:.2f}×",
        "refuted: neither window shows the cause" if max(inside, before) < 0.1 < won - 1
        else "partly: holds when the window shows what is before the gap as well; the gap alone does not show the wait"
        if inside < 0.1 < won - 1
        else "confirmed",
        GAPS,
    )  # fmt: skip


def before_and_after(tried: Mapping[str, Tried], prepare_alone: float) -> Claim:
    won = tried["middle, read and prepare"].gains["no reads"] - 1
    return Claim(
        "03-before-and-after",
        "book-notes",
        "What the GPU and the CPU do before and after the gap tells the cause",
        f"in the gap: Python; the same Python without the read before the gap costs {prepare_alone - 1:+.0%}; the read "
        f"before it, taken out, wins {won:+.0%}",
        "confirmed: the cause stands before the gap; what fills it may be innocent"
        if won > 0.1 > prepare_alone - 1
        else "refuted",
        GAPS,
    )


def nsight_compute() -> Claim:
    return Claim(
        "03-nsight-compute",
        "book-notes",
        "In training, one usually thinks of Nsight Compute only to optimise CUDA operators",
        "",
        "untested: it says what people think of; to know it takes asking them",
        "Further · Nsight Systems, Nsight Compute",
    )


def utilization() -> Claim:
    """Three programs that keep a simulated H100 busy, and how much of the card they use."""
    uses = {name: used(make) for name, make in BUSY.items()}
    return Claim(
        "03-utilization",
        "compile-300",
        "`torch.cuda.utilization()` gives the use of the GPU",
        "; ".join(f"{name}: busy {u.busy:.0%}, {u.flops:.1%} of FLOP/s" for name, u in uses.items()),
        "partly: holds when it is low: then the GPU waits; a high one says only that something ran"
        if all(u.busy > 0.9 for u in uses.values()) and min(u.flops for u in uses.values()) < 0.1
        else "confirmed",
        "Further · Busy is not fast",
    )


def schedule_recipe() -> Claim:
    """Ten steps under the recipe's schedule, with prof.step() and without."""
    plan = schedule(wait=2, warmup=1, active=3)
    kept, forgotten = steps_kept(plan), steps_kept(plan, step_is_called=False)
    return Claim(
        "03-schedule-recipe",
        "five-strategies",
        "`schedule(wait=2, warmup=1, active=3)` around the training loop, as printed",
        f"ten steps: {len(kept)} recorded; without `prof.step()`, which the recipe leaves out: {len(forgotten)}",
        "confirmed" if forgotten else "partly: holds when every step ends with prof.step()",
        "Further · Record it yourself",
    )


def cuda_time_total() -> Claim:
    """The old name of a column to sort by, in a profile of one operator."""
    accepted = "accepted"
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        torch.ones(2).exp()
    try:
        prof.key_averages().table(sort_by="cuda_time_total", row_limit=1)
    except Exception as refused:
        accepted = f"refused ({type(refused).__name__})"
    return Claim(
        "03-cuda-time-total",
        "compile-300",
        '`key_averages().table(sort_by="cuda_time_total")`',
        f"this torch: {accepted}, with a profile of a CPU; the name of today is device_time_total",
        "confirmed" if accepted == "accepted" else "refuted",
        "Further · Record it yourself",
    )


def nsys_memory() -> Claim:
    return Claim(
        "03-nsys-memory",
        "compile-300",
        "Nsight Systems analyses memory access patterns, to improve the layout",
        "published: NVIDIA's guide (docs.nvidia.com/nsight-systems/UserGuide) has options that “track the GPU memory usage by CUDA kernels” and “the page "
        "faults that occur when GPU code tries to access a memory page that resides on the host”; of Nsight Compute's sections (docs.nvidia.com/"
        "nsight-compute/ProfilingGuide) Memory Workload Analysis is the “detailed analysis of the memory resources of the GPU”, for a kernel",
        "partly: of page faults and of what is in use; in what pattern a kernel reads and writes memory is Nsight Compute's part",
        "Further · Nsight Systems, Nsight Compute",
    )
