"""Pictures of traces: what they show, and that nothing lies over anything."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.text import Text

from helpers import plots, simulate, trace
from helpers.plots import gantt, style, trace_lanes
from helpers.plots.picture import Picture
from tests.drawing import boxes_of, overlaps, texts_of
from tests.tracing import COPY, GEMM, NCCL, Maker, noise

US = 1e-6
PNG = b"\x89PNG\r\n\x1a\n"


def busy() -> dict[str, Any]:
    """Two threads, three streams, every kind of work and of call, and some hundred short kernels."""
    made = Maker()
    made.span("ProfilerStep#3", 0, 2000)
    made.span("forward pass of the model", 20, 700)
    for i in range(200):
        at = 20 + 4 * i
        made.op("aten::native_layer_norm", at, at + 3.5)
        made.work(at + 4, at + 5 + (i % 3), at + 1, takes=0.8)
    made.op("autograd::engine::evaluate_function: AddmmBackward0", 830, 1200, tid=2)
    made.op("AddmmBackward0", 835, 1150, tid=2)
    made.op("aten::mm", 840, 900, tid=2)
    made.work(900, 1100, 850, tid=2)
    made.work(1100, 1350, 905, name=NCCL, stream=15, tid=2)
    made.work(1300, 1500, 1210, name=COPY, stream=9, nbytes=1 << 20)
    made.call("cudaEventQuery", 1215, 1217)
    made.op("aten::item", 1220, 1600)
    made.call("cudaStreamSynchronize", 1230, 1590)
    made.work(1900, 1990, 1890, name="Memcpy DtoD (Device -> Device)")
    return made.done(simulated="H100")


def on_cpu() -> dict[str, Any]:
    made = Maker()
    made.op("aten::linear", 0, 100)
    made.op("aten::addmm", 10, 90)
    made.span("forward", 0, 120)
    return made.done()


DRAWN = {
    "queue": lambda: plots.queue(busy()),
    "queue, live": lambda: plots.queue(noise(1, 900)),
    "queue, part": lambda: plots.queue(busy(), 1000 * US, 1700 * US),
    "queue, five of many streams": lambda: plots.queue(noise(2, 80, range(7, 20))),
    "zoom": lambda: plots.zoom(busy()),
    "zoom, part": lambda: plots.zoom(busy(), 820 * US, 1700 * US),
    "zoom, close": lambda: plots.zoom(busy(), 100 * US, 130 * US, title="Thirty microseconds"),
    "zoom, live": lambda: plots.zoom(noise(1, 900)),
    "zoom, CPU": lambda: plots.zoom(on_cpu()),
    "zoom, Python": lambda: plots.zoom(with_python()),
    "queue, Python": lambda: plots.queue(with_python()),
}


@functools.cache
def picture_of(name: str) -> Picture:
    return DRAWN[name]()


def texts(picture: Picture) -> list[Text]:
    return texts_of(picture.figure)


@pytest.mark.parametrize("name", DRAWN)
def test_pictures_are_stamped_and_the_same_twice(name: str) -> None:
    first, second = picture_of(name), DRAWN[name]()
    assert first.png() == second.png() and first.png().startswith(PNG)
    (badge,) = (t for t in first.figure.texts if t.get_gid() == "evidence")
    assert badge.get_text() == first.evidence and first.alt
    width = first.figure.get_size_inches()[0]
    assert width == style.WIDTH


@pytest.mark.parametrize("name", DRAWN)
def test_no_text_leaves_the_picture_or_lies_over_another(name: str) -> None:
    found, whole = boxes_of(picture_of(name).figure), picture_of(name).figure.bbox
    for text, box in found:
        assert box.x0 >= whole.x0 - 1 and box.x1 <= whole.x1 + 1 and box.y0 >= whole.y0 - 1, text
    assert not overlaps(found)


def test_shares_are_parts_of_each_bin() -> None:
    starts, ends = np.array([0, 15, 40]), np.array([10, 20, 80])
    edges = np.array([0, 10, 20, 30, 60, 100])
    assert gantt.shares(starts, ends, edges).round(6).tolist() == [1, 0.5, 0, round(20 / 30, 6), 0.5]
    assert gantt.shares(starts[:0], ends[:0], edges).tolist() == [0] * 5


def test_moments_have_the_digits_that_a_window_can_show() -> None:
    assert gantt.moment(1.23456789, 1e-6) == "1.23456789 s"
    assert gantt.moment(1.23456789, 1.0) == "1.23 s"
    assert gantt.moment(1e-4, 3e-5) == "100 µs"


def test_the_key_of_queue_adds_up() -> None:
    picture = plots.queue(busy())
    said = [t.get_text() for t in texts(picture)]
    gaps = trace.idle(trace.read(busy()))
    for cause, share in gaps.share.items():
        assert any(cause in text and f"({share:.1%})" in text for text in said) or share < 0.0005
    lanes = ("stream 7 (default)", "stream 9 (copies)", "stream 15 (collectives)")
    for lane in ("host", *lanes, "idle because", "launches\nwaiting"):
        assert lane in said
    assert "idle: " in picture.alt


def test_a_live_picture_has_no_number_that_changes_in_its_text() -> None:
    for picture in (plots.queue(noise(1)), plots.zoom(noise(1))):
        assert not any(c.isdigit() for c in picture.alt.replace("stream 7", "").replace("stream 13", ""))


def test_streams_beyond_five_are_told() -> None:
    said = [t.get_text() for t in texts(picture_of("queue, five of many streams"))]
    assert [text for text in said if text.startswith("stream ")][0] == "stream 7 (default)"
    assert sum(text.startswith("stream ") for text in said) == 5
    assert any("8 more stream(s) not drawn" in text for text in said)


def test_zoom_names_what_has_room_and_no_more() -> None:
    said = [t.get_text() for t in texts(plots.zoom(busy(), 820 * US, 1700 * US))]
    assert {
        "host 1",
        "host 2",
        "stream 7 (default)",
        "item",
        "AddmmBackward0",
        GEMM,
        "cudaStreamSynchronize",
    } <= set(said)
    assert "waiting for a copy" in said  # in its own piece of the bottom lane
    close = [t.get_text() for t in texts(plots.zoom(busy(), 100 * US, 130 * US))]
    assert close.count("native_layer_norm") + sum(t.startswith("native_l") for t in close) >= 7
    assert any(text == "time, µs after 100 µs" for text in close)


def test_levels_are_depths() -> None:
    t = trace.read(busy())
    rows = np.flatnonzero(
        t.of("operator") & (t.thread == t.thread[t.named(lambda n: n == "AddmmBackward0")][0])
    )
    levels = trace_lanes.levels(t, rows)
    assert [[t.names[t.name[i]].split(":")[-1].strip() for i in level] for level in levels] == [
        ["AddmmBackward0"], ["AddmmBackward0"], ["mm"],
    ]  # fmt: skip


def with_python() -> dict[str, Any]:
    """One thread: Python that calls Python and an operator, then Python alone, as long as the kernel before."""
    made = Maker()
    made.event("python_function", "train.py(1): step", 0, 1000)
    made.event("python_function", "data.py(7): next_batch", 0, 300)
    made.op("aten::mm", 320, 380)
    made.work(400, 700, 350)
    made.event("python_function", "host work", 400, 900)
    made.work(910, 960, 905)
    return made.done()


def test_what_python_did_is_a_band_of_its_own() -> None:
    t = trace.read(with_python())
    (lane,), _ = trace_lanes.host_lanes(t, 0, 10**9)
    band = lane.rows[0]
    assert set(band.colours) == {trace_lanes.HOST["python"]}
    assert [
        (t.names[t.name[row]], round(start * 1e6), round(end * 1e6))
        for row, start, end in zip(band.ids.tolist(), band.start.tolist(), band.end.tolist(), strict=True)
    ] == [
        ("data.py(7): next_batch", 0, 300), ("train.py(1): step", 300, 400), ("host work", 400, 900),
        ("train.py(1): step", 900, 1000),
    ]  # fmt: skip
    said = [text.get_text() for text in texts(plots.zoom(t))]
    assert {"host work", "Python", "mm"} <= set(said) and "operator" in said
    assert "Python" in [text.get_text() for text in texts(plots.queue(t))]
    assert "Python" not in [text.get_text() for text in texts(picture_of("queue"))]


def test_the_simulator_s_host_work_is_drawn() -> None:
    gpu = simulate("H100")
    with gpu:
        x = torch.ones(512, 512, device=gpu.device)
        x @ x
        with gpu.profile() as prof:
            x @ x
            gpu.host_work(2e-3)
            x @ x
    said = [text.get_text() for text in texts(plots.zoom(trace.read(prof)))]
    assert "host work" in said and "Python" in said


def lab_of(colour: str, see: Any = None) -> np.ndarray[Any, Any]:
    """CIE Lab of a colour (D65), as someone with that colour vision sees it."""
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = (np.eye(3) if see is None else np.array(see)) @ linear
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt((to_xyz @ linear.clip(0)) / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_no_colour_stands_for_two_things() -> None:
    every = {f"{kind}: {name}": colour for kind, table in (("host", trace_lanes.HOST), ("stream", trace_lanes.FAMILY),
             ("idle", trace_lanes.CAUSE)) for name, colour in table.items()}  # fmt: skip
    assert set(trace_lanes.HOST) == set(trace_lanes.HOST_SAID) and set(trace_lanes.CAUSE) == set(trace.CAUSES)
    for (one, a), (two, b) in itertools.combinations(every.items(), 2):
        apart = float(np.linalg.norm(lab_of(a) - lab_of(b)))
        assert apart > 12, f"{one} and {two} look the same: {apart:.0f}"
    # Machado, Oliveira & Fernandes (2009), severity 1.0: within a group they stay apart for the colour-blind
    deutan = [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]
    protan = [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ]
    for table, see in itertools.product(
        (trace_lanes.HOST, trace_lanes.FAMILY, trace_lanes.CAUSE), (deutan, protan)
    ):
        for a, b in itertools.combinations(table.items(), 2):
            apart = float(np.linalg.norm(lab_of(a[1], see) - lab_of(b[1], see)))
            assert apart > 10, f"{a[0]} and {b[0]} look the same without red or green: {apart:.0f}"


def test_the_key_says_which_lane_it_is_about() -> None:
    for name, heads in (("zoom", ["host", "streams", "idle"]), ("zoom, CPU", ["host"])):
        found = texts(picture_of(name))
        beside = [t.get_text() for t in found if t.get_fontsize() == style.SMALL and t.get_ha() == "right"]
        assert [text for text in beside if text in ("host", "streams", "idle")] == heads


def test_a_thread_that_only_asks_is_left_out() -> None:
    made = Maker()
    made.work(10, 20)
    made.call("cudaEventQuery", 12, 14, tid=5)
    made.call("cudaStreamSynchronize", 12, 24, tid=6)
    t = trace.read(made.done())
    lanes, left_out = trace_lanes.host_lanes(t, 0, 10**9)
    assert [lane.label for lane in lanes] == ["host 1", "host 2"] and left_out == 0


def test_a_pageable_copy_is_drawn_as_a_wait() -> None:
    made = Maker()
    made.work(10, 60, 5, name="Memcpy HtoD (Pageable -> Device)", takes=60)
    t = trace.read(made.done())
    lanes, _ = trace_lanes.host_lanes(t, 0, 10**9)
    assert lanes[0].rows[-1].colours == [trace_lanes.HOST["wait"]]


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(ValueError, match="queue_depth|idle: the dict has no GPU work"):
        plots.queue(on_cpu())
    with pytest.raises(ValueError, match=r"window from 2\.0 s to 1\.0 s is empty"):
        plots.zoom(busy(), 2.0, 1.0)
    with pytest.raises(ValueError, match="is empty"):
        plots.queue(busy(), 2.0, 1.0)
    with pytest.raises(trace.TraceError, match="not a trace"):
        plots.zoom({"a": 1})


def test_a_live_profile_is_drawn(tmp_path: Path) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        torch.ones(8, 8) @ torch.ones(8, 8)
    picture = plots.zoom(prof)
    assert picture.evidence == "live (CPU)" and picture.png().startswith(PNG)
