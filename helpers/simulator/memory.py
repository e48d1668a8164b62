"""The memory of the simulated GPU: the caching allocator's model, driven by the tensors that live and die.

A storage that appears among an operator's results is allocated on the current stream; it is freed when PyTorch
frees it, that is when the last tensor over it is gone. What CUDA keeps beside the tensors is counted too: the
context, and cuBLAS's workspaces. Temporary memory inside a kernel is not.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from helpers.simulator import cost
from helpers.simulator.allocator import CachingAllocator, OutOfMemory
from helpers.simulator.frames import frames

if TYPE_CHECKING:
    from helpers.simulator.gpu import SimGPU
    from helpers.simulator.streams import Stream

__all__ = ["Extent", "Memory", "record_stream"]

Extent = tuple[int, int]  # address, bytes

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

    def __init__(self, gpu: SimGPU, total: int, conf: str, context: int) -> None:
        super().__init__(total, conf, context_bytes=context, history=False)
        self._line = gpu._timeline
        self.clock = lambda: gpu._timeline.host_ns // 1000

    def event(self, stream: int) -> int:
        """A mark at the end of a stream: the moment when it is passed."""
        return max(self._line.lanes[stream].ready_ns, self._line.arrival_ns)

    def reached(self, event: int) -> bool:
        return event <= self._line.host_ns

    def wait(self, event: int) -> None:
        self._line.wait_until("cudaEventSynchronize", event)

    def _device_freed(self, size: int) -> None:
        self._line.drain("cudaFree")  # which waits for the whole device


class Memory:
    """Storages and their addresses. allocator: the model; its state can be read at any time."""

    def __init__(self, gpu: SimGPU, memory_bytes: int | None, alloc_conf: str) -> None:
        total = gpu.card.memory_bytes if memory_bytes is None else memory_bytes
        if total <= 0:
            raise ValueError(f"memory_bytes is a positive number of bytes, not {total}")
        context = min(CONTEXT_BYTES, total // 10)  # a card made small for a lesson keeps room
        self._gpu = gpu
        self.allocator = _Allocator(gpu, total, alloc_conf, context)
        # Storage → address, bytes asked for, and the reference whose end frees it.
        self._held: dict[int, tuple[int, int, Any]] = {}
        gpu._timeline.races.held = self._held
        self._workspaces: set[tuple[bool, int]] = set()
        self._is_blas: dict[Any, bool] = {}
        self._busy = threading.Lock()
        self._dead: list[int] = []  # storages that died while the allocator was at work (garbage collection)
        self._level = 0  # into LEVELS: which frames are kept

    # -------------------------------------------------------------------------------- from modes

    def produced(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Called after every operator that ran: give its new storages addresses."""
        if self._dead:
            self._bury()
        blas = self._is_blas.get(func)
        if blas is None:
            blas = self._is_blas[func] = cost.library(func) == "cuBLAS"
        if blas and any(t.is_meta for t in cost.tensors(out)):
            self._workspace()
        for tensor in cost.tensors(args):  # made outside the block, or unseen by the dispatcher
            if tensor.is_meta and tensor.untyped_storage()._cdata not in self._held:
                self.appeared(tensor)
        if isinstance(out, torch.Tensor):
            self.appeared(out)
        elif out is not None:
            for tensor in cost.tensors(out):
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

    def record_stream(self, tensor: torch.Tensor, stream: Stream) -> None:
        """tensor.record_stream(stream)."""
        self.appeared(tensor)
        address = self._held[tensor.untyped_storage()._cdata][0]
        if address:
            self.allocator.record_stream(address, stream._lane.number)
            self._tell("lent", address, stream._lane.number)

    def extent(self, tensor: torch.Tensor) -> Extent | None:
        """Address and length in bytes of what the tensor touches; None for nothing, and for host memory."""
        held = self._held.get(tensor.untyped_storage()._cdata)
        if held is None or not held[0] or not tensor.numel():
            return None
        last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
        size = tensor.element_size()
        return held[0] + int(tensor.storage_offset()) * size, (last + 1) * size

    # -------------------------------------------------------------------------------- to the allocator

    def _malloc(self, nbytes: int) -> int:
        gpu, allocator = self._gpu, self.allocator
        if not nbytes:
            return 0
        stream = gpu._current._lane.number
        where: Any = frames() if self._level else None
        with self._busy:
            try:
                address = allocator.malloc(nbytes, stream, where=where)
            except OutOfMemory as error:
                gpu.faults.append(f"torch.OutOfMemoryError: {error}")
                allocator.driver.lifted = True  # and go on as if the card were larger
                address = allocator.malloc(nbytes, stream, where=where)
        if self._dead:
            self._bury()
        self._tell("allocated", address, nbytes, stream)
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
                self.allocator.free(address, frames() if self._level > 2 else None)
        finally:
            self._busy.release()
        if address:
            self._tell("freed", address, nbytes)

    def _bury(self) -> None:
        dead, self._dead = self._dead, []
        for key in dead:
            self._gone(key)

    def _tell(self, what: str, *about: int) -> None:
        getattr(self._gpu._timeline.races, what)(*about)

    def _workspace(self) -> None:
        # Backward runs in a thread of its own, with its own cuBLAS handle.
        key = (torch._C._current_autograd_node() is not None, self._gpu._current._lane.number)
        if key not in self._workspaces:
            self._workspaces.add(key)
            hopper = self._gpu.card.capability >= (9, 0)
            self._malloc(WORKSPACE_BYTES_HOPPER if hopper else WORKSPACE_BYTES)

    # -------------------------------------------------------------------------------- history

    def watch(
        self, enabled: str | None, context: str | None, limit: int | None, clear: bool, skip: Collection[str]
    ) -> None:
        """Start the history, or with enabled=None stop it; the arguments of _record_memory_history."""
        for name, value, allowed in (
            ("enabled", enabled, (None, "state", "all")),
            ("context", context, LEVELS),
        ):
            if value not in allowed:
                raise ValueError(f"{name} is one of {', '.join(map(str, allowed))}, not {value!r}")
        self._level = LEVELS.index(context) if enabled else 0
        limit = limit if enabled == "all" else 1
        self.allocator.record_history(enabled is not None, limit, clear, skip, places=self._level > 1)


_record_stream = torch.Tensor.record_stream


def record_stream(tensor: torch.Tensor, stream: Any) -> None:
    """Stands in for Tensor.record_stream, which takes no stream but PyTorch's own."""
    gpu = getattr(stream, "_gpu", None)
    if gpu is None:
        _record_stream(tensor, stream)
    else:
        gpu._memory.record_stream(gpu._on_device(tensor), stream)
