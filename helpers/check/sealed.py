"""A simulated GPU that hides what no real one would show: for tests in which the answer is to measure."""

import sys
from typing import Any

#: what a learner's code may ask of it; the rest is for the course's own code and for a test's `drive`
_OPEN = {"device", "evidence", "name", "clock", "clock_ns", "synchronize", "Event", "Stream", "stream"}
_OPEN |= {"current_stream", "default_stream", "host_work", "__class__"}
_OPEN |= {"CUDAGraph", "graph", "graph_pool_handle", "make_graphed_callables", "empty_cache"}
_OPEN |= {
    "is_current_stream_capturing",
    "memory_allocated",
    "memory_reserved",
    "mem_get_info",
    "memory_stats",
}
_OPEN |= {"max_memory_allocated", "max_memory_reserved"}


def sealed(gpu: Any) -> Any:
    """``gpu`` itself, with its record of kernels (and all else beyond torch.cuda's names and ``clock``) closed.

    However the learner's code comes by the object (``helpers.simulator.active()``, a bound method's ``__self__``, a
    closure), a closed attribute raises AttributeError there.
    """

    class Sealed(type(gpu)):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            if name not in _OPEN:
                asking = sys._getframe(1).f_globals.get("__name__", "")
                if asking != "drive" and not asking.startswith("helpers."):
                    raise AttributeError(f"a GPU has no {name!r}: torch.cuda's names, and clock()")
            return super().__getattribute__(name)

    gpu.__class__ = Sealed
    return gpu
