"""The repository of FlashAttention: what it says of memory."""

from __future__ import annotations

from helpers.lessons.sources_on_trial.listing import kept

CLAIMS = (kept("Performance: Memory", "19-memory-savings"),)
