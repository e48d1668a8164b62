"""Small real data to load: image files, a text in one packed file, and data sets for worker processes.

Everything is generated from a seed; nothing is downloaded. The classes live in a module, and not in a notebook,
because a worker process that is started afresh (``spawn``, ``forkserver``) imports them by name.
"""

import os
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

_NOUNS = "tensor kernel queue stream batch worker page block gradient cache loader thread".split()
_VERBS = "waits for,copies,reads,fills,launches,frees,follows,holds,overtakes,splits".split(",")
_PLACES = "in the pool,on the card,behind the bus,at the peak,under the trace,after the step".split(",")


def write_images(folder: str | Path, count: int = 64, size: int = 64, seed: int = 0) -> list[Path]:
    """Write ``count`` JPEG images of size × size pixels into ``folder``/class_0 … class_3, and return their paths.

    Smooth colours with some noise: as hard to compress as a photograph. Needs Pillow, which matplotlib brings.
    """
    from PIL import Image

    rng = np.random.default_rng(seed)
    across = np.linspace(0, 2 * np.pi, size)
    paths = []
    for i in range(count):
        waves = rng.uniform(0.5, 3, (3, 2, 1))
        smooth = np.sin(waves[:, 0] * across)[:, :, None] * np.cos(waves[:, 1] * across)[:, None, :]
        noisy = 128 + 90 * smooth + rng.normal(0, 12, smooth.shape)
        path = Path(folder) / f"class_{i % 4}" / f"{i:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8).transpose(1, 2, 0)).save(path, quality=85)
        paths.append(path)
    return paths


def decode_image(path: str | Path) -> np.ndarray:
    """The pixels of an image file: (height, width, 3), uint8."""
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def text(documents: int = 100, seed: int = 0) -> list[str]:
    """Documents of 1 to 40 short sentences, most of them short."""
    return list(_text(documents, seed))


@lru_cache(maxsize=8)  # every run of the running example begins with it
def _text(documents: int, seed: int) -> tuple[str, ...]:
    rng = np.random.default_rng(seed)

    def sentence() -> str:
        return (
            f"the {rng.choice(_NOUNS)} {rng.choice(_VERBS)} the {rng.choice(_NOUNS)} {rng.choice(_PLACES)} ."
        )

    return tuple(" ".join(sentence() for _ in range(int(40 ** rng.random()))) for _ in range(documents))


def pack_documents(documents: list[str], path: str | Path) -> tuple[np.ndarray, list[str]]:
    """Write all documents' tokens (words as uint16) into one file, one behind the other.

    Returns ``ends``, (n,) int64: where each document ends, in tokens; and the words, in the order of their numbers.
    """
    words = sorted({word for document in documents for word in document.split()})
    number = {word: i for i, word in enumerate(words)}
    tokens = [np.array([number[w] for w in document.split()], np.uint16) for document in documents]
    np.concatenate(tokens).tofile(path)
    return np.cumsum([len(t) for t in tokens], dtype=np.int64), words


class Paced(Dataset):
    """``count`` samples that take ``seconds`` of waiting each, as from a far disk: (index, process id, torch's threads)."""

    def __init__(self, count: int, seconds: float = 0.0) -> None:
        self.count, self.seconds = count, seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.seconds:
            time.sleep(self.seconds)
        return torch.tensor([index, os.getpid(), torch.get_num_threads()])


class Busy(Paced):
    """``count`` samples that take ``seconds`` of a core each, as decoding does; the samples are those of ``Paced``."""

    def __getitem__(self, index: int) -> torch.Tensor:
        # the core's time, not the clock's: on a busy machine it takes longer, as other work does
        until = time.thread_time() + self.seconds
        while time.thread_time() < until:
            pass
        return torch.tensor([index, os.getpid(), torch.get_num_threads()])


class Counting(IterableDataset):
    """The numbers from 0 to ``count`` − 1, each with the worker that yields it. Nothing shares them out."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[tuple[int, int]]:
        info = get_worker_info()
        for i in range(self.count):
            yield i, -1 if info is None else info.id
