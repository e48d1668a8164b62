"""The three lists of requirements say the same, what is installed is what they say, and no file names a machine."""

import json
import os
import re
import runpy
import shutil
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COURSE = [Requirement(line) for line in PROJECT["dependencies"]]
EXTRAS = [Requirement(line) for lines in PROJECT["optional-dependencies"].values() for line in lines]
CPU_BUILDS = ROOT / "etc" / "pytorch-cpu.txt"
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
BY_PIP: list[str] = next(entry["pip"] for entry in CONDA if isinstance(entry, dict))


def pins(lines: list[str]) -> dict[str, str]:
    """Name to exact version, of lines such as ``numpy==2.4.6``."""
    found = {}
    for requirement in map(Requirement, lines):
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", f"{requirement} is not one exact version"
        found[canonicalize_name(requirement.name)] = specifier.version
    return found


CONSTRAINTS = pins(
    [
        line
        for file in ("constraints.txt", "etc/triton.txt")
        for line in (ROOT / file).read_text().splitlines()
        if line and line[0] != "#"
    ]
)


@pytest.mark.parametrize("wanted", COURSE + EXTRAS, ids=lambda r: r.name)
def test_constraints_pin_what_pyproject_asks_for(wanted: Requirement) -> None:
    name = canonicalize_name(wanted.name)
    assert name in CONSTRAINTS, f"{name} has no line in constraints.txt"
    assert CONSTRAINTS[name] in wanted.specifier, f"{name} {CONSTRAINTS[name]} is not {wanted.specifier}"


def test_conda_and_binder_get_the_same() -> None:
    conda = pins([line for line in BY_PIP if not line.startswith("-")])
    assert conda == {name: CONSTRAINTS[name] for name in (canonicalize_name(r.name) for r in COURSE)}
    assert [line for line in BY_PIP if line.startswith("-")] == [
        f"--requirement {CPU_BUILDS.relative_to(ROOT)}",
        "--constraint constraints.txt",
        "--editable .",
    ]
    (python,) = [entry for entry in CONDA if str(entry).startswith("python=")]
    assert python.removeprefix("python=") in Requirement("python" + PROJECT["requires-python"]).specifier


def test_installed_versions_are_the_pinned_ones() -> None:
    """Only in the environment that `make` builds: a conda user's, or a trial of another torch, may differ."""
    installed = {}
    for name in CONSTRAINTS:
        try:
            installed[name] = version(name).partition("+")[0]  # "2.13.0+cpu" is 2.13.0, built for the CPU
        except PackageNotFoundError:
            continue  # needed on another system or by another Python
    assert set(map(canonicalize_name, (r.name for r in COURSE + EXTRAS))) <= set(installed)
    assert {n: (v, CONSTRAINTS[n]) for n, v in installed.items() if v != CONSTRAINTS[n]} == {}


def test_pins_admit_the_oldest_python_we_name() -> None:
    """A pin that asks for Python 3.11.5 leaves the 3.11.2 of Debian 12 without an environment."""
    oldest = re.search(r"\d+\.\d+", PROJECT["requires-python"])
    assert oldest
    refused = {}
    for name in CONSTRAINTS:
        try:
            asked = distribution(name).metadata.get("Requires-Python") or ""
        except PackageNotFoundError:
            continue
        if f"{oldest[0]}.0" not in SpecifierSet(asked):
            refused[name] = asked
    assert refused == {}


def test_pip_alone_names_a_python_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip says by itself is that constraints.txt asks for a NumPy that does not exist."""
    asked = SpecifierSet(PROJECT["requires-python"])
    for old in ((3, 9, 2), (3, 10, 13)):
        assert ".".join(map(str, old)) not in asked
        monkeypatch.setattr("sys.version_info", old)
        with pytest.raises(
            SystemExit, match=f"needs Python 3.11 or newer; this is {'.'.join(map(str, old))}"
        ):
            runpy.run_path(str(ROOT / "setup.py"))


def test_an_install_that_fails_says_so(tmp_path: Path) -> None:
    """The script stops at pip's failure, shows pip's last lines and leaves no stamp of success."""
    (tmp_path / "etc").mkdir()
    shutil.copy(ROOT / "etc/setup.sh", tmp_path / "etc")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "constraints.txt").write_text("torch==0.0.1\n")
    offline = {
        **os.environ,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "PIP_CONFIG_FILE": os.devnull,
    }
    done = subprocess.run(
        ["bash", "etc/setup.sh", ".venv"], cwd=tmp_path, env=offline, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "pip could not finish" in done.stderr and "\n  | " in done.stderr
    assert not list((tmp_path / ".venv").glob(".installed*"))


def committed_files() -> list[Path]:
    """What git tracks or would track; without git (an unpacked archive), nothing."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return []
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


# with brackets, so that this file does not find itself
HOSTS = re.compile(
    r"p[y]pi\.org|p[y]thonhosted\.org|registry\.n[p]mjs|download\.p[y]torch\.org|deb\.d[e]bian\.org"
)
INDEX = re.compile(r"--(?:extra-)?i[n]dex-url|--f[i]nd-links")
HOMES = re.compile(r"(?<![\w.~])/(?:home|root|Users|work|mnt)/[\w.-]+/")


def test_no_file_names_a_registry_or_a_machine() -> None:
    files = committed_files()
    if not files:
        pytest.skip("not a git checkout")
    own = [line for line in CPU_BUILDS.read_text().splitlines() if not line.startswith("#")]
    assert len(own) == 1 and own[0].endswith("/whl/cpu"), "PyTorch's own index of CPU builds, and no other"
    found = []
    for path in set(files) - {CPU_BUILDS}:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # a picture
        for what, pattern in (("a registry", HOSTS), ("an index", INDEX), ("a place on one machine", HOMES)):
            found += [
                f"{path.relative_to(ROOT)}: {what}: {match}" for match in sorted(set(pattern.findall(text)))
            ]
    assert found == []


def test_readme_names_only_what_is_there() -> None:
    """Every relative link, and every `make` command, of the pages a newcomer reads."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for page in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs" / f"{n}.md" for n in ("start", "teaching")),
    ):
        text = page.read_text()
        for link in re.findall(r"\]\(([^)#]+)", text):
            assert "://" in link or (page.parent / link).exists(), (
                f"{page.name} links to {link}, which is not there"
            )
        for command in re.findall(r"\bmake ([a-z-]+)", "\n".join(re.findall(r"`+[^`]+`+", text))):
            assert command in targets, f"{page.name} says make {command}, which the Makefile does not know"


def test_readme_table_lists_the_lessons_there_are() -> None:
    lessons = json.loads((ROOT / "helpers" / "lessons.json").read_text())
    rows = [
        f"| [{about['title']}](notebooks/{name}/{name}.ipynb) | {about['question']} "
        f"| {about['minutes']} min | {len(about['exercises'])} |"
        for name, about in lessons.items()
    ]
    table = [line for line in (ROOT / "README.md").read_text().splitlines() if "](notebooks/" in line]
    assert table == rows, "README's table of lessons is out of date; it should be:\n" + "\n".join(rows)
