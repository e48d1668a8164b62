"""The pipeline on masters that are wrong: each is refused with a message that says where."""

import json
from pathlib import Path

import nbformat
import pytest

import helpers
from helpers.classroom import build
from helpers.classroom import master as masters
from helpers.classroom.master import BadMaster
from helpers.classroom.release import release
from helpers.keeping import keep

GOOD = '''\
# %% [markdown]
# # 90 · Tiny
# ## Does it all work?
#
# 30–45 min

# %% setup
import torch

# %% experiment
print(torch.arange(3))

# %% [markdown]
# **Exercise 90.1 — twice the numbers** (★, 5 min)
# <details><summary>Hint 1</summary>1</details><details><summary>Hint 2</summary>2</details><details><summary>The idea</summary>3</details>

# %% exercise="twice"
def twice(x: torch.Tensor) -> torch.Tensor:
    """x: (n,) → (n,)."""
    ### BEGIN SOLUTION
    return x * 2
    ### END SOLUTION


# %% test="twice" points=1
import torch

from helpers import check

check.function("twice", [check.case(torch.arange(3.0))], expect=lambda x: x * 2)

# %% hidden="twice" points=2
### BEGIN HIDDEN TESTS
import torch

from helpers import check

check.function("twice", [check.case(torch.arange(9.0))], expect=lambda x: x + x, budget={"operators": 1})
### END HIDDEN TESTS
'''


def write(folder: Path, text: str) -> Path:
    path = folder / "90_tiny" / "90_tiny.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_a_good_master_is_read(tmp_path: Path) -> None:
    master = masters.read(write(tmp_path, GOOD))
    assert [c.kind for c in master.cells] == [
        "markdown",
        "setup",
        "experiment",
        "markdown",
        "exercise",
        "test",
        "hidden",
    ]
    assert [c.grade_id for c in master.cells if c.grade_id] == ["twice", "twice__test", "twice__hidden"]
    assert [(e.title, e.minutes, e.points, e.checks) for e in master.exercises] == [
        ("twice the numbers", 5, 3, ["twice"])
    ]
    assert build.text_of(build.notebook(master)) == build.text_of(build.notebook(masters.read(master.path)))


BAD = {
    "duplicate id": ("# %% test=", '# %% exercise="twice"\n### BEGIN SOLUTION\n### END SOLUTION\n# %% test=', "duplicate grade_id 'twice'", 25),
    "points missing": ('# %% test="twice" points=1', '# %% test="twice"', "needs points=N", 25),
    "no points": ("points=2", "points=0", "needs points=N", 32),
    "solution not closed": ("    ### END SOLUTION\n", "", "do not alternate", 17),
    "solution closed twice": ("    ### END SOLUTION\n", "    ### END SOLUTION\n    ### END SOLUTION\n", "do not alternate", 17),
    "hidden not closed": ("### END HIDDEN TESTS\n", "", "do not alternate", 32),
    "solution in an experiment": ("print(torch.arange(3))", "### BEGIN SOLUTION\n### END SOLUTION", "belongs in a cell of kind exercise", 10),
    "cell without a kind": ("# %% experiment", "# %%", "needs one kind", 10),
    "unknown option": ("# %% experiment", "# %% experiment fast=1", "unknown option ['fast']", 10),
    "no hidden test": (GOOD[GOOD.index('# %% hidden="twice"') :], "", "has no hidden test", 17),
    "test before its exercise": ("# %% experiment", '# %% test="twice" points=1\n# %% experiment', "before any exercise", 10),
    "live name in a test": ('check.function("twice", [check.case(torch.arange(3.0))]', "check.function(twice.__name__, [check.case(torch.arange(3.0))]", "must stand alone, but uses ['twice']", 25),
    "test without check": ('check.function("twice", [check.case(torch.arange(3.0))], expect=lambda x: x * 2)', "assert True", "reaches the learner", 25),
    "test too long": ('check.function("twice", [check.case(torch.arange(3.0))]', "x = [\n" + "    1,\n" * 12 + ']\ncheck.function("twice", [check.case(torch.arange(3.0))]', "a visible test of 17 lines", 25),
    "test overwrites a name": ('check.function("twice", [check.case(torch.arange(3.0))]', 'twice = 3\ncheck.function("twice", [check.case(torch.arange(3.0))]', "would overwrite ['twice']", 25),
    "clock in a test": ("import torch\n\nfrom helpers import check\n\ncheck.function(\"twice\", [check.case(torch.arange(3.0))]", "import time, torch\n\nfrom helpers import check\n\ntime.perf_counter()\ncheck.function(\"twice\", [check.case(torch.arange(3.0))]", "reads a clock", 25),
    "exercise needs an experiment": ("print(torch.arange(3))", "two = 2", "uses ['two']", 17),
    "no hints": ("<details><summary>Hint 2</summary>2</details>", "", "two hints and the idea", 17),
    "no heading": ("**Exercise 90.1 — twice the numbers** (★, 5 min)", "Twice.", "needs '**Exercise", 17),
    "syntax": ("    return x * 2", "    return x *", "invalid syntax", 21),
    "no title": ("# # 90 · Tiny\n", "", "first cell must be markdown", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_master_is_refused(tmp_path: Path, name: str) -> None:
    old, new, message, line = BAD[name]
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    if name == "exercise needs an experiment":
        text = text.replace("x * 2\n", "x * two\n", 1)
    with pytest.raises(BadMaster) as problem:
        masters.read(write(tmp_path, text))
    assert message in str(problem.value)
    assert str(problem.value).startswith(f"90_tiny.py:{line}:"), str(problem.value)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("1 / 0", "90_tiny.py:10: this experiment cell raised ZeroDivisionError: division by zero"),
        ("import os; print(os.getcwd())", "90_tiny.py:10: an output names this machine: "),
        ("import tempfile; print(tempfile.mkdtemp())", "90_tiny.py:10: an output names this machine: "),
        ("import ipywidgets; display(ipywidgets.IntSlider())", "90_tiny.py:10: an output is a live widget"),
        ("import os; os._exit(3)", "90_tiny.py:10: the kernel died in this experiment cell"),
    ],
)
def test_a_bad_run_is_refused(tmp_path: Path, code: str, message: str) -> None:
    """The run ends in the experiment: nothing that it comes to needs torch, whose import is most of a kernel's time."""
    text = GOOD.replace("import torch\n", "torch = None\n", 1)
    master = masters.read(write(tmp_path, text.replace("print(torch.arange(3))", code)))
    with pytest.raises(BadMaster) as problem:
        build.execute(build.notebook(master), master)
    assert str(problem.value).startswith(message)


def test_an_output_that_depends_on_the_processor_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in build.processors.PLAIN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(build, "NOTEBOOKS", tmp_path / "notebooks")
    code = "import os\nprint(f\"{8.25 if 'ATEN_CPU_CAPABILITY' in os.environ else 8.5} operators\")"
    path = write(tmp_path, GOOD.replace("print(torch.arange(3))", code))
    with pytest.raises(BadMaster) as problem:
        build.build_one(path, force=False)
    assert str(problem.value).startswith(
        "90_tiny.py:10: stdout of this experiment cell depends on the processor"
    )
    assert "'8.5 operators\\n'" in str(problem.value) and "'8.25 operators\\n'" in str(problem.value)
    assert not path.with_suffix(".ipynb").exists(), "nothing is kept of a lesson that is refused"


@pytest.mark.parametrize(
    ("here", "plain", "kind"),
    [
        ({"text/plain": "a 1.25"}, {"text/plain": "a 1.26"}, "text/plain"),
        ({"text/plain": "a", "text/html": "<b>1</b>"}, {"text/plain": "a", "text/html": "<b>2</b>"}, "text/html"),
        ({"application/json": {"a": 1.0}}, {"application/json": {"a": 1.1}}, "application/json"),
        ({"text/plain": "a"}, {}, "text/plain"),
        ({"text/plain": "a ≈ 1.25 ms"}, {"text/plain": "a ≈ 7 s"}, ""),
        ({"text/plain": "at 0x7f0000001234"}, {"text/plain": "at 0x7f0000005678"}, ""),
        ({"text/plain": "a", "image/png": "AAAA"}, {"text/plain": "a", "image/png": "BBBB"}, ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("passed_over", [False, True])
def test_outputs_are_compared_as_nbval_does(
    tmp_path: Path, here: dict[str, str], plain: dict[str, str], kind: str, passed_over: bool
) -> None:
    tag = ' tags=["nbval-ignore-output"]' if passed_over else ""
    master = masters.read(write(tmp_path, GOOD.replace("# %% experiment", "# %% experiment" + tag)))
    runs = [build.notebook(master) for _ in range(2)]
    for nb, data in zip(runs, (here, plain), strict=True):
        nb.cells[2].outputs = [nbformat.v4.new_output("display_data", data)]
    if kind and not passed_over:
        with pytest.raises(BadMaster, match=f"90_tiny.py:10: {kind} of this experiment cell depends"):
            build.processors.compare(*runs, master)
    else:
        build.processors.compare(*runs, master)


def test_execution_and_release(tmp_path: Path) -> None:
    master = masters.read(write(tmp_path, GOOD))
    nb = build.notebook(master)
    build.execute(nb, master)  # that building twice changes nothing, tests/test_prose.py sees
    reference = master.path.with_suffix(".ipynb")
    reference.write_text(build.text_of(nb))
    learner = release(reference)
    assert learner == release(reference)
    assert (
        "BEGIN" not in learner
        and "x * 2" not in learner.replace("lambda x: x * 2", "")
        and "x + x" not in learner
    )
    cells = {c.id: c for c in nbformat.reads(learner, as_version=4).cells}
    assert "NotImplementedError" in cells["twice"].source
    assert cells["twice__hidden"].source == build.HIDDEN_NOTE
    assert all(not c.get("outputs") for c in cells.values())


def test_answers_are_kept(tmp_path: Path) -> None:
    master = masters.read(write(tmp_path, GOOD))
    reference = master.path.with_suffix(".ipynb")
    reference.write_text(build.text_of(build.notebook(master)))
    notebook = tmp_path / "90_tiny.ipynb"
    made = release(reference)
    notebook.write_text(made)
    assert keep(notebook, made) is None, "nothing to keep in an untouched notebook"
    notebook.write_text(made.replace("raise NotImplementedError()", "return x * 3"))
    kept = keep(notebook, made)
    assert kept is not None and "x * 3" in kept.read_text()
    nb = nbformat.reads(made, as_version=4)
    nb.cells.append(nbformat.v4.new_markdown_cell("my notes"))
    notebook.write_text(build.text_of(nb))
    assert keep(notebook, made) is not None, "notes are a person's, too"
    notebook.write_text("{ broken")
    again = keep(notebook, made)
    assert again is not None and again.read_text() == "{ broken"
    assert again != kept and "x * 3" in kept.read_text(), "within the same second too"


def test_fingerprint_follows_meaning(tmp_path: Path) -> None:
    base = build.fingerprint(masters.read(write(tmp_path, GOOD)))
    assert (
        build.fingerprint(masters.read(write(tmp_path, GOOD.replace("\n# %% exp", "\n\n\n# %% exp")))) == base
    )
    assert build.fingerprint(masters.read(write(tmp_path, GOOD.replace("arange(3))", "arange(4))")))) != base
    loaded = [Path(helpers.__file__).relative_to(build.ROOT).as_posix()]
    assert build.fingerprint(masters.read(write(tmp_path, GOOD)), loaded) != base, "what it loads counts"
    assert build.fingerprint(masters.read(write(tmp_path, GOOD)), ["helpers/gone.py"]) != base


def test_fingerprint_follows_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its public version: the builds for the CPU and for CUDA give the same outputs."""
    master, found = masters.read(write(tmp_path, GOOD)), {}
    for torch in ("2.13.0", "2.13.0+cpu", "2.13.0+cu130", "2.14.1+cpu"):
        monkeypatch.setattr(build, "version", {"torch": torch}.__getitem__)
        found[torch] = build.fingerprint(master)
    assert found["2.13.0"] == found["2.13.0+cpu"] == found["2.13.0+cu130"] != found["2.14.1+cpu"]


def test_built_reference_names_what_it_loaded() -> None:
    """The list comes from the kernel, so that lazy and relative imports are in it."""
    for path in build.find([]):
        course = json.loads(path.with_suffix(".ipynb").read_text())["metadata"]["course"]
        assert {"helpers/lesson/__init__.py", "helpers/check/probe.py", "helpers/text/tables.py"} <= set(
            course["helpers"]
        ), path
        assert all((build.ROOT / name).exists() for name in course["helpers"]), path


def test_fingerprint_counts_the_data_of_what_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder's own, and what lies in folders below it without modules; what another package holds is that one's."""
    master = masters.read(write(tmp_path, GOOD))
    for name in (
        "helpers/a.py",
        "helpers/own.json",
        "helpers/data/own.json",
        "helpers/b/b.py",
        "helpers/b/its.json",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("0", encoding="utf-8")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    base = build.fingerprint(master, ["helpers/a.py"])
    (tmp_path / "helpers/b/its.json").write_text("1", encoding="utf-8")
    assert build.fingerprint(master, ["helpers/a.py"]) == base
    monkeypatch.setattr(build.given, "CLASS", tmp_path / "helpers/own.json")
    assert build.fingerprint(master, ["helpers/a.py"]) != base, "a class's own file does not count, others do"
    monkeypatch.undo()
    monkeypatch.setattr(build, "ROOT", tmp_path)
    (tmp_path / "helpers/data/own.json").write_text("1", encoding="utf-8")
    assert build.fingerprint(master, ["helpers/a.py"]) != base
