"""One training script that goes through the whole course: plain and slow at first, then a rung better each lesson.

    before = running_example.after("01")
    faster = before.replace(attention=my_attention)
    running_example.compare(before, faster)

`plain` is the script as one writes it first. Its parts are functions; `replace` puts another one in their place.
"""

from typing import TYPE_CHECKING

from helpers import lazy

if TYPE_CHECKING:
    from .plain import Size as Size
    from .scores import LARGE as LARGE
    from .scores import SMALL as SMALL
    from .scores import Board as Board
    from .scores import compare as compare
    from .scores import on_cpu as on_cpu
    from .scores import score as score
    from .scores import trained as trained
    from .script import Script as Script
    from .source import source as source
    from .whole import after as after
    from .whole import ladder as ladder

__getattr__, __dir__, __all__ = lazy.attach(__name__)
