"""The course's pictures: each function returns a `Picture`, which a cell shows once, its evidence on it.

Nothing here is imported before it is used: `import helpers.plots` costs no matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .allocator import allocator_step as allocator_step
    from .allocator import segments as segments
    from .communication import compared as compared
    from .communication import overlapped as overlapped
    from .drift import series as series
    from .float_format import float_bits as float_bits
    from .float_format import float_ranges as float_ranges
    from .graph import autograd_graph as autograd_graph
    from .lanes import timeline as timeline
    from .memory import memory_timeline as memory_timeline
    from .overhead import crossover as crossover
    from .picture import Picture as Picture
    from .pipelines import schedule as schedule
    from .stepmemory import memory_model as memory_model
    from .storage import storage_path as storage_path
    from .timing import samples as samples
    from .timing import speedup as speedup
    from .trace_queue import queue as queue
    from .trace_zoom import zoom as zoom

_HOME = {
    "storage_path": "storage", "autograd_graph": "graph", "timeline": "lanes",
    "samples": "timing", "speedup": "timing", "crossover": "overhead", "series": "drift",
    "compared": "communication", "overlapped": "communication", "schedule": "pipelines", "Picture": "picture",
    "queue": "trace_queue", "zoom": "trace_zoom",
    "float_bits": "float_format", "float_ranges": "float_format",
    "memory_timeline": "memory", "memory_model": "stepmemory", "segments": "allocator", "allocator_step": "allocator",
}  # fmt: skip
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"helpers.plots has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
