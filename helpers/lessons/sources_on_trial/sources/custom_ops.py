"""PyTorch's page on custom operators in Python: what the compiler asks of one."""

from __future__ import annotations

from helpers.lessons.sources_on_trial.listing import kept

CLAIMS = (
    kept("Functional Python Custom Operators", "for use with torch.compile, we need to … add a “FakeTensor kernel” (aka “meta kernel”) to the operator", "an operator that is to work with torch.compile needs a fake kernel", "21-fake"),
)  # fmt: skip
