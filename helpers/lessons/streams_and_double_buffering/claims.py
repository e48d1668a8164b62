"""The claims on trial of lesson 05: streams and double buffering. Each function runs its experiment and returns its row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from helpers import simulate
from helpers.lesson.claim import Claim
from helpers.lessons.streams_and_double_buffering import experiments
from helpers.text.seconds import format_seconds


def in_order() -> Claim:
    """A training step that names no stream: in how many queues it runs, and in which order."""
    gpu = simulate("H100")
    with gpu:
        model = torch.nn.Sequential(*(torch.nn.Linear(512, 512, device=gpu.device) for _ in range(4)))
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            model(torch.empty(64, 512, pin_memory=True).to(gpu.device, non_blocking=True)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    ordered = all(a.end_ns <= b.start_ns for a, b in zip(gpu.kernels, gpu.kernels[1:], strict=False))
    streams = len({k.stream for k in gpu.kernels})
    return Claim(
        "05-one-queue",
        "book-notes",
        "without a stream named, all work enters one queue and runs in the order of submission",
        f"three training steps: {len(gpu.kernels)} kernels and copies in {streams} stream, "
        f"{'each' if ordered else 'not each'} after the one before",
        "confirmed" if ordered and streams == 1 else "refuted",
        "2 · Two queues",
    )


def _one_stream(gpu: Any, side: Any, page: torch.Tensor) -> None:
    page.to(gpu.device, non_blocking=True).relu()


def _page_again(gpu: Any, side: Any, page: torch.Tensor) -> None:
    page.to(gpu.device, non_blocking=True)
    page.fill_(1.0)


def _early_result(gpu: Any, side: Any, page: torch.Tensor) -> None:
    y = torch.empty(experiments.BATCH, device=gpu.device).to("cpu", non_blocking=True)
    y[0].sum()


def non_blocking() -> Claim:
    """One stream only: a kernel behind the copy, and a host that touches the copy's memory too early."""
    tried = {
        "a kernel reads the batch": _one_stream,
        "the host fills its buffer again": _page_again,
        "the host reads a result": _early_result,
    }
    found = {what: experiments.verdict(experiments.try_program(program)) for what, program in tried.items()}
    races = sum(v == "race" for v in found.values())
    return Claim(
        "05-non-blocking-safe",
        "book-notes",
        "non_blocking does not corrupt data, since the queue keeps the order",
        "in one stream, right behind the copy: " + "; ".join(f"{what}: {v}" for what, v in found.items()),
        "partly: holds when the host leaves the buffer alone until the copy is done"
        if 0 < races < len(found)
        else "refuted"
        if races
        else "confirmed",
        "3 · Right by luck",
    )


@cache
def _gains() -> dict[int, tuple[experiments.Loop, experiments.Loop]]:
    """Width of the matrix → the loop in one queue and in two."""
    found = {}
    for width in (256, 1024, 2048, 4096, 16384):
        shape = (2**24 // width, width)
        found[width] = (
            experiments.run(experiments.one_queue, shape=shape),
            experiments.run(experiments.two_queues, shape=shape),
        )
    return found


def _gain(loops: tuple[experiments.Loop, experiments.Loop]) -> float:
    return loops[0].step_s / loops[1].step_s


def speeds_the_copy() -> Claim:
    """The copy's rate in one queue and in two, where two gain most."""
    one, two = best = max(_gains().values(), key=_gain)
    return Claim(
        "05-speeds-the-copy",
        "book-notes",
        "double buffering mainly speeds up copying",
        f"{one.gbs:.1f} GB/s in one queue, {two.gbs:.1f} in two; the step is {_gain(best):.2f} times as fast",
        "refuted: it hides the copy" if abs(two.gbs / one.gbs - 1) < 0.02 else "confirmed",
        "How much is a second queue worth?",
    )


def small_data() -> Claim:
    """The gain where the copy is short beside the compute, where it is long, and between."""
    by_ratio = sorted((one.copy_s / one.product_s, _gain((one, two))) for one, two in _gains().values())
    best = max(by_ratio, key=lambda pair: pair[1])
    told = (by_ratio[0], best, by_ratio[-1])
    hump = by_ratio[0][1] < best[1] > by_ratio[-1][1]
    return Claim(
        "05-small-data",
        "book-notes",
        "where little is copied, it hardly shows",
        "; ".join(f"C ÷ K = {ratio:.2f}: {gain:.2f} times as fast" for ratio, gain in told),
        "partly: little must mean little beside the compute; much copying beside little compute hardly shows either"
        if hump
        else "confirmed",
        "How much is a second queue worth?",
    )


def _in_turn(gpu: Any, batches: Sequence[torch.Tensor], w: Any, optimizer: Any, where: str) -> None:
    """Two streams in turn, each with the copy and the training step of its batch; one wait, at one of four places."""
    streams = gpu.Stream(), gpu.Stream()
    for stream in streams:
        stream.wait_stream(gpu.current_stream())
    for i, batch in enumerate(batches):
        submit, running = streams[i % 2], streams[(i + 1) % 2]
        with gpu.stream(submit):
            if where == "before the copy":
                submit.wait_stream(running)
            x = batch.to(gpu.device, non_blocking=True)
            if where == "between copy and step":
                submit.wait_stream(running)
            if where == "the other way round":
                running.wait_stream(submit)
            (x @ w).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    for stream in streams:
        gpu.current_stream().wait_stream(stream)


def where_the_wait_stands() -> dict[str, tuple[float, int]]:
    """Place of the wait → (seconds a step, races)."""
    places = {}
    for where in ("before the copy", "between copy and step", "the other way round", "nowhere"):
        gpu = simulate("H100", strict=False)
        with gpu:
            w = torch.empty(4096, 4096, device=gpu.device, requires_grad=True)
            optimizer = torch.optim.SGD([w], lr=0.1)
            batches = [torch.empty(experiments.BATCH, pin_memory=True) for _ in range(10)]
            _in_turn(gpu, batches[:2], w, optimizer, where)
            gpu.synchronize()
            start = gpu.clock()
            _in_turn(gpu, batches, w, optimizer, where)
            gpu.synchronize()
            places[where] = (gpu.clock() - start) / len(batches), len(gpu.races)
    return places


def wait_stream() -> Claim:
    """Two streams that take turns with whole training steps, as the notes have it: where the one wait must stand."""
    places = where_the_wait_stands()
    fast = 1.05 * min(step for step, _ in places.values())
    good = [where for where, (step, races) in places.items() if step < fast and not races]
    return Claim(
        "05-wait-stream",
        "book-notes",
        "`submit_stream.wait_stream(running_stream)` orders the two queues",
        "; ".join(
            f"{where}: {format_seconds(step)} a step, {races} races"
            for where, (step, races) in places.items()
        ),
        f"partly: fast and right only when the wait stands {good[0]}"
        if len(good) == 1
        else "confirmed"
        if good
        else "refuted",
        "Sources on trial",
    )


def _held(pinned: bool, non_blocking: bool) -> experiments.Copy:
    gpu = simulate("H100")
    with gpu:
        w = torch.empty(4096, 4096, device=gpu.device)
        batch = torch.empty(experiments.BATCH, pin_memory=pinned)
        w @ w
        gpu.synchronize()
        first = len(gpu.kernels)
        for _ in range(4):
            w @ w
        before = gpu.clock()
        batch.to(gpu.device, non_blocking=non_blocking)
        held = gpu.clock() - before
        gpu.synchronize()
    return experiments.copy_of(held, gpu.kernels[first:])


def pin_memory() -> Claim:
    """How long a copy behind four products holds the host: pageable, pinned, pinned and non_blocking."""
    pageable, pinned, free = _held(False, False), _held(True, False), _held(True, True)
    return Claim(
        "05-pin-memory",
        "five-strategies",
        "`pin_memory=True` is a key to an efficient loader",
        f"the call holds the host for {format_seconds(pageable.held_s)} from pageable memory, {format_seconds(pinned.held_s)} "
        f"from pinned memory, {format_seconds(free.held_s)} from pinned memory with non_blocking=True",
        "partly: holds when the copy is non_blocking too; alone it makes the copy faster and keeps the wait"
        if pinned.host == "waits" and free.host == "goes on"
        else "confirmed",
        "1 · Who waits for a copy?",
    )


def rows() -> list[Claim]:
    """All of them."""
    claims = in_order, non_blocking, speeds_the_copy, small_data, wait_stream, pin_memory
    return [claim() for claim in claims]
