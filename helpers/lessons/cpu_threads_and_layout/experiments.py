"""Lesson 12: children that count their own threads, what oneDNN says, pictures of chunks and pages, Inductor's loops."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch.utils.benchmark.utils.common import set_torch_threads

import helpers.lessons.cpu_threads_and_layout.recorded  # noqa: F401 - its experiments are known by their names
from helpers import compiling, count, plots
from helpers.plots import style
from helpers.plots.picture import Picture, drawn
from helpers.pytorch.dispatch_mode import Mode
from helpers.recordings import Result
from helpers.text.seconds import format_seconds
from helpers.text.tables import Table, table

#: binding, and counting threads by fork: elsewhere the answer is "?"
LINUX = sys.platform == "linux"
CORES = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1

# --- children -----------------------------------------------------------------------------------------------------

_SERVER = """
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


@cache
def _server() -> Any:
    """A process that has imported torch and run nothing; the numbers of threads of this process are not handed on."""
    known = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_", "KMP_", "OPENBLAS_"))}
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.DEVNULL,
    }
    return subprocess.Popen([sys.executable, "-c", _SERVER], env=known, encoding="utf-8", **pipes)


def asked(code: str, *arguments: Any, **env: str) -> Any:
    """Run code in a process of its own, a fork of a fresh one; what the code gives to answer().

    env: environment variables. RuntimeError with the child's traceback where the code raises. Linux only.
    """
    server = _server()
    server.stdin.write(json.dumps([code, arguments, env]) + "\n")
    server.stdin.flush()
    answer = json.loads(server.stdout.readline())
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return answer


# --- 1, who uses the second core ----------------------------------------------------------------------------------

_TEAM = """
setup, operator = arguments
torch.set_num_threads(8)
exec(setup)
before = psutil.Process().num_threads()
exec(operator)
answer(1 + psutil.Process().num_threads() - before)
"""


def teams(runs: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Name → how many threads take part in one operator, with 8 set. runs: name → (what makes x, the operator)."""
    return {name: asked(_TEAM, *run) if LINUX else "?" for name, run in runs.items()}


Strip = tuple[Sequence[tuple[float, int, str]], str]


@drawn
def strips(rows: Mapping[str, Strip], title: str, note: str) -> Picture:
    """rows: label → (parts as (width, colour index, word), text at the right)."""
    fig, _ = style.figure(0.42 * len(rows) + 0.3, evidence="arithmetic", title=title, note=note)
    ax = fig.subplots()
    for row, (parts, text) in enumerate(rows.values()):
        at, whole = 0.0, sum(width for width, *_ in parts)
        for part, colour, word in parts:
            width = part / whole
            ax.barh(-row, width, left=at, height=0.72, color=style.SERIES[colour], edgecolor="white")
            ax.text(at + width / 2, -row, word, ha="center", va="center", fontsize=8, color="white")
            at += width
        ax.text(1.01, -row, text, va="center", fontsize=style.SMALL)
    ax.set_yticks(range(0, -len(rows), -1), list(rows))
    ax.set(xlim=(0, 1.36), xticks=[])
    ax.grid(False)
    ax.spines[:].set_visible(False)
    texts = ", ".join(f"{label}: {text}" for label, (_, text) in rows.items())
    return Picture(fig, "arithmetic", f"{title}: {texts}")


def shared_out(chunks: Mapping[int, Sequence[int]]) -> Picture:
    """Elements of a tensor → its chunks, over a team of 8."""
    rows: dict[str, Strip] = {
        f"{size:,}": (
            [(part, 0, f"thread {i}") for i, part in enumerate(parts)],
            f"{len(parts)} of 8 work, at most {max(parts):,} each"
            if parts[1:]
            else "1 works, no team is woken",
        )
        for size, parts in chunks.items()
    }
    return strips(
        rows,
        "The elements of one operator, over a team of 8",
        "each row is one tensor; all are drawn equally long",
    )


# --- 2, too many threads ------------------------------------------------------------------------------------------

_WORKER = """
TORCH = "import torch; print(torch.get_num_threads())"
NUMPY = "import numpy, psutil; a = numpy.ones((600, 600)); a @ a; print(psutil.Process().num_threads())"

def start(ask, **env):
    return Popen([sys.executable, "-c", ask], env=os.environ | env, stdout=PIPE, encoding="utf-8")

class Counts(IterableDataset):
    def __iter__(self):
        before, a = psutil.Process().num_threads(), np.ones((600, 600))
        a @ a
        numpy, cpus = 1 + psutil.Process().num_threads() - before, os.sched_getaffinity(0)
        programs = [start(TORCH), start(TORCH, OMP_NUM_THREADS="1"), start(NUMPY, OMP_NUM_THREADS="1")]
        os.sched_setaffinity(0, [min(cpus)])
        programs.append(start(TORCH))
        yield [torch.get_num_threads(), numpy, *(int(p.communicate()[0]) for p in programs)]

answer(next(iter(DataLoader(Counts(), batch_size=None, num_workers=1, multiprocessing_context="fork"))))
"""

_LATE = """
torch.set_num_threads(4)
torch.empty(100_000) * 2
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
tasks = os.listdir("/proc/self/task")
answer([sum(len(os.sched_getaffinity(int(t))) == 1 for t in tasks), len(tasks), torch.get_num_threads()])
"""


def in_a_worker() -> tuple[Any, ...]:
    """Threads that may be used in a DataLoader's worker: by torch, by NumPy, by torch in a program that the worker starts,
    in one with OMP_NUM_THREADS=1, by NumPy in such a one, and by torch in one started after the worker was bound to one CPU."""
    return tuple(asked(_WORKER)) if LINUX else ("?",) * 6


def bound_late() -> tuple[Any, Any, Any]:
    """After an operator with 4 threads, os.sched_setaffinity(0, {one CPU}): threads bound, all, torch.get_num_threads()."""
    return tuple(asked(_LATE)) if LINUX else ("?", "?", "?")


def one_or_all(*threads: Any) -> list[str]:
    """Numbers in the words of the prediction. More than one are all: a library may count cores, or have a most of its own."""
    return [str(number) if number in (1, "?") else "all" for number in threads]


_PYTHON_THREADS = """
torch.set_num_threads(4)
x = torch.empty(100_000)
x * 2
barrier, counts, before = threading.Barrier(3), [], psutil.Process().num_threads()

def mine():
    barrier.wait()
    x + 1
    barrier.wait()
    counts.append(psutil.Process().num_threads())
    barrier.wait()

others = [threading.Thread(target=mine) for _ in range(2)]
for t in others: t.start()
for _ in range(3): barrier.wait()
for t in others: t.join()
answer([max(counts) - before])
"""


@cache
def python_threads() -> Any:
    """How many new threads there are while two Python threads run an operator each, with 4 intra-op threads set."""
    return asked(_PYTHON_THREADS)[0] if LINUX else "?"


def say_counts(late: Sequence[Any]) -> None:
    """late: what bound_late() counted."""
    bound_now, there, still = late
    print(f"after the late call: {bound_now} of {there} threads bound; torch.get_num_threads() is {still}")
    print(f"two Python threads run an operator each, 4 intra-op threads set: {python_threads()} new threads")


# --- 3, what more threads can bring -------------------------------------------------------------------------------


def speedups(curves: Mapping[str, Mapping[int, float]], wake_ns: float, each_ns: float) -> Picture:
    """The model's steps: name → number of threads → times as fast as one thread."""
    return plots.curves(
        {
            "": {name: (tuple(curve), tuple(curve.values())) for name, curve in curves.items()}
            | {"1 ÷ serial part": ([1, 64], [11, 11])}
        },
        evidence="arithmetic",
        title="Speed-up of a step against its threads",
        note=f"10 operators and one that is not split; a team costs {wake_ns / 1e3:g} µs and {each_ns / 1e3:g} µs a thread",
        xlabel="threads",
        ylabel="times as fast as 1 thread",
        dashed=("1 ÷ serial part",),
    )


# --- 4, layout ----------------------------------------------------------------------------------------------------

_ONEDNN = """
log = tempfile.TemporaryFile("w+")
os.dup2(log.fileno(), 1)  # oneDNN prints from C, to number 1
torch.set_num_threads(1)
conv, last = torch.nn.Conv2d(16, 32, 3), torch.channels_last
x, done, inside = torch.randn(2, 16, 20, 20), {}, {}

def run(name, module, given):
    at = os.fstat(log.fileno()).st_size
    module(given)
    log.seek(at)
    lines = [line.split(",") for line in log.read().splitlines() if ",primitive,exec," in line]
    done[name] = [(line[5], line[8], line[-2]) for line in lines]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        module(given)
    inside[name] = sum(event.name == "aten::copy_" for event in profile.events())

with torch.no_grad():
    run("x and weights contiguous", conv, x)
    run("x channels_last, weights contiguous", conv, x.to(memory_format=last))
    conv.to(memory_format=last)
    run("x and weights channels_last", conv, x.to(memory_format=last))
answer([done, inside])
"""


@cache
def onednn() -> tuple[dict[str, list[Any]], dict[str, int]]:
    """What oneDNN did for one convolution in three layouts, by name: (primitive, layouts, sizes) each; and the copies that
    ATen made before."""
    if not LINUX:
        return {}, {}
    primitives, copies = asked(_ONEDNN, ONEDNN_VERBOSE="1")
    return primitives, copies


def reorders(names: Sequence[str]) -> dict[str, int]:
    """How many reorders oneDNN printed for each of these convolutions."""
    primitives, _ = onednn()
    return {name: sum(kind == "reorder" for kind, *_ in primitives.get(name, ())) for name in names}


#: oneDNN's names; a dimension that is cut into blocks, as wide as the processor's vectors, has a capital letter and a number
_LAYOUTS = {"abcd": "contiguous", "acdb": "channels_last"}


def layouts_table(names: Sequence[str]) -> Table:
    """What each of these convolutions did, primitive by primitive."""
    shape = {"2x16x20x20": "x", "32x16x3x3": "weights", "2x32x18x18": "result"}
    primitives, copies = onednn()
    rows = []
    for name in names:
        if copies.get(name):
            rows.append((name, "copy, by ATen", "weights", "contiguous → channels_last"))
        for kind, layout, size in primitives.get(name, ()):
            parts = [part.split(":")[4] for part in layout.split() if not part.startswith("bia")]
            rows.append(
                (name, kind, shape.get(size, ""), " → ".join(_LAYOUTS.get(p, "blocks") for p in parts))
            )
    note = "blocks: a dimension is cut into pieces as wide as the processor's vectors"
    return table(rows, ["convolution", "primitive", "of", "layouts"], evidence="live (CPU)", caption=note)


class _Clock(Mode):
    """The seconds of each operator, by its name and its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.took: dict[tuple[Any, int], float] = {}
        self._turns = Counter[Any]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        began = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        self.took[func, self._turns[func]] = time.perf_counter() - began
        self._turns[func] += 1
        return result


def fastest(work: Callable[[], Any], threads: int, runs: int) -> str:
    """The time of work's operators, each at the fastest of so many runs: a team waits for its slowest thread, so what else runs on
    this machine disturbs most of them. Without the time between operators. After ten seconds there is no further run."""
    best: dict[tuple[Any, int], float] = {}
    with set_torch_threads(threads):
        work()
        end = time.perf_counter() + 10
        for _ in range(runs):
            if time.perf_counter() > end:
                break
            with _Clock() as clock:
                work()
            best = {key: min(took, best.get(key, took)) for key, took in clock.took.items()}
    return "≈ " + format_seconds(sum(best.values()))


@torch.no_grad()
def time_layouts() -> None:
    """Two convolutions of 1 × 64 × 56 × 56 with 3 × 3 filters, in both layouts, on one thread; printed."""
    x, last = torch.randn(1, 64, 56, 56), torch.channels_last
    turned = x.to(memory_format=last)
    for groups, what in ((1, "all 64 channels"), (64, "one channel")):
        conv = torch.nn.Conv2d(64, 64, 3, padding=1, groups=groups)
        times = [fastest(partial(conv, x), 1, 200)]
        conv.to(memory_format=last)  # type: ignore[call-overload]
        times.append(fastest(partial(conv, turned), 1, 200))
        print(f"each filter reads {what}: contiguous {times[0]}, channels_last {times[1]}, live (CPU)")


# --- the running example ------------------------------------------------------------------------------------------


def shareable(step: Callable[[], Any], grain: int) -> tuple[int, int]:
    """The tensors that a step makes, and how many of them hold more floats than `grain`; printed with the number of operators.

    To be called before any timing, whose number of steps depends on the machine: one step in five reads its loss, by one operator
    more.
    """
    run = count(step)
    large = sum(nbytes > 4 * grain for _, nbytes in run.allocations)
    print(
        f"a step: {run.operators} operators; {len(run.allocations)} tensors made, {large} above {grain:,} floats"
    )
    return len(run.allocations), large


# --- on the real GPU ----------------------------------------------------------------------------------------------


def turning_kernels(results: Sequence[Result]) -> Table:
    """The runs of the experiment "12/layouts": kernels of one half-precision convolution and of eight in a row, and of them those
    whose names say that they change a layout."""
    rows = [
        (
            f"{row['depth']} × convolution, batch {row['batch']}",
            row["layout"],
            run.kind,
            len(row["kernels"]),
            sum("tonhwc" in k.lower() or "tonchw" in k.lower() for k in row["kernels"]),
            run.about + format_seconds(row["us"] / 1e6),
        )
        for run in results
        for row in run.table or ()
    ]
    columns = ["64 channels, 56 × 56, fp16", "layout", "run", "kernels", "that change the layout", "time"]
    return table(rows, columns, evidence=" · ".join(run.evidence for run in results))


def furthest_off(simulated: Result, recorded: Result) -> float:
    """The largest ratio, either way, of a simulated to a recorded time of the experiment "12/layouts"."""
    rows = zip(simulated.table or (), recorded.table or (), strict=True)
    return max(max(ours["us"] / real["us"], real["us"] / ours["us"]) for ours, real in rows)


# --- further ------------------------------------------------------------------------------------------------------

PAGES = 16_384  #: 64 MiB


def pages(writers: Sequence[int], readers: Sequence[int]) -> list[tuple[int, int, int]]:
    """(pages, node of the writer, node of the reader) of a tensor's parts. writers, readers: the node of each thread."""
    parts = max(len(writers), len(readers))
    return [
        (PAGES // parts, writers[i * len(writers) // parts], readers[i * len(readers) // parts])
        for i in range(parts)
    ]


def local_percent(parts: Sequence[tuple[int, int, int]]) -> int:
    """The share of pages that lie on the node of their reader."""
    return round(100 * sum(n for n, w, r in parts if w == r) / sum(n for n, *_ in parts))


def pages_picture(tensors: Mapping[str, Sequence[tuple[int, int, int]]]) -> Picture:
    """On which node each part of a tensor lies, and on which it is read."""
    return strips(
        {
            name: ([(n, w, f"{w} → {r}") for n, w, r in parts], f"{local_percent(parts)} % local")
            for name, parts in tensors.items()
        },
        "Pages of one tensor: the node where they lie → the node where they are read",
        "blue: lies on node 0; orange: on node 1. Each part is read by one thread; last row: two tensors. A model of first touch",
    )


def written(fn: Callable[..., Any], *given: Any) -> str:
    """The C++ that Inductor writes for this machine; empty where no compiler can say what the machine has."""
    try:
        return "\n".join(compiling.kernels(fn, *given, vectors=True).bodies().values())
    except compiling.CannotCompile:
        return ""
