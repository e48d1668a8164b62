# %% [markdown]
# # 02 · Operators and autograd
#
# ## Where does the time of a small operator go?
#
# You write `x + y`. Before the first two numbers are added, the call goes out of Python, through PyTorch's
# dispatcher and past autograd. For a large tensor the addition takes nearly all of the time, for a small one this call.
# Real code has many small operators: biases, norms, masks, losses, optimizer steps.
# This lesson finds the size at which the two parts are equal. Then it shows what autograd adds: a graph that holds memory.
#
# **Time** 60 min, with two exercises; *Further*: 89 min, with two more.
# **Before this** lessons 00 (measuring) and 01 (storage and stride); you have called `.backward()` before.
#
# **Afterwards you can**
# - count the operators of a line, and say up to which size that number decides the time;
# - replace several operators by one;
# - find what keeps a graph in memory, and let it go.

# %% setup
import torch
import torch.nn.functional as F

from helpers import count, lesson, simulate
from helpers.lessons.operators_and_autograd.overhead import crossover

lesson.start("02_operators_and_autograd", evidence=["live (CPU)", "simulated (H100)", "recorded (H100)"])

# %% [markdown]
# ## 1 · One line, how many operators?
#
# PyTorch runs a line of tensor code as a series of **operators**, such as `aten.add` or `aten.mm`. The **dispatcher**
# takes each operator and finds the code for the tensors' device, with autograd or without. Many functions are
# **composite**: on the way, PyTorch takes them apart into other operators. `count` counts what is left when that is done.
#
# `x`, `y` and `w` are 64 × 64 matrices, and `b` has 64 numbers. How many operators is each line in the end? Views count:
# a view moves no data, but it goes through the dispatcher too.

# %% experiment
you = lesson.predict(
    {
        "x + y": ...,
        "x @ w.T + b": ...,
        "F.linear(x, w, b)": ...,
        "F.layer_norm(x, (64,))": ...,
        "F.cosine_similarity(x, y)": ...,
        "torch.einsum('bi,bi->b', x, y)": ...,
    },
    choices=["1", "2 to 4", "5 or more"],
)

# %% experiment
from helpers.lessons.operators_and_autograd.experiments import few_or_many, which_operators

x, y, w, b = torch.randn(64, 64), torch.randn(64, 64), torch.randn(64, 64), torch.randn(64)
counted = {line: count(eval, line, globals()) for line in you}
einsum, cosine = counted["torch.einsum('bi,bi->b', x, y)"], counted["F.cosine_similarity(x, y)"]
lesson.keep(einsum=einsum.operators, einsum_views=einsum.views, cosine=cosine.operators)
you.against(few_or_many(counted), which_operators(counted), evidence="live (CPU)", what="operators")

# %% [markdown]
# A **kernel** is the code that does the work on the device. Nearly every operator that is no view starts a kernel. A
# name in Python says little about the number of operators. The last four functions are all composite:
#
# - `layer_norm` becomes one operator. `linear` becomes two, because it needs the view `w.t()`.
# - `einsum` becomes {{einsum}}. One of them, `bmm`, does the work. The other {{einsum_views}} are views, which give its inputs
#   and its result the right shapes.
# - `cosine_similarity` becomes {{cosine}}, and none of them is a view.
#
# ## 2 · Overhead against size
#
# The time of `x + y` has two parts. The **call** takes the same time for every size: Python, the dispatcher, a new
# tensor. The **work** grows with the number of elements. At some size the two parts are equal: the **crossover**.
#
# The simulator assumes that a call takes {{launch_us:.0f}} µs on a GPU, and that the memory of an H100 moves
# {{gb_s:,.0f}} GB in a second. On a CPU both numbers are smaller. How many float32 elements does `x + y` have at its
# crossover, about?

# %% experiment
you = lesson.predict(
    {"crossover on this CPU, one thread": ..., "crossover on a (simulated) H100": ...},
    choices=["100", "10 thousand", "1 million", "100 million"],
)

# %% experiment
from helpers.lessons.operators_and_autograd.experiments import GPU_SIZES, SIZES, fastest


def add_on(gpu, n, repeats=100):
    """Seconds for one x + y of n elements, where the CPU launches many of them in a row."""
    x, y = torch.ones(n, device=gpu.device), torch.ones(n, device=gpu.device)
    for _ in range(3):  # the first launch loads the kernel
        x + y
    gpu.synchronize()
    start = gpu.clock()
    for _ in range(repeats):
        x + y
    gpu.synchronize()
    return (gpu.clock() - start) / repeats


cpu_s = [fastest(torch.add, torch.rand(n), torch.rand(n)) for n in SIZES]
with simulate("H100") as h100:
    gpu_s = [add_on(h100, n) for n in GPU_SIZES]

# %% experiment
from helpers.lessons.operators_and_autograd.experiments import about, bandwidth, crossing, crossing_on

crossovers = {
    "crossover on this CPU, one thread": about(crossing(SIZES, cpu_s)),
    "crossover on a (simulated) H100": about(crossing_on(h100.card)),
}
lesson.keep(launch_us=h100.card.assumptions.operator_s * 1e6, gb_s=bandwidth(h100.card) / 1e9)
lesson.keep(gpu_millions=crossing_on(h100.card) / 1e6, gpu_mb=12 * crossing_on(h100.card) / 1e6)
you.against(
    crossovers,
    crossover(SIZES, cpu_s, evidence="live (CPU)", title="One CPU thread"),
    crossover(GPU_SIZES, gpu_s, evidence=h100.evidence, title="One H100", law="max"),
    evidence="live (CPU) · simulated (H100)",
    what="elements, about",
)

# %% [markdown]
# In both pictures the flat part on the left is the call (“floor”), and the slope on the right is the work. The two dashed
# lines meet at the crossover. The two devices differ in one point:
#
# - On the CPU, call and work follow each other. The time is roughly their **sum**: often less where the tensors fit into
#   the CPU's caches, and more where they do not.
# - On a GPU, the call is a **launch**: the CPU puts a kernel into the GPU's queue, and goes on. Here it launches many in a
#   row and waits only at the end. So the next launch runs while the GPU works, and the time is the **larger** of the two.
#
# For the H100 you can calculate the crossover. `x + y` moves 12 bytes for each element: two reads of 4 bytes, one write.
# During the {{launch_us:.0f}} µs of one launch the memory moves {{gpu_mb:.0f}} MB, the bytes of {{gpu_millions:.2f}} million
# elements. A faster memory moves the crossover to the right. So does a slower call. Here is a real H100, recorded with
# PyTorch 2.11:

# %% experiment
from helpers.lessons.operators_and_autograd.experiments import on_real_card

real = on_real_card()
lesson.keep(real_launch_us=real.launch_s * 1e6, real_millions=real.crossing / 1e6)
lesson.keep(real_gb_s=real.bytes_per_s / 1e9, real_mb=12 * real.crossing / 1e6)
crossover(real.sizes, real.seconds, evidence=real.evidence, title="A real H100", law="max")

# %% [markdown]
# The slope is nearly the simulated one: the real memory moves {{real_gb_s:,.0f}} GB in a second. The floor is not: this
# machine needs {{real_launch_us:.0f}} µs for a call of `x + y`. **The card sets the slope, and the CPU beside it the floor.** So
# the crossover lies at {{real_millions:.1f}} million elements. Only your own machine can tell you yours (*Further*).
#
# Other operators move other bytes for each element. So count **bytes read and written**: the crossover is floor ×
# bandwidth, {{real_mb:.0f}} MB on this card. What takes longer there, the call or moving the bytes?

# %% experiment
you = lesson.predict(
    {
        "a bias of 768 numbers: b.sub_(gradient)": ...,
        "x + b: x of 8 × 512 tokens, 768 features": ...,
        "x + b: x of 32 × 512 tokens, 768 features": ...,
        "x.sum(): x of 1,024 × 1,024": ...,
    },
    choices=["the call", "the bytes"],
)

# %% experiment
from helpers.lessons.operators_and_autograd.experiments import longer_part, moved_and_time

# float32; b is read again and again, but out of the cache: only x and the result move
moved = [3 * 768 * 4, 2 * 8 * 512 * 768 * 4, 2 * 32 * 512 * 768 * 4, 1024 * 1024 * 4]
operators = dict(zip(you, moved, strict=True))
you.against(
    longer_part(operators, real), moved_and_time(operators, real), evidence=real.evidence, what="takes longer"
)

# %% [markdown]
# Below the crossover, **the number of operators is the time**, and that reaches far: a batch of 8 in the second row is
# still below it. Above the crossover, the number of bytes decides, or in a matrix product the arithmetic.
#
# ## 3 · Operators that exist already
#
# When the number of operators is the time, use an operator that does several steps at once. Below are five
# computations, written out: nearly one operator for each step. PyTorch has one function for each computation.
# How many launches does each written-out form need? A view is no launch.


# %% experiment
def norm_by_hand(x, gain, bias):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * gain + bias


def entropy_by_hand(x, labels):
    shifted = x - x.max(-1, keepdim=True).values
    logs = shifted - shifted.exp().sum(-1, keepdim=True).log()
    return -logs.gather(1, labels[:, None]).mean()


def attention_by_hand(q, k, v):
    return (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v


you = lesson.predict(
    {
        "a + b * c": ...,
        "x @ w.t() + b": ...,
        "norm_by_hand": ...,
        "entropy_by_hand": ...,
        "attention_by_hand": ...,
    },
    choices=["1 to 3", "4 to 6", "7 or more"],
)

# %% experiment
from helpers.lessons.operators_and_autograd.experiments import both_ways, launches, what_fusion_gives

fused = both_ways(simulate("H100"), norm_by_hand, entropy_by_hand, attention_by_hand)
_, cross_entropy = fused["entropy_by_hand"]
lesson.keep(entropy=cross_entropy.launches)
gains = what_fusion_gives(fused, evidence="simulated (H100)")
you.against(launches(fused), gains, evidence="simulated (H100)", what="launches")

# %% [markdown]
# PyTorch's functions for the last three are `F.layer_norm`, `F.cross_entropy` and
# [`F.scaled_dot_product_attention`](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html).
# They are **fused**: each does several steps in one operator, or in two (`cross_entropy` is {{entropy}} kernels here). The
# results between the steps of one kernel never leave the chip. So there are fewer launches, and fewer bytes.
#
# - `a + b * c`, the norm and the cross-entropy work on about half a million elements. That is below the crossover: fewer
#   launches help them. (The fused norm moves half the bytes of the fused `a + b * c` and yet takes longer: the simulator
#   charges a norm more time for its start and end.)
# - Attention has 8 sequences of 512 tokens and 16 heads, so its scores have 8 · 16 · 512 · 512 elements: fewer bytes help
#   it. Written out, it writes and reads the scores several times. The fused kernel never writes all of them. In float32 this
#   is PyTorch's *memory-efficient* kernel. The best known one, [FlashAttention](https://arxiv.org/abs/2205.14135), takes
#   half precision only on a CUDA GPU.
# - In the product with a bias, the kernel itself takes most of the time. The simulator sees little gain. And the real card?

# %% experiment
from helpers.lessons.operators_and_autograd.experiments import what_fusion_gave

what_fusion_gave()

# %% [markdown]
# Where kernels are short, the CPU sets the time, and fewer launches win much, though not in proportion: calls differ.
# Where kernels are long, as in attention, the CPU does not matter.
#
# **The simulator is wrong here, in two ways.** Its calls are too cheap: with short kernels this machine needs up to 3.3 times as
# long. (The 32% are for whole steps.) Its product is too slow: the card's fused form needs about half of the simulated time.
# Written out, the card runs one kernel more than simulated.
#
# **The rule.** Count operators where tensors are small, and bytes where they are large. Use PyTorch's operator where
# it has one for several of your steps. Check with `count`.
#
# **Exercise 2.1 — few operators** (★★, 13 min)
#
# `block_plain` below is the end of a gated residual layer, written operator by operator. How many operators is it? Guess
# before you run the cell after it. Then write `block`: the same numbers and gradients in **at most 6 operators**, views
# counted.
#
# <details><summary>Hint 1</summary>Mark which lines of <code>block_plain</code> belong to one
# idea: a matrix product with a bias, a gated sum, a normalisation with scale and shift, an activation.</details>
#
# <details><summary>Hint 2</summary>All four ideas have an operator. For the gated sum, look at the
# operators whose names begin with <code>addc</code>. What is <code>z · sigmoid(z)</code> called?</details>
#
# <details><summary>The idea</summary><code>F.linear</code> (a view and <code>addmm</code>),
# <code>torch.addcmul</code>, <code>F.layer_norm</code>, <code>F.silu</code>: five operators and four
# results.</details>


# %% setup
def block_plain(x, w, b, gate, residual, gamma, beta, eps=1e-5):
    h = x @ w.t()
    h = h + b
    h = residual + gate * h
    mean = h.mean(dim=-1, keepdim=True)
    var = ((h - mean) ** 2).mean(dim=-1, keepdim=True)
    h = (h - mean) / torch.sqrt(var + eps)
    h = h * gamma + beta
    return h * torch.sigmoid(h)


# %% experiment
row = torch.ones(24)
plain = count(block_plain, torch.ones(32, 16), torch.ones(24, 16), row, row, torch.ones(32, 24), row, row)
print(f"block_plain: {plain.operators} operators, views among them: {plain.views}")


# %% exercise="few_operators"
def block(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor,
    gate: torch.Tensor,
    residual: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    eps: float = 1e-5,
) -> torch.Tensor:
    """What block_plain returns, in few operators. Works with autograd; changes no input, and no earlier call's result.

    x: (n, k). w: (d, k). b, gate, gamma, beta: (d,). residual: (n, d). All of one dtype, float32 or float64, of any
    strides, and each of them may want gradients or not. Returns (n, d), in the dtype of x.
    Budget of the forward: 6 operators, views counted, and no syncs. 5 are enough, so one is to spare.
    Where an input wants gradients: 7 operators, whichever (autograd copies the input of an activation in place).
    """
    ### BEGIN SOLUTION
    h = torch.addcmul(residual, gate, F.linear(x, w, b))
    return F.silu(F.layer_norm(h, h.shape[-1:], gamma, beta, eps))
    ### END SOLUTION


# %% test="few_operators" points=1
from helpers.lessons.operators_and_autograd.exercises import check_block, layer

check_block(layer(32, 16, 24), layer(64, 8, 8, eps=0.1), layer(40, 12, 10, trained=True))
check_block(layer(9, 5, 4, trained=True), gradients=True)

# %% hidden="few_operators" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers.lessons.operators_and_autograd.exercises import check_block, layer

check_block(
    layer(128, 32, 48, eps=1e-3),
    layer(96, 64, 64),
    layer(80, 8, 16, torch.float64),
    layer(72, 24, 40, trained=True),
    layer(50, 24, 40, trained=True, data=True),
)
### END HIDDEN TESTS

# %% hidden="few_operators" points=1
### BEGIN HIDDEN TESTS
import torch

from helpers.lessons.operators_and_autograd.exercises import check_block, layer

check_block(layer(6, 5, 7, torch.float64, trained=True), gradients=True)
check_block(layer(8, 5, 7, torch.float64, trained=True, data=True), gradients=True)
check_block(layer(7, 5, 6, torch.float64, trained=True, frozen=5), gradients=True)
check_block(layer(9, 5, 6, torch.float64, trained=True, frozen=2), gradients=True)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · What keeps a graph alive
#
# In training, the forward also builds a **graph**. Every operator that has a derivative, and whose inputs want a gradient, adds
# a **node** to it: the function that will do its part of the backward. A node **keeps** in memory the tensors that it will
# need: that of `tanh` its result, those of `square` and `abs` their input. A tensor with a `grad_fn` holds its node, and
# the node holds the graph below it.
#
# Many scripts put the loss of every step into a list. Does such a list keep the graphs in memory? A small net runs ten
# steps. Each step makes one matrix called `hidden`, and puts one thing into a list. How many of the ten matrices are
# still in memory at the end?


# %% experiment
def ten_steps(keep, backward=True):
    kept = []
    for _ in range(10):
        hidden = torch.tanh(batch @ weight)
        loss = hidden.square().mean()
        kept.append(keep(hidden, loss))
        if backward:
            torch.autograd.grad(loss, weight)
        del hidden, loss
    return kept


you = lesson.predict(
    {
        "the loss; backward has run": ...,
        "the loss; no backward (validation)": ...,
        "hidden.abs().mean(); backward has run from the loss": ...,
        "hidden[0].detach()": ...,
        "hidden[0].detach().clone()": ...,
    },
    choices=[0, 1, 10],
)

# %% experiment
batch, weight = torch.randn(64, 256), torch.randn(256, 256).div(16).requires_grad_()
runs = [
    count(ten_steps, lambda hidden, loss: loss),
    count(ten_steps, lambda hidden, loss: loss, backward=False),
    count(ten_steps, lambda hidden, loss: hidden.abs().mean()),
    count(ten_steps, lambda hidden, loss: hidden[0].detach()),
    count(ten_steps, lambda hidden, loss: hidden[0].detach().clone()),
]
alive = {what: run.live_bytes // (64 * 256 * 4) for what, run in zip(you, runs, strict=True)}
you.against(alive, evidence="live (CPU)", what="hidden matrices in memory")

# %% [markdown]
# Backward frees what each node kept. After it, the list of losses holds empty nodes only. What stays is a graph that *no*
# backward goes through: a loss in validation, or a metric beside the loss. With
# [`retain_graph=True`](https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad.html) backward frees nothing.
# `create_graph=True` implies that, and gives the gradients a graph of their own. A detached row keeps as much memory
# without any graph. The row is a view, and a view holds its whole storage (lesson 01).
#
# **Exercise 2.2 — who keeps the graph?** (★★, 16 min)
#
# `train_leaky` trains correctly, and its memory grows with every step. The cell after it shows how much. Write `train`: the
# same numbers, and no memory that grows with the number of steps, except what is returned. There is more than one
# leak. In one of them a tensor without a graph holds the memory.
#
# <details><summary>Hint 1</summary>Go through what lives longer than a step: three lists, one average, two
# weights. For each: does it have a <code>grad_fn</code>? If not, how large is its
# <code>untyped_storage()</code>?</details>
#
# <details><summary>Hint 2</summary><code>create_graph=True</code> is for gradients of gradients, and nobody
# takes any here. A detached row of a matrix is a view: the whole matrix stays (lesson 01).
# <code>.item()</code> would cut the graph as well, but the CPU would have to wait for the GPU once in every
# step.</details>
#
# <details><summary>The idea</summary>No <code>create_graph</code>, <code>.detach()</code> for the activity
# that is averaged, and <code>hidden[0].detach().clone()</code> for the row. Without
# <code>create_graph</code> backward has emptied the loss's graph. Its <code>.detach()</code> is for the
# contract, which wants results without a graph.</details>


# %% setup
def train_leaky(w1, w2, inputs, targets, lr=0.1):
    w1, w2 = w1.clone().requires_grad_(), w2.clone().requires_grad_()
    losses, norms, rows, smooth = [], [], [], None
    for x, y in zip(inputs, targets, strict=True):
        hidden = torch.tanh(x @ w1)
        loss = (hidden @ w2 - y).pow(2).mean()
        g1, g2 = torch.autograd.grad(loss, (w1, w2), create_graph=True)
        losses.append(loss)
        norms.append(torch.sqrt(g1.pow(2).sum() + g2.pow(2).sum()))
        rows.append(hidden[0].detach())
        activity = hidden.pow(2).mean()
        smooth = activity if smooth is None else 0.9 * smooth + 0.1 * activity
        with torch.no_grad():
            w1.sub_(lr * g1)
            w2.sub_(lr * g2)
    kept = {
        "loss": torch.stack(losses),
        "norm": torch.stack(norms),
        "row": torch.stack(rows),
        "smooth": smooth,
    }
    return {k: v.detach() for k, v in (kept | {"w1": w1, "w2": w2}).items()}


# %% experiment
from helpers.lessons.operators_and_autograd.experiments import peaks

peaks(train_leaky)


# %% exercise="graph_keeper"
def train(
    w1: torch.Tensor, w2: torch.Tensor, inputs: torch.Tensor, targets: torch.Tensor, lr: float = 0.1
) -> dict[str, torch.Tensor]:
    """Plain gradient descent on a two-layer net; returns what train_leaky returns, without its leaks.

    All tensors are of one dtype, float32 or float64.
    w1: (k, width), w2: (width, out): starting weights, not changed. inputs: (steps, batch, k), steps >= 1.
    targets: (steps, batch, out). Returns, none of them with a graph: "loss" (steps,), "norm" (steps,): length
    of the gradient, "row" (steps, width): the first sample's hidden activations, "smooth" (): the running
    average of the mean squared activation, "w1", "w2": the trained weights.
    Budget:
    - growth: with each step more, the peak of live bytes may grow by 4 × what the step adds to the result
      (width + 2 numbers);
    - the peak itself: 6 matrices of (batch, width), 4 copies of the weights, and 4 × the result; a step without leaks
      needs about half of that;
    - no syncs: a GPU would never be waited for.
    """
    ### BEGIN SOLUTION
    w1, w2 = w1.clone().requires_grad_(), w2.clone().requires_grad_()
    losses, norms, rows, smooth = [], [], [], None
    for x, y in zip(inputs, targets, strict=True):
        hidden = torch.tanh(x @ w1)
        loss = (hidden @ w2 - y).pow(2).mean()
        g1, g2 = torch.autograd.grad(loss, (w1, w2))
        losses.append(loss.detach())
        norms.append(torch.sqrt(g1.pow(2).sum() + g2.pow(2).sum()))
        rows.append(hidden[0].detach().clone())
        activity = hidden.detach().pow(2).mean()
        smooth = activity if smooth is None else 0.9 * smooth + 0.1 * activity
        with torch.no_grad():
            w1.sub_(lr * g1)
            w2.sub_(lr * g2)
    kept = {
        "loss": torch.stack(losses),
        "norm": torch.stack(norms),
        "row": torch.stack(rows),
        "smooth": smooth,
    }
    return kept | {"w1": w1.detach(), "w2": w2.detach()}
    ### END SOLUTION


# %% test="graph_keeper" points=1
from helpers.lessons.operators_and_autograd.exercises import Training, check_train

check_train(*[Training(steps, batch=48, k=16, width=64, out=2) for steps in (3, 15)])

# %% hidden="graph_keeper" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers.lessons.operators_and_autograd.exercises import Training, check_train

check_train(
    *[Training(steps, batch=64, k=8, width=128, out=2, lr=0.3) for steps in (2, 22)],
    *[Training(steps, batch=100, k=20, width=40, out=1, lr=0.3) for steps in (4, 30)],
    graphs=False,
)
check_train(Training(5, batch=6, k=4, width=8, out=3, dtype=torch.float64), costs=False, graphs=False)
### END HIDDEN TESTS

# %% hidden="graph_keeper" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.operators_and_autograd.exercises import Training, check_train

check_train(
    Training(12, batch=32, k=8, width=64, out=2, lr=0.2),
    Training(1, batch=1, k=1, width=2, out=1),
    costs=False,
)
### END HIDDEN TESTS

# %% [markdown]
# ## The running example
#
# The script writes attention as a formula: two products, a mask that is built anew in every layer, a softmax. The formula of
# GELU is written out too. PyTorch has one operator for each. `is_causal=True` says what the mask said.

# %% experiment
from helpers import running_example


def fused_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def fused_gelu(x):
    return F.gelu(x, approximate="tanh")


before = running_example.after("01")
faster = before.replace(attention=fused_attention, activation=fused_gelu)
board = running_example.compare(before, faster)
lesson.keep(script_before=board.before.operators, script_after=board.after.operators)
lesson.keep(script_faster=board.before.step_s / board.after.step_s)
lesson.keep(script_saved_mib=(board.before.peak_bytes - board.after.peak_bytes) / 2**20)
lesson.keep(script_won_ms=1e3 * (board.before.step_s - board.after.step_s))
lesson.keep(kernels_won_ms=1e3 * (board.before.busy_s - board.after.busy_s))
board

# %% [markdown]
# Two changed parts, and a step has {{script_after:,.0f}} operators in place of {{script_before:,.0f}}. On the simulated H100
# the step is {{script_faster:.2f}} times as fast: {{script_won_ms:.2f}} ms shorter. Its kernels are {{kernels_won_ms:.2f}} ms
# shorter. So in the simulator all that was won is kernel time: at {{launch_us:.0f}} µs each, launches take less time than
# kernels. At {{real_launch_us:.0f}} µs, as on the machine recorded above, they would take about as long, and fewer would win,
# too. The larger gain is memory: {{script_saved_mib:.0f}} MiB less at the peak.
# The formula writes the scores, the masked scores and their softmax to memory, each with context × context numbers for every
# head, and it keeps softmax and mask for the backward pass. The fused operator writes none of them. The formula of GELU, too,
# keeps several tensors; the fused operator keeps its input alone.

# %% [markdown]
# ## Your own script
#
# Look first at the number of calls in one step, and multiply it by the time of one call. Is the product near the time of
# your step? Then try first to remove calls: a Python loop over samples, heads or equal layers, a norm, a loss or attention
# that is written out. If the product is small, calls are not the problem. If memory grows, look for what outlives a step and
# has a `grad_fn`.
#
# The profiler sees a composite function *before* it is taken apart, and its parts inside of it. So here `linear` is one
# call, where `count` finds two operators.

# %% experiment
from helpers.own_script import toy

model, optimizer, loss_fn, loader, device, step = toy()  # at home: your own

from torch.profiler import ProfilerActivity, profile

batch = next(iter(loader))
step(batch)  # a warm-up
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
    step(batch)
calls = [event for event in prof.events() if event.name.startswith("aten::")]
inside = [call for call in calls if call.cpu_parent and call.cpu_parent.name.startswith("aten::")]
print(f"{len(calls) - len(inside)} calls of operators in one step, and {len(inside)} inside of these")
rows = prof.key_averages(group_by_input_shape=True)
for row in sorted(rows, key=lambda row: (-row.count, row.key))[:6]:
    print(f"{row.count} × {row.key} {row.input_shapes}")

# %% experiment tags=["nbval-ignore-output"]
from timeit import repeat

one = torch.ones(1)
call_us = min(repeat(lambda: one + one, number=1000)) * 1e3
step_us = min(repeat(lambda: step(batch), number=10, repeat=20)) * 1e5
for what, number in {"outer": len(calls) - len(inside), "all": len(calls)}.items():
    print(
        f"{what} calls: {number} × {call_us:.1f} µs = {number * call_us:.0f} µs, of a step of {step_us:.0f} µs"
    )

# %% [markdown]
# The truth lies perhaps between the two products: an inner call passes the dispatcher again, but not Python. The most
# frequent calls are AdamW's: for each parameter it turns numbers into tensors again and again. I would remove these first
# (lesson 06).
#
# What is not in the list is **Python itself**. Is the step much longer than its operators together? Then ask which line.
# `where` runs any function with the simulated card, and says what Python took in each line, measured on your machine. (A step
# between other work takes longer than above, where it ran again and again.)

# %% experiment tags=["nbval-ignore-output"]
from helpers.own_script import where


def slow_step():
    for batch in loader:
        share = [sum(range(50_000)) for _ in range(len(batch[0]))]  # a loop in plain Python
        step(batch)
    return share


where(slow_step, "python_s", factor=1, most=3)

# %% [markdown]
# ## Sources on trial
#
# Two claims from the course's sources.

# %% experiment
from helpers.lessons.operators_and_autograd import claims

lesson.verdicts(
    claims.on_trial(h100.card, fused),
    evidence="live (CPU) · simulated (H100)",
    shown=("02-overhead", "02-fusion"),
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | A small operator costs its call: count operators. | Above the crossover: count bytes. |
# | Use the operator that exists. | Its name may hide several: count it. |
# | After backward, a kept loss holds no matrices. | A graph that no backward goes through holds all of them. |
# | Keep the numbers of a step with `.detach()`. | A detached view holds its whole storage: `.clone()` it. |
#
# When you cannot lower the count by hand, CUDA graphs (lesson 07) or a compiler (lesson 11) may help.
#
# **Read on**: [Autograd mechanics](https://docs.pytorch.org/docs/stable/notes/autograd.html) and [Extending
# PyTorch](https://docs.pytorch.org/docs/stable/notes/extending.html) in PyTorch's manual; E. Yang, [PyTorch
# internals](https://blog.ezyang.com/2019/05/pytorch-internals/) and [Let's talk about the PyTorch
# dispatcher](https://blog.ezyang.com/2020/09/lets-talk-about-the-pytorch-dispatcher/).

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# Each section stands alone, but for *A Function that keeps less*, which follows the two before it.
#
# ### One product for three (3 min)
#
# Attention multiplies the same input with three weights: queries, keys, values. Three products of one input are one product
# with the weights on top of each other. How much does the merged projection save, in operators, and in time on the simulated
# H100?

# %% experiment
from helpers.own_script import simulated_cuda

three, merged = [torch.nn.Linear(512, 512) for _ in range(3)], torch.nn.Linear(512, 3 * 512)
with torch.no_grad():
    merged.weight.copy_(torch.cat([linear.weight for linear in three]))
    merged.bias.copy_(torch.cat([linear.bias for linear in three]))
x = torch.randn(4, 512)
for part, linear in zip(merged(x).chunk(3, dim=-1), three):
    torch.testing.assert_close(part, linear(x))
ways = {"three": lambda x: [linear(x) for linear in three], "merged": lambda x: merged(x).chunk(3, dim=-1)}
print({name: f"{count(way, x).operators} operators" for name, way in ways.items()})
for rows in (64, 16_384):
    with simulated_cuda("H100") as gpu:
        three, merged = [linear.to("cuda") for linear in three], merged.to("cuda")
        for name, way in ways.items():
            way(x := torch.randn(rows, 512, device="cuda"))  # a warm-up
            gpu.synchronize()
            began = gpu.clock()
            way(x)
            gpu.synchronize()
            print(f"{rows:6,} rows, {name:6}: {1e6 * (gpu.clock() - began):6.1f} µs")

# %% [markdown]
# The same numbers come out. With few rows the gain is a tenth: two calls are saved, but the one kernel takes longer than each of
# the three. With many rows it is nearly a fifth: in the simulator a kernel loses time at its start and at its end, when not all
# of the card has work. One product loses it once, three products lose it three times. On the machine recorded above a call costs
# more, so there few rows should gain more (not measured). You can merge in the same way the gate and the input of a gated MLP,
# and several heads that read one input.
#
# ### What a call consists of (4 min)
#
# Each row below does more than the row above.

# %% experiment
from helpers.lessons.operators_and_autograd.experiments import times

x, y = torch.rand(1), torch.rand(1)
wants = torch.rand(1, requires_grad=True)
times(
    {
        "a Python function that does nothing": lambda: None,
        "a view: `x.view(1)`": lambda: x.view(1),
        "a kernel and a new tensor: `x + y`": lambda: x + y,
        "a node for autograd: `wants + y`": lambda: wants + y,
        "backward: `(wants + y).backward()`": lambda: (wants + y).backward(),
    }
)

# %% [markdown]
# The times are those of this machine. Look at two rows. A view, which moves no data, already costs many times as much as
# an empty Python function. And one `backward` on one element costs several times as much as its forward.
#
# On the machine of a recorded H100 calls on tiny tensors were launched many times in a row. So nearly all of these times are the CPU's.

# %% experiment tags=["fold"]
from helpers.lessons.operators_and_autograd.experiments import recorded_calls

calls_us, shown = recorded_calls()
lesson.keep(addition_us=calls_us["x + y"], linear_us=calls_us["F.linear with bias"])
lesson.keep(layer_us=calls_us["F.linear, forward and backward"])
shown

# %% [markdown]
# There is no *one* time of a call. A linear layer's takes {{linear_us:.0f}} µs and not {{addition_us:.0f}}, and with its backward
# {{layer_us:.0f}} µs. The simulator takes {{launch_us:.0f}} µs for every kernel.
#
# You can watch a call on its way. A *function mode* stands above everything and sees what your line calls. A *dispatch
# mode* stands below autograd and sees what goes on to a kernel. `count` is built from these two.

# %% experiment
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

path = []


class Above(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        path.append(("Python", f"your line calls {func.__name__}"))
        path.append(("dispatcher", f"stops for w, from right to left: {torch._C._dispatch_keys(w)}"))
        return func(*args, **(kwargs or {}))


class Below(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        path.append(("below autograd", f"{func}: " + ("a view, no kernel" if func.is_view else "a kernel")))
        return func(*args, **(kwargs or {}))


x, w, b = torch.randn(4, 3), torch.randn(8, 3, requires_grad=True), torch.randn(8, requires_grad=True)
with Above(), Below():
    out = F.linear(x, w, b)
path.append(("autograd", f"the result carries {out.grad_fn.name()}, a node for the way back"))
lesson.table(path, ["where", "what happens"], evidence="live (CPU)")

# %% [markdown]
# The second row names the stops of one operator:
#
# - `AutocastCPU` is a stop only while autocast is on.
# - `AutogradCPU` makes a node if an input wants a gradient. It also takes composite functions apart: `linear` became
#   two operators.
# - `ADInplaceOrView` keeps a record of views and of changes in place. Other operators pass it.
# - `CPU` is the kernel.
#
# Every operator pays for its stops, whatever the size of its tensors. The two base classes of the cell stand in
# PyTorch's manual under [Extending PyTorch](https://docs.pytorch.org/docs/stable/notes/extending.html).
#
# ### What a node keeps (6 min)
#
# Below, `w` and `v` want gradients, and `x` does not.

# %% experiment
from helpers.lessons.operators_and_autograd.graph import autograd_graph

x, w, v = torch.randn(100), torch.randn(100, requires_grad=True), torch.randn(100, requires_grad=True)
s = x * 2 - w
out = (s.tanh() * s + v.exp()).sum()
names = {"w": w, "v": v}
autograd_graph(out, evidence="live (CPU)", names=names, title="s = 2x − w; (tanh(s)·s + eᵛ).sum()")

# %% [markdown]
# Each row is a node. The arrows point the way the gradients go: from the result at the top down to the **leaves** (round),
# the tensors that asked for a gradient. `x * 2` has no node, because nothing in it asked for one. Two gradients arrive at
# `SubBackward0`, and they are added.
#
# On the right is what a node keeps (`count` calls it `saved_bytes`). The product keeps its two factors (`self` and
# `other`). `tanh` keeps its result. That is one of the two factors: one storage, counted once.
#
# `x` and `y` have n elements of 4 bytes each, and both want gradients. How much does each line keep for backward?
# The unit is one tensor like `x`, 4n bytes.

# %% experiment
you = lesson.predict(
    {
        "x - y": ...,
        "x * y": ...,
        "x.relu()": ...,
        "torch.where(x > 0, x, y)": ...,
        "x * torch.sigmoid(x)": ...,
        "F.silu(x)": ...,
    },
    choices=[0, 0.25, 1, 2, 3],
)

# %% experiment
x, y = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)


def kept_by(line):
    """Bytes kept for backward by a line of code, in tensors like x."""
    return count(eval, line, globals()).saved_bytes / x.nbytes


kept = {line: kept_by(line) for line in you}
lesson.keep(silu=kept["F.silu(x)"], silu_written=kept["x * torch.sigmoid(x)"])
you.against(kept, evidence="live (CPU)", what="kept, in tensors like x")

# %% [markdown]
# The derivative decides. That of a difference needs nothing. That of a product needs both factors. `relu` and
# `sigmoid` need only their result, `silu` only its input. `where` needs its condition, and a bool is one byte.
#
# Written out, a function keeps what *each* of its steps needs. `x * torch.sigmoid(x)` keeps {{silu_written:.0f}}
# tensors, `F.silu(x)` keeps {{silu:.0f}}, and their values are the same. So a fused operator can save memory as well
# as time. All these kept tensors are in memory together when the forward ends.
#
# ### In place, and what it breaks (6 min)
#
# `y = op(x)` runs. Then somebody adds 1 to `x` or to `y` in place. Then backward runs. Does backward **raise**, is the
# gradient **fine** all the same, or is it silently **wrong**?

# %% experiment
you = lesson.predict(
    {
        "op is sin, its input is changed": ...,
        "op is sin, its result is changed": ...,
        "op is exp, its input is changed": ...,
        "op is exp, its result is changed": ...,
    },
    choices=["raises", "fine", "wrong"],
)

# %% experiment
from helpers.lessons.operators_and_autograd.experiments import by_change, needed, outcomes

endings = outcomes()
measured = {
    f"op is {op}, its {which} is changed": endings["t.add_(1)", which, f"x.{op}()"]
    for op in ("sin", "exp")
    for which in ("input", "result")
}
you.against(measured, by_change(endings), needed(endings), evidence="live (CPU)")

# %% [markdown]
# Every tensor has a **version counter**, but for those made in `inference_mode`. Each in-place operator raises the counter by
# one, with `no_grad` or without, and `.detach()` shares the counter. A node remembers the version of what it keeps. If the two
# versions differ when backward comes, backward raises
# ([`saved_variable.cpp`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/autograd/saved_variable.cpp)). So
# `sin`, which keeps its input, objects to a changed input. `exp` keeps its result and objects to a changed result. What
# no node keeps may be changed.
#
# In the last two rows, what raised has become *wrong*. `.data` gives a tensor with a counter of its own, and NumPy
# knows no counter. The check is gone.
#
# The next graph is broken by one `add_`. Which nodes have lost what they kept?

# %% experiment
from helpers.lessons.operators_and_autograd.graph import autograd_graph

w = torch.randn(100, requires_grad=True)
z = (w + 1).exp()
loss = (z.sin() + z).sum()
z.add_(1)
autograd_graph(
    loss, evidence="live (CPU)", names={"w": w}, title="z = exp(w + 1); loss = (sin(z) + z).sum(); z.add_(1)"
)

# %% [markdown]
# `z` is the result that `exp` kept, and the input that `sin` kept. So one `add_` breaks two nodes. `z = z + 1` would
# break none: it makes a new tensor, and the old tensor stays as it was.
#
# **The rule.** A change in place is safe on what no node keeps: say the result of `+`, of `mean`, of a matrix product or a
# `cat`, unless the next operator keeps its input. It saves one allocation and no launch. Never write through `.data`. Write
# under `torch.no_grad()` instead, and the check stays on.
#
# ### A Function that keeps less (30 min)
#
# **Exercise 2.3 — a third of the bytes** (★★★, 26 min)
#
# You can choose what a function keeps, with
# [`torch.autograd.Function`](https://docs.pytorch.org/docs/stable/autograd.html#function): run the forward unrecorded,
# keep what you choose, and compute the rest again in backward. `ctx.save_for_backward` has the version check.
#
# TanhExp, x · tanh(eˣ) ([Liu and Di, 2020](https://arxiv.org/abs/2003.09855)), is an activation that PyTorch does not
# have. Written out it keeps three tensors like x. Write `tanhexp` so that it keeps **one**, with the right gradient,
# also where the written-out form fails.
#
# <details><summary>Hint 1</summary>d/dx x·tanh(eˣ) = tanh(eˣ) + x·eˣ·(1 − tanh²(eˣ)). What of this can be
# computed again from x alone?</details>
#
# <details><summary>Hint 2</summary>At x = 100, eˣ is inf in float32, and inf · 0 is nan. From which x on is
# tanh(eˣ) exactly 1, so that the second summand must be 0? Look at <code>clamp(max=…)</code>. Then try
# x = 1e30: which product of your formula overflows first, and in which order would it not?</details>
#
# <details><summary>The idea</summary>A Function whose forward saves x
# (<code>ctx.save_for_backward(x)</code>) and whose backward computes e = exp(clamp(x, max=20)), t = tanh(e)
# and grad · (t + x·(e·(1 − t²))). The inner brackets are 0 for large x before the large x comes in. In the
# order x·e first, 1e30 · e²⁰ is inf in float32, and inf · 0 is nan again.</details>


# %% setup
def tanhexp_plain(x):
    return x * torch.tanh(torch.exp(x))


# %% exercise="lean_function"
def tanhexp(x: torch.Tensor) -> torch.Tensor:
    """x · tanh(exp(x)), element by element, keeping one tensor of x's size for backward.

    x: any shape (also () and (0, 3)) and strides, float32 or float64, any finite values. Returns x's shape and
        dtype. Once differentiable; several calls may come before the first one's backward.
    Gradient: right and finite for every finite x (it tends to 1 as x grows), at 1e30 also if 1e30 comes into
        backward; what comes in may have any strides, and stays as it was.
    Budget, if x fills its storage: saved_bytes ≤ x.nbytes; of what forward made, no more stays alive than the result
    and one tensor like x, bytes that Python holds (a buffer, a file in memory) included; no syncs.
    If x is changed in place before backward, backward either raises or is right: never silently wrong.
    """
    ### BEGIN SOLUTION
    return _TanhExp.apply(x)


class _TanhExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.tanh(torch.exp(x))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        e = torch.exp(x.clamp(max=20))  # tanh(e³) is 1 to the last bit already; beyond, exp would overflow
        t = torch.tanh(e)
        return grad * (t + x * (e * (1 - t * t)))  # the brackets: x · e overflows first for x = 1e30

    ### END SOLUTION


# %% test="lean_function" points=2
import torch

from helpers.lessons.operators_and_autograd.exercises import check_tanhexp

g = torch.Generator().manual_seed(0)
check_tanhexp(torch.randn(40, 50, generator=g), torch.linspace(-5, 5, 99, dtype=torch.float64))
check_tanhexp(torch.tensor([-1e30, 100.0, 1e30]))
check_tanhexp(kept_of=[50_000])

# %% hidden="lean_function" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers.lessons.operators_and_autograd.exercises import check_tanhexp

g = torch.Generator().manual_seed(1)
double = torch.randn(3, 5, 7, generator=g, dtype=torch.float64).mul(3)
check_tanhexp(
    double,
    torch.tensor([-100.0, -30, -2, 0, 0.5, 2.5, 19, 60, 88, 100, 3e4]),
    torch.tensor([-3e38, -1e31, 2e29, 3e38]),
    torch.tensor([-800.0, 709, 711, 1e6, 1e300], dtype=torch.float64),
    torch.randn(6, 9, generator=g).t(),
    torch.tensor(2.5),
    torch.empty(0, 3),
    torch.tensor([[1.5], [-2.0]]).expand(2, 3),
    torch.tensor(-3e38),
)
check_tanhexp(double, tolerance=1e-12)  # float64 in, float64 throughout
check_tanhexp(torch.tensor([-30, 0.5, 100, 1e30]), incoming=1e30)
### END HIDDEN TESTS

# %% hidden="lean_function" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers.lessons.operators_and_autograd.exercises import check_tanhexp

g = torch.Generator().manual_seed(2)
check_tanhexp(torch.randn(30, 20, generator=g), kept_of=[30_000, 75_000])
### END HIDDEN TESTS

# %% [markdown]
# ### `if` and `while` do not hurt autograd (3 min)
#
# Autograd knows nothing of your program but the run that it saw. After an `if`, the graph holds one branch. After a
# `while`, it holds the body as often as the body ran. Does that make gradients wrong? Three programs look at their data
# and decide, such as this one:
#
# ```python
# def loop(x):
#     while x.norm() < 100:
#         x = x * x + 1
#     return x.sum()
# ```
#
# For five inputs each,
# [`gradcheck`](https://docs.pytorch.org/docs/stable/generated/torch.autograd.gradcheck.gradcheck.html) moves every input
# a little and compares how the result moves with what backward says. A **sync** is a moment in which a CPU would wait
# for a GPU, to read a number from it.

# %% experiment
from helpers.lessons.operators_and_autograd.experiments import deciding

deciding()

# %% [markdown]
# All gradients are right. The graphs differ from input to input, which does no harm. Two limits:
#
# 1. The gradient is that of the branch that was taken. How the *decision* depends on `x` is not in it.
# 2. The last column is the price. Each decision reads a value. Autograd does not mind control flow, but a GPU's queue
#    does (lesson 03).
#
# ### `no_grad` and `inference_mode` (5 min)
#
# Twenty layers run with a graph, under [`no_grad`](https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html),
# and in [`inference_mode`](https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad_mode.inference_mode.html).
# Which counters are lower without a graph?

# %% experiment
you = lesson.predict(
    {"number of operators": ..., "bytes kept for backward": ..., "peak live bytes": ...},
    choices=["lower", "the same"],
)

# %% experiment
from helpers.lessons.operators_and_autograd.experiments import compare_modes, in_each_mode

batch, weight = torch.randn(64, 256), torch.randn(256, 256).div(16).requires_grad_()


def twenty():
    h = batch
    for _ in range(20):
        h = torch.relu(h @ weight)
    return h


modes = in_each_mode(twenty)
counters = {"number of operators": "operators", "bytes kept for backward": "saved_bytes"}
counters["peak live bytes"] = "peak_live_bytes"
less = {
    what: getattr(modes["no_grad"], c) < getattr(modes["with a graph"], c) for what, c in counters.items()
}
peak = {mode: c.peak_live_bytes / batch.nbytes for mode, c in modes.items()}
lesson.keep(alive_without=peak["no_grad"], alive_with=peak["with a graph"])
changes = {what: "lower" if lower else "the same" for what, lower in less.items()}
you.against(changes, compare_modes(modes), evidence="live (CPU)", what="without a graph")

# %% [markdown]
# Without a graph the same operators run, and nothing is kept. At the peak {{alive_without:.0f}} results are in memory:
# the last layer's, the product, the new one. With a graph it is one for each layer and one more, {{alive_with:.0f}}.
# (More bytes are kept than the peak shows: `weight` and `batch` are kept too, and they were there before.)
#
# `inference_mode` also takes two stops off the way of every tensor that is made in it: no autograd, no version counter.
# What that saves is a part of the call, so look for it in tiny operators only. What does it cost?

# %% experiment
from helpers.lessons.operators_and_autograd.experiments import each_tried

with torch.inference_mode():
    made_there = torch.ones(3)
asks = torch.ones(3, requires_grad=True)
each_tried(["made_there._version", "made_there.add_(1)", "asks + made_there", "asks * made_there"], globals())

# %% [markdown]
# A tensor made in `inference_mode` cannot be kept for a backward later. Use `inference_mode` for serving and evaluation.
# Use `no_grad` where the results go back into training.
#
# ### From a loop over samples to one batch (30 min)
#
# A Python loop over samples is an expensive way to use small operators: it multiplies the calls by the batch.
# Sometimes one more dimension replaces the loop. Sometimes it takes a formula, which can save memory too.
#
# **Exercise 2.4 — gradient norms, sample by sample** (★★★, 26 min)
#
# Private training ([DP-SGD](https://arxiv.org/abs/1607.00133)) and data selection need the length of *each sample's*
# gradient. `grad_norms_loop` runs one backward for each sample. Write `grad_norms`: the same numbers, as many operators
# for every batch, and never a gradient of each sample in memory. ([Goodfellow, 2015](https://arxiv.org/abs/1510.01799)
# found the formula.)
#
# <details><summary>Hint 1</summary>Call δ the gradient of one sample's loss with respect to the output of a linear
# layer. The gradient of the layer's weight is an outer product: δ times the layer's input x. What is the length of an
# outer product?</details>
#
# <details><summary>Hint 2</summary>‖δ xᵀ‖² = ‖δ‖²·‖x‖², and the bias adds ‖δ‖². So beside x and h
# all you need is δ of both layers for the whole batch, each of them (batch, features).</details>
#
# <details><summary>The idea</summary>δ₂ = softmax(logits) − one-hot(y); δ₁ = (δ₂ w₂)·(1 − h²). Or let
# autograd find them: the gradient of the <em>sum</em> of the losses with respect to the two pre-activations
# has each sample's δ in its row. Then √(‖δ₂‖²(‖h‖² + 1) + ‖δ₁‖²(‖x‖² + 1)), row by row.</details>


# %% setup
def grad_norms_loop(x, y, w1, b1, w2, b2):
    weights = [t.detach().requires_grad_() for t in (w1, b1, w2, b2)]
    norms = []
    for sample, label in zip(x, y, strict=True):
        hidden = torch.tanh(F.linear(sample, weights[0], weights[1]))
        loss = F.cross_entropy(F.linear(hidden, weights[2], weights[3]), label)
        grads = torch.autograd.grad(loss, weights)
        norms.append(torch.sqrt(sum(g.pow(2).sum() for g in grads)))
    return torch.stack(norms)


# %% exercise="per_sample"
def grad_norms(
    x: torch.Tensor, y: torch.Tensor, w1: torch.Tensor, b1: torch.Tensor, w2: torch.Tensor, b2: torch.Tensor
) -> torch.Tensor:
    """Length of each sample's gradient of its own cross-entropy, over all four parameters together.

    The net: logits = w2 · tanh(w1 · x + b1) + b2, which may be huge. x: (batch, k). y: (batch,) int64 classes.
    w1: (width, k), b1: (width,), w2: (classes, width), b2: (classes,); the four may want gradients. Returns (batch,)
    in x's dtype, without a graph, which no later call changes. The parameters' `.grad` stays as it is.
    Budget, for every size (judged up to a batch of 512, the others up to 1024): 128 operators, and the same
    number for every batch; peak live bytes, without the arguments, at most 8 arrays of
    (batch, k + width + classes) and 2 copies of the parameters.
    """
    ### BEGIN SOLUTION
    before = F.linear(x, w1, b1).detach().requires_grad_()
    hidden = torch.tanh(before)
    out = F.linear(hidden, w2, b2)
    delta1, delta2 = torch.autograd.grad(F.cross_entropy(out, y, reduction="sum"), (before, out))

    def square(t):
        return t.detach().square().sum(dim=1)

    return torch.sqrt(square(delta2) * (square(hidden) + 1) + square(delta1) * (square(x) + 1))
    ### END SOLUTION


# %% test="per_sample" points=2
from helpers.lessons.operators_and_autograd.exercises import Net, check_grad_norms

check_grad_norms(Net(1, k=5, width=4, classes=3), Net(2, k=6, width=4, classes=3))
check_grad_norms(Net(64, k=40, width=32, classes=6), memory=True)

# %% hidden="per_sample" points=1
### BEGIN HIDDEN TESTS
import torch

from helpers.lessons.operators_and_autograd.exercises import Net, check_grad_norms

check_grad_norms(
    *[Net(batch, k=7, width=9, classes=4) for batch in (4, 20, 96)],
    Net(10, k=6, width=5, classes=3, dtype=torch.float64),
    Net(11, k=6, width=5, classes=3, shrink=0.02),
    Net(13, k=6, width=5, classes=3, shrink=0.4, parameters=True),  # it is sure of some samples
    Net(1, k=1, width=1, classes=2),
    graphs=False,
)
### END HIDDEN TESTS

# %% hidden="per_sample" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers.lessons.operators_and_autograd.exercises import Net, check_grad_norms


def by_formula(x, y, w1, b1, w2, b2):  # at this size the loop would take seconds
    h = torch.tanh(x @ w1.t() + b1)
    d2 = torch.softmax(h @ w2.t() + b2, 1) - torch.nn.functional.one_hot(y, len(b2))
    d1 = (d2 @ w2) * (1 - h * h)
    squares = [t.square().sum(1) for t in (d1, x, d2, h)]
    return torch.sqrt(squares[0] * (squares[1] + 1) + squares[2] * (squares[3] + 1))


check_grad_norms(Net(12, k=3, width=8, classes=5, parameters=True))
check_grad_norms(Net(512, k=5, width=4, classes=3), Net(128, k=4, width=40, classes=40), memory=True)
check_grad_norms(Net(48, k=96, width=64, classes=10), Net(128, k=64, width=80, classes=12), memory=True)
# 128 operators make at most 50 pieces of two operators each; a 50th of this batch, sample by sample, is over budget
for k, classes in ((1024, 8), (8, 1024)):
    check_grad_norms(Net(512, k, width=1024, classes=classes, shrink=32), memory=True, expect=by_formula)
### END HIDDEN TESTS

# %% [markdown]
# ### On your own GPU (2 min)
#
# If you have a GPU, the cell below times `x + y` on it; else it shows the H100 again. Look for the same time for all small sizes, a
# bend, and a slope that the memory sets. Where is your crossover?

# %% experiment
yours = on_real_card(prefer="live")
crossover(yours.sizes, yours.seconds, evidence=yours.evidence, title="A real GPU", law="max")
