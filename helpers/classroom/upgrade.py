"""What another PyTorch changes in the course: tried in an environment beside, and printed, sorted by what it asks of an author.

python -m helpers.classroom.upgrade 2.14.1             private names, claims, and every lesson's cells
python -m helpers.classroom.upgrade 2.14.1 02 11       of the lessons only these

`make upgrade TORCH=2.14.1` runs it. The environment is a folder beside the checkout, which holds that PyTorch and what it
needs, and takes all else from this one: nothing here is changed. It is kept for the next run; delete it when you are done.

The page has five parts. *Bugs*: a cell or a trial raises. *Private names*: gone, or no longer what helpers relies on.
*Behaviour*: a verdict has another word, or a cell says something else. *Numbers*: a cell's words are the same, and its
numbers are others. *Warnings*: only what is written to stderr is new. And it counts the places that name this version.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from helpers.classroom import build, processors
from helpers.classroom import master as masters
from helpers.classroom.master import BadMaster, Master
from helpers.classroom.settings import ONE_THREAD, ROOT, parser
from helpers.lessons.sources_on_trial import listing, verdicts
from helpers.pytorch import private_torch
from helpers.text.terminal import lenient

KINDS = {
    "bugs": "a cell or a trial raises",
    "private names": "gone, or no longer what helpers relies on (helpers/pytorch/private_torch.toml)",
    "behaviour": "a verdict has another word, or a cell says something else",
    "numbers": "the words are the same, and the numbers are others",
    "warnings": "only what is written to stderr differs",
}
#: bytes that a PyTorch built for CUDA takes, with its libraries
ROOM = 8e9
_NUMBER = re.compile(r"[-+−]?\d[\d.,]*(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Difference:
    """kind: one of KINDS. where: a master's line, a claim or a name. before, after: what it was, and what it is."""

    kind: str
    where: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"- {self.where}\n    was: {self.before}\n    is:  {self.after}"


# --- the environment beside ---------------------------------------------------------------------------------------


def environment(torch: str, to: Path) -> Path:
    """The Python of an environment with that PyTorch; all else is this environment's. SystemExit: it cannot be made."""
    python = to / "bin" / "python"
    if not python.exists():
        if (free := shutil.disk_usage(to.parent).free) < ROOM:
            raise SystemExit(
                f"upgrade: {free / 1e9:.0f} GB are free beside the checkout, wanted {ROOM / 1e9:.0f}"
            )
        venv.create(to, with_pip=True)
        (packages,) = to.glob("lib/python*/site-packages")
        (packages / "beside.pth").write_text(f"{Path(nbformat.__file__).parents[1]}\n", encoding="utf-8")
    there = _run(python, "-c", "from importlib.metadata import version; print(version('torch'))")
    if there.stdout.strip().partition("+")[0] == torch:
        return python
    index = ROOT / "etc" / "pytorch-cpu.txt"  # where it does not answer, pip takes what its usual places have
    quick = ["--no-compile", "--timeout", "10", "--retries", "1", "-r", str(index)]
    done = subprocess.run(
        [python, "-m", "pip", "install", "-q", *quick, f"torch=={torch}"],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    if done.returncode:
        raise SystemExit(f"upgrade: pip could not install torch {torch}:\n{done.stderr[-1500:]}")
    # a build for CUDA brings a Triton of its own: the lessons are to be tried with the course's
    subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", "triton"], capture_output=True)
    return python


def _run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in the environment beside, from the checkout, with one thread."""
    own = {"PYTHONPATH": str(ROOT), "KINETO_LOG_LEVEL": "99", "PATH": f"{python.parent}:{os.environ['PATH']}"}
    # pip may have found a build for CUDA alone, which looks for a compiler of CUDA's and warns where there is no GPU
    own |= {"CUDA_HOME": "", "CUDA_PATH": ""}
    return subprocess.run(
        [python, *arguments],
        cwd=ROOT,
        env=os.environ | ONE_THREAD | own,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


# --- what is tried there ------------------------------------------------------------------------------------------


def private_names(python: Path) -> list[Difference]:
    """Names that are gone, and those whose test fails."""
    ran = _run(python, "-m", "helpers.classroom.upgrade", "--names")
    gone = json.loads(ran.stdout.splitlines()[-1]) if ran.returncode == 0 else {"helpers": ran.stderr[-800:]}
    tests = _run(python, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "tests/test_private_torch.py")
    failed = re.findall(r"^FAILED \S+::(\S+)(?: - (.*))?", tests.stdout, re.MULTILINE)
    other = [(name, why) for name, why in failed if not any(f"[{n}]" in name for n in gone)]
    return [
        *(Difference("private names", name, "there", why) for name, why in gone.items()),
        *(Difference("private names", name, "passed", why or "failed") for name, why in other),
    ]


def claims(python: Path) -> list[Difference]:
    """The last lesson's trials, there and here."""
    there, here = (
        _run(each, "-m", "helpers.classroom.upgrade", "--claims") for each in (python, Path(sys.executable))
    )
    if there.returncode or here.returncode:
        problem = (there.stderr if there.returncode else here.stderr)[-800:]
        return [
            Difference("bugs", "the trials of lesson 18", "ran" if there.returncode else problem, problem)
        ]
    rows, before = (json.loads(ran.stdout.splitlines()[-1]) for ran in (there, here))
    found = []
    for old, row in zip(before, rows, strict=True):
        where, was, now = f"claim {row['id']}", old.get("problem", ""), row.get("problem", "")
        if was or now:
            found += (
                [Difference("bugs", where, was or old["verdict"], now or row["verdict"])]
                if was != now
                else []
            )
        elif old["word"] != row["word"]:
            found.append(Difference("behaviour", where, old["verdict"], row["verdict"]))
        elif old["measured"] != row["measured"]:
            texts = old["measured"], row["measured"]
            found.append(Difference(_kind(*texts), where, *processors.apart(*texts)))
    return found


def lesson(python: Path, path: Path) -> list[Difference]:
    """A lesson's cells, run there, beside its reference's outputs."""
    with tempfile.TemporaryDirectory() as place:
        to = Path(place) / path.with_suffix(".ipynb").name
        ran = _run(python, "-m", "helpers.classroom.upgrade", "--run", str(path), "--to", str(to))
        if ran.returncode or not to.exists():
            problem = (ran.stderr.strip().splitlines() or ["nothing was said"])[-1]
            return [Difference("bugs", path.stem, "ran", problem)]
        fresh = nbformat.read(to, as_version=4)
    reference = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    return differences(reference, fresh, masters.read(path))


def differences(reference: NotebookNode, fresh: NotebookNode, master: Master) -> list[Difference]:
    """Of two runs of a lesson's notebook: the cells whose outputs differ, one line each, sorted by the gravest of them."""
    worst, grave = dict[int, Difference](), list(KINDS)
    for cell, stream, *texts in processors.differing(reference, fresh, master):
        was, now = map(_without_version, texts)
        kind = "warnings" if stream == "stderr" else _kind(was, now)
        less = cell.line in worst and grave.index(kind) >= grave.index(worst[cell.line].kind)
        if was != now and not less:
            where = f"{master.where(cell)}, {cell.kind} cell"
            worst[cell.line] = Difference(kind, where, *processors.apart(was, now))
    return list(worst.values())


def _without_version(text: str) -> str:
    return re.sub(r"(torch|pytorch/blob/v) ?\d+\.\d+\.\d+(\+\w+)?", r"\1", text)


def _kind(was: str, now: str) -> str:
    return "numbers" if _NUMBER.sub("0", was) == _NUMBER.sub("0", now) else "behaviour"


def pinned(torch: str) -> list[str]:
    """Where the course's own text names this version, or links into its source: "path:line"."""
    own, short = re.escape(torch), re.escape(torch.rpartition(".")[0])
    named = re.compile(rf"/v{own}/|\b(?:torch|PyTorch) {short}\b|\btorch=={own}\b")
    files = [
        *build.find([]),
        ROOT / "constraints.txt",
        ROOT / "environment.yml",
        *sorted((ROOT / "docs").glob("*.md")),
    ]
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if named.search(line)
    ]


def page(torch: str, found: Iterable[Difference], places: list[str], tried: str) -> str:
    """The report."""
    by_kind: Mapping[str, list[Difference]] = {kind: [] for kind in KINDS}
    for each in found:
        by_kind[each.kind].append(each)
    here = version("torch").partition("+")[0]
    text = [f"# From PyTorch {here} to {torch}", f"Tried: {tried}."]
    text.append(", ".join(f"{kind} {len(some)}" for kind, some in by_kind.items()))
    for kind, some in by_kind.items():
        text.append(f"\n## {kind.capitalize()}: {KINDS[kind]}\n")
        text += [str(each) for each in some] or ["none"]
    text.append(f"\n## Places that name {here}: {len(places)}\n")
    text.append(", ".join(places))
    text.append(
        f"\nTo move: write torch=={torch} into constraints.txt and environment.yml, `make setup`, look at the places above, "
        "`make build`, `make test`."
    )
    return "\n".join(text) + "\n"


# --- the commands -------------------------------------------------------------------------------------------------


def _told(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False))


def _names() -> dict[str, str]:
    gone = {}
    for name in private_torch.NAMES:
        try:
            getattr(private_torch, name)
        except AttributeError as problem:
            gone[name] = str(problem)
    return gone


def _claims() -> list[dict[str, Any]]:
    rows = []
    for source, entry in listing.every():
        if entry.trial:
            name = entry.trial if isinstance(entry.trial, str) else entry.trial.__name__.replace("_", "-")
            try:
                claim = listing.run(source, entry)
                word = next(word for word in verdicts.WORDS if claim.verdict.startswith(word))
                rows.append(asdict(claim) | {"word": word})
            except Exception as problem:
                rows.append({"id": f"18-{source}-{name}", "problem": f"{type(problem).__name__}: {problem}"})
    return rows


def _execute(path: Path, to: Path) -> None:
    master = masters.read(path)
    nb = build.notebook(master)
    build.execute(nb, master)
    to.write_text(build.text_of(nb), encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    lenient()
    asks = parser("upgrade", __doc__)
    asks.add_argument("torch", nargs="?", help="the version, e.g. 2.14.1")
    asks.add_argument("lessons", nargs="*", help="e.g. 02 11; default: all")
    asks.add_argument("--beside", type=Path, help="where the environment is; default: beside the checkout")
    # what the environment beside is asked
    asks.add_argument("--names", action="store_true", help=argparse.SUPPRESS)
    asks.add_argument("--claims", action="store_true", help=argparse.SUPPRESS)
    asks.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    asks.add_argument("--to", type=Path, help=argparse.SUPPRESS)
    asked = asks.parse_args(argv)
    if asked.names:
        _told(_names())
    elif asked.claims:
        _told(_claims())
    elif asked.run:
        _execute(asked.run, asked.to)
    elif asked.torch is None:
        asks.error("which version? For example: 2.14.1")
    else:
        try:
            paths = build.find(asked.lessons)
        except BadMaster as problem:
            asks.error(str(problem))
        beside = asked.beside or ROOT.with_name(f"{ROOT.name}-torch-{asked.torch}")
        print(f"upgrade: torch {asked.torch} in {beside.name} …", file=sys.stderr)
        python = environment(asked.torch, beside)
        found = private_names(python)
        print("upgrade: private names tried, now the claims …", file=sys.stderr)
        found += claims(python)
        for path in paths:
            print(f"upgrade: {path.stem} …", file=sys.stderr)
            found += lesson(python, path)
        what = (
            f"{len(private_torch.NAMES)} private names, lesson 18's trials, the cells of {len(paths)} lessons"
        )
        print(page(asked.torch, found, pinned(version("torch").partition("+")[0]), what))
    return 0


if __name__ == "__main__":
    sys.exit(main())
