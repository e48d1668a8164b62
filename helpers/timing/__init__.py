"""Time it: a median with its spread, and a paired speed-up with its interval.

All times are seconds. A clock is any function without arguments that returns seconds, so tests (and simulated
GPUs) hand in their own. Whatever was read off a wall clock prints with "≈ " before the number; simulated time
is deterministic and prints bare.
"""

from __future__ import annotations

import inspect
import math
import time
import timeit
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils import benchmark
from torch.utils.benchmark.utils.common import set_torch_threads

from helpers.text.seconds import LIVE_CPU, Speedup, Timing, format_seconds
from helpers.timing.intervals import (
    MIN_PAIRS,
    Interval,
    check_confidence,
    pair_order,
    paired_interval,
    verdict,
)

__all__ = [
    "Interval", "Speedup", "Timing", "bench", "compare", "format_seconds", "pair_order", "paired_interval", "verdict",
]  # fmt: skip

Clock = Callable[[], float]

LIVE_CALLS, SIMULATED_CALLS = 10_000, 50  # the largest block that is chosen unasked


def bench(
    fn: Callable[..., Any],
    *args: Any,
    repeats: int | None = None,
    number: int | None = None,
    min_run_time: float = 0.2,
    num_threads: int | None = None,
    gpu: Any = None,
    clock: Clock | None = None,
) -> Timing:
    """Median time of one fn(*args), after a warm-up.

    repeats: number of samples; None takes as many as fit into min_run_time seconds
    (torch.utils.benchmark.Timer.blocked_autorange), or 20 on a simulated clock. number: calls a sample; None
    chooses a block long enough for the clock. num_threads: torch's threads while timing; None leaves them.
    gpu: a `helpers.simulator` GPU, real or simulated: the clock is read only after gpu.synchronize(), so that
    the work is timed and not its launch. Found by itself inside `with gpu:` of a simulated one, or when
    fn, its arguments, what it is bound to or the variables it names are on CUDA. clock: another clock, in seconds.

    Raises TypeError where fn cannot be called, ValueError for counts below 1 or a time that is not positive.

    >>> with simulate("H100") as gpu:
    ...     a = torch.ones(4096, 4096, device=gpu.device)
    ...     bench(lambda: a @ a)
    median 2.92 ms, interquartile range 0 s · simulated (H100)
    """
    _check_callable(fn, "fn")
    _check_counts(repeats=repeats, number=number)
    if not (min_run_time > 0 and math.isfinite(min_run_time)):
        raise ValueError(f"min_run_time must be a positive number of seconds, not {min_run_time}")
    read, evidence = _clock_for((fn,), args, gpu, clock)
    timer = _timer(fn, args, read, num_threads)
    most = _most_calls(evidence)
    if repeats is None and number is None and most == LIVE_CALLS:
        samples = list(timer.blocked_autorange(min_run_time=min_run_time).times)
    else:
        calls = number or _block_size(timer, min_run_time / (repeats or 20), most)
        timer.timeit(calls)  # the warm-up, and thrown away; further warm-ups would only cost time
        with set_torch_threads(num_threads or torch.get_num_threads()):
            samples = [_sample(fn, args, read, calls) for _ in range(repeats or 20)]
    low, median, high = np.percentile(samples, [25, 50, 75])
    return Timing(float(median), float(high - low), tuple(map(float, samples)), evidence)


def compare(
    before: Callable[..., Any],
    after: Callable[..., Any],
    *args: Any,
    pairs: int = 30,
    number: int | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    num_threads: int | None = None,
    gpu: Any = None,
    clock: Clock | None = None,
) -> Speedup:
    """Which of before(*args) and after(*args) is faster, and by how much.

    The two are timed in `pairs` of neighbours, half of the pairs in either order (`pair_order`): what slows
    the machine for a while slows both members of a pair and leaves their ratio alone. number: calls a
    sample; None chooses a block of about 2 ms. Other arguments as in `bench`.

    Raises TypeError where one cannot be called, ValueError for fewer than 6 pairs or a confidence outside
    (0, 1).

    >>> with simulate("H100") as gpu:
    ...     a = torch.ones(4096, 4096, device=gpu.device)
    ...     compare(lambda: (a @ a) @ a, lambda: a @ a).verdict
    'faster'
    """
    _check_callable(before, "before")
    _check_callable(after, "after")
    _check_counts(pairs=pairs, number=number)
    if pairs < MIN_PAIRS:
        too_few = "fewer cannot support a 95 % interval"
        raise ValueError(f"pairs must be at least {MIN_PAIRS}, not {pairs}: {too_few}")
    check_confidence(confidence)
    read, evidence = _clock_for((before, after), args, gpu, clock)
    calls = []
    for fn in (before, after):
        timer = _timer(fn, args, read, num_threads)
        calls.append(number or _block_size(timer, 2e-3, _most_calls(evidence)))
        timer.timeit(calls[-1])  # warm-up
    samples: tuple[list[float], list[float]] = ([], [])
    with set_torch_threads(num_threads or torch.get_num_threads()):
        for before_first in pair_order(pairs, seed):
            for which in (0, 1) if before_first else (1, 0):
                samples[which].append(_sample((before, after)[which], args, read, calls[which]))
    ratio, low, high = paired_interval(*samples, confidence=confidence, seed=seed)
    said, (before_s, after_s) = verdict(low, high), map(tuple, samples)
    return Speedup(ratio, low, high, confidence, pairs, said, evidence, before_s, after_s)


def _check_callable(fn: object, name: str) -> None:
    if not callable(fn):
        kind = type(fn).__name__
        raise TypeError(f"{name} must be a function, not {kind}: pass f and its arguments, not f(x)")


def _check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")


def _clock_for(
    fns: tuple[Any, ...], args: tuple[Any, ...], gpu: Any, clock: Clock | None
) -> tuple[Clock, str]:
    """The clock to read and the evidence label of what it reads."""
    if gpu is None:
        from helpers import simulator  # here, so that plain CPU timing does not load it at import

        gpu = simulator.active()
        if gpu is None and any(_on_cuda(thing) for thing in _within_reach(fns, args)):
            gpu = simulator.RealGPU()
    if gpu is None:
        return clock or time.perf_counter, LIVE_CPU
    tick = clock or gpu.clock

    def read() -> float:
        gpu.synchronize()
        return tick()

    return read, gpu.evidence


def _within_reach(fns: tuple[Any, ...], args: tuple[Any, ...]) -> list[Any]:
    """The functions, their arguments, what a method or a partial is bound to, and the variables that a function names:
    `lambda: model(x)` names two."""
    things = [*fns, *args]
    for fn in fns:
        if isinstance(fn, partial):
            things += _within_reach((fn.func,), (*fn.args, *fn.keywords.values()))
        elif inspect.ismethod(fn):
            things += _within_reach((fn.__func__,), (fn.__self__,))
        elif inspect.isfunction(fn):
            names = inspect.getclosurevars(fn)
            things += [*names.nonlocals.values(), *names.globals.values()]
    return things


def _on_cuda(thing: Any) -> bool:
    if isinstance(thing, torch.nn.Module):
        return any(parameter.is_cuda for parameter in thing.parameters())
    if isinstance(thing, torch.optim.Optimizer):
        return any(parameter.is_cuda for group in thing.param_groups for parameter in group["params"])
    return isinstance(thing, torch.Tensor) and thing.is_cuda


def _timer(
    fn: Callable[..., Any], args: tuple[Any, ...], read: Clock, num_threads: int | None
) -> benchmark.Timer:
    names, threads = {"fn": fn, "args": args}, num_threads or torch.get_num_threads()
    return benchmark.Timer("fn(*args)", timer=read, globals=names, num_threads=threads)


def _sample(fn: Callable[..., Any], args: tuple[Any, ...], read: Clock, number: int) -> float:
    return timeit.Timer(lambda: fn(*args), timer=read).timeit(number) / number


def _most_calls(evidence: str) -> int:
    """A simulated clock has no resolution to overcome, and each of its microseconds takes many real ones."""
    return LIVE_CALLS if evidence.startswith("live") else SIMULATED_CALLS


def _block_size(timer: benchmark.Timer, target_s: float, most: int) -> int:
    """Calls that fill about target_s seconds; at most so many, so that a clock that stands still ends too."""
    number = 1
    while number < most:
        taken = timer.timeit(number).mean * number
        if taken >= target_s:
            break
        growth = target_s / taken if taken > 0 else 10.0
        number = min(most, max(number + 1, math.ceil(number * min(growth, 10.0))))
    return number
