"""A paper on the memory of the loss over a large vocabulary: its headline."""

from __future__ import annotations

from helpers.lessons.sources_on_trial.listing import kept

CLAIMS = (
    kept("Abstract", "Taking the Gemma 2 (2B) model as an example, CCE reduces the memory footprint of the loss computation from 24 GB to 1 MB", "for Gemma 2 (2B), CCE takes the memory of the loss from 24 GB to 1 MB", "19-loss-memory"),
)  # fmt: skip
