"""What launches moved: elements and bytes through pointers, by the names of a kernel's arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Moved:
    """elements: those that a mask let through. lanes: all of the blocks, masked ones too. bytes: of the elements. See :func:`watch`."""

    elements: int = 0
    bytes: int = 0
    lanes: int = 0

    def __add__(self, other: Moved) -> Moved:
        return Moved(self.elements + other.elements, self.bytes + other.bytes, self.lanes + other.lanes)


@dataclass(frozen=True)
class Program:
    """A kernel as it was launched, as the compiler wants it. signature: argument → "*fp32", "i32" or "constexpr"; constants:
    what the latter are; divisible: arguments that are multiples of 16, addresses among them. See :func:`compile_all`."""

    name: str
    source: str
    signature: dict[str, str]
    constants: dict[str, Any]
    divisible: tuple[str, ...]


@dataclass
class Launch:
    """One launch of a kernel. grid: programs along each axis. loads, stores: argument → what went through it. lanes: of
    all blocks that were loaded, also of those of which a mask let nothing through. raced: elements that more than one of its
    programs stored. program: the kernel as :func:`helpers.kernels.compiled` takes it.

    An atomic operation is a load and a store, and races with none. See :func:`watch`.
    """

    kernel: str
    grid: tuple[int, ...] = ()
    loads: dict[str, Moved] = field(default_factory=dict)
    stores: dict[str, Moved] = field(default_factory=dict)
    lanes: int = 0
    raced: int = 0
    program: Callable[[], Program] | None = field(default=None, repr=False, compare=False)

    @property
    def programs(self) -> int:
        many = 1
        for along in self.grid:
            many *= along
        return many


@dataclass
class Watch:
    """All launches within a block, in their order. See :func:`watch`."""

    launches: list[Launch] = field(default_factory=list)

    @property
    def loads(self) -> int:
        """Elements loaded."""
        return sum(moved.elements for launch in self.launches for moved in launch.loads.values())

    @property
    def stores(self) -> int:
        """Elements stored."""
        return sum(moved.elements for launch in self.launches for moved in launch.stores.values())

    @property
    def lanes(self) -> int:
        """Lanes of the blocks that were loaded, masked ones too."""
        return sum(launch.lanes for launch in self.launches)

    @property
    def raced(self) -> int:
        """Elements that more than one program of a launch stored."""
        return sum(launch.raced for launch in self.launches)

    @property
    def bytes(self) -> int:
        """Bytes loaded and stored."""
        both = [
            moved
            for launch in self.launches
            for way in (launch.loads, launch.stores)
            for moved in way.values()
        ]
        return sum(moved.bytes for moved in both)

    @property
    def programs(self) -> int:
        return sum(launch.programs for launch in self.launches)


#: those that are open now
_open: list[Watch] = []


@contextmanager
def watch() -> Iterator[Watch]:
    """Within this block, keep what each launch of a kernel loads and stores.

    >>> with kernels.watch() as seen:
    ...     double[(4,)](x, out, 100, BLOCK=32)
    >>> seen.programs, seen.loads, seen.stores, seen.bytes
    (4, 100, 100, 800)
    >>> seen.launches[0].loads["x"].lanes
    128
    """
    seen = Watch()
    _open.append(seen)
    try:
        yield seen
    finally:
        _open.remove(seen)


def tell(launch: Launch) -> None:
    """A launch begins: all that watch get it, and it fills while it runs."""
    for seen in _open:
        seen.launches.append(launch)
