"""Triton's tutorial on matrix multiplication: the order of programs."""

from __future__ import annotations

from helpers.lessons.sources_on_trial.listing import kept

CLAIMS = (
    kept("L2 Cache Optimizations", "On the following matmul where each matrix is 9 blocks by 9 blocks, we can see that if we compute the output in row-major ordering, we need to load 90 blocks into SRAM to compute the first 9 output blocks, but if we do it in grouped ordering, we only need to load 54 blocks.", "where each matrix is 9 by 9 blocks, row-major order has to load 90 blocks into SRAM for the first 9 blocks of the output, grouped order only 54", "21-grouped-order"),
)  # fmt: skip
