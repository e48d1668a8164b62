"""Claims on trial in lesson 05. Those measured in the lesson itself are handed what it measured, or what it measured with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from helpers import simulate
from helpers.lesson.claim import Claim
from helpers.lessons.streams_and_double_buffering import experiments
from helpers.simulator.stretch import stretch
from helpers.text.seconds import format_seconds

#: the loop in one queue, and in two
Loops = tuple[experiments.Loop, experiments.Loop]
#: name → where it ran → the loop
RealLoops = Mapping[str, Mapping[str, experiments.RealLoop]]


def on_trial(
    copies: Mapping[str, experiments.Copy],
    programs: Mapping[str, str],
    real: RealLoops,
    one_queue: experiments.Load,
    two_queues: experiments.Load,
) -> list[Claim]:
    """Every claim of the lesson.

    copies: call → a copy behind products. programs: name → "race" or "safe". real: the recorded loops. one_queue,
    two_queues: loaders that copy in the stream that computes, and in another.
    """
    # every batch has as many bytes; the wider it is, the longer its product takes
    loops = [
        (experiments.run(one_queue, shape=shape), experiments.run(two_queues, shape=shape))
        for shape in ((2**24 // width, width) for width in (256, 1024, 2048, 4096, 16384))
    ]
    return [
        non_blocking(programs),
        speeds_the_copy(real),
        small_data(loops),
        wait_stream(),
        pin_memory(copies, real),
    ]


def in_order() -> Claim:
    """A training step that names no stream: in how many queues it runs, and in which order. Lesson 18 runs this trial."""
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
        f"{'each' if ordered else 'not each'} after the one before. PyTorch's CUDA semantics (docs.pytorch.org/docs/stable/notes/cuda.html): “by "
        "default, each device uses its own ‘default’ stream. Operations inside each stream are serialized in the order they are created”",
        "confirmed: on each GPU" if ordered and streams == 1 else "refuted",
        "2 · Two queues",
    )


def _one_stream(gpu: Any, side: Any, page: torch.Tensor) -> None:
    page.to(gpu.device, non_blocking=True).relu()


def non_blocking(programs: Mapping[str, str]) -> Claim:
    """One stream only: a kernel behind the copy, and a host that touches the copy's memory too early."""
    verdicts = {
        "a kernel reads the batch": experiments.verdict(experiments.try_program(_one_stream)),
        "the host fills its buffer again": programs["page_again"],
        "the host reads a result": programs["early_result"],
    }
    races = sum(v == "race" for v in verdicts.values())
    return Claim(
        "05-non-blocking-safe",
        "book-notes",
        "non_blocking does not corrupt data, since the queue keeps the order",
        "in one stream, right behind the copy: " + "; ".join(f"{what}: {v}" for what, v in verdicts.items()),
        "partly: holds when the host leaves the buffer alone until the copy is done"
        if 0 < races < len(verdicts)
        else "refuted"
        if races
        else "confirmed",
        "3 · Right by luck",
    )


def _gain(loops: Loops) -> float:
    return loops[0].step_s / loops[1].step_s


def _recorded(seconds: float) -> str:
    return f"≈ {format_seconds(seconds)}"


def speeds_the_copy(real: RealLoops) -> Claim:
    """What a copy takes on a real GPU, in the queue that computes and in one of its own."""
    alone, beside = (real[name]["recorded"] for name in ("pinned", "double_buffered"))
    return Claim(
        "05-speeds-the-copy",
        "book-notes",
        "double buffering mainly speeds up copying",
        f"a copy takes {_recorded(alone.copy_s)} in the queue that computes and {_recorded(beside.copy_s)} in one of its own; "
        f"the step takes {_recorded(alone.step_s)} and {_recorded(beside.step_s)}",
        "confirmed" if beside.copy_s < 0.95 * alone.copy_s
        else "refuted: a copy takes as long as before (a shorter one would have confirmed it); what gets shorter is the wait for it",
        "On the real GPU",
    )  # fmt: skip


def small_data(loops: Sequence[Loops]) -> Claim:
    """The gain where the copy is short beside the compute, where it is long, and between."""
    by_ratio = sorted((pair[0].copy_s / pair[0].product_s, _gain(pair)) for pair in loops)
    least, best, most = by_ratio[0], max(by_ratio, key=lambda pair: pair[1]), by_ratio[-1]
    return Claim(
        "05-small-data",
        "book-notes",
        "where little is copied, it hardly shows",
        "; ".join(f"C ÷ K = {ratio:.2f}: {gain:.2f} times as fast" for ratio, gain in (least, best, most)),
        "confirmed: little beside the compute; much copying beside little compute hardly shows either"
        if least[1] < 1.2 < best[1]
        else "refuted",
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
            ran = stretch(gpu, partial(_in_turn, gpu, batches, w, optimizer, where))
            places[where] = ran.seconds / len(batches), len(gpu.races)
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


def pin_memory(copies: Mapping[str, experiments.Copy], real: RealLoops) -> Claim:
    """Recorded steps with pageable memory, with pinned, and with a second queue as well; and which calls hold the host."""
    pinned, free = (copies[call].host for call in ("pinned", "pinned, non_blocking=True"))
    page, pin, double = (real[n]["recorded"].step_s for n in ("serial", "pinned", "double_buffered"))
    return Claim(
        "05-pin-memory",
        "five-strategies",
        "`pin_memory=True` is a key to an efficient loader",
        f"recorded: a step takes {_recorded(page)} from pageable memory, {_recorded(pin)} from pinned memory, {_recorded(double)} with a second "
        f"queue too; simulated: from pinned memory the host {pinned}, with non_blocking=True it {free}",
        "partly: pinning alone halves the recorded step; the host still waits for the copy, unless it is non_blocking too"
        if pinned == "waits" and free == "goes on" and pin < 0.6 * page
        else "confirmed",
        "On the real GPU",
    )
