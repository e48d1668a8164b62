"""What code of strangers cannot reach, use up or leave behind: tried from inside, past the screen that would refuse most."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from helpers.classroom import engine, sandbox
from helpers.classroom.bench import Bench
from helpers.classroom.engine import Learner, Ran, grade
from helpers.classroom.runner import Runner
from helpers.classroom.step import Step
from helpers.classroom.submission import GRADING, enter

pytestmark = [
    pytest.mark.skipif(bool(sandbox.available()), reason=sandbox.available() or "there is a sandbox"),
    pytest.mark.timeout(300),
]
Run = Callable[..., list[Ran]]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """A bare one: what lessons use makes no wall thicker, and a sandbox that a test ends is soon there again.

    (That nothing of it is left behind, or makes a sandbox anew, tests/test_grading.py says.)
    """
    os.environ["TOKEN_OF_THE_GRADER"] = "secret"
    with Runner(sandboxed=True, bare=True) as running:
        yield running
    del os.environ["TOKEN_OF_THE_GRADER"]


@pytest.fixture
def run(runner: Runner) -> Run:
    """Runs cells in a notebook of their own, and ends it: what came of each."""

    def cells(*sources: str) -> list[Ran]:
        with runner.notebook(list(sources)) as notebook:
            return [notebook.ran[place] for place in range(len(sources))]

    return cells


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ended its process is tried again in the same sandbox: a fresh one takes seconds, and is another test's."""

    monkeypatch.setattr(Learner, "anew", Learner.close)


def printed(run: Run, *sources: str) -> str:
    *_, last = run(*sources)
    assert last.error is None and not last.ended, last
    return last.printed


#: tries each of `things` by `way`, and prints those that did not fail
TRY = """
def done(way, *things):
    for thing in things:
        try:
            way(thing)
        except Exception:
            continue
        print(thing)
"""


# --- what can be seen -------------------------------------------------------------------------------------------------


def test_no_network(run: Run) -> None:
    said = printed(
        run,
        TRY + "import os, socket\n"
        "done(lambda at: socket.create_connection(at, 2), ('127.0.0.1', 22), ('192.0.2.1', 80), ('1.1.1.1', 53))\n"
        "done(socket.gethostbyname, 'example.org')\n"
        "print(socket.if_nameindex())",
    )
    assert said == "[(1, 'lo')]\n"


def test_no_file_of_the_grader(run: Run, tmp_path: Path) -> None:
    secret = tmp_path / "gradebook.db"
    secret.write_text("grades")
    places = [
        str(secret),
        str(Path.home()),
        *map(str, (sandbox.ROOT / n for n in ("solutions", "tests", ".git", "notebooks"))),
    ]
    places += [
        "/etc/passwd",
        "/etc/shadow",
        "/etc/ssh",
        "/home",
        "/var",
        "/run",
        str(Path.home() / ".ssh"),
        "/mnt",
        "/opt",
        "/boot",
    ]
    said = printed(
        run,
        TRY + "import os, sys\n"
        f"done(lambda at: os.listdir(at) if os.path.isdir(at) else open(at).read(), {', '.join(map(repr, places))})",
    )
    # of the home and of the course there may be folders that lead to Python and hold nothing else
    for shown in said.split():
        inside = printed(
            run, f"import os\nprint(*(f for _, _, files in os.walk({shown!r}) for f in files), sep='\\n')"
        )
        held = str(sandbox.sys.prefix), str(sandbox.sys.base_prefix)
        assert any(python.startswith(shown) for python in held) and "gradebook.db" not in inside, shown


def test_no_word_of_the_grader(run: Run) -> None:
    """Neither in this process's variables nor in those of another."""
    said = printed(
        run,
        "import glob\nfor path in glob.glob('/proc/*/environ') + glob.glob('/proc/*/task/*/environ'):\n"
        "    try:\n        print(open(path).read())\n    except OSError:\n        pass",
    )
    assert "student" in said and "secret" not in said
    assert printed(run, "import os\nprint(*(p for p in os.listdir('/proc') if p.isdigit()))").count(" ") <= 3


def test_the_first_process_is_closed(run: Run) -> None:
    """It forks the next student's: who could write into it, stop it or take its socket would answer for them."""
    ours = "import os, signal, ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    said = printed(
        run,
        ours + TRY + "done(lambda f: open(f'/proc/1/{f}', 'rb').read(10), 'mem', 'maps', 'environ', 'auxv')\n"
        "done(lambda f: os.readlink(f'/proc/1/{f}'), 'fd/0', 'fd/3', 'exe', 'cwd')\n"
        "print('traced', libc.ptrace(16, 1, 0, 0))\n"
        "print('taken', libc.syscall(438, libc.syscall(434, 1, 0), 3, 0))",
    )
    assert said.split() == ["traced", "-1", "taken", "-1"]
    for name in ("SIGSTOP", "SIGKILL", "SIGTERM", "SIGSEGV", "SIGINT"):
        printed(run, ours + f"os.kill(1, signal.{name})")
    assert printed(run, "print('as before')") == "as before\n"


def test_nothing_can_be_written_but_scratch(run: Run) -> None:
    """/proc/sys is the machine's own, and root's to write to: also for a root that sits in a sandbox."""
    said = printed(
        run,
        TRY + "import os\n"
        "done(lambda at: open(at + '/new', 'w'), '/', '/course', '/course/helpers', '/dev', '/etc', '/usr', '/sys', '/proc', '/tmp', '/dev/shm')\n"
        "done(lambda at: open(at, 'r+b'), '/proc/sys/kernel/core_pattern', '/proc/sys/kernel/hostname', '/proc/sysrq-trigger', '/proc/irq/default_smp_affinity')\n"
        "done(lambda at: os.listxattr(at) and None or os.chmod(at, 0o777), '/usr/bin', '/course/helpers')",
    )
    assert said.split() == ["/tmp", "/dev/shm"]


def test_no_sandbox_of_ones_own(run: Run) -> None:
    """Within a user namespace of its own a process is root, and meets much more of the kernel."""
    said = printed(run, "import ctypes\nprint(ctypes.CDLL(None).unshare(0x10000000))")
    assert said == "-1\n" or not sandbox._knows("--disable-userns")


# --- what can be used up ----------------------------------------------------------------------------------------------


def test_memory_files_and_output_end(run: Run) -> None:
    (memory,) = run("held = bytearray(5 << 30)")
    assert memory.error and memory.error[0] == "MemoryError"
    (disk,) = run("for i in range(9):\n    open(f'/tmp/{i}', 'wb').write(bytes(128 << 20))")
    assert disk.error and "No space left" in disk.error[1]
    (large,) = run(
        "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nopen('/tmp/x', 'wb').write(bytes(300 << 20))"
    )
    assert "File too large" in str(large.error)
    (noise,) = run("import os\nfor _ in range(300):\n    print('x' * 2**20)\n    os.write(1, bytes(2**20))")
    assert len(noise.printed) <= 20_000 and noise.error is None


def test_processes_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = "import os, time\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        time.sleep(1)"
    with monkeypatch.context() as hurry:  # each second makes some hundred processes, which others wait for
        hurry.setattr("helpers.classroom.engine.CELL_S", 2.0)
        assert "no answer within 2 s" in run(bomb)[0].ended
    assert (
        printed(run, "import os\nprint(len([p for p in os.listdir('/proc') if p.isdigit()]) < 5)") == "True\n"
    )


def test_a_cell_ends(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    ignoring = "import signal\nfor s in range(1, 65):\n    try:\n        signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError):\n        pass\n"
    for endless in (
        ignoring + "while True:\n    pass",
        "import time\ntime.sleep(1000)",
        "import ctypes\nctypes.CDLL(None).pause()",
    ):
        with runner.notebook([]) as notebook:
            with monkeypatch.context() as hurry:
                hurry.setattr("helpers.classroom.engine.CELL_S", 1.0)
                notebook.run(Step(0, "setup", endless))
            # what comes next has half of the usual time, which is enough on a busy machine too
            notebook.run(Step(1, "setup", "print('the next one')"))
        assert "no answer within 1 s" in notebook.ran[0].ended
        assert notebook.ran[1].printed == "the next one\n"


# --- what is left behind ----------------------------------------------------------------------------------------------


def test_nothing_is_left(runner: Runner, run: Run) -> None:
    """Of a process in a session of its own, which ignores signals; of files, also those that are hard to remove."""
    outlives = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for s in (1, 2, 3, 15):
            signal.signal(s, signal.SIG_IGN)
        while True:
            time.sleep(1)
"""
    leaves = """
import os
os.makedirs('/tmp/.a/b/c')
os.symlink('/', '/tmp/.a/root')
os.mkfifo('/dev/shm/waits')
open('/tmp/.a/b/x', 'w').write('for the next one')
os.chmod('/tmp/.a/b', 0)
at = '/tmp/deep'
for _ in range(200):
    at += '/d' * 10
    os.makedirs(at, exist_ok=True)
"""
    run(outlives, leaves)
    inside = psutil.Process(runner.warm.pid).children(recursive=True) if runner.warm._process else []
    assert len(inside) <= 1, "the warm process alone"
    assert (
        len(printed(run, "import os\nprint(*(p for p in os.listdir('/proc') if p.isdigit()))").split()) <= 4
    )
    found = (
        "print([n for top in ('/tmp', '/dev/shm') for n in os.listdir(top) if n in ('.a', 'deep', 'waits')])"
    )
    assert printed(run, "import os\n" + found) == "[]\n"


def test_a_notebook_that_ends_everything_costs_itself(run: Run, swept: None) -> None:
    begun = "import os, subprocess\nsubprocess.Popen(['sleep', '60'])"
    assert printed(run, f"{begun}\nos.kill(-1, 9)\nprint('as before')") == "as before\n"
    for end in ("import os\nos.abort()", "import os\nos._exit(0)", "import ctypes\nctypes.string_at(0)"):
        ran = run(end, "print('the next one')")
        assert "ended before it answered" in ran[0].ended and ran[1].printed == "the next one\n"


WAYS = [
    "rlimit(psutil.RLIMIT_DATA, (64 << 20, 64 << 20))",
    "rlimit(psutil.RLIMIT_NOFILE, (8, 8))",
    "nice(19)",
    "cpu_affinity([min(os.sched_getaffinity(0))])",
]


def test_what_all_inherit_cannot_be_changed_for_the_next(run: Run) -> None:
    """The sandbox's first process forks everybody's: who lowers its limits lowers those of all who come after."""
    inherited = (
        "import os, resource\n"
        "print([resource.getrlimit(w) for w in (resource.RLIMIT_DATA, resource.RLIMIT_NOFILE)], os.nice(0),"
        " os.sched_getaffinity(0))"
    )
    before = printed(run, inherited)
    lowered = "\n".join(f"psutil.Process(1).{way}" for way in WAYS)
    assert run(f"import os, psutil\n{lowered}")[0].error is None
    assert printed(run, inherited) == before


@pytest.mark.parametrize("way", WAYS)
def test_each_of_them_is_seen(run: Run, way: str) -> None:
    """That process compares this before each fork; here a notebook lowers what is its own."""
    if "affinity" in way and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor")
    looks = "import os, psutil\nfrom helpers.classroom.zygote import _inherited\nbefore = _inherited()\n"
    assert printed(run, f"{looks}psutil.Process().{way}\nprint(_inherited() != before)") == "True\n"


LIBC = "import ctypes, os, platform\nlibc = ctypes.CDLL(None, use_errno=True)\n"


def test_no_memory_queue_or_key_outlives_its_notebook(run: Run) -> None:
    """SysV's and POSIX's stay until the sandbox ends, with what is in them: gigabytes that the next has not, or a note."""
    leaves = (
        LIBC + "from helpers.classroom.syscalls import REFUSED\n"
        "at = ('x86_64', 'aarch64').index(platform.machine())\n"
        "def call(name, *given):\n    return libc.syscall(REFUSED[name][at], *given)\n"
        "made = [call('shmget', 77, 1 << 20, 0o1666), call('semget', 77, 1, 0o1666), call('msgget', 77, 0o1666)]\n"
        "made += [call('mq_open', b'left', 0o102, 0o666, 0), call('add_key', b'user', b'left', b'x', 1, -4)]\n"
        "print(made)"
    )
    assert printed(run, leaves) == "[-1, -1, -1, -1, -1]\n"
    assert (
        printed(run, "print(*map(len, map(list, map(open, ('/proc/sysvipc/shm', '/proc/sysvipc/msg')))))")
        == "1 1\n"
    )


def test_calls_that_no_exercise_makes_are_refused(run: Run) -> None:
    """Each by its number on this machine, and by x32's."""
    said = printed(
        run,
        LIBC + "from helpers.classroom.syscalls import REFUSED, rules\n"
        "at = ('x86_64', 'aarch64').index(platform.machine())\n"
        "for name, numbers in REFUSED.items():\n"
        "    for number in (numbers[at], numbers[at] | 0x40000000):\n"
        "        ctypes.set_errno(0)\n"
        "        if libc.syscall(number, -1, -1, -1, -1, -1, -1) != -1 or ctypes.get_errno() != 1:\n"
        "            print(name, number, ctypes.get_errno())\n"
        "print(open('/proc/self/status').read().partition('Seccomp:')[2].split()[0], rules('pdp11'))",
    )
    assert said == "2 b''\n"


def test_folders_that_were_closed_or_labelled_are_as_before(run: Run) -> None:
    looks = "import os, tempfile\nprint([(oct(os.stat(at).st_mode), os.listxattr(at), os.listdir(at)) for at in ('/tmp', '/dev/shm')])\n"
    before = printed(run, looks + "_ = tempfile.TemporaryFile()")
    printed(
        run,
        "import os\nfor at in ('/tmp', '/dev/shm'):\n    open(at + '/left', 'w').write('x')\n    os.chmod(at, 0)\n"
        "try:\n    os.setxattr('/tmp', 'user.left', b'1')\nexcept OSError:\n    pass",
    )
    assert printed(run, looks + "_ = tempfile.TemporaryFile()") == before


# --- what the judge is told -------------------------------------------------------------------------------------------

SAY = """
import gc, json, socket, struct
(line,) = [o for o in gc.get_objects() if type(o) is socket.socket and o.fileno() > 0 and o.family == socket.AF_UNIX][:1]
def say(data, size=None):
    line.sendall(struct.pack('!Q', len(data) if size is None else size) + data)
"""


@pytest.mark.parametrize(
    "told",
    [
        "say(b'', 1 << 60)",
        "say(b'[' * 500000)",
        "say(b'9' * 500000)",
        "say(b'\\xff\\xfe')",
        "say(b'null')",
        'say(b\'{"printed": 7, "error": 7, "broken": [1]}\')',
        "say(json.dumps({'printed': 'x' * 30_000_000, 'error': ['e' * 10_000_000] * 3}).encode())",
        'say(b\'{"printed": {"a": 1}, "error": [1, 2]}\')',
        "line.shutdown(2)",
        "line.close()",
    ],
)
def test_whatever_it_is_told_the_judge_goes_on(run: Run, swept: None, told: str) -> None:
    first, second = run(SAY + told, "print('the next one')")
    for ran in (first, second):
        assert type(ran.printed) is str and len(ran.printed) <= 20_000 and type(ran.ended) is str
        assert ran.error is None or [type(part) for part in ran.error] == [str, str, str]
        assert sum(map(len, ran.error or ())) <= 60_000


def test_a_warm_process_that_does_not_answer_is_made_anew(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "_TOLD_S", 1.0)
    with runner.notebook(["x = 1"]):
        pass
    for inside in psutil.Process(runner.warm.pid).children(recursive=True):
        inside.suspend()
    with runner.notebook(["print('again')"]) as notebook:
        assert notebook.ran[0].printed == "again\n"


TWICE = "from helpers import check\ncheck.function('twice', [check.case({})], lambda x: 2 * x)"
THRICE = "from helpers import check\ncheck.function('thrice', [check.case(1)], [3])"


def test_what_a_hidden_test_gave_is_not_told(runner: Runner) -> None:
    """Neither by a cell that comes after it, nor by what a visible test quotes."""
    steps = [
        Step(
            0, "exercise", "SEEN = []\ndef twice(x):\n    SEEN.append(x)\n    return 2 * x", "twice", "twice"
        ),
        Step(1, "test", TWICE.format(5), "twice__test", "twice"),
        Step(2, "hidden", TWICE.format(424242), "twice__hidden", "twice"),
        Step(3, "exercise", "print(SEEN)\ndef thrice(x):\n    raise ValueError(SEEN)", "thrice", "thrice"),
        Step(4, "test", THRICE, "thrice__test", "thrice"),
    ]
    said = list(grade(runner.warm, steps, "01_storage_and_stride"))
    assert [event["passed"] for event in said if "passed" in event] == [True, True, False]
    assert "424242" not in str(said) and said[-1]["ran"][3][0] == "[]\n"


def test_what_was_changed_is_told_and_costs_one_exercise(runner: Runner) -> None:
    changes = "import torch\ndef put(kind):\n    kind.stride = None\nput(torch.Tensor)\ndef twice(x):\n    return 2 * x"
    steps = [
        Step(0, "exercise", changes, "twice", "twice"),
        Step(1, "test", TWICE.format(5), "twice__test", "twice"),
        Step(2, "exercise", "def thrice(x):\n    return 3 * x", "thrice", "thrice"),
        Step(3, "test", THRICE, "thrice__test", "thrice"),
    ]
    said = [event for event in grade(runner.warm, steps, "01_storage_and_stride") if "passed" in event]
    assert [event["passed"] for event in said] == [False, True]
    assert "`torch.Tensor.stride`, which others use too" in said[0]["text"]


# --- a process that ended is no verdict -------------------------------------------------------------------------------

ENDS = {
    "a fault of its own": ("import ctypes\n{}ctypes.string_at(0)", "SIGSEGV", False),
    "its own exit": ("import os\n{}os._exit(3)", "status 3", False),
    "from outside": ("import os\n{}os.kill(os.getpid(), 9)", "SIGKILL", True),
    "memory that is not there": ("import os\n{}os.kill(os.getpid(), 7)", "SIGBUS", True),
}  # fmt: skip


@pytest.mark.parametrize("where", ["in the answer", "in its cell"])
@pytest.mark.parametrize("what", ENDS)
def test_who_ends_twice_in_ones_own_way_has_failed_and_others_wait(
    runner: Runner, swept: None, what: str, where: str
) -> None:
    source, way, waits = ENDS[what]
    answer = source.format(
        "def twice(x):\n    " if "answer" in where else "def twice(x):\n    return 2 * x\n"
    )
    steps = [
        Step(0, "setup", answer, "twice", "twice"),
        Step(1, "test", TWICE.format(5), "twice__test", "twice"),
        Step(2, "setup", "def thrice(x):\n    return 3 * x"),
        Step(3, "test", THRICE, "thrice__test", "thrice"),
    ]
    said = [event for event in grade(runner.warm, steps, "01_storage_and_stride") if "passed" in event]
    assert [event["passed"] for event in said] == [False, True]
    assert (
        f"its process ended before it answered ({way}), and again alone in a fresh sandbox ({way})"
        in said[0]["text"]
    )
    assert bool(said[0]["human"]) == waits and not said[1]["human"]


def test_what_a_fresh_sandbox_says_counts(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a neighbour, or the machine, has ended the first."""
    anew = Learner.anew

    def once(learner: Learner) -> None:
        learner.cells = [Step(0, "setup", "def twice(x):\n    return 2 * x")]
        anew(learner)

    monkeypatch.setattr(Learner, "anew", once)
    steps = [
        Step(0, "setup", "import os\ndef twice(x):\n    os.kill(os.getpid(), 9)", "twice", "twice"),
        Step(1, "test", TWICE.format(5), "twice__test", "twice"),
    ]
    with runner.notebook([]):
        before = runner.warm.pid
    (said,) = [event for event in grade(runner.warm, steps, "01_storage_and_stride") if "passed" in event]
    assert said["passed"] and not said["human"] and runner.warm.pid != before


def test_time_that_is_used_up_is_a_verdict(runner: Runner) -> None:
    source = "import resource\ndef twice(x):\n    resource.setrlimit(resource.RLIMIT_CPU, (1, 99))\n    while True:\n        pass"
    steps = [
        Step(0, "setup", source, "twice", "twice"),
        Step(1, "test", TWICE.format(5), "twice__test", "twice"),
    ]
    with runner.notebook([]):
        before = runner.warm.pid
    (said,) = [event for event in grade(runner.warm, steps, "01_storage_and_stride") if "passed" in event]
    assert "it took more than 30 s of processor time" in said["text"] and not said["human"]
    assert runner.warm.pid == before


@pytest.mark.parametrize("code", ["-999", "-35", "'x'", "None", "1e999", "[1]"])
def test_whatever_it_is_said_to_have_died_of(runner: Runner, swept: None, code: str) -> None:
    lies = (
        SAY
        + f"def twice(x):\n    say(json.dumps({{'died': float({code!r}) if 'e9' in {code!r} else {code}}}).encode())\n    return 2 * x"
    )
    steps = [
        Step(0, "setup", lies, "twice", "twice"),
        Step(1, "test", TWICE.format(5), "twice__test", "twice"),
    ]
    (said,) = [event for event in grade(runner.warm, steps, "01_storage_and_stride") if "passed" in event]
    assert not said["passed"] and "ended before it answered" in said["text"] and said["human"]


def test_an_answer_that_comes_drop_by_drop_is_late(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CELL_S", 2.0)
    drops = """
import time
line.sendall(struct.pack('!Q', 9))
for _ in range(60):
    line.sendall(b' ')
    time.sleep(0.5)
"""
    with runner.notebook([SAY + drops]) as notebook:
        assert "no answer within 2 s" in notebook.ran[0].ended


def test_who_says_that_it_has_died_is_not_asked_again(runner: Runner) -> None:
    with runner.notebook([SAY]) as notebook:
        notebook._run(Step(1, "setup", "say(json.dumps({'died': 0}).encode())"))
        assert notebook.died() == 0 and notebook._connection is None


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """One judge for the tests that need a whole one: it comes with a sandbox that has all that lessons use, for seconds."""
    with Bench() as running:
        yield running


def test_half_a_surrogate_pair_is_told_as_something_that_can_be_written(bench: Bench, tmp_path: Path) -> None:
    """Raised and printed by an answer, it is to stand in a notebook, on a page and in a terminal, and none of them can hold it."""
    steps = [
        Step(0, "setup", r'HALF = "\ud800"' + "\nprint(HALF)"),
        Step(1, "exercise", "def twice(x):\n    raise ValueError(HALF)", "twice", "twice"),
        Step(2, "test", TWICE.format(5), "twice__test", "twice"),
    ]
    done = bench.grade("01_storage_and_stride", steps)
    about = {"grade": True, "grade_id": "twice__test", "points": 1}
    cells = [new_code_cell(metadata={"nbgrader": about if step.role == "test" else {}}) for step in steps]
    nb = new_notebook(cells=cells, metadata={GRADING: {"verdicts": {}}})
    enter(nb, done)
    nbformat.write(nb, tmp_path / "graded.ipynb")
    assert "raised ValueError: ?" in done.verdicts["twice__test"].text
    assert done.ran[0][:2] == ["?\n", None]


def test_a_judge_that_dies_costs_one_test_and_the_next_is_graded(bench: Bench) -> None:
    """No answer is known that ends it; here the test itself does."""
    steps = [
        Step(0, "exercise", "def twice(x):\n    return 2 * x", "twice", "twice"),
        Step(1, "test", "import os\nos.abort()", "twice__test", "twice"),
        Step(2, "hidden", TWICE.format(5), "twice__hidden", "twice"),
    ]
    done = bench.grade("01_storage_and_stride", steps)
    assert not done.verdicts["twice__test"].passed and done.verdicts["twice__hidden"].passed
    assert (
        "ended by signal 6" in done.verdicts["twice__test"].human and not done.verdicts["twice__hidden"].human
    )
    assert bench.grade("01_storage_and_stride", steps[:1] + steps[2:]).verdicts["twice__hidden"].passed


def test_a_notebook_that_no_judge_survives_is_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """At no test: after the second time. At each: after so many that nobody behind it waits for long."""
    monkeypatch.setattr("helpers.classroom.bench._MOST_ENDS", 2)
    tests = [Step(i, "test", "import os\nos.abort()", f"t{i}", "twice") for i in (1, 2, 3)]
    done = bench.grade("01_storage_and_stride", tests)
    assert not any(verdict.passed for verdict in done.verdicts.values())
    assert done.verdicts.keys() == {"t1", "t2", "t3"} and all(r.human for r in done.verdicts.values())
    with pytest.raises(RuntimeError, match="at no test, twice"):
        bench.grade("no_lesson", [Step(0, "added", None, "", "")])  # type: ignore[arg-type]


def test_no_sandbox_no_grading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(sandbox.UNSANDBOXED, raising=False)
    monkeypatch.setattr(sandbox.shutil, "which", lambda _: None)
    with pytest.raises(
        sandbox.NoSandbox, match=f"(?s)bwrap.*not installed.*apt install.*{sandbox.UNSANDBOXED}=1"
    ):
        sandbox.require()
    monkeypatch.setenv(sandbox.UNSANDBOXED, "1")
    assert not sandbox.require()


def test_the_course_may_not_lie_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m venv .` would open all of the course to submissions."""
    monkeypatch.setattr(sandbox.sys, "prefix", str(sandbox.ROOT))
    with pytest.raises(sandbox.NoSandbox, match="a folder of its own"):
        sandbox._command(0, -1)


def test_no_gpu_of_this_machine_is_seen(run: Run) -> None:
    """Neither by an answer nor by the judge: a grade is the same with one and without."""
    assert printed(run, "import os; print(repr(os.environ['CUDA_VISIBLE_DEVICES']))") == "''\n"
    assert printed(run, "import glob; print(glob.glob('/dev/nvidia*') + glob.glob('/dev/dri*'))") == "[]\n"
