# %% [markdown]
# # 03 · The GPU's queue
#
# ## Is the CPU, the GPU or something between them the bottleneck?
#
# The CPU puts work into a queue, and the GPU takes work out of it. When training is slow, one of three things is true.
# The CPU fills the queue too slowly. The GPU empties it too slowly. Or one of them keeps stopping for the other. The
# three need different repairs, and from outside they look alike. A **trace** records what both sides do, and tells the
# three apart.
#
# **Time** 60 min, with two exercises; *Further*: 46 min, with one more. **Before this** lesson 00: launches,
# synchronize, events.
#
# **Afterwards you can**
# - read a trace: queue depth, gaps, what lies before and after a gap, and what would help;
# - see which lines make the CPU wait for the GPU, and write a training loop that hardly ever waits;
# - record a trace of your own script and name its bottleneck.

# %% setup
import torch
import torch.nn.functional as F
from torch import nn

from helpers import lesson, plots, trace

#: of a trace: how much of the time the GPU computes, and the CPU waits
shares = trace.shares

torch.set_num_threads(1)  # tensors here are tiny, or simulated: a second thread would only get in the way
lesson.start("03_gpu_queue", evidence=["simulated (H100)", "recorded (H100)", "live (CPU)", "published"])

# %% [markdown]
# ## 1 · Sparse or dense
#
# Two training loops run the same code: four linear layers, forward, backward, SGD. In the first, a layer is 256 × 256
# and the batch 64. In the second, a layer is 4096 × 4096 and the batch 1,024.
#
# Suppose that somebody gives you a GPU that is twice as fast, or a CPU that is twice as fast. How many times as fast
# will a step be?

# %% experiment
you = lesson.predict(
    {
        "small layers, GPU twice as fast": ...,
        "small layers, CPU twice as fast": ...,
        "large layers, GPU twice as fast": ...,
        "large layers, CPU twice as fast": ...,
    },
    choices=[1, 2],
)

# %% experiment
from helpers.lessons.gpu_queue.experiments import LARGE, SMALL, launch_to_start_us, loop, queues, second_step

small, large = loop(**SMALL), loop(**LARGE)
gains = {
    "small layers, GPU twice as fast": small.step_s / loop(**SMALL, gpu=2).step_s,
    "small layers, CPU twice as fast": small.step_s / loop(**SMALL, cpu=2).step_s,
    "large layers, GPU twice as fast": large.step_s / loop(**LARGE, gpu=2).step_s,
    "large layers, CPU twice as fast": large.step_s / loop(**LARGE, cpu=2).step_s,
}
lesson.keep(deepest=trace.queue_depth(small.trace).deepest, way_us=launch_to_start_us(small.trace))
you.against_ratios(
    gains,
    queues({"small layers": small, "large layers": large}),
    plots.queue(small.trace, *second_step(small.trace), title="Small layers, one step"),
    plots.queue(large.trace, title="Large layers, four steps"),
    evidence="simulated (H100)",
    what="times as fast",
)

# %% [markdown]
# In pictures and traces the CPU is called the *host*, and a queue of the GPU a *stream*. (The ordinary
# queue has the number 7 in traces of NVIDIA's cards.) The curve at the bottom is the **queue depth**: launches that
# have been made and have not started yet.
#
# - Small layers: every kernel is over before the next launch arrives, so the depth is 0 or {{deepest}}. (On a free
#   simulated GPU {{way_us:.1f}} µs pass between a launch and its start.) The GPU waits for every launch. The picture calls
#   this idle time *short kernels*.
# - Large layers: the CPU puts all four steps into the queue before the GPU has done the first. At the
#   end it waits in `synchronize`. (A real queue is finite. When it is full, the launch itself waits.) A GPU twice as
#   fast gives less than 2, and shorter kernels gain less: the simulator does not shorten each one's start and end.
#
# The label “off by up to” is about steps in which the GPU sets the pace. Where the CPU does, another machine can be many
# times slower (*On a real GPU*).
#
# The GPU is **dense** where it computes for 90 % of the time or more, and **sparse** where it computes for less than 50 %.
# In between it is **dense with gaps**.
#
# So the question can be measured: **the bottleneck is the part that, made faster, makes the step faster.** The simulator
# can make one part of a machine twice as fast. You cannot, so find the bottleneck in a trace.
#
# ## 2 · A read in every step
#
# The layers are 2048 × 2048 now. The GPU's own work takes {{work_ms:.2f}} ms a step. Two things are added to the loop,
# alone and together:
#
# - **read**: [`loss.item()`](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.item.html) at the end of every
#   step. The CPU waits until the GPU has computed the loss.
# - **prepare**: 1.5 ms of Python for the next batch.
#
# How long is a step, as a multiple of the GPU's own work?

# %% experiment
you = lesson.predict(
    {"neither": ..., "read": ..., "prepare": ..., "read and prepare": ...}, choices=[1, 1.3, 1.6]
)

# %% experiment
from helpers.lessons.gpu_queue.experiments import MIDDLE, gpu_work_s

loops = {
    "neither": loop(**MIDDLE),
    "read": loop(**MIDDLE, read=True),
    "prepare": loop(**MIDDLE, prepare_s=1.5e-3),
    "read and prepare": loop(**MIDDLE, read=True, prepare_s=1.5e-3),
}
work_s = gpu_work_s(loops["neither"].trace)
longer = {name: ran.step_s / work_s for name, ran in loops.items()}
lesson.keep(work_ms=1e3 * work_s, with_read=longer["read"], with_prepare=longer["prepare"])
lesson.keep(with_both=longer["read and prepare"])
you.against_ratios(longer, queues(loops), evidence="simulated (H100)", what="times the GPU's work")

# %% [markdown]
# The read alone makes a step {{with_read:.2f}} times as long as the GPU's work, the Python alone {{with_prepare:.2f}}
# times. Both together make it {{with_both:.2f}} times as long: the step grows by all of the Python's time. Here the CPU
# launches a step in {{launch_ms:.1f}} ms. On the recorded machine, with the profiler, it works {{real_read_ms:.1f}} ms, and
# the verdict changes (*On a real GPU*).
#
# The reason is the queue. While the CPU runs Python, the GPU takes its work from the queue. But `.item()` returns only
# when everything launched before it in this queue is done. Then the GPU has no work until the CPU launches again. Such a
# wait of the CPU is called a **sync**, and **a sync costs what the CPU does after it.** So the gap accuses the wrong line:
# it lies over the preparation, which alone costs nothing.
#
# The helper `trace.classify` gives a verdict on a trace. The picture shows 40 µs before and after the end of one
# read. What happens before the gap, and in it?

# %% experiment
from helpers.lessons.gpu_queue.experiments import end_of_a_read

gappy = loops["read and prepare"].trace
verdict = trace.classify(gappy)
print(f"{verdict.bottleneck} [{verdict.source}]", *verdict.evidence[:2], verdict.advice, sep="\n  · ")
read_s = end_of_a_read(gappy)
plots.zoom(gappy, read_s - 40e-6, read_s + 40e-6)

# %% [markdown]
# Before the gap, the optimizer's kernel runs, and the host is in `_local_scalar_dense`, the operator behind `.item()`.
# In the gap there is no kernel and no launch. The host runs Python. The row *idle because* counts up to 100 µs after a wait
# as *sync* too: so long it may take to fill the queue again.
#
# By the gap alone, the loop would be *CPU-bound*: the CPU was busy and launched nothing. But without the read, the same
# Python costs nothing. So `trace.classify` computes how long the steps would take without the host's waits. Most of the
# idle time is then gone, and the verdict is *sync-bound*.
#
# ## 3 · A map
#
# Two numbers are enough for most verdicts. How much of the time does the **GPU compute**? And for how much of the
# time does the **CPU wait** for the GPU? A CPU that runs ahead counts as waiting too: it is free, and a full queue will
# stop it.
#
# The table will have both numbers for the loops above, and for a *narrow* one: layers of 512 × 512, and in every
# step a batch is copied to the GPU. The copy takes {{copy_ms:.1f}} ms, and the GPU's own work {{narrow_ms:.1f}} ms.
# *Middle* are the layers of 2048 × 2048. What makes each loop fastest: a CPU, a GPU or copies twice as fast, or no
# reads?

# %% experiment
you = lesson.predict(
    {"middle, read": ..., "middle, prepare": ..., "narrow, copied": ...},
    choices=["CPU", "GPU", "copies", "no reads"],
)

# %% experiment
from helpers.lessons.gpu_queue.experiments import on_the_map, try_each

six = {
    "small layers": SMALL,
    "large layers": LARGE,
    "middle, read": MIDDLE | {"read": True},
    "middle, prepare": MIDDLE | {"prepare_s": 1.5e-3},
    "middle, read and prepare": MIDDLE | {"read": True, "prepare_s": 1.5e-3},
    "narrow, copied": {"width": 512, "batch": 16384, "load": True},
}
tried = {name: try_each(settings) for name, settings in six.items()}
best = {name: attempt.best for name, attempt in tried.items()}
narrow, step_s = tried["narrow, copied"].ran
copied, narrow_s = shares(narrow), gpu_work_s(narrow)
lesson.keep(narrow_ms=1e3 * narrow_s, copy_ms=1e3 * (step_s - narrow_s))
launch_word = trace.classify(tried["small layers"].ran.trace).bottleneck
lesson.keep(copied_computes=copied.computes, copied_waits=copied.waits, launch_word=launch_word)
ahead, ahead_s = tried["middle, prepare"].ran
free = shares(ahead).waits
lesson.keep(free=free, free_ms=1e3 * free * ahead_s, ahead_ms=1e3 * ahead_s)
you.against(best, on_the_map(tried), evidence="simulated (H100)", what="helps most")

# %% [markdown]
# Read the columns *GPU computes* and *CPU waits* as a map:
#
# | | the CPU hardly waits | the CPU waits much |
# |---|---|---|
# | **the GPU computes nearly always** | balanced | the **GPU** is the limit, however many syncs there are |
# | **the GPU often idles** | the **CPU** is the limit | they take **turns**: something between them |
#
# In the field *turns*, look at the gaps: either a copy runs in them, or the CPU came back from a read. As long as the
# queue holds work, a step takes as long as the slower side. Where the sides take turns, it takes nearly the sum of both.
# (A copy in the same queue adds to the GPU's time. Lesson 05 gives copies a queue of their own.)
#
# “Sparse, so it is the CPU” is wrong without the second number. In the last row the GPU computes {{copied_computes:.0%}}
# of the time, but the CPU waits for {{copied_waits:.0%}}. In *middle, prepare* the CPU is free for {{free_ms:.1f}} of
# {{ahead_ms:.1f}} ms: {{free:.0%}}. The map is about steps in the middle of a run, so `shares` leaves
# out the first step of a trace, when the queue is still empty, and the last one, after which the CPU waits for the rest.
#
# **Exercise 3.1 — name the bottleneck** (★★, 8 min)
#
# Write the map as a function. The traces come from simulated cards (some with noise), from a machine without a
# GPU, or are laid out as a real card writes them. You need `t.has_gpu`, `shares(t)` with its fields `computes` and `waits`
# (both from 0 to 1), and `trace.idle(t)`: its `seconds` is a dict from cause to seconds, its `total` the sum. The cause that
# you need is `"waiting for a copy"`, which may be missing.
#
# | on the map | `bottleneck` returns | `trace.classify` says |
# |---|---|---|
# | the GPU computes nearly always (also *balanced*) | `"GPU"` | GPU-bound |
# | the CPU hardly waits | `"CPU"` | CPU-bound, or {{launch_word}} where kernels are shorter than launches |
# | turns, a copy runs in the gaps | `"copies"` | copy-bound |
# | turns, the CPU came back from a read | `"syncs"` | sync-bound |
#
# <details><summary>Hint 1</summary>Some traces have no GPU work at all: ask <code>t.has_gpu</code> first. The
# docstring says how far from a border every case lies.</details>
# <details><summary>Hint 2</summary>A busy GPU decides first: a sync in every step is harmless then. Next, a CPU
# that hardly waits. What is left are the turns.</details>
# <details><summary>The idea</summary>The map, from top to bottom. For the turns, compare
# <code>seconds["waiting for a copy"]</code> with half of <code>total</code>.</details>


# %% exercise="bottleneck"
def bottleneck(t: trace.Trace) -> str:
    """Where a trace lies on the map: "GPU", "CPU", "copies", "syncs"; or "no GPU" where none was used.

    t: a steady stretch of a program, with or without ProfilerSteps, on one or more streams.
    "GPU": it computes nearly always, whatever the CPU does. "CPU": it hardly ever waits for the GPU, which idles. Both wait: "copies",
    if a copy between host and GPU runs for more than half of the time in which nothing computes, else "syncs".
    No case lies near a border: the GPU computes over 90 % of the time (nearly always) or under 75 % (it idles), the CPU
    waits over 25 % or under 10 % (hardly), a copy runs for over 55 % of the idle time or under 45 %.
    Not by asking `trace.classify`: that is closed while the tests run.
    """
    ### BEGIN SOLUTION
    if not t.has_gpu:
        return "no GPU"
    computes, waits = shares(t)
    if computes > 0.82:
        return "GPU"
    if waits < 0.17:
        return "CPU"
    gaps = trace.idle(t)
    return "copies" if gaps.seconds.get("waiting for a copy", 0.0) > 0.5 * gaps.total else "syncs"
    ### END SOLUTION


# %% test="bottleneck" points=2
from helpers.lessons.gpu_queue.exercises import Loop, check_bottleneck

wanted = {
    Loop("H100", 256, 64): "CPU",
    Loop("H100", 4096, 1024): "GPU",
    Loop("H100", 2048, 2048, read=True): "GPU",
    Loop("H100", 2048, 1024, read=True, prepare_s=2e-3): "syncs",
    Loop("H100", 2048, 1024, prepare_s=5e-3): "CPU",
    Loop("H100", 512, 16384, load=True): "copies",
    Loop("H100", 256, 64, load=True, prepare_s=2e-4): "CPU",
    Loop("H100", 2048, 256, load=True, read=True, prepare_s=1e-3): "syncs",
    "no GPU": "no GPU",
}
check_bottleneck(wanted)

# %% hidden="bottleneck" points=2
### BEGIN HIDDEN TESTS
from helpers.lessons.gpu_queue.exercises import Loop, check_bottleneck

wanted = {  # what helps most: found by doubling each part of the machine
    Loop("A100", 192, 128, read=True, noise=0.1): "CPU",
    Loop("H100", 256, 32768, beside=True, pinned=True, noise=0.1): "GPU",
    Loop("A100", 2048, 2048, read=True, noise=0.1): "GPU",
    Loop("T4", 1024, 1024, read=True, prepare_s=8e-3, noise=0.05): "syncs",
    Loop("H100", 2048, 2048, mask=True, read=True, prepare_s=3.5e-3): "syncs",
    Loop("A100", 64, 131072, load=True, pinned=True, noise=0.1): "copies",
    Loop("H100", 256, 32768, load=True, noise=0.1): "copies",
    Loop("L4", 1024, 512, prepare_s=9e-3, steps=False): "CPU",
}
check_bottleneck(wanted)
### END HIDDEN TESTS

# %% hidden="bottleneck" points=2
### BEGIN HIDDEN TESTS
from helpers.lessons.gpu_queue.exercises import check_bottleneck

wanted = {"GPU": "GPU", "small": "CPU", "late": "CPU", "syncs": "syncs", "copies": "copies"}
check_bottleneck(wanted | {"hidden copies": "GPU", "balanced": "GPU", "some copies": "syncs"})
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · Which lines wait?
#
# On the GPU: `loss` and `best` are single numbers, `x` is a 64 × 10 matrix, and `mask` is `x > 0`. On the CPU: `page` is a
# matrix in ordinary memory, and `pinned` one in pinned (page-locked) memory. Does the CPU wait in these lines?

# %% experiment
you = lesson.predict(
    {
        "if loss > 0: pass": ...,
        "min(loss, best)": ...,
        "torch.minimum(loss, best)": ...,
        "x[mask]": ...,
        "torch.where(mask, x, 0)": ...,
        "torch.tensor([1.0, 2.0], device=gpu.device)": ...,
        "page.to(gpu.device, non_blocking=True)": ...,
        "pinned.to(gpu.device, non_blocking=True)": ...,
    },
    choices=["waits", "does not"],
)

# %% experiment
from helpers.lessons.gpu_queue.experiments import one_batch, waits_by_line, who_waits

gpu, here = one_batch()
who = who_waits(gpu, list(you), here)
waiting = {line: "waits" if names else "does not" for line, names in who.items()}
you.against(waiting, waits_by_line(who), evidence="simulated (H100)", what="the CPU")

# %% [markdown]
# There are three reasons:
#
# 1. **Python needs the value**: `if`, `print`, and `min`, which is an `if` inside. Let the GPU decide (`minimum`,
#    `where`, a factor of 0 or 1), or read later, many values at once.
# 2. **The CPU needs a size**: `x[mask]`, `nonzero`, `unique`. PyTorch cannot allocate the result before the GPU has counted
#    its elements. Keep the shape and give weight 0 (`where`, `masked_fill`, `ignore_index`).
# 3. **The bytes lie in ordinary memory**: `torch.tensor` and an index like `x[[0, 2]]` copy from there too. With
#    `non_blocking=True` CUDA still [*may*](https://docs.nvidia.com/cuda/cuda-runtime-api/api-sync-behavior.html) wait: plan
#    for it. Make such a tensor once, or pin it and copy with `non_blocking=True` (lesson 05).
#
# **Exercise 3.2 — a loop that does not wait** (★★★, 20 min)
#
# `train_plain` trains a classifier and waits {{waits_a_step:.0f}} times a step. Every wait was put there for a good
# reason. Write `train`: the same log and the same weights, with one wait for every `log_every` steps. The table after
# the code names the lines that wait, as
# [`torch.cuda.set_sync_debug_mode("warn")`](https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html)
# does on a real GPU. (It knows most of PyTorch's own waits, and none of CUDA's, as in the copy of `page`.)
#
# <details><summary>Hint 1</summary>Which of the three reasons is each of these waits? Two of them are of the kind
# “let the GPU decide”; the sums may stay on the GPU; for the unlabelled rows look at
# <code>cross_entropy</code>'s own arguments.</details>
# <details><summary>Hint 2</summary>A step that must not count: gradients of 0 leave SGD's weights as they are.
# But NaN · 0 is NaN, so a factor will not do: <code>torch.where(ok, g, 0)</code>. All four numbers of a log
# line fit into one tensor.</details>
# <details><summary>The idea</summary><code>ok = torch.isfinite(loss)</code> stays a tensor;
# <code>F.cross_entropy(…, ignore_index=-1)</code>; <code>clip_grad_norm_</code> clips without a look;
# <code>sums += torch.where(ok, torch.stack([loss.detach(), ok, right, seen]), 0)</code>, with everything in it a tensor of
# the GPU; at the end of each stretch one <code>sums.tolist()</code>. The class weights go up once.</details>


# %% setup
def train_plain(gpu, model, batches, class_weights, lr=0.1, max_norm=1.0, log_every=100):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    log, total, taken, right, seen = [], 0.0, 0, 0, 0
    for i, (x, y) in enumerate(batches, start=1):
        weight = torch.tensor(class_weights, device=gpu.device)
        rows = (y >= 0).nonzero().squeeze(1)  # −1: this row has no label
        logits = model(x[rows])
        loss = F.cross_entropy(logits, y[rows], weight=weight)
        if torch.isfinite(loss):  # a bad batch: leave it out, of the training and of the log
            optimizer.zero_grad()
            loss.backward()
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            if norm > max_norm:
                for p in model.parameters():
                    p.grad.mul_(max_norm / norm)
            optimizer.step()
            total, taken = total + loss.item(), taken + 1
            right, seen = right + (logits.argmax(1) == y[rows]).sum().item(), seen + len(rows)
        if i % log_every == 0:
            log.append([i, total / max(taken, 1), right / max(seen, 1), log_every - taken])
            total, taken, right, seen = 0.0, 0, 0, 0
    return log


# %% experiment
from helpers.lessons.gpu_queue.experiments import steps_of

waits, waiting_lines = steps_of(train_plain)
lesson.keep(waits_a_step=waits)
waiting_lines

# %% exercise="train"
from typing import Any


def train(
    gpu: Any,
    model: nn.Module,
    batches: list[tuple[torch.Tensor, torch.Tensor]],
    class_weights: list[float],
    lr: float = 0.1,
    max_norm: float = 1.0,
    log_every: int = 100,
) -> list[list[float]]:
    """What train_plain does, without waiting for the GPU in every step.

    gpu: has torch.cuda's names. model: on gpu.device; all its parameters are trained, in place; it treats each row
    alone (no batch norm, no dropout). batches: (x, y) on gpu.device, which stay as they are, perhaps none; x: (B, f);
    y: (B,), classes, or −1 for a row without a label, which does not count. x is finite in such rows (0 · inf would be
    NaN). A batch with a loss that is not finite (or without any label) changes nothing and is counted as skipped; one
    with a finite loss counts, also if its (finite) gradient's norm overflows.

    Returns one list for each full stretch of log_every steps: [step, mean loss, accuracy, skipped batches], as
    train_plain does; 0 for a mean of nothing.

    Budget: len(batches) // log_every + 2 waits: one for each line of the log, and two for setting up.
    """
    ### BEGIN SOLUTION
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    weight = torch.tensor(class_weights, device=gpu.device)
    sums = torch.zeros(4, device=gpu.device)
    log = []
    for i, (x, y) in enumerate(batches, start=1):
        logits = model(x)
        loss = F.cross_entropy(logits, y, weight=weight, ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        ok = torch.isfinite(loss.detach())
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        for p in model.parameters():
            p.grad = torch.where(ok, p.grad, 0.0)
        optimizer.step()
        right, seen = (logits.argmax(1) == y).sum(), (y >= 0).sum()
        sums += torch.where(ok, torch.stack([loss.detach(), ok.float(), right.float(), seen.float()]), 0.0)
        if i % log_every == 0:
            total, taken, right, seen = sums.tolist()
            log.append([i, total / max(taken, 1), right / max(seen, 1), log_every - round(taken)])
            sums.zero_()
    return log
    ### END SOLUTION


# %% test="train" points=2
from helpers.lessons.gpu_queue.exercises import Steps, check_train

check_train(Steps("......", log_every=3), Steps(".i..u.i", log_every=3))

# %% hidden="train" points=5
### BEGIN HIDDEN TESTS
from helpers.lessons.gpu_queue.exercises import Steps, check_train

check_train(Steps("..iu....", log_every=4, seed=4), Steps("i.u", log_every=1, seed=5))
check_train(Steps(".l.h..", log_every=3, seed=6), Steps("..", log_every=3, seed=7), Steps("", log_every=2))
### END HIDDEN TESTS

# %% [markdown]
# ## The running example
#
# In each step the script waits for the GPU twice without need. Its clipping asks `if length > most`, and its log calls
# `loss.item()`. `clip_grad_norm_` computes the same factor on the GPU and asks nothing. The log below keeps the losses on
# the GPU and reads five of them at once. (It keeps the logits too, as the script does: see lesson 08.)

# %% experiment
from helpers import running_example


def clip_on_device(model, most=1.0):
    nn.utils.clip_grad_norm_(model.parameters(), most)


def log_every_five(record, logits, loss):
    record.losses.append(loss.detach())
    record.kept.append(logits)
    if len(record.losses) % 5 == 0:
        record.losses[-5:] = torch.stack(record.losses[-5:]).tolist()


before = running_example.after("02")
faster = before.replace(clip=clip_on_device, log=log_every_five)
board = running_example.compare(before, faster)
was, now = board.before, board.after
lesson.keep(script_idle=1e3 * (was.step_s - was.busy_s), script_idle_now=1e3 * (now.step_s - now.busy_s))
lesson.keep(script_syncs=was.syncs, script_syncs_now=now.syncs)
board

# %% [markdown]
# The syncs of a step go from {{script_syncs:.0f}} to {{script_syncs_now:.1f}}. Subtract the time of the kernels from the
# time of a step: before, no kernel ran for {{script_idle:.2f}} ms of a step, most of it after the clipping's read,
# while the CPU launched AdamW's many small kernels. Now it is {{script_idle_now:.2f}} ms. Nearly all launches that are saved
# are the clipping's: it takes the norms of all gradients at once. (The simulated `if` is never true. Where it is, more are
# saved.) The two syncs that are left are the copies of the batch (lessons 04 and 05). The last row is timed on a CPU, which
# has no queue.

# %% [markdown]
# ## Your own script
#
# The cell records four warm steps with
# [`torch.profiler`](https://docs.pytorch.org/docs/stable/profiler.html). A toy script of two linear
# layers, on the CPU, stands in for yours. At home leave out the first two lines: the rest works on your own names.
# With a GPU it records the GPU too.

# %% experiment
from helpers.own_script import toy

model, optimizer, loss_fn, loader, device, step = toy()

from torch.profiler import profile, schedule

plan = schedule(wait=1, warmup=1, active=4, repeat=1)
with profile(schedule=plan, on_trace_ready=lambda p: p.export_chrome_trace("trace.json.gz")) as prof:
    for _, batch in zip(range(6), loader):
        step(batch)
        prof.step()  # without this call nothing is recorded

# %% [markdown]
# The file is a list of events. Each has a category (`cat`), a name, a thread (`tid`), a begin (`ts`) and a duration (`dur`),
# both in µs. `cpu_op` are the operators. With a GPU, `cuda_runtime` and `cuda_driver` hold the CPU's calls to CUDA, `kernel`,
# `gpu_memcpy` and `gpu_memset` what the GPU does. Here are the longest calls of a step with a read of the loss, on a
# simulated H100, each with what it launched and the operators around it:

# %% experiment
import gzip
import json

from helpers.own_script import simulated_cuda

with simulated_cuda("H100") as gpu:
    model, optimizer, loss_fn, loader, device, step = toy("cuda", width=8192, batch=512)
    batch = next(iter(loader))
    step(batch)  # a warm-up
    with gpu.profile() as prof:
        step(batch).item()
prof.export_chrome_trace("trace.json.gz")
with gzip.open("trace.json.gz", "rt") as file:
    spans = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
work = {e["args"].get("correlation"): e["name"] for e in spans if e["cat"].startswith(("kernel", "gpu_mem"))}
spans.sort(key=lambda e: (e["ts"], -e["dur"]))
host = [e for e in spans if e["cat"] in ("cpu_op", "user_annotation")]
calls = [e for e in spans if e["cat"] in ("cuda_runtime", "cuda_driver")]
for call in sorted(calls, key=lambda e: -e["dur"])[:3]:
    mine = (e for e in host if e["tid"] == call["tid"])
    around = [e["name"] for e in mine if e["ts"] <= call["ts"] < e["ts"] + e["dur"]]
    launched = work.get(call["args"].get("correlation"), "nothing")[:40]
    print(f"{call['dur']:8.1f} µs  {call['name']} → {launched}  in  {' > '.join(around)}")

# %% [markdown]
# A launch and its kernel have the same number, `correlation`. **A long call is mostly a wait.** (A long `cudaLaunchKernel` in a
# warm step mostly means a full queue, which is harmless.) The operators around it say why: `_local_scalar_dense` is the
# `.item()`, and the copies come from ordinary memory, where the CPU works too. With `profile(with_stack=True)` the file has the line of your script.
#
# This prints the verdict, and draws a picture like those above:
#
# ```bash
# python -m helpers trace.json.gz
# ```
#
# *Sync-bound*: find the line that waits, and read less often. *Launch-bound*: fewer and larger launches (lessons 02 and 07).
# *CPU-bound*: less Python in the step, or data prepared elsewhere (lesson 04). *Copy-bound*: pinned memory (lesson 05).
# *GPU-bound*: cheaper kernels (lesson 10). The same file opens in [Perfetto](https://ui.perfetto.dev). Profiling takes time
# itself: measure again without it.
#
# Without a GPU, `python -m helpers run train.py --card H100` runs your script on the simulated card (lesson 17).
#
# ## Sources on trial
#
# The book notes say: a sparse queue means the CPU; with gaps, look before and after them.

# %% experiment
from helpers.lessons.gpu_queue import claims

lesson.verdicts(
    claims.on_trial(tried, prepare_alone=longer["prepare"] / longer["neither"]),
    evidence="simulated (H100) · live (CPU) · published",
    shown=("03-sparse-cpu", "03-before-and-after"),
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | The bottleneck is what, made faster, makes the step faster. | Near balance, each of two parts gives a little. |
# | Sparse queue: look at the CPU. | The CPU waits too: look for copies and syncs. |
# | Dense queue: look at the kernels. | Dense may be wasteful: tiny kernels, wrong precision (lesson 10). |
# | Both wait: find the read or the copy before the gap. | The GPU is busy anyway: leave the read in. |
# | A sync costs what the CPU does after it. | Little follows (the end of an epoch), or the CPU sets the pace anyway. |
# | Keep sums on the GPU, read once in a hundred steps. | The CPU needs the value to decide: early stopping. |
#
# **Read on**: PyTorch's [profiler recipe](https://docs.pytorch.org/tutorials/recipes/recipes/profiler_recipe.html). Lesson
# 05 hides copies, lesson 07 makes launches cheap.

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# Each section stands alone.
#
# ### A whole script: from the verdict to the line (8 min)
#
# A verdict is a word. Lists lead from the word to the lines of a script. Here is lesson 00's script, with the lists that
# you need for a script of your own:
#
# - `gpu.profile()` is `torch.profiler.profile` for the simulated GPU. It takes the same options, and heeds
#   `schedule` and `on_trace_ready`.
# - `trace.top(t, by="call")` adds up the time in each kind of call to CUDA: `cudaLaunchKernel` launches,
#   `cudaMemcpyAsync` starts a copy (and often waits where the memory is not pinned), `cudaStreamSynchronize` waits until a
#   queue is empty. `by="host"` adds up each
#   operator's own time on the CPU, and `by="device"` each kernel's time on the GPU.
# - `memory.leaks` names the lines whose memory stays after a step, from the memory's recorded history (lesson 08).
#
# The script has three faults that you know from the lessons: its clipping waits for the GPU (`if length > most`), its log
# waits (`loss.item()`), and its AdamW launches small kernels for each parameter alone. It also leaves 2 MiB behind in each
# step of about 6 ms, and the card has 80 GB. Which call takes the most time? Which repair, alone, gives the most? And how
# long does the memory last?

# %% experiment
you = lesson.predict(
    {"the call with the most time": ..., "the best repair": ..., "the memory lasts for": ...},
    choices={
        "the call with the most time": ["cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize"],
        "the best repair": ["clip without a wait", "log without a wait", "AdamW in few launches"],
        "the memory lasts for": ["minutes", "hours", "days"],
    },
)

# %% experiment
from helpers import memory, running_example, simulate
from helpers.lessons.gpu_queue.experiments import lasting, repairs, what_each_gives

script, gpu = running_example.after("00"), simulate("H100")
with gpu:
    steps = script.train(running_example.LARGE, gpu, steps=8)
    for _ in range(3):
        next(steps)  # warm up
    gpu.memory._record_memory_history()
    with gpu.profile() as prof:
        for _ in range(4):
            next(steps)
            prof.step()
    snapshot, free = memory.read(gpu), gpu.mem_get_info()[0]

t, gains = trace.read(prof), repairs(script)
calls = trace.top(t, 3, by="call")
leak = memory.leaks(snapshot, steps=4)[0]  # the history holds four steps: what each left behind
lasts_s = free / leak.per_step[-1] * trace.steps(t)[1].seconds_s
lesson.keep(clip=gains["clip without a wait"], log=gains["log without a wait"])
lesson.keep(adamw=gains["AdamW in few launches"], clip_adamw=gains["clip and AdamW"], lasts_min=lasts_s / 60)
answers = [calls[0].name, max(list(gains)[:3], key=gains.get), lasting(lasts_s)]
you.against(dict(zip(you, answers)), calls.table, what_each_gives(gains, leak), evidence="simulated (H100)")

# %% [markdown]
# **A list says where time is spent. It does not say what a repair gives.** Most of the time in calls goes to waiting.
# But the log without its wait is {{log:.2f}}× as fast, and the clipping without its wait {{clip:.2f}}×. A sync costs
# what the CPU does after it: after the log, the next forward's large kernels soon fill the queue again; after the
# clipping come AdamW's many small launches, and the GPU waits for each of them. With few launches AdamW gives
# {{adamw:.2f}}×. So take a candidate from the list, replace it alone (`script.replace(clip=…)`), and measure. Then
# record again, because one repair changes what the next one gives: both together give {{clip_adamw:.2f}}×, no more
# than AdamW alone. With few launches after it, the clipping's wait costs nothing.
#
# **And the leak?** The last line of the table names the line of the script that made the memory: the head of the model,
# which makes the logits. (Who *keeps* them is another line: the log.) A leak costs hardly any time, until it ends the
# run. So compare two numbers: how long the memory lasts (free memory ÷ growth a step × time of a step, here
# {{lasts_min:.1f}} minutes), and how long your run is. If the run is longer, the leak is the first repair, whatever the
# others give. If not, it is the last.
#
# For files of your own: `trace.read("trace.json.gz")`, and `memory.read("snapshot.pickle")` (lesson 08 writes one).
#
# ### Three traces, three repairs (6 min)
#
# Here are three loops whose code you do not see, two steps of each. Two of them idle much, and for the same cause (the row
# *idle because*). Which one repair makes each loop fastest?

# %% experiment
from helpers.lessons.gpu_queue.experiments import UNKNOWN, on_the_map, try_each, two_steps

for name in UNKNOWN:
    display(two_steps(name))

# %% experiment
you = lesson.predict(
    {"trace A": ..., "trace B": ..., "trace C": ...},
    choices=["CPU", "GPU", "copies", "no reads"],
)

# %% experiment
repaired = {name: try_each(settings) for name, settings in UNKNOWN.items()}
best = {name: attempt.best for name, attempt in repaired.items()}
you.against(best, on_the_map(repaired), evidence="simulated (H100)", what="helps most")

# %% [markdown]
# Trace A has a read in every step, and its GPU is busy all the same: the reads are harmless. In B and C the GPU idles
# because nothing is launched, and yet they need different repairs. In B the host waits first, and then runs Python while
# the GPU has nothing to do. Without the reads, this Python runs beside the kernels. In C the host never waits. Only a faster
# CPU helps, or less Python.
#
# ### Busy is not fast (6 min)
#
# `nvidia-smi` and
# [`torch.cuda.utilization()`](https://docs.pytorch.org/docs/stable/generated/torch.cuda.utilization.html) report the
# share of the time in which *at least one kernel was running*. Three programs keep a GPU busy: a large product, an
# activation over a large tensor, and fifty products of 64 × 64 that are launched at once as a graph (lesson 07). How
# much of the card do they use?

# %% experiment
from helpers.lessons.gpu_queue.experiments import BUSY, use_of_the_card, used

use = {name: used(make) for name, make in BUSY.items()}
use_of_the_card(use)

# %% [markdown]
# Low utilization tells you that the GPU waits. High utilization tells you nothing: the last program uses a small corner of
# the card, all the time. (On a real GPU a short time passes between two kernels of a queue: {{gap_us:.1f}} µs on the recorded
# H100. The simulator leaves this out, so it says 100 %.)
#
# So the number to aim at is another one: **MFU**, the *model FLOPs utilization*
# ([PaLM](https://arxiv.org/abs/2204.02311), appendix B):
#
# > MFU = FLOPs that the model needs for a step ÷ (seconds of a step × the card's peak in FLOP/s)
#
# What counts are the matrix products of forward and backward: 2 FLOPs for a weight and a sample forward, 4 backward (2
# in the first layer, whose input needs no gradient). For a
# transformer that makes 6 × parameters × tokens, and 12 × layers × width × length² for the attention of a sequence. What a
# checkpoint computes again does not count. (Where it does, the number is called HFU.) Nor do optimizer, waits and loader:
# they only make the step longer. The peak is that of the format in which the products run, and the dense one: a data sheet
# often prints twice as much, "with sparsity". PyTorch counts the FLOPs of a step, also those that a checkpoint computes again:

# %% experiment
from torch.utils.flop_counter import FlopCounterMode

for width in (256, 1024, 4096):
    with simulated_cuda("H100") as gpu:
        model, optimizer, loss_fn, loader, device, step = toy("cuda", width=width, batch=1024)
        batch = next(iter(loader))
        step(batch)  # a warm-up
        torch.cuda.synchronize()
        began = gpu.clock()
        with FlopCounterMode(display=False) as flops:
            step(batch)
        torch.cuda.synchronize()
        step_s = gpu.clock() - began
    mfu = flops.get_total_flops() / (step_s * gpu.card.peak_flops["fp32"])
    print(f"width {width}: {flops.get_total_flops() / 1e9:.2f} GFLOP in {1e3 * step_s:.2f} ms: MFU {mfu:.2%}")

# %% [markdown]
# The GPU is the same, and so is the code. Launches, copies and AdamW take time too. They are nearly all of the small step.
# At width 4096 the copy of the batch (8.4 MB, at the simulator's 8 GB/s for ordinary memory) is still nearly half. On a real
# GPU take the time of a warm step (lesson 00), and count once.
#
# ### Why does it idle (15 min)
#
# **Exercise 3.3 — why does it idle?** (★★, 13 min)
#
# `trace.classify` rests on such an analysis, with more rules (as the 100 µs after a wait). Here you write the plain one, for
# lists of times. The function for the queue depth is given. The function for the idle time is yours.
#
# <details><summary>Hint 1</summary>As <code>depths</code> does it: collect <i>every</i> moment that occurs in the
# three lists, sort them, and look at the pieces between neighbours. Within a piece nothing changes.</details>
# <details><summary>Hint 2</summary>Only pieces between the first start and the last end count, and only those in
# which no kernel runs. A span covers the piece from a to b if it begins at a or before, and ends at b or
# after.</details>
# <details><summary>The idea</summary>For each such piece: does a copy cover it? Otherwise take the kernel with the
# smallest start at b or after (of several the one with the smallest launch): was it launched at a or before?
# Otherwise: does a wait cover the piece? Otherwise it is the host.</details>


# %% exercise="read_queue"
Times = list[tuple[int, ...]]


def depths(kernels: Times) -> list[tuple[int, int]]:
    """Given: (how many kernels are launched and not started, for how many ns), piece by piece: the curve above."""
    moments = sorted({t for kernel in kernels for t in kernel[:2]})  # between neighbours nothing changes
    return [(sum(k[0] <= a and b <= k[1] for k in kernels), b - a) for a, b in zip(moments, moments[1:])]


def read_queue(kernels: Times, copies: Times, waits: Times) -> dict[str, int]:
    """Why no kernel runs: the ns between the first start and the last end in which none does, by cause.

    All times are whole ns of one clock; all three lists are in any order, and their spans may overlap.
    kernels: (launched, started, ended) each, launched ≤ started < ended. At least one, else ValueError.
    copies: (started, ended) of each copy between host and GPU. waits: (began, ended) of each call in which the
        host waits for the GPU. There may be none of either.

    Returns {"copy": …, "in flight": …, "sync": …, "host": …}, in this order: ns for which this cause is the first
    that is true:
        "copy"       a copy runs
        "in flight"  the kernel that starts next has been launched already (of several that start together: the
                     one launched first)
        "sync"       the host is in a wait
        "host"       none of these: the host does something else
    """
    ### BEGIN SOLUTION
    if not kernels:
        raise ValueError("no kernels")
    begin, end = min(k[1] for k in kernels), max(k[2] for k in kernels)
    edges = sorted(
        {t for times in (kernels, copies, waits) for span in times for t in span if begin <= t <= end}
    )
    idle = {"copy": 0, "in flight": 0, "sync": 0, "host": 0}
    for a, b in zip(edges, edges[1:], strict=False):

        def covers(span):
            return span[0] <= a and b <= span[1]  # noqa: B023

        if any(covers(k[1:]) for k in kernels):
            continue
        following = min((k for k in kernels if k[1] >= b), key=lambda k: (k[1], k[0]))
        if any(map(covers, copies)):
            cause = "copy"
        elif following[0] <= a:
            cause = "in flight"
        else:
            cause = "sync" if any(map(covers, waits)) else "host"
        idle[cause] += b - a
    return idle
    ### END SOLUTION


# %% test="read_queue" points=1
from helpers.lessons.gpu_queue.exercises import Queue, check_read_queue

four = [(0, 10, 30), (5, 30, 60), (8, 60, 70), (100, 112, 120)]  # a gap from 70 to 112, launched at 100
check_read_queue(
    Queue(four, in_flight=12, host=30),
    Queue(four, [], [(40, 75)], in_flight=12, sync=5, host=25),
    Queue(four, [(70, 80)], [(40, 82)], copy=10, in_flight=12, sync=2, host=18),
    Queue(four, [], [(101, 125)], in_flight=12, host=30),
    Queue([(0, 10, 20), (10, 25, 30)], in_flight=5),
    Queue([(0, 10, 20), (28, 40, 50), (22, 40, 45)], in_flight=18, host=2),
    Queue([(50, 60, 70), (0, 5, 20), (12, 30, 40), (0, 10, 35)], [(32, 58)], copy=18, in_flight=2),
    Queue([(0, 10, 30)]),
    Queue([]),
)

# %% hidden="read_queue" points=2
### BEGIN HIDDEN TESTS
from helpers.lessons.gpu_queue.exercises import check_read_queue, random_queue


def causes(kernels, copies, waits):
    edges = sorted({t for times in (kernels, copies, waits) for span in times for t in span})
    begin, end = min(k[1] for k in kernels), max(k[2] for k in kernels)
    idle = {"copy": 0, "in flight": 0, "sync": 0, "host": 0}
    for a, b in zip(edges, edges[1:]):
        if a < begin or b > end or any(k[1] <= a and b <= k[2] for k in kernels):
            continue
        start = min(k[1] for k in kernels if k[1] >= b)
        launched = min(k[0] for k in kernels if k[1] == start) <= a
        copy = any(c[0] <= a and b <= c[1] for c in copies)
        wait = any(w[0] <= a and b <= w[1] for w in waits)
        idle["copy" if copy else "in flight" if launched else "sync" if wait else "host"] += b - a
    return idle


check_read_queue(*(random_queue(seed, n) for seed, n in ((5, 20), (6, 60), (7, 90))), expect=causes)
### END HIDDEN TESTS

# %% hidden="read_queue" points=2
### BEGIN HIDDEN TESTS
from helpers.lessons.gpu_queue.exercises import Queue, check_read_queue

late = 10**12  # ns: a clock that has run for a quarter of an hour
far = [(late, late + 5, late + 9), (late + 30, late + 41, late + 50), (late + 1, late + 9, late + 12)]
check_read_queue(
    Queue(far, [(late + 20, late + 25), (late + 11, late + 22), (0, 7)], copy=13, in_flight=11, host=5),
    Queue(far, [], [(late + 14, late + 33), (late + 16, late + 18)], in_flight=11, sync=16, host=2),
    Queue(far[::-1], [(late + 60, late + 70)], [(late + 12, late + 30)], in_flight=11, sync=18),
    Queue([(0, 0, 4), (0, 0, 4), (4, 4, 6), (6, 9, 11)], [(3, 5)], [(0, 20)], in_flight=3),
    Queue([(0, 2, 30), (3, 4, 6), (20, 25, 28)], [(6, 8)], [(8, 20)]),
    Queue([(9, 9, 10), (0, 1, 2)], [], [(2, 2), (3, 5), (5, 9)], sync=6, host=1),
    Queue([(7, 9, 10), (0, 1, 2), (3, 9, 12)], in_flight=6, host=1),
    Queue([(0, 1, 2), (3, 20, 22), (10, 12, 14)], in_flight=8, host=8),  # launched first, started last
)
### END HIDDEN TESTS

# %% [markdown]
# ### Record it yourself (4 min)
#
# A *schedule* says which steps
# [`torch.profiler`](https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.schedule) keeps. It lets `wait`
# steps pass, runs `warmup` steps with the tracer on and throws them away, and records `active` steps. Then it begins
# again. A loop runs ten steps, numbered from 0, with `schedule(wait=2, warmup=1, active=3)`.

# %% experiment
you = lesson.predict(
    {
        "steps recorded": ...,
        "number of the first of them": ...,
        "steps recorded without prof.step()": ...,
    },
    choices={
        "steps recorded": [3, 4, 6],
        "number of the first of them": [0, 2, 3],
        "steps recorded without prof.step()": [0, 3, 10],
    },
)

# %% experiment
from torch.profiler import schedule

from helpers.lessons.gpu_queue.experiments import steps_kept

kept = steps_kept(schedule(wait=2, warmup=1, active=3))
forgotten = steps_kept(schedule(wait=2, warmup=1, active=3), step_is_called=False)
measured = {"steps recorded": len(kept), "number of the first of them": kept[0]}
measured["steps recorded without prof.step()"] = len(forgotten)
assert kept == [3, 4, 5, 9]
you.against(measured, evidence="live (CPU)")

# %% [markdown]
# After two waits and a warm-up come the steps 3, 4 and 5. Then the cycle begins again and gets as far as step 9.
# `repeat=1` stops after the first cycle, which is what one usually wants. Without `prof.step()` the profiler stays in its
# first state for ever, here *wait*, and says nothing about it.
#
# The trace holds the operators. More is added on demand:
#
# | | adds to the trace |
# |---|---|
# | `with record_function("forward"):` around some lines | a named span; with a GPU, in its row too |
# | `profile(…, record_shapes=True)` | the shapes of each operator's inputs |
# | `profile(…, profile_memory=True)` | the bytes that each operator takes |
# | `profile(…, with_stack=True)` | Python's frames, so the line that called |
#
# `print(prof.key_averages().table(sort_by="self_cpu_time_total"))` prints a list of operators, and
# `sort_by="self_device_time_total"` sorts it by the GPU's time. *Self* time leaves out what an operator calls. Without it
# the outermost names win. Stacks and shapes cost time in every call, so leave them off when the question is
# whether the CPU keeps up.
#
# Older texts use TensorBoard's profiler plugin and `export_memory_timeline`. Both are deprecated. Use Perfetto, which
# also opens the files of `tensorboard_trace_handler`, and memory snapshots (lesson 08).
#
# ### Nsight Systems, Nsight Compute (3 min)
#
# **Nsight Systems** records your script with all processes and threads that it starts, what they wait for in the operating
# system, and all its GPUs. (With `--cpuctxsw=system-wide` it sees other processes too, with `--nic-metrics` the network.)
# Use it when the trace says “the CPU was busy” and Python's frames do not say with what: loader workers, other threads, a
# lock.
#
# ```bash
# nsys profile -t cuda,nvtx,osrt python train.py
# ```
#
# With `-c cudaProfilerApi` it records only what your script puts between
# [`torch.cuda.profiler.start()`](https://docs.pytorch.org/docs/stable/generated/torch.cuda.profiler.start.html) and
# `torch.cuda.profiler.stop()`. If the script calls neither, it records nothing (the
# [user guide](https://docs.nvidia.com/nsight-systems/UserGuide/index.html) under `--capture-range`). Names for its rows
# come from `torch.cuda.nvtx.range` or `torch.autograd.profiler.emit_nvtx()`.
#
# **Nsight Compute** looks inside single kernels. It
# [runs each kernel several times](https://docs.nvidia.com/nsight-compute/NsightComputeCli/index.html), once for every
# group of hardware counters, so the program's own times mean nothing meanwhile.
#
# ```bash
# ncu --set full --kernel-name-base demangled -k "regex:gemm|nvjet" -c 3 python train.py
# ```
#
# This looks at the first three matrix products. (Without *demangled*, ncu compares only a kernel's bare name, which may be
# `Kernel2`.) Its first page, *GPU Speed Of Light*, has two numbers: how near to its peak the busiest part of the GPU's
# arithmetic is, and the busiest part of its memory. The table of *Busy is not fast* has two numbers like them for three
# programs. FLOP per byte decides *which* limit holds: below the meeting point the memory, above it the arithmetic. How near
# the kernel comes to this limit says whether better code can exist. A kernel that is near neither often has too little work
# to fill a GPU: give each launch more work. Or its threads wait, for one another or for memory.
#
# ### On a real GPU (4 min)
#
# Four loops of the kinds above, simulated and recorded on a real H100 (and live, if you have a GPU). `launch_bound` has
# small layers, and `steady` large ones. The other two have the layers of 2048 × 2048, and read the loss in every step.
# `read_and_prepare` also has the 1.5 ms of Python. Where do the two machines get different verdicts? Which column tells why?

# %% experiment
from helpers.lessons.gpu_queue import experiments

loops_on_two = experiments.four_loops()
simulated, recorded = (
    {name: runs[kind] for name, runs in loops_on_two.items()} for kind in ("simulated", "recorded")
)
few, item, busy = (recorded[name] for name in ("launch_bound", "item_in_loop", "read_and_prepare"))
lesson.keep(real_gpu_ms=1e3 * item.gpu_s, gpu_ms=1e3 * simulated["item_in_loop"].gpu_s)
lesson.keep(launch_ms=1e3 * simulated["item_in_loop"].cpu_s)
lesson.keep(real_small_ms=1e3 * few.cpu_s, small_ms=1e3 * simulated["launch_bound"].cpu_s)
lesson.keep(real_computes=few.shares.computes, real_read_ms=1e3 * item.cpu_s, real_both_ms=1e3 * busy.cpu_s)
lesson.keep(
    few_word=few.bottleneck, sim_waits=simulated["item_in_loop"].shares.waits, real_waits=item.shares.waits
)
lesson.keep(both_waits=busy.shares.waits, gap_us=1e6 * experiments.between_kernels_s("03/steady"))
lesson.keep(free_small_ms=1e3 * few.unwatched_s, free_item_ms=1e3 * item.unwatched_s)
lesson.keep(free_both_ms=1e3 * busy.unwatched_s, python_ms=1e3 * (busy.unwatched_s - item.unwatched_s))
experiments.loops_beside(loops_on_two)

# %% [markdown]
# The two GPUs are not far apart: with layers of 2048 × 2048, the kernels of a step take {{gpu_ms:.1f}} ms
# simulated and {{real_gpu_ms:.1f}} ms recorded. The two CPUs are. For a step of `launch_bound` the simulated
# CPU works {{small_ms:.2f}} ms, the recorded one {{real_small_ms:.1f}} ms. A part of the difference is the profiler: it
# writes a record for each operator and each launch. Without it the recorded step takes {{free_small_ms:.1f}} ms. The rest is
# Python, PyTorch and the driver, on that machine.
#
# This changes the verdicts:
#
# - `launch_bound`: the GPU computes only {{real_computes:.0%}} of the time. `trace.classify` says
#   {{few_word}}, because here the launches lie too far apart for *short kernels*. On the map both words mean the CPU, and
#   fewer launches help.
# - `item_in_loop`: the simulated CPU is soon done, and then waits: {{sim_waits:.0%}} of the time. The recorded CPU, with the
#   profiler, works {{real_read_ms:.1f}} ms a step, longer than the GPU's kernels take. When it comes to the read, the GPU is
#   nearly done, and the CPU waits {{real_waits:.0%}} of the time. So in this trace the CPU is the bottleneck. Without the
#   profiler it is not: the CPU needs about {{free_small_ms:.1f}} ms for these operators (they are those of `launch_bound`),
#   and the step takes {{free_item_ms:.1f}} ms, little more than the kernels. The GPU sets the pace, as in the simulation.
# - `read_and_prepare`: with the profiler the same, and the Python on top. The CPU works {{real_both_ms:.1f}} ms a step, and
#   waits {{both_waits:.0%}} of the time. Without the read a step would still take {{real_both_ms:.1f}} ms. Without the
#   profiler a step takes {{free_both_ms:.1f}} ms, {{python_ms:.1f}} ms more than that of `item_in_loop`. It grows by all of
#   the Python's time, as in the simulation. There the read costs much: without it, the CPU would need only about
#   {{free_small_ms:.1f}} + 1.5 ms.
#
# **So a verdict belongs to one program on one machine, and a profiler that looks on belongs to the program.** A sync costs
# what the CPU does after it, if the GPU has nothing to do meanwhile (`read_and_prepare` without the profiler). It costs less
# where the CPU sets the pace anyway (with it). So if a trace with many small operators says CPU-bound, time some steps
# without the profiler too (lesson 00). Are they hardly longer than the kernels? Then the GPU is the limit.
