"""What `make` says when it cannot do what was asked, and that it does nothing where there is nothing to do."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: what `make` reads if its caller says so: a make that runs these tests hands its own on, as in `make test ARGS=--lf`
ASKED = {"MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MFLAGS"}
ASKED |= set(re.findall(r"\$\(([A-Z]+)\)", (ROOT / "Makefile").read_text(encoding="utf-8"))) - {"CURDIR"}
ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in ASKED}


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """The files that `make setup` reads, in a folder whose name has a space."""
    copy = tmp_path / "a course"
    shutil.copytree(ROOT / "etc", copy / "etc")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, copy)
    return copy


def make(course: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *arguments], cwd=course, env=ENVIRONMENT, capture_output=True, text=True)


def pretend_python(folder: Path, body: str) -> Path:
    """A program that stands in for Python."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_make_alone_lists_the_commands(course: Path) -> None:
    said = make(course).stdout
    for name in ("lab", "test", "build", "grade", "reset", "clean"):
        assert f"make {name} " in said


def test_an_old_python_is_named(course: Path, tmp_path: Path) -> None:
    old = pretend_python(tmp_path, 'if [ "$1" = --version ]; then echo Python 3.9.2; else exit 1; fi')
    done = make(course, "setup", f"PYTHON={old}")
    assert (
        done.returncode and "Python 3.11 or newer is needed" in done.stderr and "Python 3.9.2" in done.stderr
    )
    done = make(course, "setup", "PYTHON=/nowhere/python3")
    assert done.returncode and "not there" in done.stderr


def test_a_missing_venv_module_is_named(course: Path, tmp_path: Path) -> None:
    bare = pretend_python(tmp_path, f'case "$*" in *ensurepip*) exit 1;; esac; exec "{sys.executable}" "$@"')
    done = make(course, "setup", f"PYTHON={bare}")
    assert done.returncode and "python3-venv" in done.stderr


def test_a_current_environment_is_left_alone(course: Path) -> None:
    (course / ".venv" / "bin").mkdir(parents=True)
    # were anything to be installed, this stand-in would fail
    pretend_python(course / ".venv" / "bin", "exit 1")
    inputs = [(course / name).read_text() for name in ("pyproject.toml", "constraints.txt", "etc/triton.txt")]
    (course / ".venv" / ".installed").write_text(f"{(course / '.venv').resolve()}\n" + "".join(inputs))
    done = make(course, "setup")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (course / "constraints.txt").write_text("numpy==1\n")
    done = make(course, "setup", "PYTHON=/nowhere/python3")
    assert done.returncode, "another requirement is no longer nothing to do"


def test_a_taken_port_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "etc/lab.py", "--port", port], cwd=ROOT, capture_output=True, text=True
        )
    assert done.returncode == 2 and f"port {port} is taken" in done.stderr
    done = subprocess.run(
        [sys.executable, "etc/lab.py", "--port", "abc"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2 and "not a port" in done.stderr


def test_a_home_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    home = {k: v for k, v in ENVIRONMENT.items() if not k.startswith(("JUPYTER", "XDG"))}
    home["HOME"] = str(tmp_path / "home" / "ann")
    done = subprocess.run([sys.executable, "etc/lab.py"], cwd=ROOT, env=home, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert f"({tmp_path}" in done.stderr and "make lab HOME=" in done.stderr


def test_which_lesson(course: Path) -> None:
    done = make(course, "grade", "SETUP=true")
    assert done.returncode and "LESSON=01" in done.stderr


def test_a_class_is_graded_by_one_command(course: Path) -> None:
    (course / ".venv" / "bin").mkdir(parents=True)
    pretend_python(course / ".venv" / "bin", 'echo "$@"')
    done = make(course, "grade", "SETUP=echo", "LESSON=01", "JOBS=4", "SCHEDULER=tcp://there:1")
    assert done.returncode == 0
    assert done.stdout == "classroom\n-m helpers.classroom.grade 01 --jobs 4 --scheduler tcp://there:1\n"
    for there, extras in (("SCHEDULER=tcp://there:1", "classroom,kernels"), ("JOBS=2", "kernels")):
        done = make(course, "grade", "SETUP=echo", "LESSON=21", there, "EXTRAS=kernels")
        assert done.stdout.startswith(f"{extras}\n")


# --- which build of PyTorch: indexes of stand-ins on disk, so that nothing is fetched -------------------------------

#: builds a project that is one import, and needs nothing but Python for it
BACKEND = """
import zipfile
def get_requires_for_build_editable(config_settings=None):
    return []
def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    name = "course-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{wheel_directory}/{name}", "w") as wheel:
        wheel.writestr("helpers.py", "")
        wheel.writestr("course-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: course\\nVersion: 1\\nRequires-Dist: torch>=2.11\\n")
        wheel.writestr("course-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("course-1.dist-info/RECORD", "")
    return name
"""


def offer(index: Path, name: str, version: str, files: dict[str, str]) -> None:
    """Put a wheel of these files (name → text) into a package index on disk."""
    folder = index / name
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    wheel_path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel_path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    links = (f'<a href="{wheel.name}">{wheel.name}</a>' for wheel in folder.glob("*.whl"))
    (folder / "index.html").write_text("".join(links))


def environment_with_pip(folder: Path) -> None:
    """What ``python -m venv`` makes, in a hundredth of the time: pip is the one that these tests' Python has."""
    import pip

    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "pip").symlink_to(Path(pip.__file__).parent)


@pytest.fixture
def two_indexes(course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip's usual index has PyTorch with CUDA; the folder that is returned, PyTorch's own, has the CPU build."""
    (course / "backend.py").write_text(BACKEND)
    (course / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (course / "constraints.txt").write_text("torch==2.13.0\n")
    usual, own = tmp_path / "usual", tmp_path / "own"
    torch = "from types import SimpleNamespace\n__version__ = {!r}\nversion = SimpleNamespace(cuda={!r})\n"
    big = "x" * 60_000_000
    offer(usual, "torch", "2.13.0", {"torch/__init__.py": torch.format("2.13.0", "13.0"), "nvidia/big": big})
    offer(usual, "torch", "2.14.0", {"torch/__init__.py": torch.format("2.14.0", "13.0")})
    offer(usual, "setuptools", "99", {})
    offer(own, "torch", "2.13.0+cpu", {"torch/__init__.py": torch.format("2.13.0+cpu", None)})
    for name in (".venv", "other"):
        environment_with_pip(course / name)
    for name in [name for name in ENVIRONMENT if name.startswith("PIP_") or name == "PYTORCH"]:
        monkeypatch.delitem(ENVIRONMENT, name)
    monkeypatch.setitem(ENVIRONMENT, "PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setitem(ENVIRONMENT, "PIP_INDEX_URL", usual.as_uri())
    use_index(course, own.as_uri())
    return own


def use_index(course: Path, address: str) -> None:
    """In place of PyTorch's own index."""
    path = course / "etc" / "pytorch-cpu.txt"
    lines = path.read_text().splitlines()
    assert sum("://" in line for line in lines) == 1
    path.write_text("\n".join(f"{line.split()[0]} {address}" if "://" in line else line for line in lines))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere PyTorch has one build")
class TestBuildOfPyTorch:
    def test_without_a_gpu_it_is_the_one_for_the_cpu(self, course: Path, two_indexes: Path) -> None:
        if shutil.which("nvidia-smi") or list(Path("/dev").glob("nvidia*")):
            pytest.skip("this machine has an NVIDIA GPU")
        done = make(course, "setup")
        assert done.returncode == 0, done.stderr
        assert "PyTorch 2.13.0, CPU build, 0.0 GB\n" in done.stderr and "reached" not in done.stderr

    def test_with_a_gpu_or_when_asked_for_it_is_pips_own(
        self, course: Path, two_indexes: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "nvidia-smi").write_text("#!/bin/sh\n")
        (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
        use_index(course, "http://no.such.place.invalid")
        done = make(course, "setup", f"PATH={tmp_path / 'bin'}:{os.environ['PATH']}")
        assert done.returncode == 0, done.stderr
        assert "PyTorch 2.13.0, build with CUDA, 0.1 GB\nReady" in done.stderr
        done = make(course, "setup", "VENV=other", "PYTORCH=cuda")
        assert "PyTorch 2.13.0, build with CUDA, 0.1 GB\nReady" in done.stderr
        assert "invalid" not in (course / "other" / "install.log").read_text(), "nobody asked that index"
        done = make(course, "setup", "VENV=third", "PYTORCH=rocm")
        assert done.returncode and "PYTORCH=rocm is neither cpu nor cuda" in done.stderr

    def test_where_its_index_cannot_be_reached_pip_goes_on_and_it_is_said(
        self, course: Path, two_indexes: Path
    ) -> None:
        with socket.socket() as closed:  # nobody listens: refused at once
            closed.bind(("127.0.0.1", 0))
            use_index(course, f"http://127.0.0.1:{closed.getsockname()[1]}/whl/cpu")
            done = make(course, "setup", "PYTORCH=cpu")
        assert done.returncode == 0, done.stderr
        assert (
            "PyTorch 2.13.0, build with CUDA, 0.1 GB. PyTorch's index of CPU builds could not be reached"
            in done.stderr
        )
        # and what is there stays there, whatever that index has
        (course / ".venv" / ".installed").unlink()
        use_index(course, two_indexes.as_uri())
        done = make(course, "setup", "PYTORCH=cpu")
        assert done.returncode == 0, done.stderr
        assert "build with CUDA, 0.1 GB. It was here and is kept." in done.stderr


def test_ctrl_c_in_set_up_is_not_the_networks_fault(course: Path, tmp_path: Path) -> None:
    slow = pretend_python(
        tmp_path,
        f"""case "$*" in
            *"-m venv"*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
            *"pip install"*) echo Collecting; trap 'echo cancelled; exit 1' INT; touch "{tmp_path}/began"; while :; do sleep 0.1; done ;;
            *) exit 0 ;; esac""",
    )
    running = subprocess.Popen(
        ["bash", "etc/setup.sh", ".venv"],
        cwd=course,
        env={**ENVIRONMENT, "PYTHON": str(slow)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while not (tmp_path / "began").exists():
        assert running.poll() is None
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to all of them
    _, said = running.communicate(timeout=20)
    assert running.returncode == 130
    assert "make: stopped." in said and "network" not in said
    assert not list((course / ".venv").glob(".installed*"))


def test_a_path_that_the_compiler_cannot_take_is_named(course: Path, tmp_path: Path) -> None:
    stop_there = 'case "$*" in *"-m venv"*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;; *"pip install"*) exit 1 ;; esac'
    quick = pretend_python(tmp_path, stop_there)
    assert "holds a space, a quote" in make(course, "setup", f"PYTHON={quick}").stderr
    plain = make(course, "setup", f"PYTHON={quick}", f"VENV={tmp_path / 'venv'}").stderr
    assert "pip could not finish" in plain and "a quote" not in plain
