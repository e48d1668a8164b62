"""Lesson 07: what a replay launches and computes, which mistakes it hides, what cannot be captured, what a graph costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

import helpers.lessons.cuda_graphs.recorded  # noqa: F401 - its experiments are known by their names
from helpers import plots, simulate, trace
from helpers.lesson.predictions import nearest as nearest
from helpers.plots import Picture
from helpers.pytorch import private_torch
from helpers.recordings import Result
from helpers.simulator.stretch import stretch
from helpers.text.seconds import format_seconds
from helpers.text.tables import Table, table

SIMULATED = "simulated (H100)"
Step = Callable[[], Any]


# --- a training step, eager and replayed --------------------------------------------------------------------------


@dataclass(frozen=True)
class Loop:
    """A loop of ten steps on a simulated GPU. Launches, kernels, bytes copied and seconds are those of one step.

    computing: seconds in which kernels run. window: a stretch of the loop for a picture, seconds on the GPU's clock.
    """

    gpu: Any
    launches: int
    kernels: int
    copied: int
    computing: float
    seconds: float
    window: tuple[float, float]

    @property
    def share(self) -> float:
        """The share of the time in which the GPU computes."""
        return self.computing / self.seconds


def layers(gpu: Any, width: int = 256, count: int = 8) -> nn.Module:
    """Linear layers of width × width with a ReLU each, on the GPU."""
    parts = [nn.Sequential(nn.Linear(width, width, device=gpu.device), nn.ReLU()) for _ in range(count)]
    return nn.Sequential(*parts)


def ten_steps(prepare: Callable[[Any, Step], Step], batch: int = 64, width: int = 256) -> Loop:
    """Ten training steps of eight layers with SGD and momentum; before each the next batch is copied in, two tensors.

    prepare: called with the GPU and the step; returns what the loop calls in the step's place.
    """
    gpu = simulate("H100")
    with gpu:
        model = layers(gpu, width)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        x, y = (torch.empty(batch, width, device=gpu.device) for _ in range(2))
        pinned = [torch.empty(batch, width, pin_memory=True) for _ in range(2)]

        def step() -> None:
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()

        for _ in range(3):
            step()
        run = prepare(gpu, step)

        def ten() -> None:
            for _ in range(10):
                for static, fresh in zip((x, y), pinned, strict=True):
                    static.copy_(fresh, non_blocking=True)
                run()

        ran = stretch(gpu, ten)
    computing = [k for k in ran.kernels if k.kind == "kernel"]
    return Loop(
        gpu,
        round(ran.launches / 10),
        round(len(computing) / 10),
        round(sum(k.bytes for k in ran.kernels if k.kind == "copy h2d") / 10),
        sum(k.duration_s for k in computing) / 10,
        ran.seconds / 10,
        (ran.began_s + 25e-6, ran.began_s + 445e-6),
    )


def compared(loops: Mapping[str, Loop]) -> Table:
    """A row for each loop: launches, kernels, time of a step, and how much of it the GPU computes."""
    rows = [
        (way, r.launches, r.kernels, format_seconds(r.seconds), format_seconds(r.computing))
        + (f"{r.share:.0%}",)
        for way, r in loops.items()
    ]
    columns = ["step", "launches", "kernels run", "time", "GPU computes", "share"]
    return table(
        rows, columns, evidence=SIMULATED, caption="average of ten steps, copies of the batch included"
    )


def queues(eager: Loop, replayed: Loop) -> list[Picture]:
    """The GPU's queue in a window of each loop."""
    titles = {
        "Eager: the GPU waits for the CPU": eager,
        "Replayed, a window as long: several steps, and the CPU waits for the GPU": replayed,
    }
    return [plots.queue(trace.read(loop.gpu), *loop.window, title=title) for title, loop in titles.items()]


def growing_batch(capture: Callable[[Any, Step], Any]) -> tuple[dict[int, Loop], dict[int, Loop]]:
    """Batch → ten steps: eager, and replayed from the graph that `capture` returns."""
    batches = (16, 64, 128, 256, 512, 1024, 4096, 16384)
    eager = {b: ten_steps(lambda gpu, step: step, batch=b) for b in batches}
    return eager, {b: ten_steps(lambda gpu, step: capture(gpu, step).replay, batch=b) for b in batches}


def floor_and_slope(eager: Mapping[int, Loop], replayed: Mapping[int, Loop]) -> Picture:
    """Time of a step against the batch: eager, replayed, and the kernels alone."""
    batches = list(eager)
    return plots.curves(
        {
            "": {
                "eager": (batches, [r.seconds for r in eager.values()]),
                "replayed": (batches, [r.seconds for r in replayed.values()]),
                "kernels alone": (batches, [r.computing for r in replayed.values()]),
            }
        },
        evidence=SIMULATED,
        title="A graph takes away the time of the launches, and leaves the kernels",
        note="both axes logarithmic; from batch 1,024 on eager lies under replayed",
        xlabel="batch",
        ylabel="time of a step",
        log="xy",
        times=True,
    )


# --- what a recording holds ---------------------------------------------------------------------------------------


@dataclass
class Replays:
    """Replays of a graph, each after a change. y and noise: what the graph writes."""

    graph: Any
    y: Tensor
    noise: Tensor
    _seen: dict[str, tuple[list[float], list[float]]] = field(default_factory=dict)

    def after(self, change: str) -> None:
        """Replay, and note the results."""
        self.graph.replay()
        self._seen[change] = self.y.tolist(), self.noise.tolist()

    def answers(self) -> dict[str, str]:
        """ "yes" or "no" for each change: is y another than before? And for what a replay draws and overwrites."""
        results = list(self._seen.values())
        changes = {name: results[i][0] != results[i - 1][0] for i, name in enumerate(self._seen) if i}
        changes["torch.rand gives new numbers"] = results[0][1] != results[-1][1]
        changes["first = y after replay 1; does first change later?"] = self.y.tolist() != results[0][0]
        return {name: "yes" if changed else "no" for name, changed in changes.items()}

    def table(self) -> Table:
        """A row a replay: y, and whether torch.rand drew what it drew before; `first` is y by another name."""
        draws = [noise for _, noise in self._seen.values()]
        rows = [
            (change, str(y), str(y), "" if not i else "new" if draws[i] != draws[i - 1] else "as before")
            for i, (change, (y, _)) in enumerate(self._seen.items())
        ]
        columns = ["then a replay", "y", "first", "numbers of torch.rand"]
        return table(rows, columns, evidence=SIMULATED, caption="with true values")


# --- mistakes in a training loop ----------------------------------------------------------------------------------

MISTAKES = ("stale", "moved", "baked")
NOISE = 0.7  # standard deviation of what no model can predict


@dataclass(frozen=True)
class Run:
    """Losses of a training run: what the step reports (means of nine steps), and the held model's on test data."""

    reported: list[float]
    true: list[float]


@cache
def training_run(mistake: str = "", graphed: bool = True, steps: int = 72) -> Run:
    """A small regression, one of whose captures has the mistake: "stale", "moved", "baked", or none."""
    g = torch.Generator().manual_seed(0)
    teacher = torch.randn(16, 1, generator=g)

    def batch(n: int, noise: float) -> tuple[Tensor, Tensor]:
        x = torch.randn(n, 16, generator=g)
        return x, torch.tanh(x @ teacher) + noise * torch.randn(n, 1, generator=g)

    data, (test_x, test_y) = [batch(32, NOISE) for _ in range(steps)], batch(512, 0.0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
    reported, true, held = [], [], []
    with simulate("H100", values=True) as gpu:
        model.to(gpu.device)
        params = list(model.parameters())
        x, y = (t.clone() for t in data[0])
        rate, number = torch.zeros((), device=gpu.device), _cosine(0, steps)

        def step() -> Tensor:
            loss = (model(x) - y).square().mean()
            with torch.no_grad():
                for p, grad in zip(params, torch.autograd.grad(loss, params), strict=True):
                    p.sub_(grad * (number if mistake == "baked" else rate))
            return loss.detach()

        graph = gpu.CUDAGraph()
        if graphed:
            with gpu.graph(graph):
                loss = step()
        for i, (new_x, new_y) in enumerate(data):
            if graphed and mistake == "stale":
                new_x, new_y = new_x.clone(), new_y.clone()  # lie somewhere else
            else:
                x.copy_(new_x)
                y.copy_(new_y)
            number = _cosine(i, steps)
            rate.fill_(number)
            if mistake == "moved" and i == steps // 3:
                for p in params:
                    # as an optimizer still holds it; else the replay would read memory that was given back
                    held.append(p.data)
                    p.data = p.data.clone()  # what load_state_dict(..., assign=True) does
            if graphed:
                graph.replay()
            else:
                loss = step()
            reported.append(loss.item())
            if i % 4 == 0:
                with torch.no_grad():
                    true.append((model(test_x) - test_y).square().mean().item())
    return Run([sum(reported[i : i + 9]) / 9 for i in range(0, steps, 9)], true)


def _cosine(i: int, steps: int) -> float:
    return 0.16 * (1 + math.cos(math.pi * i / steps)) + 1e-4


def late_loss(mistake: str) -> str:
    """The loss that the step reports in the second half: "higher" than, "lower" than or the "same" as the correct run's.

    ValueError if one of them is no number: every comparison with nan is False.
    """
    correct, mine = (sum(training_run(which).reported[4:]) for which in ("", mistake))
    if not (math.isfinite(correct) and math.isfinite(mine)):
        raise ValueError(
            f"losses of {mistake!r} in the second half: {mine}, and {correct} of the correct run"
        )
    return "higher" if mine > 1.05 * correct else "lower" if mine < 0.95 * correct else "same"


def loss_curves() -> Picture:
    """What the step reports and what the held model reaches: the correct capture and the three mistakes."""
    runs = {name or "correct": training_run(name) for name in ("", *MISTAKES)}
    same = runs["correct"] == training_run(graphed=False)
    return plots.curves(
        {
            "what the step reports": {name: (range(4, 72, 9), run.reported) for name, run in runs.items()},
            "the model you hold, on test data": {
                name: (range(0, 72, 4), run.true) for name, run in runs.items()
            },
        },
        evidence=SIMULATED,
        title="One correct capture and three mistakes that raise nothing",
        note="with true values · left: mean of 9 steps, on noisy data; correct lies on moved · correct equals eager, "
        f"bit for bit: {'yes' if same else 'no'}",
        xlabel="step",
        ylabel="loss",
        dashed=("correct",),
    )


# --- what cannot be captured --------------------------------------------------------------------------------------


def tried(lines: Mapping[str, Callable[[Any], Any]]) -> tuple[dict[str, str], Table]:
    """Each line captured on a simulated GPU: "can be captured" or "cannot", and a table of the reasons.

    A line is called with a namespace: x, a tensor; p, a parameter with a gradient; optimizer, AdamW([p]) after a step;
    pinned, CPU memory; device.
    """
    answers, reasons = {}, []
    for line, attempt in lines.items():
        with simulate("H100", strict=False) as gpu:
            x, p = torch.ones(64, 64, device=gpu.device), nn.Parameter(torch.ones(64, 64, device=gpu.device))
            p.grad = torch.ones_like(p)
            optimizer = torch.optim.AdamW([p])
            optimizer.step()
            pinned = torch.empty(64, 64, pin_memory=True)
            own = SimpleNamespace(x=x, p=p, optimizer=optimizer, pinned=pinned, device=gpu.device)
            refusal = ""
            try:
                with gpu.graph(gpu.CUDAGraph()):
                    x.add_(1)
                    attempt(own)
            except RuntimeError as error:
                refusal = f"{error} "
            refusal = refusal or (gpu.faults[0].split(": ", 2)[2] if gpu.faults else "")
        answers[line] = "cannot" if refusal else "can be captured"
        if refusal:
            words = refusal.split(". ")[0].strip()
            reasons.append((f"`{line}`", words if len(words) < 105 else f"{words[:104]}…"))
    return answers, table(
        reasons,
        ["refused", "in the words of CUDA and PyTorch"],
        evidence=SIMULATED,
        caption="on a real GPU such a line raises, and the capture is lost",
    )


# --- what a graph costs -------------------------------------------------------------------------------------------

BATCHES = (8192, 4096, 2048, 1024)


def reserved(batches: Sequence[int], shared: bool) -> list[float]:
    """MiB that graphs of a forward pass of eight layers reserve, after each of them. shared: all in one pool."""
    gpu, held = simulate("H100"), []
    with gpu, torch.no_grad():
        model, inputs = layers(gpu, 1024), [torch.empty(b, 1024, device=gpu.device) for b in batches]
        model(inputs[0])
        gpu.synchronize()
        gpu.empty_cache()
        before, pool, kept = gpu.memory_reserved(), gpu.graph_pool_handle() if shared else None, []
        for x in inputs:
            graph = gpu.CUDAGraph()
            with gpu.graph(graph, pool=pool):
                out = model(x)
            kept.append((graph, out))
            gpu.empty_cache()
            held.append((gpu.memory_reserved() - before) / 2**20)
    return held


def pools(held: Mapping[str, Sequence[float]]) -> Table:
    """MiB after one, two, three and four graphs."""
    return table(
        [(name, *(f"{mib:,.0f} MiB" for mib in of)) for name, of in held.items()],
        ["reserved by the graphs", "one graph", "two", "three", "four"],
        evidence=SIMULATED,
        caption=f"batches {', '.join(f'{b:,}' for b in BATCHES)}, captured in this order; in the last row the other way round; "
        "32 MiB of each row's first graph are cuBLAS's workspace",
    )


# --- graphs that others make --------------------------------------------------------------------------------------


@cache
def launches(graphed: bool) -> int:
    """Launches of a training step, with the model from make_graphed_callables or as it is."""
    gpu = simulate("H100")
    with gpu:
        model, x = layers(gpu), torch.empty(64, 256, device=gpu.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        call = gpu.make_graphed_callables(model, (x,)) if graphed else model
        for _ in range(3):
            before = gpu.launches
            optimizer.zero_grad()
            call(x).square().mean().backward()
            optimizer.step()
    return int(gpu.launches - before)


@cache
def reduce_overhead() -> tuple[str, int]:
    """The options that the mode sets, and how many graphs it skipped when it compiled for this CPU."""
    counters = private_torch.dynamo_counters
    counters.clear()
    options = private_torch.list_mode_options("reduce-overhead")
    try:
        torch.compile(torch.mm, mode="reduce-overhead")(torch.eye(4), torch.eye(4))
    except Exception as error:  # no C++ compiler on this machine
        print(f"not compiled here: {type(error).__name__}")
    return ", ".join(f"{k} = {v}" for k, v in options.items()), counters["inductor"]["cudagraph_skips"]


# --- does it pay --------------------------------------------------------------------------------------------------


def loop_seconds(sizes: Sequence[int], waits: bool, graphed: bool) -> float:
    """Seconds of one step of a loop of ten: one kernel for each size. waits: the CPU waits at the end of each step."""
    gpu = simulate("H100")
    with gpu:
        work = [torch.empty(n, device=gpu.device) for n in sizes]
        fresh, static = torch.empty(2, 1000, device=gpu.device)

        def eager() -> None:
            for t in work:
                t.mul_(2)

        for _ in range(2):
            static.copy_(fresh)
            graph = gpu.CUDAGraph()
            with gpu.graph(graph):
                eager()
        eager()

        def ten() -> None:
            for _ in range(10):
                if graphed:
                    static.copy_(fresh)
                    graph.replay()
                else:
                    eager()
                if waits:
                    gpu.synchronize()

        return stretch(gpu, ten).seconds / 10


def gain(sizes: Sequence[int], waits: bool) -> float:
    """How many times as fast the graph makes the step of loop_seconds."""
    return loop_seconds(sizes, waits, False) / loop_seconds(sizes, waits, True)


def gains_by_batch(result: Result) -> dict[int, float]:
    """batch → eager ÷ replayed, of a run of the experiment "07/when_it_helps"."""
    return {row["batch"]: row["eager_us"] / row["replayed_us"] for row in result.table or ()}


def passes(result: Result) -> dict[tuple[str, int], float]:
    """("eager" or "replayed", batch) → microseconds, of a run of the experiment "07/when_it_helps"."""
    return {
        (way, row["batch"]): row[f"{way}_us"] for row in result.table or () for way in ("eager", "replayed")
    }


def furthest_off(simulated: Result, recorded: Result) -> float:
    """The largest ratio, either way, of a simulated to a recorded time of the experiment "07/when_it_helps"."""
    rows = zip(simulated.table or (), recorded.table or (), strict=True)
    ratios = [ours[way] / real[way] for ours, real in rows for way in ("eager_us", "replayed_us")]
    return max(max(ratio, 1 / ratio) for ratio in ratios)


def on_a_gpu(results: Sequence[Result]) -> Table:
    """The runs of the experiment "07/when_it_helps" beside each other."""
    cells = []
    for rows in zip(*(result.table or () for result in results), strict=True):
        runs = list(zip(results, rows, strict=True))
        times = [
            run.about + format_seconds(row[way] * 1e-6)
            for way in ("eager_us", "replayed_us")
            for run, row in runs
        ]
        gains = [f"{run.about}{row['eager_us'] / row['replayed_us']:.2f}×" for run, row in runs]
        cells.append((rows[0]["batch"], *times, *gains))
    kinds = [result.kind for result in results]
    columns = [f"{what}, {kind}" for what in ("eager", "replayed", "times as fast") for kind in kinds]
    return table(cells, ["batch", *columns], evidence=" · ".join(result.evidence for result in results))
