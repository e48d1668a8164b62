"""From a counter to the lines that raise it: of any callable, on a simulated card.

Whose a record is, `listening` has noted. Here the records of a counter are added up by line, and said in a table.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

from helpers import memory
from helpers.counters import count
from helpers.counters.watch import running as counting
from helpers.own_script.host_time import LOADER, MEASURED, WAITING
from helpers.own_script.listening import Mark, Marks
from helpers.own_script.places import NOWHERE, Place, running
from helpers.own_script.running import on
from helpers.simulator import SimGPU
from helpers.text.seconds import format_seconds
from helpers.text.sizes import size_text
from helpers.text.tables import Table, number_text, table


class Counter(NamedTuple):
    """What it is, how an amount of it is said, and how much of it a record of the host's has, and one of the device's."""

    what: str
    said: Callable[[float], str]
    host: Callable[[Any], float] = lambda record: 0
    kernel: Callable[[Any], float] = lambda kernel: 0


#: how torch.profiler's name begins for the time in which a program waits for a loader
_PROFILER = "enumerate(DataLoader)"
#: kernels that only put a tensor into another format or layout
CASTS = ("aten._to_copy", "cudnn.nchwToNhwcKernel", "cudnn.nhwcToNchwKernel")
COUNTERS: dict[str, Counter] = {
    "step_s": Counter("time of the host, waits included", format_seconds, lambda r: r.duration_s),
    "busy_s": Counter("time of its kernels", format_seconds, kernel=lambda k: k.duration_s * (k.kind == "kernel")),
    "wait_s": Counter("waits for the GPU", format_seconds, lambda r: r.duration_s * (r.kind in ("sync", "queue full"))),
    "stall_s": Counter("waits for data", format_seconds, lambda r: r.duration_s * _loads(r)),
    "python_s": Counter("Python and the loader, measured here", format_seconds,
                        lambda r: r.duration_s * (r.kind == "work" and r.name in MEASURED)),
    "launches": Counter("launches", number_text, kernel=lambda k: 1),
    "launches_but_casts": Counter("launches, casts apart", number_text, kernel=lambda k: not is_cast(k)),
    "operators": Counter("operators", number_text, lambda r: r.kind == "operator"),
    "syncs": Counter("syncs", number_text, lambda r: r.kind == "sync"),
    "flops": Counter("FLOPs of its kernels", number_text, kernel=lambda k: k.flops),
    "copied_bytes": Counter("bytes copied to and from the device", size_text, kernel=lambda k: k.bytes * k.kind.startswith("copy")),
    "collectives": Counter("collectives", number_text, kernel=lambda k: k.kind == "collective"),
    "sent_bytes": Counter("bytes given to collectives and sends", size_text, kernel=lambda k: k.bytes * (k.kind == "collective")),
    "saved_bytes": Counter("bytes saved for backward", size_text),
    "peak_bytes": Counter("peak memory", size_text),
    "growth_bytes": Counter("memory that it leaves behind", size_text),
}  # fmt: skip
#: counters that are read off the memory's history
MEMORY = ("peak_bytes", "growth_bytes")
#: how often a job is called again, to see what each call leaves behind
_AGAIN = 3


def is_cast(kernel: Any) -> bool:
    """Whether it only puts a tensor into another format or layout."""
    return bool(kernel.kind == "kernel" and kernel.name in CASTS)


def _loads(record: Any) -> bool:
    return record.name in (LOADER, WAITING) or record.name.startswith(_PROFILER)


@dataclass
class Charge:
    """What a line has of a counter. of: names of what it was, and how much each was. within: the same for the lines that it
    was for. flops: of its kernels."""

    amount: float = 0.0
    of: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    within: dict[Place | None, float] = field(default_factory=lambda: defaultdict(float))
    flops: float = 0.0

    def __str__(self) -> str:
        """What it was."""
        names = [name.removeprefix("aten.").removeprefix("aten::") for name, _ in largest(self.of)[:2]]
        rate = self.flops / self.amount / 1e12
        return ", ".join(names) + ", …" * (len(self.of) > 2) + (f" ({rate:.0f} TFLOP/s)" if rate >= 1 else "")


#: a line → what it has of a counter
Lines = dict[Place, Charge]
#: whose it is, how much, what it was, its FLOPs
_Part = tuple[Mark, float, str, float]


def largest(parts: Mapping[Any, float]) -> list[tuple[Any, float]]:
    return sorted(parts.items(), key=lambda part: -part[1])


class Noted:
    """What calls of a job take, line by line. within: says what a line is for that runs."""

    def __init__(self, gpu: SimGPU, marks: Marks, within: Callable[[], Place | None] = lambda: None) -> None:
        self.gpu, self._marks, self._within = gpu, marks, within
        self._begun: list[tuple[int, int, int]] = []
        self._told: dict[str, list[_Part]] = defaultdict(list)

    def begins(self) -> None:
        """The next call begins here. What came before the first belongs to none."""
        self._begun.append((self._marks.now, len(self.gpu.kernels), self._marks.events))

    def tell(self, counter: str, amount: float, what: str) -> None:
        """Something that leaves no record happens at the line that runs."""
        self._told[counter].append((Mark(0, running() or NOWHERE, within=self._within()), amount, what, 0.0))

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Within this block it is noted what autograd keeps for a backward pass."""

        def saved(nbytes: int) -> None:
            self.tell("saved_bytes", nbytes, f"tensors of {size_text(nbytes)}")

        with count(), mock.patch.object(counting.watches[-1].ledger, "saved", saved):
            yield

    def lines(self, counter: str, snapshot: Any = None) -> Lines:
        """What each line has of a counter in one call. snapshot: of the memory's history, for "peak_bytes" and "growth_bytes"."""
        lines: Lines = defaultdict(Charge)
        calls = 1 if counter == "peak_bytes" else len(self._begun)
        for mark, amount, what, flops in self._parts(counter, snapshot):
            if amount:
                charge = lines[mark.place]
                charge.amount += amount / calls
                charge.of[what] += amount
                charge.within[mark.within] += amount
                charge.flops += flops / calls
        return {place: charge for place, charge in lines.items() if charge.amount}

    def _parts(self, counter: str, snapshot: Any) -> Iterator[_Part]:
        (first, kernel, _), of = self._begun[0], COUNTERS.get(counter)
        yield from self._told[counter]
        if snapshot is not None:
            yield from self._blocks(counter, memory.history(memory.read(snapshot)))
        elif of is not None:
            for number, record in enumerate(self.gpu.host[first:], first):
                what = "waits for the DataLoader" if _loads(record) else record.name
                yield self._marks.of(number), of.host(record), what, 0.0
            for ran in self.gpu.kernels[kernel:]:
                flops = ran.flops if counter == "busy_s" else 0
                yield self._marks.of(ran.call), of.kernel(ran), _name(ran, counter), flops

    def _blocks(self, counter: str, history: memory.History) -> Iterator[_Part]:
        """Blocks at the peak, or those that stay: of lines that leave some in every call. (A cache comes with the first.)"""
        begun = [events for _, _, events in self._begun]
        at_peak = counter == "peak_bytes"
        blocks = history.heap(int(history.allocated.argmax()) if at_peak else len(history)).live.values()
        marked = [(self._marks.of_event(block.born), block) for block in blocks]
        calls: dict[Place, set[int]] = defaultdict(set)
        for mark, block in marked:
            calls[mark.place].add(bisect_right(begun, block.born))
        every = set(range(2, len(begun) + 1))
        for mark, block in marked:
            if at_peak or (block.born >= begun[0] and every <= calls[mark.place]):
                yield mark, block.size, f"blocks of {size_text(block.size)}", 0.0


def _name(kernel: Any, counter: str) -> str:
    """What a kernel or a copy is called, for that counter."""
    if counter == "copied_bytes":
        to = "to the device" if kernel.kind.endswith("h2d") else "to the host"
        return f"{to}, not pinned" if kernel.pageable else to
    return str(kernel.name)


def where(
    job: Callable[[], Any], counter: str, *, card: str = "H100", most: int = 10, factor: float = 0.0
) -> Table:
    """The lines that raise a counter most in one call of ``job``, and how much of it each is.

    counter: a name of `COUNTERS`. card: a name of `helpers.simulator.DEVICES`; "cuda" is that card within. factor: seconds of
    the card's host for one second of Python here; 0 leaves that out, and the table is the same on every machine. A backward
    pass belongs to the lines whose forward pass made it. For "growth_bytes" ``job`` is called four times, else once.
    ValueError for no counter; what ``job`` raises.

    >>> import torch
    >>> def job():
    ...     x = torch.ones(64, 64, device="cuda")
    ...     return (x @ x).sum().item()
    >>> where(job, "syncs").rows[0][3]
    '1 (100%)'
    """
    of = COUNTERS[known(counter, COUNTERS)]
    with on(card, factor=factor, warm=sys.maxsize) as run:  # the memory's history goes on to the end
        noted = Noted(run.gpu, run.marks)
        grows = counter == "growth_bytes"
        if grows:
            job()  # libraries' workspaces come with a first call, and stay
        with noted.saving() if counter == "saved_bytes" else nullcontext():
            for _ in range(_AGAIN if grows else 1):
                noted.begins()
                job()
        snapshot = run.gpu.memory._snapshot() if counter in MEMORY else None
    return shown(noted.lines(counter, snapshot), of.what, of.said, most, evidence=run.gpu.evidence)


def known(counter: str, counters: Iterable[str]) -> str:
    """The counter. ValueError if it is none of those."""
    if counter not in counters:
        raise ValueError(f"no counter {counter!r}: there are {', '.join(counters)}")
    return counter


def shown(
    lines: Lines, what: str, said: Callable[[float], str], most: int, *, evidence: str, caption: str = "",
    also: Mapping[str, Callable[[Place, Charge], str]] = MappingProxyType({}),
) -> Table:  # fmt: skip
    """The lines that have most of a counter. also: heading → what a further column says of a line."""
    ranked = sorted(lines.items(), key=lambda item: -item[1].amount)
    whole = sum(charge.amount for charge in lines.values())
    rows = [
        (str(place), f"`{place.text}`", place.function, *(tells(place, charge) for tells in also.values()),
         f"{said(charge.amount)} ({charge.amount / whole:.0%})", str(charge))
        for place, charge in ranked[:most]
    ]  # fmt: skip
    left = sum(charge.amount for _, charge in ranked[most:])
    caption = "; ".join(filter(None, (f"in other lines: {said(left)}" if left else "", caption)))
    return table(rows, ["line", "code", "in", *also, what, "what it is"], evidence=evidence, caption=caption)
