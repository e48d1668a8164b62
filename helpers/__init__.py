"""Tools of the course *PyTorch Performance, Measured*: measure, simulate, draw, check.

>>> import torch
>>> from helpers import bench, compare, count, simulate
>>> x = torch.ones(64, 64)

Names load on first use, so ``import helpers`` costs almost nothing.
"""

from typing import TYPE_CHECKING, Any

from helpers import lazy

if TYPE_CHECKING:
    from helpers.counters import Counts as Counts
    from helpers.counters import count as count
    from helpers.simulator import simulate as simulate
    from helpers.timing import bench as bench
    from helpers.timing import compare as compare

__version__ = "0.1.0"


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext helpers``: %%count, %%bench and %%trace for any cell."""
    from helpers.magics import load  # Jupyter's packages, which the core does without

    load(shell)


__getattr__, __dir__, __all__ = lazy.attach(__name__)
