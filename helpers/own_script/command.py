"""Run somebody's training script, unchanged, on a GPU that is not there, and say what makes its steps slow, line by line.

    python -m helpers run train.py --card H100 -- --batch_size 8 …

What stands behind -- are the script's own arguments. It runs until it has taken enough steps (optimizer.step()), and then
ends. Written to the folder that you are in: a page (…-report.html) and a trace for ui.perfetto.dev (…-trace.json.gz).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.simulator.devices import DEVICES

if TYPE_CHECKING:
    from helpers.own_script.live import Live
    from helpers.own_script.report import Report


def main(argv: Sequence[str]) -> int:
    """0; 2 for what cannot be run, with why on stderr."""
    words, own = list(argv), list[str]()
    if "--" in words:
        words, own = words[: words.index("--")], words[words.index("--") + 1 :]
    parser = argparse.ArgumentParser(
        prog="python -m helpers run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("script", type=Path, help="a training script; its own arguments behind --")
    parser.add_argument(
        "--card", default="H100", choices=sorted(DEVICES), help="which GPU is simulated (H100)"
    )
    parser.add_argument("--steps", type=int, default=20, help="how many steps are measured (20)")
    parser.add_argument("--warm-up", type=int, default=3, help="how many before them are not (3)")
    parser.add_argument(
        "--seconds", type=float, default=60, help="measure fewer steps when they take longer here (60)"
    )
    parser.add_argument(
        "--host-factor",
        type=float,
        default=1.0,
        help="seconds of the card's host for one second of Python here (1)",
    )
    parser.add_argument(
        "--ranks",
        type=int,
        default=int(os.environ.get("WORLD_SIZE", 0)),
        help="of how many such GPUs this is the first, where the script uses torch.distributed (what torchrun says, or none)",
    )
    parser.add_argument(
        "--values",
        action="store_true",
        help="compute true values too, so that losses are right and `if loss > …` takes its branch: as slow as on a CPU",
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="run it for real, on this machine's GPU or else its CPU: what each line took, by the clock",
    )
    parser.add_argument("--out", type=Path, default=Path(), help="the folder to write to (here)")
    given = parser.parse_args(words)
    from helpers.own_script.report import findings
    from helpers.own_script.running import Refused, run, run_live

    how = {"steps": given.steps, "warm": given.warm_up, "seconds": given.seconds}
    alone = {"factor": given.host_factor, "values": given.values, "ranks": given.ranks}
    try:
        if given.live:
            found: Report | Live = run_live(given.script, own, **how)
        else:
            found = findings(run(given.script, own, card=given.card, **how, **alone))
        print(f"\n{found}")
        given.out.mkdir(parents=True, exist_ok=True)
        for path in found.write(given.out):
            print(f"written: {path}")
    except BrokenPipeError:
        raise
    except (Refused, OSError, ValueError) as problem:
        print(problem, file=sys.stderr)
        return 2
    return 0
