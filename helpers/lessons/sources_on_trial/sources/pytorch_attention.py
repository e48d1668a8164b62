"""PyTorch's documentation of scaled_dot_product_attention."""

from __future__ import annotations

from helpers.lessons.sources_on_trial.listing import kept

CLAIMS = (
    kept("Note", "The function may call optimized kernels for improved performance when using the CUDA backend. For all other backends, the PyTorch implementation will be used.", "it may call optimized kernels when using the CUDA backend; for all other backends, the PyTorch implementation is used", "19-other-backends", evidence="live (CPU)"),
    kept("Note", "In the event that a fused implementation is not available, a warning will be raised with the reasons why the fused implementation cannot run.", "where math is shut out and no fused implementation is available, a warning says why", "19-warning", evidence="live (CPU)"),
)  # fmt: skip
