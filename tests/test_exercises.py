"""The references inside helpers.exercises, where something outside the course can confirm them."""

import pytest

from helpers.exercises import model_parallel


@pytest.mark.parametrize(("stages", "microbatches"), [(3, 7), (5, 9)])
def test_one_f_one_b_is_torchs(stages: int, microbatches: int) -> None:
    visualizer = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")
    theirs = visualizer.get_schedule_ops("1F1B", stages, microbatches)
    ours = model_parallel._one_f_one_b(stages, microbatches)
    for rank in range(stages - 1):  # torch 2.13 numbers the last rank's forwards from 1, in this table only
        assert ours[rank] == [str(a) for a in theirs[rank] if a is not None and str(a)[-1].isdigit()]
