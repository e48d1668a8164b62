"""Lesson 05's room: loops and programs on the simulated GPU, their tables and pictures; and its claims on trial."""

from __future__ import annotations

import ast
import inspect
from types import FunctionType
from typing import Any

import pytest
import torch

from helpers import lesson
from helpers.classroom import build
from helpers.classroom import master as masters
from helpers.lessons.streams_and_double_buffering import claims, experiments

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    ("load", "item", "nearer"),
    [
        (experiments.one_queue, False, "sum"),
        (experiments.two_queues, False, "max"),
        (experiments.two_queues, True, "sum"),
    ],
)
def test_a_copy_hides_only_where_it_is_launched_early(
    load: experiments.Load, item: bool, nearer: str
) -> None:
    loop = experiments.run(load, item=item, steps=8)
    assert loop.nearer == nearer and not loop.races
    assert sum(k.kind == "copy h2d" for k in loop.ran) == 8
    assert loop.gbs == pytest.approx(2**26 / loop.copy_s / 1e9)


def test_a_copy_in_one_queue_runs_beside_nothing() -> None:
    ran = experiments.run(experiments.one_queue, steps=2).ran
    copy = experiments.copy_of(1.0, ran)
    assert (copy.host, copy.beside_s, copy.nbytes) == ("waits", 0, 2**26)
    assert experiments.copy_of(1e-5, ran).host == "goes on"
    both = experiments.run(experiments.two_queues, steps=2).ran
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
    assert experiments.kinds_table(gpus).rows[0] == ("Monday", "read after write")
    for picture in (
        experiments.days_picture(gpus),
        experiments.queues_picture(
            {"one queue": experiments.one_queue, "two queues": experiments.two_queues}
        ),
        experiments.pipeline_picture(_in_a_row),
    ):
        assert picture.png().startswith(PNG) and picture.alt


def _in_a_row(gpu: Any, pages: Any, results: Any, decode: Any, compute: Any, save: Any, n: int) -> None:
    for i in range(n):
        decode(i, pages[0])
        results[0].copy_(compute(pages[0].to(gpu.device)))
        save(i, results[0])


def code(function: ast.stmt) -> str:
    """A function's body without its docstring."""
    assert isinstance(function, ast.FunctionDef)
    body = function.body[ast.get_docstring(function) is not None :]
    return "\n".join(map(ast.unparse, body))


@pytest.mark.parametrize("name", ["one_queue", "two_queues"])
def test_the_claims_are_tried_on_the_loaders_that_the_lesson_shows(name: str) -> None:
    ours: FunctionType = getattr(experiments, name)
    cells = masters.read(build.find(["05"])[0]).cells
    shows = [s for c in cells if c.kind == "experiment" for s in ast.parse(c.source).body]
    theirs = next(s for s in shows if isinstance(s, ast.FunctionDef) and s.name == name)
    assert code(theirs) == code(ast.parse(inspect.getsource(ours)).body[0])


def test_each_claim_has_its_row() -> None:
    rows = claims.rows()
    assert len(lesson.verdicts(rows, evidence="simulated (H100)").claims) == len(rows)
    assert {claim.id: claim.verdict.partition(":")[0] for claim in rows} == {
        "05-one-queue": "confirmed",
        "05-non-blocking-safe": "partly",
        "05-speeds-the-copy": "refuted",
        "05-small-data": "partly",
        "05-wait-stream": "partly",
        "05-pin-memory": "partly",
    }
