"""Kernels written in Triton, run on the CPU by Triton's own interpreter, with each load and store counted.

    from helpers.kernels.on_cpu import tl, triton  # as: import triton; import triton.language as tl
    with kernels.watch() as seen:
        my_kernel[(4,)](x, out, x.numel(), BLOCK=256)
    seen.loads, seen.stores              # elements that went through pointers
    kernels.compiled(seen)               # what Triton's compiler makes of them for an H100, or why it refuses them

A load or a store outside of the tensors that a kernel was given raises :class:`OutOfBounds`, and touches nothing. Masked
lanes of a load without ``other`` hold NaN (−1 if integers): Triton promises nothing of them.
:class:`Memory` holds tensors whose numbers only kernels can read: what grading uses. Triton comes with the extra
`kernels`; without it :func:`load` gives stand-ins, with which kernels can be written and not launched.
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
