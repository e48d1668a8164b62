"""The trace reader and what it says: read anything, refuse what is broken, and account for every nanosecond."""

from __future__ import annotations

import gc
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers import simulate, trace
from helpers.pytorch.waiting import OPERATORS_WAIT_IN, WAITS_IN, call_waits
from helpers.trace import columns, names, spans, steady, verdict
from helpers.trace.unwaited import _Replay
from tests.tracing import COPY, GEMM, NCCL, RELU, Maker, noise

US = 1e-6


def small() -> dict[str, Any]:
    """Two kernels and a copy under two operators, and a synchronising call."""
    made = Maker()
    made.op("aten::mm", 100, 110)
    made.work(110, 150, 104)
    made.op("aten::copy_", 120, 130)
    made.work(150, 160, 122, name=COPY, stream=9, nbytes=4096)
    made.work(160, 170, 132, name=RELU)
    made.call("cudaDeviceSynchronize", 140, 172)
    return made.done()


# ---- reading ------------------------------------------------------------------------------------------


def same(a: trace.Trace, b: trace.Trace) -> bool:
    columns = ("kind", "name", "thread", "start_ns", "end_ns", "device", "stream", "correlation", "bytes")
    return a.names == b.names and all((getattr(a, c) == getattr(b, c)).all() for c in columns)


def test_the_same_trace_from_everywhere(tmp_path: Path) -> None:
    content = small()
    plain, packed, odd = tmp_path / "t.json", tmp_path / "t.json.gz", tmp_path / "packed.json"
    plain.write_text(json.dumps(content))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    odd.write_bytes(packed.read_bytes())  # gzip by its content, not by its name
    first = trace.read(content)
    for source in (plain, str(plain), packed, odd, content["traceEvents"]):
        assert same(first, trace.read(source))
    assert trace.read(first) is first
    assert trace.read(packed).source == "t.json.gz" and first.devices == ("Test GPU",)


def test_columns() -> None:
    t = trace.read(small())
    assert len(t) == 9 and t.span_s == pytest.approx(72 * US)
    assert t.start_ns[0] == 0 and (np.diff(t.start_ns) >= 0).all()
    assert [row["name"] for row in t.rows("operator")] == ["aten::mm", "aten::copy_"]
    (copy,) = t.rows("copy")
    assert copy["bytes"] == 4096 and copy["stream"] == 9 and copy["start_s"] == pytest.approx(50 * US)
    work = t.work
    assert work.launch_ns.tolist() == [4000, 22000, 32000] and work.start_ns.tolist() == [10000, 50000, 60000]
    assert [names.FAMILIES[f] for f in work.family] == ["compute", "copy", "compute"]
    assert t.bytes[t.of("call")].tolist() == [-1] * 4


def test_times_are_exact_to_the_nanosecond() -> None:
    """`ts` as Kineto writes it today, some 10¹² µs with three decimals; and whole µs of the epoch, as before."""
    made = Maker()
    made.work(4203669603454.206, 4203669603476.647, 4203669603438.301)
    t = trace.read(made.done())
    assert t.start_ns.tolist() == [0, 15905] and t.end_ns[1] - t.start_ns[1] == 22441
    made = Maker()
    made.work(1695835542514261, 1695835542514263, 1695835542514260)
    assert trace.read(made.done()).end_ns.tolist() == [1000, 3000]


def test_evidence_is_told_by_the_content() -> None:
    assert trace.read(small()).evidence == "live (GPU)"
    assert trace.read(small() | {"simulated": "H100"}).evidence == "simulated (H100)"
    assert trace.read(small(), "recorded (A100, 2026-01)").evidence == "recorded (A100, 2026-01)"
    made = Maker()
    made.op("aten::mm", 0, 5)
    assert trace.read(made.done()).evidence == "live (CPU)"
    made = Maker()
    made.work(1_661_203_462_000_000, 1_661_203_462_000_009)
    assert trace.read(made.done()).evidence == "recorded (Test GPU, 2022-08)"
    later = small() | {"baseTimeNanoseconds": 1_711_964_646_000_000_000}  # how Kineto writes it since 2023
    assert trace.read(later).evidence == "recorded (Test GPU, 2024-04)"


def test_a_live_profile_of_this_machine(tmp_path: Path) -> None:
    x = torch.ones(8, 8)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        with torch.profiler.record_function("forward"):
            (x @ x).relu()
    t = trace.read(prof)
    assert t.evidence == "live (CPU)" and not t.has_gpu and len(t.work) == 0
    found = [row["name"] for row in t.rows("operator")]
    assert found.count("aten::mm") == found.count("aten::relu") == 1
    assert [row["name"] for row in t.rows("annotation")] == ["forward"]
    assert trace.classify(t).bottleneck == "CPU only"
    (step,) = trace.steps(t)
    assert step.name == "whole trace" and step.launches == step.kernels == 0
    assert {"aten::mm", "aten::relu"} <= {row.name for row in trace.top(t, by="host")}
    for ask in (trace.idle, trace.queue_depth, trace.overlap, trace.top):
        with pytest.raises(ValueError, match="has no GPU work.*gpu.profile"):
            ask(t)


def test_a_profile_can_be_read_again_and_one_that_was_written_says_so(tmp_path: Path) -> None:
    x, cpu = torch.ones(8, 8), [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu) as prof:
        x @ x
    first = trace.read(prof)
    assert trace.read(prof) is first and trace.read(prof, "live (GPU)").evidence == "live (GPU)"
    with torch.profiler.profile(activities=cpu) as prof:
        x @ x
    prof.export_chrome_trace(str(tmp_path / "mine.json"))
    with pytest.raises(trace.TraceError, match=r"exported before.*trace.read\(path\)"):
        trace.read(prof)
    assert len(trace.read(tmp_path / "mine.json")) == len(first)


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
def test_each_cycle_of_a_schedule_is_its_own_trace() -> None:
    found: list[trace.Trace] = []
    plan = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(
        activities=cpu, schedule=plan, on_trace_ready=lambda p: found.append(trace.read(p))
    ) as prof:
        for _ in range(8):
            torch.ones(4) + 1
            prof.step()
    names = [[step.name for step in trace.steps(t)] for t in found]
    assert names == [["ProfilerStep#2", "ProfilerStep#3"], ["ProfilerStep#6", "ProfilerStep#7"]]


def test_a_simulated_gpu_and_its_profile_are_read() -> None:
    gpu = simulate("H100")
    with gpu:
        x = torch.ones(64, 64, device=gpu.device)
        with gpu.profile() as prof:
            (x @ x).relu()
    assert trace.read(prof).evidence == trace.read(gpu).evidence == "simulated (H100)"
    assert len(trace.read(prof).work) == 2 <= len(trace.read(gpu).work)


def test_unusual_but_valid_traces() -> None:
    made = Maker()
    made.work(10, 20)
    made.events[-1]["args"] = {"correlation": "odd", "bytes": None}  # no stream, no device, no number
    made.events[-1].update(pid="7", tid="stream 7")
    made.events += [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 1},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "ts": -1e15, "dur": 1},
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 30, "dur": -1},
    ]
    t = trace.read(made.done())
    assert len(t) == 3 and t.end_ns.tolist() == [1000, 13000, 23000]
    assert t.work.launch_row.tolist() == [-1] and t.work.launch_ns.tolist() == t.work.start_ns.tolist()
    assert trace.classify(t).bottleneck == "GPU-bound"


def test_a_kernel_name_with_raw_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(json.dumps(small()).replace("gemm", "ge\tmm\xff").encode("latin-1"))
    assert any("ge\tmm" in name for name in trace.read(path).names)


def test_halves_of_surrogate_pairs_are_replaced() -> None:
    """They can be in JSON, in a name of any kind, and can be neither printed nor drawn."""
    odd = small() | {"deviceProperties": [{"name": "GPU \udfff"}], "simulated": "H\ud800"}
    for event in odd["traceEvents"]:
        event |= {"name": event["name"] + " \ud800", "pid": f"{event['pid']}\ud800"}
    odd["traceEvents"].append({"ph": "X", "cat": "odd \ud800", "name": "a", "ts": 1, "dur": 1})
    found = trace.read(json.loads(json.dumps(odd)))
    said = [*found.names, *found.devices, *found.unread, found.evidence, repr(found.threads)]
    assert all("\ud800" not in text for text in said) and "".join(said).encode()
    assert "GPU ?" in found.devices and "odd ?" in found.unread and "aten::mm ?" in found.names
    assert all(str(pid).endswith("?") for pid, _ in found.threads)


# ---- what cannot be read ------------------------------------------------------------------------------

TEXT = json.dumps(small())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "t.json is empty: write it again with prof.export_chrome_trace"),
        (b"  \n", "t.json is empty"),
        (TEXT[:400].encode(), r"cut off at character \d+ .*after \d+ events.*export_chrome_trace"),
        (TEXT[:-1].encode(), "cut off"),
        (gzip.compress(TEXT.encode())[:-30], r"gzip data is cut off or damaged after \d+ bytes"),
        (b"\x1f\x8b rubbish", "gzip data is cut off or damaged"),
        (TEXT.replace('"ts": 1', '"ts" 1', 1).encode(), r"broken at line 1, column \d+ .*near"),
        (b"<html>not here</html>", r"not JSON: it begins with '<html>"),
        (b"\x80\x04\x95", "a pickle.*helpers.memory.read"),
        (b"{}", "no list 'traceEvents'; it has no keys"),
        (b'{"a": 1, "b": 2}', "no list 'traceEvents'; its keys are 'a', 'b'"),
        (b'{"segments": [], "device_traces": []}', "a memory snapshot.*helpers.memory"),
        (b"3", "not JSON|no list 'traceEvents'"),
        (b'{"traceEvents": []}', r"0 events, and none that is an operator.*prof.step\(\)"),
        (b'{"traceEvents": [{"ph": "M"}]}', "1 events, and none"),
        (b'{"traceEvents": [3]}', "event 0 of 'traceEvents' is int, not an object"),
        (
            b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": "x"}]}',
            "event 'a' has ts = 'x'",
        ),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a"}]}', "event 'a' has ts = None"),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": NaN}]}', "ts = nan"),
        (
            b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1%s}]}' % (b"0" * 400),
            "event 'a' has ts = a huge number, not a number of microseconds$",
        ),
        (
            b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1%s}]}' % (b"0" * 5000),
            "a number in it has thousands of digits$",
        ),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "dur": []}]}', "has dur"),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "pid": []}]}', "pid or tid"),
        (
            b'{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1}, {"ph": "X", "cat": "kernel", "ts": 1e15}]}',
            "days apart",
        ),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1, "dur": 1e308}]}', "days apart"),
        (b'{"traceEvents": [{"ph": "X", "cat": []}]}', "cat is not a text"),
        (b"[" * 100_000, "nested thousands deep"),
    ],
)
def test_what_is_no_trace_is_refused_with_the_reason(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(trace.TraceError, match=f"(?s){said}") as caught:
        trace.read(path)
    assert "t.json" in str(caught.value) and isinstance(caught.value, ValueError)
    assert gc.isenabled()


def test_odd_fields_beside_the_events_are_passed_over(tmp_path: Path) -> None:
    odd = small() | {"deviceProperties": 3}
    for event, args in zip(odd["traceEvents"], [[1], "x", 2.5, True], strict=False):
        event["args"] = args
    odd["traceEvents"].append({"ph": "X", "cat": "kernel", "name": "far", "pid": 2**70, "ts": 1, "dur": 1})
    path = tmp_path / "t.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(odd).encode())  # as an editor on Windows saves it
    found = trace.read(path)
    trace.classify(found)
    assert "far" in found.names and found.devices == ()


def test_where_the_hosts_reasons_win_together_their_sum_is_said() -> None:
    """Each of the host's is shorter than the collective, and the verdict is the host's."""
    seconds = {"waiting for communication": 0.39, "nothing launched": 0.31, "sync": 0.2, "short kernels": 0.1}
    none = np.empty(0, np.int64)
    gaps = trace.Idle(seconds, none, none, none, none, (0.0, 2.0), "live (GPU)")
    assert verdict._main_cause(gaps) == "nothing launched"
    t = trace.read(small())
    said = verdict._of_cause(t, gaps, "nothing launched", "", None)  # type: ignore[arg-type]
    assert said.startswith(
        "the host is the reason of 61% of its idle time; the largest part of that, 31% of its idle time"
    )
    assert verdict._others(gaps, "nothing launched", "") == [
        "the rest of its idle time: waiting for communication 39%"
    ]  # what is in the sum is not told twice


def test_every_cut_of_a_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    for raw in (TEXT.encode(), gzip.compress(TEXT.encode(), mtime=0)):
        for n in range(1, len(raw), 37):
            path.write_bytes(raw[:n])
            with pytest.raises(trace.TraceError, match="cut off|not JSON|broken"):
                trace.read(path)


def test_paths_and_objects_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no trace at .*missing.json: run the cell"):
        trace.read(tmp_path / "missing.json")
    with pytest.raises(trace.TraceError, match="is a folder; give one of its files"):
        trace.read(tmp_path)
    with pytest.raises(TypeError, match="not int"):
        trace.read(3)
    with pytest.raises(trace.TraceError, match="nothing to export yet"):
        trace.read(torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]))


def test_no_object_is_kept_for_an_event(tmp_path: Path) -> None:
    """100,000 events in about a second is a matter of columns: afterwards there are arrays, and nothing else."""
    made = Maker()
    for i in range(5000):
        made.op("aten::mm", 10 * i, 10 * i + 8)
        made.work(10 * i + 6, 10 * i + 9, 10 * i + 2)
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(json.dumps(made.done()).encode(), 1))
    del made
    trace.read(small())  # whatever is imported or cached at first use
    gc.collect()
    before = len(gc.get_objects())
    t = trace.read(path)
    gc.collect()
    assert len(t) == 15_000 and len(gc.get_objects()) - before < 100
    assert (
        sum(column.nbytes for column in (t.start_ns, t.end_ns, t.correlation, t.name, t.kind)) / len(t) < 40
    )


def test_importing_it_is_light() -> None:
    heavy = "('torch', 'matplotlib', 'pandas')"
    code = f"import sys; from helpers import trace; print([m for m in {heavy} if m in sys.modules])"
    here = Path(__file__).parents[1]
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=here)
    assert out.stdout.strip() == "[]"


# ---- spans, against sets of moments -------------------------------------------------------------------


def bits(found: spans.Spans, length: int = 400) -> np.ndarray:
    out = np.zeros(length, bool)
    for a, b in zip(*found, strict=True):
        out[a:b] = True
    return out


@pytest.mark.parametrize("seed", range(8))
def test_spans_are_sets_of_moments(seed: int) -> None:
    random = np.random.default_rng(seed)

    def some() -> tuple[spans.Spans, np.ndarray]:
        start = random.integers(0, 350, 12)
        end = start + random.integers(0, 40, 12)
        drawn = np.zeros(400, bool)
        for a, b in zip(start, end, strict=True):
            drawn[a:b] = True
        return spans.union(start, end), drawn

    (left, drawn_left), (right, drawn_right) = some(), some()
    assert (bits(left) == drawn_left).all() and spans.length(left) == drawn_left.sum()
    assert (left[0][1:] > left[1][:-1]).all()
    assert (bits(spans.intersection(left, right)) == (drawn_left & drawn_right)).all()
    assert (bits(spans.complement(left, 20, 300))[20:300] == ~drawn_left[20:300]).all()
    assert (spans.inside(left, np.arange(400)) == drawn_left).all()
    assert spans.length(spans.intersection(left, spans.NOTHING)) == 0
    assert not spans.inside(spans.NOTHING, np.arange(3)).any()


# ---- the queue ----------------------------------------------------------------------------------------


def test_queue_depth_by_hand() -> None:
    q = trace.queue_depth(trace.read(small()))  # launched at 4, 22, 32 µs; started at 10, 50, 60
    assert (q.times_s / US).round().tolist() == [4, 10, 22, 32, 50, 60]
    assert q.depth.tolist() == [1, 0, 1, 2, 1, 0]
    assert q.by_stream[9].tolist() == [0, 0, 1, 1, 0, 0] and sorted(q.by_stream) == [7, 9]
    assert q.mean == pytest.approx((6 + 10 + 2 * 18 + 10) / 56) and q.empty_share == pytest.approx(12 / 56)
    assert q.deepest == 2
    cut = trace.queue_depth(trace.read(small()), 20 * US, 40 * US)
    assert (cut.times_s / US).round().tolist() == [20, 22, 32, 40] and cut.depth.tolist() == [0, 1, 2, 2]
    assert cut.mean == pytest.approx((10 + 2 * 8) / 20)
    with pytest.raises(ValueError, match="is empty"):
        trace.queue_depth(trace.read(small()), 3, 2)


def test_a_graph_puts_all_its_kernels_into_the_queue_at_once() -> None:
    made = Maker()
    made.call("cudaGraphLaunch", 0, 10)
    for i in range(5):
        made.event(
            "kernel", GEMM, 20 + 10 * i, 30 + 10 * i, 0, 7, correlation=made.number, stream=7, device=0
        )
    t = trace.read(made.done())
    assert trace.queue_depth(t).depth.tolist() == [5, 4, 3, 2, 1, 0]
    (step,) = trace.steps(t)
    assert step.launches == 1 and step.kernels == 5


@pytest.mark.parametrize("seed", range(4))
def test_depth_is_never_negative_and_ends_empty(seed: int) -> None:
    q = trace.queue_depth(trace.read(noise(seed)))
    assert q.depth.min() == 0 and q.depth[-1] == 0 and (np.diff(q.times_s) > 0).all()
    assert (sum(q.by_stream.values()) == q.depth).all()


# ---- idle time ----------------------------------------------------------------------------------------


def causes(made: Maker) -> dict[str, float]:
    """Cause → idle µs."""
    found = trace.idle(trace.read(made.done()))
    return {cause: round(seconds / US, 3) for cause, seconds in found.seconds.items()}


def test_nothing_launched() -> None:
    made = Maker()
    made.work(10, 20, 5)
    made.work(520, 530, 515)  # the host did something else for half a millisecond
    assert causes(made) == {"nothing launched": 500}


def test_a_slow_launch_call_is_the_hosts_time() -> None:
    made = Maker()
    made.work(10, 20, 5)
    made.work(520, 530, 15, takes=500)  # the driver loads the kernel
    assert causes(made) == {"nothing launched": 500}


def test_short_kernels() -> None:
    made = Maker()
    for i in range(10):
        made.work(10 * i + 4, 10 * i + 6, 10 * i)  # 2 µs of work, 10 µs from launch to launch
    assert causes(made) == {"short kernels": 9 * 8}
    made = Maker()
    for i in range(10):
        made.work(100 + 4 * i, 102 + 4 * i, i)  # all launched long before: the turnaround on the device
    assert causes(made) == {"short kernels": 9 * 2}


def test_a_sync_drains_the_queue() -> None:
    made = Maker()
    made.work(10, 50, 5)
    made.call("cudaStreamSynchronize", 8, 55)
    made.work(75, 100, 70)
    assert causes(made) == {"sync": 25}


def test_only_the_first_moments_after_a_sync_are_its_doing() -> None:
    made = Maker()
    made.work(10, 50, 5)
    made.call("cudaStreamSynchronize", 8, 60)
    made.work(1060, 1100, 1050)
    assert causes(made) == {"sync": 10 + 100, "nothing launched": 900}


def test_a_sync_of_another_thread_is_not_the_reason() -> None:
    made = Maker()
    made.work(10, 50, 5)
    made.call("cudaStreamSynchronize", 8, 300, tid=2)
    made.work(310, 350, 305)
    assert causes(made) == {"nothing launched": 260}


def test_waiting_for_a_copy() -> None:
    made = Maker()
    made.work(0, 10, -5)
    made.work(12, 112, 1, name=COPY, stream=9)
    made.work(115, 120, 2)  # launched before the copy ends; it waits for its event
    assert causes(made) == {"waiting for a copy": 105}  # with the 5 µs in which the GPU turns to it


def test_a_copy_that_runs_while_nothing_is_launched_is_not_waited_for() -> None:
    made = Maker()
    made.work(0, 10, -5)
    made.work(12, 112, 11, name=COPY, stream=9)  # a prefetch: nobody needs it yet
    made.work(515, 520, 512)
    assert causes(made)["nothing launched"] >= 400 and "waiting for a copy" not in causes(made)


def test_a_pageable_copy_holds_the_host() -> None:
    made = Maker()
    made.work(0, 10, -5)
    made.work(12, 112, 5, name="Memcpy HtoD (Pageable -> Device)", takes=110)
    made.work(125, 140, 122)
    assert causes(made) == {"waiting for a copy": 100, "sync": 15}


def test_waiting_for_communication() -> None:
    made = Maker()
    made.work(0, 10, -5)
    made.work(10, 210, -4, name=NCCL, stream=15)
    made.work(210, 220, -3)
    assert causes(made) == {"waiting for communication": 200}


def test_a_gap_of_one_stream_in_which_another_computes_is_none() -> None:
    made = Maker()
    made.work(0, 10, -5)
    made.work(10, 210, -4, stream=13)
    made.work(210, 220, -3)
    assert causes(made) == {}


def test_no_cause_is_made_up() -> None:
    made = Maker()
    made.work(0, 10, -5)
    made.work(500, 520, 1)  # launched at once, nothing in its way, half a millisecond later
    assert causes(made) == {"no cause seen": 490}


@pytest.mark.parametrize("seed", range(6))
def test_every_idle_nanosecond_has_one_cause(seed: int) -> None:
    t = trace.read(noise(seed))
    work, found = t.work, trace.idle(t)
    computing = np.zeros(int(work.end_ns.max()) // 1000 + 1, bool)
    for a, b in zip(work.start_ns[work.of("compute", "memory")], work.end_ns[work.of("compute", "memory")], strict=True):  # fmt: skip
        computing[a // 1000 : b // 1000] = True
    first, last = int(work.start_ns[0]) // 1000, int(work.end_ns.max()) // 1000
    assert round(found.total / US) == (~computing[first:last]).sum()
    drawn = np.zeros(len(computing), int)
    for a, b in zip(found.start_ns // 1000, found.end_ns // 1000, strict=True):
        drawn[a:b] += 1
    assert set(found.cause) <= set(range(len(trace.CAUSES)))
    assert (drawn[first:last] == ~computing[first:last]).all()
    assert found.total + (1 - found.total / found.span) * found.span == pytest.approx(found.span)
    middle = found.window_s[0] + found.span / 2
    parts = [trace.idle(t, end_s=middle).total, trace.idle(t, start_s=middle).total]
    assert sum(parts) == pytest.approx(found.total)
    with pytest.raises(ValueError, match="is empty; the GPU works from"):
        trace.idle(t, 2.0, 1.0)


# ---- overlap, steps, top ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_overlap_is_what_a_ruler_says(seed: int) -> None:
    t = trace.read(noise(seed, streams=(7, 13, 20)))
    work, found = t.work, trace.overlap(t)
    on = {family: np.zeros(work.end_ns.max() // 1000, bool) for family in names.FAMILIES}
    for a, b, f in zip(work.start_ns // 1000, work.end_ns // 1000, work.family, strict=True):
        on[names.FAMILIES[f]][a:b] = True
    away = ~(on["compute"] | on["memory"])
    expected = {
        "compute": on["compute"], "memory": on["memory"], "copy": on["copy"], "communication": on["communication"],
        "busy": np.any(list(on.values()), axis=0), "copy_and_compute": on["copy"] & on["compute"],
        "communication_and_compute": on["communication"] & on["compute"],
        "copy_and_communication": on["copy"] & on["communication"],
        "exposed_copy": on["copy"] & away, "exposed_communication": on["communication"] & away,
    }  # fmt: skip
    assert {key: round(getattr(found, key) / US) for key in expected} == {
        k: v.sum() for k, v in expected.items()
    }


def test_steps() -> None:
    made = Maker()
    for i in range(3):
        base = 1000 * i
        made.span(f"ProfilerStep#{i + 4}", base, base + 900)
        made.work(base + 20, base + 120, base + 10)
        made.work(base + 130, base + 230, base + 12, name=NCCL)
        made.work(base + 240, base + 250, base + 14, name=COPY)
        made.call("cudaStreamSynchronize", base + 16, base + 256)
    steps = trace.steps(trace.read(made.done()))
    assert [s.name for s in steps] == ["ProfilerStep#4", "ProfilerStep#5", "ProfilerStep#6"]
    assert [(s.launches, s.copies, s.syncs, s.kernels) for s in steps] == [(2, 1, 1, 2)] * 3
    assert [round(s.seconds_s / US) for s in steps] == [1000, 1000, 900]
    assert [round(s.compute_s / US) for s in steps] == [100] * 3
    assert [round(s.idle_s / US) for s in steps] == [900, 900, 800]
    assert [round(s.wait_s / US) for s in steps] == [240] * 3
    assert "ProfilerStep#5" in repr(steps) and "[live (GPU)]" in repr(steps)


def test_top_by_device_operator_host_and_call() -> None:
    made = Maker()
    made.op("aten::linear", 0, 30)
    made.op("aten::addmm", 5, 25)
    made.work(40, 140, 10)
    made.op("aten::relu", 40, 50)
    made.work(140, 150, 42, name=RELU)
    t = trace.read(made.done())
    assert [(r.name, r.calls, round(r.seconds_s / US)) for r in trace.top(t)] == [
        (GEMM, 1, 100),
        (RELU, 1, 10),
    ]
    own = {r.name: round(r.seconds_s / US) for r in trace.top(t, by="host")}
    assert own == {"aten::addmm": 20, "aten::linear": 10, "aten::relu": 10}
    assert [(r.name, r.calls) for r in trace.top(t, 1, by="call")] == [("cudaLaunchKernel", 2)]
    assert sum(r.share for r in trace.top(t)) == pytest.approx(1)
    assert len(trace.top(t, 0)) == 0 and repr(trace.top(t, 0))
    with pytest.raises(ValueError, match="by='gpu': one of device, host"):
        trace.top(t, by="gpu")


def test_own_time_agrees_with_torch_profiler() -> None:
    x = torch.ones(64, 64)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        torch.nn.functional.linear(x, x).softmax(0)
    own = {row.name: row.seconds_s for row in trace.top(trace.read(prof), 99, by="host")}
    theirs = {e.key: e.self_cpu_time_total * US for e in prof.key_averages() if e.key.startswith("aten::")}
    assert set(theirs) <= set(own)
    assert all(own[key] == pytest.approx(theirs[key], abs=2 * US) for key in theirs)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1> >(int)", "elementwise (Fill)"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>, at::native::AdamFunctor<float, 4> >(int)", "foreach (Adam)"),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_nn>(Params)", "cutlass_80_tensorop_s1688gemm_64x64_nn"),
        ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_tf32>(cutlass_tensorop_s1688fprop_tf32::Params)", "cutlass_tensorop_s1688fprop_tf32"),
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int>, X>>(P)", "GemmUniversal"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, 7, cublasGemvParamsEx<float>>(cublasGemvParamsEx<float>)", "gemvx::kernel"),
        ("void gemv2T_kernel_val<int, int, float, 128, cublasGemvParams<float const>>(int)", "gemv2T_kernel_val"),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, 2>(int)", "CatArrayBatchedCopy"),
        ("ns::Filter<int>::run(int, float)", "run"),
        ("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(float)#1}>(int)", "elementwise (direct_copy)"),
        ("(odd)", "(odd)"), ("<", "<"), ("a<b", "a"), ("f() [clone .kd]", "f"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("Memset (Device)", "Memset (Device)"),
        ("x" * 50, "x" * 39 + "…"),
    ],
)  # fmt: skip
def test_short_names(name: str, said: str) -> None:
    assert names.short(name) == said


def test_names_that_are_cut_stay_apart() -> None:
    tiles = [f"sm80_xmma_fprop_implicit_gemm_tf32f32_nhwc_tilesize{n}x{n}x16_stage4_cudnn" for n in (64, 128)]
    found = names.distinct(
        [f"void cutlass::Kernel<{tiles[0]}>(P)", "relu", *tiles, tiles[0] + "_more", "relu", GEMM * 30]
    )
    assert found[0] == found[2] and found[1] == found[5] == "relu" and found[6] == (GEMM * 30)[:39] + "…"
    assert len(set(found)) == 5 and max(map(len, found)) == len(tiles[0] + "_more")
    made = Maker()
    for k, tile in enumerate(tiles):
        made.work(100 * k, 100 * k + 50, name=tile)
    assert [row.calls for row in trace.top(trace.read(made.done()))] == [1, 1]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("cudaStreamSynchronize", "waits"), ("cudaDeviceSynchronize", "waits"), ("cudaEventSynchronize", "waits"),
        ("cudaMemcpy", "waits"), ("hipDeviceSynchronize", "waits"), ("cudaMemcpyAsync", "copies"),
        ("cudaLaunchKernel", "launches"), ("cudaLaunchKernelExC", "launches"), ("cuLaunchKernel", "launches"),
        ("cudaGraphLaunch", "launches"), ("hipExtModuleLaunchKernel", "launches"), ("cudaEventQuery", ""),
        ("cudaStreamWaitEvent", ""), ("cudaMalloc", ""), ("cudaEventRecord", ""),
    ],
)  # fmt: skip
def test_what_calls_do(name: str, what: str) -> None:
    found = {"waits": call_waits, "launches": names.launches}
    assert [key for key, test in found.items() if test(name)] == [what] * (what in found)
    assert names.copies(name) == name.startswith("cudaMemcpy")


def test_what_the_simulator_says_it_waits_in_is_read_as_waiting() -> None:
    assert all(map(call_waits, (*WAITS_IN.values(), OPERATORS_WAIT_IN)))


# ---- the verdict --------------------------------------------------------------------------------------


def looped(fill: Any, n: int = 8) -> Maker:
    made = Maker()
    for i in range(n):
        fill(made, 1000 * i)
    return made


def data(made: Maker, at: int) -> None:
    made.op("aten::stack", at, at + 700)
    made.work(at + 760, at + 990, at + 750)


def dense(made: Maker, at: int) -> None:
    made.work(at, at + 990, at - 500)


def sync(made: Maker, at: int) -> None:
    for k in range(0, 1000, 50):
        made.work(at + k + 10, at + k + 25, at + k + 5)
        made.op("aten::item", at + k + 7, at + k + 30)
        made.call("cudaStreamSynchronize", at + k + 8, at + k + 28)


def copied(made: Maker, at: int) -> None:
    made.work(at + 5, at + 600, at, name=COPY)
    made.work(at + 600, at + 990, at + 2)


def talked(made: Maker, at: int) -> None:
    made.work(at + 5, at + 600, at, name=NCCL, stream=15)
    made.work(at + 600, at + 990, at + 2)


def tiny(made: Maker, at: int) -> None:
    for k in range(0, 1000, 10):
        made.work(at + k + 5, at + k + 7, at + k)


def strange(made: Maker, at: int) -> None:
    made.work(at, at + 100, at - 500)


SITUATIONS = [
    (data, "CPU-bound", "nothing had been launched"),
    (dense, "GPU-bound", "gemm takes 100% of the GPU's working time"),
    (sync, "sync-bound", "160 × in aten::item"),
    (copied, "copy-bound", "a copy between host and GPU ran"),
    (talked, "communication-bound", "a collective ran"),
    (tiny, "launch-bound", "sooner than the host can launch the next"),
    (strange, "unknown", "does not say why"),
]


@pytest.mark.parametrize(("fill", "word", "said"), SITUATIONS, ids=[word for _, word, _ in SITUATIONS])
def test_the_classic_situations_are_named(fill: Any, word: str, said: str) -> None:
    found = trace.classify(trace.read(looped(fill).done(simulated="H100")))
    assert found.bottleneck == word
    assert said in "\n".join(found.evidence) and found.advice
    assert (found.density == "dense") == (word == "GPU-bound")
    assert found.figures["compute"] + sum(found.figures.get(c, 0) for c in trace.CAUSES) == pytest.approx(1)
    assert "simulated (H100)" in repr(found) and "≈" not in repr(found)
    assert word == "GPU-bound" or any("the largest gap" in line for line in found.evidence)


def test_the_largest_gap_of_copies_alone_has_nothing_before_or_after_it() -> None:
    made = Maker()
    for i in range(6):
        start = 1000 * i
        made.op("aten::copy_", start, start + 10)
        made.work(start + 20, start + 40, start + 2, name=COPY, nbytes=4096)
    (gap,) = [line for line in trace.classify(trace.read(made.done())).evidence if "the largest gap" in line]
    assert re.fullmatch(r"the largest gap: [^,]+, [^,]+ after the recording began", gap), gap


def test_every_word_has_advice_and_every_cause_a_word() -> None:
    assert set(verdict.BOTTLENECK) == set(trace.CAUSES)
    assert set(verdict.BOTTLENECK.values()) | {"GPU-bound", "CPU only"} == set(verdict._ADVICE)


def test_density_decides() -> None:
    made = looped(dense, 4)
    assert trace.classify(trace.read(made.done())).bottleneck == "GPU-bound"
    for i in range(4, 8):
        data(made, 1000 * i)
    assert trace.classify(trace.read(made.done())).density == "dense with gaps"
    found = trace.classify(trace.read(looped(data, 4).done()))
    assert (found.bottleneck, found.density) == ("CPU-bound", "sparse")


def test_the_hosts_causes_count_together() -> None:
    """22 % nothing launched and 18 % short kernels are 40 % of one host that is late, and outweigh 30 % copies."""
    made = Maker()
    made.work(0, 300, -10)
    made.work(520, 530, 515)
    for i in range(18):
        made.work(540 + 20 * i, 550 + 20 * i, 530 + 20 * i)
    made.work(905, 1205, 891, name=COPY)
    made.work(1205, 1225, 892)
    t = trace.read(made.done())
    gaps = trace.idle(t).seconds
    assert max(gaps, key=lambda cause: gaps[cause]) == "waiting for a copy"
    assert trace.classify(t).bottleneck == "CPU-bound"


def profiled(step: Any, steps: int = 4) -> trace.Trace:
    gpu = simulate("H100")
    with gpu:
        run = step(gpu)
        for _ in range(2):
            run()
        gpu.synchronize()
        with gpu.profile() as prof:
            for _ in range(steps):
                run()
                prof.step()
    return trace.read(prof)


def items(gpu: Any) -> Any:
    x = torch.ones(256, 256, device=gpu.device)
    return lambda: [(x @ x).sum().item() for _ in range(4)]


def loads(gpu: Any) -> Any:
    x = torch.ones(1024, 1024, device=gpu.device)
    return lambda: (gpu.host_work(2e-3), x @ x)


def tiny_kernels(gpu: Any) -> Any:
    x = torch.ones(32, 32, device=gpu.device)
    return lambda: [x + 1 for _ in range(30)]


def large_kernels(gpu: Any) -> Any:
    x = torch.ones(4096, 4096, device=gpu.device)
    return lambda: [x @ x for _ in range(5)]


def pageable(gpu: Any) -> Any:
    x, host = torch.ones(1024, 1024, device=gpu.device), torch.ones(4096, 1024)
    return lambda: host.to(gpu.device) @ x


@pytest.mark.parametrize(
    ("step", "word"),
    [
        (items, "sync-bound"), (loads, "CPU-bound"), (tiny_kernels, "launch-bound"),
        (large_kernels, "GPU-bound"), (pageable, "copy-bound"),
    ],
)  # fmt: skip
def test_the_simulated_gpu_gives_the_classic_pictures(step: Any, word: str) -> None:
    t = profiled(step)
    found = trace.classify(t)
    assert found.bottleneck == word, found
    if step is items:
        assert [s.syncs for s in trace.steps(t)][:3] == [4, 4, 4]
        assert any("× in aten::" in line for line in found.evidence)


def cut_at_random(events: list[dict[str, Any]], draw: np.random.Generator) -> list[dict[str, Any]]:
    """What a profiler may have left of a trace: some kinds, some of the time, other names for kinds, no durations."""
    events = [dict(e, args=dict(e.get("args") or {})) for e in events]
    kept = set(draw.choice(["cpu_op", "user_annotation", "cuda_runtime", "kernel", "gpu_memcpy", "gpu_memset"], int(draw.integers(1, 7)), False))  # fmt: skip
    begin, end = sorted(draw.choice([e.get("ts", 0) for e in events], 2))
    some = draw.choice([0.03, 0.3, 1.0])
    events = [e for e in events if e.get("cat") in kept and begin <= e["ts"] <= end and draw.random() < some]
    chance = draw.random()
    for e in events:
        if chance < 0.2:
            e["name"] = str(
                draw.choice([NCCL, COPY, "Memcpy DtoH (Device -> Pageable)", "cudaDeviceSynchronize", GEMM])
            )
        if 0.2 < chance < 0.3:
            e["dur"] = 0
        if 0.3 < chance < 0.4:
            e["args"].pop("correlation", None)
        if 0.4 < chance < 0.5:
            e["args"]["device"] = int(draw.integers(0, 3))
    return events


@pytest.fixture(scope="module")
def whole() -> list[list[dict[str, Any]]]:
    """A training loop on a simulated GPU with every kind of event, and random work."""
    gpu = simulate("H100")
    with gpu:
        model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).to(
            gpu.device
        )
        side = gpu.Stream()
        with gpu.profile() as prof:
            for _ in range(4):
                with gpu.stream(side):
                    x = torch.ones(64, 256).pin_memory().to(gpu.device, non_blocking=True)
                gpu.current_stream().wait_stream(side)
                y = model(x + torch.ones(64, 256).to(gpu.device))
                y[y > 0].sum().backward()
                y.sum().item()
                prof.step()
    found = [prof.trace(), *(noise(seed) for seed in range(3))]
    return [[e for e in one["traceEvents"] if e.get("ph") == "X"] for one in found]


@pytest.mark.parametrize("seed", range(300))
def test_whatever_was_read_is_classified(seed: int, whole: list[list[dict[str, Any]]]) -> None:
    draw = np.random.default_rng(seed)
    left = cut_at_random(whole[seed % len(whole)], draw)
    if not left:
        return
    t = trace.read({"traceEvents": left})
    found = trace.classify(t)
    assert found.bottleneck in verdict._ADVICE and found.advice and found.evidence and repr(found)
    assert np.isfinite(list(found.figures.values())).all()
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in trace.shares(t))
    assert [row.seconds_s for row in trace.steps(t)] and repr(trace.top(t, by="call"))
    if t.has_gpu:
        assert 0 <= trace.idle(t).busy <= 1 and repr(trace.queue_depth(t)) and repr(trace.overlap(t))
        assert trace.unwaited(t).gain >= 1


@pytest.mark.parametrize(
    ("name", "word"), [(COPY, "copy-bound"), (NCCL, "communication-bound"), ("Memset (Device)", "GPU-bound")]
)
def test_a_gpu_that_only_copies_or_only_communicates(name: str, word: str) -> None:
    made = Maker()
    for k in range(0, 1000, 100):
        made.work(k, k + 98, k - 90, name=name)
    assert trace.classify(trace.read(made.done())).bottleneck == word


def test_too_little_to_say() -> None:
    made = Maker()
    made.op("aten::mm", 0, 500)
    made.work(410, 420, 400)
    found = trace.classify(trace.read(made.done()))
    assert found.bottleneck == "unknown" and "≈ 10.0 µs, without a pause, of ≈ 500 µs" in found.evidence[0]
    assert "prof.step()" in found.advice


def test_work_that_the_profiler_lost_is_not_said_to_be_none() -> None:
    made = Maker()
    for k in range(5):
        made.call("cudaLaunchKernel", 10 * k, 10 * k + 5)
    found = trace.classify(trace.read(made.done()))
    assert found.bottleneck == "unknown" and "5 calls launched some" in found.evidence[0]
    assert "ProfilerActivity.CUDA" in found.advice
    made = Maker()
    made.op("aten::mm", 0, 10)
    made.event("mtia_ccp_events", "job", 3, 9)
    t = trace.read(made.done())
    found = trace.classify(t)
    assert t.unread == {"mtia_ccp_events": 1} and found.bottleneck == "unknown"
    assert "1 × mtia_ccp_events" in found.evidence[0] and "of another device" in found.advice
    with pytest.raises(trace.TraceError, match=r"\(there are mtia_ccp_events\): the profiler saw nothing"):
        trace.read([e for e in made.events if e["cat"] != "cpu_op"])


def test_the_categories_of_pytorch_1_8() -> None:
    old = {
        "cpu_op": "Operator",
        "cuda_runtime": "Runtime",
        "kernel": "Kernel",
        "gpu_memcpy": "Memcpy",
        "user_annotation": "Operator",
    }
    made = looped(data, 4)
    for k in range(4):
        made.span(f"ProfilerStep#{k}", 1000 * k, 1000 * k + 1000)
    then = [dict(e, cat=old[e["cat"]]) for e in made.events]
    first, second = (trace.classify(trace.read(events)) for events in (made.events, then))
    assert repr(first) == repr(second) and "2 steps" in first.evidence[0]


def test_no_advice_where_as_much_is_idle_without_a_cause() -> None:
    made = Maker()
    for k in range(0, 8000, 1000):
        made.work(k + 500, k + 600, k + 490)  # 400 µs in which nothing is launched
        made.work(k + 1000, k + 1100, k + 601)  # and as many in which something is, and does not begin
    found = trace.classify(trace.read(made.done()))
    assert found.bottleneck == "unknown" and "nothing launched" in found.evidence[2]


def nonzero(gpu: Any) -> Any:
    x = torch.ones(4096, 4096, device=gpu.device)
    return lambda: [(x.relu().nonzero(), gpu.host_work(3e-4)) for _ in range(4)]


def test_a_loop_that_waits_in_nonzero_is_bound_by_it() -> None:
    found = trace.classify(profiled(nonzero))
    assert found.bottleneck == "sync-bound" and "× in aten::nonzero" in "\n".join(found.evidence)
    made = (
        Maker()
    )  # a driver that starts work late: the host waits nearly always, in the copy of nonzero's answer
    for k in range(0, 8000, 1000):
        for i in range(3):
            made.work(k + 800 + 20 * i, k + 815 + 20 * i, k + 5 * i)
        made.op("aten::nonzero", k + 14, k + 900)
        made.work(k + 860, k + 862, k + 16, name="Memcpy DtoH (Device -> Pageable)", takes=860)
    found = trace.classify(trace.read(made.done()))
    assert found.bottleneck == "sync-bound" and "8 × in aten::nonzero" in "\n".join(found.evidence)


def test_a_full_queue_is_not_the_syncs() -> None:
    """950 launches wait, and what is next does not begin: nobody knows why, and it is not that too little was launched."""
    made = Maker()
    for k in range(2000):
        made.work(
            100 * k + 50_000, 100 * k + 50_010, 50 * k if k < 950 else 100 * (k - 950) + 49_990, takes=0.5
        )
        made.call("cudaStreamSynchronize", 100 * k, 100 * k + 1)
    t = trace.read(made.done())
    assert trace.queue_depth(t).deepest > 900 and trace.classify(t).bottleneck == "unknown"


def test_advice_says_what_the_host_is_in() -> None:
    made = Maker()
    for k in range(0, 8000, 1000):
        made.op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", k, k + 700)
        made.work(k + 760, k + 990, k + 750)
    found = trace.classify(trace.read(made.done()))
    assert found.bottleneck == "CPU-bound" and "more workers" in found.advice
    assert any(
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__" in line for line in found.evidence
    )
    made = Maker()
    for k in range(0, 8000, 1000):
        made.work(k + 800, k + 810, k, takes=790)
    found = trace.classify(trace.read(made.done()))
    assert found.bottleneck == "CPU-bound" and "after a few warm ones" in found.advice


def test_of_two_threads_the_one_that_works_is_named_and_not_the_one_that_waits() -> None:
    """As in backward: the main thread is in an annotation, another goes from operator to operator, each of another name."""
    made = Maker()
    made.work(1, 9)  # so that both threads launch something
    made.span("## backward ##", 10, 8000)
    for k in range(100, 8000, 100):
        made.op(f"aten::op{k}", k - 95, k, tid=2)
        made.work(k + 2, k + 8, k - 4, tid=2)
    found = trace.classify(trace.read(made.done()))
    (during,) = [line for line in found.evidence if "meanwhile" in line]
    assert re.match(
        r"meanwhile the launching threads are in operators, none of them for long, ≈.\d\d%", during
    )
    assert "backward" not in during and "torch.compile" in found.advice


def test_a_few_waits_that_take_nearly_all_the_time_are_named_with_their_call_and_annotation() -> None:
    made = Maker()
    for k in range(10):
        at = 10_000 * k
        made.work(at + 10, at + 15, at + 1)
        made.op("aten::to", at + 20, at + 8000)
        if k == 4:
            made.span("## input_dist ##", at + 19, at + 8001)
        made.work(
            at + 22, at + 24, at + 21, name="Memcpy DtoH (Device -> Pageable)", takes=7900 if k == 4 else 5
        )
    made.work(100_100, 100_200, 100_050)
    t = trace.read(made.done())
    pieces = columns.nest(t, kinds=("operator", "annotation", "call"))
    assert verdict._askers(t, t.asking, pieces) == (
        " (10 × in aten::to, of which 1 take 99%: cudaMemcpyAsync in ## input_dist ##)"
    )


# ---- the steady part ----------------------------------------------------------------------------------


def products(gpu: Any, width: int, *, read: bool = False, python_s: float = 0.0) -> Any:
    x = torch.ones(width, width, device=gpu.device)

    def step() -> None:
        for _ in range(20):
            y = x @ x
        if read:
            y.sum().item()
        gpu.host_work(python_s)

    return step


@pytest.mark.parametrize("steps", [4, 80])
def test_who_waits_for_whom(steps: int) -> None:
    """A host that is ahead waits, with four steps in which the queue is never full, and with eighty in which it is."""
    large = profiled(lambda gpu: products(gpu, 4096), steps)
    assert trace.shares(large).computes > 0.99 and trace.shares(large).waits > 0.9
    full = sum(step.wait_s > 0 for step in list(trace.steps(large))[:-2])
    assert bool(full) == (steps == 80) and trace.classify(large).bottleneck == "GPU-bound"
    small = trace.shares(profiled(lambda gpu: products(gpu, 128), steps))
    assert small.computes < 0.7 and small.waits < 0.1
    turns = trace.shares(profiled(lambda gpu: products(gpu, 2048, read=True, python_s=8e-3), steps))
    assert 0.3 < turns.computes < 0.7 and 0.3 < turns.waits < 0.7


def test_the_steady_part_is_what_lies_between_the_first_step_and_the_last() -> None:
    made = Maker()
    for k in range(5):  # five steps of 1 ms and an empty one; the first and the last do nothing but wait
        made.span(f"ProfilerStep#{k}", 1000 * k, 1000 * k + 1000)
        made.work(1000 * k + 20, 1000 * k + (520 if 0 < k < 4 else 30), 1000 * k + 10)
        made.call("cudaStreamSynchronize", 1000 * k + 15, 1000 * k + (270 if 0 < k < 4 else 990))
    made.span("ProfilerStep#5", 5000, 5100)
    part, found = steady.steady(trace.read(made.done())), trace.shares(trace.read(made.done()))
    assert part.steps == 3 and part.host == (1_000_000, 4_000_000) and part.device == (1_020_000, 4_020_000)
    assert found.computes == pytest.approx(0.5) and found.waits == pytest.approx(0.255)
    made = Maker()
    made.op("aten::add", 0, 1)
    assert trace.shares(trace.read(made.done())) == (0, 0)


def test_a_launch_that_takes_long_is_the_drivers_unless_the_queue_is_full() -> None:
    made = Maker()
    made.work(1000, 1100, 10, takes=900)
    assert not trace.read(made.done()).waiting.any()


# ---- without the host's waits --------------------------------------------------------------------------


def a_loop(
    read: bool, prepare_s: float = 0.0, load: bool = False, width: int = 2048, batch: int = 1024
) -> tuple[trace.Trace, float]:
    """Forward passes with or without .item(), Python after each, and a pageable copy. (trace, seconds for one)"""
    gpu = simulate("H100")
    with gpu:
        w, host = torch.empty(width, width, device=gpu.device), torch.empty(batch, width)
        x = host.to(gpu.device)

        def step() -> None:
            y = host.to(gpu.device) if load else x
            for _ in range(20):
                y = y @ w
            if read:
                y.sum().item()
            gpu.host_work(prepare_s)

        for _ in range(2):
            step()
        gpu.synchronize()
        began = gpu.clock()
        with gpu.profile() as prof:
            for _ in range(4):
                step()
                prof.step()
        gpu.synchronize()
    return trace.read(prof), (gpu.clock() - began) / 4


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"prepare_s": 1.5e-3}, "sync-bound"),
        ({"prepare_s": 3e-3}, "sync-bound"),
        ({}, "GPU-bound"),
        ({"prepare_s": 1.5e-3, "width": 128, "batch": 32}, "CPU-bound"),
        ({"prepare_s": 1.5e-3, "load": True}, "sync-bound"),
    ],
)
def test_what_would_be_without_the_waits_is_what_is_without_them(options: dict[str, Any], word: str) -> None:
    """The same loop, run without .item(), takes as long as the trace of the one with it foretells."""
    t, with_read = a_loop(read=True, **options)
    _, without = a_loop(read=False, **options)
    assert trace.unwaited(t).gain == pytest.approx(with_read / without, rel=0.05)
    found = trace.classify(t)
    assert found.bottleneck == word, found
    told = [line for line in found.evidence if "without the waits" in line]
    assert bool(told) == (word == "sync-bound")
    if told:
        assert "3 × in aten::_local_scalar_dense" in told[0] and f"{trace.unwaited(t).gain:.2f}×" in told[0]
        assert "ask less often" in found.advice and found.figures["without waits"] > 1.1


def test_the_same_loop_without_reads_is_never_the_syncs() -> None:
    for prepare_s, word in ((1e-3, "GPU-bound"), (9e-3, "CPU-bound")):
        t, _ = a_loop(read=False, prepare_s=prepare_s)
        found = trace.classify(t)
        assert found.bottleneck == word and trace.unwaited(t).gain == pytest.approx(1, abs=0.01)


def test_a_wait_after_which_nothing_is_launched_costs_nothing() -> None:
    """10 ms of loading, then 10 ms of work for which the host waits at the end: nothing could have been earlier."""
    made = Maker()
    made.op("aten::load", 0, 10_000)
    made.work(3, 10, 0)
    made.work(10_010, 20_000, 10_002)
    made.call("cudaDeviceSynchronize", 10_010, 20_001)
    assert trace.unwaited(trace.read(made.done())).gain == pytest.approx(1, abs=0.01)


def test_work_that_waits_for_another_stream_still_does() -> None:
    """Added up by hand: three rounds of copy (100 µs), kernel (100), wait until then, and 100 µs of Python."""
    made = Maker()
    for k in range(0, 900, 300):
        made.work(k + 10, k + 100, k, name=COPY, stream=13)
        made.work(k + 101, k + 200, k + 5)
        made.call("cudaStreamSynchronize", k + 10, k + 200)
        made.event("python_function", "prepare", k + 200, k + 300)
    found = trace.unwaited(trace.read(made.done()))
    assert found.waited == pytest.approx(380 * US) and found.before == pytest.approx(900 * US)
    # the host needs 3 × 110 µs; the last copy starts 10 µs after its launch at 220, its kernel 1 µs behind it
    assert found.after == pytest.approx((220 + 10 + 90 + 1 + 99) * US, abs=2 * US)


@pytest.mark.parametrize("seed", range(8))
def test_with_no_wait_cut_a_trace_replays_to_its_own_time(seed: int) -> None:
    """To the nanosecond, with streams that wait for each other, and kernels that share the GPU."""
    content = noise(seed, 150, (7, 13, 20)[: 1 + seed % 3])
    draw = np.random.default_rng(seed)
    for e in content["traceEvents"]:
        if e["cat"] == "kernel" and draw.random() < 0.3:
            e["dur"] += int(draw.integers(1, 80))  # overlaps, in its stream too
    t = trace.read(content)
    assert _Replay(t, spans.NOTHING).run() == (t.work.end_ns.max(), 0)


def test_kernels_that_filled_the_gpu_share_it_whatever_their_stream() -> None:
    """Two streams take turns, 100 µs each, and the host waits after each pair: the GPU is busy, nothing can be won."""
    made = Maker()
    for k in range(0, 2000, 200):
        made.work(k + 5, k + 105, k)
        made.work(k + 105, k + 205, k + 2, stream=13)
        made.call("cudaStreamSynchronize", k + 4, k + 199)
    found = trace.unwaited(trace.read(made.done()))
    assert found.waited > 1600 * US and found.gain == pytest.approx(1, abs=0.02)


def test_the_wait_at_the_end_of_a_profile_is_nobodys_fault() -> None:
    """The next batch is copied beside the kernels, and the host waits only when all is launched."""
    gpu = simulate("H100")
    with gpu:
        w, side = torch.empty(1024, 1024, device=gpu.device), gpu.Stream()
        pinned = [torch.empty(4096, 1024).pin_memory() for _ in range(2)]
        w @ w
        with gpu.profile() as prof:
            for i in range(8):
                with gpu.stream(side):
                    x = pinned[i % 2].to(gpu.device, non_blocking=True)
                gpu.current_stream().wait_stream(side)
                x.record_stream(gpu.current_stream())
                x @ w
    t = trace.read(prof)
    assert trace.unwaited(t).gain == 1 and trace.unwaited(t).waited == 0
    assert trace.classify(t).bottleneck == "copy-bound"


def test_without_gpu_work_there_is_nothing_to_replay() -> None:
    made = Maker()
    made.op("aten::add", 0, 1)
    with pytest.raises(ValueError, match="no GPU work"):
        trace.unwaited(trace.read(made.done()))


# ---- against Holistic Trace Analysis ------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 3])
def test_hta_says_the_same(seed: int, tmp_path: Path) -> None:
    """HTA (PyPI: traceinsight) on the same trace: idle and computing time, overlap, queue length by stream."""
    analysis = pytest.importorskip(
        "hta.trace_analysis", reason="HTA is not installed (pip install traceinsight)"
    )
    path = tmp_path / "rank_0.json"
    content = noise(seed, 200, (7, 13, 20)) | {"distributedInfo": {"rank": 0}}
    for event in content["traceEvents"]:
        event["args"]["correlation"] += 100_000  # HTA stores small ones in a byte
    path.write_text(json.dumps(content))
    theirs = analysis.TraceAnalysis(trace_files={0: str(path)}, include_last_profiler_step=True)
    t = trace.read(path)
    mine = trace.overlap(t)
    times = theirs.get_temporal_breakdown(visualize=False).iloc[0]
    assert times["idle_time(us)"] == pytest.approx((mine.span - mine.busy) / US)
    assert times["compute_time(us)"] == pytest.approx(mine.compute / US)
    assert times["kernel_time(us)"] == pytest.approx(mine.span / US)
    hidden = theirs.get_comm_comp_overlap(visualize=False).iloc[0]["comp_comm_overlap_pctg"]
    assert hidden == pytest.approx(100 * mine.communication_and_compute / mine.communication, abs=0.01)
    depth = trace.queue_depth(t)
    for stream, found in theirs.get_queue_length_time_series()[0].groupby("stream"):
        last = found.groupby("ts").queue_length.last()  # of equal moments the last counts
        assert last.max() == depth.by_stream[stream].max()
        offset = last.index[0] - depth.times_s[depth.by_stream[stream] > 0][0] / US
        # half a nanosecond of grace: a float of seconds may lie just before the moment that it means
        at = np.searchsorted(depth.times_s, (last.index - offset) * US + 5e-10, side="right") - 1
        assert depth.by_stream[stream][at].tolist() == last.tolist()


def test_a_window_without_work_is_busy_for_nothing_and_not_for_minus_nothing() -> None:
    none = np.zeros(0, dtype=np.int64)
    gaps = trace.gaps.Idle({"a": 0.2, "b": 0.1}, none, none, none, none, (0.0, 0.3), "simulated")
    assert gaps.total > gaps.span and f"{gaps.busy:.0%}" == "0%"


def test_a_host_that_does_other_work_is_not_launching_because_it_copied_just_before_the_kernel() -> None:
    gpu = simulate("H100")
    with gpu:
        x, rows = torch.empty(4096, 4096, device=gpu.device), torch.arange(64)
        with gpu.profile() as prof:
            for _ in range(4):
                (x @ x)[rows.to(gpu.device)].relu()
                gpu.synchronize()
                gpu.host_work(4e-3)  # then a copy, and right after it the kernels
                rows.to(gpu.device)
        found = trace.idle(trace.read(prof))
    assert found.seconds["nothing launched"] > 4 * 3.5e-3, found
