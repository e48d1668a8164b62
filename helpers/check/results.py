"""What a drive may read of a result while nobody counts."""

from collections.abc import Iterable
from typing import TypeVar

import numpy as np
from torch import Tensor

_T = TypeVar("_T")


def plain(result: _T) -> _T:
    """The result, tensors and Python's own values alone. TypeError for anything else in it.

    An object of an answer's own class may have a `clone` or a `tolist` that computes when it is read. So a drive calls this as
    soon as it has a result, before it reads it and best while it still counts.
    """
    parts: Iterable[object] = (
        result.values() if type(result) is dict else result if type(result) in (list, tuple) else ()  # type: ignore[union-attr, attr-defined]
    )
    for part in parts:
        plain(part)
    known = (
        Tensor,
        np.ndarray,
        np.generic,
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        list,
        tuple,
        dict,
        set,
        type(None),
    )
    if not isinstance(result, known) or type(result).__module__ == "__main__":
        raise TypeError(f"gave an object of class {type(result).__name__}, wanted a plain tensor")
    return result
