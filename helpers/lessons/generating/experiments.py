"""What lesson 20 shows: a token's price, three kinds of cache, loops with and without waits, batches, and fewer bits."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import helpers.lessons.generating.recorded  # noqa: F401 - its experiments are known by their names
from helpers import count, recordings, timing
from helpers.compiling.torches import CannotCompile, explained
from helpers.counters import Counts
from helpers.lesson.predictions import nearest
from helpers.lessons.generating import on_card
from helpers.lessons.generating.batching import Run
from helpers.lessons.generating.decoding import Fixed, Growing, next_logits
from helpers.lessons.generating.on_card import Cost
from helpers.models import GPT2, Size
from helpers.plots import style
from helpers.plots.picture import Picture, drawn
from helpers.pytorch import private_torch
from helpers.simulator import simulate
from helpers.simulator.devices import device
from helpers.text.sizes import size_text
from helpers.text.tables import Table, table

ON_H100 = "simulated (H100)"
MS = 1e3


def _ms(seconds: float) -> str:
    return f"{MS * seconds:.2f} ms"


# --- 1 · one token ---------------------------------------------------------------------------------------------------


def reading_s(name: str, card: str = "H100") -> float:
    """Seconds in which the card's memory gives all weights once, at its peak."""
    return on_card.weights(name) / device(card).memory_bytes_per_s


def graph_gain_7b() -> float:
    """How many times as fast a graph made one token of the 7B model on the recorded card."""
    one = next(
        row for row in recordings.show("20/large", prefer="recorded").table or () if row["tokens"] == 1
    )
    return float(one["us"] / one["graph_us"])


def recorded_7b() -> Table:
    """A step of the 7B model on a recorded card, by tokens at once and by sequences, beside the simulated one."""
    recording = recordings.show("20/large", prefer="recorded")
    rows = []
    for row in recording.table or ():
        if row["way"] != "static":
            continue
        what = f"{row['tokens']} tokens of 1 sequence" if row["tokens"] > 1 else f"1 token of {row['batch']}"
        simulated = on_card.cost("7B", batch=row["batch"], tokens=row["tokens"], graph=True).seconds
        rows.append((what, f"≈ {_ms(row['graph_us'] / 1e6)}", _ms(simulated), f"≈ {_ms(row['us'] / 1e6)}"))
    columns = ["7B", "as a graph", "simulated", "launched one by one"]
    return table(
        rows,
        columns,
        evidence=f"{recording.evidence} · {ON_H100}",
        caption="bf16, at the end of 1,024 places",
    )


def recorded_ways(batches: Sequence[int] = (1, 64)) -> Table:
    """The three ways of GPT-2 on a recorded card: launched one by one, and the static one as a graph."""
    recording = recordings.show("20/caches", prefer="recorded")
    rows = [
        (
            row["batch"],
            row["way"],
            f"≈ {_ms(row['us'] / 1e6)}",
            f"≈ {_ms(row['graph_us'] / 1e6)}" if "graph_us" in row else "",
        )
        for row in recording.table or ()
        if row["batch"] in batches
    ]
    columns = ["sequences", "cache", "launched one by one", "as a graph"]
    return table(rows, columns, evidence=recording.evidence, caption="GPT-2, the 1,024th token, bf16")


def recorded_static() -> tuple[list[float], float]:
    """The static way on a recorded card, in ms: launched one by one, for 1 and for 64 sequences; and as a graph, for 1."""
    rows = [
        row for row in recordings.show("20/caches", prefer="recorded").table or () if row["way"] == "static"
    ]
    launched = {row["batch"]: row["us"] / 1e3 for row in rows}
    return [launched[1], launched[64]], next(row["graph_us"] for row in rows if row["batch"] == 1) / 1e3


def tokens_at_once(costs: Mapping[tuple[str, int], Cost]) -> Table:
    """A row a model and a number of tokens: time, and how many tokens that is a second."""
    rows = [
        (name, f"{n:,}", _ms(cost.seconds), f"{cost.seconds / costs[name, 1].seconds:.2f} ×", f"{n / cost.seconds:,.0f}")
        for (name, n), cost in costs.items()
    ]  # fmt: skip
    columns = ["model", "tokens at once", "time", "against 1", "tokens through the model, a second"]
    return table(rows, columns, evidence=ON_H100, caption="bf16, kernels launched as one CUDA graph")


def floors(costs: Mapping[tuple[str, int], Cost], eager: Mapping[str, Cost]) -> Table:
    """What one token could take at least, and what it takes, by model."""
    rows = [
        (name, size_text(on_card.weights(name)), _ms(reading_s(name)), _ms(costs[name, 1].seconds), _ms(cost.seconds), f"{cost.launches}")
        for name, cost in eager.items()
    ]  # fmt: skip
    columns = [
        "model",
        "weights",
        "reading them once",
        "a token, as a graph",
        "launched one by one",
        "launches",
    ]
    return table(rows, columns, evidence=f"arithmetic · {ON_H100}", caption="one sequence, bf16")


@drawn
def by_batch(costs: Mapping[int, Cost], *, title: str) -> Picture:
    """Time of a step and tokens a second, against the number of sequences."""
    sizes = list(costs)
    fig, _ = style.figure(2.6, evidence=ON_H100, title=title)
    left, right = fig.subplots(1, 2)
    times, rates = [MS * costs[n].seconds for n in sizes], [n / costs[n].seconds for n in sizes]
    for ax, values, form, colour, label in (
        (left, times, "{:.2f}", style.BLUE, "ms for one step (log scale)"),
        (right, rates, "{:,.0f}", style.GREEN, "tokens a second, all sequences (log scale)"),
    ):
        ax.plot(sizes, values, "o-", color=colour, markersize=4)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_ylim(min(values) / 1.5, max(values) * 2.2)
        ax.set_xlim(sizes[0] / 1.5, sizes[-1] * 1.8)
        ax.set_xticks(sizes, [str(n) for n in sizes])
        ax.minorticks_off()
        ax.set_yticks([])
        for n, value in zip(sizes, values, strict=True):
            above = (0, 6)
            ax.annotate(
                form.format(value),
                (n, value),
                above,
                textcoords="offset points",
                ha="center",
                fontsize=style.SMALL,
            )
        ax.set_xlabel("sequences in the batch")
        ax.set_title(label, fontsize=style.TEXT, loc="left")
    said = ", ".join(f"{n}: {t:.2f} ms" for n, t in zip(sizes, times, strict=True))
    return Picture(fig, ON_H100, f"{title}. A step takes {said}")


# --- 2 · what to keep ------------------------------------------------------------------------------------------------

SMALLER = Size(layers=4, vocabulary=1000, context=128)


@lru_cache(maxsize=1)
def _live() -> dict[str, Callable[[], Tensor]]:
    """A function a way: the token at place 127 of a GPT-2 of four layers, on the CPU in float32."""
    torch.manual_seed(0)
    model, tokens, last = GPT2(SMALLER), torch.randint(1000, (1, 128)), 127
    places, row = torch.arange(128), torch.tensor([last])
    shape = (1, SMALLER.heads, 128, 64)
    grown, fixed = [Growing() for _ in model.blocks], [Fixed(shape) for _ in model.blocks]
    with torch.no_grad():
        next_logits(model, tokens[:, :last], places[:last], grown)
        next_logits(model, tokens[:, :last], places[:last], fixed, 128)
    kept = [(cache.keys, cache.values) for cache in grown]

    def growing() -> Tensor:
        for cache, (keys, values) in zip(grown, kept, strict=True):
            cache.keys, cache.values = keys, values
        return next_logits(model, tokens[:, last:], row, grown)

    ways = {
        "no cache": lambda: next_logits(model, tokens, places),
        "growing": growing,
        "static": lambda: next_logits(model, tokens[:, last:], row, fixed, 128),
    }
    return {name: torch.no_grad()(way) for name, way in ways.items()}


def live_counts(count: Callable[..., Counts]) -> dict[str, Counts]:
    """What each way costs on the CPU, by counters."""
    return {name: count(way) for name, way in _live().items()}


def counted(counts: Mapping[str, Counts]) -> Table:
    """A row a way: FLOPs, bytes of new tensors, of them those of concatenations; and the time beside the static cache's."""
    ways, rows = _live(), []
    for name, seen in counts.items():
        cat = sum(size for operator, size in seen.allocations if operator == "aten.cat")
        ratio = (
            "–"
            if name == "static"
            else timing.compare(ways[name], ways["static"], pairs=6, number=1, num_threads=1).cell
        )
        rows.append((name, f"{seen.flops / 1e6:,.0f}", size_text(seen.bytes_allocated), size_text(cat), f"{seen.operators}", ratio))  # fmt: skip
    columns = ["cache", "million FLOPs", "new tensors", "of them longer caches", "operators", "time ÷ static"]
    caption = "the 128th token: GPT-2's width, 4 layers, float32, one sequence"
    return table(rows, columns, evidence="live (CPU)", caption=caption)


def ways(costs: Mapping[tuple[str, int], Cost], graph: Mapping[int, Cost]) -> Table:
    """A row a way and a batch: launches, bytes, and time for one token."""
    shown = {(name, batch): cost for (name, batch), cost in costs.items()}
    shown |= {("static, as a graph", batch): cost for batch, cost in graph.items()}
    rows = [
        (f"{batch}", name, f"{c.launches}", size_text(c.bytes), size_text(c.cat_bytes), _ms(c.seconds))
        for (name, batch), c in sorted(shown.items(), key=lambda item: item[0][1])
    ]
    columns = ["sequences", "cache", "launches", "bytes moved", "of them by cat", "time"]
    caption = "the 1,024th token of GPT-2 in bf16"
    return table(rows, columns, evidence=ON_H100, caption=caption)


def graphs_compiled(first: int = 4, tokens: int = 6) -> dict[str, int]:
    """How many graphs torch.compile makes for the next tokens, through a growing and a static cache."""
    made = {}
    size = Size(width=32, layers=2, heads=2, vocabulary=50, context=32)
    model = GPT2(size)
    for name in ("growing", "static"):
        caches: list[Any] = [Growing() for _ in range(2)]
        if name == "static":
            caches = [Fixed((1, 2, 32, 16)) for _ in range(2)]
        length = 32 if name == "static" else None
        torch.compiler.reset()
        private_torch.dynamo_counters.clear()
        step = torch.compile(next_logits, backend="eager", fullgraph=True)
        with torch.no_grad():
            next_logits(model, torch.ones(1, first, dtype=torch.int64), torch.arange(first), caches, length)
            for at in range(first, first + tokens):
                step(model, torch.ones(1, 1, dtype=torch.int64), torch.tensor([at]), caches, length)
        made[name] = int(private_torch.dynamo_counters["stats"]["unique_graphs"])
    torch.compiler.reset()
    return made


# --- 3 · loops -------------------------------------------------------------------------------------------------------


def loop_cost(loop: Callable[..., Any], tokens: int = 32, *, batch: int = 1, graph: bool = False) -> Cost:
    """loop(gpu, step, token, place, n): n tokens of GPT-2; the mean of one. graph: step is recorded and replayed."""
    gpu, size = simulate("H100"), Size()
    with gpu, torch.no_grad():
        with torch.device(gpu.device):
            model, token = GPT2(size).to(torch.bfloat16), torch.zeros(batch, 1, dtype=torch.int64)
            place = torch.zeros(1, dtype=torch.int64)
        shape = (batch, size.heads, size.context, size.width // size.heads)
        caches = [Fixed(shape, gpu.device, torch.bfloat16) for _ in range(size.layers)]

        def step(token: Tensor, place: Tensor) -> Tensor:
            return next_logits(model, token, place, caches, size.context)

        run: Callable[[Tensor, Tensor], Tensor] = step
        step(token, place)
        if graph:
            recorded = gpu.CUDAGraph()
            with gpu.graph(recorded):
                out = step(token, place)

            def replay(new: Tensor, at: Tensor) -> Tensor:
                token.copy_(new)
                place.copy_(at)
                recorded.replay()
                return out

            run = replay

        loop(gpu, run, token.clone(), 0, 2)  # what is used for the first time takes longer
        gpu.synchronize()
        kernels, launches, syncs, began = len(gpu.kernels), gpu.launches, gpu.syncs, gpu.clock()
        loop(gpu, run, token.clone(), 0, tokens)
        launches, syncs = gpu.launches - launches, gpu.syncs - syncs
        gpu.synchronize()
        ran, seconds = gpu.kernels[kernels:], gpu.clock() - began
    busy, moved = sum(k.duration_s for k in ran), sum(k.bytes for k in ran)
    return Cost(
        seconds / tokens, busy / tokens, round(launches / tokens), round(syncs / tokens), moved // tokens, 0
    )


def asking(costs: Mapping[str, Cost]) -> tuple[dict[str, str], dict[str, float], float]:
    """In the words of the question; what asking takes a token, in seconds; how many times as fast a graph makes a loop."""
    ways = ("one by one", "one graph")
    wait_s = {how: costs[f"asks, {how}"].seconds - costs[f"stays, {how}"].seconds for how in ways}
    gain = costs["stays, one by one"].seconds / costs["stays, one graph"].seconds
    said = {f"asking, {how}": f"{nearest(1e3 * s, (0.05, 0.5, 5)):g} ms" for how, s in wait_s.items()}
    return said | {"a graph: times as fast": f"{nearest(gain, (1.1, 2.5, 10)):g} ×"}, wait_s, gain


def loops(costs: Mapping[str, Cost]) -> Table:
    """A row a loop, a token each."""
    rows = [
        (name, f"{c.launches}", f"{c.syncs}", _ms(c.busy_s), _ms(c.seconds), f"{1 / c.seconds:,.0f}")
        for name, c in costs.items()
    ]
    columns = ["loop", "launches", "waits", "kernels", "time", "tokens a second"]
    return table(
        rows,
        columns,
        evidence=ON_H100,
        caption="a token of GPT-2, one sequence, static cache of 1,024 places",
    )


# --- 4 · batches -----------------------------------------------------------------------------------------------------


def batches(runs: Mapping[str, Run], step_s: Mapping[str, float]) -> Table:
    """A row a policy: steps, how full the slots are, and what that is on the card."""
    rows = [
        (name, f"{run.slots}", f"{run.steps:,}", f"{run.used:.0%}", f"{run.mean_end:,.0f}", _ms(step_s[name]), f"{run.tokens / (run.steps * step_s[name]):,.0f}")
        for name, run in runs.items()
    ]  # fmt: skip
    columns = [
        "batching",
        "slots",
        "steps",
        "slots' steps used",
        "mean end, step",
        "a step",
        "tokens a second",
    ]
    caption = "GPT-2, static cache, one graph a step; prefill is left out"
    return table(rows, columns, evidence=f"arithmetic · {ON_H100}", caption=caption)


# --- further ---------------------------------------------------------------------------------------------------------


def about(share: float, choices: Sequence[float]) -> str:
    """The nearest of some shares, in words."""
    return f"about {100 * nearest(share, choices):.0f} %"


def rooms(used: int, reserved: Mapping[str, int], steps: int) -> Table:
    """A row for each way to hand out a cache: what a sequence of GPT-2 holds at a step, on average, and what of it is used."""
    rows = [
        (name, f"{places / steps:,.0f}", size_text(on_card.cache_bytes("GPT-2", round(places / steps))), f"{used / places:.1%}")
        for name, places in {**reserved, "(places with a token)": used}.items()
    ]  # fmt: skip
    columns = ["cache", "places a sequence", "bytes, GPT-2 in bf16", "hold a token"]
    return table(rows, columns, evidence="arithmetic", caption="on average over all steps of 64 sequences")


def fewer_bits(published: Mapping[str, float]) -> Table:
    """The 7B model on an A100 by bits of a weight: the least time that reading takes, and what others measured there."""
    peak, numbers = device("A100").memory_bytes_per_s, on_card.weights("7B") / 2
    rows = []
    for name, bits in (
        ("bf16", 16.0),
        ("int8, a scale a row", 8.0),
        ("int4, a scale and a zero for each 32", 5.0),
    ):
        least = numbers * bits / 8 / peak
        rows.append(
            (
                name,
                f"{numbers * bits / 8e9:.1f} GB",
                _ms(least),
                f"{1 / least:,.0f}",
                f"{published[name]:.1f}",
                f"{published[name] * least:.0%}",
            )
        )
    columns = [
        "weights",
        "bytes",
        "reading them once",
        "tokens a second at most",
        "measured by gpt-fast",
        "of the most",
    ]
    caption = "measured: Llama-2 7B on an A100, Team PyTorch, November 2023"
    return table(rows, columns, evidence="arithmetic · published (A100, Team PyTorch)", caption=caption)


class Kept(nn.Module):
    """A static cache whose memory is the module's own: an exported graph takes it along."""

    keys: Tensor
    values: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))

    def add(self, places: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.keys.index_copy_(2, places, k)
        self.values.index_copy_(2, places, v)
        return self.keys, self.values


class Step(nn.Module):
    """One decoding step of a small GPT-2: forward(tokens [1, 1], places [1]) → logits [1, words]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = GPT2(Size(width=32, layers=1, heads=2, vocabulary=50, context=16)).eval()
        self.caches = nn.ModuleList([Kept(1, 2, 16, 16)])

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        return next_logits(self.model, tokens, places, list(self.caches), 16)


def exported(step: Step, program: Any) -> Table:
    """What is in the exported program, and what it refuses."""
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    writes = [node for node in calls if "_.default" in str(node.target)]
    run, tokens, place = program.module(), torch.tensor([[3]]), torch.tensor([0])
    with torch.no_grad():
        same = torch.equal(run(tokens, place), step(tokens, place))
        try:
            run(torch.tensor([[3, 4]]), torch.tensor([0, 1]))
        except Exception as error:
            other = f"refused ({type(error).__name__})"
        else:
            other = "runs"
    rows = [
        ("operators in its one graph", f"{len(calls)}"),
        ("of them writes in place", f"{len(writes)}"),
        ("the same logits", "yes" if same else "no"),
        ("two tokens in place of one", other),
    ]
    return table(rows, ["the exported step", ""], evidence="live (CPU)")


def package_path() -> Path:
    """Where the compiled step is kept, beside Inductor's other files: compiled once for each PyTorch."""
    path = Path(private_torch.inductor_cache_dir()) / f"lesson_20_{torch.__version__}.pt2"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def compiled(compile_ahead: Callable[[Any, str], Any], program: Any) -> str:
    """Compile the program ahead of time, if that was not done before; one sentence that says so, or why it cannot be."""
    package = package_path()
    try:
        if not package.exists():
            with explained(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # PyTorch's own, of how it packs its trees
                compile_ahead(program, str(package))
    except CannotCompile as why:
        return f"not compiled here: {why}"
    return "compiled: the package is there"


def loaded(program: Any, step: Step) -> Table | str:
    """Load the package in another process, and compare; or one sentence where there is none."""
    package, tokens, place = package_path(), torch.tensor([[3]]), 0
    if not package.exists():
        return "there is no package: the cell before says why"
    said = _without_source(package, tokens, place)
    if isinstance(said, str):
        return said
    with torch.no_grad():
        logits = step(tokens, torch.tensor([place]))
        run, at = private_torch.aoti_load_package(str(package)), torch.tensor([place])
        before, after = count(step, tokens, at).operators, count(run, tokens, at).operators
    mine = [round(float(x), 3) for x in logits.flatten()[:3]]
    rows = [
        ("the process has the model's source", said["source"]),
        ("the same logits, to 3 digits", "yes" if said["logits"] == str(mine) else "no"),
        ("operators dispatched by the model", f"{before}"),
        ("operators dispatched by the package", f"{after}"),
        ("the package", f"≈ {size_text(package.stat().st_size)}"),
        ("of it weights and cache", size_text(sum(t.nbytes for t in program.state_dict.values()))),
    ]
    return table(rows, ["the package", ""], evidence="live (CPU)")


def _without_source(package: Path, tokens: Tensor, place: int) -> dict[str, str] | str:
    """What a process says that has nothing but the package: its logits' first numbers, and whether it has our modules.

    A sentence where it cannot run the package.
    """
    program = (
        "import sys, torch\n"
        f"run = torch._inductor.aoti_load_package({str(package)!r})\n"
        f"logits = run(torch.tensor({tokens.tolist()!r}), torch.tensor([{place}]))\n"
        "print([round(float(x), 3) for x in logits.flatten()[:3]])\n"
        "print('yes' if any(name.startswith('helpers') for name in sys.modules) else 'no')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return f"a process that has nothing but the package could not run it (it ended with {done.returncode}): {last}"
    logits, source = done.stdout.split("\n")[:2]
    return {"logits": logits, "source": source}


# --- the running example ---------------------------------------------------------------------------------------------


def without_cache(model: nn.Module, n: int) -> list[int]:
    """n bytes after a first one, all of the text through the model for each."""
    text = torch.tensor([[84]])
    with torch.no_grad():
        for _ in range(n):
            text = torch.cat([text, model(text)[:, -1].argmax(-1, keepdim=True)], dim=1)
    return [int(token) for token in text[0, 1:].tolist()]


def written(seen: Mapping[str, Counts]) -> Table:
    """A row a way to write."""
    rows = [
        (name, f"{c.operators:,}", f"{c.flops / 1e6:,.1f}", size_text(c.bytes_allocated), f"{c.syncs}")
        for name, c in seen.items()
    ]
    columns = ["32 bytes of the running example", "operators", "million FLOPs", "new tensors", "waits"]
    return table(rows, columns, evidence="live (CPU)")


# --- what was asked --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Riddle:
    """Of the 7B model's token: operations, seconds of them alone, and what it takes, beside GPT-2's token."""

    operations: float
    least_s: float
    too_long: float
    rate: float
    smaller: float
    sooner: float


def riddle(costs: Mapping[tuple[str, int], Cost]) -> Riddle:
    operations = float(on_card.weights("7B"))  # two a weight, and bf16 has two bytes
    least, token = operations / device("H100").peak_flops["fp16"], costs["7B", 1].seconds
    return Riddle(
        operations,
        least,
        token / least,
        1 / token,
        on_card.weights("7B") / on_card.weights("GPT-2"),
        token / costs["GPT-2", 1].seconds,
    )


def limits(costs: Mapping[tuple[str, int], Cost]) -> dict[str, Any]:
    """Tokens a second of 64 at once, and what limits one token, in the questions' words."""

    def limit(name: str) -> str:
        if reading_s(name) > 0.5 * costs[name, 1].seconds:
            return "bytes of the weights"
        same = costs[name, 64].seconds < 1.3 * costs[name, 1].seconds
        return "the least time of each kernel" if same else "arithmetic"

    rate = nearest(64 / costs["7B", 64].seconds, (150, 600, 2500, 9000))
    return {"7B, 64 at once: tokens a second": rate} | {
        f"{name}, one token": limit(name) for name in ("7B", "GPT-2")
    }


def gained(rates: Mapping[str, float]) -> dict[str, Any]:
    """How many steps gained much, and all of them together, in the words of the question."""
    every = list(rates.values())[-1] / next(iter(rates.values()))
    return {
        "steps that gain 1.5 × or more": sum(gain >= 1.5 for gain in _gains(rates)),
        "all five": f"{nearest(every, (3, 10, 30)):g} ×",
    }


def _gains(rates: Mapping[str, float]) -> list[float]:
    """Each rate against the one before; 0 for the first."""
    values = list(rates.values())
    return [0.0, *(after / before for before, after in pairwise(values))]


def steps_up(rates: Mapping[str, float]) -> Table:
    rows = [
        (name, f"{rate:,.0f}", f"{gain:.2f} ×" if gain else "–")
        for (name, rate), gain in zip(rates.items(), _gains(rates), strict=True)
    ]
    columns = ["GPT-2, and on top of what stands above", "tokens a second", "this step"]
    return table(rows, columns, evidence=f"{ON_H100} · arithmetic")


def fastest(costs: Mapping[tuple[str, int], Cost], graphs: Mapping[str, int]) -> dict[str, Any]:
    """Whether a static cache gains with one sequence, which way is fastest with 64, and how many graphs a growing cache takes.

    A third: as the worst of the simulator's whole steps is off.
    """
    ways = list(dict.fromkeys(way for way, _ in costs))
    best = min(ways, key=lambda way: costs[way, 64].seconds)
    ratio = costs["no cache", 1].seconds / costs["static", 1].seconds
    one = "gains a third or more" if ratio > 4 / 3 else "gains less, or loses"
    return {
        "1 sequence: a static cache": one,
        "64 sequences": best,
        "six shapes: graphs": graphs["growing"],
    }


def who_asks(asking: Sequence[Any]) -> Table:
    """Of each question for a number, the operators around it, the outermost first."""
    rows = []
    for event in asking:
        names, parent = [event.name], event.cpu_parent
        while parent is not None:
            names.append(parent.name)
            parent = parent.cpu_parent
        rows.append((" → ".join(reversed(names)),))
    return table(rows, ["a number is asked for in"], evidence="live (CPU)")
