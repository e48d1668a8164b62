# %% [markdown]
# # 12 · CPU threads and layout
#
# ## And on the CPU?
#
# A CPU has no queue and no launches. An operator is a loop, and when it returns, its work is done. A program is slow for other
# reasons: too few threads take part, too many threads share a core, or the numbers lie in an order that a kernel has to change
# first. None of this shows in the code; all can be counted.
#
# **Time** 60 min, 22 of them for two exercises; *Further*: 69 min. **Before this** lessons 01 (strides) and 04 (workers); for a
# part of *Further*, lesson 11 (Inductor).
#
# **Afterwards you can**
# - say which operators use threads, from which size on, and who else does;
# - bind a `DataLoader`'s workers to CPUs so that the binding holds;
# - choose the number of threads for a model, and give convolutions the layout that they need.

# %% setup
import math
import os
from collections.abc import Callable

import torch
import torch.nn.functional as F

from helpers import count, lesson, recordings
from helpers.lessons.cpu_threads_and_layout import experiments

torch.set_num_threads(1)  # one thread here, unless a cell says otherwise: most teams live in children
lesson.start(
    "12_cpu_threads_and_layout",
    evidence=["live (CPU)", "simulated (H100)", "recorded (H100)", "arithmetic", "published"],
)

# %% [markdown]
# ## 1 · Who uses the second core?
#
# PyTorch can split one operator over several **intra-op** threads.
# [`torch.get_num_threads()`](https://docs.pytorch.org/docs/stable/generated/torch.get_num_threads.html) says how many. OpenMP, the
# library behind them, starts them as a **team** when the first operator needs them. So a team can be counted. Each line below runs
# in a fresh process: set 8 threads (the machine need not have 8 cores), run one operator, count the threads. **Does one thread do
# it alone, or is the team of 8 started?** (Systems other than Linux show "?".)

# %% experiment
you = lesson.predict(
    {
        "x + 1, 32,768 elements": ...,
        "x + 1, 32,769 elements": ...,
        "x.softmax(1), 1 row of 100,000": ...,
        "x.softmax(1), 2 rows of 4": ...,
        "torch.randn(1,000,000)": ...,
    },
    choices=[1, 8],
)

# %% experiment
runs = [
    ("x = torch.empty(32768)", "x + 1"),
    ("x = torch.empty(32769)", "x + 1"),
    ("x = torch.empty(1, 100000)", "x.softmax(1)"),
    ("x = torch.empty(2, 4)", "x.softmax(1)"),
    ("", "torch.randn(1000000)"),
]
teams = experiments.teams(dict(zip(you, runs, strict=True)))
you.against(teams, evidence="live (CPU)", what="threads")

# %% [markdown]
# There are three kinds of operators.
#
# - Most are split by **elements**: arithmetic from 32,769 on. 32,768 is `GRAIN_SIZE` in PyTorch's
#   [`TensorIterator.h`](https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/TensorIterator.h#L72-L76): less work is not
#   worth a thread of its own. (`floor` and `round` from 2,049 on; `exp`, `tanh` and `gelu`, by the libraries MKL and
#   oneDNN, from 100 or fewer.)
# - Some are split by **rows**. A single long row stays with one thread. `softmax` has no lower limit: 2 rows of 4 start the team.
# - Some are not split, because each number depends on the one before: `randn`, for example.
#
# A team need not have work for all: the operator is split into
# **chunks**, one for a thread. How many,
# [`ParallelOpenMP.h`](https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/ParallelOpenMP.h#L16-L48) says:

# %% experiment
GRAIN = 32_768


def chunks(size, threads):
    """The elements of each chunk."""
    if threads == 1 or size <= GRAIN:
        return [size]
    most = math.ceil(size / GRAIN)
    each = math.ceil(size / min(threads, most))
    return [min(each, size - at) for at in range(0, size, each)]


experiments.shared_out({size: chunks(size, 8) for size in (32_768, 32_769, 100_000, 1_000_000)})

# %% [markdown]
# Of the team of 8, 4 threads at most work on 100,000 elements. The others are woken for nothing. **More threads do not make
# element-wise operators on small tensors faster.**

# %% [markdown]
# ## 2 · Too many threads
#
# A worker of a `DataLoader` uses torch and NumPy, and it may start a program that uses torch too. Each could use 1 thread, or as
# many as the machine has CPUs ("all"; some libraries count two CPUs of one core as one). **How many threads may each use?**
#
# The last question is about **binding**: `os.sched_setaffinity(0, {3})` asks that only CPU 3 is used from then on. A process runs
# an operator with 4 threads, and makes such a call afterwards. **How many of its threads does the call bind?**

# %% experiment
you = lesson.predict(
    {
        "torch, in a worker": ...,
        "NumPy, in a worker": ...,
        "torch, in a program that the worker starts": ...,
        "the same program, started with OMP_NUM_THREADS=1": ...,
        "NumPy, in a program started with OMP_NUM_THREADS=1": ...,
        "torch, in a program started by a worker that is bound to one CPU": ...,
        "threads bound by a call after the first operator": ...,
    },
    choices=["1", "all"],
)

# %% experiment
in_worker, late = experiments.in_a_worker(), experiments.bound_late()
answers = experiments.one_or_all(*in_worker, late[0])
you.against(dict(zip(you, answers, strict=True)), evidence="live (CPU)", what="measured").show()
experiments.say_counts(late)

# %% [markdown]
# - **torch sets itself to 1 thread in a worker**
#   ([source](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/utils/data/_utils/worker.py#L269-L273)). **NumPy and other
#   programs do not.** W workers on C CPUs can mean W · C threads.
# - **`OMP_NUM_THREADS=1` reaches torch and NumPy if it is set before Python starts.** Set inside a worker, it reaches only programs
#   that start later. NumPy is usually loaded by then and keeps "all", also in a bound worker, where its threads crowd on few CPUs.
#   [`threadpoolctl`](https://github.com/joblib/threadpoolctl) changes a loaded NumPy.
# - **Other kinds of threads have settings of their own**: Hugging Face's tokenizers
#   [`RAYON_NUM_THREADS`](https://docs.rs/rayon/latest/rayon/struct.ThreadPoolBuilder.html#method.num_threads), `ffmpeg` `-threads`.
# - **A torch program that starts later counts the CPUs that it may use.** So binding a worker also limits torch there.
# - **[`os.sched_setaffinity(0, …)`](https://docs.python.org/3/library/os.html#os.sched_setaffinity) binds one thread, the caller.**
#   A new thread inherits the CPUs of the thread that starts it. A thread that already runs keeps its own. So bind before
#   `set_num_threads` and the first operator (NumPy's threads start when it is loaded), or bind every thread in `/proc/self/task`.
#   (The line counts 4 + 3 = 7: the team, and a second pool that `torch.set_num_threads(4)`
#   [starts](https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/ParallelOpenMP.cpp).)
# - **Every Python thread that runs a split operator starts a team of its own.** The last line counts two Python threads, and 3 more
#   in the team of each. A server with 16 request threads and 16 intra-op threads has 256.

# %% [markdown]
# **Exercise 12.1 — bind each worker** (★★, 12 min)
#
# Write a function that makes a `worker_init_fn` from a plan: `plan[i]` lists the CPUs of worker i. `DataLoader(…,
# worker_init_fn=bound(plan))` calls it in each worker, with its number, before it loads anything.
#
# On Linux the tests fork the workers. `spawn` (macOS, Windows) and `forkserver` (Linux from Python 3.14 on) pickle the function,
# and fail if it is a nested one. There put `bind(plan, worker)` into a .py file, and return `functools.partial(bind, plan)`.
#
# <details><summary>Hint 1</summary>To be set: which CPUs, for which threads, how many threads torch uses, and what programs read that
# the worker starts. Where does Linux list a process's threads?</details>
#
# <details><summary>Hint 2</summary><code>os.listdir("/proc/self/task")</code> has all threads, also those that Python does not know.
# A container may forbid some CPUs of the plan: <code>os.sched_getaffinity(0)</code>.</details>
#
# <details><summary>The idea</summary>Keep the CPUs of the plan's entry that are allowed (all that are allowed, if none is left).
# Call <code>os.sched_setaffinity(int(thread), cpus)</code> for each thread, where the system has that function. Then
# <code>torch.set_num_threads(len(cpus))</code> and <code>os.environ["OMP_NUM_THREADS"]</code>.</details>


# %% exercise="bound"
def bound(plan: list[list[int]]) -> Callable[[int], None]:
    """A worker_init_fn: called with the number of a worker, inside its process, it binds the worker.

    plan[i]: the CPUs of worker i, each once, in any order. At least one entry; no entry is empty. More workers than
        entries: begin again with the first.
    The worker's CPUs are those of its entry that it is allowed to use at that moment; if none, all that it is allowed. Afterwards
    - every thread of the worker, there already (whoever started it; one may end before you bind it: ProcessLookupError) or
      started later, runs on these CPUs only, and so does every program that it starts;
    - torch uses as many threads as there are CPUs, and OMP_NUM_THREADS tells programs the same number.
    Bind by os.sched_setaffinity, looked up when the worker begins (not by taskset: in some tests os plays another machine).
    Where os has no sched_setaffinity and sched_getaffinity (macOS, Windows), only the numbers are set, those of the whole entry;
    there the tests look at these only.
    The process that calls bound(plan) itself stays as it is.
    """
    ### BEGIN SOLUTION

    def init(worker: int) -> None:
        cpus = plan[worker % len(plan)]
        if hasattr(os, "sched_setaffinity"):
            allowed = os.sched_getaffinity(0)
            cpus = [c for c in cpus if c in allowed] or sorted(allowed)
            for thread in os.listdir("/proc/self/task"):
                try:
                    os.sched_setaffinity(int(thread), cpus)
                except ProcessLookupError:  # it has just ended
                    pass
        torch.set_num_threads(len(cpus))
        os.environ["OMP_NUM_THREADS"] = str(len(cpus))

    return init
    ### END SOLUTION


# %% test="bound" points=1
from helpers.lessons.cpu_threads_and_layout.exercises import Workers, check_bound

for workers, hint in (
    (Workers([[0], [1], [0, 1]], 4, "here"), "This machine's CPUs; one worker more than entries."),
    (Workers([[1, 999], [998]], 2, "here"), "The machine has no CPU 998 and 999."),
    (Workers([[0, 1], [9]], 2, [1, 2, 3]), "os plays a container that allows CPUs 1, 2 and 3."),
    (Workers([[0, 1], [2]], 2, None), "A system that cannot bind."),
):
    check_bound(workers, note=hint)


# %% hidden="bound" points=4
### BEGIN HIDDEN TESTS
from helpers.lessons.cpu_threads_and_layout.exercises import Workers, check_bound

check_bound(
    Workers([list(range(24)), list(range(24, 72)), [95]], 4, list(range(96))),
    Workers([[3, 70], [1], [9, 2]], 3, [2, 3, 70]),
    Workers([[0], [1], [2, 3]], 5, list(range(4))),
    Workers([[6, 7], [0]], 2, [7]),
    Workers([[2, 0], [1]], 2, list(range(4)), one_ends=True),
    Workers([[1], [0, 998]], 3, "here"),
    Workers([[4, 5, 6], [0]], 3, None),
)
### END HIDDEN TESTS


# %% [markdown]
# ## 3 · What can more threads bring?
#
# **Amdahl's law**: if the share s of a step's time is serial, n threads make the step at most 1 ÷ (s + (1 − s) ÷ n) times as fast,
# and never more than 1 ÷ s. Two more things limit a CPU: the number of chunks, and the time to wake a team, which grows with it.
#
# Here is a model of a step: 10 operators on tensors of one size, and one `randn` of that size. An element takes 1 ns, or what the
# line says. **On 64 cores, which number of threads is best?**

# %% experiment
you = lesson.predict(
    {
        "20,000 elements": ...,
        "100,000 elements": ...,
        "1,000,000 elements": ...,
        "1,000,000 elements of 0.1 ns": ...,
    },
    choices=[1, 4, 14, 31, 64],
)

# %% experiment
WAKE, EACH = 2_000, 500  # ns to wake a team, and more for each of its threads


def step_ns(threads, size, element_ns):
    largest = chunks(size, threads)[0]
    team = WAKE + EACH * threads if largest < size else 0
    return 10 * (team + element_ns * largest) + element_ns * size  # randn is not split


steps = dict(zip(you, [(20_000, 1), (100_000, 1), (1_000_000, 1), (1_000_000, 0.1)], strict=True))
curves = {
    name: {t: step_ns(1, *step) / step_ns(t, *step) for t in range(1, 65)} for name, step in steps.items()
}
best = {name: max(curve, key=curve.get) for name, curve in curves.items()}
picture = experiments.speedups(curves, WAKE, EACH)
you.against(best, picture, evidence="arithmetic", what="best number of threads")

# %% [markdown]
# The smallest step has nothing to split. The next two have ⌈100,000 ÷ 32,768⌉ = 4 and ⌈1,000,000 ÷ 32,768⌉ = 31 chunks an operator.
# More threads than chunks are never best. Fewer are where an element is cheap: a further thread then costs more than it takes over.
# **So a machine alone has no best number of threads: it depends on the model and its batch too.**
#
# One limit is not in the model: **all cores share the memory's bandwidth**. Element-wise operators on tensors larger than the caches
# often stop gaining after a few threads. (The model's three costs are assumed. To find EACH, measure `x + 1` on
# 32,769 elements by lesson 00's `bench`, with 2 and 8 threads on 8 free cores: the difference is 6 · EACH.)

# %% [markdown]
# **Exercise 12.2 — the best number of threads** (★★, 10 min)
#
# You have measured a step's parts on one thread. Compute how many threads are best, what they bring, and how to divide a machine
# that serves many requests.
#
# <details><summary>Hint 1</summary>First write the time of one part with n threads. Two cases are special: no split at all, and fewer
# chunks than threads.</details>
#
# <details><summary>Hint 2</summary>The bound has no cost of a team, and as many threads as there are chunks: ⌈size ÷ 32,768⌉.</details>
#
# <details><summary>The idea</summary><code>best = min(range(1, cores + 1), key=total)</code>. To divide the machine: each number of
# threads t allows p = min(copies, cores // t) processes, which finish p ÷ total(t) steps a ns: take the largest.</details>


# %% exercise="best_threads"
def best_threads(
    parts: list[tuple[int, float, bool]], cores: int, copies: int, wake_ns: float, each_ns: float
) -> dict:
    """The model of section 3, for one step.

    parts: (elements, ns on one thread, whether its operator is ever split), one a part, at least one. cores: 1 or more.
        copies: as many processes fit into memory, 1 or more. wake_ns, each_ns: 0 or more.
    With n threads, a part that is not split, or has at most 32,768 elements, or runs with n = 1, takes its time on one
    thread. Any other has k = min(n, ⌈elements ÷ 32,768⌉) chunks, the largest of ⌈elements ÷ k⌉ elements, and takes
        wake_ns + each_ns · n + time on one thread · largest chunk ÷ elements.

    Returns {"threads": the number from 1 to cores with the least time of a step (the smallest of equals),
    "speedup": one thread's time ÷ that time,
    "bound": the speed-up for teams that cost nothing and threads without end (with the chunks above: so it is never above
        section 3's dashed line),
    "each": the n for which p(n) = min(copies, ⌊cores ÷ n⌋) processes of n threads finish most steps a second together (of
        equals, the smallest n; processes do not disturb one another),
    "processes": p(n) for that n}.
    """
    ### BEGIN SOLUTION

    def total(n: float, wake: float, each: float) -> float:
        time = 0.0
        for size, ns, splits in parts:
            if not splits or size <= 32_768 or n == 1:
                time += ns
            else:
                k = min(n, math.ceil(size / 32_768))
                time += wake + each * n + ns * math.ceil(size / k) / size
        return time

    times = {n: total(n, wake_ns, each_ns) for n in range(1, cores + 1)}
    best = min(times, key=times.__getitem__)
    most = max((max(1, math.ceil(size / 32_768)) for size, *_ in parts), default=1)
    split = max(times, key=lambda n: min(copies, cores // n) / times[n])
    return {
        "threads": best,
        "speedup": times[1] / times[best],
        "bound": times[1] / total(most, 0.0, 0.0),
        "processes": min(copies, cores // split),
        "each": split,
    }
    ### END SOLUTION


# %% test="best_threads" points=1
from helpers import check
from helpers.lessons.cpu_threads_and_layout.exercises import answer, check_best_threads

case = check.case([(20_000, 20_000.0, True)] * 5, 8, 16, 2_000.0, 500.0)
check_best_threads(case, expect=[answer(1, 1.0, 1.0, 1, 8)], note="Nothing is large enough to be split.")
case = check.case([(40_000, 400_000.0, True), (9, 100_000.0, False)], 8, 3, 2_000.0, 500.0)
hint = "Two chunks, a serial fifth, and memory for three processes."
check_best_threads(case, expect=[answer(2, 500 / 303, 500 / 300, 2, 3)], note=hint)
case = check.case([(6 * 32_768, 600_000.0, True)], 4, 2, 10_000.0, 60_000.0)
hint = "Teams are dear: the fourth thread costs more than it takes over."
check_best_threads(case, expect=[answer(3, 600 / 390, 6.0, 2, 2)], note=hint)
case = check.case([(100_001, 100_001.0, True), (10**6, 1e6, True), (9, 50_000.0, False)], 8, 3, 2e3, 500.0)
want = answer(8, 1_150_001 / (25_001 + 125_000 + 62_000), 1_150_001 / (25_001 + 82_259), 4, 2)
hint = "Chunks are whole elements, and all 8 threads of the team are woken, also for 4 chunks."
check_best_threads(case, expect=[want], note=hint)


# %% hidden="best_threads" points=3
### BEGIN HIDDEN TESTS
from fractions import Fraction

from helpers import check
from helpers.lessons.cpu_threads_and_layout.exercises import answer, check_best_threads, random_steps


def exact(parts, cores, copies, wake_ns, each_ns):
    def total(n, wake, each):
        time = Fraction(0)
        for size, ns, splits in parts:
            grains = -(-size // 32_768)
            k = grains if n is None else min(n, grains)
            if not splits or k == 1:
                time += Fraction(ns)
            else:
                time += Fraction(wake) + Fraction(each) * (n or 0) + Fraction(ns) * -(-size // k) / size
        return time

    times = {n: total(n, wake_ns, each_ns) for n in range(1, cores + 1)}
    best = min(times, key=lambda n: times[n])
    split = max(times, key=lambda n: min(copies, cores // n) / times[n])
    speedups = [float(times[1] / least) for least in (times[best], total(None, 0, 0))]
    return answer(best, *speedups, split, min(copies, cores // split))


# teams for nothing: more threads change nothing
ties = [(100_000, 1e5, True), (65_536, 5e4, True), (32_768, 2e4, True)]
free = [check.case(ties, 8, copies, 0.0, 0.0) for copies in (1, 4)]
free += [check.case([(9, 5.0, False)], 4, 3, 0.0, 0.0)]
check_best_threads(*random_steps(60), *free, expect=exact)
### END HIDDEN TESTS


# %% [markdown]
# ## 4 · Layout
#
# For each output a convolution usually reads all channels of a few neighbouring pixels.
# [`channels_last`](https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html) (lesson 01) keeps the channels of a
# pixel side by side, so one instruction takes 8 or 16 of them at once. On the CPU most convolutions are done by the library
# **oneDNN**. Its kernels read the weights in **blocks** of channels, and x in such blocks or in `channels_last` (an x of few
# channels also contiguous).
#
# oneDNN prints each of its steps if `ONEDNN_VERBOSE=1` is set before Python starts. A step called `reorder` computes
# nothing: it writes data in another layout. **How many reorders does one convolution of 2 × 16 × 20 × 20 with 3 × 3 filters print?**
# (Copies that PyTorch makes do not count.)

# %% experiment
you = lesson.predict(
    {
        "x and weights contiguous": ...,
        "x channels_last, weights contiguous": ...,
        "x and weights channels_last": ...,
    },
    choices=[0, 1, 2, 3],
)

# %% experiment
table = experiments.layouts_table(list(you))
you.against(experiments.reorders(list(you)), table, evidence="live (CPU)", what="reorders").show()
experiments.time_layouts()

# %% [markdown]
# A contiguous x of many channels is written into blocks, and the result is written back, **in each convolution**: two passes over
# memory that no profiler of operators shows. In `channels_last` neither happens. If only x is in `channels_last`, PyTorch first
# copies the weights into that layout, at every call. So convert both: `model.to(memory_format=torch.channels_last)`, and x the same
# way. One reorder of the weights is left. (On another processor, or without oneDNN, the lines differ.)
#
# Below the table, two larger convolutions are timed on one thread; the fastest run counts. Where each filter reads one channel only
# ("depthwise"), the kernel computes little, and two passes over memory weigh much. Over all 64 channels it computes 64 times as
# much, and they weigh little.
#
# Keep x in that layout from then on. Some operators lose it silently, such as `softmax(1)`, or a sum of a contiguous
# tensor and x. *Further* counts which.

# %% [markdown]
# ## The running example
#
# The script on your CPU, small and in float32, as lesson 08 left it. (`on_cpu` gives its next step.) Beside it
# runs one product of matrices.

# %% experiment
from helpers import running_example

step, a = running_example.on_cpu(running_example.after("08")), torch.randn(512, 512)
made, large = experiments.shareable(step, 32_768)
lesson.keep(made=made, large=large)
for name, work, runs in (("a step's operators", step, 20), ("a product of 512 × 512", lambda: a @ a, 200)):
    times = [experiments.fastest(work, threads, runs) for threads in (1, 2)]
    print(f"{name}: 1 thread {times[0]}, 2 threads {times[1]}, live (CPU)")

# %% [markdown]
# Only the time inside operators counts, each with the fastest of its runs: a team waits for its slowest thread, so other programs
# disturb it most.
#
# All of the product's work is shared, the step's is not. One reason: only {{large}} of the {{made}} tensors that it makes
# are large enough for most element-wise operators to be split. `channels_last` changes nothing here: the model has no convolution.

# %% [markdown]
# ## Your own script
#
# Look first at how many threads there are and how many CPUs the process may use. (Here the first is 1: the lesson's first cell
# set it.) A container's limit on CPU *time* (`docker run --cpus=2`) shows only in
# `/sys/fs/cgroup/cpu.max` (cgroup v2). Then try numbers of threads, on a quiet machine.

# %% experiment
from helpers.own_script import toy

model, optimizer, loss_fn, loader, device, step = toy()  # at home: your own

import os
import time

cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
before, batch = torch.get_num_threads(), next(iter(loader))
print(f"≈ {before} threads, ≈ {cpus} CPUs")
for threads in (1, 2):  # at home: 1, 2, half of your CPUs, all of them
    torch.set_num_threads(threads)
    took = []
    for _ in range(50):
        began = time.perf_counter()
        step(batch)
        took.append(time.perf_counter() - began)
    print(f"{threads} threads: ≈ {min(took) * 1e3:.1f} ms, the fastest step")
torch.set_num_threads(before)

# %% [markdown]
# For your model take the smallest number after which the time no longer falls. (The toy is too small to tell.)
#
# Two lines for the shell. The first counts which reorders repeat in every step. The second keeps a process and its memory on one
# **NUMA node**: large machines have several groups of cores, each with its own memory.
#
# ```bash
# ONEDNN_VERBOSE=1 python train.py | grep reorder | cut -d, -f6,9,12 | sort | uniq -c | sort -rn | head
# numactl --cpunodebind=0 --membind=0 python train.py
# ```

# %% [markdown]
# ## Sources on trial
#
# One claim. Three more wait for lesson 18.

# %% experiment
from helpers.lessons.cpu_threads_and_layout import claims

lesson.verdicts(
    claims.on_trial(in_worker, late),
    evidence="live (CPU) · arithmetic · published",
    shown=("12-set-num-threads",),
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Up to 32,768 elements, one thread works. | Operators split by rows; functions such as `exp`, `gelu`, `floor`. |
# | Threads × processes ≤ cores, over all that run. | Processes that wait (for a disk) need no core of their own. |
# | `OMP_NUM_THREADS` reaches torch and NumPy. | torch in workers; NumPy that is loaded already; other kinds of threads. |
# | The best number of threads depends on the model and its batch too. | Many requests: more processes, fewer threads each. |
# | `channels_last` for convolutions, for x and weights. | On a CPU, one over 64 channels gained little. After an operator that loses it, x is copied again. |
#
# **Read on**: PyTorch's notes on [CPU threading](https://docs.pytorch.org/docs/stable/notes/cpu_threading_torchscript_inference.html)
# and its [tuning guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html); [G. Amdahl,
# 1967](https://doi.org/10.1145/1465482.1465560).

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# | section | minutes |
# |---|---|
# | Which memory is near? with exercise 12.3 | 31 |
# | Who loses channels_last? with exercise 12.4 | 33 |
# | Numbers side by side: vectors and bf16 | 5 |
#
# ### Which memory is near?
#
# A thread that moves to another core leaves its caches behind. A machine with several **NUMA nodes** has a part of its memory at
# each node, and the memory of another node is slower. Linux puts a page on the node of the thread that first *writes* to it
# (**first touch**). Take two nodes of 4 cores, and a team of 8 threads bound to them in order. The team reads a large tensor.
# **What part of the tensor lies on the reader's own node?**

# %% experiment
you = lesson.predict(
    {
        "made by randn": ...,
        "made by fill_, by the same team": ...,
        "made by randn, in one process a node": ...,
    },
    choices=["0 %", "50 %", "100 %"],
)

# %% experiment
team = [0, 0, 0, 0, 1, 1, 1, 1]  # the node of each thread
tensors = {
    "made by randn": experiments.pages([0], team),  # who writes, who reads; randn: one thread writes
    "made by fill_, by the same team": experiments.pages(team, team),
    "made by randn, in one process a node": experiments.pages([0], [0] * 4) + experiments.pages([1], [1] * 4),
}
local = {name: f"{experiments.local_percent(parts)} %" for name, parts in tensors.items()}
lesson.keep(crossing=100 - experiments.local_percent(tensors["made by randn"]))
you.against(local, experiments.pages_picture(tensors), evidence="arithmetic", what="on the own node")

# %% [markdown]
# {{crossing}} % of the reads go to the other node, and no line of code says so. There are two ways out. The team that reads also
# writes first. Or, simpler and usual, there is **one process for each node**, bound to its cores and its memory (`numactl`). What
# that brings depends on the program. For workers beside their GPUs,
# [`torchrun --numa-binding`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/numa/binding.py#L1-L20) says 1 to 10 % typically,
# for some much more and for some nothing.
#
# With SMT ("hyper-threading") one core shows as two logical CPUs, called **siblings**. Siblings share the arithmetic units. So
# PyTorch's own launcher for CPUs,
# [`torch.backends.xeon.run_cpu`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/backends/xeon/run_cpu.py), uses one thread a
# core unless told otherwise. The command `lscpu --parse=CPU,CORE,NODE` tells which is which:

# %% experiment
cpus = [(0, 0, 0), (1, 1, 0), (2, 2, 1), (3, 3, 1), (4, 0, 0), (5, 1, 0), (6, 2, 1), (7, 3, 1)]
note = "a machine of 2 nodes, 4 cores and 8 logical CPUs"
lesson.table(cpus, ["logical CPU", "core", "node"], evidence="arithmetic", caption=note)

# %% [markdown]
# **Exercise 12.3 — a thread plan** (★★★, 17 min)
#
# Share out the cores of a machine over worker processes that compute. Exercise 12.1 binds by such a plan.
#
# <details><summary>Hint 1</summary>First group: node → core → its usable CPUs. If the smallest worker is to have s cores,
# how many workers fit on a node of c cores? And on all nodes?</details>
#
# <details><summary>Hint 2</summary>The largest s for which all workers fit is the share. Then come seats: which nodes must
# get a first worker so that as many cores as possible are at work? Only then the rest, where there is room.</details>
#
# <details><summary>The idea</summary>Share: the largest s with Σ ⌊c ÷ s⌋ ≥ workers. One seat for each node with c ≥ s, the
# largest first, until the workers are seated; the rest on any node with ⌊c ÷ (seats + 1)⌋ ≥ s. The cores of a node are
# then cut into as many runs as the node has seats.</details>


# %% exercise="thread_plan"
def thread_plan(cpus: list[tuple[int, int, int]], allowed: list[int], workers: int) -> list[list[int]]:
    """The logical CPUs of each worker, ascending; their number is its number of threads.

    cpus: (cpu, core, node) of each logical CPU that is online, in any order; core numbers are unique on the machine, and
        a core lies in one node. allowed: CPUs that this process may use (some may be offline). workers: how many.
    Usable is what is online and allowed; a core is usable if one of its CPUs is. ValueError if there are more workers than
        usable cores ("start fewer"), if no core is usable, and if workers is 0.

    No core serves two workers, of a core one CPU at most is in the plan, and a worker stays within one node. Among
    such plans, in this order:
    1. the smallest worker is as large as possible;
    2. as many cores as possible are at work (with fewer workers than nodes, nodes stay idle);
    3. two workers of one node differ by at most one core.
    """
    ### BEGIN SOLUTION
    nodes: dict[int, dict[int, list[int]]] = {}
    for cpu, core, node in sorted(cpus):
        if cpu in allowed:
            nodes.setdefault(node, {}).setdefault(core, []).append(cpu)
    sizes = {node: len(by_core) for node, by_core in nodes.items()}
    if not 1 <= workers <= sum(sizes.values()):
        raise ValueError(f"{workers} workers for {sum(sizes.values())} cores")
    share = max(
        s for s in range(1, max(sizes.values()) + 1) if sum(c // s for c in sizes.values()) >= workers
    )
    seats = dict.fromkeys(nodes, 0)
    for _ in range(workers):
        able = [n for n in nodes if sizes[n] // (seats[n] + 1) >= share]
        seats[max(able, key=lambda n: (not seats[n], sizes[n] / (seats[n] + 1)))] += 1
    plan = []
    for node, k in seats.items():
        firsts = [siblings[0] for siblings in nodes[node].values()]
        plan += [firsts[len(firsts) * i // k : len(firsts) * (i + 1) // k] for i in range(k)]
    return plan
    ### END SOLUTION


# %% test="thread_plan" points=1
from helpers import check
from helpers.lessons.cpu_threads_and_layout.exercises import check_thread_plan, machine

two, smt, eight, seven = machine(4, 4), machine(2, 2, siblings=2), list(range(8)), list(range(7))
check_thread_plan(*(check.case(two, eight, n) for n in (2, 3)), note="Two nodes; three workers: two share.")
check_thread_plan(check.case(smt, eight, 2), note="SMT: the machine of the table above.")
beside = [(6, 3, 1), (0, 0, 0), (3, 1, 0), (5, 2, 1), (1, 0, 0), (4, 2, 1), (7, 3, 1), (2, 1, 0)]
check_thread_plan(check.case(beside, eight, 3), note="Siblings are neighbours, CPUs come in any order.")
check_thread_plan(check.case(smt, [4, 1, 5, 3, 99], 2), note="A container allows some; 99 is offline.")
check_thread_plan(check.case(machine(5, 2), seven, 2), note="A small node: both can be at work.")
check_thread_plan(check.case(machine(6, 1), seven, 2), note="The small node would make a worker smaller.")
check_thread_plan(check.case(two, [8, 9], 2, raises=ValueError), note="Nothing usable.")
check_thread_plan(check.case(smt, eight, 5, raises=ValueError), note="More workers than cores.")


# %% hidden="thread_plan" points=3
### BEGIN HIDDEN TESTS
from helpers import check
from helpers.lessons.cpu_threads_and_layout.exercises import check_thread_plan, machine, random_machines

check_thread_plan(
    *random_machines(120),
    *(
        check.case(machine(*cores), list(range(sum(cores))), workers)
        for *cores, workers in ((9, 2, 2, 4), (5, 2, 2), (12, 4, 4, 1), (7, 3, 3), (8, 8, 4))
    ),
    check.case([(0, 0, 0)], [0], 0, raises=ValueError),
    check.case([], [0], 1, raises=ValueError),
    check.case([(0, 0, 0), (1, 0, 0)], [0, 1], 2, raises=ValueError),
)
### END HIDDEN TESTS


# %% [markdown]
# ### Who loses channels_last?
#
# x is in channels_last, and n holds the same numbers contiguous. **Is the result still in channels_last?** For `flatten`, which
# makes a matrix: "kept" if it needs no copy.

# %% experiment
you = lesson.predict(
    {
        "torch.relu(x)": ...,
        "x + n": ...,
        "n + x": ...,
        "torch.cat([x, n], 1)": ...,
        "x[:, [2, 1, 0]]": ...,
        "x.softmax(1)": ...,
        "x.flatten(1)": ...,
        "x.permute(0, 2, 3, 1).flatten(1)": ...,
    },
    choices=["kept", "lost"],
)

# %% experiment
LAST = torch.channels_last
n, w = torch.randn(2, 16, 8, 8), torch.randn(8, 16)
names = {"torch": torch, "F": F, "x": n.to(memory_format=LAST), "n": n, "w": w}
more = [
    "F.max_pool2d(x, 2)",
    "F.instance_norm(x)",
    "F.interpolate(x, scale_factor=2)",
    "x.repeat(1, 2, 1, 1)",
]
more += ["torch.einsum('oc,nchw->nohw', w, x)", "F.linear(x.permute(0, 2, 3, 1), w).permute(0, 3, 1, 2)"]


def kept(run):
    y = run.result
    return "kept" if (not run.copies if y.dim() == 2 else y.is_contiguous(memory_format=LAST)) else "lost"


done = {code: count(eval, code, names) for code in [*you, *more]}
rows = [(code, kept(run), run.copies) for code, run in done.items()]
table = lesson.table(rows, ["operator", "channels_last", "copies"], evidence="live (CPU)")
you.against({code: kept(done[code]) for code in you}, table, evidence="live (CPU)", what="layout")

# %% [markdown]
# - Arithmetic such as `+` takes the layout of its **first** operand, unless that one is broadcast over channels or over all
#   pixels, as a bias is. A `cat` of mixed layouts returns a contiguous result.
# - Indexing channels by a list, `softmax(1)`, `repeat`, instance norm and this `einsum` lose the layout silently. (Most results
#   are contiguous; the `einsum`'s is neither. Written with x first, it keeps the layout.) The next convolution then copies x back
#   into it, or reorders everything if its weights are contiguous. (Not all of them show a copy: some change the
#   layout inside their kernel.)
# - `permute(0, 2, 3, 1)` costs nothing. Its result is contiguous, with channels last. Norms over channels, and 1 × 1 convolutions
#   written as `F.linear`, want just that.
# - **In place of permuting activations each time, permute the weights once.** In front of a linear layer, `flatten(1)` becomes
#   another order of the columns of the layer's weights. Channels in another order after a convolution become another order of the
#   convolution's filters.
#
# A compiled graph of convolutions on a CPU with oneDNN goes to channels_last by itself: `layout_optimization` in Inductor's config
# ([source](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/graph.py#L742-L776)). In eager mode you do it. Here is a
# network as one writes it first:


# %% experiment
from helpers.lessons.cpu_threads_and_layout import exercises


def plain_net(weights, x):
    x = F.conv2d(x, weights["stem"], stride=2, padding=1).relu()
    for block in weights["blocks"]:
        y = F.conv2d(x, block["mix"], padding=1)[:, block["order"]]  # channels in another order
        y = F.layer_norm(y.permute(0, 2, 3, 1), y.shape[1:2]).permute(0, 3, 1, 2)  # over channels
        y = torch.einsum("oc,nchw->nohw", block["point"], y)
        gate = y.mean((2, 3)).sigmoid()
        x = gate[:, :, None, None] * y + x.contiguous()
    pooled = torch.cat([F.avg_pool2d(x, 2), F.max_pool2d(x, 2)], 1)
    return F.linear(pooled.flatten(1), weights["head"])


weights, _ = exercises.Net(channels=8, blocks=2, side=24, rows=(), layouts=()).numbers()
cost = count(plain_net, weights, torch.randn(4, 3, 24, 24).to(memory_format=LAST))
moves = [(op, cost.by_operator[f"aten.{op}"]) for op in ("clone", "index", "cat")]
lesson.table(moves, ["operators that only move data", "times"], evidence="live (CPU)", caption="cat may stay")

# %% [markdown]
# **Exercise 12.4 — no layout conversion inside** (★★★, 17 min)
#
# Write `plain_net` so that all activations stay in `channels_last`. Prepare once what can be prepared once.
#
# <details><summary>Hint 1</summary>Two kinds of weights can be prepared: those of convolutions (their layout, and the order of their
# filters), and the columns of <code>head</code>, which are counted channel by channel.</details>
#
# <details><summary>Hint 2</summary><code>point</code> is a linear layer over channels: use <code>F.linear</code> on
# <code>y.permute(0, 2, 3, 1)</code>, between the layer norm and the permute back. At the head: which column belongs to
# channel c of pixel p in <code>x.flatten(1)</code>, and which in <code>x.permute(0, 2, 3, 1).flatten(1)</code>?</details>
#
# <details><summary>The idea</summary><code>conv(x, W)[:, order] = conv(x, W[order])</code>. For the head:
# <code>head.unflatten(1, (2C, −1)).transpose(1, 2).flatten(1)</code> once, then
# <code>F.linear(x.permute(0, 2, 3, 1).flatten(1), head)</code>. At the entrance,
# <code>x.contiguous(memory_format=torch.channels_last)</code>: it copies only if there is something to do.</details>


# %% exercise="channels_last_net"
def channels_last_net(weights: dict) -> Callable[[torch.Tensor], torch.Tensor]:
    """plain_net of these weights, as a function of x that converts no layout inside.

    weights: "stem" (C, 3, 3, 3); "blocks", a list of {"mix": (C, C, 3, 3), "order": (C,) int64, "point": (C, C)};
        "head" (classes, 2 · C · h · w). All contiguous; neither they nor the dictionaries are to be changed. What
        you need in another layout or order is made here, once, and not in the function returned.
    x: (N, 3, H, W) float32, H and W multiples of 4, contiguous or channels_last; the caller's, who may write the next
        batch into the same memory. Returns (N, classes), plain_net's values (to 4 digits), which no later call changes;
        gradients are off.

    In each call: x is converted once, if it is not channels_last, and nothing else; each convolution (as many as in
    plain_net, or more) gets x and weights in channels_last; no operator changes the layout.
    Copies, at most: 1 (cat), and 1 for converting x. No syncs.
    """
    ### BEGIN SOLUTION
    last = torch.channels_last
    stem = weights["stem"].contiguous(memory_format=last)
    blocks = [
        (block["mix"][block["order"]].contiguous(memory_format=last), block["point"])
        for block in weights["blocks"]
    ]
    head = weights["head"].unflatten(1, (2 * len(stem), -1)).transpose(1, 2).flatten(1)

    def forward(x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous(memory_format=last)
        x = F.conv2d(x, stem, stride=2, padding=1).relu()
        for mix, point in blocks:
            y = F.conv2d(x, mix, padding=1).permute(0, 2, 3, 1)
            y = F.linear(F.layer_norm(y, y.shape[3:]), point).permute(0, 3, 1, 2)
            x = x + y * y.mean((2, 3), keepdim=True).sigmoid()
        pooled = torch.cat([F.avg_pool2d(x, 2), F.max_pool2d(x, 2)], 1)
        return F.linear(pooled.permute(0, 2, 3, 1).flatten(1), head)

    return forward
    ### END SOLUTION


# %% test="channels_last_net" points=1
from helpers.lessons.cpu_threads_and_layout.exercises import Net, check_channels_last_net

# channels, blocks, side; rows of each batch, and whether it comes in channels_last
check_channels_last_net(Net(8, 0, 24, (2,), (True,)), note="No block: stem, pooling and head.")
check_channels_last_net(Net(8, 1, 16, (2,), (True,)), note="One block.")
hint = "Two blocks; a contiguous batch, then one in channels_last."
check_channels_last_net(Net(8, 2, 24, (3, 1), (False, True)), note=hint)


# %% hidden="channels_last_net" points=4
### BEGIN HIDDEN TESTS
from helpers.lessons.cpu_threads_and_layout.exercises import Net, check_channels_last_net

check_channels_last_net(
    Net(16, 2, 20, (1, 5, 1), (True, False, True), 1),
    Net(12, 3, 24, (2, 4), (True, True), 2),
    Net(
        4, 1, 16, (2, 2, 2, 3, 2), (False, False, True, False, False), 3
    ),  # where the first one lay, the second and the last
    Net(24, 0, 12, (2,), (False,), 4),
    Net(6, 1, 12, (2, 1), (True, False), 5, wide=20),
)
### END HIDDEN TESTS


# %% [markdown]
# A GPU asks for a layout too: a half-precision convolution on Tensor Cores wants `channels_last`. For a contiguous x, cuDNN may
# launch extra kernels that change the layout. This cell counts them, simulated and recorded on a real H100 (and live, if you have a
# GPU):

# %% experiment
runs = recordings.side_by_side("12/layouts")
lesson.keep(off=experiments.furthest_off(*runs[:2]))
experiments.turning_kernels(runs)

# %% [markdown]
# Each convolution of a contiguous input needs three kernels more. By their names they turn a layout into another: two before the
# product, one after it. The recorded rows have further kernels, among them those that add the bias: the simulator leaves them out.
# Its times are off by up to {{off:.1f}} times: for times, look at the recorded rows.

# %% [markdown]
# ### Numbers side by side
#
# A **vector** instruction computes on 8 floats at once (AVX2), on 16 (AVX-512) or on 4 (NEON). Inductor writes C++ for the
# processor that it finds; `at::vec::Vectorized<float>` is such a vector. **How does Inductor write each of these?** A *scalar* loop
# takes one number after the other; *both* means that numbers are fetched one by one, into a vector.

# %% experiment
you = lesson.predict(
    {"2x + 1": ..., "x[i] + 1 (gather)": ..., "x[::2] + 1": ..., "erfinv(x)": ...},
    choices=["vector", "scalar", "both"],
)

# %% experiment tags=["nbval-ignore-output"]
LONG, i = torch.randn(4096), torch.randint(4096, (4096,))
code = {
    "2x + 1": experiments.written(lambda x: 2 * x + 1, LONG),
    "x[i] + 1 (gather)": experiments.written(lambda x, i: x[i] + 1, LONG, i),
    "x[::2] + 1": experiments.written(lambda x: x[::2] + 1, LONG),
    "erfinv(x)": experiments.written(lambda x: x.erfinv(), LONG),
}


def manner(text):
    if "at::vec::" not in text:
        return "scalar" if text else "?"
    return "both" if "_inner" in text else "vector"  # _inner: a loop over the parts of one vector


manners = {name: manner(text) for name, text in code.items()}
you.against(manners, evidence="live (CPU)", what="written as")

# %% [markdown]
# `print(code["2x + 1"])` shows a loop. With a stride of 2, the numbers wanted are not neighbours in memory, so the loop is scalar.
# A gather fetches them one by one (`x0_inner`) into a vector and computes on that. `erfinv` shows a limit of reading code: ATen's
# `Vectorized` has the function, but [takes each part of the vector by
# itself](https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/cpu/vec/vec256/vec256_float.h). **`Vectorized` alone says
# that a vector is loaded and stored, not how its numbers got there or how it is computed.**
#
# **bf16 on a CPU** takes half the bytes of a result. What does autocast pay for that in a layer with 64 rows?

# %% experiment
layer, rows = torch.nn.Linear(1024, 1024), torch.randn(64, 1024)
costs = []
for name, enabled in (("fp32", False), ("autocast, bf16", True)):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled), torch.no_grad(), count() as run:
        result = layer(rows)
    cast = sum(nbytes for op, nbytes in run.allocations if op == "aten._to_copy")
    costs.append((name, f"{result.nbytes:,}", f"{cast:,}"))
lesson.table(costs, ["", "bytes of the result", "bytes written by casts"], evidence="live (CPU)")

# %% [markdown]
# The casts write more bytes than the result saves: that of the weights does not shrink with the batch (lesson 10). Autocast can
# pay where the processor also *multiplies* bf16: with AMX or AVX512-BF16 on x86, BF16 on ARM. Others convert to fp32 and back.
# `torch.cpu.get_capabilities()` lists what yours has. Measure before you switch it on.
