"""Run one test cell in this process, while the learner's code runs in another."""

import contextlib
import io
import linecache

import torch

from helpers import check
from helpers.check.judge import Transport
from helpers.check.machine_fault import machine_fault_of
from helpers.classroom.step import Verdict


def judge(source: str, label: str, transport: Transport) -> Verdict:
    """The verdict of a test cell's ``source``, reaching the learner's code through ``transport`` only."""
    filename = f"<test {label}>"
    # inspect.getsource, which ships a test's `drive` function, reads lines from here
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    said, threads = io.StringIO(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with contextlib.redirect_stdout(said), check.through(transport):
            exec(compile(source, filename, "exec"), {"__name__": "test"})  # noqa: S102 - the master's own test
    except check.CheckFailed as failure:
        return Verdict(False, str(failure))
    # an answer may be of a form that its test did not foresee: it fails, the grading goes on
    except Exception as odd:
        return Verdict(
            False,
            machine_fault_of(odd)
            or f"the answer has a form that this test does not understand ({type(odd).__name__}: {str(odd)[:300]})",
        )
    finally:
        torch.set_num_threads(threads)
    return Verdict(True, said.getvalue())
