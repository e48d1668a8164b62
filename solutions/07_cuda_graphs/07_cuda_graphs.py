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
# Eight layers of 256 × 256, batch 64, SGD with momentum: a training step of {{kernels:.0f}} kernels, which take the GPU
# {{kernel_us:.1f}} µs each on average. Before each step the next batch is copied in from pinned memory, two tensors.
# Then we **capture** the step. Inside `with gpu.graph(graph):` (on a real GPU `torch.cuda.graph`) nothing runs: kernels
# and their arguments are written down. `graph.replay()` launches what was written. (A launch costs this CPU
# {{launch_us:.1f}} µs on average, Python included; a replay {{replay_us:.0f}} µs.)
#
# **How many launches has a step then, copies included: 1, 3, 10 or 60? And how many times as fast is it?**

# %% experiment
prediction = {
    "launches a step, replayed": ...,  # 1, 3, 10 or 60
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
    choices={"launches a step, replayed": (1, 3, 10, 60), "times as fast, about": (1, 2, 4, 8, 16)},
).show()
eager = loops["eager"]
lesson.keep(
    kernels=eager["kernels"],
    kernel_us=1e6 * eager["computing"] / eager["kernels"],
    launch_us=1e6 * eager["seconds"] / eager["launches"],
    replay_us=1e6 * eager["gpu"].card.assumptions.graph_launch_s,
    share_eager=eager["computing"] / eager["seconds"],
    share_replayed=loops["replayed"]["computing"] / loops["replayed"]["seconds"],
)
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
# The same kernels do the same work; what is gone is the pause before each ("short kernels": over before
# the next is launched). At the bottom of the second picture, which counts the kernels waiting, each replay adds its
# whole list at once. The CPU's part shrinks from one call a kernel to one call a step, whatever the step contains. So
# the GPU computes {{share_replayed:.0%}} of the time in place of {{share_eager:.0%}}, and the CPU waits for it. The
# capture itself is not free: how many steps until it is paid back is part of exercise 7.4.
#
# The lines of `captured` are the recipe. *Warm-up first*: what an operator does only the first time (libraries set
# themselves up, optimizers make their state) must not be in the recording. *On a side stream*, since autograd remembers
# the streams it saw, and the capture has one of its own. The simulation does not notice if you leave the side stream
# out; a real GPU may. The small examples below skip the warm-up: they have no optimizer and no library to set up.
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
    choices=("yes", "no"),
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


runs = {name: run_of(name) for name in ("correct", "stale", "moved", "baked")}
runs["eager"] = run_of("correct", graphed=False)
late = {name: sum(reported[4:]) for name, (reported, _) in runs.items()}  # over the second half
lesson.compare_predictions(
    prediction,
    {
        m: "higher"
        if late[m] > 1.05 * late["correct"]
        else "lower"
        if late[m] < 0.95 * late["correct"]
        else "same"
        for m in prediction
    },
    evidence="simulated (H100)",
    what="reported loss",
    choices=("higher", "lower", "same"),
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
            top = {"linestyle": "--", "zorder": 5} if name == "correct" else {}
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
    title="One correct capture and three that raise nothing",
    note="with true values · left: mean of 9 steps, on noisy data; correct lies on moved · correct equals eager, "
    f"bit for bit: {'yes' if runs['correct'] == runs['eager'] else 'no'}",
    xlabel="step",
    ylabel="loss",
)

# %% [markdown]
# *Stale* learns one batch by heart: its report looks suspiciously good, below the noise that no model can
# predict. *Moved* goes on training tensors that the model no longer has: its report is perfect, your model stands
# still, and nothing shows it. *Baked in* looks a little worse, to someone who knows the right curve. So the test of a
# capture is not that it runs, nor that the loss falls: **run some steps eagerly from the same start, with different
# data in each, and compare.** Then build one that passes it.
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


# %% test="graphed_step" points=1
from helpers.exercises.cuda_graphs import Epoch, check_GraphedStep

check_GraphedStep(
    Epoch("SGD", (16, 16, 16, 16, 16, 16, 7), warm_up=3),
    Epoch("AdamW", (16, 5, 16, 16, 16, (16, 3), 16, 16), warm_up=2),
)

# %% hidden="graphed_step" points=5
### BEGIN HIDDEN TESTS
from helpers.exercises.cuda_graphs import Epoch, check_GraphedStep

check_GraphedStep(
    Epoch("SGD", (7,) * 6, warm_up=2, wide=5, one_target=(0, 1, 2, 4, 5)),  # call 4: as many rows, another y
    Epoch("AdamW", (8, 8, 8, 8, 3), warm_up=1, wide=8),
    Epoch("SGD", (12, 5, 12, 12, 5, 12, 20, 12), warm_up=3, wide=6),
    Epoch("AdamW", (9, 9, 4, 9, (9, 2), 9, 9, 4, 9), warm_up=4, wide=3),
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


# %% test="repair" points=1
from helpers.exercises.cuda_graphs import calls, check_scorer

check_scorer(calls((3, 2), (4, 3), 4))

# %% test="repair" points=1
from helpers.exercises.cuda_graphs import calls, check_smoother

check_smoother(calls((5,), (5,), 4))

# %% test="repair" points=1
from helpers.exercises.cuda_graphs import calls, check_updater

check_updater(calls((5,), (5,), 4, 0.1, 0.3, 0.2, 0.05))

# %% hidden="repair" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.cuda_graphs import calls, check_scorer

check_scorer(calls((6, 5), (2, 6), 6), calls((1, 1), (30, 1), 3))
### END HIDDEN TESTS

# %% hidden="repair" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.cuda_graphs import calls, check_smoother

check_smoother(calls((2, 3), (2, 3), 6, 0.7), calls((1,), (1,), 3))
### END HIDDEN TESTS

# %% hidden="repair" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.cuda_graphs import calls, check_updater

check_updater(
    calls((3, 3), (3, 3), 8, *(0.5 / (i + 1) for i in range(8))),
    calls((4,), (4,), 3, 0.0, 0.2, 0.1),
    # longer than a list of corrections or of graphs that somebody made beforehand
    calls((2,), (2,), 40, *(0.02 * (i % 7) for i in range(40))),
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
lesson.compare_predictions(
    prediction, answers, evidence="simulated (H100)", what="can be captured", choices=("yes", "no")
).show()
lesson.table(
    reasons,
    ["refused", "in the words of CUDA and PyTorch"],
    evidence="simulated (H100)",
    caption="on a real GPU such a line raises, and the capture is lost",
)

# %% [markdown]
# Three families: **the CPU waits for an answer** (`.item()`, `if`, a mask whose result has a size that only the GPU
# knows); **ordinary CPU memory** (`torch.tensor(list, device=…)` copies from a temporary); and code that keeps its
# state on the CPU, like an optimizer's step counter, for which PyTorch has `capturable=True` ([without it a captured
# step raises](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/optim/optimizer.py)). The cures are older than
# graphs, they are those of hidden syncs (lesson 03): a condition becomes a number to multiply with or `torch.where`, a
# selection becomes a mask, a constant is made once, before. `clip_grad_norm_` shows how: it always multiplies, by a
# factor that is at most 1. A copy from pinned memory can be captured, but each replay reads that address *later*:
# refill it only when the copy is done.
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

    weight (n,), changed in place; x (batch, n), of any strides; y (batch,); keep (batch,) of bool; all on the GPU.
    lr and max_norm > 0 are Python numbers and stay the same. x and y may hold nan, inf, or numbers so large that the norm
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


# %% test="robust_step" points=1
from helpers.exercises.cuda_graphs import Marked, check_robust_step

check_robust_step(
    Marked((1.0,) * 4, 8, ("some", "all", "some"), lr=0.1, max_norm=100.0),
    Marked((1.0,) * 4, 8, ("some", "some", "none", "some"), lr=0.1, max_norm=0.5),
    Marked((1.0,) * 4, 8, ("some", "dirty", "bad", "some"), lr=0.1, max_norm=0.5),
)

# %% hidden="robust_step" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.cuda_graphs import Marked, check_robust_step

kinds = ("all", "some", "none", "dirty", "huge", "bad", "some")
check_robust_step(
    Marked((0.3, -1.2, 0.8, 0.1, -0.4, 1.7), 20, kinds, lr=0.3, max_norm=1.5),
    Marked((0.0,) * 3, 5, ("none", "bad", "dirty", "all"), lr=0.2, max_norm=1000.0),
    Marked((1.0,), 9, ("dirty", "dirty", "some"), lr=0.05, max_norm=0.01),
    Marked((1.0, -2.0), 9, ("tiny", "tiny"), lr=1e8, max_norm=1e-8),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · What a graph costs
#
# Its addresses must stay valid as long as it lives, so what is allocated during a capture comes from a **private
# memory pool**, from which nobody else is served. And a graph has one shape. Serving four batch sizes therefore takes
# four graphs, and four pools, or one that they share. **Memory of the four ÷ memory of the largest alone, to the
# nearest half: 1, 1.5, 2 or 4?**

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
    choices=(1, 1.5, 2, 4),
).show()
shared, other_way = pools["one pool for all"], pools["one pool, the smallest first"]
lesson.keep(largest_first=shared[-1], smallest_first=other_way[-1])
lesson.table(
    [(name, *(f"{mib:,.0f} MiB" for mib in held)) for name, held in pools.items()],
    ["reserved by the graphs", "one graph", "two", "three", "four"],
    evidence="simulated (H100)",
    caption=f"batches {', '.join(f'{b:,}' for b in sizes)}, captured in this order; in the last row the other way round",
)

# %% [markdown]
# One pool, largest first: the smaller graphs fit into what the largest let go, and all four take {{largest_first:.0f}}
# MiB. The other way round much less is reused, and they take {{smallest_first:.0f}} MiB. The price of sharing: their
# temporaries, and what you no longer hold of their outputs, lie on top of each other. So [replay them one after the
# other](https://docs.pytorch.org/docs/2.13/notes/cuda.html#sharing-memory-across-captures), never on two streams at
# once. Programs that serve many shapes do this, with a ladder of batch sizes and padding up to the next rung.
#
# Two ways to leave the bookkeeping to others. `make_graphed_callables` captures forward and backward of a module, each
# as a graph, and leaves the loop yours. `torch.compile(mode="reduce-overhead")` compiles *and* uses CUDA graphs (on a
# CPU it skips them, and does not say so): it copies inputs into static ones, makes a graph per shape, shares a pool,
# skips what cannot be captured, and its outputs too are overwritten by the next run; [reading one
# raises](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/cudagraph_trees.py).

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
lesson.keep(launches_eager=by_hand_launches[0], launches_callables=by_hand_launches[1])
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
# With `make_graphed_callables` a step has {{launches_callables}} launches in place of {{launches_eager}}: two replays
# carry the model; loss and optimizer are launched as before. The only option of `reduce-overhead` is named after CUDA
# graphs: the mode is about the overhead of *launching*, and not about that of compiling (lesson 11).
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
    choices=(1, 1.5, 2, 3, 4, 6),
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
gains = {
    name: [loop_seconds(of, waits, False) / loop_seconds(of, waits, True) for waits in (False, True)]
    for name, of in steps.items()
}
short, hidden, long = gains.values()
lesson.keep(
    short_free=short[0], short_waits=short[1], hidden_free=hidden[0], hidden_waits=hidden[1], long=long[0]
)
lesson.table(
    [(name, *(f"{gain:.2f}×" for gain in both)) for name, both in gains.items()],
    ["kernels of a step", "gain, CPU never waits", "gain, CPU waits in each step"],
    evidence="simulated (H100)",
)

# %% [markdown]
# When the CPU waits, each step begins with an idle GPU, and the launches before a long kernel are no longer hidden
# behind the step before. So the second loop, which gained {{hidden_free:.2f}}×, now gains {{hidden_waits:.2f}}×. The
# first gains less, {{short_waits:.2f}}× in place of {{short_free:.2f}}×, as waiting and the way to the GPU cost the same
# with a graph. In the last row the graph loses what the copy into its input costs: {{long:.2f}}×.
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


# %% test="does_it_pay" points=1
from helpers.exercises.cuda_graphs import Loop, check_does_it_pay

small, large = 1000, 60_000_000  # weights: a kernel at its floor, and a long one
check_does_it_pay(
    Loop((small,) * 30, (small,) * 2, waits=False),
    Loop((30_000_000,) * 10, (small,), waits=False),
    Loop((small,) * 30, (small,) * 2, waits=True),
    Loop((small,) * 10 + (large,) + (small,) * 12, (small,), waits=True),
)

# %% hidden="does_it_pay" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.cuda_graphs import Loop, check_does_it_pay

one, M = (1000,), 10**6
check_does_it_pay(
    Loop(one * 40, one * 3, waits=False, capture_s=2e-3, launch_s=3e-6, graph_launch_s=20e-6),
    Loop((20 * M, *one * 40), (), waits=False, capture_s=3e-3),
    Loop((*one * 40, 20 * M), one, waits=True, capture_s=3e-3, latency_s=5e-6, wait_s=10e-6),
    Loop((*one * 15, *(40 * M,) * 3, *one * 20), (5 * M,), waits=True),
    Loop((3 * M,) * 8, (10 * M,), waits=False),
    Loop(one, one, waits=False, launch_s=9e-6),
    Loop(one * 6, one * 9, waits=True),
    Loop((20 * M,) * 8, (), waits=False),  # equally fast
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
        "without an error; the correct one equals eager to the bit: "
        + ("yes" if runs["correct"] == runs["eager"] else "no"),
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
lesson.verdicts(rows, evidence="simulated (H100) · live (CPU)")

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
