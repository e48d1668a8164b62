"""What a memory snapshot says, as plain dataclasses: segments, their blocks, the events that led there, and whose they are.

Names and meaning: torch/cuda/memory.py `_snapshot`, torch/csrc/cuda/memory_snapshot.cpp. Sizes are bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from helpers.simulator.allocator.conf import LARGE_SEGMENT, SMALL_SEGMENT, Conf, parse
from helpers.text.sizes import size_text

ALLOCATED, PENDING, FREE = "allocated", "pending free", "free"
_POINTER = 1 << 16
"""Stream numbers from here on are a cudaStream_t; below, a simulated stream's own."""


#: files of libraries, of Python itself, of compilers, of this course's own tools, and whatever is not Python: not where
#: a user would look
_LIBRARY = re.compile(
    r"/(site|dist)-packages/|/torch/|/lib/python3[.\d]*/|/helpers/(simulator|memory|recordings|widgets|lesson)\b"
    r"|^<frozen |^<__array_function__|^<eval_with_key>|^torch/|/torchinductor_|\.(?!pyw?$|ipynb$)\w+$|^\?*$"
)
#: in a stack without Python: the operator, or backward's node, that asked
_ASKED = re.compile(r"torch::autograd::(?:generated::)?(\w+)::apply\b|at::_ops::(\w+)::")
#: file names that IPython gives to a notebook's cells: a folder of the process, and a hash of the cell
_CELL = re.compile(r"ipykernel_\d+/\d+\.py$|^<ipython-input-|^<stdin>$|^<string>$")


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a stack: the file's name without its folder ("cell" for a notebook's), line, function."""

    file: str
    line: int
    function: str
    user: bool = True

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}" if self.file else self.function


def frame_of(filename: str, line: int, function: str) -> Frame:
    """A frame as it is shown. The folder stays out: it says where someone lives and nothing about memory."""
    path = filename.replace("\\", "/")
    user = "::" not in function and not _LIBRARY.search(path)
    file = "cell" if _CELL.search(path) else path.rsplit("/", 1)[-1].strip("?")
    return Frame(file, line, function, user)


def site_of(frames: tuple[Frame, ...]) -> str:
    """The innermost frame of user code, "train.py:12 step"; where none is the user's, of Python, else who asked in C++."""
    frame = next((one for one in frames if one.user), None)
    frame = frame or next((one for one in frames if one.file.endswith(".py")), None)
    if frame is None:  # backward runs in a thread of its own, where nothing is Python
        asked = [match for one in frames if (match := _ASKED.search(one.function))]
        node, operator = (next(filter(None, (match[i] for match in asked)), "") for i in (1, 2))
        frame = frames[0] if frames else None
        return f"{node} (backward)" if node else f"aten::{operator}" if operator else str(frame or "")
    return str(frame)


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a segment. state: "allocated", "pending free" (another stream may still use it) or "free".

    size: bytes taken; requested: bytes asked for (0 in a free block); frames: who asked, innermost first.

    >>> [block.state for block in snapshot.segments[0].blocks]
    ['allocated', 'allocated', 'allocated', 'allocated', 'free']
    """

    address: int
    size: int
    requested: int = 0
    state: str = FREE
    frames: tuple[Frame, ...] = ()

    @property
    def site(self) -> str:
        """The line of user code that asked for it, "model.py:12 forward"; "" where no frames were recorded."""
        return site_of(self.frames)


@dataclass(frozen=True, slots=True)
class Segment:
    """Memory got by one cudaMalloc (expandable: one contiguous mapped range), owned by one stream.

    >>> [(segment.size, segment.pool) for segment in snapshot.segments]
    [(20971520, 'large'), (33554432, 'large')]
    """

    address: int
    size: int
    stream: int
    pool: str
    blocks: tuple[Block, ...]
    expandable: bool = False
    pool_id: tuple[int, int] = (0, 0)

    def bytes(self, state: str) -> int:
        """Bytes of its blocks in that state."""
        return sum(block.size for block in self.blocks if block.state == state)

    @property
    def releasable(self) -> int:
        """Bytes that empty_cache() could give back: all of a free segment, whole free pages of an expandable one."""
        if not self.expandable:
            return self.size if all(block.state == FREE for block in self.blocks) else 0
        free = (block for block in self.blocks if block.state == FREE)
        return sum(_pages(block.address - self.address, block.size, self.pool) for block in free)


def _pages(offset: int, size: int, pool: str) -> int:
    """Bytes of whole pages (2 MiB small, 20 MiB large) in `size` bytes at `offset` of an expandable segment."""
    page = SMALL_SEGMENT if pool == "small" else LARGE_SEGMENT
    return max(0, (offset + size) // page - -(-offset // page)) * page


@dataclass(frozen=True, slots=True)
class Event:
    """One thing the allocator did. action: torch's word ("alloc", "free_requested", "segment_map", "oom" …).

    size: bytes, as asked for in alloc and free. time_us: microseconds, None where none was recorded. device_free:
    what CUDA said was free, with "oom" only.

    >>> [event.action for event in snapshot.events][:2]
    ['segment_alloc', 'alloc']
    """

    index: int
    action: str
    address: int
    size: int
    stream: int
    time_us: float | None = None
    frames: tuple[Frame, ...] = ()
    device_free: int | None = None


@dataclass(frozen=True)
class Snapshot:
    """One device's allocator at one moment, and its events in order, as far back as they were recorded.

    >>> snapshot
    allocated 48 MiB in 5 blocks · reserved 52 MiB in 2 segments · free inside 4 MiB · 8 events · simulated (H100)
    """

    segments: tuple[Segment, ...]
    events: tuple[Event, ...]
    evidence: str
    device: int = 0
    settings: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def conf(self) -> Conf:
        """The allocator's options as the snapshot says them; the defaults where it says nothing that can be read."""
        text = self.settings.get("PYTORCH_ALLOC_CONF") or self.settings.get("PYTORCH_CUDA_ALLOC_CONF") or ""
        try:
            return parse(text) if isinstance(text, str) else Conf()
        except ValueError:  # options of another version of PyTorch
            return Conf()

    @property
    def blocks(self) -> Iterator[Block]:
        return (block for segment in self.segments for block in segment.blocks)

    @cached_property
    def reserved(self) -> int:
        """Bytes held from CUDA: torch.cuda.memory_reserved()."""
        return sum(segment.size for segment in self.segments)

    @cached_property
    def allocated(self) -> int:
        """Bytes in use by tensors: torch.cuda.memory_allocated()."""
        return sum(segment.bytes(ALLOCATED) for segment in self.segments)

    @cached_property
    def pending(self) -> int:
        """Bytes freed by the program that wait for another stream."""
        return sum(segment.bytes(PENDING) for segment in self.segments)

    @cached_property
    def inactive(self) -> int:
        """Bytes reserved and free: for the taking by PyTorch, of no use to anyone else."""
        return sum(segment.bytes(FREE) for segment in self.segments)

    @cached_property
    def releasable(self) -> int:
        """Bytes that empty_cache() could give back to CUDA."""
        return sum(segment.releasable for segment in self.segments)

    @cached_property
    def _streams(self) -> list[int]:
        """Streams that are pointers, by address."""
        streams = {part.stream for part in self.segments} | {event.stream for event in self.events}
        return sorted(stream for stream in streams if stream >= _POINTER)

    def stream_name(self, stream: int) -> str:
        """ "default stream", "stream 1", "stream 2" …; pointers are numbered by address: one says nothing to a reader."""
        if stream in self._streams:
            return f"stream {self._streams.index(stream) + 1}"
        return f"stream {stream}" if stream else "default stream"

    def __repr__(self) -> str:
        live = sum(block.state == ALLOCATED for block in self.blocks)
        return (
            f"allocated {size_text(self.allocated)} in {live} blocks · reserved {size_text(self.reserved)} in "
            f"{len(self.segments)} segments · free inside {size_text(self.inactive)}"
            + (f" · pending free {size_text(self.pending)}" if self.pending else "")
            + f" · {len(self.events)} events · {self.evidence}"
        )
