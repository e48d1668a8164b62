"""The one timeline under every picture of lanes: bars are where they should be, and nothing lies over anything."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from helpers import plots
from helpers.lessons.model_parallel import schedule_picture
from helpers.plots import key, style
from helpers.plots.gantt import NARROW, Gantt, Lane, Row
from helpers.plots.picture import Picture
from helpers.simulator.world.buckets import Backward, Gradient, overlap
from helpers.simulator.world.pipeline import order, pipeline
from tests.drawing import boxes_of, overlaps

MS = 1e-3


def row(*bars: tuple[float, float], colour: str = style.BLUE, **look: Any) -> Row:
    """Bars from and to, in milliseconds."""
    return Row(
        np.array([a for a, _ in bars]) * MS, np.array([b for _, b in bars]) * MS, [colour] * len(bars), **look
    )


def drawn(*lanes: Lane, begin: float = 0.0, end: float = 10.0, **look: Any) -> Gantt:
    with style.look():
        gantt = Gantt(lanes, begin * MS, end * MS, bar=0.3, space=0.2)
        gantt.draw("arithmetic", "A title", **look)
        gantt.fig.draw_without_rendering()
    return gantt


def bars_of(gantt: Gantt, colour: str) -> list[tuple[float, float, float]]:
    """(from, to, upper edge) of the bars of a colour; milliseconds and inches."""
    found = []
    for bars in gantt.ax.collections:
        if len(bars.get_facecolor()) and to_hex(bars.get_facecolor()[0]) == colour.lower():
            for path in bars.get_paths():
                (x0, y0), (x1, _) = path.vertices.min(0), path.vertices.max(0)
                found.append((float(x0), float(x1), float(y0)))
    return sorted(found)


def test_bars_stand_at_their_times_in_their_lanes() -> None:
    one, two = row((0, 2), (4, 10)), row((2, 4), colour=style.GREEN)
    gantt = drawn(Lane("first", [one]), Lane("second", [two]))
    assert bars_of(gantt, style.BLUE) == [pytest.approx((0, 2, one.y)), pytest.approx((4, 10, one.y))]
    assert bars_of(gantt, style.GREEN) == [pytest.approx((2, 4, two.y))]
    assert two.y - one.y == pytest.approx(0.3 + 0.2), "a bar and the space between lanes"
    assert gantt.ax.get_xlabel() == "time, ms" and gantt.ax.get_xlim() == pytest.approx((0, 10))
    place = gantt.ax.get_window_extent()
    lane = next(t for t in gantt.ax.texts if t.get_text() == "second").get_window_extent()
    bar = gantt.ax.transData.transform((0, two.y + 0.15))[1]
    assert lane.x1 < place.x0 and (lane.y0 + lane.y1) / 2 == pytest.approx(bar, abs=2), (
        "the label is beside it"
    )


def test_a_window_cuts_bars_at_its_edges_and_leaves_out_the_rest() -> None:
    gantt = drawn(Lane("l", [row((0, 3), (4, 6), (8, 12), (15, 16))]), begin=2, end=10)
    assert [(a, b) for a, b, _ in bars_of(gantt, style.BLUE)] == [
        pytest.approx(pair) for pair in ((0, 1), (2, 4), (6, 8))
    ]


def test_what_is_too_narrow_to_see_is_widened_or_becomes_a_share() -> None:
    moment = (5.0, 5.0001)
    (wide,) = bars_of(drawn(Lane("l", [row(moment)])), style.BLUE)
    assert wide[1] - wide[0] > 100 * (moment[1] - moment[0])
    many = [(k / 1000, k / 1000 + 0.00025) for k in range(2000, 6000)]  # a quarter of the time from 2 to 6 ms
    dense = row(*many, dense=True)
    gantt = drawn(Lane("l", [dense]))
    assert gantt.has_columns and not drawn(Lane("l", [row((0, 5), dense=True)])).has_columns
    (columns,) = gantt.ax.collections
    x, y = columns.get_paths()[0].vertices.T
    inside = y[(x > 2.1) & (x < 5.9)]
    assert inside.max() - inside.min() == pytest.approx(0.3 / 4, rel=0.15)
    assert np.ptp(y[(x < 1.9) | (x > 6.1)]) == pytest.approx(0, abs=1e-9)
    assert gantt.inch * NARROW > 0.00025 * MS


@pytest.mark.parametrize(
    ("length", "look", "said"),
    [
        (5, {}, "a long name"), (0.6, {}, "short"), (0.1, {}, None),
        (0.1, {"beside": True}, "a long name"), (1.0, {"texts": lambda _: ("an_operator_with_a_name",), "cut": 6}, "an_operat…"),
        (0.4, {"texts": lambda _: ("an_operator_with_a_name",), "cut": 6}, None),
    ],
)  # fmt: skip
def test_a_text_is_whole_shorter_cut_beside_or_left_out(
    length: float, look: dict[str, Any], said: str | None
) -> None:
    gantt = drawn(Lane("l", [row((3, 3 + length), **{"texts": lambda _: ("a long name", "short")} | look)]))
    texts = [t for t in gantt.ax.texts if t.get_text() != "l"]
    assert [t.get_text() for t in texts] == ([said] if said else [])
    for text in texts:
        box, (left, right) = (
            text.get_window_extent(),
            gantt.ax.transData.transform([(3, 0), (3 + length, 0)])[:, 0],
        )
        assert box.x0 > right if look.get("beside") else left <= box.x0 and box.x1 <= right


@pytest.mark.parametrize("colour", [*style.SERIES, style.YELLOW, style.MUTED, "#efe3cf", "#A50034"])
def test_texts_can_be_read_on_every_colour(colour: str) -> None:
    def luminance(said: str) -> float:
        rgb = np.array([int(said[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return float(linear @ (0.2126, 0.7152, 0.0722))

    low, high = sorted((luminance(colour), luminance(style.ink(colour))))
    assert (high + 0.05) / (low + 0.05) > 3.5


def test_labels_of_near_marks_stand_under_one_another() -> None:
    marks = {"backward begins": 5 * MS, "backward ends": 5.2 * MS, "far away": 9 * MS}
    gantt = drawn(Lane("l", [row((0, 10))]), marks=marks, brackets={"a clock around it": (0, 9 * MS)})
    at = {t.get_text(): t for t in gantt.ax.texts}
    assert not overlaps(boxes_of(gantt.fig))
    assert at["far away"].get_position()[1] == at["backward begins"].get_position()[1]
    assert "a clock around it: 9.00 ms" in at


def test_links_join_the_lanes_they_are_given() -> None:
    one, two = row((0, 2)), row((5, 6))
    with style.look():
        gantt = Gantt([Lane("a", [one]), Lane("b", [two])], 0, 10 * MS, bar=0.3, space=0.2)
        gantt.draw("arithmetic", "")
        gantt.links([(2 * MS, one.y + 0.3, 5 * MS, two.y)])
    (line,) = gantt.ax.collections[-1].get_paths()
    assert line.vertices.ravel() == pytest.approx([2, one.y + 0.3, 5, two.y])


def test_the_key_wraps_and_its_squares_have_the_colours_of_the_bars() -> None:
    names = [f"a name of some length, {i}" for i in range(9)]
    with style.look():
        gantt = Gantt([Lane("l", [row((0, 10))])], 0, 10 * MS, bar=0.3, space=0.2)
        lines = gantt.key(
            [((style.SERIES[i % 7], style.FAINT), name) for i, name in enumerate(names)], "about"
        )
        gantt.draw("arithmetic", "A title", key=lines)
        gantt.fig.draw_without_rendering()
    assert len(lines) > 1 and [line.about for line in lines] == ["about"] + [""] * (len(lines) - 1)
    squares = [a for a in gantt.fig.findobj(Rectangle) if a.get_gid() == "key"]
    assert [to_hex(s.get_facecolor()) for s in squares[::2]] == [
        style.SERIES[i % 7].lower() for i in range(9)
    ]
    texts = [t for t in gantt.fig.findobj(Text) if t.get_gid() == "key"]
    assert [t.get_text() for t in texts] == names
    for square, text in zip(squares[1::2], texts, strict=True):
        a, b = square.get_window_extent(), text.get_window_extent()
        assert 0 < b.x0 - a.x1 < 0.1 * style.DPI and b.y0 < (a.y0 + a.y1) / 2 < b.y1
    assert not overlaps(boxes_of(gantt.fig)) and key.height(lines) == key.LINE * len(lines)


# ---- every picture that stands on it: the ones of traces are in test_plots_trace.py ----------------------


def plan(cap: float) -> Any:
    run = Backward(
        tuple(Gradient(f"layer {i}", 8 << 20, (10 + 2 * i) * MS) for i in range(10)), 0.01, 0.03, "arithmetic"
    )
    return overlap(run, lambda nbytes: nbytes / 8e9, cap)


def gpu(slow: bool = False) -> Any:
    """What the picture reads of a simulated GPU with a world: three streams, every kind of collective."""
    kinds = ("all_gather", "all_gather", "all_reduce", "reduce_scatter", "send", "barrier")
    kernels = [
        SimpleNamespace(kind="kernel", stream=i % 2, start_ns=i * 90_000, end_ns=i * 90_000 + 85_000)
        for i in range(8)
    ]
    sent = [
        SimpleNamespace(
            kind=kind, bytes=10**i, stream=2 + (kind == "send"), arrival_ns=100_000 * i,
            start_ns=100_000 * i + 40_000 * slow, end_ns=100_000 * i + 80_000,
        )
        for i, kind in enumerate(kinds)
    ]  # fmt: skip
    return SimpleNamespace(
        kernels=kernels, collectives=sent, ranks="8 ranks, NVLink 4", evidence="simulated (H100)"
    )


ROWS = [(f"operator {i}", "CPU", i * 1e-5, i * 1e-5 + 9e-6) for i in range(12)]
PICTURES: dict[str, Callable[[], Picture]] = {
    "timeline": lambda: plots.timeline(
        [*ROWS, *((n, "GPU stream 7", a + 2e-5, b + 3e-5) for n, _, a, b in ROWS[::2])], evidence="simulated (H100)",
        spans={"around the calls": (0, 2e-5), "a pair of events": (1e-5, 1.3e-4)}, marks={"here": 5e-5, "there": 5.1e-5},
    ),
    "overlapped, plan": lambda: plots.overlapped(plan(25), marks={"backward begins": 0.01}),
    "overlapped, slow": lambda: plots.overlapped(gpu(slow=True)),
    "compared": lambda: plots.compared({"fast": (gpu(), 0.0), "one is slow": (gpu(True), 1e-4)}, title="Both"),
    "schedule": lambda: schedule_picture.schedule(pipeline(order("1F1B", 4, 8), {"F": 1.0}, send_s=0.25), unit="forwards"),
    "schedule, deep": lambda: schedule_picture.schedule(pipeline(order("Interleaved 1F1B", 4, 8, 3), {"F": MS / 3})),
    "schedule, wide": lambda: schedule_picture.schedule(pipeline(order("GPipe", 16, 32), {"F": MS})),
}  # fmt: skip


@cache
def picture_of(name: str) -> Picture:
    return PICTURES[name]()


@pytest.mark.parametrize("name", PICTURES)
def test_no_text_leaves_a_picture_or_lies_over_another(name: str) -> None:
    found = boxes_of(picture_of(name).figure)
    whole = picture_of(name).figure.bbox
    for text, box in found:
        assert whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0 and box.y1 <= whole.y1, text
    assert not overlaps(found)


def test_every_kind_of_collective_and_of_waiting_is_in_the_key() -> None:
    figure = picture_of("overlapped, slow").figure
    said = [t.get_text() for t in figure.findobj(Text) if t.get_gid() == "key"]
    assert said == [
        "kernels", "AG all_gather", "AR all_reduce", "RS reduce_scatter", "send", "waiting for the slowest rank",
        "only collectives run",
    ]  # fmt: skip
    squares = {to_hex(s.get_facecolor()) for s in figure.findobj(Rectangle) if s.get_gid() == "key"}
    bars = {to_hex(c) for ax in figure.axes for bars in ax.collections for c in bars.get_facecolor()}
    assert bars <= squares, "no colour is drawn that the key does not name"


def test_a_picture_that_nothing_is_exposed_in_says_so() -> None:
    hidden = gpu()
    hidden.kernels.append(SimpleNamespace(kind="kernel", stream=0, start_ns=0, end_ns=10**6))
    said = [t.get_text() for t in plots.overlapped(hidden).figure.findobj(Text)]
    assert "nothing" in said and any("exposed 0 s of" in text for text in said)


def test_numbers_of_a_schedule_are_those_of_its_boxes() -> None:
    run = pipeline(order("1F1B", 2, 3), {"F": 1.0})
    figure = schedule_picture.schedule(run, unit="forwards").figure
    said = sorted(
        t.get_text() for t in figure.axes[0].texts if t.get_text().isdigit() and t.get_fontsize() < style.TEXT
    )
    assert said == sorted(str(s.microbatch) for s in run.steps)
    beside = [t.get_text() for t in figure.axes[0].texts if t.get_fontsize() == style.TEXT]
    assert beside == ["rank 0", str(run.peak[0]), "rank 1", str(run.peak[1])]
