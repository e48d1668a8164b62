# %% [markdown]
# # 14 · Data parallel
#
# ## What does the second GPU cost?
#
# Give each GPU a copy of the model and its own part of the batch, and bring the gradients together before each step. That
# is data parallelism, and bringing together is its price: each step, over a link that is much slower than memory. This
# lesson counts what is sent, says what it takes at 2 and at 1,024 GPUs, and hides it behind the computing. You need no
# second GPU: processes on this machine send the real messages, and the simulated H100 has as many neighbours as you like.
#
# **Time** 140–160 min, two thirds of it the four exercises: two sittings, of which parts 1 and 2 make the first.
# **Before this** lessons 02 (autograd and its hooks) and 05 (overlap).
#
# **Afterwards you can**
# - say what an all-reduce puts on a link and how long it takes, for any size, number of GPUs and link;
# - write a DistributedDataParallel: broadcast, hooks, buckets, overlap, average;
# - read off a timeline what communication the step waits for, and choose the bucket size, the compression or the
#   accumulation that removes it.
#
# **On trial** (who says so stands in the table at the end): *DataParallel is for up to 8 cards, DistributedDataParallel
# for a thousand, and needs a launch script* · *buckets reduce the number of messages, and the first of them are sent while
# backward still runs* · *communication that follows the topology is cheaper* · *compression reduces what is sent* · *Accelerate
# does as DDP does* · *slow parts weigh more the more nodes there are*.

# %% setup
import os

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # DDP's remarks on devices it does not know

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from helpers import lesson, ranks

torch.set_num_threads(1)  # small tensors: more threads would mostly wait for one another
lesson.start("14_data_parallel", evidence=["live (CPU)", "simulated (H100)", "arithmetic"])

# %% [markdown]
# ## 1 · What is sent
#
# `ranks.run_ranks(f, 2)` runs a function of this notebook in two processes that know of each other; each is a *rank*.
# `ranks.sent()` writes down what a rank sends. Ranks speak in *collectives*, calls that all of them make:
#
# - **all-reduce**: each gives a tensor, each gets the sum of all; **reduce**: only one gets the sum;
# - **broadcast**: all get what one of them has; **all-gather**: all get everybody's tensors, side by side.
#
# (A library carries them out: *gloo* between CPUs, here; NVIDIA's *NCCL* between GPUs.) Below, two ranks train one small
# model with torch's own `DistributedDataParallel` (DDP), each on half of the batch. The model has 4 linear layers of
# 64 × 64 with a bias each. What does one training step send, **as numbers per rank**?

# %% experiment
prediction = {
    "gradients sent": ...,  # how many numbers of float32?
    "calls": ...,  # how many all-reduces, with DDP's default settings?
    "weights sent": ...,  # in the third step: how many numbers?
    "same gradients as one process with the whole batch": ...,  # "yes" or "no"
}


# %% experiment
def layers(n=4, width=64):
    torch.manual_seed(0)
    return nn.Sequential(*(m for _ in range(n) for m in (nn.Linear(width, width), nn.Tanh())))


def train(batch):
    """torch's DDP on this rank's part of the batch: the gradients of the third step, and what each step sent."""
    model = layers()
    with ranks.sent() as record:
        ddp = nn.parallel.DistributedDataParallel(model)
    records = {"DDP(model)": record}
    mine = batch.chunk(dist.get_world_size())[dist.get_rank()]
    for step in (1, 2, 3):
        model.zero_grad()
        with ranks.sent(model) as record:
            ddp(mine).square().mean().backward()
        records[f"step {step}"] = record
    return [p.grad for p in model.parameters()], records


torch.manual_seed(1)
batch = torch.randn(32, 64)
alone = layers()
alone(batch).square().mean().backward()
grads, records = ranks.run_ranks(train, 2, batch)[0]
third = records["step 3"]
assert [c.kind for c in third.calls] == ["all_reduce"]  # one call, and nothing else
same = all(
    torch.allclose(p.grad, g, rtol=1e-4, atol=1e-7) for p, g in zip(alone.parameters(), grads, strict=True)
)
measured = {
    "gradients sent": third.bytes("all_reduce") // 4,
    "calls": third.count("all_reduce"),
    "weights sent": third.bytes("broadcast") // 4,
    "same gradients as one process with the whole batch": "yes" if same else "no",
}
lesson.compare_predictions(prediction, measured, evidence="live (CPU)", choices=("yes", "no")).show()
third

# %% [markdown]
# One call carries every gradient. It is made inside backward, when the last parameter has its gradient. Of this model
# nothing else travels: no weight, no activation, no sample. The copies stay equal because they start equal and add the
# same numbers. A division on each rank makes a mean of the sum: **the mean of two means over 16 samples is the mean over
# 32**. (Of unequal parts it is not.) What came before the third step:

# %% experiment
lesson.table(
    [(when, " · ".join(f"{c.kind} {c.bytes:,}" for c in record.calls)) for when, record in records.items()],
    ["", "collectives, with their bytes"],
    evidence="live (CPU)",
)

# %% [markdown]
# To begin with, the ranks compare the shapes of their parameters, and rank 0's weights go to all. In the second step rank 0
# also says in which order *its* gradients came: from then on DDP groups gradients by that order, on all ranks. Remember
# it for exercise 14.4.
#
# Two details that matter elsewhere. **When does DDP divide, before or after it adds up?** A gradient of 40,000 on both
# ranks, in float16, where 65,504 is the largest number, tells. **And what does a model with BatchNorm send**, whose running
# averages are no parameters?

# %% experiment
prediction = {
    "DDP divides": ...,  # "before" or "after"
    "BatchNorm, third step: broadcasts": ...,  # how many?
    "the same, forward_sync_buffers=False": ...,
}


# %% experiment
def details(batch):
    """The mean that DDP makes of two gradients of 40,000 in float16; what the third step sends with BatchNorm."""
    DDP, x = nn.parallel.DistributedDataParallel, torch.full((1, 1), 40_000.0, dtype=torch.float16)
    layer = nn.Linear(1, 1, bias=False, dtype=torch.float16)
    DDP(layer)(x).backward()
    told = {}
    for synced in (True, False):
        ddp = DDP(nn.Sequential(layers(1), nn.BatchNorm1d(64)), forward_sync_buffers=synced)
        for _ in range(3):
            with ranks.sent() as record:
                ddp(batch).square().mean().backward()
        told[synced] = record
    return layer.weight.grad.item(), told


mean, normed = ranks.run_ranks(details, 2, batch)[0]
assert normed[True].count("broadcast") == 2
half = torch.tensor(40_000.0).half()
assert (half + half).isinf()  # what dividing afterwards would divide
measured = {
    "DDP divides": "before" if mean == 40_000 else "after",
    "BatchNorm, third step: broadcasts": normed[True].count("broadcast"),
    "the same, forward_sync_buffers=False": normed[False].count("broadcast"),
}
lesson.compare_predictions(
    prediction, measured, evidence="live (CPU)", choices=("before", "after", *range(10))
).show()
print(f"the mean of 40,000 and 40,000 in float16, by DDP: {mean:,.0f}")

# %% [markdown]
# DDP divides each gradient by the number of ranks as it copies it into the bucket, and adds up what is left
# ([reducer.cpp](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/distributed/c10d/reducer.cpp),
# `mark_variable_ready_dense`; torch's own comm hooks
# [do so too](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py#L24-L27)). A sum of a thousand
# float16 gradients so stays in range; very small gradients may become zero instead.
#
# **BatchNorm's running averages are buffers.** At the beginning of each forward pass DDP broadcasts rank 0's to all
# ([`forward_sync_buffers`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/parallel/distributed.py#L793-L800),
# which torch 2.13 puts in the place of `broadcast_buffers`): one message for the float32 numbers, one for the
# whole-number count of batches. The mean and variance that a training step normalises by are still those of a rank's own
# part of the batch. `nn.SyncBatchNorm.convert_sync_batchnorm(model)` takes those of the whole batch. It needs GPUs, and
# its price is a collective more in the forward and in the backward pass of each such layer
# ([source](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/modules/_functions.py#L59-L205)).
#
# Before DDP there was `nn.DataParallel`: one process, one Python thread a GPU. What it does in *each* forward stands in
# its source:

# %% experiment
import inspect

doing = ("scatter", "replicate", "parallel_apply", "gather")
forward = inspect.getsource(nn.DataParallel.forward).splitlines()
print("\n".join(line.strip() for line in forward if any(f"self.{name}(" in line for name in doing)))
threads = "threading.Thread(" in inspect.getsource(nn.parallel.parallel_apply)
print("parallel_apply starts", "threads" if threads else "no threads")

GPT2 = 124_439_808  # parameters; float32
PCIE = "PCIe 4.0 x16"
copying = {
    (n, way): sum(ranks.seconds(kind, 4 * GPT2, n, PCIE, way) for kind in ("broadcast", "reduce"))
    for n in (2, 4, 8)
    for way in ("star", "ring")
}
summing = {n: ranks.seconds("all_reduce", 4 * GPT2, n, PCIE) for n in (2, 4, 8)}
lesson.keep(ring_of_2=copying[2, "ring"] / summing[2], ring_of_8=copying[8, "ring"] / summing[8])
lesson.table(
    [
        (n, *(f"{t * 1e3:.0f} ms" for t in (copying[n, "star"], copying[n, "ring"], summing[n])))
        for n in summing
    ],
    ["GPUs", "DataParallel, copy by copy", "DataParallel, in a ring", "DDP's all-reduce"],
    evidence="arithmetic",
    caption="GPT-2's weights to all GPUs and its gradients back to the first, over PCIe 4.0; inputs and outputs not counted",
)

# %% [markdown]
# `replicate` sends the whole model to every other GPU, each step anew, and backward sends all gradients to the first.
# Copy by copy, everything passes through the first GPU's one link, and the time grows with the number of GPUs. Through
# NCCL ([`torch.nn.parallel.comm`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/parallel/comm.py#L106-L118)
# uses it where it can), a broadcast and a reduce go round a ring. Together they cost {{ring_of_2:.1f}} times an
# all-reduce at two GPUs and {{ring_of_8:.2f}} times one at eight. So bytes alone do not condemn DataParallel. These do:
#
# - the model is sent **before** forward and must have arrived: nothing hides it;
# - the threads share one Python interpreter, and its lock: they take turns at launching kernels (lesson 03 says what a
#   host that is late costs);
# - the first GPU also holds all outputs, and the optimizer runs on it alone;
# - a process ends at the edge of its machine, and its GPUs are all there can be.

# %% [markdown]
# ## 2 · What it takes: α and β
#
# A message over a link costs a fixed time α, whatever its size, and then its bytes divided by the bandwidth (β is one byte's
# time). Links differ by more than their names say:

# %% experiment
NDR, GB, MB = "InfiniBand NDR", 10**9, 10**6
LINKS = ("NVLink 4", "PCIe 5.0 x16", NDR, "Ethernet 25G")
lesson.table(
    [
        (name, place, f"{ranks.LINKS[name].latency_s * 1e6:.1f} µs", f"{ranks.LINKS[name].bytes_per_s / 1e9:.0f}")
        for name, place in zip(LINKS, ("inside a node", "inside a node", "between nodes", "between nodes"), strict=True)
    ],
    ["link", "where", "α, a message", "GB/s, each way"],
    evidence="arithmetic",
    caption="published rates, NCCL's own latencies; Ethernet's is assumed. Sources: helpers/ranks/links.py",
)  # fmt: skip

# %% [markdown]
# Everything about collectives follows from counting messages and bytes. An all-reduce of S bytes among n ranks, two ways:
#
# - **ring**: cut the S bytes into n pieces. Each rank sends a piece to its right neighbour, adds what came from the
#   left, and passes the sum on: after n − 1 steps each piece is summed up somewhere. n − 1 more steps hand the sums
#   round. 2(n − 1) messages one after the other, each of S/n bytes: 2(n − 1)(α + S β/n).
# - **tree**: sums go up a tree and come down again, in small pieces that follow one another, so that all levels send at
#   once: about 2 α log₂ n + 2 S β.
#
# Predict, for InfiniBand NDR and a ring: 1,024 GPUs instead of 8. How many times as many **bytes** does each put on its
# link, and how many times as long does it **take**?

# %% experiment
SOME = ("less than 2x", "2x to 20x", "more than 20x")
prediction = {
    "bytes": ...,  # one of SOME
    "time, 1 GB": ...,
    "time, 1 MB": ...,
    "faster for 1 MB at 1,024": ...,  # "ring" or "tree"
    "faster for 1 GB at 8": ...,
}


# %% experiment
def takes(size, n, way="ring"):
    return ranks.seconds("all_reduce", size, n, NDR, way)


def times(a, b):
    return SOME[0] if a < 2 * b else SOME[1] if a < 20 * b else SOME[2]


def faster(size, n):
    return min(("ring", "tree"), key=lambda way: takes(size, n, way))


measured = {
    "bytes": times(ranks.wire_bytes("all_reduce", GB, 1024), ranks.wire_bytes("all_reduce", GB, 8)),
    "time, 1 GB": times(takes(GB, 1024), takes(GB, 8)),
    "time, 1 MB": times(takes(MB, 1024), takes(MB, 8)),
    "faster for 1 MB at 1,024": faster(MB, 1024),
    "faster for 1 GB at 8": faster(GB, 8),
}
lesson.compare_predictions(prediction, measured, evidence="arithmetic", choices=(*SOME, "ring", "tree"))

# %% experiment tags=["fold"]
from helpers.plots import style
from helpers.plots.picture import Picture, drawn


@drawn
def algorithms(sizes, counts, title, note):
    fig, _ = style.figure(3.1, evidence="arithmetic", title=title, note=note)
    for ax, n in zip(fig.subplots(1, len(counts), sharey=True), counts, strict=True):
        for i, way in enumerate(("ring", "tree")):
            ax.plot(
                sizes,
                [takes(s, n, way) * 1e3 for s in sizes],
                color=style.SERIES[i],
                ls=("-", "--")[i],
                label=way,
            )
        ax.set(xscale="log", yscale="log", xlabel="bytes")
        ax.set_title(f"{n:,} ranks", fontsize=style.TEXT)
        ax.set_xticks([1e3, 1e6, 1e9], ["1 kB", "1 MB", "1 GB"])
        ax.set_yticks([0.1, 1, 10, 100], ["100 µs", "1 ms", "10 ms", "100 ms"])
        ax.minorticks_off()
        if n == counts[0]:
            ax.set_ylabel("time of one all-reduce")
            ax.legend()
    return Picture(fig, "arithmetic", f"{title}: for {', '.join(map(str, counts))} ranks")


algorithms(
    [10 ** (e / 4) for e in range(12, 41)],
    (2, 8, 64, 1024),
    title="Flat, then straight: first the messages cost, then the bytes",
    note=f"ring and tree over {NDR}: {ranks.LINKS[NDR].latency_s * 1e6:.1f} µs a message, "
    f"{ranks.LINKS[NDR].bytes_per_s / 1e9:.0f} GB/s",
)

# %% experiment
lesson.table(
    [(f"{n:,}", *(f"{takes(s, n, way) * 1e3:.2f} ms" for s in (MB, GB) for way in ("ring", "tree"))) for n in (8, 64, 1024)],
    ["ranks", "1 MB, ring", "tree", "1 GB, ring", "tree"],
    evidence="arithmetic",
).show()  # fmt: skip
lesson.keep(gigabyte=takes(GB, 1024, "tree") / takes(GB, 8) - 1)

# %% [markdown]
# The ring's bytes hardly depend on n: 2(n − 1)/n · S goes from S at two ranks to 2 S at infinitely many, and no all-reduce
# by sends between ranks can do with less (Patarasuk and Yuan, 2009): that is why data parallelism scales at all.
# Its **messages** do depend on n,
# 2(n − 1) of them in a row. So the ring is the best one for much data among few ranks. For a megabyte the tree is ahead
# already at 8; for a gigabyte it draws level at 64 and wins clearly at 1,024. NCCL predicts both
# times and takes the better one (its [src/graph/tuning.cc](https://github.com/NVIDIA/nccl/blob/master/src/graph/tuning.cc)).
# So taken, a gigabyte among 1,024 costs {{gigabyte:.0%}} more than among 8.
#
# Two rules follow, and the rest of the lesson lives on them. **Few large messages beat many small ones** (each costs its α).
# **One message cannot begin before its last number is there** (so one very large one begins late).
#
# Where the model stops: real bandwidths are below the published ones, protocols for small messages have a smaller α,
# and links are shared. Take it for the shape, and measure your own two numbers (`nccl-tests`).
#
# ### Who is joined to whom
#
# Ring and tree say who speaks to whom; the *topology* says over what. 64 GPUs stand in nodes of 8: NVLink inside, InfiniBand
# between. One ring through all of them is as slow as its slowest link. Or **the node first**: sum up inside each
# node, so that each GPU holds an eighth; sum these eighths between the nodes, each over its own network card; gather inside
# the node again. Predict, for GPT-2's gradients in bf16:

# %% experiment
prediction = {
    "8 GPUs: all through one of them (star) ÷ ring": ...,  # one of SOME
    "8 GPUs in a ring: PCIe 5.0 ÷ NVLink 4": ...,
    "64 GPUs: one ring ÷ the node first": ...,
}

# %% experiment
from helpers.simulator import simulate


def among_64(way):
    world = simulate("H100").world(64, nodes=8, link="NVLink 4", between=NDR, algorithm=way).ranks
    return world.seconds("all_reduce", 2 * GPT2, tuple(range(64)))


by_link = {
    (k, way): ranks.seconds("all_reduce", 2 * GPT2, 8, k, way)
    for k in LINKS
    for way in ("star", "ring", "tree")
}
by_way = {way: among_64(way) for way in ("ring", "tree", "hierarchical")}
measured = {
    "8 GPUs: all through one of them (star) ÷ ring": times(by_link[NDR, "star"], by_link[NDR, "ring"]),
    "8 GPUs in a ring: PCIe 5.0 ÷ NVLink 4": times(
        by_link["PCIe 5.0 x16", "ring"], by_link["NVLink 4", "ring"]
    ),
    "64 GPUs: one ring ÷ the node first": times(by_way["ring"], by_way["hierarchical"]),
}
lesson.compare_predictions(prediction, measured, evidence="arithmetic", choices=SOME).show()
lesson.table(
    [(f"8, {k}", *(f"{by_link[k, way] * 1e3:.2f} ms" for way in ("star", "ring", "tree")), "") for k in LINKS]
    + [("64 in 8 nodes", "", *(f"{t * 1e3:.2f} ms" for t in by_way.values()))],
    ["GPUs, over", "star", "ring", "tree", "the node first"],
    evidence="arithmetic",
    caption=f"one all-reduce of {2 * GPT2 / MB:.0f} MB; 64: NVLink 4 inside, {NDR} between",
)  # fmt: skip

# %% [markdown]
# A star loads one link with everybody's bytes; a ring loads all alike. Between nodes the trick is to send *less* over the
# slow link: each GPU an eighth. It needs a network card for each GPU, as a DGX H100 has; with one card a node the eighths
# queue up. From here on the simulated GPU takes the node first, and between nodes the better of ring and tree.

# %% [markdown]
# **Exercise 14.1 — a ring all-reduce from sends and receives** (★★★, 20 min)
#
# Build the optimum: no rank may put more than 2(n − 1)/n of the tensor on its link, rounded up to whole pieces.
#
# <details><summary>Hint 1</summary>Number the pieces 0 … n − 1. In step s of the first round, rank r sends piece (r − s) mod n
# and receives piece (r − s − 1) mod n, which it adds. Which piece is complete on rank r after n − 1 steps? With that one
# the second round begins.</details>
#
# <details><summary>Hint 2</summary>If every rank first sends and then receives, all may wait for each other for ever. Begin both
# (<code>dist.isend</code>, <code>dist.irecv</code>), then wait for both. What is received must be contiguous, and must not
# overwrite the piece it is to be added to.</details>
#
# <details><summary>The idea</summary><code>x.view(-1).tensor_split(n)</code> gives n views, uneven where need be. 2(n − 1) steps;
# in step s send view (r − s) mod n and receive view (r − s − 1) mod n: into a spare tensor, to be added, while s &lt; n − 1;
# straight into the view afterwards.</details>


# %% exercise="ring_all_reduce"
def ring_all_reduce(x: torch.Tensor) -> None:
    """Sum x over all ranks, in place: afterwards every rank's x holds the same sums.

    x: contiguous, of any shape and floating dtype (16 bits too), perhaps a part of a longer tensor, whose rest stays as it is;
        with the same shape on each of the n ranks and at least n numbers, not always a multiple of n.
        n = dist.get_world_size(), which may be 1.

    Runs on every rank at once. By sends and receives only (dist.isend, dist.irecv, dist.batch_isend_irecv, …), each
    to the right neighbour (rank + 1) mod n. Graded on what is sent: by each rank at most 2 (n − 1) messages, of
    together at most 2 (n − 1) ⌈numel / n⌉ numbers; by all ranks together exactly 2 (n − 1) numel numbers.
    """
    ### BEGIN SOLUTION
    n, rank = dist.get_world_size(), dist.get_rank()
    pieces = x.view(-1).tensor_split(n)
    spare = torch.empty_like(pieces[0])  # the first is among the longest
    for step in range(2 * (n - 1)):
        out, into = pieces[(rank - step) % n], pieces[(rank - step - 1) % n]
        adding = step < n - 1
        arrives = spare[: len(into)] if adding else into
        for work in [dist.isend(out, (rank + 1) % n), dist.irecv(arrives, (rank - 1) % n)]:
            work.wait()
        if adding:
            into.add_(arrives)
    ### END SOLUTION


# %% test="ring_all_reduce" points=1
from helpers import check
from helpers.exercises.data_parallel import check_ring_all_reduce

check_ring_all_reduce(check.case(3, [((6,), "float32"), ((2, 2), "float32")]))

# %% hidden="ring_all_reduce" points=3
### BEGIN HIDDEN TESTS
from helpers import check
from helpers.exercises.data_parallel import check_ring_all_reduce

check_ring_all_reduce(
    check.case(4, [((23,), "float32"), ((5, 7), "float64"), ((5,), "float32"), ((3, 7), "bfloat16")]),
    check.case(1, [((9,), "float32"), ((), "float16")]),
)
### END HIDDEN TESTS

# %% [markdown]
# Yours and the formula, for a megabyte among four ranks:


# %% experiment
def around(numbers):
    x = torch.ones(numbers)
    with ranks.sent() as record:
        ring_all_reduce(x)
    return record


try:
    lesson.table(
        [
            (r.rank, r.count("send"), r.bytes("send"), f"{ranks.wire_bytes('all_reduce', MB, 4):,.0f}")
            for r in ranks.run_ranks(around, 4, 250_000)
        ],
        ["rank", "messages sent", "bytes sent", "2(n − 1)/n · S"],
        evidence="live (CPU)",
    ).show()
except ranks.RankError as odd:
    print("your ring, once it is written" if odd.kind == "NotImplementedError" else odd)

# %% [markdown]
# ## 3 · Hide it: buckets and overlap
#
# Backward computes the last layer's gradient first, and while it works on the layers before, the link is idle. So send
# early. But not each gradient by itself, for each all-reduce costs its α: DDP collects gradients in **buckets**. They are
# filled in the order in which gradients come, about the *reverse* of the model's. By default the first bucket has 1 MiB,
# so that sending begins soon, and the others 25. Whoever gives `bucket_cap_mb` gives it for all of them, the first
# included ([source](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/parallel/distributed.py#L106-L110)). When a
# bucket's last gradient is there, its all-reduce starts on a stream of its own, and backward goes on. Communication that
# is still running when backward has ended is **exposed**: the step waits for it.
#
# A step of GPT-2, 8 sequences of 1,024 tokens in bf16, on a simulated H100 among 64. Predict the best of six bucket sizes:

# %% experiment
LONGER = ("less than 1 %", "1 to 5 %", "5 to 25 %", "more than 25 %")
prediction = {
    "least exposed": ...,  # "default", "1 MiB", "5 MiB", "25 MiB", "100 MiB" or "all in one"
    "at that size, the step is longer by": ...,  # one of LONGER
    "and with all in one": ...,
}

# %% experiment
from helpers import plots, widgets

CAPS = {"default": "default", "1 MiB": 1, "5 MiB": 5, "25 MiB": 25, "100 MiB": 100, "all in one": 1000}
explorer = widgets.bucket_explorer(ranks=64)
plans, floor = {}, {}
largest = max(explorer.backward.gradients, key=lambda g: g.bytes)
for n in (8, 64, 1024):
    for name, cap in CAPS.items():
        explorer.set(ranks=n, cap_mb=cap)
        plans[n, name] = explorer.plan
    floor[n] = explorer.world.seconds("all_reduce", largest.bytes, tuple(range(n)))
explorer.set(ranks=64, cap_mb="default")


def longer(plan):
    part = plan.exposed_s / plan.backward.seconds
    return next(
        (name for name, most in zip(LONGER, (0.01, 0.05, 0.25), strict=False) if part < most), LONGER[-1]
    )


best = min(CAPS, key=lambda name: plans[64, name].exposed_s)
measured = {
    "least exposed": best,
    "at that size, the step is longer by": longer(plans[64, best]),
    "and with all in one": longer(plans[64, "all in one"]),
}
said = dict(zip(prediction, (list(CAPS), LONGER, LONGER), strict=True))
lesson.compare_predictions(prediction, measured, evidence="simulated (H100)", choices=said).show()
lesson.table(
    [(name, len(plans[64, name].buckets), *(f"{plans[n, name].exposed_s * 1e6:,.0f} µs" for n in floor)) for name in CAPS]
    + [("(the embedding alone)", 1, *(f"{t * 1e6:,.0f} µs" for t in floor.values()))],
    ["bucket", "all-reduces", "exposed, 8 ranks", "64 ranks", "1,024 ranks"],
    evidence="simulated (H100)",
    caption=f"forward and backward alone take {explorer.backward.seconds * 1e3:.1f} ms. Of {explorer.backward.bytes / 1e6:.0f} MB "
    f"of gradients {largest.bytes / 1e6:.0f} are {largest.name}'s, number {explorer.backward.gradients.index(largest) + 1} of "
    f"{len(explorer.backward.gradients)} to be ready",
)  # fmt: skip

# %% [markdown]
# Is it torch's own rule? Nine layers of 1 MiB, torch's DDP on a fake group of 8, and what it sends:


# %% experiment
def buckets_of(cap_mb, sizes=9):
    """MiB of each all-reduce of a step: torch's own DDP, with nobody at the other end."""
    with ranks.fake(8):
        net = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(sizes)))
        ddp = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=cap_mb)
        for _ in range(2):  # the buckets are laid out again in the second step
            with ranks.sent() as record:
                ddp(torch.ones(1, 512)).sum().backward()
    return [c.bytes >> 20 for c in record.of("all_reduce")]


caps = {cap: buckets_of(cap) for cap in (None, 25, 5, 1)}
assert caps[None] == [1, 8] and caps[25] == [9]
lesson.table(
    [(cap, ", ".join(map(str, sent))) for cap, sent in caps.items()],
    ["bucket_cap_mb", "MiB of each all-reduce"],
    evidence="live (CPU)",
)

# %% [markdown]
# Move the bucket size, the ranks and the links, and watch the lowest lane: it is what the step pays.

# %% experiment
explorer

# %% [markdown]
# Small buckets pay an α each (at 1,024 ranks they queue up); large ones begin late. Between them little depends on the
# size, as a share of the step. One thing no size can hide: the *last* bucket, for backward is over when it starts. In
# GPT-2 the last gradient is the embedding's, which is also the output layer's: complete at the very end, and a large part
# of all. Its own all-reduce is the table's last line, the floor; the best size comes close to it.
#
# The explorer's arithmetic leaves one thing out: kernels beside a collective are slower, for NCCL takes some of the
# SMs and of the memory's bandwidth. The simulated GPU has that. Eight layers, all gradients in one lump after backward, and DDP:


# %% experiment tags=["fold"]
def step_on(n, how, steps=1, slow=None, jitter=0.0, contention=True):
    """The simulated GPU, mean seconds and begin of the last of some training steps: 8 large layers, rank 0 of n H100s."""
    across = {"nodes": n // 8, "between": NDR} if n > 8 else {}
    gpu = simulate("H100").world(
        n, link="NVLink 4", slow=slow, jitter=jitter, contention=contention, **across
    )
    with gpu:
        kind = {"device": gpu.device, "dtype": torch.bfloat16}
        model = nn.Sequential(*(nn.Linear(4096, 4096, bias=False, **kind) for _ in range(8)))
        parallel = nn.parallel.DistributedDataParallel(model) if how == "DDP" else model
        x = torch.empty(4096, 4096, **kind)
        begins = []
        for _ in range(2 + steps):  # two to warm up
            gpu.synchronize()
            begins.append(gpu.clock())
            parallel(x).sum().backward()
            if how == "lump":
                flat = torch.cat([p.grad.flatten() for p in model.parameters()])
                dist.all_reduce(flat)
                flat.div_(n)
            model.zero_grad()
        gpu.synchronize()
        ended = gpu.clock()
    return gpu, (ended - begins[2]) / steps, begins[-1]


# %% experiment
shown, _, last = step_on(64, "lump")
plots.overlapped(shown, since_s=last, title="In one lump, after backward")

# %% experiment
shown, _, last = step_on(64, "DDP")
plots.overlapped(shown, since_s=last, title="DDP: a bucket as soon as it is full")

# %% [markdown]
# (The last kernels copy the sums from the buckets into the gradients.) Sending takes most of its part of backward
# here (the gaps). At the end it does not fit: the first layer needs no gradient of its input, so its backward is half as
# long, and the end of the last bucket but one is exposed too.
#
# Now the question of this lesson. A step's time at 2, 8, 64 and 1,024 GPUs, each with a batch of its own, so that
# 100 % is "n GPUs do n times the work". Then two kinds of bad luck: kernels that take 10 % more or less on each rank, at
# random; and one rank of 64 whose kernels always take half as long again. Predict what is left of 100 %:

# %% experiment
LEFT = ("95 to 100 %", "85 to 95 %", "70 to 85 %", "60 to 70 %", "below 60 %")
prediction = {
    "2 GPUs, DDP": ...,  # one of LEFT
    "1,024 GPUs, DDP": ...,
    "1,024 GPUs, DDP, uneven kernels": ...,
    "64 GPUs, DDP, one of them slow": ...,
}

# %% experiment
alone_s = step_on(1, "none")[1]
paid = {(n, how): step_on(n, how)[1] for n in (2, 8, 64, 1024) for how in ("lump", "DDP")}
paid |= {(n, "uneven"): step_on(n, "DDP", 4, jitter=0.1)[1] for n in (8, 64, 1024)}
waiting, paid[64, "slow"], last = step_on(64, "DDP", slow={3: 1.5})
free, only_one = step_on(2, "DDP", contention=False)[1], step_on(1, "DDP")[1]


def left(n, how):
    part = alone_s / paid[n, how]
    return next(
        (name for name, least in zip(LEFT, (0.95, 0.85, 0.7, 0.6), strict=False) if part >= least), LEFT[-1]
    )


measured = {
    "2 GPUs, DDP": left(2, "DDP"),
    "1,024 GPUs, DDP": left(1024, "DDP"),
    "1,024 GPUs, DDP, uneven kernels": left(1024, "uneven"),
    "64 GPUs, DDP, one of them slow": left(64, "slow"),
}
cost = [alone_s / paid[n, "DDP"] - alone_s / paid[n, "uneven"] for n in (8, 64, 1024)]
lesson.keep(least_points=100 * min(cost), most_points=100 * max(cost))
lesson.compare_predictions(prediction, measured, evidence="simulated (H100)", choices=LEFT).show()
lesson.table(
    [
        (f"{n:,}", *(f"{alone_s / paid[n, how]:.0%}" if (n, how) in paid else "" for how in ("lump", "DDP", "uneven", "slow")))
        for n in (2, 8, 64, 1024)
    ],
    ["GPUs", "in one lump", "DDP", "DDP, uneven kernels", "DDP, one slow rank"],
    evidence="simulated (H100)",
    caption=f"time of a step alone ({alone_s * 1e3:.2f} ms) ÷ time of a step among n; nodes of 8, NVLink 4 inside, {NDR} "
    f"between. 2 GPUs, if collectives took nothing from the kernels beside them: {alone_s / free:.0%}; DDP on one GPU: "
    f"{alone_s / only_one:.0%}",
).show()  # fmt: skip
plots.overlapped(waiting, since_s=last, title="Rank 0, while rank 3 of 64 is slow")

# %% [markdown]
# The second GPU costs three things, and most of it is not waiting for messages: copying gradients into the buckets and
# the sums out again, which DDP pays with one GPU too (`gradient_as_bucket_view=True` saves a part); what collectives
# take from the kernels beside them; and the exposed part of the last all-reduce (the caption takes them apart). From 8
# to 64 comes the slower link between nodes; from 64 to 1,024 hardly a byte is added, only messages. With uneven kernels
# everybody waits in each all-reduce for the slowest of n. That costs {{least_points:.0f}} to {{most_points:.0f}} points
# more, at each n.
#
# One slow card slows all the others: look for it first. The last picture shows how: on *everybody else's* timeline the
# collectives are long, for in them (pale) they wait. **The rank that never waits is the slow one.**
#
# Now write it. What you have seen so far is the specification.

# %% [markdown]
# **Exercise 14.2 — a DistributedDataParallel** (★★★★, 35 min)
#
# The training loop will be `ddp(x)…backward()`, then `ddp.finish()`, then the optimizer. When several small batches make
# one step,
# all but the last go under `with ddp.no_sync():`, for nothing needs to be sent before the gradients are complete.
#
# <details><summary>Hint 1</summary><code>p.register_post_accumulate_grad_hook(f)</code> calls <code>f(p)</code> when p's gradient
# is complete <em>and</em> added to <code>p.grad</code>: so what <code>no_sync</code> has collected is in it already. Count
# down what each bucket still lacks; at 0 it can be sent.</details>
#
# <details><summary>Hint 2</summary>A parameter that one rank did not use never fires there. If that rank now skips its bucket and
# sends the next, the two ranks add up different buckets, or wait for each other for ever. So all ranks send buckets in the same
# order, 0, 1, 2, …: one that is full waits for those before it, and <code>finish</code> sends what was held up, with zeros where
# there is no gradient.</details>
#
# <details><summary>The idea</summary><code>_ready(p)</code>: unless in <code>no_sync</code>, lower the count of p's bucket; while
# the count of the next bucket to be sent is 0: <code>_send()</code>, that is <code>flat = torch.cat(gradients)</code>,
# <code>work = dist.all_reduce(flat, async_op=True)</code>, keep both. <code>finish</code>: send the rest, wait for each,
# divide by n, copy the pieces of <code>flat</code> back into the gradients, set all counts again.</details>


# %% exercise="bucketed_ddp"
class BucketedDDP(nn.Module):
    """A model whose gradients are averaged over all ranks while backward runs.

    Constructor: every rank takes rank 0's parameters and buffers. Parameters with requires_grad go into buckets: in the
    *reverse* order of model.parameters(), and a bucket is closed by the parameter with which it holds bucket_bytes
    or more. All have the same dtype and device, whichever these are. Parameters and buffers may have any strides (but no
    numbers twice), a parameter may be used in two places, and buffers need not be floats.

    forward(*args, **kwargs): the model's.
    Backward: one asynchronous all_reduce for each bucket, made inside backward, as soon as the gradients of that bucket and of
    all before it are there. Buckets are sent in the order in which they were made, by every rank, always.
    finish(): to be called after backward. Sends what is left (a parameter without a gradient counts as zeros), waits, and
    leaves in each p.grad (p.requires_grad) the mean over the ranks. Frozen parameters get none and are not sent.
    no_sync(): a context; a backward within sends nothing, and its gradients stay in p.grad, to be added to and sent by the next
    backward outside. finish() is not called within it.

    With equal parts of a batch on each rank and a loss that is a mean, gradients are those of the whole batch. _ready and
    _send are a proposal. torch's own DistributedDataParallel, and its Reducer, are not at hand in the tests.
    """

    def __init__(self, model: nn.Module, bucket_bytes: int = 25 * 2**20) -> None:
        super().__init__()
        self.model = model
        ### BEGIN SOLUTION
        for tensor in [*model.parameters(), *model.buffers()]:
            # gloo sends and fills what lies between first and last in memory
            plain = tensor.detach().contiguous()
            dist.broadcast(plain, 0)
            tensor.detach().copy_(plain)
        self.buckets: list[list[nn.Parameter]] = []
        self.bucket_of, room = {}, 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            if room <= 0:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            self.bucket_of[p] = len(self.buckets) - 1
            room -= p.nbytes
            p.register_post_accumulate_grad_hook(self._ready)
        self.syncing = True
        self.sent: list[tuple[torch.Tensor, dist.Work]] = []
        self.lacking = [len(bucket) for bucket in self.buckets]
        ### END SOLUTION

    def _ready(self, p: nn.Parameter) -> None:
        """For a hook: p's gradient is complete."""
        ### BEGIN SOLUTION
        if self.syncing:
            self.lacking[self.bucket_of[p]] -= 1
            while len(self.sent) < len(self.buckets) and not self.lacking[len(self.sent)]:
                self._send()
        ### END SOLUTION

    def _send(self) -> None:
        """Begin the all-reduce of the next bucket, and keep what finish() needs of it."""
        ### BEGIN SOLUTION
        bucket = self.buckets[len(self.sent)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.sent.append((flat, dist.all_reduce(flat, async_op=True)))
        ### END SOLUTION

    def forward(self, *args, **kwargs):
        return self.model(*args, **kwargs)

    def finish(self) -> None:
        ### BEGIN SOLUTION
        while len(self.sent) < len(self.buckets):
            self._send()
        for bucket, (flat, work) in zip(self.buckets, self.sent, strict=True):
            work.wait()
            flat.div_(dist.get_world_size())
            for p, mean in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                p.grad = mean.view_as(p)
        self.lacking = [len(bucket) for bucket in self.buckets]
        self.sent = []
        ### END SOLUTION

    @contextmanager
    def no_sync(self):
        ### BEGIN SOLUTION
        self.syncing = False
        try:
            yield
        finally:
            self.syncing = True
        ### END SOLUTION


# %% test="bucketed_ddp" points=2
from helpers.exercises.data_parallel import check_BucketedDDP, training

check_BucketedDDP(
    2,  # ranks; then of each run: bytes of a bucket, (steps, parts, samples, 6), which ranks use `rare`,
    training(1100, (2, 1, 4, 6), [True, True], buckets=[4, 3]),  # and how many parameters are in each bucket
    training(200, (1, 2, 4, 6), [True, False], buckets=[2, 2, 2, 1]),
)

# %% hidden="bucketed_ddp" points=4
### BEGIN HIDDEN TESTS
from helpers.exercises.data_parallel import check_BucketedDDP, training

check_BucketedDDP(
    3,
    training(1, (1, 2, 4, 6), [True, True, True], buckets=[1, 1, 1, 1, 1, 1, 1]),
    training(1000, (2, 2, 2, 6), [False, False, True], buckets=[4, 2, 1]),
    training(10**6, (1, 1, 4, 6), [True, True, True], buckets=[7]),
    training(1100, (2, 2, 4, 6), [True, False, True], buckets=[4, 3], odd=True),
)
### END HIDDEN TESTS

# %% [markdown]
# Yours, on the simulated H100 with 63 others: the same class, without a change.

# %% experiment
picture = None
try:
    gpu = simulate("H100").world(64, nodes=8, link="NVLink 4", between=NDR)
    with gpu:
        kind = {"device": gpu.device, "dtype": torch.bfloat16}
        mine = BucketedDDP(nn.Sequential(*(nn.Linear(4096, 4096, bias=False, **kind) for _ in range(8))))
        for _ in range(3):
            gpu.synchronize()
            began = gpu.clock()
            mine(torch.empty(4096, 4096, **kind)).sum().backward()
            mine.finish()
            mine.zero_grad()
        gpu.synchronize()
        took = gpu.clock() - began
    print(
        f"your DDP: {took * 1e3:.2f} ms a step; torch's: {paid[64, 'DDP'] * 1e3:.2f} ms; alone: {alone_s * 1e3:.2f} ms"
    )
    picture = plots.overlapped(gpu, since_s=began, title="Your DDP")
except NotImplementedError:
    print("your DDP, once it is written")
picture

# %% [markdown]
# If yours is a little faster than torch's: it may copy the first sums out while the last are on their way, where torch
# copies all at the end. Gradients that are *views* of the bucket need no copy out (`gradient_as_bucket_view=True`). They are
# still copied in, as long as `zero_grad` sets gradients to None, which is its default
# ([docstring](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/parallel/distributed.py#L782-L792)).
#
# **Exercise 14.3 — choose the bucket size** (★★, 12 min)
#
# The explorer's arithmetic, turned round: from when each gradient is ready, and what a message costs on your link, find
# the bucket size with which the last all-reduce ends first. Every size is allowed, not only round ones.
#
# <details><summary>Hint 1</summary>First the end for one size: go through the gradients, close a bucket by the gradient with
# which it reaches the size, and send it when it is full <em>and</em> the bucket before it has been sent.</details>
#
# <details><summary>Hint 2</summary>There are infinitely many sizes, but few different ways to cut. When does a slightly larger
# size make another cut? Only when it passes the sum of some gradients that follow one another.</details>
#
# <details><summary>The idea</summary>Candidates are the sums of <code>sizes[i:j]</code> for all i &lt; j, some hundreds or
# thousands. Compute the end for each and take the size with the smallest.</details>


# %% exercise="choose_cap"
def choose_cap(sizes: list[int], ready_s: list[float], message_s: float, byte_s: float) -> int:
    """The bucket size, in bytes, with which the gradients have all been summed soonest.

    sizes: bytes of each gradient, in the order in which backward makes them. ready_s: when each is there, in seconds,
        never decreasing. An all-reduce of b bytes takes message_s + b · byte_s, one after the other.

    A bucket of size c is closed by the gradient with which it holds c bytes or more (the last one by the end), for the first
    bucket too. It is sent when its last gradient is there and the bucket before it has been sent. Graded: the end of the
    last all-reduce with your size is the earliest that any size gives. At most 150 gradients.
    """

    ### BEGIN SOLUTION
    def end(cap):
        free, held = 0.0, 0
        for i, (size, ready) in enumerate(zip(sizes, ready_s, strict=True)):
            held += size
            if held >= cap or i == len(sizes) - 1:
                free = max(free, ready) + message_s + held * byte_s
                held = 0
        return free

    sums = {sum(sizes[i:j]) for i in range(len(sizes)) for j in range(i + 1, len(sizes) + 1)}
    return min(sorted(sums), key=end)
    ### END SOLUTION


# %% test="choose_cap" points=1
from helpers.exercises.data_parallel import check_choose_cap

equal = [4_000_000] * 12
uneven = [900_000, 700_000, 5_000_000, 200_000, 2_300_000, 2_300_000, 100_000, 4_000_000, 600_000, 3_000_000]
ready_at = [0.001 * (i + 1) for i in range(12)]
check_choose_cap(
    [(equal, ready_at, 1e-6, 1e-10), (equal, ready_at, 5e-3, 1e-11), (uneven, ready_at[:10], 1.2e-3, 4e-10)],
    best=[4_000_000, 24_000_000, 4_800_000],
)

# %% hidden="choose_cap" points=2
### BEGIN HIDDEN TESTS
import random
from itertools import accumulate

from helpers.exercises.data_parallel import check_choose_cap, sent_with


def step_of(seed, n, message_s, byte_s):
    made = random.Random(seed)
    sizes = [made.choice((made.randrange(1000, 50000), made.randrange(10**5, 10**7))) for _ in range(n)]
    return sizes, list(accumulate(made.random() * 5e-4 for _ in range(n))), message_s, byte_s


def best_of(sizes, *rest):
    sums = {sum(sizes[i:j]) for i in range(len(sizes)) for j in range(i + 1, len(sizes) + 1)}
    return min(sums, key=lambda cap: sent_with(cap, sizes, *rest))


links = ((1, 1, 1e-4, 1e-10), (2, 40, 3e-4, 5e-11), (31, 40, 3e-4, 5e-11), (56, 40, 8e-4, 1e-10))
steps = [step_of(*given) for given in links]
some, late = [3_000_000, 1_000, 2_000_000, 40_000] * 5, [0.0] * 10 + [2e-3] * 10
# all at once; free messages; free bytes
steps += [(some, [0.0] * 20, 2e-4, 1e-10), (some, late, 0.0, 1e-10), (some, late, 1e-4, 0.0)]
check_choose_cap(steps, best=[best_of(*step) for step in steps])
### END HIDDEN TESTS

# %% [markdown]
# Your search, on GPT-2 over a slow network: nodes of 8 joined by 25 Gbit/s, among 16 and among 64. The same arithmetic as the
# explorer's, with every size tried.

# %% experiment
from helpers.simulator.world.buckets import overlap

gradients, slow = explorer.backward.gradients, {}
for n in (16, 64):
    world = widgets.bucket_explorer(explorer.backward, ranks=n, between="Ethernet 25G").world
    slow[n] = lambda size, n=n, world=world: world.seconds("all_reduce", size, tuple(range(n)))

try:
    caps = {}
    for n, summed_in in slow.items():
        byte_s = (summed_in(100 * MB) - summed_in(0)) / (100 * MB)
        sizes, ready_s = [g.bytes for g in gradients], [g.ready_s for g in gradients]
        caps[f"{n}'s best"] = choose_cap(sizes, ready_s, summed_in(0), byte_s) / 2**20
    caps |= {"": 1.0, "DDP's": None}
    lesson.table(
        [
            (f"{mib:.1f} MiB" if mib else "1, then 25", name, *(f"{overlap(explorer.backward, f, mib).exposed_s * 1e3:.1f} ms" for f in slow.values()))
            for name, mib in caps.items()
        ],
        ["bucket", "", "exposed, 16 ranks", "64 ranks"],
        evidence="simulated (H100)",
        caption=f"a step alone takes {explorer.backward.seconds * 1e3:.1f} ms",
    ).show()  # fmt: skip
except NotImplementedError:
    print("your bucket size, once it is written")

# %% [markdown]
# What is best among 16 is dear among 64, where a message has a larger α. Among 64, DDP's default is better still than
# any single size: its small first bucket is on the link early. On the fast network above, sizes from 1 to 25 MiB were
# nearly equal: there the search is not worth its while.

# %% [markdown]
# ## 4 · Send less often, and less
#
# What cannot be hidden can be avoided. Two ways, and one thing to know about each:
#
# - **Less often**: accumulate k small batches before a step, and send only in the last one (`no_sync`). Same gradients.
# - **Less**: a *comm hook* gets each bucket and returns what all ranks are to have. It may send 16 bits a number, or 8, or of
#   each matrix only two thin factors (PowerSGD). Not the same gradients.
#
# Bytes of four backward passes of the small net, on two live ranks:

# %% experiment
import logging

from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

HOOKS = {
    "16 bits": lambda: (None, default_hooks.fp16_compress_hook),
    "rank-1 factors": lambda: (power.PowerSGDState(None, 1, start_powerSGD_iter=2), power.powerSGD_hook),
}


def four_passes(batch, hooks):
    """What four backward passes send, each way."""
    logging.getLogger(power.__name__).setLevel("ERROR")
    told = {}
    mine = batch.chunk(dist.get_world_size())[dist.get_rank()]
    for way in ("plain", "no_sync", *hooks):
        model = layers()
        ddp = nn.parallel.DistributedDataParallel(model)
        if way in hooks:
            ddp.register_comm_hook(*hooks[way]())
        for _ in range(3):  # these are not counted
            ddp(mine).square().mean().backward()
        with ranks.sent(model) as record:
            for i in range(4):
                if way == "no_sync" and i < 3:
                    with ddp.no_sync():
                        ddp(mine).square().mean().backward()
                else:
                    ddp(mine).square().mean().backward()
        told[way] = record
    return told


sending = ranks.run_ranks(four_passes, 2, batch, HOOKS)[0]
lesson.table(
    [
        (way, r.count("all_reduce"), r.bytes("all_reduce"), r.of("all_reduce")[0].dtype)
        for way, r in sending.items()
    ],
    ["four backward passes", "all-reduces", "bytes", "as"],
    evidence="live (CPU)",
)

# %% [markdown]
# Fewer bytes, and with factors more messages. 8 bits a number want a message more too: the ranks must agree on a common scale
# first. Predict by α and β, for 8 ranks: which is faster?

# %% experiment
prediction = {
    "10,000 numbers, NVLink 4": ...,  # "float32" or "int8"
    "10,000 numbers, Ethernet 25G": ...,
    "1,000,000 numbers, NVLink 4": ...,
    "1,000,000 numbers, Ethernet 25G": ...,
    "100,000,000 numbers, NVLink 4": ...,
}

# %% experiment
rows, by_bits = [], {}
for numbers in (10**4, 10**6, 10**8):
    for link in ("NVLink 4", "Ethernet 25G"):
        whole, less = (ranks.seconds("all_reduce", numbers * size, 8, link) for size in (4, 1))
        less += ranks.seconds("all_reduce", 4, 8, link)
        rows.append((f"{numbers:,}", link, f"{whole * 1e6:,.0f} µs", f"{less * 1e6:,.0f} µs"))
        by_bits[f"{numbers:,} numbers, {link}"] = "int8" if less < whole else "float32"
lesson.compare_predictions(
    prediction, {k: by_bits[k] for k in prediction}, evidence="arithmetic", choices=("float32", "int8")
).show()
lesson.table(rows, ["numbers", "8 ranks over", "float32", "int8, after the scale"], evidence="arithmetic")

# %% [markdown]
# Compression saves bytes, not messages. 16 bits need no message more; int8 (its scale) and factors do, and make small tensors
# slower.
#
# Now what it costs in exactness. On an int8 grid a gradient of 0.3 steps is rounded to 0. **Error feedback** keeps what
# was rounded
# off and adds it to the *next* gradient. Predict: the same 0.3 for 20 steps. What has been sent in all, in steps of the grid?

# %% experiment
prediction = {"without feedback": ..., "with feedback": ...}  # exact: 20 · 0.3 = 6

# %% experiment
without, fed, rest = 0.0, 0.0, 0.0
for _ in range(20):
    without += round(0.3)
    whole = round(0.3 + rest)
    rest += 0.3 - whole
    fed += whole
lesson.compare_predictions(
    prediction, {"without feedback": without, "with feedback": fed}, evidence="arithmetic", choices=range(21)
)

# %% [markdown]
# Without feedback such a weight never learns. With it the rest grows until it is sent, and nothing is lost for ever.
#
# **Exercise 14.4 — eight bits, and nothing lost** (★★★, 20 min)
#
# Whole numbers from several ranks can be added as they are if all ranks use the same scale and leave room for the sum: of n
# ranks each may use −(127 // n) … 127 // n: 31 values at 8 ranks, three at 64, none above 127. This hook is for one node.
#
# DDP forms its buckets **anew** after the first backward, in the order in which gradients came (part 1: the broadcasts in
# step 2). So `bucket.index()` is no name for a place to keep a rest; a parameter is.
#
# <details><summary>Hint 1</summary><code>bucket.buffer()</code> is the flat tensor, <code>bucket.gradients()</code> its views, one for each of
# <code>bucket.parameters()</code>. Add each parameter's rest to its view, then quantize the whole buffer. Keep a <em>copy</em> of
# a rest: the buffer will be written to again.</details>
#
# <details><summary>Hint 2</summary>The common scale: an all-reduce of one number with <code>dist.ReduceOp.MAX</code>. The rest is
# what this rank wanted to send, less what it did send: known before the sum arrives. A future: <code>work.get_future()</code>
# of an asynchronous all-reduce has a method <code>then(f)</code>, and <code>f</code> gets the future, whose
# <code>value()</code> is a list of tensors.</details>
#
# <details><summary>The idea</summary><code>scale = largest / (127 // n)</code>, at least something tiny;
# <code>whole = (buffer / scale).round().to(torch.int8)</code>; rest = buffer − whole · scale, kept by parameter;
# <code>dist.all_reduce(whole, async_op=True).get_future().then(lambda f: f.value()[0] * (scale / n))</code>.</details>


# %% exercise="int8_hook"
def int8_hook(state: dict, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A comm hook, ddp.register_comm_hook({}, int8_hook), that sends a byte a number and keeps what it rounds off.

    state: this rank's own dict, empty at first, the same in every call: keep there what must outlive a step.
    bucket: its buffer() is flat, float32; parameters() (all contiguous) and gradients() belong together. Its index and what
        is in it change after the first backward. Gradients may be small or large (1e-15 to 1e15).

    Returns a future of the mean over the n ranks, float32, shaped like the buffer, and the same on all ranks.

    Graded on: what is sent, at most a byte a number plus 16 bytes a bucket; at any time the *sum* of all means so far,
    off by at most half a step of the grid, and each mean, off by at most one step (each bound may be passed by 5 %).
    A step of the grid is largest |number| in the bucket (rests added) on any rank ÷ (127 // n). A bucket may be all zeros. Best in one all_reduce of
    int8, after the scale: bytes are counted call by call.
    """
    ### BEGIN SOLUTION
    n, buffer = dist.get_world_size(), bucket.buffer()
    for p, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
        if p in state:
            gradient.add_(state[p])
    largest = buffer.abs().max()
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    scale = (largest / (127 // n)).clamp(min=1e-30)
    whole = (buffer / scale).round().to(torch.int8)
    buffer.sub_(whole * scale)  # from here on: the rest
    for p, rest in zip(bucket.parameters(), bucket.gradients(), strict=True):
        state[p] = rest.clone()
    work = dist.all_reduce(whole, async_op=True)
    return work.get_future().then(lambda future: future.value()[0] * (scale / n))
    ### END SOLUTION


# %% test="int8_hook" points=1
from helpers.exercises.data_parallel import check_int8_hook, hooked

check_int8_hook(2, hooked(4, 12, [1.0] * 5 + [0.0], cap_mb=25.0), hooked(7, 12, [0.0, 1.0, 1.0], cap_mb=25.0))

# %% hidden="int8_hook" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.data_parallel import check_int8_hook, hooked

check_int8_hook(
    3, hooked(5, 10, [1.0, 0.0, 0.5, 1.0], cap_mb=25.0), hooked(6, 10, [1.0] * 6 + [0.0], cap_mb=0.0003)
)
check_int8_hook(2, hooked(8, 10, [1e-12, 1e-12, 0.0], cap_mb=25.0), hooked(9, 10, [1e12] * 2, cap_mb=25.0))
### END HIDDEN TESTS

# %% experiment
try:
    eight = ranks.run_ranks(four_passes, 2, batch, {"8 bits, fed back": lambda: ({}, int8_hook)})[0]
    lesson.table(
        [(way, r.count("all_reduce"), r.bytes("all_reduce")) for way, r in eight.items()],
        ["four backward passes", "all-reduces", "bytes"],
        evidence="live (CPU)",
    ).show()
except ranks.RankError as odd:
    print("your hook, once it is written" if odd.kind == "NotImplementedError" else odd)

# %% [markdown]
# ## The same with the tools
#
# Outside of a notebook ranks are started by **torchrun**. It runs a script in n processes and tells each who it is by
# environment variables, which `init_process_group` reads. This cell writes a script; in a terminal in the folder
# `script.parent`, the line it prints starts it (on two machines, on both: `--nnodes 2 --rdzv-backend c10d --rdzv-id 1
# --rdzv-endpoint host:port` instead of `--standalone`; untested here). It takes some seconds: each process imports torch.

# %% experiment tags=["nbval-ignore-output"]
import subprocess
import sys
import tempfile
from pathlib import Path

script = Path(tempfile.mkdtemp()) / "train.py"
script.write_text("""\
import os
import torch
import torch.distributed as dist
from torch import nn

cards = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cards else torch.device("cpu")
if cards:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if cards else "gloo")
torch.manual_seed(dist.get_rank())                                    # other samples on each rank
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1).to(device))  # the same weights: rank 0's
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(16, 8, device=device)
    loss = (model(x).squeeze(1) - x.sum(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
own = model.module.weight.detach()
total = own.clone()
dist.all_reduce(total)
if dist.get_rank() == 0:
    n = dist.get_world_size()
    print(n, "ranks, equal weights on all:", torch.allclose(total / n, own))
dist.destroy_process_group()
""")
print("torchrun --standalone --nproc-per-node 2 train.py")
run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
environment = os.environ | {"OMP_NUM_THREADS": "1"}
try:
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=120, check=False)
    print(done.stdout.strip() or "it did not run here; its last words: " + done.stderr.strip()[-300:])
except subprocess.TimeoutExpired:
    print("torchrun had not finished after two minutes here")

# %% [markdown]
# **Accelerate** (Hugging Face) wraps the same in three lines: `Accelerator()`, `prepare(…)`, `accelerator.backward(loss)`. It is
# part of the extra `models` (`make lab EXTRAS=models`). Without it you lose only the next table.


# %% experiment tags=["nbval-ignore-output"]
import importlib.util


def accelerated(batch):
    # torchrun would have set them; nobody connects
    os.environ |= {"MASTER_PORT": "29500", "OMP_NUM_THREADS": "1"}
    from accelerate import Accelerator

    model = layers()
    accelerator = Accelerator(cpu=True)
    prepared, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    mine = batch.chunk(dist.get_world_size())[dist.get_rank()]
    for _ in range(3):
        optimizer.zero_grad()
        with ranks.sent(model) as record:
            accelerator.backward(prepared(mine).square().mean())
    return type(prepared).__name__, record.count("all_reduce"), record.bytes("all_reduce")


by_accelerate = None
if importlib.util.find_spec("accelerate") is None:
    print("accelerate is not installed here (`make lab EXTRAS=models`)")
else:
    by_accelerate = ranks.run_ranks(accelerated, 2, batch)[0]
    lesson.table(
        [("DistributedDataParallel, part 1", third.count("all_reduce"), third.bytes("all_reduce")),
         (f"Accelerate, a {by_accelerate[0]}", *by_accelerate[1:])],
        ["third step", "all-reduces", "bytes"],
        evidence="live (CPU)",
    ).show()  # fmt: skip

# %% [markdown]
# ## On the real GPU
#
# No run on several GPUs has been recorded for this lesson: the tables above are of real processes on a CPU and of the simulated
# H100, and say so. With two GPUs or more, `ranks.run_ranks` gives rank r the GPU r, and the cell below times
# all-reduces over your own link and works out its α and β.


# %% experiment tags=["nbval-ignore-output"]
def time_all_reduce(sizes):
    told = {}
    for size in sizes:
        x = torch.zeros(size // 4, device=torch.device("cuda", dist.get_rank()))
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for i in range(25):
            if i == 5:
                begin.record()
            dist.all_reduce(x)
        end.record()
        end.synchronize()
        told[size] = begin.elapsed_time(end) / 20 / 1e3
    return told


cards = torch.cuda.device_count()
if cards > 1:
    small, large = 4_000, 400_000_000
    took = ranks.run_ranks(time_all_reduce, cards, [small, large])[0]
    rate = ranks.wire_bytes("all_reduce", large - small, cards) / (took[large] - took[small])
    lesson.table(
        [(f"≈ {took[small] / (2 * (cards - 1)) * 1e6:.1f} µs", f"≈ {rate / 1e9:.0f} GB/s")],
        ["α, if by ring", "1 / β"],
        evidence="live (GPU)",
        caption=f"{cards} GPUs: {small:,} bytes in ≈ {took[small] * 1e6:,.0f} µs, {large:,} in ≈ {took[large] * 1e3:,.1f} ms",
    ).show()  # fmt: skip
else:
    print("fewer than two GPUs here: nothing to time")

# %% [markdown]
# ## Sources on trial

# %% experiment tags=["nbval-ignore-output", "fold"]
SENT, TAKES, HIDE, LESS, TOOLS = (
    "1 · What is sent",
    "2 · What it takes: α and β",
    "3 · Hide it: buckets and overlap",
    "4 · Send less often, and less",
    "The same with the tools",
)
limits = sum(
    "device" in line and "8" in line
    for line in inspect.getsource(nn.DataParallel).splitlines()
    if "if " in line
)
efficiency = {key: alone_s / took for key, took in paid.items()}
slower = all(copying[n, way] > summing[n] for n in summing for way in ("star", "ring"))
default, lump = plans[64, "default"], plans[64, "all in one"]
fewer = len(default.buckets) < len(explorer.backward.gradients) and default.exposed_s < lump.exposed_s
size_of = {way: r.bytes("all_reduce") for way, r in sending.items()}
falls = efficiency[8, "uneven"] > efficiency[64, "uneven"] > efficiency[1024, "uneven"]
same = by_accelerate == ("DistributedDataParallel", third.count("all_reduce"), third.bytes("all_reduce"))
rows = [
    (
        "14-eight-cards",
        "five-strategies",
        "DataParallel scales to 8 cards, DDP to a thousand",
        f"{limits} limits of 8 in its source; weights and gradients over PCIe at 2 → 8 cards, copy by copy {copying[2, 'star'] * 1e3:.0f} → "
        f"{copying[8, 'star'] * 1e3:.0f} ms, by ring {copying[2, 'ring'] * 1e3:.0f} → {copying[8, 'ring'] * 1e3:.0f}, DDP {summing[2] * 1e3:.0f} → "
        f"{summing[8] * 1e3:.0f}; DDP at 1,024, 8 layers: {efficiency[1024, 'DDP']:.0%}",
        "holds when 8 stands for one machine's cards; but DataParallel sends more, and none of it hidden, from 2 cards on"
        if slower and not limits
        else "refuted",
        SENT,
    ),
    (
        "14-ddp-table",
        "five-strategies",
        "DataParallel: one process, many threads, starts simply; DDP: many processes, needs a launch script",
        f"parallel_apply starts {'threads' if threads else 'no threads'}; DDP ran in {third.world_size} processes, started by a cell of this "
        "notebook, and by torchrun",
        "holds when the processes are meant; a script is the usual way and not a need"
        if threads
        else "refuted",
        TOOLS,
    ),
    (
        "14-topology",
        "book-notes",
        "collectives that follow the topology are cheaper",
        f"{2 * GPT2 / MB:.0f} MB among 64 in nodes of 8: one ring {by_way['ring'] * 1e3:.1f} ms, the node first {by_way['hierarchical'] * 1e3:.1f}",
        "confirmed" if by_way["hierarchical"] < min(by_way["ring"], by_way["tree"]) else "refuted",
        TAKES,
    ),
    (
        "14-buckets",
        "book-notes",
        "DDP groups gradients into few messages, and sends the first while backward runs",
        f"GPT-2 at 64: {len(explorer.backward.gradients)} gradients in {len(default.buckets)} messages, "
        f"{default.exposed_s * 1e6:,.0f} of {default.communication_s * 1e6:,.0f} µs exposed; all in one: {lump.exposed_s * 1e6:,.0f}",
        "confirmed" if fewer else "refuted",
        HIDE,
    ),
    (
        "14-nodes",
        "book-notes",
        "more nodes: more latency, and unstable parts weigh more",
        f"efficiency {efficiency[8, 'DDP']:.0%} → {efficiency[1024, 'DDP']:.0%} from 8 to 1,024 ranks; with uneven kernels "
        f"{efficiency[8, 'uneven']:.0%} → {efficiency[1024, 'uneven']:.0%}; one slow rank of 64: {efficiency[64, 'slow']:.0%}",
        "confirmed" if falls else "refuted",
        HIDE,
    ),
    (
        "14-compression",
        "book-notes",
        "compressing gradients (quantized, sparse, low rank) lowers what is sent",
        f"four passes: {size_of['plain']:,} bytes plain, {size_of['16 bits']:,} in 16 bits, {size_of['rank-1 factors']:,} as rank-1 factors in "
        f"{sending['rank-1 factors'].count()} messages and not {sending['plain'].count()}; sparse: not tried. 10,000 numbers over NVLink: "
        f"{by_bits['10,000 numbers, NVLink 4']} is faster than int8",
        "holds when bytes, and not messages, are what takes the time"
        if max(size_of["16 bits"], size_of["rank-1 factors"]) < size_of["plain"]
        else "refuted",
        LESS,
    ),
    (
        "14-accelerate",
        "book-notes",
        "Accelerate does the same as DDP, with more optimizations",
        f"the model is a {by_accelerate[0]}; {by_accelerate[1]} all-reduce of {by_accelerate[2]:,} bytes, DDP's own; other "
        "optimizations were not tried"
        if by_accelerate
        else "not installed here",
        "untested"
        if by_accelerate is None
        else "confirmed for what is sent; the rest is untested"
        if same
        else "refuted",
        TOOLS,
    ),
]
lesson.verdicts(rows, evidence="live (CPU) · simulated (H100) · arithmetic")

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | An all-reduce by ring puts 2(n − 1)/n · S on each link: at most 2 S, however many ranks. | Small S or many ranks: then 2(n − 1) messages count, and trees win. |
# | Hide it behind backward. | The last bucket never is; where sending takes longer than backward, the difference is exposed. |
# | DDP's default buckets, 1 MiB and then 25. | The optimum is flat as a share of the step; at 1,024 ranks small buckets queue up: measure. |
# | The mean of the ranks' gradients is the whole batch's. | Unequal parts; losses that are not means over samples; layers that look at the batch (BatchNorm: `SyncBatchNorm`). |
# | Accumulate with `no_sync` to send less often. | The batch grows with it. |
# | Compress, and feed the error back. | Few bytes: the extra messages cost more than the bytes saved. |
# | n GPUs, n times the work. | Everybody waits for the slowest, and for the slowest link. |
#
# **Checklist for your own code**
# - [ ] How many bytes of gradients, over which link: what must it take (α, β), and what does backward take?
# - [ ] Is there a gap after backward on the timeline? Is it the last bucket, or all of them?
# - [ ] Does every rank use every parameter? If not, torch's DDP must be told: `find_unused_parameters=True`.
# - [ ] Accumulating: forward *and* backward of all but the last part under
#   [`no_sync`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/parallel/distributed.py#L1659-L1680), and each
#   loss divided by their number?
# - [ ] Does each rank read other samples (`DistributedSampler`, and `set_epoch(epoch)` every epoch)? Does rank 0 alone save?
# - [ ] Are all ranks equally fast? A rank that never waits in a collective is the slow one.
#
# **Read on**: S. Li and others, *PyTorch Distributed: experiences on accelerating data parallel training* (2020), and PyTorch's
# note *Distributed Data Parallel*; P. Patarasuk and X. Yuan, *Bandwidth optimal all-reduce algorithms for clusters of
# workstations* (2009); T. Vogels and others, *PowerSGD* (2019), and S. P. Karimireddy and others, *Error feedback fixes SignSGD*
# (2019); NVIDIA's *nccl-tests*, doc/PERFORMANCE.md. The model itself does not fit? Lesson 15.
