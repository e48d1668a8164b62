# %% [markdown]
# # 13 · Quantization
#
# ## When are eight bits enough?
#
# An int8 is a quarter of a float32 and half of a bfloat16. Weights stored so leave room for a larger model, take
# half as long to read as bfloat16's, and a GPU's Tensor Cores multiply them at up to twice the rate. The price is that all
# numbers that share a scale must make do with 255 values. This lesson measures the price, shows the one thing
# that makes it explode, and the two ways to pay less: move the difficulty to where it does no harm, or train
# the model for its own rounding. It also shows why the gain often does not arrive.
#
# **Time** 85–100 min, two thirds of it exercises. **Before this** lessons 02 (autograd functions) and 10
# (number formats); for the times, lesson 03 (launches).
#
# **Afterwards you can**
# - quantize any tensor, say beforehand how far off it will be, and choose who shares a scale;
# - write a linear layer that keeps int8 and multiplies int8, and say for which batch it pays;
# - remove an outlier channel without a cost at run time, and train a net that survives 3 bits.
#
# **On trial** *matrix sizes must be multiples of 16 for INT8* (guide) · *quantized training: INT8 speeds up
# inference further* (five strategies) · *a native INT4 model: less latency and memory, without loss* (guide, its
# appended list of models).

# %% setup
import math

import torch
from torch import nn
from torch.nn import functional as F

from helpers import count, lesson, recordings

torch.set_num_threads(1)  # small tensors: more threads would mostly wait for one another


def rounded(x, scale, bits=8):
    """x as it comes back from so many bits: a multiple of its scale, symmetric around 0."""
    most = 2 ** (bits - 1) - 1
    return (x / scale).round().clamp(-most, most) * scale


def off(got, want):
    """How far off, as a share of the size of what is wanted (root of the mean square of both)."""
    return float((got - want).norm() / want.norm())


lesson.start("13_quantization", evidence=["live (CPU)", "simulated (H100)"])

# %% [markdown]
# ## 1 · One byte and a scale
#
# To quantize is to write a number as a small integer times a **scale**. One integer, called *zero*, stands for the
# number 0: q = round(x ÷ scale) + zero, clamped to what the bits hold, and back x̂ = (q − zero) · scale. Whoever shares
# a scale is rounded to the same grid, so is off by up to half a scale.
#
# - **symmetric**: the integer 0 stands for 0, scale = largest |x| ÷ 127. Nothing to subtract later.
# - **affine**: all 256 integers are laid between the smallest and the largest x, and *zero* is whichever lies at 0.
#
# Three changes. **How many times smaller does each make the error?** Choose from 1, 2, 4, 8, 16, 32.

# %% experiment
prediction = {
    "ReLU's output: affine, not symmetric": ...,
    "normal numbers: a scale per 32, not one for all": ...,
    "rows of unequal size: a scale per row, not one for all": ...,  # of the median row
}

# %% experiment tags=["fold"]
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, NullLocator

from helpers.plots import style
from helpers.plots.picture import Picture, drawn


def largest(x, dim=None):
    return x.abs().amax() if dim is None else x.abs().amax(dim, keepdim=True)


dice = torch.Generator().manual_seed(0)
normal = torch.randn(512, 512, generator=dice)
after_relu = normal.relu()
uneven = normal * (0.7 * torch.randn(512, 1, generator=dice)).exp()  # rows of very different size


def affine(x):
    scale = (x.max() - x.min()) / 255
    zero = (-128 - x.min() / scale).round()
    return (((x / scale).round() + zero).clamp(-128, 127) - zero) * scale


def grouped(x, size, top, kind=torch.float32):
    """x rounded with a scale for each size numbers, the scales kept as kind."""
    x = x.reshape(-1, size)
    return rounded(x, (largest(x, 1) / top).to(kind).float(), top.bit_length() + 1).reshape(512, 512)


def of_rows(got, want):
    """off, of the median row."""
    return float(((got - want).norm(dim=1) / want.norm(dim=1)).median())


errors = {
    ("ReLU's output", "symmetric", 8): off(rounded(after_relu, largest(after_relu) / 127), after_relu),
    ("ReLU's output", "affine", 8): off(affine(after_relu), after_relu),
    ("normal numbers", "one scale", 8): off(rounded(normal, largest(normal) / 127), normal),
    ("normal numbers", "one per 32", 9): off(grouped(normal, 32, 127), normal),
    ("normal numbers", "one scale, a bit more", 9): off(rounded(normal, largest(normal) / 255, 9), normal),
    ("normal numbers", "one scale", 4): off(rounded(normal, largest(normal) / 7, 4), normal),
    ("normal numbers", "one scale, a bit more", 5): off(rounded(normal, largest(normal) / 15, 5), normal),
    ("normal numbers", "one per 32", 5): off(grouped(normal, 32, 7), normal),
    ("normal numbers", "one per 32, of 16 bits", 4.5): off(grouped(normal, 32, 7, torch.half), normal),
    ("normal numbers", "one per 128, of 16 bits", 4.125): off(grouped(normal, 128, 7, torch.half), normal),
    ("uneven rows", "one scale", 8): of_rows(rounded(uneven, largest(uneven) / 127), uneven),
    ("uneven rows", "one per row", 8): of_rows(rounded(uneven, largest(uneven, 1) / 127), uneven),
}
lesson.keep(with_scales=9, by_group=errors["normal numbers", "one per 32", 9])
lesson.keep(by_bits=errors["normal numbers", "one scale, a bit more", 9])
by = list(errors.values())
ratios = dict(zip(prediction, (by[0] / by[1], by[2] / by[3], by[-2] / by[-1]), strict=True))
sizes = (1, 2, 4, 8, 16, 32)
what = {"what": "times smaller", "shown": "{:.1f}"}
lesson.compare_ratios(prediction, ratios, choices=sizes, evidence="live (CPU)", **what).show()
lesson.table(
    [(*about, f"{error:.2%}") for about, error in errors.items()],
    ["numbers", "scale", "bits per number", "off by"],
    evidence="live (CPU)",
    caption="512 × 512 numbers. Bits with the scales, of 32 bits if not said otherwise: for 32 numbers that is one for each. "
    "Uneven rows: of the median row",
)


# %% experiment tags=["fold"]
@drawn
def number_lines(rows, *, evidence, title, note=""):
    """label → (values, grid): how the values lie, and the grid they are rounded to; unused points are short and red."""
    fig, _ = style.figure(0.85 * len(rows) + 0.3, evidence=evidence, title=title, note=note)
    axes = fig.subplots(len(rows), 1, squeeze=False)[:, 0]
    for ax, (label, (values, grid)) in zip(axes, rows.items(), strict=True):
        values, grid = values.flatten(), grid.flatten().unique()
        low, high = float(grid.min()), float(grid.max())
        used = torch.zeros(len(grid), dtype=torch.bool)
        used[(values[:, None] - grid).abs().argmin(1).unique()] = True
        room = (high - low) * 0.02
        heights = torch.histc(values, 160, low - room, high + room).sqrt()
        edges = torch.linspace(low - room, high + room, 161)[:-1]
        width = (high - low + 2 * room) / 160
        ax.bar(
            edges, (heights / heights.sort().values[-3]).clamp(max=1), width, align="edge", color=style.SKY
        )
        for points, top, colour in ((grid[used], -0.12, style.BLUE), (grid[~used], -0.38, style.VERMILLION)):
            ax.vlines(points, -0.58, top, color=colour, linewidth=2.2)
        ax.set(xlim=(low - room, high + room), ylim=(-0.65, 1.1))
        ax.set_ylabel(label, rotation=0, ha="right", va="center", linespacing=1.3)
        ax.grid(False)
        ax.spines["left"].set_visible(False)
        ax.yaxis.set_major_locator(FixedLocator([]))
        ax.xaxis.set_major_locator(MaxNLocator(6))
    return Picture(fig, evidence, f"{title}: {', '.join(label.replace(chr(10), ' ') for label in rows)}")


def grid(scale, low=-7, high=7):
    return torch.arange(low, high + 1) * scale


small = uneven[largest(uneven, 1).flatten().argsort()[180]]  # one of the smaller rows
number_lines(
    {
        "ReLU's output,\nsymmetric": (after_relu, grid(largest(after_relu) / 7)),
        "ReLU's output,\naffine": (after_relu, grid(largest(after_relu) / 15, 0, 15)),
        "a small row,\nall rows' scale": (small, grid(largest(uneven) / 7)),
        "the same row,\nits own scale": (small, grid(largest(small) / 7)),
    },
    evidence="live (CPU)",
    title="Where the values lie, and the grid they are rounded to",
    note="4 bits, so that the points can be seen. Short and red: points that no value is rounded to. Light: how many "
    "values lie there, as the square root, and the tallest cut off",
)

# %% [markdown]
# The red points are wasted. A grid that reaches where no value is has fewer points where the values are, and **half the
# points is twice the error: one bit lost**. Affine wins back the bit that symmetric spends on the empty side. A scale per
# group wins back what the largest number of another group costs: in rows of unequal size nearly everything, in these
# normal numbers one bit. But scales take room too. With a float32 scale for each 32 numbers, a number takes
# {{with_scales}} bits in all and is off by {{by_group:.2%}}. With {{with_scales}} bits for each number and one scale for
# all, it is off by {{by_bits:.2%}}: here the groups win nothing. Scales of 16 bits cost half as much. Weights therefore
# usually get one scale per output row, 4-bit weights a 16-bit one per 32 to 128 numbers, and affine is kept for
# activations with one empty side. Two details that are often wrong:
#
# - **0 must come back as exactly 0** (padding, ReLU, masks). So *zero* is rounded to an integer, and 0 belongs to
#   the range even if all x are above it.
# - The arithmetic of int8 wraps around: 127 − (−128) is −1 there. Convert before you subtract.

# %% [markdown]
# **Exercise 13.1 — quantize and dequantize** (★★, 9 min)
#
# Both kinds of scale, for the whole tensor or for each row, column or whatever `dim` says. The test takes your
# integers and scales and checks that no element is off by more than half a scale, that no scale is larger than
# it must be, and that you keep one byte per number.
#
# <details><summary>Hint 1</summary>The largest over all dimensions but one: <code>x.abs().amax(others,
# keepdim=True)</code> with <code>others</code> a tuple of the other dimensions, counted with <code>dim % x.dim()</code>; it
# then broadcasts. If no other is left (x has one dimension), <code>amax((), …)</code> would reduce all of it: there
# <code>x.abs()</code> itself is the answer.</details>
#
# <details><summary>Hint 2</summary>Affine: low = min(smallest x, 0), high = max(largest x, 0), scale = (high − low) ÷
# (2^bits − 1), zero = round(−2^(bits−1) − low ÷ scale). A group of nothing but zeros has scale 0: put 1 there, before
# you divide.</details>
#
# <details><summary>The idea</summary>Symmetric is the same with zero = 0 and scale = largest ÷ (2^(bits−1) − 1). Then
# <code>(x / scale).round()</code>, add zero, clamp to what the bits hold, <code>.to(torch.int8)</code>. Back:
# <code>(q.float() − zero.float()) · scale</code>.</details>


# %% exercise="quantize"
def quantize(
    x: torch.Tensor, bits: int = 8, dim: int | None = None, symmetric: bool = True
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """x (float32, any shape and strides, not empty) as integers: (q, scale, zero) with x ≈ (q − zero) · scale.

    A group's largest |x| is 0, or anything from 1e-25 to 1e25.

    bits: 2 to 8; else ValueError. q: int8, x's shape, from −(2^(bits−1) − 1) to 2^(bits−1) − 1 if symmetric, from
    −2^(bits−1) to 2^(bits−1) − 1 if affine.
    dim: None for one scale (shape ()); else one for each index along dim (−1 is the last): x's shape with all
    other dimensions 1. scale: float32, above 0. zero: None if symmetric; else int8, of scale's shape.

    Every element comes back within half a scale (a ten-thousandth of a scale is left over for float32), 0 as
    exactly 0. With m the largest |x| of the group, scale is m ÷ (2^(bits−1) − 1), or if affine (high − low) ÷ (2^bits
    − 1), where high and low are the largest and smallest x, and 0 if that lies beyond them; any scale for a
    group of zeros.
    Budgets, for n numbers in k groups: stored 1 byte per number, 4 per scale, 1 per zero; at most 13 · n bytes
    alive at once (three float32 temporaries and the result), and 64 · k + 1 KiB for scales. Without .numpy() and
    .tolist(): what they make is not counted.
    """
    ### BEGIN SOLUTION
    if not 2 <= bits <= 8:
        raise ValueError(f"bits is from 2 to 8, not {bits}")
    others = tuple(d for d in range(x.dim()) if dim is None or d != dim % x.dim())

    def over(reduce):
        found = reduce(x, others, keepdim=dim is not None) if others else x
        return found.clone()

    top = 2 ** (bits - 1) - 1
    high, low = over(torch.amax).clamp(min=0), over(torch.amin).clamp(max=0)
    if symmetric:
        scale, bottom = torch.maximum(high, -low) / top, -top
    else:
        scale, bottom = (high - low) / (2**bits - 1), -top - 1
    scale[scale == 0] = 1
    zero = None if symmetric else (bottom - low / scale).round()
    q = (x / scale).round_()
    if zero is not None:
        q += zero
    q = q.clamp_(bottom, top).to(torch.int8)
    return q, scale, None if zero is None else zero.to(torch.int8)
    ### END SOLUTION


def dequantize(q: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None = None) -> torch.Tensor:
    """(q − zero) · scale in float32. q, zero: int8; zero None is 0."""
    ### BEGIN SOLUTION
    back = q.to(torch.float32)
    return (back if zero is None else back - zero) * scale
    ### END SOLUTION


# %% test="quantize" points=1
import torch

from helpers import check
from helpers.exercises.quantization import check_dequantize, check_quantize

rows = torch.randn(40, 60, generator=torch.Generator().manual_seed(1)) * torch.logspace(-3, 2, 40)[:, None]
rows[7] = 0.0
far = rows.abs() + 3e3  # above 0, which belongs to the range all the same
for options in ({}, {"dim": 0}, {"dim": -1, "bits": 4, "symmetric": False}):
    check_quantize(check.case(rows, **options), check.case(far, **options))
check_quantize(check.case(rows[12].clone(), dim=0), note="One dimension: amax((), …) reduces all.")
check_quantize(check.case(rows, bits=9, raises=ValueError))
q = torch.tensor([[-128, -1, 127], [127, 0, -128]], dtype=torch.int8)
zero = torch.tensor([[100], [-128]], dtype=torch.int8)
check_dequantize(check.case(q, torch.tensor([[0.5], [2.0]]), zero), check.case(q, torch.tensor(0.1)))


# %% hidden="quantize" points=3
### BEGIN HIDDEN TESTS
import torch

from helpers import check
from helpers.exercises.quantization import check_dequantize, check_quantize

g = torch.Generator().manual_seed(2)
cube = torch.randn(6, 50, 30, generator=g) * torch.rand(1, 50, 1, generator=g)
below, mixed = -cube.abs() - 1.0, cube * 100
mixed[:, 3] = 0.0
flat = torch.randn(5000, generator=g).relu()
check_quantize(
    *(
        check.case(x, bits=bits, dim=dim, symmetric=symmetric)
        for x, dims in ((below, (None, 1)), (mixed, (-2, 2)), (flat, (None, 0)))
        for dim in dims
        for bits, symmetric in ((8, True), (8, False), (5, False), (2, True))
    ),
    check.case(torch.zeros(3, 4), symmetric=False),
    check.case(torch.tensor(-2.5), bits=3),
    check.case(mixed.transpose(0, 2), dim=0, bits=4),  # not contiguous
    check.case(torch.tensor([[0.7]]), dim=1, symmetric=False),
    *(check.case(mixed * size, dim=1, symmetric=s) for size in (1e-24, 1e22) for s in (True, False)),
    check.case(flat[:7].expand(3, 7), dim=0),
    *(check.case(flat, bits=b, raises=ValueError) for b in (1, 16)),
)
q = torch.randint(-128, 128, (4, 7, 5), generator=g).to(torch.int8)
zero = torch.randint(-128, 128, (1, 7, 1), generator=g).to(torch.int8)
check_dequantize(
    check.case(q, torch.rand(1, 7, 1, generator=g), zero),
    check.case(q[0], torch.rand(7, 1, generator=g)),
    check.case(q, torch.tensor(2.0), torch.tensor(-128, dtype=torch.int8)),
)
### END HIDDEN TESTS


# %% [markdown]
# ## 2 · Multiply the integers
#
# Stored bytes are half the matter. Two int8 matrices, 64 × 256 and 256 × 64, with numbers from all of −127 … 127.
# `a @ b` runs, and so does `torch._int_mm`, an internal operator for two int8 matrices. **How many of the 4,096
# results are right?** "all", "most", "few"

# %% experiment
prediction = {"a @ b": ..., "torch._int_mm(a, b)": ...}

# %% experiment
a = torch.randint(-127, 128, (64, 256), generator=dice, dtype=torch.int8)
b = torch.randint(-127, 128, (256, 64), generator=dice, dtype=torch.int8)
exact = a.long() @ b.long()
products = {"a @ b": a @ b, "torch._int_mm(a, b)": torch._int_mm(a, b)}
shares = {name: float((c == exact).float().mean()) for name, c in products.items()}
words = {name: "all" if s == 1 else "most" if s > 0.5 else "few" for name, s in shares.items()}
said = lesson.compare_predictions(prediction, words, evidence="live (CPU)", choices=("all", "most", "few"))
lesson.table(
    [
        (*row, str(c.dtype).removeprefix("torch."), f"{s:.1%}")
        for row, c, s in zip(said.rows, products.values(), shares.values(), strict=True)
    ],
    ["", "right", "you said", "dtype of the result", "share"],
    evidence="live (CPU)",
    caption=f"{said.caption}. In int32, {(2**31 - 1) // 127**2:,} products of the largest int8 are sure to fit",
).show()

shapes = [(1, 64, 64), (16, 64, 64), (17, 64, 64), (17, 8, 24), (33, 100, 12), (64, 65, 20)]


def as_it_should(m, k, n):
    x = torch.randint(-127, 128, (m, k), generator=dice, dtype=torch.int8)
    w = torch.randint(-127, 128, (n, k), generator=dice, dtype=torch.int8)
    return torch.equal(torch._int_mm(x, w.t()).long(), x.long() @ w.long().t())


taken = {shape: as_it_should(*shape) for shape in shapes}
on_cuda = {(m, k, n): m > 16 and k % 8 == 0 and n % 8 == 0 for m, k, n in shapes}
lesson.table(
    [
        (" × ".join(map(str, s)), "right" if taken[s] else "wrong", "yes" if on_cuda[s] else "no")
        for s in shapes
    ],
    ["M × K × N", "_int_mm on this CPU", "taken on CUDA (rule, not run)"],
    evidence="live (CPU) · arithmetic",
    caption="CUDA by the rule in PyTorch's source, _int_mm_out_cuda: M above 16, K and N multiples of 8, else an error",
)

# %% [markdown]
# On the CPU PyTorch multiplies int8 into int8, silently modulo 256. (On CUDA `a @ b` of two int8 matrices raises:
# *"addmm_cuda" not implemented for 'Char'*, [issue 49890](https://github.com/pytorch/pytorch/issues/49890).) What adds
# up in int32 is `torch._int_mm`: an internal
# name, but the one operator for it, and what torchao calls. On CUDA it is
# [picky](https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/cuda/Blas.cpp), and its first demand is the one
# that bites: **more than 16 rows**, so a model that runs in tests with 32 tokens stops when it is given one. Pad
# the rows and cut the result.
#
# And the scales? They leave the sum if they do not depend on what is summed over:
#
# $$y_{mn} = \sum_k x_{mk} w_{nk} \approx \sum_k (s_m q_{mk})(t_n r_{nk}) = s_m\, t_n \sum_k q_{mk} r_{nk}$$
#
# So x gets a scale per row (per token), found while it runs (**dynamic** quantization), and the weight one per
# output row. A scale per *input channel* k is the one thing this product cannot have; section 3 is about that.
# (An affine x adds a term, −z · Σ r, that is summed up beforehand for each output.)

# %% [markdown]
# **Exercise 13.2 — a linear layer of integers** (★★★, 14 min)
#
# A module that takes the place of an `nn.Linear` at inference, stores one byte per weight and multiplies bytes. It
# must also work where CUDA would run it, with one token.
#
# <details><summary>Hint 1</summary>In <code>__init__</code>: quantize the weight with one symmetric scale per row (your
# <code>quantize(…, dim=0)</code> does) and keep q, scale and bias with <code>self.register_buffer</code>. A Parameter in
# int8 raises, unless it says <code>requires_grad=False</code>.</details>
#
# <details><summary>Hint 2</summary>The scale of x is (rows, 1) and multiplies rows of the result; the weight's is (N,)
# or (1, N) and multiplies columns. A row of zeros has scale 0, and 0 ÷ 0 is nan: <code>clamp(min=1e-12)</code> before
# dividing.</details>
#
# <details><summary>The idea</summary>In <code>forward</code>: flatten to (rows, K), a scale per row, int8, pad to at least 17
# rows with <code>F.pad(q, (0, 0, 0, missing))</code>, one <code>torch._int_mm(q, self.weight.t())</code>, cut, to float32, times
# both scales, plus bias if there is one, back to the shape of x.</details>


# %% exercise="int8_linear"
class Int8Linear(torch.nn.Module):
    """y = x Wᵀ + b with W in int8, and x in int8 while it is multiplied. Int8Linear(linear) for a trained nn.Linear.

    forward(x): float32 of shape (..., K) → float32 of shape (..., N); any number of leading dimensions, or none, but at
    least one row. A row's largest |x|, and |w|, is 0, or anything from 1e-12 to 1e12. One symmetric scale for each row of
    W, and for each row of x as it comes. A row of zeros gives the bias, and no nan on the way to int8 (what nan becomes
    there is undefined; this CPU makes it 0).

    Errors: each of x and W is rounded, not cut off, to 255 values, so an element of y is off by about
    √(s²/12 · Σw² + t²/12 · Σx²), where s and t are the two scales; over a whole result, at most 1.3 times that.
    Budgets: what it keeps is N · K + 4 · N bytes, and 4 · N for a bias, all of it in its state_dict, and nothing
    of the linear's own weight. One torch._int_mm, of a shape that CUDA takes (K and N are multiples of 8 as they
    are; pad the rows, to 32 at the most), and no other matrix product. With R the larger of the rows of x
    and 32: 13 · R · K + 12 · R · N bytes alive at once in forward, and 4 KiB. Without .numpy() and .tolist().
    """

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        ### BEGIN SOLUTION
        weight = linear.weight.detach()
        scale = weight.abs().amax(1).clamp(min=1e-12) / 127
        self.register_buffer("weight", (weight / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())
        ### END SOLUTION

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ### BEGIN SOLUTION
        rows = x.reshape(-1, x.shape[-1])
        scale = rows.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
        q = (rows / scale).round_().to(torch.int8)
        if len(q) < 17:
            q = F.pad(q, (0, 0, 0, 17 - len(q)))
        y = torch._int_mm(q, self.get_buffer("weight").t())[: len(rows)].to(torch.float32)
        y = y.mul_(scale).mul_(self.get_buffer("scale"))
        if self.bias is not None:
            y += self.bias
        return y.reshape(*x.shape[:-1], -1)
        ### END SOLUTION


# %% test="int8_linear" points=2
from helpers.exercises.quantization import Layer, check_Int8Linear

check_Int8Linear(
    Layer(3, 512, 264, batches=((40,), (1,), (2, 3, 4))),
    Layer(4, 512, 64, batches=((20,),), bias=False),
    note="Two layers, the second without a bias. A row of x and a row of W are zeros.",
)


# %% hidden="int8_linear" points=4
### BEGIN HIDDEN TESTS
from helpers.exercises.quantization import Layer, check_Int8Linear

check_Int8Linear(
    Layer(5, 264, 512, batches=((17,), (16,), (2, 1), (3, 2, 5)), strided=True),
    Layer(6, 256, 512, batches=((2,), (33,), (), (4, 8)), bias=False, strided=True),
    Layer(7, 1024, 8, batches=((70,), (5, 12)), strided=True),
    Layer(8, 64, 24, batches=((20,), (3,)), bias=False, size=1e-8),
    Layer(9, 64, 24, batches=((20,), (3,)), bias=False, size=1e8),
)
### END HIDDEN TESTS


# %% [markdown]
# ### What do the bytes buy?
#
# A layer of 4,096 → 4,096 on an H100. Four ways against plain bfloat16: only the weights are stored in int8 and
# converted before a bfloat16 product, or converted inside one kernel as they are read (what a compiler makes of
# it); both in int8, written as in your layer, operator by operator, or the product alone. **Faster or slower than
# bfloat16?** ("same": within 5 %)

# %% experiment
prediction = {
    "1 token, weights in int8, one kernel": ...,
    "1 token, weights in int8, converted first": ...,
    "4,096 tokens, weights in int8, one kernel": ...,
    "4,096 tokens, both in int8, op by op": ...,
}


# %% experiment tags=["fold"]
from helpers.simulator.devices import DEVICES


@drawn
def curves(
    panels,
    *,
    evidence,
    title,
    xlabel,
    ylabel,
    note="",
    log="",
    level=None,
    xticks=None,
    ylim=(0, None),
    mark=None,
):
    """Panels side by side: title → name → (x, y). log: "x" or "". level: a dashed line; mark: (x, its name)."""
    fig, _ = style.figure(3.2, evidence=evidence, title=title, note=note)
    for ax, (head, series) in zip(
        fig.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        if level is not None:
            ax.axhline(level, color=style.MUTED, linewidth=1, linestyle="--")
        for i, (name, (x, y)) in enumerate(series.items()):
            ax.plot(x, y, marker=style.MARKERS[i], markersize=5, color=style.SERIES[i], label=name)
        if log:
            ax.set_xscale("log")
            ax.xaxis.set_minor_locator(NullLocator())
            ax.xaxis.set_minor_formatter(NullFormatter())
        if xticks:
            ax.set_xticks(list(xticks), list(xticks.values()))
        ax.set_ylim(*ylim)
        if mark:
            ax.axvline(mark[0], color=style.MUTED, linewidth=1, linestyle=":")
            ax.text(mark[0], 0.02, f" {mark[1]}", color=style.MUTED, transform=ax.get_xaxis_transform())
        ax.set(title=head, xlabel=xlabel, ylabel=ylabel)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), labelspacing=1.0)
    return Picture(fig, evidence, f"{title}: {ylabel} against {xlabel} for {', '.join(series)}")


card = DEVICES["H100"]
ridge = card.peak_flops["bf16"] / card.memory_bytes_per_s  # 2 FLOPs a weight and token, 2 bytes a weight
table = recordings.show("13/int8_linear", simulated="H100", prefer="simulated").table
us = {(row["tokens"], row["way"]): row["us"] for row in table}
tokens = sorted({t for t, _ in us})
ways = list(dict.fromkeys(way for _, way in us))
gain = {(t, way): us[t, "bfloat16"] / us[t, way] for t, way in us}


def in_words(ratio):
    return "same" if abs(ratio - 1) <= 0.05 else "faster" if ratio > 1 else "slower"


asked = {key: gain[int(key.partition(" ")[0].replace(",", "")), key.partition(", ")[2]] for key in prediction}
said = lesson.compare_predictions(
    prediction,
    {key: in_words(r) for key, r in asked.items()},
    evidence="simulated (H100)",
    choices=("faster", "slower", "same"),
)
lesson.table(
    [(*row, f"{r:.2f}") for row, r in zip(said.rows, asked.values(), strict=True)],
    ["", "than bfloat16", "you said", "times as fast"],
    evidence="simulated (H100)",
    caption=said.caption,
).show()
curves(
    {"": {way: (tokens, [gain[t, way] for t in tokens]) for way in ways[1:]}},
    evidence="simulated (H100)",
    title="One linear layer, 4,096 → 4,096, against bfloat16",
    note="above the dashed line: faster. The simulator knows bytes, FLOPs and launches, and not how well a kernel is "
    "written; for int8 products nothing has been measured yet, and it takes fp16's efficiency for them",
    xlabel="tokens at once",
    ylabel="times as fast",
    log="x",
    level=1.0,
    xticks={t: f"{t:,}" for t in tokens},
    mark=(ridge, f"ridge: {ridge:.0f}"),
)

# %% [markdown]
# With few tokens, left of the **ridge** (bfloat16's peak FLOP/s ÷ bytes/s: there reading a weight takes as long as using
# it), the layer's time is the reading of its weights. Half the bytes is a gain **only if they are
# converted on the way to the multiplier**; converted by an operator of their own, they are read, written and
# read again, and the layer is slower than before. With many tokens the product is the time, weights no longer
# matter, and int8 products would be faster (last curve), but the elementwise operators around them
# cost more than that. So *quantized* is not *faster*: it is smaller. Faster it becomes once a compiler or a library
# fuses the conversion (lesson 11), weight-only for few tokens, both operands for many.

# %% [markdown]
# ## 3 · One loud channel
#
# In large language models a few input channels are 20 to 100 times as loud as the others, in every token (Dettmers
# and others, *LLM.int8()*, 2022; Xiao and others, *SmoothQuant*, 2023). 256 channels, one of them 100 times as
# loud, a scale per token. **What share of the ordinary channels' numbers becomes exactly 0?** And which makes the
# output's error larger, rounding the **weights** or rounding **x**?

# %% experiment
prediction = {
    "ordinary numbers that become 0 (%)": ...,  # choose from 0, 5, 25, 75
    "the larger error comes from": ...,  # "weights" or "x"
}

# %% experiment tags=["fold"]
dice = torch.Generator().manual_seed(0)
loud = torch.ones(256)
loud[37] = 100.0
acts = torch.randn(256, 256, generator=dice) * loud
matrix = torch.randn(256, 256, generator=dice) / 16
want = acts @ matrix.t()
ordinary = loud == 1
quiet = acts[:, ordinary] @ matrix[:, ordinary].t()


def beside(got, want=want):
    """How far off, as a share of what the ordinary channels say: one denominator for all that follows."""
    return float((got - want).norm() / quiet.norm())


def by_rows(t):
    return rounded(t, largest(t, 1) / 127)


lost = float((by_rows(acts)[:, ordinary] == 0).float().mean()) * 100
errors3 = {
    "only the weights": beside(acts @ by_rows(matrix).t()),
    "only x, a scale per token": beside(by_rows(acts) @ matrix.t()),
    "only x, one scale": beside(rounded(acts, largest(acts) / 127) @ matrix.t()),
    "both": beside(by_rows(acts) @ by_rows(matrix).t()),
    "only the weights, without the loud channel": beside(
        acts[:, ordinary] @ by_rows(matrix[:, ordinary]).t(), quiet
    ),
    "both, without the loud channel": beside(
        by_rows(acts[:, ordinary]) @ by_rows(matrix[:, ordinary]).t(), quiet
    ),
}
measured = {
    "ordinary numbers that become 0 (%)": min((0, 5, 25, 75), key=lambda n: abs(n - lost)),
    "the larger error comes from": "x"
    if errors3["only x, a scale per token"] > errors3["only the weights"]
    else "weights",
}
said = lesson.compare_predictions(
    prediction, measured, evidence="live (CPU)", choices=("weights", "x", 0, 5, 25, 75)
)
lesson.table(said.rows, ["", "measured", "you said"], evidence="live (CPU)", caption=said.caption).show()
lesson.table(
    [
        *((name, f"{error:.2%}") for name, error in errors3.items()),
        ("the ordinary channels of x alone", f"{off(by_rows(acts)[:, ordinary], acts[:, ordinary]):.0%}"),
    ],
    ["rounded to 8 bits", "off by"],
    evidence="live (CPU)",
    caption=f"share that becomes exactly 0: {lost:.0f} %. The output's error as a share of what the ordinary channels "
    f"add to it; last row: of x itself. (The loud channel makes the whole output {float(want.norm() / quiet.norm()):.1f} "
    "times as large: a share of that would hide the damage)",
)

# %% [markdown]
# One channel sets the scale of every token, and the rest has a handful of values left. The cure that offers itself,
# a scale per channel of x, is the one the integer product cannot have. But the *product* does not mind a factor
# that moves: for any s, x·w = (x ÷ s)·(w · s) in each channel. Divide the loud channel of x, and multiply the
# weight's column by the same, **before** anything is rounded. SmoothQuant shares the difficulty between the two:
#
# $$s_k = \max|x_k|^{\,\alpha} \,/\, \max|w_k|^{\,1-\alpha}$$
#
# α = 0 makes all weight columns alike, α = 1 all channels of x. Where should α be?

# %% experiment tags=["fold"]
ALPHAS = [i / 20 for i in range(21)]


def smoothed(alpha):
    s = acts.abs().amax(0) ** alpha / matrix.abs().amax(0) ** (1 - alpha)
    return acts / s, matrix * s


curve = {
    "both": [beside(by_rows(a) @ by_rows(w).t()) for a, w in map(smoothed, ALPHAS)],
    "only x": [beside(by_rows(a) @ w.t()) for a, w in map(smoothed, ALPHAS)],
    "only the weights": [beside(a @ by_rows(w).t()) for a, w in map(smoothed, ALPHAS)],
}
best = min(zip(curve["both"], ALPHAS, strict=True))
lesson.keep(stays=best[0] / errors3["both, without the loud channel"])
curves(
    {"": {f"rounded: {name}": (ALPHAS, [100 * e for e in es]) for name, es in curve.items()}},
    evidence="live (CPU)",
    title="Moving the difficulty from x to the weights",
    note=f"lowest for both: {best[0]:.1%} at α = {best[1]:g}; not smoothed: {errors3['both']:.1%}; dashed, without the "
    f"loud channel: {errors3['both, without the loud channel']:.1%}",
    xlabel="α",
    ylabel="output off by (%)",
    level=100 * errors3["both, without the loud channel"],
)

# %% [markdown]
# At the left x is hard to round, at the right the weights are. In the middle most of the damage is gone, but not all:
# the error stays {{stays:.1f}} times that without a loud channel (dashed), since what x got rid of is now shared with the
# weights. α = 0.5 is SmoothQuant's default. It costs nothing at run time, since x comes out of a LayerNorm:
# **the division goes into its weight and bias.** The other cure, LLM.int8()'s, computes the loud channels apart in 16
# bits. Weight-only quantization suffers less than x (the table), but it is not immune:
# the loud channel multiplies the rounding errors of its own weights.

# %% [markdown]
# **Exercise 13.3 — smooth an outlier channel** (★★, 9 min)
#
# In place, for a LayerNorm and *all* linear layers that read its output, such as q, k and v: they share one s.
# `amax` was collected on **calibration** data: a few typical inputs that were run through the trained model to see how
# large its activations become.
#
# <details><summary>Hint 1</summary>What is max|w_k| when three layers read channel k? The division can be made only once, so
# the largest over all of them.</details>
#
# <details><summary>Hint 2</summary>LayerNorm's output is norm · weight + bias: both must be divided. A weight is (N, K), so
# <code>weight.mul_(s)</code> broadcasts over its rows as it should. Under <code>torch.no_grad()</code>.</details>
#
# <details><summary>The idea</summary>Loop over the linears for the running <code>torch.maximum</code> of
# <code>weight.abs().amax(0)</code>; s by the formula; <code>s[(amax == 0) | (wmax == 0)] = 1</code>; then two
# <code>div_</code> and a <code>mul_</code> for each linear.</details>


# %% exercise="smooth"
def smooth(
    norm: torch.nn.LayerNorm, linears: list[torch.nn.Linear], amax: torch.Tensor, alpha: float = 0.5
) -> None:
    """Make the output of norm easier to round, in place; every linear(norm(x)) stays as it was.

    norm: over K channels, with weight and bias. linears: all that read its output, weights of shape (N, K), N may
    differ. amax: (K,), the largest |norm(x)| of each channel on calibration data; unchanged.

    s = amax^alpha ÷ wmax^(1 − alpha), with wmax the largest |weight| of the channel over all linears; s = 1 where
    either is 0. The same nn.Parameters hold the new numbers. Biases of the linears do not change.
    Budgets: nothing lives on (0 bytes), not even a copy in a Parameter's place; meanwhile at most one temporary
    of the largest weight's size, and 64 bytes a channel and 1 KiB; as many operators in the forward as before. Without .numpy() and .tolist().
    """
    ### BEGIN SOLUTION
    with torch.no_grad():
        wmax = torch.zeros_like(amax)
        for linear in linears:
            wmax = torch.maximum(wmax, linear.weight.abs().amax(0))
        s = amax**alpha / wmax ** (1 - alpha)
        s[(amax == 0) | (wmax == 0)] = 1
        norm.weight.div_(s)
        norm.bias.div_(s)
        for linear in linears:
            linear.weight.mul_(s)
    ### END SOLUTION


# %% test="smooth" points=1
from helpers.exercises.quantization import Block, check_smooth

one = "One linear, 96 channels, one of them loud; alpha one half, then 0.8."
check_smooth(Block(7, 96, (64,), {5: 100.0}), Block(7, 96, (64,), {5: 100.0}, alpha=0.8), note=one)
three = "Three linears that read one norm. Channel 50 is silent, and nobody reads channel 11: s = 1 there."
check_smooth(Block(8, 96, (96, 64, 32), {5: 100.0}, silent=(50,), unread=(11,)), note=three)


# %% hidden="smooth" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.quantization import Block, check_smooth

check_smooth(
    Block(9, 64, (64, 128), {0: 60.0, 63: 200.0}),
    Block(10, 128, (48, 16, 96, 8), {77: 100.0}, silent=(4,), unread=(5, 6)),
    Block(11, 80, (40, 40), {10: 50.0}, silent=(0,), unread=(1,), alpha=0.8),
    Block(12, 80, (40, 24), {10: 50.0}, silent=(7,), unread=(8,), alpha=0.0),
    Block(13, 80, (40, 56), {10: 50.0}, silent=(7,), unread=(8,), alpha=1.0),
)
### END HIDDEN TESTS


# %% [markdown]
# Your `smooth` on the layer of this section, behind a LayerNorm whose weight is what makes the channel loud:

# %% experiment
norm, layer = nn.LayerNorm(256), nn.Linear(256, 256, bias=False)
norm.weight.data.copy_(loud)
layer.weight.data.copy_(matrix)
with torch.no_grad():
    true = layer(norm(acts / loud))
    plain = beside(by_rows(norm(acts / loud)) @ by_rows(layer.weight).t(), true)
    try:
        smooth(norm, [layer], norm(acts / loud).abs().amax(0))
        mine = beside(by_rows(norm(acts / loud)) @ by_rows(layer.weight).t(), true)
        print(f"both rounded: off by {plain:.1%}; after your smooth: {mine:.1%}")
    except (NameError, NotImplementedError):
        print("for later: this cell wants your smooth of exercise 13.3")

# %% [markdown]
# ## 4 · Train for the rounding
#
# With few enough bits rounding hurts, however well the scale is chosen. Then the model can be **trained with its rounding**
# (quantization-aware training): round the weights in every forward, keep the exact ones for the optimizer, and
# in backward pretend that the rounding was not there (the **straight-through** estimate), since its own gradient is 0
# almost everywhere and nothing would learn.
#
# A net of three layers that separates three spirals, three seeds. Only its weights are rounded, not its activations:
# after training, or trained a little more with the rounding. **Of 100 new points, about how many are right?** Choose
# from 35, 70, 90, 97, 99.

# %% experiment
prediction = {
    "8 bits, rounded after": ...,
    "3 bits, rounded after": ...,
    "2 bits, rounded after": ...,
    "2 bits, trained with it": ...,
}


# %% experiment tags=["fold"]
SEEDS = 3


def spirals(n, dice):
    which = torch.randint(3, (SEEDS, n), generator=dice)
    radius = torch.rand(SEEDS, n, generator=dice).sqrt()
    angle = radius * 5.5 + which * 2 * math.pi / 3
    points = radius[..., None] * torch.stack([angle.cos(), angle.sin()], -1)
    return points + 0.05 * torch.randn(points.shape, generator=dice), which


def as_stored(w, bits):
    """A weight of each seed (seeds, out, in), rounded row by row; PyTorch's own operator, with its gradient."""
    most = 2 ** (bits - 1) - 1
    flat = w.flatten(0, 1)
    scale = (flat.detach().abs().amax(1) / most).clamp(min=1e-12)
    zero = torch.zeros(len(scale), dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(flat, scale, zero, 0, -most, most).reshape(w.shape)


def scores(net, x, bits=None):
    for i, (w, b) in enumerate(net):
        x = torch.baddbmm(b, x.relu() if i else x, (as_stored(w, bits) if bits else w).mT)
    return x


def trained(net, steps, rate, bits=None):
    net = [(w.clone().requires_grad_(), b.clone().requires_grad_()) for w, b in net]
    optimizer = torch.optim.Adam([p for pair in net for p in pair], rate, fused=True)
    for _ in range(steps):
        loss = SEEDS * F.cross_entropy(scores(net, points, bits).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [(w.detach(), b.detach()) for w, b in net]


dice = torch.Generator().manual_seed(0)
(points, labels), (new, truth) = spirals(400, dice), spirals(1000, dice)
fresh = [
    (torch.randn(SEEDS, n, k, generator=dice) * (2 / k) ** 0.5, torch.zeros(SEEDS, 1, n))
    for k, n in ((2, 32), (32, 32), (32, 3))
]
exact_net = trained(fresh, 300, 0.01)


def right(net, bits=None):
    """Percent of new points, mean over the seeds."""
    return float((scores(net, new, bits).argmax(-1) == truth).float().mean()) * 100


BITS = (8, 6, 5, 4, 3, 2)
after = {bits: right(exact_net, bits) for bits in BITS}
aware = {bits: right(trained(exact_net, 80, 0.003, bits), bits) for bits in BITS}
longer = right(trained(exact_net, 80, 0.003))

# %% experiment tags=["fold"]
both = {"rounded after": after, "trained with it": aware}
found = {key: both[key.partition(", ")[2]][int(key[0])] for key in prediction}
near = {key: min((35, 70, 90, 97, 99), key=lambda n: abs(n - v)) for key, v in found.items()}
said = lesson.compare_predictions(prediction, near, evidence="live (CPU)", choices=(35, 70, 90, 97, 99))
lesson.table(
    [(*row, f"≈ {v:.1f}") for row, v in zip(said.rows, found.values(), strict=True)],
    ["", "right, about", "you said", "measured"],
    evidence="live (CPU)",
    caption=f"{said.caption}. Not rounded: ≈ {right(exact_net):.1f}; trained as long without rounding: ≈ {longer:.1f}",
).show()
curves(
    {"": {name: (list(by), list(by.values())) for name, by in both.items()}},
    evidence="live (CPU)",
    title="Right answers against the bits of the weights",
    note="three spirals, mean of 3 seeds. The axis begins at 60; one in three is right by chance",
    xlabel="bits",
    ylabel="right (%)",
    ylim=(60, 101),
    xticks={bits: str(bits) for bits in BITS},
)

# %% [markdown]
# At 8 bits there is nothing to win: rounding after training is enough, which is the answer to this lesson's question
# for the weights of this net. At 3 bits the curves have parted, and a short training with the rounding recovers most.
# It does not make the model *faster* than one that is rounded after: both end as the same integers. It buys fewer bits.
#
# What is the gradient exactly? Inside the range of the grid it is passed on as it is. Outside, where the value was
# clamped, moving the weight changes nothing, and the gradient is 0. (In the run above that never happened: with scale =
# largest |w| ÷ most, no weight lies outside. It matters where the scale is smaller, because it is fixed, learned, or cuts
# off a few large values.) That is what PyTorch's own
# `torch.fake_quantize_per_tensor_affine` does, which keeps a mask of one byte per weight for it. Now yours.

# %% [markdown]
# **Exercise 13.4 — straight through** (★★, 10 min)
#
# The rounding with its gradient, and a training loop that uses it. No `torch.fake_quantize_…` this time.
#
# <details><summary>Hint 1</summary>The shortest way is an identity: <code>c + (value − c).detach()</code> has the value of
# <code>value</code> and the gradient of <code>c</code>. The other is an <code>autograd.Function</code>.</details>
#
# <details><summary>Hint 2</summary>Which c has gradient 1 inside and 0 outside? <code>w.clamp(…)</code> at (most + ½) scales. In
# an <code>autograd.Function</code>: <code>ctx.save_for_backward(mask)</code>, and nothing else.</details>
#
# <details><summary>The idea</summary>The loop: for each step, h = x; for each layer of net, a Linear becomes
# <code>F.linear(h, fake_quantize(layer.weight, scale, bits), layer.bias)</code> with the scale from
# <code>layer.weight.detach()</code> as it is now; then loss, backward, and p −= lr · p.grad under no_grad.</details>


# %% exercise="fake_quantize"
def fake_quantize(w: torch.Tensor, scale: torch.Tensor, bits: int = 8) -> torch.Tensor:
    """w rounded to bits and back: clamp(round(w ÷ scale), −most, most) · scale, most = 2^(bits−1) − 1.

    w: an nn.Parameter or any tensor; scale: broadcasts against w, no gradient. The gradient of w is the output's
    where |w| ≤ (most + ½) · scale, and 0 beyond. Without torch.fake_quantize_….
    Budget: of what it allocates, the result lives on after the forward, and for backward one byte per element (a
    mask) and 16 per scale; w itself may be kept for nothing.
    """
    ### BEGIN SOLUTION
    most = 2 ** (bits - 1) - 1
    with torch.no_grad():
        value = (w / scale).round_().clamp_(-most, most).mul_(scale)
        edge = (most + 0.5) * scale
    inside = w.clamp(-edge, edge)
    return inside + (value - inside).detach()
    ### END SOLUTION


def train_quantized(
    net: torch.nn.Sequential, x: torch.Tensor, y: torch.Tensor, bits: int, steps: int, lr: float
) -> None:
    """Train net (Linear layers and others, each once), in place, so that it does well with its weights rounded.

    Each step: forward over all of x with every Linear's weight through fake_quantize, one scale per output row,
    largest |w| of the row ÷ most, from the weights as they are at this step; biases (which may be None) and other
    layers, such as a LayerNorm with parameters, as they are. Loss: F.mse_loss(output, y). Step: every parameter p −= lr · gradient of this step alone. Weights stay exact
    (float) in net, which is plain again afterwards; its .grad is None before and may be anything afterwards. A row of zeros stays finite. No syncs (.item() and the like).
    """
    ### BEGIN SOLUTION
    most = 2 ** (bits - 1) - 1
    parameters = list(net.parameters())
    for _ in range(steps):
        h = x
        for layer in net:
            if isinstance(layer, torch.nn.Linear):
                scale = layer.weight.detach().abs().amax(1, keepdim=True).clamp(min=1e-12) / most
                h = F.linear(h, fake_quantize(layer.weight, scale, bits), layer.bias)
            else:
                h = layer(h)
        grads = torch.autograd.grad(F.mse_loss(h, y), parameters)
        with torch.no_grad():
            for p, grad in zip(parameters, grads, strict=True):
                p.sub_(lr * grad)
    ### END SOLUTION


# %% test="fake_quantize" points=1
import torch

from helpers import check
from helpers.exercises.quantization import check_fake_quantize

g = torch.Generator().manual_seed(14)
for scale, bits, told in (
    (torch.tensor(0.02), 8, "Nothing is clamped here: the gradient passes everywhere."),
    (torch.tensor(0.3), 3, "The grid ends at 0.9: beyond 1.05 the gradient is 0."),
    (torch.rand(30, 1, generator=g) + 0.2, 2, "A scale per row."),
):
    w = torch.nn.Parameter(torch.randn(30, 50, generator=g) / 2)
    check_fake_quantize(check.case(w, scale, bits), note=told)


# %% test="fake_quantize" points=1
from helpers.exercises.quantization import Training, check_train_quantized

check_train_quantized(Training(15, (3, 8, 2), bits=8, steps=1, lr=0.1), note="One step.")
told = (
    "12 steps: the scale of each step's own weights, the exact weights kept, the gradient of each step alone?"
)
check_train_quantized(Training(15, (3, 8, 2), bits=3, steps=12, lr=0.2), note=told)
told = "A row of zeros has scale 0, and 0 ÷ 0 is nan: guard it before dividing."
check_train_quantized(Training(15, (3, 8, 2), bits=3, steps=2, lr=0.1, dead=True), note=told)


# %% hidden="fake_quantize" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers import check
from helpers.exercises.quantization import check_fake_quantize

g = torch.Generator().manual_seed(16)
check_fake_quantize(
    *(
        check.case(torch.nn.Parameter(torch.randn(*shape, generator=g)), scale, bits)
        for shape, scale, bits in (
            ((64,), torch.tensor(0.5), 2),
            ((12, 40), torch.rand(12, 1, generator=g) * 0.5 + 0.1, 3),
            ((12, 40), torch.rand(1, 40, generator=g) * 0.1 + 0.01, 5),
            ((4, 5, 6), torch.tensor(0.004), 8),
            ((4, 5, 6), torch.tensor(0.1), 8),
        )
    )
)
turned = torch.randn(6, 9, generator=g).t()  # any tensor: no Parameter, and not contiguous
check_fake_quantize(
    *(check.case(turned, torch.rand(9, 1, generator=g) + 0.1, bits) for bits in (2, 8)), grads=False
)
### END HIDDEN TESTS


# %% hidden="fake_quantize" points=2
### BEGIN HIDDEN TESTS
from helpers.exercises.quantization import Training, check_train_quantized

check_train_quantized(
    Training(17, (4, 10, 10, 3), bits=4, steps=15, lr=0.1, mixed=True),
    Training(18, (6, 2), bits=2, steps=20, lr=0.05, mixed=True),
    Training(19, (3, 6, 2), bits=3, steps=3, lr=0.1, dead=True, mixed=True),
    Training(20, (5, 7, 3), bits=3, steps=0, lr=0.1, mixed=True),
)
### END HIDDEN TESTS


# %% [markdown]
# Your loop on the first of the three nets. What the exact net says of the training points is the goal:

# %% experiment
student = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
numbers = [t[0].flatten() if t.shape[1] == 1 else t[0] for pair in exact_net for t in pair]
for p, value in zip(student.parameters(), numbers, strict=True):
    p.data.copy_(value)


def right_at(bits):
    with torch.no_grad():
        found = new[0]
        for layer in student:
            linear = isinstance(layer, nn.Linear)
            found = (
                F.linear(found, as_stored(layer.weight[None], bits)[0], layer.bias)
                if linear
                else layer(found)
            )
    return float((found.argmax(-1) == truth[0]).float().mean()) * 100


plain = right_at(2)
try:
    train_quantized(student, points[0], scores(exact_net, points)[0], bits=2, steps=300, lr=0.003)
    print(f"2 bits, rounded after: ≈ {plain:.1f} % right; after your train_quantized: ≈ {right_at(2):.1f} %")
except (NameError, NotImplementedError):
    print("for later: this cell wants your train_quantized of exercise 13.4")

# %% [markdown]
# ## What one would use
#
# Nobody writes this by hand in production. **torchao** is PyTorch's own library for it: `quantize_(model, config)`
# puts tensors that hold int8 and scales in the place of the weights of all linear layers. It is an optional part of
# this course (`make lab EXTRAS=models`); without it, the cell shows what your own two formulas give, and you lose
# nothing but the comparison.

# %% experiment tags=["nbval-ignore-output"]
import copy
import logging

dice = torch.Generator().manual_seed(0)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 64)).requires_grad_(False)
sample = torch.randn(64, 256, generator=dice)
outputs = model(sample)


def by_formula(x, dynamic):
    for layer in model:
        if isinstance(layer, nn.Linear):
            x = F.linear(by_rows(x) if dynamic else x, by_rows(layer.weight), layer.bias)
        else:
            x = layer(x)
    return x


stored = sum(m.weight.numel() + 4 * m.out_features for m in model if isinstance(m, nn.Linear))
lines = [
    (f"by formula, {name}", f"{stored:,}", f"{off(by_formula(sample, dynamic), outputs):.2%}", "")
    for name, dynamic in (("weights only", False), ("dynamic", True))
]
try:
    yours = copy.deepcopy(model)
    for i, layer in enumerate(model):
        if isinstance(layer, nn.Linear):
            yours[i] = Int8Linear(layer)
    run = count(yours, sample)
    its_bytes = sum(t.nbytes for t in yours.state_dict().values())
    its_bytes -= sum(layer.bias.nbytes for layer in model if isinstance(layer, nn.Linear))
    line = (f"{its_bytes:,}", f"{off(run.result, outputs):.2%}", f"_int_mm; {run.operators} operators")
    lines.append(("your Int8Linear", *line))
except (NameError, NotImplementedError):
    print("a line more once your Int8Linear of exercise 13.2 works")
try:
    # without a GPU it complains about kernels that it cannot load
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_
except ImportError:
    print("torchao is not installed here; with it (make lab EXTRAS=models), two lines more.")
else:
    for config in (Int8WeightOnlyConfig(), Int8DynamicActivationInt8WeightConfig()):
        other = copy.deepcopy(model)
        quantize_(other, config)
        held = [w for m in other if isinstance(m, nn.Linear) for w in (m.weight.qdata, m.weight.scale)]
        run = count(other, sample)
        used = [name.removeprefix("aten.") for name in run.by_operator if name.endswith("mm")]
        lines.append(
            (
                type(config).__name__.removesuffix("Config"),
                f"{sum(w.nbytes for w in held):,}",
                f"{off(run.result, outputs):.2%}",
                f"{', '.join(used)}; {run.operators} operators",
            )
        )
lesson.table(
    lines,
    ["", "bytes of weights and scales", "off by", "product"],
    evidence="live (CPU)",
    caption=f"two linear layers, {sum(m.weight.nbytes for m in model if isinstance(m, nn.Linear)):,} bytes in float32",
)

# %% [markdown]
# The bytes and errors are those of the formulas: there is no more to it. The count of operators is why torchao says
# `torch.compile` in the same breath: uncompiled, its dynamic int8 layers are *both in int8, op by op* of section 2. It also has
# `Int4WeightOnlyConfig`, float8, `SmoothQuantConfig` (prototype) and `QATConfig`, in two steps, *prepare* and
# *convert*. (The older
# `torch.ao.quantization`, still in many tutorials, is deprecated. Its warning, "will be removed in 2.10", sends its users to
# torchao; in torch 2.13 it is still there.)
#
# ## On the real GPU
#
# The layer of section 2, live where there is a CUDA GPU, else recorded. For this lesson nothing has been recorded yet, so
# without a GPU the cell says just that. What to look for on yours: is *one kernel* (`torch._weight_int8pack_mm`, which on
# CUDA computes each output in one thread, without Tensor Cores) anywhere near the simulated one with many tokens? And
# with 1 token, how far apart are bfloat16 and *both in int8, op by op*: that is launches.

# %% experiment
shown = recordings.show("13/int8_linear", simulated="H100")
if shown.evidence.startswith("simulated"):
    print("times: simulated only, and section 2 shows them.")
else:
    times = {(row["tokens"], row["way"]): row["us"] for row in shown.table}
    lesson.table(
        [(way, *(f"≈ {times[t, way]:,.0f} µs" for t in (1, 256, 4096))) for way in ways],
        ["4,096 → 4,096", "1 token", "256 tokens", "4,096 tokens"],
        evidence=shown.evidence,
    ).show()
measured_shapes = None
if torch.cuda.is_available() or recordings.load("13/int8_shapes") is not None:
    shown = recordings.show("13/int8_shapes")
    measured_shapes = shown.table
    lesson.table(
        [(r["rows"], r["size"], r["refused"] or f"≈ {r['us']:,.0f} µs") for r in shown.table],
        ["rows", "K = N", "torch._int_mm"],
        evidence=shown.evidence,
    ).show()
else:
    print(
        "no GPU here, and no recording of '13/int8_shapes' yet: which shapes _int_mm refuses was cited, not run."
    )

# %% [markdown]
# ## Sources on trial

# %% experiment tags=["fold"]
odd = [s for s in shapes if any(n % 16 for n in s)]
if measured_shapes is None:
    on_multiples = "untested on a GPU. On the CPU every size is right; CUDA's own rule is 8 (K and N) and more than 16 rows; NVIDIA's guide calls 16 the efficient one"
else:
    by_size = {r["size"]: r for r in measured_shapes if r["rows"] == 4096}
    slower = by_size[4104]["us"] / by_size[4096]["us"]
    on_multiples = (
        "refuted: multiples of 8 are taken and hardly slower"
        if not by_size[4104]["refused"] and slower < 1.1
        else "holds when speed is meant: multiples of 8 run too"
    )
few, many = (gain[t, "both in int8, op by op"] for t in (1, 4096))
claims = [
    (
        "13-multiples-of-16",
        "guide",
        "matrix sizes must be multiples of 16 for INT8",
        f"CPU: {sum(taken[s] for s in odd)} of {len(odd)} products with other sizes right; of all {len(shapes)} shapes CUDA's rule (cited) takes {sum(on_cuda.values())}",
        on_multiples,
        "2 · Multiply the integers",
    ),
    (
        "13-faster-inference",
        "five-strategies",
        "quantized training: INT8 speeds up inference further",
        f"op by op {few:.2f} (1 token) and {many:.2f} (4,096) times as fast as bfloat16, simulated; weights in one kernel "
        f"{gain[1, 'weights in int8, one kernel']:.2f} and {gain[4096, 'weights in int8, one kernel']:.2f}. Training with 8 "
        f"bits: ≈ {after[8]:.1f} → ≈ {aware[8]:.1f} % right",
        "holds when the tokens are few and the conversion is fused into the product, and not because of the training, which buys accuracy with few bits"
        if max(few, many) < 1 < gain[1, "weights in int8, one kernel"]
        else "confirmed",
        "2 · What do the bytes buy? and 4 · Train for the rounding",
    ),
    (
        "13-int4-lossless",
        "guide",
        "a native INT4 model: less latency and memory without loss",
        f"right answers of a small net: not rounded ≈ {right(exact_net):.1f} %; 4 bits, rounded after ≈ {after[4]:.1f} %, trained with it "
        f"≈ {aware[4]:.1f} %. Quality only; a model of that size was not run",
        "holds when the model was trained with its rounding, in quality (this small net, within half a percent); INT4's latency and memory were not run"
        if right(exact_net) - aware[4] < 0.5
        else "refuted",
        "4 · Train for the rounding",
    ),
]
lesson.verdicts(claims, evidence="live (CPU) · simulated (H100)")

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Half the points of the grid in use is twice the error. | Giving up a few rare large values may be better still: then the scale is a choice. |
# | Weights: symmetric, a scale per output row, 8 bits, no training. | With few bits (here 3): a scale per 32 to 128 numbers, or train with it. |
# | Activations: a scale per token, found while it runs. | One loud channel: smooth it first, or keep it apart. |
# | Scales must not depend on what is summed over. | Weight-only: x is not rounded, and groups along K are allowed. |
# | Few tokens: weight-only. Many: both operands. | Unfused, neither is faster than bfloat16. |
# | Quantized is smaller; only fused is it faster. | With many tokens, only where the hardware multiplies int8 faster. |
#
# **Checklist for your own code**
# - [ ] Is the aim memory, latency with few tokens, or throughput with many?
# - [ ] Does the grid fit each group: are there empty points?
# - [ ] Largest |x| per channel on calibration data: is any channel loud?
# - [ ] Does 0 come back as 0, and a row of zeros without nan?
# - [ ] Does a single token run, on CUDA too?
# - [ ] Compiled, and the accuracy measured on the task and not on the weights?
#
# **Read on**: torchao's documentation (*Quantization overview* and *Quantization-aware training*); B. Jacob and others,
# *Quantization and training of neural networks for efficient integer-arithmetic-only inference* (2018); T. Dettmers
# and others, *LLM.int8()* (2022); G. Xiao and others, *SmoothQuant* (2023); Y. Bengio and others, *Estimating or
# propagating gradients through stochastic neurons* (2013), for straight-through; S. Esser and others, *Learned step size
# quantization* (2020), where the scale learns too; NVIDIA, *Matrix multiplication background user's guide*.
