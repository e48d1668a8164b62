"""Lesson 20, generating: what a token costs, by cache, number of sequences, and way of launching."""

from __future__ import annotations

from typing import Any

import torch

from helpers.lessons.generating.decoding import Fixed, Growing, next_logits
from helpers.models import GPT2, Size
from helpers.recordings.common import launched, timed
from helpers.recordings.registry import experiment

CONTEXT = 1024


def _timed(gpu: Any, work: Any) -> float:
    """Microseconds of one call. A simulated one takes the same each time, and long to simulate."""
    return timed(gpu, work, 5) if gpu.device.type == "cuda" else timed(gpu, work, 1, samples=1, warm_up=1)


LLAMA = Size(width=4096, layers=32, heads=32, vocabulary=32000, context=2048)


def _token(gpu: Any, model: Any, size: Size, way: str, batch: int, tokens: int = 1) -> Any:
    """A function that makes the logits of the token at the last of 1,024 places."""
    first = 0 if way == "no cache" else CONTEXT - tokens
    given = torch.zeros(batch, CONTEXT - first, dtype=torch.int64, device=gpu.device)
    places = torch.arange(first, CONTEXT, device=gpu.device)
    shape = (batch, size.heads, CONTEXT, size.width // size.heads)
    if way == "no cache":
        return lambda: next_logits(model, given, places)
    if way == "static":
        fixed = [Fixed(shape, gpu.device, torch.bfloat16) for _ in range(size.layers)]
        return lambda: next_logits(model, given, places, fixed, CONTEXT)
    # one tensor for all layers, and for keys and values: each layer's cat copies as much as if it had its own
    before = torch.zeros(
        batch, size.heads, first, size.width // size.heads, device=gpu.device, dtype=torch.bfloat16
    )

    def growing() -> Any:
        caches = [Growing() for _ in range(size.layers)]
        for cache in caches:
            cache.keys, cache.values = before, before
        return next_logits(model, given, places, caches)

    return growing


def _graphed(gpu: Any, work: Any) -> Any:
    side, graph = gpu.Stream(), gpu.CUDAGraph()
    side.wait_stream(gpu.current_stream())
    with gpu.stream(side):
        for _ in range(3):
            work()
    gpu.current_stream().wait_stream(side)
    with gpu.graph(graph):
        work()
    return graph.replay


def _model(gpu: Any, size: Size) -> Any:
    with torch.device("meta"):
        model = GPT2(size).to(torch.bfloat16)
    model = model.to_empty(device=gpu.device)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.02)
    model.head.weight = model.tokens.weight
    return model


@experiment("20/caches", seconds=30)
def caches(gpu: Any) -> dict[str, Any]:
    """GPT-2, the 1,024th token, in bfloat16: microseconds and launches by cache and sequences, one by one and as a graph."""
    size, rows = Size(), list[dict[str, Any]]()
    model = _model(gpu, size)
    with torch.no_grad():
        for batch in (1, 8, 64, 256):
            for way in ("no cache", "growing", "static"):
                if batch > 64 and way == "no cache":
                    continue  # the logits of what is not asked for do not matter, its scores do: seconds a call
                work = _token(gpu, model, size, way, batch)
                row = {
                    "batch": batch,
                    "way": way,
                    "us": _timed(gpu, work),
                    "kernels": len(launched(gpu, work)),
                }
                if way == "static":
                    row["graph_us"] = _timed(gpu, _graphed(gpu, work))
                rows.append(row)
    return {"table": rows}


@experiment("20/large", seconds=40)
def large(gpu: Any) -> dict[str, Any]:
    """The same of a model with as many weights as Llama-2 7B; tokens: how many go through at once."""
    rows = list[dict[str, Any]]()
    with torch.no_grad():
        model = _model(gpu, LLAMA)
        for batch, tokens in ((1, 1), (1, 64), (8, 1), (24, 1), (64, 1)):
            work = _token(gpu, model, LLAMA, "static", batch, tokens)
            row = {"batch": batch, "tokens": tokens, "way": "static", "us": _timed(gpu, work)}
            rows.append(row | {"graph_us": _timed(gpu, _graphed(gpu, work))})
            del work
        work = _token(gpu, model, LLAMA, "no cache", 1)
        rows.append({"batch": 1, "tokens": 1, "way": "no cache", "us": _timed(gpu, work), "graph_us": 0.0})
    return {"table": rows}
