# %% [markdown]
# # 00 · Measure first
#
# ## How do I know that it got faster?
#
# Every later lesson changes some code and claims that the change helped. This lesson is about the claim. A clock
# around a GPU call reads the wrong thing. The first run is slower than all others. Two runs of the same code differ. A
# machine that heats up slows whatever is timed last. Each can show a false speed-up.
#
# **Time** 60 min, in two sittings if you like (a good break is before section 3); *Further*: 77 min. **Before
# this**: Python, and enough PyTorch to write a training loop. You need no GPU.
#
# **Afterwards you can**
# 1. time the work of a GPU, and not only its launch;
# 2. say "faster", "slower" or "cannot tell" from runs on a noisy, drifting machine;
# 3. find out which change helps *your* model before you keep it.
#
# **How to work.** First you **predict**: click an answer. Then the measurement appears, and only then you read why.
# In the exercises a test says at once what is right. In all lessons, a function that you write does not change its
# arguments, and returns a new object at each call, unless its text says otherwise.

# %% setup
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from helpers import bench, compare, lesson, plots, simulate
from helpers.lessons.measure_first import experiments

lesson.start(
    "00_measure_first",
    evidence=["simulated (H100)", "recorded (H100)", "simulated (noisy machine)", "live (CPU)", "arithmetic"],
)

# %% [markdown]
# Every table and picture says where its numbers come from. *live (CPU)* was measured on the machine that ran the cell;
# *recorded (H100)* on a real GPU. A **≈** stands before what a clock gave. *arithmetic* needed no run.
# *simulated (noisy machine)* comes from random numbers, *simulated (H100)* from a model of a GPU:
# `simulate("H100")` gives PyTorch a GPU that is not there. **What waits for what** follows CUDA's rules. Times are
# estimates. The line under a table says how far the worst whole step, of any card, was from its measurement; launches can
# be off by more (*Further*).
#
# ## 1 · What does a clock around a GPU call read?
#
# The CPU does not wait for the GPU. It **launches** work: it puts a **kernel**, a small program for the GPU, into a queue,
# and goes on. The GPU runs the kernels of a queue one after the other.
#
# We time three products of 1024 × 1024 matrices in three ways at once:
#
# - a clock, read before and after the three calls;
# - the same clock, read once more after
#   [`synchronize()`](https://docs.pytorch.org/docs/stable/generated/torch.cuda.synchronize.html), which waits until the
#   queue is empty;
# - a pair of [events](https://docs.pytorch.org/docs/stable/generated/torch.cuda.Event.html): marks in the queue that the
#   GPU stamps with the time when it passes them.
#
# Which timer reads the launch, and which the work?

# %% experiment
you = lesson.predict(
    {"clock around the calls": ..., "clock, after synchronize": ..., "a pair of events": ...},
    choices=["the launch", "the work"],
)


# %% experiment
def read_timers(gpu: Any, size: int, products: int) -> tuple[float, dict[str, float]]:
    """When the clocks were started, and the seconds that each timer reads."""
    with gpu:
        a = torch.randn(size, size, device=gpu.device)
        a @ a  # the first call is special: section 2
        gpu.synchronize()
        start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
        t0 = gpu.clock()  # what time.perf_counter() would read
        start.record()
        for _ in range(products):
            a @ a
        end.record()
        t1 = gpu.clock()
        gpu.synchronize()
        t2 = gpu.clock()
    events = start.elapsed_time(end) / 1e3  # milliseconds → seconds
    clocks = {"clock around the calls": t1 - t0, "clock, after synchronize": t2 - t0}
    return t0, clocks | {"a pair of events": events}


# %% experiment
gpu = simulate("H100")
t0, readings = read_timers(gpu, size=1024, products=3)
launch_us, beside_us, events_us = experiments.in_us(gpu, readings, products=3)
lesson.keep(launch_us=launch_us, beside_us=beside_us, events_us=events_us)
you.against(*experiments.timers(gpu, readings, since_s=t0, products=3), evidence=gpu.evidence, what="reads")

# %% [markdown]
# The CPU needs {{launch_us:.0f}} µs to launch a product (the narrow orange boxes). Then it is free again, and the GPU
# has barely begun. A clock that is read now has measured the CPU.
#
# > **Rule.** Read the clock only after `synchronize()`, at the beginning of the work and at its end. Without the first,
# > earlier work is counted as yours. Without the second, hardly any of yours is counted. Events need only a wait before
# > `elapsed_time`.
#
# The second timer reads {{beside_us:.0f}} µs more than the kernels took: the first mark, one launch, its way to the GPU
# and one wait lie inside. The events read {{events_us:.0f}} µs more: the first mark is stamped before the first kernel
# arrives. Many calls can share such microseconds; if you wait after *every* call, each pays them. So **wait once**.
#
# ### Which line is slow?
#
# A training step has three lines: `forward` (eight matrix products), `loss` (a mean of squares), `log` (`loss.item()`,
# which brings the number to the CPU). You read a clock after each line. Which line does it call the slowest? And which is
# it, if you synchronize before each reading?

# %% experiment
you = lesson.predict(
    {"the naive clock blames": ..., "the clock after synchronize blames": ...},
    choices=["forward", "loss", "log"],
)


# %% experiment
def time_lines(wait: bool) -> dict[str, float]:
    """Seconds charged to each line of the third step. wait: synchronize before each reading of the clock."""
    with (gpu := simulate("H100")):
        x, w = (torch.randn(2048, 2048, device=gpu.device) for _ in range(2))
        for _ in range(3):
            clock = experiments.Laps(gpu, wait=wait)
            y = x
            for _ in range(8):
                y = y @ w
            clock.lap("forward")
            loss = (y * y).mean()
            clock.lap("loss")
            loss.item()
            clock.lap("log")
    return clock.seconds


naive, waited = time_lines(wait=False), time_lines(wait=True)
blamed = {
    "the naive clock blames": max(naive, key=naive.get),
    "the clock after synchronize blames": max(waited, key=waited.get),
}
you.against(blamed, experiments.lines(naive, waited), evidence="simulated (H100)", what="slowest line")

# %% [markdown]
# `loss.item()` needs the number, so the CPU waits there until the GPU has done everything that was queued before. The
# naive clock charges this line with the work of all the others: the line that waits gets the blame. If you believe it, you
# remove `.item()`, and win almost nothing (section 5): the work is still to be done.
#
# ## 2 · The first call
#
# The same call eight times on a fresh GPU: make a matrix, and multiply it by itself. Each call is timed correctly: clock,
# call, synchronize, clock. How many times as long as the last call does the first one take? And which calls are slow?

# %% experiment
you = lesson.predict(
    {"first call ÷ last call": ..., "slow calls": ...},
    choices={
        "first call ÷ last call": ["about 2", "about 10", "about 100", "1,000 or more"],
        "slow calls": ["only the first", "the first two", "each a little less"],
    },
)

# %% experiment
gpu = simulate("H100")
calls = []
with gpu:
    for _ in range(8):
        t0 = gpu.clock()
        a = torch.empty(1024, 1024, device=gpu.device)
        a @ a
        gpu.synchronize()
        calls.append(gpu.clock() - t0)
lesson.keep(mean_of_1000=(calls[0] + 999 * calls[-1]) / 1000 / calls[-1])
you.against(*experiments.first_call(gpu, calls), evidence=gpu.evidence)

# %% [markdown]
# The first tensor on a GPU makes a *context* there (what the driver has to know of your process), and the first product
# loads a library and a kernel. (How long that takes is an assumption of the simulator.) A process pays once for each
# device, library and kernel, but you see it in every mean: even the mean of a thousand calls is {{mean_of_1000:.1f}} times
# a warm call.
#
# > **Rule.** Call the work first, then synchronize, then start the clock. This is the **warm-up**. On a real system more
# > things are slow at first: `torch.compile`, the file cache, a GPU whose clock frequency still rises. So warm up until
# > the readings stop falling.
#
# **Exercise 0.1 — time work on a GPU** (★★, 10 min)
#
# Put the rules together in one function: warm up, wait at both ends, wait once. It runs on the simulated GPU and,
# unchanged, on a real one: `helpers.simulator.RealGPU()` is `torch.cuda` with a `clock()`.
#
# <details><summary>Hint 1</summary>Three things have to be outside the measured stretch: the set-up of the
# first call, whatever was in the queue before you came, and all but one of the waits.</details>
# <details><summary>Hint 2</summary>Allowed error: 20 µs for the whole stretch. One wait or one launch fits
# in; one for each call does not.</details>
# <details><summary>The idea</summary>Call <code>work()</code> once and synchronize. Now the set-up is over and the queue
# is empty. Between which two moments must the clock run, and what has to happen before you read it the second time? Two
# events do as well: <code>elapsed_time</code> is in milliseconds.</details>


# %% exercise="time_on_gpu"
def time_on_gpu(gpu: Any, work: Callable[[], object], repeats: int = 10) -> float:
    """Seconds that one call of work() takes on the GPU, when calls follow each other without a pause.

    gpu: has torch.cuda's names (write gpu.synchronize(), gpu.Event(enable_timing=True), not torch.cuda.…) and
        clock(), in place of time.perf_counter(), which cannot see a simulated GPU. It may never have been
        used, and its queue may be full when you are called.
    work: launches one or more kernels and returns None; a call keeps the GPU busy for longer than the CPU
        needs to launch it. Its first call includes set-up, which does not count.
    repeats: calls to be measured, at least 1 (else ValueError); up to 5 more for warming up (here one is
        enough: this GPU's set-up is over after the first call).

    Right when at most 20 µs / repeats from the device's own record: once in a measurement you may pay a
    launch and a wait (6 + 2 + 4 µs on this GPU: call, way to the device, wait), but not once in a call.
    """
    ### BEGIN SOLUTION
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, not {repeats}")
    work()
    gpu.synchronize()
    begin = gpu.clock()
    for _ in range(repeats):
        work()
    gpu.synchronize()
    return (gpu.clock() - begin) / repeats
    ### END SOLUTION


# %% test="time_on_gpu" points=1
from helpers.lessons.measure_first.exercises import Calls, check_time_on_gpu

check_time_on_gpu(
    Calls(size=1024, products=2, repeats=20),
    Calls(size=1024, products=1, repeats=10, queued=30),
)

# %% hidden="time_on_gpu" points=5
### BEGIN HIDDEN TESTS
from helpers.lessons.measure_first.exercises import Calls, check_time_on_gpu

check_time_on_gpu(
    Calls(768, products=1, repeats=10),
    Calls(1024, products=3, repeats=12, queued=40),
    Calls(2048, products=1, repeats=1, queued=9),
    Calls(900, products=2, repeats=200, queued=100),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · Noise
#
# Now the clock is right, and still two runs of the same code differ. To count false alarms, we make a machine
# of random numbers: most runs scatter by 3 %, and one run in ten is **disturbed** and takes up to twice as long.
#
# We compare A with A a thousand times, and raise an alarm whenever the two differ by 5 % or more. Every alarm is false.
# Which summary of the runs raises the fewest false alarms, and which the most?

# %% experiment
you = lesson.predict(
    {"fewest false alarms": ..., "most false alarms": ...},
    choices=["one run", "mean of 10", "median of 10", "minimum of 10"],
)

# %% experiment
summaries = {
    "one run": lambda runs: runs[:, 0],
    "mean of 10": lambda runs: runs.mean(axis=1),
    "median of 10": lambda runs: np.median(runs, axis=1),
    "minimum of 10": lambda runs: runs.min(axis=1),
}
rng = np.random.default_rng(0)
alarms = {}
for name, summary in summaries.items():
    a, same = (summary(experiments.noisy(rng, 3e-3, 1000, 10)) for _ in range(2))
    alarms[name] = int((abs(np.log(a / same)) >= math.log(1.05)).sum())
lesson.keep(single=alarms["one run"], mean=alarms["mean of 10"])
lesson.keep(median=alarms["median of 10"], minimum=alarms["minimum of 10"])
fewest, most = min(alarms, key=alarms.get), max(alarms, key=alarms.get)
you.against(
    {"fewest false alarms": fewest, "most false alarms": most},
    lesson.table(
        [*alarms.items()], ["summary", "false alarms in 1,000"], evidence="simulated (noisy machine)"
    ),
    evidence="simulated (noisy machine)",
)

# %% [markdown]
# One run cannot show 5 %: {{single}} false alarms in 1,000. The mean of ten is even worse here, with {{mean}}: in ten runs
# there is usually a disturbed one, and the mean passes it on. The **median**, the middle of the sorted runs, drops it:
# {{median}} alarms. The minimum drops it too, but it is a single run, the luckiest, and here it scatters more: {{minimum}}. Where
# noise can only slow a run down, the minimum may be steadier
# ([`timeit`](https://docs.python.org/3/library/timeit.html#timeit.Timer.repeat) recommends it). It says nothing of the
# typical run.
#
# > **Rule.** Report the median.
#
# ## 4 · Drift, and runs in pairs
#
# A median reduces noise. It does not remove **drift**: a chip that heats up and lowers its clock frequency, a neighbour
# who starts a job. Below, "after" truly needs 3 % less time (1.03×). But while you measure, the machine slows down: each
# run comes to take about 1.3 times as long.

# %% experiment
experiments.drift()

# %% [markdown]
# On the left, all runs of "before" came first, and the drift hit "after". On the right, the two ran **in turns**: one run
# of each makes a pair. The second of a pair meets a slightly different drift, mostly more. Half of the pairs, drawn at
# random, begin with "after", so this hits both versions alike.
#
# How much faster is "after"? An honest answer is an **interval** that holds the true ratio, before ÷ after, at least 95
# times in 100. If the whole interval lies above 1, the verdict is "faster"; below 1, "slower"; if 1 lies inside, "cannot
# tell". Our interval reaches two **standard errors** to either side, on a logarithmic scale. (The standard error of a mean
# of n numbers is their standard deviation ÷ √n. No run is disturbed here, so means will do.)
#
# We measure in 200 sessions, in three ways. What does each way say in most of them?

# %% experiment
you = lesson.predict(
    {"first all before, then all after": ..., "in turns, as two groups": ..., "in turns, in pairs": ...},
    choices=["faster", "slower", "cannot tell"],
)


# %% experiment
def groups(before: np.ndarray, after: np.ndarray) -> tuple[float, float, float]:
    """Ratio of the two groups, and the lower and the upper end of its interval."""
    x, y = np.log(before), np.log(after)  # log(a) − log(b) = log(a / b)
    error = math.sqrt(x.var(ddof=1) / len(x) + y.var(ddof=1) / len(y))
    return experiments.around(x.mean() - y.mean(), 2 * error)


def paired(before: np.ndarray, after: np.ndarray) -> tuple[float, float, float]:
    """The same from the ratio within each pair."""
    d = np.log(before / after)
    return experiments.around(d.mean(), 2 * math.sqrt(d.var(ddof=1) / len(d)))


sessions = {
    "first all before, then all after": [groups(*experiments.session(s, in_turns=False)) for s in range(200)],
    "in turns, as two groups": [groups(*experiments.session(s, in_turns=True)) for s in range(200)],
    "in turns, in pairs": [paired(*experiments.session(s, in_turns=True)) for s in range(200)],
}
wrong, unsure, right = (experiments.words(intervals) for intervals in sessions.values())
lesson.keep(slower=wrong.count("slower"), unsure=unsure.count("cannot tell"), right=right.count("faster"))
you.against(*experiments.sessions(sessions), evidence="simulated (noisy machine)", what="says")

# %% [markdown]
# The first way is sure, and wrong: "slower" in {{slower}} of 200 sessions. The second is honest and useless: the drift
# spreads both groups, so the interval is wide, and {{unsure}} sessions end in "cannot tell". The third looks only at the
# ratio **within a pair**. Its two runs are neighbours, so the drift almost cancels: "faster" in {{right}} sessions.
#
# > **Rule.** Run the two versions in turns, in random order, and look at the ratios of the pairs.
#
# `compare(before, after)` does this, after a warm-up. It synchronizes where it sees a tensor or a model on a GPU: among the
# arguments, or the variables that the two functions name. A list or a method hides them: then pass
# `gpu=helpers.simulator.RealGPU()`. It takes the median of the pairs' ratios, so a few disturbed runs do no harm. Here, on
# your CPU: 64 small sums in a Python loop against one sum over all rows, and that against itself.

# %% experiment tags=["nbval-ignore-output"]
x = torch.randn(64, 512)


def loop() -> torch.Tensor:
    return torch.stack([row.sum() for row in x])


def at_once() -> torch.Tensor:
    return x.sum(dim=1)


live = {
    "a loop → at once": compare(loop, at_once, pairs=40, num_threads=1),
    "at once → itself": compare(at_once, at_once, pairs=60, number=2000, num_threads=1),
}
plots.speedup(live, title="Time before ÷ time after, on this machine")

# %% [markdown]
# Expect the first interval far to the right of 1, and the second around 1. 95 % allows a false alarm now and then, so run
# the cell once more. If the second interval raises it again, something systematic is wrong. If an interval is wide, four
# times as many pairs make it about half as wide.
#
# **Exercise 0.2 — faster, slower, or cannot tell** (★★, 12 min)
#
# Write the verdict yourself. Here one run in twelve takes up to four times as long, which spoils the mean in `paired`. One
# way needs no theory of noise: if the change does nothing, each pair is a **coin toss**, and "after" wins half of the
# pairs. So count the pairs that "after" won.
#
# <details><summary>Hint 1</summary>Nine pairs of twelve say "faster". If the change does nothing: how often do nine or
# more of twelve tossed coins fall alike? <code>math.comb(n, k)</code> counts the ways in which k of n
# do. Nine tails are as uneven as nine heads, so both count. (To check: 0.146.)</details>
# <details><summary>Hint 2</summary>Speak only where so uneven a number of wins (in either direction) comes less than one
# time in twenty. A pair with two equal times is no toss at all: leave it out.</details>
# <details><summary>The idea</summary>Of n pairs with different times, one version won m, and m is at least n / 2. The
# chance that one side wins exactly m is <code>comb(n, m) / 2**n</code>. Which other numbers of wins are at least as uneven?
# Add them, for both sides, and compare with 0.05.</details>


# %% exercise="verdict"
def verdict(before: np.ndarray, after: np.ndarray) -> str:
    """What paired runs say of "after", at 95 % (both directions together): "faster", "slower" or "cannot tell".

    before, after: (n,) positive seconds, paired and measured in turns; the scatter of single runs is unknown,
        the machine may drift, and one run in twelve may be disturbed and take up to four times as long.
        Two runs may take the very same time, if the clock is coarse. Fewer than 6 pairs: "cannot tell".
        ValueError for unequal lengths.

    Judged by counting: of 200 series without a difference (n = 6, 10 or 30, scatter 2 % or 10 %), at most 25
    may say anything but "cannot tell" (5 % would be 10; 25 allows for chance and a rough method); of
    200 with a change of 5 % (n = 30, scatter 2 %), 2 % (n = 30, scatter 0.3 %) or 1.7 % (n = 100, scatter
    2 %), at least 160 must say the right word, and none the opposite one.
    """
    ### BEGIN SOLUTION
    if len(before) != len(after):
        raise ValueError(f"paired runs wanted, got {len(before)} before and {len(after)} after")
    if len(before) < 6:
        return "cannot tell"
    d = np.log(np.asarray(before, dtype=float) / np.asarray(after, dtype=float))
    draws = np.random.default_rng(0).integers(0, d.size, size=(1000, d.size))
    low, high = np.percentile(np.median(d[draws], axis=1), [2.5, 97.5])
    return "faster" if low > 0 else "slower" if high < 0 else "cannot tell"
    ### END SOLUTION


# %% test="verdict" points=1
from helpers.lessons.measure_first.exercises import check_verdict

words = {
    "clearly faster": "faster",
    "clearly slower": "slower",
    "the same code": "cannot tell",
    "the same code; half-way the machine becomes 1.5 times as slow": "cannot tell",
    "10 % faster, on a machine that slows threefold": "faster",
    "the same code, scatter 10 %": "cannot tell",
    "1 % faster, scatter 0.3 %": "faster",
    "10 % faster, one run of after disturbed": "faster",
    "the same code, one run of before disturbed": "cannot tell",
    "twice as fast, but three pairs": "cannot tell",
}
check_verdict(words)

# %% hidden="verdict" points=2
### BEGIN HIDDEN TESTS
from helpers.lessons.measure_first.exercises import Machine, check_verdict

machines = [
    Machine(30, scatter=0.02),
    Machine(30, scatter=0.1),
    Machine(10, scatter=0.1),
    Machine(6, scatter=0.02),
]
machines += [Machine(30, ratio, scatter=0.02) for ratio in (1.05, 1 / 1.05)]
machines += [Machine(30, 1.02, scatter=0.003, drift=0.05), Machine(100, 1.017, scatter=0.02)]
words = {
    "twice as fast, and six pairs": "faster",
    "the very same times": "cannot tell",
    "1,300 pairs, of which after won 780": "faster",
    "1,300 pairs, of which after won 682": "cannot tell",
    "a clock of whole ticks: after won 3 pairs, 10 were even": "cannot tell",
}
check_verdict(words, machines)
### END HIDDEN TESTS

# %% [markdown]
# ## 5 · The golden loop: measure → change → measure
#
# Now a whole training step: four layers, AdamW as a loop over the parameters, `loss.item()` in every step. Three
# recommended changes:
#
# - **no item**: drop `loss.item()`;
# - **TF32**: let the GPU multiply float32 matrices with fewer digits, in less time
#   ([`set_float32_matmul_precision`](https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html));
# - **foreach**: let [AdamW](https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html) update all parameters
#   with a few launches. (PyTorch's default on a GPU; here we ask for the loop.)
#
# Which change helps most on a **small** model (width 512, batch 256)? Which on a **large** one (width 2048, batch 2048)?

# %% experiment
you = lesson.predict({"small model": ..., "large model": ...}, choices=["no item", "TF32", "foreach"])

# %% experiment
models = {"small model": (512, 256), "large model": (2048, 2048)}  # width, batch
changes = {"no item": {"item": False}, "TF32": {"precision": "high"}, "foreach": {"foreach": True}}

before = {model: experiments.training_step(*shape) for model, shape in models.items()}
gain = {
    model: {
        name: before[model].seconds / experiments.training_step(*shape, **change).seconds
        for name, change in changes.items()
    }
    for model, shape in models.items()
}
twice = {model: experiments.training_step(width, 2 * batch) for model, (width, batch) in models.items()}
small, large = gain.values()
busy_then, tf32_then = experiments.second_lap()
lesson.keep(
    item=small["no item"], item_large=large["no item"], tf32=small["TF32"], foreach=large["foreach"],
    busy=before["small model"].busy, full=before["large model"].busy,
    twice_small=twice["small model"].seconds / before["small model"].seconds,
    twice_large=twice["large model"].seconds / before["large model"].seconds,
    busy_then=busy_then, tf32_then=tf32_then,
)  # fmt: skip
best = {model: max(ratios, key=ratios.get) for model, ratios in gain.items()}
you.against(best, experiments.gains(before, gain, twice), evidence="simulated (H100)", what="helps most")

# %% [markdown]
# Each model has another winner, worth almost nothing on the other: TF32 gives {{tf32:.2f}}× on the small model, foreach
# {{foreach:.2f}}× on the large one. The row "the GPU works" says why. In the
# small step the GPU works {{busy:.0%}} of the time and waits for launches in between, so faster arithmetic saves nothing.
# foreach saves launches: it replaces many tiny kernels by a few. In the large step the GPU works {{full:.0%}} of the time,
# so only less work helps: here, cheaper products. And dropping `.item()`, which section 1 blamed, gives
# {{item:.2f}}× on the small model, {{item_large:.2f}}× on the large.
#
# Which of the two do you have? If no data is loaded, one measurement says it: **double the batch** (the last row). The
# small step takes {{twice_small:.2f}} times as long: its GPU had time to spare. The large step takes
# {{twice_large:.2f}} times as long: its GPU was the limit.
#
# > **Rule.** Measure, make **one** change, measure again. Two changes at once give one number, and one of them may
# > have made the step slower. Then ask again what limits you.
#
# A second lap on the small model: with foreach, its GPU works {{busy_then:.0%}} of the time. So launches no longer limit it,
# and TF32 now gives {{tf32_then:.2f}}×.

# %% [markdown]
# ## The running example
#
# One training script goes through the course: a small language model, a GPT, learns a text byte by byte. It is correct,
# and slow. Most lessons up to 16 replace a function of it, or a few, and a **scoreboard** says what was gained, if
# anything. Read only `train`, at the end: it puts the other functions together.

# %% experiment
from helpers import running_example

running_example.source()

# %% experiment
script = running_example.after("00")  # the plain script
scored = running_example.score(script)
lesson.keep(script_ms=1e3 * scored.step_s, script_busy_ms=1e3 * scored.busy_s)
lesson.keep(script_launches=scored.launches, script_syncs=scored.syncs, script_mib=scored.peak_bytes / 2**20)
size = running_example.LARGE
lesson.keep(script_width=size.width, script_context=size.context, script_batch=size.batch)
scored

# %% [markdown]
# This is for width {{script_width}}, context {{script_context}} and batch {{script_batch}}. The kernels take
# {{script_busy_ms:.1f}} of a step's {{script_ms:.1f}} ms. In a step the CPU launches {{script_launches:,.0f}} kernels and
# copies, and waits {{script_syncs:.0f}} times. After nine steps the memory has reached {{script_mib:.0f}} MiB.
# Which would you change first: `attention`, `optimizer` or `log`? Write it down for lesson 16.

# %% [markdown]
# ## Your own script
#
# Most tools of this course look at **warm steps**. So first make the body of your script's loop a function
# `step(batch)`, outside `main()`. Six names are enough for most lessons: `model`, `optimizer`, `loss_fn`, `loader`, `device`,
# `step`. A toy script in that form:

# %% experiment
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cpu"
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_fn = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(torch.randn(64, 16), torch.randint(4, (64,))), batch_size=8)


def step(batch):
    x, y = (part.to(device) for part in batch)
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


# %% [markdown]
# The lines below print the median time of a warm step. They work on those names, in your script too.
# [`torch.utils.benchmark`](https://docs.pytorch.org/docs/stable/benchmark_utils.html) waits for a GPU by itself, and
# computes in one CPU thread unless you set `num_threads`.

# %% experiment
from torch.utils import benchmark

batch = next(iter(loader))
for _ in range(3):
    step(batch)  # warm up, until the times stop falling
timer = benchmark.Timer("step(batch)", globals={"step": step, "batch": batch})
for _ in range(2):  # the same code twice
    timed = timer.blocked_autorange(min_run_time=1)
    print(
        f"median ≈ {1e6 * timed.median:.0f} µs, the middle half of the runs within ≈ {1e6 * timed.iqr:.0f} µs"
    )

# %% [markdown]
# If the two medians differ by 5 %, you cannot see a gain of 5 % this way. `compare(step_before, step_after, batch)` may.
# Try first a batch of twice the size. If the step takes hardly longer, the GPU has time to spare: look for launches and
# waits (lessons 02, 03 and 05 to 07), and for switches left on (*Further*). Slow data does not show here:
# time the loop with its loader too (lesson 04).

# %% [markdown]
# ## Sources on trial
#
# The course tests claims from texts on fast PyTorch (lesson 18). In the table of "torch.compile in practice, 300 % faster
# training", 800 → 200 ms is an improvement by 400 %, and 45 → 90 % one by 100 %. The first number is a ratio, the second a
# gain. So say "takes 0.25 of the time" or "4.0× as fast", never "400 % faster".

# %% experiment
from helpers.lessons.measure_first import claims

lesson.verdicts(
    claims.on_trial(gain, naive, waited),
    evidence="simulated (H100) · arithmetic",
    shown=("00-measure-optimise-measure", "00-simple-time"),
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Synchronize before you read the clock, at both ends | you want the CPU's own share: do not wait |
# | Warm up until the readings stop falling | the start is what your user waits for |
# | Report the median | slow runs count: report the 99th percentile too |
# | Pairs in random order, ratio and interval | one run changes the next (a cache fills): pair whole processes |
# | One change at a time, on your own model | two changes that only work together |
#
# **Read on**: PyTorch's [benchmark tutorial](https://docs.pytorch.org/tutorials/recipes/recipes/benchmark.html) and its
# notes on [how CUDA calls run asynchronously](https://docs.pytorch.org/docs/stable/notes/cuda.html); A. Georges, D.
# Buytaert and L. Eeckhout, [*Statistically rigorous Java performance
# evaluation*](https://doi.org/10.1145/1297027.1297033) (2007).
#
# Next, **lesson 01**: what one line of tensor code does to memory.

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# Each section stands alone. Take the ones that you need.
#
# ### A speed-up with an interval (24 min)
#
# "Faster" is one word. A colleague also wants to know *how much*, and how sure you are.
#
# **Exercise 0.3 — a speed-up with an interval** (★★, 20 min)
#
# `paired` of section 4 is enough as long as no run is disturbed. Here one run in twelve is, and takes up to four times as
# long: try `return paired(before, after)` first, and read what the test says. Then write an interval whose middle a
# disturbed pair hardly moves. The **bootstrap** needs no theory: draw n of the n pairs with replacement (a pair may be
# drawn twice), take the middle of the draw, do that a thousand times, and see how far the middles scatter. Any honest
# interval will do that is not too wide. The test counts how often it holds the truth.
#
# <details><summary>Hint 1</summary>First turn each pair into one number. A ratio of 2 and a ratio of ½
# should be equally far from 1. Then: which summary of section 3 dropped a disturbed run?</details>
# <details><summary>Hint 2</summary>One NumPy index array of shape (1000, n) makes all draws at once. 95 % of
# the middles lie between two percentiles of them: which two?</details>
# <details><summary>The idea</summary>Work with the logarithms of the pairs' ratios: take the median of each draw, then
# the percentiles of hint 2. Only at the end turn logarithms into ratios. Draw with a seeded generator of your own, so that
# the same samples give the same interval.</details>


# %% exercise="paired_speedup"
def paired_speedup(before: np.ndarray, after: np.ndarray) -> tuple[float, float, float]:
    """Speed-up from paired runs, with a 95 % confidence interval: (ratio, low, high).

    before, after: (n,) positive seconds, of any length (nanoseconds or hours); before[i] and after[i] were
        measured next to each other.
    ratio: typical time before / time after, dimensionless; 2.0: "after" takes half the time.
    low ≤ ratio ≤ high. ValueError for unequal lengths or n < 6: if a pair falls either way by chance, five of
    five fall alike with a chance of 2 / 2⁵ = 6 %, so five pairs cannot support 95 %.

    Judged on sets of 200 series with n from 20 to 80, scatter of single runs from 1 % to 6 %, drift common to
    both members of a pair, and one run in twelve disturbed (up to four times as long): the interval holds the
    true ratio in 180 to 199 of them (95 % ± chance; 200 means too wide), and is typically (median of log-widths)
    at most half as wide as `paired`'s. With 6 to 19 pairs the interval holds the true ratio in 160 or
    more, and is typically at most twice as wide as `paired`'s.
    """
    ### BEGIN SOLUTION
    before, after = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    if before.shape != after.shape or before.size < 6:
        raise ValueError(
            f"wanted as many before as after, and at least 6; got {before.size} and {after.size}"
        )
    d = np.log(before / after)
    draws = np.random.default_rng(0).integers(0, d.size, size=(2000, d.size))
    low, high = np.percentile(np.median(d[draws], axis=1), [2.5, 97.5])
    return math.exp(np.median(d)), math.exp(low), math.exp(high)
    ### END SOLUTION


# %% test="paired_speedup" points=1
from helpers.lessons.measure_first.exercises import Machine, check_paired_speedup

check_paired_speedup(Machine(n=30, ratio=1.08, scatter=0.03))

# %% hidden="paired_speedup" points=2
### BEGIN HIDDEN TESTS
from helpers.lessons.measure_first.exercises import Machine, check_paired_speedup

check_paired_speedup(
    Machine(20, ratio=0.9, scatter=0.06, jumpy=True),
    Machine(24, ratio=1.3, scatter=0.02, drift=-0.5),
    Machine(80, ratio=0.97, scatter=0.01, drift=-0.5, typical_s=4e-7),
    Machine(6),
    Machine(7, ratio=2.0, typical_s=5000.0),
    Machine(30, ratio=1.2, scatter=0.02, typical_s=5e-9),
    refused=[(5, 5), (9, 8)],
)
### END HIDDEN TESTS

# %% [markdown]
# ### The same seed, the same result (21 min)
#
# A change that makes a run faster must leave its result as it was. You can see that only if the result repeats. This
# toy training shuffles with Python, adds noise with NumPy, and starts from torch's random weights. Each row below
# seeds none, one, two or all of the three **generators** (sources of random numbers), and then runs the training,
# four times. How many *different* results?


# %% experiment
def toy_training() -> float:
    order = list(range(8))
    random.shuffle(order)
    weight = torch.randn(4, 4)
    for i in order:
        x = torch.full((4,), float(i)) + torch.from_numpy(np.random.standard_normal(4)).float()
        weight = weight + 0.1 * torch.tanh(weight @ x).outer(x)
    return float(weight.sum())


you = lesson.predict(
    {"no seed": ..., "torch": ..., "torch + NumPy": ..., "torch + NumPy + Python": ...},
    choices=["1 result", "2 results", "4 results"],
)

# %% experiment
seeds = {
    "torch": torch.manual_seed,
    "NumPy": np.random.seed,
    "Python": random.seed,
    "no seed": lambda seed: None,
}
random.seed(1), np.random.seed(1), torch.manual_seed(1)  # so that this page is the same every time
results = {}
for name in you:
    results[name] = set()
    for _ in range(4):
        for part in name.split(" + "):
            seeds[part](0)
        results[name].add(toy_training())
you.against(
    {name: f"{len(sums)} result{'s' * (len(sums) > 1)}" for name, sums in results.items()},
    evidence="live (CPU)",
    what="of four runs",
)

# %% [markdown]
# Every generator that takes part must be seeded. They are global: a helper that seeds one, and does not put its state
# back, changes its caller's numbers.
#
# Seeds are not all. The **order of a sum** matters, and the number of threads decides the order. Near 1e8, two
# neighbouring float32 numbers are 8 apart. Adding 1 to 1e8 changes nothing; adding several ones at once can:

# %% experiment
values = torch.tensor([1e8] + 14 * [1.0] + [-1e8])  # float32; the exact sum is 14
added = {}
for threads in (1, 2):
    total = torch.tensor(0.0)
    for chunk in values.chunk(threads):  # each "thread" adds its chunk from left to right
        subtotal = torch.tensor(0.0)
        for value in chunk:
            subtotal = subtotal + value
        total = total + subtotal
    added[threads] = float(total)
lesson.keep(sum_one=added[1], sum_two=added[2])
print(f"the sum of 1e8, fourteen ones and −1e8: {added[1]:g} by one thread, {added[2]:g} by two")

# %% [markdown]
# One thread finds {{sum_one:.0f}}, two threads find {{sum_two:.0f}}. A parallel sum splits its terms among threads in this
# way. Some CUDA operators let their threads add in the order in which they happen to arrive: their results differ from run
# to run, whatever you seed.
# [`torch.use_deterministic_algorithms(True)`](https://docs.pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html)
# picks ordered versions, and raises where there is none. They may be slower. So use them to compare results, and not to
# time. (More in PyTorch's [notes on reproducibility](https://docs.pytorch.org/docs/stable/notes/randomness.html).)
#
# **Exercise 0.4 — a run that repeats, and leaves no trace** (★★, 14 min)
#
# <details><summary>Hint 1</summary>Five things to set: three generators, the threads, the deterministic
# setting. Each module that sets one can also tell you what it is now.</details>
# <details><summary>Hint 2</summary><code>train</code> may raise. What runs in any case? And
# <code>use_deterministic_algorithms</code> has a second setting, <code>warn_only</code>.</details>
# <details><summary>The idea</summary>Read six things before you set any: three generators' states, torch's number of
# threads, <code>torch.are_deterministic_algorithms_enabled()</code> and
# <code>torch.is_deterministic_algorithms_warn_only_enabled()</code>. Where must the lines stand that put all six back, so
# that they also run after an error? <code>torch.random.fork_rng()</code> does torch's part, GPUs included.</details>


# %% exercise="reproducible"
def reproducible(train: Callable[[], Any], seed: int) -> Any:
    """Run train() once, repeatably, and return what it returns. 0 ≤ seed < 2³² (NumPy's limit).

    While it runs: Python's, NumPy's (np.random.*) and torch's global generators are seeded from `seed`
    (another seed, other numbers), deterministic algorithms are on (and more than a warning: warn_only is off),
    torch uses one thread.
    Afterwards, also if train raises (anything, KeyboardInterrupt too; it passes through): the three generators'
    states, torch's number of threads, the deterministic setting and its warn_only are as they were found.
    """
    ### BEGIN SOLUTION
    python, numpy_, threads = random.getstate(), np.random.get_state(), torch.get_num_threads()
    strict, warn_only = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    with torch.random.fork_rng():
        try:
            random.seed(seed)
            np.random.seed(seed)
            torch.manual_seed(seed)
            torch.set_num_threads(1)
            torch.use_deterministic_algorithms(True)
            return train()
        finally:
            random.setstate(python)
            np.random.set_state(numpy_)
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(strict, warn_only=warn_only)
    ### END SOLUTION


# %% test="reproducible" points=1
from helpers.lessons.measure_first.exercises import Turns, check_reproducible

check_reproducible(Turns(seeds=(5, 6, 5, 5), fails=("", "", "KeyError", "")))

# %% hidden="reproducible" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.measure_first.exercises import Turns, check_reproducible

check_reproducible(
    Turns((3, 3, 3, 4, 8), fails=("", "KeyError", "", "Stop", ""), nested=True),
    Turns((0, 1, 65_536, 0, 2**31 + 1, 2**32 - 1), fails=("",) * 6),
)
### END HIDDEN TESTS

# %% [markdown]
# ### Switches that were left on (4 min)
#
# A switch that helped to find a mistake is easily forgotten. Then it makes every step slower. Three of them, on the toy
# script above: [anomaly detection](https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection), an assert that all
# weights are finite, and the deterministic algorithms. Which of them add operators to a step, and which add waits for a GPU?

# %% experiment
you = lesson.predict(
    {"detect_anomaly": ..., "assert isfinite": ..., "deterministic": ...},
    choices=["neither", "operators", "operators and waits"],
)

# %% experiment
import warnings

from helpers import count


def asserted(batch):
    assert all(torch.isfinite(p).all() for p in model.parameters())
    return step(batch)


switched = {"as it is": count(step, batch), "assert isfinite": count(asserted, batch)}
with warnings.catch_warnings(action="ignore"), torch.autograd.detect_anomaly():
    switched["detect_anomaly"] = count(step, batch)
torch.use_deterministic_algorithms(True)
switched["deterministic"] = count(step, batch)
torch.use_deterministic_algorithms(False)
you.against(*experiments.switches(switched), evidence="live (CPU)")

# %% [markdown]
# Anomaly detection looks for NaN in every gradient, and the CPU has to know the answer: a wait (lesson 03) for each. It also
# writes down a traceback for each node. The assert does the same for each weight. Deterministic algorithms add no
# operators and no waits here. But an ordered version can be slower, and memory from `torch.empty` is filled: these counts
# show neither.
#
# Three more switches add no operators, and time all the same. `CUDA_LAUNCH_BLOCKING=1` makes the CPU wait after every launch,
# and a profiler that was never stopped records for ever. `torch.backends.cudnn.deterministic = True` forbids the convolutions
# that add in no fixed order, and these may be the faster ones. `python -m helpers run train.py` says which are on. To find
# them by hand:
#
# ```bash
# grep -rnE "anomaly|deterministic|LAUNCH_BLOCKING|profile\(|assert .*\.(all|any)\(" --include="*.py" --include="*.sh" .
# env | grep LAUNCH_BLOCKING
# ```
#
# ### Start small (19 min)
#
# A full run of 1,000 steps answers every question, and costs a full run each time. Could its first steps answer them? The
# obvious way: time the first `k` steps from a cold start, and multiply by `1000 / k`. How far from the full run is that
# prediction?

# %% experiment
you = lesson.predict(
    {"3 steps": ..., "50 steps": ..., "500 steps, half of the run": ...},
    choices=["under 2 %", "under 50 %", "more"],
)

# %% experiment
full, first_step = experiments.cold_run(1000), experiments.cold_run(1)  # seconds
scaled = {k: experiments.cold_run(k) * 1000 / k for k in (3, 50, 500)}
apart = {k: first_step + 999 * experiments.cold_run(k, skip=1) / k for k in scaled}  # the start taken apart
lesson.keep(scaled_up=scaled[3] / full, apart=abs(apart[3] / full - 1))
how_far = [experiments.how_far(guess / full - 1) for guess in scaled.values()]
you.against(
    dict(zip(you, how_far, strict=True)),
    experiments.predicted(full, scaled, apart),
    evidence="simulated (H100)",
    what="error",
)

# %% [markdown]
# A small run contains all of the start and little of the rest. Scaled up, three steps predict {{scaled_up:.0f}} times
# the full run. Time the first step by itself, and three later ones predict a thousand within {{apart:.1%}}.
#
# That works because the CPU has nothing to do here but to launch. Where the CPU also computes, CPU and GPU work
# **overlap**, and every wait costs some of the overlap: then measure a longer stretch. It does not work where later steps
# differ: a cache that fills up, data that gets longer, a checkpoint every thousand steps, a GPU that lowers its clock frequency after
# a minute. Then the small run must contain one of each.
#
# **Exercise 0.5 — predict the long run** (★★, 14 min)
#
# These steps have a CPU part too (decoding, Python). It overlaps with the GPU's part as long as nobody waits.
#
# <details><summary>Hint 1</summary>Two unknowns: what the start costs once, and what a step costs. How many
# measurements do you need?</details>
# <details><summary>Hint 2</summary>The first step has the set-up in it. Time it by itself, with a wait at
# its end. What would a wait after every later step do to the overlap? And a wait after every fifth?</details>
# <details><summary>The idea</summary>Read the clock around step 1 and a synchronize, then around k further steps and
# <em>one</em> synchronize, with k ≥ 34 (the docstring says why). How often does the whole run pay the first reading, and
# how often a k-th of the second?</details>


# %% exercise="predict_run"
def predict_run(gpu: Any, step: Callable[[], object], steps: int) -> float:
    """Seconds on gpu.clock() that this program takes from a cold start: `steps` times step(), synchronize().

    gpu: as in exercise 0.1; it has not been used yet, so that the first step pays the set-up, here and in the
        program. step: one training step, work of the CPU and of the GPU in either order; all but the first take
        equally long.
    steps: at least 400.

    Right within 3 % of the full run. step() may be called at most steps // 10 times. Arithmetic: CPU and GPU
    overlap from one step to the next; k steps and a wait take up to one step longer than k in a long run,
    which is 1/k of the estimate. For 3 % with certainty, k ≥ 1 / 0.03, so 34 or more.
    """
    ### BEGIN SOLUTION
    begin = gpu.clock()
    step()
    gpu.synchronize()
    first = gpu.clock() - begin
    k = steps // 10 - 1
    begin = gpu.clock()
    for _ in range(k):
        step()
    gpu.synchronize()
    return first + (steps - 1) * (gpu.clock() - begin) / k
    ### END SOLUTION


# %% test="predict_run" points=1
from helpers.lessons.measure_first.exercises import Run, check_predict_run

check_predict_run(
    Run(size=3072, cpu_s=1e-3, steps=500),
    Run(size=1024, cpu_s=400e-6, steps=400),
    Run(size=1024, cpu_s=300e-6, steps=400, log=True),
)

# %% hidden="predict_run" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.measure_first.exercises import Run, check_predict_run

check_predict_run(
    Run(2560, cpu_s=1.6e-3, steps=400, card="A100"),
    Run(1024, cpu_s=700e-6, steps=609, card="A100"),
    Run(2048, cpu_s=300e-6, steps=400, log=True, card="A100"),
    Run(2560, cpu_s=500e-6, steps=400, ahead=True),
)
### END HIDDEN TESTS

# %% [markdown]
# ### Noise on your own machine (2 min)
#
# The same code, timed twice on one CPU. Nothing was changed between the two rows.

# %% experiment tags=["nbval-ignore-output"]
x = torch.randn(256, 256)
again = {name: bench(torch.mm, x, x, repeats=40, number=5, num_threads=1) for name in ("A", "A again")}
print(f"median of A ÷ median of A again: ≈ {again['A'].median_s / again['A again'].median_s:.3f}×")
plots.samples(again, evidence="live (CPU)", title="The same code, timed 40 times, twice")

# %% [markdown]
# The ratio that the cell printed is a "speed-up" of code that did not change. On a calm machine it is usually close
# to 1; on a busy one it can be anything, and close to 1 by chance.
#
# ### What a pair of events reads (2 min)
#
# Events read everything that passes between two marks in the queue. That is the kernel's time only if the queue is full.

# %% experiment
experiments.event_gaps()

# %% [markdown]
# Read the first row. Around *one* small kernel on an idle GPU, the events read mostly the gap until the kernel arrives.
# Fifty calls share that gap. But a launch takes longer than this kernel, so the GPU still waits for the CPU before each
# one, and the events read the time of a launch. That number is not wrong: a program made of such calls pays it. But a
# faster kernel will not improve it (lesson 03).
#
# ### One change at a time (2 min)
#
# AdamW's `foreach`, together with a second forward pass that somebody forgot to remove:

# %% experiment
experiments.changes(experiments.together())

# %% [markdown]
# Reported as one change, this is a success, and the second forward pass stays for ever.
#
# ### Fixed clocks (1 min)
#
# A GPU changes its own clock frequency with heat and power. Arithmetic runs at the chip's clock, memory at a clock of its
# own. So a GPU that lowers its clock slows a large matrix product, and hardly a large addition. Pairs of *different*
# kernels do not see the same drift. On a GPU of your own, fix the clock while you measure. This needs the administrator,
# and [`nvidia-smi`](https://docs.nvidia.com/deploy/nvidia-smi/index.html):
#
# ```bash
# nvidia-smi --lock-gpu-clocks=1200   # MHz; below the boost clock, so that the GPU can hold it
# nvidia-smi --reset-gpu-clocks
# ```
#
# Where you cannot, log the clock beside the times.
#
# ### On a real GPU (2 min)
#
# The three timers of section 1 around twenty large products, simulated and recorded on a real H100 (and live, if you have a
# GPU). Look at the last columns: the first row lies far below 1, and the second close to it.

# %% experiment
from helpers import recordings

results = recordings.side_by_side("00/three_timers")
launch_longer, product_longer = experiments.longer(results)
lesson.keep(launch_longer=launch_longer, product_longer=product_longer)
experiments.on_a_gpu(results)

# %% [markdown]
# The first row is the launches: one takes ≈ {{launch_longer:.1f}} times as long on the recorded machine as on the simulated
# one. A product (the last row) takes ≈ {{product_longer:.2f}} times as long there. So trust the simulator less where a step
# waits for launches. On that machine, the small model of section 5 would probably wait longer than simulated.
