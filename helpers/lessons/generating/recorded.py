"""Lesson 20, generating: what a token costs, by cache, number of sequences, and way of launching."""

from __future__ import annotations

from typing import Any

import torch

from helpers.lessons.generating.decoding import Fixed, Growing, next_logits
from helpers.models import GPT2, Size
from helpers.recordings.common import captured, launched, timed, timed_step
from helpers.recordings.registry import experiment

CONTEXT = 1024


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
    one = torch.ones(1, device=gpu.device)

    def launch() -> None:
        """Beside each row: whether the CPU was slower or faster meanwhile."""
        one + one

    with torch.no_grad():
        for batch in (1, 8, 64, 256):
            for way in ("no cache", "growing", "static"):
                if batch > 64 and way == "no cache":
                    continue  # the logits of what is not asked for do not matter, its scores do: seconds a call
                work = _token(gpu, model, size, way, batch)
                row = {"batch": batch, "way": way, "us": timed_step(gpu, work, samples=15)}
                row |= {"launch_us": timed(gpu, launch, 50), "kernels": len(launched(gpu, work))}
                if way == "static":
                    row["graph_us"] = timed_step(gpu, captured(gpu, work).replay)
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
            row = {"batch": batch, "tokens": tokens, "way": "static", "us": timed_step(gpu, work)}
            rows.append(row | {"graph_us": timed_step(gpu, captured(gpu, work).replay)})
            del work
        work = _token(gpu, model, LLAMA, "no cache", 1)
        rows.append(
            {"batch": 1, "tokens": 1, "way": "no cache", "us": timed_step(gpu, work), "graph_us": 0.0}
        )
    return {"table": rows}


@experiment("20/asking", seconds=30)
def asking(gpu: Any) -> dict[str, Any]:
    """Microseconds a token of GPT-2, static cache, one sequence: the token is read after each step, after 16, or never."""
    size, rows, tokens = Size(), list[dict[str, Any]](), 64 if gpu.device.type == "cuda" else 16
    model = _model(gpu, size)
    fixed = [
        Fixed((1, size.heads, CONTEXT, size.width // size.heads), gpu.device, torch.bfloat16)
        for _ in range(size.layers)
    ]
    token = torch.zeros(1, 1, dtype=torch.int64, device=gpu.device)
    place = torch.zeros(1, dtype=torch.int64, device=gpu.device)

    def step() -> Any:
        return next_logits(model, token, place, fixed, CONTEXT)

    said: list[Any] = []

    def made() -> None:
        said[:] = [step()]

    with torch.no_grad():
        graph = captured(gpu, made)
        logits = said[0]

        def replayed() -> Any:
            graph.replay()
            return logits

        for how, run in (("eager", step), ("graph", replayed)):
            for every in (1, 16, 0):

                def loop() -> None:
                    place.zero_()
                    for i in range(tokens):
                        token.copy_(run().argmax(-1, keepdim=True))  # noqa: B023 - called here
                        place.add_(1)
                        if every and i % every == every - 1:  # noqa: B023
                            token.item()

                rows.append({"steps": how, "read_every": every, "us": timed_step(gpu, loop, 1) / tokens})
    return {"table": rows}
