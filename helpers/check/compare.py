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
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (got, want))
    if numbers and (isinstance(want, float) or rtol is not None or atol is not None):
        nan = math.isnan(want) and math.isnan(got)
        same = nan or math.isclose(got, want, rel_tol=1e-9 if rtol is None else rtol, abs_tol=atol or 0.0)
    else:
        same = type(got) is type(want) and got == want
    return None if same else f"{at} is {brief(got)}, wanted {brief(want)}"


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
    if not _close(got.detach(), want.detach(), rtol, atol):
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


def _close(got: torch.Tensor, want: torch.Tensor, rtol: float | None, atol: float | None) -> bool:
    """What torch.testing.assert_close says of values, NaN equal to NaN, without the two seconds of imports that
    its first call costs (torch.distributed.tensor): a learner would wait for them at the first test."""
    if want.layout != torch.strided or got.layout != torch.strided or want.is_quantized or got.is_quantized:
        try:
            torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError:
            return False
        return True
    if rtol is None or atol is None:
        rtol, atol = _TOLERANCES.get(want.dtype, (0.0, 0.0))
    return torch.equal(got, want) or bool(
        torch.isclose(got, want, rtol=rtol, atol=atol, equal_nan=True).all()
    )


#: relative and absolute, as documented for torch.testing.assert_close; 0 for all other types
_TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex32: (1e-3, 1e-5),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}


def _rounded(numbers: Any) -> str:
    if isinstance(numbers, list):
        return "[" + ", ".join(_rounded(n) for n in numbers) + "]"
    return f"{numbers:.4g}"


def brief(value: Any, most: int = 70) -> str:
    """A value on one short line: small tensors with their values, larger ones by dtype and shape."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        # one of no elements may have any shape
        if (
            value.numel() <= 6
            and max(value.shape, default=0) <= 6
            and value.is_contiguous()
            and value.device.type != "meta"
        ):
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
