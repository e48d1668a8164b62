"""What a collective takes from the kernels beside it: SMs and memory bandwidth, for as long as it runs.

While NCCL's blocks hold a share of the SMs, a kernel computes with the rest; while it reads what it sends and writes
what arrives, a kernel has the rest of the memory bandwidth. Which of the two slows a kernel down is the
roofline's business (`cost.seconds`). The collective itself is not slowed: its blocks stay where they are, and its
link is slower than the memory.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Sharing"]


class Sharing:
    """When collectives run: (start, end, share of the memory bandwidth), sorted and disjoint."""

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
