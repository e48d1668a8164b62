# %% [markdown]
# # 05 · Streams and double buffering
#
# ## Can copies hide behind compute?
#
# A GPU has one engine that computes and others that copy. They can work at the same time. An ordinary program gets one
# thing after the other: copy a batch, compute, copy the next. With two queues and a few more lines, the copy runs
# beside the compute. The same few lines can be wrong, and give right results today and wrong ones tomorrow, on another
# machine.
#
# **Time** 60 min, 28 of them for two exercises; *Further*: 64 min, with two more exercises. **Before this** lessons 00
# (the simulated GPU and its clock) and 03 (the queue).
#
# **Afterwards you can**
# - say which copies make the host wait, and which run beside the compute;
# - write a prefetcher that hides copies behind compute;
# - find a missing wait from the order of events, and not from a wrong result.

# %% setup
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from helpers import lesson, simulate
from helpers.lessons.streams_and_double_buffering import experiments

BATCH = (4096, 4096)  # float32: 64 MiB
lesson.start(
    "05_streams_and_double_buffering", evidence=["simulated (H100)", "recorded (H100)", "live (CPU)"]
)

# %% [markdown]
# The GPU is simulated. The **bus** (PCIe) connects the host's memory and the GPU. It carries {{pinned_gbs:.0f}} of
# the {{sheet_gbs:.0f}} GB/s that PCIe 5.0 x16 has in one direction, and {{pageable_gbs:.0f}} GB/s from ordinary memory.
# Both numbers are assumptions (*On the real GPU* compares them with recorded ones). One engine computes, one copies to the
# device, one copies back; a data-centre card has at least these. Where CUDA says what waits for what, the simulator
# follows it.
#
# ## 1 · Who waits for a copy?
#
# Ordinary host memory is called **pageable**: the operating system may move it. **Pinned** memory may not be moved, so the
# GPU's copy engine can read it without the CPU's help
# ([`pin_memory`](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.pin_memory.html)).
#
# Four matrix products are in the GPU's queue, {{queued_ms:.0f}} ms of work. Now the host calls `batch.to(device)`, 64 MiB.
# Does the host **wait** until the copy is done, or does it **go on** at once?

# %% experiment
you = lesson.predict(
    {
        "pageable": ...,
        "pageable, non_blocking=True": ...,
        "pinned": ...,
        "pinned, non_blocking=True": ...,
    },
    choices=["waits", "goes on"],
)


# %% experiment
def copy_behind_products(pinned, non_blocking):
    gpu = simulate("H100")
    with gpu:
        w = torch.empty(4096, 4096, device=gpu.device)
        batch = torch.empty(BATCH, pin_memory=pinned)
        w @ w
        gpu.synchronize()  # set-up is over
        first = len(gpu.kernels)
        for _ in range(4):
            w @ w
        before = gpu.clock()
        batch.to(gpu.device, non_blocking=non_blocking)
        held = gpu.clock() - before
        w @ w
        gpu.synchronize()
    return experiments.copy_of(held, gpu.kernels[first:])


# %% experiment
copies = experiments.each_call(copy_behind_products)
waits = {call: copy.host for call, copy in copies.items()}
you.against(waits, experiments.copies_table(copies), evidence="simulated (H100)", what="the host")

# %% experiment tags=["fold"]
lesson.keep(queued_ms=1e3 * copies["pinned"].queued_s, sheet_gbs=experiments.pcie_gbs())
lesson.keep(pinned_gbs=copies["pinned"].gbs, pageable_gbs=copies["pageable"].gbs)

# %% [markdown]
# From pageable memory the host waits in both cases, because the host itself has to feed the bytes to the copy engine. It
# waits longer than the copy takes: the copy has its place in the queue, and the four products come first. (CUDA says only
# that the driver [*may*](https://docs.nvidia.com/cuda/cuda-runtime-api/api-sync-behavior.html) wait for the queue here.
# The simulator always does, for copies above 64 KB.) With **pinned and `non_blocking` together** the host goes on, if the
# batch is contiguous. Pinned memory alone makes the copy faster, but the host still waits.
#
# The last column says how long the copy ran beside a kernel: never. Even in the fourth row, where the host is free, all of
# the work is in one queue.
#
# ## 2 · Two queues
#
# A [**stream**](https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-streams) is a queue. In one stream, work runs in
# the order in which it was put in. Between two streams there is no order, unless you make one. `a = gpu.Stream()` makes
# a stream. Work goes into the **current** stream; this is the **default** stream (stream 0) until you choose another.
# An [**event**](https://docs.pytorch.org/docs/stable/cuda.html), `e = gpu.Event()`, is a mark that you put into a stream:
#
# | call | what it does |
# |---|---|
# | `with gpu.stream(a):` | inside, *a* is the current stream |
# | `a.wait_stream(b)` | what is put into *a* from now on starts after all that is in *b* now |
# | `e.record()` | puts the mark into the current stream; recorded again, the mark moves |
# | `e = a.record_event()` | makes a new mark and puts it into *a* |
# | `b.wait_event(e)` | what is put into *b* from now on starts after the mark, where it is now |
# | `e.synchronize()` | the *host* waits until the mark is reached |
#
# Only the last call holds the host. The four before it leave a note in a queue. Nobody waits for an event that was never
# recorded. The second of these loaders copies in a stream of its own, called `side`:


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
        x.record_stream(gpu.current_stream())  # keeps x's memory until x was used: section 3
        yield x


# %% [markdown]
# The batches are in pinned memory, and this loop uses them:
#
# ```python
# for x in loader(gpu, batches):
#     y = x @ w
#     if item:  # look at the result
#         y[0, 0].item()
# ```
#
# The copy takes C = {{c_ms:.1f}} ms, the product K = {{k_ms:.1f}} ms. Is a step about the **sum** C + K, or the **max** of C
# and K?

# %% experiment
you = lesson.predict(
    {
        "one queue": ...,
        "two queues": ...,
        "two queues, .item() in each step": ...,
    },
    choices=["sum", "max"],
)

# %% experiment
loops = {
    "one queue": experiments.run(one_queue),
    "two queues": experiments.run(two_queues),
    "two queues, .item() in each step": experiments.run(two_queues, item=True),
}
you.against(
    {name: loop.nearer for name, loop in loops.items()},
    experiments.loops_table(loops),
    experiments.queues_picture({"one queue": one_queue, "two queues": two_queues}),
    evidence="simulated (H100)",
    what="a step is about the",
)

# %% experiment tags=["fold"]
lesson.keep(c_ms=1e3 * loops["one queue"].copy_s, k_ms=1e3 * loops["one queue"].product_s)

# %% [markdown]
# Copying can overlap with computing, because they use different engines. (Two large products in two streams take turns:
# one fills the GPU alone. Small kernels can run together.)
#
# The last loop has two queues, pinned memory and `non_blocking`, and still nothing overlaps: it is **serial**. `.item()`
# waits for this step's product, and the next copy is launched only after that wait. Without `.item()` the host runs
# ahead and launches the copies early. Hardly anything limits how early (see the picture), and each one holds memory.
#
# **The rule.** A copy hides, and a step takes max(C, K), when the copy (1) has a stream of its own, (2) is launched
# before the host waits for the result of the previous batch, and (3) comes from pinned memory with `non_blocking=True`:
# else it holds the host, which launches no product meanwhile. With two batches in memory, one in use and one on its way,
# this is **double buffering**.

# %% [markdown]
# **Exercise 5.1 — a prefetcher** (★★, 13 min)
#
# `two_queues` becomes serial as soon as the consumer waits in each step. Write the loader that does not, for any iterable
# of batches. (In the tests, `"values"` are small batches with real numbers; `"H100"` are large ones, for times and races.)
#
# <details><summary>Hint 1</summary>When you yield a batch, the copy of the next batch must have been launched already:
# the consumer may wait for the GPU before it asks again.</details>
#
# <details><summary>Hint 2</summary>Yield outside of <code>with gpu.stream(side)</code>: what is current at a
# <code>yield</code> is current for the consumer. And a stream waits for what is in the other queue <i>when
# wait_stream is called</i>. Call it before you launch the next copy, or this batch waits for that copy too.</details>
#
# <details><summary>The idea</summary>Keep one batch in a variable. In a loop: let the current stream wait for the
# side stream, take the batch out of the variable, <code>record_stream</code> the batch, launch the copy of the next
# one into the variable, yield.</details>


# %% exercise="prefetch"
def prefetch(gpu: Any, batches: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield each batch on gpu.device, in order; while one is in use, the next is being copied.

    batches: CPU tensors of any shapes (also of no rows) and dtypes, each with memory of its own that nobody changes;
        there may be none. Pinned or not: from pageable memory it need not overlap, only be right.
    A yielded tensor is used only on the stream that was current when the consumer asked for it, and only until the
    consumer asks for the next one. The consumer may wait for the GPU in every step, and may drop its tensor at any time.

    Limits, for memory: ≤ 2 batches read ahead; ≤ 1 old tensor (yielded, and dropped by the consumer) still referenced
    by you. No races.
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
from helpers.lessons.streams_and_double_buffering.exercises import Batches, check_prefetch

check_prefetch(
    Batches("H100", 4096, 4096, n=8),
    Batches("H100", 4096, 4096, n=8, item=True),
    Batches("values", 48, 48, n=8, item=True),
)

# %% hidden="prefetch" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.streams_and_double_buffering.exercises import Batches, check_prefetch

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

from helpers.lessons.streams_and_double_buffering.exercises import Batches, check_prefetch

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
# Without the line `wait_stream`, the loop would still give right results whenever the copy happens to be done in time.
# Here is such a program on two days. Between the launch of the copy and its use, the host is busy:
# for 2 ms on Monday, for 0.5 ms on Tuesday. The copy takes {{c_ms:.1f}} ms. How many races does the simulated GPU
# count on each day?


# %% experiment
def no_wait(gpu, side, page, pause):
    with gpu.stream(side):
        x = page.to(gpu.device, non_blocking=True)
    gpu.host_work(pause)
    return x.relu()


# %% experiment
you = lesson.predict({"Monday": ..., "Tuesday": ...}, choices=[0, 1])

# %% experiment
days = {
    "Monday": experiments.try_program(no_wait, 2e-3),
    "Tuesday": experiments.try_program(no_wait, 0.5e-3),
}
you.against(
    {day: len(gpu.races) for day, gpu in days.items()},
    experiments.days_picture(days),
    experiments.races_table(days),
    evidence="simulated (H100)",
    what="races",
)

# %% [markdown]
# Both days have the same race (stream 1 is `side`), although on Monday the copy was over before `relu` began. The
# simulator does not ask whether two pieces of work overlap in time. It asks whether anything *in the program* puts one
# before the other. Two pieces of work are ordered if they are in one stream, or if a chain of waits (`wait_stream`, an
# event, a synchronisation) leads from one to the other. This order is called
# [**happens-before**](https://doi.org/10.1145/359545.359563). Two accesses to the same memory without this order, one of
# them a write, are a **race**: on every run and every card.
#
# Here are five programs. `side` is another stream, `page` a pinned batch on the host. Which ones have a race?


# %% experiment
def wait_too_early(gpu, side, page):
    gpu.current_stream().wait_stream(side)
    with gpu.stream(side):
        x = page.to(gpu.device, non_blocking=True)
    x.relu()


def wrong_way(gpu, side, page):
    with gpu.stream(side):
        x = page.to(gpu.device, non_blocking=True)
    side.wait_stream(gpu.current_stream())
    x.relu()


def by_event(gpu, side, page):
    with gpu.stream(side):
        x = page.to(gpu.device, non_blocking=True)
    gpu.current_stream().wait_event(side.record_event())
    x.relu()


def page_again(gpu, side, page):
    page.to(gpu.device, non_blocking=True)
    page.fill_(1.0)  # the host puts the next batch into the same memory


def early_result(gpu, side, page):
    x = page.to(gpu.device)
    y = x.relu().to("cpu", non_blocking=True)  # y is in pinned memory: .to() makes it there
    y[0].sum()


# %% experiment
you = lesson.predict(
    {"wait_too_early": ..., "wrong_way": ..., "by_event": ..., "page_again": ..., "early_result": ...},
    choices=["race", "safe"],
)

# %% experiment
programs = [wait_too_early, wrong_way, by_event, page_again, early_result]
ran = {program.__name__: experiments.try_program(program) for program in programs}
verdicts = {name: experiments.verdict(gpu) for name, gpu in ran.items()}
you.against(verdicts, experiments.races_table(ran), evidence="simulated (H100)", what="is a")

# %% [markdown]
# - A wait covers what is in the other queue **when it is called**, and nothing that comes later (`wait_too_early`).
# - A wait has a direction: in `a.wait_stream(b)`, *a* waits (`wrong_way`).
# - In one stream the GPU needs no wait. The **host** does, because the host is in no stream. It may write a pinned page
#   again, or read a result, only after a synchronisation (`page_again`, `early_result`). `gpu.synchronize()` waits for all
#   streams, `event.synchronize()` for one mark.
#
# ### Who gets the memory next?
#
# When a tensor dies, its memory goes back to PyTorch's *caching allocator*, and the next tensor of that size made in the
# same stream takes it at once. In that **one** stream the new owner's work comes after the last use by the old one. But
# our batch is made in `side` and used in another stream. The next copy could write into its memory while the product still
# reads.
# [`x.record_stream(s)`](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.record_stream.html) tells the
# allocator that *s* uses x too. When x dies, its memory is kept back until the work that is in *s* at that moment is
# done.
#
# Instead of a new tensor for each batch, a program can keep two and fill them in turn. This one has two kinds of race. Find
# both before you run the cell.


# %% experiment
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


experiments.races_table({"ring_racy": experiments.try_pages(ring_racy)})

# %% [markdown]
# The second row: a copy fills a buffer that a product (`aten.mm`) may still read. The first row, `memory reused`, means:
# somebody writes into a dead tensor's memory, and nothing puts this after the other stream's last use. Just before the
# program, a tensor was filled with zeros (`aten.zero_`) and dropped; a buffer gets its memory. Work in the default stream
# comes after the zeros. But `side`, which fills the buffer, waits for nothing.
#
# **Exercise 5.2 — two buffers in turn** (★★★, 15 min)
#
# Repair the program, and keep what overlaps.
#
# <details><summary>Hint 1</summary>The memory of the buffers: before the loop, <code>side</code> must wait once for
# the stream in which they were made.</details>
#
# <details><summary>Hint 2</summary>The copy must come after the last use of <i>its own</i> buffer, two steps ago.
# <code>side.wait_stream(...)</code> also waits for the step before, if that is launched: then nothing overlaps.
# An event recorded after each use can be waited for later.</details>
#
# <details><summary>The idea</summary>After making the buffers, <code>side.wait_stream(gpu.current_stream())</code>; one
# event for each buffer, recorded after the product; before the copy, <code>side.wait_event(used[i % 2])</code>.</details>


# %% exercise="ring"
def ring(gpu: Any, pages: list[torch.Tensor]) -> torch.Tensor:
    """Sum of all elements of x @ x for each page x. pages: n ≥ 1 pinned (d, d) CPU tensors. Returns (n,) on gpu.device.

    Each page is copied and each x @ x computed, once: it stands for the work that copies hide behind. The caller does
    not change the pages. Memory: a call may add 5 pages to the allocator's reserved bytes (two buffers, one or two
    products, one to spare), for any n. No races, also between two calls.
    Simulated time ≤ C + n · (max(C, K) + 60 µs): C a page's copy, K its product and sum.
    """
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


# %% test="ring" points=1
from helpers.lessons.streams_and_double_buffering.exercises import Squares, check_ring

check_ring(Squares("values", 48, n=8), Squares("H100", 4096, n=8))

# %% hidden="ring" points=1
### BEGIN HIDDEN TESTS
from helpers.lessons.streams_and_double_buffering.exercises import Squares, check_ring

check_ring(
    Squares("values", 40, 9),
    Squares("A100", 2048, 40),
    Squares("H100", 6000, 4),
    Squares("H100", 1500, 1),
)
### END HIDDEN TESTS

# %% [markdown]
# ## The running example
#
# The CUDA graph of lesson 07 needs a step without a wait, and the script still waits once in a step, for the copy of its
# batch. Below, the next batch is sent while the current step runs: from pinned memory, `non_blocking`, on a stream of its
# own. Each pinned page is dropped at once. This is safe: PyTorch's
# [allocator](https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/core/CachingHostAllocator.h) keeps it until
# the copy is done.

# %% experiment
import itertools

from helpers import running_example


def sent_ahead(batches, gpu):
    main, side = gpu.current_stream(), gpu.Stream()
    sent = None
    for pieces in itertools.chain(batches, [None]):
        ready = sent
        main.wait_stream(side)  # it has sent `ready`
        if pieces is not None:
            with gpu.stream(side):
                sent = pieces.pin_memory().to(gpu.device, non_blocking=True).long()
        if ready is not None:
            ready.record_stream(main)
            yield ready[:, :-1], ready[:, 1:]


# %% experiment
before = running_example.after("04")
faster = before.replace(to_device=sent_ahead)
board = running_example.compare(before, faster)
lesson.keep(script_bytes=board.after.copied_bytes)
experiments.time_and_waits(board)

# %% [markdown]
# Only the log still waits (a *sync*), once in five steps. The time stays as it was: the kernels fill nearly all of it
# (lesson 03), and a batch of {{script_bytes:,.0f}} bytes is a short copy. (The losses agree on the CPU, where nothing can
# race; the simulated GPU saw no race.)

# %% [markdown]
# ## Your own script
#
# The block profiles three of your steps, and prints whether your batches are pinned and whether any copy runs beside a
# kernel. Try first `DataLoader(…, pin_memory=True)` with `non_blocking=True`, then remove what waits in each step
# (`.item()`, lesson 03), and only then a stream of your own, as in Exercise 5.1. For races on a real GPU,
# [`TORCH_CUDA_SANITIZER=1`](https://docs.pytorch.org/docs/stable/cuda._sanitizer.html) is PyTorch's prototype. It works by
# happens-before too, for kernels, and neither for the host nor for *memory reused*.

# %% experiment
from helpers.own_script import simulated_cuda, toy

with simulated_cuda("H100") as gpu:  # at home: without this line, on your own GPU
    model, optimizer, loss_fn, loader, device, step = toy("cuda", batch=4096)

    batches = iter(loader)
    first = next(batches)
    step(first)  # kernels are loaded
    print("pinned:", [x.is_pinned() for x in first])
    with gpu.profile() as prof:  # at home: torch.profiler.profile()
        for _, batch in zip(range(3), batches):
            step(batch)
    prof.export_chrome_trace("copies.json.gz")

from helpers import trace

seen = trace.read("copies.json.gz")
o = trace.overlap(seen)
print(f"copy beside a kernel: {o.copy_and_compute / max(o.copy, 1e-9):.0%}")
print(trace.classify(seen))

# %% [markdown]
# The toy's batches are not pinned, and no copy is hidden. But more than half of the idle time has another cause: launches.
#
# ```bash
# python -m helpers copies.json.gz
# ```
#
# ## On the real GPU
#
# On a real GPU the calls are `torch.cuda.Stream()`, `torch.cuda.stream(a)` and so on. Here are three loops, simulated and
# recorded on a real H100 (and live, if you have a GPU). A step is
# `model(batch.to(device, non_blocking=True))[0, 0].item()`, with 64 MiB in pageable memory (`serial`) or in pinned memory
# (`pinned`). In `double_buffered` a prefetcher, as in Exercise 5.1, hands over the batch. The model is four linear layers.
# Is all of the copy hidden on the real GPU?

# %% experiment
real = experiments.real_loops(("serial", "pinned", "double_buffered"))
experiments.real_table(real)

# %% experiment tags=["fold"]
page, pin, double = (runs["recorded"] for runs in real.values())
lesson.keep(real_serial=1e3 * page.step_s, real_pinned=1e3 * pin.step_s, real_double=1e3 * double.step_s)
lesson.keep(page_gbs=64 * 2**20 / page.copy_s / 1e9, pin_gbs=64 * 2**20 / pin.copy_s / 1e9)
lesson.keep(real_idle=1e6 * double.idle_s, sim_idle=1e6 * real["double_buffered"]["simulated"].idle_s)
lesson.keep(real_hidden=double.hidden_s / double.copy_s)

# %% [markdown]
# Pin first: pinned memory takes a step from {{real_serial:.1f}} to {{real_pinned:.1f}} ms, although the host still waits in
# `.item()`. (One batch was pinned once, before the loop. Pinning each batch in the loop is one more copy, on the host:
# leave it to the `DataLoader`.) The second queue takes a step to {{real_double:.1f}} ms. The recorded rates are
# {{pin_gbs:.0f}} GB/s from pinned memory and {{page_gbs:.0f}} GB/s from pageable memory.
#
# The recorded GPU has longer gaps. With two queues it has no kernel for {{real_idle:.0f}} µs of each step, the simulated one
# for {{sim_idle:.0f}} µs. After `.item()` the queue is empty, and the real CPU, with the profiler on, needs longer for its
# Python and its launches. The copy is launched first and begins alone, so only {{real_hidden:.0%}} of it is hidden.

# %% [markdown]
# ## Sources on trial
#
# These claims are judged by what you saw above. Lesson 18 has three more.

# %% experiment
from helpers.lessons.streams_and_double_buffering import claims

lesson.verdicts(
    claims.on_trial(copies, verdicts, real, one_queue, two_queues),
    evidence="simulated (H100) · recorded (H100)",
    shown=("05-pin-memory", "05-speeds-the-copy"),
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Pin first: in the recorded loops that is most of the gain. | Short copies; pinning in the loop, which copies once more. |
# | Pinned *and* `non_blocking`, or the host may wait. | `non_blocking` copies up to 64 KB: there it may go on at once from pageable memory, too. |
# | Such a copy hides in a stream of its own. | C > K: send fewer bytes. |
# | Launch the next copy before you wait for this step. | A loop that never waits: its host runs ahead anyway. |
# | `a.wait_stream(b)`: *a* waits for what is in *b* now. | *b* holds later work that *a* does not need: wait for an event. |
# | In one stream the GPU needs no wait. | The host is in no stream: `event.synchronize()`. |
# | Across streams: `record_stream` before the tensor dies. | A host that runs far ahead fills the memory: *Further*. |
#
# **Read on**: PyTorch, [*CUDA semantics*](https://docs.pytorch.org/docs/stable/notes/cuda.html) (streams, pinned memory) and
# [*A guide on good usage of non_blocking and pin_memory()*](https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html)
# · L. Lamport, [*Time, clocks, and the ordering of events in a distributed system*](https://doi.org/10.1145/359545.359563)
# (1978).

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# Four sections that stand alone.
#
# ### How much is a second queue worth? (4 min)
#
# Batches of 64 MiB are multiplied by square matrices of growing width. The copy is always the same, C = {{c_ms:.1f}} ms.
# The product's time grows with the width; at 4,096 it was K = {{k_ms:.1f}} ms. At which width does the second queue gain
# most, and is the loop there at least twice as fast?

# %% experiment
you = lesson.predict(
    {"the gain is largest at width": ..., "the loop is at least twice as fast there": ...},
    choices={
        "the gain is largest at width": [256, 1024, 2048, 4096, 16384],
        "the loop is at least twice as fast there": ["yes", "no"],
    },
)

# %% experiment
widths = (256, 1024, 2048, 4096, 16384)
loops = {
    w: [experiments.run(load, shape=(2**24 // w, w)) for load in (one_queue, two_queues)] for w in widths
}
gain = {width: alone.step_s / beside.step_s for width, (alone, beside) in loops.items()}
best = max(gain, key=gain.get)
lesson.keep(best_gain=gain[best], best_ratio=loops[best][0].copy_s / loops[best][0].product_s)
answers = {
    "the gain is largest at width": best,
    "the loop is at least twice as fast there": "yes" if gain[best] >= 2 else "no",
}
rows = {f"width {width:,}, two queues": beside for width, (_, beside) in loops.items()}
you.against(answers, experiments.loops_table(rows), evidence="simulated (H100)", what="simulated")

# %% [markdown]
# In one queue a step takes C + K. The gain is (C + K) ÷ max(C, K), a little less here, because nothing hides the first of
# the 20 copies. It would be 2 if C and K were equal, and is never more. It falls towards 1 on both sides: hiding a short copy
# saves a short copy, and behind a short product only that much of the copy fits. Of these widths the best has
# C ÷ K = {{best_ratio:.2f}} and is {{best_gain:.2f}} times as fast.
#
# Double buffering makes no copy faster. Something else runs beside the copy. If C is larger than K, send fewer bytes
# (uint8, lesson 04): no number of streams brings a step below C.
#
# ### Two racy programs (2 min, and an exercise)
#
# Both programs give right results on a good day. How many races does each have (the same two lines count once), and which
# lines are missing? (As in `early_result`, what arrives at the CPU is in pinned memory.)


# %% experiment
def squares_racy(gpu, pages):
    side, sums = gpu.Stream(), []
    for page in pages:
        with gpu.stream(side):
            x = page.to(gpu.device, non_blocking=True)
        sums.append((x @ x).sum())
    return torch.stack(sums)


def norms_racy(gpu, chunks):
    arrived = [(x @ x).sum().to("cpu", non_blocking=True) for x in chunks]
    return [value.item() for value in arrived]


# %% experiment
you = lesson.predict({"squares_racy": ..., "norms_racy": ...}, choices=[0, 1, 2, 3])

# %% experiment
racy = {
    "squares_racy": experiments.try_pages(squares_racy),
    "norms_racy": experiments.try_pages(norms_racy, on_gpu=True),
}
races = {name: len(gpu.races) for name, gpu in racy.items()}
you.against(races, experiments.races_table(racy), evidence="simulated (H100)", what="races")

# %% [markdown]
# **Exercise 5.3 — two racy programs** (★★, 14 min)
#
# Repair both programs, and keep what overlaps. (In the table, `aten._to_copy` is `.to`, `aten.mm` is `@`, and
# `aten._local_scalar_dense` is `.item()`.)
#
# <details><summary>Hint 1</summary>For each row of the table: which of the two has to come first, and in which queue is
# the other one? The stream of that other one (or the host) has to wait. Here the <i>memory reused</i> row needs no wait: tell
# the allocator who else uses the tensor.</details>
#
# <details><summary>Hint 2</summary><code>squares</code> needs two more lines, one for each of its races.
# <code>norms</code> needs one line, outside of any loop.</details>
#
# <details><summary>The idea</summary><code>squares</code>: wait, then <code>record_stream</code>.
# <code>norms</code>: one <code>gpu.synchronize()</code> between the two lines.</details>


# %% exercise="repair"
def squares(gpu: Any, pages: list[torch.Tensor]) -> torch.Tensor:
    """Sum of all elements of x @ x for each page x. pages: n ≥ 1 pinned (d, d) CPU tensors. Returns (n,) on gpu.device.

    Each page is copied and each x @ x computed, once: it stands for work, so no short cut by algebra. The caller does
    not change the pages. No races, also between two calls. Simulated time ≤ C + n · (max(C, K) + 60 µs): C a page's
    copy, K its product and sum. Memory is not limited (the next section says why).
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


def norms(gpu: Any, chunks: list[torch.Tensor]) -> list[float]:
    """Sum of all elements of x @ x for each chunk x, as Python numbers. chunks: n ≥ 1,
    (d, d) each, on gpu.device; they stay as they are.

    Each x @ x is computed, once, as in squares. No races. The host waits for the GPU at most twice, however many
    chunks there are.
    """
    ### BEGIN SOLUTION
    arrived = [(x @ x).sum().to("cpu", non_blocking=True) for x in chunks]
    gpu.synchronize()
    return [value.item() for value in arrived]
    ### END SOLUTION


# %% test="repair" points=1
from helpers.lessons.streams_and_double_buffering.exercises import Squares, check_squares

check_squares(Squares("values", 48, n=8), Squares("H100", 4096, n=8))

# %% test="repair" points=1
from helpers.lessons.streams_and_double_buffering.exercises import Squares, check_norms

check_norms(Squares("values", 3, n=4), Squares("H100", 1024, n=8))

# %% hidden="repair" points=2
### BEGIN HIDDEN TESTS
from helpers.lessons.streams_and_double_buffering.exercises import Squares, check_norms, check_squares

check_squares(
    Squares("values", 40, 9),
    Squares("A100", 2048, 10),
    Squares("H100", 6000, 4),
    Squares("H100", 1500, 1),
)
check_norms(Squares("values", 4, 6), Squares("A100", 64, 200), Squares("H100", 512, 1))
### END HIDDEN TESTS

# %% [markdown]
# ### What does `record_stream` cost? (6 min)
#
# (Do Exercise 5.2 first: `two_buffers` below gives its idea away.) 20 batches pass through three loaders, one batch at a
# time, and the host never waits. For how many batches does the allocator take memory from the card, and which loader has
# a race?


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


# %% experiment
you = lesson.predict(
    {
        "unrecorded: batches of memory": ...,
        "two_queues: batches of memory": ...,
        "two_buffers: batches of memory": ...,
        "the loader with a race": ...,
    },
    choices={
        "unrecorded: batches of memory": [1, 2, 3, 20],
        "two_queues: batches of memory": [1, 2, 3, 20],
        "two_buffers: batches of memory": [1, 2, 3, 20],
        "the loader with a race": ["unrecorded", "two_queues", "two_buffers"],
    },
)

# %% experiment
loops = {load.__name__: experiments.run(load) for load in (unrecorded, two_queues, two_buffers)}
answers = {f"{name}: batches of memory": experiments.batches(loop) for name, loop in loops.items()}
answers["the loader with a race"] = next(name for name, loop in loops.items() if loop.races)
loops["two_queues, the host waits in each step"] = waiting = experiments.run(two_queues, item=True)
lesson.keep(
    unrecorded=experiments.batches(loops["unrecorded"]), recorded=experiments.batches(loops["two_queues"])
)
lesson.keep(recorded_waits=experiments.batches(waiting), buffers=experiments.batches(loops["two_buffers"]))
you.against(answers, experiments.memory_table(loops), evidence="simulated (H100)", what="simulated")

# %% [markdown]
# Without `record_stream` there are {{unrecorded}} batches (the loop holds one while the next is made), and a race. With
# it there is no race, and {{recorded}} batches. When the host asks for memory for batch 2, batch 0 has died, but the GPU
# has not read it yet. The allocator does not wait for the GPU, because that would hold the host. So it takes fresh memory
# from the card. How much depends on how far the host runs ahead: with a wait in each step the same loader needs
# {{recorded_waits}}. The third loader never frees anything. There the *copy* waits, by events, and {{buffers}} batches are
# enough however far ahead the host is.
#
# **The rule:** `record_stream` orders nothing. It is right for the stream that you name, together with a wait, and before
# the tensor dies. It costs memory where the host runs far ahead. Where memory is short, keep the buffers and order their
# uses with events. (FSDP2, of lesson 15, avoids `record_stream` for this reason: [PyTorch's
# tutorial](https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html), "How FSDP2 works".)
#
# ### Three engines and a host (3 min, and an exercise)
#
# A third engine copies results back to the host, beside the copies in and the compute. The host is a stage too: it
# decodes each batch before the copy in, and saves each result after the copy out. With everything in a row, a batch costs
# the sum of all stages. In a pipeline it costs only the slowest stage.
#
# What is new: the **host** is inside the chain. It refills a page that a copy engine reads, and it reads a page that a
# copy engine fills. No stream keeps the host from doing so too early. A synchronisation does, such as
# `event.synchronize()`.


# %% experiment
def pipeline_serial(gpu, pages, results, decode, compute, save, n):
    for i in range(n):
        decode(i, pages[0])
        y = compute(pages[0].to(gpu.device))
        results[0].copy_(y)
        save(i, results[0])


# %% experiment
from helpers import plots

with simulate("H100") as gpu:
    w = torch.empty(2048, 2048, device=gpu.device)
    pages, results = ([torch.empty(2048, 2048, pin_memory=True)] for _ in range(2))
    pages[0].to(gpu.device) @ w  # set-up
    gpu.synchronize()
    began = gpu.clock()
    pipeline_serial(
        gpu, pages, results, n=3,
        decode=lambda i, page: gpu.host_work(0.6e-3),
        compute=lambda x: x @ w @ w @ w,
        save=lambda i, page: gpu.host_work(0.2e-3),
    )  # fmt: skip
plots.timeline(
    gpu, since_s=began, evidence=gpu.evidence, links=False, title="Three batches: one stage works at a time"
)

# %% [markdown]
# *host work* is decode and save. In both copies the CPU waits until the GPU is done: neither is `non_blocking`.
#
# **Exercise 5.4 — a pipeline with the host in it** (★★★, 35 min)
#
# Make `pipeline_serial` overlap, so that the slowest stage never waits. There are four stages: the host (decode *and*
# save, D + S together), copy in (C), compute (K), copy out (B). You get two host buffers for each direction.
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
    decode(i, page): the host fills a page; takes D seconds. Called for 0, 1, …, n − 1, each once, in order.
    compute(x) -> y: launches kernels in the current stream, K seconds; x on gpu.device, shaped like a page, y like
        a result. It keeps neither. Call it in the stream that is current when you are called.
    save(i, result): the host reads a page; takes S seconds. Called likewise.

    No races, the host's own included. You may be called within `with gpu.stream(…)`.
    Simulated time ≤ n · (m + 100 µs) + 2 · (D + C + K + B + S): m = max(D + S, C, K, B), with C and B the copies in
    and out. The second term fills and empties the pipeline. In every test m is more than all the others together,
    so one batch ahead is enough. A tensor that you make may get memory on which the GPU still works: that of one which
    the caller dropped.
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
from helpers.lessons.streams_and_double_buffering.exercises import Stages, check_pipeline

check_pipeline(
    Stages("values", (96, 48), (96, 8), 1, decode_s=1e-4, save_s=1e-4, n=8),
    Stages("H100", (8192, 1024), (8192, 512), 1, decode_s=0.05e-3, save_s=0.05e-3, n=20),  # the copies
    Stages("H100", (2048, 2048), (2048, 256), 1, decode_s=2e-3, save_s=1e-3, n=12),  # the host
)

# %% hidden="pipeline" points=4
### BEGIN HIDDEN TESTS
from helpers.lessons.streams_and_double_buffering.exercises import Stages, check_pipeline

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
