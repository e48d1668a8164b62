"""Who knows what of whom: vector clocks of the host and of each stream.

The host and each stream count what they did, and carry what they know of the others' counts (Lamport 1978;
Fidge and Mattern 1988). A launch knows what the host knew; an event carries its stream's knowledge to whoever
waits for it; a synchronisation carries it to the host.

PyTorch's streams are made with cudaStreamNonBlocking (c10/cuda/CUDAStream.cpp, kDefaultFlags), so that the
default stream waits for nobody and nobody for it: here it is a stream like any other.
"""

from __future__ import annotations

__all__ = ["HOST", "Clocks"]

HOST = 0  # the host's place in a clock; stream n has place n + 1


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
        agent = lane + 1
        clock = self._clocks[agent]
        if self._told_by_host[agent] != self._version:
            self._told_by_host[agent] = self._version
            _join(clock, self._clocks[HOST])
        clock[agent] += 1

    def mark(self, lane: int) -> list[int]:
        """What an event recorded in that stream now will carry."""
        clock = self._clocks[lane + 1]
        if self._told_by_host[lane + 1] != self._version:
            self._told_by_host[lane + 1] = self._version
            _join(clock, self._clocks[HOST])
        return clock.copy()

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
