"""A process that has imported torch and run no operator: forking it costs milliseconds, importing torch seconds.

    python -m helpers.classroom.zygote FD [--alone] [--bare]

FD is a socket. A byte through it ends the child before, and what that left running; the reply is a byte, and one that says
how that child ended (0 to 127: its status, else 128 and its signal). If a file descriptor comes with the byte, a new child is forked and speaks through that one:
it runs the cells of a notebook that it is sent, and answers the judge's requests. Messages are JSON with a length before
them. It ends where a notebook left what it cannot sweep, or changed what the next would inherit: then it is made anew.
"""

import argparse
import ast
import contextlib
import ctypes
import gc
import io
import json
import linecache
import os
import pkgutil
import resource
import signal
import socket
import struct
import sys
import time
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any

from helpers.check.cells import FUTURES
from helpers.ranks.server import end_all

if TYPE_CHECKING:
    from helpers.check.intact import Intact

#: what this process says: it can fork, and then each time that it has done as it was told
READY = b"."
#: the most bytes of one message; an answer's tensors take some thousands
MOST = 64 << 20
#: characters of what a cell prints that are kept
KEPT = 20_000
#: of one process of a submission: bytes of memory, of a file, open files, processes, and seconds of processor time a
#: cell or a request (no clock: a busy machine ends nobody)
LIMITS = {
    resource.RLIMIT_DATA: 4 << 30,
    resource.RLIMIT_FSIZE: 256 << 20,
    resource.RLIMIT_NOFILE: 4096,
    resource.RLIMIT_NPROC: 512,
    resource.RLIMIT_CORE: 0,
}
CPU_S = int(os.environ.get("GRADE_CPU_S", "30"))
#: how a copy ends that was told to
BACK = 17
#: the folders of a sandbox that can be written to
_OWN = ("/tmp", "/dev/shm")
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36  # prctl(2)
#: bytes of a huge page, and madvise(2)'s word for: make one of what lies there, now (Linux 6.1; others refuse it)
_HUGE, _MADV_COLLAPSE = 2 << 20, 25
#: of torch, a folder of modules that a first compilation loads all
_PATTERNS = "torch._inductor.fx_passes.serialized_patterns"


class TooLarge(ValueError):
    """A message is longer than :data:`MOST`."""


def send(connection: socket.socket, message: Any) -> None:
    data = json.dumps(message).encode()
    connection.sendall(struct.pack("!Q", len(data)) + data)


def receive(connection: socket.socket) -> Any:
    """The next message; ``None`` when the other side has closed. Raises :class:`TooLarge` before it reads such a one, and
    TimeoutError where it is not there as a whole within the socket's time-out."""
    seconds = connection.gettimeout()
    until = None if seconds is None else time.monotonic() + seconds
    head = _exactly(connection, 8, until)
    if not head:
        return None
    (size,) = struct.unpack("!Q", head)
    if size > MOST:
        raise TooLarge(f"{size:,} bytes")
    body = _exactly(connection, size, until)
    return json.loads(body) if body else None


def _exactly(connection: socket.socket, size: int, until: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        if until is not None:  # of the message, and not of each piece: it may come drop by drop
            connection.settimeout(max(until - time.monotonic(), 1e-3))
        chunk = connection.recv(min(size - len(parts), 1 << 20))
        if not chunk:
            return b""
        parts += chunk
    return bytes(parts)


class _Kept(io.StringIO):
    """What a cell prints, up to :data:`KEPT` characters: who prints without end fills no memory."""

    def write(self, text: str) -> int:
        super().write(text[: max(0, KEPT - self.tell())])
        return len(text)


def serve(connection: socket.socket, before: "Intact") -> None:
    """In the child, until the other side hangs up. Of a cell or an answer after which anything is no longer as `before`
    the reply is {"broken": why}, and no more; where `looked` is true, this is not asked.

    {"ranks": True}, first → {}: a server is forked for drives that run ranks, while this process has run nothing
    {"run": source, "place": "<cell 3>", "flags": the compiler's, "own": whether an answer's, "looked": bool} → {"printed": str,
        "error": None or [type, text, lines of a traceback]}
    {"ask": request of the judge, "looked": bool} → :func:`helpers.check.probe.answer`'s reply
    {} → {}
    {"apart": True} → {}: a copy of this process answers from here on, until {"back": True}; then this one again, which knows
        nothing of what was asked meanwhile. If the copy dies, this one says so in its place, and how: {"died": -11}
    """
    import torch

    from helpers.check import private, probe
    from helpers.ranks import starting

    torch.set_num_threads(1)
    # the notebook's names live in a module of their own, so that pickling and inspect find them
    guards = {private.GUARD: private.own, private.WHEN: private.when}
    namespace: dict[str, Any] = {"__name__": "__main__", "display": _display} | guards
    while (message := receive(connection)) is not None:
        _more_time()
        reply: dict[str, Any] = {}
        if "back" in message:
            starting.give_back()
            os._exit(BACK)
        if "apart" in message:
            if copy := os.fork():
                _, status = os.waitpid(copy, 0)
                if (code := os.waitstatus_to_exitcode(status)) != BACK:
                    starting.drop(at_once=True)  # it may have died in the middle of a run
                    reply = {"died": code}
            else:
                starting.borrow()
        elif "run" in message:
            held = bool(message.get("own"))
            reply = _run(message["run"], message["place"], message.get("flags", 0), namespace, held)
        elif "ask" in message:
            reply = probe.answer(message["ask"], namespace)
        elif "ranks" in message and starting.FORKS:
            starting.fork_server()
        if not message.get("looked") and (changed := before.changed()):
            reply = {"broken": f"this changes {changed}, which others use too: leave it as it is"}
        try:
            data = json.dumps(reply).encode()
        except (MemoryError, RecursionError, ValueError) as odd:
            data = json.dumps({"broken": f"its result cannot be sent ({type(odd).__name__})"}).encode()
        if len(data) > MOST:
            why = f"its result has {len(data) >> 20} MB as plain data, and at most {MOST >> 20} MB are read"
            data = json.dumps({"broken": why}).encode()
        connection.sendall(struct.pack("!Q", len(data)) + data)


def _display(*things: Any, **_: Any) -> None:
    """What `display` is here, whatever it is asked: include=…, display_id=…"""
    print(*things)


def _parts(package: str | None) -> set[str]:
    """The modules of a package that are loaded, by their names in it."""
    start = f"{package}."
    return {name.removeprefix(start) for name in sys.modules if name.startswith(start)}


def _run(source: str, place: str, flags: int, namespace: dict[str, Any], held: bool) -> dict[str, Any]:
    """One cell, as IPython runs it: statement by statement, also above one that does not compile (a `return` in no function); a
    last line that is an expression is shown. flags: the compiler's, from earlier cells. held: it is an answer's, and its private
    names are."""
    from helpers.check import private

    linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)
    printed, error = _Kept(), None
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            tree = ast.parse(source, place)
            tree = private.guarded(tree) if held else tree
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            for node in tree.body:
                code = compile(ast.Module([node], []), place, "exec", flags, dont_inherit=True)
                flags |= code.co_flags & FUTURES
                star = isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
                names = dict(namespace) if star else {}
                exec(code, namespace)  # noqa: S102 - this is the learner's notebook
                # of a package a star brings the parts that somebody has loaded, and here more are than in a notebook
                for name in names.keys() & _parts(getattr(node, "module", None)) if star else ():
                    namespace[name] = names[name]
            if isinstance(last, ast.Expr):
                code = compile(ast.Expression(last.value), place, "eval", flags, dont_inherit=True)
                shown = eval(code, namespace)  # noqa: S307
                if shown is not None:
                    print(repr(shown))
        except BaseException as problem:  # a cell that fails, or exits, does not end the notebook
            own = [f for f in traceback.extract_tb(problem.__traceback__) if f.filename.startswith("<cell")]
            lines = traceback.format_list(own) + traceback.format_exception_only(problem)
            error = [type(problem).__name__, str(problem)[:KEPT], "".join(lines)[:KEPT]]
    return {"printed": printed.getvalue(), "error": error}


def _more_time() -> None:
    """Another :data:`CPU_S` seconds of processor time for this process, of the hard limit that it has."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + CPU_S
    with contextlib.suppress(ValueError, OSError):  # the answer has lowered its own hard limit
        resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _limits() -> dict[int, int]:
    """:data:`LIMITS`, none above what this process may give."""
    hard = {which: resource.getrlimit(which)[1] for which in LIMITS}
    return {
        which: most if hard[which] == resource.RLIM_INFINITY else min(most, hard[which])
        for which, most in LIMITS.items()
    }


def _inherited() -> dict[str, Any]:
    """What a child gets from this process, and what one of the same user can change from outside: see prlimit(2)."""
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name: resource.getrlimit(getattr(resource, name)) for name in names} | {
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "processors": os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None,
        "scheduler": os.sched_getscheduler(0) if hasattr(os, "sched_getscheduler") else None,
    }


def _scratch() -> set[str]:
    """All paths in the sandbox's own folders, but for what is mounted there: an environment may lie in /tmp."""
    paths = set[str]()
    for top in _OWN:
        for folder, folders, files in os.walk(top):
            folders[:] = [name for name in folders if not os.path.ismount(os.path.join(folder, name))]
            paths.update(os.path.join(folder, name) for name in folders + files)
    return paths


def _sweep(at_first: set[str], ended: dict[int, int]) -> bool:
    """End what earlier notebooks left running in this sandbox, and their files; whether nothing is left."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)  # all but this one, which is the sandbox's first
    _reap(ended, 0)
    for top in _OWN:
        os.chmod(top, 0o755)  # a notebook may have closed it, to all that come after
    for path in sorted(_scratch() - at_first, reverse=True):  # what lies in a folder before the folder
        with contextlib.suppress(OSError):
            (os.rmdir if os.path.isdir(path) and not os.path.islink(path) else os.unlink)(path)
    return _scratch() == at_first and not any(map(os.listxattr, _OWN))


def _be_silent() -> None:
    """What native code of an answer writes goes nowhere; what Python prints is kept by the cell."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _reap(ended: dict[int, int], options: int) -> None:
    """Wait for what has ended (see waitpid(2)); in ``ended``, by its number: its status, or minus its signal."""
    with contextlib.suppress(ChildProcessError):
        while (waited := os.waitpid(-1, options))[0]:
            ended[waited[0]] = os.waitstatus_to_exitcode(waited[1])


def _load() -> None:
    """What lessons use, before any fork, so that no child pays for it."""
    from helpers import kernels, lessons
    from helpers.check import probe
    from helpers.compiling import torches

    probe.load(lessons.modules("exercises"))
    kernels.close()  # the lesson about them opens it again, in its own process
    torches.preload()  # some operators load the compiler too, and that takes seconds
    with contextlib.suppress(ImportError):  # its names come and go with torch's versions
        for _, name, _ in pkgutil.iter_modules(import_module(_PATTERNS).__path__, f"{_PATTERNS}."):
            import_module(name)
    import_module("matplotlib.pyplot")  # every lesson's first cell asks for it


def _in_huge_pages() -> None:
    """Have this process's memory in few large pages, where the system can: a fork copies the table of them, and an end clears it."""
    if sys.platform != "linux":
        return
    advise = ctypes.CDLL(None).madvise
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            areas = [line.split() for line in maps]
    except OSError:
        return
    for addresses, rights, *_, inode in (area[:5] for area in areas):
        if rights == "rw-p" and inode == "0":  # memory of its own that no file is behind
            begin, end = (int(address, 16) for address in addresses.split("-"))
            begin, end = -(-begin // _HUGE) * _HUGE, end // _HUGE * _HUGE
            if begin < end:
                advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_COLLAPSE)


def main(control: socket.socket, alone: bool, bare: bool) -> None:
    """alone: nobody else's processes run here, so that leftovers can be ended without asking whose they are. bare: without
    what lessons use."""
    from helpers.check import probe  # noqa: F401 - it answers in each child
    from helpers.check.intact import Intact
    from helpers.counters import watch

    if not bare:
        _load()
    if alone:
        _prctl(_PR_SET_DUMPABLE, 0)  # processes of the same user may not look into its memory
    # an answer's processes become this one's when the answer ends, and are ended with it
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    ended = dict[int, int]()
    # not ignored: the system counts the time of those that were waited for
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: _reap(ended, os.WNOHANG))
    before = Intact()
    # folders on the way to Python itself; all else that is there by now, caches, could be changed for the next notebook
    prefixes = (sys.prefix, sys.base_prefix)
    at_first = (
        {path for path in _scratch() if any(at.startswith(f"{path}/") for at in prefixes)}
        if alone
        else set[str]()
    )
    limits, given = _limits(), _inherited()  # before any notebook could change them
    gc.freeze()  # a child's collections pass over what is loaded here, and so do not copy its pages
    watch.frozen = True
    _in_huge_pages()
    control.sendall(READY + b"\0")
    child = 0
    while True:
        order, handles = b"", list[int]()
        with contextlib.suppress(ConnectionResetError):
            order, handles, _, _ = socket.recv_fds(control, 1, 1)
        if child and not alone:
            end_all([child])  # and what it started: that is this process's now, where it is a subreaper
        if not order or (alone and not _sweep(at_first, ended)):
            return
        if alone and _inherited() != given:
            return  # the notebook before has changed them, and what was lowered cannot be raised: a sandbox anew
        code = ended.get(child, -signal.SIGKILL) if child else 0
        ended.clear()
        for handle in handles:
            with socket.socket(fileno=handle) as connection:
                child = os.fork()
                if child == 0:
                    control.close()
                    _be_silent()
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                    if alone:
                        _prctl(_PR_SET_DUMPABLE, 1)
                        for which, most in limits.items():
                            resource.setrlimit(which, (most, most))
                    try:
                        serve(connection, before)
                    finally:
                        os._exit(0)
        control.sendall(READY + bytes([code if code >= 0 else 128 - code]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m helpers.classroom.zygote", description=__doc__)
    parser.add_argument("control", type=int, help="the file descriptor of a socket")
    parser.add_argument("--alone", action="store_true", help="in a sandbox of its own")
    parser.add_argument("--bare", action="store_true", help="without what lessons use")
    given = parser.parse_args()
    with socket.socket(fileno=given.control) as control:
        main(control, given.alone, given.bare)
    os._exit(0)  # as a judge does
