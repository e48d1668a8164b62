"""Kernels written in Triton, without a GPU: run by Triton's interpreter with each load and store counted, and compiled for an H100.

>>> import torch
>>> from helpers import kernels
>>> from helpers.kernels.on_cpu import tl, triton  # in a script for a GPU: import triton; import triton.language as tl
>>> @triton.jit
... def double(x, out, n, BLOCK: tl.constexpr):
...     at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
...     tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
>>> x, out = torch.arange(100.0), torch.empty(100)

A load or a store outside of the tensors that a kernel was given raises :class:`OutOfBounds`, and touches nothing. Masked
lanes of a load without ``other`` hold NaN (−1 if integers): Triton promises nothing of them.

Triton comes with the extra `kernels` (``make lab EXTRAS=kernels``, or ``pip install triton``). Without it :func:`load` gives
stand-ins, with which kernels can be written and not launched.
"""

from .compiled import Compiled, compile_all, compiled
from .interpreter import NeedsTriton, available, close, load
from .memory import Memory, OutOfBounds
from .traffic import Launch, Moved, Program, Watch, watch

__all__ = [
    "Compiled",
    "Launch",
    "Memory",
    "Moved",
    "NeedsTriton",
    "OutOfBounds",
    "Watch",
    "available",
    "Program",
    "close",
    "compile_all",
    "compiled",
    "load",
    "watch",
]
