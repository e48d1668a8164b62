"""Pictures of memory and the allocator stepper: what they draw, that they repeat, and that errors are clear."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from helpers import memory, plots, widgets
from helpers.plots import allocator, staircase
from helpers.plots import memory as drawing
from helpers.simulator.allocator import CachingAllocator

PNG = b"\x89PNG\r\n\x1a\n"
MIB = 1 << 20
PROGRAM = [
    "a = 2 MiB",
    "b = 10 MiB",
    "d = 1.5 MiB on 1",
    "b.record_stream(1)",
    "free b",
    "free a",
    "empty_cache",
]


def where(line: int, name: str) -> list[dict[str, object]]:
    return [{"filename": "/srv/someone/train.py", "line": line, "name": name}]


def run(steps: int = 3) -> memory.Snapshot:
    """A little training run: weights, activations that come and go, something that stays."""
    model = CachingAllocator(1024 * MIB)
    for _ in range(4):
        model.malloc(8 * MIB, where=where(5, "__init__"))
    for _ in range(steps):
        held = [model.malloc(12 * MIB, where=where(20, "forward")) for _ in range(3)]
        model.malloc(3 * MIB, where=where(31, "log_loss"))
        for address in held:
            model.free(address)
    return memory.read(model)


def words(picture: plots.Picture) -> list[str]:
    figure = picture.figure
    return [text.get_text() for text in [*figure.texts, *(t for ax in figure.axes for t in ax.texts)]]


def bars(picture: plots.Picture, colour: str) -> list[Rectangle]:
    from matplotlib.colors import to_rgba

    patches = [p for ax in picture.figure.axes for p in ax.patches if isinstance(p, Rectangle)]
    return [p for p in patches if p.get_facecolor() == to_rgba(colour) and p.get_height() == allocator.BAR]


def test_every_picture_is_one_and_repeats() -> None:
    snapshot = run()
    steps = memory.steps_of(PROGRAM)
    for draw in (
        lambda: plots.memory_timeline(snapshot),
        lambda: plots.segments(snapshot),
        lambda: plots.segments(CachingAllocator(MIB)),
        lambda: plots.memory_timeline(CachingAllocator(MIB)),
        *(lambda k=k: plots.allocator_step(steps, k) for k in (0, 5)),
    ):
        first, second = draw(), draw()
        assert first.png().startswith(PNG) and first.png() == second.png()
        assert first.evidence == "simulated (allocator)" and "simulated (allocator)" in words(first)
        assert first.alt and "/home" not in first.alt
        assert not any("/home" in text for text in words(first))


def test_nothing_is_written_outside_the_picture() -> None:
    """Every text lies inside the figure, and no two overlap."""
    model = CachingAllocator(1024 * MIB)
    for i in range(30):
        name = f"a_function_with_quite_a_long_name_{i}"
        model.malloc((i + 1) * MIB, stream=i % 3, where=where(100 + i, name))
    long = memory.read(model)
    steps = memory.steps_of(PROGRAM)
    pages = memory.steps_of(["a = 6 MiB", "b = 300 KiB", "c = 120 MiB on 2"], "expandable_segments:True")
    drawn = [
        plots.memory_timeline(run()),
        plots.segments(long),
        plots.memory_timeline(long),
        plots.allocator_step(pages, 3),
    ]
    drawn.append(plots.segments(pages.found.snapshot))
    for picture in [*drawn, *(plots.allocator_step(steps, k) for k in range(len(steps) + 1))]:
        canvas = picture.figure.canvas
        canvas.draw()
        width, height = picture.figure.bbox.width, picture.figure.bbox.height
        texts = [t for t in picture.figure.texts if t.get_text()]
        texts += [t for ax in picture.figure.axes for t in ax.texts if t.get_text()]
        boxes = [(t.get_text(), t.get_window_extent()) for t in texts]
        for text, box in boxes:
            assert box.x0 >= 0 and box.y0 >= -1 and box.x1 <= width and box.y1 <= height + 1, (
                text,
                picture.alt,
            )
        for i, (text, box) in enumerate(boxes):
            for other, beside in boxes[i + 1 :]:
                apart = (
                    box.x1 <= beside.x0 + 1 or beside.x1 <= box.x0 + 1 or box.y1 <= beside.y0 + 2
                    or beside.y1 <= box.y0 + 2
                )  # fmt: skip
                assert apart, (text, other)


def test_timeline_names_the_peak_and_its_holders() -> None:
    snapshot = run()
    picture = plots.memory_timeline(snapshot)
    said = " ".join(words(picture))
    top = memory.peak(snapshot)
    assert f"peak {memory.size_text(top.bytes)}" in said
    for holder in top.holders:
        assert holder.site in said and memory.size_text(holder.bytes) in said
    assert "train.py:31 log_loss" in picture.alt
    # The areas, added up, are what was allocated, at every event.
    held = drawing.by_site(memory.history(snapshot), [holder.site for holder in top.holders[:2]])
    assert (held.sum(axis=0) == memory.history(snapshot).allocated).all() and (held >= 0).all()


def test_few_colours_leave_the_rest_together() -> None:
    said = words(plots.memory_timeline(run(), most=1))
    assert "all others" in said and "train.py:31 log_loss" not in said


def test_timeline_says_what_it_does_not_know() -> None:
    model = CachingAllocator(1024 * MIB)
    model.malloc(40 * MIB)
    model.record_history(True, limit=3, clear=True)
    for _ in range(4):
        model.free(model.malloc(5 * MIB))
    assert any(
        re.search(r"begins with 4[05] MiB already allocated", text)
        for text in words(plots.memory_timeline(model))
    )
    with pytest.raises(ValueError, match="1 to 5"):
        plots.memory_timeline(memory.read(model), most=9)


def test_an_out_of_memory_error_is_marked() -> None:
    steps = memory.steps_of(["a = 100 MiB", "b = 200 MiB"])
    assert any("out of memory: 200 MiB" in text for text in words(plots.memory_timeline(steps.found)))
    assert "out of memory: 200 MiB asked for, CUDA has 156 MiB left" in plots.allocator_step(steps, 2).alt


def test_long_histories_keep_their_peak() -> None:
    rng = np.random.default_rng(0)
    allocated = rng.integers(0, 100, 50_000).cumsum() % 10_007
    reserved = allocated + 5
    kept = staircase.thin(allocated, reserved)
    assert len(kept) < 2500 and kept[0] == 0 and kept[-1] == len(allocated) - 1
    assert int(allocated.argmax()) in kept and allocated[kept].min() == allocated.min()
    assert staircase.thin(allocated[:100], reserved[:100]).tolist() == list(range(100))


def test_segments_are_to_scale_and_every_block_is_drawn() -> None:
    snapshot = run()
    picture = plots.segments(snapshot)
    used = [b for b in snapshot.blocks if b.state == "allocated"]
    free = [b for b in snapshot.blocks if b.state == "free"]
    drawn = bars(picture, allocator.FILLS["allocated"])
    assert len(drawn) == len(used) and len(bars(picture, allocator.FILLS["free"])) == len(free)
    scale = {round(bar.get_width() / block.size * 1e9, 3) for bar, block in zip(drawn, used, strict=True)}
    assert len(scale) == 1  # one scale for all
    said = " ".join(words(picture))
    assert "train.py:5" in said and "free: reserved from CUDA" in said and "another stream" not in said
    assert f"reserved {memory.size_text(snapshot.reserved)}" in said


def test_segments_too_many_to_draw_are_counted() -> None:
    model = CachingAllocator(1024 * MIB)
    for i in range(20):
        model.malloc((12 + 2 * i) * MIB)
    picture = plots.segments(model, most=5)
    assert len(bars(picture, allocator.FILLS["allocated"])) == 5
    rest = sum(sorted((12 + 2 * i) for i in range(20))[:15])
    assert f"not drawn: 15 smaller segments, {rest} MiB, 0 B of it free" in " ".join(words(picture))


def test_steps_keep_their_place() -> None:
    steps = memory.steps_of(PROGRAM)
    pictures = [plots.allocator_step(steps, k) for k in range(len(steps) + 1)]
    assert len({picture.figure.get_size_inches()[0] for picture in pictures}) == 1
    first = [bars(picture, allocator.FILLS["allocated"]) for picture in pictures]
    assert [len(found) for found in first] == [0, 1, 2, 3, 3, 2, 1, 1]
    assert first[1][0].get_xy() == first[4][0].get_xy()
    assert len(bars(pictures[5], allocator.FILLS["pending free"])) == 1
    assert "freed, but another stream may still use it" in words(pictures[5])
    assert "Step 2 of 7: b = 10 MiB" in words(pictures[2])
    assert "a free block of 18 MiB fits" in " ".join(words(pictures[2]))
    with pytest.raises(IndexError, match="0 to 7"):
        plots.allocator_step(steps, 8)


def test_many_segments_still_make_a_picture_of_a_page() -> None:
    steps = memory.steps_of([f"x{i} = {12 + i} MiB" for i in range(40)], capacity=4096 * MIB)
    assert plots.allocator_step(steps, 40).figure.get_size_inches()[1] < 9


def test_stepper_moves() -> None:
    pytest.importorskip("ipywidgets")
    stepper = widgets.allocator_stepper(PROGRAM, step=0)
    assert stepper.widget is stepper.widget and stepper.slider.max == len(PROGRAM)
    before = bytes(stepper.image.value)
    stepper.buttons["step ▶"].click()
    assert stepper.step == stepper.slider.value == 1 and stepper.image.value != before
    assert stepper.image.value == stepper.static().png()
    assert "split: 2 MiB used, 18 MiB remain" in stepper._text.value
    stepper.buttons["◀ back"].click()
    stepper.buttons["◀ back"].click()
    assert stepper.step == 0 and stepper.image.value == before
    stepper.buttons["end ▶|"].click()
    assert stepper.step == len(PROGRAM)
    stepper.buttons["|◀ start"].click()
    stepper.slider.value = 3
    assert stepper.step == 3 and "step 3 of 7, d = 1.5 MiB on 1" in stepper.facts()


def test_stepper_is_a_picture_where_nothing_can_move(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ipywidgets")
    live, _ = widgets.allocator_stepper(PROGRAM)._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in live and "image/png" in live
    monkeypatch.setenv(widgets.STATIC, "1")
    built, about = widgets.allocator_stepper(PROGRAM)._repr_mimebundle_()
    again, _ = widgets.allocator_stepper(PROGRAM)._repr_mimebundle_()
    assert set(built) == {"text/plain", "image/png"} and "alt" in about["image/png"] and built == again
    assert not re.search(r"0x[0-9a-f]{6}", built["text/plain"])
    monkeypatch.delenv(widgets.STATIC)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    stepper = widgets.allocator_stepper(PROGRAM)
    bare, _ = stepper._repr_mimebundle_()
    assert stepper.widget is None and set(bare) == {"text/plain", "image/png"}
    assert "ipywidgets is not installed" in bare["text/plain"]
    stepper.set(2)
    assert stepper.step == 2 and stepper.static().png().startswith(PNG)


def test_reading_needs_neither_matplotlib_nor_jupyter() -> None:
    code = (
        "import sys; from helpers import memory; memory.peak(memory.read({'segments': []}));"
        "print([m for m in ('matplotlib', 'ipywidgets', 'IPython') if m in sys.modules])"
    )
    root = Path(__file__).parents[1]
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert out.stdout.strip() == "[]"
