"""The capstone's scoreboard: what a step of a script takes on a simulated H100, and whether it still trains alike."""

from __future__ import annotations

import contextlib
import logging
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch.utils.data import DataLoader

from helpers import compiling, count, progress
from helpers.check.sealed import sealed
from helpers.lessons.capstone import alone
from helpers.lessons.capstone.files import Files, draw_shapes
from helpers.lessons.capstone.parts import Script
from helpers.lessons.capstone.plain import eager, without_autocast
from helpers.lessons.capstone.twins import with_twins
from helpers.own_script.counters import COUNTERS, is_cast
from helpers.pytorch import private_torch
from helpers.running_example.scores import NeedsGPU, NoGPU, Row, beside
from helpers.simulator import simulate
from helpers.text.seconds import format_seconds
from helpers.text.tables import ShownAsTable, Table, number_text, table

CARD = "H100"
SIMULATED = f"simulated ({CARD})"
#: the size at which steps are counted on the simulated GPU; losses are compared at smaller ones (:class:`Run`)
LARGE = MappingProxyType({"side": 64, "width": 256, "heads": 8, "layers": 2, "batch": 64, "parts": 2})
#: a size with wider products, of which 16 bits buy more; half the batch
LARGER = MappingProxyType({**LARGE, "side": 128, "width": 1024, "batch": 32})
PICTURES, CORES, RANKS = 128, 16, 2
#: steps before the counting, and counted ones: one reading, two validations and one checkpoint in them
WARM_UP, STEPS = 2, 4

# What loading takes in the simulation: round numbers of the right order, as `simulator.devices.Assumptions` are.
REQUEST_S = 30e-6  # seconds to ask for pictures once: open, seek
READ_BYTES_PER_S = 1e9  # read and unpack
MAKE_BYTES_PER_S = 4e9  # put a batch together, whatever its dtype
#: what torch.profiler calls the time in which the program waits for a loader without workers, and with some
WAITING = (
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
)


@dataclass(frozen=True)
class Score:
    """What a step of a script takes on the simulated GPU, one of two ranks: means of four steps.

    busy_s: its kernels together. read_s: work of reading a batch, by whoever does it; stall_s: what of all loading the
    step waits for. launches_but_casts: without kernels that only put a tensor into another format or layout; autocast
    adds such, and makes the others shorter. copied_bytes: to the device and from it. collectives: calls of
    torch.distributed. peak_bytes: the most that was allocated; growth_bytes: what a step leaves behind. compilations: of
    a whole run, repeated ones included; they are counted on the CPU with a backend that builds nothing.
    """

    step_s: float
    busy_s: float
    stall_s: float
    read_s: float
    launches: float
    launches_but_casts: float
    operators: float
    syncs: float
    copied_bytes: float
    collectives: float
    sent_bytes: float
    saved_bytes: float
    peak_bytes: float
    growth_bytes: float
    compilations: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


#: of the script alone, or of a step as a whole: name, form
_OWN = {
    "step_s": ("time", format_seconds),
    "read_s": ("reading, by whoever reads", format_seconds),
    "compilations": ("compilations in a run", number_text),
}
FIELDS = tuple(f.name for f in fields(Score))
#: a score's fields in the order of the table: field, name, form
ROWS: list[Row] = [(key, *(_OWN.get(key) or COUNTERS[key][:2])) for key in FIELDS]


# ------------------------------------------------------------------------------------------------- the loader


class _Loader:
    """A DataLoader of one process, which knows on a simulated clock when each batch would be there."""

    def __init__(self, data: Any, batch_size: Any = None, **how: Any) -> None:
        self.data = data
        self.workers, self.ahead = how.get("num_workers", 0), how.get("prefetch_factor") or 2
        self.pinned = bool(how.get("pin_memory"))
        with warnings.catch_warnings():  # about more workers than this machine has cores
            warnings.simplefilter("ignore")
            real = DataLoader(data, batch_size=None, **how)  # refuses what does not go together
        self.order = real.sampler  # of the items: another one where somebody shuffles

    def __iter__(self) -> Iterator[Any]:
        return (self.data[i] for i in self.order)


class Loading:
    """What is heard of reading, and loaders that wait on the simulated GPU's clock."""

    def __init__(self, gpu: Any) -> None:
        self.gpu, self.read_s, self.stall_s = gpu, 0.0, 0.0
        self.loaded: list[list[float]] = []  # the mean of each picture, by batches
        self.told: Callable[[int, float], None] = lambda pictures, seconds: None  # whoever listens (finding)

    def heard(self, pictures: int, nbytes: int) -> None:
        took = REQUEST_S + nbytes / READ_BYTES_PER_S
        self.told(pictures, took)
        self.read_s += took

    def loader(self, data: Any, batch_size: Any = None, **how: Any) -> Iterator[Any]:
        made = _Loader(data, batch_size, **how)
        free = [self.gpu.clock()] * made.workers
        taken: list[float] = []  # when each batch was asked for
        for i, item in enumerate(made.order):
            before = self.read_s
            batch = data[item]
            with private_torch.disable_current_modes():
                self.loaded.append(batch[0].double().flatten(1).mean(1).tolist())
            took = self.read_s - before + sum(t.nbytes for t in batch) / MAKE_BYTES_PER_S
            now = self.gpu.clock()
            taken.append(now)
            if made.workers:
                behind = i - made.workers * made.ahead  # a worker is told to begin when that one was taken
                begins = max(free[i % made.workers], taken[behind] if behind >= 0 else 0.0)
                free[i % made.workers] = begins + took
                took = max(0.0, begins + took - now)
            self.stall_s += took
            self.gpu._machine.line.spend(WAITING[made.workers > 0], "work", took)
            yield [
                t.pin_memory() if made.pinned and not made.workers else _pinned(t, made, self.gpu)
                for t in batch
            ]


def _pinned(tensor: Any, made: _Loader, gpu: Any) -> Any:
    """Pinned by the loader's own thread, which costs the program nothing."""
    return gpu._machine.pinned.add(tensor.clone()) if made.pinned else tensor


# ---------------------------------------------------------------------------------------------------- a score


@lru_cache(maxsize=256)
def score(script: Script) -> Score:
    """Run the script on a simulated H100 at size LARGE, four steps after two, as one of two ranks."""
    return Score(**counted(script)[0], compilations=trained(script, COMPILED)["compilations"])


class Running(NamedTuple):
    """A script on a simulated GPU, warm. module: its names. run: its steps. seen: what its loading took; seen.gpu."""

    module: ModuleType
    run: Iterator[Any]
    seen: Loading


@contextmanager
def running(
    script: Script, gpu: Any = None, size: Mapping[str, int] = LARGE,
    beside: Callable[[Any], AbstractContextManager[Any]] = nullcontext,
) -> Iterator[Running]:  # fmt: skip
    """Within this block: the script at this size after WARM_UP steps; STEPS more can be taken.

    gpu: of :func:`helpers.simulator.simulate`; else an H100, one of two. beside: what is entered before anything runs.
    """
    gpu = gpu or simulate(CARD).world(RANKS)
    seen = Loading(gpu)
    with (
        eager()
    ):  # on this GPU torch.compile changes nothing, and to load the compiler takes as long as the steps
        made = script.module()
    vars(made)["DataLoader"] = seen.loader
    with pictures(PICTURES, size["side"], 0, seen.heard) as files, gpu, beside(gpu), _cores():
        run = script.within(
            made, files, size, sealed(gpu), WARM_UP + STEPS + 1
        )  # the last one may be loaded ahead
        for _ in range(WARM_UP):
            next(run)
        gpu.synchronize()
        yield Running(made, run, seen)


#: a score's fields but the compilations, the work on the GPU (:func:`_work`), a number a picture of each batch, and the
#: most batches that the loader had given and no step had got
Counts = tuple[dict[str, float], dict[str, list[int]], list[list[float]], int]


@lru_cache(maxsize=256)
def counted(script: Script) -> Counts:
    """What is counted of a script's steps on the scoreboard's GPU."""
    return counted_on(script)


def counted_on(script: Script, gpu: Any = None, size: Mapping[str, int] = LARGE) -> Counts:
    """The same on that GPU (None: the scoreboard's), at that size."""
    with running(script, gpu, size) as (_, run, seen):
        gpu = seen.gpu
        gpu.reset_peak_memory_stats()
        kernels, host, calls = len(gpu.kernels), len(gpu.host), len(gpu.collectives)
        start, ahead = (*_now(gpu, seen), _held(gpu)), len(seen.loaded) - WARM_UP
        with count() as counts:
            for steps in range(WARM_UP + 1, WARM_UP + STEPS + 1):
                next(run)
                ahead = max(ahead, len(seen.loaded) - steps)
        now = _now(gpu, seen)
        gpu.synchronize()
        end = *now, _held(gpu)
        ran = gpu.kernels[kernels:]
        casts = sum(is_cast(k) and not k.graph for k in ran) / STEPS
        step = [(b - a) / STEPS for a, b in zip(start, end, strict=True)]
        numbers = {
            "step_s": (gpu.clock() - start[0]) / STEPS,
            "busy_s": sum(k.duration_s for k in ran if k.kind == "kernel") / STEPS,
            "stall_s": step[4],
            "read_s": step[3],
            "launches": step[1],
            "launches_but_casts": step[1] - casts,
            "operators": sum(record.kind == "operator" for record in gpu.host[host:]) / STEPS,
            "syncs": step[2],
            "copied_bytes": sum(k.bytes for k in ran if k.kind in ("copy h2d", "copy d2h")) / STEPS,
            "collectives": len(gpu.collectives[calls:]) / STEPS,
            "sent_bytes": sum(call.bytes for call in gpu.collectives[calls:]) / STEPS,
            "saved_bytes": counts.saved_bytes / STEPS,
            "peak_bytes": float(gpu.max_memory_allocated()),
            "growth_bytes": step[5],
        }
        return numbers, _work(ran), seen.loaded, ahead


def _work(ran: list[Any]) -> dict[str, list[int]]:
    """Kind and name of a kernel or copy → how many ran, their FLOPs and their bytes."""
    work: dict[str, list[int]] = {}
    for kernel in ran:
        # which kernel attends depends on the sizes: cuDNN wants heads in eights
        name = kernel.name.replace("_cudnn_attention", "_flash_attention")
        of = work.setdefault(f"{kernel.kind} {name}", [0, 0, 0])
        of[:] = of[0] + 1, of[1] + kernel.flops, of[2] + kernel.bytes
    return work


def _now(gpu: Any, seen: Loading) -> tuple[float, ...]:
    return gpu.clock(), gpu.launches, gpu.syncs, seen.read_s, seen.stall_s


def _held(gpu: Any) -> int:
    """Bytes of what is alive, as asked for: the allocator's own sizes depend on which block was free."""
    found: int = gpu.memory_stats()["requested_bytes.all.current"]
    return found


def _cores() -> Any:
    return mock.patch("os.cpu_count", lambda: CORES)


@contextmanager
def pictures(
    count: int, side: int, seed: int, heard: Callable[[int, int], None] | None = None
) -> Iterator[Files]:
    """Files drawn into a folder of their own, which is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield draw_shapes(folder, count, side, seed, heard)


# ------------------------------------------------------------------------------------------------- its losses


@dataclass(frozen=True)
class Run:
    """A run on the CPU, small: the sizes of pictures, model and batch, and how many steps.

    autocast: in bfloat16 where the script asks for it; otherwise that stays float32, and losses are to agree closely.
    ranks: as one of so many, of which the others have larger gradients. More than one, or a script that asks for what only
    a GPU has: on a simulated GPU whose tensors have true values (`twins`).
    compiled: torch.compile compiles, which takes seconds; otherwise it changes nothing.
    """

    side: int = 16
    width: int = 32
    heads: int = 4
    layers: int = 2
    batch: int = 12
    parts: int = 2
    steps: int = 9
    seed: int = 0
    files: int = 96
    autocast: bool = False
    ranks: int = 1
    compiled: bool = False

    def __str__(self) -> str:
        changed = [f"{f.name}={v}" for f in fields(self) if (v := getattr(self, f.name)) != f.default]
        return f"a run of {self.steps} steps" + (f" ({', '.join(changed)})" if changed else "")


#: the run whose compilations are counted
COMPILED = Run(compiled=True)


@lru_cache(maxsize=256)
def trained(script: Script, run: Run) -> dict[str, Any]:
    """What a run of the script comes to: plain data, the same on every machine but for rounding.

    work: on the GPU, if there is one, after WARM_UP steps. rows: a step's loss, right answers, gradient's length. late:
    where too many of them wait, in words. held_out, guesses, weights, averaged, saved: see the script's Record.
    compilations: of a run that compiles.
    """
    if not run.compiled:
        return _on_cpu_or_gpu(script, run)
    results, report = watched(script, run)
    return results | {"compilations": report.counts()["compilations"]}


def watched(script: Script, run: Run) -> tuple[dict[str, Any], compiling.Report]:
    """What a run comes to, and what it compiled."""
    with quietly(), compiling.watch("eager") as report:
        return _on_cpu_or_gpu(script, run), report


@contextmanager
def quietly() -> Iterator[None]:
    """A function that is compiled too often says so again and again; that is for `where` to tell, and for its number."""
    log = logging.getLogger("torch._dynamo")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _on_cpu_or_gpu(script: Script, run: Run) -> dict[str, Any]:
    if run.ranks == 1:
        with contextlib.suppress(NeedsGPU):
            return _trained(script, run, NoGPU())
    return _trained(script, run, None)


def _trained(script: Script, run: Run, cpu: NoGPU | None) -> dict[str, Any]:
    size = {name: getattr(run, name) for name in LARGE}
    with ExitStack() as stack:
        files = stack.enter_context(pictures(run.files, run.side, run.seed))
        gpu: Any = simulate(CARD).world(run.ranks) if run.ranks > 1 else simulate(CARD)
        stack.enter_context(cpu or with_twins(gpu))
        stack.enter_context(_cores())
        if not run.compiled:
            stack.enter_context(eager())
        if cpu and not run.autocast:  # twins are float32 as they are
            stack.enter_context(without_autocast())
        made = script.module()
        vars(made)["DataLoader"] = _Loader
        steps: Any = script.within(made, files, size, cpu or sealed(gpu), run.steps, run.seed)
        launched: list[int] = []
        record: Any = None
        late, every = 0, vars(made)["LOG_EVERY"]
        for _ in range(run.steps):
            launched.append(len(gpu.kernels))
            record = next(steps, record)
            if record is None or steps.gi_frame is None:
                done = f"{len(launched) - 1} of {run.steps}"
                raise RuntimeError(f"the run was over after {done} steps: send has to yield every batch")
            if not late and len(record.waiting) > every:
                late = len(launched)
        work = _work(gpu.kernels[launched[min(WARM_UP, run.steps - 1)] :])
        frame = steps.gi_frame.f_locals["run"].gi_frame.f_locals
        weights = {
            name: torch.cat([p.detach().flatten() for p in frame[name].parameters()])
            for name in ("model", "averaged")
        }
        waiting = [row.tolist() for row in record.waiting]
        return {
            "work": work,
            "rows": [[float(number) for number in row] for row in [*record.rows, *waiting]],
            "late": f"after step {late} more than {every} rows wait in record.waiting" if late else "",
            "held_out": [float(loss) for loss in record.held_out],
            "guesses": [_classes(guess).tolist() for guess in record.guesses],
            "weights": {name: _sketch(flat) for name, flat in weights.items()},
            "saved": {
                name: (ON_GPU if v.is_meta else _sketch(v)) if isinstance(v, torch.Tensor) else v
                for name, v in record.saved.items()
            },
        }


def _sketch(weights: torch.Tensor) -> list[float]:
    """64 sums of the numbers, each with signs of its own: who has the same sums has the same weights."""
    weights = weights.detach().flatten().cpu().double()
    return (_signs(len(weights)) @ weights).tolist()


@lru_cache(maxsize=2)  # a run sketches what has its model's length, again and again
def _signs(length: int) -> torch.Tensor:
    signs = torch.randint(2, (64, length), generator=torch.Generator().manual_seed(length), dtype=torch.int8)
    return signs.double().mul_(2).sub_(1)


def _classes(guess: torch.Tensor) -> torch.Tensor:
    guess = guess.argmax(-1) if guess.dim() > 1 else guess
    return guess.long()


#: the runs that a board compares: of one rank, and of two that have other gradients
BOARD_RUNS = (Run(), Run(ranks=RANKS, steps=2))
#: in place of what a checkpoint keeps where a lost GPU would take it along
ON_GPU = "on the GPU"
#: how far two trainings may be apart, as a share: in float32, and in bfloat16
CLOSE, ROUNDED = 1e-3, 5e-2


def apart(was: dict[str, Any], now: dict[str, Any], tolerance: float = CLOSE) -> str | None:
    """What is first found to differ between two of :func:`trained`, in words; None where they agree."""
    for i, (a, b) in enumerate(zip(was["rows"], now["rows"], strict=False), start=1):
        for name, x, y in zip(
            ("loss", "number of right answers", "length of the gradient"), a, b, strict=True
        ):
            if name != "loss" and tolerance > CLOSE:
                continue  # rounding may change which answer is the likeliest
            if not _near(x, y, tolerance):
                return f"the {name} of step {i} is {y:.5g}, and {x:.5g} in the script as it was"
    if now["late"]:
        return str(now["late"])
    if len(was["rows"]) != len(now["rows"]):
        return f"{len(now['rows'])} steps are in the log, wanted {len(was['rows'])}"
    for name, entry in (("held_out", "validation"), ("guesses", "entry of the guesses")):
        if len(was[name]) != len(now[name]):
            return f"there are {len(now[name])} of record.{name}, wanted {len(was[name])}"
        for i, (a, b) in enumerate(zip(was[name], now[name], strict=True), start=1):
            if name == "guesses" and tolerance > CLOSE:
                continue
            if not (_near(a, b, tolerance) if name == "held_out" else a == b):
                return f"{entry} {i} is another than in the script as it was"
    if was["saved"].keys() != now["saved"].keys():
        return f"the checkpoint has {sorted(now['saved'])}, wanted {sorted(was['saved'])}"
    if away := [name for name, value in now["saved"].items() if value == ON_GPU]:
        return f"the checkpoint's {away[0]!r} is still on the GPU"
    for what, a, b in [
        ("the {} weights", was["weights"], now["weights"]),
        ("the checkpoint's {!r}", was["saved"], now["saved"]),
    ]:
        for name in a:
            if not _alike(a[name], b[name], tolerance):
                return f"{what.format(name)} are others than in the script as it was"
    return None


def _alike(was: Any, now: Any, tolerance: float) -> bool:
    if not isinstance(was, list):
        return bool(was == now)
    size = math.sqrt(sum(a * a for a in was))
    far = math.sqrt(sum((a - b) ** 2 for a, b in zip(was, now, strict=True)))
    return far <= tolerance * max(size, 1e-9)


def _near(a: float, b: float, tolerance: float) -> bool:
    return math.isfinite(b) and abs(a - b) <= tolerance * max(abs(a), 1e-3)


class Board(ShownAsTable):
    """Two scores side by side, where they differ. odd: what the second run learned otherwise, in words; "" if it learned the same."""

    def __init__(self, before: Score, after: Score, odd: str) -> None:
        self.before, self.after, self.odd, self.same = before, after, odd, not odd

    #: a row for the top of a table that shows a training which is another: no other row counts then
    ANOTHER = ("what it learns", "", "SOMETHING ELSE", "the same", "not yet")

    def table(self) -> Table:
        said = (
            f"THIS IS ANOTHER TRAINING: {self.odd}"
            if self.odd
            else f"in float32, the losses agree within {CLOSE:.1%}"
        )
        was, now = self.before.as_dict(), self.after.as_dict()
        changed = [row for row in ROWS if was[row[0]] != now[row[0]]]
        if same := len(ROWS) - len(changed):
            said += f"; {same} counters are as they were"
        columns = ["a step of the script", "before", "after", "before ÷ after"]
        rows = [(*self.ANOTHER[:3], "")] if self.odd else []
        rows += beside(changed, self.before, self.after)
        return table(rows, columns, evidence=SIMULATED, caption=said)


#: a script's text → the shortest step of a repaired one that was put on a board
_best: dict[str, float] = {}
#: its title in the learner's report
BOARD = "My repair of the capstone's script"


def compare(before: Script, after: Script) -> Board:
    """What was bought between one script and the other, and whether it still learns the same.

    The best board that does is kept for the learner's report.
    """
    for script in (before, after):
        if not isinstance(script, Script):
            raise TypeError(f"compare wants two scripts, such as script.replace(…), not {script!r}")
    odds = (apart(trained(before, run), trained(after, run)) for run in BOARD_RUNS)
    odd = next(filter(None, odds), None) or alone.changed(before, after)
    board = Board(score(before), score(after), odd or "")
    best = _best.get(before.source, math.inf)
    if board.same and board.after.step_s <= best:
        _best[before.source] = board.after.step_s
        progress.keep_board(BOARD, board.table())
    return board
