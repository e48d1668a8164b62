# %% [markdown]
# # 01 · Storage and stride
#
# ## What does this line of tensor code really do to memory?
#
# `x.t()` writes down a **new way to walk** numbers that are already there. `x.t().contiguous()` **moves**
# them all, so that each element lies next to the one before (such a tensor is called **contiguous**; round 2
# makes it exact). Both print the same numbers, and nothing on the screen says which of the two a line of
# code does. When you can tell, you know where a program's memory goes, and which line is free in a hot loop.
#
# **Time:** 75–90 min, of which about 50 are for the exercises; they can wait for another day. **You need:**
# to have used tensors. No GPU.
#
# **You will be able to**
#
# - say of a line whether it is a view or a copy, and of how many bytes;
# - build sliding windows and diagonal blocks that cost no memory;
# - find the copies that a function makes, and cut them down to the one that it needs.
#
# **Claims on trial,** all from pyemma's notes on the book *PyTorch performance and memory handbook*: tensor and storage
# are two levels · non-contiguous tensors may raise errors · or give wrong results · or read memory badly · reading
# through advanced indexing makes new storage · pandas objects should be converted to NumPy first.
#
# **How to work.** In each round, **predict** (replace the `...`), run the measurement, and only then read
# why. A prediction left as `...` is simply not marked.

# %% setup
import torch

from helpers import bench, count, lesson, plots, simulate, widgets

lesson.start("01_storage_and_stride", evidence=["live (CPU)", "arithmetic", "simulated (H100)"])

# %% experiment
lesson.table(
    [
        (f"{m.nbytes:,}", bench(m.t, min_run_time=0.1).cell, bench(lambda m: m.t().contiguous(), m).cell)
        for m in (torch.ones(250, 250), torch.ones(2000, 2000))
    ],
    ["bytes in m", "m.t()", "m.t().contiguous()"],
    evidence="live (CPU)",
)

# %% [markdown]
# In which column does the time follow the size? That is what this lesson is about.
#
# Every table and figure says where its numbers come from: *live (CPU)* was measured on this machine just
# now, *arithmetic* was computed on paper, *simulated (H100)* comes from a model of a GPU. A **≈** stands
# before each number that was read off a clock and differs from run to run.
#
# ## Round 1 · Many tensors, one storage
#
# A **storage** is a row of cells. A **tensor** has a dtype and three small things that say how to walk a
# storage: a `shape`, a `stride` (for each dimension: how many cells to step when its index grows by one) and
# an `offset` (the cell where the walk begins). Element `[i, j]` lies in cell
#
# $$\text{offset} + i \cdot \text{stride}_0 + j \cdot \text{stride}_1$$
#
# `x` below has 4 rows of 6, stored row by row, so its stride is `(6, 1)` and its offset 0. What are
# `stride` and `offset` of the others? Choose from `LAYOUTS`.

# %% experiment
x = torch.arange(24.0).reshape(4, 6)
LAYOUTS = [
    ((1, 6), 0),
    ((6, 1), 0),
    ((1,), 1),
    ((6,), 1),
    ((3, 2), 6),
    ((6, 2), 6),
    ((3, 1), 12),
    ((6, 1), 12),
]

prediction_1 = {  # (stride, offset)
    "x.t()": ...,
    "x[:, 1]": ...,
    "x[1:, ::2]": ...,
    "x[2].view(2, 3)": ...,
}

# %% experiment
tensors = {code: eval(code) for code in prediction_1}
layouts_found = {code: (made.stride(), made.storage_offset()) for code, made in tensors.items()}
lesson.compare_predictions(
    prediction_1, layouts_found, evidence="live (CPU)", what="(stride, offset)", choices=LAYOUTS
).show()
plots.storage_path(list(tensors), base=x, title="One storage of 24 cells, four ways to walk it")

# %% [markdown]
# Follow the arrows: each strip is one tensor, its elements in the order of its indices, the last index
# fastest. Transposing swapped two strides and moved nothing. A column starts one cell in and steps by a
# row. Slicing with a step multiplies a stride; slicing off a beginning moves the offset. Each new tensor is
# a **view**: a few integers, whatever the size of the storage. (The words after "flat" say whether *one*
# step length describes the whole walk. Remember the third strip for round 2.)
#
# Is that really all? `count(fn)` runs a function and counts what reached PyTorch's dispatcher, the
# switchboard through which every operator call passes. (It also grades your exercises.) Below, it counts the
# four lines above, and for comparison `x.flip(0)`, which reverses the rows. Then one column of `y` changes
# its sign. In how many of the five tensors will that show?

# %% experiment
made_views, flipped = count(lambda: [eval(code) for code in prediction_1]), count(x.flip, 0)
lesson.table(
    [
        (counter, getattr(made_views, counter), getattr(flipped, counter))
        for counter in ("operators", "views", "copies", "new_storages", "bytes_allocated")
    ],
    ["counter", "the four lines", "x.flip(0)"],
    evidence="live (CPU)",
).show()

y = torch.arange(24.0).reshape(4, 6)
views = {
    "y": y,
    "y.t()": y.t(),
    "y[:, 1]": y[:, 1],
    "y[1:, ::2]": y[1:, ::2],
    "y[2].view(2, 3)": y[2].view(2, 3),
}
lesson.keep(view_operators=made_views.operators)
before = {name: view.clone() for name, view in views.items()}
y[:, 1].mul_(-1)
written_through = {name: int((view != before[name]).sum()) for name, view in views.items()}
storages = len({view.untyped_storage().data_ptr() for view in views.values()})
print(f"{len(views)} tensors, {storages} storage; elements changed by y[:, 1].mul_(-1):\n{written_through}")

# %% [markdown]
# Four lines take {{view_operators}} operators, because two of the lines take two. All are views. `flip` is none:
# torch has no negative strides, so it has to copy, where NumPy's `a[::-1]` is a view. And `y[1:, ::2]` did not
# change: it walks columns 0, 2 and 4, so it shares the storage with column 1, but no *cell*.
#
# **Move it yourself.** The buttons set the sliders to a layout that has a name; then move one slider at a
# time. (1) Which slider turns the row-major matrix into a broadcast? (2) What happens when a stride is −1?
# (3) Can you make a walk that visits some cells twice, without a stride of 0?
#
# <details><summary>Answers</summary>(1) The stride of the rows: at 0, every row walks the same cells.
# (2) torch refuses: a stride is never negative. (3) Yes, wherever a row begins before the last one ends: 3
# rows and 12 columns with strides 6 and 1 visit the cells 6 to 17 twice.</details>

# %% experiment
widgets.stride_explorer()

# %% [markdown]
# **What a view keeps alive.** A storage lives as long as any tensor that walks it. So a small result can hold
# a large storage in memory, and the cure is, for once, a copy. The counter `live_bytes` says how many of the
# bytes that a function allocated are still there when it has returned.


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
# > *Where it stops:* "can" is not "will". An operator may copy although a view was possible, as you will see
# > in round 4.
#
# You are ready for **Exercise 1.1**.
#
# ## Round 2 · When does `reshape` copy?
#
# `reshape` is the most common line that is free or expensive depending on what came before it. Same `x`, 4
# × 6. For each line: is the result a **view** of x's storage, or a **copy**?

# %% experiment
prediction_2 = {  # "view" or "copy"
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


reshaped = {code: count(eval, code, globals()) for code in prediction_2}
lesson.table(
    [(code, view_or_copy(c), c.bytes_allocated, says(code)) for code, c in reshaped.items()],
    ["expression", "reshape gives", "bytes", ".view(…) instead"],
    evidence="live (CPU)",
).show()
lesson.compare_predictions(
    prediction_2,
    {code: view_or_copy(c) for code, c in reshaped.items()},
    evidence="live (CPU)",
    choices=("view", "copy"),
).show()
plots.storage_path(
    [code for code in prediction_2 if "t()" in code or "1:4" in code],
    base=x,
    title="reshape: where one stride a dimension is enough, and where not",
)

# %% [markdown]
# Each strip is the walk in the order of the *result*. Cutting one dimension into two is always possible: the
# inner piece keeps the stride, the outer one takes a multiple. **Merging** two neighbours is the hard part.
# The step from the end of one row to the start of the next must be the same as every other step:
#
# $$\text{stride}_i = \text{size}_{i+1} \cdot \text{stride}_{i+1}$$
#
# - `x[:, 1:4]`: stride (6, 1), size 3, and 6 ≠ 3 · 1. Within a row the walk steps by 1, at its end by 4. No
#   single stride does both, so the numbers are copied into an order that has one.
# - `x[1:, ::2]`, the third strip of round 1: stride (6, 2), size 3, and 6 = 3 · 2, so it merges.
# - `x[:, :1]`: rows of 1. Nobody ever steps along a dimension of size 1, so its stride does not count.
# - `x.t().reshape(12, 2)` in two steps. Cut the 4 of (6, 4) into 2 and 2: shape (6, 2, 2), stride (1, 12, 6),
#   still a view. Then 6 and 2 have to merge, which needs 1 = 2 · 12. It is not, so the line copies.
#
# That is a claim like any other, so the slices of `x` and of `x.t()`, in steps of 1 and 2, shall judge it.


# %% experiment
def slices(matrix: torch.Tensor):
    """All pieces matrix[a:b, c:d:step] of at least 2 rows and 2 columns."""
    rows, columns = matrix.shape
    for a in range(rows):
        for b in range(a + 2, rows + 1):
            for c in range(columns):
                for d in range(c + 2, columns + 1):
                    yield from (s for step in (1, 2) if (s := matrix[a:b, c:d:step]).size(1) > 1)


def rule_is_right(s: torch.Tensor) -> bool:
    merges = s.stride(0) == s.size(1) * s.stride(1)
    return merges == (view_or_copy(count(s.reshape, -1)) == "view")


judged = [rule_is_right(s) for matrix in (x, x.t()) for s in slices(matrix)]
assert all(judged)
print(f"{len(judged)} slices: the rule and reshape(-1) agree on {sum(judged)}")

# %% [markdown]
# > **Rule.** Splitting a dimension is free; merging neighbours is free exactly where `stride[i] ==
# > size[i+1] * stride[i+1]`. `view` follows the same rule and raises where `reshape` would copy: in a hot
# > loop write `view`, and a copy that you did not plan becomes an error instead of a slowdown.
# >
# > *Where it stops:* `reshape` promises neither a view nor a copy. Where you need your own storage, say
# > `clone()`; `contiguous()` and `float()` return the very same tensor when there is nothing to do.
#
# **A tensor is contiguous when its last stride is 1 and every pair of neighbouring dimensions merges: then
# the walk visits one cell after the other.** Two exceptions: dimensions of size 1 are passed over, whatever
# their stride, and a tensor without elements is always contiguous. You are ready for **Exercise 1.2**.
#
# ## Round 3 · More elements than memory
#
# A stride may be 0: the index grows and the walk stays where it is. `expand` does that, and so does every
# broadcast. `row` has 6 numbers of 4 bytes. How many **bytes** does each line allocate: 0, 24, 24,000 or 48,000?

# %% experiment
row = torch.arange(6.0)

prediction_3 = {  # 0, 24, 24_000 or 48_000
    "row.expand(1000, 6)": ...,
    "row.repeat(1000, 1)": ...,
    "row.expand(1000, 6).sum(0)": ...,
    "row.expand(1000, 6) + 1": ...,
    "row.expand(1000, 6).reshape(6000)": ...,
    "row.expand(1000, 6).float()": ...,
    "row.expand(1000, 6).double()": ...,
}

# %% experiment
spent = {code: count(eval, code, globals()).bytes_allocated for code in prediction_3}
lesson.compare_predictions(
    prediction_3, spent, evidence="live (CPU)", what="bytes allocated", choices=(0, 24, 24_000, 48_000)
).show()
plots.storage_path(
    {"row.expand(3, 6)": row.expand(3, 6), "row.repeat(3, 1)": row.repeat(3, 1)},
    base=row,
    title="The same 18 elements: 6 cells walked three times, or 18 cells of its own",
)

# %% [markdown]
# `float()` costs nothing, because `row` is float32 already and there is nothing to compute. `double()` has
# to compute, and then it pays for every *element*, not for every cell: 6,000 numbers of 8 bytes.
#
# Reading an expanded tensor is safe and cheap. **Writing** is not, because several elements are one cell.

# %% experiment
stretched = torch.zeros(3, 1).expand(3, 4)
for code in ("stretched.add_(1)", "stretched[0] = 2.0", "stretched[0, 0] = 3.0"):
    try:
        exec(code)
        print(f"{code:<22} went through; it is now {stretched.tolist()}")
    except RuntimeError as error:
        print(f"{code:<22} raises: {str(error).split(': ')[1].split('.')[0]}")

# %% [markdown]
# The first two lines write several elements that are one cell, and torch refuses. The third writes a single
# element, which is allowed, and its neighbours change with it.
#
# **Any walk you like.** `as_strided(shape, stride, offset)` makes a tensor straight from these three. Stride
# and offset count cells of the *storage*; without an offset the walk begins where the tensor began. Steps
# may be smaller than a row, and then the rows overlap. Its one danger: it checks only that the walk ends
# inside the **storage**. It does not know which part of it was yours.

# %% experiment
part = x[2]  # cells 12 to 17 of x's storage
for code in (
    "part.as_strided((3,), (2,))",  # every second number of part
    "part.as_strided((3, 4), (1, 1))",  # three rows that overlap
    "part.as_strided((3,), (2,), 0)",  # from cell 0, which is not part's
    "part.as_strided((5,), (2,))",  # beyond part's end
    "part.as_strided((7,), (2,))",  # beyond the storage's end
):
    try:
        print(f"{code:<34}", eval(code).tolist())
    except RuntimeError as error:
        print(f"{code:<34} raises: …", str(error).split("offset 12, and ")[-1])

# %% [markdown]
# The third and the fourth line read numbers that are not in `part`, without a word.
#
# > **Rule.** `expand` for what is only read, `repeat` or `clone` for what will be written. An operator that
# > returns one number for each element of an expanded input pays for all of them if it has anything to
# > compute; a reduction such as `sum(0)` pays for its small result.
# >
# > *Where it stops:* at what comes after. One `reshape` or `contiguous` on the expanded tensor, and the
# > memory is spent.
#
# You are ready for **Exercise 1.3**.
#
# ## Round 4 · Indexing: to read, and to write
#
# `x[…]` hides two machines. **Basic** indexing (integers, slices, `...`, `None`) is arithmetic on shape,
# stride and offset. **Advanced** indexing (lists, arrays, tensors) collects elements one by one. *Notes on
# the book* says that reading through advanced indexing makes new storage. Does it, for every kind of index?

# %% experiment
pick, one = torch.tensor([0, 2]), torch.tensor(1)  # `one` has no dimensions
mask, yes = torch.tensor([True, False, True, False]), torch.tensor(True)

prediction_4 = {  # "view" or "copy"
    "x[0:3:2]": ...,
    "x[[0, 2]]": ...,
    "x[pick]": ...,
    "x[mask]": ...,
    "x[0:3:2, [1]]": ...,
    "x[one]": ...,
    "x[yes]": ...,
    "x[True]": ...,
    "x[None, ..., 1]": ...,
}

# %% experiment
reads = {code: count(eval, code, globals()) for code in prediction_4}
lesson.compare_predictions(
    prediction_4,
    {code: view_or_copy(c) for code, c in reads.items()},
    evidence="live (CPU)",
    choices=("view", "copy"),
).show()
plots.storage_path(
    ["x[0:3:2]", "x[[0, 2]]"],
    base=x,
    title="The same rows, the same walk: a slice is a stride, a list is a copy",
)

# %% [markdown]
# The same rows, and the slice shows that a stride can describe them. But whether it can depends on the *values* in a
# list, which torch does not look at, so it always copies. There is one exception, and you have just measured it: an
# **integer** tensor with **no dimensions** (`one`) is read out to a Python number first, and then it is basic indexing.
# A bool, as a tensor or not, is no exception: it is a mask. (So is a uint8.)
#
# On a GPU, reading such a number out makes the CPU wait for the GPU: a **sync**. So does a mask that lies there,
# because its number of `True` decides the size of the result. So does a Python list: torch makes a tensor of it and
# copies that to the GPU, and the call waits until the bytes have been read
# ([`internal_new_from_data`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/utils/tensor_new.cpp) copies
# with `non_blocking` false). `count` runs here on the CPU and applies these rules; one column below counts them.
#
# And assignment? `x[index] = value` does not read at all. It calls another operator, one that works in place
# (its name ends in `_`) and writes into x's own storage.


# %% experiment
def assign(code: str) -> tuple[str, int]:
    """Write 0 through the index of `code` into ones: the operator that wrote, how many elements changed."""
    target = torch.ones(4, 6)
    made = count(exec, code + " = 0.0", {**globals(), "x": target})
    return list(made.by_operator)[-1], int((target == 0).sum())


lesson.table(
    [(code, view_or_copy(c), c.bytes_allocated, c.syncs, *assign(code)) for code, c in reads.items()],
    ["index", "read: gives", "read: bytes", "read: would sync on a GPU", "written by", "elements written"],
    evidence="live (CPU)",
    caption="the bytes include the index, where a list or a bool had to become a tensor first; a list counts as a sync",
)

# %% [markdown]
# With two brackets and an assignment, the first bracket reads and the second one writes. Which of these lines
# change `x`? And when an index names the same place twice, how often is 1 added?

# %% experiment
prediction_4b = {
    "x[0:3:2][:, 0] = -1": ...,  # "yes" or "no": does it change x?
    "x[[0, 2]][:, 0] = -1": ...,
    "x[0][[1, 2]] = -1": ...,
    "x[pick] += 1": ...,
    "x[pick].add_(1)": ...,
    "zeros[[0, 0]] += 1; zeros[0]": ...,  # 0, 1 or 2
    "zeros.index_add_(0, twice, ones); zeros[0]": ...,  # 0, 1 or 2; twice is [0, 0]
}


# %% experiment
def changes(code: str) -> str:
    target = torch.arange(24.0).reshape(4, 6)
    exec(code, {"x": target, "pick": pick})
    return "no" if torch.equal(target, torch.arange(24.0).reshape(4, 6)) else "yes"


def adds(code: str) -> int:
    names = {"zeros": torch.zeros(3), "twice": torch.tensor([0, 0]), "ones": torch.ones(2)}
    exec(code, names)
    return int(names["zeros"][0])


lesson.compare_predictions(
    prediction_4b,
    {code: adds(code) if "zeros" in code else changes(code) for code in prediction_4b},
    evidence="live (CPU)",
    what="changes x, or the number",
    choices=("yes", "no", 0, 1, 2),
)

# %% [markdown]
# `x[[0, 2]][:, 0] = -1` fills a temporary copy, which is then thrown away: no error, no warning. `x[pick] += 1` works
# because Python writes the result *back* through the index; `x[pick].add_(1)` has nothing to write back to.
#
# > **Rule.** Reading with integers and slices is a view. Reading with a list, an array, a bool or a tensor
# > is a copy; only an integer tensor without dimensions is exempt. Assigning through any single index writes
# > in place.
# >
# > *Where it stops:* at the second bracket (after an advanced one, you write into a copy); and with `+=`,
# > where an index that names the same row twice adds once, while `index_add_` adds twice.
#
# You are ready for **Exercise 1.4**.
#
# ## Round 5 · Is a non-contiguous tensor dangerous, or slow?
#
# *Notes on the book* says that many algorithms assume contiguous storage, and that a non-contiguous tensor
# may read memory badly, raise an error, or even give wrong results. So we take operators of everyday work,
# picked by hand, run each on `x.t()` and on a contiguous copy of it, and compare the results and the number
# of copies. In which families will an operator copy **more** for `x.t()`?

# %% experiment
OPERATORS = {
    "elementwise": "x + 1 | x * x | x.exp() | x.float() | F.gelu(x) | torch.where(x > 0.5, x, -x)",
    "reductions": "x.sum(0) | x.mean(1) | x.std(0) | x.amax(1) | x.argmax(0) | x.logsumexp(1) | x.cumsum(0)",
    "order": "x.sort(1).values | x.topk(3).values | x.unique() | x.quantile(0.5)",
    "matrices": "x @ w | x.t() @ x | F.linear(x, w.t()) | torch.linalg.qr(x).R | torch.cdist(x, x + 1)",
    "sequences": "F.softmax(x, 1) | F.layer_norm(x, (48,)) | F.cross_entropy(x, y) | F.embedding(y, x)",
    "images": "F.group_norm(x, 4) | F.conv1d(x[None], conv) | F.max_pool1d(x[None], 2) | F.pad(x, (1, 1))",
    "moving": "x.clone() | x.flip(0) | x.roll(1, 0) | torch.cat([x, x]) | x.gather(1, y[:, None]) | x[x > 0.5]",
    "shape": "x.reshape(-1) | x.flatten() | x.unflatten(1, (6, 8)) | x.unfold(0, 4, 4)",
    "shape only": "x.view(-1) | x.view(torch.complex128) | x.as_strided((6,), (1,))",
}

prediction_5 = {  # "yes" or "no": does some operator of the family make an extra copy for x.t()?
    "elementwise": ...,
    "reductions": ...,
    "order": ...,
    "matrices": ...,
    "sequences": ...,
    "images": ...,
    "moving": ...,
    "shape": ...,
    "shape only": ...,
}

# %% experiment
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

g = torch.Generator().manual_seed(0)
stored = torch.rand(48, 64, generator=g, dtype=torch.float64)
NAMES = {"torch": torch, "F": F, "y": torch.randint(0, 48, (64,), generator=g)}
NAMES |= {"w": torch.rand(48, 16, generator=g).double(), "conv": torch.rand(2, 64, 3, generator=g).double()}


def run(code: str, x: torch.Tensor):
    """The result, and the copies made; the profiler also sees those inside an operator, count does not."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        result = eval(code, NAMES | {"x": x})
    return result, sum(event.name == "aten::copy_" for event in seen.events())


def outcome_of(code: str) -> str:
    want, copies = run(code, stored.t().contiguous())
    try:
        got, more = run(code, stored.t())
    except RuntimeError:
        return "raised"
    if got.shape != want.shape or not torch.allclose(got, want):
        return "other numbers"
    return "same, extra copy" if more > copies else "same"


outcome = {
    family: {code: outcome_of(code) for code in line.split(" | ")} for family, line in OPERATORS.items()
}
KINDS = ("same", "same, extra copy", "raised", "other numbers")
lesson.table(
    [
        (family, len(found), *(list(found.values()).count(kind) for kind in KINDS))
        for family, found in outcome.items()
    ],
    ["operators", "tried", *KINDS],
    evidence="live (CPU)",
).show()
by_kind = {k: [c for found in outcome.values() for c, kind in found.items() if kind == k] for k in KINDS}
print("\n".join(f"{kind + ':':<18}" + "  ".join(by_kind[kind]) for kind in KINDS[1:]))

ten = "[F.softmax({}, 1) for _ in range(10)]"
_, each_time = run(ten.format("x"), stored.t())
_, before_the_loop = run("(c := x.contiguous(), [F.softmax(y, 1) for y in [c] * 10])", stored.t())
print(
    f"\nsoftmax ten times: {each_time} copies; contiguous() once, then softmax ten times: {before_the_loop}"
)
lesson.compare_predictions(
    prediction_5,
    {family: "yes" if "same, extra copy" in found.values() else "no" for family, found in outcome.items()},
    evidence="live (CPU)",
    what="extra copy",
    choices=("yes", "no"),
)
lesson.keep(softmax_copies=each_time, copies_before=before_the_loop)

# %% [markdown]
# Read the three lists. What **raised** only reinterprets a storage and found no stride to do it with. What gave **other
# numbers** is `as_strided`, which is defined on the *storage* and not on the tensor. So are `data_ptr()` handed to C
# code, and a kernel of your own that assumes that rows lie side by side. That is where the "wrong results" live: in
# code that ignores strides, and in no other operator tried here.
#
# The **extra copies** are the usual price. A kernel that wants its rows side by side makes a contiguous copy for
# itself, each time it is called: ten softmaxes make {{softmax_copies}} copies. One `contiguous()` before them leaves
# {{copies_before}} for all ten.
#
# **And the reading itself?** Most CPUs fetch memory in lines of 64 bytes, which is 16 numbers of 4 bytes.
# Below, equally many numbers are summed: neighbours first, then numbers 2, 4, … cells apart. Before you run
# it: how many lines does each walk touch, compared with the first?

# %% experiment
wanted = 2**19
cells = torch.ones(wanted * 32)
lines_touched = {step: wanted * min(step, 16) // 16 for step in (1, 2, 4, 8, 16, 32)}
lesson.table(
    [
        (
            *(step, cells[::step][:wanted].is_contiguous(), lines, lines * 64),
            bench(cells[::step][:wanted].sum, min_run_time=0.3, num_threads=1).cell,
        )
        for step, lines in lines_touched.items()
    ],
    ["stride", "contiguous", "64-byte lines touched", "bytes brought in", "sum() takes"],
    evidence="live (CPU) and arithmetic",
    caption=f"lines and bytes are arithmetic; {wanted * 4:,} bytes of numbers are wanted each time",
)

# %% [markdown]
# The clock sees several things at once. From stride 1 to 2 the lines double, but the tensor also stops being
# contiguous, and the sum likely loses a faster kernel. From 2 to 16 it is never contiguous and the lines
# grow eightfold: compare *these two* rows to see what lines cost (more or less than eight times as much,
# because lines that are still in a cache cost less). From 16 to 32 the lines do not grow at all. If the time
# still does, lines are not the whole story, and this table cannot tell you the rest.
#
# ### Not contiguous on purpose: `channels_last`
#
# Convolutions often run better when the channels of one pixel lie next to each other.
# `memory_format=channels_last` keeps the shape `(n, c, h, w)`, every index and every result, and stores the
# numbers in the order `n, h, w, c`. The layout travels through a network as strides. The figure shows three
# channels (a, b, c) of 2 × 2 pixels (0 to 3). Which of the lines keep the layout, and which pay for a copy?

# %% experiment
images = torch.arange(12.0).reshape(1, 3, 2, 2)
last = images.to(memory_format=torch.channels_last)

prediction_5b = {  # "view", "new, channels_last", "new, contiguous", "raises"
    "last.relu()": ...,
    "torch.cat([last, last], 1)": ...,
    "last.permute(0, 2, 3, 1).view(4, 3)": ...,
    "last.view(1, 12)": ...,
    "last.flatten(1)": ...,
    "last.contiguous()": ...,
}

plots.storage_path(
    {"images": images, "last": last},
    title="The same (1, 3, 2, 2) tensor: channel by channel, and pixel by pixel",
    labels=lambda n, c, h, w: f"{'abc'[c]}{2 * h + w}",
    colour_by=1,
)


# %% experiment
def layout(code: str) -> str:
    try:
        c = count(eval, code, globals())
    except RuntimeError:
        return "raises"
    if c.new_storages == 0:
        return "view"
    kept = c.result.dim() == 4 and c.result.is_contiguous(memory_format=torch.channels_last)
    return "new, channels_last" if kept else "new, contiguous"


assert (x[:, ::2] + 1).stride() == (3, 1) != x[:, ::2].stride()  # the order is kept, the gaps are closed


lesson.compare_predictions(
    prediction_5b,
    {code: layout(code) for code in prediction_5b},
    evidence="live (CPU)",
    what="result",
    choices=("view", "new, channels_last", "new, contiguous", "raises"),
)

# %% [markdown]
# `flatten` before the last linear layer is the classic: free on a contiguous tensor, a silent copy on a
# channels_last one. And `.contiguous()` undoes the format, because without an argument it means row by row.
#
# > **Rule.** Elementwise operators keep the order of strides and close gaps; merging dimensions and `contiguous()`
# > change them. If you want another layout, convert once, where the data enters your program.
# >
# > *Where it stops:* whether a layout is *faster* depends on the kernel, the shape and the machine. Lesson
# > 12 measures that for channels_last.
#
# You are ready for **Exercise 1.5**.
#
# ## Round 6 · From pandas
#
# A NumPy array is the same idea, so `torch.from_numpy` makes a tensor over the array's own memory. *Notes on
# the book* advises to convert a pandas object to NumPy first. The table takes parts of frames down both
# roads. Before you run it: which parts will only NumPy save? And when a tensor *shares* a column's memory
# and is multiplied by 10 in place, what becomes of the column?

# %% experiment
import warnings

import numpy as np
import pandas as pd

warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
column = pd.Series(np.arange(5, dtype=np.float32))
parts = {
    "float32 column": column,
    "the same after a filter": column[column > 1],
    "Int64 (nullable), full": pd.Series([1, 2, 3], dtype="Int64"),
    "Int64 (nullable), with a gap": pd.Series([1, None, 3], dtype="Int64"),
    "frame of two float32 columns": pd.DataFrame({"a": column, "b": column * 2}),
    "frame of float32 and int64": pd.DataFrame({"a": column, "k": np.arange(5)}),
    "text column": pd.Series(["a", "b"]),
    "date column": pd.Series(pd.date_range("2024-01-01", periods=5)),
}


def came(part, make) -> str:
    """How the numbers of `part` came into torch, or what was raised."""
    try:
        tensor = make(part)
    except Exception as error:
        return f"raises {type(error).__name__}"
    # to_numpy gives the frame's own memory, if it can: then a second call gives the same address again
    how = "shared" if tensor.data_ptr() == part.to_numpy().ctypes.data else "copied"
    return f"{how}: {str(tensor.dtype)[6:]}, stride {tensor.stride()}"


travelled = {
    name: (came(part, torch.tensor), came(part, lambda p: torch.from_numpy(p.to_numpy())))
    for name, part in parts.items()
}
lesson.table(
    [(name, *found) for name, found in travelled.items()],
    ["part of a frame", "torch.tensor(part)", "torch.from_numpy(part.to_numpy())"],
    evidence="live (CPU)",
).show()
mine = pd.Series(np.arange(5, dtype=np.float32))
torch.from_numpy(mine.to_numpy()).mul_(10)
print("a column 0, 1, 2, 3, 4, after tensor.mul_(10) on the tensor that shares it:", mine.tolist())

# %% [markdown]
# `torch.tensor(column)` asks for the rows labelled 0, 1, 2, …; a filter leaves gaps in the labels, and then it
# raises. A nullable `Int64` with a gap has to become `float64`, and columns of different dtypes one dtype:
# copies. Two float columns come in as a *transposed* tensor, because pandas stored them column by column:
# see the stride. And where memory is shared, the in-place operator **changed the frame**. pandas may mark
# such memory as read-only, but a tensor knows no such mark: `from_numpy` warns once (silenced above).
#
# > **Rule.** `torch.from_numpy(column.to_numpy())` for columns of numbers; `to_numpy(dtype=…, na_value=…)`
# > for the nullable ones with gaps.
# >
# > *Where it stops:* text and dates have no torch dtype. And sharing works in both directions: before an
# > in-place operator on a tensor that came from a frame, `clone()` it.

# %% [markdown]
# ## Exercises
#
# Each has a visible test, which says what it measured, and further tests that run when the lesson is
# graded. The limits are arithmetic that you can redo; no clock is ever read.
#
# **Exercise 1.1 — from index to cell, and back** (★★, 12 min)
#
# Write the formula of round 1, and its inverse. With these two you could write `print(x)` for any strided tensor.
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
    Where several elements share the cell (a stride of 0), the first one. Sizes may be as large as 10**30, so
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
from helpers.exercises.storage_and_stride import check_flat_index, check_unflatten

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
from helpers.classroom.variant import variant
from helpers.exercises.storage_and_stride import check_flat_index, check_unflatten, random_views

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
    },
    views=random_views(v.seed(1), many=40),
)
### END HIDDEN TESTS

# %% [markdown]
# **Exercise 1.2 — contiguous, or not?** (★★, 6 min)
#
# From shape and stride alone, as PyTorch itself decides it. The visible test tries a few layouts; the hidden
# one holds your function against `Tensor.is_contiguous()` on thousands of random ones.
#
# <details><summary>Hint 1</summary>Go through the dimensions from the last to the first. Which stride must
# the last one have? Then which must the one before it have?</details>
# <details><summary>Hint 2</summary>Two special cases: along a dimension of size 1 nobody ever steps, so its
# stride may be anything. And a tensor with no elements has nothing that could be out of order.</details>
# <details><summary>The idea</summary>Keep the stride that is wanted, beginning with 1. For each dimension
# from the right whose size is not 1: compare, then multiply what is wanted by the size. That is the merging
# rule of round 2, applied to each pair of neighbours in turn, plus a last stride of 1.</details>


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
from helpers.exercises.storage_and_stride import check_is_contiguous

check_is_contiguous(((4, 6), (6, 1)), ((6, 4), (1, 6)), ((4, 3), (6, 1)), ((3,), (2,)), ((), ()))
check_is_contiguous(((3, 4), (0, 1)), ((2, 3, 4), (12, 4, 1)), ((2, 3, 4), (12, 1, 3)))
ones = (((4, 1), (1, 7)), ((1, 4), (99, 1)), ((1, 1), (5, 0)), ((1, 3, 2, 2), (12, 1, 6, 3)))
check_is_contiguous(*ones, ((2, 1, 3), (3, 99, 1)), note="this layout has a dimension of size 1")
check_is_contiguous(((0, 3), (1, 9)), ((2, 0), (5, 5)), note="this tensor has no elements")

# %% hidden="is_contiguous" points=2
### BEGIN HIDDEN TESTS
from helpers.classroom.variant import variant
from helpers.exercises.storage_and_stride import check_is_contiguous, random_layouts

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
# **Exercise 1.3 — the same numbers, a different walk** (★★, 12 min)
#
# Sliding windows (the heart of a convolution, of a moving average, of a language model's training samples)
# and the blocks on a matrix's diagonal. Neither needs a byte. `as_strided` (round 3) can do both.
#
# <details><summary>Hint 1</summary>Write down the cells of the first two rows of the result. How far is it
# from an element to its right neighbour, and how far from the first row to the second?</details>
# <details><summary>Hint 2</summary><code>as_strided</code> counts in cells of the <i>storage</i>. The input
# may be a view itself: its own stride is your unit, and its offset is where you begin.</details>
# <details><summary>The idea</summary>A window starts <code>step</code> elements after the last one: in
# cells that is <code>step * x.stride(0)</code>. The next diagonal block starts <code>size</code> rows down
# <i>and</i> <code>size</code> columns to the right: both strides are paid at once. (torch has the first
# function ready-made: <code>x.unfold(0, size, step)</code>. That is a right answer too; can you say which
# shape and stride it returns?)</details>


# %% exercise="windows"
def windows(x: torch.Tensor, size: int, step: int = 1) -> torch.Tensor:
    """All windows of a 1-D tensor, one a row: row i is x[i * step : i * step + size].

    x: (n,), any dtype, stride and offset. Returns (1 + (n - size) // step, size), a view of x: 0 bytes allocated.
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

    x: (n, n), any dtype, strides and offset. Returns (n // size, size, size), a view of x: 0 bytes allocated.
    n, size >= 1. ValueError if size does not divide n.
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
from helpers.exercises.storage_and_stride import check_diagonal_blocks, check_windows

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
from helpers.classroom.variant import variant
from helpers.exercises.storage_and_stride import check_diagonal_blocks, check_windows

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
# **Exercise 1.4 — ten lines** (★★, 6 min)
#
# `x` is `torch.arange(24.0).reshape(4, 6)`, float32 and contiguous. Replace each `None` by `"view"` (the
# result lies in x's storage) or `"copy"` (it has a new one), and delete the `raise` line. Decide all ten
# first; then check yourself with `count`. The visible test looks at four, the hidden one at the other six.
#
# <details><summary>Hint 1</summary>For each line ask: is there a shape, a stride and an offset over x's 24
# cells that say it?</details>
# <details><summary>Hint 2</summary>Three questions, for each call in a line: does it have anything to do
# (round 3)? Does it merge dimensions that cannot merge (round 2)? Would it need a negative stride (round
# 1)?</details>
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
from helpers.exercises.storage_and_stride import check_answers

check_answers("x.contiguous()", "x.t().contiguous()", "x[[1, 2]]", "x[1:3].flatten()")

# %% hidden="view_or_copy" points=2
### BEGIN HIDDEN TESTS
from helpers.exercises.storage_and_stride import check_answers

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
# **Exercise 1.5 — four copies, or one** (★★★, 15 min)
#
# The next cell holds a loader that gives the right result and looks like code you have seen: some frames of
# a video, cropped, in the layout that a network wants. Each of its four lines copies every number that it is
# given. Run it, then write `clip` below it, which gives the same result in the one copy that it needs.
#
# <details><summary>Hint 1</summary>Which of the four steps could be views, if they came in another order?
# Only one of them cannot.</details>
# <details><summary>Hint 2</summary>An elementwise operator, a change of dtype too, keeps the order of its input's
# strides (round 5). So the result of the one copy may have the wrong layout, and
# <code>contiguous()</code> after it would be a second one. Can you say beforehand which layout you
# want?</details>
# <details><summary>The idea</summary>First describe what is wanted, in views: a slice for the frames,
# slices for the crop, <code>permute</code>. Then move the numbers once, into memory that has the wanted
# dtype and layout, on the video's own device: either <code>view.to(dtype, memory_format=…)</code>, which
# stays on that device, or <code>torch.empty(shape, dtype=…, device=video.device)</code> and then
# <code>copy_</code>.</details>


# %% experiment
def clip_in_four_copies(video: torch.Tensor, every: int, top: int, left: int, size: int) -> torch.Tensor:
    frames = video[torch.arange(0, len(video), every, device=video.device)]  # every n-th frame
    frames = frames.float()  # uint8 → float32
    frames = frames.permute(0, 3, 1, 2).contiguous()  # (t, h, w, c) → (t, c, h, w)
    return frames[:, :, top : top + size, left : left + size].contiguous()  # the crop


video = torch.randint(0, 256, (16, 48, 64, 3), dtype=torch.uint8)
four = count(clip_in_four_copies, video, every=2, top=8, left=16, size=32)
came_from = {
    "aten.arange": "the list of frame numbers",
    "aten.index": "video[…], an advanced index",
    "aten._to_copy": ".float()",
    "aten.clone": ".contiguous()",
}
lesson.table(
    [(operator, came_from.get(operator, ""), size) for operator, size in four.allocations],
    ["new storage made by", "which comes from", "bytes"],
    evidence="live (CPU)",
    caption=f"{four.copies} copies, {four.bytes_allocated:,} bytes; the result has {four.result.nbytes:,}",
)


# %% exercise="one_copy"
def clip(video: torch.Tensor, every: int, top: int, left: int, size: int) -> torch.Tensor:
    """Frames 0, every, 2 * every, … of a video; of each, size rows from `top` and size columns from `left`.

    video: (t, h, w, c) uint8, nothing empty, any strides (a still picture's may be 0) and offset, on any device.
    Returns (f, c, size, size) float32 with f = ceil(t / every), contiguous and on video's device. Limits: 1 copy, 1 new storage of
    4 * f * c * size * size bytes, and no detour through NumPy (0 syncs), whose memory no counter sees.
    ValueError if the crop does not fit into the frame: 0 <= top, top + size <= h, and the same for left and w.
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
from helpers.exercises.storage_and_stride import check_clip, film

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
from helpers.classroom.variant import variant
from helpers.exercises.storage_and_stride import check_clip, film

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
outside = ((0, 9), (5, 0), (-4, 0), (0, -1), (-30, 2))
check_clip(*[check.case(rgba, 1, *place, 16, raises=ValueError) for place in outside])
### END HIDDEN TESTS

# %% [markdown]
# ## On the real GPU
#
# What would the one copy gain on a GPU? Below is **your own** `clip` beside the one with four copies, on the
# simulated H100, for a batch of the size that one would really load. The simulator charges each operator its
# launch on the CPU, and on the GPU its bytes, read and written, at a fixed bandwidth.

# %% experiment
gpu = simulate("H100")
simulated = []
with gpu:
    batch = torch.empty(64, 360, 640, 3, dtype=torch.uint8, device=gpu.device)
    for name, load in {"four copies": clip_in_four_copies, "your clip": clip}.items():
        try:
            for _ in range(2):  # the first one is the warm-up
                gpu.synchronize()
                launched, began = len(gpu.kernels), gpu.clock()
                loaded = load(batch, 2, 68, 208, 224)
                gpu.synchronize()
                took, kernels = gpu.clock() - began, gpu.kernels[launched:]
        except (RuntimeError, TypeError) as problem:  # NotImplementedError is a RuntimeError
            if str(problem):
                print(f"{name}: {type(problem).__name__}: {problem} (Is everything made on video.device?)")
            else:
                print(f"{name}: write exercise 1.5 first, then run this cell again")
            continue
        if getattr(loaded, "device", None) != batch.device:
            print(f"{name}: the result is not on the video's device; see the docstring of exercise 1.5")
            continue
        work = sum(kernel.duration_s for kernel in kernels)
        simulated.append(
            (
                *(name, len(kernels), sum(kernel.bytes for kernel in kernels)),
                *(f"{seconds * 1e6:.0f} µs" for seconds in (work, took - work, took)),
            )
        )
lesson.keep(kernels=simulated[0][1])
lesson.table(
    simulated,
    ["loader", "kernels", "bytes read and written", "the GPU works", "the rest", "a batch takes"],
    evidence=gpu.evidence,
)

# %% [markdown]
# The loader with four copies starts {{kernels}} kernels, because the list of frame numbers (`arange`) takes one too.
# The GPU's own time follows the bytes. *The rest*, launching and waiting, does not shrink with them. So the
# time of a batch shrinks by less than the bytes do.
#
# What the simulator does **not** model is how well strides use the memory. A GPU fetches memory in segments
# of 32 bytes, and the 32 threads of a warp ask together: neighbours are served by a few fetches, numbers far
# apart by one each (NVIDIA, *CUDA C++ Best Practices Guide*, "Coalesced Access to Global Memory"). That
# needs a real GPU. Where this machine has one, the next cell sums equally many numbers at growing strides:
# does the time follow the bytes brought in?


# %% experiment
def strided_sums(device: torch.device):
    many = 2**22
    far = torch.ones(many * 32, device=device)
    return lesson.table(
        [
            (step, many * 4 * min(step, 8), bench(torch.sum, far[::step][:many]).cell)
            for step in (1, 2, 4, 8, 16, 32)
        ],
        ["stride", "bytes brought in", "sum() takes"],
        evidence="live (GPU) and arithmetic",
        caption="bytes are arithmetic: segments of 32 bytes, 8 numbers",
    )


lesson.on_gpu(strided_sums, recording="01_strided_sums")

# %% [markdown]
# ## Sources on trial

# %% experiment tags=["fold"]
advanced = {code: c for code, c in reads.items() if code not in ("x[0:3:2]", "x[None, ..., 1]")}
kept = [code for code, c in advanced.items() if not c.new_storages]
tried = sum(map(len, outcome.values()))
raised, other, extra = by_kind["raised"], by_kind["other numbers"], by_kind["same, extra copy"]
rescued = [n for n, (direct, via) in travelled.items() if "raises" in direct and "raises" not in via]
lost = [n for n, (direct, via) in travelled.items() if "raises" in direct and "raises" in via]
shared = [n for n, (_, via) in travelled.items() if via.startswith("shared")]


def listed(codes: list[str]) -> str:
    return ", ".join(f"`{code}`" for code in codes)


CLAIMS = {  # id: (claim, measured, verdict, experiment)
    "01-two-levels": (
        "tensor and storage are two levels: a tensor reads its storage by shape, stride and offset",
        f"counted: {len(views)} tensors over {storages} storage, {made_views.bytes_allocated} bytes allocated; "
        f"a write through one of them showed in {sum(n > 0 for n in written_through.values())}",
        "confirmed" if storages == 1 and made_views.bytes_allocated == 0 else "refuted",
        "Round 1",
    ),
    "01-noncontiguous-raises": (
        "many algorithms assume contiguous storage; a non-contiguous tensor may raise an error",
        f"{len(raised)} of {tried} hand-picked operators raised: {listed(raised)}",
        "holds when the operator may not copy: `view` in all its forms"
        if raised and all(".view(" in code for code in raised)
        else "refuted",
        "Round 5",
    ),
    "01-noncontiguous-wrong": (
        "… or even give wrong results",
        f"{len(other)} of {tried} hand-picked operators gave other numbers: {listed(other)}",
        "holds when code addresses the storage instead of the tensor"
        if other and all("as_strided" in code for code in other)
        else "refuted",
        "Round 5",
    ),
    "01-noncontiguous-slow": (
        "a non-contiguous tensor may be read in a bad order and lower performance",
        f"counted: {len(extra)} of {tried} hand-picked operators made an extra copy; arithmetic: numbers 16 "
        f"cells apart touch {lines_touched[16] // lines_touched[1]} times the memory lines",
        "holds when the kernel wants rows and copies, or the numbers lie far apart" if extra else "refuted",
        "Round 5",
    ),
    "01-advanced-index": (
        "reading through advanced indexing (boolean or integer tensors) makes new storage",
        f"{len(advanced) - len(kept)} of {len(advanced)} kinds of index did; not: {listed(kept)}",
        "holds when the index is not an integer tensor without dimensions: that one is a view"
        if kept == ["x[one]"]
        else "confirmed",
        "Round 4",
    ),
    "01-pandas-numpy": (
        "pandas objects should be converted to a NumPy array first",
        f"of {len(travelled)} parts of frames, {len(rescued)} raised without NumPy and came in with it; "
        f"{len(shared)} shared memory; {len(lost)} raised on both roads ({', '.join(lost)})",
        "holds when the part holds numbers: text and dates raise either way"
        if rescued and lost
        else "confirmed",
        "Round 6",
    ),
}
claims = [(key, "book-notes", *about) for key, about in CLAIMS.items()]
lesson.verdicts(claims, evidence="live (CPU) and arithmetic")

# %% [markdown]
# The operators were picked by hand; your own may behave otherwise. What bad order costs in *time* is no part of
# the verdict, which rests on what can be counted.
#
# ## Recap
#
# - What can be said with shape, stride and offset is a view: slices, `t`, `permute`, `expand`, `unfold`,
#   `diagonal`. *Until* a stride would be negative: `flip` copies.
# - Splitting a dimension is free; merging neighbours is free where `stride[i] == size[i+1] * stride[i+1]`.
#   *Until* you need a promise: `reshape`, `contiguous`, `float` and `to` give a view or a copy.
# - Lists, arrays, bools and tensors as an index copy when read. *Except* an integer tensor of no dimensions:
#   a view, and on a GPU a sync.
# - One bracket on the left of `=` writes in place. *Not* after a first bracket that was advanced.
# - Elementwise operators keep the order of strides and are right on any. *Not* code that reads the storage itself:
#   `as_strided`, `data_ptr()`, your own kernel. Some kernels copy for themselves.
# - `from_numpy(column.to_numpy())` shares memory. *Except* nullable columns with gaps and mixed dtypes (a
#   copy), text and dates (an error).
#
# **Take this to your own code**
#
# 1. Put `count(…)` around the data path of one step. Is `copies` what you would say by hand? (Copies inside
#    an operator do not show there; the profiler, as in round 5, sees them.)
# 2. Look down `allocations`: does any operator allocate more than its result needs?
# 3. Describe first (slices, `permute`), move once, at the end, into the dtype and layout that is wanted.
# 4. Write `view` where you believe that nothing is copied.
# 5. Where a small tensor outlives a large one, `clone()` it.
# 6. Before an in-place operator, ask which other tensors walk this storage.
#
# **Read on.** PyTorch documentation, *Tensor Views*, and the merging rule in full under
# `torch.Tensor.view`. NumPy user guide, *Copies and views*. Edward Z. Yang, *PyTorch internals*: strides
# seen from inside. Next, **lesson 02**: what one operator call costs.
