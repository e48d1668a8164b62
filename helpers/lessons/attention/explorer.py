"""The block mask explorer: a rule, a size of block, and which blocks of the score matrix are left."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch

from helpers.lessons.attention import masks
from helpers.plots import style
from helpers.plots.picture import Picture, drawn
from helpers.widgets.movable import Explorer

EVIDENCE = "arithmetic"
TOKENS = 64
BLOCKS = (2, 4, 8, 16, 32)
RULES = ("everything", "causal", "sliding window", "prefix", "documents")
_SHARES = (7, 3, 11, 5, 2, 9, 4, 6)
"""How long the documents are, relative to each other."""
_FILL = {masks.NOTHING: "#f4f5f6", masks.PART: "#f7d9b0", masks.WHOLE: "#bfdff2"}
_PAIR = {masks.PART: style.ORANGE, masks.WHOLE: style.BLUE}


def lengths_of(documents: int) -> list[int]:
    """So many uneven documents, TOKENS long together."""
    shares = _SHARES[:documents]
    ends = [TOKENS * sum(shares[: i + 1]) // sum(shares) for i in range(documents)]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


@drawn
def blocks_left(rule: masks.Rule, kinds: list[list[int]], block: int, *, title: str, note: str) -> Picture:
    """The score matrix of TOKENS tokens: blocks by what is kept of them, and in them the pairs that the rule allows."""
    places = torch.arange(TOKENS)
    seen = np.asarray(rule(0, 0, places[:, None], places).expand(TOKENS, TOKENS))
    kind = np.kron(np.asarray(kinds), np.ones((block, block), int))[:TOKENS, :TOKENS]
    image = np.empty((TOKENS, TOKENS, 3))
    for name, colour in _FILL.items():
        image[kind == name] = to_rgb(colour)
    for name, colour in _PAIR.items():
        image[(kind == name) & seen] = to_rgb(colour)
    fig, _ = style.figure(4.4, evidence=EVIDENCE, title=title, note=note)
    ax = fig.subplots()
    ax.imshow(image, interpolation="nearest", extent=(0, TOKENS, TOKENS, 0))
    ax.set_xticks(range(0, TOKENS + 1, max(8, block)))
    ax.set_yticks(range(0, TOKENS + 1, max(8, block)))
    ax.grid(False)
    for at in range(0, TOKENS + 1, block):
        ax.axhline(at, color=style.PAPER, linewidth=0.8)
        ax.axvline(at, color=style.PAPER, linewidth=0.8)
    ax.set_xlabel("key")
    ax.set_ylabel("query")
    key = [
        Patch(color=_PAIR[masks.WHOLE], label="whole block: computed without the rule"),
        Patch(color=_PAIR[masks.PART], label="block kept in part: a pair that the rule allows"),
        Patch(color=_FILL[masks.PART], label="… and one that is computed and thrown away"),
        Patch(color=_FILL[masks.NOTHING], label="empty block: never computed"),
    ]
    ax.legend(handles=key, loc="center left", bbox_to_anchor=(1.03, 0.5), labelspacing=1.0)
    return Picture(fig, EVIDENCE, f"{title}: {note}")


class MaskExplorer(Explorer):
    """Controls for a mask's rule and the size of a block; a widget if live, else a picture.

    `settings`: rule, block, width (of the window, or of the prefix), documents; `set` changes them; `kinds` what is kept of each
    block; `static()` the picture; `widget` the ipywidgets box (None without ipywidgets).
    """

    kind = "block mask explorer"

    kinds: list[list[int]]
    rule: masks.Rule

    def _compute(self) -> None:
        s = self.settings
        self.rule = {
            "everything": masks.everything,
            "causal": masks.causal,
            "sliding window": masks.window(s["width"]),
            "prefix": masks.prefix(s["width"]),
            "documents": masks.documents(lengths_of(s["documents"])),
        }[s["rule"]]
        self.kinds = masks.kinds(masks.block_mask(self.rule, TOKENS, s["block"]))

    @property
    def computed(self) -> float:
        """The share of the blocks that is computed."""
        flat = [kind for row in self.kinds for kind in row]
        return sum(kind != masks.NOTHING for kind in flat) / len(flat)

    @property
    def facts(self) -> str:
        """What the settings come to, in one line."""
        flat = [kind for row in self.kinds for kind in row]
        places = torch.arange(TOKENS)
        allowed = int(self.rule(0, 0, places[:, None], places).expand(TOKENS, TOKENS).sum())
        kept = sum(kind != masks.NOTHING for kind in flat)
        return (
            f"{kept} of {len(flat)} blocks are computed, {flat.count(masks.WHOLE)} of them whole · "
            f"{allowed / TOKENS**2:.0%} of the pairs are allowed, {kept / len(flat):.0%} computed"
        )

    def static(self) -> Picture:
        """The picture of the present settings."""
        s = self.settings
        named = {
            "sliding window": f" of {s['width']}",
            "prefix": f" of {s['width']}",
            "documents": f": {s['documents']}",
        }
        title = f"{s['rule'].capitalize()}{named.get(s['rule'], '')}, blocks of {s['block']}"
        return blocks_left(self.rule, self.kinds, s["block"], title=title, note=self.facts)

    def _build(self, ipywidgets: Any) -> None:
        s, menu, slider = self.settings, ipywidgets.Dropdown, ipywidgets.IntSlider
        still = {"continuous_update": False}
        self._control(menu, "rule", "rule", s["rule"], options=RULES)
        self._control(menu, "block", "block", s["block"], options=BLOCKS)
        self._control(slider, "width", "window or prefix", s["width"], min=1, max=TOKENS, **still)
        self._control(slider, "documents", "documents", s["documents"], min=1, max=len(_SHARES), **still)
        self._stack([list(self.controls.values())])

    def _draw(self) -> None:
        super()._draw()
        if self._widget is not None:
            self.controls["width"].disabled = self.settings["rule"] not in ("sliding window", "prefix")
            self.controls["documents"].disabled = self.settings["rule"] != "documents"

    def _told(self) -> tuple[str, str]:
        return EVIDENCE, self.facts


def mask_explorer(rule: str = "causal", block: int = 8, width: int = 16, documents: int = 4) -> MaskExplorer:
    """A movable mask over 64 tokens: its rule and the size of a block, and the blocks that are left.

    ValueError for settings out of range.
    """
    if rule not in RULES or block not in BLOCKS:
        raise ValueError(f"rule is one of {', '.join(RULES)}; block one of {BLOCKS}")
    if not (1 <= width <= TOKENS and 1 <= documents <= len(_SHARES)):
        raise ValueError(f"width is 1 to {TOKENS}, documents 1 to {len(_SHARES)}")
    return MaskExplorer(rule=rule, block=block, width=width, documents=documents)
