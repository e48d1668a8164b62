"""The simulated run as torch.profiler would have written it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import record_function, schedule

from helpers import simulator, trace
from helpers.simulator import SimGPU, SimulationError, simulate


def train(gpu: SimGPU, prof: Any = None, steps: int = 3, width: int = 256) -> None:
    """Copy, forward, backward, step, item: a small loop."""
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to(gpu.device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    host = torch.zeros(width, width)
    for _ in range(steps):
        with record_function("forward"):
            loss = model(host.to(gpu.device)).square().mean()
        with record_function("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        if prof is not None:
            prof.step()


def simulated(**how: Any) -> tuple[SimGPU, Any]:
    gpu = simulate("H100")
    with gpu:
        train(gpu)
        with gpu.profile(**how) as prof:
            train(gpu, prof)
    return gpu, prof


def events(data: dict[str, Any], cat: str) -> list[dict[str, Any]]:
    return [e for e in data["traceEvents"] if e.get("cat") == cat]


# ------------------------------------------------------------------------------------------ the format


def test_each_piece_of_work_joins_the_call_that_launched_it() -> None:
    gpu, _ = simulated()
    data = gpu.trace()
    calls = {e["args"]["correlation"]: e for e in events(data, "cuda_runtime")}
    assert len(calls) == len(events(data, "cuda_runtime"))
    operators = {e["args"]["External id"]: e for e in events(data, "cpu_op")}
    work = events(data, "kernel") + events(data, "gpu_memcpy")
    assert len(work) == len(gpu.kernels)
    for e in work:
        call = calls[e["args"]["correlation"]]
        operator = operators[e["args"]["External id"]]
        assert call["name"] == ("cudaMemcpyAsync" if e["cat"] == "gpu_memcpy" else "cudaLaunchKernel")
        assert e["ts"] > call["ts"]  # never before it was launched
        assert operator["ts"] <= call["ts"]
        assert call["ts"] + call["dur"] <= operator["ts"] + operator["dur"] + 1e-6
        assert e["args"]["stream"] == e["tid"] == 7 and e["args"]["device"] == 0
    by_time = sorted((e["ts"], e["dur"]) for e in work)
    assert by_time == sorted((k.start_ns / 1e3, (k.end_ns - k.start_ns) / 1e3) for k in gpu.kernels)


def test_nobody_can_take_it_for_a_real_one() -> None:
    gpu, prof = simulated()
    for data in (gpu.trace(), prof.trace()):
        assert data["simulated"] == "H100"
        named = {e["args"]["name"] for e in data["traceEvents"] if e["name"] == "process_name"}
        assert named == {"python: SIMULATED host", "SIMULATED H100"}
        assert data["deviceProperties"][0]["name"] == "SIMULATED H100"
        assert trace.read(data).evidence == "simulated (H100)"


def test_copies_say_which_memory_and_how_many_bytes() -> None:
    with simulate() as gpu:
        pageable, pinned = torch.zeros(1024, 1024), torch.zeros(1024, 1024).pin_memory()
        x = pageable.to(gpu.device)
        pinned.to(gpu.device, non_blocking=True)
        pageable.to(gpu.device, non_blocking=True)
        x.cpu()
        x.sum().item()
    data = gpu.trace()
    copies = [(e["name"], e["args"]["bytes"]) for e in events(data, "gpu_memcpy")]
    size = 4 * 1024**2
    assert copies == [
        ("Memcpy HtoD (Pageable -> Device)", size),
        ("Memcpy HtoD (Pinned -> Device)", size),
        ("Memcpy HtoD (Pageable -> Device)", size),
        ("Memcpy DtoH (Device -> Pageable)", size),
        ("Memcpy DtoH (Device -> Pinned)", 4),
    ]
    # From pageable memory, cudaMemcpyAsync itself takes as long as the copy, whatever was asked for; the
    # pinned copy returns at once; only what was asked to wait synchronises.
    calls = [e for e in events(data, "cuda_runtime") if e["name"].startswith(("cudaMemcpy", "cudaStream"))]
    assert [e["name"] for e in calls] == [
        "cudaMemcpyAsync", "cudaStreamSynchronize", "cudaMemcpyAsync", "cudaMemcpyAsync",
        "cudaMemcpyAsync", "cudaStreamSynchronize", "cudaMemcpyAsync", "cudaStreamSynchronize",
    ]  # fmt: skip
    long = [e["dur"] > 100 for e in calls if e["name"] == "cudaMemcpyAsync"]
    assert long == [True, False, True, True, False]


def test_waits_streams_and_events_have_cudas_names() -> None:
    with simulate() as gpu:
        x, side = torch.zeros(8, 8, device=gpu.device), gpu.Stream()
        side.wait_stream(gpu.current_stream())
        with gpu.stream(side):
            x @ x
        event = side.record_event()
        event.query()
        event.synchronize()
        side.synchronize()
        gpu.synchronize()
    data = gpu.trace()
    names = Counter(e["name"] for e in events(data, "cuda_runtime"))
    assert names == {
        "cudaLaunchKernel": 2, "cudaEventRecord": 2, "cudaStreamWaitEvent": 1, "cudaEventQuery": 1,
        "cudaEventSynchronize": 1, "cudaStreamSynchronize": 1, "cudaDeviceSynchronize": 1,
    } | {k: v for k, v in names.items() if k == "cudaMalloc"}  # fmt: skip
    streams = {e["args"]["stream"] for e in events(data, "kernel")}
    assert streams == {7, 13}
    lanes = {
        e["tid"]: e["args"]["name"]
        for e in data["traceEvents"]
        if e["name"] == "thread_name" and e["pid"] == 0
    }
    assert lanes == {7: "stream 7", 13: "stream 13"}


def test_a_full_queue_makes_the_launch_long() -> None:
    with simulate(queue_depth=4) as gpu:
        x = torch.zeros(4096, 4096, device=gpu.device)
        for _ in range(8):
            x @ x
    calls = [e for e in events(gpu.trace(), "cuda_runtime") if e["name"] == "cudaLaunchKernel"]
    assert len(calls) == 9
    assert max(e["dur"] for e in calls[:4]) < 10 < 1000 < calls[-1]["dur"]


def test_a_list_operator_is_one_operator_with_several_launches() -> None:
    with simulate() as gpu:
        xs = [torch.zeros(4, device=gpu.device) for _ in range(800)]
        before = len(gpu.host)
        torch._foreach_add_(xs, 1.0)
    data = gpu._notes.trace(before)
    assert [e["name"] for e in events(data, "cpu_op")] == ["aten::_foreach_add_"]
    assert [e["name"] for e in events(data, "cuda_runtime")] == ["cudaLaunchKernel"] * 2
    assert len(events(data, "kernel")) == 2


def test_a_graph_is_one_call_and_all_its_kernels() -> None:
    with simulate() as gpu, torch.no_grad():
        x, w = torch.zeros(64, 64, device=gpu.device), torch.zeros(64, 64, device=gpu.device)
        x @ w
        gpu.synchronize()
        graph = gpu.CUDAGraph()
        with gpu.graph(graph):
            for _ in range(5):
                x = x @ w
        first = len(gpu.host)
        graph.replay()
        gpu.synchronize()
    data = gpu._notes.trace(first)
    assert [e["name"] for e in events(data, "cuda_runtime")] == ["cudaGraphLaunch", "cudaDeviceSynchronize"]
    launch = events(data, "cuda_runtime")[0]["args"]["correlation"]
    kernels = events(data, "kernel")
    assert len(kernels) == 5
    assert {e["args"]["correlation"] for e in kernels} == {launch}
    assert {e["args"]["graph id"] for e in kernels} == {1}


def test_equal_runs_are_equal_to_the_byte(tmp_path: Path) -> None:
    files = []
    for i in range(2):
        gpu, prof = simulated(record_shapes=True)  # as on a GPU; adds nothing here
        prof.export_chrome_trace(tmp_path / f"{i}.json")
        prof.export_chrome_trace(tmp_path / f"{i}.json.gz")
        files.append([(tmp_path / f"{i}.{end}").read_bytes() for end in ("json", "json.gz")])
        assert json.loads(files[-1][0]) == json.loads(gzip.decompress(files[-1][1])) == prof.trace()
    assert files[0] == files[1]


def test_spans_on_one_thread_nest() -> None:
    gpu, _ = simulated()
    data = gpu.trace()
    spans = [e for e in data["traceEvents"] if e["ph"] == "X" and e["pid"] == 1]
    open_until: list[float] = []
    for e in sorted(spans, key=lambda e: (e["ts"], -e["dur"])):
        while open_until and open_until[-1] <= e["ts"] + 1e-6:
            open_until.pop()
        end = e["ts"] + e["dur"]
        assert not open_until or end <= open_until[-1] + 1e-6, e
        open_until.append(end)


# --------------------------------------------------------------------------------------- the profiler


def test_annotations_on_the_host_and_over_their_kernels() -> None:
    gpu, prof = simulated()
    data = prof.trace()
    host = Counter(e["name"] for e in events(data, "user_annotation"))
    assert host["forward"] == host["backward"] == host["Optimizer.step#AdamW.step"] == 3
    device = events(data, "gpu_user_annotation")
    assert {e["name"] for e in device} >= {"forward", "backward", "ProfilerStep#0"}
    backward = [e for e in device if e["name"] == "backward"]
    first = next(e for e in events(data, "kernel") if e["name"] == "aten::ones_like")
    assert backward[0]["ts"] == first["ts"]  # the gradient of the loss is backward's first kernel


def test_the_schedule_is_kept_and_the_recording_ends_with_the_device() -> None:
    ready: list[list[str]] = []

    def on_ready(prof: Any) -> None:
        ready.append(
            sorted(e["name"] for e in events(prof.trace(), "user_annotation") if "Step#" in e["name"])
        )

    gpu = simulate()
    with gpu:
        plan = schedule(wait=1, warmup=1, active=2, repeat=2)
        with gpu.profile(schedule=plan, on_trace_ready=on_ready) as prof:
            train(gpu, prof, steps=10)
    assert ready == [["ProfilerStep#2", "ProfilerStep#3"], ["ProfilerStep#6", "ProfilerStep#7"]]
    data = prof.trace()
    assert events(data, "cuda_runtime")[-1]["name"] == "cudaDeviceSynchronize"
    steps = trace.steps(trace.read(prof))
    assert [s.name for s in steps] == ["ProfilerStep#6", "ProfilerStep#7"]
    assert [s.copies for s in steps] == [2, 2]


def test_the_schedule_does_as_torch_profilers() -> None:
    """The same steps are recorded as torch.profiler records, on the CPU."""

    def recorded(make: Any, **how: Any) -> list[str]:
        found: list[str] = []

        def keep(prof: Any) -> None:
            data = prof.trace() if hasattr(prof, "trace") else json.loads(export(prof))
            found.extend(sorted(e["name"] for e in events(data, "user_annotation") if "Step#" in e["name"]))

        with make(schedule=schedule(**how), on_trace_ready=keep) as prof:
            for _ in range(9):
                torch.zeros(3).add(1)
                if simulator.active() is not None:
                    torch.zeros(3, device="meta")
                prof.step()
        return found

    def export(prof: Any) -> str:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            prof.export_chrome_trace(f"{folder}/t.json")
            return Path(folder, "t.json").read_text()

    for how in (
        {"wait": 0, "warmup": 1, "active": 2},
        {"wait": 1, "warmup": 1, "active": 1, "repeat": 2},
        {"wait": 1, "warmup": 0, "active": 3, "skip_first": 2, "repeat": 1},
    ):
        cpu = [torch.profiler.ProfilerActivity.CPU]
        live = recorded(lambda **kw: torch.profiler.profile(activities=cpu, **kw), **how)  # noqa: B023
        with simulate() as card:
            assert recorded(card.profile, **how) == live, how


def test_profiling_costs_no_simulated_time_and_works_through_a_fault() -> None:
    times = []
    for profiled in (False, True):
        with simulate() as gpu:
            if profiled:
                with gpu.profile(with_stack=True) as prof:
                    train(gpu, prof)
            else:
                train(gpu)
            gpu.synchronize()
        times.append(gpu.clock())
    assert times[1] - times[0] < 10e-6  # the recording's end waits for the device
    with pytest.raises(SimulationError), simulate() as gpu, gpu.profile() as prof:
        torch.zeros(3, device=gpu.device).mul_(torch.zeros(3))
    assert events(prof.trace(), "kernel")
    with simulate() as gpu, pytest.raises(RuntimeError, match="nothing was recorded"):
        with gpu.profile(schedule=lambda step: torch.profiler.ProfilerAction.NONE) as prof:
            pass
        prof.export_chrome_trace("never.json")


# ---------------------------------------------------------------------------------------- other readers


def test_hta_reads_it_where_it_is_installed(tmp_path: Path) -> None:
    analysis = pytest.importorskip("hta.trace_analysis")
    gpu = simulate("H100")
    with gpu:
        train(gpu)
        with gpu.profile() as prof:
            train(gpu, prof, width=4096)
    prof.export_chrome_trace(tmp_path / "rank-0.json.gz")
    hta = analysis.TraceAnalysis(trace_dir=str(tmp_path), include_last_profiler_step=True)
    temporal = hta.get_temporal_breakdown(visualize=False).iloc[0]
    found = trace.overlap(trace.read(prof))
    assert temporal["compute_time(us)"] == pytest.approx(found.compute * 1e6, rel=0.02)  # HTA counts whole µs
    idle = hta.get_idle_time_breakdown(visualize=False)[0]
    assert set(idle["idle_category"]) <= {"host_wait", "kernel_wait", "other"}
    assert len(hta.get_queue_length_summary()) == 1
