"""The repository of the book: two of its scripts print numbers that can be had again."""

from helpers.lessons.sources_on_trial.listing import kept

_CHECKPOINTS = "the book's script: 936.2 MiB without checkpoints, 628.6 MiB with"
_OFFLOADING = "the book's script: layers moved in and out by turns hold the peak at 9.33 GiB"

CLAIMS = (
    kept(
        "saving memory: checkpoints",
        _CHECKPOINTS,
        _CHECKPOINTS,
        "09-book-checkpoint",
        evidence="simulated (H100)",
    ),
    kept(
        "saving memory: offloading",
        _OFFLOADING,
        _OFFLOADING,
        "09-book-offload",
        evidence="simulated (H100) · arithmetic",
    ),
)
