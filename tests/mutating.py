"""Traces and snapshots damaged at random, and whether what reads them says so in a sentence.

Half of the damage is to bytes (changed, cut out, doubled, cut off), half to values: one of a trace's or snapshot's fields
becomes something else, is taken away, or trades its place.
"""

from __future__ import annotations

import copy
import gzip
import json
import pickle
import random
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from helpers import memory, simulate, trace

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 10**400, 1e308, -1e308, 0.5, float("nan"), float("inf"), "", "x", "\ud800",
    "1", "9" * 5000, [], [[]], [1, 2], {}, {"a": 1}, "Memcpy HtoD (Pageable -> Device)", "cudaDeviceSynchronize",
)  # fmt: skip


def originals() -> tuple[bytes, bytes]:
    """A small trace and a small snapshot of one program."""
    with simulate("H100") as gpu, gpu.profile() as profile:
        gpu.memory._record_memory_history()
        weight, kept = torch.ones(256, 256, device=gpu.device), []
        for _ in range(4):
            kept.append((weight @ weight).sum().item())
            weight = weight * 2
            profile.step()
        snapshot = gpu.memory._snapshot()
    return json.dumps(gpu.trace()).encode(), pickle.dumps(snapshot)


def of_bytes(data: bytes, rng: random.Random) -> bytes:
    """Some of its bytes are others, missing, there twice, or cut off."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(found) or 1)
        length = rng.choice((1, 1, 1, 4, 60))
        how = rng.randrange(5)
        if how == 0:
            found[at : at + 1] = bytes([rng.randrange(256)])
        elif how == 1:
            del found[at : at + length]
        elif how == 2:
            found[at:at] = found[at : at + length]
        elif how == 3:
            found[at : at + 1] = rng.choice((b"9", b"-", b"e", b'"', b"[", b"}", b"\x00", b"\xff"))
        elif rng.random() < 0.2:
            del found[at:]
    return bytes(found)


def of_values(content: Any, rng: random.Random) -> Any:
    """One to five of its fields hold something else."""
    content = copy.deepcopy(content)
    for _ in range(rng.randint(1, 5)):
        inner: Any = content
        while True:
            keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(inner[key], (dict, list)) and inner[key] and rng.random() < 0.9:
                inner = inner[key]
                continue
            how = rng.randrange(6)
            if how == 0:
                del inner[key]
            elif how == 1 and isinstance(inner, list):
                inner.append(copy.deepcopy(inner[key]))
            elif how == 2:
                other = rng.choice(keys)
                inner[key], inner[other] = inner[other], inner[key]
            else:
                inner[key] = copy.deepcopy(rng.choice(ODD))  # else a list could come to hold itself
            break
    return content


def read_trace(path: Path) -> None:
    t = trace.read(path)
    repr(trace.classify(t))
    asked: list[Callable[[trace.Trace], object]] = [trace.steps, trace.shares, trace.top]
    if t.has_gpu:
        asked += [trace.idle, trace.queue_depth, trace.overlap, trace.unwaited]
    for ask in asked:
        repr(ask(t))


def read_snapshot(path: Path) -> None:
    found = memory.read(path, evidence="arithmetic")
    for ask in (memory.peak, memory.holders, memory.leaks, memory.fragmentation, memory.history):
        repr(ask(found))


def broken(count: int, folder: Path, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Of `count` damaged files those that end in anything but the readers' own errors: name and traceback. The files are
    left in `folder`."""
    rng = random.Random(seed)
    told, took = originals()
    as_json, as_snapshot = json.loads(told), pickle.loads(took)
    for i in range(count):
        of_trace, packed = rng.random() < 0.6, rng.random() < 0.1
        read: Callable[[Path], None] = read_trace if of_trace else read_snapshot
        refused: type[ValueError] = trace.TraceError if of_trace else memory.SnapshotError
        if rng.random() < 0.5:
            data = of_bytes(told if of_trace else took, rng)
        elif of_trace:
            data = json.dumps(of_values(as_json, rng)).encode()
        else:
            data = pickle.dumps(of_values(as_snapshot, rng))
        path = folder / f"{i}.{'json' if of_trace else 'pickle'}"
        path.write_bytes(gzip.compress(data) if packed else data)
        try:
            read(path)
        except refused:
            pass
        except Exception:
            yield path.name, traceback.format_exc()
            continue
        path.unlink()
