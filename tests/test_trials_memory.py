"""The claims on trial of lessons 08 and 09 that stand in no lesson's cell: each runs, and comes to the verdict that its text says."""

from collections.abc import Callable

import pytest

from helpers import lesson
from helpers.lessons.memory_pools import claims as memory_pools
from helpers.lessons.saving_memory import claims as saving_memory

VERDICTS = {
    "08-nccl": "untested",
    "08-pool-allocator": "refuted",
    "08-fraction": "refuted",
    "08-monitor": "partly",
    "09-batchnorm": "refuted",
    "09-checkpoint-compute": "partly",
    "09-book-checkpoint": "refuted",
    "09-book-offload": "refuted",
    "09-host-memory": "confirmed",
    "09-memory-first": "partly",
}
CLAIMS: list[Callable[[], lesson.Claim]] = [
    memory_pools.nccl,
    memory_pools.pool_allocator,
    memory_pools.fraction,
    memory_pools.monitor,
    saving_memory.batchnorm,
    saving_memory.checkpoint_compute,
    saving_memory.book_checkpoint,
    saving_memory.book_offload,
    saving_memory.host_memory,
    saving_memory.memory_first,
]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__)
def test_a_claim_returns_its_row(claim: Callable[[], lesson.Claim]) -> None:
    row = claim()
    assert row.verdict.startswith(VERDICTS[row.id]), row
