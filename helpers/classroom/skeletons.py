"""What :mod:`helpers.classroom.scaffold` lays down: a tiny whole exercise and a lesson around it, to be replaced bit by bit.

Templates of :class:`string.Template`. ${name}: the exercise. ${Case}: its class of cases. ${number}: "5.5". ${room}: the lesson's.
${nn}, ${folder}, ${title}: the lesson's "19", "19_attention", "Attention".
"""

#: the cells of an exercise, in the master
CELLS = """\
# %% [markdown]
# **Exercise ${number} — ${words}** (★, 5 min)
#
# Add up all numbers of a matrix. It may be a view of another, such as `x.T`.
#
# <details><summary>Hint 1</summary>Which operators need their input in one piece of memory?</details>
#
# <details><summary>Hint 2</summary>Only such an operator has to copy a view. A sum walks by strides.</details>
#
# <details><summary>The idea</summary><code>x.sum()</code></details>


# %% exercise="${name}"
def ${name}(x: torch.Tensor) -> torch.Tensor:
    \"\"\"The sum of all numbers, as a tensor of shape (). x: (n, n), float32, with any strides; n may be 0.

    Budget: no copies, and at most 4 · (n + 1) new bytes: a number for each column, and one for all.
    \"\"\"
    ### BEGIN SOLUTION
    return x.sum()
    ### END SOLUTION


# %% test="${name}" points=1
from helpers.lessons.${room}.exercises import ${Case}, check_${name}

check_${name}(${Case}(4), ${Case}(8))

# %% hidden="${name}" points=2
### BEGIN HIDDEN TESTS
from helpers.lessons.${room}.exercises import ${Case}, check_${name}

check_${name}(${Case}(64), ${Case}(48, transposed=True), ${Case}(0))
### END HIDDEN TESTS

"""

#: its test, at the end of the lesson's exercises.py
CHECK = '''

# --- ${number} ${name} ---


@dataclass(frozen=True)
class ${Case}:
    """The case: a matrix of n × n numbers 0, 1, 2, …; transposed: with its dimensions exchanged, as a view."""

    n: int
    transposed: bool = False


def _drive_${name}(
    ${name}: Callable[[Tensor], Tensor], n: int, transposed: bool, count: Any
) -> dict[str, Any]:
    """The drive: runs where the learner's code is, with a case's fields, measures, and returns plain data."""
    x = torch.arange(float(n * n)).view(n, n)
    counts = count(${name}, x.T if transposed else x)
    return {"sum": float(counts.result), "copies": counts.copies, "bytes": counts.bytes_allocated}


def _wrong_${name}(case: ${Case}, got: dict[str, Any]) -> str | None:
    """The judge: what is wrong with one call, measured and wanted in one sentence; or None."""
    wanted, most = sum(range(case.n**2)), 4 * (case.n + 1)
    if got["sum"] != wanted:
        return f"the sum is {got['sum']:,}, wanted {wanted:,}"
    if got["copies"] or got["bytes"] > most:
        return f"copied {got['copies']} times into {got['bytes']:,} new bytes; wanted no copy, and at most {most:,}"
    return None


def check_${name}(*cases: ${Case}) -> None:
    verify = each(lambda report: _wrong_${name}(report.case, report.value), told=True)
    check.function("${name}", cases, drive=_drive_${name}, verify=verify, look="what a view is")
'''

#: … and what that file has to import for it
IMPORTS = (
    "from collections.abc import Callable",
    "from dataclasses import dataclass",
    "from typing import Any",
    "import torch",
    "from torch import Tensor",
    "from helpers import check",
    "from helpers.check.judges import each",
)

#: what the grader is to be tried on: file → an answer
ANSWERS = {
    "right_one": "def ${name}(x):\n    return torch.einsum('ij->', x)\n",
    "right_two": "def ${name}(x):\n    return x.sum(0).sum()\n",
    "wrong_one": "# puts a view in one piece of memory first: earns 1\ndef ${name}(x):\n    return x.contiguous().sum()\n",
    "wrong_two": "# makes another whole matrix: earns 0\ndef ${name}(x):\n    return (x + 0).sum()\n",
    "wrong_three": "# the mean of all numbers, times those of one row only: earns 0\ndef ${name}(x):\n    return x.mean() * len(x)\n",
}

#: how a lesson's master begins, before its exercise
MASTER = """\
# %% [markdown]
# # ${nn} · ${title}
#
# ## Which of these lines copy?
#
# A line of tensor code may look at numbers that are there, or put them elsewhere. You predict which, and count.
#
# **Time** 15 min. **Before this** lesson 01.

# %% setup
import torch

from helpers import count, lesson

lesson.start("${folder}", evidence=["live (CPU)"])

# %% experiment
you = lesson.predict({"x.T": ..., "x.T.contiguous()": ...}, choices=["copies", "does not"])

# %% experiment
x = torch.ones(64, 64)
counts = {"x.T": count(lambda: x.T), "x.T.contiguous()": count(lambda: x.T.contiguous())}
you.against({k: "copies" if made.copies else "does not" for k, made in counts.items()}, evidence="live (CPU)")
"""
