# %% [markdown]
# # 12 · CPU threads and layout
#
# ## And on the CPU?
#
# No queue, no launch: a CPU operator is a loop, and when it returns, it is done. What makes it slow is of another kind.
# Too few threads take part, or too many wait for one another; they run on cores far from their memory; the numbers
# lie in an order that the kernel has to undo first. None of this shows in the code, and all of it can be counted.
#
# **Time** 100–115 min, two thirds of it exercises. **Before this** lessons 01 (strides), 04 (workers), 11 (Inductor).
#
# **Afterwards you can**
# - say which operators use threads, from which size, and who else in a process (and its children) does;
# - share out the cores of a machine with nodes and SMT, and bind workers to them so that it holds;
# - keep a network in `channels_last` from end to end, and say what more threads can bring at best.
#
# **On trial** *core binding is among the most important optimisations on a CPU* · *it avoids memory accesses across
# NUMA nodes* · *`torch.set_num_threads()` controls the threads* (guide) ·
# *`torch.compile(options={"memory_format": torch.channels_last})` picks the layout* (300 %).

# %% setup
import math
import os
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F

from helpers import count, lesson

torch.set_num_threads(1)  # this process only counts: the threads of this lesson live in its children
LINUX = sys.platform == "linux"  # binding, and counting threads by fork: other systems show "?"
lesson.start("12_cpu_threads_and_layout", evidence=["live (CPU)", "arithmetic", "published"])

# %% [markdown]
# ## 1 · Who uses the second core?
#
# One operator is split over the **intra-op** threads: `torch.get_num_threads()` of them, a *team* that OpenMP starts
# at the first operator that needs it. That can be seen: set 8 threads (it takes no 8 cores), run one operator in a
# fresh process, and count the threads that are there afterwards. 1 or 8, in each of these?

# %% experiment
prediction = {
    "x + 1, 32,768 elements": ...,
    "x + 1, 32,769 elements": ...,
    "x.softmax(1), 1 row of 100,000": ...,
    "x.softmax(1), 2 rows of 4": ...,
    "x.cumsum(0), 1,000,000 elements": ...,
    "torch.randn(1,000,000)": ...,
}

# %% experiment tags=["fold"]
import json
import subprocess

SERVER = """
import json, os, sys, tempfile, threading, traceback, warnings
import numpy as np, psutil, torch
import torch.nn.functional as F
from subprocess import PIPE, Popen
from torch.utils.data import DataLoader, IterableDataset
for line in sys.stdin:
    code, arguments, env = json.loads(line)
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            os.environ.update(env)
            answer = lambda value: os.write(write, json.dumps(value).encode())
            exec(code, globals())
        except Exception:
            answer(traceback.format_exc())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        print(pipe.read(), flush=True)
    os.wait()
"""
server = None


def asked(code, *arguments, **env):
    """Run code in a process of its own, a fork of one that has imported torch and run nothing; what it gives to answer().

    env: environment variables; OMP_… and MKL_… of this process are not handed on. "?" where this needs Linux.
    """
    global server
    if not LINUX:
        return "?"
    if server is None:
        known = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_", "KMP_"))}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        server = subprocess.Popen([sys.executable, "-c", SERVER], env=known, text=True, **pipes)
    server.stdin.write(json.dumps([code, arguments, env]) + "\n")
    server.stdin.flush()
    said = json.loads(server.stdout.readline())
    if isinstance(said, str):
        raise RuntimeError(said)
    return said


TEAM = """
def team(setup, code):
    "Threads after one operator, with 8 set."
    read, write = os.pipe()
    if os.fork() == 0:
        torch.set_num_threads(8)
        names = {"torch": torch, "F": F}
        exec(setup, names)
        before = psutil.Process().num_threads()
        exec(code, names)
        os.write(write, str(1 + psutil.Process().num_threads() - before).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        return int(pipe.read())

def smallest(setup, code, high):
    "The smallest N up to high from which there is a team."
    low = 1
    while low < high:
        middle = (low + high) // 2
        if team(setup.replace("N", str(middle)), code) > 1:
            high = middle
        else:
            low = middle + 1
    return low

runs, libraries = arguments
answer([[team(*run) for run in runs], [smallest(s, c, high) for c, s, high in libraries]])
"""


# %% experiment
runs = [
    ("x = torch.empty(32768)", "x + 1"),
    ("x = torch.empty(32769)", "x + 1"),
    ("x = torch.empty(1, 100000)", "x.softmax(1)"),
    ("x = torch.empty(2, 4)", "x.softmax(1)"),
    ("x = torch.empty(1000000)", "x.cumsum(0)"),
    ("", "torch.randn(1000000)"),
]
libraries = [
    ("x.exp()", "x = torch.empty(N)", 256),
    ("x @ x", "x = torch.empty(N, N)", 64),
    ("F.gelu(x)", "x = torch.empty(N)", 256),
]
told = asked(TEAM, runs, libraries)
teams = dict(zip(prediction, told[0] if LINUX else "?" * len(runs), strict=True))
lesson.compare_predictions(prediction, teams, evidence="live (CPU)", what="threads", choices=(1, 8))

# %% [markdown]
# Three kinds of operators. Most are split by **elements**, from 32,769 on: `GRAIN_SIZE` in ATen's
# [`TensorIterator.h`](https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/TensorIterator.h#L72-L76) is the
# least that is worth a thread. Some are split by **rows**, and one long row stays with one thread. Some are not
# split at all, since one number follows from the other: random numbers, or a running sum along the only dimension. And
# kernels of libraries (MKL, oneDNN) have limits of their own. The smallest N that gets a team, found by trying:

# %% experiment tags=["nbval-ignore-output"]
lesson.table(
    [
        (c, s, f"{n:,}" if LINUX else n)
        for (c, s, _), n in zip(libraries, told[-1] * (1 if LINUX else 3), strict=True)
    ],
    ["operator", "of", "smallest N with a team"],
    evidence="live (CPU)",
    caption="this build on this machine (x86: the first two are MKL's, gelu is oneDNN's); libraries are free to change theirs",
)

# %% [markdown]
# How is it split, then? By [`ParallelOpenMP.h`](https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/ParallelOpenMP.h#L16-L48): into min(threads, ⌈elements ÷ 32,768⌉) chunks, all of one size but
# the last. From 32,769 elements on the whole team is woken, also where only two of it have work.


# %% experiment tags=["fold"]
from helpers.plots import style
from helpers.plots.picture import Picture, drawn

GRAIN = 32_768


def chunks(size, threads):
    """Elements of each chunk."""
    if threads == 1 or size <= GRAIN:
        return [size]
    each = math.ceil(size / min(threads, math.ceil(size / GRAIN)))
    return [min(each, size - at) for at in range(0, size, each)]


@drawn
def strips(rows, title, note, evidence="arithmetic"):
    """rows: label → (parts as (width, colour index, word), text at the right)."""
    fig, _ = style.figure(0.42 * len(rows) + 0.3, evidence=evidence, title=title, note=note)
    ax = fig.subplots()
    for row, (parts, text) in enumerate(rows.values()):
        at, whole = 0.0, sum(width for width, *_ in parts)
        for width, colour, word in parts:
            width /= whole
            ax.barh(-row, width, left=at, height=0.72, color=style.SERIES[colour], edgecolor="white")
            ax.text(at + width / 2, -row, word, ha="center", va="center", fontsize=8, color="white")
            at += width
        ax.text(1.01, -row, text, va="center", fontsize=style.SMALL)
    ax.set_yticks(range(0, -len(rows), -1), list(rows))
    ax.set(xlim=(0, 1.36), xticks=[])
    ax.grid(False)
    ax.spines[:].set_visible(False)
    return Picture(fig, evidence, title)


strips(
    {
        f"{n:,}": (
            [(c, 0, f"thread {i}") for i, c in enumerate(chunks(n, 8))],
            f"{len(chunks(n, 8))} of 8 work, {max(chunks(n, 8)):,} each",
        )
        for n in (32_768, 32_769, 100_000, 1_000_000)
    },
    "An operator's elements, shared out over a team of 8",
    "each row is one tensor, however long",
)

# %% [markdown]
# So an element-wise operator on 100,000 elements is done by 4 threads at most. **On small tensors, element-wise
# operators do not get faster by more threads; they only wake more of them.**
#
# The **inter-op** threads (`torch.get_num_interop_threads()`) are another pool, for whole operators side by side. Who
# uses it? One more child, 4 threads of the first kind:

# %% experiment tags=["nbval-ignore-output", "fold"]
INTER = """
threads, told = psutil.Process().num_threads, {}
steps = [threads()]
torch.set_num_threads(4)
steps.append(threads())

def told_of(name, run):
    before = threads()
    run()
    told[name] = threads() - before

x = torch.empty(100_000, requires_grad=True)
told_of("forward, 100,000 elements", lambda: x * 2)
steps.append(threads())
told_of("forward and backward", lambda: (x * x).sum().backward())
told_of("two independent operators, one after the other", lambda: (x + 1, x + 2))
told_of("torch.jit.fork in eager code", lambda: torch.jit.fork(torch.add, x, 1))
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # for section 2
tasks = os.listdir("/proc/self/task")
late = sum(len(os.sched_getaffinity(int(t))) == 1 for t in tasks), len(tasks), torch.get_num_threads()
script = torch.jit.CompilationUnit('''
def g(x):
    return x + 1
def f(x):
    a = torch.jit.fork(g, x)
    return torch.jit.wait(a)
''')
told_of("torch.jit.fork in TorchScript", lambda: script.f(torch.ones(3)))
both, at = threading.Barrier(3), []

def mine():
    both.wait()
    x.detach() + 1
    both.wait()
    at.append(threads())
    both.wait()

def two():
    others = [threading.Thread(target=mine) for _ in range(2)]
    for t in others: t.start()
    for _ in range(3): both.wait()
    for t in others: t.join()

before = threads()
two()
told["two Python threads, an operator each"] = max(at) - before
answer([told, late, steps])
"""
new_threads, late, steps = asked(INTER) if LINUX else ({}, "???", "???")
lesson.table(
    list(new_threads.items()) if LINUX else [("Linux only", "?")],
    ["what ran, in this order", "new threads"],
    evidence="live (CPU)",
    caption="intra-op threads: 4; the inter-op pool has a thread for each core",
).show()
print(
    f"in all: {steps[0]} at the start, {steps[1]} after set_num_threads(4), {steps[2]} after the first operator"
)

# %% [markdown]
# Nothing in ordinary eager code: not the backward pass, not two operators that do not need each other. The inter-op pool
# belongs to TorchScript's `fork`. And in the last row: **every Python thread that runs an operator gets a team of its
# own.** Two threads and 4 set, that is 2 + 2 · 3 new ones. A server with 16 request threads on 16 cores has 16 · 16,
# unless it is told otherwise. (The line below the table counts a third pool: `set_num_threads(4)` itself starts 3 threads
# for the mobile kernels, QNNPACK's, says `ParallelOpenMP.cpp`; OpenMP's 3 come with the first operator.)
#
# ## 2 · Too many threads, on the wrong cores
#
# Processes are the other way to get too many. A `DataLoader` worker runs NumPy, and starts a program that itself uses
# torch. How many threads may each use: `"1"` or `"all"`, one per core?

# %% experiment
prediction = {
    "torch in a worker": ...,
    "NumPy in a worker": ...,
    "torch in a program that the worker starts": ...,
    "the same, with OMP_NUM_THREADS=1": ...,
    "NumPy in a program, with OMP_NUM_THREADS=1": ...,
    "torch in a program, from a worker bound to one CPU": ...,
}

# %% experiment tags=["nbval-ignore-output", "fold"]
WORKER = """
TORCH = "import torch; print(torch.get_num_threads())"
NUMPY = "import numpy, psutil; a = numpy.ones((600, 600)); a @ a; print(psutil.Process().num_threads())"

def start(ask, **env):
    return Popen([sys.executable, "-c", ask], env=os.environ | env, stdout=PIPE, text=True)

class Told(IterableDataset):
    def __iter__(self):
        before, a = psutil.Process().num_threads(), np.ones((600, 600))
        a @ a
        numpy, cpus = 1 + psutil.Process().num_threads() - before, os.sched_getaffinity(0)
        programs = [start(TORCH), start(TORCH, OMP_NUM_THREADS="1"), start(NUMPY, OMP_NUM_THREADS="1")]
        os.sched_setaffinity(0, [min(cpus)])
        programs.append(start(TORCH))
        yield [torch.get_num_threads(), numpy, *(int(p.communicate()[0]) for p in programs)]

answer(next(iter(DataLoader(Told(), batch_size=None, num_workers=1, multiprocessing_context="fork"))))
"""
CORES = len(os.sched_getaffinity(0)) if LINUX else os.cpu_count()
said = asked(WORKER) if LINUX else "??????"


def word(threads):
    return "1" if threads == 1 else "all" if threads == CORES else str(threads)


seen = dict(zip(prediction, said, strict=True))
lesson.compare_predictions(
    prediction,
    {k: word(v) for k, v in seen.items()},
    evidence="live (CPU)",
    what="threads",
    choices=["1", "all"],
).show()
print(
    f"set_num_threads(4), an operator, then os.sched_setaffinity(0, …) to one CPU: get_num_threads() says {late[2]},"
)
print(f"and {late[0]} of the process's {late[1]} threads are bound")

# %% [markdown]
# - **torch sets itself to 1 thread in a worker**
#   ([source](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/utils/data/_utils/worker.py#L269-L273)). **Nobody
#   tells the others:** NumPy and
#   started programs take what they find. W workers on C cores can mean W · C threads. `OMP_NUM_THREADS=1`, set before
#   Python, reaches all of these, for they use OpenMP or, as NumPy's OpenBLAS, read that variable too.
# - **It does not reach threads of another make.** Hugging Face's tokenizers use Rust's rayon
#   ([`RAYON_NUM_THREADS`](https://docs.rs/rayon/latest/rayon/struct.ThreadPoolBuilder.html#method.num_threads), or
#   `TOKENIZERS_PARALLELISM=false`), `ffmpeg` has [`-threads`](https://ffmpeg.org/ffmpeg-codecs.html#Codec-Options), and
#   OpenCV [`cv2.setNumThreads`](https://docs.opencv.org/4.x/db/de0/group__core__utils.html).
# - **Whoever starts later looks at the CPUs that it may use**, so binding a worker reaches its children too.
#   But what has started keeps its number: `get_num_threads()` after a late binding is 4, for one CPU.
# - **`os.sched_setaffinity(0, …)` binds one thread, the caller.** A thread inherits its set from the one that
#   starts it, at that moment. So the team that was there before runs wherever it likes. Bind first,
#   or bind each of `/proc/self/task`.
#
# Why bind at all? A thread that moves leaves its caches behind. On a machine of several **NUMA nodes** it leaves its
# memory behind too: each node has its own, and that of the others is slower. Linux puts a page on the node of the thread
# that first *writes* to it (**first touch**; Linux's own documentation calls that policy *local allocation*). Two nodes
# of 4 cores; a team of 8, bound in order, reads a large tensor. Which part of it is on the reader's own node?

# %% experiment
prediction = {
    "made by randn": ...,
    "made by fill_, same team": ...,
    "randn, in a process per node": ...,
}  # percent

# %% experiment
WHERE = [0, 0, 0, 0, 1, 1, 1, 1]  # the node of each thread of the team
PAGES = 16_384  # 64 MiB


def pages(writers, readers):
    """(pages, node of the writer, node of the reader) in order. writers, readers: the node of each thread, equal parts."""
    whole = math.lcm(len(writers), len(readers))
    return [
        (PAGES // whole, writers[i * len(writers) // whole], readers[i * len(readers) // whole])
        for i in range(whole)
    ]


made = {
    "made by randn": pages([0], WHERE),  # section 1: one thread, the main one
    "made by fill_, same team": pages(WHERE, WHERE),
    "randn, in a process per node": pages([0], [0] * 4) + pages([1], [1] * 4),  # a tensor each
}
local = {k: round(100 * sum(n for n, w, r in v if w == r) / sum(n for n, *_ in v)) for k, v in made.items()}
lesson.keep(crossing=100 - local["made by randn"])
lesson.compare_predictions(
    prediction, local, evidence="arithmetic", what="percent local", choices=range(101)
).show()
strips(
    {k: ([(n, w, f"{w} → {r}") for n, w, r in v], f"{local[k]} % local") for k, v in made.items()},
    "Pages of one tensor: on which node they lie → on which node they are read",
    "blue: lies on node 0, orange: on node 1; each part is read by one thread; last row: two tensors. A model of first touch",
)

# %% [markdown]
# {{crossing}} % of the reads cross over, and no line of code says so. Two ways out: let the team that reads be the team
# that writes first; or, simpler and usual, **one process per node**, bound to its cores (`numactl --cpunodebind=0 --membind=0`
# adds memory to `taskset`'s cores). What it brings depends on the machine: PyTorch's
# [documentation of `torchrun --numa-binding`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/numa/binding.py#L1-L20) says 1 to 10 % typically, for some programs much
# more and for some nothing.
#
# SMT ("hyper-threading") makes of one core two logical CPUs, **siblings**, which share its arithmetic units: for matrix
# products PyTorch's tutorial *Grokking PyTorch Intel CPU performance from first principles* recommends one thread a core.
# `lscpu --parse=CPU,CORE,NODE` tells which is which:

# %% experiment
LSCPU = """
# CPU,Core,Node
0,0,0
1,1,0
2,2,1
3,3,1
4,0,0
5,1,0
6,2,1
7,3,1
"""
topology = [tuple(map(int, line.split(","))) for line in LSCPU.split() if line[0].isdigit()]
lesson.table(
    [
        (core, node, [c for c, k, _ in topology if k == core])
        for core, node in dict.fromkeys(t[1:] for t in topology)
    ],
    ["core", "node", "logical CPUs"],
    evidence="arithmetic",
    caption="a machine of 2 nodes, 4 cores and 8 logical CPUs, as lscpu describes it",
)

# %% [markdown]
# **Exercise 12.1 — a thread plan** (★★★, 25 min)
#
# Share out a machine's cores over worker processes that compute.
#
# <details><summary>Hint 1</summary>First group: node → core → its usable CPUs. If the smallest worker is to have s cores,
# how many workers fit on a node of c cores? And on all nodes?</details>
#
# <details><summary>Hint 2</summary>The largest s for which all workers fit is the share. Then seats: which nodes must
# get a first worker so that as many cores as possible are at work? Only then the rest, where there is room.</details>
#
# <details><summary>The idea</summary>Share: the largest s with Σ ⌊c ÷ s⌋ ≥ workers. One seat for each node with c ≥ s, the
# largest first, until the workers are seated; the rest on any node with ⌊c ÷ (seats + 1)⌋ ≥ s. A node's cores are
# then cut into as many runs as it has seats.</details>


# %% exercise="thread_plan"
def thread_plan(cpus: list[tuple[int, int, int]], allowed: list[int], workers: int) -> list[list[int]]:
    """The logical CPUs of each worker, ascending; their number is its number of threads.

    cpus: (cpu, core, node) of each logical CPU that is online, in any order; core numbers are unique on the machine, and
        a core lies in one node. allowed: CPUs that this process may use (some may be offline). workers: at least 1.
    Usable is what is online and allowed; a core is usable if one of its CPUs is. ValueError where there are more workers
        than usable cores (or none of either): start fewer.

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
from helpers.exercises.cpu_threads_and_layout import check_thread_plan, machine

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
from helpers.exercises.cpu_threads_and_layout import check_thread_plan, machine, random_machines

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
# **Exercise 12.2 — bind each worker** (★★, 18 min)
#
# A `worker_init_fn` that makes such a plan true. (`DataLoader(…, worker_init_fn=bound(plan))` calls it in each worker,
# with the worker's number, before it loads anything.) On other systems than Linux the tests see numbers only.
#
# <details><summary>Hint 1</summary>Four things to set: which CPUs, for which threads; torch's threads; and what programs
# find that the worker starts. Where does Linux list the threads of a process?</details>
#
# <details><summary>Hint 2</summary><code>os.listdir("/proc/self/task")</code> are the numbers of all threads, also those
# that Python's <code>threading</code> does not know. A container may forbid CPUs of the plan:
# <code>os.sched_getaffinity(0)</code>.</details>
#
# <details><summary>The idea</summary>Keep of the plan's entry what is allowed (all that is allowed, if nothing is left);
# <code>os.sched_setaffinity(int(thread), cpus)</code> for each thread, where the system has it; then
# <code>torch.set_num_threads(len(cpus))</code> and <code>os.environ["OMP_NUM_THREADS"]</code>.</details>


# %% exercise="bound"
def bound(plan: list[list[int]]) -> Callable[[int], None]:
    """A worker_init_fn: called with the number of a worker, inside its process, it binds the worker.

    plan[i]: the CPUs of worker i, each once, in any order. More workers than entries: begin again with the first. At least one entry; no entry
        is empty.
    The worker's CPUs are those of its entry that it is allowed to use at that moment; if it may use none of them, all that it
    is allowed. Afterwards
    - every thread of the worker, there already (whoever started it) or started later, runs on these CPUs only, and so does
      every program that the worker starts;
    - torch uses as many threads as there are CPUs, and OMP_NUM_THREADS tells programs the same number.
    Bind by os.sched_setaffinity, looked up when the worker begins (not by taskset: in some tests os plays another machine).
    Where os has no sched_setaffinity and sched_getaffinity (macOS, Windows), only the numbers are set, those of the whole entry.
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
from helpers.exercises.cpu_threads_and_layout import Workers, check_bound

for workers, hint in (
    (Workers([[0], [1], [0, 1]], 4, "here"), "This machine's CPUs; one worker more than entries."),
    (Workers([[1, 999], [998]], 2, "here"), "The machine has no CPU 998 and 999."),
    (Workers([[0, 1], [9]], 2, [1, 2, 3]), "os plays a container that allows CPUs 1, 2 and 3."),
    (Workers([[0, 1], [2]], 2, None), "A system that cannot bind."),
):
    check_bound(workers, note=hint)


# %% hidden="bound" points=4
### BEGIN HIDDEN TESTS
from helpers.exercises.cpu_threads_and_layout import Workers, check_bound

check_bound(
    Workers([list(range(24)), list(range(24, 72)), [95]], 4, list(range(96))),
    Workers([[3, 70], [1], [9, 2]], 3, [2, 3, 70]),
    Workers([[0], [1], [2, 3]], 5, list(range(4))),
    Workers([[6, 7], [0]], 2, [7]),
    Workers([[1], [0, 998]], 3, "here"),
    Workers([[4, 5, 6], [0]], 3, None),
)
### END HIDDEN TESTS


# %% [markdown]
# ## 3 · Layout
#
# A convolution reads, for each output, all channels of a few neighbouring pixels. `channels_last` (lesson 01) keeps the
# channels of a pixel side by side, so that a vector instruction takes 8 or 16 of them at once. On the CPU most
# convolutions are done by the library **oneDNN**, which tells what it does when `ONEDNN_VERBOSE=1` is set before Python
# starts. A line is a *primitive*; those called `reorder` compute nothing, they only turn data into another layout. How
# many reorders does a single convolution of 2 × 16 × 20 × 20, 3 × 3, cost in eager mode?

# %% experiment
prediction = {"x and weights contiguous": ..., "x channels_last": ..., "x and weights channels_last": ...}

# %% experiment tags=["fold"]
ONEDNN = """
log = tempfile.TemporaryFile("w+")
os.dup2(log.fileno(), 1)  # oneDNN prints from C, to number 1
torch.set_num_threads(1)
conv, linear, last = torch.nn.Conv2d(16, 32, 3), torch.nn.Linear(64, 64), torch.channels_last
x, told, inside = torch.randn(2, 16, 20, 20), {}, {}

def run(name, module, given):
    at = os.fstat(log.fileno()).st_size
    module(given)
    log.seek(at)
    lines = [line.split(",") for line in log.read().splitlines() if ",primitive,exec," in line]
    told[name] = [(line[5], line[6], line[8], line[-2]) for line in lines]
    if "x" in name.split():
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            module(given)
        inside[name] = sum(event.name == "aten::copy_" for event in seen.events())

with torch.no_grad():
    run("x and weights contiguous", conv, x)
    run("x channels_last", conv, x.to(memory_format=last))
    conv.to(memory_format=last)
    run("x and weights channels_last", conv, x.to(memory_format=last))
    run("linear, fp32", linear, torch.randn(8, 64))
    run("linear, bf16", linear.bfloat16(), torch.randn(8, 64).bfloat16())
    run("convolution, bf16", conv.bfloat16(), x.bfloat16().to(memory_format=last))
answer([told, inside])
"""
spoken, inside = asked(ONEDNN, ONEDNN_VERBOSE="1") if LINUX else ("?", "?")

# %% experiment tags=["nbval-ignore-output"]
reorders = {name: sum(p[0] == "reorder" for p in spoken[name]) if LINUX else "?" for name in prediction}
lesson.compare_predictions(
    prediction, reorders, evidence="live (CPU)", what="reorders", choices=range(9)
).show()
shape = {"2x16x20x20": "x", "32x16x3x3": "weights", "2x32x18x18": "result"}
lesson.table(
    [
        (
            name,
            kind,
            shape.get(size, ""),
            " → ".join(part.split(":")[4] for part in layout.split() if not part.startswith("bia")),
        )
        for name in prediction
        if LINUX
        for kind, _, layout, size in spoken[name]
    ],
    ["convolution", "primitive", "of", "layouts"],
    evidence="live (CPU)",
    caption="oneDNN's own words: abcd is contiguous (NCHW), acdb is channels_last; a capital letter is a dimension cut into blocks, as aBcd8b: 8 channels side by side",
).show()
print("aten::copy_ inside the operator (torch.profiler):", inside)

# %% [markdown]
# A contiguous x is turned into blocks of channels, and the result back again, **in each convolution**: two passes over
# memory that no profiler of operators shows. In `channels_last` neither happens. If x alone is in that layout, ATen first
# copies the weights into it, at every call: convert both. What remains is a reorder of the weights;
# if they do not change, that can be done once (*prepacking*, as Inductor does with its option `freezing`). On
# another processor, or without oneDNN (Apple's), the lines differ: look whether any are there.
#
# So x should stay in that layout. Which operator ends it? x is channels_last, `n` the same numbers contiguous:

# %% experiment
prediction = {  # the result: "kept" (channels_last), or "lost"
    "torch.relu(x)": ...,
    "x + n": ...,
    "n + x": ...,
    "torch.cat([x, x], 1)": ...,
    "torch.cat([x, n], 1)": ...,
    "x[:, [2, 1, 0]]": ...,
    "x.softmax(1)": ...,
    "x.flatten(1)": ...,  # to a matrix: "kept" if it needs no copy
}

# %% experiment
LAST = torch.channels_last
n = torch.randn(2, 16, 8, 8)
x = n.to(memory_format=LAST)
more = {
    "F.max_pool2d(x, 2)": None,
    "F.layer_norm(x.permute(0, 2, 3, 1), (16,)).permute(0, 3, 1, 2)": None,
    "F.instance_norm(x)": None,
    "F.interpolate(x, scale_factor=2)": None,
    "x.repeat(1, 2, 1, 1)": None,
    "torch.einsum('oc,nchw->nohw', w, x)": None,
    "F.linear(x.permute(0, 2, 3, 1), w).permute(0, 3, 1, 2)": None,
    "x.permute(0, 2, 3, 1).flatten(1)": None,
}
names = {"torch": torch, "F": F, "x": x, "n": n, "w": torch.randn(8, 16)}
kept, rows = {}, []
for code in [*prediction, *more]:
    done = count(eval, code, names)
    same = (
        done.result.dim() == 2
        and not done.copies
        or done.result.dim() == 4
        and done.result.is_contiguous(memory_format=LAST)
    )
    kept[code] = "kept" if same else "lost"
    rows.append((code, kept[code], done.copies))
lesson.compare_predictions(
    prediction,
    {k: kept[k] for k in prediction},
    evidence="live (CPU)",
    what="layout",
    choices=["kept", "lost"],
).show()
lesson.table(
    rows,
    ["operator", "channels_last", "copies"],
    evidence="live (CPU)",
    caption="copies: operators that only copy. softmax(1) copies inside its kernel; n + x and einsum read one layout and write the other as they compute",
)

# %% [markdown]
# - Element-wise operators take the layout of their **first** operand that has one; operators of a mixed list give up.
# - Indexing channels, `softmax(1)`, `repeat`, `einsum` and instance norm return contiguous results, silently: the next
#   convolution then reorders everything.
# - `permute(0, 2, 3, 1)` costs nothing, and is contiguous with channels last: what works over channels
#   (norms, 1 × 1 convolutions as `F.linear`) wants just that.
# - **What must permute activations can often permute weights instead, once.** `flatten(1)` in front of a linear layer: permute
#   the columns of its weights. Channels taken in another order after a convolution: take its filters in that order.
#
# And the option on trial, that makes the compiler do it? (This loads Inductor, which takes some seconds.)

# %% experiment
try:
    torch.compile(lambda t: t + 1, options={"memory_format": torch.channels_last})(torch.ones(2))
    option = "accepted"
except RuntimeError as problem:
    option = f"{type(problem).__name__}: {str(problem).partition(',')[0]}"
print(option)

# %% [markdown]
# There is no such option. Write `model.to(memory_format=torch.channels_last)`, and the same for x. A compiled graph of
# convolutions on a CPU with oneDNN goes to channels_last by itself: `layout_optimization` in Inductor's config, on by
# default ([`decide_layout_opt`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/graph.py#L742-L776)).
#
# Here is a network as one writes it first, and what it costs for an x that comes in channels_last:


# %% experiment
def plain_net(weights, x):
    x = F.conv2d(x, weights["stem"], stride=2, padding=1).relu()
    for block in weights["blocks"]:
        y = F.conv2d(x, block["mix"], padding=1)[:, block["order"]]  # channels in another order
        y = F.layer_norm(y.permute(0, 2, 3, 1), y.shape[1:2]).permute(0, 3, 1, 2)  # over channels
        y = torch.einsum("oc,nchw->nohw", block["point"], y)
        gate = y.mean((2, 3)).sigmoid()
        x = gate[:, :, None, None] * y + x.contiguous()
    both = torch.cat([F.avg_pool2d(x, 2), F.max_pool2d(x, 2)], 1)
    return F.linear(both.flatten(1), weights["head"])


def random_weights(channels=8, blocks=2, side=24, classes=5, seed=0):
    """Of a net for images of side × side pixels, side a multiple of 4."""
    g = torch.Generator().manual_seed(seed)
    return {
        "stem": torch.randn(channels, 3, 3, 3, generator=g) / 5,
        "blocks": [
            {
                "mix": torch.randn(channels, channels, 3, 3, generator=g) / (3 * channels**0.5),
                "order": torch.randperm(channels, generator=g),
                "point": torch.randn(channels, channels, generator=g) / channels**0.5,
            }
            for _ in range(blocks)
        ],
        "head": torch.randn(classes, 2 * channels * (side // 4) ** 2, generator=g) / side,
    }


image = torch.randn(4, 3, 24, 24).to(memory_format=LAST)
cost = count(plain_net, random_weights(), image)
moved = {
    k: v
    for k, v in cost.by_operator.items()
    if k in ("aten.clone", "aten.index", "aten.cat", "aten._to_copy")
}
lesson.table(
    [(k.removeprefix("aten."), v) for k, v in moved.items()],
    ["operators that only move data", "times"],
    evidence="live (CPU)",
    caption=f"{cost.copies} copies in a forward pass; one of them, cat, is needed",
)

# %% [markdown]
# **Exercise 12.3 — no layout conversion inside** (★★★, 25 min)
#
# Write it so that all activations stay in `channels_last`. Prepare what can be prepared once.
#
# <details><summary>Hint 1</summary>Three kinds of weights can be prepared: those of convolutions (layout; and the order of their
# filters), and the columns of <code>head</code>, which are counted channel by channel.</details>
#
# <details><summary>Hint 2</summary><code>point</code> is a linear layer over channels: <code>F.linear</code> on
# <code>y.permute(0, 2, 3, 1)</code>, between the layer norm and the permute back. At the head: which column belongs to
# channel c of pixel p in <code>x.flatten(1)</code>, and which in <code>x.permute(0, 2, 3, 1).flatten(1)</code>?</details>
#
# <details><summary>The idea</summary><code>conv(x, W)[:, order] = conv(x, W[order])</code>. For the head:
# <code>head.unflatten(1, (2C, −1)).transpose(1, 2).flatten(1)</code> once, then
# <code>F.linear(x.permute(0, 2, 3, 1).flatten(1), head)</code>. At the entrance,
# <code>x.contiguous(memory_format=torch.channels_last)</code>: a copy only if there is something to do.</details>


# %% exercise="channels_last_net"
def channels_last_net(weights: dict) -> Callable[[torch.Tensor], torch.Tensor]:
    """plain_net of these weights, as a function of x that converts no layout inside.

    weights: "stem" (C, 3, 3, 3); "blocks", a list of {"mix": (C, C, 3, 3), "order": (C,) int64, "point": (C, C)};
        "head" (classes, 2 · C · h · w). All contiguous, and not to be changed; what you need in another layout or order is made
        here, once, and not in the function returned.
    x: (N, 3, H, W) float32, H and W multiples of 4, contiguous or channels_last. Returns (N, classes), plain_net's values (to 4 digits); gradients
        are off.

    In each call: x is converted once, if it is not channels_last, and nothing else; each convolution (as many as in
    plain_net, or more) gets x and weights in channels_last; no operator changes the layout.
    Budget of copies: 1 (cat), and 1 for converting x. No syncs.
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
        both = torch.cat([F.avg_pool2d(x, 2), F.max_pool2d(x, 2)], 1)
        return F.linear(both.permute(0, 2, 3, 1).flatten(1), head)

    return forward
    ### END SOLUTION


# %% test="channels_last_net" points=1
from helpers.exercises.cpu_threads_and_layout import Net, check_channels_last_net

# channels, blocks, side; rows of each batch, and whether it comes in channels_last
check_channels_last_net(Net(8, 0, 24, (2,), (True,)), note="No block: stem, pooling and head.")
check_channels_last_net(Net(8, 1, 16, (2,), (True,)), note="One block.")
hint = "Two blocks; a contiguous batch, then one in channels_last."
check_channels_last_net(Net(8, 2, 24, (3, 1), (False, True)), note=hint)


# %% hidden="channels_last_net" points=4
### BEGIN HIDDEN TESTS
from helpers.exercises.cpu_threads_and_layout import Net, check_channels_last_net

check_channels_last_net(
    Net(16, 2, 20, (1, 5, 1), (True, False, True), 1),
    Net(12, 3, 24, (2, 4), (True, True), 2),
    Net(4, 1, 16, (2, 2, 3), (False, True, False), 3),
    Net(24, 0, 12, (2,), (False,), 4),
    Net(6, 1, 12, (2, 1), (True, False), 5, wide=20),
)
### END HIDDEN TESTS


# %% [markdown]
# ## 4 · Numbers side by side
#
# The last source of speed in one core is the **vector** instruction: 8 floats at once (AVX2), 16 (AVX-512), 4 (NEON).
# PyTorch's own kernels are built for several of them and choose at the start. Inductor writes for what it finds:
# `at::vec::Vectorized<float>` is such a vector. Which of these does it write as a plain loop, one number after the other?

# %% experiment
prediction = {
    "2x + 1": ...,
    "x[i] (gather)": ...,
    "x[::2] + 1": ...,
    "erfinv(x)": ...,
}  # "vector", "scalar", or "both": numbers fetched one by one, into a vector

# %% experiment tags=["nbval-ignore-output"]
from pathlib import Path

from helpers import compiling

LONG, i = torch.randn(4096), torch.randint(4096, (4096,))
functions = {
    "2x + 1": (lambda x: 2 * x + 1, LONG),
    "x[i] (gather)": (lambda x, i: x[i] + 1, LONG, i),
    "x[::2] + 1": (lambda x: x[::2] + 1, LONG),
    "erfinv(x)": (lambda x: x.erfinv(), LONG),
}


def bodies(fn, *given):
    """The C++ that Inductor writes for this machine, or an empty text where no compiler can say what that has."""
    try:
        return "\n".join(compiling.kernels(fn, *given, vectors=True).bodies().values())
    except compiling.CannotCompile:
        return ""


written = {name: bodies(*case) for name, case in functions.items()}


def manner(text):
    inner = "_inner" in text  # a loop over the parts of one vector
    return "?" if not text else ("both" if inner else "vector") if "at::vec::" in text else "scalar"


lesson.compare_predictions(
    prediction, {k: manner(v) for k, v in written.items()}, evidence="live (CPU)", what="written as",
    choices=["vector", "both", "scalar"],
).show()  # fmt: skip
for name, signs in (
    ("x[i] (gather)", ("_inner",)),
    ("x[::2] + 1", ("for(", "auto tmp")),
    ("erfinv(x)", ("for(", "auto tmp")),
):
    lines = [line.strip() for line in written[name].splitlines() if any(sign in line for sign in signs)]
    print(f"{name}:", *(lines[-2:] if signs == ("_inner",) else lines), sep="\n  ")
header = Path(torch.__file__).parent / "include/ATen/cpu/vec/vec256/vec256_float.h"
where = header.read_text().partition("erfinv() const") if header.exists() else ("", "", "")
print("erfinv in ATen's", header.name, "\n  " + "".join(where[1:]).partition("}")[0].strip())

# %% [markdown]
# With a stride of 2, eight neighbours in memory are not the eight numbers wanted, so the loop is scalar. A gather
# collects them one by one (`x0_inner`) into a vector and computes on that. And `erfinv` is a trap for readers of code:
# ATen's `Vectorized` has the function, as a `map` that takes each of the parts by itself. **`Vectorized` in the code
# means: loaded and stored side by side. Layout decides that, and layout you can choose.**
#
# **bf16 on a CPU** has half the bytes everywhere. Whether it computes faster is a question to the processor: AMX or AVX512-BF16
# (x86), BF16 instructions (ARM) multiply it; others convert to fp32 and back. What has this one, and who does the work?

# %% experiment tags=["nbval-ignore-output"]
has = getattr(torch.cpu, "get_capabilities", dict)()  # not in every release; empty says nothing
features = ("avx2", "avx512_f", "avx512_bf16", "amx_bf16", "neon", "bf16", "sve_bf16")  # x86, then ARM
lesson.table(
    [(f"{has['architecture']} has {name}", has[name]) for name in features if name in has]
    + [("torch's own kernels run with", torch.backends.cpu.get_cpu_capability())]
    + [
        (f"oneDNN for one {k}", ", ".join(p[0] for p in spoken[k]) or "nothing")
        for k in ("linear, fp32", "linear, bf16", "convolution, bf16")
        if LINUX
    ],
    ["question", "answer"],
    evidence="live (CPU)",
    caption="nothing: another library (MKL) or ATen's own kernels do it",
)

# %% [markdown]
# If no row named bf16 says yes and oneDNN is not asked for bf16, autocast on this CPU saves bytes of activations, and its
# casts cost passes over memory (lesson 10 counts them). Measure before you switch it on.
#
# ## 5 · What can more threads bring?
#
# **Amdahl**: the part that is not split sets the limit. If s of the time is serial, n threads bring at most 1 ÷ (s + (1
# − s) ÷ n), and never more than 1 ÷ s. On a CPU two more terms belong to it: an operator has no more chunks than grains
# (section 1), and waking a team costs time that grows with the team. A step of 10 operators, each on 20,000, 100,000 or
# a million elements, and one `randn`. With 64 cores, which number of threads is best, of 1, 4, 32, 64?

# %% experiment
prediction = {"20,000 elements": ..., "100,000 elements": ..., "1,000,000 elements": ...}

# %% experiment
WAKE, EACH = 2_000, 500  # ns: a region costs WAKE + EACH · threads; an assumption


def operator_ns(size, work_ns, splits, threads):
    parts = chunks(size, threads) if splits else [size]
    return work_ns if len(parts) == 1 else WAKE + EACH * threads + work_ns * parts[0] / size


def step_ns(size, threads):
    # 1 ns an element
    return 10 * operator_ns(size, size, True, threads) + operator_ns(size, size, False, threads)


curves = {
    f"{size:,} elements": {t: step_ns(size, 1) / step_ns(size, t) for t in range(1, 65)}
    for size in (20_000, 100_000, 1_000_000)
}
best = {name: max((1, 4, 32, 64), key=curve.get) for name, curve in curves.items()}
lesson.keep(few_chunks=len(chunks(100_000, 64)), many_chunks=len(chunks(1_000_000, 64)))
lesson.compare_predictions(
    prediction, best, evidence="arithmetic", what="best number of threads", choices=(1, 4, 32, 64)
)


# %% experiment tags=["fold"]
@drawn
def amdahl(curves, limit, evidence="arithmetic"):
    title = "Speed-up of a step against its threads"
    fig, _ = style.figure(
        3.0,
        evidence=evidence,
        title=title,
        note=f"10 operators and one that is not split; a region costs {WAKE / 1e3:g} µs and {EACH / 1e3:g} µs a thread",
    )
    ax = fig.subplots()
    for i, (name, curve) in enumerate(curves.items()):
        ax.plot(list(curve), list(curve.values()), color=style.SERIES[i], label=name)
        top = max(curve, key=curve.get)
        ax.plot([top], [curve[top]], style.MARKERS[i], color=style.SERIES[i], markersize=8)
    ax.axhline(limit, color=style.INK, linestyle=":", linewidth=1)
    ax.text(64, limit, "1 ÷ serial part", ha="right", va="bottom", fontsize=style.SMALL)
    ax.set(xlabel="threads", ylabel="times as fast as 1 thread", ylim=(0, limit * 1.15))
    ax.legend(loc="center right", bbox_to_anchor=(1, 0.36))
    return Picture(fig, evidence, f"{title}; marks: the best number of threads")


amdahl(curves, 11)

# %% [markdown]
# The smallest step has nothing to split. The others have {{few_chunks}} and {{many_chunks}} chunks, and each thread beyond
# only costs. Even the best stays well below Amdahl's limit, the dotted line. **So the best number of threads belongs to
# a model and its batch, and not to a machine**; and what
# a single step cannot use, a second process can. (The two costs of a region are an assumption. To measure yours: `bench`
# of lesson 00 on `x + 1` of 32,769 elements, with 1 thread and with more, on cores that nobody else uses; elsewhere the
# team waits for its slowest thread, and the clock says nothing about the region.)
#
# **Exercise 12.4 — the best number of threads** (★★, 12 min)
#
# From parts that you have measured on one thread: how many threads, what at best, and how to split a machine that serves many
# requests.
#
# <details><summary>Hint 1</summary>Write the time of one part with n threads first, and look at its two special cases: no split
# at all, and fewer chunks than threads.</details>
#
# <details><summary>Hint 2</summary>The bound has no region cost and as many threads as there are chunks:
# the largest chunk is then that of ⌈size ÷ 32,768⌉ chunks.</details>
#
# <details><summary>The idea</summary><code>best = min(range(1, cores + 1), key=total)</code>. For the split: each number of
# threads t allows p = min(copies, cores // t) processes, which together do p ÷ total(t) steps a ns; take the
# largest.</details>


# %% exercise="best_threads"
def best_threads(
    parts: list[tuple[int, float, bool]], cores: int, copies: int, wake_ns: float, each_ns: float
) -> dict:
    """The model of section 5, for one step.

    parts: (elements, ns on one thread, whether its operator is ever split), one a part, at least one. cores: 1 or more.
        copies: as many processes fit into memory, 1 or more. wake_ns, each_ns: 0 or more.
    With n threads, a part that is not split, or has at most 32,768 elements, or runs with n = 1, takes its time on one
    thread. Any other has k = min(n, ⌈elements ÷ 32,768⌉) chunks, the largest of ⌈elements ÷ k⌉ elements, and takes
        wake_ns + each_ns · n + time on one thread · largest chunk ÷ elements.

    Returns {"threads": the number from 1 to cores with the least time of a step (the smallest of equals),
    "speedup": one thread's time ÷ that time,
    "bound": the speed-up for regions that cost nothing and threads without end (at most as many chunks as above: so it
        is lower than the dotted line of section 5, which cuts without end),
    "processes", "each": min(copies, ⌊cores ÷ n⌋) processes of n threads each, n such that they finish most steps a second
    together (of equals, the smallest n); processes do not disturb one another}.
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
from helpers.exercises.cpu_threads_and_layout import answer, check_best_threads

case = check.case([(20_000, 20_000.0, True)] * 5, 8, 16, 2_000.0, 500.0)
check_best_threads(case, expect=[answer(1, 1.0, 1.0, 8, 1)], note="Nothing is large enough to be split.")
case = check.case([(40_000, 400_000.0, True), (9, 100_000.0, False)], 8, 3, 2_000.0, 500.0)
hint = "Two chunks, a serial fifth, and memory for three processes."
check_best_threads(case, expect=[answer(2, 500 / 303, 500 / 300, 3, 2)], note=hint)
case = check.case([(6 * 32_768, 600_000.0, True)], 4, 2, 10_000.0, 60_000.0)
hint = "Regions are dear: the fourth thread costs more than it takes over."
check_best_threads(case, expect=[answer(3, 600 / 390, 6.0, 2, 2)], note=hint)
case = check.case([(100_001, 100_001.0, True), (10**6, 1e6, True), (9, 50_000.0, False)], 8, 3, 2e3, 500.0)
want = answer(8, 1_150_001 / (25_001 + 125_000 + 62_000), 1_150_001 / (25_001 + 82_259), 2, 4)
hint = "Chunks are whole elements, and all 8 threads of the team are woken, also for 4 chunks."
check_best_threads(case, expect=[want], note=hint)


# %% hidden="best_threads" points=3
### BEGIN HIDDEN TESTS
from fractions import Fraction

from helpers import check
from helpers.exercises.cpu_threads_and_layout import answer, check_best_threads, random_steps


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
    return answer(best, *speedups, min(copies, cores // split), split)


# regions for nothing: more threads change nothing
ties = [(100_000, 1e5, True), (65_536, 5e4, True), (32_768, 2e4, True)]
free = [check.case(ties, 8, copies, 0.0, 0.0) for copies in (1, 4)]
free += [check.case([(9, 5.0, False)], 4, 3, 0.0, 0.0)]
check_best_threads(*random_steps(60), *free, expect=exact)
### END HIDDEN TESTS


# %% [markdown]
# ## On the real GPU
#
# Layout is a question there too: a half-precision convolution in Tensor Cores wants channels_last, and for a contiguous
# x cuDNN may launch kernels that turn it: published profiles show `nchwToNhwcKernel` and `nhwcToNchwKernel`. No recording
# of it exists yet; with a GPU this cell counts them.


# %% experiment
def turning_kernels(device):
    """Kernels of one half-precision convolution whose names say that they turn a layout."""
    from torch.profiler import ProfilerActivity, profile

    conv = torch.nn.Conv2d(64, 64, 3).to(device, torch.float16)
    given = torch.randn(8, 64, 56, 56, device=device, dtype=torch.float16)
    told = []
    for name, layout in (("contiguous", torch.contiguous_format), ("channels_last", LAST)):
        net, images = conv.to(memory_format=layout), given.contiguous(memory_format=layout)
        net(images)
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            net(images)
            torch.cuda.synchronize()
        kernels = [e.name for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
        told.append(
            (name, len(kernels), sum("tonhwc" in k.lower() or "tonchw" in k.lower() for k in kernels))
        )
    return lesson.table(told, ["layout", "kernels", "that turn it"], evidence="live (GPU)")


lesson.on_gpu(turning_kernels, recording="12/turning_kernels")

# %% [markdown]
# ## Sources on trial

# %% experiment tags=["nbval-ignore-output", "fold"]
sections = ("1 · Who uses the second core?", "2 · Too many threads, on the wrong cores", "3 · Layout")
away = {k: 100 - v for k, v in local.items()}
outside = [
    name
    for name, n in (("NumPy in a worker", said[1]), ("a program that it starts", said[2]))
    if n != said[0]
]
rows = [
    (
        "12-binding-rank",
        "guide",
        "core binding is among the most important optimisations on a CPU",
        f"{CORES} CPUs here, and no second node to be far from. Published, by PyTorch's documentation of NUMA binding: 1 to 10 % typically",
        "untested: its rank needs a machine of several nodes, with nothing else on it",
        sections[1],
    ),
    (
        "12-binding-numa",
        "guide",
        "binding a process to cores avoids memory accesses across NUMA nodes",
        f"arithmetic, by a model of first touch, reads from the other node: team bound over both nodes {away['made by randn']} %, one process a node "
        f"{away['randn, in a process per node']} %; live: bound after its first operator, {late[0]} of {late[1]} threads are bound",
        "holds when each process stays on one node, is bound before its threads start, and writes its memory itself",
        sections[1],
    ),
    (
        "12-set-num-threads",
        "guide",
        "torch.set_num_threads() controls the threads, with taskset or numactl more finely",
        f"a worker has {said[0]} torch thread(s), NumPy {said[1]}, a started program {said[2]}; two Python threads with 4 set: "
        f"{new_threads['two Python threads, an operator each'] if LINUX else '?'} new ones",
        "holds when torch's own team in one Python thread is meant; the others need OMP_NUM_THREADS or a set of cores before they start"
        if outside or CORES == 1
        else "confirmed",
        sections[1],
    ),
    (
        "12-memory-format",
        "compile-300",
        'options={"memory_format": torch.channels_last} makes torch.compile pick the layout',
        option,
        "confirmed" if option == "accepted" else "refuted",
        sections[2],
    ),
]
lesson.verdicts(rows, evidence="live (CPU) · arithmetic · published")

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Under 32,769 elements, one thread works. | Operators split by rows; MKL's and oneDNN's kernels. |
# | Threads × processes ≤ cores, over all that run. | Processes that wait (for a disk) need no core of their own. |
# | `OMP_NUM_THREADS` before Python starts reaches whoever uses OpenMP. | Whoever sets a number of its own, as torch does in workers; tokenizers (rayon), ffmpeg and OpenCV. |
# | Bind before the first thread starts. | Or bind each thread of `/proc/self/task`. |
# | One process a node, one thread a core. | Code that waits for memory may gain from siblings: measure. |
# | channels_last for convolutions, from the entrance to the head. | Single operators lose it silently: count copies, look at strides. |
# | Permute the weights once, not the activations each time. | Weights that change in every step. |
# | The best number of threads belongs to the model. | Many requests: more processes, fewer threads each. |
#
# **Checklist for your own code**
# - [ ] What do `torch.get_num_threads()` and `os.sched_getaffinity(0)` say *in the container*, and in a worker?
# - [ ] Who else has threads: NumPy, OpenCV, tokenizers, request threads?
# - [ ] On several nodes: is each process on one, with its memory?
# - [ ] `ONEDNN_VERBOSE=1`: which reorders repeat in every step?
# - [ ] Does the processor multiply bf16, or only store it?
#
# **Read on**: PyTorch's notes *CPU threading and TorchScript inference* and *NUMA Binding*; its *Performance Tuning
# Guide* (CPU part); `torch.backends.xeon.run_cpu`, a launcher that does all of section 2; oneDNN's *Verbose mode*;
# the Linux kernel's *NUMA memory policy*; G. Amdahl, *Validity of the single processor approach to achieving large
# scale computing capabilities* (1967).
