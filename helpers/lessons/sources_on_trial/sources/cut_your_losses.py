"""A paper on the memory of the loss over a large vocabulary: its headline."""

from __future__ import annotations

from helpers.lessons.sources_on_trial.listing import kept

CLAIMS = (kept("Abstract", "19-loss-memory"),)
