# %% [markdown]
# # 19 · Attention
#
# ## How much of attention has to be computed?
#
# In attention every token looks at every other token. With n tokens that makes n² scores, and twice as many tokens make
# four times as many. Three things can be saved. The scores need not all be in memory at once. Scores that a
# mask throws away need not be computed. And what has no mask of its own, such as padding, need not be there at all. In
# this lesson you count what each of these saves, and you find out when PyTorch's fast kernel is silently left out.
#
# **Time** 60 min, two exercises among them; *Further*: 75 min, with the loss over a large vocabulary and with documents packed
# into one row. **Before this** lessons 02 (what is saved for backward) and 11 (what a compiler does); 09 helps.
#
# **Afterwards you can**
# - write attention whose memory grows with n and not with n²;
# - say which kernel a call of `scaled_dot_product_attention` gets, and make PyTorch complain if it is the slow one;
# - write a mask as a rule, and count the blocks of scores that the rule leaves.

# %% setup
import math
import warnings

import torch
from torch import nn
from torch.nn import functional as F

from helpers import count, lesson, plots
from helpers.lessons.attention import experiments

torch.set_num_threads(1)

lesson.start("19_attention", evidence=["live (CPU)", "simulated (H100)", "arithmetic"])

# %% [markdown]
# ## 1 · The score matrix, and what holds it
#
# Attention has three inputs, each of shape (batch, heads, n, d): **queries** q, **keys** k and **values** v. Each query
# gets a **score** for every key: their product, divided by √d. Softmax turns the scores of a query into weights that add up to 1. The
# result is the sum of the values with these weights. Written out, these are two matrix products with a softmax between them.
# [`scaled_dot_product_attention`](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html)
# (SDPA) does the same in one operator.
#
# Both run forward and backward, for n = 256 to 2,048. By what factor does the peak of memory grow when n doubles? And
# does SDPA do fewer floating-point operations (FLOPs) than the formula written out, as many, or more?

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
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.softmax(-1) @ v


ways = {"written out": written_out, "SDPA": F.scaled_dot_product_attention}
lengths = (256, 512, 1024, 2048)
steps = {name: [experiments.step(way, n) for n in lengths] for name, way in ways.items()}
lesson.keep(more_flops=steps["SDPA"][-1].flops / steps["written out"][-1].flops - 1)
you.against(
    experiments.when_n_doubles(steps),
    experiments.peaks(steps, lengths),
    experiments.of_steps(steps, lengths),
    evidence="live (CPU)",
)

# %% [markdown]
# Written out, three matrices of n² numbers are there at the peak. For backward the softmax keeps its result, also n²
# numbers. SDPA keeps q, k, v, the result, and **one number per query**. That number is the logarithm of the softmax's
# denominator.
#
# How does SDPA's backward know the weights, then? It computes the scores **again**, block by block. So there are seven matrix
# products in place of six, which is {{more_flops:.0%}} more FLOPs. On a GPU it is still faster, because a GPU's time here goes into reading and
# writing the n² numbers. The same two ways, forward only, on a simulated H100:

# %% experiment
experiments.on_h100(ways, lengths=(1024, 4096))

# %% [markdown]
# Look at the kernels of the first way. The two products are a small part of its time. The other operators read and write the
# score matrix, and do little arithmetic with it. **The fast kernel wins by not moving numbers, and not by computing less.**
# Papers call this kernel *flash attention*. How can a softmax be computed without the whole row of scores?
#
# ## 2 · Softmax in blocks, once
#
# The softmax of a row divides exp(score) by the sum of all exp(score). Scores can be large, so one subtracts the row's
# maximum first: exp(score − maximum). The quotient stays the same. But the maximum is known only at the end of the row.
#
# The way out: go through the row in blocks, and keep a **running maximum** and a **running sum**. If a block brings a
# larger maximum, the old sum was made with the wrong one. What has to be done with it? And why is the maximum needed at all?

# %% experiment
you = lesson.predict(
    {
        "sum of exp(score), scores up to 90, float32": ...,
        "a larger maximum comes: the old sum is": ...,
        "each score is read": ...,
    },
    choices={
        "sum of exp(score), scores up to 90, float32": ["right", "inf", "nan"],
        "a larger maximum comes: the old sum is": ["kept", "multiplied", "thrown away"],
        "each score is read": ["once", "twice", "three times"],
    },
)

# %% experiment
scores = torch.tensor([1.0, 3.0, 2.0, 2.5, 90.0, 89.0, 4.0, 88.0])
most, total, rows = torch.tensor(float("-inf")), torch.tensor(0.0), []
for block in scores.split(2):
    new = torch.maximum(most, block.max())
    shrink = torch.exp(most - new)  # 1 where the maximum stays, and 0 for the first block: exp(-inf)
    total = total * shrink + torch.exp(block - new).sum()
    most = new
    rows.append([block.tolist(), most.item(), shrink.item(), total.item()])
whole = torch.exp(scores - scores.max()).sum()
lesson.keep(running=total.item(), at_once=whole.item())
naive = str(torch.exp(scores).sum().item())
you.against(experiments.of_running(rows, naive), experiments.running(rows), evidence="live (CPU)")

# %% [markdown]
# The old sum is multiplied by exp(old maximum − new maximum). That factor replaces the old maximum by the new one in every
# term at once. The running sum ends at {{running:.4f}}, and the sum over the whole row is {{at_once:.4f}}. Each score was needed
# once, in its block, and may be forgotten afterwards.
#
# The same factor repairs the **result**: the sum of values with their weights so far. So attention can go through the keys
# in blocks and keep three things per query: running maximum, running sum, running result. At the end it divides the result by
# the sum. This is exact: no weight is left out or rounded away on purpose.

# %% [markdown]
# **Exercise 19.1 — attention in blocks** (★★★, 18 min)
#
# Write attention that never has more than one block of scores: take `block` keys at a time. With `causal=True`, query i sees
# the keys 0 to i only. Then a block that begins at key `start` is seen by the queries from `start` on. Give the others
# no scores at all, and you do half of the work.
#
# <details><summary>Hint 1</summary>Keep <code>most</code> (…, n, 1), <code>total</code> (…, n, 1) and <code>out</code> (…, n, e).
# They begin as −inf, 0 and 0. The loop is that of the cell above; <code>out</code> goes the way of
# <code>total</code>, with <code>weights @ values</code> in place of the sum of the weights.</details>
#
# <details><summary>Hint 2</summary>Causal: let <code>rows = slice(start, None)</code>, and read and write
# <code>most[..., rows, :]</code> and the others. Inside the block, the first row sees one key, the second row two:
# <code>torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)</code> is true where −inf belongs. A new matrix at every line costs bytes:
# <code>masked_fill_</code> and <code>exp_</code> work in place.</details>
#
# <details><summary>The idea</summary>For each start: <code>scores = q[..., rows, :] @ keys.mT / √d</code>, masked if causal;
# <code>new = maximum(most, scores.amax(-1, keepdim=True))</code>; <code>weights = (scores - new).exp()</code>;
# <code>shrink = (most - new).exp()</code>; then <code>total</code> and <code>out</code> times shrink, plus what the block adds.
# Return <code>out / total</code>.</details>


# %% exercise="blockwise_attention"
def blockwise_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block: int, causal: bool = False
) -> torch.Tensor:
    """softmax(q @ k.mT / √d) @ v, with the scores of at most `block` keys alive at once. Nobody asks for gradients.

    q: (…, n, d); k: (…, m, d); v: (…, m, e), all float32 or all float64, with the same leading dimensions (perhaps none);
    k and v may be expanded views. m ≥ 1; n may be 0. block: 1 or more; it need not divide m, and may be larger. causal: query i
    sees keys 0 to i, and n is m. Scores may be large: hundreds above or below 0.
    Returns (…, n, e), of q's dtype, as F.scaled_dot_product_attention(q, k, v, is_causal=causal) does, which is not to be used.

    Budget: FLOPs: 2 · (d + e) for each (query, key) that is computed. With causal, those are, for each block of keys, the
    queries from its first key on. Peak live bytes: for each query (a row of q) 4 · (min(block, m) + e + 2) numbers.
    """
    ### BEGIN SOLUTION
    most = q.new_full((*q.shape[:-1], 1), float("-inf"))
    total = torch.zeros_like(most)
    out = q.new_zeros(*q.shape[:-1], v.shape[-1])
    for start in range(0, k.shape[-2], block):
        rows = slice(start if causal else 0, None)
        keys, values = k[..., start : start + block, :], v[..., start : start + block, :]
        scores = q[..., rows, :] @ keys.mT * q.shape[-1] ** -0.5
        if causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores.masked_fill_(later, float("-inf"))
        new = torch.maximum(most[..., rows, :], scores.amax(-1, keepdim=True))
        weights, shrink = (scores - new).exp(), (most[..., rows, :] - new).exp()
        total[..., rows, :] = total[..., rows, :] * shrink + weights.sum(-1, keepdim=True)
        out[..., rows, :] = out[..., rows, :] * shrink + weights @ values
        most[..., rows, :] = new
    return out / total
    ### END SOLUTION


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
    check.case(*three(2, n=0, m=4, d=4, seed=15), 2),
    check.case(*three(1, n=1, m=1, d=2, seed=16), 1, True),
    budget=False,
)
check_blockwise_attention(
    check.case(*three(2, 2, n=100, m=77, d=8, e=24, seed=17), 16),
    check.case(*three(n=12, m=90, d=4, seed=18), 1),
    check.case(*three(3, n=130, m=130, d=8, seed=19), 50, True),  # the last block is smaller
    check.case(*three(2, 4, n=96, m=96, d=16, seed=20, shared=True), 8, True),
    check.case(*three(2, n=300, m=300, d=8, seed=21, shift=300.0, rising=900.0), 20, True),
)
check_blockwise_attention(check.case(*three(2, n=128, m=96, d=8, seed=22, dtype="float32"), 24))
### END HIDDEN TESTS

# %% [markdown]
# ## Further

# %% experiment
lesson.progress()
