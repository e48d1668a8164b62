# %% [markdown]
# # 01 · Storage and stride
#
# ## What does this line of tensor code really do to memory?
#
# `x.t()` takes the same short moment on a tensor of any size. `x.t().contiguous()` reads and writes every
# byte of it. Both print the same numbers. Much of tensor code is like this: a line either writes down a
# **new way to walk** numbers that are already there, or **moves** them all, and nothing on the screen says
# which. Once you can tell at a glance, you know where a program's memory goes, which line is free inside a
# hot loop, and why a harmless-looking `reshape` is at the top of the profile.
#
# **Time:** 45–60 min, exercises included. **You need:** to have used tensors. No GPU.
#
# **You will be able to**
#
# - say of a line whether it is a view or a copy, and of how many bytes;
# - build sliding windows and diagonal blocks that cost no memory;
# - find the copies that a function makes, and cut them down to the one that it needs.
#
# **Claims on trial,** all from pyemma's notes on the book *PyTorch performance and memory handbook*: tensor
# and storage are two levels · non-contiguous tensors may raise errors · or give wrong results · or read
# memory badly · reading through advanced indexing makes new storage · pandas objects should be converted to
# NumPy first.
#
# How to work: in each round you **commit to a prediction** (replace the `...`), run the measurement, and
# only then read why. A prediction left as `...` is simply not marked.

# %% setup
import torch

from helpers import bench, count, lesson, plots, simulate, widgets

lesson.start("01_storage_and_stride", evidence=["live (CPU)", "arithmetic", "simulated (H100)"])

# %% [markdown]
# ## Round 1 · Many tensors, one storage
#
# A **storage** is a row of cells. A **tensor** is four small things that say how to walk it: a dtype, a
# `shape`, a `stride` (how many cells to step, for each dimension, when its index grows by one) and an
# `offset` (the cell where the walk begins). Element `[i, j]` lies in cell
#
# $$\text{offset} + i \cdot \text{stride}_0 + j \cdot \text{stride}_1$$
#
# `x` below has 4 rows of 6, stored row by row, so its stride is `(6, 1)` and its offset 0. What are
# `stride` and `offset` of the others?

# %% experiment
x = torch.arange(24.0).reshape(4, 6)

prediction = {  # (stride, offset), e.g. ((6, 1), 0)
    "x.t()": ...,
    "x[:, 1]": ...,
    "x[1:, ::2]": ...,
    "x[2].view(2, 3)": ...,
}

# %% experiment
tensors = {code: eval(code) for code in prediction}
measured = {code: (t.stride(), t.storage_offset()) for code, t in tensors.items()}
lesson.compare_predictions(prediction, measured, evidence="live (CPU)", what="(stride, offset)")

# %% experiment
plots.storage_path(list(tensors), base=x, title="One storage of 24 cells, four ways to walk it")

# %% [markdown]
# Follow the arrows: each strip is one tensor, its elements in the order of its indices, the last index
# fastest. Transposing swapped two strides and moved nothing. A column starts one cell in and steps by a
# row. Slicing with a step multiplies a stride; slicing off a beginning moves the offset. Each new tensor is
# a **view**: a few integers, whatever the size of the storage. (The last words of a strip say whether *one*
# step length describes the whole walk. Remember the third one for round 2.)
#
# Is that really all? `count(fn)` runs a function and counts what reached PyTorch's dispatcher: operators,
# copies, storages made, bytes. The same tool grades your exercises, so it is worth meeting now. And if the
# storage is one, then a write through one view must show in all the others.

# %% experiment
made_views = count(lambda: [eval(code) for code in prediction])
print(made_views)

y = torch.arange(24.0).reshape(4, 6)
views = {
    "y": y,
    "y.t()": y.t(),
    "y[:, 1]": y[:, 1],
    "y[1:, ::2]": y[1:, ::2],
    "y[2].view(2, 3)": y[2].view(2, 3),
}
before = {name: t.clone() for name, t in views.items()}
y[:, 1].mul_(-1)
written_through = {name: int((t != before[name]).sum()) for name, t in views.items()}
storages = len({t.untyped_storage().data_ptr() for t in views.values()})
print(f"\n{len(views)} tensors, {storages} storage; elements changed by y[:, 1].mul_(-1): {written_through}")

# %% [markdown]
# `y[1:, ::2]` did not change: it walks columns 0, 2 and 4, and shares no *cell* with column 1, although it
# shares the storage.
#
# **Move it yourself.** The buttons set the sliders to a layout that has a name; then move one slider at a
# time. Which slider turns the row-major matrix into a broadcast? What happens when a stride is −1? Can you
# make a walk that visits each cell of the storage twice?

# %% experiment
widgets.stride_explorer()

# %% experiment
plots.tensor_grid(x.t(), title="x.t(): the grid that the indices see, and the cells that hold it")

# %% [markdown]
# **What a view keeps alive.** A storage lives as long as any tensor that walks it. So the small result of a
# function can hold a large storage in memory, and the cure is, for once, a copy.


# %% experiment
def first_ten(copy: bool) -> torch.Tensor:
    big = torch.zeros(1_000_000)
    small = big[:10]
    return small.clone() if copy else small


lesson.table(
    [
        (code, tuple(c.result.shape), c.result.numel() * c.result.element_size(), c.live_bytes)
        for code, c in {
            "big[:10]": count(first_ten, False),
            "big[:10].clone()": count(first_ten, True),
        }.items()
    ],
    ["returned", "shape", "bytes of its elements", "bytes kept alive"],
    evidence="live (CPU)",
)

# %% [markdown]
# > **Rule.** A tensor is (shape, stride, offset) over a storage. Whatever can be written as a new shape,
# > stride and offset *can* be a view; everything else must copy.
# >
# > *Where it stops:* torch has no negative strides, so reversing (`flip`) copies here while NumPy's
# > `a[::-1]` is a view. Sparse and nested tensors keep more than one storage.
#
# You are ready for **Exercise 1.1**.
#
# ## Round 2 · When does `reshape` copy?
#
# `reshape` is the most common line that is free or expensive depending on what came before it. Same `x`, 4
# × 6. For each line: is the result a **view** of x's storage, or a **copy**?

# %% experiment
prediction = {  # "view" or "copy"
    "x.reshape(2, 12)": ...,
    "x.t().reshape(12, 2)": ...,
    "x.t().reshape(6, 2, 2)": ...,
    "x[1:, ::2].reshape(9)": ...,
    "x[:, 1:4].reshape(12)": ...,
    "x[:, 1:4].reshape(2, 2, 3)": ...,
    "x[:, :1].reshape(4)": ...,
}


# %% experiment
def view_or_copy(c) -> str:
    return "view" if c.new_storages == 0 else "copy"


def says(code: str) -> str:
    """What happens when the same line asks for a view."""
    try:
        eval(code.replace("reshape", "view"))
        return "gives it"
    except RuntimeError as error:
        return f"raises {type(error).__name__}"


counted = {code: count(eval, code, globals()) for code in prediction}
lesson.table(
    [(code, view_or_copy(c), c.bytes_allocated, says(code)) for code, c in counted.items()],
    ["expression", "reshape gives", "bytes", ".view(…) instead"],
    evidence="live (CPU)",
).show()
lesson.compare_predictions(
    prediction, {code: view_or_copy(c) for code, c in counted.items()}, evidence="live (CPU)"
)

# %% experiment
plots.storage_path(
    [code for code in prediction if "t()" in code or "1:4" in code],
    base=x,
    title="reshape: where one stride a dimension is enough, and where not",
)

# %% [markdown]
# Each strip is the walk in the order of the *result*; the lines with the same walk differ only in how many
# dimensions they want to say it with. Cutting one dimension into two is always possible: the inner piece
# keeps the stride, the outer one takes a multiple. **Merging** two neighbours is the hard part. It needs
# the step from the end of one row to the start of the next to be the same as every other step:
#
# $$\text{stride}_i = \text{size}_{i+1} \cdot \text{stride}_{i+1}$$
#
# `x[:, 1:4]` has stride `(6, 1)` and rows of 3: within a row the walk steps by 1, at its end by 4. No
# single stride does both, so the numbers are copied into an order that has one. `x[:, :1]` has rows of 1,
# and a dimension of size 1 is never stepped along: its stride does not count. And `x[1:, ::2]` is a piece
# cut out of a matrix that one stride describes all the same, because its columns divide evenly: 3 of them
# at a step of 2 are the 6 cells of a row.
#
# That is a claim like any other, so let every 2-D slice of `x` and of `x.t()` judge it.


# %% experiment
def slices(t: torch.Tensor):
    rows, columns = t.shape
    for top in range(rows):
        for bottom in range(top + 2, rows + 1):
            for left in range(columns):
                for right in range(left + 2, columns + 1):
                    for step in (1, 2):
                        yield t[top:bottom, left:right:step]


tried = [s for t in (x, x.t()) for s in slices(t) if s.size(1) > 1]
agree = sum(
    (s.stride(0) == s.size(1) * s.stride(1)) == (view_or_copy(count(s.reshape, -1)) == "view") for s in tried
)
print(f"{len(tried)} slices: the rule and reshape(-1) agree on {agree}")

# %% [markdown]
# > **Rule.** Splitting a dimension is free; merging neighbours is free exactly where `stride[i] ==
# > size[i+1] * stride[i+1]`. `view` follows the same rule and raises where `reshape` would copy: in a hot
# > loop write `view`, and a copy that you did not plan becomes an error instead of a slowdown.
# >
# > *Where it stops:* "`reshape` gave me a copy" and "`reshape` gave me a view" are both promises it does
# > not make. Where you need your own storage, say `clone()`; `contiguous()` and `float()` return the very
# > same tensor when there is nothing to do.
#
# A tensor is **contiguous** when all its dimensions can be merged and the walk steps by 1. You are ready
# for **Exercise 1.2**.
#
# ## Round 3 · More elements than memory
#
# A stride may be 0: the index grows and the walk stays where it is. `expand` does that, and so does every
# broadcast. `row` has 6 numbers of 4 bytes. How many **bytes** does each line allocate?

# %% experiment
row = torch.arange(6.0)

prediction = {  # bytes
    "row.expand(1000, 6)": ...,
    "row.repeat(1000, 1)": ...,
    "row.expand(1000, 6).sum(0)": ...,
    "row.expand(1000, 6) + 1": ...,
    "row.expand(1000, 6).reshape(6000)": ...,
    "row.expand(1000, 6).float()": ...,
}

# %% experiment
measured = {code: count(eval, code, globals()).bytes_allocated for code in prediction}
lesson.compare_predictions(prediction, measured, evidence="live (CPU)", what="bytes allocated")

# %% experiment
plots.storage_path(
    {"row.expand(3, 6)": row.expand(3, 6), "row.repeat(3, 1)": row.repeat(3, 1)},
    base=row,
    title="The same 18 elements: 6 cells walked three times, or 18 cells of its own",
)

# %% [markdown]
# Reading an expanded tensor is safe and cheap. **Writing** is not, because several elements are one cell.
# Whole in-place operators refuse; a single element does not, and its neighbours change with it.

# %% experiment
z = torch.zeros(3, 1).expand(3, 4)
for code in ("z.add_(1)", "z[0] = 2.0", "z[0, 0] = 3.0"):
    try:
        exec(code)
        print(f"{code:<14} went through; z is now {z.tolist()}")
    except RuntimeError as error:
        print(f"{code:<14} raises: {str(error).split(': ')[1].split('.')[0]}")

# %% [markdown]
# > **Rule.** `expand` for what is only read, `repeat` or `clone` for what will be written. An operator that
# > returns one number for each element of an expanded input pays for all of them; a reduction does not.
# >
# > *Where it stops:* what comes after. One `reshape` or `contiguous` on the expanded tensor and the memory
# > is spent.
#
# The same trick gives overlapping windows: strides may also step *less* than a row. That is **Exercise
# 1.3**.
#
# ## Round 4 · Indexing: to read, and to write
#
# `x[…]` hides two machines. **Basic** indexing (integers, slices, `...`, `None`) is arithmetic on shape,
# stride and offset. **Advanced** indexing (lists, arrays, tensors) collects elements one by one. *Notes on
# the book* says that reading through advanced indexing makes new storage. Does it, for every kind of index?

# %% experiment
i, k, mask = torch.tensor([0, 2]), torch.tensor(1), torch.tensor([True, False, True, False])

prediction = {  # "view" or "copy"
    "x[0:3:2]": ...,
    "x[[0, 2]]": ...,
    "x[i]": ...,
    "x[mask]": ...,
    "x[0:3:2, [1]]": ...,
    "x[k]": ...,
    "x[None, ..., 1]": ...,
    "x[True]": ...,
}

# %% experiment
reads = {code: count(eval, code, globals()) for code in prediction}
lesson.compare_predictions(
    prediction, {code: view_or_copy(c) for code, c in reads.items()}, evidence="live (CPU)"
)

# %% experiment
plots.storage_path(
    ["x[0:3:2]", "x[[0, 2]]"],
    base=x,
    title="The same rows, the same walk: a slice is a stride, a list is a copy",
)

# %% [markdown]
# The two results hold the same rows, and one stride would do for both. But whether it would depends on the
# *values* in the list, which torch does not look at: it cannot know before it runs, so it always copies.
# There is one exception, and you have just measured it: an integer tensor with **no dimensions** (`k`) is
# read out to a Python number first, and then it is basic indexing. On a GPU that reading makes the CPU
# wait. So does a mask, whose number of `True` decides the size of the result. The last column below counts
# those waits.
#
# And assignment? `x[index] = value` does not read at all: it is another operator, which writes into x's own
# storage.


# %% experiment
def assign(code: str) -> tuple[object, int]:
    """Write 0 through the index of `code` into ones: the counts, and how many elements changed."""
    target = torch.ones(4, 6)
    made = count(exec, code + " = 0.0", {"x": target, "i": i, "k": k, "mask": mask})
    return made, int((target == 0).sum())


writes = {code: assign(code) for code in prediction}
lesson.table(
    [
        (
            code,
            view_or_copy(reads[code]),
            reads[code].bytes_allocated,
            writes[code][1],
            writes[code][0].bytes_allocated,
            reads[code].syncs,
        )
        for code in prediction
    ],
    ["index", "read: gives", "read: bytes", "write: elements set", "write: bytes", "GPU waits (read)"],
    evidence="live (CPU)",
    caption="bytes include the index itself where a list or a bool had to become a tensor",
)

# %% [markdown]
# So a chain of two brackets, with an assignment at its end, depends on what the *first* one is. Which of
# these change `x`?

# %% experiment
prediction = {  # True or False: does it change x?
    "x[0:3:2][:, 0] = -1": ...,
    "x[[0, 2]][:, 0] = -1": ...,
    "x[0][[1, 2]] = -1": ...,
    "x[i] += 1": ...,
    "x[i].add_(1)": ...,
}


# %% experiment
def changes(code: str) -> bool:
    target = torch.arange(24.0).reshape(4, 6)
    exec(code, {"x": target, "i": i})
    return not torch.equal(target, torch.arange(24.0).reshape(4, 6))


t, u, twice = torch.zeros(3), torch.zeros(3), torch.tensor([0, 0])
t[twice] += 1
u.index_add_(0, twice, torch.ones(2))
print("t[[0, 0]] += 1 gives", t.tolist(), "and index_add_", u.tolist())
lesson.compare_predictions(
    prediction, {code: changes(code) for code in prediction}, evidence="live (CPU)", what="changes x"
)

# %% [markdown]
# `x[[0, 2]][:, 0] = -1` fills a temporary copy, which is then thrown away: no error, no warning. `x[i] +=
# 1` works because Python writes the result *back* through the index; `x[i].add_(1)` has nothing to write
# back to.
#
# > **Rule.** Reading with integers and slices is a view; reading with a list, an array or a tensor of one
# > dimension or more is a copy; assigning through any single index writes in place.
# >
# > *Where it stops:* at the second bracket (after an advanced one, you write into a copy); and with `+=`,
# > where an index that names the same row twice adds once, where `index_add_` adds twice.
#
# You are ready for **Exercise 1.4**.
#
# ## Round 5 · Is a non-contiguous tensor dangerous, or slow?
#
# *Notes on the book* says that many algorithms assume contiguous storage, and that a non-contiguous tensor
# may read memory badly, raise an error, or even give wrong results. So we take the operators of everyday
# work, run each on `x.t()` and on a contiguous copy of it, and compare. First say how many of them will
# raise, and how many give other numbers.

# %% experiment
TRIED = """
elementwise: x + 1 | x * x | x.exp() | x.float() | F.gelu(x) | torch.where(x > 0.5, x, -x)
reductions:  x.sum(0) | x.mean(1) | x.std(0) | x.amax(1) | x.argmax(0) | x.logsumexp(1) | x.cumsum(0)
order:       x.sort(1).values | x.topk(3).values | x.unique() | x.quantile(0.5)
matrices:    x @ w | x.t() @ x | F.linear(x, w.t()) | torch.linalg.qr(x).R | torch.cdist(x, x + 1)
sequences:   F.softmax(x, 1) | F.layer_norm(x, (48,)) | F.cross_entropy(x, y) | F.embedding(y, x)
images:      F.group_norm(x, 4) | F.conv1d(x[None], conv) | F.max_pool1d(x[None], 2) | F.pad(x, (1, 1))
moving:      x.clone() | x.flip(0) | x.roll(1, 0) | torch.cat([x, x]) | x.gather(1, y[:, None]) | x[x > 0.5]
shape:       x.reshape(-1) | x.flatten() | x.unflatten(1, (6, 8)) | x.unfold(0, 4, 4)
shape only:  x.view(-1) | x.view(torch.complex128) | x.as_strided((6,), (1,))
"""
OPERATORS = {
    line.split(":")[0]: line.split(": ")[1].strip().split(" | ") for line in TRIED.strip().splitlines()
}
N = sum(map(len, OPERATORS.values()))

prediction = {f"raise, of {N}": ..., f"give other numbers, of {N}": ...}

# %% experiment
import os

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's own log lines
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

g = torch.Generator().manual_seed(0)
stored = torch.rand(48, 64, generator=g, dtype=torch.float64)
names = {
    "torch": torch,
    "F": F,
    "w": torch.rand(48, 16, generator=g, dtype=torch.float64),
    "conv": torch.rand(2, 64, 3, generator=g, dtype=torch.float64),
    "y": torch.randint(0, 48, (64,), generator=g),
}


def tried_on(x: torch.Tensor, code: str) -> tuple[torch.Tensor, int, int]:
    """(result, copies that count sees, copies that the profiler sees: also those made inside an operator)."""
    counted = count(eval, code, names | {"x": x})
    with profile(activities=[ProfilerActivity.CPU]) as p:
        eval(code, names | {"x": x})
    return counted.result, counted.copies, sum(event.name == "aten::copy_" for event in p.events())


# %% experiment
outcome = {}  # code → (what happened, extra copies that count sees, extra copies that the profiler sees)
for code in (code for family in OPERATORS.values() for code in family):
    want, copies_c, inside_c = tried_on(stored.t().contiguous(), code)
    try:
        got, copies, inside = tried_on(stored.t(), code)
    except RuntimeError:
        outcome[code] = ("raised", 0, 0)
        continue
    same = got.shape == want.shape and torch.allclose(got, want)
    outcome[code] = (
        "same" if same else "other numbers",
        max(0, copies - copies_c),
        max(0, inside - inside_c),
    )


def having(test) -> list[str]:
    return [code for code, found in outcome.items() if test(*found)]


raised = having(lambda what, seen, inside: what == "raised")
other = having(lambda what, seen, inside: what == "other numbers")
hidden = having(lambda what, seen, inside: inside > 0)
seen_by_count = having(lambda what, seen, inside: seen > 0)
lesson.table(
    [
        (
            family,
            len(codes),
            *(sum(outcome[c][0] == what for c in codes) for what in ("same", "raised", "other numbers")),
            sum(c in hidden for c in codes),
        )
        for family, codes in OPERATORS.items()
    ],
    ["operators", "tried", "same result", "raised", "other numbers", "made an extra copy"],
    evidence="live (CPU)",
).show()
for title, codes in zip(
    ("raised", "other numbers", "extra copy", "of these, count sees"),
    (raised, other, hidden, seen_by_count),
    strict=True,
):
    print(f"{title + ':':<22}", "  ".join(codes))
lesson.compare_predictions(
    prediction, dict(zip(prediction, (len(raised), len(other)), strict=True)), evidence="live (CPU)"
)

# %% [markdown]
# Read the three lists. What **raised** are the operators that only reinterpret a storage and found no
# stride to do it with. What gave **other numbers** is `as_strided`, which is defined on the *storage* and
# not on the tensor; so are `resize_`, `data_ptr()` handed to C code, and a kernel of your own that assumes
# `stride == (n, 1)`. That is where the "wrong results" live: in code that ignores strides, not in PyTorch's
# operators.
#
# The third list is the usual price. Operators whose kernel wants rows in a row call `contiguous()` for
# themselves, each time. `count` sees copies that are operators of their own; the profiler also sees those
# made inside one. Calling such an operator ten times on the same `x.t()` copies ten times; one
# `contiguous()` before the loop copies once.
#
# **And the reading itself?** Most CPUs fetch memory in lines of 64 bytes, which is 16 numbers of 4 bytes.
# Below, as many numbers are summed as neighbours, then 2, 4, … cells apart. The lines are arithmetic. The
# clock is this machine's: look for the step at which it begins to grow, and compare it with the growth of
# the lines.

# %% experiment
wanted = 2**17
cells = torch.ones(wanted * 32)
lines = {step: wanted * min(step, 16) // 16 for step in (1, 2, 4, 8, 16, 32)}
rows = []
for step in lines:
    walk = cells[::step][:wanted]
    rows.append(
        (
            step,
            walk.is_contiguous(),
            lines[step],
            lines[step] * 64,
            bench(walk.sum, min_run_time=0.1, num_threads=1).cell,
        )
    )
lesson.table(
    rows,
    ["stride", "contiguous", "64-byte lines touched", "bytes brought in", "sum() takes"],
    evidence="live (CPU)",
    caption=f"lines and bytes are arithmetic; {wanted * 4:,} bytes of numbers are wanted each time",
)

# %% [markdown]
# ### Not contiguous on purpose: `channels_last`
#
# Convolutions often run better when the channels of one pixel lie next to each other.
# `memory_format=channels_last` keeps the shape `(n, c, h, w)`, every index and every result, and stores the
# numbers in the order `n, h, w, c`. The layout travels through a network as strides. Which of these lines
# keep it, and which pay for a copy?

# %% experiment
images = torch.arange(12.0).reshape(1, 3, 2, 2)
last = images.to(memory_format=torch.channels_last)
plots.storage_path(
    {"images": images, "last": last},
    title="The same (1, 3, 2, 2) tensor: channel by channel, and pixel by pixel",
)

# %% experiment
prediction = {  # "view", "new, channels_last", "new, contiguous", "raises"
    "last.relu()": ...,
    "torch.cat([last, last], 1)": ...,
    "last.permute(0, 2, 3, 1).view(4, 3)": ...,
    "last.view(1, 12)": ...,
    "last.flatten(1)": ...,
    "last.contiguous()": ...,
}


# %% experiment
def layout(code: str) -> str:
    try:
        c = count(eval, code, globals())
    except RuntimeError:
        return "raises"
    if c.new_storages == 0:
        return "view"
    four = c.result.dim() == 4 and c.result.is_contiguous(memory_format=torch.channels_last)
    return "new, channels_last" if four else "new, contiguous"


lesson.compare_predictions(
    prediction, {code: layout(code) for code in prediction}, evidence="live (CPU)", what="result"
)

# %% [markdown]
# `flatten` before the last linear layer is the classic: free on a contiguous tensor, a silent copy on a
# channels_last one. And `.contiguous()` undoes the format, for "contiguous" without an argument means row
# by row.
#
# > **Rule.** Strides are part of the data: elementwise operators pass them on, merging dimensions and
# > `contiguous()` break them. Convert once, at the door.
# >
# > *Where it stops:* whether a layout is *faster* depends on the kernel, the shape and the machine. Lesson
# > 12 measures that for channels_last.
#
# You are ready for **Exercise 1.5**.
#
# ## Round 6 · NumPy and pandas in
#
# A NumPy array is the same idea: memory, shape, strides (in bytes). So `torch.from_numpy` can make a tensor
# over the array's own memory. *Notes on the book* advises to convert a pandas object to NumPy first. When
# is that free? Say for each column whether the tensor **shares** the frame's memory, is a **copy**, or the
# conversion **raises**.

# %% experiment
prediction = {  # "shared", "copied" or "raises"
    "float32 column": ...,
    "bool column": ...,
    "float32 with a gap": ...,
    "Int64 (nullable), full": ...,
    "Int64 (nullable), with a gap": ...,
    "text column": ...,
    "date column": ...,
    "frame of two float32 columns": ...,
    "frame of float32 and int64": ...,
}

# %% experiment
import warnings

import numpy as np
import pandas as pd

number = np.arange(5, dtype=np.float32)
frame = pd.DataFrame({"a": number, "k": np.arange(5), "flag": number > 2, "name": list("abcde")})
frame["gap"] = np.array([0, 1, np.nan, 3, 4], dtype=np.float32)
frame["full"] = pd.array([1, 2, 3, 4, 5], dtype="Int64")
frame["holes"] = pd.array([1, 2, None, 4, 5], dtype="Int64")
frame["when"] = pd.date_range("2024-01-01", periods=5)
pair = pd.DataFrame({"a": number, "b": number * 2})

columns = [frame[name] for name in ("a", "flag", "gap", "full", "holes", "name", "when")]
parts = dict(zip(prediction, [*columns, pair, frame[["a", "k"]]], strict=True))
warned: list[str] = []


def into_torch(part) -> tuple[str, np.ndarray, torch.Tensor | None]:
    array = part.to_numpy()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tensor = torch.from_numpy(array)
    except TypeError:
        return "raises", array, None
    warned.extend(str(one.message).partition(",")[0] for one in caught)
    # to_numpy gives the frame's own memory exactly when a second call gives the same memory again
    return ("shared" if np.shares_memory(array, part.to_numpy()) else "copied"), array, tensor


found = {name: into_torch(part) for name, part in parts.items()}
print(f"from_numpy warned {len(warned)} time(s): {warned}")
lesson.table(
    [
        (
            name,
            how,
            str(array.dtype),
            "yes" if array.flags.writeable else "read-only",
            "" if t is None else str(t.stride()),
        )
        for name, (how, array, t) in found.items()
    ],
    ["part of the frame", "from_numpy(to_numpy())", "array dtype", "writable", "tensor stride"],
    evidence="live (CPU)",
).show()
lesson.compare_predictions(
    prediction, {name: how for name, (how, _, _) in found.items()}, evidence="live (CPU)"
)

# %% [markdown]
# A column whose dtype is NumPy's own comes in for nothing. A nullable `Int64` keeps its gaps in a second
# array: with a gap it has to become `float64`, in a copy. Columns of different dtypes have to be brought to
# one. And two float columns taken together come in as a *transposed* tensor, because pandas stores column
# by column: see the stride.
#
# Since pandas 3 a frame hands out its memory **read-only**. A tensor knows no such thing: `from_numpy`
# warns once in the life of a process and then says nothing more. The next cell writes through such a
# tensor, and then tries the road without NumPy.


# %% experiment
def attempt(what) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return f"works, {what().dtype}"
    except (TypeError, ValueError, RuntimeError, KeyError) as error:
        return f"raises {type(error).__name__}"


frame_a = frame["a"].tolist()
found["float32 column"][2].mul_(10)  # the tensor over frame["a"]
print("frame['a'] before:", frame_a, "\nframe['a'] after: ", frame["a"].tolist())

column, filtered = frame["a"], frame["a"][frame["a"] > 5]
direct = {
    "torch.tensor(column)": lambda: torch.tensor(column),
    "torch.tensor(filtered column)": lambda: torch.tensor(filtered),
    "torch.tensor(frame)": lambda: torch.tensor(pair),
    "torch.tensor(date column)": lambda: torch.tensor(frame["when"]),
    "torch.tensor(Int64 with a gap)": lambda: torch.tensor(frame["holes"]),
    "torch.from_numpy(column)": lambda: torch.from_numpy(column),
}
without = {code: attempt(what) for code, what in direct.items()}
lesson.table(list(without.items()), ["without to_numpy()", "result"], evidence="live (CPU)")


# %% experiment
class Watched(pd.Series):
    """A column that counts the numbers it hands over one by one."""

    handed = 0

    def __iter__(self):
        for value in super().__iter__():
            Watched.handed += 1
            yield value


long = pd.Series(np.arange(20_000, dtype=np.float32))
array = long.to_numpy(copy=True)
torch.tensor(Watched(long))
print(f"torch.tensor(column) took {Watched.handed:,} numbers one by one")
print("torch.from_numpy(array[::2]) has stride", torch.from_numpy(array[::2]).stride())
print("torch.from_numpy(array[::-1])", attempt(lambda: torch.from_numpy(array[::-1])))

roads = {
    "torch.from_numpy(array)": lambda: torch.from_numpy(array),
    "torch.as_tensor(array)": lambda: torch.as_tensor(array),
    "torch.tensor(array)": lambda: torch.tensor(array),
    "torch.tensor(column)": lambda: torch.tensor(long),
}
lesson.table(
    [
        (code, road().data_ptr() == array.ctypes.data, bench(road, min_run_time=0.05).cell)
        for code, road in roads.items()
    ],
    ["20,000 float32 numbers", "shares the array", "takes"],
    evidence="live (CPU)",
)

# %% [markdown]
# The last road walks the column number by number, through Python. It works until a filter has removed row
# label 0, which is the first thing that torch asks for.
#
# > **Rule.** `torch.from_numpy(column.to_numpy())` for columns of NumPy dtypes; `to_numpy(dtype=…,
# > na_value=…)` for the nullable ones; `torch.tensor(array)` when you want a copy.
# >
# > *Where it stops:* sharing cuts both ways. Before an in-place operator on a tensor that came from a
# > frame, `clone()` it. And a NumPy view with a negative stride does not come in at all.

# %% [markdown]
# ## Exercises
#
# Each has a visible test, which says what it measured, and further tests that run when the lesson is
# graded. The limits are arithmetic that you can redo; no clock is ever read.
#
# **Exercise 1.1 — from index to cell, and back** (★, 6 min)
#
# Write the formula of round 1, and its inverse. With these two you could write `print(x)` for any strided
# tensor.
#
# <details><summary>Hint 1</summary>For the inverse, start with the largest stride: how many whole steps of
# it fit into what is left of <code>cell - offset</code>?</details>
# <details><summary>Hint 2</summary>An index never exceeds its size - 1. A stride of 0 never moves, so its
# index is 0. After all dimensions, something may be left over: then no element lies in that cell.</details>
# <details><summary>The idea</summary>It is how one reads off hours, minutes and seconds: divide by the
# largest unit, keep the rest, go on with the next. Only the order of the units comes from the strides and
# not from the position of the dimensions, because the tensor may be transposed.</details>


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
    Where several elements share the cell (a stride of 0), the first one.
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
from helpers import check

check.function(
    "flat_index",
    [
        check.case((2, 3), (6, 1)),
        check.case((3, 2), (1, 6), 0),
        check.case((0, 2), (6, 2), 6),
        check.case((), (), 5),
        check.case((1,), (6, 1), raises=ValueError),
    ],
    [15, 15, 10, 5, None],
    budget={"operators": 0},
    look="Round 1, the formula",
)
check.function(
    "unflatten",
    [
        check.case(15, (4, 6), (6, 1)),
        check.case(15, (6, 4), (1, 6)),
        check.case(10, (3, 3), (6, 2), 6),
        check.case(9, (3, 3), (6, 2), 6),
        check.case(3, (3, 3), (6, 2), 6),
        check.case(4, (1000, 6), (0, 1)),
    ],
    [(2, 3), (3, 2), (0, 2), None, None, (0, 4)],
    budget={"operators": 0},
    look="Round 1, the figure: which cells does the walk leave out?",
)

# %% hidden="flat_index" points=1
### BEGIN HIDDEN TESTS
import random

import torch

from helpers import check


def layouts(seed: int, many: int) -> list:
    """(shape, stride, offset) of random views of contiguous tensors."""
    r = random.Random(seed)
    found = []
    while len(found) < many:
        t = torch.empty([r.randint(1, 4) for _ in range(r.randint(1, 4))])
        t = t[tuple(slice(r.randint(0, 1), None, r.randint(1, 2)) for _ in t.shape)]
        t = t.permute(r.sample(range(t.dim()), t.dim()))
        if r.random() < 0.3:
            t = t.unsqueeze(0).expand(r.randint(1, 3), *t.shape)
        if t.dim() > 1 and t.shape[0] and r.random() < 0.3:
            t = t[r.randrange(t.shape[0])]
        found.append((tuple(t.shape), t.stride(), t.storage_offset()))
    return found


def forward(flat_index, layouts):
    import itertools

    return [
        [flat_index(index, stride, offset) for index in itertools.product(*map(range, shape))]
        for shape, stride, offset in layouts
    ]


def walked(layouts):
    return [torch.arange(400).as_strided(*one).reshape(-1).tolist() for one in layouts]


def back(unflatten, layouts):
    return [[unflatten(cell, *one) for cell in range(60)] for one in layouts]


def first_visits(layouts):
    import itertools

    answers = []
    for shape, stride, offset in layouts:
        first = {}
        for cell, index in zip(
            walked([(shape, stride, offset)])[0], itertools.product(*map(range, shape)), strict=True
        ):
            first.setdefault(cell, index)
        answers.append([first.get(cell) for cell in range(60)])
    return answers


check.function("flat_index", [check.case(layouts(0, 150))], walked, drive=forward, budget={"operators": 0})
check.function("unflatten", [check.case(layouts(1, 150))], first_visits, drive=back, budget={"operators": 0})
### END HIDDEN TESTS

# %% [markdown]
# **Exercise 1.2 — contiguous, or not?** (★★, 8 min)
#
# From shape and stride alone, as PyTorch itself decides it. Your function is held against
# `Tensor.is_contiguous()` on thousands of random layouts, odd ones among them.
#
# <details><summary>Hint 1</summary>Go through the dimensions from the last to the first. Which stride must
# the last one have? Then which must the one before it have?</details>
# <details><summary>Hint 2</summary>Two special cases: along a dimension of size 1 nobody ever steps, so its
# stride may be anything. And a tensor with no elements has nothing that could be out of order.</details>
# <details><summary>The idea</summary>Keep the stride that is wanted, beginning with 1. For each dimension
# from the right whose size is not 1: compare, then multiply what is wanted by the size. That is the merging
# rule of round 2, asked of every pair of neighbours at once, plus a last stride of 1.</details>


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
import torch

from helpers import check

contiguity_cases = [((4, 6), (6, 1)), ((6, 4), (1, 6)), ((4, 3), (6, 1)), ((3,), (2,)), ((), ())]
contiguity_cases += [((2, 3, 4), (12, 4, 1)), ((2, 3, 4), (12, 1, 3)), ((1, 3, 2, 2), (12, 1, 6, 3))]
contiguity_cases += [
    ((4, 1), (1, 7)),
    ((1, 4), (99, 1)),
    ((1, 1), (5, 0)),
    ((0, 3), (1, 9)),
    ((3, 4), (0, 1)),
]
check.function(
    "is_contiguous",
    [check.case(*one) for one in contiguity_cases],
    lambda shape, stride: torch.empty_strided(shape, stride).is_contiguous(),
    budget={"operators": 0},
    look="Round 2, the rule for merging",
)

# %% hidden="is_contiguous" points=2
### BEGIN HIDDEN TESTS
import random

import torch

from helpers import check


def layouts(seed: int, many: int) -> list:
    """Contiguous layouts, half of them changed in one place, sizes of 0 and 1 among them."""
    r = random.Random(seed)
    found = []
    for _ in range(many):
        shape = [
            r.choice((0, 1, 1, 2, 2, 3, 4, 5)) if r.random() < 0.6 else r.randint(2, 6)
            for _ in range(r.randint(0, 5))
        ]
        stride, step = [0] * len(shape), 1
        for d in reversed(range(len(shape))):
            stride[d], step = step, step * shape[d]
        change = r.random()
        if shape and change < 0.3:
            stride[r.randrange(len(shape))] = r.randint(0, 30)
        elif shape and change < 0.5:
            order = r.sample(range(len(shape)), len(shape))
            shape, stride = [shape[d] for d in order], [stride[d] for d in order]
        elif shape and change < 0.6:
            stride = [s * 2 for s in stride]
        elif shape and change < 0.7:
            stride = [r.randint(0, 50) if n == 1 else s for n, s in zip(shape, stride, strict=True)]
        found.append((tuple(shape), tuple(stride)))
    return found


def all_of(is_contiguous, layouts):
    return [is_contiguous(shape, stride) for shape, stride in layouts]


def torch_says(layouts):
    return [torch.empty_strided(*one, device="meta").is_contiguous() for one in layouts]


big = 2**40  # more elements than any library can number: integers can
check.function(
    "is_contiguous", [check.case(layouts(0, 4000))], torch_says, drive=all_of, budget={"operators": 0}
)
check.function(
    "is_contiguous",
    [
        check.case((big, big), (big, 1)),
        check.case((big, big), (1, big)),
        check.case((big, 1, big), (big, 7, 1)),
        check.case((big, 0, big), (1, 1, 1)),
    ],
    [True, False, True, True],
    budget={"operators": 0},
)
### END HIDDEN TESTS

# %% [markdown]
# **Exercise 1.3 — the same numbers, a different walk** (★★, 8 min)
#
# Sliding windows (the heart of a convolution, of a moving average, of a language model's training samples)
# and the blocks on a matrix's diagonal. Neither needs a byte.
#
# <details><summary>Hint 1</summary>Write down the cells of the first two rows of the result. How far is it
# from an element to its right neighbour, and how far from the first row to the second?</details>
# <details><summary>Hint 2</summary><code>torch.as_strided(x, shape, stride, offset)</code> counts in cells
# of the <i>storage</i>. The input may be a view itself: its own stride is your unit, and its offset is
# where you begin.</details>
# <details><summary>The idea</summary>A window starts <code>step</code> elements after the last one: in
# cells that is <code>step * x.stride(0)</code>. The next diagonal block starts <code>size</code> rows down
# <i>and</i> <code>size</code> columns to the right: both strides are paid at once.</details>


# %% exercise="windows"
def windows(x: torch.Tensor, size: int, step: int = 1) -> torch.Tensor:
    """All windows of a 1-D tensor, one a row: row i is x[i * step : i * step + size].

    x: (n,), any stride and offset. Returns (1 + (n - size) // step, size), a view of x: 0 bytes allocated.
    size, step >= 1. ValueError if size > n.
    """
    ### BEGIN SOLUTION
    (n,), (s,) = x.shape, x.stride()
    if size > n:
        raise ValueError(f"windows of {size} do not fit into {n} elements")
    return x.as_strided((1 + (n - size) // step, size), (step * s, s), x.storage_offset())
    ### END SOLUTION


def diagonal_blocks(x: torch.Tensor, size: int) -> torch.Tensor:
    """The square blocks on the diagonal: block i is x[i * size : (i + 1) * size, i * size : (i + 1) * size].

    x: (n, n), any strides and offset. Returns (n // size, size, size), a view of x: 0 bytes allocated.
    ValueError if size does not divide n.
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


def expected_windows(x, size, step=1):
    return torch.stack([x[i : i + size] for i in range(0, len(x) - size + 1, step)])


def expected_blocks(x, size):
    return torch.stack([x[i : i + size, i : i + size] for i in range(0, len(x), size)])


def write_through(fn, x, *sizes):
    """What x holds after a write into the last element of a view of it."""
    result = fn(x, *sizes)
    result[(-1,) * result.dim()] = -7
    return x


def last_is_written(x, *sizes):
    x[last_element(x, *sizes)] = -7
    return x


def last_element(x, size, step=1):
    if x.dim() == 2:
        return -1, -1
    return (len(x) - size) // step * step + size - 1


no_memory = {"new_storages": 0, "bytes_allocated": 0}
numbers = torch.arange(100.0)
check.function(
    "windows",
    [
        check.case(numbers[:8], 3),
        check.case(numbers[:9], 4, 2),
        check.case(numbers[5:25:2], 3),
        check.case(numbers[:4], 5, raises=ValueError),
    ],
    expected_windows,
    view_of=0,
    budget=no_memory,
    look="Round 3: strides that step less than a row",
)
check.function(
    "diagonal_blocks",
    [
        check.case(numbers[:36].reshape(6, 6), 2),
        check.case(numbers.reshape(10, 10)[2:8, 3:9], 3),
        check.case(numbers[:25].reshape(5, 5), 2, raises=ValueError),
    ],
    expected_blocks,
    view_of=0,
    budget=no_memory,
    look="Round 1, the figure: what one step costs in each dimension",
)
for maker, sizes in {
    "windows": (numbers[:9], 4, 2),
    "diagonal_blocks": (numbers[:36].reshape(6, 6), 2),
}.items():
    check.function(
        maker,
        [check.case(*sizes)],
        last_is_written,
        drive=write_through,
        unchanged=False,
        budget=no_memory,
        note="a number written into the last element of the result must arrive in x: it is a view",
    )

# %% hidden="windows" points=3
### BEGIN HIDDEN TESTS
import torch

from helpers import check


def expected_windows(x, size, step=1):
    return torch.stack([x[i : i + size] for i in range(0, len(x) - size + 1, step)])


def expected_blocks(x, size):
    return torch.stack([x[i : i + size, i : i + size] for i in range(0, len(x), size)])


def write_through(fn, x, *sizes):
    """What x holds after a write into the last element of a view of it."""
    result = fn(x, *sizes)
    result[(-1,) * result.dim()] = -7
    return x


def last_is_written(x, *sizes):
    x[last_element(x, *sizes)] = -7
    return x


def last_element(x, size, step=1):
    if x.dim() == 2:
        return -1, -1
    return (len(x) - size) // step * step + size - 1


no_memory = {"new_storages": 0, "bytes_allocated": 0}
numbers = torch.arange(2000, dtype=torch.int64)
check.function(
    "windows",
    [
        check.case(numbers[3:20], 17),
        check.case(numbers[:20], 1, 7),
        check.case(numbers[100:1100:9], 6, step=5),
        check.case(numbers[:600].reshape(20, 30)[2:, 4], 4, step=3),
        check.case(numbers[7:8].expand(12), 5),
        check.case(numbers[:0], 1, raises=ValueError),
        check.case(numbers, 512, 3),
    ],
    expected_windows,
    view_of=0,
    budget=no_memory,
)
number_square = numbers[:1600].reshape(40, 40)
check.function(
    "diagonal_blocks",
    [
        check.case(number_square[5:17, 20:32], 4),
        check.case(number_square.t()[1:13, 3:15], 3),
        check.case(number_square[:24:2, 3:39:3], 6),
        check.case(number_square[:7, :7], 1),
        check.case(number_square[:7, :7], 7),
        check.case(number_square[:9, :9], 2, raises=ValueError),
        check.case(number_square, 8),
    ],
    expected_blocks,
    view_of=0,
    budget=no_memory,
)
for maker, sizes in {
    "windows": (numbers[::3][:50], 6, 4),
    "diagonal_blocks": (number_square.t()[:12, 2:14], 4),
}.items():
    check.function(
        maker,
        [check.case(*sizes)],
        last_is_written,
        drive=write_through,
        unchanged=False,
        budget=no_memory,
    )
### END HIDDEN TESTS

# %% [markdown]
# **Exercise 1.4 — ten lines** (★★, 6 min)
#
# `x` is `torch.arange(24.0).reshape(4, 6)`, float32 and contiguous. Replace each `None` by `"view"` (the
# result lies in x's storage) or `"copy"` (it has a new one), and delete the line that raises. Decide all
# ten first; then check yourself with `count`. The visible test looks at four of them, the hidden one at the
# other six.
#
# <details><summary>Hint 1</summary>For each line ask: is there a shape, a stride and an offset over x's 24
# cells that say it?</details>
# <details><summary>Hint 2</summary>Two of the lines have nothing to do and give back what they got. Two
# merge dimensions that cannot be merged. One needs a negative stride.</details>
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
import torch

from helpers import check, count


def ten_lines():
    x = torch.arange(24.0).reshape(4, 6)
    lines = ["x.contiguous()", "x.t().contiguous()", "x[[1, 2]]", "x[1:3].flatten()"]
    return {line: "copy" if count(eval, line, {"x": x}).new_storages else "view" for line in lines}


check.value("answers", ten_lines, look="Round 2, the rules")

# %% hidden="view_or_copy" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers import check, count


def ten_lines():
    x = torch.arange(24.0).reshape(4, 6)
    lines = [
        "x.float()",
        "x.t().flatten()",
        "x.flip(0)",
        "x.unflatten(1, (2, 3)).transpose(0, 1)",
        "x.expand(2, 4, 6).reshape(8, 6)",
        "x[:, None, ::2].expand(4, 5, 3)",
    ]
    return {line: "copy" if count(eval, line, {"x": x}).new_storages else "view" for line in lines}


check.value("answers", ten_lines)
### END HIDDEN TESTS

# %% [markdown]
# The last exercise begins with a loader that gives the right result and looks like code you have seen: some
# frames of a video, cropped, as a network wants them. Each of its four lines moves every number that it is
# given.


# %% experiment
def clip_in_four_copies(video: torch.Tensor, every: int, top: int, left: int, size: int) -> torch.Tensor:
    frames = video[torch.arange(0, len(video), every, device=video.device)]  # every n-th frame
    frames = frames.float()  # uint8 → float32
    frames = frames.permute(0, 3, 1, 2).contiguous()  # (t, h, w, c) → (t, c, h, w)
    return frames[:, :, top : top + size, left : left + size].contiguous()  # the crop


video = torch.randint(0, 256, (16, 48, 64, 3), dtype=torch.uint8)
made = count(clip_in_four_copies, video, every=2, top=8, left=16, size=32)
lesson.table(
    made.allocations,
    ["new storage made by", "bytes"],
    evidence="live (CPU)",
    caption=f"{made.copies} copies, {made.bytes_allocated:,} bytes; the result has {made.result.nbytes:,}",
)

# %% [markdown]
# **Exercise 1.5 — four copies, or one** (★★★, 10 min)
#
# Write `clip`, which gives the same result in the one copy that it needs.
#
# <details><summary>Hint 1</summary>Which of the four steps could be views, if they came in another order?
# Only one of them cannot.</details>
# <details><summary>Hint 2</summary>An elementwise operator, a change of dtype too, passes its input's
# strides on (round 5). So the result of the one copy may have the wrong layout, and
# <code>contiguous()</code> after it would be a second one. Can you say beforehand which layout you
# want?</details>
# <details><summary>The idea</summary>First describe what is wanted, in views: a slice for the frames,
# slices for the crop, <code>permute</code>. Then move the numbers once, into memory that has the wanted
# dtype and layout: <code>to(dtype, memory_format=…)</code>, or <code>torch.empty(…)</code> and
# <code>copy_</code>.</details>


# %% exercise="one_copy"
def clip(video: torch.Tensor, every: int, top: int, left: int, size: int) -> torch.Tensor:
    """Frames 0, every, 2 * every, … of a video; of each, size rows from `top` and size columns from `left`.

    video: (t, h, w, c) uint8, any strides and offset. Returns (f, c, size, size) float32, contiguous, with
    f = ceil(t / every). Limits: 1 copy, 1 new storage of 4 * f * c * size * size bytes, and no detour through
    NumPy (0 syncs), whose memory no counter sees.
    ValueError if the crop does not fit into the frame.
    """
    ### BEGIN SOLUTION
    if top + size > video.shape[1] or left + size > video.shape[2]:
        raise ValueError(f"a crop of {size} at ({top}, {left}) does not fit into {tuple(video.shape[1:3])}")
    view = video[::every, top : top + size, left : left + size].permute(0, 3, 1, 2)
    return view.to(torch.float32, memory_format=torch.contiguous_format)
    ### END SOLUTION


# %% test="one_copy" points=2
import torch

from helpers import check


def expected_clip(video, every, top, left, size):
    return video[::every].float().permute(0, 3, 1, 2)[:, :, top : top + size, left : left + size].contiguous()


def clip_limits(video, every, top, left, size):
    t, h, w, c = video.shape
    needed = 4 * -(-t // every) * c * size * size
    return {"copies": 1, "new_storages": 1, "bytes_allocated": needed, "syncs": 0}


def must_be_new_and_contiguous(reports):
    for report in reports:
        if report.error is None and report.counts["new_storages"] == 0:
            return "values are right, but torch made no storage for them: whose memory is it?"
        if report.error is None and not report.raw["geometry"]["contiguous"]:
            stride = tuple(report.raw["geometry"]["stride"])
            return f"values are right, in one copy, but the result is not contiguous: its stride is {stride}"


seeded = torch.Generator().manual_seed(0)
film = torch.randint(0, 256, (7, 12, 16, 3), dtype=torch.uint8, generator=seeded)
check.function(
    "clip",
    [
        check.case(film, 2, 3, 5, 8),
        check.case(film, 1, 0, 0, 12),
        check.case(film, 2, 6, 5, 8, raises=ValueError),
        check.case(film, 3, 4, 8, 8),
    ],
    expected_clip,
    budget=clip_limits,
    verify=must_be_new_and_contiguous,
    look="Round 5: what becomes of strides",
)

# %% hidden="one_copy" points=3
### BEGIN HIDDEN TESTS
import torch

from helpers import check


def expected_clip(video, every, top, left, size):
    return video[::every].float().permute(0, 3, 1, 2)[:, :, top : top + size, left : left + size].contiguous()


def clip_limits(video, every, top, left, size):
    t, h, w, c = video.shape
    needed = 4 * -(-t // every) * c * size * size
    return {"copies": 1, "new_storages": 1, "bytes_allocated": needed, "peak_live_bytes": needed, "syncs": 0}


def must_be_new_and_contiguous(reports):
    for report in reports:
        if report.error is None and report.counts["new_storages"] == 0:
            return "values are right, but torch made no storage for them: whose memory is it?"
        if report.error is None and not report.raw["geometry"]["contiguous"]:
            stride = tuple(report.raw["geometry"]["stride"])
            return f"values are right, in one copy, but the result is not contiguous: its stride is {stride}"


seeded = torch.Generator().manual_seed(1)
rgba = torch.randint(0, 256, (9, 20, 24, 4), dtype=torch.uint8, generator=seeded)
planes = torch.randint(0, 256, (5, 3, 20, 24), dtype=torch.uint8, generator=seeded)
check.function(
    "clip",
    [
        check.case(rgba[..., :3], 4, 2, 3, 16),
        check.case(rgba[1::2, 4:, :, 1:2], 1, 0, 8, 16),
        check.case(planes.permute(0, 2, 3, 1), 2, 1, 1, 19),
        check.case(rgba[:, :, ::2], 10, 0, 0, 12),
        check.case(rgba, 1, 0, 9, 16, raises=ValueError),
        check.case(rgba, 2, 4, 8, 16),
    ],
    expected_clip,
    budget=clip_limits,
    verify=must_be_new_and_contiguous,
)
### END HIDDEN TESTS

# %% [markdown]
# ## On the real GPU
#
# A GPU fetches memory in segments of 32 bytes, and the 32 threads of a warp ask together: neighbours are
# served by a few fetches, numbers far apart by one each (NVIDIA, *CUDA C++ Best Practices Guide*,
# "Coalesced Access to Global Memory"). Where this machine has a CUDA GPU, the next cell times the sum of as
# many numbers at growing strides; compare the last two columns.


# %% experiment
def strided_sums(device: torch.device):
    many = 2**22
    cells = torch.ones(many * 32, device=device)
    rows = []
    for step in (1, 2, 4, 8, 16, 32):
        walk = cells[::step][:many]
        rows.append((step, many * 4 * min(step, 8), bench(torch.sum, walk).cell))
    return lesson.table(
        rows,
        ["stride", "bytes brought in", "sum() takes"],
        evidence="live (GPU)",
        caption="bytes are arithmetic: segments of 32 bytes, 8 numbers",
    )


lesson.on_gpu(strided_sums, recording="01_strided_sums")

# %% [markdown]
# A copy costs the same kind of time everywhere: bytes divided by bandwidth. Here is **your own** `clip`
# beside the one with four copies, on the simulated H100, for a batch of the size that one would really
# load. The simulator charges each operator a launch, and its bytes read and written; it does not model how
# well strides use the segments, so on real hardware the gap depends on the layout too.

# %% experiment
gpu = simulate("H100")
rows, spent = [], {}
with gpu:
    batch = torch.empty(64, 360, 640, 3, dtype=torch.uint8, device=gpu.device)
    for name, load in {"four copies": clip_in_four_copies, "your clip": clip}.items():
        try:
            load(batch, 2, 68, 208, 224)  # warm-up
            gpu.synchronize()
            launched, began = len(gpu.kernels), gpu.clock()
            load(batch, 2, 68, 208, 224)
            gpu.synchronize()
        except NotImplementedError:
            print("write exercise 1.5 first, then run this cell again")
            continue
        spent[name] = gpu.clock() - began
        kernels = gpu.kernels[launched:]
        rows.append(
            (name, len(kernels), sum(kernel.bytes for kernel in kernels), f"{spent[name] * 1e6:.0f} µs")
        )
lesson.table(rows, ["loader", "kernels", "bytes read and written", "time of a batch"], evidence=gpu.evidence)

# %% [markdown]
# ## Sources on trial

# %% experiment
advanced = {
    code: c
    for code, c in reads.items()
    if "[[" in code or "[1]" in code or code in ("x[i]", "x[mask]", "x[k]", "x[True]")
}
copied = [code for code, c in advanced.items() if c.new_storages]
kept = [code for code in advanced if code not in copied]
shared = [name for name, (how, _, _) in found.items() if how == "shared"]
refused = [name for name, (how, _, _) in found.items() if how == "raises"]
failed = [code for code, how in without.items() if how.startswith("raises")]


def listed(codes: list[str]) -> str:
    return ", ".join(f"`{code}`" for code in codes)


two_levels = (
    f"{len(views)} tensors over {storages} storage, {made_views.bytes_allocated} bytes allocated; "
    f"a write through one of them showed in {sum(n > 0 for n in written_through.values())}"
)
slow = (
    f"{len(hidden)} of {N} operators made an extra copy; "
    f"numbers 16 cells apart touch {lines[16] // lines[1]} times the memory lines"
)
through_numpy = (
    f"through NumPy {len(shared)} of {len(found)} parts of a frame were shared, {len(refused)} refused; "
    f"without it {len(failed)} of {len(without)} raised; one took {Watched.handed:,} numbers one by one"
)
lesson.verdicts(
    [
        {
            "id": "01-two-levels",
            "claim": "tensor and storage are two levels: a tensor reads its storage by shape, stride and offset",
            "source": "book-notes",
            "measured": two_levels,
            "verdict": "confirmed" if storages == 1 and made_views.bytes_allocated == 0 else "refuted",
            "experiment": "Round 1",
        },
        {
            "id": "01-noncontiguous-raises",
            "claim": "many algorithms assume contiguous storage; a non-contiguous tensor may raise an error",
            "source": "book-notes",
            "measured": f"{len(raised)} of {N} operators raised: {listed(raised)}",
            "verdict": "holds when the operator may not copy: `view` in all its forms"
            if raised and all(".view(" in code for code in raised)
            else "refuted",
            "experiment": "Round 5",
        },
        {
            "id": "01-noncontiguous-wrong",
            "claim": "… or even give wrong results",
            "source": "book-notes",
            "measured": f"{len(other)} of {N} gave other numbers: {listed(other)}",
            "verdict": "holds when code addresses the storage instead of the tensor"
            if other and all("as_strided" in code for code in other)
            else "refuted",
            "experiment": "Round 5",
        },
        {
            "id": "01-noncontiguous-slow",
            "claim": "a non-contiguous tensor may be read in a bad order and lower performance",
            "source": "book-notes",
            "measured": slow,
            "verdict": "holds when the kernel wants rows, or the numbers lie far apart"
            if hidden
            else "refuted",
            "experiment": "Round 5",
        },
        {
            "id": "01-advanced-index",
            "claim": "reading through advanced indexing (boolean or integer tensors) makes new storage",
            "source": "book-notes",
            "measured": f"{len(copied)} of {len(advanced)} kinds of index did; not: {listed(kept)}",
            "verdict": "holds when the index is not an integer tensor without dimensions: that one is a view"
            if kept == ["x[k]"]
            else "confirmed",
            "experiment": "Round 4",
        },
        {
            "id": "01-pandas-numpy",
            "claim": "pandas objects should be converted to a NumPy array first",
            "source": "book-notes",
            "measured": through_numpy,
            "verdict": "confirmed" if shared and len(failed) > 1 else "refuted",
            "experiment": "Round 6",
        },
    ],
    evidence="live (CPU)",
)

# %% [markdown]
# ## Recap
#
# - What can be said with shape, stride and offset is a view: slices, `t`, `permute`, `expand`, `unfold`,
#   `diagonal`. *Until* a stride would be negative: `flip` copies.
# - Splitting a dimension is free; merging neighbours is free where `stride[i] == size[i+1] * stride[i+1]`.
#   *Until* you need a promise: `reshape`, `contiguous`, `float` and `to` give what they can, view or copy.
# - Lists, arrays and tensors as an index copy when read. *Except* an integer tensor of no dimensions: a
#   view, and on a GPU a wait.
# - One bracket on the left of `=` writes in place. *Not* after a first bracket that was advanced: that
#   write is lost.
# - Strides travel through elementwise operators. *Until* a merge, a `contiguous()`, or a kernel that wants
#   rows and copies for itself.
# - PyTorch's operators are right on any strides. *Not* code that reads the storage itself: `as_strided`,
#   `data_ptr()`, your own kernel.
# - `from_numpy(column.to_numpy())` costs nothing. *Except* nullable columns with gaps and mixed dtypes (a
#   copy), text and dates (an error).
#
# **Take this to your own code**
#
# 1. Put `count(…)` around the data path of one step. Is `copies` what you would say by hand?
# 2. Look down `allocations`: does any operator allocate more than its result needs?
# 3. Describe first (slices, `permute`), move once, at the end, into the dtype and layout that is wanted.
# 4. Write `view` where you believe that nothing is copied.
# 5. Where a small tensor outlives a large one, `clone()` it.
# 6. Before an in-place operator, ask who else walks this storage.
#
# **Read on.** PyTorch documentation, *Tensor Views*, and the merging rule in full under
# `torch.Tensor.view`. NumPy user guide, *Copies and views*. Edward Z. Yang, *PyTorch internals*: strides
# seen from inside. Next, **lesson 02**: what one operator call costs.
