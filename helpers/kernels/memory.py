"""Where a pointer may reach: the tensors that a launch was given; and memory of which only kernels read the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from types import TracebackType
from typing import Any

import numpy as np
import torch

from helpers.kernels.traffic import Moved


class OutOfBounds(IndexError):
    """A program loaded or stored outside of the tensors that its kernel was given.

    >>> double[(4,)](x, out, 128, BLOCK=32)
    Traceback (most recent call last):
    helpers.kernels.memory.OutOfBounds: loads 28 of 32 elements outside of all tensors that it was given, ...
    """


@dataclass(frozen=True)
class Region:
    """The storage of one argument: its first address, the one behind its last, the bytes of an element, and how far from
    there its numbers lie.
    """

    name: str
    first: int
    end: int
    item: int
    shift: int = 0


def regions(arguments: Mapping[str, Any]) -> list[Region]:
    """The storages of a launch's tensors, by the names of its arguments; of two with one storage, the first."""
    made = dict[int, Region]()
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            memory = Memory.entered()
            shift = memory.shift(value) if memory else 0
            first = storage.data_ptr()
            made.setdefault(first, Region(name, first, first + storage.nbytes(), value.itemsize, shift))
    return list(made.values())


def reach(
    within: list[Region], pointers: np.ndarray, mask: np.ndarray, size: int, verb: str
) -> tuple[np.ndarray, dict[str, Moved]]:
    """The addresses that are really meant, and what of each argument's storage lies there.

    pointers: addresses; mask: which of them are used; size: bytes at each of them; verb: "loads" or "stores", for messages.
    Raises :class:`OutOfBounds` for an address in none of the regions.
    """
    pointers, mask = np.broadcast_arrays(pointers, mask)
    where, left, counts = pointers.copy(), mask.copy(), dict[str, Moved]()
    for region in within:
        here = left & (pointers >= np.uint64(region.first)) & (pointers < np.uint64(region.end))
        if many := int(here.sum()):
            # a pointer may be cast, so that two elements are behind one address
            counts[region.name] = Moved(many * -(-size // region.item), many * size)
            where[here] = (pointers[here].astype(np.int64) + region.shift).astype(np.uint64)
            left = left & ~here
    if left.any():
        raise OutOfBounds(_told(within, pointers[left].astype(np.int64), size, verb, int(mask.sum())))
    return where, counts


def _told(within: list[Region], lost: np.ndarray, size: int, verb: str, many: int) -> str:
    text = f"{verb} {lost.size} of {many} elements outside of all tensors that it was given"
    away = [(int(lost[0]) - r.end, r) if lost[0] >= r.end else (int(r.first - lost[0]), r) for r in within]
    if away:
        far, nearest = min(away, key=lambda pair: pair[0])
        behind = lost[0] >= nearest.end
        elements = far // size + 1 if behind else -(-far // size)
        text += f", the first of them {elements} {'behind the end' if behind else 'before the beginning'} of {nearest.name}'s memory"
    return text + ": look at the mask and at the strides"


#: memories that are entered, the innermost last
_inside: list[Memory] = []


class Memory(AbstractContextManager["Memory"]):
    """Memory as a GPU has it: within this block only kernels read and write the numbers of its tensors.

    >>> with kernels.Memory() as memory:
    ...     hidden, twice = memory.put(x), torch.empty(100)
    ...     double[(4,)](hidden, twice, 100, BLOCK=32)
    ...     bool(hidden.isnan().all())
    True
    >>> memory.get(twice)[:4]
    tensor([0., 2., 4., 6.])

    What `put` gives has x's shape, strides, offset and dtype, and holds no number (NaN; −1 if integers): an operator of
    PyTorch computes nothing with it. What the block's kernels are handed beside that has its numbers here from the first
    launch on.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage, int]] = {}
        self._fault: BaseException | None = None

    def __enter__(self) -> Memory:
        _inside.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _inside.remove(self)
        if fault is None and self._fault is not None:
            raise self._fault

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While a kernel runs: what it prints goes nowhere, and what stops it is raised again at the block's end, for
        texts and errors would tell others the numbers.
        """
        try:
            with redirect_stdout(StringIO()), np.printoptions(), np.errstate(all="ignore"):
                yield
        except BaseException as fault:
            self._fault = fault
            raise

    def put(self, x: torch.Tensor) -> torch.Tensor:
        """A tensor like x whose numbers are x's for kernels, and nobody else's."""
        storage = x.untyped_storage()
        raw = torch.full((storage.nbytes(),), 0xFF, dtype=torch.uint8)
        shown = torch.empty(0, dtype=x.dtype).set_(
            raw.untyped_storage(), x.storage_offset(), x.shape, x.stride()
        )
        self._keep(shown, torch.empty(0, dtype=torch.uint8).set_(storage).clone())
        return shown

    def get(self, shown: torch.Tensor) -> torch.Tensor:
        """The numbers of a tensor, as kernels left them; of one that no kernel was handed, what it holds."""
        if shown.untyped_storage().data_ptr() not in self._kept:
            return shown
        kept = self._of(shown)
        inside = torch.empty(0, dtype=shown.dtype)
        return inside.set_(kept[1], shown.storage_offset(), shown.shape, shown.stride()).clone()

    def shift(self, shown: torch.Tensor) -> int:
        """How many bytes from the tensor's storage its numbers lie; they are its own till now, if it is new here."""
        storage = shown.untyped_storage()
        if storage.data_ptr() not in self._kept:
            self._keep(shown, shown)
        return self._of(shown)[1].data_ptr() - storage.data_ptr()

    def _of(self, shown: torch.Tensor) -> tuple[torch.UntypedStorage, torch.UntypedStorage, int]:
        """What is kept of the tensor's storage: the elements there, which are counted, have one size."""
        kept = self._kept[shown.untyped_storage().data_ptr()]
        if kept[2] != shown.itemsize:
            raise OutOfBounds(
                f"a tensor with {shown.itemsize} bytes an element lies in memory that kernels know with {kept[2]}: kernels "
                "convert by `.to(dtype)` of a block"
            )
        return kept

    def _keep(self, shown: torch.Tensor, numbers: torch.Tensor) -> None:
        # a copy without an operator of PyTorch, for these may be counted; the storage is held, so that no other takes
        # its address while this memory lives
        inside = numbers.untyped_storage().clone()
        self._kept[shown.untyped_storage().data_ptr()] = shown.untyped_storage(), inside, shown.itemsize

    @staticmethod
    def entered() -> Memory | None:
        """The innermost memory that is entered now."""
        return _inside[-1] if _inside else None
