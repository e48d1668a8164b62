"""The counts behind torch.cuda.memory_stats. Names: c10/core/CachingDeviceAllocator.h, torch/csrc/cuda/Module.cpp."""

from __future__ import annotations

from typing import Any

__all__ = ["Stats"]

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


def increase(stat: Stat, amount: int) -> None:
    now = stat[0] = stat[0] + amount
    stat[2] += amount
    if now > stat[1]:
        stat[1] = now


def decrease(stat: Stat, amount: int) -> None:
    stat[0] -= amount
    stat[3] += amount


class Stats:
    """arrays[name] is (all, small pool, large pool); each a list [current, peak, allocated, freed]."""

    def __init__(self, max_split_size: int) -> None:
        self.max_split_size = max_split_size
        self.arrays: dict[str, tuple[Stat, Stat, Stat]] = {
            name: ([0] * 4, [0] * 4, [0] * 4) for name in _ARRAYS
        }
        self.counts = dict.fromkeys(_COUNTS, 0)
        self.oversize: dict[str, Stat] = {"oversize_allocations": [0] * 4, "oversize_segments": [0] * 4}
        pick = [self.arrays[name] for name in _ARRAYS]
        self.allocation, self.segment, self.active, self.inactive = pick[:4]
        self.allocated, self.reserved, self.active_bytes, self.inactive_bytes, self.requested = pick[4:]

    def change(self, array: tuple[Stat, Stat, Stat], small: bool, amount: int) -> None:
        """Add to the array's total and to its pool's share; a negative amount takes away."""
        for stat in (array[0], array[1 if small else 2]):
            if amount >= 0:
                increase(stat, amount)
            else:
                decrease(stat, -amount)

    def taken(self, small: bool, size: int, requested: int) -> None:
        """A block was handed out. (Written out: this runs for every tensor.)"""
        own = 1 if small else 2
        for array, amount in (
            (self.allocation, 1),
            (self.active, 1),
            (self.allocated, size),
            (self.active_bytes, size),
            (self.requested, requested),
        ):
            for stat in (array[0], array[own]):
                now = stat[0] = stat[0] + amount
                stat[2] += amount
                if now > stat[1]:
                    stat[1] = now

    def reset_peaks(self) -> None:
        for stat in self._every():
            stat[PEAK] = stat[CURRENT]

    def reset_accumulated(self) -> None:
        for stat in self._every():
            stat[ALLOCATED] = stat[FREED] = 0
        self.counts.update(dict.fromkeys(_COUNTS, 0))

    def _every(self) -> list[Stat]:
        return [stat for array in self.arrays.values() for stat in array] + list(self.oversize.values())

    def flat(self) -> dict[str, Any]:
        """As torch.cuda.memory_stats(): "allocated_bytes.all.current" and so on, sorted."""
        result: dict[str, int] = dict(self.counts)
        # size_t's maximum, cast to a signed integer, is how PyTorch shows "not set".
        result["max_split_size"] = -1 if self.max_split_size >= 1 << 63 else self.max_split_size
        for name, array in self.arrays.items():
            for kind, stat in zip(_KINDS, array, strict=True):
                result.update({f"{name}.{kind}.{m}": v for m, v in zip(_METRICS, stat, strict=True)})
        for name, stat in self.oversize.items():
            result.update({f"{name}.{m}": v for m, v in zip(_METRICS, stat, strict=True)})
        return dict(sorted(result.items()))
