"""Tools of the course *PyTorch Performance, Measured*: measure, simulate, draw, check.

>>> import torch
>>> from helpers import bench, compare, count, simulate
>>> x = torch.ones(64, 64)

Names load on first use, so ``import helpers`` costs almost nothing.
"""

import io
import logging
import sys
from typing import TYPE_CHECKING, Any

from helpers import lazy

if TYPE_CHECKING:
    from helpers.counters import Counts as Counts
    from helpers.counters import count as count
    from helpers.simulator import simulate as simulate
    from helpers.timing import bench as bench
    from helpers.timing import compare as compare

__version__ = "0.1.0"


def _is_news(line: logging.LogRecord) -> bool:
    """False for what a torch built for CUDA logs, on a machine without a GPU, whenever something loads its C++ tools."""
    return not line.getMessage().startswith("No CUDA runtime is found")


logging.getLogger("torch.utils.cpp_extension").addFilter(_is_news)

# Results and messages hold signs (≈, ·, ✓) that a terminal set to GBK, latin-1 or ASCII has not: there they show as
# "?", and no result is lost to a UnicodeEncodeError. A notebook's output is no such stream, and stays as it is.
for _stream in (sys.stdout, sys.stderr):  # either may be None
    if isinstance(_stream, io.TextIOWrapper) and "utf" not in _stream.encoding.lower():
        _stream.reconfigure(errors="replace")


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext helpers``: %%count, %%bench and %%trace for any cell."""
    from helpers.magics import load  # Jupyter's packages, which the core does without

    load(shell)


__getattr__, __dir__, __all__ = lazy.attach(__name__)
