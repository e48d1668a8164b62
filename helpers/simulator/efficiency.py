"""What share of a card's published peaks the kernels of one family reach.

The table, efficiencies.json, is fitted by `python -m helpers.simulator.calibration --fit` on measurements of
real cards, and says which. A card that is not in it, or a kind of arithmetic that was not measured on it,
takes the family's median over the measured cards; a family that was never measured takes the two round
shares of `devices.Assumptions`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from helpers.simulator.devices import Assumptions, Device

__all__ = ["FAMILIES", "Efficiency", "family", "of", "table", "with_ramp"]

TABLE = Path(__file__).with_name("efficiencies.json")

#: family → a pattern of aten operator names, without leading and trailing underscores; the first that matches
FAMILIES: dict[str, str] = {
    "attention": r"scaled_dot_product|flash_attention|efficient_attention",
    "optimizer": r"^(foreach|fused)_",
    "convolution": r"convolution|^conv\dd",
    "matmul": r"mm$|^linear|^addmv|^mv$|^dot$",
    "normalisation": r"norm|softmax",
    "gather": r"embedding|^index|^gather|^scatter|^take|masked_select|nonzero",
    "reduction": r"^(sum|mean|a?max|a?min|argmax|argmin|var|std|nll_loss|logsumexp|cumsum|prod|any|all)",
    "copy": r"copy|clone|^cat$|^stack|^fill|^zero",
}
#: a family without measurements takes the shares of this one
STANDS_IN = {
    "optimizer": "elementwise",
    "copy": "elementwise",
    "gather": "elementwise",
    "reduction": "normalisation",
}
#: a card that was not measured, but is made of the same chip as one that was
_SAME_CHIP = {"H200": "H100"}


@dataclass(frozen=True)
class Efficiency:
    """Shares of the published FLOP/s and bytes/s that large kernels reach; ramp_s: seconds lost beside that."""

    flop_share: float
    bandwidth_share: float
    ramp_s: float = 0.0


@lru_cache(maxsize=4096)
def family(operator: str) -> str:
    """The family of an aten operator's name, e.g. "addmm" → "matmul"; "elementwise" for all the rest."""
    name = operator.strip("_")
    if name in ("index_add", "max_pool2d_with_indices", "threshold_backward"):
        return "elementwise"
    return next((f for f, pattern in FAMILIES.items() if re.search(pattern, name)), "elementwise")


def with_ramp(busy_s: float, ramp_s: float, floor_s: float) -> float:
    """Busy time and what a kernel loses at its start and end, at least the floor.

    The loss grows with the kernel up to ramp_s, so that a kernel at the floor stays at the floor: there the
    device is mostly free, and other streams' kernels run beside it.
    """
    return max(busy_s + ramp_s * busy_s / (busy_s + floor_s), floor_s)


def of(card: Device, family: str, kind: str) -> Efficiency:
    """What such kernels reach on that card. Shares that the card's own assumptions state come first."""
    a, standard = card.assumptions, Assumptions()
    if not card.calibrated or (a.flop_share, a.bandwidth_share) != (
        standard.flop_share,
        standard.bandwidth_share,
    ):
        return Efficiency(a.flop_share, a.bandwidth_share)
    return _look_up(card.name, family, kind)


@lru_cache(maxsize=1024)
def _look_up(card: str, family: str, kind: str) -> Efficiency:
    known = _shares()
    kinds = [kind, "fp16", "any"] if kind in ("bf16", "int8", "fp8") else [kind, "any"]
    for kin in (family, STANDS_IN.get(family, family)):
        for name in (card, _SAME_CHIP.get(card, card), "any"):
            for k in kinds:
                if (name, kin, k) in known:
                    return known[name, kin, k]
    return Efficiency(Assumptions.flop_share, Assumptions.bandwidth_share)


@lru_cache(maxsize=1)
def _shares() -> dict[tuple[str, str, str], Efficiency]:
    return {
        (row["card"], row["family"], row["kind"]): Efficiency(
            row["flop_share"], row["bandwidth_share"], row["ramp_us"] / 1e6
        )
        for row in table()["shares"]
    }


@lru_cache(maxsize=1)
def table() -> dict[str, Any]:
    """The table as it is kept: {"basis": where it comes from, "shares": [...]}; empty where there is none."""
    if not TABLE.exists():
        return {"basis": "no table: round numbers", "shares": []}
    found: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return found


def forget() -> None:
    """Read the table anew at its next use."""
    for cached in (table, _shares, _look_up):
        cached.cache_clear()
