"""A checkpoint that a simulated run saves holds no true numbers: it never takes the place of a real one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

#: what scripts do with a checkpoint that they have just saved, and whether it is still there then
_ELSEWHERE = (
    (os, "replace", False), (os, "rename", False), (os, "link", True), (shutil, "move", False), (shutil, "copyfile", True),
    (shutil, "copy", True), (shutil, "copy2", True),
)  # fmt: skip


@contextmanager
def kept_apart() -> Iterator[list[str]]:
    """In this block `torch.save` to a path writes to a temporary folder, and `torch.load` of that path reads it there. So do
    safetensors' functions, and what copies, renames or removes such a file.

    Gives the paths, in their order, as the program named them. What is saved to an open file goes where it went.
    """
    named: list[str] = []
    apart: dict[str, Path] = {}
    save, load = torch.save, torch.load

    def known(path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.path.abspath(path) in apart

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:

        def place(path: Any) -> Path:
            """Where a file is kept that the program calls `path`."""
            full = os.path.abspath(os.fspath(path))
            os.stat(os.path.dirname(full))  # where there is no such folder, torch.save would say so too
            if full not in apart:
                named.append(str(path))
                apart[full] = Path(folder) / str(len(named))
            return apart[full]

        def saved(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
            save(obj, place(f) if isinstance(f, str | os.PathLike) else f, *args, **kwargs)

        def loaded(f: Any, *args: Any, **kwargs: Any) -> Any:
            return load(apart[os.path.abspath(f)] if known(f) else f, *args, **kwargs)

        def elsewhere(true: Callable[..., Any], stays: bool) -> Callable[..., Any]:
            def put(src: Any, dst: Any, *args: Any, **kwargs: Any) -> Any:
                if not known(src):
                    return true(src, dst, *args, **kwargs)
                to = os.path.join(dst, os.path.basename(src)) if os.path.isdir(dst) else dst
                place(to).write_bytes(place(src).read_bytes())
                if not stays:
                    del apart[os.path.abspath(src)]
                return to

            return put

        def asking(true: Callable[..., Any]) -> Callable[..., Any]:
            return lambda path, *args, **kwargs: known(path) or true(path, *args, **kwargs)

        def removing(true: Callable[..., Any]) -> Callable[..., Any]:
            def removed(path: Any, *args: Any, **kwargs: Any) -> None:
                if known(path):
                    del apart[os.path.abspath(path)]
                else:
                    true(path, *args, **kwargs)

            return removed

        def put(owner: Any, name: str, new: Any) -> None:
            stack.enter_context(mock.patch.object(owner, name, new))

        put(torch, "save", saved)
        put(torch, "load", loaded)
        if importlib.util.find_spec("safetensors") is not None:
            safe = importlib.import_module("safetensors.torch")
            serialize, opened = safe.serialize_file, safe.safe_open
            file = lambda path: place(path) if known(path) else path  # noqa: E731
            put(
                safe,
                "serialize_file",
                lambda data, f, *rest, **named: serialize(data, place(f), *rest, **named),
            )
            put(safe, "safe_open", lambda f, *args, **named: opened(file(f), *args, **named))
        for owner, name, stays in _ELSEWHERE:
            put(owner, name, elsewhere(getattr(owner, name), stays))
        for name in ("exists", "isfile"):
            put(os.path, name, asking(getattr(os.path, name)))
        for name in ("remove", "unlink"):
            put(os, name, removing(getattr(os, name)))
        yield named
