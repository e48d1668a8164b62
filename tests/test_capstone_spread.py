"""The capstone on two ranks: three ways, killed and gone on with, the losses of a run that nobody killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from helpers import ranks
from helpers.lessons.capstone.plain import eager

STEPS, EVERY, DIES = 8, 4, 6

pytestmark = pytest.mark.timeout(300)


def run(by: str, to: str, dies: int = 0, at_save: bool = False, every: int = EVERY) -> None:
    """In a rank: train; rank 0 ends by SIGKILL in step `dies`, or where it has to save that step."""
    with (
        eager()
    ):  # it would be compiled in each rank of each run, and importing the compiler alone takes seconds
        from helpers.lessons.capstone import spread

    os.environ.setdefault("MASTER_PORT", "29500")  # torchrun would have set it, and Accelerate asks
    save, dies_here = spread.dcp.save, dies and spread.dist.get_rank() == 0

    def die(step: int) -> None:
        if dies_here and not at_save and step == dies:
            os.kill(os.getpid(), signal.SIGKILL)

    def save_or_die(state: Any, checkpoint_id: Path) -> None:
        if checkpoint_id.name == f"step-{dies:06}":
            os.kill(os.getpid(), signal.SIGKILL)
        save(state, checkpoint_id=checkpoint_id)

    if dies_here and at_save:
        spread.dcp.save = save_or_die  # type: ignore[assignment]
    spread.train(by, Path(to), spread.script.Size(), STEPS, every, before_step=die)


def losses(to: Path) -> dict[int, float]:
    """step → loss. A step that is written down twice has the same loss both times."""
    lines = (to / "losses.jsonl").read_text(encoding="utf-8").splitlines()
    found = {(line["step"], line["loss"]) for line in map(json.loads, lines)}
    assert len(found) == len(dict(found))
    return dict(sorted(found))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], dict[int, float]]:
    """The losses of a run that nobody killed, by a way on so many ranks."""

    @cache
    def of(by: str, n: int) -> dict[int, float]:
        to = tmp_path_factory.mktemp(by)
        ranks.run_ranks(run, n, by, str(to))
        return losses(to)

    return of


def test_killed_it_goes_on_as_if_it_had_not_been(
    tmp_path: Path, unbroken: Callable[[str, int], dict[int, float]]
) -> None:
    """Sharded; that all three ways do so is a cell of lesson 17, whose output tests/test_references.py compares."""
    with pytest.raises(ranks.RankError, match="killed by SIGKILL"):
        ranks.run_ranks(run, 2, "sharded", str(tmp_path), DIES)
    assert list(losses(tmp_path)) == list(range(1, EVERY + 1))
    ranks.run_ranks(run, 2, "sharded", str(tmp_path))
    whole = unbroken("sharded", 2)
    assert losses(tmp_path) == whole, "to the last bit"
    assert whole == pytest.approx(unbroken("parallel", 1), rel=1e-3)


def test_another_way_goes_on_from_what_was_whole(
    tmp_path: Path, unbroken: Callable[[str, int], dict[int, float]]
) -> None:
    """Data parallel on two ranks dies in its second checkpoint; one process, sharded, goes on from the first."""
    with pytest.raises(ranks.RankError, match="killed by SIGKILL"):
        ranks.run_ranks(run, 2, "parallel", str(tmp_path), 4, True, 2)
    assert (tmp_path / "step-000002/.metadata").exists()
    assert not (tmp_path / "step-000004/.metadata").exists()
    (
        tmp_path / "losses.jsonl"
    ).unlink()  # steps 3 and 4 are done again by one rank, whose sums are other sums
    ranks.run_ranks(run, 1, "sharded", str(tmp_path))
    alone = unbroken("parallel", 1)
    assert losses(tmp_path) == pytest.approx({step: alone[step] for step in range(3, STEPS + 1)}, rel=1e-3)


KILLED = """
import os, signal
from helpers.lessons.capstone.plain import eager
with eager():
    from helpers.lessons.capstone import spread

def die(step):
    if step == {dies} and os.environ["RANK"] == "0" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
spread.main(before_step=die)
"""


def test_torchrun_starts_killed_ranks_again(
    tmp_path: Path, unbroken: Callable[[str, int], dict[int, float]]
) -> None:
    program = tmp_path / "killed.py"
    program.write_text(KILLED.format(dies=DIES), encoding="utf-8")
    line = "-m torch.distributed.run --standalone --nproc-per-node 2 --max-restarts 1"
    known = {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    ran = subprocess.run(
        [sys.executable, *line.split(), program, "--by", "sharded", "--to", tmp_path, "--steps", str(STEPS)],
        env=os.environ | known,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "exitcode: -9" in ran.stderr, "killed once"
    assert losses(tmp_path) == pytest.approx(unbroken("sharded", 2), rel=1e-6)
