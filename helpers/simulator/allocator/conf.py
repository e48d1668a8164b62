"""PYTORCH_ALLOC_CONF: what may be written in it, and how sizes are rounded.

Sources: pytorch c10/core/AllocatorConfig.h and .cpp, c10/cuda/CUDAAllocatorConfig.h and .cpp (2.11 to 2.14);
the options' meaning: docs.pytorch.org, "CUDA semantics", "Optimizing memory usage".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
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
KNOWN = "expandable_segments garbage_collection_threshold max_split_size_mb".split()


@dataclass(frozen=True)
class Conf:
    """The options, in bytes.

    garbage_collection_threshold is read and told again, and not simulated: PyTorch itself frees nothing by it without a
    memory fraction.
    """

    text: str = ""
    max_split_size: int = UNLIMITED
    garbage_collection_threshold: float = 0.0
    expandable_segments: bool = False

    def round_size(self, nbytes: int) -> int:
        """How large a block a request of that many bytes needs (DeviceCachingAllocator::round_size)."""
        return max(MIN_BLOCK, -(-nbytes // MIN_BLOCK) * MIN_BLOCK)

    def splits(self, size: int, remains: int, loose: bool) -> bool:
        """Whether what remains of a block becomes one of its own (should_split): from 512 bytes on where it is `loose`, in the
        small pool or an expandable segment; above 1 MiB in the large pool, and never for requests of max_split_size or more."""
        return remains >= MIN_BLOCK if loose else remains > SMALL and size < self.max_split_size

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
        megabytes = int(value)
        if megabytes < 20:
            raise ValueError("too small, must be >= 20")
        return {"max_split_size": megabytes * MIB}
    except ValueError as error:
        raise ValueError(f"alloc_conf: {key}:{value}: {error}") from None
