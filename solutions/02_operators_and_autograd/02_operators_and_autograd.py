# %% [markdown]
# # 02 · Operators and autograd
#
# ## Where does the time of a small operator go?
#
# One `+` on two tensors is a journey: out of Python, through a dispatcher, past autograd, into a kernel.
# For a big tensor the kernel is all that counts. For a small one the journey is, and much of real code is
# small operators: biases, norms, masks, losses, optimizer steps. This lesson finds the size at which the
# one becomes the other, and then what autograd adds: a graph, and the bytes that the graph keeps alive.
#
# **Time** 45–60 min · **Before this** lessons 00 (measuring) and 01 (storage and stride); you have called
# `.backward()` before.
#
# Afterwards you can
# - say how many operators a line dispatches, and at which size their number stops mattering;
# - say what a line saves for backward, in bytes, and write one that saves less;
# - find what keeps a graph alive, and turn a per-sample loop into one batch.
#
# **On trial:** "the overhead of calling operators is one of the main performance killers" · "the graph is a
# DAG of operators, with data on its edges" · "gradients accumulate as numbers, so control flow is no
# problem" · "in-place operations in backward lead to wrong numbers, so backward operators are not in-place"
# · "fusion means fewer kernel launches and fewer memory accesses".

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
# dots with your numbers.

# %% experiment
prediction = {
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
operators = {code: c.operators for code, c in counted.items()}
lesson.compare_predictions(prediction, operators, evidence="live (CPU)", what="operators").show()


def listed(c):
    return ", ".join(f"{k.removeprefix('aten.')} ×{n}" for k, n in c.by_operator.items())


rows = [(code, c.views, c.new_storages, listed(c)) for code, c in counted.items()]
lesson.table(rows, ["line", "of these, views", "new storages", "what was dispatched"], evidence="live (CPU)")

# %% [markdown]
# A name in Python says little about the number of operators. `layer_norm` is one operator, `rms_norm` on
# this CPU is a handful that look like one. The dispatcher sees what is left after composite functions have
# been taken apart, and a GPU launches those of them that are not views.
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
        return func(*args, **(kwargs or {}))


class Below(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        path.append(
            ("below autograd", f"{func}: " + ("a view, no kernel" if func.is_view else "runs a kernel"))
        )
        return func(*args, **(kwargs or {}))


x = torch.randn(4, 3)
w, b = torch.randn(8, 3, requires_grad=True), torch.randn(8, requires_grad=True)
with Above(), Below():
    out = F.linear(x, w, b)

node = out.grad_fn
path.append(
    (
        "autograd",
        f"has recorded {node.name()}, whose inputs come from "
        + ", ".join(n.name() if n else "no graph (x asks for no gradient)" for n, _ in node.next_functions),
    )
)
path.append(("every tensor", f"carries the stops of its path: {torch._C._dispatch_keys(x)}"))
lesson.table(path, ["where", "what happens"], evidence="live (CPU)")

# %% [markdown]
# The last row is the itinerary. `Autocast` is a stop only while autocast is on; `Autograd` makes a node if
# an input wants a gradient; `ADInplaceOrView` keeps version counters and the relation of views to their
# bases; `CPU` is the kernel. Each stop is paid once an operator, whatever the size of its tensors. Which
# raises the question of this lesson.

# %% [markdown]
# ## 2 · Overhead against size
#
# An add of two tensors with one element is nearly all journey. **At how many elements does the add take
# twice that long**, so that the elements cost as much as the journey? Give a number for this CPU, and one
# for an H100. The right power of ten is a good answer.

# %% experiment
prediction = {"this CPU, one thread": ..., "simulated H100": ...}

# %% experiment
from helpers import bench, simulate
from helpers.plots.overhead import fit_overhead

SIZES = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000]


def live_times(operator, inputs):
    tensors = [[torch.rand(n) for _ in range(inputs)] for n in SIZES]
    return [bench(operator, *args, min_run_time=0.02, num_threads=1).median_s for args in tensors]


on_cpu = {"x + y": live_times(torch.add, 2), "torch.sin(x)": live_times(torch.sin, 1)}
plots.crossover(SIZES, on_cpu, evidence="live (CPU)", title="One operator on one CPU thread")

# %% [markdown]
# The floor belongs to the call, the slope to the work. `sin` does more for each element: look for its ring
# further left.
#
# On a GPU the two parts run *at the same time*: the CPU launches the next operator while the GPU works on
# the last. So the time a call is not their sum but the larger of the two. A hundred adds in a row, on the
# simulated H100:

# %% experiment
from helpers.plots import style

GPU_SIZES = [10**k for k in range(9)]


def times_on(gpu, repeats=100):
    """Seconds a call of x + y when `repeats` of them are launched in a row, for each of GPU_SIZES."""
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


def draw(seconds, evidence, title, **lines):
    """Time a call against size; `lines`: name → function of the size, drawn dashed."""
    with style.look():
        fig, _ = style.figure(3.4, evidence=evidence, title=title)
        ax = fig.add_subplot()
        ax.loglog(GPU_SIZES, [1e6 * s for s in seconds], "o-", color=style.BLUE, label="x + y, a call")
        for (name, line), colour in zip(lines.items(), (style.VERMILLION, style.GREEN), strict=False):
            ax.loglog(
                GPU_SIZES,
                [1e6 * line(n) for n in GPU_SIZES],
                "--",
                color=colour,
                label=name.replace("_", " "),
            )
        ax.set(xlabel="elements", ylabel="time a call, µs", ylim=(min(seconds) * 4e5, max(seconds) * 2e6))
        ax.legend(loc="upper left")
        return plots.Picture(fig, evidence, f"{title}: time a call against elements")


h100 = simulate("H100")
launch_s = h100.card.assumptions.operator_s
bytes_s = h100.card.assumptions.bandwidth_share * h100.card.memory_bytes_per_s
draw(times_on(h100), h100.evidence, "One operator on an H100", the_CPU_launches=lambda n: launch_s,
     the_GPU_moves_its_bytes=lambda n: 12 * n / bytes_s)  # fmt: skip

# %% experiment
floor_s, slope_s = fit_overhead(SIZES, on_cpu["x + y"])
gpu_elements = round(launch_s * bytes_s / 12)  # two float32 read and one written for each element
said = {device: "—" if value is ... else value for device, value in prediction.items()}
columns = ["device", "you said", "elements at which the size begins to matter", "how"]
lesson.table(
    [
        (
            "this CPU, one thread",
            said["this CPU, one thread"],
            f"≈ {floor_s / slope_s:.0f}",
            "floor ÷ slope",
        )
    ],
    columns,
    evidence="live (CPU)",
    caption="the ring in the first picture",
).show()
how = f"{launch_s * 1e6:.0f} µs a launch × {bytes_s / 1e9:,.0f} GB/s ÷ 12 bytes an element"
lesson.table(
    [("H100", said["simulated H100"], gpu_elements, how)],
    columns,
    evidence="simulated (H100)",
    caption="where the dashed lines cross; the launch time is an assumption of the simulator",
)

# %% [markdown]
# The faster the device, the larger a tensor has to be before its size matters. On a fast GPU that is beyond
# a million elements: a bias, a norm's statistics or a single token's activations lie far below, and for
# those **the number of operators is the time**. It stops being true above the crossing, where bytes take
# over (and, for matrix products, arithmetic).
#
# What is the floor made of? Look at the steps between the rows rather than the digits, which are this
# machine's.

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
floor = [(what, bench(way, min_run_time=0.06, num_threads=1).cell) for what, way in ways.items()]
lesson.table(floor, ["one element", "a call"], evidence="live (CPU)")

# %% [markdown]
# ## 3 · Operators that exist already
#
# If the count is the time, the cheapest trick is to use an operator that does several things at once. Below
# are five computations, each written out and as PyTorch has it, on an H100 (simulated), in sizes that fit a
# layer. A *launch* is an operator that starts a kernel; views start none. **How many launches has each
# written-out form?**

# %% experiment
prediction = {
    "a + b·c": ...,
    "x·wᵀ + bias": ...,
    "layer norm with scale and shift": ...,
    "cross-entropy of logits": ...,
    "attention": ...,
}


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


def make(*shapes):
    return lambda device: [torch.ones(s, device=device) for s in shapes]


def logits(device):
    return [torch.ones(512, 1000, device=device), torch.zeros(512, dtype=torch.int64, device=device)]


pairs = {
    "a + b·c": (lambda a, b, c: a + b * c, torch.addcmul, make(*[(512, 1024)] * 3)),
    "x·wᵀ + bias": (lambda x, w, b: x @ w.t() + b, F.linear, make((512, 1024), (1024, 1024), 1024)),
    "layer norm with scale and shift": (
        norm_by_hand,
        lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b),
        make((512, 1024), 1024, 1024),
    ),
    "cross-entropy of logits": (entropy_by_hand, F.cross_entropy, logits),
    "attention": (attention_by_hand, F.scaled_dot_product_attention, make(*[(8, 16, 512, 64)] * 3)),
}


def on_device(gpu, fn, inputs):
    """(launches, bytes read and written, seconds, start on the simulated clock) of fn on warm kernels."""
    fn(*inputs)
    gpu.synchronize()
    start, before = gpu.clock(), len(gpu.kernels)
    fn(*inputs)
    gpu.synchronize()
    mine = gpu.kernels[before:]
    return len(mine), sum(k.bytes for k in mine), gpu.clock() - start, start


gpu, fused = simulate("H100"), {}
with gpu:
    for name, (by_hand, existing, inputs) in pairs.items():
        inputs = inputs(gpu.device)
        fused[name] = on_device(gpu, by_hand, inputs), on_device(gpu, existing, inputs)

lesson.compare_predictions(
    prediction, {name: hand[0] for name, (hand, _) in fused.items()}, evidence=gpu.evidence, what="launches"
).show()
rows = [
    (
        name,
        f"{hand[0]} → {has[0]}",
        f"{hand[1] / 1e6:.1f} → {has[1] / 1e6:.1f}",
        f"{hand[1] / has[1]:.1f}×",
        f"{hand[2] * 1e6:.1f} → {has[2] * 1e6:.1f}",
    )
    for name, (hand, has) in fused.items()
]
lesson.table(
    rows,
    ["computation", "launches", "MB moved", "fewer bytes", "µs"],
    evidence=gpu.evidence,
    caption="written out → as PyTorch has it; forward only",
)

# %% [markdown]
# Fewer launches help small tensors, fewer bytes help large ones, and a fused operator gives both: what lies
# between two of its steps never leaves the chip. Attention shows the second most plainly. Written out, the
# matrix of scores is written and read several times; `scaled_dot_product_attention` keeps it on the chip.
#
# For *small* inputs the picture is another. The same attention with one head of 16 tokens:

# %% experiment
small = simulate("H100")
with small:
    q, k, v = (torch.ones(1, 1, 16, 64, device=small.device) for _ in range(3))
    F.scaled_dot_product_attention(q, k, v)
    *_, began = on_device(small, attention_by_hand, (q, k, v))
    switch = small.clock()
    F.scaled_dot_product_attention(q, k, v)
    small.synchronize()
VIEWS = ("aten.transpose", "aten.expand", "aten.view", "aten._unsafe_view")


def bar(record, lane):
    name = "view" if record.name in VIEWS else record.name.removeprefix("aten.").lstrip("_")
    name = "attention" if "attention" in name else name
    return name, lane, record.start_ns / 1e9, record.end_ns / 1e9


bars = [bar(r, "CPU") for r in small.host] + [bar(k, "GPU") for k in small.kernels]
plots.timeline(
    [b for b in bars if b[2] >= began],
    evidence=small.evidence,
    title="Small attention: written out, then in one operator",
    marks={"one operator": switch},
)

# %% [markdown]
# The GPU's lane is nearly empty: all the time is the CPU's, a bar an operator, views included. Removing
# operators removes exactly their bars.
#
# **The rule.** Count operators where tensors are small, bytes where they are large. `addcmul`, `addcdiv`,
# `lerp`, `addmm`, `baddbmm`, `layer_norm`, `scaled_dot_product_attention` and the activations are one
# operator each, `cross_entropy` is two. Check by counting and not by name: `rms_norm` and
# `cosine_similarity` above were several.

# %% [markdown]
# **Exercise 2.1 — few operators** (★★, 8 min)
#
# `block_plain` below is the tail of a gated residual layer, written operator by operator. Write `block`:
# the same numbers in **at most 7 operators**, views counted.
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

    x: (n, k). w: (d, k). b, gate, gamma, beta: (d,). residual: (n, d). Returns (n, d), in the dtype of x.
    Budget: 7 operators (one transpose, the product with its bias, the gated sum, the normalisation, the
    activation: five, and two to spare); bytes of 5 results of (n, d) and of 4 numbers a row; no syncs.
    """
    ### BEGIN SOLUTION
    h = torch.addcmul(residual, gate, F.linear(x, w, b))
    return F.silu(F.layer_norm(h, h.shape[-1:], gamma, beta, eps))
    ### END SOLUTION


# %% test="few_operators" points=1
import torch

from helpers import check


def plain(x, w, b, gate, residual, gamma, beta, eps=1e-5):
    h = residual + gate * (x @ w.t() + b)
    mean = h.mean(-1, keepdim=True)
    h = (h - mean) / torch.sqrt(((h - mean) ** 2).mean(-1, keepdim=True) + eps) * gamma + beta
    return h * torch.sigmoid(h)


def tensors_for(n, k, d, dtype=torch.float32):
    g = torch.Generator().manual_seed(n)
    return [torch.randn(s, generator=g).to(dtype) for s in ((n, k), (d, k), d, d, (n, d), d, d)]


def seen(reports):
    for r in reports:
        (n, k), d = r.args[0].shape, r.args[1].shape[0]
        if (
            r.counts["flops"] < 2 * n * k * d
            or r.counts["bytes_allocated"] < 2 * n * d * r.args[0].element_size()
        ):
            return "the counters did not see the product or its result; compute in this thread, with torch"
        if r.counts["operators"] < 4:  # four things to do, and no operator of torch's does two of them
            return f"only {r.counts['operators']} operators were seen; the rest ran where the counters do not look"
    return None


check.function(
    "block",
    [check.case(*tensors_for(32, 16, 24)), check.case(*tensors_for(64, 8, 8), eps=0.1)],
    expect=plain,
    rtol=1e-4,
    atol=1e-5,
    budget={"operators": 7, "syncs": 0},
    verify=seen,
    look="3 · Operators that exist already",
)

# %% hidden="few_operators" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers import check


def plain(x, w, b, gate, residual, gamma, beta, eps=1e-5):
    h = residual + gate * (x @ w.t() + b)
    mean = h.mean(-1, keepdim=True)
    h = (h - mean) / torch.sqrt(((h - mean) ** 2).mean(-1, keepdim=True) + eps) * gamma + beta
    return h * torch.sigmoid(h)


def tensors_for(n, k, d, dtype=torch.float32):
    g = torch.Generator().manual_seed(n)
    return [torch.randn(s, generator=g).to(dtype) for s in ((n, k), (d, k), d, d, (n, d), d, d)]


def limits(x, w, b, gate, residual, gamma, beta, eps=1e-5):
    n, d = residual.shape
    return {"operators": 7, "bytes_allocated": (5 * n * d + 4 * n) * x.element_size(), "syncs": 0}


def seen(reports):
    for r in reports:
        (n, k), d = r.args[0].shape, r.args[1].shape[0]
        if (
            r.counts["flops"] < 2 * n * k * d
            or r.counts["bytes_allocated"] < 2 * n * d * r.args[0].element_size()
        ):
            return "the counters did not see the product or its result; compute in this thread, with torch"
        if r.counts["operators"] < 4:  # four things to do, and no operator of torch's does two of them
            return f"only {r.counts['operators']} operators were seen; the rest ran where the counters do not look"
    return None


check.function(
    "block",
    [
        check.case(*tensors_for(128, 32, 48), eps=1e-3),
        check.case(*tensors_for(96, 64, 64)),
        check.case(*tensors_for(80, 8, 16, torch.float64)),
    ],
    expect=plain,
    rtol=1e-4,
    atol=1e-5,
    budget=limits,
    verify=seen,
    look="3 · Operators that exist already",
)
### END HIDDEN TESTS

# %% hidden="few_operators" points=1
### BEGIN HIDDEN TESTS
import torch

from helpers import check


def plain(x, w, b, gate, residual, gamma, beta, eps=1e-5):
    h = residual + gate * (x @ w.t() + b)
    mean = h.mean(-1, keepdim=True)
    h = (h - mean) / torch.sqrt(((h - mean) ** 2).mean(-1, keepdim=True) + eps) * gamma + beta
    return h * torch.sigmoid(h)


g = torch.Generator().manual_seed(5)
tensors = [
    torch.randn(s, generator=g, dtype=torch.float64).requires_grad_()
    for s in ((6, 5), (7, 5), 7, 7, (6, 7), 7, 7)
]
check.function(
    "block",
    [check.case(*tensors)],
    expect=plain,
    grads=True,
    rtol=1e-9,
    atol=1e-9,
    look="5 · In place, and what it breaks",
    note="It must also work inside a network that is being trained.",
)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · The graph, and why `if` and `while` do not hurt it
#
# While the forward runs, autograd links one node to the next. Here is a small one. How many nodes will the
# picture have, how many of them are leaves, and how many operators did the forward dispatch?

# %% experiment
prediction = {"operators dispatched": ..., "nodes": ..., "leaves": ...}


# %% experiment
def walk(tensor):
    """(nodes, leaves, edges, has a cycle) of the graph behind a tensor, from the result to the leaves."""
    on_path, done, edges, cyclic = set(), set(), 0, False

    def visit(node):
        nonlocal edges, cyclic
        on_path.add(node)
        for following, _ in node.next_functions:
            if following is not None:
                edges += 1
                cyclic |= following in on_path
                if following not in done | on_path:
                    visit(following)
        on_path.remove(node)
        done.add(node)

    visit(tensor.grad_fn)
    return len(done), sum("AccumulateGrad" in n.name() for n in done), edges, cyclic


x = torch.randn(100)
w, v = torch.randn(100, requires_grad=True), torch.randn(100, requires_grad=True)
forward = count(lambda: ((scaled := x * 2 * w).tanh() * scaled + v.exp()).sum())
nodes, leaves, *_ = walk(forward.result)
shape = {"operators dispatched": forward.operators, "nodes": nodes, "leaves": leaves}
lesson.compare_predictions(prediction, shape, evidence="live (CPU)")

# %% experiment
plots.autograd_graph(
    forward.result, evidence="live (CPU)", names={"w": w, "v": v}, title="((2xw)·tanh(2xw) + eᵛ).sum()"
)

# %% [markdown]
# Two things the usual drawing hides. The nodes are not the forward's operators but **the functions of their
# backward**, and the arrows point the way gradients go, from the result to the leaves. And `x * 2` has no
# node at all: nothing in it asked for a gradient. The node that two arrows reach is why this is a graph and
# not a tree: the two gradients that arrive there are *added*, as numbers.
#
# Nothing else is known of the program. The graph is what *this* run did; an `if` left one branch in it, a
# `while` as many copies of its body as were run. Six programs that decide by looking at their data:


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


programs = (branch, loop, early_exit, recursion, chosen, masked)
points = [torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(s)) for s in range(5)]
rows, agree, cycles = [], 0, 0
for program in programs:
    right = sum(torch.autograd.gradcheck(program, p.clone().requires_grad_()) for p in points)
    runs = [count(program, p.clone().requires_grad_()) for p in points]
    graphs = [walk(r.result) for r in runs]
    agree, cycles = agree + right, cycles + sum(g[3] for g in graphs)
    rows.append(
        (
            program.__name__,
            f"{right} of {len(points)}",
            ", ".join(str(g[0]) for g in graphs),
            ", ".join(str(r.syncs) for r in runs),
        )
    )
lesson.table(
    rows,
    ["program", "gradient = finite differences", "nodes, input by input", "syncs, input by input"],
    evidence="live (CPU)",
)

# %% [markdown]
# The gradients agree with finite differences. The graphs differ from input to input, and nobody minds,
# because adding up numbers along one path of execution needs no formula for the others. Two limits. The
# gradient is that of the branch that was taken: how the *decision* depends on `x` does not enter (at the
# jump itself there is no derivative to find). And the last column is the price: each decision reads a
# value, for which the CPU would wait if `x` were on a GPU. Autograd does not mind control flow; the queue
# does (lesson 03).
#
# Accumulation goes on from one backward to the next, and there it is done in place:

# %% experiment
layers = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 4)
)
data, target = torch.randn(32, 8), torch.randint(4, (32,))


def ending_in_underscore(c):
    return {k: n for k, n in c.by_operator.items() if k.endswith("_")}


first = count(F.cross_entropy(layers(data), target).backward)
once = [p.grad.clone() for p in layers.parameters()]
places = [p.grad.data_ptr() for p in layers.parameters()]
second = count(F.cross_entropy(layers(data), target).backward)
doubled = all(torch.allclose(p.grad, 2 * g) for p, g in zip(layers.parameters(), once, strict=True))
stayed = places == [p.grad.data_ptr() for p in layers.parameters()]
lesson.table(
    [
        ("first backward", first.operators, ending_in_underscore(first) or "none"),
        ("second backward, gradients kept", second.operators, ending_in_underscore(second)),
    ],
    ["", "operators", "in-place ones"],
    evidence="live (CPU)",
    caption=f"{len(once)} parameters; gradients doubled: {doubled}; in the same memory as before: {stayed}",
)

# %% [markdown]
# ## 5 · In place, and what it breaks
#
# `y = op(x)`, then somebody adds 1 to `x` or to `y` in place, then backward. For each: does backward
# **raise**, is the gradient **fine** all the same, or is it silently **wrong**? First four of them by head.

# %% experiment
prediction = {
    "sin, input changed": ...,
    "sin, result changed": ...,
    "exp, input changed": ...,
    "exp, result changed": ...,
}

# %% experiment
W = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
unary = {
    "x + 1": lambda x: x + 1,
    "2x": lambda x: 2 * x,
    "x²": lambda x: x * x,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "sin": torch.sin,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": F.gelu,
    "silu": F.silu,
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "mean": lambda x: x.mean(1),
    "sum": lambda x: x.sum(1),
    "x @ W": lambda x: x @ W,
    "clamp": lambda x: x.clamp(0.6, 1.2),
    "cumsum": lambda x: x.cumsum(1),
    "cat": lambda x: torch.cat([x, x]),
    "max": lambda x: x.max(1).values,
}


def under_no_grad(t):
    with torch.no_grad():
        t.add_(1)


def by_numpy(t):
    t.detach().numpy()[...] += 1


changes = {
    "t.add_(1)": lambda t: t.add_(1),
    "under no_grad: t.add_(1)": under_no_grad,
    "t.detach().add_(1)": lambda t: t.detach().add_(1),
    "t.data.add_(1)": lambda t: t.data.add_(1),
    "t.detach().numpy()[...] += 1": by_numpy,
}


def gradient(op, which=None, change=None):
    """d(random sum of op(x))/dx at a fixed x, with `change` done to x or to op(x) before backward."""
    generator = torch.Generator().manual_seed(2)
    leaf = (torch.rand(8, 8, generator=generator) + 0.5).requires_grad_()
    x = leaf * 1.0
    y = op(x)
    if change is not None:
        change({"input": x, "result": y}[which])
    y.backward(torch.randn(y.shape, generator=generator))
    return leaf.grad


def outcome(op, which, change):
    try:
        got = gradient(op, which, change)
    except RuntimeError as error:
        outcome.message = str(error)
        return "raises"
    return "fine" if torch.allclose(got, gradient(op)) else "wrong"


outcomes = {
    (change, which, name): outcome(op, which, changes[change])
    for change in changes
    for which in ("input", "result")
    for name, op in unary.items()
}
head = {key: outcomes["t.add_(1)", key.split()[1], key.split(",")[0]] for key in prediction}
lesson.compare_predictions(prediction, head, evidence="live (CPU)").show()
rows = [
    (
        f"`{change}`",
        which,
        *(
            sum(o == kind for (c, w, _), o in outcomes.items() if (c, w) == (change, which))
            for kind in ("raises", "fine", "wrong")
        ),
    )
    for change in changes
    for which in ("input", "result")
]
lesson.table(
    rows,
    ["the change", "of op's", "raises", "fine", "silently wrong"],
    evidence="live (CPU)",
    caption=f"{len(unary)} operators each",
)

# %% experiment
needs = {
    which: ", ".join(name for name in unary if outcomes["t.add_(1)", which, name] == "raises")
    for which in ("input", "result")
}
outcome(torch.exp, "result", changes["t.add_(1)"])
print(
    f"need their input: {needs['input']}\nneed their result: {needs['result']}\n\n{outcome.message.split(' Hint')[0]}"
)

# %% [markdown]
# A tensor and its views share a **version counter** that each in-place operator raises by one. A node
# remembers the version of what it saved; if the two differ when backward comes, it raises. So `sin`, which
# saves its input, objects to a changed input, and `exp`, which saves its result (it is its own derivative),
# to a changed result. What was not saved may be changed freely. `.detach()` shares the counter, too, and
# `no_grad` does not stop it. `.data` gives a tensor with a counter of its own, NumPy knows of none, and
# with them the check is gone: those are the wrong numbers.
#
# The picture of such a graph:

# %% experiment
w = torch.randn(100, requires_grad=True)
inner = (w + 1).exp()
loss = (inner.sin() + inner).sum()
inner.add_(1)
plots.autograd_graph(
    loss, evidence="live (CPU)", names={"w": w}, title="z = exp(w + 1); loss = (sin(z) + z).sum(); z.add_(1)"
)

# %% [markdown]
# **The rule.** In place is safe on what no node has saved: the result of `+`, `sum`, `mean`, of a matrix
# product or a `cat`. It saves one allocation, no launch. Never write through `.data`; where you must not be
# recorded, write under `torch.no_grad()`, and the check stays on. It stops being a check where memory is
# changed behind PyTorch's back: by NumPy, by another process, by a kernel of your own.

# %% [markdown]
# ## 6 · What is kept for backward
#
# `x` has n float32 elements. Multiples of n (that is, of 4n bytes): what does each line keep alive until
# backward?

# %% experiment
prediction = {
    "x + y": ...,
    "x * y": ...,
    "x * 2": ...,
    "relu(x)": ...,
    "x * torch.sigmoid(x)": ...,
    "F.silu(x)": ...,
    "dropout": ...,
    "sort": ...,
    "where(x > 0, x, y)": ...,
}


# %% experiment
def keeps(fn, inputs=2, n=64 * 64):
    """Bytes saved for backward by fn, in units of 4n."""
    return count(fn, *(torch.randn(64, 64, requires_grad=True) for _ in range(inputs))).saved_bytes / (4 * n)


lines = {
    "x + y": lambda x, y: x + y,
    "x * y": lambda x, y: x * y,
    "x * 2": lambda x, y: x * 2,
    "relu(x)": lambda x, y: torch.relu(x),
    "x * torch.sigmoid(x)": lambda x, y: x * torch.sigmoid(x),
    "F.silu(x)": lambda x, y: F.silu(x),
    "x * tanh(softplus(x))": lambda x, y: x * torch.tanh(F.softplus(x)),
    "F.mish(x)": lambda x, y: F.mish(x),
    "x * tanh(exp(x))": lambda x, y: x * torch.tanh(torch.exp(x)),
    "x.softmax(-1)": lambda x, y: x.softmax(-1),
    "layer_norm": lambda x, y: F.layer_norm(x, (64,)),
    "x @ y": lambda x, y: x @ y,
    "x.sum()": lambda x, y: x.sum(),
    "dropout": lambda x, y: F.dropout(x, 0.5),
    "sort": lambda x, y: x.sort().values,
    "where(x > 0, x, y)": lambda x, y: torch.where(x > 0, x, y),
}
saved = {name: keeps(fn) for name, fn in lines.items()}
shown = {name: round(value, 2) for name, value in saved.items()}
lesson.compare_predictions(prediction, shown, evidence="live (CPU)", what="saved, in 4n bytes")

# %% [markdown]
# Each formula decides. The derivative of a sum needs nothing; a product needs both factors; `relu`,
# `sigmoid` and `exp` make do with their result, `silu` with its input. `sort` keeps int64 indices, eight
# bytes an element; a condition is a bool, one byte. The same function written out keeps what every one of
# its steps wants: `silu` and `mish` save one tensor, their compositions two, and x · tanh(eˣ) three. That
# is the other half of fusion, and in training often the larger: an activation kept from forward to backward
# is there at the peak.
#
# You can do the same for functions that PyTorch does not have, with `torch.autograd.Function`: run the
# forward unrecorded, save what you choose, and compute the rest again in backward. `ctx.save_for_backward`
# gives you the version check, too.
#
# **Exercise 2.2 — a third of the bytes** (★★★, 12 min)
#
# TanhExp, x · tanh(eˣ), is an activation that PyTorch lacks. Written out it keeps three tensors. Write
# `tanhexp` so that it keeps **one** of the size of x, with the right gradient, also where the written-out
# form fails.
#
# <details><summary>Hint 1</summary>d/dx x·tanh(eˣ) = tanh(eˣ) + x·eˣ·(1 − tanh²(eˣ)). What of this can be
# computed again from x alone?</details>
#
# <details><summary>Hint 2</summary>At x = 100 eˣ is inf in float32, and inf · 0 is nan. From which x on is
# tanh(eˣ) exactly 1, so that the second summand must be 0? Look at <code>clamp(max=…)</code>.</details>
#
# <details><summary>The idea</summary>A Function whose forward saves x
# (<code>ctx.save_for_backward(x)</code>) and whose backward computes e = exp(clamp(x, max=20)), t = tanh(e)
# and grad · (t + x·e·(1 − t²)).</details>


# %% setup
def tanhexp_plain(x):
    return x * torch.tanh(torch.exp(x))


# %% exercise="lean_function"
def tanhexp(x: torch.Tensor) -> torch.Tensor:
    """x · tanh(exp(x)), element by element, keeping one tensor of x's size for backward.

    x: any shape, float32 or float64, any finite values. Returns x's shape and dtype. Once differentiable.
    Gradient: right and finite for every finite x (it tends to 1 as x grows).
    Budget: saved_bytes ≤ x.nbytes; after forward no more is alive than the result and one tensor like x.
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
        return grad * (t + x * e * (1 - t * t))

    ### END SOLUTION


# %% test="lean_function" points=2
import torch

from helpers import check


def plain(x):
    return x * torch.tanh(torch.exp(x))


def forward_only(tanhexp, x):
    tanhexp(x)


def seen(reports):
    if any(r.counts["peak_live_bytes"] < r.args[0].nbytes for r in reports):
        return "the counters did not see the result being made; compute in this thread, with torch"
    return None


g = torch.Generator().manual_seed(0)
cases = [
    check.case(torch.randn(40, 50, generator=g).requires_grad_()),
    check.case(torch.linspace(-5, 5, 99).requires_grad_()),
]
check.function("tanhexp", cases, expect=plain, grads=True, look="6 · What is kept for backward")
check.function(
    "tanhexp",
    cases,
    drive=forward_only,
    budget=lambda x: {"saved_bytes": x.nbytes},
    verify=seen,
    look="6 · What is kept for backward",
)

# %% hidden="lean_function" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers import check


def safe(x):
    return x * torch.tanh(torch.exp(x.clamp(max=20)))


g = torch.Generator().manual_seed(1)
double = torch.randn(3, 5, 7, generator=g, dtype=torch.float64).mul(3).requires_grad_()
check.function(
    "tanhexp",
    [
        check.case(double),
        check.case(torch.tensor([-100.0, -30, -2, 0, 0.5, 2.5, 19, 60, 88, 100, 3e4]).requires_grad_()),
        check.case(torch.tensor([-800.0, 709, 711, 1e6], dtype=torch.float64).requires_grad_()),
        check.case(torch.randn(6, 9, generator=g).t().requires_grad_()),
    ],
    expect=safe,
    grads=True,
    atol=1e-6,
    rtol=1e-5,
    look="6 · What is kept for backward",
    note="The gradient must be right where exp(x) overflows, too.",
)
check.function(
    "tanhexp",
    [check.case(double)],
    expect=safe,
    grads=True,
    rtol=1e-12,
    atol=1e-12,
    look="6 · What is kept for backward",
    note="float64 in, float64 throughout.",
)
### END HIDDEN TESTS

# %% hidden="lean_function" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers import check


def drive(tanhexp, n, step, count):
    import torch

    def derivative(x):
        e = torch.exp(x.double())
        t = torch.tanh(e)
        return t + x * e * (1 - t * t)

    leaf = torch.linspace(-3, 3, n, requires_grad=True)
    x = leaf * 1.0
    with count() as c:
        y = tanhexp(x)
    ok = torch.allclose(y, x * torch.tanh(torch.exp(x)), atol=1e-6)
    weight = torch.arange(n) % step + 1.0
    want = (derivative(leaf.detach()) * weight).float()
    with torch.no_grad():
        x.add_(1.0)
    try:
        y.backward(weight)
        after = "right" if torch.allclose(leaf.grad, want, atol=1e-5) else "wrong"
    except RuntimeError:
        after = "raised"
    leaf = leaf.detach().requires_grad_()
    tanhexp(leaf).backward(weight)
    ok = ok and torch.allclose(leaf.grad, want, atol=1e-5)
    return {"saved": c.saved_bytes, "live": c.live_bytes, "after": after, "ok": ok}


def lean(reports):
    for r in reports:
        one = r.args[0] * 4
        if not r.value["ok"]:
            return "the values or the gradients are not right"
        if r.value["saved"] > one:
            return f"it saved {r.value['saved']:,} bytes for backward; wanted at most {one:,}."
        if r.value["live"] < one:
            return "the counters did not see the result being made; compute in this thread, with torch"
        if r.value["live"] > 2 * one:
            return (
                f"after forward {r.value['live']:,} bytes are alive; wanted {2 * one:,}: the result, one tensor "
                "like x. What a ctx attribute or a closure holds counts, too."
            )
        if r.value["after"] == "wrong":
            return (
                "x was changed in place before backward, and the gradient came out wrong with no error. "
                "Tensors kept on a plain attribute of ctx have no version check; save_for_backward has."
            )
    return None


check.function(
    "tanhexp",
    [check.case(1000, 3), check.case(5000, 7)],
    drive=drive,
    verify=lean,
    look="5 · In place, and what it breaks",
)
### END HIDDEN TESTS

# %% [markdown]
# ### Without a graph: `no_grad` and `inference_mode`
#
# Twenty layers, three ways to run them. Which numbers change?

# %% experiment
weight = torch.randn(256, 256) / 16
weight.requires_grad_()
batch = torch.randn(64, 256)


def twenty():
    h = batch
    for _ in range(20):
        h = torch.relu(h @ weight)
    return h


def tiny():
    h = one
    for _ in range(50):
        h = h + wants
    return h


modes = {"with a graph": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
rows = []
for name, mode in modes.items():
    with mode():
        c, keys = count(twenty), str(torch._C._dispatch_keys(torch.empty(1)))
        clock = bench(tiny, min_run_time=0.05, num_threads=1).cell
    rows.append(
        (name, c.operators, c.saved_bytes, c.peak_live_bytes, clock, keys.removeprefix("DispatchKeySet"))
    )
lesson.table(
    rows,
    ["mode", "operators", "saved bytes", "peak live bytes", "50 tiny adds", "stops of a new tensor"],
    evidence="live (CPU)",
    caption="twenty layers of 256 × 256, batch 64",
)

# %% experiment
with torch.inference_mode():
    made_there = torch.ones(3)
asks = torch.ones(3, requires_grad=True)
said = []
for code in ("made_there._version", "made_there.add_(1)", "asks + made_there", "asks * made_there"):
    try:
        said.append((f"`{code}`", f"works, and gives a {type(eval(code)).__name__}"))
    except RuntimeError as error:
        said.append((f"`{code}`", f"raises: {str(error).partition('.')[0]}."))
lesson.table(said, ["a tensor made in inference_mode", "what happens"], evidence="live (CPU)")

# %% [markdown]
# Without a graph the same operators run and nothing is kept: at the peak three results are alive (the last
# layer's, the product, the new one), and not one for every layer. `inference_mode` also takes two stops off
# the path of every tensor made in it: no autograd, no version counter. What that saves is a part of the
# floor, so look for it in tiny operators only. The price is the second table: such tensors cannot be saved
# for a backward later. Use `inference_mode` for serving and evaluation, `no_grad` where the results go back
# into training.
#
# ## What keeps a graph alive
#
# A graph lives as long as anybody holds a tensor with a `grad_fn` in it. Everybody knows the list called
# `losses`. How bad is it? Ten steps of a small net; each keeps one thing. What is alive at the end, in
# units of one step's hidden activations?

# %% experiment
prediction = {
    "the loss, backward has run": ...,
    "the loss, no backward (validation)": ...,
    "a metric of hidden, backward has run from the loss": ...,
    "hidden[0].detach()": ...,
    "hidden[0].detach().clone()": ...,
}


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


kept = {
    "the loss, backward has run": count(ten_steps, lambda hidden, loss: loss),
    "the loss, no backward (validation)": count(ten_steps, lambda hidden, loss: loss, backward=False),
    "a metric of hidden, backward has run from the loss": count(
        ten_steps, lambda hidden, loss: hidden.abs().mean()
    ),
    "hidden[0].detach()": count(ten_steps, lambda hidden, loss: hidden[0].detach()),
    "hidden[0].detach().clone()": count(ten_steps, lambda hidden, loss: hidden[0].detach().clone()),
}
one_hidden = 64 * 256 * 4
alive = {name: round(c.live_bytes / one_hidden, 1) for name, c in kept.items()}
lesson.compare_predictions(prediction, alive, evidence="live (CPU)", what="hidden activations still alive")

# %% [markdown]
# Backward frees what its nodes saved as it passes, so the famous list holds empty nodes only. What hurts is
# a graph that *no backward walks*: a loss under validation, a metric beside the loss, gradients made with
# `create_graph=True`. And a detached row hurts as much, with no graph at all: it is a view (lesson 01).
#
# **Exercise 2.3 — who keeps the graph?** (★★, 10 min)
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
# <code>.item()</code> would cut the graph as well, but the device would have to be waited for, once a
# step.</details>
#
# <details><summary>The idea</summary><code>.detach()</code> for the loss that is kept and for the activity
# that is averaged, no <code>create_graph</code>, and <code>hidden[0].detach().clone()</code> for the
# row.</details>


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

    w1: (k, width), w2: (width, out): starting weights, not changed. inputs: (steps, batch, k).
    targets: (steps, batch, out). Returns, none of them with a graph: "loss" (steps,), "norm" (steps,): length
    of the gradient, "row" (steps, width): the first sample's hidden activations, "smooth" (): the running
    average of the mean squared activation, "w1", "w2": the trained weights.
    Budget: each step more may raise peak live bytes by at most 4 × the bytes that the step adds to the
    result, that is 4 × 4 × (width + 2) for float32; no syncs (a GPU would never be waited for).
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
import torch

from helpers import check


def reference(w1, w2, inputs, targets, lr=0.1):
    w1, w2, out, smooth = w1.clone().requires_grad_(), w2.clone().requires_grad_(), [], None
    for x, y in zip(inputs, targets, strict=True):
        hidden = torch.tanh(x @ w1)
        loss = (hidden @ w2 - y).pow(2).mean()
        g1, g2 = torch.autograd.grad(loss, (w1, w2))
        loss = loss.detach()
        activity = hidden.detach().pow(2).mean()
        smooth = activity if smooth is None else 0.9 * smooth + 0.1 * activity
        out.append((loss, torch.sqrt(g1.pow(2).sum() + g2.pow(2).sum()), hidden[0].detach()))
        with torch.no_grad():
            w1 -= lr * g1
            w2 -= lr * g2
    loss, norm, row = (torch.stack(v) for v in zip(*out, strict=True))
    return {"loss": loss, "norm": norm, "row": row, "smooth": smooth, "w1": w1.detach(), "w2": w2.detach()}


def problem(steps, batch, k, width, out):
    g = torch.Generator().manual_seed(steps)
    shapes = ((k, width), (width, out), (steps, batch, k), (steps, batch, out))
    return [torch.randn(s, generator=g) / 8 for s in shapes]


def growth(reports):
    for few, many in zip(reports[::2], reports[1::2], strict=True):
        (steps, batch, k), (width, out) = many.args[2].shape, many.args[1].shape
        if many.counts["flops"] < 2 * steps * batch * width * (k + out):
            return "the counters did not see the matrix products; train in this thread, with torch"
        steps = many.args[2].shape[0] - few.args[2].shape[0]
        most = 4 * 4 * (many.args[0].shape[1] + 2)
        grew = (many.counts["peak_live_bytes"] - few.counts["peak_live_bytes"]) / steps
        if grew > most:
            return (
                f"values are right, but the peak grew by {grew:,.0f} bytes a step; wanted at most {most:,}. "
                "Something of each step stays alive: a graph, or a storage that a view holds."
            )
    return None


check.function(
    "train",
    [check.case(*problem(n, 48, 16, 64, 2)) for n in (3, 15)],
    expect=reference,
    rtol=1e-4,
    atol=1e-6,
    verify=growth,
    look="What keeps a graph alive",
)

# %% hidden="graph_keeper" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers import check


def reference(w1, w2, inputs, targets, lr=0.1):
    w1, w2, out, smooth = w1.clone().requires_grad_(), w2.clone().requires_grad_(), [], None
    for x, y in zip(inputs, targets, strict=True):
        hidden = torch.tanh(x @ w1)
        loss = (hidden @ w2 - y).pow(2).mean()
        g1, g2 = torch.autograd.grad(loss, (w1, w2))
        loss = loss.detach()
        activity = hidden.detach().pow(2).mean()
        smooth = activity if smooth is None else 0.9 * smooth + 0.1 * activity
        out.append((loss, torch.sqrt(g1.pow(2).sum() + g2.pow(2).sum()), hidden[0].detach()))
        with torch.no_grad():
            w1 -= lr * g1
            w2 -= lr * g2
    loss, norm, row = (torch.stack(v) for v in zip(*out, strict=True))
    return {"loss": loss, "norm": norm, "row": row, "smooth": smooth, "w1": w1.detach(), "w2": w2.detach()}


def problem(steps, batch, k, width, out):
    g = torch.Generator().manual_seed(steps)
    shapes = ((k, width), (width, out), (steps, batch, k), (steps, batch, out))
    return [torch.randn(s, generator=g) / 8 for s in shapes]


def growth(reports):
    for few, many in zip(reports[::2], reports[1::2], strict=True):
        (steps, batch, k), (width, out) = many.args[2].shape, many.args[1].shape
        if many.counts["flops"] < 2 * steps * batch * width * (k + out):
            return "the counters did not see the matrix products; train in this thread, with torch"
        steps = many.args[2].shape[0] - few.args[2].shape[0]
        most = 4 * 4 * (many.args[0].shape[1] + 2)
        grew = (many.counts["peak_live_bytes"] - few.counts["peak_live_bytes"]) / steps
        if grew > most:
            return (
                f"values are right, but the peak grew by {grew:,.0f} bytes a step; wanted at most {most:,}. "
                "Something of each step stays alive: a graph, or a storage that a view holds."
            )
    return None


sizes = [(2, 64, 8, 128, 2), (22, 64, 8, 128, 2), (4, 100, 20, 40, 1), (30, 100, 20, 40, 1)]
check.function(
    "train",
    [check.case(*problem(*s), lr=0.3) for s in sizes],
    expect=reference,
    rtol=1e-4,
    atol=1e-6,
    verify=growth,
    look="What keeps a graph alive",
)
### END HIDDEN TESTS

# %% hidden="graph_keeper" points=1
### BEGIN HIDDEN TESTS
import torch

from helpers import check


def reference(w1, w2, inputs, targets, lr=0.1):
    w1, w2, out, smooth = w1.clone().requires_grad_(), w2.clone().requires_grad_(), [], None
    for x, y in zip(inputs, targets, strict=True):
        hidden = torch.tanh(x @ w1)
        loss = (hidden @ w2 - y).pow(2).mean()
        g1, g2 = torch.autograd.grad(loss, (w1, w2))
        loss = loss.detach()
        activity = hidden.detach().pow(2).mean()
        smooth = activity if smooth is None else 0.9 * smooth + 0.1 * activity
        out.append((loss, torch.sqrt(g1.pow(2).sum() + g2.pow(2).sum()), hidden[0].detach()))
        with torch.no_grad():
            w1 -= lr * g1
            w2 -= lr * g2
    loss, norm, row = (torch.stack(v) for v in zip(*out, strict=True))
    return {"loss": loss, "norm": norm, "row": row, "smooth": smooth, "w1": w1.detach(), "w2": w2.detach()}


g = torch.Generator().manual_seed(9)
args = [torch.randn(s, generator=g) / 8 for s in ((8, 64), (64, 2), (12, 32, 8), (12, 32, 2))]
check.function(
    "train",
    [check.case(*args)],
    expect=reference,
    rtol=1e-4,
    atol=1e-6,
    budget={"syncs": 0},
    look="What keeps a graph alive",
    note="Keep the numbers as tensors; read them when the training is over.",
)
### END HIDDEN TESTS

# %% [markdown]
# ## From a loop over samples to one batch
#
# The dearest way to use small operators is a Python loop over samples: it multiplies the floor by the
# batch. Sometimes batching is a matter of one more dimension. Sometimes it takes a thought, and then it can
# save memory, too.
#
# **Exercise 2.4 — gradient norms, sample by sample** (★★★, 12 min)
#
# Private training (DP-SGD) and data selection want the length of *each sample's* gradient.
# `grad_norms_loop` runs one backward a sample. Write `grad_norms`: the same numbers, the number of
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
    b1: (width,), w2: (classes, width), b2: (classes,). Returns (batch,) in x's dtype, without a graph.
    Budget: 128 operators, whatever the batch, and the same number for every batch; peak live bytes at most 8
    arrays of (batch, k + width + classes) and 2 copies of the parameters.
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
import torch

from helpers import check


def reference(x, y, w1, b1, w2, b2):
    weights, norms = [t.detach().requires_grad_() for t in (w1, b1, w2, b2)], []
    for sample, label in zip(x, y, strict=True):
        out = weights[2] @ torch.tanh(weights[0] @ sample + weights[1]) + weights[3]
        grads = torch.autograd.grad(torch.nn.functional.cross_entropy(out, label), weights)
        norms.append(torch.sqrt(sum(g.pow(2).sum() for g in grads)))
    return torch.stack(norms)


def problem(batch, k, width, classes):
    g = torch.Generator().manual_seed(batch)
    weights = [torch.randn(s, generator=g) / 4 for s in ((width, k), width, (classes, width), classes)]
    return [torch.randn(batch, k, generator=g), torch.randint(classes, (batch,), generator=g), *weights]


def seen(reports):
    for r in reports:
        (batch, k), (classes, width) = r.args[0].shape, r.args[4].shape
        if r.counts["flops"] < 2 * batch * width * (k + classes):
            return "the counters did not see the matrix products; compute in this thread, with torch"
    return None


check.function(
    "grad_norms",
    [check.case(*problem(1, 5, 4, 3)), check.case(*problem(64, 12, 16, 5))],
    expect=reference,
    rtol=1e-4,
    atol=1e-6,
    budget={"operators": 128},
    verify=seen,
    look="From a loop over samples to one batch",
)

# %% hidden="per_sample" points=1
### BEGIN HIDDEN TESTS
import torch

from helpers import check


def reference(x, y, w1, b1, w2, b2):
    weights, norms = [t.detach().requires_grad_() for t in (w1, b1, w2, b2)], []
    for sample, label in zip(x, y, strict=True):
        out = weights[2] @ torch.tanh(weights[0] @ sample + weights[1]) + weights[3]
        grads = torch.autograd.grad(torch.nn.functional.cross_entropy(out, label), weights)
        norms.append(torch.sqrt(sum(g.pow(2).sum() for g in grads)))
    return torch.stack(norms)


def problem(batch, k, width, classes, dtype=torch.float32):
    g = torch.Generator().manual_seed(batch)
    weights = [
        (torch.randn(s, generator=g) / 4).to(dtype) for s in ((width, k), width, (classes, width), classes)
    ]
    return [
        torch.randn(batch, k, generator=g).to(dtype),
        torch.randint(classes, (batch,), generator=g),
        *weights,
    ]


def constant(reports):
    for r in reports:
        (batch, k), (classes, width) = r.args[0].shape, r.args[4].shape
        if r.counts["flops"] < 2 * batch * width * (k + classes):
            return "the counters did not see the matrix products; compute in this thread, with torch"
    numbers = [r.counts["operators"] for r in reports[:3]]
    if len(set(numbers)) > 1:
        return f"batches of 4, 20 and 96 took {numbers} operators; wanted the same number for each"
    return None


cases = [check.case(*problem(n, 7, 9, 4)) for n in (4, 20, 96)] + [
    check.case(*problem(10, 6, 5, 3, torch.float64))
]
check.function(
    "grad_norms",
    cases,
    expect=reference,
    rtol=1e-4,
    atol=1e-6,
    budget={"operators": 128},
    verify=constant,
    look="From a loop over samples to one batch",
)
### END HIDDEN TESTS

# %% hidden="per_sample" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers import check


def reference(x, y, w1, b1, w2, b2):
    weights, norms = [t.detach().requires_grad_() for t in (w1, b1, w2, b2)], []
    for sample, label in zip(x, y, strict=True):
        out = weights[2] @ torch.tanh(weights[0] @ sample + weights[1]) + weights[3]
        grads = torch.autograd.grad(torch.nn.functional.cross_entropy(out, label), weights)
        norms.append(torch.sqrt(sum(g.pow(2).sum() for g in grads)))
    return torch.stack(norms)


def problem(batch, k, width, classes):
    g = torch.Generator().manual_seed(batch)
    weights = [torch.randn(s, generator=g) / 4 for s in ((width, k), width, (classes, width), classes)]
    return [torch.randn(batch, k, generator=g), torch.randint(classes, (batch,), generator=g), *weights]


def limits(x, y, w1, b1, w2, b2):
    (batch, k), (classes, width) = x.shape, w2.shape
    arrays, parameters = batch * (k + width + classes), (k + 1) * width + (width + 1) * classes
    return {"operators": 128, "peak_live_bytes": 4 * (8 * arrays + 2 * parameters)}


def seen(reports):
    for r in reports:
        (batch, k), (classes, width) = r.args[0].shape, r.args[4].shape
        if r.counts["flops"] < 2 * batch * width * (k + classes):
            return "the counters did not see the matrix products; compute in this thread, with torch"
    return None


check.function(
    "grad_norms",
    [check.case(*problem(48, 96, 64, 10)), check.case(*problem(128, 64, 80, 12))],
    expect=reference,
    rtol=1e-4,
    atol=1e-6,
    budget=limits,
    verify=seen,
    look="From a loop over samples to one batch",
    note="A gradient of every sample is batch × width × k numbers. Its length needs far fewer.",
)
### END HIDDEN TESTS

# %% [markdown]
# ## On the real GPU
#
# The same function that ran on the simulated H100 in round 2, on a GPU if you have one. What to look for: a
# floor that is the same for all small sizes, a knee, and then a slope that the memory bandwidth sets. Where
# is your knee?

# %% experiment
from helpers import simulator


def add_by_size(device):
    gpu = simulator.RealGPU()
    return draw(times_on(gpu), gpu.evidence, "One operator on this GPU")


lesson.on_gpu(add_by_size, recording="02_add_by_size")

# %% experiment
cards = {name: simulate(name) for name in ("T4", "A100", "H100")}
rows = []
for name, gpu in cards.items():
    seconds = times_on(gpu)
    busy = next(n for n, s in zip(GPU_SIZES, seconds, strict=True) if s > 2 * seconds[0])
    rows.append((name, f"{seconds[0] * 1e6:.1f} µs", f"{seconds[-1] * 1e6:,.0f} µs", f"{busy:,}"))
lesson.table(
    rows,
    ["GPU", "one element", f"{GPU_SIZES[-1]:,} elements", "first size over twice the floor"],
    evidence="simulated (T4, A100, H100)",
    caption="the host's part is assumed to be the same for all three",
)

# %% [markdown]
# The floor belongs to the host and stays; the slope belongs to the card. Each faster generation moves the
# crossover to the right, and more code becomes bound by its operators. What to do when the count cannot be
# lowered: CUDA graphs (lesson 07), and a compiler (lesson 11).
#
# ## Sources on trial


# %% experiment
def share(kind, change_is=lambda c: True):
    picked = [o for (change, *_), o in outcomes.items() if change_is(change)]
    return sum(o == kind for o in picked), len(picked)


fewer = sum(has[0] < hand[0] for hand, has in fused.values())
leaner = sum(has[1] < hand[1] for hand, has in fused.values())
checked = [c for c in changes if "data" not in c and "numpy" not in c]
raised, tried = share("raises", lambda c: c in checked)
wrong, _ = share("wrong", lambda c: c in checked)
wrong_data, tried_data = share("wrong", lambda c: c not in checked)
graphs = len(programs) * len(points)
in_place = sum(ending_in_underscore(first).values())
lesson.verdicts(
    [
        {
            "id": "02-overhead",
            "source": "book-notes",
            "claim": "the overhead of calling operators is one of the main performance killers",
            "measured": f"x + y, simulated H100: below {gpu_elements:,} elements the time is the launch's, "
            "whatever the size; on this CPU the first picture of round 2 shows the same shape",
            "verdict": "holds when tensors are smaller than the crossover; above it, bytes or arithmetic",
            "experiment": "2 · Overhead against size",
        },
        {
            "id": "02-dag",
            "source": "book-notes",
            "claim": "the computation graph is a DAG: nodes are operators, edges are the flow of data",
            "measured": f"{cycles} cycles in {graphs} graphs; drawn: {forward.operators} operators made "
            f"{nodes} nodes, {leaves} of them leaves",
            "verdict": (
                "holds when nodes are read as the backwards of recorded operators and edges as the way of "
                "gradients; the data is saved in nodes"
                if not cycles
                else "refuted"
            ),
            "experiment": "4 · The graph",
        },
        {
            "id": "02-accumulate",
            "source": "book-notes",
            "claim": "gradients accumulate as numbers: branches, loops and recursion are no problem",
            "measured": f"{agree} of {graphs} gradients through data-dependent code equal finite differences; "
            f"a second backward doubled .grad in place: {doubled and stayed}",
            "verdict": "confirmed" if agree == graphs and doubled else "refuted",
            "experiment": "4 · The graph",
        },
        {
            "id": "02-in-place",
            "source": "book-notes",
            "claim": "backward operators are usually not in-place: in place easily gives wrong numbers",
            "measured": f"{in_place} of {first.operators} backward operators in place; once .grad exists "
            f"one add_ a parameter. {tried} changes in place: {raised} raised, {wrong} wrong; "
            f"through .data or NumPy {wrong_data} of {tried_data} wrong",
            "verdict": (
                "confirmed"
                if wrong
                else "holds when the version check is evaded (.data, NumPy); else it raises"
            )
            + f". Not in-place: {'so it is' if not in_place else 'not so'}, but for the adding into .grad",
            "experiment": "5 · In place, and what it breaks",
        },
        {
            "id": "02-fusion",
            "source": "guide",
            "claim": "fusing operators reduces kernel launches and memory access",
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
# | rule of thumb | stops being true |
# |---|---|
# | A small operator costs its call: count operators. | Above the crossover of round 2: count bytes. |
# | Use the operator that exists. | Where its name hides several: count it. |
# | In-place is safe on what nobody saved. | Through `.data` or NumPy nobody checks. |
# | Autograd does not mind `if` and `while`. | On a GPU each decision on a tensor's value is a wait. |
# | A composition saves what each step wants; a Function, what you choose. | Recomputing costs operators. |
# | Keep numbers of a step with `.detach()`. | A detached view still holds its whole storage: `.clone()` it. |
# | `inference_mode` for serving, `no_grad` inside training. | For large operators the two cost the same. |
#
# **Checklist for your own code**
# - [ ] `count(step)`: how many operators a step, and how many of them on small tensors?
# - [ ] Any Python loop over samples, heads, layers of equal shape, parameters?
# - [ ] Any norm, activation, loss or attention written out?
# - [ ] `saved_bytes` of your own activations and losses?
# - [ ] What outlives a step, and does it have a `grad_fn`? Is it a view of something large?
# - [ ] Evaluation under `inference_mode`? Any `.data`, `create_graph`, `retain_graph` left over?
#
# **Read on**: *Autograd mechanics* and *Extending PyTorch* in PyTorch's documentation; E. Yang, *PyTorch
# internals* and *Let's talk about the PyTorch dispatcher*; I. Goodfellow, *Efficient per-example gradient
# computations* (2015).
