# %% [markdown]
# # 05 · Streams and double buffering
#
# ## Can copies hide behind compute?
#
# A GPU has one engine that computes and others that copy, and they can work at the same time. A program that
# says nothing about it gets one after the other: copy a batch, compute, copy the next. To have both at once
# takes two queues and a few lines. The same few lines can be wrong in ways that give right results all day on
# your machine and wrong ones on the next. So this lesson has two halves: how copies are hidden, and how one
# knows that nobody reads a batch that has not arrived.
#
# **Time** 75–80 min, two thirds of it exercises. **Before this** lessons 00 (the simulated GPU, its clock)
# and 03 (the queue).
#
# **Afterwards you can**
# - say which copies hold the host, which hold the GPU, and which neither;
# - write a prefetcher that hides copies behind compute, and predict what it gains;
# - find a missing wait from the order of events, not from the result, and know what the memory allocator has
#   to do with it.
#
# **On trial** *everything runs in one queue by default* · *non_blocking cannot corrupt data, since the queue is
# in order* · *double buffering speeds up copying* · *with little data it hardly shows* ·
# *`submit_stream.wait_stream(running_stream)`* (book notes) · *`pin_memory=True`* (five strategies).

# %% setup
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from helpers import lesson, plots, simulate
from helpers.timing import format_seconds

lesson.start("05_streams_and_double_buffering", evidence=["simulated (H100)"])

# %% [markdown]
# What the simulator assumes here: the bus reaches {{pinned_gbs:.0f}} of the {{sheet_gbs:.0f}} GB/s on the H100's data
# sheet, and copies from ordinary memory go through the host at {{pageable_gbs:.0f}} GB/s. Both shares are round numbers.
# One engine computes, one copies to the device, one back; a data-centre card has at least these. What waits for what is
# exact.
#
# ## 1 · Who waits for a copy?
#
# Four products are in the queue, {{queued_ms:.0f}} ms of work. Now the host copies 64 MiB to the GPU. **Pinned** memory is
# page-locked: the system may not move it, so the copy engine can read it without the CPU's help. Ordinary memory
# is called *pageable*. For each call: does the host **wait** for the copy, or does it **go on** at once?

# %% experiment
said_of_calls = {  # "waits" or "goes on"
    "pageable": ...,
    "pageable, non_blocking=True": ...,
    "pinned": ...,
    "pinned, non_blocking=True": ...,
    "32 KiB, pageable, non_blocking=True": ...,
}

# %% experiment
from helpers.simulator import DEVICES

BATCH = (4096, 4096)  # float32: 64 MiB


def copy_behind_products(shape, pinned, non_blocking):
    """A copy with four products queued before it and one behind: (seconds the call took, kernels and copies)."""
    gpu = simulate("H100")
    with gpu:
        w = torch.empty(4096, 4096, device=gpu.device)
        batch = torch.empty(shape, pin_memory=pinned)
        w @ w
        gpu.synchronize()  # set-up is over
        first = len(gpu.kernels)
        for _ in range(4):
            w @ w
        before = gpu.clock()
        batch.to(gpu.device, non_blocking=non_blocking)
        took = gpu.clock() - before
        w @ w
        gpu.synchronize()
    return took, gpu.kernels[first:]


def beside(kernels):
    """Seconds in which a copy and a kernel run at the same time."""
    pairs = [(a, b) for a in kernels for b in kernels if a.kind != "kernel" and b.kind == "kernel"]
    return sum(max(0, min(a.end_ns, b.end_ns) - max(a.start_ns, b.start_ns)) for a, b in pairs) / 1e9


rows, waits, calls = [], {}, {}
for call in said_of_calls:
    shape = (8192,) if "32 KiB" in call else BATCH
    took, kernels = copy_behind_products(shape, "pinned" in call, "non_blocking" in call)
    copy = next(k for k in kernels if k.kind == "copy h2d")
    calls[call] = took, copy.duration_s, copy.bytes / copy.duration_s / 1e9
    waits[call] = "waits" if took > 1e-3 else "goes on"
    queued_s = sum(k.duration_s for k in kernels[:4])
    rows.append(
        (
            call,
            *map(format_seconds, calls[call][:2]),
            f"{calls[call][2]:.0f} GB/s",
            format_seconds(beside(kernels)),
        )
    )
lesson.keep(
    queued_ms=1e3 * queued_s,
    pinned_gbs=calls["pinned"][2],
    pageable_gbs=calls["pageable"][2],
    sheet_gbs=DEVICES["H100"].pcie_bytes_per_s / 1e9,
)
lesson.table(
    rows,
    ["call", "holds the host for", "the copy itself", "rate", "beside a kernel"],
    evidence="simulated (H100)",
)

# %% experiment
lesson.compare_predictions(
    said_of_calls, waits, evidence="simulated (H100)", what="the host", choices=["waits", "goes on"]
)

# %% [markdown]
# Pageable memory waits whatever you ask for: the host itself has to feed the bytes to the copy engine (up to
# 64 KiB fit into the driver's own buffer; the last row). And it waits longer than the copy takes: a copy has its
# place in the queue, and the four products come first. (CUDA says that from pageable memory the driver *may* wait
# for the queue: [*API synchronization behavior*](https://docs.nvidia.com/cuda/cuda-runtime-api/api-sync-behavior.html).
# The simulator always does.) Only **pinned and `non_blocking`** together let the host
# go on. `pin_memory=True` alone makes the copy faster and keeps the wait.
#
# The last column is the disappointment. Nothing ran beside a kernel, not even in the fourth row: the host is free, but
# the GPU still does one thing after the other, because all of it is in one queue. Nobody asked for a second one.
#
# ## 2 · Two queues
#
# A **stream** is a queue: in one stream, work runs in the order in which it was put in. Between two streams
# there is no order, unless you make one. `a.wait_stream(b)` makes one: whatever is put into `a` *from now on*
# starts after all that is in `b` *now*. The host does not wait for it; it is a note in the queue. (Inside
# `with gpu.stream(a)`, `current_stream()` *is* a: `a.wait_stream(gpu.current_stream())` there orders nothing.)
#
# An **event** is a mark in a queue, and has passed when the work before it is done:
#
# | call | what it does |
# |---|---|
# | `e.record()` or `a.record_event()` | puts the mark into the current stream, or into a; recorded again, it moves |
# | `b.wait_event(e)` | *b* waits for the mark, and for nothing behind it; the host goes on |
# | `e.synchronize()` | the *host* waits for it |
#
# Waiting for an event that was never recorded returns at once
# ([`CUDAEvent.h`](https://github.com/pytorch/pytorch/blob/v2.13.0/c10/cuda/CUDAEvent.h)).


# %% experiment
def one_queue(gpu: Any, batches: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    for batch in batches:
        yield batch.to(gpu.device, non_blocking=True)


def two_queues(gpu: Any, batches: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    side = gpu.Stream()
    for batch in batches:
        with gpu.stream(side):
            x = batch.to(gpu.device, non_blocking=True)
        gpu.current_stream().wait_stream(side)  # whoever uses x comes after the copy
        x.record_stream(gpu.current_stream())  # section 3
        yield x


def run(load, *, shape=BATCH, pinned=True, item=False, steps=20):
    """20 steps: take a batch, multiply it by a square matrix. step: seconds; ran: kernels and copies; grown: bytes
    of memory reserved meanwhile."""
    gpu = simulate("H100", strict=False)  # False: a race is noted in gpu.races, not raised
    with gpu:
        w = torch.empty(shape[1], shape[1], device=gpu.device)
        (w @ w)[0, 0].item()  # set-up
        host = [torch.empty(shape, pin_memory=pinned) for _ in range(steps)]
        held, first, start = gpu.memory_reserved(), len(gpu.kernels), gpu.clock()
        for x in load(gpu, host):
            y = x @ w
            if item:
                y[0, 0].item()  # a step that looks at its loss
            del x, y
        gpu.synchronize()
        step, grown = (gpu.clock() - start) / steps, gpu.max_memory_reserved() - held
    return SimpleNamespace(gpu=gpu, step=step, ran=gpu.kernels[first:], grown=grown)


# %% [markdown]
# The pinned copy of a batch takes C = {{c_pinned_ms:.1f}} ms, the pageable one {{c_pageable_ms:.1f}} ms, the product
# K = {{k_ms:.1f}} ms. For each loop: is a step about the **sum** C + K, or the **max** of the two?

# %% experiment
said_of_steps = {  # "sum" or "max"
    "one queue, pageable": ...,
    "one queue, pinned": ...,
    "two queues, pageable": ...,
    "two queues, pinned": ...,
    "two queues, pinned, .item()": ...,
}

# %% experiment
rows, steps, copies_s = [], {}, {}
for name in said_of_steps:
    load = two_queues if name.startswith("two") else one_queue
    loop = run(load, pinned="pinned" in name, item="item" in name)
    copy, product = (
        next(k.duration_s for k in loop.ran if k.kind == kind) for kind in ("copy h2d", "kernel")
    )
    copies_s[name], both, larger = copy, copy + product, max(copy, product)
    steps[name] = "sum" if abs(loop.step - both) < abs(loop.step - larger) else "max"
    rows.append((name, *map(format_seconds, (copy, product, both, larger, loop.step))))

lesson.keep(
    c_pinned_ms=1e3 * copies_s["one queue, pinned"],
    c_pageable_ms=1e3 * copies_s["one queue, pageable"],
    k_ms=1e3 * product,
)
lesson.table(rows, ["loop", "C", "K", "C + K", "max", "a step"], evidence="simulated (H100)")

# %% experiment
lesson.compare_predictions(
    said_of_steps, steps, evidence="simulated (H100)", what="is", choices=["sum", "max"]
)

# %% experiment
lanes = []
for name, load in {"one queue": one_queue, "two queues": two_queues}.items():
    ran = run(load, steps=4).ran
    start = ran[0].launch_ns
    for k in ran:
        what = "product" if k.kind == "kernel" else "copy"
        lane = name if name == "one queue" else f"{name}: {'default' if what == 'product' else 'side'}"
        lanes.append((what, lane, (k.start_ns - start) / 1e9, (k.end_ns - start) / 1e9))
lanes.sort(key=lambda row: (row[1] != "one queue", "side" not in row[1], row[2]))
plots.timeline(
    lanes,
    evidence="simulated (H100)",
    links=False,
    title="Four steps: the first copy has nothing to hide behind",
)

# %% [markdown]
# What overlaps is *different engines*: copying with computing. (Two large products in two streams take turns: one
# fills the GPU alone.) Even the pageable copy hides: while the host is held, the product launched before it is
# running. But the host is held, and {{c_pageable_ms:.1f}} ms stay {{c_pageable_ms:.1f}} ms.
#
# The fifth loop is the trap. It has two queues, pinned memory and `non_blocking`, and is serial: `.item()`
# waits for this step's product, and the next copy is not launched before that wait ends. Without `.item()` the
# host runs ahead and launches copies early by itself. **The rule: the copy hides, and a step takes
# max(C, K), when the copy (1) has a stream of its own and (2) is launched before the host waits for the step in
# front of it. The host stays free, and C is small, when (3) it copies from pinned memory, non_blocking.** Point 2 is
# what "double buffering" adds: while one batch is in use, the next one is on its way.
#
# How much is it worth? Batches of 64 MiB, multiplied by square matrices of growing width: the same copy, more
# and more work for each byte. At which width does a second queue gain most?

# %% experiment
said_of_gain = {
    "best width": ...,  # 256, 1024, 2048, 4096 or 16384
    "gain there, at least 2×": ...,  # "yes" or "no"
}

# %% experiment
rows, gain, rates = [], {}, {}
for width in (256, 1024, 2048, 4096, 16384):
    shape = (2**24 // width, width)
    loops = [run(load, shape=shape) for load in (one_queue, two_queues)]
    copies = [[k for k in loop.ran if k.kind == "copy h2d"] for loop in loops]
    rates[width] = [sum(k.bytes for k in ks) / sum(k.duration_s for k in ks) / 1e9 for ks in copies]
    product = next(k.duration_s for k in loops[0].ran if k.kind == "kernel")
    gain[width] = loops[0].step / loops[1].step, copies[0][0].duration_s / product
    times = map(format_seconds, (product, *(loop.step for loop in loops)))
    rows.append(
        (
            width,
            f"{gain[width][1]:.2f}",
            *times,
            f"{gain[width][0]:.2f}×",
        )
    )
best = max(gain, key=lambda width: gain[width][0])
lesson.table(
    rows,
    ["width", "C ÷ K", "K", "one queue", "two queues", "gain"],
    evidence="simulated (H100)",
    caption="20 steps each; C is the same everywhere, in one queue and in two",
)

# %% experiment
lesson.compare_predictions(
    said_of_gain,
    {"best width": best, "gain there, at least 2×": "yes" if gain[best][0] >= 2 else "no"},
    evidence="simulated (H100)",
    choices={"best width": (256, 1024, 2048, 4096, 16384), "gain there, at least 2×": ("yes", "no")},
)
assert max(gained for gained, _ in gain.values()) < 2
lesson.keep(best_gain=gain[best][0], best_ratio=gain[best][1])

# %% [markdown]
# (C + K) ÷ max(C, K) would be 2 if the two were equal, never more, and falls to 1 on both sides: hiding a short
# copy saves a short copy, and behind a short product only that much fits. Of these widths the best has C ÷ K =
# {{best_ratio:.2f}} and gains {{best_gain:.2f}}×. Double buffering makes no copy faster
# (the same rate in both queues). It puts something beside it. If your C is larger than your K, send fewer bytes
# (uint8 images, lesson 04); no number of streams brings you below C.
#
# **Exercise 5.1 — a prefetcher** (★★, 9 min)
#
# `two_queues` is serial as soon as the consumer waits in each step. Write the loader that is not, for any
# iterable of batches.
#
# <details><summary>Hint 1</summary>When a batch is yielded, the copy of the next one must have been launched
# already: the consumer may wait for the GPU before it asks again.</details>
#
# <details><summary>Hint 2</summary>Yield outside of <code>with gpu.stream(side)</code>: what is current at a
# <code>yield</code> is current for the consumer. And a stream waits for what is in the other queue <i>when
# wait_stream is called</i>: call it before you launch the next copy, or this batch waits for that one too.</details>
#
# <details><summary>The idea</summary>Keep one batch in a variable. In a loop: let the current stream wait for the
# side stream, take the batch out of the variable, <code>record_stream</code> it, launch the copy of the next
# one into the variable, yield.</details>


# %% exercise="prefetch"
def prefetch(gpu: Any, batches: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield each batch on gpu.device, in order; while one is in use, the next is being copied.

    batches: CPU tensors of any shapes (also of no rows) and dtypes, each with memory of its own that nobody changes;
        there may be none. Pinned or not: from pageable memory it need not overlap, only be right.
    A yielded tensor is used on the stream that is current for the consumer, until the consumer asks for the next
    one. The consumer may wait for the GPU in every step, and may drop its tensor at any time.

    Takes at most 2 batches more from `batches` than it has yielded (memory!). Keeps at most one tensor that it has
    yielded and the consumer has dropped. No races.
    Simulated time of n pinned batches ≤ C + n · (max(C, K) + 60 µs): only the first copy has nothing to hide
    behind. C = bytes ÷ PCIe's rate, K = the consumer's kernels; 60 µs: launches, waits, a margin.
    """
    ### BEGIN SOLUTION
    side, source = gpu.Stream(), iter(batches)

    def launch():
        batch = next(source, None)
        if batch is None:
            return None
        with gpu.stream(side):
            return batch.to(gpu.device, non_blocking=True)

    coming = launch()
    while coming is not None:
        gpu.current_stream().wait_stream(side)
        here = coming
        here.record_stream(gpu.current_stream())
        coming = launch()
        yield here
    ### END SOLUTION


# %% test="prefetch" points=1
from helpers.exercises.streams_and_double_buffering import Batches, check_prefetch

check_prefetch(
    Batches("H100", 4096, 4096, n=8),
    Batches("H100", 4096, 4096, n=8, item=True),
    Batches("values", 48, 48, n=8, item=True),
)

# %% hidden="prefetch" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.streams_and_double_buffering import Batches, check_prefetch

check_prefetch(
    Batches("H100", 2048, 6144, n=9, item=True, own_stream=True),
    Batches("A100", 8192, 1024, n=7, item=True),
    Batches("A100", 3000, 2048, n=12, own_stream=True),
    Batches("H100", 2000, 2048, n=1, item=True),
    Batches("T4", 1000, 2048, n=5),
    Batches("values", 40, 48, n=9, item=True, own_stream=True),
)
### END HIDDEN TESTS

# %% hidden="prefetch" points=1
### BEGIN HIDDEN TESTS
import torch

from helpers.exercises.streams_and_double_buffering import Batches, check_prefetch

check_prefetch(  # right is worth a point, however slow
    Batches("values", (4, 7, 1, 7, 2), 3, quick=False),
    Batches("values", (4, 0, 3), 3, quick=False, dtype=torch.uint8),
    Batches("values", (), 3, quick=False),
    Batches("H100", (70_000, 3, 70_000), 3, pinned=False, quick=False),
    Batches("H100", (), 3, pinned=False, quick=False),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · Right by luck
#
# Without the line `wait_stream`, the loop would still give right results as long as the copy happens to be done
# in time. Here it is, on two days. On Monday the host is busy with something else for 2 ms between the copy and
# its use, on Tuesday for 0.5 ms.


# %% experiment
def no_wait(gpu, side, page, pause=5e-3):
    with gpu.stream(side):
        x = page.to(gpu.device, non_blocking=True)
    gpu.host_work(pause)
    return x.relu()


lanes, found = [], {}
for day, pause in {"Monday": 2e-3, "Tuesday": 0.5e-3}.items():
    gpu = simulate("H100", strict=False, kernel_load_s=0.0)
    with gpu:
        no_wait(gpu, gpu.Stream(), torch.empty(BATCH, pin_memory=True), pause)
    found[day], start = gpu.races, gpu.kernels[0].launch_ns
    for k in gpu.kernels:
        what, where = ("copy", "side") if k.kind == "copy h2d" else ("relu", "default")
        lanes.append((what, f"{day}: {where}", (k.start_ns - start) / 1e9, (k.end_ns - start) / 1e9))
plots.timeline(
    lanes,
    evidence="simulated (H100)",
    links=False,
    title="One program, two days: on Tuesday relu reads what has not arrived",
)

# %% experiment
print(f"races: {', '.join(f'{day} {len(races)}' for day, races in found.items())}\n{found['Monday'][0]}")

# %% [markdown]
# Both days have the same race, and it has nothing to do with the clock. The simulator does not ask whether the
# two met. It asks whether anything *in the program* puts one before the other: two pieces of work are ordered
# if they are in one stream, or if a chain of waits (`wait_stream`, an event, a synchronisation) leads from one
# to the other. This is called **happens-before**. Two accesses to the same memory, one of them a write, with no
# such chain are a **race**, on every run and every card. (It never shows you a wrong value: a simulated batch
# has none. A real GPU shows one some day.)
#
# Seven programs in which nothing meets by the clock. Which ones are a `"race"`, which are `"safe"`?


# %% experiment
def wait_too_early(gpu, side, page):
    gpu.current_stream().wait_stream(side)
    with gpu.stream(side):
        x = page.to(gpu.device, non_blocking=True)
    gpu.host_work(5e-3)
    x.relu()


def wrong_way(gpu, side, page):
    with gpu.stream(side):
        x = page.to(gpu.device, non_blocking=True)
    side.wait_stream(gpu.current_stream())
    gpu.host_work(5e-3)
    x.relu()


def by_event(gpu, side, page):
    with gpu.stream(side):
        x = page.to(gpu.device, non_blocking=True)
    arrived = side.record_event()
    gpu.current_stream().wait_event(arrived)
    x.relu()


def one_stream(gpu, side, page):
    x = page.to(gpu.device, non_blocking=True)
    x.relu()


def page_again(gpu, side, page):
    page.to(gpu.device, non_blocking=True)
    gpu.host_work(5e-3)
    page.fill_(1.0)  # the host puts the next batch into its buffer


def page_again_pageable(gpu, side, page):
    page = torch.empty(BATCH)
    page.to(gpu.device, non_blocking=True)
    page[0] = 1.0


def early_result(gpu, side, page):
    y = torch.empty(BATCH, device=gpu.device).to("cpu", non_blocking=True)
    gpu.host_work(5e-3)
    y[0].sum()


PROGRAMS = [wait_too_early, wrong_way, by_event, one_stream, page_again, page_again_pageable, early_result]

# %% experiment
said_of_programs = {  # "race" or "safe"
    "wait_too_early": ...,
    "wrong_way": ...,
    "by_event": ...,
    "one_stream": ...,
    "page_again": ...,
    "page_again_pageable": ...,
    "early_result": ...,
}

# %% experiment
found_in, rows = {}, []
for program in PROGRAMS:
    gpu = simulate("H100", strict=False)
    with gpu:
        program(gpu, gpu.Stream(), torch.empty(BATCH, pin_memory=True))
        touched = next((k.start_ns for k in gpu.kernels if k.name == "aten.relu"), gpu.clock_ns())
    copied = next(k.end_ns for k in gpu.kernels if k.kind != "kernel")
    found_in[program.__name__] = "race" if gpu.races else "safe"
    rows.append(
        (program.__name__, "yes" if touched < copied else "no", gpu.races[0].kind if gpu.races else "none")
    )
lesson.table(rows, ["program", "met by the clock", "race"], evidence="simulated (H100)")

# %% experiment
lesson.compare_predictions(said_of_programs, found_in, evidence="simulated (H100)", choices=["race", "safe"])

# %% [markdown]
# - A wait covers what is in the other queue **when it is called**: nothing that comes later (`wait_too_early`).
# - It has a direction: `a.wait_stream(b)` holds up *a* (`wrong_way`). Read it as a sentence.
# - In one stream the GPU needs no wait. The **host** does: it is not in the queue. It may write a pinned page
#   again, or read a result, only after a synchronisation (`page_again`, `early_result`). Waiting for one event
#   (`event.synchronize()`) is enough, and holds the host no longer than need be.
#
# ### Where the wait stands
#
# Another way to double-buffer: no copy stream, but two streams in turn, each with the copy *and* the training
# step of its batch. Two steps must not overlap, since both change the weights; copies may. One wait does it, if
# it stands in the right place:


# %% experiment
def in_turn(gpu, batches, w, optimizer, where):
    streams = gpu.Stream(), gpu.Stream()
    for stream in streams:
        stream.wait_stream(gpu.current_stream())
    for i, batch in enumerate(batches):
        submit, running = streams[i % 2], streams[(i + 1) % 2]
        with gpu.stream(submit):
            if where == "before the copy":
                submit.wait_stream(running)
            x = batch.to(gpu.device, non_blocking=True)
            if where == "between copy and step":
                submit.wait_stream(running)
            if where == "the other way round":
                running.wait_stream(submit)
            (x @ w).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    for stream in streams:
        gpu.current_stream().wait_stream(stream)


rows, places = [], {}
for where in ("before the copy", "between copy and step", "the other way round", "nowhere"):
    gpu = simulate("H100", strict=False)
    with gpu:
        w = torch.empty(4096, 4096, device=gpu.device, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)
        batches = [torch.empty(BATCH, pin_memory=True) for _ in range(10)]
        in_turn(gpu, batches[:2], w, optimizer, where)
        gpu.synchronize()
        start = gpu.clock()
        in_turn(gpu, batches, w, optimizer, where)
        gpu.synchronize()
        step = (gpu.clock() - start) / len(batches)
    places[where] = step, len(gpu.races)
    rows.append((where, format_seconds(step), len(gpu.races)))
assert [races > 0 for _, races in places.values()] == [False, False, True, True]
lesson.keep(saved_ms=1e3 * (places["before the copy"][0] - places["between copy and step"][0]))
lesson.table(rows, ["where the wait stands", "a step", "races"], evidence="simulated (H100)")

# %% [markdown]
# Only the second row is fast and right. The first is right and serial: its copy waits too, which costs
# {{saved_ms:.1f}} ms a step. The last two are as fast as the second and race for the weights. The book notes name this
# line, and not its place.
#
# ### Who gets the memory next?
#
# When a tensor dies, its memory goes back to PyTorch's *caching allocator*, not to the card, and the next tensor
# of that size takes it, at once: the allocator thinks in the order of **one** stream, the one in which the
# tensor was made. In that stream the new owner comes behind the old one's last use, so nothing need be waited
# for. But a batch is made in the copy stream and used in another. The next copy could write into it while the
# product still reads. `x.record_stream(s)` says "s uses this too": when x dies, its memory is taken again only
# after what was in s at that moment is *done*.
#
# The other way round needs a wait as well: a tensor made in the current stream may get memory that work still in
# that stream reads. To fill it from another stream, let that one wait first: `side.wait_stream(gpu.current_stream())`.
#
# ### Three programs that need you
#
# Each of these gives right results on a good day. (Before each, a tensor was dropped that the GPU still works on.)


# %% experiment
def squares_racy(gpu, pages):
    side, sums = gpu.Stream(), []
    for page in pages:
        with gpu.stream(side):
            x = page.to(gpu.device, non_blocking=True)
        sums.append((x @ x).sum())
    return torch.stack(sums)


def ring_racy(gpu, pages):
    side, sums = gpu.Stream(), []
    buffers = [torch.empty(pages[0].shape, device=gpu.device) for _ in range(2)]
    for i, page in enumerate(pages):
        x = buffers[i % 2]
        with gpu.stream(side):
            x.copy_(page, non_blocking=True)
        gpu.current_stream().wait_stream(side)
        sums.append((x @ x).sum())
    return torch.stack(sums)


def norms_racy(gpu, chunks):
    arrived = [(x @ x).sum().to("cpu", non_blocking=True) for x in chunks]
    return [value.item() for value in arrived]


rows = []
for program in (squares_racy, ring_racy, norms_racy):
    gpu = simulate("H100", strict=False)
    with gpu:
        device = gpu.device if program is norms_racy else "cpu"
        given = [torch.empty(2048, 2048, device=device, pin_memory=device == "cpu") for _ in range(4)]
        torch.empty(2048, 2048, device=gpu.device).zero_()  # dropped at once
        program(gpu, given)
    rows += [
        (program.__name__, r.kind, f"{r.first.name} on {r.first.lane}", f"{r.second.name} on {r.second.lane}")
        for r in gpu.races
    ]
lesson.table(rows, ["program", "race", "first", "second"], evidence="simulated (H100)")

# %% [markdown]
# **Exercise 5.2 — three racy programs** (★★★, 18 min)
#
# Repair each, and keep what overlaps. (`memory reused`: somebody writes into a dropped tensor's memory while the
# old tensor is still being used in another stream.)
#
# <details><summary>Hint 1</summary>For each row: which of the two has to come first, and in which queue is
# the other one? That one's stream (or the host) has to wait. The first two programs need two things each.</details>
#
# <details><summary>Hint 2</summary>In <code>ring</code>, the copy must come after the last use of <i>its own</i>
# buffer, two steps ago. <code>side.wait_stream(...)</code> would wait for the step before as well: then nothing
# overlaps. An event recorded after each use can be waited for later.</details>
#
# <details><summary>The idea</summary><code>squares</code>: wait, then <code>record_stream</code>.
# <code>ring</code>: after making the buffers, <code>side.wait_stream(gpu.current_stream())</code>; one event for each
# buffer, recorded after the product; before the copy, <code>side.wait_event(used[i % 2])</code>. <code>norms</code>:
# one <code>synchronize()</code> between the two lines.</details>


# %% exercise="repair"
def squares(gpu: Any, pages: list[torch.Tensor]) -> torch.Tensor:
    """Sum of all elements of x @ x for each page x. pages: n ≥ 1 pinned (d, d) CPU tensors. Returns (n,) on gpu.device.

    No races. Simulated time ≤ C + n · (max(C, K) + 60 µs): C a page's copy, K its product and sum. Memory: all the
    pages' may be taken.
    """
    ### BEGIN SOLUTION
    side, sums = gpu.Stream(), []
    for page in pages:
        with gpu.stream(side):
            x = page.to(gpu.device, non_blocking=True)
        gpu.current_stream().wait_stream(side)
        x.record_stream(gpu.current_stream())
        sums.append((x @ x).sum())
    return torch.stack(sums)
    ### END SOLUTION


def ring(gpu: Any, pages: list[torch.Tensor]) -> torch.Tensor:
    """The same, in little memory: the allocator's reserved bytes may grow by 5 pages (two buffers, one or two
    products, one to spare), however many pages there are. No races; the same time."""
    ### BEGIN SOLUTION
    side, sums = gpu.Stream(), []
    buffers = [torch.empty(pages[0].shape, device=gpu.device) for _ in range(2)]
    used = [gpu.Event(), gpu.Event()]
    side.wait_stream(gpu.current_stream())  # the buffers' memory may have been somebody's before
    for i, page in enumerate(pages):
        x = buffers[i % 2]
        with gpu.stream(side):
            side.wait_event(used[i % 2])
            x.copy_(page, non_blocking=True)
        gpu.current_stream().wait_stream(side)
        sums.append((x @ x).sum())
        used[i % 2].record()
    return torch.stack(sums)
    ### END SOLUTION


def norms(gpu: Any, chunks: list[torch.Tensor]) -> list[float]:
    """Sum of all elements of x @ x for each chunk x, as Python numbers. chunks: n ≥ 1,
    (d, d) each, on gpu.device; they stay as they are.

    No races. The host waits for the GPU at most twice, however many chunks there are.
    """
    ### BEGIN SOLUTION
    arrived = [(x @ x).sum().to("cpu", non_blocking=True) for x in chunks]
    gpu.synchronize()
    return [value.item() for value in arrived]
    ### END SOLUTION


# %% test="repair" points=1
from helpers.exercises.streams_and_double_buffering import Squares, check_squares

check_squares(Squares("values", 48, n=8), Squares("H100", 4096, n=8))

# %% test="repair" points=1
from helpers.exercises.streams_and_double_buffering import Squares, check_ring

check_ring(Squares("values", 48, n=8), Squares("H100", 4096, n=8))

# %% test="repair" points=1
from helpers.exercises.streams_and_double_buffering import Squares, check_norms

check_norms(Squares("values", 3, n=4), Squares("H100", 1024, n=8))

# %% hidden="repair" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.streams_and_double_buffering import Squares, check_norms, check_ring, check_squares

squared = (
    Squares("values", 40, 9),
    Squares("A100", 2048, 10),
    Squares("H100", 6000, 4),
    Squares("H100", 1500, 1),
)
check_squares(*squared)
check_ring(*squared)
check_norms(Squares("values", 4, 6), Squares("A100", 1024, 12), Squares("H100", 512, 1))
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · What `record_stream` costs
#
# The memory is taken again when the other stream's work is done: on the GPU, and the host is far ahead. 20 batches
# pass through each of three loaders, one at a time, and the host never waits. For how many batches does the allocator
# take memory from the card: 1, 2, 3 or 20? And which one has a race?

# %% experiment
said_of_memory = {
    "two_queues without record_stream": ...,  # batches: 1, 2, 3 or 20
    "two_queues, as above": ...,
    "two_buffers": ...,
    "one has a race": ...,  # "first", "second" or "third"
}


# %% experiment
def unrecorded(gpu, batches):
    """two_queues, without record_stream."""
    side = gpu.Stream()
    for batch in batches:
        with gpu.stream(side):
            x = batch.to(gpu.device, non_blocking=True)
        gpu.current_stream().wait_stream(side)
        yield x


def two_buffers(gpu, batches):
    """No new tensors: two that are filled in turn, each after its last use."""
    side, used = gpu.Stream(), [gpu.Event(), gpu.Event()]
    buffers = [torch.empty(batches[0].shape, device=gpu.device) for _ in range(2)]
    side.wait_stream(gpu.current_stream())
    for i, batch in enumerate(batches):
        with gpu.stream(side):
            side.wait_event(used[i % 2])
            buffers[i % 2].copy_(batch, non_blocking=True)
        gpu.current_stream().wait_stream(side)
        yield buffers[i % 2]
        used[i % 2].record()


rows, measured = [], {}
for name, load in zip(said_of_memory, (unrecorded, two_queues, two_buffers), strict=False):
    for item in (False, True)[: 1 + (load is two_queues)]:  # and once with a host that waits
        loop = run(load, item=item)
        kinds = ", ".join(r.kind for r in loop.gpu.races) or "none"
        batches = round(loop.grown / 2**26)
        rows.append((name, "yes" if item else "no", batches, kinds, format_seconds(loop.step)))
        if not item:
            measured[name] = batches
measured["one has a race"] = ("first", "second", "third")[
    [row[3] != "none" for row in rows if row[1] == "no"].index(True)
]
lesson.table(
    rows,
    ["loader", "host waits in each step", "batches of memory", "race", "a step"],
    evidence="simulated (H100)",
    caption="20 batches",
)

# %% experiment
lesson.compare_predictions(
    said_of_memory, measured, evidence="simulated (H100)", choices=[1, 2, 3, 20, "first", "second", "third"]
)
batches_of = [row[2] for row in rows]
lesson.keep(
    unrecorded=batches_of[0], recorded=batches_of[1], recorded_waits=batches_of[2], buffers=batches_of[3]
)

# %% [markdown]
# Without `record_stream`: {{unrecorded}} batches, and a race. With it: no race, and {{recorded}} batches. When the host
# asks for memory for batch 2, batch 0 has died, but the GPU has not read it yet. The allocator may not wait (that would
# hold the host), so it takes fresh memory from the card. How much depends on how far the host runs ahead: with a wait
# in each step the same loader needs {{recorded_waits}}. The third way says the same with events: it never frees
# anything, makes the *copy* wait and not the allocator, and holds {{buffers}} batches however far ahead the host is.
#
# **The rule: `record_stream` is right everywhere and costs memory where the host runs far ahead. Where memory
# is short, keep the buffers and order their uses with events.** (FSDP2 was written without
# `record_stream` for this reason, as
# [its documentation](https://docs.pytorch.org/docs/2.13/distributed.fsdp.fully_shard.html) says.)

# %% [markdown]
# ## 5 · Three engines and a host
#
# The way back is the same, on a third engine: results go to the host beside both copies in and compute. And the
# host is a stage of its own: it decodes what comes and saves what goes. With everything in a row a batch costs
# the sum of all; in a pipeline, only its slowest stage. The new thing is that the **host** is now inside the
# chain: it refills a page that a copy engine reads, and reads a page that one fills. No stream keeps it from
# doing so too early. Only `event.synchronize()` does, and each one is a chance to wait for too much.


# %% experiment
def pipeline_serial(gpu, pages, results, decode, compute, save, n):
    for i in range(n):
        decode(i, pages[0])
        y = compute(pages[0].to(gpu.device))
        results[0].copy_(y)
        save(i, results[0])


gpu = simulate("H100", context_s=0.0, library_s=0.0, kernel_load_s=0.0)
with gpu:
    w = torch.empty(2048, 2048, device=gpu.device)
    pages, results = ([torch.empty(2048, 2048, pin_memory=True) for _ in range(2)] for _ in range(2))
    pipeline_serial(
        gpu,
        pages,
        results,
        decode=lambda i, page: gpu.host_work(0.6e-3),
        compute=lambda x: torch.linalg.multi_dot([x, w, w, w, w]),
        save=lambda i, page: gpu.host_work(0.2e-3),
        n=3,
    )
    start = gpu.kernels[0].launch_ns
worked = [h for h in gpu.host if h.name == "host work"]
rows = [(("decode", "save")[i % 2], "CPU", h.start_ns, h.end_ns) for i, h in enumerate(worked)]
names = {"copy h2d": "copy in", "copy d2h": "copy out", "kernel": "compute"}
rows += [(names[k.kind], names[k.kind], k.start_ns, k.end_ns) for k in gpu.kernels]
first = rows[0][2]
plots.timeline(
    [(what, lane, (a - first) / 1e9, (b - first) / 1e9) for what, lane, a, b in rows],
    evidence="simulated (H100)",
    links=False,
    title="Three batches in a row: four workers, and one works",
)

# %% [markdown]
# **Exercise 5.3 — correct, and serial** (★★★, 25 min)
#
# Make `pipeline_serial` overlap, so that the slowest stage never waits. Four stages: the host (decode *and* save,
# D + S together), copy in (C), compute (K), copy out (B). You get two host buffers for each direction.
#
# <details><summary>Hint 1</summary>For each of the two kinds of page: what has to be over before the host
# touches it? That is one event per page. (Waiting for an event that was never recorded returns at once.)</details>
#
# <details><summary>Hint 2</summary>While the host waits for result i, it launches nothing. So save an earlier
# result, after the work of a later batch is in the queues.</details>
#
# <details><summary>The idea</summary>Step i: wait until page i % 2 was read, decode, copy in (own stream), let the
# current stream wait for it, compute; then wait for result i − 2 and save it; then copy y out in a third stream
# that waits for the compute. Two more steps at the end, which only save. x and y each cross streams:
# <code>record_stream</code>.</details>


# %% exercise="pipeline"
def pipeline(
    gpu: Any,
    pages: list[torch.Tensor],
    results: list[torch.Tensor],
    decode: Callable[[int, torch.Tensor], None],
    compute: Callable[[torch.Tensor], torch.Tensor],
    save: Callable[[int, torch.Tensor], None],
    n: int,
) -> None:
    """Decode, copy in, compute, copy out and save n ≥ 0 batches. All are saved on return.

    pages, results: two pinned CPU tensors each, for batches on their way in and out.
    decode(i, page): the host fills a page; takes D seconds. Called for 0, 1, …, n − 1, each once.
    compute(x) -> y: launches kernels in the current stream, K seconds; x on gpu.device, shaped like a page, y like
        a result. It keeps neither. Call it in the stream that is current when you are called.
    save(i, result): the host reads a page; takes S seconds. Called for 0, 1, …, n − 1, each once, in order.

    No races, the host's own included. You may be called within `with gpu.stream(…)`.
    Simulated time ≤ n · (m + 100 µs) + 2 · (D + C + K + B + S): m = max(D + S, C, K, B), with C and B the copies in
    and out. The second term fills and empties the pipeline. In every test m is more than all the others together,
    so one batch ahead is enough. Memory may hold what the GPU still works on: the caller may have dropped it.
    """
    ### BEGIN SOLUTION
    up, down, here = gpu.Stream(), gpu.Stream(), gpu.current_stream()
    read, arrived = ([gpu.Event(), gpu.Event()] for _ in range(2))
    for i in range(n + 2 if n else 0):
        k = i % 2
        if i < n:
            read[k].synchronize()
            decode(i, pages[k])
            with gpu.stream(up):
                x = pages[k].to(gpu.device, non_blocking=True)
                read[k].record()
            here.wait_stream(up)
            x.record_stream(here)
            y = compute(x)
        if i >= 2:
            arrived[k].synchronize()
            save(i - 2, results[k])
        if i < n:
            down.wait_stream(here)
            with gpu.stream(down):
                results[k].copy_(y, non_blocking=True)
                arrived[k].record()
            y.record_stream(down)
    ### END SOLUTION


# %% test="pipeline" points=2
from helpers.exercises.streams_and_double_buffering import Stages, check_pipeline

check_pipeline(
    Stages("values", (96, 48), (96, 8), 1, decode_s=1e-4, save_s=1e-4, n=8),
    Stages("H100", (8192, 1024), (8192, 512), 1, decode_s=0.05e-3, save_s=0.05e-3, n=20),  # the copies
    Stages("H100", (2048, 2048), (2048, 256), 1, decode_s=2e-3, save_s=1e-3, n=12),  # the host
)

# %% hidden="pipeline" points=4
### BEGIN HIDDEN TESTS
from helpers.exercises.streams_and_double_buffering import Stages, check_pipeline

check_pipeline(
    Stages("values", (96, 8), (96, 48), 1, 1e-4, 3e-4, 9),
    Stages("values", (8, 12), (8, 12), 2, 1e-3, 2e-3, 7),
    Stages("H100", (8192, 1024), (8192, 512), 1, 0.03e-3, 0.05e-3, 16),
    Stages("H100", (8192, 512), (8192, 1024), 1, 0.05e-3, 0.03e-3, 16),
    Stages("A100", (2048, 1024), (2048, 1024), 12, 0.3e-3, 0.9e-3, 14),
    Stages("A100", (1024, 1024), (1024, 1024), 1, 0.2e-3, 1.5e-3, 11),
    Stages("H100", (512, 512), (512, 512), 1, 1e-3, 1e-3, 1),
    Stages("values", (2, 2), (2, 2), 1, 0.0, 0.0, 0),
    Stages("values", (64, 8), (64, 48), 1, 1e-4, 3e-4, 6, own_stream=True),
)
### END HIDDEN TESTS

# %% [markdown]
# ## On the real GPU
#
# Three experiments, written with these same names, run live where there is a CUDA GPU, and show a recording where
# one exists. For this lesson none has been recorded yet; without a GPU you see them simulated, and each says so. A
# four-layer net on batches of 64 MiB that looks at its loss in each step: copied from pageable memory, from pinned
# memory, and from pinned memory with the next batch prefetched. The first step down is pinning, the second hiding.

# %% experiment
from helpers import recordings, trace

shown = {
    name: recordings.show(f"05/{name}", simulated="H100") for name in ("serial", "pinned", "double_buffered")
}
rows = []
for name, result in shown.items():
    o, about = trace.overlap(result.trace), "" if result.evidence.startswith("simulated") else "≈ "
    seconds = [o.span / len(trace.steps(result.trace)), o.copy, o.copy_and_compute]
    rows.append((name, *(about + format_seconds(s) for s in seconds), f"{about}{o.hidden_copy:.0%}"))
lesson.table(
    rows,
    ["loop", "a step", "copying, all steps", "beside kernels", "hidden"],
    evidence=shown["serial"].evidence,
)

# %% experiment
plots.zoom(
    shown["double_buffered"].trace, title="Double-buffered: the upper stream computes, the lower one copies"
)

# %% [markdown]
# What to look for on yours: how far are your copies from {{pageable_gbs:.0f}} and {{pinned_gbs:.0f}} GB/s (the host's
# part differs most)? Is the hidden share as high when the product is small? For races there, PyTorch has a
# [prototype](https://docs.pytorch.org/docs/stable/cuda._sanitizer.html) that works by the same principle, for kernels
# and not for the host: `TORCH_CUDA_SANITIZER=1`.
#
# ## Sources on trial

# %% experiment tags=["fold"]
gpu = simulate("H100")
with gpu:  # a training step that names no stream
    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512, device=gpu.device) for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.empty(64, 512, pin_memory=True).to(gpu.device, non_blocking=True)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
ordered = all(a.end_ns <= b.start_ns for a, b in zip(gpu.kernels, gpu.kernels[1:], strict=False))
streams = len({k.stream for k in gpu.kernels})
one, two = rates[best]
small, large = (gain[min(gain, key=lambda w: sign * gain[w][1])] for sign in (1, -1))
fast = min(step for step, _ in places.values()) * 1.05
good = [where for where, (step, races) in places.items() if step < fast and not races]
in_one_stream = {name: found_in[name] for name in ("one_stream", "page_again", "early_result")}
sections = [
    "1 · Who waits for a copy?",
    "2 · Two queues",
    "3 · Right by luck",
    "3 · Where the wait stands",
]
claims = [
    (
        "05-one-queue",
        "book-notes",
        "without a stream named, all work enters one queue and runs in the order of submission",
        f"three training steps: {len(gpu.kernels)} kernels and copies in {streams} stream, "
        f"{'each' if ordered else 'not each'} after the one before",
        "confirmed" if ordered and streams == 1 else "refuted",
        sections[1],
    ),
    (
        "05-non-blocking-safe",
        "book-notes",
        "non_blocking does not corrupt data, since the queue keeps the order",
        "in one stream: " + ", ".join(f"{name} {what}" for name, what in in_one_stream.items()),
        "holds when the host leaves the buffer alone until the copy is done",
        sections[2],
    ),
    (
        "05-speeds-the-copy",
        "book-notes",
        "double buffering mainly speeds up copying",
        f"{one:.1f} GB/s in one queue, {two:.1f} in two; the step: {gain[best][0]:.2f}× as fast",
        "refuted: it hides the copy" if abs(two / one - 1) < 0.02 else "confirmed",
        sections[1],
    ),
    (
        "05-small-data",
        "book-notes",
        "where little is copied, it hardly shows",
        f"C ÷ K = {small[1]:.2f}: {small[0]:.2f}×; {gain[best][1]:.2f}: {gain[best][0]:.2f}×; {large[1]:.2f}: {large[0]:.2f}×",
        "holds when little means little beside the compute; much beside little compute hardly shows either",
        sections[1],
    ),
    (
        "05-wait-stream",
        "book-notes",
        "`submit_stream.wait_stream(running_stream)` orders the two queues",
        "; ".join(
            f"{where}: {format_seconds(step)}, {races} races" for where, (step, races) in places.items()
        ),
        f"holds when it stands {good[0]}" if len(good) == 1 else "confirmed" if good else "refuted",
        sections[3],
    ),
    (
        "05-pin-memory",
        "five-strategies",
        "`pin_memory=True` is a key to an efficient loader",
        f"a call holds the host {format_seconds(calls['pageable'][0])}; pinned {format_seconds(calls['pinned'][0])}; "
        f"pinned and non_blocking {format_seconds(calls['pinned, non_blocking=True'][0])}",
        "holds when the copy is non_blocking too, and in a stream of its own; alone it only raises the rate",
        sections[0],
    ),
]
lesson.verdicts(claims, evidence="simulated (H100)")

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Pinned *and* `non_blocking`, or the host waits | up to 64 KiB the driver takes the bytes along |
# | A copy hides in a stream of its own | C > K: send fewer bytes; two kernels that each fill the GPU take turns |
# | Launch the next copy before you wait for this step | nobody waits: then the host runs ahead by itself |
# | `a.wait_stream(b)`: a waits for what is in b *now* | too much to wait for? An event says exactly what |
# | In one stream the GPU needs no wait | the host is in no stream: `event.synchronize()` |
# | Across streams: `record_stream` before the tensor dies | far-ahead hosts run out of memory: keep buffers, use events |
# | No race found by happens-before: none on any card | for the paths that ran: run the odd last batch as well |
#
# **For your own code**: is C + K or max(C, K) what you measure? · is every source pinned, every copy
# non_blocking? · what does the host wait for, and what is in the queues by then? · for every tensor that crosses
# streams: who waits, and who owns its memory? · for every pinned page: which event frees it?
#
# **To read on**: PyTorch, *CUDA semantics* (streams, backward passes, pinned memory) and *A guide on good usage
# of non_blocking and pin_memory()*; the CUDA Runtime API's page *API synchronization behavior*; L. Lamport, *Time,
# Clocks, and the Ordering of Events in a Distributed System* (1978), where happens-before comes from; C. Flanagan
# and S. Freund, *FastTrack* (2009), how to check it cheaply.
