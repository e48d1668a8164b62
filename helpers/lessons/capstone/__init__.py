"""The capstone: a training script that the learner has not met, clean to read, correct, and slow in many ways.

    script = capstone.script()                       # the class's; another class has other faults
    faster = script.replace(clip=my_clip)
    capstone.compare(script, faster)                 # counters before and after, and whether it still learns the same

A seed picks the faults (`catalogue`, `build`) that the fast text (`fast`) is given. A student's copy has none of these
three, but what follows from them for its class (`given`). `scores` counts what a step takes.
"""

from typing import TYPE_CHECKING

from helpers import lazy

if TYPE_CHECKING:
    from helpers.lessons.capstone.finding import by_part as by_part
    from helpers.lessons.capstone.finding import where as where
    from helpers.lessons.capstone.given import budget as budget
    from helpers.lessons.capstone.given import script as script
    from helpers.lessons.capstone.parts import Script as Script
    from helpers.lessons.capstone.reference_repair.on_cpu import live as live
    from helpers.lessons.capstone.scores import Board as Board
    from helpers.lessons.capstone.scores import Run as Run
    from helpers.lessons.capstone.scores import Score as Score
    from helpers.lessons.capstone.scores import compare as compare
    from helpers.lessons.capstone.scores import score as score

__getattr__, __dir__, __all__ = lazy.attach(__name__)
