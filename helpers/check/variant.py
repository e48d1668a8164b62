"""A class's own numbers: a test that asks here for its shapes and sizes has others in every class.

    v = variant("step_bytes")
    check_step_bytes(check.case([[(v.number(64), 64)]], 8))

What is copied from another class is then wrong here; who can calculate it is right in both. A class is named by its
seed, one line in ``helpers/class_seed.txt``, which a student's copy has as well. Without it every number is the usual one.
"""

import os
import random
from pathlib import Path
from typing import TypeVar

SEED_FILE = Path(__file__).resolve().parents[1] / "class_seed.txt"
#: an environment variable that is asked before the file; empty: the usual numbers
SEED = "CLASS_SEED"

T = TypeVar("T")


def class_seed() -> str:
    """What names this class; "" for the usual numbers."""
    if SEED in os.environ:
        return os.environ[SEED].strip()
    return SEED_FILE.read_text(encoding="utf-8").strip() if SEED_FILE.exists() else ""


class variant:  # noqa: N801 - reads as a function in a test's cell
    """The class's draw for one cell. `of` names it: an exercise's visible and hidden test are to draw differently."""

    def __init__(self, of: str) -> None:
        seed = class_seed()
        self._dice = random.Random(f"{seed} {of}") if seed else None

    def pick(self, usual: T, *others: T) -> T:
        """One of them all; without a seed the usual one."""
        return self._dice.choice((usual, *others)) if self._dice else usual

    def number(self, usual: int, low: int | None = None, high: int | None = None) -> int:
        """A number from low to high (left out: a quarter less to a quarter more) that is not the usual one."""
        if not self._dice:
            return usual
        low, high = usual - usual // 4 if low is None else low, usual + usual // 4 if high is None else high
        return self._dice.choice([n for n in range(low, high + 1) if n != usual] or [usual])

    def seed(self, usual: int) -> int:
        """What a random generator begins with."""
        return self._dice.randrange(1, 1_000_000) if self._dice else usual
