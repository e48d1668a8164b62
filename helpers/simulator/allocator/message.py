"""The out-of-memory error, in PyTorch's words (CUDACachingAllocator.cpp, malloc; 2.11 to 2.14)."""

from __future__ import annotations

__all__ = ["OutOfMemory", "format_size", "text"]


class OutOfMemory(RuntimeError):
    """Stands for torch.OutOfMemoryError. All in bytes: tried, total, free, allocated, reserved."""

    def __init__(
        self, message: str, tried: int, total: int, free: int, allocated: int, reserved: int
    ) -> None:
        super().__init__(message)
        self.tried, self.total, self.free = tried, total, free
        self.allocated, self.reserved = allocated, reserved


def format_size(size: int) -> str:
    """As format_size in c10/core/Allocator.h: 512 bytes, 2.00 KiB, 20.00 MiB, 1.50 GiB."""
    for unit, power in (("KiB", 10), ("MiB", 20)):
        if size <= 1024:
            return f"{size} bytes"
        if size <= 1 << (power + 10):
            return f"{size / (1 << power):.2f} {unit}"
    return f"{size / (1 << 30):.2f} GiB"


def text(
    tried: int, total: int, free: int, in_use: int, allowed: int | None, allocated: int, private: int,
    reserved: int,
) -> str:  # fmt: skip
    """The whole message. private: cached bytes in private pools; allowed: None without a memory fraction."""
    size = format_size
    parts = [
        f"CUDA out of memory. Tried to allocate {size(tried)}. GPU 0 has a total capacity of {size(total)} "
        f"of which {size(free)} is free. "
        f"Including non-PyTorch memory, this process has {size(in_use)} memory in use. ",
        f"{size(allowed)} allowed; " if allowed is not None else "",
        f"Of the allocated memory {size(allocated + private)} is allocated by PyTorch, ",
        f"with {size(private)} allocated in private pools (e.g., CUDA Graphs), " if private else "",
        f"and {size(reserved - allocated - private)} is reserved by PyTorch but unallocated. "
        "If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  "
        "See documentation for Memory Management  "
        "(https://docs.pytorch.org/docs/stable/notes/cuda.html"
        "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)",
    ]
    return "".join(parts)
