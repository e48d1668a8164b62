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
    from .drift import series as series
    from .float_format import float_bits as float_bits
    from .float_format import float_ranges as float_ranges
    from .graph import autograd_graph as autograd_graph
    from .ladders import ladder as ladder
    from .ladders import ladder_shares as ladder_shares
    from .lanes import timeline as timeline
    from .memory import memory_timeline as memory_timeline
    from .overhead import crossover as crossover
    from .panels import curves as curves
    from .picture import Picture as Picture
    from .pipelines import schedule as schedule
    from .splits import matrix_splits as matrix_splits
    from .stepmemory import memory_model as memory_model
    from .storage import storage_path as storage_path
    from .timing import samples as samples
    from .timing import speedup as speedup
    from .trace_queue import queue as queue
    from .trace_zoom import zoom as zoom
    from .verdicts import shares as shares

__getattr__, __dir__, __all__ = lazy.attach(__name__)
