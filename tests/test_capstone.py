"""The capstone's script: every fault and every seed learns the same as the fast text, costs, and reads as clean code."""

from __future__ import annotations

import subprocess
import sys

import pytest

from helpers import capstone
from helpers.capstone import build, given, scores
from helpers.capstone.catalogue import FAULTS


def test_there_are_many_faults_of_every_kind() -> None:
    kinds = "data loading,host code,launches,syncs,memory,precision,compilation,layout,checkpointing,logging,communication"
    assert len(FAULTS) >= 24 and {fault.kind for fault in FAULTS} == set(kinds.split(","))


@pytest.mark.parametrize("seed", ["", "spring", "autumn"])
def test_a_seeds_script_learns_the_same_and_is_slow(seed: str) -> None:
    assert len(build.picked(seed)) >= 14
    slow, fast = build.slow(seed), build.fast()
    assert scores.apart(scores.trained(fast, scores.Run()), scores.trained(slow, scores.Run())) is None
    before, after = scores.score(slow), scores.score(fast)
    assert before.step_s > 2 * after.step_s and before.syncs > 10 * after.syncs


def test_scripts_read_as_clean_code() -> None:
    for seed in map(str, range(10)):
        asked = [sys.executable, "-m", "ruff", "check", "--quiet", "--stdin-filename", "train.py", "-"]
        ran = subprocess.run(asked, input=build.slow(seed).source, text=True, capture_output=True)
        assert ran.returncode == 0, ran.stdout


def test_what_is_given_is_up_to_date() -> None:
    """If not: python -m helpers.capstone.given"""
    assert f'"of": "{given.fingerprint()}"' in given.GIVEN.read_text(encoding="utf-8")
    assert capstone.script("").source == build.slow("").source
