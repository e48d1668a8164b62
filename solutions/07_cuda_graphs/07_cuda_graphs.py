# %% [markdown]
# # 07 · CUDA graphs
#
# ## What is left when launches cost nothing?
#
# A small network on a fast GPU is a queue of kernels that are over before the CPU has launched the next. A CUDA
# graph records the whole queue once and launches it with a single call, as often as you like. It is the largest
# speed-up that leaves every kernel as it is, and the one that most easily computes *something else* without an
# error. So this lesson is half about speed and half about what a recording contains.
#
# **Time** 70–85 min, two thirds of it exercises. **Before this** lessons 00 and 03 (the simulated GPU, the
# queue); 06 helps.
#
# **Afterwards you can**
# - capture a whole training step and replay it with the same numbers as before, odd last batch included;
# - say what a capture bakes in, find the three silent mistakes, and rewrite a step that cannot be captured;
# - tell beforehand whether a graph pays, and when it does nothing.
#
# **On trial** *CUDA graphs reduce the overhead of communication between CPU and GPU* · *several times faster for
# models of many small operators* · *for a structure that stays the same* (performance guide) ·
# *`reduce-overhead` switches CUDA graphs on* (book notes).

# %% setup
import math

import torch
from torch import nn

from helpers import lesson, plots, simulate, trace
from helpers.seconds import format_seconds

torch.set_num_threads(1)  # small tensors: more threads would mostly wait for one another
lesson.start("07_cuda_graphs", evidence=["simulated (H100)", "live (CPU)"])

# %% [markdown]
# ## 1 · One launch for a whole step
#
# Eight layers of 256 × 256, batch 64, SGD with momentum: a training step of almost sixty kernels, each of which the
# GPU finishes in two or three microseconds. Before each step the next batch is copied in from pinned memory, two
# tensors. Then we **capture** the step. Inside `with gpu.graph(graph):` (on a real GPU `torch.cuda.graph`) nothing
# runs: kernels and their arguments are written down. `graph.replay()` launches what was written. (A launch costs this
# CPU 6 to 8 µs, Python included; a replay 10.)
#
# **How many launches has a step then, copies included, and how many times as fast is it?**

# %% experiment
prediction = {
    "launches a step, replayed": ...,
    "times as fast, about": ...,  # choose from 1, 2, 4, 8, 16
}


# %% experiment
def training(gpu, width=256, batch=64, layers=8):
    """A training step on static inputs, and how the next batch gets into them."""
    parts = [nn.Sequential(nn.Linear(width, width, device=gpu.device), nn.ReLU()) for _ in range(layers)]
    model = nn.Sequential(*parts)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = (torch.empty(batch, width, device=gpu.device) for _ in range(2))
    pinned = [torch.empty(batch, width, pin_memory=True) for _ in range(2)]

    def load():
        for static, fresh in zip((x, y), pinned, strict=True):
            static.copy_(fresh, non_blocking=True)

    def step():
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step, load


def captured(gpu, step):
    """Warm up on a side stream, then capture. Returns the graph, and the CPU's seconds for the capture."""
    side = gpu.Stream()
    side.wait_stream(gpu.current_stream())
    with gpu.stream(side):
        for _ in range(3):
            step()
    gpu.current_stream().wait_stream(side)
    gpu.synchronize()
    graph, began = gpu.CUDAGraph(), gpu.clock()
    with gpu.graph(graph):
        step()
    return graph, gpu.clock() - began


def ten_steps(graphed, **sizes):
    """A loop of ten steps on a simulated H100: launches, kernels and seconds of one, and what the GPU computed."""
    gpu = simulate("H100")
    with gpu:
        step, load = training(gpu, **sizes)
        graph, capture_s = captured(gpu, step)
        run = graph.replay if graphed else step
        gpu.synchronize()
        began, first, launches = gpu.clock(), len(gpu.kernels), gpu.launches
        for _ in range(10):
            load()
            run()
        gpu.synchronize()
        seconds, launches = gpu.clock() - began, gpu.launches - launches
    ran = gpu.kernels[first:]
    return {
        "gpu": gpu,
        "window": (began + 25e-6, began + 445e-6),
        "launches": launches / 10,
        "kernels": sum(k.kind == "kernel" for k in ran) / 10,
        "copied": sum(k.bytes for k in ran if k.kind == "copy h2d") / 10,
        "computing": sum(k.duration_s for k in ran if k.kind == "kernel") / 10,
        "seconds": seconds / 10,
        "capture": capture_s,
    }


loops = {"eager": ten_steps(False), "replayed": ten_steps(True)}
faster = loops["eager"]["seconds"] / loops["replayed"]["seconds"]
lesson.compare_predictions(
    prediction,
    {
        "launches a step, replayed": round(loops["replayed"]["launches"]),
        "times as fast, about": min((1, 2, 4, 8, 16), key=lambda n: abs(math.log(faster / n))),
    },
    evidence="simulated (H100)",
).show()
lesson.table(
    [
        (
            way,
            round(r["launches"]),
            round(r["kernels"]),
            format_seconds(r["seconds"]),
            format_seconds(r["computing"]),
            f"{r['computing'] / r['seconds']:.0%}",
        )
        for way, r in loops.items()
    ],
    ["step", "launches", "kernels run", "time", "GPU computes", "share"],
    evidence="simulated (H100)",
    caption=f"average of ten steps. Capturing took the CPU {format_seconds(loops['replayed']['capture'])}, once",
)

# %% experiment
plots.queue(
    trace.read(loops["eager"]["gpu"]), *loops["eager"]["window"], title="Eager: the GPU waits for the CPU"
)

# %% experiment
plots.queue(
    trace.read(loops["replayed"]["gpu"]),
    *loops["replayed"]["window"],
    title="Replayed, the same window: several steps, and the CPU waits for the GPU",
)

# %% [markdown]
# The same kernels do the same work; what is gone is the pause before each ("short kernels": over before the next is
# launched). At the bottom of the second picture, which counts the kernels waiting, each replay adds its whole list at
# once. The CPU's part shrinks from one call a kernel to one call a step, whatever the step contains; at the end it
# waits for the GPU. The capture itself is not free: how many steps until it is paid back is part of exercise 7.4.
#
# The lines of `captured` are the recipe. *Warm-up first*: what an operator does only the first time (libraries set
# themselves up, optimizers make their state) must not be in the recording. *On a side stream*, since autograd
# remembers the streams it saw, and the capture has one of its own. The simulation does not notice if you leave the
# side stream out; a real GPU may. The small examples below skip the warm-up: they have no optimizer and no library
# to set up.
#
# > **Limit of the simulation.** Times of launches are round assumptions. On a real GPU a graph also shortens the
# > gap of a microsecond or so between two kernels, and more complicated graphs take longer to launch.
#
# ## 2 · A recording holds addresses and numbers
#
# The simulated GPU can also compute for real, on the CPU's memory (`values=True`). A tiny function, captured once
# with `x = [1, 2]`. Then one change after the other, each followed by a replay. **After which of them does the
# output show the change?** `"yes"` or `"no"` each.

# %% experiment
prediction = {
    "nothing yet, no replay: y is the result": ...,
    "x.copy_(b)": ...,
    "x = b": ...,
    "scale = 100.0 (a Python number)": ...,
    "gain.fill_(3) (a tensor on the GPU)": ...,
    "a print in f prints again": ...,
    "torch.rand draws new numbers": ...,
    "a result kept from the replay before (first = y) changes": ...,
}

# %% experiment
printed = []
with simulate("H100", values=True) as gpu:
    x, b = torch.tensor([1.0, 2.0], device=gpu.device), torch.tensor([5.0, 6.0], device=gpu.device)
    gain, scale = torch.ones(2, device=gpu.device), 10.0

    def f():
        printed.append("printed")
        return x * scale * gain, torch.rand(4, device=gpu.device)

    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        y, noise = f()

    seen = {}

    def replay_after(change):
        graph.replay()
        seen[change] = y.tolist()

    not_yet = y.tolist()
    replay_after("captured with x = [1, 2]")
    first, drawn = y, noise.tolist()
    x.copy_(b)
    replay_after("x.copy_(b)")
    old, x = x, b.fill_(7)  # the graph reads old, wherever the name x points
    replay_after("x = b, and b is [7, 7] now")
    scale = 100.0
    replay_after("scale = 100.0")
    gain.fill_(3)
    replay_after("gain.fill_(3)")
    redrawn, first_now = noise.tolist(), first.tolist()

values = list(seen.values())
lesson.compare_predictions(
    prediction,
    dict(
        zip(
            prediction,
            [
                "yes" if changed else "no"
                for changed in (
                    not_yet == values[0],
                    values[1] != values[0],
                    values[2] != values[1],
                    values[3] != values[2],
                    values[4] != values[3],
                    len(printed) > 1,
                    redrawn != drawn,
                    first_now != values[0],
                )
            ],
            strict=True,
        )
    ),
    evidence="simulated (H100)",
    what="shows it",
).show()
lesson.table(
    [("captured, not yet replayed", str(not_yet)), *((change, str(v)) for change, v in seen.items())],
    ["then a replay", "y"],
    evidence="simulated (H100)",
    caption="with true values; before the first replay the output's memory holds anything (here: nan)",
)

# %% [markdown]
# **A graph is a list of kernels with their arguments, and arguments are addresses and numbers.** The address of `x`
# was written down, not its name: new data must be *copied to that address*. A Python number was written down as it
# was. Python itself (prints, `if`, counters) is not in the list at all. The output has one address too: each replay
# overwrites the last result, so whoever wants to keep it clones it. Random numbers are the exception that PyTorch
# provides for: the generator's offset is an argument that each replay moves on.
#
# Nothing of this raises. Here is a training loop, right and with each of three mistakes: the batch is bound to a new
# name instead of copied (**stale input**); at a third of the way a checkpoint is loaded with `assign=True`, which puts
# *new* tensors into the model (**moved address**; a plain `load_state_dict` copies in place and is safe); the learning
# rate, which should fall along a cosine, is a Python number (**baked in**). **Is the loss that the step reports in the
# second half higher than, lower than or the same as the right run's?** `"higher"`, `"lower"`, `"same"`.

# %% experiment
prediction = {"stale": ..., "moved": ..., "baked": ...}


# %% experiment tags=["fold"]
def cosine(i, steps):
    return 0.16 * (1 + math.cos(math.pi * i / steps)) + 1e-4


def run_of(mistake, graphed=True, steps=72, width=16):
    """Losses of a small regression: what the step reports, and what the model that you hold reaches on test data."""
    g = torch.Generator().manual_seed(0)
    teacher = torch.randn(width, 1, generator=g)

    def batch(n, noise):
        x = torch.randn(n, width, generator=g)
        return x, torch.tanh(x @ teacher) + noise * torch.randn(n, 1, generator=g)

    data, (test_x, test_y) = [batch(32, 0.7) for _ in range(steps)], batch(512, 0.0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 1))
    reported, true = [], []
    with simulate("H100", values=True) as gpu:
        model.to(gpu.device)
        params = list(model.parameters())
        x, y = (t.clone() for t in data[0])
        rate, number = torch.zeros((), device=gpu.device), cosine(0, steps)

        def step():
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
                x.copy_(new_x), y.copy_(new_y)
            number = cosine(i, steps)
            rate.fill_(number)
            if mistake == "moved" and i == steps // 3:
                for p in params:
                    p.data = p.data.clone()  # what load_state_dict(..., assign=True) does
            if graphed:
                graph.replay()
            else:
                loss = step()
            reported.append(loss.item())
            if i % 4 == 0:
                with torch.no_grad():
                    true.append((model(test_x) - test_y).square().mean().item())
    return [sum(reported[i : i + 9]) / 9 for i in range(0, steps, 9)], true


runs = {name: run_of(name) for name in ("right", "stale", "moved", "baked")}
runs["eager"] = run_of("right", graphed=False)
late = {name: sum(reported[4:]) for name, (reported, _) in runs.items()}  # over the second half
lesson.compare_predictions(
    prediction,
    {
        m: "higher"
        if late[m] > 1.05 * late["right"]
        else "lower"
        if late[m] < 0.95 * late["right"]
        else "same"
        for m in prediction
    },
    evidence="simulated (H100)",
    what="reported loss",
)

# %% experiment tags=["fold"]
from helpers.plots import style
from helpers.plots.picture import Picture, drawn


def number_text(value, _=None):
    return f"{value:,.10g}"


@drawn
def curves(panels, *, evidence, title, xlabel, ylabel, note="", log="", xy=number_text):
    """Panels side by side: title → name → (x, y). log: "x", "y" or "xy"."""
    fig, _ = style.figure(3.4, evidence=evidence, title=title, note=note)
    axes = fig.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for ax, (head, series) in zip(axes, panels.items(), strict=True):
        for i, (name, (x, y)) in enumerate(series.items()):
            top = {"linestyle": "--", "zorder": 5} if name == "right" else {}
            ax.plot(x, y, marker=style.MARKERS[i], markersize=4, color=style.SERIES[i], label=name, **top)
        for axis in "xy":
            if axis in log:
                ax.set(**{f"{axis}scale": "log"})
                getattr(ax, f"{axis}axis").set_major_formatter(xy)
        ax.set(title=head, xlabel=xlabel)
    axes[0].set_ylabel(ylabel)
    axes[-1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5), labelspacing=1.0)
    return Picture(fig, evidence, f"{title}: {ylabel} against {xlabel} for {', '.join(series)}")


curves(
    {
        "what the step reports": {
            name: (range(4, 72, 9), reported) for name, (reported, _) in runs.items() if name != "eager"
        },
        "the model you hold, on test data": {
            name: (range(0, 72, 4), true) for name, (_, true) in runs.items() if name != "eager"
        },
    },
    evidence="simulated (H100)",
    title="One right capture and three that raise nothing",
    note="with true values · left: mean of 9 steps, on noisy data; right lies on moved · right equals eager, "
    f"bit for bit: {'yes' if runs['right'] == runs['eager'] else 'no'}",
    xlabel="step",
    ylabel="loss",
)

# %% [markdown]
# *Stale* learns one batch by heart: its report looks suspiciously good, below the noise that no model can predict.
# *Moved* goes on training tensors that the model no longer has: its report is perfect, your model stands still, and
# nothing shows it. *Baked in* looks a little worse, to someone who knows the right curve. So the test of a capture is not that it runs, nor that the loss falls: **run some steps
# eagerly from the same start, with different data in each, and compare.** Then build one that passes it.
#
# **Exercise 7.1 — a graphed training step** (★★★, 14 min)
#
# Any model, any optimizer that can be captured, and the numbers of an ordinary loop: warm-up, capture, replay, and
# the last batch of the epoch, which is smaller. (`gpu` has the names of `torch.cuda`; that is all you need.)
#
# <details><summary>Hint 1</summary>The warm-up must not train in secret. The first <code>warm_up</code> calls are
# real batches: let them be the warm-up. Keep the tensors that the graph reads and writes as attributes: two static
# inputs, and the loss.</details>
#
# <details><summary>Hint 2</summary>Capturing runs nothing: the call that captures must still copy its batch in and
# replay. What do all the losses of an epoch hold if you return the static one?</details>
#
# <details><summary>The idea</summary>One method does an ordinary step on given tensors and returns
# <code>loss.detach()</code>. <code>__call__</code> asks in this order: other shapes? still warming up (side
# stream)? no graph yet? The capture is that same method, on tensors of your own.</details>


# %% exercise="graphed_step"
from collections.abc import Callable
from typing import Any


class GraphedStep:
    """step = GraphedStep(gpu, model, optimizer, loss_fn, warm_up=3); loss = step(x, y)

    gpu: torch.cuda's names: Stream, stream, current_stream, CUDAGraph, graph, synchronize, …
    model, optimizer: on that GPU; the optimizer may be captured. loss_fn(model(x), y) is a scalar.

    A call trains one step on a batch, x and y on the GPU, and returns its loss: a tensor without a graph of
    autograd, which no later call changes. The batch is the caller's: never written, and it may be gone after
    the call. Losses and weights are those of an ordinary loop from the first call on.

    The graph is for the shapes of the first call. The first `warm_up` calls of these shapes are ordinary steps,
    the next captures, once and for all, and replays (its cost is free). From then on such a call makes at most 4
    launches (x in, y in, replay, loss out) and does not make the CPU wait. Calls of other shapes, of x or of y, are
    ordinary steps, at any time; they do not count as warm-up.
    """

    def __init__(
        self,
        gpu: Any,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        warm_up: int = 3,
    ) -> None:
        ### BEGIN SOLUTION
        self.gpu, self.model, self.optimizer, self.loss_fn = gpu, model, optimizer, loss_fn
        self.left = warm_up
        self.graph: Any = None
        self.shapes: tuple[torch.Size, torch.Size] | None = None
        ### END SOLUTION

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """One step. x (batch, …), y (batch, …) → the loss, shape ()."""
        ### BEGIN SOLUTION
        self.shapes = self.shapes or (x.shape, y.shape)
        if (x.shape, y.shape) != self.shapes:
            return self.ordinary(x, y)
        if self.left > 0:
            self.left -= 1
            side = self.gpu.Stream()
            side.wait_stream(self.gpu.current_stream())
            with self.gpu.stream(side):
                loss = self.ordinary(x, y)
            self.gpu.current_stream().wait_stream(side)
            return loss
        if self.graph is None:
            self.x, self.y = x.clone(), y.clone()
            self.graph = self.gpu.CUDAGraph()
            with self.gpu.graph(self.graph):
                self.loss = self.ordinary(self.x, self.y)
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.loss.clone()

    def ordinary(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_fn(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()
        ### END SOLUTION


# %% shared="graphed_step"
import torch

from helpers import check


def drive(GraphedStep, kind, batches, warm_up):
    import torch
    from torch import nn

    from helpers import simulate
    from helpers.check.sealed import sealed

    gpu = simulate("H100", values=True, strict=False)

    def made():
        torch.manual_seed(1)
        norm = nn.BatchNorm1d(24) if kind == "SGD" else nn.LayerNorm(24)
        layers = nn.Linear(batches[0][0].shape[-1], 24, bias=False), norm, nn.GELU(), nn.Linear(24, 4)
        model = nn.Sequential(*layers).to(gpu.device)
        if kind == "SGD":
            return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        return model, torch.optim.AdamW(model.parameters(), lr=0.01, capturable=True)

    def mse(out, y):  # nn.MSELoss warns when y is one row for all
        return (out - y).square().mean()

    rows, losses, given = [], [], []
    with gpu:
        twin, plain = made()
        for _ in range(3):  # how many kernels an ordinary step has
            before = len(gpu.kernels)
            plain.zero_grad()
            mse(twin(batches[0][0].clone()), batches[0][1].clone()).backward()
            plain.step()
        usual = len(gpu.kernels) - before
        model, optimizer = made()
        step = GraphedStep(sealed(gpu), model, optimizer, mse, warm_up)
        for i, batch in enumerate(batches):
            x, y = (t.clone() for t in batch)
            gpu.synchronize()
            before = gpu.launches, len(gpu.kernels), gpu.syncs, len(gpu.host)
            try:
                losses.append(step(x, y))
            except Exception as error:
                now, first = ([tuple(t.shape) for t in pair] for pair in (batch, batches[0]))
                if now == first:
                    raise
                return {"odd": f"call {i + 1} has other shapes, x, y {now} and not {first}: {error}"}
            graphed = sum(k.graph > 0 for k in gpu.kernels[before[1] :])
            captures = sum(h.name == "cudaGraphInstantiate" for h in gpu.host[before[3] :])
            rows.append([gpu.launches - before[0], graphed, gpu.syncs - before[2], captures])
            gpu.synchronize()
            given += [
                x.fill_(float("nan")),
                y.fill_(float("nan")),
            ]  # the caller's own, to do with as he likes
        gpu.synchronize()
        return {
            "losses": [float(loss) for loss in losses],
            "attached": any(loss.requires_grad for loss in losses),
            "state": [v.detach().double().flatten().tolist() for v in model.state_dict().values()],
            "rows": rows,
            "usual": usual,
            "untouched": all(t.isnan().all().item() for t in given),
            "faults": list(gpu.faults),
        }


def ordinary(kind, batches):
    from torch import nn

    torch.manual_seed(1)
    norm = nn.BatchNorm1d(24) if kind == "SGD" else nn.LayerNorm(24)
    layers = nn.Linear(batches[0][0].shape[-1], 24, bias=False), norm, nn.GELU(), nn.Linear(24, 4)
    model, losses, (x, y) = nn.Sequential(*layers), [], batches[0]
    optimizer = (
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        if kind == "SGD"
        else torch.optim.AdamW(model.parameters(), lr=0.01)
    )
    for x, y in batches:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [v.detach().double().flatten() for v in model.state_dict().values()]


def wrong_values(report):
    (kind, batches, warm_up), got = report.args, report.value
    if "odd" in got:
        return f"{kind}: {got['odd']}"
    losses, state = ordinary(kind, batches)
    early = (
        ". The first call captured: the optimizer's state must exist before, by ordinary steps"
        if got["rows"][0][3]
        else ""
    )
    if got["faults"]:
        return f"the simulated GPU complains: {got['faults'][0]}{early}"
    for i, (mine, true) in enumerate(zip(got["losses"], losses, strict=True)):
        if not abs(mine - true) <= 2e-3 * abs(true):
            late = got["losses"].count(mine) > 1 or mine != mine
            if got["rows"][i][3] and not got["rows"][i][1]:
                return f"{kind}: the step of call {i + 1} was recorded but never run: replay in the same call"
            return (
                f"{kind}, warm_up={warm_up}: call {i + 1} of {len(losses)}, a batch of {len(batches[i][0])}: the "
                f"loss, read after the last call, is {mine:.5f}; an ordinary loop has {true:.5f}"
                + (f" (the {i} before it are right)" if i else "")
                + (
                    ". Does the tensor you returned survive the next replay, and the batch's end?"
                    if late
                    else early
                )
            )
    if not all(
        torch.allclose(torch.tensor(a).double(), b, rtol=5e-3, atol=1e-4) for a, b in zip(got["state"], state)
    ):
        return f"{kind}: all losses are right, but the weights or the running means at the end are not"
    if got["attached"]:
        return "a returned loss still requires grad: detach it"
    if not got["untouched"]:
        return "a later call wrote into a batch that belongs to the caller: keep static tensors of your own"
    return None


def wrong_cost(report):
    (kind, batches, warm_up), got = report.args, report.value
    first = [t.shape for t in batches[0]]
    full = [i for i, batch in enumerate(batches) if [t.shape for t in batch] == first]
    begun = next((i for i in full if got["rows"][i][1]), full[-1])
    if sum(got["rows"][i][0] for i in full if i <= begun) < 0.9 * warm_up * got["usual"]:
        return (
            f"{kind}: call {begun + 1} replays a graph before there were {warm_up} ordinary steps of its shapes; "
            "calls of other shapes are no warm-up for it"
        )
    if not got["rows"][full[warm_up]][1]:
        return f"{kind}: call {full[warm_up] + 1}, the first after the warm-up, replays nothing: capture and replay"
    for i in full[warm_up + 1 :]:
        launches, graphed, syncs, captures = got["rows"][i]
        if captures:
            return (
                f"{kind}: call {i + 1} captured again, which costs more than an ordinary step: capture once"
            )
        if launches > 4:
            return f"{kind}: call {i + 1} made {launches} launches, wanted at most 4: x in, y in, replay, loss out"
        if graphed < 0.8 * got["usual"]:
            return (
                f"{kind}: call {i + 1} replayed {graphed} kernels of a graph; an ordinary step has "
                f"{got['usual']}: forward, backward and optimizer belong into the graph"
            )
        if syncs:
            return f"{kind}: call {i + 1} made the CPU wait {syncs} time(s)"
    captures = sum(row[3] for row in got["rows"])
    if captures > 1:
        return f"{kind}: {captures} captures in all, wanted one: one graph serves all calls of its shapes, and no others"
    return None


# %% test="graphed_step" points=1
def batches_of(*sizes, wide=10):
    g = torch.Generator().manual_seed(len(sizes))
    shapes = [size if isinstance(size, tuple) else (size,) for size in sizes]
    return [(torch.randn(*n, wide, generator=g), torch.randn(*n, 4, generator=g)) for n in shapes]


check.function(
    "GraphedStep",
    [
        check.case("SGD", batches_of(16, 16, 16, 16, 16, 16, 7), 3),
        check.case("AdamW", batches_of(16, 5, 16, 16, 16, (16, 3), 16, 16), 2),
    ],
    drive=drive,
    budget={},
    verify=lambda reports: next(
        (text for check_one in (wrong_values, wrong_cost) for r in reports if (text := check_one(r))), None
    ),
    look="2 · A recording holds addresses and numbers",
)


# %% hidden="graphed_step" points=5
### BEGIN HIDDEN TESTS
def batches_of(*sizes, wide=8):
    g = torch.Generator().manual_seed(len(sizes) + wide)
    shapes = [size if isinstance(size, tuple) else (size,) for size in sizes]
    return [(torch.randn(*n, wide, generator=g), torch.randn(*n, 4, generator=g)) for n in shapes]


one_row = [(x, y[:1]) for x, y in batches_of(7, 7, 7, 7, 7, wide=5)]  # of y, for all of x
one_row[3:3] = batches_of(7, wide=5)  # as many rows of x, another y

check.function(
    "GraphedStep",
    [
        check.case("SGD", one_row, 2),
        check.case("AdamW", batches_of(8, 8, 8, 8, 8, 8, 8, 3), 1),
        check.case("SGD", batches_of(12, 5, 12, 12, 5, 12, 12, 12, 20, 12, wide=6), 3),
        check.case("AdamW", batches_of(9, 9, 4, 9, (9, 2), 9, 9, 4, 9, wide=3), 4),
    ],
    drive=drive,
    budget={},
    verify=lambda reports: next(
        (text for check_one in (wrong_values, wrong_cost) for r in reports if (text := check_one(r))), None
    ),
    look="1 · One launch for a whole step",
)
### END HIDDEN TESTS

# %% [markdown]
# Now other people's captures. Three small programs, each captured without a complaint, each wrong. They are run
# three times here, beside what they should give. (Open the folded cell: their code is where you start.)


# %% experiment tags=["fold"]
def scorer_as_found(gpu, weight, example):
    x = example.clone()
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        score = torch.tanh(x @ weight).square().sum(dim=1)

    def score_of(batch):
        x = batch
        assert x.shape == example.shape
        graph.replay()
        return score

    return score_of


def smoother_as_found(gpu, start, rate=0.25):
    state, x = start.clone(), torch.zeros_like(start)
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        state = state + rate * (x - state)

    def smooth(new):
        x.copy_(new)
        graph.replay()
        return state.clone()

    return smooth


def updater_as_found(gpu, weight, lr=0.1):
    mean, grad, calls = torch.zeros_like(weight), torch.zeros_like(weight), 1
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        mean.lerp_(grad, 0.1)  # Adam's running mean,
        weight.sub_(mean / (1 - 0.9**calls) * lr)  # and its correction for the first steps

    def update(new_grad, new_lr):
        nonlocal lr, calls
        lr = new_lr
        grad.copy_(new_grad)
        graph.replay()
        calls += 1

    return update


rows = []
with simulate("H100", values=True) as gpu:
    weight, batches = torch.eye(2), [torch.full((1, 2), v) for v in (1.0, 2.0, 3.0)]
    score_of = scorer_as_found(gpu, weight, batches[0])
    smooth = smoother_as_found(gpu, torch.zeros(1))
    updated = torch.zeros(1)
    update = updater_as_found(gpu, updated)
    state = mean = right = 0.0
    scores, smoothed, moved = [], [], []
    for i, batch in enumerate(batches, 1):
        state += 0.25 * (i - state)
        mean += 0.1 * (1.0 - mean)
        right -= 0.1 / i * mean / (1 - 0.9**i)
        scores.append((2 * math.tanh(i) ** 2, score_of(batch)))
        smoothed.append((state, smooth(torch.full((1,), float(i))).item()))
        update(torch.ones(1), 0.1 / i)
        moved.append((right, updated.item()))
    scores = [(want, got.item()) for want, got in scores]
for name, pairs in (("scorer", scores), ("smoother", smoothed), ("updater", moved)):
    rows.append((name, *(f"{got:.3f} ({want:.3f})" for want, got in pairs)))
lesson.table(
    rows, ["program", "call 1", "call 2", "call 3"], evidence="simulated (H100)", caption="got (wanted)"
)

# %% [markdown]
# **Exercise 7.2 — three silent captures** (★★, 9 min)
#
# Say what each capture wrote down: which addresses, which numbers. Then write the three so that they are right.
# Start from the code above.
#
# <details><summary>Hint 1</summary>In each program look at every name that is bound again (<code>name = …</code>)
# after or inside the capture: the graph does not know names. And who owns the tensor that is returned?</details>
#
# <details><summary>Hint 2</summary>What the next replay needs must be written to the address from which it will be
# read: an operator in place. What changes from call to call must be a tensor on the GPU.</details>
#
# <details><summary>The idea</summary>scorer: <code>x.copy_(batch)</code>, and return a clone. smoother:
# <code>state.lerp_(x, rate)</code> inside. updater: <code>lr</code> and the correction as tensors, filled before each
# replay (<code>.fill_(number)</code> is one launch and no copy), or a counter that the graph itself increments.</details>


# %% exercise="repair"
def scorer(gpu, weight: torch.Tensor, example: torch.Tensor):
    """score_of(batch) → tanh(batch @ weight)², summed over each row: a tensor of its own for each call.

    weight (n, m), example and every batch (rows, n), on the GPU. weight and example are the caller's and stay as they
    are; a batch may be gone after the call. One capture, however many calls follow. A call of score_of: one replay of
    that one graph, at most 3 launches in all, no copy from the CPU, no wait. What is computed with more than one
    number is computed in the graph: outside it only copies and fills.
    """
    ### BEGIN SOLUTION
    x = example.clone()
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        score = torch.tanh(x @ weight).square().sum(dim=1)

    def score_of(batch):
        x.copy_(batch)
        graph.replay()
        return score.clone()

    return score_of
    ### END SOLUTION


def smoother(gpu, start: torch.Tensor, rate: float = 0.25):
    """smooth(new): state ← state + rate · (new − state), beginning with start; returns a copy of the state.

    start is the caller's and stays as it is. One capture; a call: as for score_of.
    """
    ### BEGIN SOLUTION
    state, x = start.clone(), torch.zeros_like(start)
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        state.add_(rate * (x - state))

    def smooth(new):
        x.copy_(new)
        graph.replay()
        return state.clone()

    return smooth
    ### END SOLUTION


def updater(gpu, weight: torch.Tensor, lr: float = 0.1):
    """update(grad, lr): the i-th call (i = 1, 2, …) does, in place,

        mean ← 0.9 · mean + 0.1 · grad,   weight ← weight − lr · mean ÷ (1 − 0.9ⁱ)

    mean begins as zeros; lr is a Python number and another one in each call; the calls may be any number. One
    capture; a call: as for score_of, but at most 4 launches in all.
    """
    ### BEGIN SOLUTION
    mean, grad = torch.zeros_like(weight), torch.zeros_like(weight)
    rate, power = torch.zeros((), device=gpu.device), torch.ones((), device=gpu.device)
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        power.mul_(0.9)
        mean.lerp_(grad, 0.1)
        weight.sub_(mean * (rate / (1 - power)))

    def update(new_grad, lr):
        grad.copy_(new_grad)
        rate.fill_(lr)
        graph.replay()

    return update
    ### END SOLUTION


# %% shared="repair"
import torch

from helpers import check


def made(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# %% test="repair" points=1
def drive(scorer, first, calls, numbers):
    import torch

    from helpers import simulate
    from helpers.check.sealed import sealed

    gpu = simulate("H100", values=True, strict=False)
    with gpu:
        start, given = first.clone(), calls[0].clone()
        run, kept, cost = scorer(sealed(gpu), start, given), [], []
        for one in calls:
            one = one.clone()
            gpu.synchronize()
            launches, kernels, host = gpu.launches, len(gpu.kernels), len(gpu.host)
            out = run(one)
            ran, did = gpu.kernels[kernels:], [h.name for h in gpu.host[host:]]
            captures, waits = (
                did.count("cudaGraphInstantiate"),
                sum(h.kind == "sync" for h in gpu.host[host:]),
            )
            copies = sum(k.kind != "kernel" for k in ran)
            moves = ("copy", "clone", "fill", "full", "zero")
            outside = [k.name for k in ran if not k.graph and k.flops > 1 and k.kind == "kernel"]
            outside = [name for name in outside if not any(word in name for word in moves)]
            replays = len({k.graph for k in ran} - {0})
            cost.append([gpu.launches - launches, replays, captures, copies, waits, outside])
            gpu.synchronize()
            kept.append(out)
            one.fill_(float("nan"))
        gpu.synchronize()
        same = torch.equal(given, calls[0]) and torch.equal(start, first)
        return {
            "values": [k.tolist() for k in kept],
            "cost": cost,
            "captures": sum(h.name == "cudaGraphInstantiate" for h in gpu.host),
            "same": same,
            "faults": list(gpu.faults),
        }


def by_hand(first, calls, numbers):
    return [torch.tanh(one @ first).square().sum(dim=1) for one in calls]


def judge(reports):
    for report in reports:
        calls, got = report.args[1], report.value
        if got["faults"]:
            return f"the simulated GPU complains: {got['faults'][0]}"
        values, wanted = [torch.tensor(v) for v in got["values"]], by_hand(*report.args)
        for i, (mine, true) in enumerate(zip(values, wanted, strict=True)):
            if not torch.allclose(mine, true, rtol=1e-3, atol=1e-5):
                hint = (
                    "that is the answer of call 1: what does the graph read?"
                    if i and torch.equal(mine, values[0]) and torch.allclose(mine, wanted[0], rtol=1e-3)
                    else "all calls returned the same tensor: the next replay overwrites it"
                    if all(torch.equal(v, values[0]) for v in values)
                    else "which tensor does the graph read?"
                )
                return (
                    f"call {i + 1} of {len(calls)}, read after the last: {mine.flatten()[:3].tolist()}, wanted "
                    f"{true.flatten()[:3].tolist()} (at most three numbers shown). {hint}"
                )
        for i, (launches, replays, captures, copies, waits, outside) in enumerate(got["cost"]):
            if captures and i:
                return f"call {i + 1} replayed another graph than call {i}: capture once"
            if replays != 1 or launches > 3:
                return f"call {i + 1}: values are right, with {launches} launches and {replays} replay(s); wanted one replay and at most 3 launches in all"
            if copies or (waits and not captures):
                return f"call {i + 1}: {copies} copies between CPU and GPU, the CPU waited {waits} time(s); wanted none"
            if outside:
                return f"call {i + 1}: values are right, but {outside[0]} runs outside the graph, launched by itself"
        if got["captures"] > 1:
            return f"{got['captures']} captures for {len(calls)} calls: one graph is captured once and serves them all"
        if not got["same"]:
            return "a tensor of the caller's was changed: work on a clone"
    return None


check.function(
    "scorer",
    [
        check.case(made(3, 2, seed=0), [made(4, 3, seed=i) for i in range(1, 5)], []),
    ],
    drive=drive,
    budget={},
    verify=judge,
    look="2 · A recording holds addresses and numbers",
)


# %% test="repair" points=1
def drive(smoother, first, calls, numbers):
    import torch

    from helpers import simulate
    from helpers.check.sealed import sealed

    gpu = simulate("H100", values=True, strict=False)
    with gpu:
        start, given = first.clone(), calls[0].clone()
        run, kept, cost = smoother(sealed(gpu), start, *numbers), [], []
        for one in calls:
            one = one.clone()
            gpu.synchronize()
            launches, kernels, host = gpu.launches, len(gpu.kernels), len(gpu.host)
            out = run(one)
            ran, did = gpu.kernels[kernels:], [h.name for h in gpu.host[host:]]
            captures, waits = (
                did.count("cudaGraphInstantiate"),
                sum(h.kind == "sync" for h in gpu.host[host:]),
            )
            copies = sum(k.kind != "kernel" for k in ran)
            moves = ("copy", "clone", "fill", "full", "zero")
            outside = [k.name for k in ran if not k.graph and k.flops > 1 and k.kind == "kernel"]
            outside = [name for name in outside if not any(word in name for word in moves)]
            replays = len({k.graph for k in ran} - {0})
            cost.append([gpu.launches - launches, replays, captures, copies, waits, outside])
            gpu.synchronize()
            kept.append(out)
            one.fill_(float("nan"))
        gpu.synchronize()
        same = torch.equal(given, calls[0]) and torch.equal(start, first)
        return {
            "values": [k.tolist() for k in kept],
            "cost": cost,
            "captures": sum(h.name == "cudaGraphInstantiate" for h in gpu.host),
            "same": same,
            "faults": list(gpu.faults),
        }


def by_hand(first, calls, numbers):
    out, rate = [first], numbers[0] if numbers else 0.25
    for one in calls:
        out.append(out[-1] + rate * (one - out[-1]))
    return out[1:]


def judge(reports):
    for report in reports:
        calls, got = report.args[1], report.value
        if got["faults"]:
            return f"the simulated GPU complains: {got['faults'][0]}"
        values, wanted = [torch.tensor(v) for v in got["values"]], by_hand(*report.args)
        for i, (mine, true) in enumerate(zip(values, wanted, strict=True)):
            if not torch.allclose(mine, true, rtol=1e-3, atol=1e-5):
                hint = (
                    "all calls returned the same tensor: the next replay overwrites it"
                    if all(torch.equal(v, values[0]) for v in values)
                    else "where is the new state written, and where does the next replay read it?"
                )
                return (
                    f"call {i + 1} of {len(calls)}, read after the last: {mine.flatten()[:3].tolist()}, wanted "
                    f"{true.flatten()[:3].tolist()} (at most three numbers shown). {hint}"
                )
        for i, (launches, replays, captures, copies, waits, outside) in enumerate(got["cost"]):
            if captures and i:
                return f"call {i + 1} replayed another graph than call {i}: capture once"
            if replays != 1 or launches > 3:
                return f"call {i + 1}: values are right, with {launches} launches and {replays} replay(s); wanted one replay and at most 3 launches in all"
            if copies or (waits and not captures):
                return f"call {i + 1}: {copies} copies between CPU and GPU, the CPU waited {waits} time(s); wanted none"
            if outside:
                return f"call {i + 1}: values are right, but {outside[0]} runs outside the graph, launched by itself"
        if got["captures"] > 1:
            return f"{got['captures']} captures for {len(calls)} calls: one graph is captured once and serves them all"
        if not got["same"]:
            return "a tensor of the caller's was changed: work on a clone"
    return None


check.function(
    "smoother",
    [
        check.case(made(5, seed=0), [made(5, seed=i) for i in range(1, 5)], []),
    ],
    drive=drive,
    budget={},
    verify=judge,
    look="2 · A recording holds addresses and numbers",
)


# %% test="repair" points=1
def drive(updater, first, calls, numbers):
    import torch

    from helpers import simulate
    from helpers.check.sealed import sealed

    gpu = simulate("H100", values=True, strict=False)
    with gpu:
        start, given = first.clone(), calls[0].clone()
        run, kept, cost = updater(sealed(gpu), start), [], []
        for one, number in zip(calls, numbers, strict=True):
            one = one.clone()
            gpu.synchronize()
            launches, kernels, host = gpu.launches, len(gpu.kernels), len(gpu.host)
            run(one, number)
            ran, did = gpu.kernels[kernels:], [h.name for h in gpu.host[host:]]
            captures, waits = (
                did.count("cudaGraphInstantiate"),
                sum(h.kind == "sync" for h in gpu.host[host:]),
            )
            copies = sum(k.kind != "kernel" for k in ran)
            moves = ("copy", "clone", "fill", "full", "zero")
            outside = [k.name for k in ran if not k.graph and k.flops > 1 and k.kind == "kernel"]
            outside = [name for name in outside if not any(word in name for word in moves)]
            replays = len({k.graph for k in ran} - {0})
            cost.append([gpu.launches - launches, replays, captures, copies, waits, outside])
            gpu.synchronize()
            kept.append(start.clone())
            one.fill_(float("nan"))
        gpu.synchronize()
        same = torch.equal(given, calls[0])
        return {
            "values": [k.tolist() for k in kept],
            "cost": cost,
            "captures": sum(h.name == "cudaGraphInstantiate" for h in gpu.host),
            "same": same,
            "faults": list(gpu.faults),
        }


def by_hand(first, calls, numbers):
    out, weight, mean = [], first, torch.zeros_like(first)
    for i, one in enumerate(calls):
        mean = 0.9 * mean + 0.1 * one
        weight = weight - numbers[i] * mean / (1 - 0.9 ** (i + 1))
        out.append(weight)
    return out


def judge(reports):
    for report in reports:
        first, calls, got = *report.args[:2], report.value
        if got["faults"]:
            return f"the simulated GPU complains: {got['faults'][0]}"
        values, wanted = [torch.tensor(v) for v in got["values"]], by_hand(*report.args)
        for i, (mine, true) in enumerate(zip(values, wanted, strict=True)):
            if not torch.allclose(mine, true, rtol=1e-3, atol=1e-5):
                hint = (
                    "`weight` itself was never written"
                    if all(torch.equal(v, first) for v in values)
                    else "two numbers change from call to call"
                )
                return (
                    f"call {i + 1} of {len(calls)}, read after the last: {mine.flatten()[:3].tolist()}, wanted "
                    f"{true.flatten()[:3].tolist()} (at most three numbers shown). {hint}"
                )
        for i, (launches, replays, captures, copies, waits, outside) in enumerate(got["cost"]):
            if captures and i:
                return f"call {i + 1} replayed another graph than call {i}: capture once"
            if replays != 1 or launches > 4:
                return f"call {i + 1}: values are right, with {launches} launches and {replays} replay(s); wanted one replay and at most 4 launches in all"
            if copies or (waits and not captures):
                return f"call {i + 1}: {copies} copies between CPU and GPU, the CPU waited {waits} time(s); wanted none"
            if outside:
                return f"call {i + 1}: values are right, but {outside[0]} runs outside the graph, launched by itself"
        if got["captures"] > 1:
            return f"{got['captures']} captures for {len(calls)} calls: one graph is captured once and serves them all"
        if not got["same"]:
            return "a tensor of the caller's was changed: work on a clone"
    return None


check.function(
    "updater",
    [
        check.case(made(5, seed=0), [made(5, seed=i) for i in range(1, 5)], [0.1, 0.3, 0.2, 0.05]),
    ],
    drive=drive,
    budget={},
    verify=judge,
    look="2 · A recording holds addresses and numbers",
)


# %% hidden="repair" points=1
### BEGIN HIDDEN TESTS
def drive(scorer, first, calls, numbers):
    import torch

    from helpers import simulate
    from helpers.check.sealed import sealed

    gpu = simulate("H100", values=True, strict=False)
    with gpu:
        start, given = first.clone(), calls[0].clone()
        run, kept, cost = scorer(sealed(gpu), start, given), [], []
        for one in calls:
            one = one.clone()
            gpu.synchronize()
            launches, kernels, host = gpu.launches, len(gpu.kernels), len(gpu.host)
            out = run(one)
            ran, did = gpu.kernels[kernels:], [h.name for h in gpu.host[host:]]
            captures, waits = (
                did.count("cudaGraphInstantiate"),
                sum(h.kind == "sync" for h in gpu.host[host:]),
            )
            copies = sum(k.kind != "kernel" for k in ran)
            moves = ("copy", "clone", "fill", "full", "zero")
            outside = [k.name for k in ran if not k.graph and k.flops > 1 and k.kind == "kernel"]
            outside = [name for name in outside if not any(word in name for word in moves)]
            replays = len({k.graph for k in ran} - {0})
            cost.append([gpu.launches - launches, replays, captures, copies, waits, outside])
            gpu.synchronize()
            kept.append(out)
            one.fill_(float("nan"))
        gpu.synchronize()
        same = torch.equal(given, calls[0]) and torch.equal(start, first)
        return {
            "values": [k.tolist() for k in kept],
            "cost": cost,
            "captures": sum(h.name == "cudaGraphInstantiate" for h in gpu.host),
            "same": same,
            "faults": list(gpu.faults),
        }


def by_hand(first, calls, numbers):
    return [torch.tanh(one @ first).square().sum(dim=1) for one in calls]


def judge(reports):
    for report in reports:
        calls, got = report.args[1], report.value
        if got["faults"]:
            return f"the simulated GPU complains: {got['faults'][0]}"
        values, wanted = [torch.tensor(v) for v in got["values"]], by_hand(*report.args)
        for i, (mine, true) in enumerate(zip(values, wanted, strict=True)):
            if not torch.allclose(mine, true, rtol=1e-3, atol=1e-5):
                hint = (
                    "that is the answer of call 1: what does the graph read?"
                    if i and torch.equal(mine, values[0]) and torch.allclose(mine, wanted[0], rtol=1e-3)
                    else "all calls returned the same tensor: the next replay overwrites it"
                    if all(torch.equal(v, values[0]) for v in values)
                    else "which tensor does the graph read?"
                )
                return (
                    f"call {i + 1} of {len(calls)}, read after the last: {mine.flatten()[:3].tolist()}, wanted "
                    f"{true.flatten()[:3].tolist()} (at most three numbers shown). {hint}"
                )
        for i, (launches, replays, captures, copies, waits, outside) in enumerate(got["cost"]):
            if captures and i:
                return f"call {i + 1} replayed another graph than call {i}: capture once"
            if replays != 1 or launches > 3:
                return f"call {i + 1}: values are right, with {launches} launches and {replays} replay(s); wanted one replay and at most 3 launches in all"
            if copies or (waits and not captures):
                return f"call {i + 1}: {copies} copies between CPU and GPU, the CPU waited {waits} time(s); wanted none"
            if outside:
                return f"call {i + 1}: values are right, but {outside[0]} runs outside the graph, launched by itself"
        if got["captures"] > 1:
            return f"{got['captures']} captures for {len(calls)} calls: one graph is captured once and serves them all"
        if not got["same"]:
            return "a tensor of the caller's was changed: work on a clone"
    return None


check.function(
    "scorer",
    [
        check.case(made(6, 5, seed=9), [made(2, 6, seed=i) for i in range(6)], []),
        check.case(made(1, 1, seed=9), [made(30, 1, seed=i) for i in range(3)], []),
    ],
    drive=drive,
    budget={},
    verify=judge,
    look="2 · A recording holds addresses and numbers",
)
### END HIDDEN TESTS


# %% hidden="repair" points=1
### BEGIN HIDDEN TESTS
def drive(smoother, first, calls, numbers):
    import torch

    from helpers import simulate
    from helpers.check.sealed import sealed

    gpu = simulate("H100", values=True, strict=False)
    with gpu:
        start, given = first.clone(), calls[0].clone()
        run, kept, cost = smoother(sealed(gpu), start, *numbers), [], []
        for one in calls:
            one = one.clone()
            gpu.synchronize()
            launches, kernels, host = gpu.launches, len(gpu.kernels), len(gpu.host)
            out = run(one)
            ran, did = gpu.kernels[kernels:], [h.name for h in gpu.host[host:]]
            captures, waits = (
                did.count("cudaGraphInstantiate"),
                sum(h.kind == "sync" for h in gpu.host[host:]),
            )
            copies = sum(k.kind != "kernel" for k in ran)
            moves = ("copy", "clone", "fill", "full", "zero")
            outside = [k.name for k in ran if not k.graph and k.flops > 1 and k.kind == "kernel"]
            outside = [name for name in outside if not any(word in name for word in moves)]
            replays = len({k.graph for k in ran} - {0})
            cost.append([gpu.launches - launches, replays, captures, copies, waits, outside])
            gpu.synchronize()
            kept.append(out)
            one.fill_(float("nan"))
        gpu.synchronize()
        same = torch.equal(given, calls[0]) and torch.equal(start, first)
        return {
            "values": [k.tolist() for k in kept],
            "cost": cost,
            "captures": sum(h.name == "cudaGraphInstantiate" for h in gpu.host),
            "same": same,
            "faults": list(gpu.faults),
        }


def by_hand(first, calls, numbers):
    out, rate = [first], numbers[0] if numbers else 0.25
    for one in calls:
        out.append(out[-1] + rate * (one - out[-1]))
    return out[1:]


def judge(reports):
    for report in reports:
        calls, got = report.args[1], report.value
        if got["faults"]:
            return f"the simulated GPU complains: {got['faults'][0]}"
        values, wanted = [torch.tensor(v) for v in got["values"]], by_hand(*report.args)
        for i, (mine, true) in enumerate(zip(values, wanted, strict=True)):
            if not torch.allclose(mine, true, rtol=1e-3, atol=1e-5):
                hint = (
                    "all calls returned the same tensor: the next replay overwrites it"
                    if all(torch.equal(v, values[0]) for v in values)
                    else "where is the new state written, and where does the next replay read it?"
                )
                return (
                    f"call {i + 1} of {len(calls)}, read after the last: {mine.flatten()[:3].tolist()}, wanted "
                    f"{true.flatten()[:3].tolist()} (at most three numbers shown). {hint}"
                )
        for i, (launches, replays, captures, copies, waits, outside) in enumerate(got["cost"]):
            if captures and i:
                return f"call {i + 1} replayed another graph than call {i}: capture once"
            if replays != 1 or launches > 3:
                return f"call {i + 1}: values are right, with {launches} launches and {replays} replay(s); wanted one replay and at most 3 launches in all"
            if copies or (waits and not captures):
                return f"call {i + 1}: {copies} copies between CPU and GPU, the CPU waited {waits} time(s); wanted none"
            if outside:
                return f"call {i + 1}: values are right, but {outside[0]} runs outside the graph, launched by itself"
        if got["captures"] > 1:
            return f"{got['captures']} captures for {len(calls)} calls: one graph is captured once and serves them all"
        if not got["same"]:
            return "a tensor of the caller's was changed: work on a clone"
    return None


check.function(
    "smoother",
    [
        check.case(made(2, 3, seed=9), [made(2, 3, seed=i) for i in range(6)], [0.7]),
        check.case(made(1, seed=8), [made(1, seed=i) for i in range(3)], []),
    ],
    drive=drive,
    budget={},
    verify=judge,
    look="2 · A recording holds addresses and numbers",
)
### END HIDDEN TESTS


# %% hidden="repair" points=1
### BEGIN HIDDEN TESTS
def drive(updater, first, calls, numbers):
    import torch

    from helpers import simulate
    from helpers.check.sealed import sealed

    gpu = simulate("H100", values=True, strict=False)
    with gpu:
        start, given = first.clone(), calls[0].clone()
        run, kept, cost = updater(sealed(gpu), start), [], []
        for one, number in zip(calls, numbers, strict=True):
            one = one.clone()
            gpu.synchronize()
            launches, kernels, host = gpu.launches, len(gpu.kernels), len(gpu.host)
            run(one, number)
            ran, did = gpu.kernels[kernels:], [h.name for h in gpu.host[host:]]
            captures, waits = (
                did.count("cudaGraphInstantiate"),
                sum(h.kind == "sync" for h in gpu.host[host:]),
            )
            copies = sum(k.kind != "kernel" for k in ran)
            moves = ("copy", "clone", "fill", "full", "zero")
            outside = [k.name for k in ran if not k.graph and k.flops > 1 and k.kind == "kernel"]
            outside = [name for name in outside if not any(word in name for word in moves)]
            replays = len({k.graph for k in ran} - {0})
            cost.append([gpu.launches - launches, replays, captures, copies, waits, outside])
            gpu.synchronize()
            kept.append(start.clone())
            one.fill_(float("nan"))
        gpu.synchronize()
        same = torch.equal(given, calls[0])
        return {
            "values": [k.tolist() for k in kept],
            "cost": cost,
            "captures": sum(h.name == "cudaGraphInstantiate" for h in gpu.host),
            "same": same,
            "faults": list(gpu.faults),
        }


def by_hand(first, calls, numbers):
    out, weight, mean = [], first, torch.zeros_like(first)
    for i, one in enumerate(calls):
        mean = 0.9 * mean + 0.1 * one
        weight = weight - numbers[i] * mean / (1 - 0.9 ** (i + 1))
        out.append(weight)
    return out


def judge(reports):
    for report in reports:
        first, calls, got = *report.args[:2], report.value
        if got["faults"]:
            return f"the simulated GPU complains: {got['faults'][0]}"
        values, wanted = [torch.tensor(v) for v in got["values"]], by_hand(*report.args)
        for i, (mine, true) in enumerate(zip(values, wanted, strict=True)):
            if not torch.allclose(mine, true, rtol=1e-3, atol=1e-5):
                hint = (
                    "`weight` itself was never written"
                    if all(torch.equal(v, first) for v in values)
                    else "two numbers change from call to call"
                )
                return (
                    f"call {i + 1} of {len(calls)}, read after the last: {mine.flatten()[:3].tolist()}, wanted "
                    f"{true.flatten()[:3].tolist()} (at most three numbers shown). {hint}"
                )
        for i, (launches, replays, captures, copies, waits, outside) in enumerate(got["cost"]):
            if captures and i:
                return f"call {i + 1} replayed another graph than call {i}: capture once"
            if replays != 1 or launches > 4:
                return f"call {i + 1}: values are right, with {launches} launches and {replays} replay(s); wanted one replay and at most 4 launches in all"
            if copies or (waits and not captures):
                return f"call {i + 1}: {copies} copies between CPU and GPU, the CPU waited {waits} time(s); wanted none"
            if outside:
                return f"call {i + 1}: values are right, but {outside[0]} runs outside the graph, launched by itself"
        if got["captures"] > 1:
            return f"{got['captures']} captures for {len(calls)} calls: one graph is captured once and serves them all"
        if not got["same"]:
            return "a tensor of the caller's was changed: work on a clone"
    return None


check.function(
    "updater",
    [
        check.case(
            made(3, 3, seed=9), [made(3, 3, seed=i) for i in range(8)], [0.5 / (i + 1) for i in range(8)]
        ),
        check.case(made(4, seed=7), [made(4, seed=i) for i in range(3)], [0.0, 0.2, 0.1]),
        check.case(  # longer than a list of corrections or of graphs that somebody made beforehand
            made(2, seed=6), [made(2, seed=i) for i in range(64)], [0.02 * (i % 7) for i in range(64)]
        ),
    ],
    drive=drive,
    budget={},
    verify=judge,
    look="2 · A recording holds addresses and numbers",
)
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · What cannot be recorded
#
# During a capture nothing runs. So whatever needs an *answer* from the GPU cannot be captured, nor what decides in
# Python by such an answer, nor memory whose address CUDA cannot rely on. **Ten lines: `"yes"` if it can be
# captured, `"no"` if not.** `x` and `p` (a parameter with its gradient) are on the GPU.

# %% experiment
prediction = {
    "loss.item()": ...,
    "print(x.shape)": ...,
    "if x.sum() > 0: …": ...,
    "x[x > 0]": ...,
    "x.masked_fill(x > 0, 0)": ...,
    "dropout(x)": ...,
    "torch.tensor([1., 2.], device=gpu.device)": ...,
    "x.copy_(pinned, non_blocking=True)": ...,
    "clip_grad_norm_([p], 1.0)": ...,
    "AdamW([p]).step()": ...,
}

# %% experiment
attempts = {
    "loss.item()": lambda gpu, x, p: x.sum().item(),
    "print(x.shape)": lambda gpu, x, p: str(x.shape),
    "if x.sum() > 0: …": lambda gpu, x, p: bool(x.sum() > 0),
    "x[x > 0]": lambda gpu, x, p: x[x > 0],
    "x.masked_fill(x > 0, 0)": lambda gpu, x, p: x.masked_fill(x > 0, 0),
    "dropout(x)": lambda gpu, x, p: nn.functional.dropout(x),
    "torch.tensor([1., 2.], device=gpu.device)": lambda gpu, x, p: torch.tensor(
        [1.0, 2.0], device=gpu.device
    ),
    "x.copy_(pinned, non_blocking=True)": lambda gpu, x, p: x.copy_(pinned, non_blocking=True),
    "clip_grad_norm_([p], 1.0)": lambda gpu, x, p: nn.utils.clip_grad_norm_([p], 1.0),
    "AdamW([p]).step()": lambda gpu, x, p: optimizer.step(),
}
answers, reasons = {}, []
for line, attempt in attempts.items():
    with simulate("H100", strict=False) as gpu:
        x, p = torch.ones(64, 64, device=gpu.device), nn.Parameter(torch.ones(64, 64, device=gpu.device))
        p.grad, pinned = torch.ones_like(p), torch.empty(64, 64, pin_memory=True)
        optimizer = torch.optim.AdamW([p])
        optimizer.step()
        said = ""
        try:
            with gpu.graph(gpu.CUDAGraph()):
                x.add_(1)
                attempt(gpu, x, p)
        except RuntimeError as error:
            said = f"{error} "
        said = said or (gpu.faults[0].split(": ", 2)[2] if gpu.faults else "")
    answers[line] = "no" if said else "yes"
    if said:
        words = said.split(". ")[0].strip()
        reasons.append((f"`{line}`", words if len(words) < 105 else f"{words[:104]}…"))
lesson.compare_predictions(prediction, answers, evidence="simulated (H100)", what="can be captured").show()
lesson.table(
    reasons,
    ["refused", "in the words of CUDA and PyTorch"],
    evidence="simulated (H100)",
    caption="on a real GPU such a line raises, and the capture is lost",
)

# %% [markdown]
# Three families: **the CPU waits for an answer** (`.item()`, `if`, a mask whose result has a size that only the
# GPU knows); **ordinary CPU memory** (`torch.tensor(list, device=…)` copies from a temporary); and code that keeps
# its state on the CPU, like an optimizer's step counter, for which PyTorch has `capturable=True`. The cures are
# older than graphs, they are those of hidden syncs (lesson 03): a condition becomes a number to multiply with or
# `torch.where`, a selection becomes a mask, a constant is made once, before. `clip_grad_norm_` shows how: it always
# multiplies, by a factor that is at most 1. A copy from pinned memory can be captured, but each replay reads that
# address *later*: refill it only when the copy is done.
#
# **Exercise 7.3 — make it capturable** (★★★, 10 min)
#
# A step of robust regression, as someone wrote it. It cannot be captured, for three reasons.
#
# ```python
# def as_written(weight, x, y, keep, lr, max_norm):
#     rows, target = x[keep], y[keep]              # only the samples that are marked
#     if len(rows) == 0:
#         return
#     error = rows @ weight - target
#     grad = 2 * rows.T @ error / len(rows)        # of the mean squared error
#     norm = grad.norm()
#     if norm > max_norm:
#         grad = grad * (max_norm / norm)
#     if torch.isfinite(norm):                     # else: skip this step
#         weight -= lr * grad
# ```
#
# <details><summary>Hint 1</summary>A sample that is not kept must contribute zero, and <code>len(rows)</code> is the
# sum of <code>keep</code>, as a tensor.</details>
#
# <details><summary>Hint 2</summary>Unmarked rows may hold anything, also nan or inf, and nan · 0 is nan. So is
# inf − inf. <code>torch.where(condition, a, b)</code> picks and never multiplies.</details>
#
# <details><summary>The idea</summary><code>rows = torch.where(keep[:, None], x, 0.0)</code>, the same for y;
# <code>n = keep.sum().clamp(min=1)</code>. Clipping always multiplies, and the skipped step
# writes, too: the old weight.</details>


# %% exercise="robust_step"
def robust_step(
    weight: torch.Tensor, x: torch.Tensor, y: torch.Tensor, keep: torch.Tensor, lr: float, max_norm: float
) -> None:
    """as_written, in a form that a CUDA graph can hold: same numbers, whatever the tensors hold at a replay.

    weight (n,), changed in place; x (batch, n); y (batch,); keep (batch,) of bool; all on the GPU. lr and
    max_norm > 0 are Python numbers and stay the same. x and y may hold nan, inf, or numbers so large that the norm
    overflows, in marked rows too: then the step is skipped, as in as_written. x, y and keep stay as they are. The
    CPU never waits, and no copy goes to or from it.
    """
    ### BEGIN SOLUTION
    rows, target = torch.where(keep[:, None], x, 0.0), torch.where(keep, y, 0.0)
    grad = 2 * rows.T @ (rows @ weight - target) / keep.sum().clamp(min=1)
    norm = grad.norm()
    moved = weight - lr * (max_norm / norm).clamp(max=1.0) * grad
    weight.copy_(torch.where(torch.isfinite(norm), moved, weight))
    ### END SOLUTION


# %% shared="robust_step"
import torch

from helpers import check


def drive(robust_step, weight, data, lr, max_norm):
    import torch

    from helpers import simulate

    gpu = simulate("H100", values=True, strict=False)
    with gpu:
        w, (x, y, keep) = weight.clone(), (t.clone() for t in data[0])
        robust_step(w, x, y, keep, lr, max_norm)  # what comes only with the first call
        w.copy_(weight)
        graph, before = gpu.CUDAGraph(), len(gpu.kernels)
        with gpu.graph(graph):
            robust_step(w, x, y, keep, lr, max_norm)
        outside, weights, replayed, given = len(gpu.kernels) - before, [], 0, True
        for new in [] if gpu.faults else data:
            for static, t in zip((x, y, keep), new):
                static.copy_(t)
            before = len(gpu.kernels)
            graph.replay()
            replayed = len(gpu.kernels) - before
            weights.append(w.clone())
            given &= all(torch.allclose(a, b, 0, 0, equal_nan=True) for a, b in zip((x, y, keep), new))
        gpu.synchronize()
        copies = sum(k.kind != "kernel" for k in gpu.kernels)
        return {
            "weights": [v.tolist() for v in weights],
            "faults": list(gpu.faults),
            "outside": outside,
            "replayed": replayed,
            "copies": copies,
            "given": given,
        }


def by_hand(weight, data, lr, max_norm):
    weight, out = weight.clone(), []
    for x, y, keep in data:
        rows, target = x[keep], y[keep]
        if len(rows):
            grad = 2 * rows.T @ (rows @ weight - target) / len(rows)
            norm = grad.norm()
            if norm > max_norm:
                grad = grad * (max_norm / norm)
            if torch.isfinite(norm):
                weight = weight - lr * grad
        out.append(weight)
    return out


def judge(reports):
    for report in reports:
        (_, data, _, _), got = report.args, report.value
        if got["faults"]:
            kinds = {fault.split(": ")[1]: fault for fault in got["faults"]}
            return f"the capture was refused {len(got['faults'])} time(s), because of {', '.join(kinds)}.\n  {got['faults'][0]}"
        if not got["replayed"]:
            return "the capture holds no kernel"
        for i, (mine, true) in enumerate(zip(got["weights"], by_hand(*report.args), strict=True)):
            if not torch.allclose(torch.tensor(mine), true, rtol=1e-3, atol=1e-5):
                if all(torch.equal(torch.tensor(w), report.args[0]) for w in got["weights"]):
                    return "`weight` itself was never written: the name was bound to a new tensor, or nothing was done"
                x, y, keep = data[i]
                odd = not (x.isfinite().all() and y.isfinite().all())
                marked = not (x[keep].isfinite().all() and y[keep].isfinite().all())
                place = (
                    ", with nan or inf in a marked row"
                    if marked
                    else ", with nan or inf in rows that are not marked"
                    if odd
                    else ", with a number so large that the norm is not finite"
                    if (x[keep].abs() > 1e20).any()
                    else ""
                )
                return (
                    f"replay {i + 1}: {int(keep.sum())} of {len(keep)} rows marked{place}: weight {mine[:3]} …, "
                    f"wanted {true[:3].tolist()} …"
                )
        if got["copies"] or got["outside"]:
            return f"{got['copies']} copies between CPU and GPU, {got['outside']} kernels outside the graph; wanted none"
        if not got["given"]:
            return "x, y or keep was changed: they are the caller's"
    return None


def samples(rows, n, seed, *kinds):
    """kinds: "some", "all", "none" of the rows marked; "dirty": nan and inf where not marked; "bad": in a marked row;
    "huge": in a marked row a finite number, whose square is not."""
    g, out = torch.Generator().manual_seed(seed), []
    for kind in kinds:
        x, y = torch.randn(rows, n, generator=g), torch.randn(rows, generator=g)
        keep = torch.rand(rows, generator=g) < {"all": 2.0, "none": -1.0}.get(kind, 0.6)
        if kind == "dirty":
            keep[0] = keep[1] = False
            x[0], y[1] = float("nan"), float("inf")
        if kind == "bad":
            keep[2], x[2, 0] = True, float("inf")
        if kind == "huge":
            keep[2], x[2, 0] = True, 1e30
        out.append((x, y, keep))
    return out


# %% test="robust_step" points=1
check.function(
    "robust_step",
    [
        check.case(torch.ones(4), samples(8, 4, 0, "some", "all", "some"), 0.1, 100.0),
        check.case(torch.ones(4), samples(8, 4, 1, "some", "some", "none", "some"), 0.1, 0.5),
        check.case(torch.ones(4), samples(8, 4, 2, "some", "dirty", "bad", "some"), 0.1, 0.5),
    ],
    drive=drive,
    budget={},
    verify=judge,
    look="3 · What cannot be recorded",
    note="no answer from the GPU, no size that depends on values, and weight changed at its address",
)

# %% hidden="robust_step" points=3
### BEGIN HIDDEN TESTS
check.function(
    "robust_step",
    [
        check.case(
            torch.randn(6), samples(20, 6, 5, "all", "some", "none", "dirty", "huge", "bad", "some"), 0.3, 1.5
        ),
        check.case(torch.zeros(3), samples(5, 3, 6, "none", "bad", "dirty", "all"), 0.2, 1000.0),
        check.case(torch.ones(1), samples(9, 1, 7, "dirty", "dirty", "some"), 0.05, 0.01),
    ],
    drive=drive,
    budget={},
    verify=judge,
    look="3 · What cannot be recorded",
)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · What a graph costs
#
# Its addresses must stay valid as long as it lives, so what is allocated during a capture comes from a **private
# memory pool**, from which nobody else is served. And a graph has one shape. Serving four batch sizes therefore takes
# four graphs, and four pools, or one that they share. **Memory of the four ÷ memory of the largest alone, to the
# nearest half?**

# %% experiment
prediction = {"a pool each": ..., "one pool for all": ...}


# %% experiment
def graphs_of(batches, shared, width=1024):
    """MiB that graphs of a forward pass reserve, after each."""
    gpu, held = simulate("H100"), []
    with gpu, torch.no_grad():
        parts = [nn.Sequential(nn.Linear(width, width, device=gpu.device), nn.ReLU()) for _ in range(8)]
        model, inputs = nn.Sequential(*parts), [torch.empty(b, width, device=gpu.device) for b in batches]
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


sizes = (8192, 4096, 2048, 1024)
pools = {"a pool each": graphs_of(sizes, False), "one pool for all": graphs_of(sizes, True)}
pools["one pool, the smallest first"] = graphs_of(sizes[::-1], True)
lesson.compare_predictions(
    prediction,
    {name: round(2 * pools[name][-1] / max(pools[name][0], 1)) / 2 for name in prediction},
    evidence="simulated (H100)",
).show()
lesson.table(
    [(name, *(f"{mib:,.0f} MiB" for mib in held)) for name, held in pools.items()],
    ["reserved by the graphs", "one graph", "two", "three", "four"],
    evidence="simulated (H100)",
    caption=f"batches {', '.join(f'{b:,}' for b in sizes)}, captured in this order; in the last row the other way round",
)

# %% [markdown]
# One pool, largest first: the smaller graphs fit into what the largest let go; the other way round much less is
# reused. The price: their temporaries, and what you no longer hold of their outputs, lie on top of each other. So replay them one after the other, never on
# two streams at once. Programs that serve many shapes do this, with a ladder of batch sizes and padding up to the
# next rung.
#
# Two ways to have the bookkeeping done for you. `make_graphed_callables` captures forward and backward of a module,
# each as a graph of its own, and leaves the loop yours. `torch.compile(mode="reduce-overhead")` compiles *and* uses
# CUDA graphs: it copies inputs into static ones, makes a graph per shape, shares a pool, skips what cannot be
# captured, and its outputs too are overwritten by the next run. On a CPU it skips the graphs, and does not say so.

# %% experiment tags=["fold"]
from torch._dynamo.utils import counters


def launches_of(graphed):
    gpu = simulate("H100")
    with gpu:
        model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(8))).to(
            gpu.device
        )
        optimizer, x = (
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            torch.empty(64, 256, device=gpu.device),
        )
        call = gpu.make_graphed_callables(model, (x,)) if graphed else model
        for _ in range(3):
            before = gpu.launches
            optimizer.zero_grad()
            call(x).square().mean().backward()
            optimizer.step()
    return gpu.launches - before


by_hand_launches = launches_of(False), launches_of(True)
counters.clear()
switched_on = torch._inductor.list_mode_options("reduce-overhead")
try:
    torch.compile(torch.mm, mode="reduce-overhead")(torch.eye(4), torch.eye(4))
except Exception as error:  # no C++ compiler on this machine
    print(f"not compiled here: {type(error).__name__}")
skipped = counters["inductor"]["cudagraph_skips"]
lesson.table(
    [
        ("launches of a step, eager", by_hand_launches[0]),
        ("with make_graphed_callables (model)", by_hand_launches[1]),
        ("options of reduce-overhead", ", ".join(f"{k} = {v}" for k, v in switched_on.items())),
        ("graphs skipped when compiled for this CPU", skipped),
    ],
    ["what", "counted"],
    evidence="simulated (H100) · live (CPU)",
)

# %% [markdown]
# With `make_graphed_callables` the two replays carry the model; loss and optimizer are launched as before. The only
# option of `reduce-overhead` is named after CUDA graphs: the mode is about the overhead of *launching*, and not about
# that of compiling (lesson 11).
#
# ## 5 · When does it help?
#
# The training step of section 1, replayed and eager, at growing batch. **How many times as fast is the replay?**
# Choose from 1, 1.5, 2, 3, 4, 6.

# %% experiment
prediction = {"batch 128": ..., "batch 512": ..., "batch 4096": ...}

# %% experiment
BATCHES = (16, 64, 128, 256, 512, 1024, 4096, 16384)
swept = {b: (ten_steps(False, batch=b), ten_steps(True, batch=b)) for b in BATCHES if b != 64}
swept = {b: swept.get(b) or (loops["eager"], loops["replayed"]) for b in BATCHES}
gain = {b: eager["seconds"] / replayed["seconds"] for b, (eager, replayed) in swept.items()}
lesson.compare_predictions(
    prediction,
    {
        f"batch {b}": min((1, 1.5, 2, 3, 4, 6), key=lambda n: abs(math.log(gain[b] / n)))
        for b in (128, 512, 4096)
    },
    evidence="simulated (H100)",
    what="times as fast, about",
)

# %% experiment
curves(
    {
        "": {
            name: (BATCHES, [pair[i]["seconds"] * 1e6 for pair in swept.values()])
            for i, name in enumerate(("eager", "replayed"))
        }
        | {"GPU computes": (BATCHES, [pair[1]["computing"] * 1e6 for pair in swept.values()])}
    },
    evidence="simulated (H100)",
    title="A graph lowers the floor, and not the slope",
    xlabel="batch",
    ylabel="µs per step",
    log="xy",
)

# %% [markdown]
# In a loop the CPU and the GPU work at the same time, and the slower one sets the pace. A graph lowers the CPU's
# part to almost nothing; the GPU's part stays. So **eager ≈ max(launches, kernels), replayed ≈ kernels**, and the
# gain is their ratio until it reaches 1; behind the crossing a graph gives nothing. (The distance between the two lower
# lines is the batch on its way from the CPU; lesson 05 hides it.) And if the CPU waits for the GPU in every step,
# because a loss is read or a token is chosen? Three steps, with one copy into the graph's input:


# %% experiment
def loop_seconds(sizes, waits, graphed):
    """Seconds of one step of a loop of ten: one kernel for each size, on a simulated H100."""
    gpu = simulate("H100")
    with gpu:
        work, fresh, static = (
            [torch.empty(n, device=gpu.device) for n in sizes],
            *torch.empty(2, 1000, device=gpu.device),
        )
        for _ in range(2):
            static.copy_(fresh)
            graph = gpu.CUDAGraph()
            with gpu.graph(graph):
                for t in work:
                    t.mul_(2)
        for t in work:
            t.mul_(2)
        gpu.synchronize()
        began = gpu.clock()
        for _ in range(10):
            if graphed:
                static.copy_(fresh)
                graph.replay()
            else:
                for t in work:
                    t.mul_(2)
            if waits:
                gpu.synchronize()
        gpu.synchronize()
        return (gpu.clock() - began) / 10


steps = {
    "30 short": [1000] * 30,
    "20 short, then one of 100 µs": [1000] * 20 + [40_000_000],
    "5 of 100 µs": [40_000_000] * 5,
}
lesson.table(
    [
        (
            name,
            *(f"{loop_seconds(of, w, False) / loop_seconds(of, w, True):.2f}×" for w in (False, True)),
        )
        for name, of in steps.items()
    ],
    ["kernels of a step", "gain, CPU never waits", "gain, CPU waits in each step"],
    evidence="simulated (H100)",
)

# %% [markdown]
# When the CPU waits, each step begins with an idle GPU, and the launches before a long kernel are no longer hidden
# behind the step before: a loop that gained nothing may now gain, and one that gained a lot gains less, as waiting and
# the way to the GPU cost the same with a graph. In the last row the graph loses what the copy into its input costs.
#
# **Exercise 7.4 — does it pay?** (★★, 8 min)
#
# <details><summary>Hint 1</summary>Without waiting: how long does the CPU need for all launches of a step, and the
# GPU for all kernels? In a long loop the larger one is the time of a step. Copies into static inputs are launches
# and kernels too.</details>
#
# <details><summary>Hint 2</summary>With waiting, a step begins with an idle GPU. Walk through it with two clocks: a
# kernel starts when its launch has arrived and the kernel before it is done. A graph's kernels all arrive
# together.</details>
#
# <details><summary>The idea</summary>Launches as pairs (CPU seconds, GPU seconds): one pair a kernel for eager; one a
# copy and then one <code>(graph_launch_s, sum(kernels))</code> for the graph. One function turns pairs into
# seconds, for both ways.</details>


# %% exercise="does_it_pay"
def does_it_pay(
    kernels: list[float],
    copies: list[float],
    waits: bool,
    capture_s: float,
    launch_s: float = 6e-6,
    graph_launch_s: float = 10e-6,
    latency_s: float = 2e-6,
    wait_s: float = 4e-6,
) -> tuple[float, float, float]:
    """(seconds of an eager step, seconds of a graphed step, steps until the capture is paid back)

    All in seconds, of a long loop of equal steps in one stream. kernels: durations, in order, of a step's
    kernels. copies: durations of the copies, on the GPU, into static inputs; only the graphed step has them,
    before its replay. The CPU needs launch_s to launch a kernel or a copy, and graph_launch_s for a replay; what
    is launched can start latency_s later. waits: the CPU waits at the end of every step until the GPU is done,
    and goes on wait_s after that; else it never waits.
    capture_s: what the capture costs once. math.inf steps if the graphed step is not faster.

    Right when the two times are within 3 % of the simulated GPU, and the steps within 5 % of what follows from
    its times. By arithmetic: the simulated GPU is not there to be asked.
    """
    ### BEGIN SOLUTION

    def seconds(pairs):
        if not waits:
            return max(sum(c for c, _ in pairs), sum(g for _, g in pairs))
        cpu = gpu = 0.0
        for c, g in pairs:
            cpu += c
            gpu = max(gpu, cpu + latency_s) + g
        return gpu + wait_s

    eager = seconds([(launch_s, k) for k in kernels])
    graphed = seconds([(launch_s, c) for c in copies] + [(graph_launch_s, sum(kernels))])
    return eager, graphed, capture_s / (eager - graphed) if graphed < eager else math.inf
    ### END SOLUTION


# %% shared="does_it_pay"
import math

import torch

from helpers import check, simulate


def measured_loop(sizes, inputs, waits, capture_s, **costs):
    """What the simulated GPU takes, and the arguments that describe the same loop."""
    names = ("launch_s", "operator_s"), ("latency_s", "launch_latency_s"), ("wait_s", "sync_s")
    assumed = {theirs: costs[mine] for mine, theirs in names if mine in costs}
    assumed |= {k: costs[k] for k in ("graph_launch_s",) if k in costs}
    gpu = simulate("H100", **assumed)
    with gpu:
        work = [torch.empty(n, device=gpu.device) for n in sizes]
        pairs = [(torch.empty(n, device=gpu.device), torch.empty(n, device=gpu.device)) for n in inputs]

        def step():
            for t in work:
                t.mul_(2)

        def loop(graph, steps=20):
            ends = []
            for _ in range(steps):
                for static, fresh in pairs if graph else ():
                    static.copy_(fresh)
                graph.replay() if graph else step()
                if waits:
                    gpu.synchronize()
                ends.append(gpu.clock() if waits else gpu.kernels[-1].end_ns / 1e9)
            gpu.synchronize()
            return (ends[-1] - ends[steps // 2]) / (steps - 1 - steps // 2)

        for static, fresh in pairs:
            static.copy_(fresh)
        step()
        gpu.synchronize()
        eager, graph = loop(None), gpu.CUDAGraph()
        with gpu.graph(graph):
            step()
        graphed, first = loop(graph), len(gpu.kernels) - len(sizes) - len(inputs)
    times = [k.duration_s for k in gpu.kernels[first:]]
    case = check.case(times[len(inputs) :], times[: len(inputs)], waits, capture_s, **costs)
    return case, eager, graphed, capture_s / (eager - graphed) if graphed < eager * 0.9999 else math.inf


def drive(does_it_pay, *args, **costs):
    from unittest import mock

    from helpers.simulator.timeline import Timeline

    def closed(*_, **__):
        raise RuntimeError("the simulated GPU is closed here: the answer follows from the arguments")

    with mock.patch.multiple(Timeline, spend=closed, enqueue=closed, __init__=closed):
        return does_it_pay(*args, **costs)


def judge(reports, truths):
    for report, (_, *truth) in zip(reports, truths, strict=True):
        kernels, copies, waits, capture_s = report.args
        what = f"{len(kernels)} kernels of {sum(kernels) * 1e6:.1f} µs in all, {len(copies)} copies, waits={waits}"
        hint = (
            "each step begins with an idle GPU; a kernel starts when its launch arrived and the one before is done"
            if waits
            else "CPU and GPU work at the same time, on different steps"
        )
        got = [float(v) for v in report.value]
        for name, mine, true in zip(("an eager step", "a graphed step"), got[:2], truth[:2]):
            if not abs(mine / true - 1) <= 0.03:
                return f"{what}: {name} takes {true * 1e6:.1f} µs on the simulated GPU, you say {mine * 1e6:.1f} µs (3 % allowed): {hint}"
        if not (got[2] == truth[2] or abs(got[2] / truth[2] - 1) <= 0.05):
            return f"{what}, capture {capture_s * 1e6:.0f} µs: paid back after {truth[2]:.2f} steps, you say {got[2]:.2f}"
    return None


# %% test="does_it_pay" points=1
loops_seen = [
    measured_loop([1000] * 30, [1000] * 2, False, 1e-3),
    measured_loop([30_000_000] * 10, [1000], False, 1e-3),
    measured_loop([1000] * 30, [1000] * 2, True, 1e-3),
    measured_loop([1000] * 10 + [60_000_000] + [1000] * 12, [1000], True, 1e-3),
]
check.function(
    "does_it_pay",
    [truth[0] for truth in loops_seen],
    drive=drive,
    verify=lambda reports: judge(reports, loops_seen),
    look="5 · When does it help?",
)

# %% hidden="does_it_pay" points=3
### BEGIN HIDDEN TESTS
loops_unseen = [
    measured_loop([1000] * 40, [1000] * 3, False, 2e-3, launch_s=3e-6, graph_launch_s=20e-6),
    measured_loop([20_000_000] + [1000] * 40, [], False, 3e-3),
    measured_loop([1000] * 40 + [20_000_000], [1000], True, 3e-3, latency_s=5e-6, wait_s=10e-6),
    measured_loop([1000] * 15 + [40_000_000] * 3 + [1000] * 20, [5_000_000], True, 1e-3),
    measured_loop([3_000_000] * 8, [10_000_000], False, 1e-3),
    measured_loop([1000], [1000], False, 1e-3, launch_s=9e-6),
    measured_loop([1000] * 6, [1000] * 9, True, 1e-3),
]
check.function(
    "does_it_pay",
    [truth[0] for truth in loops_unseen],
    drive=drive,
    verify=lambda reports: judge(reports, loops_unseen),
    look="5 · When does it help?",
)
### END HIDDEN TESTS

# %% [markdown]
# ## On the real GPU
#
# A forward pass of 16 layers, eager and replayed, at growing batch: live where there is a CUDA GPU, else a recording
# where one exists; none has been made for this lesson yet. What to look for on yours: is the gain at batch 16 larger
# or smaller than simulated (that is Python and the driver, on your CPU)? Is there still a gain of some per cent at the
# right end (the gaps between kernels, which the simulation leaves out)?

# %% experiment
from helpers import recordings

if torch.cuda.is_available() or recordings.load("07/when_it_helps"):
    shown = recordings.show("07/when_it_helps", simulated="H100")
    lesson.table(
        [
            (
                r["batch"],
                "≈ " + format_seconds(r["eager_us"] * 1e-6),
                "≈ " + format_seconds(r["replayed_us"] * 1e-6),
                f"≈ {r['eager_us'] / r['replayed_us']:.2f}×",
            )
            for r in shown.table
        ],
        ["batch", "eager", "replayed", "times as fast"],
        evidence=shown.evidence,
    ).show()
else:
    print("No GPU here and no recording yet: section 5 shows what is simulated.")

# %% [markdown]
# ## Sources on trial

# %% experiment tags=["fold"]
eager, replayed = loops["eager"], loops["replayed"]
wrong = [m for m in ("stale", "moved", "baked") if runs[m] != runs["eager"]]
sections = (
    "1 · One launch for a whole step",
    "2 · A recording holds addresses and numbers",
    "4 · What a graph costs",
    "5 · When does it help?",
)
rows = [
    (
        "07-communication",
        "guide",
        "CUDA graphs reduce the overhead of communication between CPU and GPU",
        f"launches of a step {eager['launches']:.0f} → {replayed['launches']:.0f}; bytes copied to the GPU "
        f"{eager['copied']:,.0f} → {replayed['copied']:,.0f}",
        "holds when communication means launches; as many bytes are copied as before"
        if replayed["launches"] < eager["launches"] and eager["copied"] == replayed["copied"]
        else "refuted",
        sections[0],
    ),
    (
        "07-several-times",
        "guide",
        "several times faster for models of many small operators",
        ", ".join(f"batch {b:,}: {gain[b]:.1f} times" for b in (64, 256, 1024, 4096)),
        "holds when launches take longer than kernels; else the gain is 1"
        if gain[64] > 2 > 1.1 > gain[4096]
        else "refuted",
        sections[3],
    ),
    (
        "07-structure",
        "guide",
        "made for a model whose structure stays the same from step to step",
        f"of 3 programs with a fixed structure, but an address or a number that changes, {len(wrong)} were wrong, "
        "without an error; the right one equals eager to the bit: "
        + ("yes" if runs["right"] == runs["eager"] else "no"),
        "holds when shapes, addresses and CPU numbers stay the same too; structure alone is not enough"
        if wrong
        else "confirmed",
        sections[1],
    ),
    (
        "07-reduce-overhead",
        "book-notes",
        "the mode reduce-overhead switches CUDA graphs on",
        f"options of the mode: {', '.join(switched_on)}; compiled for this CPU: {skipped} skipped, no message",
        "holds when the device is a GPU and the graph can be captured; on a CPU it is skipped silently"
        if switched_on.get("triton.cudagraphs") and skipped
        else "untested: this version names the option otherwise",
        sections[2],
    ),
]
keys = ("id", "source", "claim", "measured", "verdict", "experiment")
lesson.verdicts([dict(zip(keys, row, strict=True)) for row in rows], evidence="simulated (H100) · live (CPU)")

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | A replay is one launch, whatever is in it. | Copies into its inputs are launches of their own. |
# | A graph wins max(launches, kernels) ÷ kernels. | When the CPU waits in each step: less for short kernels, more where a long one hid the launches. |
# | New data go to the old address: `copy_`; clone an output that you keep. | What stays where it is and is written in place (weights, states) needs no copy. |
# | What changes from step to step is a tensor on the GPU. | A number that never changes may be Python's. |
# | No answers from the GPU in a capture: `where`, masks, factors. | Between two replays you may wait and decide. |
# | One graph per shape, largest first, one pool. | Graphs that run at the same time need pools of their own. |
#
# **Checklist for your own code**
# - [ ] Is the GPU idle because nothing is launched (lesson 03)? If not, no graph.
# - [ ] Warm-up before the capture: libraries, optimizer state, `capturable=True`?
# - [ ] Every input copied in, every output cloned or used before the next replay?
# - [ ] Which numbers change: learning rate, step count, scale, schedule, masks' sizes?
# - [ ] Does anything replace tensors later: loading a checkpoint, moving the model, an average of the weights?
# - [ ] Some steps compared with eager, with different data in each?
#
# **Read on**: PyTorch's documentation, *CUDA semantics*, section *CUDA Graphs* (constraints, warm-up, shared pools),
# and `torch.compiler`'s page on *CUDAGraph Trees*, which is what `reduce-overhead` does; NVIDIA, *CUDA Programming
# Guide*, *CUDA Graphs*.
