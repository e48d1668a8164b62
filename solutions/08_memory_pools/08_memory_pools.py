# %% [markdown]
# # 08 · Memory pools
#
# ## Where did my memory go?
#
# Your tensors add up to 4 GiB, `nvidia-smi` shows 7, and a request for one more fails although "3 GiB are
# reserved but unallocated". Nobody lies. Between your tensors and the GPU stands an allocator with four or
# five rules, and once you know them you can say what any program will reserve, read the error that a full
# card gives, and find the line that holds what should be gone. You will write the allocator yourself.
#
# **Time** 70–80 min, two thirds of it exercises; 8.1 is the long one, 8.4 can wait. **Before this** lessons 00 to 02
# (the simulated GPU, views, what keeps a graph alive) and what a stream is (05).
#
# **Afterwards you can**
# - say what a tensor takes and what a program reserves, to the byte;
# - tell fragmentation from plain lack of memory, and choose between an option and another order of work;
# - read a memory snapshot, name a leak by its line, and break a reference cycle.
#
# **On trial** seven claims of book notes and *torch.compile in practice*, judged in the last table.

# %% setup
import gc
import weakref

import torch
from torch import nn

from helpers import lesson, memory, plots, simulate, widgets

MIB = 2**20

lesson.start("08_memory_pools", evidence=["live (CPU)", "simulated (H100)", "simulated (allocator)"])

# %% [markdown]
# ## 1 · What does one tensor take?
#
# `cudaMalloc` is slow and `cudaFree` waits for the whole device. So PyTorch asks CUDA for large **segments**
# ([its note on memory](https://docs.pytorch.org/docs/2.13/notes/cuda.html#memory-management)) and cuts them
# into **blocks**, one for each tensor. *Allocated* is the sum of blocks in use, *reserved* the
# sum of segments. One tensor of n bytes on a fresh GPU: how many **MiB are reserved**?

# %% experiment
prediction = {"1 B": ..., "1 MiB": ..., "1 MiB + 1 B": ..., "9 MiB": ..., "10 MiB": ..., "21 MiB": ...}


# %% experiment
def buffer(gpu, nbytes):
    return torch.empty(nbytes, dtype=torch.uint8, device=gpu.device)


def taken_by(nbytes):
    """(bytes allocated, reserved, the tensor) on a fresh simulated H100 that holds one tensor."""
    gpu = simulate("H100")
    with gpu:
        tensor = buffer(gpu, nbytes)
        return gpu.memory_allocated(), gpu.memory_reserved(), tensor


sizes = dict(zip(prediction, (1, MIB, MIB + 1, 9 * MIB, 10 * MIB, 21 * MIB), strict=True))
taken = {name: taken_by(nbytes) for name, nbytes in sizes.items()}
said = lesson.compare_predictions(
    prediction,
    {name: reserved // MIB for name, (_, reserved, _) in taken.items()},
    evidence="simulated (H100)",
    choices=range(101),
)
lesson.table(
    [(name, f"{taken[name][0]:,}", reserved, you) for name, reserved, you in said.rows],
    ["tensor", "allocated, bytes", "reserved, MiB", "you said"],
    evidence="simulated (H100)",
    caption=said.caption,
)

# %% [markdown]
# Three rules explain every row ([their
# constants](https://github.com/pytorch/pytorch/blob/v2.13.0/c10/core/AllocatorConfig.h#L15-L24)).
#
# 1. **Rounding.** A request is rounded up to a multiple of 512 bytes.
# 2. **Two pools.** Up to 1 MiB it goes to the *small* pool, above to the *large* one. They share nothing.
# 3. **Segments.** The small pool asks CUDA for 2 MiB at a time, the large one for 20 MiB; from 10 MiB on a
#    request gets a segment of its own, rounded up to 2 MiB.
#
# And a fourth shows in the last row, where *allocated* is more than was asked for: what is left of a block
# becomes a block of its own only if it is worth it, in the large pool **more than 1 MiB** (in the small one
# 512 bytes). Else it stays inside, unused.
#
# ## 2 · Reuse, split, merge
#
# The rules need no card to be watched, only a model of the allocator, written after PyTorch's own source (its
# label is `simulated (allocator)`). Ten calls, in order. **How many free neighbours does `free d` merge with? How many MiB
# are reserved after `free c`, when only `e` is still in use? Does `f` need `cudaMalloc`?**

# %% experiment
PROGRAM = """
a = 6 MiB
b = 8 MiB
c = 3 MiB
free b
d = 5 MiB
e = 300 KiB
free a
free d
free c
f = 12 MiB
"""
prediction = {
    "neighbours merged by `free d`": ...,
    "MiB reserved after `free c`": ...,
    "f needs cudaMalloc": ...,  # "yes" or "no"
}

# %% experiment
steps = memory.steps_of(PROGRAM)
calls = [line for line in PROGRAM.split("\n") if line]
after = {line: steps.move(i).end for i, line in enumerate(calls, 1)}  # events behind each call
asked = [e for e in steps.found.snapshot.events if e.action == "segment_alloc"]
free_around = [len(steps.found.segments(after[line])[0].blocks) for line in ("free a", "free d")]
lesson.compare_predictions(
    prediction,
    {
        "neighbours merged by `free d`": free_around[0] - free_around[1],
        "MiB reserved after `free c`": int(steps.found.reserved[after["free c"]]) // MIB,
        "f needs cudaMalloc": "yes" if any(e.index >= after["free c"] for e in asked) else "no",
    },
    evidence=steps.evidence,
    choices=("yes", "no", *range(41)),
).show()
lesson.table(
    [(line, steps.move(i).text) for i, line in enumerate(calls, 1)],
    ["call", "what the allocator did"],
    evidence=steps.evidence,
)

# %% [markdown]
# The stepper shows the same, call by call (orange: what the call took or gave back): ◀ and ▶, or change the program. Try
# `free e` and `empty_cache` at the end.

# %% experiment
widgets.allocator_stepper(PROGRAM, step=8)

# %% [markdown]
# - A request takes the **smallest free block that fits** (best fit), and splits it.
# - A freed block **merges** with free neighbours of its segment, at once.
# - **Nothing goes back to CUDA.** A segment returns only when it is free *as a whole*, and then only on
#   `empty_cache()`, or when `cudaMalloc` has failed: PyTorch gives all whole segments back and tries again
#   before it gives up. (So `empty_cache()` cannot save you from PyTorch's own out-of-memory error. It helps *other* processes.)
#
# Free is not free for everyone, though. Below, a block is free, and the last line asks for memory. Is the
# block **"reused"**, or is it **"new"** memory?

# %% experiment
prediction = {
    "a = 30 MiB; free a; b = 30 MiB": ...,
    "a = 30 MiB; free a; b = 500 KiB": ...,
    "a = 30 MiB; free a; b = 30 MiB on 1": ...,  # in stream 1
    "a = 30 MiB; a.record_stream(1); free a; b = 30 MiB": ...,  # stream 1 may still be reading a
    "a = 30 MiB; a.record_stream(1); free a; synchronize; b = 30 MiB": ...,
}


# %% experiment
def last_call(program, conf=""):
    """("reused" or "new", the allocator's move in words) for the last line of a program."""
    steps = memory.steps_of(program, conf)
    move = steps.move(len(steps))
    new = any(e.action == "segment_alloc" for e in steps.found.snapshot.events[move.start : move.end])
    return "new" if new else "reused", move.text


ends = {program: last_call(program) for program in prediction}
said = lesson.compare_predictions(
    prediction,
    {program: end[0] for program, end in ends.items()},
    evidence="simulated (allocator)",
    choices=("reused", "new"),
)
lesson.table(
    [(*row, ends[row[0]][1]) for row in said.rows],
    [*said.columns, "the last call"],
    evidence="simulated (allocator)",
    caption=said.caption,
)

# %% [markdown]
# A block belongs to the **pool and the stream** it was made for. Within one stream reuse is safe without
# waiting, because the stream runs in order. `record_stream` says that another one uses the block too: a free
# then waits until that stream has passed (lesson 05). A CUDA graph's pool (07) is closed in the same way.
#
# Everything needed for the real thing is on the table. `cudaMalloc` and `cudaFree` are given; write what
# stands between them and the tensors, for one stream.

# %% [markdown]
# **Exercise 8.1 — a caching allocator** (★★★, 18 min)
#
# It is graded on what it reserves after every call of a program, measured at the device and compared with
# PyTorch's rules; finally on the calls of a real training step.
#
# <details><summary>Hint 1</summary>Keep two lists of blocks for each segment's pool, or all blocks of a segment in one list in
# order of address. The second makes merging simple: a neighbour is the next item of the list.</details>
#
# <details><summary>Hint 2</summary>malloc in three steps: find a block (the smallest that fits; Python's <code>min</code> with a
# key of size and address), or make a segment that is one free block; cut it, if what remains is worth it; mark it as
# in use. The new segment goes through the same cutting as a reused block.</details>
#
# <details><summary>The idea</summary>A block is <code>[address, size, in use]</code>, a segment a list of blocks and a flag
# for its pool. free: mark the block, then join it with its right neighbour if that is free, then the left one with it.
# empty_cache: a segment whose list is one free block goes to <code>cuda_free</code>. In malloc:
# <code>cuda_malloc(n)</code>; if that is None, <code>empty_cache()</code> and once more; if it still is,
# MemoryError.</details>


# %% exercise="allocator"
class Allocator:
    """A caching allocator for one stream of one device. All sizes and addresses are whole numbers of bytes.

    cuda_malloc(nbytes) returns the address of a new segment (0 is one), None where the device is too full for it.
    cuda_free(address) takes a whole segment back.

    - A request (nbytes ≥ 1) is rounded up to a multiple of 512. Rounded sizes up to 1 MiB are of the small
      pool, larger ones of the large pool; a segment belongs to the pool that it was made for.
    - It gets the smallest free block of its pool that fits; of equally small ones that at the lowest address.
    - If none fits: a segment of 2 MiB (small pool), of 20 MiB (large pool, below 10 MiB), else of the rounded
      size, rounded up again to a multiple of 2 MiB. If cuda_malloc returns None: empty_cache(), and once more.
    - What the block has beyond the rounded size becomes a free block, behind it, if that is at least 512 bytes
      (small pool) or more than 1 MiB (large pool). Else it stays with the block.
    - A block that is freed merges with free neighbours in its segment. Segments stay.
    """

    def __init__(self, cuda_malloc, cuda_free) -> None:
        ### BEGIN SOLUTION
        self.cuda_malloc, self.cuda_free = cuda_malloc, cuda_free
        # small?, blocks by address: [address, size, in use]
        self.segments: list[tuple[bool, list[list]]] = []
        ### END SOLUTION

    def malloc(self, nbytes: int) -> int:
        """The address of nbytes that nobody else has. MemoryError where they cannot be had."""
        ### BEGIN SOLUTION
        size = -(-nbytes // 512) * 512
        small = size <= MIB
        free = [
            (block[1], block[0], blocks, block)
            for of_small, blocks in self.segments
            for block in blocks
            if of_small == small and not block[2] and block[1] >= size
        ]
        if free:
            *_, blocks, block = min(free, key=lambda found: found[:2])
        else:
            wanted = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            address = self.cuda_malloc(wanted)
            if address is None:
                self.empty_cache()
                address = self.cuda_malloc(wanted)
            if address is None:
                raise MemoryError(f"no room for {nbytes} bytes")
            block = [address, wanted, False]
            blocks = [block]
            self.segments.append((small, blocks))
        rest = block[1] - size
        if rest >= 512 if small else rest > MIB:
            blocks.insert(blocks.index(block) + 1, [block[0] + size, rest, False])
            block[1] = size
        block[2] = True
        return block[0]
        ### END SOLUTION

    def free(self, address: int) -> None:
        """Give back what malloc returned."""
        ### BEGIN SOLUTION
        for _, blocks in self.segments:
            for i, block in enumerate(blocks):
                if block[0] == address:
                    block[2] = False
                    for left in (i, i - 1):
                        if 0 <= left < len(blocks) - 1 and not (blocks[left][2] or blocks[left + 1][2]):
                            blocks[left][1] += blocks.pop(left + 1)[1]
                    return
        ### END SOLUTION

    def empty_cache(self) -> None:
        """Give every segment in which nothing is in use back to the device."""
        ### BEGIN SOLUTION
        for segment in list(self.segments):
            blocks = segment[1]
            if len(blocks) == 1 and not blocks[0][2]:
                self.segments.remove(segment)
                self.cuda_free(blocks[0][0])
        ### END SOLUTION


# %% test="allocator" points=2
from helpers.exercises.memory_pools import Program, check_Allocator

requests = "1 B", "512 B", "1 MiB", "1048577 B", "9 MiB", "10 MiB", "21 MiB"
check_Allocator(
    *(f"x = {size}" for size in requests),
    "a = 6 MiB; b = 8 MiB; c = 3 MiB; free b; d = 5 MiB; e = 9 KiB; free a; free d; free c; f = 12 MiB",
    "a = 9 MiB; b = 2 MiB; c = 3 MiB; d = 2 MiB; free a; free c; e = 3145128 B; f = 9 MiB",
    "a = 6 MiB; b = 8 MiB; c = 6 MiB; free a; d = 5 MiB; free b; e = 8389120 B",
    "a = 30 MiB; free a; b = 29 MiB; free b; c = 30 MiB; free c; empty_cache; d = 4 MiB",
    "a = 9437185 B; b = 9 MiB; c = 2096641 B",
    "a = 6 MiB; b = 2 MiB; c = 6 MiB; d = 6 MiB; free a; free c; g = 6 MiB; free b; free d; h = 9 MiB",
    Program("a = 30 MiB; b = 20 MiB; free a; c = 40 MiB; d = 4 MiB; free b; e = 5 MiB", mib=60),
)

# %% hidden="allocator" points=4
### BEGIN HIDDEN TESTS
from helpers.exercises.memory_pools import Program, check_Allocator, random_program, training_program

requests = "513 B", "10485759 B", "10485761 B", "19 MiB", "19922945 B", "67108863 B", "1048065 B"
check_Allocator(
    *(f"x = {size}" for size in requests),
    "a = 7 MiB; b = 6 MiB; c = 7 MiB; free a; d = 6 MiB; free b; e = 6292456 B",
    "a = 5 MiB; b = 3 MiB; c = 5 MiB; d = 7 MiB; free a; free c; g = 5 MiB; free b; free d; h = 9 MiB",
    Program(
        "a = 24 MiB; b = 16 MiB; free a; c = 38 MiB; d = 12 MiB; e = 5 B; free b; f = 3 MiB; g = 5000 B", 56
    ),
    random_program(21, 150, 20 * 2**20, mib=56),
    random_program(1, 150, 60 * 2**20),
    random_program(4, 150, 2**18),
    random_program(6, 200, 12 * 2**20, least=2**20),
    training_program(3, 512),
    training_program(2, 1024, mib=300),
    random_program(11, 200, 80 * 2**20, mib=260),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · Free, and out of memory
#
# A card with 7 GiB and two programs, neither of which ever needs more than 6 GiB at once.
#
# - **Documents**: 16 of growing length, `L` = 10, 12, … 40. Each makes a wide temporary (`L` × 32 MiB), then its
#   result (`L` × 12 MiB), which stays; then the temporary goes.
# - **Survivors**: 1,200 caches of 4 MiB, of which every fifth stays; then one tensor of 2.5 GiB.
#
# `PYTORCH_ALLOC_CONF` has two options for this
# ([all of them](https://docs.pytorch.org/docs/2.13/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)). (The error of torch 2.13
# still calls it by its older name, `PYTORCH_CUDA_ALLOC_CONF`. Where both are set, [the older one
# counts](https://github.com/pytorch/pytorch/blob/v2.13.0/c10/cuda/CUDAAllocatorConfig.h#L133-L151).)
#
# - `max_split_size_mb:128`: a block of 128 MiB or more is never cut, so it is free as a whole or not at all.
# - `expandable_segments:True`: one segment for each pool and stream, which grows at its end by pages of 20 MiB (small
#   pool: 2 MiB). A
#   page in which nothing at all lives *can* go back to CUDA. As with whole segments, that happens on `empty_cache()`, or
#   before a request fails.
#
# **"fits"** or **"fails"**, six times?

# %% experiment
prediction = {
    ("documents", "default"): ...,
    ("documents", "max_split_size_mb:128"): ...,
    ("documents", "expandable_segments:True"): ...,
    ("survivors", "default"): ...,
    ("survivors", "max_split_size_mb:128"): ...,
    ("survivors", "expandable_segments:True"): ...,
}


# %% experiment
def documents(gpu, lengths=range(10, 42, 2)):
    """(what it held at the end, or when a request failed; that request)."""
    held = []
    for length in lengths:
        wide = buffer(gpu, 32 * length * MIB)
        result = buffer(gpu, 12 * length * MIB)
        if gpu.faults:
            return [*held, wide], result
        held.append(result)
        del wide
    return held, None


def survivors(gpu, together=False):
    caches = [buffer(gpu, 4 * MIB) for _ in range(1200)]
    caches = caches[::5]
    if together:
        caches = torch.cat(caches)
    return caches, buffer(gpu, 2560 * MIB)


def on_small_card(program, conf, **options):
    """(the card after the program, or as the first request that failed found it; what the program held then)."""
    gpu = simulate("H100", memory_bytes=7 * 1024 * MIB, alloc_conf=conf, strict=False)
    with gpu:
        held, last = program(gpu, **options)
        if gpu.faults:  # the simulator notes the error and grants the request all the same: give it back
            last = None
            gpu.empty_cache()
        return gpu, (held, last)


programs = {"documents": documents, "survivors": survivors}
ran = {(name, conf): on_small_card(programs[name], conf.replace("default", "")) for name, conf in prediction}
ran["survivors, put together", "default"] = on_small_card(survivors, "", together=True)
cards = {key: gpu for key, (gpu, _) in ran.items()}


def outcome(gpu):
    return "fails" if gpu.faults else "fits"


said = lesson.compare_predictions(
    {", ".join(key): value for key, value in prediction.items()},
    {", ".join(key): outcome(gpu) for key, gpu in cards.items()},
    evidence="simulated (H100)",
    choices=("fits", "fails"),
)
calls = [
    [gpu.memory_stats()[key] - bool(gpu.faults) for key in ("num_device_alloc", "num_device_free")]
    for gpu in cards.values()
]
lesson.keep(segments_back=calls[-1][1])  # of the survivors, put together
lesson.table(
    [(*row, *numbers) for row, numbers in zip(said.rows, calls, strict=True)],
    ["program, option", "a card of 7 GiB", "you said", "memory asked of CUDA", "given back"],
    evidence="simulated (H100)",
    caption=said.caption
    + ". Asked and given back: num_device_alloc and num_device_free of memory_stats(), calls of "
    "cudaMalloc and cudaFree; with expandable_segments pages mapped and unmapped instead",
)

# %% [markdown]
# Read the error of the first row as PyTorch gives it, number by number, and look at the card at that moment. At the
# end the advice that the error gives in the sixth row.

# %% experiment
import textwrap

error = cards["documents", "default"].faults[0].partition(" If reserved")[0]
advice = cards["survivors", "expandable_segments:True"].faults[0].partition(" unallocated. ")[2]
tried = float(error.partition("Tried to allocate ")[2].split()[0])
lesson.keep(tried_mib=tried, its_length=tried / 12)
print(textwrap.fill(error, 100))
print("\nsurvivors, expandable_segments:True:", textwrap.fill(advice.partition("  See")[0], 100), sep="\n")
plots.segments(cards["documents", "default"], title="Documents: the card when the request failed")

# %% [markdown]
# *Tried to allocate*: the segment that was wanted, {{tried_mib:.0f}} = {{its_length:.0f}} × 12 MiB, so
# a *result*. *Total*, *free*: the card's;
# *this process* holds more than PyTorch (section 4). *Allocated*: your tensors. **Reserved but unallocated** is the
# number to look at: if it is small, you must need less memory; if it is larger than the request, it is in pieces. The
# advice behind it is always the same, even where the option is on already
# ([issue 173049](https://github.com/pytorch/pytorch/issues/173049)).
#
# - **documents**: a result is cut out of the last temporary's block. The next temporary is longer, finds no
#   block, and takes a new segment; the old one cannot go back, because a result lives in it, and what is left is too
#   short. `max_split_size_mb:128` keeps large blocks whole, so that they can go back: room is *bought with cudaFree*,
#   and each of those waits for the device. With `expandable_segments` neighbours in the one segment merge.
# - **survivors**: five caches fill 20 MiB, and one of them stays. By default that is a segment, with
#   `expandable_segments` a page of the one segment: neither is empty, neither goes back. No option moves a live
#   block. Copying the survivors into one tensor does, while there is room for the copy: then {{segments_back}} segments go back.
#
# An option mends the *sizes* of requests; what lives together, only your program can mend.

# %% [markdown]
# **Exercise 8.2 — the same results, reserved once** (★★, 8 min)
#
# This function takes its documents in the order in which they came, and that is by length.
#
# ```python
# def encode(batches, up, down):
#     results = []
#     for x in batches:
#         wide = torch.relu(x @ up)
#         results.append(wide @ down)
#     return results
# ```
#
# Wanted are the same results within the budget below, and no waits: `empty_cache()` in the loop would make the
# host wait for every document.
#
# Other ways are welcome too: a document may be computed in pieces.
#
# <details><summary>Hint 1</summary>How many wide arrays exist while <code>relu</code> works, in the second turn of the
# loop? Three: which?</details>
#
# <details><summary>Hint 2</summary>A free block can hold everything that is not longer. In which order of documents does each
# temporary fit where the last one was? (The results still have to come back in the order of the batches.)</details>
#
# <details><summary>The idea</summary>Longest first:
# <code>sorted(range(len(batches)), key=lambda i: -len(batches[i]))</code>, results into a list by their number;
# <code>(x @ up).relu_()</code>, and <code>del wide</code> before the next turn. Or one scratch array for all:
# <code>torch.mm(x, up, out=scratch[:len(x)])</code>.</details>


# %% exercise="encode"
def encode(batches: list[torch.Tensor], up: torch.Tensor, down: torch.Tensor) -> list[torch.Tensor]:
    """relu(x @ up) @ down for every batch, in the order of the batches.

    batches: k ≥ 1 arrays x of (n_i, width), n_i ≥ 1, of any strides, one of them perhaps twice; the list is not
    changed. up: (width, hidden); down: (hidden, out); all float32 on one device, gradients off. Returns k arrays of
    (n_i, out), which stay as they are when encode is called again.

    Budget on a GPU, beyond what the inputs had reserved: the results, one array of (max n_i, hidden), 2 MiB a
    batch for rounding, and 64 MiB, of which cuBLAS takes 32 as its workspace. The host never waits.
    """
    ### BEGIN SOLUTION
    results: list = [None] * len(batches)
    for i in sorted(range(len(batches)), key=lambda i: len(batches[i]), reverse=True):
        wide = (batches[i] @ up).relu_()
        results[i] = wide @ down
        del wide
    return results
    ### END SOLUTION


# %% test="encode" points=1
from helpers.exercises.memory_pools import Documents, check_encode

check_encode(
    Documents([1, 3, 5], 4, 10, 3),
    Documents([4, 2, 6], 4, 10, 3),
    Documents([*range(4_000, 10_400, 400)], 256, 40_960, 2_560, card="H100"),
)

# %% hidden="encode" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.memory_pools import Documents, check_encode

check_encode(
    Documents([2, 2, 9, 4, 1], 3, 8, 5),
    Documents([7], 3, 8, 5),
    Documents([1, 6, 6, 6], 3, 8, 5),
    Documents([*range(5_000, 11_000, 400)], 512, 40_960, 15_000, card="A100"),
    Documents([6_000, 1_000, 10_400, 6_200, 9_600, 1_400, 11_000], 128, 30_000, 12_500, card="A100"),
    Documents([12_000] * 6, 256, 20_480, 5_120, card="A100"),
    Documents([10_000, 8_000, 6_000, 4_000], 256, 20_480, 10_240, card="A100"),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · Who else holds memory, and what the calls do
#
# `nvidia-smi` shows what a process holds from the card, and that is never what your tensors add up to. One thing besides
# them is made at the first matrix product: cuBLAS works in a buffer that PyTorch allocates for it, on Hopper 32 MiB, and
# keeps. It counts as allocated, though no tensor of yours is that. Now two tensors of 1,024 MiB, `y = x @ x`, are made
# and deleted. **How many MiB are allocated and reserved then, and how many are reserved after `empty_cache()`, and after
# `set_per_process_memory_fraction(0.5)` on a card of 80 GB?**

# %% experiment
prediction = {
    "allocated after `del x, y`": ...,
    "reserved after `del x, y`": ...,
    "reserved after empty_cache()": ...,
    "reserved after set_per_process_memory_fraction(0.5)": ...,
}

# %% experiment
gpu = simulate("H100", strict=False)
ledger = {}


def note(when):
    free, total = gpu.mem_get_info()
    ledger[when] = [n // MIB for n in (gpu.memory_allocated(), gpu.memory_reserved(), total - free)]


with gpu:
    note("nothing yet")
    x = torch.empty(16384, 16384, device=gpu.device)
    note("x: 1 GiB")
    y = x @ x
    note("y = x @ x: 1 GiB")
    del x, y
    note("del x, y")
    gpu.empty_cache()
    note("empty_cache()")
    gpu.set_per_process_memory_fraction(0.5)
    note("set_per_process_memory_fraction(0.5)")
    free_then = gpu.mem_get_info()[0]
    too_much = buffer(gpu, gpu.card.memory_bytes * 6 // 10)
    capped = any("out of memory" in fault for fault in gpu.faults)

said = lesson.compare_predictions(
    prediction,
    {
        "allocated after `del x, y`": ledger["del x, y"][0],
        "reserved after `del x, y`": ledger["del x, y"][1],
        "reserved after empty_cache()": ledger["empty_cache()"][1],
        "reserved after set_per_process_memory_fraction(0.5)": ledger["set_per_process_memory_fraction(0.5)"][
            1
        ],
    },
    evidence=gpu.evidence,
    choices=range(100_001),
)
said.show()
asks = f"a request for 60 % of the card: {'out of memory' if capped else 'granted'}"
lesson.table(
    [
        *(
            (when, *(f"{n:,}" for n in numbers), f"{numbers[2] - numbers[1]:,}")
            for when, numbers in ledger.items()
        ),
        (asks, "", "", "", ""),
    ],
    ["after", "allocated, MiB", "reserved", "used on the card", "of it outside PyTorch"],
    evidence=gpu.evidence,
    caption="used on the card: total − free of mem_get_info(), what nvidia-smi shows for a card with one process",
)

# %% [markdown]
# - The **CUDA context** (kernels, the driver's own) is outside of PyTorch's books. The size here is
#   an assumption of the simulator; read yours from `nvidia-smi` after the first kernel.
# - **cuBLAS**'s buffer is there once per handle and stream;
#   [`CUBLAS_WORKSPACE_CONFIG`](https://docs.pytorch.org/docs/2.13/notes/cuda.html#cublas-workspaces) sets its size.
# - **NCCL** has buffers of its own for each communicator, outside of the books too. Not measured: one process has none.
# - [`set_per_process_memory_fraction`](https://docs.pytorch.org/docs/2.13/generated/torch.cuda.memory.set_per_process_memory_fraction.html)
#   is a **cap**: nothing was reserved, and a request for 60 % of the card then
#   failed. It protects the others on a shared card.
#
# One more call, which one of our sources recommends:

# %% experiment
try:
    torch.cuda.memory.change_current_allocator(torch.cuda.memory.PoolAllocator)
    pool_allocator = "exists"
except AttributeError as error:
    pool_allocator = f"AttributeError: {error}"
print(pool_allocator)

# %% [markdown]
# There is no such class, and no need: the pool is what you have been using.
#
# ## 5 · A snapshot names the line
#
# This loop keeps four rows of each batch "for the report". A batch takes 16 MiB, four rows 16 KiB. Which line will
# the snapshot name, **"x"** or **"kept"**, and by how many **KiB** will it grow per step?

# %% experiment
prediction = {"line": ..., "KiB per step": ...}

# %% experiment
import inspect

gpu, kept, bounds, snapshots = simulate("H100"), [], [], []
gpu.memory._record_memory_history()
with gpu:
    net = nn.Sequential(*(nn.Linear(1024, 1024, device=gpu.device) for _ in range(4)))
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(8):
        bounds.append(len(gpu.memory._snapshot()["device_traces"][0]))
        x = torch.randn(4096, 1024, device=gpu.device)
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(x[:4])
        snapshots.append(gpu.memory._snapshot() | {"device_traces": []})

snapshot = memory.read(gpu)
leak = memory.leaks(snapshot, [*bounds, len(snapshot.events)])[0]
source = (
    inspect.getsource(inspect.currentframe())
    .splitlines()[int(leak.site.split(":")[1].split()[0]) - 1]
    .strip()
)
lesson.compare_predictions(
    prediction,
    {"line": source.split()[0], "KiB per step": leak.per_step[-1] // 1024},
    evidence=snapshot.evidence,
    choices=("x", "kept", *(2**n for n in range(21))),
).show()
print(f"{leak}\nthe line: {source}")
plots.memory_timeline(snapshot, most=4)

# %% [markdown]
# The staircase is the leak: a whole batch a step. A snapshot names the line that **allocated**, because that is
# where the stack was written down; who *keeps* it you have to find yourself, and here it is a view (lesson 01).
# The optimizer's state appears once and stays: that is no leak. So the test is growth, *step after step*.
#
# On a real GPU the calls are the same, with `torch.cuda` for `gpu`: `_record_memory_history()` first, and
# `_dump_snapshot("file")` at the end of a step or in an `except`. A snapshot has the history, and the segments with
# every block's state and stack. The file can be dropped on [pytorch.org/memory_viz](https://pytorch.org/memory_viz), which
# draws it in your browser and uploads nothing ([documentation](https://docs.pytorch.org/docs/stable/torch_cuda_memory.html)).
# Here the segments are enough:

# %% [markdown]
# **Exercise 8.3 — name the leak** (★★, 7 min)
#
# A snapshot after every step. Which line's memory grows in each of them?
#
# <details><summary>Hint 1</summary>One dictionary a snapshot: line → bytes in blocks whose state is
# <code>"active_allocated"</code>. Frames come innermost first.</details>
#
# <details><summary>Hint 2</summary>Weights do not grow; the optimizer's state grows once; a cache grows until it is full;
# batches go up and down. <code>itertools.pairwise</code> gives neighbours.</details>
#
# <details><summary>The idea</summary>A line leaks if for every pair of neighbours the later dictionary has more for it
# (<code>.get(line, 0)</code> in the earlier). Of those the one with the largest last − first.</details>


# %% exercise="find_leak"
def find_leak(snapshots: list[dict]) -> tuple[str, int] | None:
    """The line of the user's code whose live memory grows from every snapshot to the next.

    snapshots: two or more, oldest first, each as torch.cuda.memory._snapshot() returns it, without its history:
        {"segments": [{"blocks": [{"state": "active_allocated", "size": 2048, "requested_size": 2000,
        "frames": [{"filename": "/project/train.py", "line": 12, "name": "step"}, …]}, …]}, …]}
    Bytes: "size" (of the blocks, not of the requests) in the state "active_allocated"; other states do not count.
    A block belongs to its innermost frame (the first of the list) of the user's code: its filename is "notebook", or
        ends in ".py" and has no folder named torch in it. Blocks without such a frame are not counted.
    A line is written "train.py:12 step": the file without its folders.
    Returns (line, bytes that it holds in the last snapshot beyond the first); of several the one with most such
        bytes; None where no line grows every time.
    """
    ### BEGIN SOLUTION
    held: list[dict[str, int]] = []
    for snapshot in snapshots:
        held.append({})
        for segment in snapshot["segments"]:
            for block in segment["blocks"]:
                own = [f for f in block["frames"] if _by_the_user(f["filename"])]
                if block["state"] == "active_allocated" and own:
                    line = f"{own[0]['filename'].split('/')[-1]}:{own[0]['line']} {own[0]['name']}"
                    held[-1][line] = held[-1].get(line, 0) + block["size"]
    grown = {
        line: last - held[0].get(line, 0)
        for line, last in held[-1].items()
        if all(b.get(line, 0) > a.get(line, 0) for a, b in zip(held, held[1:], strict=False))
    }
    return max(grown.items(), key=lambda item: item[1]) if grown else None


def _by_the_user(path: str) -> bool:
    return path == "notebook" or path.endswith(".py") and "torch" not in path.split("/")[:-1]
    ### END SOLUTION


# %% test="find_leak" points=1
from helpers.exercises.memory_pools import Story, check_find_leak

check_find_leak(
    Story(5, leaks=[("train.py:24 step", 3_000_000, 3_000_000)]),
    Story(5),
    Story(6, late=2),
    expect=[("train.py:24 step", 28_386_304), None, None],
)

# %% hidden="find_leak" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.memory_pools import Story, check_find_leak


def by_hand(snapshots):
    tables = []
    for snapshot in snapshots:
        table = {}
        for segment in snapshot["segments"]:
            for block in segment["blocks"]:
                for frame in block["frames"]:
                    path = frame["filename"]
                    if path == "notebook" or path.endswith(".py") and "/torch/" not in "/" + path:
                        if block["state"] == "active_allocated":
                            key = f"{path.rpartition('/')[2]}:{frame['line']} {frame['name']}"
                            table[key] = table.get(key, 0) + block["size"]
                        break
        tables.append(table)
    lines = {line for table in tables for line in table}
    grows = [
        (tables[-1][line] - tables[0].get(line, 0), line)
        for line in lines
        if all(tables[i + 1].get(line, 0) > tables[i].get(line, 0) for i in range(len(tables) - 1))
    ]
    return max(grows)[::-1] if grows else None


two = [("report.py:33 log", 300, 900), ("report.py:34 log", 2_000_000, 3_000_000)]
later = [("train.py:90 log", 700, 5_000), ("loss.py:33 log", 20_000_000, 50_000_000)]
check_find_leak(
    Story(6, [("eval/report.py:33 log", 300, 90_000)], from_source=True, seed=1),
    Story(7, two, from_source=True, seed=2),
    Story(5, later, late=2, from_source=True, seed=3),
    Story(6, late=3, from_source=True, seed=4),
    Story(6, late=1, from_source=True, seed=7),  # grows every time, and the first snapshot lacks it
    Story(2, [("a.py:5 log", 90_000_000, 99_000_000)], from_source=True, seed=5),
    Story(5, [("notebook:8 log", 2_000_000, 9_000_000)], from_source=True, seed=6),
    expect=by_hand,
)
### END HIDDEN TESTS

# %% [markdown]
# And on the loop above, whose snapshots were kept:

# %% experiment
print(find_leak(snapshots))

# %% [markdown]
# ## 6 · What keeps a tensor
#
# A tensor's memory is free when nothing refers to its storage any more: Python counts references, and the last
# one to go frees at once. In each row below a function does something with `x`, then `del x`. Is x's memory
# **"freed"** then, **"kept"**, or kept **"until gc"** (until Python's cycle collector happens to run)?

# %% experiment
prediction = {
    "a view of 10 of its numbers goes into a list": ...,
    "an object holds it, and itself": ...,
    "a function fails on it; the exception is kept": ...,
    "a function fails on it; the exception's text is kept": ...,
}


# %% experiment
class Box:
    pass


def cycle(x):
    box = Box()
    box.content, box.me = x, box


def failing(x):
    raise ValueError(f"no memory for {x.numel()} more")


def fails(x, keep):
    try:
        failing(x)
    except ValueError as error:
        return keep(error)


ways = [
    lambda x: [x[:10]],
    cycle,
    lambda x: fails(x, lambda error: error),
    lambda x: fails(x, str),
]


def fate(way):
    """What becomes of a tensor's memory when its name is gone and the collector has not run, and when it has."""
    x = torch.ones(250_000)
    storage = weakref.ref(x.untyped_storage())
    stays = [way(x)]
    del x
    if storage() is None:
        return "freed"
    gc.collect()
    return "until gc" if storage() is None and stays else "kept"


gc.collect()
gc.disable()  # it would run at some moment of its own
fates = dict(zip(prediction, map(fate, ways), strict=True))
gc.enable()
lesson.compare_predictions(
    prediction, fates, evidence="live (CPU)", what="memory of x", choices=("freed", "kept", "until gc")
)

# %% [markdown]
# An exception holds its traceback, the traceback the frames, the frames every local name: the activations of
# the call that ran out of memory are held *by the error*. Leave the `except` block before you try again with
# a smaller batch, and keep the text only. Cycles are freed, but when is up to the collector, which counts Python
# objects and not bytes: three objects that hold 10 GiB do not hurry it.
#
# Notebooks add a keeper of their own.

# %% experiment
big = torch.ones(250_000)
watched = weakref.ref(big.untyped_storage())
big[:3]  # the last line of a cell is shown, and kept in Out[…], _ and __

# %% experiment
del big
gc.collect()
after_del = "freed" if watched() is None else "kept"

# %% experiment tags=["nbval-ignore-output"]
get_ipython().displayhook.flush()  # what `%reset -f out` does
gc.collect()
print(f"after `del big`: {after_del}; after Out is emptied: {'freed' if watched() is None else 'kept'}")

# %% [markdown]
# (So does the last uncaught exception, in `sys.last_value`, until the next one.) The cycle that most code has is
# an object that hangs its own method on a model:
#
# ```python
# class ActivationLog:
#     def __init__(self, model):
#         self.outputs = {}
#         for name, layer in model.named_children():
#             layer.register_forward_hook(partial(self.keep, name))     # layer → hook → self
#
#     def keep(self, name, layer, inputs, output):
#         self.outputs[name] = output                                   # self → output → its graph
# ```
#
# `del log` does nothing here: the model's hooks hold it. And with a `self.model` in it, model and log hold each
# other.

# %% [markdown]
# **Exercise 8.4 — break the cycle** (★★, 7 min)
#
# <details><summary>Hint 1</summary>The hook needs the dictionary, not the log. And it must not hold the log: what would then keep
# the log alive?</details>
#
# <details><summary>Hint 2</summary><code>register_forward_hook</code> returns a handle with <code>remove()</code>; the handle
# refers to the layer only weakly. Who calls it when the log goes?</details>
#
# <details><summary>The idea</summary>A closure over <code>outputs</code> and <code>name</code> stores
# <code>output.detach()</code>. The handles go into a list. At the log's end either <code>__del__</code> calls
# <code>remove()</code> on each, or <code>weakref.finalize(self, remove_all, handles)</code>, whose arguments must not
# hold self.</details>


# %% exercise="activation_log"
class ActivationLog:
    """The outputs of a model's layers in its latest forward pass, while the log lives.

    outputs: name of each child of the model (as in model.named_children()) → its output, without a graph.

    When the last reference to the log goes, its hooks leave the model, and outputs are freed, at once: without
    the cycle collector. The log does not keep the model alive, nor the model the log. There may be several logs
    on one model. Every forward pass runs every layer once, and each returns one tensor. A model may have no children.
    """

    def __init__(self, model: nn.Module) -> None:
        ### BEGIN SOLUTION
        self.outputs: dict[str, torch.Tensor] = {}
        handles = [
            layer.register_forward_hook(_keeper(self.outputs, name)) for name, layer in model.named_children()
        ]
        weakref.finalize(self, _remove, handles)


def _keeper(outputs, name):
    def keep(layer, inputs, output):
        outputs[name] = output.detach()

    return keep


def _remove(handles):
    for handle in handles:
        handle.remove()
        ### END SOLUTION


# %% test="activation_log" points=1
from helpers.exercises.memory_pools import Net, check_ActivationLog

check_ActivationLog(Net([4, 8, 3], batch=5))

# %% hidden="activation_log" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.memory_pools import Net, check_ActivationLog

check_ActivationLog(
    Net([6, 5], 3, blocks=True),
    Net([16, 32, 8, 8], 20, blocks=True),
    Net([9, 7, 7], 4, blocks=True, frozen=True),
    Net([5], 2, frozen=True),
)
### END HIDDEN TESTS

# %% [markdown]
# ## On the real GPU
#
# The documents of section 3, a quarter as large, on a card with room for all: live where there is a GPU, else a
# recording, else (no recording exists yet) simulated; the last column says which. The third row is the same loop over
# `reversed(lengths)`.

# %% experiment
from helpers import recordings

runs = {
    "in the order of length": recordings.show("08/growing", simulated="H100"),
    "the same, expandable_segments:True": recordings.show("08/growing_expandable", simulated="H100"),
    "longest first": recordings.show("08/longest_first", simulated="H100"),
}
rows = [
    (
        name,
        *(memory.size_text(run.table[-1][k]) for k in ("allocated", "reserved")),
        run.table[-1]["segments"],
        run.evidence,
    )
    for name, run in runs.items()
]
evidence = runs["longest first"].evidence
lesson.table(
    rows, ["documents", "allocated at the end", "reserved", "segments", "evidence"], evidence=evidence
)

# %% [markdown]
# What is reserved beyond the results is what the order of work costs. The option takes most of it away; the other order
# does without an option, and does better.
#
# ## Sources on trial

# %% experiment tags=["fold"]
emptied, capped_at = ledger["empty_cache()"], ledger["set_per_process_memory_fraction(0.5)"]
asked_for, reserved = sizes["1 MiB + 1 B"], taken["1 MiB + 1 B"][1]
mended = [
    name
    for name in programs
    if outcome(cards[name, "max_split_size_mb:128"]) == "fits" != outcome(cards[name, "default"])
]
lesson.verdicts(
    [
        {
            "id": "08-larger",
            "source": "book-notes",
            "claim": "PyTorch reserves a larger piece of memory than the tensor needs, and manages it itself",
            "measured": f"{asked_for:,} bytes asked for, {reserved:,} reserved; of {len(taken)} sizes tried "
            f"{sum(r > sizes[k] for k, (_, r, _) in taken.items())} reserved more than they needed",
            "verdict": "confirmed" if all(r >= sizes[k] for k, (_, r, _) in taken.items()) else "refuted",
            "experiment": "1 · What does one tensor take?",
        },
        {
            "id": "08-max-split",
            "source": "book-notes",
            "claim": "fragmentation: the practical remedy is max_split_size_mb",
            "measured": f"of {len(programs)} programs that fail by default it mended {len(mended)} "
            f"({', '.join(mended)}), with {cards['documents', 'max_split_size_mb:128'].memory_stats()['num_device_free']} cudaFree",
            "verdict": "holds when large blocks are cut by smaller ones that stay; not where small ones survive in "
            "every segment. expandable_segments does the former without waits"
            if mended == ["documents"]
            else "refuted",
            "experiment": "3 · Free, and out of memory",
        },
        {
            "id": "08-nccl",
            "source": "book-notes",
            "claim": "NCCL manages the memory of its communication itself",
            "measured": "nothing: one process has no communicator",
            "verdict": "untested",
            "experiment": "4 · Who else holds memory, and what the calls do",
        },
        {
            "id": "08-cycles",
            "source": "book-notes",
            "claim": "the cycle collector breaks cycles; tensors in global scope are a main reason why memory stays",
            "measured": f"a cycle: {fates['an object holds it, and itself']}; a list: "
            f"{fates['a view of 10 of its numbers goes into a list']}; a notebook's Out: {after_del}",
            "verdict": "confirmed"
            if fates["an object holds it, and itself"] == "until gc" and after_del == "kept"
            else "refuted",
            "experiment": "6 · What keeps a tensor",
        },
        {
            "id": "08-pool-allocator",
            "source": "compile-300",
            "claim": "change_current_allocator(torch.cuda.memory.PoolAllocator) switches a memory pool on",
            "measured": f"{pool_allocator}",
            "verdict": "refuted"
            if pool_allocator.startswith("AttributeError")
            else "holds when the class exists",
            "experiment": "4 · Who else holds memory, and what the calls do",
        },
        {
            "id": "08-fraction",
            "source": "compile-300",
            "claim": "set_per_process_memory_fraction(0.8) allocates memory in advance",
            "measured": f"reserved before {emptied[1]} MiB, after {capped_at[1]} MiB; a request above the "
            f"fraction, with {memory.size_text(free_then)} free on the card: {'failed' if capped else 'granted'}",
            "verdict": "refuted" if capped_at[1] == emptied[1] and capped else "confirmed",
            "experiment": "4 · Who else holds memory, and what the calls do",
        },
        {
            "id": "08-monitor",
            "source": "compile-300",
            "claim": "watch GPU memory with memory_allocated() and memory_reserved()",
            "measured": f"after empty_cache() {emptied[0]} and {emptied[1]} MiB, while {emptied[2]} MiB "
            "of the card were in use",
            "verdict": "holds when the question is about your tensors; the context, NCCL and other processes are in "
            "neither",
            "experiment": "4 · Who else holds memory, and what the calls do",
        },
    ],
    evidence="live (CPU) · simulated (H100)",
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Reserved is what you cost, allocated what you use. | The context, NCCL and other processes are in neither. |
# | Freed memory is reused, not returned. | By the same pool and stream only. |
# | Reserved but unallocated larger than the request: fragmentation. | Small: no option helps, use less. |
# | Growing shapes: `expandable_segments:True`, or longest first. | Where survivors are spread over all segments: put them together. |
# | `empty_cache()` is for other processes. | It waits for the device, and PyTorch does it by itself before it fails. |
# | In steady state `memory_stats()["num_device_free"]` does not grow. | A run that ends in the first steps. |
# | A leak is growth, step after step. | The line named allocated it; who keeps it is another. |
# | No cycles through hooks, no exceptions kept. | On the CPU side of a script that ends, nobody cares. |
#
# **Read on**: *CUDA semantics: memory management* and *Understanding CUDA memory usage* in PyTorch's
# documentation; Z. DeVito, *A guide to PyTorch's CUDA caching allocator*; `c10/cuda/CUDACachingAllocator.cpp`
# itself, which begins with a long comment.
