"""Several processes from one notebook, what they send to each other, and what that costs at any size.

    from helpers import ranks

    def job(width):                          # a function of the notebook; torch.distributed is ready in it
        x = torch.full((width,), dist.get_rank())
        with ranks.sent() as record:
            dist.all_reduce(x)
        return x, record

    ranks.run_ranks(job, 2, 1024)            # [(tensor, record), (tensor, record)]: one result a rank

    with ranks.fake(1024):                   # rank 0 of 1,024, and nobody there: calls and bytes are counted
        with ranks.sent() as record:
            step(model, batch)

    ranks.wire_bytes("all_reduce", payload, 1024)                   # what each rank puts on its link
    ranks.seconds("all_reduce", payload, 1024, "InfiniBand NDR")    # the α–β model's time

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
    from .running import prepare as prepare
    from .running import run_ranks as run_ranks
    from .sending import sent as sent

__getattr__, __dir__, __all__ = lazy.attach(__name__)
