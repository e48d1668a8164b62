"""Lesson 21: launches watched or kept, ways to a softmax by their bytes, tiles by their loads, and the pictures of these."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from matplotlib.patches import Rectangle
from torch import Tensor

import helpers.lessons.a_kernel_of_your_own.recorded  # noqa: F401 - its experiments are known by their names
import helpers.lessons.attention.recorded  # noqa: F401
from helpers import kernels, recordings, simulate
from helpers.kernels import Launch, Moved, Watch
from helpers.lesson.predictions import about
from helpers.plots import style
from helpers.plots.picture import Picture, drawn
from helpers.simulator.devices import device
from helpers.simulator.stretch import stretch
from helpers.text.seconds import format_seconds
from helpers.text.tables import Table, table
from helpers.text.terminal import quiet

T = TypeVar("T")
#: where kernels run, or what is shown in their place
LIVE = "live (CPU)" if kernels.available() else "recorded (CPU with Triton 3.9.0, 2026-11)"
#: FLOPs in float16 for each byte that a product needs, or an H100 waits for its memory
PEAK_PER_BYTE = device("H100").peak_flops["fp16"] / device("H100").memory_bytes_per_s
_KEPT = Path(__file__).with_name("kept.json")


# --- launches -----------------------------------------------------------------------------------------------------


@dataclass
class Ran:
    """What a run of kernels did. error: its type, where it raised; same: whether it gave what was wanted."""

    seen: Watch
    error: str = ""
    same: bool = True


def ran(name: str, run: Callable[[], Tensor], want: Tensor) -> Ran:
    """Run it and watch its kernels. Where Triton is not installed, what was kept of the same run under this name."""
    if not kernels.available():
        return _read(name)
    error, same = "", False
    with kernels.watch() as seen:
        try:
            same = bool(torch.allclose(run(), want, rtol=1e-4, atol=1e-5))
        except Exception as problem:
            error = type(problem).__name__
    did = Ran(seen, error, same)
    plain = Watch([replace(launch, program=None) for launch in seen.launches])
    _keep(name, asdict(replace(did, seen=plain)))
    return did


def _read(name: str) -> Ran:
    kept = json.loads(_KEPT.read_text(encoding="utf-8"))[name]
    launches = []
    for one in kept["seen"]["launches"]:
        loads, stores = (
            {arg: Moved(**moved) for arg, moved in one[way].items()} for way in ("loads", "stores")
        )
        launches.append(Launch(one["kernel"], tuple(one["grid"]), loads, stores, one["lanes"]))
    return Ran(Watch(launches), kept["error"], kept["same"])


def masked(seen: Watch) -> int:
    """Lanes of the first argument loaded that a mask switched off."""
    (launch, *_) = seen.launches
    moved = next(iter(launch.loads.values()))
    return moved.lanes - moved.elements


def launches(runs: Mapping[str, Ran]) -> Table:
    """A row for each argument of each launch."""
    rows = []
    for name, did in runs.items():
        for launch in did.seen.launches:
            for argument in dict.fromkeys([*launch.loads, *launch.stores]):
                loads, stores = launch.loads.get(argument, Moved()), launch.stores.get(argument, Moved())
                rows.append(
                    (name, f"{launch.programs:,}", argument, f"{loads.elements:,}", f"{stores.elements:,}")
                )
    return table(
        rows, ["launch", "programs", "argument", "elements loaded", "elements stored"], evidence=LIVE
    )


@drawn
def lanes(n: int, block: int) -> Picture:
    """Which program has which elements of a vector: a row a program, a cell a lane; those behind n are masked."""
    programs = -(-n // block)
    title = f"{n} elements, {programs} programs of {block} lanes"
    note = "In a cell: the element. White: the mask switches the lane off, and it neither loads nor stores."
    fig, _ = style.figure(0.34 * programs + 0.1, evidence="arithmetic", title=title, note=note)
    ax = fig.add_subplot()
    for program in range(programs):
        for lane in range(block):
            element = program * block + lane
            colour = style.SKY if element < n else style.PAPER
            ax.add_patch(
                Rectangle(
                    (lane, program - 0.4), 0.94, 0.8, facecolor=colour, edgecolor=style.MUTED, linewidth=0.6
                )
            )
            ax.text(lane + 0.47, program, str(element), ha="center", va="center", fontsize=7)
    _bare(ax, block, programs)
    style.row_names(ax, [f"program {p}" for p in range(programs)])
    return Picture(fig, "arithmetic", f"{title}: the last {programs * block - n} lanes are masked")


def _bare(ax: Any, wide: float, rows: float) -> None:
    ax.set_xlim(-0.1, wide + 0.1)
    ax.set_ylim(rows - 0.5, -0.5)
    ax.grid(False)
    ax.set_xticks([])
    for side in ax.spines.values():
        side.set_visible(False)


# --- 2 · ways to a softmax ----------------------------------------------------------------------------------------


def by_operators(x: Tensor) -> Tensor:
    """Softmax as five operators."""
    top = x.amax(-1, keepdim=True)
    z = x - top
    powers = torch.exp(z)
    return powers / powers.sum(-1, keepdim=True)


@dataclass(frozen=True)
class Way:
    """kernels: launched; bytes: what they read and write of device memory, each number of their inputs and outputs once."""

    kernels: int
    bytes: float


def on_card(fn: Callable[..., Any], *inputs: Tensor) -> Way:
    """What a function's operators launch and move on a simulated H100, its inputs being there already."""
    gpu = simulate("H100")
    with gpu:
        there = [x.to(gpu.device) for x in inputs]
        run = stretch(gpu, lambda: fn(*there))
        return Way(len(run.kernels), float(run.bytes))


def with_yours(softmax: Callable[[Tensor], Tensor]) -> Table:
    """The ways to a softmax of rows of 1,024 numbers, and the learner's own kernel as it was counted."""
    x = torch.linspace(-3, 3, 64 * 1024).view(64, 1024)
    rows = {
        "five operators": on_card(by_operators, x),
        "F.softmax": on_card(lambda x: F.softmax(x, -1), x),
    }
    yours = ran("softmax", lambda: softmax(x), want=x.softmax(-1))
    if _right("softmax", yours):
        moved = yours.seen.loads + yours.seen.stores
        rows["yours, as counted"] = Way(len(yours.seen.launches), 4.0 * moved)
    return ways(rows, x.numel(), evidence=f"simulated (H100) · {LIVE}")


def _right(name: str, yours: Ran) -> bool:
    """Whether the learner's kernel gave what was wanted; printed, where it did not."""
    if not yours.same:
        why = yours.error or "its result is another"
        print(f"Your {name} is not in the table: {why}. Write it above, then run this cell again.")
    return yours.same


def ways(
    rows: Mapping[str, Way], elements: int, first: str = "softmax", evidence: str = "simulated (H100)"
) -> Table:
    """A row for each way: its kernels, and the bytes that they move against those of an x of so many float32 numbers."""
    lines = [(name, f"{way.kernels}", f"{way.bytes / (4 * elements):.2f}") for name, way in rows.items()]
    return table(lines, [first, "kernels", "moves, × x"], evidence=evidence)


def recorded_softmaxes(of: int = 0) -> Table:
    """The ways to a softmax on a recorded card, and their times. of: only with so many rows."""
    recording = recordings.show("21/softmax", prefer="recorded")
    rows = [
        (
            f"{row['rows']:,} × {row['columns']:,}",
            row["way"],
            row["kernels"],
            f"≈ {format_seconds(row['us'] / 1e6)}",
        )
        for row in recording.table or ()
        if row["rows"] == of or (not of and row["rows"] != 2048)
    ]
    columns = ["rows × columns", "softmax", "kernels", "time"]
    return table(rows, columns, evidence=recording.evidence, caption="float32, many calls in a row")


def recorded_slower(way: str = "five operators", than: str = "F.softmax", rows: int = 65_536) -> float:
    """How many times as long as another one recorded softmax took, over so many rows."""
    recording = recordings.show("21/softmax", prefer="recorded").table or []
    us = {row["way"]: row["us"] for row in recording if row["rows"] == rows}
    return float(us[way] / us[than])


# --- 3 and Further: what is left out -----------------------------------------------------------------------------


@drawn
def cache_rooms(filled: Sequence[int], places: int) -> Picture:
    """A cache with the same room for each text: a row a text, dark as far as it is filled."""
    title = f"{len(filled)} texts, each with room for {places} tokens"
    note = "Blue: filled places. Grey: empty ones."
    fig, _ = style.figure(0.26 * len(filled) + 0.1, evidence="arithmetic", title=title, note=note)
    ax = fig.add_subplot()
    rows = range(len(filled))
    ax.barh(rows, [places] * len(filled), color=style.FAINT, height=0.72)
    ax.barh(rows, filled, color=style.BLUE, height=0.72)
    for row, many in zip(rows, filled, strict=True):
        ax.text(many + 5, row, str(many), va="center", fontsize=style.SMALL)
    _bare(ax, places, len(filled))
    style.row_names(ax, [f"text {row}" for row in rows])
    return Picture(fig, "arithmetic", f"{title}: {', '.join(map(str, filled))} are filled")


def shares(reads: Mapping[str, Way], cache_bytes: int) -> dict[str, str]:
    """The bytes of each way against the cache's, to the nearest choice of the prediction."""
    return {name: about(way.bytes / cache_bytes, (0.1, 0.2, 0.4, 0.8, 1.0)) for name, way in reads.items()}


def scores(seen: Watch, texts: int, d: int) -> int:
    """Scores that a kernel computes of these texts: lanes of a key and a value of d numbers each, besides a query and a length."""
    return round((seen.lanes - texts * (1 + d)) / (2 * d))


def cache_reads(reads: Mapping[str, Way], computed: Mapping[str, int], cache_bytes: int) -> Table:
    """A row for each way to attention over a cache: kernels, bytes, these against the cache's, and scores computed."""
    rows = [
        (name, str(way.kernels), f"{way.bytes:,.0f}", f"{way.bytes / cache_bytes:.0%}", f"{computed[name]:,}")
        for name, way in reads.items()
    ]
    columns = ["attention", "kernels", "bytes moved", "of the cache's bytes", "scores computed"]
    caption = f"the cache has {cache_bytes:,} bytes; the query and the result are moved too; three of SDPA's kernels make numbers of the mask"
    return table(rows, columns, evidence=f"simulated (H100) · {LIVE}", caption=caption)


def rooms(seen: Watch, places: Sequence[int]) -> Table:
    """What the compiler makes for an H100 of a kernel whose block is as large as the room."""

    def made() -> list[dict[str, Any]]:
        (asked,) = (launch.program() for launch in seen.launches if launch.program is not None)
        sizes = [replace(asked, constants=asked.constants | {"PLACES": many}) for many in places]
        return [asdict(one) for one in kernels.compile_all(sizes)]

    return _for_gpu([f"room for {many:,}" for many in places], kept("rooms", made))


def for_gpu(name: str, run: Callable[[], Any]) -> Table | None:
    """What the compiler makes for an H100 of the kernels that a run launches; printed, where it refuses them."""

    def made() -> list[dict[str, Any]]:
        with kernels.watch() as seen:
            run()
        return [asdict(one) for one in kernels.compiled(seen)]

    try:
        compiled = kept(f"{name} for a GPU", made)
    except NotImplementedError:
        print(f"Your {name} is not written yet. Write it above, then run this cell again.")
        return None
    for one in compiled:
        if one["refused"]:
            print(f"Triton's compiler refuses {one['name']}: {one['refused']}")
    return _for_gpu([name] * len(compiled), compiled)


def _for_gpu(names: Sequence[str], made: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        (name, one["name"], f"{one['registers']}", f"{one['spilled_bytes']:,}")
        for name, one in zip(names, made, strict=True)
        if not one["refused"]
    ]
    columns = ["", "kernel", "registers of a thread", "spilled, bytes of a thread"]
    caption = "compiled for an H100, 4 warps (128 threads) a program; nothing ran there"
    return table(rows, columns, evidence=LIVE, caption=caption)


def with_your_window(
    attend_window: Callable[..., Tensor],
    tensors: tuple[Tensor, Tensor, Tensor, Tensor],
    reads: Mapping[str, Way],
    computed: Mapping[str, int],
    sinks: int = 4,
    window: int = 32,
) -> Table:
    """The ways to attention over a cache (q, k, v, filled), and the learner's own kernel as it was counted."""
    q, k, v, filled = tensors
    place, n = torch.arange(k.shape[2]), filled[:, None, None, None]
    mask = (place < n) & ((place < sinks) | (place >= n - window))
    yours = ran(
        "attend_window",
        lambda: attend_window(*tensors, sinks, window),
        want=F.scaled_dot_product_attention(q, k, v, mask),
    )
    if not _right("attend_window", yours):
        return cache_reads(reads, computed, k.nbytes + v.nbytes)
    name = f"yours, {sinks} sinks and a window of {window}"
    way = Way(len(yours.seen.launches), yours.seen.bytes)
    many = scores(yours.seen, len(q), q.shape[-1])
    return cache_reads({**reads, name: way}, {**computed, name: many}, k.nbytes + v.nbytes)


#: in the recorded cache: places of a text that an operator reads, and those that count, which a kernel reads
_ROOM, _COUNT = 8192, 4 + 256


def _places_read(way: str) -> int:
    return _COUNT if "Triton" in way else _ROOM


def recorded_cache() -> Table:
    """A new token's attention to 4 first and 256 last places of a large cache, on a recorded card."""
    recording = recordings.show("21/window", prefer="recorded")
    rows = [
        (row["way"], f"{_places_read(row['way']) / _ROOM:.1%}", f"≈ {format_seconds(row['us'] / 1e6)}")
        for row in recording.table or ()
    ]
    columns = ["attention to a cache", "places read", "time"]
    caption = f"8 texts × 32 heads, room for {_ROOM:,} places of 64 features, float32; what counts: 4 sinks and a window of 256; places: arithmetic"
    return table(rows, columns, evidence=recording.evidence, caption=caption)


def recorded_saved() -> tuple[float, float]:
    """How many times fewer places the recorded kernel with blocks of 64 reads than SDPA with its mask, and how many times less long it takes."""
    us = {row["way"]: row["us"] for row in recordings.show("21/window", prefer="recorded").table or ()}
    kernel, operator = "a Triton kernel, blocks of 64", "SDPA, a mask of what counts"
    return _places_read(operator) / _places_read(kernel), us[operator] / us[kernel]


#: attention over 8,192 tokens, recorded → which part of the blocks of 128 × 128 scores is computed. A row of blocks
#: has 64; causal leaves 1 to 64 of them, a window of 256 at most 3, a document of 1,024 tokens 1 to 8
_ALL, _CAUSAL = 64 * 64, 64 * 65 // 2
_COMPUTED = {
    "SDPA, window of 256 as a mask of bools": _ALL,
    "SDPA, no mask": _ALL,
    "FlexAttention, causal": _CAUSAL,
    "SDPA, is_causal=True": _CAUSAL,
    "FlexAttention, eight documents": 8 * 36,
    "FlexAttention, sliding window of 256": 3 * 64 - 3,
}


def _attention_us() -> tuple[dict[str, float], str]:
    recording = recordings.show("19/blocks", prefer="recorded")
    return {row["way"]: row["us"] for row in recording.table or ()}, recording.evidence


def recorded_left_out() -> Table:
    """Attention over 8,192 tokens on a recorded card, by the share of the scores that is computed."""
    us, evidence = _attention_us()
    rows = [
        (
            way.replace("documents", "causal documents"),
            f"{blocks / _ALL:.0%}",
            f"≈ {format_seconds(us[way] / 1e6)}",
        )
        for way, blocks in _COMPUTED.items()
    ]
    columns = ["attention over 8,192 tokens", "blocks of scores computed", "time"]
    return table(
        rows, columns, evidence=evidence, caption="16 heads of 64 features, bfloat16; blocks: arithmetic"
    )


def recorded_window() -> tuple[float, float, float]:
    """Microseconds of recorded attention over 8,192 tokens: FlexAttention with a window of 256; SDPA without a mask; with the window as a mask tensor."""
    us, _ = _attention_us()
    ways = "FlexAttention, sliding window of 256", "SDPA, no mask", "SDPA, window of 256 as a mask of bools"
    flex, whole, masked = (us[way] for way in ways)
    return flex, whole, masked


def recorded_products() -> Table:
    """A product of two 4,096 × 4,096 matrices on a recorded card, by the side of the tile."""
    recording = recordings.show("21/products", prefer="recorded")
    rows = [
        (
            row["way"],
            f"≈ {format_seconds(row['us'] / 1e6)}",
            f"≈ {2 * 4096**3 / row['us'] / 1e6:,.{0 if row['us'] < 1e5 else 1}f}",
        )
        for row in recording.table or ()
    ]
    return table(rows, ["4,096³, float16", "time", "TFLOP/s"], evidence=recording.evidence)


# --- Further: tiles ----------------------------------------------------------------------------------------------


def tile_loads(m: int, k: int, n: int, rows: int, columns: int) -> int:
    """Elements that a tiled product loads: a once for each column of tiles, b once for each row of tiles."""
    return m * k * -(-n // columns) + k * n * -(-m // rows)


@drawn
def reuse(n: int, tiles: Sequence[int]) -> Picture:
    """Loads of an n × n product against the tile's side, and FLOPs for each byte loaded."""
    loads = [tile_loads(n, n, n, t, t) for t in tiles]
    per_byte = [2 * n**3 / (2 * many) for many in loads]
    title = f"A product of {n:,} × {n:,} in float16: a larger tile reads less"
    note = f"Orange line: where an H100's memory and its Tensor Cores would take equally long ({PEAK_PER_BYTE:.0f} FLOPs for each byte)."
    fig, _ = style.figure(2.5, evidence="arithmetic", title=title, note=note)
    left, right = fig.subplots(1, 2)
    names = [str(t) for t in tiles]
    for ax, values, what in (
        (left, [v / 1e9 for v in loads], "10⁹ elements loaded"),
        (right, per_byte, "FLOPs for each byte loaded"),
    ):
        ax.bar(names, values, color=style.BLUE, width=0.65)
        ax.set_yscale("log")
        ax.set_ylim(min(values) / 2, max(values) * 3)
        ax.set_xlabel("rows and columns of a tile")
        ax.set_title(what)
        ax.grid(axis="x", visible=False)
        for i, value in enumerate(values):
            ax.text(i, value * 1.12, f"{value:.3g}", ha="center", va="bottom", fontsize=style.SMALL)
    right.axhline(PEAK_PER_BYTE, color=style.VERMILLION, linewidth=1.5)
    right.set_ylim(top=max(PEAK_PER_BYTE, *per_byte) * 3)
    return Picture(fig, "arithmetic", f"{title}: loads fall from {loads[0]:,} to {loads[-1]:,}")


# --- 4 · an operator ----------------------------------------------------------------------------------------------


#: what a message of the compiler has in it, and which label is missing then
_MISSING = {"no fake impl": "an error: which shape?", "no autograd formula": "an error: which gradient?"}


def tried(name: str, fn: Callable[..., Tensor], *args: Tensor, compiled: bool = True) -> str:
    """What a call says, plain or under torch.compile(fullgraph=True), and backward where an argument wants a gradient.

    The sentence of the error that names the cause, or "" where there is none. Kept where Triton is not installed.
    """

    def message() -> str:
        try:
            with quiet():
                run = torch.compile(fn, fullgraph=True, backend="aot_eager") if compiled else fn
                result = run(*args)
                if any(arg.requires_grad for arg in args):
                    result.sum().backward()
        except Exception as problem:
            sentences = re.split(r"\. |[\n'\"]", str(problem))
            causes = (s for s in sentences if any(part in s for part in _MISSING))
            return f"{type(problem).__name__}: {next(causes, sentences[0]).removeprefix('RuntimeError: ')}"
        return ""

    return kept(name, message)


def kept(name: str, run: Callable[[], T]) -> T:
    """What a run that launches kernels says; where Triton is not installed, what it said when it was kept."""
    if not kernels.available():
        said: T = json.loads(_KEPT.read_text(encoding="utf-8"))[name]
        return said
    said = run()
    _keep(name, said)
    return said


def kinds(messages: Mapping[str, str]) -> dict[str, str]:
    """use → that it works, or which label its message misses."""
    return {
        form: next((kind for part, kind in _MISSING.items() if part in said), "an error at capture")
        if said
        else "works"
        for form, said in messages.items()
    }


def said(messages: Mapping[str, str]) -> Table:
    rows = [(form, text or "—") for form, text in messages.items()]
    return table(rows, ["add as an operator", "the message, in short"], evidence=LIVE)


def checked(uses: Mapping[str, tuple[Any, ...]]) -> Table:
    """What torch.library.opcheck says of an operator on inputs; kept where Triton is not installed."""
    rows = []
    for name, (op, *args) in uses.items():

        def check() -> dict[str, str]:
            with quiet():
                results = torch.library.opcheck(op, tuple(args), raise_exception=False)  # noqa: B023 - called here
            return {test: "right" if str(r) == "SUCCESS" else "not right" for test, r in results.items()}

        said = kept(f"opcheck {name}", check)
        if not any(arg.requires_grad for arg in args):  # it had nothing to try, and calls that a success
            said["test_autograd_registration"] = "not tested"
        rows.append((name, *said.values()))
    columns = [test.removeprefix("test_").replace("_", " ") for test in said]
    return table(rows, ["the inputs lie", *columns], evidence=LIVE)


def _keep(name: str, what: Any) -> None:
    """Write it down for where Triton is not installed, when the maintainer asks for that (COURSE_KEEPS_RUNS=1)."""
    if os.environ.get("COURSE_KEEPS_RUNS"):
        kept = json.loads(_KEPT.read_text(encoding="utf-8")) if _KEPT.exists() else {}
        _KEPT.write_text(json.dumps(kept | {name: what}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
