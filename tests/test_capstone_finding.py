"""The capstone's tool that says where: all of a counter is charged to lines, and every fault can be found by it."""

import re
from typing import Any

import pytest
import torch

from helpers.lessons import capstone
from helpers.lessons.capstone import build, finding, scores
from helpers.lessons.capstone.parts import PARTS

SCRIPT = build.slow("")


def test_all_of_a_counter_is_charged_to_some_line() -> None:
    found = scores.counted(SCRIPT)[0]
    for counter in set(finding.LESSONS) - {"compilations"}:
        charged = sum(one.amount for one in finding.lines(SCRIPT, counter).values())
        # of times, the last wait is the end's; at the peak some blocks are of another size than was asked for
        near = {"step_s": 1e-3, "peak_bytes": 0.05, "growth_bytes": 0.05}.get(counter, 1e-9)
        assert charged == pytest.approx(found[counter], rel=near), counter


def test_every_fault_can_be_found_by_its_counter() -> None:
    """By its line, by another of its area, or by a function of its own that `train` called to come there."""
    for fault in build.picked(""):
        slow, new = build.with_faults((fault,)), "".join(text for _, text in fault.edits)
        changed = {name for name in PARTS if slow.part(name) != build.fast().part(name)}
        assert any(
            row[1].strip("`") in new or fault.area in row[3] or changed & set(re.findall(r"\w+", str(row[4])))
            for row in finding.where(SCRIPT, fault.counter).rows
        ), fault.name


def test_the_lessons_to_look_up_are_those_of_the_catalogue() -> None:
    for fault in build.FAULTS:
        assert fault.lesson in finding.LESSONS[fault.counter], fault.name
    assert finding.LESSONS.keys() == set(scores.FIELDS)


def test_a_counter_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="no counter 'sync': there are step_s"):
        capstone.where(SCRIPT, "sync")


def keeps_all(record: Any, logits: torch.Tensor) -> None:
    record.guesses.append(logits.repeat(2, 1))


@torch.compile
def turned(pictures: torch.Tensor, mirrored: torch.Tensor) -> torch.Tensor:
    numbers = pictures.float() / 127.5 - 1
    return (
        numbers.flip(-1)
        if bool(mirrored.all())
        else torch.where(mirrored[:, None, None, None], numbers.flip(-1), numbers)
    )


def test_lines_of_what_a_learner_puts_in_are_named_as_the_function_that_they_stand_for() -> None:
    mine = SCRIPT.replace(remember=keeps_all, augment=turned)
    [grows] = capstone.where(mine, "growth_bytes").rows
    assert grows[1:5] == ("`record.guesses.append(logits.repeat(2, 1))`", "remember", "run", "remember")
    said = capstone.where(mine, "syncs").rows
    assert any("mirrored.all()" in row[1] and row[2:4] == ("augment", "model") for row in said), said
    assert any("mirrored.all()" in row[1] for row in capstone.where(mine, "compilations").rows)
