"""The reference repair on a CPU: each rung's step in pairs with the plain one's, at a reduced size.

python -m helpers.lessons.capstone.reference_repair.on_cpu     # measure on this machine with two threads, and keep it in measured.json
python -m helpers.lessons.capstone.reference_repair.on_cpu gpt2     # this one only
"""

from __future__ import annotations

import inspect
import json
import math
import os
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor

from helpers import timing
from helpers.compiling import CannotCompile
from helpers.compiling.torches import explained
from helpers.lessons.capstone import given
from helpers.lessons.capstone import on_cpu as capstone
from helpers.lessons.capstone.reference_repair.models import TASKS, Rung, Task, rungs_of
from helpers.lessons.capstone.reference_repair.steps import stepper
from helpers.recordings.manifest import processor
from helpers.simulator import simulate
from helpers.text import tables
from helpers.text.seconds import LIVE_CPU, Speedup

CPU = SimpleNamespace(device=torch.device("cpu"))
KEPT = Path(__file__).with_name("measured.json")
THREADS = 2
#: the ladder that is no task's
CAPSTONE = "capstone"
_FROM = ("models.py", "steps.py")


def products(q: Tensor, k: Tensor, v: Tensor, _: bool) -> Tensor:
    """Attention without a mask as two products, for Inductor to fuse what is between them. All: [batch, heads, context, features].

    Batch and heads are one dimension: products of four dimensions are a pattern of Inductor's (fx_passes/fuse_attention.py),
    and it would put the fused operator back in their place.
    """
    sizes = q.shape[:2]
    q, k, v = (part.flatten(0, 1) for part in (q, k, v))
    scores = torch.bmm(q / math.sqrt(q.shape[-1]), k.transpose(1, 2))
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(v.dtype)
    return torch.bmm(weights, v).unflatten(0, sizes)


def rungs_here(task: Task) -> list[Rung]:
    """The ladder on a CPU: no CUDA graph; an encoder has a rung of its own (of a decoder's products half would be masked)."""
    found = [rung for rung in rungs_of(task) if not rung.way.graphed]
    if task.classes:
        found.append(Rung("compiled, attention as products", replace(found[-1].way, attention=products)))
    return found


def losses(name: str, rung: Rung, steps: int = 4) -> list[float]:
    """The first losses of a rung at its reduced size, on this CPU; a captured rung's with the simulated GPU's true values."""
    task, way = TASKS[name].reduced(), rung.way
    with simulate("H100", values=True, strict=False) if way.graphed else nullcontext(CPU) as gpu:
        once = stepper(task, replace(way, compiled=way.compiled and not way.graphed), gpu)
        record = [once() for _ in range(steps)][-1]
        return [float(loss) for loss, _ in record]


def compared(name: str, pairs: int = 8, threads: int | None = None) -> dict[str, Speedup | str]:
    """Each rung's step against the plain one's, in pairs; or why it could not be compiled here."""
    if name == CAPSTONE:
        return {**capstone.compared(*capstone.by_area(""), pairs, threads)}
    task = TASKS[name].reduced()
    first, *others = rungs_here(task)
    plain, found = stepper(task, first.way, CPU), dict[str, Speedup | str]()
    for rung in others:
        once = stepper(task, rung.way, CPU)
        try:
            with explained():
                once(), once()
        except CannotCompile as problem:
            found[rung.says] = str(problem)
        else:
            found[rung.says] = timing.compare(plain, once, pairs=pairs, number=1, num_threads=threads)
    return found


def live(name: str, pairs: int = 8, threads: int | None = None) -> tables.Table:
    """Each rung's step in pairs with the plain one's, on this CPU, at the reduced size: some minutes.

    What needs a GPU is left out. KeyError for a name that is no ladder's. LookupError for the capstone's in a student's copy,
    which has not got its repairs: `capstone.live` tries one's own.
    """
    rows = [
        (says, one if isinstance(one, str) else f"{one.cell} ({one.low:.2f} to {one.high:.2f})")
        for says, one in compared(name, pairs, threads).items()
    ]
    return _table(name, rows, LIVE_CPU)


def measured_once(name: str) -> tables.Table:
    """What :func:`live` gave on two cores, once, and which."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))[name]
    changed = "" if digest(name) in ("", kept["from"]) else "; its code has changed since"
    rows = [(r["rung"], f"{r['ratio']:.2f}× ({r['low']:.2f} to {r['high']:.2f})") for r in kept["rungs"]]
    return _table(name, rows, f"recorded ({kept['processor']}, {kept['date']}{changed})", kept["how"])


def _table(name: str, rows: list[tuple[str, str]], evidence: str, how: str = "") -> tables.Table:
    if name == CAPSTONE:
        return capstone.table(rows, evidence, how)
    task = TASKS[name].reduced()
    caption = (
        f"{task.what}, reduced: {task.layers} layers of {task.width}, {task.batch} × {task.context} tokens"
    )
    columns = ["a step", "times as fast as the plain fp32 step"]
    return tables.table(rows, columns, evidence=evidence, caption="; ".join(filter(None, (caption, how))))


def digest(name: str) -> str:
    """Of the programs that were measured; "" where they are not there (the capstone's, in a student's copy)."""
    if name == CAPSTONE:
        try:
            before, after = capstone.by_area("")
        except LookupError:
            return ""
        return given.digest(
            inspect.getsource(capstone), *(script.source for script in (before, *after.values()))
        )
    texts = [(KEPT.parent / file).read_text(encoding="utf-8") for file in _FROM]
    return given.digest(*texts, *(inspect.getsource(made) for made in (products, rungs_here)))


def keep(names: Iterable[str]) -> None:
    """Measure these ladders with two threads, and keep them. Wants a machine on which nothing else runs, minutes for each."""
    pairs = 8
    for name in names:
        found = json.loads(KEPT.read_text(encoding="utf-8"))
        found[name] = {
            "from": digest(name),
            "processor": processor(),
            "date": date.today().isoformat(),
            "how": f"{THREADS} threads on {os.cpu_count()} cores, torch {torch.__version__}, {pairs} pairs",
            "rungs": [
                {"rung": says, **{key: round(getattr(one, key), 3) for key in ("ratio", "low", "high")}}
                for says, one in compared(name, pairs, THREADS).items()
                if isinstance(one, Speedup)
            ],
        }
        KEPT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    names = sys.argv[1:] or [*TASKS, CAPSTONE]
    keep(names)
    for name in names:
        print(measured_once(name))
