"""The repository of the book: two of its scripts print numbers that can be had again."""

from helpers.lessons.sources_on_trial.claims import kept

SOURCE = {
    "title": "ailzhang/EfficientPyTorch",
    "english": "the repository of the book 'PyTorch performance and memory handbook'",
    "author": "ailzhang",
    "url": "https://github.com/ailzhang/EfficientPyTorch",
}

CLAIMS = (
    kept("saving memory: checkpoints", "09-book-checkpoint"),
    kept("saving memory: offloading", "09-book-offload"),
)
