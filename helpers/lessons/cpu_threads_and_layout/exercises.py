"""Tests of lesson 12: plans for workers, workers bound to CPUs, a net without conversions, a model of threads."""

import _thread
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, get_worker_info

from helpers import check, count
from helpers.check.compare import difference
from helpers.check.judges import each, each_value
from helpers.pytorch.dispatch_mode import Looking
from helpers.pytorch.flops import contracts
from helpers.pytorch.tensors import tensors
from helpers.simulator.accesses import accesses

_LAST = torch.channels_last
_AT_THREADS, _AT_MEMORY = "2 · Too many threads", "Which memory is near?"


# --- 12.3 thread_plan ---------------------------------------------------------------------------------------------


def machine(*sizes: int, siblings: int = 1) -> list[tuple[int, int, int]]:
    """Cores on each node; CPU numbers as Linux gives them: first one of each core, then the siblings."""
    homes = [node for node, cores in enumerate(sizes) for _ in range(cores)]
    return [(s * len(homes) + core, core, node) for s in range(siblings) for core, node in enumerate(homes)]


def random_machines(n: int) -> list[check.Case]:
    """Cases with CPUs in any order and of any number, some of them offline or not allowed."""
    chance = random.Random(n)
    cases: list[check.Case] = []
    while len(cases) < n:
        nodes = range(chance.choice((1, 2, 2, 3, 4)))
        homes = [node for node in nodes for _ in range(chance.choice((1, 2, 3, 5, 8, 12)))]
        numbers = chance.sample(range(3 * len(homes) + 4), 3 * len(homes) + 4)
        cpus = []
        for core, node in enumerate(homes):
            cpus += [(numbers.pop(), 7 * core + 3, 2 * node) for _ in range(chance.choice((1, 2, 2)))]
        chance.shuffle(cpus)
        allowed = [c for c, *_ in cpus if chance.random() < chance.choice((0.5, 0.9, 1.0))] + numbers[:2]
        if usable := len({core for cpu, core, _ in cpus if cpu in allowed}):
            workers = min(usable, chance.choice((1, 2, 3, 4, 5, 7, 9, 16)))
            cases.append(check.case(cpus, allowed, workers))
    return cases


def _plan_is_wrong(
    plan: list[list[int]], cpus: list[tuple[int, int, int]], allowed: list[int], workers: int
) -> str | None:
    """Whether it is a plan at all, and then the three wishes in their order."""
    of = {cpu: (core, node) for cpu, core, node in cpus if cpu in allowed}
    sizes = Counter(node for _, node in set(of.values()))
    where = f"nodes of {sorted(sizes.values())} usable cores, {len(of)} usable CPUs, {workers} worker(s)"
    if len(plan) != workers or not all(plan):
        return f"{where}: {len(plan)} in the plan, {sum(not p for p in plan)} of them without a CPU"
    if any(p != sorted(set(p)) for p in plan):
        return f"{where}: a worker's CPUs are not ascending, or one comes twice"
    if odd := [c for p in plan for c in p if c not in of]:
        return f"{where}: CPU {odd[0]} is in the plan, and is offline or not allowed"
    used = [of[c][0] for p in plan for c in p]
    if len(set(used)) < len(used):
        return f"{where}: a core comes twice (two CPUs may be siblings)"
    nodes = [{of[c][1] for c in p} for p in plan]
    if any(len(n) > 1 for n in nodes):
        return f"{where}: a worker's CPUs lie in two nodes"
    least = max(s for s in range(1, len(of) + 1) if sum(c // s for c in sizes.values()) >= workers)
    if min(map(len, plan)) < least:
        return f"{where}: the smallest worker has {min(map(len, plan))} core(s), and every one could have {least}"
    most = sum(sorted((c for c in sizes.values() if c >= least), reverse=True)[:workers])
    if len(used) < most:
        return f"{where}: {len(used)} cores work, and it could be {most} with no worker smaller than {least}"
    for node in sizes:
        shares = [len(p) for p, n in zip(plan, nodes, strict=True) if n == {node}]
        if shares and max(shares) - min(shares) > 1:
            return f"{where}: on one node, workers of {min(shares)} to {max(shares)} cores"
    return None


def check_thread_plan(*cases: check.Case, note: str = "") -> None:
    """cases: cpus, allowed, workers."""
    check.function("thread_plan", cases, verify=each_value(_plan_is_wrong), look=_AT_MEMORY, note=note)


# --- 12.1 bound ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Workers:
    """How many workers bind themselves by a plan, and on which machine.

    allowed: "here": this machine's own CPUs, for which those of the plan stand (from 900 on: a CPU that nobody has);
    a list: os plays a machine that allows these; None: a system that cannot bind, as every one but Linux is.
    one_ends: of the threads that are there already, the first to be bound ends before it is (where os plays a machine).
    """

    plan: list[list[int]]
    workers: int
    allowed: list[int] | str | None
    one_ends: bool = False


class _Played:
    """Binding as another machine's os does it."""

    def __init__(self, allowed: list[int], ending: dict[int, _thread.LockType]) -> None:
        """ending: threads of which the first that put() is asked for ends before put() looks, as its lock is released."""
        self.allowed, self.sets, self.ending = set(allowed), dict[int, set[int]](), ending

    def get(self, thread: int) -> set[int]:
        return set(self.sets.get(thread or threading.get_native_id(), self.allowed))

    def put(self, thread: int, cpus: Any) -> None:
        if end := self.ending.get(thread):
            self.ending.clear()
            end.release()
            while _is_here(thread):
                time.sleep(0.001)
        if thread and not _is_here(thread):
            raise ProcessLookupError(3, "No such process")
        if not set(cpus) & self.allowed:
            raise OSError(22, "Invalid argument")
        self.sets[thread or threading.get_native_id()] = set(cpus) & self.allowed


def _is_here(thread: int) -> bool:
    return os.path.exists(f"/proc/self/task/{thread}")


@contextmanager
def _binding_by(played: _Played | None, possible: bool) -> Iterator[None]:
    """Within this block os binds as it does on the machine that is played, or cannot."""
    kept = {n: getattr(os, n) for n in ("sched_getaffinity", "sched_setaffinity") if hasattr(os, n)}
    try:
        if played:
            os.sched_getaffinity, os.sched_setaffinity = played.get, played.put  # type: ignore[assignment]
        for name in () if possible else kept:
            delattr(os, name)
        yield
    finally:
        for name, real in kept.items():
            setattr(os, name, real)


#: the real one, whatever os plays; where there is none, nothing is bound
_AFFINITY: Callable[[int], set[int]] = getattr(os, "sched_getaffinity", lambda thread: set())


def _cpus_of(thread: int) -> list[int]:
    return sorted(_AFFINITY(thread))


def _begun_now() -> dict[str, Any]:
    """The CPUs of a thread and of a program that this process starts, and what the program reads."""
    later: list[list[int]] = []
    thread = threading.Thread(target=lambda: later.append(_cpus_of(threading.get_native_id())))
    thread.start()
    thread.join()
    ask = "import os; print(*os.sched_getaffinity(0)); print(os.environ.get('OMP_NUM_THREADS'))"
    done = subprocess.run([sys.executable, "-SEc", ask], capture_output=True, encoding="utf-8", timeout=60)
    cpus, omp = done.stdout.splitlines()
    return {"later": later[0], "program": sorted(map(int, cpus.split())), "program omp": omp}


def _numbers() -> dict[str, Any]:
    return {"torch": torch.get_num_threads(), "omp": os.environ.get("OMP_NUM_THREADS")}


def _tell(
    bound: Callable[..., Any],
    plan: list[list[int]],
    workers: int,
    allowed: list[int] | str | None,
    one_ends: bool,
) -> dict[str, Any]:
    """What real workers say of themselves, and whether the process that started them has changed."""
    linux, real = sys.platform == "linux", allowed == "here"
    if not linux:
        allowed = None
    elif real:
        mine = allowed = sorted(os.sched_getaffinity(0))
        plan = [sorted({mine[c % len(mine)] if c < 900 else c for c in entry}) for entry in plan]
    # when the plan is given, another CPU is allowed than later, where the workers are
    ending = dict[int, _thread.LockType]()
    played = _Played([997], ending) if isinstance(allowed, list) and not real else None
    sets = _cpus_of if played is None else lambda thread: sorted(played.get(thread))

    def facts_of(worker: int) -> dict[str, Any]:
        facts = {"worker": worker, **_numbers()}
        if allowed is not None:
            facts["there"] = [sets(int(t)) for t in sorted(os.listdir("/proc/self/task"))]
        return facts | (_begun_now() if linux and real else {})

    def begin(worker: int) -> None:
        waiting = dict[int, _thread.LockType]()

        def wait() -> None:
            lock = _thread.allocate_lock()
            lock.acquire()
            waiting[threading.get_native_id()] = lock
            lock.acquire()  # until somebody releases it, or the worker ends

        for _ in range(2):  # threads that are there already, and that `threading` does not know
            _thread.start_new_thread(wait, ())
        while len(waiting) < 2:
            time.sleep(0.001)
        ending.update(waiting if one_ends else {})
        init(worker)

    def state() -> list[Any]:
        return [_numbers(), _cpus_of(os.getpid())]

    before = state()
    with _binding_by(played, allowed is not None):
        init = bound(plan)
        if played is not None and isinstance(allowed, list):
            played.allowed = set(allowed)
        if linux:
            how: dict[str, Any] = {"timeout": 60, "multiprocessing_context": "fork", "worker_init_fn": begin}
            how |= {"num_workers": workers, "collate_fn": lambda _: facts_of(get_worker_info().id)}  # type: ignore[union-attr]
            turns: Any = range(workers)  # one for each
            try:
                by_worker, after = list(DataLoader(turns, None, **how)), state()
            except Exception as odd:
                # without its frames, which would keep the other workers until some later fork
                raise odd.with_traceback(None) from None
        else:  # no fork: one after the other, in this process
            by_worker, after = [init(worker) or facts_of(worker) for worker in range(workers)], before
            torch.set_num_threads(before[0]["torch"])
            os.environ.pop("OMP_NUM_THREADS", None)
            os.environ.update({"OMP_NUM_THREADS": omp} if (omp := before[0]["omp"]) else {})
    return {"plan": plan, "allowed": allowed, "by worker": by_worker, "touched": after != before}


def _bound_right(report: check.Report) -> str | None:
    got, workers = report.value, report.case.workers
    if sorted(facts["worker"] for facts in got["by worker"]) != list(range(workers)):
        return f"{workers} workers were started, {len(got['by worker'])} answered"
    ended = " (one thread had ended before it was bound)" * report.case.one_ends
    for facts in got["by worker"]:
        if text := _not_bound(facts, got["plan"], got["allowed"]):
            return f"worker {facts['worker']} of {workers}, plan {got['plan']}, {text}{ended}"
    if got["touched"]:
        return "the process that called bound(plan) has changed: its CPUs, threads or OMP_NUM_THREADS"
    return None


def _not_bound(facts: dict[str, Any], plan: list[list[int]], allowed: list[int] | None) -> str | None:
    want, where = sorted(plan[facts["worker"] % len(plan)]), "no os.sched_setaffinity"
    if allowed is not None:
        want, where = [c for c in want if c in allowed] or allowed, f"allowed {allowed}"
    there = facts.get("there", [])
    if loose := [cpus for cpus in there if cpus != want]:
        return f"{where}: {len(loose)} of its {len(there)} threads may run on {loose[0]}; wanted {want}"
    for name, what in (("later", "a thread started afterwards"), ("program", "a program that it starts")):
        if facts.get(name, want) != want:
            return f"{where}: {what} may run on {facts[name]}; wanted {want}"
    if facts["torch"] != len(want):
        return f"{where}: torch uses {facts['torch']} thread(s); wanted {len(want)}"
    for name in ("omp", "program omp"):
        if facts.get(name, str(len(want))) != str(len(want)):
            return f"{where}: OMP_NUM_THREADS is {facts[name]} there; wanted {len(want)}"
    return None


def check_bound(*cases: Workers, note: str = "") -> None:
    check.function("bound", cases, drive=_tell, verify=each(_bound_right), look=_AT_THREADS, note=note)


# --- 12.4 channels_last_net ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Net:
    """A net of so many channels and blocks, and batches of images: their rows, and whether in channels_last.

    side: an image's height, and its width too unless `wide` says another.
    """

    channels: int
    blocks: int
    side: int
    rows: tuple[int, ...]
    layouts: tuple[bool, ...]
    seed: int = 0
    wide: int = 0

    def numbers(self) -> tuple[dict[str, Any], list[torch.Tensor]]:
        """The weights, the batches."""
        g, c = torch.Generator().manual_seed(self.seed), self.channels

        def mix() -> dict[str, torch.Tensor]:
            wide, order = torch.randn(c, c, 3, 3, generator=g) / (3 * c**0.5), torch.randperm(c, generator=g)
            return {"mix": wide, "order": order, "point": torch.randn(c, c, generator=g) / c**0.5}

        mixes = [mix() for _ in range(self.blocks)]
        stem = torch.randn(c, 3, 3, 3, generator=g) / 5
        wide = self.wide or self.side
        head = torch.randn(5, 2 * c * (self.side // 4) * (wide // 4), generator=g) / self.side
        batches = [torch.randn(n, 3, self.side, wide, generator=g) for n in self.rows]
        return {"stem": stem, "blocks": mixes, "head": head}, batches


@cache
def _plainly(asked: Net) -> list[torch.Tensor]:
    """What the lesson's plain_net makes of each batch."""

    def plain_net(x: torch.Tensor) -> torch.Tensor:
        x = F.conv2d(x, weights["stem"], stride=2, padding=1).relu()
        for block in weights["blocks"]:
            y = F.conv2d(x, block["mix"], padding=1)[:, block["order"]]
            y = F.layer_norm(y.permute(0, 2, 3, 1), y.shape[1:2]).permute(0, 3, 1, 2)
            y = torch.einsum("oc,nchw->nohw", block["point"], y)
            x = y.mean((2, 3)).sigmoid()[:, :, None, None] * y + x
        return F.linear(torch.cat([F.avg_pool2d(x, 2), F.max_pool2d(x, 2)], 1).flatten(1), weights["head"])

    weights, batches = asked.numbers()
    return [plain_net(x) for x in batches]


class _Layouts(Looking):
    """Sees which operators change a layout, and whether convolutions get x and weights in channels_last."""

    def __init__(self) -> None:
        super().__init__()
        self.turned: list[tuple[str, tuple[int, ...]]] = []
        self.convolutions: list[tuple[bool, ...]] = []

    def saw(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        name, given = str(func._overloadpacket), list(tensors([args, kwargs]))
        if "convolution" in name:
            self.convolutions.append(tuple(t.is_contiguous(memory_format=_LAST) for t in given[:2]))
        # an operator on lists that writes in place returns nothing: its schema says what it has written
        for out in [t for t, written in accesses(func, args, kwargs, result) if written]:
            same = [t for t in given if _sizes(t) == _sizes(out) and t is not out]
            if len(_sizes(out)) == 2 and contracts(name):  # a square weight is read as it lies
                same = [t for t in same if len(set(_sizes(t))) == 2]
            if any(_order(t) != _order(out) for t in same):
                self.turned.append((name, tuple(out.shape)))


def _sizes(t: torch.Tensor) -> list[int]:
    """Of its dimensions of more than 1."""
    return [n for n in t.shape if n > 1]


def _order(t: torch.Tensor) -> list[int]:
    """These dimensions, from the largest stride to the smallest."""
    strides = [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1]
    return sorted(range(len(strides)), key=strides.__getitem__, reverse=True)


def _strides(weights: Any) -> list[list[int]]:
    return [list(t.stride()) for t in tensors(weights)]


def _watch(channels_last_net: Callable[..., Any], **fields: Any) -> dict[str, Any]:
    """Each batch through one net: its result, read after the last call, its copies, and what happened to the layout.

    A batch lies in the memory of the one before of its shape and layout, as a loader's that fills one buffer.
    """
    asked = Net(**fields)
    weights, batches = asked.numbers()
    runs = []
    buffers: dict[Any, torch.Tensor] = {}
    with torch.no_grad():
        forward = channels_last_net(weights)
        for x, at in zip(batches, asked.layouts, strict=True):
            x = x.contiguous(memory_format=_LAST) if at else x
            given = buffers.setdefault((x.shape, at), x).copy_(x)
            with count() as counts, _Layouts() as seen:
                y = forward(given)
            moved = [k for k in counts.by_operator if k.split(".")[1] in ("clone", "_to_copy", "copy_")]
            runs.append([y, counts.copies, moved, seen.turned, seen.convolutions])
    return {"runs": runs, "weights": weights, "strides": _strides(weights)}


#: what these come from
_KNOWN = {
    "aten.bmm": " (einsum and matmul become bmm)",
    "aten.clone": " (flatten, reshape or contiguous)",
    "aten.add": ", whose first operand that has a layout decides",
}


def _no_conversion(report: check.Report) -> str | None:
    asked, got = report.case, report.value
    weights, batches = asked.numbers()
    if difference(got["weights"], weights, 0, 0) or _strides(weights) != got["strides"]:
        return "the weights given were changed (a number, a layout, or what a dictionary holds)"
    wanted = _plainly(asked)
    for i, want in enumerate(wanted):
        shape, last = tuple(batches[i].shape), asked.layouts[i]
        if text := _converts(got["runs"][i], want, [] if last else [shape], 1 + asked.blocks):
            if same := [j for j, other in enumerate(wanted) if _close(got["runs"][i][0], other) and j != i]:
                text = (
                    f"after the last call it holds the result of batch {same[0]}: what do your calls share?"
                )
            return f"batch {i} of {shape}, {'channels_last' if last else 'contiguous'}: {text}"
    return None


def _close(y: Any, want: torch.Tensor) -> bool:
    return difference(y, want, rtol=1e-4, atol=1e-4) is None


def _converts(run: Any, want: torch.Tensor, entry: list[tuple[int, ...]], least: int) -> str | None:
    """entry: the shapes that are to be converted, x or none. least: so many convolutions at least."""
    y, copies, moved, turned, seen = run
    if odd := difference(y, want, rtol=1e-4, atol=1e-4):
        return odd
    inside = [t for t in turned if t[1] not in entry]
    if inside or len(turned) > len(entry):
        name, shape = (inside or turned)[0]
        return f"values right, but {len(turned)} operator(s) changed a layout, wanted {len(entry)}: {name} of {shape}{_KNOWN.get(name, '')}"
    if len(seen) < least:
        return f"values right, but {len(seen)} convolutions ran; wanted {least} or more"
    for which, (of_x, of_weights) in enumerate(seen):
        if not (of_x and of_weights):
            return f"values right, but convolution {which} had {'weights' if of_x else 'an input'} not in channels_last"
    if copies > 1 + len(entry):
        by = ", ".join(k + _KNOWN.get(k, "") for k in moved) or "index, gather or the like"
        return f"values right, but {copies} copies, wanted at most {1 + len(entry)} (cat{', and x' if entry else ''}); also by {by}"
    return None


def check_channels_last_net(*cases: Net, note: str = "") -> None:
    known: dict[str, Any] = {"budget": {"syncs": 0}, "look": "Who loses channels_last?", "note": note}
    check.function("channels_last_net", cases, drive=_watch, verify=each(_no_conversion), **known)


# --- 12.2 best_threads --------------------------------------------------------------------------------------------


def random_steps(n: int) -> list[check.Case]:
    """Steps of up to seven parts, on machines of up to 64 cores."""
    draw, cases = random.Random(n), []
    pick, sizes = draw.choice, (1, 30_000, 32_768, 32_769, 70_000, 300_001, 2_000_003, 50_000_000)
    for _ in range(n):
        many = range(draw.randint(1, 7))
        parts = [(pick(sizes), float(draw.randint(1_000, 900_000)), draw.random() < 0.8) for _ in many]
        cores, copies = pick((1, 2, 3, 6, 8, 13, 24, 64)), pick((1, 1, 2, 3, 5, 64))
        wake_ns, each_ns = float(pick((500, 3_001, 20_003))), float(pick((37, 501, 2_003)))
        cases.append(check.case(parts, cores, copies, wake_ns, each_ns))
    return cases


def answer(threads: int, speedup: float, bound: float, each: int, processes: int) -> dict[str, float]:
    return {"threads": threads, "speedup": speedup, "bound": bound, "each": each, "processes": processes}


def check_best_threads(*cases: check.Case, expect: Any, note: str = "") -> None:
    """cases: parts, cores, copies, wake_ns, each_ns. expect: an answer for each, or a function of these."""
    match, look = check.Match(rtol=1e-9), "3 · What can more threads bring?"
    check.function("best_threads", cases, expect, match=match, look=look, note=note)
