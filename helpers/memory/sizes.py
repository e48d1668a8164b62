"""How large a block is, by the allocator's own rules; and bytes in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helpers.simulator.allocator.conf import LARGE_SEGMENT, MIN_BLOCK, SMALL, SMALL_SEGMENT, Conf, parse

__all__ = ["Conf", "block_size", "conf_of", "pages", "pool_of", "size_text"]


def conf_of(settings: Mapping[str, Any]) -> Conf:
    """The options that a snapshot says were set; the defaults where it says nothing that can be read."""
    text = settings.get("PYTORCH_ALLOC_CONF") or settings.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    try:
        return parse(text) if isinstance(text, str) else Conf()
    except ValueError:  # options of another version of PyTorch
        return Conf()


def block_size(conf: Conf, nbytes: int, room: int | None, expandable: bool = False) -> int:
    """Size of the block that a request of `nbytes` gets at the start of a free block of `room` bytes.

    What remains is split off where the allocator would (`should_split` in CUDACachingAllocator.cpp): from 512 bytes on
    in the small pool and in expandable segments, above 1 MiB in the large pool, and never for requests of
    max_split_size or more. Without `room`, or with too little: the rounded request.
    """
    size = conf.round_size(nbytes)
    remains = (room or 0) - size
    if remains < 0:
        return size
    if size <= SMALL or expandable:
        split = remains >= MIN_BLOCK
    else:
        split = remains > SMALL and size < conf.max_split_size
    return size if split else size + remains


def pool_of(size: int) -> str:
    """The pool of a segment of that size, for events, which do not name it.

    The small pool asks CUDA for 2 MiB, and nothing else asks for so little (`get_allocation_size`); pages of a small
    expandable segment are as large.
    """
    return "small" if size <= SMALL_SEGMENT else "large"


def pages(offset: int, size: int, pool: str) -> int:
    """Bytes of whole pages (2 MiB small, 20 MiB large) in `size` bytes at `offset` of an expandable segment."""
    page = SMALL_SEGMENT if pool == "small" else LARGE_SEGMENT
    return max(0, (offset + size) // page - -(-offset // page)) * page


def size_text(nbytes: float) -> str:
    """Bytes with three significant digits: 512 B, 1.50 KiB, 20 MiB, 3.25 GiB. A whole number stays whole."""
    sign, size = ("-" if nbytes < 0 else ""), abs(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1023.5 or unit == "GiB":
            break
        size /= 1024
    if size == int(size):
        return f"{sign}{int(size):,} {unit}"
    digits = f"{size:,.0f}" if size >= 100 else f"{size:#.3g}"
    return f"{sign}{digits.rstrip('.')} {unit}"
