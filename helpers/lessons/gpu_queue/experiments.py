"""Lesson 03: a training loop on a simulated GPU whose parts can be made faster, and what its traces say, as tables."""

from __future__ import annotations

import contextlib
import io
import linecache
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

import helpers.lessons.gpu_queue.recorded  # noqa: F401 - its experiments are known by their names
from helpers import plots, recordings, running_example, simulate, trace
from helpers.memory.analysis import Leak
from helpers.plots.picture import Picture
from helpers.running_example import rungs
from helpers.simulator.devices import DEVICES
from helpers.text.seconds import approx, format_seconds
from helpers.text.sizes import size_text
from helpers.text.tables import Table, table
from helpers.trace.steady import steady

SIMULATED = "simulated (H100)"
H100 = DEVICES["H100"]
#: sizes of the loop's layers and batch
SMALL, MIDDLE, LARGE = (
    {"width": 256, "batch": 64}, {"width": 2048, "batch": 1024}, {"width": 4096, "batch": 1024},
)  # fmt: skip


class Ran(NamedTuple):
    """The trace of some steps, and the seconds for one."""

    trace: trace.Trace
    step_s: float


def loop(
    width: int,
    batch: int,
    *,
    read: bool = False,
    prepare_s: float = 0.0,
    load: bool = False,
    cpu: float = 1,
    gpu: float = 1,
    pcie: float = 1,
    steps: int = 4,
) -> Ran:
    """Train four linear layers with SGD on a simulated H100.

    read: loss.item() in every step. prepare_s: seconds of Python for the next batch, in every step. load: copy the
    batch to the GPU in every step. cpu, gpu, pcie: how many times as fast that part of the machine is.
    """
    device: Any = simulate(machine(cpu, gpu, pcie))
    with device:
        layers = (nn.Linear(width, width, device=device.device) for _ in range(4))
        model = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.empty(batch, width) if load else torch.randn(batch, width, device=device.device)

        def step() -> None:
            with record_function("forward"):
                loss = model(x.to(device.device)).square().mean()
            with record_function("backward"):
                optimizer.zero_grad()
                loss.backward()
            with record_function("optimizer"):
                optimizer.step()
            if read:
                loss.item()
            if prepare_s:
                device.host_work(prepare_s / cpu)

        for _ in range(2):
            step()
        device.synchronize()
        began = device.clock()
        with device.profile() as prof:
            for _ in range(steps):
                step()
                prof.step()
        device.synchronize()
    return Ran(trace.read(prof), (device.clock() - began) / steps)


def machine(cpu: float, gpu: float, pcie: float) -> Any:
    """An H100 whose CPU, GPU and bus are so many times as fast."""
    a = H100.assumptions
    a = replace(a, operator_s=a.operator_s / cpu, launch_s=a.launch_s / cpu, view_s=a.view_s / cpu)
    a = replace(a, kernel_floor_s=a.kernel_floor_s / gpu, pageable_bytes_per_s=a.pageable_bytes_per_s * pcie)
    flops = {kind: rate * gpu for kind, rate in H100.peak_flops.items()}
    return replace(H100, peak_flops=flops, memory_bytes_per_s=H100.memory_bytes_per_s * gpu, assumptions=a)


def queues(loops: Mapping[str, Ran]) -> Table:
    """Of each loop: a step's time, how much the GPU computes, and the queue's depth."""
    rows = []
    for name, (t, step_s) in loops.items():
        depth, busy = trace.queue_depth(t), trace.shares(t).computes
        rows.append((name, format_seconds(step_s), f"{busy:.0%}", f"{depth.mean:.1f}", depth.deepest))
    columns = ["loop", "a step", "GPU computes", "queue: mean depth", "deepest"]
    return table(rows, columns, evidence=SIMULATED)


def second_step(t: trace.Trace) -> tuple[float, float]:
    """When the second step begins and ends, in seconds."""
    step = trace.steps(t)[1]
    return step.start_s, step.start_s + step.seconds_s


def launch_to_start_us(t: trace.Trace) -> float:
    """µs from a launch to the start of its kernel, where the GPU is free."""
    return float(min(t.work.start_ns - t.work.launch_ns)) / 1e3


def gpu_work_s(t: trace.Trace) -> float:
    """Seconds in which the GPU computes, a step."""
    steps = trace.steps(t)
    return sum(step.compute_s for step in steps) / len(steps)


def end_of_a_read(t: trace.Trace) -> float:
    """When the second .item() of a trace returns, in seconds."""
    reads: list[Any] = [row for row in t.rows("operator") if row["name"] == "aten::_local_scalar_dense"]
    return float(reads[1]["end_s"])


def waits_around_largest_gap(t: trace.Trace, before_us: float) -> tuple[float, float, float]:
    """The largest gap, in µs, and in what share of it, and of so many µs before it, the host waits for the device."""
    idle = trace.idle(t)
    ends = {gap: int(end) for gap, end in zip(idle.gap.tolist(), idle.end_ns, strict=True)}
    begins = {
        gap: int(start) for gap, start in zip(idle.gap.tolist()[::-1], idle.start_ns[::-1], strict=True)
    }
    largest = max(ends, key=lambda gap: ends[gap] - begins[gap])
    begin, end = begins[largest], ends[largest]

    def waits(start: float, stop: float) -> float:
        seen = t.end_ns[t.waiting].clip(start, stop) - t.start_ns[t.waiting].clip(start, stop)
        return float(seen.sum() / (stop - start))

    return (end - begin) / 1e3, waits(begin, end), waits(begin - 1e3 * before_us, begin)


# --- the map ------------------------------------------------------------------------------------------------------


class Tried(NamedTuple):
    """A loop as it is, and how many times as fast it is with each remedy; 1 where there is nothing to change."""

    ran: Ran
    gains: dict[str, float]

    @property
    def best(self) -> str:
        return max(self.gains, key=lambda remedy: self.gains[remedy])


#: what is tried on each loop: the settings that it changes
REMEDIES: dict[str, dict[str, Any]] = {
    "CPU": {"cpu": 2}, "GPU": {"gpu": 2}, "copies": {"pcie": 2}, "no reads": {"read": False}
}  # fmt: skip


def try_each(settings: Mapping[str, Any]) -> Tried:
    """The loop, and the same loop with each of REMEDIES."""
    ran = loop(**settings)
    nothing = {"copies": not settings.get("load"), "no reads": not settings.get("read")}
    return Tried(
        ran,
        {
            word: 1.0 if nothing.get(word) else ran.step_s / loop(**{**settings, **change}).step_s
            for word, change in REMEDIES.items()
        },
    )


def on_the_map(tried: Mapping[str, Tried]) -> Table:
    """Of each loop: the two shares, how much of its idle time a copy fills, and what each remedy gives."""
    rows = []
    for name, (ran, gains) in tried.items():
        shares, idle = trace.shares(ran.trace), trace.idle(ran.trace)
        copying = idle.seconds.get("waiting for a copy", 0)
        for_a_copy = f"{copying / idle.total:.0%}" if shares.computes < 0.95 else "—"  # hardly any idle time
        rows.append(
            (name, *(f"{share:.0%}" for share in shares), for_a_copy, *(f"{g:.2f}×" for g in gains.values()))
        )
    remedies = [word if word == "no reads" else f"{word} ×2" for word in REMEDIES]
    columns = ["loop", "GPU computes", "CPU waits", "idle for a copy", *remedies]
    caption = "— : hardly idle; on the right: times as fast with this remedy"
    return table(rows, columns, evidence=SIMULATED, caption=caption)


# --- a whole script -----------------------------------------------------------------------------------------------


def repairs(script: running_example.Script) -> dict[str, float]:
    """repair → how many times as fast a step of the script is with it alone; the last, with two of them."""

    def adamw(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)

    def scaled(model: nn.Module, most: float = 1.0) -> None:
        """The script's own clip, but for its `if`."""
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        length = torch.stack([grad.square().sum() for grad in grads]).sum().sqrt()
        factor = (most / length).clamp(max=1)
        for grad in grads:
            grad.mul_(factor)

    clip = {"clip": scaled}
    parts: dict[str, dict[str, Any]] = {
        "clip without a wait": clip,
        "log without a wait": {"log": rungs.log_every_five},
        "AdamW in few launches": {"optimizer": adamw},
        "clip and AdamW": clip | {"optimizer": adamw},
    }
    plain_s = running_example.score(script).step_s
    return {
        name: plain_s / running_example.score(script.replace(**new)).step_s for name, new in parts.items()
    }


def what_each_gives(gains: Mapping[str, float], leak: Leak) -> Table:
    """Each repair with what it gives; below, the leak, which is as large in every step."""
    rows = [(name, f"{gain:.2f}×") for name, gain in gains.items()]
    stays = f"the leak: {leak.site}: {size_text(leak.per_step[-1])} stay in every step"
    return table(rows, ["repair", "times as fast"], evidence=SIMULATED, caption=stays)


def lasting(seconds: float) -> str:
    """The largest of minutes, hours, days that fits."""
    return "days" if seconds >= 86_400 else "hours" if seconds >= 3_600 else "minutes"


#: three loops whose settings the learner does not see before the traces
UNKNOWN: dict[str, dict[str, Any]] = {
    "trace A": {"width": 3072, "batch": 2048, "read": True, "prepare_s": 0.2e-3},
    "trace B": {"width": 3072, "batch": 1024, "read": True, "prepare_s": 4e-3},
    "trace C": {"width": 1024, "batch": 512, "prepare_s": 2e-3},
}


def two_steps(name: str) -> Picture:
    """The queue during the second and the third step of one of UNKNOWN."""
    t = loop(**UNKNOWN[name]).trace
    begin, last = trace.steps(t)[1:3]
    return plots.queue(t, begin.start_s, last.start_s + last.seconds_s, title=name.replace("trace", "Trace"))


# --- which lines wait ---------------------------------------------------------------------------------------------


def one_batch() -> tuple[Any, dict[str, Any]]:
    """A simulated H100, and names for lines to run on it: loss, best, x, labels, mask, rows, page, pinned, w."""
    gpu: Any = simulate("H100")
    with gpu:
        x = torch.randn(64, 10, device=gpu.device)
        here: dict[str, Any] = {
            "torch": torch,
            "nn": nn,
            "F": nn.functional,
            "gpu": gpu,
            "x": x,
            "mask": x > 0,
        }
        here |= {"loss": x.sum(), "best": x.sum(), "rows": torch.arange(8, device=gpu.device)}
        here |= {"page": torch.randn(512, 512), "pinned": torch.randn(512, 512).pin_memory()}
        here |= {"labels": torch.randint(0, 10, (64,), device=gpu.device), "w": nn.Parameter(x.clone())}
        here["w"].grad = x.clone()
    return gpu, here


def who_waits(gpu: Any, lines: Sequence[str], here: dict[str, Any]) -> dict[str, list[str]]:
    """line → the operators that make the CPU wait for the GPU."""
    waits = {}
    with gpu:
        for line in lines:
            host = len(gpu.host)
            with contextlib.redirect_stdout(io.StringIO()):
                exec(line, here)
            waits[line] = sorted({record.name for record in gpu.host[host:] if record.kind == "sync"})
    return waits


def waits_by_line(waits: Mapping[str, Sequence[str]]) -> Table:
    """Each line with what waits in it."""
    rows = [(f"`{line}`", ", ".join(who) or "nothing") for line, who in waits.items()]
    return table(rows, ["line", "what waits"], evidence=SIMULATED)


def steps_of(train: Callable[..., Any]) -> tuple[float, Table]:
    """Waits a step of a training loop, and the lines that ``set_sync_debug_mode("warn")`` names."""
    gpu: Any = simulate("H100", values=True)
    steps = 3
    with gpu, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        model, labels = nn.Linear(8, 4).to(gpu.device), torch.arange(16, device=gpu.device) % 4
        batches = [(torch.randn(16, 8, device=gpu.device), labels)] * steps
        gpu.set_sync_debug_mode("warn")
        before = gpu.syncs
        train(gpu, model, batches, [1.0] * 4)
        waits = gpu.syncs - before
    messages = [(w, str(w.message)) for w in warned if "synchronizing" in str(w.message)]
    rows = [(f"`{_source(w)}`", message.rpartition(" ")[2]) for w, message in messages]
    return waits / steps, table(rows, ["line", "what waits"], evidence=SIMULATED)


def _source(warning: warnings.WarningMessage) -> str:
    line = linecache.getline(warning.filename, warning.lineno).partition("  #")[0]
    return line.strip() or f"line {warning.lineno}"


# --- busy is not fast ---------------------------------------------------------------------------------------------


class Used(NamedTuple):
    """Shares: of the time with a kernel, of the peak FLOP/s, of the peak bytes/s."""

    busy: float
    flops: float
    bytes: float


def used(make: Callable[[Any], Callable[[], Any]]) -> Used:
    """How much of an H100 a repeated work uses. make: from a simulated GPU to the work."""
    device: Any = simulate("H100")
    with device:
        work = make(device)
        work()
        device.synchronize()
        first = len(device.kernels)
        for _ in range(20):
            work()
        device.synchronize()
    ran = device.kernels[first:]
    span = (ran[-1].end_ns - ran[0].start_ns) / 1e9
    flops, moved = sum(k.flops for k in ran) / span, sum(k.bytes for k in ran) / span
    busy = sum(k.duration_s for k in ran) / span
    return Used(busy, flops / H100.peak_flops["fp32"], moved / H100.memory_bytes_per_s)


def product(device: Any) -> Callable[[], Any]:
    x = torch.randn(4096, 4096, device=device.device)
    return lambda: x @ x


def activation(device: Any) -> Callable[[], Any]:
    x = torch.randn(64 * 2**20, device=device.device)
    return lambda: torch.relu(x)


def tiny(device: Any) -> Callable[[], Any]:
    """Fifty small products, launched at once as a graph."""
    x = torch.randn(64, 64, device=device.device)
    x @ x
    graph = device.CUDAGraph()
    with device.graph(graph):
        for _ in range(50):
            x @ x
    return lambda: (graph.replay(), x)  # x has to live as long as the graph


#: three programs that keep a GPU busy
BUSY = {"one 4096 × 4096 product": product, "relu of 64 Mi numbers": activation, "50 tiny products": tiny}


def use_of_the_card(use: Mapping[str, Used]) -> Table:
    """The shares of each program, and its FLOP per byte beside those at which the two limits meet."""
    columns = ["program", "busy (“utilization”)", "of peak FLOP/s, fp32", "of peak bytes/s", "FLOP per byte"]
    ridge = H100.peak_flops["fp32"] / H100.memory_bytes_per_s
    rows = [
        (name, *(f"{share:.1%}" for share in u), f"{ridge * u.flops / u.bytes:.1f}")
        for name, u in use.items()
    ]
    caption = f"the two limits meet at {ridge:.0f} FLOP per byte"
    return table(rows, columns, evidence=SIMULATED, caption=caption)


# --- the profiler -------------------------------------------------------------------------------------------------


def steps_kept(schedule: Any, step_is_called: bool = True) -> list[int]:
    """Numbers of the steps that torch.profiler keeps with this schedule, of ten steps on this CPU."""
    model, data = nn.Linear(64, 64), torch.randn(32, 64)
    kept: list[int] = []

    def note(prof: Any) -> None:
        kept.extend(int(step.name.partition("#")[2]) for step in trace.steps(trace.read(prof)))

    options: dict[str, Any] = {"activities": [ProfilerActivity.CPU], "acc_events": True}
    with profile(schedule=schedule, on_trace_ready=note, **options) as prof:
        for _ in range(10):
            model(data)
            if step_is_called:
                prof.step()
    return [number for number in kept if number < 10]  # 10 is a mark for what follows the last prof.step()


# --- a real GPU ---------------------------------------------------------------------------------------------------


class LoopRun(NamedTuple):
    """A recorded loop as one machine ran it. step_s, cpu_s, gpu_s: seconds of a step in the middle of the trace, of the
    CPU without its waits, and of the GPU's kernels. unwatched_s: seconds of a step when no profiler looks on; the
    simulated profiler takes no time.
    """

    evidence: str
    step_s: float
    unwatched_s: float
    cpu_s: float
    gpu_s: float
    shares: trace.Shares
    bottleneck: str


def four_loops() -> dict[str, dict[str, LoopRun]]:
    """Four loops of this lesson's kinds: loop → "simulated", "recorded" and, where there is a GPU, "live"."""
    return {
        name: {result.kind: _run(name, result) for result in recordings.side_by_side(f"03/{name}")}
        for name in ("launch_bound", "steady", "item_in_loop", "read_and_prepare")
    }


@cache
def _unwatched_s(kind: str) -> dict[str, float]:
    """loop → seconds of a step without the profiler. kind: "recorded" or "live"."""
    rows = recordings.show("03/without_profiler", prefer=kind).table or ()
    return {row["loop"]: row["us"] / 1e6 for row in rows}


def _run(name: str, result: recordings.Result) -> LoopRun:
    t = result.trace
    assert t is not None
    part, shares = steady(t), trace.shares(t)
    middle = trace.steps(t)[1:-1]
    begin, end = part.device
    step_s = (end - begin) / 1e9 / part.steps
    cpu_s = sum(step.seconds_s - step.wait_s for step in middle) / len(middle)
    verdict = trace.classify(t).bottleneck
    unwatched_s = step_s if result.kind == "simulated" else _unwatched_s(result.kind)[name]
    return LoopRun(result.evidence, step_s, unwatched_s, cpu_s, shares.computes * step_s, shares, verdict)


def loops_beside(loops: Mapping[str, Mapping[str, LoopRun]]) -> Table:
    """Each loop of four_loops, as each machine ran it, and what classify says."""
    rows = []
    for name, runs in loops.items():
        for kind, run in runs.items():
            about = approx(run.evidence)
            cells = (f"{about}{share:.0%}" for share in run.shares)
            step, cpu, free = (about + format_seconds(s) for s in (run.step_s, run.cpu_s, run.unwatched_s))
            rows.append((name, kind, step, cpu, *cells, run.bottleneck, "" if kind == "simulated" else free))
    columns = ["loop", "run", "a step", "of it the CPU works", "GPU computes", "CPU waits", "trace.classify"]
    columns.append("a step, no profiler")
    evidence = " · ".join(run.evidence for run in next(iter(loops.values())).values())
    caption = "recorded and live: with the profiler, which lengthens the CPU's work; last column: without it"
    return table(rows, columns, evidence=evidence, caption=caption)


def between_kernels_s(name: str) -> float:
    """Of a recorded loop: median seconds between the end of a kernel and the start of the next, where it waits in the queue."""
    t = recordings.show(name, prefer="recorded").trace
    assert t is not None
    order = np.argsort(t.work.start_ns)
    starts, ends, launched = (a[order] for a in (t.work.start_ns, t.work.end_ns, t.work.launch_ns))
    return float(np.median((starts[1:] - ends[:-1])[launched[1:] < ends[:-1]])) / 1e9
