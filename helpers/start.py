"""What the start page shows: a road for the time one has, what was done last, and the lessons that a file of one's own needs.

start.last()                      where you are
start.mine("train.py")            a training script, a trace or a memory snapshot: what it needs
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from helpers import progress
from helpers.text.tables import Table

__all__ = ["Here", "Needs", "last", "mine", "page"]

#: the parts of the course: name → its first lesson
PARTS = {
    "Measure": "00", "One tensor, one operator": "01", "Keep the GPU busy": "03", "Fit in memory": "08", "Do less work": "10",
    "More than one GPU": "14", "All of it": "17", "Today's models: optional, after 11": "19",
}  # fmt: skip
#: how much time one has → the lessons, in an order in which each stands on those before it; and what one can do then
ROADS = {
    "one hour": (["00"], "say whether a change made your code faster, and show it"),
    "a day": (["00", "01", "02", "03", "06", "10"], "see in a trace what your training waits for, and make the first repairs"),
    "a semester": ([f"{n:02d}" for n in range(19)], "make a training script fast that you have never seen"),
}  # fmt: skip
#: what limits a run, as `trace.classify` calls it → the lessons on it
BOTTLENECKS = {
    "CPU-bound": ["03", "00"], "launch-bound": ["07", "06", "11"], "sync-bound": ["03"], "copy-bound": ["05", "04"],
    "communication-bound": ["14", "15", "16"], "GPU-bound": ["10", "11", "02"], "CPU only": ["12"],
}  # fmt: skip
_LESSONS = re.compile(r"\(lessons? ([\d, ]+)\)")

Index = Mapping[str, Mapping[str, Any]]


# --- the page -----------------------------------------------------------------------------------------------------


def page(index: Index) -> list[tuple[str, str]]:
    """The cells of the start page, "markdown" or "code" and its text. index: as of `progress.index`."""
    roads = [_road(time, *road, index) for time, road in ROADS.items() if _has(road[0], index)]
    if roads:
        roads = ["| you have | take | then you can |", "|---|---|---|", *roads, ""]
    first = [
        "# PyTorch Performance, Measured",
        "",
        "Each lesson answers one question by measurement: you predict, you measure, then you read why. No GPU is needed. Every "
        "figure and table says where its numbers come from: **live (CPU)**, **live (GPU)**, **recorded** on a real GPU, "
        "**simulated**, **published** by others, or plain **arithmetic**.",
        "",
        "## Where to begin",
        "",
        *roads,
        "A training script, a trace or a memory snapshot of your own? [See below what it needs](#Something-of-your-own).",
        "",
        "Open a lesson and run it cell by cell with Shift+Enter. The test below an exercise says *not written yet* until you "
        "have written your answer, then what it measured and what it wanted. *Validate*, in the notebook's toolbar, runs all "
        "tests at once.",
        "",
        "## Where you are",
        "",
        "The next cell says what you did last, and which exercises you have solved. It is kept for you on this machine, whichever "
        "copy of the course you open. `lesson.report()` makes a page of it, to show to a colleague.",
    ]
    own = (
        "## Something of your own\n\n"
        "Write its path between the quotes, and run the cell. The course's tools read it, and the cell names the lessons that it needs: "
        "a trace of `torch.profiler` (`.json`, `.json.gz`), a snapshot of `torch.cuda.memory` (`.pickle`), or a training script "
        "(`.py`). A script is run for a minute at most, on a simulated H100. You need no GPU for it."
    )
    lessons = ["## The lessons", ""]
    for part, held in _parts(index).items():
        lessons += [f"**{part}**", "", *(_entry(name, about) for name, about in held.items()), ""]
    lessons += [
        "The time is that of a lesson's core; what stands under *Further* comes on top. Your answers stay in the notebook. "
        "`make reset LESSON=01` in a terminal gives you a fresh copy of a lesson and keeps the old one beside it."
    ]
    return [
        ("markdown", "\n".join(first)),
        ("code", "from helpers import start\n\nstart.last()"),
        ("markdown", own),
        ("code", 'start.mine("")'),
        ("markdown", "\n".join(lessons)),
    ]


def _parts(index: Index) -> dict[str, dict[str, Mapping[str, Any]]]:
    """The lessons by part; no part that has none."""
    parts: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, about in index.items():
        part = [part for part, first in PARTS.items() if first <= name[:2]][-1]
        parts.setdefault(part, {})[name] = about
    return parts


def _entry(name: str, about: Mapping[str, Any]) -> str:
    exercises = len(about["exercises"])
    return f"- [{about['title']}]({name}/{name}.ipynb). {about['question']} {about['minutes']} min, {exercises} exercises"


def _road(time: str, numbers: Sequence[str], then: str, index: Index) -> str:
    names = {name[:2]: name for name in index}
    if len(numbers) > 9:
        first, end = names[numbers[0]], names[numbers[-1]]
        take = f"all from [{first[:2]}]({first}/{first}.ipynb) to [{end[:2]}]({end}/{end}.ipynb), one or two a week"
    else:
        take = " → ".join(
            f"[{_whole(index[names[n]]['title'])}]({names[n]}/{names[n]}.ipynb)" for n in numbers
        )
    return f"| **{_whole(time)}** | {take} | {then} |"


def _whole(words: str) -> str:
    """Words that stay on one line of a table."""
    return words.replace(" ", "\N{NO-BREAK SPACE}")


def _has(numbers: Sequence[str], index: Index) -> bool:
    return set(numbers) <= {name[:2] for name in index}


# --- where one is -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Here:
    """What was done last, in a sentence; the lesson to open; and the exercises solved in the lessons that were begun."""

    says: str
    name: str
    solved: Table | None

    def __repr__(self) -> str:
        return f"{self.says}\n\n{self.solved!r}" if self.solved else self.says

    def _repr_html_(self) -> str:
        below = self.solved._repr_html_() if self.solved else ""
        return f"<p>{escape(self.says)} {_link(self.name, 'Open it.')}</p>{below}"


def last() -> Here:
    """Where the learner is: the lesson of the last test or prediction, and what is open there or comes next."""
    index, state = progress.index(), progress.begun()
    worked = [name for name in state if name in index]
    if not worked:
        name = next(iter(index))
        return Here(f"You have not begun yet. The first lesson is {index[name]['title']}.", name, None)
    solved = progress.solved([name for name in index if name in worked])
    name = worked[-1]
    about, own = index[name], state[name]
    states = {e["title"]: progress.status(e, own) for e in about["exercises"]}
    done = sum(s == "passes" for s in states.values())
    says = f"You last worked in {about['title']}: {done} of {len(states)} exercises solved."
    if open_ := [title for title, s in states.items() if s != "passes"]:
        return Here(f"{says} Next there: “{open_[0]}” ({states[open_[0]]}).", name, solved)
    after = next((n for n in list(index)[list(index).index(name) + 1 :]), None)
    if after is None:
        return Here(f"{says} That was the last lesson.", name, solved)
    return Here(f"{says} Next: {index[after]['title']}.", after, solved)


# --- what a file needs --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Needs:
    """What the tools say of a file, and the lessons on it, by their folders' names."""

    says: str
    lessons: list[str]

    def __repr__(self) -> str:
        return "\n".join([self.says, *(f"lesson {_title(name)}" for name in self.lessons)])

    def _repr_html_(self) -> str:
        links = "".join(f"<li>{_link(name, _title(name))}</li>" for name in self.lessons)
        return f"<pre>{escape(self.says)}</pre>" + (
            f"<p>The lessons on it:</p><ul>{links}</ul>" if links else ""
        )


def mine(path: str | Path) -> Needs:
    """What a file of one's own needs: a training script (.py), which is run on a simulated H100; a memory snapshot
    (.pickle); or a trace. FileNotFoundError, and ValueError with the reader's words for what is none of these."""
    if not str(path):
        return Needs('Nothing is named yet. For example: start.mine("~/train.py")', [])
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"no file at {file}: check the path")
    if file.suffix == ".py":
        return _script(file)
    from helpers import memory, trace
    from helpers.__main__ import SNAPSHOTS

    if file.name.lower().endswith(SNAPSHOTS):
        snapshot = memory.read(file)
        return Needs(f"{memory.peak(snapshot)}\n{memory.fragmentation(snapshot)}", _named(["08", "09"]))
    verdict = trace.classify(trace.read(file))
    lessons = BOTTLENECKS.get(verdict.bottleneck, ["03"])
    if "DataLoader" in verdict.advice:
        lessons = ["04", *lessons]
    return Needs(repr(verdict), _named(lessons))


def _script(file: Path) -> Needs:
    """As `python -m helpers run` in a process of its own, beside the script: what it reads and imports lies there."""
    command = [sys.executable, "-m", "helpers", "run", file.name]
    ran = subprocess.run(
        command, cwd=file.resolve().parent, capture_output=True, text=True, encoding="utf-8", check=False
    )
    if ran.returncode:
        raise ValueError(ran.stderr.strip()[-2000:] or f"{file} ended with {ran.returncode}")
    said = ran.stdout[ran.stdout.rfind(f"\n{file.name} · ") :].strip()  # the script's own lines stand before
    return Needs(said, _named(n for found in _LESSONS.findall(said) for n in found.split(", ")))


def _named(numbers: Iterable[str]) -> list[str]:
    """Lessons by their folders' names, each once; those that this copy has not are left out."""
    names = {name[:2]: name for name in progress.index()}
    return [names[n] for n in dict.fromkeys(numbers) if n in names]


def _title(name: str) -> str:
    return str(progress.index()[name]["title"])


def _link(name: str, words: str) -> str:
    return f'<a href="{escape(name)}/{escape(name)}.ipynb">{escape(words)}</a>'
