"""What a collective costs by formula: bytes on the wire, and seconds in the α–β model.

n ranks, payload S bytes (as nccl-tests counts it, see :class:`Call`), a link with latency α seconds a message
and B bytes a second in each direction, which every rank has for itself. Time = steps · α + bytes on the
busiest rank's link / B. Adding up is free; nothing else uses the links. Sources of the formulas:

[Thakur] R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
    IJHPCA 19(1), 2005, 49–66, doi.org/10.1177/1094342005051521. The costs as its authors left them in MPICH's
    source were read (src/mpi/coll/{allgather,allreduce,bcast,reduce,alltoall,scatter}), not the article
    itself.
[Patarasuk] P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
    JPDC 69(2), 2009, 117–124, doi.org/10.1016/j.jpdc.2008.09.002: the ring sends 2 S (n − 1)/n, and no
    all-reduce can send less (its abstract was read).
[nccl-tests] github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md: payload, and the factors of "bus bandwidth".
[NCCL] github.com/NVIDIA/nccl, src/graph/tuning.cc: how NCCL itself predicts; steps of the ring, bytes and
    steps of its (double binary) tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .links import LINKS, Link

#: bytes that the busiest rank sends, (payload, n) → bytes; and steps one after the other, n → number
_Cost = tuple[Callable[[int, int], float], Callable[[int], int]]


def _lg(n: int) -> int:
    return math.ceil(math.log2(n))


def _sharded(payload: int, n: int) -> float:
    return payload * (n - 1) / n


_ring: dict[str, _Cost] = {
    "all_reduce": (lambda s, n: 2 * s * (n - 1) / n, lambda n: 2 * (n - 1)),  # [Patarasuk], [NCCL]
    "all_gather": (_sharded, lambda n: n - 1),  # [Thakur] ring
    "reduce_scatter": (_sharded, lambda n: n - 1),
    # in pieces along the ring, one behind the other: each rank passes the whole on once
    "broadcast": (lambda s, n: s, lambda n: n - 1),  # [nccl-tests], [NCCL]
    "reduce": (lambda s, n: s, lambda n: n - 1),
    "all_to_all": (_sharded, lambda n: n - 1),  # [Thakur] pairwise exchange
    "gather": (_sharded, lambda n: n - 1),  # [Thakur] linear; what the root takes in
    "scatter": (_sharded, lambda n: n - 1),
}
_tree: dict[str, _Cost] = {
    # up one binary tree and down again, in pieces; half of the data in each of two trees, so that no rank is
    # a leaf twice
    "all_reduce": (lambda s, n: 2 * s, lambda n: 2 * _lg(n)),  # [NCCL]
    "broadcast": (lambda s, n: s * _lg(n), _lg),  # [Thakur] binomial tree, in one piece: what the root sends
    "reduce": (lambda s, n: s * _lg(n), _lg),
    "gather": (_sharded, _lg),
    "scatter": (_sharded, _lg),
}
_star: dict[str, _Cost] = {
    # everything through one rank, which has one link: DataParallel's way, and a parameter server's
    "all_reduce": (lambda s, n: (n - 1) * s, lambda n: 2 * (n - 1)),
    "all_gather": (lambda s, n: (n - 1) * s, lambda n: 2 * (n - 1)),
    "reduce_scatter": (lambda s, n: (n - 1) * s, lambda n: 2 * (n - 1)),
    "broadcast": (lambda s, n: (n - 1) * s, lambda n: n - 1),
    "reduce": (lambda s, n: (n - 1) * s, lambda n: n - 1),
    "gather": (_sharded, lambda n: n - 1),
    "scatter": (_sharded, lambda n: n - 1),
}
#: algorithm → what it can do. Bytes are the busiest rank's.
ALGORITHMS: dict[str, dict[str, _Cost]] = {"ring": _ring, "tree": _tree, "star": _star}
#: these are the same whatever the algorithm: kind → bytes, steps
_PLAIN: dict[str, _Cost] = {
    "send": (lambda s, n: s, lambda n: 1),
    "recv": (lambda s, n: 0, lambda n: 1),  # the sender pays
    "barrier": (lambda s, n: 0, lambda n: _lg(n)),
}


def wire_bytes(kind: str, payload: int, n: int, algorithm: str = "ring") -> float:
    """Bytes that the busiest of ``n`` ranks puts on its link (takes off it, of gather and reduce by a star).

    kind: as in ``Call.kind``. payload: bytes, as in ``Call.bytes``. algorithm: a key of :data:`ALGORITHMS`.
    ValueError for an unknown kind or algorithm, or one that does not go with the other.

    >>> ranks.wire_bytes("all_reduce", 1000, 4), ranks.wire_bytes("all_gather", 1000, 4, "star")
    (1500.0, 3000.0)
    >>> sorted(ranks.ALGORITHMS)
    ['ring', 'star', 'tree']
    """
    return 0.0 if n == 1 else float(_cost(kind, algorithm, n)[0](payload, n))


def steps(kind: str, n: int, algorithm: str = "ring") -> int:
    """Messages that follow one another: what latency is paid for."""
    return 0 if n == 1 else _cost(kind, algorithm, n)[1](n)


def seconds(kind: str, payload: int, n: int, link: Link | str, algorithm: str = "ring") -> float:
    """The α–β model's time: ``steps · latency + bytes / bandwidth``.

    link: one of :data:`LINKS`, or its name. ``recv`` takes as long as the ``send`` at its other end.

    >>> f"{ranks.seconds('all_reduce', 2**30, 8, ranks.LINKS['NVLink 4']):.2e}"
    '4.22e-03'
    """
    wire = LINKS[link] if isinstance(link, str) else link
    kind = "send" if kind == "recv" else kind
    waits = steps(kind, n, algorithm) * wire.latency_s
    return waits + wire_bytes(kind, payload, n, algorithm) / wire.bytes_per_s


def _cost(kind: str, algorithm: str, n: int) -> _Cost:
    if n < 1:
        raise ValueError(f"a group has at least one rank, got {n}")
    if kind in _PLAIN:
        return _PLAIN[kind]
    if algorithm not in ALGORITHMS:
        raise ValueError(f"no algorithm {algorithm!r}; there are {', '.join(ALGORITHMS)}")
    if kind not in ALGORITHMS[algorithm]:
        known = [name for name, kinds in ALGORITHMS.items() if kind in kinds]
        goes, kinds = f"{kind} goes by {', '.join(known)}", f"kinds are {', '.join([*_ring, *_PLAIN])}"
        hint = f"; {goes if known else kinds}"
        raise ValueError(f"{kind!r} does not go by {algorithm!r}{hint}")
    return ALGORITHMS[algorithm][kind]
