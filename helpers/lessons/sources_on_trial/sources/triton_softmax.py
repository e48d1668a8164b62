"""Triton's tutorial on a fused softmax: its count of what is read and written."""

from __future__ import annotations

from helpers.lessons.sources_on_trial.listing import kept

CLAIMS = (
    kept("Motivations", "reading 5MN + 2M elements from DRAM and writing back 3MN + 2M elements", "written naively in PyTorch, a softmax reads 5MN + 2M elements and writes back 3MN + 2M", "21-softmax-traffic"),
)  # fmt: skip
