"""The clocks: one host, its streams, and the engines that they share. Only whole nanoseconds, no tensors.

Launching puts work into a stream's queue and moves the host on by the cost of launching. Work starts when
all of these are true: the launch has arrived, the stream's earlier work is done, and its engine is free.
The host waits only in `drain`, `wait_until`, and where a queue is full. Every start is known at launch,
since nothing later can delay earlier work.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from helpers.simulator.devices import Device
from helpers.simulator.races import Races

_BEGIN, _END = itemgetter(0), itemgetter(1)


class Kernel(NamedTuple):
    """One piece of work on the device. kind: "kernel", "copy h2d", "copy d2h" or "collective". Times: simulated clock."""

    name: str
    kind: str
    stream: int
    launch_ns: int
    start_ns: int
    end_ns: int
    flops: int = 0
    bytes: int = 0
    call: int = -1  # place in the host's records of the call that launched it
    pageable: bool = False  # copies: the host's side is not pinned
    blocking: bool = True  # copies: the program asked for the host to wait
    graph: int = 0  # number of the graph replay it was part of; 0: launched by itself

    @property
    def duration_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


class Host(NamedTuple):
    """What the host did. kind: "operator", "work", "warm-up", or a wait: "sync", "queue full"."""

    name: str
    kind: str
    start_ns: int
    end_ns: int

    @property
    def duration_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


@dataclass
class Engine:
    """A part of the device that does one thing at a time, whichever stream it came from."""

    busy: list[tuple[int, int]] = field(default_factory=list)  # (start, end): sorted, disjoint, none touch

    def book(self, earliest: int, duration: int, now: int) -> int:
        """Take the first gap of `duration` from `earliest` on. What ended by `now` is forgotten."""
        start = earliest
        for begin, end in self.busy[self._after(earliest, now) :]:
            if start + duration <= begin:
                break
            start = max(start, end)
        self._takes(start, start + duration)
        return start

    def squeeze(self, earliest: int, lasts: Callable[[int], int], now: int) -> tuple[int, int]:
        """Take it as soon as it is free, and go on around what is booked for later: (start, end). lasts: a start → how
        long. A device gives its blocks out as they come: a kernel does not wait for one that is not there yet."""
        start, place = earliest, self._after(earliest, now)
        if place < len(self.busy) and self.busy[place][0] <= start:
            start, place = self.busy[place][1], place + 1
        until, behind = start + lasts(start), place
        while behind < len(self.busy) and self.busy[behind][0] < until:
            begin, end = self.busy[behind]
            until, behind = until + end - begin, behind + 1
        del self.busy[place:behind]
        self._takes(start, until)
        return start, until

    def cut_in(self, earliest: int, lasts: Callable[[int], int], now: int) -> tuple[int, int]:
        """Take it at once, whoever has it: (start, end). A stream of high priority gets the next blocks that come free.
        The ends of what is booked are known and stay: what it loses, the next free time pays."""
        start, until = earliest, earliest + lasts(earliest)
        later = self.busy[self._after(earliest, now) :]
        lost = sum(max(0, min(end, until) - max(begin, start)) for begin, end in later)
        self._takes(start, until)
        if lost:
            self.squeeze(until, lambda _: lost, now)
        return start, until

    def _after(self, when: int, now: int) -> int:
        """Forget what ended by `now`; the place of the first span that ends after `when`."""
        # By halving: a host that runs ahead leaves hundreds of spans, and every launch comes through here.
        del self.busy[: bisect_right(self.busy, now, key=_END)]
        return bisect_right(self.busy, when, key=_END)

    def _takes(self, start: int, until: int) -> None:
        """Add a span, and join what touches."""
        first, last = bisect_left(self.busy, start, key=_END), bisect_right(self.busy, until, key=_BEGIN)
        if first < last:
            start, until = min(start, self.busy[first][0]), max(until, self.busy[last - 1][1])
        self.busy[first:last] = [(start, until)]


class Sharing:
    """When collectives run: (start, end, share of the memory bandwidth), sorted and disjoint.

    While NCCL's blocks hold a share of the SMs, a kernel computes with the rest; while it reads what it sends and
    writes what arrives, a kernel has the rest of the memory bandwidth. Which of the two slows a kernel down is the
    roofline's business. The collective itself is not slowed: its blocks stay where they are, and its link is slower
    than the memory.
    """

    def __init__(self) -> None:
        self._spans: list[tuple[int, int, float]] = []

    def add(self, start: int, end: int, share: float, now: int) -> None:
        """A collective runs in between. Where another one runs already, that one's share holds."""
        self._spans = [span for span in self._spans if span[1] > now]
        pieces = []
        for begin, until, _ in self._spans:
            if until > start and begin < end:
                if begin > start:
                    pieces.append((start, begin, share))
                start = max(start, until)
        if start < end:
            pieces.append((start, end, share))
        self._spans = sorted(self._spans + pieces)

    def __bool__(self) -> bool:
        return bool(self._spans)

    def lengths(self, alone_ns: int, factor: Callable[[float], float]) -> Callable[[int], int]:
        """How long a kernel takes, by when it starts. factor: share of the bandwidth gone → how many times as long."""

        def length(start: int) -> int:
            left, now = float(alone_ns), float(start)  # what is left, in time alone
            for begin, until, share in self._spans:
                if until <= now:
                    continue
                if now + left <= begin:
                    break
                left -= max(0.0, begin - now)
                now, slower = max(now, float(begin)), factor(share)
                if now + left * slower <= until:
                    return round(now + left * slower) - start
                left -= (until - now) / slower
                now = float(until)
            return round(now + left) - start

        return length


@dataclass
class Lane:
    """One stream's queue. ready_ns: when everything put into it so far is done."""

    number: int
    ready_ns: int = 0
    priority: int = 0
    capture: Any = None  # the graph capture (graphs.Capture) that this stream's work goes into
    pending: deque[int] = field(default_factory=deque)  # end times of what may not be finished yet


class Mark(NamedTuple):
    """A place in a stream. time_ns: when it is passed; knows: what is done by then (a vector clock); inside
    a graph capture: which one, and the nodes that come before."""

    time_ns: int
    knows: list[int]
    capture: Any = None
    after: tuple[int, ...] = ()
    peers: Any = None  # when the other ranks pass it, where they differ


class Node(NamedTuple):
    """A kernel or copy inside a graph. after: the nodes it waits for; stream: None for the launching one."""

    name: str
    kind: str
    seconds: float
    stream: int | None
    after: tuple[int, ...]
    flops: int = 0
    bytes: int = 0
    pageable: bool = False
    blocking: bool = True


class Timeline:
    """The host clock, and what host and device did. noise: sigma of a log-normal factor on durations."""

    def __init__(self, card: Device, noise: float = 0.0, seed: int = 0) -> None:
        self.card, self._latency_ns = card, round(card.assumptions.launch_latency_s * 1e9)
        self.host_ns = 0
        self.kernels: list[Kernel] = []
        self.host: list[Host] = []
        self.lanes = [Lane(0)]
        self.engines = {kind: Engine() for kind in ("kernel", "copy h2d", "copy d2h")}
        self._noise, self._random = noise, np.random.Generator(np.random.PCG64(seed))
        self._warm: set[object] = set()
        self.races = Races(lambda race: self.faults.append(str(race)))
        self.faults: list[str] = []
        self.capture: Any = None  # the capture that is under way
        self.launches = 0  # calls that put work into a queue; one for a whole graph
        self.started = 0  # pieces of work, captured ones included
        self.sharing = Sharing()  # when collectives run beside kernels
        self.peers: Any = None  # the ranks that are slower or faster (world.network.Peers), if any are
        self.squeezes = False  # with a world: who waits for the network does not hold up those that need not

    def new_lane(self) -> Lane:
        self.lanes.append(Lane(len(self.lanes)))
        self.races.new_lane()
        return self.lanes[-1]

    def mark(self, lane: Lane) -> Mark:
        """The end of a stream as it is now."""
        # On an idle stream the mark is passed as soon as it arrives: the gap until the next launch counts too.
        time_ns, knows = max(lane.ready_ns, self.arrival_ns), self.races.mark(lane.number)
        if lane.capture is not None:
            return Mark(time_ns, knows, lane.capture, lane.capture.frontier(lane))
        peers = self.peers.mark(lane.number, self.arrival_ns) if self.peers is not None else None
        return Mark(time_ns, knows, peers=peers)

    def wait(self, lane: Lane, mark: Mark) -> None:
        """What is put into the stream from now on waits for the mark."""
        if mark.capture is not None or lane.capture is not None:
            joined = (mark.capture or lane.capture).joins(lane, mark)
        else:
            lane.ready_ns, joined = max(lane.ready_ns, mark.time_ns), True
            if self.peers is not None and mark.peers is not None:
                self.peers.wait(lane.number, mark.peers)
        if joined:
            self.races.waits(lane.number, mark.knows)

    def spend(self, name: str, kind: str, seconds: float) -> None:
        """The host is busy with something."""
        self._until(name, kind, self.host_ns + self._ns(seconds))

    def warm_up(self, key: object, name: str, seconds: float) -> None:
        """Spend it the first time this key is seen, and never again."""
        if key not in self._warm:
            self._warm.add(key)
            self.spend(name, "warm-up", seconds)

    def enqueue(
        self, name: str, lane: Lane, seconds: float, kind: str = "kernel", flops: int = 0, nbytes: int = 0,
        pageable: bool = False, blocking: bool = True, beside: Callable[[float], float] | None = None,
    ) -> None:  # fmt: skip
        """Launch work that takes `seconds` on the device; returns at once unless the queue is full.

        beside: what it takes next to a collective that has this share of the memory bandwidth (None: the same).
        """
        self.started += 1
        self.races.launched(lane.number)
        work = Node(name, kind, seconds, None, (), flops, nbytes, pageable, blocking)
        if self.capture is not None and self.capture.takes(lane, work):
            return
        self._room(name, lane)
        duration = self._ns(seconds)
        earliest = max(self.arrival_ns, lane.ready_ns)
        if self.peers is not None and kind == "kernel":
            duration = round(duration * self.peers.mine)
            self.peers.ran(lane.number, self.arrival_ns, duration)
        lasts: Callable[[int], int] = lambda start: duration  # noqa: E731
        if beside is not None and self.sharing:
            lasts = self.sharing.lengths(duration, lambda share: beside(share) / seconds)
        # A kernel at the floor leaves most of the device free: such kernels run beside each other. One that
        # computes or streams for longer has the device to itself, and a second stream cannot speed it up.
        alone = kind != "kernel" or seconds > self.card.assumptions.kernel_floor_s
        if alone and kind == "kernel" and self.squeezes and lane.priority < 0:
            start, end = self.engines[kind].cut_in(earliest, lasts, self.host_ns)
        elif alone and kind == "kernel" and self.squeezes:
            start, end = self.engines[kind].squeeze(earliest, lasts, self.host_ns)
        elif alone:
            start = self.engines[kind].book(earliest, duration, self.host_ns)
            end = start + duration
        else:
            start, end = earliest, earliest + lasts(earliest)
        self._ran(work, lane.number, start, end)
        lane.ready_ns = end
        lane.pending.append(end)

    def _ran(self, work: Node, stream: int, start: int, end: int, graph: int = 0) -> Kernel:
        """Keep what a call of the host, the last one, put into a stream now."""
        call, how = len(self.host) - 1, (work.pageable, work.blocking, graph)
        done = Kernel(
            work.name, work.kind, stream, self.host_ns, start, end, work.flops, work.bytes, call, *how
        )
        self.kernels.append(done)
        return done

    def communicate(
        self, name: str, lane: Lane, seconds: float, nbytes: int, ranks: tuple[int, ...], memory_share: float | None,
    ) -> tuple[Kernel, int]:  # fmt: skip
        """A collective into a stream, and when the last of its ranks has arrived. memory_share: what it takes of the
        bandwidth of kernels beside it (None: it is in nobody's way)."""
        self.started += 1
        self.races.launched(lane.number)
        self._room(name, lane)
        length, arrival = self._ns(seconds), max(self.arrival_ns, lane.ready_ns)
        start = arrival
        if self.peers is not None:
            start = self.peers.meet(lane.number, ranks, arrival, length)
        end = start + length
        if memory_share is not None:  # NCCL's blocks sit on their SMs from the start, and wait there
            self.sharing.add(arrival, end, memory_share, self.host_ns)
        lane.ready_ns = end
        lane.pending.append(end)
        work = Node(name, "collective", seconds, None, (), 0, nbytes)
        return self._ran(work, lane.number, arrival, end), start

    def _room(self, name: str, lane: Lane) -> None:
        """One more launch: wait if the stream's queue is full."""
        self.launches += 1
        while lane.pending and lane.pending[0] <= self.host_ns:
            lane.pending.popleft()
        if len(lane.pending) >= self.card.assumptions.queue_depth:
            self._until(name, "queue full", lane.pending.popleft())

    def run_graph(self, name: str, lane: Lane, nodes: Sequence[Node], number: int) -> None:
        """One launch for the whole graph: each node starts when those it depends on are done."""
        self.started += 1
        self.races.launched(lane.number)
        self._room(name, lane)
        floor = self.card.assumptions.kernel_floor_s
        begin, ends = max(self.arrival_ns, lane.ready_ns), list[int]()
        for node in nodes:
            earliest = max((ends[i] for i in node.after), default=begin)
            duration = self._ns(node.seconds)
            alone = node.kind != "kernel" or node.seconds > floor
            start = self.engines[node.kind].book(earliest, duration, self.host_ns) if alone else earliest
            ends.append(start + duration)
            on = lane.number if node.stream is None else node.stream
            self._ran(node, on, start, ends[-1], number)
        lane.ready_ns = max([begin, *ends])
        lane.pending.append(lane.ready_ns)

    @property
    def arrival_ns(self) -> int:
        """When a call that the host makes now reaches an idle device."""
        return self.host_ns + self._latency_ns

    def wait_until(self, name: str, when_ns: int) -> None:
        """The host blocks until the device has reached that moment: a synchronisation, even if it is past."""
        self._until(name, "sync", max(self.host_ns, when_ns) + self._ns(self.card.assumptions.sync_s))

    def drain(self, name: str, lane: Lane | None = None) -> None:
        """The host blocks until a stream, or every stream, has finished."""
        if self.capture is not None and self.capture.refuses_wait(name, lane):
            return
        self.wait_until(name, max(x.ready_ns for x in ([lane] if lane else self.lanes)))
        self.races.drained(lane.number if lane else None)

    def _until(self, name: str, kind: str, end_ns: int) -> None:
        begin, self.host_ns = self.host_ns, max(self.host_ns, end_ns)
        self.host.append(Host(name, kind, begin, self.host_ns))

    def _ns(self, seconds: float) -> int:
        factor = float(np.exp(self._noise * self._random.standard_normal())) if self._noise else 1.0
        return round(seconds * factor * 1e9)
