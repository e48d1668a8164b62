"""helpers.recordings: what is written names no machine, what is read is what was written, and labels are honest."""

from __future__ import annotations

import ast
import getpass
import gzip
import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers import keeping, recordings, simulate, trace
from helpers.lessons import record
from helpers.recordings import files, manifest, registry, running
from helpers.recordings.common import profiled
from helpers.recordings.registry import Experiment, code_hash, experiment

ROOT = Path(__file__).resolve().parents[1]
NAMES = sorted(record.load_all())
QUICK = ["03/item_in_loop", "05/serial", "08/growing"]
# in two parts: a test of this repository refuses such a place in any file
HOME = "/ho" + "me/ada"


@pytest.fixture(scope="module")
def dry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dry run of three experiments: two traces, a snapshot and a table.

    Here and not in a process each, as the recorder runs them: a test below has one of them recorded so.
    """

    def here(one: Experiment, folder: Path, simulated: str | None, timeout: float) -> str:
        running.main(one.run.__module__, one.name, str(folder), simulated or "")
        return ""

    folder = tmp_path_factory.mktemp("dry run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "run_apart", here)
        told = record.record(registry.select(QUICK), folder, simulated="H100")
    assert set(told.values()) == {""}
    return folder


@pytest.fixture
def recorded(dry: Path, tmp_path: Path) -> Path:
    """The same, made to say that it came from a GPU: what a recording looks like."""
    folder = tmp_path / "nvidia-h100"
    shutil.copytree(dry, folder)
    change(folder, simulated=None, device={"name": "NVIDIA H100 80GB HBM3", "memory_bytes": 1})
    return folder


def change(folder: Path, **fields: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def entries(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())["experiments"]


# ------------------------------------------------------------------------------------------ registry, hashes


def test_each_lesson_of_the_issue_has_experiments_and_all_fit_into_twenty_minutes() -> None:
    assert {name.partition("/")[0] for name in NAMES} >= {"03", "05", "06", "07", "08", "calibration"}
    assert sum(one.seconds for one in record.load_all().values()) <= record.BUDGET_S


def test_two_experiments_cannot_share_a_name_and_a_reload_is_no_second_one() -> None:
    def other(gpu: Any) -> dict[str, Any]:
        return {}

    with pytest.raises(ValueError, match="two experiments are named '03/steady'"):
        experiment("03/steady")(other)
    same = registry.find("03/steady").run
    assert experiment("03/steady")(same) is same
    with pytest.raises(ValueError, match="not 'Lesson 3'"):
        experiment("Lesson 3")
    with pytest.raises(ValueError, match="there are 00/"):
        registry.find("03/no_such")
    with pytest.raises(ValueError, match="no experiment 99"):
        registry.select(["99"])


SOURCE = '''"""Doc."""
import torch
N = 3  # how many

def shared(x):
    return x * N

@experiment("03/a")
def a(gpu):
    """What it does."""
    return {"table": [shared(1)]}

@experiment("03/b")
def b(gpu):
    return {}
'''


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("N = 3", "N = 4", True),
        ("x * N", "x + N", True),
        ("shared(1)", "shared(2)", True),
        ("# how many", "# how very many", False),
        ("What it does.", "What it really does.", False),
        ('"""Doc."""', '"""Other."""', False),
        ("    return x * N", "    return  x * N\n", False),
        ("return {}", "return {1: 2}", False),  # the other experiment
        ("N = 3", "N = 3; S = '# no comment'", True),
    ],
)
def test_the_hash_changes_with_the_code_and_not_with_its_comments(old: str, new: str, changes: bool) -> None:
    assert SOURCE.count(old) == 1
    assert (code_hash(SOURCE, "a") != code_hash(SOURCE.replace(old, new), "a")) is changes


def test_the_hash_sees_a_change_inside_a_string_that_looks_like_a_comment() -> None:
    one = code_hash('@experiment("x/y")\ndef a(gpu):\n    return "# 1"\n', "a")
    assert one != code_hash('@experiment("x/y")\ndef a(gpu):\n    return "# 2"\n', "a")


# ------------------------------------------------------------------------------------------ nothing of the machine


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        (f"{HOME}/stuff/course/helpers/trace/x.py(12): read", "x.py(12): read"),
        ("/opt/py/lib/python3.12/site-packages/torch/nn/modules/linear.py", "torch/nn/modules/linear.py"),
        ("/usr/lib/python3.12/json/decoder.py: decode", "json/decoder.py: decode"),
        (f"{ROOT}/helpers/lesson.py", "helpers/lesson.py"),
        (r"C:\Users\ada\course\x.py", "x.py"),
        ("<built-in method get of dict object at 0x7ff716ad3b40>", "<built-in method get of dict object >"),
        ("aten::add 3/4 and a / b at 5 km/h", "aten::add 3/4 and a / b at 5 km/h"),
    ],
)
def test_paths_are_cut_to_relative_names(text: str, cut: str) -> None:
    assert files.scrub(text) == cut
    files.check(cut)


@pytest.mark.parametrize(
    "text",
    [
        "on node-17 again",
        "by ada.lovelace",
        "see /data/runs/7/trace.json",
        str(Path.home() / "x"),
        sys.prefix,
    ],
)
def test_what_names_a_machine_is_not_written(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node-17")
    monkeypatch.setattr(getpass, "getuser", lambda: "ada.lovelace")
    with pytest.raises(files.MachineName):
        files.pack({"note": text})


def test_words_of_every_recording_are_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "trace")
    monkeypatch.setattr(getpass, "getuser", lambda: "torch")
    assert files.unpack(files.pack({"note": "torch wrote a trace"}))


def live_trace(tmp_path: Path) -> dict[str, Any]:
    with torch.profiler.profile(record_shapes=True, with_stack=True, profile_memory=True) as prof:
        torch.nn.Linear(4, 4)(torch.randn(4, 4)).sum().backward()
    prof.export_chrome_trace(str(tmp_path / "t.json"))
    return json.loads((tmp_path / "t.json").read_text())


def test_a_live_trace_with_stacks_loses_the_machine_and_keeps_the_operators(tmp_path: Path) -> None:
    raw = live_trace(tmp_path)
    raw.setdefault("host_name", "some-machine")  # torch 2.11 writes none
    assert raw["host_name"] and str(tmp_path) in raw["traceName"]  # what must not stay
    kept = files.trim_trace(raw)
    text = json.dumps(kept)
    for secret in (str(ROOT), str(Path.home()), sys.prefix, str(tmp_path), raw["host_name"] * 2):
        assert secret not in text
    assert getpass.getuser() == "root" or getpass.getuser() not in text
    assert "host_name" not in kept and "traceName" not in kept and "baseTimeNanoseconds" not in kept
    names = lambda trace: sorted(e["name"] for e in trace["traceEvents"] if e.get("cat") == "cpu_op")  # noqa: E731
    assert names(kept) == names(raw)
    assert min(e["ts"] for e in kept["traceEvents"] if e.get("ph") == "X") == 0
    assert max(n for e in kept["traceEvents"] for n in (e["pid"], e["tid"]) if isinstance(n, int)) < 1100
    shapes = [e["args"]["Input Dims"] for e in kept["traceEvents"] if e["name"] == "aten::addmm"]
    assert shapes and shapes[0][1] == [4, 4]
    assert len(files.pack(kept)) < 0.8 * len(gzip.compress((tmp_path / "t.json").read_bytes()))


def test_a_trace_keeps_what_the_readers_need_and_reads_the_same() -> None:
    from helpers import trace
    from helpers.simulator import simulate

    gpu = simulate("H100")
    with gpu:
        given = registry.find("03/item_in_loop").run(gpu)["trace"]
    before = trace.read(given)
    after = trace.read(files.unpack(files.pack(files.trim_trace(running._trace(given)))))
    assert str(trace.classify(after)) == str(trace.classify(before))
    assert trace.idle(after).seconds == pytest.approx(trace.idle(before).seconds)


def test_an_empty_trace_is_no_trace() -> None:
    with pytest.raises(ValueError, match="no events"):
        files.trim_trace({"traceEvents": []})
    with pytest.raises(ValueError, match="no 'segments'"):
        files.trim_snapshot({"blocks": []})


def test_snapshot_frames_are_relative_and_few_and_fields_are_chosen() -> None:
    frame = {"filename": f"{HOME}/x/site-packages/torch/nn/f.py", "line": 3, "name": "forward"}
    entry = {
        "action": "alloc",
        "addr": 7,
        "size": 512,
        "stream": 0,
        "time_us": 10**15,
        "frames": [frame] * 30,
    }
    block = {"address": 7, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": [frame]}
    segment = {
        "address": 7,
        "total_size": 2**21,
        "segment_pool_id": (0, 0),
        "stream": 0,
        "blocks": [block],
        "host": "ada",
    }
    kept = files.trim_snapshot({"segments": [segment], "device_traces": [[entry]], "external": HOME})
    assert "ada" not in json.dumps(kept)
    assert kept["device_traces"][0][0]["time_us"] == 0
    assert len(kept["device_traces"][0][0]["frames"]) == 8
    assert kept["segments"][0]["blocks"][0]["frames"][0]["filename"] == "torch/nn/f.py"


@pytest.mark.parametrize("rows", [{"a": 1}, [1, 2], [[1]], "text"])
def test_a_table_is_a_list_of_dicts(rows: Any) -> None:
    with pytest.raises(TypeError, match="list of dicts"):
        files.plain_table(rows)


def test_a_table_holds_plain_data_only() -> None:
    assert files.plain_table([{"us": torch.tensor(2.5), "n": 3, "ok": True}]) == [
        {"us": 2.5, "n": 3, "ok": True}
    ]
    with pytest.raises(TypeError, match="plain data, not object"):
        files.plain_table([{"x": object()}])
    with pytest.raises(ValueError, match="nan|JSON"):
        files.pack([float("nan")])


def test_a_file_too_large_is_refused_with_what_to_do() -> None:
    noise = torch.randint(10**9, (200_000,), generator=torch.Generator().manual_seed(0)).tolist()
    with pytest.raises(ValueError, match="record fewer steps"):
        files.pack(noise)


def test_the_same_results_give_the_same_bytes() -> None:
    one = registry.find("05/serial")
    first, second = (running.pack_all(running.run_simulated(one, "H100")) for _ in range(2))
    assert first == second


# ------------------------------------------------------------------------------------------ the manifest, the loader


def test_the_manifest_says_where_when_with_what_and_by_which_code(dry: Path) -> None:
    found = json.loads((dry / "manifest.json").read_text())
    assert found["simulated"] == "H100" and "simulated" in found["device"]["name"]
    for key in (
        "driver",
        "cuda",
        "torch",
        "python",
        "date",
        "command",
        "code",
        "numpy",
        "system",
        "processor",
    ):
        assert found[key], key
    assert found["torch"] == torch.__version__
    for name, entry in found["experiments"].items():
        assert entry["code"] == registry.find(name).code
        for about in entry["files"].values():
            data = (dry / about["path"]).read_bytes()
            assert (files.digest(data), len(data)) == (about["sha256"], about["bytes"])
    files.check((dry / "manifest.json").read_text())
    assert str(dry) not in (dry / "manifest.json").read_text()


def test_a_dry_run_is_never_a_recording(dry: Path) -> None:
    with pytest.raises(recordings.Refused, match="dry run on a simulated H100, which is no recording"):
        recordings.load("03/item_in_loop", dry)


def test_a_recording_loads_with_its_label(recorded: Path) -> None:
    found = recordings.load("08/growing", recorded)
    assert found is not None
    assert found.evidence == f"recorded (H100, {found.date})"
    assert found.table and found.snapshot and found.trace is None
    assert isinstance(found.snapshot["segments"][0]["segment_pool_id"], tuple)
    assert recordings.load("08/longest_first", recorded) is None  # not recorded there
    from helpers.text.evidence import check_evidence

    assert check_evidence(found.evidence)


def test_code_that_changed_since_is_said_in_the_label(recorded: Path) -> None:
    known = entries(recorded)
    known["05/serial"]["code"] = "0" * 16
    change(recorded, experiments=known)
    found = recordings.load("05/serial", recorded)
    assert found is not None and found.stale
    assert found.evidence.endswith("; its code has changed since)")
    result = recordings.show("05/serial", folder=recorded, prefer="recorded")
    assert result.evidence == found.evidence and "older version" in result.note
    from helpers.text.evidence import check_evidence

    assert check_evidence(found.evidence)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f, p: p.write_bytes(p.read_bytes()[:-7]), "not the file that was recorded"),
        (lambda f, p: p.write_bytes(gzip.compress(b"{}")), "not the file that was recorded"),
        (lambda f, p: p.unlink(), "is in the manifest and not in"),
        (lambda f, p: change(f, format=99), "format 99, and this version of the course reads 1"),
        (lambda f, p: (f / "manifest.json").write_text("{"), "not JSON"),
        (lambda f, p: (f / "manifest.json").write_text("[]"), "format 'list'"),
        (lambda f, p: (f / "manifest.json").unlink(), "no manifest.json"),
        (lambda f, p: (f / "manifest.json").write_text('{"format": 1}'), "lacks date, device"),
    ],
)
def test_what_does_not_match_is_refused(recorded: Path, damage: Any, words: str) -> None:
    path = recorded / entries(recorded)["05/serial"]["files"]["trace"]["path"]
    damage(recorded, path)
    with pytest.raises(recordings.Refused, match=words):
        recordings.load("05/serial", recorded)


@pytest.mark.parametrize("path", ["../secret.json.gz", "/etc/passwd", "a/b.json.gz"])
def test_a_manifest_cannot_name_files_elsewhere(recorded: Path, path: str) -> None:
    known = entries(recorded)
    known["05/serial"]["files"]["trace"]["path"] = path
    change(recorded, experiments=known)
    with pytest.raises(recordings.Refused, match="names a file"):
        recordings.load("05/serial", recorded)


def test_of_several_cards_the_preferred_one_is_taken(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = recorded.parent / "nvidia-a100"
    shutil.copytree(recorded, other)
    change(other, device={"name": "NVIDIA A100-SXM4-80GB", "memory_bytes": 1})
    monkeypatch.setattr(recordings, "DATA", recorded.parent)
    labels = [r.evidence.partition(",")[0] for r in recordings.load_all("05/serial")]
    assert labels == ["recorded (A100", "recorded (H100"]
    assert recordings.load("05/serial", device="H100").device.startswith("NVIDIA H100")  # type: ignore[union-attr]
    result = recordings.show("05/serial", simulated="H100", prefer="recorded")
    assert result.evidence.startswith("recorded (H100, ") and result.trace is not None
    assert result.trace.evidence == result.evidence
    both = recordings.side_by_side("05/serial")
    assert [r.kind for r in both][:2] == ["simulated", "recorded"]
    assert both[1].evidence.startswith("recorded (H100, ")


@pytest.mark.parametrize(
    ("device", "short"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA A100-SXM4-80GB", "A100"), ("Tesla T4", "T4"), ("NVIDIA H200", "H200"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"), ("NVIDIA L4", "L4"), ("NVIDIA L40S", "L40S"),
        ("NVIDIA RTX A6000 (Max-Q)", "RTX A6000 Max-Q"),
    ],
)  # fmt: skip
def test_short_names(device: str, short: str) -> None:
    assert manifest.short_name(device) == short


# ------------------------------------------------------------------------------------------ show


def test_without_a_gpu_and_a_recording_it_is_simulated_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    monkeypatch.setattr(recordings, "DATA", tmp_path)
    assert [r.kind for r in recordings.side_by_side("03/item_in_loop")] == ["simulated"]
    result = recordings.show("03/item_in_loop", simulated="A100")
    assert result.evidence == "simulated (A100)"
    assert result.trace is not None and result.trace.evidence == "simulated (A100)"
    assert recordings.load("03/no_such") is None
    with pytest.raises(ValueError, match="there are 00/"):
        recordings.show("03/no_such")
    with pytest.raises(ValueError, match="prefer is one of"):
        recordings.show("03/steady", prefer="guess")


@pytest.mark.parametrize("folder", sorted(manifest.DATA.iterdir()), ids=lambda folder: folder.name)
def test_what_is_shipped_is_whole_and_is_shown(folder: Path) -> None:
    names = manifest.read(folder)["experiments"]
    assert set(names) <= set(NAMES)
    for name in names:
        found = recordings.load(name, folder)
        assert found is not None and not found.stale, name
        assert found.trace or found.table or found.snapshot, name


# (17/…: smaller, in test_reference_repair.py)
@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith(("calibration/", "17/"))])
def test_every_experiment_runs_on_the_simulated_gpu_and_packs(name: str) -> None:
    given = running.run_simulated(registry.find(name), "H100")
    packed = running.pack_all(given)
    assert packed and set(packed) <= {"trace", "snapshot", "table"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", QUICK)
def test_every_experiment_runs_on_a_real_gpu(name: str) -> None:
    assert running.pack_all(running.run_live(registry.find(name)))


def test_lesson_02_writes_out_what_was_recorded() -> None:
    def functions(path: Path) -> dict[str, str]:
        nodes = (
            n for n in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(n, ast.FunctionDef)
        )
        return {node.name: "".join(map(ast.unparse, node.body)) for node in nodes}

    name = "operators_and_autograd"
    recorded = functions(ROOT / "helpers" / "lessons" / name / "recorded.py")
    read = functions(ROOT / "solutions" / f"02_{name}" / f"02_{name}.py")
    for what in ("norm", "entropy", "attention"):
        assert read[f"{what}_by_hand"] == recorded[f"_{what}"], what


# ------------------------------------------------------------------------------------------ the recorder


def test_a_second_run_keeps_what_is_there_and_again_does_not(
    dry: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(dry, folder)
    one = registry.select(["05/serial"])
    record.record(one, folder, simulated="H100")
    assert "kept: recorded" in capsys.readouterr().out
    damaged = folder / entries(folder)["05/serial"]["files"]["trace"]["path"]
    damaged.write_bytes(b"")
    record.record(one, folder, simulated="H100")
    assert "KiB" in capsys.readouterr().out and damaged.stat().st_size > 500
    assert set(entries(folder)) == set(QUICK)  # the others are still there
    with pytest.raises(recordings.Refused, match="another device"):
        record.record(one, folder, simulated="T4")


def fake(name: str, seconds: float = 1.0) -> Experiment:
    return Experiment(name, registry.find("05/serial").run, seconds)


def test_one_failure_loses_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"a/raises": "failed: RuntimeError: no luck", "a/works": ""}

    def pretend(one: Experiment, folder: Path, simulated: str | None, timeout: float) -> str:
        if not said[one.name]:
            keeping.write(folder / "table.json.gz", files.pack([{"x": 1}]))
        return said[one.name]

    monkeypatch.setattr(running, "run_apart", pretend)
    told = record.record([fake("a/raises"), fake("a/works")], tmp_path, simulated="H100")
    assert told == said
    kept = entries(tmp_path)
    assert kept["a/raises"]["error"] == said["a/raises"] and not kept["a/raises"]["files"]
    assert kept["a/works"]["files"]["table"]["bytes"] > 0


def test_what_does_not_fit_the_time_is_left_for_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(running, "run_apart", lambda *a: "")
    told = record.record([fake("a/one", 1e4), fake("a/two", 1.0)], tmp_path, simulated="H100", budget_s=50)
    assert "left out" in told["a/one"] and told["a/two"] == ""
    assert "run the command again" in capsys.readouterr().out


def test_an_experiment_that_hangs_is_ended_and_one_that_fails_says_why(tmp_path: Path) -> None:
    assert "took more than 0 s" in running.run_apart(
        registry.find("05/serial"), tmp_path, "H100", timeout=0.01
    )
    gone = Experiment("05/no_such", registry.find("05/serial").run, 1.0)
    assert "no experiment '05/no_such'" in running.run_apart(gone, tmp_path, "H100", timeout=60)
    assert list(tmp_path.iterdir()) == []


def test_writing_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeping.write(tmp_path / "x", b"old")

    def broken(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        keeping.write(tmp_path / "x", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["x"] and (tmp_path / "x").read_bytes() == b"old"


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert record.main(["--list", "--only", "03"]) == 0
    listed = capsys.readouterr().out
    assert "03/item_in_loop" in listed and "05/" not in listed
    assert record.main(["--only", "99", "--out", str(tmp_path)]) == 2
    assert "no experiment 99" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        record.main(["--simulate", "H100"])
    assert "needs --out" in capsys.readouterr().err
    assert record.main(["--simulate", "B900", "--out", str(tmp_path)]) == 2
    assert "no GPU named 'B900'" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert record.main(["--out", str(tmp_path)]) == 2
        assert "no CUDA device here" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_recording_needs_torch_numpy_and_matplotlib_alone() -> None:
    """On a bare GPU machine there is no Jupyter, pandas, nbgrader."""
    code = (
        "import sys\n"
        "from helpers.lessons import record\n"
        "from helpers.recordings import registry, running\n"
        "record.load_all()\n"
        "assert running.pack_all(running.run_simulated(registry.find('03/item_in_loop'), 'T4'))\n"
        "extra = ('pandas', 'IPython', 'ipywidgets', 'nbformat', 'jupytext', 'nbgrader', 'traitlets')\n"
        "print([name for name in extra if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip().endswith("[]"), done.stdout + done.stderr


# ------------------------------------------------------------------------------------------ what ships


def test_the_package_stays_small_and_names_no_machine() -> None:
    shipped = [p for p in (ROOT / "helpers").rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    assert sum(p.stat().st_size for p in shipped) < 5 * 2**20
    for path in manifest.DATA.rglob("*.json.gz"):
        files.check(json.dumps(files.unpack(path.read_bytes())))


def test_every_recording_that_ships_loads() -> None:
    for name in NAMES:
        for found in recordings.load_all(name):
            assert found.evidence.startswith("recorded (")
            assert any(getattr(found, kind) is not None for kind in ("trace", "snapshot", "table"))


def test_a_recording_begins_with_an_idle_gpu() -> None:
    """Steps that take the GPU longer than the host: nothing of the warm-up is still in the queue."""
    gpu = simulate("H100")
    with gpu:
        x = torch.empty(4096, 4096, device=gpu.device)
        t = trace.read(profiled(gpu, lambda i: x @ x, steps=3))
    assert len(t.work) == 3
    first = int(t.work.start_ns[0] - t.work.launch_ns[0])
    assert first < 50_000, f"the first kernel waited {first / 1e3:.0f} µs for what was launched before"


def test_the_page_of_recordings_beside_their_simulation_is_current() -> None:
    from helpers.lessons import beside

    page = beside.PAGE.read_text(encoding="utf-8").split(beside.MARK)[1]
    for card in beside.CARDS:
        for name in beside.names(card):
            assert f"| `{name}` | {card} |" in page, "run python -m helpers.lessons.beside --page"
    for name in ("05/serial", "08/growing", "13/int8_shapes", "17/bert"):  # the others take longer
        assert beside.row(name) in page, "run python -m helpers.lessons.beside --page"
    assert beside.launches() in page
