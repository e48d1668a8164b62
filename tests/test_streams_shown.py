"""Lesson 05's room: loops and programs on the simulated GPU, their tables and pictures; and its claims on trial."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from helpers import lesson
from helpers.lessons.streams_and_double_buffering import claims, experiments

PNG = b"\x89PNG\r\n\x1a\n"


def one_queue(gpu: Any, batches: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Copies in the stream that computes."""
    for batch in batches:
        yield batch.to(gpu.device, non_blocking=True)


def two_queues(gpu: Any, batches: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Copies in a stream of their own."""
    side = gpu.Stream()
    for batch in batches:
        with gpu.stream(side):
            x = batch.to(gpu.device, non_blocking=True)
        gpu.current_stream().wait_stream(side)
        x.record_stream(gpu.current_stream())
        yield x


@pytest.mark.parametrize(
    ("load", "item", "nearer"),
    [
        (one_queue, False, "sum"),
        (two_queues, False, "max"),
        (two_queues, True, "sum"),
    ],
)
def test_a_copy_hides_only_where_it_is_launched_early(
    load: experiments.Load, item: bool, nearer: str
) -> None:
    loop = experiments.run(load, item=item, steps=8)
    assert loop.nearer == nearer and not loop.races
    assert sum(k.kind == "copy h2d" for k in loop.ran) == 8


def test_a_copy_in_one_queue_runs_beside_nothing() -> None:
    ran = experiments.run(one_queue, steps=2).ran
    copy = experiments.copy_of(1.0, ran)
    assert (copy.host, copy.beside_s, copy.nbytes) == ("waits", 0, 2**26)
    assert experiments.copy_of(1e-5, ran).host == "goes on"
    both = experiments.run(two_queues, steps=2).ran
    second = [k for k in both if k.kind == "copy h2d"][1]
    products = [k for k in both if k.kind == "kernel"]
    assert experiments.copy_of(0.0, [second, *products]).beside_s > 0


def _racy(gpu: Any, side: Any, page: torch.Tensor) -> None:
    with gpu.stream(side):
        x = page.to(gpu.device, non_blocking=True)
    x.relu()


def test_programs_are_tried_and_drawn() -> None:
    gpus = {"Monday": experiments.try_program(_racy), "Tuesday": experiments.try_program(_racy)}
    assert experiments.verdict(gpus["Monday"]) == "race"
    assert experiments.races_table(gpus).rows[0][:2] == ("Monday", "read after write")
    for picture in (
        experiments.days_picture(gpus),
        experiments.queues_picture({"one queue": one_queue, "two queues": two_queues}),
    ):
        assert picture.png().startswith(PNG) and picture.alt


def test_each_claim_has_its_row() -> None:
    copy = experiments.copy_of(1.0, experiments.run(one_queue, steps=2).ran)
    free = experiments.copy_of(1e-5, experiments.run(one_queue, steps=2).ran)
    copies = {"pageable": copy, "pinned": copy, "pinned, non_blocking=True": free}
    programs = {"page_again": "race", "early_result": "race"}
    real = experiments.real_loops(("serial", "pinned", "double_buffered"))
    rows = claims.on_trial(copies, programs, real, one_queue, two_queues)
    assert len(lesson.verdicts(rows, evidence="simulated (H100)").claims) == len(rows)
    assert {claim.id: claim.verdict.partition(":")[0] for claim in rows} == {
        "05-non-blocking-safe": "partly",
        "05-speeds-the-copy": "refuted",
        "05-small-data": "confirmed",
        "05-wait-stream": "partly",
        "05-pin-memory": "partly",
    }
