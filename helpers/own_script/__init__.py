"""Anybody's training script, unchanged, on a GPU that is there or not: where a step's time goes, line by line.

    python -m helpers run train.py --card H100 -- --batch_size 8

`run` runs it and stops after enough steps; `findings` says what was found. In a notebook, or around a part of a script:

    with own_script.on("H100") as run:
        for batch in loader: …
    own_script.findings(run)

`where` leads from one counter to the lines that raise it, of any callable. `toy` is a small training script to try a tool on.
"""

from typing import TYPE_CHECKING

from helpers import lazy

if TYPE_CHECKING:
    from .counters import COUNTERS as COUNTERS
    from .counters import where as where
    from .practice import Toy as Toy
    from .practice import simulated_cuda as simulated_cuda
    from .practice import toy as toy
    from .report import Report as Report
    from .report import findings as findings
    from .running import Refused as Refused
    from .running import Run as Run
    from .running import on as on
    from .running import run as run
    from .running import run_live as run_live

__getattr__, __dir__, __all__ = lazy.attach(__name__)
