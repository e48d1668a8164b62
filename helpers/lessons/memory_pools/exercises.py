"""Tests of lesson 08: what an allocator reserves, what documents cost, which line leaks, what keeps a tensor."""

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import accumulate, pairwise
from typing import Any
from unittest import mock

import torch

from helpers import check, simulate
from helpers.check.compare import difference
from helpers.check.judges import each
from helpers.check.results import plain
from helpers.check.variant import variant
from helpers.simulator.allocator import CachingAllocator, OutOfMemory
from helpers.simulator.sources import Product, Sources

MIB = 2**20


# --- 8.3 Allocator ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """Calls as the stepper takes them, "a = 6 MiB; free a; empty_cache", on a device of so many MiB."""

    calls: str
    mib: int = 1024


def random_program(seed: int, length: int, largest: int, least: int = 1, mib: int = 2**20) -> Program:
    """About as many calls of malloc as of free; every third size occurred before."""
    draw = random.Random(seed)
    calls, live, sizes = list[str](), list[str](), list[int]()
    for number in range(length):
        if live and draw.random() < 0.47:
            calls.append(f"free {live.pop(draw.randrange(len(live)))}")
        elif draw.random() < 0.01:
            calls.append("empty_cache")
        else:
            again = bool(sizes) and draw.random() < 0.33
            sizes.append(draw.choice(sizes) if again else int(least * (largest / least) ** draw.random()))
            calls.append(f"t{number} = {sizes[-1]} B")
            live.append(f"t{number}")
    return Program("; ".join(calls), mib)


@cache
def training_program(steps: int, width: int, mib: int = 2**20) -> Program:
    """What a small net asks for in its first steps."""
    gpu = simulate("H100")
    gpu.memory._record_memory_history(context=None)
    with gpu:
        linears = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        net = torch.nn.Sequential(linears[0], torch.nn.GELU(), linears[1]).to(gpu.device)
        optimizer = torch.optim.AdamW(net.parameters())
        for step in range(steps):
            x = torch.randn(500 + 300 * step, width, device=gpu.device)
            (net(x) - x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    words = {"alloc": "{addr} = {size} B", "free_completed": "free {addr}"}
    events = gpu.memory._snapshot()["device_traces"][0]
    return Program("; ".join(words[e["action"]].format(**e) for e in events if e["action"] in words), mib)


def _played(calls: str, allocator: Any, full: type[Exception] = MemoryError) -> Iterator[str]:
    """Makes the calls, and says after each whether it was "ok" or a "MemoryError"."""
    live: dict[str, int] = {}
    for call in calls.split("; "):
        outcome, (name, _, size) = "ok", call.removeprefix("free ").partition(" = ")
        if size:
            number, unit = size.split()
            try:
                live[name] = allocator.malloc(int(number) * {"B": 1, "KiB": 1024, "MiB": MIB}[unit])
            except full:
                outcome = "MemoryError"
        elif call == "empty_cache":
            allocator.empty_cache()
        elif name in live:
            allocator.free(live.pop(name))
        yield outcome


class _Places:
    """Addresses for segments of so many bytes, beginning with 0: every other one lies below the ones that are older."""

    def __init__(self) -> None:
        self.up, self.down, self.rising = 0, 2**44, False

    def __call__(self, nbytes: int) -> int:
        size, self.rising = -(-nbytes // (2 * MIB)) * 2 * MIB, not self.rising
        if self.rising:
            self.up += size
            return self.up - size
        self.down -= size
        return self.down


class _Device:
    """Gives out segments and takes them back; uses the learner's allocator, and notes what goes wrong."""

    def __init__(self, Allocator: Any, capacity: int) -> None:
        self.capacity, self.made, self.place, self.problems = capacity, 0, _Places(), list[str]()
        self.segments: dict[int, int] = {}  # address → bytes
        self.blocks: dict[int, int] = {}
        self.allocator = Allocator(self.cuda_malloc, self.cuda_free)
        self.empty_cache = self.allocator.empty_cache

    def cuda_malloc(self, nbytes: int) -> int | None:
        if sum(self.segments.values()) + nbytes > self.capacity:
            return None
        address, self.made = self.place(nbytes), self.made + 1
        self.segments[address] = nbytes
        return address

    def cuda_free(self, address: int) -> None:
        size = self.segments.pop(address, None)
        if size is None:
            self.problems.append(f"cuda_free({address}), which is not the address of a segment")
        elif any(address <= start < address + size for start in self.blocks):
            self.problems.append("cuda_free of a segment in which a block is still in use")

    def malloc(self, nbytes: int) -> int:
        start = self.allocator.malloc(nbytes)
        if not isinstance(start, int):
            self.problems.append(f"malloc returned {start!r}; wanted an address, or MemoryError")
            return 0
        end = start + nbytes
        if not any(a <= start and end <= a + size for a, size in self.segments.items()):
            self.problems.append(f"malloc({nbytes}) returned bytes that lie in no segment")
        if any(start < b + n and b < end for b, n in self.blocks.items()):
            self.problems.append(f"malloc({nbytes}) returned bytes that another block is using")
        self.blocks[start] = nbytes
        return start

    def free(self, address: int) -> None:
        self.blocks.pop(address)
        self.allocator.free(address)


_BORROWED = "this is the course's own model; the exercise is to write yours"


def _on_a_device(Allocator: Any, calls: str, mib: int) -> dict[str, Any]:
    """After each call: bytes reserved, segments made so far, "ok" or "MemoryError"; up to the first problem."""
    rows: list[Any] = []
    with mock.patch.object(CachingAllocator, "malloc", side_effect=RuntimeError(_BORROWED)):
        device = _Device(Allocator, mib * MIB)
        for outcome in _played(calls, device):
            rows.append([sum(device.segments.values()), device.made, outcome])
            if device.problems:
                break
    return {"rows": rows, "problem": "".join(device.problems[:1])}


@cache
def _by_the_model(program: Program) -> list[list[Any]]:
    """The same by the course's model, which follows PyTorch's source."""
    model, rows, place = CachingAllocator(program.mib * MIB, history=False), [], _Places()
    model.driver.reserve = lambda size: 2**45 + place(size)  # type: ignore[method-assign]
    for outcome in _played(program.calls, model, OutOfMemory):
        stats = model.stats()
        rows.append([stats["reserved_bytes.all.current"], stats["num_device_alloc"], outcome])
    return rows


def _reserved(report: check.Report) -> str | None:
    program, results, calls = report.case, report.value, report.case.calls.split("; ")
    for number, (got, want) in enumerate(zip(results["rows"], _by_the_model(program), strict=False), 1):
        at = f"on {program.mib:,} MiB, at the end of: {'; '.join(calls[max(0, number - 15) : number])}\n "
        if results["problem"] and number == len(results["rows"]):
            return f"{at} {results['problem']}"
        if list(got) != want:
            states = [f"{r / MIB:g} MiB reserved, cudaMalloc ×{n} so far, {t}" for r, n, t in (got, want)]
            hint = "" if calls[1:] else "\n  One request: rounding, the pool, the segment's size."
            return f"{at} measured {states[0]}\n  wanted   {states[1]}{hint}"
    return None


def check_Allocator(*cases: Program | str) -> None:
    """A program that is text only runs on a device of 1 GiB."""
    programs = [Program(case) if isinstance(case, str) else case for case in cases]
    look = "1 · What does one tensor take? 2 · Reuse, split, merge: run the program in the stepper"
    note = "The first difference is shown; the fault may lie some calls earlier. Does free merge on both sides? Of two "
    note += "blocks of one size, is the lower address taken? What remains lies behind? Is a full device tried twice?"
    check.function("Allocator", programs, drive=_on_a_device, verify=each(_reserved), look=look, note=note)


# --- 8.1 encode ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Documents:
    """Documents of so many rows, to be encoded on a simulated card; on none, their values are compared."""

    rows: Sequence[int]
    width: int
    hidden: int
    out: int
    card: str = ""


def _of_numbers(encode: Callable[..., Any], **fields: Any) -> dict[str, Any]:
    """The results for random numbers, after a second call too, and the batches; one comes twice, all are by columns."""
    asked, g = Documents(**fields), torch.Generator().manual_seed(len(fields["rows"]))
    up = torch.randn(asked.width, asked.hidden, generator=g)
    down = torch.randn(asked.hidden, asked.out, generator=g)
    batches = [torch.randn(asked.width, n, generator=g).t() for n in asked.rows]
    given = [*batches, batches[0]]
    results = plain(encode(given, up, down))
    own = results[0].data_ptr() != results[-1].data_ptr()
    second = encode([-x for x in given], up, down)
    return {
        "second call": second,
        "results": results,
        "batches": given,
        "the batch that comes twice has two results": own,
    }


def _one_by_one(batches: list[torch.Tensor], up: torch.Tensor, down: torch.Tensor) -> list[torch.Tensor]:
    return [torch.clamp(x @ up, min=0) @ down for x in batches]


def _on_a_card(encode: Callable[..., Any], **fields: Any) -> dict[str, Any]:
    """What was computed and reserved, and how often the host waited, on a card where tensors have no numbers."""
    asked = Documents(**fields)
    with (gpu := simulate(asked.card, strict=False)):
        up = torch.empty(asked.width, asked.hidden, device=gpu.device)
        down = torch.empty(asked.hidden, asked.out, device=gpu.device)
        batches = [torch.empty(n, asked.width, device=gpu.device) for n in asked.rows]
        held, waits, before = gpu.memory_reserved(), gpu.syncs, len(gpu.kernels)
        with Sources({"up": up, "down": down} | dict(enumerate(batches))) as sources:
            results = plain(encode(batches, up, down))
        sizes = sorted((s["total_size"] for s in gpu.memory_snapshot()), reverse=True)
        return {
            "shapes": [list(r.shape) for r in results],
            "not of": [sorted({"up", "down"} - sources.of(r)) for r in results],
            "not of its batch": [i for i, r in enumerate(results) if i not in sources.of(r)],
            "written": [sources.written(r, {"up", "down", i}) for i, r in enumerate(results)],
            "flops of each": [
                sum(of.flops for of in sources.of(r) - sources.spread if isinstance(of, Product))
                for r in results
            ],
            "elsewhere": sum(r.device != x.device for r, x in zip(results, batches, strict=False)),
            "flops": sum(k.flops for k in gpu.kernels[before:]),
            "reserved": gpu.max_memory_reserved() - held,
            "waits": gpu.syncs - waits,
            "segments": sizes[:6],
        }


def _within(report: check.Report) -> str | None:
    asked, got = report.case, report.value
    rows, hidden, out, number = asked.rows, asked.hidden, asked.out, len(asked.rows)
    if got["shapes"] != [[n, out] for n in rows]:
        return f"on a GPU, for batches of {rows}: results of shapes {got['shapes']}"
    if got["elsewhere"]:
        return f"on a GPU, {got['elsewhere']} of {number} results lie on another device than the batches"
    if got["flops"] < 2 * sum(rows) * hidden * (asked.width + out):
        return "on a GPU, the two products of every batch were not computed"
    for i, lacks in enumerate(got["not of"]):
        if lacks or i in got["not of its batch"]:
            of = " and ".join([*["its batch"] * (i in got["not of its batch"]), *lacks])
            return f"on a GPU, result {i} holds nothing that was computed from {of}: what is multiplied has to arrive in what is returned"
    for i, n in enumerate(rows):
        if got["written"][i] < n * out:
            return f"on a GPU, {got['written'][i]:,} of the {n * out:,} elements of result {i} were written with what comes from its batch, up and down; wanted all"
        if got["flops of each"][i] < (least := 2 * n * hidden * (asked.width + out)):
            return f"on a GPU, products of {got['flops of each'][i]:,} FLOPs arrive in result {i}; its two products have {least:,}: each number that is multiplied has to arrive where it belongs"
    if got["waits"]:
        return f"the host waited {got['waits']} time(s) for the GPU; wanted 0 (emptying the cache waits, .cpu() too)"
    # a segment of 20 MiB has room for two results at least, and leaves less over than a third result would take: at
    # most 20 / 3 MiB, which is 10 / 3 MiB for each of the two
    results, wide, spare = sum(rows) * out * 4, max(rows) * hidden * 4, (64 + 4 * number) * MIB
    most = results + wide + spare
    if got["reserved"] > most:
        largest = ", ".join(f"{size >> 20:,}" for size in got["segments"])
        return (
            f"{number} batches of {min(rows):,} to {max(rows):,} rows reserved {got['reserved'] >> 20:,} MiB; wanted at "
            f"most {most >> 20:,} (results {results >> 20:,}, one wide array {wide >> 20:,}, and {spare >> 20:,})\n  "
            f"the largest segments, MiB: {largest}"
        )
    return None


def check_encode(*cases: Documents) -> None:
    """On no card values are compared, on a card what is reserved."""
    numbers, cards = [case for case in cases if not case.card], [case for case in cases if case.card]
    expect, match = partial(_of_numbers, _one_by_one), check.Match(rtol=1e-4, atol=1e-5)
    look = "the function above the exercise"
    check.function("encode", numbers, expect, drive=_of_numbers, match=match, look=look)
    look = "3 · Free, and out of memory: documents"
    note = "One wide array more than allowed: which name still holds one? Several: which blocks can be used again?"
    check.function("encode", cards, drive=_on_a_card, verify=each(_within), look=look, note=note)


# --- 8.2 find_leak ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Story:
    """A training of so many steps, with a snapshot after each.

    leaks: (line, the least and the most bytes of a piece) of what every step leaves behind, in one to three pieces.
    late: from this step on another line does, too (0: none does).
    from_source: torch was built from source, so its files lie in another folder, and the project's in /srv/pytorch.
    lines: ten, of what is no leak, and of `late`.
    """

    steps: int
    leaks: Sequence[tuple[str, int, int]] = ()
    late: int = 0
    from_source: bool = False
    seed: int = 0
    lines: Sequence[str] = ()


def _with_lines(stories: Sequence[Story]) -> list[Story]:
    """To each its lines: of what leaks in the other stories, and others by the same names, so that no line is known for a leak."""
    known, drawn = {_written(line): line for story in stories for line, *_ in story.leaks}, list[Story]()
    for i, story in enumerate(stories):
        draw = random.Random(variant(f"find_leak {i}").seed(100 * i + story.seed))
        own = {_written(line) for line, *_ in story.leaks}
        lines = [line for written, line in known.items() if written not in own][:8]
        while len(lines) < 10:
            file, name = (
                draw.choice(("model", "train", "cache", "data")),
                draw.choice(("step", "log", "build")),
            )
            if (line := f"{file}.py:{draw.randrange(5, 100)} {name}") not in own.union(lines):
                lines.append(line)
        draw.shuffle(lines)
        drawn.append(replace(story, lines=lines))
    return drawn


def _written(line: str) -> str:
    return line.rpartition("/")[2]


def _snapshots(story: Story) -> list[dict[str, Any]]:
    """Weights; optimizer state from step 1 on; a cache that fills up; batches that come and go; what leaks."""
    draw, model = random.Random(story.seed), CachingAllocator(2**36)
    snapshots, passing = list[dict[str, Any]](), list[int]()
    weights, (state, cached, prefetched, late), batch = story.lines[:2], story.lines[2:6], story.lines[6:]

    def take(nbytes: int, line: str, stream: int = 0, depth: int = 1) -> int:
        return model.malloc(nbytes, stream, where=_frames(line, depth, story.from_source))

    for i in range(6):
        take(draw.randrange(1_000, 40_000_000), weights[i % 2], depth=3)
    for step in range(story.steps):
        for address in passing:
            model.free(address)
        if step == 1:
            for _ in range(6):
                take(30_000_000, state)
        if step < story.steps - 2:
            take(50_000_000, cached, depth=0)
        sizes = [20_000_000 + 1_000_000 * (step % 3), *(draw.randrange(600, 40_000_000) for _ in range(3))]
        passing = [take(size, line, depth=2) for size, line in zip(sizes, batch, strict=True)]
        waiting = take(50_000_000, prefetched, depth=0)
        model.record_stream(waiting, 1)
        model.free(waiting)  # from here on "active_pending_free"
        model.malloc(2_000, where="")  # of this nothing is known
        for line, least, most in story.leaks:
            for _ in range(draw.choice((1, 2, 3))):
                take(draw.randint(least, most), line, stream=draw.choice((0, 2)), depth=step % 3)
        if story.late and step >= story.late:
            take(90_000_000, late, depth=0)
        snapshots.append(model.snapshot() | {"device_traces": [[]]})
    return snapshots


#: files of C++, of torch, of what else is around the user's folder, and that folder
_INSTALLED = "??", "site-packages/torch/nn/modules/linear.py", "torch/utils/data.py", "/project/"
_FROM_SOURCE = "/pytorch/aten/empty.cpp", "/opt/src/torch/nn/module.py", "<frozen runpy>", "/srv/pytorch/"


def _frames(line: str, depth: int, from_source: bool) -> list[dict[str, Any]]:
    """A stack as it is recorded, innermost first: C++, then torch's own files, then the user's `line`."""
    cpp, torchs, last, root = _FROM_SOURCE if from_source else _INSTALLED
    file, number, name = line.replace(":", " ").split()
    path = file if file == "notebook" else root + file
    frames = [(cpp, 9, "empty"), *[(torchs, 125, "forward")] * depth, (last, 3, "_run")]
    frames += [(path, int(number), name), (f"{root}main.py", 4, "main")]
    return [dict(zip(("filename", "line", "name"), frame, strict=True)) for frame in frames]


def _on_a_story(find_leak: Callable[..., Any], **story: Any) -> Any:
    return find_leak(_snapshots(Story(**story)))


def check_find_leak(*cases: Story, expect: Sequence[Any] | Callable[..., Any]) -> None:
    """expect: what is right for each of the cases, or a function of the snapshots."""
    stories = _with_lines(cases)
    right = [expect(_snapshots(story)) for story in stories] if callable(expect) else expect
    look = "4 · A snapshot names the line"
    note = "In these stories no leaks are: two lines of weights, the optimizer's state (from step 1 on), a cache that fills up, "
    note += "four lines of batches that come and go, and what is freed and waits for a stream. Which line is which, only their "
    note += "bytes from snapshot to snapshot tell."
    check.function("find_leak", stories, right, drive=_on_a_story, look=look, note=note)


# --- 8.4 ActivationLog --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Net:
    """Linear layers of these widths, for batches of so many rows.

    blocks: every second layer lies inside a block, which is the model's child. frozen: no parameter has a gradient.
    """

    widths: Sequence[int]
    batch: int
    blocks: bool = False
    frozen: bool = False

    def names(self) -> list[str]:
        """Those of the model's children."""
        return [f"part{i}" if self.blocks else str(i) for i in range(len(self.widths) - 1)]

    def make(self) -> torch.nn.Sequential:
        model = torch.nn.Sequential()
        for i, (name, (a, b)) in enumerate(zip(self.names(), pairwise(self.widths), strict=True)):
            layer = torch.nn.Linear(a, b)
            model.add_module(name, torch.nn.Sequential(layer) if self.blocks and i % 2 else layer)
        return model.requires_grad_(not self.frozen)


def _hooks(model: torch.nn.Module) -> int:
    return sum(len(layer._forward_hooks) + len(layer._forward_pre_hooks) for layer in model.modules())


def _lives(ActivationLog: Any, count: Any, **fields: Any) -> dict[str, Any]:
    """Live bytes at the ends of several short lives, with the cycle collector off (and its runs counted)."""
    net, lives = Net(**fields), dict[str, Any]()
    ones, zeros = torch.ones(net.batch, net.widths[0]), torch.zeros(net.batch, net.widths[0])
    gc.disable()
    before = gc.get_stats()
    try:
        model = net.make()
        with torch.no_grad():
            _, *wanted = accumulate(model.children(), lambda x, layer: layer(x), initial=zeros)
        with count() as end:
            first, log = ActivationLog(model), ActivationLog(model)
            model(ones)
            lives["names"] = list(first.outputs)
            del first
            model(zeros)
            lives["names left"], lives["hooks of one"] = list(log.outputs), _hooks(model)
            lives["right"] = difference(list(log.outputs.values()), wanted, 0, 1e-6) is None
            lives["graph"] = any(v.requires_grad for v in log.outputs.values())
            del log
        lives |= {"after del log": end.live_bytes, "hooks left": _hooks(model)}
        with count() as end:
            model(ones)
        lives["nobody listens"] = end.live_bytes
        with count() as end:
            model = net.make()
            log = ActivationLog(model)
            for _ in range(2):
                model(ones)
            del model
        lives["log alone"] = end.live_bytes
        del log
        with count() as end:
            model = net.make()
            log = ActivationLog(model)
            for _ in range(3):
                loss = model(ones).sum()
            if not net.frozen:
                loss.backward()
            del loss, log, model
        lives["both gone"], lives["collector"] = end.live_bytes, gc.get_stats() != before
    finally:
        gc.enable()
    return lives


#: after which of the lives what still holds something, if bytes live that should not
_HELD = {
    "after del log": "the log deleted, the model alive: something in the model still holds the log",
    "nobody listens": "a forward pass after the last log is gone: something still keeps outputs",
    "log alone": "the model deleted, the log alive: something in the log still holds the model",
    "both gone": "log and model deleted: they hold each other",
}


def _lived(report: check.Report) -> str | None:
    net, lives, names = report.case, report.value, report.case.names()
    if lives["names"] != names:
        return f"outputs has the names {lives['names']}, wanted {names}"
    if lives["graph"]:
        return "outputs carry their graph (requires_grad), and with it all that backward would need"
    if lives["collector"]:
        return "the cycle collector was run; without it the memory has to go, too"
    if lives["hooks left"]:
        return f"after `del log` there are {lives['hooks left']} hooks on the model; wanted 0"
    if lives["names left"] != names or lives["hooks of one"] != len(names) or not lives["right"]:
        return (
            f"two logs on one model, the first deleted: the second has {lives['names left']}, "
            f"{'' if lives['right'] else 'not '}as the latest forward pass made them, and {len(names)} layers have "
            f"{lives['hooks of one']} hooks; wanted {names}, as it made them, and as many hooks"
        )
    for when, hint in _HELD.items():
        most = 4 * net.batch * sum(net.widths[1:]) if when == "log alone" else 0
        if lives[when] > most:
            return f"{hint}\n  {lives[when]:,} bytes live; wanted at most {most:,}"
    return None


def check_ActivationLog(*cases: Net) -> None:
    look = "What notebooks and hooks keep"
    note = "Draw the arrows: model → layer → hook → … → log? log → handle, → model?"
    check.function("ActivationLog", cases, drive=_lives, verify=each(_lived), look=look, note=note)
