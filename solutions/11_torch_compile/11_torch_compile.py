# %% [markdown]
# # 11 · torch.compile
#
# ## What does the compiler see?
#
# You write one line, [`torch.compile(model)`](https://docs.pytorch.org/docs/stable/generated/torch.compile.html). A
# compiler reads your Python, writes C++ (for a GPU: Triton, a language for kernels), and runs that in place of your
# Python. When this works, one line makes the program faster. When it does not work, the program is slow, and nearly always
# still right: the compiler goes back to Python, or it compiles again and again.
#
# **Time** 60 min, 19 of them for two exercises; *Further*: 93 min. **Before this** lessons 01 to 03 (views, operators,
# autograd, launches), 07 (CUDA graphs) and 10 (autocast, GradScaler).
#
# **Afterwards you can**
# - find every place where the compiler stopped, and write code in which it does not stop;
# - say which call will compile again, and why, and prevent it;
# - train a model with `torch.compile`, autocast and GradScaler together, and say how much faster it can get.
#
# The exercises need no C++ compiler.

# %% setup
import operator
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F

from helpers import compiling, lesson
from helpers.lessons.torch_compile import experiments

torch.set_num_threads(1)
lesson.start("11_torch_compile", evidence=["live (CPU)", "simulated (H100)", "recorded (H100)", "published"])

# %% [markdown]
# ## 1 · What is captured
#
# The first part of `torch.compile` is **Dynamo**. It reads Python's bytecode just before that runs, and takes out the tensor
# work as a **graph**. Two means are to keep the result right:
#
# - **Guards.** Dynamo writes down what it took for granted, and checks that before each call.
# - **Graph breaks.** Where Dynamo cannot go on, it compiles what it has, lets Python do the one thing, and begins a new
#   graph behind it. (Inside a loop it cannot: there it leaves this function to Python. Your own functions that it calls
#   are still compiled, PyTorch's layers are not.)
#
# `compiling.explain` shows both. At the right of each line stands where it went:


# %% experiment
def chatty(x, limit):
    norm = x.norm()
    if norm > limit:
        x = x * (limit / norm)
    print("clipped")
    return torch.relu(x) + 1


experiments.pieces(chatty, compiling.explain(chatty, torch.ones(4), 1.0))

# %% [markdown]
# Each graph is optimised alone. At each break tensors are written to memory and Python takes over; on a GPU the `if` also
# waits for the device (lesson 03).
#
# `torch.compile(f, fullgraph=True)` insists on one graph, and raises an error where it would break. It also captures more
# than plain `torch.compile`: a number or a size that only the data knows becomes a **symbol**, a name in the graph for a
# number that is not known yet. What does each call give?

# %% experiment
you = lesson.predict(
    {
        "x / x.max().item()": ...,
        "x / x.max().item(), fullgraph=True": ...,
        "x - x[x > 0].mean(), fullgraph=True": ...,
        "an if on a tensor, fullgraph=True": ...,
        "a print, fullgraph=True": ...,
    },
    choices=["1 graph", "2 graphs", "an error"],
)


# %% experiment
def branch(x):
    return x * 2 if x.sum() > 0 else x - 1


def read_out(x):
    return x / x.max().item()


def picked(x):
    return x - x[x > 0].mean()


def talks(x):
    y = x.sin()
    print("(talks)")
    return y.cos()


BREAKS = {"x / x.max().item()": read_out, "x - x[x > 0].mean()": picked}
BREAKS |= {"an if on a tensor": branch, "a print": talks}
captures = {name: experiments.captured(fn) for name, fn in BREAKS.items()}
gives = {name: plain for name, (plain, _, _) in captures.items()}
gives |= {f"{name}, fullgraph=True": full for name, (_, full, _) in captures.items()}
you.against(gives, experiments.breaks_table(captures), evidence="live (CPU)", what="gives")

# %% [markdown]
# With `fullgraph=True` the number is still read out, inside the graph. Plain `torch.compile` breaks at all four. So write the
# code in another way
# ([more about graph breaks](https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/compile/programming_model.graph_breaks_index.html)):
#
# | instead of | write |
# |---|---|
# | `if` on a tensor's numbers | `torch.where`, `clamp`, a factor that is 1 where nothing should change |
# | `.item()`, `float(t)` | keep the tensor of one number |
# | `x[mask]`, whose size depends on the data | keep the shape, and use `torch.where` with the mask |
# | `print` and logs inside | return the number, print outside |
#
# Two more ways: `torch.compiler.disable(f)` leaves a function to Python, and
# [`torch.cond`](https://docs.pytorch.org/docs/stable/generated/torch.cond.html) puts both branches of an `if` into the graph.

# %% [markdown]
# **Exercise 11.1 — one graph** (★★, 9 min)
#
# This function clips a vector, takes the mean of its larger numbers, and prints. It breaks the graph several
# times.
#
# ```python
# def centre(x, limit):
#     norm = x.norm().item()
#     if norm > limit:
#         x = x * (limit / norm)
#     kept = x[x.abs() > 0.5 * limit / len(x)]
#     print(f"norm {norm}, {len(kept)} kept")
#     return x - kept.mean()
# ```
#
# Write it so that plain `torch.compile` makes one graph of it, in which no size depends on the data. What it printed it now
# returns.
#
# <details><summary>Hint 1</summary>The factor is limit ÷ norm where the norm is too large and 1 elsewhere: the smaller of
# two numbers, no <code>if</code>.</details>
#
# <details><summary>Hint 2</summary>A mean over some numbers is a sum over all, with the others as 0, divided by how many. A
# mask has no <code>mean</code>, but a <code>sum</code>, which counts in int64.</details>
#
# <details><summary>The idea</summary><code>x * (limit / norm).clamp(max=1)</code>; <code>kept = x.abs() > …</code>;
# <code>torch.where(kept, x, 0).sum() / kept.sum()</code>.</details>


# %% exercise="centre"
def centre(x: torch.Tensor, limit: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The function above as one graph.

    x: (n,) float32 or float64, any strides, not all zero, left as it is; limit: > 0; at least one number is kept. n, dtype and
    limit are the same in all calls.
    Returns (result (n,), norm of x before clipping, 0-d float; number kept, 0-d int64).

    Compiled, it is one graph without breaks, which all calls use. It is made of torch's own operators (none that you
    registered), for which the compiler can write kernels.
    """
    ### BEGIN SOLUTION
    norm = x.norm()
    x = x * (limit / norm).clamp(max=1)
    kept = x.abs() > 0.5 * limit / len(x)
    many = kept.sum()
    return x - torch.where(kept, x, 0).sum() / many, norm, many
    ### END SOLUTION


# %% test="centre" points=1
import torch

from helpers import check
from helpers.lessons.torch_compile.exercises import check_centre

clipped, small = torch.tensor([3.0, 0.0, -4.0, 0.1]), torch.tensor([0.3, 0.0, -0.4, 0.1])
serves_both = "the first call is clipped, the second is not: one graph has to serve both."
check_centre(check.case((clipped, 1.0), (small, 1.0)), note=serves_both)

# %% hidden="centre" points=3
### BEGIN HIDDEN TESTS
import torch

from helpers import check
from helpers.lessons.torch_compile.exercises import check_centre

g = torch.Generator().manual_seed(11)
xs = [torch.randn(33, generator=g) * size for size in (0.05, 3.0, 1.0)] + [torch.ones(33)]
xs[0][0] += 2.2  # not clipped, and one is kept
check_centre(check.case(*[(x, 2.5) for x in xs]))
edge = torch.tensor([[0.125, 0.5, 0.25, -0.125], [-3.0, 0.0, 1.0, 0.5]], dtype=torch.float64)  # > is not >=
check_centre(check.case(*[(x, 1.0) for x in edge.repeat_interleave(2, 1)[:, ::2]]))
tiny = torch.linspace(1.0, 2.0, 24, dtype=torch.float64).reshape(3, 8) * 1e-5  # as gradients are
check_centre(check.case(*[(x, 2e-5) for x in tiny]))
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · What is assumed
#
# A compiled **version** of a function is right only where its guards hold: dtype, device, strides, sizes, the values of
# some Python numbers, gradient mode. Where no version fits, Dynamo compiles another, up to {{limit}} of one function
# ([`recompile_limit`](https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/compile/programming_model.recompilation.html)).
#
# A function gets `x` of shape (n, 4), and n changes: 3, 7, 1, 12, 5, … (14 calls, 12 sizes, one of them 1).
# By default a size becomes a symbol when it has changed; with `dynamic=True` at once, with `dynamic=False` never. (A size of 1
# is never one, since a dimension of 1 broadcasts.) How many compilations are there? And how do you learn that the limit was
# reached?

# %% experiment
you = lesson.predict(
    {
        "torch.compile(f)": ...,
        "dynamic=True": ...,
        "dynamic=False": ...,
        "at the limit, torch.compile(f) gives": ...,
        "at the limit, fullgraph=True gives": ...,
    },
    choices={
        "torch.compile(f)": [1, 2, 3, 8, 12],
        "dynamic=True": [1, 2, 3, 8, 12],
        "dynamic=False": [1, 2, 3, 8, 12],
        "at the limit, torch.compile(f) gives": ["nothing", "a warning", "an error"],
        "at the limit, fullgraph=True gives": ["nothing", "a warning", "an error"],
    },
)


# %% experiment
def scaled(x, k=2.0):
    return torch.relu(x) * k


SIZES = [3, 7, 1, 12, 5, 8, 2, 9, 4, 3, 6, 12, 10, 13]
SETTINGS = {"dynamic=False": False, "torch.compile(f)": None, "dynamic=True": True}
streams = {name: experiments.stream(scaled, SIZES, dynamic) for name, dynamic in SETTINGS.items()}
measured = {name: stream.after[-1] for name, stream in streams.items()}
measured["at the limit, torch.compile(f) gives"], warned = experiments.at_the_limit(scaled)
measured["at the limit, fullgraph=True gives"], raised = experiments.at_the_limit(scaled, fullgraph=True)
lesson.keep(limit=max(streams["dynamic=False"].after), raised=raised.partition(":")[0])
why = experiments.reasons({name: stream.report for name, stream in streams.items()})
you.against(measured, experiments.compilations(streams), why, evidence="live (CPU)", what="measured")

# %% [markdown]
# - **By default** the first version holds for the first size only. The version with the symbol serves every size *from 2
#   up*. Size 1 gets its own.
# - **`dynamic=True`** begins with the symbol, and only sizes 1 and 0 add a version (and a first size equal to another
#   dimension's: they share a symbol). For one dimension only:
#   [`torch._dynamo.mark_dynamic(x, 0)`](https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/torch.compiler_dynamic_shapes.html).
# - **`dynamic=False`** compiles for each size, up to the limit. From then on new sizes run **as plain Python**.
#
# At the limit plain `torch.compile` prints one warning. With `fullgraph=True` the call raises `{{raised}}`.
#
# What else changes from call to call? Twelve calls, each with another number k: as an argument (an int factor, an int in
# `range(k)`, a float, a 0-d tensor), or as an int attribute of a module. How many compilations?

# %% experiment
you = lesson.predict(
    {
        "an int factor": ...,
        "an int in range(k)": ...,
        "a float": ...,
        "a 0-d tensor": ...,
        "an int attribute": ...,
    },
    choices=[1, 2, 8, 12],
)


# %% experiment
def grown(x, k):
    for _ in range(k):
        x = x + 1
    return x


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0

    def forward(self, x):
        self.step += 1
        return x * self.step


twelve = experiments.twelve  # compiles a function, makes the twelve calls, and reports
x, ks = torch.ones(3), range(2, 14)
reports = {
    "an int factor": twelve(scaled, [(x, k) for k in ks]),
    "an int in range(k)": twelve(grown, [(x, k) for k in ks]),
    "a float": twelve(scaled, [(x, k / 7) for k in ks]),
    "a 0-d tensor": twelve(scaled, [(x, torch.tensor(k)) for k in ks]),
    "an int attribute": twelve(Counter(), [(x,)] * 12),
}
compilations = {what: w.counts()["compilations"] for what, w in reports.items()}
you.against(compilations, experiments.reasons(reports), evidence="live (CPU)", what="compilations")

# %% [markdown]
# - A number that comes as an **argument** is guarded by its value at first. When it changes, the compiler makes it a symbol,
#   unless Python must know its value. A factor may be a symbol. `range(k)` must know k to unroll its loop, so each k needs a
#   version of its own.
# - An int **attribute of a module** stays guarded by its value (unless you set
#   `torch._dynamo.config.allow_unspec_int_on_nn_module`). Pass such a count as an argument instead. A buffer that `forward`
#   counts up in place (`self.steps.add_(1)`) and computes with is no way out: compiled by PyTorch 2.13, backward reads the
#   count of the next step, and nothing warns.

# %% [markdown]
# **Exercise 11.2 — explain the recompiles** (★★, 10 min)
#
# Be the compiler's cache. For a list of sizes, say at each call whether a version is reused, compiled (and for which sizes
# it will then hold), or given up.
#
# <details><summary>Hint 1</summary>Keep the list of versions compiled so far, each as the guard it holds. Look whether any
# of them (not only the newest) fits.</details>
#
# <details><summary>Hint 2</summary>With <code>dynamic=None</code>: a size other than 1 gets the symbol as soon as any version
# was compiled before, since then the sizes have been seen to differ.</details>
#
# <details><summary>The idea</summary>fits: <code>n == k</code> if n is k; <code>2 <= n</code> if n ≥ 2. No fit: at the limit
# "python"; else n is 1, or dynamic is False, or it is the first with None: the exact guard; else the symbol.</details>


# %% exercise="cache"
def cache(sizes: list[int], dynamic: bool | None = None, limit: int = 8) -> list[str]:
    """What torch.compile(f, dynamic=dynamic) does at each call of f(x), x of shape (n, 1000), for n in sizes.

    sizes: each from 1 to 999, perhaps none. limit: 1 or more, the most compiled versions of f that are kept
        (torch._dynamo.config.recompile_limit).
    One word per call: "reuse"; "n == 7" if it compiles a version that holds for 7 only, "2 <= n" if for all from 2 up;
    "python" if it runs uncompiled. By reasoning: the compiler is not asked.
    """
    ### BEGIN SOLUTION
    versions: list[str] = []
    words: list[str] = []
    for n in sizes:
        if f"n == {n}" in versions or (n >= 2 and "2 <= n" in versions):
            words.append("reuse")
        elif len(versions) == limit:
            words.append("python")
        else:
            exact = n == 1 or dynamic is False or (dynamic is None and not versions)
            versions.append(f"n == {n}" if exact else "2 <= n")
            words.append(versions[-1])
    return words
    ### END SOLUTION


# %% test="cache" points=1
from helpers import check
from helpers.lessons.torch_compile.exercises import check_cache

check_cache(
    check.case([7, 7, 9, 4, 7], None, 8),  # sizes, dynamic, limit
    check.case([3, 7, 1, 12, 1], None, 8),
    check.case([1, 7, 1, 5], None, 8),
    check.case([5, 1, 6], True, 8),
    check.case([3, 7, 1], None, 2),
    check.case([2, 3, 4, 5, 3, 5], False, 3),
)

# %% hidden="cache" points=3
### BEGIN HIDDEN TESTS
from helpers import check
from helpers.lessons.torch_compile.exercises import check_cache

check_cache(
    check.case([7, 1, 2, 3, 7], None, 8),
    check.case([1, 2, 3, 4, 1], None, 8),
    check.case([1, 1, 5, 6], None, 4),
    check.case([9, 8, 1, 1], True, 8),
    check.case([1, 9, 8, 1], True, 8),
    check.case([4, 1, 6, 9, 1, 6, 8], False, 4),
    check.case([2, 3, 4, 2, 4, 5], False, 2),
    check.case([8, 5, 1, 6, 1], None, 2),
    check.case([], None, 8),
    check.case([3, 3, 1, 3, 5], None, 1),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · The kernel, read
#
# Dynamo's graph goes to a **backend**. The default backend is **Inductor**. Inductor writes loops over memory. A loop,
# together with all the loops inside it, is called a **loop nest**. `compiling.kernels` shows the code, here for one
# plain CPU thread so that it can be read. (4096 is 64 · 64; a `tmp` is a register, an `out_ptr` is memory.)

# %% experiment
print(compiling.kernels(lambda x: torch.relu(x * 2 + 1), torch.rand(64, 64)).readable)

# %% [markdown]
# Three operators became one loop nest: x is read once, and the result is written once. How many nests does Inductor write
# for these? (What a library does inside is not counted.)


# %% experiment
def rescale(x):
    x = x - x.min()
    return x / x.max()


you = lesson.predict({"rescale(x)": ..., "x.softmax(-1)": ..., "relu(x @ x.t())": ...}, choices=[1, 2, 3, 4])

# %% experiment
FUNCTIONS = {
    "rescale(x)": rescale,
    "x.softmax(-1)": lambda x: x.softmax(-1),
    "relu(x @ x.t())": lambda x: torch.relu(x @ x.t()),
}
written = {name: compiling.kernels(fn, torch.rand(64, 64)) for name, fn in FUNCTIONS.items()}
code = experiments.Text(written["rescale(x)"].readable)
nests = {name: k.loops for name, k in written.items()}
you.against(nests, experiments.nests_table(written), code, evidence="live (CPU)", what="loop nests")

# %% [markdown]
# Below the tables stands the code of `rescale`. The first nest finds the minimum. The second subtracts it *and* finds the
# maximum. The third subtracts again, and divides. The rules of **fusion**:
#
# - Pointwise operators share a nest, also with the reduction that takes their result. What passes between them stays in
#   registers.
# - What needs a reduction's result must wait until the loop over the reduced numbers has ended. In `rescale` that loop
#   covers all of x. In a softmax it covers only one row.
# - Products of two matrices go to a library (by default: the mode `max-autotune` may write kernels of its own for them).
#
# So fusion saves memory traffic, and leaves products as they are. How much can that give? Take a Transformer layer of width
# 1,024 with 8 sequences of 1,024 tokens, without dropout, forward and backward, on the simulated H100. Products and attention
# take a share of the GPU's time. If all the rest cost nothing, the layer would be 1 ÷ share times as fast:

# %% experiment
bound = {
    "float32": experiments.faster_at_most(torch.float32),  # without TF32
    "bfloat16": experiments.faster_at_most(torch.bfloat16),
}
for precision, times in bound.items():
    print(f"{precision:8}  share: {1 / times:.2f}, so at most {times:.2f} times as fast")

# %% [markdown]
# Now the same layer on a real H100: *compiled* plainly; *eager, CUDA graph*, one graph of the whole step (lesson 07);
# *compiled, CUDA graph*, in the mode *reduce-overhead*. How many times as fast as eager is each?

# %% experiment
you = lesson.predict(
    {
        "float32, compiled": ...,
        "bfloat16, eager, CUDA graph": ...,
        "bfloat16, compiled": ...,
        "bfloat16, compiled, CUDA graph": ...,
    },
    choices=["less than 0.8 times", "0.8 to 1.2 times", "1.2 to 1.6 times", "more than 1.6 times"],
)

# %% experiment
layer = experiments.recorded_layer()
ms, few_ms = layer.bfloat16(8192), layer.bfloat16(64)
lesson.keep(eager=ms["eager"], eager_graph=ms["eager, CUDA graph"], compiled_graph=ms["compiled, CUDA graph"])
lesson.keep(few_eager=few_ms["eager"], few_graph=few_ms["eager, CUDA graph"])
lesson.keep(
    fused=layer.fused("bfloat16"), few_times=few_ms["compiled, CUDA graph"] / few_ms["eager, CUDA graph"]
)
you.against(layer.answers(you), layer.table(), evidence=layer.evidence, what="times as fast")

# %% [markdown]
# In float32 there was little to gain. In bfloat16:
#
# - **Launches.** Eager in a graph runs the same kernels, launched all at once: {{eager:.1f}} ms become {{eager_graph:.1f}}. For
#   the rest of the step the GPU waited for the CPU. Compiling alone does not end that. (Another host waits longer, or
#   less.)
# - **Fusion.** From one graph to the other {{eager_graph:.1f}} ms become {{compiled_graph:.1f}}: {{fused:.2f}} times as fast. The
#   bound holds: it is for the GPU's time only.
# - **64 tokens** are 128 times fewer. Eager still takes {{few_eager:.1f}} ms, in a graph {{few_graph:.2f}}.
#   *reduce-overhead* takes {{few_times:.0f}} times as long as that. It records forward and backward as graphs of their own;
#   around them guards, autograd and Python still run.

# %% [markdown]
# ## 4 · Training, and what it costs
#
# Training adds a backward pass, and a change to validation. `fast = torch.compile(model)` trains for one epoch of 40 batches.
# All batches have 64 rows, but the last has 20. Then comes validation on 20 rows: first `model.eval()` alone, then
# `torch.no_grad()` too. The model has no dropout. How many **new** graphs does Dynamo capture in each part? (The backward pass is
# made from a graph, and is not counted.)

# %% experiment
you = lesson.predict(
    {"the first 39 batches": ..., "the last batch": ..., "model.eval()": ..., "torch.no_grad() too": ...},
    choices=[0, 1, 2, 39],
)


# %% experiment
def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


model, optimizer, batches = experiments.classifier()
with compiling.watch("eager"):
    fast, after = torch.compile(model), [graphs()]
    for part in (batches[:39], batches[39:]):
        for x, y in part:
            F.cross_entropy(fast(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        after.append(graphs())
    model.eval()
    fast(x)
    after.append(graphs())
    with torch.no_grad():
        fast(x)
    after.append(graphs())
new = [b - a for a, b in pairwise(after)]
you.against(dict(zip(you, new)), evidence="live (CPU)", what="new graphs")

# %% [markdown]
# The first change of size brings a graph, which then serves all sizes from 2 up (section 2). `drop_last=True` in the DataLoader
# spares you that one. `model.eval()` brings none: no layer here asks whether it trains, as dropout would.
# Every version guards the gradient mode, so validation without gradients gets a graph of its own.
#
# Now `torch.compile`, autocast and GradScaler (lesson 10) together. Compile the model alone. Autocast stands around the
# forward pass and the loss, as without compiling. Scaler and optimizer stay outside. The backend
# `aot_eager` captures forward and backward as Inductor does, and writes no C++, which is quick. At home leave it out.


# %% experiment
def train(mixed):
    model, optimizer, batches = experiments.classifier()
    fast = torch.compile(model, backend="aot_eager") if mixed else model
    scaler = torch.amp.GradScaler("cpu", enabled=mixed)  # on a GPU: "cuda"
    losses = []
    for x, y in batches:
        with torch.autocast("cpu", dtype=torch.float16, enabled=mixed):
            loss = F.cross_entropy(fast(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses)


runs = {"float32": lambda: train(False), "autocast float16, scaler, compiled": lambda: train(True)}
experiments.trained(runs)

# %% [markdown]
# Both learn alike. The two compilations are those of the prediction: 64 rows, and 20.
#
# **What does compiling cost?** Seconds: with empty caches Inductor also calls a C++ compiler (Triton on a GPU). With
# its cache on disk most of that is spared.

# %% experiment tags=["nbval-ignore-output"]
experiments.cost(lambda x: torch.relu(x.sin() * x.cos() + x.exp().sqrt()), torch.rand(2**20))

# %% [markdown]
# ## The running example
#
# What does the compiler see in the script? First the graph breaks of `forward` and `clip`, in the plain script and in that of
# lesson 10. Then the code that Inductor writes for two formulas of the plain script, GELU
# (`activation`) and attention.

# %% experiment
from helpers import count, running_example
from helpers.running_example import plain as plain_script

tokens = torch.zeros(8, 64, dtype=torch.int64)
for name, script in {"plain": running_example.after("00"), "lesson 10": running_example.after("10")}.items():
    model = plain_script.GPT(script, running_example.SMALL)
    forward = compiling.explain(script.forward, model, tokens, tokens)
    script.forward(model, tokens, tokens)[1].backward()
    clip = compiling.explain(script.clip, model)
    print(f"{name:9}  graph breaks in forward: {len(forward.breaks)}, in clip: {len(clip.breaks)}")

x, q = torch.randn(8, 64, 512), torch.randn(8, 4, 64, 32)
for fn, args in ((plain_script.activation, (x,)), (plain_script.attention, (q, q, q))):
    kernels = compiling.kernels(fn, *args)
    print(f"{fn.__name__:10}  operators: {count(fn, *args).operators}, loop nests: {kernels.loops}, "
          f"products left to a library: {len(kernels.extern)}")  # fmt: skip

# %% [markdown]
# The plain clipping breaks the graph at `if length > most`: the compiler cannot know which way it goes. Lesson 03 took
# that line out so that the CPU need not wait, and that serves the compiler too. GELU's operators become one loop nest: the
# compiler finds by itself the fusion that lesson 02 chose by hand. Attention's loops are fused too. But the compiler did not
# find the other algorithm, that of `scaled_dot_product_attention`, so lesson 02's line stays. There is no scoreboard here:
# the simulated GPU cannot run compiled code. On a GPU, write `model.compile()` into the script's `prepare` and measure.

# %% [markdown]
# ## Your own script
#
# First look for breaks, then for recompiles. These lines count the breaks, say where they are, and count the graphs that an
# epoch compiles. **A break in a loop has no line, and may not be counted at all.** If your forward has a loop, ask
# `compiling.explain(model, x)` (`from helpers import compiling`) or `TORCH_LOGS=graph_breaks`, which name that line.
# `0 graphs, -1 breaks` is an alarm: nothing is compiled.
#
# Without breaks, two or three graphs are normal. A number that grows with the batches is not. Mend one cause, then count
# again: a cause can hide behind another. When the counts are right, leave `backend="eager"` out, and time a step, compiled
# and not, with `%%bench` (`%load_ext helpers`).

# %% experiment
from helpers.own_script import toy

model, optimizer, loss_fn, loader, device, step = toy()  # at home: your own

import torch._dynamo as dynamo

x, y = (part.to(device) for part in next(iter(loader)))
explanation = dynamo.explain(model)(x)
print(explanation.graph_count, "graphs,", explanation.graph_break_count, "breaks")
for stop in explanation.break_reasons:
    print(stop.user_stack[-1], stop.reason.splitlines()[0])

dynamo.utils.counters.clear()
fast = torch.compile(model, backend="eager")
for x, y in loader:
    loss_fn(fast(x.to(device)), y.to(device)).backward()
optimizer.zero_grad()
print("graphs compiled:", dynamo.utils.counters["stats"]["unique_graphs"])

# %% [markdown]
# One graph, no break, no loop: the toy is ready. A last batch that is smaller would make `graphs compiled` 2.
#
# On the command line: the reasons in words, and a report to click through
# ([tlparse](https://github.com/meta-pytorch/tlparse)).
#
# ```bash
# TORCH_LOGS=graph_breaks,recompiles python train.py
# TORCH_TRACE=/tmp/trace python train.py
# tlparse "$(ls -t /tmp/trace/*.log | head -1)"  # one log, not the folder: each process writes its own
# ```

# %% [markdown]
# ## On the real GPU
#
# A chain of six operators for few and for many numbers, and a layer norm with a GELU behind it:

# %% experiment tags=["nbval-ignore-output"]
experiments.fusion()

# %% [markdown]
# On the H100 each becomes **one** kernel. With many numbers that saves traffic: six operators had taken nearly six times as
# long. With 1,024 numbers it gains nothing: there the time is the CPU's, and one call of compiled code with its guards costs
# the CPU as much as six operators.

# %% [markdown]
# ## Sources on trial

# %% experiment
from helpers.lessons.torch_compile import claims

lesson.verdicts(
    claims.on_trial(captures, bound, layer),
    evidence="live (CPU) · simulated (H100) · recorded (H100) · published",
    shown=("11-300-percent", "11-fullgraph"),
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Give `fullgraph=True` to what you compile on purpose. | It captures numbers and sizes read from data, which still make a GPU wait. It raises at the recompile limit. |
# | Sizes that change: `dynamic=True`, or let Dynamo find out. | Size 1 is a version of its own. |
# | Numbers that come as arguments may change. | `range(k)` and an int attribute of a module: a version for each value, {{limit}} at most. |
# | Fusion saves bytes, not products. | The faster the products (bfloat16), the larger the share of the rest. |
# | To begin with, compile the model alone: scaler, optimizer and logging stay outside. | An optimizer's step can be compiled too. |
# | Compiling pays. | Not in a short run: it takes seconds, and later calls must earn them. Where the GPU waits, a graph of the whole step gains more. |
#
# **Read on**: PyTorch's [programming model of torch.compile](https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/compile/programming_model.html);
# J. Ansel and others, [PyTorch 2](https://doi.org/10.1145/3620665.3640366) (2024).

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# ### Twenty shapes, two compilations (24 min)
#
# A **view** brings its base along: `x._base` is the tensor that x is a view of, and Dynamo guards the base's sizes too. The
# table shows rows of shape (n · l, 4) in twelve sizes, with `dynamic=True`: as copies, and as views of batches (n, l, 4).


# %% experiment
rows = experiments.rows_of_batches()
copies, views = [(x.clone(),) for x in rows], [(x,) for x in rows]
reports = {"copies": twelve(scaled, copies, dynamic=True), "views": twelve(scaled, views, dynamic=True)}
experiments.reasons(reports, most=3)

# %% [markdown]
# The copies have one size that changes. The views bring n and l back, and with them the versions for size 1.

# %% [markdown]
# **Exercise 11.3 — twenty shapes, two compilations** (★★, 15 min)
#
# A service gets tensors of shape (n, l, d). n and l differ at each call and are sometimes 1. The model works on each
# row of d numbers by itself. Serve the tensors with at most two compilations, and without much padding. One trap is
# not the point here, so we name it: a view brings its base along, as above. After `.detach()`, as the last thing
# before the call, a view counts as no view.
#
# <details><summary>Hint 1</summary>With <code>dynamic=True</code> a size of 1 still has versions of its own: n = 1 with l ≥ 2, n ≥ 2 with
# l = 1, both, neither. The model does not care how its rows are arranged in n and l. You may.</details>
#
# <details><summary>Hint 2</summary>Flatten to (n · l, d), which has one size that changes; only n · l = 1 takes a second version. If it
# compiles four times all the same, read the reasons: is there a view? A stride that is not always d?</details>
#
# <details><summary>The idea</summary>The rows must lie one after the other: <code>.contiguous()</code> copies them
# only if they do not. And they must not be a view. <code>.detach()</code> copies
# nothing: what it gives counts as no view (there are no gradients here), if it comes <i>after</i> the reshape: a
# reshape after it makes a view again. Call the model compiled with <code>dynamic=True</code>; give the result its
# shape back.</details>


# %% exercise="serve"
def serve(
    model: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function answer(x) that gives model(x), compiled.

    model: takes (…, d), any number of leading dimensions, to (…, e), each row of d by itself.
    answer: takes x (n, l, d), n, l ≥ 1, any strides, not requiring grad; gives (n, l, e), which later calls leave as it is.

    Over twenty shapes, in the first of which n · l is not d: at most 2 compilations, the model never runs uncompiled, and
    all its compiled runs together take in at most 1.5 times as many rows as came (padding counts). The answers are made by those runs.
    """
    ### BEGIN SOLUTION
    compiled = torch.compile(model, dynamic=True, fullgraph=True)

    def answer(x):
        # contiguous: one stride for all; detached last: no view, and so no guards on the sizes of its base
        rows = x.reshape(-1, x.shape[-1]).contiguous().detach()
        return compiled(rows).reshape(*x.shape[:-1], -1)

    return answer
    ### END SOLUTION


# %% test="serve" points=1
from helpers.lessons.torch_compile.exercises import check_serve

shapes = [(4, 3), (2, 5), (1, 7), (3, 1), (1, 1), (5, 4), (2, 9), (6, 2), (3, 8), (1, 5)]
shapes += [(7, 3), (2, 2), (8, 1), (4, 6), (5, 7), (9, 2), (3, 3), (2, 6), (10, 4), (6, 5)]
check_serve(shapes)

# %% hidden="serve" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.torch_compile.exercises import check_serve

shapes = [(1, 1), (1, 6), (11, 1), (2, 2), (13, 4), (1, 2), (5, 5), (3, 17), (2, 1), (7, 7)]
shapes += [(n, 23 - n) for n in range(2, 12)]
few = [(3, 3), (1, 3), (1, 5), (5, 1), (1, 17), (2, 5), (9, 1), (1, 10), (2, 1), (9, 2)]  # 9, 17: 2^k + 1
few += [(1, 1), (3, 1), (1, 9), (17, 1), (1, 18), (5, 2), (10, 1), (1, 2), (18, 1), (2, 9)]
check_serve(shapes, few, [(1 + (7 * i) % 13, 1 + (5 * i) % 11) for i in range(1, 21)])
### END HIDDEN TESTS

# %% [markdown]
# ### What is made of it (34 min)
#
# A **backend** is a function. It takes a graph and example inputs, and returns something callable. This one shows what it is
# given and runs it as it is:


# %% experiment
def gated(a, b, c):
    return (a * b + c).relu().sum()


def show(graph, inputs):
    print(graph.graph)
    return graph.forward


leaves = [torch.ones(3, requires_grad=True) for _ in range(3)]
with compiling.watch():
    torch.compile(gated, backend=show)(*leaves)

# %% [markdown]
# Each line is a [`Node`](https://docs.pytorch.org/docs/stable/fx.html): its name, what kind it is, its `target` and its `args`, the
# nodes that it reads (or plain numbers). `node.users` are the nodes that read it, and `num_users` counts them. A **call_function**
# calls a function, `operator.mul` for `*`. The target of a **call_method** is the method's name, a string. A backend may change the
# graph: `graph.graph.inserting_before(node)`, `call_function(target, args)`, `node.replace_all_uses_with(new)`, `erase_node(node)`, then `graph.recompile()`.
#
# Inductor works in two steps. First **AOTAutograd** runs the graph with symbols and traces the *backward* pass too, ahead of
# time. Both graphs come out in ATen's operators, without operators in place. Then Inductor writes the loops.

# %% experiment
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

parts = []


def boxed(graph, inputs):
    parts.append(graph.code)
    return make_boxed_func(graph.forward)  # AOTAutograd wants a function that takes its inputs as one list


with compiling.watch():
    torch.compile(gated, backend=aot_autograd(fw_compiler=boxed, bw_compiler=boxed))(*leaves).backward()
for name, code in zip(("forward", "backward"), parts):
    print(name, experiments.lines_of(code), sep="\n")

# %% [markdown]
# `primals_…` are what the forward graph takes in, here a, b and c. `tangents_1` is the gradient of the result. The forward
# graph returns more than the sum: `primals_1`, `primals_2` and `detach` (the result of relu) are **saved for backward**, and
# the backward graph takes them in. There `expand` is the gradient of the sum, `threshold_backward` that of relu, and two
# products remain. Inductor gets the two graphs one by one, and fuses within each.

# %% [markdown]
# **Exercise 11.4 — a backend of your own** (★★★, 20 min)
#
# ATen has `torch.addcmul(c, a, b)` for c + a · b: one operator where there were two, and no product in between. Write
# a backend that finds the pattern and replaces it. (Inductor needs no such help: it fuses a product and a sum by itself. The
# pattern is small enough to learn on. Patterns that pay are ones that Inductor cannot know, such as a library's kernel for
# several operators.)
#
# <details><summary>Hint 1</summary>Walk over <code>graph.graph.nodes</code>. An addition is <code>operator.add</code> or
# <code>torch.add</code> (call_function) or the method <code>"add"</code> (call_method). Which of its two arguments is a
# product, and is everything a Node (not the number 2)?</details>
#
# <details><summary>Hint 2</summary>The product must have no other user, or it has to be computed anyway; <code>y + y</code> is one user
# that reads it twice. And an addition with <code>alpha=</code>
# is not c + a · b.</details>
#
# <details><summary>The idea</summary><code>with graph.graph.inserting_before(add): new =
# graph.graph.call_function(torch.addcmul, (c, a, b))</code>, <code>add.replace_all_uses_with(new)</code>, erase both, then
# <code>graph.recompile()</code> and return <code>graph.forward</code>.</details>


# %% exercise="addcmul_backend"
def addcmul_backend(graph: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable:
    """A backend for torch.compile: each a * b + c and c + a * b of three tensors becomes torch.addcmul(c, a, b).

    graph: as Dynamo captures it; products and sums come as ``*`` and ``+`` (operator.mul, operator.add), torch.mul and
        torch.add, and the methods mul and add, their operands by position, not by name. It may be changed. Its inputs are tensors, all tensors in it have one dtype, and
        sizes are static; no tensor is changed in place (one that was, between product and sum, would be read too late).
    Returns a callable: the graph's inputs → a tuple of its outputs, the same numbers.

    Not replaced: differences (c − a · b), products that have another use, numbers in place of tensors, additions with alpha, a product added to itself.
    Of (a * b) + (c * d) one of the products is replaced. All other operators stay.
    """
    ### BEGIN SOLUTION
    kinds = {"mul": (operator.mul, torch.mul, "mul"), "add": (operator.add, torch.add, "add")}

    def plain(node, kind):
        return (
            isinstance(node, torch.fx.Node)
            and node.target in kinds[kind]
            and not node.kwargs
            and len(node.args) == 2
            and all(isinstance(a, torch.fx.Node) for a in node.args)
        )

    for add in list(graph.graph.nodes):
        if not plain(add, "add"):
            continue
        for product, c in (add.args, add.args[::-1]):
            if plain(product, "mul") and len(product.users) == 1 and product is not c:
                with graph.graph.inserting_before(add):
                    fused = graph.graph.call_function(torch.addcmul, (c, *product.args))
                add.replace_all_uses_with(fused)
                graph.graph.erase_node(add)
                graph.graph.erase_node(product)
                break
    graph.recompile()
    return graph.forward
    ### END SOLUTION


# %% test="addcmul_backend" points=1
from helpers.lessons.torch_compile.exercises import check_addcmul_backend

once, never = (1, 1), (2, 0)  # operators, of which addcmul
check_addcmul_backend({"a * b + c": once, "c + a * b": once, "torch.add(torch.mul(a, b), c)": once})
check_addcmul_backend({"a.mul(b).add(c)": once, "a * b + c * d": (2, 1), "(a * b + c) * d + e": (2, 2)})
check_addcmul_backend({"(lambda y: (y + c, y))(a * b)": never, "(lambda y: y + y)(a * b)": never})
check_addcmul_backend({"a * 2 + b * c": (2, 1), "a * b + 2": never, "torch.add(c, a * b, alpha=3)": never})

# %% hidden="addcmul_backend" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.torch_compile.exercises import check_addcmul_backend

check_addcmul_backend(
    {
        "row * column + c": (1, 1),
        "row + a * b": (1, 1),
        "(lambda y: y.relu() + (y + c))(a * b)": (4, 0),
        "(lambda y: y + y)(a * b)": (2, 0),
        "d + (((a * b + c) * b + c) * b + c).mul(e)": (4, 4),
        "(lambda y: (y + c * d, y))(a * b)": (
            2,
            1,
        ),  # the left product has another use, the right one has none
        "a * b - c": (2, 0),
        "a * b + 1": (2, 0),
        "2 * a + b": (2, 0),
        "a * 2 + b": (2, 0),
        "2 + a * b": (2, 0),
        "torch.add(c, torch.mul(a, b).sigmoid() * d).add(e * e)": (4, 2),
        "(a * b).add(c, alpha=0.5)": (2, 0),
        "a * b + c.relu()": (2, 1),  # c.relu() comes after the product
        "torch.add(c.mul(d).sigmoid(), a * b) * a": (4, 1),
        "c - a * b": (2, 0),
        "c.sub(a * b) + a * a": (3, 1),
        "a * a + a": (1, 1),
        "(lambda z: (z, z * z))(b * a.sum() + c)": (3, 1),
    }
)
### END HIDDEN TESTS

# %% [markdown]
# ### Fewer walks (20 min)
#
# On a GPU (Triton) each nest is, roughly, one kernel, and fusion saves bytes. Here is a chain of six operators on 4 million
# numbers, and one kernel that moves what the fused kernel would move (x in, y out):

# %% experiment
six = experiments.chain()
lesson.keep(fewer_bytes=six.bytes, less_time=six.time)
six.picture

# %% [markdown]
# The chain moves {{fewer_bytes:.0f}} times as many bytes, and takes {{less_time:.1f}} times as long. The time falls
# less than the bytes, because both pay the launch of a first kernel, and the synchronize at the end. (With 67 million
# numbers, on the real GPU above, these weigh less: nearly six times.)
#
# A pass through memory is called a **walk**. Two reductions share a walk if neither waits for the other. In `rescale` the second waits for the first only because of the
# way it is written. And softmax? Its loops:

# %% experiment
print(written["x.softmax(-1)"].readable)

# %% [markdown]
# Three inner loops stand in one nest. Two of them walk a row of x. The third walks a buffer of one row, where the second has
# stored the exponentials.
#
# How many nests does Inductor write for this one?


# %% experiment
def plain_prepare(x):
    x = x - x.min()
    x = x / x.max()
    y = torch.cat([F.silu(half) * 2 for half in x.chunk(2)])
    return y + torch.cat([y[:, 1:], y[:, :1]], 1)


many = compiling.kernels(plain_prepare, torch.rand(64, 64)).loops
lesson.keep(nests=many)
print("loop nests:", many)

# %% [markdown]
# Each part that `torch.cat` joins has a nest of its own. So it is on the CPU. On a GPU up to eight such parts usually share a
# kernel (`torch._inductor.config.max_pointwise_cat_inputs`).

# %% [markdown]
# **Exercise 11.5 — fewer walks** (★★, 10 min)
#
# `plain_prepare` takes {{nests}} loop nests (`print(compiling.kernels(plain_prepare, x).readable)` shows them). Write the
# same numbers in three, or in two.
#
# <details><summary>Hint 1</summary>One nest for the two reductions together, one that makes y, one for its sum with its
# neighbour. (Two are possible too: compute the neighbour again from x. That is more arithmetic, and one walk less.)</details>
#
# <details><summary>Hint 2</summary>The largest of x − min is max − min. SiLU does not care for halves. A rotation has an
# operator of its own, and indexing would do.</details>
#
# <details><summary>The idea</summary><code>lo, hi = x.aminmax()</code>; <code>y = F.silu((x - lo) / (hi - lo)) * 2</code>;
# <code>y + y.roll(-1, 1)</code>.</details>


# %% exercise="prepare"
def prepare(x: torch.Tensor) -> torch.Tensor:
    """The numbers of the function above, to 4 digits.

    x: (n, d), float32 or float64, any strides, left as it is, n even, d ≥ 2, not all equal. Returns (n, d).

    Inductor's code for it (compiling.kernels(prepare, x)) has at most 3 loop nests and calls no library, from one graph.
    """
    ### BEGIN SOLUTION
    lo, hi = x.aminmax()
    y = F.silu((x - lo) / (hi - lo)) * 2
    return y + y.roll(-1, 1)
    ### END SOLUTION


# %% test="prepare" points=1
import torch

from helpers.lessons.torch_compile.exercises import check_prepare

check_prepare(torch.randn(64, 32, generator=torch.Generator().manual_seed(0)) * 3 + 4)

# %% hidden="prepare" points=3
### BEGIN HIDDEN TESTS
import torch

from helpers.lessons.torch_compile.exercises import check_prepare

g = torch.Generator().manual_seed(5)
far = torch.rand(128, 2, generator=g) * 3 + 1e5  # their products agree in five of 7 digits
check_prepare(torch.randn(30, 5, generator=g) * 7 - 20, far)
check_prepare(torch.randn(12, 30, generator=g, dtype=torch.float64).t() * 1e4)
check_prepare(torch.rand(6, 4, generator=g, dtype=torch.float64) * 1e-9)  # close together, and not all equal
### END HIDDEN TESTS

# %% [markdown]
# ### Modes (2 min)
#
# A mode of `torch.compile` is nothing but a set of Inductor's options:

# %% experiment
experiments.modes()

# %% [markdown]
# `reduce-overhead` sets CUDA graphs. They remove *launch* overhead at run time (lesson 07) and are captured on top of
# compiling, so this mode does not compile faster. `max-autotune` sets CUDA graphs too; it compiles variants of products and
# of other kernels, and times them. `max-autotune-no-cudagraphs` only does the timing. In `lite` nothing is fused but what you
# mark: all other operators call PyTorch's own kernels. (`lite` is in the source of torch 2.13, and not in torch.compile's documentation.)
#
# ### Three ways to capture (4 min)
#
# Before `torch.compile` there were two other ideas. (torch 2.13 says that both are deprecated.) **Tracing**,
# [`torch.jit.trace`](https://docs.pytorch.org/docs/stable/generated/torch.jit.trace.html), runs the function once and records
# the operators. **Source analysis**, `torch.jit.script`, reads the text as a small language and compiles that. Each of three
# little programs is captured with three positive numbers, and then called with five negative numbers. (`branch` and
# `read_out` are those of section 1.) Is the second result right, silently wrong, or an error?


# %% experiment
def lookup(x):
    return {"up": torch.relu, "down": torch.neg}["down"](x)


you = lesson.predict(
    {
        "trace: branch": ...,
        "trace: read_out": ...,
        "script: branch": ...,
        "script: lookup": ...,
        "compile: branch": ...,
    },
    choices=["right", "wrong", "error"],
)

# %% experiment
CAPTURES = {
    "trace": lambda fn, x: torch.jit.trace(fn, (x,), check_trace=False),
    "script": lambda fn, x: torch.jit.script(fn),
    "compile": lambda fn, x: torch.compile(fn, backend="eager"),
}
PROGRAMS = {"branch": branch, "read_out": read_out, "lookup": lookup}
outcomes = {}
for question in you:
    how, program = question.split(": ")
    outcomes[question] = experiments.second_call(CAPTURES[how], PROGRAMS[program])
you.against(outcomes, evidence="live (CPU)", what="second result")

# %% [markdown]
# A trace is a recording. What Python decided while it ran stays as it was, and nothing checks it later. (While it
# traces, PyTorch warns of both places. The wrong call itself says nothing.) Source analysis understands an `if` on data. It stops where its small language ends: here at a dict of functions.
#
# ### Compile a block, and once for all runs (4 min)
#
# The loop over a model's blocks is unrolled: the compiler gets all of them. With `block.compile()` for each block it gets
# one, if the blocks are objects of one class: this is **regional compilation**. How many operators does it have to look at,
# for twelve blocks?

# %% experiment
for name in ("the whole model", "each block"):
    torch._dynamo.reset()
    sizes, model = [], experiments.Stack(blocks=12)
    backend = experiments.sizes_into(sizes)
    for part in [model] if name == "the whole model" else model.blocks:
        part.compile(backend=backend)
    model(torch.randn(4, 16))
    print(f"{name}: {len(sizes)} graph(s), operators: {', '.join(map(str, sizes))}")

# %% [markdown]
# (Two graphs, because the first block's input needs no gradient, and the others' does.) The code across a block's border is
# not fused. That is the price.
#
# What Inductor wrote is kept on disk: the next process finds it, if code, shapes, versions and card are the same. That is a
# **warm start**. In `torch._dynamo.utils.counters["inductor"]` stand `fxgraph_cache_hit` and `fxgraph_cache_miss`.
# `TORCHINDUCTOR_CACHE_DIR` says where: on a cluster, put it where all ranks and the next job read it.
# [`torch.compiler.save_cache_artifacts()`](https://docs.pytorch.org/docs/stable/generated/torch.compiler.save_cache_artifacts.html)
# packs it into bytes that another machine loads.
#
# ### Two models (5 min)
#
# A diffusion **pipeline** calls a network in a loop, and also formats, logs and collects. Ours is a stand-in:
#
# ```python
# class Pipeline:
#     def __call__(self, x, steps=4):
#         for step in range(steps):
#             x = x - 0.1 * self.net(x, torch.tensor(step / steps))
#             self.logs.append(f"step {step}: {x.norm().item():.3f}")
#         return x.numpy().round(2)
# ```
#
# Compile the whole object, or the network inside?

# %% experiment
experiments.pipe_table()

# %% [markdown]
# - `torch.compile(pipe)`: Dynamo met a break inside a loop and left all of `__call__` to Python. Python called the network,
#   and the network was compiled: the right graph, found by accident.
# - `fullgraph=True` on the pipe captures everything, and that is worse. The loop is unrolled, so the graph grows with the
#   steps. The length of `self.logs` is guarded, so each call compiles again.
# - **`pipe.net = torch.compile(pipe.net)`** compiles the part that computes. In diffusers that is
#   `pipe.unet = torch.compile(pipe.unet)`.
# - `block.compile()` for each block is **regional compilation**: one small graph, which all blocks share. It has the least to compile.
#
# Now two real classes, a BERT encoder and a diffusion UNet, in small sizes with random weights. BERT's length changes. The
# UNet's time step comes as an int, or as a tensor. (The cell needs their packages.)

# %% experiment tags=["nbval-ignore-output"]
experiments.real_models()

# %% [markdown]
# A time step that comes as an int is compiled for its first value, and again as a symbol, as the factor in section 2 was. As a tensor it is compiled once.
