"""The running example as a value: its parts, each of which may be replaced by another."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from helpers.running_example import plain

Part = Callable[..., Any]


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
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                meant = f"do you mean {near[0]!r}? " if near else ""
                raise ValueError(f"the script has no part {name!r}: {meant}it has {', '.join(known)}")
            wanted = inspect.signature(getattr(plain, name))
            if not callable(part):
                raise TypeError(f"{name}={part!r} is no function: the script calls it as {name}{wanted}")
            needed = [p.name for p in wanted.parameters.values() if p.default is p.empty]
            try:
                inspect.signature(part).bind(*needed)
            except TypeError as problem:
                said = f"the script calls {name}({', '.join(needed)}), which {part.__name__} does not take"
                raise TypeError(f"{said}: {problem}") from None
            except ValueError:  # a function written in C that does not say what it takes
                pass
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
