# %% [markdown]
# # 09 · Saving memory
#
# ## How do I train what does not fit?
#
# `CUDA out of memory`. Some of what fills the card is there whatever you do, some only for a part of the step,
# and there are four ways to have less of it: go through the batch in pieces, compute again what you could have
# kept, put it elsewhere for a while, or let go of it earlier. Each has a price. Here you predict what a step
# needs, build all of the tools, and read their price off a counter before you pay it.
#
# **Time** 110–130 min, more than half of it exercises (9.4 and 9.5 can wait: 90 min without them). **Before this** lessons
# 00 to 02 (counters, autograd, what is saved for backward); 06 and 08 help.
#
# **Afterwards you can**
# - predict what a training step holds, and in which phase it is the most;
# - write gradient accumulation that equals the large batch, and a checkpoint that equals the plain step, random numbers included;
# - choose what to compute again and what to move, under a budget.
#
# **On trial** *the peak comes in backward* (notes on a book, see the end) · *accumulation wants a larger learning rate*, and
# *BatchNorm updates after the whole cycle* · *checkpointing adds 20 % compute* (five strategies) · the peaks that
# that book's own repository prints for checkpointing and for offloading.

# %% setup
import torch
from torch import nn
from torch.nn import functional as F

from helpers import count, lesson, memory, plots, simulate

torch.set_num_threads(1)
MIB = 2**20


class Block(nn.Module):
    """The larger half of a transformer's block: x + down(gelu(up(norm(x)))), four times as wide inside."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))


def stack(width, depth):
    return nn.Sequential(*[Block(width) for _ in range(depth)])


def squares(out):
    """The loss of this lesson's experiments: one number."""
    return out.square().mean()


lesson.start("09_saving_memory", evidence=["live (CPU)", "simulated (H100)", "arithmetic"])

# %% [markdown]
# ## 1 · What is there, and when is it the most?
#
# Eight blocks of width 256, float32, AdamW. **Static** memory is there before, in and after every step: weights
# and the optimizer's two running means. **Dynamic** memory comes and goes with the step: the batch, what forward keeps
# for backward (*activations*), gradients of the weights, temporaries (gradients *of activations* among them). In
# which **phase** is the peak, "forward", "backward" or
# "step", with a batch of 16 rows, and with 8,192? And how many **bytes per weight** are static?

# %% experiment
prediction = {"peak, 16 rows": ..., "peak, 8,192 rows": ..., "static bytes per weight": ...}

# %% experiment
from functools import cache

WIDTH, DEPTH = 256, 8
net = stack(WIDTH, DEPTH)
weights = sum(p.numel() for p in net.parameters())


@cache
def needs(rows, **options):
    """memory.estimate of the step: it is gone through with tensors that have a shape and no memory."""
    return memory.estimate(net, torch.empty(rows, WIDTH, device="meta"), loss=squares, **options)


small, large = needs(16), needs(8192)
measured = {"peak, 16 rows": small.peak_phase, "peak, 8,192 rows": large.peak_phase}
measured["static bytes per weight"] = round(large.static_bytes / weights)
phases = ("forward", "backward", "step")
said = {"peak, 16 rows": phases, "peak, 8,192 rows": phases, "static bytes per weight": range(33)}
lesson.compare_predictions(prediction, measured, evidence="arithmetic", choices=said).show()
plots.memory_model(large, title="One step of 8 blocks, 8,192 rows")

# %% [markdown]
# Forward climbs, because each operator keeps what its backward will need. Backward begins with all of that still
# there, makes the first gradients of activations *beside* it (they are temporaries, pink), and only then can let go.
# So **with a large batch the peak is in backward, right at its beginning**: in the last block, around gelu. The backward
# of that block's last layer allocates two large arrays, the gradients of its input and of its weight. (The picture names a
# sum. That makes the bias's gradient, the last 1 KiB, and is not to blame.) Backward of gelu comes next: gelu's result is
# freed and the gradient of its input is allocated, of the same size, so the net is zero. A small batch keeps next to
# nothing. Its peak is where all gradients are there and the optimizer adds its temporaries. Holding fewer activations
# cures the first kind of peak and does nothing for the second. So look first on which side you are:

# %% experiment
rows = []
for n in (16, 128, 256, 1024, 8192):
    one = needs(n)
    held = one.at_peak
    parts = [one.static_bytes, held.get("gradients", 0), held.get("activations", 0)]
    rest = one.peak_bytes - sum(parts)
    rows.append([f"{n:,}", one.peak_phase, *(f"{b / MIB:.1f}" for b in [*parts, rest, one.peak_bytes])])
lesson.keep(step_until=[r[0] for r in rows if r[1] == "step"][-1])
lesson.keep(backward_from=next(r[0] for r in rows if r[1] == "backward"))
lesson.table(
    rows,
    ["rows", "peak in", "static", "gradients", "activations", "batch, temporaries", "peak"],
    evidence="arithmetic",
    caption="MiB at the peak, by kind",
)

# %% [markdown]
# Between {{step_until}} and {{backward_from}} rows it tips: there 10 to 11 widths per row and block (you will count them)
# outgrow one set of gradients.
#
# What does one operator keep? That is a choice of whoever wrote its backward. Take linear → activation → linear. The
# second layer keeps its input anyway. How many arrays of that size does the activation **add** to what is kept, 0, 1
# or 2? And does `relu_`, in place, keep fewer than `relu`?

# %% experiment
prediction = {"relu adds": ..., "gelu adds": ..., "relu_ keeps": ...}  # the last: "fewer" or "as many"


# %% experiment
def kept_by(act):
    """What `act` adds to what linear → act → linear keeps, and the most at once in act(linear(x)); or how it fails."""
    x, a, b = torch.randn(1024, 256), nn.Linear(256, 256), nn.Linear(256, 256)
    try:
        seen = count(lambda: b(act(a(x))).sum())
        seen.result.backward()
    except RuntimeError:
        return "backward raises", "–"
    most = count(lambda: act(a(x))).peak_live_bytes
    return seen.saved_bytes / x.nbytes - 2, most / x.nbytes  # 2: the inputs of the two layers


ACTS = {
    "relu(h)": F.relu,
    "relu_(h)": F.relu_,
    "sigmoid(h)": torch.sigmoid,
    "gelu(h)": F.gelu,
    "silu(h)": F.silu,
    "silu(h, inplace=True)": lambda h: F.silu(h, inplace=True),
    "sigmoid(h).square_()": lambda h: torch.sigmoid(h).square_(),
}
acts = {name: kept_by(act) for name, act in ACTS.items()}
measured = {f"{name} adds": round(acts[f"{name}(h)"][0]) for name in ("relu", "gelu")}
measured["relu_ keeps"] = "fewer" if acts["relu_(h)"][0] < acts["relu(h)"][0] else "as many"
lesson.compare_predictions(
    prediction, measured, evidence="live (CPU)", choices=["fewer", "as many", 0, 1, 2]
).show()
lesson.table(
    [(name, *(n if isinstance(n, str) else f"{n:.2f}" for n in row)) for name, row in acts.items()],
    ["between two linear layers", "adds to what is kept", "most at once, up to it"],
    evidence="live (CPU)",
    caption="in arrays of 1,024 × 256; right: all that linear and activation hold at once of what they make",
)

# %% [markdown]
# relu and sigmoid keep their *result*, which is the next layer's input: one storage, kept anyway. gelu and
# silu keep their *input*, which nobody else wants: one array more. In place, an operator that keeps its result saves an
# array for a moment, and nothing of what is kept. In place, one that keeps its input saves nothing at all: autograd
# copies the old values before they are written over. Writing over what *another* operator
# kept makes backward raise: a version counter on each tensor notices. `.data` escapes it, and so does the array behind
# `.numpy()`: then the gradients are wrong without a word.
#
# Static memory is arithmetic, then, and activations are a sum over operators. Now you:

# %% [markdown]
# **Exercise 9.1 — predict it** (★★, 20 min)
#
# Write the formula for a stack of `Block`s, as in the set-up cell. `memory.estimate` and `count` are there for
# checking; the function itself only calculates.
#
# <details><summary>Hint 1</summary>A block has 8·width² + 7·width weights. The layer norm keeps its input and two numbers
# per row; each linear layer keeps its input; gelu keeps its input. Is one of these tensors kept by two of them? Then
# it is one storage. The sum x + … keeps nothing.</details>
#
# <details><summary>Hint 2</summary>The peak is the larger of two moments. Backward is through with the last block's
# <code>down</code>: of what was saved only the loss's input is gone (no name <code>out</code> keeps it here), and new are the
# gradients of down's result, of its input, and of its <em>weight</em>. Or the
# optimizer is at work: all gradients, and two temporaries as large as the largest weight.</details>
#
# <details><summary>The idea</summary>Per block and row: x, the normed x (width each), up's result and gelu's result
# (4·width each), and 2: 10·width + 2 numbers; the loss keeps the last result: width. Static: 12 bytes per weight. Peak:
# static + the larger of saved + 4·rows·(1 + 4 − 1)·width + 4·4·width², and batch + 4·weights + 2·4·4·width².</details>


# %% exercise="training_memory"
def training_memory(rows: int, width: int, depth: int) -> dict[str, float]:
    """Bytes of one step of stack(width, depth) on x of shape (rows, width), by arithmetic alone.

    The step: loss = model(x).square().mean(); loss.backward(); optimizer.step(). All in float32, AdamW without
    foreach, not its first step, no gradients before it. x itself needs no gradient, and its bytes count.

    Returns "static": weights and AdamW's two means; "saved": what autograd keeps when forward ends, each
    storage once, x included and weights not; "peak": the most that exists at once, static included.
    Each within 5 % of what is tracked. Tracked means storages of tensors: what a kernel takes for itself inside,
    and an allocator's rounding, is not in it. Budget: 0 operators, 0 new storages.
    """
    ### BEGIN SOLUTION
    weights = depth * (8 * width**2 + 7 * width)
    saved = 4 * rows * (depth * (10 * width + 2) + width)
    in_backward = saved + 4 * rows * (1 + 4 - 1) * width + 4 * 4 * width**2
    in_step = 4 * rows * width + 4 * weights + 2 * 4 * 4 * width**2
    return {"static": 12 * weights, "saved": saved, "peak": 12 * weights + max(in_backward, in_step)}
    ### END SOLUTION


# %% test="training_memory" points=1
from helpers.exercises.saving_memory import check_training_memory

check_training_memory((2048, 64, 4), (32, 128, 6), (73, 64, 1), (8, 64, 1))

# %% hidden="training_memory" points=2
### BEGIN HIDDEN TESTS
from helpers.exercises.saving_memory import check_training_memory

check_training_memory(
    *((1500, 96, 3), (4096, 16, 12), (3000, 32, 1), (300, 128, 1)),
    *((64, 64, 2), (16, 160, 3), (48, 96, 9), (12, 48, 1)),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · The batch in pieces
#
# Gradients add up: `backward()` adds to what lies in `.grad`. So a batch of 512 rows can go through in pieces of
# 64, one after the other, and only then comes the step. Activations shrink to an eighth; static memory and
# gradients stay. Does it give the **same gradients**? Say "same" or "different" for each:

# %% experiment
prediction = {
    "mean loss ÷ number of pieces, equal pieces": ...,
    "the same, last piece smaller": ...,
    "the same, unevenly padded targets (ignore_index)": ...,
    "sum of losses ÷ all that count": ...,
    "BatchNorm, equal pieces": ...,
}


# %% experiment
def gradients(net, x, y, pieces, of_all=False):
    """Gradients after going through (x, y) in pieces. of_all: sums, divided by how many targets count at all."""
    net.zero_grad()
    for a, b in zip(x.split(pieces), y.split(pieces), strict=True):
        if of_all:
            loss = F.cross_entropy(net(a), b, reduction="sum") / (y != -100).sum()
        else:
            loss = F.cross_entropy(net(a), b) / -(-len(x) // pieces)
        loss.backward()
    return torch.cat([p.grad.flatten() for p in net.parameters()])


torch.manual_seed(0)
x, y = torch.randn(512, 32, dtype=torch.float64), torch.randint(10, (512,))
padded = torch.where(torch.arange(512) % 64 < torch.arange(512) // 8, -100, y)
plain_net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10)).double()
norm_net = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Linear(64, 10)).double()
TRIALS = dict(
    zip(
        prediction,
        [
            (plain_net, y, 64, False),
            (plain_net, y, 100, False),
            (plain_net, padded, 64, False),
            (plain_net, padded, 100, True),
            (norm_net, y, 64, True),
        ],
        strict=True,
    )
)
off = {}
for name, (one, labels, pieces, of_all) in TRIALS.items():
    whole = gradients(one, x, labels, 512)
    off[name] = float((gradients(one, x, labels, pieces, of_all) - whole).norm() / whole.norm())
measured = {name: "same" if e < 1e-9 else "different" for name, e in off.items()}
said = lesson.compare_predictions(prediction, measured, evidence="live (CPU)", choices=("same", "different"))
lesson.table(
    [(*row, "< 1e-9" if e < 1e-9 else f"≈ {e:.3f}") for row, e in zip(said.rows, off.values(), strict=True)],
    ["512 rows in pieces", "gradients", "you said", "off by, relative"],
    evidence="live (CPU)",
    caption=said.caption,
)

# %% [markdown]
# A mean of means is the mean only if all pieces count alike. So sum, and divide by what counts in the *whole* batch:
# one number, known before the first piece. (The Hugging Face trainer had this very mistake until [October
# 2024](https://github.com/huggingface/transformers/pull/34191); a piece with few tokens weighed as much as one with
# many. Why so far off here? In the second line the last piece's 12 rows have the weight of 100; in the third the last
# piece has one target that counts, as much as the 64 of the first.)
#
# BatchNorm is another matter: it normalises by the mean of the *piece*, so the function itself has changed, and no
# division can mend that. Its running averages also move once per piece, not once per step. LayerNorm and
# GroupNorm look at one row each and do not notice.
#
# And the learning rate? Once the gradients are equal the step is equal, so accumulation asks nothing of the
# learning rate that the large batch would not (lesson 06). What if you forget the division by 8? How many times as far
# does the first step go, with SGD and with Adam? (Of 1, 2, 8 and 64.)

# %% experiment
prediction = {"SGD": ..., "Adam": ...}


# %% experiment
def first_step(kind, scale):
    """How far one step goes if the gradient is `scale` times the large batch's."""
    w = nn.Parameter(torch.zeros(1000))
    w.grad = torch.linspace(-1, 1, 1000) * scale
    kind([w]).step()
    return float(w.detach().norm())


forgot = {
    name: first_step(kind, 8) / first_step(kind, 1)
    for name, kind in {
        "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
        "Adam": lambda p: torch.optim.Adam(p, lr=0.1),
    }.items()
}

bn = {}
for pieces in (512, 64):
    layer = nn.BatchNorm1d(32).double()
    for part in x.split(pieces):
        layer(part)
    bn[pieces] = int(layer.num_batches_tracked)
measured = {name: round(times, 2) for name, times in forgot.items()}
lesson.compare_predictions(prediction, measured, evidence="live (CPU)", choices=(1, 2, 8, 64)).show()
print(f"BatchNorm: {bn[64]} updates of its running averages in a step of 8 pieces")

# %% [markdown]
# SGD takes eight steps in one, and you will see it. Adam divides by the gradient's own size, so **the mistake hides**,
# until gradient clipping, `eps`, or Adam's `weight_decay` weigh against a gradient that is eight times too large. (AdamW's
# weight decay does not: it goes past the gradient, straight to the weights.)

# %% [markdown]
# **Exercise 9.2 — accumulation that equals the large batch** (★★, 10 min)
#
# Write the loop: forward and backward for `rows` rows at a time, in the memory of one piece, so that `.grad` ends up as
# after the whole batch, whatever the padding.
#
# <details><summary>Hint 1</summary><code>reduction="sum"</code>, and a divisor that you know before the loop.</details>
#
# <details><summary>Hint 2</summary>What of a piece is still there while the next piece runs forward? Whatever has a name:
# <code>logits</code> has. And the result is to have no graph: add up <code>loss.detach()</code>.</details>
#
# <details><summary>The idea</summary><code>total = (targets != -100).sum()</code>; for each pair of
# <code>inputs.split(rows)</code> and <code>targets.split(rows)</code>: the sum of losses ÷ total,
# <code>backward()</code>, add the detached loss.</details>


# %% exercise="accumulated_backward"
def accumulated_backward(
    model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, rows: int
) -> torch.Tensor:
    """What cross_entropy over the whole batch, and its backward(), would do, with `rows` rows at a time.

    inputs: (n, length), token numbers, any strides, as of targets; parameters may be frozen. model(inputs) → logits
    (n, length, words). targets: (n, length), -100 where a place does not count; at least one counts in the batch,
    perhaps none in a piece. The last piece may be smaller. rows: 1 to n.

    Adds to every .grad what F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward()
    would add (to 9 decimals in float64, whereas two integer tensors divide in float32), and returns that loss: shape
    (), of the logits' dtype, without a graph.

    Budget: peak live bytes at most those of the plain step on the largest piece, one more set of gradients, and a
    tenth of both; dispatched operators at most half as many again as in one such plain step per piece.
    """
    ### BEGIN SOLUTION
    total, losses = (targets != -100).sum(), list[torch.Tensor]()
    for some, wanted in zip(inputs.split(rows), targets.split(rows), strict=True):
        loss = F.cross_entropy(model(some).flatten(0, 1), wanted.flatten(), reduction="sum") / total
        loss.backward()
        losses.append(loss.detach())
    return torch.stack(losses).sum()
    ### END SOLUTION


# %% test="accumulated_backward" points=1
from helpers import check
from helpers.exercises.saving_memory import check_accumulated_backward, token_batch

for missing, size, told in (
    ([], 2, "Six rows in three equal pieces, all targets count."),
    ([], 4, "Six rows, the last piece is smaller."),
    ([5, 0, 5, 5, 1, 3], 2, "Some targets are -100: one piece has none at all (a mean over none is nan)."),
):
    batch = token_batch(6, 5, 7, padded=missing, seed=1)
    check_accumulated_backward(check.case(7, 3, "float64", 2, batch, size), note=told)
batch = token_batch(48, 60, 100, padded=[3, 9], seed=2)
check_accumulated_backward(check.case(100, 8, "float32", 1, batch, 4), budget=True)

# %% hidden="accumulated_backward" points=3
### BEGIN HIDDEN TESTS
from helpers import check
from helpers.exercises.saving_memory import check_accumulated_backward, token_batch

check_accumulated_backward(
    check.case(9, 4, "float64", 3, token_batch(7, 4, 9, [1, 4, 4, 2], 3), 3),
    check.case(5, 4, "float64", 2, token_batch(11, 3, 5, [3] * 10, 4), 4),
    check.case(6, 2, "float64", 2, token_batch(5, 6, 6, [0, 6, 1], 5), 1),
    check.case(6, 2, "float64", 1, token_batch(5, 6, 6, [2, 5], 6), 5),
    check.case(8, 3, "float64", 2, token_batch(7, 5, 8, [0, 2], 10, turned=True), 3),
    check.case(6, 4, "bfloat16", 1, token_batch(4, 3, 6, [], 11), 2),
)
check_accumulated_backward(
    check.case(50, 12, "float32", 2, token_batch(50, 16, 50, [4, 0, 16], 7), 8),
    check.case(30, 16, "float32", 1, token_batch(90, 12, 30, [7] * 50, 8), 1),
    check.case(64, 8, "float64", 2, token_batch(33, 30, 64, [], 9), 16),
    budget=True,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · Compute it again
#
# A checkpoint keeps only the *input* of a part of the model. When backward arrives there, the part runs forward
# once more, and what it saves lives only until its own backward is through. Sixteen blocks, a large batch. Four
# ways: keep all; a checkpoint around each block; around each group of four; one around the whole model. **Which
# holds least at its peak? How much does one around the whole hold, against keeping all? And by how many percent does
# the arithmetic (FLOPs) grow** if all of forward is computed again?

# %% experiment
prediction = {
    "least": ...,  # "keep all", "each block", "each four" or "whole"
    "whole ÷ keep all": ...,  # the nearest of 0.1, 0.3, 0.5 and 1
    "more FLOPs, %": ...,  # 10, 20, 33, 50 or 100
}

# %% experiment
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop


class Grouped(nn.Module):
    """depth parts, in groups of `size`."""

    def __init__(self, part, depth, size):
        super().__init__()
        self.groups = nn.Sequential(
            *[nn.Sequential(*[part() for _ in range(size)]) for _ in range(depth // size)]
        )

    def forward(self, x):
        return self.groups(x)


def grouped(part, size, width=128):
    """The step of 16 parts with a checkpoint around each group of `size`; None: without."""
    return memory.estimate(
        Grouped(part, 16, size or 1),
        torch.empty(4096, width, device="meta"),
        loss=squares,
        checkpoint=None
        if size is None
        else lambda name, _: name.startswith("groups.") and name.count(".") == 1,
    )


GROUPS = {"keep all": None, "each block": 1, "each four": 4, "whole": 16}
found = {name: grouped(lambda: Block(128), size) for name, size in GROUPS.items()}

# %% experiment tags=["fold"]


class Attention(nn.Module):
    """The other half of a transformer's block."""

    def __init__(self, width, heads=4):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        n, length, width = x.shape
        parts = self.qkv(self.norm(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).reshape(n, length, width))


def arithmetic(part, again):
    """FLOPs of forward and backward of `part`, checkpointed or not."""
    x = torch.randn(2, 64, 64, requires_grad=True)
    return count(
        lambda: squares(checkpoint(part, x, use_reentrant=False) if again else part(x)).backward()
    ).flops


PARTS = {
    "one linear layer": nn.Linear(64, 64),
    "the block above": Block(64),
    "a transformer's block": nn.Sequential(Attention(64), Block(64)),
}
more = {}
for name, part in PARTS.items():
    plain, default = arithmetic(part, False), arithmetic(part, True)
    with set_checkpoint_early_stop(False):
        more[name] = arithmetic(part, True) / plain - 1, default / plain - 1
lesson.keep(more_flops=more["the block above"][1])

# %% experiment
peaks = {name: one.peak_bytes for name, one in found.items()}
lesson.keep(at_gelu=found["whole"].at_peak["temporary"] / (4096 * 128 * 4))  # in widths
measured = {"least": min(peaks, key=peaks.get)}
of_all = peaks["whole"] / peaks["keep all"]
measured["whole ÷ keep all"] = min((0.1, 0.3, 0.5, 1), key=lambda share: abs(share - of_all))
measured["more FLOPs, %"] = round(100 * more["the block above"][0])
lesson.compare_predictions(
    prediction, measured, evidence="live (CPU) · arithmetic",
    choices=(*GROUPS, 0.1, 0.3, 0.5, 1, 10, 20, 33, 50, 100),
).show()  # fmt: skip
plots.memory_model(found, title="16 blocks, 4,096 rows: where are the checkpoints?")

# %% [markdown]
# At the peak three things add up: the inputs that are kept, one per checkpoint (*activations*); what *one* part saves
# while it is computed again (*recomputed*); and gradients on their way (*temporary*: {{at_gelu:.0f}} widths of a block,
# at gelu, whose result has gone already). Many small parts: many inputs. Few large parts: **the peak comes back**, inside
# backward. (*Each four* peaks in the first group, the last to be computed again: the other groups' inputs have gone,
# their gradients have come.) One checkpoint around everything keeps almost nothing after forward, and at the start of
# backward it holds all that was to be saved; it costs a forward pass for nothing.
#
# A block's inside is ten times its input, so here small parts win. Where an input is as large as what a part saves, a
# part alone saves nothing. Sixteen times linear and relu, width 128:

# %% experiment
layers = {
    size: grouped(lambda: nn.Sequential(nn.Linear(128, 128), nn.ReLU()), size)
    for size in (None, 1, 2, 4, 8, 16)
}
lesson.table(
    [
        ("keep all" if size is None else f"each {size}", f"{one.peak_bytes / MIB:.1f}")
        for size, one in layers.items()
    ],
    ["a checkpoint around", "peak, MiB"],
    evidence="arithmetic",
    caption="16 × (linear, relu), 4,096 rows: groups of √16 hold least",
)

# %% [markdown]
# The arithmetic: backward has two matmuls for each one of forward (for the input's gradient and for the weight's). So
# forward is a third, and all of it again is a third more. PyTorch's own checkpoint often needs less:

# %% experiment
lesson.table(
    [(name, *(f"{m:+.1%}" for m in both)) for name, both in more.items()],
    ["checkpoint around", "all computed again", "as torch does it"],
    evidence="live (CPU)",
    caption="FLOPs of forward and backward, the input needs a gradient too; left: set_checkpoint_early_stop(False)",
)

# %% [markdown]
# It stops as soon as all that backward wants is there. The last matmul's *result* is nobody's input, so it is not run
# again. (That is the newer of its two ways, `use_reentrant=False`, and [the only one that stops
# early](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/utils/checkpoint.py#L398-L407). Say it: torch 2.13 warns
# if you say neither.) The smaller the part, the larger the share of its last matmul. The transformer's block is a little
# under a third: by [torch's count](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/utils/flop_counter.py), fused
# attention does five matmuls in backward for two in forward.
#
# Inside, it is less magic than it looks. One catch: **dropout must drop the same places again**, so a checkpoint
# remembers the random generator's state, and afterwards leaves the generator as if nothing had been run twice.

# %% [markdown]
# **Exercise 9.3 — a checkpoint from scratch** (★★★, 20 min)
#
# Write your own: run `fn` without a graph, keep its inputs, and when backward comes, run it again with one.
#
# <details><summary>Hint 1</summary>A <code>torch.autograd.Function</code> has both moments. Its forward runs in no_grad mode
# already; what must be noted there <em>before</em> <code>fn</code> draws anything? Its <code>apply</code> wants tensors among
# its arguments; <code>fn</code> may come first.</details>
#
# <details><summary>Hint 2</summary>In backward you need leaves: <code>saved.detach().requires_grad_(…)</code>. Gradient mode
# is off there: <code>torch.enable_grad()</code>. And <code>torch.random.fork_rng(devices=[])</code> puts the generator back
# when its block ends.</details>
#
# <details><summary>The idea</summary>Forward: <code>get_rng_state</code>, <code>save_for_backward</code>, call. Backward:
# in both blocks set the state and call <code>fn</code> with the leaves; then <code>torch.autograd.backward(out, grad)</code>,
# which also gives the weights inside their gradients. Return <code>None</code> for <code>fn</code> and each leaf's
# <code>.grad</code>.</details>


# %% exercise="checkpointed"
def checkpointed(fn, *inputs: torch.Tensor) -> torch.Tensor:
    """fn(*inputs), keeping for backward only the inputs and the state of the CPU's random generator.

    fn: a module or a function of tensors, returns one tensor; it may draw random numbers (dropout), and may use
    weights that need gradients. inputs: floating tensors, at least one needs a gradient, whichever. Used with .backward(),
    once for each call, checkpoints after one another.

    Result, gradients of inputs and of weights, and the random numbers drawn *later*, are those of fn(*inputs). Backward
    uses only what the second run of fn made: the tests change a tensor inside fn between the two. The inputs are let go
    as soon as their part's backward is through.

    Budget: fn's FLOPs of forward twice (the last matmul need not be run again) and of backward once; peak live bytes
    at most a tenth more than torch.utils.checkpoint's, and 8 KiB per checkpoint for the generator's state. That
    module is not to be used, under any name.
    """
    ### BEGIN SOLUTION

    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            ctx.state = torch.get_rng_state()
            ctx.save_for_backward(*tensors)
            return fn(*tensors)

        @staticmethod
        def backward(ctx, grad):
            again = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                torch.set_rng_state(ctx.state)
                out = fn(*again)
            torch.autograd.backward(out, grad)
            return tuple(t.grad for t in again)

    return Again.apply(*inputs)
    ### END SOLUTION


# %% test="checkpointed" points=1
from helpers.exercises.saving_memory import Chain, check_checkpointed

check_checkpointed(Chain(6, 8, 3, p=0.0), note="No random numbers yet.")
told = "Dropout must drop the same places again; and torch.rand afterwards must not notice."
check_checkpointed(Chain(6, 8, 3, p=0.5), note=told)
check_checkpointed(Chain(6, 8, 3, p=0.5, two=True), note="Two inputs, of which the second needs no gradient.")
check_checkpointed(Chain(256, 32, 24, p=0.1), budget=True)

# %% hidden="checkpointed" points=4
### BEGIN HIDDEN TESTS
from helpers.exercises.saving_memory import Chain, check_checkpointed

check_checkpointed(
    Chain(5, 6, 2, p=0.0, steps=2),
    Chain(7, 5, 4, p=0.3, steps=2),
    Chain(4, 9, 3, p=0.6, two=True, steps=2),
    Chain(4, 4, 1, p=0.5, steps=2),
    Chain(5, 7, 3, p=0.4, steps=2, late=True),
)
check_checkpointed(Chain(240, 30, 20, p=0.2), Chain(100, 24, 10, p=0.0, two=True, steps=2), budget=True)
### END HIDDEN TESTS

# %% [markdown]
# **Exercise 9.4 — which blocks?** (★★, 8 min)
#
# Checkpoint where it is cheapest. Blocks differ (attention, wide, narrow), and the memory is given. Find the choice that
# fits and computes least again. Block i saves `kept[i]` bytes, its input among them, or only `inputs[i]` if it is
# checkpointed. When backward arrives at block i, what the later blocks kept is gone. So the most that is held:
#
# - at the end of forward: all that the blocks keep;
# - while a checkpointed block i is computed again: all that the blocks before it keep, and kept[i].
#
# <details><summary>Hint 1</summary>With at most 12 blocks there are at most 4,096 choices.</details>
#
# <details><summary>Hint 2</summary>The price of a choice is the sum of its <code>flops</code>. Go through all choices, skip
# those over the budget.</details>
#
# <details><summary>The idea</summary><code>itertools.combinations</code> for each number of blocks; one walk from
# block 0 gives both sums. Keep the cheapest.</details>


# %% exercise="choose_checkpoints"
def choose_checkpoints(kept: list[int], inputs: list[int], flops: list[int], budget: int) -> list[int]:
    """The blocks to checkpoint, ascending, so that the peak is at most `budget` bytes and the FLOPs are fewest.

    kept, inputs: bytes a block holds from its forward to its backward, plain and checkpointed; inputs[i] ≤ kept[i].
    flops: of a block's forward. 1 to 12 blocks. The peak is the larger of: all that is held at the end of forward; and,
    for each checkpointed i, what the blocks before it hold, plus kept[i]. Of several choices with the fewest
    FLOPs any one will do. ValueError if none fits.

    Graded on the FLOPs that are computed again.
    """
    ### BEGIN SOLUTION
    import itertools

    best = None
    for n in range(len(kept) + 1):
        for chosen in itertools.combinations(range(len(kept)), n):
            held = most = 0
            for i, whole in enumerate(kept):
                most = max(most, held + whole if i in chosen else 0)
                held += inputs[i] if i in chosen else whole
            price = sum(flops[i] for i in chosen)
            if max(most, held) <= budget and (best is None or price < best[0]):
                best = price, list(chosen)
    if best is None:
        raise ValueError(f"no choice of checkpoints fits into {budget} bytes")
    return best[1]
    ### END SOLUTION


# %% test="choose_checkpoints" points=1
from helpers import check
from helpers.exercises.saving_memory import check_choose_checkpoints

check_choose_checkpoints(
    check.case([10, 10, 10], [1, 1, 1], [5, 5, 5], 30),
    check.case([10, 10, 10], [1, 1, 1], [5, 5, 5], 21),
    check.case([40, 10, 10, 10], [2, 2, 2, 2], [99, 5, 6, 7], 60),  # what saves most is the dearest
    check.case([10, 20, 90], [10, 5, 1], [3, 3, 3], 105),  # the last one by itself lowers nothing
    check.case([30, 80, 90, 70], [2, 4, 2, 1], [7, 11, 10, 6], 250),  # the best per byte first pays too much
    check.case([10, 10, 50], [1, 1, 1], [1, 1, 1], 40, raises=ValueError),
    note="What the third, fourth and fifth case are about is said beside them.",
)

# %% hidden="choose_checkpoints" points=3
### BEGIN HIDDEN TESTS
from helpers import check
from helpers.exercises.saving_memory import check_choose_checkpoints, random_blocks

check_choose_checkpoints(
    *random_blocks(9, lengths=[1, 2, 4, 6, 8, 9, 10, 11], shares=[0.1, 0.35, 0.6]),
    check.case([9, 9], [9, 9], [1, 1], 17, raises=ValueError),
    check.case([5, 80], [5, 2], [1, 1], 84, raises=ValueError),
    check.case([7], [3], [4], 7),
    check.case([5, 6, 7], [5, 6, 7], [0, 0, 0], 18),  # nothing to be saved, and nothing to be paid
    check.case([9, 9, 9], [1, 1, 1], [0, 0, 5], 12),  # two are free
    check.case([0, 4], [0, 0], [3, 3], 0, raises=ValueError),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · Put it elsewhere
#
# The host has plenty of memory, and a saved tensor is not needed until backward. `saved_tensors_hooks(pack,
# unpack)` calls `pack` with each tensor that autograd saves, keeps what it returns, and calls `unpack` with that when
# backward asks. [`torch.autograd.graph.save_on_cpu()`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/autograd/graph.py#L350-L420) is exactly that: a copy to the
# host there, `.to(device)` back. Eight
# blocks of width 512, 2,048 rows, on a simulated H100, beside checkpoints around each block. How many *times as
# long* as the plain step do they take, and does `save_on_cpu` move more, fewer or as many bytes as the activations are?

# %% experiment
prediction = {
    "checkpoints": ...,  # times as long, the nearest of these five: 1, 1.2, 2, 5 or 15
    "save_on_cpu": ...,  # the same
    "bytes moved": ...,  # "more", "fewer" or "as many"
}

# %% experiment
from contextlib import nullcontext


def on_card(way, width=512, depth=8, rows=2048):
    """One warm step: peak bytes, seconds, bytes to the host and back, bytes of activations."""
    gpu = simulate("H100")
    with gpu:
        with torch.device(gpu.device):
            net, x = stack(width, depth), torch.randn(rows, width)

        def step():
            h = x
            with torch.autograd.graph.save_on_cpu() if way == "save_on_cpu" else nullcontext():
                for block in net:
                    h = checkpoint(block, h, use_reentrant=False) if way == "checkpoints" else block(h)
                loss = squares(h)
            del h
            loss.backward()
            net.zero_grad()

        for _ in range(2):
            gpu.synchronize()
            gpu.reset_peak_memory_stats()
            began, before = gpu.clock(), len(gpu.kernels)
            step()
            gpu.synchronize()
        moved = {
            k: sum(w.bytes for w in gpu.kernels[before:] if w.kind == f"copy {k}") for k in ("d2h", "h2d")
        }
        return {"peak": gpu.max_memory_allocated(), "seconds": gpu.clock() - began, **moved}  # fmt: skip


steps = {way: on_card(way) for way in ("plain", "checkpoints", "save_on_cpu")}
kept = memory.estimate(
    stack(512, 8), torch.empty(2048, 512, device="meta"), loss=squares, optimizer=None
).saved
lesson.keep(too_many_mib=(steps["save_on_cpu"]["d2h"] - kept) / MIB)
longer = {way: step["seconds"] / steps["plain"]["seconds"] for way, step in steps.items()}
near = {way: min((1, 1.2, 2, 5, 15), key=lambda n: abs(n - longer[way])) for way in longer if way != "plain"}
card, moved = simulate("H100").card, steps["save_on_cpu"]["d2h"]
# with a workspace a thread
stays = 2 * sum(p.nbytes for p in stack(512, 8).parameters()) + 2048 * 512 * 4 + 2 * 32 * MIB
near["bytes moved"] = "more" if moved > 1.01 * kept else "fewer" if moved < 0.99 * kept else "as many"
lesson.compare_predictions(
    prediction, near, evidence="simulated (H100)", choices=["more", "fewer", "as many", 1, 1.2, 2, 5, 15]
).show()
lesson.table(
    [
        (
            way,
            f"{step['peak'] / MIB:,.0f}",
            f"{1e3 * step['seconds']:.1f}",
            f"{longer[way]:.2f}",
            f"{step['d2h'] / MIB:,.0f}",
            f"{step['h2d'] / MIB:,.0f}",
        )
        for way, step in steps.items()
    ],
    ["way", "peak, MiB", "ms", "times as long", "to the host, MiB", "back, MiB"],
    evidence="simulated (H100)",
    caption=f"activations: {kept / MIB:,.0f} MiB; weights, their gradients, the batch and the matrix library's workspace: "
    f"{stays / MIB:,.0f} MiB",
).show()
# as lesson 05 has it: 80 % of what the bus is said to do
pinned = card.assumptions.bandwidth_share * card.pcie_bytes_per_s
wide = 4 * card.peak_flops["fp32"] * card.assumptions.flop_share / pinned
lesson.table(
    [
        (name, f"{rate / 1e9:,.0f}", f"{1e3 * moved / rate:,.1f}")
        for name, rate in (
            ("pageable host memory, as save_on_cpu() has it", card.assumptions.pageable_bytes_per_s),
            ("pinned host memory, at 80 % of the bus's published rate", pinned),
        )
    ],
    ["copies from and to", "GB/s", "ms one way"],
    evidence="arithmetic",
    caption=f"moved there and back at the bus's rate, one float32 costs what a linear layer of {wide:,.0f} inputs "
    "costs to compute it",
)

# %% [markdown]
# **The peaks.** Without activations the step cannot be below what stays: weights, gradients, the batch, the
# workspace. Both ways get close; what is left above it is one block's work.
#
# **The bytes.** Why more than the activations? A linear layer saves its input, and its **weight**, for the input's
# gradient: 16 weights of 4 MiB are the {{too_many_mib:.0f}} MiB too many. They lie on the card anyway; moving them frees
# nothing, at the price of the way there and back at each step. The library's hook cannot know that; yours can.
#
# **The time.** Checkpoints cost what section 3 counted: {{more_flops:.0%}} more FLOPs. Offloading is the copies: pageable, one
# after the other, nothing beside them. Pinned memory and a second stream (lesson 05) can hide what is shorter than the
# arithmetic beside it. So when is offloading better than computing again?
# When a number is dearer to compute than to move: behind very wide layers, or attention over a long sequence; and when
# it waits long (the first blocks). Here checkpoints win by far.

# %% [markdown]
# **Exercise 9.5 — offload, and not the weights** (★★, 10 min)
#
# Write the hooks that leave weights and small things where they are. `put` and `get` stand for the two copies, and
# count their bytes.
#
# <details><summary>Hint 1</summary><code>torch.autograd.graph.saved_tensors_hooks(pack, unpack)</code> is a context
# manager: return it. <code>pack</code> may return anything, and <code>unpack</code> gets that.</details>
#
# <details><summary>Hint 2</summary>Does your <code>pack</code> know a weight when it sees one? Print what it gets from one
# linear layer: <code>t.shape</code>, <code>t._base is None</code>.</details>
#
# <details><summary>The idea</summary>A weight comes as its transpose, a view with the parameter's storage: keep a set of
# <code>p.untyped_storage().data_ptr()</code>. <code>pack(t)</code> returns <code>(None, t)</code> for what stays,
# <code>(put(t), None)</code> for what goes; <code>unpack</code> looks which of the two it is.</details>


# %% exercise="offloaded"
def offloaded(parameters: list[nn.Parameter], put, get, min_bytes: int):
    """A context manager: what autograd saves inside it waits in the host's memory for backward.

    put(tensor) → handle: copies a tensor to the host. get(handle) → a new tensor of the same numbers on the device;
    each handle may be asked for once. Moved are saved tensors, of any dtype, of at least min_bytes (numel × element_size), and no
    parameter or view of one. What is smaller stays as it is. A tensor that two operators save is put for each of them.
    (Once for both is accepted. But an address does not tell: it is given again once its tensor has gone.)

    Gradients are those without it, bit for bit. Budget: bytes put, and bytes got, are the saved bytes that the
    rule above names; peak live bytes (host not counted) at most those of the plain step minus half of them.
    Backward uses what get() gives: in some tests the host halves the numbers.
    """
    ### BEGIN SOLUTION
    stay = {p.untyped_storage().data_ptr() for p in parameters}

    def pack(t):
        small = t.numel() * t.element_size() < min_bytes
        return (None, t) if small or t.untyped_storage().data_ptr() in stay else (put(t), None)

    def unpack(packed):
        handle, t = packed
        return t if handle is None else get(handle)

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)
    ### END SOLUTION


# %% test="offloaded" points=1
from helpers.exercises.saving_memory import Offloads, check_offloaded

check_offloaded(Offloads(256, 24, 8, min_bytes=1), Offloads(300, 32, 6, min_bytes=30_000))
check_offloaded(Offloads(64, 16, 3, min_bytes=1, share=0.5), budget=False)


# %% hidden="offloaded" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.saving_memory import Offloads, check_offloaded

check_offloaded(
    Offloads(100, 24, 6, min_bytes=1, steps=2),
    Offloads(60, 20, 4, min_bytes=500, share=0.5, steps=2),
    Offloads(128, 32, 8, min_bytes=2000, steps=2),
    Offloads(40, 16, 12, min_bytes=2560, steps=2),
    Offloads(64, 24, 5, min_bytes=6000, masks=True),
    Offloads(64, 24, 5, min_bytes=1, masks=True),
)
# the batch is a view of twice the bytes, and smaller than min_bytes itself
check_offloaded(Offloads(128, 32, 3, min_bytes=17_000, share=0.5), budget=False)
### END HIDDEN TESTS

# %% [markdown]
# ## 5 · Let go of it earlier
#
# The cheapest way: what nobody needs any more. A block, a head of 4,096 words, 256 rows, two steps of a loop, and one
# habit at a time. **Which cost nothing at the peak?**

# %% experiment
prediction = {  # "more" or "the same"
    "logits keep their name": ...,
    "zero_grad(set_to_none=False)": ...,
    "training losses collected": ...,
    "validation losses collected": ...,
}


# %% experiment
def loop(habit):
    net, x, y = (
        nn.Sequential(Block(64), nn.Linear(64, 4096)),
        torch.randn(256, 64),
        torch.randint(4096, (256,)),
    )
    losses = []
    for _ in range(2):
        if habit == "validation losses collected":
            losses.append(F.cross_entropy(net(x), y))  # neither .item() nor no_grad
        net.zero_grad(set_to_none=habit != "zero_grad(set_to_none=False)")
        logits = net(x)
        loss = F.cross_entropy(logits, y)
        if habit != "logits keep their name":
            del logits
        loss.backward()
        if habit == "training losses collected":
            losses.append(loss)


habits = {habit: count(loop, habit).peak_live_bytes for habit in ["none of these", *prediction]}
tidy = habits["none of these"]
measured = {habit: "more" if habits[habit] > 1.01 * tidy else "the same" for habit in prediction}
lesson.compare_predictions(prediction, measured, evidence="live (CPU)", choices=["more", "the same"]).show()
lesson.table(
    [(habit, f"{most / MIB:.2f}", f"{(most - tidy) / MIB:+.2f}") for habit, most in habits.items()],
    ["habit", "peak, MiB", "more"],
    evidence="live (CPU)",
    caption=f"the logits are {256 * 4096 * 4 / MIB:.0f} MiB",
)

# %% [markdown]
# A name for the logits costs them, once more, beside what the loss keeps of them. Gradients that are zeroed and not
# dropped are there in forward and at the peak. What a *training* loss's graph saved is gone once backward is through;
# its nodes are still there
# (`.item()` lets go of them, too). A *validation* loss without `no_grad` holds all that its graph saved, batch after batch.
#
# ## All of it, side by side
#
# The first section's net, 8,192 rows, and a budget of 140 MiB. Each lever has a price, in FLOPs, in launches, in what is
# computed. **Which *one* lever reaches the budget, "none", "8 pieces" or "checkpoints"?** Then add a line of your own to
# `LEVERS`: which combination reaches it at the least price?

# %% experiment
prediction = {"one alone": ...}

# %% experiment
LEVERS = {
    "plain": ({}, "–"),
    "output let go before backward": ({"keep_output": False}, "none"),
    "SGD in place of AdamW": ({"optimizer": "sgd"}, "another optimizer"),
    "bf16 autocast": ({"autocast": torch.bfloat16}, "other rounding (lesson 10)"),
    "checkpoints": ({"checkpoint": Block}, "FLOPs"),
    "8 pieces": ({"micro_batches": 8}, "launches × 8"),
    "8 pieces, SGD": ({"micro_batches": 8, "optimizer": "sgd"}, "launches × 8, another optimizer"),
    "8 pieces, checkpoints": ({"micro_batches": 8, "checkpoint": Block}, "launches × 8, FLOPs"),
}
pulled = {name: needs(8192 // how.get("micro_batches", 1), **how) for name, (how, price) in LEVERS.items()}
again = more["the block above"][1]
alone = [name for name in ("8 pieces", "checkpoints") if pulled[name].peak_bytes <= 140 * MIB]
lesson.keep(floor_mib=16 * weights / MIB)
of_forward = {name: one.at_peak["activations"] / MIB for name, one in pulled.items()}
lesson.keep(plain_mib=of_forward["plain"], pieces_mib=of_forward["8 pieces"])
lesson.keep(checkpoints_mib=of_forward["checkpoints"], both_mib=of_forward["8 pieces, checkpoints"])
lesson.compare_predictions(
    prediction,
    {"one alone": alone[0] if alone else "none"},
    evidence="arithmetic",
    choices=["none", "8 pieces", "checkpoints"],
).show()
lesson.table(
    [
        (
            name,
            f"{pulled[name].peak_bytes / MIB:.1f}",
            f"{pulled[name].at_peak['activations'] / MIB:.1f}",
            "yes" if pulled[name].peak_bytes <= 140 * MIB else "",
            price.replace("FLOPs", f"FLOPs {again:+.0%}"),
        )
        for name, (how, price) in LEVERS.items()
    ],
    ["way", "peak, MiB", "of it activations", "≤ 140", "price"],
    evidence="arithmetic",
    caption="of the batch, only the piece at work is counted: 1 MiB of 8 where there are 8",
).show()
plots.memory_model(pulled, budget=140 * MIB, title="8 blocks, 8,192 rows")

# %% [markdown]
# Neither alone. Parameters, the optimizer's means and one set of gradients are {{floor_mib:.0f}} MiB that no piece and no
# checkpoint makes smaller: the floor. And checkpoints alone still have one block's inside and its gradients, of 8,192 rows
# each, beside all the inputs. What multiplies is what forward keeps: {{plain_mib:.0f}} MiB, with eight pieces
# {{pieces_mib:.0f}}, with checkpoints {{checkpoints_mib:.0f}}, with both {{both_mib:.0f}}.
# And the least price? Three more that fit:

# %% experiment
fit = {
    "16 pieces": {"micro_batches": 16},
    "8 pieces, bf16 autocast": {"micro_batches": 8, "autocast": torch.bfloat16},
    "4 pieces, checkpoints": {"micro_batches": 4, "checkpoint": Block},
}
lesson.table(
    [
        (name, f"{needs(8192 // how['micro_batches'], **how).peak_bytes / MIB:.1f}")
        for name, how in fit.items()
    ],
    ["way", "peak, MiB"],
    evidence="arithmetic",
)

# %% [markdown]
# **Sixteen pieces, and nothing else**, if 512 rows keep your card busy (lessons 06, 10): no FLOP more, the same numbers,
# twice the launches of eight, each of half the work. If they do not, pay for larger pieces: with other rounding, or with
# {{more_flops:.0%}} more FLOPs. And where the floor itself is too high, SGD does for nothing what none of these can, if it trains
# your model. (Gradients that die inside backward are lesson 06.)

# %% [markdown]
# ## On the real GPU
#
# Section 4's step on a card, live where there is a CUDA GPU; no recording of it exists yet. Look for the peaks
# (the workspace differs from card to card), and for how much of offloading's time `pin_memory=True` takes away.


# %% experiment tags=["nbval-ignore-output", "fold"]
def on_cuda(device):
    """Peaks and times of plain, checkpointed and offloaded steps on a CUDA device."""
    rows = []
    for way in ("plain", "checkpoints", "save_on_cpu", "save_on_cpu, pinned"):
        net, x = stack(512, 8).to(device), torch.randn(2048, 512, device=device)
        hooks = (
            torch.autograd.graph.save_on_cpu(pin_memory="pinned" in way) if "cpu" in way else nullcontext()
        )
        for _ in range(3):
            torch.cuda.reset_peak_memory_stats(device)
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            h = x
            with hooks:
                for block in net:
                    h = checkpoint(block, h, use_reentrant=False) if way == "checkpoints" else block(h)
                loss = squares(h)
            del h
            loss.backward()
            net.zero_grad()
            end.record()
            end.synchronize()
        peak = torch.cuda.max_memory_allocated(device) / MIB
        rows.append((way, f"{peak:,.0f} MiB", f"≈ {start.elapsed_time(end):.1f} ms"))
    return lesson.table(rows, ["way", "peak", "step"], evidence="live (GPU)")


lesson.on_gpu(on_cuda, "09/levers")

# %% [markdown]
# ## Sources on trial
#
# The book is the *PyTorch performance and memory handbook*, whose repository (ailzhang/EfficientPyTorch, chapter 7) has a
# script that prints a peak of 628.6 MiB with `checkpoint_sequential`, then 936.2 without. It runs both ways in one
# process and keeps a clone of all gradients from the first. Below is its net with the peak reset between the two. The
# weights are 40,000 wide, the batch is 10. What do you get if the two ways change places: which of the two is worse then?

# %% experiment
from torch.utils.checkpoint import checkpoint_sequential


def book_script(order, clones, clear_first=False):
    """Peaks in MiB of the two ways, in that order, with or without clones of the gradients; less the workspace."""
    gpu, peaks, kept = simulate("H100"), {}, []
    with gpu:
        with torch.device(gpu.device):
            parts = [nn.Linear(1000, 40000), nn.ReLU(), nn.Linear(40000, 1000), nn.ReLU(), nn.Linear(1000, 5), nn.ReLU()]  # fmt: skip
            net, x = nn.Sequential(*parts), torch.randn(10, 1000, requires_grad=True)
        for way in order:
            gpu.reset_peak_memory_stats()
            if clear_first:
                net.zero_grad()
            out = net(x) if way == "plain" else checkpoint_sequential(parts, 2, x, use_reentrant=False)
            net.zero_grad()
            out.sum().backward()
            peaks[way] = gpu.max_memory_allocated() / MIB - 2 * 32
            if clones:
                kept.append([p.grad.clone() for p in net.parameters()])
    return peaks


book = {
    "order and clones as published": book_script(["checkpoint", "plain"], True),
    "the other order": book_script(["plain", "checkpoint"], True),
    "no clones": book_script(["checkpoint", "plain"], False),
    "no clones, the other order": book_script(["plain", "checkpoint"], False),
    "no clones, zero_grad before forward": book_script(["checkpoint", "plain"], False, True),
}
older = 2 * (4096 * 1024 * 2 + 16 * 1024 * 8) / MIB
lesson.keep(left_mib=book["no clones"]["plain"] - book["no clones"]["checkpoint"])
lesson.table(
    [(name, *(f"{p[way]:.1f}" for way in ("checkpoint", "plain"))) for name, p in book.items()]
    + [("printed by the book, less that workspace", *(f"{p - older:.1f}" for p in (628.637, 936.174)))],
    ["script", "with checkpoints, MiB", "without, MiB"],
    evidence="simulated (H100)",
    caption="without the matrix library's workspace, 32 MiB for each of two threads on an H100. The book names no card; "
    f"before the H100, PyTorch takes {older / 2:.3f} MiB each (CublasHandlePool.cpp), {older:.2f} together",
)

# %% [markdown]
# The numbers are the book's, and the difference is the clones: whichever way runs second looks worse by one set of
# gradients. The {{left_mib:.1f}} MiB that are left without clones change sides too: the script has
# `original.zero_grad()` *after* `out = original(x)`,
# so the second way's forward runs beside the first way's gradients. With a batch of 10 there is
# next to nothing for a checkpoint to save: all weights and their gradients, no activations to speak of.
#
# Its script for offloading has two layers of 50,000 × 50,000, moves each to the card and back inside forward, and prints a
# peak of 9.33 GiB, for forward alone. Is a layer off the card when forward is done with it? By hand, a hundredth in
# size, with and without gradients:


# %% experiment
def weights_on_card(layers, grad, width=5000):
    """Layers of weights on the card at the end of forward, and at the peak; each fetched from the host and dropped."""
    gpu = simulate("H100")
    host = [torch.zeros(width, width, requires_grad=grad) for _ in range(layers)]
    with gpu:
        x = torch.randn(10, width, device=gpu.device)
        torch.mm(x, x.t())  # the matrix library's workspace is there from now on
        held = gpu.memory_allocated()
        gpu.reset_peak_memory_stats()
        for w in host:
            here = w.to(gpu.device)
            x = torch.relu(x @ here.t())
            del here
        one = host[0].nbytes
        return round((gpu.memory_allocated() - held) / one), round((gpu.max_memory_allocated() - held) / one)


left = {(layers, grad): weights_on_card(layers, grad) for grad in (True, False) for layers in (2, 4)}
layer_gib = 4 * 50_000**2 / 2**30
lesson.table(
    [
        (f"{layers}, {'for training' if grad else 'weights need no gradient'}", *found)
        for (layers, grad), found in left.items()
    ],
    ["layers, fetched and dropped one by one", "on the card after forward", "at the peak"],
    evidence="simulated (H100)",
    caption=f"in layers. By arithmetic, one of 50,000 × 50,000 in float32 is {layer_gib:.2f} GiB, two are {2 * layer_gib:.2f}",
)

# %% [markdown]
# For training, every layer but the first stays: backward needs its weight for the gradient of its input, so autograd
# keeps it, wherever the parameter has gone. With two layers that does not show *in the peak* (one is held after forward,
# one was there at a time), with four it does. So this saves memory in inference; for training, fetch the weights
# *again* in backward, with hooks or with a checkpoint around each layer.
#
# And the number cannot be that script's. Before forward it has `model = LargeModel().to("cuda")`: the *whole* model, two
# layers at once.

# %% experiment tags=["fold"]
first = {n: needs(n).peak_phase for n in (16, 8192)}
gap = {name: p["plain"] - p["checkpoint"] for name, p in book.items()}
rows = [
    (
        "09-peak",
        "book-notes",
        "memory usually peaks in backward, in one of its operators",
        f"8 blocks with AdamW: in {first[8192]} with 8,192 rows, in {first[16]} with 16",
        "confirmed" if set(first.values()) == {"backward"} else "holds when activations outweigh gradients and the optimizer's temporaries",
        "1 · What is there, and when is it the most?",
    ),
    (
        "09-learning-rate",
        "five-strategies",
        "with accumulation, scale the learning rate in proportion to the batch",
        f"accumulated and whole gradients differ by less than {1e-9:.0e}: the step is the same one. Without "
        f"the division by 8, SGD's step is {forgot['SGD']:.1f} times as long, Adam's {forgot['Adam']:.1f} times",
        "holds when the batch it stands for grew, the optimizer is SGD and noise rules (lesson 06); accumulation itself asks for nothing"
        if max(off["mean loss ÷ number of pieces, equal pieces"], off["sum of losses ÷ all that count"]) < 1e-9
        else "confirmed",
        "2 · The batch in pieces",
    ),
    (
        "09-batchnorm",
        "five-strategies",
        "BatchNorm updates its statistics after the complete cycle of accumulation",
        f"{bn[64]} updates in a step of 8 pieces; gradients off by ≈ {off['BatchNorm, equal pieces']:.2f}",
        "refuted: once per piece, and each piece is normalised by itself" if bn[64] == 8 else "confirmed",
        "2 · The batch in pieces",
    ),
    (
        "09-checkpoint-compute",
        "five-strategies",
        "checkpointing adds 20 % compute",
        "FLOPs of forward and backward: "
        + "; ".join(f"{name} {full:+.0%}, as torch does it {early:+.0%}" for name, (full, early) in more.items()),
        "holds when torch may skip the last matmul of each transformer block; all of forward again is a third more"
        if 0.18 < more["a transformer's block"][1] < 0.25 and more["the block above"][0] > 0.3
        else "refuted",
        "3 · Compute it again",
    ),
    (
        "09-book-checkpoint",
        "book-code",
        "the book's script: 936.2 MiB without checkpoints, 628.6 MiB with",
        f"as published {gap['order and clones as published']:+.0f} MiB; in the other order {gap['the other order']:+.0f}; without the clones "
        f"{gap['no clones']:+.1f} and {gap['no clones, the other order']:+.1f}",
        "refuted: the difference is a clone of all gradients"
        if gap["the other order"] < 0 and abs(gap["no clones"]) < 0.1 * gap["order and clones as published"]
        else "confirmed",
        "Sources on trial",
    ),
    (
        "09-book-offload",
        "book-code",
        "the book's script: layers moved in and out by turns hold the peak at 9.33 GiB",
        f'its .to("cuda") before forward moves both layers to the card: {2 * layer_gib:.2f} GiB. Without it: after forward for training '
        f"{left[2, True][0]} of 2 and {left[4, True][0]} of 4 layers are on the card; if weights need no gradient the peak is {left[4, False][1]}",
        "refuted for the script as it stands; without that line it holds when nothing is saved for backward, or with two layers"
        if left[4, True][0] == 3 and 2 * layer_gib > 9.33
        else "confirmed",
        "Sources on trial",
    ),
]  # fmt: skip
lesson.verdicts(rows, evidence="live (CPU) · simulated (H100) · arithmetic")

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | AdamW in float32: 12 bytes per weight are static, gradients are 4 more. | Other optimizers, other precision. |
# | A large batch has its peak at the start of backward. | Small batches: all gradients and the optimizer's step. |
# | An activation costs the array that it keeps and nobody else does: gelu one, relu none. | Fused kernels, the compiler. |
# | Accumulate: sums, divided by what counts in the whole batch. | BatchNorm: no division helps. |
# | Computing everything again costs a third more FLOPs, less where the last matmul of each part is skipped. | Time: what is bound by bytes or launches has its own price. |
# | Checkpoint small parts, not the model. | Where inputs are as large as what is saved inside: groups of √depth. |
# | Offload what is large, waits long, and is dearer to compute than to move. | Weights: they are on the card anyway. |
# | `zero_grad()` before forward; no name for what backward does not need. | – |
# | Measure a peak after `reset_peak_memory_stats`, one way per process. | – |
#
# **Checklist for your own code**
# - [ ] Static or dynamic: which of the two does not fit? (`memory.estimate`)
# - [ ] In which phase is the peak, at which operator?
# - [ ] Uneven pieces, padding: is the divisor that of the whole batch?
# - [ ] Does anything keep the last piece's graph, the output, or the gradients longer than needed?
# - [ ] Which blocks are cheapest to compute again, per byte?
#
# **Read on**: PyTorch's documentation of `torch.utils.checkpoint` and of *Hooks for autograd saved tensors*;
# T. Chen and others, *Training deep nets with sublinear memory cost* (2016); V. Korthikanti and others, *Reducing
# activation recomputation in large transformer models* (2022); S. Rajbhandari and others, *ZeRO* (2020), for where
# static memory goes on several GPUs (lesson 15); the pull request *Fix Gradient Accumulation issue* (34191) in
# huggingface/transformers, October 2024.
