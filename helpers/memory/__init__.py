"""Memory snapshots of the CUDA caching allocator: read safely, from anywhere, and asked where the memory is.

    from helpers import memory

    snapshot = memory.read(gpu)               # or a file of torch.cuda.memory._dump_snapshot, or its dict
    snapshot.allocated, snapshot.reserved     # bytes
    memory.peak(snapshot)                     # the most that was allocated, and which lines held it
    memory.leaks(snapshot, steps=4)           # what each step left behind

    memory.estimate(model, inputs)            # what a training step will need, before it runs

A snapshot is a pickle; it is read by a loader that can build only plain data (`unpickle`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .analysis import Fragmentation as Fragmentation
    from .analysis import Holder as Holder
    from .analysis import Peak as Peak
    from .analysis import Timeline as Timeline
    from .analysis import fragmentation as fragmentation
    from .analysis import holders as holders
    from .analysis import peak as peak
    from .analysis import timeline as timeline
    from .growth import Diff as Diff
    from .growth import Leak as Leak
    from .growth import diff as diff
    from .growth import leaks as leaks
    from .growth import survivors as survivors
    from .meter import KINDS as KINDS
    from .model import Estimate as Estimate
    from .model import StepTimeline as StepTimeline
    from .model import estimate as estimate
    from .rebuild import History as History
    from .rebuild import history as history
    from .sizes import size_text as size_text
    from .snapshot import Block as Block
    from .snapshot import Event as Event
    from .snapshot import Segment as Segment
    from .snapshot import Snapshot as Snapshot
    from .source import read as read
    from .steps import Steps as Steps
    from .steps import steps_of as steps_of
    from .unpickle import SnapshotError as SnapshotError
    from .words import Move as Move
    from .words import moves as moves

_HOME = {
    "read": "source", "SnapshotError": "unpickle", "Snapshot": "snapshot", "Segment": "snapshot",
    "Block": "snapshot", "Event": "snapshot", "timeline": "analysis", "Timeline": "analysis", "peak": "analysis",
    "Peak": "analysis", "holders": "analysis", "Holder": "analysis", "fragmentation": "analysis",
    "Fragmentation": "analysis", "history": "rebuild", "History": "rebuild", "leaks": "growth", "Leak": "growth",
    "survivors": "growth", "diff": "growth", "Diff": "growth", "size_text": "sizes", "moves": "words", "Steps": "steps",
    "steps_of": "steps",
    "Move": "words", "estimate": "model", "Estimate": "model", "StepTimeline": "model", "KINDS": "meter",
}  # fmt: skip
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"helpers.memory has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
