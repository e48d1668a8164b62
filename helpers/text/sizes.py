"""Bytes in words: as the course writes them, and as PyTorch's own messages do."""

from __future__ import annotations


def size_text(nbytes: float, *, decimal: bool = False) -> str:
    """Bytes with three significant digits: 512 B, 1.50 KiB, 20 MiB, 3.25 GiB. A whole number stays whole.

    Memory is counted in powers of 1024. decimal: powers of 1000, as links are sold, and without zeros at the end:
    25.7 MB, 1.5 GB.

    >>> memory.size_text(1536), memory.size_text(1536, decimal=True)
    ('1.50 KiB', '1.54 kB')
    """
    step, units = (1000, ("B", "kB", "MB", "GB")) if decimal else (1024, ("B", "KiB", "MiB", "GiB"))
    sign, size = ("-" if nbytes < 0 else ""), abs(nbytes)
    for unit in units:
        if size < step - 0.5 or unit == units[-1]:
            break
        size /= step
    if size == int(size) or size >= 100:
        return f"{sign}{size:,.0f} {unit}"
    return f"{sign}{f'{size:.3g}' if decimal else f'{size:#.3g}'.rstrip('.')} {unit}"


def size_unit(nbytes: int) -> tuple[float, str]:
    """For an axis that goes up to `nbytes`: (bytes in one unit, the unit)."""
    power = next((p for p in (30, 20, 10) if nbytes >= 1 << p), 0)
    return float(1 << power), {30: "GiB", 20: "MiB", 10: "KiB", 0: "bytes"}[power]


def size_as_torch(nbytes: int) -> str:
    """As format_size in c10/core/Allocator.h, in whose words an out-of-memory error is told: 512 bytes, 20.00 MiB."""
    for unit, power in (("KiB", 10), ("MiB", 20)):
        if nbytes <= 1024:
            return f"{nbytes} bytes"
        if nbytes <= 1 << (power + 10):
            return f"{nbytes / (1 << power):.2f} {unit}"
    return f"{nbytes / (1 << 30):.2f} GiB"
