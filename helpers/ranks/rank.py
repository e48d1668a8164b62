"""One rank, from its first instruction to its last: run the job, leave its result or its error in the folder.

The folder is all that passes between a rank and the notebook:

    job.json, job.pickle       what to run                    store        where the ranks find each other
    rank1.ready                the job's function begins      rank1.out    what Python printed
    rank1.result | rank1.error how it ended                   rank1.err    what C++ printed
    rank1.stack                where it was when asked

A rank that has ended stays until it is killed: if it left, its connections would close, and the others would
fail of that and not of their own faults.
"""

import ctypes
import faulthandler
import io
import json
import linecache
import os
import pickle
import random
import signal
import socket
import sys
import threading
import time
import traceback
import types
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

from helpers import keeping

#: seconds after the time-out at which a rank that nobody has ended ends itself
_FORGOTTEN = 120


def die_with_parent() -> None:
    """Linux: be killed when the process that made this one ends, however it ends."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, prctl(2)
        if os.getppid() != parent:
            os._exit(1)


def spawned(folder: str, rank: int) -> None:
    """The whole life of a rank that was started as a program of its own."""
    die_with_parent()

    def hear() -> None:
        sys.stdin.buffer.read()  # ends when the notebook does
        os._exit(1)

    threading.Thread(target=hear, daemon=True).start()
    main(folder, rank)


def main(folder: str, rank: int) -> None:
    """Run the job of ``folder`` as ``rank``; does not return."""
    place = Path(folder)
    try:
        job = json.loads((place / "job.json").read_text(encoding="utf-8"))
        _settle(place, rank, job)
        result = _work(place, rank, job)
        from .values import save  # here, so that torch is imported in the rank's own environment

        save(result, place / f"rank{rank}.result")
    except BaseException as problem:
        _tell(place, rank, problem)
    (place / f"rank{rank}.done").touch()
    while True:
        time.sleep(3600)


def _settle(place: Path, rank: int, job: dict[str, Any]) -> None:
    """Become the rank: its output, environment, threads and random numbers."""
    for fd in (1, 2):
        opened = os.open(place / f"rank{rank}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, fd)
        os.close(opened)
    out = open(place / f"rank{rank}.out", "wb", buffering=0)  # noqa: SIM115 - it stays open until the end
    sys.stdout = sys.stderr = io.TextIOWrapper(out, encoding="utf-8", errors="replace", write_through=True)
    stack = open(place / f"rank{rank}.stack", "w", encoding="utf-8")  # noqa: SIM115
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
    faulthandler.dump_traceback_later(job["timeout"] + _FORGOTTEN, exit=True, file=stack)
    faulthandler.enable(2)  # a fault in native code says where Python was
    os.environ.clear()
    os.environ.update(job["environ"])
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"}
    os.environ |= {"WORLD_SIZE": str(job["n"]), "LOCAL_WORLD_SIZE": str(job["n"])}
    # nobody connects to it, but some libraries want to see one
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    if loopback := _loopback():
        # gloo asks for the address of the host's name otherwise, which not every machine can tell
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    warnings.showwarning = _warn
    os.chdir(job["cwd"])
    sys.path[:] = job["path"]
    sys.argv[:] = [""]
    for name, lines in job["lines"].items():
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    import numpy as np
    import torch

    from helpers.pytorch import private_torch

    # a torch built for CUDA takes it where no device is named, as in fully_shard without a mesh, with a GPU or without
    setattr(*private_torch.place("default_device"), lambda *_: torch.device("cpu"))
    torch.set_num_threads(job["threads"])
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def _warn(message: Any, category: Any, *where: Any, **more: Any) -> None:
    # without the path: what a notebook shows is the same on every machine
    print(f"{category.__name__}: {message}")


def _loopback() -> str:
    try:
        names = [name for _, name in socket.if_nameindex()]
    except OSError:
        return ""
    return next((name for name in ("lo", "lo0") if name in names), "")


def _work(place: Path, rank: int, job: dict[str, Any]) -> Any:
    import torch.distributed as dist

    dist.init_process_group(
        "gloo",
        store=dist.FileStore(str(place / "store"), job["n"]),
        rank=rank,
        world_size=job["n"],
        # the run's own time-out comes first, and says more
        timeout=timedelta(seconds=job["timeout"] + _FORGOTTEN),
    )
    main_module = types.ModuleType("__main__")
    sys.modules["__main__"] = main_module
    with open(place / "job.pickle", "rb") as file:
        fn, args = pickle.load(file)
    # what the notebook defined is also found by name: pickle looks there, as do object collectives
    vars(main_module).update(getattr(fn, "__globals__", {}))
    (place / f"rank{rank}.ready").touch()
    return fn(*args)


def _tell(place: Path, rank: int, problem: BaseException) -> None:
    from .stacks import described

    with open(place / f"rank{rank}.err", "a", encoding="utf-8") as file:
        traceback.print_exception(problem, file=file)
    keeping.write(place / f"rank{rank}.error", json.dumps(described(problem)))
