"""Start ranks, ask whether they live, end them: by a server that forks (Linux), or as programs of their own."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

from . import rank
from . import server as server_module

#: whether ranks are forked from a server; else each is a program that imports torch for itself
FORKS = sys.platform == "linux"
#: of a process that is to see no GPU; CUDA reads it once, when it is first asked
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def _command(module: str, name: str, arguments: str, *args: str) -> list[str]:
    code = "import json, sys; sys.path[:] = json.loads(sys.argv[1])"
    code += f"; from helpers.ranks.{module} import {name} as go; go({arguments})"
    # -P: no folder of the notebook's comes before the path that the notebook's own process has
    return [sys.executable, "-P", "-c", code, json.dumps(sys.path), *args]


class Server:
    """The notebook's side of :mod:`helpers.ranks.server`: a process, and the pipes into it and out of it."""

    def __init__(self, pid: int, into: int, out: int, errors: IO[bytes] | None = None) -> None:
        self._into, self._out = os.fdopen(into, "w", encoding="utf-8"), os.fdopen(out, encoding="utf-8")
        self._pid, self._errors = pid, errors
        self._owner = os.getpid()
        self._ready = self._lent = False
        self.busy = False  # in the middle of a request

    @classmethod
    def started(cls) -> Server:
        """A new server process, which need not be ready yet."""
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as the process lives
        (its_in, into), (out, its_out) = os.pipe(), os.pipe()
        ends = [(os.POSIX_SPAWN_DUP2, fd, i) for i, fd in enumerate((its_in, its_out, errors.fileno()))]
        # NumPy's own threads would start with it, and a process with threads is not safely forked
        environ = os.environ | {"OPENBLAS_NUM_THREADS": "1"} | NO_GPU
        command = _command("server", "main", "")
        # in a session of its own: Ctrl-C in a terminal goes to everything in the foreground
        pid = os.posix_spawn(command[0], command, environ, file_actions=ends, setsid=True)
        os.close(its_in)
        os.close(its_out)
        return cls(pid, into, out, errors)

    def ask(self, **request: Any) -> dict[str, Any]:
        """One request and its answer. RuntimeError with what the server printed, if it cannot be used."""
        self.busy = True
        self.wait_until_ready()
        with contextlib.suppress(OSError):  # the missing reply tells
            self._into.write(json.dumps(request) + "\n")
            self._into.flush()
        reply = self._reply()
        self.busy = False
        return reply

    def wait_until_ready(self) -> None:
        if not self._ready:
            self._reply()
            self._ready = True

    def lend(self) -> None:
        """In a copy of the process that the server belongs to, which waits until this copy has ended."""
        self._owner, self._lent = os.getpid(), True

    def _reply(self) -> dict[str, Any]:
        if text := self._out.readline():
            return dict(json.loads(text))
        errors = b""
        if self._errors is not None:
            self._errors.seek(0)
            errors = self._errors.read()[-1500:]
        self.close()
        text = errors.decode(errors="replace")
        raise RuntimeError(f"the process from which ranks are started has ended. {text}".strip())

    def alive(self) -> bool:
        if self._owner != os.getpid():  # this process is a fork of the one that it belongs to
            return False
        if self._lent:
            # only its parent hears how it ends; here the pipe tells, when nobody holds its other end
            return not self._out.closed and not _hung_up(self._out.fileno())
        try:
            return os.waitpid(self._pid, os.WNOHANG) == (0, 0)
        except ChildProcessError:
            return False

    def close(self, at_once: bool = False) -> None:
        """End it, and with it every rank. at_once: whoever holds its input open, and in the middle of a request."""
        if self._owner != os.getpid():
            return
        with contextlib.suppress(OSError):
            self._into.close()
        if at_once or self._lent:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)  # the ranks die with it
        until = time.monotonic() + 15
        while self.alive():  # a process that was forked from this one may hold its input open
            time.sleep(0.001)
            if time.monotonic() > until:
                os.kill(self._pid, signal.SIGKILL)  # the ranks die with it
        self._out.close()
        if self._errors is not None:
            self._errors.close()


_server: Server | None = None


def _hung_up(fd: int) -> bool:
    looking = select.poll()
    looking.register(fd, 0)
    return bool(looking.poll(0))


def server() -> Server:
    """This process's server; a new one if there is none that lives."""
    global _server
    if _server is None or not _server.alive():
        _server = Server.started()
        atexit.register(_server.close)
    return _server


def drop(at_once: bool = False) -> None:
    """End the server, if there is one."""
    global _server
    if _server is not None:
        atexit.unregister(_server.close)
        _server.close(at_once)
        _server = None


def borrow() -> None:
    """In a copy of the process that has the server: use it, where a copy cannot fork one. Its owner waits meanwhile."""
    if _server is not None and FORKS:
        _server.lend()


def give_back() -> None:
    """Before such a copy ends: a server that owes an answer would give it to the next who asks."""
    if _server is not None and _server.busy:
        drop(at_once=True)


def fork_server() -> None:
    """Make the server out of this process. Only where torch has run nothing yet and no other thread is.

    For a process that is itself forked from one that has imported torch, as the graders' are: it costs
    milliseconds. Linux only.
    """
    global _server
    server_module.load()
    (its_in, into), (out, its_out) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            rank.die_with_parent()
            _close_all_but(0, 1, 2, its_in, its_out)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            server_module.serve(its_in, os.fdopen(its_out, "w", encoding="utf-8"))
        finally:
            os._exit(0)
    os.close(its_in)
    os.close(its_out)
    _server = Server(pid, into, out)
    _server.wait_until_ready()
    atexit.register(_server.close)


def _close_all_but(*keep: int) -> None:
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd not in keep:
            with contextlib.suppress(OSError):
                os.close(fd)


class Forked:
    """Ranks that the server forks."""

    def __init__(self) -> None:
        self._server = server()
        self.pids: list[int] = []

    def start(self, folder: str, n: int) -> None:
        started = self._server.ask(do="start", folder=folder, n=n)
        self.pids = list(started["ranks"].values())

    def ended(self) -> dict[int, int]:
        """Rank → exit status (or minus the signal) of those that have ended."""
        return {int(k): v for k, v in self._server.ask(do="poll")["ended"].items()}

    def ask_where(self) -> None:
        """Have each write where it is."""
        self._server.ask(do="signal", signal=int(signal.SIGUSR1))

    def stop(self) -> None:
        """End every process of the run; returns when there is none."""
        if self._server.busy:  # a request was broken off, and its answer would be taken for the next one's
            drop()
        else:
            self._server.ask(do="stop")


class Spawned:
    """Ranks that are programs of their own."""

    def __init__(self) -> None:
        self._all: list[subprocess.Popen[bytes]] = []

    @property
    def pids(self) -> list[int]:
        return [program.pid for program in self._all]

    def start(self, folder: str, n: int) -> None:
        self._all += [
            subprocess.Popen(
                _command("rank", "spawned", "sys.argv[2], int(sys.argv[3])", folder, str(i)),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            for i in range(n)
        ]

    def ended(self) -> dict[int, int]:
        codes = {i: program.poll() for i, program in enumerate(self._all)}
        return {i: code for i, code in codes.items() if code is not None}

    def ask_where(self) -> None:
        for program in self._all:
            program.send_signal(signal.SIGUSR1)

    def stop(self) -> None:
        for program in self._all:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(program.pid, signal.SIGKILL)
            program.kill()
        for program in self._all:
            program.wait()
            if program.stdin is not None:
                program.stdin.close()
