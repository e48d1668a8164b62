"""Run one experiment: on the GPU that is there, on a simulated one, or in a process of its own.

    python -m helpers.recordings.running MODULE NAME FOLDER [CARD]

is that process: it imports the module that registers the experiment, and packs the results into the folder.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from helpers import keeping
from helpers.recordings import files
from helpers.recordings.registry import Experiment, find

ROOT = Path(__file__).resolve().parents[2]


def run_simulated(one: Experiment, card: str) -> dict[str, Any]:
    """The experiment's results on a simulated card. Experiments may show faults."""
    from helpers.simulator import simulate

    with simulate(card, alloc_conf=one.alloc_conf, strict=False) as gpu:
        return dict(one.run(gpu))


def run_real(one: Experiment) -> dict[str, Any]:
    """The experiment's results on the CUDA device, in this process. RuntimeError where there is none."""
    from helpers.simulator import RealGPU

    gpu = RealGPU()
    with gpu:
        return dict(one.run(gpu))


def run_live(one: Experiment) -> dict[str, Any]:
    """The experiment's results on the CUDA device; apart where it sets up the process's allocator."""
    if not one.alloc_conf:
        return run_real(one)
    with tempfile.TemporaryDirectory() as folder:
        problem = run_apart(one, Path(folder), None, timeout=6 * one.seconds + 60)
        if problem:
            raise RuntimeError(f"{one.name}: {problem}")
        packed = Path(folder).glob("*.json.gz")
        return {path.name.partition(".")[0]: files.unpack(path.read_bytes()) for path in packed}


def run_apart(one: Experiment, folder: Path, simulated: str | None, timeout: float) -> str:
    """Run it in a process of its own, results packed into `folder`. What went wrong, or "".

    A process each: a CUDA error, a full memory or a crash of one experiment leaves the others alone, and each
    starts with an empty allocator.
    """
    command = [
        sys.executable,
        "-m",
        "helpers.recordings.running",
        one.run.__module__,
        one.name,
        str(folder),
        *filter(None, [simulated]),
    ]
    env = os.environ | {"KINETO_LOG_LEVEL": "99"}
    if one.alloc_conf and not simulated:
        env["PYTORCH_ALLOC_CONF"] = env["PYTORCH_CUDA_ALLOC_CONF"] = one.alloc_conf
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    where: dict[str, Any] = {"stdin": null, "stdout": null, "stderr": pipe, "env": env, "cwd": ROOT}
    try:
        done = subprocess.run(command, timeout=timeout, encoding="utf-8", errors="replace", **where)
    except subprocess.TimeoutExpired:
        return f"took more than {timeout:.0f} s, and was ended"
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        ending = f"ended by signal {-done.returncode}" if done.returncode < 0 else "failed"
        return f"{ending}: {files.scrub(lines[-1]) if lines else 'no message'}"
    return ""


def pack_all(given: Mapping[str, Any]) -> dict[str, bytes]:
    """The results of an experiment as packed files by kind. TypeError or ValueError for what cannot be one."""
    pack: dict[str, Callable[[Any], Any]] = {
        "trace": lambda value: files.trim_trace(_trace(value)),
        "snapshot": files.trim_snapshot,
        "table": files.plain_table,
    }
    unknown = set(given) - set(pack)
    if unknown or not given:
        names = ", ".join(unknown) or "nothing"
        raise ValueError(f"an experiment gives trace, snapshot or table, not {names}")
    return {kind: files.pack(pack[kind](value)) for kind, value in given.items()}


def _trace(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        value.export_chrome_trace(str(path))
        # The profiler writes what it was told by libraries, and not every byte of that is always UTF-8.
        trace: dict[str, Any] = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    return trace


def describe(simulated: str | None) -> dict[str, Any]:
    """The device as the manifest has it: no serial number, no address."""
    if simulated:
        from helpers.simulator.devices import device

        card = device(simulated)
        return {"name": f"simulated {card.name}", "memory_bytes": card.memory_bytes}
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("no CUDA device here. To try the recorder without one: --simulate H100 --out DIR")
    about = torch.cuda.get_device_properties(0)
    return {
        "name": about.name,
        "memory_bytes": about.total_memory,
        "capability": f"{about.major}.{about.minor}",
        "multiprocessors": about.multi_processor_count,
    }


def main(module: str, name: str, folder: str, card: str = "") -> None:
    importlib.import_module(module)
    experiment = find(name)
    results = run_simulated(experiment, card) if card else run_real(experiment)
    for kind, data in pack_all(results).items():
        keeping.write(Path(folder) / f"{kind}.json.gz", data)


if __name__ == "__main__":
    main(*sys.argv[1:])
