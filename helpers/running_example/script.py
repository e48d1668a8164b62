"""The running example as a value: its parts, each of which may be replaced by another."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from helpers.running_example import plain

Part = Callable[..., Any]


def known_part(name: str, names: Collection[str]) -> str:
    """The name, if a script has a part of that name. ValueError otherwise, with the one that may be meant."""
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        meant = f"do you mean {near[0]!r}? " if near else ""
        raise ValueError(f"the script has no part {name!r}: {meant}it has {', '.join(names)}")
    return name


def fits(name: str, part: Any, needed: Sequence[str]) -> None:
    """TypeError for what is no function, or cannot be called with the arguments that the script gives this part."""
    said = f"{name}({', '.join(needed)})"
    if not callable(part):
        raise TypeError(f"{name}={part!r} is no function: the script calls it as {said}")
    try:
        inspect.signature(part).bind(*needed)
    except TypeError as problem:
        called = getattr(part, "__name__", part)
        raise TypeError(f"the script calls {said}, which {called} does not take: {problem}") from None
    except ValueError:  # a function written in C that does not say what it takes
        pass


@dataclass(frozen=True)
class Script:
    """The training script. Every part is a function; what each is for says its namesake in `plain`."""

    text: Part = plain.text
    batches: Part = plain.batches
    to_device: Part = plain.to_device
    attention: Part = plain.attention
    activation: Part = plain.activation
    through: Part = plain.through
    prepare: Part = plain.prepare
    forward: Part = plain.forward
    optimizer: Part = plain.optimizer
    clip: Part = plain.clip
    around: Part = plain.around
    log: Part = plain.log

    def replace(self, **parts: Part) -> Script:
        """The script with other functions for some of its parts.

        ValueError for a name that is no part, TypeError for what is no function or takes other arguments than
        the part that it stands for.
        """
        known = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, part in parts.items():
            wanted = inspect.signature(getattr(plain, known_part(name, known)))
            fits(name, part, [p.name for p in wanted.parameters.values() if p.default is p.empty])
        return Script(**(known | parts))

    def unlike(self, other: Script) -> list[str]:
        """The names of the parts that are not the same as the other's."""
        return [f.name for f in fields(self) if getattr(self, f.name) is not getattr(other, f.name)]

    def train(self, size: plain.Size, gpu: Any, steps: int) -> Iterator[plain.Record]:
        """`plain.train` with these parts."""
        return plain.train(self, size, gpu, steps)


@dataclass(frozen=True)
class Rung:
    """A lesson's change. begins: whose script the lesson began with. parts: what it replaced. says: that in words."""

    begins: str
    parts: dict[str, Part]
    says: str


PLAIN = Script()
