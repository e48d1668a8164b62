"""Every private name of PyTorch that the course relies on, looked up here and nowhere else.

    private_torch.current_autograd_node()                     # the thing itself, imported at its first use
    mock.patch.object(*private_torch.place("verify_shapes"), lambda *_: None)    # (owner, its attribute's name)

The names are listed in private_torch.toml, by subject. One that a version of PyTorch no longer has fails here, with that
version and what the name was for; tests/test_private_torch.py says for each what of it is relied on, and passes with
torch 2.11.0, 2.13.0 and 2.14.1: all names are in each of them.
"""

from __future__ import annotations

import importlib
import pkgutil
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import torch

_LISTED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
NAMES = {name: (at, why) for subject in _LISTED.values() for name, (at, why) in subject.items()}
"""Name → "module:attribute", and what it is needed for."""


@cache
def place(name: str) -> tuple[Any, str]:
    """Who holds it, and under what name: for :func:`unittest.mock.patch.object`. AttributeError as for a look-up."""
    at, why = NAMES[name]
    module, _, path = at.partition(":")
    *above, last = path.split(".")
    try:
        owner = pkgutil.resolve_name(f"{module}:{'.'.join(above)}")
        if not hasattr(owner, last):  # a submodule that nobody has imported yet
            importlib.import_module(f"{module}.{path}")
    except (ImportError, AttributeError) as problem:
        raise AttributeError(
            f"torch {torch.__version__} has no {at.replace(':', '.')} ({problem}), which helpers needs for: {why}. "
            "helpers/pytorch/private_torch.toml is the place to mend it"
        ) from problem
    return owner, last


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(*place(name))
