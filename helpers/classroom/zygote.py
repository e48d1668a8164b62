"""A process that has imported torch and run no operator: forking it costs milliseconds, importing torch seconds.

    python -m helpers.classroom.zygote SOCKET

Each connection gets a child of its own, which runs the notebook cells that it is sent and then answers the judge's
requests. Messages are JSON with a length before them.
"""

import argparse
import contextlib
import io
import json
import linecache
import os
import signal
import socket
import struct
import sys
from importlib import import_module
from typing import Any


def send(connection: socket.socket, message: Any) -> None:
    data = json.dumps(message).encode()
    connection.sendall(struct.pack("!Q", len(data)) + data)


def receive(connection: socket.socket) -> Any:
    """The next message; ``None`` when the other side has closed."""
    head = _exactly(connection, 8)
    body = _exactly(connection, struct.unpack("!Q", head)[0]) if head else b""
    return json.loads(body) if body else None


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        chunk = connection.recv(min(size - len(parts), 1 << 20))
        if not chunk:
            return b""
        parts += chunk
    return bytes(parts)


def serve(connection: socket.socket) -> None:
    """In the child: run the cells, then answer requests until the judge hangs up."""
    import torch

    from helpers.check import probe
    from helpers.ranks import starting

    if hasattr(os, "fork") and sys.platform == "linux":
        starting.fork_server()  # for drives that run ranks; while this process has run nothing
    torch.set_num_threads(1)
    send(connection, os.getpid())  # so that an answer that does not end can be ended
    # the notebook's names live in a module of their own, so that pickling and inspect find them
    namespace: dict[str, Any] = {"__name__": "__main__"}
    failures = []
    for place, source in enumerate(receive(connection)):
        filename = f"<cell {place}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                exec(compile(source, filename, "exec"), namespace)  # noqa: S102 - this is the learner's notebook
        except BaseException as problem:  # a cell that fails, or exits, does not end the notebook
            failures.append(f"{filename}: {type(problem).__name__}: {problem}")
    send(connection, failures)
    while (request := receive(connection)) is not None:
        send(connection, probe.answer(request, namespace))


def _reap(*_: Any) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main(path: str) -> None:
    from helpers.check import probe
    from helpers.compiling.torches import preload

    # before any fork, so that no child pays for it
    probe.load()
    preload()  # some operators load the compiler too, and that takes a second
    import_module(
        "matplotlib.pyplot"
    )  # every lesson's first cell asks for it: half of what grading a short answer took

    signal.signal(
        signal.SIGCHLD, _reap
    )  # and not ignored: the time of children that nobody waits for is not counted
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                try:
                    serve(connection)
                finally:
                    os._exit(0)
            connection.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m helpers.classroom.zygote", description=__doc__)
    parser.add_argument("socket", help="where to listen: a path that is not there yet")
    main(parser.parse_args().socket)
