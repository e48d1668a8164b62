"""A process that has imported torch and run nothing: forking it costs milliseconds, importing torch seconds.

It reads requests from its standard input, a line of JSON each, and answers in the same way. It ends when its
input does, that is when the notebook's process ends, and takes every rank with it. Linux only: elsewhere a
fork of a process that has loaded torch is not safe, and ranks are started as programs.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import psutil


def main() -> None:
    """Serve until the input ends."""
    load()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever prints goes elsewhere
    serve(0, out)
    os._exit(0)  # taking torch down in good order would take a second


def load() -> None:
    """Import what every rank needs: before any fork, so that none pays for it. Runs nothing, starts no thread."""
    import torch.distributed  # noqa: F401

    from . import carrying, costs, faking, rank, sending, stacks, values  # noqa: F401

    # torch._dynamo: optimizers and DistributedDataParallel import it when they are made, in each rank anew, and with it
    # comes nearly all that FSDP and tensor parallelism do
    for name in ("numpy", "cloudpickle", "torch._dynamo", "helpers.counters"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def serve(into: int, out: Any) -> None:
    """Answer the requests that come through the descriptor ``into``; returns when there are no more."""
    # processes that a rank has started become this one's children when the rank ends, so that it can end
    # them too
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER, prctl(2)
    ranks: dict[int, int] = {}  # process → rank
    ended: dict[int, int] = {}  # rank → how it ended: its exit status, or minus the signal
    _answer(out, {"ready": os.getpid()})
    for request in _requests(into):
        if request["do"] == "start":
            end_all(ranks)
            gc.freeze()  # a rank's collections pass over what is loaded here, and so do not copy its pages
            ended = {}
            ranks = {_fork(request["folder"], i, into, out): i for i in range(request["n"])}
        elif request["do"] == "poll":
            _reap(ranks, ended)
        elif request["do"] == "signal":
            for pid, number in ranks.items():
                if number not in ended:
                    os.kill(pid, request["signal"])
        elif request["do"] == "stop":
            end_all(ranks)
            ranks = {}
        _answer(out, {"ended": ended, "ranks": {i: pid for pid, i in ranks.items()}})
    end_all(ranks)


def _answer(out: Any, reply: dict[str, Any]) -> None:
    out.write(json.dumps(reply) + "\n")
    out.flush()


def _requests(into: int) -> Iterator[dict[str, Any]]:
    parent, rest = os.getppid(), b""
    while True:
        # a process that the notebook has forked may hold the other end open: look for the notebook itself too
        ready, _, _ = select.select([into], [], [], 1.0)
        if not ready:
            if os.getppid() != parent:
                return
            continue
        chunk = os.read(into, 1 << 16)
        if not chunk:
            return
        *whole, rest = (rest + chunk).split(b"\n")
        yield from map(json.loads, whole)


def _fork(folder: str, number: int, into: int, out: Any) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        from . import rank

        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        rank.die_with_parent()
        os.close(out.fileno())
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, into)
        rank.main(folder, number)
    finally:
        os._exit(1)


def _reap(ranks: dict[int, int], ended: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            if pid in ranks:
                ended[ranks[pid]] = os.waitstatus_to_exitcode(status)


def end_all(processes: Iterable[int]) -> None:
    """Kill these with their sessions, and then whatever has come to this process since, until there is nothing."""
    for pid in processes:
        for kill in (os.kill, os.killpg):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                child.kill()
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.001)
        except ChildProcessError:  # there is none left
            return


if __name__ == "__main__":
    sys.exit("helpers.ranks starts this by itself")
