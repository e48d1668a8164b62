# %% [markdown]
# # 06 · Optimizers
#
# ## Why are there three AdamWs?
#
# PyTorch has three programs for [`AdamW`](https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html):
# `foreach=False`, `foreach=True` and `fused=True`. They compute one formula, and differ in time and in memory.
#
# AdamW does little arithmetic. For each weight it reads four numbers (the weight, its gradient and two running means),
# computes, and writes three of them back. So on the GPU only two things cost: the **launches** of its kernels, and the
# **bytes** that these move. (Python is a third: round 2.) You measure both for all three programs, and write two of
# the programs yourself.
#
# **Time** 50 min, 22 of them for two exercises; *Further*: 43 min. **Before this** lessons 00 to 02 (the simulated GPU,
# operators and their counts, autograd).
#
# **Afterwards you can**
# - say what each of the three saves, for your parameters;
# - write AdamW in eight operators per parameter, and in eight operators for all parameters;
# - keep the temporary memory of your own list code under a limit.
#
# **On trial** *every optimizer has three implementations* · *the three trade speed against memory* (book notes) ·
# *FusedAdam reduces kernel launches* (five strategies).

# %% setup
import math

import torch

from helpers import lesson, simulate
from helpers.lessons.optimizers import experiments

torch.set_num_threads(1)  # small tensors: more threads would mostly wait for one another
lesson.start("06_optimizers", evidence=["live (CPU)", "simulated (H100)", "recorded (H100)"])

# %% [markdown]
# ## 1 · Three ways to the same numbers
#
# A **parameter** is one tensor that is trained, such as a matrix or a bias. A **weight** is one number in it. Our net has
# 12 linear layers, so it has 24 parameters: 12 matrices and 12 biases.
#
# AdamW's formula needs eight operators for one parameter (you write them in exercise 6.1). On a GPU, each of these
# operators launches one kernel when it gets one tensor. The three programs use the formula in three ways:
#
# - **for-loop** (`foreach=False`): Python takes one parameter after the other, and calls the eight operators for it.
# - **foreach** (`foreach=True`): Python calls eight operators, and gives each of them the *list* of all parameters.
# - **fused** (`fused=True`): one kernel computes the whole formula for all parameters (up to a limit: the end of
#   *Further*). A second, tiny kernel counts steps.
#
# **How many kernels does the for-loop launch in a step? How many times the bytes of fused does it move?** And which way
# needs the most *temporary* memory, for results that are gone when the step ends?

# %% experiment
you = lesson.predict(
    {"kernels, for-loop": ..., "bytes, for-loop ÷ fused": ..., "most temporary memory": ...},
    choices={
        "kernels, for-loop": [8, 24, 192],
        "bytes, for-loop ÷ fused": [1, 3, 8],
        "most temporary memory": ["for-loop", "foreach", "fused"],
    },
)

# %% experiment
WAYS = {"for-loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
LAYERS = [256 * 256, 256] * 12  # weights of each of the 24 parameters


def adamw_step(sizes, **options):
    """AdamW's second step on a simulated H100: its kernels, its seconds, the bytes of its temporaries."""
    with simulate("H100") as gpu:
        params = [torch.nn.Parameter(torch.empty(n, device=gpu.device)) for n in sizes]
        for p in params:
            p.grad = torch.empty_like(p)
        optimizer = torch.optim.AdamW(params, **options)
        optimizer.step()  # makes the two means, loads the kernels
        return experiments.step_on(gpu, optimizer.step)


steps = {way: adamw_step(LAYERS, **options) for way, options in WAYS.items()}

# %% experiment
measured = {
    "kernels, for-loop": len(steps["for-loop"].kernels),
    "bytes, for-loop ÷ fused": round(steps["for-loop"].bytes / steps["fused"].bytes),
    "most temporary memory": max(steps, key=lambda way: steps[way].temporary),
}
unasked = adamw_step(LAYERS)  # neither foreach= nor fused=
lesson.keep(unasked=len(unasked.kernels), fused_kinds=", ".join(experiments.optimizers_with("fused")))
you.against(measured, experiments.costs(steps, LAYERS), evidence="simulated (H100)")

# %% [markdown]
# All three reach the same weights, up to rounding: fused computes in another order. The costs are not the same:
#
# - **for-loop**: eight kernels for each of the 24 parameters. Its temporaries are two arrays of *one* parameter's size:
#   the square root of the second running mean, and this root after a division. From the second parameter on there is a
#   third: while the new root is made, the name still holds the old one.
# - **foreach**: eight kernels in all. Here an operator on a list is one kernel, which gets the addresses of all
#   tensors of the list (PyTorch calls this *multi-tensor apply*). But now the roots of all parameters exist at the
#   same time. Together they need as much memory as all weights.
# - **fused**: two kernels. The large one loads a weight with its gradient and its two means, computes the formula in
#   registers, and writes three results. No root is ever stored. So it moves about a third of the bytes.
#
# **What does `AdamW(params)` choose?** Here it launches {{unasked}} kernels: [on a CUDA GPU the default is foreach, on a CPU
# the for-loop](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/optim/optimizer.py).
#
# **Why three?** The for-loop needs nothing special. foreach serves every formula that is made of list operators: most
# optimizers in [`torch.optim`](https://docs.pytorch.org/docs/stable/optim.html) have it. A fused kernel is written by hand
# for each optimizer. These have one: {{fused_kinds}}. (A compiler can make one of a formula of your own: lesson 11.)
#
# Now write the first two yourself, from PyTorch's form of AdamW at step t. (In [Loshchilov and Hutter,
# 2019](https://arxiv.org/abs/1711.05101), lr does not multiply the decay.)

# %% [markdown]
# **Exercise 6.1 — AdamW, one parameter after the other** (★★, 10 min)
#
# | in words | formula |
# |---|---|
# | weight decay, on the weight itself | p ← p · (1 − lr · weight_decay) |
# | running mean of the gradient | m ← β₁ · m + (1 − β₁) · g |
# | running mean of its square | v ← β₂ · v + (1 − β₂) · g² |
# | the step, with both means made unbiased | p ← p − lr · m̂ ÷ (√v̂ + eps), m̂ = m ÷ (1 − β₁ᵗ), v̂ = v ÷ (1 − β₂ᵗ) |
#
# Written literally, each +, −, ·, ÷ and √ is an operator, and makes a new tensor. You have eight operators per parameter.
#
# <details><summary>Hint 1</summary>Every line of the table but the last is one or two operators whose name ends in an
# underscore. <code>lerp_</code> moves a tensor part of the way to another, <code>addcmul_</code> adds a scaled
# product, <code>addcdiv_</code> a scaled quotient.</details>
#
# <details><summary>Hint 2</summary>1 − β₁ᵗ and 1 − β₂ᵗ are Python numbers and cost no operator. m̂ need not exist: its divisor
# goes into the <code>value=</code> of the last operator.</details>
#
# <details><summary>The idea</summary>1 + 1 + 2 + 3 + 1 operators. p: <code>mul_</code>. m: <code>lerp_</code>, by
# 1 − β₁. v: <code>mul_</code>, then <code>addcmul_</code>. The divisor of the last line: <code>sqrt</code> makes the only
# new tensor; change it with <code>div_</code> and <code>add_</code>. Then p: <code>addcdiv_</code>.</details>


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

    params, grads, means, squares: n ≥ 1 tensors each. params[i], grads[i], means[i], squares[i] have one shape (also
        () and (0, 3)) and one dtype, float32 or float64; strides are any, and a gradient may be expanded. Gradients
        are off.
    step: t, the number of this step, from 1.

    The numbers are those of torch.optim.AdamW (to 9 digits in float64, 4 in float32). Budget: 8 operators per
    parameter, no syncs, and beyond its inputs at most 2 arrays of the largest parameter (and 1 KiB) alive at once:
    the new root of v, and the old one, which its name still holds. (torch's loop has a third: its division is not in
    place.) torch's own AdamW in one operator, torch._fused_adamw_, is not allowed here.
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
from helpers.lessons.optimizers.exercises import check_adamw_loop, stepping

bare = {"lr": 0.1, "weight_decay": 0.0, "eps": 0.0}
for fresh, t, new, note in (
    (True, 1, {}, "Fresh state, no decay, no eps. Means and squares right, params not: the two corrections."),
    (True, 1, {"weight_decay": 0.5}, "Only the decay is new: of the weight, not of g, and before the step?"),
    (True, 1, {"eps": 0.5}, "Only eps is new: is it added outside of the root, to √v̂ and not to √v?"),
    (False, 9, {"betas": (0.8, 0.95)}, "Now m and v hold something, and t is 9: is every β the right one?"),
):
    check_adamw_loop(stepping([(2, 3), 4], t, fresh=fresh, **bare | new), note=note)
check_adamw_loop(stepping([32, (64, 32), (32, 64), 64], 5, single=True, eps=0.1), costs=True)

# %% hidden="adamw_loop" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.optimizers.exercises import check_adamw_loop, stepping

check_adamw_loop(
    stepping([(5, 7), 7, (2, 3, 4)], 1, lr=0.3, weight_decay=0.5),
    stepping([6, (4, 4)], 40, lr=0.2, betas=(0.5, 0.9), eps=0.3, weight_decay=0.0),
    stepping([()], 1000, lr=0.5, eps=0.01),
    stepping([(5, 7), (0, 3), 6, (2, 3, 4)], 3, single=True, odd=True, lr=0.3),
)
check_adamw_loop(
    stepping([(40, 30)] * 7 + [50], 2, single=True, eps=0.1),
    stepping([(200, 100), 3, (10, 90), 70], 6, lr=0.1, eps=0.1, weight_decay=0.5),
    stepping([(30, 20), (50, 40), 70, (20, 30)], 4, odd=True, eps=0.1),
    costs=True,
)
### END HIDDEN TESTS

# %% [markdown]
# **Exercise 6.2 — AdamW on lists, with a memory limit** (★★, 12 min)
#
# Write the same step in `torch._foreach_*` operators: each of them takes lists. Their price is that the roots of *all* v
# exist at the same time. So add a limit. With `temp_bytes` you cut the lists into groups, and only one group's roots may
# exist at a time. Without a limit all parameters are one group.
#
# <details><summary>Hint 1</summary>First without a limit, line by line. PyTorch's pages describe few of these private
# operators: <code>torch._foreach_mul_(list, number)</code>,
# likewise <code>div_</code> and <code>add_</code>; <code>_foreach_lerp_(list, ends, weight)</code>;
# <code>_foreach_addcmul_(list, a, b, value=number)</code>, likewise <code>addcdiv_</code>; and
# <code>_foreach_sqrt(list)</code>, which alone returns a new list.</details>
#
# <details><summary>Hint 2</summary>Walk through the parameters and begin a new group when the next would not
# fit. (Then two neighbouring groups are together larger than the limit: so there are not too many groups.) A name that
# still holds the last group's list keeps its bytes alive while the next group makes its own.</details>
#
# <details><summary>The idea</summary>A helper function does one group in eight operators: when it returns, its
# temporaries are gone. The function itself only cuts: if the group is not empty and the next parameter does not fit, it
# hands the group over first. Do not forget the last group.</details>


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
    once. With a limit at most 8 · (1 + 2 · total ÷ temp_bytes) operators, where total is the bytes of all
    parameters, and at most max(temp_bytes, the largest parameter) bytes alive. Each memory budget has 1 KiB more.
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
from helpers.lessons.optimizers.exercises import check_adamw_foreach, stepping

uneven = [(42, 50), (30, 50), (50, 30), 10, (30, 50), (35, 40), 5, 400]  # the first alone is over the limit
check_adamw_foreach(
    stepping([(40, 30), 30] * 10, 4, single=True, lr=0.1, eps=0.1),
    stepping([(40, 30), 30] * 10, 4, single=True, lr=0.1, eps=0.1, temp_bytes=20_000),
    stepping(uneven, 4, single=True, eps=0.1, temp_bytes=8_000),
)

# %% hidden="adamw_foreach" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.optimizers.exercises import check_adamw_foreach, stepping

uneven = [(60, 50), 50, 10, (100, 90), 90, (20, 20), (70, 7), 7, 3, (30, 50)]
check_adamw_foreach(
    stepping([(3, 5), 5, 2], 1, lr=0.3, weight_decay=0.5),
    stepping([(3, 5), (5, 3), 2], 5, odd=True, lr=0.3),
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
# ## 2 · Launches or bytes?
#
# A number in float32 has four bytes. Each kernel reads and writes, for each weight:

# %% experiment
loop, fused = (adamw_step([2**20], **WAYS[way]) for way in ("for-loop", "fused"))
launch_us, terabytes = experiments.prices(adamw_step([2**24], **WAYS["fused"]))
lesson.keep(launch_us=launch_us, terabytes=terabytes)
experiments.bytes_by_kernel(loop, fused, weights=2**20)

# %% [markdown]
# A simulated step pays two prices. Each **launch** takes the CPU {{launch_us:.0f}} µs. And the **bytes** take time: the
# GPU moves {{terabytes:.1f}} TB in a second. The CPU launches while the GPU works, so the larger price is the step's time.
#
# Now take 16.8 million weights: all in one parameter, or in 256 parameters of equal size. The bytes are the same. The
# for-loop's launches are not: 8 × 1, or 8 × 256. **How many times as fast as the for-loop are the other two?** Work it
# out on paper.

# %% experiment
you = lesson.predict(
    {
        "1 parameter: foreach": ...,
        "1 parameter: fused": ...,
        "256 parameters: foreach": ...,
        "256 parameters: fused": ...,
    },
    choices=[1, 3, 10, 30, 100],
)

# %% experiment
NUMBERS = [1, 4, 16, 64, 256]
seconds = {
    way: [adamw_step([2**24 // n] * n, **options).seconds for n in NUMBERS] for way, options in WAYS.items()
}
ratios = {}
for i, name in ((0, "1 parameter"), (-1, "256 parameters")):
    for way in ("foreach", "fused"):
        ratios[f"{name}: {way}"] = seconds["for-loop"][i] / seconds[way][i]
lesson.keep(paper_loop=8 * 256 * launch_us / 1e3, paper_fused=28 * 2**24 / (terabytes * 1e9))  # in ms
picture = experiments.time_against_parameters(seconds, NUMBERS)
you.against_ratios(ratios, picture, evidence="simulated (H100)", what="times as fast")

# %% [markdown]
# **One parameter: the bytes decide.** foreach moves the same bytes as the for-loop, so it is no faster. Fused moves about
# a third of them.
#
# **256 parameters: for the for-loop, the launches decide.** The lines of foreach and of fused stay flat: they have few
# launches, and as many bytes as before. On paper the for-loop takes 8 · 256 · {{launch_us:.0f}} µs = {{paper_loop:.1f}} ms,
# and fused 28 bytes · 16.8 M ÷ {{terabytes:.1f}} TB/s = {{paper_fused:.2f}} ms. (The simulated ratios are a little smaller:
# paper leaves out the wait for the first launch, and the tiny kernel.)
#
# | your parameters | foreach, against the for-loop | fused, against foreach |
# |---|---|---|
# | few, large | no faster: the same bytes | a third of the bytes |
# | many, with many weights in all | most launches are gone, the bytes stay | a third of the bytes |
# | many, with few weights in all | most launches are gone | 2 launches in place of 8, and less work on the CPU |
#
# Here are three nets: 100 small parameters (the last row above), GPT-2's (the middle row), and 8 large ones (the first
# row). Each step is simulated, and recorded on a real H100. (If you have a GPU, the last times are yours.)

# %% experiment
from helpers import recordings

runs = recordings.side_by_side("06/three_adamws")
real = experiments.recorded_against(*runs[:2])
lesson.keep(over_foreach=real.foreach, over_fused=real.fused, apart_us=real.apart_us)
lesson.keep(least=real.least, most=real.most)
lesson.keep(recorded_torch=recordings.load("06/three_adamws").torch)
experiments.three_nets(runs)

# %% [markdown]
# With many small parameters, foreach takes away most of the time, and fused most of the rest. With few large
# parameters, only fused is faster. (In the recording, by PyTorch {{recorded_torch}}, foreach is even a little slower than
# the for-loop there.)
#
# > **Limit of the simulation.** In each step `torch.optim` also collects its lists again, in Python. The simulation leaves
# > this out. With 100 small parameters, the recorded foreach takes {{over_foreach:.0f}} times
# > as long as the simulated, and fused {{over_fused:.0f}} times. Foreach and fused are {{apart_us:.0f}} µs apart
# > there: far more than a few launches. We take both for Python, which a CUDA graph (lesson 07) saves. The other
# > steps take {{least:.1f}} to {{most:.1f}} times as long as simulated: the CPU is slower, and no step reaches
# > {{terabytes:.1f}} TB/s. The recording does not separate the causes.

# %% [markdown]
# ## The running example
#
# The script says `foreach=False`, so its AdamW walks over the parameters one by one. `fused=True` updates all of them in
# two kernels.

# %% experiment
from helpers import running_example


def fused_adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)


before = running_example.after("05")
faster = before.replace(optimizer=fused_adamw)
board = running_example.compare(before, faster)
board

# %% [markdown]
# One argument takes most of the launches away. But the step gains little, since it did not wait for launches: the GPU was
# busy all the time. What it saves is memory traffic. The for-loop moves the weights, the gradients and the two means
# through the memory several times, the fused kernel once. (The whole step may be off, as the label says. But all
# other kernels are the same in both columns: the saved time comes from the optimizer's kernels alone.)

# %% [markdown]
# ## Your own script
#
# Look first at the number of your parameters and at the two options. Then read what the block prints of
# `Optimizer.step#…`: its share of the whole step is all that a faster optimizer can save. (With a GPU, compare its
# milliseconds there with the time of your step, as lesson 00 takes it.) Try `fused=True` first. If your optimizer lacks
# it, see that `foreach` is not switched off.

# %% experiment
from helpers.own_script import toy

model, optimizer, loss_fn, loader, device, step = toy()  # at home: your own

from torch.profiler import profile

params = [p for group in optimizer.param_groups for p in group["params"]]
print(len(params), "parameters,", sum(p.numel() for p in params), "weights")
print({option: optimizer.defaults.get(option) for option in ("foreach", "fused")})  # None: PyTorch chooses

batch = next(iter(loader))
step(batch)  # the first step makes the optimizer's state
with profile() as run:
    step(batch)
rows = run.key_averages()
whole = sum(row.self_cpu_time_total for row in rows)
for row in rows:
    if row.key.startswith("Optimizer.step#") and row.cpu_time_total:  # a GPU has a second row of this name
        share, gpu_ms = row.cpu_time_total / whole, row.device_time_total / 1e3
        print(f"{row.key}: ≈ {100 * share:.0f} % of the step's time on the CPU, ≈ {gpu_ms:.2f} ms on a GPU")

# %% [markdown]
# The toy's model is so small that its optimizer takes a large part of the step.

# %% [markdown]
# ## Sources on trial
#
# Three claims, and what rounds 1 and 2 measured. (*Further* tries two more.)

# %% experiment
from helpers.lessons.optimizers import claims

fused_against_loop = {name: ratios[f"{name}: fused"] for name in ("1 parameter", "256 parameters")}
lesson.verdicts(
    claims.on_trial(steps, LAYERS, fused_against_loop),
    evidence="live (CPU) · simulated (H100)",
    shown=("06-three-for-each", "06-trade-off", "06-fused-launches"),
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Use `fused=True` where the optimizer has it. | Few have it. RMSprop and a formula that you change take foreach. |
# | foreach is the for-loop with fewer launches. | With few large parameters it is no faster; with four equal ones or more it needs more memory: take the for-loop. |
# | A step of the optimizer takes bytes ÷ bandwidth. | With many small parameters, launches and Python take longer. |
# | On a GPU, `AdamW(params)` is foreach already. | On a CPU it is the for-loop. |
#
# **Read on**: the [table of implementations](https://docs.pytorch.org/docs/stable/optim.html#algorithms) in PyTorch's
# documentation; Loshchilov and Hutter, [*Decoupled weight decay
# regularization*](https://arxiv.org/abs/1711.05101) (2019).

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# Five sections, each on its own: gradients that die early (14 min), the time of a step before you own the GPU (18 min),
# what a larger batch buys (5 min) and asks of the learning rate (5 min), and lists that do not become one launch (1 min).
#
# ### When does a gradient die? (14 min)
#
# Gradients need as much memory as the weights. When are they there? Take 16 square parameters, a tiny batch, and plain
# SGD, which has no means and no temporaries. A step can end in three ways:
#
# - **filled with zeros**: [`zero_grad(set_to_none=False)`](https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html);
# - **set to None**: `zero_grad()`, as it is by default;
# - **step inside backward**: a hook uses each gradient and drops it as soon as it is complete.
#
# **How many arrays of a parameter's size exist at the peak, beside the parameters themselves?**

# %% experiment
you = lesson.predict(
    {"filled with zeros": ..., "set to None": ..., "step inside backward": ...}, choices=[1, 2, 16, 17, 32]
)


# %% experiment
def use_and_drop(p):
    """Called when p.grad is complete."""
    p.sub_(p.grad, alpha=0.1)
    p.grad = None


endings = {
    "filled with zeros": experiments.memory_over_a_step(set_to_none=False),
    "set to None": experiments.memory_over_a_step(),
    "step inside backward": experiments.memory_over_a_step(hook=use_and_drop),
}
zeros, none, inside = endings.values()
lesson.keep(zeros=zeros.peak, none=none.peak, inside=inside.peak, more_kernels=zeros.kernels - none.kernels)
peaks = {ending: lives.peak for ending, lives in endings.items()}
picture = experiments.gradients_over_a_step(endings)
you.against(peaks, picture, evidence="simulated (H100)", what="arrays at the peak")

# %% [markdown]
# - **Filled with zeros**, all gradients live for ever. The next backward *adds* to them, so each new gradient exists for a
#   moment beside the old one. A step has {{more_kernels}} kernels more: for each parameter one that writes zeros and one
#   that adds.
# - **Set to None**, gradients are freed, and the next backward simply keeps its results. But the peak is hardly lower,
#   {{none}} arrays in place of {{zeros}}: at the end of backward all gradients exist.
# - **Step inside backward** holds {{inside}}.
#
# AdamW needs four arrays for each parameter: weights, gradients, m and v. The step inside backward saves one of the
# four. The price: nothing may need all gradients at the same time. Clipping by the *total* norm does. `GradScaler`
# (lesson 10) does: it skips the whole step if one gradient is infinite. Adding up several backwards before a step
# does, too. (The peak is lesson 09's subject. PyTorch has a [tutorial on this
# step](https://docs.pytorch.org/tutorials/intermediate/optimizer_step_in_backward_tutorial.html).)

# %% [markdown]
# **Exercise 6.3 — step inside backward** (★★, 6 min)
#
# Do the third way with AdamW in place of SGD. Write the function that sets the hooks up with
# [`p.register_post_accumulate_grad_hook(hook)`](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.register_post_accumulate_grad_hook.html).
# From then on, `backward()` alone trains. PyTorch calls `hook(p)` when `p.grad` is complete: gradients from several uses of
# p are added up by then. For the step itself make a `torch.optim.AdamW` for each parameter (or use your `adamw_loop` of 6.1).
#
# <details><summary>Hint 1</summary>One hook function serves all parameters: it is called with the parameter. So
# whatever it has to remember about each of them lies in a dict.</details>
#
# <details><summary>Hint 2</summary>Each parameter needs its m, its v and its own step number: a parameter that
# took no part in a backward gets no call and makes no step. An optimizer for this parameter alone keeps all three.
# <code>p.grad = None</code> lets go of the bytes.</details>
#
# <details><summary>The idea</summary>A dict from parameter to <code>torch.optim.AdamW([p], …)</code>. The hook calls
# this optimizer's <code>step()</code> and sets <code>p.grad = None</code>.</details>


# %% exercise="step_in_backward"
def step_in_backward(
    params: list[torch.nn.Parameter],
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
) -> list:
    """From now on, every backward() also makes the AdamW step of each parameter that got a gradient.

    params: leaves that want gradients and have none yet, float32 or float64, used once or several times in the forward.
    Returns the handles of the hooks: when all are removed, backward() trains no more. Only then may a second call for
    these params come; it begins with fresh state. A call for other params leaves these and their state as they are.

    After backward(), every p.grad is None, and the weights are those of torch.optim.AdamW after backward()
    and step(), as if zero_grad() followed. Budget for everything that lives, state included: 2 arrays for
    each parameter (m and v), 3 of the largest (a gradient, the root, and the root after a division), activations, and
    1 KiB.
    """
    ### BEGIN SOLUTION
    optimizers = {p: torch.optim.AdamW([p], lr, betas, eps, weight_decay) for p in params}

    def hook(p):
        optimizers[p].step()
        p.grad = None

    return [p.register_post_accumulate_grad_hook(hook) for p in params]
    ### END SOLUTION


# %% test="step_in_backward" points=2
from helpers.lessons.optimizers.exercises import check_step_in_backward, net

check_step_in_backward(
    net([5] * 4, 4, [[0, 1, 2]] * 4, lr=0.05, weight_decay=0.1),
    net([5] * 4, 4, [[0, 1, 2], [0, 2], [0, 1, 2]], lr=0.05),  # the second leaves weight 1 out
)
check_step_in_backward(net([64] * 13, 2, [list(range(12))] * 3, single=True), costs=True)

# %% hidden="step_in_backward" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.optimizers.exercises import check_step_in_backward, net

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
# ### How long will a step take? (18 min)
#
# Round 2 took the larger of two sums: all launches, or all kernels. This is nearly right when the kernels are many and
# alike. Here are two parameters of very different size, and the launches and kernels of the for-loop on one axis of time:

# %% experiment
from helpers import plots

with simulate("H100") as gpu:
    params = [torch.nn.Parameter(torch.empty(n, device=gpu.device)) for n in (2**11, 2**21)]
    for p in params:
        p.grad = torch.empty_like(p)
    optimizer = torch.optim.AdamW(params, **WAYS["for-loop"])
    optimizer.step()
    gpu.synchronize()
    began = gpu.clock()
    optimizer.step()
    gpu.synchronize()
rows = experiments.rows_by_result(gpu)  # what makes the root has one colour
title = "The for-loop over 2,048 and over 2.1 million weights"
plots.timeline(rows, since_s=began, evidence=gpu.evidence, title=title)

# %% [markdown]
# A bar of the CPU is one launch and lasts `launch_s`. A line leads from it to its kernel. The kernel can start `latency_s`
# after the end of the launch, and it lasts `floor_s` at least. In `synchronize` the CPU only waits.
#
# For the small parameter, the GPU waits for each launch. For the large one, the eight kernels take longer than their eight
# launches: soon the CPU is ahead, and the latency no longer shows.

# %% [markdown]
# **Exercise 6.4 — predict the step** (★★, 10 min)
#
# How long will the optimizer take, before you own the GPU? A launch costs the CPU `launch_s`, and then the CPU goes on at
# once. The GPU takes the kernels in order. Each kernel starts when its launch has arrived and the kernel before it has
# ended. Write the prediction for each of the three ways.
#
# <details><summary>Hint 1</summary>First make the list of kernels: the bytes of each, in order. For the loop,
# eight for the first parameter, then eight for the second; for foreach, eight in all.</details>
#
# <details><summary>Hint 2</summary>max(sum of launches, sum of kernels) is nearly right when the kernels are many and alike. With
# a large parameter first, the CPU runs ahead while the GPU works; with it last, the GPU has been waiting
# all the time. Walk through the list with two clocks.</details>
#
# <details><summary>The idea</summary>For each kernel: <code>cpu += launch_s</code>; it starts at
# <code>max(gpu, cpu + latency_s)</code> and lasts <code>max(floor_s, bytes / bytes_per_s)</code>; its end is the
# new <code>gpu</code>. Fused is two kernels: one at the floor, which counts the steps, and one of the bytes
# per weight in the last row of round 2's first table.</details>


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
from helpers.lessons.optimizers.exercises import check_step_time

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
from helpers.lessons.optimizers.exercises import check_step_time

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
# ### What a larger batch buys (5 min)
#
# Ask the same question of a whole training step: eight linear layers of 1,024 × 1,024, forward, backward, then AdamW. From
# batch 1 to batch 64 the arithmetic grows 64-fold. **How many times as long does the step take?** And from batch 4,096 to
# 65,536, which is 16-fold?

# %% experiment
you = lesson.predict({"batch 1 → 64": ..., "batch 4,096 → 65,536": ...}, choices=[1, 2, 4, 8, 16, 64])

# %% experiment
step_s = {batch: experiments.training_step(batch).seconds for batch in experiments.BATCHES}
ratios = {"batch 1 → 64": step_s[64] / step_s[1], "batch 4,096 → 65,536": step_s[65536] / step_s[4096]}
lesson.keep(to_64=ratios["batch 1 → 64"], to_65536=ratios["batch 4,096 → 65,536"])
you.against_ratios(ratios, experiments.by_batch(), evidence="simulated (H100)", what="times as long")

# %% [markdown]
# For small batches, the time hardly grows: a step with 64 samples takes {{to_64:.2f}} times as long as a step with one. Up
# to batch 16 the launches set this time, and their number does not depend on the batch. (The step ends a little after its
# last launch: the large kernel of AdamW is launched last, and has to run, too.) At 64 the kernels already take longer
# than the launches. But even for one sample their time is not zero: a layer reads its whole matrix, and the optimizer all
# its numbers, as for a thousand.
#
# The **knee** is where the step begins to grow: here between batch 16 and 64. Beyond it a sample still gets
# cheaper for a while, because larger matrices fill the GPU better, and the fixed costs (weights, optimizer) are spread.
# In the last rows a sample gets little cheaper: 16 times the batch takes {{to_65536:.1f}} times as long. So a larger
# batch is nearly free up to the knee. Beyond it, it still gains, but less and less. The optimizer is a fixed cost of the
# step: the smaller the batch, the more the choice between the three AdamWs matters.
#
# ### What a larger batch asks of the learning rate (5 min)
#
# A larger batch means fewer steps per epoch. So the learning rate has to change, but by how much?
#
# - **SGD**: k small steps along nearly the same gradient equal one step that is k times as long. So the rate grows **in
#   proportion** to the batch ([Goyal and others, 2017](https://arxiv.org/abs/1706.02677)).
# - **Adam** divides each gradient by √v̂, which is mostly noise. In a batch k times as large the noise is √k times
#   smaller, so at the same rate each step goes √k times as far. It should go k times as far, as k small steps do. So
#   the rate has to grow by **√k**, too ([Malladi and others, 2022](https://arxiv.org/abs/2205.10287); their rule
#   changes β₁, β₂ and eps too).
#
# Here is a small test of both rules. A net of 16 hidden units learns for one epoch from 4,096 noisy samples, in batches of
# 8, 32, 128 and 1,024. For each batch we try a row of learning rates, each from 6 seeds. **From batch 8 to batch 128, 16-fold: by what
# factor does the best learning rate grow?**

# %% experiment
you = lesson.predict({"SGD": ..., "Adam": ...}, choices=[1, 2, 4, 8, 16])

# %% experiment
grows = {kind: experiments.growth(kind) for kind in ("SGD", "Adam")}
you.against_ratios(
    grows,
    experiments.best_rates(),
    evidence="live (CPU)",
    what="grows",
    shown="≈ {:.2f}",
)

# %% [markdown]
# The best rate grows with the batch: for SGD nearly in proportion to it, for Adam about as its square root. The last column
# says the power.
#
# Both rules hold in a *range* of batches. With batch 1,024 the epoch has only four steps: the best rates no longer follow
# the rules, and no rate that we tried reaches the loss of the small batches. In batches larger
# still, noise hardly matters, and more samples per step are wasted ([McCandlish and others,
# 2018](https://arxiv.org/abs/1812.06162)). So do not trust the rule alone: try a few rates around the one that it gives.
#
# ### Lists that do not become one launch (1 min)
#
# A launch carries the addresses of its tensors in a table of a fixed size. In PyTorch 2.13 for CUDA 13, one fused AdamW
# kernel takes up to 252 parameters, and up to 2,240 blocks of 65,536 weights. For an earlier CUDA it is 36 parameters and
# 320 blocks ([`MultiTensorApply.cuh`](https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/cuda/MultiTensorApply.cuh)).
# A longer list takes a few launches more. So round 2's 256 parameters needed two large kernels, not one. Our recording
# was made by PyTorch {{recorded_torch}}, from before [the large
# table](https://github.com/pytorch/pytorch/pull/178641): there the 100 parameters take three (36 + 36 + 28).
#
# This matters more: **with mixed dtypes, or with layouts that differ from list to list, PyTorch quietly
# launches a kernel for each tensor**
# ([`ForeachUtils.h`](https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/ForeachUtils.h)). `torch.optim`
# therefore sorts parameters by device and dtype first. Your own list code has to do this itself.
