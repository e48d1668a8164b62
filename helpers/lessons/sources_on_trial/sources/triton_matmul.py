"""Triton's tutorial on matrix multiplication: the order of programs."""

from __future__ import annotations

from helpers.lessons.sources_on_trial.listing import kept

CLAIMS = (
    kept("L2 Cache Optimizations", "if we compute the output in row-major ordering, we need to load 90 blocks … in grouped ordering, we only need to load 54 blocks", "for the first 9 tiles of a product of 9 × 9 blocks, row-major order loads 90 blocks, grouped order 54", "21-grouped-order"),
)  # fmt: skip
