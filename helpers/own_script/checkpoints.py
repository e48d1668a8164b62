"""A checkpoint that a simulated run saves holds no true numbers: it never takes the place of a real one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch


@contextmanager
def kept_apart() -> Iterator[list[str]]:
    """In this block `torch.save` to a path writes to a temporary folder, and `torch.load` of that path reads it there.

    Gives the paths, in their order, as the program named them. What is saved to an open file goes where it went.
    """
    named: list[str] = []
    apart: dict[str, Path] = {}
    save, load = torch.save, torch.load

    with tempfile.TemporaryDirectory() as folder:

        def saved(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
            if isinstance(f, str | os.PathLike):
                path = os.path.abspath(os.fspath(f))
                os.stat(os.path.dirname(path))  # where there is no such folder, torch.save would say so too
                if path not in apart:
                    named.append(str(f))
                    apart[path] = Path(folder) / str(len(apart))
                f = apart[path]
            save(obj, f, *args, **kwargs)

        def loaded(f: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(f, str | os.PathLike):
                f = apart.get(os.path.abspath(os.fspath(f)), f)
            return load(f, *args, **kwargs)

        with mock.patch.object(torch, "save", saved), mock.patch.object(torch, "load", loaded):
            yield named
