"""A learner's own files and cells: `python -m helpers file`, and the magics of `%load_ext helpers`."""

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from IPython.core.error import UsageError
from torch import nn

from helpers import __main__ as command
from helpers import simulate


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trace and a memory snapshot of one short simulated training, in the folder that is worked in."""
    monkeypatch.chdir(tmp_path)
    gpu = simulate("H100")
    with gpu:
        gpu.memory._record_memory_history()
        model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 8)).to(gpu.device)
        optimizer = torch.optim.Adam(model.parameters())
        with gpu.profile() as prof:
            for _ in range(4):
                model(torch.randn(64, 256, device=gpu.device)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                gpu.synchronize()
        gpu.memory._dump_snapshot("snapshot.pickle")
    prof.export_chrome_trace("trace.json.gz")
    return tmp_path


def test_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["trace.json.gz"]) == 0
    said = capsys.readouterr().out
    assert "-bound [simulated (H100)]" in said and "→" in said and "drawn: trace-picture.png" in said
    assert command.main(["snapshot.pickle", "--out", "memory.png"]) == 0
    said = capsys.readouterr().out
    assert "peak " in said and "test_own_files.py" in said
    assert (folder / "trace-picture.png").read_bytes().startswith(b"\x89PNG") and (
        folder / "memory.png"
    ).exists()


def test_pictures_of_two_traces_of_one_process(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Named as PyTorch's tensorboard_trace_handler names them: the second picture does not replace the first."""
    for second in (1, 2):
        shutil.copy("trace.json.gz", f"node7_4711.176412{second}.pt.trace.json.gz")
        assert command.main([f"node7_4711.176412{second}.pt.trace.json.gz"]) == 0
    assert len([*folder.glob("node7_4711.176412?-picture.png")]) == 2


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac's file names are UTF-8")
def test_a_name_whose_bytes_are_no_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, ending in (("trace", ".json.gz"), ("snapshot", ".pickle")):
        odd = Path(f"{name}-\udcff{ending}")
        Path(name + ending).rename(odd)
        assert command.main([str(odd)]) == 0
        said = capsys.readouterr()
        assert f"drawn: {name}-\N{REPLACEMENT CHARACTER}-picture.png" in said.out and not said.err
        assert Path(f"{name}-\udcff-picture.png").exists()
        odd.write_bytes(b"broken")
        assert command.main([str(odd)]) == 2
        assert f"{name}-" in capsys.readouterr().err


def test_a_snapshot_of_a_real_gpu_says_nothing_of_its_origin(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = pickle.loads((folder / "snapshot.pickle").read_bytes())  # ours
    del raw["simulated"]
    (folder / "mine.pickle").write_bytes(pickle.dumps(raw))
    assert command.main(["mine.pickle"]) == 0
    assert "recorded (GPU not named, no date)" in (said := capsys.readouterr().out)
    assert "at the end: free" in said
    assert command.main(["mine.pickle", "--evidence", "recorded (A100, 2026-05)"]) == 0
    assert "recorded (A100, 2026-05)" in capsys.readouterr().out


def test_a_real_trace_was_recorded_and_is_not_live(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu) as prof:
        torch.ones(8) + 1
    prof.export_chrome_trace("cpu.json")
    assert command.main(["cpu.json"]) == 0
    said = capsys.readouterr().out
    assert "recorded (CPU, 20" in said and "live" not in said


def test_as_it_is_typed(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "helpers", "snapshot.pickle"],
        capture_output=True,
        encoding="utf-8",
        cwd=folder,
    )
    assert done.returncode == 0 and "peak " in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["none.json"], "no file at none.json"),
        (["odd.json"], "no list 'traceEvents'"),
        (["odd.pickle"], "no pickle of a memory snapshot"),
        (["trace.json.gz", "--out", "x.pdf"], "saved as .png"),
        (["trace.json.gz", "--out", "trace.json.gz"], "is the file to be read"),
    ],
)
def test_what_cannot_be_read(
    folder: Path, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("odd.json").write_text(json.dumps({"a": 1}), encoding="utf-8")
    Path("odd.pickle").write_text("abc", encoding="utf-8")
    before = Path("trace.json.gz").read_bytes()
    assert command.main(words) == 2
    assert why in capsys.readouterr().err
    assert Path("trace.json.gz").read_bytes() == before


@pytest.fixture
def shell() -> Iterator[Any]:
    from IPython.core.interactiveshell import InteractiveShell

    one = InteractiveShell.instance()
    one.run_line_magic("colors", "nocolor")
    one.run_line_magic("load_ext", "helpers")
    one.run_cell("import torch\nx = torch.ones(50, 50)")
    yield one
    InteractiveShell.clear_instance()


def test_magics(shell: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counted = shell.run_cell("%%count\ny = x.t().contiguous()\nvalue = y.sum().item()").result
    assert (counted.copies, counted.syncs) == (1, 1)
    assert shell.user_ns["value"] == 2500  # the cell's variables stay
    assert shell.run_cell("%%bench\nx + 1").result.median_s > 0
    path = tmp_path / "mine.json.gz"
    picture = shell.run_cell(f"%%trace {path}\nx @ x").result
    assert "CPU only" in capsys.readouterr().out
    assert picture.png().startswith(b"\x89PNG") and path.exists()


def test_a_cell_that_trains_on_a_simulated_card(shell: Any) -> None:
    cell = """%%run_on A100
from torch import nn
model = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    loss = model(torch.randn(8, 64, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    total = loss.item()
"""
    found = shell.run_cell(cell).result
    assert found.evidence == "simulated (A100)" and found.steps == 4
    (row,) = (row for row in found.rows if row.kind == "value" or "value" in row.also)
    assert str(row.place) == "cell, line 8" and row.place.text == "total = loss.item()"
    assert "<table" in found._repr_html_()
    assert "three more are needed" in str(shell.run_cell("%%run_on\nx + 1").error_in_exec)
    assert "no GPU named" in str(shell.run_cell("%%run_on H1000\nx + 1").error_in_exec)


def test_magics_fail_as_the_cell_does(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(shell.run_cell("%%count\na = 1\n1 / 0").error_in_exec, ZeroDivisionError)
    assert "----> 2 1 / 0" in capsys.readouterr().out
    for cell, why in (
        ("%%trace notes.txt\nx", "writes a .json or .json.gz"),
        ("%%count fast\nx", "takes nothing"),
    ):
        error = shell.run_cell(cell).error_in_exec
        assert isinstance(error, UsageError) and why in str(error)
