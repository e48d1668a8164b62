"""Triton's tutorial on matrix multiplication: the order of programs."""

from helpers.lessons.sources_on_trial.listing import kept

CLAIMS = (kept("L2 Cache Optimizations", "21-grouped-order"),)
