"""What a step costs on the simulated card: models of two sizes, three kinds of cache, eager or as a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from helpers.lessons.generating import stepping
from helpers.lessons.generating.decoding import Fixed, Growing, next_logits
from helpers.models import GPT2, Size
from helpers.simulator import simulate
from helpers.simulator.stretch import stretch

#: GPT-2 as it is, and a model with as many weights as Llama-2 7B has
SIZES = {"GPT-2": Size(), "7B": Size(width=4096, layers=32, heads=32, vocabulary=32000, context=2048)}
CONTEXT = 1024
#: the static cache whose mask is made once a step
ONCE = "static, mask once"


@dataclass(frozen=True)
class Cost:
    """Of one call: seconds until its result is there, launches, waits of the CPU, bytes that its kernels move, and of them
    those of concatenations."""

    seconds: float
    busy_s: float
    launches: int
    syncs: int
    bytes: int
    cat_bytes: int


def weights(name: str) -> int:
    """Bytes of the weights in bf16, the table of tokens once."""
    with torch.device("meta"):
        return 2 * sum(p.numel() for p in GPT2(SIZES[name]).parameters())


def cache_bytes(name: str, places: int, batch: int = 1) -> int:
    """Bytes of keys and values of so many places, in bf16."""
    size = SIZES[name]
    return 2 * 2 * size.layers * size.width * places * batch


def cost(
    name: str = "GPT-2", batch: int = 1, place: int = CONTEXT - 1, way: str = "static", *, tokens: int = 1,
    graph: bool = False, card: str = "H100", length: int = CONTEXT,
) -> Cost:  # fmt: skip
    """One call for the token at `place` (the first is 0). way: "no cache", "growing", "static" of `length` places, or "static, mask
    once": attention gets numbers, made before the layers; of the others' static cache it makes them of a bool mask in each layer.

    tokens: how many go through at once, the last of them at `place`. graph: recorded once, and replayed; only static ways.
    """
    return _costs(name, batch, place, way, tokens, card, length)[graph]


@lru_cache(maxsize=256)
def _costs(
    name: str, batch: int, place: int, way: str, tokens: int, card: str, length: int
) -> tuple[Cost, ...]:
    """Eager; and as a graph, where one can be recorded."""
    size, gpu = SIZES[name], simulate(card)
    first = 0 if way == "no cache" else place + 1 - tokens
    with gpu, torch.no_grad():
        with torch.device(gpu.device):
            model = GPT2(size).to(torch.bfloat16)
            given = torch.zeros(batch, place + 1 - first, dtype=torch.int64)
            places = torch.arange(first, place + 1)
        caches = _caches(way, size, batch, first, length, gpu.device)
        fixed = length if way == "static" else None
        rooms = stepping.Rooms(size, batch, length, gpu.device, torch.bfloat16) if way == ONCE else None

        def step() -> Any:
            if rooms is not None:
                return stepping.next_logits(model, given, places, rooms, rooms.mask(places))
            return next_logits(model, given, places, caches() if caches else (), fixed)

        step()
        costs = [_measured(gpu, step)]
        if way in ("static", ONCE):
            recorded = gpu.CUDAGraph()
            with gpu.graph(recorded):
                step()
            recorded.replay()
            costs.append(_measured(gpu, recorded.replay))
    return tuple(costs)


def _measured(gpu: Any, run: Callable[[], Any]) -> Cost:
    ran = stretch(gpu, run)
    of_cats = sum(kernel.bytes for kernel in ran.kernels if kernel.name == "aten.cat")
    return Cost(ran.seconds, ran.busy_s, ran.launches, ran.syncs, ran.bytes, of_cats)


def _caches(way: str, size: Size, batch: int, filled: int, length: int, device: Any) -> Any:
    """A function that returns the layers' caches with `filled` places in them; None: there are none."""
    heads, features = size.heads, size.width // size.heads
    if way in ("no cache", ONCE):
        return None
    if way == "static":
        shape = (batch, heads, length, features)
        fixed = [Fixed(shape, device, torch.bfloat16) for _ in range(size.layers)]
        return lambda: fixed
    before = torch.zeros(batch, heads, filled, features, device=device, dtype=torch.bfloat16)

    def growing() -> list[Growing]:
        caches = [Growing() for _ in range(size.layers)]
        for cache in caches:
            cache.keys, cache.values = before, before
        return caches

    return growing
