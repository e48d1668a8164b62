"""What torch.cuda.memory says about an allocator: statistics, history, snapshot, and the out-of-memory error.

Names and forms: c10/core/CachingDeviceAllocator.h, torch/csrc/cuda/Module.cpp, CUDACachingAllocator.cpp.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from helpers.simulator.allocator.blocks import DEFAULT_POOL, Block, Driver, PoolId
from helpers.simulator.allocator.conf import UNLIMITED, Conf
from helpers.text.sizes import size_as_torch

# ------------------------------------------------------------------------------------ statistics

_ARRAYS = (
    *("allocation", "segment", "active", "inactive_split"),
    *("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes"),
)
_KINDS = ("all", "small_pool", "large_pool")
_METRICS = ("current", "peak", "allocated", "freed")
_COUNTS = (
    *("num_alloc_retries", "num_ooms", "num_sync_all_streams"),
    *("num_device_alloc", "num_device_free", "num_oom_rejections"),
)
CURRENT, PEAK, ALLOCATED, FREED = range(4)

Stat = list[int]
Array = tuple[Stat, Stat, Stat]


class Stats:
    """arrays[name] is (all, small pool, large pool); each a list [current, peak, allocated, freed]."""

    def __init__(self, max_split_size: int) -> None:
        self.max_split_size = max_split_size
        self.arrays: dict[str, Array] = {name: ([0] * 4, [0] * 4, [0] * 4) for name in _ARRAYS}
        self.counts = dict.fromkeys(_COUNTS, 0)
        pick = [self.arrays[name] for name in _ARRAYS]
        self.allocation, self.segment, self.active, self.inactive = pick[:4]
        self.allocated, self.reserved, self.active_bytes, self.inactive_bytes, self.requested = pick[4:]

    def change(self, small: bool, *amounts: tuple[Array, int]) -> None:
        """Add to each array's total and to its pool's share; a negative amount takes away."""
        own = 1 if small else 2
        for array, amount in amounts:
            if amount:
                _change((array[0], array[own]), amount)

    def reset_peaks(self) -> None:
        for stat in chain(*self.arrays.values()):
            stat[PEAK] = stat[CURRENT]

    def flat(self) -> dict[str, Any]:
        """As torch.cuda.memory_stats(), without its counts of oversize blocks: "allocated_bytes.all.current" and so on,
        sorted."""
        result: dict[str, int] = dict(self.counts)
        # size_t's maximum, cast to a signed integer, is how PyTorch shows "not set".
        result["max_split_size"] = -1 if self.max_split_size >= 1 << 63 else self.max_split_size
        for name, array in self.arrays.items():
            for kind, stat in zip(_KINDS, array, strict=True):
                result.update({f"{name}.{kind}.{m}": v for m, v in zip(_METRICS, stat, strict=True)})
        return dict(sorted(result.items()))


def _change(stats: tuple[Stat, ...], amount: int) -> None:
    for stat in stats:
        current, peak, allocated, freed = stat
        current += amount
        if amount < 0:
            stat[:] = current, peak, allocated, freed - amount
        else:
            stat[:] = current, current if current > peak else peak, allocated + amount, freed


# ------------------------------------------------------------------------------------ history


class History:
    """The last events, as _record_memory_history keeps them (TraceEntry). clock(): microseconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.on = False
        self.events: deque[dict[str, Any]] = deque()
        self._places = True

    def start(self, limit: int | None, clear: bool, places: bool) -> None:
        """Keep the last `limit` events (None: all). places: keep the frames."""
        self.events = deque(() if clear else self.events, maxlen=limit)
        self.on, self._places = True, places

    def stop(self) -> None:
        """Keep nothing, and forget what was kept."""
        self.on, self.events = False, deque()

    def add(
        self, action: str, address: int, size: int, stream: int, pool: PoolId = DEFAULT_POOL,
        where: Any = None,
    ) -> None:  # fmt: skip
        """For "oom" the address is the bytes that are free on the device."""
        if not self.on:
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
                "frames": _frames(where) if self._places else [],
            }
        )


def _frames(where: Any) -> list[dict[str, Any]]:
    """A list of frames as it is; a text becomes one frame of that name; nothing, none."""
    if not where:
        return []
    return [{"filename": "", "line": 0, "name": where}] if isinstance(where, str) else list(where)


# ------------------------------------------------------------------------------------ snapshot


def segments(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    """torch.cuda.memory.memory_snapshot(): an entry a segment (of an expandable one: a mapped stretch), by address.

    blocks: all that are mapped, in any order.
    """
    heads = [b for b in blocks if b.prev is None or not b.prev.mapped]
    return [_segment(head) for head in sorted(heads, key=lambda b: b.address)]


def _segment(head: Block) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    block: Block | None = head
    while block is not None and block.mapped:
        waits = "inactive" if block.free else "active_pending_free"
        blocks.append(
            {
                "address": block.address,
                "size": block.size,
                "requested_size": block.requested,
                "state": "active_allocated" if block.allocated else waits,
                "frames": _frames(block.frames),
            }
        )
        block = block.next
    active = [b for b in blocks if b["state"] != "inactive"]
    return {
        "device": 0,
        "address": head.address,
        "total_size": sum(b["size"] for b in blocks),
        "allocated_size": sum(b["size"] for b in blocks if b["state"] == "active_allocated"),
        "active_size": sum(b["size"] for b in active),
        "requested_size": sum(b["requested_size"] for b in active),
        "stream": head.stream,
        "segment_type": "small" if head.pool.small else "large",
        "segment_pool_id": head.pool.owner,
        "is_expandable": head.expandable is not None,
        "frames": _frames(head.segment_frames),
        "blocks": blocks,
    }


def settings(conf: Conf) -> dict[str, Any]:
    """The snapshot's allocator_settings."""
    return {
        "PYTORCH_CUDA_ALLOC_CONF": conf.text,
        "max_split_size": -1 if conf.max_split_size == UNLIMITED else conf.max_split_size,
        "garbage_collection_threshold": conf.garbage_collection_threshold,
        "expandable_segments": conf.expandable_segments,
        "pinned_num_register_threads": 1,
        "release_lock_on_cudamalloc": False,
        "pinned_use_cuda_host_register": False,
        "graph_capture_record_stream_reuse": False,
        "roundup_power2_divisions": {str(1 << i): 0 for i in range(16)},
    }


# ------------------------------------------------------------------------------------ out of memory


class OutOfMemory(RuntimeError):
    """Stands for torch.OutOfMemoryError. All in bytes: tried, total, free, allocated, reserved."""

    def __init__(
        self, message: str, tried: int, total: int, free: int, allocated: int, reserved: int
    ) -> None:
        super().__init__(message)
        self.tried, self.total, self.free = tried, total, free
        self.allocated, self.reserved = allocated, reserved


def out_of_memory(tried: int, driver: Driver, stats: Stats, allowed: int | None, private: int) -> OutOfMemory:
    """The error in PyTorch's words (2.11 to 2.14). All in bytes.

    private: cached in private pools. allowed: None without a memory fraction.
    """
    total, free, in_use = driver.total, driver.free, driver.context + driver.used
    allocated, reserved = stats.allocated[0][0], stats.reserved[0][0]
    parts = [
        f"CUDA out of memory. Tried to allocate {size_as_torch(tried)}. GPU 0 has a total capacity of {size_as_torch(total)} "
        f"of which {size_as_torch(free)} is free. "
        f"Including non-PyTorch memory, this process has {size_as_torch(in_use)} memory in use. ",
        f"{size_as_torch(allowed)} allowed; " if allowed is not None else "",
        f"Of the allocated memory {size_as_torch(allocated + private)} is allocated by PyTorch, ",
        f"with {size_as_torch(private)} allocated in private pools (e.g., CUDA Graphs), " if private else "",
        f"and {size_as_torch(reserved - allocated - private)} is reserved by PyTorch but unallocated. "
        "If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  "
        "See documentation for Memory Management  "
        "(https://docs.pytorch.org/docs/stable/notes/cuda.html"
        "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)",
    ]
    return OutOfMemory("".join(parts), tried, total, free, allocated, reserved)
