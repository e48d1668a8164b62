"""What a drive may read of a result while nobody counts."""

from collections.abc import Iterable
from typing import TypeVar, cast

import numpy as np
from torch import Tensor

_T = TypeVar("_T")
_PYTHONS = (bool, int, float, complex, str, bytes, list, tuple, dict, set, type(None))
_PLAIN = (Tensor, np.ndarray, np.generic, *_PYTHONS)


def plain(result: _T) -> _T:
    """The result, tensors and Python's own values alone. TypeError for anything else in it.

    An object of an answer's own class may have a `clone` or a `tolist` that computes when it is read. So a drive calls this as
    soon as it has a result, before it reads it and best while it still counts.
    """
    parts: Iterable[object] = ()
    if type(result) is dict:
        parts = cast(dict[object, object], result).values()
    elif type(result) in (list, tuple):
        parts = cast(Iterable[object], result)
    for part in parts:
        plain(part)
    if not isinstance(result, _PLAIN) or type(result).__module__ == "__main__":
        raise TypeError(f"gave an object of class {type(result).__name__}, wanted a plain tensor")
    return result
