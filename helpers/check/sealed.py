"""A simulated GPU as an answer gets it: what a real one shows, and no record of what ran.

    gpu = simulate("H100", strict=False)
    with gpu:
        answer(sealed(gpu), ...)   # torch.cuda's names, and clock()
    gpu.kernels                    # the test's own: what ran, and when

A test's ``drive`` keeps the GPU and hands the answer this. What lies behind it could be had by private names only
(``__closure__``, an event's ``_gpu``), and those :mod:`helpers.check.screen` refuses before any code runs.
"""

from collections.abc import Callable
from typing import Any

__all__ = ["sealed"]

#: what an answer may ask of it
_OPEN = frozenset(
    """device evidence name clock clock_ns synchronize Event Stream stream current_stream default_stream host_work
    CUDAGraph graph graph_pool_handle make_graphed_callables is_current_stream_capturing empty_cache memory_allocated
    memory_reserved set_sync_debug_mode get_sync_debug_mode mem_get_info memory_stats max_memory_allocated
    max_memory_reserved""".split()
)


def sealed(gpu: Any) -> Any:
    """What shows of ``gpu``, a simulated GPU, only torch.cuda's names and its clock. AttributeError for others."""

    def ask(name: str) -> Any:
        if name not in _OPEN:
            raise AttributeError(f"a GPU has no {name!r} for you: torch.cuda's names, and clock()")
        return getattr(gpu, name)

    return _Sealed(ask, f"<sealed {gpu.name}>")


class _Sealed:
    __slots__ = ("_ask", "_text")

    def __init__(self, ask: Callable[[str], Any], text: str) -> None:
        object.__setattr__(self, "_ask", ask)
        object.__setattr__(self, "_text", text)

    def __getattr__(self, name: str) -> Any:
        return self._ask(name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name!r} of a GPU cannot be set")

    def __repr__(self) -> str:
        return str(self._text)
