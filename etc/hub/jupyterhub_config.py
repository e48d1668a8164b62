"""JupyterHub for one class on one machine; docs/jupyterhub.md says how to set it up.

A copy of this file lies in the folder that holds course/ (the instructor's), student/ (what `make bundle` made) and
exchange/ (nbgrader's). Whoever owns course/ is the instructor; the system group `students` is the class.
"""

import os
import sys
from pathlib import Path

c = get_config()  # noqa: F821 - traitlets provides get_config
PLACE = Path(__file__).resolve().parent
COURSE, STUDENT, EXCHANGE, STATE = (PLACE / name for name in ("course", "student", "exchange", "state"))
COMMANDS = Path(sys.executable).parent
INSTRUCTOR = COURSE.owner()

# only this machine can reach it: a web server with a certificate goes in front
c.JupyterHub.bind_url = "http://127.0.0.1:8000"
# JupyterHub's usual proxy, as a Python package in place of Node.js's. On its own it gives up on an answer that takes
# longer than 20 s, such as Validate's, and passes on ten requests at a time.
PROXY = """
from configurable_http_proxy.cli import main
from tornado.httpclient import AsyncHTTPClient
AsyncHTTPClient.configure(None, max_clients=1000, defaults={"connect_timeout": 60})
main()
"""
c.ConfigurableHTTPProxy.command = [sys.executable, "-c", PROXY, "--proxy-timeout=1800000"]

c.JupyterHub.authenticator_class = "pam"
c.LocalAuthenticator.allowed_groups = {"students"}
c.Authenticator.allowed_users = {INSTRUCTOR}

STATE.mkdir(mode=0o700, exist_ok=True)
c.JupyterHub.db_url = f"sqlite:///{STATE / 'jupyterhub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(STATE / "cookie_secret")
c.ConfigurableHTTPProxy.pid_file = str(STATE / "proxy.pid")


def prepare(spawner):
    """The instructor's server has the course with its answers; a student's has the students' copy, and opens at home."""
    teaches = spawner.user.name == INSTRUCTOR
    folder = COURSE if teaches else STUDENT
    settings = [folder, *([COURSE / "etc" / "teacher"] if teaches else []), folder / "etc" / "jupyter"]
    spawner.notebook_dir = str(COURSE) if teaches else "~"
    spawner.environment = {
        "PYTHONPATH": str(folder),
        "JUPYTER_CONFIG_PATH": os.pathsep.join(map(str, settings)),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "PYTHONUTF8": "1",
        "PATH": os.pathsep.join([str(COMMANDS), os.environ.get("PATH", os.defpath)]),
        "VENV": sys.prefix,  # for `make grade` in a terminal
        "EXCHANGE": str(EXCHANGE),
    }


c.Spawner.cmd = [str(COMMANDS / "jupyterhub-singleuser")]
c.Spawner.pre_spawn_hook = prepare
c.Spawner.default_url = "/lab"
c.Spawner.http_timeout = 120
