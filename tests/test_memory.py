"""Memory snapshots: read safely, rebuilt exactly, and asked where the memory is."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers import memory, simulate
from helpers.memory.snapshot import frame_of, site_of
from helpers.simulator.allocator import CachingAllocator, OutOfMemory

KIB, MIB = 1 << 10, 1 << 20
RECORDED = "recorded (H100, 2026-01)"


def frames(line: int, function: str = "forward", file: str = "/srv/someone/train.py") -> list[dict[str, Any]]:
    """A stack, innermost first: torch's own frame, the user's, and Python's."""
    return [
        {
            "filename": "/opt/env/lib/python3.11/site-packages/torch/nn/modules/linear.py",
            "line": 125,
            "name": "forward",
        },
        {"filename": file, "line": line, "name": function},
        {"filename": "<frozen runpy>", "line": 88, "name": "_run_code"},
    ]


def raw() -> dict[str, Any]:
    """A hand-made snapshot: 20 MiB large with 2 + 4 (waits) in use, 2 MiB small with 1 KiB in use."""

    def block(address: int, size: int, state: str, requested: int = 0, stack: Any = ()) -> dict[str, Any]:
        return {
            "address": address,
            "size": size,
            "requested_size": requested,
            "state": state,
            "frames": list(stack),
        }

    def event(action: str, addr: int, size: int, time: int, stack: Any = ()) -> dict[str, Any]:
        return {
            "action": action,
            "addr": addr,
            "size": size,
            "stream": 0,
            "time_us": time,
            "frames": list(stack),
        }

    base, small = 0x7F00_0000_0000, 0x7F10_0000_0000
    first, second, third = frames(10), frames(20), frames(30, "log")
    return {
        "segments": [
            {
                "device": 0, "address": base, "total_size": 20 * MIB, "allocated_size": 2 * MIB, "active_size": 6 * MIB,
                "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
                "blocks": [
                    block(base, 2 * MIB, "active_allocated", 2 * MIB - 100, first),
                    block(base + 2 * MIB, 4 * MIB, "active_pending_free", 4 * MIB, second),
                    block(base + 6 * MIB, 14 * MIB, "inactive", 3),
                ],
            },
            {
                "device": 0, "address": small, "total_size": 2 * MIB, "stream": 77, "segment_type": "small",
                "blocks": [
                    block(small, 1024, "active_allocated", 1000, third), block(small + 1024, 2 * MIB - 1024, "inactive"),
                ],
            },
        ],
        "device_traces": [[
            event("segment_alloc", base, 20 * MIB, 100),
            event("alloc", base, 2 * MIB - 100, 101, first),
            event("alloc", base + 2 * MIB, 4 * MIB, 200, second),
            event("segment_alloc", small, 2 * MIB, 300),
            event("alloc", small, 1000, 301, third),
            event("alloc", base + 6 * MIB, 9 * MIB, 400, third),
            event("free_requested", base + 6 * MIB, 9 * MIB, 500, third),
            event("free_completed", base + 6 * MIB, 9 * MIB, 501, third),
            event("free_requested", base + 2 * MIB, 4 * MIB, 600, second),
            {"action": "oom", "device_free": 5 * MIB, "size": 40 * MIB, "stream": 0, "time_us": 700, "frames": []},
            event("snapshot", 0, 0, 800),
        ]],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
    }  # fmt: skip


def test_numbers_of_a_snapshot() -> None:
    found = memory.read(raw(), evidence=RECORDED)
    assert found.allocated == 2 * MIB + 1024
    assert found.pending == 4 * MIB
    assert found.reserved == 22 * MIB
    assert found.inactive == 16 * MIB - 1024
    assert found.allocated + found.pending + found.inactive == found.reserved
    assert found.releasable == 0
    assert [block.state for block in found.blocks] == [
        "allocated",
        "pending free",
        "free",
        "allocated",
        "free",
    ]
    assert found.events[9].device_free == 5 * MIB and found.events[9].address == 0
    assert found.stream_name(0) == "default stream" and found.stream_name(77) == "stream 77"
    pointers = raw()
    pointers["segments"][1]["stream"] = 0x5566_7788
    assert memory.read(pointers, evidence=RECORDED).stream_name(0x5566_7788) == "stream 1"
    assert RECORDED in str(found) and "2.00 MiB in 2 blocks" in str(found)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("packed", [False, True])
def test_files_say_the_same(tmp_path: Path, protocol: int, packed: bool) -> None:
    path = tmp_path / "snapshot.pickle"
    data = pickle.dumps(raw(), protocol=protocol)
    path.write_bytes(gzip.compress(data) if packed else data)
    from_file, from_dict = memory.read(path, evidence=RECORDED), memory.read(raw(), evidence=RECORDED)
    assert from_file == from_dict
    assert memory.read(path.read_bytes(), evidence=RECORDED) == from_dict


class Evil:
    """Its pickle calls something."""

    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        self.call, self.args = call, args

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call, self.args


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    ("payload", "named"),
    [
        (lambda: Evil(os.system, "touch pwned"), "system"),
        (lambda: Evil(eval, "1 + 1"), "eval"),
        (lambda: Evil(getattr, {}, "keys"), "getattr"),
        (lambda: Evil(exec, "x = 1"), "exec"),
        (lambda: torch.ones(2), "torch"),
        (lambda: Path("x"), "pathlib"),
        (lambda: complex, "complex"),
    ],
)
def test_what_is_not_plain_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, payload: Callable[[], Any], named: str, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps({"segments": [payload()]}, protocol=protocol)
    with pytest.raises(memory.SnapshotError) as told:
        memory.read(data, evidence=RECORDED)
    if protocol > 1:  # older ones are refused as a whole
        assert "refused" in str(told.value) and named in str(told.value)
    assert list(tmp_path.iterdir()) == []


def test_a_tensor_in_torchs_own_file_is_refused() -> None:
    file = io.BytesIO()
    torch.save({"segments": []}, file)
    with pytest.raises(memory.SnapshotError):
        memory.read(file.getvalue(), evidence=RECORDED)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "empty"),
        (b"hello", "no pickle"),
        (b"\x80\x04", "cut off"),
        (b"\x80\x09N.", "protocol: 9"),
        (b"\x80\x04N.", "no memory snapshot"),
        (b"\x80\x04}.", "'segments'"),
        (b"\x80\x04(.", "damaged"),
        (b"\x80\x04h\x07.", "damaged"),  # a memo that was never filled
        (b"\x80\x04X\xff\xff\xff\x7fab.", "damaged"),  # text of 2 GiB announced
        (b"\x80\x04\x8b\xff\xff\xff\x7fab.", "damaged"),  # an integer of 2 GiB announced
        (b"\x80\x04]]s.", "damaged"),
        (b"\x80\x04]K\x01K\x02s.", "damaged"),
        (b"\x80\x04K\x01K\x02a.", "damaged"),
        (b"\x80\x04Pevil\n.", "persistent id"),
        (b"\x80\x04\x82\x01.", "extension code"),
        (b"\x80\x04cbuiltins\neval\n.", "builtins.eval"),
        (b"\x80\x02(ibuiltins\neval\n.", "builtins.eval"),
        (b"(ibuiltins\neval\n.", "no pickle"),
        (b"\x80\x04\xfe.", "damaged"),
        (b"\x1f\x8b\x08\x00broken", "gzip"),
        (gzip.compress(pickle.dumps(raw()))[:-20], "gzip"),
    ],
)
def test_what_is_broken_says_so(data: bytes, told: str) -> None:
    with pytest.raises(memory.SnapshotError, match=told):
        memory.read(data, evidence=RECORDED)


def test_no_cut_of_a_file_goes_unnoticed() -> None:
    data = pickle.dumps(raw())
    for end in range(0, len(data), 7):
        with pytest.raises(memory.SnapshotError):
            memory.read(data[:end], evidence=RECORDED)


def test_damage_never_gives_another_error() -> None:
    data, rng = pickle.dumps(raw()), random.Random(0)
    for _ in range(800):
        bad = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        try:
            found = memory.read(bytes(bad), evidence=RECORDED)
        except memory.SnapshotError:
            continue
        memory.peak(found)
        memory.history(found).segments(0)


def test_a_few_bytes_do_not_cost_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    huge_memo = b"\x80\x04]r\xff\xff\xff\x7f."  # LONG_BINPUT: C's memo would take 32 GiB
    with pytest.raises(memory.SnapshotError, match="segments"):
        memory.read(huge_memo, evidence=RECORDED)
    with pytest.raises(memory.SnapshotError, match="bytes unpacked"):
        monkeypatch.setattr("helpers.memory.reading.MAX_BYTES", 1_000_000)
        memory.read(gzip.compress(bytes(5_000_000)), evidence=RECORDED)


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"\x80\x04]", b"\x1f\x8b\x08", pickle.dumps({"segments": 1}), bytes(101)]
)
def test_an_error_names_the_file(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(data)
    with pytest.raises(memory.SnapshotError, match=r"^\S*snapshot\.pickle: "):
        memory.read(path, evidence=RECORDED)


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no snapshot at .*gone\.pickle: run the cell"):
        memory.read(tmp_path / "gone.pickle")
    with pytest.raises(memory.SnapshotError, match=r"^\.: this is a folder"):
        memory.read(".")


def test_one_list_named_a_million_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.memory.reading.MAX_PARTS", 10_000)
    lots = [{"size": 1, "state": "inactive"}] * 200
    segments = [{"address": i, "total_size": 200, "blocks": lots} for i in range(200)]
    with pytest.raises(memory.SnapshotError, match="too large"):
        memory.read({"segments": segments}, evidence=RECORDED)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda r: r["segments"][0].update(total_size=21 * MIB), "sum to"),
        (lambda r: r["segments"][0].pop("total_size"), "total_size"),
        (lambda r: r["segments"][0].update(blocks=None), "blocks"),
        (lambda r: r["segments"].append("x"), "str"),
        (lambda r: r["segments"][0]["blocks"][0].update(state="gone"), "gone"),
        (lambda r: r["segments"][0]["blocks"][0].update(size=-1), "'size'"),
        (lambda r: r["segments"][0]["blocks"][0].update(size=1 << 62), "'size'"),
        (lambda r: r["device_traces"][0][1].update(size=1 << 500), "a huge number"),
        (lambda r: r["segments"][0].update(address=True), "'address'"),
        (lambda r: r["segments"][0]["blocks"][0].update(frames="x"), "frames"),
        (lambda r: r["segments"][0]["blocks"][0].update(frames=["x"]), "frame"),
        (lambda r: r.update(device_traces=[3]), "device_traces"),
        (lambda r: r["device_traces"][0].append({}), "action"),
        (lambda r: r["device_traces"][0].append({"action": "alloc", "addr": "x", "size": 1}), "'addr'"),
        (lambda r: r["segments"][1].update(device=3), "devices"),
    ],
)
def test_wrong_fields_are_named(change: Callable[[dict[str, Any]], Any], told: str) -> None:
    bad = raw()
    change(bad)
    with pytest.raises(memory.SnapshotError, match=told):
        memory.read(bad, evidence=RECORDED)


def test_halves_of_surrogate_pairs_are_replaced() -> None:
    """As in the name of a source file whose bytes are no UTF-8."""
    odd = raw()
    odd["device_traces"][0][0] |= {
        "action": "odd \ud800",
        "frames": [{"filename": "a\udcff.py", "line": 3, "name": "f\ud800"}],
    }
    event = memory.read(odd, evidence=RECORDED).events[0]
    (frame,) = event.frames
    assert (event.action, frame.file, frame.function) == ("odd ?", "a?.py", "f?")


def test_one_device_of_several() -> None:
    two = raw()
    two["segments"][1]["device"] = 1
    two["device_traces"].append([])
    assert memory.read(two, evidence=RECORDED, device=1).reserved == 2 * MIB
    assert memory.read(two, evidence=RECORDED, device=0).reserved == 20 * MIB


def test_a_simulated_snapshot_has_cpp_frames_where_it_is_asked_for_them() -> None:
    """As torch has them by default: C++ before Python; of the backward pass C++ alone, with the node that asked."""
    gpu = simulate("H100")
    with gpu:
        gpu.memory._record_memory_history(stacks="all")
        net = torch.nn.Linear(64, 64, device=gpu.device)
        net(torch.randn(8, 64, device=gpu.device)).sum().backward()
    stacks = [e["frames"] for e in gpu.memory._snapshot()["device_traces"][0] if e["action"] == "alloc"]
    assert all("::" in frames[0]["name"] and frames[0]["filename"] == "??" for frames in stacks)
    backward = [frames for frames in stacks if "AddmmBackward0::apply" in frames[-1]["name"]]
    assert backward and not any(f["filename"].endswith(".py") for frames in backward for f in frames)
    assert any(f["filename"].endswith(".py") for f in stacks[0])
    assert "AddmmBackward0 (backward)" in {
        event_site.site for event_site in memory.peak(memory.read(gpu)).holders
    }


def test_nobody_can_mistake_a_simulated_snapshot(tmp_path: Path) -> None:
    made = raw() | {"simulated": "H100"}
    assert memory.read(made).evidence == "simulated (H100)"
    for label in ("live (GPU)", RECORDED):
        with pytest.raises(memory.SnapshotError, match="simulated"):
            memory.read(made, evidence=label)
    with pytest.raises(ValueError, match="evidence"):
        memory.read(raw(), evidence="measured")
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps(raw()))
    assert memory.read(path).evidence == "recorded (GPU not named, no date)"  # its clock began elsewhere
    made = raw()
    for event in made["device_traces"][0]:
        event["time_us"] += 1_695_835_542_000_000
    path.write_bytes(pickle.dumps(made))
    assert memory.read(path).evidence == "recorded (GPU not named, 2023-09)"
    with pytest.raises(memory.SnapshotError, match="a float is no"):
        memory.read(1.5)


def test_objects_that_have_a_snapshot() -> None:
    class Card:
        """Names as torch.cuda has them."""

        evidence = "live (GPU)"

        class memory:
            @staticmethod
            def _snapshot() -> dict[str, Any]:
                return raw()

    assert memory.read(Card()).evidence == "live (GPU)"
    found = memory.read(Card())
    assert memory.read(found) is found
    model = CachingAllocator(64 * MIB)
    model.malloc(MIB)
    assert memory.read(model).evidence == "simulated (allocator)"
    assert memory.read(raw()["segments"], evidence=RECORDED).events == ()


def test_the_state_that_the_docs_name() -> None:
    old = {
        "segments": [
            {"device": 0, "address": 0, "total_size": 1024, "stream": 0, "segment_type": "small", "blocks": [
                {"size": 512, "state": "active_allocated", "frames": frames(3)},
                {"size": 512, "state": "active_awaiting_free"},
            ]}
        ]
    }  # fmt: skip
    blocks = list(memory.read(old, evidence=RECORDED).blocks)
    assert (
        blocks[0].site == "train.py:3 forward"
        and blocks[1].state == "pending free"
        and blocks[1].address == 512
    )


def test_sites_are_the_users_and_show_no_folder() -> None:
    found = memory.read(raw(), evidence=RECORDED)
    assert [block.site for block in found.blocks][:2] == ["train.py:10 forward", "train.py:20 forward"]
    assert str(frame_of("/tmp/ipykernel_123/456789.py", 7, "step")) == "cell:7 step"
    assert str(frame_of("C:\\Users\\me\\model.py", 4, "f")) == "model.py:4 f"
    only_torch = (frame_of("/x/site-packages/torch/optim/adamw.py", 9, "step"),)
    assert site_of(only_torch) == "adamw.py:9 step" and site_of(()) == ""
    cpp = (
        frame_of("??", 0, "c10::cuda::malloc"),
        frame_of("/w/torch/csrc/x.cpp", 1, "f"),
        frame_of("/srv/u/a.py", 2, "g"),
    )
    assert site_of(cpp) == "a.py:2 g"
    text = "\n".join(map(str, (memory.peak(found), memory.leaks(found, 2), memory.holders(found), found)))
    assert "/" not in text.replace("4/4", "")


def test_peak_and_who_held_it() -> None:
    found = memory.read(raw(), evidence=RECORDED)
    top = memory.peak(found)
    assert (top.bytes, top.after, top.reserved, top.complete) == (15 * MIB + 1024, 6, 22 * MIB, True)
    assert [(h.site, h.bytes, h.blocks) for h in top.holders] == [
        ("train.py:30 log", 9 * MIB + 1024, 2), ("train.py:20 forward", 4 * MIB, 1), ("train.py:10 forward", 2 * MIB, 1),
    ]  # fmt: skip
    assert [h.site for h in memory.holders(found)] == ["train.py:10 forward", "train.py:30 log"]
    line = memory.history(found)
    assert sorted(block.size for block in line.heap(3).live.values()) == [2 * MIB, 4 * MIB]
    assert line.allocated.tolist()[:4] == [0, 0, 2 * MIB, 6 * MIB]
    assert line.pending.tolist()[-1] == 4 * MIB
    with pytest.raises(IndexError, match="0 to 11"):
        line.segments(12)


def cpp(*stack: tuple[str, int, str]) -> dict[str, Any]:
    """raw(), where 2 MiB were asked for by this stack, innermost first."""
    found = raw()
    asked = [{"filename": file, "line": line, "name": name} for file, line, name in stack]
    found["segments"][0]["blocks"][0]["frames"] = asked
    return found


UNWIND, OPERATOR = (
    ("??", 0, "torch::unwind::unwind()"),
    ("", 0, "at::_ops::div_Tensor::call(at::Tensor const&)"),
)
STARTS = [
    ("thread48.o", 0, "execute_native_thread_routine"),
    ("../sysdeps/clone3.S", 81, "__clone3"),
    ("??", 0, "clone"),
]


@pytest.mark.parametrize(
    ("stack", "said"),
    [
        # with stacks="all" CPython's own functions stand between two lines of Python; nobody wrote those here
        ([UNWIND, OPERATOR, ("??", 0, "cfunction_call"), ("call.c", 215, "_PyObject_MakeTpCall"),
          ("/env/lib/python3.11/site-packages/torch/nn/functional.py", 2233, "linear"),
          ("", 0, "_PyEval_EvalFrameDefault"), ("/srv/u/model.py", 22, "forward"), *STARTS], "model.py:22 forward"),
        ([UNWIND, OPERATOR, ("/tmp/torchinductor_u/ab/cab.py", 40, "call"), ("/srv/u/train.py", 9, "step")], "train.py:9 step"),
        ([UNWIND, ("<eval_with_key>.7", 3, "forward"), ("/srv/u/train.py", 9, "step")], "train.py:9 step"),
        # the user's line may have no number (-1, unsigned)
        ([("??", 2**64 - 1, "dynamo_shim"), ("/srv/u/train.py", 9, "step")], "train.py:9 step"),
        # a thread of backward has no Python: the node says what it belongs to
        ([UNWIND, OPERATOR, ("??", 0, "torch::autograd::generated::MeanBackward0::apply(std::vector<at::Tensor>)"), *STARTS],
         "MeanBackward0 (backward)"),
        ([UNWIND, OPERATOR, ("", 0, "torch::autograd::AccumulateGrad::apply(int)"), *STARTS], "AccumulateGrad (backward)"),
        ([UNWIND, OPERATOR, *STARTS], "aten::div_Tensor"),
        ([UNWIND, ("/env/lib/python3.11/site-packages/bitsandbytes/functional.py", 9, "dequantize")], "functional.py:9 dequantize"),
        ([("??", 0, "cuda_init"), *STARTS], "cuda_init"),
    ],
)  # fmt: skip
def test_a_stack_of_cpp_names_the_users_line(stack: list[tuple[str, int, str]], said: str) -> None:
    found = memory.read(cpp(*stack), evidence=RECORDED)
    assert [block.site for block in found.blocks][0] == said
    assert memory.peak(found).holders[0].site != "allocated before the recording"


def test_the_other_gpus_of_a_machine_hold_nothing() -> None:
    """A snapshot is noted as an event of every GPU; only one that had memory makes a choice necessary."""
    many = raw()
    many["device_traces"] += [
        [{"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "frames": []}] for _ in range(3)
    ]
    found = memory.read(many, evidence=RECORDED)
    assert found.device == 0 and len(found.events) == 11
    assert memory.read(many, evidence=RECORDED, device=2).reserved == 0
    many["device_traces"][2].append(many["device_traces"][0][1])
    with pytest.raises(
        memory.SnapshotError, match=r"memory of devices \[0, 2\]: choose one, read\(…, device=0\)"
    ):
        memory.read(many, evidence=RECORDED)


def test_without_frames_sizes_stand_for_sites() -> None:
    bare = raw()
    for entry in [*bare["device_traces"][0], *(b for s in bare["segments"] for b in s["blocks"])]:
        entry.pop("frames", None)
    assert memory.peak(memory.read(bare, evidence=RECORDED)).holders[0].site == "blocks of 9 MiB (no frames)"


def program(model: CachingAllocator, seed: int, count: int, check: Callable[[], None]) -> None:
    """A random program with all that changes blocks: streams, waits, empty_cache, out of memory."""
    rng, live = random.Random(seed), []
    for _ in range(count):
        kind = rng.random()
        try:
            if live and kind < 0.44:
                model.free(live.pop(rng.randrange(len(live))))
            elif live and kind < 0.5:
                address = live.pop(rng.randrange(len(live)))
                model.record_stream(address, 1)
                model.free(address)
            elif kind < 0.52:
                model.empty_cache()
            elif kind < 0.55:
                model.finish()
            else:
                size = rng.choice(
                    [
                        rng.randint(1, 4000),
                        rng.randint(1, MIB),
                        rng.randint(MIB, 12 * MIB),
                        rng.randint(10 * MIB, 60 * MIB),
                    ]
                )
                live.append(
                    model.malloc(size, stream=rng.choice([0, 0, 7]), where=f"site {rng.randint(0, 5)}")
                )
        except OutOfMemory:
            pass
        check()


@pytest.mark.parametrize("capacity", [2048 * MIB, 260 * MIB])
@pytest.mark.parametrize(
    "conf",
    [
        "",
        "max_split_size_mb:32",
        "expandable_segments:True",
        "garbage_collection_threshold:0.6",
    ],
)
def test_history_is_exact(conf: str, capacity: int) -> None:
    """Every byte count and every block the reader rebuilds is the one that the allocator had at that moment."""
    model, truth = CachingAllocator(capacity, conf), {0: (0, 0)}

    def check() -> None:
        stats = model.stats()
        truth[len(model.events)] = stats["allocated_bytes.all.current"], stats["reserved_bytes.all.current"]

    program(model, 3, 300, check)
    found = memory.read(model)
    past = memory.history(found)
    assert past.unmatched == 0 and past.complete
    assert {k: (past.allocated[k], past.reserved[k]) for k in truth} == truth
    assert past.segments(len(past)) == found.segments
    middle = max(k for k in truth if k < len(past) // 2)
    assert past.heap(middle).allocated == truth[middle][0]  # backwards in time too


def test_a_cut_history_still_adds_up() -> None:
    model = CachingAllocator(2048 * MIB)
    program(model, 1, 200, lambda: None)
    model.record_history(True, limit=120, clear=True)
    program(model, 2, 200, lambda: None)
    found = memory.read(model)
    past = memory.history(found)
    assert len(found.events) == 120 and not past.complete and past.unmatched == 0
    assert past.allocated[-1] == found.allocated and past.reserved[-1] == found.reserved
    assert past.allocated[0] > 0 and (past.allocated >= 0).all() and (past.allocated <= past.reserved).all()
    sites = {site_of(block.frames) for block in past.heap(0).live.values()}
    assert "allocated before the recording" in sites or all(site.startswith("site") for site in sites)
    assert f"begins with {memory.size_text(int(past.allocated[0]))} already allocated" in str(
        memory.peak(found)
    )


def training(steps: int, leaky: bool) -> tuple[memory.Snapshot, list[int]]:
    model = CachingAllocator(512 * MIB)
    weights = [model.malloc(4 * MIB, where=frames(5, "__init__")) for _ in range(3)]
    bounds, state = [len(model.events)], []
    for step in range(steps):
        passed = [model.malloc(3 * MIB, where=frames(20)) for _ in weights]
        if not step:
            state = [model.malloc(8 * MIB, where=frames(50, "adam")) for _ in weights]
        if leaky:
            model.malloc(100 * KIB, where=frames(31, "log_loss"))
        for address in passed:
            model.free(address)
        bounds.append(len(model.events))
    assert state
    return memory.read(model), bounds


def test_leaks_are_named_and_caches_are_not() -> None:
    found, bounds = training(5, leaky=True)
    worst, state = memory.leaks(found, bounds)
    assert worst.site == "train.py:31 log_loss" and worst.grows
    assert worst.per_step == (100 * KIB,) * 5 and worst.bytes == 500 * KIB and worst.blocks == 5
    assert state.site == "train.py:50 adam" and not state.grows
    assert state.per_step[0] >= 24 * MIB and state.per_step[1:] == (0, 0, 0, 0)
    assert "from every step" in str(worst) and "from 1 of 5 steps" in str(state)
    assert memory.leaks(found, 3)[0].site == worst.site
    clean, bounds = training(5, leaky=False)
    assert [leak.site for leak in memory.leaks(clean, bounds) if leak.grows] == []
    for bad in (0, [3], [5, 1], [0, 10_000]):
        with pytest.raises(ValueError, match="steps="):
            memory.leaks(found, bad)


def test_fragmentation_tells_scattered_from_whole() -> None:
    model = CachingAllocator(512 * MIB)
    held = [model.malloc(4 * MIB) for _ in range(5)]
    for address in held[::2]:
        model.free(address)
    scattered = memory.fragmentation(memory.read(model))
    assert (scattered.free, scattered.largest, scattered.blocks) == (12 * MIB, 4 * MIB, 3)
    assert scattered.scattered == pytest.approx(2 / 3) and scattered.stuck == 12 * MIB
    for address in held[1::2]:
        model.free(address)
    whole = memory.fragmentation(memory.read(model))
    assert (whole.free, whole.largest, whole.scattered, whole.stuck) == (20 * MIB, 20 * MIB, 0, 0)
    assert memory.fragmentation(memory.read(CachingAllocator(MIB))).scattered == 0


def test_what_empty_cache_would_give_back() -> None:
    for conf in ("", "expandable_segments:True"):
        model = CachingAllocator(512 * MIB, conf)
        held = [model.malloc(30 * MIB) for _ in range(4)]
        for address in held[1:]:
            model.free(address)
        before = memory.read(model)
        model.empty_cache()
        after = memory.read(model)
        assert before.reserved - after.reserved == before.releasable > 0
        assert after.allocated == before.allocated


PROGRAM = """
a = 2 MiB
b = 10 MiB
c = 600           # the small pool
free a
d = 1.5 MiB on 1
b.record_stream(1)
free b
synchronize
e = 12 MiB
f = 400 MiB
del e
empty_cache()
"""


def test_each_step_in_words() -> None:
    steps = memory.steps_of(PROGRAM)
    assert len(steps) == 12 and steps.evidence == "simulated (allocator)"
    told = [steps.move(i).text for i in range(len(steps) + 1)]
    assert told == [
        "an empty allocator",
        "malloc of 2 MiB: no free block fits: cudaMalloc of a segment of 20 MiB; split: 2 MiB used, 18 MiB remain",
        "malloc of 10 MiB: a free block of 18 MiB fits, no call to CUDA; split: 10 MiB used, 8 MiB remain",
        "malloc of 600 B (rounded up to 1 KiB): no free block fits: cudaMalloc of a segment of 2 MiB; split: 1 KiB "
        "used, 2.00 MiB remain",
        "free of 2 MiB: its neighbours are in use, nothing to merge with",
        "malloc of 1.50 MiB: no free block fits: cudaMalloc of a segment of 20 MiB; split: 1.50 MiB used, 18.5 MiB "
        "remain",
        "noted: a free will wait for what is in that stream by then",
        "free of 10 MiB: another stream may still use the block, so it waits",
        "the host waited; blocks that waited for another stream come back at the next malloc",
        "malloc of 12 MiB: 10 MiB that waited for another stream are free again; a free block of 20 MiB fits, no call "
        "to CUDA; split: 12 MiB used, 8 MiB remain",
        "out of memory: 400 MiB asked for, CUDA has 214 MiB left; the largest free block has 18.5 MiB",
        "free of 12 MiB: merged with the free block after it, 20 MiB free in one piece, the whole segment is free, "
        "and stays reserved",
        "cudaFree: 20 MiB go back to CUDA",
    ]
    assert steps.move(5).touched is not None and steps.move(5).touched[1] == 1.5 * MIB
    with pytest.raises(IndexError, match="0 to 12"):
        steps.move(13)


def test_words_without_a_split_and_with_pages() -> None:
    assert memory.steps_of("a = 6 MiB; free a").lines == ("a = 6 MiB", "free a")
    steps = memory.steps_of(["a = 19.5 MiB"])
    assert "not split: the 512 KiB left over stay inside the block" in steps.move(1).text
    assert (
        memory.steps_of(["a = 256 MiB", "b = 9 MiB"])
        .move(2)
        .text.endswith("CUDA has 0 B left; no block is free")
    )
    assert "used whole" in memory.steps_of(["a = 40 MiB"]).move(1).text
    pages = memory.steps_of(["a = 30 MiB", "free a", "empty_cache"], "expandable_segments:True")
    assert (
        "40 MiB more are mapped" in pages.move(1).text
        and pages.move(3).text == "unmapped: 40 MiB go back to CUDA"
    )
    both = memory.steps_of(["a = 2 MiB", "b = 2 MiB", "c = 2 MiB", "d = 2 MiB", "free a", "free c", "free b"])
    assert "free blocks on both sides, 6 MiB free in one piece" in both.move(7).text


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["a = 2 MB"], "line 1 .*a line is one of"),
        (["a = 2 MiB", "free b"], "line 2 .*b is not allocated"),
        (["a = 2 MiB", "a = 2 MiB"], "allocated already"),
        (["a = 2 MiB", "free a", "free a"], "line 3"),
        (["x = 900 MiB", "free x"], "x is not allocated"),
        (["import os"], "a line is one of"),
    ],
)
def test_programs_that_cannot_be_read(lines: list[str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        memory.steps_of(lines)


def test_sizes_in_words() -> None:
    said = [
        memory.size_text(n)
        for n in (0, 512, 1023, 1024, 1536, 20 * MIB, 20 * MIB - 512, -3 * MIB, 5 << 40, 1 << 30)
    ]
    assert said == [
        "0 B",
        "512 B",
        "1,023 B",
        "1 KiB",
        "1.50 KiB",
        "20 MiB",
        "20.0 MiB",
        "-3 MiB",
        "5,120 GiB",
        "1 GiB",
    ]


def test_names_stay_functions_after_their_modules_are_loaded() -> None:
    """A submodule called like a function would take its place in the package once it is imported."""
    import types

    for name in memory.__all__:
        getattr(memory, name)
    assert not [name for name in memory.__all__ if isinstance(getattr(memory, name), types.ModuleType)]


def test_the_simulated_gpu_is_read_like_a_real_one(tmp_path: Path) -> None:
    from helpers import simulate

    gpu, kept = simulate("H100"), []
    with gpu:
        gpu.memory._record_memory_history()
        net = torch.nn.Linear(1024, 1024).to(gpu.device)
        for _ in range(3):
            loss = net(torch.randn(256, 1024, device=gpu.device)).square().mean()
            loss.backward()
            kept.append(loss)  # the graph stays with it
        del loss
        found = memory.read(gpu)
        gpu.memory._dump_snapshot(str(tmp_path / "dump.pickle"))
        assert found.allocated == gpu.memory_allocated() and found.reserved == gpu.memory_reserved()
        assert memory.peak(found).bytes == gpu.max_memory_allocated()
    assert found.evidence == "simulated (H100)" and memory.history(found).unmatched == 0
    from_file = memory.read(tmp_path / "dump.pickle")
    assert from_file.segments == found.segments and from_file.evidence == found.evidence
    assert any(holder.site.startswith("test_memory.py:") for holder in memory.peak(found).holders)
