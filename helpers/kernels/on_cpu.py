"""What ``import triton`` and ``import triton.language as tl`` give, with kernels run on the CPU, or stand-ins for them."""

from typing import Any

from helpers.kernels.interpreter import load

triton: Any
tl: Any
triton, tl = load()
