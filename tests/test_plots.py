"""The pictures: what they draw, checked as data; that they are the same every time; that errors are clear."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from helpers import count, plots, widgets
from helpers.lessons.model_parallel import splits
from helpers.lessons.operators_and_autograd import graph, overhead
from helpers.lessons.sources_on_trial import shares_picture
from helpers.lessons.storage_and_stride import explorer as storage_and_stride_explorer
from helpers.lessons.storage_and_stride import explorer as stride
from helpers.lessons.storage_and_stride import storage_picture
from helpers.lessons.storage_and_stride import storage_picture as storage
from helpers.plots import lanes, strip, style, walk
from helpers.plots.ladders import Rung
from helpers.text.evidence import check_evidence

PNG = b"\x89PNG\r\n\x1a\n"
X = torch.arange(24.0).reshape(4, 6)

VIEWS = {
    "rows": X,
    "transpose": X.t(),
    "offset and step": X[1:, ::2],
    "overlap": torch.arange(10.0).unfold(0, 3, 1),
    "stride 0": torch.arange(4.0)[:, None].expand(4, 5),
    "diagonal": X.diagonal(),
    "three": X.reshape(2, 3, 4).permute(2, 0, 1),
    "scalar": torch.tensor(1.0),
    "empty": torch.empty(0, 3),
}


def pictures() -> dict[str, object]:
    """A small example of each public picture."""
    a = torch.ones(3, requires_grad=True)
    return {
        "storage_path": lambda: storage_picture.storage_path(["x.reshape(24)", "x.t().reshape(24)"], base=X),
        "storage_path, labels": lambda: storage_picture.storage_path(
            {"rows": lambda x: x[[0, 2, 0]], "part": lambda x: x[1:, :3]},
            base=X,
            labels=lambda i, j: f"r{i} c{j}",
        ),
        "storage_path, colours": lambda: storage_picture.storage_path(X.t(), colour_by=1),
        "ladder": lambda: plots.ladder(
            [
                Rung("00 plain", 5e-3, 2**29),
                Rung("01 tried", 6e-3, 2**28, kept=False),
                Rung("02", 9e-4, 2**28),
            ],
            evidence="simulated (H100)",
        ),
        "shares": lambda: shares_picture.shares(
            {"one": {"held": 3, "fell": 1}, "two": {"held": 0, "fell": 2}},
            evidence="arithmetic",
            title="Two groups",
            xlabel="claims",
        ),
        "ladder_shares": lambda: plots.ladder_shares(
            {
                "one": [Rung("plain", 5e-3, 2**29), Rung("fused", 1e-3, 2**28)],
                "two": [Rung("plain", 1e-3, 2**20)],
            },
            {"a guide": (4, 0.5)},
            evidence="simulated (H100)",
        ),
        "curves": lambda: plots.curves(
            {
                "left": {"a": ([1, 10], [1e-3, 2e-3]), "b": ([1, 10], [1e-3, 3e-3])},
                "right": {"a": ([1], [2e-3])},
            },
            evidence="arithmetic",
            title="Two panels",
            xlabel="n",
            ylabel="time",
            log="xy",
            times=True,
            dashed=("b",),
        ),
        "samples": lambda: plots.samples({"a": [1e-5, 2e-5, 3e-5], "b": [2e-4] * 9}, evidence="live (CPU)"),
        "speedup": lambda: plots.speedup({"a": (1.4, 1.2, 1.7), "b": (1.0, 0.9, 1.1)}, evidence="live (GPU)"),
        "crossover": lambda: overhead.crossover(
            [1, 100, 10_000], [1e-6, 1.1e-6, 9e-6], evidence="arithmetic", title="A sum"
        ),
        "crossover, max": lambda: overhead.crossover(
            [1, 100, 10_000], [1e-6, 1e-6, 9e-6], evidence="simulated (H100)", title="The larger", law="max"
        ),
        "timeline": lambda: plots.timeline(
            [("mm", "CPU", 0, 5e-6), ("mm", "GPU", 8e-6, 1e-3)],
            evidence="simulated (H100)",
            spans={"naive": (0, 6e-6)},
        ),
        "matrix_splits": lambda: splits.matrix_splits(6, 8, 10),
        "autograd_graph": lambda: graph.autograd_graph((a.exp() * 2).sum(), names={"a": a}),
    }


# ---- the walk: order, steps, counts ----------------------------------------------------------------


@pytest.mark.parametrize("name", VIEWS)
def test_visited_cells_are_where_the_elements_are(name: str) -> None:
    tensor = VIEWS[name]
    # Independent of strides: each storage cell holds its own number, so an element's value is its cell.
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    cells = torch.arange(size).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    found = walk.walk_of(tensor)
    assert list(found.cells) == cells.reshape(-1).tolist()
    assert found.size == size


def test_visited_counts_by_hand() -> None:
    assert walk.visited((2, 3), (10, 2), 5) == (5, 7, 9, 15, 17, 19)
    assert walk.visited((), (), 4) == (4,)
    assert walk.visited((0, 3), (3, 1)) == ()
    with pytest.raises(ValueError, match="1 dimensions and stride .* has 2"):
        walk.visited((2,), (1, 1))


def test_the_sample_lesson() -> None:
    codes = ["x.reshape(24)", "x.t().reshape(24)", "x[:, :3].reshape(12)", "x[::2].reshape(12)"]
    found = walk.walks(codes, X)
    assert [w.kind for w in found] == ["view", "copy", "copy", "copy"]
    assert [w.steps for w in found] == [{1: 23}, {6: 18, -17: 5}, {1: 8, 4: 3}, {1: 10, 7: 1}]
    assert [w.kind for w in walk.walks({"t": X.t(), "clone": X.clone()}, X)] == ["view", "copy"]


def test_an_expression_is_followed_through_the_base_as_it_lies() -> None:
    base = torch.arange(12.0)[2:].reshape(5, 2)[:, 1]  # offset 3, stride 2
    (found,) = walk.walks({"flip": lambda x: x.flip(0)}, base)
    assert found.cells == (11, 9, 7, 5, 3) and found.kind == "copy" and found.size == 12
    (found,) = walk.walks({"take": lambda x: x[[0, 0, 4]]}, base)
    assert found.cells == (3, 3, 11) and found.counts == {3: 2, 11: 1}


def test_a_mask_is_followed_where_values_are_cell_numbers() -> None:
    (found,) = walk.walks(["x[x > 20]"], X)
    assert found.cells == (21, 22, 23)
    with pytest.raises(ValueError, match="chooses by value"):
        walk.walks(["x[x > 20]"], X * 2)


def captions(picture: plots.Picture) -> list[str]:
    return [text.get_text() for ax in picture.figure.axes for text in ax.texts]


def test_a_copy_is_drawn_over_its_source_and_says_so() -> None:
    picture = storage_picture.storage_path(["x[:, 1:4].reshape(12)"], base=X)
    said = captions(picture)
    assert "reads x in steps" in said and "result: own storage, shape (12,), stride (1,)" in said
    assert not any(text.startswith("shape") for text in said)
    assert "read from 12 of 24 cells of x" in picture.alt
    # The name of the source is the function's own; a copied *tensor* can only be drawn where it lies.
    assert walk.walks({"c": lambda row: row.clone()}, X)[0].reads == "row"
    assert walk.walks({"c": torch.clone}, X)[0].reads == "its source"
    said = captions(storage_picture.storage_path({"c": X.clone()}, base=X))
    assert "its own storage" in said and "reads x in steps" not in said


def test_labels_stand_in_the_cells_of_their_elements() -> None:
    images = torch.arange(12.0).reshape(1, 3, 2, 2)
    last = images.to(memory_format=torch.channels_last)

    def labels(given: Callable[..., object], view: torch.Tensor) -> list[str]:
        walked = storage.marked(walk.walk_of(view), given, None)
        return list(dict(sorted(walked.labels.items())).values())

    assert labels(lambda n, c, h, w: f"c{c}p{2 * h + w}", last)[:4] == ["c0p0", "c1p0", "c2p0", "c0p1"]
    assert labels(lambda i, j: f"{i}{j}", X[1:3, ::3]) == ["00", "01", "10", "11"]
    coloured = storage.marked(walk.walk_of(last), None, -3)
    assert [coloured.groups[cell] for cell in range(6)] == [0, 1, 2, 0, 1, 2] and coloured.dimension == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"labels": lambda i, j: "a long label"}, "longer than the 10 characters"),
        ({"colour_by": 2}, "has 2 dimensions"),
        ({"colour_by": -3}, "has 2 dimensions"),
    ],
)
def test_labels_and_colours_say_what_is_wrong(options: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        storage_picture.storage_path(X, **options)
    with pytest.raises(ValueError, match="24 indices"):
        storage_picture.storage_path(X.reshape(24), colour_by=0)


def test_the_key_explains_what_is_there_and_nothing_else() -> None:
    def words(*args: object, **options: object) -> list[str]:
        return [text for _, text in storage.entries_of(walk.walks(*args, **options))]  # type: ignore[arg-type]

    assert words(X) == ["stronger: visited later"]
    assert words(X[0].expand(2, 6)) == ["stronger: visited later", "not visited", "×n: visited n times"]
    assert "the same, in the copy's own storage" in words({"c": X.clone()}, X)
    assert words(torch.empty(0)) == [] and words(torch.tensor(1.0)) == []
    coloured = storage.marked(walk.walk_of(X), lambda i, j: i, 0)
    assert [text for _, text in storage.entries_of([coloured])] == [
        "index in dimension 0: 0, 1, 2, 3",
        "small figure: number of the cell",
    ]


@pytest.mark.parametrize(
    ("views", "base", "error", "said"),
    [
        (["x * 2"], X, ValueError, "computes new numbers"),
        (["x[:1] * 2"], X, ValueError, "computes new numbers"),
        ({"t": lambda x: x.t()}, None, ValueError, "needs base="),
        ({}, None, ValueError, "a tensor, a dict"),
        ({"n": 3}, None, TypeError, "n is int, not a tensor"),
        (torch.zeros(3, 3).to_sparse(), None, ValueError, "only a strided tensor"),
        (torch.zeros(5000), None, ValueError, "5,000 elements.*start small"),
        (torch.zeros(65), None, ValueError, "65 cells.*at most 64"),
    ],
)
def test_storage_path_says_what_is_wrong(views: object, base: object, error: type, said: str) -> None:
    with pytest.raises(error, match=said):
        storage_picture.storage_path(views, base)  # type: ignore[arg-type]


def test_cells_are_laid_out_in_rows_that_can_be_read() -> None:
    def frame(tensor: torch.Tensor) -> strip.Frame:
        return strip.frame_of(walk.walk_of(tensor))

    assert (frame(X).rows, frame(X).columns) == (1, 24)
    assert (frame(torch.zeros(64)).rows, frame(torch.zeros(64)).columns) == (2, 32)
    part = frame(torch.zeros(5000)[4000:4030])
    assert (part.first, part.last) == (3999, 4031) and part.columns <= 20
    for tensor in (X, torch.zeros(64), torch.zeros(5000)[4000:4030], torch.zeros(1)):
        f = frame(tensor)
        last_of_row = min(f.first + f.columns, f.last) - 1
        assert 0 < f.x(f.first, 0) - f.cell / 2 and f.x(last_of_row, 0) + f.cell / 2 < style.WIDTH


def test_arcs_join_what_is_visited_in_turn_each_once() -> None:
    found = walk.walk_of(torch.arange(10.0).unfold(0, 3, 1))
    arcs = strip.arcs_of(found)
    assert {(a, b) for a, b, _ in arcs} == {p for p in itertools.pairwise(found.cells) if p[0] != p[1]}
    assert len(arcs) == len({(a, b) for a, b, _ in arcs})
    assert {b - a: rank for a, b, rank in arcs} == {1: 0, -1: 1}
    assert strip.arc_height(9, 9) > strip.arc_height(-2, 9) > strip.arc_height(1, 9) > 0


# ---- times --------------------------------------------------------------------------------------


def test_samples_and_speedup_take_what_the_timer_gives() -> None:
    plots.samples({"a": SimpleNamespace(samples_s=(1e-6, 2e-6))}, evidence="live (CPU)")
    result = SimpleNamespace(ratio=1.5, low=1.2, high=1.8, verdict="faster", evidence="live (CPU)")
    assert plots.speedup(result).evidence == "live (CPU)"
    assert plots.speedup({"a": result}, evidence="live (GPU)").evidence == "live (GPU)"


def test_the_text_of_a_live_picture_has_no_number_that_changes() -> None:
    # nbval compares text/plain: neither the times nor how many samples a machine took may stand in it.
    few = plots.samples({"a": [1e-6, 2e-6]}, evidence="live (CPU)")
    many = plots.samples({"a": [3e-6, 2e-6, 9e-6]}, evidence="live (CPU)")
    assert repr(few) == repr(many)


@pytest.mark.parametrize(("floor", "each"), [(3e-6, 4e-10), (1e-5, 0.0), (0.0, 2e-9)])
def test_fit_finds_floor_and_slope(floor: float, each: float) -> None:
    sizes = [4**k for k in range(12)]
    found = overhead.fit_overhead(sizes, [floor + each * n for n in sizes])
    np.testing.assert_allclose(found, (floor, each), rtol=1e-9, atol=1e-15)


def test_fit_of_the_larger_finds_floor_and_slope() -> None:
    floor, each = 3e-6, 4e-10
    sizes = [4**k for k in (11, *range(11))]  # in no order
    times = [max(floor, each * n) for n in sizes]
    np.testing.assert_allclose(
        overhead.fit_overhead(sizes, times, "max"), (floor, each), rtol=1e-9, atol=1e-15
    )
    noisy = np.asarray(times) * np.exp(np.random.default_rng(0).normal(0, 0.03, len(times)))
    np.testing.assert_allclose(overhead.fit_overhead(sizes, noisy, "max"), (floor, each), rtol=0.1)


def test_fit_is_never_negative() -> None:
    assert overhead.fit_overhead([1, 10, 100], [3e-6, 2e-6, 1e-6])[1] == 0
    assert overhead.fit_overhead([1, 10, 100], [1e-9, 1e-6, 1e-3])[0] == 0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: plots.samples({}, evidence="live (CPU)"), "no times"),
        (lambda: plots.samples({"a": []}, evidence="live (CPU)"), "a: wants at least one sample"),
        (lambda: plots.samples({"a": [0.0]}, evidence="live (CPU)"), "positive seconds"),
        (lambda: plots.speedup({"a": (1, 2, 3)}, evidence="live (CPU)"), "low ≤ ratio ≤ high"),
        (lambda: plots.speedup({}, evidence="live (CPU)"), "nothing to draw"),
        (lambda: plots.speedup({"a": (1, 1, 1)}), "says where its numbers came from"),
        (lambda: overhead.fit_overhead([1, 2], [1e-6]), "2 sizes and 1 times"),
        (lambda: overhead.fit_overhead([1, 2], [1, 1], "min"), "law='min'"),
        (lambda: plots.timeline([], evidence="live (CPU)"), "no rows"),
        (lambda: plots.timeline([("k", "CPU", 2, 1)], evidence="live (CPU)"), "before it starts"),
        (lambda: plots.samples({"a": [1]}, evidence="measured"), "'published' or 'arithmetic'"),
    ],
)
def test_timing_pictures_say_what_is_wrong(call: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()  # type: ignore[operator]


def test_timeline_links_launch_and_work_in_order() -> None:
    rows = [
        ("mm", "CPU", 0, 1),
        ("mm", "CPU", 1, 2),
        ("mm", "GPU", 3, 4),
        ("mm", "GPU", 5, 6),
        ("x", "GPU", 6, 7),
    ]
    assert lanes.lanes_of(rows) == ["CPU", "GPU"]
    assert lanes.links_of(rows) == [(0, 2), (1, 3)]


def test_timeline_reads_a_simulated_gpu() -> None:
    record = SimpleNamespace
    gpu = record(
        host=[record(name="mm", start_ns=0, end_ns=6000), record(name="mm", start_ns=9000, end_ns=15000)],
        kernels=[record(name="mm", kind="matmul", stream=7, start_ns=8000, end_ns=20000)],
    )
    assert lanes.rows_of(gpu) == [
        ("mm", "CPU", 0.0, 6e-6),
        ("mm", "CPU", 9e-6, 15e-6),
        ("mm", "GPU stream 7", 8e-6, 20e-6),
    ]
    assert "GPU stream 7 1 bars" in plots.timeline(gpu, evidence="simulated (H100)").alt


# ---- the graph ----------------------------------------------------------------------------------


def test_graph_nodes_and_saved_bytes_agree_with_count() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))
    z = torch.randn(5, 8, requires_grad=True)

    def loss() -> torch.Tensor:
        return (z + model(z)).pow(2).mean()

    nodes = graph.nodes_of(loss(), {"z": z})
    assert nodes[0].label == "MeanBackward0"
    assert sum(node.leaf is not None for node in nodes) == 5
    assert all(i < j for i, node in enumerate(nodes) for j in node.following)
    assert graph.saved_bytes(nodes) == count(loss).saved_bytes


def test_graph_shows_what_a_node_keeps_and_which_of_that_is_one_storage() -> None:
    w = torch.randn(100, requires_grad=True)
    t = (w * 2).tanh()
    words = captions(graph.autograd_graph((t * t.detach()).sum(), names={"w": w}))
    assert "keeps other: the number 2" in words
    assert "keeps other: 400 B" in words and "keeps result: 400 B, counted above" in words
    assert graph.saved_bytes(graph.nodes_of((w * 2).sum())) == 0


def test_graph_reads_custom_functions_and_says_freed_and_changed() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(x.exp())
            return x * 2

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            return g * ctx.saved_tensors[0]

    x = torch.ones(4, requires_grad=True)
    y = Twice.apply(x).sum()
    assert graph.saved_bytes(graph.nodes_of(y)) == 16
    y.backward()
    assert [n.trouble for n in graph.nodes_of(y)] == ["", "freed", ""]
    h = x.exp()
    h.add_(1)
    assert "changed in place" in [n.trouble for n in graph.nodes_of(h.sum())]


def test_graph_says_why_there_is_none() -> None:
    with pytest.raises(ValueError, match="nothing behind it asked for a gradient"):
        graph.autograd_graph(torch.ones(2))
    with pytest.raises(ValueError, match="it is a leaf"):
        graph.autograd_graph(torch.ones(2, requires_grad=True))
    y = torch.ones(2, requires_grad=True)
    for _ in range(60):
        y = y.sin()
    with pytest.raises(ValueError, match="over 40 nodes"):
        graph.autograd_graph(y)


# ---- every picture ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", pictures())
def test_picture_is_stamped_and_the_same_twice(name: str) -> None:
    make = pictures()[name]
    first, second = make(), make()  # type: ignore[operator]
    assert first.png().startswith(PNG) and first.png() == second.png()
    badges = [text.get_text() for text in first.figure.texts if text.get_gid() == "evidence"]
    assert badges == [first.evidence]
    assert first.evidence.encode() in first.png()  # and in the file's own description
    assert first.evidence in repr(first)


@pytest.mark.parametrize("name", pictures())
def test_every_text_lies_inside_the_picture(name: str) -> None:
    figure = pictures()[name]().figure  # type: ignore[operator]
    figure.canvas.draw()
    everything = figure.bbox
    for text in [t for ax in figure.axes for t in ax.texts] + figure.texts:
        box = text.get_window_extent()
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= everything.x1 and box.y1 <= everything.y1, (
            text.get_text()
        )


@pytest.mark.parametrize("name", VIEWS)
def test_hard_tensors_draw(name: str) -> None:
    assert storage_picture.storage_path(VIEWS[name], title="A long title " * 12).png().startswith(PNG)


def test_the_learners_own_settings_change_nothing() -> None:
    import matplotlib

    before = storage_picture.storage_path(X).png()
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black", "savefig.dpi": 30}):
        assert storage_picture.storage_path(X).png() == before
    assert "matplotlib.pyplot" not in sys.modules or not matplotlib.pyplot.get_fignums()


@pytest.mark.parametrize("kept", [True, False])
def test_a_ladder_says_what_hollow_means_where_a_row_is(kept: bool) -> None:
    rungs = [Rung("plain", 2e-3, 3.0), Rung("tried", 1e-3, 2.0, kept)]
    texts = [text.get_text() for text in plots.ladder(rungs, evidence="arithmetic").figure.texts]
    assert any("hollow" in text for text in texts) is not kept


def test_evidence_labels() -> None:
    for label in ("live (CPU)", "live (GPU)", "recorded (H100, 2026-01)", "simulated (H100)", "arithmetic"):
        assert check_evidence(label) == label
    for label in ("", "live", "recorded (H100)", "simulated", "live (CPU) "):
        with pytest.raises(ValueError, match="where its numbers came from"):
            check_evidence(label)


def test_importing_plots_is_light() -> None:
    heavy = "('torch', 'matplotlib', 'ipywidgets')"
    code = f"import sys, helpers.plots; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    assert out.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no 'sample'; it has .*samples"):
        plots.sample  # noqa: B018


def test_a_cell_shows_the_picture_once() -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    source = f"from {storage_picture.__name__} import storage_path\nstorage_path(torch.arange(6.).reshape(2, 3).t())"
    cells = ["import torch", "%matplotlib inline", source, "import matplotlib.pyplot as plt\n" + source]
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    here = {"metadata": {"path": str(Path(__file__).parents[1])}}
    nbclient.NotebookClient(nb, timeout=120, kernel_name="python3", resources=here).execute()
    for cell in nb.cells[2:]:
        images = [out for out in cell.outputs if "image/png" in out.get("data", {})]
        assert len(images) == 1 and len(cell.outputs) == 1
        assert images[0].metadata["image/png"]["alt"].startswith("The walk")
    assert nb.cells[2].outputs[0].data["image/png"] == nb.cells[3].outputs[0].data["image/png"]


# ---- the stride explorer ------------------------------------------------------------------------


def test_explorer_moves() -> None:
    pytest.importorskip("ipywidgets")
    explorer = storage_and_stride_explorer.stride_explorer()
    assert explorer.widget is explorer.widget
    before = bytes(explorer.image.value)
    assert before.startswith(PNG)
    explorer.controls["stride0"].value = 1
    assert explorer.image.value != before
    assert explorer.layout.stride0 == 1
    explorer.buttons["transpose"].click()
    assert [explorer.controls[n].value for n in ("rows", "columns", "stride0", "stride1")] == [6, 4, 1, 6]
    assert explorer.image.value == explorer.static().png()


@pytest.mark.parametrize(
    ("name", "value", "said"), [("offset", 20, "ends at cell 23"), ("stride1", -1, "no negative")]
)
def test_explorer_says_what_does_not_fit(name: str, value: int, said: str) -> None:
    pytest.importorskip("ipywidgets")
    explorer = storage_and_stride_explorer.stride_explorer()
    explorer.widget  # noqa: B018
    explorer.controls[name].value = value
    assert said in explorer.layout.facts and said in repr(explorer)
    assert said in explorer.static().alt and explorer.image.value == explorer.static().png()


def test_explorer_presets_fit_and_agree_with_torch() -> None:
    for settings in stride.PRESETS.values():
        tensor = eval(settings.call, {"x": torch.arange(stride.SIZE)})
        assert tuple(tensor.reshape(-1).tolist()) == settings.cells()
        assert settings.tensor().stride() == tensor.stride()
        assert f"is_contiguous() {tensor.is_contiguous()}" in settings.facts


def test_explorer_shows_a_diagonal_in_one_dimension() -> None:
    pytest.importorskip("ipywidgets")
    explorer = storage_and_stride_explorer.stride_explorer()
    explorer.widget  # noqa: B018
    explorer.buttons["diagonal"].click()
    assert "shape (4,) · stride (7,)" in repr(explorer) and explorer.controls["rows"].disabled
    explorer.controls["dims"].value = 2
    assert explorer.layout.shape == (1, 4) and not explorer.controls["rows"].disabled


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((3, 6, 0, 1, 0), "18 elements visit each of 6 distinct cells 3 times"),
        ((4, 6, 6, 1, 0), "24 elements visit each of 24 distinct cells once"),
        ((3, 3, 1, 1, 0), "9 elements visit 5 distinct cells, 1 to 3 times each"),
        ((2, 3, 0, 0, 0), "6 elements visit 1 distinct cell"),
        ((1, 1, 0, 0, 0), "1 element visits 1 distinct cell"),
    ],
)
def test_explorer_counts_visits(numbers: tuple, said: str) -> None:
    assert f"· {said} ·" in stride.Settings(*numbers).facts


def test_explorer_refuses_what_torch_refuses() -> None:
    for numbers in itertools.product((1, 5), (2, 5), (-1, 0, 3), (0, 4), (0, 6)):
        settings = stride.Settings(*numbers)
        try:
            torch.arange(stride.SIZE).as_strided(numbers[:2], numbers[2:4], numbers[4])
            fits = True
        except RuntimeError:
            fits = False
        assert (not settings.trouble) == fits, settings


def test_explorer_is_a_picture_where_nothing_can_move(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ipywidgets")
    live, _ = storage_and_stride_explorer.stride_explorer()._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in live and "image/png" in live
    monkeypatch.setenv(widgets.STATIC, "1")
    built, about = storage_and_stride_explorer.stride_explorer()._repr_mimebundle_()
    assert set(built) == {"text/plain", "image/png"} and "alt" in about["image/png"]
    monkeypatch.delenv(widgets.STATIC)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    explorer = storage_and_stride_explorer.stride_explorer()
    bare, _ = explorer._repr_mimebundle_()
    assert explorer.widget is None and set(bare) == {"text/plain", "image/png"}
    assert "ipywidgets is not installed" in bare["text/plain"]
    explorer.set(**vars(stride.Settings(2, 2, 1, 1, 0)))
    assert explorer.static().png().startswith(PNG)


def test_storage_module_is_the_public_one() -> None:
    assert storage_picture.storage_path is storage.storage_path
    assert set(plots.__all__) == set(dir(plots))
    # A submodule of the same name would take a function's place once it is imported.
    assert all(callable(getattr(plots, name)) for name in plots.__all__)
