"""A room a lesson, named as the lesson's folder is without its number: all that belongs to that lesson alone.

exercises     for each exercise the *drive* (runs in the learner's process and measures), the *judge* (runs where the
              grade is given and says what is wrong), a dataclass of its cases where plain arguments would not say what
              they are, and ``check_<name>(*cases)``, which a visible test and a hidden one call alike. What only a
              hidden test may know, such as a reference that is the answer, stays in the hidden cell and is passed in.
experiments   what an experiment measures and shows, but for its idea, which stands in the open cell
claims        its claims on trial: a function a claim, and on_trial(…), which lists them all
recorded      what is recorded of the lesson on a real GPU
"""

import importlib
from pathlib import Path


def modules(kind: str) -> list[str]:
    """The names of every lesson's module of one kind: "exercises", "recorded", …"""
    return [
        f"{__name__}.{file.parent.name}.{kind}" for file in sorted(Path(__file__).parent.glob(f"*/{kind}.py"))
    ]


def load(kind: str) -> None:
    """Import them all."""
    for module in modules(kind):
        importlib.import_module(module)
