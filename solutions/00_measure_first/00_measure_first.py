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
# **Time** 50–60 min (the five exercises take most of it). **Before this** Python, and PyTorch enough to
# write a training loop.
#
# **Afterwards you can**
# 1. time GPU work so that the number is the work, and say what a wrong timer read instead;
# 2. say "faster", "slower" or "cannot tell" with an interval behind it, from runs on a noisy, drifting
#    machine;
# 3. make a run repeatable, test a change on a small run first, and predict the large run from it.
#
# **On trial** *measure, optimise, measure again*; *a simple `time` finds the bottleneck* (performance
# guide) · *`torch.cuda.Event` records kernel time*; *800 ms → 200 ms = 400 %* and the rest of that table
# (torch.compile in practice) · *start small* (book notes) · *12 h → 3.2 h an epoch*; *one optimisation at a
# time* (five strategies).

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
# times rest on a data sheet and round assumptions; *what waits for what* is exact, and that is all this
# lesson needs. It also keeps a record that no real GPU gives you so easily: when each kernel truly started
# and ended. So a timer can be marked right or wrong.
#
# ## 1 · What does a clock around a GPU call read?
#
# Three 1024 × 1024 matrix products, timed in three ways at once: a clock read before and after the calls;
# the same after `gpu.synchronize()`; a pair of events recorded around the calls. Which reads the **launch**
# (the CPU handing the work over), and which the **work**?

# %% experiment
prediction = {  # "launch" or "work"
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
table(
    [(way, format_seconds(s), f"{s / work_s:.2f}") for way, s in readings.items()]
    + [("the kernels themselves", format_seconds(work_s), "1.00")],
    ["way", "reading", "÷ work"],
    evidence=gpu.evidence,
)

# %% experiment
compare_predictions(
    prediction,
    {way: "work" if s > work_s / 2 else "launch" for way, s in readings.items()},
    evidence=gpu.evidence,
    what="reads the",
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
# The CPU needs a few microseconds to hand a product over and is free again; the GPU has barely begun. A
# clock read then measures the CPU. **The rule: read the clock only after `synchronize()`, before the work
# as well as after it.** Before, because work queued earlier would be counted as yours.
#
# Events are marks in the queue, stamped by the GPU when it passes them. They need no wait in the middle of
# the program. But look at the row "a pair of events": it reads a little more than the kernels. On an idle
# GPU the first mark is passed at once, and the gap until the first kernel arrives is inside the
# measurement. How much that matters depends on how long the work is:

# %% experiment
rows, event_error = [], {}
for n in (256, 512, 1024, 4096):
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
table(
    rows, ["product", "kernel", "events around one", "events around fifty ÷ 50"], evidence="simulated (H100)"
)

# %% [markdown]
# Large work or many calls: events read the kernels. One small kernel on an idle GPU: they read mostly the
# gap. And in the first rows even fifty calls do not help: there a launch takes longer than the kernel, the
# GPU waits for the CPU, and what you read is the launch rate. That number is *not wrong*: it is what a
# program made of such calls pays. It is just not the kernel's time, and no faster kernel will improve it
# (lesson 03).
#
# ### The line that waits gets the blame
#
# One step of a loop has three lines. You put a clock around each, as one does to find a bottleneck. Which
# line looks slowest: `"forward"`, `"loss"` or `"log"`? And which one is?

# %% experiment
prediction = {"naive clock says": ..., "clock after synchronize says": ...}  # "forward", "loss" or "log"


# %% experiment
LINES = {"forward": "8 × `y @ w`", "loss": "`(y * y).mean()`", "log": "`loss.item()`"}


def time_lines(wait: bool) -> dict[str, float]:
    """Seconds of each line of a step, the third; wait: synchronize before each reading of the clock."""
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
    prediction,
    {"naive clock says": blamed, "clock after synchronize says": guilty},
    evidence="simulated (H100)",
    what="slowest line",
)

# %% [markdown]
# `loss.item()` needs the number, so the CPU waits there for everything queued before it, and the naive
# clock charges that line with the work of the others. Someone who trusts it removes `.item()`, sees the
# next waiting line take the blame, and the step is as slow as before.
#
# ## 2 · The first call
#
# Eight times the same product on a fresh GPU, each call timed correctly (clock after synchronize). How many
# times as long as the last call does the first one take: about `"2"`, `"10"`, `"100"`, or `"1,000 or
# more"`? And how many of the eight calls are slow?

# %% experiment
prediction = {
    "first call ÷ last call": ...,  # "2", "10", "100" or "1,000 or more"
    "slow calls among 8": ...,  # a number
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
compare_predictions(prediction, measured, evidence=gpu.evidence)

# %% experiment
cold = [(h.name, format_seconds(h.duration_s)) for h in gpu.host if h.kind == "warm-up"]
means = {n: (sum(calls[:1]) + (n - 1) * calls[-1]) / n for n in (10, 100, 1000)}
table(
    [
        *cold,
        ("one call, warm", format_seconds(calls[-1])),
        *((f"mean of {n:,} calls, first one included", format_seconds(m)) for n, m in means.items()),
    ],
    ["what", "time"],
    evidence=gpu.evidence,
    caption="set-up paid by the first call, and what it does to a mean",
)

# %% [markdown]
# The first use of the GPU makes a context; the first product loads a library and a kernel. Set-up is paid
# once in a process, and an average over a thousand calls still carries it. **The rule: call the work once
# or more, then synchronize, then start the clock.** On real systems the list is longer: cuDNN's benchmark
# mode, the allocator's first blocks, `torch.compile`, the file cache, a GPU that has yet to raise its
# clocks. Warm up until the readings stop falling, not for a fixed count.
#
# It stops being true where the start *is* the question: a command-line tool, a serverless function, the
# time to the first token.
#
# ## 3 · Wait once, not every time
#
# Suppose you synchronize after every call and average. Each call now pays a launch that nothing hides and a
# wait. The products' edge is 512, 1024 or 4096. Where does waiting every time read more than 10 % over what
# a call costs in a full queue: `"yes"` or `"no"`?

# %% experiment
prediction = {"512": ..., "1024": ..., "4096": ...}  # "yes" (more than 10 % off) or "no"

# %% experiment
rows, off = [], {}
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
    off[str(n)] = "yes" if each > 1.1 * once else "no"
    rows.append(
        (
            f"{n} × {n}",
            format_seconds(gpu.kernels[-1].duration_s),
            format_seconds(once),
            format_seconds(each),
            f"{each / once - 1:+.1%}",
        )
    )
table(
    rows,
    ["product", "kernel", "wait once, ÷ 20", "wait every time", "difference"],
    evidence="simulated (H100)",
)

# %% experiment
compare_predictions(prediction, off, evidence="simulated (H100)", what="more than 10 % off")

# %% [markdown]
# A wait per call adds the same microseconds to every call, whatever its size. For milliseconds of work
# nobody cares, and a reading per call is worth having (section 4 needs many). For microseconds it is most
# of what you read. With one wait at the end, launch and wait are shared by all the calls.
#
# **Exercise 0.1 — time work on a GPU** (★★, 8 min)
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

    gpu: has torch.cuda's names: synchronize(), Event(enable_timing=True), …, and clock(), which is
        time.perf_counter(). It may never have been used, and its queue may be full when you are called.
    work: launches one or more kernels and returns None; a call keeps the GPU busy for longer than the CPU
        needs to launch it. Its first call includes set-up, which does not count.
    repeats: calls to be measured, at least 1 (else ValueError); up to 5 more for warming up.

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
from helpers import check


def drive(time_on_gpu, size, chain, queued, repeats):
    import torch

    from helpers import simulate

    gpu, calls = simulate("H100"), []

    class Card:  # what a real GPU offers too: no record of its kernels
        device, evidence, Stream, Event, stream = gpu.device, gpu.evidence, gpu.Stream, gpu.Event, gpu.stream
        clock, clock_ns, synchronize, current_stream = (
            gpu.clock,
            gpu.clock_ns,
            gpu.synchronize,
            gpu.current_stream,
        )

    with gpu:
        x = torch.empty(size, size, device=gpu.device)
        for _ in range(queued):
            x @ x

        def work():
            calls.append(1)
            y = x
            for _ in range(chain):
                y = y @ x

        seconds = float(time_on_gpu(Card(), work, repeats))
        return [seconds, len(calls)]


def judge(reports):
    import torch

    from helpers import simulate

    for report in reports:
        size, chain, queued, repeats = report.args
        got, calls = report.value
        gpu = simulate("H100")
        with gpu:
            x = torch.empty(size, size, device=gpu.device)
            for _ in range(chain):
                x @ x
        exact, allowed = sum(k.duration_s for k in gpu.kernels[-chain:]), 20e-6 / repeats
        what = (
            f"a call of {chain} product(s) of {size} × {size}: you read {got * 1e6:.2f} µs, the device "
            f"worked {exact * 1e6:.2f} µs"
        )
        if not got > exact / 2:
            return f"{what}. The clock was read before the GPU was done: that is the launch."
        if 900 < got / exact < 1100:
            return f"{what}. That is a thousand times as long: elapsed_time() is in milliseconds."
        if got > exact + 1e-3:
            return (
                f"{what}. The set-up of the first call is in the measurement, or work that was queued before."
            )
        if abs(got - exact) > allowed:
            return (
                f"{what}; at most {allowed * 1e6:.1f} µs off with repeats={repeats}. A wait in every "
                "call, or a warm-up still in the queue?"
            )
        if not repeats <= calls <= repeats + 5:
            return (
                f"work() was called {calls} times for repeats={repeats}; wanted {repeats}, and up to 5 "
                "to warm up"
            )


check.function(
    "time_on_gpu",
    [check.case(1024, 1, 0, 10), check.case(1024, 2, 0, 20)],
    drive=drive,
    verify=judge,
    look='"Wait once, not every time", above',
)

# %% hidden="time_on_gpu" points=5
### BEGIN HIDDEN TESTS
from helpers import check


def drive(time_on_gpu, size, chain, queued, repeats):
    import torch

    from helpers import simulate

    gpu, calls = simulate("H100"), []

    class Card:
        device, evidence, Stream, Event, stream = gpu.device, gpu.evidence, gpu.Stream, gpu.Event, gpu.stream
        clock, clock_ns, synchronize, current_stream = (
            gpu.clock,
            gpu.clock_ns,
            gpu.synchronize,
            gpu.current_stream,
        )

    with gpu:
        x = torch.empty(size, size, device=gpu.device)
        for _ in range(queued):
            x @ x

        def work():
            calls.append(1)
            y = x
            for _ in range(chain):
                y = y @ x
            torch.relu(y)

        seconds = float(time_on_gpu(Card(), work, repeats))
        return [seconds, len(calls)]


def judge(reports):
    import torch

    from helpers import simulate

    for report in reports:
        size, chain, queued, repeats = report.args
        got, calls = report.value
        gpu = simulate("H100")
        with gpu:
            x = torch.empty(size, size, device=gpu.device)
            for _ in range(chain):
                x @ x
            torch.relu(x)
        exact, allowed = sum(k.duration_s for k in gpu.kernels[-chain - 1 :]), 20e-6 / repeats
        if not abs(got - exact) <= allowed:
            return (
                f"{queued} products were queued before; {chain} product(s) of {size} × {size} and a relu "
                f"took the device {exact * 1e6:.2f} µs a call; "
                f"you read {got * 1e6:.2f} µs (at most {allowed * 1e6:.1f} µs off with repeats={repeats})"
            )
        if not repeats <= calls <= repeats + 5:
            return (
                f"work() was called {calls} times for repeats={repeats}; wanted {repeats}, and up to 5 "
                "to warm up"
            )


check.function(
    "time_on_gpu",
    [
        check.case(768, 1, 0, 10),
        check.case(1024, 3, 40, 12),
        check.case(2048, 1, 9, 1),
        check.case(900, 2, 200, 30),
        check.case(1024, 1, 0, 0, raises=ValueError),
    ],
    drive=drive,
    verify=lambda reports: judge(reports[:-1]),
    look='"What does a clock around a GPU call read?": before the work as well as after it',
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
plots.samples(again, evidence="live (CPU)", title="The same code, timed 40 times, twice")

# %% [markdown]
# Look at the spread of each row and at the distance between the two medians: that distance is a "speed-up"
# of code that was not changed. Your machine's numbers are its own, so for counting we take a machine made
# of random numbers, with a seed: most runs scatter by 3 %, and one in ten is disturbed and takes up to
# twice as long.
#
# Compare A with A a thousand times, and report a change whenever the two differ by 5 % or more. Which
# summary of the runs raises the **fewest** false alarms, and which the most? Choose from the four keys of
# `summaries`.

# %% experiment
prediction = {"fewest": ..., "most": ...}  # "one run", "mean of 10", "median of 10", "minimum of 10"


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
    prediction,
    {"fewest": min(alarms, key=alarms.get), "most": max(alarms, key=alarms.get)},
    evidence="simulated (noisy machine)",
)

# %% [markdown]
# One run decides nothing, and the mean of ten is no better, here it is worse: among ten runs there is
# nearly always a disturbed one, and the mean passes it on. The median drops it. So does the minimum, but
# that is the luckiest run: it is the best choice only where every disturbance adds time to a fixed floor,
# it misleads where a run can be lucky (a boost clock, a cached file), and it says nothing of what a user
# will wait. This course reports the **median**, and beside it the **interquartile range**, the spread of
# the middle half.
#
# ## 5 · Drift, and runs in pairs
#
# Noise averages out. Drift does not: a GPU that heats up and lowers its clocks, a neighbour that starts a
# job. Here the change is worth exactly 1.03×, and the machine slows by a quarter while you measure.

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
def draw_sessions() -> plots.Picture:  # drawing, nothing else
    from helpers.plots import style

    with style.look():
        fig, _ = style.figure(
            2.9,
            evidence="simulated (noisy machine)",
            title="The same change, measured one after the other and in turns",
        )
        axes = fig.subplots(1, 2, sharey=True)
        for ax, in_turns, title in zip(
            axes,
            (False, True),
            ("all of before, then all of after", "in pairs, order drawn by lot"),
            strict=True,
        ):
            for (name, (place, seconds)), marker, colour in zip(
                session(1, in_turns=in_turns).items(), "os", style.SERIES, strict=False
            ):
                ax.plot(place, seconds * 1e3, marker, color=colour, markersize=4.5, label=name)
                ax.axhline(np.median(seconds) * 1e3, color=colour, linewidth=1.2, linestyle="--")
            ax.set(title=title, xlabel="run")
        axes[0].set_ylabel("time, ms (dashed: medians)")
        axes[0].legend(loc="upper left")
        return plots.Picture(
            fig,
            "simulated (noisy machine)",
            "time against run, before and after, in two orders, with medians",
        )


draw_sessions()

# %% [markdown]
# Left, the drift lands in one of the two medians and looks like an effect. Right, it lands in both. But
# right, each cloud is still as wide as the drift; only *within a pair*, where the two runs are neighbours,
# is the drift the same and cancels in the ratio.
#
# Three ways to make a 95 % interval for time before ÷ time after. For each: of 200 such sessions, does the
# interval hold the true 1.03 in about 95 % of them, and is it narrow enough to say "faster"?

# %% experiment
prediction = {  # "yes" or "no"
    "one after the other: holds the truth": ...,
    "in turns, unpaired: holds the truth": ...,
    "in turns, unpaired: says faster": ...,
    "in turns, paired: holds the truth": ...,
    "in turns, paired: says faster": ...,
}


# %% experiment
def unpaired(before: np.ndarray, after: np.ndarray) -> tuple[float, float, float]:
    """Ratio of geometric means, with 2 standard errors on either side, as if no run had to do with another."""
    x, y = np.log(before), np.log(after)
    middle, half = x.mean() - y.mean(), 2.0 * math.sqrt(x.var(ddof=1) / len(x) + y.var(ddof=1) / len(y))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def paired(before: np.ndarray, after: np.ndarray) -> tuple[float, float, float]:
    """The same from the pairs' log ratios."""
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
    width = float(np.median([high / low - 1 for _, low, high in found]))
    one_session[name] = found[1]
    rows.append((name, holds, f"{width:.1%}", faster, slower, 200 - faster - slower))
table(
    rows,
    ["way", "holds 1.03", "median width", "faster", "slower", "cannot tell"],
    evidence="simulated (noisy machine)",
    caption="200 sessions of 30 + 30 runs",
)

# %% experiment
compare_predictions(
    prediction, {key: measured[key] for key in prediction}, evidence="simulated (noisy machine)"
)

# %% experiment
plots.speedup(
    one_session,
    evidence="simulated (noisy machine)",
    title="One session, three intervals; the truth is 1.03×",
)

# %% [markdown]
# The first way is confidently wrong. The second is honest and useless: it always holds the truth because it
# is as wide as the drift. The third knows. **The rule: run the two in turns, in random order, and look at
# the ratios of the pairs.** It stops being true where one run changes the next (a cache that the first
# fills for the second, memory that it leaves fragmented): then give each run its own process, and pair the
# processes.
#
# ### Fixed clocks
#
# A GPU changes its own clock with heat and power. Say it drops by 30 %. How much slower is a large matrix
# product, and how much an addition of two large tensors: `"1.4×"` or `"1.0×"`?

# %% experiment
prediction = {"matrix product": ..., "addition": ...}

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
    prediction,
    {what: f"{r:.1f}×" for what, r in slowdown.items()},
    evidence="simulated (H100)",
    what="slower by",
)

# %% [markdown]
# Arithmetic runs at the chip's clock, memory at its own. So a throttling GPU does not slow everything
# alike, and pairs of *different* kernels do not see the same drift. On a GPU of your own, fix the clocks
# while you measure: `nvidia-smi --lock-gpu-clocks=<MHz>` (needs the administrator; undo with
# `--reset-gpu-clocks`), at a value below the boost clock so that it can be held. Where you cannot, as on
# most rented GPUs, log the clock beside the times.
#
# **Exercise 0.2 — a speed-up with an interval** (★★, 10 min)
#
# Section 5's third way took two standard errors for granted. Write your own: a bootstrap, a t-interval, an
# interval from the ranks; any honest one will do. It is judged by counting: how often it holds the truth.
#
# <details><summary>Hint 1</summary>First turn each pair into one number. A ratio of 2 and a ratio of ½
# should be equally far from 1.</details>
# <details><summary>Hint 2</summary>Bootstrap: draw n of the n pairs with replacement, take the middle of
# the draw; do that 1,000 times (one NumPy index array of shape (1000, n) is quick), and read off two
# percentiles.</details>
# <details><summary>The idea</summary><code>d = log(before / after)</code>; ratio =
# <code>exp(median(d))</code>; the interval is <code>exp</code> of the 2.5th and 97.5th percentiles of the
# resampled medians. Draw with a seeded generator of your own, so that the same samples give the same
# interval.</details>


# %% exercise="paired_speedup"
def paired_speedup(before: np.ndarray, after: np.ndarray) -> tuple[float, float, float]:
    """Speed-up from paired runs, with a 95 % confidence interval: (ratio, low, high).

    before, after: (n,) positive seconds; before[i] and after[i] were measured next to each other.
    ratio: typical time before / time after, dimensionless; 2.0: "after" takes half the time.
    low ≤ ratio ≤ high. ValueError for unequal lengths or n < 6: if a pair falls either way by chance, five of
    five fall alike with a chance of 2 / 2⁵ = 6 %, so five pairs cannot support 95 %.

    Judged on sets of 200 series with n ≥ 20 and drift common to both: the interval holds the true ratio in
    180 to 199 of them (95 % ± chance; 200 means too wide), and is typically (median of log-widths) at most
    0.6 times as wide as that of `unpaired` above.
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
import numpy as np

from helpers import check


def drive(paired_speedup, series):
    return [[float(v) for v in paired_speedup(before.copy(), after.copy())] for before, after in series]


def heated(seed, n, truth):
    rng = np.random.default_rng([7, seed])
    at = np.arange(2 * n)
    drift = 0.3 * at / n + 0.05 * np.sin(at / 7 + rng.uniform(0, 6))
    swap = rng.permutation(np.arange(n) % 2)
    place = 2 * np.arange(n) + swap, 2 * np.arange(n) + 1 - swap
    return [
        s * np.exp(drift[p] + rng.normal(0, 0.03, n))
        for s, p in zip((3e-3, 3e-3 / truth), place, strict=True)
    ]


def judge(reports):
    truth, series, found = 1.08, reports[0].args[0], reports[0].value
    if bad := [f for f in found if not f[1] <= f[0] <= f[2]]:
        return f"wanted low ≤ ratio ≤ high, got (ratio, low, high) = {tuple(round(v, 4) for v in bad[0])}"
    held = sum(low <= truth <= high for _, low, high in found)
    over, under = sum(low > truth for _, low, _ in found), sum(high < truth for *_, high in found)
    if held < 180:
        return (
            f"the interval holds the true {truth} in {held} of 200 series (wanted 180 to 199); it lies "
            f"above in {over}, below in {under}"
        )
    spread = [2 * 2 * np.sqrt((np.log(b).var(ddof=1) + np.log(a).var(ddof=1)) / b.size) for b, a in series]
    narrower = float(
        np.median(
            [
                np.log(high / low) / s if low > 0 else np.inf
                for (_, low, high), s in zip(found, spread, strict=True)
            ]
        )
    )
    if narrower > 0.6:
        return (
            f"the interval is {narrower:.2f} times as wide as the unpaired one (wanted at most 0.6): is "
            "the pairing used?"
        )
    if held > 199:
        return "the interval holds the truth in 200 of 200 series: it is too wide for 95 %"


check.function(
    "paired_speedup",
    [check.case([heated(s, 30, 1.08) for s in range(200)])],
    drive=drive,
    verify=judge,
    look='"Drift, and runs in pairs", above',
)

# %% hidden="paired_speedup" points=2
### BEGIN HIDDEN TESTS
import numpy as np

from helpers import check


def drive(paired_speedup, series):
    return [[float(v) for v in paired_speedup(before.copy(), after.copy())] for before, after in series]


def jumpy(seed, n, truth):
    """Every pair meets another machine: neighbours share it."""
    rng = np.random.default_rng([11, seed])
    drift = rng.normal(0, 0.25, n)
    return [s * np.exp(drift + rng.normal(0, 0.04, n)) for s in (2e-5, 2e-5 / truth)]


def cooling(seed, n, truth):
    rng = np.random.default_rng([13, seed])
    at = np.arange(2 * n)
    drift = -0.5 * at / n + 0.1 * np.cos(at / 11 + rng.uniform(0, 6))
    swap = rng.permutation(np.arange(n) % 2)
    place = 2 * np.arange(n) + swap, 2 * np.arange(n) + 1 - swap
    return [
        s * np.exp(drift[p] + rng.normal(0, 0.02, n)) for s, p in zip((1.5, 1.5 / truth), place, strict=True)
    ]


TRUTHS = (0.9, 1.3)


def judge(reports):
    for truth, report in zip(TRUTHS, reports, strict=False):
        series, found = report.args[0], report.value
        if any(not f[1] <= f[0] <= f[2] for f in found):
            return "wanted low ≤ ratio ≤ high"
        held = sum(low <= truth <= high for _, low, high in found)
        spread = [
            2 * 2 * np.sqrt((np.log(b).var(ddof=1) + np.log(a).var(ddof=1)) / b.size) for b, a in series
        ]
        narrower = float(
            np.median(
                [
                    np.log(high / low) / s if low > 0 else np.inf
                    for (_, low, high), s in zip(found, spread, strict=True)
                ]
            )
        )
        if not 180 <= held <= 199 or narrower > 0.6:
            return (
                f"true ratio {truth}: the interval holds it in {held} of 200 series (wanted 180 to 199), "
                f"{narrower:.2f} times as wide as the unpaired one (wanted at most 0.6)"
            )
        off = abs(float(np.median([np.log(ratio / truth) for ratio, *_ in found])))
        if off > 0.01:
            return f"true ratio {truth}: the typical ratio is {off:.1%} off"


check.function(
    "paired_speedup",
    [
        check.case([jumpy(s, 40, TRUTHS[0]) for s in range(200)]),
        check.case([cooling(s, 24, TRUTHS[1]) for s in range(200)]),
        check.case([[np.ones(5), np.ones(5) * 2]], raises=ValueError),
        check.case([[np.ones(9), np.ones(8)]], raises=ValueError),
    ],
    drive=drive,
    verify=judge,
    look='"Drift, and runs in pairs": the third way',
)
### END HIDDEN TESTS

# %% [markdown]
# **Exercise 0.3 — faster, slower, or cannot tell** (★★, 8 min)
#
# The word you will say to a colleague. It has to survive runs that were disturbed, too.
#
# <details><summary>Hint 1</summary>You have an interval from 0.2. What does it mean when 1 lies
# inside?</details>
# <details><summary>Hint 2</summary>A disturbed run can be four times as long as the others. Which middle
# does that move, and which not? If 0.2 used a mean, use something else here.</details>
# <details><summary>The idea</summary>A median or the signs of the differences: with n pairs and no effect,
# the number of pairs in which "after" won is that of heads in n tosses. Or the bootstrapped median of the
# log ratios: "faster" if low &gt; 1, "slower" if high &lt; 1.</details>


# %% exercise="verdict"
def verdict(before: np.ndarray, after: np.ndarray) -> str:
    """What paired runs allow one to say about "after", at 95 %: "faster", "slower" or "cannot tell".

    before, after: (n,) positive seconds, paired and measured in turns; one run in twelve may be disturbed and
        take up to four times as long. Fewer than 6 pairs: "cannot tell". ValueError for unequal lengths.

    Judged by counting: on 200 series (n = 30) without a difference, at most 20 may say anything but "cannot
    tell"; on 200 with a change of 5 % each way (2 % scatter, drift, disturbed runs), at least 160 must say
    the right word, and none the opposite one.
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
import numpy as np

from helpers import check

base = 1e-3 * np.array([1.00, 1.02, 0.99, 1.01, 1.00, 0.98, 1.03, 1.01, 0.99, 1.00, 1.02, 0.98])
wobble = np.array([1.00, 0.99, 1.01, 1.00, 1.01, 0.99, 1.00, 0.99, 1.01, 1.00, 0.99, 1.01])
slowing = np.linspace(1, 3, 12)
one_bad = np.where(np.arange(12) == 4, 4.0, 1.0)
told = {
    "clearly faster": (base, base * wobble / 1.5, "faster"),
    "clearly slower": (base, base * wobble * 1.2, "slower"),
    "the same code": (base, base * wobble, "cannot tell"),
    "10 % faster on a machine that slows threefold": (
        base * slowing,
        base * slowing * wobble / 1.1,
        "faster",
    ),
    "10 % faster, one run of after disturbed": (base, base * wobble * one_bad / 1.1, "faster"),
    "the same code, one run of before disturbed": (base * one_bad, base * wobble, "cannot tell"),
    "twice as fast, but three pairs": (base[:3], base[:3] / 2, "cannot tell"),
}


def judge(reports):
    wrong = [
        f'{name}: you say "{r.value}", wanted "{want}"'
        for (name, (*_, want)), r in zip(told.items(), reports, strict=True)
        if r.value != want
    ]
    if wrong:
        return f"{len(told) - len(wrong)} of {len(told)} right.\n  " + "\n  ".join(wrong)


check.function(
    "verdict",
    [check.case(before, after) for before, after, _ in told.values()],
    verify=judge,
    look='"Noise" and "Drift, and runs in pairs", above',
)

# %% hidden="verdict" points=2
### BEGIN HIDDEN TESTS
import numpy as np

from helpers import check


def drive(verdict, series):
    return [verdict(before.copy(), after.copy()) for before, after in series]


def disturbed(seed, truth, n=30):
    rng = np.random.default_rng([17, seed, round(100 * truth)])
    at = np.arange(2 * n)
    drift = 0.3 * at / n + 0.05 * np.sin(at / 7 + rng.uniform(0, 6))
    swap = rng.permutation(np.arange(n) % 2)
    place = 2 * np.arange(n) + swap, 2 * np.arange(n) + 1 - swap
    return [
        s
        * np.exp(drift[p] + rng.normal(0, 0.02, n))
        * np.where(rng.random(n) < 1 / 12, rng.uniform(1, 4, n), 1.0)
        for s, p in zip((3e-3, 3e-3 / truth), place, strict=True)
    ]


def judge(reports):
    same, faster, slower = (r.value for r in reports[:3])
    if strange := {str(v) for r in reports[:3] for v in r.value} - {"faster", "slower", "cannot tell"}:
        return f"wanted one of three words, got {sorted(strange)[0]!r}"
    alarms = sum(v != "cannot tell" for v in same)
    if alarms > 20:
        return f"{alarms} of 200 series without a difference were called faster or slower (wanted at most 20)"
    for right, opposite, said in (("faster", "slower", faster), ("slower", "faster", slower)):
        if said.count(right) < 160 or said.count(opposite):
            return (
                f"of 200 series that are 5 % {right}, {said.count(right)} were called so (wanted at "
                f"least 160), {said.count('cannot tell')} "
                f'"cannot tell", {said.count(opposite)} "{opposite}" (wanted 0)'
            )
    if set(reports[3].value) != {"cannot tell"}:
        return "five pairs or fewer can tell nothing at 95 %"


check.function(
    "verdict",
    [
        check.case([disturbed(s, 1.0) for s in range(200)]),
        check.case([disturbed(s, 1.05) for s in range(200)]),
        check.case([disturbed(s, 1 / 1.05) for s in range(200)]),
        check.case([[np.full(n, 2.0), np.full(n, 1.0) + 0.01 * np.arange(n)] for n in (1, 2, 5)]),
        check.case([[np.ones(9), np.ones(8)]], raises=ValueError),
    ],
    drive=drive,
    verify=judge,
    look='"Noise", above: what one disturbed run does to a mean, and to a median',
)
### END HIDDEN TESTS

# %% [markdown]
# The helper that this course uses from here on is `compare(before, after)`: warm-up, 30 pairs in random
# order, bootstrap interval, verdict. Live, on your CPU: a sum of squares in two operators against one, and
# one against itself.

# %% experiment tags=["nbval-ignore-output"]
x = torch.randn(200_000)


def two() -> torch.Tensor:
    return (x * x).sum()


def one() -> torch.Tensor:
    return torch.dot(x, x)


live = {
    "two operators → one": compare(two, one, num_threads=1),
    "one → itself": compare(one, one, num_threads=1),
}
plots.speedup(live, title="Time before ÷ time after, on this machine")

# %% [markdown]
# ## 6 · The same seed, the same result
#
# A change that makes a run faster must leave its result as it was, and you can only see that if the result
# repeats. This toy training shuffles with Python, augments with NumPy and starts from torch's random
# weights. Four runs each; how many **different** results?

# %% experiment
prediction = {  # a number from 1 to 4
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
for name in prediction:
    results = set()
    for _ in range(4):
        for part in name.split(" + "):
            seeds.get(part, lambda _: None)(0)
        results.add(toy_training())
    measured[name] = len(results)
compare_predictions(prediction, measured, evidence="live (CPU)", what="different results of 4")

# %% [markdown]
# Every generator that takes part must be seeded, and each you seed is someone else's too: a helper that
# calls `torch.manual_seed(0)` and leaves it there makes its caller draw the same "random" numbers ever
# after. Seeds are not all. A sum has no fixed order:

# %% experiment
big, one_, f32 = np.float32(1e8), np.float32(1), np.float32
orders = {"(1e8 + 1) − 1e8": f32(f32(big + one_) - big), "(1e8 − 1e8) + 1": f32(f32(big - big) + one_)}
table(
    [(expression, float(value)) for expression, value in orders.items()],
    ["float32", "result"],
    evidence="arithmetic",
)

# %% [markdown]
# A parallel sum splits its terms among threads, or lets GPU threads add as they arrive (atomics). So the
# number of threads is part of the result, and some CUDA operators differ from run to run with every seed
# fixed. `torch.use_deterministic_algorithms(True)` picks ordered versions or raises where there is none;
# they may be slower, which is one reason to use them for comparing results and not for timing. It stops
# being true across machines: another GPU, library or version may round differently, however careful you
# are.
#
# **Exercise 0.4 — a run that repeats, and leaves no trace** (★★, 8 min)
#
# <details><summary>Hint 1</summary>Five things to set, and the same five to put back. Which call reads each
# of them?</details>
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
    """Run train() once, repeatably, and return what it returns.

    While it runs: Python's, NumPy's (np.random.*) and torch's global generators are seeded from `seed`
    (another seed, other numbers), deterministic algorithms are on, torch uses one thread.
    Afterwards, also if train raises (the exception passes through): the three generators' states, torch's
    number of threads, the deterministic setting and its warn_only are as they were found.
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
import random

import numpy as np
import torch

from helpers import check


def drive(reproducible, seeds):
    import random

    import numpy as np
    import torch

    found = (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    inside, results, after = [], [], []

    def train():
        inside.append([torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()])
        return [random.random(), float(np.random.rand()), float(torch.rand(1, dtype=torch.float64))]

    try:
        for turn, seed in enumerate(seeds):
            random.seed(turn), np.random.seed(turn), torch.manual_seed(turn)
            torch.set_num_threads(1 + turn % 2)
            results.append(reproducible(train, seed))
            after.append(train())
            inside[-1].append("after")
    finally:
        torch.set_num_threads(found[0])
        torch.use_deterministic_algorithms(found[1], warn_only=found[2])
    return {
        "results": results,
        "after": after,
        "inside": [i for i in inside if len(i) == 2],
        "outside": [i[:2] for i in inside if len(i) == 3],
    }


def judge(reports):
    (seeds,), got = reports[0].args, reports[0].value
    if len(got["inside"]) != len(seeds):
        return f"train ran {len(got['inside'])} times in {len(seeds)} calls; wanted once a call"
    for place, name in enumerate(("Python", "NumPy", "torch")):
        drawn = {
            seed: {r[place] for s, r in zip(seeds, got["results"], strict=True) if s == seed}
            for seed in set(seeds)
        }
        if most := max(len(d) for d in drawn.values()) - 1:
            return f"{name}'s generator: the same seed gave {most + 1} different results"
        if len(set.union(*drawn.values())) < len(drawn):
            return f"{name}'s generator: different seeds gave the same numbers"
    if [True, 1] not in got["inside"] or len({tuple(i) for i in got["inside"]}) > 1:
        odd = next(tuple(i) for i in got["inside"] if i != [True, 1])
        return f"while train runs, (deterministic, threads) was {odd}; wanted (True, 1)"
    changed = []
    for turn, drew in enumerate(got["after"]):
        expected = [random.Random(turn).random(), float(np.random.RandomState(turn).rand())]
        expected.append(
            float(torch.rand(1, dtype=torch.float64, generator=torch.Generator().manual_seed(turn)))
        )
        changed += [
            name
            for name, d, e in zip(
                ("Python's generator", "NumPy's generator", "torch's generator"), drew, expected, strict=True
            )
            if d != e
        ]
        changed += [
            name
            for name, d, e in zip(
                ("deterministic", "threads"), got["outside"][turn], (False, 1 + turn % 2), strict=True
            )
            if d != e
        ]
    if changed:
        return f"after {len(seeds)} calls the caller found changed: " + ", ".join(
            f"{c} ×{changed.count(c)}" for c in dict.fromkeys(changed)
        )


check.function(
    "reproducible",
    [check.case([5, 5, 6, 5])],
    drive=drive,
    verify=judge,
    look='"The same seed, the same result", above',
)

# %% hidden="reproducible" points=3
### BEGIN HIDDEN TESTS
import random

import numpy as np
import torch

from helpers import check


def drive(reproducible, seeds):
    import random

    import numpy as np
    import torch

    found = (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    log, inside, fail = [], [], [False]

    def draw():
        return [
            random.random(),
            random.gauss(0, 1),
            float(np.random.standard_normal()),
            float(torch.randn(1, dtype=torch.float64)),
        ]

    def inner():
        return draw()

    def train():
        inside.append([torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()])
        first = draw()
        nested = reproducible(inner, 99)
        torch.set_num_threads(3)
        if fail[0]:
            raise KeyError("train failed")
        return [first, nested, draw()]

    try:
        for turn, seed in enumerate(seeds):
            fail[0] = turn % 2 == 1
            random.seed(turn), np.random.seed(turn), torch.manual_seed(turn)
            [
                random.gauss(0, 1),
                np.random.standard_normal(),
            ]  # the generators keep a second normal number in store
            torch.set_num_threads(1 + turn % 2)
            torch.use_deterministic_algorithms(turn > 1, warn_only=turn % 2 == 1)
            try:
                result = reproducible(train, seed)
            except KeyError:
                result = "raised"
            settings = [
                torch.get_num_threads(),
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ]
            log.append({"result": result, "after": draw(), "settings": settings})
    finally:
        torch.set_num_threads(found[0])
        torch.use_deterministic_algorithms(found[1], warn_only=found[2])
    return {"log": log, "inside": inside}


def judge(reports):
    (seeds,), got = reports[0].args, reports[0].value
    results = [entry["result"] for entry in got["log"]]
    if [r == "raised" for r in results] != [turn % 2 == 1 for turn in range(len(seeds))]:
        return "an exception of train's must pass through, and only that"
    kept = [(seed, r) for seed, r in zip(seeds, results, strict=True) if r != "raised"]
    for seed in {s for s, _ in kept}:
        if len({str(r) for s, r in kept if s == seed}) > 1:
            return "the same seed gave different results"
    if len({str(r[0]) for _, r in kept}) < len({s for s, _ in kept}):
        return "different seeds gave the same numbers"
    if len({str(r[1]) for _, r in kept}) > 1:
        return "reproducible inside a reproducible run, with the same seed each time, gave different results"
    if any(r[0][k] in (r[1][k], r[2][k]) for _, r in kept for k in range(4)):
        return "a reproducible call inside train turned back the generators of the run around it"
    if any(i != [True, 1] for i in got["inside"]):
        odd = next(tuple(i) for i in got["inside"] if i != [True, 1])
        return f"while train runs, (deterministic, threads) was {odd}; wanted (True, 1)"
    changed = []
    for turn, entry in enumerate(got["log"]):
        python, numpy_, generator = (
            random.Random(turn),
            np.random.RandomState(turn),
            torch.Generator().manual_seed(turn),
        )
        python.gauss(0, 1), numpy_.standard_normal()
        expected = [
            python.random(),
            python.gauss(0, 1),
            float(numpy_.standard_normal()),
            float(torch.randn(1, dtype=torch.float64, generator=generator)),
        ]
        names = ("Python's generator", "Python's generator", "NumPy's generator", "torch's generator")
        changed += [n for n, d, e in zip(names, entry["after"], expected, strict=True) if d != e]
        changed += [
            n
            for n, d, e in zip(
                ("threads", "deterministic", "warn_only"),
                entry["settings"],
                (1 + turn % 2, turn > 1, turn % 2 == 1),
                strict=True,
            )
            if d != e
        ]
    if changed:
        return (
            f"after {len(seeds)} calls, {len(seeds) // 2} of which raised, the caller found changed: "
            + ", ".join(f"{c} ×{changed.count(c)}" for c in dict.fromkeys(changed))
        )


check.function(
    "reproducible",
    [check.case([3, 3, 3, 4, 8])],
    drive=drive,
    verify=judge,
    look='"The same seed, the same result": put back also when train raises',
)
### END HIDDEN TESTS

# %% [markdown]
# ## 7 · The golden loop: measure → change → measure
#
# Now all of it, on a training step: four layers, AdamW written as a loop, a `loss.item()` every step. Three
# changes that you will find recommended: drop the `.item()`; use TF32 for the products; update all
# parameters at once (`foreach=True`). Which one helps most on a **small** model (width 512, batch 256), and
# which on a **large** one (width 2048, batch 2048)?

# %% experiment
prediction = {"small": ..., "large": ...}  # "no item", "TF32" or "foreach"


# %% experiment
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


def step_time(size: tuple[int, int], *, precision: str = "highest", **options: bool) -> float:
    """Seconds a step on the simulated H100, warmed up, one wait at the end."""
    found = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        gpu = simulate("H100")
        with gpu:
            return bench(training(gpu, *size, **options), gpu=gpu, number=4, repeats=1).median_s
    finally:
        torch.set_float32_matmul_precision(found)


sizes = {"small": (512, 256), "large": (2048, 2048)}
changes = {"no item": {"item": False}, "TF32": {"precision": "high"}, "foreach": {"foreach": True}}
base_s = {size: step_time(shape) for size, shape in sizes.items()}
gain = {
    size: {name: base_s[size] / step_time(shape, **change) for name, change in changes.items()}
    for size, shape in sizes.items()
}
table(
    [("as it was", *(format_seconds(base_s[size]) for size in sizes))]
    + [(name, *(f"{gain[size][name]:.2f}×" for size in sizes)) for name in changes],
    ["change", *sizes],
    evidence="simulated (H100)",
    caption="time before ÷ time after, one change at a time",
)

# %% experiment
best = {size: max(gain[size], key=gain[size].get) for size in sizes}
compare_predictions(prediction, best, evidence="simulated (H100)", what="helps most")

# %% [markdown]
# The same three changes, in opposite order of merit. The small step is bound by launches: faster arithmetic
# speeds up what nobody waits for. The large one is bound by arithmetic. Neither the list nor experience
# tells you which you have; one measurement does.
#
# And after each change, measure again: what the others are worth depends on it. The small model, always
# taking the best of what is left:

# %% experiment
ladder, kept = [], {}
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
table(
    ladder,
    ["small model", "step", "this rung", "what the others would have given"],
    evidence="simulated (H100)",
)

# %% [markdown]
# `no item` was worth little at first and more once `foreach` was in: the same microseconds, out of a
# shorter step. TF32 stays worth nothing. **Stop when the rungs get short.**
#
# **One change a rung**: two together give one number, and a loss can hide behind a gain. The next cell
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


together = {
    name: forgetful_step_time(False, False) / forgetful_step_time(foreach, extra)
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
prediction = {"3": ..., "50": ..., "500": ...}  # "under 2 %", "under 50 %" or "more"


# %% experiment
def cold_run(steps: int, skip: int = 0) -> float:
    """Seconds that `steps` steps take on a fresh GPU, after `skip` steps that are not counted."""
    gpu = simulate("H100")
    with gpu:
        x, w = torch.empty(2048, 1024, device=gpu.device), torch.empty(1024, 1024, device=gpu.device)
        begin = gpu.clock()
        for i in range(skip + steps):
            if i == skip > 0:
                gpu.synchronize()
                begin = gpu.clock()
            y = x
            for _ in range(4):
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
        (k, format_seconds(guess), f"{errors[k][0]:+.1%}", format_seconds(better), f"{errors[k][1]:+.1%}")
    )
table(
    rows,
    ["k", "k steps × 1000/k", "error", "first step + 999 × a later one", "its error"],
    evidence="simulated (H100)",
    caption=f"the full run takes {format_seconds(full)}",
)

# %% experiment
compare_predictions(prediction, small, evidence="simulated (H100)", what="error")

# %% [markdown]
# A small run contains all of the start-up and little of the rest. Take the start apart from the steps, and
# a handful of steps predict a thousand. It stops being true where later steps differ from early ones: a
# cache that fills up, data that gets longer, a check-point every thousand steps, a GPU that throttles after
# a minute. Then the small run must contain one of each.
#
# **Exercise 0.5 — predict the long run** (★★, 6 min)
#
# These steps have a CPU part too (decoding, Python), which overlaps with the GPU's part as long as nobody
# waits.
#
# <details><summary>Hint 1</summary>Two unknowns: what the start costs once, and what a step costs. How many
# measurements do you need?</details>
# <details><summary>Hint 2</summary>The first step has the set-up in it. Time it by itself, with a wait at
# its end. What would a wait after every later step do to the overlap?</details>
# <details><summary>The idea</summary><code>first</code> = clock around step 1 and a synchronize;
# <code>each</code> = clock around k further steps and one synchronize, ÷ k; the run takes <code>first +
# (steps − 1) · each</code>.</details>


# %% exercise="predict_run"
def predict_run(gpu: Any, step: Callable[[], object], steps: int) -> float:
    """Seconds on gpu.clock() that this program takes from a cold start: `steps` times step(), synchronize().

    gpu: as in exercise 0.1; it has not been used yet, so that the first step pays the set-up, here and in the
        program. step: one training step, work of the CPU and of the GPU; all but the first take equally long.
    steps: at least 400.

    Right within 3 % of the full run. step() may be called at most steps // 10 times.
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
from helpers import check


def drive(predict_run, size, cpu_s, log, steps):
    import torch

    from helpers import simulate

    gpu, calls = simulate("H100"), []

    class Card:
        device, evidence, Stream, Event, stream = gpu.device, gpu.evidence, gpu.Stream, gpu.Event, gpu.stream
        clock, clock_ns = gpu.clock, gpu.clock_ns
        synchronize, current_stream = gpu.synchronize, gpu.current_stream

    with gpu:
        x = torch.empty(size, size, device="meta")

        def step():
            calls.append(1)
            gpu.host_work(cpu_s)
            y = x @ x
            if log:
                y[0, 0].item()

        seconds = float(predict_run(Card(), step, steps))
    return [seconds, len(calls)]


def judge(reports):
    import torch

    from helpers import simulate

    for report in reports:
        size, cpu_s, log, steps = report.args
        got, calls = report.value
        if calls > steps // 10:
            return f"ran {calls} of {steps} steps; wanted at most {steps // 10}"
        gpu, starts = simulate("H100"), []
        with gpu:
            x = torch.empty(size, size, device="meta")
            for _ in range(steps):
                starts.append(gpu.clock())
                gpu.host_work(cpu_s)
                y = x @ x
                if log:
                    y[0, 0].item()
            gpu.synchronize()
            full = gpu.clock()
        if not abs(got / full - 1) <= 0.03:
            return (
                f"{steps} steps, each {cpu_s * 1e6:.0f} µs on the CPU and a product of {size} × {size}: you predict "
                f"{got * 1e3:.1f} ms, the run takes {full * 1e3:.1f} ms ({got / full - 1:+.1%}; wanted within 3 %)."
                f"\n  its set-up, {starts[1] * 1e3 - cpu_s * 1e3:.1f} ms of it, comes once; the rest is "
                f"{(full - starts[1]) / (steps - 1) * 1e6:.0f} µs a step"
            )


check.function(
    "predict_run",
    [check.case(2048, 150e-6, False, 2000), check.case(1024, 400e-6, False, 1500)],
    drive=drive,
    verify=judge,
    look='"Start small", above',
)

# %% hidden="predict_run" points=3
### BEGIN HIDDEN TESTS
from helpers import check


def drive(predict_run, size, cpu_s, log, steps):
    import torch

    from helpers import simulate

    gpu, calls = simulate("A100"), []

    class Card:
        device, evidence, Stream, Event, stream = gpu.device, gpu.evidence, gpu.Stream, gpu.Event, gpu.stream
        clock, clock_ns = gpu.clock, gpu.clock_ns
        synchronize, current_stream = gpu.synchronize, gpu.current_stream

    with gpu:
        x = torch.empty(size, size, device="meta")

        def step():
            calls.append(1)
            gpu.host_work(cpu_s)
            y = x @ x
            if log:
                y[0, 0].item()

        seconds = float(predict_run(Card(), step, steps))
    return [seconds, len(calls)]


def judge(reports):
    import torch

    from helpers import simulate

    for report in reports:
        size, cpu_s, log, steps = report.args
        got, calls = report.value
        if calls > steps // 10:
            return f"ran {calls} of {steps} steps; wanted at most {steps // 10}"
        gpu, starts = simulate("A100"), []
        with gpu:
            x = torch.empty(size, size, device="meta")
            for _ in range(steps):
                starts.append(gpu.clock())
                gpu.host_work(cpu_s)
                y = x @ x
                if log:
                    y[0, 0].item()
            gpu.synchronize()
            full = gpu.clock()
        if not abs(got / full - 1) <= 0.03:
            return (
                f"{steps} steps, each {cpu_s * 1e6:.0f} µs on the CPU and a product of {size} × {size}: you predict "
                f"{got * 1e3:.1f} ms, the run takes {full * 1e3:.1f} ms ({got / full - 1:+.1%}; wanted within 3 %)."
            )


check.function(
    "predict_run",
    [
        check.case(2048, 400e-6, False, 800),
        check.case(1024, 700e-6, False, 1200),
        check.case(2048, 300e-6, True, 400),
    ],
    drive=drive,
    verify=judge,
    look='"Start small": the start apart from the steps',
)
### END HIDDEN TESTS

# %% [markdown]
# ## On the real GPU
#
# Section 1 again, with the same names on a real GPU: `RealGPU` hands `torch.cuda`'s functions through.
# Where there is none, the simulated run follows. What to look for on a real one: the first row far below
# the other two, and by how much events and synchronized clock differ.

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
        [(way, about + format_seconds(s)) for way, s in ways.items()],
        ["way", f"one {n} × {n} product"],
        evidence=gpu.evidence,
    )


found = lesson.on_gpu(lambda device: three_ways(RealGPU()), recording="00_three_ways")
found if found is not None else three_ways(simulate("H100"))

# %% [markdown]
# ## Sources on trial
#
# One claim is pure arithmetic. A table in *torch.compile in practice* gives four improvements in per cent,
# and its title promises 300 %. Work out three usual meanings of "improved by x %" for each row, and see
# which one the author used:

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
# Say "takes 0.25 of the time" or "4.0× as fast", never "400 % faster". One more thing follows from the
# table: the step got faster by one factor, the training by another. Both can be right only if part of the
# 72 hours is not steps; solve `s + o = 72`, `s / 4 + o = 24`:

# %% experiment
steps_h = (72 - 24) / (1 - 200 / 800)
other_h = 72 - steps_h
table(
    [
        ("in steps", f"{steps_h:.0f} h", f"{steps_h * 200 / 800:.0f} h"),
        ("elsewhere", f"{other_h:.0f} h", f"{other_h:.0f} h"),
    ],
    ["part", "before", "after"],
    evidence="arithmetic",
    caption="the only split that agrees with both rows; the article does not mention it",
)

# %% experiment
epochs = 12 / 3.2
kinds = {meaning for found in meanings.values() for meaning in found[:1]}
lesson.verdicts(
    [
        {
            "id": "00-measure-optimise-measure",
            "claim": "Measure first, optimise, then measure again",
            "source": "guide",
            "measured": f"of three recommended changes, the best was {best['small']} on the small model "
            f"({gain['small'][best['small']]:.2f}×) and {best['large']} on the "
            f"large one ({gain['large'][best['large']]:.2f}×); swapped, they give "
            f"{gain['small'][best['large']]:.2f}× and {gain['large'][best['small']]:.2f}×",
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
            f"{event_error[256][0]:.2f} for one small one on an idle GPU, "
            f"{event_error[256][1]:.2f} for fifty small ones",
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
            "measured": f"its own 72 → 24 h is {72 / 24:.1f}× as fast: {100 * (72 / 24 - 1):.0f} % more "
            f"speed, or {100 * (1 - 24 / 72):.0f} % less time; its 800 → 200 ms is "
            f"{800 / 200:.1f}×, {100 * (800 / 200 - 1):.0f} % more",
            "verdict": "holds when the step is meant; for the training it is the ratio, read as a gain",
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
            "measured": f"a ratio of {epochs:.2f}×; number of runs, spread, data, sequence length and number "
            "of GPUs are not given. To test it: the same data and loss curve, runs in pairs, one rung at a time",
            "verdict": "untested here: lesson 17 climbs that ladder",
            "experiment": "5 · Drift, and runs in pairs",
        },
    ],
    evidence="simulated (H100)",
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
# | Median and interquartile range | you pay for the slowest (99th percentile, stragglers: lesson 14) |
# | Pairs, in random order, ratio and interval | one run changes the next: pair whole processes |
# | "Cannot tell" is a result | you must decide: run more pairs; four times as many halve the width |
# | Seed everything, put it back | other hardware or versions: compare curves with a tolerance, not bits |
# | Start small, one change a rung | the effect appears only at size (memory limits, communication) |
#
# **For your own code**: what is the question, in one number? · which machine, versions, clocks? · warmed
# up? · synchronized? · how many runs, which spread? · in turns? · is the result still the same? · what is
# the next bottleneck?
#
# **To read on**: PyTorch's tutorial on `torch.utils.benchmark` and its notes on reproducibility and CUDA
# semantics; the `nvidia-smi` manual on clocks; A. Georges, D. Buytaert, L. Eeckhout, *Statistically
# rigorous Java performance evaluation* (2007), which holds for Python too; B. Efron and R. Tibshirani, *An
# Introduction to the Bootstrap* (1993).
