# %% [markdown]
# # 10 · Mixed precision
#
# ## What do I lose with half the bits?
#
# A number in 16 bits is half the bytes to move and, in a Tensor Core, a fraction of the time to multiply. The
# missing bits come out of the **exponent**, how large and how small a number can be, or out of the **mantissa**,
# how finely numbers lie beside each other. Which of the two lost them decides what breaks: a loss that turns
# into NaN, gradients that are silently zero, weights that no longer move. Mixed precision uses fewer bits only
# where that changes no result.
#
# **Time** 75–90 min, more than half of it exercises. **Before this** lessons 00 to 02 and 06 (the simulated GPU,
# autograd, optimizers).
#
# **Afterwards you can**
# - say what a format does to a number: range, rounding, underflow, swamping;
# - place casts by hand, read what autocast does, and write the scaler that fp16 needs;
# - see which shapes waste Tensor Cores, and pad them.
#
# **On trial** *1.8 to 2.5 times as fast, 35 to 40 % less memory* · *scaling the loss keeps gradients from
# vanishing* (five strategies) · *set some layers to half by their name* (300 %) · *forward tensors are large,
# gradients small* (book notes) · *dimensions in multiples of 8, or 16* (guide).

# %% setup
import math

import torch
import torch.nn.functional as F

from helpers import lesson, plots, simulate

torch.set_num_threads(1)  # small tensors: more threads would mostly wait for one another
lesson.start(
    "10_mixed_precision",
    evidence=["arithmetic", "live (CPU)", "published", "simulated (H100)", "simulated (A100)"],
)

# %% [markdown]
# ## 1 · Range and precision
#
# `fp16` (`torch.float16`) has 5 bits of exponent and 10 of mantissa, `bf16` (`torch.bfloat16`) 8 and 7. What
# becomes of each number: `"same"`, `"rounded"` to a neighbour, `"inf"`, or `"zero"`?

# %% experiment
prediction = {
    "70,000 in fp16": ...,
    "70,000 in bf16": ...,
    "2,049 in fp16": ...,
    "257 in fp16": ...,
    "257 in bf16": ...,
    "1e-8 in fp16": ...,
    "1e-8 in bf16": ...,
}

# %% experiment
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def became(value, got):
    return "same" if got == value else "zero" if got == 0 else "inf" if math.isinf(got) else "rounded"


kept = {}
for question in prediction:
    number, _, name = question.partition(" in ")
    value = float(number.replace(",", ""))
    kept[question] = became(value, torch.tensor(value, dtype=torch.float64).to(DTYPES[name]).item())
lesson.compare_predictions(
    prediction, kept, evidence="live (CPU)", what="becomes", choices=["same", "rounded", "inf", "zero"]
)

# %% [markdown]
# Here are all formats that matter, on one number line, and then an **explorer**: type a number, choose a format,
# flip its bits. (Try 1, then *one value up*; *largest*, then one up; *smallest*, then one down.)

# %% experiment
plots.float_ranges()

# %% experiment
from helpers import widgets

widgets.float_format_explorer(257.0, "bf16")

# %% [markdown]
# In the explorer's picture a column is a place: all exponents end, and all mantissas begin, at the same one.
#
# - **bf16** is fp32 with its tail cut off: the same range, and 2 to 3 decimal digits.
# - **fp16** has 3 to 4 digits, but above 65,504 there is nothing but infinity, and below about 6·10⁻⁸ nothing but
#   zero. Between there and 6·10⁻⁵ its numbers are *subnormal*: the leading 1 is gone, and with each power of two
#   downwards a bit of precision.
# - **TF32** is no dtype. Tensors stay fp32 in memory, and Tensor Cores read 19 bits of each: fp16's mantissa,
#   fp32's exponent. It saves time and no byte. (`torch.set_float32_matmul_precision("high")` switches it on
#   for matmuls; for cuDNN's convolutions
#   [it is on by default](https://docs.pytorch.org/docs/2.13/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices).)
# - **FP8** comes as a pair: `e4m3` for weights and activations, `e5m2` for gradients, whose range is wider. E4M3 gives
#   up infinity for one more power of two. With so little range each tensor carries a scale of its own.
#
# What does rounding cost, then? A thousand numbers from a normal distribution, as they are and divided by
# 10,000, as gradients often are:

# %% experiment tags=["fold"]
from helpers.plots.float_format import FORMATS

normal = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def loss_of(f, values, scale=1.0):
    """Relative error (root mean square), and the share of values that became 0."""
    got = torch.tensor([f.rounded(v) for v in (values * scale).tolist()], dtype=torch.float64) / scale
    return ((got - values).norm() / values.norm()).item(), (got == 0).double().mean().item()


rows = []
for name, f in FORMATS.items():
    error, _ = loss_of(f, normal)
    small, gone = loss_of(f, normal / 1e4)
    scaled, _ = loss_of(
        f, normal / 1e4, scale=2.0 ** math.floor(math.log2(f.largest / normal.abs().max() * 1e4))
    )
    rows.append((name, f"{error:.1e}", f"{small:.1e}", f"{gone:.0%}", f"{scaled:.1e}"))
lesson.table(
    rows,
    ["format", "error", "of 1/10,000 of it", "of which zero", "scaled up, cast, scaled down"],
    evidence="arithmetic",
    caption="root mean square of the error, relative to that of the numbers; the scale is a power of two that just fits",
)

# %% [markdown]
# Error follows the mantissa alone, as long as the range holds. A power of two as scale costs no digit and brings
# the range back. That is the whole idea behind FP8's scales, and behind **loss scaling**: multiply the loss before
# `backward()`, so that all gradients are larger by that factor while they are in few bits, and divide them again
# before the optimizer reads them (section 3).
#
# Now **swamping**. A sum of large and small loses the small one when it is at most half the distance to the next
# number (exactly half is a tie, and a tie goes to the neighbour whose last bit is 0). Start at 0 and add 1, again and
# again, in one format: **at which number does the count
# stand still?** And where does `torch.ones(100_000).sum()` end up?

# %% experiment
prediction = {
    "fp16: x += 1 stops at": ...,
    "bf16: x += 1 stops at": ...,
    "fp16: ones(100_000).sum()": ...,  # 2048, 65504, 100000 or "inf"
}


# %% experiment
def count_up(dtype):
    x = torch.zeros((), dtype=dtype)
    while (x + 1) != x:
        x += 1
    return int(x.item())


def after_updates(dtype, updates=1000):
    weight = torch.ones((), dtype=dtype)
    for _ in range(updates):
        weight -= 0.001
    return weight.item()


def summed(dtype):
    total = torch.ones(100_000, dtype=dtype).sum().item()
    return "inf" if math.isinf(total) else f"{total:,.0f}"


counted = {f"{name}: x += 1 stops at": count_up(dtype) for name, dtype in DTYPES.items()}
lesson.compare_predictions(
    prediction,
    {**counted, "fp16: ones(100_000).sum()": float(summed(torch.float16))},
    evidence="live (CPU)",
    what="is",
    choices=dict(
        zip(prediction, (range(100_001), range(100_001), ("inf", 2048, 65_504, 100_000)), strict=True)
    ),
).show()
lesson.table(
    [
        (name, f"{dtype}".removeprefix("torch."), summed(dtype), f"{after_updates(dtype):.3f}")
        for name, dtype in {"fp32": torch.float32, **DTYPES}.items()
    ],
    ["format", "dtype", "`ones(100_000).sum()`", "a weight of 1 after 1,000 updates of −0.001"],
    evidence="live (CPU)",
)

# %% [markdown]
# The count stops at 2 to the power of one more than the mantissa's bits: beyond, numbers lie 2 apart. `sum` does not
# count like that: kernels (and Tensor Cores) add up in fp32 and round once at the end, so bf16's sum is right to
# its three digits, and fp16's is right too: its answer is simply out of range. **A single operator in half
# precision is nearly harmless; what hurts is half precision from one operator to the next**, in a
# running sum, a residual stream, a weight. The last column is the reason for **master weights**: an update is
# often a thousandth of its weight, and bf16 cannot tell the two apart.

# %% [markdown]
# **Exercise 10.1 — decode and round by hand** (★★, 15 min)
#
# Write both directions, for any number of bits, on whole tensors. A format has `exponent` = E and `mantissa` = M
# bits behind its sign, and bias 2^(E−1) − 1:
#
# | stored exponent e | value |
# |---|---|
# | 0 | (−1)^s · 2^(1 − bias) · m ÷ 2^M (subnormal numbers, and zero) |
# | 1 … 2^E − 2 | (−1)^s · 2^(e − bias) · (1 + m ÷ 2^M) |
# | 2^E − 1, all ones | m = 0: infinity, else NaN |
#
# <details><summary>Hint 1</summary>Decoding: cut the three fields out with <code>&gt;&gt;</code> and <code>&amp;</code>. Both finite
# lines of the table are one: (m, plus 2^M unless e = 0) · 2^(max(e, 1) − bias − M).</details>
#
# <details><summary>Hint 2</summary>Encoding: neighbours of |x| lie 2^q apart, and q needs only the exponent of |x|, which
# <code>torch.frexp</code> gives exactly; it is never less than 1 − bias − M. Divide by 2^q, and <code>torch.round</code>
# does the rest: it rounds halves to the even number. float64 has room for all of it.</details>
#
# <details><summary>The idea</summary>The magnitudes' bit patterns count upwards without a gap: 0, smallest subnormal, …,
# largest, infinity. So the pattern is (|x| ÷ 2^q, rounded) plus (q + M + bias − 1) · 2^M, and a mantissa that rounds up to
# 2^(M+1) carries into the exponent by itself. What passes the largest lands on infinity's pattern or above: clamp. Then
# NaN, and the sign.</details>


# %% exercise="float_bits"
def decode(bits: torch.Tensor, exponent: int, mantissa: int) -> torch.Tensor:
    """The values of bit patterns.

    bits: int64, any shape, each from 0 to 2^(1 + exponent + mantissa) − 1. exponent: 2 to 8, mantissa: 1 to 23.
    Returns float64 of that shape, exact. Budget: 60 operators however many numbers there are, no syncs.
    """
    ### BEGIN SOLUTION
    bias, top = 2 ** (exponent - 1) - 1, 2**exponent - 1
    sign = 1.0 - 2.0 * (bits >> (exponent + mantissa))
    e, m = (bits >> mantissa) & top, bits & (2**mantissa - 1)
    size = (m + (e > 0) * 2**mantissa).double() * torch.exp2((e.clamp(min=1) - bias - mantissa).double())
    special = torch.where(m == 0, math.inf, math.nan)
    return sign * torch.where(e == top, special, size)
    ### END SOLUTION


def encode(x: torch.Tensor, exponent: int, mantissa: int) -> torch.Tensor:
    """The bit patterns of the values nearest to x; of two equally near, the one whose last bit is 0.

    x: float32, any shape and strides; left as it is, like bits above. exponent: 2 to 8, mantissa: 1 to 23. Returns int64 of that shape. What rounds beyond
    the largest value is infinite. −0.0 keeps its sign. NaN, whatever its sign, becomes sign 0, all ones in the
    exponent, and of the mantissa the highest bit alone. Budget as above.
    """
    ### BEGIN SOLUTION
    bias, top = 2 ** (exponent - 1) - 1, (2**exponent - 1) << mantissa
    size = x.double().abs()
    power = torch.frexp(size.clamp(2.0 ** (1 - bias), 2.0**128)).exponent - 1
    q = power.long() - mantissa
    steps = torch.round(size.clamp(max=2.0**128) * torch.exp2(-q.double())).nan_to_num().long()
    bits = (steps + ((q + mantissa + bias - 1) << mantissa)).clamp(max=top)
    bits = bits + (torch.signbit(x).long() << (exponent + mantissa))
    return torch.where(x.isnan(), top + 2 ** (mantissa - 1), bits)
    ### END SOLUTION


# %% test="float_bits" points=1
import torch

from helpers.exercises.mixed_precision import check_decode, check_encode

half, brain, fp8 = (5, 10), (8, 7), (5, 2)  # bits of the exponent, of the mantissa
some = [0x3C00, 0x3C01, 0x4248, 0xC248, 0x7BFF, 0, 1, 0x03FF, 0x0400, 0x8001, 0x7C00, 0xFC00, 0x7C01, 0x7E00]
check_decode({half: some, fp8: range(256), brain: torch.arange(2**16).reshape(256, 256)})
check_encode({half: [1.0, -2.5, 3.1415927, 0.1, 65504.0, 2049.0, 2051.0, 2053.0, 1.00048828125, -2049.0]})
check_encode({half: [1e-5, 6e-8, 3e-8, 2.9e-8, 6.1e-5, -1e-30, 65519.0, 65520.0, 1e30, -7e4]})
check_encode({half: [0.0, -0.0, float("inf"), -float("inf"), float("nan")], (3, 2): [0.05, 0.3, 1.1, 13, 15]})
many = torch.randn(8, 500, generator=torch.Generator().manual_seed(1)).exp()
check_encode(dict.fromkeys((half, brain, fp8), many))

# %% hidden="float_bits" points=3
### BEGIN HIDDEN TESTS
import torch

from helpers.exercises.mixed_precision import check_decode, check_encode, hard_numbers, random_patterns

formats = [(5, 10), (8, 10), (8, 7), (4, 3), (3, 2), (2, 1), (6, 9), (7, 4), (5, 1), (8, 1), (2, 12)]
check_decode({one: random_patterns(sum(one), one, 40, 5) for one in [*formats, (8, 23)]})
check_encode({one: hard_numbers(sum(one), 9, 40) for one in [*formats, (8, 23)]})
check_encode({(5, 6): hard_numbers(3, 1000).reshape(10, 100).t()})
for shaped in (torch.tensor(77), torch.arange(256).reshape(8, 32).t(), torch.arange(0)):
    check_decode({(4, 3): shaped})
check_encode({(4, 3): torch.tensor(3.3), (5, 6): torch.zeros(0, 3)})
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · What autocast casts
#
# `torch.autocast("cuda", dtype=torch.float16)` changes no model. It looks at each operator as it is called: some
# lists say *in half precision* (matmuls, convolutions, attention), some *in fp32* (softmax, losses, norms, sums), a
# few *in the widest type among the inputs*, and an operator on no list runs on what it is given
# ([the lists](https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/autocast_mode.h#L817-L956)). Older code calls it
# `torch.cuda.amp.autocast()`, and the scaler of section 3 `torch.cuda.amp.GradScaler()`: both are deprecated, and warn. `x`
# and `w` are fp32, `h` is fp16. **Of which dtype is each result?**

# %% experiment
prediction = {
    "x @ w": ...,  # "float16" or "float32"
    "softmax(h)": ...,
    "layer_norm(h)": ...,
    "h.sum()": ...,
    "gelu(h)": ...,
    "h.square()": ...,
    "h * h": ...,
    "h + x": ...,
    "cross_entropy(h)": ...,
    "h[0].dot(x[0])": ...,
}

# %% experiment
gpu = simulate("H100")
with gpu, torch.autocast("cuda", dtype=torch.float16):
    x, w = torch.empty(64, 64, device=gpu.device), torch.empty(64, 64, device=gpu.device)
    h = x.half()
    results = {
        "x @ w": x @ w,
        "softmax(h)": h.softmax(-1),
        "layer_norm(h)": F.layer_norm(h, (64,)),
        "h.sum()": h.sum(),
        "gelu(h)": F.gelu(h),
        "h.square()": h.square(),
        "h * h": h * h,
        "h + x": h + x,
        "cross_entropy(h)": F.cross_entropy(h, torch.zeros(64, dtype=torch.int64, device=gpu.device)),
        "h[0].dot(x[0])": h[0].dot(x[0]),
    }
kinds = {name: str(t.dtype).removeprefix("torch.") for name, t in results.items()}
lesson.compare_predictions(
    prediction, kinds, evidence="simulated (H100)", what="dtype", choices=("float16", "float32")
)

# %% [markdown]
# Four lines deserve a second look. `dot` is one of the few that take the widest type among their inputs; without
# autocast it would refuse two dtypes. `h.square()` is a power, which is on the fp32 list; `h * h`, the same number, is on
# none, and infinite from 256 on. And `h + x` is fp32 by PyTorch's ordinary promotion, which is how a residual
# stream stays in fp32 if it began there. (These are CUDA's lists; those of the CPU differ: there softmax and
# powers stay in half.)
#
# Each cast is a kernel, and bytes. So autocast keeps the cast of an fp32 *weight* until the block ends. (Only of one that
# requires a gradient: a frozen weight is cast at each use.) Four
# micro-batches of 32 rows through one 1024 × 1024 layer: **how many casts**, in three ways of writing it?

# %% experiment
prediction = {
    "one block around all four": ...,
    "a block around each": ...,
    "one block, cache_enabled=False": ...,
}


# %% experiment tags=["fold"]
def casts_of(blocks, **options):
    """Kernels that cast in a forward of four micro-batches, and the bytes that they move."""
    gpu = simulate("H100")
    with gpu:
        layer = torch.nn.Linear(1024, 1024, bias=False, device=gpu.device)
        for _ in range(blocks):
            with torch.autocast("cuda", dtype=torch.float16, **options):
                for _ in range(4 // blocks):
                    layer(torch.empty(32, 1024, device=gpu.device))
    casts = [k for k in gpu.kernels if "_to_copy" in k.name]
    return len(casts), sum(k.bytes for k in casts)


ways = {
    "one block around all four": casts_of(1),
    "a block around each": casts_of(4),
    "one block, cache_enabled=False": casts_of(1, cache_enabled=False),
}
assert [n - 4 for n, _ in ways.values()] == [1, 4, 4]  # besides those of the four inputs: the weight's
said = lesson.compare_predictions(
    prediction,
    {k: n for k, (n, _) in ways.items()},
    evidence="simulated (H100)",
    what="casts",
    choices=range(33),
)
lesson.table(
    [(*row, f"{nbytes / 2**20:.1f} MiB") for row, (_, nbytes) in zip(said.rows, ways.values(), strict=True)],
    ["", "casts", "you said", "bytes moved by them"],
    evidence="simulated (H100)",
    caption=said.caption,
)

# %% [markdown]
# Each count has four casts of inputs, one a micro-batch; the rest are the weight's, 1 or 4. A cached weight costs
# one cast a block, and lives in fp16 *beside* its fp32 self until the block ends (that is why
# the block belongs around the forward pass and the loss, and not around backward, which uses the forward's dtypes
# by itself). Which brings us to memory. Weights, gradients and optimizer states stay fp32; what shrinks are
# activations. **How does the peak change with autocast?** Three training steps, and one forward pass alone:

# %% experiment
prediction = {  # "nearly halved", "a quarter less", "about the same" or "half more"
    "ResNet-50, 64 images": ...,
    "GPT-2 small, 4 × 1,024 tokens": ...,
    "8 layers of 4,096 × 4,096, 16 rows": ...,
    "the same 8 layers, only forward": ...,
}


# %% experiment tags=["fold"]
from helpers.recordings.models import GPT2, ResNet


def wide():
    return torch.nn.Sequential(*(m for _ in range(8) for m in (torch.nn.Linear(4096, 4096), torch.nn.ReLU())))


NETS = {
    "ResNet-50, 64 images": (ResNet, lambda d: torch.empty(64, 3, 224, 224, device=d)),
    "GPT-2 small, 4 × 1,024 tokens": (GPT2, lambda d: torch.zeros(4, 1024, dtype=torch.int64, device=d)),
    "8 layers of 4,096 × 4,096, 16 rows": (wide, lambda d: torch.empty(16, 4096, device=d)),
    "the same 8 layers, only forward": (wide, lambda d: torch.empty(16, 4096, device=d)),
}


def peak_of(net, dtype=None):
    """Most bytes allocated during the second of two training steps with SGD and momentum."""
    make, inputs = NETS[net]
    gpu, training = simulate("A100"), "only forward" not in net
    with gpu:
        with torch.device(gpu.device):  # weights are made there, not here
            model, x = make(), inputs(gpu.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(2):
            gpu.reset_peak_memory_stats()
            with (
                torch.autocast("cuda", dtype=dtype, enabled=dtype is not None),
                torch.set_grad_enabled(training),
            ):
                y = model(x)
                y = y.reshape(-1, y.shape[-1])
                loss = F.cross_entropy(y, torch.zeros(len(y), dtype=torch.int64, device=gpu.device))
            if training:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            del y, loss
        return gpu.max_memory_allocated()


peaks = {net: (peak_of(net), peak_of(net, torch.float16)) for net in NETS}
change = {net: half / full - 1 for net, (full, half) in peaks.items()}


WORDS = {-0.45: "nearly halved", -0.25: "a quarter less", 0.0: "about the same", 0.5: "half more"}


def in_words(r):
    return WORDS[min(WORDS, key=lambda c: abs(c - r))]


said = lesson.compare_predictions(
    prediction, {net: in_words(r) for net, r in change.items()}, evidence="simulated (A100)", what="peak",
    choices=list(WORDS.values()),
)  # fmt: skip
lesson.table(
    [
        (*row, *(f"{b / 2**30:.2f} GiB" for b in peaks[net]), f"{change[net]:+.0%}")
        for row, net in zip(said.rows, NETS, strict=True)
    ],
    ["net", "peak", "you said", "fp32", "autocast, fp16", "change"],
    evidence="simulated (A100)",
    caption=said.caption,
)

# %% [markdown]
# Where activations rule, nearly half. GPT-2 lies between: its weights, gradients and momenta stay, and its largest
# activation, a logit for each of 50,257 words, is cast back *up* for the loss (`cross_entropy` is on the fp32 list,
# see above), so fp16 comes on top of fp32 there. Where weights rule, nothing: the fp16 copies come while the gradients are not
# there yet, and go when they come. In inference they lie beside the originals, and it is *more*; there
# `model.half()`, all of it, is the right word, if its range suffices.
#
# And speed? That depends on what you compare with, and on what else was changed. The simulator should not be the
# witness here: its errors on whole steps are in the last column. So these are steps that others measured on
# real cards:

# %% experiment tags=["fold"]
from helpers.simulator.devices import efficiencies

steps = {s["what"]: s for s in efficiencies()["steps"] if s["what"].startswith("gpt2-124m")}
of_step = {kind: next(s for what, s in steps.items() if kind in what) for kind in ("fp32", "tf32", "bf16")}
PUBLISHED = {  # images per second, one GPU: without and with mixed precision
    "V100, against fp32": (367, 1200),
    "A100, against TF32": (938, 2470),
}
CHANGED = {  # with fp16, by the configs.yml beside that README
    "V100, against fp32": "fp16, channels last, batch 256 for 112",
    "A100, against TF32": "fp16, channels last",
}
rows = [
    (f"ResNet-50, {what}", CHANGED[what], f"{b / a:.2f}×", "NVIDIA DeepLearningExamples", "—")
    for what, (a, b) in PUBLISHED.items()
]
speed = {kind: of_step[kind]["measured_ms"] / of_step["bf16"]["measured_ms"] for kind in ("fp32", "tf32")}
for kind, ratio in speed.items():
    simulated = of_step[kind]["simulated_ms"] / of_step["bf16"]["simulated_ms"]
    errors = " and ".join(f"{of_step[k]['error']:+.0%}" for k in (kind, "bf16"))
    rows.append(
        (
            f"GPT-2 small, A100, against {kind}",
            "bf16 alone",
            f"{ratio:.2f}×",
            "Karpathy's lecture",
            f"{simulated:.2f}× ({errors})",
        )
    )
lesson.table(
    rows,
    ["step", "what was changed", "measured: times as fast", "by", "simulated (errors of both steps)"],
    evidence="published",
    caption=f"Of GPT-2's {speed['fp32']:.2f} times, TF32 alone brings {speed['fp32'] / speed['tf32']:.2f}. ResNet-50 is not mixed "
    "precision alone: every AMP entry of its configs.yml also sets memory_format: nhwc, no TF32 or FP32 entry does. Quotients of "
    "published measurements: README and configs.yml of PyTorch/Classification/ConvNets (2021), and "
    "Let's reproduce GPT-2 (2024); simulated (A100) beside them, where a step of this course's table matches",
)

# %% [markdown]
# fp32 against bf16 sounds like twice the bits and is a change of *machine*: plain fp32 matmuls do not use Tensor Cores
# at all. The table's caption says how much of GPT-2's gain TF32 brings, with one line of code; what bf16 adds to
# that is the row against tf32. And how much of ResNet-50's gain is fp16's, and how much the memory format's
# (lesson 12), these figures cannot tell: two things were changed at once.
#
# Now place casts yourself. In this net one block is applied again and again with the same weights, and its
# stream `h` holds values around 300:
#
# ```python
# def plain_loss(x, target, w_in, w_up, w_down, w_out, depth):
#     h = x @ w_in
#     for _ in range(depth):
#         size = ((h * h).mean(-1, keepdim=True) + 1e-8).sqrt()          # root mean square norm
#         h = h + F.gelu((h / size) @ w_up) @ w_down                     # a small update of a large stream
#     return (h @ w_out - target).square().mean()
# ```
#
# Cast everything to fp16, or just wrap it in autocast, and the loss comes out finite, plausible and wrong:


# %% experiment
def plain_loss(x, target, w_in, w_up, w_down, w_out, depth):
    h = x @ w_in
    for _ in range(depth):
        size = ((h * h).mean(-1, keepdim=True) + 1e-8).sqrt()
        h = h + F.gelu((h / size) @ w_up) @ w_down
    return (h @ w_out - target).square().mean()


def stream_inputs(n, d, u, o, depth, seed=0):
    g = torch.Generator().manual_seed(seed)
    x, w_in, w_up, w_down, w_out = (
        torch.randn(a, b, generator=g) / a**0.5 for a, b in ((n, d), (d, d), (d, u), (u, d), (d, o))
    )
    x, w_in, w_down = x * n**0.5, 300 * w_in, 0.3 * w_down
    return [x, x @ w_in @ w_out + 0.5 * torch.randn(n, o, generator=g), w_in, w_up, w_down, w_out, depth]


inputs = stream_inputs(16, 32, 64, 8, 48)
exact = plain_loss(*[t.double() if torch.is_tensor(t) else t for t in inputs])
in_half = plain_loss(*[t.half() if torch.is_tensor(t) else t for t in inputs])
with torch.autocast("cpu", dtype=torch.float16):
    autocast_only = plain_loss(*inputs)
lesson.table(
    [
        (name, f"≈ {loss.item():.3f}", f"≈ {abs(loss.item() / exact.item() - 1) * 100:.2f} %")
        for name, loss in (
            ("float64", exact), ("float32", plain_loss(*inputs)), ("all in fp16", in_half), ("autocast alone", autocast_only)
        )
    ],
    ["", "loss", "off by"],
    evidence="live (CPU)",
)  # fmt: skip

# %% [markdown]
# **Exercise 10.2 — place the casts** (★★, 10 min)
#
# Every matmul, forward and backward, on fp16 inputs (on a GPU, that is the saving); loss and gradients as fp32 has
# them; and no cast twice. By hand: `torch.autocast` is closed while the tests run.
#
# <details><summary>Hint 1</summary>Go through the lines and ask of each result: how large can it get, and is
# it part of a running sum? Three must be fp32, and one of the three is the loss.</details>
#
# <details><summary>Hint 2</summary>A silent one: 300² is infinite in fp16, a number divided by infinity is 0, and the block
# adds nothing for ever. A slow one: an update of 0.1 to a value of 300 in fp16, where neighbours lie 0.25 apart.
# And a wasteful one: the same weights are cast in each turn of the loop.</details>
#
# <details><summary>The idea</summary>Cast the four weights before the loop. Keep <code>h</code> in fp32 from its first
# line on: <code>(x.half() @ w_in).float()</code>. Norm in fp32, cast its result, multiply, gelu and multiply in fp16, cast the
# update back to fp32 and add. At the end cast <code>h</code> once more, and take the difference to the target in fp32.
# Autograd casts the gradients back the same way.</details>


# %% exercise="mixed_loss"
def mixed_loss(
    x: torch.Tensor,
    target: torch.Tensor,
    w_in: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
    w_out: torch.Tensor,
    depth: int,
) -> torch.Tensor:
    """plain_loss with its matmuls in fp16: a scalar, float32, whose backward() gives float32 gradients.

    x: (n, d), no row all zeros; target: (n, o); w_in: (d, d); w_up: (d, u); w_down: (u, d); w_out: (d, o), all
    float32, of any strides; only the weights require gradients. depth is at least 1. h stays below 2,000.

    Right when the loss is within 3 % of float64's and each weight's gradient within 8 % (norm of the
    difference), also where the result is hundreds away from its target. Autocast is closed while the tests
    run. Budgets, forward and backward together:
    - matmuls: as many FLOPs as plain_loss, and results of 2 bytes an element, so none of them in fp32;
    - casts: 2 bytes for each element of x, and 6 (fp16 one way, fp32 the other) for each element of a weight, of
      x @ w_in, of the result, of the last h, and in each turn of the block for 2·n·d + 2·n·u elements. That is
      enough to compute gelu in fp32, and not to cast weights twice. Casts are `.to`, `.half`, `.float`;
    - everything: at most 1.5 times the operators of plain_loss, and 1.1 times the bytes that it allocates.
    """
    ### BEGIN SOLUTION
    w_in, w_up, w_down, w_out = (w.half() for w in (w_in, w_up, w_down, w_out))
    h = (x.half() @ w_in).float()
    for _ in range(depth):
        size = ((h * h).mean(-1, keepdim=True) + 1e-8).sqrt()
        h = h + (F.gelu((h / size).half() @ w_up) @ w_down).float()
    return ((h.half() @ w_out).float() - target).square().mean()
    ### END SOLUTION


# %% test="mixed_loss" points=2
from helpers.exercises.mixed_precision import check_mixed_loss, stream_net

check_mixed_loss(stream_net(16, 32, 64, 8, depth=48))  # the net from above
check_mixed_loss(stream_net(16, 32, 64, 8, depth=6, away=150.0))

# %% hidden="mixed_loss" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.mixed_precision import check_mixed_loss, stream_net

check_mixed_loss(
    stream_net(12, 48, 40, 6, depth=20, small=0.5),
    stream_net(8, 24, 100, 12, depth=24, large=350.0),
    stream_net(5, 40, 56, 3, depth=20, small=0.8),
    stream_net(9, 32, 40, 10, depth=10, away=120.0),
    stream_net(7, 32, 48, 9, depth=12, turned=True),
)
### END HIDDEN TESTS

# %% [markdown]
# That was by hand. With autocast, how many casts of your own does the same net need? Its lists know matmuls; what they
# do not know is how large your stream is. So one, where the stream begins:


# %% experiment tags=["fold"]
def one_cast(x, target, w_in, w_up, w_down, w_out, depth):
    with torch.autocast("cpu", dtype=torch.float16):
        h = (x @ w_in).float()  # the only cast: all that follows is promoted to fp32, or a matmul
        for _ in range(depth):
            size = ((h * h).mean(-1, keepdim=True) + 1e-8).sqrt()
            h = h + F.gelu((h / size) @ w_up) @ w_down
        return (h @ w_out - target).square().mean()


lesson.table(
    [
        (name, f"≈ {loss.item():.3f}", f"≈ {abs(loss.item() / exact.item() - 1) * 100:.2f} %")
        for name, loss in (("autocast alone", autocast_only), ("autocast, and one `.float()`", one_cast(*inputs)))
    ],
    ["", "loss", "off by"],
    evidence="live (CPU)",
)  # fmt: skip

# %% [markdown]
# ## 3 · Gradients that vanish
#
# A small net learns from a teacher, in fp32 and in autocast with fp16. Its loss is multiplied by a factor, as a side
# term in a weighted sum of losses is, or a mean over many tokens. Adam divides by the gradients' size, so the factor
# should change nothing. **At which factor does fp16 stop learning**, within 60 steps?

# %% experiment
prediction = {"fp16 stops learning at": ...}  # choose from 1, 1e-2, 1e-3, 1e-4, 1e-5


# %% experiment tags=["fold"]
def learn(run, steps, factor, init_scale=65536.0, growth_interval=2000):
    """Losses of a run (mean of the last 10 at each point), what flows in its first step, the scale of each step."""
    torch.manual_seed(1)
    g = torch.Generator().manual_seed(2)
    teacher = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 16))
    sizes, layers = (16, 48, 48, 16), []
    for a, b in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(a, b), torch.nn.GELU()]
    net = torch.nn.Sequential(*layers[:-1])
    net.to(torch.bfloat16 if run == "weights in bf16" else torch.float32)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    dtype = torch.float16 if "fp16" in run else torch.bfloat16
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=init_scale, growth_interval=growth_interval, enabled="scaled" in run
    )
    losses, scales, first, passing = [], [], {}, []

    # in the first step: the gradient of each layer's output, a row for each sample
    def keep(module, inputs, out):
        if not first:
            out.retain_grad()
            passing.append(out)

    for layer in net:
        layer.register_forward_hook(keep)
    for _ in range(steps):
        x = torch.randn(64, 16, generator=g)
        with torch.no_grad():
            y = teacher(x)
        with torch.autocast("cpu", dtype=dtype, enabled=run.startswith("autocast")):
            out = net(x.to(next(net.parameters()).dtype))
        loss = factor * F.mse_loss(out.float(), y)
        scaler.scale(loss).backward()
        if not first:
            first["outputs"] = out.detach().double().reshape(-1)
            first["weights' gradients"] = torch.cat([p.grad.reshape(-1).double() for p in net.parameters()])
            first["activations' gradients"] = torch.cat([t.grad.reshape(-1).double() for t in passing])
        scales.append(scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item() / factor)
    smooth = [sum(losses[max(0, i - 9) : i + 1]) / len(losses[max(0, i - 9) : i + 1]) for i in range(steps)]
    zero = (first["weights' gradients"] == 0).double().mean().item()
    return {"loss": smooth, "zero": zero, "scales": [*scales, scaler.get_scale()], **first}


def middle(values):
    """The median magnitude, as a power of two."""
    return values.abs().median().log2().item()


FACTORS = (1, 1e-2, 1e-3, 1e-4, 1e-5)
SCALING = ("fp32", "autocast fp16", "autocast fp16, scaled")
sweep = {factor: {run: learn(run, 60, factor) for run in SCALING} for factor in FACTORS}
stopped = [
    f for f, runs in sweep.items() if runs["autocast fp16"]["loss"][-1] > 0.9 * runs["fp32"]["loss"][0]
]
lesson.compare_predictions(
    prediction, {"fp16 stops learning at": stopped[0]}, evidence="live (CPU)", what="factor", choices=FACTORS
).show()
lesson.table(
    [
        (
            f"{factor:g}",
            *(f"≈ {middle(runs['fp32'][k]):.0f}" for k in ("outputs", "weights' gradients")),
            f"≈ {100 * runs['autocast fp16']['zero']:.1f} %",
            *(f"≈ {runs[run]['loss'][-1]:.4f}" for run in SCALING),
        )
        for factor, runs in sweep.items()
    ],
    ["factor", "outputs: 2 to the", "gradients: 2 to the", "fp16: gradients that are 0", "loss: fp32", "fp16", "fp16, scaled"],
    evidence="live (CPU)",
    caption="medians and zeros of the first step; losses after 60 steps, mean of the last 10, without the factor",
)  # fmt: skip

# %% [markdown]
# At factor 1 fp16 needs no help at all. With each smaller factor more gradients are zero, and training hardly shows it until
# most of them are; there is never an error. (fp32 is slower at the end, too: Adam's `eps` of 10⁻⁸ is no longer small
# beside such gradients.) So whether you need a scaler depends on your gradients, and you can look at them. The
# last factor again, longer, with bf16, and with a net whose *weights* are bf16, without autocast. **Which learn like
# fp32?**

# %% experiment
prediction = {
    "autocast bf16": ...,  # "like fp32", "slower" or "not at all"
    "autocast fp16, scaled": ...,
    "weights in bf16": ...,
}

# %% experiment tags=["fold"]
RUNS = ("fp32", "autocast bf16", "autocast fp16", "autocast fp16, scaled", "weights in bf16")
runs = {run: learn(run, 240, FACTORS[-1]) for run in RUNS}
curve = {run: result["loss"] for run, result in runs.items()}


def like(run):
    start, plain, mine = curve["fp32"][0], curve["fp32"][-1], curve[run][-1]
    return "like fp32" if mine < 1.15 * plain else "slower" if mine < 0.5 * start else "not at all"


said = lesson.compare_predictions(
    prediction, {run: like(run) for run in prediction}, evidence="live (CPU)", what="learns",
    choices=["like fp32", "slower", "not at all"],
)  # fmt: skip
answers = {row[0]: row for row in said.rows}
lesson.table(
    [
        (
            *answers.get(run, (run, like(run) if run != "fp32" else "", "")),
            f"≈ {curve[run][-1]:.4f}",
            f"≈ {100 * runs[run]['zero']:.0f} %",
        )
        for run in RUNS
    ],
    ["run", "learns", "you said", "loss at the end", "gradients that are 0 in the first step"],
    evidence="live (CPU)",
    caption=said.caption,
)

# %% experiment tags=["fold"]
from helpers.plots import style
from helpers.plots.picture import Picture, drawn


@drawn
def loss_curves(curves, together, *, evidence, title, note):
    """One line a run; those of `together` lie on one another and share a label."""
    fig, _ = style.figure(3.2, evidence=evidence, title=title, note=note)
    ax = fig.subplots()
    for i, (name, values) in enumerate(curves.items()):
        dash = (None, (6, 2), (1, 1), (3, 1, 1, 1), (8, 1, 1, 1))[i]
        ax.plot(values, color=style.SERIES[i], lw=2.6 - 0.3 * i, ls="-" if dash is None else (0, dash))
        if name not in together or name == together[0]:
            label = (
                " = ".join(together[:1]) + "".join(f"\n= {n}" for n in together[1:])
                if name in together
                else name
            )
            ax.annotate(
                label, (len(values) - 1, values[-1]), xytext=(8, 0), textcoords="offset points",
                color=style.SERIES[i], va="top" if name in together else "center", annotation_clip=False,
            )  # fmt: skip
    ax.set(yscale="log", xlabel="step", ylabel="loss, mean of the last 10", xlim=(0, 240))
    ax.set_yticks([0.01, 0.02, 0.05, 0.1], ["0.01", "0.02", "0.05", "0.1"])
    ax.yaxis.set_minor_formatter(lambda v, _: "")
    return Picture(fig, evidence, f"{title}: {', '.join(curves)}")


loss_curves(
    curve,
    [run for run in RUNS if run == "fp32" or like(run) == "like fp32"],
    evidence="live (CPU)",
    title="Five runs on the same data",
    note="a net of three layers learns from a teacher; Adam; the loss counts 1/100,000",
)

# %% [markdown]
# Why do they vanish? In fp16's backward each activation's gradient is an fp16 tensor, one row for each sample; the weights'
# gradients are their sums over the batch, and larger. So look at both:

# %% experiment
flows = {
    "forward: the net's outputs": runs["fp32"]["outputs"],
    "back: gradients of activations": runs["fp32"]["activations' gradients"],
    "the same × 65,536": runs["fp32"]["activations' gradients"] * 65536,
    "gradients of weights, sums over the batch": runs["fp32"]["weights' gradients"],
}
lesson.table(
    [(name, f"≈ {100 * (v.half() == 0).double().mean().item():.1f} %") for name, v in flows.items()],
    ["of the fp32 run, first step", "rounds to 0 in fp16"],
    evidence="live (CPU)",
).show()
plots.float_ranges(
    {name: v.tolist() for name, v in flows.items()},
    ["bf16", "fp16"],
    evidence="live (CPU)",
    title="Why fp16 needs a scaler here, and bf16 does not",
)

# %% [markdown]
# Nearly all gradients of activations are too small for fp16, so nothing is left to sum. The cure costs one multiplication:
# scale the *loss*. Backward is linear, so every gradient is scaled with it; divide before the optimizer sees them. bf16
# has the range, so it needs no scaler. But *weights* in bf16 fall behind, for the reason of section 1.
#
# How large a scale? As large as possible, without infinities; which scale that is changes during training. So
# [`torch.amp.GradScaler`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/amp/grad_scaler.py#L123-L131) tries: it
# starts at 65,536, **skips** a step in which any gradient is infinite or NaN and
# halves the scale, and doubles it after 2,000 steps in a row that went well. Here it is at work, with a first scale that
# is too large and growth after 20 good steps:

# %% experiment tags=["fold"]
at_work = learn(SCALING[-1], 120, 1, init_scale=2.0**27, growth_interval=20)["scales"]
skipped = [i for i, (now, after) in enumerate(zip(at_work, at_work[1:])) if after < now]


@drawn
def scale_steps(scales, skipped, *, evidence, title, note):
    fig, _ = style.figure(2.6, evidence=evidence, title=title, note=note)
    ax = fig.subplots()
    ax.step(range(len(scales)), [math.log2(s) for s in scales], where="post", color=style.BLUE)
    ax.plot(
        skipped,
        [math.log2(scales[i]) for i in skipped],
        "X",
        color=style.VERMILLION,
        ms=9,
        label="skipped step",
    )
    ax.set(xlabel="step", ylabel="scale, power of two")
    ax.yaxis.get_major_locator().set_params(integer=True)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return Picture(fig, evidence, f"{title}: ≈ {len(skipped)} of {len(scales) - 1} steps skipped")


lesson.table(
    [(len(at_work) - 1, f"≈ {len(skipped)}", f"≈ {at_work[0]:,.0f}", f"≈ {at_work[-1]:,.0f}")],
    ["steps", "skipped", "first scale", "last scale"],
    evidence="live (CPU)",
).show()
scale_steps(
    at_work, skipped, evidence="live (CPU)", title="A scaler looks for its scale",
    note="the same net, factor 1; init_scale=2**27, growth_interval=20; a cross: infinite gradients, no step",
)  # fmt: skip

# %% [markdown]
# Once found, the scale goes up and down at the edge of overflow, and each try costs one step. That is why the default waits
# for 2,000.
#
# And now one recipe on trial: *set the layers whose name contains "fc" to half, by hand*, in their weights
# (`param.data = param.data.half()`), then train as usual:


# %% experiment tags=["fold"]
class Named(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.fc1, self.fc2 = (
            torch.nn.Linear(16, 64),
            torch.nn.Linear(64, 64),
            torch.nn.Linear(64, 10),
        )

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(torch.relu(self.stem(x)))))


torch.manual_seed(0)
named, x, y = Named(), torch.randn(32, 16), torch.randint(0, 10, (32,))
for name, p in named.named_parameters():
    if "fc" in name:
        p.data = p.data.half()


def outcome(code):
    """What it raises, in one line; or "runs"."""
    try:
        code()
    except Exception as problem:
        return f"{type(problem).__name__}: {str(problem).splitlines()[0]}"
    return "runs"


def with_autocast():
    with torch.autocast("cpu", dtype=torch.float16):
        return F.cross_entropy(named(x), y)


scaler, adam = torch.amp.GradScaler("cpu"), torch.optim.Adam(named.parameters())
by_name = {"`named(x)`": outcome(lambda: named(x))}
by_name["with autocast, scaled, `backward()`"] = outcome(lambda: scaler.scale(with_autocast()).backward())
by_name["`scaler.step(optimizer)`"] = outcome(lambda: scaler.step(adam))
named.zero_grad()
with_autocast().backward()
adam.step()
broken = sum(p.isnan().sum().item() for p in named.parameters())
by_name["without the scaler: Adam's step"] = f"runs; NaN in {'some' if broken else 'no'} weights"
lesson.table(list(by_name.items()), ["half by name", "what happens"], evidence="live (CPU)")

# %% [markdown]
# The forward pass stops where an fp32 result meets an fp16 weight. Autocast helps it over that, GradScaler then
# refuses gradients in fp16 (there would be nothing left to unscale them into), and without it Adam's `eps` of 10⁻⁸ is zero in
# fp16 and zero is divided by zero: a weight whose gradient vanished becomes NaN. Weights stay fp32; autocast makes
# the copies.

# %% [markdown]
# **Exercise 10.3 — a GradScaler** (★★★, 15 min)
#
# Write it, with torch's names. The order in a training step is
#
# ```python
# scaler.scale(loss).backward()
# scaler.unscale_(optimizer)                                # only if you need true gradients, as clipping does
# torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
# scaler.step(optimizer)                                    # unscales, if that was not done; steps, or skips
# scaler.update()
# ```
#
# <details><summary>Hint 1</summary>Unscale every gradient of <code>optimizer.param_groups</code> in place, and note, as a
# tensor, whether all are finite. Ask that tensor for its value once, in <code>step</code>.</details>
#
# <details><summary>Hint 2</summary>Three things to remember between the calls: whether this step's gradients are unscaled
# already, whether they were finite, and how many good steps there have been in a row. The first two begin anew in
# <code>update</code>, the last after every change of the scale.</details>
#
# <details><summary>The idea</summary><code>finite = torch.stack([g.isfinite().all() for g in grads]).all()</code> is one tensor;
# <code>g.mul_(1 / scale)</code> for each. <code>step</code>: unscale if that is due, then
# <code>if finite.item(): return optimizer.step()</code>. <code>update</code>: back off after a bad step, else count, and
# grow when
# the count reaches the interval.</details>


# %% exercise="grad_scaler"
class Scaler:
    """Loss scaling as torch.amp.GradScaler does it, for one optimizer.

    init_scale: the first scale. After a step with an infinity or NaN among the gradients: scale · backoff_factor.
    After growth_interval good steps in a row: scale · growth_factor, and counting begins again, as it
    does after a back-off.

    At least one parameter has a gradient, of any size and strides, and scales may fall below 1 (2^-20 to 2^100).
    Right when weights, momenta, scales and skipped steps are those of torch.amp.GradScaler. Budget: the CPU
    waits once for each training step. torch's own scaler and its `_amp_` operators are for later.
    """

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        ### BEGIN SOLUTION
        self.value, self.interval = init_scale, growth_interval
        self.growth, self.backoff = growth_factor, backoff_factor
        self.good, self.ok = 0, True
        self.finite: torch.Tensor | None = None
        ### END SOLUTION

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the scale."""
        ### BEGIN SOLUTION
        return loss * self.value
        ### END SOLUTION

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, in place. Parameters without one are left out.

        RuntimeError if they are unscaled already since the last update(), also by step().
        """
        ### BEGIN SOLUTION
        if self.finite is not None:
            raise RuntimeError("the gradients are unscaled already")
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.finite = torch.stack([g.isfinite().all() for g in grads]).all()
        for g in grads:
            g.mul_(1 / self.value)
        ### END SOLUTION

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """optimizer.step(), or nothing at all if a gradient is not finite. Unscales first, unless that was done."""
        ### BEGIN SOLUTION
        if self.finite is None:
            self.unscale_(optimizer)
        self.ok = bool(self.finite)
        if self.ok:
            optimizer.step()
        ### END SOLUTION

    def update(self) -> None:
        """Choose the scale of the next step. Called once after each step()."""
        ### BEGIN SOLUTION
        self.finite = None
        self.good = self.good + 1 if self.ok else 0
        if not self.ok:
            self.value *= self.backoff
        elif self.good == self.interval:
            self.value, self.good = self.value * self.growth, 0
        ### END SOLUTION


# %% test="grad_scaler" points=2
from helpers.exercises.mixed_precision import Training, check_Scaler

inf, nan = float("inf"), float("nan")
check_Scaler(
    Training(3, (6, 5), 1),
    Training(4, (6, 5), 2, odd=((1, 1, inf),)),
    Training(4, (6, 5, 4), 3, odd=((0, 2, nan), (2, 0, nan)), backoff_factor=0.25),
    Training(9, (4, 3), 4, odd=((4, 0, inf),), init_scale=8.0, growth_interval=3, growth_factor=4.0),
    Training(4, (6, 5), 5, clip=0.05, init_scale=4096.0),
    Training(3, (6, 5, 4), 8, unused=(0, 1, 2)),
    Training(3, (4,) * 9, 9),
    Training(12, (8, 7, 6, 5), 6, init_scale=2.0**20, growth_interval=4),
)

# %% hidden="grad_scaler" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.mixed_precision import Training, check_Scaler

inf, nan = float("inf"), float("nan")
accidents, last = ((2, 0, -inf), (3, 2, nan), (9, 1, inf)), ((6, 19, -inf),)
check_Scaler(
    Training(14, (5, 9, 3), 11, accidents, init_scale=128.0, growth_interval=2),
    Training(10, (7, 6), 12, ((4, 1, inf),), 0.02, init_scale=2.0**10, growth_interval=3, growth_factor=1.5),
    Training(9, (4, 4, 4), 13, ((3, 0, nan), (4, 0, nan)), None, (1, 3, 5, 7), 32.0, None, 0.125, 2),
    Training(20, (50, 60, 70), 14, clip=0.3, unused=(1, 3, 5, 7), init_scale=2.0**24, growth_interval=5),
    Training(8, (12,) * 20, 15, last, init_scale=None, growth_interval=3),
    Training(6, (5, 4), 16, ((3, 1, nan),), 0.1, init_scale=4.0, growth_interval=1),
    Training(9, (5, (3, 4)), 17, ((1, 1, inf), (2, 0, nan), (3, 1, -inf)), 0.2, (6,), 2.0, None, None, 3),
    Training(3, (6, (4, 5)), 18, init_scale=1.0, large=3e38),
    Training(2, (3, 2), 19, init_scale=0.25, large=1e25),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · Shapes that fit
#
# A Tensor Core multiplies small blocks, and its kernels fetch 16 bytes at a time. NVIDIA's guide (*Matrix
# Multiplication Background*, table 1) therefore wants all three sizes M, N, K of a matmul in multiples of **16
# bytes**: 4 numbers in TF32, 8 in fp16 and bf16, 16 in FP8 and INT8; on an A100 better of 128 bytes. Since cuBLAS 11
# other shapes use Tensor Cores too, but how well? The traces of A100s that Meta published with its tool HTA hold a
# TF32 matmul of 1024 × 1024 by 1024 × **1300**, and one by 1024 × **1705**, which is 1.3 times the FLOPs. **How
# many times as long does it take?**

# %% experiment
prediction = {"1705 columns, against 1300": ...}  # choose from 0.7, 1.3, 1.8, 2.5

# %% experiment tags=["fold"]
from helpers.simulator.cost import measured


def reached(some, low=1.5e9, high=4.5e9):
    """Median TFLOP/s of those of 1.5 to 4.5 GFLOP."""
    rates = sorted(p[4] for p in some if low < 2 * p[0] * p[1] * p[2] < high)
    return (rates[(len(rates) - 1) // 2] + rates[len(rates) // 2]) / 2


points = []
for one in measured.public():
    if one.source == "HTA" and one.dtype == "tf32" and one.op in ("mm", "addmm"):
        (m, k), (_, n) = one.shapes[-2:]
        if min(m, k, n) < 64:  # narrower than a kernel's tile: slow for that reason alone
            continue
        points.append((m, k, n, one.seconds, 2 * m * k * n / one.seconds / 1e12))
took = {(m, k, n): s for m, k, n, s, _ in points}
longer = took[1024, 1024, 1705] / took[1024, 1024, 1300]
fitting = [p for p in points if all(size % 4 == 0 for size in p[:3])]
missing = [p for p in points if p not in fitting]
share = reached(missing) / reached(fitting)


near = min((0.7, 1.3, 1.8, 2.5), key=lambda c: abs(math.log(longer / c)))
lesson.compare_predictions(
    prediction, {"1705 columns, against 1300": near}, evidence="published", what="times as long, about",
    choices=(0.7, 1.3, 1.8, 2.5),
).show()  # fmt: skip
lesson.table(
    [
        ("multiples of 4", f"{reached(fitting):.0f}", ""),
        ("one size is not", f"{reached(missing):.0f}", f"{share:.2f}"),
    ],
    ["M, N and K", "median TFLOP/s", "share of the first"],
    evidence="published",
    caption="matmuls of 1.5 to 4.5 GFLOP, no size below 64",
).show()


@drawn
def rates(groups, *, evidence, title, note):
    fig, _ = style.figure(3.1, evidence=evidence, title=title, note=note)
    ax = fig.subplots()
    for i, (name, some) in enumerate(groups.items()):
        x = [2 * m * k * n / 1e9 for m, k, n, _, _ in some]
        ax.scatter(x, [p[4] for p in some], s=34, marker=style.MARKERS[i], color=style.SERIES[i], label=name)
    for size in (1300, 1705):
        rate = 2 * 1024 * 1024 * size / took[1024, 1024, size] / 1e12
        ax.annotate(
            f"{size:,} columns",
            (2 * 1024 * 1024 * size / 1e9, rate),
            xytext=(14, -16) if size > 1300 else (-40, 14),
            textcoords="offset points",
            ha="left" if size > 1300 else "right",
            fontsize=style.SMALL,
            arrowprops={"arrowstyle": "-", "color": style.MUTED, "lw": 0.8, "shrinkB": 4},
        )
    ax.set(xscale="log", xlabel="GFLOP of the matmul, logarithmic", ylabel="TFLOP/s reached", ylim=(0, None))
    ax.xaxis.set_major_formatter(lambda v, _: f"{v:g}")
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), labelspacing=1.0)
    return Picture(fig, evidence, f"{title}: {', '.join(groups)}".replace("\n", " "))


rates(
    {"M, N and K fit:\nmultiples of 4": fitting, "one of them\ndoes not": missing},
    evidence="published",
    title="TF32 matmuls on A100s: the same work, other shapes",
    note="traces in facebookresearch/HolisticTraceAnalysis, as the simulator's calibration keeps them; no size below 64",
)

# %% [markdown]
# Among matmuls of like work, those that miss run at the share of the rate that the table says. (They come from other
# people's models, so shapes differ in more than this. The simulator has its own addition for shapes that miss from these
# rows.) So pad: add zeros up to the next multiple, compute, and cut. What it costs is more FLOPs, and that is arithmetic:

# %% experiment
shapes = {  # rows, features in, features out
    "HTA's 1,705 columns": (1024, 1024, 1705),
    "GPT-2's logits": (8192, 768, 50257),
    "a head of 100 classes": (256, 512, 100),
    "10 classes, 50 rows": (50, 784, 10),
}


def up(n, multiple):
    return -(-n // multiple) * multiple


lesson.keep(words=up(50257, 64), more_words=up(50257, 64) / 50257 - 1)

lesson.table(
    [
        (name, f"{m:,} × {k} × {n:,}", *(f"{math.prod(up(s, by) for s in (m, k, n)) / (m * k * n) - 1:+.2%}" for by in (4, 8, 64)))
        for name, (m, k, n) in shapes.items()
    ],
    ["matmul", "M × K × N", "more FLOPs in multiples of 4", "of 8", "of 64"],
    evidence="arithmetic",
    caption=f"1,705 columns took {took[1024, 1024, 1705] * 1e6:.0f} µs; {up(1705, 4):,} at the median rate of those that fit would take "
    f"{2 * 1024 * 1024 * up(1705, 4) / reached(fitting) / 1e6:.0f} µs",
)  # fmt: skip

# %% [markdown]
# A vocabulary of 50,257 becomes {{words:,}} for {{more_words:.2%}} more FLOPs; ten classes are not worth it, since that
# matmul takes no time in the first place. Pad weights once, when the model is made, not in each forward.

# %% [markdown]
# **Exercise 10.4 — pad the shapes that miss** (★★, 8 min)
#
# A net of linear layers with sigmoids between them has sizes that fit nowhere. Make a function that computes the same,
# in matmuls whose M, N and K are all multiples of `multiple`.
#
# <details><summary>Hint 1</summary><code>F.pad(w, (0, right, 0, below))</code> adds zeros to a matrix. Before the first
# layer, pad x in rows and in columns.</details>
#
# <details><summary>Hint 2</summary>There is no need to cut between layers. sigmoid(0) is 0.5, and so the added features
# are not zero: what must the next weight hold there?</details>
#
# <details><summary>The idea</summary>Pad weights and biases outside of the inner function; inside, pad x, run
# <code>F.linear</code> and sigmoid on the padded tensors, and return <code>y[:rows, :out]</code>, a view.
# Columns of zeros in the next weight switch the added features off.</details>


# %% exercise="aligned"
def aligned(weights: list[torch.Tensor], biases: list[torch.Tensor], multiple: int):
    """A function forward(x) of the net, made of matmuls with padded sizes.

    weights[i]: (out_i, in_i), biases[i]: (out_i,), in_(i+1) = out_i, float32, of any strides. Plain: x ← x @ W.T + b, then a sigmoid,
    except after the last. forward takes x: (rows, in_0), any number of rows, and returns (rows, out_last) as
    the plain net computes it (relative error 1e-4). Inputs are left as they are.

    Budgets: FLOPs exactly those of M, N and K rounded up to their next multiples; bytes allocated: twice the
    padded weights and biases, once and not in each forward, and in each forward the padded x and 3 arrays of
    each layer's padded output. No syncs.
    """
    ### BEGIN SOLUTION

    def extra(n):
        return -n % multiple

    wide = [F.pad(w, (0, extra(w.shape[1]), 0, extra(w.shape[0]))) for w in weights]
    long = [F.pad(b, (0, extra(len(b)))) for b in biases]
    out = len(biases[-1])

    def forward(x):
        y = F.pad(x, (0, extra(x.shape[1]), 0, extra(x.shape[0])))
        for i, (w, b) in enumerate(zip(wide, long, strict=True)):
            y = F.linear(y.sigmoid() if i else y, w, b)
        return y[: len(x), :out]

    return forward
    ### END SOLUTION


# %% test="aligned" points=1
from helpers.exercises.mixed_precision import check_aligned, net

check_aligned(net((7, 5), 8, rows=(3,)), note="One layer: rows, features in and features out, all to 8.")
zeros = "Two layers: what the first sigmoid made of the added zeros must not get through."
check_aligned(net((6, 10, 3), 4, rows=(5,)), note=zeros)
check_aligned(net((8, 16, 8), 8, rows=(16,)), note="Everything fits already: nothing to add.")
batches = net((30, 50, 20), 8, rows=(9, 16, 1, 12, 3, 11))
check_aligned(batches, note="Six batches: padded weights are made once.")

# %% hidden="aligned" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.mixed_precision import check_aligned, net

check_aligned(
    net((13, 27, 9, 10), 8, rows=(11, 8, 1, 40)),
    net((33, 64, 31, 17, 2), 16, rows=(5, 16, 31)),
    net((20, 12, 4), 4, rows=(4, 6, 0)),
    net((100, 130, 70), 64, rows=(10, 65)),
    net((5, 3), 1, rows=(7, 2)),
    net((40, 60, 30), 8, rows=(3,) * 12),
)
### END HIDDEN TESTS

# %% [markdown]
# ## On the real GPU
#
# One table for a GPU: a training step of GPT-2 small in four precisions, its time and its peak. It runs live
# where there is a CUDA GPU and shows a recording where one exists; for this lesson none has been recorded yet. So without
# a GPU you see the simulated H100's peaks, and no times: the simulator's errors on whole steps, in the caption, are
# larger than the differences you would look for. On a GPU of your own look for three things: how much of the gain TF32
# alone brings, whether fp16 is any faster than bf16 (both have the same bytes), and that TF32 leaves the peak where
# it was.

# %% experiment
from helpers import recordings
from helpers.timing import format_seconds

shown = recordings.show("10/four_precisions", simulated="H100")
real = not shown.evidence.startswith("simulated")
about = "≈ " if real else ""
first = shown.table[0]["seconds"]
trust = ", ".join(f"{kind} {step['error']:+.0%}" for kind, step in of_step.items())
lesson.table(
    [
        (
            r["precision"],
            f"{about}{r['peak_bytes'] / 2**30:.2f} GiB",
            f"≈ {format_seconds(r['seconds'])}" if real else "—",
            f"≈ {first / r['seconds']:.2f}×" if real else "—",
        )
        for r in shown.table
    ],
    ["precision", "peak", "step", "times as fast as fp32"],
    evidence=shown.evidence,
    caption="GPT-2 small, 4 × 1,024 tokens, AdamW"
    + ("" if real else f"; the simulator's errors on the times of whole steps, on an A100: {trust}"),
)

# %% [markdown]
# ## Sources on trial

# %% experiment tags=["fold"]
sections = (
    "1 · Range and precision",
    "2 · What autocast casts",
    "3 · Gradients that vanish",
    "4 · Shapes that fit",
)
resnet, mlp = change["ResNet-50, 64 images"], change["8 layers of 4,096 × 4,096, 16 rows"]
a100 = PUBLISHED["A100, against TF32"][1] / PUBLISHED["A100, against TF32"][0]
# factors where gradients vanish
losing = [f for f, by_run in sweep.items() if by_run["autocast fp16"]["zero"] > 0.01]
kept_all = [f for f in FACTORS if f not in losing]
helped = max(sweep[f]["autocast fp16, scaled"]["zero"] for f in FACTORS) < 0.01
apart = {
    f: tuple(middle(by_run["fp32"][k]) for k in ("outputs", "weights' gradients"))
    for f, by_run in sweep.items()
}
in_range = 1.8 <= a100 <= 2.5
rows = [
    (
        "10-speed",
        "five-strategies",
        "mixed precision trains ResNet-50 1.8 to 2.5 times as fast on an A100",
        f"published: {a100:.2f} times against TF32 on one A100, with channels last besides; by precision alone, GPT-2: "
        f"{speed['fp32']:.2f} times against fp32, {speed['tf32']:.2f} times against TF32",
        "confirmed, with two changes at once"
        if in_range
        else f"untested for mixed precision alone: {a100:.2f} lies {'above' if a100 > 2.5 else 'below'} the range and is confounded with the memory format",
        sections[1],
    ),
    (
        "10-memory",
        "five-strategies",
        "it saves 35 to 40 % of the memory of ResNet-50",
        f"simulated peak: ResNet-50 {resnet:+.0%}, the net of large weights {mlp:+.0%}",
        "holds when activations rule the peak (the simulated saving is larger); where weights rule, nothing is saved"
        if resnet < -0.35 and abs(mlp) < 0.1
        else "refuted",
        sections[1],
    ),
    (
        "10-scaling",
        "five-strategies",
        "scaling the loss keeps gradients from vanishing in fp16",
        "gradients that are zero without and with it: "
        + ", ".join(
            f"factor {f:g}: ≈ {100 * sweep[f]['autocast fp16']['zero']:.1f} % and ≈ {100 * sweep[f]['autocast fp16, scaled']['zero']:.1f} %"
            for f in (FACTORS[0], FACTORS[-1])
        ),
        "refuted"
        if not (helped and losing)
        else f"holds when they vanish: here (over 1 % of them) from a factor of {max(losing):g} down; above that there is nothing to keep"
        if kept_all
        else "confirmed",
        sections[2],
    ),
    (
        "10-half-by-name",
        "compile-300",
        "set the weights of chosen layers to half by name, then train",
        f"forward: {by_name['`named(x)`'].partition(':')[0]}; with autocast, the scaler's step: "
        f"{by_name['`scaler.step(optimizer)`'].partition(':')[0]}",
        "refuted"
        if "Error" in by_name["`named(x)`"] and "Error" in by_name["`scaler.step(optimizer)`"]
        else "confirmed",
        sections[2],
    ),
    (
        "10-forward-large",
        "book-notes",
        "forward tensors are large and gradients small, so fp16 must balance the two",
        "medians, as powers of two, forward and back: "
        + ", ".join(
            f"factor {f:g}: ≈ {apart[f][0]:.0f} and ≈ {apart[f][1]:.0f}" for f in (FACTORS[0], FACTORS[-1])
        ),
        "refuted"
        if not losing or any(back > forward for forward, back in apart.values())
        else f"holds when the loss counts {max(losing):g} or less: gradients are always the smaller, but fp16 holds both at {min(kept_all):g} and above"
        if kept_all
        else "confirmed",
        sections[2],
    ),
    (
        "10-multiples",
        "guide",
        "Tensor Cores want dimensions in multiples of 8 (fp16) or 16 (INT8)",
        f"published TF32 matmuls of 1.5 to 4.5 GFLOP: {reached(fitting):.0f} TFLOP/s in multiples of 4, {reached(missing):.0f} otherwise",
        f"holds when read as 16 bytes, 4 numbers in TF32: other shapes run too, at {share:.2f} of the rate"
        if reached(fitting) > 1.5 * reached(missing)
        else "refuted",
        sections[3],
    ),
]
lesson.verdicts(rows, evidence="published · live (CPU) · simulated (A100)")

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | bf16 with autocast, and no scaler. | Gradients that fp16 holds (look!) need none either. GPUs without it (before Ampere): fp16, and a scaler. |
# | Range is the exponent's, precision the mantissa's. | Subnormal numbers: there range eats precision. |
# | One operator in half is harmless, a chain is not. | Kernels that add up in half; split fp16 matmuls may (`allow_fp16_reduced_precision_reduction`). |
# | Weights, optimizer states and running sums in fp32. | Stochastic rounding, 8-bit optimizers: other ways to keep small updates. |
# | Autocast knows what to cast. | What is on no list: products, your own norms and losses. |
# | Half the bits, half the memory. | Only activations; in inference, copies come on top of the weights. |
# | Twice as fast. | Ask against what, fp32 or TF32, on which net, and what else was changed. |
# | Sizes in multiples of 16 bytes. | Small matmuls: the padding costs more than it brings. |
#
# **Checklist for your own code**
# - [ ] Is TF32 on, for what stays fp32?
# - [ ] Is the autocast block around forward and loss, once a step?
# - [ ] Which of your own operators square, exponentiate, or add up, and in which dtype?
# - [ ] fp16: scaled? unscaled before clipping? Do you log the scale and the skipped steps?
# - [ ] Vocabulary, heads, classes, hidden sizes: multiples of 8, or 64?
#
# **Read on**: PyTorch's documentation of `torch.amp` (*Autocast op reference*) and its notes on numerical accuracy;
# P. Micikevicius and others, *Mixed precision training* (2018) and *FP8 formats for deep learning* (2022);
# D. Kalamkar and others, *A study of BFLOAT16 for deep learning training* (2019); NVIDIA's *Matrix multiplication
# background user's guide*.
