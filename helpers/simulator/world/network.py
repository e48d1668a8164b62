"""The other ranks and what connects them: how long a collective takes, on one node and on many.

One level: the α–β formulas of `helpers.ranks.costs` on `link`. Several nodes, algorithm "hierarchical": inside each
node over `link`, then between the nodes over `between`, where every rank has a link of its own (a DGX H100 has a
network card for each GPU) and moves its share only: an all-reduce is a reduce-scatter inside, an all-reduce of
1/g of the data between nodes (by ring or tree, whichever is faster, as NCCL too chooses by predicted time), and an
all-gather inside (g ranks a node). With "ring" or "tree" over several
nodes there is one flat ring or tree, as slow as the slower link at every step.

The ranks that are not run are scaled copies of the one that is, kept as one number a rank and stream: each launches
what this one launches, when this one launches it, and its kernels take its factor times as long. For every stream
there is the moment at which each rank is done with it, moved on by the same rules as this rank's own (a kernel begins
when it is launched and what is before it is done; a wait is a maximum). A collective begins when the last rank of its
group has arrived. That is exact as long as hosts stay level: hosts do not wait for their slower device, and engines
shared by several compute streams are not worked out for each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from helpers.ranks.costs import ALGORITHMS, seconds, wire_bytes
from helpers.ranks.links import LINKS, Link

Times = NDArray[np.float64]

# NCCL works in thread blocks, each of which has a streaming multiprocessor (SM) to itself. 24 of an H100's 132:
# counted by Nsight Systems for an all-gather beside a matmul (forums.developer.nvidia.com/t/337991; there the
# matmul lost more than that share, since its last wave was no longer full: not simulated).
SM_SHARE = 24 / 132
_HIERARCHICAL = "hierarchical"


class World:
    """size ranks on `nodes` nodes, in order: node 0 has the first size / nodes. The rest: see `SimGPU.world`."""

    def __init__(
        self, size: int, link: Link | str = "NVLink 4", nodes: int = 1, between: Link | str | None = None,
        algorithm: str | None = None, rank: int = 0, slow: Mapping[int, float] | None = None, jitter: float = 0.0,
        seed: int = 0, contention: bool = True,
    ) -> None:  # fmt: skip
        if size < 1 or nodes < 1 or size % nodes:
            raise ValueError(f"{size} ranks on {nodes} nodes: each node has the same number, at least one")
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} of {size}: ranks are numbered from 0")
        if nodes > 1 and between is None:
            raise ValueError(f"{nodes} nodes: say what connects them, e.g. between='InfiniBand NDR'")
        algorithm = algorithm or (_HIERARCHICAL if nodes > 1 else "ring")
        known = ("ring", "tree", _HIERARCHICAL)
        if algorithm not in known:
            raise ValueError(f"no algorithm {algorithm!r}; there are {', '.join(known)}")
        for who, factor in (slow or {}).items():
            if not 0 <= who < size or not (factor > 0 and math.isfinite(factor)):
                given = f"slow={{{who}: {factor}}}"
                raise ValueError(f"{given}: a rank below {size}, and how many times as long it takes")
        if not 0 <= jitter < 2:
            raise ValueError(f"jitter is the sigma of a log-normal factor, from 0 up to 2, not {jitter}")
        self.size, self.nodes, self.rank, self.algorithm = size, nodes, rank, algorithm
        self.link, self.between = _link(link), None if between is None else _link(between)
        self.slow, self.jitter, self.seed = dict(slow or {}), jitter, seed
        self.contention = contention

    @property
    def per_node(self) -> int:
        return self.size // self.nodes

    def seconds(self, kind: str, payload: int, ranks: tuple[int, ...]) -> float:
        """Time of one collective among these ranks, once all of them are there. payload: bytes, as `ranks.Call.bytes`."""
        n = len(ranks)
        if n < 2:
            return 0.0
        on = Counter(r // self.per_node for r in ranks)
        m = len(on)
        if m == 1 or self.between is None:
            return seconds(kind, payload, n, self.link, self._algorithm(kind, "ring"))
        g = max(on.values())
        if kind in ("send", "recv") or (g == 1 and self.algorithm != _HIERARCHICAL):
            return seconds(kind, payload, n, self.between, self._algorithm(kind, "ring"))
        if self.algorithm != _HIERARCHICAL:
            slower = Link(
                "slower", min(self.link.bytes_per_s, self.between.bytes_per_s),
                max(self.link.latency_s, self.between.latency_s), "the slower of two",
            )  # fmt: skip
            return seconds(kind, payload, n, slower, self._algorithm(kind, self.algorithm))
        share = math.ceil(payload / g)
        across = self.between

        def inner(what: str, nbytes: int = payload) -> float:
            return seconds(what, nbytes, g, self.link, "ring")

        def outer(what: str, nbytes: int) -> float:
            ways = ("ring", "tree") if what == "all_reduce" else ("ring",)
            return min(seconds(what, nbytes, m, across, way) for way in ways)

        if kind == "all_reduce":
            return inner("reduce_scatter") + outer("all_reduce", share) + inner("all_gather")
        if kind in ("all_gather", "reduce_scatter"):
            return inner(kind) + outer(kind, share)
        if kind in ("all_to_all", "gather", "scatter"):
            return inner(kind, math.ceil(payload / m)) + outer(kind, payload)
        return inner(kind) + outer(kind, payload)  # broadcast, reduce, barrier

    def memory_rate(self, kind: str, payload: int, ranks: tuple[int, ...], took_s: float) -> float:
        """Bytes a second that it takes from device memory, at least: what is sent is read, what arrives is written."""
        if took_s <= 0 or len(ranks) < 2:
            return 0.0
        return 2 * wire_bytes("send" if kind == "recv" else kind, payload, len(ranks)) / took_s

    def factors(self, random: np.random.Generator) -> NDArray[np.float64]:
        """How many times as long each rank's kernels take: its own share, and the jitter drawn now."""
        base = np.ones(self.size)
        for rank, factor in self.slow.items():
            base[rank] = factor
        return base * np.exp(self.jitter * random.standard_normal(self.size)) if self.jitter else base

    @property
    def uneven(self) -> bool:
        """Whether ranks differ at all."""
        return bool(self.slow) or bool(self.jitter)

    def _algorithm(self, kind: str, wanted: str) -> str:
        wanted = self.algorithm if wanted == "ring" and self.algorithm != _HIERARCHICAL else wanted
        return wanted if kind in ALGORITHMS[wanted] else "ring"

    def __str__(self) -> str:
        inside = f"{self.size} ranks, {self.link.name}"
        if self.nodes == 1 or self.between is None:
            return inside
        return f"{inside} inside {self.nodes} nodes, {self.between.name} between"


def _link(link: Link | str) -> Link:
    if isinstance(link, Link):
        return link
    if link not in LINKS:
        known = ", ".join(LINKS)
        raise ValueError(f"no link {link!r}; there are {known}, or a helpers.ranks.Link of your own")
    return LINKS[link]


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
