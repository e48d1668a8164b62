"""Memory snapshots of the CUDA caching allocator: read safely, from anywhere, and asked where the memory is.

>>> import torch
>>> from helpers import memory, simulate
>>> with simulate("H100") as gpu:
...     gpu.memory._record_memory_history()
...     weight, kept = torch.ones(1024, 1024, device=gpu.device), []
...     for _ in range(3):
...         kept.append(weight @ weight)
>>> snapshot = memory.read(gpu)  # or a file of torch.cuda.memory._dump_snapshot, or its dict

A snapshot is a pickle; it is read by a loader that can build only plain data (`reading`).
"""

from typing import TYPE_CHECKING

from helpers import lazy

if TYPE_CHECKING:
    from helpers.text.sizes import size_text as size_text

    from .analysis import Fragmentation as Fragmentation
    from .analysis import Holder as Holder
    from .analysis import Leak as Leak
    from .analysis import Peak as Peak
    from .analysis import fragmentation as fragmentation
    from .analysis import holders as holders
    from .analysis import leaks as leaks
    from .analysis import peak as peak
    from .calls import Move as Move
    from .calls import Steps as Steps
    from .calls import steps_of as steps_of
    from .estimating import Estimate as Estimate
    from .estimating import StepTimeline as StepTimeline
    from .estimating import estimate as estimate
    from .meter import KINDS as KINDS
    from .reading import SnapshotError as SnapshotError
    from .reading import read as read
    from .rebuild import History as History
    from .rebuild import history as history
    from .snapshot import Block as Block
    from .snapshot import Event as Event
    from .snapshot import Segment as Segment
    from .snapshot import Snapshot as Snapshot
__getattr__, __dir__, __all__ = lazy.attach(__name__)
