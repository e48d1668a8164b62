"""The memory of the simulated GPU: the caching allocator's model, driven by the tensors that live and die.

A storage that appears among an operator's results is allocated on the current stream; it is freed when PyTorch
frees it, that is when the last tensor over it is gone. What CUDA keeps beside the tensors is counted too: the
context, and cuBLAS's workspaces. Temporary memory inside a kernel is not.
"""

from __future__ import annotations

import pickle
import threading
import weakref
from functools import partial
from typing import Any

import torch

from helpers.pytorch import private_torch
from helpers.pytorch.tensors import tensors
from helpers.simulator.accesses import place
from helpers.simulator.allocator import CachingAllocator, OutOfMemory
from helpers.simulator.cost.roofline import library
from helpers.simulator.frames import frames
from helpers.simulator.machine import Machine
from helpers.simulator.timeline import Lane

# An assumption, like those in devices.Assumptions: what a context with PyTorch's kernels takes on a current
# data-centre card, as nvidia-smi shows it after the first kernel (it varies with card, driver and libraries).
CONTEXT_BYTES = 500 << 20
# cuBLAS workspaces come from the caching allocator, one for each handle and stream, and stay
# (aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize: 32 MiB on Hopper and later).
WORKSPACE_BYTES = 4096 * 1024 * 2 + 16 * 1024 * 8
WORKSPACE_BYTES_HOPPER = 4096 * 8 * 1024
# Whose frames a history keeps: nobody's, live blocks', allocations' too, frees' too.
LEVELS = (None, "state", "alloc", "all")


class _Allocator(CachingAllocator):
    """The model with the simulated device's clock and streams."""

    def __init__(self, machine: Machine, total: int, conf: str, context: int) -> None:
        super().__init__(total, conf, context_bytes=context, history=False)
        self._line, self._gave_back = machine.line, False
        self.clock = lambda: machine.line.host_ns // 1000

    def event(self, stream: int) -> int:
        """A mark at the end of a stream: the moment when it is passed."""
        return max(self._line.lanes[stream].ready_ns, self._line.arrival_ns)

    def reached(self, event: int) -> bool:
        return event <= self._line.host_ns

    def wait(self, event: int) -> None:
        self._line.wait_until("cudaEventSynchronize", event)

    def _device_changed(self, nbytes: int) -> None:
        if nbytes < 0:
            self._line.drain("cudaFree")  # which waits for the whole device
            self._gave_back = True
        if self._gave_back:  # until then the process fills its cache, which is set-up
            name = "cudaMalloc" if nbytes > 0 else "cudaFree"
            self._line.spend(name, "work", self._line.card.assumptions.segment_s)


class Memory:
    """Storages and their addresses. allocator: the model; its state can be read at any time."""

    def __init__(self, machine: Machine, memory_bytes: int | None, alloc_conf: str) -> None:
        total = machine.card.memory_bytes if memory_bytes is None else memory_bytes
        if total <= 0:
            raise ValueError(f"memory_bytes is a positive number of bytes, not {total}")
        context = min(CONTEXT_BYTES, total // 10)  # a card made small for a lesson keeps room
        self._machine, self.card = machine, machine.card.name
        self.allocator = _Allocator(machine, total, alloc_conf, context)
        # Storage → address, bytes asked for, and the reference whose end frees it.
        self._held: dict[int, tuple[int, int, Any]] = {}
        machine.memory, machine.races.held = self, self._held
        self._workspaces: set[tuple[bool, int]] = set()
        self._is_blas: dict[Any, bool] = {}
        self._busy = threading.Lock()
        self._dead: list[int] = []  # storages that died while the allocator was at work (garbage collection)
        self.level = 0  # into LEVELS: which frames are kept
        self.cpp = False  # whether with C++'s

    # -------------------------------------------------------------------------------- from modes

    def produced(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Called after every operator that ran: give its new storages addresses."""
        if self._dead:
            self._bury()
        blas = self._is_blas.get(func)
        if blas is None:
            blas = self._is_blas[func] = library(func) == "cuBLAS"
        if blas and any(t.is_meta for t in tensors(out)):
            self._workspace()
        for tensor in tensors(args):  # made outside the block, or unseen by the dispatcher
            if tensor.is_meta and tensor.untyped_storage()._cdata not in self._held:
                self.appeared(tensor)
        if isinstance(out, torch.Tensor):
            self.appeared(out)
        elif out is not None:
            for tensor in tensors(out):
                self.appeared(tensor)

    def appeared(self, tensor: torch.Tensor) -> None:
        """Give a device tensor's storage an address, if it has none yet."""
        if not tensor.is_meta:
            return
        storage = tensor.untyped_storage()
        key, nbytes = storage._cdata, storage.nbytes()
        held = self._held.get(key)
        if held is not None:
            if held[1] == nbytes:
                return
            self._gone(key)  # resize_: a new piece of memory takes the old one's place
        address = self._malloc(nbytes)
        # Not weakref.finalize, which costs more and would run at exit.
        self._held[key] = (address, nbytes, weakref.ref(storage, partial(self._ended, key)))

    def resized(self, storage: torch.UntypedStorage) -> None:
        """storage.resize_(n), by which FSDP frees and takes memory, is no operator."""
        key, nbytes = storage._cdata, storage.nbytes()
        held = self._held.get(key)
        if held is None or held[1] == nbytes:
            return
        self._gone(key)
        self._held[key] = (self._malloc(nbytes), nbytes, weakref.ref(storage, partial(self._ended, key)))

    def record_stream(self, tensor: torch.Tensor, lane: Lane) -> None:
        """tensor.record_stream(stream)."""
        self.appeared(tensor)
        address = self._held[tensor.untyped_storage()._cdata][0]
        if address:
            self.allocator.record_stream(address, lane.number)
            self._machine.races.lent(address, lane.number)

    def extent(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        """Address and length in bytes of what the tensor touches; None for nothing, and for host memory."""
        held = self._held.get(tensor.untyped_storage()._cdata)
        if held is None or not held[0] or not tensor.numel():
            return None
        low, high, _ = place(tensor)
        return held[0] + low, high - low

    # -------------------------------------------------------------------------------- to the allocator

    def _malloc(self, nbytes: int) -> int:
        machine, allocator = self._machine, self.allocator
        if not nbytes:
            return 0
        stream = machine.current.number
        where: Any = frames(self.cpp) if self.level else None
        with self._busy:
            try:
                address = allocator.malloc(nbytes, stream, where=where)
            except OutOfMemory as error:
                machine.faults.append(f"torch.OutOfMemoryError: {error}")
                allocator.driver.lifted = True  # and go on as if the card were larger
                address = allocator.malloc(nbytes, stream, where=where)
        if self._dead:
            self._bury()
        machine.races.allocated(address, nbytes, stream)
        return address

    def _ended(self, key: int, _: Any) -> None:
        self._gone(key)

    def _gone(self, key: int) -> None:
        """A storage is no more. May run inside the allocator, where Python collects garbage: then later."""
        if not self._busy.acquire(blocking=False):
            self._dead.append(key)
            return
        try:
            address, nbytes, _ = self._held.pop(key, (0, 0, None))
            if address:
                self.allocator.free(address, frames(self.cpp) if self.level > 2 else None)
        finally:
            self._busy.release()
        if address:
            self._machine.races.freed(address, nbytes)

    def _bury(self) -> None:
        dead, self._dead = self._dead, []
        for key in dead:
            self._gone(key)

    def _workspace(self) -> None:
        # Backward runs in a thread of its own, with its own cuBLAS handle.
        key = (private_torch.current_autograd_node() is not None, self._machine.current.number)
        if key not in self._workspaces:
            self._workspaces.add(key)
            hopper = self._machine.card.capability >= (9, 0)
            self._malloc(WORKSPACE_BYTES_HOPPER if hopper else WORKSPACE_BYTES)


class MemoryNames:
    """torch.cuda's names for memory, on the simulated GPU. device arguments are accepted: there is one."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._allocator = memory, memory.allocator

    def memory_stats(self, device: Any = None) -> dict[str, Any]:
        """Counts and bytes under torch.cuda.memory_stats' keys, e.g. "allocated_bytes.all.peak"."""
        return self._allocator.stats()

    def memory_allocated(self, device: Any = None) -> int:
        """Bytes in tensors, each rounded up to its block."""
        return self._allocator.stats_.allocated[0][0]

    def max_memory_allocated(self, device: Any = None) -> int:
        """The most of it since the start, or since reset_peak_memory_stats()."""
        return self._allocator.stats_.allocated[0][1]

    def memory_reserved(self, device: Any = None) -> int:
        """Bytes that the allocator has from the device."""
        return self._allocator.stats_.reserved[0][0]

    def max_memory_reserved(self, device: Any = None) -> int:
        """The most of it since the start, or since reset_peak_memory_stats()."""
        return self._allocator.stats_.reserved[0][1]

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """Peaks begin anew at what is there now."""
        self._allocator.reset_peak_stats()

    def empty_cache(self) -> None:
        """Give segments without a tensor in them back to the device; cudaFree waits for the device."""
        self._allocator.empty_cache()

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """(free, total) bytes of the device, the context taken off."""
        driver = self._allocator.driver
        return driver.free, driver.total

    def set_per_process_memory_fraction(self, fraction: float, device: Any = None) -> None:
        """The allocator takes no more than that share of the device (0 to 1). A limit: nothing is reserved."""
        if not isinstance(fraction, float):
            raise TypeError("Invalid type for fraction argument, must be `float`")
        self._allocator.set_memory_fraction(fraction)

    def memory_snapshot(self, mempool_id: Any = None) -> list[dict[str, Any]]:
        """Every segment with its blocks."""
        return self._allocator.segments()


class MemoryModule(MemoryNames):
    """The same names as `gpu.memory`, and those that only torch.cuda.memory has."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"gpu.memory has no {name!r}")

    def _record_memory_history(
        self, enabled: str | None = "all", context: str | None = "all", stacks: str = "python",
        max_entries: int | None = None, device: Any = None, clear_history: bool = False,
    ) -> None:  # fmt: skip
        """Keep a history of allocations, with the frames that asked for them; None stops it.

        stacks: "python", or "all" with C++'s frames too, which is what torch does if it is not told.
        """
        for name, value, allowed in [
            ("enabled", enabled, (None, "state", "all")),
            ("context", context, LEVELS),
            ("stacks", stacks, ("python", "all")),
        ]:
            if value not in allowed:
                raise ValueError(f"{name} is one of {', '.join(map(str, allowed))}, not {value!r}")
        self._memory.level = level = LEVELS.index(context) if enabled else 0
        self._memory.cpp = stacks == "all"
        limit = max_entries if enabled == "all" else 1
        self._allocator.record_history(enabled is not None, limit, clear_history, places=level > 1)

    def _snapshot(self, device: Any = None) -> dict[str, Any]:
        """torch.cuda.memory._snapshot(), with one more key: "simulated", the name of the card."""
        return {**self._allocator.snapshot(), "simulated": self._memory.card}

    def _dump_snapshot(self, filename: str = "dump_snapshot.pickle") -> None:
        """Write the snapshot where torch.cuda._memory_viz and helpers.memory read it."""
        with open(filename, "wb") as file:
            pickle.dump(self._snapshot(), file)
