"""What students get: lessons without solutions, hidden tests and what grades them, as a folder or a zip.

python -m helpers.classroom.bundle --to course.zip           every lesson (what `make bundle TO=course.zip` runs)
python -m helpers.classroom.bundle 01 02 --to some/folder    these

The same course gives the same bytes. Notebooks are released anew from their references, whatever lies in notebooks/.
"""

import ast
import json
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from helpers.check import reference
from helpers.check.variant import SEED_FILE, class_seed
from helpers.classroom import build
from helpers.classroom import master as masters
from helpers.classroom.judging import judge
from helpers.classroom.master import BadMaster, Master
from helpers.classroom.release import release
from helpers.classroom.runner import Runner
from helpers.classroom.settings import COURSE_ID, FRESH, ROOT, exercises_of, parser
from helpers.lessons.capstone import given
from helpers.text.terminal import lenient

#: of the course's root: what a student's copy has as it is
PLAIN = ("LICENSE", "constraints.txt", "environment.yml", "pyproject.toml", "setup.py")
#: of etc/: what starts the course
START = ("lab.py", "pytorch-cpu.txt", "setup.sh", "triton.txt", "jupyter")
#: a student's own, each in place of the course's file of that name
STUDENT = "student"
CLASS = ROOT / "helpers" / "classroom"
#: of it: what `make reset`, Validate and a lesson's tests need
CLASSROOM = {"__init__.py", "release.py", "settings.py", "validating.py"}
#: the tests of the lesson whose script a class is given
CAPSTONE = exercises_of("17_capstone")
#: kernels that the recorder runs on a GPU: 21.1, 21.3 and 21.4 ask for such ones
ON_GPU = ROOT / "helpers" / "lessons" / "a_kernel_of_your_own" / "on_gpu.py"
#: what a package is made of, besides code: as it is installed; what else lies beside it is somebody's own
DATA = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"][
    "package-data"
]["*"]
SUFFIXES = {".js", ".py", ".sh", ".txt", *(Path(name).suffix for name in DATA)}
#: zip's own beginning of time: a file's age is not part of the course
EPOCH = (1980, 1, 1, 0, 0, 0)


def contents(lessons: list[Master]) -> dict[str, bytes]:
    """Every file of the bundle: path → bytes. Raises :class:`BadMaster` where a reference is not built."""
    files = {name: (ROOT / name).read_bytes() for name in PLAIN}
    for name in START:
        files |= _tree(ROOT / "etc" / name)
    own = ROOT / "etc" / STUDENT
    files |= {p.relative_to(own).as_posix(): p.read_bytes() for p in own.rglob("*") if p.is_file()}
    files |= _helpers(lessons)
    index = {lesson.name: build.index_entry(lesson) for lesson in lessons}
    files["helpers/lessons.json"] = (json.dumps(index, indent=1, ensure_ascii=False) + "\n").encode()
    files["notebooks/start.ipynb"] = build.text_of(build.start_page(index)).encode()
    for lesson in lessons:
        if not build.reference_path(lesson).exists():
            raise BadMaster(
                f"{lesson.name} has no reference notebook yet; run `make build LESSON={lesson.name[:2]}`"
            )
        notebook = release(build.reference_path(lesson)).encode()
        files[f"notebooks/{lesson.name}/{lesson.name}.ipynb"] = notebook
        files[(FRESH / f"{lesson.name}.ipynb").relative_to(ROOT).as_posix()] = notebook
    if seed := class_seed():
        files[SEED_FILE.relative_to(ROOT).as_posix()] = f"{seed}\n".encode()
    return dict(sorted(files.items()))


def _tree(path: Path) -> dict[str, bytes]:
    """A file, or those of a package below a folder: code and its data, by their names from the course's root."""
    paths = [path] if path.is_file() else path.rglob("*")
    files = [file for file in paths if file.suffix in SUFFIXES and ".ipynb_checkpoints" not in file.parts]
    return {file.relative_to(ROOT).as_posix(): file.read_bytes() for file in files}


def _helpers(lessons: list[Master]) -> dict[str, bytes]:
    """The package without what grades, without the tests of other lessons, and without the text of answers."""
    every = {exercises_of(path.stem) for path in build.find([])}
    left_out = {SEED_FILE} | every - {exercises_of(lesson.name) for lesson in lessons}
    files = {}
    for name, data in _tree(ROOT / "helpers").items():
        path = ROOT / name
        if (
            path in left_out
            or path == ON_GPU
            or path in given.KEPT_BACK
            or (CLASS in path.parents and path not in {CLASS / module for module in CLASSROOM})
        ):
            continue
        files[name] = without_answers(data.decode()).encode() if path in every else data
    if CAPSTONE in every - left_out:  # the class's script, and not what it was made from
        files[given.GIVEN.relative_to(ROOT).as_posix()] = given.text_of(given.handed_out()).encode()
    heard = json.dumps(heard_by(lessons), indent=1, sort_keys=True)
    return files | {reference.TOLD.relative_to(ROOT).as_posix(): f"{heard}\n".encode()}


def without_answers(source: str) -> str:
    """A module's text with `...` in place of the bodies of functions that :func:`reference` marks."""
    lines = source.splitlines(keepends=True)
    for node in reversed(ast.parse(source).body):
        if _is_reference(node):
            assert isinstance(node, ast.FunctionDef)
            after = node.body[1:] if ast.get_docstring(node) else node.body
            lines[after[0].lineno - 1 : node.end_lineno] = ["    ...  # its results are in told.json\n"]
    return "".join(lines)


def _is_reference(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(mark, ast.Name) and mark.id == "reference" for mark in node.decorator_list
    )


def heard_by(lessons: list[Master]) -> dict[str, dict[str, object]]:
    """What references say in visible tests, by running these on the lessons' own solutions."""
    marked = [
        lesson
        for lesson in lessons
        if any(map(_is_reference, ast.parse(exercises_of(lesson.name).read_text(encoding="utf-8")).body))
    ]
    reference.heard = {}
    try:
        if marked:
            with Runner() as runner:
                for lesson in marked:
                    _run_visible_tests(runner, lesson)
        return reference.heard
    finally:
        reference.heard = None


def _run_visible_tests(runner: Runner, lesson: Master) -> None:
    cells = [cell.source for cell in lesson.cells if cell.kind in ("setup", "exercise")]
    with runner.notebook(cells) as notebook:
        for cell in lesson.cells:
            if cell.kind == "test":
                verdict = judge(cell.source, cell.grade_id, notebook.ask)
                if not verdict.passed:
                    raise BadMaster(
                        f"{lesson.where(cell)}: the solution fails its visible test: {verdict.text}"
                    )


def write_folder(files: Mapping[str, bytes], folder: Path) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def write_zip(files: Mapping[str, bytes], path: Path) -> None:
    """All below one folder, in the order of names, with times and rights that are the same everywhere."""
    with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(f"{COURSE_ID}/{name}", EPOCH)
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)


def main(argv: list[str] | None = None) -> int:
    lenient()
    asks = parser("bundle", __doc__)
    asks.add_argument("lessons", nargs="*", help="e.g. 01 02; default: all")
    asks.add_argument("--to", required=True, type=Path, help="a new folder, or a file that ends in .zip")
    asked = asks.parse_args(argv)
    to: Path = asked.to
    try:
        if to.exists() and (to.is_file() or any(to.iterdir())):
            raise FileExistsError(0, "is there already; remove it or name another", str(to))
        lessons = [masters.read(path) for path in build.find(asked.lessons)]
        files = contents(lessons)
        to.parent.mkdir(parents=True, exist_ok=True)
        (write_zip if to.suffix == ".zip" else write_folder)(files, to)
    except BadMaster as problem:
        print(f"bundle: {problem}", file=sys.stderr)
        return 1
    except OSError as problem:
        print(f"bundle: {problem.filename or to}: {problem.strerror or problem}", file=sys.stderr)
        return 2
    seed = class_seed()
    print(f"{to}: {len(lessons)} lessons, {len(files)} files" + (f", for the class {seed!r}" if seed else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
