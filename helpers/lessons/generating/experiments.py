"""What lesson 20 shows: a step's price, three kinds of cache, loops with and without waits, batches, and fewer bits."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import helpers.lessons.generating.recorded  # noqa: F401 - its experiments are known by their names
from helpers import count, recordings
from helpers.compiling.torches import CannotCompile, explained
from helpers.lesson.predictions import about as about
from helpers.lesson.predictions import nearest
from helpers.lessons.generating import on_card, stepping
from helpers.lessons.generating.batching import Run
from helpers.lessons.generating.decoding import Fixed, next_logits
from helpers.lessons.generating.on_card import Cost
from helpers.models import GPT2, Size
from helpers.pytorch import private_torch
from helpers.simulator import simulate
from helpers.simulator.devices import device, steps_off_by
from helpers.simulator.stretch import stretch
from helpers.text.sizes import size_text
from helpers.text.tables import Table, table

ON_H100 = "simulated (H100)"
MS = 1e3
#: texts that the learner's own loop writes together
BATCH = 8
#: tokens a second of Llama-2 7B on an A100, by gpt-fast (Team PyTorch, 2023): weights → rate
PUBLISHED = {"bf16": 107.0, "int8, a scale a row": 157.4, "int4, a scale and a zero for each 32": 202.1}


def _ms(seconds: float) -> str:
    return f"{MS * seconds:.2f} ms"


# --- 1 · one token ---------------------------------------------------------------------------------------------------


def reading_s(name: str, card: str = "H100") -> float:
    """Seconds in which the card's memory gives all weights once, at its peak."""
    return on_card.weights(name) / device(card).memory_bytes_per_s


def balance(card: str = "H100") -> float:
    """How many tokens share one reading of bf16 weights until the arithmetic takes as long: two operations for two bytes."""
    return device(card).peak_flops["fp16"] / device(card).memory_bytes_per_s


def _recorded(name: str) -> tuple[dict[tuple[str, int, int], dict[str, Any]], str]:
    """(way, sequences, tokens at once) → a row of the recording, and its evidence."""
    recording = recordings.show(name, prefer="recorded")
    rows = {(row["way"], row["batch"], row.get("tokens", 1)): row for row in recording.table or ()}
    return rows, recording.evidence


def _seen(us: float) -> str:
    return f"≈ {_ms(us / 1e6)}"


def least_us(card: str = "H100") -> float:
    """Microseconds that the simulated card's kernels take at least."""
    return 1e6 * device(card).assumptions.kernel_floor_s


def one_token(costs: Mapping[tuple[str, int], Cost], eager: Mapping[str, Cost]) -> Table:
    """A row a model: what reading its weights takes, its kernels, and what a step takes, simulated and recorded."""
    rows, evidence = list[tuple[str, ...]](), ""
    for name, recording in (("GPT-2", "20/caches"), ("7B", "20/large")):
        real, evidence = _recorded(recording)
        step, at_once = (_ms(costs[name, n].seconds) for n in (1, 64))
        seen = _seen(real["static", 1, 1]["graph_us"])
        rows.append((name, _ms(reading_s(name)), f"{eager[name].launches}", step, seen, at_once))
    columns = ["model", "reading the weights once", "kernels", "a step", "recorded", "64 tokens at once"]
    caption = f"whole simulated steps are off by up to {steps_off_by():.0%}"
    return table(rows, columns, evidence=f"{ON_H100} · {evidence}", caption=caption)


def by_sequences(costs: Mapping[int, Cost]) -> Table:
    """A row a number of sequences of the 7B model: bytes of their caches, a step, tokens a second."""
    real, evidence = _recorded("20/large")
    rows = [
        (f"{n}", size_text(on_card.cache_bytes("7B", on_card.CONTEXT, n)), _ms(cost.seconds), _seen(real["static", n, 1]["graph_us"]), f"{n / cost.seconds:,.0f}")
        for n, cost in costs.items()
    ]  # fmt: skip
    columns = ["sequences", "their caches", "a step", "recorded", "tokens a second"]
    return table(rows, columns, evidence=f"{ON_H100} · {evidence}")


def recorded_launches() -> tuple[float, float]:
    """Microseconds that one `x + y` took beside the recorded rows: the least and the most."""
    each = [row["launch_us"] for row in _recorded("20/caches")[0].values()]
    return min(each), max(each)


def recorded_by_cache() -> dict[tuple[str, int], float]:
    """(eager "us" or "graph_us", sequences) → how many times as fast the recorded static step was as the eager one without a cache."""
    real, _ = _recorded("20/caches")
    return {
        (key, n): real["no cache", n, 1]["us"] / real["static", n, 1][key]
        for key in ("us", "graph_us")
        for n in (1, 64)
    }


def recorded_large() -> dict[str, float]:
    """Of the 7B model's recorded steps, one sequence: ms without a cache, and with one eager and as a graph; how much longer 64
    tokens take than one, and how many times as long its graph takes as GPT-2's.
    """
    real, _ = _recorded("20/large")
    none, one, many = real["no cache", 1, 1], real["static", 1, 1], real["static", 1, 64]
    return {
        "none_ms": none["us"] / 1e3,
        "static_ms": one["us"] / 1e3,
        "graph_ms": one["graph_us"] / 1e3,
        "at_once": many["graph_us"] / one["graph_us"] - 1,
        "sooner": one["graph_us"] / 1e6 / recorded_graph_s(),
    }


def recorded_graph_s() -> float:
    """Seconds of GPT-2's recorded graph, one sequence."""
    return float(_recorded("20/caches")[0]["static", 1, 1]["graph_us"]) / 1e6


def recorded_asking() -> tuple[dict[tuple[str, int], float], str]:
    """("eager" or "graph", the token is read after so many steps; 0: never) → recorded microseconds a token; and the evidence."""
    recording = recordings.show("20/asking", prefer="recorded")
    rows = {(row["steps"], row["read_every"]): float(row["us"]) for row in recording.table or ()}
    return rows, recording.evidence


def recorded_gains() -> dict[tuple[str, int], float]:
    """(model, sequences) → how many times as fast a graph made a step on the recorded card."""
    small, large = _recorded("20/caches")[0], _recorded("20/large")[0]
    rows = {("GPT-2", n): small["static", n, 1] for n in (1, 64)} | {("7B", 1): large["static", 1, 1]}
    return {where: row["us"] / row["graph_us"] for where, row in rows.items()}


# --- 2 · what to keep ------------------------------------------------------------------------------------------------


def ways(costs: Mapping[tuple[str, int], Cost], graph: Mapping[int, Cost]) -> Table:
    """A row a way: launches, and for one sequence and for 64 the time of a step, simulated and recorded; and bytes."""
    real, evidence = _recorded("20/caches")
    shown = {
        way: (costs[way, 1], costs[way, 64], way, "us") for way in dict.fromkeys(way for way, _ in costs)
    }
    shown["static, as a graph"] = graph[1], graph[64], "static", "graph_us"
    rows = []
    for name, (one, many, way, key) in shown.items():
        seen_one, seen_many = (_seen(real[way, n, 1][key]) for n in (1, 64))
        moved = size_text(many.bytes)
        rows.append(
            (name, f"{one.launches}", _ms(one.seconds), seen_one, _ms(many.seconds), seen_many, moved)
        )
    columns = ["cache", "launches", "1 sequence", "1, recorded", "64 sequences", "64, recorded", "64: bytes"]
    return table(rows, columns, evidence=f"{ON_H100} · {evidence}")


def gains_of_a_cache(costs: Mapping[tuple[str, int], Cost]) -> dict[str, str]:
    """How many times as fast a static cache makes an eager step, in the words of the question."""
    gains = {n: costs["no cache", n].seconds / costs["static", n].seconds for n in (1, 64)}
    said = {n: f"{nearest(gain, (0.8, 3, 16, 100)):g} ×" for n, gain in gains.items()}
    return {"1 sequence": said[1], "64 sequences": said[64]}


def gain_of_the_mask() -> float:
    """By what share a graph's step of GPT-2 takes longer, if each layer turns the mask into numbers."""
    each, once = (on_card.cost(way=way, graph=True).seconds for way in ("static", on_card.ONCE))
    return each / once - 1


# --- 3 · loops -------------------------------------------------------------------------------------------------------


def loop_cost(
    gpu: Any,
    loop: Callable[..., Any],
    step: Callable[[], Tensor],
    token: Tensor,
    place: Tensor,
) -> Cost:
    """loop(step, token, place, n) on the simulated card, from place 0: the mean of eight tokens."""
    for n in (2, 8):  # what is used for the first time takes longer
        token.zero_(), place.zero_()
        ran = stretch(gpu, partial(loop, step, token, place, n))
    return Cost(
        ran.seconds / n, ran.busy_s / n, round(ran.launches / n), round(ran.syncs / n), ran.bytes // n, 0
    )


def asking(costs: Mapping[str, Cost]) -> tuple[dict[str, str], dict[str, float], float]:
    """In the words of the question; what asking takes a token, in seconds; how many times as fast a graph makes a loop."""
    wait_s = {
        how: costs[f"asks, {how}"].seconds - costs[f"stays, {how}"].seconds for how in ("eager", "graph")
    }
    gain = costs["stays, eager"].seconds / costs["stays, graph"].seconds
    said = {f"asking, {how}": f"{nearest(1e3 * s, (0.05, 0.5, 5)):g} ms" for how, s in wait_s.items()}
    return said, wait_s, gain


def loops(costs: Mapping[str, Cost]) -> Table:
    """A row a loop, a token each, simulated and recorded."""
    real, evidence = recorded_asking()
    seen = {
        f"{loop}, {how}": real[how, n]
        for how in ("eager", "graph")
        for loop, n in (("asks", 1), ("stays", 0))
    }
    rows = [
        (name, f"{c.launches}", f"{c.syncs}", _ms(c.busy_s), _ms(c.seconds), _seen(seen[name]), f"{1 / c.seconds:,.0f}")
        for name, c in costs.items()
    ]  # fmt: skip
    columns = ["loop", "launches a token", "waits", "kernels", "a token", "recorded", "tokens a second"]
    caption = (
        f"simulated graphs: whole steps are off by up to {steps_off_by():.0%}; recorded: asks reads the token, and does not send it back; each "
        "layer turns its mask into numbers"
    )
    return table(rows, columns, evidence=f"{ON_H100} · {evidence}", caption=caption)


def together(StaticCache: Callable[..., Any], generate: Callable[..., Any]) -> Table | str:
    """The learner's two answers around GPT-2 on the simulated H100: what 16 tokens of eight texts cost; or what is missing."""
    try:
        gpu, ran = _generating(StaticCache, generate)
    except NotImplementedError:
        return "write exercises 20.1 and 20.2 first, and run this cell again"
    except Exception as error:  # the learner's
        return f"not yet: {type(error).__name__}: {error}"
    if gpu.faults:
        return f"not yet: {gpu.faults[0]}"
    a_step = _ms(ran.seconds / ran.result.shape[1])
    rows = [(f"{ran.result.numel()}", f"{ran.syncs}", f"{ran.launches}", a_step)]
    return table(rows, ["tokens", "waits", "launches", "a step"], evidence=ON_H100)


def _generating(StaticCache: Callable[..., Any], generate: Callable[..., Any]) -> tuple[Any, Any]:
    """The simulated H100, with values so that the loop goes as it would, and the stretch in which eight texts get 16 tokens."""
    size, gpu = Size(), simulate("H100", values=True, strict=False)
    shape = (size.layers, BATCH, size.heads, size.context, size.width // size.heads)
    with gpu, torch.no_grad():
        with torch.device(gpu.device):
            model = GPT2(size).to(torch.bfloat16)
            token = torch.zeros(BATCH, 1, dtype=torch.int64)
            place, first = torch.zeros(1, dtype=torch.int64), token.clone()
        cache = StaticCache(*shape, dtype=torch.bfloat16, device=gpu.device)

        def once() -> Tensor:
            return stepping.next_logits(model, token, place, cache, cache.mask(place))

        once()
        graph = gpu.CUDAGraph()
        with gpu.graph(graph):
            logits = once()

        def step(tokens: Tensor, places: Tensor) -> Tensor:
            token.copy_(tokens), place.copy_(places)
            graph.replay()
            return logits

        generate(step, first, 5, 1, size.vocabulary, 8)  # what is used for the first time takes longer
        return gpu, stretch(gpu, lambda: generate(step, first, 5, 16, size.vocabulary, 8))


# --- 4 · batches -----------------------------------------------------------------------------------------------------


def batches(runs: Mapping[str, Run], step_s: float) -> Table:
    """A row a policy: steps, how full the slots are, and what that is on the card."""
    rows = [
        (name, f"{run.steps:,}", f"{run.used:.0%}", f"{run.mean_end:,.0f}", f"{MS * run.mean_end * step_s:,.0f}")
        for name, run in runs.items()
    ]  # fmt: skip
    columns = ["batching", "steps", "of all tokens, made", "mean end, steps", "mean end, ms"]
    caption = f"8 slots, GPT-2, one graph of {_ms(step_s)} a step; prefill is left out"
    return table(rows, columns, evidence=f"arithmetic · {ON_H100}", caption=caption)


# --- further ---------------------------------------------------------------------------------------------------------


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
    """A static cache whose memory is the module's own: an exported program takes it along."""

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
        ("operators in the program", f"{len(calls)}"),
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
        ("the first three logits, to 3 decimals: the same", "yes" if said["logits"] == str(mine) else "no"),
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


def with_cache(model: nn.Module, n: int) -> list[int]:
    """The same through a static cache: the blocks stay as they are, and attention gets something to remember."""
    own: Any = deepcopy(model)
    place, token, made = torch.zeros(1, dtype=torch.int64), torch.tensor([[84]]), list[Tensor]()

    def remembering(cache: Fixed) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        return lambda q, k, v: F.scaled_dot_product_attention(
            q, *cache.add(place, k, v), attn_mask=torch.arange(64) <= place[:, None]
        )

    for block in own.blocks:
        block.attention = remembering(Fixed((1, 4, 64, 32)))
    with torch.no_grad():
        for _ in range(n):
            x = own.tokens(token) + own.places(place)
            for block in own.blocks:
                x = block(x)
            token = own.head(own.norm(x))[:, -1].argmax(-1, keepdim=True)
            made.append(token)
            place += 1  # in place: every layer reads it
    return [int(token) for token in torch.cat(made, 1)[0].tolist()]


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
        return "kernels that are too small" if same else "arithmetic"

    rate = nearest(64 / costs["7B", 64].seconds, (150, 600, 2500, 9000))
    return {"7B, 64 at once: tokens a second": rate} | {
        f"{name}, a step": limit(name) for name in ("7B", "GPT-2")
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
    columns = ["GPT-2, and on top of what stands above", "tokens a second", "this change"]
    return table(rows, columns, evidence=f"{ON_H100} · arithmetic")


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
