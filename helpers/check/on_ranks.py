"""What the lessons with several processes share: jobs that run on ranks, and numbers that only one rank knows."""

import importlib
import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from helpers import check, ranks
from helpers.check.judges import each_value
from helpers.counters import knowing_earlier

#: for `check.function`: the answer runs in processes that begin anew
ONCE = "on ranks, which begin anew each time"


def on_ranks(job: Callable[..., Any], stuck: str = "") -> Callable[..., list[Any]]:
    """A drive: what `job(answer, *inputs)` returns on each of n ranks; n is the first input of a case.

    An answer that is not written yet says so as it would in one process. stuck: what it means here that a rank died, or
    waited for ever, which is said first.
    """

    @wraps(job)
    def drive(answer: Any, n: int, *inputs: Any) -> list[Any]:
        at = job.__module__, job.__name__
        try:
            return ranks.run_ranks(_on_this_rank, n, *at, answer, *inputs, stuck=1)
        except ranks.RankError as odd:
            if odd.kind == "NotImplementedError" and not odd.text:  # with a text it is torch's own
                raise NotImplementedError from None
            if stuck and odd.kind in ("Died", "TimeoutError"):
                text = f"{stuck}\n  {odd}"
                raise ranks.RankError(text, odd.rank, odd.kind, odd.text, odd.where, odd.unfinished) from None
            raise

    return drive


def _on_this_rank(module: str, job: str, *inputs: Any) -> Any:
    with knowing_earlier():
        return getattr(importlib.import_module(module), job).__wrapped__(*inputs)


def check_ranks(name: str, drive: Any, wrong: Callable[..., str | None], *inputs: Any, **told: Any) -> None:
    """One case of a job: n, then its other inputs; wrong(what each rank told, *inputs) says what is wrong with it."""
    told.setdefault("once", ONCE)
    check.function(name, [check.case(*inputs)], drive=drive, verify=each_value(wrong), **told)


def secret() -> int:
    """A seed of this rank's own: what is made from it, no other rank can know but by messages."""
    return int.from_bytes(os.urandom(6), "big")


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
