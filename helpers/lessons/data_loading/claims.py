"""Claims on trial in lesson 04. Those measured in the lesson itself are handed their measurements."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from helpers import samples
from helpers.lesson.claim import Claim
from helpers.lessons.data_loading import experiments

#: ms to make a batch, and of a step
LOAD, STEP = 30, 10


def on_trial(
    handed_out: experiments.HandedOut, one_by_one: Mapping[str, float], in_blocks: Mapping[str, float]
) -> list[Claim]:
    """Every claim of the lesson.

    handed_out: by three workers. one_by_one, in_blocks: disk → minutes of an epoch, image by image and in blocks of 32.
    """
    return [
        four_per_gpu(),
        image_folder(),
        random_reads(one_by_one["hard disk"], in_blocks["hard disk"]),
        memory_map(),
        prefetch_factor(handed_out.requested),
        shared_memory(handed_out.shared),
    ]


def four_per_gpu() -> Claim:
    """How often four workers are enough, and how often more than that, over many pairs of stage times."""
    loads, steps = (2.5, 5, 10, 20, 40, 80, 160), (5, 10, 20, 40, 80)
    pairs = [(load, step) for load in loads for step in steps]
    need = [math.ceil(load / step) for load, step in pairs]
    right, fewer, more = sum(n == 4 for n in need), sum(n < 4 for n in need), sum(n > 4 for n in need)
    three, four = (experiments.mean_step([LOAD] * 601, STEP, w) for w in (3, 4))
    return Claim(
        "04-four-per-gpu",
        "five-strategies",
        "`num_workers = 4 × GPUs`",
        f"of {len(need)} pairs (loads of {loads[0]} to {loads[-1]} ms, steps of {steps[0]} to {steps[-1]} ms) 4 workers are enough in "
        f"{right + fewer}, too few in {more}, and more than are needed in {fewer}. Loads of {LOAD} ms, steps of {STEP} ms: by the "
        f"queue's arithmetic {three:.0f} ms a step with 3 workers, {four:.0f} ms with 4",
        "partly: holds when a load takes at most four steps; if loads are alike, ⌈load ÷ step⌉ workers for each GPU are enough, often fewer than 4"
        if more and fewer
        else "confirmed"
        if not more
        else "refuted",
        "1 · Does the model wait?",
    )


def _image_folder(
    root: Any,
    transform: Any = None,
    target_transform: Any = None,
    loader: Any = None,
    is_valid_file: Any = None,
    allow_empty: bool = False,
) -> None:
    """The parameters of torchvision.datasets.ImageFolder, as its documentation has them."""


def _raised(call: Callable[[], Any]) -> str:
    try:
        call()
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}, {str(error).split('.')[0]}"
    return "accepted"


def image_folder() -> Claim:
    """The source's listing: its first call against torchvision's documented signature, its second on the real class."""
    folder = inspect.signature(_image_folder)
    data = samples.Paced(512)
    listed: dict[str, Any] = {
        "num_workers": 16,
        "pin_memory": True,
        "persistent_workers": True,
    }  # in the order of the listing
    first = _raised(lambda: folder.bind("data", transform=None, **listed))
    second = _raised(lambda: DataLoader(data, batch_size=256, shuffle=True, prefetch_factor=4))
    mended = _raised(lambda: DataLoader(data, batch_size=256, shuffle=True, prefetch_factor=4, **listed))
    ahead = 16 * 4 * 256 * 3 * 224 * 224
    return Claim(
        "04-imagefolder",
        "five-strategies",
        "`ImageFolder(…, num_workers=16, pin_memory=True, persistent_workers=True)`, then `DataLoader(…, prefetch_factor=4)`",
        f"a call with the signature that torchvision documents for ImageFolder, which is not installed here: {first}; DataLoader: {second}; all "
        f"options given to DataLoader: {mended}. Its 16 × 4 batches would hold "
        f"{ahead / 1e9:.1f} GB of uint8 images, {4 * ahead / 1e9:.1f} GB of float32",
        "refuted: both calls raise. All of these are options of DataLoader"
        if "accepted" not in (first, second)
        else "confirmed",
        "Sources on trial",
    )


def random_reads(scattered: float, blocks: float) -> Claim:
    """Minutes of an epoch on a hard disk, image by image and in blocks; and where order costs nothing."""
    free = [name for name, d in experiments.DISKS.items() if d.bytes_per_s / d.iops < experiments.IMAGE_BYTES]
    return Claim(
        "04-iops",
        "book-notes",
        "random reads are measured in IOPS, sequential ones in MB/s",
        f"an epoch of 110 kB images in random order on a hard disk: {scattered:,.0f} min one by one, {blocks:,.0f} min in blocks "
        f"of 32; for {' and '.join(free)} bandwidth is the limit in either order",
        "partly: holds when a read is smaller than bandwidth ÷ IOPS"
        if free and scattered > blocks
        else "confirmed",
        "4 · How many reads is an epoch?",
    )


def memory_map() -> Claim:
    """What is allocated for one document of a file, and what a pickle of the map holds."""
    file = experiments.TokenFile()
    part = int(file.ends[6]), int(file.ends[7])
    whole, _ = experiments.held(lambda: np.fromfile(file.path, np.uint16), *part)
    mapped, sent = experiments.held(functools.partial(np.memmap, file.path, dtype=np.uint16, mode="r"), *part)
    of_whole, of_map, of_sent = (f"{n / file.nbytes:.1f}" for n in (whole, mapped, sent))
    return Claim(
        "04-mmap",
        "five-strategies",
        "read large files through a memory map",
        f"for one document fromfile allocates {of_whole} of the file, a map {of_map}; pickled, the map is {of_sent} of the file",
        "partly: holds when each process opens its own map; a map sent to a worker is the whole file"
        if mapped < whole / 2 and sent > file.nbytes / 2
        else "confirmed",
        "What does a memory map read?",
    )


#: ms to make a batch: one in eight is slow, the mean is 25
UNEVEN = [144 if b % 8 == 0 else 8 for b in range(601)]


def prefetch_factor(requested: int) -> Claim:
    """How many batches are requested ahead, and what more of them bring."""
    even = [experiments.mean_step([LOAD] * 601, STEP, 2, p) for p in (2, 8)]
    uneven = [experiments.mean_step(UNEVEN, STEP, 3, p) for p in (1, 8)]
    return Claim(
        "04-prefetch",
        "five-strategies",
        "`prefetch_factor` controls how many batches are loaded ahead",
        f"{requested} batches requested with 3 workers and factor 2. Even loads, 2 workers: {even[0]:.0f} ms a step with 2, "
        f"{even[1]:.0f} with 8; uneven loads, 3 workers: {uneven[0]:.1f} ms with 1, {uneven[1]:.1f} with 8",
        "confirmed: for each worker; deeper helps where load times are uneven"
        if requested == 6 and uneven[1] < uneven[0]
        else "refuted",
        "Uneven load times",
    )


def shared_memory(shared: bool) -> Claim:
    """Where a batch from a worker lies."""
    return Claim(
        "04-shared-memory",
        "five-strategies",
        "share data between processes through shared memory",
        f"a batch from a worker lies in shared memory: {'yes' if shared else 'no'}",
        "confirmed: DataLoader does it by itself" if shared else "refuted",
        "2 · What does a worker get?",
    )
