# %% [markdown]
# # 10 · Mixed precision
#
# ## What do I lose with half the bits?
#
# A number in 16 bits takes half the bytes of a number in 32, and a GPU's Tensor Cores multiply it in a fraction of the
# time. The missing bits come from two places. The **exponent** says how large and how small a number can be: if it is too
# short, large values become infinite and small gradients become zero. The **mantissa** says how close together
# neighbouring numbers lie: if it is too short, small updates change nothing. **Mixed precision** means: use 16 bits only
# where none of this happens.
#
# **Time** 60 min, two exercises among them; *Further*: 67 min. **Before this** lessons 00 to 02 and 06 (the simulated
# GPU, autograd, optimizers).
#
# **Afterwards you can**
# - say what a format does to a number: overflow, rounding, underflow;
# - read what autocast does, place casts by hand, and say when a scaler is needed;
# - see which shapes waste Tensor Cores, and pad them.

# %% setup
import math
from functools import partial

import torch
import torch.nn.functional as F

from helpers import lesson, plots, simulate
from helpers.lessons.mixed_precision import experiments
from helpers.lessons.mixed_precision.format_picture import float_bits, float_ranges

torch.set_num_threads(1)  # small tensors: more threads would mostly wait for one another
lesson.start(
    "10_mixed_precision",
    evidence=[
        "live (CPU)",
        "published",
        "recorded (H100)",
        "simulated (H100)",
        "simulated (A100)",
        "arithmetic",
    ],
)

# %% [markdown]
# ## 1 · Range and precision
#
# PyTorch has [two floating-point dtypes of 16 bits](https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch-dtype).
# **fp16** (`torch.float16`) has 5 bits of exponent and 10 of mantissa. **bf16** (`torch.bfloat16`) has 8 and 7. fp32 has 8 and 23.
# What becomes of each number when you store it?

# %% experiment
you = lesson.predict(
    {
        "70,000 in fp16": ...,
        "70,000 in bf16": ...,
        "257 in fp16": ...,
        "257 in bf16": ...,
        "1e-8 in fp16": ...,
        "1e-8 in bf16": ...,
    },
    choices=["same", "rounded", "inf", "zero"],
)

# %% experiment
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
becomes = {}
for question in you:
    number, name = question.replace(",", "").split(" in ")
    stored = torch.tensor(float(number), dtype=torch.float64).to(DTYPES[name]).item()
    becomes[question] = experiments.fate(float(number), stored)
you.against(becomes, evidence="live (CPU)", what="becomes")

# %% [markdown]
# - **bf16** is fp32 without the last 16 bits: the same range, and only 2 to 3 decimal digits.
# - **fp16** has 3 to 4 digits and a short range. Its largest number is 65,504, and what lies clearly above becomes infinite.
#   Its smallest is about 6·10⁻⁸, and what is at most half of that becomes zero. From there up to 6·10⁻⁵ fp16's numbers
#   are *subnormal*: the smaller they are, the fewer digits they have.
# - **TF32** is no dtype. Tensors stay in fp32, and Tensor Cores read only 19 bits of each number: fp32's exponent and
#   fp16's mantissa. TF32 saves time and no memory.
#   [`torch.set_float32_matmul_precision("high")`](https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html)
#   allows TF32 in a GPU's matmuls. For cuDNN's convolutions
#   [TF32 is on by default](https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices).
#
# Rounding hurts in a long sum. If a running sum is much larger than the next summand, adding changes nothing: the summand is
# **swamped**. Start at 0 and add 1 again and again: where does the count stand still? Then two more:
# `torch.ones(100_000).sum()` in fp16, and a bf16 weight of 1 from which 0.001 is taken 1,000 times.

# %% experiment
you = lesson.predict(
    {
        "fp16: x += 1 stops at": ...,
        "bf16: x += 1 stops at": ...,
        "fp16: torch.ones(100_000).sum()": ...,
        "bf16: a weight of 1, 1,000 times −= 0.001": ...,
    },
    choices={
        "fp16: x += 1 stops at": [256, 2048, 65504, "never"],
        "bf16: x += 1 stops at": [256, 2048, 65504, "never"],
        "fp16: torch.ones(100_000).sum()": [2048, 65504, 100000, "inf"],
        "bf16: a weight of 1, 1,000 times −= 0.001": ["about 0", "about 0.5", "still 1"],
    },
)


# %% experiment
def count_up(dtype):
    x = torch.zeros((), dtype=dtype)
    while (x + 1) != x:
        x += 1
    return int(x)


weight = torch.ones((), dtype=torch.bfloat16)
for _ in range(1000):
    weight -= 0.001
measured = {f"{name}: x += 1 stops at": count_up(dtype) for name, dtype in DTYPES.items()}
measured["fp16: torch.ones(100_000).sum()"] = torch.ones(100_000, dtype=torch.float16).sum().item()
moved = "still 1" if weight == 1 else "about 0" if weight < 0.25 else "about 0.5"
measured["bf16: a weight of 1, 1,000 times −= 0.001"] = moved
you.against(measured, evidence="live (CPU)", what="is")

# %% [markdown]
# The count stops at 2 to the power of (mantissa's bits + 1): from there on numbers lie 2 apart. In fp16 2,049 lies halfway
# between 2,048 and 2,050. A tie goes to the number whose mantissa is even, and that is 2,048. `sum` adds up in fp32 and
# rounds once at the end. Its result is infinite only because 100,000 is out of fp16's range.
#
# **As long as nothing overflows or vanishes, one operator in half precision does little harm. Harm comes from half
# precision kept from one operator to the next**: in a running sum, in a weight, or in a *residual stream* (the `h` of
# `h = h + block(h)`). That is why training keeps **master weights** in fp32. An update may be a thousandth of its
# weight, and bf16 cannot add the two.

# %% [markdown]
# ## 2 · What autocast casts
#
# [`torch.autocast("cuda", dtype=torch.float16)`](https://docs.pytorch.org/docs/stable/amp.html) changes no model. Autocast
# looks at each operator when it is called. Operators on one list run in half precision (matmuls, convolutions, attention).
# Operators on another run in fp32: many of those that add up numbers, or whose results soon become very large. Nearly
# all others take their inputs as they come ([the lists](https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference)).
#
# Inside such a block `x` and `w` are fp32, and `h` is fp16. Which dtype does each result have?

# %% experiment
you = lesson.predict(
    {
        "x @ w": ...,
        "softmax(h)": ...,
        "h.sum()": ...,
        "gelu(h)": ...,
        "h.square()": ...,
        "h * h": ...,
        "h + x": ...,
    },
    choices=["float16", "float32"],
)

# %% experiment
with simulate("H100") as gpu, torch.autocast("cuda", dtype=torch.float16):
    x, w = torch.empty(64, 64, device=gpu.device), torch.empty(64, 64, device=gpu.device)
    h = x.half()
    results = {
        "x @ w": x @ w,
        "softmax(h)": h.softmax(-1),
        "h.sum()": h.sum(),
        "gelu(h)": F.gelu(h),
        "h.square()": h.square(),
        "h * h": h * h,
        "h + x": h + x,
    }
kinds = {name: str(t.dtype).removeprefix("torch.") for name, t in results.items()}
you.against(kinds, evidence="simulated (H100)", what="dtype")

# %% [markdown]
# `h.square()` is a power, and powers are on the fp32 list. `h * h` is the same number, but products are on no list: in fp16
# `h * h` is infinite from 256 on. `h + x` is fp32, since PyTorch promotes to the wider dtype: a residual stream that
# begins in fp32 stays in fp32. (These are CUDA's lists. On the CPU softmax, sums and powers stay in half precision.)
#
# Put the autocast block around the forward pass and the loss, and nothing else. The backward pass runs in the dtypes of
# the forward pass by itself.
#
# **And memory?** Weights, gradients and optimizer states stay in fp32. What operators in half precision save for
# backward becomes half as large. How does the peak change with autocast? Three nets train, with SGD and momentum, and one
# only runs forward.

# %% experiment
you = lesson.predict(
    {
        "ResNet-50, 64 images": ...,
        "GPT-2 small, 4 × 1,024 tokens": ...,
        "8 layers of 4,096 × 4,096, 16 rows": ...,
        "the same 8 layers, only forward": ...,
    },
    choices=["nearly halved", "a quarter less", "about the same", "half more"],
)

# %% experiment
peaks = experiments.Peaks(
    fp32={net: experiments.peak(net) for net in you},
    half={net: experiments.peak(net, torch.float16) for net in you},
)
you.against(peaks.in_words(), peaks.table(), evidence="simulated (A100)", what="peak")

# %% [markdown]
# - **ResNet-50**: nearly all of its peak is activations, so nearly half is saved.
# - **GPT-2** lies between. Its weights, gradients and momenta stay in fp32. Its largest activation holds a logit for each
#   of 50,257 words, and the loss casts the logits back to fp32: the fp16 copy is extra memory.
# - **The 8 layers** have large weights and small activations. In training nothing is saved. In inference the fp16 copies
#   of the weights lie beside the weights, and the peak grows. For inference cast the whole model once, with
#   `model.bfloat16()`, and compare the outputs. (`model.half()` only if no value leaves fp16's range.)
#
# **And speed?** Plain fp32 matmuls use no Tensor Cores. With TF32 they do, and that costs one line of code. So ask of every
# speed-up of mixed precision: *times as fast as what?* The recording in *On the real GPU* has both answers.
#
# **Now place the casts yourself.** In the net below one block is applied again and again, with the same weights. Its
# stream `h` holds values around 300. Cast everything to fp16, or use autocast alone, and the loss is finite, plausible and
# wrong:


# %% experiment
from helpers.lessons.mixed_precision import exercises


def plain_loss(x, target, w_in, w_up, w_down, w_out, depth):
    h = x @ w_in
    for _ in range(depth):
        size = ((h * h).mean(-1, keepdim=True) + 1e-8).sqrt()  # root mean square norm
        h = h + F.gelu((h / size) @ w_up) @ w_down  # a small update of a large stream
    return (h @ w_out - target).square().mean()


stream = exercises.stream_net(16, 32, 64, 8, depth=48)
inputs = [*stream.tensors, stream.depth]
exact = plain_loss(*experiments.cast(inputs, torch.float64))
losses = {"fp32": plain_loss(*inputs), "all in fp16": plain_loss(*experiments.cast(inputs, torch.float16))}
with torch.autocast("cpu", dtype=torch.float16):
    losses["autocast alone"] = plain_loss(*inputs)
experiments.off_by(exact, losses)

# %% [markdown]
# **Exercise 10.1 — place the casts** (★★, 12 min)
#
# Write `plain_loss` with casts. Every matmul, forward and backward, gets fp16 inputs: on a GPU that is the saving. Loss
# and gradients are fp32, and close to those of `plain_loss`. No weight is cast twice. The tests do not allow `torch.autocast`.
#
# <details><summary>Hint 1</summary>Ask of each line's result: how large can it get? Is it part of a running sum? Three
# results must be fp32, and one of the three is the loss.</details>
#
# <details><summary>Hint 2</summary>A silent fault: 300² is infinite in fp16, a number divided by infinity is 0, and the
# block adds nothing. A slow fault: fp16's neighbours lie 0.25 apart at 300, so an update of 0.1 is lost. A wasteful fault:
# the same weights are cast in each turn of the loop.</details>
#
# <details><summary>The idea</summary>Cast the four weights before the loop. Keep <code>h</code> in fp32 from its first
# line on: <code>(x.half() @ w_in).float()</code>. Compute the norm in fp32 and cast its result. Multiply, gelu and
# multiply in fp16. Add the update: it is promoted to fp32. At the end cast <code>h</code> once more, and take the difference
# to the target in fp32. Autograd casts the gradients back the same way.</details>


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
    - casts (`.to`, `.half`, `.float`): no more bytes than it takes to cast once: x (2·n·d bytes), and, at 6 bytes an
      element, each weight, x @ w_in, the last h, the result, and in each turn of the block 2·n·d + 2·n·u elements.
      6 bytes are 2 in fp16 and 4 in fp32: a cast counts the bytes of its result, and backward casts the gradient
      the other way. That is enough even if gelu is computed in fp32, and, in the test's net of two
      rows, not if a weight is cast twice.
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
from helpers.lessons.mixed_precision.exercises import check_mixed_loss, stream_net

check_mixed_loss(stream_net(16, 32, 64, 8, depth=48))  # the net from above
check_mixed_loss(stream_net(2, 32, 64, 8, depth=6, away=150.0))  # two rows: a weight's second cast shows

# %% hidden="mixed_loss" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.mixed_precision.exercises import check_mixed_loss, stream_net

check_mixed_loss(
    stream_net(12, 48, 40, 6, depth=20, small=0.5),
    stream_net(8, 24, 100, 12, depth=24, large=350.0),
    stream_net(5, 40, 56, 3, depth=20, small=0.8),
    stream_net(9, 32, 40, 10, depth=10, away=120.0),
    stream_net(7, 32, 48, 9, depth=12, turned=True),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · Gradients that vanish
#
# A small net learns in fp32, fp16 and bf16 what another, fixed net computes. The loss is multiplied by a **factor**, as
# happens to a small term in a sum of losses. Adam divides each gradient by its usual size, so the factor should change
# nothing. With factor 1 half of the activations' gradients are smaller than {{usual}}·10⁻⁵. From which factor on does fp16
# learn nothing within 60 steps? And what warns you? (The run *fp16, scaled* has a remedy that comes after the result.)

# %% experiment
you = lesson.predict(
    {"fp16 stops learning at a factor of": ..., "the program warns you with": ...},
    choices={
        "fp16 stops learning at a factor of": ["1", "1/100", "1/1,000", "1/10,000", "1/100,000"],
        "the program warns you with": ["an error", "a loss of NaN", "nothing"],
    },
)


# %% experiment
def step(net, optimizer, scaler, x, y, dtype, factor):
    with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
        loss = factor * F.mse_loss(net(x).float(), y)
    scaler.scale(
        loss
    ).backward()  # a scaler that is not enabled: the loss as it is, optimizer.step(), and no update
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    return loss


RUNS = {"fp32": (torch.float32, False), "fp16": (torch.float16, False)}
RUNS |= {"fp16, scaled": (torch.float16, True), "bf16": (torch.bfloat16, False)}
FACTORS = {"1": 1, "1/100": 1e-2, "1/1,000": 1e-3, "1/10,000": 1e-4, "1/100,000": 1e-5}
sweep = {name: {} for name in FACTORS}
for name, factor in FACTORS.items():
    for run, (dtype, scaled) in RUNS.items():
        train_step = partial(step, dtype=dtype, factor=factor)
        sweep[name][run] = experiments.learn(train_step, 60, factor=factor, enabled=scaled)
lesson.keep(usual=round(1e5 * sweep["1"]["fp32"].gradients.abs().median().item()))
finite = all(run.finite for runs in sweep.values() for run in runs.values())
measured = [experiments.stopped_at(sweep), "nothing" if finite else "a loss of NaN"]
flows = experiments.flows(sweep["1/100,000"]["fp32"])
you.against(dict(zip(you, measured)), experiments.sweep_table(sweep), flows, evidence="live (CPU)")

# %% [markdown]
# With each smaller factor more gradients are zero, and nothing says so. While some are not zero, Adam divides them by their
# small size, and the net still learns. (fp32 too learns more slowly at the smallest factors: Adam's `eps` of 10⁻⁸ is no
# longer small beside such gradients.) bf16 keeps fp32's range, and needs no scaler.
#
# The picture shows the reason. In fp16's backward pass the gradient of each activation is an fp16 tensor. With the factor
# 1/100,000 nearly all of them lie below fp16's range.
#
# The cure is one multiplication. Multiply the *loss* by a **scale**: backward is linear, so each gradient is multiplied by
# the scale too. Divide the gradients by the scale before the optimizer reads them. A power of two as scale costs no digit.
# But most of the picture's last bars, scaled by 65,536, are still subnormal, and such numbers have fewer digits.
#
# How large a scale? As large as possible without infinities, and that changes during training.
# [`torch.amp.GradScaler`](https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling) therefore tries. It starts at
# 65,536. When a gradient is infinite or NaN, GradScaler **skips** the optimizer's step and halves the scale. After 2,000
# good steps in a row it doubles the scale. The order of the calls on a GPU:
#
# ```python
# scaler = torch.amp.GradScaler("cuda")
# with torch.autocast("cuda", dtype=torch.float16):
#     loss = loss_fn(model(x), y)
# scaler.scale(loss).backward()
# scaler.unscale_(optimizer)                                # only if something reads the gradients, as clipping does
# torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
# scaler.step(optimizer)                                    # divides by the scale if that was not done; steps, or skips
# scaler.update()
# ```

# %% [markdown]
# ## 4 · Shapes that fit
#
# A Tensor Core multiplies small blocks, and its kernels fetch 16 bytes at a time.
# [NVIDIA's guide](https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html#requirements-tc)
# wants the three sizes M, N and K of a matmul, (M, K) times (K, N), in multiples of **16 bytes**: 4 numbers in TF32, 8 in
# fp16 and bf16, 16 in formats of 8 bits. On an A100 multiples of 128 bytes are best. Newer versions of cuBLAS use Tensor
# Cores for other shapes too. But how well?
#
# [Meta's tool HTA](https://github.com/facebookresearch/HolisticTraceAnalysis) comes with traces of A100s. They hold a TF32
# matmul of 1024 × 1024 by 1024 × **1300**, and one by 1024 × **1705**, which is 1.3 times the work. How many times as long
# does the second one take?

# %% experiment
you = lesson.predict({"1,705 columns, against 1,300": ...}, choices=[0.7, 1.3, 1.8, 2.5])

# %% experiment
matmuls = experiments.Matmuls()
times = {"1,705 columns, against 1,300": matmuls.of_columns(1705).seconds / matmuls.of_columns(1300).seconds}
lesson.keep(miss=matmuls.of_columns(1705).rate / 1e12, fit=matmuls.least_near(1705) / 1e12)
you.against_ratios(times, matmuls.picture(), evidence="published", what="times as long")

# %% [markdown]
# With 1,705 columns the matmul reaches {{miss:.0f}} TFLOP/s. Those beside it in the picture that fit, with a little less or
# more work, reach {{fit:.0f}} or more.
#
# So pad, and time it: add zeros up to the next multiple, compute, and cut the result. Padding costs FLOPs, and how many is
# arithmetic.
# [One GPT-2](https://github.com/karpathy/build-nanogpt/commit/7230096129a52ae763cd810f2bb9e61f67ec9ab7) pads its vocabulary of
# 50,257 to 50,304 = 786 · 64, for 47 ÷ 50,257 = 0.09 % more FLOPs. (64 numbers in 16 bits are 128 bytes.) Pad weights once,
# when the model is made, not in each forward pass.

# %% [markdown]
# **Exercise 10.2 — pad the shapes that miss** (★★, 10 min)
#
# A net of linear layers with sigmoids between them has sizes that fit nowhere. Make a function that computes the same, in
# matmuls whose M, N and K are all multiples of `multiple`.
#
# <details><summary>Hint 1</summary><code>F.pad(w, (0, right, 0, below))</code> adds zeros to a matrix. Before the first
# layer, pad x in rows and in columns.</details>
#
# <details><summary>Hint 2</summary>There is no need to cut between layers. sigmoid(0) is 0.5, so the added features are
# not zero: what must the next weight hold there?</details>
#
# <details><summary>The idea</summary>Pad weights and biases outside of the inner function. Inside, pad x, run
# <code>F.linear</code> and sigmoid on the padded tensors, and return <code>y[:rows, :out]</code>, a view. Columns of zeros
# in the next weight switch the added features off.</details>


# %% exercise="aligned"
def aligned(weights: list[torch.Tensor], biases: list[torch.Tensor], multiple: int):
    """A function forward(x) of the net, made of matmuls with padded sizes.

    weights[i]: (out_i, in_i), biases[i]: (out_i,), in_(i+1) = out_i, float32, of any strides. Plain: x ← x @ W.T + b, then a sigmoid,
    except after the last. forward takes x: (rows, in_0), any number of rows, and returns (rows, out_last) as
    the plain net computes it (relative error 1e-4). Inputs are left as they are.

    Budgets: FLOPs exactly those of M, N and K rounded up to their next multiples. Bytes allocated, at most: when forward is
    made, twice the padded weights and biases; in each call, one padded x and 3 arrays of each layer's padded output.
    No syncs.
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
from helpers.lessons.mixed_precision.exercises import check_aligned, net

check_aligned(net((7, 5), 8, rows=(3,)), note="One layer: rows, features in and features out, all to 8.")
zeros = "Two layers: what the first sigmoid made of the added zeros must not get through."
check_aligned(net((6, 10, 3), 4, rows=(5,)), note=zeros)
check_aligned(net((8, 16, 8), 8, rows=(16,)), note="Everything fits already: nothing to add.")
batches = net((30, 50, 20), 8, rows=(9, 16, 1, 12, 3, 11))
check_aligned(batches, note="Six batches: padded weights are made once.")

# %% hidden="aligned" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.mixed_precision.exercises import check_aligned, net

check_aligned(
    net((13, 27, 9, 10), 8, rows=(11, 8, 1, 40)),
    net((33, 64, 31, 17, 2), 16, rows=(5, 16, 31)),
    net((20, 12, 4), 4, rows=(4, 6, 0)),
    net((100, 130, 70), 64, rows=(10, 65)),
    net((5, 3), 1, rows=(7, 2)),
    net((14, 20, 9), 6, rows=(10, 12)),
    net((40, 60, 30), 8, rows=(3,) * 12),
    net((700, 8, 3), 8, rows=(33, 9, 17)),  # a padded x is nearly all of the memory
)
### END HIDDEN TESTS

# %% [markdown]
# ## The running example
#
# Autocast has to stand around `forward`: the model and the loss. The weights and AdamW stay in float32. (The checkpoints of
# lesson 09 are taken out again: memory is not short.)

# %% experiment
from helpers import running_example
from helpers.running_example import plain as plain_script


def forward_in_bf16(model, inputs, targets):
    with torch.autocast(inputs.device.type, dtype=torch.bfloat16):
        return plain_script.forward(model, inputs, targets)


before = running_example.after("08")
lower = before.replace(forward=forward_in_bf16)
board = running_example.compare(before, lower, tolerance=1e-3)
lesson.keep(script_faster=board.before.step_s / board.after.step_s)
lesson.keep(script_tf32=board.before.step_s / experiments.in_tf32(before).step_s)
lesson.keep(script_ms=1e3 * board.after.step_s, script_busy=1e6 * board.after.busy_s)
board

# %% [markdown]
# On the simulated H100 a step is {{script_faster:.1f}} times as fast as in plain fp32, mostly because the matrix products now
# run on Tensor Cores. With TF32 alone it would be {{script_tf32:.1f}} times as fast; *On the real GPU* says how far to
# trust that. (The table's last row is your CPU. One without instructions for bf16 may be slower with it.)
#
# A step takes {{script_ms:.2f}} ms, but its kernels take only {{script_busy:.0f}} µs. They have become so
# short that the GPU waits for launches. Lesson 08 took lesson 07's graph out. Here it comes back.

# %% experiment
graph = running_example.after("07")
replayed = lower.replace(around=graph.around, optimizer=graph.optimizer)
again = running_example.compare(lower, replayed)
lesson.keep(script_again=again.before.step_s / again.after.step_s)
lesson.keep(script_mib=again.before.peak_bytes / 2**20, script_mib_now=again.after.peak_bytes / 2**20)
again

# %% [markdown]
# The same graph that bought no time in lesson 07 now makes the simulated step {{script_again:.2f}} times as fast. Its price is
# memory of its own: the peak goes from {{script_mib:.0f}} to {{script_mib_now:.0f}} MiB. Which change pays depends on what the step
# waits for. So measure again after each change.

# %% [markdown]
# ## Your own script
#
# First switch TF32 on (`torch.set_float32_matmul_precision("high")`), then try bf16's autocast. If your GPU has no bf16
# of its own (`torch.cuda.is_bf16_supported(including_emulation=False)` says so), use fp16 and a GradScaler. These lines
# print which share of each parameter's gradients fp16 would turn into zero, and the loss in both precisions. (The gradients
# of activations can be smaller still.) `%load_ext helpers`, then `%%bench` as a cell's first line, times a step before and
# after.

# %% experiment
from helpers.own_script import toy

model, optimizer, loss_fn, loader, device, _ = toy()  # at home: your own

x, y = (part.to(device) for part in next(iter(loader)))
loss = loss_fn(model(x), y)
loss.backward()
for name, p in model.named_parameters():
    if p.grad is not None:
        lost = (p.grad.half() == 0) & (p.grad != 0)
        print(f"{lost.float().mean().item():6.1%}  {name}")
optimizer.zero_grad()

model.eval()  # with dropout the two losses would differ by its masks too
with torch.no_grad():
    loss = loss_fn(model(x), y)
    with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
        in_bf16 = loss_fn(model(x), y)
model.train()
print(f"loss {loss.item():.2f}, with bf16 {in_bf16.item():.2f}")

# %% [markdown]
# No gradient of the toy is lost, and the two losses agree to the digits that bf16 has. With a share of some per cent in a layer,
# use the GradScaler for fp16. If the losses part in the first two digits, look for a sum or a norm in 16 bits.

# %% [markdown]
# ## On the real GPU
#
# A training step of GPT-2 small in four precisions: live where there is a CUDA GPU, elsewhere recorded on an H100,
# and simulated. How much of the gain does TF32 alone bring? Is fp16 any faster than bf16? And how far off is the simulator?

# %% experiment tags=["fold"]
recorded, simulated = experiments.precisions()
n = experiments.numbers_of(recorded, simulated)
lesson.keep(tf32_times=n["tf32_times"], bf16_times=n["bf16_times"])
lesson.keep(bf16_ms=n["bf16_ms"], bf16_whole=n["bf16_whole"], bf16_kernels=n["bf16_kernels"])
lesson.keep(fp32_whole=n["fp32_whole"], fp32_kernels=n["fp32_kernels"])
lesson.keep(fp16_ms=n["fp16_ms"], fp16_ms_h200=n["fp16_ms_h200"])
lesson.keep(fp32_off=n["fp32_off"], tf32_off=n["tf32_off"], bf16_off=n["bf16_off"], fp16_off=n["fp16_off"])
lesson.keep(bf16_kernels_off=n["bf16_kernels_off"])
lesson.keep(peak_off=n["peak_off"], worst=n["worst"])

# %% experiment tags=["nbval-ignore-output"]
experiments.four_precisions(simulated)

# %% [markdown]
# On the recorded H100 TF32 makes the step {{tf32_times:.1f}} times as fast as fp32, and bf16 {{bf16_times:.1f}} times. (The
# peaks are above section 2's, mostly because AdamW keeps two running means of each weight, and SGD one.)
#
# **In 16 bits the GPU waits for the CPU.** Another recording on an H100 has the kernels: in fp32 they take
# {{fp32_kernels:.1f}} of {{fp32_whole:.1f}} ms, in bf16 {{bf16_kernels:.1f}} of {{bf16_whole:.1f}} ms. The rest is the CPU's.
# It varies: the table's recording has {{bf16_ms:.1f}} ms for the same step. So the {{fp16_ms:.1f}} ms more in fp16 say little
# about fp16. (On an H200 it is {{fp16_ms_h200:.1f}} ms.)
#
# **Simulated beside recorded.** All four peaks agree within {{peak_off:.1%}}: memory follows from shapes and from the
# allocator's rules. The time is off by {{fp32_off:+.0%}} in fp32, {{tf32_off:+.0%}} in TF32, {{bf16_off:+.0%}} in bf16 and
# {{fp16_off:+.0%}} in fp16. In 16 bits that is mostly the CPU: bf16's kernels alone are off by {{bf16_kernels_off:+.0%}}. TF32
# launches less than bf16 and takes longer, so there kernels are off, too. (The {{worst:.0%}} under simulated tables are the
# worst of published steps; this step is not among them.)
# Trust a simulated peak more than a simulated speed-up.

# %% [markdown]
# ## Sources on trial

# %% experiment
from helpers.lessons.mixed_precision import claims

lesson.verdicts(
    claims.on_trial(peaks, sweep, matmuls),
    evidence="published · live (CPU) · simulated (A100)",
    shown=("10-speed", "10-memory", "10-scaling"),
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | bf16 with autocast, and no scaler. | GPUs before Ampere have no fast bf16: use fp16 and a scaler there. |
# | One operator in half precision does little harm; a chain of them does. | Its result may overflow or vanish. And cuBLAS may add up the parts of one matmul in fp16 or bf16 (allowed by default, and it [can be forbidden](https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html)). |
# | Autocast knows what to cast. | Products of numbers are on no list, so a norm or a loss that you wrote yourself may overflow. |
# | Half the bits, half the memory. | Only for activations. In inference autocast's copies come on top of all weights that require a gradient. |
# | Sizes in multiples of 16 bytes. | On an A100 128 bytes are better still. |
#
# **Read on**: PyTorch's [examples of mixed precision](https://docs.pytorch.org/docs/stable/notes/amp_examples.html)
# (accumulation, several losses, clipping); P. Micikevicius and others,
# [Mixed precision training](https://arxiv.org/abs/1710.03740) (2018) and
# [FP8 formats for deep learning](https://arxiv.org/abs/2209.05433) (2022); D. Kalamkar and others,
# [A study of BFLOAT16 for deep learning training](https://arxiv.org/abs/1905.12322) (2019).

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# ### Autocast and one cast (2 min)
#
# Exercise 10.1 placed all casts by hand. Autocast knows matmuls. It does not know how large your stream is. So one cast of
# your own is enough, where the stream begins:


# %% experiment
def one_cast(x, target, w_in, w_up, w_down, w_out, depth):
    h = (x @ w_in).float()  # the only cast: each sum with h is promoted to fp32
    for _ in range(depth):
        size = ((h * h).mean(-1, keepdim=True) + 1e-8).sqrt()
        h = h + F.gelu((h / size) @ w_up) @ w_down
    return (h @ w_out - target).square().mean()


with torch.autocast("cpu", dtype=torch.float16):
    losses["autocast and one cast"] = one_cast(*inputs)
experiments.off_by(exact, losses)

# %% [markdown]
# ### The cache of casts (3 min)
#
# Each cast is a kernel that reads and writes memory. Autocast therefore keeps the cast of a weight until the block ends.
# (Only of an fp32 leaf that requires a gradient: a frozen weight is cast at each use.) Four micro-batches of 32 rows go
# through one 1024 × 1024 layer, so four inputs are cast. How many casts are there in all?

# %% experiment
you = lesson.predict(
    {"one block around all four": ..., "a block around each": ..., "one block, cache_enabled=False": ...},
    choices=[4, 5, 8],
)


# %% experiment
def forward(blocks, **options):
    with simulate("H100") as gpu:
        layer = torch.nn.Linear(1024, 1024, bias=False, device=gpu.device)
        for _ in range(blocks):
            with torch.autocast("cuda", dtype=torch.float16, **options):
                for _ in range(4 // blocks):
                    layer(torch.empty(32, 1024, device=gpu.device))
    return gpu


ways = dict(zip(you, (forward(1), forward(4), forward(1, cache_enabled=False))))
measured = {way: experiments.casts(gpu) for way, gpu in ways.items()}
you.against(measured, evidence="simulated (H100)", what="casts")

# %% [markdown]
# The weight is cast once a block, or at each use without the cache. So open the block once a step. The cache holds
# the fp16 copies until the block ends. Close it before `backward()`, which then frees each copy when it has used it.
#
# ### Weights in bf16 (4 min)
#
# What if the *weights* are bf16, without autocast? Section 3's net trains longer, with the factor 1/100,000. Which runs
# learn like fp32?

# %% experiment
you = lesson.predict(
    {"autocast bf16": ..., "autocast fp16, scaled": ..., "weights in bf16": ...},
    choices=["like fp32", "slower", "not at all"],
)

# %% experiment
plain, fp16, bf16 = (
    partial(step, dtype=t, factor=1e-5) for t in (torch.float32, torch.float16, torch.bfloat16)
)
longer = {
    "fp32": experiments.learn(plain, 240, factor=1e-5),
    "autocast bf16": experiments.learn(bf16, 240, factor=1e-5),
    "autocast fp16": experiments.learn(fp16, 240, factor=1e-5),
    "autocast fp16, scaled": experiments.learn(fp16, 240, factor=1e-5, enabled=True),
    "weights in bf16": experiments.learn(plain, 240, factor=1e-5, weights=torch.bfloat16),
}
measured = {run: experiments.like(longer[run], longer["fp32"]) for run in you}
curves = plots.curves(
    {"": {run: (range(0, 240, 12), learned.losses[::12]) for run, learned in longer.items()}},
    evidence="live (CPU)",
    title="Five runs on the same data",
    note="autocast bf16 and scaled fp16 lie on fp32, which is dashed",
    xlabel="step",
    ylabel="loss, mean of the last 10",
    log="y",
    dashed=("fp32",),
)
you.against(measured, curves, evidence="live (CPU)", what="learns")

# %% [markdown]
# Weights in bf16 fall behind, for the reason of section 1: an update that is small beside its weight is rounded away.
#
# ### Write the scaler (25 min)
#
# Here is GradScaler at work. Its first scale is too large, and it grows after 20 good steps already:

# %% experiment
at_work = experiments.learn(
    partial(step, dtype=torch.float16, factor=1),
    120,
    enabled=True,
    init_scale=2.0**27,
    growth_interval=20,
)
plots.curves(
    {"": {"scale": (range(len(at_work.scales)), [math.log2(scale) for scale in at_work.scales])}},
    evidence="live (CPU)",
    title="A scaler looks for its scale",
    note="factor 1; init_scale=2**27, growth_interval=20; the scale falls where gradients were infinite, and no step was made",
    xlabel="step",
    ylabel="scale, power of two",
)

# %% [markdown]
# First the gradients overflow, and steps are skipped until the scale is small enough. From then on the scale doubles
# after every 20 good steps. When it has become too large, one step is lost. With the default of 2,000 good
# steps that happens less often.

# %% [markdown]
# **Exercise 10.3 — a GradScaler** (★★★, 15 min)
#
# Write it, with torch's names, for the order of calls in section 3.
#
# <details><summary>Hint 1</summary>Unscale every gradient of <code>optimizer.param_groups</code> in place, and note, as a
# tensor, whether all are finite. Ask that tensor for its value once, in <code>step</code>.</details>
#
# <details><summary>Hint 2</summary>Remember three things between the calls: whether this step's gradients are unscaled
# already, whether they were finite, and how many good steps there have been in a row. The first two begin anew in
# <code>update</code>, the last after every change of the scale.</details>
#
# <details><summary>The idea</summary><code>finite = torch.stack([g.isfinite().all() for g in grads]).all()</code> is one
# tensor; <code>g.mul_(1 / scale)</code> for each. <code>step</code>: unscale if that is due, then
# <code>if finite.item(): return optimizer.step()</code>. <code>update</code>: back off after a bad step, else count, and grow when the count
# reaches the interval.</details>


# %% exercise="grad_scaler"
class Scaler:
    """Loss scaling as torch.amp.GradScaler does it, for one optimizer.

    init_scale: the first scale. After a step with an infinity or NaN among the gradients: scale · backoff_factor.
    After growth_interval good steps in a row: scale · growth_factor, and counting begins again, as it
    does after a back-off.

    At least one parameter has a gradient, of any size and strides, and scales may fall below 1 (2^-20 to 2^100).
    Right when weights, momenta, scales and skipped steps are those of torch.amp.GradScaler. Budget: the CPU
    waits at most once for each training step. torch's own scaler and its `_amp_` operators are not to be used.
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
from helpers.lessons.mixed_precision.exercises import Training, check_Scaler

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
from helpers.lessons.mixed_precision.exercises import Training, check_Scaler

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
# ### Bits by hand, and FP8's scales (33 min)
#
# Here are all formats on one number line, and then one number in all of them. (*e5m2* and *e4m3* are the two formats of
# 8 bits, called **FP8**: 5 or 4 bits of exponent, 2 or 3 of mantissa.) In the second picture a column is a place: all
# exponents end, and all mantissas begin, at the same place. Put other numbers in: 65504 and 65520, 6e-8 and 2e-8, 0.1, -0.0.
# What happens to the bits when a number doubles?

# %% experiment
float_ranges()

# %% experiment
float_bits(257.0)

# %% [markdown]
# What does rounding cost? Take a thousand numbers from a normal distribution, as they are and divided by 10,000, as
# gradients often are:

# %% experiment
normal = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
experiments.rounding_errors(normal, divisor=10_000)

# %% [markdown]
# As long as the range holds, the error depends on the mantissa alone. A power of two as scale costs no digit and brings the
# range back. FP8 training rests on scales: one for each tensor, often with E5M2 and its wider range for gradients, or one for
# each row, with E4M3 for all
# ([torchao](https://docs.pytorch.org/ao/main/api_reference/generated/torchao.float8.Float8LinearRecipeName.html)).
# Here are gradients of about 1e-4, one row of which is 10,000 times as large. What does E4M3 leave of them?

# %% experiment
g = 1e-4 * torch.randn(256, 1024, generator=torch.Generator().manual_seed(0))
g[0] *= 1e4
largest, peak = torch.finfo(torch.float8_e4m3fn).max, simulate("H100").card.peak_flops
lesson.keep(fp8_tflops=peak["fp8"] / 1e12, bf16_tflops=peak["bf16"] / 1e12)
scales = {"no scale": torch.tensor(1.0), "one scale": g.abs().amax() / largest}
scales["one for each row"] = g.abs().amax(1, keepdim=True) / largest
for name, size in scales.items():
    rounded = (g / size).to(torch.float8_e4m3fn).float() * size
    off = ((rounded - g).norm(dim=1) / g.norm(dim=1)).median()
    print(f"{name:18} {(rounded == 0).float().mean():4.0%} became 0; a row is off by {off:.0%}")

# %% [markdown]
# One large row takes the range from all others. A scale for each row gives it back, for 4 bytes a row. The scale has to be
# known before the rounding: either it is computed from the tensor first, one more read of all of it, or it is *delayed*,
# taken from the steps before. What FP8 saves: a byte for each number that is read, and products at twice the peak of 16 bits
# ({{fp8_tflops:,.0f}} against {{bf16_tflops:,.0f}} TFLOP/s on an H100). The casts are launches and reads of their own, so
# small layers lose. Weights, moments and sums stay in 16 or 32 bits. And **MFU** is counted against the peak of the format
# that computes (lesson 03): the same step has half the MFU when its products move to FP8 and gain nothing.

# %% [markdown]
# **Exercise 10.4 — decode and round by hand** (★★, 15 min)
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
# (E4M3, as cards and torch have it, breaks the last line: it has no infinity, and its largest number is 448. In this exercise
# every format keeps to the table.)
#
# <details><summary>Hint 1</summary>Decoding: cut the three fields out with <code>&gt;&gt;</code> and <code>&amp;</code>.
# Both finite lines of the table are one: (m, plus 2^M unless e = 0) · 2^(max(e, 1) − bias − M).</details>
#
# <details><summary>Hint 2</summary>Encoding: neighbours of |x| lie 2^q apart, and q needs only the exponent of |x|, which
# <code>torch.frexp</code> gives exactly (for 0 it gives 0: take the smallest q there); q is never less than 1 − bias − M.
# Divide by 2^q, and <code>torch.round</code> does the rest: it rounds halves to the even number. float64 has room for all
# of it.</details>
#
# <details><summary>The idea</summary>The magnitudes' bit patterns count upwards without a gap: 0, smallest subnormal, …,
# largest, infinity. So the pattern is (|x| ÷ 2^q, rounded) plus (q + M + bias − 1) · 2^M, and a mantissa that rounds up to
# 2^(M+1) carries into the exponent by itself. What passes the largest lands on infinity's pattern or above: clamp. Then
# NaN, and the sign.</details>


# %% exercise="float_bits"
def decode(bits: torch.Tensor, exponent: int, mantissa: int) -> torch.Tensor:
    """The values of bit patterns.

    bits: int64, any shape and strides, left as it is, each from 0 to 2^(1 + exponent + mantissa) − 1.
    exponent: 2 to 8, mantissa: 1 to 23.
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

    x: float32, any shape and strides, left as it is. exponent: 2 to 8, mantissa: 1 to 23. Returns int64 of that
    shape. What rounds beyond the largest value is infinite. −0.0 keeps its sign. NaN, whatever its sign, becomes sign 0, all ones in the
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

from helpers.lessons.mixed_precision.exercises import check_decode, check_encode

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

from helpers.lessons.mixed_precision.exercises import (
    check_decode,
    check_encode,
    hard_numbers,
    random_patterns,
)

formats = [(5, 10), (8, 10), (8, 7), (4, 3), (3, 2), (2, 1), (6, 9), (7, 4), (5, 1), (8, 1), (2, 12)]
check_decode({bits: random_patterns(sum(bits), bits, 40, 5) for bits in [*formats, (8, 23)]})
check_encode({bits: hard_numbers(sum(bits), 9, 40) for bits in [*formats, (8, 23)]})
check_encode({(5, 6): hard_numbers(3, 1000).reshape(10, 100).t()})
for shaped in (torch.tensor(77), torch.arange(256).reshape(8, 32).t(), torch.arange(0)):
    check_decode({(4, 3): shaped})
check_encode({(4, 3): torch.tensor(3.3), (5, 6): torch.zeros(0, 3)})
### END HIDDEN TESTS
