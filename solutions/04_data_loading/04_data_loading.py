# %% [markdown]
# # 04 · Data loading
#
# ## Is the model waiting for data?
#
# A step begins when two things are there: the model and the next batch. If the batch comes late, the fastest GPU
# waits, and no kernel in its trace is slow (lesson 03 showed what such a gap looks like). A batch is late for one
# of three reasons: it is **read** in too many small pieces, it is **made** with too much work and too many copies,
# or too few (or too many) **workers** make it. Each has a number that you can work out before you buy a disk.
#
# **Time** 65–75 min, half of it exercises. **Before this** lessons 00 and 01 (timing with ≈, storages and copies);
# 03 helps.
#
# **Afterwards you can**
# - store a data set so that a shuffled epoch needs few, large reads, and read through a memory map exactly what
#   you return;
# - build a batch with one allocation, and send a quarter of the bytes to the GPU;
# - share samples out over workers and GPUs without losing or repeating one, and work out how many workers you need.
#
# **On trial** *`num_workers = 4 × GPUs`* · *`ImageFolder(…, num_workers=16, pin_memory=True)`* · *memory mapping for
# large files* · *`prefetch_factor` controls how many batches are loaded ahead* · *share data between processes
# through shared memory* (these five from the article "Five strategies for faster training") · *random reads are
# measured in IOPS, sequential ones in MB/s* (book notes).

# %% setup
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from helpers import lesson, samples

torch.set_num_threads(1)  # workers are processes of their own: more threads would be in their way
# classes of a notebook exist in a worker only if it is forked; elsewhere the lesson uses helpers.samples' classes
FORK = "fork" if sys.platform == "linux" else None
warnings.filterwarnings("ignore", message="This DataLoader will create .* worker processes")
lesson.start("04_data_loading", evidence=["live (CPU)", "arithmetic", "simulated (H100)"])

# %% [markdown]
# ## 1 · How many reads is an epoch?
#
# The next cells write real files: 256 small JPEG images (64 × 64 pixels), each in a file of its own, and the same
# pixels decoded and packed one behind the other into one file. An epoch can now visit the samples in three ways:
#
# - **files**: one file for each image, in random order: 256 reads;
# - **packed, shuffled**: the packed file, image by image in random order: 256 reads;
# - **packed, blocks**: the packed file in blocks of 32 images. The *blocks* come in random order, and each is read
#   whole: 8 reads. (A training would shuffle the images of a block in memory; that reads nothing, and is left out.)
#
# What is that worth? A disk has two limits: how many requests a second it answers (IOPS, for input/output operations
# per second), and how many bytes a second it moves. Take 1.28 million images of 110 kB, the size of ImageNet. A **hard
# disk** answers 100 requests a second and moves 150 MB/s. It moves its head for each read and only then the bytes, so
# the two times *add*. An **NVMe drive** answers 500,000 and moves 3.5 GB/s. It works on many requests at once, so only
# the *larger* time counts.
#
# How many minutes does an epoch take on the hard disk, image by image and in blocks of 32: 7, 16, 22, 213 or 229? And
# how many times as long as blocks does image by image take on the NVMe drive: 1, 2 or 32?

# %% experiment
prediction = {
    "hard disk, one by one: min": ...,
    "hard disk, blocks of 32: min": ...,
    "NVMe, one by one ÷ blocks": ...,
}

# %% experiment
IMAGES, SIZE, BLOCK = 256, 64, 32
DEVICES = {  # requests per second, bytes per second
    "hard disk": (100, 150e6),
    "cloud volume": (3_000, 125 * 2**20),
    "NVMe": (500_000, 3.5e9),
}
N, BYTES = 1_280_000, 110_000


def minutes(reads, total, device):
    requests, bandwidth = DEVICES[device]
    both = (reads / requests, total / bandwidth)
    return (sum(both) if device == "hard disk" else max(both)) / 60


one_by_one, in_blocks = ({d: minutes(n, N * BYTES, d) for d in DEVICES} for n in (N, N / BLOCK))
measured = {
    "hard disk, one by one: min": round(one_by_one["hard disk"]),
    "hard disk, blocks of 32: min": round(in_blocks["hard disk"]),
    "NVMe, one by one ÷ blocks": round(one_by_one["NVMe"] / in_blocks["NVMe"]),
}
lesson.compare_predictions(
    prediction,
    measured,
    evidence="arithmetic",
    choices={
        "hard disk, one by one: min": (7, 16, 22, 213, 229),
        "hard disk, blocks of 32: min": (7, 16, 22, 213, 229),
        "NVMe, one by one ÷ blocks": (1, 2, 32),
    },
).show()
lesson.table(
    [
        (
            name,
            f"{requests:,}",
            f"{bandwidth / 1e6:,.0f}",
            f"{bandwidth / requests / 1e3:,.0f} kB",
            f"{one_by_one[name]:,.1f} min",
            f"{in_blocks[name]:,.1f} min",
        )
        for name, (requests, bandwidth) in DEVICES.items()
    ],
    ["device", "IOPS", "MB/s", "MB/s ÷ IOPS", "one by one", f"blocks of {BLOCK}"],
    evidence="arithmetic",
    caption="1.28 M images of 110 kB. Hard disk: reads ÷ IOPS + bytes ÷ bandwidth; the others: the larger of the two",
)

# %% experiment tags=["fold"]
from helpers.plots import style
from helpers.plots.picture import Picture, drawn

folder = tempfile.TemporaryDirectory()  # gone when the kernel ends
paths = samples.write_images(folder.name, IMAGES, SIZE)
pixels = np.stack([samples.decode_image(p) for p in paths])  # (256, 64, 64, 3) uint8
packed = Path(folder.name) / "pixels.bin"
pixels.tofile(packed)


class Disk:
    """Reads files, unbuffered, and notes each read: (file, offset, bytes)."""

    def __init__(self):
        self.log = []

    def read(self, path, offset=0, size=None):
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            data = file.read(path.stat().st_size if size is None else size)
        self.log.append((path, offset, len(data)))
        return data


def epoch(way, disk, seed=0):
    rng = np.random.default_rng(seed)
    if way == "files":
        for i in rng.permutation(IMAGES):
            disk.read(paths[i])
    else:
        length = 1 if way == "packed, shuffled" else BLOCK
        image = pixels[0].nbytes
        for i in rng.permutation(IMAGES // length):
            disk.read(packed, int(i) * length * image, length * image)
    return disk


@drawn
def read_order(disks, evidence="live (CPU)"):
    title = "One epoch over the packed file: what the disk is asked for"
    fig, _ = style.figure(
        2.9,
        evidence=evidence,
        title=title,
        note="each stroke is one read, in two colours by turns; a jump between two is a seek",
    )
    for ax, (way, disk) in zip(
        fig.subplots(1, len(disks), sharex=True, sharey=True), disks.items(), strict=True
    ):
        done = 0
        for i, (_, offset, size) in enumerate(disk.log):
            at = np.array([0, size]) / 1e6
            colour = (style.BLUE, style.VERMILLION)[i % 2]
            ax.plot(done + at, offset / 1e6 + at, color=colour, linewidth=2.5, solid_capstyle="butt")
            done += at[1]
        ax.set(title=f"{way}: {len(disk.log)} reads", xlabel="read so far, MB")
    fig.axes[0].set_ylabel("place in the file, MB")
    return Picture(
        fig, evidence, f"{title}: scattered single images at the left, few long blocks at the right"
    )


disks = {way: epoch(way, Disk()) for way in ("files", "packed, shuffled", "packed, blocks")}
assert [len(disk.log) for disk in disks.values()] == [IMAGES, IMAGES, IMAGES // BLOCK]
read_order({way: disk for way, disk in disks.items() if way != "files"})

# %% [markdown]
# **Bandwidth ÷ IOPS is the size of a read at which the two limits meet.** Below this size the number of requests limits
# you, above it the bandwidth. On the hard disk that size is far above an image. So an epoch in random order is almost
# nothing but seeks, and blocks are worth more than any code that you could write. On the NVMe drive it is below an
# image: order costs nothing there, *if enough reads are under way at once*. A single reader, who waits for each read,
# gets a small part of a drive's IOPS. With workers a data set asks for more.
#
# (Where the table's figures come from: about 100 IOPS is what a 7,200 rpm disk does; the cloud volume is the published
# baseline of an AWS gp3 volume; the NVMe drive is a 2 TB Samsung 970 EVO's data sheet, 4 × 32 reads under way.)
#
# The price of blocks is a weaker shuffle: 32 neighbours stay close in time. Formats for large sets (WebDataset,
# MosaicML Streaming, [FFCV](https://docs.ffcv.io/making_dataloaders.html), TFRecord) pack, and mix a few large pieces.
#
# ### What does a memory map read?
#
# A map makes a file look like an array. Nothing is read until you touch it, then page by page. Two questions about
# one file of tokens, each answered in files: what stays in memory when you want one document of it? And how large is
# the array when it is **pickled** (made into bytes for another process, as for a worker that is started as a new
# Python: section 3)? Guess, then run.

# %% experiment
import functools
import pickle
import tracemalloc

documents = samples.text(2_000)
ends, words = samples.pack_documents(documents, Path(folder.name) / "tokens.bin")
open_map = functools.partial(np.memmap, Path(folder.name) / "tokens.bin", dtype=np.uint16, mode="r")
size = 2 * int(ends[-1])


def held(load):
    """Bytes of NumPy's memory that hold one document, and the bytes of the pickled array that it was taken from."""
    tracemalloc.start()
    array = load()
    one = array[ends[6] : ends[7]].copy()
    now = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return one, now, len(pickle.dumps(array))


by_file, in_memory, pickled_array = held(lambda: np.fromfile(Path(folder.name) / "tokens.bin", np.uint16))
by_map, mapped, pickled_map = held(open_map)
assert (by_file == by_map).all()


def rounded(n):  # to a tenth of the file: the rest is Python's own
    return f"{round(10 * n / size) / 10:.1f}"


lesson.table(
    [
        ("np.fromfile", rounded(in_memory), rounded(pickled_array)),
        ("np.memmap", rounded(mapped), rounded(pickled_map)),
        ("functools.partial(np.memmap, path, …)", "0.0", rounded(len(pickle.dumps(open_map)))),
    ],
    ["how", "in memory for one document", "pickled"],
    evidence="live (CPU)",
    caption=f"in files of {size:,} bytes. Document 7 has {len(by_file)} words: {' '.join(words[t] for t in by_file[:5])} …",
)

# %% [markdown]
# The map holds next to nothing, **but pickling it sends the whole file**, once for each worker. So a data set keeps
# the *recipe* for its map and opens it in the process that reads. The same holds for any handle: a file opened before
# a fork is shared with its position, so two workers that `seek` and then `read` get each other's bytes.
#
# Two more things about maps. A slice of one is not yet read: copy what you return, or the file is read later, where
# you do not expect it. And a *read* of a map is a **page fault**: the first touch of a page (often 4 kB) stops the
# process until the operating system has fetched it. Scattered documents cost at least one each, so neighbours are worth
# reading together.

# %% [markdown]
# **Exercise 4.1 — documents from a map** (★★, 11 min)
#
# A data set over a packed file that reads exactly the bytes it returns, and can be sent to a worker for the price of
# its index. `DataLoader` calls `__getitems__` with the indices of a whole batch, if a data set has it: the place to
# read neighbours with one slice.
#
# <details><summary>Hint 1</summary>Keep <code>open_map</code> and <code>ends</code>, and a map that is <code>None</code>
# until the first read. The pickle holds what <code>__getstate__</code> returns.</details>
#
# <details><summary>Hint 2</summary>In <code>__getitems__</code>, go through the indices and collect a run while the next
# index is the last one plus 1. A run is one slice of the map; its documents are slices of that slice, which read
# nothing.</details>
#
# <details><summary>The idea</summary>A run from document a to document b: copy the slice of the map from the start of a
# to the end of b with <code>np.array</code>, wrap it with <code>torch.from_numpy</code>, and <code>split</code> it by
# the documents' lengths. <code>__getitem__</code> is <code>__getitems__</code> of one. <code>__getstate__</code>
# returns <code>self.__dict__</code> with the map set to None.</details>


# %% exercise="documents"
class Documents(Dataset):
    """The documents of a packed file of tokens, read through a memory map.

    open_map: called without arguments, opens the map. len(map) is the number of tokens; map[a:b] is a NumPy array of
        b − a tokens (uint16). Here the slice itself counts as the read, of 2 · (b − a) bytes, touched or not.
    ends: (n,) int64, not falling: document i is tokens ends[i − 1] (0 for the first) to ends[i], and may be empty.

    len(d) is n. d[i] is document i, a 1-D tensor of dtype uint16 that does not lie in the map (torch.from_numpy makes
    one of a copy); IndexError unless 0 ≤ i < n. d.__getitems__(indices) is the list of these documents, in the order
    of indices (at least one, all different).

    Budgets: every call reads 2 bytes for each token it returns, no more and no less, and keeps none of them. In
    __getitems__, indices that follow one another (7, 8, 9) are read by one slice: at most one read for each such run.
    The map is opened at the first read, once in a process. Pickled, before or after use: the bytes of ends + 1,000.
    """

    def __init__(self, open_map: Callable[[], Any], ends: np.ndarray) -> None:
        ### BEGIN SOLUTION
        self.open_map, self.ends = open_map, ends
        self.map: Any = None
        ### END SOLUTION

    def __len__(self) -> int:
        ### BEGIN SOLUTION
        return len(self.ends)
        ### END SOLUTION

    def __getitem__(self, i: int) -> torch.Tensor:
        ### BEGIN SOLUTION
        return self.__getitems__([i])[0]
        ### END SOLUTION

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        ### BEGIN SOLUTION
        if self.map is None:
            self.map = self.open_map()
        found: list[torch.Tensor] = []
        first = 0  # where in indices the run began
        for k, i in enumerate(indices):
            if not 0 <= i < len(self.ends):
                raise IndexError(f"document {i} of {len(self.ends)}")
            if k + 1 == len(indices) or indices[k + 1] != i + 1:
                run = indices[first : k + 1]
                bounds = [int(self.ends[run[0] - 1]) if run[0] else 0, *(int(self.ends[j]) for j in run)]
                tokens = torch.from_numpy(np.array(self.map[bounds[0] : bounds[-1]]))
                found += tokens.split([b - a for a, b in zip(bounds, bounds[1:])])
                first = k + 1
        return found
        ### END SOLUTION

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: the attributes that the data set has in another process."""
        ### BEGIN SOLUTION
        return self.__dict__ | {"map": None}
        ### END SOLUTION


# %% test="documents" points=1
from helpers.exercises.data_loading import Packed, check_Documents

check_Documents(
    Packed([5, 3, 8, 900], [1, 0, 2]),
    Packed([900, 10, 20, 30, 4, 50], [5, [1, 2, 3], [4, 0, 1, 3], 5]),
    Packed([7] * 300, [299, [17, 18, 250]]),
    outside=[([3, 4], 2), ([3, 4], -1)],
)

# %% hidden="documents" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.data_loading import check_Documents

check_Documents(
    files=[([7, 0, 300, 1, 2, 90, 0, 41, 3, 12], 0), ([40, 31, 2, 9, 77, 1], 2)],
    outside=[([3, 4], 2), ([3, 4], -1), ([3, 4], 9), ([], 0)],
)
### END HIDDEN TESTS

# %% hidden="documents" points=2
### BEGIN HIDDEN TESTS
from helpers.exercises.data_loading import Packed, check_Documents

calls = [399, [*range(64, 96), *range(8)], [*range(399, 300, -2)], [12, 13], [12, 13]]
check_Documents(
    Packed([2000, 3, 1, 0, 1, 5, 900], [0, [0, 1, 2, 3], [6, 5, 4], [2, 3, 5, 6, 0], [4], 0, 3]),
    Packed([0, 0, 4, 0, 0], [1, [0, 1], [4, 2, 3], [0, 1, 2, 3, 4]]),
    Packed([1 + 37 * i % 89 for i in range(400)], calls),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · What is a batch made of, and when?
#
# A JPEG is small and slow to open, pixels are large and ready. A float32 is four times a byte and tells no more than
# the byte did. 256 images of 3 × 224 × 224 values go to the GPU: as float32, made on the CPU; or as uint8, made float32
# on the GPU. And from ordinary (pageable) memory, which the driver first copies into a buffer of its own, or from
# **pinned** memory, which the operating system promises not to move, so that the GPU's copy engine can read it itself.
#
# On the simulated H100 the bus carries {{pinned_gbs:.0f}} GB/s from pinned memory (of the {{sheet_gbs:.0f}} on its data
# sheet) and {{pageable_gbs:.0f}} GB/s from pageable. The GPU's own memory carries {{memory_gbs:,.0f}} GB/s. Two kernels
# convert: one reads a byte and writes 4, one scales in place (reads 4, writes 4): 13 bytes for each value. By what factor
# does uint8 shorten the time *until the float32 batch is ready on the GPU*? A quarter of the bytes crosses the bus. Is
# the factor 4 in both cases? Choose from 1, 2, 3 and 4.

# %% experiment
prediction = {"pinned": ..., "pageable": ...}  # time until ready: float32 ÷ uint8

# %% experiment
from helpers import recordings
from helpers.simulator import DEVICES as CARDS
from helpers.timing import format_seconds

sent = recordings.show("04/to_the_device", simulated="H100", prefer="simulated")
way = {(r["dtype"], r["pinned"]): r for r in sent.table}
measured = {
    name: round(way["float32", pinned]["ready_s"] / way["uint8", pinned]["ready_s"])
    for name, pinned in (("pinned", True), ("pageable", False))
}
lesson.compare_predictions(
    prediction, measured, evidence=sent.evidence, what="float32 ÷ uint8", choices=(1, 2, 3, 4)
).show()
pinned, pageable = way["uint8", True], way["uint8", False]
kernels_s = pinned["ready_s"] - pinned["copy_s"]
lesson.keep(
    pinned_gbs=pinned["bytes"] / pinned["copy_s"] / 1e9,
    pageable_gbs=pageable["bytes"] / pageable["copy_s"] / 1e9,
    sheet_gbs=CARDS["H100"].pcie_bytes_per_s / 1e9,
    memory_gbs=13 * pinned["bytes"] / kernels_s / 1e9,
    kernels_share=kernels_s / pinned["ready_s"],
)


def sent_table(shown):
    about = "" if shown.evidence.startswith("simulated") else "≈ "
    return lesson.table(
        [
            (
                r["dtype"],
                "pinned" if r["pinned"] else "pageable",
                f"{r['bytes'] / 1e6:.1f} MB",
                about + format_seconds(r["copy_s"]),
                f"{about}{r['bytes'] / r['copy_s'] / 1e9:.0f}",
                about + format_seconds(r["ready_s"]),
            )
            for r in shown.table
        ],
        ["dtype", "memory", "bytes sent", "copy", "GB/s", "float32 is ready after"],
        evidence=shown.evidence,
        caption="a batch of 256 images of 3 × 224 × 224",
    )


sent_table(sent)

# %% [markdown]
# The slower the bus, the larger the share of the copy. From pinned memory the two kernels take
# {{kernels_share:.0%}} of the time until the batch is ready.
#
# A byte that you do not make need not be moved: by a worker's memory, through shared memory, over the bus. So **keep
# uint8 until the last place, and convert there.** The kernels that convert read and write the GPU's own memory, which
# is much faster than the bus. (A network that begins with bfloat16 takes `.to(torch.bfloat16)` there.) It stops being
# true where the CPU has to compute in float anyway, for example to resize well; then round back.
#
# Pinned memory makes the copy faster and lets it hide behind compute: lesson 05. `DataLoader(pin_memory=True)` pins
# finished batches in the main process (in a thread, if there are workers); without a GPU it does nothing, and warns.
#
# **Decode once.** Decoding is work that gives the same pixels each epoch, so it can be done once, before training.
# What does that cost and save? The images of section 1:

# %% experiment tags=["nbval-ignore-output"]
from helpers import bench

small = bench(lambda: [samples.decode_image(p) for p in paths[:64]])
image = pixels[0].nbytes
order = np.random.default_rng(1).permutation(IMAGES)[:64].tolist()
scattered = bench(lambda: [np.fromfile(packed, np.uint8, image, offset=i * image) for i in order])
raw = bench(lambda: np.fromfile(packed, np.uint8, 64 * image))
on_disk = sum(p.stat().st_size for p in paths) / len(paths)
lesson.table(
    [
        ("decode JPEG files", f"≈ {on_disk / 1e3:.1f} kB", f"≈ {format_seconds(small.median_s)}"),
        (
            "read packed pixels, one by one",
            f"≈ {image / 1e3:.1f} kB",
            f"≈ {format_seconds(scattered.median_s)}",
        ),
        ("the same in one read", f"≈ {image / 1e3:.1f} kB", f"≈ {format_seconds(raw.median_s)}"),
    ],
    ["way", "on disk, each image", "64 images"],
    evidence="live (CPU)",
    caption="images of 64 × 64 pixels, from the operating system's cache, so without a disk; the first two open a file for each",
)

# %% [markdown]
# Decoded pixels take several times the disk and next to no CPU. Which is better depends on which of the two you lack:
# work the bytes through section 1's table. In between lies what most do: shrink each image once to the size that
# training uses, and store that as JPEG again.
#
# ### The batch itself
#
# `collate_fn` makes a batch of a list of samples. The default stacks tensors of one size, which is one allocation (in
# a worker: straight into shared memory). Documents differ in length, and the usual code then pads each to a tensor of
# its own, stacks these, and converts the whole. Count it, for 64 documents in uint16 that shall become int64:

# %% experiment
from helpers import count

batch = [torch.from_numpy(np.array(part)) for part in np.split(open_map()[: ends[63]], ends[:63])]


def usual(documents, multiple=8):
    longest = math.ceil(max(map(len, documents)) / multiple) * multiple
    padded = [torch.nn.functional.pad(d.long(), (0, longest - len(d))) for d in documents]
    return torch.stack(padded), torch.tensor([len(d) for d in documents])


counts = count(usual, batch)
tokens, lengths = counts.result
lesson.table(
    [
        ("the batch", 2, tokens.nbytes + lengths.nbytes, "1.0"),
        (
            "the usual collate",
            counts.new_storages,
            counts.bytes_allocated,
            f"{counts.bytes_allocated / (tokens.nbytes + lengths.nbytes):.1f}",
        ),
    ],
    ["", "storages", "bytes allocated", "batches' worth"],
    evidence="live (CPU)",
    caption=f"a batch of {tuple(tokens.shape)}; {int(lengths.sum()) / tokens.numel():.0%} of it is tokens, the rest padding",
)

# %% [markdown]
# The last figure is another loss, and a larger one in training. How much of it goes if documents of like length share a
# batch, as when a pool of 2,000 is sorted by length?

# %% experiment
lengths = np.diff(ends, prepend=0)[: 31 * 64]


def useful(lengths):
    longest = np.ceil(lengths.reshape(-1, 64).max(1) / 8) * 8
    return f"{lengths.sum() / (64 * longest).sum():.0%}"


lesson.table(
    [("as they come", useful(lengths)), ("the pool sorted by length", useful(np.sort(lengths)))],
    ["31 batches of 64 documents", "tokens in them"],
    evidence="live (CPU)",
    caption="the batches are then visited in random order; documents of one length always meet, a weaker shuffle",
)

# %% [markdown]
# **Exercise 4.2 — a batch with one allocation** (★★, 7 min)
#
# <details><summary>Hint 1</summary>The size of the batch is known before any document is copied.</details>
#
# <details><summary>Hint 2</summary>A part of a tensor is a view. Writing into it copies and converts at once, whatever
# the dtype of the source.</details>
#
# <details><summary>The idea</summary>Make the whole batch first, full of <code>pad</code>; then write each document into
# the beginning of its row.</details>


# %% exercise="pad_batch"
def pad_batch(
    documents: list[torch.Tensor], pad: int = 0, multiple: int = 8
) -> tuple[torch.Tensor, torch.Tensor]:
    """Documents of different lengths as one batch: (tokens, lengths).

    documents: B ≥ 1 one-dimensional tensors, each of any integer dtype (uint16, int64, …; every token fits into int64)
        and any stride; a document may be empty. They do not change.
    multiple: L, the longest length, is rounded up to a multiple of this.

    tokens: (B, L) int64, contiguous, each row a document and then `pad`. lengths: (B,) int64.
    ValueError for an empty list.

    Budget: 8 · B · L + 8 · B bytes, of torch and NumPy together (64 KiB are left over for
    Python's own objects).
    """
    ### BEGIN SOLUTION
    if not documents:
        raise ValueError("a batch needs at least one document")
    longest = max(len(d) for d in documents)
    tokens = torch.full((len(documents), math.ceil(longest / multiple) * multiple), pad, dtype=torch.int64)
    for row, document in zip(tokens, documents):
        row[: len(document)] = document
    return tokens, torch.tensor([len(d) for d in documents])
    ### END SOLUTION


# %% test="pad_batch" points=1
from helpers import check
from helpers.exercises.data_loading import check_pad_batch, ragged

check_pad_batch(
    check.case(ragged([3, 5])),
    check.case(ragged([1, 8, 0, 2]), pad=-1, multiple=4),
    check.case(ragged([4000, 10, 2000, 7, 3999, 1, 4001, 800])),
)

# %% hidden="pad_batch" points=1
### BEGIN HIDDEN TESTS
import torch

from helpers import check
from helpers.exercises.data_loading import check_pad_batch, ragged

check_pad_batch(
    check.case(ragged([9], 1)),
    check.case(ragged([3, 0, 17, 16], 2, torch.int32), pad=7),
    check.case(ragged([5, 6], 3, torch.uint8), pad=300, multiple=1),
    check.case(ragged([0, 0], 4), pad=2),
    check.case(ragged([33, 64, 1], 5, torch.int64), pad=-100, multiple=64),
    check.case(ragged([10, 20, 30, 40], 6, torch.int16), multiple=3),
    check.case(ragged([3], 7) + ragged([5, 2], 8, torch.int64) + ragged([9], 9, torch.int8), pad=-(2**40)),
    check.case([d[1::3] for d in ragged([31, 8], 10, torch.int32)] + [torch.tensor([-5]).expand(6)]),
    check.case([*ragged([7] * 3, 11, torch.uint32), ragged([40] * 12, 12)[0].reshape(4, 10)[:, 3]]),
    check.case([], raises=ValueError),
    costs=False,
)
### END HIDDEN TESTS

# %% hidden="pad_batch" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers import check
from helpers.exercises.data_loading import check_pad_batch, ragged

check_pad_batch(
    check.case(ragged([9_000, 20_000, 3], 7), pad=1),
    check.case(ragged([1_003] * 40, 8), multiple=64),
    check.case(ragged([2_000, 5_000, 100] * 8, 9, torch.int64), multiple=1),
    check.case([d[::2] for d in ragged([8_000, 30_000, 9], 10, torch.int32)]),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · What does a worker get?
#
# `num_workers=3` starts three **processes**. Each has its own copy of the data set, and its own Python lock. A data set
# with an index is shared out by the sampler, which stays in the main process: worker i is sent the indices of batches
# i, i + 3, i + 6 …, and the batches come back in that order. An `IterableDataset` has no index, so nobody shares it out.
#
# With 3 workers, on this machine, with real processes:

# %% experiment
prediction = {
    "samples of an epoch over 10, iterable": ...,  # 4, 10 or 30
    "batches ordered before the loop asks for one": ...,  # 0, 3, 6 or 40; prefetch_factor is 2 by default
    "processes of 2 workers in 3 epochs": ...,  # 1, 2, 3 or 6
    "the same, persistent_workers=True": ...,
    "torch's threads in a worker": ...,  # "1" or "one for each core"
    "its batch lies in shared memory": ...,  # "yes" or "no"
}

# %% experiment
# a timeout: nothing waits for ever
WORKERS = {"num_workers": 3, "timeout": 60, "multiprocessing_context": FORK}


class Noted:
    """The order of a plain data set; keeps what has been drawn from it."""

    def __init__(self, n):
        self.n, self.drawn = n, []

    def __iter__(self):
        for i in range(self.n):
            self.drawn.append(i)
            yield i


def processes(epochs=3, **options):
    loader = DataLoader(samples.Paced(6), **WORKERS | {"num_workers": 2}, **options)
    return len({int(row[0, 1]) for _ in range(epochs) for row in loader})


sampler = Noted(40)
ordered = iter(DataLoader(samples.Paced(40), sampler=sampler, batch_size=1, **WORKERS))
before_first = len(sampler.drawn)
first_batch = next(ordered)
in_shared = "yes" if first_batch.is_shared() else "no"
del ordered  # its workers end with it
naive = [int(i) for i, _ in DataLoader(samples.Counting(10), batch_size=None, **WORKERS)]
measured = {
    "samples of an epoch over 10, iterable": len(naive),
    "batches ordered before the loop asks for one": before_first,
    "processes of 2 workers in 3 epochs": processes(),
    "the same, persistent_workers=True": processes(persistent_workers=True),
    "torch's threads in a worker": int(first_batch[0, 2]),
    "its batch lies in shared memory": in_shared,
}
lesson.compare_predictions(
    prediction,
    measured,
    evidence="live (CPU)",
    choices={
        "samples of an epoch over 10, iterable": (4, 10, 30),
        "batches ordered before the loop asks for one": (0, 3, 6, 40),
        "processes of 2 workers in 3 epochs": (1, 2, 3, 6),
        "the same, persistent_workers=True": (1, 2, 3, 6),
        "torch's threads in a worker": ("1", "one for each core"),
        "its batch lies in shared memory": ("yes", "no"),
    },
)
lesson.keep(
    iterated=len(naive),
    batches_ordered=before_first,
    afresh=measured["processes of 2 workers in 3 epochs"],
)

# %% [markdown]
# | what you saw | why | what to do |
# |---|---|---|
# | {{iterated}} samples of 10 | every worker iterates all of it, and nothing fails | share it out yourself: Exercise 4.3 |
# | {{batches_ordered}} batches ordered | `num_workers × prefetch_factor` are under way, and lie in shared memory when done | count them as memory |
# | {{afresh}} processes in 3 epochs | workers are started afresh for each, and open everything again | `persistent_workers=True` keeps them, with *their* copies of the data set: what you change in yours does not reach them |
#
# **How they start.** On Linux by *fork* up to Python 3.13: a copy of this process, so classes of a notebook work. By
# *forkserver* [from Python 3.14 on](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/utils/data/dataloader.py),
# and by *spawn* on macOS and Windows, a worker is a new Python that gets the data set pickled and *imports* your
# classes: write them in a file, and guard the script with `if __name__ == "__main__":`. Each such worker also takes the
# time of an `import torch`. (So this lesson asks for fork on Linux, and takes its data sets from `helpers/samples.py`.)
#
# **Copy on write.** A forked worker's memory is this process's, page by page, until one of the two writes to a page. In
# Python, reading an object writes its reference count: a data set with a list of a million file names grows to a copy
# for each worker ([issue 13246](https://github.com/pytorch/pytorch/issues/13246)). An array, such as `ends` above, is
# one object, and stays shared.
#
# **Threads.** torch gives a worker one
# ([`torch/utils/data/_utils/worker.py`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/utils/data/_utils/worker.py)).
# NumPy does not know of workers: its matrix products take a thread for each core, in each worker, unless
# `OMP_NUM_THREADS` (or `OPENBLAS_NUM_THREADS`, by NumPy's library) says otherwise. OpenCV has threads of its own, which
# these variables may not reach: call [`cv2.setNumThreads(1)`](https://docs.opencv.org/4.x/db/de0/group__core__utils.html)
# in the worker. What does this machine do with NumPy's?

# %% experiment tags=["nbval-ignore-output", "fold"]
import psutil


class Product(samples.Paced):
    """NumPy's and torch's threads in the process that makes the sample."""

    def __getitem__(self, index):
        before = psutil.Process().num_threads()
        a = np.ones((600, 600))
        a @ a
        return torch.tensor([1 + psutil.Process().num_threads() - before, torch.get_num_threads()])


threads = ["?", "?"]  # shown where a notebook's class can reach a worker
if FORK:
    one = DataLoader(Product(2), num_workers=1, timeout=60, multiprocessing_context=FORK)
    threads = next(iter(one))[0].tolist()
lesson.table(
    [(os.environ.get("OMP_NUM_THREADS", "not set"), os.cpu_count(), f"≈ {threads[0]}", f"≈ {threads[1]}")],
    ["OMP_NUM_THREADS", "cores", "NumPy's threads in a worker", "torch's"],
    evidence="live (CPU)",
    caption="not set: NumPy takes a thread for each core; set to 1: one",
)

# %% [markdown]
# With 16 workers on 16 cores and nothing set, that is up to 256 threads. Set `OMP_NUM_THREADS=1` before Python starts,
# or use `threadpoolctl` in `worker_init_fn`; lesson 12 counts such threads.
#
# **Exercise 4.3 — each sample exactly once** (★★, 9 min)
#
# A data set that is iterated, over GPUs (ranks) *and* their workers. In each process, `get_worker_info()` says which
# worker asks: its `id` and `num_workers`, or `None` in the main process.
#
# <details><summary>Hint 1</summary>Number all the workers of all ranks from 0 to world × workers − 1. Which samples
# belong to number k?</details>
#
# <details><summary>Hint 2</summary>Everyone must shuffle alike, and workers have different seeds. So the order must not
# come from the global generator: make one from <code>seed</code> and <code>epoch</code> inside
# <code>__iter__</code>.</details>
#
# <details><summary>The idea</summary>One permutation of all indices, the same in each process; process number k takes
# every (world × workers)-th of it, from place k on. Such slices differ in length by at most 1.</details>


# %% exercise="shared"
class Shared(IterableDataset):
    """The samples of a source, shared out over all workers of all ranks; another order in each epoch.

    source: has a length and indices; source[i] is sample i, and costs a read.
    rank, world: which of how many training processes this is. Each has its own loader, all with equally many workers
        (num_workers=0: the rank's main process iterates).
    seed: the same everywhere.

    set_epoch(e): sets the epoch, 0 at first. Iterating yields this process's share of the samples. All shares together
    hold each sample once, also if there are as many workers as samples, or more. The order depends on seed and epoch
    and on nothing else: iterated again, or by two iterators at once, it is the same; in another epoch it is another.
    All samples are shuffled, and then shared out: a share is not a run of neighbours, and holds other samples in
    another epoch. The global generators (torch, random, NumPy) stay in the state that they had: the training's own
    random numbers come from them.

    Budgets: the shares' sizes differ by at most 1; a process reads no sample but its own, each once.
    """

    def __init__(self, source: Any, rank: int = 0, world: int = 1, seed: int = 0) -> None:
        self.source, self.rank, self.world, self.seed = source, rank, world, seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        ### BEGIN SOLUTION
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.source), generator=generator).tolist()
        for i in order[self.rank * workers + worker :: self.world * workers]:
            yield self.source[i]
        ### END SOLUTION


# %% test="shared" points=1
from helpers.exercises.data_loading import Epochs, check_Shared

check_Shared(
    Epochs(10, world=1, workers=0),
    Epochs(10, world=1, workers=3, epochs=[0, 0]),
    Epochs(17, world=2, workers=2, epochs=[0, 1, 0]),
    Epochs(4, world=2, workers=2),
    Epochs(14, world=1, workers=2, epochs=[1], real=True),
)

# %% hidden="shared" points=1
### BEGIN HIDDEN TESTS
from helpers.exercises.data_loading import Epochs, check_Shared

shapes = [(9, 2, 2, 0), (5, 1, 5, 0), (3, 1, 5, 0), (1, 3, 2, 4), (6, 2, 3, 5), (40, 4, 3, 1), (7, 1, 0, 9)]
shapes += [(0, 2, 2, 0)]
check_Shared(
    *(Epochs(samples, world, workers, [epoch], first=50) for samples, world, workers, epoch in shapes),
    Epochs(23, 1, 3, [2], real=True, first=50),
    shuffled=False,
)
### END HIDDEN TESTS

# %% hidden="shared" points=2
### BEGIN HIDDEN TESTS
from helpers.exercises.data_loading import Epochs, check_Shared

check_Shared(
    Epochs(29, 1, 4, [0, 2, 4, 0], seed=29, first=2000),
    Epochs(103, 3, 4, [1, 3, 1], seed=103, first=2000),
    Epochs(22, 8, 1, [6], seed=22, first=2000),
    Epochs(5, 2, 4, [0, 0], seed=5, first=2000),
    Epochs(31, 1, 0, [2, 5], seed=0, first=2000),
    *(Epochs(40, 1, 0, seed=seed) for seed in (0, 1, 17, 100_000)),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · How many workers?
#
# A queue with two sides. Making a batch takes a worker 30 ms, here almost all of it waiting for a disk; a training
# step takes 10 ms. How long is a step, on average, with 0, 1, 2, 3 and 4 workers? (0: the main process loads the batch
# itself.) And does a step get shorter with 2 workers when `prefetch_factor` goes from 2 to 8? Choose from 10, 15, 20, 30
# and 40 ms.

# %% experiment
LOAD, STEP = 30, 10  # ms
prediction = {"0 workers": ..., "1": ..., "2": ..., "3": ..., "4": ..., "2, prefetch_factor=8": ...}


# %% experiment
def loader_times(loads, step, workers, prefetch=2):
    """DataLoader in arithmetic: for each batch (worker, begun, made, taken), in ms; its step begins when it is taken.

    Worker i makes batches i, i + workers, …, which are taken in order. Batch b is ordered when batch
    b − workers · prefetch is taken.
    """
    free, batches, now = [0.0] * max(1, workers), [], 0.0
    for b, load in enumerate(loads):
        if workers:
            ordered = batches[b - workers * prefetch][3] if b >= workers * prefetch else 0.0
            begun = max(free[b % workers], ordered)
            made = free[b % workers] = begun + load
        else:
            begun, made = now, now + load
        taken = max(now, made)
        batches.append((b % max(1, workers), begun, made, taken))
        now = taken + step
    return batches


def mean_step(loads, step, workers, prefetch=2):
    """ms a step, from the first step on, over whole rounds of the workers."""
    taken = [t for *_, t in loader_times(loads, step, workers, prefetch)]
    return (taken[-1] - taken[0]) / (len(taken) - 1)


MANY = 601
by_workers = {w: mean_step([LOAD] * MANY, STEP, w) for w in range(5)}
more_ahead = mean_step([LOAD] * MANY, STEP, 2, prefetch=8)
measured = dict(zip(prediction, [round(v) for v in (*by_workers.values(), more_ahead)], strict=True))
lesson.compare_predictions(
    prediction, measured, evidence="arithmetic", what="ms a step", choices=(10, 15, 20, 30, 40)
)

# %% experiment tags=["nbval-ignore-output"]
import time


def real_step(workers, made=samples.Paced, steps=18, **more):
    """The same with real worker processes; the step is a sleep. ms a step, and the pauses in between."""
    options = {"num_workers": workers, "timeout": 60, "multiprocessing_context": FORK} if workers else {}
    batches = iter(DataLoader(made(steps + 1, LOAD / 1e3), batch_size=1, **options, **more))
    next(batches)
    began = time.perf_counter()
    for _ in range(steps):
        time.sleep(STEP / 1e3)
        next(batches)
    return (time.perf_counter() - began) * 1e3 / steps


real = {w: real_step(w) for w in by_workers}
lesson.table(
    [(w, f"{by_workers[w]:.0f} ms", f"≈ {real[w]:.1f} ms") for w in real],
    ["workers", "model", "real DataLoader"],
    evidence="live (CPU)",
    caption=f"a batch waits {LOAD} ms, a step sleeps {STEP} ms; a busy machine adds a few ms",
)


# %% experiment tags=["fold"]
@drawn
def lanes(workers, load, step, until=150, evidence="arithmetic"):
    title = f"Batches of {load} ms, steps of {step} ms: what waits for what"
    fig, _ = style.figure(
        3.6,
        evidence=evidence,
        title=title,
        note="the number is the batch; white between steps: the model waits",
    )
    for ax, w in zip(
        fig.subplots(len(workers), 1, sharex=True, height_ratios=[w + 1 for w in workers]),
        workers,
        strict=True,
    ):
        for b, (lane, begun, made, taken) in enumerate(loader_times([load] * 60, step, w)):
            colour = style.SERIES[b % 6]
            for row, left, width in ((lane + 1, begun, made - begun), (0, taken, step)):
                if left < until:
                    ax.barh(
                        -row,
                        width,
                        left=left,
                        height=0.72,
                        color=colour,
                        alpha=0.85 if row == 0 else 0.4,
                        edgecolor="white",
                    )
                    if left + width / 2 < until:
                        ax.text(
                            left + width / 2,
                            -row,
                            str(b),
                            ha="center",
                            va="center",
                            fontsize=8,
                            color="white" if row == 0 else style.INK,
                        )
        ax.set_yticks(range(0, -w - 1, -1), ["model", *(f"worker {i}" for i in range(w))])
        ax.set(xlim=(0, until))
        ax.grid(False)
    ax.set_xlabel("ms")
    return Picture(fig, evidence, f"{title}, with {', '.join(map(str, workers))} workers")


lanes((1, 2, 3), LOAD, STEP)

# %% [markdown]
# A worker delivers a batch each 30 ms, W of them one each 30 ÷ W; the model takes one each 10. The slower side sets the
# pace: **a step takes max(step, load ÷ W), so W = ⌈load ÷ step⌉ is enough, and more is only memory.** A queue evens out;
# it does not make anything faster, so prefetching deeper changes nothing here. It does when batches take *unequal*
# times, as they are taken in order, and one slow batch stops all that are ready behind it:

# %% experiment
uneven = [144 if b % 8 == 0 else 8 for b in range(MANY)]  # ms, on average 25
ahead = {p: mean_step(uneven, STEP, 3, p) for p in (1, 2, 4, 8)}
lesson.table(
    [(p, 3 * p, f"{v:.1f} ms") for p, v in ahead.items()],
    ["prefetch_factor", "batches ahead", "a step"],
    evidence="arithmetic",
    caption=f"3 workers, steps of {STEP} ms, loads of 8 ms and, one in eight, of 144 ms. The mean asks for ⌈25 ÷ 10⌉ = 3 workers",
)

# %% [markdown]
# Where does the rule stop? At memory: W × prefetch_factor batches lie finished in shared memory (`/dev/shm`; 64 MB in a
# Docker container that was not told otherwise). And where workers do not *wait* but *compute*: W workers on C cores give
# C cores' worth of work. The same 30 ms, now spent in a busy loop, by workers that may use two
# cores (on Linux; elsewhere all of them):

# %% experiment tags=["nbval-ignore-output"]
# elsewhere a process cannot be bound from Python
allowed = sorted(os.sched_getaffinity(0))[:2] if FORK else []
cores = len(allowed) or os.cpu_count()


def bind(worker):
    os.sched_setaffinity(0, allowed)


def paced_by(wait, cpu, step, workers, cores):
    """ms a step: the model below."""
    return max(step, (wait + cpu) / workers, cpu / cores) if workers else step + wait + cpu


def quickest(workers):  # of three: what else runs here only adds time
    bound = {"worker_init_fn": bind} if FORK else {}
    return min(real_step(workers, samples.Busy, 12, **bound) for _ in range(3))


busy = {w: quickest(w) for w in (1, 2, 4)}
lesson.table(
    [
        (w, f"{paced_by(0, LOAD, STEP, w, cores):.0f} ms", f"≈ {t:.1f} ms", f"≈ {real[w]:.1f} ms")
        for w, t in busy.items()
    ],
    ["workers", "model", f"real: {LOAD} ms of a core", f"real: {LOAD} ms of waiting"],
    evidence="live (CPU)",
    caption=f"workers on {cores} core(s), which they share with whatever else runs here; the quickest of three runs",
)

# %% [markdown]
# Workers beyond the cores bring nothing: a batch that costs `cpu` ms of a core cannot come faster than one each
# cpu ÷ C. So, for W ≥ 1:
#
# > time of a step = max( step, (wait + cpu) ÷ W, cpu ÷ cores )


# %% experiment tags=["nbval-ignore-output", "fold"]
@drawn
def curves(cases, measured, evidence="live (CPU)"):
    title = "Time of a step against the number of workers"
    fig, _ = style.figure(
        3.2,
        evidence=evidence,
        title=title,
        note="lines, and filled marks at 0: the model, arithmetic; only the open marks are measured, on the real DataLoader",
    )
    ax = fig.subplots()
    for i, (name, (wait, cpu, step, cores)) in enumerate(cases.items()):
        times = [paced_by(wait, cpu, step, w, cores) for w in range(9)]
        look = {"color": style.SERIES[i], "linewidth": (6, 2.5, 2)[i], "alpha": (0.45, 1, 1)[i]}
        ax.plot(range(1, 9), times[1:], label=name, **look)
        ax.plot([-0.12 + 0.12 * i], times[:1], style.MARKERS[i], color=style.SERIES[i], markersize=7)
    for i, (name, points) in enumerate(measured.items()):
        ax.plot(
            list(points),
            list(points.values()),
            style.MARKERS[i],
            color=style.BLACK,
            markersize=9,
            fillstyle="none",
            label=f"measured: {name}",
        )
    ax.axvline(0.5, color=style.INK, linewidth=0.8, linestyle=":")
    ax.set(xlabel="num_workers", ylabel="ms a step", ylim=(0, None))
    ax.legend(loc="upper right")
    return Picture(
        fig, evidence, f"{title}: it falls as 1 ÷ workers to the model's step or to the cores' limit"
    )


curves(
    {
        f"{LOAD} ms of waiting, step {STEP} ms": (LOAD, 0, STEP, cores),
        f"{LOAD} ms of a core (of {cores}), step {STEP} ms": (0, LOAD, STEP, cores),
        f"40 ms of waiting, 20 ms of a core (of {cores}), step 4 ms": (40, 20, 4, cores),
    },
    {"waiting": real, "computing": busy},
)

# %% [markdown]
# The two parts of *your* loading, `wait` and `cpu`, come from two clocks around it, in the main process:


# %% experiment tags=["nbval-ignore-output"]
def stages(make, repeats=5):
    """Seconds that one call of make waits, and computes: put one batch of your own data set here."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        make()
    cpu = time.process_time() - cpu
    return max(0.0, time.perf_counter() - wall - cpu) / repeats, cpu / repeats


parts = {
    "64 JPEG images": stages(lambda: [samples.decode_image(p) for p in paths[:64]]),
    "a sample of Paced": stages(lambda: samples.Paced(1, LOAD / 1e3)[0]),
    "a sample of Busy": stages(lambda: samples.Busy(1, LOAD / 1e3)[0]),
}
lesson.table(
    [(name, *(f"≈ {format_seconds(t)}" for t in both)) for name, both in parts.items()],
    ["one load", "wait", "cpu"],
    evidence="live (CPU)",
    caption="the images lie in the operating system's cache; what waits there is other processes on your cores",
)

# %% [markdown]
# **Exercise 4.4 — choose the workers** (★★, 8 min)
#
# From stage times that you have measured (time one batch in the main process; its CPU part is
# `time.process_time()`), the number of workers, and what then sets the pace.
#
# <details><summary>Hint 1</summary>First the step time as a function of W; W = 0 has a formula of its own. How many W
# are allowed at all?</details>
#
# <details><summary>Hint 2</summary>The smallest W with the smallest step time: Python's <code>min</code> over a range
# takes the first.</details>
#
# <details><summary>The idea</summary><code>most = shared_bytes // (prefetch · batch_bytes)</code>;
# <code>best = min(range(most + 1), key=step_time)</code>, where nothing beyond ⌈(wait + cpu) ÷ step⌉ need be looked
# at. Then compare the step time with step, and with cpu ÷ cores.</details>


# %% exercise="choose_workers"
def choose_workers(
    wait_us: int,
    cpu_us: int,
    step_us: int,
    cores: int,
    batch_bytes: int,
    shared_bytes: int,
    prefetch: int = 2,
) -> dict[str, Any]:
    """The number of DataLoader workers for given stage times, by the model above.

    wait_us, cpu_us: µs that a worker waits and computes for one batch, ≥ 0. step_us: µs of a training step, ≥ 1, which
    takes none of the `cores` ≥ 1 from the workers. batch_bytes ≥ 1: W · prefetch batches must fit into shared_bytes.
    (No test depends on how a float is rounded in ⌈load ÷ (cpu ÷ cores)⌉.)

    Returns {"workers": W, "step_us": t, "limit": l}. W: the smallest number with the shortest step, among those that
    fit (0 always does: it takes step + wait + cpu). t: that step's µs (a float or an int). l: what keeps t from being
    shorter: "model" if t is step_us; else "cores" if more workers would not help, as t is cpu_us ÷ cores; else "memory".
    """
    ### BEGIN SOLUTION

    def step_time(workers: int) -> float:
        if workers == 0:
            return step_us + wait_us + cpu_us
        return max(step_us, (wait_us + cpu_us) / workers, cpu_us / cores)

    fit = shared_bytes // (prefetch * batch_bytes)
    useful = math.ceil((wait_us + cpu_us) / step_us)
    workers = min(range(min(fit, useful) + 1), key=step_time)
    t = step_time(workers)
    limit = "model" if t == step_us else "cores" if workers and t == cpu_us / cores else "memory"
    return {"workers": workers, "step_us": t, "limit": limit}
    ### END SOLUTION


# %% test="choose_workers" points=1
from helpers.exercises.data_loading import Stages, check_choose_workers

check_choose_workers(
    Stages((30_000, 0, 10_000, 2, 1, 100), 3, 10_000, "model", "only waiting: ⌈30 ÷ 10⌉"),
    Stages((31_000, 0, 10_000, 2, 1, 100), 4, 10_000, "model", "31 ÷ 10: three workers are just too few"),
    Stages((0, 30_000, 10_000, 2, 1, 100), 2, 15_000, "cores", "only computing, 2 cores: a batch each 15 ms"),
    Stages((30_000, 0, 10_000, 8, 10, 45), 2, 15_000, "memory", "two workers' batches fit: 2 · 2 · 10 ≤ 45"),
    Stages((30_000, 9_000, 10_000, 8, 100, 45), 0, 49_000, "memory", "none fits: the main process loads"),
    Stages((0, 0, 500, 4, 1, 100), 0, 500, "model", "nothing to load: no worker is needed"),
)

# %% hidden="choose_workers" points=3
### BEGIN HIDDEN TESTS
from fractions import Fraction

from helpers.exercises.data_loading import Stages, check_choose_workers, random_stages


def searched(wait_us, cpu_us, step_us, cores, batch_bytes, shared_bytes, prefetch=2):
    best = Fraction(step_us + wait_us + cpu_us), 0
    for w in range(1, min(shared_bytes // (prefetch * batch_bytes), (wait_us + cpu_us) // step_us + 1) + 1):
        best = min(best, (max(Fraction(step_us), Fraction(wait_us + cpu_us, w), Fraction(cpu_us, cores)), w))
    t, workers = best
    limit = "model" if t == step_us else "cores" if workers and t == Fraction(cpu_us, cores) else "memory"
    return workers, float(t), limit


edges = [
    (3, 0, 1, 1, 1, 6),  # three fit exactly
    (0, 300, 10, 2, 1, 4),  # two fit, and the cores keep no more of them busy
    (0, 49, 7, 7, 5, 10_000),  # the model and the cores set the same pace
    (100, 49, 6, 7, 5, 10_000),
    (1, 2, 700, 1, 5, 10_000),
    (10, 0, 3, 1, 5, 29),
    (10, 0, 3, 1, 5, 29, 1),
]
cases = [*random_stages(4, 70), *edges]
check_choose_workers(*(Stages(inputs, *searched(*inputs)) for inputs in cases))
### END HIDDEN TESTS

# %% [markdown]
# ## On the real GPU
#
# The table of section 2, from a GPU where there is one; else a recording; else one line says so. What to look
# for on yours: is the pinned copy near your bus's bandwidth? Is uint8, made float32 on the card, ready in less than
# half the time of float32?

# %% experiment
here = recordings.show("04/to_the_device", simulated="H100")
sent_table(here) if not here.evidence.startswith("simulated") else print(
    "no GPU here and no recording: section 2's table (simulated) is all there is"
)

# %% [markdown]
# ## Sources on trial
#
# Two of the claims come as one listing (five strategies, 5.2): `ImageFolder(root, transform=…, num_workers=16,
# pin_memory=True, persistent_workers=True)`, and a `DataLoader(dataset, batch_size=256, shuffle=True,
# prefetch_factor=4)` over it. torchvision is not part of this course: the first meets its [documented
# signature](https://pytorch.org/vision/stable/generated/torchvision.datasets.ImageFolder.html), the second the real class.

# %% experiment tags=["fold"]
import inspect


def image_folder(
    root, transform=None, target_transform=None, loader=None, is_valid_file=None, allow_empty=False
):
    """torchvision.datasets.ImageFolder's parameters, as its documentation has them."""


def raised(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).split('.')[0]}"
    return ""


listing = {
    "ImageFolder(…, num_workers=16, …)": raised(
        lambda: inspect.signature(image_folder).bind(
            "data", transform=None, num_workers=16, pin_memory=True, persistent_workers=True
        )
    ),
    "DataLoader(…, prefetch_factor=4)": raised(
        lambda: DataLoader(samples.Paced(512), batch_size=256, shuffle=True, prefetch_factor=4)
    ),
    "the three in DataLoader": raised(
        lambda: DataLoader(
            samples.Paced(512), batch_size=256, num_workers=16, persistent_workers=True, prefetch_factor=4
        )
    ),
}
lesson.table(
    [(call, error or "accepted") for call, error in listing.items()],
    ["call", "result"],
    evidence="live (CPU)",
    caption="the first against the documented signature",
).show()

stages = [(load, step) for load in (2.5, 5, 10, 20, 40, 80, 160) for step in (5, 10, 20, 40, 80)]
need = [math.ceil(load / step) for load, step in stages]
right, few, many = (sum(f(n) for n in need) for f in (lambda n: n == 4, lambda n: n > 4, lambda n: n < 4))
in_flight = 16 * 4 * 256 * 3 * 224 * 224
scattered, blocks = one_by_one["hard disk"], in_blocks["hard disk"]
big = [d for d, (requests, bandwidth) in DEVICES.items() if bandwidth / requests < BYTES]
sections = ("1 · How many reads is an epoch?", "2 · What is a batch made of, and when?")
sections += ("3 · What does a worker get?", "4 · How many workers?", "Sources on trial")
rows = [
    (
        "04-four-per-gpu",
        "five-strategies",
        "`num_workers = 4 × GPUs`",
        f"load ÷ step needs 4 workers in {right} of {len(need)} pairs of stage times, fewer in {many}, more in {few}; "
        f"loads of {LOAD} ms, steps of {STEP}: {by_workers[3]:.0f} ms a step with 3 workers, {by_workers[4]:.0f} with 4 (the real "
        "loader's times: table in section 4)",
        "refuted: it is ⌈load ÷ step⌉ for each GPU, up to cores and memory"
        if right < len(need) / 2
        else "confirmed",
        sections[3],
    ),
    (
        "04-imagefolder",
        "five-strategies",
        "`ImageFolder(…, num_workers=16, pin_memory=True, persistent_workers=True)`, then `DataLoader(…, prefetch_factor=4)`",
        "; ".join(f"{call}: {error or 'accepted'}" for call, error in listing.items())
        + f". Its workers would hold {in_flight / 1e9:.1f} GB of uint8 images in shared memory, {4 * in_flight / 1e9:.1f} GB of float32",
        "refuted: both calls raise; all of them are DataLoader's options"
        if all(list(listing.values())[:2])
        else "confirmed",
        sections[4],
    ),
    (
        "04-mmap",
        "five-strategies",
        "read large files through a memory map",
        f"one document: {rounded(in_memory)} files held with fromfile, {rounded(mapped)} with a map; pickled, the map is {rounded(pickled_map)} files",
        "holds when each process opens its own map; sent to a worker, a map is the whole file"
        if rounded(mapped) < rounded(in_memory)
        else "refuted",
        sections[0],
    ),
    (
        "04-prefetch",
        "five-strategies",
        "`prefetch_factor` controls how many batches are loaded ahead",
        f"{before_first} batches ordered with 3 workers and factor 2; a step with 2 workers: {by_workers[2]:.0f} ms with 2, "
        f"{more_ahead:.0f} ms with 8; with uneven loads {ahead[1]:.1f} ms with 1, {ahead[8]:.1f} ms with 8",
        "confirmed, for each worker; it helps where load times are uneven"
        if before_first == 6
        else "refuted",
        f"{sections[2]} and {sections[3]}",
    ),
    (
        "04-shared-memory",
        "five-strategies",
        "share data between processes through shared memory",
        f"a batch from a worker is in shared memory: {in_shared}",
        "confirmed: and DataLoader does it by itself" if in_shared == "yes" else "refuted",
        sections[2],
    ),
    (
        "04-iops",
        "book-notes",
        "random reads are measured in IOPS, sequential ones in MB/s",
        f"an epoch of 110 kB images in random order, on a hard disk: {scattered:,.0f} min one by one, {blocks:,.0f} min in "
        f"blocks; on {' and '.join(big)} bandwidth is the limit in either order",
        "holds when a read is smaller than bandwidth ÷ IOPS" if big and scattered > blocks else "confirmed",
        sections[0],
    ),
]
lesson.verdicts(rows, evidence="live (CPU) · arithmetic")

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Pack samples, read in blocks, shuffle in memory. | Where bandwidth ÷ IOPS is below a sample: order is free. |
# | Map large files; open the map in the process that reads. | Network file systems; data that fits into memory. |
# | Do once what is the same each epoch. | Decoded data may be too large to read in time. |
# | uint8 to the GPU, convert there. | Values that are not bytes to begin with. |
# | Allocate the batch once, copy samples into it. | Samples of one size: the default does it. |
# | An iterable data set shares itself out. | Data sets with an index: the sampler does it. |
# | Workers = ⌈load ÷ step⌉. | Loading that computes: cores. W × prefetch batches: memory. |
# | Prefetch deeper when load times are uneven. | Even times: only memory. |
#
# **Checklist for your own code**
# - [ ] Replace the loader by one fixed batch: does the step get shorter? By so much it waits for data.
# - [ ] How large is a read? Above or below your disk's bandwidth ÷ IOPS?
# - [ ] `len(pickle.dumps(dataset))`: what does each worker get?
# - [ ] Which dtype crosses the bus?
# - [ ] Load and step measured, workers worked out, NumPy's threads at 1?
#
# **Read on**: PyTorch's documentation of `torch.utils.data` (*Multi-process data loading*, *Platform-specific
# behaviors*) and its source, `torch/utils/data/dataloader.py`, whose long comment explains how workers end; Python's
# `multiprocessing`, *Contexts and start methods*; A. Aizman and others, *High performance I/O for large scale deep
# learning* (2019; WebDataset); G. Leclerc and others, *FFCV: accelerating training by removing data bottlenecks* (2023).
