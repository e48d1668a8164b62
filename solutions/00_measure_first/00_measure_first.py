# %% [markdown]
# # 00 · Measure first
#
# ## How do I know that it got faster?
#
# Every later lesson changes something and claims that it helped. This one is about the claim. A stopwatch
# around a GPU call reads the wrong thing; a first run is unlike all others; two runs of the same code
# differ; a warm machine slows whatever is timed last. Each of these has sent people home with a speed-up
# that was not there.
#
# **Time** 75–100 min, in two sittings: the break is before section 4. **Before this** Python, and PyTorch
# enough to write a training loop.
#
# **Afterwards you can**
# 1. time GPU work so that the number is the work, and say what a wrong timer read instead;
# 2. say "faster", "slower" or "cannot tell" with an interval behind it, from runs on a noisy, drifting
#    machine;
# 3. make a run repeatable, test a change on a small run first, and predict the large run from it.
#
# **On trial** eight claims from four texts on fast PyTorch, such as *800 ms → 200 ms = 400 %*: at the end.

# %% setup
import math
import random

import numpy as np
import torch

from helpers import bench, compare, lesson, plots, simulate
from helpers.lesson import compare_predictions, table
from helpers.timing import format_seconds

lesson.start(
    "00_measure_first", evidence=["simulated (H100)", "simulated (noisy machine)", "live (CPU)", "arithmetic"]
)

# %% [markdown]
# No GPU is needed. `simulate("H100")` gives PyTorch a GPU that is not there: operators are launched into a
# queue, the queue runs by itself, and `gpu.clock()` is what `time.perf_counter()` would read. Its absolute
# times rest on a data sheet, on public measurements and on round assumptions about the host. *What waits for
# what* is exact, and that is all this lesson needs. The simulated GPU also keeps a record of when each kernel
# truly started and ended, which a real one does not give so easily. So a timer can be marked right or wrong.
#
# ## 1 · What does a clock around a GPU call read?
#
# Three 1024 × 1024 matrix products, timed in three ways at once: a clock read before and after the calls;
# the same after `gpu.synchronize()`; a pair of events recorded around the calls. Which reads the **launch**
# (the CPU handing the work over), and which the **work**?

# %% experiment
said_of_timers = {  # "launch" or "work"
    "clock around the calls": ...,
    "clock, after synchronize": ...,
    "a pair of events": ...,
}

# %% experiment
gpu = simulate("H100")
with gpu:
    a = torch.randn(1024, 1024, device=gpu.device)
    a @ a  # a first call, so that set-up costs are over: section 2
    gpu.synchronize()

    first = len(gpu.kernels)
    start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
    t0 = gpu.clock()
    start.record()
    for _ in range(3):
        a @ a
    end.record()
    t1 = gpu.clock()
    gpu.synchronize()
    t2 = gpu.clock()

work_s = sum(kernel.duration_s for kernel in gpu.kernels[first:])  # the truth: from the record of the device
readings = {
    "clock around the calls": t1 - t0,
    "clock, after synchronize": t2 - t0,
    "a pair of events": start.elapsed_time(end) / 1e3,
}
launch_us = 1e6 * next(record.duration_s for record in gpu.host if record.name == "aten.mm")
lesson.keep(launch_us=launch_us, gap_us=1e6 * (readings["a pair of events"] - work_s))
table(
    [(way, format_seconds(s), f"{s / work_s:.2f}") for way, s in readings.items()]
    + [("the kernels themselves", format_seconds(work_s), "1.00")],
    ["way", "reading", "÷ work"],
    evidence=gpu.evidence,
)

# %% experiment
compare_predictions(
    said_of_timers,
    {way: "work" if s > work_s / 2 else "launch" for way, s in readings.items()},
    evidence=gpu.evidence,
    what="reads the",
    choices=("launch", "work"),
)

# %% experiment
done = gpu.kernels[-1].end_ns / 1e9  # the second event passes here
plots.timeline(
    gpu,
    since_s=t0,
    evidence=gpu.evidence,
    spans={
        "clock around the calls": (t0, t1),
        "clock, after synchronize": (t0, t2),
        "a pair of events": (done - start.elapsed_time(end) / 1e3, done),
    },
    title="The calls return long before the work is done",
)

# %% [markdown]
# The CPU needs {{launch_us:.0f}} µs to hand a product over (the narrow orange boxes) and is free again;
# the GPU has barely begun. A clock read then measures the CPU. **The rule: read the clock only after `synchronize()`,
# before the work as well as after it.** Before, because work queued earlier would be counted as yours.
#
# Events are marks in the queue, stamped by the GPU when it passes them. They need no wait in the middle of
# the program. But look at the row "a pair of events": it reads a little more than the kernels. On an idle
# GPU the first mark is passed as soon as it arrives, and the gap until the first kernel arrives is inside the
# measurement: {{gap_us:.0f}} µs here. How much that matters depends on how long the work is:

# %% experiment
rows, event_error = [], {}
for n in (128, 512, 1024, 4096):
    gpu = simulate("H100")
    with gpu:
        a = torch.randn(n, n, device=gpu.device)
        a @ a
        gpu.synchronize()
        marks = [gpu.Event(enable_timing=True) for _ in range(4)]
        marks[0].record()  # one product, on an idle GPU
        a @ a
        marks[1].record()
        gpu.synchronize()
        marks[2].record()  # fifty, so that the queue stays full
        for _ in range(50):
            a @ a
        marks[3].record()
        gpu.synchronize()
    one, fifty = marks[0].elapsed_time(marks[1]) / 1e3, marks[2].elapsed_time(marks[3]) / 1e3 / 50
    kernel_s = gpu.kernels[-1].duration_s
    event_error[n] = (one / kernel_s, fifty / kernel_s)
    rows.append((f"{n} × {n}", format_seconds(kernel_s), format_seconds(one), format_seconds(fifty)))
    assert (one > 1.5 * kernel_s) == (n == 128) and (fifty > 1.1 * kernel_s) == (n == 128)
lesson.keep(one_small=event_error[128][0], fifty_small=event_error[128][1])
table(
    rows, ["product", "kernel", "events around one", "events around fifty ÷ 50"], evidence="simulated (H100)"
)

# %% [markdown]
# Around large work, events read the kernel. Around one small kernel on an idle GPU they read mostly the gap:
# {{one_small:.1f}} times the kernel in the first row. Fifty calls share one gap, and from the second row on the
# gap disappears. In the first row fifty calls do not help either: a launch takes longer than this kernel, the
# GPU waits for the CPU before each one, and you read the time of a launch, {{fifty_small:.1f}} times the
# kernel's. That number is *not wrong*: a program made of such calls pays it. But it is not the kernel's time,
# and no faster kernel will improve it (lesson 03).
#
# ### The line that waits gets the blame
#
# One step of a loop has three lines. You put a clock around each, as one does to find a bottleneck. Which
# line looks slowest: `"forward"`, `"loss"` or `"log"`? And which one is?

# %% experiment
said_of_lines = {"naive clock says": ..., "clock after synchronize says": ...}  # "forward", "loss" or "log"


# %% experiment
LINES = {"forward": "8 × `y @ w`", "loss": "`(y * y).mean()`", "log": "`loss.item()`"}


def time_lines(wait: bool) -> dict[str, float]:
    """Seconds of each line of the last step; wait: synchronize before each reading of the clock."""
    gpu = simulate("H100")
    times = []

    def read() -> None:
        if wait:
            gpu.synchronize()
        times.append(gpu.clock())

    with gpu:
        x, w = (torch.randn(2048, 2048, device=gpu.device) for _ in range(2))
        for _ in range(3):
            read()
            y = x
            for _ in range(8):
                y = y @ w
            read()
            loss = (y * y).mean()
            read()
            loss.item()
            read()
    start, *ends = times[-4:]
    return {line: end - begin for line, begin, end in zip(LINES, [start, *ends], ends, strict=False)}


naive, waited = time_lines(wait=False), time_lines(wait=True)
blamed, guilty = max(naive, key=naive.get), max(waited, key=waited.get)
table(
    [
        (
            line,
            code,
            *(f"{format_seconds(t[line])} ({t[line] / sum(t.values()):.1%})" for t in (naive, waited)),
        )
        for line, code in LINES.items()
    ],
    ["line", "code", "naive clock", "clock after synchronize"],
    evidence="simulated (H100)",
)

# %% experiment
compare_predictions(
    said_of_lines,
    {"naive clock says": blamed, "clock after synchronize says": guilty},
    evidence="simulated (H100)",
    what="slowest line",
    choices=("forward", "loss", "log"),
)

# %% [markdown]
# `loss.item()` needs the number, so the CPU waits there for everything queued before it, and the naive
# clock charges that line with the work of the others. Someone who trusts it removes `.item()`. What is won?

# %% experiment
rows, step_s = [], {}
for item in (True, False):
    gpu = simulate("H100")
    with gpu:
        x, w = (torch.randn(2048, 2048, device=gpu.device) for _ in range(2))
        for i in range(21):
            if i == 1:  # the first step has the set-up in it
                gpu.synchronize()
                t0 = gpu.clock()
            y = x
            for _ in range(8):
                y = y @ w
            loss = (y * y).mean()
            if item:
                loss.item()
        gpu.synchronize()
    step_s[item] = (gpu.clock() - t0) / 20
    rows.append((f"{'with' if item else 'without'} `loss.item()`", format_seconds(step_s[item])))
lesson.keep(item_us=1e6 * (step_s[True] - step_s[False]))
table(rows, ["20 steps, one wait at the end", "a step"], evidence="simulated (H100)")

# %% [markdown]
# The wait was real, but the work that it waited for still has to be done. Only the {{item_us:.0f}} µs in which
# the GPU ran empty come back.
#
# ## 2 · The first call
#
# Eight times the same product on a fresh GPU, each call timed correctly (clock after synchronize). The size
# of the set-up is one of the simulator's round assumptions ({{context_ms:.0f}} ms for the context). That it
# comes once is not. How many times as long as the last call does the first one take: about `"2"`, `"10"`,
# `"100"`, or `"1,000 or more"`? And how many of the eight calls are slow?

# %% experiment
said_of_first = {
    "first call ÷ last call": ...,  # "2", "10", "100" or "1,000 or more"
    "slow calls among 8": ...,  # a number from 0 to 8
}

# %% experiment
gpu = simulate("H100")
calls = []
with gpu:
    a = torch.empty(1024, 1024, device=gpu.device)
    for _ in range(8):
        t0 = gpu.clock()
        a @ a
        gpu.synchronize()
        calls.append(gpu.clock() - t0)
ratio = calls[0] / calls[-1]
near = min((2, 10, 100, 1000), key=lambda n: abs(math.log(ratio / n)))
measured = {
    "first call ÷ last call": "1,000 or more" if near == 1000 else f"{near}",
    "slow calls among 8": sum(c > 2 * calls[-1] for c in calls),
}
compare_predictions(
    said_of_first,
    measured,
    evidence=gpu.evidence,
    choices={
        "first call ÷ last call": ("2", "10", "100", "1,000 or more"),
        "slow calls among 8": range(9),
    },
)

# %% experiment
cold = [(h.name, format_seconds(h.duration_s)) for h in gpu.host if h.kind == "warm-up"]
means = {n: (sum(calls[:1]) + (n - 1) * calls[-1]) / n for n in (10, 100, 1000)}
context_ms = next(1e3 * h.duration_s for h in gpu.host if h.name == "CUDA context")
lesson.keep(context_ms=context_ms, mean_of_1000=means[1000] / calls[-1])
table(
    [
        *cold,
        (f"the first call: {ratio:,.0f} × a warm one", format_seconds(calls[0])),
        ("one call, warm", format_seconds(calls[-1])),
        *((f"so a mean of {n:,} calls, first one included", format_seconds(m)) for n, m in means.items()),
    ],
    ["what", "time"],
    evidence=gpu.evidence,
    caption="set-up paid by the first call, and what it does to a mean",
)

# %% [markdown]
# The first use of the GPU makes a context; the first product loads a library and a kernel. Set-up is paid
# once in a process, but the mean of a thousand calls is still {{mean_of_1000:.1f}} times a warm call. **The rule: call
# the work once or more, then synchronize, then start the clock.** On real systems the list is longer: libraries that
# try several algorithms at a new shape, the first blocks of the memory pool, `torch.compile`, the file cache, a GPU
# that has yet to raise its clocks. There, warm up until the readings stop falling. The exception: the start *is* the
# question, as in a command-line tool, or the time to the first token.
#
# ## 3 · Wait once, not every time
#
# Suppose you synchronize after every call and average. Each call now pays a launch that nothing hides and a
# wait. The products' edge is 512, 1024 or 4096. Where does waiting every time read more than 10 % over what
# a call costs when only the last one waits: `"yes"` or `"no"`?

# %% experiment
said_of_waits = {"512": ..., "1024": ..., "4096": ...}  # "yes" (more than 10 % off) or "no"

# %% experiment
rows, off, extra_us = [], {}, {}
for n in (512, 1024, 4096):
    gpu = simulate("H100")
    with gpu:
        a = torch.randn(n, n, device=gpu.device)
        a @ a
        gpu.synchronize()
        t0 = gpu.clock()
        for _ in range(20):
            a @ a
            gpu.synchronize()
        each = (gpu.clock() - t0) / 20
        t0 = gpu.clock()
        for _ in range(20):
            a @ a
        gpu.synchronize()
        once = (gpu.clock() - t0) / 20
    off[str(n)], extra_us[n] = "yes" if each > 1.1 * once else "no", 1e6 * (each - once)
    rows.append(
        (
            f"{n} × {n}",
            format_seconds(gpu.kernels[-1].duration_s),
            format_seconds(once),
            format_seconds(each),
            f"{extra_us[n]:.1f} µs",
            f"{each / once - 1:+.1%}",
        )
    )
table(
    rows,
    ["product", "kernel", "wait once, ÷ 20", "wait every time", "extra", "difference"],
    evidence="simulated (H100)",
)
lesson.keep(wait_us=extra_us[4096])

# %% experiment
compare_predictions(
    said_of_waits, off, evidence="simulated (H100)", what="more than 10 % off", choices=("yes", "no")
)

# %% [markdown]
# A wait per call adds about {{wait_us:.0f}} µs to every call, whatever its size. For milliseconds of work that is
# nothing, and a reading per call is worth having (section 4 needs many). For microseconds of work it is a large
# part of what you read. With one wait at the end, all calls share one launch and one wait.
#
# **Exercise 0.1 — time work on a GPU** (★★, 10 min)
#
# Put the three rules into one function. It must run on the simulated GPU and, unchanged, on a real one.
#
# <details><summary>Hint 1</summary>Three things have to be out of the measured stretch: the set-up of the
# first call, whatever was in the queue before you came, and all but one of the waits.</details>
# <details><summary>Hint 2</summary>Allowed error: 20 µs for the whole stretch. One wait or launch gap fits
# in; one a call does not.</details>
# <details><summary>The idea</summary>Call <code>work()</code> once, synchronize, read the clock, call it
# <code>repeats</code> times, synchronize, read the clock, divide. Or record an event before and after the
# <code>repeats</code> calls, synchronize, and divide <code>elapsed_time</code>, which is in
# milliseconds.</details>

# %% exercise="time_on_gpu"
from collections.abc import Callable
from typing import Any


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
from helpers.exercises.measure_first import Calls, check_time_on_gpu

check_time_on_gpu(
    Calls(size=1024, products=2, repeats=20),
    Calls(size=1024, products=1, repeats=10, queued=30),
)

# %% hidden="time_on_gpu" points=5
### BEGIN HIDDEN TESTS
from helpers.exercises.measure_first import Calls, check_time_on_gpu

check_time_on_gpu(
    Calls(768, products=1, repeats=10),
    Calls(1024, products=3, repeats=12, queued=40),
    Calls(2048, products=1, repeats=1, queued=9),
    Calls(900, products=2, repeats=30, queued=100),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · Noise
#
# Now a clock that reads correctly, on a machine that is not alone. The same code, timed twice, here and now
# on your CPU. Nothing was changed between the two rows.

# %% experiment tags=["nbval-ignore-output"]
x = torch.randn(256, 256)
again = {name: bench(torch.mm, x, x, repeats=40, number=5, num_threads=1) for name in ("A", "A again")}
print(f"median of A ÷ median of A again: ≈ {again['A'].median_s / again['A again'].median_s:.3f}×")
plots.samples(again, evidence="live (CPU)", title="The same code, timed 40 times, twice")

# %% [markdown]
# Look at the spread of each row and at the ratio: that is a "speed-up" of code that was not changed. Under
# one per cent says that your machine is calm just now; on a busy one it can be anything. Your numbers are
# your own, so for counting we take a machine made of random numbers, with a seed: most runs scatter by 3 %
# either way, and one in ten is disturbed and takes up to twice as long.
#
# Compare A with A a thousand times, and report a change whenever the two differ by 5 % or more. Which
# summary of the runs raises the **fewest** false alarms, and which the most?

# %% experiment
said_of_summaries = {"fewest": ..., "most": ...}  # "one run", "mean of 10", "median of 10", "minimum of 10"


# %% experiment
def noisy(rng: np.random.Generator, seconds: float, *shape: int) -> np.ndarray:
    """Readings of work that takes `seconds`: 3 % scatter; one in ten disturbed by up to a factor of 2."""
    disturbed = np.where(rng.random(shape) < 0.1, rng.uniform(1, 2, shape), 1.0)
    return seconds * np.exp(rng.normal(0, 0.03, shape)) * disturbed


summaries = {
    "one run": lambda runs: runs[:, 0],
    "mean of 10": lambda runs: runs.mean(axis=1),
    "median of 10": lambda runs: np.median(runs, axis=1),
    "minimum of 10": lambda runs: runs.min(axis=1),
}
rng = np.random.default_rng(0)
alarms = {}
for name, summary in summaries.items():
    ratio = summary(noisy(rng, 3e-3, 1000, 10)) / summary(noisy(rng, 3e-3, 1000, 10))
    alarms[name] = int((np.abs(np.log(ratio)) >= math.log(1.05)).sum())
table(
    [(name, n) for name, n in alarms.items()],
    ["summary", "false alarms in 1,000"],
    evidence="simulated (noisy machine)",
)

# %% experiment
compare_predictions(
    said_of_summaries,
    {"fewest": min(alarms, key=alarms.get), "most": max(alarms, key=alarms.get)},
    evidence="simulated (noisy machine)",
    choices=("one run", "mean of 10", "median of 10", "minimum of 10"),
)
lesson.keep(
    alarms_one=alarms["one run"], alarms_mean=alarms["mean of 10"], alarms_median=alarms["median of 10"]
)

# %% [markdown]
# One run decides nothing: {{alarms_one}} false alarms in 1,000. The mean of ten is worse here, with
# {{alarms_mean}}: two times in three, at least one of ten runs is a disturbed one (1 − 0.9¹⁰), and the mean
# passes it on. The median drops it, and raises {{alarms_median}}. So does the minimum, but that is the luckiest
# run. The minimum is the best choice where there is a fixed floor and every disturbance adds to it. Here runs
# scatter to both sides, as they do under a boost clock or a cache, and there is no floor. Nor does the minimum
# say how long a user will wait. This course reports the **median**, and beside
# it the **interquartile range**, the spread of the middle half.
#
# ## 5 · Drift, and runs in pairs
#
# A median deals with noise. It does not deal with drift: a GPU that heats up and lowers its clocks, a
# neighbour that starts a job. Here the change is worth exactly 1.03×, and the machine becomes slower by more
# than a quarter while you measure, with a slow wobble of ±3 % on top.

# %% experiment
TRUTH = 1.03


def session(seed: int, n: int = 30, in_turns: bool = True) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For "before" and "after": the places in the session of its n runs, and their times in seconds."""
    rng = np.random.default_rng(seed)
    time = np.arange(2 * n)
    drift = 0.25 * time / (2 * n) + 0.03 * np.sin(time / 5 + rng.uniform(0, 6))
    swap = rng.permutation(np.arange(n) % 2)  # half of the pairs begin with "after"
    places = (
        (2 * np.arange(n) + swap, 2 * np.arange(n) + 1 - swap)
        if in_turns
        else (np.arange(n), np.arange(n, 2 * n))
    )
    speeds = (3e-3, 3e-3 / TRUTH)
    return {
        name: (place, seconds * np.exp(drift[place] + rng.normal(0, 0.02, n)))
        for name, place, seconds in zip(("before", "after"), places, speeds, strict=True)
    }


# %% experiment
orders = {
    "all of before, then all of after": session(1, in_turns=False),
    "in pairs, order drawn by lot": session(1),
}
plots.series(
    {title: {name: seconds for name, (_, seconds) in runs.items()} for title, runs in orders.items()},
    {title: {name: place for name, (place, _) in runs.items()} for title, runs in orders.items()},
    evidence="simulated (noisy machine)",
    title="The same change, measured one after the other and in turns",
)

# %% [markdown]
# Left, the drift lands in one of the two medians and looks like an effect. Right, it lands in both. But
# right, each cloud is still as wide as the drift; only *within a pair*, where the two runs are neighbours,
# is the drift the same and cancels in the ratio.
#
# How sure is a mean of n numbers? Its **standard error** is their spread ÷ √n, and two of them to either
# side hold the truth about 95 times in 100, as long as no number is wild. We use it on logarithms: a
# difference of logarithms is a ratio of times, and 2× and ½× are equally far from 1×.
#
# Three ways to make such an interval for time before ÷ time after. For each: of 200 such sessions, does the
# interval hold the true 1.03 in about 95 % of them, and is it narrow enough to say "faster"?

# %% experiment
said_of_sessions = {  # "yes" or "no"
    "one after the other: holds the truth": ...,
    "one after the other: says slower": ...,
    "in turns, unpaired: holds the truth": ...,
    "in turns, unpaired: says faster": ...,
    "in turns, paired: holds the truth": ...,
    "in turns, paired: says faster": ...,
}


# %% experiment
def unpaired(before: np.ndarray, after: np.ndarray) -> tuple[float, float, float]:
    """From the means of the logarithms, 2 standard errors on either side, as if runs had nothing in common."""
    x, y = np.log(before), np.log(after)
    middle, half = x.mean() - y.mean(), 2.0 * math.sqrt(x.var(ddof=1) / len(x) + y.var(ddof=1) / len(y))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def paired(before: np.ndarray, after: np.ndarray) -> tuple[float, float, float]:
    """The same from the difference of logarithms within each pair."""
    d = np.log(before) - np.log(after)
    half = 2.0 * math.sqrt(d.var(ddof=1) / len(d))
    return math.exp(d.mean()), math.exp(d.mean() - half), math.exp(d.mean() + half)


ways = {
    "one after the other": (False, unpaired),
    "in turns, unpaired": (True, unpaired),
    "in turns, paired": (True, paired),
}
rows, measured, one_session = [], {}, {}
for name, (in_turns, interval) in ways.items():
    sessions = [session(seed, in_turns=in_turns) for seed in range(200)]
    found = [interval(runs["before"][1], runs["after"][1]) for runs in sessions]
    holds = sum(low <= TRUTH <= high for _, low, high in found)
    faster, slower = sum(low > 1 for _, low, _ in found), sum(high < 1 for *_, high in found)
    measured[f"{name}: holds the truth"] = "yes" if holds >= 180 else "no"
    measured[f"{name}: says faster"] = "yes" if faster >= 180 else "no"
    measured[f"{name}: says slower"] = "yes" if slower >= 180 else "no"
    width = float(np.median([high / low - 1 for _, low, high in found]))
    one_session[name] = found[1]
    rows.append((name, holds, f"{width:.1%}", faster, slower, 200 - faster - slower))
lesson.keep(
    slower_first=rows[0][4],
    holds_second=rows[1][1],
    speaks_second=rows[1][3],
    holds_third=rows[2][1],
    speaks_third=rows[2][3],
)
table(
    rows,
    ["way", "holds 1.03", "median width", "faster", "slower", "cannot tell"],
    evidence="simulated (noisy machine)",
    caption="200 sessions of 30 + 30 runs",
)

# %% experiment
compare_predictions(
    said_of_sessions,
    {key: measured[key] for key in said_of_sessions},
    evidence="simulated (noisy machine)",
    choices=("yes", "no"),
)

# %% experiment
plots.speedup(
    one_session,
    evidence="simulated (noisy machine)",
    title="One session in each order, three intervals; the truth is 1.03×",
)

# %% [markdown]
# The first way is confidently wrong: it says "slower" in {{slower_first}} of 200 sessions. The second is honest
# and useless: it counts the drift as noise, so its interval holds the truth in {{holds_second}} sessions and says
# "faster" in {{speaks_second}}. The third holds the truth in {{holds_third}}, and says "faster" in
# {{speaks_third}}. **The rule: run the two in turns, in random order, and look at the ratios of the pairs.** The
# exception: one run changes the next (a cache that the first fills for the second, memory that it leaves
# fragmented). Then give each run its own process, and pair the processes.
#
# ### Fixed clocks
#
# A GPU changes its own clock with heat and power. Say it drops by 30 %. How much slower is a large matrix
# product, and how much an addition of two large tensors: `"1.4×"` or `"1.0×"`?

# %% experiment
said_of_clock = {"matrix product": ..., "addition": ...}

# %% experiment
from dataclasses import replace

from helpers.simulator import DEVICES

h100 = DEVICES["H100"]
slow_clock = replace(h100, peak_flops={kind: 0.7 * rate for kind, rate in h100.peak_flops.items()})
kernel_s = {}
for clock, card in {"full clock": h100, "clock − 30 %": slow_clock}.items():
    gpu = simulate(card)
    with gpu:
        a = torch.empty(4096, 4096, device=gpu.device)
        a @ a
        a + a
    kernel_s[clock] = dict(
        zip(("matrix product", "addition"), (k.duration_s for k in gpu.kernels[-2:]), strict=True)
    )
slowdown = {what: kernel_s["clock − 30 %"][what] / t for what, t in kernel_s["full clock"].items()}
compare_predictions(
    said_of_clock,
    {what: f"{r:.1f}×" for what, r in slowdown.items()},
    evidence="simulated (H100)",
    what="slower by",
    choices=("1.4×", "1.0×"),
)

# %% [markdown]
# The simulator assumes what the hardware manuals say: arithmetic runs at the chip's clock, memory at its own. So a
# throttling GPU does not slow everything alike, and pairs of *different* kernels do not see the same drift. On a GPU of
# your own, fix the clocks while you measure: `nvidia-smi --lock-gpu-clocks=<MHz>` (needs the
# [administrator](https://docs.nvidia.com/deploy/nvml-api/api/group__nvmlDeviceCommands.html); undo with
# `--reset-gpu-clocks`), at a value below the boost clock so that it can be held. Where you cannot, as on most rented
# GPUs, log the clock beside the times.
#
# **Exercise 0.2 — a speed-up with an interval** (★★, 15 min)
#
# `paired` is enough as long as no run is disturbed. Here one run in twelve is, and takes up to four times
# as long: try `return paired(before, after)` first, and read what the test says. Then write an interval
# whose middle a disturbed pair does not move. One recipe needs no theory: the **bootstrap**. Draw n of the
# n pairs with replacement, take the middle of the draw; do that a thousand times, and see how far the
# middles scatter. Any honest interval will do. It is judged by counting how often it holds the truth.
#
# <details><summary>Hint 1</summary>First turn each pair into one number. A ratio of 2 and a ratio of ½
# should be equally far from 1. Then: which middle drops a disturbed run, section 4?</details>
# <details><summary>Hint 2</summary>One NumPy index array of shape (1000, n) makes all draws at once. 95 % of
# the middles lie between two percentiles of them: which two?</details>
# <details><summary>The idea</summary><code>d = log(before / after)</code>; ratio =
# <code>exp(median(d))</code>; the interval is <code>exp</code> of the 2.5th and 97.5th percentiles of the
# resampled medians. Draw with a seeded generator of your own, so that the same samples give the same
# interval.</details>


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
    at most half as wide as `paired`'s. Of 6 to 19 pairs only low ≤ ratio ≤ high is asked.
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
from helpers.exercises.measure_first import Machine, check_paired_speedup

check_paired_speedup(Machine(n=30, ratio=1.08, scatter=0.03))

# %% hidden="paired_speedup" points=2
### BEGIN HIDDEN TESTS
from helpers.exercises.measure_first import Machine, check_paired_speedup

check_paired_speedup(
    Machine(20, ratio=0.9, scatter=0.06, jumpy=True),
    Machine(24, ratio=1.3, scatter=0.02, drift=-0.5),
    Machine(80, ratio=0.97, scatter=0.01, drift=-0.5, typical_s=4e-7),
    Machine(6),
    Machine(7, ratio=2.0, typical_s=5000.0),
    refused=[(5, 5), (9, 8)],
)
### END HIDDEN TESTS

# %% [markdown]
# **Exercise 0.3 — faster, slower, or cannot tell** (★★, 8 min)
#
# The word you will say to a colleague. How much the runs scatter differs from machine to machine, and
# nobody tells you; no fixed "2 % or more" is right on all of them. Your 0.2 may be used; but where it
# raises for too few pairs, the word is "cannot tell".
#
# <details><summary>Hint 1</summary>You have an interval from 0.2. What does it mean when 1 lies
# inside?</details>
# <details><summary>Hint 2</summary>Nine pairs of twelve say "faster". With no effect at all, how often do
# nine or more of twelve tossed coins fall alike?</details>
# <details><summary>The idea</summary>The interval of 0.2: "faster" if low &gt; 1, "slower" if high &lt; 1,
# else "cannot tell". Or the signs of the differences: with n pairs and no effect, the number of pairs in
# which "after" won is that of heads in n tosses; speak only where so uneven a number comes less than one
# time in twenty.</details>


# %% exercise="verdict"
def verdict(before: np.ndarray, after: np.ndarray) -> str:
    """What paired runs allow one to say about "after", at 95 %: "faster", "slower" or "cannot tell".

    before, after: (n,) positive seconds, paired and measured in turns; the scatter of single runs is unknown,
        the machine may drift, and one run in twelve may be disturbed and take up to four times as long.
        Two runs may take the very same time, if the clock is coarse. Fewer than 6 pairs: "cannot tell".
        ValueError for unequal lengths.

    Judged by counting: of 200 series without a difference (n = 6, 10 or 30, scatter 2 % or 10 %), at most 25
    may say anything but "cannot tell"; of 200 with a change of 5 % (n = 30, scatter 2 %), 2 % (n = 30, scatter
    0.3 %) or 1.7 % (n = 100, scatter 2 %), at least 160 must say the right word, and none the opposite one.
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
from helpers.exercises.measure_first import check_verdict

told = {
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
check_verdict(told)

# %% hidden="verdict" points=2
### BEGIN HIDDEN TESTS
from helpers.exercises.measure_first import Machine, check_verdict

machines = [
    Machine(30, scatter=0.02),
    Machine(30, scatter=0.1),
    Machine(10, scatter=0.1),
    Machine(6, scatter=0.02),
]
machines += [Machine(30, ratio, scatter=0.02) for ratio in (1.05, 1 / 1.05)]
machines += [Machine(30, 1.02, scatter=0.003, drift=0.05), Machine(100, 1.017, scatter=0.02)]
told = {
    "the very same times": "cannot tell",
    "a clock of whole ticks: after won 3 pairs, 10 were even": "cannot tell",
}
check_verdict(told, machines)
### END HIDDEN TESTS

# %% [markdown]
# The helper that this course uses from here on is `compare(before, after)`: warm-up, pairs in random
# order, bootstrap interval of the median, verdict. (`number`: calls in one reading of the clock.) Live, on your CPU:
# sixty-four small sums in a Python loop against one sum over all rows, and the latter against itself.

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
for name, found in live.items():
    print(f"{name}: {found.verdict}, ≈ {found.ratio:.2f}× [≈ {found.low:.2f}, ≈ {found.high:.2f}]")
plots.speedup(live, title="Time before ÷ time after, on this machine")

# %% [markdown]
# Your numbers decide what the figure says. Expect the first interval far to the right of 1, and the second
# to hold 1. If the first holds 1 too, or is as wide as the figure, your machine is busy: "cannot tell" is
# then the honest word, and the cure is a calmer machine or more pairs (four times as many halve the width),
# not another word. If the second says "faster" or "slower", you have met one of the false alarms that 95 %
# allows, one in twenty; run the cell again, and it should go. If it stays, something treats the two places
# in a pair differently, and the first interval is to be doubted by as much.
#
# ## 6 · The same seed, the same result
#
# A change that makes a run faster must leave its result as it was, and you can only see that if the result
# repeats. This toy training shuffles with Python, augments with NumPy and starts from torch's random
# weights. Four runs each; how many **different** results?

# %% experiment
said_of_seeds = {  # a number from 1 to 4
    "no seed": ...,
    "torch": ...,
    "torch + NumPy": ...,
    "torch + NumPy + Python": ...,
}


# %% experiment
def toy_training() -> float:
    order = list(range(8))
    random.shuffle(order)
    weight = torch.randn(4, 4)
    for i in order:
        x = torch.full((4,), float(i)) + torch.from_numpy(np.random.standard_normal(4)).float()
        weight = weight + 0.1 * torch.tanh(weight @ x).outer(x)
    return float(weight.sum())


random.seed(1), np.random.seed(1), torch.manual_seed(1)  # so that this page is the same every time
seeds = {"torch": torch.manual_seed, "NumPy": np.random.seed, "Python": random.seed}
measured = {}
for name in said_of_seeds:
    results = set()
    for _ in range(4):
        for part in name.split(" + "):
            seeds.get(part, lambda _: None)(0)
        results.add(toy_training())
    measured[name] = len(results)
compare_predictions(
    said_of_seeds, measured, evidence="live (CPU)", what="different results of 4", choices=range(1, 5)
)

# %% [markdown]
# Every generator that takes part must be seeded. They are global: a helper that seeds one and does not put
# its state back changes its caller's numbers. Seeds are not all. The order of a sum matters, and the number
# of threads decides the order. Next to 1e8, float32 has no room for a 1; for a sum of several ones it has:

# %% experiment
values = torch.tensor([1e8] + 14 * [1.0] + [-1e8])  # float32; the exact sum is 14
added = []
for threads in (1, 2):
    total = torch.tensor(0.0)
    for chunk in values.chunk(threads):  # each "thread" adds its chunk from left to right
        subtotal = torch.tensor(0.0)
        for value in chunk:
            subtotal = subtotal + value
        total = total + subtotal
    added.append((threads, float(total)))
lesson.keep(sum_one=added[0][1], sum_two=added[1][1])
table(added, ["threads", "sum of 1e8, fourteen ones, −1e8 (exact: 14)"], evidence="live (CPU)")

# %% [markdown]
# One thread finds {{sum_one:.0f}}, two find {{sum_two:.0f}}. A parallel sum splits its terms among threads like this,
# and some CUDA operators let threads add in the order in which they happen to arrive: their results differ from run to
# run with every seed fixed.
# [`torch.use_deterministic_algorithms(True)`](https://docs.pytorch.org/docs/2.13/generated/torch.use_deterministic_algorithms.html),
# whose page lists them, picks ordered versions or raises where there is none; they may be slower, which is one reason
# to use them for comparing results and not for timing.
#
# **Exercise 0.4 — a run that repeats, and leaves no trace** (★★, 10 min)
#
# <details><summary>Hint 1</summary>Five things to set: three generators, the threads, the deterministic
# setting. Each module that sets one can also tell you what it is now.</details>
# <details><summary>Hint 2</summary><code>train</code> may raise. What runs in any case? And
# <code>use_deterministic_algorithms</code> has a second setting, <code>warn_only</code>.</details>
# <details><summary>The idea</summary>Read <code>random.getstate()</code>,
# <code>np.random.get_state()</code>, <code>torch.get_rng_state()</code>,
# <code>torch.get_num_threads()</code>, <code>torch.are_deterministic_algorithms_enabled()</code> and
# <code>torch.is_deterministic_algorithms_warn_only_enabled()</code>; seed; <code>try: return
# train()</code>; <code>finally:</code> put all six back. <code>torch.random.fork_rng()</code> does torch's
# part, GPUs included.</details>


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
from helpers.exercises.measure_first import Turns, check_reproducible

check_reproducible(Turns(seeds=(5, 6, 5, 5), fails=("", "", "KeyError", "")))

# %% hidden="reproducible" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.measure_first import Turns, check_reproducible

check_reproducible(
    Turns((3, 3, 3, 4, 8), fails=("", "KeyError", "", "Stop", ""), nested=True),
    Turns((0, 1, 65_536, 0, 2**31 + 1, 2**32 - 1), fails=("",) * 6),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 7 · The golden loop: measure → change → measure
#
# Now all of it, on a training step: four layers, AdamW written as a loop, a `loss.item()` every step. Three
# changes that you will find recommended:
#
# - drop the `.item()`;
# - use **TF32** for the products: fewer digits in the factors, many times the arithmetic rate, on the GPU's
#   tensor cores;
# - **foreach**, which updates all parameters in a few launches where the loop needs several for each. (On CUDA
#   it is what PyTorch does unless you ask otherwise, see
#   [`_default_to_fused_or_foreach`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/optim/optimizer.py);
#   the loop here was asked for with `foreach=False`. Lesson 06 compares them.)
#
# Which one helps most on a **small** model (width 512, batch 256), and which on a **large** one (width 2048,
# batch 2048)?

# %% experiment
said_of_changes = {"small": ..., "large": ...}  # "no item", "TF32" or "foreach"


# %% experiment
from functools import cache


def training(
    gpu: Any, width: int, batch: int, *, item: bool = True, foreach: bool = False
) -> Callable[[], None]:
    net = torch.nn.Sequential(
        *[m for _ in range(4) for m in (torch.nn.Linear(width, width), torch.nn.GELU())]
    ).to(gpu.device)
    optimizer = torch.optim.AdamW(net.parameters(), foreach=foreach)
    x = torch.empty(batch, width, device=gpu.device)

    def step() -> None:
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if item:
            loss.item()

    return step


@cache  # simulated: the same question has the same answer
def step_time(size: tuple[int, int], *, precision: str = "highest", **options: bool) -> float:
    """Seconds a step on the simulated H100, warmed up, one wait at the end."""
    found = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        gpu = simulate("H100")
        with gpu:
            step = training(gpu, *size, **options)
            seconds, first = bench(step, gpu=gpu, number=4, repeats=1).median_s, len(gpu.kernels)
            step()
            busy[size, precision, *options] = sum(k.duration_s for k in gpu.kernels[first:]) / seconds
            return seconds
    finally:
        torch.set_float32_matmul_precision(found)


busy: dict[tuple, float] = {}  # share of the step in which the GPU works
sizes = {"small": (512, 256), "large": (2048, 2048)}
changes = {"no item": {"item": False}, "TF32": {"precision": "high"}, "foreach": {"foreach": True}}
base_s = {size: step_time(shape) for size, shape in sizes.items()}
gain = {
    size: {name: base_s[size] / step_time(shape, **change) for name, change in changes.items()}
    for size, shape in sizes.items()
}
table(
    [
        ("as it was: time of a step", *(format_seconds(base_s[size]) for size in sizes)),
        ("as it was: GPU busy", *(f"{busy[shape, 'highest']:.0%}" for shape in sizes.values())),
    ]
    + [(name, *(f"{gain[size][name]:.2f}×" for size in sizes)) for name in changes],
    ["change", *sizes],
    evidence="simulated (H100)",
    caption="lower rows: time before ÷ time after, one change at a time",
)

# %% experiment
best = {size: max(gain[size], key=gain[size].get) for size in sizes}
compare_predictions(
    said_of_changes,
    best,
    evidence="simulated (H100)",
    what="helps most",
    choices=("no item", "TF32", "foreach"),
)
lesson.keep(
    busy_small=busy[sizes["small"], "highest"],
    busy_large=busy[sizes["large"], "highest"],
    swapped_small=gain["small"][best["large"]],
    swapped_large=gain["large"][best["small"]],
)

# %% [markdown]
# Each model has another winner, and each winner is worth next to nothing on the other model: {{swapped_small:.2f}}×
# on the small one, {{swapped_large:.2f}}× on the large. The row "GPU busy" says why. In the small step the GPU
# works {{busy_small:.0%}} of the time and waits for launches in between, so faster arithmetic speeds up what
# nobody waits for. In the large step it works {{busy_large:.0%}} of the time. Neither the list nor experience
# tells you which of the two you have; one measurement does.
#
# And after each change, measure again: what the others are worth depends on it. The small model, always
# taking the best of what is left:

# %% experiment
ladder, kept, worth = [], {}, []
size = "small"
now = base_s[size]
ladder.append(("as it was", format_seconds(now), "", ""))
for _ in range(3):
    trial = {
        name: now / step_time(sizes[size], **(kept | change))
        for name, change in changes.items()
        if not kept.items() >= change.items()
    }
    name = max(trial, key=trial.get)
    worth.append(trial.get("no item", 1.0))
    kept |= changes[name]
    now /= trial[name]
    ladder.append(
        (
            f"+ {name}",
            format_seconds(now),
            f"{trial[name]:.2f}×",
            ", ".join(f"{n} {r:.2f}×" for n, r in trial.items() if n != name),
        )
    )
assert ladder[1][0] == "+ foreach" and ladder[2][0] == "+ no item"
lesson.keep(item_first=worth[0], item_then=worth[1])
table(
    ladder,
    ["small model", "step", "this change gave", "what the others would have given"],
    evidence="simulated (H100)",
)

# %% [markdown]
# `no item` was worth {{item_first:.2f}}× at first and {{item_then:.2f}}× once `foreach` was in: the same microseconds,
# out of a shorter step. TF32 stays worth nothing. **Stop when little is left to win.**
#
# **One change at a time**: two together give one number, and a loss can hide behind a gain. The next cell
# makes that happen: `foreach`, together with a second forward pass that somebody forgot to remove.


# %% experiment
def forgetful_step_time(foreach: bool, extra: bool) -> float:
    gpu = simulate("H100")
    with gpu:
        step = training(gpu, 512, 256, foreach=foreach)
        net = torch.nn.Sequential(
            *[m for _ in range(4) for m in (torch.nn.Linear(512, 512), torch.nn.GELU())]
        ).to(gpu.device)
        x = torch.empty(256, 512, device=gpu.device)
        return bench(lambda: (step(), net(x)) if extra else step(), gpu=gpu, number=4, repeats=1).median_s


as_it_was = forgetful_step_time(False, False)
together = {
    name: as_it_was / forgetful_step_time(foreach, extra)
    for name, (foreach, extra) in {
        "foreach alone": (True, False),
        "forward twice alone": (False, True),
        "both at once": (True, True),
    }.items()
}
table(
    [(name, f"{r:.2f}×", "faster" if r > 1 else "slower") for name, r in together.items()],
    ["change", "speed-up", "verdict"],
    evidence="simulated (H100)",
)

# %% [markdown]
# Reported as one change, this is a success, and the second forward pass stays for ever.
#
# ### Start small
#
# A full run of 1,000 steps answers every question and costs a full run each time. Could the first steps
# answer them? Predict the whole run from its first `k` steps in the obvious way: time them, multiply by
# `1000 / k`. How far off is that for k = 3, 50, and 500, half of the run? `"under 2 %"`, `"under 50 %"`, or
# `"more"`?

# %% experiment
said_of_scaling = {"3": ..., "50": ..., "500": ...}  # "under 2 %", "under 50 %" or "more"


# %% experiment
def cold_run(steps: int, skip: int = 0) -> float:
    """Seconds that `steps` steps take on a fresh GPU, after `skip` steps that are not counted."""
    gpu = simulate("H100")
    with gpu:
        x, w = torch.empty(4096, 1024, device=gpu.device), torch.empty(1024, 1024, device=gpu.device)
        begin = gpu.clock()
        for i in range(skip + steps):
            if i == skip > 0:
                gpu.synchronize()
                begin = gpu.clock()
            y = x
            for _ in range(2):
                y = torch.relu(y @ w)
        gpu.synchronize()
        return gpu.clock() - begin


full, first_step = cold_run(1000), cold_run(1)
rows, small, errors = [], {}, {}
for k in (3, 50, 500):
    guess, better = cold_run(k) * 1000 / k, first_step + cold_run(k, skip=1) * 999 / k
    errors[k] = (guess / full - 1, better / full - 1)
    off = abs(errors[k][0])
    small[str(k)] = "under 2 %" if off < 0.02 else "under 50 %" if off < 0.5 else "more"
    rows.append(
        (k, format_seconds(guess), f"{guess / full:.3g} ×", format_seconds(better), f"{errors[k][1]:+.1%}")
    )
table(
    rows,
    ["k", "k steps × 1000/k", "÷ full run", "first step + 999 × a later one", "its error"],
    evidence="simulated (H100)",
    caption=f"the full run takes {format_seconds(full)}",
)

# %% experiment
compare_predictions(
    said_of_scaling,
    small,
    evidence="simulated (H100)",
    what="error",
    choices=("under 2 %", "under 50 %", "more"),
)
lesson.keep(scaled_up=1 + errors[3][0], apart=abs(errors[3][1]))

# %% [markdown]
# A small run contains all of the start-up and little of the rest: three steps, scaled up, predict
# {{scaled_up:.0f}} times the full run. Take the start apart from the steps, and three steps predict a thousand
# within {{apart:.1%}}, *if they are of this kind*: the CPU has nothing to do here but to launch. Where CPU and
# GPU work overlap, every wait costs some of the overlap, and the stretch has to be long enough to make that
# small. The exceptions are runs whose later steps differ: a cache that fills up, data that gets longer, a
# check-point every thousand steps, a GPU that throttles after a minute. Then the small run must contain one
# of each.
#
# **Exercise 0.5 — predict the long run** (★★, 10 min)
#
# These steps have a CPU part too (decoding, Python), which overlaps with the GPU's part as long as nobody
# waits.
#
# <details><summary>Hint 1</summary>Two unknowns: what the start costs once, and what a step costs. How many
# measurements do you need?</details>
# <details><summary>Hint 2</summary>The first step has the set-up in it. Time it by itself, with a wait at
# its end. What would a wait after every later step do to the overlap? And a wait after every fifth?</details>
# <details><summary>The idea</summary><code>first</code> = clock around step 1 and a synchronize;
# <code>each</code> = clock around k further steps and one synchronize, ÷ k, with k ≥ 34 (the contract says
# why); the run takes <code>first +
# (steps − 1) · each</code>.</details>


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
from helpers.exercises.measure_first import Run, check_predict_run

check_predict_run(
    Run(size=3072, cpu_s=1e-3, steps=500),
    Run(size=1024, cpu_s=400e-6, steps=400),
    Run(size=1024, cpu_s=300e-6, steps=400, log=True),
)

# %% hidden="predict_run" points=3
### BEGIN HIDDEN TESTS
from helpers.exercises.measure_first import Run, check_predict_run

check_predict_run(
    Run(2560, cpu_s=1.6e-3, steps=400, card="A100"),
    Run(1024, cpu_s=700e-6, steps=600, card="A100"),
    Run(2048, cpu_s=300e-6, steps=400, log=True, card="A100"),
    Run(2560, cpu_s=500e-6, steps=400, ahead=True),
)
### END HIDDEN TESTS

# %% [markdown]
# ## On the real GPU
#
# Section 1 again, with the same names on a real GPU: `RealGPU` hands `torch.cuda`'s functions through.
# Where there is none, the simulated run follows. What to look for: the first row far below the other three,
# and in the last column how much more than the events the synchronized clock reads.

# %% experiment tags=["nbval-ignore-output"]
from helpers.simulator import RealGPU


def three_ways(gpu: Any, n: int = 4096, repeats: int = 20) -> lesson.Table:
    with gpu:
        a = torch.randn(n, n, device=gpu.device)
        for _ in range(3):
            a @ a
        gpu.synchronize()
        start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
        t0 = gpu.clock()
        start.record()
        for _ in range(repeats):
            a @ a
        end.record()
        t1 = gpu.clock()
        gpu.synchronize()
        t2 = gpu.clock()
        benched = bench(torch.mm, a, a, gpu=gpu, number=repeats, repeats=5)
    about = "≈ " if gpu.evidence.startswith("live") else ""
    ways = {"clock around the calls": (t1 - t0) / repeats, "clock, after synchronize": (t2 - t0) / repeats}
    ways |= {
        "a pair of events": start.elapsed_time(end) / 1e3 / repeats,
        "`bench`, which follows all the rules": benched.median_s,
    }
    return table(
        [
            (way, about + format_seconds(s), f"{about}{s / ways['a pair of events']:.4f}")
            for way, s in ways.items()
        ],
        ["way", f"one {n} × {n} product", "÷ events"],
        evidence=gpu.evidence,
    )


found = lesson.on_gpu(lambda device: three_ways(RealGPU()), recording="00_three_ways")
found if found is not None else three_ways(simulate("H100"))

# %% [markdown]
# ## Sources on trial
#
# One claim is pure arithmetic. A table in *torch.compile in practice* gives four improvements in per cent,
# and its title promises 300 %. Three usual meanings of "improved by x %": the ratio × 100 (old time ÷ new
# time), the rate gained (the ratio − 1), the amount saved (1 − new ÷ old; for a use of something, where more
# is better, it means nothing: —). Which one did the author use in each row?

# %% experiment
printed = {  # row: (before, after, the percentage in the article, is more better)
    "step time, ms": (800, 200, 400, False),
    "GPU utilisation, %": (45, 90, 100, True),
    "memory, GB": (12, 6, 50, False),
    "training time, h": (72, 24, 300, False),
}
rows, meanings = [], {}
for name, (before, after, percent, more) in printed.items():
    times = after / before if more else before / after
    means = {
        "ratio × 100": 100 * times,
        "rate gained": 100 * (times - 1),
        "amount saved": 100 * (1 - after / before),
    }
    meanings[name] = [meaning for meaning, value in means.items() if abs(value - percent) < 0.5]
    shown = [f"{v:.0f} %" if v >= 0 else "—" for v in means.values()]
    rows.append((name, f"{before} → {after}", f"{percent} %", *shown, " or ".join(meanings[name])))
table(rows, ["row", "change", "printed", *means, "so it is"], evidence="arithmetic")

# %% [markdown]
# Say "takes 0.25 of the time" or "4.0× as fast", never "400 % faster". All eight claims:

# %% experiment tags=["fold"]
kinds = {meaning for found in meanings.values() for meaning in found[:1]}
lesson.verdicts(
    [
        {
            "id": "00-measure-optimise-measure",
            "claim": "Measure first, optimise, then measure again",
            "source": "guide",
            "measured": f"best of three: {best['small']} on the small model ({gain['small'][best['small']]:.2f}×), "
            f"{best['large']} on the large ({gain['large'][best['large']]:.2f}×); swapped: "
            f"{gain['small'][best['large']]:.2f}×, {gain['large'][best['small']]:.2f}×",
            "verdict": "confirmed" if best["small"] != best["large"] else "refuted",
            "experiment": "7 · The golden loop",
        },
        {
            "id": "00-simple-time",
            "claim": "A simple `time` measurement locates the bottleneck quickly",
            "source": "guide",
            "measured": f"naive clock: {blamed} with {naive[blamed] / sum(naive.values()):.0%} of the "
            f"step; after synchronize: {guilty} with "
            f"{waited[guilty] / sum(waited.values()):.0%}",
            "verdict": "confirmed"
            if blamed == guilty
            else "holds when the device is synchronized before each reading",
            "experiment": "1 · The line that waits gets the blame",
        },
        {
            "id": "00-event-kernel-time",
            "claim": "`torch.cuda.Event` records kernel execution time",
            "source": "compile-300",
            "measured": f"events ÷ kernel: {event_error[4096][1]:.2f} for fifty large products, "
            f"{event_error[128][0]:.2f} for one small one on an idle GPU, "
            f"{event_error[128][1]:.2f} for fifty small ones",
            "verdict": "holds when the queue is full: they read what passes between two marks, gaps included",
            "experiment": "1 · What does a clock around a GPU call read?",
        },
        {
            "id": "00-percent-table",
            "claim": "800 → 200 ms is 400 %, 45 → 90 % is 100 %, 12 → 6 GB is 50 %, 72 → 24 h is 300 %",
            "source": "compile-300",
            "measured": f"{len(kinds)} meanings of per cent in one column: {', '.join(sorted(kinds))}",
            "verdict": "confirmed" if len(kinds) == 1 else "refuted",
            "experiment": "Sources on trial",
        },
        {
            "id": "00-300-percent-faster",
            "claim": "Training speed improved by 300 %",
            "source": "compile-300",
            "measured": f"72 → 24 h of training: {100 * (72 / 24 - 1):.0f} % more speed ({72 / 24:.1f}×); "
            f"800 → 200 ms a step: {100 * (800 / 200 - 1):.0f} % more ({800 / 200:.1f}×)",
            "verdict": "holds when one step is meant, not the whole training",
            "experiment": "Sources on trial",
        },
        {
            "id": "00-start-small",
            "claim": "Always start small",
            "source": "book-notes",
            "measured": f"three steps after the first predict 1,000 within {abs(errors[3][1]):.1%}; "
            f"three from a cold start, scaled up, are off by {errors[3][0]:+.0%}",
            "verdict": "holds when start-up is taken apart, and later steps are like early ones",
            "experiment": "7 · Start small",
        },
        {
            "id": "00-one-at-a-time",
            "claim": "Begin with a single optimisation and verify step by step",
            "source": "five-strategies",
            "measured": f"two changes at once: {together['both at once']:.2f}×, which looks like a gain; "
            f"alone they are {together['foreach alone']:.2f}× and "
            f"{together['forward twice alone']:.2f}×",
            "verdict": "confirmed"
            if together["both at once"] > 1 > together["forward twice alone"]
            else "refuted",
            "experiment": "7 · The golden loop",
        },
        {
            "id": "00-12h-to-3h",
            "claim": "BERT-base pre-training: 12 h → 3.2 h an epoch",
            "source": "five-strategies",
            "measured": f"arithmetic only: {12 / 3.2:.2f}×; runs, spread, data and number of GPUs are not given",
            "verdict": "untested here",
            "experiment": "Sources on trial",
        },
    ],
    evidence="simulated (H100) · arithmetic",
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Synchronize before you read the clock, at both ends | you want the CPU's own share: do not wait |
# | Warm up until readings stop falling | the start is what your user waits for |
# | One wait for many calls | work of milliseconds: then time each call, and see the spread |
# | Events for stretches in the middle of a program | a few small kernels on an idle GPU: they read the gap |
# | Median and interquartile range | you pay for the slowest (99th percentile; the slowest of many GPUs: lesson 14) |
# | Pairs, in random order, ratio and interval | one run changes the next: pair whole processes |
# | "Cannot tell" is a result | you must decide: run more pairs; four times as many halve the width |
# | Seed everything, put it back | other hardware or versions: compare curves with a tolerance, not bits |
# | Start small, one change at a time | the effect appears only at size (memory limits, communication) |
#
# **For your own code**: what is the question, in one number? · which machine, versions, clocks? · warmed
# up? · synchronized? · how many runs, which spread? · in turns? · is the result still the same? · what is
# the next bottleneck?
#
# **To read on**: PyTorch's [tutorial on
# `torch.utils.benchmark`](https://docs.pytorch.org/tutorials/recipes/recipes/benchmark.html) and its notes on
# [reproducibility](https://docs.pytorch.org/docs/2.13/notes/randomness.html) and [CUDA
# semantics](https://docs.pytorch.org/docs/2.13/notes/cuda.html); the `nvidia-smi` manual on clocks; A. Georges, D.
# Buytaert, L. Eeckhout, *Statistically rigorous Java performance evaluation* (2007), which holds for Python too; B.
# Efron and R. Tibshirani, *An Introduction to the Bootstrap* (1993).
