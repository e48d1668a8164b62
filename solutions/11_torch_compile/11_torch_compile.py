# %% [markdown]
# # 11 · torch.compile
#
# ## What does the compiler see?
#
# One line, `torch.compile(model)`, and a compiler reads your Python, writes C++ or Triton, and runs that instead.
# When it works it is the cheapest speed-up there is. When it does not, it rarely says so: it falls back to
# Python, or compiles again at every call, and the program stays right and gets slow. This lesson opens the
# four doors between your line and the kernel: what is captured, what is assumed, what is made of it, what it costs.
#
# **Time** 90–105 min, two thirds of it exercises. **Before this** lessons 01 and 02 (views, operators, autograd).
#
# **Afterwards you can**
# - find every place where the compiler gave up, and write code in which it does not;
# - say which call will compile again, and why, and stop it;
# - write a backend, read a generated kernel, and count its walks through memory.
#
# **On trial** (tested at the end) what a guide to torch.compile says: that `mode="reduce-overhead"` shortens compiling;
# that `backend="tensorrt"`, `options={"dynamic": True}`, `torch.randn((-1, …))` and `torch.compile(pipe)` work; that
# `symbolic_trace`, `_dynamo.optimize` and `torch.compile` are three steps to take one after another; that training gets
# 300 % faster. And of the book's notes: that `fullgraph=True` gives the whole graph.
#
# The graded parts need no C++ compiler. The case studies use `transformers` and `diffusers` where they are installed
# (`make lab EXTRAS=models`), with random weights and no download; without them you see our small stand-in.

# %% setup
import logging
import operator
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F

from helpers import compiling, lesson, plots, simulate

torch.set_num_threads(1)
lesson.start("11_torch_compile", evidence=["live (CPU)", "simulated (H100)"])

# %% [markdown]
# ## 1 · What is captured
#
# To optimise more than one operator at a time, something has to get the whole computation out of Python. There
# were three ideas. **Tracing** runs the function once and writes down the operators (`torch.jit.trace`). **Source
# analysis** reads the text and compiles a language of its own (`torch.jit.script`). **Bytecode capture** interprets
# Python's own bytecode just before it runs and takes out what is tensor work: that is Dynamo, the front of
# `torch.compile`. Four little functions for them:


# %% experiment
def branch(x):
    return x * 2 if x.sum() > 0 else x - 1


def lookup(x):
    return {"up": torch.relu, "down": torch.neg}["down"](x)


def read_out(x):
    return x / x.max().item()


def sized(x):
    return x * x.shape[0]


# %% [markdown]
# Each capture sees `x` with three positive numbers, and is then called with five negative ones. Is the second result
# **right**, silently **wrong**, or does it raise an **error**?

# %% experiment
prediction = {"trace: if on the data": ..., "trace: a number read out": ..., "trace: the shape, used": ...}
prediction |= {"script: a dict of functions": ..., "dynamo: if on the data": ...}

# %% experiment
CAPTURES = {
    "trace": lambda fn, x: torch.jit.trace(fn, (x,), check_trace=False),
    "script": lambda fn, x: torch.jit.script(fn),
    "dynamo": lambda fn, x: torch.compile(fn, backend="eager"),
}
PROGRAMS = {"if on the data": branch, "a dict of functions": lookup}
PROGRAMS |= {"a number read out": read_out, "the shape, used": sized}


def outcome(how, fn):
    first, second = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, -3.0, -4.0, -5.0])
    try:
        with warnings.catch_warnings(), compiling.watch():
            warnings.simplefilter("ignore")  # tracing warns about some of this; jit is deprecated
            captured = CAPTURES[how](fn, first)
            captured(first)
            return "right" if torch.equal(captured(second), fn(second)) else "wrong"
    except Exception:
        return "error"


found = {f"{how}: {what}": outcome(how, fn) for what, fn in PROGRAMS.items() for how in CAPTURES}
lesson.compare_predictions(
    prediction, {k: found[k] for k in prediction}, evidence="live (CPU)", choices=("right", "wrong", "error")
).show()
lesson.table(
    [(what, *(found[f"{how}: {what}"] for how in CAPTURES)) for what in PROGRAMS],
    ["", *CAPTURES],
    evidence="live (CPU)",
    caption="the second call, with other numbers and another size",
)

# %% [markdown]
# A trace is a recording: whatever Python decided while it ran is baked in, and nothing checks it later. (A shape in
# arithmetic is an exception: reading it is recorded as an operator. An `if` or a loop over it is baked in as well.)
# Source analysis understands data-dependent `if`s and stops where its language does; here at a dict of functions.
# Dynamo is right in every row, by two means. What it took for granted it writes down as **guards**, checked before
# each call. What it cannot take into a graph it leaves to Python, in a **graph break**: it compiles what came before,
# lets Python do the one thing, and starts a new graph behind it. `explain` shows both. In it, `1/0` is the first
# compiled version of the second piece of Python that was met, and "chatty, resumed" is such a rest of `chatty`:


# %% experiment
def chatty(x, limit):
    norm = x.norm()
    if norm > limit:  # Python must know: which way?
        x = x * (limit / norm)
    print("clipped")  # a side effect
    return torch.relu(x) + 1


report = compiling.explain(chatty, torch.ones(4), 1.0)
report

# %% experiment
for graph in report.graphs:
    print(graph.id, graph.operators)
print(*dict.fromkeys(f"guard  {g}" for g in report.guards if g.about in ("x", "limit")), sep="\n")

# %% [markdown]
# (The other guards hold of globals and modes.) Nothing is wrong in the result. But each graph is optimised alone, each
# border writes its tensors to memory and goes back to Python, and on a GPU the `if` waits for the device (lesson 03).
#
# `torch.compile(fn, fullgraph=True)` insists on one graph: what still breaks is an error. And it captures more than the
# default does. [Its docstring](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/__init__.py#L2644-L2648) says that
# it "opts into unbacked semantics": `capture_scalar_outputs` and `capture_dynamic_output_shape_ops` are on, so that a
# number or a size that only the data knows becomes a symbol in the graph. (Pull requests
# [163121](https://github.com/pytorch/pytorch/pull/163121) and [163123](https://github.com/pytorch/pytorch/pull/163123),
# September 2025; before them both were errors.) **How many graphs**, or an "error"?

# %% experiment
prediction = {".item()": ..., ".item(), fullgraph=True": ..., "x[mask], fullgraph=True": ...}
prediction |= {"if on a tensor, fullgraph=True": ..., "print, fullgraph=True": ...}


# %% experiment
def picked(x):
    return x - x[x > 0].mean()


def talks(x):
    y = x.sin()
    print("(talks)")
    return y.cos()


def captured(fn, fullgraph):
    try:
        with compiling.watch() as w:
            torch.compile(fn, backend="eager", fullgraph=fullgraph)(torch.tensor([1.0, 2.0, 3.0]))
        return [graph.operators for graph in w.graphs], ""
    except Exception as problem:
        return "error", f"{type(problem).__name__}: {str(problem).splitlines()[0]}"


BREAKS = {".item()": read_out, "x[mask]": picked, "if on a tensor": branch, "print": talks}
both = {name: (captured(fn, False), captured(fn, True)) for name, fn in BREAKS.items()}
many = lambda got: got if got == "error" else len(got)  # noqa: E731
graphs = {name: many(plain[0]) for name, (plain, _) in both.items()}
graphs |= {f"{name}, fullgraph=True": many(full[0]) for name, (_, full) in both.items()}
lesson.compare_predictions(
    prediction, {k: graphs[k] for k in prediction}, evidence="live (CPU)",
    choices=dict.fromkeys(prediction, ("error", *range(10))),
).show()  # fmt: skip
lesson.table(
    [(name, many(plain[0]), many(full[0]), full[1]) for name, (plain, full) in both.items()],
    ["", "graphs", "with fullgraph=True", ""],
    evidence="live (CPU)",
).show()
lesson.keep(refused=sum(full[0] == "error" for _, full in both.values()), breaking=len(both))
print("`.item()` as one graph:", *both[".item()"][1][0])

# %% [markdown]
# The number that is read out is still read out, inside the graph: on a GPU it waits as before. {{refused}} of the
# {{breaking}} stay errors, and so does `chatty`. The message is a page; its head says what to do:

# %% experiment
try:
    with compiling.watch():
        torch.compile(chatty, backend="eager", fullgraph=True)(torch.ones(4), 1.0)
except Exception as problem:
    said = [line for line in str(problem).splitlines() if line.strip() and 'File "' not in line]
    print(*[f"{type(problem).__name__}:", *said[:5]], sep="\n")

# %% [markdown]
# Plain `torch.compile`, which is what you meet in most programs, breaks at all four. So better write it otherwise:
#
# | instead of | write |
# |---|---|
# | `if` on a tensor's numbers | `torch.where`, `clamp`, a factor that is 1 where nothing should change |
# | `.item()`, `float(t)` | keep the 0-d tensor |
# | `x[mask]`, whose size is data | keep the shape, and weigh with the mask |
# | `print` and logs inside | return the number, print outside |
#
# **Exercise 11.1 — one graph** (★★, 8 min)
#
# This function clips a vector, looks at its larger numbers, and talks. Each of these breaks the graph.
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
# <details><summary>Hint 2</summary>A mean over some is a sum over all, the others as 0, divided by how many. A mask has no
# <code>mean</code>, but a <code>sum</code>, which counts in int64.</details>
#
# <details><summary>The idea</summary><code>x * (limit / norm).clamp(max=1)</code>; <code>kept = x.abs() > …</code>;
# <code>torch.where(kept, x, 0).sum() / kept.sum()</code>.</details>


# %% exercise="centre"
def centre(x: torch.Tensor, limit: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The function above as one graph.

    x: (n,) float, any strides, not all zero; limit: > 0; at least one number is kept. n, dtype and limit are the same in all
    calls.
    Returns (result (n,), norm of x before clipping, 0-d float; how many were kept, 0-d int64).

    Compiled, it is one graph without breaks that runs at each call, and made of torch's own operators, for which
    Inductor can write kernels (no custom operator).
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
from helpers.exercises.torch_compile import check_centre

clipped, small = torch.tensor([3.0, 0.0, -4.0, 0.1]), torch.tensor([0.3, 0.0, -0.4, 0.1])
serves_both = "the first call is clipped, the second is not: one graph has to serve both."
check_centre(check.case((clipped, 1.0), (small, 1.0)), note=serves_both)

# %% hidden="centre" points=3
### BEGIN HIDDEN TESTS
import torch

from helpers import check
from helpers.exercises.torch_compile import check_centre

g = torch.Generator().manual_seed(11)
xs = [torch.randn(33, generator=g) * size for size in (0.05, 3.0, 1.0)] + [torch.ones(33)]
xs[0][0] += 2.2  # not clipped, and one is kept
check_centre(check.case(*[(x, 2.5) for x in xs]))
edge = torch.tensor([[0.125, 0.5, 0.25, -0.125], [-3.0, 0.0, 1.0, 0.5]], dtype=torch.float64)  # > is not >=
check_centre(check.case(*[(x, 1.0) for x in edge.repeat_interleave(2, 1)[:, ::2]]))
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · What is assumed
#
# Compiled code is right only where its guards hold: dtype, device, strides, sizes, the values of some Python numbers,
# gradient mode. Where none of the versions compiled so far fits, Dynamo compiles again. It keeps at most {{limit}}
# versions of one function
# ([`recompile_limit`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_dynamo/config.py#L115-L121)). A batch
# whose size changes from call to call:


# %% experiment
STREAM = [3, 7, 1, 12, 5, 8, 2, 9, 4, 3, 6, 12, 10, 13]


def scaled(x, k=2.0):
    return torch.relu(x) * k


# %% [markdown]
# **How many compilations** for these fourteen calls with `x` of shape (n, 4), for each setting of `dynamic`?

# %% experiment
prediction = {"torch.compile(f)": ..., "dynamic=True": ..., "dynamic=False": ...}

# %% experiment
SETTINGS = {"dynamic=False": False, "torch.compile(f)": None, "dynamic=True": True}


def stream(sizes, dynamic):
    """Compilations after each call, and what the compiler said of it."""
    made = []
    after = []

    def backend(graph, inputs):
        made.append(graph)
        return graph.forward

    with compiling.watch(backend) as w:
        fast = torch.compile(scaled, dynamic=dynamic)
        for n in sizes:
            fast(torch.ones(n, 4))
            after.append(len(made))
    return after, w


streams = {name: stream(STREAM, dynamic) for name, dynamic in SETTINGS.items()}
lesson.keep(limit=max(streams["dynamic=False"][0]))
lesson.compare_predictions(
    prediction, {name: after[-1] for name, (after, _) in streams.items()}, evidence="live (CPU)",
    choices=range(15),
).show()  # fmt: skip

# %% experiment tags=["fold"]
from helpers.plots import style
from helpers.plots.picture import Picture

fig, _ = style.figure(2.9, evidence="live (CPU)", title="Compilations, call by call")
ax = fig.subplots()
for i, (name, (after, _)) in enumerate(streams.items()):
    color, marker = style.SERIES[i], style.MARKERS[i]
    ax.step(range(len(after)), after, where="mid", color=color, linewidth=3.6 - 1.1 * i)
    face = color if i else "white"  # hollow and larger: what lies on top of it leaves it to be seen
    ax.plot(
        range(len(after)),
        after,
        marker,
        color=color,
        markersize=(12, 7, 4.5)[i],
        markerfacecolor=face,
        label=name,
    )
seen = streams["dynamic=False"][0]
# every version there may be is made; new sizes run as plain Python from here on
full = seen.index(max(seen)) + 1
python = [i for i in range(full, len(STREAM)) if STREAM[i] not in STREAM[:full]]
ax.plot(
    python, [seen[-1]] * len(python), "x", color=style.SERIES[0], markersize=7, label="runs as plain Python"
)
ax.set_xticks(range(len(STREAM)), [str(n) for n in STREAM])
ax.set(xlabel="rows in each call", ylabel="compilations so far", ylim=(0, 9.5))
ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
Picture(fig, "live (CPU)", "Compilations so far against the call, for three settings of dynamic")

# %% experiment
for name, (_, w) in streams.items():
    print(f"{name}: {w.runs} runs of compiled code in {len(STREAM)} calls")
    for r in w.recompiles[:3]:
        print("   compiled again:", r.reason)
    for c in w.failures:
        print("   gave up:", c.failed[:60])

# %% [markdown]
# - **By default** the first size is taken for the only one. When it changes, Dynamo makes that dimension a
#   symbol, and the second version serves every size *from 2 up*. Size 1 keeps a version of its own, since a dimension
#   of 1 broadcasts: its code would differ.
# - **`dynamic=True`** begins with the symbol, in every dimension; `torch._dynamo.mark_dynamic(x, 0)` before the first call
#   in this one only ([docstring](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_dynamo/decorators.py#L1232)).
# - **`dynamic=False`** compiles for each size, up to the limit. After that, a size that has no version runs **as plain
#   Python**; the sizes that have one still use theirs. The results are right, and the calls are slow: the flat end of the
#   highest curve is no good sign.
#
# **How does one learn that the limit was reached?** By "nothing", "a warning" or "an error", as plain `torch.compile`
# and with `fullgraph=True`:

# %% experiment
prediction = {"torch.compile(f)": ..., "fullgraph=True": ...}


# %% experiment
def ninth_size(**options):
    """("nothing", "a warning" or "an error", its first line) when a ninth size comes; limit: 8."""
    said, log = [], logging.getLogger("torch._dynamo.convert_frame")

    def hears(record):  # gives nothing, so that nobody else hears it
        said.append(("a warning", record.getMessage().splitlines()[0]))

    torch.compiler.reset()
    log.addFilter(hears)
    try:
        fast = torch.compile(scaled, backend="eager", dynamic=False, **options)
        for n in range(2, 11):
            fast(torch.ones(n, 4))
    except Exception as problem:
        said = [("an error", f"{type(problem).__name__}: {problem}")]
    finally:
        log.removeFilter(hears)
        torch.compiler.reset()
    return said[0] if said else ("nothing", "")


told = {"torch.compile(f)": ninth_size(), "fullgraph=True": ninth_size(fullgraph=True)}
lesson.compare_predictions(
    prediction, {k: how for k, (how, _) in told.items()}, evidence="live (CPU)",
    choices=("nothing", "a warning", "an error"),
).show()  # fmt: skip
print(*(f"{name}: {text}" for name, (_, text) in told.items()), sep="\n")

# %% [markdown]
# Plain `torch.compile` warns once, on standard error, where a log file may be the only reader. With `fullgraph=True` it
# raises `FailOnRecompileLimitHit`
# ([source](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_dynamo/convert_frame.py#L1986-L2040)); so it does in
# every program where `torch._dynamo.config.fail_on_recompile_limit_hit` is set. `TORCH_LOGS=recompiles` prints the
# reasons of each recompilation.
#
# What else changes from call to call? Python numbers, and where a tensor comes from. **How many compilations in twelve
# calls**, each with another number or another shape?

# %% experiment
prediction = {
    "an int argument": ...,
    "an int argument, in range(k)": ...,
    "a float argument": ...,
    "a 0-d tensor": ...,
    "an int attribute of a module": ...,
}
prediction |= {"rows, dynamic=True": ..., "rows reshaped from (n, l, 4), dynamic=True": ...}


# %% experiment
class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0

    def forward(self, x):
        self.step += 1
        return x * self.step


def grown(x, k):
    for _ in range(k):
        x = x + 1
    return x


def again(fn, calls, dynamic=None):
    with compiling.watch("eager") as w:
        fast = torch.compile(fn, dynamic=dynamic)
        for call in calls:
            fast(*call)
    gave_up = f"{w.failures[0].failed}; " if w.failures else ""
    return w.counts()["compilations"], w.runs, gave_up + "; ".join(r.reason for r in w.recompiles[:3])


x = torch.ones(3)
leading = [(2, 3), (4, 5), (1, 6), (3, 2), (5, 1), (1, 1), (2, 7), (6, 1), (3, 4), (1, 8), (5, 5), (2, 2)]
rows = [torch.ones(n, l, 4).reshape(n * l, 4) for n, l in leading]
found = {
    "an int argument": again(scaled, [(x, k) for k in range(2, 14)]),
    "an int argument, in range(k)": again(grown, [(x, k) for k in range(2, 14)]),
    "a float argument": again(scaled, [(x, k / 7) for k in range(2, 14)]),
    "a 0-d tensor": again(scaled, [(x, torch.tensor(k)) for k in range(2, 14)]),
    "an int attribute of a module": again(Counter(), [(x,)] * 12),
    "rows, dynamic=True": again(scaled, [(r.clone(),) for r in rows], True),
    "rows reshaped from (n, l, 4), dynamic=True": again(scaled, [(r,) for r in rows], True),
}
lesson.compare_predictions(
    prediction, {k: v[0] for k, v in found.items()}, evidence="live (CPU)", choices=range(13)
).show()
lesson.table(
    [(what, *row) for what, row in found.items()],
    ["what changes", "compilations", "compiled runs", "why again"],
    evidence="live (CPU)",
)

# %% [markdown]
# A number that comes as an **argument** is guarded by its value once, and gets a symbol as soon as it changes, where
# Python itself need not know it. A factor need not be known. How often a loop runs must be, so each k of `range(k)` needs
# a version of its own. An int **attribute of a module** stays guarded by its value: a module that counts its calls and
# computes with the count soon has as many versions as are kept, and then runs as plain Python. And a **view brings its
# base along** (`x._base`, the tensor that it is a view of): the base's sizes are guarded too, so that rows reshaped from
# (n, l, 4) bring the ones in n and l back.

# %% [markdown]
# **Exercise 11.2 — explain the recompiles** (★★, 10 min)
#
# Be the cache: for a list of sizes, say at each call whether a version is reused, compiled (and for which sizes it will
# then hold), or given up. It is twenty lines at most, and after it no recompile is a riddle.
#
# <details><summary>Hint 1</summary>Keep the list of versions compiled so far, each as the guard it holds; look whether any
# of them (not only the newest) fits.</details>
#
# <details><summary>Hint 2</summary>With <code>dynamic=None</code>: a size other than 1 gets the symbol as soon as any version
# was compiled before, since then the sizes have been seen to differ.</details>
#
# <details><summary>The idea</summary>fits: <code>n == k</code> if n is k; <code>2 <= n</code> if n ≥ 2. No fit: at the limit
# "python"; else n is 1, or dynamic is False, or it is the first with None: the exact guard; else the symbol.</details>


# %% exercise="cache"
def cache(sizes: list[int], dynamic: bool | None = None, limit: int = 8) -> list[str]:
    """What torch.compile(f, dynamic=dynamic) does at each call of f(x), x of shape (n, 4), for n in sizes.

    sizes: each ≥ 1, perhaps none. limit: 1 or more, the most compiled versions of f that are kept (torch._dynamo.config.recompile_limit).
    One word per call: "reuse"; "n == 7" if it compiles a version that holds for 7 only, "2 <= n" if for all from 2 up;
    "python" if it runs uncompiled. By reasoning: the compiler is not asked.
    """
    ### BEGIN SOLUTION
    versions: list[str] = []
    said: list[str] = []
    for n in sizes:
        if f"n == {n}" in versions or (n >= 2 and "2 <= n" in versions):
            said.append("reuse")
        elif len(versions) == limit:
            said.append("python")
        else:
            exact = n == 1 or dynamic is False or (dynamic is None and not versions)
            versions.append(f"n == {n}" if exact else "2 <= n")
            said.append(versions[-1])
    return said
    ### END SOLUTION


# %% test="cache" points=1
from helpers import check
from helpers.exercises.torch_compile import check_cache

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
from helpers.exercises.torch_compile import check_cache

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
# **Exercise 11.3 — twenty shapes, two compilations** (★★, 15 min)
#
# A service gets tensors of shape (n, l, d), n and l different at each call and sometimes 1; the model works on each row
# of d numbers by itself. Serve them with at most two compilations, and without computing much for nothing. One trap is not
# the point here, so beforehand: of a view the guards hold the sizes of its base too (last row of the table above), and
# `.detach()`, last, makes it count as none.
#
# <details><summary>Hint 1</summary>With <code>dynamic=True</code> a size of 1 still has versions of its own: n = 1 with l ≥ 2, n ≥ 2 with
# l = 1, both, neither. The model does not care how its rows are arranged in n and l. You may.</details>
#
# <details><summary>Hint 2</summary>Flatten to (n · l, d), which has one size that changes; only n · l = 1 takes a second version. If it
# compiles four times all the same, read the reasons: is there a view?</details>
#
# <details><summary>The idea</summary>The rows must not be a view. <code>.clone()</code> copies them. <code>.detach()</code> copies
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

    Over twenty shapes: at most 2 compilations, the model never runs uncompiled, and all its compiled runs together
    take in at most 1.5 times as many rows as came (padding counts). The answers are made by those runs.
    """
    ### BEGIN SOLUTION
    compiled = torch.compile(model, dynamic=True, fullgraph=True)

    def answer(x):
        # detached last: no view, and so no guards on the sizes of its base
        rows = x.reshape(-1, x.shape[-1]).detach()
        return compiled(rows).reshape(*x.shape[:-1], -1)

    return answer
    ### END SOLUTION


# %% test="serve" points=1
from helpers.exercises.torch_compile import check_serve

shapes = [(4, 3), (2, 5), (1, 7), (3, 1), (1, 1), (5, 4), (2, 9), (6, 2), (3, 8), (1, 5)]
shapes += [(7, 3), (2, 2), (8, 1), (4, 6), (5, 7), (9, 2), (3, 3), (2, 6), (10, 4), (6, 5)]
check_serve(shapes)

# %% hidden="serve" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.torch_compile import check_serve

one = [(1, 1), (1, 6), (11, 1), (2, 2), (13, 4), (1, 2), (5, 5), (3, 17), (2, 1), (7, 7)]
one += [(n, 23 - n) for n in range(2, 12)]
check_serve(one, [(1 + (7 * i) % 13, 1 + (5 * i) % 11) for i in range(1, 21)])
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · What is made of it
#
# Dynamo's graph goes to a **backend**: a function that takes an FX graph and example inputs, and returns
# something callable. This one prints what it is given and runs it as it is:


# %% experiment
def gated(a, b, c):
    return (a * b + c).relu().sum()


def show(graph, inputs):
    shown.extend(
        (
            n.op,
            n.name,
            getattr(n.target, "__name__", n.target),
            str(n.args),
            ", ".join(u.name for u in n.users),
        )
        for n in graph.graph.nodes
    )
    return graph.forward


shown = []
leaves = [torch.ones(3, requires_grad=True) for _ in range(3)]
with compiling.watch():
    torch.compile(gated, backend=show)(*leaves)
lesson.table(
    shown,
    ["op", "name", "target", "args", "users"],
    evidence="live (CPU)",
    caption="graph.graph.nodes of gated",
)

# %% [markdown]
# Each row is a `Node`. Its `args` are the nodes it reads (or plain numbers), its `users` the nodes that read it. What a
# **call_function** calls is a function, `operator.mul` for `*`; the target of a **call_method** is the method's name, a
# string. A backend may change this graph: `graph.graph.inserting_before(node)`, `call_function(target, args)`,
# `node.replace_all_uses_with(new)`, `erase_node(node)`, then `graph.recompile()`.
#
# Inductor's backend has two steps. **AOTAutograd** runs the graph with symbols and traces the *backward* too, ahead of
# time; both come out in ATen's operators, without operators in place. **Inductor** then writes loops.

# %% experiment
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

parts = []


def boxed(graph, inputs):
    parts.append(graph.code)
    return make_boxed_func(graph.forward)  # AOTAutograd wants a function that takes its inputs as one list


with compiling.watch():
    torch.compile(gated, backend=aot_autograd(fw_compiler=boxed, bw_compiler=boxed))(*leaves).backward()
for name, code in zip(("forward", "backward"), parts, strict=True):
    print(
        name,
        *[line.partition(";")[0] for line in code.splitlines() if "=" in line or "return" in line],
        sep="\n",
    )

# %% [markdown]
# `primals_…` are what the forward graph takes in, here a, b and c; `tangents_1` is the gradient of what it gives. The forward
# graph returns more than the sum: `primals_1`, `primals_2` and `detach` (the result of relu) are what is
# **saved for backward**, and what the backward graph takes in. There, `expand` is the gradient of the sum,
# `threshold_backward` that of relu, and two products remain. Inductor gets the two one by one, and fuses within each.

# %% [markdown]
# **Exercise 11.4 — a backend of your own** (★★★, 20 min)
#
# ATen has `torch.addcmul(c, a, b)` for c + a · b: one operator where there were two, and no product in between. Write
# a backend that finds the pattern and replaces it. (Inductor needs no such help: it fuses a product and a sum by itself. The
# pattern is small enough to learn on; those that pay are ones Inductor cannot know, such as a library's kernel for several
# operators.)
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
        torch.add, and the methods mul and add, their operands by position, not by name. It may be changed. Its inputs are tensors of one dtype and sizes are
        static; no tensor is changed in place (one that was, between product and sum, would be read too late).
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
from helpers.exercises.torch_compile import check_addcmul_backend

once, never = (1, 1), (2, 0)  # operators, of which addcmul
check_addcmul_backend({"a * b + c": once, "c + a * b": once, "torch.add(torch.mul(a, b), c)": once})
check_addcmul_backend({"a.mul(b).add(c)": once, "a * b + c * d": (2, 1), "(a * b + c) * d + e": (2, 2)})
check_addcmul_backend({"(lambda y: (y + c, y))(a * b)": never, "(lambda y: y + y)(a * b)": never})
check_addcmul_backend({"a * 2 + b": never, "a * b + 2": never, "torch.add(c, a * b, alpha=3)": never})

# %% hidden="addcmul_backend" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.torch_compile import check_addcmul_backend

check_addcmul_backend(
    {
        "row * column + c": (1, 1),
        "row + a * b": (1, 1),
        "(lambda y: y.relu() + (y + c))(a * b)": (4, 0),
        "(lambda y: y + y)(a * b)": (2, 0),
        "d + (((a * b + c) * b + c) * b + c).mul(e)": (4, 4),
        "a * b - c": (2, 0),
        "a * b + 1": (2, 0),
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
# ## 4 · The kernel, read
#
# Now what Inductor writes. `compiling.kernels` shows it for one plain CPU thread without vector instructions, so
# that it can be read.


# %% experiment
def rescale(x):
    x = x - x.min()
    return x / x.max()


def columns(x):
    return torch.stack([x[:, i] * i for i in range(4)], 1)


FUNCTIONS = {
    "relu(x * 2 + 1)": lambda x: torch.relu(x * 2 + 1),
    "rescale": rescale,
    "softmax over rows": lambda x: x.softmax(-1),
    "relu(x @ x.t())": lambda x: torch.relu(x @ x.t()),
    "columns": columns,
    "sort": lambda x: x.sort(-1).values + 1,
}

# %% [markdown]
# **How many loop nests does Inductor write** for each? (A nest is a loop with all the loops inside it. What a library's
# operator does inside is not counted.)

# %% experiment
prediction = {
    "relu(x * 2 + 1)": ...,
    "rescale": ...,
    "softmax over rows": ...,
    "relu(x @ x.t())": ...,
    "columns": ...,
}

# %% experiment
x = torch.rand(64, 64)
written = {name: compiling.kernels(fn, x) for name, fn in FUNCTIONS.items()}
lesson.compare_predictions(
    prediction, {n: written[n].loops for n in prediction}, evidence="live (CPU)", choices=range(13)
).show()
lesson.table(
    [
        (name, k.loops, len(k.fused), ", ".join(n.replace("extern_kernels.", "") for n in k.extern))
        for name, k in written.items()
    ],
    ["function", "loop nests", "generated kernels", "left to libraries"],
    evidence="live (CPU)",
    caption="on the CPU several nests may sit in one kernel, a C++ function",
)

# %% experiment
print(written["rescale"].readable, written["softmax over rows"].readable, sep="\n\n")  # 4096 = 64 · 64

# %% [markdown]
# (`readable` is the code without its imports and most of its casts; `code` is all of it.) Read `rescale` from the top: one
# nest finds the minimum, one subtracts it *and* finds the maximum, one subtracts again (cheaper than to store) and divides.
# `tmp` are registers, `out_ptr` is memory. So the rules of fusion are in front of you:
#
# - Pointwise operators join each other and the reduction that eats them; what passes between them stays in registers.
# - A reduction ends a walk over *what is reduced*: nothing that needs its result can go on before it is there. In
#   `rescale` that is all of x. In softmax it is one row: three inner loops within one nest, of which two walk the row of x,
#   and the third a buffer of one row, where the second has stored the exponentials.
# - Two reductions share a walk if neither waits for the other; in `rescale` the second waits for the first only by the
#   way it is written.
# - Pieces of a tensor handled one by one become a nest each.
# - Matrix products and sorts go to a library; here, on the CPU, pointwise work before or after them is a nest of its own.
#
# On a GPU (Triton) each nest is, roughly, a kernel, and what fusion saves is bytes. A chain of six operators, and a
# single one that moves what the fused kernel would (x in, y out):

# %% experiment tags=["fold"]
from helpers.plots.lanes import rows_of

gpu = simulate("H100")
with gpu:
    big = torch.empty(2**22, device=gpu.device)
    torch.relu(big)
    for op in (torch.exp, torch.neg, torch.tanh, torch.sigmoid, torch.sin, torch.relu):
        op(big)  # warm
    gpu.synchronize()
    bars, marks, moved, lasted = [], {}, {}, {}
    chains = {
        "six operators": (torch.exp, torch.neg, torch.tanh, torch.sigmoid, torch.sin, torch.relu),
        "as one kernel": (torch.relu,),
    }
    for name, chain in chains.items():
        before, began = len(gpu.kernels), gpu.clock()
        y = big
        for op in chain:
            y = op(y)
        gpu.synchronize()
        moved[name] = sum(k.bytes for k in gpu.kernels[before:])
        lasted[name] = gpu.clock() - began
        marks[name] = late = max((end for *_, end in bars), default=0.0)
        bars += [
            (
                "synchronize" if kind == "synchronize" else name,
                lane.split()[0],
                a - began + late,
                b - began + late,
            )
            for kind, lane, a, b in rows_of(gpu, began)
        ]
bars.sort(key=lambda bar: bar[0] == "synchronize")
fused_ratio = lasted["six operators"] / lasted["as one kernel"]
print(f"bytes: {moved['six operators'] / moved['as one kernel']:.0f} times, time: {fused_ratio:.1f} times")
busy = {name: sum(b - a for kind, lane, a, b in bars if kind == name and lane != "CPU") for name in chains}
print(f"kernels alone: {busy['six operators'] / busy['as one kernel']:.1f} times")
plots.timeline(
    bars, evidence="simulated (H100)", marks=marks, title="A chain of six pointwise operators, and one kernel"
)

# %% [markdown]
# Bytes and kernels' time fall by the same factor; the launch of the first kernel and the synchronize at the end are paid
# in both, and dilute it.
#
# And a real layer? A Transformer layer of width 1,024 (8 sequences of 1,024 tokens), forward and backward. Suppose that
# the compiler made everything free but the products and attention. **At most how many times faster** would it be?
# (float32 as torch multiplies it by default, `set_float32_matmul_precision("highest")`: no TF32.)

# %% experiment
FASTER = ("less than 1.2", "1.2 to 2", "2 to 4", "more than 4")
prediction = {"float32": ..., "bfloat16": ...}  # each one of FASTER


# %% experiment
def at_most(dtype):
    gpu = simulate("H100")
    with gpu:
        layer = torch.nn.TransformerEncoderLayer(
            1024, 16, 4096, batch_first=True, device=gpu.device, dtype=dtype
        )
        h = torch.empty(8, 1024, 1024, device=gpu.device, dtype=dtype)
        for _ in range(2):  # the first is warm-up
            before = len(gpu.kernels)
            layer(h).sum().backward()
        gpu.synchronize()
    spent = gpu.kernels[before:]
    products = sum(k.duration_s for k in spent if "mm" in k.name or "attention" in k.name)
    return sum(k.duration_s for k in spent) / products


bound = {"float32": at_most(torch.float32), "bfloat16": at_most(torch.bfloat16)}
in_words = {dtype: FASTER[sum(times >= edge for edge in (1.2, 2, 4))] for dtype, times in bound.items()}
lesson.compare_predictions(prediction, in_words, evidence="simulated (H100)", choices=FASTER).show()
lesson.table(
    [(dtype, f"{times:.2f}", f"{1 / times:.0%}") for dtype, times in bound.items()],
    ["a Transformer layer in", "at most, times faster", "share of products and attention"],
    evidence="simulated (H100)",
)

# %% [markdown]
# Fusion leaves products what they are. In bfloat16 the Tensor Cores shorten them far more than the bytes of the rest
# shrink, so the rest weighs more: the faster your products, the more a compiler has to give.

# %% [markdown]
# How many nests does Inductor write for this one?


# %% experiment
def plain_prepare(x):
    x = x - x.min()
    x = x / x.max()
    y = torch.cat([F.silu(half) * 2 for half in x.chunk(2)])
    return y + torch.cat([y[:, 1:], y[:, :1]], 1)


nests = compiling.kernels(plain_prepare, torch.rand(64, 64)).loops
lesson.keep(nests=nests)
print("loop nests:", nests)

# %% [markdown]
# **Exercise 11.5 — fewer walks** (★★, 10 min)
#
# `plain_prepare` takes {{nests}} loop nests (`print(compiling.kernels(plain_prepare, x).readable)` shows them). Write the
# same numbers in three, or in two.
#
# <details><summary>Hint 1</summary>One for the two reductions together, one that makes y, one for its sum with its neighbour. (Two: the
# neighbour computed again from x. Walks against arithmetic.)</details>
#
# <details><summary>Hint 2</summary>The largest of x − min is max − min. SiLU does not care for halves. A rotation has an
# operator of its own, and indexing would do.</details>
#
# <details><summary>The idea</summary><code>lo, hi = x.aminmax()</code>; <code>y = F.silu((x - lo) / (hi - lo)) * 2</code>;
# <code>y + y.roll(-1, 1)</code>.</details>


# %% exercise="prepare"
def prepare(x: torch.Tensor) -> torch.Tensor:
    """The numbers of the function above. x: (n, d) float, any strides, n even, d ≥ 2, not all equal → (n, d).

    Inductor's code for it (compiling.kernels(prepare, x)) has at most 3 loop nests and calls no library, from one graph.
    """
    ### BEGIN SOLUTION
    lo, hi = x.aminmax()
    y = F.silu((x - lo) / (hi - lo)) * 2
    return y + y.roll(-1, 1)
    ### END SOLUTION


# %% test="prepare" points=1
import torch

from helpers.exercises.torch_compile import check_prepare

check_prepare(torch.randn(64, 32, generator=torch.Generator().manual_seed(0)) * 3 + 4)

# %% hidden="prepare" points=3
### BEGIN HIDDEN TESTS
import torch

from helpers.exercises.torch_compile import check_prepare

g = torch.Generator().manual_seed(5)
check_prepare(torch.randn(30, 5, generator=g) * 7 - 20, torch.randn(128, 2, generator=g) + 5)
check_prepare(torch.randn(12, 30, generator=g, dtype=torch.float64).t() * 1e4)
### END HIDDEN TESTS

# %% [markdown]
# ## 5 · What it costs, and the modes
#
# Compiling takes seconds: with empty caches Inductor also calls a C++ compiler (Triton on a GPU). With its cache on disk
# only Dynamo, the guards and the look-up are left. In memory a call checks its guards and runs. The cell below times these,
# and compares later calls with uncompiled ones in pairs (lesson 00). Its last line says after how many calls the first one
# has paid, by a power of ten: more than that no clock supports. (It builds real code and needs a C++ compiler; without one
# it says so.)

# %% experiment tags=["nbval-ignore-output"]
try:
    cost = compiling.seconds(lambda x: torch.relu(x.sin() * x.cos() + x.exp().sqrt()), torch.rand(2**20))
    print(cost)
    print(cost.payback())
except compiling.CannotCompile as problem:
    print(problem)

# %% [markdown]
# And the modes? A mode is nothing but a set of Inductor's options
# ([`list_mode_options`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/__init__.py#L338-L378)). **What
# does `reduce-overhead` set:** "nothing", "fewer
# passes", "no autotuning" or "CUDA graphs"? **And does Inductor then write "the same" kernels for the CPU, or "others"?**

# %% experiment
prediction = {"reduce-overhead sets": ..., "its kernels for the CPU": ...}

# %% experiment
MODES = torch._inductor.list_mode_options()
x = torch.rand(16, 16)
by_mode = {mode: compiling.kernels(rescale, x, mode=mode).bodies() for mode in ("default", "reduce-overhead")}
same_code = by_mode["default"] == by_mode["reduce-overhead"]
sets = MODES["reduce-overhead"]
measured = {
    "reduce-overhead sets": "CUDA graphs"
    if set(sets) == {"triton.cudagraphs"}
    else ", ".join(sets) or "nothing",
    "its kernels for the CPU": "the same" if same_code else "others",
}
said = (("nothing", "fewer passes", "no autotuning", "CUDA graphs"), ("the same", "others"))
lesson.compare_predictions(
    prediction, measured, evidence="live (CPU)", choices=dict(zip(prediction, said, strict=True))
).show()
lesson.table(
    [
        (
            mode,
            ", ".join(f"{k}={v}" for k, v in list(options.items())[:3]) + (", …" if len(options) > 3 else "")
            or "none",
        )
        for mode, options in MODES.items()
    ],
    ["mode", "options it sets"],
    evidence="live (CPU)",
    caption=f"default and reduce-overhead write {'the same' if same_code else 'different'} kernels for the CPU",
)

# %% [markdown]
# `reduce-overhead` sets CUDA graphs: they remove *launch* overhead at run time (lesson 07) and are captured on top of
# compiling; the kernels for the CPU are the same ones. `max-autotune` sets CUDA graphs too, and it compiles variants of
# each product and times them (`max-autotune-no-cudagraphs` does only that). Only `lite` leaves work out: it switches
# Inductor's passes off and calls ATen's own operators, so that it fuses next to nothing. (It is in the source of torch
# 2.13 and not in torch.compile's documentation.) For less compiling there is the cache, `dynamic=True`, and **regional
# compilation**: compile one block of a model that repeats it, and all its copies share the code.
#
# ### Two models
#
# Our stand-in for a pipeline: a small network, called in a loop by an object that also formats, logs and collects.
# Compile the whole object, or the network inside?


# %% experiment
class Block(torch.nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.norm, self.up, self.down = (
            torch.nn.LayerNorm(d),
            torch.nn.Linear(d, 2 * d),
            torch.nn.Linear(2 * d, d),
        )

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Denoiser(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(4))

    def forward(self, x, t):
        for block in self.blocks:
            x = block(x + t)
        return x


class Pipeline:
    def __init__(self):
        self.net, self.logs = Denoiser().eval(), []

    def __call__(self, x, steps=4):
        for step in range(steps):
            x = x - 0.1 * self.net(x, torch.tensor(step / steps))
            self.logs.append(f"step {step}: {x.norm().item():.3f}")
        return x.numpy().round(2)


WAYS = ("torch.compile(pipe)", "torch.compile(pipe, fullgraph=True)", "pipe.net = torch.compile(pipe.net)",
        "block.compile() for each block")  # fmt: skip


def compiled_how(how, calls):
    pipe, ran = Pipeline(), []

    def backend(graph, inputs):
        def run(*args):
            ran.append(graph)
            return graph.forward(*args)

        return run

    with torch.no_grad(), compiling.watch() as w:
        call = pipe
        if "(pipe" in how and "net" not in how:
            call = torch.compile(pipe, backend=backend, fullgraph="fullgraph" in how)
        elif "net" in how:
            pipe.net = torch.compile(pipe.net, backend=backend, fullgraph=True)
        else:
            for block in pipe.net.blocks:
                block.compile(backend=backend, fullgraph=True)
        for steps in calls:
            call(torch.ones(2, 16), steps)
    w.runs = len(ran)
    return w


ways = {how: compiled_how(how, [4]) for how in WAYS}
eight = {how: compiled_how(how, [8]).operators for how in WAYS}
thrice = {how: compiled_how(how, [4, 4, 4]) for how in WAYS[1:3]}
lesson.table(
    [(how, len(w.graphs), w.operators, eight[how], len(w.breaks), w.runs) for how, w in ways.items()],
    ["", "graphs", "operators in them", "for 8 steps", "breaks", "runs"],
    evidence="live (CPU)",
    caption="four blocks; but for one column, four steps",
).show()
assert ways[WAYS[0]].operators == ways[WAYS[2]].operators  # by accident: the network's own graph
for c in ways[WAYS[0]].failures:
    print(f"left to Python: {c.function}: {c.failed}")
for b in ways[WAYS[0]].breaks:
    print(f"the break: {b.where.partition(' in ')[2]}: {b.line}\n   {b.reason}")
for how, w in thrice.items():
    why = f" (again: {'; '.join(r.reason for r in w.recompiles)})" if w.recompiles else ""
    print(f"graphs after three calls of four steps, {how}: {len(w.graphs)}{why}")

# %% [markdown]
# In the first row Dynamo met a break in a loop and left all of `__call__` to Python. Python called the network, and that
# was compiled: the same graph as in the third row, found by accident. `fullgraph=True` does capture the whole pipe, with
# the number that the log reads out, and that is worse: the loop is unrolled, so that the graph, and the code to be
# written for it, grows with the steps; and the length of `self.logs` is guarded, so that each call compiles it again.
# Compile the part that computes (third row), where `fullgraph=True` keeps the accident from ending unseen. The last row is
# regional compilation: one graph of one block, which all four blocks run.
#
# Now the real classes, a BERT encoder and a diffusion UNet in small sizes with random weights (without `transformers` and
# `diffusers` this cell shows our network, called in the same two ways). BERT's length changes; the UNet's time step is an
# argument, and an int or a tensor, as you choose:

# %% experiment tags=["nbval-ignore-output", "fold"]
try:
    import contextlib
    import io
    import logging

    logging.disable(logging.WARNING)
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from diffusers import UNet2DModel
        from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    bert = BertModel(BertConfig(vocab_size=50, **sizes)).eval()
    unet = UNet2DModel(
        sample_size=8, layers_per_block=1, norm_num_groups=8, block_out_channels=(8,), mid_block_type=None,
        down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",), add_attention=False,
    ).eval()  # fmt: skip
    image = torch.rand(1, 3, 8, 8)
    models = [
        (
            "BERT, dynamic=True, lengths 8, 12, 20",
            bert,
            True,
            [(torch.ones(2, n, dtype=torch.int64),) for n in (8, 12, 20)],
        )
    ]
except ImportError:
    print("transformers and diffusers are not installed here (`make lab EXTRAS=models`): our stand-in")
    unet, image = Denoiser().eval(), torch.rand(2, 16)
    models = []
finally:
    logging.disable(logging.NOTSET)
# %% experiment tags=["nbval-ignore-output"]
models += [
    ("UNet, time step as an int", unet, None, [(image, t) for t in (9, 6, 3)]),
    ("UNet, time step as a tensor", unet, None, [(image, torch.tensor(t)) for t in (9, 6, 3)]),
]
rows = []
for name, model, dynamic, calls in models:
    with torch.no_grad(), compiling.watch("eager") as w:
        fast = torch.compile(model, dynamic=dynamic)
        for call in calls:
            fast(*call)
    why = w.recompiles[0].reason if w.recompiles else ""
    numbers = w.counts()
    rows.append((name, numbers["compilations"], numbers["operators"], numbers["graph_breaks"], why))
# an int time step, a tensor; breaks
assert [r[1] for r in rows[-2:]] == [2, 1] and not any(r[3] for r in rows)
lesson.table(rows, ["model", "graphs", "operators", "breaks", "compiled again"], evidence="live (CPU)")

# %% [markdown]
# The real classes have no breaks, and one compiled version serves BERT's three lengths. A time step that comes as an int
# is compiled for its first value, and again as a symbol; as a tensor it is compiled once.
#
# ## On the real GPU
#
# Eager against compiled, for the chain of section 4 and a matrix product, live where there is a CUDA GPU. No recording
# exists yet; without a GPU the simulated figure above is all there is. Look whether the product gains anything.


# %% experiment
def eager_and_compiled():
    from helpers import bench

    x = torch.rand(4096, 4096, device="cuda")
    chain = lambda x: x.exp().neg().tanh().sigmoid().sin().relu()  # noqa: E731
    rows = {}
    for name, fn in {"six operators": chain, "a product": lambda x: x @ x}.items():
        for how, f in (("eager", fn), ("compiled", torch.compile(fn))):
            rows[f"{name}, {how}"] = bench(f, x).median_s
    return rows


lesson.on_gpu(eager_and_compiled, recording="11/eager_and_compiled")

# %% [markdown]
# ## Sources on trial

# %% experiment tags=["fold"]


def short(text, most=60):
    return text if len(text) <= most else text[:most].rpartition(" ")[0] + " …"


def tried(fn):
    try:
        with compiling.watch():
            fn()
        return "ran"
    except Exception as problem:
        return short(f"{type(problem).__name__}: {' '.join(str(problem).split())}")


def three_steps():
    traced = torch.fx.symbolic_trace(torch.nn.Linear(4, 4))
    return torch.compile(torch._dynamo.optimize(traced))(torch.rand(2, 4))


x = torch.rand(3)
tensorrt = tried(lambda: torch.compile(rescale, backend="tensorrt")(x))
option = tried(lambda: torch.compile(rescale, options={"dynamic": True})(x))
negative = tried(lambda: torch.randn((-1, 3, 32, 32)))
steps = tried(three_steps)
whole, full, inner, _ = ways.values()
kept = [name for name, (_, full_) in both.items() if full_[0] == "error"]
sections = (
    "1 · What is captured",
    "2 · What is assumed",
    "4 · The kernel, read",
    "5 · What it costs, and the modes",
)
gone = lambda said: "refuted" if said != "ran" else "confirmed"  # noqa: E731
rows = [
    ("11-reduce-overhead", "compile-300", 'mode="reduce-overhead" reduces compile time',
     f"it sets {', '.join(MODES['reduce-overhead'])}; the kernels for the CPU are {'the same' if same_code else 'others'}",
     "refuted: the same code is written, and CUDA graphs come on top" if "triton.cudagraphs" in MODES["reduce-overhead"] else "untested",
     sections[3]),
    ("11-tensorrt", "compile-300", 'backend="tensorrt"', tensorrt,
     gone(tensorrt) + (" for torch alone: another package would have to register it" if tensorrt != "ran" else ""),
     "Sources on trial"),
    ("11-options-dynamic", "compile-300", 'options={"dynamic": True} gives dynamic shapes',
     f"{option}; dynamic=True: {streams['dynamic=True'][0][-1]} compilations for {len(set(STREAM))} sizes", gone(option),
     sections[1]),
    ("11-randn", "compile-300", "torch.randn((-1, 3, 32, 32)) is a dynamic input", negative, gone(negative),
     "Sources on trial"),
    ("11-three-steps", "compile-300", "symbolic_trace, then _dynamo.optimize(traced), then torch.compile", steps,
     gone(steps) + (": optimize takes a backend and gives no function" if steps != "ran" else ""),
     "Sources on trial"),
    ("11-pipe", "compile-300", "torch.compile(pipe) compiles a diffusion pipeline",
     f"stand-in: {len(whole.breaks)} break, {whole.operators} operators captured; fullgraph=True: {full.operators}, for 8 steps "
     f"{eight[WAYS[1]]}, {len(thrice[WAYS[1]].graphs)} graphs after 3 calls; its network alone: {inner.operators}, {len(thrice[WAYS[2]].graphs)} graph",
     "holds when Python between the graphs is acceptable; compile the network inside"
     if full.operators > inner.operators else "confirmed", sections[3]),
    ("11-300-percent", "compile-300", "training 300 % faster (72 h → 24 h), steps of 800 ms → 200 ms",
     f"72 ÷ 24 is {72 / 24:.0f} times, {72 / 24 - 1:.0%} faster, while its steps are {800 / 200:.0f} times; simulated: the chain of "
     f"six {fused_ratio:.1f} times (forward only), a Transformer layer, forward and backward, at most {bound['float32']:.1f} (float32), {bound['bfloat16']:.1f} (bfloat16): "
        f"products take {1 / bound['float32']:.0%} and {1 / bound['bfloat16']:.0%} of it",
        "holds when products take at most a third of a step, and the rest costs next to nothing" if max(bound.values()) < 3
     else "untested: the model is not given", sections[2]),
    ("11-fullgraph", "book-notes", "fullgraph=True gives the whole graph", f"of {len(both)} functions with a break, {len(both) - len(kept)} in one graph; an error for: {', '.join(kept)}",
     "holds when what breaks is a number or a size read from the data; it raises otherwise" if kept else "confirmed", sections[0]),
]  # fmt: skip
lesson.verdicts(rows, evidence="live (CPU) · simulated (H100)")

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | `fullgraph=True` in everything you compile on purpose. | It captures numbers and sizes read from the data, and raises at the rest; it raises at the recompile limit too. |
# | Sizes that change: `dynamic=True`, or let Dynamo find out. | A 1 is a size of its own; a view brings its base's sizes. |
# | Number arguments may change. | `range(k)` and an int attribute of a module are guarded by value: {{limit}} versions, then a warning and plain Python, or with `fullgraph=True` an error. |
# | Fusion saves bytes, not products. | The faster the products (bfloat16), the more the rest weighs. |
# | Write reductions so that none waits for another. | Softmax over rows waits too, for a row at a time, and is one nest. |
# | Compile the model or its repeated block, not the program around it. | The whole pipe may compile its network by accident; as one graph it grows with its steps. |
#
# **Checklist for your own code**
# - [ ] `compiling.explain(model, x)`: how many graphs, which breaks?
# - [ ] A day of real shapes through `compiling.watch()`: how many recompiles, and did anything give up?
# - [ ] Does a counter or a schedule live in a module as a Python int?
# - [ ] How long is the compile, how many calls pay it, and is the cache kept between jobs?
# - [ ] Which share of the step are matrix products?
#
# **Read on**: PyTorch's documentation, *torch.compiler*: *Dynamo core concepts*, *Dealing with recompilations*, *Common graph
# breaks*; J. Ansel and others, *PyTorch 2: faster machine learning through dynamic Python bytecode transformation and
# graph compilation* (2024).
