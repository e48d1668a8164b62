"""The generated data: real files, the same from the same seed, and classes that a fresh process can import."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DataLoader

from helpers import samples


def test_images_are_files_that_decode_to_their_size(tmp_path: Path) -> None:
    paths = samples.write_images(tmp_path / "a", count=6, size=32)
    again = samples.write_images(tmp_path / "b", count=6, size=32)
    assert sorted(p.parent.name for p in paths) == [
        "class_0",
        "class_0",
        "class_1",
        "class_1",
        "class_2",
        "class_3",
    ]
    assert [p.read_bytes() for p in paths] == [p.read_bytes() for p in again]
    pixels = [samples.decode_image(p) for p in paths]
    assert {(p.shape, p.dtype.name) for p in pixels} == {((32, 32, 3), "uint8")}
    assert all(p.std() > 10 for p in pixels)
    assert not np.array_equal(pixels[0], pixels[1])


def test_packed_documents_unpack_to_the_text(tmp_path: Path) -> None:
    documents = samples.text(30)
    assert documents == samples.text(30) != samples.text(30, seed=1)
    ends, words = samples.pack_documents(documents, tmp_path / "tokens.bin")
    tokens = np.memmap(tmp_path / "tokens.bin", dtype=np.uint16, mode="r")
    assert ends[-1] == len(tokens)
    starts = [0, *ends[:-1]]
    assert [" ".join(words[t] for t in tokens[a:b]) for a, b in zip(starts, ends, strict=True)] == documents


@pytest.mark.parametrize("workers", [0, 2])
def test_paced_samples_come_from_their_workers(workers: int) -> None:
    loader = DataLoader(samples.Paced(8), batch_size=2, num_workers=workers, timeout=60 if workers else 0)
    rows = [row for batch in loader for row in batch.tolist()]
    assert [row[0] for row in rows] == list(range(8))
    assert len({row[1] for row in rows}) == max(1, workers)
    assert pickle.loads(pickle.dumps(samples.Paced(8, 0.5))).seconds == 0.5


def test_nobody_shares_out_an_iterable_data_set() -> None:
    loader = DataLoader(samples.Counting(3), batch_size=None, num_workers=2, timeout=60)
    assert sorted(i for i, _ in loader) == [0, 0, 1, 1, 2, 2]
    assert [worker for _, worker in samples.Counting(2)] == [-1, -1]
