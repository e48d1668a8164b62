"""Lesson 15: what ranks send and hold with each stage of ZeRO and each way to wrap; steps and plans on simulated H100s."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from matplotlib.patches import Rectangle
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from helpers import plots, ranks, simulate
from helpers.lessons.fully_sharded.sharded_peak import worst_moment
from helpers.plots import style
from helpers.plots.picture import Picture, drawn
from helpers.running_example.scores import CARD, LARGE
from helpers.running_example.script import Script
from helpers.simulator.stretch import Stretch, stretch
from helpers.text.tables import Table, table

LAYERS, WIDTH = 6, 64
ARITHMETIC, LIVE, SIMULATED = "arithmetic", "live (CPU)", "simulated (H100)"
#: wraps a model for a simulated GPU: (model, gpu) → what is trained
Wrap = Callable[[nn.Sequential, Any], nn.Module]


def layers(width: int = WIDTH, **how: Any) -> nn.Sequential:
    """Six linear layers of width × width without bias, the same on all ranks."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(width, width, bias=False, **how) for _ in range(LAYERS)))


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hooks that look make views, of which FSDP warns
        yield


# --- 1, what is stored, what is sent ------------------------------------------------------------------------------

#: of these a step's traffic is counted, and by this rule: so many (n − 1)/n
SENT_BY_RULE = {"DDP": 2, "ZeRO-1": 2, "ZeRO-3": 3}
_SIZES = (8, 64, 1024)


@cache
def sent_by(stage: str, n: int, width: int = 1024) -> float:
    """Bytes on the link of one of n ranks in a step, by rings, ÷ the weights' bytes. Counted: a fake group, nobody there."""
    with ranks.fake(n) as mesh:
        model: nn.Module = layers(width)
        if stage == "ZeRO-3":
            for layer in model.children():
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh, reshard_after_forward=True)
        elif stage == "DDP":
            model = nn.parallel.DistributedDataParallel(model)
        with ranks.sent(model) as record:
            model(torch.ones(2, width)).sum().backward()
            if stage == "ZeRO-1":
                gradients = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
                mine = torch.empty(len(gradients) // n)
                dist.reduce_scatter(mine, list(gradients.chunk(n)))
                dist.all_gather(list(gradients.chunk(n)), mine)
    return record.wire_bytes() / (LAYERS * width * width * 4)


def sent_table() -> Table:
    """The rule, and the count where it differs, by stage and number of ranks."""
    rows = []
    same = True
    for stage, factor in SENT_BY_RULE.items():
        cells = []
        for n in _SIZES:
            ruled, counted = f"{factor * (n - 1) / n:.3f}", f"{sent_by(stage, n):.3f}"
            same = same and counted == ruled
            cells.append(ruled if counted == ruled else f"{ruled}, counted {counted}")
        rows.append((stage, f"{factor} (n − 1)/n", *cells))
    note = (
        f"by the rule, and {'the same when ' * same}counted on rank 0 of a fake group (nobody is at the other end): DDP; reduce-scatter "
        "and all-gather by hand; fully_shard, a call per layer"
    )
    columns = ["sent ÷ weights", "rule", *(f"{n:,} ranks" for n in _SIZES)]
    return table(rows, columns, evidence=f"{ARITHMETIC} · {LIVE}", caption=note)


@drawn
def stored_bars(held: Callable[[str, int], Mapping[str, float]], stages: Sequence[str]) -> Picture:
    """held(stage, n): GB of weights, gradients and optimizer on one of n ranks. A stacked bar each, with its sum."""
    title = "GB on each rank, 8 billion parameters"
    fig, _ = style.figure(2.9, evidence=ARITHMETIC, title=title, note="activations are not counted")
    ax = fig.subplots()
    colours = (style.BLUE, style.ORANGE, style.GREEN)
    names: list[tuple[float, str]] = []
    for i, n in enumerate(_SIZES):
        for j, stage in enumerate(stages):
            at, low = i * (len(stages) + 0.7) + j, 0.0
            for (label, gb), colour in zip(held(stage, n).items(), colours, strict=True):
                ax.bar(at, gb, bottom=low, color=colour, label=label if not names else None)
                low += gb
            gb_text = f"{low:.0f}" if low >= 3 else f"{low:.1f}"
            ax.text(at, low + 2, gb_text, ha="center", va="bottom", **_on_paper())
            names.append((at, stage))
        middle = i * (len(stages) + 0.7) + (len(stages) - 1) / 2
        ax.text(middle, -0.2, f"{n:,} ranks", transform=ax.get_xaxis_transform(), ha="center", va="top")
    ax.axhline(80, color=style.VERMILLION, linewidth=1)
    ax.text(names[-1][0] + 0.5, 82, "one H100: 80 GB", ha="right", va="bottom", color=style.VERMILLION)
    ax.set_xticks([at for at, _ in names], [name for _, name in names], fontsize=8)
    ax.set_ylabel("GB")
    ax.set_ylim(0, 145)
    ax.grid(axis="x", visible=False)
    ax.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1, 1))
    sums = ", ".join(f"{s} on {n:,}: {sum(held(s, n).values()):.1f}" for n in _SIZES for s in stages)
    return Picture(fig, ARITHMETIC, f"{title}: {sums}")


def _on_paper() -> dict[str, Any]:
    return {"fontsize": style.SMALL, "bbox": style.ground(0.1)}


# --- 2, gather, use, let go ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wrapped:
    """One forward and backward on real ranks. sent: what was sent; whole: (pass, layer, whether each layer is whole)."""

    sent: Any
    whole: list[tuple[str, int, tuple[bool, ...]]]

    @property
    def most(self) -> int:
        """Layers whole at the worst moment."""
        return max(sum(which) for _, _, which in self.whole)


#: what can be handed back from a process: the record, and what `Wrapped.whole` holds
_Observation = tuple[Any, list[tuple[str, int, tuple[bool, ...]]]]


def on_two_ranks(
    wrap: Callable[..., nn.Module], ways: Mapping[str, tuple[bool, bool | None]]
) -> dict[str, Wrapped]:
    """On two real ranks: DDP, and each way of wrap(model, per_layer, reshard). What rank 0 saw."""
    return {way: Wrapped(*run) for way, run in ranks.run_ranks(_in_each_way, 2, wrap, ways)[0].items()}


def _in_each_way(
    wrap: Callable[..., nn.Module], ways: Mapping[str, tuple[bool, bool | None]]
) -> dict[str, _Observation]:
    with _quiet():
        return {"DDP": _run(nn.parallel.DistributedDataParallel(layers()))} | {
            way: _run(wrap(layers(), *how)) for way, how in ways.items()
        }


def _run(model: nn.Module) -> _Observation:
    linears = [m for m in model.modules() if isinstance(m, nn.Linear)]
    seen: list[tuple[str, int, tuple[bool, ...]]] = []

    def looks(where: str, at: int) -> Callable[..., None]:
        def look(*_: Any) -> None:
            seen.append((where, at, tuple(not hasattr(m.weight, "placements") for m in linears)))

        return look

    for i, layer in enumerate(linears):
        layer.register_forward_hook(looks("forward", i), prepend=True)
        layer.register_full_backward_hook(looks("backward", i))
    with ranks.sent(model) as record:
        model(torch.ones(2, WIDTH, requires_grad=True)).sum().backward()
    return record, seen


def ways_table(runs: Mapping[str, Wrapped]) -> Table:
    """The collectives of each way, and what they put on the link."""
    rows = []
    for way, run in runs.items():
        gathers = [sum(c.phase == p for c in run.sent.of("all_gather")) for p in ("forward", "backward")]
        others = run.sent.count("reduce_scatter"), run.sent.count("all_reduce")
        rows.append((way, *gathers, *others, f"{run.sent.wire_bytes():,.0f}", run.most))
    columns = ["", "gathers in forward", "in backward", "reduce-scatters", "all-reduces", "bytes on the link", "most layers whole"]  # fmt: skip
    note = f"rank 0 of 2; {LAYERS} layers of {WIDTH * WIDTH * 4:,} bytes; link by a ring"
    return table(rows, columns, evidence=LIVE, caption=note)


@drawn
def whole_map(runs: Mapping[str, Wrapped]) -> Picture:
    """For each way: while each layer computes, forward and back, which layers are whole."""
    title = "Which layers are whole while each layer computes?"
    note = "blue: whole; grey: in shards; dot: computes at this moment. Looked at on rank 0 of 2"
    cell, left, gap = 0.193, 0.75, 0.38
    high = LAYERS * cell
    fig, header = style.figure(high + 0.62, evidence=LIVE, title=title, note=note, placed=True)
    ax = style.inches_axes(fig)
    top = header + 0.28
    for i in range(LAYERS):
        ax.text(
            left - 0.08,
            top + (i + 0.5) * cell,
            f"layer {i + 1}",
            ha="right",
            va="center",
            fontsize=style.SMALL,
        )
    for j, (way, run) in enumerate(runs.items()):
        begin = left + j * (2 * LAYERS * cell + gap)
        ax.text(begin, top - 0.07, way, va="bottom", fontweight="bold", fontsize=style.SMALL)
        for column, (_, at, which) in enumerate(run.whole):
            x = begin + column * cell
            for i, whole in enumerate(which):
                colour = style.BLUE if whole else style.FAINT
                box = Rectangle((x, top + i * cell), cell, cell, facecolor=colour, edgecolor=style.PAPER)
                ax.add_patch(box)
            ax.plot(x + cell / 2, top + (at + 0.5) * cell, "o", color=style.PAPER, markersize=4.5)
        for k, name in enumerate(("forward →", "backward →")):
            middle = begin + (k + 0.5) * LAYERS * cell
            ax.text(middle, top + high + 0.07, name, ha="center", va="top", fontsize=style.SMALL)
    most = "; ".join(f"{way}: {run.most} at most" for way, run in runs.items())
    return Picture(fig, LIVE, f"{title} {most}")


# --- 4, does it hide ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A warm forward and backward on simulated H100s. seconds, peak bytes of this GPU, and the collectives."""

    gpu: Any
    began_s: float
    seconds: float
    peak: int
    calls: list[Any]

    @property
    def gather_us(self) -> float:
        """What one gather takes on average."""
        spans = [c.end_ns - c.start_ns for c in self.calls if c.kind == "all_gather"]
        return sum(spans) / len(spans) / 1e3

    @property
    def product_us(self) -> float:
        """What the shortest matrix product takes."""
        return 1e6 * min(float(k.duration_s) for k in self.gpu.kernels if k.name == "aten.mm")


@cache
def simulated_step(n: int, wrap: Wrap, tokens: int = 8192, slow: float = 1.0, width: int = 4096) -> Step:
    """Six bfloat16 layers of width × width on n H100s, eight to a node. slow: how many times as long rank 3 computes."""
    nodes: dict[str, Any] = {"nodes": n // 8, "between": "InfiniBand NDR"} if n > 8 else {}
    if slow != 1.0:
        nodes["slow"] = {3: slow}
    with _quiet(), simulate("H100").world(n, **nodes) as gpu:
        model = wrap(layers(width, device=gpu.device, dtype=torch.bfloat16), gpu)
        # DDP arranges buckets anew
        rounds = 3 if isinstance(model, nn.parallel.DistributedDataParallel) else 2
        for _ in range(rounds):
            ran = _forward_backward(gpu, model, tokens, width)
    return Step(gpu, ran.began_s, ran.seconds, ran.peak, ran.collectives)


def _forward_backward(gpu: Any, model: nn.Module, rows: int, width: int) -> Stretch:
    model.zero_grad()
    kind: dict[str, Any] = {"device": gpu.device, "dtype": torch.bfloat16}
    return stretch(gpu, lambda: model(torch.empty(rows, width, **kind)).sum().backward())


def few_and_many(wraps: Mapping[str, Wrap], large: Wrap) -> dict[str, Step]:
    """ "8: …" and "1,024: …" by each way to wrap; and "large layers", 16,384 × 16,384, by the way `large`."""
    ways = {way: (wrap, 4096) for way, wrap in wraps.items()} | {"large layers": (large, 16384)}
    return {
        f"{n:,}: {way}": simulated_step(n, wrap, width=width)
        for n in (8, 1024)
        for way, (wrap, width) in ways.items()
    }


def few_and_many_picture(steps: Mapping[str, Step], wraps: Mapping[str, Wrap]) -> Picture:
    """Of `few_and_many`: a call per layer on 8 ranks, and each way to wrap on 1,024."""
    shown = ("8: a call per layer", *(f"1,024: {way}" for way in wraps))
    title = "Forward and backward, on 8 and on 1,024 ranks"
    return plots.compared(drawn_from({name: steps[name] for name in shown}), title=title)


def drawn_from(steps: Mapping[str, Step]) -> dict[str, tuple[Any, float]]:
    """The steps as `plots.compared` takes them."""
    return {name: (step.gpu, step.began_s) for name, step in steps.items()}


def steps_table(wraps: Mapping[str, Wrap], sizes: Sequence[int] = (8, 64, 1024)) -> Table:
    """Seconds, peak and number of collectives by way and number of ranks."""

    def row(way: str, wrap: Wrap) -> tuple[Any, ...]:
        steps = [simulated_step(n, wrap) for n in sizes]
        last = steps[-1]
        return way, *(f"{s.seconds * 1e3:.2f} ms" for s in steps), f"{last.peak / 1e6:,.0f}", len(last.calls)

    columns = ["", *(f"{n:,} ranks" for n in sizes), f"peak MB on {sizes[-1]:,}", "collectives"]
    note = (
        "forward and backward of 6 layers of 4,096 × 4,096, bfloat16; no optimizer; with the host's wait at the end, which the "
        "picture leaves out. "
        f"Of the peak, {7 * 8192 * 4096 * 2 / 1e6:,.0f} MB are activations"
    )
    rows = [row(*item) for item in wraps.items()]
    return table(rows, columns, evidence=SIMULATED, caption=note)


def tokens_table(wraps: Mapping[str, Wrap]) -> Table:
    """A step on 1,024 ranks with as many tokens as before, and with four times as many."""
    rows = []
    for way, wrap in wraps.items():
        took = [simulated_step(1024, wrap, tokens).seconds for tokens in (8192, 4 * 8192)]
        rows.append((way, *(f"{s * 1e3:.1f} ms" for s in took), f"{took[1] / took[0]:.1f}"))
    columns = ["1,024 ranks", "8,192 tokens a rank", "32,768", "times as long"]
    return table(rows, columns, evidence=SIMULATED, caption="forward and backward")


# --- the running example ------------------------------------------------------------------------------------------


def most_in_use(script: Script, ranks: int, warm_up: int = 4, steps: int = 5) -> int:
    """Most bytes in use on one of so many simulated GPUs in warm steps. (A score's peak is what the allocator reserves.)"""
    with _quiet(), simulate(CARD).world(ranks) as gpu:
        run = script.train(LARGE, gpu, warm_up + steps + 1)
        for step in range(warm_up + steps):
            if step == warm_up:
                gpu.synchronize()
                gpu.reset_peak_memory_stats()
            next(run)
        most: int = gpu.max_memory_allocated()
        return most


# --- Further: what is whole at the worst moment -------------------------------------------------------------------


def _plan_of(letters: str) -> list[bool]:
    return [letter == "g" for letter in letters.replace(" ", "")]


@dataclass(frozen=True)
class Plan:
    """One plan, by the rule and simulated. peak: bytes beyond the shards; sent: payload bytes; seconds of a step."""

    blocks: tuple[int, ...]
    letters: str
    ruled_peak: int
    peak: int
    ruled_sent: int
    sent: int
    seconds: float


@cache
def simulated_plan(mib: tuple[int, ...], letters: str, n: int = 64) -> Plan:
    """A warm step of blocks of so many MiB, two matrices each. letters: g lets go of a block after forward, k keeps it."""
    blocks, let_go, width = tuple(size << 20 for size in mib), _plan_of(letters), 1024
    with _quiet(), simulate("H100").world(n, nodes=n // 8, between="InfiniBand NDR") as gpu:
        how: dict[str, Any] = {"bias": False, "device": gpu.device, "dtype": torch.bfloat16}
        model = nn.Sequential()
        for b in blocks:
            inner = b // (4 * width)
            model.append(nn.Sequential(nn.Linear(width, inner, **how), nn.Linear(inner, width, **how)))
        mesh = init_device_mesh(gpu.device.type, (n,))
        for block, gone in zip(model, let_go, strict=True):
            fully_shard(block, mesh=mesh, reshard_after_forward=gone)
        fully_shard(model, mesh=mesh)
        for _ in range(2):
            ran = _forward_backward(gpu, model, 16, width)
    ruled_peak = worst_moment(list(blocks), let_go, n)[0]
    ruled_sent = sum((3 if gone else 2) * b for b, gone in zip(blocks, let_go, strict=True))
    sent = sum(call.bytes for call in ran.collectives)
    return Plan(blocks, letters, ruled_peak, ran.temporary, ruled_sent, sent, ran.seconds)


EQUAL, UNEQUAL = (8,) * 6, (8, 24, 8, 16, 8, 8)
#: (MiB of the blocks, plan)
PLANS = [(EQUAL, letters) for letters in ("ggg ggg", "kkk ggg", "ggg kkk", "kkk kkk")]
PLANS += [(UNEQUAL, letters) for letters in ("ggg ggg", "gkg gkk", "kgk kkk")]


def plans_table() -> Table:
    """Each plan: the worst moment and what is sent, by the rule and simulated."""
    rows = []
    for plan in (simulated_plan(*key) for key in PLANS):
        mib = [x / 2**20 for x in (plan.ruled_peak, plan.peak, plan.ruled_sent, plan.sent)]
        sizes = " ".join(str(b >> 20) for b in plan.blocks)
        rows.append((sizes, plan.letters, *(f"{x:.1f}" for x in mib), f"{plan.seconds * 1e3:.2f} ms"))
    columns = ["blocks, MiB", "plan", "worst, by rule", "simulated", "sent, by rule", "simulated", "step"]
    note = "64 ranks; k: kept after forward, g: let go of (gathered again); MiB beyond the shards, payload in MiB"
    return table(rows, columns, evidence=f"{ARITHMETIC} · {SIMULATED}", caption=note)


def against(a: float, b: float) -> str:
    """a, compared with b: the same within 1 %."""
    return "the same" if abs(a / b - 1) < 0.01 else "less" if a < b else "more"


# --- Further: formats, checkpoints -----------------------------------------------------------------------


@cache
def bytes_with(policy: MixedPrecisionPolicy | None) -> dict[str, int]:
    """Bytes of a rank's shards, and the payload of the gathers and the reduce-scatters of a step; a fake group of 8."""
    with _quiet(), ranks.fake(8) as mesh:
        model = layers()
        options: dict[str, Any] = {} if policy is None else {"mp_policy": policy}
        for layer in model:
            fully_shard(layer, mesh=mesh, **options)
        fully_shard(model, mesh=mesh, reshard_after_forward=True, **options)
        with ranks.sent(model) as record:
            model(torch.ones(2, WIDTH)).sum().backward()
        shards = sum(_local(p).nbytes for p in model.parameters())
    return {
        "shards": shards,
        "gathers": record.bytes("all_gather"),
        "reduce-scatters": record.bytes("reduce_scatter"),
    }


def _local(p: Any) -> torch.Tensor:
    local: torch.Tensor = p.to_local()
    return local


def formats_table(policies: Mapping[str, MixedPrecisionPolicy | None]) -> Table:
    """bytes_with each policy."""
    rows = [(name, *(f"{x:,}" for x in bytes_with(policy).values())) for name, policy in policies.items()]
    columns = ["policy", "shards on a rank, bytes", "gathers", "reduce-scatters"]
    return table(rows, columns, evidence=LIVE, caption="counted on a fake group of 8")


def saved_and_loaded(save: Callable[[str], Any], load: Callable[[str], bool]) -> tuple[list[str], bool]:
    """save(folder) on two real ranks, load(folder) on one: the files, and what load says."""
    with tempfile.TemporaryDirectory() as folder:
        ranks.run_ranks(save, 2, folder)
        return sorted(p.name for p in Path(folder).iterdir()), ranks.run_ranks(load, 1, folder)[0]


# --- compiled --------------------------------------------------------------------------------------------------------


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.up(x))


class _Stack(nn.Module):
    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_Block(width) for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def graphs_of(way: Callable[[nn.Module, Any], nn.Module], blocks: int = 8, width: int = 512) -> str:
    """What the compiler gets of eight blocks in two steps. way(model, backend): the model, wrapped and compiled."""
    sizes: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        sizes.append(len([node for node in graph.graph.nodes if node.op == "call_function"]))
        return graph

    torch.compiler.reset()
    logging.disable(logging.WARNING)  # of a profiler's span in DDP that no graph holds
    try:
        model = way(_Stack(blocks, width), backend)
        for _ in range(2):
            model(torch.randn(4, width)).sum().backward()
    finally:
        logging.disable(logging.NOTSET)
        torch.compiler.reset()
    return f"{len(sizes)} graphs, operators: {', '.join(map(str, sizes))}"
