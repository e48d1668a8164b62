# %% [markdown]
# # 14 · Data parallel
#
# ## What does the second GPU cost?
#
# Give each GPU a copy of the model and its own part of the batch. Before each step, bring the gradients of all GPUs together. This is data
# parallelism. Its price: in every step the gradients cross a link that is much slower than a GPU's memory. Real processes show what is
# sent; simulated H100s, how long it takes.
#
# **Time** 60 min, 22 of them for two exercises; *Further*: 119 min, 55 of them for two more. **Before this** lessons 02 (autograd) and
# 05 (overlap).
#
# **Afterwards you can**
# - say what an all-reduce puts on a link, and how long it takes;
# - write a ring all-reduce from sends and receives;
# - read off a timeline which communication the step waits for, and choose the bucket size that hides most.

# %% setup
import os

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # DDP's remarks on devices it does not know

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from helpers import lesson, plots, ranks, widgets
from helpers.lessons.data_parallel import experiments

torch.set_num_threads(1)  # small tensors: more threads would mostly wait for one another
lesson.start("14_data_parallel", evidence=["live (CPU)", "simulated (H100)", "arithmetic"])

# %% [markdown]
# ## 1 · What is sent
#
# A **rank** is one of several processes that know of each other. Ranks speak in
# [**collectives**](https://docs.pytorch.org/docs/stable/distributed.html#collective-functions), calls that all of them make:
#
# - **all-reduce**: each gives a tensor, and each gets the sum of all;
# - **broadcast**: all get what one has;
# - **all-gather**: all get everybody's tensors, side by side.
#
# A library carries them out: *gloo* between CPUs, NVIDIA's [*NCCL*](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/index.html)
# between GPUs. `ranks.run_ranks(f, 2)` runs `f` in two processes, and `ranks.sent()` writes down what a rank gives to collectives. Two
# ranks train a model of 4 linear layers, each with a weight and a bias. They use torch's
# [`DistributedDataParallel`](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html) (DDP), each
# on half of the batch. What does one rank give in its third step?

# %% experiment
you = lesson.predict(
    {
        "numbers given to all-reduces, against the parameters": ...,
        "all-reduces in the step": ...,
        "weights given to collectives": ...,
        "the gradients are those of one process with the whole batch": ...,
    },
    choices={
        "numbers given to all-reduces, against the parameters": ["half as many", "as many", "twice as many"],
        "all-reduces in the step": ["1", "4, one a layer", "8, one a parameter"],
        "weights given to collectives": ["none", "all"],
        "the gradients are those of one process with the whole batch": ["yes", "no"],
    },
)


# %% experiment
def train(batch):
    model, records = experiments.layers(), {}
    with ranks.sent() as records["DDP(model)"]:
        ddp = nn.parallel.DistributedDataParallel(model)
    mine = batch.chunk(dist.get_world_size())[dist.get_rank()]  # this rank's half
    for step in (1, 2, 3):
        model.zero_grad()
        with ranks.sent(model) as records[f"step {step}"]:
            ddp(mine).square().mean().backward()
    return [p.grad for p in model.parameters()], records


grads, records = ranks.run_ranks(train, 2, experiments.batch())[0]
third, parameters = records["step 3"], sum(g.numel() for g in grads)
lesson.keep(parameters=parameters, third_bytes=third.bytes("all_reduce"))
answers = [
    experiments.times_many(third.bytes("all_reduce") // 4, parameters),
    experiments.calls_in_words(third),
]
answers += ["all" if third.bytes("broadcast") else "none", experiments.same_gradients(grads)]
measured = dict(zip(you, answers, strict=True))
you.against(measured, experiments.records_table(records), evidence="live (CPU)")

# %% [markdown]
# One all-reduce carries all {{parameters:,}} gradients, {{third_bytes:,}} bytes of float32, because all fit into one bucket (section 3).
# The copies of the model begin equal, because DDP gives all ranks the weights of rank 0. They stay equal, because each takes its step
# with the same gradients. Each rank divides its gradients by the number of ranks before they are added up, so the sum is a mean: **the
# mean of two means over 16 samples is the mean over 32**. (Unequal parts break this. A model with BatchNorm sends more: *Further*.) In
# step 2 rank 0 says in which order its gradients came: DDP groups them in that order.

# %% [markdown]
# ## 2 · What it takes: α and β
#
# A message over a link takes a fixed time **α**, and then **β** for each byte (1 ÷ bandwidth). NVLink 4, inside a node: {{nvlink_us:.1f}}
# µs, and {{nvlink_gbs:.0f}} GB/s. InfiniBand NDR, between nodes: {{ndr_us:.1f}} µs, and {{ndr_gbs:.0f}} GB/s. (NCCL's α of 2020 for a step
# of its ring; [since 2.18](https://github.com/NVIDIA/nccl/blob/5067397c2676d5aed50042fc39e5c8ee96eb0027/src/graph/tuning.cc#L157-L171) 14
# µs between nodes.) There are two ways to make an all-reduce of S bytes among n ranks:
#
# - **Ring.** Cut the tensor into n pieces. In each step, every rank sends one piece to its right neighbour and receives one from its
#   left. After n − 1 steps, each piece is summed up on one rank. After n − 1 more, all ranks have all sums. Each rank sends 2(n − 1)
#   messages of S/n bytes, one after the other: 2(n − 1)(α + β S/n).
# - **Tree.** The ranks stand in a tree of log₂ n levels. Each adds what it receives from below, and sends the sum up. The whole sum goes
#   down the same way. All levels send at once, in small pieces. A rank with two below it sends 3 S: one S up, two down. A rank with none
#   sends S. So NCCL uses two trees, each for half of the tensor. Who has ranks below it in one has none in the other, and sends 3 S/2 +
#   S/2 = 2 S: about 2 α log₂ n + 2 β S.

# %% experiment
nvlink, ndr = ranks.LINKS["NVLink 4"], ranks.LINKS["InfiniBand NDR"]
lesson.keep(nvlink_us=1e6 * nvlink.latency_s, nvlink_gbs=nvlink.bytes_per_s / 1e9)
lesson.keep(ndr_us=1e6 * ndr.latency_s, ndr_gbs=ndr.bytes_per_s / 1e9)
experiments.ring_steps(4)

# %% [markdown]
# Take 1,024 GPUs in place of 8, in one ring over InfiniBand NDR. By what factor does each of the first three grow? And which way is
# faster?

# %% experiment
you = lesson.predict(
    {
        "the bytes that each GPU sends": ...,
        "the time of 1 GB": ...,
        "the time of 1 MB": ...,
        "faster for 1 GB among 8 GPUs": ...,
        "faster for 1 MB among 1,024 GPUs": ...,
    },
    choices={
        "the bytes that each GPU sends": ["less than 2 times", "2 to 20 times", "more than 20 times"],
        "the time of 1 GB": ["less than 2 times", "2 to 20 times", "more than 20 times"],
        "the time of 1 MB": ["less than 2 times", "2 to 20 times", "more than 20 times"],
        "faster for 1 GB among 8 GPUs": ["ring", "tree"],
        "faster for 1 MB among 1,024 GPUs": ["ring", "tree"],
    },
)


# %% experiment
def takes(size, n, way="ring"):
    return ranks.seconds("all_reduce", size, n, "InfiniBand NDR", way)


MB, GB = 10**6, 10**9
sent = {n: ranks.wire_bytes("all_reduce", GB, n) for n in (8, 1024)}
grows = [sent[1024] / sent[8], takes(GB, 1024) / takes(GB, 8), takes(MB, 1024) / takes(MB, 8)]
faster = [min(("ring", "tree"), key=lambda way: takes(size, n, way)) for size, n in ((GB, 8), (MB, 1024))]
measured = dict(zip(you, [*map(experiments.in_range, grows), *faster], strict=True))
you.against(measured, experiments.ways_table(takes), evidence="arithmetic")

# %% [markdown]
# The **bytes** of a ring hardly depend on n. A rank sends 2(n − 1)/n · S, never more than 2 S. No all-reduce made of sends lets its
# busiest rank send less ([Patarasuk and Yuan, 2009](https://doi.org/10.1016/j.jpdc.2008.09.002)).
#
# The **messages** of a ring do depend on n: there are 2(n − 1), one after the other. So a ring is best for much data among few ranks.
# Among 1,024 it takes 2,046 steps, and the tree 20. For 1 MB the tree would be faster even if its α were fifty times as large. NCCL
# estimates these and other ways, each with its own α, and takes the fastest
# ([tuning.cc](https://github.com/NVIDIA/nccl/blob/master/src/graph/tuning.cc)). (Real links are slower, and shared.)
#
# Two rules follow. **Few large messages are faster than many small ones**, because each costs its α. **A message cannot begin before its
# last number is there**, so one very large message begins late.

# %% [markdown]
# **Exercise 14.1 — a ring all-reduce from sends and receives** (★★★, 12 min)
#
# Write what the picture shows. Number the pieces 0 … n − 1, and the steps s = 0 … 2n − 3 (the picture counts from 1). In step s, rank r
# sends piece (r − s) mod n and receives piece (r − s − 1) mod n.
#
# If ranks wait for ever, the test ends them, and says where each one waits. To see what they print, call `ranks.run_ranks(ring_all_reduce,
# 3, torch.ones(6))`.
#
# <details><summary>Hint 1</summary>Up to step n − 2 a rank adds what it receives. Then piece (r + 1) mod n is complete on rank r, and the
# numbering goes on with just this piece. From now on a received piece replaces the old one.</details>
#
# <details><summary>Hint 2</summary>If every rank first sends and then receives, all may wait for ever. Begin both
# (<code>dist.isend</code>, <code>dist.irecv</code>), then wait for both. The tensor that receives must be contiguous, and must not
# overwrite the piece to which its numbers are added.</details>
#
# <details><summary>The idea</summary><code>x.view(-1).tensor_split(n)</code> gives n views, of unequal lengths if need be. In each of the
# 2(n − 1) steps send one and receive one, as numbered above. While s &lt; n − 1, receive into a spare tensor and add; afterwards receive
# straight into the view.</details>


# %% exercise="ring_all_reduce"
def ring_all_reduce(x: torch.Tensor) -> None:
    """Sum x over all ranks, in place: afterwards every rank's x holds the same sums.

    x: contiguous, of any shape and floating dtype (16 bits too), perhaps a part of a longer tensor, whose rest stays as it is;
        with the same shape on each of the n ranks and at least n numbers, not always a multiple of n.
        n = dist.get_world_size(), which may be 1.

    Runs on every rank. By sends and receives only (dist.isend, dist.send, dist.batch_isend_irecv, …), each
    to the right neighbour (rank + 1) mod n. Graded on what is sent: by each rank at most 2 (n − 1) messages, of
    together at most 2 (n − 1) ⌈numel / n⌉ numbers of x's dtype; by all ranks together exactly 2 (n − 1) numel.
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
from helpers.lessons.data_parallel.exercises import check_ring_all_reduce

check_ring_all_reduce(check.case(3, [((6,), "float32"), ((2, 2), "float32")]))


# %% hidden="ring_all_reduce" points=3
### BEGIN HIDDEN TESTS
from helpers import check
from helpers.lessons.data_parallel.exercises import check_ring_all_reduce

check_ring_all_reduce(
    check.case(4, [((23,), "float32"), ((5, 7), "float64"), ((5,), "float32"), ((3, 7), "bfloat16")]),
    check.case(1, [((9,), "float32"), ((), "float16")]),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · Hide it: buckets and overlap
#
# Backward computes the gradient of the last layer first. So send early. But do not send each gradient by itself, because each all-reduce
# costs its α. DDP collects gradients in **buckets**, in the order in which they come, about the reverse of the model's. By default the
# first is full with 1 MiB, so that sending begins early, and the others with 25 MiB. When a bucket is full, its all-reduce starts on a
# stream of its own, and backward goes on. What still runs when backward has ended is **exposed**: the step waits for it.
#
# Eight linear layers of 4,096 × 4,096 in bf16, on one of 64 simulated H100s. Each layer's gradient has 32 MiB, and so fills a bucket. The
# step twice: all gradients in one message after backward, and with DDP.


# %% experiment
def lump(model):
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(flat)  # one message, after backward
    for grad, total in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
        torch.div(total.view_as(grad), dist.get_world_size(), out=grad)


runs = {
    "in one message": experiments.step_on(64, None, lump),
    "DDP": experiments.step_on(64, nn.parallel.DistributedDataParallel),
}
lesson.keep(lump_ms=1e3 * runs["in one message"].seconds, ddp_ms=1e3 * runs["DDP"].seconds)
timelines = {name: (run.gpu, run.began_s) for name, run in runs.items()}
plots.compared(timelines, title="One step on rank 0 of 64: kernels, all-reduces, exposed time")

# %% [markdown]
# DDP sends the same bytes in eight messages, and takes {{ddp_ms:.1f}} ms in place of {{lump_ms:.1f}}. Exposed (the lowest bar) is most of
# message 8: backward is over when it starts. The last blue piece copies its means back into the gradients; the others were copied beside
# messages. DDP's long blue bar is longer: all-reduces take part of the GPU from the kernels, and DDP copies.
#
# How large should a bucket be? On fast links little depends on it (*Further*). Now a slow one: nodes of 8 GPUs joined by Ethernet of 25
# Gbit/s. A step of GPT-2 takes {{slow_alone_ms:.0f}} ms without sending, and makes {{slow_mb:.0f}} MB of gradients. Which waits less,
# buckets of 1 MiB or all in one? How much longer is the step with DDP's default?

# %% experiment
you = lesson.predict(
    {
        "16 ranks: waits less": ...,
        "64 ranks: waits less": ...,
        "64 ranks, default: the step is longer by": ...,
    },
    choices={
        "16 ranks: waits less": ["1 MiB", "all in one"],
        "64 ranks: waits less": ["1 MiB", "all in one"],
        "64 ranks, default: the step is longer by": ["1 to 5 %", "5 to 25 %", "more than 25 %"],
    },
)

# %% experiment
answers = [experiments.waits_less(n, "1 MiB", "all in one") for n in (16, 64)]
answers += [experiments.longer(experiments.slow_plan(64, "default"))]
alone_ms, lump_ms, window_ms, mb = experiments.slow_numbers()
lesson.keep(slow_alone_ms=alone_ms, slow_lump_ms=lump_ms, slow_window_ms=window_ms, slow_mb=mb)
you.against(dict(zip(you, answers, strict=True)), experiments.slow_table(), evidence="simulated (H100)")

# %% [markdown]
# Among 16 ranks all in one is worse: nothing hides. Among 64, 1 MiB is worse: an all-reduce takes more messages there, and each small
# bucket pays for them. But no size saves the step. Even one message takes {{slow_lump_ms:.0f}} ms among 64, and the gradients come within
# the last {{slow_window_ms:.0f}} ms of backward. **What does not fit into these is exposed**, whatever the buckets. Then send less
# (*Further*). Does any size beat the default?
#
# **Exercise 14.2 — choose the bucket size** (★★, 10 min)
#
# Find the bucket size, of all sizes, with which the last all-reduce ends earliest.
#
# <details><summary>Hint 1</summary>First compute the end for one size. Go through the gradients, and close a bucket with the gradient
# with which it reaches the size. Send the bucket when it is full <em>and</em> the bucket before it has been sent.</details>
#
# <details><summary>Hint 2</summary>There are infinitely many sizes, but few different ways to cut. A slightly larger size makes another
# cut only when it passes the sum of some gradients that follow one another.</details>
#
# <details><summary>The idea</summary>The candidates are the sums of <code>sizes[i:j]</code> for all i &lt; j.
# Compute the end for each, and take the size with the smallest.</details>


# %% exercise="choose_cap"
def choose_cap(sizes: list[int], ready_s: list[float], message_s: float, byte_s: float) -> int:
    """The bucket size, in bytes above 0, with which the gradients have all been summed soonest.

    sizes: bytes of each gradient, above 0, in the order of backward. ready_s: when each is there, in seconds, never
        decreasing. An all-reduce of b bytes takes message_s + b · byte_s, one after the other.

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
from helpers.lessons.data_parallel.exercises import check_choose_cap

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

from helpers.lessons.data_parallel.exercises import check_choose_cap, sent_with


def step_of(seed, n, message_s, byte_s):
    made = random.Random(seed)
    sizes = [made.choice((made.randrange(1000, 50000), made.randrange(10**5, 10**7))) for _ in range(n)]
    return sizes, list(accumulate(made.random() * 5e-4 for _ in range(n))), message_s, byte_s


def best_of(sizes, *rest):
    sums = {sum(sizes[i:j]) for i in range(len(sizes)) for j in range(i + 1, len(sizes) + 1)}
    return min(sums, key=lambda cap: sent_with(cap, sizes, *rest))


links = (
    (1, 1, 1e-4, 1e-10),
    (2, 40, 3e-4, 5e-11),
    (31, 40, 3e-4, 5e-11),
    (56, 40, 8e-4, 1e-10),
    (7, 70, 5e-2, 1e-11),
)
steps = [step_of(*given) for given in links]
some, late = [3_000_000, 1_000, 2_000_000, 40_000] * 5, [0.0] * 10 + [2e-3] * 10
# all at once; free messages; free bytes
steps += [(some, [0.0] * 20, 2e-4, 1e-10), (some, late, 0.0, 1e-10), (some, late, 1e-4, 0.0)]
check_choose_cap(steps, best=[best_of(*step) for step in steps])
### END HIDDEN TESTS

# %% [markdown]
# Your search on the same step:

# %% experiment
experiments.caps_table(choose_cap)

# %% [markdown]
# Among 16 ranks the best size gains a little, among 64 next to nothing. (Yours is not quite the best there: the simulated all-reduce is no
# straight line.)

# %% [markdown]
# ## 4 · What is left of n GPUs
#
# The eight layers once more, with DDP. Each GPU has a batch of its own, so 100 % means "n GPUs do n times the work". Without DDP a step
# takes {{alone_ms:.1f}} ms. DDP sends, and it copies: each gradient into its bucket, and each mean out again. *Uneven kernels* take more
# or less time, at random, typically by 10 %. With *one slow rank*, the kernels of 1 rank of 64 take 1.5 times as long. How much is left?

# %% experiment
you = lesson.predict(
    {"2 GPUs": ..., "1,024 GPUs": ..., "1,024 GPUs, uneven kernels": ..., "64 GPUs, one slow rank": ...},
    choices=["over 95 %", "80 to 95 %", "65 to 80 %", "under 65 %"],
)

# %% experiment
DDP, slow = nn.parallel.DistributedDataParallel, experiments.one_slow(64)
tried = [experiments.step_on(2, DDP), experiments.step_on(1024, DDP), experiments.uneven(1024), slow]
left = [experiments.left(run) for run in tried]
lesson.keep(left_2=left[0], left_1024=left[1], left_uneven=left[2], left_slow=left[3])
lacks, copies, _, shared = experiments.points_of_2()
lesson.keep(all_points=lacks, copy_points=copies, share_points=shared)
lesson.keep(
    alone_ms=1e3 * experiments.alone().seconds, left_views=experiments.left(experiments.with_views(2))
)
picture = plots.overlapped(slow.gpu, since_s=slow.began_s, title="Rank 0, while rank 3 of 64 is slow")
measured = dict(zip(you, map(experiments.share, left), strict=True))
you.against(measured, experiments.efficiency_table(lump), picture, evidence="simulated (H100)")

# %% [markdown]
# **With two GPUs** {{left_2:.0%}} is left. Of the missing {{all_points:.0f}} points, DDP's copies take {{copy_points:.0f}}. The other
# {{share_points:.0f}}: collectives are kernels, too, and take part of the GPU. (The last all-reduce hides behind copies.) **So the second
# GPU costs more for copies than for the link.** With `gradient_as_bucket_view=True` nothing is copied out: {{left_views:.0%}}. Beyond 8
# GPUs the slower link between nodes is added. From 64 to 1,024 a GPU sends hardly a byte more, only more messages: {{left_1024:.0%}}.
#
# With uneven kernels all ranks wait in each all-reduce for the slowest one: {{left_uneven:.0%}}. One slow GPU makes all others slow:
# {{left_slow:.0%}}. How do you find it? On the timeline of every *other* rank, such as this one, the collectives are long, because they
# wait (pale). **The rank whose collectives are shortest is the slow one.**

# %% [markdown]
# ## The running example
#
# Below are lesson 10's script on one simulated H100 and on each of eight, which average their gradients. Both run without its CUDA graph,
# because the simulated GPU captures no collectives. The losses come from two real processes, with the same batch, so they have to stay
# the same.

# %% experiment
from helpers import running_example


def data_parallel(model, gpu):
    return nn.parallel.DistributedDataParallel(model)


before = running_example.after("10")
spread = before.replace(prepare=data_parallel)
board = running_example.compare(before, spread, ranks=(1, 8), tolerance=1e-3)
lesson.keep(script_launches=board.before.launches, script_launches_now=board.after.launches)
lesson.keep(script_sent=board.after.sent_bytes / 2**20)
lesson.keep(script_slower=board.after.step_s / board.before.step_s - 1)
lesson.keep(script_tokens=8 * board.before.step_s / board.after.step_s)
board

# %% [markdown]
# A step takes {{script_slower:.0%}} longer, but eight GPUs take eight batches in that time: {{script_tokens:.1f}} times as many tokens a
# second. Each GPU gives {{script_sent:.1f}} MiB a step to all-reduces, a float32 gradient for each weight (a ring puts up to
# twice as much on the link). It launches {{script_launches_now:.0f}} times in place of {{script_launches:.0f}}:
# DDP copies, and this step waits for launches already. Try `gradient_as_bucket_view=True` and `batched_grad_copy=True` above.

# %% [markdown]
# ## Your own script
#
# A **comm hook** is a function of yours in place of DDP's all-reduce of a bucket. `allreduce_hook` does what DDP does.
# [`noop_hook`](https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html) sends nothing, so the difference between the two medians below
# (without the optimizer) is the most that sending less can gain (copies: section 4). Is it small? Leave the buckets alone. Is it large?
# Compare the bytes of gradients with your link (section 2). Then accumulate with `no_sync` (fewer optimizer steps, larger batches), send 16
# bits (both in *Further*), or try other buckets, in this order. Do the ranks differ without sending? First look for the slow one.

# %% experiment
from helpers.own_script import toy

model, optimizer, loss_fn, loader, device, step = toy()  # at home: your own

from itertools import islice
from statistics import median
from time import perf_counter

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel


def compare(model, loss_fn, loader, device):
    now, took = {}, {allreduce_hook: [], noop_hook: []}
    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(now, lambda now, bucket: now["hook"](None, bucket))
    for x, y in islice(loader, 100):
        for now["hook"] in took:  # in turn
            ddp.zero_grad()
            dist.barrier()  # all begin together
            began = perf_counter()
            (loss := loss_fn(ddp(x.to(device)), y.to(device))).backward()
            loss.item()  # waits for the GPU
            took[now["hook"]].append(1e3 * (perf_counter() - began))
    print(dist.get_rank(), *(f"{hook.__name__} ≈ {median(ms):.2f} ms" for hook, ms in took.items()), sep=", ")


from helpers import ranks

_ = ranks.run_ranks(compare, 2, model, loss_fn, loader, device)  # at home: see below

# %% [markdown]
# Sending takes most of the toy's step, and not for the bytes of its (16 + 1) · 32 + (32 + 1) · 4 = 676 gradients. What is left is α (gloo's
# calls) and waiting for the other process.
#
# At home, put `dist.init_process_group()` and `compare(model, loss_fn, loader, device)` in place of the last two lines. On GPUs, begin
# the script with `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))`. Else all ranks take the first GPU, and NCCL refuses. Then:
#
# ```bash
# torchrun --standalone --nproc-per-node 2 train.py
# ```

# %% [markdown]
# ## Sources on trial
#
# Two claims that matter here. Lesson 18 has six more.

# %% experiment tags=["nbval-ignore-output"]
from helpers.lessons.data_parallel import claims

shown = ("14-buckets", "14-nodes")
lesson.verdicts(claims.on_trial(), evidence="live (CPU) · simulated (H100) · arithmetic", shown=shown)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | An all-reduce by ring puts 2(n − 1)/n · S on each link, at most 2 S. | Small S or many ranks: messages count, and a tree is faster. |
# | Hide sending behind backward. | The last bucket does not; nor does what takes longer than the gradients take to come. |
# | Keep DDP's default buckets. | Another size may gain a little: measure. On a slow link, send less. |
# | The mean of the ranks' gradients is that of the whole batch. | Unequal parts; losses that are no means over samples; BatchNorm. |
# | n GPUs do n times the work. | DDP copies; everybody waits for the slowest rank, and for the slowest link. |
#
# **Read on**: [Li and others, 2020](https://arxiv.org/abs/2006.15704), how DDP was made;
# [nccl-tests](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md), to measure your own links. The model does not fit one
# GPU? Lesson 15.

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# | section | minutes |
# |---|---|
# | A DistributedDataParallel, with exercise 14.3 | 55 |
# | Which bucket size? | 7 |
# | When DDP divides, and what BatchNorm sends | 4 |
# | Who is joined to whom | 5 |
# | DataParallel | 2 |
# | Send less often, and less, with exercise 14.4 | 40 |
# | torchrun and Accelerate | 6 |
#
# Each section rests on the set-up cell alone.
#
# ### A DistributedDataParallel
#
# Now write the class itself. What you have seen so far is its specification.
#
# **Exercise 14.3 — a DistributedDataParallel** (★★★★, 35 min)
#
# The training loop will be `ddp(x)…backward()`, then `ddp.finish()`, then the optimizer. When several small batches make one step, all
# but the last go under `with ddp.no_sync():`, because nothing needs to be sent before the gradients are complete.
#
# <details><summary>Hint 1</summary><code>p.register_post_accumulate_grad_hook(f)</code> calls <code>f(p)</code> when the gradient of p
# is complete <em>and</em> added to <code>p.grad</code>. So what <code>no_sync</code> has collected is in it already. Count down what each
# bucket still lacks; at 0 it can be sent.</details>
#
# <details><summary>Hint 2</summary>The hook of a parameter that one rank did not use never fires on that rank. If this rank now skips the
# bucket and sends the next one, the two ranks add up different buckets, or wait for each other for ever. So all ranks send buckets in the
# same order, 0, 1, 2, …: a full bucket waits for those before it, and <code>finish</code> sends what was held up, with zeros where there
# is no gradient.</details>
#
# <details><summary>The idea</summary><code>_ready(p)</code>: unless in <code>no_sync</code>, lower the count of p's bucket; while
# the count of the next bucket to be sent is 0: <code>_send()</code>, that is <code>flat = torch.cat(gradients)</code>,
# <code>work = dist.all_reduce(flat, async_op=True)</code>, keep both. <code>finish</code>: send the rest, wait for each, divide by n, copy
# the pieces of <code>flat</code> back into the gradients, set all counts again.</details>


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
    finish(): called after each backward outside no_sync. Sends what is left (a parameter without a gradient counts as
    zeros), waits, and leaves in each p.grad (p.requires_grad) the mean over the ranks. Frozen parameters get none and are
    not sent.
    no_sync(): a context; a backward within sends nothing, and its gradients stay in p.grad, to be added to and sent by the next
    backward outside, also of a parameter that this one does not use.

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
from helpers.lessons.data_parallel.exercises import Training, check_BucketedDDP

check_BucketedDDP(
    2,  # ranks; then of each run: bytes of a bucket, (steps, parts, samples, 6), which ranks use `rare`,
    Training(1100, (2, 1, 4, 6), [True, True], buckets=[4, 3]),  # and how many parameters are in each bucket
    Training(200, (1, 2, 4, 6), [True, False], buckets=[2, 2, 2, 1]),
)


# %% hidden="bucketed_ddp" points=4
### BEGIN HIDDEN TESTS
from helpers.lessons.data_parallel.exercises import Training, check_BucketedDDP

check_BucketedDDP(
    3,
    Training(1, (1, 2, 4, 6), [True, True, True], buckets=[1, 1, 1, 1, 1, 1, 1]),
    Training(1000, (2, 2, 2, 6), [False, False, True], buckets=[4, 2, 1], early=True),
    Training(10**6, (1, 1, 4, 6), [True, True, True], buckets=[7]),
    Training(
        1292, (2, 2, 4, 6), [True, False, True], buckets=[4, 3], odd=True
    ),  # the first is full to the byte
    Training(2300, (1, 1, 4, 6), [True, True, True], buckets=[4, 3], dtype="float64"),
)
### END HIDDEN TESTS

# %% [markdown]
# Yours on the simulated H100 with 63 others, the same class without a change, above torch's:

# %% experiment
experiments.try_ddp(BucketedDDP)

# %% [markdown]
# Is yours much slower than torch's? torch waits for one bucket and copies its means out, before it waits for the next
# ([reducer.cpp](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/distributed/c10d/reducer.cpp), `finalize_backward`). So the
# first are copied out while the last sums are on their way. With
# [`gradient_as_bucket_view=True`](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html) the
# gradients are views of the buckets. This saves the copy out, and the memory of a second set of gradients. They are still copied in, as
# long as `zero_grad` sets gradients to None, which is its default
# ([docstring](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/parallel/distributed.py#L782-L792)).
#
# ### Which bucket size?
#
# A step of GPT-2, 8 sequences of 1,024 tokens in bf16, on a simulated H100. By how much is the step longer than forward and backward
# alone, among 64? And with buckets of 1 MiB in place of 25 MiB, is the exposed time shorter or longer?

# %% experiment
you = lesson.predict(
    {
        "buckets of 5 MiB, the step is longer by": ...,
        "all gradients in one bucket, the step is longer by": ...,
        "8 GPUs, 1 MiB in place of 25 MiB": ...,
        "1,024 GPUs, 1 MiB in place of 25 MiB": ...,
    },
    choices={
        "buckets of 5 MiB, the step is longer by": ["less than 1 %", "1 to 5 %", "5 to 25 %"],
        "all gradients in one bucket, the step is longer by": ["1 to 5 %", "5 to 25 %", "more than 25 %"],
        "8 GPUs, 1 MiB in place of 25 MiB": ["shorter", "about the same", "longer"],
        "1,024 GPUs, 1 MiB in place of 25 MiB": ["shorter", "about the same", "longer"],
    },
)

# %% experiment
answers = [experiments.longer(experiments.plan(64, cap)) for cap in ("5 MiB", "all in one")]
for n in (8, 1024):
    answers.append(experiments.against(*(experiments.plan(n, cap).exposed_s for cap in ("1 MiB", "25 MiB"))))
measured = dict(zip(you, answers, strict=True))
you.against(measured, experiments.buckets_table(), evidence="simulated (H100)")

# %% [markdown]
# In GPT-2 the last gradient is the embedding's. The embedding is also the output layer, so its gradient is complete only at the very
# end, and it is a large part of all gradients. Its own all-reduce is the table's last line. No bucket size can get below this floor,
# and the best one comes close to it.
#
# Is this torch's own rule? By default the first bucket has 1 MiB and the others 25. If you give `bucket_cap_mb`, it holds for the first
# bucket too ([source](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/parallel/distributed.py#L106-L110)). Nine layers of 1 MiB
# in torch's DDP, on a fake group of 8 with nobody at the other end:


# %% experiment
def buckets_of(cap_mb):
    with ranks.fake(8):
        net = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(9)))
        ddp = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=cap_mb)
        for _ in range(2):  # the buckets are laid out again in the second step
            with ranks.sent() as record:
                ddp(torch.ones(1, 512)).sum().backward()
    return [c.bytes >> 20 for c in record.of("all_reduce")]


sizes = [(f"bucket_cap_mb={cap}", str(buckets_of(cap))) for cap in (None, 25, 5, 1)]
lesson.table(sizes, ["", "MiB of each all-reduce"], evidence="live (CPU)")

# %% [markdown]
# Move the bucket size, the ranks and the links, and watch the lowest lane. What do very small buckets cost at 1,024 ranks? What do very
# large ones cost at 8?

# %% experiment
explorer = widgets.bucket_explorer(ranks=64)
explorer

# %% [markdown]
# ### When DDP divides, and what BatchNorm sends
#
# Does DDP divide before or after it adds up? This matters in float16, whose largest number is 65,504. Two ranks have a gradient of
# 40,000 each. And how many broadcasts does a model with BatchNorm make in its third step? Its running averages are
# **buffers**: tensors of the model that are not parameters. DDP keeps them equal, unless it is told `forward_sync_buffers=False`.

# %% experiment
you = lesson.predict(
    {"DDP divides": ..., "broadcasts with BatchNorm": ..., "with forward_sync_buffers=False": ...},
    choices={
        "DDP divides": ["before adding up", "after adding up"],
        "broadcasts with BatchNorm": [0, 2, 4],
        "with forward_sync_buffers=False": [0, 2, 4],
    },
)


# %% experiment
def details(batch):
    DDP, x = nn.parallel.DistributedDataParallel, torch.full((1, 1), 40_000.0, dtype=torch.float16)
    layer = nn.Linear(1, 1, bias=False, dtype=torch.float16)
    DDP(layer)(x).backward()
    seen = [layer.weight.grad.item()]
    for synced in (True, False):
        ddp = DDP(nn.Sequential(experiments.layers(1), nn.BatchNorm1d(64)), forward_sync_buffers=synced)
        for _ in range(3):
            with ranks.sent() as record:
                ddp(batch).square().mean().backward()
        seen.append(record.count("broadcast"))
    return seen


mean, synced, unsynced = ranks.run_ranks(details, 2, experiments.batch())[0]
answers = ["before adding up" if mean == 40_000 else "after adding up", synced, unsynced]
you.against(dict(zip(you, answers, strict=True)), evidence="live (CPU)")

# %% [markdown]
# The mean came out as 40,000 and not as infinity. DDP divides each gradient by the number of ranks as it copies it into the bucket
# ([reducer.cpp](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/distributed/c10d/reducer.cpp), `mark_variable_ready_dense`;
# `allreduce_hook` and the 16-bit hooks [do so
# too](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py#L24-L27)). So a sum of a
# thousand float16 gradients stays in range. Very small gradients may become zero instead.
#
# At the beginning of a forward pass (but not of one that follows a pass under `no_sync` or `no_grad`) DDP broadcasts the buffers of rank 0
# ([`forward_sync_buffers`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/parallel/distributed.py#L793-L800), which torch 2.13
# puts in the place of `broadcast_buffers`). One message carries the float32 numbers, one the whole-number count of batches. But a training
# step normalises by the mean and variance of a rank's own part of the batch.
# [`nn.SyncBatchNorm.convert_sync_batchnorm(model)`](https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html) takes those
# of the whole batch. It needs GPUs. Its price is one collective more in the forward and one in the backward pass of each such layer
# ([source](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/modules/_functions.py#L59-L205)).
#
# ### Who is joined to whom
#
# Ring and tree say who speaks to whom. The **topology** says over what: inside a node NVLink or PCIe, between nodes InfiniBand or
# Ethernet. (The table below has their α and their rates.)
#
# 64 GPUs stand in nodes of 8, with NVLink inside and InfiniBand between. One ring through all of them is as slow as its slowest link. Or
# **the node first**: sum up inside each node, so that each GPU holds an eighth of the sums; add up these eighths between the nodes, each
# over a network card of its own; gather inside the node again. And a **star** sends everything through one GPU. For the gradients of
# GPT-2 in bf16: how many times as long does the first of the two take?

# %% experiment
you = lesson.predict(
    {
        "8 GPUs: star against ring": ...,
        "8 GPUs in a ring: PCIe 5.0 against NVLink 4": ...,
        "64 GPUs: one ring against the node first": ...,
    },
    choices=[1, 2, 4, 8, 16],
)

# %% experiment
ratios = [
    experiments.among_8("InfiniBand NDR", "star") / experiments.among_8("InfiniBand NDR", "ring"),
    experiments.among_8("PCIe 5.0 x16", "ring") / experiments.among_8("NVLink 4", "ring"),
    experiments.among_64("ring") / experiments.among_64("hierarchical"),
]
measured, what = dict(zip(you, ratios, strict=True)), "times as long"
you.against_ratios(measured, experiments.topology_table(), evidence="arithmetic", what=what)

# %% [markdown]
# A star loads one link with everybody's bytes; a ring loads all links alike. Between nodes it helps to send *less* over the slow link:
# each GPU an eighth. This needs a network card for each GPU, as a DGX H100 has. With one card a node the eighths queue up. The simulated
# GPU takes the node first, and between nodes the faster of ring and tree.
#
# ### DataParallel
#
# Before DDP there was [`nn.DataParallel`](https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html): one process, with
# one Python thread a GPU. Its source says what it does in *each* forward:

# %% experiment
import inspect

doing = ("scatter", "replicate", "parallel_apply", "gather")
forward = inspect.getsource(nn.DataParallel.forward).splitlines()
print("\n".join(line.strip() for line in forward if any(f"self.{name}(" in line for name in doing)))
lesson.keep(star_of_2=1e3 * experiments.copying(2, "star"), star_of_8=1e3 * experiments.copying(8, "star"))
lesson.keep(gpt2_mb=4 * experiments.GPT2 / 1e6, pcie_gbs=ranks.LINKS[experiments.PCIE].bytes_per_s / 1e9)
lesson.keep(ring_of_2=experiments.copying(2, "ring") / experiments.summing(2))
lesson.keep(ring_of_8=experiments.copying(8, "ring") / experiments.summing(8))

# %% [markdown]
# `replicate` sends the whole model to every other GPU, each step anew, and backward sends all gradients to the first GPU. Copy by copy,
# everything passes through the one link of the first GPU, and the time grows with the number of GPUs: for GPT-2 in float32 ({{gpt2_mb:.0f}}
# MB) over PCIe 4.0 x16 ({{pcie_gbs:.0f}} GB/s) from {{star_of_2:.0f}} ms (2 GPUs) to {{star_of_8:.0f}} ms (8 GPUs). NCCL
# ([`torch.nn.parallel.comm`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/parallel/comm.py#L106-L118) uses it) can send in a
# ring. Then the time does not grow with the GPUs: it is {{ring_of_2:.1f}} times (2 GPUs) to {{ring_of_8:.1f}} times (8 GPUs) that of DDP's
# all-reduce. None of it hides behind backward.
#
# ### Send less often, and less
#
# What cannot be hidden can be avoided, in two ways:
#
# - **Less often**: accumulate k small batches before a step, and send only in the last one. The gradients stay the same.
# - **Less**: a [*comm hook*](https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html) gets each bucket and returns what all ranks are to
#   have. It may send 16 bits a number, or only the largest numbers with their places, or of each matrix only two thin factors
#   ([PowerSGD](https://arxiv.org/abs/1905.13727)). The gradients do not stay the same.
#
# Four backward passes of the small model of section 1, on two live ranks:


# %% experiment
def accumulated(ddp, parts):
    for part in parts[:-1]:
        with ddp.no_sync():  # forward and backward: nothing is sent
            ddp(part).square().mean().backward()
    ddp(parts[-1]).square().mean().backward()


sending = ranks.run_ranks(experiments.four_passes, 2, accumulated)[0]
experiments.passes_table(sending)

# %% [markdown]
# All ways send fewer bytes, but the largest tenth and the factors need more messages. Eight bits a number need one message more, too:
# the ranks must first agree on a common scale. By α and β, for 8 ranks: which is faster?

# %% experiment
you = lesson.predict(
    {
        "10,000 numbers, NVLink 4": ...,
        "10,000 numbers, Ethernet 25G": ...,
        "1,000,000 numbers, NVLink 4": ...,
        "1,000,000 numbers, Ethernet 25G": ...,
        "100,000,000 numbers, NVLink 4": ...,
    },
    choices=["float32", "int8"],
)

# %% experiment
measured = {}
for question in you:
    numbers, link = question.split(" numbers, ")
    whole, less = experiments.float_and_int8(int(numbers.replace(",", "")), link)
    measured[question] = "int8" if less < whole else "float32"
you.against(measured, experiments.bits_table(), evidence="arithmetic", what="faster")

# %% [markdown]
# Compression saves bytes, not messages. 16 bits need no message more. Places, factors and an int8 scale do: the scale makes small tensors
# slower.
#
# Now the price in exactness. On an int8 grid a gradient of 0.3 steps is rounded to 0. **Error feedback**
# ([Karimireddy and others, 2019](https://arxiv.org/abs/1901.09847)) keeps what was rounded off and adds it to the *next* gradient. The
# same gradient of 0.3 comes 20 times. What has been sent in all, in steps of the grid?

# %% experiment
you = lesson.predict({"without feedback": ..., "with feedback": ...}, choices=[0, 6, 20])

# %% experiment
without, fed, rest = 0, 0, 0.0
for _ in range(20):
    without += round(0.3)
    whole = round(0.3 + rest)
    rest += 0.3 - whole
    fed += whole
you.against({"without feedback": without, "with feedback": fed}, evidence="arithmetic", what="sent")

# %% [markdown]
# Without feedback such a weight never learns. With feedback the rest grows until it is sent, and nothing is lost for ever.
#
# **Exercise 14.4 — eight bits, and nothing lost** (★★★, 20 min)
#
# Whole numbers from several ranks can be added as they are, if all ranks use the same scale and leave room for the sum. Each of n ranks
# may use −(127 // n) … 127 // n: up to ±15 with 8 ranks, ±1 with 64, and nothing but 0 with more than 127. This hook is for one node.
#
# By default DDP forms its buckets **anew** after the first backward, in the order in which gradients came (the broadcasts of step 2, in
# section 1). With `static_graph=True` it does so a step later, and with `find_unused_parameters=True` alone never. So `bucket.index()` does
# not tell where to keep a rest; a parameter does.
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
# <details><summary>The idea</summary><code>scale = largest / (127 // n)</code>, or 1 where that is 0;
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
    A step of the grid is largest |number| in the bucket (rests added) on any rank ÷ (127 // n). A bucket may be all
    zeros, on one rank or on all. Best in one all_reduce of int8, after the scale: bytes are counted call by call.
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
from helpers.lessons.data_parallel.exercises import check_int8_hook, hooked

check_int8_hook(2, hooked(4, 12, [1.0] * 5 + [0.0], cap_mb=25.0), hooked(7, 12, [0.0, 1.0, 1.0], cap_mb=25.0))


# %% hidden="int8_hook" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.data_parallel.exercises import check_int8_hook, hooked

check_int8_hook(
    3,
    hooked(5, 10, [1.0, 0.0, 0.5, 1.0], cap_mb=25.0, idle=1),
    hooked(6, 10, [1.0] * 6 + [0.0], cap_mb=0.0003),
)
# of alike gradients the largest is above 0: if four ranks said 32, not 31, the sum would be −128
check_int8_hook(
    4,
    hooked(8, 10, [1e-12, 1e-12, 0.0], cap_mb=25.0),
    hooked(12, 10, [1e12] * 2, cap_mb=25.0, alike=True),
)
### END HIDDEN TESTS

# %% experiment
experiments.try_hook(int8_hook)

# %% [markdown]
# ### torchrun and Accelerate
#
# Outside of a notebook, [**torchrun**](https://docs.pytorch.org/docs/stable/elastic/run.html) starts the ranks. It runs a script in n
# processes and tells each one who it is by environment variables (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT).
# `init_process_group` reads them. Two lines are often forgotten. `set_device` gives each process a GPU of its own. And
# [`DistributedSampler`](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler) gives each
# rank other samples, in another order in each epoch if `set_epoch` is called. (The listing in *Five strategies for faster
# training*, one of the course's sources, has neither line. And without torchrun, or an address set by hand, its `init_process_group`
# raises an error: lesson 18 has that claim.)

# %% experiment
script = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if gpu else "gloo")
x = torch.arange(512.0).sin().reshape(64, 8)
sampler = DistributedSampler(data := TensorDataset(x, x.sum(1)))
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, batch_size=8, sampler=sampler):
        optimizer.zero_grad()
        (model(x.to(device)).squeeze(1) - y.to(device)).square().mean().backward()
        optimizer.step()
print(f"rank {dist.get_rank()}: {len(sampler)} of {len(data)} samples, sum of weights {model.module.weight.sum():.6f}")
dist.destroy_process_group()
"""

# %% experiment tags=["nbval-ignore-output"]
print("torchrun --standalone --nproc-per-node 2 train.py")
print(experiments.torchrun(script))

# %% [markdown]
# It takes some seconds, because each process imports torch. On two machines, run this on both: `--nnodes 2 --rdzv-backend c10d
# --rdzv-id 1 --rdzv-endpoint host:port` in place of `--standalone` (untested here).
#
# [**Accelerate**](https://huggingface.co/docs/accelerate/index) (Hugging Face) wraps the same in three lines: `Accelerator()`,
# `prepare(…)`, `accelerator.backward(loss)`. It is part of the extra `models` (`make lab EXTRAS=models`). What does it send?

# %% experiment tags=["nbval-ignore-output"]
experiments.accelerate_table()

# %% [markdown]
# **A checklist for your own code**
# - [ ] Does every rank use every parameter? If not, torch's DDP must be told: `find_unused_parameters=True`, or `static_graph=True` if it
#   is always the same ones.
# - [ ] Do you accumulate? Then forward *and* backward of all but the last part go under
#   [`no_sync`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/parallel/distributed.py#L1659-L1680), and each loss is divided by
#   the number of parts.
# - [ ] Does each rank read other samples? Does rank 0 alone save?
# - [ ] Is there memory for it? NCCL has buffers of its own for each group of ranks, which torch's allocator does not count.
