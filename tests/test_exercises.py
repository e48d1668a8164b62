"""What the lessons' exercises rest on: references that something outside the course can confirm, and words that stay the same."""

from typing import Any

import pytest
import torch

from helpers import ranks, trace
from helpers.lessons.fully_sharded import exercises as fully_sharded
from helpers.lessons.gpu_queue import exercises as gpu_queue
from helpers.lessons.mixed_precision import exercises as mixed_precision
from helpers.lessons.mixed_precision.float_formats import Format
from helpers.lessons.model_parallel import exercises as model_parallel


@pytest.mark.parametrize(("stages", "microbatches"), [(3, 7), (5, 9)])
def test_one_f_one_b_is_torchs(stages: int, microbatches: int) -> None:
    visualizer = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")
    theirs = visualizer.get_schedule_ops("1F1B", stages, microbatches)
    ours = model_parallel._one_f_one_b(stages, microbatches)
    for rank in range(stages - 1):  # torch 2.13 numbers the last rank's forwards from 1, in this table only
        assert ours[rank] == [str(a) for a in theirs[rank] if a is not None and str(a)[-1].isdigit()]


@pytest.mark.parametrize(("dtype", "form"), [(torch.float16, (5, 10)), (torch.bfloat16, (8, 7))])
def test_values_and_nearest_patterns_are_torchs(dtype: torch.dtype, form: tuple[int, int]) -> None:
    every = torch.arange(2**16).to(torch.int16).view(dtype).double().tolist()
    for bits in range(0, 2**16, 13):
        value = Format("", *form).decode(bits)
        assert value == every[bits] or (value != value and every[bits] != every[bits])
    numbers = mixed_precision.hard_numbers(0, 2000)
    numbers = numbers[~numbers.isnan()]
    theirs = numbers.to(dtype).view(torch.int16).long() & 0xFFFF
    assert [Format("", *form).encode(x) for x in numbers.tolist()] == theirs.tolist()


@pytest.mark.parametrize("asked", ["t", "t, None", "t, start_s=0.0"])
def test_a_classify_that_is_closed_says_so_however_it_is_called(asked: str) -> None:
    answer = eval(f"lambda t: trace.classify({asked})", {"trace": trace})
    with pytest.raises(RuntimeError, match="has a verdict of its own"):
        gpu_queue._without_classify(answer, gpu_queue._recorded("counter"))


class Keeps:
    """An optimizer of lesson 15 that does nothing, and holds more than its budget."""

    def __init__(self, params: Any, make: Any) -> None:
        self.kept = torch.zeros(1 << 20)

    def step(self) -> None:
        pass


def test_ranks_over_their_budget_are_no_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait for gloo to let go of memory, all of them, for longer than it takes to see a deadlock."""
    run = ranks.run_ranks
    monkeypatch.setattr(ranks, "run_ranks", lambda *of, **how: run(*of, **how | {"stuck": 0.5}))
    told = fully_sharded._optimize(Keeps, 2, [(3, 5)], 0, 1, False)
    assert [kind["alive"] >= 4 << 20 for rank in told for kind in rank] == [True] * 4
