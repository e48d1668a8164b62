"""Lay down a new exercise, or a new lesson with one: small, whole, graded right as it stands, and to be replaced.

python -m helpers.classroom.scaffold 05 windows       what `make exercise LESSON=05 NAME=windows` runs
python -m helpers.classroom.scaffold new attention    what `make lesson NAME=attention` runs

All is put together and checked before the first file is written. The texts are in :mod:`helpers.classroom.skeletons`.
"""

import builtins
import json
import keyword
import re
import subprocess
import sys
from pathlib import Path
from string import Template

from helpers import keeping
from helpers.classroom import build, skeletons
from helpers.classroom import master as masters
from helpers.classroom.master import EXERCISE_HEADING, BadMaster
from helpers.classroom.settings import ROOT, SOLUTIONS, exercises_of, parser
from helpers.text.names import names

SUBMISSIONS = ROOT / "tests" / "submissions"
#: the first of these that a master has comes after its last core section
AFTER_THE_CORE = re.compile(
    r"^# ## (?:The running example|Your own script|Sources on trial|Recap|Further)$", re.MULTILINE
)

Files = dict[Path, str]


class Refused(Exception):
    """What was asked cannot be laid down; the text is one sentence that says why."""


def exercise(lesson: str, name: str) -> tuple[Files, str]:
    """The files of a new exercise in a lesson ("05", or its folder's name), and what is left to do.

    Raises :class:`Refused` where there is no such lesson, or the name cannot be that of a new exercise.
    """
    paths = [path for path in build.find([]) if lesson in (path.stem, path.stem[:2])]
    if not paths:
        there = ", ".join(path.stem for path in build.find([]))
        raise Refused(f"there is no lesson {lesson!r}; there are {there}")
    (path,) = paths
    return _laid_down(path, name, path.read_text(encoding="utf-8"))


def lesson(name: str) -> tuple[Files, str]:
    """The files of a new lesson under the next free number, with one exercise, `total`, and what is left to do.

    Raises :class:`Refused` where there is one of this name, or it cannot be one.
    """
    _check(name)
    there = [path.stem for path in build.find([])]
    if name in [folder[3:] for folder in there]:
        raise Refused(f"there is a lesson {name!r} already")
    number = f"{max(int(folder[:2]) for folder in there) + 1:02}"
    folder, title = f"{number}_{name}", name.replace("_", " ").capitalize()
    master = _filled(skeletons.MASTER, {"nn": number, "folder": folder, "title": title})
    return _laid_down(SOLUTIONS / folder / f"{folder}.py", "total", master)


def _laid_down(path: Path, name: str, master: str) -> tuple[Files, str]:
    """master: the lesson's as it is, or begins."""
    texts = exercises_of(path.stem)
    made: Files = {}
    if texts.exists():
        tests = texts.read_text(encoding="utf-8")
    else:  # a lesson's first
        tests = f'"""Tests of lesson {path.stem[:2]}."""\n'
        room = f'"""All that belongs to lesson {path.stem[:2]} alone, beside its master."""\n'
        made[texts.with_name("__init__.py")] = room
    files = made | _exercise(path, name, master, tests)
    row = files[path][: files[path].index(f'# %% exercise="{name}"')].count("\n") + 1
    return (
        files,
        f"""\
the cells of {name}: {path.relative_to(ROOT)}, from line {row}
its drive, judge and cases: at the end of {texts.relative_to(ROOT)}
its first answers: {(SUBMISSIONS / path.stem / name).relative_to(ROOT)}

It is a small exercise that works, for you to replace. Then:
1. make build LESSON={path.stem[:2]}        both notebooks, and the index
2. README.md: this lesson's row, with its number of exercises; the lesson's first cell: its **Time**
3. make test LESSON={path.stem[:2]}         every answer earns what its first line says
""",
    )


def _check(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise Refused(
            f"{name!r} cannot be the name: lower-case letters, digits and underscores, a letter first"
        )
    if hasattr(builtins, name) or len(name) > 40:
        raise Refused(
            f"{name!r} cannot be the name: {'it is too long' if len(name) > 40 else 'Python has it'}"
        )


def _exercise(path: Path, name: str, master: str, texts: str) -> Files:
    """A lesson's master and exercises.py with one more exercise, and its answers. master, texts: as they are now."""
    _check(name)
    about = {
        "name": name,
        "Case": "".join(part.capitalize() for part in name.split("_")),
        "words": name.replace("_", " "),
        "room": path.stem[3:],
        "number": _next_number(int(path.stem[:2]), master),
    }
    answers = SUBMISSIONS / path.stem / name
    taken = {about["Case"], f"check_{name}", f"_drive_{name}", f"_wrong_{name}"} & names(texts).made
    bound = rf'^(?:def|class|import) {name}\b|^from .* import .*\b{name}\b|^{name} = |="{name}"'
    if taken or answers.exists() or re.search(bound, master, re.MULTILINE):
        raise Refused(f"{name!r} is taken in {path.stem}: {min(taken, default=name)} is there already")
    test = exercises_of(path.stem)
    files = {
        path: _ruffed(path, _inserted(master, _filled(skeletons.CELLS, about)), ()),
        test: _ruffed(test, texts + _filled(skeletons.CHECK, about), skeletons.IMPORTS),
    }
    files |= {answers / f"{stem}.py": _filled(text, about) for stem, text in skeletons.ANSWERS.items()}
    try:
        masters.parse(path, files[path])
    except BadMaster as problem:
        raise Refused(f"the lesson would not be one that builds: {problem}") from None
    return files


def _filled(text: str, about: dict[str, str]) -> str:
    return Template(text).substitute(about)


def _next_number(lesson: int, master: str) -> str:
    used = [int(found["number"].split(".")[1]) for found in EXERCISE_HEADING.finditer(master)]
    return f"{lesson}.{max(used, default=0) + 1}"


def _inserted(master: str, cells: str) -> str:
    """The master with cells after its last core section. A text cell that goes on with what follows is cut in two."""
    heading = AFTER_THE_CORE.search(master)
    if heading is None:
        return f"{master.rstrip()}\n\n{cells}"
    mark = "# %% [markdown]\n"
    before, after = master[: heading.start()].removesuffix(mark), master[heading.start() :]
    return f"{before.removesuffix(chr(10) + '#' + chr(10)).rstrip()}\n\n{cells}{mark}{after}"


def _ruffed(path: Path, text: str, imports: tuple[str, ...]) -> str:
    """The text with these imports among its own, as ruff sorts and sets a file of this name. Raises :class:`Refused`."""
    wanted = f"lint.isort.required-imports={json.dumps(imports)}"
    name = str(path.relative_to(ROOT))
    steps: list[list[str]] = [["format", "--quiet", "--stdin-filename", name, "-"]]
    if imports:
        select = ["--select", "I", "--fix", "--quiet", "--config", wanted]
        steps.insert(0, ["check", *select, "--stdin-filename", name, "-"])
    for step in steps:
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *step], input=text, capture_output=True, encoding="utf-8", cwd=ROOT
        )
        if done.returncode:
            raise Refused(
                f"ruff could not set {name}: {(done.stderr or done.stdout).strip().splitlines()[-1]}"
            )
        text = done.stdout
    return text


def write(files: Files) -> None:
    """Write them, each at once and whole. Raises OSError; what was written till then, Git shows and takes back."""
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        keeping.write(path, text)


def main(argv: list[str] | None = None) -> int:
    asks = parser("scaffold", __doc__)
    asks.add_argument("lesson", help="its two digits; new: the next free ones")
    asks.add_argument("name", help="of the function that learners write, or of the new lesson")
    asked = asks.parse_args(argv)
    try:
        files, text = lesson(asked.name) if asked.lesson == "new" else exercise(asked.lesson, asked.name)
        write(files)
    except (Refused, OSError) as problem:
        print(f"make {'lesson' if asked.lesson == 'new' else 'exercise'}: {problem}", file=sys.stderr)
        return 2
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
