"""The history of an allocator, as torch.cuda.memory._record_memory_history keeps it (TraceEntry)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from helpers.simulator.allocator.blocks import PoolId

__all__ = ["Record", "frames_of"]

ACTIONS = (
    *("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free"),
    *("segment_map", "segment_unmap", "snapshot", "oom"),
)


def frames_of(where: Any) -> list[dict[str, Any]]:
    """A list of frames as it is; a text becomes one frame of that name; nothing, none."""
    if not where:
        return []
    return [{"filename": "", "line": 0, "name": where}] if isinstance(where, str) else list(where)


class Record:
    """The last `limit` events. clock(): microseconds. skip: actions not kept. places: keep the frames."""

    def __init__(
        self,
        clock: Callable[[], int],
        limit: int | None = None,
        skip: Collection[str] = (),
        places: bool = True,
    ) -> None:
        if unknown := set(skip) - set(ACTIONS):
            raise ValueError(f"no action named {', '.join(sorted(unknown))}: there are {', '.join(ACTIONS)}")
        self.events: deque[dict[str, Any]] = deque(maxlen=limit)
        self._clock, self._skip, self._places = clock, frozenset(skip), places

    def add(self, action: str, address: int, size: int, stream: int, pool: PoolId, where: Any) -> None:
        """For "oom" the address is the bytes that are free on the device."""
        if action in self._skip:
            return
        self.events.append(
            {
                "action": action,
                "device_free" if action == "oom" else "addr": address,
                "size": size,
                "stream": stream,
                "time_us": self._clock(),
                "compile_context": "N/A",
                "user_metadata": "",
                "pool_id": pool,
                "frames": frames_of(where) if self._places else [],
            }
        )
