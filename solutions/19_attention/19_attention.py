# %% [markdown]
# # 19 · Attention
#
# ## How much of attention has to be computed?
#
# In attention every token looks at every other token: n tokens make n² scores. Three things can be saved, and you count them:
#
# - **Memory.** The scores need not all exist at once (sections 1 and 2).
# - **Traffic.** They need not go to the GPU's memory. PyTorch has kernels for that, and for some calls silently does without (section 3).
# - **Work.** What a mask throws away need not be computed (section 4).
#
# **Time** 75 min, 29 of them for two exercises; *Further*: 110 min. **Before this** lessons 02 (what is saved for backward) and 11
# (what a compiler does); 09 helps.
#
# **Afterwards you can**
# - write attention that never holds all the scores;
# - say which kernel a call of `scaled_dot_product_attention` gets, make PyTorch complain if it is *math*, and repair the call;
# - write a mask as a rule, and say how many blocks of scores it keeps.

# %% setup
import math
import warnings

import torch
from torch import nn
from torch.nn import functional as F

from helpers import count, lesson
from helpers.lessons.attention import experiments

SDPA = F.scaled_dot_product_attention
torch.set_num_threads(1)

lesson.start("19_attention", evidence=["live (CPU)", "simulated (H100)", "recorded (H100)", "arithmetic"])

# %% [markdown]
# ## 1 · The score matrix, and what holds it
#
# Attention has three inputs, each of shape (batch, heads, n, d): **queries** q, **keys** k and **values** v. Each query
# gets a **score** for every key: their dot product, divided by √d. Softmax turns the scores of a query into weights that add up to 1. The
# result is the sum of the values with these weights. Written out, these are two matrix products with a softmax between them.
# [`scaled_dot_product_attention`](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html)
# (SDPA) does the same in one operator.
#
# Here are two calls of it, forward and backward, with q, k and v of shape (1, 2, 2048, 64):
#
# ```python
# SDPA(q, k, v)
# SDPA(q[0], k[0], v[0])
# ```
#
# The second only leaves out the batch dimension of 1. The results agree up to rounding, and nothing is printed. One of them holds the
# scores. A query has 64 numbers, its row of scores 2,048. How many times as much memory does the second call need, beside q, k and v?

# %% experiment
you = lesson.predict({"memory without the batch dimension: ×": ...}, choices=[3, 8, 25])

# %% experiment
with_batch = experiments.step(SDPA, 2048)
without = experiments.step(lambda q, k, v: SDPA(q[0], k[0], v[0]), 2048)
more = {"memory without the batch dimension: ×": without.peak_live_bytes / with_batch.peak_live_bytes}
you.against_ratios(more, evidence="live (CPU)", what="memory")

# %% [markdown]
# About {{fallback:.0f}} times. For the second call PyTorch ran the formula written out, and did not say so.
#
# Run both ways forward and backward: the formula written out, and SDPA as in the first call. When n doubles, how many
# times larger is the peak of memory? And does SDPA do fewer floating-point operations (FLOPs) than the formula, as many, or more?

# %% experiment
you = lesson.predict(
    {"n doubles, written out: peak ×": ..., "n doubles, SDPA: peak ×": ..., "FLOPs of SDPA": ...},
    choices={
        "n doubles, written out: peak ×": [2, 4, 8],
        "n doubles, SDPA: peak ×": [2, 4, 8],
        "FLOPs of SDPA": ["fewer", "as many", "more"],
    },
)


# %% experiment
def written_out(q, k, v):
    weights = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1)
    return weights @ v


ways = {"written out": written_out, "SDPA": SDPA}
lengths = (256, 512, 1024, 2048)
steps = {name: [experiments.step(way, n) for n in lengths] for name, way in ways.items()}
you.against(experiments.when_n_doubles(steps), experiments.peaks(steps, lengths), evidence="live (CPU)")

# %% [markdown]
# The picture has slope 2 against slope 1; at 256 tokens the gap is still {{short_gap:.1f}} times.
#
# Written out, backward holds three matrices of n² numbers: the softmax's result, its gradient, and the gradient of
# the scores. In the opening call each is 2 · 2,048² · 4 bytes = 32 MiB; SDPA's result and three gradients are 4 MiB in all.
# SDPA keeps **one number per query** instead: the logarithm of the sum of exp(score) over the row. A weight is
# exp(score − that number), so nothing else of the row is needed. Its backward computes the scores **again**, block by block: a seventh matrix product, and {{more_flops:.0%}} more FLOPs.
#
# Is it slower, then? Take forward alone, where both ways do the same two products, on an H100: 4,096 tokens, batch 8, 16 heads of 64
# features, bfloat16.
#
# - The n² numbers are 4.3 GB. To write or to read them once takes 1.3 ms, at the memory's 3.35 TB/s.
# - The two products are 550 GFLOP: 0.56 ms at the Tensor Cores' 989 TFLOP/s. The best fused kernel reaches about half of it.
#
# On a GPU PyTorch has three fused kernels, named *cuDNN*, *flash* and *efficient*. All use the idea that papers call *flash attention*.
# How many times does the formula write or read the n² numbers? And its time is how many times SDPA's?

# %% experiment
you = lesson.predict(
    {"written or read: times": ..., "the formula's time ÷ SDPA's": ...},
    choices={
        "written or read: times": [2, 4, 6],
        "the formula's time ÷ SDPA's": ["about 1.2", "about 3", "7 or more"],
    },
)

# %% experiment
you.against(
    experiments.of_h100(written_out),
    experiments.recorded_ways(),
    evidence="simulated (H100) · recorded (H100)",
)

# %% experiment tags=["fold"]
plain, fast = (steps[name] for name in ("written out", "SDPA"))
lesson.keep(fallback=more["memory without the batch dimension: ×"])
lesson.keep(short_gap=plain[0].peak_live_bytes / fast[0].peak_live_bytes)
lesson.keep(more_flops=fast[-1].flops / plain[-1].flops - 1)
lesson.keep(real_times=experiments.recorded_times("written out", "SDPA"))
lesson.keep(efficient_times=experiments.recorded_times("efficient", "SDPA"))
lesson.keep(real_ms=1e3 * experiments.recorded_s("written out"), of_speed=experiments.of_memory_speed())

# %% [markdown]
# Six times: the first product writes them, the division reads and writes them, so does the softmax, and the second product reads them.
# That is 6 · 1.3 ms at least, and the formula's kernels reached only {{of_speed:.0%}} of the memory's speed. So it took {{real_times:.0f}}
# times as long as SDPA. **The fast kernel wins by not moving numbers, and not by computing less.** Of the fused ones
# *efficient* takes {{efficient_times:.1f}} times as long as cuDNN's.
#
# ## 2 · A softmax that never sees its whole row
#
# The softmax of a row divides exp(score) by the sum of all exp(score). PyTorch subtracts the row's maximum first:
# exp(score − maximum). But the maximum is known only at the end of the row.
#
# The way out: go through the row in blocks, and keep a **running maximum** and a **running sum**. What is the sum
# without any maximum? And what has to be done with the old sum if a block brings a larger maximum?

# %% experiment
you = lesson.predict(
    {
        "sum of exp(score), scores up to 90, float32": ...,
        "a larger maximum comes: the old sum is": ...,
    },
    choices={
        "sum of exp(score), scores up to 90, float32": ["right", "inf", "nan"],
        "a larger maximum comes: the old sum is": ["kept", "multiplied", "thrown away"],
    },
)

# %% experiment
scores = torch.tensor([86.0, 88.0, 87.0, 87.5, 90.0, 89.0, 4.0, 88.0])
highest, total, rows = torch.tensor(float("-inf")), torch.tensor(0.0), []
for block in scores.split(2):
    new = torch.maximum(highest, block.max())
    shrink = torch.exp(highest - new)  # 1 where the maximum stays, and 0 for the first block: exp(-inf)
    total = total * shrink + torch.exp(block - new).sum()
    highest = new
    rows.append([block.tolist(), highest.item(), shrink.item(), total.item()])
whole = torch.exp(scores - scores.max()).sum()
naive = str(torch.exp(scores).sum().item())
you.against(experiments.of_running(rows, naive), experiments.running(rows), evidence="live (CPU)")

# %% experiment tags=["fold"]
lesson.keep(running=total.item(), at_once=whole.item())

# %% [markdown]
# The old sum is multiplied by exp(old maximum − new maximum). That replaces the old maximum by the new one in every
# term, because exp(s − old) · exp(old − new) = exp(s − new). Without any maximum the sum is inf: float32 ends at exp(88.7). The
# running sum ends at {{running:.4f}}, and the sum over the whole row is {{at_once:.4f}}.
#
# The same factor repairs the **result**, a sum of exp(score − maximum) · value:
#
# - total ← total · shrink + Σ exp(score − new)
# - out ← out · shrink + Σ exp(score − new) · value
#
# So attention can go through the keys in blocks and keep three things per query: maximum, sum and result. At
# the end it divides the result by the sum. Up to rounding this is exact.

# %% [markdown]
# **Exercise 19.1 — attention in blocks** (★★★, 22 min)
#
# Write attention that holds the scores of one block of `block` keys at a time. The three things to keep are there already. First make
# it right without `causal`.
#
# With `causal=True`, query i sees the keys 0 to i only. Here are six queries and six keys, in blocks of two keys:
#
# | | keys 0, 1 | keys 2, 3 | keys 4, 5 |
# |---|---|---|---|
# | queries 0, 1 | a triangle | – | – |
# | queries 2, 3 | all | a triangle | – |
# | queries 4, 5 | all | all | a triangle |
#
# A block of keys that begins at key `start` is seen by the queries from `start` on. Compute no scores for the queries before it.
#
# <details><summary>Hint 1</summary>The loop is that of the cell above, for all queries at once: the maximum and the sum go over the
# last dimension, with <code>keepdim=True</code>. <code>out</code> goes the way of <code>total</code>, with
# <code>weights @ values</code> in place of the sum of the weights.</details>
#
# <details><summary>Hint 2</summary>Let <code>rows = slice(start, None) if causal else slice(None)</code>, and read and write
# <code>highest[..., rows, :]</code> and the others. Inside the block, the first row sees one key, the second row two:
# <code>torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)</code> is true where −inf belongs.</details>
#
# <details><summary>The idea</summary>For each block: the scores, masked if causal; the new maximum, at least the old one; the weights; the
# factor <code>shrink</code>; then <code>total</code> and <code>out</code>. Write the new maximum into <code>highest</code> last: the
# factor needs the old one, and a slice of <code>highest</code> is a view. Too many bytes? A name from the block before still holds its
# array.</details>


# %% exercise="blockwise_attention"
def blockwise_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block: int, causal: bool = False
) -> torch.Tensor:
    """softmax(q @ k.mT / √d) @ v, with the scores of one block of keys at a time. Nobody will call backward on it.

    q: (…, n, d); k: (…, m, d); v: (…, m, e). All float32 or all float64; the same leading dimensions, perhaps none.
    m is 1 or more, n may be 0. Scores may be tens of thousands above or below 0.
    k and v may be expanded views: slice them. If a product copies the slice, that copy fits into the budget in all tests; a
    copy of the whole need not.
    block: 1 or more; it need not divide m, and may be larger. causal: query i sees keys 0 to i only; then n is m.

    Returns (…, n, e), of q's dtype: what F.scaled_dot_product_attention(q, k, v, is_causal=causal) gives. Do not call that.

    Budget:
    - FLOPs: 2 · (d + e) for each pair of a query and a key. With causal, a block of keys has no pairs with the queries
      before its first key.
    - Memory at the peak: all that the call allocates counts, with highest, total, out and masks. For each query: 4 arrays of a block's scores, of min(block, m) numbers each; 4 results, of e numbers
      each; 8 more numbers; and one copy of the query, d numbers. All of q's dtype. And 4,096 bytes.
    """
    highest = q.new_full((*q.shape[:-1], 1), float("-inf"))  # (…, n, 1): the running maximum of each query
    total = torch.zeros_like(highest)  # (…, n, 1): its running sum
    out = q.new_zeros(*q.shape[:-1], v.shape[-1])  # (…, n, e): its running result
    for start in range(0, k.shape[-2], block):
        keys, values = k[..., start : start + block, :], v[..., start : start + block, :]
        ### BEGIN SOLUTION
        rows = slice(start if causal else 0, None)
        scores = q[..., rows, :] @ keys.mT * q.shape[-1] ** -0.5
        if causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
            scores.masked_fill_(later, float("-inf"))
        new = torch.maximum(highest[..., rows, :], scores.amax(-1, keepdim=True))
        weights, shrink = (scores - new).exp(), (highest[..., rows, :] - new).exp()
        total[..., rows, :] = total[..., rows, :] * shrink + weights.sum(-1, keepdim=True)
        out[..., rows, :] = out[..., rows, :] * shrink + weights @ values
        highest[..., rows, :] = new
        ### END SOLUTION
    return out / total


# %% test="blockwise_attention" points=1
from helpers import check
from helpers.lessons.attention.exercises import check_blockwise_attention, three

check_blockwise_attention(
    check.case(*three(2, n=6, m=8, d=4, seed=1), 3),
    check.case(*three(2, n=8, m=8, d=4, seed=2), 4, True),
    check.case(*three(2, n=4, m=9, d=4, seed=3, rising=2000.0), 2),  # each block brings a larger maximum
    budget=False,
)
check_blockwise_attention(
    check.case(*three(2, n=256, m=256, d=16, seed=4), 32),
    check.case(*three(2, n=256, m=256, d=16, seed=5), 32, True),
)

# %% hidden="blockwise_attention" points=3
### BEGIN HIDDEN TESTS
from helpers import check
from helpers.lessons.attention.exercises import check_blockwise_attention, three

check_blockwise_attention(
    check.case(*three(n=5, m=7, d=3, seed=11), 100),  # no leading dimension, one block larger than all
    check.case(*three(3, n=4, m=6, d=4, e=2, seed=12), 1),
    check.case(*three(2, n=3, m=8, d=4, seed=13, shift=-900.0), 4),  # all scores far below 0
    check.case(*three(2, n=3, m=10, d=4, seed=14, shift=700.0, rising=-1500.0), 4),
    check.case(*three(2, n=6, m=6, d=4, seed=23, shift=-30000.0), 2, True),  # a mask of -10000 would win
    check.case(*three(2, n=0, m=4, d=4, seed=15), 2),
    check.case(*three(1, n=1, m=1, d=2, seed=16), 1, True),
    budget=False,
)
check_blockwise_attention(
    check.case(*three(2, 2, n=100, m=77, d=8, e=24, seed=17), 16),
    check.case(*three(2, n=256, m=64, d=64, e=2, seed=24), 4),  # room for one copy of q
    check.case(*three(n=12, m=90, d=4, seed=18), 1),
    check.case(*three(3, n=130, m=130, d=8, seed=19), 50, True),  # the last block is smaller
    check.case(*three(2, 4, n=96, m=96, d=16, seed=20, shared=True), 8, True),
    check.case(*three(2, 4, n=16, m=384, d=16, seed=25, shared=True), 8),  # no room for a copy of k and v
    check.case(*three(2, n=300, m=300, d=8, seed=21, shift=300.0, rising=900.0), 20, True),
)
check_blockwise_attention(check.case(*three(2, n=128, m=96, d=8, seed=22, dtype="float32"), 24))
### END HIDDEN TESTS

# %% [markdown]
# How does your function compare with SDPA and with the formula, on a GPU? It takes the 4,096 keys in
# blocks of 256, here in bfloat16.

# %% experiment
you = lesson.predict(
    {"your peak of memory": ..., "your time": ...},
    choices={
        "your peak of memory": ["about SDPA's", "between the two", "more than the formula's"],
        "your time": ["about SDPA's", "between the two", "longer than the formula's"],
    },
)

# %% experiment
if runs := experiments.with_your_attention(ways, blockwise_attention):
    you.against(experiments.of_yours(runs), experiments.costs(runs), evidence="simulated (H100)").show()

# %% experiment tags=["fold"]
if runs:
    formula_mib, sdpa_mib, your_mib = (run.more for run in runs)
    lesson.keep(formula_mib=formula_mib, sdpa_mib=sdpa_mib, your_mib=your_mib)
    lesson.keep(too_quick=1 - runs[0].seconds / experiments.recorded_s("written out"))

# %% [markdown]
# With an answer as in the hints the peak is {{your_mib:,.0f}} MiB, between the formula's {{formula_mib:,.0f}} and SDPA's
# {{sdpa_mib:,.0f}}: four blocks of scores, 256 MiB each, and the result. And it is the slowest: each operation of your loop is a kernel,
# which reads and writes the GPU's memory. A block takes 17 of them: two products, the division, four for the softmax (PyTorch's own is one),
# and ten that rescale sum and result and write them back. (Simulated: the formula's time is
# {{too_quick:.0%}} below the recorded {{real_ms:.1f}} ms. SDPA's 2 MiB above the recorded 64 are its one number per query, which that call did not keep.)
#
# **Blocks save memory; only a fused kernel saves traffic.** It takes the *queries* in blocks too, so small that scores
# and running result stay on the chip, from the first product to the last. `torch.compile` joins your loop's operations between two
# products, but not the products.
#
# ## 3 · Which kernel did you get?
#
# SDPA is one function in front of several **backends**: the fused kernels, and *math*. SDPA chooses for each call. If no
# fused kernel takes it, math does, and nobody tells you. *math* does the formula's steps as separate kernels, casts bfloat16 to
# float32, and looks for rows that see nothing: {{math_times:.1f}} times `written_out`'s time at 1,024 tokens, recorded.
#
# You test on a laptop's CPU, and run on an H100. The CPU has one fused kernel, a template for all kinds of floats. The H100's three
# take floats of 16 bits; *efficient* takes 32 too. For three calls, say on which machine they get a fused kernel.
# q, k and v are bfloat16; *float64* converts them first.

# %% experiment
you = lesson.predict(
    {"three dimensions, no batch": ..., "dropout_p=0.1": ..., "float64": ...},
    choices=["on both", "on the CPU only", "on the GPU only", "on neither"],
)

# %% experiment
N = 128
CALLS = {
    "nothing but q, k and v": SDPA,
    "a mask of bools": lambda q, k, v: SDPA(q, k, v, q.new_ones(N, N, dtype=torch.bool).tril()),
    "a mask that wants a gradient": lambda q, k, v: SDPA(q, k, v, nn.Parameter(q.new_zeros(N, N))),
    "dropout_p=0.1": lambda q, k, v: SDPA(q, k, v, dropout_p=0.1),
    "values wider than keys": lambda q, k, v: SDPA(q, k, torch.cat([v, v], -1)),
    "three dimensions, no batch": lambda q, k, v: SDPA(q[0], k[0], v[0]),
    "float64": lambda q, k, v: SDPA(q.double(), k.double(), v.double()),
}
kernels = {name: experiments.kernels_of(call, N) for name, call in CALLS.items()}
fused = experiments.fused_on(kernels)
you.against(
    {call: fused[call] for call in you},
    experiments.backends(kernels),
    evidence="live (CPU) · recorded (H100)",
)

# %% experiment tags=["fold"]
lesson.keep(misleading=sum("only" in where for where in fused.values()), calls=len(fused))
lesson.keep(in_float32=experiments.recorded_backends()["float32"])
lesson.keep(math_times=experiments.recorded_times("math", "written out", 1024))

# %% [markdown]
# **A fused kernel on one machine is no promise for another.** For {{misleading}} of these {{calls}} calls a test on the laptop tells you
# the wrong thing. And in float32 the H100 has only *{{in_float32}}*, in bfloat16 the slowest of its three.
#
# So do not trust, **ask**.
# [`sdpa_kernel`](https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.sdpa_kernel.html) allows only the
# backends that you name. A call that would fall back then raises, and in most cases a warning says why. On the CPU name *flash*, on a GPU all three.

# %% experiment
from torch.nn.attention import SDPBackend, sdpa_kernel

q, k, v = (torch.randn(2, 4, N, 64, dtype=torch.bfloat16) for _ in range(3))
for name in ("a mask that wants a gradient", "dropout_p=0.1", "three dimensions, no batch"):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            CALLS[name](q, k, v)
        except RuntimeError as error:
            print(f"{name}: {error} {experiments.reason(said)}")

# %% [markdown]
# Where you get no reason, take things out of the call, one at a time. On a GPU look first at the dtype, the width of a head (*flash*: at most 256,
# the same for q, k and v) and the last stride (1). In the first line it is this: the CPU's kernel makes no gradient for a mask.
#
# ## 4 · A mask is a rule, and skips blocks
#
# A mask as a tensor has n² numbers, which are read for every head. With `is_causal=True` the kernels skip the blocks above the
# diagonal; with the same mask as a tensor they compute them.
#
# But most masks are a **rule**: given the places of a query and a key, may the one look at the other?
# [FlexAttention](https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html) takes the rule as a
# function, the `mask_mod`. From it `create_block_mask` finds out which **blocks** of scores are empty. The kernel skips these. Of every other
# block it computes all the scores.
#
# Take 1,024 tokens, and blocks of 128 × 128. Three rules:
#
# - **causal**;
# - a **sliding window**: causal, and only the last 256 keys, the query's own among them;
# - **four documents** of 512, 128, 256 and 128 tokens in one row: each is causal, and sees no other.
#
# What share of the 8 × 8 blocks is computed? Draw them.

# %% experiment
you = lesson.predict(
    {"causal": ..., "sliding window of 256": ..., "four documents": ...},
    choices={
        "causal": ["50 %", "56 %", "75 %"],
        "sliding window of 256": ["22 %", "25 %", "33 %"],
        "four documents": ["17 %", "23 %", "56 %"],
    },
)

# %% experiment
from torch.nn.attention.flex_attention import create_block_mask

here = "cpu"  # where q, k and v are
document = torch.repeat_interleave(torch.arange(4), torch.tensor([512, 128, 256, 128])).to(here)


def causal(b, h, i, j):  # batch, head, place of the query, place of the key
    return i >= j


def sliding(b, h, i, j):
    return (i >= j) & (i - j < 256)


def documents(b, h, i, j):
    return (document[i] == document[j]) & (i >= j)


rules = {"causal": causal, "sliding window of 256": sliding, "four documents": documents}
masks = {  # None, None: one mask for all batches and all heads
    name: create_block_mask(rule, None, None, 1024, 1024, device=here, BLOCK_SIZE=128)
    for name, rule in rules.items()
}
you.against(experiments.shares(masks), experiments.of_masks(masks, rules), evidence="live (CPU)")

# %% [markdown]
# Causal keeps more than half, because every score of a block on the diagonal is computed. In a whole block the kernel need not ask
# the rule. A window keeps a band, which grows like n. Smaller blocks follow a rule more closely, but each has a fixed cost, and
# Tensor Cores want large ones. This explorer has 64 tokens:

# %% experiment
from helpers.lessons.attention.explorer import mask_explorer

mask_explorer("documents", block=8, documents=5)

# %% [markdown]
# **Move it.** Set the block to 16, then to 4, with *causal* and with five *documents*. Whose share falls by the larger factor?
#
# <details><summary>Answer</summary>The documents'. A document shorter than a block wastes most of it.</details>

# %% [markdown]
# **Exercise 19.2 — a mask as a rule** (★, 7 min)
#
# Write the rule for a batch whose rows have documents of their own: causal, in one's own document, and
# within a sliding window. But the first tokens of a document stay visible for all its later tokens, as
# [attention sinks](https://arxiv.org/abs/2309.17453).
#
# <details><summary>Hint 1</summary>The rule is a function inside your function. It reads <code>document[b, i]</code>, where the rule
# <code>documents</code> above reads <code>document[i]</code>.</details>
#
# <details><summary>Hint 2</summary><code>i</code> and <code>j</code> are tensors, so write <code>&amp;</code> and <code>|</code>, with brackets around
# each comparison. <code>and</code>, <code>or</code>, <code>if</code> and <code>0 &lt;= i - j &lt; window</code> want one truth value.</details>
#
# <details><summary>The idea</summary>Three conditions joined by <code>&amp;</code>: the same document, not later, and a bracket. In the bracket are
# two, joined by <code>|</code>: near, or a sink, which is a key whose own position is small.</details>


# %% exercise="visible"
def visible(document: torch.Tensor, position: torch.Tensor, window: int, sinks: int):
    """A mask_mod for rows of documents: causal, a sliding window, and sinks.

    document: (batch, n), whole numbers: the document of each token. A document may be interrupted: 0 0 1 1 0.
    position: (batch, n), whole numbers: the token's place in its document, from 0 on.
    window: 1 or more. sinks: 0 or more.

    Returns a function rule(b, h, i, j). It says for row b whether the query at place i may look at the key at place j:
    - both are of one document, and j is i or before it;
    - and i - j is less than `window` (it counts places in the row, not positions), or the key is one of the first `sinks` tokens of its document.
    b, h, i and j are int64 tensors whose shapes broadcast, such as (batch, 1, 1), (), (n, 1) and (n,). The answer: bools.

    create_block_mask(rule, batch, None, n, n) has to work, and keeps the blocks that the rule needs, and no more.
    Budget: 64 bytes for each token, and 4,096, while the rule is made and asked for one pair: no table of all pairs.
    """
    ### BEGIN SOLUTION

    def rule(b, h, i, j):
        near = (i - j < window) | (position[b, j] < sinks)
        return (document[b, i] == document[b, j]) & (i >= j) & near

    return rule
    ### END SOLUTION


# %% test="visible" points=1
from helpers.lessons.attention.exercises import Rows, check_visible, in_a_row

check_visible(
    Rows((in_a_row(8),), window=3),
    Rows((in_a_row(5, 7), in_a_row(9, 3)), window=12),  # two rows, each with documents of its own
    Rows((in_a_row(5, 7), in_a_row(9, 3)), window=2, sinks=1),
    Rows((in_a_row(100, 28), in_a_row(128)), window=20, sinks=4, block=16),
)

# %% hidden="visible" points=2
### BEGIN HIDDEN TESTS
from helpers.lessons.attention.exercises import Rows, check_visible, in_a_row

check_visible(
    Rows((in_a_row(1),), window=1),
    Rows((in_a_row(4, 6), in_a_row(10)), window=1),  # itself alone
    Rows((in_a_row(4, 6), in_a_row(10)), window=1, sinks=2),
    Rows((in_a_row(6, 6),), window=100, sinks=100),
    Rows(((2, 2, 0, 0, 2, 2, 1, 0, 0, 2),), window=3),  # documents go on later
    Rows(((2, 2, 0, 0, 2, 2, 1, 0, 0, 2), (0, 1, 0, 1, 0, 1, 0, 1, 0, 1)), window=3, sinks=1),
    Rows(((-1, -1, 7, 7, 7, 3, 3, -1, -1),) * 2, window=2, sinks=2, block=2, dtype="int32"),
    Rows((in_a_row(7, 1, 5, first=3), in_a_row(1, 12), in_a_row(13, first=4)), window=4, sinks=3, block=5),
    Rows((in_a_row(200, 56, 256), in_a_row(512, first=1)), window=64, sinks=1, block=64),
)
### END HIDDEN TESTS

# %% [markdown]
# FlexAttention's fused kernel is written by `torch.compile` (lesson 11), so compile it once. This needs a GPU, or a C++ compiler. For q, k
# and v of shape (batch, heads, n, d), and the two tables on the GPU as well:
#
# ```python
# attend = torch.compile(flex_attention)  # of torch.nn.attention.flex_attention
# rule = visible(document, position, window=256, sinks=4)
# attend(q, k, v, block_mask=create_block_mask(rule, batch, None, n, n, device="cuda"))
# ```
#
# What block masks are worth on an H100, forward:

# %% experiment
experiments.recorded_blocks()

# %% experiment tags=["fold"]
block_s = experiments.recorded_block_times()
by_tensor, by_rule = block_s["SDPA, causal as a mask of bools"], block_s["SDPA, is_causal=True"]
flex_causal, flex_window = (block_s[f"FlexAttention, {rule}"] for rule in ("causal", "sliding window of 256"))
lesson.keep(tensor_times=by_tensor / by_rule, skipping_times=block_s["SDPA, no mask"] / by_rule)
lesson.keep(rest_ms=1e3 * (by_tensor - block_s["SDPA, no mask"]), window_times=flex_causal / flex_window)

# %% [markdown]
# As a tensor of bools the causal mask costs {{tensor_times:.1f}} times as much as `is_causal=True`. Skipping explains
# {{skipping_times:.1f}} times (see *no mask*). The rest, {{rest_ms:.2f}} ms, fits the mask's traffic: as bfloat16 numbers it has
# 8,192² · 2 bytes = 134 MB, which 16 heads read in 0.64 ms at 3.35 TB/s.
# For plain *causal* SDPA's kernel beats the compiled one. But SDPA has no
# argument for a window, nor, with plain tensors, for documents in one row. With the window FlexAttention is {{window_times:.1f}} times as fast as with *causal*.
#
# Build the block mask **once** for all layers: it depends on the rule, and not on q and k. Documents need a new one for each batch.

# %% [markdown]
# ## The running example
#
# A colleague folds the heads into the batch, so that q has three dimensions: the opening call, in the script, as lesson 10 left
# it. Repair `attention` and run the cell again. You are done when the first line says 1.0: then *before*, which is your
# `attention`, and *after*, the script's own, are equal.

# %% experiment
from helpers import running_example


def attention(q, k, v):  # (batch, heads, n, d), in and out: repair it
    folded = [t.flatten(0, 1) for t in (q, k, v)]
    return SDPA(*folded, is_causal=True).unflatten(0, q.shape[:2])


opening = experiments.step(attention, 2048).peak_live_bytes / with_batch.peak_live_bytes
print(f"{opening:.1f} times the memory of the opening call with its batch dimension")
script = running_example.after("10")
board = running_example.compare(script.replace(attention=attention), script)  # after: the script's own
board

# %% experiment tags=["fold"]
lesson.keep(folded_times=board.before.step_s / board.after.step_s)
lesson.keep(folded_launches=board.before.launches - board.after.launches)
lesson.keep(folded_mib=(board.before.peak_bytes - board.after.peak_bytes) / 2**20)
lesson.keep(script_context=running_example.LARGE.context, cpu_context=running_example.SMALL.context)

# %% [markdown]
# <details><summary>Answer</summary><code>return SDPA(q, k, v, is_causal=True)</code>: do not fold. Where q, k and v come with three dimensions,
# <code>SDPA(q[None], k[None], v[None], is_causal=True)[0]</code> gets the fused kernel too.</details>
#
# The folded step takes {{folded_times:.2f}} times as long, has {{folded_launches:.0f}} launches more, and needs {{folded_mib:.0f}} MiB more,
# with only {{script_context}} tokens. The last row is a model of {{cpu_context}} tokens on your CPU, where so few gain nothing, and may lose.

# %% [markdown]
# ## Your own script
#
# The profiler says which attention runs: `…_flash_attention`, `…_efficient_attention` and `…_cudnn_attention` are fused;
# `…_attention_math`, or a `_softmax`, is not. Here is a layer of PyTorch's own:

# %% experiment
import torch
from torch import nn
from torch.profiler import profile

# at home: your own step, on a batch
layer, x = nn.MultiheadAttention(64, 4, batch_first=True), torch.randn(2, 128, 64)

for need_weights in (True, False):
    with profile(record_shapes=True) as prof:
        layer(x, x, x, need_weights=need_weights)
    for event in prof.key_averages(group_by_input_shape=True):
        if any(
            part in event.key
            for part in ("product_flash", "efficient", "cudnn_attention", "_math", "::_softmax")
        ):
            print(f"need_weights={need_weights}: {event.key} × {event.count}, {event.input_shapes[0]}")

# %% [markdown]
# `need_weights=True` is the default, and makes n² numbers, even if nobody uses them. What to try:
#
# 1. A softmax over (…, n, n), and no SDPA: call it. Here that is `need_weights=False`. Two traps: in a mask of bools True
#    means *may look* for SDPA, and *may not* for `nn.MultiheadAttention`. And SDPA's `dropout_p` acts in `eval()` too, so pass
#    `p if self.training else 0.0`.
# 2. SDPA is there, and runs as math: put `sdpa_kernel([…])` around the forward pass, with `FLASH_ATTENTION`, `EFFICIENT_ATTENTION` and
#    `CUDNN_ATTENTION`. Read the warnings.
# 3. A mask that is a rule: `is_causal=True`, else FlexAttention, compiled.
# 4. Much padding, or a very large vocabulary: *Further*.
#
# ## Sources on trial
#
# Does PyTorch tell you why? And are FlashAttention's numbers right?

# %% experiment
from helpers.lessons.attention import claims

lesson.verdicts(
    claims.on_trial(steps, kernels),
    evidence="live (CPU) · simulated (H100)",
    shown=("19-warning", "19-memory-savings"),
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Written out, memory grows with n²; in a fused kernel with n. | At short n the memory matters little; more kernels still cost time ({{folded_times:.2f}}× at {{script_context}} tokens). |
# | A fused kernel saves traffic; its backward computes more. | Blocks without a fused kernel save only memory. |
# | No fused kernel fits: math runs, silently. | Inside `sdpa_kernel` without `MATH` it raises. |
# | A mask is a rule, and skips blocks. | Blocks on an edge are computed to the last score. |
#
# **Read on**: T. Dao and others, [FlashAttention](https://arxiv.org/abs/2205.14135) (2022); M. Milakov and N. Gimelshein, [Online
# normalizer calculation for softmax](https://arxiv.org/abs/1805.02867) (2018); PyTorch on the
# [backends](https://docs.pytorch.org/docs/stable/nn.attention.html).

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# Each section needs only the core, run before it.
#
# ### A fused kernel on this CPU (15 min)
#
# Section 3 had calls that the CPU's kernel refuses for their form alone. They can be brought into a form that it takes. This is about this
# CPU's kernel. On an H100 ask first, with `sdpa_kernel`: section 3's table says that it took the wider values as they were. To pad them there would cost
# memory and time for nothing.
#
# And `torch.compile`? It replaces a formula written by hand by SDPA only where it is spelled as one of [its
# patterns](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/fx_passes/fuse_attention.py). With any other spelling the n² scores stay.

# %% [markdown]
# **Exercise 19.3 — a fused kernel on this CPU** (★★, 12 min)
#
# Bring q, k and v into a form that the CPU's kernel takes, call SDPA once, and bring the result back. Three things stand in the way:
# dimensions that are missing, a last dimension whose stride is not 1, and values that are wider than the keys, or narrower.
# Try a call of yours inside `sdpa_kernel(SDPBackend.FLASH_ATTENTION)`, and read the warning.
#
# Copy no tensor that the kernel would take as it lies. The heads of a layer usually lie side by side for each token. Their last stride
# is 1, and that is enough.
#
# <details><summary>Hint 1</summary>Zeros at the end of a query and of a key change no score. Zeros at the end of a value change
# nothing but the end of the result. <code>F.pad(t, (0, more))</code> puts them there.</details>
#
# <details><summary>Hint 2</summary>SDPA divides the scores by √ of the width that it sees. <code>scale=</code> says what it shall take
# instead. <code>t.contiguous()</code> copies whatever is not contiguous; so first ask <code>t.stride(-1)</code>.</details>
#
# <details><summary>The idea</summary>For each of the three, in this order: pad to max(d, e) if it is narrower; then <code>contiguous()</code> if its last
# stride is not 1, for a pad may leave it so; then <code>unsqueeze(0)</code> until it has four dimensions. Then
# <code>SDPA(…, scale=d**-0.5)</code>, <code>squeeze(0)</code> as often, and the first e features.</details>


# %% exercise="fused_attention"
def fused_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """softmax(q @ k.mT / √d, where the mask allows) @ v, by one fused kernel of the CPU.

    q: (…, n, d); k: (…, m, d); v: (…, m, e): none, one or two leading dimensions, the same for all three. Any strides. d, e: 2 or
    more, often not the same. All float32 or all float64: the results are compared closely, and bfloat16 rounds.
    mask: bools (n, m), True: may look; or None. Each query has a key to look at.

    Returns (…, n, e), of q's dtype, with any strides.
    Budget: SDPA runs once, in a fused kernel. Memory at the peak, in numbers of q's dtype:
    - for each query max(d, e) + 1 + e: the kernel's result, one number, and a copy of the result;
    - for the mask 2 · n · m, if there is one;
    - for each of q, k and v that must change, because it is narrower than max(d, e) or its last stride is not 1: twice its new size.
    - 8 more.
    """
    ### BEGIN SOLUTION
    d, e, missing = q.shape[-1], v.shape[-1], 4 - q.dim()

    def ready(t):
        t = F.pad(t, (0, max(d, e) - t.shape[-1])) if t.shape[-1] < max(d, e) else t
        t = t if t.stride(-1) == 1 else t.contiguous()
        return t[(None,) * missing]

    out = SDPA(ready(q), ready(k), ready(v), attn_mask=mask, scale=d**-0.5)
    return out[(0,) * missing][..., :e]
    ### END SOLUTION


# %% test="fused_attention" points=1
from helpers.lessons.attention.exercises import check_fused_attention, lying

check_fused_attention(
    lying(2, 4, n=32, m=32, d=8, e=8, seed=1),
    lying(4, n=32, m=32, d=8, e=8, seed=2),  # no batch
    lying(2, 4, n=32, m=32, d=8, e=8, seed=3, layout="columns"),  # the last stride is not 1
    lying(2, 4, n=32, m=32, d=8, e=24, seed=4),  # values wider than keys
)

# %% hidden="fused_attention" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.attention.exercises import check_fused_attention, lying

check_fused_attention(
    lying(n=40, m=56, d=16, e=16, seed=11, masked=True),
    lying(2, 4, n=32, m=48, d=8, e=8, seed=12, layout="heads"),
    lying(3, n=24, m=40, d=24, e=8, seed=13, layout="heads", masked=True),
    lying(2, n=20, m=30, d=6, e=10, seed=14, layout="columns", dtype="float64"),
    lying(1, 2, n=16, m=16, d=4, e=4, seed=15, layout="shared"),
    lying(n=9, m=7, d=5, e=2, seed=16),
    lying(2, 4, n=6, m=8, d=6, e=9, seed=18, layout="channels"),  # a pad leaves them so
    *(lying(2, 3, n=12, m=12, d=d, e=24, seed=d) for d in (8, 16, 8)),  # nothing is left from the call before
    lying(2, 2, n=1, m=64, d=16, e=16, seed=17, masked=True),
    lying(2, 3, n=200, m=8, d=24, e=2, seed=19, layout="heads"),  # no room for a copy of q
)
### END HIDDEN TESTS

# %% [markdown]
# ### The blocks of a rule (13 min)
#
# Called as in section 4, `create_block_mask` asks the rule for all n² pairs at once, so for a moment all answers are in memory. Yours will
# need less. (PyTorch's own way out is `torch.compile(create_block_mask)`.)

# %% [markdown]
# **Exercise 19.4 — the blocks that a rule keeps** (★★, 10 min)
#
# Find out for each block of scores whether a rule keeps nothing of it, a part, or the whole. It has to work for any rule, so the
# corners of a block are not enough: look at every pair. But keep the answers of one row of blocks at a time only.
#
# <details><summary>Hint 1</summary>For one row of blocks, <code>i</code> has shape (block, 1) and <code>j</code> shape (keys,). The answer of the rule
# broadcasts to (block, keys); <code>expand</code> it, for a rule may look at <code>i</code> alone.</details>
#
# <details><summary>Hint 2</summary><code>seen.split(block, dim=1)</code> gives the blocks of a row, the last one perhaps narrower.
# <code>part.any()</code> and <code>part.all()</code> say the rest.</details>
#
# <details><summary>The idea</summary>For <code>i</code> in <code>torch.arange(queries)[:, None].split(block)</code>: ask, expand to
# <code>(len(i), keys)</code>, split. <code>any</code> and <code>all</code> of a part, as numbers, add up to 0, 1 or 2.</details>


# %% exercise="kept_blocks"
def kept_blocks(rule, queries: int, keys: int, block: int) -> torch.Tensor:
    """What a rule keeps of each block of queries × keys scores: 0 nothing, 1 a part, 2 the whole block.

    rule(b, h, i, j) → bool tensor: a mask_mod, as `causal` above. Call it with b = h = 0, and with int64 tensors i and j of
    positions, in shapes that broadcast. Its answer may be smaller than that: a rule that looks at i alone answers in i's shape.
    queries, keys, block: 1 or more; queries may be many more than keys. A block at the end may be smaller; it is whole if all the pairs that exist are allowed.

    Returns an int64 table (⌈queries ÷ block⌉, ⌈keys ÷ block⌉).

    Budget: each pair is asked for once at most. Peak live bytes: 24 · block · keys, 16 for each entry of the table, 8 for
    each query and each key, and 4,096.
    """
    ### BEGIN SOLUTION
    j, table = torch.arange(keys), []
    for i in torch.arange(queries)[:, None].split(block):
        seen = rule(0, 0, i, j).expand(len(i), keys)
        table.append(torch.stack([part.any().long() + part.all().long() for part in seen.split(block, 1)]))
    return torch.stack(table)
    ### END SOLUTION


# %% test="kept_blocks" points=1
from helpers.lessons.attention.exercises import Blocks, check_kept_blocks

check_kept_blocks(
    Blocks("causal", 16, 16, 4),
    Blocks("documents", 16, 16, 4, of=(6, 10)),
    Blocks("sliding window", 10, 10, 4, of=(3,)),  # the last blocks are smaller
    Blocks("every third query", 8, 12, 4),  # the rule looks at i alone, and there are more keys than queries
    Blocks("sliding window", 512, 512, 32, of=(100,)),
)

# %% hidden="kept_blocks" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.attention.exercises import Blocks, check_kept_blocks

check_kept_blocks(
    Blocks("everything", 9, 5, 4),
    Blocks("nothing", 4, 8, 4),
    Blocks("every third query", 12, 8, 2),
    Blocks("one key", 6, 11, 3, of=(7,)),
    Blocks("dots", 40, 50, 8, of=(97,)),
    Blocks("causal, keys before", 10, 25, 5, of=(15,)),
    Blocks("prefix", 17, 17, 16, of=(5,)),
    Blocks("causal", 1, 1, 8),
    Blocks("causal", 7, 7, 1),
    Blocks("documents", 320, 320, 16, of=(50, 7, 143, 90, 30)),
    Blocks("dots", 200, 500, 20, of=(401,)),
    Blocks("dots", 600, 30, 10, of=(401,)),  # many more queries: no room for a column of blocks
)
### END HIDDEN TESTS

# %% [markdown]
# Your table for the three rules of section 4, beside PyTorch's block mask:

# %% experiment
experiments.with_yours(kept_blocks, rules, masks)

# %% [markdown]
# The same blocks, with a fraction of the memory. At 0 a kernel loads and computes nothing. At 2 it need not ask the rule, and only at 1 it asks. So this
# table and the rule are all that it has to know of a mask. Lesson 21 has a kernel that skips what a mask throws away.

# %% [markdown]
# ### The loss in chunks (35 min)
#
# The last layer of a language model makes **logits**: for each token one number per word of the vocabulary. A vocabulary of 100,000
# words is many times as wide as the model. The loss needs of each row only the logarithm of its sum of exponentials, and the logit of
# the right word. Take 1,024 tokens of width 64, and 8,000 words, forward and backward. How many arrays of the logits' size are there at the
# peak? And if 64 tokens go through at a time, and the gradients of each chunk are made before the next one begins?

# %% experiment
you = lesson.predict(
    {"at once: logits at the peak": ..., "in chunks of 64: peak": ...},
    choices={
        "at once: logits at the peak": ["1 ×", "2 ×", "3 ×"],
        "in chunks of 64: peak": ["a half of that", "a quarter", "less than a quarter"],
    },
)


# %% experiment
def loss_at_once(hidden, weight, targets):
    F.cross_entropy(hidden @ weight.T, targets).backward()


def loss_in_chunks(hidden, weight, targets):
    for part, wanted in zip(hidden.split(64), targets.split(64), strict=True):
        (F.cross_entropy(part @ weight.T, wanted, reduction="sum") / len(targets)).backward()


losses = {
    name: experiments.loss_step(way)
    for name, way in {"at once": loss_at_once, "in chunks of 64": loss_in_chunks}.items()
}
you.against(experiments.of_losses(losses), experiments.loss_costs(losses), evidence="live (CPU)")

# %% [markdown]
# At once there are three arrays of the logits' size at the same time: their log-softmax, which is kept, its gradient, and that of the
# logits. In chunks there are the same three, but for 64 tokens only, and the two gradients, of the weight and of hidden. Only
# hidden's still grows with the number of tokens: here 1,024 · 64 · 4 bytes = 0.25 MiB. A claim on trial says much more:

# %% experiment
lesson.verdicts([claims.loss_memory()], evidence="simulated (H100)")

# %% [markdown]
# The loop of that cell calls `backward()` itself, so it cannot stand inside a model. A function with its own backward can:
# it makes the gradients in *forward*, chunk by chunk, and keeps them. A loss is one number, so what comes in is one number too, and
# backward only multiplies by it.

# %% [markdown]
# **Exercise 19.5 — a loss whose logits never stand whole** (★★★, 20 min)
#
# Write the loss of a last layer as one function, which anybody can put at the end of a model.
#
# <details><summary>Hint 1</summary>The gradient of a token's loss by its logits is <code>softmax(logits)</code>, minus 1 at the right
# word. Times <code>weight</code> it is that of the hidden row; its transpose times the hidden rows is that of the weight. Divide by
# the number of targets that count in all of the batch.</details>
#
# <details><summary>Hint 2</summary>A <code>torch.autograd.Function</code>: in its forward <code>ctx.needs_input_grad</code> says what wants a
# gradient; <code>ctx.save_for_backward</code> keeps the gradients; its backward returns them times <code>grad</code>, and
# <code>None</code> for targets and rows.</details>
#
# <details><summary>The idea</summary>Per chunk: <code>logs = (part @ weight.T).log_softmax(-1)</code>; the loss is minus
# <code>logs.gather(1, wanted.clamp(min=0)[:, None])</code> where a target counts. Then <code>slopes = logs.exp_()</code>, minus 1 at
# the right words (<code>scatter_add_</code>), rows of -100 set to 0, divided by the total. <code>slopes @ weight</code>, and
# <code>slopes.T @ part</code> added up. <code>torch.utils.checkpoint</code> around each chunk is another way, and fits too.</details>


# %% exercise="chunked_cross_entropy"
def chunked_cross_entropy(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, rows: int
) -> torch.Tensor:
    """F.cross_entropy(hidden @ weight.T, targets), with the logits of `rows` tokens alive at a time.

    hidden: (n, d), any strides. weight: (words, d). Both float32 or both float64. Each may want a gradient or not.
    targets: (n,) int64, -100 where a token does not count. At least one counts, but a chunk may have none.
    rows: 1 or more; it need not divide n.

    Returns the mean over the targets that count, of shape (). Logits may be thousands above or below 0. backward() works:
    also if the loss is multiplied before, and if two losses are made first and added up.

    Budget, for one loss:
    - FLOPs: forward twice (it may be run again), and once each gradient that is wanted; make no other.
    - Peak live bytes: 4 arrays of a chunk's logits; three times the size of hidden if it wants a gradient, and the same for
      weight; 8 numbers for each token; and 4,096 bytes.
    - Saved bytes: hidden and weight once, 16 bytes for each token, and 4,096.
    Two losses made before one backward may have twice that; the chunk's logits and the 4,096 bytes count once.
    """
    ### BEGIN SOLUTION

    class InChunks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, hidden, weight):
            for_hidden, for_weight = ctx.needs_input_grad
            total, loss = (targets != -100).sum().to(hidden.dtype), hidden.new_zeros(())
            d_hidden = torch.zeros_like(hidden) if for_hidden else None
            d_weight = torch.zeros_like(weight) if for_weight else None
            for start in range(0, len(hidden), rows):
                part, wanted = hidden[start : start + rows], targets[start : start + rows, None]
                counts, word = wanted != -100, wanted.clamp(min=0)
                slopes = (part @ weight.T).log_softmax(-1)
                loss -= (slopes.gather(1, word) * counts).sum() / total
                slopes.exp_().scatter_add_(1, word, -torch.ones_like(slopes[:, :1]))
                slopes.mul_(counts / total)
                if d_hidden is not None:
                    d_hidden[start : start + rows] = slopes @ weight
                if d_weight is not None:
                    d_weight.addmm_(slopes.T, part)
            ctx.save_for_backward(d_hidden, d_weight)
            return loss

        @staticmethod
        def backward(ctx, grad):
            return tuple(None if t is None else t * grad for t in ctx.saved_tensors)

    return InChunks.apply(hidden, weight)
    ### END SOLUTION


# %% test="chunked_cross_entropy" points=1
from helpers.lessons.attention.exercises import Losses, check_chunked_cross_entropy

check_chunked_cross_entropy(
    Losses(6, 4, 7, rows=2),
    Losses(10, 4, 7, rows=4, padded=5),  # one chunk whose targets do not count
    Losses(6, 4, 7, rows=3, factor=0.5),
    Losses(256, 16, 2000, rows=32, dtype="float32"),
)

# %% hidden="chunked_cross_entropy" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.attention.exercises import Losses, check_chunked_cross_entropy

check_chunked_cross_entropy(
    Losses(7, 3, 5, rows=100),
    Losses(10, 4, 6, rows=3, lifted=2000.0),  # exp() of these logits is inf, or 0
    Losses(1, 2, 3, rows=1),
    Losses(11, 4, 6, rows=3, factor=-2.0, turned=True),
    Losses(9, 4, 6, rows=2, hidden=False),
    Losses(9, 4, 6, rows=4, weight=False, padded=2),
    Losses(8, 4, 6, rows=4, hidden=False, weight=False),
    Losses(7, 4, 6, rows=3, calls=2, factor=3.0),
    Losses(200, 16, 3000, rows=10, padded=25),
    Losses(40, 64, 2000, rows=2, weight=False, turned=True),  # no room for the gradient that nobody wants
    Losses(400, 64, 20, rows=8, hidden=False),
    Losses(128, 16, 1500, rows=16, calls=2),
)
### END HIDDEN TESTS

# %% [markdown]
# ### Documents in one row (35 min)
#
# Texts have different lengths, and a batch is a rectangle. The usual way fills it up with **padding**, which goes through every
# layer and is thrown away at the end. Here are the lengths of sixteen texts. All are filled up to the longest one. What share of the
# padded batch is padding?

# %% experiment
lengths_of_texts = experiments.lengths_of_texts()
print(*sorted(lengths_of_texts))
you = lesson.predict({"share that is padding": ...}, choices=["about 20 %", "about 40 %", "about 65 %"])

# %% experiment
texts = [torch.randn(n, 64) for n in lengths_of_texts]
layer = nn.Linear(64, 64)
padded = nn.utils.rnn.pad_sequence(texts, batch_first=True)
nested = torch.nested.nested_tensor(texts, layout=torch.jagged)
flops = {"padded": count(layer, padded).flops, "nested": count(layer, nested).flops}
share = 1 - flops["nested"] / flops["padded"]
lesson.keep(tokens=nested.values().shape[0], rectangle=padded.shape[0] * padded.shape[1])
you.against(
    {"share that is padding": experiments.about(share, (0.2, 0.4, 0.65))},
    experiments.padding(flops),
    evidence="live (CPU)",
)

# %% [markdown]
# A **nested tensor** with `layout=torch.jagged` is one long row: first all tokens of the first text, then all of the second, and so
# on, {{tokens:,}} in all. Beside them it keeps where each text begins
# ([`torch.nested`](https://docs.pytorch.org/docs/stable/nested.html)). The padded batch has {{rectangle:,}}. A linear
# layer does not care which text a token belongs to, so it works on the long row as it is. Attention does care. SDPA takes a nested
# tensor and keeps its texts apart. It has fused kernels for that on GPUs. On the CPU it runs as math, and with `is_causal=True` it
# raises *No viable backend*. PyTorch's page warns of nested tensors: *not currently under active development*. Further down it says the
# contrary of `jagged`.
#
# A plain row of all texts goes to [`varlen_attn`](https://docs.pytorch.org/docs/stable/nn.attention.varlen.html), or to FlexAttention with
# the rule `documents` of section 4. `varlen_attn` takes q, k and v of shape (tokens, heads, d), where the N texts begin and the last one ends (`cu_seq_q`,
# `cu_seq_k`: N + 1 numbers), the longest text (`max_q`, `max_k`), and no mask; `window_size=(-1, 0)` means causal. It calls the *flash* kernel, so it needs a GPU and 16 bits. It is not measured here.
#
# For training one goes one step further and fills rows of a fixed length with whole documents: **packing**. With
# as many rows in every step the shapes stay the same, and nothing is compiled anew. Three things go wrong easily. Positions must begin anew in each document. The last token of a document
# must not be asked for the first of the next. And no document may look into its neighbour.

# %% [markdown]
# **Exercise 19.6 — documents in one row** (★★, 20 min)
#
# Put whole documents into rows of `length` tokens, and make what the model needs beside the tokens: among it the two tables that `visible`
# takes: `document`, and `positions` as its `position`. Do it without looking into a tensor, so that nothing would wait if the
# documents lay on a GPU: here all runs on the CPU, and waits are counted as on a GPU.
#
# <details><summary>Hint 1</summary>First decide on rows with lengths alone: put each document into the first row that has room, else open a new row
# (<em>first fit</em>). Then no two rows can be joined.</details>
#
# <details><summary>Hint 2</summary>Make the four tables with <code>torch.full</code> and write slices into them.
# <code>len(document)</code> is a plain number; <code>.tolist()</code>, <code>.item()</code>, <code>t[bools]</code> and
# <code>repeat_interleave</code> with a tensor of lengths look into a tensor, and count as waits.</details>
#
# <details><summary>The idea</summary><code>used</code> is a list with the tokens in each row. For document number i of n tokens: the first row with
# <code>used[row] + n <= length</code>, else a new one; note (row, used[row]). Then write tokens, <code>torch.arange(n)</code>, i, and
# <code>text[1:]</code> into n − 1 targets.</details>


# %% exercise="packed"
def packed(documents: list[torch.Tensor], length: int) -> dict[str, torch.Tensor]:
    """Whole documents in rows of `length` tokens.

    documents: int64 tensors on the CPU, each of 1 to `length` tokens. An empty list gives tables of shape (0, length).

    Returns four int64 tables on the CPU, each (rows, length):
    - "tokens": a document's tokens stand side by side in one row. Which row, and in which order, is free.
    - "targets": the next token of the same document; -100 at its last one.
    - "positions": 0, 1, 2, … in each document.
    - "document": the number of the document in the list.
    Places left over hold tokens 0, targets -100, positions 0, document -1.

    Budget: no row is empty, and no two rows hold `length` tokens or fewer together (else they could be joined). 0 syncs.
    """
    ### BEGIN SOLUTION
    used, places = list[int](), []
    for text in documents:
        n = len(text)
        row = next((row for row, there in enumerate(used) if there + n <= length), len(used))
        if row == len(used):
            used.append(0)
        places.append((row, used[row]))
        used[row] += n
    shape = len(used), length
    rows = {
        name: torch.full(shape, fill)
        for name, fill in (("tokens", 0), ("targets", -100), ("positions", 0), ("document", -1))
    }
    for number, (text, (row, start)) in enumerate(zip(documents, places, strict=True)):
        end = start + len(text)
        rows["tokens"][row, start:end] = text
        rows["targets"][row, start : end - 1] = text[1:]
        rows["positions"][row, start:end] = torch.arange(len(text))
        rows["document"][row, start:end] = number
    return rows
    ### END SOLUTION


# %% test="packed" points=1
from helpers.lessons.attention.exercises import Packs, check_packed, uneven

check_packed(Packs((5, 3), 8), Packs((6, 5, 3, 2), 8), Packs(uneven(30, 64, seed=1), 64))

# %% hidden="packed" points=2
### BEGIN HIDDEN TESTS
from helpers.lessons.attention.exercises import Packs, check_packed, uneven

check_packed(
    Packs((4,), 4),
    Packs((1, 1, 1), 1),
    Packs((1, 1, 1, 1, 1), 4),
    Packs((), 6),
    Packs((5, 5, 3, 3), 8),
    Packs((4, 4, 4, 4), 8),
    Packs((3, 3, 5, 5), 8),
    Packs((2, 7, 2, 7, 2, 7), 9),
    Packs(uneven(100, 50, seed=2), 50),
    Packs(uneven(60, 128, seed=5), 128),
)
### END HIDDEN TESTS

# %% [markdown]
# ### Fewer heads for keys and values (5 min)
#
# In **grouped-query attention** several heads of queries share one head of keys and values. What shrinks are the keys and
# values themselves, which lesson 20 keeps for every token. With 8 heads of queries and 2 of keys that is a quarter of their bytes.
# `enable_gqa=True` tells SDPA about the groups. What does it save against
# repeating the heads yourself?

# %% experiment
you = lesson.predict(
    {"FLOPs": ..., "bytes newly allocated, by enable_gqa": ...},
    choices={
        "FLOPs": ["a quarter", "as many"],
        "bytes newly allocated, by enable_gqa": ["fewer", "as many"],
    },
)

# %% experiment
q, k, v = torch.randn(1, 8, 512, 64), *(torch.randn(1, 2, 512, 64) for _ in range(2))
grouped = {
    "8 heads of keys": count(SDPA, q, q, q),
    "2 heads, repeated": count(lambda: SDPA(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1))),
    "2 heads, enable_gqa": count(SDPA, q, k, v, enable_gqa=True),
}
you.against(experiments.of_groups(grouped), experiments.groups(grouped), evidence="live (CPU)")

# %% [markdown]
# In a fused kernel nothing is repeated in memory: each head of keys serves its whole group as it is. (*math* repeats the heads
# itself. On a GPU, PyTorch's documentation lists only *flash* and *math* for `enable_gqa`: in float32, or with a mask, ask with `sdpa_kernel` first.) The arithmetic is the same, because every query still
# has a score with every key.

# %% [markdown]
# ### FlexAttention without compile (5 min)
#
# Called without `torch.compile`, FlexAttention still gives the right result. Does it leave out the empty blocks then, too? The
# profiler, asked for memory, knows. One head of scores is 1,024² numbers of 4 bytes: 4 MiB. The window of section 4 leaves a third of
# the blocks.

# %% experiment
you = lesson.predict(
    {"scores in memory, without compile": ..., "FlexAttention says so": ...},
    choices={
        "scores in memory, without compile": ["none", "a third", "all"],
        "FlexAttention says so": ["at each call", "once", "not at all"],
    },
)

# %% experiment
from torch.nn.attention.flex_attention import flex_attention
from torch.profiler import profile

q, k, v = (torch.randn(1, 1, 1024, 64) for _ in range(3))
with warnings.catch_warnings(record=True) as said, torch.no_grad():
    warnings.simplefilter("always")
    result = flex_attention(q, k, v, block_mask=masks["sliding window of 256"])
    with profile(profile_memory=True) as prof:
        flex_attention(q, k, v, block_mask=masks["sliding window of 256"])
place = torch.arange(1024)
same = torch.allclose(result, SDPA(q, k, v, sliding(0, 0, place[:, None], place)), atol=1e-5)
you.against(experiments.of_flex(prof, said, 1024), experiments.largest(prof, same), evidence="live (CPU)")

# %% [markdown]
# The product makes all the scores, then the mask is applied to them. Each of the operators in the table makes an array of their size
# (4 MiB). `sub` also makes the rule's `i - j`: in int64 that is 8 MiB. That is math again, and the block mask saved nothing. (On
# a CPU FlexAttention has no backward, compiled or not, so training with it needs a GPU. The C++ compiler works on the compiled
# kernel for a while, so this lesson leaves it out.)
