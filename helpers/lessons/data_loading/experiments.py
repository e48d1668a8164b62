"""Lesson 04, data loading: files to read, loaders to watch, the queue in arithmetic, and its tables and pictures."""

from __future__ import annotations

import os
import pickle
import statistics
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

import helpers.lessons.data_loading.recorded  # noqa: F401 - its experiments are known by their names
from helpers import plots, samples
from helpers.plots import style
from helpers.plots.picture import Picture, drawn
from helpers.recordings import Result
from helpers.text.seconds import format_seconds
from helpers.text.tables import Table, table

_FORKS = sys.platform == "linux"
#: options of every DataLoader with workers here: no wait for ever, and the quickest start where the system has one
WORKERS: dict[str, Any] = {"timeout": 60, "multiprocessing_context": "fork" if _FORKS else None}

# more workers than cores are what the lesson is about
warnings.filterwarnings("ignore", message="This DataLoader will create .* worker processes")


# --- the queue between workers and model --------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """A batch in the queue's arithmetic, in ms: its worker begins it and ends it, and the model takes it."""

    worker: int
    begun: float
    ended: float
    taken: float


def queue(loads: Sequence[float], step: float, workers: int, prefetch: int = 2) -> list[Made]:
    """DataLoader in arithmetic. loads: ms that each batch takes to make; step: ms of a training step.

    Worker i makes batches i, i + workers, …, which are taken in order. Batch b is requested when batch
    b − workers · prefetch is taken. Without workers the main process makes each batch when it is asked for.
    """
    free, batches, now = [0.0] * max(1, workers), list[Made](), 0.0
    for b, load in enumerate(loads):
        worker = b % max(1, workers)
        if workers:
            requested = batches[b - workers * prefetch].taken if b >= workers * prefetch else 0.0
            begun = max(free[worker], requested)
        else:
            begun = now
        free[worker] = begun + load
        taken = max(now, begun + load)
        batches.append(Made(worker, begun, begun + load, taken))
        now = taken + step
    return batches


def mean_step(loads: Sequence[float], step: float, workers: int, prefetch: int = 2) -> float:
    """ms a step by `queue`, from the first step on."""
    batches = queue(loads, step, workers, prefetch)
    return (batches[-1].taken - batches[0].taken) / (len(batches) - 1)


def rule(wait: float, cpu: float, step: float, workers: int, cores: int) -> float:
    """ms a step with one worker or more. To make a batch takes a worker `wait` ms of waiting and `cpu` ms of a core."""
    return max(step, (wait + cpu) / workers, cpu / cores)


def real_steps(
    load: float, step: float, workers: Iterable[int], cores: int | None = None
) -> dict[int, float]:
    """workers → ms a step of the real DataLoader, by the clock; the step is a sleep.

    cores: None: the load is a sleep. Else it computes, and all workers together have so many cores, where the system
    lets us bind them. Three rounds, in which all numbers of workers take turns: the median where they sleep. Where they
    compute, the quickest: what else wants the cores only adds time.
    """
    made, of_rounds = (samples.Paced, statistics.median) if cores is None else (samples.Busy, min)
    more: dict[str, Any] = {}
    if cores is not None and _FORKS:
        more["worker_init_fn"] = _Bound(sorted(os.sched_getaffinity(0))[:cores])
    times = [{w: _real_step(made, load, step, w, more) for w in workers} for _ in range(3)]
    return {w: of_rounds([t[w] for t in times]) for w in times[0]}


def _real_step(
    made: Callable[..., Any], load: float, step: float, workers: int, more: dict[str, Any]
) -> float:
    """ms a step: the median time of as many steps as there are workers. Some of them come at once, and the next ones late."""
    steps, several = 12, max(1, workers)
    dataset = made(steps + 1 + 2 * workers, load / 1e3)  # no worker has nothing to do before the last step
    options = WORKERS | more if workers else {}
    batches = iter(DataLoader(dataset, batch_size=1, num_workers=workers, **options))
    taken = []
    for _ in range(steps + 1):
        next(batches)
        taken.append(time.perf_counter())
        time.sleep(step / 1e3)
    gaps = [b - a for a, b in zip(taken, taken[several:], strict=False)]
    return statistics.median(gaps) * 1e3 / several


@dataclass(frozen=True)
class _Bound:
    cores: Sequence[int]

    def __call__(self, worker: int) -> None:
        os.sched_setaffinity(0, self.cores)


def steps_table(
    model: Mapping[int, float], real: Mapping[int, float], caption: str, cpu: float | None = None
) -> Table:
    """workers → ms a step, by arithmetic and by the clock. cpu: ms of a core that each batch takes."""
    rows = [
        (
            w,
            f"{model[w]:.0f} ms",
            f"≈ {real[w]:.1f} ms",
            *([f"≈ {cpu / real[w]:.1f}"] if cpu else []),
        )
        for w in real
    ]
    columns = [
        "num_workers",
        "a step, by the rule",
        "real DataLoader",
        *(["cores that the workers had"] if cpu else []),
    ]
    return table(rows, columns, evidence="live (CPU)", caption=caption)


@drawn
def queue_picture(load: float, step: float) -> Picture:
    """Who works when: the model and no worker to four, in the first 150 ms."""
    workers, until, evidence = range(5), 150, "arithmetic"
    title = f"Batches of {load:g} ms, steps of {step:g} ms: who waits for whom"
    note = "the number is the batch; nothing between two steps: the model waits"
    fig, _ = style.figure(5.4, evidence=evidence, title=title, note=note)
    heights = [max(1, w) + 1.6 for w in workers]
    for ax, w in zip(fig.subplots(len(workers), 1, sharex=True, height_ratios=heights), workers, strict=True):
        for b, batch in enumerate(queue([load] * 60, step, w)):
            bars = ((batch.worker + 1, batch.begun, load, 0.4), (0, batch.taken, step, 0.85))
            for row, left, width, alpha in bars:
                if left >= until:
                    continue
                colour = style.SERIES[b % 6]
                ax.barh(-row, width, left=left, height=0.72, color=colour, alpha=alpha, edgecolor="white")
                if left + width / 2 < until:
                    ink = style.ink(style.blend(colour, style.PAPER, 1 - alpha))
                    ax.text(left + width / 2, -row, str(b), ha="center", va="center", fontsize=8, color=ink)
        makers = [f"worker {i}" for i in range(w)] or ["its own loading"]
        ax.set_yticks(range(0, -len(makers) - 1, -1), ["model", *makers])
        ax.set_title(f"num_workers={w}", loc="left", fontsize=9, pad=2)
        ax.set(xlim=(0, until))
        ax.grid(False)
    ax.set_xlabel("ms")
    return Picture(fig, evidence, f"{title}, with {', '.join(map(str, workers))} workers")


# --- what a worker gets -------------------------------------------------------------------------------------------


class _Noted:
    """The order of a data set with an index; keeps what has been drawn from it."""

    def __init__(self, n: int) -> None:
        self.n, self.drawn = n, list[int]()

    def __iter__(self) -> Iterator[int]:
        for i in range(self.n):
            self.drawn.append(i)
            yield i


@dataclass(frozen=True)
class HandedOut:
    """requested: batches that the workers were sent before the loop had one; makers: who made batch 0, 1, …; shared:
    whether a batch lies in shared memory; workers: how many there are."""

    workers: int
    requested: int
    makers: tuple[int, ...]
    shared: bool


def hand_out(workers: int) -> HandedOut:
    """What a real DataLoader with workers does with twelve batches of a data set that has an index."""
    batches = 12
    sampler = _Noted(batches)
    loader = DataLoader(samples.Paced(batches), sampler=sampler, batch_size=1, num_workers=workers, **WORKERS)
    iterator = iter(loader)
    requested = len(sampler.drawn)
    handed = list(iterator)
    processes = [int(batch[0, 1]) for batch in handed]
    numbers = {process: i for i, process in enumerate(dict.fromkeys(processes))}
    return HandedOut(workers, requested, tuple(numbers[p] for p in processes), handed[0].is_shared())


def hand_out_table(handed_out: HandedOut) -> Table:
    """Worker by worker: which batches it makes, and which of them it was sent before the loop had one."""
    rows = []
    for worker in range(handed_out.workers):
        mine = [b for b, maker in enumerate(handed_out.makers) if maker == worker]
        ahead = [b for b in mine if b < handed_out.requested]
        made, sent = (", ".join(map(str, batches)) for batches in (mine[:3], ahead))
        rows.append((f"worker {worker}", f"{made}, …", sent))
    where = "shared" if handed_out.shared else "ordinary"
    columns = ["process", "makes batches", "sent before the loop has a batch"]
    caption = f"what is made waits in {where} memory until the loop takes 0, 1, 2, … in order"
    return table(rows, columns, evidence="live (CPU)", caption=caption)


# --- what crosses the bus -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bus:
    """GB/s to the device from pinned and from pageable memory, on paper (sheet), and inside the GPU; moved: MB that the two
    kernels read and write there; kernels: their share of the time until a batch of uint8 from pinned memory is ready as
    float32."""

    pinned: float
    pageable: float
    sheet: float
    inside: float
    moved: float
    kernels: float


def bus(rows: Sequence[Mapping[str, Any]], card: str) -> Bus:
    """Of the table of the recorded experiment 04/to_the_device."""
    from helpers.simulator import DEVICES

    sent = {(row["dtype"], row["pinned"]): row for row in rows}
    pinned, pageable = sent["uint8", True], sent["uint8", False]
    kernels_s = pinned["ready_s"] - pinned["copy_s"]
    moved = (
        13 * pinned["bytes"]
    )  # of each value one kernel reads a byte and writes 4, the other reads 4 and writes 4
    return Bus(
        pinned["bytes"] / pinned["copy_s"] / 1e9,
        pageable["bytes"] / pageable["copy_s"] / 1e9,
        DEVICES[card].pcie_bytes_per_s / 1e9,
        moved / kernels_s / 1e9,
        moved / 1e6,
        kernels_s / pinned["ready_s"],
    )


def on_the_card(simulated: Result, recorded: Result) -> dict[str, float]:
    """What the text says of two runs of 04/to_the_device: GB/s, float32 ÷ uint8 until ready, µs of the two kernels."""
    made, real = (
        {(row["dtype"], row["pinned"]): row for row in result.table or ()} for result in (simulated, recorded)
    )
    gbs = {kind: row["bytes"] / row["copy_s"] / 1e9 for kind, row in real.items()}

    def gain(rows: Mapping[tuple[str, bool], Any], pinned: bool) -> float:
        return float(rows["float32", pinned]["ready_s"] / rows["uint8", pinned]["ready_s"])

    def kernels_us(rows: Mapping[tuple[str, bool], Any]) -> float:
        return float(rows["uint8", True]["ready_s"] - rows["uint8", True]["copy_s"]) * 1e6

    return {
        "real_pinned": gbs["float32", True],
        "real_large": gbs["float32", False],
        "real_small": gbs["uint8", False],
        "pinned_gain": gain(made, True),
        "real_pinned_gain": gain(real, True),
        "real_pageable_gain": gain(real, False),
        "kernels_us": kernels_us(made),
        "real_kernels_us": kernels_us(real),
    }


def sent_table(*results: Result) -> Table:
    """Bytes, copy and the time until ready, for each dtype and kind of memory, in each run of 04/to_the_device.

    Of one run also the kernels: the difference of two times, which in a recording are timed apart.
    """
    cells, one = [], len(results) == 1
    for rows in zip(*(result.table or () for result in results), strict=True):
        for row, result in zip(rows, results, strict=True):
            cells.append(
                (
                    row["dtype"],
                    "pinned" if row["pinned"] else "pageable",
                    f"{row['bytes'] / 1e6:.1f} MB",
                    *[result.kind] * (not one),
                    result.about + format_seconds(row["copy_s"]),
                    f"{result.about}{row['bytes'] / row['copy_s'] / 1e9:.0f} GB/s",
                    *[_kernels(row, result.about)] * one,
                    result.about + format_seconds(row["ready_s"]),
                )
            )
    run, kernels = ["run"] * (not one), ["two kernels"] * one
    columns = ["dtype", "memory", "bytes sent", *run, "copy", "rate", *kernels, "float32 is ready after"]
    evidence = " · ".join(result.evidence for result in results)
    return table(cells, columns, evidence=evidence, caption="a batch of 256 images of 3 × 224 × 224")


def _kernels(row: Mapping[str, Any], about: str) -> str:
    return "none" if row["dtype"] == "float32" else about + format_seconds(row["ready_s"] - row["copy_s"])


# --- what a disk is asked for -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Disk:
    """What a disk can do. seeks: it moves its head for each read and only then the bytes."""

    iops: float
    bytes_per_s: float
    seeks: bool = False


DISKS = {
    "hard disk": Disk(100, 150e6, seeks=True),
    "cloud volume": Disk(3_000, 125 * 2**20),
    "NVMe drive": Disk(500_000, 3.5e9),
}
#: ImageNet, about: images, and bytes of each
IMAGES, IMAGE_BYTES = 1_280_000, 110_000


def disks_table(one_by_one: Mapping[str, float], in_blocks: Mapping[str, float], block: int) -> Table:
    """Minutes of an epoch on each disk, image by image and in blocks."""
    rows = [
        (
            name,
            f"{disk.iops:,}",
            f"{disk.bytes_per_s / 1e6:,.0f} MB/s",
            f"{disk.bytes_per_s / disk.iops / 1e3:,.0f} kB",
            f"{one_by_one[name]:,.1f} min",
            f"{in_blocks[name]:,.1f} min",
        )
        for name, disk in DISKS.items()
    ]
    columns = ["disk", "IOPS", "bandwidth", "bandwidth ÷ IOPS", "one by one", f"blocks of {block}"]
    caption = (
        "one epoch over 1.28 million images of 110 kB. Hard disk: about what 7,200 rpm do; cloud volume (reached over a network, "
        "counted as the NVMe drive): AWS gp3's published baseline; NVMe drive: the data sheet of a Samsung 970 EVO, 2 TB"
    )
    return table(rows, columns, evidence="arithmetic", caption=caption)


Read = tuple[int, int]
"""offset, bytes"""


class ImageFiles:
    """JPEG files, and the same pixels packed one behind the other into one file, in a folder that ends with the kernel."""

    def __init__(self, count: int = 256, size: int = 64) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.paths = samples.write_images(self.folder.name, count, size)
        self.pixels = np.stack([samples.decode_image(p) for p in self.paths])  # (count, size, size, 3) uint8
        self.packed = Path(self.folder.name) / "pixels.bin"
        self.pixels.tofile(self.packed)

    def epoch(self, way: str) -> list[Read]:
        """Read the packed file once in random order, unbuffered, and note each read. way: "one by one" or "in blocks"."""
        size = self.pixels[0].nbytes * {"one by one": 1, "in blocks": 32}[way]
        places = np.random.default_rng(0).permutation(self.pixels.nbytes // size) * size
        reads = []
        with self.packed.open("rb", buffering=0) as file:
            for offset in places.tolist():
                file.seek(offset)
                reads.append((offset, len(file.read(size))))
        return reads


def read_order(epochs: Mapping[str, Sequence[Read]]) -> Picture:
    """Where in the file each read of an epoch lies, way by way; an upright stroke is a jump."""
    panels = {}
    for way, reads in epochs.items():
        offsets, sizes = np.array(reads).T / 1e6
        done = sizes.cumsum()
        # each read from its first byte to its last
        so_far, place = (
            np.stack(ends, axis=1).ravel().tolist()
            for ends in ((done - sizes, done), (offsets, offsets + sizes))
        )
        panels[f"{way}: {len(reads)} reads"] = {"place": (so_far, place)}
    return plots.curves(
        panels,
        evidence="live (CPU)",
        title="One epoch over a packed file of 3 MB: which part each read asks for",
        note="slanted: a read; upright: a jump, at which a hard disk would move its head",
        xlabel="read so far, MB",
        ylabel="place in the file, MB",
    )


# --- further: maps, batches, decoding -----------------------------------------------------------------------------


class TokenFile:
    """The tokens of some documents, packed into one file. ends: where each document ends; words: a token's number → word."""

    def __init__(self, documents: int = 2_000) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "tokens.bin"
        self.ends, self.words = samples.pack_documents(samples.text(documents), self.path)

    @property
    def nbytes(self) -> int:
        return 2 * int(self.ends[-1])


def held(load: Callable[[], np.ndarray], start: int, end: int) -> tuple[int, int]:
    """Bytes that NumPy and Python have allocated for a copy of array[start:end] of what `load` returns; bytes of its pickle.

    A map's pages are not among them: they are the operating system's.
    """
    tracemalloc.start()
    array = load()
    part = array[start:end].copy()
    now = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(part) == end - start
    return now, len(pickle.dumps(array))


def in_files(size: int, whole: int) -> str:
    """Bytes in the words of the prediction: next to nothing is Python's own."""
    return "the whole file" if size > 0.9 * whole else "almost nothing" if size < 0.05 * whole else "a part"


def map_table(file: TokenFile, sizes: Mapping[str, tuple[int | None, int]]) -> Table:
    """way → (bytes allocated, of which Python's own vary a little, bytes pickled); None: nothing was opened."""
    rows = [
        (
            way,
            "nothing until it opens the map" if now is None else f"{float(f'{now:.2g}') / 1e3:,.0f} kB",
            f"{sent / 1e3:,.1f} kB",
        )
        for way, (now, sent) in sizes.items()
    ]
    columns = ["way", "allocated by Python and NumPy for one document", "pickled"]
    caption = f"the file has {file.nbytes / 1e3:,.0f} kB"
    return table(rows, columns, evidence="live (CPU)", caption=caption)


def useful(lengths: np.ndarray) -> float:
    """The share of tokens in padded batches of 64 documents of these lengths, taken in order; rows of multiples of 8."""
    batch, multiple = 64, 8
    rows = lengths[: len(lengths) // batch * batch].reshape(-1, batch)
    longest = np.ceil(rows.max(1) / multiple) * multiple
    return float(rows.sum() / (batch * longest).sum())
