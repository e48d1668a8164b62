"""The course's pictures: each function returns a `Picture`, which a cell shows once, its evidence on it.

Nothing here is imported before it is used: `import helpers.plots` costs no matplotlib.
"""

from typing import TYPE_CHECKING

from helpers import lazy

if TYPE_CHECKING:
    from .allocator import allocator_step as allocator_step
    from .allocator import segments as segments
    from .communication import compared as compared
    from .communication import overlapped as overlapped
    from .ladders import ladder as ladder
    from .ladders import ladder_shares as ladder_shares
    from .lanes import timeline as timeline
    from .memory import memory_timeline as memory_timeline
    from .panels import curves as curves
    from .picture import Picture as Picture
    from .stepmemory import memory_model as memory_model
    from .timing import samples as samples
    from .timing import speedup as speedup
    from .trace_queue import queue as queue
    from .trace_zoom import zoom as zoom

__getattr__, __dir__, __all__ = lazy.attach(__name__)
