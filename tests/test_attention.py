"""Lesson 19's own: the block mask explorer, and what it says of a mask's blocks, counted pair by pair."""

import pytest
import torch

from helpers.lessons.attention import masks
from helpers.lessons.attention.explorer import RULES, TOKENS, lengths_of, mask_explorer


def test_the_explorer_moves() -> None:
    pytest.importorskip("ipywidgets")
    explorer = mask_explorer("causal", block=8)
    assert explorer.widget is explorer.widget and "36 of 64 blocks" in explorer.facts
    assert explorer.computed == 36 / 64
    assert explorer.controls["width"].disabled and explorer.controls["documents"].disabled
    before = explorer.image.value
    explorer.controls["rule"].value = "sliding window"
    assert explorer.image.value != before and not explorer.controls["width"].disabled
    explorer.set(rule="everything", block=32)
    assert "4 of 4 blocks" in explorer._text.value and explorer.controls["block"].value == 32
    assert explorer.image.value == explorer.static().png()
    with pytest.raises(ValueError, match="rule is one of"):
        mask_explorer("diagonal")
    with pytest.raises(ValueError, match="1 to 64"):
        mask_explorer(width=65)


def test_the_explorer_is_a_picture_where_nothing_can_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELPERS_STATIC_WIDGETS", "1")
    data, _ = mask_explorer()._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png"}


@pytest.mark.parametrize("rule", RULES)
def test_blocks_are_what_the_pairs_say(rule: str) -> None:
    explorer = mask_explorer(rule, block=8, width=11, documents=5)
    place = torch.arange(TOKENS)
    seen = explorer.rule(0, 0, place[:, None], place).expand(TOKENS, TOKENS)
    parts = seen.unflatten(0, (8, 8)).unflatten(2, (8, 8))
    assert explorer.kinds == (parts.any(3).any(1).long() + parts.all(3).all(1).long()).tolist()


def test_documents_fill_the_tokens() -> None:
    for n in range(1, 9):
        lengths = lengths_of(n)
        assert len(lengths) == n and sum(lengths) == TOKENS and min(lengths) > 0


def test_a_window_is_a_band_and_a_block_mask_is_small() -> None:
    short, long = (masks.block_mask(masks.window(32), n, 16) for n in (128, 256))
    assert masks.computed(long) < 2.2 * masks.computed(short)
    assert masks.nbytes(long) < 256**2
