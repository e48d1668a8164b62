"""A trace as columns: one array a property, one element an event; and how the host's events nest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from helpers.pytorch.waiting import call_waits

from . import names as words

Ints = NDArray[np.int64]

# A queue takes about a thousand launches (1,022 in public traces of an A100, fewer where their arguments are large): a
# launch that takes long with so many waiting is held up by them. With fewer it is the driver's own time.
FULL, HELD_UP_NS = 900, 50_000


@dataclass(frozen=True)
class Work:
    """What ran on one device, in order of its start; every array has one element a kernel, copy or fill.

    launch_ns, launched_ns: when the host began and ended the call that launched it, at the latest the work's
    own start, which stands there too where the trace has no such call.
    family: index into `names.FAMILIES`. row, launch_row: rows of the trace (-1: no such call).

    >>> len(t.work.row), t.names[t.name[t.work.row[0]]]
    (16, 'aten::ones')
    """

    row: Ints
    launch_row: Ints
    launch_ns: Ints
    launched_ns: Ints
    start_ns: Ints
    end_ns: Ints
    stream: Ints
    family: Ints
    device: int

    def __len__(self) -> int:
        return len(self.row)

    def of(self, *families: str) -> NDArray[np.bool_]:
        """Which of it belongs to these families: "compute", "memory", "copy", "communication"."""
        return np.isin(self.family, [words.FAMILIES.index(family) for family in families])

    @property
    def streams(self) -> list[int]:
        return sorted(set(self.stream.tolist()))


@dataclass(frozen=True, repr=False)
class Trace:
    """A trace as NumPy columns. Times: whole nanoseconds from the first event on.

    kind: index into `KINDS`; name: index into `names`; thread: index into `threads`, (process, thread) as the
    file has them; device, stream, correlation, bytes: -1 where an event has none. Rows are ordered by start,
    and of equal starts the longer comes first, so that whoever calls stands before whom it calls.

    >>> t
    [trace, simulated (H100)] 69 events, 16 on the GPU in 1 stream(s)
    """

    source: str
    evidence: str
    names: tuple[str, ...]
    threads: tuple[tuple[object, object], ...]
    devices: tuple[str, ...]
    """Names of the machine's GPUs by number, as far as the file gives them."""
    kind: NDArray[np.int8]
    name: NDArray[np.int32]
    thread: NDArray[np.int32]
    start_ns: Ints
    end_ns: Ints
    device: NDArray[np.int32]
    stream: Ints
    correlation: Ints
    bytes: Ints
    unread: Mapping[str, int] = field(default_factory=dict)
    """Categories of events that are not read, and how many of each."""
    began: float | None = None
    """When the first event was, in seconds since 1970, as the file says; None where its clock began elsewhere."""

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def span_s(self) -> float:
        """Seconds from the first event's start to the last one's end."""
        return float(self.end_ns.max()) / 1e9 if len(self) else 0.0

    def of(self, *kinds: str) -> NDArray[np.bool_]:
        """Which rows are of these kinds: "operator", "annotation", "call", "kernel", "copy", "memset", …"""
        return np.isin(self.kind, [words.KINDS.index(kind) for kind in kinds])

    def rows(self, *kinds: str) -> list[dict[str, object]]:
        """Events of these kinds (none: all), as plain dicts; for a look, not for speed.

        Keys: name, kind, start_s, end_s, stream, bytes, correlation.
        """
        return [
            {
                "name": self.names[self.name[i]], "kind": words.KINDS[self.kind[i]],
                "start_s": self.start_ns[i].item() / 1e9, "end_s": self.end_ns[i].item() / 1e9,
                "stream": self.stream[i].item(), "bytes": self.bytes[i].item(),
                "correlation": self.correlation[i].item(),
            }
            for i in np.flatnonzero(self.of(*(kinds or words.KINDS)))
        ]  # fmt: skip

    def named(self, test: Callable[[str], bool]) -> NDArray[np.bool_]:
        """Which rows have a name for which `test(name)` is true; called once a name, not once an event."""
        return np.array([bool(test(n)) for n in self.names], bool)[self.name]

    @cached_property
    def has_gpu(self) -> bool:
        return bool(self.of(*words.WORK_KINDS).any())

    @cached_property
    def work(self) -> Work:
        """What ran on the device that did the most, with the launch of each; empty for a CPU-only trace."""
        on_device = self.of(*words.WORK_KINDS)
        device = int(np.bincount(self.device[on_device].clip(0)).argmax()) if on_device.any() else 0
        row = np.flatnonzero(on_device & (self.device.clip(0) == device))
        calls = np.flatnonzero(self.of("call") & (self.correlation >= 0))
        calls = calls[np.argsort(self.correlation[calls], kind="stable")]
        known, wanted = self.correlation[calls], self.correlation[row]
        place = np.searchsorted(known, wanted).clip(max=max(len(known) - 1, 0))
        matched = (known[place] == wanted) if len(known) else np.zeros(len(row), bool)
        launch = np.where(matched, calls[place] if len(known) else -1, -1)
        start = self.start_ns[row]
        table = np.array([
            [words.FAMILIES.index(words.family(name, kind)) for name in self.names] for kind in words.WORK_KINDS
        ])  # fmt: skip
        which = np.array([words.WORK_KINDS.index(k) if k in words.WORK_KINDS else 0 for k in words.KINDS])
        family = table[which[self.kind[row]], self.name[row]] if len(row) else np.empty(0, int)
        # A call may go on while its work runs, and the two clocks are matched to about a microsecond only: work
        # never begins before its launch.
        began, done = (
            np.minimum(np.where(launch >= 0, when[launch], start), start)
            for when in (self.start_ns, self.end_ns)
        )
        stream, end = self.stream[row], self.end_ns[row]
        return Work(row, launch, began, done, start, end, stream, family.astype(np.int64), device)

    @cached_property
    def launching(self) -> NDArray[np.bool_]:
        """Which rows are host events of a thread that launches work."""
        launched = self.work.launch_row[self.work.launch_row >= 0]
        host = self.of("annotation", "operator", "call", "python")
        return host & np.isin(self.thread, np.unique(self.thread[launched]))

    @cached_property
    def waiting(self) -> NDArray[np.bool_]:
        """Which rows are calls in which the host waits for the device.

        Synchronising calls; copies from or to pageable memory, which the host has to read, or to see filled,
        before the call returns ("CUDA Runtime API", API synchronization behavior); and launches that take long
        because the queue is full.
        """
        return self.asking | self._of_copies("Pageable") | self.held_up

    @cached_property
    def asking(self) -> NDArray[np.bool_]:
        """Which of them wait for what the device has done: synchronising calls, and copies into pageable memory."""
        return self.of("call") & self.named(call_waits) | self._of_copies("-> Pageable")

    def _of_copies(self, kind: str) -> NDArray[np.bool_]:
        """Which rows are calls that launch copies with this in their name."""
        copies, work = np.zeros(len(self), bool), self.work
        chosen = np.array([kind in name for name in self.names], bool)[self.name[work.row]]
        copies[work.launch_row[chosen & (work.launch_row >= 0)]] = True
        return copies

    @cached_property
    def held_up(self) -> NDArray[np.bool_]:
        """Which of them are launches into a full queue."""
        held = np.zeros(len(self), bool)
        rows = np.unique(self.work.launch_row[self.work.launch_row >= 0])
        rows = rows[self.end_ns[rows] - self.start_ns[rows] >= HELD_UP_NS]
        began = self.start_ns[rows]
        launches, starts = np.sort(self.work.launch_ns), np.sort(self.work.start_ns)
        depth = np.searchsorted(launches, began, "left") - np.searchsorted(starts, began, "right")
        held[rows[depth >= FULL]] = True
        return held

    def need_gpu(self, what: str) -> Work:
        """`work`, or ValueError that says what to do where the trace has none."""
        if not self.has_gpu:
            raise ValueError(
                f"{what}: {self.source} has no GPU work, only {len(self):,} host events. Record with "
                "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on a GPU, or profile a simulated one: "
                "with gpu.profile() as prof"
            )
        return self.work

    def __repr__(self) -> str:
        text = f"{len(self):,} events"
        if self.has_gpu:
            text += f", {len(self.work):,} on the GPU in {len(self.work.streams)} stream(s)"
        return f"[trace, {self.evidence}] {text}"


@dataclass(frozen=True)
class Nest:
    """start_ns, end_ns, row: pieces of time, disjoint and in order, and the innermost event in each.

    parent: for every row of the trace, the row that encloses it on its thread; -1 for none.
    """

    start_ns: Ints
    end_ns: Ints
    row: Ints
    parent: Ints

    def outermost(self, row: int, t: Trace, kind: str) -> int:
        """The outermost row of that kind around `row` (itself included); -1 for none."""
        found, at = -1, row
        while at >= 0:
            found = at if words.KINDS[t.kind[at]] == kind else found
            at = int(self.parent[at])
        return found


def nest(t: Trace, threads: Ints | None = None, kinds: tuple[str, ...] = ("operator",)) -> Nest:
    """The nesting of events of these kinds on these threads (None: all). Pieces of several threads overlap."""
    chosen = t.of(*kinds)
    if threads is not None:
        chosen &= np.isin(t.thread, threads)
    rows = np.flatnonzero(chosen)
    parent = np.full(len(t), -1, np.int64)
    pieces: list[tuple[int, int, int]] = []
    by_thread = rows[np.argsort(t.thread[rows], kind="stable")]
    cuts = np.flatnonzero(np.diff(t.thread[by_thread])) + 1
    for part in np.split(by_thread, cuts):
        _nest_thread(t, part, parent, pieces)
    table = np.array(sorted(pieces), np.int64).reshape(-1, 3)
    return Nest(table[:, 0], table[:, 1], table[:, 2], parent)


def _nest_thread(t: Trace, rows: Ints, parent: Ints, pieces: list[tuple[int, int, int]]) -> None:
    """One thread's events, already in order of start with the longer first."""
    stack: list[tuple[int, int]] = []  # (row, end), innermost last
    now = 0
    for row, start, end in zip(
        rows.tolist(), t.start_ns[rows].tolist(), t.end_ns[rows].tolist(), strict=True
    ):
        while stack and stack[-1][1] <= start:
            inner, stop = stack.pop()
            if stop > now:
                pieces.append((now, stop, inner))
                now = stop
        if stack:
            if start > now:
                pieces.append((now, start, stack[-1][0]))
            parent[row] = stack[-1][0]
            end = min(end, stack[-1][1])  # clocks are rounded: a child never outlives its parent
        now = max(now, start)
        stack.append((row, end))
    while stack:
        inner, stop = stack.pop()
        if stop > now:
            pieces.append((now, stop, inner))
            now = stop
