"""The references inside helpers.lessons, where something outside the course can confirm them."""

import pytest
import torch

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
