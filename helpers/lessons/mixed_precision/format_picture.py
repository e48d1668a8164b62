"""Two pictures of floating-point formats: a value's bits, and the range of each format."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.patches import Rectangle

from helpers.lessons.mixed_precision.float_formats import FORMATS
from helpers.plots import style
from helpers.plots.picture import Picture, drawn

SIGN, EXPONENT, MANTISSA = style.PURPLE, style.VERMILLION, style.BLUE
_FILLS = {SIGN: "#F1DDE8", EXPONENT: "#FBE3D3", MANTISSA: "#D6E8F5"}  # pale tints: digits stay readable


def shown(value: float) -> str:
    """A value in few digits: 65504, 0.1001, 5.96e-08, inf."""
    plain = not math.isfinite(value) or value == 0 or 1e-4 <= abs(value) < 1e5
    return f"{value:.{5 if abs(value) >= 1 else 4}g}" if plain else f"{value:.3g}"


def _power(n: int) -> str:
    """2⁻²³"""
    return "2" + str(n).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


@drawn
def float_bits(value: float) -> Picture:
    """The bits of `value` in each format, in columns of equal weight, and what rounding made of it."""
    rows = list(FORMATS.values())
    cell, tall, pitch, left = 0.168, 0.27, 0.47, 0.78
    text_at = left + 32 * cell + 0.30
    height = 0.34 + pitch * len(rows)
    fig, header = style.figure(
        height, evidence="arithmetic", title=f"{shown(value)} in {len(rows)} formats",
        note="each rounds to its nearest value, and of two equally near to the one that ends in 0", placed=True,
    )  # fmt: skip
    total = height + header
    ax = fig.add_axes((0, 0, 1, height / total))
    ax.set(xlim=(0, style.WIDTH), ylim=(height, 0))
    ax.axis("off")
    put: dict[str, Any] = {"va": "center", "fontsize": style.SMALL}
    for x, width, name, colour in (
        (left, 1, "sign", SIGN), (left + cell, 8, "exponent", EXPONENT), (left + 9 * cell, 23, "mantissa", MANTISSA),
    ):  # fmt: skip
        at = x if name == "sign" else x + width * cell / 2
        ax.text(at, 0.14, name, ha="center", color=colour, fontweight="bold", **put)
    ax.text(text_at, 0.14, "value, off by", color=style.MUTED, **put)
    texts = []
    for i, f in enumerate(rows):
        top, bits = 0.34 + i * pitch, f.encode(value)
        got, mid = f.decode(bits), top + tall / 2
        ax.text(left - 0.16, mid, f.name, ha="right", va="center", fontsize=style.TEXT)
        for k, digit in enumerate(f"{bits:0{f.bits}b}"):
            colour = SIGN if k == 0 else EXPONENT if k <= f.exponent else MANTISSA
            column = 0 if k == 0 else k + 8 - f.exponent  # exponents end, and mantissas begin, at one column
            x = left + column * cell
            ax.add_patch(Rectangle((x, top), cell, tall, facecolor=_FILLS[colour], edgecolor=colour, lw=0.7))
            ax.text(x + cell / 2, mid, digit, ha="center", **put)
        text = shown(got) + _error(value, got)
        ax.text(text_at, mid, text, **put)
        texts.append(f"{f.name} {text}")
    return Picture(fig, "arithmetic", f"The bits of {shown(value)}: {'; '.join(texts)}")


def _error(value: float, got: float) -> str:
    """What rounding changed, relative, in words; "" if there is nothing to compare."""
    if math.isnan(value) or math.isinf(value):
        return ""
    if got == value:
        return ", exactly"
    if got == 0:
        return ", all of it"
    if not math.isfinite(got):
        return ", beyond its range"
    off = got / value - 1
    return (f", {off:+.1e}" if abs(off) < 1e-5 else f", {off * 100:+.2g} %").replace(" -", " −")


@drawn
def float_ranges(
    values: Mapping[str, Sequence[float]] | None = None, formats: Sequence[str] = tuple(FORMATS), *,
    evidence: str = "arithmetic", title: str = "What each format can hold",
) -> Picture:  # fmt: skip
    """A number line of powers of two: the normal and the subnormal range of each format.

    values: name → numbers, drawn above as histograms of their magnitudes (zeros are left out); `evidence` says
    where they come from.
    """
    rows, groups = [FORMATS[name] for name in formats], dict(values or {})
    low, high = -150.0, 134.0
    if groups:  # no need for all of fp32's range
        logs = {name: _log2(v) for name, v in groups.items()}
        ends = [x for v in logs.values() if len(v) for x in (v.min(), v.max())]
        low, high = min([*ends, -26.0]) - 3, max([*ends, 17.0]) + 5
    upper = 1.0 * len(groups)
    body = 0.36 * len(rows) + 0.75 + upper
    note = "solid: normal, all bits of mantissa; hatched: subnormal, fewer and fewer"
    if groups:
        note = "bars: how many numbers have each size; blue below: full precision; hatched: subnormal"
    else:
        note += "; right: from 1 to the next value"
    fig, _ = style.figure(body, evidence=evidence, title=title, note=note)
    axes = fig.subplots(
        1 + len(groups), 1, sharex=True, squeeze=False,
        gridspec_kw={"height_ratios": [1.0] * len(groups) + [0.36 * len(rows) + 0.4]},
    )[:, 0]  # fmt: skip
    for i, (ax, name) in enumerate(zip(axes, groups, strict=False)):
        edges = np.arange(math.floor(low), math.ceil(high) + 1)
        ax.hist(logs[name], bins=edges, color=style.SERIES[i], alpha=0.85)
        ax.set_yticks([])
        ax.tick_params(axis="x", length=0)
        ax.set_title(name, loc="left", color=style.SERIES[i], fontweight="bold", fontsize=style.SMALL)
        ax.spines["left"].set_visible(False)
    ax = axes[-1]
    for y, f in enumerate(rows):
        ends = [math.log2(v) for v in (f.smallest, f.smallest_normal, f.largest)]
        subnormal: dict[str, Any] = {"facecolor": _FILLS[EXPONENT], "edgecolor": EXPONENT, "hatch": "////"}
        normal: dict[str, Any] = {"facecolor": MANTISSA, "edgecolor": MANTISSA}
        for (a, b), look in zip(pairwise(ends), (subnormal, normal), strict=True):
            ax.add_patch(Rectangle((a, y - 0.28), b - a, 0.56, lw=0.6, **look))
        gap = (high - low) * 0.006
        put: dict[str, Any] = {"va": "center", "fontsize": style.SMALL}
        if ends[0] < low:  # cut: say where it goes on to
            ax.text(low + gap, y, f"◀ {shown(f.smallest)}", ha="left", color=style.PAPER, **put)
        if ends[2] > high:
            ax.text(high - gap, y, f"{shown(f.largest)} ▶", ha="right", color=style.PAPER, **put)
        for x, text, side, by in ((ends[0], f.smallest, "right", -gap), (ends[2], f.largest, "left", gap)):
            if low < x < high:
                ax.text(x + by, y, shown(text), ha=side, **put)
    if not groups:
        right = ax.secondary_yaxis("right")
        right.set_yticks(range(len(rows)), [_power(-f.mantissa) for f in rows])
        right.spines["right"].set_visible(False)
        right.tick_params(length=0)
        ax.annotate(
            "1 to next", (1, 1), xycoords="axes fraction", xytext=(31, 3), textcoords="offset points", ha="right",
            color=style.MUTED, fontsize=style.SMALL, annotation_clip=False,
        )  # fmt: skip
    pad = 0 if groups else 25
    ax.set(ylim=(len(rows) - 0.4, -0.6), xlim=(low - pad, high + pad), xlabel="power of two")
    ax.set_yticks(range(len(rows)), [f.name for f in rows])
    ax.grid(axis="y", visible=False)
    reach = ", ".join(f"{f.name} up to {shown(f.largest)}" for f in rows)
    return Picture(fig, evidence, f"{title}: {''.join(f'{name}; ' for name in groups)}{reach}")


def _log2(values: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    sizes = np.abs(np.asarray(values, dtype=np.float64)).reshape(-1)
    return np.asarray(np.log2(sizes[(sizes > 0) & np.isfinite(sizes)]))
