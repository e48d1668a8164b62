# %% [markdown]
# # 06 · Optimizers
#
# ## Why are there three AdamWs?
#
# `AdamW(params, foreach=False)`, `foreach=True`, `fused=True`: one formula, three programs. (`AdamW(params)` chooses
# one of the first two: foreach where all parameters are on a CUDA GPU, the for-loop on a CPU. See
# [`_default_to_fused_or_foreach`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/optim/optimizer.py).) An
# optimizer does almost no arithmetic. It walks over every weight, its gradient and two running means, and so it shows
# two things without disguise: what a *launch* costs, and what a *byte* costs. Which of the two your step pays decides
# which of the three you want. The same question, asked of the whole training step, decides the batch size.
#
# **Time** 60–70 min, half of it exercises. **Before this** lessons 00 to 02 (the simulated GPU, operators and
# their counts, autograd).
#
# **Afterwards you can**
# - write AdamW in 8 operators per parameter, and in 8 for all of them, or in groups under a memory limit;
# - make gradients die as they are born, and say what that forbids;
# - predict an optimizer's step from launches and bytes, and say what a larger batch buys and what it asks of
#   the learning rate.
#
# **On trial** *every optimizer has three implementations* · *they trade speed against memory* · *batch size
# raises the efficiency of operators through parallelism* (book notes) · *FusedAdam reduces kernel launches* ·
# *scale the learning rate in proportion to the batch* (five strategies).

# %% setup
import math

import torch

from helpers import lesson, plots, simulate

torch.set_num_threads(1)  # small tensors: more threads would mostly wait for one another
lesson.start("06_optimizers", evidence=["live (CPU)", "simulated (H100)"])

# %% [markdown]
# ## 1 · Three ways to the same numbers
#
# A net of 12 linear layers has 24 parameters: a matrix and a bias each. How many **kernels** does one step of
# AdamW launch on a GPU, for-loop, foreach and fused: 2, 8, 24 or 192? And which of the three makes the most temporary
# memory?

# %% experiment
prediction = {
    "kernels, for-loop": ...,  # 2, 8, 24 or 192
    "kernels, foreach": ...,
    "kernels, fused": ...,
    "most temporaries": ...,  # "for-loop", "foreach" or "fused"
}

# %% experiment
WAYS = {"for-loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
LAYERS = [256 * 256, 256] * 12  # weights of each of the 24 parameters


def adamw_step(sizes, way):
    """A warm AdamW step on a simulated H100: its kernels, seconds, and bytes of temporaries."""
    gpu = simulate("H100")
    with gpu:
        params = [torch.nn.Parameter(torch.empty(n, device=gpu.device)) for n in sizes]
        for p in params:
            p.grad = torch.empty_like(p)
        optimizer = torch.optim.AdamW(params, **WAYS.get(way, {}))
        optimizer.step()  # makes the state, loads the kernels
        gpu.synchronize()
        gpu.reset_peak_memory_stats()
        before, held, began = len(gpu.kernels), gpu.memory_allocated(), gpu.clock()
        optimizer.step()
        gpu.synchronize()
        return {
            "kernels": gpu.kernels[before:],
            "seconds": gpu.clock() - began,
            "temporary": gpu.max_memory_allocated() - held,
        }


on_card = {way: adamw_step(LAYERS, way) for way in WAYS}

# %% experiment
measured = {f"kernels, {way}": len(step["kernels"]) for way, step in on_card.items()}
measured["most temporaries"] = max(on_card, key=lambda way: on_card[way]["temporary"])
lesson.compare_predictions(
    prediction,
    measured,
    evidence="simulated (H100)",
    choices=(2, 8, 24, 192, "for-loop", "foreach", "fused"),
).show()
unasked = len(adamw_step(LAYERS, "neither foreach= nor fused=")["kernels"])
assert unasked == measured["kernels, foreach"] and measured["kernels, for-loop"] == 24 * unasked
bytes_each = {way: sum(k.bytes for k in step["kernels"]) / sum(LAYERS) for way, step in on_card.items()}
lesson.keep(unasked=unasked, loop_bytes=bytes_each["for-loop"], fused_bytes=bytes_each["fused"])


def trained(way, steps=3):
    """All weights after a few steps on this CPU."""
    g = torch.Generator().manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(n, generator=g)) for n in LAYERS]
    optimizer = torch.optim.AdamW(params, lr=0.01, **WAYS[way])
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, generator=g)
        optimizer.step()
    return torch.cat([p.detach() for p in params])


weights, by_loop = sum(LAYERS), trained("for-loop")
rows = []
for way, step in on_card.items():
    off = (trained(way) - by_loop).abs().max()
    moved = sum(k.bytes for k in step["kernels"]) / weights
    temporaries = step["temporary"] / 4 / max(LAYERS)
    rows.append(
        (way, len(step["kernels"]), f"{moved:.0f}", f"{temporaries:.1f}", f"≈ {off:.0e}" if off else "0")
    )
lesson.table(
    rows,
    ["way", "kernels", "bytes moved per weight", "temporaries ÷ largest", "off by"],
    evidence="live (CPU) · simulated (H100)",
    caption=f"24 parameters in float32, {weights:,} weights. Temporaries in copies of the largest parameter. Off "
    "by: the largest difference of a weight to the for-loop's, after three steps on this CPU",
)

# %% [markdown]
# The numbers agree (a fused kernel rounds in another order), the costs do not. `AdamW(params)`, with neither word, also
# takes {{unasked}} kernels on this GPU: what people compare with fused is usually foreach.
#
# - **for-loop**: eight kernels per parameter. Temporaries are the root of *one* parameter's v and that root
#   divided, whose names the next turn of the loop overwrites.
# - **foreach**: the same eight for the whole list. Each `torch._foreach_*` operator takes lists, and CUDA's
#   *multi-tensor apply* packs the list into one launch. But the roots of all 24 parameters now exist at the
#   same time: a copy of the model.
# - **fused**: first a tiny kernel that counts the steps, then one that keeps a weight's four numbers in
#   registers from the first to the last formula. No root is ever stored. A compiler can write such a kernel
#   from your own formula: lesson 11.
#
# So the first two trade launches against memory. The third has the fewest launches, no temporaries and the fewest
# bytes: {{fused_bytes:.0f}} for each weight in place of {{loop_bytes:.0f}}. It only has to exist. (The last table of
# this lesson has the same three for GPT-2's parameters.)
#
# Does every optimizer have all three? And is "one launch" always one?

# %% experiment tags=["fold"]
import inspect

kinds = {
    name: set(inspect.signature(kind).parameters)
    for name, kind in vars(torch.optim).items()
    if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
}
having = {way: [name for name, options in kinds.items() if way in options] for way in ("foreach", "fused")}
lesson.table(
    [
        ("all", len(kinds), ""),
        (
            "take foreach=",
            len(having["foreach"]),
            f"not: {', '.join(sorted(kinds.keys() - having['foreach']))}",
        ),
        ("take fused=", len(having["fused"]), ", ".join(sorted(having["fused"]))),
    ],
    ["optimizers in torch.optim", "how many", "which"],
    evidence="live (CPU)",
).show()


def launches_of(*lists):
    """Kernels of one `_foreach_addcdiv_` over three lists; each function makes a list's tensors on a device."""
    gpu = simulate("H100")
    with gpu:
        made = [make(gpu.device) for make in lists]
        before = len(gpu.kernels)
        torch._foreach_addcdiv_(*made, -0.1)
        return len(gpu.kernels) - before


def plain(device, n=24, turned=False):
    return [
        torch.empty(40, 25, device=device) if not turned else torch.empty(25, 40, device=device).t()
        for _ in range(n)
    ]


def mixed(device):
    return [t.bfloat16() if i % 2 else t for i, t in enumerate(plain(device))]


packed = {
    "24 tensors of 40 × 25": launches_of(plain, plain, plain),
    "1,000 of them": launches_of(*[lambda device: plain(device, 1000)] * 3),
    "24, every second in bfloat16": launches_of(mixed, mixed, mixed),
    "24, the second list's transposed in memory": launches_of(plain, lambda d: plain(d, turned=True), plain),
}
lesson.table(
    list(packed.items()),
    ["three lists", "kernels of one `_foreach_addcdiv_`"],
    evidence="simulated (H100)",
    caption="by the rules of PyTorch 2.13's MultiTensorApply.cuh, in builds with CUDA 13",
)

# %% [markdown]
# A launch carries a table of addresses in its arguments, and these have a fixed size, so a very long list
# takes a few launches, which nobody notices. The last two rows one does notice: **lists of mixed dtypes, or of layouts
# that differ from one list to the other, quietly take a kernel per tensor**
# ([`ForeachUtils.h`](https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/ForeachUtils.h)).
# (`torch.optim` therefore sorts by device and dtype first; your own `_foreach_` code has to do that itself.)
#
# Now build the first two. This is AdamW at step t (Loshchilov and Hutter, *Decoupled weight decay
# regularization*, 2019):

# %% [markdown]
# **Exercise 6.1 — AdamW, one parameter after the other** (★★, 8 min)
#
# | in words | formula |
# |---|---|
# | weight decay, on the weight itself | p ← p · (1 − lr · weight_decay) |
# | running mean of the gradient | m ← β₁ · m + (1 − β₁) · g |
# | running mean of its square | v ← β₂ · v + (1 − β₂) · g² |
# | the step, with both means made unbiased | p ← p − lr · m̂ ÷ (√v̂ + eps), m̂ = m ÷ (1 − β₁ᵗ), v̂ = v ÷ (1 − β₂ᵗ) |
#
# Taken literally, every sign in it is an operator and a new tensor. You have eight operators per parameter.
#
# <details><summary>Hint 1</summary>Every line but the last changes one tensor: each is one or two operators whose name ends
# in an underscore. <code>lerp_</code> moves a tensor part of the way to another, <code>addcmul_</code> adds a scaled
# product, <code>addcdiv_</code> a scaled quotient.</details>
#
# <details><summary>Hint 2</summary>1 − β₁ᵗ and 1 − β₂ᵗ are Python numbers and cost no operator. m̂ need not exist: its divisor
# goes into the <code>value=</code> of the last operator.</details>
#
# <details><summary>The idea</summary><code>p.mul_(1 − lr·wd)</code>; <code>m.lerp_(g, 1 − β₁)</code>;
# <code>v.mul_(β₂).addcmul_(g, g, value=1 − β₂)</code>;
# <code>root = v.sqrt().div_(math.sqrt(1 − β₂ᵗ)).add_(eps)</code>;
# <code>p.addcdiv_(m, root, value=−lr ÷ (1 − β₁ᵗ))</code>. That is 1 + 1 + 2 + 3 + 1.</details>


# %% exercise="adamw_loop"
def adamw_loop(
    params: list[torch.Tensor],
    grads: list[torch.Tensor],
    means: list[torch.Tensor],
    squares: list[torch.Tensor],
    step: int,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
) -> None:
    """One step of AdamW, in place: params, means (m) and squares (v) change, grads do not.

    params, grads, means, squares: n ≥ 1 tensors each; the i-th four have one shape (also () and (0, 3)) and one
        dtype, float32 or float64; strides are any, and a gradient may be expanded. The caller has switched gradients
        off.
    step: t, the number of this step, from 1.

    The numbers are those of torch.optim.AdamW (to 10 decimals in float64). Budget: 8 operators per
    parameter, no syncs, and beyond its inputs at most 2 arrays of the largest parameter alive at once (the
    root of v, and the one that the next turn of a loop makes before the name lets go of it). torch's own
    AdamW in one operator, torch._fused_adamw_, is for later.
    """
    ### BEGIN SOLUTION
    correction1, correction2 = (1 - beta**step for beta in betas)
    for p, g, m, v in zip(params, grads, means, squares, strict=True):
        p.mul_(1 - lr * weight_decay)
        m.lerp_(g, 1 - betas[0])
        v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
        root = v.sqrt().div_(math.sqrt(correction2)).add_(eps)
        p.addcdiv_(m, root, value=-lr / correction1)
    ### END SOLUTION


# %% test="adamw_loop" points=1
from helpers.exercises.optimizers import check_adamw_loop, stepping

bare = {"lr": 0.1, "weight_decay": 0.0, "eps": 0.0}
for fresh, t, new, note in (
    (True, 1, {}, "Fresh state, no decay, no eps. Means and squares right, params not: the two corrections."),
    (True, 1, {"weight_decay": 0.5}, "Only the decay is new: of the weight, not of g, and before the step?"),
    (True, 1, {"eps": 0.5}, "Only eps is new: is it added outside of the root, to √v̂ and not to √v?"),
    (False, 9, {"betas": (0.8, 0.95)}, "Now m and v hold something, and t is 9: is every β the right one?"),
):
    check_adamw_loop(stepping([(2, 3), 4], t, fresh=fresh, **bare | new), note=note)
check_adamw_loop(stepping([(64, 32), 32, (32, 64), 64], 5, single=True, eps=0.1), costs=True)

# %% hidden="adamw_loop" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.optimizers import check_adamw_loop, stepping

check_adamw_loop(
    stepping([(5, 7), 7, (2, 3, 4)], 1, lr=0.3, weight_decay=0.5),
    stepping([6, (4, 4)], 40, lr=0.2, betas=(0.5, 0.9), eps=0.3, weight_decay=0.0),
    stepping([()], 1000, lr=0.5, eps=0.01),
    stepping([(5, 7), (0, 3), 6, (2, 3, 4)], 3, single=True, odd=True, lr=0.3),
)
check_adamw_loop(
    stepping([(40, 30)] * 7 + [50], 2, single=True, eps=0.1),
    stepping([(200, 100), 3, (10, 90), 70], 6, lr=0.1, eps=0.1, weight_decay=0.5),
    costs=True,
)
### END HIDDEN TESTS

# %% [markdown]
# **Exercise 6.2 — AdamW on lists, with a memory limit** (★★, 10 min)
#
# The same step in `torch._foreach_*` operators, each of which takes lists. Their price is that the roots of
# *all* v exist at once. So give it a limit: with `temp_bytes` the lists are cut into groups, and only one
# group's roots may exist at a time. A limit of one byte is the loop, no limit is torch's foreach, and you may
# choose anything between.
#
# <details><summary>Hint 1</summary>First without a limit: <code>m.lerp_(g, w)</code> becomes
# <code>torch._foreach_lerp_(means, grads, w)</code>, and so on, line by line. Which of them must not be in
# place? Only that one returns a list.</details>
#
# <details><summary>Hint 2</summary>Walk through the parameters and begin a new group when the next would not
# fit. A name that still holds the last group's list keeps its bytes alive while the next group makes its own.</details>
#
# <details><summary>The idea</summary>A helper function does one group in eight operators: when it returns, its
# temporaries are gone. The function itself only cuts: while the group's bytes plus the next parameter's are
# at most the limit, append; else hand the group over and start a new one.</details>


# %% exercise="adamw_foreach"
def adamw_foreach(
    params: list[torch.Tensor],
    grads: list[torch.Tensor],
    means: list[torch.Tensor],
    squares: list[torch.Tensor],
    step: int,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    temp_bytes: int | None = None,
) -> None:
    """The same step as adamw_loop, in few operators, with at most temp_bytes of temporaries.

    temp_bytes: None for no limit. A parameter larger than the limit makes a group of its own.

    Budgets: without a limit 8 operators, however many parameters, and one array for each parameter alive at
    once. With a limit 8 · (1 + 2 · total ÷ temp_bytes) operators, as two neighbouring groups are together
    larger than the limit, and at most max(temp_bytes, the largest parameter) bytes alive. 1 KiB is left over
    for numbers.
    """
    ### BEGIN SOLUTION
    correction1, correction2 = (1 - beta**step for beta in betas)

    def group(p, g, m, v):
        torch._foreach_mul_(p, 1 - lr * weight_decay)
        torch._foreach_lerp_(m, g, 1 - betas[0])
        torch._foreach_mul_(v, betas[1])
        torch._foreach_addcmul_(v, g, g, 1 - betas[1])
        roots = torch._foreach_sqrt(v)
        torch._foreach_div_(roots, math.sqrt(correction2))
        torch._foreach_add_(roots, eps)
        torch._foreach_addcdiv_(p, m, roots, -lr / correction1)

    first, held = 0, 0
    for i, p in enumerate(params):
        if temp_bytes is not None and i > first and held + p.nbytes > temp_bytes:
            group(params[first:i], grads[first:i], means[first:i], squares[first:i])
            first, held = i, 0
        held += p.nbytes
    group(params[first:], grads[first:], means[first:], squares[first:])
    ### END SOLUTION


# %% test="adamw_foreach" points=2
from helpers.exercises.optimizers import check_adamw_foreach, stepping

uneven = [(42, 50), (30, 50), (50, 30), 10, (30, 50), (35, 40), 5, 400]  # the first alone is over the limit
check_adamw_foreach(
    stepping([(40, 30), 30] * 10, 4, single=True, lr=0.1, eps=0.1),
    stepping([(40, 30), 30] * 10, 4, single=True, lr=0.1, eps=0.1, temp_bytes=20_000),
    stepping(uneven, 4, single=True, eps=0.1, temp_bytes=8_000),
)

# %% hidden="adamw_foreach" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.optimizers import check_adamw_foreach, stepping

uneven = [(60, 50), 50, 10, (100, 90), 90, (20, 20), (70, 7), 7, 3, (30, 50)]
check_adamw_foreach(
    stepping([(3, 5), 5, 2], 1, lr=0.3, weight_decay=0.5),
    stepping([(5, 4), 4, 7], 8, lr=0.2, betas=(0.5, 0.9), eps=0.3, temp_bytes=100),
    stepping([4, (5, 8), 9, 1, 3], 30, lr=0.2, temp_bytes=80),
    stepping([(4, 4)], 2, lr=0.2, temp_bytes=1),
    stepping([(30, 20)] * 50, 3, True, lr=0.1, eps=0.1),
    stepping(uneven, 3, True, lr=0.1, eps=0.1, temp_bytes=15_000),
    stepping(uneven[::-1], 3, temp_bytes=30_000),
    stepping([(30, 20)] * 30, 3, True, temp_bytes=2_400),
    stepping([10] * 30 + [(50, 40)] * 4, 3, True, lr=0.1, eps=0.1, temp_bytes=8_200),
    stepping([(), (5, 4), (), (0, 3), 1], 8, single=True, odd=True, lr=0.2, temp_bytes=40),
    stepping([(30, 20)] * 30, 3, temp_bytes=10_000),
    stepping([(40, 30)] * 30, 3, single=True, odd=True, temp_bytes=15_000),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · When does a gradient die?
#
# Now the gradients themselves. Sixteen square weights, a tiny batch, and plain SGD, which has no state and no
# temporaries. Three ways to end a step: `zero_grad` that fills with zeros (`set_to_none=False`), `zero_grad()`
# as it is by default, and a step *inside* backward, where a hook uses each gradient and drops it the moment it
# is complete. **How many arrays of a weight's size live at the peak, beside the weights**: 1, 2, 16, 17 or 32?

# %% experiment
prediction = {"filled with zeros": ..., "set to None": ..., "step inside backward": ...}  # 1, 2, 16, 17 or 32


# %% experiment tags=["fold"]
def memory_over_a_step(ending, layers=16, width=2048):
    """Arrays beside the weights (most since the moment before, last value: at the end), and kernels of the step."""
    gpu, seen = simulate("H100"), []
    with gpu:
        params = [torch.nn.Parameter(torch.empty(width, width, device=gpu.device)) for _ in range(layers)]
        x = torch.empty(4, width, device=gpu.device)
        optimizer = torch.optim.SGD(params, lr=0.1, foreach=False)

        def use_and_drop(p):
            p.sub_(p.grad, alpha=0.1)
            p.grad = None

        def note(_=None):
            seen.append(gpu.max_memory_allocated())
            gpu.reset_peak_memory_stats()

        def step():
            h = x
            for p in params:
                h = torch.tanh(h @ p)
            h.square().mean().backward()
            del h
            optimizer.step()  # finds no gradients if the hooks have dropped them
            note()
            optimizer.zero_grad(set_to_none=ending != "filled with zeros")

        for p in params:
            if ending == "step inside backward":
                p.register_post_accumulate_grad_hook(use_and_drop)
            p.register_post_accumulate_grad_hook(note)
        step()
        seen.clear()
        gpu.reset_peak_memory_stats()
        before = len(gpu.kernels)
        note()
        step()
        kernels = len(gpu.kernels) - before
        seen.append(gpu.memory_allocated())
        optimizer.zero_grad()
        always = gpu.memory_allocated()  # weights, and the matrix library's workspace
    return [(held - always) / params[0].nbytes for held in seen], kernels


endings = {ending: memory_over_a_step(ending) for ending in prediction}
peaks = {ending: round(max(seen)) for ending, (seen, _) in endings.items()}
said = lesson.compare_predictions(prediction, peaks, evidence="simulated (H100)", choices=(1, 2, 16, 17, 32))
ran = {ending: kernels for ending, (_, kernels) in endings.items()}
assert ran["filled with zeros"] - ran["set to None"] == 2 * 16
lesson.keep(zeros=peaks["filled with zeros"], none=peaks["set to None"], inside=peaks["step inside backward"])
lesson.table(
    [(*row, kernels) for row, (_, kernels) in zip(said.rows, endings.values(), strict=True)],
    ["ending", "arrays at the peak", "you said", "kernels of the whole step"],
    evidence="simulated (H100)",
    caption=said.caption,
)

# %% experiment tags=["fold"]
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from helpers.plots import style
from helpers.plots.picture import Picture, drawn
from helpers.timing import format_seconds


def number(value, _=None):
    return f"{value:,.10g}"


@drawn
def curves(panels, *, evidence, title, xlabel, ylabel, note="", log="", yfmt=number, xticks=None):
    """Panels side by side: title → name → (x, y). log: "x", "y" or "xy". xticks: position → label."""
    fig, _ = style.figure(3.3, evidence=evidence, title=title, note=note)
    for ax, (head, series) in zip(
        fig.subplots(1, len(panels), squeeze=False, sharey=True)[0], panels.items(), strict=True
    ):
        for i, (name, (x, y)) in enumerate(series.items()):
            ax.plot(x, y, marker=style.MARKERS[i], markersize=5, color=style.SERIES[i], label=name)
        for axis in log:
            ax.set(**{f"{axis}scale": "log"})
            getattr(ax, f"{axis}axis").set_minor_formatter(NullFormatter())
        if log != "x":
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if log else MaxNLocator(integer=True))
        ax.xaxis.set_major_formatter(number)
        ax.yaxis.set_major_formatter(yfmt)
        if xticks:
            ax.set_xticks(list(xticks), list(xticks.values()))
        ax.set(title=head, xlabel=xlabel, ylabel=ylabel)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), labelspacing=1.0)
    return Picture(fig, evidence, f"{title}: {ylabel} against {xlabel} for {', '.join(series)}")


curves(
    {"": {ending: (range(len(seen)), seen) for ending, (seen, _) in endings.items()}},
    evidence="simulated (H100)",
    title="Memory through one step: 16 gradients come, and when do they go?",
    note="each point: the most since the point before it; the last: what is left",
    xlabel="gradients complete, then step(), then zero_grad()",
    ylabel="arrays beside the weights",
    xticks={0: "start", **{n: str(n) for n in range(1, 17)}, 17: "step()", 18: "   end"},
)

# %% [markdown]
# Filled with zeros, all gradients live for ever, and the next backward *adds* to them: each new gradient lives
# for a moment beside the old one, and it takes a kernel per parameter for the zeros and one more for the sum.
# Set to `None`, they are freed, and the next backward hands its result over as it is. But the peak is hardly
# lower, {{none}} arrays in place of {{zeros}}: at the end of backward all of them exist (and AdamW's temporaries come
# on top). Only the third stays low, at {{inside}}.
#
# With AdamW there are four arrays for each parameter, weights, gradients, m and v; this saves one of the four. What it
# forbids: anything that wants all gradients at once (clipping by the *total* norm, `GradScaler`, which skips a whole
# step if one gradient is infinite), and adding up several backwards before a step. (Lesson 09 has more on the peak.)

# %% [markdown]
# **Exercise 6.3 — step inside backward** (★★, 6 min)
#
# The experiment's third way, with AdamW in place of SGD. Write the function that sets the hooks up with
# `p.register_post_accumulate_grad_hook(hook)`: from then on, `backward()` alone trains. (`hook(p)` is called
# when `p.grad` is complete, gradients from several uses added up.) The step itself may be your `adamw_loop` of
# 6.1, or a `torch.optim.AdamW` for each parameter.
#
# <details><summary>Hint 1</summary>One hook function serves all parameters: it is called with the parameter. So
# whatever it has to remember about each of them lies in a dict.</details>
#
# <details><summary>Hint 2</summary>Each parameter needs its m, its v and its own step number: a parameter that
# took no part in a backward gets no call and makes no step. <code>p.grad = None</code> lets go of the
# bytes.</details>
#
# <details><summary>The idea</summary>A dict from parameter to <code>[0, zeros_like(p), zeros_like(p)]</code>. The
# hook adds 1 to its step number, calls <code>adamw_loop([p], [p.grad], [m], [v], step, …)</code> and sets
# <code>p.grad = None</code>. Gradients are switched off inside hooks already.</details>


# %% exercise="step_in_backward"
def step_in_backward(
    params: list[torch.nn.Parameter],
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
) -> list:
    """From now on, every backward() also makes the AdamW step of each parameter that got a gradient.

    params: leaves that want gradients, float32 or float64, used once or several times in the forward. Returns the
    handles of the hooks: handle.remove() ends it; called again, it begins anew.

    After backward(), every p.grad is None, and the weights are those of torch.optim.AdamW after backward()
    and step(), as if zero_grad() followed. Budget for everything that lives, state included: 2 arrays for
    each parameter (m and v), 3 of the largest (a gradient, the root, and one to spare), and activations.
    """
    ### BEGIN SOLUTION
    steps = {p: 0 for p in params}
    state = {p: (torch.zeros_like(p), torch.zeros_like(p)) for p in params}

    def hook(p):
        steps[p] += 1
        step, (m, v) = steps[p], state[p]
        adamw_loop([p], [p.grad], [m], [v], step, lr, betas, eps, weight_decay)
        p.grad = None

    return [p.register_post_accumulate_grad_hook(hook) for p in params]
    ### END SOLUTION


# %% test="step_in_backward" points=2
from helpers.exercises.optimizers import check_step_in_backward, net

check_step_in_backward(
    net([5] * 4, 4, [[0, 1, 2]] * 4, lr=0.05, weight_decay=0.1),
    net([5] * 4, 4, [[0, 1, 2], [0, 2], [0, 1, 2]], lr=0.05),  # the second leaves weight 1 out
)
check_step_in_backward(net([64] * 13, 2, [list(range(12))] * 3, single=True), costs=True)

# %% hidden="step_in_backward" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.optimizers import check_step_in_backward, net

check_step_in_backward(
    net([6] * 4, 5, [[0, 1, 2]] * 5, ends=True, lr=0.1, betas=(0.7, 0.9), eps=0.01),
    net([6] * 4, 5, [[0, 1, 0, 2]] * 3, ends=True, lr=0.1, weight_decay=0.3),
    net([6] * 5, 5, [[0, 1, 2, 3], [0, 2], [0, 3, 1], [2, 2, 0]], ends=True, lr=0.1),
)
check_step_in_backward(
    net([96] * 17, 1, [list(range(16))] * 2, True, ends=True),
    net([50, 80, 60, 80, 70, 80, 40, 90, 60, 80], 2, [list(range(9))] * 3, ends=True, lr=0.01),
    costs=True,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · Launches or bytes?
#
# Now time. The same 16.8 million weights are dealt into 1, 4, … 256 parameters of equal size. How many
# *times as fast* as the for-loop are foreach and fused? Choose from 1, 3, 10, 30, 100.

# %% experiment
prediction = {
    "1 parameter: foreach": ...,
    "1 parameter: fused": ...,
    "256 parameters: foreach": ...,
    "256 parameters: fused": ...,
}


# %% experiment tags=["fold"]
NUMBERS = [1, 4, 16, 64, 256]
dealt = {way: [adamw_step([2**24 // n] * n, way)["seconds"] for n in NUMBERS] for way in WAYS}
ratios = {
    f"{NUMBERS[i]} parameter{'s' * (i < 0)}: {way}": dealt["for-loop"][i] / dealt[way][i]
    for i in (0, -1)
    for way in ("foreach", "fused")
}
assert ratios["1 parameter: foreach"] < 1.05
lesson.keep(
    fused_one=ratios["1 parameter: fused"],
    foreach_many=ratios["256 parameters: foreach"],
    fused_many=ratios["256 parameters: fused"],
)
lesson.compare_ratios(
    prediction, ratios, choices=(1, 3, 10, 30, 100), evidence="simulated (H100)", what="times as fast"
)

# %% experiment
curves(
    {"": {way: (NUMBERS, seconds) for way, seconds in dealt.items()}},
    evidence="simulated (H100)",
    title="One AdamW step over 16.8 M weights, dealt into more and more parameters",
    note="both axes logarithmic; from the call of step() to the end of synchronize()",
    xlabel="parameters",
    ylabel="time of a step",
    log="xy",
    yfmt=lambda s, _: format_seconds(s),
    xticks={n: str(n) for n in NUMBERS},
)

# %% [markdown]
# One parameter: all three are bound by **bytes**, and foreach is no faster than the loop, since it moves
# the same ones. Fused moves about a third of them and is {{fused_one:.1f}} times as fast. 256 parameters: the loop pays
# for thousands of **launches**, and it alone. The other two lie flat: their launches stay few, and what they pay is
# their bytes, as before. So foreach is {{foreach_many:.0f}} times as fast as the loop, and fused {{fused_many:.0f}}
# times. Only when there is next to nothing to move do launches bind them too: 100 parameters of 4,096 weights, in the
# last table. So:
#
# | your step has | foreach, against the loop | fused, against foreach |
# |---|---|---|
# | few large parameters | no faster: the same bytes | a third of the bytes |
# | many parameters, many weights | its launches gone, its bytes left | a third of the bytes |
# | many parameters, few weights | its launches gone | 2 launches in place of 8 |
#
# The simulator leaves out what Python does around the launches (`torch.optim` gathers its lists anew at every
# step, which costs a moment per parameter in all three ways).
#
# Here is where the bytes come from, kernel by kernel:

# %% experiment
per_kernel = adamw_step([2**20], "for-loop")["kernels"]
said = ["p", "m, g → m", "v", "v, g → v", "v → new", "root → new", "root", "p, m, root → p"]
rows = [
    (k.name.removeprefix("aten."), what, k.bytes // 2**20) for k, what in zip(per_kernel, said, strict=True)
]
rows.append(("all eight", "", sum(k.bytes for k in per_kernel) // 2**20))
rows.append(
    ("fused", "p, g, m, v → p, m, v", sum(k.bytes for k in adamw_step([2**20], "fused")["kernels"]) // 2**20)
)
lesson.table(
    rows,
    ["kernel", "reads → writes", "bytes per weight"],
    evidence="simulated (H100)",
    caption="float32, every tensor read once and every result written once; foreach: the same eight",
)

# %% [markdown]
# And here is how they meet the launches. Two parameters, the second a thousand times as large:

# %% experiment tags=["fold"]
from helpers.plots.lanes import rows_of

gpu = simulate("H100")
bars, marks = [], {}
with gpu:
    for way, options in WAYS.items():
        params = [torch.nn.Parameter(torch.empty(n, device=gpu.device)) for n in (2**11, 2**21)]
        for p in params:
            p.grad = torch.empty_like(p)
        optimizer = torch.optim.AdamW(params, **options)
        optimizer.step()
        gpu.synchronize()
        began = gpu.clock()
        optimizer.step()
        gpu.synchronize()
        marks[way] = late = max((b for *_, b in bars), default=0.0)
        for name, lane, a, b in rows_of(gpu, began):  # joined without the set-up between the three
            what = "synchronize" if name == "synchronize" else way
            bars.append((what, lane.split()[0], a - began + late, b - began + late))
bars.sort(key=lambda bar: bar[0] == "synchronize")
launched, arrived = (next(bar for bar in bars if bar[1] == lane) for lane in ("CPU", "GPU"))
plots.timeline(
    bars,
    evidence="simulated (H100)",
    marks=marks,
    spans={
        "launch_s": launched[2:],
        "latency_s": (launched[3], arrived[2]),
        "floor_s": arrived[2:],
    },
    title="Three AdamWs over two parameters, of 2,048 and of 2,097,152 weights",
)

# %% [markdown]
# A bar of the CPU is one launch and lasts `launch_s`; a line leads to its kernel, which can start `latency_s` after
# the launch's end, and lasts `floor_s` at the least. In the loop's first half the GPU waits for each launch; in the
# second the kernels are longer than the launches, the CPU runs ahead, and the latency no longer shows.

# %% [markdown]
# **Exercise 6.4 — predict the step** (★★, 10 min)
#
# How long will the optimizer take, before you own the GPU? A launch costs the CPU `launch_s`, and the CPU
# goes on at once. The GPU takes kernels in order, each when it has arrived and the one before it is done.
# Write the prediction for each of the three ways.
#
# <details><summary>Hint 1</summary>First make the list of kernels: the bytes of each, in order. For the loop,
# eight for the first parameter, then eight for the second; for foreach, eight in all.</details>
#
# <details><summary>Hint 2</summary>max(sum of launches, sum of kernels) is right when all kernels are alike. With
# a large parameter first, the CPU runs ahead while the GPU works; with it last, the GPU has been waiting
# all the time. Walk through the list with two clocks.</details>
#
# <details><summary>The idea</summary>For each kernel: <code>cpu += launch_s</code>; it starts at
# <code>max(gpu, cpu + latency_s)</code> and lasts <code>max(floor_s, bytes / bytes_per_s)</code>; its end is the
# new <code>gpu</code>. Fused is two kernels: one at the floor, which counts the steps, and one of the bytes
# per weight in the table's last row.</details>


# %% exercise="step_time"
def step_time(
    sizes: list[int], way: str, launch_s: float, latency_s: float, floor_s: float, bytes_per_s: float
) -> float:
    """Seconds from the call of AdamW's step() until the GPU has ended its last kernel.

    sizes: weights in each parameter, float32, at most 30 parameters and 16 M weights: a list operator is one
        launch. State exists, everything is warm, and the GPU is idle at the start.
    way: "for-loop", "foreach" or "fused"; ValueError for another.
    launch_s: the CPU's time for one launch; latency_s: from its end until the kernel can start on an idle GPU.
    floor_s: the shortest kernel. bytes_per_s: what longer kernels reach.

    Right when within 3 % of the simulated GPU. By arithmetic: the simulated GPU is not there to be asked.
    """
    ### BEGIN SOLUTION
    per_weight = [8, 12, 8, 12, 8, 8, 8, 16]
    if way == "for-loop":
        kernels = [b * n for n in sizes for b in per_weight]
    elif way == "foreach":
        kernels = [b * sum(sizes) for b in per_weight]
    elif way == "fused":
        kernels = [0, 28 * sum(sizes)]
    else:
        raise ValueError(f"way is 'for-loop', 'foreach' or 'fused', not {way!r}")
    cpu = gpu = 0.0
    for nbytes in kernels:
        cpu += launch_s
        gpu = max(gpu, cpu + latency_s) + max(floor_s, nbytes / bytes_per_s)
    return gpu
    ### END SOLUTION


# %% test="step_time" points=1
from helpers import check
from helpers.exercises.optimizers import check_step_time

check_step_time(
    check.case([4096] * 20, "for-loop", 6e-6, 2e-6, 2e-6, 2.5e12),
    check.case([4096] * 20, "foreach", 5e-6, 3e-6, 2e-6, 2e12),
    check.case([4_000_000] * 3, "for-loop", 6e-6, 2e-6, 2e-6, 2.5e12),
    check.case([300_000] * 6, "for-loop", 2e-6, 1e-6, 3e-6, 1e12),
    check.case([1_000_000] * 2, "fused", 9e-6, 4e-6, 2e-6, 3e12),
    check.case([8_000_000] + [1000] * 12, "for-loop", 4e-6, 2e-6, 1e-6, 1.5e12),
    check.case([100], "compiled", 6e-6, 2e-6, 2e-6, 2.5e12, raises=ValueError),
)

# %% hidden="step_time" points=4
### BEGIN HIDDEN TESTS
from helpers import check
from helpers.exercises.optimizers import check_step_time

check_step_time(
    *(
        check.case(sizes, way, launch_s, 3e-6, floor_s, bytes_per_s)
        for sizes in ([7_000_000] + [500] * 25, [500] * 25 + [7_000_000], [400_000] * 10, [9_999])
        for way in ("for-loop", "foreach", "fused")
        for launch_s, floor_s, bytes_per_s in ((2e-6, 4e-6, 1e12), (9e-6, 1.5e-6, 0.9e12))
    ),
    check.case([5], "Fused", 6e-6, 2e-6, 2e-6, 1e12, raises=ValueError),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · What a larger batch buys, and what it asks
#
# The same question, asked of the whole step. Eight linear layers of 1,024, forward and backward, then AdamW.
# From batch 1 to batch 64 the arithmetic grows 64-fold. **How many times as long does the step take?** And
# from 4,096 to 65,536, which is 16-fold?

# %% experiment
prediction = {"batch 1 → 64": ..., "batch 4,096 → 65,536": ...}  # choose from 1, 2, 4, 8, 16, 64

# %% experiment tags=["fold"]
BATCHES = [4**k for k in range(9)]


def training_step(batch, way):
    """Seconds of a warm step: its launches on the CPU, its kernels on the GPU, the whole; and its FLOPs."""
    gpu = simulate("H100")
    with gpu:
        blocks = [m for _ in range(8) for m in (torch.nn.Linear(1024, 1024), torch.nn.GELU())]
        net = torch.nn.Sequential(*blocks).to(gpu.device)
        optimizer = torch.optim.AdamW(net.parameters(), **WAYS[way])
        x = torch.empty(batch, 1024, device=gpu.device)
        for _ in range(2):
            gpu.synchronize()
            began, before, called = gpu.clock(), len(gpu.kernels), len(gpu.host)
            net(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            gpu.synchronize()
    calls = sum(h.end_ns - h.start_ns for h in gpu.host[called:] if h.kind != "sync") / 1e9
    mine = gpu.kernels[before:]
    return calls, sum(k.duration_s for k in mine), gpu.clock() - began, sum(k.flops for k in mine)


steps = {way: [training_step(batch, way) for batch in BATCHES] for way in ("for-loop", "fused")}
whole = {batch: step for batch, (_, _, step, _) in zip(BATCHES, steps["fused"], strict=True)}
ratios = {f"batch {a:,} → {b:,}": whole[b] / whole[a] for a, b in ((1, 64), (4096, 65536))}
lesson.keep(to_64=ratios["batch 1 → 64"], to_65536=ratios["batch 4,096 → 65,536"])
lesson.compare_ratios(
    prediction, ratios, choices=(1, 2, 4, 8, 16, 64), evidence="simulated (H100)", what="times as long"
)

# %% experiment tags=["fold"]
card = simulate("H100").card
lesson.table(
    [
        (batch, *map(format_seconds, times), f"{batch / times[-1]:,.0f}")
        + (f"{flops / times[-1] / card.peak_flops['fp32']:.1%}", format_seconds(loop[2]))
        for batch, (*times, flops), loop in zip(BATCHES, steps["fused"], steps["for-loop"], strict=True)
    ],
    [
        "batch",
        "launches",
        "kernels",
        "step",
        "samples per second",
        "of the card's FLOP/s",
        "with the for-loop",
    ],
    evidence="simulated (H100)",
    caption="AdamW fused; last column: the step when it is the for-loop. The simulator lets a large float32 "
    f"matmul reach {card.reached('matmul', 'fp32').flop_share:.0%} of the published FLOP/s, as measured",
)

# %% [markdown]
# The left end is flat: a step with 64 samples takes {{to_64:.2f}} times as long as one with a single
# sample. The floor is the launches, whose number does not depend on the batch (and behind the last launch the
# optimizer's kernel). Right under it lies a second floor, in the column of the kernels: a layer reads all of its
# matrix, and the optimizer all of its states, for one sample as for a thousand. The first row in which the kernels take
# longer than the launches is the **knee**. Behind it a sample still gets cheaper for a while, as larger matrices fill
# the card better; in the last rows, hardly: there 16 times the batch takes {{to_65536:.1f}} times as long. So the batch
# is parallelism *up to the knee*, and a little beyond. And the optimizer is a fixed cost per step: the smaller the
# batch, the more the choice of the three matters.
#
# A larger batch also means fewer steps per epoch, so the learning rate has to change. By how much? The usual argument
# (Goyal and others, 2017): k small steps along nearly the same gradient equal one step k times as long, so **SGD: in
# proportion to the batch**. For Adam ([Malladi and others, 2022](https://arxiv.org/abs/2205.10287), whose rule moves
# β₁, β₂ and eps too): a batch k times as large has noise √k times smaller. Adam divides by √v̂, which is mostly that
# noise, so at the same rate each step already goes √k times as far, and the rate owes only the other **√k**. A small
# test of both rates: a net of 16 hidden units learns noisy numbers, always from 4,096 samples, in batches of 8, 32, 128
# and 1,024, at a row of learning rates, each from 6 seeds. **From batch 8 to 128, 16-fold: by what factor does the best
# learning rate grow?**

# %% experiment
prediction = {"SGD": ..., "Adam": ...}  # choose from 1, 2, 4, 8, 16


# %% experiment tags=["fold"]
def losses(kind, batch, rates, samples=4096, seeds=6, width=16):
    """Final test loss for each learning rate, mean over the seeds. All (rate, seed) pairs are one bmm."""
    g = torch.Generator().manual_seed(0)
    teacher = [torch.randn(width, width, generator=g) / 2, torch.randn(width, 1, generator=g) / 4]
    start = [torch.randn(seeds, width, n, generator=g) / 4 for n in (width, 1)]
    w = [s.repeat(len(rates), 1, 1).requires_grad_() for s in start]
    rate = torch.tensor(rates).repeat_interleave(seeds)[:, None, None]
    state = [(torch.zeros_like(t), torch.zeros_like(t)) for t in w]

    def data(*shape, noise):
        x = torch.randn(*shape, width, generator=g)
        y = torch.tanh(x @ teacher[0]) @ teacher[1]
        return x, y + noise * torch.randn(y.shape, generator=g)

    for step in range(1, samples // batch + 1):
        x, y = (t.repeat(len(rates), 1, 1) for t in data(seeds, batch, noise=2.0))
        loss = (torch.tanh(x @ w[0]) @ w[1] - y).square().mean((1, 2)).sum()
        with torch.no_grad():
            for p, grad, (m, v) in zip(w, torch.autograd.grad(loss, w), state, strict=True):
                m.lerp_(grad, 0.1)
                v.lerp_(grad.square(), 0.001)
                adam = (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
                p -= rate * (grad if kind == "SGD" else adam)
    with torch.no_grad():
        x, y = data(4096, noise=0.0)
        test = (torch.tanh(x @ w[0]) @ w[1] - y).square().mean((1, 2))
    return test.reshape(len(rates), seeds).mean(1).nan_to_num(9.0).clamp(max=9.0).tolist()


def lowest(rates, values):
    """Where a parabola through the three lowest neighbours, over the logarithm, has its bottom."""
    i = min(max(values.index(min(values)), 1), len(values) - 2)
    a, b, c = (math.log(v) for v in values[i - 1 : i + 2])
    return rates[i] * 2 ** (0.5 * (a - c) / (a - 2 * b + c))


RATES = {"SGD": [0.002 * 2**k for k in range(10)], "Adam": [0.001 * 2**k for k in range(8)]}
SIZES = (8, 32, 128, 1024)
found = {kind: {b: losses(kind, b, rates) for b in SIZES} for kind, rates in RATES.items()}
best = {kind: {b: lowest(RATES[kind], v) for b, v in by.items()} for kind, by in found.items()}
growth = {kind: by[128] / by[8] for kind, by in best.items()}
sizes = (1, 2, 4, 8, 16)
lesson.compare_ratios(
    prediction, growth, choices=sizes, evidence="live (CPU)", what="grows", shown="≈ {:.2f}"
)

# %% experiment tags=["fold"]
exponent = {kind: math.log(r) / math.log(16) for kind, r in growth.items()}
lesson.table(
    [
        (f"{kind}, {what}", *(f"≈ {of(kind, b):.3f}" for b in SIZES), about)
        for kind in RATES
        for what, of, about in (
            ("best rate", lambda kind, b: best[kind][b], f"≈ {exponent[kind]:.1f}"),
            ("lowest loss", lambda kind, b: min(found[kind][b]), ""),
        )
    ],
    ["", *(f"batch {b:,}" for b in SIZES), "exponent"],
    evidence="live (CPU)",
    caption="exponent: best rate ∝ batch to that power, from 8 to 128",
).show()

panels = {}
for kind, by in found.items():
    for b in SIZES[:3]:
        kept = [(r, v) for r, v in zip(RATES[kind], by[b], strict=True) if v < 0.6]
        panels.setdefault(kind, {})[f"batch {b}"] = tuple(zip(*kept, strict=True))
curves(
    panels,
    evidence="live (CPU)",
    title="Test loss after 4,096 samples against the learning rate",
    note="mean over 6 seeds; losses above 0.6 are not drawn",
    xlabel="learning rate, logarithmic",
    ylabel="test loss",
    log="x",
)

# %% [markdown]
# Each curve has a bottom, and the bottoms move to the right as the batch grows: SGD's in step with the
# batch, Adam's about half as far on this logarithmic axis. Both are laws of a *range*. At batch 1,024 four steps are
# left, the best rates have left both laws, and no rate reaches the loss of small batches: beyond the batch at which
# noise no longer matters, more samples per step are wasted on accuracy, as beyond the knee they are wasted on speed. So
# take the rule as the middle of a small sweep, and not as its replacement.

# %% [markdown]
# ## On the real GPU
#
# One table for a GPU: three nets, three AdamWs, time of a step and its temporaries. It runs live where there is a
# CUDA GPU, and shows a recording where one exists. For this lesson none has been recorded yet; so without a GPU
# you see the simulated one, and it says so. What to look for on yours: is foreach on the few large parameters
# any faster than the loop? Is fused nearer to three times, or to more? And in the first net, how far do your
# times lie above the simulated ones? That is Python between the launches. (The loop's temporaries in GPT-2 are
# the root and the divided root of one parameter, the embedding.)

# %% experiment
from helpers import recordings

shown = recordings.show("06/three_adamws", simulated="H100")
about = "" if shown.evidence.startswith("simulated") else "≈ "
lesson.table(
    [
        (r["net"], r["way"], about + format_seconds(r["seconds"]), f"{r['temporary_bytes'] / 2**20:,.0f} MiB")
        for r in shown.table
    ],
    ["net", "AdamW", "step", "temporaries"],
    evidence=shown.evidence,
)

# %% [markdown]
# ## Sources on trial

# %% experiment tags=["fold"]
kernels = {way: len(step["kernels"]) for way, step in on_card.items()}
temporary = {way: step["temporary"] / 4 / weights for way, step in on_card.items()}
samples_per_s = {b: b / s for b, s in whole.items()}
rises = samples_per_s[1024] / samples_per_s[1]
flat = samples_per_s[65536] / samples_per_s[16384]
sections = (
    "1 · Three ways to the same numbers",
    "3 · Launches or bytes?",
    "4 · What a larger batch buys, and what it asks",
)
speeds = [dealt["for-loop"][i] / dealt["fused"][i] for i in (0, -1)]
rows = [
    (
        "06-three-for-each",
        "book-notes",
        "every optimizer has three implementations",
        f"of {len(kinds)} optimizers in torch.optim {len(having['foreach'])} take foreach=, {len(having['fused'])} fused=",
        "confirmed"
        if len(kinds) == len(having["fused"])
        else f"refuted: all three have only {', '.join(sorted(having['fused']))}",
        sections[0],
    ),
    (
        "06-trade-off",
        "book-notes",
        "the three trade speed against memory",
        f"24 parameters: kernels {' / '.join(str(n) for n in kernels.values())}, temporaries "
        f"{' / '.join(f'{t:.2f}' for t in temporary.values())} copies of the weights; fused against the loop: "
        f"{speeds[0]:.1f} times as fast with 1 parameter, {speeds[1]:.0f} times with 256",
        "holds when loop and foreach are compared; fused has the fewest kernels, the fewest bytes and no temporaries"
        if kernels["fused"] < kernels["foreach"] and temporary["fused"] < temporary["for-loop"]
        else "confirmed",
        " and ".join(sections[:2]),
    ),
    (
        "06-fused-launches",
        "five-strategies",
        "FusedAdam reduces kernel launches",
        f"{kernels['for-loop']} → {kernels['fused']} for 24 parameters (foreach: {kernels['foreach']})",
        "confirmed" if kernels["fused"] < kernels["foreach"] else "refuted",
        sections[0],
    ),
    (
        "06-batch",
        "book-notes",
        "batch size raises the efficiency of operators through parallelism",
        f"samples per second: {rises:,.0f} times from batch 1 to 1,024, {flat:.2f} times from 16,384 to 65,536",
        "holds when the batch is below the knee; beyond it, time grows with the batch"
        if rises > 10 and flat < 1.2
        else "confirmed",
        sections[2],
    ),
    (
        "06-learning-rate",
        "five-strategies",
        "scale the learning rate in proportion to the batch",
        f"best rate ∝ batch to the power ≈ {exponent['SGD']:.1f} (SGD), ≈ {exponent['Adam']:.1f} (Adam), from 8 to 128",
        "holds when the optimizer is SGD and noise rules; for Adam nearer to the square root"
        if exponent["SGD"] > 0.8 > 0.7 > exponent["Adam"]
        else "untested: this run did not tell the two apart",
        sections[2],
    ),
]
lesson.verdicts(rows, evidence="live (CPU) · simulated (H100)")

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Use `fused=True` where the optimizer has it. | Steps that you want to change or differentiate; few optimizers have it. |
# | foreach is the loop with fewer launches. | Few large parameters: as many bytes, so no faster, and a copy of the weights. |
# | An optimizer's step is bytes ÷ bandwidth. | Many small parameters: launches. |
# | `zero_grad()` to `None` saves work in backward. | It does not lower the peak: backward's end does. |
# | Step inside backward and gradients never coexist. | Clipping by total norm, GradScaler, accumulation need them all. |
# | A larger batch is faster per sample. | Up to the knee. |
# | Learning rate ∝ batch (SGD), ∝ √batch (Adam). | Where noise no longer rules: sweep around it. |
#
# **Checklist for your own code**
# - [ ] How many parameters, of which sizes: launches or bytes?
# - [ ] `fused=True`? If not, why?
# - [ ] Own `_foreach_` code: one dtype and one layout per call, temporaries in groups?
# - [ ] Does anything keep gradients alive between steps?
# - [ ] Where is the knee of your batch, and do you lie left of it?
#
# **Read on**: PyTorch's documentation of [`torch.optim`](https://docs.pytorch.org/docs/2.13/optim.html#algorithms)
# (*Algorithms*, with its table of implementations) and the
# tutorial *How to save memory by fusing the optimizer step into the backward pass*; I. Loshchilov and F. Hutter,
# *Decoupled weight decay regularization* (2019); P. Goyal and others, *Accurate, large minibatch SGD* (2017);
# S. Malladi and others, *On the SDEs and scaling rules for adaptive gradient algorithms* (2022); S. McCandlish
# and others, *An empirical model of large-batch training* (2018).
