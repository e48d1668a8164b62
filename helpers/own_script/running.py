"""Somebody's script, unchanged, on a GPU that is not there: what it did, line by line."""

from __future__ import annotations

import gc
import math
import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from helpers.own_script import as_cuda, checkpoints, host_time, listening, places, stepping
from helpers.own_script.live import Listener, Live
from helpers.own_script.places import Place
from helpers.own_script.true_values import TrueValues
from helpers.simulator import SimGPU, simulate

#: what may help a script that an exception of its own has ended
_VALUES = ". Tensors have no values here (each reads as 0): if the script raised it because of one, run it with --values"
#: operators that read one
_VALUE = {"aten._local_scalar_dense", "aten.equal", "aten.allclose", "Tensor.tolist", "Tensor.numpy"}
_LONGEST = 300  # letters of an error's message
#: words in an error's message → what is not simulated
_UNKNOWN = {
    "CUDA_HOME": "an extension in CUDA of one's own is not simulated",
    "_cuda'": "a package with kernels of its own is not simulated",
    "libcuda": "a Triton kernel of one's own is not simulated",
    "EOF when reading": "the script asks for a line of its input: give it one, echo … |",
}


class Refused(Exception):
    """Why a script could not be run, with its line."""


@dataclass
class Run:
    """What a run left behind. bounds: the steps' ends, the warm-up's first. snapshot: of the memory, None where no step ran.
    switches: what was on that makes steps slow. unsaved: paths of checkpoints that were not written. worked: what a loader's workers did, as `HostTime` has it. workers: of the loader that has most. values: the true ones, None where there are none. ended: why the script ended before all steps had run, "" if it did not."""

    script: str
    gpu: SimGPU
    marks: listening.Marks
    bounds: list[stepping.Bound]
    warm: int
    factor: float
    values: TrueValues | None = None
    snapshot: Any = None
    grown: list[int] = field(default_factory=list)
    switches: list[str] = field(default_factory=list)
    unsaved: list[str] = field(default_factory=list)
    worked: list[tuple[int, Place, float]] = field(default_factory=list)
    workers: int = 0
    ended: str = ""

    @property
    def measured(self) -> int:
        """How many steps were measured."""
        return max(0, len(self.bounds) - 1 - self.warm)


#: steps at the beginning of the measured ones whose memory is kept: growth shows in a few
_MEMORY_STEPS = 4


@contextmanager
def on(
    card: str = "H100", *, steps: float = math.inf, warm: int = 3, factor: float = 1.0, seconds: float = math.inf,
    values: bool = False, ranks: int = 0, name: str = "cell",
) -> Iterator[Run]:  # fmt: skip
    """Within this block "cuda" is that simulated card, and what runs is noted: for `findings`, when the block has ended.

    steps: how many are measured after `warm` others; then, or past `seconds`, the block is left. factor: seconds of the
    card's host for one second of Python here. values: tensors on the card have true values, which takes as long as the script
    on a CPU. ranks: that many such cards, of which this is the first; its collectives take the time they would. ValueError for
    both of these, RuntimeError inside another simulated GPU's block.
    """
    if values and ranks:
        raise ValueError("true values are not followed through collectives: values or ranks, not both")
    gpu = simulate(card, strict=False)
    if ranks:
        gpu.world(ranks)
    gpu._machine.works = []
    marks = listening.Marks(gpu)
    machine = gpu._machine

    def charge(where: Place, what: str, took_s: float) -> None:
        if took_s > 0:
            marks.put(where, within=watch.asker or watch.within)
            machine.line.spend(what, "work", took_s)

    watch = host_time.HostTime(machine, factor, charge)
    true = TrueValues(gpu) if values else None
    made = Run(name, gpu, marks, [], warm, factor, true, worked=watch.worked)

    def before() -> None:
        watch.stop()
        watch.settle(places.running() or places.NOWHERE)

    def ended(count: int) -> None:
        if count == warm + 1:
            made.switches = stepping.switches()
        if count in range(warm + 1, warm + 2 + _MEMORY_STEPS):
            made.grown.append(len(gpu.memory._snapshot()["device_traces"][0]))
        if count == warm + 1 + _MEMORY_STEPS:
            made.snapshot = gpu.memory._snapshot()
            gpu.memory._record_memory_history(None)

    found = stepping.Steps(gpu, warm, steps, seconds, before, ended)
    made.bounds = found.bounds
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)  # the simulator's records are many and live long
    try:
        with gpu, ExitStack() as stack:
            gpu.memory._record_memory_history(max_entries=2_000_000)
            made.unsaved = stack.enter_context(checkpoints.kept_apart())
            stack.enter_context(as_cuda.names(gpu, *([true.seeded] if true else [])))
            stack.enter_context(listening.listening(gpu, watch, marks, found.backward_ended, true))
            stack.enter_context(host_time.loaders(watch, found.look))
            stack.enter_context(watch.sampled())
            stack.enter_context(found.found())
            stack.enter_context(host_time.clocks(watch))
            watch.go()
            try:
                yield made
            except stepping.Enough:
                pass
            finally:
                watch.stop()
                made.workers = watch.workers
                if found.late:
                    made.ended = f"the {seconds:g} s were over; longer with --seconds"
    finally:
        gc.set_threshold(*thresholds)
        if made.snapshot is None and found.measured:
            made.snapshot = gpu.memory._snapshot()


def run(
    script: str | Path, arguments: Sequence[str] = (), *, card: str = "H100", steps: int = 20, warm: int = 3,
    factor: float = 1.0, seconds: float = 60.0, values: bool = False,
    ranks: int = 0,
) -> Run:  # fmt: skip
    """Run a script until it has taken `warm` + `steps` steps on that card, or, past `seconds`, fewer. Its output goes where
    it always goes.

    Refused, with the script's line, for what cannot be run; FileNotFoundError for no such file.
    """
    path = _there(script)
    done = f"{path.name}: the script came to its end"
    made: Run | None = None
    with _as_main(path, arguments, ranks):
        try:
            how: dict[str, Any] = {"steps": steps, "warm": warm, "factor": factor, "seconds": seconds}
            with on(card, **how, values=values, ranks=ranks, name=str(path)) as made:
                runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            done = f"{path.name}: the script ended itself, with {end.code!r}"
        except Exception as error:
            if made is None:  # it did not begin: what was asked for is at fault, not the script
                raise
            done = _told(error, path.name) + (_VALUES if not values and _read(made) else "")
    assert made is not None
    if not made.ended and len(made.bounds) <= warm + steps:
        made.ended = done
    if made.measured < 2:
        raise Refused(
            f"{done}. {_each(len(made.bounds))} ended before that; {warm} for the warm-up and 3 more are needed, or "
            "fewer with --warm-up"
        )
    return made


def run_live(
    script: str | Path,
    arguments: Sequence[str] = (),
    *,
    steps: int = 20,
    warm: int = 3,
    seconds: float = 60.0,
) -> Live:
    """Run a script for real, on this machine's GPU or else its CPU, until it has taken enough steps, and say what each line took.

    Refused, FileNotFoundError: as `run`.
    """
    path, found = _there(script), Listener(steps, warm, seconds)
    done = f"{path.name}: the script came to its end"
    with _as_main(path, arguments, 0):
        try:
            with found.listening():
                runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            done = f"{path.name}: the script ended itself, with {end.code!r}"
        except Exception as error:
            done = _told(error, path.name)
    try:
        return found.found(str(path))
    except ValueError as problem:
        raise Refused(f"{done}: {problem}") from None


def _there(script: str | Path) -> Path:
    path = Path(script)
    if not path.is_file():
        raise FileNotFoundError(f"no script at {path}: check the path")
    return path


def _each(steps: int) -> str:
    return f"{steps} step" if steps == 1 else f"{steps or 'No'} steps"


def _read(made: Run) -> bool:
    """Whether the host has read a value of a tensor on the card."""
    return any(record.kind == "sync" and record.name in _VALUE for record in made.gpu.host)


def _told(error: Exception, script: str) -> str:
    """What went wrong, with the script's innermost line."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if places.own(f.filename)]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else script
    said = str(error).strip().partition("\n")[0]
    if len(said) > _LONGEST:
        said = said[:_LONGEST] + " …"
    notes = [*getattr(error, "__notes__", []), *(why for word, why in _UNKNOWN.items() if word in str(error))]
    told = "; ".join(dict.fromkeys(notes))
    return f"{where}: {type(error).__name__}: {said.rstrip('.')}" + (f" ({told})" if told else "")


@contextmanager
def _as_main(path: Path, arguments: Sequence[str], ranks: int) -> Iterator[None]:
    """The world as a script finds it that is run by itself: its arguments, its folder first among the places of imports, and,
    of several ranks, what torchrun tells the first."""
    folder = str(path.resolve().parent)
    told = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "localhost", "MASTER_PORT": 29500}  # fmt: skip
    with (
        mock.patch.object(sys, "argv", [str(path), *arguments]),
        mock.patch.object(sys, "path", [folder, *sys.path]),
        mock.patch.dict(os.environ, {name: str(value) for name, value in told.items()} if ranks else {}),
    ):
        yield
