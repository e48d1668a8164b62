# %% [markdown]
# # 16 · Model parallel
#
# ## What if the data is not what to split?
#
# In lessons 14 and 15 each GPU works on its own part of the data. This no longer helps when the activations of one sample do not fit,
# when the batch cannot grow, or when one sample takes too long. Then the model itself is split: **inside its layers** (tensor parallel),
# or **between its layers** (pipeline parallel).
#
# **Time** 60 min, 25 of them for two exercises; *Further*: 78 min. **Before this** lesson 14 (collectives, the α–β model, DDP).
#
# **Afterwards you can**
# - split an MLP over ranks so that as little as possible is sent, and say what is sent;
# - write a pipeline schedule, and say beforehand how long ranks wait and what they hold;
# - lay out 64 GPUs for a given model and network, and say when a model needs none of this.

# %% setup
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard, parallel
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torch.nn import functional as F

from helpers import lesson, plots, ranks
from helpers.lessons.model_parallel import experiments
from helpers.lessons.model_parallel.explorer import pipeline_explorer
from helpers.lessons.model_parallel.schedule_picture import schedule
from helpers.lessons.model_parallel.splits import matrix_splits

torch.set_num_threads(1)
lesson.start(
    "16_model_parallel", evidence=["live (CPU)", "simulated (H100)", "simulated (fake group)", "arithmetic"]
)

# %% [markdown]
# ## 1 · Split a matrix product
#
# Two ranks share the product `y = x @ w`. Each has half of w. By **columns**, each computes half of the columns of y, from all of x.
# By **rows**, each needs only half of the columns of x. It computes a matrix of the size of y, and both add up to y.

# %% experiment
dice = torch.Generator().manual_seed(0)
x, w = torch.randn(6, 8, generator=dice), torch.randn(8, 10, generator=dice)
left, right = w.chunk(2, dim=1)
by_columns = torch.cat([x @ left, x @ right], dim=1)
top, bottom = w.chunk(2, dim=0)
by_rows = x[:, :4] @ top + x[:, 4:] @ bottom
print("by columns:", torch.allclose(by_columns, x @ w, atol=1e-4))
print("by rows:", torch.allclose(by_rows, x @ w, atol=1e-4))
matrix_splits(rows=6, inner=8, columns=10)

# %% [markdown]
# Putting the halves side by side takes an **all-gather**, adding them an **all-reduce**. An MLP has two products and an
# elementwise function between them: `gelu(x @ a) @ b`. Attention works on each head by itself between its products.
#
# PyTorch's
# [`parallelize_module`](https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html) splits a module by a *plan*.
# `ColwiseParallel` splits a layer by columns; its result stays split, unless `output_layouts=Replicate()` asks for all of it. (Its
# weight is `Shard(0)`, since `nn.Linear` stores w transposed.) `RowwiseParallel` splits by rows and adds up. The plans below run on
# two real processes. **How many collectives does one forward pass make?**

# %% experiment
you = lesson.predict(
    {
        "MLP, each product by columns, then gathered": ...,
        "MLP, first by columns, then by rows": ...,
        "attention, each rank has half of the heads": ...,
    },
    choices=[0, 1, 2, 4],
)

# %% experiment
gathered = ColwiseParallel(output_layouts=Replicate())
columns_rows = {"1": ColwiseParallel(), "3": RowwiseParallel()}  # "1" and "3": the two products of the MLP
heads = {"q": ColwiseParallel(), "k": ColwiseParallel(), "v": ColwiseParallel(), "out": RowwiseParallel()}
plans = {  # module, plan, and the dimension of x that is split, if one is
    "MLP, each product by columns, then gathered": ("mlp", {"1": gathered, "3": gathered}, None),
    "MLP, first by columns, then by rows": ("mlp", columns_rows, None),
    "attention, each rank has half of the heads": ("attention", heads, None),
}
steps = ranks.run_ranks(experiments.split_and_run, 2, plans)[0]
sends = [record.wire_bytes() for _, record, _ in steps.values()]
lesson.keep(gathering=sends[0] / sends[1])
calls = {name: experiments.forward_calls(step) for name, step in steps.items()}
you.against(calls, experiments.sent_table(steps), evidence="live (CPU)", what="collectives")

# %% [markdown]
# **Split the first product by columns and the second by rows.** Then nothing has to be put together between them: gelu works on
# single numbers, and a rank's columns are just what its rows of the second matrix need. One all-reduce of y is left. Backward has one,
# too: all ranks used x, so its gradient is a sum over them. Gathering after each product sends {{gathering:.1f}} times as much.
#
# Attention works the same way, with heads in place of columns. But in its backward q, k and v each sum the gradient of x for
# themselves: three all-reduces in place of one. *Further* mends this, and splits the MLP by hand.

# %% [markdown]
# ## 2 · Split between the layers
#
# A pipeline gives each rank a **stage**: some of the layers, in order. It sends little: the activations between two stages, and
# their gradients back. Its price is waiting. The batch is cut into **micro-batches**. Rank 1 cannot begin before rank 0 has
# done the first micro-batch. Rank 0's first backward needs a gradient that has come back through all other ranks. The
# time that ranks wait is the **bubble**. Three orders of the same work, on p = 4 ranks with m = 8 micro-batches, where a backward
# takes as long as two forwards:
#
# - **GPipe**: all forwards, then all backwards;
# - **1F1B**: rank r (counted from 0) does p − r forwards. Then it *waits* for its first gradient, even if it could do more forwards.
#   From then on it does one backward and one forward in turn;
# - **interleaved 1F1B**: each rank has two stages of half as many layers (rank 0 has stages 0 and 4 of 8).

# %% experiment
you = lesson.predict(
    {
        "the bubble of 1F1B, against GPipe": ...,
        "activations that rank 0 holds with 1F1B, against GPipe": ...,
        "the bubble when interleaved, against 1F1B": ...,
        "messages when interleaved, against 1F1B": ...,
    },
    choices=["smaller", "the same", "larger"],
)

# %% experiment
from helpers.simulator.world.pipeline import order, pipeline

gpipe = pipeline(order("GPipe", 4, 8))
plain = pipeline(order("1F1B", 4, 8))
inter = pipeline(order("Interleaved 1F1B", 4, 8, 2), {"F": 0.5})  # half as many layers: half a forward
runs = {"GPipe": gpipe, "1F1B": plain, "Interleaved 1F1B": inter}
answers = [
    experiments.against(plain.bubble, gpipe.bubble),
    experiments.against(plain.peak[0], gpipe.peak[0]),
    experiments.against(inter.bubble, plain.bubble),
    experiments.against(len(inter.messages), len(plain.messages)),
]
pictures = [schedule(run, title=name, unit="forwards of a rank") for name, run in runs.items()]
table = experiments.runs_table(runs)
you.against(dict(zip(you, answers, strict=True)), table, *pictures, evidence="arithmetic")

# %% [markdown]
# The first two pictures are equally long. **1F1B does not make the bubble smaller. It makes the memory smaller.** The
# bubble of both is (p − 1) ÷ (m + p − 1) of the time. (Narayanan and others divide by the time without it: (p − 1) ÷ m.)
# GPipe always holds the whole batch. 1F1B holds at most (p − r) ÷ m of it. So smaller micro-batches shrink its bubble and its memory,
# until their products no longer fill the GPU.
#
# In the third picture each rank has two rows, its earlier stage above. With v stages on each rank and m ≥ p, the
# bubble is (p − 1) ÷ (v m + p − 1). The price is more messages, and more activations than plain 1F1B.

# %% [markdown]
# **Exercise 16.1 — a 1F1B schedule** (★★, 10 min)
#
# Write the order of work for each rank, with one thing that torch does not have: a limit on the activations that a rank may
# hold. The test looks at the order, the bubble and the peak. Use no schedule of the course or of torch.
#
# <details><summary>Hint 1</summary>How many forwards does rank r do before its first backward, without and with a limit?</details>
#
# <details><summary>Hint 2</summary>When no forwards are left, the backwards that remain follow.</details>
#
# <details><summary>The idea</summary>ahead = min(p − r, m, most) forwards. Then, for each micro-batch i, its backward, followed by
# forward ahead + i if there is one.</details>


# %% exercise="one_f_one_b"
def one_f_one_b(stages: int, microbatches: int, most: int | None = None) -> list[list[str]]:
    """1F1B: a row for each rank, its actions in order. Rank r has stage r; "2F0" is stage 2's forward of
    micro-batch 0, "2B0" its backward.

    stages, microbatches: at least 1, else ValueError. most: no rank may hold the activations of more micro-batches
    than this (from a forward's begin to its backward's end); at least 1, else ValueError; None: no limit.

    Micro-batches come in order 0, 1, …, forward and backward. Without limit rank r of p holds min(p − r, m) at its
    peak. With a limit the order is the same, but for fewer forwards before the first backward where the limit says so.
    """
    ### BEGIN SOLUTION
    if min(stages, microbatches, 1 if most is None else most) < 1:
        raise ValueError("stages, microbatches and most are at least 1")
    table = []
    for rank in range(stages):
        ahead = min(stages - rank, microbatches, microbatches if most is None else most)
        row = [f"{rank}F{m}" for m in range(ahead)]
        for m in range(microbatches):
            row.append(f"{rank}B{m}")
            if ahead + m < microbatches:
                row.append(f"{rank}F{ahead + m}")
        table.append(row)
    return table
    ### END SOLUTION


# %% test="one_f_one_b" points=1
from helpers.lessons.model_parallel.exercises import check_one_f_one_b

check_one_f_one_b([4, 8], [2, 2], [4, 2], [1, 3], [3, 5, 2], refused=[[2, 0]])


# %% hidden="one_f_one_b" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.model_parallel.exercises import check_one_f_one_b

check_one_f_one_b(
    *([3, 7], [5, 9], [6, 17], [8, 3], [1, 1], [7, 1], [37, 71]),
    *([6, 17, 1], [5, 9, 3], [4, 12, 4], [4, 12, 9], [8, 3, 2], [2, 6, 1], [9, 80, 6]),
    refused=[[0, 4], [4, 0], [4, 4, 0]],
)
### END HIDDEN TESTS


# %% [markdown]
# What does such a limit cost? Your schedule, on 4 ranks with 8 micro-batches:

# %% experiment
experiments.limits_table(one_f_one_b)

# %% [markdown]
# With one micro-batch in the pipeline, three ranks of four wait. The p − r of 1F1B are the fewest that do not add to the bubble.

# %% [markdown]
# ## 3 · Lay it over the machine
#
# Often both ways are used at once, beside data parallelism: 64 GPUs are `tp · pp · dp = 64` (tensor, pipeline and data parallel). A
# [**device mesh**](https://docs.pytorch.org/docs/stable/distributed.html) numbers the ranks along three axes. The innermost axis gets
# neighbouring ranks, so with 8 GPUs a node an innermost axis of 8 never leaves its node. How many bytes pass through one rank of the
# first stage along each axis in one step? Count the tensor of each call once, sent or received:
#
# - **tp**: all-reduces of a micro-batch, two an MLP; a pipeline of pp stages has 1 ÷ pp of the MLPs on a rank;
# - **pp**: each micro-batch to the next stage, and its gradient back;
# - **dp**: all-reduces of the gradients, of which a rank has 1 ÷ (tp · pp); once a step.
#
# The model: 16 MLPs of width 64, with 256 hidden units and no biases, in float32; 4 micro-batches of 16 rows. The meshes:
# pp 2 · dp 4 · tp 8 (64 ranks) and pp 8 · dp 16 · tp 8 (1,024 ranks). One process plays rank 0 in a fake group, and counts.

# %% experiment
you = lesson.predict(
    {
        "64 ranks: most bytes": ...,
        "64 ranks: fewest bytes": ...,
        "bytes along tp, with 1,024 ranks against 64": ...,
    },
    choices={
        "64 ranks: most bytes": ["tp", "pp", "dp"],
        "64 ranks: fewest bytes": ["tp", "pp", "dp"],
        "bytes along tp, with 1,024 ranks against 64": ["smaller", "the same", "larger"],
    },
)


# %% experiment
small, large = (2, 4, 8), (8, 16, 8)  # pp, dp, tp
tried = {mesh: experiments.counted(*mesh) for mesh in (small, large)}
few, many = tried[small][0], tried[large][0]  # bytes by axis
answers = [max(few, key=few.get), min(few, key=few.get), experiments.against(many["tp"], few["tp"])]
measured, table = dict(zip(you, answers, strict=True)), experiments.mesh_table(tried)
you.against(measured, table, evidence="simulated (fake group)")

# %% [markdown]
# - **tp** sends in every layer of every micro-batch, and by default nothing in forward hides that. It gets the fastest link.
# - With 1,024 ranks each has fewer layers: tp and dp send less, and pp as much as before.
# - **pp** and **dp** have no fixed order. The bytes of pp grow with the micro-batches, those of dp with the parameters of a rank. dp can
#   hide behind backward (lesson 14). With a fixed batch, more dp leaves each pipeline fewer micro-batches (here the batch grows).

# %% [markdown]
# **Exercise 16.2 — lay out the GPUs** (★★, 15 min)
#
# Given a model and a network: which tp, pp and dp, in which order of axes, fits and has the shortest step? `step_seconds` and `held` say
# what a step takes and holds. Find the layouts, and the link of each axis.
#
# <details><summary>Hint 1</summary>Layouts are few: try them all.</details>
#
# <details><summary>Hint 2</summary>The stride of an axis is the product of the sizes of the axes inside it. The task takes its group
# to lie in one node if stride · size is at most the GPUs of a node. (That is exact where it divides them.)</details>
#
# <details><summary>The idea</summary>For each tp and pp that divide, dp = gpus ÷ (tp · pp); skip what is not allowed or does not fit.
# For each order from <code>itertools.permutations</code>, go from the innermost axis outwards and multiply the stride: that gives the
# links. Keep the least step_seconds.</details>


# %% exercise="layout"
def step_seconds(model: dict[str, int], network: dict, sizes: dict[str, int], links: dict) -> float:
    """Seconds of a step. sizes: axis → ranks along it; links: axis → its [α, bandwidth]; the rest as in layout.

    Nothing is hidden, and all-reduces are plain rings over an axis's link. P parameters; a micro-batch is one sequence, and has
    a bytes between two layers (bfloat16). A layer is attention and an MLP, so it makes 4 all-reduces along tp. A slot is
    what a stage does with one micro-batch, forward and backward.
    """
    tp, pp, dp = (sizes[axis] for axis in ("tp", "pp", "dp"))
    L, h, s, B = (model[key] for key in ("layers", "width", "tokens", "sequences"))
    P, a, microbatches = 12 * L * h * h, 2 * s * h, B // dp

    def ring(n, size, link):
        return 2 * (n - 1) * (link[0] + size / (n * link[1]))

    slot = 6 * s * P / (pp * tp) / network["flops"] + 4 * L / pp * ring(tp, a, links["tp"])
    if pp > 1:  # one message to the next stage, one back
        slot += 2 * (links["pp"][0] + a / links["pp"][1])
    return (microbatches + pp - 1) * slot + ring(dp, 2 * P / (tp * pp), links["dp"])


def held(model: dict[str, int], sizes: dict[str, int]) -> float:
    """Bytes of the GPU that holds most: 16 of a parameter, and the activations of the micro-batches alive.

    A layer keeps 34 · s · h bytes of a sequence (arxiv.org/abs/2205.05198): with no stored matrix of scores. All of it is
    divided by tp, which takes sequence parallelism (Further); without, 10 of the 34 stay whole on each rank.
    """
    tp, pp, dp = (sizes[axis] for axis in ("tp", "pp", "dp"))
    L, h, s, B = (model[key] for key in ("layers", "width", "tokens", "sequences"))
    return (16 * 12 * L * h * h + min(pp, B // dp) * 34 * s * h * L) / (tp * pp)


def layout(model: dict[str, int], network: dict, gpus: int = 64) -> dict:
    """The fastest layout that fits: {"tp": …, "pp": …, "dp": …, "order": […], "step_s": …}; step_s in seconds.

    order: the axes, outermost first, e.g. ["pp", "dp", "tp"]; tp · pp · dp = gpus (any number).
    model: {"layers": L, "width": h, "tokens": s (of a sequence), "sequences": B (in a step)}. network: {"per_node":
    GPUs, "memory": bytes of a GPU, "flops": of a GPU in a second, "inside": link, "between": link}, a link being
    [α, bandwidth], in seconds a message and bytes a second.
    Allowed: tp divides h, pp divides L, dp divides B, and what is held fits the memory. An axis uses `inside` if its
    stride (the product of the sizes of the axes after it in order) times its size is at most per_node, else `between`.
    ValueError if nothing is allowed. Any of several equally fast layouts is right.
    """
    ### BEGIN SOLUTION
    import itertools

    best, shortest = None, float("inf")
    for tp, pp in itertools.product(range(1, gpus + 1), repeat=2):
        if gpus % (tp * pp) or model["width"] % tp or model["layers"] % pp:
            continue
        sizes = {"tp": tp, "pp": pp, "dp": gpus // (tp * pp)}
        if model["sequences"] % sizes["dp"] or held(model, sizes) > network["memory"]:
            continue
        for axes in itertools.permutations(sizes):
            stride, links = 1, {}
            for axis in reversed(axes):
                stride *= sizes[axis]
                links[axis] = network["inside" if stride <= network["per_node"] else "between"]
            step = step_seconds(model, network, sizes, links)
            if step < shortest:
                best, shortest = {**sizes, "order": list(axes), "step_s": step}, step
    if best is None:
        raise ValueError("no layout fits")
    return best
    ### END SOLUTION


# %% test="layout" points=1
from helpers.lessons.model_parallel.exercises import INFINIBAND, NVLINK, check_layout, net

check_layout(
    net(24, 2048, 2048, 512, links=[NVLINK, INFINIBAND]),
    net(30, 3000, 2048, 12, links=[NVLINK, INFINIBAND]),
    net(96, 12288, 2048, 1024, links=[NVLINK, INFINIBAND], memory=192e9),
    refused=[net(96, 12288, 2048, 1024, links=[NVLINK, INFINIBAND], memory=20e9)],
)


# %% hidden="layout" points=2
### BEGIN HIDDEN TESTS
from helpers.lessons.model_parallel.exercises import ETHERNET, INFINIBAND, NVLINK, PCIE, check_layout, net

check_layout(
    net(32, 4096, 4096, 256, links=[NVLINK, ETHERNET]),
    net(48, 8192, 4096, 64, links=[NVLINK, INFINIBAND]),
    net(48, 8192, 4096, 512, links=[PCIE, ETHERNET], per_node=4),
    net(80, 8192, 8192, 128, links=[NVLINK, INFINIBAND], gpus=128),
    net(36, 1280, 1024, 64, links=[PCIE, INFINIBAND], memory=16e9),
    net(30, 6144, 2048, 48, links=[NVLINK, ETHERNET], gpus=48, per_node=6),
    net(64, 16384, 2048, 32, links=[NVLINK, NVLINK], per_node=64, memory=180e9),
    net(40, 5120, 2048, 8, links=[NVLINK, INFINIBAND], per_node=2),
    net(8, 1024, 512, 2048, links=[NVLINK, ETHERNET]),
    net(8, 16384, 512, 4, links=[NVLINK, ETHERNET], gpus=128, memory=16e9),
    net(96, 6144, 2048, 64, links=[PCIE, ETHERNET], memory=40e9),
    net(32, 8192, 8192, 2, links=[PCIE, ETHERNET], per_node=64, memory=40e9),
    net(13, 5120, 512, 2048, links=[PCIE, PCIE], per_node=64, gpus=128),
    net(36, 4096, 2048, 4, links=[NVLINK, ETHERNET], per_node=12, gpus=48),
    net(12, 1024, 512, 6, links=[NVLINK, ETHERNET], gpus=1),
    net(14, 1792, 1024, 14, links=[NVLINK, ETHERNET], gpus=7, per_node=1),
    net(
        8, 1024, 512, 8, links=[NVLINK, ETHERNET], gpus=8, memory=219_152_384
    ),  # tp 8 fills it to the last byte
    refused=[
        net(61, 4096, 2048, 61, links=[NVLINK, INFINIBAND], memory=1e9),
        net(8, 1024, 512, 8, links=[NVLINK, ETHERNET], gpus=8, memory=219_152_383),
    ],
)
### END HIDDEN TESTS


# %% [markdown]
# Your layout for three models on 64 GPUs of 80 GB in nodes of 8. The last column splits **only the data**, the best way of lessons 14
# and 15.

# %% experiment
experiments.layouts_table(layout)

# %% [markdown]
# **On InfiniBand, with sending hidden as far as it can be (in brackets), 1.2 B and 13 B need no split of the model**, as long as each
# GPU has a sequence. 39 B fits when sharded over all 64, but its gathers take longer than its products. (Checkpointing makes room for
# more sequences at once, so for fewer gathers.) Split the model if it does not fit when sharded, if too much sending stays exposed, or
# if sequences are too few. Tensor parallelism comes in where they are few: dp needs one for each copy, pp many for a small bubble.

# %% [markdown]
# ## The running example
#
# The script's last change splits the MLP of each block: each of eight GPUs has an eighth of the columns of `wide` and of the rows of
# `narrow`. All eight get the *same* batch. AdamW and the clipping meet two kinds of parameters, split ones (`DTensor`) and whole
# ones. A fused or foreach operator takes one kind only, so each kind gets its own group.

# %% experiment
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from helpers import running_example


def split_layers(model, gpu):
    mesh = init_device_mesh(gpu.device.type, (dist.get_world_size(),))
    for block in model.blocks:
        parallelize_module(block, mesh, {"wide": ColwiseParallel(), "narrow": RowwiseParallel()})
    return model


# %% experiment
def split_and_whole(model):
    split = [p for p in model.parameters() if isinstance(p, DTensor)]
    return [split, [p for p in model.parameters() if not isinstance(p, DTensor)]]


def adamw_of_both(model):
    groups = [{"params": params} for params in split_and_whole(model)]
    return torch.optim.AdamW(groups, lr=1e-3, fused=True)


def clip_both(model, most=1.0):
    split, whole = split_and_whole(model)
    lengths = [nn.utils.get_total_norm([p.grad for p in params]) for params in (split, whole)]
    # full_tensor: over all ranks' parts; the norm of both norms is the length of all gradients, which scales both kinds
    length = torch.stack([lengths[0].full_tensor(), lengths[1]]).norm()
    for params in (split, whole):
        nn.utils.clip_grads_with_norm_(params, most, length)


# %% experiment
before = running_example.after("10")  # without its graph: the simulated GPU captures no collectives
split = before.replace(prepare=split_layers, optimizer=adamw_of_both, clip=clip_both)
board = running_example.compare(before, split, ranks=(1, 8), tolerance=1e-3)
old, new = board.before, board.after
lesson.keep(script_busy=1e6 * old.busy_s, script_busy_now=1e6 * new.busy_s)
lesson.keep(script_slower=new.step_s / old.step_s - 1)
lesson.keep(script_mib=old.peak_bytes / 2**20, script_mib_now=new.peak_bytes / 2**20)
board

# %% [markdown]
# Splitting the layers does not pay here. Each GPU's kernels, without the collectives, take {{script_busy_now:.0f}} µs in place of
# {{script_busy:.0f}}, but the step takes {{script_slower:.0%}} longer: the CPU has more to launch, and the GPU waits for it, not for
# the sums. The peak falls from {{script_mib:.0f}} to {{script_mib_now:.0f}} MiB.
#
# Here are all the script's steps on one GPU (lessons 11 to 13 left the training as it was). In lesson 00 you wrote down the line that
# you would have changed first: where is it?

# %% experiment
slowest, fastest = (running_example.score(running_example.after(name)).step_s for name in ("00", "10+07"))
lesson.keep(script_plain=1e3 * slowest, script_best=1e3 * fastest, script_faster=slowest / fastest)
running_example.ladder()

# %% [markdown]
# From {{script_plain:.1f}} ms to {{script_best:.2f}}: {{script_faster:.1f}} times as fast on the simulated H100. Four changes made nearly
# all of the difference: the fused operators, the waits, the fused AdamW and bf16. The others saved memory (08, 09), or little
# time or none: the step was waiting for something else. Lesson 07's graph helped only after bf16 had made the kernels short.

# %% [markdown]
# ## Your own script
#
# Must the model be split at all? Weights, gradients and Adam's two moments take four times the bytes of the weights (in float32). If
# these and the activations fit one GPU, use
# [DDP](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html). If they fit when sharded, and the
# gathers hide behind computing, use [`fully_shard`](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html). Only then
# look at the parameters of each layer: a pipeline wants equal stages, and one huge layer wants tensor parallelism. After a split, count
# the collectives of one step, in each rank: one too many in each layer is easily overlooked. (`CommDebugMode` does not count a pipeline's
# sends and receives.)

# %% experiment
import warnings

from torch.distributed.tensor.debug import CommDebugMode

from helpers.own_script import toy

model, optimizer, loss_fn, loader, device, step = toy()  # at home: your own
warnings.filterwarnings("ignore", "Full backward hook")  # CommDebugMode's own hooks

states = 4 * sum(p.numel() * p.element_size() for p in model.parameters())
print(f"weights, gradients and two moments: {states / 1e6:.3f} MB, before any activation")
for name, layer in model.named_children():
    print(f"  {name}: {sum(p.numel() for p in layer.parameters()):,} parameters")
with CommDebugMode() as sent:
    step(next(iter(loader)))
print("collectives in one step:", {str(kind): n for kind, n in sent.get_comm_counts().items()})

# %% [markdown]
# The toy fits everywhere: split nothing. Most of its parameters are in the first layer, so two stages would not be equal.

# %% [markdown]
# ## Sources on trial

# %% experiment
from helpers.lessons.model_parallel import claims

tried = claims.on_trial(*list(steps.values())[:2])
two = ("16-one-machine", "16-mixed")
lesson.verdicts(tried, evidence="live (CPU) · simulated (H100) · arithmetic", shown=two)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | First product by columns, second by rows: one all-reduce each way. | Something between them that mixes columns, such as a norm over the hidden units. |
# | Tensor parallel inside the node. | Wide layers on a fast network: some is left to gain. |
# | 1F1B saves memory, not time. | With m ≤ p the first rank, which holds most, saves nothing. Where messages take long, 1F1B is slower than GPipe. |
# | The model fits when sharded, and its sending hides? Then split the data only. | A step with too few sequences for so many GPUs. |
#
# **Read on**: [Megatron-LM](https://arxiv.org/abs/1909.08053), for columns then rows;
# [GPipe](https://arxiv.org/abs/1811.06965); [Narayanan and others, 2021](https://arxiv.org/abs/2104.04473), for 1F1B, interleaving and
# layouts; torch's [pipelines](https://docs.pytorch.org/docs/stable/distributed.pipelining.html).

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# | section | minutes |
# |---|---|
# | A tensor-parallel MLP, by hand, with exercise 16.3 | 32 |
# | Sequence parallelism | 3 |
# | Long texts and many experts, as arithmetic | 3 |
# | Which link can bear it? | 8 |
# | Why is a layout fast? | 2 |
# | When messages take time, and torch's own schedules | 7 |
# | Balance the stages, with exercise 16.4 | 23 |

# %% [markdown]
# ### A tensor-parallel MLP, by hand
#
# **Exercise 16.3 — a tensor-parallel MLP** (★★★, 20 min)
#
# Write this split by hand, without `torch.distributed.tensor`. The test runs it in real processes. It looks at what was sent, at the
# bytes that each rank still holds, and at two steps of SGD.
#
# <details><summary>Hint 1</summary>Both small functions are an
# <a href="https://docs.pytorch.org/docs/stable/notes/extending.html"><code>autograd.Function</code></a>: one does nothing in forward
# and an all-reduce in backward, the other the reverse. Where in the MLP does each belong?</details>
#
# <details><summary>Hint 2</summary>What does <code>weight.chunk(n)[rank]</code> keep alive? And how often is the second bias in the
# sum?</details>
#
# <details><summary>The idea</summary>first: take this rank's rows of <code>weight</code> and of <code>bias</code> (the weight of
# nn.Linear is transposed, so its output columns are rows), and clone them: a view keeps the whole matrix. second: take columns of
# <code>weight</code>, without bias; all-reduce; then add the whole bias, once.</details>


# %% exercise="parallel_mlp"
def summed_forward(y: torch.Tensor) -> torch.Tensor:
    """The sum of all ranks' y; the gradient goes through as it is. y itself keeps its numbers."""
    ### BEGIN SOLUTION

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            y = y.contiguous().clone()
            dist.all_reduce(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            return grad

    return Sum.apply(y)
    ### END SOLUTION


def summed_backward(x: torch.Tensor) -> torch.Tensor:
    """x as it is; its gradient is the sum of all ranks' gradients."""
    ### BEGIN SOLUTION

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            grad = grad.contiguous().clone()
            dist.all_reduce(grad)
            return grad

    return Sum.apply(x)
    ### END SOLUTION


class ParallelMLP(nn.Module):
    """second(gelu(first(x))), split over all n ≥ 2 ranks of torch.distributed's default group.

    first: nn.Linear (width → hidden); second: nn.Linear (hidden → width); both with or without bias; the same on
    all ranks. They are only read: training changes neither. ValueError if hidden is not a multiple of n.
    x: (…, width), float32, wants a gradient, the same on all ranks; y too, and x's gradient. y is a new tensor in each
    call. gelu is F.gelu's.

    Communication: forward exactly one all-reduce (sum) of y's bytes, backward exactly one of x's; none in __init__. By
    `dist.all_reduce`: nothing of torch.distributed.tensor, and no functional collectives.
    What it trains are its `parameters()`: on rank r, part r of n equal parts of the hidden units, and the second bias;
    where second has no bias, the test trains each rank with another learning rate. Held by each rank once first and
    second are gone: these, and at most 256 bytes of other tensors.
    """

    def __init__(self, first: nn.Linear, second: nn.Linear) -> None:
        super().__init__()
        ### BEGIN SOLUTION
        n, rank = dist.get_world_size(), dist.get_rank()
        if first.out_features % n:
            raise ValueError(f"{first.out_features} hidden units do not split over {n} ranks")

        def part(full, dim):
            return nn.Parameter(full.detach().chunk(n, dim)[rank].clone())

        self.first = part(first.weight, 0)
        self.first_bias = None if first.bias is None else part(first.bias, 0)
        self.second = part(second.weight, 1)
        self.second_bias = None if second.bias is None else nn.Parameter(second.bias.detach().clone())
        ### END SOLUTION

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ### BEGIN SOLUTION
        hidden = F.gelu(F.linear(summed_backward(x), self.first, self.first_bias))
        y = summed_forward(F.linear(hidden, self.second))
        return y if self.second_bias is None else y + self.second_bias
        ### END SOLUTION


# %% test="parallel_mlp" points=2
from helpers.lessons.model_parallel.exercises import check_ParallelMLP, whole

check_ParallelMLP(
    2,
    whole([3, 16], 64, biases=[True, True], seed=1),
    whole([2, 128], 256, biases=[True, False], seed=2),
    whole([2, 8], 7, biases=[False, True], seed=3),
)


# %% hidden="parallel_mlp" points=4
### BEGIN HIDDEN TESTS
from helpers.lessons.model_parallel.exercises import check_ParallelMLP, whole

check_ParallelMLP(
    3,
    whole([2, 5, 7], 21, biases=[True, False], seed=11),
    whole([9, 32], 48, biases=[False, True], seed=12),
    whole([4, 128], 192, biases=[False, False], seed=13),
    whole([4, 4], 7, biases=[True, True], seed=14),  # does not split: ValueError
    whole([6], 9, biases=[True, False], seed=15),  # one row, without a leading dimension
    whole([2, 1], 3, biases=[False, True], seed=16),  # one unit on each rank
)
### END HIDDEN TESTS


# %% [markdown]
# Your MLP beside torch's. What `parallelize_module` gives beyond yours: weights that know that they are parts (`DTensor`, which
# checkpoints and optimizers understand), and plans for the `nn.Linear` and `nn.Embedding` of any module.

# %% experiment
experiments.try_mlp(ParallelMLP, columns_rows)

# %% [markdown]
# ### Sequence parallelism
#
# Two more plans. `PrepareModuleInput` makes x one thing that q, k and v share. **Sequence parallelism** lets x come in, and y go out,
# with half of the *tokens* on each rank; the products in between need all tokens. The first three lines of the table are those of
# section 1.

# %% experiment
once = parallel.PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),))
of_tokens = {  # Shard(1): a rank has its part of dimension 1, the tokens
    "0": parallel.SequenceParallel(),
    "1": ColwiseParallel(input_layouts=Shard(1)),
    "3": RowwiseParallel(output_layouts=Shard(1)),
}
more = {
    "attention, x handed over once": ("attention", {"": once, **heads}, None),
    "MLP, columns then rows, sequence parallel": ("mlp", of_tokens, 1),
}
experiments.sent_table(steps | ranks.run_ranks(experiments.split_and_run, 2, more)[0])

# %% [markdown]
# Handed over once, x has one sum of its gradient, not three. Sequence parallelism cuts an all-reduce into the two halves of a ring,
# a reduce-scatter and an all-gather. The bytes on the wire stay the same. In between, each rank has only some of the tokens, so what
# works on single tokens, here LayerNorm, keeps only its part for backward (compare the bytes kept,
# [Korthikanti and others, 2022](https://arxiv.org/abs/2205.05198)). The price: the weights of LayerNorm see only the tokens of one
# rank, so their gradients must be summed over the ranks. The table does not count that: `DTensor` leaves it to the optimizer's step.
# There SGD sums each gradient once, and so does a fused AdamW. AdamW without `fused=True` sums each gradient three times a step.

# %% [markdown]
# ### Long texts and many experts, as arithmetic
#
# Two more ways to split. **Context parallelism** cuts the tokens: each rank has a part of the text, and its queries have to see the keys
# and values of all others. These go round in a ring, `2 × tokens of a rank × width × bytes` in each of `ranks − 1` rounds (fewer bytes
# where query heads share keys and values), while the attention of the last part is computed. **Expert parallelism** spreads the MLPs of a
# *mixture of experts*: each token goes to `k` experts, wherever they are, and comes back. That is two all-to-alls, `k × tokens of a rank
# × width × bytes` each, of which the share `(ranks − 1) / ranks` leaves the rank.

# %% experiment
WIDTH, BYTES, PEAK = 8192, 2, 989.4e12  # bfloat16, and an H100's products in it
LINK = ranks.LINKS["NVLink 4"].bytes_per_s
for tokens, grouped in (
    (2048, 1),
    (16384, 1),
    (16384, 8),
    (131072, 1),
):  # so many query heads share keys and values
    mine = tokens // 8  # of each of 8 ranks
    ring_s = 2 * mine * WIDTH / grouped * BYTES / LINK
    attend_s = 4 * mine * mine * WIDTH / PEAK  # scores, and their product with the values
    print(f"context, {tokens:7,} tokens, {grouped} query head(s) to a key: ", end="")
    print(f"a round sends for {1e6 * ring_s:6.1f} µs, computes for {1e6 * attend_s:7.1f} µs")
for experts in (1, 2, 8):
    send_s = 2 * experts * 2048 * WIDTH * BYTES * 7 / 8 / LINK
    mlp_s = experts * 2048 * 4 * WIDTH * WIDTH * 4 / PEAK  # two products, four times as wide
    print(
        f"experts, k = {experts}: two all-to-alls take {1e6 * send_s:6.1f} µs, the experts compute for {1e6 * mlp_s:7.1f} µs"
    )

# %% [markdown]
# What a round computes grows with the square of a rank's tokens, what it sends only with their number. So the ring hides for long texts.
# With an eighth of the keys and values (grouped-query heads) it hides for shorter ones, too. With experts both sides grow with `k`: their
# ratio is fixed by the width and the link. Wide experts on NVLink bear it; between nodes the link is slower, and so is the step. (All
# this at the published peaks: a real product reaches a part of them.)
#
# ### Which link can bear it?
#
# Four MLPs of width 8,192 in bfloat16, 2,048 tokens, forward and backward, on simulated H100s in nodes of 8. For one GPU NVLink 4
# carries {{nvlink:.0f}} GB/s, InfiniBand NDR {{ndr:.0f}}, Ethernet 100G {{ethernet:.1f}} (`ranks.LINKS` has the sources). Between nodes
# an all-reduce goes in two levels: inside each node by NVLink, and from each GPU only an eighth to its counterpart in the other node.
# **How many times as fast as one GPU are …**

# %% experiment
you = lesson.predict(
    {
        "8 GPUs, one node": ...,
        "16 GPUs, two nodes, InfiniBand NDR": ...,
        "16 GPUs, two nodes, Ethernet 100G": ...,
    },
    choices=[2, 4, 6, 8, 12, 16],
)

# %% experiment
ratios = [
    experiments.gain(experiments.ON_NDR, 8),
    experiments.gain(experiments.ON_NDR, 16),
    experiments.gain(experiments.ON_100G, 16),
]
measured = dict(zip(you, ratios, strict=True))
table, what = experiments.gains_table(), "times as fast"
you.against_ratios(measured, table, evidence="simulated (H100)", what=what, shown="{:.1f}")

# %% experiment
took, _, gpu = experiments.split_step(experiments.HIDDEN_NDR, 16)
plots.overlapped(gpu, since_s=gpu.clock() - took, title="One step on 16 GPUs in two nodes, InfiniBand NDR")

# %% [markdown]
# The bytes of an all-reduce depend on x and hardly on the number of ranks, while the products get n times smaller. At some n there is
# more sending than computing. With few tokens two more things go wrong: the collectives come down to their latency, which grows with
# n, and the products become too small to fill the GPU (last column).
#
# The picture shows the way that hides what can be hidden. In backward the gradients of the weights stay on their rank, so they are
# computed while the gradient of x is summed. This forward has nothing to hide behind, so every all-reduce is exposed. (A second
# micro-batch would give it something. So would products cut into pieces, each sent while the next is computed: *asynchronous* tensor
# parallelism.)
#
# So *only inside one machine* is no law. It is a ratio of computing to sending. A token takes 48 h² ÷ n FLOPs in an MLP of width h,
# forward and backward, and two all-reduces of 2 h bytes. For each, a ring sends 2 (n − 1) ÷ n times its bytes. **So h ÷ (n − 1), the width
# by the number of the other GPUs, decides what a link can bear** (but for latency). The arithmetic alone, at {{tflops:.0f}} TFLOP/s
# a GPU:

# %% experiment
links = {name: ranks.LINKS[name].bytes_per_s / 1e9 for name in ("NVLink 4", *experiments.NETWORKS)}
lesson.keep(
    nvlink=links["NVLink 4"], ndr=links[experiments.NETWORKS[0]], ethernet=links[experiments.NETWORKS[1]]
)
lesson.keep(tflops=experiments.flops() / 1e12)


def sending_share(width, n, link, tokens=2048):
    computing = 48 * tokens * width**2 / n / experiments.flops()
    sending = 2 * ranks.seconds("all_reduce", 2 * tokens * width, n, link)
    return sending / (computing + sending)


experiments.shares_table(sending_share)

# %% [markdown]
# ### Why is a layout fast?
#
# Five layouts of the smallest model of section 3, priced by `step_seconds`:

# %% experiment
experiments.prices_table(step_seconds)

# %% [markdown]
# - Inside the node belongs the axis that sends most in a step, if it fits there. (39 B's pp of 16 did not.) That is tp, where tp is
#   used. Else it depends: with 1,024 sequences a pipeline of 8 hands on 128 micro-batches, and pp goes inside; with 64 sequences dp does.
# - Why is a pipeline faster here at all, for a model that fits one GPU? With dp alone every GPU sends all gradients; a stage has only
#   some of them. Look at the brackets: if the sending of dp hides behind backward, as with DDP, dp alone is the fastest of the five.
#   (With 64 sequences there is too little backward to hide it all.)

# %% [markdown]
# ### When messages take time, and torch's own schedules
#
# In section 2 messages took no time. In the explorer each takes a quarter of a forward. With 4 ranks and messages that cost nothing, how
# many micro-batches bring the bubble of 1F1B under 10 %? Does interleaving still pay when a message takes half a forward? Move the
# sliders, then look at the table.

# %% experiment

pipeline_explorer("1F1B", ranks=4, microbatches=8, send=0.25)

# %% experiment
lesson.keep(enough=next(m for m in range(4, 100) if pipeline(order("1F1B", 4, m)).bubble < 0.1 - 1e-9))
experiments.messages_table()

# %% [markdown]
# {{enough}} micro-batches bring the bubble under 10 %. Interleaving still pays against 1F1B. But 1F1B now costs *time* against GPipe:
# most of its turns wait for one message there and one back.
#
# Torch's own schedules on 2 real ranks with 4 micro-batches, beside the course's tables and yours:

# %% experiment
experiments.schedules_table(ranks.run_ranks(experiments.torch_schedules, 2, 4), one_f_one_b)

# %% [markdown]
# ### Balance the stages
#
# A pipeline is as fast as its **slowest stage**. Layers are not equal: an embedding is cheap, the last projection to the vocabulary
# is expensive. With 1F1B the first stages hold the most activations, so the cut that balances the time may not fit.
#
# **Exercise 16.4 — balance the stages** (★★, 15 min)
#
# Cut the layers so that the slowest stage is as fast as it can be, and every stage fits. The test adds up what each of your stages
# takes and holds.
#
# <details><summary>Hint 1</summary>With one stage there is no choice. With p stages, the last one takes the layers from some i on, and
# the others share what is before.</details>
#
# <details><summary>Hint 2</summary>best[k][i]: the least possible slowest stage when k stages share the first i layers. A stage that
# does not fit costs infinity.</details>
#
# <details><summary>The idea</summary>best[k][j] = min over i &lt; j of max(best[k − 1][i], time of layers i … j − 1 as stage k − 1),
# and remember the i. What fits depends on the number of the stage: of p stages, stage k − 1 holds min(p − (k − 1), m)
# micro-batches.</details>


# %% exercise="balance"
def balance(
    seconds: list[float],
    weights: list[int],
    activations: list[int],
    stages: int,
    microbatches: int,
    memory: int,
) -> list[int]:
    """How many layers each stage of a 1F1B pipeline gets, first to last, so that its slowest stage is fastest.

    For each layer: seconds (forward and backward of one micro-batch), weights (bytes, with all their states),
    activations (bytes that one micro-batch leaves). Stage r holds its weights and min(stages − r, microbatches)
    times its activations, which must fit memory (bytes). Each stage gets at least one layer, in order.
    ValueError if nothing fits. Every cut that is as good is right. A call reads at most 10 million numbers from the three
    lists: on 12 stages 60 layers have 280 billion cuts, too many to try.
    """
    ### BEGIN SOLUTION
    layers, never = len(seconds), float("inf")
    best = [0.0] + [never] * layers
    cuts = []
    for stage in range(stages):
        alive = min(stages - stage, microbatches)
        now, cut = [never] * (layers + 1), [0] * (layers + 1)
        for j in range(1, layers + 1):
            took = held = 0.0
            for i in range(j - 1, -1, -1):
                took += seconds[i]
                held += weights[i] + alive * activations[i]
                if held > memory:
                    break
                if (slowest := max(best[i], took)) < now[j]:
                    now[j], cut[j] = slowest, i
        best = now
        cuts.append(cut)
    if best[layers] == never:
        raise ValueError(f"no cut into {stages} stages fits {memory} bytes")
    counts, end = [], layers
    for cut in reversed(cuts):
        counts.append(end - cut[end])
        end = cut[end]
    return counts[::-1]
    ### END SOLUTION


# %% test="balance" points=1
from helpers import check
from helpers.lessons.model_parallel.exercises import check_balance

check_balance(
    check.case([1.0, 1.0, 1.0, 3.0], [1] * 4, [1] * 4, 2, 4, 1000),
    check.case([2.0] * 8 + [6.0], [10] * 9, [10] * 9, 3, 8, 150),
    check.case([3.0, 1.0, 4.0, 1.0, 2.0, 4.0], [10] * 6, [20, 20, 30, 10, 20, 10], 3, 4, 120),
    check.case([2.0, 2.0, 1.0, 3.0, 2.0, 2.0, 3.0], [10] * 7, [20, 30, 10, 10, 30, 30, 10], 3, 2, 120),
    check.case([1.0] * 4, [10] * 4, [10] * 4, 2, 8, 25, raises=ValueError),
)


# %% hidden="balance" points=2
### BEGIN HIDDEN TESTS
from helpers import check
from helpers.lessons.model_parallel.exercises import check_balance, layers

check_balance(
    *(layers(s, 6 + 2 * s, 2 + s % 6, 1 + 3 * s, (1.0, 1.1, 1.4, 9.0)[s % 4]) for s in range(9)),
    layers(127, 17, 6, 8, 9.0),
    check.case(*layers(100, 20, 3, 5, 1.0).args[:5], 293),  # the best cut fills the memory to the last byte
    check.case([1.0] * 4, [0] * 4, [1, 1, 10, 1], 3, 4, 12),  # the third layer fits the last stage only
    check.case([1.0, 2.0], [1, 1], [1, 1], 3, 4, 1000, raises=ValueError),
    check.case([0.0, 0.0, 5.0, 0.0, 0.0], [0] * 5, [0] * 5, 4, 2, 0),  # layers that take no time and no bytes
    check.case([0.3], [7], [2], 1, 6, 9),
    check.case([1e-7, 3e-7, 2e-7, 2e-7, 1e-7], [1] * 5, [0] * 5, 3, 1, 9),
    layers(20, 60, 12, 32, 1.4),  # nobody tries all of its cuts
)
### END HIDDEN TESTS
