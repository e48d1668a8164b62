"""The course's pictures made movable. ipywidgets is imported only to show a widget; without it, a picture is.

Set the environment variable HELPERS_STATIC_WIDGETS=1 to show pictures only: a built notebook then carries a
PNG and no widget model, whose random id would differ at every build and which says nothing once its kernel
is gone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .allocator import allocator_stepper as allocator_stepper
    from .buckets import BucketExplorer as BucketExplorer
    from .buckets import bucket_explorer as bucket_explorer
    from .float_format import FloatFormatExplorer as FloatFormatExplorer
    from .float_format import float_format_explorer as float_format_explorer
    from .pipeline import PipelineExplorer as PipelineExplorer
    from .pipeline import pipeline_explorer as pipeline_explorer
    from .stride import StrideExplorer as StrideExplorer
    from .stride import stride_explorer as stride_explorer
    from .timeline import TimelineZoom as TimelineZoom
    from .timeline import timeline_zoom as timeline_zoom

STATIC = "HELPERS_STATIC_WIDGETS"

_HOME = {
    "stride_explorer": "stride", "StrideExplorer": "stride", "Settings": "stride", "presets": "stride",
    "timeline_zoom": "timeline", "TimelineZoom": "timeline", "allocator_stepper": "allocator",
    "bucket_explorer": "buckets", "BucketExplorer": "buckets",
    "pipeline_explorer": "pipeline", "PipelineExplorer": "pipeline",
    "float_format_explorer": "float_format", "FloatFormatExplorer": "float_format",
}  # fmt: skip
__all__ = [
    "BucketExplorer",
    "FloatFormatExplorer",
    "PipelineExplorer",
    "StrideExplorer",
    "TimelineZoom",
    "allocator_stepper",
    "bucket_explorer",
    "float_format_explorer",
    "pipeline_explorer",
    "stride_explorer",
    "timeline_zoom",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"helpers.widgets has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*__all__, "STATIC"})
