"""Lesson 11: what captures make of little programs, compilations call by call, pieces of a function, models, tables and figures."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import helpers.lessons.torch_compile.recorded  # noqa: F401 - its experiments are known by their names
from helpers import compiling, plots, recordings, simulate, trace
from helpers.compiling import Kernels, Report
from helpers.plots import Picture
from helpers.pytorch import private_torch
from helpers.simulator.stretch import stretch
from helpers.text.seconds import approx, format_seconds
from helpers.text.tables import Table, table
from helpers.text.terminal import quiet

LIVE = "live (CPU)"


class Text(str):
    """Shows as it is printed."""

    def __repr__(self) -> str:
        return str(self)


# --- 1 · what is captured -----------------------------------------------------------------------------------------


def second_call(capture: Callable[..., Any], fn: Callable[..., Any]) -> str:
    """Captured with three positive numbers, called with five negative ones: "right", "wrong" or "error"."""
    first, second = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, -3.0, -4.0, -5.0])
    try:
        with quiet(), compiling.watch():
            captured = capture(fn, first)
            captured(first)
            return "right" if torch.equal(captured(second), fn(second)) else "wrong"
    except Exception:
        return "error"


def captured(fn: Callable[..., Any]) -> tuple[str, str, str]:
    """What torch.compile(fn) gives, what it gives with fullgraph=True, and the first line of that one's error, if any."""
    outcomes, error = [], ""
    for fullgraph in (False, True):
        try:
            with quiet(), compiling.watch() as w:
                torch.compile(fn, backend="eager", fullgraph=fullgraph)(torch.tensor([1.0, 2.0, 3.0]))
            outcomes.append(f"{len(w.graphs)} graph{'s' if len(w.graphs) != 1 else ''}")
        except Exception as problem:
            outcomes.append("an error")
            error = f"{type(problem).__name__}: {str(problem).splitlines()[0]}"
    return outcomes[0], outcomes[1], error


#: name of a function → what captured() says of it
Captures = Mapping[str, tuple[str, str, str]]


def breaks_table(captures: Captures) -> Table:
    """Each function as plain torch.compile takes it, and with fullgraph=True."""
    rows = [(name, *outcome) for name, outcome in captures.items()]
    columns = ["", "torch.compile(f)", "with fullgraph=True", "the error's first line"]
    return table(rows, columns, evidence=LIVE)


def pieces(fn: Callable[..., Any], report: Report) -> Text:
    """A function's lines: which graph each went into, and which were left to Python; its guards above them."""
    lines = inspect.getsource(fn).rstrip().splitlines()
    above, numbered = fn.__code__.co_firstlineno - 1, re.compile(r"(?:line |:)(\d+)")
    broken = {int(m[1]) - above: b.reason for b in report.breaks if (m := numbered.search(b.where))}
    guards = [str(g).replace("torch.", "") for g in report.guards if g.about in ("x", "limit")]
    rows, graph, ended = [f"guards: {'; '.join(dict.fromkeys(guards))}", "", lines[0]], 0, True
    for i, line in enumerate(lines[1:], 2):
        if ended and i not in broken:
            graph += 1
            operators = ", ".join(o.replace("Tensor.", "") for o in report.graphs[graph - 1].operators)
        part = f"Python: {broken[i]}" if i in broken else f"graph {graph}" + f": {operators}" * ended
        rows.append(f"{line:{max(map(len, lines))}}  │ {part}")
        ended = i in broken
    return Text("\n".join(rows))


# --- 2 · what is assumed ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stream:
    """Compilations so far after each call, and the compiler's report."""

    sizes: tuple[int, ...]
    after: tuple[int, ...]
    report: Report


def stream(fn: Callable[..., Any], sizes: Sequence[int], dynamic: bool | None) -> Stream:
    """torch.compile(fn, dynamic=dynamic) on tensors of shape (n, 4), for each n."""
    graphs, after = [], []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    with compiling.watch(backend) as w:
        fast = torch.compile(fn, dynamic=dynamic)
        for n in sizes:
            fast(torch.ones(n, 4))
            after.append(len(graphs))
    return Stream(tuple(sizes), tuple(after), w)


def at_the_limit(fn: Callable[..., Any], **options: Any) -> tuple[str, str]:
    """("nothing", "a warning" or "an error", its first line) when a size comes after the last version that is kept."""
    messages, log = [], logging.getLogger("torch._dynamo.convert_frame")

    def hears(record: logging.LogRecord) -> bool:  # the last to hear it
        messages.append(("a warning", record.getMessage().splitlines()[0]))
        return False

    torch.compiler.reset()
    log.addFilter(hears)
    try:
        fast = torch.compile(fn, backend="eager", dynamic=False, **options)
        for n in range(2, 11):
            fast(torch.ones(n, 4))
    except Exception as problem:
        messages = [("an error", f"{type(problem).__name__}: {problem}")]
    finally:
        log.removeFilter(hears)
        torch.compiler.reset()
    return messages[0] if messages else ("nothing", "")


def compilations(streams: Mapping[str, Stream]) -> Picture:
    """Compilations so far against the call, a curve a setting."""
    sizes = next(iter(streams.values())).sizes
    picture = plots.curves(
        {"": {name: (range(len(calls.after)), calls.after) for name, calls in streams.items()}},
        evidence=LIVE,
        title="Compilations, call by call",
        xlabel="rows in each call",
        ylabel="compilations so far",
        ticks=dict(enumerate(map(str, sizes))),
    )
    for calls in streams.values():
        if calls.report.failures:  # the limit was reached: the first call whose size was not compiled before
            most = max(calls.after)
            last = calls.after.index(most)
            first = next(i for i in range(last + 1, len(sizes)) if sizes[i] not in sizes[: last + 1])
            picture.figure.axes[0].annotate(
                "from here new sizes\nrun as plain Python",
                (first, most), xytext=(0, -10), textcoords="offset points", ha="left", va="top",
            )  # fmt: skip
    return picture


def reasons(reports: Mapping[str, Report], most: int = 2) -> Table:
    """Of each: compilations, runs of compiled code, and why it was compiled again."""
    rows = []
    for name, w in reports.items():
        again = [r.reason for r in w.recompiles]
        why = "; ".join(again[:most]) + ("; …" if len(again) > most else "")
        gave_up = f"; then: {w.failures[0].failed}" if w.failures else ""
        rows.append((name, w.counts()["compilations"], w.runs or 0, why + gave_up))
    return table(
        rows,
        ["", "compilations", "calls served by compiled code", "compiled again because of"],
        evidence=LIVE,
    )


def twelve(fn: Callable[..., Any], calls: Sequence[tuple[Any, ...]], dynamic: bool | None = None) -> Report:
    """fn compiled and called with each arguments. The backend runs each graph as it is: no code is written."""
    with compiling.watch("eager") as w:
        fast = torch.compile(fn, dynamic=dynamic)
        for call in calls:
            fast(*call)
    return w


def rows_of_batches() -> list[Tensor]:
    """Rows (n · l, 4), reshaped from batches (n, l, 4) of twelve shapes, with ones among n and l."""
    shapes = [(2, 3), (4, 5), (1, 6), (3, 2), (5, 1), (1, 1), (2, 7), (6, 1), (3, 4), (1, 8), (5, 5), (2, 2)]
    return [torch.ones(*shape, 4).flatten(0, 1) for shape in shapes]


# --- 3 · the kernel -----------------------------------------------------------------------------------------------


def nests_table(written: Mapping[str, Kernels]) -> Table:
    """Loop nests, generated kernels, and what was left to libraries."""
    rows = [
        (name, k.loops, len(k.fused), ", ".join(n.replace("extern_kernels.", "") for n in k.extern))
        for name, k in written.items()
    ]
    columns = ["function", "loop nests", "generated kernels", "left to libraries"]
    return table(
        rows, columns, evidence=LIVE, caption="on the CPU several nests may sit in one kernel, a C++ function"
    )


def faster_at_most(dtype: torch.dtype) -> float:
    """A Transformer layer (that of 11/layer) on the simulated H100, forward and backward: all its kernels over products and attention alone."""
    with simulate("H100") as gpu:
        where: dict[str, Any] = {"device": gpu.device, "dtype": dtype}
        layer = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True, **where)
        h = torch.empty(8, 1024, 1024, **where)
        for _ in range(2):  # the first is warm-up
            spent = stretch(gpu, lambda: layer(h).sum().backward()).kernels
    products = [k for k in spent if "mm" in k.name or "attention" in k.name]
    return float(sum(k.duration_s for k in spent) / sum(k.duration_s for k in products))


@dataclass(frozen=True)
class Chain:
    """Six pointwise operators on the simulated H100, and one kernel that reads x and writes y: ratios, and the picture."""

    bytes: float
    time: float
    picture: Picture


def chain() -> Chain:
    operators = (torch.exp, torch.neg, torch.tanh, torch.sigmoid, torch.sin, torch.relu)
    gpu, moved, lasted = simulate("H100"), [], []
    with gpu:
        big = torch.empty(2**22, device=gpu.device)
        for op in operators:
            op(big)  # warm
        gpu.synchronize()
        start = gpu.clock()
        for ops in (operators, operators[-1:]):
            before, began, y = len(gpu.kernels), gpu.clock(), big
            for op in ops:
                y = op(y)
            gpu.synchronize()
            moved.append(sum(k.bytes for k in gpu.kernels[before:]))
            lasted.append(gpu.clock() - began)
    title = "A chain of six pointwise operators, and then one kernel"
    picture = plots.queue(trace.read(gpu), start, gpu.clock(), title=title)
    return Chain(moved[0] / moved[1], lasted[0] / lasted[1], picture)


# --- 4 · training, cost and modes ---------------------------------------------------------------------------------


def classifier() -> tuple[nn.Module, torch.optim.Optimizer, list[tuple[Tensor, Tensor]]]:
    """A small model, AdamW, and an epoch of 40 batches: 64 rows each, the last 20."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 10))
    g = torch.Generator().manual_seed(1)
    teacher, rows = torch.randn(32, 10, generator=g), [64] * 39 + [20]
    xs = [torch.randn(n, 32, generator=g) for n in rows]
    return model, torch.optim.AdamW(model.parameters(), lr=3e-3), [(x, (x @ teacher).argmax(1)) for x in xs]


def trained(runs: Mapping[str, Callable[[], Tensor]]) -> Table:
    """Each run gives its losses: how it ended, and what was compiled meanwhile."""
    rows = []
    for name, run in runs.items():
        with quiet(), compiling.watch() as w:
            losses = run()
        rows.append((name, w.counts()["compilations"], len(w.breaks), f"≈ {losses[29:39].mean().item():.4f}"))
    columns = ["", "compilations", "graph breaks", "loss"]
    return table(rows, columns, evidence=LIVE, caption="mean loss of batches 30 to 39")


def cost(fn: Callable[..., Any], x: Tensor) -> Table | Text:
    """What compiling takes and when it has paid, or why it cannot be measured here."""
    try:
        seconds = compiling.seconds(fn, x)
    except compiling.CannotCompile as problem:
        return Text(problem)
    return replace(seconds.table(), caption=seconds.payback())


def fusion() -> Table:
    """What torch.compile made of three functions on a GPU, live or recorded: kernels and time, eager and compiled."""
    run = recordings.show("11/fused")
    by: dict[str, dict[str, dict[str, Any]]] = {}
    for row in run.table or ():
        by.setdefault(row["what"], {})[row["way"]] = row
    rows = []
    for what, way in by.items():
        eager, fast = way["eager"], way["compiled"]
        rows.append(
            (
                what,
                f"{eager['kernels']} → {fast['kernels']}",
                f"{run.about}{eager['us']:.0f} → {fast['us']:.0f}",
                f"{run.about}{eager['us'] / fast['us']:.1f} ×",
                f"`{fast['first']}`",
            )
        )
    columns = ["eager → compiled", "kernels", "time, µs", "times as fast", "the compiled kernel"]
    return table(rows, columns, evidence=run.evidence)


#: how many times as fast as eager a way is: the prediction's choices
GAINS = ("less than 0.8 times", "0.8 to 1.2 times", "1.2 to 1.6 times", "more than 1.6 times")


@dataclass(frozen=True)
class Layer:
    """A Transformer layer on a recorded GPU, forward and backward: eager and compiled, each also as CUDA graphs."""

    evidence: str
    rows: list[dict[str, Any]]

    def ms(self, precision: str, tokens: int, way: str) -> float:
        us = {(row["precision"], row["tokens"], row["way"]): row["us"] for row in self.rows}
        return float(us[precision, tokens, way] / 1e3)

    def gain(self, precision: str, tokens: int, way: str) -> float:
        """How many times as fast as eager."""
        return self.ms(precision, tokens, "eager") / self.ms(precision, tokens, way)

    def fused(self, precision: str) -> float:
        """How many times as fast compiled kernels are as eager ones, each in CUDA graphs, with 8,192 tokens."""
        eager, compiled = (self.ms(precision, 8192, f"{how}, CUDA graph") for how in ("eager", "compiled"))
        return eager / compiled

    def answers(self, questions: Iterable[str]) -> dict[str, str]:
        """The lesson's prediction: question, "bfloat16, compiled", → its choice. With 8,192 tokens."""
        answers = {}
        for question in questions:
            precision, _, way = question.partition(", ")
            gain = self.gain(precision, 8192, way)
            answers[question] = GAINS[sum(gain >= edge for edge in (0.8, 1.2, 1.6))]
        return answers

    def bfloat16(self, tokens: int) -> dict[str, float]:
        """Milliseconds by way."""
        ways = (row["way"] for row in self.rows if (row["precision"], row["tokens"]) == ("bfloat16", tokens))
        return {way: self.ms("bfloat16", tokens, way) for way in ways}

    def table(self) -> Table:
        rows, about = [], approx(self.evidence)
        for row in self.rows:
            gain = self.gain(row["precision"], row["tokens"], row["way"])
            rows.append(
                (
                    f"{row['precision']}, {row['tokens']:,} tokens",
                    row["way"],
                    about + format_seconds(row["us"] / 1e6),
                    f"{about}{gain:.2f} ×",
                    row["kernels"],
                )
            )
        columns = ["layer of width 1,024", "way", "time", "times as fast", "kernels"]
        return table(rows, columns, evidence=self.evidence, caption="forward and backward")


def recorded_layer() -> Layer:
    recording = recordings.show("11/layer", prefer="recorded")
    return Layer(recording.evidence, recording.table or [])


def modes() -> Table:
    """The options that each mode of torch.compile sets."""
    rows = []
    for mode, options in private_torch.list_mode_options().items():
        first = [f"{name}={value}" for name, value in list(options.items())[:3]]
        rows.append((mode, ", ".join(first + ["…"] * (len(options) > 3)) or "none"))
    return table(rows, ["mode", "options it sets"], evidence=LIVE)


# --- two models ---------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, d: int = 16) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))  # type: ignore[no-any-return]


class Denoiser(nn.Module):
    """Two blocks: a stand-in for a diffusion model's network."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x + t)
        return x


class Pipeline:
    """Calls its network in a loop; formats, logs and collects besides."""

    def __init__(self) -> None:
        self.net: Any = Denoiser().eval()
        self.logs: list[str] = []

    def __call__(self, x: Tensor, steps: int) -> Any:
        for step in range(steps):
            x = x - 0.1 * self.net(x, torch.tensor(step / steps))
            self.logs.append(f"step {step}: {x.norm().item():.3f}")
        return x.numpy().round(2)


WAYS = (
    "torch.compile(pipe)",
    "torch.compile(pipe, fullgraph=True)",
    "pipe.net = torch.compile(pipe.net)",
    "block.compile() for each block",
)


def compiled_pipe(way: str, calls: Sequence[int]) -> tuple[Report, int]:
    """A Pipeline compiled in one of WAYS and called with each number of steps: the report, and runs of compiled graphs.

    As one graph torch 2.11 cannot capture it: the report is then empty.
    """
    pipe, ran = Pipeline(), []

    def backend(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            ran.append(graph)
            return graph.forward(*args)

        return run

    with torch.no_grad(), compiling.watch() as w:
        call: Any = pipe
        if way in WAYS[:2]:
            call = torch.compile(pipe, backend=backend, fullgraph=way == WAYS[1])
        elif way == WAYS[2]:
            pipe.net = torch.compile(pipe.net, backend=backend, fullgraph=True)
        else:
            for block in pipe.net.blocks:
                block.compile(backend=backend, fullgraph=True)
        with contextlib.suppress(*((Exception,) if way == WAYS[1] else ())):
            for steps in calls:
                call(torch.ones(2, 16), steps)
    return w, len(ran)


def pipe_table() -> Table:
    """What each way compiles, for 4 steps, for 8, and in three calls."""
    rows = []
    for way in WAYS:
        (four, ran), (eight, _), (thrice, _) = (compiled_pipe(way, calls) for calls in ([4], [8], [4, 4, 4]))
        rows.append((f"`{way}`", four.operators, eight.operators, len(four.breaks), ran, len(thrice.graphs)))
    columns = ["", "operators in graphs", "for 8 steps", "breaks", "runs of a graph", "graphs after 3 calls"]
    return table(rows, columns, evidence=LIVE, caption="two blocks; four steps where nothing else is said")


def real_models() -> Table | None:
    """A BERT encoder and a diffusion UNet, small, with random weights; None, and a line, without their packages."""
    try:
        with quiet():
            diffusers, transformers = map(importlib.import_module, ("diffusers", "transformers"))
    except ImportError:
        print("transformers and diffusers are not installed here: `make lab EXTRAS=models` installs them.")
        return None
    with quiet():
        small = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
        bert = transformers.BertModel(transformers.BertConfig(vocab_size=50, **small)).eval()
        unet = diffusers.UNet2DModel(
            sample_size=8, layers_per_block=1, norm_num_groups=8, block_out_channels=(8,), mid_block_type=None,
            down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",), add_attention=False,
        ).eval()  # fmt: skip
    image = torch.rand(1, 3, 8, 8)
    models: list[tuple[str, Any, bool | None, list[tuple[Any, ...]]]] = [
        (
            "BERT, dynamic=True, lengths 8, 12, 20",
            bert,
            True,
            [(torch.ones(2, n, dtype=torch.int64),) for n in (8, 12, 20)],
        ),
        ("UNet, time step as an int", unet, None, [(image, t) for t in (9, 6, 3)]),
        ("UNet, time step as a tensor", unet, None, [(image, torch.tensor(t)) for t in (9, 6, 3)]),
    ]
    rows = []
    for name, model, dynamic, calls in models:
        with torch.no_grad(), compiling.watch("eager") as w:
            fast = torch.compile(model, dynamic=dynamic)
            for call in calls:
                fast(*call)
        numbers, why = w.counts(), w.recompiles[0].reason if w.recompiles else ""
        rows.append((name, numbers["compilations"], numbers["operators"], numbers["graph_breaks"], why))
    columns = ["model", "graphs", "operators", "breaks", "compiled again because of"]
    return table(rows, columns, evidence=LIVE)


# --- what a backend is given --------------------------------------------------------------------------------------


def lines_of(code: str) -> str:
    """The statements of a graph's code."""
    kept = [line.partition(";")[0].strip() for line in code.splitlines() if "=" in line or "return" in line]
    return "\n".join(f"    {line}" for line in kept)


# --- a block, or the whole model -------------------------------------------------------------------------------------


class Stack(nn.Module):
    """Blocks of one class, one after the other."""

    def __init__(self, blocks: int, width: int = 16) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def sizes_into(sizes: list[int]) -> Callable[..., Any]:
    """A backend that runs each graph as it is, and notes its number of operators."""

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        sizes.append(len([node for node in graph.graph.nodes if node.op == "call_function"]))
        return graph

    return backend
