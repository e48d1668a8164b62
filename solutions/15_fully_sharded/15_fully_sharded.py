# %% [markdown]
# # 15 · Fully sharded
#
# ## How does a model larger than the GPU train?
#
# With lesson 14's data parallelism (*DDP*), every rank holds the whole model, all of its gradients and all of the optimizer's state. The
# eighth GPU is as full as the first one. **Fully sharded data parallelism**, *FSDP*, cuts all of it up, and each rank keeps one part. What
# a rank lacks, the others send when it is needed. So a model fits that no single GPU could hold. You count what each rank stores and sends,
# and find out where FSDP stops paying.
#
# **Time** 60 min, 23 of them for two exercises; *Further*: 63 min. **Before this** lessons 09 (what training stores) and 14
# (collectives, the α–β model, overlap).
#
# **Afterwards you can**
# - say what each rank stores and sends;
# - write a sharded layer, and say what a way to wrap a model with `fully_shard` holds and sends;
# - tell from a timeline whether gathering hides behind computing, and what to do if not.

# %% setup
import itertools
import os

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from helpers import lesson, plots, ranks
from helpers.lessons.fully_sharded import experiments

torch.set_num_threads(1)
warnings.filterwarnings("ignore", category=FutureWarning)  # names of collectives change with torch 2.13
lesson.start("15_fully_sharded", evidence=["arithmetic", "live (CPU)", "simulated (H100)"])

# %% [markdown]
# ## 1 · What is stored, what is sent
#
# Training in mixed precision with Adam keeps 16 bytes for each parameter ([ZeRO](https://arxiv.org/abs/1910.02054), 2020). Weight
# and gradient have 16 bits: 2 + 2 bytes. The optimizer keeps the weight and two moments in 32 bits: 12 bytes. The paper cuts them up
# in three **stages**. On n ranks:
#
# - **ZeRO-1**: each rank keeps 1/n of the optimizer's 12 bytes;
# - **ZeRO-2**: and only 1/n of the gradients;
# - **ZeRO-3**, *fully sharded*: and only 1/n of the weights. They are gathered before use, once in forward and once in backward, and
#   then let go of.
#
# A model of 8 billion parameters trains on 8 ranks. **How many GB of weights, gradients and optimizer state does each rank hold?** And
# with many ranks: **how many times the weights' bytes does a rank put on its link in one step** (sent ÷ weights)**?** With DDP a rank
# holds 8 · 16 = 128 GB, and an all-reduce sends the gradients twice, in the two rounds of lesson 14's ring. The first round is a
# **reduce-scatter**: it adds up the ranks' tensors and leaves on each rank an n-th of the sums. The second one is an all-gather.

# %% experiment
HELD = [16, 30, 44, 128]
SENT = [1, 2, 3, 4]
you = lesson.predict(
    {
        "GB, ZeRO-1": ...,
        "GB, ZeRO-3": ...,
        "sent ÷ weights, ZeRO-1": ...,
        "sent ÷ weights, ZeRO-3": ...,
    },
    choices={
        "GB, ZeRO-1": HELD,
        "GB, ZeRO-3": HELD,
        "sent ÷ weights, ZeRO-1": SENT,
        "sent ÷ weights, ZeRO-3": SENT,
    },
)


# %% experiment
CUT = {"DDP": "", "ZeRO-1": "o", "ZeRO-2": "og", "ZeRO-3": "ogw"}  # o: optimizer, g: gradients, w: weights


def held(stage, n, parameters=8e9):
    """GB on one of n ranks."""
    size = {"weights": 2, "gradients": 2, "optimizer": 12}  # bytes for each parameter
    return {k: b * parameters / 1e9 / (n if k[0] in CUT[stage] else 1) for k, b in size.items()}


def gb(stage, n):
    return sum(held(stage, n).values())


measured = {f"GB, {stage}": round(gb(stage, 8)) for stage in ("ZeRO-1", "ZeRO-3")}
measured |= {f"sent ÷ weights, {s}": round(experiments.sent_by(s, 1024)) for s in ("ZeRO-1", "ZeRO-3")}
bars = experiments.stored_bars(held, list(CUT))
you.against(measured, bars, experiments.sent_table(), evidence="arithmetic · live (CPU)")

# %% [markdown]
# The optimizer is three quarters of the bytes, so stage 1 already saves most of them. It sends no more than DDP, whose all-reduce is a
# reduce-scatter *and* an all-gather. ZeRO-1 puts the optimizer's step **between the two**: reduce-scatter the gradients, update this
# rank's part of the weights, all-gather the new weights. Stage 3 makes a reduce-scatter and two gathers: half as much again. No stage
# cuts the activations.
#
# ## 2 · Gather, use, let go
#
# [`fully_shard(module)`](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html) turns the parameters of a module
# into **shards**, cut along their first dimension. Before the module's forward it gathers them: they are **whole**. After forward
# it lets go of them. In backward it gathers them again, and then it reduce-scatters the gradients.
#
# All parameters of one call travel in one collective, except for those that an inner `fully_shard` has taken before. So **what you
# wrap is what is gathered at once**. A **call per layer** means one `fully_shard` for each layer, and one for the model. The option
# `reshard_after_forward=False` keeps the gathered weights until backward (**kept**, for short). If you do not set it, inner modules let
# go, and the outermost module keeps. A **mesh** names the ranks that share the parts: here all.

# %% experiment
WAYS = {  # a call for each layer?  reshard_after_forward
    "one call for all": (False, None),
    "a call per layer": (True, None),
    "a call per layer, kept": (True, False),
}


def wrap(model, per_layer, reshard):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model if per_layer else ():
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
    return fully_shard(model, mesh=mesh, reshard_after_forward=reshard)


# %% [markdown]
# Six linear layers are wrapped in these three ways, and run on two real processes. **How many collectives do one forward and one
# backward make? And of how many layers are the weights whole at the worst moment?** (A layer that waits in a message's buffer is not
# whole yet.)

# %% experiment
you = lesson.predict(
    {
        "collectives, one call for all": ...,
        "collectives, a call per layer": ...,
        "collectives, a call per layer, kept": ...,
        "layers whole, one call for all": ...,
        "layers whole, a call per layer": ...,
        "layers whole, a call per layer, kept": ...,
    },
    choices=[1, 2, 3, 6, 12, 18],
)

# %% experiment
runs = experiments.on_two_ranks(wrap, WAYS)
measured = {f"collectives, {way}": runs[way].sent.count() for way in WAYS}
measured |= {f"layers whole, {way}": runs[way].most for way in WAYS}
picture = experiments.whole_map({way: runs[way] for way in WAYS})
you.against(measured, picture, experiments.ways_table(runs), evidence="live (CPU)")

# %% [markdown]
# - **One call for all**: all layers are whole at once. The one reduce-scatter waits for the last gradient, so it can hide behind nothing.
#   Then all weights and gradients are whole: at the peak little but the optimizer's state is saved.
# - **A call per layer**: one layer is whole at a time. With copies, buffers and gradients, on many ranks memory holds about
#   {{least_blocks}} layers' bytes (*Further* counts them). A rank sends half as much again as with DDP.
# - **Kept**: as few bytes as DDP, but all layers are whole when backward begins.

# %% [markdown]
# **Exercise 15.1 — a fully sharded linear** (★★★, 15 min)
#
# Write the heart of `fully_shard` by hand, for one layer: `x @ W.T`, where each rank has some rows of W. The tests chain several
# of them, on 2 and 3 ranks.
#
# <details><summary>Hint 1</summary>Write an
# <a href="https://docs.pytorch.org/docs/stable/notes/extending.html"><code>autograd.Function</code></a> that calls
# <code>ctx.save_for_backward(x, shard)</code>. It must not save W: W is gathered again.</details>
#
# <details><summary>Hint 2</summary>With <code>g</code> the gradient of the output, the gradient of x is <code>g @ W</code>, and that
# of W is <code>g.T @ x</code>. Reduce-scatter the latter, then divide by n. The tensors that you hand to a collective, and the one that
# it fills, must be contiguous (<code>empty_like</code> keeps strides). <code>ctx.needs_input_grad</code> says which of the two wants a
# gradient.</details>
#
# <details><summary>The idea</summary><code>whole = torch.empty(n · k, in)</code>, then
# <code>dist.all_gather(list(whole.chunk(n)), shard)</code>, in forward and in backward. Do not let autograd record
# the gather: it would keep W.</details>


# %% exercise="sharded_linear"
def sharded_linear(x: torch.Tensor, shard: torch.Tensor) -> torch.Tensor:
    """x @ W.T, where rank r of n holds rows r · k to (r + 1) · k of W. x: (rows, in), shard: (k, in) → (rows, n · k).

    float32, any strides. Each rank has its own x. In backward shard gets its rows of the **mean** over the ranks of W's
    gradient, x the gradient of this rank; calling backward again adds to them. Sent per call, and nothing else: in
    forward one all_gather of W; in backward another, and one reduce_scatter of W's gradient. Each gather sends what the
    shard holds then: the test changes shard.data in between. A frozen shard gets no gradient and no reduce_scatter. Where
    x needs no gradient, the gather in backward may be left out. No W lives longer than the function that gathered it: a
    chain of calls, forward and backward, has at most 3 · the largest W + the shards' gradients + 32 KiB alive, beside
    x and shards.
    """
    ### BEGIN SOLUTION
    return _ShardedLinear.apply(x, shard)


def _gathered(shard):
    n = dist.get_world_size()
    whole = torch.empty(n * shard.shape[0], shard.shape[1])
    dist.all_gather(list(whole.chunk(n)), shard.contiguous())
    return whole


class _ShardedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard):
        ctx.save_for_backward(x, shard)
        return x @ _gathered(shard.detach()).t()

    @staticmethod
    def backward(ctx, g):
        x, shard = ctx.saved_tensors
        for_x = g @ _gathered(shard) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return for_x, None
        n = dist.get_world_size()
        # empty_like would keep strides, and gloo writes in memory's order
        for_shard = torch.empty(shard.shape)
        dist.reduce_scatter(for_shard, list((g.t() @ x).chunk(n)))
        return for_x, for_shard.div_(n)

    ### END SOLUTION


# %% test="sharded_linear" points=2
from helpers.lessons.fully_sharded.exercises import check_sharded_linear

check_sharded_linear(seed=1, n=2, sizes=[128, 160] * 4, rows=4)

# %% hidden="sharded_linear" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.fully_sharded.exercises import check_sharded_linear

check_sharded_linear(seed=2, n=3, sizes=[129, 96, 150] * 3 + [129], rows=3)
check_sharded_linear(seed=3, n=2, sizes=[64, 96, 80, 96, 64, 80], rows=5, odd=True)
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · Bytes on 8 and on 1,024 ranks
#
# From 8 ranks on, a rank sends hardly more: three times (n − 1)/n of the weights. For small layers too? The 64 rows of a layer of 64 × 64
# are cut into 8, 64 or 1,024 shards. **How many times the layer's own bytes is the message that gathers it?**

# %% experiment
you = lesson.predict(
    {"64 × 64 on 8 ranks": ..., "64 × 64 on 64 ranks": ..., "64 × 64 on 1,024 ranks": ...},
    choices=[1, 4, 16, 128],
)


# %% experiment
def message(width, n):
    """Bytes of the message that gathers a layer, ÷ the layer's. On a fake group: rank 0 of n, with nobody there."""
    with ranks.fake(n) as mesh:
        layer = fully_shard(nn.Linear(width, width, bias=False), mesh=mesh)
        with ranks.sent(layer) as record:
            layer(torch.ones(2, width)).sum().backward()
    return record.of("all_gather")[0].bytes // (4 * width * width)


times = {f"64 × 64 on {n:,} ranks": message(64, n) for n in (8, 64, 1024)}
lesson.keep(carried=times["64 × 64 on 1,024 ranks"], wide=message(1024, 1024))
you.against(times, evidence="live (CPU)", what="times its bytes")

# %% [markdown]
# `fully_shard` cuts along the **first** dimension. Then it fills up the part of every rank to the same number of rows. So 64 rows on
# 1,024 ranks travel as 1,024: {{carried}} times the bytes, in each of the three messages. For a layer of 1,024 × 1,024 the factor is
# {{wide}}: its rows come out even. A call for several layers does not help, because each parameter is filled up by itself. The option
# `shard_placement_fn` can name another dimension to cut, if n divides it.
#
# **Exercise 15.2 — bytes per step, predicted** (★★, 8 min)
#
# A **block** is what one call of `fully_shard` wraps. The **payload** of a collective is the bytes of its whole message. Predict, for a
# step, the number of collectives, their payload, and what a rank puts on its link.
#
# <details><summary>Hint 1</summary>A rank's part of a parameter has ⌈first ÷ n⌉ rows. A message has n such parts of every parameter
# in the block.</details>
#
# <details><summary>Hint 2</summary>Each block makes a gather in forward, another in backward if it was let go of, and a
# reduce-scatter.</details>
#
# <details><summary>The idea</summary>The payload of a block is P = 4 · Σ n · ⌈d₀/n⌉ · d₁ · …. On the ring's link, each call puts
# (n − 1)/n of its payload.</details>


# %% exercise="step_bytes"
def step_bytes(blocks: list[list[tuple[int, ...]]], n: int, reshard: bool = True) -> dict[str, int]:
    """The collectives of one of n ranks in a step of a float32 model whose blocks are each given to fully_shard.

    blocks: the shapes of each block's parameters (at least one, of at least one dimension). reshard:
    reshard_after_forward of all.
    Returns {"calls": how many, "all_gather": payload, "reduce_scatter": payload, "wire": bytes that this rank puts on its
    link by a ring}, over all calls, as ints. payload: the bytes of the whole messages, of which the rank sends only a
    part. n ≥ 2. Arithmetic only: no tensor is made.
    """
    ### BEGIN SOLUTION
    total = 0
    for block in blocks:
        for first, *rest in block:
            size = 1
            for d in rest:
                size *= d
            total += 4 * n * -(-first // n) * size
    gathers = (2 if reshard else 1) * total
    wire = (gathers + total) * (n - 1) // n
    return {"calls": (3 if reshard else 2) * len(blocks), "all_gather": gathers, "reduce_scatter": total, "wire": wire}  # fmt: skip
    ### END SOLUTION


# %% test="step_bytes" points=1
from helpers import check
from helpers.lessons.fully_sharded.exercises import check_step_bytes

check_step_bytes(
    check.case([[(64, 64), (64,)], [(64, 64)]], 8),
    check.case([[(64, 64), (64,)], [(64, 64)]], 1024),
    check.case([[(100, 30)], [(30, 100), (30,)]], 64, reshard=False),
)

# %% hidden="step_bytes" points=2
### BEGIN HIDDEN TESTS
from helpers import check
from helpers.lessons.fully_sharded.exercises import check_step_bytes

check_step_bytes(
    check.case([[(50, 3, 7), (9,)], [(1,)], [(65, 5)]], 8),
    check.case([[(50, 3, 7), (9,)], [(1,)], [(65, 5)]], 64, reshard=False),
    check.case([[(1025, 4), (1,)], [(7, 300)]], 1024),
    check.case([[(12, 5)]], 5),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · Does it hide?
#
# While a layer computes, `fully_shard` already gathers the next one, in a stream of its own. Does the message arrive before the product
# is done? The simulated H100s stand eight to a node, with NVLink 4 inside and InfiniBand NDR between the nodes. The model has six
# bfloat16 layers of 4,096 × 4,096, and each rank has 8,192 tokens. New among the three ways is **HSDP**, hybrid sharding. The weights
# are cut inside the node only, so each node has a copy of all shards. Between the nodes an all-reduce adds up each rank's 1/8 of the
# gradient.


# %% experiment
def ddp(model, gpu):
    return nn.parallel.DistributedDataParallel(model)


def per_layer(model, gpu, shape=None):
    shape = shape or (dist.get_world_size(),)
    names = ("copies", "shards")[-len(shape) :]
    mesh = init_device_mesh(gpu.device.type, shape, mesh_dim_names=names)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def hsdp(model, gpu):
    return per_layer(model, gpu, shape=(dist.get_world_size() // 8, 8))


# %% [markdown]
# On 8 ranks a layer's gather takes {{near_us:.0f}} µs, and the product that can hide it {{product_us:,.0f}} µs. On 1,024 ranks the
# message also goes through the 128 nodes, in a ring: 127 steps, each with α = {{alpha_us:.1f}} µs (lesson 14). An all-reduce may go by a
# tree: 2 · log₂ 128 = 14 steps. **How many times as long as on 8 ranks do forward and backward take on 1,024?** The last line is a call
# per layer again, with layers of 16,384 × 16,384. Section 1's model may have such blocks: 32 · 16,384² = 8.6 billion.

# %% experiment
you = lesson.predict(
    {"DDP": ..., "a call per layer": ..., "HSDP": ..., "large layers": ...}, choices=[1, 1.5, 3, 10]
)

# %% experiment
WRAPS = {"DDP": ddp, "a call per layer": per_layer, "HSDP": hsdp}
steps = experiments.few_and_many(WRAPS, large=per_layer)
near, far = steps["8: a call per layer"], steps["1,024: a call per layer"]
large = steps["1,024: large layers"]
lesson.keep(near_us=near.gather_us, gather_us=far.gather_us, product_us=far.product_us)
lesson.keep(large_gather_us=large.gather_us, large_product_us=large.product_us)
lesson.keep(alpha_us=ranks.LINKS["InfiniBand NDR"].latency_s * 1e6)
ratios = {way: steps[f"1,024: {way}"].seconds / steps[f"8: {way}"].seconds for way in you}
shown = experiments.few_and_many_picture(steps, WRAPS), experiments.steps_table(WRAPS)
you.against_ratios(ratios, *shown, evidence="simulated (H100)", what="times as long")

# %% [markdown]
# - **8 ranks**: the gather of the next layer lies under this layer's product. Only the first gather and the last reduce-scatter stick
#   out.
# - **A call per layer on 1,024 ranks**: a gather takes {{gather_us:,.0f}} µs, the product beside it {{product_us:,.0f}}. The 18 messages
#   fill the whole step.
# - **Large layers**: a gather takes {{large_gather_us:,.0f}} µs, the product beside it {{large_product_us:,.0f}}. It hides: the product
#   grows with the layer, the 127 α do not.
# - **DDP** suffers far less: its all-reduces go by the tree. Gathers and reduce-scatters have only rings in this simulation. (*Further*
#   says what NCCL has.)
# - **HSDP**: its gathers stay on NVLink. A rank stores 1/8 of everything in place of 1/1,024. The table's peaks hardly show it: no
#   optimizer is counted. With one, the 8 billion parameters take 16 GB a rank in place of 0.1 (section 1's picture).
#
# So where gathers do not hide: HSDP, **larger units** (fewer messages, more memory), or **more tokens** a rank (longer products).
# *Further* tries the last two.

# %% [markdown]
# ## The running example
#
# Lesson 14 left a whole copy of the weights, the gradients and AdamW's two means on each of eight GPUs. `fully_shard` leaves an eighth.

# %% experiment
from helpers import running_example


def sharded(model, gpu):
    mesh = init_device_mesh(gpu.device.type, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


before = running_example.after("14")
smaller = before.replace(prepare=sharded)
board = running_example.compare(before, smaller, ranks=8, tolerance=1e-3)
lesson.keep(script_mib=board.before.peak_bytes / 2**20, script_mib_now=board.after.peak_bytes / 2**20)
model, after = board.before.sent_bytes / 2**20, board.after.sent_bytes / 2**20
lesson.keep(model_mib=model, saved_mib=4 * model * 7 / 8)
lesson.keep(link_mib=2 * model * 7 / 8, link_mib_now=after * 7 / 8)
used, used_now = (experiments.most_in_use(script, ranks=8) / 2**20 for script in (before, smaller))
lesson.keep(used_mib=used, used_mib_now=used_now)
board

# %% [markdown]
# The peak of each GPU falls from {{script_mib:.0f}} to {{script_mib_now:.0f}} MiB. That is what the allocator reserves (lesson 08). In use are
# {{used_mib:.0f}} and {{used_mib_now:.0f}}. Weights, gradients and two means are four times {{model_mib:.0f}} MiB. Of these
# {{saved_mib:.0f}} go, and DDP's buckets go too. Whole blocks come instead, for a while. Activations stay. There are fewer launches,
# because DDP copies each gradient into its bucket and back, and `fully_shard` those of a block together.
#
# The price is traffic. The table counts payload. An all-reduce puts its payload 2 · 7/8 times on the link, a gather 7/8 times. So the link
# carried {{link_mib:.0f}} MiB a step, and carries {{link_mib_now:.0f}} now. The times differ by less than the simulator's error.

# %% [markdown]
# ## Your own script
#
# First divide. A rank will hold about 16 bytes × parameters ÷ ranks, and all of its activations. If the activations fill your GPU,
# sharding will not help: see lesson 09. Build the model on the CPU. Each call of `fully_shard` moves its block to this rank's GPU and
# cuts it there, so the whole model never stands on one GPU. Make the optimizer **after** that, because `fully_shard` replaces the
# parameters. Give the loader a `DistributedSampler` (lesson 14), or all ranks train on the same batches. Profile one rank:
# `python -m helpers trace.json.gz` says whether the gathers hide.

# %% experiment
from helpers.own_script import toy

model, optimizer, loss_fn, loader, device, step = toy()  # at home: your own

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

# under torchrun: torch.cuda.set_device(int(os.environ["LOCAL_RANK"])), then init_process_group()
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
try:
    mesh = init_device_mesh(torch.device(device).type, (dist.get_world_size(),))
    for block in model.children():  # your repeated blocks, e.g. model.layers
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for x, y in loader:
        loss_fn(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
        optimizer.zero_grad()
    mine = sum(p.to_local().nbytes for p in model.parameters())
    whole = sum(p.nbytes for p in model.parameters())
    print(f"rank {dist.get_rank()}: {mine:,} bytes of shards, of {whole:,}")
finally:  # or the next cell meets this group
    dist.destroy_process_group()

# %% [markdown]
# Every parameter has become a `DTensor`, of which this rank holds its shard. With one rank the shard is the whole. With eight
# it is an eighth, where the rows divide evenly.
#
# ```bash
# torchrun --nproc-per-node 8 train.py
# ```

# %% [markdown]
# ## Sources on trial

# %% experiment
from helpers.lessons.fully_sharded import claims

lesson.verdicts(
    claims.on_trial(gb, runs, steps),
    evidence="arithmetic · live (CPU) · simulated (H100)",
    shown=("15-memory", "15-scaling"),
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | ZeRO-1 costs nothing: the same bytes, a fraction of the optimizer's state. | Few parameters: two messages in place of one. |
# | ZeRO-3 sends half as much again as DDP. | Weights kept: as much. Fewer rows than ranks: far more. |
# | Wrap block by block. At the peak, one call for all saves little but the optimizer's state. | Small blocks on many nodes: several to a call. |
# | Gathering hides behind computing. | Small layers on many nodes: HSDP, more tokens, larger units. |
# | Sharding cuts what is stored for each parameter. | Activations: checkpoint (lesson 09), or cut the sequence (lesson 16). |
#
# **Read on**: [PyTorch FSDP](https://arxiv.org/abs/2304.11277), by its makers; torch's
# [tutorial](https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html).

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# | section | minutes |
# |---|---|
# | ZeRO-1 by hand, with exercise 15.3 | 23 |
# | More ways to wrap, and a slow rank | 7 |
# | Formats and checkpoints | 5 |
# | Which blocks to keep, with exercise 15.4 | 22 |
# | torch.compile with DDP and FSDP2 | 4 |
# | A checklist | 2 |
#
# ### ZeRO-1 by hand
#
# **Exercise 15.3 — a sharded optimizer** (★★, 15 min)
#
# Write ZeRO-1 for any optimizer that treats each number by itself, as SGD and Adam do. The tests run it on two, three and four
# ranks. They look at the weights, at what was sent, and at the bytes that stay.
#
# <details><summary>Hint 1</summary>Lay all parameters end to end in one vector, filled up with zeros to n equal parts. Rank r
# owns part r, an <code>nn.Parameter</code> that you hand to <code>make</code>.</details>
#
# <details><summary>Hint 2</summary><code>dist.reduce_scatter(mine, list(vector.chunk(n)))</code> adds up; divide by n.
# <code>dist.all_gather(list(vector.chunk(n)), mine)</code> fills a vector in place: its chunks are views.</details>
#
# <details><summary>The idea</summary>Make the vector when step begins, and let it go at its end. What stays is the part, its
# gradient, and what <code>make</code>'s optimizer keeps of it.</details>


# %% exercise="sharded_optimizer"
class ShardedOptimizer:
    """Steps as one optimizer on the mean of all ranks' gradients would; keeps 1/n of its state (ZeRO-1).

    params: an iterable of float32 Parameters of any strides, as model.parameters() is, the same on all n ranks, each once;
    those with requires_grad have N numbers together, and frozen ones stay as they are. make: list of Parameters → a torch.optim.Optimizer that treats each
    number by itself; called once. From then on nobody else writes into the parameters.

    With part = ⌈N / n⌉: the optimizer made holds at most part numbers, and of what this class made (the optimizer's
    state included) at most 5 · part · 4 bytes + 2 KiB are alive after a step: Adam needs 4, one is to spare. Each step
    sends n · part · 4 bytes by reduce_scatter and as many by all_gather, each in one call, and nothing else.
    """

    def __init__(self, params, make):
        ### BEGIN SOLUTION
        self.params, self.n = [p for p in params if p.requires_grad], dist.get_world_size()
        self.part = -(-sum(p.numel() for p in self.params) // self.n)
        own = _end_to_end(self.params, self.params, self.n * self.part).chunk(self.n)[dist.get_rank()]
        self.own = nn.Parameter(own.clone())
        self.inner = make([self.own])
        ### END SOLUTION

    @torch.no_grad()
    def step(self):
        """p.grad is this rank's own gradient. None counts as zeros, and so does None for all of them.

        Afterwards each p holds the new weights where it held the old ones in memory; p.grad may be anything.
        """
        ### BEGIN SOLUTION
        vector = _end_to_end(self.params, [p.grad for p in self.params], self.n * self.part)
        grad = torch.empty(self.part)
        dist.reduce_scatter(grad, list(vector.chunk(self.n)))
        self.own.grad = grad.div_(self.n)
        self.inner.step()
        dist.all_gather(list(vector.chunk(self.n)), self.own.detach())
        at = 0
        for p in self.params:
            p.copy_(vector[at : at + p.numel()].view_as(p))
            at += p.numel()


def _end_to_end(params, tensors, size):
    vector = torch.zeros(size)
    at = 0
    for p, t in zip(params, tensors, strict=True):
        if t is not None:
            vector[at : at + p.numel()] = t.detach().flatten()
        at += p.numel()
    return vector
    ### END SOLUTION


# %% test="sharded_optimizer" points=2
from helpers.lessons.fully_sharded.exercises import check_ShardedOptimizer

check_ShardedOptimizer([(60, 50), (50,), (30, 50), (32,)], seed=1, n=3, steps=3)

# %% hidden="sharded_optimizer" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.fully_sharded.exercises import check_ShardedOptimizer

check_ShardedOptimizer([(61, 67), (3,), (2, 2)], seed=2, n=4, steps=4)
check_ShardedOptimizer([(7, 5), (4, 6), (), (40, 3)], seed=3, n=2, steps=4, odd=True)
### END HIDDEN TESTS

# %% [markdown]
# ### More ways to wrap, and a slow rank
#
# The six layers of section 4 again, on the same simulated GPUs. Several layers may share a call: `fully_shard` takes a list. Gathered
# weights may be kept after forward. And while a layer computes, the next *two* layers may be gathered, in place of the next one.


# %% experiment
def grouped(many, keep=False):
    def wrap(model, gpu):
        mesh = init_device_mesh(gpu.device.type, (dist.get_world_size(),))
        for i in range(0, len(model), many):
            fully_shard(list(model[i : i + many]), mesh=mesh, reshard_after_forward=not keep)
        return fully_shard(model, mesh=mesh)

    return wrap


def two_ahead(model, gpu):
    model = per_layer(model, gpu)
    for i, layer in enumerate(model):
        layer.set_modules_to_forward_prefetch(list(model)[i + 1 : i + 3])
        layer.set_modules_to_backward_prefetch(list(model)[max(i - 2, 0) : i][::-1])
    return model


# %% [markdown]
# **How many times as long as a call per layer, on as many ranks, does a step take?**

# %% experiment
you = lesson.predict(
    {
        "8 ranks, one takes 1.5 times as long to compute": ...,
        "1,024 ranks, one takes 1.5 times as long to compute": ...,
        "1,024 ranks, gathered two layers ahead": ...,
        "1,024 ranks, all six layers in one call": ...,
    },
    choices=[0.5, 1, 1.5, 3],
)

# %% experiment
MORE = {
    "all in one call": grouped(6),
    "three to a call": grouped(3),
    "kept": grouped(1, keep=True),
    "two ahead": two_ahead,
}
late = {n: experiments.simulated_step(n, per_layer, slow=1.5) for n in (8, 1024)}
usual = {n: experiments.simulated_step(n, per_layer).seconds for n in (8, 1024)}
took = [late[n].seconds / usual[n] for n in (8, 1024)]
took += [
    experiments.simulated_step(1024, MORE[way]).seconds / usual[1024]
    for way in ("two ahead", "all in one call")
]
pictured = {"8: a call per layer": near, "8: rank 3 is slow": late[8]}
pictured |= {
    f"1,024: {way}": experiments.simulated_step(1024, MORE[way]) for way in ("all in one call", "kept")
}
also = plots.compared(experiments.drawn_from(pictured), title="A slow rank, larger units, kept weights")
table = experiments.steps_table(WRAPS | MORE)
you.against_ratios(
    dict(zip(you, took, strict=True)), also, table, evidence="simulated (H100)", what="times as long"
)

# %% experiment
experiments.tokens_table(WRAPS)

# %% [markdown]
# - **A slow rank**: at every layer the others wait for it (pale). Where all ranks wait for the network anyway, it costs nothing more.
# - **Two ahead** gains nothing on 1,024 ranks: the link is never idle.
# - **Larger units** make fewer messages, and more layers are whole at once. With all layers in one call, everybody waits for the whole
#   message before forward and after backward. On 1,024 ranks it is still faster than a call per layer.
# - **Kept**: no gathers in backward. On 8 and 64 ranks that is as fast as DDP.
# - **Four times the tokens**: the products are longer and hide more of the messages. A call per layer comes close to DDP.
#
# **What NCCL has besides rings.** In NCCL 2.30 ([its
# tuning.cc](https://github.com/NVIDIA/nccl/blob/5067397c2676d5aed50042fc39e5c8ee96eb0027/src/graph/tuning.cc), June 2026) gathers and
# reduce-scatters have three more ways. (Its sym_kernels.cc adds others.) In *NVLS* the node's switch does the work. Between nodes, NVLS and
# *CollNet* need switches that can do this too (SHARP). [PAT](https://arxiv.org/abs/2506.20252) needs few steps; by default it is used only
# with one GPU a node.
#
# The older class `FullyShardedDataParallel` has names for these ways
# ([`ShardingStrategy`](https://docs.pytorch.org/docs/stable/fsdp.html)): `FULL_SHARD` lets go after forward, `SHARD_GRAD_OP` keeps,
# and `HYBRID_SHARD` is HSDP.
#
# ### Formats and checkpoints
#
# With `MixedPrecisionPolicy(param_dtype=torch.bfloat16)` a layer is gathered in 16 bits, and `fully_shard` computes with what
# arrives. **How many times their bytes in float32 do the shards and the messages have then? And can one process load what two
# ranks have saved, each its own shards?** (By
# [`torch.distributed.checkpoint`](https://docs.pytorch.org/docs/stable/distributed.checkpoint.html).)

# %% experiment
SIZES = [0.25, 0.5, 1, 2]
you = lesson.predict(
    {
        "a rank's shards": ...,
        "the gathers": ...,
        "the reduce-scatters": ...,
        "the reduce-scatters, with reduce_dtype=torch.float32": ...,
        "saved by two ranks, loaded by one process": ...,
    },
    choices={
        "a rank's shards": SIZES,
        "the gathers": SIZES,
        "the reduce-scatters": SIZES,
        "the reduce-scatters, with reduce_dtype=torch.float32": SIZES,
        "saved by two ranks, loaded by one process": ["yes", "no"],
    },
)


# %% experiment
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import MixedPrecisionPolicy


def save(folder):
    dcp.save(wrap(experiments.layers(), True, None).state_dict(), checkpoint_id=folder)


def load(folder):
    state = {name: torch.zeros_like(w) for name, w in experiments.layers().state_dict().items()}
    dcp.load(state, checkpoint_id=folder)  # a plain model, without FSDP
    return all(torch.equal(state[name], w) for name, w in experiments.layers().state_dict().items())


bf16 = torch.bfloat16
policies = {
    "float32": None,
    "param_dtype=bfloat16": MixedPrecisionPolicy(param_dtype=bf16),
    "… reduce_dtype=float32": MixedPrecisionPolicy(param_dtype=bf16, reduce_dtype=torch.float32),
}

# %% experiment
plain, half, mixed = map(experiments.bytes_with, policies.values())
answers = [half[kind] / plain[kind] for kind in plain]
answers.append(mixed["reduce-scatters"] / plain["reduce-scatters"])
files, same = experiments.saved_and_loaded(save, load)
print("files:", ", ".join(files))
answers.append("yes" if same else "no")
you.against(dict(zip(you, answers, strict=True)), experiments.formats_table(policies), evidence="live (CPU)")

# %% [markdown]
# The shards stay float32, for the optimizer. With 4 bytes of gradient and Adam's 8 that makes 16 bytes for each parameter again.
# With `reduce_dtype=torch.float32` the sum of a thousand gradients is not rounded to 16 bits at each addition (lesson 10).
#
# Each rank wrote its own half of the checkpoint. The file `.metadata` says where each half belongs. A plain model in one process read
# both halves. If you gather the whole model on rank 0 to save it, rank 0 needs memory for all of it.
#
# ### Which blocks to keep
#
# To keep a block's weights after forward saves one gather. It may cost memory. If only some blocks can be kept: which ones? This is what
# `fully_shard` of torch 2.13 has in memory at block i, beyond the shards. The blocks before and after it are b₋₁ and b₊₁:
#
# - **forward**: all blocks *kept before i*; block i twice, as the gather delivers it and as weights copied out of that; and the
#   gather's buffer of b₋₁, which is let go of only after that copy.
# - **backward** (last block first, and each one is let go of when it is done): all blocks *kept before i*; b₋₁ if it was not kept,
#   because it is gathered ahead; weights and gradient of i; the gradient of b₊₁ on its way through reduce-scatter; and 1/n of
#   the gradients that are done.
#
# Six blocks of 8 MiB each (the unequal ones: 8, 24, 8, 16, 8 and 8) on 64 ranks, with few tokens. **Compare the memory at the worst
# moment, and the bytes sent:**

# %% experiment
you = lesson.predict(
    {
        "memory: keep the last three blocks, against the first three": ...,
        "bytes sent: keep the last three blocks, against the first three": ...,
        "memory: keep all six, against none": ...,
        "memory, unequal blocks: keep all but the largest, against none": ...,
    },
    choices=["less", "the same", "more"],
)

# %% experiment
none, first, last, every, none_unequal, _, most = (
    experiments.simulated_plan(*plan) for plan in experiments.PLANS
)
answers = [
    experiments.against(last.peak, first.peak),
    experiments.against(last.sent, first.sent),
    experiments.against(every.peak, none.peak),
    experiments.against(most.peak, none_unequal.peak),
]
lesson.keep(least_blocks=round(none.peak / none.blocks[0]), most_blocks=round(every.peak / none.blocks[0]))
you.against(dict(zip(you, answers, strict=True)), experiments.plans_table(), evidence="simulated (H100)")

# %% [markdown]
# One might guess "what is kept, and one block more". That is too low: at the worst moment {{least_blocks}} blocks are in memory in place of
# 1 with nothing kept, and {{most_blocks}} in place of 7 with all six. And the order counts. A block that is kept early stays in memory
# while all later blocks run. The last block costs nothing to keep. Where the worst moment is elsewhere, keeping is free: the table's last
# row keeps all but the largest block and needs no more memory than keeping none. A claim on trial says less:

# %% experiment
lesson.verdicts([claims.strategy()], evidence="simulated (H100)").table

# %% [markdown]
# **Exercise 15.4 — a wrapping plan** (★★★, 12 min)
#
# Find the plan that fits a budget of memory and sends least.
#
# <details><summary>Hint 1</summary>First write a function that says how many bytes a plan needs at the worst moment: a loop over the
# blocks, with the docstring's two lines.</details>
#
# <details><summary>Hint 2</summary><code>itertools.product([True, False], repeat=len(blocks))</code> gives all plans. Of those that
# fit, the plan that keeps most bytes sends least.</details>
#
# <details><summary>The idea</summary>No rule such as "the largest first" is always best, and twelve blocks have 4,096 plans: try them
# all.</details>


# %% exercise="plan"
def plan(blocks: list[int], n: int, budget: int) -> list[bool]:
    """reshard_after_forward for each block, so that a step sends least and never needs more than budget.

    blocks: bytes of each block's whole weights in forward's order, 1 to 12 of them, multiples of n. A block that is
    let go of (True) sends 3 · bytes · (n − 1) / n per step, one that is kept (False) 2 · bytes · (n − 1) / n. Needed at
    block i (0 where there is no such block; kept: all bytes kept among blocks 0 … i − 1):
      forward:  kept + 2 · b[i] + b[i−1]
      backward: kept + (b[i−1] if let go of) + 2 · b[i] + b[i+1] + (b[i+1] + b[i+2] + …) / n
    ValueError if no plan fits the budget (bytes). Of several best plans any will do.
    """
    ### BEGIN SOLUTION
    best = None
    for let_go in itertools.product([True, False], repeat=len(blocks)):
        kept = sum(b for b, gone in zip(blocks, let_go, strict=True) if not gone)
        if (best is None or kept > best[0]) and _needed(blocks, let_go, n) <= budget:
            best = kept, list(let_go)
    if best is None:
        raise ValueError(f"no plan fits {budget:,} bytes")
    return best[1]


def _needed(blocks, let_go, n):
    kept, worst = 0, 0
    b = [0, *blocks, 0]
    for i, gone in enumerate(let_go, 1):
        ahead = b[i - 1] if i > 1 and let_go[i - 2] else 0
        worst = max(worst, kept + 2 * b[i] + b[i - 1])
        worst = max(worst, kept + ahead + 2 * b[i] + b[i + 1] + sum(b[i + 1 :]) // n)
        kept += 0 if gone else b[i]
    return worst
    ### END SOLUTION


# %% test="plan" points=1
from helpers import check
from helpers.lessons.fully_sharded.exercises import check_plan, mib

check_plan(
    check.case(mib(8, 8, 8, 8, 8, 8), 64, 44 << 20),
    check.case(mib(40, 24, 16, 16, 16), 8, 129 << 20),
    check.case(mib(16, 40, 16, 24, 24), 8, 148 << 20),
    check.case(mib(8, 16, 24), 8, 1 << 30),
    check.case(mib(40), 8, 80 << 20),
    check.case(mib(40, 32), 8, 111 << 20, raises=ValueError),
)

# %% hidden="plan" points=2
### BEGIN HIDDEN TESTS
from helpers import check
from helpers.lessons.fully_sharded.exercises import check_plan, mib, random_blocks
from helpers.lessons.fully_sharded.sharded_peak import worst_moment

least = worst_moment(mib(8, 104, 48), [True] * 3, 8)[0]
check_plan(
    *random_blocks(4, [9, 8, 6, 5, 3], [2, 64]),
    check.case(mib(8, 104, 48), 8, least - 1, raises=ValueError),
)
### END HIDDEN TESTS

# %% [markdown]
# ### torch.compile with DDP and FSDP2
#
# A graph that covers the whole model would make its gradients all at once, at its end: nothing could be sent before. So when
# [`torch.compile`](https://docs.pytorch.org/docs/stable/generated/torch.compile.html) meets DDP, it cuts the graph where DDP's buckets end. FSDP2's hooks are
# not captured at all: they stay in Python, between the graphs. The cell counts the operators of each graph, for eight blocks of a
# 512 × 512 layer and a GELU, in both orders of wrapping.

# %% experiment
from torch.nn.parallel import DistributedDataParallel


def sharded(model):
    mesh = init_device_mesh("cpu", (1,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def each_compiled(model, backend):
    for block in model.blocks:
        block.compile(backend=backend)
    return model


ways = {
    "compile(DDP(model))": lambda m, b: torch.compile(DistributedDataParallel(m, bucket_cap_mb=2), backend=b),
    "DDP(compile(model))": lambda m, b: DistributedDataParallel(torch.compile(m, backend=b), bucket_cap_mb=2),
    "block.compile(), then fully_shard": lambda m, b: sharded(each_compiled(m, b)),
    "fully_shard, then block.compile()": lambda m, b: each_compiled(sharded(m), b),
}
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
try:
    for name, way in ways.items():
        print(f"{name:36}", experiments.graphs_of(way))
finally:
    dist.destroy_process_group()

# %% [markdown]
# With DDP both orders are cut in the same way, at the ends of the buckets. `torch._dynamo.config.optimize_ddp = False` would leave one graph of
# 16 operators, and nothing to overlap. With FSDP2 the order does not matter here either. All blocks share two graphs, one for the first
# block, whose input needs no gradient, and one for the others: this is regional compilation (lesson 11). Common practice is to compile each
# block, then shard it.
#
# ### A checklist
#
# Before you start a long run of your own, ask:
#
# - [ ] 16 bytes × parameters ÷ ranks, and the activations, and the blocks that are whole at the worst moment: does that fit?
# - [ ] Is every block wrapped *before* the model? What no inner call has taken, the model's call takes, all at once.
# - [ ] Is the first dimension of each large weight at least the number of ranks?
# - [ ] Are gathers and products side by side in the trace?
# - [ ] Are gradients added up in float32?
# - [ ] Was the optimizer made *after* `fully_shard`?
# - [ ] Can the checkpoint be loaded on another number of ranks?
# - [ ] Does it still not fit? `CPUOffloadPolicy()` keeps shards, gradients and the optimizer's state in the host's memory. A rank's shard
#   then goes to its GPU at each gather (twice a step, if let go of), and the gradient's shard comes back, in float32 over PCIe. With more
#   ranks the shards are smaller: offloading is cheap where it is hardly needed.
