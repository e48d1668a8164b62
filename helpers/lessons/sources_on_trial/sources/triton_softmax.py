"""Triton's tutorial on a fused softmax: its count of what is read and written."""

from helpers.lessons.sources_on_trial.listing import kept

CLAIMS = (kept("Motivations", "21-softmax-traffic"),)
