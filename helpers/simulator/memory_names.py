"""torch.cuda's names for memory, on the simulated and on a real GPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from helpers.simulator.memory import Memory

if TYPE_CHECKING:
    from helpers.simulator.gpu import SimGPU

__all__ = ["MemoryModule", "MemoryNames", "RealMemoryNames"]


class MemoryModule:
    """What torch.cuda.memory is to torch.cuda: `gpu.memory`."""

    def __init__(self, gpu: SimGPU) -> None:
        self._gpu = gpu

    def __getattr__(self, name: str) -> Any:
        if name in MemoryNames.__dict__ and not name.startswith("_") and name != "memory":
            return getattr(self._gpu, name)
        raise AttributeError(f"gpu.memory has no {name!r}")

    def _record_memory_history(
        self, enabled: str | None = "all", context: str | None = "all", stacks: str = "all",
        max_entries: int | None = None, device: Any = None, clear_history: bool = False,
        compile_context: bool = False, global_record_annotations: bool = False,
        skip_actions: Iterable[str] | None = None,
    ) -> None:  # fmt: skip
        """Keep a history of allocations, with the Python frames that asked for them; None stops it."""
        self._gpu._memory.watch(enabled, context, max_entries, clear_history, tuple(skip_actions or ()))

    def _snapshot(self, device: Any = None) -> dict[str, Any]:
        """torch.cuda.memory._snapshot(), with one more key: "simulated", the name of the card."""
        return {**self._gpu._memory.allocator.snapshot(), "simulated": self._gpu.name}

    def _dump_snapshot(self, filename: str = "dump_snapshot.pickle") -> None:
        """Write the snapshot where torch.cuda._memory_viz and helpers.memory read it."""
        import pickle

        with open(filename, "wb") as file:
            pickle.dump(self._snapshot(), file)


class MemoryNames:
    """torch.cuda's names for memory, on the simulated GPU. device arguments are accepted: there is one."""

    _memory: Memory

    @property
    def memory(self) -> MemoryModule:
        """torch.cuda.memory's names, history and snapshot among them."""
        return MemoryModule(self)  # type: ignore[arg-type]

    def memory_stats(self, device: Any = None) -> dict[str, Any]:
        """Counts and bytes under torch.cuda.memory_stats' keys, e.g. "allocated_bytes.all.peak"."""
        return self._memory.allocator.stats()

    def memory_allocated(self, device: Any = None) -> int:
        """Bytes in tensors, each rounded up to its block."""
        return self._memory.allocator.stats_.allocated[0][0]

    def max_memory_allocated(self, device: Any = None) -> int:
        """The most of it since the start, or since reset_peak_memory_stats()."""
        return self._memory.allocator.stats_.allocated[0][1]

    def memory_reserved(self, device: Any = None) -> int:
        """Bytes that the allocator has from the device."""
        return self._memory.allocator.stats_.reserved[0][0]

    def max_memory_reserved(self, device: Any = None) -> int:
        """The most of it since the start, or since reset_peak_memory_stats()."""
        return self._memory.allocator.stats_.reserved[0][1]

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """Peaks begin anew at what is there now."""
        self._memory.allocator.reset_peak_stats()

    def reset_accumulated_memory_stats(self, device: Any = None) -> None:
        """Sums (allocated, freed, retries, failures) begin anew at 0."""
        self._memory.allocator.reset_accumulated_stats()

    def empty_cache(self) -> None:
        """Give segments without a tensor in them back to the device; cudaFree waits for the device."""
        self._memory.allocator.empty_cache()

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """(free, total) bytes of the device, the context taken off."""
        driver = self._memory.allocator.driver
        return driver.free, driver.total

    def set_per_process_memory_fraction(self, fraction: float, device: Any = None) -> None:
        """The allocator takes no more than that share of the device (0 to 1). A limit: nothing is reserved."""
        if not isinstance(fraction, float):
            raise TypeError("Invalid type for fraction argument, must be `float`")
        self._memory.allocator.set_memory_fraction(fraction)

    def memory_snapshot(self, mempool_id: Any = None) -> list[dict[str, Any]]:
        """Every segment with its blocks."""
        return self._memory.allocator.segments()


class RealMemoryNames:
    """The same names on a real GPU: torch.cuda's own."""

    memory = torch.cuda.memory
    memory_stats = staticmethod(torch.cuda.memory_stats)
    memory_allocated = staticmethod(torch.cuda.memory_allocated)
    max_memory_allocated = staticmethod(torch.cuda.max_memory_allocated)
    memory_reserved = staticmethod(torch.cuda.memory_reserved)
    max_memory_reserved = staticmethod(torch.cuda.max_memory_reserved)
    reset_peak_memory_stats = staticmethod(torch.cuda.reset_peak_memory_stats)
    reset_accumulated_memory_stats = staticmethod(torch.cuda.reset_accumulated_memory_stats)
    empty_cache = staticmethod(torch.cuda.empty_cache)
    mem_get_info = staticmethod(torch.cuda.mem_get_info)
    set_per_process_memory_fraction = staticmethod(torch.cuda.set_per_process_memory_fraction)
    memory_snapshot = staticmethod(torch.cuda.memory_snapshot)
