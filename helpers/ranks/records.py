"""What one rank sent, as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from helpers.text.tables import ShownAsTable, Table, table


@dataclass(frozen=True)
class Call:
    """One collective or point-to-point call of one rank.

    kind: ``all_reduce``, ``all_gather``, ``reduce_scatter``, ``broadcast``, ``reduce``, ``all_to_all``,
        ``gather``, ``scatter``, ``send``, ``recv`` or ``barrier``, by whatever function it was made.
    bytes: the payload, as nccl-tests counts it: of all_gather and gather the whole result, of reduce_scatter,
        scatter and all_to_all the whole input, else the tensor. :func:`helpers.ranks.wire_bytes` says what of
        it crosses a link.
    group: the global ranks that take part. peer: the other side of a send or recv, the root of a broadcast,
        reduce, gather or scatter (a global rank; None: there is none, or anyone).
    reduction: ``sum``, ``avg``, … where there is one. shapes, dtype: of the tensors given.
    asynchronous: the caller was handed something to wait for. DDP and functional collectives always are.
    phase: ``backward`` while autograd ran in this thread, ``thread`` in a thread other than the recorder's (a
        future's callback), else ``forward``.
    passes: how many backward passes had begun.
    reached: how many gradients of the watched parameters autograd had come to when the call was made, the one
        at hand included. at: the parameter whose gradient was at hand, else the autograd node, else the
        module that was running ("" for none).
    waited: ``reached``, as it stood when someone began to wait for the call; None: nobody was seen to (DDP
        waits in C++, when backward ends).
    operator: what torch dispatched. See :func:`sent`.
    """

    index: int
    kind: str
    bytes: int
    group: tuple[int, ...]
    peer: int | None = None
    reduction: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = ""
    asynchronous: bool = False
    phase: str = "forward"
    passes: int = 0
    reached: int = 0
    at: str = ""
    waited: int | None = None
    operator: str = ""


@dataclass(repr=False)
class Record(ShownAsTable):
    """What one rank sent while it was recorded: ``calls`` in order, ``gradients`` by name in the order
    reached, ``passes``: how many of them had been reached by the end of each backward pass.

    Filled when the block of :func:`helpers.ranks.sent` ends. Plain data: a rank can return it. See :func:`sent`.
    """

    rank: int = 0
    world_size: int = 1
    fake: bool = False
    calls: list[Call] = field(default_factory=list)
    gradients: list[str] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)

    def of(self, *kinds: str) -> list[Call]:
        """The calls of these kinds; without any, all calls but barriers."""
        return [c for c in self.calls if (c.kind in kinds if kinds else c.kind != "barrier")]

    def count(self, *kinds: str) -> int:
        """How many calls of these kinds."""
        return len(self.of(*kinds))

    def bytes(self, *kinds: str) -> int:
        """The payload of all calls of these kinds, in bytes."""
        return sum(c.bytes for c in self.of(*kinds))

    def wire_bytes(self, algorithm: str = "ring", *kinds: str) -> float:
        """Bytes that the calls of these kinds put on the busiest rank's link; see :func:`helpers.ranks.wire_bytes`."""
        from .costs import wire_bytes

        return sum(wire_bytes(c.kind, c.bytes, len(c.group), algorithm) for c in self.of(*kinds))

    def overlapped(self) -> list[Call]:
        """The calls that the rest of their backward pass could hide: made before its last gradient was come to, and
        not waited for before the next one was."""
        sent = [c for c in self.of() if c.phase != "forward" and c.passes]
        early = [c for c in sent if c.reached < self.passes[c.passes - 1]]
        return [c for c in early if c.waited is None or c.waited > c.reached]

    def as_dict(self) -> dict[str, Any]:
        """Plain data: ``calls`` as dicts, and the totals by kind."""
        kinds = list(dict.fromkeys(c.kind for c in self.calls))
        return asdict(self) | {
            "counts": {k: self.count(k) for k in kinds},
            "bytes": {k: self.bytes(k) for k in kinds},
            "overlapped": len(self.overlapped()),
        }

    def table(self) -> Table:
        """A line a call."""
        rows = [self._row(c) for c in self.calls]
        columns = ["call", "kind", "payload (bytes)", "ranks", "peer", "", "when", "gradients reached"]
        where = "simulated (fake group)" if self.fake else "live (CPU)"
        note = f"rank {self.rank} of {self.world_size}: {self.count()} calls, {self.bytes():,} bytes"
        return table(rows, columns, evidence=where, caption=note)

    def _row(self, c: Call) -> list[Any]:
        kind, peer = (
            c.kind + (f" ({c.reduction})" if c.reduction else ""),
            "" if c.peer is None else str(c.peer),
        )
        when = "async" if c.asynchronous else "waits", c.phase + (f": {c.at}" if c.at else "")
        reached = f"{c.reached} of {len(self.gradients)}" if self.gradients else ""
        return [str(c.index), kind, c.bytes, len(c.group), peer, *when, reached]
