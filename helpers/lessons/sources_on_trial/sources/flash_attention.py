"""The repository of FlashAttention: what it says of memory."""

from __future__ import annotations

from helpers.lessons.sources_on_trial.listing import kept

CLAIMS = (
    kept("Performance: Memory", "Memory savings are proportional to sequence length … We see 10X memory savings at sequence length 2K, and 20X at 4K.", "memory savings are proportional to the sequence length: 10 times at 2,000 tokens, 20 times at 4,000", "19-memory-savings"),
)  # fmt: skip
