"""Lesson 04's room: the queue's arithmetic, real loaders watched, files read, pictures; and its claims on trial."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from helpers import lesson
from helpers.lessons.data_loading import claims, exercises, experiments

# more workers than cores are what the lesson is about
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.mark.parametrize(("workers", "ms"), [(0, 40), (1, 30), (2, 15), (3, 10), (4, 10)])
def test_a_step_is_as_long_as_the_slower_side_needs(workers: int, ms: float) -> None:
    assert experiments.mean_step([30] * 601, 10, workers) == ms


def test_batches_are_taken_in_order_and_requested_no_earlier_than_the_queue_allows() -> None:
    loads, workers, prefetch, step = [144 if b % 8 == 0 else 8 for b in range(80)], 3, 2, 10.0
    batches = experiments.queue(loads, step, workers, prefetch)
    for b, (before, after) in enumerate(itertools.pairwise(batches), 1):
        assert after.taken >= max(after.ended, before.taken + step) - 1e-9
        assert after.ended - after.begun == pytest.approx(loads[b])
    for b, batch in enumerate(batches[workers * prefetch :], workers * prefetch):
        assert batch.begun >= max(batches[b - workers * prefetch].taken, batches[b - workers].ended)


def test_deeper_queues_help_uneven_loads_only() -> None:
    assert experiments.mean_step([30] * 601, 10, 2, 8) == experiments.mean_step([30] * 601, 10, 2)
    by_depth = [experiments.mean_step(claims.UNEVEN, 10, 3, p) for p in (1, 2, 4, 8)]
    assert all(a > b for a, b in itertools.pairwise(by_depth))


def test_real_workers_take_turns_and_their_batches_lie_in_shared_memory() -> None:
    found = experiments.hand_out(2)
    assert found == experiments.HandedOut(2, 4, (0, 1) * 6, True)
    assert experiments.hand_out_table(found).rows[1] == ("worker 1", "1, 3, 5, …", "1, 3")


def test_an_epoch_reads_each_byte_once() -> None:
    files = experiments.ImageFiles(count=64, size=16)
    for way, count in {"one by one": 64, "in blocks": 2}.items():
        reads = files.epoch(way)
        assert len(reads) == count and sum(size for _, size in reads) == files.pixels.nbytes
        assert len({offset for offset, _ in reads}) == count
    assert np.fromfile(files.packed, np.uint8).tolist() == files.pixels.ravel().tolist()
    assert experiments.read_order({way: files.epoch(way) for way in ("one by one", "in blocks")}).png()


def test_padding_is_what_is_left_of_a_batch() -> None:
    assert experiments.useful(np.full(128, 8)) == 1
    assert experiments.useful(np.array([1] * 63 + [8])) == (63 + 8) / (64 * 8)
    assert experiments.useful(np.full(64, 1)) == 1 / 8


@pytest.mark.parametrize("sizes", [(7,), (4, 3), (3, 2, 2)])
def test_so_many_steps_alike_are_no_likelier_by_chance_than_the_judge_of_shared_says(
    sizes: tuple[int, ...],
) -> None:
    ends = [0, *itertools.accumulate(sizes)]
    inside = [i for a, b in itertools.pairwise(ends) for i in range(a, b - 1)]
    most = [
        max(Counter(order[i + 1] - order[i] for i in inside).values())
        for order in itertools.permutations(range(7))
    ]
    for same in range(1, len(inside) + 1):
        share = sum(m >= same for m in most) / len(most)
        assert 0 < share <= exercises.by_chance(7, len(inside), same)


def test_each_claim_has_its_row() -> None:
    handed_out = experiments.HandedOut(3, 6, (0, 1, 2) * 4, True)
    rows = claims.on_trial(handed_out, {"hard disk": 229.0}, {"hard disk": 22.3})
    table = lesson.verdicts(rows, evidence="live (CPU) · arithmetic")
    assert len(table.claims) == len(rows)
    assert {row.id: row.verdict.partition(":")[0] for row in rows} == {
        "04-four-per-gpu": "partly",
        "04-imagefolder": "refuted",
        "04-iops": "partly",
        "04-mmap": "partly",
        "04-prefetch": "confirmed",
        "04-shared-memory": "confirmed",
    }
