"""Start ranks, ask whether they live, end them: by a server that forks (Linux), or as programs of their own."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from typing import Any

#: whether ranks are forked from a server; else each is a program that imports torch for itself
FORKS = sys.platform == "linux" and hasattr(os, "fork")

_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from helpers.ranks.{} import {} as go; go({})"
)


def _command(module: str, name: str, arguments: str, *args: str) -> list[str]:
    # -P: no folder of the notebook's comes before the path that the notebook's own process has
    return [sys.executable, "-P", "-c", _CODE.format(module, name, arguments), json.dumps(sys.path), *args]


class Server:
    """The notebook's side of :mod:`helpers.ranks.server`."""

    def __init__(self, into: Any, out: Any, process: subprocess.Popen[str] | int, errors: Any = None) -> None:
        self._into, self._out, self._process, self._errors = into, out, process, errors
        self.owner = os.getpid()
        self.ready = False
        self.busy = False  # in the middle of a request

    @classmethod
    def started(cls) -> Server:
        """A new server process, which need not be ready yet."""
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as the process lives
        process = subprocess.Popen(
            _command("server", "main", ""),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            encoding="utf-8",
            # Ctrl-C in a terminal goes to everything in the foreground
            start_new_session=True,
            # NumPy's own threads would start with it, and a process with threads is not safely forked
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )
        return cls(process.stdin, process.stdout, process, errors)

    def wait_until_ready(self) -> None:
        """RuntimeError with what it printed, if it cannot be used."""
        if not self.ready:
            self._reply()
            self.ready = True

    def ask(self, **request: Any) -> dict[str, Any]:
        """One request and its answer."""
        self.busy = True
        self.wait_until_ready()
        with contextlib.suppress(OSError):  # the missing reply tells
            self._into.write(json.dumps(request) + "\n")
            self._into.flush()
        reply = self._reply()
        self.busy = False
        return reply

    def _reply(self) -> dict[str, Any]:
        text = self._out.readline()
        if not text:
            said = ""
            if self._errors is not None:
                self._errors.seek(0)
                said = self._errors.read().decode(errors="replace")[-1500:]
            self.close()
            raise RuntimeError(f"the process from which ranks are started has ended. {said}".strip())
        return dict(json.loads(text))

    def alive(self) -> bool:
        if self.owner != os.getpid():  # this process is a fork of the one that it belongs to
            return False
        if isinstance(self._process, int):
            try:
                return os.waitpid(self._process, os.WNOHANG) == (0, 0)
            except ChildProcessError:
                return False
        return self._process.poll() is None

    def close(self) -> None:
        """End it, and with it every rank."""
        if self.owner != os.getpid():
            return
        with contextlib.suppress(OSError):
            self._into.close()
        if isinstance(self._process, int):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._process, 0)
        else:
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self._process.kill()  # the ranks die with it
                self._process.wait()
        with contextlib.suppress(OSError):
            self._out.close()
        if self._errors is not None:
            self._errors.close()


_server: Server | None = None


def server() -> Server:
    """This process's server; a new one if there is none that lives."""
    global _server
    if _server is None or not _server.alive():
        _server = Server.started()
        atexit.register(_server.close)
    return _server


def drop() -> None:
    """End the server, if there is one."""
    global _server
    if _server is not None:
        atexit.unregister(_server.close)
        _server.close()
        _server = None


def fork_server() -> None:
    """Make the server out of this process. Only where torch has run nothing yet and no other thread is.

    For a process that is itself forked from one that has imported torch, as the graders' are: it costs
    milliseconds. Linux only.
    """
    global _server
    from . import rank
    from . import server as module

    module.load()
    to_server, from_server = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            rank.die_with_parent()
            _close_all_but(0, 1, 2, to_server[0], from_server[1])
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            module.serve(to_server[0], os.fdopen(from_server[1], "w", encoding="utf-8"))
        finally:
            os._exit(0)
    os.close(to_server[0])
    os.close(from_server[1])
    _server = Server(
        os.fdopen(to_server[1], "w", encoding="utf-8"), os.fdopen(from_server[0], encoding="utf-8"), pid
    )
    atexit.register(_server.close)


def _close_all_but(*keep: int) -> None:
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd not in keep:
            with contextlib.suppress(OSError):
                os.close(fd)


#: what ranks have imported so far and a server should have before it forks the next
_wanted: dict[str, None] = {}


def want(modules: list[str]) -> None:
    """Remember that ranks import these."""
    _wanted.update(dict.fromkeys(modules))


class Forked:
    """Ranks that the server forks."""

    def __init__(self) -> None:
        self._server = server()

    def start(self, folder: str, n: int) -> None:
        self._server.ask(do="start", folder=folder, n=n, modules=list(_wanted))

    def ended(self) -> dict[int, int]:
        """Rank → exit status (or minus the signal) of those that have ended."""
        return {int(k): v for k, v in self._server.ask(do="poll")["ended"].items()}

    def ask_where(self) -> bool:
        """Have each write where it is; False: cannot be asked."""
        self._server.ask(do="signal", signal=int(signal.SIGUSR1))
        return True

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
        codes = {i: one.poll() for i, one in enumerate(self._all)}
        return {i: code for i, code in codes.items() if code is not None}

    def ask_where(self) -> bool:
        if not hasattr(signal, "SIGUSR1"):
            return False
        for one in self._all:
            one.send_signal(signal.SIGUSR1)
        return True

    def stop(self) -> None:
        for one in self._all:
            if hasattr(os, "killpg"):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(one.pid, signal.SIGKILL)
            one.kill()
        for one in self._all:
            one.wait()
            if one.stdin is not None:
                one.stdin.close()
