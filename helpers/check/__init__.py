"""The one seam between a graded test and the learner's code.

A test names the learner's function, gives inputs, says what is expected and what it may cost:

    check.function("windows", [check.case(torch.arange(10.0), 3)],
                   expect=lambda x, size, step=1: torch.stack([...]), budget={"new_storages": 0})

What runs the learner's code (:mod:`helpers.check.probe`) and what compares (:mod:`helpers.check.judge`) exchange
plain data only. In a learner's notebook both live in the kernel; when grading, the judge, the expected values and
the hidden tests stay in the grader's process.
"""

from helpers.check.judge import Case, CheckFailed, Match, Report, case, function, through, value

__all__ = ["Case", "CheckFailed", "Match", "Report", "case", "function", "through", "value"]
