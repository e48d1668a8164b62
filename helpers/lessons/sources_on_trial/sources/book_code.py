"""The repository of the book: two of its scripts print numbers that can be had again."""

from helpers.lessons.sources_on_trial.listing import kept

CLAIMS = (
    kept("saving memory: checkpoints", "09-book-checkpoint"),
    kept("saving memory: offloading", "09-book-offload"),
)
