# %% [markdown]
# # 02 · Operators and autograd
#
# ## Where does the time of a small operator go?
#
# One `+` on two tensors is a journey: out of Python, through the dispatcher (which picks the code for this
# device, this dtype, and autograd or not), past autograd, into a kernel. For a big tensor the kernel is all
# that counts. For a small one the journey is, and much of real code is small operators: biases, norms,
# masks, losses, optimizer steps. This lesson finds the size from which the kernel's time exceeds the
# call's. Then it looks at what autograd adds: a graph, and the bytes that the graph keeps alive.
#
# **Time** 90–110 min; more than half of it is exercises, of which 2.2 and 2.4 are the long ones.
# **Before this** lessons 00 (measuring) and 01 (storage and stride); you have called `.backward()` before.
#
# **Afterwards you can**
# - say how many operators a line dispatches, and at which size their number stops mattering;
# - say what a line saves for backward, in bytes, and write one that saves less;
# - find what keeps a graph alive, and turn a per-sample loop into one batch.
#
# **On trial** *operator overhead is a main performance killer* · *the graph is a DAG of operators, data on
# its edges* · *gradients accumulate as numbers, so control flow is no problem* · *in-place backward easily
# gives wrong numbers, so it is avoided* (book notes) · *fusion means fewer launches, less memory access*
# (performance guide).

# %% setup
import torch
import torch.nn.functional as F

from helpers import count, lesson, plots

lesson.start("02_operators_and_autograd", evidence=["live (CPU)", "simulated (H100)"])

# %% [markdown]
# ## 1 · One line, how many operators?
#
# `x` and `y` are 64 × 64 matrices, `w` is one too, `b` has 64 numbers. How many **operators** does each
# line send through the dispatcher? Views count: they move no data, but they make the journey. Replace the
# dots with `"1"`, `"2 to 4"` or `"5 or more"`.

# %% experiment
prediction = {  # "1", "2 to 4" or "5 or more"
    "x + y": ...,
    "x @ w.T + b": ...,
    "F.linear(x, w, b)": ...,
    "F.layer_norm(x, (64,))": ...,
    "F.rms_norm(x, (64,))": ...,
    "F.cosine_similarity(x, y)": ...,
    "torch.einsum('bi,bi->b', x, y)": ...,
}

# %% experiment
scope = {"torch": torch, "F": F, "x": torch.randn(64, 64), "y": torch.randn(64, 64)}
scope |= {"w": torch.randn(64, 64), "b": torch.randn(64)}
counted = {code: count(eval, code, scope) for code in prediction}
said = lesson.compare_predictions(
    prediction,
    {
        c: "1" if n.operators == 1 else "2 to 4" if n.operators < 5 else "5 or more"
        for c, n in counted.items()
    },
    evidence="live (CPU)",
    choices=("1", "2 to 4", "5 or more"),
)


def listed(c):
    return ", ".join(f"{k.removeprefix('aten.')} ×{n}" for k, n in c.by_operator.items())


rows = [
    (code, c.operators, you_said, c.views, listed(c))
    for (code, _, you_said), c in zip(said.rows, counted.values(), strict=True)
]
einsum, cosine = counted["torch.einsum('bi,bi->b', x, y)"], counted["F.cosine_similarity(x, y)"]
assert einsum.operators - einsum.views == 1
lesson.keep(einsum=einsum.operators, einsum_views=einsum.views, cosine=cosine.operators)
heads = ["expression", "operators", "you said", "of these, views", "which"]
lesson.table(rows, heads, evidence="live (CPU)", caption=said.caption)

# %% [markdown]
# A name in Python says little about the number of operators. Two rows surprise most people. Of the
# {{einsum}} operators of `einsum` one, `bmm`, does the work. The other {{einsum_views}} are views that bring two inputs
# and a result into the shape that `bmm` wants. `cosine_similarity` is no kernel of its own: it is a Python name for a
# recipe of {{cosine}} smaller operators (such functions are called *composite*), and the dispatcher gets the recipe.
# `rms_norm` is a recipe on this CPU; elsewhere it may be one kernel. A GPU launches whatever in the last column is no
# view.
#
# The path itself can be watched. A *function mode* sits above everything and sees what your line called; a
# *dispatch mode* sits below autograd and sees what goes on to a kernel. `count` is built from these two.

# %% experiment
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

path = []


class Above(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        path.append(("Python", f"your line calls {func.__name__}"))
        path.append(
            ("dispatcher", f"stops for w, to be read from right to left: {torch._C._dispatch_keys(w)}")
        )
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
# The second row is the itinerary of one operator. `AutocastCPU` is a stop only while autocast is on;
# `AutogradCPU` makes a node if an input wants a gradient (and takes composite functions apart: `linear`
# became two); `ADInplaceOrView` keeps the books of views and of changes in place (section 5); `CPU` is the
# kernel. Each stop is paid once per operator, whatever the size of its tensors. Which raises the question
# of this lesson.

# %% [markdown]
# ## 2 · Overhead against size
#
# An add of two tensors with one element is nearly all journey. **At how many elements does the add take
# twice that long**, so that the elements cost as much as the journey? Give a power of ten for this CPU, and one
# for an H100.

# %% experiment
prediction = {"this CPU, one thread": ..., "H100": ...}

# %% experiment
from helpers import bench, simulate
from helpers.plots.overhead import fit_overhead
from helpers.timing import format_seconds

SIZES = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000]


def fastest(fn, *args):
    """Seconds of the fastest of many runs: so short a call can be disturbed, and then it is slower."""
    return min(bench(fn, *args, min_run_time=0.05, num_threads=1).samples_s)


def live_times(operator, inputs):
    tensors = [[torch.rand(n) for _ in range(inputs)] for n in SIZES]
    sweeps = [[fastest(operator, *args) for args in tensors] for _ in range(3)]
    return [min(times) for times in zip(*sweeps, strict=True)]


on_cpu = {"x + y": live_times(torch.add, 2), "torch.sin(x)": live_times(torch.sin, 1)}
plots.crossover(SIZES, on_cpu, evidence="live (CPU)", title="One operator on one CPU thread")

# %% [markdown]
# The floor belongs to the call, the slope to the work. `sin` does more per element: look for its ring
# further left.
#
# On a GPU the two parts run *at the same time*: the CPU launches the next operator while the GPU works on
# the last. So the time per call is not their sum but the larger of the two. A hundred adds in a row, on the
# simulated H100:

# %% experiment
GPU_SIZES = [10**k for k in range(9)]


def times_on(gpu, repeats=100):
    """Seconds per call of x + y when `repeats` of them are launched in a row, for each of GPU_SIZES."""
    seconds = []
    with gpu:
        for n in GPU_SIZES:
            x, y = torch.ones(n, device=gpu.device), torch.ones(n, device=gpu.device)
            for _ in range(3):  # the first launch loads the kernel
                x + y
            gpu.synchronize()
            start = gpu.clock()
            for _ in range(repeats):
                x + y
            gpu.synchronize()
            seconds.append((gpu.clock() - start) / repeats)
    return seconds


h100 = simulate("H100")
on_h100 = {"x + y": times_on(h100)}
plots.crossover(GPU_SIZES, on_h100, evidence=h100.evidence, title="One operator on an H100", law="max")


# %% experiment
def crossover_of(card):
    """Launch × bandwidth ÷ bytes: the elements whose 12 bytes (8 read, 4 written) move during one launch."""
    return round(card.assumptions.operator_s * bandwidth(card) / 12)


def bandwidth(card):
    return card.reached("elementwise").bandwidth_share * card.memory_bytes_per_s


floor_s, slope_s = fit_overhead(SIZES, on_cpu["x + y"])
gpu_elements = crossover_of(h100.card)
found = [f"≈ {floor_s / slope_s:.0f}", f"{gpu_elements:,}"]
launch_us, gb_s = h100.card.assumptions.operator_s * 1e6, bandwidth(h100.card) / 1e9
how = ["floor ÷ slope", f"{launch_us:.0f} µs per launch × {gb_s:,.0f} GB/s ÷ 12 bytes per element"]
said = ["—" if value is ... else value for value in prediction.values()]
evidence = ["live (CPU)", h100.evidence]
lesson.keep(gpu_elements=gpu_elements)
lesson.table(
    list(zip(prediction, said, found, how, evidence, strict=True)),
    ["device", "you said", "elements where size begins to matter", "how", "evidence"],
    evidence="live (CPU) · simulated (H100)",
    caption="the rings of the two pictures (the second has its share of the last wait in it, too); the time of a "
    "launch is an assumption of the simulator",
)

# %% [markdown]
# The crossover is floor × speed: a faster device moves it to the right, and so does a slower call. On the
# simulated H100 it lies at {{gpu_elements:,}} elements. A bias or the statistics of a norm lie far below, and for
# those **the number of operators is the time**. It stops being true above the crossover, where bytes take
# over (and, for matrix products, arithmetic).
#
# What is the floor made of? The digits are this machine's; look at the steps from row to row, and above all
# at the last one: how many forward calls does one backward of one element cost?

# %% experiment
one, other, room = torch.rand(1), torch.rand(1), torch.empty(1)
wants = torch.rand(1, requires_grad=True)
ways = {
    "a Python function that does nothing": lambda: None,
    "a view: `one.view(1)`": lambda: one.view(1),
    "`torch.add(one, other, out=room)`: a kernel, no new tensor": lambda: torch.add(one, other, out=room),
    "`one + other`: and a new tensor": lambda: one + other,
    "`wants + other`: and a node in the graph": lambda: wants + other,
    "`(wants + other).backward()`: and the way back": lambda: (wants + other).backward(),
}
floor = [(what, f"≈ {format_seconds(fastest(way))}") for what, way in ways.items()]
lesson.table(floor, ["one element", "time per call"], evidence="live (CPU)")

# %% [markdown]
# ## 3 · Operators that exist already
#
# If the count is the time, the cheapest trick is to use an operator that does several things at once. Below
# are five computations, each written out and as PyTorch has it, on an H100 (simulated), in sizes that fit a
# layer. A *launch* is an operator that starts a kernel; views start none. **How many launches has each
# written-out form**: `"1 to 3"`, `"4 to 6"` or `"7 or more"`?


# %% experiment
def norm_by_hand(x, g, b):
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    return centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-5) * g + b


def entropy_by_hand(z, y):
    z = z - z.amax(1, keepdim=True)
    return (z.exp().sum(1).log() - z.gather(1, y[:, None])[:, 0]).mean()


def attention_by_hand(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1) @ v


prediction = {  # "1 to 3", "4 to 6" or "7 or more"
    "a + b·c": ...,
    "x·wᵀ + bias": ...,
    "layer norm with scale and shift": ...,
    "cross-entropy of logits": ...,
    "attention": ...,
}


# %% experiment
def on_device(gpu, fn, inputs):
    """(launches, bytes read and written, seconds, the largest part) of fn on warm kernels."""
    fn(*inputs)
    gpu.synchronize()
    start, before = gpu.clock(), len(gpu.kernels)
    fn(*inputs)
    gpu.synchronize()
    mine, limits = gpu.kernels[before:], gpu.card.assumptions
    moved, flops = sum(k.bytes for k in mine), sum(k.flops for k in mine)
    parts = {
        "launches": len(mine) * limits.operator_s,
        "bytes": moved / bandwidth(gpu.card),
        "arithmetic": flops / (gpu.card.reached("matmul").flop_share * gpu.card.peak_flops["fp32"]),
    }
    return len(mine), moved, gpu.clock() - start, max(parts, key=parts.get)


gpu = simulate("H100")


def ones(*shape, dtype=torch.float32):
    return torch.ones(shape, device=gpu.device, dtype=dtype)


with gpu:
    x, row, labels = ones(512, 1024), ones(1024), ones(512, dtype=torch.int64)
    q, k, v = ones(8, 16, 512, 64), ones(8, 16, 512, 64), ones(8, 16, 512, 64)
    pairs = {
        "a + b·c": (lambda a, b, c: a + b * c, torch.addcmul, x, ones(512, 1024), ones(512, 1024)),
        "x·wᵀ + bias": (lambda x, w, b: x @ w.t() + b, F.linear, x, ones(1024, 1024), row),
        "layer norm with scale and shift": (
            norm_by_hand,
            lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b),
            *(x, row, ones(1024)),
        ),
        "cross-entropy of logits": (entropy_by_hand, F.cross_entropy, ones(512, 1000), labels),
        "attention": (attention_by_hand, F.scaled_dot_product_attention, q, k, v),
    }
    fused = {
        name: (on_device(gpu, by_hand, inputs), on_device(gpu, existing, inputs))
        for name, (by_hand, existing, *inputs) in pairs.items()
    }

# %% experiment
launches = {name: hand[0] for name, (hand, _) in fused.items()}
said = lesson.compare_predictions(
    prediction,
    {name: "1 to 3" if n < 4 else "4 to 6" if n < 7 else "7 or more" for name, n in launches.items()},
    evidence=gpu.evidence,
    choices=("1 to 3", "4 to 6", "7 or more"),
)
lesson.keep(entropy=fused["cross-entropy of logits"][1][0])
rows = [
    (
        *(row[0], hand[0], row[2]),
        has[0],
        f"{hand[1] / 1e6:.1f} → {has[1] / 1e6:.1f}",
        f"{hand[2] * 1e6:.1f} → {has[2] * 1e6:.1f}",
        f"{hand[3]} → {has[3]}",
    )
    for row, (hand, has) in zip(said.rows, fused.values(), strict=True)
]
lesson.table(
    rows,
    ["computation", "launches", "you said", "in PyTorch", "MB moved", "µs", "the largest part"],
    evidence=gpu.evidence,
    caption="written out → as PyTorch has it; forward only. The µs hold the way to the GPU and one synchronize. "
    "Largest of: launches × their cost, bytes ÷ bandwidth, arithmetic ÷ its speed. " + said.caption,
)

# %% [markdown]
# Fewer launches help small tensors, fewer bytes help large ones, and a fused operator that is one kernel
# gives both: what lies between its steps never leaves the chip. (Cross-entropy is {{entropy}} kernels here, and
# what lies between them does leave it.) Attention shows most: written out, the matrix of scores is written and read
# several times. The last column says where that ends: once arithmetic is the largest part, as in the
# matrix product and in attention, saving more bytes gains little.
#
# For *small* inputs the picture is another. The same attention with one head of 16 tokens:

# %% experiment
from helpers.plots.lanes import rows_of

small = simulate("H100")
with small:
    q, k, v = (torch.ones(1, 1, 16, 64, device=small.device) for _ in range(3))
    F.scaled_dot_product_attention(q, k, v)
    attention_by_hand(q, k, v)
    small.synchronize()
    began = small.clock()
    attention_by_hand(q, k, v)
    small.synchronize()
    switch = small.clock()
    F.scaled_dot_product_attention(q, k, v)
    small.synchronize()


def short(name):
    if name in ("aten.transpose", "aten.expand", "aten.view", "aten._unsafe_view"):
        return "view"
    return "attention" if "attention" in name else name.removeprefix("aten.").lstrip("_")


plots.timeline(
    [(short(name), lane.split()[0], a, b) for name, lane, a, b in rows_of(small, began)],
    evidence=small.evidence,
    title="Small attention: written out, then in one operator",
    marks={"one operator": switch},
)

# %% [markdown]
# A slanted line joins a launch to the kernel that it starts; in `synchronize` the CPU only waits. The GPU's
# lane is nearly empty. The CPU has one bar per operator, views included, and removing operators removes
# exactly their bars.
#
# **The rule.** Count operators where tensors are small, bytes where they are large. Where PyTorch has an
# operator for several of your steps, as in the table's five rows, use it; relatives worth counting are
# `addcdiv`, `lerp` and `baddbmm`. Check by counting and not by name: `cross_entropy` was
# {{entropy}} kernels, and `cosine_similarity` a whole recipe.

# %% [markdown]
# **Exercise 2.1 — few operators** (★★, 10 min)
#
# `block_plain` below is the tail of a gated residual layer, written operator by operator. Write `block`:
# the same numbers and gradients in **at most 6 operators**, views counted.
#
# <details><summary>Hint 1</summary>Count <code>block_plain</code> first and mark which of its operators
# belong to one idea: a matrix product with a bias, a gated sum, a normalisation with scale and shift, an
# activation.</details>
#
# <details><summary>Hint 2</summary>All four ideas have an operator. The gated sum is the one fewest people
# know: look at the operators whose names begin with <code>addc</code>. What is <code>z · sigmoid(z)</code>
# called?</details>
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
    """What block_plain returns, in few operators. Works with autograd; changes no input.

    x: (n, k). w: (d, k). b, gate, gamma, beta: (d,). residual: (n, d). All of one dtype, float32 or float64, of any
    strides, and each of them may want gradients or not. Returns (n, d), in the dtype of x.
    Budget of the forward: 6 operators, views counted, and no syncs; where an input wants gradients, 7, since
    autograd may have to copy what is about to be changed in place. block_plain holds four ideas, one of
    them needs a view beside its operator: five, and one to spare.
    """
    ### BEGIN SOLUTION
    h = torch.addcmul(residual, gate, F.linear(x, w, b))
    return F.silu(F.layer_norm(h, h.shape[-1:], gamma, beta, eps))
    ### END SOLUTION


# %% test="few_operators" points=1
from helpers.exercises.operators_and_autograd import check_block, layer

check_block(layer(32, 16, 24), layer(64, 8, 8, eps=0.1), layer(40, 12, 10, trained=True))
check_block(layer(9, 5, 4, trained=True), gradients=True)

# %% hidden="few_operators" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers.exercises.operators_and_autograd import check_block, layer

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

from helpers.exercises.operators_and_autograd import check_block, layer

check_block(layer(6, 5, 7, torch.float64, trained=True), gradients=True)
check_block(layer(8, 5, 7, torch.float64, trained=True, data=True), gradients=True)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · The graph, and why `if` and `while` do not hurt it
#
# While the forward runs, autograd links one node to the next. The ends of its graph are the *leaves*:
# tensors that asked for a gradient themselves, such as `w` and `v` below. How many nodes will the graph
# have (leaves included), how many leaves, and how many operators does the forward dispatch?
#
# ```python
# s = x * 2 - w
# (s.tanh() * s + v.exp()).sum()      # w and v want gradients, x does not
# ```

# %% experiment
prediction = {"operators dispatched": ..., "nodes": ..., "leaves": ...}  # numbers up to 20


# %% experiment
def graph_of(tensor):
    """node → the nodes that it hands gradients to, from the result to the leaves, which have none."""
    graph, waiting = {}, [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node not in graph:
            graph[node] = [following for following, _ in node.next_functions if following]
            waiting += graph[node]
    return graph


x = torch.randn(100)
w, v = torch.randn(100, requires_grad=True), torch.randn(100, requires_grad=True)
forward = count(lambda: ((s := x * 2 - w).tanh() * s + v.exp()).sum())
graph = graph_of(forward.result)
leaves = sum(not following for following in graph.values())
shape = {"operators dispatched": forward.operators, "nodes": len(graph), "leaves": leaves}
lesson.compare_predictions(prediction, shape, evidence="live (CPU)", choices=range(21))

# %% experiment
plots.autograd_graph(
    forward.result, evidence="live (CPU)", names={"w": w, "v": v}, title="s = 2x − w; (tanh(s)·s + eᵛ).sum()"
)

# %% [markdown]
# Two things the usual drawing hides. The nodes are not the forward's operators but **the functions of their
# backward**, and the arrows point the way gradients go, from the result to the leaves. And `x * 2` has no
# node at all: nothing in it asked for a gradient. The node that two arrows reach is why this is a graph and
# not a tree: the two gradients that arrive there are *added*, as numbers. The small lines are what a node
# keeps: `tanh` its result, which the product keeps too, as a factor. That is one storage, and counts once.
#
# Nothing else is known of the program. The graph is what *this* run did; an `if` left one branch in it, a
# `while` as many copies of its body as were run. Six programs that decide by looking at their data. For
# each, `gradcheck` nudges every input a little and compares how the result moves with what backward says;
# and we count **syncs**, the times a CPU would wait for a GPU to read a number from it.


# %% experiment
def branch(x):
    return (x.exp() * x if x.sum() > 0 else x * 3).sum()


def loop(x):
    while x.norm() < 100:
        x = x * x + 1
    return x.sum()


def early_exit(x):
    total = x.sum() * 0
    for value in x:
        if value < 0:
            break
        total = total + value**2
    return total


def recursion(x):
    return x.sum() if x.norm() < 1 else recursion(torch.sin(x) * 0.8)


def chosen(x):
    return (torch.sin, torch.cos, torch.exp)[int(x.argmax()) % 3](x).sum()


def masked(x):
    return sum(v * v if v > 0 else v.exp() for v in x)


# %% experiment
from graphlib import TopologicalSorter

programs = (branch, loop, early_exit, recursion, chosen, masked)
points = [torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(s)) for s in range(5)]
rows, agree = [], 0
for program in programs:
    right = sum(torch.autograd.gradcheck(program, p.clone().requires_grad_()) for p in points)
    runs = [count(program, p.clone().requires_grad_()) for p in points]
    graphs = [graph_of(run.result) for run in runs]
    for graph in graphs:
        TopologicalSorter(graph).prepare()  # raises CycleError if the graph has a cycle
    agree += right
    nodes, syncs = (", ".join(map(str, numbers)) for numbers in (map(len, graphs), [r.syncs for r in runs]))
    rows.append((program.__name__, f"{right} of {len(points)}", nodes, syncs))
lesson.table(
    rows,
    ["program", "gradient = finite differences", "nodes, input by input", "syncs, input by input"],
    evidence="live (CPU)",
    caption="no graph had a cycle",
)

# %% [markdown]
# The gradients agree with finite differences. The graphs differ from input to input, and nobody minds,
# because adding up numbers along one path of execution needs no formula for the others. Two limits:
#
# 1. The gradient is that of the branch that was taken. How the *decision* depends on `x` does not enter (at
#    the jump itself there is no derivative to find).
# 2. The last column is the price: each decision reads a value. Autograd does not mind control flow; a GPU's
#    queue does (lesson 03).
#
# Accumulation goes on from one backward to the next, and there it is done in place:

# %% experiment
layers = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 4)
)
parameters = list(layers.parameters())
data, target = torch.randn(32, 8), torch.randint(4, (32,))


def in_place(c):
    return {k.removeprefix("aten."): n for k, n in c.by_operator.items() if k.endswith("_")}


first = count(F.cross_entropy(layers(data), target).backward)
once = [(p.grad.clone(), p.grad.data_ptr()) for p in parameters]
second = count(F.cross_entropy(layers(data), target).backward)
doubled = all(torch.allclose(p.grad, 2 * g) for p, (g, _) in zip(parameters, once, strict=True))
stayed = all(p.grad.data_ptr() == place for p, (_, place) in zip(parameters, once, strict=True))
lesson.table(
    [
        ("first backward", first.operators, in_place(first) or "none"),
        ("second backward, gradients kept", second.operators, in_place(second) or "none"),
    ],
    ["", "operators", "in-place ones"],
    evidence="live (CPU)",
    caption=f"{second.operators - first.operators} more, for {len(parameters)} parameters: one add_ per "
    f"parameter; gradients doubled: {doubled}; in the same memory as before: {stayed}",
)

# %% [markdown]
# ## 5 · In place, and what it breaks
#
# `y = op(x)`, then somebody adds 1 to `x` or to `y` in place, then backward. For each: does backward
# **raise**, is the gradient **fine** all the same, or is it silently **wrong**? First four of them by head.

# %% experiment
prediction = {  # each one of "raises", "fine", "wrong"
    "x.sin(), input changed": ...,
    "x.sin(), result changed": ...,
    "x.exp(), input changed": ...,
    "x.exp(), result changed": ...,
}

# %% experiment
W = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
codes = ["x + 1", "2 * x", "x * x", "x.exp()", "x.log()", "x.sqrt()", "x.sin()", "x.tanh()", "x.sigmoid()"]
codes += ["F.silu(x)", "F.gelu(x)", "x.softmax(-1)", "F.layer_norm(x, (8,))", "x.clamp(0.6, 1.2)"]
codes += ["x @ W", "x.mean(1)", "x.cumsum(1)", "torch.cat([x, x])"]


def under_no_grad(t):
    with torch.no_grad():
        t.add_(1)


def by_numpy(t):
    t.detach().numpy()[...] += 1


changes = {
    "t.add_(1)": lambda t: t.add_(1),
    "t.add_(1) under no_grad": under_no_grad,
    "t.detach().add_(1)": lambda t: t.detach().add_(1),
    "t.data.add_(1)": lambda t: t.data.add_(1),
    "t.detach().numpy()[...] += 1": by_numpy,
}


def gradient(code, which=None, change=None):
    """d(random sum of op(x))/dx at a fixed x, with `change` done to x or to op(x) before backward."""
    generator = torch.Generator().manual_seed(2)
    leaf = (torch.rand(8, 8, generator=generator) + 0.5).requires_grad_()
    x = leaf * 1.0
    y = eval(code, {"torch": torch, "F": F, "W": W, "x": x})
    if change is not None:
        change({"input": x, "result": y}[which])
    y.backward(torch.randn(y.shape, generator=generator))
    return leaf.grad


def outcome(code, which, change):
    try:
        got = gradient(code, which, change)
    except RuntimeError:
        return "raises"
    return "fine" if torch.allclose(got, gradient(code)) else "wrong"


outcomes = {
    (change, which, code): outcome(code, which, changes[change])
    for change in changes
    for which in ("input", "result")
    for code in codes
}

# %% experiment
by_head = {}
for key in prediction:
    code, _, change = key.partition(", ")
    by_head[key] = outcomes["t.add_(1)", change.removesuffix(" changed"), code]
lesson.compare_predictions(
    prediction, by_head, evidence="live (CPU)", choices=("raises", "fine", "wrong")
).show()


def tally(kind, some, which=("input", "result")):
    """How many of the operators end in `kind` when one of these changes is made."""
    return sum(o == kind for (change, of, _), o in outcomes.items() if change in some and of in which)


kinds = ("raises", "fine", "wrong")
rows = [
    (f"`{c}`", *(" · ".join(f"{tally(k, [c], [w])} {k}" for k in kinds) for w in ("input", "result")))
    for c in changes
]
columns = ["the change", "done to the op's input", "done to the op's result"]
lesson.table(rows, columns, evidence="live (CPU)", caption=f"{len(codes)} operators each").show()

for which in ("input", "result"):
    needed = [code for code in codes if outcomes["t.add_(1)", which, code] == "raises"]
    print(f"need their {which}: {', '.join(needed)}")
try:
    gradient("x.exp()", "result", changes["t.add_(1)"])
except RuntimeError as error:
    print("\n" + str(error).partition(" Hint")[0])

# %% [markdown]
# The first three rows are the same. Every tensor has a **version counter**, which each in-place operator
# raises by one, `no_grad` or not, and which `.detach()` shares
# ([`saved_variable.cpp`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/autograd/saved_variable.cpp) compares
# them). A node remembers the version of what it saved; if the two differ when backward comes, it raises. So `sin`,
# which saves its input, objects to a changed input, and `exp`, which saves its result (it is its own derivative), to a changed result. What was
# not saved may be changed freely. In the last two rows, what raised has become *wrong*: `.data` gives a
# tensor with a counter of its own, NumPy knows of none, and with them the check is gone.
#
# A graph that has been broken so. Which boxes have lost what they need, and could they have been spared?

# %% experiment
w = torch.randn(100, requires_grad=True)
inner = (w + 1).exp()
loss = (inner.sin() + inner).sum()
inner.add_(1)
plots.autograd_graph(
    loss, evidence="live (CPU)", names={"w": w}, title="z = exp(w + 1); loss = (sin(z) + z).sum(); z.add_(1)"
)

# %% [markdown]
# `z` is both: the result that `exp` saved and the input that `sin` saved, so one `add_` breaks two nodes.
# `inner = inner + 1` would have broken none: a new tensor, and the old one stays as it was.
#
# **The rule.** In place is safe on what no node has saved: the result of `+`, `mean`, of a matrix product
# or a `cat`. It saves one allocation, no launch. Never write through `.data`; where you must not be
# recorded, write under `torch.no_grad()`, and the check stays on. It stops being a check where memory is
# changed behind PyTorch's back: by NumPy, by another process, by a kernel of your own.

# %% [markdown]
# ## 6 · What is kept for backward
#
# `x` and `y` have n float32 elements. What does each line keep alive until backward, in units of 4n bytes: 0, 0.25,
# 1, 2 or 3?

# %% experiment
prediction = {  # 0, 0.25, 1, 2 or 3
    "x + y": ...,
    "x * y": ...,
    "x * 2": ...,
    "x.relu()": ...,
    "x * torch.sigmoid(x)": ...,
    "F.silu(x)": ...,
    "x * torch.tanh(torch.exp(x))": ...,
    "x.sort().values": ...,
    "torch.where(x > 0, x, y)": ...,
}


# %% experiment
def keeps(code, n=64 * 64):
    """Bytes saved for backward by a line of code, in units of 4n."""
    x, y = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    return count(eval, code, {"torch": torch, "F": F, "x": x, "y": y}).saved_bytes / (4 * n)


saved = {code: keeps(code) for code in prediction}
lesson.compare_predictions(
    prediction, saved, evidence="live (CPU)", what="saved, in 4n bytes", choices=(0, 0.25, 1, 2, 3)
)
lesson.keep(
    silu=saved["F.silu(x)"],
    silu_written=saved["x * torch.sigmoid(x)"],
    tanhexp=saved["x * torch.tanh(torch.exp(x))"],
)

# %% [markdown]
# Each formula decides. The derivative of a sum needs nothing; a product needs both factors; `relu`,
# `sigmoid` and `exp` make do with their result, `silu` with its input. `sort` keeps int64 indices, eight
# bytes per element; a condition is a bool, one byte. The same function written out keeps what every one of
# its steps wants. In tensors of the size of x: `silu` saves {{silu:.0f}}, the same written out {{silu_written:.0f}},
# and x · tanh(eˣ) {{tanhexp:.0f}}. That is the other half of fusion, and in training often the larger: an activation
# kept from forward to backward is there at the peak.
#
# You can do the same for functions that PyTorch does not have, with `torch.autograd.Function`: run the
# forward unrecorded, save what you choose, and compute the rest again in backward. `ctx.save_for_backward`
# gives you the version check, too.
#
# **Exercise 2.2 — a third of the bytes** (★★★, 20 min)
#
# TanhExp, x · tanh(eˣ), is an activation that PyTorch lacks. Written out it keeps three tensors. Write
# `tanhexp` so that it keeps **one** of the size of x, with the right gradient, also where the written-out
# form fails.
#
# <details><summary>Hint 1</summary>d/dx x·tanh(eˣ) = tanh(eˣ) + x·eˣ·(1 − tanh²(eˣ)). What of this can be
# computed again from x alone?</details>
#
# <details><summary>Hint 2</summary>At x = 100 eˣ is inf in float32, and inf · 0 is nan. From which x on is
# tanh(eˣ) exactly 1, so that the second summand must be 0? Look at <code>clamp(max=…)</code>. Then try
# x = 1e30: which product of your formula overflows first, and in which order would it not?</details>
#
# <details><summary>The idea</summary>A Function whose forward saves x
# (<code>ctx.save_for_backward(x)</code>) and whose backward computes e = exp(clamp(x, max=20)), t = tanh(e)
# and grad · (t + x·(e·(1 − t²))). The inner brackets are 0 for large x before the large x comes in; in the
# order x·e first, 1e30 · e²⁰ is inf in float32, and inf · 0 is nan again.</details>


# %% setup
def tanhexp_plain(x):
    return x * torch.tanh(torch.exp(x))


# %% exercise="lean_function"
def tanhexp(x: torch.Tensor) -> torch.Tensor:
    """x · tanh(exp(x)), element by element, keeping one tensor of x's size for backward.

    x: any shape (also () and (0, 3)) and strides, float32 or float64, any finite values. Returns x's shape and
        dtype. Once differentiable.
    Gradient: right and finite for every finite x (it tends to 1 as x grows), 1e30 included; what comes into
        backward may have any strides.
    Budget: saved_bytes ≤ x.nbytes; after forward no more is alive than the result and one tensor like x, bytes that
    Python holds (a buffer, a file in memory) included; no syncs.
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

from helpers.exercises.operators_and_autograd import check_tanhexp

g = torch.Generator().manual_seed(0)
check_tanhexp(torch.randn(40, 50, generator=g), torch.linspace(-5, 5, 99, dtype=torch.float64))
check_tanhexp(torch.tensor([-1e30, 100.0, 1e30]))
check_tanhexp(kept_of=[50_000])

# %% hidden="lean_function" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers.exercises.operators_and_autograd import check_tanhexp

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
### END HIDDEN TESTS

# %% hidden="lean_function" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers.exercises.operators_and_autograd import check_tanhexp

g = torch.Generator().manual_seed(2)
check_tanhexp(torch.randn(30, 20, generator=g), kept_of=[30_000, 75_000])
### END HIDDEN TESTS

# %% [markdown]
# ## 7 · Without a graph: `no_grad` and `inference_mode`
#
# Twenty layers, three ways to run them: with a graph, under `no_grad`, and in `inference_mode`. Which of
# these counters are lower without a graph?

# %% experiment
prediction = {"operators": ..., "saved bytes": ..., "peak live bytes": ...}  # "lower" or "same"

# %% experiment
weight = torch.randn(256, 256) / 16
weight.requires_grad_()
batch = torch.randn(64, 256)
start, step = torch.rand(1), torch.rand(1, requires_grad=True)


def twenty():
    h = batch
    for _ in range(20):
        h = torch.relu(h @ weight)
    return h


def tiny(mode):
    with mode():
        h = start
        for _ in range(50):
            h = h + step


modes = {"with a graph": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
turns = [{name: fastest(tiny, mode) for name, mode in modes.items()} for _ in range(5)]  # in turns: lesson 00
rows, layers = [], {}
for name, mode in modes.items():
    with mode():
        c, keys = count(twenty), str(torch._C._dispatch_keys(torch.empty(1)))
    layers[name] = c
    keys = keys.removeprefix("DispatchKeySet")
    clock = f"≈ {format_seconds(min(turn[name] for turn in turns))}"
    rows.append((name, c.operators, c.saved_bytes, c.peak_live_bytes, clock, keys))
lower = {key: "lower" if rows[1][i] < rows[0][i] else "same" for i, key in enumerate(prediction, start=1)}
lesson.compare_predictions(
    prediction, lower, evidence="live (CPU)", what="without a graph", choices=("lower", "same")
).show()
one_result = 64 * 256 * 4
lesson.keep(
    results_alive=layers["no_grad"].peak_live_bytes / one_result,
    results_graph=layers["with a graph"].peak_live_bytes / one_result,
)
lesson.table(
    rows,
    ["mode", "operators", "saved bytes", "peak live bytes", "50 tiny adds", "stops of a new tensor"],
    evidence="live (CPU)",
    caption="twenty layers of 256 × 256, batch 64: one result is 65,536 bytes, the weight 262,144",
)

# %% experiment
with torch.inference_mode():
    made_there = torch.ones(3)
asks = torch.ones(3, requires_grad=True)
rows = []
for code in ("made_there._version", "made_there.add_(1)", "asks + made_there", "asks * made_there"):
    try:
        rows.append((f"`{code}`", f"works, and gives a {type(eval(code)).__name__}"))
    except RuntimeError as error:
        rows.append((f"`{code}`", f"raises: {str(error).partition('.')[0]}."))
lesson.table(rows, ["a tensor made in inference_mode", "what happens"], evidence="live (CPU)")

# %% [markdown]
# Without a graph the same operators run and nothing is kept: at the peak {{results_alive:.0f}} results are alive (the
# last layer's, the product, the new one). With a graph it is one for each layer and one more, {{results_graph:.0f}}.
# (Saved is more than the peak: it holds `weight` and `batch` too, which were there before, and the peak counts only
# what the run allocated.) `inference_mode` also takes two stops off the path of every tensor made in it: no autograd,
# no version counter. What that saves is a part of the floor, so look for it in tiny operators only. The price is the
# second table: such tensors cannot be saved for a backward later. Use `inference_mode` for serving and evaluation,
# `no_grad` where the results go back into training.
#
# ## 8 · What keeps a graph alive
#
# A graph lives as long as anybody holds a tensor with a `grad_fn` in it. Everybody knows the list called
# `losses`. How bad is it? Ten steps of a small net; each keeps one thing. How many of the ten `hidden`
# matrices are alive at the end: 0, 1 or 10?


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


prediction = {  # 0, 1 or 10
    "the loss, backward has run": ...,
    "the loss, no backward (validation)": ...,
    "hidden.abs().mean(), backward has run from the loss": ...,
    "hidden[0].detach()": ...,
    "hidden[0].detach().clone()": ...,
}

# %% experiment
kept = [
    count(ten_steps, lambda hidden, loss: loss),
    count(ten_steps, lambda hidden, loss: loss, backward=False),
    count(ten_steps, lambda hidden, loss: hidden.abs().mean()),
    count(ten_steps, lambda hidden, loss: hidden[0].detach()),
    count(ten_steps, lambda hidden, loss: hidden[0].detach().clone()),
]
one_hidden = 64 * 256 * 4
alive = {name: c.live_bytes // one_hidden for name, c in zip(prediction, kept, strict=True)}
lesson.compare_predictions(
    prediction, alive, evidence="live (CPU)", what="whole hidden matrices still alive", choices=(0, 1, 10)
)

# %% [markdown]
# Backward frees what its nodes saved as it passes, so the famous list holds empty nodes only. What hurts is
# a graph that *no backward walks*: a loss under validation, a metric beside the loss, gradients made with
# `create_graph=True`. And a detached row hurts as much, with no graph at all: it is a view (lesson 01).
#
# **Exercise 2.3 — who keeps the graph?** (★★, 15 min)
#
# `train_leaky` trains correctly, and its memory grows with every step. Run the cell below it, then write
# `train`: the same numbers, and memory that does not depend on the number of steps, beyond what is
# returned. There is more than one leak, and one of them has no graph at all.
#
# <details><summary>Hint 1</summary>Go through what lives longer than a step: three lists, one average, two
# weights. For each: does it have a <code>grad_fn</code>? If not, how large is its
# <code>untyped_storage()</code>?</details>
#
# <details><summary>Hint 2</summary><code>create_graph=True</code> is for gradients of gradients; nobody
# takes any here. A detached row of a matrix is a view: the whole matrix stays (lesson 01).
# <code>.item()</code> would cut the graph as well, but the device would have to be waited for, once per
# step.</details>
#
# <details><summary>The idea</summary>No <code>create_graph</code>, <code>.detach()</code> for the activity
# that is averaged, and <code>hidden[0].detach().clone()</code> for the row. Without
# <code>create_graph</code> backward has emptied the loss's graph; its <code>.detach()</code> is for the
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
def peak(train, steps, batch=64, width=256):
    g = torch.Generator().manual_seed(0)
    w1, w2 = torch.randn(32, width, generator=g) / 6, torch.randn(width, 4, generator=g) / 16
    xs, ys = torch.randn(steps, batch, 32, generator=g), torch.randn(steps, batch, 4, generator=g)
    return count(train, w1, w2, xs, ys).peak_live_bytes


lesson.table(
    [(steps, peak(train_leaky, steps)) for steps in (2, 8, 32)],
    ["steps", "peak live bytes of train_leaky"],
    evidence="live (CPU)",
    caption="batch 64, width 256",
)


# %% exercise="graph_keeper"
def train(
    w1: torch.Tensor, w2: torch.Tensor, inputs: torch.Tensor, targets: torch.Tensor, lr: float = 0.1
) -> dict[str, torch.Tensor]:
    """Plain gradient descent on a two-layer net; returns exactly what train_leaky returns, without its leaks.

    All tensors are of one dtype, float32 or float64.
    w1: (k, width), w2: (width, out): starting weights, not changed. inputs: (steps, batch, k).
    targets: (steps, batch, out). Returns, none of them with a graph: "loss" (steps,), "norm" (steps,): length
    of the gradient, "row" (steps, width): the first sample's hidden activations, "smooth" (): the running
    average of the mean squared activation, "w1", "w2": the trained weights.
    Budget: each step more may raise peak live bytes by at most 4 × the bytes that the step adds to the
    result, that is 4 × 4 × (width + 2) for float32. The peak itself: at most 6 matrices of (batch, width), 4
    copies of the weights and 4 × the result (one step needs half of that: hidden, its gradient and what is being
    made of them; the weights, their gradients, a product with lr). No syncs (a GPU would never be waited for).
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
from helpers.exercises.operators_and_autograd import Training, check_train

check_train(*[Training(steps, batch=48, k=16, width=64, out=2) for steps in (3, 15)])

# %% hidden="graph_keeper" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers.exercises.operators_and_autograd import Training, check_train

check_train(
    *[Training(steps, batch=64, k=8, width=128, out=2, lr=0.3) for steps in (2, 22)],
    *[Training(steps, batch=100, k=20, width=40, out=1, lr=0.3) for steps in (4, 30)],
    graphs=False,
)
check_train(Training(5, batch=6, k=4, width=8, out=3, dtype=torch.float64), costs=False, graphs=False)
### END HIDDEN TESTS

# %% hidden="graph_keeper" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.operators_and_autograd import Training, check_train

check_train(
    Training(12, batch=32, k=8, width=64, out=2, lr=0.2),
    Training(1, batch=1, k=1, width=2, out=1),
    costs=False,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 9 · From a loop over samples to one batch
#
# The dearest way to use small operators is a Python loop over samples: it multiplies the floor by the
# batch. Sometimes batching is a matter of one more dimension. Sometimes it takes a thought, and then it can
# save memory, too.
#
# **Exercise 2.4 — gradient norms, sample by sample** (★★★, 20 min)
#
# Private training (DP-SGD) and data selection want the length of *each sample's* gradient.
# `grad_norms_loop` runs one backward per sample. Write `grad_norms`: the same numbers, the number of
# operators the same for every batch, and without ever holding a gradient of each sample.
#
# <details><summary>Hint 1</summary>For one sample, the gradient of a linear layer's weight is an outer
# product: δ of its output times its input. What is the length of an outer product?</details>
#
# <details><summary>Hint 2</summary>‖δ xᵀ‖² = ‖δ‖²·‖x‖², and the bias adds ‖δ‖². So all you need is δ of
# both layers for the whole batch, each of them (batch, features).</details>
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

    The net: logits = w2 · tanh(w1 · x + b1) + b2. x: (batch, k). y: (batch,) int64 classes. w1: (width, k),
    b1: (width,), w2: (classes, width), b2: (classes,); the four may want gradients. Returns (batch,)
    in x's dtype, without a graph.
    Budget, for every size (judged up to a batch of 512, k and width of 1024): 128 operators, and the same number
    for every batch; peak live bytes at most 8 arrays of (batch, k + width + classes) and 2 copies of the
    parameters.
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
from helpers.exercises.operators_and_autograd import Net, check_grad_norms

check_grad_norms(Net(1, k=5, width=4, classes=3), Net(2, k=6, width=4, classes=3))
check_grad_norms(Net(64, k=40, width=32, classes=6), memory=True)

# %% hidden="per_sample" points=1
### BEGIN HIDDEN TESTS
import torch

from helpers.exercises.operators_and_autograd import Net, check_grad_norms

check_grad_norms(
    *[Net(batch, k=7, width=9, classes=4) for batch in (4, 20, 96)],
    Net(10, k=6, width=5, classes=3, dtype=torch.float64),
    Net(11, k=6, width=5, classes=3, shrink=0.02),
    Net(1, k=1, width=1, classes=2),
    graphs=False,
)
### END HIDDEN TESTS

# %% hidden="per_sample" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers.exercises.operators_and_autograd import Net, check_grad_norms


def by_formula(x, y, w1, b1, w2, b2):  # at this size the loop would take seconds
    h = torch.tanh(x @ w1.t() + b1)
    d2 = torch.softmax(h @ w2.t() + b2, 1) - torch.nn.functional.one_hot(y, len(b2))
    d1 = (d2 @ w2) * (1 - h * h)
    squares = [t.square().sum(1) for t in (d1, x, d2, h)]
    return torch.sqrt(squares[0] * (squares[1] + 1) + squares[2] * (squares[3] + 1))


check_grad_norms(Net(12, k=3, width=8, classes=5, parameters=True))
check_grad_norms(Net(48, k=96, width=64, classes=10), Net(128, k=64, width=80, classes=12), memory=True)
# 128 operators make at most 50 pieces of two operators each; a 50th of this batch, sample by sample, is over budget
check_grad_norms(Net(512, k=1024, width=1024, classes=8, shrink=32), memory=True, expect=by_formula)
### END HIDDEN TESTS

# %% [markdown]
# ## On the real GPU
#
# First three simulated cards, one call of `x + y` on each. The floors lie on each other: the time of a
# launch belongs to the host, and the simulator *assumes* the same host for all three. The slopes are the
# cards' own, their memory bandwidth, and so each has its own crossover.

# %% experiment
cards = {name: simulate(name) for name in ("T4", "A100", "H100")}
by_card = {name: times_on(gpu) for name, gpu in cards.items()}
rows = [
    (name, f"{gpu.card.assumptions.operator_s * 1e6:.0f} µs", f"{bandwidth(gpu.card) / 1e9:,.0f} GB/s")
    + (crossover_of(gpu.card),)
    for name, gpu in cards.items()
]
lesson.table(
    rows,
    ["GPU", "launch (assumed)", "bandwidth", "crossover, elements"],
    evidence="arithmetic",
    caption="launch × bandwidth ÷ 12 bytes per element",
).show()
plots.crossover(
    GPU_SIZES,
    by_card,
    evidence="simulated (T4, A100, H100)",
    title="x + y on three GPUs with one host",
    law="max",
)

# %% [markdown]
# A faster card moves the crossover to the right, and more code becomes bound by its operators. What to do
# when the count cannot be lowered: CUDA graphs (lesson 07), and a compiler (lesson 11).
#
# Now the same function on your own GPU, if you have one. Look for a floor that is the same for all small
# sizes, a knee, and then a slope that the bandwidth sets. Where is your knee?


# %% experiment
from helpers import simulator


def add_by_size(device):
    real = simulator.RealGPU()
    return plots.crossover(
        GPU_SIZES,
        {"x + y": times_on(real)},
        evidence=real.evidence,
        title="One operator on this GPU",
        law="max",
    )


lesson.on_gpu(add_by_size, recording="02_add_by_size")

# %% [markdown]
# ## Sources on trial

# %% experiment tags=["fold"]
fewer = sum(has[0] < hand[0] for hand, has in fused.values())
leaner = sum(has[1] < hand[1] for hand, has in fused.values())
unchecked = [c for c in changes if "data" in c or "numpy" in c]
checked = [c for c in changes if c not in unchecked]
tried, tried_unchecked = (2 * len(codes) * len(some) for some in (checked, unchecked))
raised, wrong, wrong_unchecked = tally("raises", checked), tally("wrong", checked), tally("wrong", unchecked)
graphs_drawn = len(programs) * len(points)
none_in_place = not in_place(first) and in_place(second) == {"add_": len(parameters)}
lesson.verdicts(
    [
        {
            "id": "02-overhead",
            "source": "book-notes",
            "claim": "operator overhead is a main performance killer",
            "measured": f"x + y, simulated H100: below {gpu_elements:,} elements the time is the launch's; on "
            "this CPU the first picture of section 2 has the same shape",
            "verdict": "holds when tensors are smaller than the crossover; above it, bytes or arithmetic",
            "experiment": "2 · Overhead against size",
        },
        {
            "id": "02-dag",
            "source": "book-notes",
            "claim": "the graph is a DAG of operators, data on its edges",
            "measured": f"no cycle in {graphs_drawn} graphs; drawn: {forward.operators} operators made "
            f"{shape['nodes']} nodes, {leaves} of them leaves",
            "verdict": "holds when nodes are the operators' backwards and edges the way of gradients; data is "
            "saved in nodes",
            "experiment": "4 · The graph, and why if and while do not hurt it",
        },
        {
            "id": "02-accumulate",
            "source": "book-notes",
            "claim": "gradients accumulate as numbers, so control flow is no problem",
            "measured": f"{agree} of {graphs_drawn} gradients through data-dependent code equal finite "
            f"differences; a second backward doubled .grad in place: {doubled and stayed}",
            "verdict": "confirmed" if agree == graphs_drawn and doubled else "refuted",
            "experiment": "4 · The graph, and why if and while do not hurt it",
        },
        {
            "id": "02-in-place",
            "source": "book-notes",
            "claim": "in-place backward easily gives wrong numbers, so it is avoided",
            "measured": f"of {tried} changes in place {raised} raised, {wrong} went wrong; through .data or NumPy "
            f"{wrong_unchecked} of {tried_unchecked} went wrong",
            "verdict": ("confirmed" if wrong else "holds when the version check is evaded")
            + (
                ". Except for adding into .grad, backward used no in-place operators" if none_in_place else ""
            ),
            "experiment": "5 · In place, and what it breaks",
        },
        {
            "id": "02-fusion",
            "source": "guide",
            "claim": "fusion means fewer launches, less memory access",
            "measured": f"of {len(fused)} computations against PyTorch's fused operators: fewer launches in "
            f"{fewer}, fewer bytes moved in {leaner}",
            "verdict": "confirmed"
            if fewer == leaner == len(fused)
            else "holds when the fused operator is one kernel",
            "experiment": "3 · Operators that exist already",
        },
    ],
    evidence="live (CPU) · simulated (H100)",
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | A small operator costs its call: count operators. | Above the crossover of section 2: count bytes. |
# | Use the operator that exists. | Where its name hides several: count it. |
# | In-place is safe on what nobody saved. | Through `.data` or NumPy nobody checks. |
# | Autograd does not mind `if` and `while`. | On a GPU each decision on a tensor's value is a wait. |
# | A composition saves what each step wants; a Function, what you choose. | Recomputing costs operators. |
# | Keep numbers of a step with `.detach()`. | A detached view still holds its whole storage: `.clone()` it. |
# | `inference_mode` for serving, `no_grad` inside training. | For large operators the two cost the same. |
#
# **Checklist for your own code**
# - [ ] `count(step)`: how many operators per step, and how many of them on small tensors?
# - [ ] Any Python loop over samples, heads, layers of equal shape, parameters?
# - [ ] Any norm, activation, loss or attention written out?
# - [ ] `saved_bytes` of your own activations and losses?
# - [ ] What outlives a step, and does it have a `grad_fn`? Is it a view of something large?
# - [ ] Evaluation under `inference_mode`? Any `.data`, `create_graph`, `retain_graph` left over?
#
# **Read on**: [*Autograd mechanics*](https://docs.pytorch.org/docs/2.13/notes/autograd.html) and [*Extending
# PyTorch*](https://docs.pytorch.org/docs/2.13/notes/extending.html); E. Yang, [*PyTorch
# internals*](https://blog.ezyang.com/2019/05/pytorch-internals/) and [*Let's talk about the PyTorch
# dispatcher*](https://blog.ezyang.com/2020/09/lets-talk-about-the-pytorch-dispatcher/); I. Goodfellow, *Efficient per-example gradient
# computations* (2015).
