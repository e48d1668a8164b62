"""How a snippet is run: one line says what happened, the same on every run."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from helpers import compiling

#: where a snippet is run that asks for a GPU
SIMULATED, CPU = "on the simulated GPU", "on the CPU"
NOT_RUN = "not run: "


@dataclass(frozen=True)
class Snippet:
    """A snippet of a source. as_written, as_it_should: run it, and say in a line what happened.

    source: a key of :func:`helpers.lesson.sources.every`. section: as the source numbers or calls it. what: the call that matters.
    """

    id: str
    source: str
    section: str
    what: str
    as_written: Callable[[], str]
    as_it_should: Callable[[], str]


class NotRun(Exception):
    """A snippet that cannot be run here: its words say why."""


def snippet(
    name: str, section: str, what: str, written: Callable[[], str], should: Callable[[], str],
    where: str = "", where_should: str | None = None,
) -> Snippet:  # fmt: skip
    """A Snippet whose id is `name`, "<source>/<its name>", and whose two callables say what happened and, where given, on what."""
    there = where if where_should is None else where_should
    return Snippet(name, name.partition("/")[0], section, what, told(written, where), told(should, there))


def told(run: Callable[[], str], where: str = "") -> Callable[[], str]:
    """The same as one line: where, what was warned of as deprecated, and what `run` returned or raised."""

    @functools.wraps(run)
    def tell() -> str:
        notes: list[str] = []
        try:
            with alone(notes):
                said = f"runs; {run()}"
        except NotRun as why:
            return f"{NOT_RUN}{why}"
        except Exception as problem:
            said = f"{type(problem).__name__}: {first_sentence(str(problem))}"
        before = "".join(dict.fromkeys(notes))
        return f"{where}: {before}{said}" if where else before + said

    return tell


@contextlib.contextmanager
def alone(notes: list[str]) -> Iterator[None]:
    """Seeded, with nothing compiled before or left behind, and nothing printed; `notes` gets what warns of the snippet's own calls."""
    torch.compiler.reset()
    logging.disable(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            torch.random.fork_rng(devices=[]),
        ):
            warnings.simplefilter("always")
            torch.manual_seed(0)
            yield
    finally:
        logging.disable(logging.NOTSET)
        torch.compiler.reset()
        here = str(Path(__file__).parent)  # not what a library says of itself, once a process
        kinds = FutureWarning, DeprecationWarning
        deprecated = [
            w for w in caught
            if issubclass(w.category, kinds)
            and (w.filename.startswith(here) or str(w.message).startswith("`torch.jit.script` "))
        ]  # fmt: skip
        notes += [f"{w.category.__name__}: {first_sentence(str(w.message))}; " for w in deprecated]


def first_sentence(text: str, longest: int = 150) -> str:
    """Of a message: in one line, without addresses, without its full stop."""
    line = re.split(r"\.\s|\n", text.strip())[0] or "no message"
    line = re.sub(r" at 0x[0-9a-f]+|\w+\.<locals>\.", "", " ".join(line.split())).rstrip(".:")
    return line if len(line) <= longest else line[:longest].rpartition(" ")[0] + " …"


def problem_of(call: Callable[[], Any]) -> str:
    """What a part of a snippet raises, or "nothing"."""
    try:
        call()
    except Exception as problem:
        return f"{type(problem).__name__}: {first_sentence(str(problem))}"
    return "nothing"


def need(*packages: str) -> None:
    """NotRun where one of these is not installed."""
    if missing := [name for name in packages if find_spec(name) is None]:
        raise NotRun(f"needs {' and '.join(missing)} (`make lab EXTRAS=models`)")


def captured(run: Callable[[], Any]) -> str:
    """Run what compiles something, with the backend "eager" in the place of Inductor: how much was captured."""
    with compiling.watch("eager") as w:
        run()
    return f"{counted(len(w.graphs), 'graph')} of {counted(w.operators, 'operator')}"


def counted(n: int, what: str) -> str:
    """ "1 graph", "2 graphs"."""
    return f"{n:,} {what}" + ("" if n == 1 else "es" if what.endswith("ch") else "s")


class Pictures(nn.Module):
    """A convolution, ReLU, pooling and a linear layer for pictures of 3 × 32 × 32. flat: how it gets its rows."""

    def __init__(self, flat: Callable[[torch.Tensor], torch.Tensor] = lambda x: x.flatten(1)) -> None:
        super().__init__()
        self.conv, self.relu, self.pool = nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, 2)
        self.fc, self.flat = nn.Linear(16 * 16 * 16, 10), flat

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.fc(self.flat(self.pool(self.relu(self.conv(x)))))
        return out
