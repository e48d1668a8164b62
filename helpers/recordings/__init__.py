"""Runs recorded on real GPUs, and the experiments that were recorded.

    result = recordings.show("03/item_in_loop", simulated="H100")
    result.trace, result.table, result.snapshot     # what the experiment gives; None for what it does not
    result.evidence                                 # "live (GPU)", "recorded (H100, 2026-11-21)", "simulated (H100)"
    recordings.side_by_side("03/item_in_loop")      # all that there are, to be compared

`show` runs the experiment live where a CUDA device is, else shows its recording, else simulates it.
python -m helpers.lessons.record makes recordings (docs/recording.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers.recordings.manifest import DATA, KINDS, Recording, Refused
from helpers.recordings.manifest import load as _load
from helpers.recordings.registry import experiment, find
from helpers.text.seconds import approx

if TYPE_CHECKING:
    from helpers.trace import Trace

__all__ = ["Recording", "Refused", "Result", "experiment", "load", "load_all", "show", "side_by_side"]


@dataclass(frozen=True)
class Result:
    """What an experiment gave. evidence: where it ran. note: what a caption should add, or "".

    trace: a `helpers.trace.Trace`; snapshot: as torch.cuda.memory._snapshot(); table: list of dicts.
    """

    name: str
    evidence: str
    trace: Trace | None = None
    snapshot: dict[str, Any] | None = None
    table: list[dict[str, Any]] | None = None
    note: str = ""

    @property
    def kind(self) -> str:
        """The label's word, for a column: "simulated", "recorded" or "live"."""
        return self.evidence.partition(" ")[0]

    @property
    def about(self) -> str:
        """What stands before its times: "≈ ", or "" where it was simulated."""
        return approx(self.evidence)


def load(name: str, folder: str | Path | None = None, device: str = "") -> Recording | None:
    """The recording of an experiment, or None where there is none.

    folder: yours (`record --out`); else those that ship with the course. device: part of a card's name that is
    preferred where several were recorded. Refused (a ValueError) for files that do not match their hashes,
    unknown formats, and dry runs on a simulated GPU.
    """
    recordings = load_all(name, folder)
    recordings.sort(key=lambda r: (device not in r.device, r.device))
    return recordings[0] if recordings else None


def load_all(name: str, folder: str | Path | None = None) -> list[Recording]:
    """The recordings of an experiment on every card. Raises as `load`."""
    folders = [Path(folder)] if folder is not None else sorted(p.parent for p in DATA.glob("*/manifest.json"))
    return [r for place in folders if (r := _load(name, place)) is not None]


def show(
    name: str, simulated: str = "H100", *, folder: str | Path | None = None, prefer: str = "live"
) -> Result:
    """An experiment's result: live where a CUDA device is, else recorded, else simulated; `evidence` says which.

    simulated: the card to simulate, and to prefer among recordings. prefer: "live", or "recorded" or
    "simulated" to begin there. ValueError for an unknown experiment or preference; Refused as in `load`.
    """
    import torch

    order = ("live", "recorded", "simulated")
    if prefer not in order:
        raise ValueError(f"prefer is one of {', '.join(order)}, not {prefer!r}")
    from helpers.recordings.running import run_live, run_simulated

    one, note = find(name), ""
    if prefer == "live" and torch.cuda.is_available():
        evidence, given = "live (GPU)", run_live(one)
    elif prefer != "simulated" and (recording := load(name, folder, simulated)) is not None:
        note = "recorded with an older version of this experiment" if recording.stale else ""
        evidence, given = recording.evidence, {kind: getattr(recording, kind) for kind in KINDS}
    else:
        evidence, given = f"simulated ({simulated})", run_simulated(one, simulated)
    if given.get("trace") is not None:
        from helpers import trace

        given["trace"] = trace.read(given["trace"], evidence=evidence)
    return Result(name, evidence, note=note, **given)


def side_by_side(name: str, simulated: str = "H100") -> list[Result]:
    """The experiment simulated, then recorded where there is a recording, then live where a CUDA device is.

    What a text says of the first two stays true where there is a third. Raises as `show`.
    """
    import torch

    ways = ["simulated"] + ["recorded"] * (load(name, device=simulated) is not None)
    ways += ["live"] * torch.cuda.is_available()
    return [show(name, simulated, prefer=way) for way in ways]
