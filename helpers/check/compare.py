"""Is this value the one that was wanted? Compares decoded plain data and says in words what differs."""

import math
from typing import Any

import numpy as np
import torch


def difference(
    got: Any, want: Any, rtol: float | None = None, atol: float | None = None, at: str = "the result"
) -> str | None:
    """``None`` if ``got`` equals ``want``, else a sentence. Lists and tuples are interchangeable.

    Tensors: same shape, dtype and values within ``rtol``/``atol`` (default: torch.testing's, by dtype).
    Numbers: equal, floats within ``rtol`` (default 1e-9).
    """
    if isinstance(want, torch.Tensor):
        return _tensor_difference(got, want, rtol, atol, at)
    if isinstance(want, np.ndarray):
        if not isinstance(got, np.ndarray):
            return f"{at} is a {type(got).__name__}, wanted a NumPy array"
        return _tensor_difference(torch.from_numpy(got), torch.from_numpy(want), rtol, atol, at)
    if isinstance(want, list | tuple):
        if not isinstance(got, list | tuple):
            return f"{at} is {brief(got)}, wanted {len(want)} values: {brief(want)}"
        if len(got) != len(want):
            return f"{at} has {len(got)} values, wanted {len(want)}"
        return _first(
            difference(g, w, rtol, atol, f"{at}[{i}]") for i, (g, w) in enumerate(zip(got, want, strict=True))
        )
    if isinstance(want, dict):
        if not isinstance(got, dict):
            return f"{at} is {brief(got)}, wanted a dict with {brief(list(want))}"
        if missing := [k for k in want if k not in got]:
            return f"{at} lacks {brief(missing)}"
        if extra := [k for k in got if k not in want]:
            return f"{at} holds {brief(extra)}, which nobody asked for"
        return _first(difference(got[k], want[k], rtol, atol, f"{at}[{k!r}]") for k in want)
    if isinstance(got, torch.Tensor | np.ndarray):
        return f"{at} is a {type(got).__name__} of shape {tuple(got.shape)}, wanted {brief(want)}"
    if isinstance(want, bool) or isinstance(got, bool) or want is None or isinstance(want, str):
        return (
            None if type(got) is type(want) and got == want else f"{at} is {brief(got)}, wanted {brief(want)}"
        )
    if isinstance(want, int) and rtol is None and atol is None:
        same = isinstance(got, int) and got == want
        return None if same else f"{at} is {brief(got)}, wanted {want!r}"
    if isinstance(want, int | float) and isinstance(got, int | float):
        if (math.isnan(want) and math.isnan(got)) or math.isclose(
            got, want, rel_tol=1e-9 if rtol is None else rtol, abs_tol=atol or 0.0
        ):
            return None
        return f"{at} is {got!r}, wanted {want!r}"
    return None if type(got) is type(want) and got == want else f"{at} is {brief(got)}, wanted {brief(want)}"


def _first(differences: Any) -> str | None:
    return next((d for d in differences if d), None)


def _tensor_difference(
    got: Any, want: torch.Tensor, rtol: float | None, atol: float | None, at: str
) -> str | None:
    if not isinstance(got, torch.Tensor):
        return f"{at} is {brief(got)}, wanted a tensor of shape {tuple(want.shape)}"
    if got.shape != want.shape:
        return f"{at} has shape {tuple(got.shape)}, wanted {tuple(want.shape)}"
    if got.dtype != want.dtype:
        return f"{at} has dtype {got.dtype}, wanted {want.dtype}"
    if got.device.type != want.device.type:
        return f"{at} is on device {got.device.type}, wanted {want.device.type}"
    if want.device.type == "meta":
        return None
    if (rtol is None) != (atol is None):
        rtol, atol = rtol or 0.0, atol or 0.0
    try:
        torch.testing.assert_close(
            got.detach(), want.detach(), rtol=rtol, atol=atol, equal_nan=True, check_stride=False
        )
    except AssertionError:
        g, w = got.detach(), want.detach()
        if want.dtype.is_floating_point or want.dtype.is_complex:
            off = (g.to(torch.complex128 if want.dtype.is_complex else torch.float64) - w).abs()
            off = torch.where((g == w) | (g.isnan() & w.isnan()), torch.zeros_like(off), off)
            off = torch.nan_to_num(off, nan=math.inf)
        else:
            off = (g != w).to(torch.float64)
        worst = tuple(int(i) for i in np.unravel_index(int(off.argmax()), tuple(want.shape) or (1,)))[
            : want.dim()
        ]
        return f"{at} has {int((off > 0).sum())} of {want.numel()} values off; the worst, at {list(worst)}: {g[worst].item()!r}, wanted {w[worst].item()!r}"
    return None


def _rounded(numbers: Any) -> str:
    if isinstance(numbers, list):
        return "[" + ", ".join(_rounded(n) for n in numbers) + "]"
    return f"{numbers:.4g}"


def brief(value: Any, most: int = 70) -> str:
    """A value on one short line: small tensors with their values, larger ones by dtype and shape."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        if value.numel() <= 6 and value.is_contiguous() and value.device.type != "meta":
            numbers = value.tolist()
            return "tensor(" + (repr(numbers) if not value.is_floating_point() else _rounded(numbers)) + ")"
        text = f"{dtype} tensor {tuple(value.shape)}"
        plain = value.is_contiguous() and value.storage_offset() == 0
        return text if plain else f"{text} with stride {value.stride()}, offset {value.storage_offset()}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} array {value.shape}"
    if isinstance(value, list | tuple) and any(isinstance(v, torch.Tensor | list | tuple) for v in value):
        inner = ", ".join(brief(v, 30) for v in value)
        text = f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    else:
        text = repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"
