"""A script's results without autocast and without torch.compile: those of plain operators, as its tensors' dtypes say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import torch


@contextmanager
def without_autocast() -> Iterator[None]:
    """Within this block, torch.autocast changes nothing. ValueError where it asks for float16.

    Small gradients are 0 in float16 without a GradScaler, and no run here is long enough to show what that does.
    """

    def entered(self: torch.autocast) -> None:
        if self.fast_dtype is torch.float16:
            raise ValueError(
                "torch.autocast in float16: small gradients become 0; wanted dtype=torch.bfloat16"
            )

    with (
        mock.patch("torch.autocast.__enter__", entered),
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
