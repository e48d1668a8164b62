"""What lesson 09 shows: a step's memory by kind and phase, gradients in pieces, checkpoints, offloading, and all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from helpers import count, memory, recordings, simulate, timing
from helpers.lesson.predictions import nearest
from helpers.lessons.saving_memory.layer import Layer, squares, stack
from helpers.lessons.saving_memory.recorded import step as one_step
from helpers.memory.estimating import Estimate
from helpers.models import Block, Size
from helpers.simulator.stretch import stretch
from helpers.text.tables import Table, table

MIB = 2**20
ON_H100 = "simulated (H100)"


# --- 1 · one step ----------------------------------------------------------------------------------------------------


def phases(by_rows: Mapping[int, Estimate]) -> dict[str, Any]:
    """In which phase the peak is, with the fewest and the most rows; static bytes per weight (4 bytes each)."""
    small, large = by_rows[min(by_rows)], by_rows[max(by_rows)]
    return {
        "peak with 16 rows": small.peak_phase,
        "peak with 8,192 rows": large.peak_phase,
        "static bytes per weight": round(4 * large.static_bytes / large.parameters),
    }


def where_it_tips(by_rows: Mapping[int, Estimate]) -> tuple[int, int]:
    """The most rows whose peak is in the optimizer's step, and the fewest whose peak is in backward."""
    step = max(n for n, estimate in by_rows.items() if estimate.peak_phase == "step")
    backward = min(n for n, estimate in by_rows.items() if estimate.peak_phase == "backward")
    return step, backward


def kinds(by_rows: Mapping[int, Estimate]) -> Table:
    """A row a batch: the phase of the peak, and what is there then, by kind."""
    rows = []
    for n, estimate in by_rows.items():
        at_peak, peak = estimate.at_peak, estimate.peak_bytes
        parts = [estimate.static_bytes, at_peak.get("gradients", 0), at_peak.get("activations", 0)]
        sizes = [*parts, peak - sum(parts), peak]
        rows.append([f"{n:,}", estimate.peak_phase, *(f"{size / MIB:.1f}" for size in sizes)])
    columns = ["rows", "peak in", "static", "gradients", "activations", "batch, temporaries", "peak"]
    return table(rows, columns, evidence="arithmetic", caption="MiB at the peak, by kind")


# --- 2 · the batch in pieces -----------------------------------------------------------------------------------------


def labelled_rows(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x: (n, 32) in float64, targets: (n,), and the targets with ever more of each 64 set to -100."""
    torch.manual_seed(0)
    x, y = torch.randn(n, 32, dtype=torch.float64), torch.randint(10, (n,))
    place = torch.arange(n)
    return x, y, torch.where(place % 64 < place // 8, -100, y)


def small_nets() -> tuple[nn.Sequential, nn.Sequential]:
    """Two layers in float64, without and with BatchNorm between them."""
    plain = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10)).double()
    normed = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Linear(64, 10)).double()
    return plain, normed


def same(off: Mapping[str, float]) -> dict[str, str]:
    """Whether gradients that are off by so much, relatively, are the same."""
    return {name: "same" if e < 1e-9 else "different" for name, e in off.items()}


def how_far_off(off: Mapping[str, float]) -> Table:
    """How far the gradients are off."""
    rows = [(name, "< 1e-9" if e < 1e-9 else f"≈ {e:.3f}") for name, e in off.items()]
    counting = ", ".join(str(int((part != -100).sum())) for part in labelled_rows(512)[2].split(64))
    caption = f"float64 (in float32 the last digits differ); targets that count in the padded pieces of 64: {counting}"
    return table(rows, ["512 rows in", "off by, relative"], evidence="live (CPU)", caption=caption)


def times_as_far(kind: Callable[..., torch.optim.Optimizer]) -> float:
    """How many times as far the first step goes if the gradients of 8 pieces are not divided by 8."""

    def first_step(scale: float) -> float:
        w = nn.Parameter(torch.zeros(1000))
        w.grad = torch.linspace(-1, 1, 1000) * scale
        kind([w], lr=0.1).step()
        return float(w.detach().norm())

    return first_step(8) / first_step(1)


# --- 3 · compute it again --------------------------------------------------------------------------------------------


def in_groups(part: Callable[[], nn.Module], size: int | None) -> Estimate:
    """The step of 16 parts of width 128 with 4,096 rows, a checkpoint around each group of `size`; None: without."""
    each = size or 1
    groups = nn.Sequential(*[nn.Sequential(*[part() for _ in range(each)]) for _ in range(16 // each)])
    chosen = None if size is None else lambda name, _: name.isdigit()  # a group, and nothing inside one
    return memory.estimate(groups, torch.empty(4096, 128, device="meta"), loss=squares, checkpoint=chosen)


def more_flops(part: nn.Module) -> tuple[float, float]:
    """What a checkpoint around the part adds to the FLOPs of forward and backward: all again, and as torch does it."""

    def flops(again: bool) -> int:
        x = torch.randn(2, 64, 64, requires_grad=True)

        def step() -> None:
            squares(checkpoint(part, x, use_reentrant=False) if again else part(x)).backward()

        return count(step).flops

    plain, default = flops(False), flops(True)
    with set_checkpoint_early_stop(False):
        return flops(True) / plain - 1, default / plain - 1


def of_groups(estimates: Mapping[str, Estimate], all_again: float) -> dict[str, str]:
    """Which way has the lowest peak, the whole against keeping all, and what all of forward again adds."""
    peaks = {name: estimate.peak_bytes for name, estimate in estimates.items()}
    share = nearest(peaks["whole"] / peaks["keep all"], (0.1, 0.3, 0.5, 1))
    return {
        "lowest peak": min(peaks, key=lambda name: peaks[name]),
        "whole ÷ keep all": f"about {share:g}",
        "more FLOPs": f"{all_again:.0%}".replace("%", " %"),
    }


def on_a_net(choose: Callable[[list[int], list[int], list[int], int], list[int]]) -> Table | None:
    """The learner's choice on a net of five unlike blocks, for three budgets: peak and FLOPs by the exercise's rule, and as counted."""
    torch.manual_seed(0)
    blocks = [Layer(128, wider) for wider in (6, 1, 8, 2, 4)]
    whole, x = nn.Sequential(*blocks), torch.randn(2048, 128)
    forward = [count(block, x.clone().requires_grad_()) for block in blocks]
    kept, flops, inputs = (
        [c.saved_bytes for c in forward],
        [c.flops for c in forward],
        [x.nbytes] * len(blocks),
    )

    def step(chosen: list[int]) -> None:
        h = x.clone()
        for i, block in enumerate(blocks):
            h = checkpoint(block, h, use_reentrant=False) if i in chosen else block(h)
        loss = squares(h)
        del h
        loss.backward()

    rows, plain = [], count(step, []).flops
    for budget in (60, 40, 25):
        try:
            chosen = list(choose([*kept], [*inputs], [*flops], budget * MIB))
        except NotImplementedError:
            print("for later: this cell wants your choose_checkpoints of exercise 9.2")
            return None
        whole.zero_grad()
        held = [inputs[i] if i in chosen else n for i, n in enumerate(kept)]
        again = [sum(held[:i]) + kept[i] for i in chosen]
        counted, rule = count(step, chosen), max(sum(held), *again, 0)
        peaks = [f"{size / MIB:.1f}" for size in (rule, counted.peak_live_bytes)]
        prices = [f"{n / sum(flops):.0%}" for n in (sum(flops[i] for i in chosen), counted.flops - plain)]
        rows.append((budget, ", ".join(map(str, chosen)) or "none", *peaks, *prices))
    sizes = ", ".join(f"{n / MIB:.1f}" for n in kept)
    columns = ["budget, MiB", "checkpoints", "peak by the rule", "peak counted"]
    columns += ["of forward's FLOPs again, by the rule", "again, counted"]
    caption = (
        f"blocks 0 to 4 save {sizes} MiB, with a checkpoint {x.nbytes / MIB:.1f} each; counted without weights; "
        "torch's checkpoint stops early"
    )
    return table(rows, columns, evidence="live (CPU)", caption=caption)


def parts() -> dict[str, tuple[float, float]]:
    """more_flops of three parts."""
    size = Size(width=64, heads=4, context=64)
    chosen = {
        "one linear layer": nn.Linear(64, 64),
        "the lesson's Block": Layer(64),
        "a transformer's block": Block(size, causal=True, eager=False, before=True, dropout=0.0),
    }
    return {name: more_flops(part) for name, part in chosen.items()}


def more_arithmetic() -> Table:
    """FLOPs that a checkpoint adds, part by part."""
    rows = [(name, f"{full:+.1%}", f"{early:+.1%}") for name, (full, early) in parts().items()]
    caption = "FLOPs of forward and backward, the input needs a gradient too; left: set_checkpoint_early_stop(False)"
    columns = ["checkpoint around", "all computed again", "as torch does it"]
    return table(rows, columns, evidence="live (CPU)", caption=caption)


def groups_of_layers(layers: Mapping[int | None, Estimate]) -> Table:
    """The peak of 16 × (linear, relu) by the size of a group."""
    rows = [
        ("keep all" if size is None else f"each {size}", f"{estimate.peak_bytes / MIB:.1f}")
        for size, estimate in layers.items()
    ]
    caption = "16 × (linear, relu), 4,096 rows"
    return table(rows, ["a checkpoint around", "peak, MiB"], evidence="arithmetic", caption=caption)


# --- 4 · let go of it earlier ----------------------------------------------------------------------------------------


def higher(habits: Mapping[str, int]) -> dict[str, str]:
    """Which habits raise the peak; habits: habit → bytes, "none of these" among them."""
    tidy = habits["none of these"]
    return {name: "higher" if most > 1.01 * tidy else "the same" for name, most in habits.items()}


def habits(peaks: Mapping[str, int]) -> Table:
    """The peak with each habit, and how much more that is."""
    tidy = peaks["none of these"]
    rows = [(habit, f"{most / MIB:.2f}", f"{(most - tidy) / MIB:+.2f}") for habit, most in peaks.items()]
    caption = f"the logits are {256 * 4096 * 4 / MIB:.0f} MiB"
    return table(rows, ["habit", "peak, MiB", "more"], evidence="live (CPU)", caption=caption)


# --- 5 · all of it ---------------------------------------------------------------------------------------------------


def floor(estimate: Estimate) -> int:
    """Bytes that neither pieces nor checkpoints make smaller: static memory and one set of gradients."""
    return estimate.static_bytes + estimate.parameters


def above_floor(pulled: Mapping[str, Estimate]) -> float:
    """How many times smaller all that is above the floor gets with pieces and checkpoints together."""
    plain, both = pulled["plain"], pulled["8 pieces, checkpoints"]
    return (plain.peak_bytes - floor(plain)) / (both.peak_bytes - floor(both))


def reached(pulled: Mapping[str, Estimate], budget: int) -> dict[str, str]:
    """Which of pieces and checkpoints reach the budget, in the words of the question."""
    pieces, again, together = (
        pulled[name].peak_bytes <= budget for name in ("8 pieces", "checkpoints", "8 pieces, checkpoints")
    )
    by = "each alone" if pieces and again else "8 pieces alone" if pieces else "checkpoints alone"
    if not (pieces or again):
        by = "only both together" if together else "none"
    return {"the budget is reached by": by}


def ways(pulled: Mapping[str, Estimate], prices: Mapping[str, str], budget: int, again: float) -> Table:
    """Each way with its peak and its price; again: what checkpoints add to the FLOPs."""
    rows = [
        (
            name,
            f"{estimate.peak_bytes / MIB:.1f}",
            f"{estimate.at_peak['activations'] / MIB:.1f}",
            "yes" if estimate.peak_bytes <= budget else "",
            prices[name].replace("FLOPs", f"FLOPs {again:+.0%}"),
        )
        for name, estimate in pulled.items()
    ]
    columns = ["way", "peak, MiB", "of it activations", f"≤ {budget // MIB}", "price"]
    caption = "of the batch, only the piece at work is counted: 1 MiB of 8 where there are 8"
    return table(rows, columns, evidence="arithmetic", caption=caption)


# --- further ---------------------------------------------------------------------------------------------------------


def adds(acts: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """What relu and gelu add to what is kept, in arrays; whether relu_ keeps fewer."""
    added: dict[str, Any] = {f"{name} adds": round(acts[f"{name}(h)"][0]) for name in ("relu", "gelu")}
    return added | {"relu_ keeps": "fewer" if acts["relu_(h)"][0] < acts["relu(h)"][0] else "as many"}


def activations(acts: Mapping[str, tuple[Any, Any]]) -> Table:
    """What each activation adds, and the most at once."""
    rows = [
        (name, *(n if isinstance(n, str) else f"{n:.2f}" for n in numbers)) for name, numbers in acts.items()
    ]
    caption = "in arrays of 1,024 × 256; right: all that linear and activation hold at once of what they make"
    columns = ["between two linear layers", "adds to what is kept", "most at once, up to it"]
    return table(rows, columns, evidence="live (CPU)", caption=caption)


WIDTH, DEPTH, ROWS = 512, 8, 2048


def on_a_card(step: Callable[[nn.Module, torch.Tensor, str], None], way: str) -> dict[str, float]:
    """The second step of 8 blocks of width 512 on a simulated H100: peak bytes, seconds, bytes to the host and back."""
    gpu = simulate("H100")
    with gpu:
        with torch.device(gpu.device):
            net, x = stack(WIDTH, DEPTH), torch.randn(ROWS, WIDTH)

        def once() -> None:
            step(net, x, way)
            net.zero_grad()

        once()
        ran = stretch(gpu, once)
    moved = {k: float(sum(w.bytes for w in ran.kernels if w.kind == f"copy {k}")) for k in ("d2h", "h2d")}
    return {"peak": ran.peak, "seconds": ran.seconds, **moved}


def _kept() -> int:
    x = torch.empty(ROWS, WIDTH, device="meta")
    return memory.estimate(stack(WIDTH, DEPTH), x, loss=squares, optimizer=None).saved


def too_many(steps: Mapping[str, Mapping[str, float]]) -> float:
    """Bytes that save_on_cpu moves to the host beyond the activations."""
    return steps["save_on_cpu"]["d2h"] - _kept()


def of_offloading(steps: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """How many times as long the two ways take, and how much is moved, in the words of the questions."""
    answers, plain = {}, steps["plain"]["seconds"]
    for way, question in (("checkpoints", "checkpoints take"), ("save_on_cpu", "save_on_cpu takes")):
        answers[question] = f"{nearest(steps[way]['seconds'] / plain, (1, 1.2, 2, 5, 15)):g} ×"
    share = steps["save_on_cpu"]["d2h"] / _kept()
    return answers | {"save_on_cpu moves": "more" if share > 1.01 else "fewer" if share < 0.99 else "as many"}


def steps(costs: Mapping[str, Mapping[str, float]]) -> Table:
    """Each way's peak, time and copies."""
    plain = costs["plain"]["seconds"]
    rows = [
        (
            way,
            f"{cost['peak'] / MIB:,.0f}",
            f"{1e3 * cost['seconds']:.1f}",
            f"{cost['seconds'] / plain:.2f}",
            f"{cost['d2h'] / MIB:,.0f}",
            f"{cost['h2d'] / MIB:,.0f}",
        )
        for way, cost in costs.items()
    ]
    stays = 2 * sum(p.nbytes for p in stack(WIDTH, DEPTH).parameters()) + ROWS * WIDTH * 4 + 2 * 32 * MIB
    caption = (
        f"activations: {_kept() / MIB:,.0f} MiB; weights, their gradients, the batch and the matrix library's "
        f"workspace (one for each of two threads): {stays / MIB:,.0f} MiB"
    )
    columns = ["way", "peak, MiB", "ms", "times as long", "to the host, MiB", "back, MiB"]
    return table(rows, columns, evidence=ON_H100, caption=caption)


def longer(prefer: str) -> float:
    """How many times as long as the plain step the one with checkpoints takes; "recorded" on an H100, or "simulated"."""
    us = {row["way"]: row["us"] for row in recordings.show("09/offloading", prefer=prefer).table or []}
    return float(us["checkpoints"] / us["plain"])


def checkpoints_python() -> Table:
    """The same steps on the CPU with one row and width 8: hardly any arithmetic, so what is left is Python and operators."""
    net, x = stack(8, DEPTH), torch.randn(1, 8)
    rows = [
        (
            way,
            count(one_step, net, x, way).operators,
            timing.bench(one_step, net, x, way, num_threads=1).median_s,
        )
        for way in ("plain", "checkpoints")
    ]
    (_, few, short), _ = rows
    shown = [
        (way, n, f"{n / few:.1f}", f"≈ {1e3 * seconds:.2f}", f"≈ {seconds / short:.1f}")
        for way, n, seconds in rows
    ]
    columns = ["way", "operators", "times as many", "ms", "times as long"]
    return table(
        shown,
        columns,
        evidence="live (CPU)",
        caption="the same steps with one row, width 8: next to no arithmetic",
    )


def on_a_real_card() -> Table:
    """Such steps live, else recorded, and their peaks simulated: above what is there before the step, and how long each takes."""
    run = recordings.show("09/offloading")
    ways, simulated = run.table or [], recordings.show("09/offloading", prefer="simulated").table or []
    rows = [
        (
            row["way"],
            f"{row['peak_bytes'] / MIB:,.0f}",
            f"{other['peak_bytes'] / MIB:,.0f}",
            f"{run.about}{row['us'] / 1e3:.1f}",
            f"{run.about}{row['us'] / ways[0]['us']:.1f}",
        )
        for row, other in zip(ways, simulated, strict=True)
    ]
    columns = ["way", "peak, MiB", ON_H100, "ms", "times as long"]
    caption = "peaks: what a step adds to weights, batch and workspaces"
    return table(rows, columns, evidence=run.evidence, caption=caption)
