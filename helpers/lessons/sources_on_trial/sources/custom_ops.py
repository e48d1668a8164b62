"""PyTorch's page on custom operators in Python: what the compiler asks of one."""

from __future__ import annotations

from helpers.lessons.sources_on_trial.listing import kept

CLAIMS = (
    kept("Functional Python Custom Operators", "", "", "21-fake"),
)  # fmt: skip
