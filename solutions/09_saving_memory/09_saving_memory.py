# %% [markdown]
# # 09 · Saving memory
#
# ## How do I train what does not fit?
#
# `CUDA out of memory`. Some of what fills the card is always there. Some is there only for a part of the step. This
# lesson has four ways to have less of the second kind: go through the batch in pieces, compute a part again in place of
# keeping it, let go of it earlier, or move it to the host for a while (in *Further*). Most have a price, and a counter
# tells you which.
#
# **Time** 60 min, 18 of them for two exercises; *Further*: 96 min, where you write a checkpoint and an offload yourself.
# **Before this** lessons 00 to 02 (counters, autograd, what is saved for backward); 06 and 08 help.
#
# **Afterwards you can**
# - say in which phase a training step needs most memory, and what helps there;
# - write gradient accumulation that equals the large batch;
# - choose, under a budget, what to compute again.

# %% setup
import torch
from torch import nn
from torch.nn import functional as F

from helpers import count, lesson, memory, plots
from helpers.lessons.saving_memory import experiments

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


lesson.start("09_saving_memory", evidence=["live (CPU)", "simulated (H100)", "recorded (H100)", "arithmetic"])

# %% [markdown]
# ## 1 · When does a step need the most memory?
#
# Eight blocks of width 256 train in float32 with [AdamW](https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html).
# Their memory is of two kinds:
#
# - **Static** memory is there before, in and after every step: the weights (*parameters* in the pictures), and, once
#   the first step is done, the optimizer's two running means.
# - **Dynamic** memory comes and goes: the batch; the **activations**, which forward keeps for backward; the
#   gradients of the weights; and **temporaries**, for example gradients *of activations*.
#
# A step has three phases: *forward*, *backward*, and the optimizer's *step*. In which is the peak? How many bytes per
# weight are static?

# %% experiment
you = lesson.predict(
    {"peak with 16 rows": ..., "peak with 8,192 rows": ..., "static bytes per weight": ...},
    choices={
        "peak with 16 rows": ["forward", "backward", "step"],
        "peak with 8,192 rows": ["forward", "backward", "step"],
        "static bytes per weight": [4, 8, 12, 16],
    },
)

# %% experiment
net = stack(256, 8)


def needs(rows, **options):
    """The memory of one step, worked out with tensors that have a shape and no memory."""
    return memory.estimate(net, torch.empty(rows, 256, device="meta"), loss=squares, **options)


by_rows = {rows: needs(rows) for rows in (16, 128, 256, 1024, 8192)}
step_until, backward_from = experiments.where_it_tips(by_rows)
lesson.keep(step_until=step_until, backward_from=backward_from)
lesson.keep(loop_mib=by_rows[16].peak_bytes / MIB, foreach_mib=needs(16, foreach=True).peak_bytes / MIB)
picture = plots.memory_model(by_rows[8192], title="One step of 8 blocks, 8,192 rows")
you.against(experiments.phases(by_rows), picture, experiments.kinds(by_rows), evidence="arithmetic")

# %% [markdown]
# In forward the curve climbs, because most operators keep something for backward. When backward begins, all
# activations are still there. Backward makes the first gradients of activations *beside* them (temporaries, pink).
# Only then can it let go of activations. So **with a large batch the peak is at the beginning of backward**. The orange
# strip in *step* is the model's output: a variable still names it (section 4).
#
# A small batch has hardly any activations. Its peak is in the optimizer's step: all gradients are there, and the optimizer
# adds its own temporaries. The peak moves to backward between {{step_until}} and {{backward_from}} rows.
#
# AdamW goes through one parameter after the other here, as it does on a CPU. On a CUDA GPU its default is `foreach`
# (lesson 06), whose temporaries are as large as all weights: then 16 rows need {{foreach_mib:.0f}} MiB in place of
# {{loop_mib:.0f}}. `fused=True` needs none.
#
# Fewer activations do nothing for a peak in the optimizer's step: first find out where yours is.
#
# ## 2 · The batch in pieces
#
# `backward()` *adds* to what is in `.grad`. So 512 rows can go through the model in pieces of 64, and only then comes the
# optimizer's step. This is **gradient accumulation**. Activations shrink to an eighth. One set of gradients stays from the first
# piece to the last. Does `.grad` end up the **same** as after the whole batch, or **different**?
#
# Each piece's mean loss is divided by the number of pieces; only the fourth line adds up sums. *Padded* targets are marked
# -100 and do not count ([`ignore_index`](https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html)).
# Some pieces have far more of them than others.

# %% experiment
you = lesson.predict(
    {
        "pieces of 64": ...,
        "pieces of 100, and a last one of 12": ...,
        "pieces of 64, padded targets": ...,
        "pieces of 100, padded; sum of losses ÷ all targets that count": ...,
        "pieces of 64, the model has BatchNorm": ...,
    },
    choices=["same", "different"],
)


# %% experiment
def gradients(net, x, y, rows, by_sum=False):
    """Gradients after going through (x, y) in pieces of `rows`."""
    net.zero_grad()
    for a, b in zip(x.split(rows), y.split(rows), strict=True):
        if by_sum:
            loss = F.cross_entropy(net(a), b, reduction="sum") / (y != -100).sum()
        else:
            loss = F.cross_entropy(net(a), b) / -(-len(x) // rows)
        loss.backward()
    return torch.cat([p.grad.flatten() for p in net.parameters()])


x, y, padded = experiments.labelled_rows(512)
plain, with_norm = experiments.small_nets()
ways = [
    (plain, y, 64),
    (plain, y, 100),
    (plain, padded, 64),
    (plain, padded, 100, True),
    (with_norm, y, 64),
]
off = {}
for name, (model, labels, *how) in zip(you, ways, strict=True):
    whole = gradients(model, x, labels, 512)
    off[name] = float((gradients(model, x, labels, *how) - whole).norm() / whole.norm())
you.against(experiments.same(off), experiments.how_far_off(off), evidence="live (CPU)", what="gradients")

# %% [markdown]
# A mean of means is the mean of all only if every piece counts alike. So add up *sums*, and divide by the number of targets that
# count in the **whole** batch. In the last padded piece a single target counts, and its mean weighs as much as the 64
# of the first. The Hugging Face trainer had this mistake until October 2024
# ([34191](https://github.com/huggingface/transformers/pull/34191),
# [34198](https://github.com/huggingface/transformers/pull/34198)).
#
# BatchNorm normalises by the *piece's* mean and variance, so the model computes another function, and no
# division can repair that. Its running averages also move once per piece. LayerNorm and GroupNorm look at one row at a time,
# so they do not change.
#
# Does accumulation need another learning rate? No: with equal gradients the step is equal. A larger *batch* may want
# a larger one (lesson 06), in pieces or not.

# %% [markdown]
# **Exercise 9.1 — accumulation that equals the large batch** (★★, 10 min)
#
# Write the loop: forward and backward for `rows` rows at a time, in the memory of one piece. `.grad` ends up as after the
# whole batch, whatever the padding.
#
# <details><summary>Hint 1</summary><code>reduction="sum"</code>, and a divisor that you know before the loop.</details>
#
# <details><summary>Hint 2</summary>Which tensors of a piece are still there while the next piece runs forward? Those
# that have a name, for example <code>logits</code>. And the result must have no graph: add up
# <code>loss.detach()</code>.</details>
#
# <details><summary>The idea</summary><code>total = (targets != -100).sum()</code>. For each pair of pieces: sum of losses
# ÷ total, <code>backward()</code>, and the detached loss goes to the result.</details>


# %% exercise="accumulated_backward"
def accumulated_backward(
    model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, rows: int
) -> torch.Tensor:
    """What cross_entropy over the whole batch, and its backward(), would do, with `rows` rows at a time.

    inputs, targets: (n, length), numbers of tokens; both may be non-contiguous. A target of -100 does not count. At least
    one counts in the batch, perhaps none in a piece. rows: 1 to n; the last piece may be smaller.
    model(inputs) → logits (n, length, words). Some parameters may be frozen.

    Adds to every .grad what F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward() would add,
    to 9 decimals in float64. (One integer tensor ÷ another is float32.)
    Returns that loss: shape (), of the logits' dtype, without a graph.

    Budget: peak live bytes ≤ 1.1 × (those of the plain step on the largest piece + one set of gradients);
    dispatched operators ≤ 1.5 × pieces × those of that plain step.
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
from helpers.lessons.saving_memory.exercises import check_accumulated_backward, token_batch

for missing, size, note in (
    ([], 2, "Six rows in three equal pieces, all targets count."),
    ([], 4, "Six rows, the last piece is smaller."),
    ([5, 0, 5, 5, 1, 3], 2, "Some targets are -100: one piece has none at all (a mean over none is nan)."),
):
    batch = token_batch(6, 5, 7, padded=missing, seed=1)
    check_accumulated_backward(check.case(7, 3, "float64", 2, batch, size), note=note)
batch = token_batch(48, 60, 100, padded=[3, 9], seed=2)
check_accumulated_backward(check.case(100, 8, "float32", 1, batch, 4), budget=True)

# %% hidden="accumulated_backward" points=3
### BEGIN HIDDEN TESTS
from helpers import check
from helpers.lessons.saving_memory.exercises import check_accumulated_backward, token_batch

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
# A **checkpoint** keeps only the *input* of a part of the model. When backward arrives there, the part runs forward once
# more, and what it saves then is gone as soon as its own backward is done. In code it is one line, with
# [`torch.utils.checkpoint`](https://docs.pytorch.org/docs/stable/checkpoint.html):
#
# ```python
# h = checkpoint(block, h, use_reentrant=False)  # in place of h = block(h)
# ```
#
# Sixteen blocks: keep all; a checkpoint around each block; around each group of four; one around the
# whole model. Which way has the lowest peak? How high is the peak of the last one, compared with keeping all? And how many more
# FLOPs (forward and backward) is it, if all of forward is computed again?

# %% experiment
you = lesson.predict(
    {"lowest peak": ..., "whole ÷ keep all": ..., "more FLOPs": ...},
    choices={
        "lowest peak": ["keep all", "each block", "each four", "whole"],
        "whole ÷ keep all": ["about 0.1", "about 0.3", "about 0.5", "about 1"],
        "more FLOPs": ["10 %", "33 %", "50 %", "100 %"],
    },
)

# %% experiment
groups = {"keep all": None, "each block": 1, "each four": 4, "whole": 16}
estimates = {name: experiments.in_groups(lambda: Block(128), group) for name, group in groups.items()}
all_again, as_torch_does = experiments.more_flops(Block(64))
lesson.keep(more_flops=as_torch_does)
picture = plots.memory_model(estimates, title="16 blocks, 4,096 rows: where are the checkpoints?")
you.against(experiments.of_groups(estimates, all_again), picture, evidence="live (CPU) · arithmetic")

# %% [markdown]
# At the peak three things add up: the inputs that checkpoints keep (*activations*); of what *one* part saves
# when it runs again, as much as is still there (*recomputed*); and gradients on their way (*temporary*).
#
# - Many small parts have many inputs to keep. Here a block saves ten times as much as its input, so small parts win.
# - Few large parts save much at once. One checkpoint around the whole model keeps almost nothing after forward. But then the
#   whole forward runs again, and everything is there at once. **The peak comes back**, and a forward pass was paid for nothing.
#
# Why a third more FLOPs? Backward has two matrix products for each one of forward: one for the input's gradient, one for the
# weight's. So forward is a third of the step, and all of forward again is a third more. PyTorch's own checkpoint needs
# {{more_flops:.0%}} more for this block: it stops when all that backward wants is there, before the block's last matrix product.

# %% [markdown]
# **Exercise 9.2 — which blocks?** (★★, 8 min)
#
# Blocks differ (attention, wide, narrow), and the memory is given. Find the checkpoints that fit and compute least
# again. Block i saves `kept[i]` bytes, its input among them, or only `inputs[i]` if it has a checkpoint. When backward arrives at
# block i, what the later blocks kept is gone. Leave gradients and temporaries out. Then the most that is held is the larger
# of these two:
#
# - at the end of forward: all that the blocks keep;
# - while a block i with a checkpoint is computed again: all that the blocks before it keep, and kept[i].
#
# <details><summary>Hint 1</summary>With at most 12 blocks there are at most 4,096 choices.</details>
#
# <details><summary>Hint 2</summary>The price of a choice is the sum of its <code>flops</code>. Skip choices over the
# budget.</details>
#
# <details><summary>The idea</summary><code>itertools.combinations</code> for each number of blocks. One walk from
# block 0 gives both sums. Keep the cheapest.</details>


# %% exercise="choose_checkpoints"
def choose_checkpoints(kept: list[int], inputs: list[int], flops: list[int], budget: int) -> list[int]:
    """The blocks to checkpoint, ascending, so that the peak is at most `budget` bytes and the FLOPs are fewest.

    kept, inputs: bytes a block holds from its forward to its backward, plain and checkpointed; inputs[i] ≤ kept[i].
    flops: of a block's forward. 1 to 12 blocks. The peak is the larger of the two above. Of several choices with
    the fewest FLOPs any one will do. ValueError if none fits.
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
from helpers.lessons.saving_memory.exercises import check_choose_checkpoints

check_choose_checkpoints(
    check.case([10, 10, 10], [1, 1, 1], [5, 5, 5], 30),
    check.case([10, 10, 10], [1, 1, 1], [5, 5, 5], 21),
    check.case([40, 10, 10, 10], [2, 2, 2, 2], [99, 5, 6, 7], 60),  # what saves most costs most
    check.case([10, 20, 90], [10, 5, 1], [3, 3, 3], 105),  # the last one by itself lowers nothing
    check.case([30, 80, 90, 70], [2, 4, 2, 1], [7, 11, 10, 6], 250),  # the best per byte first pays too much
    check.case([10, 10, 50], [1, 1, 1], [1, 1, 1], 40, raises=ValueError),
)

# %% hidden="choose_checkpoints" points=3
### BEGIN HIDDEN TESTS
from helpers import check
from helpers.lessons.saving_memory.exercises import check_choose_checkpoints, random_blocks

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
# Your choice at work, on five unlike blocks:

# %% experiment
experiments.on_a_net(choose_checkpoints)

# %% [markdown]
# What the rule leaves out comes on top. On a real card, keep room in the budget for gradients and temporaries.
#
# ## 4 · Let go of it earlier
#
# The cheapest way is to drop what nobody needs any more. A block and an output layer for 4,096 words go forward and backward twice,
# with one habit at a time. (The output, one number for each word, is called the *logits*.) Which habits raise the peak?

# %% experiment
you = lesson.predict(
    {
        "no `del logits` before backward()": ...,
        "zero_grad(set_to_none=False)": ...,
        "training losses go into a list": ...,
        "validation losses, without no_grad, go into a list": ...,
    },
    choices=["higher", "the same"],
)


# %% experiment
def loop(habit):
    net, losses = nn.Sequential(Block(64), nn.Linear(64, 4096)), []
    x, y = torch.randn(256, 64), torch.randint(4096, (256,))
    for _ in range(2):
        if habit == "validation losses, without no_grad, go into a list":
            losses.append(F.cross_entropy(net(x), y))
        net.zero_grad(set_to_none=habit != "zero_grad(set_to_none=False)")
        logits = net(x)
        loss = F.cross_entropy(logits, y)
        if habit != "no `del logits` before backward()":
            del logits
        loss.backward()
        if habit == "training losses go into a list":
            losses.append(loss)


habits = {habit: count(loop, habit).peak_live_bytes for habit in ["none of these", *you]}
you.against(experiments.higher(habits), experiments.habits(habits), evidence="live (CPU)", what="peak")

# %% [markdown]
# - A **name** for the logits keeps them during backward, beside what the loss keeps of them.
# - Gradients that are **zeroed** and not dropped are there at the peak.
# - After backward, a *training* loss has let go of what its graph saved. Only its nodes are left. (A list
#   of `loss.item()` keeps none.)
# - A *validation* loss without [`no_grad`](https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html) keeps all
#   that its graph saved, batch after batch.
#
# ## 5 · All of it, side by side
#
# Take the net of section 1, 8,192 rows, and a budget of 140 MiB. Do 8 pieces of 1,024 rows, or a checkpoint around each block,
# reach the budget?

# %% experiment
BUDGET = 140 * MIB
you = lesson.predict(
    {"the budget is reached by": ...},
    choices=["8 pieces alone", "checkpoints alone", "each alone", "only both together"],
)

# %% experiment
WAYS = {
    "plain": ({}, "–"),
    "output let go before backward": ({"keep_output": False}, "none"),
    "bf16 autocast": ({"autocast": torch.bfloat16}, "other rounding (lesson 10)"),
    "checkpoints": ({"checkpoint": Block}, "FLOPs"),
    "8 pieces": ({"micro_batches": 8}, "passes × 8"),
    "8 pieces, checkpoints": ({"micro_batches": 8, "checkpoint": Block}, "passes × 8, FLOPs"),
    "8 pieces, bf16 autocast": (
        {"micro_batches": 8, "autocast": torch.bfloat16},
        "passes × 8, other rounding",
    ),
    "16 pieces": ({"micro_batches": 16}, "passes × 16"),
}
pulled = {name: needs(8192 // how.get("micro_batches", 1), **how) for name, (how, _) in WAYS.items()}
lesson.keep(floor_mib=experiments.floor(pulled["plain"]) / MIB, above=experiments.above_floor(pulled))
lesson.keep(alone_mib=by_rows[1024].peak_bytes / MIB, eighth_mib=pulled["8 pieces"].peak_bytes / MIB)
table = experiments.ways(pulled, {name: price for name, (_, price) in WAYS.items()}, BUDGET, as_torch_does)
picture = plots.memory_model(pulled, budget=BUDGET, title="8 blocks, 8,192 rows")
you.against(experiments.reached(pulled, BUDGET), picture, table, evidence="arithmetic")

# %% [markdown]
# Neither reaches the budget alone. Section 1's 1,024 rows need {{alone_mib:.0f}} MiB, but eight
# pieces need {{eighth_mib:.0f}}: the gradients of the earlier pieces are there all the time. Weights, the optimizer's
# means and one set of gradients are {{floor_mib:.0f}} MiB, and no piece and no checkpoint makes them smaller. Both ways
# shrink what forward keeps: ÷ 8 and ÷ 10 make ÷ 80. (All that is above the floor, *recomputed* and temporaries too: ÷ {{above:.0f}}.)
# The batch shrinks only if the card gets one piece at a time: views from `x.split` keep all of it.
#
# **Sixteen pieces and nothing else** cost least, if 512 rows are enough work for your card: no product more, the
# same numbers but for last digits, only more launches (lesson 03). If not, pay with other rounding, or with
# {{more_flops:.0%}} more FLOPs. Where the floor itself is too high, take for example
# another optimizer, or more than one GPU (lesson 15).
#
# How few pieces fit with nothing else? Change `WAYS`.

# %% [markdown]
# ## The running example
#
# `through` says how the model goes through a layer.

# %% experiment
from torch.utils.checkpoint import checkpoint

from helpers import running_example


def through_checkpoint(block, x):
    return checkpoint(block, x, use_reentrant=False)


before = running_example.after("08")
lighter = before.replace(through=through_checkpoint)
board = running_example.compare(before, lighter)
lesson.keep(script_mib=board.before.peak_bytes / 2**20, script_mib_now=board.after.peak_bytes / 2**20)
lesson.keep(script_slower=board.after.step_s / board.before.step_s - 1)
lesson.keep(short_simulated=experiments.longer("simulated"), short_recorded=experiments.longer("recorded"))
board

# %% [markdown]
# The peak falls from {{script_mib:.0f}} to {{script_mib_now:.0f}} MiB. The price is most of a second forward pass through every layer:
# the *simulated* step takes {{script_slower:.0%}} longer. A real one may pay more (last row: the CPU): each checkpoint is Python
# too, which the simulator does not count. In *Further* a short step with checkpoints takes {{short_recorded:.1f}} times as
# long on a recorded H100, where the simulator says {{short_simulated:.1f}}.
#
# The script fits without checkpoints, so lesson 10 goes on without them. They pay where a larger batch or
# model does not fit otherwise.

# %% [markdown]
# ## Your own script
#
# In which phase is your peak?
#
# - In *step*: try `AdamW(..., fused=True)`, then an optimizer with less state.
# - In *forward* or *backward*: first drop needless names (section 4), which is free. Then try smaller pieces, then
#   checkpoints around each block, then offloading (*Further*).

# %% experiment
from helpers.own_script import simulated_cuda, toy

with simulated_cuda("H100"):  # at home: without this line, on your own GPU
    model, optimizer, loss_fn, loader, device, step = toy("cuda", width=4096, batch=1024)

    step(next(iter(loader)))  # a warm-up: AdamW makes its running means in the first step
    optimizer.zero_grad()
    x, y = (part.to(device) for part in next(iter(loader)))
    for phase in ("forward", "backward", "step"):
        torch.cuda.reset_peak_memory_stats()
        if phase == "forward":
            loss = loss_fn(model(x), y)
        elif phase == "backward":
            loss.backward()
        else:
            optimizer.step()
        print(f"{phase}: peak {torch.cuda.max_memory_allocated() / 2**20:,.0f} MiB")

# %% [markdown]
# The toy's peak is in the optimizer's step: AdamW's temporary tensors stand beside weights, gradients and states.
#
# `memory.estimate(model, x)` from `helpers` works it out without a card; lesson 08's snapshot names the lines.
#
# ## Sources on trial

# %% experiment
from helpers.lessons.saving_memory import claims

lesson.verdicts(
    claims.on_trial(by_rows, off),
    evidence="live (CPU) · simulated (H100) · arithmetic",
    shown=("09-peak", "09-checkpoint-compute"),
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | AdamW in float32: 12 bytes per weight are static, and gradients are 4 more. | Other optimizers, other precision. |
# | With a large batch the peak is at the beginning of backward. | Small batches: in the optimizer's step. Checkpoints: perhaps later in backward. |
# | Accumulate sums, divided by what counts in the whole batch. | BatchNorm: no division helps. |
# | Checkpoint small parts, not the whole model. | A part whose input is as large as what it saves gains nothing by itself. |
# | Computing all of forward again is a third more FLOPs. | Time: in a short step a checkpoint's Python costs more. |
# | No name for what backward does not need; `zero_grad()` before forward. | – |
# | Pieces and checkpoints shrink activations. | Weights, optimizer and gradients stay: the floor. |
#
# **Read on**: PyTorch on [checkpoints](https://docs.pytorch.org/docs/stable/checkpoint.html) and on [hooks for saved
# tensors](https://docs.pytorch.org/tutorials/intermediate/autograd_saved_tensors_hooks_tutorial.html); T. Chen and others,
# [Training deep nets with sublinear memory cost](https://arxiv.org/abs/1604.06174) (2016); V. Korthikanti and others, [Reducing
# activation recomputation in large transformer models](https://arxiv.org/abs/2205.05198) (2022).

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# Each section stands alone.
#
# ### What one operator keeps (35 min)
#
# Whoever wrote an operator's backward chose what it keeps. Take linear → activation → linear. The
# second linear layer keeps its own input in any case. How many arrays of that size does the activation **add** to what is kept? And
# does `relu_`, which works in place, keep fewer than `relu`?

# %% experiment
you = lesson.predict(
    {"relu adds": ..., "gelu adds": ..., "relu_ keeps": ...},
    choices={"relu adds": [0, 1, 2], "gelu adds": [0, 1, 2], "relu_ keeps": ["fewer", "as many"]},
)


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
you.against(experiments.adds(acts), experiments.activations(acts), evidence="live (CPU)")

# %% [markdown]
# relu and sigmoid keep their *result*. That is the next layer's input, which is kept in any case: nothing is added. gelu and
# silu keep their *input*, which nobody else needs: one array more.
#
# An operator that works in place and keeps its result needs one array less for a moment. What is kept stays the same.
# An operator that works in place and keeps its input needs no array less: autograd copies the old values before they
# are written over. If you write over what *another* operator kept, backward raises, because each tensor counts its
# versions. `.data` and the array behind `.numpy()` escape this count. Then the gradients are wrong, without an error.
#
# With that, activations are a sum over operators, and static memory is arithmetic. A whole step is a formula. (At the
# peak of section 1's picture the temporaries are the gradients of the result and of the input of the last block's `down`.
# Its weight's gradient counts with the gradients.)

# %% [markdown]
# **Exercise 9.3 — predict it** (★★, 20 min)
#
# Write the formula for a stack of `Block`s, as in the set-up cell. `memory.estimate` and `count` are there for
# checking; the function itself only calculates.
#
# <details><summary>Hint 1</summary>A block has 8·width² + 7·width weights. The layer norm keeps its input and two numbers
# per row; each linear layer keeps its input; gelu keeps its input. Is one of these tensors kept by two of them? Then
# it is one storage. The sum x + … keeps nothing.</details>
#
# <details><summary>Hint 2</summary>The peak is the larger of two moments. In the first, backward is through with the
# last block's <code>down</code>. Of what was saved, only the loss's input is gone (no name <code>out</code> keeps it
# here). New are the gradients of down's result, of its input, and of its <em>weight</em>. In the second moment the
# optimizer is at work: all gradients are there, and two temporaries as large as the largest parameter.</details>
#
# <details><summary>The idea</summary>Per block and row: x, the normed x (width each), up's result and gelu's result
# (4·width each), and 2: 10·width + 2 numbers. The loss keeps the last result: width. Static: 12 bytes per weight. Peak:
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
from helpers.lessons.saving_memory.exercises import check_training_memory

check_training_memory((2048, 64, 4), (32, 128, 6), (73, 64, 1), (8, 64, 1))

# %% hidden="training_memory" points=2
### BEGIN HIDDEN TESTS
from helpers.lessons.saving_memory.exercises import check_training_memory

check_training_memory(
    *((1500, 96, 3), (4096, 16, 12), (3000, 32, 1), (300, 128, 1)),
    *((64, 64, 2), (16, 160, 3), (48, 96, 9), (12, 48, 1)),
)
### END HIDDEN TESTS

# %% [markdown]
# ### Keep the products, compute the rest again (4 min)
#
# A checkpoint need not forget everything. What costs most to compute again are the matrix products; what takes most bytes for
# the least work are GELU, norms and dropout. *Selective* checkpointing keeps the outputs of the operators that you name
# ([`create_selective_checkpoint_contexts`](https://docs.pytorch.org/docs/stable/checkpoint.html#torch.utils.checkpoint.create_selective_checkpoint_contexts)).
# Four blocks of linear, GELU, linear, 1,024 tokens: what is kept after the forward pass, and what does the backward pass
# compute?

# %% experiment
from functools import partial

from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from helpers.own_script import simulated_cuda

products = partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
ways = {
    "keep everything": lambda block, h: block(h),
    "keep the input": lambda block, h: checkpoint(block, h, use_reentrant=False),
    "keep the products": lambda block, h: checkpoint(block, h, use_reentrant=False, context_fn=products),
}
for name, way in ways.items():
    with simulated_cuda("H100") as gpu:
        layers = [nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)]
        blocks = [nn.Sequential(*layers).to("cuda") for _ in range(4)]
        h = torch.randn(1024, 1024, device="cuda", requires_grad=True)
        h.mm(h)  # the first product asks for the matrix library's workspace
        before = torch.cuda.memory_allocated()
        for block in blocks:
            h = way(block, h)
        kept, first = torch.cuda.memory_allocated() - before, len(gpu.kernels)
        h.sum().backward()
    flops = sum(kernel.flops for kernel in gpu.kernels[first:])
    print(f"{name:18} {kept / 2**20:4.0f} MiB kept, backward {flops / 1e9:.0f} GFLOP")

# %% [markdown]
# With the products kept, the backward pass computes hardly more than without a checkpoint, and GELU's outputs are gone. The
# plain checkpoint keeps least, and computes the first product of each block a second time. (It stops before the last.)
#
# ### The forgotten division (3 min)
#
# You accumulate 8 pieces and forget to divide by 8. How many times as far does the first step go, with SGD and with Adam?

# %% experiment
you = lesson.predict({"SGD": ..., "Adam": ...}, choices=[1, 2, 8, 64])

# %% experiment
forgot = {
    "SGD": experiments.times_as_far(torch.optim.SGD),
    "Adam": experiments.times_as_far(torch.optim.Adam),
}
you.against_ratios(forgot, evidence="live (CPU)", what="times as far")

# %% [markdown]
# SGD takes eight steps in one, and you will see it. Adam divides by the gradient's own size, so **the mistake hides**. It
# shows only where something is compared with a gradient that is eight times too large: gradient clipping, `eps`, or Adam's
# `weight_decay`. (AdamW's weight decay goes past the gradient, straight to the weights.)
#
# ### A checkpoint from scratch (33 min)
#
# How much more arithmetic a checkpoint costs depends on the part. By default `use_reentrant=False` stops early
# ([its source](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/utils/checkpoint.py#L398-L407)): no operator saves the
# result of the last matrix product, so it is not computed again. How low the peak is depends on the part
# too. The second table is about sixteen times linear and relu, where a part's input is as large as what it saves.

# %% experiment
layers = {
    n: experiments.in_groups(lambda: nn.Sequential(nn.Linear(128, 128), nn.ReLU()), n)
    for n in (None, 1, 2, 4, 8, 16)
}
experiments.more_arithmetic().show()
experiments.groups_of_layers(layers)

# %% [markdown]
# The smaller the part, the larger is the share of its last matrix product. A checkpoint around each (linear, relu) saves nothing.
# Groups of about √depth have the lowest peak there: that is the rule of the paper by Chen and others.
#
# What runs twice has catches. BatchNorm's running averages move twice. And **dropout must drop the same places again.** So
# a checkpoint notes the state of the random generator, and afterwards leaves the generator as if nothing had run twice.

# %% [markdown]
# **Exercise 9.4 — a checkpoint from scratch** (★★★, 20 min)
#
# Write your own: run `fn` without a graph, keep its inputs, and when backward comes, run `fn` again with a graph.
#
# <details><summary>Hint 1</summary>A <code>torch.autograd.Function</code> has both moments. Its forward runs in no_grad mode
# already. What must be noted there <em>before</em> <code>fn</code> draws anything? Its <code>apply</code> wants tensors among
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
    weights, of which some need gradients. inputs: floating tensors, at least one needs a gradient, whichever. Used with .backward(),
    once for each call, checkpoints after one another, none inside another.

    Result, gradients of inputs and of weights, and the random numbers drawn *later*, are those of fn(*inputs). Backward
    uses only what the second run of fn made: the tests change a tensor inside fn between the two. The inputs are let go
    as soon as their part's backward is through.

    Budget: at most fn's FLOPs of forward twice and of backward once, with gradients of those inputs and weights only
    that need one; peak live bytes
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
from helpers.lessons.saving_memory.exercises import Chain, check_checkpointed

check_checkpointed(Chain(6, 8, 3, p=0.0), note="No random numbers yet.")
note = "Dropout must drop the same places again; and torch.rand afterwards must not notice."
check_checkpointed(Chain(6, 8, 3, p=0.5), note=note)
check_checkpointed(Chain(6, 8, 3, p=0.5, two=True), note="Two inputs, of which the second needs no gradient.")
check_checkpointed(Chain(256, 32, 24, p=0.1), budget=True)

# %% hidden="checkpointed" points=4
### BEGIN HIDDEN TESTS
from helpers.lessons.saving_memory.exercises import Chain, check_checkpointed

check_checkpointed(
    Chain(5, 6, 2, p=0.0, steps=2),
    Chain(7, 5, 4, p=0.3, steps=2),
    Chain(4, 9, 3, p=0.6, two=True, steps=2),
    Chain(4, 4, 1, p=0.5, steps=2),
    Chain(5, 7, 3, p=0.4, steps=2, late=True),
    Chain(6, 5, 3, p=0.2, steps=2, frozen=True),
)
# the second input needs no gradient, and stands in a product
some_inputs = Chain(100, 24, 10, p=0.0, two=True, steps=2, product=True)
check_checkpointed(Chain(240, 30, 20, p=0.2), some_inputs, budget=True)
### END HIDDEN TESTS

# %% [markdown]
# ### Put it elsewhere (21 min)
#
# The host has plenty of memory, and a saved tensor is not needed until backward.
# [`saved_tensors_hooks(pack, unpack)`](https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.graph.saved_tensors_hooks)
# calls `pack` with each tensor that autograd saves, and keeps what `pack` returns. When backward asks for the tensor, it calls `unpack`
# with that. [`save_on_cpu()`](https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.graph.save_on_cpu) is exactly
# this: a copy to the host in `pack`, a copy back in `unpack`. This is **offloading**.
#
# Eight blocks of width 512 run with 2,048 rows on a simulated H100: plain, with checkpoints around each block, and with `save_on_cpu`. About how many
# times as long as the plain step do the others take? And does `save_on_cpu` move more, fewer or as many bytes as the activations have?

# %% experiment
you = lesson.predict(
    {"checkpoints take": ..., "save_on_cpu takes": ..., "save_on_cpu moves": ...},
    choices={
        "checkpoints take": ["1 ×", "1.2 ×", "2 ×", "5 ×", "15 ×"],
        "save_on_cpu takes": ["1 ×", "1.2 ×", "2 ×", "5 ×", "15 ×"],
        "save_on_cpu moves": ["more", "fewer", "as many"],
    },
)

# %% experiment
from contextlib import nullcontext

from torch.utils.checkpoint import checkpoint


def step(net, x, way):
    h = x
    to_host = torch.autograd.graph.save_on_cpu(pin_memory="pinned" in way)
    with to_host if "save_on_cpu" in way else nullcontext():
        for block in net:
            h = checkpoint(block, h, use_reentrant=False) if way == "checkpoints" else block(h)
        loss = squares(h)
    del h
    loss.backward()


steps = {way: experiments.on_a_card(step, way) for way in ("plain", "checkpoints", "save_on_cpu")}
lesson.keep(too_many_mib=experiments.too_many(steps) / MIB)
you.against(
    experiments.of_offloading(steps),
    experiments.steps(steps),
    evidence="simulated (H100)",
)

# %% [markdown]
# **The peaks.** Weights, gradients, the batch and the matrix library's workspace stay. Both ways get close to that.
# The rest is what one block needs while it works.
#
# **The bytes.** Why more than the activations? For the gradient of its input a linear layer also saves its **weight**,
# a matrix. 16 matrices of 4 MiB are the {{too_many_mib:.0f}} MiB too many. They are on the card in any case: moving
# them frees nothing, and costs the way there and back in each step. The library's hook does not look. Yours can.
#
# **The time.** Checkpoints cost the arithmetic of section 3. Offloading costs the copies: from pageable memory, one
# after the other, with nothing beside them. Pinned memory (`save_on_cpu(pin_memory=True)`) copies faster, and a second stream
# (lesson 05) can hide copies that are shorter than the arithmetic beside them. Offloading is better than computing again where
# a number costs more to compute than to move: behind very wide layers, or attention over a long sequence. It is also
# better where a number waits long: in the first blocks. Here checkpoints win by far.
#
# The same three ways and a fourth, with pinned memory, on a real GPU: on yours, or on the H100 of the recording.

# %% experiment tags=["nbval-ignore-output"]
experiments.on_a_real_card().show()
experiments.checkpoints_python()

# %% [markdown]
# The peaks are the simulated ones, nearly. The times are not. The step with pageable memory takes far longer there than
# simulated, and pinned memory is worth most of it.
#
# And checkpoints cost more than their arithmetic and their launches. The second table shows why: with next to no arithmetic, they
# call a few operators more, and take several times as long. The rest is mostly Python: what each checkpoint does around
# its part, and its hooks for saved tensors. In a step this short the GPU waits for the CPU (lesson 03). A longer
# step would hide it.
#
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
# <details><summary>The idea</summary>A weight comes as its transpose, a view with the parameter's storage. Keep a set of
# <code>p.untyped_storage().data_ptr()</code>. <code>pack(t)</code> returns <code>(None, t)</code> for what stays, and
# <code>(put(t), None)</code> for what goes. <code>unpack</code> looks which of the two it is.</details>


# %% exercise="offloaded"
def offloaded(parameters: list[nn.Parameter], put, get, min_bytes: int):
    """A context manager: what autograd saves inside it waits in the host's memory for backward.

    put(tensor) → handle: copies a tensor to the host. get(handle) → a new tensor of the same numbers on the device;
    each handle may be asked for once. parameters: all of the model's, frozen ones too. Moved are saved tensors, of any dtype, of at least min_bytes (numel × element_size), and no
    parameter or view of one. What is smaller stays as it is. A tensor that two operators save is put for each of them.
    (Once for both is accepted. But an address does not tell: it is given again once its tensor has gone.)

    Backward uses what get() gives. If that is what was put, gradients are those without it, bit for bit. (In some tests
    the host halves the numbers.) Budget: bytes put, and bytes got, at most the saved bytes that the rule above names;
    peak live bytes (host not counted) at most those of the plain step minus half of the bytes put.
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
from helpers.lessons.saving_memory.exercises import Offloads, check_offloaded

check_offloaded(Offloads(256, 24, 8, min_bytes=1), Offloads(300, 32, 6, min_bytes=30_000))
check_offloaded(Offloads(64, 16, 3, min_bytes=1, share=0.5))


# %% hidden="offloaded" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.saving_memory.exercises import Offloads, check_offloaded

check_offloaded(
    Offloads(100, 24, 6, min_bytes=1, steps=2),
    Offloads(60, 20, 4, min_bytes=500, share=0.5, steps=2),
    Offloads(128, 32, 8, min_bytes=2000, steps=2),
    Offloads(40, 16, 12, min_bytes=2560, steps=2),
    Offloads(64, 24, 5, min_bytes=6000, masks=True),
    Offloads(48, 24, 5, min_bytes=1, masks=True),  # activations have the shapes of weights
    Offloads(200, 24, 8, min_bytes=1, odd=True),
    # the batch is a view of twice the bytes, and smaller than min_bytes itself
    Offloads(128, 32, 3, min_bytes=17_000, share=0.5),
)
### END HIDDEN TESTS
