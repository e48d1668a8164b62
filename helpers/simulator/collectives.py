"""torch.distributed on the simulated GPU: one rank of a world is run, and its collectives take the time they would.

    gpu = simulate("H100").world(64, link="NVLink 4", nodes=8, between="InfiniBand NDR")
    with gpu:
        dist.get_world_size()                            # 64
        work = dist.all_reduce(grad, async_op=True)      # returns when it is launched
        work.wait()                                      # the current stream waits; the host goes on

As with NCCL (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp) each group has a stream of its own, which waits for
the current stream when a collective is called; `wait()` makes the then current stream wait for it, and only
`barrier` makes the host wait. Sends and receives have a stream for each pair of ranks. Without `async_op` recent
PyTorch puts the kernel into the current stream itself; here it stays in the group's, and the current stream waits,
which takes as long. A collective begins when its stream is free and the last of its ranks has arrived, and takes
`World.seconds`. Two groups know nothing of each other: what they share of a link is not simulated.

Values: none, as everywhere; with `simulate(..., values=True)` every rank holds what this one holds, so that a sum is
world_size times it and a mean the same. Inside a CUDA graph's capture collectives are refused (NCCL can be captured;
that is not simulated).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from helpers.ranks.links import Link
from helpers.simulator import cost, network
from helpers.simulator.peers import Peers
from helpers.simulator.traffic import Collective, Traffic

if TYPE_CHECKING:
    from helpers.simulator.gpu import SimGPU
    from helpers.simulator.timeline import Timeline

__all__ = ["WorldNames"]


class WorldNames:
    """What more than one rank adds to SimGPU."""

    _traffic: Traffic | None
    _timeline: Timeline
    card: Any

    def _init_world(self) -> None:
        self._traffic = None

    def world(
        self, size: int, *, link: Link | str = "NVLink 4", nodes: int = 1, between: Link | str | None = None,
        algorithm: str | None = None, rank: int = 0, slow: Mapping[int, float] | None = None,
        jitter: network.Jitter = 0.0, seed: int = 0, contention: bool = True, sm_share: float | None = None,
    ) -> SimGPU:  # fmt: skip
        """This GPU as one of `size` ranks; returns it. Before its first `with gpu:`, in which torch.distributed is set up.

        link, between: what connects the ranks of a node, and the nodes: a `helpers.ranks.Link` or its name. nodes: how
        many, with size / nodes ranks each. algorithm: "ring", "tree" or, with several nodes and by default there,
        "hierarchical" (see `network`).
        rank: the one that is run. The others are scaled copies of it: each launches the same when this one does, and
        its kernels take slow[rank] times as long (1 where not given), times a jitter that is drawn anew each time the
        ranks have waited for each other: log-normal with this sigma, or what jitter(generator, size) returns.
        Collectives wait for the last of their ranks (see `peers` for what is exact in that, and what is not).
        contention: while a collective runs, kernels beside it have sm_share less of the SMs (default: 24 of 132, see
        `network.SM_SHARE`) and less of the memory's bandwidth, by what the collective reads and writes.
        ValueError for what does not fit; RuntimeError if the GPU has been used or has a world.
        """
        gpu: SimGPU = self  # type: ignore[assignment]
        if gpu._traffic is not None or gpu._thread is not None:
            raise RuntimeError("gpu.world() is said once, before the first `with gpu:`")
        made = network.world(
            size, link, nodes, between, algorithm, rank, slow, jitter, seed, contention, sm_share
        )
        gpu._traffic = Traffic(gpu, made)
        gpu._timeline.squeezes = True
        if made.uneven:
            gpu._timeline.peers = Peers(made)
        return gpu

    @property
    def ranks(self) -> network.World | None:
        """The world that was declared, if one was."""
        return self._traffic.world if self._traffic is not None else None

    @property
    def collectives(self) -> list[Collective]:
        """What was communicated, in order of call."""
        return self._traffic.calls if self._traffic is not None else []

    def _beside(self, todo: cost.Work) -> Callable[[float], float] | None:
        """What a kernel takes next to a collective that takes this share of the memory's bandwidth."""
        world = self.ranks
        if world is None or not world.contention:
            return None
        return lambda share: cost.seconds(todo, self.card, 1 - world.sm_share, 1 - share)

    @contextmanager
    def _joined(self) -> Iterator[None]:
        """While active, torch.distributed is a group of the declared size with nobody else in it."""
        if self._traffic is None:
            yield
            return
        world, made = self._traffic.world, not dist.is_initialized()
        if made:
            from torch.testing._internal.distributed.fake_pg import FakeStore

            hook = sys.excepthook
            dist.init_process_group(
                "cpu:fake,meta:fake", store=FakeStore(), rank=world.rank, world_size=world.size
            )
        elif "fake" not in dist.get_backend() or (dist.get_world_size(), dist.get_rank()) != (
            world.size,
            world.rank,
        ):
            raise RuntimeError(
                f"torch.distributed is initialised already ({dist.get_backend()}, rank {dist.get_rank()} of "
                f"{dist.get_world_size()}), and this simulated GPU is rank {world.rank} of {world.size}: leave the "
                "other group first, dist.destroy_process_group()"
            )
        with self._traffic.wrapped():
            try:
                yield
            finally:
                if made:
                    if dist.is_initialized():
                        dist.destroy_process_group()
                    sys.excepthook = hook  # torch's own writes the rank before each line, and stays
