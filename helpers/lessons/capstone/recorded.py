"""Lesson 17, the capstone: the reference repair of two models, rung by rung."""

from __future__ import annotations

from typing import Any

from helpers.lessons.capstone.reference_repair.models import TASKS
from helpers.lessons.capstone.reference_repair.steps import measured
from helpers.recordings.registry import experiment


@experiment("17/bert", seconds=55)
def bert(gpu: Any) -> dict[str, Any]:
    """Time and peak of a warm step of each rung: BERT-base, fine-tuned."""
    return {"table": measured(TASKS["bert"], gpu)}


@experiment("17/gpt2", seconds=55)
def gpt2(gpu: Any) -> dict[str, Any]:
    """The same for GPT-2 with 124 million parameters."""
    return {"table": measured(TASKS["gpt2"], gpu)}
