"""What an answer may do to the process it runs in, and what that earns: nothing more than it is worth."""

import subprocess
import time
from collections.abc import Iterator

import pytest
import torch

from helpers.check.sealed import sealed
from helpers.classroom import master as masters
from helpers.classroom.master import Master
from helpers.classroom.runner import Runner
from helpers.simulator import simulate
from tests.test_build import GOOD, write

#: right values by twice the operators: earns the visible test's point, and not the two for its cost
DEAR = "def twice(x):\n    return x + x + torch.zeros_like(x)\n"
HIDE = {
    "modes off": "from torch.utils._python_dispatch import _disable_current_modes as off\ndear = twice\ndef twice(x):\n    with off():\n        return dear(x)",
    "key guard": "dear = twice\ndef twice(x):\n    with torch._C._DisableTorchDispatch():\n        return dear(x)",
    "thread": "import threading\ndear = twice\ndef twice(x):\n    out = []\n    t = threading.Thread(target=lambda: out.append(dear(x)))\n    t.start(); t.join()\n    return out[0]",
    "pool": "from concurrent.futures import ThreadPoolExecutor\ndear = twice\ndef twice(x):\n    with ThreadPoolExecutor(1) as pool:\n        return pool.submit(dear, x).result()",
}
#: found from inside the call: the mode that counts, and the lists in which the guard might keep what it saw
TAMPER = {
    "current mode": "from torch.utils._python_dispatch import _get_current_dispatch_mode as now\ndear = twice\ndef twice(x):\n    mode = now()\n    mode.silent = 1\n    y = dear(x)\n    mode.silent = 0\n    return y",
    "all objects": "import gc\ndear = twice\ndef twice(x):\n    mode = next(o for o in gc.get_objects() if type(o).__name__ == 'Watch')\n    mode.silent = 1\n    y = dear(x)\n    mode.silent = 0\n    return y",
    "thread, lists emptied": HIDE["thread"].replace("return out[0]", "y = out[0]\n    import sys\n    f = sys._getframe()\n    while f:\n        [v.clear() for v in f.f_locals.values() if isinstance(v, list)]\n        f = f.f_back\n    return y"),
    "kernel called past the modes": "op = torch.ops.aten.add.Tensor\ndear = twice\ndef twice(x):\n    return op.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), x, x)",
    "frames": "import sys\ndear = twice\ndef twice(x):\n    sys._getframe(1)\n    return dear(x)",
    "frames through inspect": "import inspect\ndear = twice\ndef twice(x):\n    inspect.currentframe().f_back\n    return dear(x)",
    "by its address": "import ctypes\ndear = twice\ndef twice(x):\n    y = dear(x)\n    (ctypes.c_float * 1).from_address(y.data_ptr())\n    return y",
    "frames through a profile function": "import sys\ndear = twice\ndef twice(x):\n    sys.setprofile(lambda *a: None)\n    y = dear(x)\n    sys.setprofile(None)\n    return y",
    "frames through inspect.stack": "import inspect\ndear = twice\ndef twice(x):\n    inspect.stack()[1].frame\n    return dear(x)",
    "frames through a traceback": "dear = twice\ndef twice(x):\n    try:\n        1 / 0\n    except ZeroDivisionError as e:\n        e.__traceback__.tb_frame\n    return dear(x)",
    "frames of a generator": "dear = twice\ndef twice(x):\n    def g():\n        yield it.gi_frame\n    it = g()\n    next(it)\n    return dear(x)",
    "frames of all threads": "import sys\ndear = twice\ndef twice(x):\n    sys._current_frames()\n    return dear(x)",
    "kernel by its key": "op = torch.ops.aten.add.Tensor\ndef twice(x):\n    return op._op_dk(torch._C.DispatchKey.CPU, x, x)",
    "loader's worker": "from torch.utils.data import DataLoader\ndear = twice\ndef twice(x):\n    return next(iter(DataLoader([x], num_workers=1, collate_fn=lambda b: dear(b[0]), multiprocessing_context='fork')))",
    "trace function": "import sys\ndear = twice\ndef twice(x):\n    sys.settrace(lambda *a: None)\n    y = dear(x)\n    sys.settrace(None)\n    return y",
}  # fmt: skip
REPLACE = {
    "storage": "one = torch.zeros(1).untyped_storage()\ntorch.Tensor.untyped_storage = lambda self: one",
    "mode": "import torch.utils._python_dispatch as d\nd.TorchDispatchMode.__enter__ = lambda self: self\nd.TorchDispatchMode.__exit__ = lambda *a: None",
    "push": "import torch.utils._python_dispatch as d\nd._push_mode = d._pop_mode = lambda *a: None",
    "finalize": "import weakref\nweakref.finalize = lambda *a, **k: None",
    "probe": "import helpers.check.probe as p\np._count = p._run = p.answer = p.encode = None",
    "counts": "import gc\nfor o in gc.get_objects():\n    if isinstance(o, type) and o.__name__ == 'Counts':\n        o.as_dict = lambda self: {'operators': 0}",
    "builtins": "import builtins\nbuiltins.isinstance = lambda *a: True\nbuiltins.len = lambda x: 0",
    "json": "import json\njson.dumps = lambda *a, **k: '{}'",
}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Master:
    return masters.read(write(tmp_path_factory.mktemp("guard"), GOOD))


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner() as running:
        yield running


def test_counts_found_on_the_stack_are_not_the_ones_that_grade(runner: Runner, master: Master) -> None:
    cheat = """
import sys
dear = twice
def twice(x):
    y, frame = dear(x), sys._getframe()
    while frame:
        for value in frame.f_locals.values():
            if type(value).__name__ == "Counts":
                value.operators = 0
        frame = frame.f_back
    return y
"""
    score = runner.grade(master, "twice", DEAR + cheat)
    text = score.verdicts["twice__hidden"].text
    assert score.earned == 1 and ("dispatched" in text or "cannot see" in text)


def test_a_sealed_gpu_shows_what_a_real_one_does() -> None:
    with simulate("T4", strict=False) as gpu:
        shown = sealed(gpu)
        x = torch.empty(64, 64, device=shown.device)
        start, end = shown.Event(enable_timing=True), shown.Event(enable_timing=True)
        start.record()
        side = shown.Stream()
        with shown.stream(side):
            x @ x
        shown.current_stream().wait_stream(side)
        x.record_stream(side)
        end.record()
        shown.synchronize()
        assert shown.clock() > 0 and start.elapsed_time(end) > 0 and side == side and "T4" in repr(shown)
        for name in ("kernels", "host", "races", "faults", "collectives", "_timeline", "__dict__"):
            with pytest.raises(AttributeError, match="torch.cuda's names"):
                getattr(shown, name)
        with pytest.raises(AttributeError, match="cannot be set"):
            shown.clock = lambda: 0.0
    assert len(gpu.kernels) == 1 and not gpu.races


LATE = {
    "as_dict": "import gc\n        p = __import__('helpers.check.probe').check.probe\n        p._counters.Counts.as_dict = lambda self: {'operators': 0}",
    "class of the counts": "f = sys._getframe()\n        while f:\n            for v in f.f_locals.values():\n                if type(v).__name__ == 'Counts':\n                    v.__class__ = type('Mine', (type(v),), {'__slots__': (), 'as_dict': lambda self: {'operators': 0}})\n            f = f.f_back",
    "told": "f = sys._getframe()\n        while f:\n            for v in list(f.f_locals.values()):\n                for c in getattr(v, '__closure__', None) or ():\n                    try:\n                        if c.cell_contents is None: c.cell_contents = {'operators': 0}\n                    except ValueError: pass\n            f = f.f_back",
}  # fmt: skip


@pytest.mark.parametrize("name", LATE)
def test_what_is_replaced_during_the_call_is_put_back_before_its_result_is_read(
    runner: Runner, master: Master, name: str
) -> None:
    late = f"\nimport sys\ndear = twice\ndef twice(x):\n    try:\n        {LATE[name]}\n    finally:\n        y = dear(x)\n    return y"
    assert runner.grade(master, "twice", DEAR + late).earned <= 1


def test_a_result_is_read_by_the_graders_own_function(runner: Runner, master: Master) -> None:
    spoils = "def twice(x):\n    import helpers.check.probe as p\n    p.encode = lambda value: {}\n    return x * 2"
    assert runner.grade(master, "twice", spoils).earned == 3, (
        "put back after the call: the right value arrives"
    )


def test_a_blinded_simulator_sees_again(runner: Runner, master: Master) -> None:
    """What an answer patches in the helpers does not outlive its call: stock nbgrader keeps one kernel a notebook."""
    from helpers.check.guard import remember
    from helpers.simulator import races

    restore = remember([], code_of=[races])
    kept = races.Races._report
    races.Races._report = lambda *about: None  # type: ignore[method-assign,assignment]
    try:
        assert "Races._report" in restore() and races.Races._report is kept
    finally:
        races.Races._report = kept  # type: ignore[method-assign]


def test_the_dear_answer_earns_one_point(runner: Runner, master: Master) -> None:
    assert runner.grade(master, "twice", DEAR).earned == 1


@pytest.mark.parametrize("name", REPLACE)
def test_replacing_what_measures_earns_nothing(runner: Runner, master: Master, name: str) -> None:
    assert runner.grade(master, "twice", DEAR + REPLACE[name]).earned <= 1


@pytest.mark.parametrize("name", [*HIDE, *TAMPER])
def test_hidden_work_is_not_free(runner: Runner, master: Master, name: str) -> None:
    score = runner.grade(master, "twice", DEAR + (HIDE | TAMPER)[name])
    assert score.earned <= 1
    assert "where the counters cannot see it" in score.verdicts["twice__hidden"].text


def test_the_standard_library_may_look_at_frames(runner: Runner, master: Master) -> None:
    honest = "def twice(x):\n    import collections, logging, warnings\n    collections.namedtuple('P', 'a b'); logging.getLogger().debug('x'); warnings.warn('y')\n    return x * 2"
    score = runner.grade(master, "twice", honest)
    assert score.earned == 3, score.verdicts


def test_a_drive_may_look_at_frames_and_its_answer_may_not(
    runner: Runner, tmp_path_factory: pytest.TempPathFactory
) -> None:
    looks = """def looks(twice, x):
    import sys

    def stack(*about):
        return sys._getframe()

    sys.setprofile(stack)
    sys.setprofile(None)
    try:
        stack().missing
    except AttributeError as e:
        e.__traceback__.tb_frame
    return twice(x)


check.function("twice", [check.case(torch.arange(9.0))]"""
    text = GOOD.replace('check.function("twice", [check.case(torch.arange(9.0))]', looks)
    text = text.replace("expect=lambda x: x + x, budget", "expect=lambda x: x + x, drive=looks, budget")
    driven = masters.read(write(tmp_path_factory.mktemp("driven"), text))
    assert runner.grade(driven, "twice", "def twice(x):\n    return x * 2").earned == 3
    looking = "import sys\ndef twice(x):\n    sys._getframe(1)\n    return x * 2"
    assert runner.grade(driven, "twice", looking).earned == 1


@pytest.mark.parametrize(
    "answer", ["10 ** 400", "None", "object()", "float('nan')", "[[]] * 3", "x.to('meta')"]
)
def test_odd_answers_end_only_their_test(runner: Runner, master: Master, answer: str) -> None:
    assert runner.grade(master, "twice", f"def twice(x):\n    return {answer}").earned == 0
    assert runner.grade(master, "twice", DEAR).earned == 1, "the next answer is graded as ever"


def test_an_ended_process_is_told(runner: Runner, master: Master) -> None:
    score = runner.grade(master, "twice", "import os\nos._exit(0)")
    assert score.earned == 0 and "ended before it answered" in score.verdicts["twice__test"].text
    score = runner.grade(master, "twice", "def twice(x):\n    import os\n    os.kill(os.getpid(), 9)")
    assert score.earned == 0


def test_an_endless_answer_is_ended(runner: Runner, master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.classroom.runner.DEADLINE", 3.0)
    for endless in ("def twice(x):\n    while True: pass", "while True: pass"):
        score = runner.grade(master, "twice", endless)
        assert score.earned == 0 and "no answer within" in score.verdicts["twice__test"].text
    began = time.monotonic()
    while (left := _children(runner)) and time.monotonic() - began < 10:
        time.sleep(0.1)
    assert not left, "an answer that does not end must not be left running"


def _children(runner: Runner) -> list[str]:
    command = ["ps", "--ppid", str(runner._zygote.pid), "-o", "pid="]
    return subprocess.run(command, capture_output=True, text=True).stdout.split()


def test_a_cell_that_fails_is_named(runner: Runner, master: Master) -> None:
    score = runner.grade(master, "twice", "x = undefined\ndef twice(x): return x * 2")
    assert "NameError" in score.verdicts["twice__test"].text
