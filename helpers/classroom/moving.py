"""Pictures of the site that move without a kernel: every state computed here, drawn by docs/site/moving.js.

A picture has a few controls with a few options each; a state is one choice of each, with what the widget of the lesson
says of it (``facts``) and lanes of boxes to draw. The stride explorer has too many states: docs/site/stride.js reckons
them, and a test compares its words with the widget's.
"""

import ast
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from helpers.text.seconds import format_seconds
from helpers.text.sizes import size_text

#: how finely boxes are placed along their lane
FINE = 2000
Box = tuple[float, float, int, str]
"""Start, end, place in the key, and the words in it."""
Control = tuple[str, Sequence[str], int]
"""Label, options, place of the option that is shown first."""


@dataclass(frozen=True)
class Lane:
    """A row of boxes. label stands to its left, right to its right."""

    label: str
    boxes: Sequence[Box]
    right: str = ""


@dataclass(frozen=True)
class State:
    """What one choice of the options shows. length: where the lanes end, in the boxes' unit; said: that length in words."""

    facts: str
    lanes: Sequence[Lane]
    length: float
    said: str = ""


@dataclass
class Moving:
    """A picture with controls. key: colour's name and words."""

    title: str
    evidence: str
    controls: Sequence[Control]
    key: Sequence[tuple[str, str]]
    states: dict[tuple[int, ...], State] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As moving.js reads it."""
        return {
            "title": self.title,
            "evidence": self.evidence,
            "controls": [{"label": label, "options": list(o), "at": at} for label, o, at in self.controls],
            "key": [list(entry) for entry in self.key],
            "fine": FINE,
            "states": {",".join(map(str, at)): _state(state) for at, state in self.states.items()},
        }


def _state(state: State) -> list[Any]:
    lanes = []
    for lane in state.lanes:
        boxes: list[Any] = []
        for start, end, key, words in lane.boxes:
            begin = round(FINE * start / state.length)
            boxes += [begin, max(1, round(FINE * end / state.length) - begin), key, words]
        lanes.append([lane.label, lane.right, boxes])
    return [state.facts, state.said, lanes]


def queue() -> Moving:
    """A training loop on the simulated H100: what the host does, what the GPU does, and which part is worth making faster."""
    from helpers import trace
    from helpers.lessons.gpu_queue.experiments import LARGE, MIDDLE, SMALL, loop

    layers: dict[str, Any] = {"256 wide": SMALL, "2,048 wide": MIDDLE, "4,096 wide": LARGE}
    faster: dict[str, Any] = {
        "as it is": {},
        "CPU twice as fast": {"cpu": 2},
        "GPU twice as fast": {"gpu": 2},
    }
    controls: list[Control] = [
        ("Four linear layers", list(layers), 1),
        ("loss.item() in every step", ["no", "yes"], 1),
        ("1.5 ms of Python for the next batch", ["no", "yes"], 1),
        ("The machine", list(faster), 0),
    ]
    key = [("green", "the CPU launches"), ("ink", "the CPU waits for the GPU"), ("blue", "the GPU computes")]
    key += [("orange", "Python, for the next batch"), ("ground", "nothing to do")]
    made = Moving("Which part would you make faster?", "simulated (H100)", controls, key)
    for (i, size), read, prepare in product(enumerate(layers.values()), (0, 1), (0, 1)):
        runs = [
            loop(**size, read=bool(read), prepare_s=1.5e-3 * prepare, steps=3, **machine)
            for machine in faster.values()
        ]
        longest = max(run.trace.span_s for run in runs)
        for j, run in enumerate(runs):
            t, share = run.trace, trace.shares(run.trace)
            facts = f"A step takes {format_seconds(run.step_s)}. The GPU computes {share.computes:.0%} of the time."
            if j:
                facts += f" That is {runs[0].step_s / run.step_s:.2f} times as fast as before."
            near = round(1e9 * longest / 700)  # gaps less than a pixel wide are not drawn
            calls = t.of("operator", "call") & ~t.waiting
            host = _joined(t.start_ns[calls], t.end_ns[calls], near, 0)
            waits = _joined(t.start_ns[t.waiting], t.end_ns[t.waiting], near, 1)
            work = _joined(t.work.start_ns, t.work.end_ns, near // 4, 2)
            done = sorted([*host, *waits])
            python = [
                (a[1], b[0], 3, "") for a, b in pairwise(done) if b[0] - a[1] > near
            ]  # it does nothing else
            lanes = [Lane("CPU", [*done, *python]), Lane("GPU", work)]
            made.states[i, read, prepare, j] = State(
                facts, lanes, 1e9 * longest, f"{format_seconds(longest)}, three steps"
            )
    return made


def _joined(starts: Iterable[Any], ends: Iterable[Any], near: float, key: int) -> list[Box]:
    """Intervals as boxes; those that touch, or nearly, are one."""
    boxes: list[Box] = []
    for start, end in sorted((int(a), int(b)) for a, b in zip(starts, ends, strict=True)):
        if boxes and start - boxes[-1][1] <= near:
            boxes[-1] = (boxes[-1][0], max(end, boxes[-1][1]), key, "")
        else:
            boxes.append((start, end, key, ""))
    return boxes


def allocator(source: str) -> Moving:
    """The allocator stepper over lesson 08's program. source: the cell that says PROGRAM = …"""
    from helpers.memory.snapshot import ALLOCATED
    from helpers.widgets import allocator_stepper

    program = next(
        ast.literal_eval(line.value)
        for line in ast.parse(source).body
        if isinstance(line, ast.Assign) and getattr(line.targets[0], "id", "") == "PROGRAM"
    )
    stepper = allocator_stepper(program)
    steps = stepper.steps
    spans = sorted(
        {
            (s.pool != "large", s.address, s.size)
            for k in range(len(steps) + 1)
            for s in steps.found.segments(steps.move(k).end)
        }
    )
    widest = max(size for _, _, size in spans)
    key = [
        ("blue", "allocated"),
        ("faint", "free: reserved from CUDA, in no use"),
        ("orange", "what this call took or gave back"),
    ]
    controls: list[Control] = [("step", [str(k) for k in range(len(steps) + 1)], 8)]
    made = Moving("The allocator, call by call", steps.evidence, controls, key)
    for k in range(len(steps) + 1):
        stepper.set(k)
        move, lanes = steps.move(k), list[Lane]()
        live = {s.address: s for s in steps.found.segments(move.end)}
        for _, address, size in spans:
            boxes: list[Box] = []
            blocks = live[address].blocks if address in live else ()
            for b in blocks:
                touched = move.touched is not None and b.address <= move.touched[0] < b.address + b.size
                kind, words = (0, f"{b.site} · ") if b.state == ALLOCATED else (1, "free ")
                at = b.address - address
                if touched and kind:  # what a free gave back lies inside what is free now
                    boxes.append((at, at + b.size, 1, ""))
                    at, size_b = move.touched[0] - address, move.touched[1]  # type: ignore[index]
                    boxes.append((at, at + size_b, 2, ""))
                else:
                    boxes.append((at, at + b.size, 2 if touched else kind, words + size_text(b.size)))
            lanes.append(Lane(size_text(size), boxes, "" if address in live else "not there"))
        made.states[k,] = State(stepper.facts(), lanes, widest, size_text(widest))
    return made


def buckets() -> Moving:
    """The bucket explorer of lesson 14, with NVLink 4 inside a node."""
    from helpers.widgets.buckets import RANKS, bucket_explorer

    caps = ("default", 1, 5, 25, 100, 1000)
    between = ("InfiniBand NDR", "Ethernet 100G", "Ethernet 10G")
    explorer = bucket_explorer(ranks=64)
    run = explorer.backward
    controls: list[Control] = [
        ("bucket, MiB", [str(c) for c in caps], 0),
        ("ranks", [f"{n:,}" for n in RANKS], RANKS.index(64)),
        ("between nodes of 8", between, 0),
    ]
    key = [
        ("green", "forward"),
        ("blue", "backward"),
        ("purple", "all-reduce, hidden"),
        ("vermillion", "all-reduce, exposed"),
    ]
    made = Moving("How much of the sending does backward hide?", run.evidence, controls, key)
    for (i, cap), (j, ranks), (k, link) in product(enumerate(caps), enumerate(RANKS), enumerate(between)):
        explorer.set(cap_mb=cap, ranks=ranks, between=link)
        plan, sent = explorer.plan, list[Box]()
        for b in plan.buckets:
            sent += [(b.start_s, min(b.end_s, run.seconds), 2, "")] if b.start_s < run.seconds else []
            sent += [(max(b.start_s, run.seconds), b.end_s, 3, "")] if b.end_s > run.seconds else []
        computing: list[Box] = [
            (0, run.forward_s, 0, "forward"),
            (run.forward_s, run.seconds, 1, "backward"),
        ]
        lanes = [Lane("compute", computing), Lane("send", sent)]
        made.states[i, j, k] = State(explorer.facts, lanes, plan.seconds, format_seconds(plan.seconds))
    return made


def pipeline() -> Moving:
    """The pipeline explorer of lesson 16."""
    from helpers.lessons.model_parallel.explorer import EVIDENCE, pipeline_explorer

    schedules = {"GPipe": 1, "1F1B": 1, "Interleaved 1F1B": 2}
    ranks, batches, sends = (2, 4, 8), (2, 4, 8, 16), (0.0, 0.25)
    explorer = pipeline_explorer("1F1B", ranks=4, microbatches=8, send=0.25)
    controls: list[Control] = [
        ("schedule", list(schedules), 1),
        ("ranks", [str(n) for n in ranks], 1),
        ("micro-batches", [str(n) for n in batches], 2),
        ("message, in forwards", [f"{s:g}" for s in sends], 1),
    ]
    key = [("blue", "forward"), ("orange", "backward"), ("ground", "bubble: nothing to do")]
    made = Moving("Who waits in a pipeline?", EVIDENCE, controls, key)
    for at in product(*(range(len(options)) for _, options, _ in controls)):
        name, send = list(schedules)[at[0]], sends[at[3]]
        explorer.set(
            schedule=name, ranks=ranks[at[1]], microbatches=batches[at[2]], chunks=schedules[name], send=send
        )
        run, lanes = explorer.run, list[Lane]()
        if run is not None:
            for rank in range(run.ranks):
                boxes = [
                    (s.start_s, s.end_s, int(s.kind == "B"), str(s.microbatch))
                    for s in run.steps
                    if s.rank == rank
                ]
                lanes.append(Lane(f"rank {rank}", boxes, f"holds {run.peak[rank]}"))
        length = run.seconds if run is not None else 1
        made.states[at] = State(explorer.facts, lanes, length, f"{length:.4g} forwards")
    return made


def ladder() -> Moving:
    """The reference repair of lesson 17: rung by rung, a step's time and its memory."""
    from helpers.lessons.capstone.reference_repair import shown

    models = {name: shown.scored(name) for name in shown.NAMES}
    controls: list[Control] = [
        ("model", [shown.WHAT[name] for name in models], 0),
        ("what is drawn", ["time of a step", "peak memory"], 0),
    ]
    key = [("blue", "as long as the plain step, or less"), ("green", "the last rung")]
    where = shown.evidence(*shown.NAMES)
    made = Moving("The reference repair, rung by rung", where, controls, key)
    for (i, (name, rungs)), what in product(enumerate(models.items()), (0, 1)):
        first, last = rungs[0], rungs[-1]
        values = [r.nbytes if what else r.seconds for r in rungs]
        said: Callable[[Any], str] = size_text if what else format_seconds
        lanes = [
            Lane(r.name, [(0, value, int(r is last), "")], said(int(value) if what else value))
            for r, value in zip(rungs, values, strict=True)
        ]
        facts = (
            f"{shown.WHAT[name]}, {shown.evidence(name)}: {first.seconds / last.seconds:.1f} times as fast as the plain step, "
            f"with {last.nbytes / first.nbytes:.0%} of its memory."
        )
        made.states[i, what] = State(facts, lanes, max(values))
    return made


def stride() -> dict[str, Any]:
    """What docs/site/stride.js reckons with: limits, and layouts that have a name."""
    from helpers.lessons.storage_and_stride import explorer

    presets = {name: vars(layout) for name, layout in explorer.PRESETS.items()}
    return {
        "size": explorer.SIZE,
        "longest": explorer.LONGEST,
        "presets": presets,
        "evidence": "arithmetic",
    }


#: the call in a lesson's cell → the picture that stands for its widget
CALLS = {
    "stride_explorer(": "stride",
    "allocator_stepper(": "allocator",
    "bucket_explorer(": "buckets",
    "pipeline_explorer(": "pipeline",
    "reference_repair.ladders(": "ladder",
}


def write(name: str, to: Path, source: str = "") -> None:
    """Write a picture's states for the browser. source: the lesson's code, for the allocator's program."""
    made: Any
    if name == "stride":
        made = stride()
    elif name == "allocator":
        made = allocator(source).plain()
    else:
        made = {"queue": queue, "buckets": buckets, "pipeline": pipeline, "ladder": ladder}[name]().plain()
    text = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
    to.write_text(f"(window.MOVING ??= {{}}).{name} = {text};\n", encoding="utf-8")
