"""The course's pictures made movable. ipywidgets is imported only to show a widget; without it, a picture is.

Set the environment variable HELPERS_STATIC_WIDGETS=1 to show pictures only: a built notebook then carries a
PNG and no widget model, whose random id would differ at every build and which says nothing once its kernel
is gone.
"""

from typing import TYPE_CHECKING

from helpers import lazy

if TYPE_CHECKING:
    from .allocator import allocator_stepper as allocator_stepper
    from .buckets import BucketExplorer as BucketExplorer
    from .buckets import bucket_explorer as bucket_explorer
    from .movable import STATIC as STATIC

__getattr__, __dir__, __all__ = lazy.attach(__name__)
