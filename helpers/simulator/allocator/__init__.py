"""A model of PyTorch's CUDA caching allocator, in plain Python: no torch, no GPU, the same decisions.

Follows c10/cuda/CUDACachingAllocator.cpp (2.10 to 2.14), function by function; each names the one it stands for.

conf: PYTORCH_ALLOC_CONF and rounding · blocks: blocks, free lists, the driver · reserved: segments, from the
driver and back to it · caching: malloc and free · reports: torch.cuda.memory's formats and the out-of-memory error.
"""

from helpers.simulator.allocator.caching import CachingAllocator
from helpers.simulator.allocator.conf import Conf, parse
from helpers.simulator.allocator.reports import OutOfMemory

__all__ = ["CachingAllocator", "Conf", "OutOfMemory", "parse"]
