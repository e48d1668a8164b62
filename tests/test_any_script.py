"""`python -m helpers run`: a training script of anybody's, unchanged, on the simulated GPU, its lines ranked."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from helpers import __main__ as command
from helpers import trace
from helpers.own_script import Refused, Report, findings, live, run, run_live, true_values, where
from helpers.own_script.host_time import _last_unseen, _Workers, ticking
from helpers.own_script.places import Place, place
from tests.long import own_scripts

HEAD = """
import math, sys, time
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
"""
#: a plain script; {…} are places where a fault may stand
SCRIPT = (
    HEAD
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(64, 4096), nn.Linear(4096, 8)
        self.table = nn.Parameter(torch.zeros(1000, 4096))

    def forward(self, x):
        x = F.relu(self.inner(x))
        {forward}
        return self.outer(x)

data = TensorDataset(torch.randn(2048, 64), torch.randint(8, (2048,)))
loader = DataLoader(data, batch_size=256, shuffle=True, {loader})
model = Net().to(device)
optimizer = torch.optim.{optimizer}
kept = []
for epoch in range(9):
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        {step}
        optimizer.step()
        optimizer.zero_grad({zero})
        {end}
"""
)
PLAIN = {
    "forward": "pass", "loader": "pin_memory=True", "optimizer": "SGD(model.parameters(), lr=0.1)", "step": "pass",
    "zero": "", "end": "pass",
}  # fmt: skip
#: a kind of row → what brings it about, at a line with "# here" behind it where that is not the optimizer's
FAULTS = {
    "value": {"end": "kept.append(loss.item())  # here"},
    "synchronize": {"end": "torch.cuda.synchronize()  # here"},
    "cache": {"end": "torch.cuda.empty_cache()  # here"},
    "back": {"end": "kept.append(loss.detach().cpu())  # here"},
    "counted": {"end": "kept.append(y[y > 3].float().mean().detach())  # here"},
    "there": {"step": "mask = torch.ones(64, 512).to(device)  # here"},
    "loop": {"step": "for p in list(model.inner.parameters()) * 4: p.grad.mul_(0.5)  # here"},
    "made": {"forward": "x = x + torch.arange(4096, device=x.device)  # here"},
    "copied": {"forward": "x = x.t().contiguous().t()  # here"},
    "fused": {"forward": "x = x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))  # here"},
    "attention": {"forward": "s = torch.softmax(x @ x.t(), -1); x = (s[None] @ x[None])[0]  # here"},
    "dense": {"forward": "x = x + F.embedding(x[:, 0].long(), self.table)  # here"},
    "narrow": {
        "forward": "x = x + (x[:8].bfloat16() @ x.t().bfloat16()).sum() + (x[:8] @ x.t()).sum()  # here"
    },
    "unused": {"end": "kept = [model(x).detach()]  # here"},
    "wide": {"forward": "x = (x.double() * 2.5).float()  # here"},
}


def ran(folder: Path, text: str, factor: float = 0.0, **how: object) -> Report:
    """The findings about a script of that text, without the host's own time unless asked for: the same on every machine."""
    script = folder / "train.py"
    script.write_text(text)
    how = {"steps": 5, "warm": 2} | how
    return findings(run(script, factor=factor, **how))  # type: ignore[arg-type]


def kinds(found: Report) -> set[tuple[str, int]]:
    """Each kind of cost that the report has, with its line."""
    return {(kind, row.place.line) for row in found.rows if row.place for kind in (row.kind, *row.also)}


def line_of(text: str, mark: str = "# here") -> int:
    return next(n for n, line in enumerate(text.splitlines(), start=1) if mark in line)


@pytest.mark.parametrize("kind", FAULTS)
def test_each_kind_of_fault_stands_at_its_line(tmp_path: Path, kind: str) -> None:
    text = SCRIPT.format(**PLAIN | FAULTS[kind])
    found = ran(tmp_path, text)
    assert (kind, line_of(text)) in kinds(found), found
    without = ran(tmp_path, SCRIPT.format(**PLAIN))
    assert (kind, line_of(text)) not in kinds(without), without


def test_memory_that_grows(tmp_path: Path) -> None:
    found = ran(tmp_path, SCRIPT.format(**PLAIN | {"end": "kept.append(model(x).sum())"}))
    (row,) = (row for row in found.everywhere if row.kind == "grows")
    assert "train.py:" in row.evidence and "more after each step" in row.evidence
    assert "grows" not in {row.kind for row in ran(tmp_path, SCRIPT.format(**PLAIN)).everywhere}


def test_an_optimizer_in_a_loop_and_gradients_set_to_zero(tmp_path: Path) -> None:
    many = "Adam([p for _ in range(1) for p in model.parameters()], foreach=False)"
    found = ran(tmp_path, SCRIPT.format(**PLAIN | {"optimizer": many, "zero": "set_to_none=False"}))
    lines = {kind: (tmp_path / "train.py").read_text().splitlines()[line - 1] for kind, line in kinds(found)}
    assert "optimizer.step()" in lines["optimizer"] and "optimizer.zero_grad(" in lines["made"]


def test_what_is_repaired_buys_what_was_said(tmp_path: Path) -> None:
    """The row's gain is the difference that the repair makes, on a script that the GPU limits and on one that waits."""
    slow = ran(tmp_path, SCRIPT.format(**PLAIN | {"end": "kept.append(loss.item())  # here"}))
    fast = ran(tmp_path, SCRIPT.format(**PLAIN))
    (row,) = (row for row in slow.rows if row.kind == "value")
    assert row.buys_s == pytest.approx(slow.step_s - fast.step_s, rel=0.1)


def test_the_lines_of_a_loop_are_one_row(tmp_path: Path) -> None:
    """It is the loop that is repaired: its gain is that of all its lines, their backward passes with them."""
    loop = """parts = []
        for part in x.split(8):
            half = part * 0.5
            parts.append(torch.tanh(half))
        x = torch.cat(parts)"""
    text = SCRIPT.format(**PLAIN | {"forward": loop})
    slow = ran(tmp_path, text)
    fast = ran(tmp_path, SCRIPT.format(**PLAIN | {"forward": "x = torch.tanh(x * 0.5)"}))
    (row,) = (row for row in slow.rows if "loop" in (row.kind, *row.also))
    assert row is slow.rows[0] and row.place is not None
    assert row.place.line in (line_of(text, "half = "), line_of(text, "parts.append"))
    assert f"by 2 lines of the loop in line {line_of(text, 'for part in')}" in row.evidence
    assert row.buys_s == pytest.approx(slow.step_s - fast.step_s, rel=0.15)


def test_the_same_every_time_without_the_hosts_own_time(tmp_path: Path) -> None:
    text = SCRIPT.format(**PLAIN | {"end": "print(loss)"})
    assert str(ran(tmp_path, text)) == str(ran(tmp_path, text))


def test_pythons_own_time_is_charged_to_its_line(tmp_path: Path) -> None:
    text = SCRIPT.format(**PLAIN | {"end": "time.sleep(0.3)  # here"})
    found = ran(tmp_path, text, factor=1.0)
    (row,) = (
        row for row in found.rows if row.place and (row.kind, row.place.line) == ("python", line_of(text))
    )
    assert row.now_s >= 0.018 and row.buys_s >= 0.015 and found.rows[0] is row
    assert found.host["Python"] >= 0.018
    none = ran(tmp_path, text)
    assert "Python" not in none.host or none.host["Python"] == 0


def test_work_on_cpu_tensors_is_the_hosts(tmp_path: Path) -> None:
    text = SCRIPT.format(**PLAIN | {"end": "torch.randn(400, 400) @ torch.randn(400, 400)  # here"})
    found = ran(tmp_path, text, factor=1.0)
    assert ("python", line_of(text)) in kinds(found)
    assert not any(
        kernel.name == "aten.mm" and kernel.flops == 2 * 400**3 for kernel in found.run.gpu.kernels
    )


def test_the_clock_that_a_script_reads_is_the_simulated_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = time.perf_counter
    text = SCRIPT.format(**PLAIN | {"end": "print('at', time.perf_counter(), time.time_ns() and '')"})
    found = ran(tmp_path, text)
    seconds = [float(at) for at in re.findall(r"^at (\S+)", capsys.readouterr().out, re.M)]
    gaps = [b - a for a, b in zip(seconds[2:], seconds[3:], strict=False)]
    assert sum(gaps) / len(gaps) == pytest.approx(found.step_s, rel=0.2)
    assert time.perf_counter is before


def test_workers_are_put_beside_the_host() -> None:
    two = _Workers(workers=2, ahead=2, now_s=0.0)
    ready = []
    for taken in (1.0, 1.0, 2.0, 2.0):
        ready.append(two.ready_s(1.0))
        two.take(max(taken, ready[-1]))
    assert ready == [1.0, 1.0, 2.0, 2.0]
    late = _Workers(
        workers=1, ahead=1, now_s=0.0
    )  # one batch in advance: the next is begun when that one is taken
    assert late.ready_s(1.0) == 1.0
    late.take(5.0)
    assert late.ready_s(1.0) == 6.0


def test_a_loader_that_its_workers_cannot_keep_up_with(tmp_path: Path) -> None:
    slow = SCRIPT.replace("loader = Data", "def slowly(rows):\n    time.sleep(0.1)  # here\n    return torch.utils.data.default_collate(rows)\n\nloader = Data")  # fmt: skip
    text = slow.format(**PLAIN | {"loader": "num_workers=2, collate_fn=slowly"})
    found = ran(tmp_path, text, factor=1.0)
    assert found.step_s >= 0.03  # less than half a sleep: some batches were ready before the first step
    # the sleep is long enough that nothing else of a busy machine comes before it; more workers at the one, less work at the other
    both = {("workers", line_of(text, mark)) for mark in ("for x, y in loader", "# here")}
    assert {(row.kind, row.place.line) for row in found.rows[:2] if row.place} == both


def test_what_workers_hide_is_named(tmp_path: Path) -> None:
    slow = SCRIPT.replace("loader = Data", "def slowly(rows):\n    time.sleep(0.02)  # here\n    return torch.utils.data.default_collate(rows)\n\nloader = Data")  # fmt: skip
    text = slow.format(**PLAIN | {"loader": "num_workers=2, collate_fn=slowly", "end": "time.sleep(0.15)"})
    found = ran(tmp_path, text, factor=1.0)
    (row,) = (row for row in found.rows if row.place and row.place.line == line_of(text))
    assert row.kind == "workers" and row.buys_s == 0.0 and row.hidden_s > 0.002
    assert "hidden: " in str(found)


def test_what_the_host_hides_is_named(tmp_path: Path) -> None:
    """A copy of the GPU's that buys nothing while the host is the limit: in the table all the same."""
    fault = {"forward": "x = (x.t().contiguous().t() * 2).t().contiguous().t()  # here"}
    text = SCRIPT.format(**PLAIN | fault | {"end": "time.sleep(0.3)"})
    (row,) = (r for r in ran(tmp_path, text, 1.0).rows if r.place and r.place.line == line_of(text))
    assert row.hidden_s > 0.0 and row.buys_s < 0.01 * 0.3
    alone = ran(tmp_path, SCRIPT.format(**PLAIN | fault))
    (row,) = (row for row in alone.rows if row.place and row.place.line == line_of(text))
    assert row.buys_s > 0.0 and row.hidden_s == 0.0


def test_a_checkpoints_own_python_is_no_launch(tmp_path: Path) -> None:
    """What torch.save does is a row of its own, and no launch that a graph would spare."""
    end = "torch.save([dict.fromkeys(range(2000), 'x' * n) for n in range(40)], sys.argv[0] + '.pt')  # here"
    text = SCRIPT.format(**PLAIN | {"end": end})
    found = ran(tmp_path, text, factor=1.0)
    (row,) = (row for row in found.rows if row.place and row.place.line == line_of(text))
    (launches,) = (row for row in found.everywhere if row.kind == "launches")
    assert "torch" in (row.kind, *row.also) and row.buys_s > launches.buys_s


def test_a_replayed_graph_costs_a_launch_and_its_flops_count(tmp_path: Path) -> None:
    text = (
        HEAD
        + """
x, w = torch.ones(2048, 2048, device=device), torch.ones(2048, 2048, device=device, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for _ in range(200):
        y = x @ w.detach()
w.grad = torch.zeros_like(w)
for _ in range(20):
    graph.replay()  # here
    optimizer.step()
"""
    )
    found = ran(tmp_path, text, factor=1.0)
    assert 0.3 < found.mfu <= 1.0 and found.host.get("Python", 0.0) < 0.2 * found.step_s
    assert ("python", line_of(text)) not in kinds(found)


def test_what_ended_the_steps_is_said(tmp_path: Path) -> None:
    found = ran(tmp_path, SCRIPT.format(**PLAIN | {"end": "time.sleep(0.05)"}), steps=50, seconds=0.2)
    assert any("the 0.2 s were over; longer with --seconds" in warning for warning in found.warnings)


def test_a_long_evaluation_is_left_when_the_time_is_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end = "kept.append(1); len(kept) == 8 and print('whole', [time.sleep(0.1) for _ in range(50) for rows in loader])"
    text = SCRIPT.format(**PLAIN | {"end": end})  # 400 batches: 40 s
    found = ran(tmp_path, text, steps=50, seconds=0.5)
    assert "whole" not in capsys.readouterr().out and found.run.measured >= 3
    assert any("the 0.5 s were over" in warning for warning in found.warnings)


def test_a_loader_that_not_every_step_asks(tmp_path: Path) -> None:
    slow = SCRIPT.replace("model = Net", "checked = DataLoader(data, batch_size=1024, collate_fn=lambda rows: time.sleep(0.05) or rows)\nmodel = Net")  # fmt: skip
    text = slow.format(**PLAIN | {"end": "kept.append(1); kept[4::8] and len(kept) == 5 and [None for rows in checked]  # here"})  # fmt: skip
    (row,) = (r for r in ran(tmp_path, text, 1.0, steps=8).rows if r.place and r.place.line == line_of(text))
    assert row.kind == "loader" and "not in every step" in row.evidence


def test_a_jump_back_to_a_loops_head_has_a_line() -> None:
    seen: list[Place | None] = []
    with ticking(lambda frame: seen.append(place(frame))):
        until = time.perf_counter() + 0.2
        while time.perf_counter() < until:
            for _ in range(50):
                for _ in range(3):
                    if seen is None:
                        break
    assert seen and all(where is not None and where.line for where in seen)


def test_what_a_worker_converts_and_pins_is_the_workers(tmp_path: Path) -> None:
    far = """class Far(torch.utils.data.Dataset):
    def __len__(self): return 2048
    def __getitem__(self, i):
        time.sleep(1e-4)
        return torch.zeros(64, dtype=torch.uint8).to(torch.float32), 0

loader = DataLoader(Far(),"""
    text = SCRIPT.replace("loader = DataLoader(data,", far)
    found = ran(tmp_path, text.format(**PLAIN | {"loader": "num_workers=2, pin_memory=True"}), factor=1.0)
    assert found.host["waits for a worker"] > 0.5 * found.step_s > found.host["Python"]
    assert found.rows[0].kind == "workers" and found.rows[0].buys_s > 0.4 * found.step_s


def test_a_recurrent_layer_is_said_to_run_step_by_step(tmp_path: Path) -> None:
    text = SCRIPT.format(**PLAIN | {"forward": "h, _ = self.recurrent(x[None]); x = x + h.mean()  # here"})
    text = text.replace("self.table =", "self.recurrent = nn.GRU(4096, 8)\n        self.table =", 1)
    found = ran(tmp_path, text)
    assert any(f"train.py:{line_of(text)} calls a recurrent layer" in said for said in found.warnings)


def test_the_line_of_an_operator_after_which_python_looks_for_no_signal() -> None:
    def sample(bank: list[float], index: int) -> tuple[float, int]:
        row = abs(bank[index])
        row = row / 255.0
        return row, index

    first = sample.__code__.co_firstlineno
    assert _last_unseen(sample.__code__) == first + 2


def test_all_of_cuda_is_given_back(tmp_path: Path) -> None:
    before = (torch.cuda.is_available, torch.cuda.Stream, torch.Generator, torch.load, torch.cuda.synchronize)
    ran(tmp_path, SCRIPT.format(**PLAIN))
    assert before == (
        torch.cuda.is_available,
        torch.cuda.Stream,
        torch.Generator,
        torch.load,
        torch.cuda.synchronize,
    )
    assert not torch.cuda.is_available() or torch.version.cuda


def test_names_of_cuda(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SCRIPT.format(**PLAIN | {"end": "pass"}).replace("kept = []", """kept = []
t = torch.randn(3, device="cuda:0")
scaler = torch.amp.GradScaler("cuda")
model = nn.DataParallel(model).cuda()
g = torch.Generator(device="cuda")
e = torch.cuda.Event(enable_timing=True); e.record()
s = torch.cuda.Stream()
with torch.cuda.stream(s):
    u = t.cuda() + 1 + nn.Linear(3, 3).to(0)(torch.ones(3, device=0)).to(0)
torch.cuda.current_stream().wait_stream(s)
print("said", t.device, t.is_cuda, t.cpu().device, t.get_device(), device.type, torch.zeros(2, device=t.device).device,
      torch.accelerator.current_accelerator(), torch.cuda.device_count(), torch.cuda.get_device_capability(),
      isinstance(e, torch.cuda.Event), isinstance(g, torch.Generator), "H100" in torch.cuda.get_device_name(0))
""")  # fmt: skip
    ran(tmp_path, text)
    said = capsys.readouterr().out
    assert "said cuda:0 True cpu 0 cuda cuda:0 cuda:0 1 (9, 0) True True True" in said


def test_an_optimizer_of_ones_own(tmp_path: Path) -> None:
    own = """
class Own:
    def __init__(self, params): self.params = list(params)
    def step(self):
        with torch.no_grad():
            for p in self.params: p.grad is None or p.sub_(p.grad, alpha=0.1)
    def zero_grad(self):
        for p in self.params: p.grad = None
"""
    text = SCRIPT.replace("class Net", own + "\nclass Net").replace(
        "torch.optim.{optimizer}", "Own(model.parameters())"
    )
    found = ran(tmp_path, text.format(**PLAIN))
    assert found.steps == 5


def test_what_cannot_be_run_says_why_and_where(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="check the path"):
        run(tmp_path / "none.py")
    text = SCRIPT.format(**PLAIN | {"step": "raise ValueError('odd')  # here"})
    with pytest.raises(Refused, match=rf"^train.py:{line_of(text)}: ValueError: odd. No steps ended before"):
        ran(tmp_path, text)
    text = SCRIPT.format(**PLAIN | {"step": "if not loss.item(): raise ValueError('odd')"})
    with pytest.raises(Refused, match="ValueError: odd. .*--values"):
        ran(tmp_path, text)
    with pytest.raises(Refused, match="^train.py: the script came to its end. No steps"):
        ran(tmp_path, "print(1)")
    with pytest.raises(Refused, match="ended itself, with 3"):
        ran(tmp_path, "import sys; sys.exit(3)")
    with pytest.raises(Refused, match=r"train.py:1: ModuleNotFoundError"):
        ran(tmp_path, "import no_such_module_at_all")


def test_a_checkpoint_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """… the run reads its own one back, as a script does that goes on from the best."""
    kept = tmp_path / "best.pt"
    torch.save({"weight": torch.ones(2)}, kept)
    again = f"torch.save(model.state_dict(), {str(kept)!r}); n = len(torch.load({str(kept)!r}))"
    found = ran(tmp_path, SCRIPT.format(**PLAIN | {"end": again + "; print(n, 'entries')"}))
    assert "5 entries" in capsys.readouterr().out
    assert torch.equal(torch.load(kept)["weight"], torch.ones(2))
    assert any("not written" in said and str(kept) in said for said in found.warnings)
    with pytest.raises(Refused, match="No such file or directory"):
        ran(tmp_path, SCRIPT.format(**PLAIN | {"end": "torch.save(1, 'no such folder/best.pt')"}))
    assert torch.save.__module__ == "torch.serialization"
    moved = "import os, shutil; torch.save(1, 'new.pt'); shutil.copyfile('new.pt', 'as.pt'); os.replace('new.pt', 'last.pt')"
    there = "print([os.path.exists(f) for f in ('new.pt', 'as.pt', 'last.pt')]); os.remove('as.pt')"
    with contextlib.chdir(tmp_path):
        ran(tmp_path, SCRIPT.format(**PLAIN | {"end": f"{moved}; {there}"}))
    assert "[False, True, True]" in capsys.readouterr().out
    assert sorted(file.name for file in tmp_path.iterdir()) == ["best.pt", "train.py"]


def test_branches_that_values_would_decide_are_named(tmp_path: Path) -> None:
    """… but what asks whether a tensor is finite is told that it is, and an assertion that it holds."""
    sound = "assert not torch.isnan(loss)\n        assert (loss > 3) and (x.abs() < 9).all()\n        if not torch.isfinite(loss).all(): raise ValueError"
    text = SCRIPT.format(**PLAIN | {"step": sound, "end": "if loss > 3: print('large')  # here"})
    said = " ".join(ran(tmp_path, text).warnings)
    assert f"train.py:{line_of(text)} `if loss > 3" in said


@pytest.mark.parametrize("name", sorted(path.stem for path in own_scripts.HERE.glob("*.toml")))
def test_the_lists_of_planted_faults_fit_their_scripts(name: str) -> None:
    faults, text = own_scripts.listed(name)["fault"], own_scripts.text_of(name)
    lines = set(text.splitlines())
    assert len(faults) == 15 and all(set(fault["at"]) <= lines for fault in faults)
    for fault in faults:
        assert own_scripts.repaired(text, [fault]) != text
    compile(own_scripts.repaired(text, faults), name, "exec")


LEARNER = """
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
class Block(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm, self.scale = nn.LayerNorm(width), nn.RMSNorm(width)
    def forward(self, x, mask):
        q, k, v = self.inner(self.norm(x)).view(*x.shape[:2], 3, 4, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return x + self.outer(self.scale(a.transpose(1, 2).reshape(x.shape)))
model = nn.ModuleList([nn.Embedding(50, 32), Block(), Block(), nn.Linear(32, 50)]).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
draws = torch.Generator().manual_seed(1)
for i in range(6):
    tokens = torch.randint(50, (4, 16), generator=draws).to(device)
    mask = torch.ones(16, 16, dtype=torch.bool, device=device).tril() if i % 2 else None
    with torch.autocast(device.type, torch.bfloat16, enabled=i % 3 == 2):
        x = model[0](tokens)
        out = model[3](model[2](model[1](x, mask), mask))
    wanted = tokens.roll(-1, 1)
    chosen = wanted != 3
    loss = F.cross_entropy(out[chosen].float(), wanted[chosen])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if loss > 3:
        z = torch.zeros(4, device=device)
        z[[0, 2]] = 5.0
        z[z > 4] = torch.tensor([7.0, 8.0], device=device)
        print("seen", round(loss.item(), 4), chosen.sum().item(), z.tolist(), tokens[0].cpu().numpy().tolist(), len(chosen.nonzero()))
"""


@pytest.mark.filterwarnings("ignore:Mismatch dtype")
def test_true_values_are_those_of_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = ran(tmp_path, LEARNER, values=True, steps=3)
    seen = re.findall("^seen.*", capsys.readouterr().out, re.M)
    assert not found.warnings[:-1], found.warnings
    exec(compile(LEARNER, "learner", "exec"), {})
    alone = re.findall("^seen.*", capsys.readouterr().out, re.M)
    for here, there in zip(seen, alone[: len(seen)], strict=True):
        (_, loss, *rest), (_, other, *others) = here.split(" ", 2), there.split(" ", 2)
        assert float(loss) == pytest.approx(float(other), abs=2e-3) and rest == others
    assert len(seen) == 5 and "[7.0, 0.0, 8.0, 0.0]" in seen[0]
    capsys.readouterr()
    ran(tmp_path, LEARNER, steps=3)
    assert "seen" not in capsys.readouterr().out  # each loss reads as 0 there


def test_the_cards_random_numbers_are_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SCRIPT.format(**PLAIN | {"end": "print('drew', torch.rand(1).item())"})
    ran(tmp_path, text, values=True)
    drawn = re.findall("^drew.*", capsys.readouterr().out, re.M)
    ran(tmp_path, text.replace("{forward}", "x = F.dropout(x)").replace("x = F.relu(self.inner(x))", "x = F.dropout(F.relu(self.inner(x)))"), values=True)  # fmt: skip
    assert drawn and drawn == re.findall("^drew.*", capsys.readouterr().out, re.M)


def test_values_that_are_lost_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: object, **kwargs: object) -> None:
        raise NotImplementedError("no kernel for it")

    monkeypatch.setitem(true_values.ATTENTION, torch.ops.aten.relu, none)
    found = ran(tmp_path, SCRIPT.format(**PLAIN | {"end": "print(loss.item())"}), values=True)
    line = line_of(SCRIPT.format(**PLAIN), "F.relu")
    assert any(f"train.py:{line} on (aten::relu: no kernel for it)" in said for said in found.warnings)


def test_switches_that_were_left_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they cost is theirs, and no line's; and what the simulated clock does not have is said without a time."""
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    on = "torch.autograd.set_detect_anomaly(True); torch.backends.cudnn.deterministic = True; conv = nn.Conv2d(3, 2, 3, device=device)"
    images = {"forward": "x = x + conv(torch.empty(2, 3, 8, 8, device=x.device)).sum()"}
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)
    try:
        found = ran(tmp_path, SCRIPT.format(**PLAIN | images).replace("kept = []", f"kept = []; {on}"))
    finally:
        torch.autograd.set_detect_anomaly(False)
    assert any("set_detect_anomaly" in warning for warning in found.warnings)
    assert {"anomaly", "blocking", "layout", "switch"} <= {row.kind for row in found.everywhere}
    assert not {kind for kind, _ in kinds(found)} & {"value", "counted"}


def test_the_command_writes_a_page_and_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(
        SCRIPT.format(**PLAIN | {"end": "kept.append(loss.item()); print(sys.argv[1:], __name__)"})
    )
    argv = sys.argv
    assert command.main(["run", "train.py", "--card", "A100", "--steps", "4", "--", "--lr", "3"]) == 0
    said = capsys.readouterr().out
    assert "['--lr', '3'] __main__" in said and "simulated (A100)" in said and "What to try" in said
    page = (tmp_path / "train-report.html").read_text(encoding="utf-8")
    assert "kept.append(loss.item())" in page.replace("<wbr>", "") and "<script" not in page
    read = trace.read(tmp_path / "train-trace.json.gz")
    assert read.has_gpu and "A100" in read.evidence
    assert sys.argv is argv
    assert command.main(["run", "none.py"]) == 2
    assert "check the path" in capsys.readouterr().err


def step(wait: bool = True) -> None:
    x = torch.randn(64, 64, device="cuda", requires_grad=True)
    y = (x @ x).relu()
    z = y.sum()  # here
    z.backward()
    if wait:
        assert z.item() == 0
        y.detach().cpu()


@pytest.mark.parametrize(
    ("counter", "code", "amount"),
    [
        ("syncs", "assert z.item() == 0", "1 (50%)"),
        ("copied_bytes", "y.detach().cpu()", "16 KiB (100%)"),
        ("saved_bytes", "y = (x @ x).relu()", "32 KiB (100%)"),
        ("peak_bytes", 'x = torch.randn(64, 64, device="cuda", requires_grad=True)', None),
        ("flops", "y = (x @ x).relu()", None),
        ("launches", "y = (x @ x).relu()", None),
    ],
)
def test_where_leads_from_a_counter_to_its_lines(counter: str, code: str, amount: str | None) -> None:
    rows = {row[1].strip("`"): row for row in where(step, counter).rows}
    assert code in rows and (amount is None or rows[code][3] == amount), rows
    if counter == "flops":  # with two products, ReLU and a sum of its backward
        assert rows[code][3].startswith(f"{6 * 64**3 + 3 * 64 * 64:,}"), rows


def test_where_names_the_line_whose_memory_stays() -> None:
    kept = []

    def job() -> None:
        w = torch.randn(64, 64, device="cuda", requires_grad=True)
        y = (w @ w).relu()
        y.sum().backward()
        kept.append(y.detach())

    [row] = where(job, "growth_bytes").rows
    assert row[1:5] == ("`y = (w @ w).relu()`", row[2], "16 KiB (100%)", "blocks of 16 KiB"), row


def test_where_says_which_counters_there_are() -> None:
    with pytest.raises(ValueError, match="there are step_s, busy_s"):
        where(step, "speed")
    assert where(lambda: step(False), "syncs").rows == ()


def test_a_project_with_helpers_of_its_own(tmp_path: Path) -> None:
    """The tools under their distinctive name, beside a helpers.py that the script imports: neither knows of the other."""
    (tmp_path / "helpers.py").write_text("RATE = 0.1\n")
    text = SCRIPT.format(**PLAIN | {"optimizer": "SGD(model.parameters(), lr=helpers.RATE)"})
    (tmp_path / "train.py").write_text(text.replace("import math,", "import helpers, math,"))
    root = str(Path(command.__file__).parents[1])
    own = "import sys; sys.path[:0] = ['.']; sys.path.append(sys.argv.pop(1))\n"
    code = f"{own}import helpers, pytorch_measured as pm; assert helpers.RATE; pm.trace.read; sys.exit(pm.main())"
    words = [sys.executable, "-c", code, root, "run", "train.py", "--steps", "3"]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "simulated (H100)" in done.stdout and (tmp_path / "train-report.html").exists()


def test_ranks_of_which_the_first_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """torchrun's variables, NCCL's name and DistributedDataParallel as scripts write them; collectives at their line."""
    text = SCRIPT.replace("model = Net().to(device)", """import os, torch.distributed as dist
dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
model = nn.parallel.DistributedDataParallel(Net().to(device), device_ids=[device.index])
model.inner = model.module.inner
print("joined", dist.get_rank(), dist.get_world_size(), dist.get_backend())""")  # fmt: skip
    text = text.format(
        **PLAIN
        | {"end": "dist.all_reduce(loss.detach().clone())  # here", "forward": "x = x + self.table[0]"}
    )
    found = ran(tmp_path, text, ranks=8)
    assert (
        "joined 0 8 nccl" in capsys.readouterr().out and found.evidence == "simulated (H100), one of 8 ranks"
    )
    assert {("collective", line_of(text)), ("collective", line_of(text, "loss.backward()"))} <= kinds(found)
    assert found.device["collectives"] > 0 and "RANK" not in os.environ
    with pytest.raises(Refused, match="with --ranks 8"):
        ran(tmp_path, text)
    with pytest.raises(ValueError, match="values or ranks"):
        ran(tmp_path, text, ranks=8, values=True)


def test_live_reads_the_clock_of_this_machine(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    text = SCRIPT.format(
        **PLAIN | {"forward": "x = x + torch.tanh(x @ x.t() @ x)", "end": "time.sleep(0.03)"}
    )
    script.write_text(text)
    found = run_live(script, steps=4, warm=1)
    assert found.steps == 4 and found.evidence.startswith("live (") and found.step_s > 0.03
    at = {where.line: line for where, line in found.lines.items()}
    slept, product = at[line_of(text, "time.sleep")], at[line_of(text, "torch.tanh")]
    assert 0.025 <= slept.host_s and slept.operators == 0 == slept.torch_s
    assert product.operators > 5  # three products of its backward pass among them
    assert product.torch_s == max(line.torch_s for line in at.values())
    assert "torch.tanh" in str(found) and found.write(tmp_path)[0].stat().st_size > 1000
    script.write_text("print(1)")
    with pytest.raises(Refused, match="came to its end: 0 call"):
        run_live(script)


def test_live_on_a_gpu_finds_kernels_and_waits() -> None:
    """What torch.profiler tells of a GPU: kernels hang at the call that launched them; backward runs in a thread of its own."""

    def event(
        name: str, parent: object = None, number: int = -1, kernels: tuple[int, ...] = ()
    ) -> SimpleNamespace:
        launched = [SimpleNamespace(duration=us) for us in kernels]
        return SimpleNamespace(name=name, cpu_parent=parent, sequence_nr=number, kernels=launched, self_cpu_time_total=6.0)  # fmt: skip

    here, there = Place("a.py", 1, "f"), Place("a.py", 2, "f")
    first, second = event(f"{live._MARK}0"), event(f"{live._MARK}1")
    forward = event("aten::mm", first, 7, (30,))
    read = event("aten::item", second)
    node = event("autograd::engine::evaluate_function: MmBackward0", None, 7)
    lines: dict[Place, live.Line] = defaultdict(live.Line)
    events = [
        first,
        second,
        forward,
        read,
        event("cudaStreamSynchronize", read),
        node,
        event("aten::mm", node, -1, (60, 60)),
    ]
    live._read(events, {0: here, 1: there}, lines)
    assert lines[here] == live.Line(0.0, pytest.approx(4e-6), pytest.approx(50e-6), pytest.approx(2 / 3), 0.0)
    assert lines[there] == live.Line(
        0.0, pytest.approx(2e-6), 0.0, pytest.approx(1 / 3), pytest.approx(1 / 3)
    )
