"""Run one experiment: on the GPU that is there, on a simulated one, or in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helpers.recordings import files
from helpers.recordings.registry import Experiment

__all__ = ["describe", "pack_all", "run_apart", "run_live", "run_real", "run_simulated"]

ROOT = Path(__file__).resolve().parents[2]


def run_simulated(one: Experiment, card: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The experiment's results on a simulated card, and the faults found. Experiments may show faults."""
    from helpers.simulator import SimulationError, simulate

    gpu = simulate(card, alloc_conf=one.alloc_conf, memory_bytes=one.memory_bytes)
    given: Mapping[str, Any] = {}
    faults: tuple[str, ...] = ()
    try:
        with gpu:
            given = one.run(gpu)
    except SimulationError as told:
        faults = tuple(told.faults)
    return dict(given), faults


def run_real(one: Experiment) -> dict[str, Any]:
    """The experiment's results on the CUDA device, in this process. RuntimeError where there is none."""
    import torch

    from helpers.simulator import RealGPU

    gpu = RealGPU()
    if one.memory_bytes:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, one.memory_bytes / total))
    with gpu:
        return dict(one.run(gpu))


def run_live(one: Experiment) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The experiment's results on the CUDA device; apart where it sets up the process's allocator."""
    if not (one.alloc_conf or one.memory_bytes):
        return run_real(one), ()
    with tempfile.TemporaryDirectory() as folder:
        problem = run_apart(one, Path(folder), None, timeout=6 * one.seconds + 60)
        if problem:
            raise RuntimeError(f"{one.name}: {problem}")
        packed = {p.name.partition(".")[0]: p.read_bytes() for p in Path(folder).glob("*.json.gz")}
    return {kind: files.unpack(data) for kind, data in packed.items()}, ()


def run_apart(one: Experiment, folder: Path, simulated: str | None, timeout: float) -> str:
    """Run it in a process of its own, results packed into `folder`. What went wrong, or "".

    A process each: a CUDA error, a full memory or a crash of one experiment leaves the others alone, and each
    starts with an empty allocator.
    """
    command = [sys.executable, "-m", "helpers.recordings.record", "--worker", one.name, "--out", str(folder)]
    if simulated:
        command += ["--simulate", simulated]
    here = os.environ.get("PYTHONPATH")
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *([here] if here else [])]),
        "KINETO_LOG_LEVEL": "99",
    }
    if one.alloc_conf and not simulated:
        env["PYTORCH_ALLOC_CONF"] = env["PYTORCH_CUDA_ALLOC_CONF"] = one.alloc_conf
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            env=env,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"took more than {timeout:.0f} s, and was ended"
    if done.returncode:
        said = [line for line in done.stderr.strip().splitlines() if line.strip()]
        ending = f"ended by signal {-done.returncode}" if done.returncode < 0 else "failed"
        return f"{ending}: {files.scrub(said[-1]) if said else 'no message'}"
    return ""


def pack_all(given: Mapping[str, Any]) -> dict[str, bytes]:
    """The results of an experiment as packed files by kind. TypeError or ValueError for what cannot be one."""
    unknown = set(given) - {"trace", "snapshot", "table"}
    if unknown or not given:
        raise ValueError(
            f"an experiment gives trace, snapshot or table, not {', '.join(unknown) or 'nothing'}"
        )
    made: dict[str, bytes] = {}
    for kind, value in given.items():
        if kind == "trace":
            made[kind] = files.pack(files.trim_trace(_trace(value)))
        elif kind == "snapshot":
            made[kind] = files.pack(files.trim_snapshot(value))
        else:
            made[kind] = files.pack(files.plain_table(value))
    return made


def _trace(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        value.export_chrome_trace(str(path))
        # The profiler writes what it was told by libraries, and not every byte of that is always UTF-8.
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    return found


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
