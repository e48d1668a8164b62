"""helpers.ranks: processes that begin, answer, fail and end as told; records that equal the arithmetic."""

import _thread
import contextlib
import dataclasses
import functools
import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from helpers import check, count, ranks
from helpers.ranks import CannotCarry, RankError, carrying, run_ranks, starting
from helpers.ranks.costs import steps

pytest.importorskip("cloudpickle", reason="functions of a test travel as code")
WIDTH = 64
LAYER = (WIDTH * WIDTH + WIDTH) * 4  # bytes of one nn.Linear(64, 64) in float32
LOCK = threading.Lock()


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Every test's temporary files lie here, and none is left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # as if this file were a notebook: what a rank imported by its name would bring all of pytest along
    by_name = carrying._importable
    monkeypatch.setattr(
        carrying, "_importable", lambda module: module.__name__ != __name__ and by_name(module)
    )
    yield tmp_path
    assert not list(tmp_path.glob("ranks-*"))


@pytest.fixture(scope="module", autouse=True)
def the_end() -> Iterator[None]:
    yield
    starting.drop()


def gone(*pids: int) -> bool:
    """Whether these processes have ended; a zombie has."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# ── what goes in and what comes out ────────────────────────────────────────────────────────────────────────────────


@dataclasses.dataclass
class Shape:
    width: int


class Net(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(shape.width, shape.width), nn.Linear(shape.width, shape.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x))


def logged(fn: Any) -> Any:
    @functools.wraps(fn)
    def call(*args: Any) -> Any:
        return fn(*args)

    return call


@logged
def factorial(n: int) -> int:
    return 1 if n < 2 else n * factorial(n - 1)


def test_results_arguments_and_what_a_function_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offset, double = 3, lambda v: 2 * v
    monkeypatch.setenv("COURSE_TEST", "there")
    monkeypatch.chdir(tmp_path)

    def job(state: dict[str, Any], model: Net, shape: Shape) -> dict[str, Any]:
        rank = dist.get_rank()
        x = torch.full((2,), float(rank))
        dist.all_reduce(x)
        net = Net(shape)
        net.load_state_dict(state)
        same = torch.equal(net(torch.ones(1, shape.width)), model(torch.ones(1, shape.width)))
        return {
            "rank": (rank, dist.get_world_size(), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])),
            "sum": x,
            "view": torch.arange(1000)[5:7],
            "array": np.arange(3, dtype=np.int16) + rank,
            "names": [offset, double(4), WIDTH, factorial(5)],
            "same": same,
            "set": {1, 2},
            "dtype": x.dtype,
            "random": torch.rand(1).item(),
            "there": (os.environ["COURSE_TEST"], os.getcwd(), torch.get_num_threads()),
            "nothing": None,
        }

    shape = Shape(4)
    model = Net(shape)
    results = run_ranks(job, 3, model.state_dict(), model, shape, threads=2)
    assert [r["rank"] for r in results] == [(0, 3, 0, 3), (1, 3, 1, 3), (2, 3, 2, 3)]
    for i, r in enumerate(results):
        assert torch.equal(r["sum"], torch.full((2,), 3.0)) and torch.equal(r["view"], torch.tensor([5, 6]))
        assert r["view"].untyped_storage().nbytes() == 16
        assert r["array"].dtype == np.int16 and r["array"].tolist() == [i, 1 + i, 2 + i]
        assert (
            r["names"] == [3, 8, WIDTH, 120]
            and r["same"]
            and r["set"] == {1, 2}
            and r["dtype"] is torch.float32
        )
        assert r["there"] == ("there", str(tmp_path), 2) and r["nothing"] is None
        assert r["random"] == results[0]["random"]


def test_a_function_of_an_importable_module_goes_by_name() -> None:
    assert run_ranks(dist.get_rank, 2) == [0, 1]


def test_output_is_shown_by_rank_and_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    def talk() -> None:
        import warnings

        for i in range(3):
            print("line", i)
            if dist.get_rank() == 0:
                dist.barrier()
        if dist.get_rank() == 1:
            for _ in range(3):
                dist.barrier()
            warnings.warn("mind", stacklevel=1)
            os.write(1, b"from C++: not shown\n")
        print("no newline", end="")

    run_ranks(talk, 2)
    one = ["line 0", "line 1", "line 2", "no newline"]
    other = ["line 0", "line 1", "line 2", "UserWarning: mind", "no newline"]
    assert capsys.readouterr().out.splitlines() == [f"[rank 0] {t}" for t in one] + [
        f"[rank 1] {t}" for t in other
    ]


def test_very_much_output_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    run_ranks(lambda: print("x" * 99, *range(20_000), sep="\n"), 1)
    out = capsys.readouterr().out
    assert len(out) < 60_000 and "characters more" in out


# ── what cannot go ─────────────────────────────────────────────────────────────────────────────────────────────────


def locked() -> bool:
    return LOCK.locked()


def test_what_cannot_be_carried_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def through() -> bool:
        return locked()

    with pytest.raises(CannotCarry, match=r"'LOCK', which locked uses, is a lock and cannot"):
        run_ranks(through, 2)
    with (tmp_path / "log").open("w") as log:
        with pytest.raises(CannotCarry, match=r"'log', which \S+ uses, is an open file"):
            run_ranks(lambda: log.name, 2)
        with pytest.raises(CannotCarry, match="argument 2 is an open file"):
            run_ranks(print, 2, 1, log)
    monkeypatch.setattr("helpers.ranks.carrying.MOST", 10_000)
    table = torch.zeros(10_000)
    with pytest.raises(CannotCarry, match=r"'table', which \S+ uses, is a Tensor of 4\d,\d{3} bytes"):
        run_ranks(lambda: table.sum(), 2)
    with pytest.raises(CannotCarry, match="wants a function, got a int"):
        run_ranks(3, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value, text",
    [
        (lambda: [nn.Linear(1, 1)], r"the result\[0\] is a Linear, .* state_dict"),
        (lambda: {"a": (i for i in [])}, r"the result\['a'\] is a generator"),
    ],
)
def test_what_cannot_be_handed_back_is_named(value: Any, text: str) -> None:
    with pytest.raises(RankError, match=text) as caught:
        run_ranks(value, 1)
    assert caught.value.kind == "CannotCarry"


# ── how runs fail ──────────────────────────────────────────────────────────────────────────────────────────────────


def deep(rank: int) -> None:
    if rank == 1:
        raise KeyError("no such bucket")


def test_an_exception_is_raised_here_with_rank_and_line() -> None:
    def job() -> None:
        deep(dist.get_rank())
        dist.barrier()  # rank 0 and 2 wait here for ever

    with pytest.raises(RankError) as caught:
        run_ranks(job, 3)
    error = caught.value
    assert (error.rank, error.kind, error.text) == (1, "KeyError", "'no such bucket'")
    assert "rank 1 of 3 raised KeyError" in str(error)
    assert "in job: deep(dist.get_rank())" in error.where[0] and error.where[0].startswith("test_ranks.py:")
    assert 'in deep: raise KeyError("no such bucket")' in error.where[-1]
    assert error._render_traceback_() == [f"RankError: {error}"]


def test_a_hang_ends_at_the_time_out_and_says_who_and_where(tmp_path: Path) -> None:
    def job(folder: str) -> None:
        (Path(folder) / str(dist.get_rank())).write_text(str(os.getpid()))
        if dist.get_rank() == 1:
            dist.recv(torch.zeros(1), src=0)
        if dist.get_rank() == 2:
            threading.Event().wait()

    with pytest.raises(RankError) as caught:
        run_ranks(job, 3, str(tmp_path), timeout=1)
    error = caught.value
    assert error.kind == "TimeoutError" and error.rank == 1 and list(error.unfinished) == [1, 2]
    assert "dist.recv(torch.zeros(1), src=0)  (waiting in recv)" in error.unfinished[1]
    assert "in job: threading.Event().wait()" in error.unfinished[2]
    assert "2 of 3 ranks had not finished after 1 s" in str(error) and "rank 0 had finished" in str(error)
    assert gone(*[int((tmp_path / str(i)).read_text()) for i in range(3)])


@pytest.mark.skipif(not starting.FORKS, reason="what a thread waits for is read from Linux's /proc")
def test_ranks_that_wait_for_one_another_are_ended_before_the_time_is_up() -> None:
    """One that computes is waited for, however long it takes."""

    def job() -> None:
        until = time.process_time() + 1.5 * (dist.get_rank() == 0)
        while time.process_time() < until:
            pass
        dist.recv(torch.zeros(1), src=1 - dist.get_rank())

    with pytest.raises(RankError, match="2 of 2 ranks had waited, all of them, for 0.5 s") as caught:
        run_ranks(job, 2, stuck=0.5)
    assert caught.value.kind == "TimeoutError" and all(
        "recv" in at for at in caught.value.unfinished.values()
    )


@pytest.mark.parametrize(
    "end, kind, text",
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "Died", "killed by SIGKILL"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "Died", "killed by SIGSEGV"),
        (lambda: os.abort(), "Died", "it was at test_ranks.py"),
        (lambda: os._exit(3), "Died", "exit status 3"),
        (lambda: sys.exit(4), "SystemExit", "raised SystemExit: 4"),
    ],
)
def test_a_rank_that_ends_by_itself_is_named(end: Any, kind: str, text: str) -> None:
    def job() -> None:
        if dist.get_rank() == 1:
            end()
        dist.barrier()

    with pytest.raises(RankError, match="rank 1 of 2") as caught:
        run_ranks(job, 2)
    assert caught.value.kind == kind and text in str(caught.value)
    assert "Thread 0x" not in str(caught.value)  # a stack is not for a reader


def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    def job(folder: str) -> None:
        (Path(folder) / f"pid{dist.get_rank()}").write_text(str(os.getpid()))
        dist.barrier()
        (Path(folder) / "now").touch()
        threading.Event().wait()

    def interrupt() -> None:
        while not (tmp_path / "now").exists():
            time.sleep(0.01)
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            run_ranks(job, 2, str(tmp_path))
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert gone(*[int((tmp_path / f"pid{i}").read_text()) for i in range(2)])
    assert run_ranks(dist.get_rank, 2) == [0, 1]


def test_it_works_after_the_kernel_has_used_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        for _ in range(3):
            (torch.randn(400, 400) @ torch.randn(400, 400)).sum().item()

        def job() -> float:
            x = torch.ones(300, 300) @ torch.ones(300, 300)
            dist.all_reduce(x)
            return x.sum().item()

        assert run_ranks(job, 2, threads=2) == [2 * 300.0**3] * 2
    finally:
        torch.set_num_threads(before)


def test_ten_runs_in_a_row_leave_nothing(tmp_path: Path) -> None:
    def job() -> tuple[int, int, int]:
        # in a session of its own, and its parent has ended: nobody but the server can find it
        script = "import subprocess as s; print(s.Popen(['sleep', '600'], start_new_session=True, stdout=s.DEVNULL, stderr=s.DEVNULL).pid)"
        started = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        child = subprocess.Popen(["sleep", "600"])
        return os.getpid(), child.pid, int(started.stdout)

    run_ranks(dist.get_rank, 2)
    files = len(os.listdir("/proc/self/fd"))
    pids: list[int] = []
    for _ in range(10):
        for result in run_ranks(job, 1):
            pids += result
    assert gone(*pids) and len(set(pids)) == 30
    assert len(os.listdir("/proc/self/fd")) == files


def test_without_fork_ranks_are_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "FORKS", False)

    def job() -> tuple[float, int]:
        x = torch.ones(1)
        dist.all_reduce(x)
        print("here")
        return x.item() * WIDTH, os.getpid()

    results = run_ranks(job, 2)
    assert [r[0] for r in results] == [2.0 * WIDTH] * 2 and gone(*[r[1] for r in results])


def test_ranks_see_no_gpu_and_need_no_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where torch is built for CUDA: what takes the machine's device unless it is told stays on the CPU."""
    cuda = torch.device("cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr("torch._C._get_accelerator", lambda *_: cuda)  # a rank is no copy of this process

    def job() -> tuple[str, str, str]:
        import os

        from torch.distributed.fsdp import fully_shard

        built_for = torch._C._get_accelerator().type
        model = fully_shard(nn.Linear(4, 2))
        model(torch.ones(1, 4)).sum().backward()
        return os.environ["CUDA_VISIBLE_DEVICES"], built_for, model.weight.device.type

    assert run_ranks(job, 2) == [("", "cpu", "cpu")] * 2
    with ranks.fake(2):
        assert job()[1:] == ("cpu", "cpu")
    assert torch._C._get_accelerator() == cuda


def test_the_server_asks_for_no_gpu() -> None:
    """Before a rank has hidden them: CUDA counts the GPUs of a process once."""
    script = """if True:
        import torch

        def refused(*_):
            raise AssertionError("asked for a GPU")

        for name in ("is_available", "device_count", "init", "_lazy_init"):
            setattr(torch.cuda, name, refused)
        from helpers.ranks import server
        server.load()
        """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8")
    assert not done.returncode, done.stderr[-2000:]


NOTEBOOK = '''
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
cells = ["""
import os, torch, torch.distributed as dist
from helpers import ranks
SCALE = 2
class Net(torch.nn.Linear):
    pass
""", """
def job(fail):
    net = Net(2, 2)
    if fail and dist.get_rank() == 1:
        raise ValueError("mine")
    return SCALE * dist.get_rank()
print(ranks.run_ranks(job, 2, False))
""", """
try:
    ranks.run_ranks(job, 2, True)
except ranks.RankError as error:
    print(error)
""", """
import threading
def hang():
    print_to = os.environ["PIDS"]
    with open(print_to + str(dist.get_rank()), "w") as f:
        f.write(str(os.getpid()))
    dist.barrier()
    open(print_to, "w").close()
    threading.Event().wait()
ranks.run_ranks(hang, 2)
"""]
for cell in cells:
    shell.run_cell(cell).raise_error()
'''


@pytest.mark.slow
def test_in_ipython_and_when_the_kernel_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    script, pids = tmp_path / "notebook.py", tmp_path / "pids"
    script.write_text(NOTEBOOK)
    environ = os.environ | {"PIDS": str(pids), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environ |= {"IPYTHONDIR": str(tmp_path), "TMPDIR": str(tmp_path / "t")}
    (tmp_path / "t").mkdir()
    with subprocess.Popen(
        [sys.executable, "-u", script], env=environ, stdout=subprocess.PIPE, text=True
    ) as kernel:
        until = time.monotonic() + 120
        while not pids.exists() and kernel.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        kernel.kill()
        out = kernel.communicate()[0]
    assert "[0, 2]" in out
    assert 'rank 1 of 2 raised ValueError: mine\n  cell, line 4, in job: raise ValueError("mine")' in out
    assert gone(*[int(Path(f"{pids}{i}").read_text()) for i in range(2)])


SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(x)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {x.item()}", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_script_runs_under_torchrun(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(script),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # both write to one pipe, and torchrun has them unbuffered: a line and its end need not stay together
    assert sorted(re.findall(r"rank \d of 2: 3\.0", done.stdout)) == ["rank 0 of 2: 3.0", "rank 1 of 2: 3.0"]


# ── what was sent ──────────────────────────────────────────────────────────────────────────────────────────────────


def three() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(3)])


def ddp_steps(model: nn.Module, passes: int) -> ranks.Record:
    wrapped = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=LAYER / 2**20)
    for _ in range(2):  # buckets are laid out again when the second begins
        wrapped(torch.ones(2, WIDTH)).sum().backward()
    with ranks.sent(model) as record:
        for _ in range(passes):
            wrapped(torch.ones(2, WIDTH)).sum().backward()
    return record


def assert_ddp(record: ranks.Record, n: int) -> None:
    """Three buckets of a layer each, the last layer's first, each as soon as it is full."""
    calls = record.calls
    assert [c.kind for c in calls] == ["all_reduce"] * 3 and [c.bytes for c in calls] == [LAYER] * 3
    assert [c.at.partition(".")[0] for c in calls] == ["2", "1", "0"] and [c.reached for c in calls] == [
        2,
        4,
        6,
    ]
    assert all(c.phase == "backward" and c.asynchronous and c.group == tuple(range(n)) for c in calls)
    assert record.gradients[::2] == ["2.bias", "1.bias", "0.bias"] and record.passes == [6]
    assert [c.index for c in record.overlapped()] == [0, 1]
    assert record.wire_bytes("ring") == pytest.approx(3 * 2 * LAYER * (n - 1) / n)


def test_ddp_is_seen_bucket_by_bucket() -> None:
    for i, record in enumerate(run_ranks(lambda: ddp_steps(three(), 1), 2)):
        assert record.rank == i and record.world_size == 2 and not record.fake
        assert_ddp(record, 2)
        plain = record.as_dict()
        assert plain["counts"] == {"all_reduce": 3} and plain["bytes"] == {"all_reduce": 3 * LAYER}
        assert plain["overlapped"] == 2 and plain["calls"][0]["dtype"] == "float32"
        assert "payload (bytes)" in repr(record) and "rank" in record._repr_html_()


def test_no_sync_and_two_passes() -> None:
    def job() -> tuple[ranks.Record, ranks.Record]:
        model = three()
        wrapped = nn.parallel.DistributedDataParallel(model)
        with ranks.sent(model) as quiet, wrapped.no_sync():
            wrapped(torch.ones(2, WIDTH)).sum().backward()
        return quiet, ddp_steps(three(), 2)

    quiet, twice = run_ranks(job, 2)[0]
    assert quiet.count() == 0 and quiet.passes == [6]
    assert [c.passes for c in twice.calls] == [1, 1, 1, 2, 2, 2] and twice.passes == [6, 12]
    assert [c.index for c in twice.overlapped()] == [0, 1, 3, 4]


def every_kind() -> ranks.Record:
    import torch.distributed._functional_collectives as functional

    rank, world = dist.get_rank(), dist.group.WORLD
    other, x, whole = 1 - rank, torch.ones(4), torch.ones(8)
    pair = [torch.empty(4), torch.empty(4)]
    with ranks.sent() as record:
        dist.all_reduce(x)
        dist.all_reduce(x, op=dist.ReduceOp.MAX, async_op=True).wait()
        dist.broadcast(x, 1)
        dist.reduce(x, 0)
        dist.all_gather(pair, x)
        (getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor)(whole, x)
        (getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor)(x, whole)
        dist.gather(x, pair if rank == 0 else None, dst=0)
        dist.scatter(x, pair if rank == 0 else None, src=0)
        dist.all_to_all_single(whole, torch.ones(8))
        dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
        works = [dist.isend(x, other), dist.irecv(torch.empty(4), other)]
        works += dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, x, other), dist.P2POp(dist.irecv, torch.empty(4), other)]
        )
        for work in works:
            work.wait()
        functional.wait_tensor(functional.all_reduce(x, "sum", world))
        dist.barrier()
        world._get_backend(torch.device("cpu")).allreduce([x]).wait()
    return record


def test_every_kind_of_call_is_seen() -> None:
    first, second = run_ranks(every_kind, 2)
    seen = [(c.kind, c.bytes, c.asynchronous) for c in first.calls]
    assert seen == [
        ("all_reduce", 16, False),
        ("all_reduce", 16, True),
        ("broadcast", 16, False),
        ("reduce", 16, False),
        ("all_gather", 32, False),
        ("all_gather", 32, False),
        ("reduce_scatter", 32, False),
        ("gather", 32, False),
        ("scatter", 32, False),
        ("all_to_all", 32, False),
        ("send", 16, False),
        ("send", 16, True),
        ("recv", 16, True),
        ("send", 16, True),
        ("recv", 16, True),
        ("all_reduce", 16, True),
        ("barrier", 0, False),
        ("all_reduce", 16, True),
    ]
    assert [c.peer for c in first.calls[:4]] == [None, None, 1, 0] and first.calls[10].peer == 1
    assert [c.reduction for c in first.calls[:4]] == ["sum", "max", "", "sum"]
    assert (
        second.calls[10].kind == "recv" and second.calls[10].peer == 0 and not second.calls[10].asynchronous
    )
    assert first.calls[-1].operator == "Backend.allreduce" and first.calls[0].operator == "c10d::allreduce_"
    assert all(c.waited == 0 for c in first.calls if c.operator != "c10d::allreduce_")
    assert first.count("send", "recv") == 5 and first.bytes("send") == 48


def by_hand(how: str) -> ranks.Record:
    """One all-reduce a parameter: in hooks or after backward, waited for at once or at the end."""
    model, works = three(), []

    def hook(p: torch.Tensor) -> None:
        work = dist.all_reduce(p.grad, async_op=True)
        if how == "future":
            work.get_future().wait()
        elif how == "at once":
            work.wait()
        else:
            works.append(work)

    with ranks.sent(model) as record:
        for p in model.parameters():
            if how == "on the tensor":
                p.register_hook(lambda g: dist.all_reduce(g))
            elif how != "after":
                p.register_post_accumulate_grad_hook(hook)
        model(torch.ones(2, WIDTH)).sum().backward()
        if how == "after":
            for p in model.parameters():
                hook(p)
        for work in works:
            work.wait()
    return record


def test_every_way_to_wait_is_heard() -> None:
    def poll(work: Any) -> None:
        while not work.is_completed():
            pass
        work.is_completed()

    def wait_all(work: Any) -> None:
        torch.futures.wait_all([work.get_future()])

    def then(work: Any) -> None:
        work.get_future().then(lambda future: future.value()).wait()

    def ask(work: Any) -> None:
        work.is_completed()

    def job() -> list[Any]:
        waited: list[Any] = []
        for way in (poll, wait_all, then, ask):
            x = torch.ones(8)
            with ranks.sent() as record:
                work = dist.all_reduce(x, async_op=True)
                way(work)
            work.wait()
            waited.append((x.tolist(), record.calls[0].waited))
        return waited

    for ways in run_ranks(job, 2):
        assert ways == [([2.0] * 8, 0)] * 3 + [([2.0] * 8, None)]


def test_inference_mode_hides_nothing() -> None:
    def job() -> Any:
        x = torch.ones(8)
        with torch.inference_mode(), ranks.sent() as record:
            dist.all_reduce(x)
            dist.all_reduce(torch.ones(4), async_op=True).wait()
            dist.all_gather([torch.empty(3) for _ in range(2)], torch.ones(3))
        return x, [(c.kind, c.bytes, c.asynchronous) for c in record.calls]

    for x, calls in ranks.run_ranks(job, 2):
        assert x.tolist() == [2.0] * 8
        assert calls == [("all_reduce", 32, False), ("all_reduce", 16, True), ("all_gather", 24, False)]


def test_overlap_is_told_from_its_imitations() -> None:
    ways = ["at the end", "at once", "future", "on the tensor", "after"]
    by_way = dict(zip(ways, run_ranks(lambda: [by_hand(way) for way in ways], 2)[0], strict=True))
    assert [len(by_way[way].overlapped()) for way in ways] == [5, 0, 0, 0, 0]
    for way in ways[:-1]:
        assert [c.reached for c in by_way[way].calls] == [1, 2, 3, 4, 5, 6], way
        assert [c.at for c in by_way[way].calls] == by_way[way].gradients, way
    assert {c.phase for c in by_way["after"].calls} == {"forward"}
    assert [c.waited for c in by_way["at the end"].calls] == [6] * 6
    assert [c.waited for c in by_way["at once"].calls] == [1, 2, 3, 4, 5, 6]


def test_what_a_comm_hook_sends_from_a_callback_is_seen() -> None:
    def job() -> ranks.Record:
        def hook(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            def again(future: Any) -> torch.Tensor:
                dist.all_reduce(torch.ones(3, dtype=torch.bfloat16))
                return future.value()[0]

            return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(again)

        model = nn.Linear(WIDTH, WIDTH)
        wrapped = nn.parallel.DistributedDataParallel(model)
        wrapped.register_comm_hook(None, hook)
        with ranks.sent(model) as record:
            wrapped(torch.ones(1, WIDTH)).sum().backward()
        return record

    first, second = [c for c in run_ranks(job, 2)[0].calls if c.kind == "all_reduce"]
    assert (first.bytes, first.phase, second.bytes) == (LAYER, "backward", 6)
    # gloo's thread runs the callback, or backward itself where the sum was there already
    assert second.phase in ("thread", "backward")


def test_recording_keeps_nothing_alive_and_puts_everything_back() -> None:
    def job() -> tuple[bool, bool, int]:
        wait, x = dist.Work.wait, torch.ones(100)
        with ranks.sent() as record:
            seen = weakref.ref(x.untyped_storage())
            dist.all_reduce(x, async_op=True).wait()
            del x
            gc.collect()
            # gloo's own thread lets go of what it sent a moment after it woke who waits
            until = time.monotonic() + 30
            while (alive := seen() is not None) and time.monotonic() < until:
                time.sleep(0.01)
        dist.all_reduce(torch.ones(1))
        return alive, dist.Work.wait is wait, record.count()

    assert run_ranks(job, 2) == [(False, True, 1)] * 2


def test_a_rank_counts_too() -> None:
    def job() -> int:
        import torch._dynamo

        with count() as counts:
            (torch.ones(4) + 1).sum()
        return counts.new_storages

    assert run_ranks(job, 2) == [3, 3]


def test_a_class_that_names_an_operator_travels() -> None:
    ops = torch.ops

    class Doubles:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return ops.aten.add.Tensor(x, x)

    def job(kind: Any) -> torch.Tensor:
        return torch.ops.aten.neg.default(kind()(torch.ones(2)))

    assert run_ranks(job, 1, Doubles)[0].tolist() == [-2.0, -2.0]


# ── fake groups ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("n", [8, 64, 1024])
def test_ddp_on_a_fake_group_sends_what_the_formula_says(n: int) -> None:
    hook = sys.excepthook
    with ranks.fake(n, rank=n // 2):
        record = ddp_steps(three(), 1)
    assert_ddp(record, n)
    assert record.fake and (record.rank, record.world_size) == (n // 2, n)
    assert not dist.is_initialized() and sys.excepthook is hook


@pytest.mark.parametrize("n", [8, 64, 1024])
def test_fsdp_on_a_fake_group_sends_what_the_formula_says(n: int) -> None:
    from torch.distributed.fsdp import fully_shard

    with ranks.fake(n) as mesh:
        model = three()
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        with ranks.sent(model) as record:
            model(torch.ones(2, WIDTH)).sum().backward()
    # every parameter is cut along its first dimension, in n equal parts: 64 rows become 1,024 on 1,024 ranks
    layer_bytes = (WIDTH + 1) * max(WIDTH, n) * 4
    assert [c.bytes for c in record.calls] == [layer_bytes] * 9
    assert [c.kind for c in record.calls] == ["all_gather"] * 6 + ["reduce_scatter"] * 3 or record.count(
        "all_gather"
    ) == 6
    assert [c.at for c in record.calls[:3]] == ["0", "1", "2"]
    assert record.wire_bytes() == pytest.approx(9 * layer_bytes * (n - 1) / n)


def test_a_fake_mesh_of_two_dimensions() -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    with ranks.fake(64, mesh={"data": 8, "tensor": 8}) as mesh:
        model = nn.Sequential(nn.Linear(WIDTH, 128), nn.ReLU(), nn.Linear(128, WIDTH))
        parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        with ranks.sent() as record:
            model(torch.ones(2, WIDTH, requires_grad=True)).sum().backward()
    assert [(c.kind, c.bytes, c.phase) for c in record.calls] == [
        ("all_reduce", 2 * WIDTH * 4, "forward"),
        ("all_reduce", 2 * WIDTH * 4, "backward"),
    ]
    assert record.calls[0].group == tuple(range(8))


def test_waits_of_a_fake_group_are_heard() -> None:
    with ranks.fake(4), ranks.sent() as record:
        at_once, later = torch.ones(3), torch.ones(3)
        first = dist.all_reduce(at_once, async_op=True)
        first.wait()
        second = dist.all_reduce(later, async_op=True)
        dist.all_reduce(torch.ones(1), async_op=True)
        second.wait()
    assert [call.waited for call in record.calls][2] is None and None not in [c.waited for c in record.calls][
        :2
    ]


def test_fake_groups_say_what_is_wrong() -> None:
    with ranks.fake(4), pytest.raises(RuntimeError, match="initialised already.*destroy_process_group"):
        with ranks.fake(8):
            pass
    assert not dist.is_initialized()
    with pytest.raises(ValueError, match="numbered from 0"), ranks.fake(4, rank=4):
        pass
    with pytest.raises(ValueError, match="6 ranks, the group 8"), ranks.fake(8, mesh={"a": 2, "b": 3}):
        pass
    with contextlib.suppress(ZeroDivisionError), ranks.fake(2):
        raise ZeroDivisionError
    assert not dist.is_initialized()


# ── costs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def ring(x: torch.Tensor) -> torch.Tensor:
    """All-reduce from sends and receives: n - 1 steps to add up, n - 1 to hand round."""
    n, rank = dist.get_world_size(), dist.get_rank()
    parts = list(x.chunk(n))
    for step in range(2 * (n - 1)):
        out = torch.empty_like(parts[0])
        work = dist.isend(parts[(rank - step) % n].clone(), (rank + 1) % n)
        dist.recv(out, (rank - 1) % n)
        work.wait()
        at = (rank - step - 1) % n
        parts[at] = parts[at] + out if step < n - 1 else out
    return torch.cat(parts)


def test_a_real_ring_puts_on_the_wire_what_the_formula_says() -> None:
    def job(elements: int) -> tuple[torch.Tensor, ranks.Record]:
        with ranks.sent() as record:
            done = ring(torch.arange(float(elements)) + dist.get_rank())
        return done, record

    for n in (2, 4):
        for done, record in run_ranks(job, n, 48):
            assert torch.equal(done, n * torch.arange(48.0) + n * (n - 1) / 2)
            assert record.bytes("send") == ranks.wire_bytes("all_reduce", 48 * 4, n) == record.wire_bytes()
            assert record.count("send") == steps("all_reduce", n)


def test_cost_models() -> None:
    s = 2**20
    assert ranks.wire_bytes("all_reduce", s, 8) == 2 * s * 7 / 8
    for kind in ("all_gather", "reduce_scatter", "all_to_all"):
        assert ranks.wire_bytes(kind, s, 8) == s * 7 / 8
    assert ranks.wire_bytes("all_reduce", s, 8, "star") == 7 * s
    assert ranks.wire_bytes("broadcast", s, 8, "tree") == 3 * s and ranks.wire_bytes("broadcast", s, 8) == s
    assert ranks.wire_bytes("all_reduce", s, 1) == 0 and ranks.wire_bytes("barrier", s, 8) == 0
    # a ring is its two halves one after the other, and no all-reduce sends less (Patarasuk and Yuan)
    for n in (2, 3, 8, 1024):
        halves = ranks.wire_bytes("reduce_scatter", s, n) + ranks.wire_bytes("all_gather", s, n)
        assert ranks.wire_bytes("all_reduce", s, n) == pytest.approx(halves)
        for algorithm in ranks.ALGORITHMS:
            assert ranks.wire_bytes("all_reduce", s, n, algorithm) >= halves - 1e-6
    link = ranks.LINKS["NVLink 4"]
    assert ranks.seconds("all_reduce", s, 8, link) == pytest.approx(14 * 3.4e-6 + 2 * s * 7 / 8 / 450e9)
    assert ranks.seconds("send", s, 2, "NVLink 4") == ranks.seconds("recv", s, 2, link)
    # small messages on many ranks want a tree, large ones a ring
    for n in (64, 1024):
        assert ranks.seconds("all_reduce", 1024, n, link, "tree") < ranks.seconds("all_reduce", 1024, n, link)
    assert ranks.seconds("all_reduce", 2**32, 8, link) < ranks.seconds("all_reduce", 2**32, 8, link, "tree")
    for bad, text in [
        (("all_reduce", s, 8, "telepathy"), "there are ring, tree"),
        (("all_to_all", s, 8, "tree"), "goes by ring"),
        (("gossip", s, 8), "kinds are all_reduce"),
        (("all_reduce", s, 0), "at least one"),
    ]:
        with pytest.raises(ValueError, match=text):
            ranks.wire_bytes(*bad)


def test_every_link_has_its_source() -> None:
    for name, link in ranks.LINKS.items():
        assert name == link.name and link.source and link.latency_source
        assert 1e9 < link.bytes_per_s < 1e12 and 1e-6 < link.latency_s < 1e-4
    assert ranks.LINKS["PCIe 4.0 x16"].bytes_per_s == pytest.approx(31.5e9, rel=0.001)


# ── graded ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def drive(average: Any, elements: int) -> Any:
    import torch
    import torch.distributed as dist

    from helpers import ranks

    def job(average: Any, elements: int) -> Any:
        x = torch.full((elements,), float(dist.get_rank()))
        with ranks.sent() as record:
            average(x)
        return x, record.as_dict()

    return ranks.run_ranks(job, 2, average, elements, timeout=30)


CELLS = """
import torch.distributed as dist
def average(x):
    dist.all_reduce(x)
    x /= dist.get_world_size()
def wrong(x):
    raise ValueError("mine")
"""


@pytest.mark.slow
def test_a_graded_drive_can_run_ranks(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("nbgrader")
    runner = request.getfixturevalue("runner")

    def verify(reports: list[check.Report]) -> str | None:
        for value, record in reports[0].value:
            if not torch.equal(value, torch.full((6,), 0.5)):
                return f"the average is {value}"
            if record["counts"] != {"all_reduce": 1} or record["bytes"] != {"all_reduce": 24}:
                return f"it sent {record['counts']}"
        return None

    with (
        runner.notebook([textwrap.dedent(CELLS)]) as notebook,
        check.through(notebook.ask),
    ):
        check.function("average", [check.case(6)], drive=drive, verify=verify)
        assert "as wanted" in capsys.readouterr().out
        with pytest.raises(check.CheckFailed, match="rank 0 of 2 raised ValueError: mine"):
            check.function("wrong", [check.case(6)], drive=drive, verify=verify)
