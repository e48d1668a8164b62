"""The code under "Your own script" of each lesson runs as it stands there, in a process of its own: it needs no other cell."""

import re
import textwrap
from pathlib import Path

import pytest

from helpers.classroom import build
from helpers.classroom import master as masters
from helpers.classroom.runner import Runner

HEADING = "## Your own script"
#: lines of a cell, the toy's among them
MOST = 26
LESSONS = [path.stem for path in build.find([])]


def cells(name: str) -> list[str]:
    """The code cells under the heading, up to the next heading of its rank."""
    [path] = build.find([name])
    found, here = list[str](), False
    for cell in masters.read(path).cells:
        if cell.kind == "markdown":
            for title in re.findall(r"(?m)^## .*$", cell.source):
                here = title == HEADING
            assert not here or "```python" not in cell.source, "what is typed here runs: it belongs in a cell"
        elif here:
            found.append(cell.source)
    return found


@pytest.mark.parametrize("name", LESSONS)
def test_own_script_runs_as_it_stands(runner: Runner, name: str, tmp_path: Path) -> None:
    """Each in a process of its own, forked from one that has imported torch: that alone would take longer than most."""
    code = cells(name)
    assert code, f"nothing runs in the open under {HEADING!r}"
    long = [text for text in code if len([line for line in text.splitlines() if line.strip()]) > MOST]
    assert not long, f"more than one takes home:\n{long[0]}"
    with runner.notebook([f"import os, torch\nos.chdir({str(tmp_path)!r})", *code]) as script:
        for place, text in enumerate(code, start=1):
            ran = script.ran[place]
            assert not ran.error and not ran.ended, f"{ran}\n---\n{text}"


def graphed() -> str:
    """Lesson 07's lines for a learner's own names: without the toy, and without the read at their end."""
    [code] = cells("07")
    return textwrap.dedent(code.partition("toy(")[2].partition("\n")[2].partition("    print(")[0])


def simulated(code: str, values: bool = True) -> str:
    """A cell that runs the code on the toy, on a simulated GPU."""
    return f"""
import torch
from helpers.own_script import simulated_cuda, toy

with simulated_cuda("H100", values={values}):
    model, optimizer, loss_fn, loader, device, step = toy("cuda", pinned=True)
{textwrap.indent(code, "    ")}"""


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
    loops = [simulated(loop) for loop in (graph, SCHEDULER + EAGER)]
    assert "scheduler.step()" in loops[0]
    keep = "replayed = [p.detach().clone() for p in model.parameters()]"
    with runner.notebook([loops[0], keep, loops[1], SAME]) as script:
        for place in range(4):
            assert not script.ran[place].error and not script.ran[place].ended, script.ran[place]


def test_a_replay_gets_its_batch_without_a_wait(runner: Runner) -> None:
    """Lesson 07: with pinned batches, as the text says, nothing in the loop makes the host wait for the GPU."""
    code = graphed()
    watched = code.replace(
        "for batch in loader:", "torch.cuda.set_sync_debug_mode('error')\nfor batch in loader:"
    )
    assert "sync_debug" in watched
    with runner.notebook([simulated(watched, values=False)]) as script:
        assert not script.ran[0].error and not script.ran[0].ended, script.ran[0]
