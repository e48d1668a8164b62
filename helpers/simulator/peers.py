"""The ranks that are not run: scaled copies of the one that is, kept as one number a rank and stream.

Each rank launches what this one launches, when this one launches it; its kernels take its factor times as long.
For every stream there is the moment at which each rank is done with it, moved on by the same rules as this
rank's own (a kernel begins when it is launched and what is before it is done; a wait is a maximum). A
collective begins when the last rank of its group has arrived. That is exact as long as hosts stay level: hosts
do not wait for their slower device, and engines shared by several compute streams are not worked out for each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from helpers.simulator.network import World

__all__ = ["Peers"]

Times = NDArray[np.float64]


class Peers:
    """mine: how many times as long this rank's own kernels take, now. late: this rank's and the others' factors."""

    def __init__(self, world: World) -> None:
        self._world, self._random = world, np.random.Generator(np.random.PCG64(world.seed))
        self._ready: dict[int, Times] = {}
        self._worked = False
        self.factors = world.factors(self._random)

    @property
    def mine(self) -> float:
        return float(self.factors[self._world.rank])

    def ran(self, lane: int, arrival_ns: int, duration_ns: int) -> None:
        """This rank put a kernel of that length into a stream."""
        ready = self._of(lane)
        np.maximum(ready, arrival_ns, out=ready)
        ready += duration_ns / self.mine * self.factors
        self._worked = True

    def mark(self, lane: int, arrival_ns: int) -> Times:
        """When each rank passes the stream's end as it is now."""
        return np.maximum(self._of(lane), arrival_ns)

    def wait(self, lane: int, mark: Times) -> None:
        """The stream waits for a mark. After work, a rank's next pieces have another jitter."""
        ready = self._of(lane)
        np.maximum(ready, mark, out=ready)

    def meet(self, lane: int, ranks: tuple[int, ...], arrival_ns: int, length_ns: int) -> int:
        """A collective in that stream: when the last of its ranks is there. arrival_ns: this rank's own."""
        there = self._of(lane)
        there[self._world.rank] = arrival_ns
        members = list(ranks)
        start = max(arrival_ns, round(float(there[members].max())))
        there[members] = start
        there += length_ns  # other groups do the same among themselves, and wait for nobody here
        return start

    def level(self) -> None:
        """This rank has waited for a collective: draw the jitter of what comes next."""
        if self._worked and self._world.jitter:
            self.factors = self._world.factors(self._random)
        self._worked = False

    def _of(self, lane: int) -> Times:
        if lane not in self._ready:
            self._ready[lane] = np.zeros(self._world.size)
        return self._ready[lane]
