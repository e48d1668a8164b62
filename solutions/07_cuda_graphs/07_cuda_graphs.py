# %% [markdown]
# # 07 · CUDA graphs
#
# ## What is left when launches cost nothing?
#
# In a small network on a fast GPU, each kernel ends before the CPU has launched the next one. A **CUDA graph** is a
# recorded list of kernels that the CPU launches with one call. To record is to **capture**; to launch the recorded list is
# to **replay**.
#
# A graph can make such a step several times as fast. But it can also compute *something else* than you wrote, without an
# error. So this lesson is about speed, and about what a recording holds.
#
# **Time** 60 min, two exercises among them; *Further*: 45 min. **Before this** lessons 00 (the simulated GPU), 03 (the
# queue) and 05 (streams).
#
# **Afterwards you can**
# - find the mistakes that a capture makes silently, and repair them;
# - capture a whole training step, and replay it with the numbers of an ordinary loop;
# - say beforehand whether a graph helps.
#
# **On trial** *several times faster for models of many small operators* · *for a structure that stays the same*
# (performance guide).

# %% setup
import math

import torch
from torch import nn

from helpers import lesson, simulate
from helpers.lessons.cuda_graphs import experiments

torch.set_num_threads(1)  # small tensors: more threads would mostly wait for one another
lesson.start("07_cuda_graphs", evidence=["simulated (H100)", "recorded (H100)", "live (CPU)"])

# %% [markdown]
# ## 1 · One launch for a whole step
#
# The step: eight layers of 256 × 256, batch 64, SGD with momentum. It has {{kernels}} kernels, of {{kernel_us:.1f}} µs each
# on average. Before each step, two tensors (the next batch) are copied into the GPU's memory. For each launch the simulated
# CPU needs {{launch_us:.1f}} µs on average.
#
# First we run the step **eager**: as always, Python launches each kernel. Then we capture the step. Inside `with gpu.graph(graph):` (on a real GPU
# [`torch.cuda.graph`](https://docs.pytorch.org/docs/stable/generated/torch.cuda.graphs.graph.html)) no kernel runs: PyTorch
# writes down the kernels and their arguments. `graph.replay()` launches what was written; it costs the CPU
# {{replay_us:.0f}} µs.
#
# **How many launches has a replayed step, its two copies included? And how many times as fast is it?**

# %% experiment
you = lesson.predict(
    {"launches of a replayed step": ..., "times as fast, about": ...},
    choices={"launches of a replayed step": [1, 3, 10, 60], "times as fast, about": [1, 2, 4, 8, 16]},
)


# %% experiment
def captured(gpu, step):
    """A graph of one step."""
    side = gpu.Stream()
    side.wait_stream(gpu.current_stream())
    with gpu.stream(side):
        for _ in range(3):
            step()  # warm-up: three real steps, they change the weights
    gpu.current_stream().wait_stream(side)
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        step()  # no kernel runs, nothing is trained
    return graph


loops = {
    "eager": experiments.ten_steps(lambda gpu, step: step),
    "replayed": experiments.ten_steps(lambda gpu, step: captured(gpu, step).replay),
}

# %% experiment
eager, replayed = loops.values()
lesson.keep(kernels=eager.kernels, kernel_us=1e6 * eager.computing / eager.kernels)
lesson.keep(launch_us=1e6 * eager.seconds / eager.launches)
lesson.keep(replay_us=1e6 * replayed.gpu.card.assumptions.graph_launch_s)
lesson.keep(share_eager=eager.share, share_replayed=replayed.share)
measured = {
    "launches of a replayed step": replayed.launches,
    "times as fast, about": experiments.nearest(eager.seconds / replayed.seconds, [1, 2, 4, 8, 16]),
}
you.against(
    measured, experiments.compared(loops), *experiments.queues(eager, replayed), evidence="simulated (H100)"
)

# %% [markdown]
# Only the pause before each kernel is gone. The first picture calls the cause of these
# pauses *short kernels*: a kernel ends before the next is launched (lesson 03). In the second picture *launches waiting*
# counts kernels: each replay adds its whole list. The CPU has soon launched all ten steps; then it waits for the GPU. In the whole
# loop the GPU computes {{share_replayed:.0%}} of the time in place of {{share_eager:.0%}}.
#
# The function `captured` is the recipe, in three parts:
#
# 1. **Warm up.** What operators do only the first time must not be in the recording: libraries set themselves up,
#    optimizers make their state.
# 2. **Warm up on a side stream.** Backward runs in the streams of the forward. Work that is tied to the default stream
#    cannot be captured: [autograd raises](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/autograd/graph.py). (The
#    simulation does not.)
# 3. **Capture one step.** The Python lines run once, now, and never at a replay.
#
# > **Limit of the simulation.** Times of launches are round assumptions. On a real GPU a graph also shortens the gap
# > between two kernels. And a replay of more kernels costs the CPU more. [In CUDA
# > 12.6](https://developer.nvidia.com/blog/constant-time-launch-for-straight-line-cuda-graphs-and-other-performance-enhancements/)
# > (NVIDIA, on an RTX 3060) this hardly counts, if the kernels form one line. The simulation leaves both out.
#
# ## 2 · A recording holds addresses and numbers
#
# The simulated GPU can also compute true values (`values=True`). We capture `y = x * scale * gain` and
# `noise = torch.rand(4)`. Here x = [1, 2] and gain = [1, 1] are tensors on the GPU, and scale = 10.0 is a Python number.
# Then we change one thing after the other, and replay after each change. (b = [5, 6] and c = [7, 7] are other tensors on the
# GPU.) **After which changes does y show the change?**

# %% experiment
you = lesson.predict(
    {
        "x.copy_(b)": ...,
        "x = c": ...,
        "scale = 100.0": ...,
        "gain.fill_(3)": ...,
        "torch.rand gives new numbers": ...,
        "first = y after replay 1; does first change later?": ...,
    },
    choices=["yes", "no"],
)

# %% experiment
with simulate("H100", values=True) as gpu:
    x, b, c = (torch.tensor(v, device=gpu.device) for v in ([1.0, 2.0], [5.0, 6.0], [7.0, 7.0]))
    gain, scale = torch.ones(2, device=gpu.device), 10.0
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        y, noise = x * scale * gain, torch.rand(4, device=gpu.device)

    replays = experiments.Replays(graph, y, noise)
    replays.after("captured with x = [1, 2]")
    x.copy_(b)
    replays.after("x.copy_(b)")
    old, x = x, c  # the graph still reads the old tensor, and does not keep it: `old` does
    replays.after("x = c")
    scale = 100.0
    replays.after("scale = 100.0")
    gain.fill_(3)
    replays.after("gain.fill_(3)")
    answers = replays.answers()

you.against(answers, replays.table(), evidence="simulated (H100)", what="shows it")

# %% [markdown]
# **A graph is a list of kernels with their arguments, and arguments are addresses and numbers.**
#
# - The *address* of x was recorded, not the name x. Copy new data to that address: `x.copy_(new)`.
# - A graph keeps no tensor alive that was made outside the capture. Hold each of them as long as the graph: else a replay
#   uses memory that others may have by then.
#   ([`check_input_liveness=True`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/cuda/graphs.py) makes the replay
#   raise instead.)
# - A Python number was recorded as it was. What changes from step to step must lie in a tensor that the graph reads,
#   mostly on the GPU.
# - Python itself is not in the list: no `print`, no `if`, no counter.
# - The result has one address too, so each replay overwrites the last result. Clone a result that you keep.
# - Random numbers are the exception: each replay moves the default generator on. (A generator of your own must be
#   registered before: `graph.register_generator_state(mine)`. Else the capture raises.)
#
# Whoever breaks one of these rules mostly gets no error. So a capture that runs proves nothing. The test is: **run some steps
# without the graph from the same start, with other data in each step, and compare.** (*Further* shows what three such
# mistakes do to a training run.)
#
# Here are three small captures. (To be short, they leave the warm-up out. On a real GPU the first matrix product would
# then set up cuBLAS inside the capture, and that may fail.) Each runs without an error, and each is wrong:
#
# - **scorer** should give each batch its scores, and these should stay as they are;
# - **smoother** should move a state a quarter of the way to each new value;
# - **updater** should make a step like Adam's, with another learning rate in each call.


# %% experiment
def faulty_scorer(gpu, weight, example):
    x, graph = example.clone(), gpu.CUDAGraph()
    with gpu.graph(graph):
        score = torch.tanh(x @ weight).square().sum(dim=1)

    def score_of(batch, held=x):
        x = batch
        assert x.shape == example.shape
        graph.replay()
        return score

    return score_of


def faulty_smoother(gpu, start, rate=0.25):
    old = state = start.clone()
    x, graph = torch.zeros_like(start), gpu.CUDAGraph()
    with gpu.graph(graph):
        state = state + rate * (x - state)

    def smooth(new, held=old):
        x.copy_(new)
        graph.replay()
        return state.clone()

    return smooth


# %% experiment
from helpers.lessons.cuda_graphs import exercises


def faulty_updater(gpu, weight, lr=0.1):
    mean, grad, calls = torch.zeros_like(weight), torch.zeros_like(weight), 1
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        mean.lerp_(grad, 0.1)  # Adam's running mean,
        weight.sub_(mean / (1 - 0.9**calls) * lr)  # and its correction for the first steps

    def update(new_grad, new_lr, held=mean):
        nonlocal lr, calls
        lr = new_lr
        grad.copy_(new_grad)
        graph.replay()
        calls += 1

    return update


rows = exercises.three_calls(scorer=faulty_scorer, smoother=faulty_smoother, updater=faulty_updater)
note = "got (wanted): the first number of each result, read after the third call; updater: of weight after the call"
columns = ["program", "call 1", "call 2", "call 3"]
lesson.table(rows, columns, evidence="simulated (H100)", caption=note)

# %% [markdown]
# **Exercise 7.1 — three silent captures** (★★, 10 min)
#
# Write the three so that they are right. Begin with the code above. (Its `held=` keeps a tensor alive that only the graph
# uses. Without it the replay would read memory that was given back. The simulation reads nan there, and the tests say so.)
#
# <details><summary>Hint 1</summary>Which addresses and which numbers did each capture write down? In each program look at every name that is bound again (<code>name = …</code>)
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
    are; a batch may be gone after the call. One capture serves all calls. No warm-up is needed here.

    A call is one replay and at most 3 launches in all, without a copy from the CPU and without a wait. In a call, compute
    outside the graph only on single numbers; larger tensors are only copied and filled there.
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

    def update(new_grad, lr, held=(mean, power)):  # the graph uses these two and does not keep them
        grad.copy_(new_grad)
        rate.fill_(lr)
        graph.replay()

    return update
    ### END SOLUTION


# %% test="repair" points=1
from helpers.lessons.cuda_graphs.exercises import calls, check_scorer

check_scorer(calls((3, 2), (4, 3), 4))

# %% test="repair" points=1
from helpers.lessons.cuda_graphs.exercises import calls, check_smoother

check_smoother(calls((5,), (5,), 4))

# %% test="repair" points=1
from helpers.lessons.cuda_graphs.exercises import calls, check_updater

check_updater(calls((5,), (5,), 4, 0.1, 0.3, 0.2, 0.05))

# %% hidden="repair" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.cuda_graphs.exercises import calls, check_scorer

check_scorer(calls((6, 5), (2, 6), 20), calls((1, 1), (30, 1), 3))
### END HIDDEN TESTS

# %% hidden="repair" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.cuda_graphs.exercises import calls, check_smoother

check_smoother(calls((2, 3), (2, 3), 20, 0.7), calls((1,), (1,), 3))
### END HIDDEN TESTS

# %% hidden="repair" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.cuda_graphs.exercises import calls, check_updater

check_updater(
    calls((3, 3), (3, 3), 8, *(0.5 / (i + 1) for i in range(8))),
    calls((4,), (4,), 3, 0.0, 0.2, 0.1),
    # longer than a list of corrections or of graphs that somebody made beforehand
    calls((2,), (2,), 130, *(0.02 * (i % 7) for i in range(130))),
)
### END HIDDEN TESTS

# %% [markdown]
# **Exercise 7.2 — a graphed training step** (★★★, 16 min)
#
# A step for any model, and for any optimizer that can be captured. (PyTorch refuses to capture AdamW without
# `capturable=True`; the tests set it.) The step warms up, captures, and replays. The last batch of an epoch is smaller: the
# step trains on it without the graph. Work in two stages: first the right losses and weights, then the streams and the
# four launches.
#
# <details><summary>Hint 1</summary>A warm-up of your own would change the weights. The first <code>warm_up</code> calls are
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

    What is given:
    - gpu: torch.cuda's names: Stream, stream, current_stream, CUDAGraph, graph, synchronize, …
    - model, optimizer: on that GPU. The optimizer's numbers, such as lr, stay the same.
    - loss_fn(model(x), y): a scalar. warm_up: 1 or more.
    - x, y: on the GPU, of any dtype, which stays the same. They are the caller's: never write to them. After the call
      they may be gone, or hold the next batch.

    What a call does: it trains one step, as an ordinary loop does, and returns the step's loss.
    - The loss is detached and has memory of its own, which is free once the caller drops it. No later call changes it,
      however many there are.
    - In each call another stream may be current; it already waits for the last call's. All your work comes after
      what it holds, and before what the caller puts there next. Nobody else waits for your streams.

    The graph is for the shapes of the first call. Of the calls with these shapes
    - the first `warm_up` are ordinary steps;
    - the next captures, once, and replays, whatever that costs;
    - each later one makes at most 4 launches (x in, y in, replay, loss out), and the CPU does not wait.
    Calls with other shapes, of x or of y, are ordinary steps at any time, and no warm-up.
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
from helpers.lessons.cuda_graphs.exercises import Epoch, check_GraphedStep

check_GraphedStep(
    Epoch("SGD", (16, 16, 16, 16, 16, 16, 7), warm_up=3),
    Epoch("AdamW", (16, 5, 16, 16, 16, (16, 3), 16, 16), warm_up=2),
)

# %% hidden="graphed_step" points=5
### BEGIN HIDDEN TESTS
from helpers.lessons.cuda_graphs.exercises import Epoch, check_GraphedStep

check_GraphedStep(
    Epoch("SGD", (7,) * 6, warm_up=2, wide=5, one_target=(0, 1, 2, 4, 5)),  # call 4: as many rows, another y
    Epoch("AdamW", (8, 8, 8, 8, 3), warm_up=1, wide=8, labels=True, one_buffer=True),
    Epoch("AdamW", (9, 9, 4, 9, (9, 2), 9, 9, 4, 9), warm_up=4, wide=3),
    Epoch("SGD", (12, 5, 5, 5, 5, 12, 12, 20, *[12] * 4), warm_up=3, wide=6),  # another shape is warm first
)
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · When does it help?
#
# A graph makes launches cheap. It makes no kernel faster. Take the step of section 1 with larger batches. Its launches take
# the CPU {{launching_us:.0f}} µs, whatever the batch. Its kernels take the GPU:
#
# | batch | 128 | 256 | 4,096 |
# |---|---|---|---|
# | kernels | {{us_128:.0f}} µs | {{us_256:.0f}} µs | {{us_4096:.0f}} µs |
#
# The CPU launches while the GPU computes. **How many times as fast as the eager step is the replayed one?**

# %% experiment
you = lesson.predict({"batch 128": ..., "batch 256": ..., "batch 4,096": ...}, choices=[1, 1.5, 2, 3, 4, 6])

# %% experiment
eager, replayed = experiments.growing_batch(captured)  # batch → the loop of section 1
gains = {batch: eager[batch].seconds / replayed[batch].seconds for batch in eager}
lesson.keep(launching_us=1e6 * eager[64].seconds)
us = {batch: 1e6 * eager[batch].computing for batch in eager}
lesson.keep(us_128=us[128], us_256=us[256], us_4096=us[4096])
ratios = {f"batch {batch:,}": gains[batch] for batch in (128, 256, 4096)}
picture = experiments.floor_and_slope(eager, replayed)
you.against_ratios(ratios, picture, evidence="simulated (H100)", what="times as fast")

# %% [markdown]
# In a loop the CPU and the GPU work at the same time, and the slower of the two sets the pace. Without a graph a step
# takes about **max(launches, kernels)**. With a graph it takes about the **kernels** alone. So the gain is at most the
# ratio of the two. Where the kernels take longer than the launches, a graph gives nothing. (In the picture both take
# longer than their kernels at large batches: they also copy the batch. Lesson 05 hides this copy.)

# %% [markdown]
# ## The running example
#
# The script's step has no wait any more, so it can be captured. (The losses are read outside of it, once in
# five steps.) At the end of lesson 06 a step took {{script_ms:.2f}} ms, and its kernels {{script_busy:.2f}} ms of them. AdamW
# needs `capturable=True`: without the flag PyTorch refuses the capture, although a fused AdamW counts its steps on the GPU
# already. **How many times as fast is a step?**

# %% experiment
you = lesson.predict({"a step of the script": ...}, choices=[1, 1.2, 1.5, 2, 4])

# %% experiment
import itertools

from helpers import running_example


def capturable_adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True, capturable=True)


# %% experiment
def graphed(step, gpu):
    graph, side, steps = gpu.CUDAGraph(), gpu.Stream(), itertools.count()
    held = []

    def run(*batch):
        if next(steps) < 3:  # three ordinary steps
            side.wait_stream(gpu.current_stream())
            with gpu.stream(side):
                out = step(*batch)
            gpu.current_stream().wait_stream(side)
            for tensor in batch:
                tensor.record_stream(side)
            return out
        if not held:
            inputs = [tensor.clone() for tensor in batch]
            with gpu.graph(graph):
                held.extend([inputs, step(*inputs)])
        torch._foreach_copy_(held[0], batch)
        graph.replay()
        return [tensor.clone() for tensor in held[1]]

    return run


# %% experiment
before = running_example.after("06")
faster = before.replace(optimizer=capturable_adamw, around=graphed)
board = running_example.compare(before, faster)
lesson.keep(script_launches=board.before.launches, script_launches_now=board.after.launches)
lesson.keep(script_mib=board.before.peak_bytes / 2**20, script_mib_now=board.after.peak_bytes / 2**20)
lesson.keep(script_ms=1e3 * board.before.step_s, script_busy=1e3 * board.before.busy_s)
ratios = {"a step of the script": board.before.step_s / board.after.step_s}
you.against_ratios(ratios, board, evidence="simulated (H100)", what="times as fast")

# %% [markdown]
# No time is won: the kernels took nearly the whole step before. The GPU always had work in its queue, so it never waited for
# a launch. The launches went from {{script_launches:.0f}} a step to {{script_launches_now:.0f}}: one copy from the CPU,
# its conversion to int64, two copies into the graph's inputs, the replay, two clones. The graph has memory of its own: the
# peak goes from {{script_mib:.0f}} to {{script_mib_now:.0f}} MiB. So the next lessons go on without the graph. Lesson 10 makes the
# kernels short, and there the graph comes back.

# %% [markdown]
# ## Your own script
#
# Look first at a trace of some steps: put `%load_ext helpers` into your notebook and `%%trace mine.json.gz` above the cell,
# or give your own file to `python -m helpers trace.json.gz`. Where the verdict is *launch-bound*, a graph helps. Where the
# GPU computes all the time, it does not. Try first what needs no code of yours:
# [`torch.compile(model, mode="reduce-overhead")`](https://docs.pytorch.org/docs/stable/generated/torch.compile.html). By
# hand it takes these lines, with a loader that drops its smaller last batch (`drop_last=True`) and pins the others
# (`pin_memory=True`), and with a `step` that never waits for the GPU (no `.item()`, no `print` of a loss). A scheduler's step
# is Python's and comes after each replay, never inside. Then compare some losses with those of the loop without the graph.
# Give that loop the same three steps on the first batch, and the same order of batches (no shuffling):

# %% experiment
from helpers.own_script import simulated_cuda, toy

with simulated_cuda("H100", values=True):  # at home: without this line, on your own GPU
    model, optimizer, loss_fn, loader, device, step = toy("cuda", pinned=True)

    # before the first step: AdamW then keeps its steps and lr on the GPU
    for group in optimizer.param_groups:
        group.update(capturable=True, lr=torch.tensor(group["lr"], device=device))
    static = [part.to(device) for part in next(iter(loader))]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(static)  # warm-up: trains three times on this batch
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(static)
    for batch in loader:
        for old, new in zip(static, batch):
            old.copy_(new, non_blocking=True)  # from a pinned batch: the host need not wait
        graph.replay()
    print(f"loss of the last replay: {loss.item():.2f}")

# %% [markdown]
# As a Python number `lr` would be **baked**: the graph would go on with the first one, whatever the scheduler says. A scheduler writes
# a tensor in place (`fill_`), where the replay reads it. Adam and AdamW take such a tensor as they are, SGD with `fused=True`.

# %% [markdown]
# ## On the real GPU
#
# A forward pass of 16 layers of 256 × 256, eager and replayed, simulated and recorded on a real H100 (and live, if you
# have a GPU). In the simulation the graph makes it {{sim_16:.1f}} times as fast at batch 16, and {{sim_1024:.1f}} times at
# batch 1,024. **Is the gain at batch 16 larger or smaller on the real machine? At which batch is it below 1.1?**

# %% experiment
you = lesson.predict(
    {"gain at batch 16, real GPU": ..., "first batch with a gain below 1.1, real GPU": ...},
    choices={
        "gain at batch 16, real GPU": ["larger", "smaller"],
        "first batch with a gain below 1.1, real GPU": [256, 1024, 4096, 16384],
    },
)

# %% experiment
from helpers import recordings

runs = recordings.side_by_side("07/when_it_helps")
simulated, recorded = (experiments.gains_by_batch(run) for run in runs[:2])
lesson.keep(sim_16=simulated[16], real_16=recorded[16], sim_1024=simulated[1024], real_1024=recorded[1024])
lesson.keep(real_last=recorded[16384], off=experiments.furthest_off(*runs[:2]))
sim, real = (experiments.passes(run) for run in runs[:2])
lesson.keep(sim_eager=sim["eager", 16], real_eager=real["eager", 16], real_replay=real["replayed", 16])
lesson.keep(sim_replay_64=sim["replayed", 64], sim_replay_1024=sim["replayed", 1024])
lesson.keep(real_replay_64=real["replayed", 64], real_replay_1024=real["replayed", 1024])
measured = {
    "gain at batch 16, real GPU": "larger" if recorded[16] > simulated[16] else "smaller",
    "first batch with a gain below 1.1, real GPU": min(b for b, gain in recorded.items() if gain < 1.1),
}
you.against(measured, experiments.on_a_gpu(runs), evidence=runs[1].evidence)

# %% [markdown]
# At batch 16 the gain is larger on the real machine: {{real_16:.1f}} times in place of {{sim_16:.1f}}. The same operators take
# the real CPU {{real_eager:.0f}} µs in place of {{sim_eager:.0f}}, with Python and the driver. (On another day it may be
# faster.) The whole replay takes {{real_replay:.0f}} µs.
#
# The real gain also lasts longer: at batch 1,024 it is {{real_1024:.1f}}. There the real launches take longer than the
# simulated ones, and the real replay takes {{real_replay_1024:.0f}} µs in place of {{sim_replay_1024:.0f}}. (At batch 64 it
# takes {{real_replay_64:.0f}} in place of {{sim_replay_64:.0f}}. We do not know why.) Up to batch 4,096 the eager pass takes
# about as long at each batch: the time of the launches. At batch 16,384 the replay, and so the kernels, take longer than
# that. As section 3 says, the gain is then nearly gone: it is {{real_last:.2f}}.
#
# The note *whole steps are off by up to …* comes from steps of well-known models. The simulated time of
# this small pass is wrong by up to {{off:.1f}} times.

# %% [markdown]
# ## Sources on trial
#
# Two claims. The second is tried in *Further*.

# %% experiment
from helpers.lessons.cuda_graphs import claims

lesson.verdicts(
    claims.on_trial(loops, gains),
    evidence="simulated (H100) · live (CPU)",
    shown=("07-several-times", "07-structure"),
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | A replay is one launch, whatever it holds. | Copies into its inputs are launches of their own. |
# | A graph makes a step at most max(launches, kernels) ÷ kernels times as fast. | When the CPU waits for the GPU in each step (*Further*). |
# | New data go to the old address: `copy_`. Clone a result that you keep. Hold what the graph uses. | Weights and states that are written in place need no copy. |
# | What changes from step to step is in a tensor on the GPU. | A captured copy reads pinned memory anew. |
#
# **Read on**: [*CUDA graphs*](https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs) in PyTorch's notes
# (constraints, warm-up, shared pools); NVIDIA's [*CUDA
# graphs*](https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-graphs).

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# Five sections, each on its own: three mistakes in a training loop (4 min), what cannot be captured (19 min), what a graph
# costs in memory (4 min), graphs that others make (3 min), and whether a graph pays (15 min).
#
# ### Three mistakes in a training loop (4 min)
#
# A training loop, captured correctly, and with each of three mistakes:
#
# - **stale**: the new batch is bound to the name, `x = new_x`, and not copied.
# - **moved**: after a third of the steps, a checkpoint is loaded with `assign=True`. This puts *new* tensors into the
#   model. (A model's plain `load_state_dict` copies in place and is safe. An optimizer's makes new tensors, too.)
# - **baked**: the learning rate, which should fall along a cosine, is a Python number.
#
# **In the second half of the run, is the loss that the step reports higher or lower than that of the correct run, or the
# same?**

# %% experiment
you = lesson.predict({"stale": ..., "moved": ..., "baked": ...}, choices=["higher", "lower", "same"])

# %% experiment
lesson.keep(noise=experiments.NOISE**2)
you.against(
    {mistake: experiments.late_loss(mistake) for mistake in ("stale", "moved", "baked")},
    experiments.loss_curves(),
    evidence="simulated (H100)",
    what="reported loss",
)

# %% [markdown]
# - **Stale** learns one batch by heart. Its loss looks very good: it falls below {{noise:.2f}}, the mean square of the
#   noise in the data. No model can predict noise, so such a loss is a warning.
# - **Moved** goes on training the old tensors, which the model no longer has. The reported loss is exactly the correct
#   one, but your model stands still. (The optimizer keeps the old tensors alive. Where nobody does, their memory may be
#   given to others.)
# - **Baked** reports a loss that is about a quarter higher. Without the correct curve beside it you would not notice.
#
# ### What cannot be captured (19 min)
#
# During a capture no kernel runs. So a line that needs an *answer* from the GPU cannot be captured. Two more common
# kinds: a line that copies from ordinary CPU memory, and an optimizer that counts its steps on the CPU. **Eight lines: can
# each be captured?** x and p are on the GPU; p is a parameter with a gradient.

# %% experiment
you = lesson.predict(
    {
        "loss.item()": ...,
        "if x.sum() > 0: …": ...,
        "x[x > 0]": ...,
        "x.masked_fill(x > 0, 0)": ...,
        "torch.tensor([1., 2.], device=gpu.device)": ...,
        "x.copy_(pinned, non_blocking=True)": ...,
        "clip_grad_norm_([p], 1.0)": ...,
        "AdamW([p]).step()": ...,
    },
    choices=["can be captured", "cannot"],
)

# %% experiment
answers, reasons = experiments.tried(
    {
        "loss.item()": lambda own: own.x.sum().item(),
        "if x.sum() > 0: …": lambda own: bool(own.x.sum() > 0),
        "x[x > 0]": lambda own: own.x[own.x > 0],
        "x.masked_fill(x > 0, 0)": lambda own: own.x.masked_fill(own.x > 0, 0),
        "torch.tensor([1., 2.], device=gpu.device)": lambda own: torch.tensor([1.0, 2.0], device=own.device),
        "x.copy_(pinned, non_blocking=True)": lambda own: own.x.copy_(own.pinned, non_blocking=True),
        "clip_grad_norm_([p], 1.0)": lambda own: nn.utils.clip_grad_norm_([own.p], 1.0),
        "AdamW([p]).step()": lambda own: own.optimizer.step(),
    }
)
you.against(answers, reasons, evidence="simulated (H100)", what="in a capture")

# %% [markdown]
# - **An answer from the GPU**: `.item()`, `if`, and a mask whose result has a size that only the GPU knows. The repairs are
#   those of hidden syncs (lesson 03). A condition becomes a factor, or `torch.where`. A selection becomes a mask.
#   `clip_grad_norm_` shows how: it always multiplies, by a factor that is at most 1.
# - **Ordinary CPU memory**: `torch.tensor(list, device=…)` copies from a temporary. Make a constant once, before the
#   capture. A copy from *pinned* memory can be captured, but each replay reads that memory later: refill it only when the
#   copy is done.
# - **State on the CPU**: an optimizer's step counter. `capturable=True` keeps it on the GPU ([without it a captured step
#   raises](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/optim/optimizer.py), also that of a fused optimizer, which
#   counts on the GPU already).

# %% [markdown]
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
    """as_written, in a form that a CUDA graph can hold: same numbers (to 3 digits), whatever the tensors hold at a replay.

    weight (n,), changed in place; x (batch, n), of any strides; y (batch,), all float32; keep (batch,) of bool; on the GPU.
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
from helpers.lessons.cuda_graphs.exercises import Marked, check_robust_step

check_robust_step(
    Marked((1.0,) * 4, 8, ("some", "all", "some"), lr=0.1, max_norm=100.0),
    Marked((1.0,) * 4, 8, ("some", "some", "none", "some"), lr=0.1, max_norm=0.5),
    Marked((1.0,) * 4, 8, ("some", "dirty", "bad", "some"), lr=0.1, max_norm=0.5),
)

# %% hidden="robust_step" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.cuda_graphs.exercises import Marked, check_robust_step

kinds = ("all", "some", "none", "dirty", "huge", "bad", "some")
check_robust_step(
    Marked((0.3, -1.2, 0.8, 0.1, -0.4, 1.7), 20, kinds, lr=0.3, max_norm=1.5),
    Marked((0.0,) * 3, 5, ("none", "bad", "dirty", "all"), lr=0.2, max_norm=1000.0),
    Marked((1.0,), 9, ("dirty", "dirty", "some"), lr=0.05, max_norm=0.01),
    Marked((1.0, -2.0), 9, ("tiny", "tiny"), lr=1e8, max_norm=1e-8),
)
### END HIDDEN TESTS

# %% [markdown]
# ### What a graph costs in memory (4 min)
#
# A graph's addresses must stay valid as long as the graph lives. So PyTorch takes the memory of a capture from a **private
# pool**, and gives it to nobody else. And a graph has one shape. Four batch sizes (8,192, 4,096, 2,048 and 1,024) need four
# graphs, with a pool each or with one pool for all. **How many times the memory of the largest graph do the four need?**

# %% experiment
you = lesson.predict({"a pool each": ..., "one pool for all": ...}, choices=[1, 1.5, 2, 4])

# %% experiment
held = {
    "a pool each": experiments.reserved(experiments.BATCHES, shared=False),
    "one pool for all": experiments.reserved(experiments.BATCHES, shared=True),
    "one pool, the smallest first": experiments.reserved(experiments.BATCHES[::-1], shared=True),
}
lesson.keep(
    largest_first=held["one pool for all"][-1], smallest_first=held["one pool, the smallest first"][-1]
)
ratios = {name: held[name][-1] / held["a pool each"][0] for name in you}
you.against_ratios(ratios, experiments.pools(held), evidence="simulated (H100)", what="times the largest")

# %% [markdown]
# With one pool and the largest graph first, the smaller graphs fit into memory that the largest has let go: all four take
# {{largest_first:.0f}} MiB. With the smallest graph first, the second fits by half, and the two largest not at all: all
# four take {{smallest_first:.0f}} MiB.
#
# Sharing has a price: a replay may overwrite another graph's result, even one that you still hold. So use or clone each
# result before the next replay, and [never replay two at
# once](https://docs.pytorch.org/docs/stable/notes/cuda.html#sharing-memory-across-captures). Programs that serve many shapes do this: they capture a ladder of batch sizes, and pad each batch to the
# next one.
#
# ### Graphs that others make (3 min)
#
# [`make_graphed_callables`](https://docs.pytorch.org/docs/stable/generated/torch.cuda.make_graphed_callables.html) captures
# forward and backward of a module, each as a graph, and leaves the loop to you. `torch.compile(mode="reduce-overhead")`
# compiles *and* uses CUDA graphs:

# %% experiment
lesson.keep(
    launches_eager=experiments.launches(graphed=False), launches_callables=experiments.launches(graphed=True)
)
options, skipped = experiments.reduce_overhead()
print(f"options of reduce-overhead: {options}; graphs skipped when compiled for this CPU: {skipped}")

# %% [markdown]
# With `make_graphed_callables` a step (that of section 1, without its target and its copies) has {{launches_callables}}
# launches in place of {{launches_eager}}. Two replays carry the model. Loss and optimizer are launched as before.
#
# The only option of `reduce-overhead` is named after CUDA graphs: the *overhead* is that of launches, and not that of
# compiling (lesson 11). The mode copies inputs into static tensors, makes a graph for each shape, shares a pool, and skips
# what cannot be captured. On a CPU it skips all graphs, and does not say so. The next run overwrites its results, as in
# section 2; [reading an old one raises](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/cudagraph_trees.py).
#
# ### Does it pay? (15 min)
#
# Section 3 had a CPU that never waits. Often it waits in each step: a loss is read, or a token is chosen. Here are three
# steps, graphed with one copy into the graph's input:

# %% experiment
steps = {
    "30 short": [1000] * 30,
    "20 short, then one of 100 µs": [1000] * 20 + [40_000_000],
    "5 of 100 µs": [40_000_000] * 5,
}
pays = {name: [experiments.gain(sizes, waits) for waits in (False, True)] for name, sizes in steps.items()}
short, hidden, long = pays.values()
lesson.keep(
    short_free=short[0], short_waits=short[1], hidden_free=hidden[0], hidden_waits=hidden[1], long=long[0]
)
rows = [(name, f"{free:.2f}×", f"{waits:.2f}×") for name, (free, waits) in pays.items()]
columns = ["kernels of a step", "gain, CPU never waits", "gain, CPU waits in each step"]
lesson.table(rows, columns, evidence="simulated (H100)")

# %% [markdown]
# When the CPU waits, each step begins with an idle GPU. Then no earlier step hides the launches that come before a long
# kernel. So the second loop gains {{hidden_waits:.1f}}× in place of {{hidden_free:.1f}}×. The first loop gains less,
# {{short_waits:.1f}}× in place of {{short_free:.1f}}×: nothing hides the launches of the copy and the replay any more. The
# wait and a launch's way to the GPU come on top, with a graph and without. In the last loop there is nothing to gain, and
# the copy into the graph's input costs a little: {{long:.2f}}×.

# %% [markdown]
# **Exercise 7.4 — does it pay?** (★★, 8 min)
#
# Predict the step with and without a graph, and when the capture is paid back.
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
    capture_s: what the capture costs once. Steps are not rounded; math.inf if the graphed step is not faster.

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
from helpers.lessons.cuda_graphs.exercises import Loop, check_does_it_pay

small, large = 1000, 60_000_000  # weights: a kernel at its floor, and a long one
check_does_it_pay(
    Loop((small,) * 30, (small,) * 2, waits=False),
    Loop((30_000_000,) * 10, (small,), waits=False),
    Loop((small,) * 30, (small,) * 2, waits=True),
    Loop((small,) * 10 + (large,) + (small,) * 12, (small,), waits=True),
)

# %% hidden="does_it_pay" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.cuda_graphs.exercises import Loop, check_does_it_pay

tiny, M = (1000,), 10**6
check_does_it_pay(
    Loop(tiny * 40, tiny * 3, waits=False, capture_s=2e-3, launch_s=3e-6, graph_launch_s=20e-6),
    Loop((20 * M, *tiny * 40), (), waits=False, capture_s=50e-6),  # paid back after 0.4 steps
    Loop((*tiny * 40, 20 * M), tiny, waits=True, capture_s=210e-6, latency_s=5e-6, wait_s=10e-6),  # 1.4
    Loop((*tiny * 15, *(40 * M,) * 3, *tiny * 20), (5 * M,), waits=True),
    Loop((3 * M,) * 8, (10 * M,), waits=False),
    Loop(tiny, tiny, waits=False, launch_s=9e-6),
    Loop(tiny * 6, tiny * 9, waits=True),
    Loop((20 * M,) * 8, (), waits=False),  # equally fast
)
### END HIDDEN TESTS
