"""Run a function in n processes and hand back what each returned."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import starting
from .carrying import carry, lines
from .errors import RankError
from .stacks import asked

#: seconds that the other ranks get, once one has raised
GRACE = 0.25
#: seconds until all ranks have begun: a loaded machine may need many to import torch
START = 300.0
#: seconds between two looks at how the ranks are
LOOK = 0.05
#: characters that are shown of what one rank printed, and of an exception's text
SHOWN, TOLD = 20_000, 3_000

_one_at_a_time = threading.Lock()


def run_ranks(
    fn: Callable[..., Any],
    n: int,
    *args: Any,
    timeout: float = 60,
    threads: int = 1,
    stuck: float | None = None,
) -> list[Any]:
    """``fn(*args)`` in ``n`` processes at once; the list of what rank 0, 1, … returned.

    fn: a function of the notebook, of a script or of a module, with whatever it names there (functions,
        classes, constants, small tensors). Inside it torch.distributed is initialised: ``dist.get_rank()``,
        ``dist.get_world_size()``. Each rank has a copy: what it changes, the notebook does not see.
    args: anything that can be pickled, classes of the notebook included; models too.
    timeout: seconds from when all ranks have begun until all must have finished.
    threads: torch's threads in each rank.
    stuck: end them before, when all have waited, and none has wanted the processor, for so many seconds (Linux): a
        busy machine, which makes everything late, ends nobody.

    Ranks compute on the CPU, and speak by gloo: they see no GPU of this machine, so that they say the same on each.

    Returned values are plain data: numbers, strings, lists, tuples, dicts, tensors, arrays, :class:`Record`.
    What the ranks print is shown when all have ended, rank by rank. Each begins with random numbers seeded
    with 0, and with the notebook's environment, folder and import path. A rank never sees what ran in the
    notebook's process before, its threads included: it is forked from a process that has only imported torch,
    or is a program of its own.

    RankError: a rank raised (its own line is shown), died, or had not finished in time (where each was is
        shown).
    CannotCarry: something that fn names or is given cannot go to another process. In all cases every process
    of the run has ended, those that ranks have started included, and no file is left.

    >>> ranks.run_ranks(dist.get_rank, 2)
    [0, 1]
    """
    if n < 1:
        raise ValueError(f"run_ranks wants at least one rank, got {n}")
    data = carry(fn, args)
    with _one_at_a_time:
        folder = Path(tempfile.mkdtemp(prefix="ranks-"))
        try:
            (folder / "job.pickle").write_bytes(data)
            job = _job(n, timeout, threads)
            (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
            return _run(folder, n, timeout, stuck)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _job(n: int, timeout: float, threads: int) -> dict[str, Any]:
    return {
        "n": n,
        "timeout": timeout,
        "threads": threads,
        "cwd": os.getcwd(),
        "path": sys.path,
        "environ": os.environ | starting.NO_GPU,
        "lines": lines(),
    }


def _run(folder: Path, n: int, timeout: float, stuck: float | None) -> list[Any]:
    ranks = starting.Forked() if starting.FORKS else starting.Spawned()
    try:
        ranks.start(str(folder), n)
        problem = _wait(folder, n, timeout, stuck, ranks)
    finally:  # after Ctrl-C too
        ranks.stop()
    _show(folder, n)
    if problem is not None:
        raise problem
    from .values import load

    return [load(folder / f"rank{i}.result") for i in range(n)]


def _wait(folder: Path, n: int, timeout: float, stuck: float | None, ranks: Any) -> RankError | None:
    """None when every rank has its result; else what went wrong."""
    waiting = _Waiting(ranks.pids)
    began, all_ready, pause, looked, failed = time.monotonic(), False, 0.001, 0.0, 0.0
    while True:
        done = [(folder / f"rank{i}.done").exists() for i in range(n)]
        if all(done):
            return _raised(folder, n)
        if any((folder / f"rank{i}.error").exists() for i in range(n)):
            # others may be about to raise too: so that the same rank is told each time, not whoever came
            # first
            failed = failed or time.monotonic()
            if time.monotonic() - failed > GRACE:
                # one that has died has broken its connections, of which the others then raise
                ended = ranks.ended()
                return _died(folder, n, ended) if ended else _raised(folder, n)
        now = time.monotonic()
        if now - looked > LOOK:
            looked = now
            ended = ranks.ended()
            if ended:  # no rank ends by itself: it waits to be ended
                return _died(folder, n, ended)
            if stuck is not None and all_ready and waiting.looked() * LOOK > stuck:
                return _late(folder, n, f"had waited, all of them, for {stuck:g} s", ranks)
        if not all_ready and all((folder / f"rank{i}.ready").exists() for i in range(n)):
            all_ready, began = True, now
        if now - began > (timeout if all_ready else START):
            limit = timeout if all_ready else START
            return _late(folder, n, f"had not finished after {limit:g} s", ranks)
        time.sleep(pause)
        pause = min(pause * 1.3, 0.02)


def _raised(folder: Path, n: int) -> RankError | None:
    """The lowest rank that raised, if one did."""
    errors = {i: json.loads(noted) for i in range(n) if (noted := _read(folder / f"rank{i}.error"))}
    if not errors:
        return None
    # a rank that has raised stays, with its connections open: nobody else can have raised because of it
    rank = min(errors)
    error = errors[rank]
    text = error["text"] if len(error["text"]) <= TOLD else error["text"][:TOLD] + " …"
    message = f"rank {rank} of {n} raised {error['kind']}: {text}"
    if error["where"]:
        message += "\n  " + "\n  ".join(error["where"])
    return RankError(message, rank, error["kind"], error["text"], tuple(error["where"]))


def _died(folder: Path, n: int, ended: dict[int, int]) -> RankError:
    rank = min(ended)
    code = ended[rank]
    how = f"ended by itself with exit status {code}"
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        why = {"SIGKILL": " (out of memory?)", "SIGSEGV": " (a fault in native code)"}.get(name, "")
        how = f"was killed by {name}{why}"
    printed = _read(folder / f"rank{rank}.err").strip()
    message = f"rank {rank} of {n} {how}, without a result or an exception"
    if at := asked(printed):  # faulthandler's stack: of it, the learner's own line tells
        message += f"\n  it was at {at}"
    elif printed:
        message += "\n  it said: " + printed[-1000:].replace("\n", "\n  ")
    return RankError(message, rank, "Died", how)


class _Waiting:
    """Whether all ranks wait: no thread of theirs runs, or would if a core were free (proc(5), schedstat)."""

    def __init__(self, pids: list[int]) -> None:
        self._pids, self._wanted_ns, self._looks = pids, 0, 0

    def looked(self) -> int:
        """How many times in a row they were seen to wait. Looks, not seconds: a machine may have stood still meanwhile."""
        wanted_ns, asleep = 0, True
        for pid in self._pids:
            for thread in Path(f"/proc/{pid}/task").glob("*"):
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    state, taken = (
                        (thread / name).read_text(encoding="utf-8", errors="replace")
                        for name in ("stat", "schedstat")
                    )
                    asleep &= state.rpartition(")")[2].split()[0] == "S"
                    wanted_ns += sum(map(int, taken.split()[:2]))
        # gloo's thread wakes every 10 ms, and looks whether it is to end: some hundredths of a core
        waits = 0 < wanted_ns <= self._wanted_ns + 0.1 * LOOK * 1e9 * len(self._pids)
        self._looks = self._looks + 1 if asleep and waits else 0
        self._wanted_ns = wanted_ns
        return self._looks


def _late(folder: Path, n: int, why: str, ranks: Any) -> RankError:
    missing = [i for i in range(n) if not (folder / f"rank{i}.done").exists()]
    ranks.ask_where()
    until = time.monotonic() + 3
    while time.monotonic() < until and not all(_dump(folder, i) for i in missing):
        time.sleep(0.01)
    where = {i: asked(_dump(folder, i)) or "(it did not say where)" for i in missing}
    finished = [str(i) for i in range(n) if i not in missing]
    lines = [f"rank {i} was at {at}" for i, at in where.items()]
    if finished:
        lines.append(f"rank{'s' * (len(finished) > 1)} {', '.join(finished)} had finished")
    message = f"{len(missing)} of {n} ranks {why}, and were ended:"
    message = "\n  ".join([message, *lines])
    return RankError(message, missing[0], "TimeoutError", message, tuple(where.values()), where)


def _dump(folder: Path, rank: int) -> str:
    """What a rank wrote when it was asked where it is; "" until it is whole."""
    text = _read(folder / f"rank{rank}.stack")
    return text if "most recent call first" in text else ""


def _read(file: Path) -> str:
    """What a rank wrote; "" where there is none."""
    return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""


def _show(folder: Path, n: int) -> None:
    for i in range(n):
        text = _read(folder / f"rank{i}.out")
        rest = len(text) - SHOWN
        if rest > 0:
            text = text[:SHOWN].rpartition("\n")[0] + f"\n… and {rest:,} characters more"
        for line in text.splitlines():
            print(f"[rank {i}] {line}")
