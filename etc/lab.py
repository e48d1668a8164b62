"""Open the course in JupyterLab (what ``make lab`` runs): at its start page, from the course's folder."""

import argparse
import os
import signal
import socket
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START = "notebooks/start.ipynb"
#: what JupyterLab reads before the rest for who teaches: nbgrader's formgrader, and its menus for making lessons
TEACHER = ROOT / "etc" / "teacher"


def has_display() -> bool:
    """Whether a browser could open here."""
    return sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def taken(port: int) -> bool:
    """Whether another program holds ``port`` on this machine."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def lacking() -> list[str]:
    """What the course needs and this environment has lost."""
    return [
        name
        for name in ("torch", "jupyterlab", "nbgrader", "ipywidgets", "helpers")
        if find_spec(name) is None
    ]


def unwritable() -> str:
    """Why Jupyter cannot keep its files, or "". They lie in one's home, unless JUPYTER_… variables say otherwise."""
    from jupyter_core import paths

    for place in (paths.jupyter_runtime_dir(), paths.jupyter_data_dir(), paths.jupyter_config_dir()):
        try:
            Path(place).mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=place):
                pass
        except OSError as problem:
            return f"{place}: {problem.strerror}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make lab", description=__doc__)
    parser.add_argument(
        "--port", help="make lab PORT=8890; without it Jupyter takes the first free port from 8888 on"
    )
    parser.add_argument("--teacher", action="store_true", help="make lab TEACHER=1: with the teacher's menus")
    asked = parser.parse_args()
    if asked.teacher:
        paths = [str(TEACHER), os.environ.get("JUPYTER_CONFIG_PATH", "")]
        os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, paths))
    if missing := lacking():
        print(
            f"make lab: this environment ({sys.prefix}) lacks {', '.join(missing)}. "
            "Run `make clean-all`, then `make lab`: it is made anew; your notebooks stay.",
            file=sys.stderr,
        )
        return 2
    if why := unwritable():
        print(
            f"make lab: Jupyter cannot keep its files in your home folder ({why}). "
            "Name another for it: make lab HOME=/a/folder/of/yours",
            file=sys.stderr,
        )
        return 2
    options = [f"--ServerApp.root_dir={ROOT}", f"--LabApp.default_url=/lab/tree/{START}"]
    if asked.port:
        if not asked.port.isdigit() or not 0 < int(asked.port) < 65536:
            print(f"make lab: PORT={asked.port} is not a port; take a number such as 8890.", file=sys.stderr)
            return 2
        if taken(int(asked.port)):
            print(
                f"make lab: port {asked.port} is taken by another program (an earlier `make lab`?). Take another, or none.",
                file=sys.stderr,
            )
            return 2
        options += [f"--ServerApp.port={asked.port}", "--ServerApp.port_retries=0"]
    if not has_display():
        options.append("--no-browser")
    if hasattr(os, "getuid") and os.getuid() == 0:
        options.append("--allow-root")  # as in a container; Jupyter refuses root otherwise
    where = (
        "your browser opens"
        if has_display()
        else "open the address below, which ends in ?token=…, in a browser"
    )
    print(f"JupyterLab starts; {where}. Stop it with Ctrl-C here.", flush=True)
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # a shell's background job ignores it, and Jupyter would inherit that
    os.chdir(ROOT)  # nbgrader looks for nbgrader_config.py in the folder that the server starts in
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", *options])


if __name__ == "__main__":
    sys.exit(main())
