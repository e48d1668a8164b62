# %% [markdown]
# # 21 · A kernel of your own
#
# ## When do you need a kernel of your own?
#
# A **kernel** is a function that runs on the GPU. PyTorch has many, and `torch.compile` joins several into one (lesson 11).
# [Triton](https://triton-lang.org/main/index.html) lets you write one yourself, in Python.
#
# You need no GPU. Triton's **interpreter** runs your kernels on the CPU: slowly, and with the same results up to rounding, if
# the kernel is right.
#
# **Time** 60 min, with two exercises; *Further*: 150 min, with three more. **Before this** lessons 01, 02 and 11 (strides, autograd,
# torch.compile).
#
# **Afterwards you can**
# - write a kernel over rows of up to 4,096 numbers, with any strides;
# - say by its loads and stores why it is faster, and when an operator or the compiler does as well;
# - make it an operator that PyTorch can train.
#
# The exercises need Triton, 1 GB on disk: `make lab EXTRAS=kernels` installs it on Linux. Elsewhere the lesson shows runs
# that were kept.

# %% setup
import torch
import torch.nn.functional as F

from helpers import lesson
from helpers.kernels.on_cpu import tl, triton  # in a script: import triton; import triton.language as tl
from helpers.lessons.a_kernel_of_your_own import experiments
from helpers.lessons.a_kernel_of_your_own.explorer import traffic_explorer

torch.set_num_threads(1)
lesson.start(
    "21_a_kernel_of_your_own", evidence=["live (CPU)", "simulated (H100)", "recorded (H100)", "arithmetic"]
)

# %% [markdown]
# ## 1 · Programs, blocks, masks
#
# You write what **one program** does. A **launch** starts many programs, and each has a number,
# [`tl.program_id(0)`](https://triton-lang.org/main/python-api/generated/triton.language.program_id.html).
#
# A program works on **blocks**: small arrays. Their sides are powers of two, known before the run (`tl.constexpr`). An entry of a block is
# called a **lane** here.
#
# A program sees no tensor, no shape and no stride. For each tensor it gets a **pointer**: the address of the first element.
# `x + 5` is the address of the sixth. `tl.arange(0, 4)` is the block 0, 1, 2, 3, so `x + tl.arange(0, 4)` is a block of four addresses.
#
# - [`tl.load(addresses, mask=…, other=…)`](https://triton-lang.org/main/python-api/generated/triton.language.load.html)
#   brings a block from memory. Where the **mask** is false nothing is read, and the lane holds `other`.
# - [`tl.store(addresses, values, mask=…)`](https://triton-lang.org/main/python-api/generated/triton.language.store.html)
#   writes a block. Where the mask is false nothing is written.
#
# On a GPU a masked lane without `other` may hold anything. The course's interpreter puts NaN there (−1 for integers), so that you notice. It does no
# harm where the store is masked too; in a sum it does.
#
# This kernel adds two vectors. `@triton.jit` marks a function as a kernel. `add_kernel[(programs,)](…)` launches it. `triton.cdiv(n, BLOCK)` is n ÷ BLOCK, rounded up.


# %% experiment
@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # the elements of this program
    mask = at < n
    total = tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask)
    tl.store(out + at, total, mask=mask)


@triton.jit
def add_kernel_without_mask(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) + tl.load(y + at))


def add(x, y, kernel=add_kernel, BLOCK=32, out=None):
    out = torch.empty_like(x) if out is None else out
    kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), BLOCK=BLOCK)
    return out


# %% [markdown]
# x and y have 100 elements each, and a block has 32. How many programs does it take? How many lanes of the load of x does
# the mask switch off, in all programs?
#
# Somebody forgets the mask. x, y and `out` are each the first 100 elements of a storage of 128. Behind `out` lies another
# tensor, its **neighbour**. What becomes of the result, and of the neighbour?

# %% experiment
you = lesson.predict(
    {"programs": ..., "lanes masked": ..., "without the mask": ..., "the neighbour": ...},
    choices={
        "programs": [3, 4, 100],
        "lanes masked": [0, 4, 28],
        "without the mask": ["an error", "a wrong result", "the right result"],
        "the neighbour": ["as it was", "overwritten"],
    },
)

# %% experiment
x, y, room = torch.arange(128.0)[:100], torch.ones(128)[:100], torch.full((128,), 7.0)
out, neighbour = room[:100], room[100:]
added = experiments.ran("add", lambda: add(x, y), want=x + y)
without = experiments.ran(
    "add without a mask", lambda: add(x, y, add_kernel_without_mask, out=out), want=x + y
)


def neighbour_after():
    add(x, y, add_kernel_without_mask, out=out)
    return neighbour


beside = experiments.ran("its neighbour", neighbour_after, want=torch.full((28,), 7.0))
measured = {"programs": added.seen.programs, "lanes masked": experiments.masked(added.seen)}
measured["without the mask"] = "the right result" if without.same else without.error or "a wrong result"
measured["the neighbour"] = "as it was" if beside.same else "overwritten"
you.against(
    measured, experiments.launches({"add": added}), experiments.lanes(100, 32), evidence=experiments.LIVE
)

# %% [markdown]
# The mask cuts off what hangs over the end. Without it the
# result is right, no error is raised, and the neighbour is gone. **Your test would have passed.**
#
# `add_kernel` takes for granted that elements lie side by side. For any other layout a kernel is told the strides (lesson 01). This one
# copies a matrix, a row for each program:
#
# ```python
# @triton.jit
# def copy_kernel(x, out, row_step, column_step, columns, BLOCK: tl.constexpr):
#     row, at = tl.program_id(0), tl.arange(0, BLOCK)
#     numbers = tl.load(x + row * row_step + at * column_step, mask=at < columns)
#     tl.store(out + row * columns + at, numbers, mask=at < columns)
#
# copy_kernel[(rows,)](x, out, x.stride(0), x.stride(1), columns, BLOCK=triton.next_power_of_2(columns))
# ```
#
# Such an offset has 32 bits, and no error warns you. Where it can pass 2³¹, write `row.to(tl.int64) * row_step`.
#
# > **Rule.** A kernel is: which elements are mine, a mask, loads, arithmetic, stores.
# > *Where it stops:* programs of one launch run in any order. If one needs what another computes, that takes a second launch; for a sum or a
# > maximum an atomic operation will do.
#
# ## 2 · What a kernel costs
#
# Between load and store a block lies on the chip, where arithmetic is nearly free. What takes time is the way to the GPU's memory
# and back. So the cost of most kernels is **the bytes they load and store**. The course counts what goes through pointers. Between
# these and the memory lie caches.
#
# The softmax of each row, as five operators:
#
# ```python
# top = x.amax(-1, keepdim=True)  # reads x, writes one number a row
# z = x - top
# powers = torch.exp(z)
# total = powers.sum(-1, keepdim=True)
# result = powers / total
# ```
#
# How much do the five read and write together, in units of the size of x? Go through the lines as in the first comment; one number a row
# counts as nothing. And how much does the one operator `F.softmax`?

# %% experiment
you = lesson.predict({"five operators": ..., "F.softmax": ...}, choices=["2 ×", "5 ×", "8 ×"])

# %% experiment
x_rows = torch.empty(65_536, 1024)
rows = {
    "five operators": experiments.on_card(experiments.by_operators, x_rows),
    "F.softmax": experiments.on_card(lambda x: F.softmax(x, -1), x_rows),
}
lesson.keep(
    saved=rows["five operators"].bytes / rows["F.softmax"].bytes, slower=experiments.recorded_slower()
)
you.against(
    {name: f"{way.bytes / x_rows.nbytes:.0f} ×" for name, way in rows.items()},
    experiments.ways(rows, x_rows.numel()),
    experiments.recorded_softmaxes(65_536),
    evidence="simulated (H100) · recorded (H100)",
)

# %% [markdown]
# One kernel must at least read x once and write the result once. The five operators move {{saved:.0f}} times as much, and the real card needed
# {{slower:.1f}} times the time. The rest is not explained.
#
# Joining operators is called **fusion**. Here the compiler does it for you: the kernel written by hand (last row) takes about as long.
# You write that kernel now.
#
# **Exercise 21.1 — softmax, read once** (★★, 18 min)
#
# Write a softmax of each row, by kernels alone.
#
# - **You need** `tl.max(block, 0)`, `tl.sum(block, 0)`, `tl.exp`, which refuses float16 and bfloat16, and `block.to(tl.float32)`.
#   All of `tl` but `tl.extra` is allowed, and so is `float("inf")`.
# - The course **refuses** lists and NumPy in a kernel. A number from outside comes in as an argument, or is a `tl.constexpr`. The test gives your
#   kernel to the first stage of Triton's compiler, and says what that refuses.
# - **The test** hands you an x whose numbers only your kernel sees: in Python `x.max()` gives NaN. Shapes, strides and
#   `x.new_empty(x.shape)`, which makes the result, work as always.
#
# Try it first on a tensor of your own: `softmax(torch.randn(3, 5))`. In the interpreter a kernel may `print`.
#
# <details><summary>Hint 1</summary>One program for each row, as in <code>copy_kernel</code>. The masked lanes take part in the maximum and in
# the sum: which <code>other</code> changes neither?</details>
#
# <details><summary>Hint 2</summary><code>tl.store</code> converts to the type of the pointer. Subtract the maximum before <code>tl.exp</code>, or large numbers overflow.</details>
#
# <details><summary>The idea</summary>Load the row with <code>other=-float("inf")</code>, as float32. Subtract the maximum, take
# <code>exp</code>, divide by the sum, store.</details>


# %% exercise="softmax"
@triton.jit
def softmax_kernel(x, out, row_step, column_step, columns, BLOCK: tl.constexpr):
    """Program i: row i. x, out: pointers; row_step, column_step: x's strides. Change the arguments as you like."""
    ### BEGIN SOLUTION
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < columns
    numbers = tl.load(x + row * row_step + at * column_step, mask=mask, other=-float("inf")).to(tl.float32)
    powers = tl.exp(numbers - tl.max(numbers, 0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, 0), mask=mask)
    ### END SOLUTION


def softmax(x: torch.Tensor) -> torch.Tensor:
    """x.softmax(-1), by kernels alone, in the dtype of x.

    x: (rows, columns), both at least 1, columns at most 4,096; float32, float16 or bfloat16, any strides and offset, all
    numbers finite. Returns (rows, columns), contiguous. The sum is taken in float32.
    Budget: rows · columns elements loaded, and as many stored.
    """
    ### BEGIN SOLUTION
    rows, columns = x.shape
    out = torch.empty(rows, columns, dtype=x.dtype)
    softmax_kernel[(rows,)](x, out, *x.stride(), columns, BLOCK=triton.next_power_of_2(columns))
    return out
    ### END SOLUTION


# %% test="softmax" points=1
from helpers.lessons.a_kernel_of_your_own.exercises import Rows, check_softmax

check_softmax(Rows(4, 8), Rows(3, 33), Rows(3, 20, layout="columns"), Rows(2, 48, "float16"))
check_softmax(Rows(3, 33, scale=1000.0))  # exp of such numbers overflows

# %% hidden="softmax" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.a_kernel_of_your_own.exercises import Rows, check_softmax

check_softmax(
    Rows(1, 1), Rows(5, 1), Rows(1, 777), Rows(7, 65, layout="sliced"), Rows(6, 31, layout="every second")
)
check_softmax(
    Rows(4, 10, layout="one row"), Rows(5, 100, shift=300.0), Rows(5, 100, shift=-300.0, scale=40.0)
)
check_softmax(Rows(131, 3))  # few programs may share the rows
check_softmax(Rows(3, 3001, "float16", scale=0.01), Rows(3, 3001, "bfloat16", "columns"), Rows(2, 4096))
### END HIDDEN TESTS

# %% [markdown]
# Your kernel beside the others, on rows of 1,024 numbers:

# %% experiment
experiments.with_yours(softmax)

# %% [markdown]
# Your lines move as little as `F.softmax`. So does the compiler, for rows of up to 1,024 numbers; longer ones it loads again, probably
# from the cache. **First an operator, then the compiler, and time both.**
#
# > **Rule.** The least that a kernel can move is what it needs of each input once, and each result once. One that moves only that seldom has much to gain.
# > *Where it stops:* a small kernel costs its launch. A large product of matrices, well written, costs its arithmetic.
#
# ## 3 · Leave work out
#
# The compiler fuses what you wrote. It does not find out that a part of it counts for nothing.
#
# A batch holds 8 texts. Each has 512 places for tokens, and each place has 64 numbers: x is (8, 512, 64). `filled` says how many places each
# text has filled; the others are **padding**. Place p of text t begins at (t · 512 + p) · 64.

# %% experiment
filled = torch.tensor([40, 400, 72, 16, 56, 128, 24, 88])
experiments.cache_rooms(filled.tolist(), 512)

# %% [markdown]
# Wanted is the mean of each text over its filled places. Three ways:
#
# - **mask, then sum**: `(x * mask).sum(1) / n`, where the mask is 1 for a filled place and 0 for padding;
# - **one product**: `torch.bmm(mask, x) / n`, a matrix product;
# - **a kernel's loop**: a program for each text, with a loop that ends where the text does.


# %% experiment
@triton.jit
def mean_kernel(x, filled, out, PLACES: tl.constexpr, D: tl.constexpr):
    text, d = tl.program_id(0), tl.arange(0, D)  # D is a power of two here: no mask
    n = tl.load(filled + text)  # one address, so one number
    total = tl.zeros((D,), tl.float32)
    for place in range(0, n):
        total += tl.load(x + (text * PLACES + place) * D + d)
    tl.store(out + text * D + d, total / n)


def mean(x, filled):
    out = torch.empty(len(x), x.shape[2])
    mean_kernel[(len(x),)](x, filled, out, PLACES=x.shape[1], D=x.shape[2])
    return out


# %% [markdown]
# How many bytes does each way move, in units of the size of x?

# %% experiment
you = lesson.predict(
    {"mask, then sum": ..., "one product": ..., "a kernel's loop": ...},
    choices=["0.2 ×", "0.8 ×", "1.0 ×", "2.0 ×", "3.0 ×"],
)

# %% experiment
texts = torch.sin(torch.arange(8.0 * 512 * 64)).view(8, 512, 64)
counts = (torch.arange(512) < filled[:, None]).float()  # 8 × 512: 1 where a place is filled


def mask_then_sum(x, mask):
    return (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)


def one_product(x, mask):
    return torch.bmm(mask[:, None], x)[:, 0] / mask.sum(1, keepdim=True)


moved = {
    "mask, then sum": experiments.on_card(mask_then_sum, texts, counts),
    "one product": experiments.on_card(one_product, texts, counts),
}
meant = experiments.ran("mean", lambda: mean(texts, filled), want=mask_then_sum(texts, counts))
assert meant.same
moved["a kernel's loop"] = experiments.Way(1, meant.seen.bytes)
flex, whole, masked = experiments.recorded_window()  # µs: FlexAttention, all scores, a mask tensor
lesson.keep(flex_us=flex, all_us=whole, window_times=masked / flex)
you.against(
    {name: f"{way.bytes / texts.nbytes:.1f} ×" for name, way in moved.items()},
    experiments.ways(moved, texts.numel(), first="mean", evidence=f"simulated (H100) · {experiments.LIVE}"),
    evidence=f"simulated (H100) · {experiments.LIVE}",
)

# %% [markdown]
# The product writes down no masked copy of x, but it reads all of x. A compiled kernel has to as well (not measured here), since 0 times NaN is NaN. The
# kernel never comes near the padding. With finite padding the result is the same; with NaN there, only the loop's is right.
#
# Does that save time? Not here: x has 1 MB, which an H100 reads in less than a µs, and 8 programs leave most of it idle. On large inputs it can. In
# **attention** each token gives other tokens scores, and takes a mean of their values, weighted by these. Let each of 8,192 tokens look at the last 256 only.
#
# On a real H100 FlexAttention, which generates such a kernel, took {{flex_us:.0f}} µs. PyTorch's operator SDPA, computing every score, took {{all_us:.0f}} µs. With a mask tensor, which the
# window needs there, it took about {{window_times:.0f}} times as long as FlexAttention (table in *Further*).
#
# > **Rule.** A kernel of your own wins mostly by what it neither loads nor computes.
# > *Where it stops:* nothing can be left out, as in a GELU; or somebody leaves it out already. For attention that is `is_causal=True` or
# > FlexAttention (lesson 19).
#
# ## 4 · An operator of PyTorch
#
# You put `add` of section 1 into a model, without `torch.compile`: `head(add(encoder(numbers), numbers))`. It learns the sum of each row of `numbers`. You train 50 steps. What do you see?

# %% experiment
you = lesson.predict(
    {"50 steps": ...},
    choices=[
        "an error",
        "a loss that stays",
        "it falls, and encoder never moves",
        "it falls, and all layers move",
    ],
)


# %% experiment
def fifty_steps(add=add):
    torch.manual_seed(0)
    encoder, head, numbers = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1), torch.randn(64, 8)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.05)
    before, losses = encoder.weight.detach().clone(), []
    for _ in range(50):
        optimizer.zero_grad()
        loss = F.mse_loss(head(add(encoder(numbers), numbers)), numbers.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if losses[-1] > losses[0] / 2:
        return "a loss that stays"
    stays = torch.equal(before, encoder.weight)
    return "it falls, and encoder never moves" if stays else "it falls, and all layers move"


you.against({"50 steps": experiments.kept("50 steps", fifty_steps)}, evidence=experiments.LIVE)

# %% [markdown]
# The loss falls: `head` finds the sum in the `numbers` that were added. `encoder` got no gradient, and nothing said so.
# **A function that launches a kernel is a hole in autograd**: its result has no way back.
#
# [`torch.library.custom_op`](https://docs.pytorch.org/docs/stable/library.html) makes an operator of your function: a closed box with three labels. Autograd
# and the compiler read the labels, and not your code.
#
# | label | what it says | who asks |
# |---|---|---|
# | schema: type hints and `mutates_args` | types of inputs and result; the inputs it writes into, `()` for none | every call |
# | fake: `register_fake` | shape, strides, dtype and device of the result, without its numbers | the compiler |
# | gradient: `register_autograd` | what backward does | backward |


# %% experiment
@torch.library.custom_op("lesson21::taught", mutates_args=())
def taught(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return add(x, y)  # contiguous x and y alone: add_kernel knows no strides


taught.register_fake(lambda x, y: torch.empty_like(x))  # the result's form, without its numbers
taught.register_autograd(lambda ctx, grad: (grad, grad))  # of x + y: what comes in, for both
print(experiments.kept("50 steps with an operator", lambda: fifty_steps(taught)))

# %% [markdown]
# Now all layers learn. A sum's gradient needs nothing of forward. Where another does, a second function keeps it. PyTorch calls it
# after forward, with arguments of exactly these names:
#
# ```python
# def keep(ctx, inputs, output):
#     ctx.save_for_backward(output)  # or what you need of inputs
#
# op.register_autograd(lambda ctx, grad: ... ctx.saved_tensors ..., setup_context=keep)
# ```
#
# If backward launches a kernel too, make that an operator with a fake as well: the compiler captures both.
#
# A fake must give the true strides. `torch.empty_like(x)` keeps the order of x's strides, while `x.new_empty(x.shape)` is contiguous.
# [`torch.library.opcheck(op, (x,))`](https://docs.pytorch.org/docs/stable/library.html) compares a fake with the real result.
# Try it on an x and on a transposed matrix, both with `requires_grad_()`.
#
# **Exercise 21.2 — an operator with a gradient** (★★, 12 min)
#
# You are handed two functions that launch a kernel each: `forward(x)` gives y, a sigmoid; `backward(dy, y)` the gradient of x. Make them an operator
# that trains, plain and compiled.
#
# Pass x, dy and y on unchanged to `forward` and `backward`. In the gradient call the second operator as `second(dy, y)`; `torch.ops.…` would need its name in the code.
#
# <details><summary>Hint 1</summary>Two operators: <code>custom_op(name, mutates_args=())</code> and one more for
# <code>backward</code>, under another name such as <code>name + "_backward"</code>. <code>forward</code> may have no type hints, and then <code>custom_op</code>
# refuses it. Decorate functions of your own: <code>x: torch.Tensor</code>, <code>-> torch.Tensor</code>.</details>
#
# <details><summary>Hint 2</summary>Both results are contiguous, whatever the strides of x or dy. Backward needs y, which is forward's
# <code>output</code>, and not x.</details>
#
# <details><summary>The idea</summary>Decorate two functions, <code>register_fake</code> on both, then on the first
# <code>register_autograd(lambda ctx, dy: second(dy, *ctx.saved_tensors), setup_context=keep)</code>.</details>


# %% exercise="operator"
def operator(name, forward, backward):
    """An operator of PyTorch, called `name` ("space::word"), that computes forward(x), with a gradient.

    forward: x (rows, columns), any strides → y, contiguous, shape and dtype of x.
    backward: (dy, y) → the gradient of x, contiguous. dy may have any strides, 0 among them. Each launches one kernel.

    Returns what @torch.library.custom_op(name, …) makes of a function: the operator itself. It
    - gives forward(x), and x a gradient if x wants one (a second derivative is not asked for);
    - is one graph under torch.compile(fullgraph=True), backward included;
    - is right by torch.library.opcheck.
    Budget: forward and backward launch once each. Kept for backward: y alone.
    """
    ### BEGIN SOLUTION

    @torch.library.custom_op(name, mutates_args=())
    def first(x: torch.Tensor) -> torch.Tensor:
        return forward(x)

    @torch.library.custom_op(name + "_backward", mutates_args=())
    def second(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return backward(dy, y)

    def keep(ctx, inputs, output):
        ctx.save_for_backward(output)

    first.register_fake(lambda x: x.new_empty(x.shape))
    second.register_fake(lambda dy, y: y.new_empty(y.shape))
    first.register_autograd(lambda ctx, dy: second(dy, *ctx.saved_tensors), setup_context=keep)
    return first
    ### END SOLUTION


# %% test="operator" points=1
from helpers.lessons.a_kernel_of_your_own.exercises import Used, check_operator

check_operator(Used(4, 6), Used(4, 3, "float16"), Used(4, 6, layout="columns"))

# %% hidden="operator" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.a_kernel_of_your_own.exercises import Used, check_operator

check_operator(Used(3, 5, layout="columns"), Used(2, 7, "float16", "sliced", twice=True))
### END HIDDEN TESTS

# %% [markdown]
# > **Rule.** A kernel goes into a model that trains as an operator: with a schema, a fake and a gradient.
# > *Where it stops:* the compiler fuses nothing into it. What stands before and after is read and written again.

# %% [markdown]
# ## The running example
#
# The script of lesson 00 writes GELU out by its formula; since lesson 02 it calls `F.gelu`. What would a kernel of your own buy there?

# %% experiment
from helpers.running_example import plain as plain_script

wide = torch.empty(8 * 128, 4 * 256)
gelu = {
    "the script's formula": experiments.on_card(plain_script.activation, wide),
    "F.gelu": experiments.on_card(lambda x: F.gelu(x, approximate="tanh"), wide),
}
lesson.keep(gelu_kernels=gelu["the script's formula"].kernels)
experiments.ways(gelu, wide.numel(), first="GELU")

# %% [markdown]
# A kernel of your own would end the formula's {{gelu_kernels}} kernels. `F.gelu` ends them too, and nothing can be
# left out. So this lesson buys the script nothing: the usual outcome.
#
# ## Your own script
#
# Here are the operators of a toy step that read most:

# %% experiment
import math

from torch.profiler import ProfilerActivity, profile

from helpers.own_script import toy

_, _, _, loader, _, step = toy(width=256, batch=64)  # at home: your own step and loader
batch = next(iter(loader))
step(batch)  # warm-up
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
    step(batch)

VIEWS = "as_strided t transpose view reshape detach expand unsqueeze resolve_conj".split()  # read nothing
reads = {}
for event in prof.key_averages(group_by_input_shape=True):
    shapes = [tuple(shape) for shape in event.input_shapes if shape and isinstance(shape[0], int)]
    name = event.key.removeprefix("aten::")
    if name != event.key and name not in VIEWS:
        reads[name, str(shapes)] = event.count * sum(map(math.prod, shapes))
for (name, shapes), elements in sorted(reads.items(), key=lambda item: (-item[1], item[0]))[:6]:
    print(f"{elements:8,} elements in  {name:12} {shapes}")

# %% [markdown]
# An operator that calls another (linear, addmm) is listed twice. Questions 1 and 2 are about this list; for 3 look for padding and
# masks in your code.
#
# 1. Is there one operator for several of these? The first four are steps of AdamW, and `torch.optim.AdamW(…, fused=True)` does them at once.
# 2. Does `torch.compile` join them?
# 3. Do they compute what is thrown away, such as padding, and does nobody leave it out for you? Then write the kernel.
#
# ## Sources on trial

# %% experiment
from helpers.lessons.a_kernel_of_your_own import claims

lesson.verdicts(claims.on_trial(), evidence="simulated (H100)")

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | First an operator, then the compiler, then a kernel. | Where operator and compiler both process padding, start with the kernel. |
# | The least is what is needed of each input once, each result once. | Large products of matrices: there the arithmetic takes the time. |
# | A mask at each load and store, `other` neutral for what follows. | A block that fits exactly needs none, as `D` in `mean_kernel`. |
# | A kernel goes into a model as an operator, with a fake and a gradient. | The compiler fuses nothing into it. |
#
# **Read on**: [Triton's tutorials](https://triton-lang.org/main/getting-started/tutorials); P. Tillet, H. T. Kung, D. Cox,
# [*Triton*, 2019](https://doi.org/10.1145/3315508.3329973).

# %% [markdown]
# ## Further
#
# Each section needs only the core, run before it. *Attention in blocks* needs the long row too, and *A product in tiles* needs *Reuse*.

# %% [markdown]
# ### A row longer than a block (10 min)
#
# Exercise 21.1 holds a whole row on the chip. A longer row comes in blocks, and its maximum is known only at the end. Three passes are the plain
# way: maximum, sum, result. A running maximum saves one of them.
#
# `top` is the largest number so far. The sum so far, `total`, was made with it. When a larger number `new` comes, each exp(x − `top`) in the sum should be
# exp(x − `new`). That is a factor of exp(`top` − `new`) for all of it.
#
# An example. A first block has the numbers 1 and 2: `top` is 2, and `total` is e⁻¹ + 1 = 1.37. A second block has the number 4: the factor is e⁻² = 0.14, and
# `total` becomes 1.37 · 0.14 + 1 = 1.19. That is e⁻³ + e⁻² + 1, as if the maximum had been known.


# %% experiment
@triton.jit
def online_kernel(x, out, n, BLOCK: tl.constexpr):
    x, out, at = x + tl.program_id(0) * n, out + tl.program_id(0) * n, tl.arange(0, BLOCK)
    top, total = -float("inf"), 0.0
    for start in range(0, n, BLOCK):
        block = tl.load(x + start + at, mask=start + at < n, other=-float("inf"))
        new = tl.maximum(top, tl.max(block, 0))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(block - new), 0)
        top = new
    for start in range(0, n, BLOCK):
        block = tl.load(x + start + at, mask=start + at < n)
        tl.store(out + start + at, tl.exp(block - top) / total, mask=start + at < n)


def online(x):
    out = torch.empty_like(x)
    online_kernel[(len(x),)](x, out, x.shape[1], BLOCK=64)
    return out


long = torch.linspace(-3, 3, 600).view(2, 300)
two = experiments.ran("online", lambda: online(long), want=long.softmax(-1))
assert two.same
lesson.keep(long_loads=two.seen.loads // long.numel())
experiments.launches({"online": two})

# %% [markdown]
# Each element is loaded {{long_loads}} times in place of three.
#
# The running sum must be in float32. In float16 it stops growing when what is added is less than half the distance to the next
# number (at exactly half, it rounds to the even neighbour):

# %% experiment
running = {"float16": torch.zeros((), dtype=torch.float16), "float32": torch.zeros(())}
for name, total in running.items():
    for _ in range(3000):
        total += 1
    print(f"3,000 ones, added one by one in {name}: {total.item():,.0f}")
lesson.keep(stops_at=running["float16"].item())

# %% [markdown]
# At {{stops_at:,.0f}} the next float16 is 2 away (lesson 10). Blocks help by the way: a sum of block sums adds larger numbers to the total, and fewer of them.
#
# Inductor, too, holds rows of up to 1,024 numbers on the chip when it reduces along them, and loads a longer row again for each pass ([its
# source](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/choices.py#L411-L422)). Does a kernel that holds the whole row
# save time against it? A real H100, with the kernel of exercise 21.1:

# %% experiment
lesson.keep(longer=experiments.recorded_slower("F.softmax", "a Triton kernel", 16_384))
experiments.recorded_softmaxes()

# %% [markdown]
# No: for rows of 4,096 numbers the compiler's kernel is as fast, probably since its second pass finds the row in the cache. The kernel written by hand saved loads, and no
# time against it. `F.softmax` needs {{longer:.1f}} times its time there, though it counts as moving the same bytes: loads and stores are not all of it. With only 64 rows
# the GPU probably waits for the CPU: a launch by Triton costs the CPU more than one of PyTorch's, and a compiled function also checks its guards and runs its wrapper.
#
# ### Attention in blocks (45 min)
#
# A model writes eight texts at once, and each of them gets its next token (lesson 20).
# A *KV cache* holds a key and a value for every earlier token, of 64 numbers each. It has room for 512 tokens of each text, and is filled as the
# picture of section 3 shows.
#
# The new token has a query. Its product with a key is a score, softmax makes weights of the scores, and the result is the sum of the
# values with these weights: attention. Places that are not filled must not count. Three ways:
#
# - **all places**: `F.scaled_dot_product_attention(q, k, v, attn_mask=mask)` (SDPA), where the mask says which places count;
# - **up to the longest**: the same operator on `k[:, :, :longest]` and `v[:, :, :longest]` (on a GPU the CPU has to wait for this number);
# - **a kernel**: a program for each text, which looks up how many places its text has filled.
#
# A score of 0 would still have a weight, exp(0 − maximum). So places that do not count get a score of −∞, whose weight is 0.
# And the values need `other=0.0`, since 0 times NaN is NaN.
#
# In this kernel blocks have two axes. As in PyTorch `a[:, None]` is a column and `b[None, :]` a row, and together they make a block.
# `tl.where` is `torch.where`, and `keep_dims` is `keepdim`. The comments say how large each block is.


# %% experiment
@triton.jit
def attend_kernel(q, k, v, filled, out, PLACES: tl.constexpr, D: tl.constexpr):
    text = tl.program_id(0)
    d = tl.arange(0, D)[None, :]  # 1 × D
    place = tl.arange(0, PLACES)[:, None]  # PLACES × 1
    mask = place < tl.load(filled + text)  # PLACES × 1: which places this text has filled
    at = (text * PLACES + place) * D + d  # PLACES × D
    keys = tl.load(k + at, mask=mask, other=0.0)
    query = tl.load(q + text * D + d)  # 1 × D
    scores = tl.sum(keys * query, 1, keep_dims=True) / D**0.5  # PLACES × 1
    scores = tl.where(mask, scores, -float("inf"))
    powers = tl.exp(scores - tl.max(scores, 0, keep_dims=True))  # 0 where not filled
    weights = powers / tl.sum(powers, 0, keep_dims=True)  # PLACES × 1, in all 1
    values = tl.load(v + at, mask=mask, other=0.0)
    tl.store(out + text * D + d, tl.sum(weights * values, 0, keep_dims=True))


# %% experiment
def attend(q, k, v, filled):
    out = torch.empty_like(q)
    attend_kernel[(len(q),)](q, k, v, filled, out, PLACES=k.shape[2], D=k.shape[3])
    return out


# %% [markdown]
# How many bytes does each way move, compared with the whole cache? And how many scores does the kernel compute, for these eight texts?

# %% experiment
you = lesson.predict(
    {"all places": ..., "up to the longest": ..., "a kernel": ..., "scores in the kernel": ...},
    choices={
        "all places": ["about 10 %", "about 20 %", "about 40 %", "about 80 %", "about 100 %"],
        "up to the longest": ["about 10 %", "about 20 %", "about 40 %", "about 80 %", "about 100 %"],
        "a kernel": ["about 10 %", "about 20 %", "about 40 %", "about 80 %", "about 100 %"],
        "scores in the kernel": [824, 3200, 4096],
    },
)

# %% experiment
q, k, v = (
    torch.sin(torch.arange(8.0 * n * 64)).view(8, 1, n, 64) for n in (1, 512, 512)
)  # texts, heads, n, 64
mask = torch.arange(512) < filled[:, None, None, None]


def operator_up_to(n):
    def attention(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k[:, :, :n], v[:, :, :n], attn_mask=mask[..., :n])

    return experiments.on_card(attention, q, k, v, mask)


longest = int(filled.max())
ways = {"all places": operator_up_to(512), "up to the longest": operator_up_to(longest)}
scores = {"all places": 8 * 512, "up to the longest": 8 * longest}
counted = experiments.ran(
    "attend", lambda: attend(q, k, v, filled), want=F.scaled_dot_product_attention(q, k, v, mask)
)
assert counted.same
ways["a kernel"], scores["a kernel"] = (
    experiments.Way(1, counted.seen.bytes),
    experiments.scores(counted.seen, 8, 64),
)
lesson.keep(less=ways["all places"].bytes / ways["a kernel"].bytes)
measured = experiments.shares(ways, k.nbytes + v.nbytes) | {"scores in the kernel": scores["a kernel"]}
table = experiments.cache_reads(ways, scores, k.nbytes + v.nbytes)
you.against(measured, table, evidence=f"simulated (H100) · {experiments.LIVE}")

# %% [markdown]
# The kernel moves a fifth of the bytes that SDPA moves on all places (1 ÷ {{less:.1f}}), with the same result. **The mask** does it: what
# counts for nothing is not read.
#
# But the kernel computes as many scores as the operator, and throws most of them away. **A mask leaves out loads and stores, and no arithmetic.**
#
# And its block is as large as the room of a text. A program runs on 128 threads (`num_warps=4`), so 512 × 64 keys are 256 numbers for each thread. A thread has
# [at most 255 registers](https://docs.nvidia.com/cuda/cuda-c-programming-guide/#features-and-technical-specifications-technical-specifications-per-compute-capability).
# Does it fit? Triton's compiler runs on a CPU too. It says what an H100 needs for a room of 512, and of 1,024:

# %% experiment
experiments.rooms(counted.seen, [512, 1024])

# %% [markdown]
# With 512 places it fits: not all numbers are needed at once. With 1,024 it does not, and no error says so. The compiler **spills**: it puts the
# rest into memory, through the caches, and reads it back. The course's counts do not include that. More threads would share the block (`num_warps=8`), until the room grows again.
#
# So a kernel goes through the places **in blocks** of fixed size, and enters only blocks in which a place counts:
#
# ```python
# top, total, result = -float("inf"), 0.0, tl.zeros((1, D), tl.float32)
# for start in range(0, n, BLOCK):  # n: as many places as the text has filled
#     if ...:  # a place of this block counts
#         place = start + tl.arange(0, BLOCK)[:, None]
#         ...  # mask, keys, scores and values as in attend_kernel
#         new = tl.maximum(top, tl.max(scores))  # one number: without an axis, tl.max and tl.sum go along all
#         shrink = tl.exp(top - new)
#         powers = tl.exp(scores - new)
#         total = total * shrink + tl.sum(powers)
#         result = result * shrink + tl.sum(powers * values, 0, keep_dims=True)  # 1 × D
#         top = new
# ```
#
# The softmax is carried from block to block as in the long row, and the weighted sum of the values shrinks with it. So one pass is enough: at the end the attention is
# `result / total`. A trap: let in a first block in which nothing counts, and `top` stays −∞, and −∞ − (−∞) is NaN. A right `if` never does.
#
# The compiler is stricter than the interpreter. What a loop changes keeps its dtype and its shape: `total = 0`, or `result = 0.0` for a block, is refused. There is no
# `break`, `continue` or `return` in a loop.
#
# **Exercise 21.3 — attention in blocks** (★★, 20 min)
#
# So that long texts stay cheap, a new token looks back at two kinds of places only. These are the last `window` filled ones, and the first ones of the text, the `sinks`. (Much of a
# model's attention goes to the first tokens, whatever they are; without them it breaks down:
# [G. Xiao and others, 2023](https://arxiv.org/abs/2309.17453).) SDPA can only mask the rest. FlexAttention (lesson 19) takes such a rule, and writes a kernel in Triton for it; here you
# write a small relative of that kernel.
#
# Read no place that does not count, and enter no block without one. Before the loop you need the text's number, `n` and the query; after it, one store.
# Blocks of 16 places fit the budget: at most 15 too many behind the sinks, and 15 on each side of the window. As in 21.1 only kernels can read the numbers,
# those of `filled` too.
#
# <details><summary>Hint 1</summary>A place counts if it is filled <em>and</em> (is one of the first <em>or</em> one of the last).
# In Triton <em>and</em> is <code>&amp;</code>, <em>or</em> is <code>|</code>, and each comparison stands in brackets. The mask stands at both loads
# and at the scores.</details>
#
# <details><summary>Hint 2</summary>The <code>if</code> is about numbers: <code>start</code>, <code>BLOCK</code>, <code>sinks</code>, <code>window</code> and <code>n</code>. Which
# blocks hold a sink? Which reach into the window?</details>
#
# <details><summary>The idea</summary>A block holds a sink if its first place, <code>start</code>, is one. It holds a place of the window if its last place, <code>start + BLOCK - 1</code>, is at
# <code>n - window</code> or later. In it the mask is the hint's, and all else is as in <code>attend_kernel</code>.</details>


# %% exercise="attend_window"
@triton.jit
def window_kernel(
    q, k, v, filled, out, sinks, window, PLACES: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr
):
    """Program i: text i. Change the arguments as you like."""
    ### BEGIN SOLUTION
    text, d = tl.program_id(0), tl.arange(0, D)[None, :]
    n, query = tl.load(filled + text), tl.load(q + text * D + d)
    top, total, result = -float("inf"), 0.0, tl.zeros((1, D), tl.float32)
    for start in range(0, n, BLOCK):
        if (start < sinks) | (start + BLOCK > n - window):
            place = start + tl.arange(0, BLOCK)[:, None]
            mask = (place < n) & ((place < sinks) | (place >= n - window))
            at = (text * PLACES + place) * D + d
            keys = tl.load(k + at, mask=mask, other=0.0)
            scores = tl.where(mask, tl.sum(keys * query, 1, keep_dims=True) / D**0.5, -float("inf"))
            new = tl.maximum(top, tl.max(scores))
            shrink, powers = tl.exp(top - new), tl.exp(scores - new)
            total = total * shrink + tl.sum(powers)
            values = tl.load(v + at, mask=mask, other=0.0)
            result = result * shrink + tl.sum(powers * values, 0, keep_dims=True)
            top = new
    tl.store(out + text * D + d, result / total)
    ### END SOLUTION


def attend_window(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, filled: torch.Tensor, sinks: int, window: int
) -> torch.Tensor:
    """Attention of a query to the first `sinks` and the last `window` of the places that its text has filled.

    q: (texts, 1, 1, d); k, v: (texts, 1, places, d); float32, contiguous, finite where filled and anything elsewhere;
    places and d: powers of two, 16 to 512. filled: (texts,) int64, 1 to places. sinks: 0 or more, window: 1 or more; either may be
    more than is filled.
    Returns (texts, 1, 1, d), contiguous.
    Budget, for each text: loaded are 1 number of filled, d of q, and d of k and d of v for each place that counts; d are stored. A
    place that is among the first and the last counts once. The blocks of k may hold, masked, at most 45 places that do not
    count, and so may those of v.
    """
    ### BEGIN SOLUTION
    out = torch.empty_like(q)
    places, d = k.shape[2:]
    window_kernel[(len(q),)](q, k, v, filled, out, sinks, window, PLACES=places, D=d, BLOCK=16)
    return out
    ### END SOLUTION


# %% test="attend_window" points=1
from helpers.lessons.a_kernel_of_your_own.exercises import Texts, check_attend_window

check_attend_window(
    Texts((30, 12, 64), sinks=2, window=5),
    Texts((9, 16), sinks=0, window=3, places=16, d=32),
    Texts((60, 400), sinks=4, window=20, places=512),
)

# %% hidden="attend_window" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.a_kernel_of_your_own.exercises import Texts, check_attend_window

check_attend_window(Texts((64, 1, 33, 2), sinks=4, window=1), Texts((5, 40, 20), sinks=9, window=16))
check_attend_window(
    Texts((32, 7), sinks=40, window=50, places=32), Texts((100,), 1, 99, places=128, scale=60.0)
)
check_attend_window(
    Texts((500, 300, 30), sinks=0, window=7, places=512), Texts((512, 16), 17, 150, places=512, scale=9.0)
)
# blocks of 16 that end where the window begins, or begin where the sinks end, and hold nothing that counts
check_attend_window(
    Texts((80, 48), 0, 16, places=128), Texts((81,), 1, 17, places=128), Texts((97,), 16, 18, places=128)
)
### END HIDDEN TESTS

# %% [markdown]
# Your kernel beside the three ways, on the same cache, with 4 sinks and a window of 32. (SDPA with such a mask moves and computes what *all places* does.) The
# second table has what Triton's compiler makes of it for an H100:

# %% experiment
experiments.with_your_window(attend_window, (q, k, v, filled), ways, scores, sinks=4, window=32)

# %% experiment
experiments.for_gpu("attend_window", lambda: attend_window(q, k, v, filled, sinks=4, window=32))

# %% [markdown]
# Bytes and scores fall together now, and the registers no longer depend on the room. In time? A solution of this exercise was timed on
# a real H100. 8 texts of 32 heads are 256 programs, for 132 multiprocessors:

# %% experiment
fewer, faster = experiments.recorded_saved()
lesson.keep(fewer_places=fewer, less_time=faster)
experiments.recorded_cache()

# %% [markdown]
# With blocks of 64 it reads 1 ÷ {{fewer_places:.0f}} of the places and takes 1 ÷ {{less_time:.0f}} of the time of SDPA with a mask of what counts. **What was left out is what was
# saved.**
#
# FlexAttention makes such a kernel of a rule, here for all queries of a long row:

# %% experiment
lesson.keep(mask_times=masked / whole, block_times=whole / flex)
experiments.recorded_left_out()

# %% [markdown]
# With a *window of 256* a token looks at itself and the 255 before it, and a twentieth of the blocks is computed. SDPA can be told of a window only by a tensor (the
# first row), and takes {{window_times:.0f}} times as long. Without a mask SDPA computes all blocks, by another kernel than FlexAttention's, and takes {{block_times:.1f}} times as long as that with
# the window. With the tensor, which is first turned into numbers and then read, it takes {{mask_times:.1f}} times as long again. For the causal mask SDPA knows to leave blocks out. There it is
# faster than FlexAttention: its kernel is the better one for each block.
#
# So look first for who leaves out what you want to leave out: SDPA's `is_causal`, FlexAttention, or on a GPU
# [`varlen_attn`](https://docs.pytorch.org/docs/stable/nn.attention.varlen.html). Its `window_size` is a window, and `seqused_k` says how far a cache is filled, for inference. Servers have
# such kernels of their own ([W. Kwon and others, 2023](https://arxiv.org/abs/2309.06180)). And leaving out gains little where the numbers that
# count lie scattered, because a GPU fetches 32 bytes at a time (lesson 01).

# %% [markdown]
# ### The labels, one by one (18 min)
#
# Who asks for which label, and when? Five uses of `add` as an operator. *Compiled* is `torch.compile(fullgraph=True)`. Which of them
# work?

# %% experiment
you = lesson.predict(
    {
        "no fake, called": ...,
        "no fake, called, then backward()": ...,
        "no fake, compiled": ...,
        "with a fake, compiled": ...,
        "with a fake, compiled, then backward()": ...,
    },
    choices=["works", "an error: which shape?", "an error: which gradient?"],
)


# %% experiment
def made(name, fake):
    @torch.library.custom_op(name, mutates_args=())
    def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return add(x, y)

    if fake:  # the result's shape, strides and dtype, without a number
        added.register_fake(lambda x, y: torch.empty_like(x))
    return added


bare, faked = made("lesson21::add_bare", fake=False), made("lesson21::add", fake=True)
trained = x.clone().requires_grad_()

used = {  # each: which operator, on which x, and whether it is compiled
    "no fake, called": (bare, x, False),
    "no fake, called, then backward()": (bare, trained, False),
    "no fake, compiled": (bare, x, True),
    "with a fake, compiled": (faked, x, True),
    "with a fake, compiled, then backward()": (faked, trained, True),
    "… and with a gradient": (taught, trained, True),
}
forms = {
    name: experiments.tried(name, lambda x, y: form(x * 2, y), given, y, compiled=compiled)
    for name, (form, given, compiled) in used.items()
}
kinds = experiments.kinds(forms)
you.against({name: kinds[name] for name in you}, experiments.said(forms), evidence=experiments.LIVE)

# %% [markdown]
# The table has the messages that you will meet at work. **The compiler asks for the fake**: it captures a graph without
# computing. **Backward asks for the gradient**. Where the call is compiled, the question comes at the first
# call already, because backward is captured too.
#
# A [`torch.autograd.Function`](https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.Function) would give `add` a gradient as well. The operator has a fake
# beside it, and a test.
#
# On a GPU [`triton_op`](https://docs.pytorch.org/docs/stable/library.html#torch.library.triton_op) makes an operator that is no closed box. The compiler sees your launch and
# the operators around it, and by default still fuses nothing into your kernel ([torch 2.13: the setting that would](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/config.py#L287)). It needs its gradient too.

# %% experiment
lesson.verdicts([claims.without_a_fake()], evidence="live (CPU)")

# %% [markdown]
# Are your labels true? [`torch.library.opcheck`](https://docs.pytorch.org/docs/stable/library.html) runs an operator on
# your inputs and compares. `opcheck(sigmoid, (matrix.t(),), raise_exception=False)` gives the results of four tests; without the last
# argument it raises. The test `faketensor` compares the fake with the real result.
#
# Here is a sigmoid that takes any strides, and always gives a contiguous result. Its fake is `torch.empty_like`. For which of the two matrices does the
# fake foretell the right strides?

# %% experiment
you = lesson.predict(
    {"a matrix that lies row by row": ..., "one that lies column by column": ...},
    choices=["right", "not right"],
)

# %% experiment
from helpers.lessons.a_kernel_of_your_own.given import forward


@torch.library.custom_op("lesson21::sigmoid", mutates_args=())
def sigmoid(x: torch.Tensor) -> torch.Tensor:
    return forward(x)


sigmoid.register_fake(lambda x: torch.empty_like(x))
matrix = torch.arange(6.0).view(2, 3)
told = experiments.checked({"row by row": (sigmoid, matrix), "column by column": (sigmoid, matrix.t())})
said = dict(zip(you, [row[told.columns.index("faketensor")] for row in told.rows], strict=True))
you.against(said, told, evidence=experiments.LIVE)

# %% [markdown]
# On a matrix that lies row by row the two agree. A wrong fake makes the compiler plan with strides that the result does not have. So:
#
# - Give opcheck inputs of several layouts, and read every column: `aot dispatch dynamic` says *right* even for the wrong fake.
# - Give it an input that wants a gradient. Without one, as here, the gradient's label is not tested.
# - It compares your gradient only with itself, compiled against plain: a wrong formula passes. Compare it with that of PyTorch's own operators.
#
# > **Rule.** One operator for the kernel, one for its backward, a fake for each, and opcheck on inputs of several layouts.
# > *Where it stops:* opcheck knows your inputs only, and no right gradient.

# %% [markdown]
# ### Reuse (12 min)
#
# In a softmax each number belongs to one row, so one program and one load are enough: the kernel is bound by memory. A
# matrix product c = a @ b is
# different: each element of a meets n elements of b. Whether it is *loaded* n times depends on you. The kernel that most
# people write first gives each element of c a program of its own:


# %% experiment
@triton.jit
def dot_kernel(a, b, c, k, n, BLOCK: tl.constexpr):
    i, j, at = tl.program_id(0), tl.program_id(1), tl.arange(0, BLOCK)
    row = tl.load(a + i * k + at, mask=at < k, other=0.0)
    column = tl.load(b + at * n + j, mask=at < k, other=0.0)
    tl.store(c + i * n + j, tl.sum(row * column, 0))


def product_by_dots(a, b):
    c = torch.empty(len(a), b.shape[1])
    dot_kernel[(len(a), b.shape[1])](
        a, b, c, a.shape[1], b.shape[1], BLOCK=triton.next_power_of_2(a.shape[1])
    )
    return c


# %% [markdown]
# Take a (12, 20) and b (20, 8): 240 and 160 elements. How often does it load each element of a, and of b? A **tile** is a
# block of c that one program computes. How often would programs with tiles of 4 × 4 load them?

# %% experiment
you = lesson.predict(
    {
        "each of a, by dots": ...,
        "each of b, by dots": ...,
        "each of a, tiles of 4 × 4": ...,
        "each of b, tiles of 4 × 4": ...,
    },
    choices=[1, 2, 3, 8, 12],
)

# %% experiment
a, b = torch.arange(240.0).view(12, 20) / 100, torch.arange(160.0).view(20, 8) / 100
dots = experiments.ran("dots", lambda: product_by_dots(a, b), want=a @ b)
loaded = {name: moved.elements for name, moved in dots.seen.launches[0].loads.items()}
measured = {"each of a, by dots": loaded["a"] // 240, "each of b, by dots": loaded["b"] // 160}
measured |= {"each of a, tiles of 4 × 4": 8 // 4, "each of b, tiles of 4 × 4": 12 // 4}
you.against(
    measured,
    experiments.launches({"product_by_dots": dots}),
    evidence=f"{experiments.LIVE} · arithmetic",
    what="loads",
)

# %% [markdown]
# By dots each element of a is loaded once for each of the 8 **columns of c**, and each of b once for each of the 12 rows. A
# program with a tile loads a band of a and a band of b, and uses each loaded element for a whole row or column of its tile. So
# an element of a is loaded once for each column *of tiles*:
#
# $$\text{loads} = m \cdot k \cdot \lceil n / \text{columns} \rceil + k \cdot n \cdot \lceil m / \text{rows} \rceil$$
#
# **Move it.** Below: (1) Make the tile 64 rows high and 1 column wide, then 8 × 8. Which loads less, and why? (2) At which tiles is
# nothing masked?
#
# <details><summary>Answers</summary>(1) 8 × 8, although both tiles have 64 elements: a is loaded once for each column of
# tiles, and there are many more columns of tiles when they are thin. Of tiles with as many elements the square one loads
# least, as long as its sides divide m and n. (2) Where the tile's sides divide m and n.</details>

# %% experiment
traffic_explorer()

# %% [markdown]
# ### A product in tiles (25 min)
#
# The section before has the formula. A large product has to do {{needed:.0f}} operations for each byte that it moves, or the H100's Tensor Cores
# wait for its memory (its published peaks, divided). How large must a tile be? A large product, with square tiles:

# %% experiment
tiles = (16, 32, 64, 128, 256)
lesson.keep(needed=experiments.PEAK_PER_BYTE)
lesson.keep(per_byte=2 * 4096**3 / (2 * experiments.tile_loads(4096, 4096, 4096, 128, 128)))
experiments.reuse(4096, tiles)

# %% [markdown]
# Twice the side of the tile, half the loads. In float16 a square tile of side s does s / 2 FLOPs for each loaded byte: {{per_byte:.0f}} with
# tiles of 128. The orange line is what the card needs if every load goes to device memory. So the tile would need a side of twice {{needed:.0f}}, and no such tile fits: it lies in
# registers, and they are few. The rest is the **cache's** work: programs that run at the same time load the same bands, and find them there.
#
# Here is a kernel with such tiles, compiled by Triton for a real H100, and the one that has a program for each element:

# %% experiment
experiments.recorded_products()

# %% [markdown]
# Larger tiles, fewer loads, less time. (Loads are not all of it: from 16 to 32 they halve, and the time falls more.) PyTorch's product is still faster than the largest tile timed, but
# this kernel was not tuned. So take PyTorch's, unless something else goes into the product.
#
# Does the *order* of the programs change what is loaded? A claim on trial. A product is cut into 9 × 9 blocks, and these are the first
# 9 of its 81 programs:

# %% experiment
lesson.verdicts([claims.grouped_order()], evidence="arithmetic")

# %% [markdown]
# A program computes one block of c from a row of 9 blocks of a and a column of 9 of b, so 9 programs load 162, in any order. But
# programs that share blocks find them in the cache. Nine along one row of c share 9 blocks of a, and need all 81 of b. Nine in a
# square of 3 × 3 need 27 and 27.
#
# **Exercise 21.4 — a product in tiles** (★★, 14 min)
#
# Write the tiled product. A program goes along k in steps of `inner`, and adds to a block of sums, which it stores at the end. As in
# 21.1, only kernels can read a and b.
#
# <details><summary>Hint 1</summary>A two-dimensional launch, <code>kernel[(down, across)]</code>. A block of addresses is made
# of a column and a row: <code>a + i[:, None] * a_row + q[None, :] * a_column</code>, with <code>i</code> the rows of the tile
# and <code>q</code> the present steps along k.</details>
#
# <details><summary>Hint 2</summary>Each load has a mask for both of its sides, and <code>other=0.0</code>, so that what hangs
# over along k adds nothing. <code>sums = tl.dot(x, y, sums, input_precision="ieee")</code> multiplies two blocks and
# adds; <code>sums</code>
# begins as <code>tl.zeros((ROWS, COLUMNS), tl.float32)</code>.</details>
#
# <details><summary>The idea</summary><code>for start in range(0, k, INNER):</code> load the two blocks, <code>tl.dot</code>.
# After the loop one store, with a mask for rows and columns. The arguments are the three pointers, m, k, n, four strides and
# three <code>tl.constexpr</code>.</details>


# %% exercise="matmul"
@triton.jit
def matmul_kernel(
    a, b, c, m, k, n, a_row, a_column, b_row, b_column, ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr
):  # fmt: skip
    """Program (i, j): the tile of c in the i-th row and the j-th column of tiles. Change the arguments as you like."""
    ### BEGIN SOLUTION
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, k, INNER):
        q = start + tl.arange(0, INNER)
        left, above = q[None, :], q[:, None]
        x = tl.load(a + i * a_row + left * a_column, mask=(i < m) & (left < k), other=0.0)
        y = tl.load(b + above * b_row + j * b_column, mask=(above < k) & (j < n), other=0.0)
        sums = tl.dot(x, y, sums, input_precision="ieee")
    tl.store(c + i * n + j, sums, mask=(i < m) & (j < n))
    ### END SOLUTION


def matmul(
    a: torch.Tensor, b: torch.Tensor, rows: int = 16, columns: int = 16, inner: int = 16
) -> torch.Tensor:
    """a @ b by one launch of programs that compute a tile of (rows, columns) each, in steps of `inner` along k.

    a: (m, k), b: (k, n), one dtype, float32 or float16, any strides; m, k, n at least 1; rows, columns, inner: powers of two,
    16 to 64. Returns (m, n), contiguous, in their dtype; the sums are taken in float32.
    Budget: m·k·⌈n / columns⌉ + k·n·⌈m / rows⌉ elements loaded, and m·n stored.
    """
    ### BEGIN SOLUTION
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype)
    grid = (triton.cdiv(m, rows), triton.cdiv(n, columns))
    matmul_kernel[grid](a, b, c, m, k, n, *a.stride(), *b.stride(), ROWS=rows, COLUMNS=columns, INNER=inner)
    return c
    ### END SOLUTION


# %% test="matmul" points=1
from helpers.lessons.a_kernel_of_your_own.exercises import Product, check_matmul

check_matmul(
    Product(16, 16, 16),
    Product(32, 48, 16, columns=16, inner=32),
    Product(20, 18, 33, dtype="float16", b_lies="columns"),
)

# %% hidden="matmul" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.a_kernel_of_your_own.exercises import Product, check_matmul

check_matmul(
    Product(1, 1, 1),
    Product(5, 70, 3),
    Product(33, 17, 40, rows=32, columns=16),
    Product(17, 5, 65, 16, 64, 16),
)
check_matmul(
    Product(20, 33, 18, a_lies="columns"), Product(18, 20, 17, b_lies="sliced", a_lies="every second")
)
check_matmul(
    Product(3, 800, 5, inner=64, dtype="float16", shift=1.0), Product(40, 24, 24, 16, 32, 16, "float16")
)
### END HIDDEN TESTS

# %% [markdown]
# ### A norm with its backward (38 min)
#
# RMSNorm divides each row by the root of its mean square, and multiplies by a weight for each column:
#
# $$y = x \cdot r \cdot w \qquad r = \frac{1}{\sqrt{\text{mean}(x^2) + \epsilon}}$$
#
# The backward pass needs r again. One number a row is cheap to keep. With the gradient $g$ of y:
#
# $$dx = r \left( w g - x \, r^2 \, \text{mean}(w g x) \right) \qquad dw = \sum_{\text{rows}} g \, x \, r$$
#
# dx is a matter of one row. dw is a sum **over rows**, so over programs. Three ways: every program adds its row to dw by
# [`tl.atomic_add`](https://triton-lang.org/main/python-api/generated/triton.language.atomic_add.html), which loads and stores;
# every program writes its part, and a second launch adds them up; a few programs take many rows each, and keep their part on
# the chip, to be added up at the end. (Atomic additions come in any order, so on a GPU their sum may differ in the last digits from run to run.)
#
# **Exercise 21.5 — RMSNorm, forward and backward** (★★★, 35 min)
#
# Write both passes. As in 21.1 only kernels can read the numbers; `torch.empty` makes what they store into, `torch.zeros` what
# they add to. First get the forward pass right: its test is the first of the two.
#
# <details><summary>Hint 1</summary>Forward is 21.1 with another formula: one program for each row. Masked lanes loaded as 0 add nothing
# to the sum of squares; divide it by the number of columns, not of lanes.</details>
#
# <details><summary>Hint 2</summary>Backward, again one program for each row: load the row of dy (g in the formula) and of x, the weight,
# and the one number <code>r = tl.load(rstd + row)</code>. dx is stored. For dw the simplest of the three ways is
# <code>tl.atomic_add</code>, into a result that begins as zeros.</details>
#
# <details><summary>The idea</summary>Let g be the row of dy, v that of x, w the weight. <code>wg = w * g</code>; <code>dx = r * (wg - v * r * r * tl.sum(wg * v, 0) / columns)</code>;
# <code>tl.atomic_add(dweight + at, g * v * r, mask=mask)</code> into a <code>torch.zeros(columns)</code> of float32.</details>


# %% exercise="rms_norm"
@triton.jit
def norm_kernel(x, weight, y, rstd, row_step, column_step, columns, eps, BLOCK: tl.constexpr):
    """Program i: row i. Change the arguments as you like."""
    ### BEGIN SOLUTION
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < columns
    v = tl.load(x + row * row_step + at * column_step, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(weight + at, mask=mask, other=0.0).to(tl.float32)
    r = 1 / tl.sqrt(tl.sum(v * v, 0) / columns + eps)
    tl.store(rstd + row, r)
    tl.store(y + row * columns + at, v * r * w, mask=mask)
    ### END SOLUTION


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(y, r) as above, by kernels alone. x: (rows, columns), both at least 1, columns at most 4,096, float32, float16 or
    bfloat16, any strides; weight: (columns,), contiguous, x's dtype. Returns y (rows, columns), contiguous, x's dtype, and r
    (rows,) float32. Computed in float32.

    Budget: 2 · rows · columns elements loaded, rows · columns + rows stored.
    """
    ### BEGIN SOLUTION
    rows, columns = x.shape
    y, rstd = torch.empty(rows, columns, dtype=x.dtype), torch.empty(rows)
    norm_kernel[(rows,)](x, weight, y, rstd, *x.stride(), columns, eps, BLOCK=triton.next_power_of_2(columns))
    return y, rstd
    ### END SOLUTION


@triton.jit
def norm_backward_kernel(
    dy, x, weight, rstd, dx, dweight, dy_row, dy_column, x_row, x_column, columns, BLOCK: tl.constexpr
):
    """Program i: row i. Change the arguments as you like."""
    ### BEGIN SOLUTION
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < columns
    g = tl.load(dy + row * dy_row + at * dy_column, mask=mask, other=0.0).to(tl.float32)
    v = tl.load(x + row * x_row + at * x_column, mask=mask, other=0.0).to(tl.float32)
    wg = tl.load(weight + at, mask=mask, other=0.0).to(tl.float32) * g
    r = tl.load(rstd + row)
    tl.store(dx + row * columns + at, r * (wg - v * r * r * tl.sum(wg * v, 0) / columns), mask=mask)
    tl.atomic_add(dweight + at, g * v * r, mask=mask)
    ### END SOLUTION


def rms_norm_backward(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dx, dweight), by kernels alone, from dy, the gradient of y, and from what forward got and gave. dy: as x, with strides of
    its own.

    Returns dx (rows, columns), contiguous, x's dtype, and dweight (columns,) float32. Computed in float32.
    Budget: 4 · rows · columns + rows elements loaded, 2 · rows · columns + columns stored; an atomic addition counts as one load and one store.
    """
    ### BEGIN SOLUTION
    rows, columns = x.shape
    dx, dweight = torch.empty(rows, columns, dtype=x.dtype), torch.zeros(columns)
    block = triton.next_power_of_2(columns)
    strides = *dy.stride(), *x.stride()
    norm_backward_kernel[(rows,)](dy, x, weight, rstd, dx, dweight, *strides, columns, BLOCK=block)
    return dx, dweight
    ### END SOLUTION


# %% test="rms_norm" points=1
from helpers.lessons.a_kernel_of_your_own.exercises import Normed, check_rms_norm, check_rms_norm_backward

cases = [Normed(4, 8), Normed(3, 21, layout="columns", eps=0.1)]
check_rms_norm(*cases)
check_rms_norm_backward(*cases)

# %% hidden="rms_norm" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.a_kernel_of_your_own.exercises import Normed, check_rms_norm, check_rms_norm_backward

cases = [
    Normed(1, 1),
    Normed(131, 3),  # few programs may share the rows
    Normed(5, 100, layout="sliced", eps=0.5),
    Normed(7, 33, "float16", "every second", scale=30.0),
]
cases += [Normed(2, 1000, "bfloat16"), Normed(9, 3, layout="one row"), Normed(3, 40, scale=1e-3)]
cases += [Normed(4, 6, layout="columns", dy="row by row")]
check_rms_norm(*cases)
check_rms_norm_backward(*cases)
### END HIDDEN TESTS

# %% [markdown]
# ### Count, compile and time at home (5 min)
#
# You can count and compile a kernel of your own without a GPU. Triton's compiler translates it for an H100, or names what it refuses.
#
# ```python
# from helpers import kernels
# from helpers.kernels.on_cpu import tl, triton
#
# with kernels.watch() as seen:
#     softmax(x)
# print(seen.loads, seen.stores, kernels.compiled(seen))  # registers, spilled bytes, or what is refused
# ```
#
# Without the course `TRITON_INTERPRET=1` runs the interpreter, and counts nothing. The interpreter finds wrong formulas, masks and strides. It knows nothing about time, or about
# programs that run at once. An access outside the storages of its tensors raises `OutOfBounds` in the course; a GPU often says nothing.
#
# On a GPU `triton.testing.do_bench(lambda: softmax(x))` gives milliseconds. Values such as `BLOCK` and `num_warps` are found by trying:
#
# ```python
# @triton.autotune([triton.Config({"BLOCK": b}, num_warps=w) for b in (32, 64, 128) for w in (4, 8)], key=["PLACES", "D"])
# @triton.jit
# def window_kernel(...):  # launched without BLOCK
# ```
#
# For a new `PLACES` or `D` it compiles and times all six, and keeps the fastest. (It launches the kernel many times: one that adds to what is there needs `reset_to_zero`.)
#
# **Read on**: M. Milakov, N. Gimelshein, [*Online normalizer calculation for softmax*, 2018](https://arxiv.org/abs/1805.02867).
