"""PYTORCH_ALLOC_CONF: what may be written in it, and how sizes are rounded.

Sources: pytorch c10/core/AllocatorConfig.h and .cpp, c10/cuda/CUDAAllocatorConfig.h and .cpp (2.11 to 2.14);
the options' meaning: docs.pytorch.org, "CUDA semantics", "Optimizing memory usage".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

MIB = 1 << 20
UNLIMITED = (1 << 64) - 1  # size_t's maximum: max_split_size where it was not set

MIN_BLOCK = 512  # kMinBlockSize: every size is rounded up to a multiple of it
SMALL = MIB  # kSmallSize: the largest request that goes to the small pool
SMALL_SEGMENT = 2 * MIB  # kSmallBuffer: what the small pool asks cudaMalloc for
# kLargeBuffer: what the large pool asks for, below MIN_LARGE; and what a block that may not be split can be larger than its
# request
LARGE_SEGMENT = 20 * MIB
MIN_LARGE = 10 * MIB  # kMinLargeAlloc: from here on a request gets a segment of its own,
ROUND_LARGE = 2 * MIB  # kRoundLarge: … rounded up to this

# Options that PyTorch knows and that change nothing here (host memory, locks, handle types, other pools, sizes that
# nobody sets).
WITHOUT_EFFECT = """
    backend expandable_segments_handle_type graph_capture_record_stream_reuse large_segment_size_mb
    max_non_split_rounding_mb per_process_memory_fraction pinned_free_catch_all pinned_max_cached_size_mb
    pinned_max_round_threshold_mb pinned_num_register_threads pinned_reserve_segment_size_mb
    pinned_use_background_threads pinned_use_cuda_host_register release_lock_on_cudamalloc throw_on_cudamalloc_oom
""".split()
KNOWN = "expandable_segments garbage_collection_threshold max_split_size_mb roundup_power2_divisions".split()
_INTERVALS = 16  # kRoundUpPowerOfTwoIntervals: 1 MiB, 2 MiB, … 64 GiB


@dataclass(frozen=True)
class Conf:
    """The options, in bytes. roundup: divisions for requests of 1 MiB, 2 MiB, 4 MiB, …; 0 switches it off.

    garbage_collection_threshold is read and told again, and not simulated: PyTorch itself frees nothing by it without a
    memory fraction.
    """

    text: str = ""
    max_split_size: int = UNLIMITED
    garbage_collection_threshold: float = 0.0
    expandable_segments: bool = False
    roundup: tuple[int, ...] = field(default=(0,) * _INTERVALS)

    def round_size(self, nbytes: int) -> int:
        """How large a block a request of that many bytes needs (DeviceCachingAllocator::round_size)."""
        if nbytes < MIN_BLOCK:
            return MIN_BLOCK
        divisions = self.roundup[min(max(nbytes.bit_length() - 21, 0), _INTERVALS - 1)]
        if divisions > 1 and nbytes > MIN_BLOCK * divisions:
            return _next_division(nbytes, divisions)
        return -(-nbytes // MIN_BLOCK) * MIN_BLOCK

    def segment_size(self, size: int) -> int:
        """What cudaMalloc is asked for when no cached block fits (get_allocation_size). size: rounded."""
        if size <= SMALL:
            return SMALL_SEGMENT
        if size < MIN_LARGE:
            return LARGE_SEGMENT
        return -(-size // ROUND_LARGE) * ROUND_LARGE


def parse(text: str) -> Conf:
    """Read the syntax of PYTORCH_ALLOC_CONF. ValueError names what is wrong, and the options there are."""
    found: dict[str, Any] = {"text": text}
    rest = re.sub(r"\s", "", text)
    while rest:
        match = re.match(r"([^:,\[\]]+):(\[[^\]]*\]|[^,\[\]]+)(?:,|$)", rest)
        if match is None:
            raise ValueError(f"alloc_conf: cannot read {rest!r}; write key:value,key:value")
        key, value = match[1], match[2]
        if key in KNOWN:
            found.update(_read(key, value))
        elif key not in WITHOUT_EFFECT:
            raise ValueError(
                f"alloc_conf: there is no option {key!r}; there are {', '.join(KNOWN)} "
                f"(and, without effect here, {', '.join(WITHOUT_EFFECT)})"
            )
        rest = rest[match.end() :]
    return Conf(**found)


def _read(key: str, value: str) -> dict[str, Any]:
    try:
        if key == "expandable_segments":
            if value not in ("True", "False"):
                raise ValueError("write True or False")
            return {key: value == "True"}
        if key == "garbage_collection_threshold":
            if not 0 < (threshold := float(value)) < 1:
                raise ValueError("set it between 0 and 1")
            return {key: threshold}
        if key == "roundup_power2_divisions":
            return {"roundup": _divisions(value)}
        megabytes = int(value)
        if megabytes < 20:
            raise ValueError("too small, must be >= 20")
        return {"max_split_size": megabytes * MIB}
    except ValueError as error:
        raise ValueError(f"alloc_conf: {key}:{value}: {error}") from None


def _divisions(value: str) -> tuple[int, ...]:
    """One number for all sizes, or [256:1,512:2,1024:4,>:8] by interval in MiB (parseRoundUpPower2Divisions)."""
    if not value.startswith("["):
        return (_power_of_two(int(value)),) * _INTERVALS
    table, last, first = [0] * _INTERVALS, 0, True
    for entry in value[1:-1].split(","):
        interval, _, number = entry.partition(":")
        divisions = int(number) and _power_of_two(int(number))
        if interval == ">":
            table[last:] = [divisions] * (_INTERVALS - last)
            continue
        index = min(_power_of_two(int(interval)).bit_length() - 1, _INTERVALS - 1)
        if first:
            table[:index], first = [divisions] * index, False
        table[index] = divisions
        last = index
    return tuple(table)


def _power_of_two(number: int) -> int:
    if number < 1 or number & (number - 1):
        raise ValueError("intervals and divisions must be powers of 2")
    return number


def _next_division(nbytes: int, divisions: int) -> int:
    """Round up to the next of `divisions` equal steps between two powers of 2."""
    if nbytes & (nbytes - 1) == 0:
        return nbytes
    floor = 1 << (nbytes.bit_length() - 1)
    step = floor >> (divisions.bit_length() - 1)
    return -(-nbytes // step) * step if step else floor << 1
