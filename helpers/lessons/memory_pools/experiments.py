"""What lesson 08 shows: what an allocator takes and keeps, how a card fills up, whose line it is, what keeps a tensor."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import textwrap
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import helpers.lessons.memory_pools.recorded  # noqa: F401 - its experiments are known by their names
from helpers import memory, recordings, simulate
from helpers.memory.calls import Steps
from helpers.memory.snapshot import Block, Event, Frame, Snapshot
from helpers.text.sizes import size_text
from helpers.text.tables import Table, table

MIB = 2**20
ON_H100 = "simulated (H100)"
OPTIONS = ("default", "max_split_size_mb:128", "expandable_segments:True")


# --- 1 · one tensor --------------------------------------------------------------------------------------------------


def reserved(taken: Mapping[str, tuple[int, int, int]]) -> dict[str, str]:
    """Of (asked for, allocated, reserved): what is reserved, in words."""
    return {name: size_text(numbers[2]) for name, numbers in taken.items()}


def sizes(taken: Mapping[str, tuple[int, int, int]]) -> Table:
    """A row a tensor: bytes asked for, allocated and reserved."""
    rows = [
        (name, f"{asked:,}", f"{given:,}", size_text(held)) for name, (asked, given, held) in taken.items()
    ]
    columns = ["tensor", "asked for, bytes", "allocated, bytes", "reserved"]
    return table(rows, columns, evidence=ON_H100)


# --- 2 · a program of calls ------------------------------------------------------------------------------------------


def _after(steps: Steps, line: str) -> int:
    """How many events have happened when that call is done."""
    return steps.move(steps.lines.index(line) + 1).end


def answers(steps: Steps) -> dict[str, str]:
    """What the program of section 2 shows: merged neighbours, what stays reserved, whether CUDA is asked."""
    history = steps.found
    merged = [len(history.segments(_after(steps, line))[0].blocks) for line in ("free a", "free d")]
    end = _after(steps, "free c")
    asks = any(e.action == "segment_alloc" and e.index >= end for e in history.snapshot.events)
    fitting = {  # the large segment's free blocks before `h`, by address
        b.address: b.size for b in history.segments(_after(steps, "free f"))[0].blocks if b.state == "free"
    }
    taken = {b.address for b in history.segments(_after(steps, "h = 3 MiB"))[0].blocks if b.state != "free"}
    cut = [size_text(size) for address, size in fitting.items() if address in taken]
    neighbours = ("no free neighbour", "one free neighbour", "two free neighbours")
    return {
        "`free d` merges with": neighbours[merged[0] - merged[1]],
        "reserved after `free c`, when only e is in use": size_text(int(history.reserved[end])),
        "`f` needs cudaMalloc": "yes" if asks else "no",
        "`h` is cut from": f"a free block of {cut[0]}" if cut else "a new segment",
    }


def moves(steps: Steps) -> Table:
    """Each call, and what the allocator did."""
    rows = [(line, steps.move(i).text) for i, line in enumerate(steps.lines, 1)]
    return table(rows, ["call", "what the allocator did"], evidence=steps.evidence)


def last_call(program: str) -> tuple[str, str]:
    """("reused" or "new", the allocator's move in words) for the last call of a program."""
    steps = memory.steps_of(program)
    move = steps.move(len(steps))
    new = any(e.action == "segment_alloc" for e in steps.found.snapshot.events[move.start : move.end])
    return "new" if new else "reused", move.text


# --- 3 · a card that is full -----------------------------------------------------------------------------------------


class CardFull(Exception):
    """A request failed; the traceback holds what the program held then."""


@dataclasses.dataclass
class Card:
    """A simulated card after a program: what the program holds, or the failure that ended it."""

    gpu: Any
    held: Any = None
    failure: CardFull | None = None

    @property
    def outcome(self) -> str:
        return "fails" if self.failure else "fits"

    @property
    def tried_mib(self) -> float:
        """What the request that failed wanted from CUDA, MiB."""
        return float(str(self.failure).partition("Tried to allocate ")[2].split()[0])

    @property
    def calls(self) -> tuple[int, int]:
        """How often memory was asked of CUDA, and given back; the request that failed is left out."""
        stats = self.gpu.memory_stats()
        less = self.failure is not None
        return stats["num_device_alloc"] - less, stats["num_device_free"] - less


def on_small_card(program: Callable[..., Any], option: str = "default", **settings: Any) -> Card:
    """Run program(buffer, **settings) on a card of 7 GiB. buffer(n): a tensor of n MiB; the program ends where one fails.

    buffer.empty_cache() is the card's.
    """
    conf = "" if option == "default" else option
    gpu = simulate("H100", memory_bytes=7 * 1024 * MIB, alloc_conf=conf, strict=False)

    def buffer(mib: int) -> torch.Tensor:
        tensor = torch.empty(mib * MIB, dtype=torch.uint8, device=gpu.device)
        if gpu.faults:  # the simulator notes the error and grants the request all the same: give it back
            del tensor
            gpu.empty_cache()
            raise CardFull(gpu.faults[0])
        return tensor

    buffer.empty_cache = gpu.empty_cache  # type: ignore[attr-defined]
    with gpu:
        try:
            return Card(gpu, program(buffer, **settings))
        except CardFull as failure:
            return Card(gpu, failure=failure)


def with_each_option(*programs: Callable[..., Any]) -> dict[tuple[str, str], Card]:
    """(program's name, option) → the card behind it."""
    return {(p.__name__, option): on_small_card(p, option) for p in programs for option in OPTIONS}


def fits(cards: Mapping[tuple[str, str], Card]) -> dict[str, str]:
    """Which options make each program fit, in the words of the question."""
    answers = {}
    for program in dict.fromkeys(name for name, option in cards if option != "default"):
        split, grow = (cards[program, option].outcome == "fits" for option in OPTIONS[1:])
        answers[f"{program} fits with"] = (
            "either one alone" if split and grow
            else "only max_split_size_mb" if split
            else "only expandable_segments" if grow
            else "neither"
        )  # fmt: skip
    return answers


def options(cards: Mapping[tuple[str, str], Card]) -> Table:
    """Program, option, outcome, and how often memory was asked of CUDA and given back."""
    rows = [(*key, card.outcome, *card.calls) for key, card in cards.items()]
    columns = ["program", "option", "a card of 7 GiB", "asked of CUDA", "given back"]
    caption = (
        "asked and given back: calls of cudaMalloc and cudaFree (num_device_alloc, num_device_free of memory_stats()); "
        "with expandable_segments mappings and unmappings, each of one or more pages"
    )
    return table(rows, columns, evidence=ON_H100, caption=caption)


def error(card: Card) -> str:
    """The error of the request that failed, in PyTorch's words, in lines that fit a page."""
    return "\n".join(textwrap.wrap(str(card.failure), 110))


def room(card: Card) -> tuple[float, float, float]:
    """The numbers of the error of a card that is full, MiB: the request, free on the card, free inside PyTorch."""
    gpu = card.gpu
    inside = gpu.memory_reserved() - gpu.memory_allocated()
    return card.tried_mib, gpu.mem_get_info()[0] / MIB, inside / MIB


def shortages(cards: Mapping[str, Card]) -> Table:
    """A row a card: the numbers of its error."""
    rows = [(name, *(f"{mib:,.0f}" for mib in room(card))) for name, card in cards.items()]
    columns = ["program", "tried to allocate, MiB", "free on the card", "reserved but unallocated"]
    return table(rows, columns, evidence=ON_H100)


def reasons(cards: Mapping[str, Card]) -> dict[str, str]:
    """Why the request of each failed, by the sum of what is free."""
    found = {}
    for name, card in cards.items():
        tried, free, inside = room(card)
        found[name] = "fragmentation" if free + inside >= tried else "lack of memory"
    return found


# --- 4 · whose line it is --------------------------------------------------------------------------------------------


def with_source(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the calling cell's own lines in place of "<module>"."""
    caller = inspect.currentframe()
    assert caller is not None and caller.f_back is not None
    lines = inspect.getsource(caller.f_back).splitlines()

    def in_words(frame: Frame) -> Frame:
        if frame.function != "<module>" or not 0 < frame.line <= len(lines):
            return frame
        return dataclasses.replace(frame, function=lines[frame.line - 1].strip())

    def with_lines(thing: Any) -> Any:
        return dataclasses.replace(thing, frames=tuple(map(in_words, thing.frames)))

    segments = tuple(
        dataclasses.replace(s, blocks=tuple[Block, ...](map(with_lines, s.blocks))) for s in snapshot.segments
    )
    events = tuple[Event, ...](map(with_lines, snapshot.events))
    return dataclasses.replace(snapshot, segments=segments, events=events)


def leak(snapshot: Snapshot, snapshots: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The line that grows in every step, and by how much; snapshots: one behind each step."""
    bounds = [len(state["device_traces"][0]) for state in snapshots]
    growth = memory.leaks(snapshot, bounds)[0]
    line = "x = torch.randn(…)" if "x = torch.randn(" in growth.site else growth.site
    return {"the line": line, "it grows by, a step": size_text(growth.per_step[-1])}


def try_it(find_leak: Callable[[list[dict[str, Any]]], Any], snapshots: Sequence[Mapping[str, Any]]) -> None:
    """What the learner's function finds in these snapshots, without their history."""
    try:
        print(find_leak([{"segments": state["segments"]} for state in snapshots]))
    except NotImplementedError:
        print("find_leak is not written yet: write it above, then run this cell again")


# --- 5 · what keeps a tensor -----------------------------------------------------------------------------------------


def fate(way: Callable[[torch.Tensor], Any]) -> str:
    """What becomes of a tensor's memory after way(x) and `del x`: "freed", "kept", or "until gc"."""
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()  # it would run at some moment of its own
    try:
        x = torch.ones(250_000)
        storage = weakref.ref(x.untyped_storage())
        stays = [way(x)]
        del x
        if storage() is None:
            return "freed"
        gc.collect()
        return "until gc" if storage() is None and stays else "kept"
    finally:
        if collecting:
            gc.enable()


#: a module's name: in global scope
_held: torch.Tensor | None = None


def fate_under_a_name() -> dict[str, str]:
    """What becomes of a tensor's memory: under a module's name after a collection, when the name is bound anew; in a function."""
    global _held

    def in_a_function() -> Any:
        x = torch.ones(250_000)
        return weakref.ref(x.untyped_storage())

    _held = torch.ones(250_000)
    storages = [weakref.ref(_held.untyped_storage()), in_a_function()]
    gc.collect()
    module, function = ("freed" if storage() is None else "kept" for storage in storages)
    _held = None
    return {
        "module": module,
        "bound anew": "freed" if storages[0]() is None else "kept",
        "function": function,
    }


# --- further ---------------------------------------------------------------------------------------------------------


class Ledger:
    """Notes of what a simulated card says after each call: allocated, reserved, used on the card. All in MiB."""

    def __init__(self, gpu: Any) -> None:
        self.gpu, self.rows = gpu, dict[str, tuple[int, int, int]]()

    def __call__(self, when: str) -> None:
        free, total = self.gpu.mem_get_info()
        mine, held, used = self.gpu.memory_allocated(), self.gpu.memory_reserved(), total - free
        self.rows[when] = (mine // MIB, held // MIB, used // MIB)

    def table(self) -> Table:
        rows = [
            (when, f"{mine:,}", f"{held:,}", f"{used:,}", f"{used - held:,}")
            for when, (mine, held, used) in self.rows.items()
        ]
        columns = ["after", "allocated, MiB", "reserved", "used on the card", "of it outside PyTorch"]
        caption = "used on the card: total − free of mem_get_info(), what nvidia-smi shows for a card with one process"
        return table(rows, columns, evidence=self.gpu.evidence, caption=caption)


def on_the_card() -> Table:
    """The documents on a simulated card and on a real one, recorded and, where there is one, live."""
    names = {
        "in order of length": "08/growing",
        "the same, expandable_segments:True": "08/growing_expandable",
        "longest first": "08/longest_first",
    }
    rows, same = [], True
    for name, key in names.items():
        runs = recordings.side_by_side(key)
        states = [run.table[-1] for run in runs if run.table]
        allocated, segments = (
            " / ".join(dict.fromkeys(words(state[k]) for state in states))
            for k, words in (("allocated", size_text), ("segments", str))
        )
        rows.append((name, allocated, *(size_text(state["reserved"]) for state in states), segments))
        same &= all(state == states[0] for state in states)
    reserved = (f"reserved, {run.kind}" for run in runs)
    columns = ["documents", "allocated at the end", *reserved, "segments"]
    caption = "all of these are the same to the byte" if same else ""
    return table(rows, columns, evidence=" · ".join(run.evidence for run in runs), caption=caption)
