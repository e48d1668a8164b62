# %% [markdown]
# # 16 · Model parallel
#
# ## What if the data is not what to split?
#
# Lessons 14 and 15 gave each GPU other data. That ends when one sample's activations do not fit, when the batch
# cannot grow any further, or when a step must be shorter than one sample takes on one GPU. Then the model itself is
# split: **inside its layers** (tensor parallel) or **between them** (pipeline). Each way sends something else, at
# another time, over another link, and the art is to lay the two and data parallelism over the machine's links so that
# the most talkative one gets the fastest.
#
# **Time** 100–120 min, more than half of it exercises. **Before this** lesson 14 (collectives, the α–β model, DDP); lesson
# 15 helps.
#
# **Afterwards you can**
# - split an MLP and an attention layer over ranks so that as little as possible is sent, count it, and say what
#   sequence parallelism changes;
# - write a pipeline schedule, and say its bubble and its activations beforehand;
# - lay out 64 GPUs for a given model and network, with numbers.
#
# **On trial** *a split matrix product is put together by an all-gather* and *tensor parallelism is used only inside
# one machine with NVLink* and *a pipeline cannot help where one layer does not fit* (notes on the book) · *data and
# model parallelism combined handle very large models* (five strategies).

# %% setup
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from helpers import lesson, ranks

torch.set_num_threads(1)
lesson.start("16_model_parallel", evidence=["live (CPU)", "simulated (H100)", "arithmetic"])

# %% [markdown]
# ## 1 · Split a matrix product
#
# `y = x @ w`, and two ranks, each with half of w. There are two ways to cut. By **columns**, each rank computes half
# of y's columns from the whole x. By **rows**, each rank needs only half of x's columns, and computes an addend of
# all of y. No process is needed to see it:

# %% experiment
dice = torch.Generator().manual_seed(0)
x, w = torch.randn(6, 8, generator=dice), torch.randn(8, 10, generator=dice)
left, right = w.chunk(2, dim=1)  # by columns
top, bottom = w.chunk(2, dim=0)  # by rows
y_by_columns = torch.cat([x @ left, x @ right], dim=1)  # all of x; half of y's columns each, side by side
y_by_rows = x[:, :4] @ top + x[:, 4:] @ bottom  # half of x's columns; an addend of y each, added up


def equal(mine, right):
    return "yes" if torch.allclose(mine, right, atol=1e-4) else "no"


print("equal to x @ w? by columns:", equal(y_by_columns, x @ w), "· by rows:", equal(y_by_rows, x @ w))

# %% [markdown]
# Putting it together is communication: side by side is an **all-gather**, adding up is an **all-reduce**. An MLP is
# two products with an elementwise function between them, `gelu(x @ a) @ b`; attention is products with something done
# to each head between them. Below, torch's own `parallelize_module` splits both in several ways on two real processes.
# (*[Sequence parallel](https://docs.pytorch.org/docs/2.13/distributed.tensor.parallel.html)*: x comes in and y goes out
# with half of the tokens on each rank; the products in between need all
# tokens.) How many collectives does **one forward pass** of each make?

# %% experiment
prediction = {
    "MLP, each product gathered": ...,
    "MLP, first by columns, then by rows": ...,
    "attention, a rank has half of the heads": ...,
    "MLP, columns then rows, sequence parallel": ...,
}

# %% experiment
from torch.distributed.tensor import DTensor, Replicate, Shard, parallel
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

# A plan says for each submodule how it is split. ColwiseParallel: from all of x to a rank's columns of y.
# RowwiseParallel: from its columns of x to all of y, summed. Other layouts of x or y can be asked for:
# Replicate(), every rank has all of it; Shard(1), it has its part of dimension 1, here the tokens.
gathered = ColwiseParallel(output_layouts=Replicate())
columns_rows = {"1": ColwiseParallel(), "3": RowwiseParallel()}
heads = {"q": ColwiseParallel(), "k": ColwiseParallel(), "v": ColwiseParallel(), "out": RowwiseParallel()}
once = parallel.PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),))
of_tokens = {
    "0": parallel.SequenceParallel(),
    "1": ColwiseParallel(input_layouts=Shard(1)),
    "3": RowwiseParallel(output_layouts=Shard(1)),
}
PLANS = {  # name → (module, plan, the dimension of x that is split)
    "MLP, each product gathered": ("mlp", {"1": gathered, "3": gathered}, None),
    "MLP, first by columns, then by rows": ("mlp", columns_rows, None),
    "attention, a rank has half of the heads": ("attention", heads, None),
    "the same, x handed over once": ("attention", {"": once, **heads}, None),
    "MLP, columns then rows, sequence parallel": ("mlp", of_tokens, 1),
}

# %% experiment tags=["fold"]
WIDTH, TOKENS = 64, 32


class Attention(nn.Module):
    """Causal attention whose number of heads follows from how many its weights hold here."""

    def __init__(self, of_a_head=16):
        super().__init__()
        self.of_a_head = of_a_head
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (-1, self.of_a_head)).transpose(1, 2) for f in (self.q, self.k, self.v))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(heads.transpose(1, 2).flatten(2))


def mlp():
    layers = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
    return nn.Sequential(nn.LayerNorm(WIDTH), *layers)


def storage(t):
    """Of what this rank has of t: (address, bytes)."""
    t = t.to_local() if isinstance(t, DTensor) else t
    t = getattr(t, "elem", t).untyped_storage()
    return t.data_ptr(), t.nbytes()


def step_of(module, x, want):
    """Of one forward and backward: is y right, what was sent, and the bytes of activations kept for backward."""
    weights, kept = dict(map(storage, module.parameters())), {}

    def pack(t):
        kept.update([storage(t)])
        return t

    with ranks.sent() as record:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            y = module(x.clone().requires_grad_())
        y.square().sum().backward()
    return equal(y.detach(), want), record, sum(size for at, size in kept.items() if at not in weights)


def split_and_run():
    n, rank, told = dist.get_world_size(), dist.get_rank(), {}
    mesh = dist.init_device_mesh("cpu", (n,))
    for name, (kind, plan, dim) in PLANS.items():
        module, x = mlp() if kind == "mlp" else Attention(), torch.randn(1, TOKENS, WIDTH)
        want = module(x).detach()
        parallelize_module(module, mesh, plan)
        mine = [t if dim is None else t.chunk(n, dim)[rank] for t in (x, want)]
        told[name] = step_of(module, *mine)
    return told


by_plan = ranks.run_ranks(split_and_run, 2)[0]


def ways(record, backward):
    found = [c.kind for c in record.calls if (c.phase == "backward") == backward]
    return ", ".join(f"{found.count(k)} {k}" for k in dict.fromkeys(found))


def sent_by(steps):
    """name → what step_of returned, as a table."""
    return lesson.table(
        [
            (name, ways(record, False), ways(record, True), f"{record.wire_bytes():,.0f}", f"{kept:,}", right)
            for name, (right, record, kept) in steps.items()
        ],
        ["", "forward", "backward", "bytes a rank sends", "keeps for backward", "equals the unsplit"],
        evidence="live (CPU)",
        caption=f"2 ranks, x of {TOKENS} tokens × {WIDTH} float32 ({TOKENS * WIDTH * 4:,} bytes); sent: on the wire, by rings; "
        "keeps: bytes of activations",
    )


sends = [record.wire_bytes() for _, record, _ in by_plan.values()]
lesson.keep(gathering=sends[0] / sends[1])
assert "3 all_reduce" in ways(by_plan["attention, a rank has half of the heads"][1], True)
lesson.compare_predictions(
    prediction,
    {name: sum(c.phase != "backward" for c in by_plan[name][1].calls) for name in prediction},
    evidence="live (CPU)",
    what="collectives forward",
    choices=range(25),
).show()
sent_by(by_plan)

# %% [markdown]
# Cut the first product by columns and the second by rows, and **nothing has to be put together between them**: gelu
# works on single numbers, so the half of the columns that a rank has is just the half that its rows of the second
# matrix need. What is left is one all-reduce of y. Backward mirrors it: x went to all ranks, so its gradient is a sum
# over all ranks, one all-reduce more. Gathering after each product, as the notes on the book describe it, is right
# too, and sends {{gathering:.1f}} times as much. Attention is the same as the MLP, with heads for columns. But look at its
# backward: q, k and v each have x's gradient summed for themselves, three all-reduces, until `PrepareModuleInput` makes
# x one thing that all three share. Counting is how one notices.
#
# **Sequence parallelism** cuts an all-reduce into the two halves a ring makes it of, a reduce-scatter and an
# all-gather. The bytes on the wire are the same. In between, each rank has some of the *tokens* only, so what works
# on tokens one by one, here LayerNorm, keeps only its part (compare the two rows). What the first product keeps is
# still whole here: torch keeps the gathered x for its weights' gradient. The price: LayerNorm's weights see only a
# rank's tokens, so that their gradients need one more sum; torch leaves them as addends (`Partial`) here.
#
# **Exercise 16.1 — a tensor-parallel MLP** (★★★, 20 min)
#
# The plain split, by hand and without `torch.distributed.tensor`. The test runs it in real processes and looks at
# what was sent, at the bytes that each rank still holds, and at two steps of SGD.
#
# <details><summary>Hint 1</summary>Both small functions are an <code>autograd.Function</code>: one does nothing
# forward and an all-reduce backward, the other the reverse. Where does each go in the MLP?</details>
#
# <details><summary>Hint 2</summary>What does <code>weight.chunk(n)[rank]</code> keep alive? And how often is the
# second bias in the sum?</details>
#
# <details><summary>The idea</summary>first: rows rank of <code>weight</code> and of <code>bias</code> (nn.Linear's
# weight is transposed, so its output columns are rows), cloned: a view keeps the whole matrix. second: columns of
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
    all ranks. They are only read. ValueError if hidden is not a multiple of n.
    x: (…, width), float32, the same on all ranks; y too, and x's gradient. gelu is F.gelu's.

    Communication: forward exactly one all-reduce (sum) of y's bytes, backward exactly one of x's; none in __init__. By
    `dist.all_reduce`: nothing of torch.distributed.tensor, and no functional collectives.
    What it trains are its `parameters()`, on rank r the r-th n-th of the hidden units and the second bias; the test
    may train each rank with another learning rate. Held by each rank once first and second are gone: these, 256 bytes
    of other tensors.
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
from helpers.exercises.model_parallel import check_ParallelMLP, whole

check_ParallelMLP(
    2,
    whole([3, 16], 64, biases=[True, True], seed=1),
    whole([2, 128], 256, biases=[True, False], seed=2),
    whole([2, 8], 7, biases=[False, True], seed=3),
)

# %% hidden="parallel_mlp" points=4
### BEGIN HIDDEN TESTS
from helpers.exercises.model_parallel import check_ParallelMLP, whole

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
# Yours beside torch's, on two ranks. What `parallelize_module` gives beyond it: weights that know that they are
# parts (`DTensor`, which checkpoints and optimizers understand), any module, and sequence parallelism by a plan.


# %% experiment
def beside():
    """In each rank: one step of the same MLP, split by torch and by you."""
    net, x = mlp(), torch.randn(1, TOKENS, WIDTH)
    want = net(x).detach()
    mine = nn.Sequential(net[0], ParallelMLP(net[1], net[3]))
    theirs = parallelize_module(net, dist.init_device_mesh("cpu", (dist.get_world_size(),)), columns_rows)
    return {"yours": step_of(mine, x, want), "torch's": step_of(theirs, x, want)}


try:
    shown = sent_by(ranks.run_ranks(beside, 2, timeout=10)[0])
except (NameError, ranks.RankError) as problem:
    shown = f"wants your ParallelMLP ({str(problem).splitlines()[0]})"
shown

# %% [markdown]
# ## 2 · Which link can bear it?
#
# Tensor parallelism sends in the middle of each layer, and forward the next product cannot begin before the sum is
# there: nothing hides it. Four MLPs of width 8,192 in bfloat16, 2,048 tokens, forward and backward, on simulated H100s,
# 8 in a node. NVLink 4 carries {{nvlink:.0f}} GB/s of a GPU, InfiniBand NDR {{ndr:.0f}}, Ethernet 100G {{ethernet:.1f}}
# (`ranks.LINKS` has the sources). Between nodes an all-reduce goes in two levels: inside each node by NVLink, and only
# an eighth of it from each GPU to its counterpart in the other node. Say that one GPU computes {{tflops:.0f}} TFLOP/s.
# An MLP is 2 matrices · 4 h² · 2 FLOPs a token, and backward twice that: 48 h² together; it sends two all-reduces of 2 h
# bytes a token. **How many times as fast as one GPU are …**

# %% experiment
prediction = {
    # the nearest of 2, 4, 6, 8, 12, 16
    "8 GPUs, one node": ...,
    "16 GPUs, two nodes, InfiniBand NDR (400 Gbit/s)": ...,
    "16 GPUs, two nodes, Ethernet 100G": ...,
}

# %% experiment tags=["fold"]
import functools
import math

from helpers import simulate

NETWORKS = ("InfiniBand NDR", "Ethernet 100G")
DEEP, WIDE = 4, 8192


def one_step(x, weights, grad, hide):
    """This rank's part of the MLPs' forward and backward, written out. hide: sum x's gradient beside the weights'."""
    kept = []
    for a, b in weights:
        h = x @ a
        act = F.gelu(h)
        kept.append((x, h, act))
        x = act @ b
        dist.all_reduce(x)
    for (a, b), (x, h, act) in zip(weights[::-1], kept[::-1], strict=True):
        of_h = torch.ops.aten.gelu_backward(grad @ b.T, h)
        of_x = of_h @ a.T
        work = dist.all_reduce(of_x, async_op=hide)
        of_b, of_a = act.T @ grad, x.T @ of_h  # the weights' gradients, which stay on this rank
        if hide:
            work.wait()
        grad = of_x
    return of_a, of_b


@functools.cache
def step_on(n, between, tokens, hide, per_node=8):
    """Seconds of one step on n simulated H100s, and of its collectives; and the first of the GPUs."""
    gpu = simulate("H100").world(n, link="NVLink 4", nodes=max(1, n // per_node), between=between)

    def make(rows, columns):
        return torch.randn(rows, columns, device=gpu.device, dtype=torch.bfloat16)

    with gpu:
        weights = [(make(WIDE, 4 * WIDE // n), make(4 * WIDE // n, WIDE)) for _ in range(DEEP)]
        x, grad = make(tokens, WIDE), make(tokens, WIDE)
        for _ in range(2):  # the first is the warm-up
            sent = len(gpu.collectives)
            gpu.synchronize()
            begin = gpu.clock()
            one_step(x, weights, grad, hide)
            gpu.synchronize()
            took = gpu.clock() - begin
    return took, sum(c.end_ns - c.start_ns for c in gpu.collectives[sent:]) / 1e9, gpu


WAYS = {  # label → network between the nodes, tokens, hide
    "2,048 tokens, InfiniBand NDR": (NETWORKS[0], 2048, False),
    "the same, hidden in backward": (NETWORKS[0], 2048, True),
    "2,048 tokens, Ethernet 100G": (NETWORKS[1], 2048, False),
    "256 tokens, InfiniBand NDR": (NETWORKS[0], 256, False),
}
SIZES = (1, 2, 4, 8, 16, 32)
steps = {
    (way, n): step_on(n, between if n > 8 else None, tokens, hide)
    for way, (between, tokens, hide) in WAYS.items()
    for n in SIZES
}
gain = {(way, n): steps[way, 1][0] / took for (way, n), (took, *_) in steps.items()}
ON_NDR, HIDDEN_NDR, ON_100G, FEW = WAYS


def products(n):
    took, sending, _ = steps[FEW, n]
    return f"{steps[FEW, 1][0] / (took - sending):.1f}"


ratios = (gain[ON_NDR, 8], gain[ON_NDR, 16], gain[ON_100G, 16])
near = [min((2, 4, 6, 8, 12, 16), key=lambda c: abs(math.log(c / r))) for r in ratios]
lesson.compare_predictions(
    prediction,
    dict(zip(prediction, near, strict=True)),
    evidence="simulated (H100)",
    what="times as fast, about",
    choices=(2, 4, 6, 8, 12, 16),
).show()
lesson.table(
    [
        (n, *(f"{gain[way, n]:.1f} ({steps[way, n][1] / steps[way, n][0]:.0%})" for way in WAYS), products(n))
        for n in SIZES
    ],
    ["GPUs", *WAYS, "256 tokens, without its collectives"],
    evidence="simulated (H100)",
    caption="times as fast as one GPU (share of the step in which a collective runs, hidden or not); nodes of 8 with NVLink 4",
)

# %% experiment
from helpers import plots

took, _, gpu = steps[HIDDEN_NDR, 16]
plots.overlapped(gpu, since_s=gpu.clock() - took, title="One step on 16 GPUs in two nodes, InfiniBand NDR")

# %% [markdown]
# An all-reduce's bytes depend on x and hardly on the number of ranks, 2 (n − 1)/n · S, while the products get n times
# smaller: at some n there is more sending than computing. With few tokens two things more go wrong: the collectives
# come down to their latency, which grows with n, and the products become too small to fill the GPU (last column). The
# picture is the way that hides what can be hidden: backward, the gradients of the weights stay on their rank, so they
# are computed beside the sum of x's gradient. Forward has nothing of the kind: every all-reduce is exposed.
#
# So *only inside one machine* is no law; it is a ratio, computing against sending: 48 t h² ÷ n FLOPs against two
# all-reduces of 2 t h bytes. t cancels, and the **width per GPU**, h ÷ n, decides what a link can bear, as long as there are
# tokens enough that latency and small products do not. The table below is that arithmetic alone.

# %% experiment
FLOPS = DEEP * 48 * 2048 * WIDE**2 / steps[ON_NDR, 1][0]  # a second, of one simulated H100 in the table above


of_link = {name: ranks.LINKS[name].bytes_per_s / 1e9 for name in ("NVLink 4", *NETWORKS)}
lesson.keep(
    nvlink=of_link["NVLink 4"], ndr=of_link[NETWORKS[0]], ethernet=of_link[NETWORKS[1]], tflops=FLOPS / 1e12
)


def sending_share(width, n, link, tokens=2048):
    computing = 48 * tokens * width**2 / n / FLOPS
    sending = 2 * ranks.seconds("all_reduce", 2 * tokens * width, n, link)
    return sending / (computing + sending)


LINKS = "NVLink 5", "NVLink 4", "PCIe 5.0 x16", "InfiniBand NDR", "Ethernet 100G", "Ethernet 10G"
TRIED = [(width, n) for width in (2048, 8192, 16384) for n in (2, 8)]
lesson.table(
    [(link, *(f"{sending_share(width, n, link):.0%}" for width, n in TRIED)) for link in LINKS],
    ["one link for all", *(f"width {width:,}, {n} GPUs" for width, n in TRIED)],
    evidence="arithmetic",
    caption="share of an MLP's step, forward and backward, that is sending; flat ring, 2,048 tokens, "
    f"{FLOPS / 1e12:.0f} TFLOP/s; links as in ranks.LINKS; the latency of 10G is assumed",
)

# %% [markdown]
# ## 3 · Split between the layers
#
# A pipeline gives each rank a **stage**, some of the layers in order. It sends little: the activations between two
# stages, once forward and once back, where tensor parallelism sends in every layer. Its price is waiting. The batch is
# cut into **micro-batches**; rank 1 cannot begin before rank 0 has done the first, rank 0's first backward waits until
# its gradient has come back through all others, and at the end they wait for rank 0. That is the **bubble**. Three
# orders of the same work, on 4 ranks with 8 micro-batches, a backward taking two forwards:
#
# - **GPipe**: all forwards, then all backwards.
# - **1F1B**: as soon as the first backward can begin, one backward, one forward, in turn.
# - **interleaved 1F1B**: each rank has two stages of half as many layers (rank 0 has stages 0 and 4 of 8).

# %% experiment
prediction = {  # "smaller", "same" or "larger"
    "1F1B's bubble, against GPipe's": ...,
    "activations rank 0 holds with 1F1B, against GPipe": ...,
    "the interleaved bubble, against 1F1B's": ...,
    "messages when interleaved, against 1F1B": ...,
}

# %% experiment
from helpers.simulator.world.pipeline import order, pipeline

runs = {
    "GPipe": pipeline(order("GPipe", 4, 8)),
    "1F1B": pipeline(order("1F1B", 4, 8)),
    "Interleaved 1F1B": pipeline(order("Interleaved 1F1B", 4, 8, 2), {"F": 0.5}),
}


def against(a, b):
    return "same" if abs(a - b) < 1e-9 else "smaller" if a < b else "larger"


gpipe, plain, inter = runs.values()
answers = (
    against(plain.bubble, gpipe.bubble),
    against(plain.peak[0], gpipe.peak[0]),
    against(inter.bubble, plain.bubble),
    against(len(inter.messages), len(plain.messages)),
)
lesson.compare_predictions(
    prediction,
    dict(zip(prediction, answers, strict=True)),
    evidence="arithmetic",
    choices=("smaller", "same", "larger"),
).show()


def row(name, run):
    held = ", ".join(f"{p * 4 / run.stages:g}" for p in run.peak)
    return name, f"{run.seconds:g}", f"{run.bubble:.1%}", held, len(run.messages)


lesson.table(
    [row(name, run) for name, run in runs.items()],
    ["", "length, in forwards", "bubble", "micro-batches held, by rank", "messages"],
    evidence="arithmetic",
    caption="held: activations of so many micro-batches of a whole rank's layers, at most",
)

# %% experiment
plots.schedule(runs["GPipe"], title="GPipe", unit="forwards of a rank")

# %% experiment
plots.schedule(runs["1F1B"], title="1F1B", unit="forwards of a rank")

# %% experiment
plots.schedule(runs["Interleaved 1F1B"], title="Interleaved 1F1B", unit="forwards of a rank")

# %% [markdown]
# Look at the first two pictures: they are as long as each other. **1F1B does not shrink the bubble, it shrinks the
# memory**: rank r holds p − r micro-batches at most and not all m. The bubble is (p − 1) ÷ (m + p − 1) of the time for
# both. So 1F1B's gain is that m may now grow, and that makes the bubble small. In the third picture a rank has two
# rows, its earlier stage above the later one, and its peak counts activations of half a rank's layers. With v stages a
# rank, filling and emptying take 1 ÷ v of the time, the bubble is (p − 1) ÷ (v m + p − 1), and the price is (v p − 1)
# ÷ (p − 1) times the messages, and more activations (last but one column of the table).
#
# Messages took no time so far; below each takes a quarter of a forward. With 4 ranks, how many micro-batches bring the
# bubble under 10 % when messages cost nothing? And does interleaving still pay when they cost half a forward?

# %% experiment
from helpers import widgets

widgets.pipeline_explorer("1F1B", ranks=4, microbatches=8, send=0.25)


# %% experiment tags=["fold"]
def bubble(name, send, m=8, chunks=1):
    return pipeline(order(name, 4, m, chunks), {"F": 1 / chunks}, send_s=send).bubble


KINDS = (("GPipe", 1), ("1F1B", 1), ("Interleaved 1F1B", 2))
enough = next(m for m in range(4, 100) if bubble("1F1B", 0, m) < 0.1 - 1e-9)
lesson.table(
    [(name, *(f"{bubble(name, send, chunks=c):.1%}" for send in (0, 0.25, 0.5))) for name, c in KINDS],
    ["bubble, when a message takes", "nothing", "a quarter of a forward", "half a forward"],
    evidence="arithmetic",
    caption=f"4 ranks, 8 micro-batches. Without messages {enough} micro-batches bring 1F1B's bubble under 10 %",
)

# %% [markdown]
# Interleaving still pays against 1F1B. But 1F1B now costs *time* against GPipe: each of its turns waits for a message
# there and another back.

# %% [markdown]
# **Exercise 16.2 — a 1F1B schedule** (★★, 10 min)
#
# The order of work for each rank, with one thing that the library does not have: a limit on the activations that any
# rank may hold. The test runs your table, and looks at the order, the bubble and the peak. Without calling a schedule
# of the course or of torch.
#
# <details><summary>Hint 1</summary>How many forwards must rank r do before its first backward can begin? Look at the
# second picture: rank 3 does one, rank 2 two.</details>
#
# <details><summary>Hint 2</summary>After these, always one backward and then one forward, until there are no forwards
# left; then the backwards that remain.</details>
#
# <details><summary>The idea</summary>ahead = min(p − r, m, most) forwards; then for each micro-batch i its backward,
# followed by forward ahead + i if there is one.</details>


# %% exercise="one_f_one_b"
def one_f_one_b(stages: int, microbatches: int, most: int | None = None) -> list[list[str]]:
    """1F1B: a row for each rank, its actions in order. Rank r has stage r; "2F0" is stage 2's forward of
    micro-batch 0, "2B0" its backward.

    stages, microbatches: at least 1, else ValueError. most: no rank may hold the activations of more micro-batches
    than this (from a forward's begin to its backward's end); at least 1, else ValueError; None: no limit.

    Micro-batches come in order 0, 1, …, forward and backward. Without limit rank r of p holds min(p − r, m) at its
    peak, as in the second picture above, and for m ≥ p the bubble is (p − 1) ÷ (m + p − 1). With a limit the order is
    the same, but for fewer forwards before the first backward where the limit says so.
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
from helpers.exercises.model_parallel import check_one_f_one_b

check_one_f_one_b([4, 8], [2, 2], [4, 2], [1, 3], [3, 5, 2], refused=[[2, 0]])

# %% hidden="one_f_one_b" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.model_parallel import check_one_f_one_b

check_one_f_one_b(
    *([3, 7], [5, 9], [6, 17], [8, 3], [1, 1], [7, 1], [37, 71]),
    *([6, 17, 1], [5, 9, 3], [4, 12, 4], [4, 12, 9], [8, 3, 2], [2, 6, 1], [9, 80, 6]),
    refused=[[0, 4], [4, 0], [4, 4, 0]],
)
### END HIDDEN TESTS

# %% [markdown]
# In real processes: torch's own schedules on 2 ranks and 4 micro-batches, beside the course's tables and yours. What
# each rank did comes from hooks on its stages, what it sent from the record.


# %% experiment
def pipelined(microbatches):
    """In each rank, for each of torch's schedules: its actions, the messages, and how far the loss is off."""
    from torch.distributed import pipelining as pp

    rank, n, told = dist.get_rank(), dist.get_world_size(), {}
    kinds = {
        "GPipe": (pp.ScheduleGPipe, 1),
        "1F1B": (pp.Schedule1F1B, 1),
        "Interleaved 1F1B": (pp.ScheduleInterleaved1F1B, 2),
    }
    for name, (kind, chunks) in kinds.items():
        torch.manual_seed(0)
        layers = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(n * chunks)]
        x, y = torch.randn(2 * microbatches, 16), torch.randn(2 * microbatches, 16)
        whole, log = F.mse_loss(nn.Sequential(*layers)(x), y), []
        for at in (mine := range(rank, n * chunks, n)):

            def forward(module, inputs, output, log=log, at=at):
                log.append(f"{at}F")
                if output.requires_grad:
                    output.register_hook(lambda grad: log.append(f"{at}B"))

            layers[at].register_forward_hook(forward)
        stages = [pp.PipelineStage(layers[at], at, n * chunks, torch.device("cpu")) for at in mine]
        schedule = kind(stages if chunks > 1 else stages[0], microbatches, loss_fn=F.mse_loss)
        losses, inputs = [], [x] if rank == 0 else []
        with ranks.sent() as record:
            schedule.step(*inputs, **({"target": y, "losses": losses} if rank == n - 1 else {}))
        log = log[-2 * chunks * microbatches :]  # before them, it asked the stages for their shapes
        messages = [c for c in record.of("send") if c.bytes == 2 * 16 * 4]
        off = abs(sum(losses) / microbatches - whole).item() if losses else 0.0
        told[name] = (log, len(messages), off)
    return told


def same(log, table, rank):
    """Are these a row's actions, but for the micro-batches' numbers?"""
    return "yes" if log == [action.rstrip("0123456789") for action in table[rank]] else "no"


def compared(name, rank, log, sent, _):
    course = same(log, order(name, 2, 4, 1 + ("I" in name)), rank)
    try:
        yours = same(log, one_f_one_b(2, 4), rank) if name == "1F1B" else ""
    except (NameError, NotImplementedError):
        yours = "wants your one_f_one_b"
    return name, rank, " ".join(log), sent, course, yours


both = ranks.run_ranks(pipelined, 2, 4)
lesson.table(
    [compared(name, rank, *told[name]) for name in both[0] for rank, told in enumerate(both)],
    ["torch's", "rank", "did (stage, forward or backward)", "messages sent", "as the course", "as yours"],
    evidence="live (CPU)",
).show()
print("loss as of the unsplit net:", all(off < 1e-5 for told in both for *_, off in told.values()))

# %% [markdown]
# And what a limit on the activations costs, by your schedule, on 4 ranks with 8 micro-batches:

# %% experiment
try:
    limited = {most: pipeline(one_f_one_b(4, 8, most)) for most in (1, 2, 3, 4)}
    shown = lesson.table(
        [(most, str(list(run.peak)), f"{run.bubble:.1%}") for most, run in limited.items()],
        ["most", "held, by rank", "bubble"],
        evidence="arithmetic",
    )
except (NameError, NotImplementedError):
    shown = "wants your one_f_one_b"
shown

# %% [markdown]
# Each micro-batch less is paid for in bubble; with one, the ranks work one after another.
#
# A pipeline is as fast as its **slowest stage**. Layers are not equal (an embedding is cheap, the last projection to
# the vocabulary expensive), and with 1F1B the first stages hold most activations, so that the cut which balances the time
# may not fit.
#
# **Exercise 16.3 — balance the stages** (★★, 15 min)
#
# Cut the layers so that the slowest stage is as fast as it can be, and every stage fits. The test adds up what each
# of your stages takes and holds.
#
# <details><summary>Hint 1</summary>With one stage there is no choice. With p stages, the last one takes the layers
# from some i on, and the others share what is before.</details>
#
# <details><summary>Hint 2</summary>best[k][i]: the least possible slowest stage when k stages share the first i
# layers. A stage that does not fit costs infinity.</details>
#
# <details><summary>The idea</summary>best[k][j] = min over i &lt; j of max(best[k − 1][i], time of layers i … j − 1
# as stage k − 1), and remember the i. What fits depends on the stage's number: of p stages, stage k − 1 holds
# min(p − (k − 1), m) micro-batches.</details>


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
    ValueError if nothing fits. 24 layers on 8 stages take well under a second; every cut that is as good is right.
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
    found, end = [], layers
    for cut in reversed(cuts):
        found.append(end - cut[end])
        end = cut[end]
    return found[::-1]
    ### END SOLUTION


# %% test="balance" points=1
from helpers import check
from helpers.exercises.model_parallel import check_balance

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
from helpers.exercises.model_parallel import check_balance, layers

check_balance(
    *(layers(s, 6 + 2 * s, 2 + s % 6, 1 + 3 * s, (1.0, 1.1, 1.4, 9.0)[s % 4]) for s in range(9)),
    layers(20, 24, 8, 32, 1.05),
    layers(127, 17, 6, 8, 9.0),
    check.case(*layers(100, 20, 3, 5, 1.0).args[:5], 293),  # the best cut fills the memory to the last byte
    check.case([1.0, 2.0], [1, 1], [1, 1], 3, 4, 1000, raises=ValueError),
    check.case([0.0, 0.0, 5.0, 0.0, 0.0], [0] * 5, [0] * 5, 4, 2, 0),  # layers that take no time and no bytes
    check.case([0.3], [7], [2], 1, 6, 9),
    check.case([1e-7, 3e-7, 2e-7, 2e-7, 1e-7], [1] * 5, [0] * 5, 3, 1, 9),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · Lay it over the machine
#
# 64 GPUs in 8 nodes, and three ways to split at once: `tp · pp · dp = 64`. A **device mesh** numbers the ranks along
# three axes. The innermost axis gets neighbouring ranks, so with 8 GPUs a node an innermost axis of 8 never leaves
# its node. What does a rank of the first stage hand over along each axis in one step? 16 MLPs of width 64, 4
# micro-batches of 16 rows, and meshes pp 1 · dp 1 · tp 8, pp 2 · dp 4 · tp 8 and pp 8 · dp 16 · tp 8:
#
# - **tp**: all-reduces of a micro-batch, two a layer and micro-batch; a pipeline of pp has 16 ÷ pp layers a rank;
# - **pp**: a micro-batch to the next stage and its gradient back, for each micro-batch;
# - **dp**: all-reduces of the gradients, 8 · width² numbers a layer, of which a rank has a tp-th; once a step.
#
# A fake group counts it.

# %% experiment
prediction = {
    "64 ranks: the axis that sends most": ...,  # "tp", "pp" or "dp"
    "64 ranks: the axis that sends least": ...,
    "tp's bytes of one rank, 1,024 ranks against 64": ...,  # "fewer", "same" or "more"
}

# %% experiment
LAYERS, HIDDEN, ROWS, MICRO = 16, 64, 16, 4
AXES = ("tp", "pp", "dp")


def by_formula(pp, dp, tp):
    """Payload of one rank on the first stage in one step: bytes by axis."""
    layers, a = LAYERS // pp, 4 * ROWS * HIDDEN  # a rank's; one micro-batch between two layers
    of_mlp = 2 * 4 * HIDDEN * HIDDEN // tp  # weights of one split MLP
    return {
        "tp": layers * MICRO * 2 * a if tp > 1 else 0,  # an all-reduce each way, layer and micro-batch
        "pp": MICRO * 2 * a if pp > 1 else 0,  # to the next stage, and back from it
        "dp": layers * 4 * of_mlp if dp > 1 else 0,  # gradients, once a step
    }


def counted(pp, dp, tp):
    """The same, counted on a fake group; and rank 0's group along each axis."""
    with ranks.fake(pp * dp * tp, mesh={"pp": pp, "dp": dp, "tp": tp}) as mesh:
        stage, following = nn.Sequential(), dp * tp  # following: this rank's place in the next stage
        for _ in range(LAYERS // pp):
            first, second = (
                nn.Linear(*io, bias=False) for io in ((HIDDEN, 4 * HIDDEN), (4 * HIDDEN, HIDDEN))
            )
            plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
            stage.append(parallelize_module(nn.Sequential(first, nn.GELU(), second), mesh["tp"], plan))
        with ranks.sent() as record:
            for _ in range(MICRO):
                y, back = stage(torch.randn(ROWS, HIDDEN, requires_grad=True)), torch.ones(ROWS, HIDDEN)
                if pp > 1:
                    dist.send(y.detach(), following)
                    dist.recv(back, following)
                y.backward(back)
            for p in stage.parameters() if dp > 1 else ():
                dist.all_reduce(p.grad.to_local(), group=mesh["dp"].get_group())
        groups = {axis: dist.get_process_group_ranks(mesh[axis].get_group()) for axis in AXES}
    told = dict.fromkeys(AXES, 0)
    for c in record.calls:
        of_tp = "tp" if list(c.group) == groups["tp"] else "dp"
        told["pp" if c.kind in ("send", "recv") else of_tp] += c.bytes
    return told, groups


SHAPES = ((1, 1, 8), (2, 4, 8), (8, 16, 8))
tried = {shape: counted(*shape) for shape in SHAPES}
of_64, of_1024 = (tried[s][0] for s in SHAPES[1:])
change = of_1024["tp"] - of_64["tp"]
answers = (
    max(of_64, key=of_64.__getitem__),
    min(of_64, key=of_64.__getitem__),
    "fewer" if change < 0 else "more" if change else "same",
)
lesson.compare_predictions(
    prediction,
    dict(zip(prediction, answers, strict=True)),
    evidence="simulated (fake group)",
    choices=dict(zip(prediction, (AXES, AXES, ("fewer", "same", "more")), strict=True)),
).show()


def line(shape, axis):
    pp, dp, tp = shape
    told, groups = tried[shape]
    group = f"{groups[axis][:3]} …" if len(groups[axis]) > 3 else str(groups[axis])
    mesh = f"pp {pp} · dp {dp} · tp {tp}"
    return f"{pp * dp * tp:,}", mesh, axis, f"{by_formula(*shape)[axis]:,}", f"{told[axis]:,}", group


lesson.table(
    [line(shape, axis) for shape in SHAPES for axis in AXES],
    ["ranks", "mesh, outermost first", "axis", "bytes by formula", "counted", "rank 0's group"],
    evidence="simulated (fake group)",
    caption=f"{LAYERS} MLPs of width {HIDDEN}, {MICRO} micro-batches of {ROWS} rows, float32; payload of rank 0's calls, "
    "of which a ring puts up to twice as much on the wire",
)

# %% [markdown]
# Three axes, three characters. **tp** sends in every layer of every micro-batch, and forward nothing hides it: it gets
# the fastest link. With more stages a rank has fewer layers, so that at 1,024 ranks tp and dp send less, and pp as much
# as before. Between **pp** and **dp** there is no fixed order: pp's bytes grow with the micro-batches, dp's with the
# parameters of a rank, and dp can hide behind backward (lesson 14). And dp takes its sequences from the pipelines: the
# more dp, the fewer micro-batches each of them has.
#
# **Exercise 16.4 — lay out the GPUs** (★★, 10 min)
#
# Given a model and a network: which tp, pp and dp, in which order of axes, has the shortest step that fits? What a
# step takes is given, in `step_seconds` and `held`; which layouts there are, and which axis gets which link, is
# yours.
#
# <details><summary>Hint 1</summary>There are few layouts: try them all, each tp and pp that divide in each order of
# the axes.</details>
#
# <details><summary>Hint 2</summary>The stride of an axis is the product of the sizes of the axes inside it. Its group
# lies in one node if stride · size is no more than the node has GPUs.</details>
#
# <details><summary>The idea</summary>For each tp and pp that divide, dp = gpus ÷ (tp · pp); skip what is not allowed
# or does not fit. For each of the six orders from <code>itertools.permutations</code>, go from the innermost axis
# outwards, multiplying the stride: that gives the three links. Keep the least step_seconds.</details>


# %% exercise="layout"
def step_seconds(model: dict[str, int], network: dict, sizes: dict[str, int], links: dict) -> float:
    """Seconds of a step. sizes: axis → ranks along it; links: axis → its [α, β]; the rest as in layout.

    Nothing is hidden, and all-reduces are flat rings over an axis's slowest link, not in two levels as in section 2. P parameters; a micro-batch is one sequence, and has a bytes
    between two layers (bfloat16). A slot is what a stage does with one of them, forward and backward.
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
    """Bytes of the GPU that holds most: 16 of a parameter, and the activations of the micro-batches alive."""
    tp, pp, dp = (sizes[axis] for axis in ("tp", "pp", "dp"))
    L, h, s, B = (model[key] for key in ("layers", "width", "tokens", "sequences"))
    return (16 * 12 * L * h * h + min(pp, B // dp) * 34 * s * h * L) / (tp * pp)


def layout(model: dict[str, int], network: dict, gpus: int = 64) -> dict:
    """The fastest layout that fits: {"tp": …, "pp": …, "dp": …, "order": […], "step_s": …}; step_s in seconds.

    order: the axes, outermost first, e.g. ["pp", "dp", "tp"]; tp · pp · dp = gpus.
    model: {"layers": L, "width": h, "tokens": s (of a sequence), "sequences": B (in a step)}. network: {"per_node":
    GPUs, "memory": bytes of a GPU, "flops": of a GPU in a second, "inside": [α, β], "between": [α, β]}, α in seconds a
    message, β in bytes a second.
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
from helpers.exercises.model_parallel import INFINIBAND, NVLINK, check_layout, net

check_layout(
    net(24, 2048, 2048, 512, links=[NVLINK, INFINIBAND]),
    net(30, 3000, 2048, 12, links=[NVLINK, INFINIBAND]),
    net(96, 12288, 2048, 1024, links=[NVLINK, INFINIBAND], memory=192e9),
    refused=[net(96, 12288, 2048, 1024, links=[NVLINK, INFINIBAND], memory=20e9)],
)

# %% hidden="layout" points=2
### BEGIN HIDDEN TESTS
from helpers.exercises.model_parallel import ETHERNET, INFINIBAND, NVLINK, PCIE, check_layout, net

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
    refused=[net(61, 4096, 2048, 61, links=[NVLINK, INFINIBAND], memory=1e9)],
)
### END HIDDEN TESTS

# %% [markdown]
# Your layout for three models on 64 GPUs of 80 GB in nodes of 8, by how many sequences a step has:

# %% experiment
models = {"1.2 B": (24, 2048), "13 B": (40, 5120), "39 B": (48, 8192)}


def network_of(between):
    links = {"inside": ranks.LINKS["NVLink 4"], "between": ranks.LINKS[between]}
    links = {where: [link.latency_s, link.bytes_per_s] for where, link in links.items()}
    return {"per_node": 8, "memory": 80e9, "flops": FLOPS, **links}


def laid_out(deep, wide, sequences, between):
    """The sizes, which axes stay inside a node, and the seconds."""
    asked = {"layers": deep, "width": wide, "tokens": 2048, "sequences": sequences}
    try:
        found = layout(asked, network_of(between))
    except (NameError, NotImplementedError):
        return "wants your layout"
    except ValueError as none:
        return str(none)
    stride, inside = 1, []
    for axis in reversed(found["order"]):
        stride *= found[axis]
        inside += [axis] if found[axis] > 1 and stride <= 8 else []
    sizes = " · ".join(f"{axis} {found[axis]}" for axis in AXES if found[axis] > 1)
    return f"{sizes} ({', '.join(sorted(inside)) or 'none'} inside), {found['step_s']:.3g} s"


lesson.table(
    [
        (name, f"{sequences:,}", *(laid_out(*shape, sequences, between) for between in NETWORKS))
        for name, shape in models.items()
        for sequences in (1024, 64, 16)
    ],
    ["parameters", "sequences a step", *NETWORKS],
    evidence="arithmetic",
    caption="fastest layout that fits (axes inside a node); sequences of 2,048 tokens; no sending hidden, no states sharded",
)


# %% experiment
def priced(sizes, inside, sequences):
    """A step of the 1.2 B model over InfiniBand: milliseconds, and without dp's."""
    model = {"layers": 24, "width": 2048, "tokens": 2048, "sequences": sequences}
    network = network_of(NETWORKS[0])
    links = {axis: network["inside" if axis in inside else "between"] for axis in AXES}
    every = step_seconds(model, network, sizes, links) * 1e3
    hidden = step_seconds(model, network, sizes, {**links, "dp": [0.0, math.inf]}) * 1e3
    return f"{every:,.1f} ({hidden:,.1f})"


lesson.table(
    [
        (name, *(priced(dict(zip(AXES, sizes, strict=True)), inside, n) for n in (1024, 64)))
        for name, sizes, inside in (
            ("dp 64", (1, 1, 64), ()),
            ("tp 8 · dp 8 (tp inside)", (8, 1, 8), ("tp",)),
            ("pp 8 · dp 8 (pp inside)", (1, 8, 8), ("pp",)),
            ("pp 8 · dp 8 (dp inside)", (1, 8, 8), ("dp",)),
            ("tp 2 · pp 8 · dp 4 (tp, dp inside)", (2, 8, 4), ("tp", "dp")),
        )
    ],
    ["1.2 B on 64 GPUs", "1,024 sequences, ms", "64 sequences, ms"],
    evidence="arithmetic",
    caption="a step by step_seconds (in brackets: if dp's sending were hidden altogether); InfiniBand NDR between nodes",
)

# %% [markdown]
# The axis that sends most in a step belongs inside the node. That is tp, where it is used. Of the other two it depends: with
# 1,024 sequences a pipeline of 8 hands on 128 micro-batches, and pp goes inside; with 64 it is dp (and always where a
# pipeline has more stages than a node has GPUs). Tensor parallelism
# comes in where sequences get few: it is the only axis that needs no more of them.
#
# But why a pipeline at all, for a model that fits one GPU? Because with dp alone every GPU sends all gradients, and a
# stage has only some of them. Look at the brackets: if dp's sending hides behind backward, as DDP does it (lesson 14),
# dp alone is the fastest of the five. The cost model hides nothing and shards no states (lesson 15), which is the
# other way to make a model fit. So see first whether sharding makes it fit, and whether dp's sending hides. Use tensor or
# pipeline parallelism only if one of the two fails, or if a step has too few sequences for so many GPUs.
#
# ## On the real GPU
#
# What one GPU can show is the computing half of tensor parallelism: does an MLP with an n-th of the hidden units take
# an n-th of the time? Live where there is a CUDA GPU, else recorded, else simulated: the label says which. What to
# look for on yours: from which n on is it less than 90 % of n-fold?

# %% experiment
from helpers import recordings

shown = recordings.show("16/split_mlp", simulated="H100")
about = "" if shown.evidence.startswith("simulated") else "≈ "
times = {row["ranks"]: row["us"] for row in shown.table}
lesson.table(
    [
        (n, f"{about}{t:,.0f} µs", f"{about}{times[1] / t:.1f}", f"{about}{times[1] / t / n:.0%}")
        for n, t in times.items()
    ],
    ["GPUs", "a rank's products", "times as fast", "of n-fold"],
    evidence=shown.evidence,
    caption="forward of an MLP of width 8,192, 2,048 tokens, bfloat16; one rank's share, without any sending",
)

# %% [markdown]
# ## Sources on trial

# %% experiment tags=["fold"]
gathered, paired = (by_plan[name][1].wire_bytes() for name in list(by_plan)[:2])
inside, across, thin = (gain[way, n] / n for way, n in ((ON_NDR, 8), (ON_NDR, 16), (ON_100G, 16)))
widest = [math.isqrt(int(80e9 * tp / (16 * 12))) for tp in (1, 8)]  # layer that fits at 16 bytes a parameter
mixed = laid_out(48, 8192, 1024, NETWORKS[0])
alone = 16 * 12 * 48 * 8192**2
claims = [
    (
        "16-gather",
        "book-notes",
        "a product that is too large is cut over the GPUs, and an all-gather puts the result together",
        f"an MLP's step so: {gathered:,.0f} bytes on the wire; columns then rows, one all-reduce each way: {paired:,.0f}",
        "holds when one product stands alone; two in a row need nothing between them",
        "1 · Split a matrix product",
    ),
    (
        "16-one-machine",
        "book-notes",
        "tensor parallelism is usually limited to one machine with NVLink, by the network's bandwidth",
        f"share of n-fold speed (width 8,192): {inside:.0%} with 8 GPUs in a node; 16 in two nodes {across:.0%} with 400 Gbit/s a "
        f"GPU, {thin:.0%} with 100 Gbit/s",
        "holds when the network is far slower than NVLink (at 100 Gbit/s, 16 GPUs gain nothing over 8) or the layers are narrow; wide "
        "layers on a fast network gain beyond the node"
        if gain[ON_100G, 16] < 1.1 * gain[ON_100G, 8] < gain[ON_NDR, 16]
        else "holds when the layers are narrow or the network slow; the table says from where on",
        "2 · Which link can bear it?",
    ),
    (
        "16-one-layer",
        "book-notes",
        "a pipeline cannot help when one layer does not fit on a GPU",
        f"a stage is one layer at least; with its states it fills 80 GB at width {widest[0]:,}, cut by tp 8 at {widest[1]:,}",
        "confirmed; there tensor parallelism helps, or sharding (lesson 15)"
        if widest[0] < widest[1]
        else "refuted",
        "3 · Split between the layers",
    ),
    (
        "16-mixed",
        "five-strategies",
        "data and model parallelism combined handle very large models",
        f"39 B parameters: weights and states {alone / 1e9:,.0f} GB, of 80 GB a GPU, so data parallel alone does not fit; best on 64: {mixed}",
        "confirmed; sharding the states (lesson 15) is another way"
        if alone > 80e9 and " · " in mixed
        else "untested",
        "4 · Lay it over the machine",
    ),
]
lesson.verdicts(claims, evidence="live (CPU) · simulated (H100) · arithmetic")

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | First product by columns, second by rows: one all-reduce each way. | Something between them that mixes columns (a norm over the hidden units). |
# | Sequence parallel: the same bytes sent, fewer activations kept. | Twice as many calls: few tokens, where latency counts. |
# | Tensor parallel inside the node. | Wide layers on a fast network: a little is left to gain. |
# | 1F1B saves memory, not time. | m ≤ p: nothing saved. Messages that take long: slower than GPipe. |
# | The bubble is (p − 1) ÷ (m + p − 1). | Unequal stages, messages that take long; interleaving divides p − 1 by v. |
# | Inside the node: the axis that sends most. | What hides costs nothing: count what is exposed. |
#
# **Checklist for your own code**
# - [ ] Does it fit when sharded (lesson 15)? Then nothing of this is needed yet.
# - [ ] Is the second bias added once, and are its gradients the same on all ranks?
# - [ ] How many all-reduces does one layer make, forward and backward? Count them.
# - [ ] What is (p − 1) ÷ (m + p − 1) here? Can there be more micro-batches?
# - [ ] Which stage is slowest, and which holds most?
# - [ ] Which link does each axis of the mesh use?
#
# **Read on**: M. Shoeybi and others, *Megatron-LM* (2019), for columns then rows; V. Korthikanti and others,
# *Reducing activation recomputation in large transformer models* (2022), for sequence parallelism and the 34 bytes;
# Y. Huang and others, *GPipe* (2019); D. Narayanan and others, *Efficient large-scale language model training on GPU
# clusters using Megatron-LM* (2021), for 1F1B, interleaving and layouts; torch's documentation of
# `torch.distributed.tensor.parallel` and `torch.distributed.pipelining`.
