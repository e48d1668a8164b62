"""helpers.timing: never a wall clock in an assertion; clocks and samples are handed in."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch

from helpers import simulator
from helpers.timing import (
    Speedup,
    Timing,
    bench,
    compare,
    format_seconds,
    pair_order,
    paired_interval,
    verdict,
)


class FakeClock:
    """Stands still except where work is done on it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, *seconds: float) -> Callable[[], None]:
        """A function that takes these times, one a call, over and over."""
        calls = iter(range(10**9))

        def fn() -> None:
            self.now += seconds[next(calls) % len(seconds)]

        return fn


# ---------------------------------------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (1.234e-9, "1.23 ns"),
        (12.34e-6, "12.3 µs"),
        (999.4e-6, "999 µs"),
        (999.9e-6, "1.00 ms"),
        (0.1, "100 ms"),
        (1.5, "1.50 s"),
        (75.0, "75.0 s"),
        (12345.0, "12,345 s"),
        (-2e-3, "-2.00 ms"),
        (5e-13, "0.000500 ns"),
        (1e-16, "0 s"),
        (math.nan, "nan s"),
    ],
)
def test_seconds_have_three_digits_and_a_fitting_unit(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_only_wall_clock_numbers_are_marked_as_approximate() -> None:
    live = Timing(12.34e-6, 1e-6, (1.0,))
    simulated = Timing(12.34e-6, 0.0, (1.0,), "simulated (H100)")
    assert live.cell == "≈ 12.3 µs" and simulated.cell == "12.3 µs"
    assert repr(live) == "median ≈ 12.3 µs, interquartile range ≈ 1.00 µs · live (CPU)"
    assert "≈" not in repr(simulated) and "simulated (H100)" in repr(simulated)
    ratio = Speedup(1.42, 1.3, 1.5, 0.95, 30, "faster")
    assert ratio.cell == "≈ 1.42×"
    assert str(ratio) == "faster: ≈ 1.42× (95% interval ≈ 1.30× to ≈ 1.50×, 30 pairs) · live (CPU)"


# ------------------------------------------------------------------------------------- the interval


def paired_samples(
    n: int, speedup: float, noise: float, drift: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Both members of a pair share the machine's drift; each has its own noise."""
    rng = np.random.default_rng(seed)
    machine = np.exp(drift * np.linspace(0, 1, n) + drift * rng.standard_normal(n).cumsum() / n)
    before = 1e-3 * machine * np.exp(noise * rng.standard_normal(n))
    after = 1e-3 / speedup * machine * np.exp(noise * rng.standard_normal(n))
    return before, after


def test_equal_ratios_give_a_point() -> None:
    before = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    ratio, low, high = paired_interval(before, before / 2)
    assert ratio == pytest.approx(2) and low == pytest.approx(2) and high == pytest.approx(2)


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    trials = [paired_samples(25, 1.3, 0.1, 0.0, seed) for seed in range(200)]
    intervals = [paired_interval(*t, resamples=500, seed=i) for i, t in enumerate(trials)]
    covered = sum(low <= 1.3 <= high for _, low, high in intervals)
    assert 180 <= covered <= 199, covered  # 95 % of 200, three standard errors either way


def test_no_difference_is_seldom_called_one() -> None:
    said = [
        verdict(*paired_interval(*paired_samples(25, 1.0, 0.1, 0.0, s), resamples=500)[1:])
        for s in range(100)
    ]
    assert said.count("cannot tell") >= 88


def test_pairs_see_through_drift_that_hides_the_difference() -> None:
    before, after = paired_samples(30, 1.10, noise=0.02, drift=1.0, seed=3)
    paired = paired_interval(before, after)
    shuffled = paired_interval(before, np.random.default_rng(0).permutation(after))
    assert verdict(paired.low, paired.high) == "faster"
    assert paired.low < 1.10 < paired.high
    assert verdict(shuffled.low, shuffled.high) == "cannot tell"
    assert shuffled.high / shuffled.low > 5 * (paired.high / paired.low - 1) + 1


def test_outliers_do_not_move_it() -> None:
    before, after = paired_samples(31, 1.2, 0.02, 0.0, seed=5)
    clean = paired_interval(before, after)
    hiccup = after.copy()
    hiccup[[4, 17]] *= 100
    dirty = paired_interval(before, hiccup)
    assert dirty.ratio == pytest.approx(clean.ratio, rel=0.02)
    assert verdict(dirty.low, dirty.high) == "faster"
    assert before.mean() / hiccup.mean() < 0.5  # what the means would have said


def test_it_is_symmetric_and_repeatable() -> None:
    before, after = paired_samples(20, 1.3, 0.1, 0.2, seed=7)
    there, back = paired_interval(before, after), paired_interval(after, before)
    assert there.ratio * back.ratio == pytest.approx(1)
    assert there.low * back.high == pytest.approx(1)
    assert paired_interval(before, after) == there
    wider = paired_interval(before, after, confidence=0.99)
    assert wider.low <= there.low and wider.high >= there.high


@pytest.mark.parametrize(
    ("before", "after", "options", "words"),
    [
        ([1.0] * 6, [1.0] * 7, {}, "6 samples and after_s 7"),
        ([1.0] * 5, [1.0] * 5, {}, "at least 6"),
        ([1.0] * 5 + [0.0], [1.0] * 6, {}, "before_s must hold positive"),
        ([1.0] * 6, [1.0] * 5 + [math.nan], {}, "after_s must hold positive"),
        ([[1.0] * 6], [1.0] * 6, {}, "one-dimensional"),
        ([1.0] * 6, [1.0] * 6, {"confidence": 95}, "between 0 and 1"),
        ([1.0] * 6, [1.0] * 6, {"resamples": 10}, "at least 100"),
    ],
)
def test_bad_samples_are_refused_in_words(before: list, after: list, options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        paired_interval(before, after, **options)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(1.01, 1.2, "faster"), (0.8, 0.99, "slower"), (0.9, 1.1, "cannot tell"), (1.0, 1.2, "cannot tell")],
)
def test_verdict(low: float, high: float, said: str) -> None:
    assert verdict(low, high) == said


def test_verdict_refuses_an_interval_the_wrong_way_round() -> None:
    with pytest.raises(ValueError, match="low"):
        verdict(2, 1)


def test_each_goes_first_in_half_of_the_pairs() -> None:
    assert sum(pair_order(30)) == 15
    assert pair_order(30) == pair_order(30) != pair_order(30, seed=1)
    assert pair_order(30) != [i % 2 == 0 for i in range(30)]


# ------------------------------------------------------------------------------- bench and compare


def test_bench_takes_the_median_of_the_samples() -> None:
    clock = FakeClock()
    # With number=1 the warm-up makes three calls; then the ten samples are 1 ms, but for two outliers.
    times = [9.0, 9.0, 9.0] + [1e-3] * 8 + [5e-3, 1.0]
    timing = bench(clock.work(*times), repeats=10, number=1, clock=clock)
    assert timing.samples_s == pytest.approx(times[3:])
    assert timing.median_s == pytest.approx(1e-3) and timing.iqr_s == pytest.approx(0, abs=1e-9)
    assert timing.evidence == "live (CPU)"


def test_bench_divides_by_the_calls_of_a_sample() -> None:
    clock = FakeClock()
    timing = bench(clock.work(2e-3), repeats=4, number=50, clock=clock)
    assert timing.samples_s == pytest.approx([2e-3] * 4)


def test_bench_fills_the_time_asked_for() -> None:
    clock = FakeClock()
    timing = bench(clock.work(1e-3), min_run_time=0.1, clock=clock)
    assert timing.median_s == pytest.approx(1e-3)
    assert 0.1 <= clock.now < 10


def test_bench_ends_on_a_clock_that_stands_still() -> None:
    assert bench(lambda: None, repeats=3, clock=lambda: 0.0).median_s == 0


def test_bench_passes_arguments_and_leaves_the_threads_alone() -> None:
    threads = torch.get_num_threads()
    seen = []
    bench(lambda *a: seen.append(a), 1, "x", repeats=2, number=1, num_threads=1, clock=FakeClock())
    assert set(seen) == {(1, "x")}
    assert torch.get_num_threads() == threads


def test_compare_finds_the_ratio_and_takes_pairs_in_either_order() -> None:
    clock, order = FakeClock(), []

    def before() -> None:
        order.append("before")
        clock.now += 3e-3

    def after() -> None:
        order.append("after")
        clock.now += 2e-3

    speedup = compare(before, after, pairs=10, number=1, clock=clock)
    assert speedup.ratio == pytest.approx(1.5) and speedup.verdict == "faster" and speedup.pairs == 10
    assert speedup.low == pytest.approx(1.5) and speedup.high == pytest.approx(1.5)
    pairs = [tuple(order[i : i + 2]) for i in range(6, 26, 2)]  # after three warm-up calls of each
    assert len(order) == 26 and {frozenset(p) for p in pairs} == {frozenset({"before", "after"})}
    assert sum(p[0] == "before" for p in pairs) == 5


def test_compare_with_itself_cannot_tell() -> None:
    clock = FakeClock()
    fn = clock.work(1e-3, 1.3e-3, 0.9e-3, 1.1e-3, 1.0e-3, 0.8e-3, 1.2e-3)
    assert compare(fn, fn, pairs=40, number=1, clock=clock).verdict == "cannot tell"


def test_compare_chooses_blocks_for_each() -> None:
    clock = FakeClock()
    speedup = compare(clock.work(1e-3), clock.work(1e-6), pairs=6, clock=clock)
    assert speedup.ratio == pytest.approx(1000)


def test_mistakes_are_told() -> None:
    with pytest.raises(TypeError, match="not f\\(x\\)"):
        bench(torch.zeros(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="repeats must be at least 1"):
        bench(lambda: None, repeats=0)
    with pytest.raises(ValueError, match="min_run_time"):
        bench(lambda: None, min_run_time=0)
    with pytest.raises(TypeError, match="after must be a function"):
        compare(lambda: None, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 6"):
        compare(lambda: None, lambda: None, pairs=5)
    with pytest.raises(ValueError, match="confidence"):
        compare(lambda: None, lambda: None, confidence=0)


def test_on_a_simulated_gpu_the_work_is_timed_and_not_the_launch() -> None:
    with simulator.simulate("H100") as gpu:
        x = torch.randn(4096, 4096, device=gpu.device)
        timing = bench(torch.mm, x, x, repeats=3, number=100)
        kernel = gpu.kernels[-1].duration_s
        speedup = compare(lambda: x @ x, lambda: x[:2048] @ x, pairs=6, number=20)
    assert timing.evidence == "simulated (H100)" and timing.iqr_s == pytest.approx(0, abs=1e-12)
    assert timing.median_s == pytest.approx(kernel, rel=1e-3)
    assert speedup.ratio == pytest.approx(2, rel=2e-2) and speedup.evidence == "simulated (H100)"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_cuda_tensor_named_by_the_function_is_enough_to_synchronise() -> None:
    x = torch.randn(64, 64, device="cuda")
    assert bench(lambda: x @ x, repeats=2, number=2).evidence == "live (GPU)"


def test_what_a_function_names_is_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    from helpers import timing

    x, model = torch.zeros(1), torch.nn.Linear(1, 1)
    found = timing._within_reach((lambda: model(x), torch.mm), (3,))
    assert any(thing is x for thing in found) and any(thing is model for thing in found) and 3 in found
    assert not any(timing._on_cuda(thing) for thing in found)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    found = timing._within_reach((optimizer.step, partial(model.forward, x)), ())
    assert all(any(thing is one for thing in found) for one in (optimizer, model, x))
    assert not any(timing._on_cuda(thing) for thing in found)
