"""Lesson 16: modules that are split on real ranks, split MLPs on simulated GPUs, tables of schedules and meshes, verdicts."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F

from helpers import ranks, simulate
from helpers.simulator.devices import DEVICES
from helpers.simulator.stretch import stretch
from helpers.simulator.world.pipeline import order, pipeline
from helpers.text.tables import Table, table

WIDTH, TOKENS = 64, 32

#: what step_of gives: equal to the unsplit one, what was sent, bytes of activations kept
Step = tuple[bool, Any, int]


# --- 1, split a matrix product ------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Causal attention whose number of heads follows from how many its weights hold here."""

    def __init__(self, of_a_head: int = 16) -> None:
        super().__init__()
        self.of_a_head = of_a_head
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, tokens, WIDTH), and so the result."""
        q, k, v = (f(x).unflatten(-1, (-1, self.of_a_head)).transpose(1, 2) for f in (self.q, self.k, self.v))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(heads.transpose(1, 2).flatten(2))
        return out


def mlp() -> nn.Sequential:
    """ "0": LayerNorm, "1": the first product, "2": gelu, "3": the second product."""
    layers = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
    return nn.Sequential(nn.LayerNorm(WIDTH), *layers)


def _storage(t: Any) -> tuple[int, int]:
    """Of what this rank has of t: (address, bytes)."""
    t = t.to_local() if isinstance(t, DTensor) else t
    t = getattr(t, "elem", t).untyped_storage()
    return t.data_ptr(), t.nbytes()


def step_of(module: nn.Module, x: Tensor, want: Tensor) -> Step:
    """One forward and backward: is y what is wanted, what was sent, and the bytes of activations kept for backward."""
    weights, kept = dict(map(_storage, module.parameters())), dict[int, int]()

    def pack(t: Tensor) -> Tensor:
        kept.update([_storage(t)])
        return t

    with ranks.sent() as record:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            y = module(x.clone().requires_grad_())
        y.square().sum().backward()
    same = torch.allclose(y.detach(), want, atol=1e-4)
    return same, record, sum(size for at, size in kept.items() if at not in weights)


def split_and_run(plans: Mapping[str, tuple[str, Any, int | None]]) -> dict[str, Step]:
    """In each rank: an MLP or an attention layer, split by each plan. plans: name → (which, plan, split dimension of x)."""
    n, rank, steps = dist.get_world_size(), dist.get_rank(), {}
    mesh = dist.init_device_mesh("cpu", (n,))
    for name, (kind, plan, dim) in plans.items():
        module: nn.Module = mlp() if kind == "mlp" else Attention()
        x = torch.randn(1, TOKENS, WIDTH)
        want = module(x).detach()
        parallelize_module(module, mesh, plan)
        mine = [t if dim is None else t.chunk(n, dim)[rank] for t in (x, want)]
        steps[name] = step_of(module, *mine)
    return steps


def _ways(record: Any, backward: bool) -> str:
    kinds = [c.kind for c in record.calls if (c.phase == "backward") == backward]
    return ", ".join(f"{kinds.count(k)} {k}" for k in dict.fromkeys(kinds))


def forward_calls(step: Step) -> int:
    """How many collectives the forward made."""
    return sum(c.phase != "backward" for c in step[1].calls)


def sent_table(steps: Mapping[str, Step]) -> Table:
    """What each step sent, forward and backward, and what it kept."""
    rows = [
        (name, _ways(record, False), _ways(record, True), f"{record.wire_bytes():,.0f}", f"{kept:,}", right)
        for name, (right, record, kept) in steps.items()
    ]
    columns = [
        "",
        "forward",
        "backward",
        "bytes a rank sends",
        "bytes kept for backward",
        "y as unsplit",
    ]
    note = f"2 ranks, x of {TOKENS} tokens × {WIDTH} float32 ({TOKENS * WIDTH * 4:,} bytes); sent: on the wire, by rings; kept: activations"
    return table(rows, columns, evidence="live (CPU)", caption=note)


def beside(own: Callable[[nn.Linear, nn.Linear], nn.Module], plan: Any) -> dict[str, Step]:
    """In each rank: one step of the same MLP, split by torch and by own(first, second)."""
    net, x = mlp(), torch.randn(1, TOKENS, WIDTH)
    want = net(x).detach()
    first, second = net[1], net[3]
    assert isinstance(first, nn.Linear) and isinstance(second, nn.Linear)
    mine = nn.Sequential(net[0], own(first, second))
    theirs = parallelize_module(net, dist.init_device_mesh("cpu", (dist.get_world_size(),)), plan)
    return {"yours": step_of(mine, x, want), "torch's": step_of(theirs, x, want)}


def try_mlp(own: Any, plan: Any) -> Table | None:
    """beside on two ranks; a word where own is not written yet."""
    try:
        return sent_table(ranks.run_ranks(beside, 2, own, plan, timeout=20)[0])
    except ranks.RankError as problem:
        print(
            f"for later: this cell wants your ParallelMLP of exercise 16.3 ({str(problem).splitlines()[0]})"
        )
        return None


def step_fits(shapes: Sequence[tuple[int, int]]) -> bool:
    """Does a step of AdamW over matrices of these shapes, one behind the other, fit on a simulated card of 3 GiB?"""
    gpu = simulate(dataclasses.replace(DEVICES["H100"], memory_bytes=3 * 2**30), strict=False)
    with gpu:
        layers = [nn.Linear(*shape, bias=False, device=gpu.device) for shape in shapes]
        optimizer = torch.optim.AdamW(nn.Sequential(*layers).parameters(), fused=True)
        nn.Sequential(*layers)(torch.empty(16, shapes[0][0], device=gpu.device)).sum().backward()
        optimizer.step()
    return not any("out of memory" in fault for fault in gpu.faults)


# --- 2, split between the layers ----------------------------------------------------------------------------------


def against(a: float, b: float) -> str:
    """a, compared with b."""
    return "the same" if abs(a - b) < 1e-9 else "smaller" if a < b else "larger"


def runs_table(runs: Mapping[str, Any]) -> Table:
    """Length, bubble, activations and messages of each schedule."""

    def row(name: str, run: Any) -> tuple[Any, ...]:
        held = ", ".join(f"{p * 4 / run.stages:g}" for p in run.peak)
        return name, f"{run.seconds:g}", f"{run.bubble:.1%}", held, len(run.messages)

    rows = [row(name, run) for name, run in runs.items()]
    columns = ["", "length, in forwards", "bubble", "micro-batches held, by rank", "messages"]
    note = "held: at most, activations of so many micro-batches of a whole rank's layers"
    return table(rows, columns, evidence="arithmetic", caption=note)


def messages_table() -> Table:
    """The bubble of each schedule, by what a message takes."""

    def bubble(name: str, send: float, chunks: int) -> float:
        return float(pipeline(order(name, 4, 8, chunks), {"F": 1 / chunks}, send_s=send).bubble)

    kinds = (("GPipe", 1), ("1F1B", 1), ("Interleaved 1F1B", 2))
    rows = [(name, *(f"{bubble(name, send, c):.1%}" for send in (0, 0.25, 0.5))) for name, c in kinds]
    columns = ["bubble, when a message takes", "nothing", "a quarter of a forward", "half a forward"]
    return table(rows, columns, evidence="arithmetic", caption="4 ranks, 8 micro-batches")


def torch_schedules(microbatches: int) -> dict[str, tuple[list[str], int, float]]:
    """In each rank, for each of torch's schedules: its actions, the messages, and how far the loss is off."""
    from torch.distributed import pipelining as pp

    rank, n, ran = dist.get_rank(), dist.get_world_size(), {}
    kinds: dict[str, tuple[Any, int]] = {
        "GPipe": (pp.ScheduleGPipe, 1),
        "1F1B": (pp.Schedule1F1B, 1),
        "Interleaved 1F1B": (pp.ScheduleInterleaved1F1B, 2),
    }
    for name, (kind, chunks) in kinds.items():
        torch.manual_seed(0)
        layers = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(n * chunks)]
        x, y = torch.randn(2 * microbatches, 16), torch.randn(2 * microbatches, 16)
        whole, log = F.mse_loss(nn.Sequential(*layers)(x), y), list[str]()
        mine = range(rank, n * chunks, n)
        for at in mine:
            layers[at].register_forward_hook(functools.partial(_noted, log, at))
        stages = [pp.PipelineStage(layers[at], at, n * chunks, torch.device("cpu")) for at in mine]
        schedule = kind(stages if chunks > 1 else stages[0], microbatches, loss_fn=F.mse_loss)
        losses: list[Tensor] = []
        inputs = [x] if rank == 0 else []
        with ranks.sent() as record:
            schedule.step(*inputs, **({"target": y, "losses": losses} if rank == n - 1 else {}))
        messages = [c for c in record.of("send") if c.bytes == 2 * 16 * 4]
        off = abs(sum(loss.item() for loss in losses) / microbatches - whole.item()) if losses else 0.0
        # before its actions it asked the stages for their shapes
        ran[name] = (log[-2 * chunks * microbatches :], len(messages), off)
    return ran


def _noted(log: list[str], at: int, module: nn.Module, inputs: Any, output: Tensor) -> None:
    log.append(f"{at}F")
    if output.requires_grad:
        output.register_hook(lambda grad: log.append(f"{at}B"))


def schedules_table(
    ran: Sequence[Mapping[str, tuple[list[str], int, float]]], own: Callable[..., Any]
) -> Table:
    """What each rank did under torch's schedules, beside the course's and the learner's own(stages, microbatches)."""

    def same(log: list[str], rows: Any, rank: int) -> str:
        return "yes" if log == [action.rstrip("0123456789") for action in rows[rank]] else "no"

    def row(name: str, rank: int) -> tuple[Any, ...]:
        log, messages, off = ran[rank][name]
        course = same(log, order(name, 2, 4, 2 if "I" in name else 1), rank)
        try:
            yours = same(log, own(2, 4), rank) if name == "1F1B" else ""
        except NotImplementedError:
            yours = "not written yet"
        return name, rank, " ".join(log), messages, "yes" if off < 1e-5 else "no", course, yours

    rows = [row(name, rank) for name in ran[0] for rank in range(len(ran))]
    columns = ["torch's", "rank", "did", "messages", "loss as unsplit", "as the course", "as yours"]
    note = "did: the stage, then F (forward) or B (backward)"
    return table(rows, columns, evidence="live (CPU)", caption=note)


def limits_table(own: Callable[..., Any]) -> Table | None:
    """Peak and bubble of own(4, 8, most), by the limit on the activations."""
    try:
        limited = {most: pipeline(own(4, 8, most)) for most in (1, 2, 3, 4)}
    except NotImplementedError:
        print("for later: this cell wants your one_f_one_b of exercise 16.1")
        return None
    rows = [(most, str(list(run.peak)), f"{run.bubble:.1%}") for most, run in limited.items()]
    return table(rows, ["most", "held, by rank", "bubble"], evidence="arithmetic")


# --- which link can bear it ---------------------------------------------------------------------------------------

NETWORKS = ("InfiniBand NDR", "Ethernet 100G")
_DEEP, _WIDE = 4, 8192
#: label → network between the nodes, tokens, hide
WAYS = {
    "2,048 tokens, InfiniBand NDR": (NETWORKS[0], 2048, False),
    "the same, hidden in backward": (NETWORKS[0], 2048, True),
    "2,048 tokens, Ethernet 100G": (NETWORKS[1], 2048, False),
    "256 tokens, InfiniBand NDR": (NETWORKS[0], 256, False),
}
ON_NDR, HIDDEN_NDR, ON_100G, FEW = WAYS


def _one_step(
    x: Tensor, weights: Sequence[tuple[Tensor, Tensor]], grad: Tensor, hide: bool
) -> tuple[Tensor, Tensor]:
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
        if work is not None and hide:
            work.wait()
        grad = of_x
    return of_a, of_b


@functools.cache
def split_step(way: str, n: int, in_node: int = 8) -> tuple[float, float, Any]:
    """Seconds of one step of WAYS on n simulated H100s in nodes of so many, seconds of its collectives, and the first GPU."""
    (between, tokens, hide), nodes = WAYS[way], max(1, n // in_node)
    gpu = simulate("H100").world(n, link="NVLink 4", nodes=nodes, between=between if nodes > 1 else None)

    def make(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, device=gpu.device, dtype=torch.bfloat16)

    with gpu:
        weights = [(make(_WIDE, 4 * _WIDE // n), make(4 * _WIDE // n, _WIDE)) for _ in range(_DEEP)]
        x, grad = make(tokens, _WIDE), make(tokens, _WIDE)
        for _ in range(2):  # the first is the warm-up
            ran = stretch(gpu, lambda: _one_step(x, weights, grad, hide))
    return ran.seconds, sum(c.end_ns - c.start_ns for c in ran.collectives) / 1e9, gpu


def gain(way: str, n: int, in_node: int = 8) -> float:
    """How many times as fast as one GPU n GPUs are, in nodes of so many."""
    return split_step(way, 1)[0] / split_step(way, n, in_node)[0]


def gains_table() -> Table:
    """Times as fast as one GPU, by way and number of GPUs."""

    def cell(way: str, n: int) -> str:
        took, sending, _ = split_step(way, n)
        return f"{gain(way, n):.1f} ({sending / took:.0%})"

    def products(n: int) -> str:
        took, sending, _ = split_step(FEW, n)
        return f"{split_step(FEW, 1)[0] / (took - sending):.1f}"

    rows = [(n, *(cell(way, n) for way in WAYS), products(n)) for n in (1, 2, 4, 8, 16, 32)]
    note = "times as fast as one GPU (share of the step in which a collective runs, hidden or not); nodes of 8 with NVLink 4"
    columns = ["GPUs", *WAYS, "256 tokens, without its collectives"]
    return table(rows, columns, evidence="simulated (H100)", caption=note)


@functools.cache
def flops() -> float:
    """FLOP/s that one simulated H100 reaches in these MLPs."""
    return _DEEP * 48 * 2048 * _WIDE**2 / split_step(ON_NDR, 1)[0]


def shares_table(share: Callable[[int, int, str], float]) -> Table:
    """share(width, n, link), the part of an MLP's step that is sending, by link."""
    links = "NVLink 5", "NVLink 4", "PCIe 5.0 x16", "InfiniBand NDR", "Ethernet 100G", "Ethernet 10G"
    tried = [(width, n) for width in (2048, 8192, 16384) for n in (2, 8)]
    rows = [(link, *(f"{share(width, n, link):.0%}" for width, n in tried)) for link in links]
    columns = ["one link for all", *(f"width {width:,}, {n} GPUs" for width, n in tried)]
    note = f"flat ring, 2,048 tokens, {flops() / 1e12:.0f} TFLOP/s; links as in ranks.LINKS; the latency of 10G is assumed"
    return table(rows, columns, evidence="arithmetic", caption=note)


# --- lay it over the machine --------------------------------------------------------------------------------------

LAYERS, HIDDEN, ROWS, MICRO = 16, 64, 16, 4
AXES = ("tp", "pp", "dp")


def counted(pp: int, dp: int, tp: int) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Payload bytes of rank 0 in one step by axis, counted on a fake group; and rank 0's group along each axis."""
    with ranks.fake(pp * dp * tp, mesh={"pp": pp, "dp": dp, "tp": tp}) as mesh:
        stage, following = nn.Sequential(), dp * tp  # following: this rank's place in the next stage
        for _ in range(LAYERS // pp):
            sizes = ((HIDDEN, 4 * HIDDEN), (4 * HIDDEN, HIDDEN))
            first, second = (nn.Linear(*io, bias=False) for io in sizes)
            plan: Any = {"0": ColwiseParallel(), "2": RowwiseParallel()}
            stage.append(parallelize_module(nn.Sequential(first, nn.GELU(), second), mesh["tp"], plan))
        with ranks.sent() as record:
            for _ in range(MICRO):
                y, back = stage(torch.randn(ROWS, HIDDEN, requires_grad=True)), torch.ones(ROWS, HIDDEN)
                if pp > 1:
                    dist.send(y.detach(), following)
                    dist.recv(back, following)
                y.backward(back)
            for p in stage.parameters() if dp > 1 else ():
                grad: Any = p.grad
                dist.all_reduce(grad.to_local(), group=mesh["dp"].get_group())
        groups = {axis: dist.get_process_group_ranks(mesh[axis].get_group()) for axis in AXES}
    bytes_of = dict.fromkeys(AXES, 0)
    for c in record.calls:
        of_tp = "tp" if list(c.group) == groups["tp"] else "dp"
        bytes_of["pp" if c.kind in ("send", "recv") else of_tp] += c.bytes
    return bytes_of, groups


def by_formula(pp: int, dp: int, tp: int) -> dict[str, int]:
    """What counted counts, by arithmetic: payload bytes of one rank on the first stage in one step, by axis."""
    layers, a = LAYERS // pp, 4 * ROWS * HIDDEN  # a rank's layers; one micro-batch between two of them
    of_mlp = 2 * 4 * HIDDEN * HIDDEN // tp  # weights of one split MLP
    return {
        "tp": layers * MICRO * 2 * a if tp > 1 else 0,  # an all-reduce each way, layer and micro-batch
        "pp": MICRO * 2 * a if pp > 1 else 0,  # to the next stage, and back from it
        "dp": layers * 4 * of_mlp if dp > 1 else 0,  # gradients, once a step
    }


def mesh_table(tried: Mapping[tuple[int, int, int], Any]) -> Table:
    """tried: (pp, dp, tp) → what counted gave; beside it the same by arithmetic."""

    def row(shape: tuple[int, int, int], axis: str) -> tuple[Any, ...]:
        pp, dp, tp = shape
        sent, groups = tried[shape]
        group = f"{groups[axis][:3]} …" if len(groups[axis]) > 3 else str(groups[axis])
        mesh = f"pp {pp} · dp {dp} · tp {tp}"
        return f"{pp * dp * tp:,}", mesh, axis, f"{by_formula(*shape)[axis]:,}", f"{sent[axis]:,}", group

    rows = [row(shape, axis) for shape in tried for axis in AXES]
    columns = ["ranks", "mesh, outermost first", "axis", "bytes by formula", "counted", "rank 0's group"]
    note = (
        f"{LAYERS} MLPs of width {HIDDEN} ({4 * HIDDEN} hidden), {MICRO} micro-batches of {ROWS} rows, float32; payload of rank 0's calls, "
        "of which a ring puts up to twice as much on the wire"
    )
    return table(rows, columns, evidence="simulated (fake group)", caption=note)


def network_of(between: str) -> dict[str, Any]:
    """Nodes of 8 H100s of 80 GB with NVLink 4, and a network between them, as exercise 16.2 describes one."""
    by_place = {"inside": ranks.LINKS["NVLink 4"], "between": ranks.LINKS[between]}
    links = {where: [link.latency_s, link.bytes_per_s] for where, link in by_place.items()}
    return {"per_node": 8, "memory": 80e9, "flops": flops(), **links}


def data_only(model: Mapping[str, int], network: Mapping[str, Any], gpus: int = 64) -> list[Any]:
    """The best way to split the data alone: [seconds at best, seconds, name of the way]; [] if none fits.

    A GPU has 1 ÷ n of weights, gradients and states; n is 1 (DDP), a node's GPUs (HSDP, lesson 15) or all (fully_shard).
    It does as many sequences at once as its memory holds. Each time every layer is gathered twice and its gradient
    reduce-scattered, bfloat16, in the group of n; once a step what a GPU has of the gradients is all-reduced over the
    gpus ÷ n groups. Products, activations and rings as in exercise 16.2; two layers are whole at a time. "seconds": nothing is
    hidden; "at best": sending hides behind computing as long as there is any.
    """
    L, h, s = (model[key] for key in ("layers", "width", "tokens"))
    each, left = divmod(model["sequences"], gpus)
    ways = list[Any]()
    if left:
        return ways
    for name, n in (("DDP", 1), ("HSDP", network["per_node"]), ("fully_shard", gpus)):
        room = network["memory"] - 16 * 12 * L * h * h / n - (48 * h * h if n > 1 else 0)
        at_once = [k for k in range(1, each + 1) if each % k == 0 and k * 34 * s * h * L <= room]
        if not at_once:
            continue
        alpha, bandwidth = network["inside" if n <= network["per_node"] else "between"]
        half_ring = (n - 1) * (
            alpha + 24 * h * h / (n * bandwidth)
        )  # one layer, gathered or reduce-scattered
        groups, part = gpus // n, 24 * L * h * h / n
        alpha, bandwidth = network["between"]
        sends = each // at_once[-1] * 3 * L * half_ring
        sends += 2 * (groups - 1) * (alpha + part / (groups * bandwidth))
        computes = 6 * s * 12 * L * h * h * each / network["flops"]
        ways.append([max(computes, sends), computes + sends, name])
    return min(ways, default=ways)


def layouts_table(layout: Callable[..., dict[str, Any]]) -> Table | None:
    """The learner's layout for three models on 64 GPUs, by the sequences of a step; beside it `data_only`."""

    def asked(deep: int, wide: int, sequences: int) -> dict[str, int]:
        return {"layers": deep, "width": wide, "tokens": 2048, "sequences": sequences}

    def without(model: dict[str, int]) -> str:
        if best := data_only(model, network_of(NETWORKS[0])):
            return f"{best[2]}, {best[1]:.3g} s ({best[0]:.3g} s)"
        return "more GPUs than sequences" if model["sequences"] < 64 else "does not fit"

    def laid_out(model: dict[str, int], between: str) -> str:
        try:
            best = layout(model, network_of(between))
        except ValueError as none:
            return str(none)
        stride, inside = 1, list[str]()
        for axis in reversed(best["order"]):
            stride *= best[axis]
            inside += [axis] if best[axis] > 1 and stride <= 8 else []
        sizes = " · ".join(f"{axis} {best[axis]}" for axis in AXES if best[axis] > 1)
        return f"{sizes} ({', '.join(sorted(inside)) or 'none'} inside), {best['step_s']:.3g} s"

    models = {"1.2 B": (24, 2048), "13 B": (40, 5120), "39 B": (48, 8192)}
    try:
        rows = []
        for name, shape in models.items():
            for n in (1024, 64, 16):
                model = asked(*shape, n)
                rows.append(
                    (name, f"{n:,}", *(laid_out(model, network) for network in NETWORKS), without(model))
                )
    except NotImplementedError:
        print("for later: this cell wants your layout of exercise 16.2")
        return None
    note = (
        "layouts: fastest that fits (axes inside a node), no sending hidden, no states sharded; data only: best of three, in brackets "
        "with its sending hidden as far as computing lasts; sequences of 2,048 tokens"
    )
    columns = ["parameters", "sequences a step", *NETWORKS, f"data only, {NETWORKS[0]}"]
    return table(rows, columns, evidence="arithmetic", caption=note)


def prices_table(step_seconds: Callable[..., float]) -> Table:
    """A step of the 1.2 B model in five layouts, by step_seconds of exercise 16.2, and without dp's sending."""

    def priced(sizes: Mapping[str, int], inside: Sequence[str], sequences: int) -> str:
        model = {"layers": 24, "width": 2048, "tokens": 2048, "sequences": sequences}
        network = network_of(NETWORKS[0])
        links = {axis: network["inside" if axis in inside else "between"] for axis in AXES}
        every = step_seconds(model, network, sizes, links) * 1e3
        hidden = step_seconds(model, network, sizes, {**links, "dp": [0.0, math.inf]}) * 1e3
        return f"{every:,.1f} ({hidden:,.1f})"

    tried: Sequence[tuple[str, tuple[int, int, int], tuple[str, ...]]] = (
        ("dp 64", (1, 1, 64), ()),
        ("tp 8 · dp 8 (tp inside)", (8, 1, 8), ("tp",)),
        ("pp 8 · dp 8 (pp inside)", (1, 8, 8), ("pp",)),
        ("pp 8 · dp 8 (dp inside)", (1, 8, 8), ("dp",)),
        ("tp 2 · pp 8 · dp 4 (tp, dp inside)", (2, 8, 4), ("tp", "dp")),
    )
    rows = [
        (name, *(priced(dict(zip(AXES, sizes, strict=True)), inside, n) for n in (1024, 64)))
        for name, sizes, inside in tried
    ]
    note = "a step by step_seconds (in brackets: if dp's sending were hidden altogether); InfiniBand NDR between nodes"
    columns = ["1.2 B on 64 GPUs", "1,024 sequences, ms", "64 sequences, ms"]
    return table(rows, columns, evidence="arithmetic", caption=note)
