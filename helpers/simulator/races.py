"""Which accesses to memory no order binds: found by happens-before, never by timing.

The host and each stream count what they did, and carry what they know of the others' counts (Lamport 1978;
Fidge and Mattern 1988). A launch knows what the host knew; an event carries its stream's knowledge to whoever
waits for it; a synchronisation carries it to the host. PyTorch's streams are made with cudaStreamNonBlocking
(c10/cuda/CUDAStream.cpp, kDefaultFlags), so that the default stream waits for nobody and nobody for it: here it is a
stream like any other.

Two accesses to one byte, at least one a write, of which neither knows the other, are a race, whether or not they
happened to overlap. An access is kept as who and when, as in FastTrack (Flanagan and Freund,
PLDI 2009), until a later one that knows it makes it irrelevant. Memory is told apart by address: who touched a
tensor that was dropped can race with who gets its memory next. Not seen: what NumPy does to an array that
shares a tensor's memory, and work in other threads.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from helpers.simulator.accesses import Access, Place, Race, accesses, advice, name_of, overlap, place
from helpers.simulator.frames import caller

# Accesses remembered of one block of memory, beyond which the oldest is forgotten: a program that goes through a block in
# so many pieces has more of them.
_KEPT = 128
HOST = 0  # the host's place in a clock; stream n has place n + 1
_REPLAY = "a graph's replay"


class Clocks:
    """One clock for the host and one for each stream; stream 0 is there from the start."""

    def __init__(self) -> None:
        self._clocks: list[list[int]] = [[0, 0], [0, 0]]
        self._told_by_host = [0, 0]  # the version of the host's clock that each stream has taken over
        self._version = 1

    def new_lane(self) -> None:
        """There is one more stream; it knows nothing yet."""
        for clock in self._clocks:
            clock.append(0)
        self._clocks.append([0] * len(self._clocks[0]))
        self._told_by_host.append(0)

    def launched(self, lane: int) -> None:
        """The host puts work into a stream: it comes after all that the host has done or waited for."""
        self._told(lane + 1)[lane + 1] += 1

    def mark(self, lane: int) -> list[int]:
        """What an event recorded in that stream now will carry."""
        return self._told(lane + 1).copy()

    def _told(self, agent: int) -> list[int]:
        """The clock of a stream that has taken over the host's."""
        clock = self._clocks[agent]
        if self._told_by_host[agent] != self._version:
            self._told_by_host[agent] = self._version
            _join(clock, self._clocks[HOST])
        return clock

    def waits(self, lane: int, carried: list[int]) -> None:
        """A stream waits for an event."""
        _join(self._clocks[lane + 1], carried)

    def host_knows(self, carried: list[int]) -> None:
        """The host has seen an event reached."""
        _join(self._clocks[HOST], carried)
        self._version += 1

    def drained(self, lane: int | None = None) -> None:
        """The host has waited for a stream, or for all of them."""
        for clock in self._clocks[1:] if lane is None else [self._clocks[lane + 1]]:
            self.host_knows(clock)

    def _host_acts(self) -> None:
        self._clocks[HOST][HOST] += 1
        self._version += 1


def _join(into: list[int], other: list[int]) -> None:
    for i, value in enumerate(other):
        if value > into[i]:
            into[i] = value


class _Seen(NamedTuple):
    """An access as it is kept until a later one makes it irrelevant."""

    agent: int
    tick: int
    write: bool
    place: Place
    name: str
    tensor: tuple[Any, Any]  # dtype, shape
    line: str
    gone: bool  # by a tensor that has given this memory back
    home: int | None = None  # the stream whose memory it is now


@dataclass(slots=True)
class _Cell:
    """One block of memory. lent: streams for which record_stream promised that reuse will wait; private:
    handed out during a capture, from a graph's own pool; freed: given back."""

    seen: list[_Seen] = field(default_factory=list)
    lent: set[int] = field(default_factory=set)
    private: bool = False
    freed: bool = False


class Races(Clocks):
    """The clocks, and who touched what. found: the races; tell: called with each new one."""

    def __init__(self, tell: Callable[[Race], None]) -> None:
        super().__init__()
        self.found: list[Race] = []
        self._tell = tell
        self._cells: dict[int, _Cell] = {}
        self._host_cells: dict[int, _Cell] = {}
        # Memory given back: (start, end, accesses), sorted.
        self._dead: list[tuple[int, int, list[_Seen]]] = []
        self._pairs: dict[Any, Race] = {}
        self._pools: dict[Any, _Cell] = {}  # a graph's own memory, taken as one
        self._recording: list[tuple[_Cell, _Seen]] | None = None
        self.held: dict[int, Any] = {}  # the allocator's: storage → (address, ...)
        self.self_waits: set[int | None] = set()  # streams told to wait for themselves, which orders nothing
        self.pinned: Any = ()  # the host tensors that copy engines reach

    # ------------------------------------------------------------------------------------ what touches

    def operator(self, lane: int, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """The work last put into that stream was this operator."""
        self.touches(lane, name_of(func), accesses(func, args, kwargs, out))

    def touches(self, lane: int, name: str, touched: Iterable[tuple[torch.Tensor, bool]]) -> None:
        """The work last put into that stream reads these tensors, and writes those with True."""
        agent = lane + 1
        line = _line() if len(self._clocks) > 2 else ""
        last = None
        for tensor, write in touched:
            if tensor is last:  # x @ x
                continue
            last = tensor
            if tensor.is_meta:
                self._touch(self._cell(tensor), agent, write, place(tensor), name, tensor, line)
            elif tensor in self.pinned:  # a copy engine reads or writes host memory later
                self._touch(self._host_cell(tensor), agent, write, place(tensor), name, tensor, line)

    @property
    def watches_host(self) -> bool:
        """Whether a copy engine has touched host memory: else nothing that runs there can race."""
        return bool(self._host_cells)

    def on_host(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """An operator on CPU tensors runs now."""
        if not func.is_view:
            for tensor, write in accesses(func, args, kwargs, out):
                self.host_touch(name_of(func), tensor, write)

    def host_touch(self, name: str, tensor: torch.Tensor, write: bool) -> None:
        """The host reads or writes a CPU tensor, if a copy engine has ever touched it."""
        cell = self._host_cells.get(tensor.untyped_storage()._cdata)
        if cell is not None:
            self._host_acts()
            self._touch(cell, HOST, write, place(tensor), name, tensor, _line())

    def record(self) -> None:
        """A graph capture begins: keep who touches what."""
        self._recording = []

    def recorded(self) -> list[tuple[_Cell, _Seen]]:
        """What the captured kernels touched of memory that is still somebody's, each place once."""
        noted, self._recording = self._recording or [], None
        alive = {id(cell) for cells in (self._cells, self._host_cells) for cell in cells.values()}
        first: dict[Any, tuple[_Cell, _Seen]] = {}
        for cell, seen in noted:
            if id(cell) in alive:
                first.setdefault((id(cell), seen.place, seen.write), (cell, seen))
        return list(first.values())

    def touched(self, lane: int, seen: list[tuple[_Cell, _Seen]], pool: Any) -> Access | None:
        """A replayed graph touches what its kernels touched, and its memory pool. Returns an access to memory
        outside the pool that has been given back, if there is one."""
        agent, tick = lane + 1, self._clocks[lane + 1][lane + 1]
        memory = _Seen(agent, tick, True, (0, 1, None), _REPLAY, ("memory pool", pool), _line(), False)
        self._check(self._pools.setdefault(pool, _Cell()), memory)
        for cell, old in seen:
            self._check(cell, old._replace(agent=agent, tick=tick, name=f"{old.name} in {_REPLAY}"))
        return next((_access(old) for cell, old in seen if cell.freed and not cell.private), None)

    # ------------------------------------------------------------------------------ memory given again

    def lent(self, address: int, stream_number: int) -> None:
        """tensor.record_stream(stream): reuse of this memory will wait for that stream."""
        self._cells.setdefault(address, _Cell()).lent.add(stream_number + 1)

    def allocated(self, address: int, nbytes: int, stream_number: int) -> None:
        """The allocator hands out memory; who had it before comes along."""
        self._cells[address] = cell = _Cell(private=self._recording is not None)
        end, first = address + nbytes, bisect_left(self._dead, (address,))
        if first and self._dead[first - 1][1] > address:
            first -= 1
        last = first
        rest = []
        while last < len(self._dead) and self._dead[last][0] < end:
            low, high, old = self._dead[last]
            for seen in old:
                here = (max(low, address) - address, min(high, end) - address, None)
                gone = seen.agent, seen.tick, True, here, seen.name, seen.tensor, seen.line, True
                cell.seen.append(_Seen(*gone, stream_number))
            rest += [(a, b, old) for a, b in ((low, address), (end, high)) if a < b]
            last += 1
        self._dead[first:last] = rest

    def freed(self, address: int, nbytes: int) -> None:
        """Memory goes back to the allocator. Streams it was lent to need no watching: the allocator waits."""
        cell = self._cells.pop(address, None)
        if cell is None:
            return
        cell.freed = True
        # Kept also while there is one stream only: making a second one later orders nothing.
        latest: dict[int, _Seen] = {}
        for seen in cell.seen:
            known = self._clocks[HOST][seen.agent] >= seen.tick
            if not known and seen.agent not in cell.lent:
                before = latest.get(seen.agent)
                latest[seen.agent] = seen if before is None or before.tick < seen.tick else before
        if latest:
            entry = (address, address + nbytes, list(latest.values()))
            self._dead.insert(bisect_left(self._dead, entry[:1]), entry)

    # -------------------------------------------------------------------------------------------- inside

    def _cell(self, tensor: torch.Tensor) -> _Cell:
        storage = tensor.untyped_storage()
        known = self.held.get(storage._cdata)
        key = known[0] if known else -storage._cdata
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = _Cell()
            if not known:  # not the allocator's: forget it with its storage
                weakref.finalize(storage, self._cells.pop, key, None)
        return cell

    def _host_cell(self, tensor: torch.Tensor) -> _Cell:
        storage = tensor.untyped_storage()
        cell = self._host_cells.get(storage._cdata)
        if cell is None:
            cell = self._host_cells[storage._cdata] = _Cell()
            weakref.finalize(storage, self._unpinned, storage._cdata)
        return cell

    def _unpinned(self, key: int) -> None:
        """Pinned memory goes back. The allocator gives a buffer to the next user only after the copies are done
        (CachingHostAllocator records an event for each), so that its history ends here."""
        self._host_cells.pop(key).freed = True

    def _touch(
        self, cell: _Cell, agent: int, write: bool, where: Place, name: str, tensor: torch.Tensor, line: str
    ) -> None:
        tick = self._clocks[agent][agent]
        seen = _Seen(agent, tick, write, where, name, (tensor.dtype, tensor.shape), line, False)
        if self._recording is not None:
            self._recording.append((cell, seen))
        self._check(cell, seen)

    def _check(self, cell: _Cell, now: _Seen) -> None:
        """Compare with what is kept; drop what any later racer would also race `now` about."""
        clock, (low, high, parts), kept = self._clocks[now.agent], now.place, list[_Seen]()
        for seen in cell.seen:
            if clock[seen.agent] < seen.tick:  # not ordered
                if (now.write or seen.write) and overlap(seen.place, now.place):
                    self._report(seen, now)
            elif now.write or not seen.write:
                first, last, _ = seen.place
                if (parts is None and low <= first and last <= high) or seen.place == now.place:
                    continue
            kept.append(seen)
        cell.seen = [*kept[1 - _KEPT :], now]

    def _report(self, seen: _Seen, now: _Seen) -> None:
        sides = (seen.name, seen.agent, seen.line), (now.name, now.agent, now.line)
        key = (*sides, seen.gone, now.write, now.tensor)
        if key in self._pairs:
            self._pairs[key].times += 1
            return
        first, second = _access(seen), _access(now)
        if seen.gone:
            kind = "memory reused"
        else:
            kind = f"{'write' if now.write else 'read'} after {'write' if seen.write else 'read'}"
        what = advice(first, second, kind, seen.home)
        if second.stream in self.self_waits:
            what += " (A stream was told to wait for itself: in `with stream(s)`, current_stream() is s.)"
        race = Race(first, second, kind, what)
        self._pairs[key] = race
        self.found.append(race)
        self._tell(race)


def _access(seen: _Seen) -> Access:
    dtype, shape = seen.tensor
    text = f"{str(dtype).removeprefix('torch.')}{list(shape)}"
    return Access(seen.name, None if seen.agent == HOST else seen.agent - 1, text, seen.write, seen.line)


def _line() -> str:
    """The program's own line that is running."""
    frame = caller()
    if frame is None:
        return ""
    name = frame.f_code.co_name
    return f"line {frame.f_lineno}" + (f" of {name}" if name != "<module>" else "")
