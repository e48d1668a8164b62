# %% [markdown]
# # 04 · Data loading
#
# ## Is the model waiting for data?
#
# If the next batch comes late, even the fastest GPU waits: its trace has gaps (lesson 03). Three reasons are common. Too
# few workers make the batches, each batch carries more bytes than it must, or the disk is asked for many small pieces. For
# each of the three you can work out a number in advance.
#
# **Time** 60 min, 26 of them for two exercises; *Further*: 40 min, with two more exercises. **Before this** lessons 00
# and 01 (clocks and ≈; storages and copies). Lesson 03 helps.
#
# **Afterwards you can**
# - tell whether your model waits for data, and work out how many workers it needs;
# - say what each worker gets, and share samples out without losing or repeating one;
# - send a quarter of the bytes to the GPU, and store data so that a shuffled epoch needs few, large reads.

# %% setup
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from helpers import lesson, samples
from helpers.lessons.data_loading import experiments
from helpers.lessons.data_loading.experiments import WORKERS

torch.set_num_threads(1)  # workers are processes of their own: more threads would be in their way
lesson.start(
    "04_data_loading",
    evidence=["live (CPU)", "arithmetic", "simulated (H100)", "recorded (H100)", "published"],
)

# %% [markdown]
# ## 1 · Does the model wait?
#
# [`DataLoader(dataset, num_workers=W)`](https://docs.pytorch.org/docs/stable/data.html) starts W processes, the
# **workers**. The workers make batches while the model trains on earlier ones. With `num_workers=0` there is no such
# process: the training loop itself makes each batch, and then trains on it.
#
# To make a batch takes a worker 30 ms, nearly all of it waiting for a disk. This time is called the **load**. A training
# step takes 10 ms. How many ms is it, on average, from one step to the next?

# %% experiment
you = lesson.predict(
    {"num_workers=0": ..., "num_workers=1": ..., "num_workers=2": ..., "num_workers=4": ...},
    choices=[8, 10, 15, 30, 40],
)

# %% experiment tags=["nbval-ignore-output"]
LOAD, STEP = 30, 10  # ms
model = {w: experiments.mean_step([LOAD] * 601, STEP, workers=w) for w in range(5)}
real = experiments.real_steps(LOAD, STEP, workers=model)
you.against(
    {f"num_workers={w}": round(ms) for w, ms in model.items()},
    experiments.queue_picture(LOAD, STEP),
    experiments.steps_table(
        model, real, "the load is a sleep of 30 ms, the step one of 10 ms; the median of three runs"
    ),
    evidence="arithmetic",
    what="ms a step",
)

# %% [markdown]
# Without workers nothing overlaps: a step takes step + load. (A step that only launches work on a GPU is different: see
# lesson 03.) One worker delivers a batch every 30 ms. W workers deliver one every 30 ÷ W ms. The model could take one
# every 10 ms. The slower side sets the pace:
#
# > time of a step = max( step, load ÷ W )
#
# Real times are not exactly the rule's: a sleep ends late, and a batch must pass from one process to another. Such a run
# cannot tell 3 workers from 4.
#
# So, if all loads are alike, **W = ⌈load ÷ step⌉ workers are enough** (⌈ ⌉ rounds up). More only hold more memory: each one
# keeps `prefetch_factor` batches (2 by default) ready in **shared memory**, which several processes can use. The batch
# that your loop holds lies there too. With too little of it you get `unable to allocate shared memory(shm)`; with a
# `collate_fn` of your own the loop may wait for ever. A Docker container has only 64 MB (`/dev/shm`), unless it starts
# with a larger [`--shm-size`](https://docs.docker.com/reference/cli/docker/container/run/).
#
# This rule is for workers that *wait*. Decoding an image is different: the worker *computes*, and needs a core all the
# time. The same 30 ms, now spent in a busy loop by workers that have one core together. How many ms is a step now?

# %% experiment
you = lesson.predict(
    {"2 workers that compute": ..., "4 workers that compute": ...},
    choices=[8, 10, 15, 30],
)

# %% experiment tags=["nbval-ignore-output"]
model = {w: experiments.rule(wait=0, cpu=LOAD, step=STEP, workers=w, cores=1) for w in (1, 2, 4)}
real = experiments.real_steps(LOAD, STEP, workers=model, cores=1)
caption = "each batch takes 30 ms of a core; the quickest of three runs; last column: 30 ms ÷ the real step"
you.against(
    {f"{w} workers that compute": round(ms) for w, ms in model.items()},
    experiments.steps_table(model, real, caption, cpu=LOAD),
    evidence="arithmetic",
    what="ms a step",
)

# %% [markdown]
# One core does one core's work, for however many workers. On several cores a batch that needs `cpu` ms of a core cannot
# come more often than every cpu ÷ cores ms. For one worker or more:
#
# > time of a step = max( step, (wait + cpu) ÷ W, cpu ÷ cores )
#
# Is a number in the last column clearly below 1? Then other programs (a little also the passing of batches) had the rest
# of the core, and this number is the `cores` that the rule needs. So count only free cores. (Linux lets us tie the
# workers to one core. Elsewhere they use all.)

# %% [markdown]
# **Exercise 4.1 — choose the workers** (★★, 12 min)
#
# From stage times that somebody has measured, work out the number of workers, and what sets the pace then. "Your own
# script", below, shows how to measure the times.
#
# <details><summary>Hint 1</summary>First write the step time as a function of W. W = 0 has a formula of its own. How
# many W does the memory allow?</details>
#
# <details><summary>Hint 2</summary>You want the smallest W among those with the shortest step. Python's
# <code>min(range(…), key=…)</code> returns the first of several equal ones.</details>
#
# <details><summary>The idea</summary>Try every W that fits, from 0 up to ⌈(wait + cpu) ÷ step⌉: more never help. Keep the
# first with the shortest step. Then compare that step with step_us, and with cpu_us ÷ cores.</details>


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
    ends with a wait for the GPU and takes none of the `cores` ≥ 1 from the workers. batch_bytes, prefetch ≥ 1:
    W · prefetch batches must fit into shared_bytes ≥ 0 (without the one that the loop holds). No test depends
    on how a float is rounded.

    Returns {"workers": W, "step_us": t, "limit": l}. W: the smallest number with the shortest step, among those that
    fit (0 always does: it takes step + wait + cpu). t: that step's µs (float or int). l: the first that is true:
        "model": t is step_us.
        "cores": W ≥ 1, and t is cpu_us ÷ cores.
        "memory": more workers would help, but do not fit.
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
from helpers.lessons.data_loading.exercises import Stages, check_choose_workers

# wait_us, cpu_us, step_us, cores, batch_bytes, shared_bytes → workers, step_us, limit; and why
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

from helpers.lessons.data_loading.exercises import Stages, check_choose_workers, random_stages


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
# ## 2 · What does a worker get?
#
# Each worker is a process with its own copy of the data set. A data set with an index (`dataset[i]`) is shared out by
# the **sampler**, which stays in the main process and sends indices to the workers. An
# [`IterableDataset`](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset) has no index: one
# can only go through it from its beginning.
#
# Four questions about real workers on this machine. In the second, a training loop has just begun, and `prefetch_factor`
# is 2. A batch is **requested** when its indices have been sent to a worker. (`WORKERS` holds a time limit, and on Linux
# the start by *fork*: see below.)

# %% experiment
you = lesson.predict(
    {
        "3 workers: samples in an epoch over 10, iterable": ...,
        "3 workers: batches requested before the loop has one": ...,
        "2 workers: processes started in 3 epochs": ...,
        "the same with persistent_workers=True": ...,
    },
    choices={
        "3 workers: samples in an epoch over 10, iterable": [4, 10, 30],
        "3 workers: batches requested before the loop has one": [0, 1, 3, 6],
        "2 workers: processes started in 3 epochs": [2, 3, 6],
        "the same with persistent_workers=True": [2, 3, 6],
    },
)

# %% experiment
iterable = DataLoader(samples.Counting(10), batch_size=None, num_workers=3, **WORKERS)
yielded = len(list(iterable))
indexed = experiments.hand_out(workers=3)


def processes(**options):
    loader = DataLoader(samples.Paced(6), num_workers=2, **WORKERS, **options)
    return len({int(sample[0, 1]) for epoch in range(3) for sample in loader})  # [0, 1]: its process


afresh, kept = processes(), processes(persistent_workers=True)
lesson.keep(yielded=yielded, requested=indexed.requested, afresh=afresh, kept=kept)
counted = dict(zip(you, (yielded, indexed.requested, afresh, kept), strict=True))
you.against(counted, experiments.hand_out_table(indexed), evidence="live (CPU)", what="on this machine")

# %% [markdown]
# | what you saw | why | what to do |
# |---|---|---|
# | {{yielded}} samples of 10 | each worker goes through its own whole copy, often without a warning | let the data set share itself out: Exercise 4.2 |
# | {{requested}} batches requested | 3 workers × `prefetch_factor` 2 | count them as shared memory |
# | {{afresh}} processes in 3 epochs, or {{kept}} | by default the workers end with each epoch; new ones start, and open again what a worker opens | `persistent_workers=True`; but then `set_epoch` of Exercise 4.2, called in the main process, does not reach the workers' copies: every epoch repeats the first |
#
# **How workers start** decides what you may hand them. Linux up to Python 3.13 *forks*: the worker begins as a copy of
# your process, with everything in it. On macOS and Windows the worker is a new Python. On Linux from Python 3.14 on it is
# forked from a clean helper process
# ([start methods](https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods)). In these two cases
# the data set is **pickled**: made into bytes, and into an object again. The worker *imports* your classes, so
# they must stand in a file, and your script needs `if __name__ == "__main__":`. (`Shared`, below, stands in this
# notebook. So only Linux tests it with real workers: it can fork.)

# %% [markdown]
# **Exercise 4.2 — each sample exactly once** (★★, 14 min)
#
# Write an iterable data set that shares itself out over several GPUs (**ranks**: one training process for each GPU)
# *and* over the workers of each. In a worker,
# [`get_worker_info()`](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.get_worker_info) has the
# worker's `id` and `num_workers`. In the main process it returns `None`.
#
# (Here each sample comes once. In data-parallel training (lesson 14) all ranks must also make equally many steps, or one
# waits for the others in vain: repeat or drop a few samples, as
# [`DistributedSampler`](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler) does.)
#
# <details><summary>Hint 1</summary>Number all the workers of all ranks from 0 to world × workers − 1. Which samples
# belong to number k?</details>
#
# <details><summary>Hint 2</summary>All processes must shuffle alike, but workers have different seeds. So do not use the
# global generator. Make a generator from <code>seed</code> and <code>epoch</code> inside
# <code>__iter__</code>.</details>
#
# <details><summary>The idea</summary>One permutation of all indices, the same in each process. Process number k takes
# every (world × workers)-th index, beginning at place k. Such shares differ in length by at most 1.</details>


# %% exercise="shared"
class Shared(IterableDataset):
    """The samples of a source, shared out over all workers of all ranks; another order in each epoch.

    source: has a length and indices; source[i] is sample i, and costs a read.
    rank, world: which of how many training processes this is. Each has its own loader, all with equally many workers
        (num_workers=0: the rank's main process iterates).
    seed: the same everywhere.

    set_epoch(e): sets the epoch, 0 at first. Iterating yields this process's share of the samples. All shares together
    hold each sample once, also with as many workers as samples, or more. The order depends on seed and epoch
    alone: iterated again, or by two iterators at once, it is the same; in another epoch it is another (tested from 13
    samples on). All samples are shuffled, and then shared out: a share is not a run of neighbours, and holds other
    samples in another epoch. The training finds the global generators (torch, random, NumPy) as it left them, also
    between samples: its random numbers come from them.

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
from helpers.lessons.data_loading.exercises import Epochs, check_Shared

check_Shared(
    Epochs(10, world=1, workers=0),
    Epochs(10, world=1, workers=3, epochs=[0, 0]),
    Epochs(25, world=2, workers=2, epochs=[0, 1, 0]),
    Epochs(4, world=2, workers=2),
    Epochs(14, world=1, workers=2, epochs=[1], real=True),
)

# %% hidden="shared" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.data_loading.exercises import Epochs, check_Shared

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
from helpers.lessons.data_loading.exercises import Epochs, check_Shared

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
# ## 3 · What crosses the bus?
#
# The **bus** (PCIe) connects the CPU's memory and the GPU. A batch of 256 images, 3 × 224 × 224 values each, is sent
# over it. The network wants float32, four bytes a value. A decoded image has one byte a value (uint8). There are two
# ways. Make the float32 on the CPU and send it. Or send the uint8, and make it float32 on the GPU with two kernels. One
# converts: for each value it reads 1 byte and writes 4. One divides by 255: it reads 4 and writes 4. Together they move
# {{kernels_mb:,.0f}} MB in the GPU's own memory, at {{inside_gbs:,.0f}} GB/s here.
#
# There are also two kinds of host memory. **Pageable** memory is what you normally get. The driver first copies it
# into a buffer of its own. **Pinned** memory stays where it is: the operating system may not move it, so the GPU's
# copy engine reads it directly. `DataLoader(pin_memory=True)` copies each batch into pinned memory, in a thread of
# the main process if there are workers. This copy is still work for the CPU. On the simulated H100 the bus carries
# {{pinned_gbs:.0f}} GB/s from pinned memory (of the {{sheet_gbs:.0f}} that PCIe 5.0 ×16 has in one direction) and
# {{pageable_gbs:.1f}} GB/s from pageable memory.
#
# With uint8 a quarter of the bytes crosses the bus. By what factor does uint8 shorten the time until the float32 batch is
# ready on the GPU?

# %% experiment
you = lesson.predict({"from pinned memory": ..., "from pageable memory": ...}, choices=[1, 2, 3, 4])

# %% experiment
from helpers import recordings

sent = recordings.show("04/to_the_device", simulated="H100", prefer="simulated")
ready = {(row["dtype"], row["pinned"]): row["ready_s"] for row in sent.table}
ratios = {
    "from pinned memory": ready["float32", True] / ready["uint8", True],
    "from pageable memory": ready["float32", False] / ready["uint8", False],
}
bus = experiments.bus(sent.table, "H100")
lesson.keep(pinned_gbs=bus.pinned, pageable_gbs=bus.pageable, sheet_gbs=bus.sheet)
lesson.keep(kernels_share=bus.kernels, kernels_mb=bus.moved, inside_gbs=bus.inside)
table = experiments.sent_table(sent)
you.against_ratios(ratios, table, evidence=sent.evidence, what="float32 ÷ uint8", shown="{:.1f}")

# %% [markdown]
# The faster the copy, the more the two kernels count. From pinned memory they take {{kernels_share:.0%}} of the time
# until the batch is ready.
#
# So **keep uint8 as long as you can, and convert on the GPU**. Float32 made on the CPU takes four times the room in the
# worker, in shared memory and on the bus. If the CPU has to compute in float anyway, round
# back to uint8 before you send. (A pinned copy can also run *beside* the kernels: that is lesson 05.)
#
# ## 4 · How many reads is an epoch?
#
# A disk has two limits: how many requests it answers in a second (**IOPS**, input/output operations per second), and how
# many bytes it moves in a second (its **bandwidth**). Take 1.28 million images of 110 kB, about the size of
# [ImageNet](https://doi.org/10.1007/s11263-015-0816-y). An epoch visits all of them in random order. Two ways to store
# them:
#
# - **one by one**: each image is one read;
# - **in blocks**: 32 images lie one behind the other. The *blocks* are visited in random order, and each is one read.
#   The images of some blocks are then shuffled in memory, which reads nothing.
#
# A **hard disk** answers 100 requests in a second and moves 150 MB/s. It moves its head for each read, and only then the
# bytes. So the two times *add*. An **NVMe drive** answers 500,000 requests and moves 3.5 GB/s. It works on many requests
# at once, so only the *larger* of the two times counts.

# %% experiment
you = lesson.predict(
    {
        "hard disk, one by one: minutes": ...,
        "hard disk, blocks of 32: minutes": ...,
        "NVMe, one by one: times as long as blocks": ...,
    },
    choices={
        "hard disk, one by one: minutes": [16, 213, 229],
        "hard disk, blocks of 32: minutes": [7, 16, 22],
        "NVMe, one by one: times as long as blocks": [1, 2, 32],
    },
)

# %% experiment
IMAGES, BYTES, BLOCK = experiments.IMAGES, experiments.IMAGE_BYTES, 32


def minutes(reads, disk):
    requests, moving = reads / disk.iops, IMAGES * BYTES / disk.bytes_per_s
    return (requests + moving if disk.seeks else max(requests, moving)) / 60


one_by_one = {name: minutes(IMAGES, disk) for name, disk in experiments.DISKS.items()}
in_blocks = {name: minutes(IMAGES / BLOCK, disk) for name, disk in experiments.DISKS.items()}
times = {
    "hard disk, one by one: minutes": round(one_by_one["hard disk"]),
    "hard disk, blocks of 32: minutes": round(in_blocks["hard disk"]),
    "NVMe, one by one: times as long as blocks": round(one_by_one["NVMe drive"] / in_blocks["NVMe drive"]),
}
you.against(
    times,
    experiments.disks_table(one_by_one, in_blocks, BLOCK),
    evidence="arithmetic",
    what="minutes or times",
)

# %% [markdown]
# Both ways on a small real file, of 256 images:

# %% experiment
files = experiments.ImageFiles(count=256)
experiments.read_order({way: files.epoch(way) for way in ("one by one", "in blocks")})

# %% [markdown]
# **Bandwidth ÷ IOPS is the size of a read at which the two limits meet.** For smaller reads the number of requests is
# the limit. For larger reads it is mostly the bandwidth. On the hard disk that size is far above one image: an epoch in
# random order is almost nothing but moving the head. On the NVMe drive it is below one image, so order costs nothing
# there, *if many reads are under way at once*. One process that waits for each read gets only a small part of the
# drive's IOPS. Several workers get more.
#
# The price of blocks is a weaker shuffle: 32 neighbours are always read together. Formats for large data sets
# ([WebDataset](https://github.com/webdataset/webdataset), [FFCV](https://docs.ffcv.io/making_dataloaders.html), MosaicML
# Streaming, TFRecord) store blocks, and their readers can mix several of them in memory.

# %% [markdown]
# ## The running example
#
# The script cuts each batch out of a list of Python numbers. It sends inputs and targets apart, with 8 bytes for each byte
# of text. Below, the text is one tensor of bytes, one indexing gathers the whole batch, and one copy sends it. The GPU
# makes `int64` of it.

# %% experiment
import random

from helpers import running_example
from helpers.running_example import plain as plain_script


def packed_text():
    return torch.tensor(plain_script.text(), dtype=torch.uint8)


def batches_by_index(tokens, size, steps):
    draw, piece = random.Random(0), torch.arange(size.context + 1)
    for _ in range(steps):
        starts = [draw.randrange(len(tokens) - size.context) for _ in range(size.batch)]
        yield tokens[torch.tensor(starts)[:, None] + piece]


def bytes_to_device(batches, gpu):
    for pieces in batches:
        tokens = pieces.to(gpu.device).long()
        yield tokens[:, :-1], tokens[:, 1:]


# %% experiment
before = running_example.after("03")
faster = before.replace(text=packed_text, batches=batches_by_index, to_device=bytes_to_device)
board = running_example.compare(before, faster)
lesson.keep(script_bytes=board.before.copied_bytes, script_bytes_now=board.after.copied_bytes)
board

# %% [markdown]
# A step copies {{script_bytes_now:,.0f}} bytes to the GPU in place of {{script_bytes:,.0f}}, in one copy and not in two, and
# waits one time fewer. The time of a step hardly moves. A batch of text is tiny. The same change
# pays for images, where a batch is megabytes.

# %% [markdown]
# ## Your own script
#
# The block times your loop with your loader, and your loop with one fixed batch. The difference is what the loader costs a
# step. If there is none, leave the loader alone.
#
# If there is one, run the block again with `num_workers=0` and `torch.set_num_threads(1)`, as a worker has one thread. Now
# the first numbers of the two lines differ by the whole load, `wait + cpu`, and the second numbers by `cpu`. Put both, in
# µs, into `choose_workers` above. The rest it needs: the free ones of your cores (a container's quota may be less); the
# `nbytes` of a batch's tensors; the bytes that `df -B1 /dev/shm` calls available, less one batch. Try workers first, then
# uint8, then larger reads.
#
# `step` should end with something that waits for the GPU, such as `loss.item()`.

# %% experiment
from helpers.own_script import toy

model, optimizer, loss_fn, loader, device, step = toy()  # at home: your own

import itertools
import time

ahead = loader.num_workers * (loader.prefetch_factor or 0)  # batches that wait in the queue
fixed = next(iter(loader))
for name, batches in {"your loader": iter(loader), "one fixed batch": itertools.repeat(fixed)}.items():
    for batch in itertools.islice(batches, 1 + ahead):
        step(batch)  # workers start, kernels are loaded, the queue is emptied
    wall, cpu, n = time.perf_counter(), time.process_time(), 0
    for batch in itertools.islice(batches, 20):
        step(batch)
        n += 1
    assert n, f"no batch is left to time: the loader must have more than {1 + ahead}"
    wall, cpu = (time.perf_counter() - wall) / n, (time.process_time() - cpu) / n
    print(f"{name}: ≈ {1e3 * wall:.1f} ms a step, ≈ {1e3 * cpu:.1f} ms of it computing")

# %% [markdown]
# The toy has no workers: the process that trains also loads. So on a quiet machine the two numbers of a line are nearly
# the same.
#
# ## On the real GPU
#
# The table of section 3 again, simulated and recorded on a real H100 (and live, if you have a GPU). How near are the
# simulator's two rates?

# %% experiment
runs = recordings.side_by_side("04/to_the_device")
n = experiments.on_the_card(*runs[:2])
lesson.keep(real_pinned=n["real_pinned"], real_large=n["real_large"], real_small=n["real_small"])
lesson.keep(pinned_gain=n["pinned_gain"], real_pinned_gain=n["real_pinned_gain"])
lesson.keep(real_pageable_gain=n["real_pageable_gain"])
lesson.keep(kernels_us=n["kernels_us"], real_kernels_us=n["real_kernels_us"])
experiments.sent_table(*runs)

# %% [markdown]
# - From **pinned** memory: {{real_pinned:.0f}} GB/s recorded, {{pinned_gbs:.0f}} simulated. Uint8 is ready
#   {{real_pinned_gain:.1f}} times as early as float32 (simulated {{pinned_gain:.1f}}): the two kernels (ready less copy)
#   take about {{real_kernels_us:.0f}} µs, simulated {{kernels_us:.0f}}.
# - From **pageable** memory: {{real_large:.1f}} GB/s for the large batch, {{real_small:.1f}} for the small one, simulated
#   {{pageable_gbs:.1f}} for both. Uint8 is ready {{real_pageable_gain:.1f}} times as early. This rate is the host's: the CPU
#   copies the bytes into the driver's buffer. It also varies: "copy" and "ready" of float32 are the same work, timed twice.

# %% [markdown]
# ## Sources on trial
#
# One claim is a listing in the article "Five strategies for faster training". Its call of
# [`ImageFolder`](https://docs.pytorch.org/vision/stable/generated/torchvision.datasets.ImageFolder.html) is checked
# against the signature in torchvision's documentation. Its call of
# `DataLoader` is run. Five more claims are kept for lesson 18.

# %% experiment
from helpers.lessons.data_loading import claims

lesson.verdicts(
    claims.on_trial(indexed, one_by_one, in_blocks),
    evidence="live (CPU) · arithmetic · published",
    shown=("04-imagefolder",),
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | ⌈load ÷ step⌉ workers are enough. | Loading that computes: the cores are the limit. Workers × prefetch_factor batches: memory is. Uneven loads: batches ahead are (*Further*). |
# | An iterable data set shares itself out. | A data set with an index: the sampler does it. |
# | Send uint8, convert on the GPU. | Values that were not bytes to begin with. |
# | Pack samples, read in blocks, shuffle in memory. | Reads already larger than bandwidth ÷ IOPS (hard disk: several times that). |
#
# **Read on**: PyTorch's [`torch.utils.data`](https://docs.pytorch.org/docs/stable/data.html), the sections on
# multi-process loading and on platforms · A. Aizman and others,
# [*High performance I/O for large scale deep learning*](https://arxiv.org/abs/2001.01858) (WebDataset).

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# Five sections. Take those that you need, in any order.
#
# ### What does a memory map read? (5 min, and an exercise)
#
# A **memory map** makes a file look like an array. Nothing is read when it is opened. The first touch of a page (often
# 4 kB) stops the process until the operating system has fetched the page, and usually its neighbours: a *page fault*.
# NumPy's is [`np.memmap`](https://numpy.org/doc/stable/reference/generated/numpy.memmap.html).
#
# We have a file with the tokens of 2,000 documents and want one document. How much memory do Python and NumPy allocate,
# and what is sent when the array is pickled for a worker?

# %% experiment
you = lesson.predict(
    {
        "np.fromfile: allocated": ...,
        "np.memmap: allocated": ...,
        "np.memmap: pickled": ...,
        "a function that opens the map: pickled": ...,
    },
    choices=["the whole file", "almost nothing"],
)

# %% experiment
import functools
import pickle

file = experiments.TokenFile(documents=2_000)
open_map = functools.partial(np.memmap, file.path, dtype=np.uint16, mode="r")
document = file.ends[6], file.ends[7]
sizes = {
    "np.fromfile": experiments.held(lambda: np.fromfile(file.path, np.uint16), *document),
    "np.memmap": experiments.held(open_map, *document),
    "a function that opens the map": (None, len(pickle.dumps(open_map))),
}
asked = (sizes["np.fromfile"][0], *sizes["np.memmap"], sizes["a function that opens the map"][1])
parts = {question: experiments.in_files(n, file.nbytes) for question, n in zip(you, asked, strict=True)}
you.against(parts, experiments.map_table(file, sizes), evidence="live (CPU)", what="is")

# %% [markdown]
# The map allocates next to nothing: the pages that it reads belong to the operating system, which shares them between
# processes and can drop them. **But pickling the map sends the whole file**, once to each worker. So a data set keeps a
# function that opens the map, and each process opens its own. The same is true of an open file: after a fork, two
# workers share its position, and when both `seek` and then `read`, each may get the other's bytes.
#
# A slice of a map is not read yet. Copy what you return, or the file is read later, where you do not expect it. Documents
# that lie far apart cost at least one page fault each, so neighbours are worth reading together.
#
# Tensors have another way to reach many processes:
# [`torch.multiprocessing`](https://docs.pytorch.org/docs/stable/multiprocessing.html) moves a tensor's storage into shared
# memory and sends only a handle.

# %% [markdown]
# **Exercise 4.3 — documents from a map** (★★, 16 min)
#
# Write a data set over a packed file that reads exactly the bytes that it returns, and that can be sent to a worker for
# the price of its index. If a data set has `__getitems__`, `DataLoader` calls it with the indices of a whole batch. That
# is the place to read neighbours with one slice.
#
# <details><summary>Hint 1</summary>Keep <code>open_map</code> and <code>ends</code>, and a map that is <code>None</code>
# until the first read. The pickle holds what <code>__getstate__</code> returns.</details>
#
# <details><summary>Hint 2</summary>In <code>__getitems__</code>, go through the indices and collect a run for as long as
# the next index is the last one plus 1. A run is one slice of the map. Its documents are slices of that slice, which
# read nothing.</details>
#
# <details><summary>The idea</summary>A run from document a to document b: copy the slice of the map from the start of a
# to the end of b with <code>np.array</code>, wrap it with <code>torch.from_numpy</code>, and <code>split</code> it by
# the documents' lengths. <code>__getitem__</code> is <code>__getitems__</code> of one. <code>__getstate__</code>
# returns a copy of <code>self.__dict__</code> with the map set to None.</details>


# %% exercise="documents"
class Documents(Dataset):
    """The documents of a packed file of tokens, read through a memory map.

    open_map: called without arguments, opens the map. len(map) is the number of tokens; map[a:b] is a NumPy array of
        b − a tokens (uint16). Here the slice itself counts as the read, of 2 · (b − a) bytes, touched or not.
    ends: (n,) int64, not falling: document i is tokens ends[i − 1] (0 for the first) to ends[i], and may be empty.

    len(d) is n. d[i] is document i, a 1-D tensor of dtype uint16 that does not lie in the map (torch.from_numpy makes
    one of a copy); IndexError unless 0 ≤ i < n. d.__getitems__(indices) is the list of these documents, in the order
    of indices (at least one; all valid and different).

    Budgets: every call reads 2 bytes for each token it returns, no more and no less, and keeps none of them. In
    __getitems__, indices that follow one another (7, 8, 9) are read by one slice: at most one read for each such run.
    A data set opens the map once, at its first read; one that comes out of a pickle, at its own. Pickled, before or
    after use: the bytes of ends + 1,000.
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
        documents: list[torch.Tensor] = []
        first = 0  # where in indices the run began
        for k, i in enumerate(indices):
            if not 0 <= i < len(self.ends):
                raise IndexError(f"document {i} of {len(self.ends)}")
            if k + 1 == len(indices) or indices[k + 1] != i + 1:
                run = indices[first : k + 1]
                bounds = [int(self.ends[run[0] - 1]) if run[0] else 0, *(int(self.ends[j]) for j in run)]
                tokens = torch.from_numpy(np.array(self.map[bounds[0] : bounds[-1]]))
                documents += tokens.split([b - a for a, b in zip(bounds, bounds[1:])])
                first = k + 1
        return documents
        ### END SOLUTION

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: the attributes that the data set has in another process."""
        ### BEGIN SOLUTION
        return self.__dict__ | {"map": None}
        ### END SOLUTION


# %% test="documents" points=1
from helpers.lessons.data_loading.exercises import Packed, check_Documents

check_Documents(
    Packed([5, 3, 8, 900], [1, 0, 2]),
    Packed([900, 10, 20, 30, 4, 50], [5, [1, 2, 3], [4, 0, 1, 3], 5]),
    Packed([7] * 300, [299, [17, 18, 250]]),
    outside=[([3, 4], 2), ([3, 4], -1)],
)

# %% hidden="documents" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.data_loading.exercises import check_Documents

check_Documents(
    files=[([7, 0, 300, 1, 2, 90, 0, 41, 3, 12], 0), ([40, 31, 2, 9, 77, 1], 2)],
    outside=[([3, 4], 2), ([3, 4], -1), ([3, 4], 9), ([], 0)],
)
### END HIDDEN TESTS

# %% hidden="documents" points=2
### BEGIN HIDDEN TESTS
from helpers.lessons.data_loading.exercises import Packed, check_Documents

calls = [399, [*range(64, 96), *range(8)], [*range(399, 300, -2)], [12, 13], [12, 13]]
check_Documents(
    Packed([2000, 3, 1, 0, 1, 5, 900], [0, [0, 1, 2, 3], [6, 5, 4], [2, 3, 5, 6, 0], [4], 0, 3]),
    Packed([0, 0, 4, 0, 0], [1, [0, 1], [4, 2, 3], [0, 1, 2, 3, 4]]),
    Packed([1 + 37 * i % 89 for i in range(400)], calls),
    Packed([5, 3, 8, 900], [1, [2, 3], 3], more=2**31 - 6),
)
### END HIDDEN TESTS

# %% [markdown]
# ### What does it cost to put a batch together? (4 min, and an exercise)
#
# `collate_fn` makes a batch of a list of samples. The default stacks tensors of one size: one allocation, in a worker
# straight into shared memory. Documents have different lengths. The usual code pads each one to a tensor of its own,
# then stacks these. Here it is for 64 documents in uint16, which become int64:

# %% experiment
from helpers import count

tokens = torch.from_numpy(np.array(open_map()[: file.ends[63]]))
documents = tokens.split(np.diff(file.ends[:64], prepend=0).tolist())


def usual(documents, multiple=8):
    longest = math.ceil(max(map(len, documents)) / multiple) * multiple
    padded = [torch.nn.functional.pad(d.long(), (0, longest - len(d))) for d in documents]
    return torch.stack(padded), torch.tensor([len(d) for d in documents])


counts = count(usual, documents)
size = sum(tensor.nbytes for tensor in counts.result)
lesson.keep(new_storages=counts.new_storages, times_the_batch=counts.bytes_allocated / size)
print(f"{counts.new_storages} storages, {counts.bytes_allocated:,} bytes; the batch itself has {size:,}")

# %% experiment
lengths = np.diff(file.ends, prepend=0)
as_they_come, by_length = experiments.useful(lengths), experiments.useful(np.sort(lengths))
print(f"tokens in the batches: {as_they_come:.0%}, or {by_length:.0%} if the documents are sorted by length")
lesson.keep(as_they_come=as_they_come, by_length=by_length)

# %% [markdown]
# The first loss: the usual collate makes {{new_storages}} storages, two for each document before it makes the batch, and
# allocates {{times_the_batch:.1f}} times the bytes of the batch. The second loss is larger, and the GPU pays for it: only {{as_they_come:.0%}} of the numbers in all batches are tokens, the
# rest is padding. If the 2,000 documents are sorted by length first, {{by_length:.0%}} are tokens. The batches are then
# visited in random order. The price is a weaker shuffle again: documents of one length always meet.

# %% [markdown]
# **Exercise 4.4 — a batch with one allocation** (★★, 10 min)
#
# Put the batch together without the many small tensors of `usual`.
#
# <details><summary>Hint 1</summary>The size of the batch is known before any document is copied.</details>
#
# <details><summary>Hint 2</summary>A part of a tensor is a view. Writing into the view copies and converts at once,
# whatever the dtype of the source.</details>
#
# <details><summary>The idea</summary>Make the whole batch first, full of <code>pad</code>. Then write each document into
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
from helpers.lessons.data_loading.exercises import check_pad_batch, ragged

check_pad_batch(
    check.case(ragged([3, 5])),
    check.case(ragged([1, 8, 0, 2]), pad=-1, multiple=4),
    check.case(ragged([4000, 10, 2000, 7, 3999, 1, 4001, 800])),
)

# %% hidden="pad_batch" points=1
### BEGIN HIDDEN TESTS
import torch

from helpers import check
from helpers.lessons.data_loading.exercises import check_pad_batch, ragged

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
from helpers.lessons.data_loading.exercises import check_pad_batch, ragged

check_pad_batch(
    check.case(ragged([9_000, 20_000, 3], 7), pad=1),
    check.case(ragged([1_003] * 40, 8), multiple=64),
    check.case(ragged([2_000, 5_000, 100] * 8, 9, torch.int64), multiple=1),
    check.case([d[::2] for d in ragged([8_000, 30_000, 9], 10, torch.int32)]),
)
### END HIDDEN TESTS

# %% [markdown]
# ### Decode once (2 min)
#
# To decode an image gives the same pixels in each epoch. The work can be done once, before training. What does that
# save, and what does it cost? 64 small images, three ways:

# %% experiment tags=["nbval-ignore-output"]
from helpers import bench, plots

image = files.pixels[0].nbytes
scattered = np.random.default_rng(1).permutation(256)[:64].tolist()
ways = {
    "decode JPEG files": lambda: [samples.decode_image(p) for p in files.paths[:64]],
    "read packed pixels, one by one": lambda: [
        np.fromfile(files.packed, np.uint8, image, offset=i * image) for i in scattered
    ],
    "read packed pixels in one read": lambda: np.fromfile(files.packed, np.uint8, 64 * image),
}
times = {way: bench(call) for way, call in ways.items()}
plots.samples(times, evidence="live (CPU)", title="64 images of 64 × 64 pixels")

# %% [markdown]
# (The operating system still holds the files in memory: no disk is part of these times.) And the space on a disk?

# %% experiment
space = files.pixels.nbytes / sum(path.stat().st_size for path in files.paths)
lesson.keep(space=space)
print(f"decoded pixels: {space:.0f} times the bytes of the JPEG files")

# %% [markdown]
# Here decoded pixels take {{space:.0f}} times the space, and a small part of the CPU's time, the smallest in one read. Which
# way is better depends on what you lack: work out the bytes with section 4's table and the cores with section 1's rule. A
# middle way is common: shrink each image once to the size that training uses, and store that as JPEG again.
#
# ### Uneven load times (2 min)
#
# In section 1 all loads were equal, and a larger `prefetch_factor` would have changed nothing. Batches are taken in
# order, so one slow batch holds up all that are ready behind it. (`DataLoader(…, in_order=False)` takes whichever is ready.
# Then the order of the batches follows the clock, and a run cannot be repeated.) Here one load in eight takes 144 ms, the others 8 ms.
# The mean is 25 ms, so the rule asks for 3 workers with steps of 10 ms:

# %% experiment
uneven = [144 if b % 8 == 0 else 8 for b in range(601)]  # ms
ahead = {p: experiments.mean_step(uneven, STEP, workers=3, prefetch=p) for p in (1, 2, 4, 8)}
lesson.table(
    [(p, 3 * p, f"{ms:.1f} ms") for p, ms in ahead.items()],
    ["prefetch_factor", "batches ahead", "a step"],
    evidence="arithmetic",
)
lesson.keep(four=experiments.mean_step(uneven, STEP, workers=4, prefetch=8))

# %% [markdown]
# With more batches ahead, the model takes finished ones while a slow one is made. No batch is made any faster, and each
# batch ahead takes shared memory. (Here each worker gets its share of the slow ones. With 4 workers, worker 0 would make
# them all: {{four:.0f}} ms a step, however many are ahead.)
#
# ### Threads and memory in workers (1 min)
#
# **Threads.** torch gives each worker one thread
# ([`worker.py`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/utils/data/_utils/worker.py)). NumPy does not know
# about workers: its matrix products take a thread for each core, in each worker, unless `OMP_NUM_THREADS` (or
# `OPENBLAS_NUM_THREADS`) says otherwise. With 16 workers on 16 cores that is up to 256 threads. Set `OMP_NUM_THREADS=1`
# before Python starts, or use [`threadpoolctl`](https://github.com/joblib/threadpoolctl) in `worker_init_fn`. OpenCV has
# threads of its own, which these variables may not reach: call
# [`cv2.setNumThreads(1)`](https://docs.opencv.org/4.x/db/de0/group__core__utils.html) in the worker. Lesson 12 counts
# such threads.
#
# **Memory.** A forked worker shares your process's memory, page by page, until one of the two writes to a page. In
# Python even reading an object writes: it changes the object's reference count. So a data set with a list of a million
# file names slowly becomes one copy for each worker ([issue 13246](https://github.com/pytorch/pytorch/issues/13246)). An
# array, such as `file.ends` above, is one object and stays shared.
