"""The code under "Your own script" of each lesson runs as it stands, on a learner's own names."""

import re
import socket
import textwrap
from pathlib import Path

import pytest

from helpers.classroom import build
from helpers.classroom import master as masters
from helpers.classroom.runner import Runner

HEADING = "## Your own script"
#: what a learner has: the names that the text may use. Small, on the CPU or on the simulated GPU in torch.cuda's place
OWN = """
import torch
from torch import nn
from torch.nn import functional as F

device = {device}
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_fn = nn.CrossEntropyLoss()
dataset = torch.utils.data.TensorDataset(torch.randn(64, 16), torch.randint(4, (64,)))
loader = torch.utils.data.DataLoader(dataset, batch_size=8)


def step(batch):
    x, y = (part.to(device) for part in batch)
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


"""


def fences(path: Path, language: str) -> list[str]:
    """What stands in fences of a language under the heading, up to the next heading of its rank."""
    cells = [c.source for c in masters.read(path).cells if c.kind == "markdown"]
    text = "\n\n".join(cells)
    section = text.split(HEADING, 1)[1] if HEADING in text else ""
    section = re.split(r"(?m)^## ", section.split("\n", 1)[-1])[0]
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", section)


def cells(path: Path) -> list[str]:
    """The code cells under the heading, up to the next one of its rank: they run on a toy script in the learner's place."""
    found, here = list[str](), False
    for cell in masters.read(path).cells:
        if cell.kind == "markdown":
            for title in re.findall(r"(?m)^## .*$", cell.source):
                here = title == HEADING
        elif here:
            found.append(cell.source)
    return found


def program(code: str) -> str:
    """The code with a learner's names before it. torch.cuda and a device "cuda" are the simulated GPU's."""
    if "cuda" not in code:
        return OWN.format(device='"cpu"') + code
    simulated = re.sub(r"""(["'])cuda(:0)?\1""", "device", code.replace("torch.cuda", "gpu"))
    within = OWN.format(device="gpu.device") + simulated
    body = "".join(f"    {line}" if line.strip() else line for line in within.splitlines(keepends=True))
    return f'from helpers.simulator import simulate\n\nwith simulate("H100") as gpu:\n{body}'


def alone() -> dict[str, str]:
    """What torchrun would say to a script that it starts on one process."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    return alone | {"MASTER_PORT": str(port)}


@pytest.mark.parametrize("name", [path.stem for path in build.find([])])
def test_own_script_runs_as_it_stands(runner: Runner, name: str, tmp_path: Path) -> None:
    """Each in a process of its own, forked from one that has imported torch: that alone would take longer than most."""
    started = f"import os, torch\nos.chdir({str(tmp_path)!r})\nos.environ.update({alone()})"
    path = build.find([name])[0]
    runs = [[program(code)] for code in fences(path, "python")] + [cells(path)]
    for run in filter(None, runs):
        with runner.notebook([started, *run]) as script:
            for place, code in enumerate(run, start=1):
                ran = script.ran[place]
                assert not ran.error and not ran.ended, f"{name}: {ran}\n---\n{code}"


@pytest.mark.parametrize("name", [path.stem for path in build.find([])])
def test_own_script_is_short_enough_to_take_home(name: str) -> None:
    path = build.find([name])[0]
    open_cells = cells(path)
    assert open_cells, f"{name}: nothing runs in the open under {HEADING!r}"
    for code in open_cells + fences(path, "python"):
        lines = [line for line in code.splitlines() if line.strip()]
        assert len(lines) <= 26, f"{name}: {len(lines)} lines are more than one takes home"


def graphed() -> str:
    """Lesson 07's lines for a learner's own names: without the toy, and without the read at their end."""
    [code] = cells(build.find(["07"])[0])
    home = textwrap.dedent(code.partition("toy(")[2].partition("\n")[2])
    return home.partition("print(")[0]


#: after the learner's names: a scheduler, and the plain loop that a graph stands for, its three warm-up steps included
SCHEDULER = "scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: 0.5**i)\n"
EAGER = """
first = next(iter(loader))
for _ in range(3):
    step(first)
for batch in loader:
    step(batch)
    scheduler.step()
torch.cuda.synchronize()
"""
SAME = "for one, other in zip(model.parameters(), replayed): torch.testing.assert_close(one, other, rtol=0, atol=1e-6)"


def test_a_replay_follows_the_scheduler(runner: Runner) -> None:
    """Lesson 07: the weights are the eager loop's. With the first lr in every replay they are up to 6e-3 off."""
    code = graphed()
    graph = SCHEDULER + code.replace("graph.replay()\n", "graph.replay()\n    scheduler.step()\n")
    loops = [program(loop).replace('"H100"', '"H100", values=True') for loop in (graph, SCHEDULER + EAGER)]
    assert "scheduler.step()" in loops[0]
    keep = "replayed = [p.detach().clone() for p in model.parameters()]"
    with runner.notebook([loops[0], keep, loops[1], SAME]) as script:
        for place in range(4):
            assert not script.ran[place].error and not script.ran[place].ended, script.ran[place]


def test_a_replay_gets_its_batch_without_a_wait(runner: Runner) -> None:
    """Lesson 07: with pinned batches, as the text says, nothing in the loop makes the host wait for the GPU."""
    code = graphed()
    pinned = "loader = torch.utils.data.DataLoader(dataset, batch_size=8, pin_memory=True)\n"
    watched = code.replace(
        "for batch in loader:", "torch.cuda.set_sync_debug_mode('error')\nfor batch in loader:"
    )
    assert "sync_debug" in watched
    with runner.notebook([program(pinned + watched)]) as script:
        assert not script.ran[0].error and not script.ran[0].ended, script.ran[0]
