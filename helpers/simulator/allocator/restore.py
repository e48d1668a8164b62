"""Put an allocator into a given state: segments with the blocks that are in use in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

from helpers.simulator.allocator.blocks import DEFAULT_POOL, Block, FreeList, PoolId, Segment
from helpers.simulator.allocator.conf import SMALL_SEGMENT
from helpers.simulator.allocator.core import Core, PrivatePool

__all__ = ["Held", "Used", "restore"]


@dataclass
class Used:
    """A block that is in use. pending: freed, and still used by another stream."""

    address: int
    size: int
    requested: int
    pending: bool = False


@dataclass
class Held:
    """A segment (of an expandable one: a mapped stretch); what is not in use in it is cached."""

    address: int
    size: int
    stream: int
    small: bool
    pool: PoolId = DEFAULT_POOL
    expandable: bool = False
    used: dict[int, Used] = field(default_factory=dict)  # by address

    @property
    def end(self) -> int:
        return self.address + self.size


def restore(core: Core, held: Iterable[Held], lowest: dict[tuple[int, bool, PoolId], int]) -> None:
    """Fill an empty allocator. lowest: where the addresses of an expandable segment begin, if below the first."""
    ordered = sorted(held, key=lambda h: h.address)
    for each in ordered:
        if not each.expandable:
            _chain(core, each, None)
            core.stats_.change(core.stats_.segment, each.small, 1)
    stretches = sorted((h for h in ordered if h.expandable), key=_range)
    for key, group in groupby(stretches, key=_range):
        _expandable(core, list(group), lowest.get(key))


def _range(held: Held) -> tuple[int, bool, PoolId]:
    return (held.stream, held.small, held.pool)


def _list(core: Core, held: Held) -> FreeList:
    if held.pool == DEFAULT_POOL:
        return core.small if held.small else core.large
    private = core.private.setdefault(held.pool, PrivatePool(held.pool))
    return private.small if held.small else private.large


def _chain(core: Core, held: Held, segment: Segment | None) -> list[Block]:
    """The segment's blocks, linked, in their lists, and counted."""
    pool, stats, blocks = _list(core, held), core.stats_, []
    place = held.address
    core.driver.used += held.size
    core._grow(held.small, held.size)
    if held.pool in core.private:
        core.private[held.pool].segments += 1
    for used in [*sorted(held.used.values(), key=lambda u: u.address), None]:
        if (used.address if used else held.end) > place:
            blocks.append(Block(held.stream, (used.address if used else held.end) - place, pool, place))
        if used:
            block = Block(held.stream, used.size, pool, used.address)
            block.requested, block.allocated, block.events = (
                used.requested,
                not used.pending,
                int(used.pending),
            )
            blocks.append(block)
            place = used.address + used.size
    for left, right in zip(blocks, blocks[1:], strict=False):
        left.next, right.prev = right, left
    for block in blocks:
        block.expandable = segment
        if block.free:
            pool.add(block)
            if segment is None and block.split:
                stats.change(stats.inactive, held.small, 1)
                stats.change(stats.inactive_bytes, held.small, block.size)
            continue
        core.active[block.address] = block
        stats.taken(held.small, block.size, block.requested)
        if not block.allocated:
            stats.change(stats.allocation, held.small, -1)
            stats.change(stats.allocated, held.small, -block.size)
    return blocks


def _expandable(core: Core, stretches: list[Held], lowest: int | None) -> None:
    """One expandable segment from its mapped stretches, with unmapped blocks between and after them."""
    granularity = SMALL_SEGMENT if stretches[0].small else core.conf.large_segment
    start = min(stretches[0].address, lowest if lowest is not None else stretches[0].address)
    size = -(-(core.driver.total * 9 // 8) // granularity) * granularity
    segment = Segment(start, size, granularity)
    pool = _list(core, stretches[0])
    chain: list[Block] = []
    place = start
    for each in [*stretches, None]:
        until = each.address if each else start + size
        if until > place:
            hole = Block(stretches[0].stream, until - place, pool, place)
            hole.mapped, hole.expandable = False, segment
            pool.add_unmapped(hole)
            chain.append(hole)
        if each:
            chain += _chain(core, each, segment)
            place = each.end
    for left, right in zip(chain, chain[1:], strict=False):
        left.next, right.prev = right, left
