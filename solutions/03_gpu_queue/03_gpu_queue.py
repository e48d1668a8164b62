# %% [markdown]
# # 03 · The GPU's queue
#
# ## Is the CPU, the GPU or something between them the bottleneck?
#
# The CPU puts work into a queue, the GPU takes it out. When training is slow, one of three things holds: the
# CPU fills too slowly, the GPU empties too slowly, or one of them keeps stopping for the other. The three
# want opposite remedies, and from outside they look alike. A *trace*, the diary of both, tells them apart.
#
# **Time** 65–80 min; half of it is the three exercises. **Before this** lesson 00: launches, synchronize, events.
#
# **Afterwards you can**
# - read a trace: queue depth, gaps, what lies before and after a gap, and what would help;
# - see which lines make the CPU wait for the GPU, and write a training loop that hardly ever does;
# - record such a trace with `torch.profiler`, and say when Nsight Systems or Nsight Compute adds something.
#
# **On trial** the book notes' flow (*sparse queue: the CPU · dense: the GPU · dense with gaps: zoom in and
# look before and after the gap*) · *Nsight Compute only for operators* · *`torch.cuda.utilization()` for GPU
# use* · two profiler recipes: at the end.

# %% setup
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import record_function

from helpers import lesson, plots, simulate, trace
from helpers.lesson import compare_predictions, table
from helpers.simulator.devices import DEVICES
from helpers.timing import format_seconds

torch.set_num_threads(1)  # tensors here are tiny, or simulated: a second thread would only get in the way
lesson.start("03_gpu_queue", evidence=["simulated (H100)", "live (CPU)"])

# %% [markdown]
# ## 1 · Sparse or dense
#
# Two training loops, the same code: four linear layers, forward, backward, SGD. In one a layer is 256 × 256 and the
# batch 64, in the other 4096 × 4096 and 1,024.
#
# Three words, for the whole lesson. A **lane** is one row of a trace's picture: here the row of the GPU's kernels. It is
# **dense** where the GPU computes for 90 % of the time or more, and **sparse** where it computes for less than 50 %. In
# between it is **dense with gaps**.
#
# **Predict**: is the GPU's lane `"sparse"` or `"dense"`? And if somebody gave you a GPU that is twice as fast, or a CPU
# that is: by what factor would a step get faster, `"1×"` or `"2×"`?

# %% experiment
said_of_loops = {
    "small layers: the GPU's lane is": ...,  # "sparse" or "dense"
    "small layers: a GPU twice as fast gives": ...,  # "1×" or "2×"
    "small layers: a CPU twice as fast gives": ...,
    "large layers: the GPU's lane is": ...,
    "large layers: a GPU twice as fast gives": ...,
    "large layers: a CPU twice as fast gives": ...,
}


# %% setup
H100 = DEVICES["H100"]
SMALL, LARGE = {"width": 256, "batch": 64}, {"width": 4096, "batch": 1024}

#: of a trace without its first and last step: the share of the time in which the GPU computes, and in which the CPU waits
shares = trace.shares


# %% experiment
def loop(width, batch, *, read=False, prepare_s=0.0, load=False, cpu=1, gpu=1, pcie=1, steps=4):
    """Trains four linear layers on a simulated H100. (the trace of `steps` steps, seconds for one)

    read: loss.item() in every step. prepare_s: Python for the next batch. load: copy the batch to the GPU.
    cpu, gpu, pcie: how many times as fast that part of the machine shall be.
    """
    card = H100
    a = replace(card.assumptions, operator_s=card.assumptions.operator_s / cpu)
    a = replace(a, launch_s=a.launch_s / cpu, view_s=a.view_s / cpu, kernel_floor_s=a.kernel_floor_s / gpu)
    a = replace(a, pageable_bytes_per_s=a.pageable_bytes_per_s * pcie)
    flops = {kind: rate * gpu for kind, rate in card.peak_flops.items()}
    card = replace(card, peak_flops=flops, memory_bytes_per_s=card.memory_bytes_per_s * gpu, assumptions=a)
    device = simulate(card)
    with device:
        layers = (nn.Linear(width, width, device=device.device) for _ in range(4))
        model = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.empty(batch, width) if load else torch.randn(batch, width, device=device.device)

        def step():
            with record_function("forward"):
                loss = model(x.to(device.device)).square().mean()
            with record_function("backward"):
                optimizer.zero_grad()
                loss.backward()
            with record_function("optimizer"):
                optimizer.step()
            if read:
                loss.item()
            if prepare_s:
                device.host_work(prepare_s / cpu)

        for _ in range(2):
            step()
        device.synchronize()
        began = device.clock()
        with device.profile() as prof:
            for _ in range(steps):
                step()
                prof.step()
        device.synchronize()
    return trace.read(prof), (device.clock() - began) / steps


# %% experiment
rows, measured, sparse_dense = [], {}, {}
for name, sizes in {"small layers": SMALL, "large layers": LARGE}.items():
    t, step_s = loop(**sizes)
    gains = {part: step_s / loop(**sizes, **{part: 2})[1] for part in ("gpu", "cpu")}
    computes, _ = shares(t)
    depth = trace.queue_depth(t)
    sparse_dense[name] = t, computes, gains
    measured |= {
        f"{name}: the GPU's lane is": "dense" if computes > 0.9 else "sparse",
        f"{name}: a GPU twice as fast gives": f"{gains['gpu']:.0f}×",
        f"{name}: a CPU twice as fast gives": f"{gains['cpu']:.0f}×",
    }
    rows.append(
        (
            name,
            format_seconds(step_s),
            f"{computes:.0%}",
            f"{depth.mean:.1f}",
            depth.deepest,
            *(f"{g:.2f}×" for g in gains.values()),
        )
    )
heads = ["loop", "a step", "GPU computes", "queue: mean", "deepest", "GPU twice as fast", "CPU twice as fast"]
way = sparse_dense["small layers"][0].work
lesson.keep(way_us=min(way.start_ns - way.launch_ns) / 1e3, deepest=rows[0][4])
table(rows, heads, evidence="simulated (H100)")

# %% experiment
GAIN = ("1×", "2×")
compare_predictions(
    said_of_loops,
    measured,
    evidence="simulated (H100)",
    choices={line: ("sparse", "dense") if "lane" in line else GAIN for line in said_of_loops},
)

# %% experiment
first = trace.steps(sparse_dense["small layers"][0])[1]
plots.queue(
    sparse_dense["small layers"][0],
    first.start_s,
    first.start_s + first.seconds_s,
    title="Small layers, one step: the queue never holds more than one",
)

# %% experiment
plots.queue(sparse_dense["large layers"][0], title="Large layers, four steps: the CPU runs far ahead")

# %% [markdown]
# The bottom curve is the **queue depth**: launches that have been made and have not started yet. In the first picture
# each kernel is over before the next arrives: the depth goes to and fro between 0 and {{deepest}}, and the GPU waits for
# every launch. ({{way_us:.0f}} µs pass from a launch to its start even on a free GPU, and for that long the depth is 1. A
# *store* of work begins at 2.) In the second picture all four steps are in the queue before the first has run. The CPU
# spends the rest of the time waiting at the end. (A real queue is finite: when it is full, the launch itself waits.)
#
# The pictures' “short kernels” are idle time after a kernel that was over before the CPU could launch the next one. They
# are the CPU's limit, by another name.
#
# So a definition that can be measured: **the bottleneck is the part that, made faster, makes the step faster.** The
# last two columns of the table do just that; the simulator can double one part of the machine. You cannot, and a trace
# must stand in for the experiment. The rest of the lesson is about when it does so faithfully.
#
# ### Busy is not fast
#
# `nvidia-smi`, and [`torch.cuda.utilization()`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/cuda/__init__.py)
# with it, report the share of time in which *at least one kernel was executing* (NVML's words for it). Three programs:
# a large product; an activation over a large tensor; and fifty products of 64 × 64, launched at once as a graph (lesson
# 07). All are busy. How much of the card do they use?


# %% experiment
def used(make, times=20):
    """(share of time with a kernel, share of the peak FLOP/s, share of the peak bytes/s) of a repeated work."""
    device = simulate("H100")
    with device:
        work = make(device)
        work()
        device.synchronize()
        first = len(device.kernels)
        for _ in range(times):
            work()
        device.synchronize()
    ran = device.kernels[first:]
    span = (ran[-1].end_ns - ran[0].start_ns) / 1e9
    busy = sum(k.duration_s for k in ran) / span
    flops = sum(k.flops for k in ran) / span / H100.peak_flops["fp32"]
    return busy, flops, sum(k.bytes for k in ran) / span / H100.memory_bytes_per_s


def product(device):
    x = torch.randn(4096, 4096, device=device.device)
    return lambda: x @ x


def activation(device):
    x = torch.randn(64 * 2**20, device=device.device)
    return lambda: torch.relu(x)


def tiny(device):
    x = torch.randn(64, 64, device=device.device)
    x @ x
    graph = device.CUDAGraph()
    with device.graph(graph):
        for _ in range(50):
            x @ x
    return lambda: (graph.replay(), x)  # x has to live as long as the graph


use = {"one 4096 × 4096 product": product, "relu of 64 Mi numbers": activation, "50 tiny products": tiny}
use = {name: used(make) for name, make in use.items()}
table(
    [(name, *(f"{share:.1%}" for share in shares_of)) for name, shares_of in use.items()],
    ["program", "busy (“utilization”)", "of peak FLOP/s, fp32", "of peak bytes/s"],
    evidence="simulated (H100)",
)

# %% [markdown]
# Low utilization is a finding: the GPU waits. High utilization is none: the last row keeps one corner of the card busy
# all the time. (On a real GPU about a microsecond passes between two kernels of a queue; the simulator leaves that out,
# so that it says 100 %.) What the kernels themselves do with the card is section 5.
#
# **Exercise 3.1 — why does it idle?** (★★, 10 min)
#
# The analysis that everything above rests on, from the bare times. The walk for the depth is given; the one for the
# idle time is yours.
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
        {t for times in (kernels, copies, waits) for one in times for t in one if begin <= t <= end}
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
from helpers.exercises.gpu_queue import Queue, check_read_queue

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
from helpers.exercises.gpu_queue import check_read_queue, random_queue


def causes(kernels, copies, waits):
    edges = sorted({t for times in (kernels, copies, waits) for one in times for t in one})
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
from helpers.exercises.gpu_queue import Queue, check_read_queue

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
)
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · Dense with gaps
#
# Layers of 2048 × 2048 now, so that the GPU has more to do in a step than the CPU needs to launch it. Two
# things are added, alone and together: `loss.item()` at the end of every step (**read**), and 1.5 ms of
# Python for the next batch (**prepare**). Lesson 00 found that `.item()` costs next to nothing. Which of the
# four takes more than 10 % longer than the GPU's own work: `"yes"` or `"no"`?

# %% experiment
said_of_reads = {"neither": ..., "read": ..., "prepare": ..., "read and prepare": ...}

# %% experiment
MIDDLE, PREPARE = {"width": 2048, "batch": 1024}, {"prepare_s": 1.5e-3}
variants = {"neither": {}, "read": {"read": True}, "prepare": PREPARE}
variants["read and prepare"] = {"read": True, **PREPARE}
found = {name: loop(**MIDDLE, **extra) for name, extra in variants.items()}
work_s = sum(s.compute_s for s in trace.steps(found["neither"][0])) / 4
rows, measured = [], {}
for name, (t, step_s) in found.items():
    depth = trace.queue_depth(t)
    rows.append((name, format_seconds(step_s), f"{step_s / work_s:.2f}×", f"{depth.mean:.1f}"))
    measured[name] = "yes" if step_s > 1.1 * work_s else "no"
heads = ["loop", "a step", "÷ the GPU's own work", "queue: mean depth"]
table(
    rows, heads, evidence="simulated (H100)", caption=f"the GPU's own work: {format_seconds(work_s)} a step"
)

# %% experiment
compare_predictions(
    said_of_reads, measured, evidence="simulated (H100)", what="over 10 %", choices=("yes", "no")
)
times_work = {name: step_s / work_s for name, (_, step_s) in found.items()}
lesson.keep(
    with_read=times_work["read"], with_prepare=times_work["prepare"], with_both=times_work["read and prepare"]
)

# %% [markdown]
# The read alone makes a step {{with_read:.2f}} times as long as the GPU's work, the Python alone {{with_prepare:.2f}}
# times. Both together make it {{with_both:.2f}} times as long: they cost the whole of the Python. The reason is the
# queue. It is a store of work that the GPU lives on while the CPU is away. `.item()` returns when the store is empty, and
# the GPU idles through whatever the CPU does next. **A sync costs what the CPU does after it.** That is
# why it hides so well: the profile shows time in the data preparation, which is innocent.
#
# Zoom in on the gap, as the flow says. What lies before it, in it, and after it?

# %% experiment
from helpers import widgets
from helpers.trace.gaps import REFILL_NS

gappy = found["read and prepare"][0]
read = [row for row in gappy.rows("operator") if row["name"] == "aten::_local_scalar_dense"][1]
widgets.timeline_zoom(gappy, read["end_s"] - 40e-6, read["end_s"] + 40e-6)

# %% [markdown]
# (Run the cell to move the window; “next gap” walks through the ten largest.) You see 40 µs on either side of the end
# of a read. Before: the optimizer's kernel runs, and the host is in `aten::_local_scalar_dense`, which is `.item()`. Its
# copy of four bytes is the small block behind the kernel. After: no operator, no call, no kernel. The CPU *is* busy, with
# Python (the faint band: the simulator's `host_work`). That goes on for 1.5 ms, and then the first `addmm` of the next
# step is launched, late. (The helper books the first {{refill_ms:.1f}} ms after a wait as the wait's own cost, “sync”:
# about what a CPU takes to get going again. The rest is “nothing launched”.) Here is what it says of this trace, and of
# the same loop without the read:

# %% experiment
lesson.keep(refill_ms=REFILL_NS / 1e6)
print(trace.classify(gappy), trace.classify(found["prepare"][0]), sep="\n\n")

# %% [markdown]
# In the gap itself the CPU was busy and launched nothing: by that alone the loop would be *CPU-bound*. True, and half
# of the story: the same Python without the read harms nobody, as the second verdict shows. So the tool also plays the
# trace again without the host's waits, and where most of the idle time goes away with them it names the sync. You can
# see as much with two numbers. Ask whether each side **waits for the other**: the share of time in which the GPU
# computes, and the share in which the CPU waits.
#
# ### A map
#
# Six loops (“middle”: layers of 2048 × 2048). It takes some seconds. For each: what helps most, a faster `"CPU"`, a
# faster `"GPU"`, faster `"copies"`, or `"no reads"`?

# %% experiment
said_of_remedies = {
    "small layers": ...,  # "CPU", "GPU", "copies" or "no reads"
    "large layers": ...,
    "middle, read": ...,
    "middle, prepare": ...,
    "middle, read and prepare": ...,
    "narrow (512), batch of 16,384 copied": ...,
}

# %% experiment
loops = {
    "small layers": SMALL,
    "large layers": LARGE,
    "middle, read": MIDDLE | {"read": True},
    "middle, prepare": MIDDLE | PREPARE,
    "middle, read and prepare": MIDDLE | PREPARE | {"read": True},
    "narrow (512), batch of 16,384 copied": {"width": 512, "batch": 16384, "load": True},
}
remedies = {"CPU": {"cpu": 2}, "GPU": {"gpu": 2}, "copies": {"pcie": 2}, "no reads": {"read": False}}
rows, best, on_map, gains = [], {}, {}, {}
for name, settings in loops.items():
    t, step_s = loop(**settings)
    # where there is nothing to change
    idle_part = {"copies": not settings.get("load"), "no reads": not settings.get("read")}
    gains[name] = {
        word: 1.0 if idle_part.get(word) else step_s / loop(**(settings | change))[1]
        for word, change in remedies.items()
    }
    best[name] = max(gains[name], key=gains[name].get)
    on_map[name] = shares(t)
    gap = trace.idle(t).seconds
    rows.append(
        (
            name,
            *(f"{share:.0%}" for share in on_map[name]),
            f"{gap.get('waiting for a copy', 0) / sum(gap.values()):.0%}"
            if sum(gap.values()) > 1e-6
            else "—",
            *(f"{g:.2f}×" for g in gains[name].values()),
        )
    )
heads = ["loop", "GPU computes", "CPU waits", "idle for a copy", "CPU ×2", "GPU ×2", "copies ×2", "no reads"]
table(rows, heads, evidence="simulated (H100)")

# %% experiment
compare_predictions(
    said_of_remedies,
    best,
    evidence="simulated (H100)",
    what="helps most",
    choices=("CPU", "GPU", "copies", "no reads"),
)
copied = on_map["narrow (512), batch of 16,384 copied"]
lesson.keep(copied_computes=copied[0], copied_waits=copied[1])

# %% [markdown]
# Read the first two columns as a map:
#
# | | the CPU hardly waits | the CPU waits much |
# |---|---|---|
# | **the GPU computes nearly always** | (balanced) | the **GPU** is the limit, however many syncs there are |
# | **the GPU often idles** | the **CPU** is the limit, sparse or dense | they take **turns**: something between them |
#
# Only in the last field is there something between them, and the gaps say what: a copy runs in them, or the CPU came
# back from a read. With a queue between them a step takes max(CPU, GPU); without one, their sum. Waiting on both sides is
# the sign of a sum. (Copies stand in the queue too, and add to the GPU's part, unless they have a stream of their own:
# then a step takes max(CPU, GPU, copies), lesson 05.)
#
# The CPU *waits* in a call that synchronises, in a copy from or to pageable memory, and in a launch into a full queue.
# “Sparse, so it is the CPU” needs this second column: in the last row the GPU computes only {{copied_computes:.0%}} of
# the time, and the CPU waits for {{copied_waits:.0%}}. And the map holds for the steady state only. So `shares` leaves
# the ends of a trace out: in the first step the queue is still empty, and at the end of the last one the CPU waits for
# all that is left.
#
# The words of the exercise below and those of `trace.classify`:
#
# | on the map | your `bottleneck` | `trace.classify` |
# |---|---|---|
# | the GPU computes nearly always | `"GPU"` | GPU-bound |
# | the CPU hardly waits | `"CPU"` | CPU-bound; where kernels are too short for their launches: {{launch_word}} |
# | turns, a copy runs in the gaps | `"copies"` | copy-bound |
# | turns, the CPU came back from a read | `"syncs"` | sync-bound |
#
# **Exercise 3.2 — name the bottleneck** (★★, 8 min)
#
# The map as a function, for traces of any card: simulated with noise, laid out like a real one, or from a
# machine without a GPU.
#
# <details><summary>Hint 1</summary><code>trace.steps(t)</code> has, for every step, <code>seconds_s</code>,
# <code>compute_s</code> and <code>wait_s</code>. A trace without steps is one row. Some traces have no GPU
# work at all: <code>t.has_gpu</code>.</details>
# <details><summary>Hint 2</summary>A busy GPU decides first: a sync in every step is harmless then. Next, a CPU
# that hardly waits. What is left are the turns.</details>
# <details><summary>The idea</summary><code>shares(t)</code> from section 1, then the map; in its last field
# compare <code>trace.idle(t).seconds["waiting for a copy"]</code> with all of the idle time.</details>


# %% exercise="bottleneck"
def bottleneck(t: trace.Trace) -> str:
    """Where a trace lies on the map: "GPU", "CPU", "copies", "syncs"; or "no GPU" where none was used.

    t: a steady stretch of a program, with or without ProfilerSteps, on one or more streams.
    "GPU": it computes nearly always. "CPU": it hardly ever waits for the GPU, which idles. Both wait: "copies",
    if a copy between host and GPU runs for most of the time in which nothing computes, else "syncs".
    No case lies near a border: the GPU computes over 90 % of the time or under 75 %, the CPU waits over 25 % or
    under 10 %.
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
from helpers.exercises.gpu_queue import Loop, check_bottleneck

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
from helpers.exercises.gpu_queue import Loop, check_bottleneck

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
from helpers.exercises.gpu_queue import check_bottleneck

wanted = {"GPU": "GPU", "small": "CPU", "late": "CPU", "syncs": "syncs", "copies": "copies"}
check_bottleneck(wanted | {"hidden copies": "GPU"})
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · Which lines wait?
#
# `loss` is a number on the GPU, `x` a 64 × 10 matrix there, `labels` 64 whole numbers, `mask` is `x > 0`;
# `page` and `pinned` are matrices on the host, the second in pinned (page-locked) memory; `w` is a parameter
# with a gradient. For each line: does the CPU wait, `"yes"` or `"no"`?

# %% experiment
said_of_lines = {
    "if loss > 0: pass": ...,  # "yes" or "no"
    "min(loss, best)": ...,
    "torch.minimum(loss, best)": ...,
    "x[mask]": ...,
    "torch.where(mask, x, 0)": ...,
    "x[rows]": ...,
    "x[labels[0]]": ...,
    "F.one_hot(labels, 10)": ...,
    "torch.tensor([1.0, 2.0], device=gpu.device)": ...,
    "page.to(gpu.device, non_blocking=True)": ...,
    "pinned.to(gpu.device, non_blocking=True)": ...,
    "nn.utils.clip_grad_norm_(w, 1.0, error_if_nonfinite=True)": ...,
}

# %% experiment
import contextlib
import io

gpu = simulate("H100")
with gpu:
    x = torch.randn(64, 10, device=gpu.device)
    here = {"torch": torch, "nn": nn, "F": F, "gpu": gpu, "x": x, "loss": x.sum(), "best": x.sum()}
    here |= {"mask": x > 0, "rows": torch.arange(8, device=gpu.device), "page": torch.randn(512, 512)}
    here |= {"pinned": torch.randn(512, 512).pin_memory(), "w": nn.Parameter(x.clone())}
    here["labels"] = torch.randint(0, 10, (64,), device=gpu.device)
    here["w"].grad = x.clone()
    rows, waits_of = [], {}
    for line in said_of_lines:
        before, host = gpu.syncs, len(gpu.host)
        with contextlib.redirect_stdout(io.StringIO()):
            exec(line, here)
        who = sorted({record.name for record in gpu.host[host:] if record.kind == "sync"})
        waits_of[line] = "yes" if gpu.syncs > before else "no"
        rows.append(", ".join(who) or "—")
said = compare_predictions(
    said_of_lines, waits_of, evidence="simulated (H100)", what="waits", choices=("yes", "no")
)
table(
    [(*row, who) for row, who in zip(said.rows, rows, strict=True)],
    [*said.columns, "who waits"],
    evidence="simulated (H100)",
    caption=said.caption,
)

# %% [markdown]
# Three reasons:
#
# 1. **Python needs the value**: `if`, `print`, `min` (an `if` in disguise), an index that is a GPU number (Python
#    takes it apart), `error_if_nonfinite`. Remedy: let the GPU decide (`minimum`, `where`, a factor of 0 or 1),
#    and read later, many values at once.
# 2. **The CPU needs a size**: `x[mask]`, `nonzero`, `unique`, `one_hot` without a number of classes. Nobody can
#    allocate the result before somebody has counted. Remedy: keep the shape and give weight 0
#    (`where`, `masked_fill`, `ignore_index`), or say the size.
# 3. **The bytes lie in ordinary memory**: the driver must have read them before the call returns. A Python list is such
#    memory, in `torch.tensor` and as an index (`x[[0, 2]]`, lesson 01). Remedy: make the tensor once, or pin it and copy
#    with `non_blocking=True` (lesson 05).
#
# The test of the exercise lists who waited. On a real GPU
# [`torch.cuda.set_sync_debug_mode("warn")`](https://docs.pytorch.org/docs/2.13/generated/torch.cuda.set_sync_debug_mode.html)
# names most of the lines that wait (its documentation says not all), and “error” is a good guard in a test of your own.
#
# **Exercise 3.3 — a loop that does not wait** (★★★, 15 min)
#
# `train_plain` trains a classifier and waits {{waits_a_step:.0f}} times a step; every wait was put there for a good
# reason. Write `train`: the same log and the same weights, with one wait for every `log_every` steps.
#
# <details><summary>Hint 1</summary>Which of the three reasons is each of these waits? Two of them are of the kind
# “let the GPU decide”; the sums may stay on the GPU; for the unlabelled rows look at
# <code>cross_entropy</code>'s own arguments.</details>
# <details><summary>Hint 2</summary>A step that must not count: gradients of 0 leave SGD's weights as they are.
# But NaN · 0 is NaN, so a factor will not do: <code>torch.where(ok, g, 0)</code>. All four numbers of a log
# line fit into one tensor.</details>
# <details><summary>The idea</summary><code>ok = torch.isfinite(loss)</code> stays a tensor;
# <code>F.cross_entropy(…, ignore_index=-1)</code>; <code>clip_grad_norm_</code> clips without a look;
# <code>sums += torch.where(ok, torch.stack([loss, 1, right, seen]), 0)</code>, with everything in it a tensor of
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
with simulate("H100", values=True) as gpu:
    model, labels = nn.Linear(8, 4).to(gpu.device), torch.arange(16, device=gpu.device) % 4
    batches = [(torch.randn(16, 8, device=gpu.device), labels)] * 3
    before, host = gpu.syncs, len(gpu.host)
    train_plain(gpu, model, batches, [1.0] * 4)
    lesson.keep(waits_a_step=(gpu.syncs - before) / len(batches))
waited = [record.name for record in gpu.host[host:] if record.kind == "sync"]
print("one step of train_plain waits in:", ", ".join(waited[: len(waited) // len(batches)]))

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

    gpu: has torch.cuda's names. model: on gpu.device; all its parameters are trained, in place. batches: (x, y) on
    gpu.device, which stay as they are, perhaps none; x: (B, f); y: (B,), classes, or −1 for a row without a label,
    which does not count. x is finite in such rows (else its gradient, 0 · inf, would be NaN). A batch with a loss
    that is not finite (or without any label) changes nothing and is counted as skipped; one with a finite loss
    counts, also if its gradient's norm overflows.

    Returns one list for every log_every steps: [step, mean loss, accuracy, skipped batches], as train_plain does;
    0 for a mean of nothing.

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
from helpers.exercises.gpu_queue import Steps, check_train

check_train(Steps("......", log_every=3), Steps(".i..u.i", log_every=3))

# %% hidden="train" points=5
### BEGIN HIDDEN TESTS
from helpers.exercises.gpu_queue import Steps, check_train

check_train(Steps("..iu....", log_every=4, seed=4), Steps("i.u", log_every=1, seed=5))
check_train(Steps(".l.h..", log_every=3, seed=6), Steps("..", log_every=3, seed=7), Steps("", log_every=2))
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · Record it yourself: `torch.profiler`
#
# Live now, on this CPU; with a GPU the same lines record its streams too. A *schedule* says which steps are
# kept: `wait` steps are let pass, `warmup` steps run with the tracer on and are thrown away, `active` steps are
# recorded; then all over again. With `schedule(wait=2, warmup=1, active=3)` and ten steps, numbered from 0:
# how many are recorded, and which is the first? And how many if one forgets `prof.step()`?

# %% experiment
said_of_schedule = {  # numbers from 0 to 10
    "steps recorded": ...,
    "the first of them": ...,
    "recorded without prof.step()": ...,
}

# %% experiment
from torch.profiler import ProfilerActivity, profile, schedule

model, data = nn.Linear(64, 64), torch.randn(32, 64)
sgd = torch.optim.SGD(model.parameters(), lr=0.1)


def recorded(step_is_called):
    """The traces of a profiled training loop of ten steps, one for each cycle of the schedule; and the profile."""
    cycles = []
    with profile(
        activities=[ProfilerActivity.CPU],  # and ProfilerActivity.CUDA, where there is one
        schedule=schedule(wait=2, warmup=1, active=3),
        on_trace_ready=lambda p: cycles.append(trace.read(p)),  # or p.export_chrome_trace("steps.json.gz")
        record_shapes=True,
        with_stack=True,
        acc_events=True,
    ) as prof:
        for _ in range(10):
            with record_function("forward"):
                loss = model(data).square().mean()
            with record_function("backward"):
                sgd.zero_grad()
                loss.backward()
            with record_function("optimizer"):
                sgd.step()
            if step_is_called:
                prof.step()
    return cycles, prof


def steps_in(cycles):
    """Numbers of the recorded steps; without the mark that stands for what follows the last prof.step()."""
    found = [int(step.name.partition("#")[2]) for t in cycles for step in trace.steps(t)]
    return [number for number in found if number < 10]


cycles, prof = recorded(step_is_called=True)
kept, forgotten = steps_in(cycles), steps_in(recorded(step_is_called=False)[0])
compare_predictions(
    said_of_schedule,
    {
        "steps recorded": len(kept),
        "the first of them": kept[0],
        "recorded without prof.step()": len(forgotten),
    },
    evidence="live (CPU)",
    choices=range(11),
)
assert kept == [3, 4, 5, 9] and not forgotten

# %% [markdown]
# After two waits and a warm-up come #3, #4 and #5; the cycle begins again and gets as far as #9. `repeat=1` stops after
# the first cycle, and is what one usually wants. Look with suspicion at a cycle's first recorded step: it may take far
# longer than the others, whatever `warmup` says; compare two that follow. Without `prof.step()` the profiler stays in its
# first state for ever, and says nothing about it.
#
# What each option adds:

# %% experiment
three = cycles[0]
shapes = [e.input_shapes for e in prof.key_averages(group_by_input_shape=True) if e.key == "aten::addmm"]
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as once:
    model(data)
taken = {e.key: e.self_cpu_memory_usage for e in once.key_averages() if e.self_cpu_memory_usage > 0}
names = [row["name"] for row in three.rows()]
table(
    [
        ("always", f"operators: `aten::addmm` {names.count('aten::addmm')} times"),
        (
            '`record_function("forward")`',
            f"{names.count('forward')} named spans (with a GPU: on its lane too)",
        ),
        ("`record_shapes=True`", f"inputs of addmm: {shapes[0][:3]}"),
        ("`profile_memory=True`", f"bytes an operator takes: {taken}"),
        ("`with_stack=True`", f"Python's frames: {'yes' if three.of('python').any() else 'no'}"),
    ],
    ["option", "what it adds to the trace of three steps"],
    evidence="live (CPU)",
)

# %% experiment tags=["nbval-ignore-output"]
trace.top(three, 4, by="host")

# %% [markdown]
# `prof.key_averages().table(sort_by="self_cpu_time_total")` prints the same list in torch's own layout;
# `device_time_total` sorts by the GPU. *Self* time leaves out what an operator calls; without it the outermost
# name always wins. Stacks and shapes cost time in every call: leave them off when the question is whether the
# CPU keeps up, and compare with a run without profiler (lesson 00) before you believe a sparse trace.
#
# Where to look at a trace: drag the file into [Perfetto](https://ui.perfetto.dev) (or `chrome://tracing`). Older texts
# use TensorBoard's plugin and
# [`export_memory_timeline`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/profiler/profiler.py), both
# deprecated: Perfetto, and snapshots (lesson 08), instead.
#
# ## 5 · Nsight Systems, Nsight Compute
#
# **Nsight Systems** (`nsys profile -t cuda,nvtx,osrt python train.py`) is a trace again, of the whole machine: every
# process and thread, what they wait for in the operating system, all GPUs, the network. With `-c cudaProfilerApi` it
# records only what your script puts between
# [`torch.cuda.profiler.start()`](https://docs.pytorch.org/docs/2.13/generated/torch.cuda.profiler.start.html) and
# `torch.cuda.profiler.stop()`, and nothing at all if it calls neither
# ([*Nsight Systems user guide*](https://docs.nvidia.com/nsight-systems/UserGuide/index.html), `--capture-range`).
# Go there when the trace says “the CPU was busy” and Python's frames do not say with what: loader workers, another
# process, a lock. Names travel with `torch.autograd.profiler.emit_nvtx()` or `torch.cuda.nvtx.range`.
#
# **Nsight Compute** (`ncu --set full -k regex:gemm -c 3 python train.py`) looks inside single kernels. It [runs each
# kernel several times over](https://docs.nvidia.com/nsight-compute/NsightComputeCli/index.html), once for every group
# of hardware counters, so the program's own times mean nothing meanwhile. Its first page, *GPU Speed Of Light*, has the
# two numbers of the table below: the share of the arithmetic peak and of the memory peak that a kernel reaches. No
# report of a real card is recorded yet, so the figures here are the **simulator's**: its kernel times come from a model
# of just this kind, calibrated a little; read the table to learn the reading.
#
# %% experiment
gpu = simulate("H100")
with gpu:
    big, few, bit = (torch.randn(n, m, device=gpu.device) for n, m in ((4096, 4096), (8, 4096), (64, 64)))
    for _ in range(2):
        work = (big @ big, few @ big, bit @ bit, torch.relu(big), bit + bit)
rows = []
names = [
    "product 4096 × 4096 × 4096",
    "product 8 × 4096 × 4096",
    "product 64 × 64 × 64",
    "relu, 4096 × 4096",
    "add, 64 × 64",
]
for name, kernel in zip(names, gpu.kernels[-5:], strict=True):
    compute = kernel.flops / kernel.duration_s / H100.peak_flops["fp32"]
    memory = kernel.bytes / kernel.duration_s / H100.memory_bytes_per_s
    intensity = kernel.flops / kernel.bytes
    rows.append(
        (name, format_seconds(kernel.duration_s), f"{intensity:.2f}", f"{compute:.1%}", f"{memory:.1%}")
    )
ridge = H100.peak_flops["fp32"] / H100.memory_bytes_per_s
launch_word = trace.classify(sparse_dense["small layers"][0]).bottleneck
lesson.keep(operator_us=1e6 * H100.assumptions.operator_s, launch_word=launch_word)
table(
    rows,
    ["kernel (fp32)", "duration", "FLOP per byte", "of peak FLOP/s", "of peak bytes/s"],
    evidence="simulated (H100)",
    caption=f"the two limits meet at {ridge:.0f} FLOP per byte",
)

# %% [markdown]
# FLOP per byte decides *which* limit: below the meeting point the memory, above it the arithmetic. How
# near the kernel comes to that limit says whether better code can exist. And “neither” means too little work to
# fill a GPU; no counter inside the kernel will help there, only more work for each launch.
#
# When is it worth the trouble? The map's column “GPU ×2” gives the order of magnitude: where twice the GPU wins
# nothing, better kernels of the same number will not either (fewer kernels may: they are fewer launches).
#
# ## On the real GPU
#
# Four loops of the kinds above, recorded by one and the same code: live where there is a CUDA GPU, else from a recording,
# else simulated once more; the label says which. None is recorded yet. What to look for on a real card: how far is the
# launch-bound loop from the simulator, which takes a round {{operator_us:.0f}} µs of CPU for every operator? Does the
# order of the four stay? The last two columns have the word of your exercise 3.2, and whether it is `classify`'s.

# %% experiment tags=["nbval-ignore-output"]
from helpers import recordings

WORDS = {"GPU-bound": "GPU", "CPU-bound": "CPU", "copy-bound": "copies", "sync-bound": "syncs"}
WORDS |= {"launch-bound": "CPU"}
rows = []
for name in ("launch_bound", "steady", "item_in_loop", "read_and_prepare"):
    shown = recordings.show(f"03/{name}", simulated="H100")
    about = "" if shown.evidence.startswith("simulated") else "≈ "
    told = trace.classify(shown.trace)
    try:
        mine = bottleneck(shown.trace)
    except NotImplementedError:
        mine = "write 3.2 first"
    alike = "yes" if mine == WORDS.get(told.bottleneck) else "no"
    figures = (f"{about}{share:.0%}" for share in shares(shown.trace))
    rows.append((name, *figures, told.density, told.bottleneck, mine, alike))
heads = ["loop", "GPU computes", "CPU waits", "the GPU's lane", "trace.classify", "bottleneck", "the same"]
table(rows, heads, evidence=shown.evidence)

# %% [markdown]
# ## Sources on trial

# %% experiment tags=["fold"]
small_gain, large_gain = gains["small layers"], gains["large layers"]
copied, turns = gains["narrow (512), batch of 16,384 copied"], gains["middle, read and prepare"]
computes, waits = on_map["narrow (512), batch of 16,384 copied"]
gap = trace.classify(gappy)
flow = "the flow"
accepted = "accepted"
try:
    prof.key_averages().table(sort_by="cuda_time_total", row_limit=1)
except Exception as refused:
    accepted = f"refused ({type(refused).__name__})"
lesson.verdicts(
    [
        {
            "id": "03-sparse-cpu",
            "claim": "A sparse GPU queue means that the bottleneck is on the CPU",
            "source": "book-notes",
            "measured": f"small layers: GPU busy {on_map['small layers'][0]:.0%}, CPU ×2 gives "
            f"{small_gain['CPU']:.2f}×. Batches copied: GPU busy {computes:.0%}, CPU ×2 gives {copied['CPU']:.2f}×, "
            f"copies ×2 {copied['copies']:.2f}×",
            "verdict": "holds when the CPU itself does not wait"
            if copied["CPU"] < 1.1 < small_gain["CPU"]
            else "confirmed",
            "experiment": "2 · A map",
        },
        {
            "id": "03-dense-gpu",
            "claim": "A dense GPU queue without gaps means that the bottleneck is the GPU's operators",
            "source": "book-notes",
            "measured": f"large layers: GPU ×2 gives {large_gain['GPU']:.2f}×, CPU ×2 {large_gain['CPU']:.2f}×; with "
            f"a read in each step: {gains['middle, read']['GPU']:.2f}× and {gains['middle, read']['CPU']:.2f}×",
            "verdict": "confirmed" if large_gain["GPU"] > 1.5 > large_gain["CPU"] else "refuted",
            "experiment": "1 · Sparse or dense",
        },
        {
            "id": "03-gaps-zoom",
            "claim": "Dense with gaps: zoom in on the gap",
            "source": "book-notes",
            "measured": f"read and prepare: “{gap.density}”; in the largest gap nothing is launched; the wait that emptied "
            f"the queue ends where the gap begins; without the reads {turns['no reads']:.2f}×",
            "verdict": "holds when the window shows the wait before the gap as well",
            "experiment": "2 · Dense with gaps",
        },
        {
            "id": "03-before-and-after",
            "claim": "What the GPU and the CPU do before and after the gap tells the cause",
            "source": "book-notes",
            "measured": f"in the gap: Python; the same Python without the read before the gap costs "
            f"{gains['middle, prepare']['CPU'] - 1:+.0%}; the read before it, taken out, wins {turns['no reads'] - 1:+.0%}",
            "verdict": "holds when one looks before the gap too: what fills it may be innocent",
            "experiment": "2 · Dense with gaps",
        },
        {
            "id": "03-nsight-compute",
            "claim": "In training, Nsight Compute is only needed when optimising CUDA operators",
            "source": "book-notes",
            "measured": "kernels twice as fast give "
            + ", ".join(
                f"{g['GPU']:.2f}× ({name})"
                for name, g in gains.items()
                if name in ("small layers", "large layers", "middle, read and prepare")
            ),
            "verdict": "untested: no report was read; what faster kernels would win depends on the loop",
            "experiment": "5 · Nsight Systems, Nsight Compute",
        },
        {
            "id": "03-utilization",
            "claim": "`torch.cuda.utilization()` gives the use of the GPU",
            "source": "compile-300",
            "measured": "; ".join(
                f"{name}: busy {b:.0%}, {f:.1%} of FLOP/s" for name, (b, f, _) in use.items()
            ),
            "verdict": "holds when it is low: then the GPU waits; a high one says only that something ran",
            "experiment": "1 · Busy is not fast",
        },
        {
            "id": "03-schedule-recipe",
            "claim": "`schedule(wait=2, warmup=1, active=3)` around the training loop, as printed",
            "source": "five-strategies",
            "measured": f"ten steps: {len(kept)} recorded; without `prof.step()`, which the recipe leaves out: "
            f"{len(forgotten)}",
            "verdict": "holds when every step ends with prof.step()" if not forgotten else "confirmed",
            "experiment": "4 · Record it yourself",
        },
        {
            "id": "03-cuda-time-total",
            "claim": '`key_averages().table(sort_by="cuda_time_total")`',
            "source": "compile-300",
            "measured": f"this torch: {accepted}; the name of today is device_time_total",
            "verdict": "confirmed" if accepted == "accepted" else "refuted",
            "experiment": "4 · Record it yourself",
        },
        {
            "id": "03-nsys-memory",
            "claim": "Nsight Systems analyses memory access patterns, to improve the layout",
            "source": "compile-300",
            "measured": "no GPU here; NVIDIA's manuals describe memory access inside kernels under Nsight Compute",
            "verdict": "untested here",
            "experiment": "5 · Nsight Systems, Nsight Compute",
        },
    ],
    evidence="simulated (H100) · live (CPU)",
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | The bottleneck is what, made faster, makes the step faster | two parts near balance: then each gives a little |
# | Sparse queue: look at the CPU | the CPU waits too: copies or syncs |
# | Dense queue: look at the kernels | dense may still be wasteful: tiny kernels, wrong precision (lesson 10) |
# | Both wait: they take turns; find the read or the copy before the gap | a GPU that is busy anyway: leave the read in |
# | A sync costs what the CPU does after it | nothing follows: the end of a run, of an epoch |
# | Keep sums on the GPU, read once in a hundred steps | a decision of the CPU needs the value: early stopping, search |
# | Profile a few warm steps | rare events (checkpoint, evaluation): profile those by themselves |
#
# **For your own code**: profile three warm steps · how much does the GPU compute, how much does the CPU wait?
# · which field of the map? · in the last field: what ran before the gap? · `set_sync_debug_mode("warn")`, and a
# reason for each line that it names · measure again without the profiler.
#
# **To read on**: PyTorch's [profiler recipe](https://docs.pytorch.org/tutorials/recipes/recipes/profiler_recipe.html) and
# its page on [`torch.profiler`](https://docs.pytorch.org/docs/2.13/profiler.html); NVIDIA, *Nsight Compute Kernel
# Profiling Guide* (replay, Speed Of Light, roofline); S. Williams, A. Waterman, D. Patterson, *Roofline* (2009);
# *Holistic Trace Analysis*, for many GPUs. Lesson 05 hides the copies, lesson 07 makes launches cheap.
