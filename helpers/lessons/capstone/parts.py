"""A training script as a value: its text, and functions that stand in for some of its own."""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import sys
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from helpers.running_example.script import Part, fits, known_part

#: what an exercise repairs: the functions of the script that may be replaced
AREAS: dict[str, tuple[str, ...]] = {
    "data": ("fetch", "loading", "send"),
    "model": (
        "normalise", "augment", "attention", "activation", "places", "split_heads", "through", "cost", "forward",
    ),
    "step": ("pieces", "accumulate", "share", "clip", "make_optimizer", "average"),
    "run": ("count_right", "log", "remember", "held_out", "validate", "to_host", "save"),
}  # fmt: skip
#: what the exercise that puts the repairs of all areas together is graded by
WHOLE = ("step_s", "peak_bytes", "growth_bytes")
PARTS = tuple(part for parts in AREAS.values() for part in parts)


#: a compiled answer keeps what it has found under a module's name: each run's module has another
_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Script:
    """A script's text. replaced: the functions that stand in for its own, by name."""

    source: str
    replaced: tuple[tuple[str, Part], ...] = ()

    def part(self, name: str) -> str:
        """The text of one of its functions or classes. ValueError for a name that it does not define."""
        return _parts(self.source)[known_part(name, tuple(_parts(self.source)))]

    def replace(self, **parts: Part) -> Script:
        """The script with other functions in place of some of its own.

        A new function may use every name of the script, as if it stood there. ValueError for a name that is no part,
        TypeError for what is no function or takes other arguments than the one that it stands for.
        """
        for name, part in parts.items():
            fits(name, part, _needed(self.part(known_part(name, PARTS))))
        return Script(self.source, tuple(sorted((dict(self.replaced) | parts).items(), key=lambda p: p[0])))

    @property
    def file(self) -> str:
        """What tracebacks and snapshots call its file."""
        return f"{zlib.crc32(self.source.encode()):08x}/train.py"

    def module(self) -> ModuleType:
        """A new module that has run the script's text, with the replaced functions in it."""
        lines = self.source.splitlines(keepends=True)
        linecache.cache[self.file] = len(self.source), None, lines, self.file
        made = ModuleType(f"the_script_{next(_NUMBERS)}")
        with _importable(made):
            exec(compile(self.source, self.file, "exec", dont_inherit=True), vars(made))  # noqa: S102 - the course's own text
        vars(made).update(self.replaced)
        return made

    def train(self, files: Any, size: Any, gpu: Any, steps: int, seed: int = 0) -> Generator[Any, None, None]:
        """The script's `train`, step by step: yields its record. size: see :func:`size_of`."""
        return self.within(self.module(), files, size, gpu, steps, seed)

    def within(
        self, made: ModuleType, files: Any, size: Any, gpu: Any, steps: int, seed: int = 0
    ) -> Generator[Any, None, None]:
        """The same in a module that is there already, of :meth:`module`. size: keyword arguments of its Size."""
        run = made.train(files, made.Size(**size), gpu, steps, seed)
        while True:
            with _importable(made), _lent(vars(made), spaces(self)):
                try:
                    record = next(run)
                except StopIteration:
                    return
            yield record

    def write(self, path: Path | str) -> Path:
        """Write the text to a file, to be read, and run by `python train.py`. What was replaced is not in it."""
        path = Path(path)
        path.write_text(self.source, encoding="utf-8")
        return path

    def __repr__(self) -> str:
        others = ", ".join(name for name, _ in self.replaced)
        return f"<a script of {len(self.source.splitlines())} lines; replaced: {others or 'nothing'}>"


@functools.lru_cache(maxsize=64)
def _parts(source: str) -> dict[str, str]:
    lines = source.splitlines()
    texts = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
            texts[node.name] = "\n".join(lines[first - 1 : node.end_lineno]) + "\n"
    return texts


def _needed(text: str) -> list[str]:
    """Names of the arguments that the function of this text has no default for."""
    made = next(node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)).args
    return [arg.arg for arg in made.args[: len(made.args) - len(made.defaults)]]


def spaces(script: Script) -> list[dict[str, Any]]:
    """The global names of the functions that stand in for some of the script's own."""
    return [space for _, part in script.replaced if (space := _globals_of(part)) is not None]


def code_of(part: Any) -> CodeType | None:
    """The code behind a part, below decorators."""
    code: CodeType | None = getattr(_below(part), "__code__", None)
    return code


def _globals_of(part: Any) -> dict[str, Any] | None:
    """The global names of the function behind a part."""
    names: dict[str, Any] | None = getattr(_below(part), "__globals__", None)
    return names


def _below(part: Any) -> Any:
    """The function below decorators."""
    for _ in range(20):
        inner = next(
            (below for mark in ("__wrapped__", "_torchdynamo_orig_callable", "func") if (below := getattr(part, mark, None))),
            None,
        )  # fmt: skip
        if inner is None:
            break
        part = inner
    return part


@contextmanager
def _importable(made: ModuleType) -> Iterator[None]:
    """Within this block, who looks a class's or a function's module up by name finds it: dataclasses, torch.compile."""
    sys.modules[made.__name__] = made
    try:
        yield
    finally:
        del sys.modules[made.__name__]


@contextmanager
def _lent(names: dict[str, Any], spaces: list[dict[str, Any]]) -> Iterator[None]:
    """Within this block, other modules have the script's names too, where they have none of that name."""
    lent = []
    for space in spaces:
        missing = [n for n in names if n not in space and n[:2] != "__"]
        space.update((name, names[name]) for name in missing)
        lent.append((space, missing))
    try:
        yield
    finally:
        for space, missing in lent:
            for name in missing:
                space.pop(name, None)
