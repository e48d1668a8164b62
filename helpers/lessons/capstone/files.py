"""The capstone's pictures: simple shapes, drawn with NumPy and packed into one file on disk.

files = draw_shapes(folder, 256, side=16)
files.read([3, 5, 8])        # uint8 [3, 3, 16, 16], in one request
files.labels                 # int64 [256]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

#: what is drawn; a label is a place in this list
SHAPES = ("disc", "ring", "square", "frame", "cross", "stripes")


class Files:
    """A packed file of pictures. read(rows) takes one request, whatever the number of rows.

    heard: told of each request, the pictures that it read and their bytes. (It stands in a closure: who is handed the
    files can neither ask nor change it.)
    """

    def __init__(
        self,
        path: Path,
        labels: np.ndarray[Any, Any],
        side: int,
        heard: Callable[[int, int], None] | None = None,
    ) -> None:
        packed = np.memmap(path, np.uint8, "r").reshape(-1, 3, side, side)

        def read(rows: Sequence[int]) -> np.ndarray[Any, Any]:
            """The pictures of these rows, uint8 [rows, 3, side, side]: a copy of your own."""
            pictures = np.array(packed[np.asarray(rows, np.int64)])
            if heard is not None:
                heard(len(pictures), pictures.nbytes)
            return pictures

        self.read, self.labels = read, labels

    def __len__(self) -> int:
        return len(self.labels)


def _masks(rng: np.random.Generator, count: int, side: int) -> tuple[Any, Any]:
    """Where each picture's shape is, bool [count, side, side], and which shape, int64 [count]."""
    labels = rng.integers(len(SHAPES), size=count)
    middle = rng.uniform(0.35, 0.65, size=(count, 2, 1, 1)) * side
    half = rng.uniform(0.2, 0.34, size=(count, 1, 1)) * side
    at = np.arange(side) + 0.5
    y, x = np.abs(at[:, None] - middle[:, 0]), np.abs(at - middle[:, 1])
    far, wide = np.hypot(y, x), np.maximum(y, x)
    thin = side / 10
    kinds = [
        far < half,
        np.abs(far - half) < thin,
        wide < half,
        np.abs(wide - half) < thin,
        (wide < half) & (np.minimum(y, x) < thin),
        (wide < half) & (y % (2 * thin) < thin),
    ]
    return np.choose(labels[:, None, None], kinds), labels


def draw_shapes(
    folder: Path | str,
    count: int,
    side: int,
    seed: int = 0,
    heard: Callable[[int, int], None] | None = None,
) -> Files:
    """Draw `count` pictures of side × side pixels, write them to the folder, and open the file."""
    rng = np.random.default_rng(seed)
    mask, labels = _masks(rng, count, side)
    ink, paper = rng.integers(140, 256, size=(count, 3, 1, 1)), rng.integers(0, 110, size=(count, 3, 1, 1))
    pictures = np.where(mask[:, None], ink, paper) + rng.normal(0, 20, size=(count, 3, side, side))
    path = Path(folder) / "pictures.bin"
    path.write_bytes(np.clip(pictures, 0, 255).astype(np.uint8).tobytes())
    return Files(path, labels, side, heard)
