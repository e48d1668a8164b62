"""A script's results without autocast and without torch.compile: those of plain operators, as its tensors' dtypes say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import torch


@contextmanager
def without_autocast() -> Iterator[None]:
    """Within this block, torch.autocast changes nothing."""
    with (
        mock.patch("torch.autocast.__enter__", lambda *given: None),
        mock.patch("torch.autocast.__exit__", lambda *given: None),
    ):
        yield


@contextmanager
def eager() -> Iterator[None]:
    """Within this block, torch.compile changes nothing, and what was compiled before runs as it stands."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch("torch.compile", lambda part=None, **how: part or (lambda one: one)))
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield
