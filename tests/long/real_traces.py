"""Reads traces that nobody here made, compares with Holistic Trace Analysis, and holds the reader to its time.

    python -m tests.long.real_traces FOLDER           # every .json and .json.gz in it, and below

For each trace: what `trace.classify` says; whether it replays to its own time with no wait cut; whether busy, computing
and overlapping time are HTA's (PyPI: traceinsight); and, from LARGE events on, the CPU time of read and classify beside
that of `json.load`, the median of five. A file that is no trace has to be refused with a TraceError. It ends with 1 if
anything differs, raises, or takes more than MOST times as long.

A folder to begin with: tests/data of github.com/facebookresearch/HolisticTraceAnalysis (MIT); tb_plugin/samples in the
history of github.com/pytorch/kineto (BSD) has traces in the categories of PyTorch 1.8.
"""

import argparse
import contextlib
import gc
import gzip
import io
import json
import logging
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers import trace
from helpers.trace import spans
from helpers.trace.unwaited import _Replay

LARGE, MOST = 50_000, 2.0


def looked_at(path: Path) -> list[str]:
    """What is wrong with how this file is read; prints the rest."""
    try:
        t = trace.read(path)
    except trace.TraceError as error:
        print(f"refused: {error}")
        return []
    told, wrong = trace.classify(t), []
    print(f"{t}\n{told.bottleneck}: {told.evidence[0]}\n  → {told.advice}")
    for ask in (trace.steps, trace.shares):
        repr(ask(t))
    if t.has_gpu:
        for ask in (trace.idle, trace.queue_depth, trace.overlap, trace.top, trace.unwaited):
            repr(ask(t))
        late = _Replay(t, spans.NOTHING).run()[0] - int(t.work.end_ns.max())
        if late:
            wrong.append(f"replays to {late:+,} ns beside its own end")
        wrong += beside_hta(path, t)
    if len(t) >= LARGE:
        wrong += too_slow(path, t)
    return wrong


def beside_hta(path: Path, t: trace.Trace) -> list[str]:
    """Where HTA counts something else, by more than its rounding: it drops the part of a µs, of every event."""
    mine, reason = trace.overlap(t), ""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            from hta.trace_analysis import TraceAnalysis

            theirs = TraceAnalysis(trace_files={0: str(path)}, include_last_profiler_step=True)
            rows = theirs.t.get_trace(0)
            times = theirs.get_temporal_breakdown(visualize=False).iloc[0]
            hidden = theirs.get_comm_comp_overlap(visualize=False).iloc[0]["comp_comm_overlap_pctg"]
        except Exception as error:  # HTA wants more than every trace has: a rank, several streams
            reason = f"{type(error).__name__}: {error}"[:80]
    if reason:
        print(f"  HTA does not read it ({reason})")
        return []
    if (counted := int((rows.stream >= 0).sum())) != len(t.work):
        # it leaves out what no ProfilerStep launched, and takes the events of cuda_sync for work
        print(f"  HTA counts {counted:,} pieces of work, and the trace has {len(t.work):,}: not compared")
        return []
    found = {
        "from first to last, µs": (times["kernel_time(us)"], mine.span * 1e6),
        "idle, µs": (times["idle_time(us)"], (mine.span - mine.busy) * 1e6),
        "computing, µs": (times["compute_time(us)"], mine.compute * 1e6),
    }
    if mine.communication:
        found["of it communicating, %"] = hidden, 100 * mine.communication_and_compute / mine.communication
    print("  HTA and we: " + ", ".join(f"{key} {a:,.1f} {b:,.1f}" for key, (a, b) in found.items()))
    grace = len(t.work) + 2 if (t.start_ns % 1000).any() else 1
    return [
        f"{key}: HTA {a:,.1f}, here {b:,.1f}"
        for key, (a, b) in found.items()
        if abs(a - b) > (0.5 if "%" in key else grace)
    ]


def too_slow(path: Path, t: trace.Trace) -> list[str]:
    """Whether reading and classifying takes more than MOST times what `json.load` alone takes."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "trace.json"
        raw = path.read_bytes()
        plain.write_bytes(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
        alone = seconds(lambda: json.loads(plain.read_text("utf-8", errors="replace"), strict=False))
        whole = seconds(lambda: trace.classify(trace.read(plain)))
    ratio = whole / alone
    said = f"{len(t):,} events: {whole:.2f} s of CPU to read and classify, {alone:.2f} s for json alone, {ratio:.2f}×"
    print(f"  {said}")
    return [said] if ratio > MOST else []


def seconds(run: Callable[[], Any], times: int = 5) -> float:
    """CPU seconds of one run, the median."""
    took = []
    for _ in range(times):
        gc.collect()
        began = time.process_time()
        run()
        took.append(time.process_time() - began)
    return statistics.median(took)


def main() -> int:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    wrong: dict[str, list[str]] = {}
    paths = sorted(
        p for p in asked.folder.rglob("*") if p.name.endswith((".json", ".json.gz")) and p.is_file()
    )
    for path in paths:
        name = str(path.relative_to(asked.folder))
        print(f"\n## {name}")
        try:
            wrong[name] = looked_at(path)
        except Exception:
            wrong[name] = [traceback.format_exc(limit=-3)]
        for one in wrong[name]:
            print(f"  WRONG: {one}")
    bad = sum(map(bool, wrong.values()))
    print(f"\n{len(paths)} files, {bad} with something wrong")
    return 1 if bad or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
