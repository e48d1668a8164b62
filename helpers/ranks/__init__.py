"""Several processes from one notebook, what they send to each other, and what that costs at any size.

>>> import torch
>>> import torch.distributed as dist
>>> from helpers import ranks

Names load on first use: the process from which ranks are forked must have run nothing.
"""

from typing import TYPE_CHECKING

from helpers import lazy

if TYPE_CHECKING:
    from .costs import ALGORITHMS as ALGORITHMS
    from .costs import seconds as seconds
    from .costs import wire_bytes as wire_bytes
    from .errors import CannotCarry as CannotCarry
    from .errors import RankError as RankError
    from .faking import fake as fake
    from .links import LINKS as LINKS
    from .links import Link as Link
    from .records import Call as Call
    from .records import Record as Record
    from .running import run_ranks as run_ranks
    from .sending import sent as sent

__getattr__, __dir__, __all__ = lazy.attach(__name__)
