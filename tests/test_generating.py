"""What lesson 20 stands on: writes at places on the simulated card, caches that agree, batches, and the widget."""

import pytest
import torch

from helpers import simulate
from helpers.lessons.generating import batching, decoding, on_card, stepping
from helpers.models import GPT2, Size


@pytest.mark.parametrize("way", ["index_copy_", "index_put_"])
def test_a_write_at_places_moves_what_is_written(way: str) -> None:
    with simulate("H100") as gpu:
        room = torch.zeros(1000, 8, device=gpu.device)
        new, places = torch.ones(2, 8, device=gpu.device), torch.arange(2, device=gpu.device)
        before = len(gpu.kernels)
        if way == "index_copy_":
            room.index_copy_(0, places, new)
        else:
            room[places] = new
    assert [kernel.bytes for kernel in gpu.kernels[before:]] == [2 * new.nbytes + places.nbytes]


def test_all_caches_say_the_same() -> None:
    torch.manual_seed(0)
    model = GPT2(Size(width=16, layers=2, heads=2, vocabulary=20, context=8)).double()
    tokens, row = torch.randint(20, (3, 6)), torch.arange(6)
    grown = [decoding.Growing() for _ in range(2)]
    fixed = [decoding.Fixed((3, 2, 8, 8), dtype=torch.float64) for _ in range(2)]
    with torch.no_grad():
        for part in (slice(0, 4), slice(4, 5), slice(5, 6)):
            now = tokens[:, part], row[part]
            out = [decoding.next_logits(model, *now, grown), decoding.next_logits(model, *now, fixed, 8)]
            whole = decoding.next_logits(model, tokens[:, : part.stop], row[: part.stop])
            for logits in out:
                torch.testing.assert_close(logits, whole)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_mask_made_once_says_the_same(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    size = Size(width=16, layers=2, heads=2, vocabulary=20, context=8)
    model, rooms = GPT2(size).to(dtype), stepping.Rooms(size, 3, 8, dtype=dtype)
    tokens, row = torch.randint(20, (3, 6)), torch.arange(6)
    with torch.no_grad():
        for part in (slice(0, 4), slice(4, 5), slice(5, 6)):
            logits = stepping.next_logits(model, tokens[:, part], row[part], rooms, rooms.mask(row[part]))
            whole = decoding.next_logits(model, tokens[:, : part.stop], row[: part.stop])
            torch.testing.assert_close(logits, whole)


def test_a_mask_made_once_spares_the_layers_their_own() -> None:
    """Three launches a layer that make numbers of bools go; three more make the numbers once."""
    each, once = on_card.cost(), on_card.cost(way=on_card.ONCE)
    assert each.launches - once.launches == 3 * on_card.SIZES["GPT-2"].layers - 3
    assert on_card.cost(way=on_card.ONCE, graph=True).seconds < on_card.cost(graph=True).seconds


def test_batches_make_all_tokens_and_continuous_ones_wait_less() -> None:
    tokens = batching.lengths(20, seed=3)
    static, continuous = (batching.batched(tokens, 4, policy) for policy in batching.POLICIES)
    assert static.tokens == continuous.tokens == sum(tokens)
    assert continuous.steps <= static.steps and continuous.used > static.used
    equal = [batching.batched([5] * 8, 4, policy).steps for policy in batching.POLICIES]
    assert equal == [10, 10]
    with pytest.raises(ValueError, match="policy"):
        batching.batched(tokens, 4, "none")


def test_the_batching_timeline_moves() -> None:
    pytest.importorskip("ipywidgets")
    explorer = batching.batching_explorer("static", slots=3, requests=6)
    assert explorer.widget is not None
    before = explorer.facts
    explorer.controls["policy"].value = "continuous"
    assert explorer.facts != before and explorer.settings["policy"] == "continuous"
    with pytest.raises(ValueError, match="slots"):
        batching.batching_explorer(slots=13)
