# %% [markdown]
# # 01 · Storage and stride
#
# ## What does this line of tensor code really do to memory?
#
# `x.t()` writes down a **new way to walk** numbers that are already there. `x.t().contiguous()` **moves** all the
# numbers. Both print the same: nothing on the screen says which of the two a line does. When you can tell,
# you know where a program's memory goes, and which line is free in a hot loop.
#
# **Time** 60 min, of which about 30 are for the exercises; *Further*: 72 min. **Before this**: lesson 00's way of
# working, and to have used tensors. You need no GPU.
#
# **Afterwards you can**
# 1. say of a line whether it gives a view or a copy, and why;
# 2. read which index copies, and which assignment changes your tensor;
# 3. find the copies that a function makes, and cut them down to the one that it needs.

# %% setup
import torch

from helpers import count, lesson
from helpers.lessons.storage_and_stride import experiments
from helpers.lessons.storage_and_stride.explorer import stride_explorer
from helpers.lessons.storage_and_stride.storage_picture import storage_path

lesson.start("01_storage_and_stride", evidence=["live (CPU)", "arithmetic", "simulated (H100)"])

# %% [markdown]
# ## Round 1 · Many tensors, one storage
#
# A **storage** is a row of cells in memory, with one number in each. A **tensor** says how to walk a storage. It needs
# three small things:
#
# - `shape`: how many elements there are in each dimension;
# - [`stride`](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.stride.html): for each dimension, how many
#   cells to step when its index grows by one;
# - `offset`: the cell where the walk begins.
#
# Element `[i, j]` lies in cell
#
# $$\text{offset} + i \cdot \text{stride}_0 + j \cdot \text{stride}_1$$
#
# `x` has 4 rows of 6 numbers, stored row by row: its stride is `(6, 1)` and its offset is 0. So `x[2, 3]` lies in cell
# 0 + 2 · 6 + 3 · 1 = 15. What are the stride and the offset of these tensors?

# %% experiment
x = torch.arange(24.0).reshape(4, 6)

you = lesson.predict(
    {"x.t()": ..., "x[:, 1]": ..., "x[1:, ::2]": ..., "x[2].view(2, 3)": ...},
    choices={
        "x.t()": ["(1, 6), offset 0", "(6, 1), offset 0", "(4, 1), offset 0"],
        "x[:, 1]": ["(1,), offset 1", "(6,), offset 1", "(1,), offset 0"],
        "x[1:, ::2]": ["(6, 1), offset 6", "(3, 1), offset 0", "(6, 2), offset 6"],
        "x[2].view(2, 3)": ["(6, 1), offset 12", "(3, 1), offset 12", "(3, 1), offset 2"],
    },
)

# %% experiment
layouts = {line: experiments.layout(eval(line)) for line in you}
you.against(
    layouts,
    storage_path(list(you), base=x, title="One storage of 24 cells, four ways to walk it"),
    evidence="live (CPU)",
    what="stride and offset",
)

# %% [markdown]
# Each strip is one tensor. The arrows follow its elements, the last index fastest. "+6 ×18" means: 18 arrows go six cells
# forward. "Flat" says whether all arrows are equally long. Transposing swapped two strides and moved nothing. A column
# begins one cell in and steps by a whole row. A slice with a step multiplies a stride, and a slice that leaves out the
# beginning moves the offset. Each of these tensors is a **view** of x: a few integers, whatever the size of the storage.
#
# In plain torch, `y.stride()` and `y.storage_offset()` say how `y` walks. It walks the storage of `x` where
# `y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()` is true.
#
# **Move it yourself.** The buttons below set the sliders to a layout that has a name. Above the picture stands the call
# that makes such a tensor (Further explains `as_strided`). Move one slider at a time. (1) Which slider makes every row walk the same cells? (2) What happens when a stride is −1?
#
# <details><summary>Answers</summary>(1) The stride of the rows. At 0 all rows are the same cells: this is how a row is
# broadcast. (2) torch refuses: a stride is never negative. So a line that reverses an order has to copy.</details>

# %% experiment
stride_explorer()

# %% [markdown]
# > **Rule.** A tensor is shape, stride and offset over a storage. Where a new shape, stride and offset over the same
# > storage describe the result, the result *can* be a view. Everywhere else the numbers must be **copied** into a new
# > storage.
#
# ## Round 2 · Which of these lines copy?
#
# `reshape` is sometimes free and sometimes expensive.
# [`expand`](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.expand.html) repeats a row by a stride of 0.
# `x` is the same 4 × 6 matrix of float32. For each line: is the result a view of x's storage, or a copy?

# %% experiment
you = lesson.predict(
    {
        "x.reshape(2, 12)": ...,
        "x.t().reshape(24)": ...,
        "x[1:, ::2].reshape(9)": ...,
        "x[:, 1:4].reshape(12)": ...,
        "x[0].expand(1000, 6)": ...,
        "x[0].expand(1000, 6).reshape(6000)": ...,
        "x.double()": ...,
    },
    choices=["view", "copy"],
)

# %% experiment
counted = {line: count(eval, line, {"x": x}) for line in you}
merging = ["x.t().reshape(24)", "x[1:, ::2].reshape(9)", "x[:, 1:4].reshape(12)"]
you.against(
    {line: experiments.view_or_copy(counts) for line, counts in counted.items()},
    experiments.lines(counted, {"x": x}),
    storage_path(merging, base=x, title="reshape: where one step length is enough, and where not"),
    evidence="live (CPU)",
)

# %% [markdown]
# Look at the strips: each is the walk in the order of the *result*. **Splitting** one dimension into two is always
# possible. **Merging** two neighbours is the hard part: the step from the end of one row to the start of the next must be
# the same as every other step.
#
# $$\text{stride}_i = \text{size}_{i+1} \cdot \text{stride}_{i+1}$$
#
# - `x[:, 1:4]` has stride (6, 1) and rows of 3. Within a row the walk steps by 1, at the end of a row by 4. No single
#   stride does both, so the numbers are copied.
# - `x[1:, ::2]` has stride (6, 2) and rows of 3. The steps are all 2, because 6 = 3 · 2. So the rows merge, and the
#   result is a view.
# - An expanded row has stride 0: a thousand rows, six cells. `reshape` has to write all 6,000 numbers into a new storage.
# - `double()` computes new numbers, and they need a new storage. `to`, `float`, `double` and `contiguous` give the
#   same tensor back where nothing would change.
# - A change of dtype, like most operators that work element by element (not `masked_fill`), keeps the order of the
#   strides: `x.t().double()` has the strides of `x.t()`, and is not stored row by row.
#
# > **Rule.** Splitting is free. Merging neighbours is free exactly where `stride[i] == size[i+1] * stride[i+1]`. (A dimension
# > of size 1 always merges.)
# > [`view`](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.view.html) follows the same rule, and raises where
# > `reshape` would copy. So write `view` in a hot loop: a copy that you did not plan becomes an error and not a slowdown.
# >
# > *Where it stops:* whether `reshape`, `contiguous()` and `to()` copy depends on the tensor that they get. Where you need a
# > storage of your own, say `clone()`.
#
# A tensor whose walk visits one cell after the other is **contiguous**: `x` is, `x.t()` and `x[:, 1:4]` are not.
# `contiguous()` gives you such a tensor.
#
# ## Round 3 · Indexing: to read, and to write
#
# There are two kinds of index. A **basic** one is made of integers, slices, `...` and `None`. An **advanced** one has
# a list, an array, a tensor or a bool in it. Whose result can be described by a shape, a stride and an offset?

# %% experiment
names = {
    "x": x,
    "pick": torch.tensor([0, 2]),
    "mask": torch.tensor([True, False, True, False]),
    "one": torch.tensor(1),  # no dimensions
}

you = lesson.predict(
    {
        "x[0:3:2]": ...,
        "x[[0, 2]]": ...,
        "x[pick]": ...,
        "x[mask]": ...,
        "x[one]": ...,
        "x[None, ..., 1]": ...,
    },
    choices=["view", "copy"],
)

# %% experiment
counted = {line: count(eval, line, names) for line in you}
you.against(
    {line: experiments.view_or_copy(counts) for line, counts in counted.items()},
    experiments.reads(counted, names),
    evidence="live (CPU)",
)

# %% [markdown]
# `x[0:3:2]` and `x[[0, 2]]` are the same rows. The slice is a stride. Whether a stride can describe a list depends on its
# *values*, and torch does not look at these: it always copies. There is one exception. An integer tensor or array
# **without dimensions**, such as `one`, is read as a number first, and then the index is a basic one. (With
# uint8 it is a mask, and copies.)
#
# The last column is about **writing**. `x[index] = value` does not read. It calls an operator whose name ends in `_`, and
# this writes into x's own storage, through any index. But what about two brackets, or `+=`?

# %% experiment
you = lesson.predict(
    {
        "x[0:3:2][:, 0] = -1": ...,
        "x[[0, 2]][:, 0] = -1": ...,
        "x[pick] += 1": ...,
        "x[pick].add_(1)": ...,
    },
    choices=["x changes", "x stays"],
)

# %% experiment
you.against(
    {line: experiments.changes(line, pick=names["pick"]) for line in you},
    evidence="live (CPU)",
    what="afterwards",
)

# %% [markdown]
# With two brackets, the first one reads. `x[[0, 2]]` is a copy, so the second bracket writes into a copy that is thrown
# away: no error, no warning. `x[pick] += 1` works, because Python writes the result *back*
# through the index. `x[pick].add_(1)` writes nothing back.
#
# > **Rule.** Reading with integers and slices is a view. Reading with a list, an array, a bool or a tensor is a copy.
# > Assigning through a single index writes in place.
# >
# > *Where it stops:* an integer tensor or array without dimensions gives a view. A second bracket may write into
# > a copy. And with `+=`, an index that names the same row twice adds once
# > ([`index_add_`](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_add_.html) adds twice).
#
# **Exercise 1.1 — ten lines** (★★, 8 min)
#
# `x` is the same 4 × 6 matrix. Replace each `None` by `"view"` (the result lies in x's storage) or `"copy"` (it has a new
# one). Decide all ten first. Then check yourself: `count(eval, line, {"x": x}).copies` is
# 0 for a view, and 1 for a copy. The visible test looks at four lines, the hidden test at the other six.
#
# <details><summary>Hint 1</summary>For each call ask: do a shape, a stride and an offset over x's 24 cells
# describe the result? Two kinds of call may copy all the same (rounds 2 and 3).</details>
# <details><summary>Hint 2</summary>Five questions, for each call in a line. Is there anything to compute? Does it merge
# dimensions that cannot merge (round 2)? Would it need a negative stride (round 1)? Is its index a list (round 3)? Is it
# <code>contiguous()</code>, on a tensor that is not contiguous (round 2)?</details>
# <details><summary>The idea</summary>Go from left to right and write down the stride after each call. A
# line copies at the first call that the strides so far cannot serve.</details>

# %% exercise="view_or_copy"
answers = {
    "x.contiguous()": None,
    "x.t().contiguous()": None,
    "x[[1, 2]]": None,
    "x[1:3].flatten()": None,
    "x.float()": None,
    "x.t().flatten()": None,
    "x.flip(0)": None,
    "x.unflatten(1, (2, 3)).transpose(0, 1)": None,
    "x.expand(2, 4, 6).reshape(8, 6)": None,
    "x[:, None, ::2].expand(4, 5, 3)": None,
}
### BEGIN SOLUTION
answers |= dict(zip(answers, "view copy copy view view copy copy view copy view".split(), strict=True))
### END SOLUTION

# %% test="view_or_copy" points=1
from helpers.lessons.storage_and_stride.exercises import check_answers

check_answers("x.contiguous()", "x.t().contiguous()", "x[[1, 2]]", "x[1:3].flatten()")

# %% hidden="view_or_copy" points=2
### BEGIN HIDDEN TESTS
from helpers.lessons.storage_and_stride.exercises import check_answers

check_answers(
    "x.float()",
    "x.t().flatten()",
    "x.flip(0)",
    "x.unflatten(1, (2, 3)).transpose(0, 1)",
    "x.expand(2, 4, 6).reshape(8, 6)",
    "x[:, None, ::2].expand(4, 5, 3)",
)
### END HIDDEN TESTS

# %% [markdown]
# **Exercise 1.2 — four copies, or one** (★★★, 20 min)
#
# The next cell holds a loader that gives the right result: some frames of a video, cropped, in the layout that a network
# wants. Each of its four lines makes a copy. Run it. Then write `clip` in the cell below it: the same result, in one copy.
#
# <details><summary>Hint 1</summary>Which of the four steps could be views, if they came in another order?
# Only one of them cannot.</details>
# <details><summary>Hint 2</summary>A change of dtype keeps the order of its input's strides (round 2). So after
# <code>permute</code>, <code>float()</code> gives a result in the permuted layout, and <code>contiguous()</code> after it
# would be a second copy. Can you say beforehand which layout you want?</details>
# <details><summary>The idea</summary>First describe what is wanted, in views: a slice for the frames,
# slices for the crop, <code>permute</code>. Then move the numbers once, into memory that has the wanted
# dtype and layout, on the video's own device. <code>to</code> stays on that device, and takes a <code>memory_format</code>
# beside the dtype: <code>torch.contiguous_format</code> means row by row. Or make an empty tensor there, and fill it
# with <code>copy_</code>.</details>


# %% experiment
def clip_in_four_copies(video: torch.Tensor, every: int, top: int, left: int, size: int) -> torch.Tensor:
    frames = video[torch.arange(0, len(video), every, device=video.device)]  # every n-th frame
    frames = frames.float()  # uint8 → float32
    frames = frames.permute(0, 3, 1, 2).contiguous()  # (t, h, w, c) → (t, c, h, w)
    return frames[:, :, top : top + size, left : left + size].contiguous()  # the crop


video = torch.randint(0, 256, (16, 48, 64, 3), dtype=torch.uint8)
experiments.allocations(count(clip_in_four_copies, video, every=2, top=8, left=16, size=32))


# %% exercise="one_copy"
def clip(video: torch.Tensor, every: int, top: int, left: int, size: int) -> torch.Tensor:
    """Frames 0, every, 2 * every, … of a video; of each, size rows from `top` and size columns from `left`.

    video: (t, h, w, c) uint8, nothing empty, any strides (0 too: `expand`) and offset, any device. every, size >= 1.
    Returns (f, c, size, size) float32 with f = ceil(t / every), contiguous and on video's device. Limits: 1 copy,
    1 new storage of 4 * f * c * size * size bytes; torch only: no NumPy, no `.item()`, no `.tolist()` (0 syncs).
    ValueError unless the crop fits: 0 <= top, top + size <= h, and the same for left and w.
    """
    ### BEGIN SOLUTION
    h, w = video.shape[1:3]
    if not (0 <= top <= h - size and 0 <= left <= w - size):
        raise ValueError(f"a crop of {size} at ({top}, {left}) does not fit into {h} × {w}")
    view = video[::every, top : top + size, left : left + size].permute(0, 3, 1, 2)
    return view.to(torch.float32, memory_format=torch.contiguous_format)
    ### END SOLUTION


# %% test="one_copy" points=2
from helpers import check
from helpers.lessons.storage_and_stride.exercises import check_clip, film

frames = film(7, 12, 16, 3)
check_clip(
    check.case(frames, 2, 3, 5, 8),  # every, top, left, size
    check.case(frames, 1, 0, 0, 12),
    check.case(frames.transpose(1, 2)[:, ::2], 2, 0, 4, 8),
    check.case(frames, 3, 4, 8, 8),
    check.case(frames.to("meta"), 2, 3, 5, 8),
)
outside = ((6, 5), (0, 9), (-1, 5), (3, -2))
check_clip(*[check.case(frames, 2, top, left, 8, raises=ValueError) for top, left in outside])

# %% hidden="one_copy" points=3
### BEGIN HIDDEN TESTS
from helpers import check
from helpers.check.variant import variant
from helpers.lessons.storage_and_stride.exercises import check_clip, film

v = variant("one_copy__hidden")
rgba = film(v.number(9), 20, 24, 4, seed=v.seed(1))
planes = film(5, 3, v.number(20, 20, 25), v.number(24, 24, 30), seed=v.seed(2))
check_clip(
    check.case(rgba[..., :3], 4, 2, v.number(3, 0, 8), 16),
    check.case(rgba[1::2, 4:, :, 1:2], 1, 0, 8, 16),
    check.case(planes.permute(0, 2, 3, 1), 2, 1, 1, 19),
    check.case(rgba[:, :, ::2], 10, 0, 0, 12),
    check.case(rgba, 2, 4, 8, 16),
    check.case(rgba[3:4].expand(6, -1, -1, -1), 2, 0, 1, 7),
    check.case(rgba[..., 1:2], 1, 2, 2, 1),
    check.case(planes.to("meta").permute(0, 2, 3, 1), 3, 4, 5, 11),
)
outside = ((0, 9), (5, 0), (-4, 0), (0, -1), (-30, 2), (-20, 2))
check_clip(*[check.case(rgba, 1, *place, 16, raises=ValueError) for place in outside])
### END HIDDEN TESTS

# %% [markdown]
# ## The running example
#
# Lesson 00 showed a training script, a small GPT, that is slow on purpose. Its attention makes five copies that do not look
# necessary: three `.contiguous()`, one more for the transposed keys, and a mask that `repeat` writes out for each head of
# each text. Below, views and broadcasting take their place. `@` merges the first two dimensions, texts and heads, before it
# multiplies. Can they merge without a copy? And how many of the five copies are left?

# %% experiment
import math

from helpers import running_example


def attention_by_views(q, k, v):
    # before: q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    context, features = q.shape[-2:]
    scores = q @ k.transpose(-2, -1) / math.sqrt(features)  # before: k.transpose(-2, -1).contiguous()
    mask = torch.tril(torch.ones(context, context, device=q.device))  # before: .repeat(batch, heads, 1, 1)
    scores = scores.masked_fill(mask == 0, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


q = torch.randn(8, 64, 3, 4, 32)[:, :, 0].transpose(1, 2)  # as the script has it: stride (24576, 32, 384, 1)
you = lesson.predict(
    {"q.flatten(0, 1)": ..., "copies left of the five": ...},
    choices={"q.flatten(0, 1)": ["view", "copy"], "copies left of the five": ["0", "1", "3", "5"]},
)

# %% experiment
before = running_example.after("00")
faster = before.replace(attention=attention_by_views)  # the same script with another attention
copied, viewed = (count(script.attention, q, q, q).copies for script in (before, faster))
flattened = experiments.view_or_copy(count(q.flatten, 0, 1))
you.against(
    {"q.flatten(0, 1)": flattened, "copies left of the five": f"{viewed}"},
    running_example.compare(before, faster),
    evidence="live (CPU)",
    what=f"counted ({copied} copies before)",
)

# %% [markdown]
# The script is shorter, and the simulated H100 gains almost nothing. A difference of 1% is less than the simulator can
# tell, so believe the counts. Texts and heads cannot merge, because 24576 is not 4 · 32. So `@` copies queries, keys and
# values itself, as `reshape` does. Three of the four `.contiguous()` only did that early; the keys were copied twice.
# Lesson 02 has an operator that needs none of these copies.
#
# The last row is measured on the machine at hand: run the cell again before you believe it.

# %% [markdown]
# ## Your own script
#
# Look first at the path of a batch: from the file to the model's input. Describe it by views, and move the numbers once.
# The [profiler](https://docs.pytorch.org/docs/stable/profiler.html) lists the copies, also those inside other
# operators. (It does not see a loader's worker processes: set `num_workers=0` meanwhile.)

# %% experiment
from helpers.own_script import toy

model, optimizer, loss_fn, loader, device, step = toy()  # at home: your own

from torch.profiler import ProfilerActivity, profile

step(next(iter(loader)))  # a warm-up
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
    for _, batch in zip(range(3), loader):
        step(batch)
rows = seen.key_averages(group_by_input_shape=True)
print(f"the three steps: ≈ {sum(row.self_cpu_time_total for row in rows):.0f} µs")
for row in sorted(rows, key=lambda row: -row.count):
    if row.key in ("aten::copy_", "aten::index", "aten::cat"):
        print(f"{row.count} × {row.key} {row.input_shapes}, ≈ {row.self_cpu_time_total:.0f} µs")

# %% [markdown]
# The toy copies in every step, though no line of it says so. The loader puts its samples together: two `cat` a batch. On the
# CPU, each linear layer first copies its bias into the result. The many copies of tensors without
# dimensions (`[]`) are AdamW's: it turns Python numbers into tensors (lesson 06).
#
# Begin with the first row whose shape you know. If its time is small beside that of the three steps, leave it. In a
# notebook, `%load_ext helpers` and `%%count` above a cell count its copies and its bytes.
#
# ## Sources on trial
#
# Three claims about tensors that are not contiguous, and about advanced indexing:

# %% experiment
from helpers.lessons.storage_and_stride import claims

lesson.verdicts(
    claims.on_trial(),
    evidence="live (CPU) and arithmetic",
    shown=("01-noncontiguous-raises", "01-noncontiguous-slow", "01-advanced-index"),
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Slices, `t`, `permute`, `transpose`, `expand` are views | a stride would be negative: `flip` copies |
# | Splitting is free; merging is free where `stride[i] == size[i+1] * stride[i+1]` | dimensions of size 1: their stride does not count |
# | `view` where you believe that nothing is copied | you need a promise of a copy: `clone()` |
# | Lists, arrays, bools and tensors as an index copy when read | an integer tensor or array without dimensions: a view |
# | One bracket on the left of `=` writes in place | a first bracket that was advanced: you write into a copy |
# | Describe first, move once, at the end | a kernel that copies the view at each call: move before the loop |
#
# **Read on**: PyTorch on [tensor views](https://docs.pytorch.org/docs/stable/tensor_view.html); NumPy on [copies and
# views](https://numpy.org/doc/stable/user/basics.copies.html); Edward Z. Yang, [*PyTorch
# internals*](https://blog.ezyang.com/2019/05/pytorch-internals/): strides seen from inside. Next, **lesson 02**: what one
# operator call costs. The last three exercises of the table are from Further.

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# Each section stands alone. The first three have an exercise.
#
# ### From index to cell, and back (19 min)
#
# Write the formula of round 1, and its inverse. With these two you could write `print(x)` for any strided tensor.
#
# **Exercise 1.3 — from index to cell, and back** (★★, 17 min)
#
# <details><summary>Hint 1</summary>For the inverse, start with the largest stride: how many whole steps of
# it fit into what is left of <code>cell - offset</code>?</details>
# <details><summary>Hint 2</summary>An index never exceeds its size - 1. A stride of 0 never moves, so its
# index is 0. After all dimensions, something may be left over: then no element lies in that cell.</details>
# <details><summary>The idea</summary>It is how one reads off hours, minutes and seconds: divide by the
# largest unit, keep the rest, go on with the next. Only the order of the units comes from the strides and
# not from the position of the dimensions, because the tensor may be transposed. An index that would pass the
# end of its dimension is cut down to size - 1, and what it could not use stays in the rest.</details>


# %% exercise="flat_index"
def flat_index(index: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> int:
    """The storage cell of element `index`, counted in elements. Integers only: 0 operators.

    index, stride: one integer for each dimension. ValueError if their lengths differ.
    """
    ### BEGIN SOLUTION
    return offset + sum(i * s for i, s in zip(index, stride, strict=True))
    ### END SOLUTION


def unflatten(
    cell: int, shape: tuple[int, ...], stride: tuple[int, ...], offset: int = 0
) -> tuple[int, ...] | None:
    """The index of the element in storage cell `cell`, or None if the tensor has none there. 0 operators.

    shape, stride, offset: what slicing, selecting, transposing and expanding can make of a contiguous tensor.
    Where several elements share the cell (a stride of 0), the first one. Sizes go from 0 to 10**30, so
    compute the index; a search through all elements would never end.
    """
    ### BEGIN SOLUTION
    rest, index = cell - offset, [0] * len(shape)
    if rest < 0 or 0 in shape:
        return None
    for d in sorted(range(len(shape)), key=lambda d: stride[d], reverse=True):
        if stride[d]:
            index[d] = min(rest // stride[d], shape[d] - 1)
            rest -= index[d] * stride[d]
    return tuple(index) if rest == 0 else None
    ### END SOLUTION


# %% test="flat_index" points=1
from helpers.lessons.storage_and_stride.exercises import check_flat_index, check_unflatten

# (index, stride, offset): the cell
check_flat_index({((2, 3), (6, 1)): 15, ((3, 2), (1, 6), 0): 15, ((0, 2), (6, 2), 6): 10, ((), (), 5): 5})
check_flat_index({((1,), (6, 1)): ValueError})
# (cell, shape, stride, offset): the index
check_unflatten({(15, (4, 6), (6, 1)): (2, 3), (15, (6, 4), (1, 6)): (3, 2), (10, (3, 3), (6, 2), 6): (0, 2)})
check_unflatten({(4, (1000, 6), (0, 1)): (0, 4), (24, (4, 6), (6, 1)): None})
check_unflatten({(9, (3, 3), (6, 2), 6): None, (3, (3, 3), (6, 2), 6): None, (4, (4, 3), (6, 1), 1): None})
big = 10**30
check_unflatten({(7 * big + 5, (big, big), (big, 1)): (7, 5), (big + 1, (big,), (2,)): None})

# %% hidden="flat_index" points=1
### BEGIN HIDDEN TESTS
from helpers.check.variant import variant
from helpers.lessons.storage_and_stride.exercises import check_flat_index, check_unflatten, random_views

v = variant("flat_index__hidden")
wide = ((2 * 10**9, 3), (10**21, 7), 10**30)
check_flat_index({wide: 10**30 + 2 * 10**30 + 21, ((1, 2), (6,)): ValueError, ((), (1,)): ValueError})
check_flat_index(views=random_views(v.seed(0), many=40))
check_unflatten(
    {
        (10**29 + 3 * 10**28, (5, 10**28, 10**6), (1, 10**29, 10**22), 0): None,
        (4 * 10**28 + 11, (10**28, 3), (4, 0), 11): None,
        (4 * 10**28 + 7, (10**28, 3), (4, 0), 11): (10**28 - 1, 0),
        (5, (), (), 5): (),
        (6, (), (), 5): None,
        (4, (), (), 5): None,
        (0, (0, 3), (3, 1), 0): None,
        (1, (0, 3), (0, 1), 0): None,
    },
    views=random_views(v.seed(1), many=40),
)
### END HIDDEN TESTS

# %% [markdown]
# ### When may neighbours merge? (12 min)
#
# Round 2 stated a rule. A rule is a claim like any other, so we hold it against `reshape(-1)` on all slices of `x` and of
# `x.t()` that have at least two rows and two columns, the columns in steps of 1 and 2.


# %% experiment
def rule_is_right(piece: torch.Tensor) -> bool:
    merges = piece.stride(0) == piece.size(1) * piece.stride(1)
    return merges == (experiments.view_or_copy(count(piece.reshape, -1)) == "view")


x = torch.arange(24.0).reshape(4, 6)
judged = [rule_is_right(piece) for matrix in (x, x.t()) for piece in experiments.slices(matrix)]
print(f"{len(judged)} slices: the rule and reshape(-1) agree on {sum(judged)}")

# %% [markdown]
# The rule has two exceptions. Nobody ever steps along a dimension of **size 1**, so its stride does not count:
# `x[:, :1].reshape(4)` is a view. And a tensor **without elements** has nothing that could be out of order.
#
# From the rule follows what **contiguous** means exactly. Leave out the dimensions of size 1: the last stride is 1, and
# every pair of neighbouring dimensions merges. Then the walk visits one cell after the other. (A tensor without elements
# is always contiguous.)
#
# **Exercise 1.4 — contiguous, or not?** (★★, 8 min)
#
# Decide it from shape and stride alone, as PyTorch does. The visible test tries a few layouts. The hidden test holds your
# function against [`is_contiguous()`](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_contiguous.html) on
# thousands of random ones.
#
# <details><summary>Hint 1</summary>Go through the dimensions from the last to the first. Which stride must
# the last one have? Then which must the one before it have?</details>
# <details><summary>Hint 2</summary>Two special cases: along a dimension of size 1 nobody ever steps, so its
# stride may be anything. And a tensor with no elements has nothing that could be out of order.</details>
# <details><summary>The idea</summary>Keep the stride that is wanted, beginning with 1. For each dimension
# from the right whose size is not 1: compare, then multiply what is wanted by the size. That is the merging
# rule, applied to each pair of neighbours in turn, plus a last stride of 1.</details>


# %% exercise="is_contiguous"
def is_contiguous(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Does a walk over all indices, the last one fastest, visit neighbouring cells one after the other?

    shape, stride: one integer for each dimension, sizes and strides >= 0, of any magnitude. Agrees with
    Tensor.is_contiguous(). Integers only: no tensor is made, 0 operators.
    """
    ### BEGIN SOLUTION
    if 0 in shape:
        return True
    wanted = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1:
            if step != wanted:
                return False
            wanted *= size
    return True
    ### END SOLUTION


# %% test="is_contiguous" points=1
from helpers.lessons.storage_and_stride.exercises import check_is_contiguous

check_is_contiguous(((4, 6), (6, 1)), ((6, 4), (1, 6)), ((4, 3), (6, 1)), ((3,), (2,)), ((), ()))
check_is_contiguous(((3, 4), (0, 1)), ((2, 3, 4), (12, 4, 1)), ((2, 3, 4), (12, 1, 3)))
ones = (((4, 1), (1, 7)), ((1, 4), (99, 1)), ((1, 1), (5, 0)), ((1, 3, 2, 2), (12, 1, 6, 3)))
check_is_contiguous(*ones, ((2, 1, 3), (3, 99, 1)), note="this layout has a dimension of size 1")
check_is_contiguous(((0, 3), (1, 9)), ((2, 0), (5, 5)), note="this tensor has no elements")

# %% hidden="is_contiguous" points=2
### BEGIN HIDDEN TESTS
from helpers.check.variant import variant
from helpers.lessons.storage_and_stride.exercises import check_is_contiguous, random_layouts

big = 2**40  # more elements than any library can number: integers can
check_is_contiguous(many=random_layouts(variant("is_contiguous__hidden").seed(0), many=4000))
check_is_contiguous(
    ((big, big), (big, 1)),
    ((big, big), (1, big)),
    ((big, 1, big), (big, 7, 1)),
    ((big, 0, big), (1, 1, 1)),
    ((2, big, big), (big * big, big, 1)),
    ((2, big, big), (0, big, 1)),
    wanted=[True, False, True, True, True, False],
)
### END HIDDEN TESTS

# %% [markdown]
# ### More elements than memory (25 min)
#
# `row` has 6 numbers of 4 bytes. How many **bytes** does each line allocate?

# %% experiment
row = torch.arange(6.0)

you = lesson.predict(
    {
        "row.repeat(1000, 1)": ...,
        "row.expand(1000, 6).sum(0)": ...,
        "row.expand(1000, 6) + 1": ...,
        "row.expand(1000, 6).double()": ...,
    },
    choices=["0", "24", "24,000", "48,000"],
)

# %% experiment
counted = {line: count(eval, line, {"row": row}) for line in you}
you.against(
    {line: f"{c.bytes_allocated:,}" for line, c in counted.items()},
    storage_path(
        {"row.expand(3, 6)": row.expand(3, 6), "row.repeat(3, 1)": row.repeat(3, 1)},
        base=row,
        title="The same 18 elements: 6 cells walked three times, or 18 cells of its own",
    ),
    evidence="live (CPU)",
    what="bytes allocated",
)

# %% [markdown]
# A sum pays for its small result. An operator that returns one number for each element pays for all the elements, not for
# the six cells. Reading an expanded tensor is safe and cheap. **Writing** is not, because several elements are one cell:

# %% experiment
experiments.written("stretched.add_(1)", "stretched[0] = 2.0", "stretched[0, 0] = 3.0")

# %% [markdown]
# The first two lines write several elements that are one cell, and torch refuses. The third line writes a single element.
# That is allowed, and the element's neighbours change with it.
#
# **Any walk you like.** [`as_strided(shape, stride, offset)`](https://docs.pytorch.org/docs/stable/generated/torch.as_strided.html)
# makes a tensor straight from these three. Stride and offset count cells of the *storage*. Without an offset, the walk
# begins where the tensor began. Steps may be smaller than a row, and then the rows overlap. `part` is `x[2]`, the cells 12
# to 17:

# %% experiment
experiments.tried(
    "part.as_strided((3,), (2,))",  # every second number of part
    "part.as_strided((3, 4), (1, 1))",  # three rows that overlap
    "part.as_strided((3,), (2,), 0)",  # from cell 0, which is not part's
    "part.as_strided((5,), (2,))",  # beyond part's end
    "part.as_strided((7,), (2,))",  # beyond the storage's end
    part=torch.arange(24.0).reshape(4, 6)[2],
)

# %% [markdown]
# Of the cells, `as_strided` checks only that none lies outside the storage. It does not know which part of the storage
# was yours: the third and the fourth line read numbers that are not in `part`, without a word.
#
# **Exercise 1.5 — the same numbers, a different walk** (★★, 17 min)
#
# Sliding windows (the heart of a convolution, of a moving average, of a language model's training samples)
# and the blocks on a matrix's diagonal. Neither needs a byte. `as_strided` can do both.
#
# <details><summary>Hint 1</summary>Write down the cells of the first two rows of the result. How far is it
# from an element to its right neighbour, and how far from the first row to the second?</details>
# <details><summary>Hint 2</summary><code>as_strided</code> counts in cells of the <i>storage</i>. The input
# may be a view itself: its own stride is your unit, and its offset is where you begin.</details>
# <details><summary>The idea</summary>A window starts <code>step</code> elements after the last one: in
# cells that is <code>step * x.stride(0)</code>. The next diagonal block starts <code>size</code> rows down
# <i>and</i> <code>size</code> columns to the right: both strides are paid at once. (torch has the first
# function ready-made: <code>x.unfold(0, size, step)</code>. That is a right answer too, once you raise the ValueError;
# can you say which shape and stride it returns?)</details>


# %% exercise="windows"
def windows(x: torch.Tensor, size: int, step: int = 1) -> torch.Tensor:
    """All windows of a 1-D tensor, one a row: row i is x[i * step : i * step + size].

    x: (n,), any dtype, stride and offset. Returns (1 + (n - size) // step, size), a view of x: 0 bytes allocated.
    size, step >= 1: nothing less comes. ValueError if size > n.
    """
    ### BEGIN SOLUTION
    (n,), (s,) = x.shape, x.stride()
    if size > n:
        raise ValueError(f"windows of {size} do not fit into {n} elements")
    return x.as_strided((1 + (n - size) // step, size), (step * s, s), x.storage_offset())
    ### END SOLUTION


def diagonal_blocks(x: torch.Tensor, size: int) -> torch.Tensor:
    """The square blocks on the diagonal: block i is x[i * size : (i + 1) * size, i * size : (i + 1) * size].

    x: (n, n), any dtype, strides and offset. Returns (n // size, size, size), a view of x: 0 bytes allocated.
    n, size >= 1: nothing less comes. ValueError if size does not divide n.
    """
    ### BEGIN SOLUTION
    n, (s0, s1) = x.shape[0], x.stride()
    if n % size:
        raise ValueError(f"blocks of {size} do not fill a diagonal of {n}")
    return x.as_strided((n // size, size, size), (size * (s0 + s1), s0, s1), x.storage_offset())
    ### END SOLUTION


# %% test="windows" points=2
import torch

from helpers import check
from helpers.lessons.storage_and_stride.exercises import check_diagonal_blocks, check_windows

numbers = torch.arange(100.0)
check_windows(check.case(numbers[:8], 3), check.case(numbers[:9], 4, 2), check.case(numbers[5:25:2], 3))
check_diagonal_blocks(
    check.case(numbers[:36].reshape(6, 6), 2), check.case(numbers.reshape(10, 10)[2:8, 3:9], 3)
)
check_windows(check.case(numbers[:4], 5, raises=ValueError))
check_diagonal_blocks(check.case(numbers[:25].reshape(5, 5), 2, raises=ValueError))

# %% hidden="windows" points=3
### BEGIN HIDDEN TESTS
import torch

from helpers import check
from helpers.check.variant import variant
from helpers.lessons.storage_and_stride.exercises import check_diagonal_blocks, check_windows

v = variant("windows__hidden")
numbers, all_of_it = torch.arange(2000, dtype=torch.int64), v.number(17)
check_windows(
    check.case(numbers[3 : 3 + all_of_it], all_of_it),
    check.case(numbers[: v.number(20)], 1, v.number(7)),
    check.case(numbers[100:1100:9], v.number(6), step=v.number(5)),
    check.case(numbers[:600].reshape(20, 30)[2:, 4], 4, step=3),
    check.case(numbers[7:8].expand(12), 5),
    check.case(numbers[:0], 1, raises=ValueError),
    check.case(numbers[40:60].to(torch.int16)[4:], 3, step=2),
    check.case(numbers[5:30].to(torch.complex128)[1::2], 4),
    check.case(numbers[:9] > 4, 9, step=20),
    check.case(numbers, v.number(512), 3),
)
number_square = numbers[:1600].reshape(40, 40)
check_diagonal_blocks(
    check.case(number_square[5:17, 20:32], 4),
    check.case(number_square.t()[1:13, 3:15], 3),
    check.case(number_square[:24:2, 3:39:3], 6),
    check.case(number_square[:7, :7], 1),
    check.case(number_square[:7, :7], 7),
    check.case(number_square[:9, :9], 2, raises=ValueError),
    check.case(number_square[:2, :2], 4, raises=ValueError),
    check.case(number_square.to(torch.float16)[1:10, 2:11], 3),
    check.case(numbers[:6].expand(6, 6), 2),
    check.case(number_square, 8),
)
### END HIDDEN TESTS

# %% [markdown]
# ### A small view keeps a large storage (2 min)
#
# A storage lives as long as any tensor that walks it. The counter `live_bytes` says how many of the bytes that a function
# allocated are still there when it has returned.


# %% experiment
def first_ten(copy: bool) -> torch.Tensor:
    big = torch.zeros(1_000_000)
    small = big[:10]
    return small.clone() if copy else small


experiments.kept_alive(
    {"big[:10]": count(first_ten, copy=False), "big[:10].clone()": count(first_ten, copy=True)}
)

# %% [markdown]
# So a small result can hold a large storage in memory, and the cure is, for once, a copy.
#
# ### Is a non-contiguous tensor dangerous, or slow? (6 min)
#
# Many texts warn of tensors that are not contiguous: errors, wrong results, bad order. We took operators of everyday work,
# ran each on `x.t()` and on a contiguous copy of it, and compared the results and the number of copies. The profiler counts
# them, because it also looks into an operator such as softmax. (`count` sees the smaller operators that `@` is made of, and
# not inside those.) Which of these copy more for `x.t()`?

# %% experiment
you = lesson.predict(
    {"elementwise, as x.exp()": ..., "reductions, as x.sum(0)": ..., "sequences, as F.softmax(x, 1)": ...},
    choices=["none of them", "some of them"],
)

# %% experiment
families = claims.outcomes()
copying = {family: "same, extra copy" in of_family.values() for family, of_family in families.items()}
each_time, before_the_loop = claims.softmax_copies()
lesson.keep(softmax_copies=each_time, copies_before=before_the_loop)
you.against(
    {line: "some of them" if copying[line.split(",")[0]] else "none of them" for line in you},
    experiments.outcomes(families),
    experiments.named(families),
    evidence="live (CPU)",
    what="copy more",
)

# %% [markdown]
# What **raised** only reinterprets a storage, and found no stride to do it with. What gave **other numbers** is
# `as_strided`, which is defined on the storage and not on the tensor. So are `data_ptr()` handed to C code, and a kernel of
# your own that assumes that rows lie side by side. That is where wrong results come from: from code that ignores strides,
# and from no other operator tried here.
#
# The **extra copies** are the price, where there is one: most operators here pay nothing. A kernel that wants its rows
# side by side makes a contiguous copy for itself, each time it is called: ten softmaxes make {{softmax_copies}} copies.
# One `contiguous()` before them leaves {{copies_before}} for all ten.
#
# **And the reading itself?** Most CPUs fetch memory in lines of 64 bytes: 16 numbers of 4 bytes. Numbers that lie 16 cells
# apart come from a line each, and of each line one number is used. A GPU brings in segments of 32 bytes, and the 32 threads
# of a warp ask together ([*CUDA C++ Best Practices
# Guide*](https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html), "Coalesced Access to Global Memory"). What
# that costs on your machine `bench` says (lesson 00). With `x = torch.ones(16_000_000)`, time `x[:1_000_000].sum()` and
# `x[::16].sum()`: both add a million numbers.
#
# ### Not contiguous on purpose: `channels_last` (5 min)
#
# Convolutions often run better when the channels of one pixel lie next to each other.
# [`memory_format=torch.channels_last`](https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html) keeps
# the shape `(n, c, h, w)` and every index. Results stay the same, up to rounding: another kernel may add in another order. The
# numbers are stored in the order `n, h, w, c`. The picture shows three channels (a, b, c) of 2 × 2 pixels (0 to 3). Which
# lines keep the layout, and which pay for a copy?

# %% experiment
images = torch.arange(12.0).reshape(1, 3, 2, 2)
last = images.to(memory_format=torch.channels_last)
storage_path(
    {"images": images, "last": last},
    title="The same (1, 3, 2, 2) tensor: channel by channel, and pixel by pixel",
    labels=lambda n, c, h, w: f"{'abc'[c]}{2 * h + w}",
    colour_by=1,
)

# %% experiment
you = lesson.predict(
    {
        "last.relu()": ...,
        "last.permute(0, 2, 3, 1).view(4, 3)": ...,
        "last.view(1, 12)": ...,
        "last.flatten(1)": ...,
        "last.contiguous()": ...,
    },
    choices=["view", "new, channels_last", "new, contiguous", "raises"],
)

# %% experiment
you.against(
    {line: experiments.format_of(line, last=last) for line in you}, evidence="live (CPU)", what="result"
)

# %% [markdown]
# `flatten` before the last linear layer is the classic: free on a contiguous tensor, a silent copy on a channels_last one.
# (After global pooling one pixel is left, and `flatten` is a view again: dimensions of size 1 always merge.) And
# `contiguous()` undoes the format, because without an argument it means row by row.
#
# > **Rule.** Most elementwise operators keep the order of the strides; with several inputs, that of the first.
# > `masked_fill` does not keep it. A merge that has to copy, and `contiguous()`, change it. If you want another layout,
# > convert once, where the data enters your program.
# >
# > *Where it stops:* whether a layout is *faster* depends on the kernel, the shape and the machine. Lesson 12 measures it.
#
# ### From pandas (3 min)
#
# A NumPy array is the same idea, so [`torch.from_numpy`](https://docs.pytorch.org/docs/stable/generated/torch.from_numpy.html)
# makes a tensor over the array's own memory. Parts of pandas frames go down two roads: straight into torch, and by way of
# NumPy.

# %% experiment
experiments.roads()

# %% [markdown]
# `torch.tensor(column)` asks for the rows labelled 0, 1, 2, … A filter may leave gaps in the labels, and then the call
# raises. A nullable `Int64` with a gap has to become `float64`, and columns of different dtypes must become one dtype:
# both are copies. Two float columns come in as a *transposed* tensor (see the stride), because pandas stored them column
# by column.
#
# "Shared" works in both directions: an in-place operator on such a tensor **changes the frame**. pandas may mark the memory
# as read-only, but a tensor knows no such mark. (`from_numpy` warns once; the warning is silenced here.)
#
# > **Rule.** `torch.from_numpy(column.to_numpy())` for columns of numbers; `to_numpy(dtype=…, na_value=…)` for nullable
# > ones with gaps. Before an in-place operator, `clone()`.
# >
# > *Where it stops:* text and dates have no torch dtype. A reversed column has a negative stride: it needs
# > `to_numpy().copy()`.
