# %% [markdown]
# # 13 · Quantization
#
# ## When are eight bits enough?
#
# A number in int8 takes one byte, half of bfloat16. Weights in int8 need half the memory and are read in half the time, and an
# H100's Tensor Cores multiply int8, like float8, at up to twice the rate. The price is accuracy: all numbers that share a
# **scale** must make do with 256 integers. This lesson measures the price, shows what makes it explode, and shows why the gain in
# speed often does not arrive.
#
# **Time** 60 min, 23 of them for two exercises; *Further*: 44 min. **Before this** lesson 10 (number formats) and lesson 03
# (launches).
#
# **Afterwards you can**
# - quantize a tensor, say beforehand how large the error will be, and choose which numbers share a scale;
# - write a linear layer that stores int8 and multiplies int8, say why it is slower, and when int8 is faster;
# - recognise the one channel that makes the error explode.

# %% setup
import torch
from torch import nn
from torch.nn import functional as F

from helpers import lesson, recordings
from helpers.lessons.quantization import experiments

torch.set_num_threads(1)  # small tensors: more threads would mostly wait for one another
lesson.start("13_quantization", evidence=["live (CPU)", "simulated (H100)", "recorded (H100)"])

# %% [markdown]
# ## 1 · One byte and a scale
#
# To quantize a number is to write it as a small integer times a scale: x ≈ q · scale. The possible results, all multiples of
# the scale, are the **grid**. A number is rounded to the nearest point of the grid, so the error is at most half a scale. Where
# values spread over many points, all errors up to there are about equally frequent. Their root mean square is scale ÷ √12,
# about **0.29 scale**.
#
# - **Symmetric**: scale = largest |x| ÷ 127. The integers go from −127 to 127, and 0 stands for 0.
# - **Affine**: 256 integers are spread from min(smallest x, 0) to max(largest x, 0). The integer that stands for 0 is called
#   *zero*, and x ≈ (q − zero) · scale.


# %% experiment
def symmetric(x, bits=8, dim=None):
    """The matrix x, rounded. One scale for all of x; with dim, one for each row (0) or each column (1)."""
    most = 2 ** (bits - 1) - 1
    scale = (x.abs().amax() if dim is None else x.abs().amax(1 - dim, keepdim=True)) / most
    return (x / scale).round().clamp(-most, most) * scale


def affine(x):
    low, high = x.min().clamp(max=0), x.max().clamp(min=0)  # 0 is in the range, whatever x is
    scale = (high - low) / 255
    zero = (-128 - low / scale).round()
    q = ((x / scale).round() + zero).clamp(-128, 127)
    return (q - zero) * scale


# %% [markdown]
# Three changes to the scale. A row's error is taken as a share of the row, and the median row counts. (In the second question a row
# is a group of 32 numbers.) **How many times smaller does each change make the error?**

# %% experiment
you = lesson.predict(
    {
        "the output of a ReLU: affine in place of symmetric": ...,
        "random normal numbers: a scale for each 32 numbers in place of one for all": ...,
        "rows that grow by a fixed factor, largest number 0.2 in the first and 60 in the last: one scale a row in place of one for all": ...,
    },
    choices=[1, 2, 4, 16],
)

# %% experiment
dice = torch.Generator().manual_seed(0)
normal = torch.randn(512, 512, generator=dice)
after_relu, groups = normal.relu(), normal.reshape(-1, 32)
sizes = 0.2 * 300 ** torch.linspace(0, 1, 512)  # from 0.2 to 60
uneven = normal / normal.abs().amax(1, keepdim=True) * sizes[:, None]


def off(got, want):
    """The error as a share of what is wanted: of each row, then the median over the rows."""
    return float(((got - want).norm(dim=1) / want.norm(dim=1)).median())


errors = [
    (off(symmetric(after_relu), after_relu), off(affine(after_relu), after_relu)),
    (off(symmetric(groups), groups), off(symmetric(groups, dim=0), groups)),
    (off(symmetric(uneven), uneven), off(symmetric(uneven, dim=0), uneven)),
]
with_nine = off(symmetric(groups, bits=9), groups)
largest = float(normal.abs().max())
lesson.keep(largest=round(largest, 2), rule=round(0.29 * largest / 127, 4), of_one=round(errors[1][0], 4))
lesson.keep(of_groups=round(errors[1][1], 4), of_nine=round(with_nine, 4))
long_rows = normal.reshape(-1, 4096)
lesson.keep(bits_won=experiments.bits_won(off(symmetric(long_rows, dim=0), long_rows), errors[1][1]))
ratios = {question: before / after for question, (before, after) in zip(you, errors, strict=True)}
picture = experiments.number_lines(after_relu, uneven)
you.against_ratios(ratios, picture, evidence="live (CPU)", what="times smaller", shown="{:.1f}")

# %% [markdown]
# No value is near the orange points: they are wasted. If half of the grid is, the scale is twice as large as necessary, and
# so is the error: **one bit is lost**.
#
# - Affine wins that bit back where all values lie on one side of 0, as some activations do.
# - A scale for each row removes nearly all of the error of the small rows.
# - The largest of the random normal numbers is {{largest}}. With one scale the error should be 0.29 · {{largest}} ÷ 127 =
#   {{rule:.2%}} of their root mean square, which is 1. Measured: {{of_one:.2%}}. A scale for each group of 32 halves it, to
#   {{of_groups:.2%}}. But a float32 scale for 32 numbers is one bit more for each number, and a ninth bit of the integers gives
#   {{of_nine:.2%}}: about the same.
#
# So where weights are as even as these, one symmetric scale for each row will do with 8 bits. With 4 bits the error is 127 ÷ 7 ≈ 18
# times as large, and a 16-bit scale for each 32 numbers can pay. It costs half a bit. It wins one against one scale for all, and
# {{bits_won:.1f}} against one for a row of 4,096.
#
# Two details are often wrong:
#
# - **0 must come back as exactly 0**, since padding and masks rely on it. So *zero* is rounded to an integer, and 0 belongs to
#   the range even if all x lie above 0, as in `affine`.
# - int8 wraps around: 127 − (−128) gives −1. Convert to float before you subtract.

# %% [markdown]
# **Exercise 13.1 — quantize and dequantize** (★★, 9 min)
#
# Write both kinds of scale, for the whole tensor or for each index along `dim`. Tested: no element is off by more than half a
# scale, no scale is larger than necessary, each number takes one byte.
#
# <details><summary>Hint 1</summary>Let <code>others</code> be the tuple of all dimensions but one: <code>x.abs().amax(others,
# keepdim=True)</code> gives a scale that broadcasts. Count dimensions with <code>dim % x.dim()</code>. If x has only one
# dimension, <code>others</code> is empty, and <code>amax((), …)</code> would reduce everything: use <code>x.abs()</code>
# itself there.</details>
#
# <details><summary>Hint 2</summary>Affine: low and high as in <code>affine</code> above, zero = round(−2^(bits−1) − low ÷
# scale). A group of zeros has scale 0: put 1 there before you divide.</details>
#
# <details><summary>The idea</summary>Symmetric is the same with zero = 0 and another scale. Then <code>(x / scale).round()</code>,
# add zero, clamp to what the bits hold, <code>.to(torch.int8)</code>. Back: <code>(q.float() − zero.float()) · scale</code>.</details>


# %% exercise="quantize"
def quantize(
    x: torch.Tensor, bits: int = 8, dim: int | None = None, symmetric: bool = True
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """x (float32, not empty) as integers: (q, scale, zero) with x ≈ (q − zero) · scale.

    bits: 2 to 8, else ValueError. dim: None for one scale (shape ()), else one for each index along dim, other dimensions 1.
    Symmetric: scale = largest |x| ÷ most, most = 2^(bits−1) − 1; q int8 within ±most; zero None. Affine: scale =
    (high − low) ÷ (2^bits − 1); q int8 from −most − 1 to most; zero int8. Scales are float32; any above 0 for a group of zeros.
    Inputs: in each group the largest |x| is 0, or from 1e-25 to 1e25.

    Graded: each number comes back within half a scale, and 0 as exactly 0. Alive at once, for n numbers and k scales: at most
    13 · n bytes (three float32 temporaries and q) and 64 · k + 1 KiB. No .numpy(), no .tolist().
    """
    ### BEGIN SOLUTION
    if not 2 <= bits <= 8:
        raise ValueError(f"bits is from 2 to 8, not {bits}")
    others = tuple(d for d in range(x.dim()) if dim is None or d != dim % x.dim())

    def over(reduce):
        extreme = reduce(x, others, keepdim=dim is not None) if others else x
        return extreme.clone()

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
from helpers.lessons.quantization.exercises import check_dequantize, check_quantize

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
from helpers.lessons.quantization.exercises import check_dequantize, check_quantize

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
# Int8 weights save memory. To save multiplying time too, the integers themselves must be multiplied. Two int8 matrices, 64 × 256
# and 256 × 64, hold random integers from −127 to 127. **How many of the 4,096 results are right?**

# %% experiment
you = lesson.predict({"a @ b": ..., "torch._int_mm(a, b)": ...}, choices=["all", "most", "few"])

# %% experiment
a = torch.randint(-127, 128, (64, 256), generator=dice, dtype=torch.int8)
b = torch.randint(-127, 128, (256, 64), generator=dice, dtype=torch.int8)
exact = a.long() @ b.long()
products = {"a @ b": a @ b, "torch._int_mm(a, b)": torch._int_mm(a, b)}


def how_many(product):
    share = (product == exact).float().mean()
    return "all" if share == 1 else "most" if share > 0.5 else "few"


shares = {name: how_many(product) for name, product in products.items()}
you.against(shares, experiments.products_table(products, exact), evidence="live (CPU)", what="right")

# %% [markdown]
# `a @ b` returns int8, and on the CPU each sum wraps around without a warning. (On CUDA it
# [raises an error](https://github.com/pytorch/pytorch/issues/49890).) `torch._int_mm` returns int32. Its name is internal, but
# PyTorch 2.13 has no public operator for it, and torchao, PyTorch's library for quantization, calls it too. On CUDA it accepts
# `a` only with **more than 16 rows** (seen in PyTorch 2.11; a [change](https://github.com/pytorch/pytorch/pull/178469) was
# proposed), and columns of `a` and of `b` in multiples of 8. In a language model a row is a **token**: tests with 32 tokens pass,
# and a single token fails. So add rows of zeros, and cut them off the result.
#
# Where do the scales go? Let q and r be the integers of x and w, s one scale for each row of x, and t one for each row of w.
# Such scales do not depend on k, the index of the sum, and can be moved out of it:
#
# $$y_{mn} = \sum_k x_{mk} w_{nk} \approx \sum_k (s_m q_{mk})(t_n r_{nk}) = s_m\, t_n \sum_k q_{mk} r_{nk}$$
#
# The scales of x are computed when x arrives (**dynamic** quantization), the scales of w once. A scale for each *input channel* k
# cannot be moved out: each would need a sum of its own. Section 3 shows when that hurts.
#
# How large is the error of y? Each x is off by about s ÷ √12, each w by t ÷ √12. Such errors are nearly independent, so
# their squares add: √(s²/12 · Σw² + t²/12 · Σx²), with sums over k.

# %% [markdown]
# **Exercise 13.2 — a linear layer of integers** (★★★, 14 min)
#
# Write a module that replaces an `nn.Linear` at inference. It stores and multiplies bytes, and respects CUDA's rule, with a single
# token too.
#
# <details><summary>Hint 1</summary>In <code>__init__</code>, quantize the weight with one symmetric scale for each row (your
# <code>quantize(…, dim=0)</code> does that). Keep q, scale and bias with <code>self.register_buffer</code>: a Parameter in int8
# raises an error unless it says <code>requires_grad=False</code>.</details>
#
# <details><summary>Hint 2</summary>The scale of x has shape (rows, 1) and multiplies the rows of the result. The scale of the
# weight has shape (N,) or (1, N) and multiplies the columns. A row of zeros has scale 0, and 0 ÷ 0 is nan. So raise the
# row's <em>largest</em> with <code>clamp(min=1e-12)</code>, then divide by 127. (To raise the scale itself would spoil small
# rows.)</details>
#
# <details><summary>The idea</summary>In <code>forward</code>: flatten to (rows, K), compute a scale for each row, convert to
# int8, pad to at least 17 rows with <code>F.pad(q, (0, 0, 0, missing))</code>, call <code>torch._int_mm(q, self.weight.t())</code>,
# cut the added rows off, convert to float32, multiply by both scales, add the bias, restore the shape of x.</details>


# %% exercise="int8_linear"
class Int8Linear(torch.nn.Module):
    """y = x Wᵀ + b with W in int8, and x in int8 while it is multiplied. Int8Linear(linear) for a trained nn.Linear.

    forward(x): float32, (..., K) → (..., N); leading dimensions or none, at least one row; K and N are multiples of 8. One
    symmetric scale for each row of W and of x. A row is all 0 (then the result is the bias), or its largest number is from
    1e-12 to 1e12. A result stays as it is when the next batch comes.

    Graded: each error of a batch, divided by √(s²/12 · Σw² + t²/12 · Σx²) (see above); the root mean square of these is at
    most 1.3. One torch._int_mm of a shape that CUDA takes, and no other product; fewer than 17 rows are padded to 17–32.
    Kept, in the state_dict: a byte for a weight, 4 for a scale and for a bias. Alive in forward: 13 · R · K + 12 · R · N
    bytes and 4 KiB, with R = max(rows, 32). No .numpy(), .tolist().
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
from helpers.lessons.quantization.exercises import Layer, check_Int8Linear

check_Int8Linear(
    Layer(3, 512, 264, batches=((40,), (1,), (2, 3, 4))),
    Layer(4, 512, 64, batches=((20,),), bias=False),
    note="Two layers, the second without a bias. A row of x and a row of W are zeros.",
)


# %% hidden="int8_linear" points=4
### BEGIN HIDDEN TESTS
from helpers.lessons.quantization.exercises import Layer, check_Int8Linear

check_Int8Linear(
    Layer(5, 264, 512, batches=((17,), (16,), (2, 1), (3, 2, 5)), strided=True),
    Layer(6, 256, 512, batches=((2,), (33,), (), (4, 8)), bias=False, strided=True),
    Layer(7, 1024, 8, batches=((70,), (5, 12)), strided=True),
    Layer(8, 64, 24, batches=((20,), (20,), (3,), (20,)), bias=False, size=1e-8),
    Layer(10, 64, 24, batches=((20,), (33,)), bias=False, size=1e-9),
    Layer(9, 64, 24, batches=((20,), (3,)), bias=False, size=1e8),
)
### END HIDDEN TESTS


# %% [markdown]
# ### What do the bytes buy?
#
# One layer of 4,096 → 4,096 on a simulated H100. x and y are bfloat16 (but for the last way). The weights are bfloat16, or int8
# in one of four ways:
#
# - *weights in int8, converted first*: three operators convert the weights to bfloat16, multiply, and apply the scales;
# - *weights in int8, one kernel*: the kernel converts each weight as it reads it;
# - *both in int8, op by op*: the operators of your layer, one after another;
# - *both in int8, the product alone*: only `_int_mm`, x in int8, y in int32, with at least 32 rows.
#
# **Faster or slower than bfloat16, with kernels as good as they can be?** "Same" means within 5 %.

# %% experiment
you = lesson.predict(
    {
        "1 token, weights in int8, one kernel": ...,
        "1 token, weights in int8, converted first": ...,
        "4,096 tokens, weights in int8, one kernel": ...,
        "4,096 tokens, both in int8, op by op": ...,
    },
    choices=["faster", "same", "slower"],
)

# %% experiment
table = recordings.show("13/int8_linear", simulated="H100", prefer="simulated").table
us = {(row["tokens"], row["way"]): row["us"] for row in table}
gain = {(tokens, way): us[tokens, "bfloat16"] / us[tokens, way] for tokens, way in us}


def in_words(question):
    tokens, _, way = question.replace("4,096", "4096").partition(" ")
    ratio = gain[int(tokens), way.partition(", ")[2]]
    return "same" if abs(ratio - 1) <= 0.05 else "faster" if ratio > 1 else "slower"


speeds = {question: in_words(question) for question in you}
you.against(speeds, experiments.against_bfloat16(gain), evidence="simulated (H100)", what="than bfloat16")

# %% experiment tags=["fold"]
# the numbers of the text below
said = experiments.in_the_text(us)
lesson.keep(alone=said["alone"], fixed=said["fixed"], converted=said["converted"], by_ops=said["by ops"])
lesson.keep(product=said["product"], alone_recorded=said["alone, recorded"])
lesson.keep(many_recorded=said["alone, many, recorded"], product_recorded=said["product, recorded"])
lesson.keep(few_recorded=said["product, few, recorded"], bf16_peak=said["peak"], int8_peak=said["peak, int8"])
lesson.keep(operators=said["operators"], launch_recorded=said["launch, recorded"], launch=said["launch"])
lesson.keep(odd_size=said["odd size"], even_size=said["even size"])

# %% [markdown]
# **Few tokens**: most of the time goes into reading the weights. Half the bytes help a kernel that reads them itself: *one kernel*
# is {{alone:.2f}} times as fast with 1 token. Not twice, because in the simulation {{fixed:.0%}} of bfloat16's time
# does not shrink with the bytes. *Converted first* reads the weights, writes them, and reads them again: {{converted:.2f}} times as
# fast. Op by op, a single token pays for one launch after the other.
#
# **More tokens**: at the dotted line bfloat16 multiplies as long as it reads, both at the card's peak rates. At half as many tokens
# *one kernel*, which reads half as long, begins to lose its gain. At the line none is left, in the simulation at 256 tokens
# already.
#
# **Many tokens**: the time is the time to multiply. The int8 product alone is {{product:.2f}} times as fast, but the elementwise
# operators around it cost more than it saves: {{by_ops:.2f}} times as fast.
#
# **And on a real H100?** The recording (PyTorch 2.11; table under *On the real GPU*) flatters. The weights, 32 MiB in
# bfloat16, fit into the [L2 cache of 50 MB](https://developer.nvidia.com/blog/nvidia-hopper-architecture-in-depth/); a whole
# model's do not. So only large differences count:
#
# - What is slower in the simulation is slower there too.
# - *Weights in int8, one kernel* takes {{alone_recorded:.1f}} times as long as bfloat16 with 1 token, and {{many_recorded:,.0f}}
#   times as long with 4,096. `torch._weight_int8pack_mm` is
#   [a plain loop](https://github.com/pytorch/pytorch/blob/v2.11.0/aten/src/ATen/native/cuda/int8mm.cu) in float32, with conversions
#   around it: **one kernel is not yet a good kernel.** torch.compile can write a good one:
#   [gpt-fast](https://pytorch.org/blog/accelerating-generative-ai-2/) went from 107.0 to 157.4 tokens a second (Llama-2 7B, A100).
# - *The product alone*, 1 token padded to 32 rows, is {{few_recorded:.2f}} times as fast. But both times are below two launches on
#   that machine, and say little about reading. With 4,096 tokens it is {{product_recorded:.2f}} times as fast, where the simulation
#   says {{product:.2f}}: it reaches {{int8_peak:.0%}} of its peak, and bfloat16 {{bf16_peak:.0%}}.
#
# So for few tokens int8 is faster only where a compiler (lesson 11) or a library has fused the conversion into a *good* kernel. For
# many, both operands must be int8, and in the recording even their product gains little.

# %% [markdown]
# ## 3 · One loud channel
#
# In large language models a few input channels are 20 to 100 times as large as the ordinary ones, and the same channels in most
# tokens or in all ([Dettmers and others, 2022](https://arxiv.org/abs/2208.07339);
# [Xiao and others, 2023](https://arxiv.org/abs/2211.10438)). We call them **loud**. Here x holds random normal numbers, and one
# of its 256 channels is multiplied by 100. Each token has its own scale, and each row of the weights. With the loud number L, a
# number below ½ · |L| ÷ 127 becomes 0. How large is |L|, usually?

# %% experiment
you = lesson.predict(
    {"ordinary numbers of x that become exactly 0, about": ..., "the larger error comes from rounding": ...},
    choices={
        "ordinary numbers of x that become exactly 0, about": ["none", "5 %", "25 %", "75 %"],
        "the larger error comes from rounding": ["x", "the weights"],
    },
)

# %% experiment
x, weight = torch.randn(256, 256, generator=dice), torch.randn(256, 256, generator=dice) / 16
x[:, 37] *= 100
ordinary = torch.arange(256) != 37
want, quiet = x @ weight.t(), x[:, ordinary] @ weight[:, ordinary].t()


def output_off(x, weight, want=want):
    """The error of the output, as a share of what the ordinary channels add to the output."""
    return float((x @ weight.t() - want).norm() / quiet.norm())


rounded = symmetric(x, dim=0)
lost = float((rounded[:, ordinary] == 0).float().mean()) * 100
errors = {
    "the weights": output_off(x, symmetric(weight, dim=0)),
    "x": output_off(rounded, weight),
    "both": output_off(rounded, symmetric(weight, dim=0)),
    "both, without the loud channel": output_off(
        symmetric(x[:, ordinary], dim=0), symmetric(weight[:, ordinary], dim=0), want=quiet
    ),
}
without = errors["both, without the loud channel"]
lesson.keep(times=round(errors["both"] / without), whole=round(float(want.norm() / quiet.norm())))
near = min([0, 5, 25, 75], key=lambda percent: abs(percent - lost))
answers = ["none" if near == 0 else f"{near} %", max(["x", "the weights"], key=errors.get)]
you.against(
    dict(zip(you, answers, strict=True)), experiments.errors_table(errors, lost), evidence="live (CPU)"
)

# %% [markdown]
# The whole output is {{whole}} times as large as what the 255 ordinary channels add to it. A share of the whole would hide what they
# lose.
#
# The loud channel sets the scale of nearly every token: the others have few points of the grid left. The weights suffer too, because
# the loud x multiplies their rounding errors. Together the error is {{times}} times the error without the loud channel. SmoothQuant
# moves the difficulty from x to the weights beforehand; you build it under *Further*. LLM.int8() computes
# the loud channels apart, in 16 bits.

# %% [markdown]
# ## The running example
#
# Training gains nothing from int8 here: the backward pass and AdamW work with float32 weights. The trained model does. Below, each
# of its linear layers keeps int8 and one scale a row, and makes float32 of them when it is called.


# %% experiment
class StoredInInt8(nn.Module):
    def __init__(self, linear):
        super().__init__()
        weight, self.bias = linear.weight.detach(), linear.bias
        self.register_buffer("scale", weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127)
        self.register_buffer("rows", (weight / self.scale).round().to(torch.int8))

    def forward(self, x):
        return F.linear(x, self.rows * self.scale, self.bias)


def in_int8(model):
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear):
            model.set_submodule(name, StoredInInt8(module))


# %% experiment
from helpers import count, running_example
from helpers.running_example import plain as plain_script

model = running_example.trained(running_example.after("08"), steps=40)
inputs, targets = next(plain_script.batches(plain_script.text(), running_example.SMALL, 1))
stored, operators = {}, {}
for form in ("float32", "int8"):
    if form == "int8":
        in_int8(model)
    with torch.no_grad():
        ran = count(plain_script.forward, model, inputs, targets)
    stored[form] = sum(tensor.nbytes for tensor in model.state_dict().values())
    operators[form] = ran.operators
    print(
        f"{form:8} {stored[form]:>9,} bytes, {ran.operators} operators in a forward pass, loss {ran.result[1]:.2f}"
    )
lesson.keep(script_mib=stored["float32"] / 2**20, script_mib_now=stored["int8"] / 2**20)
lesson.keep(script_operators=operators["float32"], script_operators_now=operators["int8"])

# %% [markdown]
# The stored model shrinks from {{script_mib:.1f}} to {{script_mib_now:.1f}} MiB, and the loss hardly changes. Each forward pass has
# {{script_operators_now}} operators in place of {{script_operators}}: every layer first writes its weights as float32. This form
# saves memory, not time.

# %% [markdown]
# ## Your own script
#
# Rounding weights pays where linear layers hold most of the bytes. Rounding x as well hurts where one input channel is much larger
# than the others. So look at each linear layer first. Where a channel stands out as in section 3, round only the weights, or
# smooth. Try [torchao](https://github.com/pytorch/ao) (`quantize_(model, Int8WeightOnlyConfig())`, then `torch.compile`), and
# measure the accuracy on your task.

# %% experiment
from helpers.own_script import toy

model, optimizer, loss_fn, loader, device, step = toy()  # at home: your own

linears = {n: m for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
largest, hooks = {}, []
for name, layer in linears.items():

    def look(layer, given, name=name):
        channels = given[0].detach().flatten(0, -2).abs().amax(0)
        used = channels[channels > 0]  # others are 0 in this batch
        largest[name] = float(used.max() / used.median()) if len(used) else 0.0

    hooks.append(layer.register_forward_pre_hook(look))
step(next(iter(loader)))
for hook in hooks:
    hook.remove()
for name in largest:
    matrix = linears[name].weight.detach()
    unit = (matrix.abs().amax(1, keepdim=True) / 127).clamp(min=torch.finfo(matrix.dtype).tiny)
    error = float(((matrix / unit).round() * unit - matrix).norm() / matrix.norm())
    print(
        f"{name}: {matrix.numel():,} weights, off by {error:.1%}, largest channel {largest[name]:.0f} × median"
    )

# %% [markdown]
# Both layers of the toy are harmless: errors well under one per cent, no channel that stands out.

# %% [markdown]
# ## On the real GPU
#
# The layer of section 2, live where there is a CUDA GPU; elsewhere recorded on an H100. The second table: shapes that `_int_mm`
# takes, and its answer where it refuses.

# %% experiment
measured_shapes = experiments.on_real_gpu(us)

# %% [markdown]
# With 1 token, *both in int8, op by op* is mostly launches: {{operators}} operators, about {{launch_recorded:.0f}} µs for each on
# the machine of the recording, {{launch:.1f}} µs in the simulation.
#
# The two refusals are the rule of section 2. A size of 4,104, a multiple of 8 and not of 16, took {{odd_size:.1f}}
# times as long as 4,096 on the recorded H100; 4,112, a multiple of 16 alone, {{even_size:.1f}} times. The simulator knows neither.

# %% [markdown]
# ## Sources on trial
#
# *Further* tries two more.

# %% experiment
from helpers.lessons.quantization import claims

lesson.verdicts([claims.multiples_of_16(measured_shapes)], evidence="live (CPU) · recorded")

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Half of the grid without values doubles the error: choose the range by the values. | A few rare large values set the range: to cut them off may be better. |
# | Weights: symmetric, a scale for each output row, 8 bits, no training. | With 4 bits and fewer: a scale for each 32 to 128 numbers, or train with the rounding. |
# | Activations: a scale for each token, computed when they arrive. | One loud channel: smooth it first, or compute it apart. |
# | A scale must not depend on the index of the sum. | Weight-only: x is not rounded. Blocks along k: a sum and a scale for each block, as in float8. |
# | Few tokens: weight-only. Many tokens: only both operands can win. | Not fused, or in a poor kernel, neither is faster than bfloat16. |
#
# **Read on**: [torchao's documentation](https://docs.pytorch.org/ao/stable/index.html); [B. Jacob and others, 2018](https://arxiv.org/abs/1712.05877), on
# integer-only inference; NVIDIA's [guide to matrix multiplication](https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html).

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# | section | minutes |
# |---|---|
# | Smooth a loud channel, with exercise 13.3 | 18 |
# | Train for the rounding, with exercise 13.4 | 21 |
# | Two more claims on trial | 2 |
# | What one would use: torchao | 3 |
#
# ### Smooth a loud channel
#
# In each channel, x · w = (x ÷ s) · (w · s) for any s. So **divide the loud channel of x by s, and multiply the column of the
# weights by s, before anything is rounded.** SmoothQuant shares the difficulty between x and the weights:
#
# $$s_k = \max|x_k|^{\,\alpha} \,/\, \max|w_k|^{\,1-\alpha}$$
#
# With α = 0 all columns of the weights become equally large. With α = 1 all channels of x do.

# %% experiment
alphas = [i / 20 for i in range(21)]


def smoothed(alpha):
    s = x.abs().amax(0) ** alpha / weight.abs().amax(0) ** (1 - alpha)
    return x / s, weight * s


curves = {
    "both": [output_off(symmetric(a, dim=0), symmetric(w, dim=0)) for a, w in map(smoothed, alphas)],
    "only x": [output_off(symmetric(a, dim=0), w) for a, w in map(smoothed, alphas)],
    "only the weights": [output_off(a, symmetric(w, dim=0)) for a, w in map(smoothed, alphas)],
}
lesson.keep(stays=round(curves["both"][10] / without, 1))
experiments.smoothing_curves(alphas, curves, without)

# %% [markdown]
# At the left x is hard to round, at the right the weights are. SmoothQuant's default is the middle. Most of the damage is gone
# there, but the error is still {{stays}} times the error without a loud channel, because x and the weights now share the
# difficulty. The division costs nothing at run time: x usually comes out of a LayerNorm, whose weight and bias can be divided
# beforehand.
#
# **Exercise 13.3 — smooth an outlier channel** (★★, 9 min)
#
# Smooth in place, for a LayerNorm and *all* linear layers that read its output (such as q, k and v). They share one s. `amax`
# was collected on **calibration** data: a few typical inputs that were run through the trained model.
#
# <details><summary>Hint 1</summary>What is max|w_k| when three layers read channel k? The division can be made only once, so
# take the largest over all three.</details>
#
# <details><summary>Hint 2</summary>The output of the LayerNorm is norm · weight + bias: both must be divided. A weight has shape
# (N, K), so <code>weight.mul_(s)</code> broadcasts over its rows as it should. Work under
# <code>torch.no_grad()</code>.</details>
#
# <details><summary>The idea</summary>Loop over the linear layers for the running <code>torch.maximum</code> of
# <code>weight.abs().amax(0)</code>; compute s by the formula; set <code>s[(amax == 0) | (wmax == 0)] = 1</code>; then two
# <code>div_</code>, and a <code>mul_</code> for each linear layer.</details>


# %% exercise="smooth"
def smooth(
    norm: torch.nn.LayerNorm, linears: list[torch.nn.Linear], amax: torch.Tensor, alpha: float = 0.5
) -> None:
    """Make the output of norm easier to round, in place; every linear(norm(x)) stays as it was.

    norm: over K channels, with weight and bias. linears: all that read its output, weights of shape (N, K), N may
    differ, no weight in two of them. amax: (K,), the largest |norm(x)| of each channel on calibration data; unchanged.

    s = amax^alpha ÷ wmax^(1 − alpha), with wmax the largest |weight| of the channel over all linears; s = 1 where
    either is 0. The same nn.Parameters hold the new numbers. Biases of the linears do not change.
    Budgets: nothing lives on (0 bytes), not even a copy in a Parameter's place; meanwhile at most one temporary
    of the largest weight's size, and 64 bytes a channel and 1 KiB; as many operators in the forward as before.
    Without .numpy() and .tolist().
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
from helpers.lessons.quantization.exercises import Block, check_smooth

single = "One linear, 96 channels, one of them loud; alpha one half, then 0.8."
check_smooth(Block(7, 96, (64,), {5: 100.0}), Block(7, 96, (64,), {5: 100.0}, alpha=0.8), note=single)
three = "Three linears that read one norm. Channel 50 is silent, and nobody reads channel 11: s = 1 there."
check_smooth(Block(8, 96, (96, 64, 32), {5: 100.0}, silent=(50,), unread=(11,)), note=three)


# %% hidden="smooth" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.quantization.exercises import Block, check_smooth

check_smooth(
    Block(9, 64, (64, 128), {0: 60.0, 63: 200.0}),
    Block(10, 128, (48, 16, 96, 8), {77: 100.0}, silent=(4,), unread=(5, 6), faint=(9,)),
    Block(11, 80, (40, 40), {10: 50.0}, silent=(0,), unread=(1,), alpha=0.8),
    Block(12, 80, (40, 24), {10: 50.0}, silent=(7,), unread=(8,), alpha=0.0),
    Block(13, 80, (40, 56), {10: 50.0}, silent=(7,), unread=(8,), alpha=1.0),
)
### END HIDDEN TESTS


# %% [markdown]
# Your `smooth` on a layer like that of section 3, behind a LayerNorm whose weight makes the channel loud:

# %% experiment
experiments.try_smooth(smooth, symmetric)

# %% [markdown]
# ### Train for the rounding
#
# With few bits rounding hurts, however well the scale is chosen. The model can then be **trained with its rounding**
# (quantization-aware training). Every forward rounds the weights, and the optimizer keeps the exact weights. The gradient of
# rounding is 0 almost everywhere, so nothing would learn. Backward therefore treats the rounding as if it were not there. This
# is the **straight-through** estimate ([Bengio and others, 2013](https://arxiv.org/abs/1308.3432)).
#
# A small net separates three spirals. Only its weights are rounded: after the training, or during 80 more steps of training.
# (With 2 bits a weight is −1, 0 or 1 times its scale.)
# **Of 100 new points, about how many are right?** Chance gives 33.

# %% experiment
you = lesson.predict(
    {
        "8 bits, rounded after": ...,
        "3 bits, rounded after": ...,
        "2 bits, rounded after": ...,
        "2 bits, trained with it": ...,
    },
    choices=[35, 70, 90, 97, 99],
)

# %% experiment
spirals = experiments.Spirals()
exact_net = spirals.exact()
after, aware = {}, {}
for width in (8, 6, 5, 4, 3, 2):
    after[width] = spirals.right(exact_net, width)
    aware[width] = spirals.right(spirals.trained(exact_net, 80, 0.003, bits=width), width)
right = {q: (aware if "trained" in q else after)[int(q[0])] for q in you}
picture = experiments.bits_curves(after, aware)
you.against_ratios(right, picture, evidence="live (CPU)", what="right", shown="≈ {:.1f}")

# %% [markdown]
# At 8 bits there is nothing to win. At 3 bits the curves have parted, and a short training with the rounding recovers most of
# the loss. The training does not make the model *faster*: both end as integers of as many bits. The training buys fewer bits.
#
# The exact rule for the gradient: inside the range of the grid the gradient is passed on as it is. Outside, where the value was
# clamped, moving the weight changes nothing, and the gradient is 0. (In the run above no weight lies outside, because the
# largest weight sets the scale. The rule matters where the scale is fixed, learned
# ([Esser and others, 2020](https://arxiv.org/abs/1902.08153)), or cuts off a few large values.)

# %% [markdown]
# **Exercise 13.4 — straight through** (★★, 10 min)
#
# Write the rounding with its gradient, and a training loop that uses it. Do it without `torch.fake_quantize_…`.
#
# <details><summary>Hint 1</summary>The shortest way is an identity: <code>c + (value − c).detach()</code> has the value of
# <code>value</code> and the gradient of <code>c</code>. The other way is an <code>autograd.Function</code>.</details>
#
# <details><summary>Hint 2</summary>Which c has gradient 1 inside and 0 outside? <code>w.clamp(…)</code> at (most + ½) scales, in one
# call: <code>torch.minimum</code> and <code>torch.maximum</code> would keep a second tensor. Compute <code>value</code> from
# <code>w.detach()</code>. In an <code>autograd.Function</code>: <code>ctx.save_for_backward(mask)</code>, and nothing else.</details>
#
# <details><summary>The idea</summary>The loop: for each step, h = x; for each layer of net, a Linear becomes
# <code>F.linear(h, fake_quantize(layer.weight, scale, bits), layer.bias)</code> with the scale from
# <code>layer.weight.detach()</code> as it is now; then loss, backward, and p −= lr · p.grad under no_grad.</details>


# %% exercise="fake_quantize"
def fake_quantize(w: torch.Tensor, scale: torch.Tensor, bits: int = 8) -> torch.Tensor:
    """w rounded to bits and back: clamp(round(w ÷ scale), −most, most) · scale, most = 2^(bits−1) − 1.

    w: an nn.Parameter or any tensor; scale: above 0, broadcasts against w, no gradient. The gradient of w is the
    output's where |w| < (most + ½) · scale, and 0 beyond (just there: either). Without torch.fake_quantize_….
    Budget: of what it allocates, the result lives on after the forward, and for backward one byte per element (a
    mask) and 16 per scale. To keep w itself for backward costs nothing.
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
    layers, such as a LayerNorm with parameters, as they are. Loss: F.mse_loss(output, y). Step: every parameter
    (none is frozen) p −= lr · gradient of this step alone. Weights stay exact (float) in net, which is plain again
    afterwards; its .grad is None before and may be anything afterwards. A row of zeros stays finite, whether it
    learns or not. No syncs (.item() and the like).
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
from helpers.lessons.quantization.exercises import check_fake_quantize

g = torch.Generator().manual_seed(14)
for scale, bits, note in (
    (torch.tensor(0.02), 8, "Nothing is clamped here: the gradient passes everywhere."),
    (torch.tensor(0.3), 3, "The grid ends at 0.9: beyond 1.05 the gradient is 0."),
    (torch.rand(30, 1, generator=g) + 0.2, 2, "A scale per row."),
):
    w = torch.nn.Parameter(torch.randn(30, 50, generator=g) / 2)
    check_fake_quantize(check.case(w, scale, bits), note=note)


# %% test="fake_quantize" points=1
from helpers.lessons.quantization.exercises import Training, check_train_quantized

check_train_quantized(Training(15, (3, 8, 2), bits=8, steps=1, lr=0.1), note="One step.")
note = (
    "12 steps: the scale of each step's own weights, the exact weights kept, the gradient of each step alone?"
)
check_train_quantized(Training(15, (3, 8, 2), bits=3, steps=12, lr=0.2), note=note)
note = "A row of zeros has scale 0, and 0 ÷ 0 is nan: guard it before dividing."
check_train_quantized(Training(15, (3, 8, 2), bits=3, steps=2, lr=0.1, dead=True), note=note)


# %% hidden="fake_quantize" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers import check
from helpers.lessons.quantization.exercises import check_fake_quantize

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
from helpers.lessons.quantization.exercises import Training, check_train_quantized

check_train_quantized(
    Training(17, (4, 10, 10, 3), bits=4, steps=15, lr=0.1, mixed=True),
    Training(18, (6, 2), bits=2, steps=20, lr=0.05, mixed=True),
    Training(19, (3, 6, 2), bits=3, steps=3, lr=0.1, dead=True, mixed=True),
    Training(20, (5, 7, 3), bits=3, steps=0, lr=0.1, mixed=True),
)
### END HIDDEN TESTS


# %% [markdown]
# Your loop on one net (the picture shows the mean of three), trained to give the exact net's answers to the training points:

# %% experiment
experiments.try_training(train_quantized, spirals, exact_net)

# %% [markdown]
# ### Two more claims on trial

# %% experiment
lesson.verdicts(
    claims.of_nets(gain, experiments.recorded_gains(), spirals),
    evidence="live (CPU) · simulated (H100) · recorded",
)

# %% [markdown]
# ### What one would use
#
# In production one uses [torchao](https://github.com/pytorch/ao): `quantize_(model, config)` replaces the weight of each linear
# layer by a tensor that holds int8 and scales. torchao is an optional part of this course (`make lab EXTRAS=models`).

# %% experiment tags=["nbval-ignore-output"]
model, sample = experiments.small_model()
experiments.torchao_table(model, sample, own=Int8Linear)

# %% [markdown]
# The bytes are those of your layer, and so is the error of the dynamic layers. Weight-only has half that error here, because x
# is not rounded. Without `torch.compile`, the dynamic layers call even more operators than yours: they are the *op by op* of
# section 2. torchao also has 4-bit weights, float8, SmoothQuant (a prototype) and quantization-aware training. The older
# `torch.ao.quantization`, still in many tutorials, is deprecated.
