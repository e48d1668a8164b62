# %% [markdown]
# # 15 · Fully sharded
#
# ## How does a model larger than the GPU train?
#
# In lesson 14 every rank holds the whole model, the whole gradient and the whole state of the optimizer, all of them
# the same on every rank. That is what makes the eighth GPU as full as the first. Cut them up instead, one
# part a rank, and a model fits that no GPU could hold; what one rank lacks, the others send when it is needed.
# This lesson counts what is stored and what is sent, at 8, 64 and 1,024 ranks, and finds where it stops
# paying. (*DDP* is lesson 14's way: all is stored on every rank; *FSDP* is fully sharded data parallelism.)
#
# **Time** 80–100 min, more than half of it exercises. **Before this** lessons 09 (what training stores) and 14 (collectives, the
# α–β model, overlap).
#
# **Afterwards you can**
# - say what each rank stores and sends with each stage of ZeRO, before you rent the machines;
# - write a sharded optimizer and a sharded layer, and say what a way of wrapping with `fully_shard` holds and sends;
# - tell from a timeline whether gathering hides behind computing, and what to do if not.
#
# **On trial** *FSDP uses memory more efficiently and supports very large models* · *FSDP scales better to several
# nodes* · *choose the sharding strategy by balancing communication and memory* (all: guide).

# %% setup
import itertools
import os

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # C++ has nothing to say here that we do not

import warnings

import torch
import torch.distributed as dist
from torch import nn

from helpers import lesson, ranks

torch.set_num_threads(1)
warnings.filterwarnings("ignore", category=FutureWarning)  # names of collectives change with torch 2.13


lesson.start("15_fully_sharded", evidence=["arithmetic", "live (CPU)", "simulated (H100)"])

# %% [markdown]
# ## 1 · What is stored, what is sent
#
# Mixed precision with Adam keeps 16 bytes for each parameter (S. Rajbhandari and others, *ZeRO*, 2020): weight and gradient in 16
# bits, 2 + 2, and in the optimizer a weight of 32 bits and two moments, 12. Their three stages cut these up one after the other:
#
# - **ZeRO-1**: each rank keeps the optimizer's 12 bytes of its own 1/n of the parameters;
# - **ZeRO-2**: the gradient's too;
# - **ZeRO-3**: the weights too: gathered when needed, in forward and in backward, and let go of after each. That is what PyTorch
#   calls *fully sharded*.
#
# A model of 8 billion parameters on 8 ranks. **How many GB of these does each rank hold**, **and how many times the
# weights' bytes does it put on its link** in a step, with many ranks? An all-reduce is a reduce-scatter and then an all-gather,
# and each of these sends once the data.

# %% experiment
prediction = {
    "GB, DDP": ...,
    "GB, ZeRO-1": ...,
    "GB, ZeRO-3": ...,
    "sent, DDP": ...,
    "sent, ZeRO-1": ...,
    "sent, ZeRO-3": ...,
}

# %% experiment tags=["fold"]
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

STAGES = {"DDP": "", "ZeRO-1": "o", "ZeRO-2": "og", "ZeRO-3": "ogw"}
LAYERS, WIDTH = 6, 64


def stored(stage, n):
    """Bytes a parameter: weight, gradient, optimizer."""
    cut = STAGES[stage]
    return [size / (n if kind in cut else 1) for kind, size in zip("wgo", (2, 2, 12), strict=True)]


def gb(stage, n, parameters=8e9):
    return sum(stored(stage, n)) * parameters / 1e9


def layers(width):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(LAYERS)))


def wrapped(per_layer, reshard, mesh, width=WIDTH, **options):
    """Six layers; what fully_shard leaves of them on this rank."""
    model = layers(width)
    for layer in model if per_layer else ():
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard, **options)
    return fully_shard(model, mesh=mesh, reshard_after_forward=reshard, **options)


def sent_by(stage, n, width=1024):
    """What one of n ranks sends in a step, counted: a fake group, with nobody at the other end."""
    with ranks.fake(n) as mesh:
        if stage == "ZeRO-3":
            model = wrapped(True, True, mesh, width)
        else:
            model = layers(width) if stage == "ZeRO-1" else nn.parallel.DistributedDataParallel(layers(width))
        with ranks.sent(model) as record:
            model(torch.ones(2, width)).sum().backward()
            if stage == "ZeRO-1":
                gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
                mine = torch.empty(len(gradients) // n)
                dist.reduce_scatter(mine, list(gradients.chunk(n)))
                dist.all_gather(list(gradients.chunk(n)), mine)
    return record


counted = {(stage, n): sent_by(stage, n) for stage in ("DDP", "ZeRO-1", "ZeRO-3") for n in (8, 64, 1024)}
weights = LAYERS * 1024 * 1024 * 4
times = {key: record.wire_bytes() / weights for key, record in counted.items()}
said = {f"GB, {s}": round(gb(s, 8)) for s in ("DDP", "ZeRO-1", "ZeRO-3")}
said |= {f"sent, {s}": round(times[s, 1024]) for s in ("DDP", "ZeRO-1", "ZeRO-3")}
lesson.compare_predictions(prediction, said, evidence="arithmetic · live (CPU)", choices=range(1025)).show()
lesson.table(
    [(s, *(f"{gb(s, n):,.1f}" for n in (1, 8, 64, 1024))) for s in STAGES],
    ["GB on each rank", "1 rank", "8", "64", "1,024"],
    evidence="arithmetic",
    caption="8 billion parameters, activations not counted",
).show()
lesson.table(
    [
        (s, rule, *(f"{x:.3f}" for n in (8, 64, 1024) for x in (float(rule[0]) * (n - 1) / n, times[s, n])))
        for s, rule in (("DDP", "2 (n − 1)/n"), ("ZeRO-1", "2 (n − 1)/n"), ("ZeRO-3", "3 (n − 1)/n"))
    ],
    ["sent ÷ weights", "predicted", "8 ranks", "counted", "64 ranks", "counted", "1,024 ranks", "counted"],
    evidence="arithmetic · live (CPU)",
    caption="bytes on a rank's link, by a ring. Counted on a fake group: torch's DDP; reduce-scatter and all-gather by "
    "hand; torch's fully_shard, layer by layer. 6 layers of 1,024 × 1,024",
)


# %% experiment tags=["fold"]
from helpers.plots import style
from helpers.plots.picture import Picture, drawn


@drawn
def storage_bars(sizes, *, evidence):
    """Stacked: weights, gradients, optimizer, for each stage and number of ranks."""
    fig, _ = style.figure(3.1, evidence=evidence, title="GB on each rank, 8 billion parameters")
    ax = fig.subplots()
    colours = {"weights": style.BLUE, "gradients": style.ORANGE, "optimizer": style.GREEN}
    names = []
    for i, n in enumerate(sizes):
        for j, stage in enumerate(STAGES):
            at, low = i * (len(STAGES) + 0.7) + j, 0.0
            for (label, colour), each in zip(colours.items(), stored(stage, n), strict=True):
                ax.bar(at, each * 8, bottom=low, color=colour, label=label if not names else None)
                low += each * 8
            names.append((at, stage))
        ax.text(at - 1.5, -0.2, f"{n:,} ranks", transform=ax.get_xaxis_transform(), ha="center", va="top")
    ax.axhline(80, color=style.VERMILLION, linewidth=1)
    ax.text(names[-1][0] + 0.5, 82, "one H100: 80 GB", ha="right", va="bottom", color=style.VERMILLION)
    ax.set_xticks([at for at, _ in names], [name for _, name in names], fontsize=8)
    ax.set_ylabel("GB")
    ax.grid(axis="x", visible=False)
    ax.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1, 1))
    return Picture(fig, evidence, "GB on each rank by stage and number of ranks")


storage_bars((8, 64, 1024), evidence="arithmetic")

# %% [markdown]
# The optimizer is three quarters, so stage 1 takes most of the gain, and its traffic is free: DDP all-reduces
# the gradient, which is a reduce-scatter *and* an all-gather. ZeRO-1 puts the optimizer's step **between the
# two**: reduce-scatter the gradients, step one's own part, all-gather the weights. Stage 3 lets go of the weights after use
# and pays for it with one more gather, half again as much. No stage cuts the activations.

# %% [markdown]
# **Exercise 15.1 — a sharded optimizer** (★★, 15 min)
#
# ZeRO-1 for any optimizer that treats each number by itself, as SGD and Adam do. The tests run it on two and on three
# ranks and look at the weights, at what was sent, and at the bytes that stay.
#
# <details><summary>Hint 1</summary>Lay all parameters end to end in one vector, filled up with zeros to n equal parts. Rank r
# owns part r, an <code>nn.Parameter</code> that you hand to <code>make</code>.</details>
#
# <details><summary>Hint 2</summary><code>dist.reduce_scatter(mine, list(vector.chunk(n)))</code> adds up; divide by n.
# <code>dist.all_gather(list(vector.chunk(n)), mine)</code> fills a vector in place: its chunks are views.</details>
#
# <details><summary>The idea</summary>Make the vector when step begins and let it go at its end: what stays is the part, its
# gradient and what <code>make</code>'s optimizer keeps of it.</details>


# %% exercise="sharded_optimizer"
class ShardedOptimizer:
    """Steps as one optimizer on the mean of all ranks' gradients would; keeps 1/n of its state (ZeRO-1).

    params: float32 Parameters of any strides, the same on all n ranks, each once; those with requires_grad have N numbers
    together, and frozen ones stay as they are. make: list of Parameters → a
    torch.optim.Optimizer that treats each number by itself; called once.

    With part = ⌈N / n⌉: the optimizer made holds at most part numbers, and of what this class made (the optimizer's
    state included) at most 5 · part · 4 bytes + 2 KiB are alive after a step: Adam needs 4, one is to spare. Each step sends n · part · 4 bytes by
    reduce_scatter and as many by all_gather, each in one call, and nothing else.
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
        """p.grad is this rank's own gradient; None counts as zeros. Afterwards p is the new weight; p.grad may be anything."""
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
from helpers.exercises.fully_sharded import check_ShardedOptimizer

check_ShardedOptimizer([(60, 50), (50,), (30, 50), (32,)], seed=1, n=3, steps=3)

# %% hidden="sharded_optimizer" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.fully_sharded import check_ShardedOptimizer

check_ShardedOptimizer([(61, 67), (3,), (2, 1)], seed=2, n=3, steps=4)
check_ShardedOptimizer([(7, 5), (4, 6), (), (40, 3)], seed=3, n=2, steps=4, odd=True)
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · Gather, use, let go
#
# `fully_shard(module)` turns a module's parameters into shards, cut along their first dimension. Before the module's forward it
# gathers them, afterwards it lets go of them; in backward it gathers them again, and then reduce-scatters the gradients. All
# parameters of one call travel in one collective, but for those that an inner `fully_shard` has taken already. So **what
# you wrap is what is gathered at once**.
#
# `reshard_after_forward=True` lets go after forward; `False` keeps the gathered weights until backward is through. Whoever
# says neither gets `True` for inner modules and `False` for the outermost, whose weights backward needs first
# ([docstring](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/distributed/fsdp/_fully_shard/_fully_shard.py#L180-L191)).
#
# Below, really in two processes: six linear layers, by DDP and wrapped in four ways. **How many collectives does one forward
# and backward make, and of how many layers are the parameters whole, and not shards, at the worst moment?** (Buffers under
# way are not counted here; section 3 counts them.)

# %% experiment
prediction = {
    "one call for all: collectives": ...,
    "one call for all: layers whole": ...,
    "one call for all, True: collectives": ...,
    "a call per layer: collectives": ...,
    "a call per layer: layers whole": ...,
    "… reshard_after_forward=False: collectives": ...,
    "… reshard_after_forward=False: layers whole": ...,
}

# %% experiment tags=["fold"]
WAYS = {
    "one call for all": (False, None),
    "one call for all, True": (False, True),
    "a call per layer": (True, None),
    "… reshard_after_forward=False": (True, False),
}


def ways_to_wrap():
    warnings.simplefilter("ignore")  # hooks that look make views, of which FSDP warns
    found = {}
    for way, how in {"DDP": None, **WAYS}.items():
        mesh = init_device_mesh("cpu", (2,))
        model = wrapped(*how, mesh) if how else nn.parallel.DistributedDataParallel(layers(WIDTH))
        whole = []

        def looks(*_, model=model, whole=whole):
            whole.append(sum(not hasattr(p, "placements") for p in model.parameters()))

        for layer in model.modules():
            if isinstance(layer, nn.Linear):
                layer.register_forward_hook(looks, prepend=True)
                layer.register_full_backward_hook(looks)
        with ranks.sent(model) as record:
            model(torch.ones(2, WIDTH, requires_grad=True)).sum().backward()
        found[way] = (record, max(whole))
    return found


live = ranks.run_ranks(ways_to_wrap, 2)[0]
assert [live[way][0].count() for way in WAYS] == [2, 3, 3 * LAYERS, 2 * LAYERS]
said = {}
for way in WAYS:
    said[f"{way}: collectives"] = live[way][0].count()
    said[f"{way}: layers whole"] = live[way][1]
lesson.compare_predictions(
    prediction, {k: said[k] for k in prediction}, evidence="live (CPU)", choices=range(101)
).show()
lesson.table(
    [
        (
            way,
            sum(c.phase == "forward" for c in r.of("all_gather")),
            sum(c.phase == "backward" for c in r.of("all_gather")),
            r.count("reduce_scatter"),
            r.count("all_reduce"),
            f"{r.wire_bytes():,.0f}",
            whole,
        )
        for way, (r, whole) in live.items()
    ],
    [
        "",
        "gathers in forward",
        "in backward",
        "reduce-scatters",
        "all-reduces",
        "bytes on the link",
        "most layers whole",
    ],
    evidence="live (CPU)",
    caption=f"rank 0 of 2; {LAYERS} layers of {WIDTH * WIDTH * 4:,} bytes; link by a ring",
)

# %% [markdown]
# - **One call for all**: all weights are whole at once. It saves optimizer state and gradients, but not the peak of the
#   weights. As the outermost module it keeps them until backward; with `True` it gathers them a second time. And its
#   reduce-scatter waits for the last gradient: it overlaps with nothing.
# - **A call per layer** has one layer's parameters whole at a time and sends half again as much as DDP. (Here the last
#   layer is gathered a
#   second time although it has just been let go: nobody tells FSDP that it is the last.)
# - **`reshard_after_forward=False`** keeps what was gathered: DDP's bytes, and the peak is back, but only for those layers
#   for which you say so.
#
# The older class `FullyShardedDataParallel` has names for these
# ([`ShardingStrategy`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/distributed/fsdp/api.py#L31-L69)): `FULL_SHARD`
# is `True`, `SHARD_GRAD_OP` is `False`, and `HYBRID_SHARD` is `True` within a node and copies across nodes, which
# `fully_shard` does when it is given a mesh of two dimensions.

# %% [markdown]
# **Exercise 15.2 — a fully sharded linear** (★★★, 15 min)
#
# The heart of `fully_shard`, by hand: `x @ W.T`, with a rank's rows of W. The test chains several on 2 and 3 ranks.
#
# <details><summary>Hint 1</summary>A <code>torch.autograd.Function</code>: <code>ctx.save_for_backward(x, shard)</code>, and not
# W, which is gathered again.</details>
#
# <details><summary>Hint 2</summary>With <code>g</code> the gradient of the output: <code>g @ W</code> for x, <code>g.T @ x</code>
# for W. The latter, of W's size, is reduce-scattered: each rank gets the sum for its own rows. Divide by n.
# gloo takes the parts as they lie in memory, and fills the result so: both must be contiguous (<code>empty_like</code> keeps
# strides). <code>ctx.needs_input_grad</code> says who needs none.</details>
#
# <details><summary>The idea</summary><code>whole = torch.empty(n · rows, columns)</code>, then
# <code>dist.all_gather(list(whole.chunk(n)), shard)</code>, in forward and in backward. Do not use autograd to undo the
# gather: it would keep W.</details>


# %% exercise="sharded_linear"
def sharded_linear(x: torch.Tensor, shard: torch.Tensor) -> torch.Tensor:
    """x @ W.T, where rank r of n holds rows r · k to (r + 1) · k of W. x: (rows, in), shard: (k, in) → (rows, n · k).

    float32, any strides. Each rank has its own x. In backward shard gets its rows of the **mean** over the ranks of W's
    gradient, x the gradient of this rank. Sent per call: all_gather of W in forward, all_gather of W and reduce_scatter
    of its gradient in backward, with the shard as it then is; nothing else. A frozen shard gets no gradient, and nothing
    is reduce-scattered for it; where x needs none, the gather in backward may be left out. No W lives longer than the function that
    gathered it: a chain of L calls, forward and backward, has at most 3 · the largest W + all shards + 32 KiB alive at once, and saves no W.
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
from helpers.exercises.fully_sharded import check_sharded_linear

check_sharded_linear(seed=1, n=2, sizes=[128, 160] * 4, rows=4)

# %% hidden="sharded_linear" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.fully_sharded import check_sharded_linear

check_sharded_linear(seed=2, n=3, sizes=[129, 96, 150] * 3 + [129], rows=3)
check_sharded_linear(seed=3, n=2, sizes=[64, 96, 80, 96, 64, 80], rows=5, odd=True)
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · From 8 to 1,024 ranks
#
# What is sent hardly depends on n: (n − 1)/n of the weights, three times. That is for large matrices. Now a layer of 64 × 64: its
# 64 rows are cut into 8, 64 or 1,024 shards. **How many times the layer's own bytes is the message that gathers it?**

# %% experiment
prediction = {"64 × 64 on 8 ranks": ..., "64 × 64 on 64 ranks": ..., "64 × 64 on 1,024 ranks": ...}

# %% experiment tags=["fold"]
narrow = {n: sent_by("ZeRO-3", n, 64) for n in (8, 64, 1024)}
times = {f"64 × 64 on {n:,} ranks": r.calls[0].bytes // (64 * 64 * 4) for n, r in narrow.items()}
lesson.keep(carried=times["64 × 64 on 1,024 ranks"])
lesson.compare_predictions(prediction, times, evidence="live (CPU)", choices=range(1025)).show()


def predicted(n, width):
    """Calls and payload of a step: six layers, each gathered twice and reduce-scattered once."""
    return 3 * LAYERS, 3 * LAYERS * 4 * n * -(-width // n) * width


rows = []
for width in (64, 1024):
    for n in (8, 64, 1024):
        record = narrow[n] if width == 64 else counted["ZeRO-3", n]
        calls, payload = predicted(n, width)
        share = f"{record.bytes() / (LAYERS * 4 * width * width):.0f}"
        rows.append(
            (f"{width:,} × {width:,}", f"{n:,}", calls, record.count(), f"{payload:,}", f"{record.bytes():,}", share)
        )  # fmt: skip
alike = sum(row[2] == row[3] and row[4] == row[5] for row in rows)
lesson.table(
    rows,
    ["layers", "ranks", "calls predicted", "counted", "payload predicted", "counted", "÷ weights"],
    evidence="arithmetic · live (CPU)",
    caption=f"six layers by fully_shard on a fake group; payload: the whole messages, in bytes. Predicted = counted in {alike} of {len(rows)} rows",
)

# %% [markdown]
# `fully_shard` cuts along the **first** dimension, as `torch.chunk` does, and fills up every rank's part to the same number of
# rows. 64 rows on 1,024 ranks travel as 1,024 rows: {{carried}} times the bytes in each of the three messages, and the shards of
# most ranks are empty.
#
# **Exercise 15.3 — bytes per step, predicted** (★★, 8 min)
#
# <details><summary>Hint 1</summary>A rank's part of a parameter has ⌈first ÷ n⌉ rows; a message has n such parts of every parameter
# in the block.</details>
#
# <details><summary>Hint 2</summary>Each block: one gather in forward, one more in backward if it was let go of, one
# reduce-scatter.</details>
#
# <details><summary>The idea</summary>Payload per block P = 4 · Σ n · ⌈d₀/n⌉ · d₁ · …. On the ring's link
# each call puts (n − 1)/n of its payload.</details>


# %% exercise="step_bytes"
def step_bytes(blocks: list[list[tuple[int, ...]]], n: int, reshard: bool = True) -> dict[str, int]:
    """What one rank of n sends in a step of a float32 model whose blocks are each given to fully_shard.

    blocks: the shapes of each block's parameters (at least one dimension each). reshard: reshard_after_forward of all.
    Returns {"calls": how many collectives, "all_gather": payload, "reduce_scatter": payload, "wire": bytes on this
    rank's link by a ring}, over all calls, as ints (payload: the whole messages, as in the table above). n is
    from 2 up. Arithmetic only: no tensor is made.
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
from helpers.exercises.fully_sharded import check_step_bytes

check_step_bytes(
    check.case([[(64, 64), (64,)], [(64, 64)]], 8),
    check.case([[(64, 64), (64,)], [(64, 64)]], 1024),
    check.case([[(100, 30)], [(30, 100), (30,)]], 64, reshard=False),
)

# %% hidden="step_bytes" points=2
### BEGIN HIDDEN TESTS
from helpers import check
from helpers.exercises.fully_sharded import check_step_bytes

check_step_bytes(
    check.case([[(50, 3, 7), (9,)], [(1,)], [(65, 5)]], 8),
    check.case([[(50, 3, 7), (9,)], [(1,)], [(65, 5)]], 64, reshard=False),
    check.case([[(1025, 4), (1,)], [(7, 300)]], 1024),
    check.case([[(12, 5)]], 5),
)
### END HIDDEN TESTS

# %% [markdown]
# ### Does it hide?
#
# On the simulated H100: eight to a node (NVLink 4 inside, InfiniBand NDR between), six bfloat16 layers of 4,096 × 4,096,
# 8,192 tokens a rank. While a layer computes, `fully_shard` gathers the next one on a stream of its own. A layer's
# message is as large on 8 ranks as on 1,024. Compare:
#
# - "DDP"; "all at once" (one call for the model), "three to a call", "per layer", "per layer, kept"
#   (`reshard_after_forward=False`);
# - "two ahead": per layer, and `set_modules_to_forward_prefetch` and its twin for backward ask for two layers ahead;
# - "HSDP": per layer on a mesh of two dimensions: cut inside the node, a copy on each node.
#
# **How many times as long as on 8 ranks does a step take on 1,024? And if one of the ranks computes 1.5 times as slowly, how many
# times as long does the step take?** Answer with one of 1, 1.5, 3, 10.

# %% experiment
prediction = {
    "DDP, 1,024 ÷ 8 ranks": ...,
    "per layer, 1,024 ÷ 8 ranks": ...,
    "HSDP, 1,024 ÷ 8 ranks": ...,
    "per layer, one of 8 ranks slow": ...,
    "per layer, one of 1,024 slow": ...,
}

# %% experiment tags=["fold"]
import math

from helpers import plots, simulate

UNITS = {"all at once": 6, "three to a call": 3}  # layers to a call; else 1


def simulated_step(size, way, rows=8192, width=4096, **slow):
    """(gpu, seconds, peak bytes, collectives) of a warm forward and backward."""
    several = {"nodes": size // 8, "between": "InfiniBand NDR"} if size > 8 else {}
    with simulate("H100").world(size, **several, **slow) as gpu:
        how = {"bias": False, "device": gpu.device, "dtype": torch.bfloat16}
        model = nn.Sequential(*(nn.Linear(width, width, **how) for _ in range(LAYERS)))
        if way == "DDP":
            model = nn.parallel.DistributedDataParallel(model)
        else:
            shape = (size // 8, 8) if way == "HSDP" else (size,)
            mesh = init_device_mesh(
                gpu.device.type, shape, mesh_dim_names=("copies", "shards")[-len(shape) :]
            )
            many = UNITS.get(way, 1)
            for i in range(0, LAYERS, many):
                fully_shard(
                    list(model[i : i + many]), mesh=mesh, reshard_after_forward=way != "per layer, kept"
                )
            fully_shard(model, mesh=mesh)
            if way == "two ahead":
                for i, layer in enumerate(model):
                    layer.set_modules_to_forward_prefetch(list(model)[i + 1 : i + 3])
                    layer.set_modules_to_backward_prefetch(list(model)[max(i - 2, 0) : i][::-1])
        for _ in range(3 if way == "DDP" else 2):  # DDP arranges its buckets anew in its second step
            gpu.synchronize()
            model.zero_grad()
            begin, sent = gpu.clock(), len(gpu.collectives)
            gpu.reset_peak_memory_stats()
            model(torch.empty(rows, width, device=gpu.device, dtype=torch.bfloat16)).sum().backward()
            gpu.synchronize()
        return gpu, gpu.clock() - begin, gpu.max_memory_allocated(), gpu.collectives[sent:]


ROWS = ("DDP", "all at once", "three to a call", "per layer", "per layer, kept", "HSDP")
late = {"slow": {3: 1.5}}
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    steps = {
        (n, way): simulated_step(n, way) for n in (8, 64, 1024) for way in ROWS if (n, way) != (8, "HSDP")
    }
    steps |= {(n, "rank 3 slow"): simulated_step(n, "per layer", **late) for n in (8, 64, 1024)}
    steps[1024, "two ahead"] = simulated_step(1024, "two ahead")
    longer = {way: simulated_step(1024, way, rows=4 * 8192) for way in ("DDP", "per layer", "HSDP")}
steps[8, "HSDP"] = steps[8, "per layer"]  # one node: the same


def times_as_long(a, b):
    return min((1, 1.5, 3, 10), key=lambda f: abs(math.log(steps[a][1] / steps[b][1] / f)))


said = {
    f"{way}, 1,024 ÷ 8 ranks": times_as_long((1024, way), (8, way)) for way in ("DDP", "per layer", "HSDP")
}
for n, name in ((8, "8 ranks"), (1024, "1,024")):
    said[f"per layer, one of {name} slow"] = times_as_long((n, "rank 3 slow"), (n, "per layer"))
lesson.compare_predictions(prediction, said, evidence="simulated (H100)", choices=(1, 1.5, 3, 10)).show()
lesson.table(
    [
        (
            way,
            *(f"{steps[n, way][1] * 1e3:.2f} ms" for n in (8, 64, 1024)),
            f"{longer[way][1] * 1e3:.1f} ms" if way in longer else "",
            *(f"{steps[n, way][2] / 1e6:,.0f}" for n in (8, 1024)),
            len(steps[1024, way][3]),
        )
        for way in ROWS
    ],
    [
        "",
        "step, 8 ranks",
        "64",
        "1,024",
        "1,024, 4 × the tokens",
        "peak MB, 8 ranks",
        "1,024",
        "calls, 1,024",
    ],
    evidence="simulated (H100)",
    caption="forward and backward of 6 layers of 4,096 × 4,096, bfloat16; no optimizer. HSDP on one node is per layer. "
    f"Of the peak, {7 * 8192 * 4096 * 2 / 1e6:,.0f} MB are activations",
).show()


def message(n, way, kind):
    spans = [c.end_ns - c.start_ns for c in steps[n, way][3] if c.kind == kind]
    return f"{sum(spans) / len(spans) / 1e3:,.0f} µs"


product = min(k.duration_s for k in steps[8, "per layer"][0].kernels if k.name == "aten.mm")
lesson.keep(gather=message(1024, "per layer", "all_gather"), product=f"{product * 1e6:,.0f} µs")
lesson.table(
    [
        (kind, *(message(n, way, kind) for n in (8, 64, 1024)))
        for way, kind in (("per layer", "all_gather"), ("per layer", "reduce_scatter"), ("DDP", "all_reduce"))
    ],
    ["one layer's", "8 ranks", "64", "1,024"],
    evidence="simulated (H100)",
    caption=f"{4096 * 4096 * 2 / 1e6:.1f} MB each. One product of the layer: {product * 1e6:,.0f} µs",
)

# %% experiment tags=["fold"]
gpu, took = steps[8, "per layer"][:2]
plots.overlapped(gpu, since_s=gpu.clock() - took, title="fully_shard per layer, 8 ranks")

# %% [markdown]
# *Stream 1*, of high priority, copies shards into the message. *Exposed* is the time in which only collectives run. The
# next layer's gather lies under this layer's product; only the first gather and the last reduce-scatter stick out.

# %% experiment tags=["fold"]
shown = [(8, way) for way in ("all at once", "per layer", "per layer, kept", "rank 3 slow")]
shown += [(64, way) for way in ("per layer", "rank 3 slow")]
shown += [(1024, way) for way in ("per layer", "rank 3 slow", "two ahead", "all at once", "HSDP")]
plots.compared(
    {f"{n:,}: {way}": (steps[n, way][0], steps[n, way][0].clock() - steps[n, way][1]) for n, way in shown},
    title="Forward and backward on 8, 64 and 1,024 ranks",
)

# %% [markdown]
# - **All at once**: before forward and after backward everybody waits for the whole model's message.
# - **Per layer, at 1,024 ranks**, a gather takes {{gather}} and the product beside it {{product}}: its ring goes through
#   128 nodes one after
#   the other and pays latency at each. Asking two layers ahead gains nothing, since the link is never idle. All-reduces
#   suffer far less: between nodes they may go by a *tree*, in a logarithmic number of steps (lesson 14). Gathers and
#   reduce-scatters have
#   rings only, here as in NCCL before [*PAT*](https://arxiv.org/abs/2506.20252) (S. Jeaugey, 2025), which takes
#   logarithmic steps for small messages. With
#   PAT the column for 1,024 would be better; bytes stay.
# - **Kept** (`reshard_after_forward=False`): no gathers in backward, a little faster than DDP while the network keeps up.
# - **A slow rank** is waited for at every layer (pale). Where the network is the bottleneck, it costs nothing more.
#
# What helps many nodes: **larger units** (three to a call, even all at once: fewer messages, more memory); **more tokens per
# rank**, longer products to hide behind; and **HSDP**, whose gathers stay on NVLink, with an all-reduce of each rank's share
# of the gradient between nodes (its third lane). It holds more, 1/8 instead of 1/1,024, which is little beside the activations.

# %% experiment tags=["fold"]
rows = []
for way in ("per layer", "HSDP"):
    gpu, _, _, calls = steps[1024, way]
    for kind, among in dict.fromkeys((c.kind, len(c.ranks)) for c in calls):
        mine = [c for c in calls if (c.kind, len(c.ranks)) == (kind, among)]
        where = "inside the node" if among == 8 else "between nodes" if kind == "all_reduce" else "both"
        rows.append((way, kind, f"{among:,}", where, len(mine), f"{sum(c.bytes for c in mine) / 1e6:,.1f}"))
lesson.table(
    rows,
    ["", "call", "ranks in it", "where", "calls", "payload, MB"],
    evidence="simulated (H100)",
    caption="1,024 ranks, a step. HSDP by bytes: only an eighth of the gradient leaves the node",
)

# %% [markdown]
# ### What is whole at the worst moment?
#
# Keeping weights after forward saves a message. If there is room for some: for which blocks? Six equal blocks, each given to
# `fully_shard`, on 64 ranks, with few tokens. **How many blocks' bytes are in memory at the worst moment, beyond the shards?**
# (Whole numbers. Count also gradients, gathers under way, and that a gather arrives in one buffer and is copied out into
# weights.)

# %% experiment
prediction = {"let go of all": ..., "keep the first three": ..., "keep the last three": ..., "keep all": ...}

# %% experiment tags=["fold"]


def worst_moment(blocks, let_go, n):
    """Bytes beyond the shards, by the rules below."""
    at = dict(enumerate(blocks)).get
    worst = 0
    for i, b in enumerate(blocks):
        kept = sum(c for c, gone in zip(blocks[:i], let_go[:i], strict=True) if not gone)
        gathered = at(i - 1, 0) if i and let_go[i - 1] else 0
        forward = kept + 2 * b + at(i - 1, 0)
        backward = kept + gathered + 2 * b + at(i + 1, 0) + sum(blocks[i + 1 :]) // n
        worst = max(worst, forward, backward)
    return worst


def simulated_plan(blocks, let_go, n, width=1024, tokens=16):
    """(peak bytes beyond the shards, payload bytes, seconds) of a warm step; a block is two matrices."""
    with simulate("H100").world(n, nodes=n // 8, between="InfiniBand NDR") as gpu:
        how = {"bias": False, "device": gpu.device, "dtype": torch.bfloat16}
        pairs = [(width, b // (4 * width)) for b in blocks]
        model = nn.Sequential(
            *(nn.Sequential(nn.Linear(a, b, **how), nn.Linear(b, a, **how)) for a, b in pairs)
        )
        mesh = init_device_mesh(gpu.device.type, (n,))
        for block, gone in zip(model, let_go, strict=True):
            fully_shard(block, mesh=mesh, reshard_after_forward=gone)
        fully_shard(model, mesh=mesh)
        for _ in range(2):
            model.zero_grad()
            gpu.synchronize()
            begin, sent, held = gpu.clock(), len(gpu.collectives), gpu.memory_allocated()
            gpu.reset_peak_memory_stats()
            model(torch.empty(tokens, width, device=gpu.device, dtype=torch.bfloat16)).sum().backward()
            gpu.synchronize()
        took = gpu.clock() - begin
        return gpu.max_memory_allocated() - held, sum(c.bytes for c in gpu.collectives[sent:]), took


PLANS = {"let go of all": "ggg ggg", "keep the first three": "kkk ggg", "keep the last three": "ggg kkk", "keep all": "kkk kkk"}  # fmt: skip
equal, odd = [8 << 20] * 6, [8 << 20, 24 << 20, 8 << 20, 16 << 20, 8 << 20, 8 << 20]
tried = [(name, equal, letters) for name, letters in PLANS.items()]
tried += [("a mix", odd, letters) for letters in ("ggg ggg", "gkg gkk", "kgk kkk")]
rows, said = [], {}
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for name, blocks, letters in tried:
        let_go = [letter == "g" for letter in letters.replace(" ", "")]
        ruled, (peak, sent, took) = worst_moment(blocks, let_go, 64), simulated_plan(blocks, let_go, 64)
        payload = sum((3 if gone else 2) * b for b, gone in zip(blocks, let_go, strict=True))
        rows.append((name, blocks, letters, ruled, peak, payload, sent, took))
        said.setdefault(name, round(peak / blocks[0]))
said.pop("a mix")
lesson.keep(least_blocks=min(said.values()), most_blocks=max(said.values()))
lesson.compare_predictions(prediction, said, evidence="simulated (H100)", choices=range(25)).show()
lesson.table(
    [
        (
            " ".join(str(b >> 20) for b in blocks),
            letters,
            *(f"{x / 2**20:.1f}" for x in (ruled, peak, payload, sent)),
            f"{took * 1e3:.2f} ms",
        )
        for _, blocks, letters, ruled, peak, payload, sent, took in rows
    ],
    ["blocks, MiB", "plan", "worst by rule", "simulated", "sent by rule", "simulated", "step"],
    evidence="arithmetic · simulated (H100)",
    caption="64 ranks; k: kept after forward, g: let go of (gathered again); MiB beyond the shards, payload in MiB",
).show()
off = max(abs(row[3] / row[4] - 1) for row in rows)
sends_all = all(row[5] == row[6] for row in rows)
print(
    f"rule against simulation: worst moment at most {off:.1%} off (activations), bytes sent equal: {sends_all}"
)

# %% [markdown]
# What `fully_shard` of torch 2.13 has in memory at block i, beyond the shards (one dtype; b₋₁ and b₊₁ are its neighbours):
#
# - **forward**: what was *kept before i*; block i twice, as the gather delivers it and as weights copied out of that; and
#   b₋₁'s gather buffer, let go of only after that copy.
# - **backward** (last block first, each let go of when it is done): what was *kept before i*; b₋₁, which is gathered ahead if
#   it was not kept; weights and gradient of i; the gradient of b₊₁ on its way through reduce-scatter; and 1/n of the
#   gradients that are done.
#
# The plain guess "what is kept, and one more block" is far too low. And the order counts: a block that is kept early stays in
# memory while all later blocks run, whereas the last block costs nothing to keep. Where the worst moment is elsewhere,
# keeping is free: the last row keeps all but the largest block, sends less than the first of the same blocks, and needs no
# more.
#
# **Exercise 15.4 — a wrapping plan** (★★★, 12 min)
#
# <details><summary>Hint 1</summary>First write a function that says how many bytes a plan needs at the worst moment: a loop over the
# blocks, with the docstring's two lines.</details>
#
# <details><summary>Hint 2</summary><code>itertools.product([True, False], repeat=len(blocks))</code> are all plans. Of those that fit, the
# one that keeps most bytes sends least.</details>
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
from helpers.exercises.fully_sharded import check_plan, mib

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
from helpers.exercises.fully_sharded import check_plan, mib, needed, random_blocks

least = needed(mib(8, 104, 48), [True] * 3, 8)[0]
check_plan(
    *random_blocks(4, [9, 8, 6, 5, 3], [8, 64]),
    check.case(mib(8, 104, 48), 8, least - 1, raises=ValueError),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · Formats, offload, and checkpoints
#
# `MixedPrecisionPolicy(param_dtype=torch.bfloat16)` lets gathers travel in 16 bits, and `fully_shard` computes with what
# arrives. **How many times float32's bytes are then a rank's shards, the gathers, the reduce-scatters? The reduce-scatters
# with `reduce_dtype=torch.float32` besides? And can one process load what two ranks have saved, each its own shards** ("yes" or
# "no")**?**

# %% experiment
prediction = {
    "shards": ...,
    "gathers": ...,
    "reduce-scatters": ...,
    "reduce-scatters, reduce_dtype=float32": ...,
    "loaded by 1 process": ...,
}

# %% experiment tags=["fold"]
import tempfile


def one_step(**policy):
    from torch.distributed.fsdp import MixedPrecisionPolicy

    with ranks.fake(8) as mesh:
        options = {"mp_policy": MixedPrecisionPolicy(**policy)} if policy else {}
        model = wrapped(True, True, mesh, **options)
        with ranks.sent(model) as record:
            model(torch.ones(2, WIDTH)).sum().backward()
        shards = sum(p.to_local().nbytes for p in model.parameters())
    return {"shards": shards} | {kind: record.bytes(kind) for kind in ("all_gather", "reduce_scatter")}


half = torch.bfloat16
policies = {
    "float32": {},
    "param_dtype=bfloat16": {"param_dtype": half},
    "… reduce_dtype=float32": {"param_dtype": half, "reduce_dtype": torch.float32},
}
formats = {name: one_step(**policy) for name, policy in policies.items()}


def saves(folder):
    import torch.distributed.checkpoint as dcp

    model = wrapped(True, True, init_device_mesh("cpu", (2,)))
    dcp.save(model.state_dict(), checkpoint_id=folder)
    return [tuple(p.to_local().shape) for p in model.parameters()]


def loads(folder):
    import torch.distributed.checkpoint as dcp

    state = {name: torch.zeros_like(w) for name, w in layers(WIDTH).state_dict().items()}
    dcp.load(state, checkpoint_id=folder)
    return all(torch.equal(state[name], w) for name, w in layers(WIDTH).state_dict().items())


with tempfile.TemporaryDirectory() as folder:
    shards = ranks.run_ranks(saves, 2, folder)
    files = sorted(name for name in os.listdir(folder))
    same = ranks.run_ranks(loads, 1, folder)[0]
plain, bf16, mixed = formats.values()
said = {
    "shards": bf16["shards"] / plain["shards"],
    "gathers": bf16["all_gather"] / plain["all_gather"],
    "reduce-scatters": bf16["reduce_scatter"] / plain["reduce_scatter"],
    "reduce-scatters, reduce_dtype=float32": mixed["reduce_scatter"] / plain["reduce_scatter"],
    "loaded by 1 process": "yes" if same else "no",
}
lesson.compare_predictions(
    prediction, said, evidence="live (CPU)", choices=("yes", "no", 0.25, 0.5, 1, 2, 4)
).show()
lesson.table(
    [(name, *(f"{nbytes:,}" for nbytes in found.values())) for name, found in formats.items()],
    ["policy", "shards on a rank, bytes", "gathers", "reduce-scatters"],
    evidence="live (CPU)",
    caption="counted on a fake group of 8",
).show()
print(
    f"saved by 2 ranks: {len(files)} files ({', '.join(files)}); each rank's part of a layer: {shards[0][0]}"
)
print(f"loaded by 1 process, without FSDP: every weight the same: {same}")

# %% [markdown]
# Shards stay float32 for the optimizer (4 bytes, 4 of gradient and 8 of Adam: 16 per parameter again).
# `reduce_dtype=torch.float32` keeps the sum of a thousand gradients from being rounded
# (lesson 10, swamping). Of a checkpoint (`torch.distributed.checkpoint`) each rank wrote its own half and where it belongs;
# a plain model, in a process without FSDP, read both. Whoever gathers the whole model on rank 0 to save it needs the memory
# that they have not got.
#
# [`CPUOffloadPolicy()`](https://docs.pytorch.org/docs/2.13/distributed.fsdp.fully_shard.html) keeps shards, gradients
# and optimizer in the host's memory. Its price is arithmetic: each of two gathers
# begins with a copy of this rank's shard to the GPU, in float32, and each gradient's shard goes back, over the rank's own PCIe.

# %% experiment tags=["fold"]
pcie, h100 = ranks.LINKS["PCIe 5.0 x16"], simulate("H100").card
products = 6 * 8e9 * 8192 / h100.peak_flops["bf16"]
lesson.table(
    [
        (
            f"{n:,}",
            f"{(up := 2 * 4 * 8e9 / n) / 1e9:,.2f} GB",
            f"{up / 2 / 1e9:,.2f} GB",
            f"{1.5 * up / pcie.bytes_per_s * 1e3:,.0f} ms",
        )
        for n in (8, 64, 1024)
    ],
    ["ranks", "to the GPU, per step", "back", "at the rate of PCIe 5.0 x16, one after the other"],
    evidence="arithmetic",
    caption="8 billion parameters in float32; the optimizer then runs on the CPU. For comparison, the products of a step of "
    f"8,192 tokens a rank at an H100's peak in bfloat16: {products * 1e3:,.0f} ms",
)

# %% [markdown]
# More ranks make it cheaper, and less needed.
#
# ## On the real GPU
#
# With two GPUs or more, the same `fully_shard` runs over NCCL, and a profile (lesson 03) shows the gathers on a stream of
# their own. No recording exists for this lesson yet.

# %% experiment
if torch.cuda.device_count() > 1:
    for way, how in WAYS.items():

        def on_gpus(how):
            # fully_shard puts the shards on this rank's GPU
            model = wrapped(*how, init_device_mesh("cuda", (2,)), width=4096)
            torch.cuda.reset_peak_memory_stats()
            model(torch.ones(8192, 4096, device="cuda")).sum().backward()
            return torch.cuda.max_memory_allocated()

        print(f"live (GPU) {way}: peak {ranks.run_ranks(on_gpus, 2, how)[0] / 1e6:,.0f} MB")
else:
    print(
        "fewer than two GPUs here, and no recording yet: times of section 3 are simulated, bytes were counted."
    )

# %% [markdown]
# ## Sources on trial

# %% experiment tags=["fold"]
gone, early, last, kept, all_gone, _, free = rows
ddp, per_layer, hsdp = (steps[1024, way] for way in ("DDP", "per layer", "HSDP"))
claims = [
    (
        "15-memory",
        "guide",
        "FSDP uses memory more efficiently and supports very large models",
        f"8 billion parameters: {gb('DDP', 8):,.0f} GB on each rank with DDP, {gb('ZeRO-3', 64):.0f} on 64. Simulated peak of 6 layers on 8 "
        f"ranks: {steps[8, 'DDP'][2] / 1e6:,.0f} MB DDP, {steps[8, 'all at once'][2] / 1e6:,.0f} all at once, {steps[8, 'per layer'][2] / 1e6:,.0f} per layer",
        "holds when it wraps block by block; activations are not cut",
        "1 · What is stored and 3 · Does it hide?",
    ),
    (
        "15-scaling",
        "guide",
        "FSDP scales better to several nodes",
        f"forward and backward at 1,024 ranks, simulated: DDP {ddp[1] * 1e3:.1f} ms, per layer {per_layer[1] * 1e3:.1f}, HSDP {hsdp[1] * 1e3:.1f}",
        f"refuted for speed in this simulation, for a model that DDP can hold at all, where gathers between nodes go by rings: DDP is the fastest of the three. HSDP comes "
        f"within {hsdp[1] / ddp[1] - 1:.1%} of it with {hsdp[2] / ddp[2]:.0%} of its memory"
        if ddp[1] < min(per_layer[1], hsdp[1])
        else "holds when it is cut inside the node only (HSDP)"
        if ddp[1] < per_layer[1]
        else "confirmed",
        "3 · Does it hide?",
    ),
    (
        "15-strategy",
        "guide",
        "choose the sharding strategy by balancing communication and memory",
        f"six blocks, simulated: let go of all sends {gone[5] >> 20} MiB and needs {gone[4] / 2**20:.0f} beyond the shards, keep all {kept[5] >> 20} and "
        f"{kept[4] / 2**20:.0f}. Keeping three sends {early[5] >> 20} either way: the first three need {early[4] / 2**20:.0f}, the last three {last[4] / 2**20:.0f}. Unequal blocks: "
        f"one plan sends {free[5] >> 20} instead of {all_gone[5] >> 20} and needs no more",
        "holds when keeping a block raises the worst moment; keeping other blocks is free, and which ones counts as much as how many"
        if gone[4] < kept[4] and last[4] < early[4] and free[5] < all_gone[5] and free[4] <= all_gone[4]
        else "confirmed",
        "3 · What is whole at the worst moment?",
    ),
]
lesson.verdicts(claims, evidence="arithmetic · live (CPU) · simulated (H100)")

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | ZeRO-1 is free: same bytes, a fraction of the optimizer. | Few parameters: two messages instead of one. |
# | ZeRO-3 sends half again as much as DDP. | With reshard_after_forward=False as much; with 1,024 ranks and small matrices far more. |
# | Wrap block by block; one call for all does not lower the weights' peak. | Tiny blocks, many nodes: latency; put several into one call. |
# | Gathering hides behind computing. | Short products, many nodes: HSDP, more tokens, larger units. |
# | Keep after forward what there is room for; of equal blocks the last ones. | Unequal blocks: try all plans; even early ones can be free. |
# | Sharding cuts what is static. | Activations: checkpoint (lesson 09), or cut the sequence (lesson 16). |
#
# **Checklist for your own code**
# - [ ] 16 bytes × parameters ÷ ranks, plus activations, plus the worst moment's blocks ({{least_blocks}} if all are let
#   go of, {{most_blocks}} if all six are kept): does it fit?
# - [ ] Is every block wrapped *before* the model? (What no inner call has taken, the model's call takes: all at once.)
# - [ ] Are gathers and products side by side in the trace?
# - [ ] Is the first dimension of each large matrix at least the number of ranks?
# - [ ] Gradients summed in float32?
# - [ ] Is the optimizer made *after* `fully_shard`? (It replaces the parameters by shards.)
# - [ ] Can the checkpoint be loaded on another number of ranks?
#
# **Read on**: S. Rajbhandari and others, *ZeRO: memory optimizations toward training trillion parameter models* (2020); Y.
# Zhao and others, *PyTorch FSDP: experiences on scaling fully sharded data parallel* (2023); PyTorch's documentation of
# `torch.distributed.fsdp.fully_shard` and of `torch.distributed.checkpoint`.
