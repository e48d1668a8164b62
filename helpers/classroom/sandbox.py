"""Where code of strangers runs: a process with a warm torch, behind bubblewrap, that forks a child a notebook.

Inside there is no network, no home, no course folder, no gradebook and no other submission: Python, its packages and
``helpers`` can be read, and a small /tmp of its own can be written to. See bwrap(1).
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

from helpers.classroom.settings import ONE_THREAD, ROOT, UNSANDBOXED
from helpers.classroom.syscalls import rules
from helpers.classroom.zygote import READY
from helpers.ranks.starting import NO_GPU

#: bytes that a submission may leave in /tmp, and in shared memory
SCRATCH = 512 << 20
SHARED_MEMORY = 1 << 30
#: seconds within which the warm process sweeps and forks, some milliseconds of work; else it is made anew
_TOLD_S = 30.0
#: of the system, what Python, PyTorch and its compiler read
_SYSTEM = (
    "/usr /bin /sbin /lib /lib32 /lib64 /etc/ld.so.cache /etc/alternatives /etc/fonts /etc/localtime".split()
)
_CPU = "/sys/devices/system/cpu /sys/devices/system/node".split()
#: where `helpers` lies inside: alone, so that neither masters nor tests can be read
_COURSE = "/course"


class NoSandbox(RuntimeError):
    """There is no bubblewrap here, or it cannot make a sandbox; the text says what to do."""


def available() -> str:
    """ "" if submissions can be kept in a sandbox here, else why not."""
    if shutil.which("bwrap") is None:
        return "bubblewrap (bwrap) is not installed"
    trial = subprocess.run(
        ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"],
        capture_output=True,
        encoding="utf-8",
    )
    return "" if trial.returncode == 0 else f"bubblewrap cannot make a sandbox here ({trial.stderr.strip()})"


def require() -> bool:
    """Whether to use a sandbox. Raises :class:`NoSandbox` where there is none and nobody asked to go without."""
    if os.environ.get(UNSANDBOXED) == "1":
        return False
    if why := available():
        raise NoSandbox(
            f"{why}. Submissions are programs of strangers: without a sandbox they can read and change whatever you can.\n"
            "  Debian, Ubuntu: apt install bubblewrap    Fedora: dnf install bubblewrap\n"
            f"  To grade without it, at your own risk (on a machine that holds nothing else): {UNSANDBOXED}=1"
        )
    return True


@cache
def _knows(option: str) -> bool:
    return option in subprocess.run(["bwrap", "--help"], capture_output=True, encoding="utf-8").stdout


def _command(control: int, refused: int) -> list[str]:
    """bwrap, its options, and the zygote. control, refused: the file descriptors that it is spoken to through, and of the
    calls that it may not make (-1: none)."""
    packages = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent.parent}
    if any(ROOT.is_relative_to(path) and path != Path("/usr") for path in packages):
        raise NoSandbox(
            f"Python's environment is {sys.prefix}, and the course lies in it: submissions could read all of it. Make the "
            "environment in a folder of its own, for instance .venv"
        )
    readable = [*_SYSTEM, *_CPU, *sorted(map(str, packages))]
    command = [
        "bwrap",
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        # no process of bubblewrap's is left inside: it would outlive a notebook, with this user's environment in its memory
        "--as-pid-1",
        "--uid",
        "1000",
        "--gid",
        "1000",
    ]
    if _knows("--disable-userns"):  # bubblewrap 0.8, of 2023
        command += ["--unshare-user", "--disable-userns"]
    if refused >= 0:
        command += ["--seccomp", str(refused)]
    command += ["--hostname", "sandbox", "--proc", "/proc", "--dev", "/dev"]
    for place, most in {"/dev/shm": SHARED_MEMORY, "/tmp": SCRATCH}.items():
        command += ["--size", str(most), "--tmpfs", place]
    for path in readable:
        command += ["--ro-bind-try", path, path]
    command += ["--ro-bind", str(ROOT / "helpers"), f"{_COURSE}/helpers", "--chdir", "/tmp", "--clearenv"]
    # what a notebook leaves outside of /tmp, a module in /course for instance, would meet the next one; and where root
    # grades, a process inside could write to /proc/sys, which is the machine's
    for place in ("/proc", "/dev", "/"):
        command += ["--remount-ro", place]
    for name, value in _environment(_COURSE).items():
        command += ["--setenv", name, value]
    # -P: neither the folder it starts in nor a submission's files come before the packages
    return [*command, sys.executable, "-P", "-m", "helpers.classroom.zygote", str(control), "--alone"]


def _refused() -> int:
    """A file that holds the filter of :mod:`helpers.classroom.syscalls`; -1 where there is none for this machine."""
    if not (calls := rules()):
        return -1
    held = os.memfd_create("refused")
    os.write(held, calls)
    os.lseek(held, 0, os.SEEK_SET)
    return held


def _environment(course: str) -> dict[str, str]:
    return (ONE_THREAD | NO_GPU) | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"]),
        "PYTHONPATH": course,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
        "LANG": "C.UTF-8",
        "HOME": "/tmp",
        "USER": "student",
        "MPLBACKEND": "agg",
        **{name: value for name, value in os.environ.items() if name == "GRADE_CPU_S"},
    }


class Warm:
    """A process that has imported torch and run nothing, in a sandbox: ``with Warm() as warm: warm.fork()``.

    sandboxed: ``False`` runs it with this user's own rights, for tests of answers that are ours. bare: it has imported torch
    and nothing that lessons use, which takes half the time; for tests of the sandbox itself.
    """

    def __init__(self, sandboxed: bool = True, bare: bool = False) -> None:
        self.sandboxed, self.bare = sandboxed, bare
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False

    def __enter__(self) -> "Warm":
        """It imports meanwhile; the first :meth:`fork` waits for it."""
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _start(self) -> None:
        self._control, other = socket.socketpair()
        with other:
            handles = [other.fileno()]
            if self.sandboxed:
                refused = _refused()
                handles += [refused] if refused >= 0 else []
                command = _command(other.fileno(), refused)
                environment = {"PATH": os.environ.get("PATH", os.defpath)}
            else:
                command = [sys.executable, "-m", "helpers.classroom.zygote", str(other.fileno())]
                environment = os.environ | ONE_THREAD | NO_GPU | {"MPLBACKEND": "agg"}
            self._process = subprocess.Popen(
                [*command, *["--bare"] * self.bare],
                env=environment,
                pass_fds=handles,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
            for handle in handles[1:]:
                os.close(handle)
        self._ready = False

    def end(self) -> None:
        """End it and all that it started."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._control.close()
        self._process = None

    def fork(self) -> socket.socket:
        """A connection to a new child (:func:`helpers.classroom.zygote.serve`). The one before it is ended."""
        for _ in range(2):
            if self._process is None:
                self._start()
            if not self._ready and self._heard() is None:
                break
            self._ready = True
            ours, theirs = socket.socketpair()
            with theirs:
                if self._tell([theirs.fileno()]) is not None:
                    return ours
            ours.close()
            self.end()  # a notebook has ended it, or left what cannot be swept: a fresh one
        self.end()
        raise RuntimeError("the process that runs answers did not start; what it said stands above")

    def sweep(self) -> int:
        """End the child, and what it left running. How it had ended: its status, or minus its signal; the one that ends
        everything where the sandbox went with it."""
        told = self._tell([]) if self._ready and self._process is not None else None
        if told is None:
            self.end()
            return -signal.SIGKILL
        return told if told < 128 else 128 - told

    def _tell(self, handles: list[int]) -> int | None:
        """How the child before ended; ``None`` if there is no answer."""
        self._control.settimeout(_TOLD_S)
        try:
            socket.send_fds(self._control, [b"."], handles)
            return self._heard()
        except OSError:  # it has ended, or does not answer in time
            return None
        finally:
            self._control.settimeout(None)

    def _heard(self) -> int | None:
        said = self._control.recv(2, socket.MSG_WAITALL)
        return said[1] if len(said) == 2 and said[:1] == READY else None
