"""The float formats against torch's own casts, and their pictures."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from helpers.lessons.mixed_precision import format_picture
from helpers.lessons.mixed_precision.float_formats import FORMATS, Format
from helpers.lessons.mixed_precision.format_picture import shown

PNG = b"\x89PNG\r\n\x1a\n"
TORCH = {
    "fp32": (torch.float32, torch.int32),
    "bf16": (torch.bfloat16, torch.int16),
    "fp16": (torch.float16, torch.int16),
    "e5m2": (torch.float8_e5m2, torch.uint8),
    "e4m3": (torch.float8_e4m3fn, torch.uint8),
}


def numbers() -> list[float]:
    """Values of all magnitudes, exact ties between neighbours, subnormals; all are float32."""
    g = torch.Generator().manual_seed(0)
    scaled = torch.randn(300, generator=g).double() * torch.exp2(
        torch.randint(-40, 20, (300,), generator=g).double()
    )
    ties = [
        m * 2.0**e for m in (1.0625, 1.1875, 1.00390625, 1.01171875, 257.0, 2049.0) for e in (-20, -9, 0, 3)
    ]
    return [
        *scaled.float().double().tolist(),
        *ties,
        *(-t for t in ties),
        0.0,
        -0.0,
        2.0**-24,
        2.0**-25,
        3 * 2.0**-25,
    ]


@pytest.mark.parametrize("name", TORCH)
def test_rounds_as_torch_does(name: str) -> None:
    f, (dtype, integers) = FORMATS[name], TORCH[name]
    for value in numbers():
        if abs(value) > f.largest:  # what becomes of E4M3's overflow differs between versions of torch
            continue
        cast = torch.tensor(value, dtype=torch.float32).to(dtype)
        assert f.encode(value) == int(cast.view(integers).item()) & (1 << f.bits) - 1, value
        assert f.rounded(value) == cast.item()


@pytest.mark.parametrize("name", ["bf16", "fp16", "e5m2", "e4m3"])
def test_decodes_every_pattern_as_torch_does(name: str) -> None:
    f, (dtype, _) = FORMATS[name], TORCH[name]
    patterns = np.arange(1 << f.bits, dtype=np.uint16 if f.bits == 16 else np.uint8)
    want = torch.from_numpy(patterns.view(np.int16) if f.bits == 16 else patterns).view(dtype).double()
    got = torch.tensor([f.decode(int(b)) for b in patterns], dtype=torch.float64)
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    back = [f.encode(v) for v in got.tolist()]
    assert all(b == p or math.isnan(v) for b, p, v in zip(back, patterns.tolist(), got.tolist(), strict=True))


@pytest.mark.parametrize("name", TORCH)
def test_limits_are_those_of_torch(name: str) -> None:
    f, about = FORMATS[name], torch.finfo(TORCH[name][0])
    assert (f.largest, f.smallest_normal) == (about.max, about.smallest_normal)
    assert f.bits == about.bits and f.rounded(f.smallest) == f.smallest and f.rounded(f.smallest / 2) == 0


def test_overflow_and_what_is_not_a_number() -> None:
    fp16, e4m3 = FORMATS["fp16"], FORMATS["e4m3"]
    assert fp16.rounded(65519.99) == 65504 and fp16.rounded(65520) == math.inf
    assert fp16.rounded(-1e9) == fp16.rounded(-math.inf) == -math.inf
    assert e4m3.rounded(464) == 448 and math.isnan(e4m3.rounded(465)) and math.isnan(e4m3.rounded(math.inf))
    assert all(math.isnan(f.rounded(math.nan)) for f in FORMATS.values())
    assert fp16.nan == 0x7E00 and e4m3.nan == 0x7F and e4m3.inf is None
    assert Format("tiny", 3, 2).largest == 14
    with pytest.raises(ValueError, match="e4m3 has 8 bits"):
        e4m3.decode(256)


@pytest.mark.parametrize(
    ("value", "text"), [(65504.0, "65504"), (0.1, "0.1"), (6e-8, "6e-08"), (math.inf, "inf")]
)
def test_few_digits(value: float, text: str) -> None:
    assert shown(value) == text


def test_pictures_say_what_they_show() -> None:
    about = format_picture.float_bits(70_000).alt
    assert "fp16 inf, beyond its range" in about and "bf16 70144" in about
    assert "e5m2 0.09375, −6.2 %" in format_picture.float_bits(0.1).alt
    assert "fp16 0, all of it" in format_picture.float_bits(1e-8).alt
    for value in (0.0, -1.5, math.nan, -math.inf):
        assert format_picture.float_bits(value).png().startswith(PNG)
    ranges = format_picture.float_ranges()
    assert "fp16 up to 65504" in ranges.alt and ranges.png() == format_picture.float_ranges().png()
    drawn = format_picture.float_ranges(
        {"gradients": [0.0, 1e-9, -3e-5], "none": [0.0]}, ["fp16"], evidence="live (CPU)"
    )
    assert drawn.evidence == "live (CPU)" and drawn.png().startswith(PNG)
