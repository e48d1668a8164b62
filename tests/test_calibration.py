"""helpers.calibration.fit: the fit finds what was put in, and its errors are those of rows it never saw."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.calibration import fit as calibration
from helpers.calibration import four_gpus, measured
from helpers.calibration.measured import Measurement, main_work, parse
from helpers.simulator import DEVICES, Device, devices, simulate
from helpers.simulator.cost import roofline
from helpers.text.tables import table


def made_up(
    card: str,
    op: str,
    sizes: list[int],
    share: float,
    ramp_us: float = 0.0,
    held_out: bool = False,
    odd: float = 1.0,
) -> list[Measurement]:
    """Measurements of a card that reaches exactly that share; odd: factor on the first row's time."""
    rows = []
    for i, n in enumerate(sizes):
        shapes = ((n, n), (n, n)) if op in ("mm", "add") else ((n, n),)
        one = Measurement("made up", card, held_out, op, "float32", shapes, 1.0)
        todo, device = main_work(one)[0], measured.CARDS[card]
        busy = max(
            todo.flops / (share * device.peak_flops["fp32"]) if op == "mm" else 0.0,
            todo.bytes / ((0.9 if op == "mm" else share) * device.memory_bytes_per_s),
        )
        seconds = roofline.with_ramp(busy, ramp_us / 1e6, 2e-6)
        rows.append(replace(one, seconds=seconds * (odd if i == 0 else 1.0)))
    return rows


SIZES = [512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192]


def found(rows: list[Measurement], card: str, family: str) -> calibration.Fit:
    return next(f for f in calibration.fit(rows) if (f.card, f.family) == (card, family))


@pytest.mark.parametrize("share", [0.35, 0.6, 0.92])
@pytest.mark.parametrize("ramp", [0.0, 5.0])
def test_the_fit_finds_the_shares_that_were_put_in(share: float, ramp: float) -> None:
    rows = made_up("A100", "add", SIZES, 0.9) + made_up("A100", "mm", SIZES, share, ramp)
    matmul, add = found(rows, "A100", "matmul"), found(rows, "A100", "elementwise")
    assert matmul.flop_share == pytest.approx(share, rel=0.03)
    assert matmul.ramp_us == ramp
    assert add.bandwidth_share == pytest.approx(0.9, rel=0.03)
    assert matmul.fitted == add.fitted == len(SIZES)


def test_one_odd_row_does_not_move_the_fit() -> None:
    good = made_up("T4", "exp" if "exp" in measured._OPS else "gelu", SIZES, 0.7)
    odd = [replace(good[0], seconds=good[0].seconds * 50), *good[1:]]
    assert found(odd, "T4", "elementwise").bandwidth_share == pytest.approx(0.7, rel=0.03)


def test_the_error_is_that_of_the_held_out_rows_and_they_do_not_move_the_fit() -> None:
    seen = made_up("A100", "add", SIZES, 0.8)
    unseen = made_up("A100", "add", [1000, 3000, 5000], 0.4, held_out=True)
    alone, both = found(seen, "A100", "elementwise"), found(seen + unseen, "A100", "elementwise")
    assert alone.bandwidth_share == both.bandwidth_share
    assert (alone.held_out, both.held_out) == (0, 3)
    assert alone.error_median is None
    assert both.error_median == pytest.approx(0.5, abs=0.02)  # half of the time that was measured
    assert both.bias == pytest.approx(-0.5, abs=0.02)
    assert both.error_before == pytest.approx(0.5, abs=0.02)


def test_errors_in_the_table_are_what_the_simulator_itself_gives() -> None:
    """Not what the fit's own arithmetic says: the kernels of a simulated card, one by one."""
    row = next(
        r
        for r in devices.efficiencies()["shares"]
        if (r["card"], r["family"], r["kind"]) == ("H100", "matmul", "fp16")
    )
    wrong = [
        roofline.seconds(main_work(m)[0], m.device) / m.seconds - 1
        for m in measured.public()
        if m.held_out and m.card == "H100" and m.op == "mm" and m.dtype == "float16"
    ]
    assert len(wrong) == row["held_out"] > 20
    assert float(np.median(np.abs(wrong))) == pytest.approx(row["error_median"], abs=0.005)


def test_too_few_rows_fit_nothing_and_the_family_that_stands_in_is_taken() -> None:
    rows = made_up("A100", "add", SIZES, 0.8) + made_up("A100", "clone", SIZES[:3], 0.2)
    assert {(f.card, f.family) for f in calibration.fit(rows) if f.basis == "fitted"} == {
        ("A100", "elementwise")
    }
    assert devices.STANDS_IN["copy"] == "elementwise"
    with pytest.raises(ValueError, match="nothing to fit"):
        calibration.fit([replace(r, held_out=True) for r in rows])


def test_recordings_of_this_course_fill_in_what_no_public_row_tells_and_test_the_rest() -> None:
    own = calibration.recorded()
    assert own and all(label.startswith(("recorded (H100", "recorded (H200")) for label, _ in own)
    key = calibration._key
    seen = Counter(key(one) for one in measured.public() if not one.held_out)
    told = {kernels for kernels, rows in seen.items() if rows >= calibration.FEWEST}
    used = set(calibration.collect()) - set(measured.public())
    assert used and all(calibration.is_own(one) for one in used)
    assert not {key(one) for one in used} & told
    h100 = {
        one for _, one in own if one.card == "H100" and not calibration.is_short(one)
    }  # the H200's only test
    assert {one for one in h100 if key(one) not in told} == used
    kept = {row["basis"] for row in devices.efficiencies()["shares"] if row["card"] != "H100"}
    assert calibration.OWN not in kept


def test_attention_is_faster_by_cudnn_and_leaves_out_what_the_mask_throws_away() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    with simulate("H100") as gpu:
        q = torch.randn(8, 16, 4096, 64, device=gpu.device, dtype=torch.bfloat16)
        took = {}
        for backend in (
            SDPBackend.CUDNN_ATTENTION,
            SDPBackend.FLASH_ATTENTION,
            SDPBackend.EFFICIENT_ATTENTION,
        ):
            for causal in (False, True):
                with sdpa_kernel(backend):
                    sdpa(q, q, q, is_causal=causal)
                took[backend.name[:5], causal] = gpu.kernels[-1].duration_s
    # recorded: 1.15, 1.87 and 4.10 ms
    whole = [took[name, False] for name in ("CUDNN", "FLASH", "EFFIC")]
    assert whole == [pytest.approx(ms / 1e3, rel=0.2) for ms in (1.15, 1.87, 4.10)]
    assert all(0.5 < took[name, True] / took[name, False] < 0.55 for name, _ in took)


GOOD = {
    "source": "x",
    "card": "A100",
    "set": "fit",
    "op": "add",
    "dtype": "float32",
    "shapes": "8x8 8x8",
    "us": "3.5",
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"us": "-1"}, "positive"), ({"us": "nan"}, "positive"), ({"us": "soon"}, "could not convert"),
        ({"us": ""}, "could not convert"), ({"card": "B900"}, "no card 'B900'"), ({"op": "os.system"}, "no operator"),
        ({"dtype": "float3"}, "no arithmetic"), ({"set": "test"}, "no set 'test'; there are fit, held-out"),
        ({"shapes": "8x0 8x8"}, "positive"), ({"shapes": "8xeight"}, "invalid literal"),
    ],
)  # fmt: skip
def test_a_bad_row_is_refused_with_its_place(change: dict[str, str], words: str) -> None:
    assert parse(GOOD, "row 3").seconds == pytest.approx(3.5e-6)
    with pytest.raises(ValueError, match=f"row 3: .*{words}"):
        parse({**GOOD, **change}, "row 3")


def test_the_kept_table_was_fitted_on_the_kept_measurements() -> None:
    rows = calibration.collect()
    shares = devices.efficiencies()
    assert shares["measurements"] == calibration.digest(rows), "run `python -m helpers.calibration.fit --fit`"
    kept = {(r["card"], r["family"], r["kind"]): r for r in shares["shares"]}
    for one in calibration.fit(rows):
        if one.card != "any":  # those are medians, over what was fitted to whole steps too
            assert kept[one.card, one.family, one.kind] == one.__dict__


def test_held_out_rows_are_not_among_those_of_the_fit() -> None:
    rows = measured.public()
    key = lambda m: (m.source, m.card, m.op, m.dtype, m.shapes)  # noqa: E731
    assert not {key(m) for m in rows if m.held_out} & {key(m) for m in rows if not m.held_out}
    assert sum(m.held_out for m in rows) > len(rows) / 4


def test_calibrated_is_better_than_uncalibrated_on_what_was_held_out() -> None:
    pairs = [
        (r["error_median"], r["error_before"])
        for r in devices.efficiencies()["shares"]
        if r["held_out"] > 5 and r["error_median"] is not None
    ]
    assert len(pairs) >= 12
    assert np.mean([a for a, _ in pairs]) < 0.75 * np.mean([b for _, b in pairs])


def test_whole_steps_that_the_fit_never_saw() -> None:
    steps = devices.efficiencies()["steps"]
    held = [abs(s["error"]) for s in steps if s["held_out"]]
    assert len(steps) >= 160 and len(held) > len(steps) / 2
    assert np.median(held) < 0.06
    assert devices.steps_off_by() == max(abs(s["error"]) for s in steps) < 0.33
    transformers = [abs(s["error"]) for s in steps if s["source"] == "NeuSight"]
    assert len(transformers) == 62 and np.mean(transformers) < 0.06 and max(transformers) < 0.22
    assert sum(error > 0.20 for error in transformers) <= 1  # a T4, which lowers its clock with time
    images = [abs(s["error"]) for s in steps if s["held_out"] and "x 224" in s["what"].replace("×", "x")]
    assert np.median(images) < 0.10 and sum(error > 0.25 for error in images) <= 1


@pytest.mark.parametrize("parallel", ["data", "tensor", "pipeline"])
def test_steps_on_four_gpus_that_no_fit_saw(parallel: str) -> None:
    step = next(s for s in four_gpus.steps() if (s.card, s.parallel, s.batch) == ("H100", parallel, 4))
    assert four_gpus.simulate_step(step) == pytest.approx(step.seconds, rel=0.08)


def test_products_whose_rows_are_no_whole_16_bytes_took_longer_and_do_so_here() -> None:
    """HTA's TF32 products on A100s, against what they would take if they were aligned."""
    taken: dict[bool, list[float]] = {True: [], False: []}
    for m in measured.public():
        todo = main_work(m)[0]
        if m.dtype == "tf32" and todo.flops > 5e8:
            alone = roofline.seconds(todo._replace(effort=1.0), m.device)
            taken[todo.effort > 1].append(m.seconds / alone)
    assert min(map(len, taken.values())) >= 10
    measured_cost = np.median(taken[True]) / np.median(taken[False])
    assert measured_cost == pytest.approx(roofline._UNALIGNED[4], rel=0.15)


def test_steps_are_held_out_by_the_rule_whole_groups_at_a_time() -> None:
    found = measured.steps()
    assert all(s.held_out for s in found if s.source == "NeuSight")
    assert not any(s.held_out for s in found if s.source in ("lecture", "DeepLearningExamples"))
    sides = {(s.group, s.held_out) for s in found if s.source == "timm"}
    groups = {group for group, _ in sides}
    assert len(sides) == len(groups) and len(groups) / 4 < sum(held for _, held in sides) < len(groups) / 2
    kept = {(s["card"], s["source"], s["what"]): s for s in devices.efficiencies()["steps"]}
    for s in found:
        row = kept[s.card, s.source, s.what]
        assert row["held_out"] == s.held_out and row["measured_ms"] == pytest.approx(
            1e3 * s.seconds, rel=1e-3
        )


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_the_kept_steps_are_what_the_simulator_gives_now(layout: str) -> None:
    step = next(
        s for s in measured.steps() if (s.card, s.model, s.layout) == ("RTX 4090", "resnet18", layout)
    )
    kept = next(
        s for s in devices.efficiencies()["steps"] if (s["card"], s["what"]) == (step.card, step.what)
    )
    now, _ = measured.simulate_step(step)
    assert 1e3 * now == pytest.approx(kept["simulated_ms"], rel=0.03), "run calibration --fit"


def test_a_share_that_only_steps_tell_is_found_from_them() -> None:
    """Six steps of a card of which no operator was measured; one more is held out and does not move the fit."""
    device = measured.CARDS["RTX 3090"]
    shares = {"convolution": 0.6, "elementwise": 0.9}

    def tape(name: str, flops: int, moved: int, held: bool, factor: float = 1.0) -> calibration.Tape:
        works = [
            roofline.Work(flops, 1000, "fp16", "convolution"),
            roofline.Work(10, moved, "fp32", "elementwise"),
        ]
        seconds = flops / (shares["convolution"] * device.peak_flops["fp16"])
        seconds += moved / (shares["elementwise"] * device.memory_bytes_per_s)
        step = measured.Step("x", "RTX 3090", name, "step", 1, 1, "fp16", "nhwc", factor * seconds, held)
        return calibration.Tape(step, works)

    rows = made_up("A100", "add", SIZES, 0.8)
    seen = [tape(str(i), 10**13 // (1 + i % 3), 10**10 * (1 + i), False) for i in range(6)]
    found = {
        f.family: f
        for f in calibration.fit(rows, [*seen, tape("d", 10**12, 10**10, True, 9.0)])
        if f.card == "RTX 3090"
    }
    assert found["convolution"].flop_share == pytest.approx(0.6, rel=0.04)
    assert found["elementwise"].bandwidth_share == pytest.approx(0.9, rel=0.04)
    assert found["convolution"].fitted == 6 and found["convolution"].held_out == 1


def test_the_printed_table_says_what_it_rests_on() -> None:
    text = str(calibration.report())
    assert "an H100 that this course recorded" in text and "never saw" in text
    assert "literature" in text  # attention was not measured
    assert "held out" in str(calibration.errors())
    fitted, held = calibration.summary()
    assert "worst" in fitted and "median" in held


def test_times_of_a_simulated_table_say_how_far_off_steps_are() -> None:
    rows = [["a step", "3.1 ms"]]
    said = f"simulated (H100); whole steps are off by up to {devices.steps_off_by():.0%}"
    assert said in str(table(rows, ["what", "time"], evidence="simulated (H100)"))
    assert said in table(rows, ["what", "time"], evidence="simulated (H100)")._repr_html_()
    assert "off by" not in str(table([["kernels", 3]], ["what", "count"], evidence="simulated (H100)"))
    assert "off by" not in str(table(rows, ["what", "time"], evidence="live (CPU)"))


@pytest.mark.parametrize(
    ("operator", "family"),
    [
        ("mm", "matmul"), ("addmm", "matmul"), ("baddbmm", "matmul"), ("mul", "elementwise"), ("mul_", "elementwise"),
        ("_foreach_add_", "optimizer"), ("_fused_adamw_", "optimizer"), ("addcmul", "elementwise"),
        ("native_layer_norm_backward", "normalisation"), ("_softmax", "normalisation"), ("sum", "reduction"),
        ("_scaled_dot_product_flash_attention", "attention"), ("convolution_backward", "convolution backward"),
        ("embedding", "gather"), ("copy_", "copy"), ("_to_copy", "copy"), ("cat", "copy"), ("gelu", "elementwise"),
        ("max_pool2d_with_indices", "elementwise"), ("native_batch_norm", "batch norm"), ("cudnn_batch_norm_backward", "batch norm backward"),
    ],
)  # fmt: skip
def test_families(operator: str, family: str) -> None:
    assert roofline.family(operator) == family


def test_a_kernel_at_the_floor_stays_there_whatever_the_ramp() -> None:
    assert roofline.with_ramp(1e-9, 20e-6, 2e-6) == 2e-6
    assert roofline.with_ramp(1e-3, 20e-6, 2e-6) == pytest.approx(1.02e-3, rel=1e-3)
    times = [roofline.with_ramp(busy, 5e-6, 2e-6) for busy in np.geomspace(1e-9, 1e-2, 200)]
    assert times == sorted(times)


def test_cards_that_were_not_measured_take_the_same_chip_or_the_median() -> None:
    h100, h200 = DEVICES["H100"], DEVICES["H200"]
    assert h200.reached("matmul", "fp16") == h100.reached("matmul", "fp16")
    mine = Device("My card", {"fp32": 1e12}, 1e11, 10**9, 1e10, source="me")
    shares = sorted(
        DEVICES[n].reached("matmul", "fp32").flop_share for n in ("A100", "H100", "L4", "T4", "V100")
    )
    assert mine.reached("matmul", "fp32").flop_share == pytest.approx(shares[2], abs=1e-3)
    assert h100.reached("matmul", "bf16") == h100.reached("matmul", "fp16")
    with simulate(mine) as gpu:
        x = torch.ones(1024, 1024, device=gpu.device)
        x @ x
    assert gpu.kernels[-1].duration_s > 2 * 1024**3 / 1e12


@pytest.mark.parametrize("name", list(DEVICES))
def test_every_card_has_sources_and_dense_rates(name: str) -> None:
    card = DEVICES[name]
    assert "NVIDIA" in card.source
    rates = card.peak_flops
    assert rates["fp16"] >= rates["fp32"] > rates["fp64"]
    assert rates.get("tf32", rates["fp32"]) <= rates["fp16"]
    assert card.pcie_bytes_per_s < card.memory_bytes_per_s


def test_the_table_is_small_and_plain() -> None:
    assert measured.PUBLIC.stat().st_size < 200_000
    assert json.loads(devices.EFFICIENCIES.read_text())["format"] == 1
