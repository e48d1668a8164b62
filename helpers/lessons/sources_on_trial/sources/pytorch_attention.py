"""PyTorch's documentation of scaled_dot_product_attention."""

from __future__ import annotations

from helpers.lessons.sources_on_trial.listing import kept

CLAIMS = (kept("Note", "19-other-backends"), kept("Note", "19-warning"))
