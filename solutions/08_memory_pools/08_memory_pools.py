# %% [markdown]
# # 08 · Memory pools
#
# ## Where did my memory go?
#
# Your tensors add up to 4 GiB. `nvidia-smi` shows 7.5 GiB. A request for one more GiB fails, although "3 GiB are
# reserved but unallocated". All of these numbers are true. Between your tensors and the GPU stands an **allocator**:
# the part of PyTorch that gets memory from CUDA and hands it out to tensors. It follows a few rules.
#
# **Time** 60 min, two exercises among them; *Further*: 54 min, where you write the allocator yourself. **Before this**
# lessons 00 to 02 (the simulated GPU, views, what keeps a graph alive); for one part of *Further* also 05 (streams).
#
# **Afterwards you can**
# - say what a tensor takes and what a program reserves;
# - tell fragmentation from plain lack of memory, and choose between an option and another order of work;
# - read a memory snapshot, name a leak by its line, and say what keeps a tensor alive.

# %% setup
import gc
import weakref

import torch
from torch import nn

from helpers import lesson, memory, plots, simulate, widgets
from helpers.lessons.memory_pools import experiments

MIB = 2**20

lesson.start(
    "08_memory_pools",
    evidence=["live (CPU)", "simulated (H100)", "recorded (H100)", "simulated (allocator)", "published"],
)

# %% [markdown]
# ## 1 · What does one tensor take?
#
# A call of CUDA's `cudaMalloc` is slow, and `cudaFree` waits for the whole device. So PyTorch asks CUDA for large pieces
# of memory, called **segments**, and cuts each segment into **blocks**. A tensor gets one block
# ([memory management](https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management) in PyTorch's notes). Two
# numbers follow from this:
#
# - **allocated** is the sum of all blocks in use ([`torch.cuda.memory_allocated()`](https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.memory_allocated.html));
# - **reserved** is the sum of all segments ([`torch.cuda.memory_reserved()`](https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.memory_reserved.html)).
#
# A fresh GPU holds one tensor. If the tensor has 1 MiB, 2 MiB are reserved. With 9 MiB it is 20 MiB, with 10 MiB it is
# 10 MiB. How much memory is **reserved** for the sizes below?

# %% experiment
you = lesson.predict(
    {"1 byte": ..., "1 MiB + 1 byte": ..., "21 MiB": ...},
    choices={
        "1 byte": ["512 B", "2 MiB", "20 MiB"],
        "1 MiB + 1 byte": ["2 MiB", "4 MiB", "20 MiB"],
        "21 MiB": ["21 MiB", "22 MiB", "40 MiB"],
    },
)

# %% experiment
sizes = {
    "1 byte": 1,
    "1 MiB": MIB,
    "1 MiB + 1 byte": MIB + 1,
    "9 MiB": 9 * MIB,
    "10 MiB": 10 * MIB,
    "21 MiB": 21 * MIB,
}


def taken_by(nbytes):
    """Bytes asked for, allocated and reserved, on a fresh simulated H100 that holds one tensor."""
    with simulate("H100") as gpu:
        tensor = torch.empty(nbytes, dtype=torch.uint8, device=gpu.device)
        return tensor.nbytes, gpu.memory_allocated(), gpu.memory_reserved()


taken = {name: taken_by(nbytes) for name, nbytes in sizes.items()}
you.against(
    experiments.reserved(taken), experiments.sizes(taken), evidence="simulated (H100)", what="reserved"
)

# %% [markdown]
# Four rules explain every row ([the constants in
# PyTorch's source](https://github.com/pytorch/pytorch/blob/v2.13.0/c10/core/AllocatorConfig.h#L15-L24)).
#
# 1. **Rounding.** A request is rounded up to a multiple of 512 bytes.
# 2. **Two pools.** Requests up to 1 MiB go to the *small* pool, larger requests to the *large* pool. The pools share
#    nothing.
# 3. **Segments.** If no free block fits, the pool asks CUDA for a segment: the small pool for 2 MiB, the large pool for
#    [20 MiB](https://github.com/pytorch/pytorch/blob/v2.13.0/c10/core/AllocatorConfig.h#L339). For a request of 10 MiB or
#    more the segment has the size of the request, rounded up to a multiple of 2 MiB.
# 4. **Splitting.** A request takes the beginning of a free block. The rest becomes a free block of its own if it is large
#    enough: more than 1 MiB in the large pool, at least 512 bytes in the small pool. Otherwise the rest stays with the
#    block, unused. This happens in the last row: its segment has 22 MiB, the rest is 1 MiB, so 22 MiB are allocated.
#
# ## 2 · Reuse, split, merge
#
# What happens to a block that is freed? If a block beside it is free too, the two **merge** into one larger free block.
# The program below is run by a model of the allocator, written after PyTorch's source (label: `simulated (allocator)`).
# `a = 6 MiB` makes a tensor, `free a` lets go of it. A pencil helps: draw the segment.

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
g = 3 MiB
free f
h = 3 MiB
"""
you = lesson.predict(
    {
        "`free d` merges with": ...,
        "reserved after `free c`, when only e is in use": ...,
        "`f` needs cudaMalloc": ...,
        "`h` is cut from": ...,
    },
    choices={
        "`free d` merges with": ["no free neighbour", "one free neighbour", "two free neighbours"],
        "reserved after `free c`, when only e is in use": ["300 KiB", "2 MiB", "22 MiB"],
        "`f` needs cudaMalloc": ["yes", "no"],
        "`h` is cut from": ["a free block of 12 MiB", "a free block of 5 MiB", "a new segment"],
    },
)

# %% experiment
steps = memory.steps_of(PROGRAM)
you.against(experiments.answers(steps), experiments.moves(steps), evidence=steps.evidence)

# %% [markdown]
# The stepper shows the same program call by call. Orange is what the call took or gave back; the size written in a block is
# that of the whole block. Another program needs only another text: hand it
# `PROGRAM + "free g\nfree h\nfree e\nempty_cache"`.

# %% experiment
widgets.allocator_stepper(PROGRAM, step=8)

# %% [markdown]
# Three more rules:
#
# 5. **Best fit.** A request takes the smallest free block of its pool that is large enough, and splits it. So `h` left the
#    12 MiB at the beginning alone.
# 6. **Merging.** A freed block merges at once with free neighbours in its segment.
# 7. **Keeping.** Nothing goes back to CUDA by itself. By default a segment goes back only when *all* of it is free, at one
#    of two moments: when you call [`empty_cache()`](https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.empty_cache.html),
#    or when `cudaMalloc` has failed. In the second case PyTorch gives back all free segments (with
#    `max_split_size_mb`, below, at first only what it needs) and tries again.
#
# So `empty_cache()` adds nothing once a request has failed: PyTorch has done the same before it raised. Called *earlier* it can
# prevent fragmentation (the next section has an example). But every `cudaFree` waits for the device.
#
# ## 3 · Free, and out of memory
#
# A card has 7 GiB. Each of the two programs below has the card for itself, and never needs more than 6 GiB at once. By
# default both fail.
#
# - **documents**: 16 documents of growing length. Each makes a wide temporary array, then its result. The
#   result stays, and the temporary array goes.
# - **survivors**: 1,200 caches of 4 MiB, of which every fifth stays. Then one tensor of 2.5 GiB is asked for.
#
# The memory is free, but in pieces that are too small. That is **fragmentation**. Two options of the environment variable
# `PYTORCH_ALLOC_CONF` help against it
# ([all options](https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)):
#
# - `max_split_size_mb:128`: a block of 128 MiB or more is never split. A smaller request cannot take such a block. A request
#   of 128 MiB or more takes one only if the block is less than 20 MiB longer; otherwise it gets a new segment.
# - `expandable_segments:True`: one segment for each pool, which grows at its end by pages of 20 MiB (2 MiB in the small
#   pool). On `empty_cache()`, and
#   before a request fails, each page without any block in use goes back to CUDA.
#
# Which of the two options makes each program fit?

# %% experiment
OPTIONS = ["neither", "only max_split_size_mb", "only expandable_segments", "either one alone"]
you = lesson.predict({"documents fits with": ..., "survivors fits with": ...}, choices=OPTIONS)


# %% experiment
def documents(buffer, emptied=False):
    results = []
    for length in range(10, 42, 2):
        wide = buffer(32 * length)  # MiB
        results.append(buffer(12 * length))
        del wide
        if emptied:
            buffer.empty_cache()
    return results


def survivors(buffer, together=False):
    caches = [buffer(4) for _ in range(1200)][::5]
    if together:
        caches = torch.cat(caches)
    return caches, buffer(2560)


cards = experiments.with_each_option(documents, survivors)
cards["documents, emptied", "default"] = experiments.on_small_card(documents, emptied=True)
cards["survivors, copied together", "default"] = experiments.on_small_card(survivors, together=True)
you.against(
    experiments.fits(cards), experiments.options(cards), evidence="simulated (H100)", what="fits with"
)

# %% [markdown]
# Now read the error of the first row as PyTorch prints it, and look at the card at that moment. Each row of the picture is a
# segment; the last one is the temporary of the document at work.

# %% experiment
card = cards["documents", "default"]
print(experiments.error(card))
tried, free, inside = experiments.room(card)
lesson.keep(tried_mib=tried, its_length=tried / 12, free_mib=free, inside_mib=inside, sum_mib=free + inside)
plots.segments(card.gpu, title="documents: the card when the request failed")

# %% [markdown]
# - **Tried to allocate** is the request that failed: {{tried_mib:.0f}} MiB, so the *result* of length {{its_length:.0f}}.
# - **Total capacity** and **free** belong to the card. What *this process has in use* includes more than PyTorch
#   (see *Further*).
# - **Allocated by PyTorch** is your tensors.
# - **Reserved but unallocated** is the number to look at. Add to it what is free on the card. If the sum is smaller than the
#   request, no option helps: you must need less memory (lesson 09). If the sum is larger, there is room, but in pieces:
#   **fragmentation**. Here it is {{inside_mib:,.0f}} + {{free_mib:.0f}} = {{sum_mib:,.0f}} MiB, more than
#   {{tried_mib:.0f}}. But the largest piece is what is free on the card, {{free_mib:.0f}} MiB.
#
# **Why documents fails.** Most results are cut out of the free block of an earlier temporary. The next temporary is longer,
# finds no block that fits, and takes a new segment. An old segment with a result in it cannot go back, and its rest is too
# short. With `max_split_size_mb:128` large blocks stay whole, so they can go back to CUDA. `empty_cache()` after each
# document (the row *emptied*) gives them back before a result can cut them. The price of both is a `cudaFree` for each
# block that goes back. With `expandable_segments` all of this lies in one segment, and neighbours merge.
#
# **Why survivors fails.** Five caches fill 20 MiB, and one of the five stays. By default these 20 MiB are a segment; with
# `expandable_segments` they are a page. Neither is empty, so neither goes back. No option moves a live block. Only the
# program can: it copies the survivors into one tensor while there is still room for the copy (the last row).
#
# Two other programs fail on the same card. Which one lacks memory, and which one has it in pieces?

# %% experiment
you = lesson.predict({"first": ..., "second": ...}, choices=["lack of memory", "fragmentation"])


def mixed(buffer, count, large):
    held = [buffer(4) for _ in range(count)][::5]
    for _ in range(large):
        held.append(buffer(1024))
    return held


full = {
    "first": experiments.on_small_card(mixed, count=100, large=7),
    "second": experiments.on_small_card(mixed, count=400, large=5),
}
experiments.shortages(full)

# %% experiment
you.against(experiments.reasons(full), evidence="simulated (H100)", what="the reason")

# %% [markdown]
# **Exercise 8.1 — the same results, reserved once** (★★, 10 min)
#
# This function takes its documents as they come, and here they come in order of length.
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
# Write it so that it returns the same results and, with the default options, reserves no more than the budget below.
# `empty_cache()` in the loop is no answer: the host would wait for every document. You may also compute a document in
# pieces. (cuBLAS, the library behind `@`, keeps a buffer of its own to work in: its *workspace*.)
#
# <details><summary>Hint 1</summary>How many wide arrays exist while <code>relu</code> works, in the second turn of the
# loop? Three. Which ones?</details>
#
# <details><summary>Hint 2</summary>A free block can hold everything that is not longer. In which order of documents does each
# temporary fit where the last one was? (The results still have to come back in the order of the batches.)</details>
#
# <details><summary>The idea</summary>Longest first:
# <code>sorted(range(len(batches)), key=lambda i: -len(batches[i]))</code>. Put each result into a list at its document's
# number. Use <code>(x @ up).relu_()</code>, and <code>del wide</code> before the next turn. Or use one scratch array for
# all documents: <code>torch.mm(x, up, out=scratch[:len(x)])</code>.</details>


# %% exercise="encode"
def encode(batches: list[torch.Tensor], up: torch.Tensor, down: torch.Tensor) -> list[torch.Tensor]:
    """relu(x @ up) @ down for every batch, in the order of the batches.

    batches: k ≥ 1 arrays x of (n_i, width), n_i ≥ 1, of any strides, one of them perhaps twice; the list is not
    changed. up: (width, hidden); down: (hidden, out); all float32 on one device, gradients off. Returns k arrays of
    (n_i, out), which do not overlap (one buffer may hold all) and stay as they are when encode is called again.

    Budget on a GPU, beyond what the inputs had reserved: the results, one array of (max n_i, hidden), 4 MiB a
    batch for what its segment leaves over (rule 3), and 64 MiB, of which cuBLAS takes up to 32 as its workspace. The
    host never waits.
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
from helpers.lessons.memory_pools.exercises import Documents, check_encode

check_encode(
    Documents([1, 3, 5], 4, 10, 3),
    Documents([4, 2, 6], 4, 10, 3),
    Documents([*range(4_000, 10_400, 400)], 256, 40_960, 2_560, card="H100"),
)

# %% hidden="encode" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.memory_pools.exercises import Documents, check_encode

check_encode(
    Documents([2, 2, 9, 4, 1], 3, 8, 5),
    Documents([7], 3, 8, 5),
    Documents([1, 6, 6, 6], 3, 8, 5),
    Documents([*range(5_000, 11_000, 400)], 512, 40_960, 15_000, card="A100"),
    Documents([6_000, 1_000, 10_400, 6_200, 9_600, 1_400, 11_000], 128, 30_000, 12_500, card="A100"),
    Documents([12_000] * 6, 256, 20_480, 5_120, card="A100"),
    Documents([300, 700, 500], 128, 40_960, 1_024, card="A100"),
    Documents([2_000] * 40, 64, 20_480, 880, card="A100"),  # of these results two fill a segment of 20 MiB
    Documents([10_000, 8_000, 6_000, 4_000], 256, 20_480, 10_240, card="A100"),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · A snapshot names the line
#
# This training loop keeps four rows of each batch "for the report". A batch has 4,096 rows and takes 16 MiB; four rows take
# 16 KiB. [`_record_memory_history()`](https://docs.pytorch.org/docs/stable/torch_cuda_memory.html) notes for every block the
# line of code that asked for it, and `_snapshot()` returns all blocks with their lines
# (here as `gpu.memory`, on your GPU as `torch.cuda.memory`). Memory that grows with every step is a **leak**. Which
# line will the snapshot name for it, and how fast does it grow?

# %% experiment
you = lesson.predict(
    {"the line": ..., "it grows by, a step": ...},
    choices={
        "the line": ["x = torch.randn(…)", "loss = net(x)…", "kept.append(x[:4])"],
        "it grows by, a step": ["16 KiB", "16 MiB", "more than 16 MiB"],
    },
)

# %% experiment
gpu, kept, snapshots = simulate("H100"), [], []
gpu.memory._record_memory_history()
with gpu:
    net = nn.Sequential(*(nn.Linear(1024, 1024, device=gpu.device) for _ in range(4)))
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(8):
        x = torch.randn(4096, 1024, device=gpu.device)
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(x[:4])
        snapshots.append(gpu.memory._snapshot())

snapshot = experiments.with_source(memory.read(gpu))
picture = plots.memory_timeline(snapshot, most=4, title="Eight steps: who holds the memory")
you.against(experiments.leak(snapshot, snapshots), picture, evidence=snapshot.evidence)

# %% [markdown]
# The leak is the blue staircase in the picture: a whole batch in every step. `x[:4]` is a view (lesson 01), and a view
# keeps the whole storage alive. The snapshot names the line that **allocated** the block (`notebook:7` is line 7 of
# the cell above). Who *keeps* the block you have to find yourself: search for uses of what that line made.
#
# Other memory appears once and stays, so it is no leak: the optimizer's state of 32 MiB, and two buffers of 32 MiB in
# which cuBLAS works, one for the forward and one for the backward pass. The bumps of `optimizer.step()` are its temporary
# tensors. On a real GPU the backward pass runs in a thread of its own, and its blocks have a Python line only where Python
# code (a hook, a checkpoint) runs there. The simulator adds the line.

# %% [markdown]
# **Exercise 8.2 — name the leak** (★★, 9 min)
#
# You have a snapshot after every step. Which line's memory grows?
#
# <details><summary>Hint 1</summary>Make one dictionary for each snapshot: line → bytes in blocks whose state is
# <code>"active_allocated"</code>. Frames come innermost first.</details>
#
# <details><summary>Hint 2</summary>Weights do not grow. The optimizer's state grows once. A cache grows until it is full.
# Batches go up and down. <code>itertools.pairwise</code> gives neighbours.</details>
#
# <details><summary>The idea</summary>A line leaks if, for every pair of neighbours, the later dictionary has more for it
# (<code>.get(line, 0)</code> in the earlier one). Of those lines return the one with the largest last − first.</details>


# %% exercise="find_leak"
def find_leak(snapshots: list[dict]) -> tuple[str, int] | None:
    """The line of the user's code whose live memory grows from every snapshot to the next.

    snapshots: two or more, oldest first, each as torch.cuda.memory._snapshot() returns it, without `device_traces`:
        {"segments": [{"blocks": [{"state": "active_allocated", "size": 2048, "requested_size": 2000,
        "frames": [{"filename": "/project/train.py", "line": 12, "name": "step"}, …]}, …]}, …]}
    Bytes: "size" (of the blocks, not of the requests) in the state "active_allocated"; other states do not count.
    A block belongs to its innermost frame (the first of the list) of the user's code: its filename is "notebook", or
        ends in ".py" and has no folder named torch in it. Blocks without such a frame are not counted.
    A line is written "train.py:12 step": the file without its folders. What is written alike counts as one line.
    Returns (line, bytes that it holds in the last snapshot beyond the first); of several the one with most such
        bytes (no two have equally many); None where no line grows every time. A line that a snapshot lacks has 0
        bytes there.
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
from helpers.lessons.memory_pools.exercises import Story, check_find_leak

check_find_leak(
    Story(5, leaks=[("train.py:24 step", 3_000_000, 3_000_000)]),
    Story(5),
    Story(6, late=2),  # one line grows, but not from the first snapshot to the second
    expect=[("train.py:24 step", 28_386_304), None, None],
)

# %% hidden="find_leak" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.memory_pools.exercises import Story, check_find_leak


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
# Try your function on the loop above:

# %% experiment
experiments.try_it(find_leak, snapshots)

# %% [markdown]
# ## 5 · What keeps a tensor
#
# Python counts the references to an object, and frees the object when the last reference goes. So the memory of `x` is free at once when nothing
# refers to its storage any more. One case is different. Objects that refer to each other in a circle (a **cycle**) never
# reach zero; Python's [cycle collector](https://docs.python.org/3/library/gc.html) finds them, but only when it happens to run.
#
# Below, a function does something with `x`, then `del x` follows. Is the memory of `x` **freed** at once, **kept**, or kept
# **until gc** (until the collector runs)?

# %% experiment
you = lesson.predict(
    {
        "a view of 10 of its numbers goes into a list": ...,
        "an object holds it, and itself": ...,
        "a function fails on it; the exception is kept": ...,
        "a function fails on it; the exception's text is kept": ...,
    },
    choices=["freed", "kept", "until gc"],
)


# %% experiment
class Box:
    pass


def cycle(x):
    box = Box()
    box.content, box.me = x, box


def failing(x, keep):
    try:
        raise ValueError(f"no memory for {x.numel()} more")
    except ValueError as error:
        return keep(error)


ways = [lambda x: [x[:10]], cycle, lambda x: failing(x, keep=lambda e: e), lambda x: failing(x, keep=str)]
fates = dict(zip(you, map(experiments.fate, ways), strict=True))
you.against(fates, evidence="live (CPU)", what="memory of x")

# %% [markdown]
# An exception holds its traceback. The traceback holds the frames of the functions, and a frame holds every local name. So after an
# out-of-memory error the *error* can hold the activations of the call that failed. Leave the `except` block before you try
# again with a smaller batch, because inside it Python itself still holds the exception
# ([PyTorch's FAQ](https://docs.pytorch.org/docs/stable/notes/faq.html#my-out-of-memory-exception-handler-can-t-allocate-memory)):
#
# ```python
# failed = None
# try:
#     train(batch)
# except torch.OutOfMemoryError as error:
#     failed = str(error)  # only the text
# if failed:
#     train(batch[: len(batch) // 2])
# ```
#
# A cycle is freed, but you do not know when. The collector counts Python objects, not bytes: three objects that
# hold 10 GiB do not make it run earlier.

# %% [markdown]
# ## The running example
#
# The script keeps the logits of every step, "to look at later". Below, it keeps the byte that the model finds most likely,
# in place of 256 numbers. The last two lines of `log_and_let_go` are those of lesson 03. The script
# is that of lesson 06, because the CUDA graph of lesson 07 needs more memory.

# %% experiment
from helpers import running_example


def log_and_let_go(record, logits, loss):
    record.losses.append(loss.detach())
    record.kept.append(logits.argmax(-1).to(torch.uint8))
    if len(record.losses) % 5 == 0:
        record.losses[-5:] = torch.stack(record.losses[-5:]).tolist()


before = running_example.after("06")
faster = before.replace(log=log_and_let_go)
board = running_example.compare(before, faster)
board


# %% experiment
def kept_by_step_4(script):
    """Bytes that the program holds after its fourth step and did not hold after its third."""
    held = []
    with simulate("H100") as gpu:
        for _ in script.train(running_example.LARGE, gpu, 6):
            gpu.synchronize()
            held.append(gpu.memory_stats()["requested_bytes.all.current"])
    return held[3] - held[2]


kept, now = kept_by_step_4(before), kept_by_step_4(faster)
card_bytes = simulate("H100").card.memory_bytes
lesson.keep(
    script_kept=kept / 2**20, script_now=now, script_full=-(-card_bytes // kept), card_gb=card_bytes / 1e9
)
print(f"a step keeps {kept:,} bytes before, {now:,} bytes after")

# %% [markdown]
# The price is two launches a step. The peak falls only a little. (*Peak memory* in this table is the most that was
# **reserved**, in nine steps.) What matters is what one step adds: {{script_kept:.1f}} MiB before, {{script_now:,}} bytes
# now. After {{script_full:,.0f}} steps at the latest, the {{card_gb:.1f}} GB of an H100 would have been full of logits. A peak
# over a few steps does not show a leak. Compare the memory after one step with the memory after a later step.

# %% [markdown]
# ## Your own script
#
# After an out-of-memory error, read its numbers first: what is reserved but unallocated, and what is free on the card,
# together against the request (section 3). Without an error, compare **reserved** with the **peak** of what is allocated.
# If reserved is close to the peak, you need
# less memory: go to lesson 09. If reserved is far above the peak, look for growing shapes, and try
# `PYTORCH_ALLOC_CONF=expandable_segments:True` first. (A platform that lacks it gets a warning and no change.) If *allocated*
# grows in every step and does not stop, you have a leak. The next cell prints the three numbers for a toy script on a
# simulated card, and writes a snapshot. At home leave out the lines of the toy: the rest works on your GPU and on your own names.

# %% experiment
from helpers.own_script import simulated_cuda, toy

with simulated_cuda("H100"):
    model, optimizer, loss_fn, loader, device, step = toy("cuda", width=4096, batch=1024)

    torch.cuda.memory._record_memory_history(max_entries=100_000, stacks="all")
    for _, batch in zip(range(4), loader):
        step(batch)
        print(f"allocated {torch.cuda.memory_allocated() / 2**20:,.0f} MiB", end=", ")
        print(f"peak {torch.cuda.max_memory_allocated() / 2**20:,.0f}", end=", ")
        print(f"reserved {torch.cuda.memory_reserved() / 2**20:,.0f}")
    torch.cuda.memory._dump_snapshot("snapshot.pickle")
    torch.cuda.memory._record_memory_history(enabled=None)

# %% [markdown]
# Allocated stays the same from step to step: no leak. Between the peak and reserved lie 62 MiB: no option is needed.
#
# A snapshot is a dictionary with two halves. `segments` says what there is at the end: each segment has its blocks, one after
# the other. `device_traces` says how it came to be: a list of events for each GPU. A block has `frames`: the
# lines that led to it, the innermost first. The first frames are C++. In this backward pass all are.

# %% experiment
import pickle

with open("snapshot.pickle", "rb") as file:
    snapshot = pickle.load(file)


def who(frames):
    """One's own innermost line and the Python line that it led to; without one, the backward operator."""
    python = [f for f in frames if f["filename"].endswith((".py", "notebook"))]
    for f in python:
        *folders, name = f["filename"].split("/")
        if not {"torch", "site-packages"} & {*folders}:
            inner = python[0]
            return f"{name}:{f['line']} → {inner['filename'].split('/')[-1]}:{inner['line']} {inner['name']}"
    asked = next((f["name"] for f in frames if "Backward0::apply" in f["name"]), "no frames")
    return asked.partition("::apply")[0].rpartition("::")[2]


for segment in snapshot["segments"]:
    print(f"segment of {segment['total_size'] / 2**20:.0f} MiB, pool {segment['segment_type']!r}")
    for block in segment["blocks"][:3]:
        print(f"    {block['size'] / 2**20:7.3f} MiB  {block['state']:16}", who(block["frames"]))

# %% [markdown]
# **What holds the memory** are the blocks with `active_allocated`. Every training step is one line, here line 8 of the cell
# above, so the listing also names the line in the library. `linear.py` and `AddmmBackward0` asked for cuBLAS's two
# buffers, `adam.py` for the optimizer's state. A block without frames is free, or older than the recording, as the model. (In
# Jupyter a cell's file is `/tmp/ipykernel_…/….py`, here `notebook`.)
#
# Who held memory at the **peak** is in the events: this command adds them up.
#
# ```bash
# python -m helpers snapshot.pickle
# ```
#
# [pytorch.org/memory_viz](https://pytorch.org/memory_viz) draws the file in your browser, and uploads nothing.

# %% [markdown]
# ## Sources on trial

# %% experiment
from helpers.lessons.memory_pools import claims

lesson.verdicts(
    claims.on_trial(taken, cards, fates),
    evidence="live (CPU) · simulated (H100) · published",
    shown=("08-max-split", "08-cycles"),
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Reserved is what PyTorch takes from the card, allocated is what you use. | The CUDA context, NCCL and other processes are in neither. |
# | Freed memory is used again, not given back. | Only by the same pool and the same stream. |
# | "Reserved but unallocated" and free memory, together larger than the request: fragmentation. | If they are smaller, no option helps: use less. |
# | Growing shapes: `expandable_segments:True`, or the longest first. | Small survivors in every segment: copy them together. |
# | `empty_cache()` after a failure adds nothing. | Before a free segment is cut it can prevent fragmentation. |
# | A leak is growth that does not stop. The snapshot names the line that allocated. | Who keeps the block is another line. |
#
# **Read on**: [Understanding CUDA memory usage](https://docs.pytorch.org/docs/stable/torch_cuda_memory.html);
# Z. DeVito, [A guide to PyTorch's CUDA caching
# allocator](https://zdevito.github.io/2022/08/04/cuda-caching-allocator.html).

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# Each section stands alone.
#
# ### Write the allocator (28 min)
#
# You know all the rules. `cudaMalloc` and `cudaFree` are given. Write what stands between them and the tensors, for one
# stream.

# %% [markdown]
# **Exercise 8.3 — a caching allocator** (★★★, 18 min)
#
# The tests look at what your allocator has reserved after every call of a program, measured at the device, and compare it
# with PyTorch's rules. The hidden test also plays the calls of a small net's first training steps (simulated).
#
# <details><summary>Hint 1</summary>Keep all blocks of a segment in one list in order of address. Then merging is simple: a
# neighbour is the next item of the list.</details>
#
# <details><summary>Hint 2</summary>malloc has three steps. Find a block (the smallest that fits: Python's <code>min</code> with a
# key of size and address), or make a segment that is one free block. Cut the block, if what remains is large enough. Mark it as
# in use. A new segment is cut in the same way as a block that is used again.</details>
#
# <details><summary>The idea</summary>A block is <code>[address, size, in use]</code>. A segment is a list of blocks and a flag
# for its pool. free: mark the block, then join it with its right neighbour if that is free, then the left neighbour with it.
# empty_cache: a segment whose list is one free block goes to <code>cuda_free</code>. In malloc:
# <code>cuda_malloc(n)</code>; if that is None, <code>empty_cache()</code> and once more; if it still is,
# MemoryError.</details>


# %% exercise="allocator"
class Allocator:
    """A caching allocator for one stream of one device. All sizes and addresses are whole numbers of bytes.

    cuda_malloc(nbytes) returns the address of a new segment (0 is an address, too), or None where the device is
    too full for it.
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
            *_, blocks, block = min(free, key=lambda entry: entry[:2])
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
from helpers.lessons.memory_pools.exercises import Program, check_Allocator

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
from helpers.lessons.memory_pools.exercises import Program, check_Allocator, random_program, training_program

requests = "513 B", "10485759 B", "10485761 B", "19 MiB", "19922945 B", "67108863 B", "1048065 B"
check_Allocator(
    *(f"x = {size}" for size in requests),
    "a = 7 MiB; b = 6 MiB; c = 7 MiB; free a; d = 6 MiB; free b; e = 6292456 B",
    # two blocks of 20 MiB, the lower one in the newer segment
    "a = 30 MiB; b = 20 MiB; c = 24 MiB; free c; d = 4 MiB; free b; e = 20 MiB; empty_cache",
    "a = 5 MiB; b = 3 MiB; c = 5 MiB; d = 7 MiB; free a; free c; g = 5 MiB; free b; free d; h = 9 MiB",
    Program(
        "a = 24 MiB; b = 16 MiB; free a; c = 38 MiB; d = 12 MiB; e = 5 B; free b; f = 3 MiB; g = 5000 B", 56
    ),
    Program("a = 5 KiB; free a; b = 60 MiB; free b; c = 5 B", 60),
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
# ### Pools and streams (4 min)
#
# A free block is not free for everyone. Each program below frees a block, and its last call asks for memory. Is the
# block **reused**, or does the last call get **new** memory from CUDA? `on 1` means: in stream 1 (lesson 05).
# `a.record_stream(1)` says that stream 1 may still be reading `a`; here stream 1 is busy until `synchronize`.

# %% experiment
you = lesson.predict(
    {
        "a = 30 MiB; free a; b = 30 MiB": ...,
        "a = 30 MiB; free a; b = 500 KiB": ...,
        "a = 30 MiB; free a; b = 30 MiB on 1": ...,
        "a = 30 MiB; a.record_stream(1); free a; b = 30 MiB": ...,
        "a = 30 MiB; a.record_stream(1); free a; synchronize; b = 30 MiB": ...,
    },
    choices=["reused", "new"],
)

# %% experiment
ends = {program: experiments.last_call(program) for program in you}
you.against(
    {program: how for program, (how, _) in ends.items()},
    lesson.table(
        [(program, move) for program, (_, move) in ends.items()],
        ["program", "its last call"],
        evidence="simulated (allocator)",
    ),
    evidence="simulated (allocator)",
    what="the block is",
)

# %% [markdown]
# A block belongs to the **pool and the stream** that it was made for. Within one stream PyTorch can use a block again
# without waiting, because the stream runs in order. After
# [`record_stream`](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.record_stream.html) a freed block is
# used again only when the other stream has done all the work that it had at the moment of the free. A CUDA graph
# (lesson 07) has a pool of its own, which is closed in the same way. You can make such a pool yourself:
# [`torch.cuda.MemPool`](https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.MemPool.html).
#
# ### Who else holds memory (4 min)
#
# `nvidia-smi` shows what a process holds from the card. That is always more than PyTorch has reserved. And PyTorch's
# books have blocks that belong to no tensor of yours. At the first matrix product
# [cuBLAS](https://docs.pytorch.org/docs/stable/notes/cuda.html#cublas-workspaces) gets a buffer to work in: on an H100
# 32 MiB, allocated by PyTorch and, in PyTorch 2.13, kept from then on. (The backward pass gets one more: section 4.)
#
# Two tensors of 1,024 MiB, `x` and `y = x @ x`, are made and deleted. How many MiB are allocated then, and how many
# are reserved after each of the calls below? (The last two calls follow one after the other, on a card of 80 GB.)

# %% experiment
you = lesson.predict(
    {
        "allocated after `del x, y`": ...,
        "reserved after `del x, y`": ...,
        "reserved after empty_cache()": ...,
        "reserved after set_per_process_memory_fraction(0.5)": ...,
    },
    choices=[0, 32, 2048, 2080, 40960],
)

# %% experiment
gpu = simulate("H100", strict=False)
note = experiments.Ledger(gpu)
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
    torch.empty(gpu.card.memory_bytes * 6 // 10, dtype=torch.uint8, device=gpu.device)

print("a request for 60 % of the card:", "out of memory" if gpu.faults else "granted")
answers = {}
for question in you:
    of, _, when = question.partition(" after ")
    answers[question] = note.rows[when.strip("`")][0 if of == "allocated" else 1]
you.against(answers, note.table(), evidence=gpu.evidence, what="MiB")

# %% [markdown]
# - The **CUDA context** (kernels and the driver's own data) is outside of PyTorch's books. Its size here is an assumption of the
#   simulator. Read yours from `nvidia-smi` after the first kernel.
# - **NCCL** (lesson 14) has buffers of its own for each group of GPUs that send to each other, also outside of the
#   books. This is not measured here: this process is in no such group.
# - [`set_per_process_memory_fraction`](https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.set_per_process_memory_fraction.html)
#   is a **limit**. Nothing was reserved, and a request above the limit failed. It protects other processes on a shared card.
#
# ### What notebooks and hooks keep (16 min)
#
# A notebook keeps the value of a cell's last line, in `Out[…]` and in `_`. Below, that value is a view of three numbers.

# %% experiment
big = torch.ones(250_000)
watched = weakref.ref(big.untyped_storage())
big[:3]

# %% experiment
del big
gc.collect()
print("after `del big`:", "freed" if watched() is None else "kept")

# %% experiment tags=["nbval-ignore-output"]
get_ipython().displayhook.flush()  # what `%reset -f out` does
gc.collect()
print("after Out is emptied:", "freed" if watched() is None else "kept")

# %% [markdown]
# The last exception that nobody caught is kept too, in `sys.last_value`, until the next one.
#
# An object that hangs its own method on a model is one line away from a cycle:
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
# `del log` frees nothing here, because the model's hooks hold the log. If the log also has a `self.model`, model and log hold each
# other: a cycle. On a real GPU `torch.utils.viz._cycles.warn_tensor_cycles()` warns of each cycle that held a CUDA tensor
# when the collector frees it ([how it is used](https://pytorch.org/blog/understanding-gpu-memory-2/)).

# %% [markdown]
# **Exercise 8.4 — break the cycle** (★★, 7 min)
#
# Write a log whose memory is free as soon as the log goes.
#
# <details><summary>Hint 1</summary>The hook needs the dictionary, not the log. And the hook must not hold the log: what would then
# let the log go?</details>
#
# <details><summary>Hint 2</summary><code>register_forward_hook</code> returns a handle with <code>remove()</code>. The handle
# refers to the layer only weakly. Who calls <code>remove()</code> when the log goes?</details>
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
    the cycle collector. The log keeps neither the model nor a layer alive, and the model not the log. There may be
    several logs on one model. Every forward pass runs every layer once, and each returns one tensor, which no other
    layer changes. A model may have no children.
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
from helpers.lessons.memory_pools.exercises import Net, check_ActivationLog

check_ActivationLog(Net([4, 8, 3], batch=5))

# %% hidden="activation_log" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.memory_pools.exercises import Net, check_ActivationLog

check_ActivationLog(
    Net([6, 5], 3, blocks=True),
    Net([16, 32, 8, 8], 20, blocks=True),
    Net([9, 7, 7], 4, blocks=True, frozen=True),
    Net([5], 2, frozen=True),
)
### END HIDDEN TESTS

# %% [markdown]
# ### On a real GPU (2 min)
#
# The documents of section 3 at a quarter of their size, on a card with room for all of them: in order of length, with
# `expandable_segments`, and longest first. They are simulated, and were recorded on a real H100 (and run live, if you have a
# GPU). What is reserved beyond what is allocated is the price of the temporaries: it depends on order and option.

# %% experiment
experiments.on_the_card()

# %% [markdown]
# Simulated and recorded bytes are the same. Within one stream sizes depend on no clock: they follow from the allocator's
# rules, which the simulator follows too. That is why this lesson can count bytes without a GPU. `expandable_segments` needs
# one segment in place of 17, and reserves about half as much. Longest first reserves least, with the default options.
#
# The error of section 3 advises `expandable_segments:True` even if the option is on
# ([issue 173049](https://github.com/pytorch/pytorch/issues/173049)). It names the older variable `PYTORCH_CUDA_ALLOC_CONF`. Where it and `PYTORCH_ALLOC_CONF` are both set, [the older one
# counts](https://github.com/pytorch/pytorch/blob/v2.13.0/c10/cuda/CUDAAllocatorConfig.h#L133-L151).
