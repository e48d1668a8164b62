"""Submissions whose files are damaged, old, renamed, or no notebooks at all. The answers in them are right."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

from tests.corpus.cases import Case, Notebook, code, graded, place, plain, saved, written


def _whole(notebook: Notebook) -> str:
    return written(plain(notebook))


def as_bytes(
    change: Callable[[str], bytes], *, as_name: str = "{}.ipynb"
) -> Callable[[Notebook, Path, str], None]:
    """The notebook's text, written as ``change`` makes it."""

    def write(notebook: Notebook, folder: Path, name: str) -> None:
        path = folder / as_name.format(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(change(_whole(notebook)))

    return write


def as_json(change: Callable[[Notebook], object]) -> Callable[[Notebook, Path, str], None]:
    """The notebook, changed (in place, or as returned), written as JSON."""

    def write(notebook: Notebook, folder: Path, name: str) -> None:
        made = plain(notebook)
        result = change(made)
        (folder / f"{name}.ipynb").write_text(
            json.dumps(made if result is None else result), encoding="utf-8"
        )

    return write


def named(*names: str) -> Callable[[Notebook, Path, str], None]:
    """The right notebook, under other names."""

    def write(notebook: Notebook, folder: Path, name: str) -> None:
        for other in names:
            saved(plain(notebook), folder / other.format(name))

    return write


# --- bytes --------------------------------------------------------------------------------------------------------


def tail_of_an_older_one(text: str) -> bytes:
    """A shorter file was written over a longer one, whose end stayed."""
    return (text + text[-700:]).encode()


def hole(text: str) -> bytes:
    """Some bytes are gone from the middle, a quotation mark too many or too few among them."""
    start = text.index('"cell_type"', len(text) // 3)
    return (text[:start] + text[text.index('": "', start + 500) :]).encode()


def conflict(text: str) -> bytes:
    lines = text.splitlines()
    middle = len(lines) // 2
    ours, theirs = lines[middle - 1 : middle], ['    "x = 1\\n"']
    marked = ["<<<<<<< HEAD", *ours, "=======", *theirs, ">>>>>>> feature"]
    return "\n".join(lines[: middle - 1] + marked + lines[middle:]).encode()


# --- JSON ---------------------------------------------------------------------------------------------------------


def format_3(notebook: Notebook) -> Notebook:
    cells = []
    for cell in notebook["cells"]:
        old = {"cell_type": cell["cell_type"], "metadata": cell["metadata"]}
        if cell["cell_type"] == "code":
            old |= {"input": cell["source"], "language": "python", "outputs": [], "collapsed": False}
            old |= {"prompt_number": 3}
        else:
            old |= {"source": cell["source"]}
        cells.append(old)
    cells.insert(0, {"cell_type": "heading", "level": 1, "metadata": {}, "source": "My notebook"})
    sheets = [{"cells": cells, "metadata": {}}]
    return {"metadata": {"name": ""}, "nbformat": 3, "nbformat_minor": 0, "worksheets": sheets}


def minor(number: int) -> Callable[[Notebook], None]:
    def change(notebook: Notebook) -> None:
        notebook["nbformat_minor"] = number
        for cell in notebook["cells"]:
            cell.pop("id", None)

    return change


def odd_ids(notebook: Notebook) -> None:
    odd = ["", "with blanks and ümlauts", "x" * 200, None, 7, ["a"], "../../etc"]
    for i, cell in enumerate(notebook["cells"]):
        cell["id"] = odd[i % len(odd)]


def equal_ids(notebook: Notebook) -> None:
    for cell in notebook["cells"]:
        cell["id"] = "same"


def odd_metadata(notebook: Notebook) -> None:
    notebook["metadata"] = ["none"]
    for i, cell in enumerate(notebook["cells"]):
        if "nbgrader" not in cell["metadata"]:
            cell["metadata"] = [None, [], "text", 7, {"tags": 3, "nbgrader": []}][i % 5]
        else:
            cell["metadata"]["tags"] = {"not": "a list"}
            cell["metadata"]["nbgrader"] |= {"points": "many", "schema_version": 0, "grade": "perhaps"}


def odd_cells(notebook: Notebook) -> None:
    notebook["cells"][3:3] = [
        None,
        7,
        "text",
        [],
        {},
        {"cell_type": "code"},
        {"source": 3, "cell_type": ["code"]},
    ]
    for cell in notebook["cells"]:
        if isinstance(cell, dict) and cell.get("cell_type") == "markdown":
            cell["cell_type"] = "rich text"


def odd_outputs(notebook: Notebook) -> None:
    for i, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            cell["outputs"] = [None, "text", [{"output_type": "what"}], [[]], {}][i % 5]
            cell["execution_count"] = "many"


def halves_of_characters(notebook: Notebook) -> None:
    for cell in notebook["cells"]:
        cell["source"] += "\n# \ud83d" if cell["cell_type"] == "code" else " \ud83d"


def other_kernel(notebook: Notebook) -> None:
    notebook["metadata"]["kernelspec"] = {
        "display_name": "Julia 1.9",
        "language": "julia",
        "name": "julia-1.9",
    }
    notebook["metadata"]["language_info"] = {"name": "julia"}


def no_nbformat(notebook: Notebook) -> None:
    del notebook["nbformat"], notebook["nbformat_minor"], notebook["metadata"]


def large_outputs(notebook: Notebook) -> None:
    cell = next(c for c in notebook["cells"] if c["cell_type"] == "code")
    cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x" * 15_000_000}]


def long_cell(notebook: Notebook) -> None:
    notebook["cells"].insert(5, code("# " + "x" * 1_000_000, "long"))


def other_marks(notebook: Notebook) -> None:
    """Tests that say that they are not graded, or worth more; and cells that say that they are not run."""
    for cell in notebook["cells"]:
        cell["metadata"]["tags"] = ["skip-execution", "experiment"]
        if cell["metadata"].get("nbgrader", {}).get("grade"):
            cell["metadata"]["nbgrader"] |= {"grade": False, "points": 100}


def without_marks(notebook: Notebook) -> None:
    """As some converters and clouds leave it: no metadata, no ids."""
    for cell in notebook["cells"]:
        cell["metadata"] = {}
        cell.pop("id", None)


def without_marks_of_exercises(notebook: Notebook) -> None:
    for grade_id in graded(notebook, "solution"):
        cell = notebook["cells"][place(notebook, grade_id)]
        cell["metadata"], cell["id"] = {}, f"new-{len(grade_id)}-{grade_id[:3]}"


def another_lesson(notebook: Notebook) -> None:
    marks = {"grade": False, "grade_id": "another_exercise", "locked": False, "solution": True, "task": False}
    start = 'from helpers import lesson\n\nlesson.start("99_another_lesson", evidence=["live (CPU)"])'
    notebook["cells"] = [
        code(start, "start", nbgrader=marks | {"grade_id": "setup_1"}),
        code("def another_exercise():\n    return 1", "another", nbgrader=marks | {"schema_version": 3}),
    ]


def own_notebook(notebook: Notebook) -> None:
    notebook["cells"] = [code("print('my shopping list')", "mine")]


# --- files --------------------------------------------------------------------------------------------------------


def link(notebook: Notebook, folder: Path, name: str) -> None:
    aside = folder.parent / f"{folder.name}-elsewhere.ipynb"
    saved(plain(notebook), aside)
    (folder / f"{name}.ipynb").symlink_to(aside)


def fifo(notebook: Notebook, folder: Path, name: str) -> None:
    os.mkfifo(folder / f"{name}.ipynb")


def listening_socket(notebook: Notebook, folder: Path, name: str) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(".", os.O_RDONLY)
        try:
            os.chdir(folder)  # the path of a socket may have 108 bytes
            made.bind(f"{name}.ipynb")
        finally:
            os.fchdir(here)
            os.close(here)


def a_folder(notebook: Notebook, folder: Path, name: str) -> None:
    (folder / f"{name}.ipynb").mkdir()


def two_answered(notebook: Notebook, folder: Path, name: str) -> None:
    """Two renamed notebooks, both answered; in the older one the first exercise is not."""
    saved(plain(notebook), folder / f"{name} (2).ipynb")
    older = plain(notebook)
    first = older["cells"][place(older, graded(older, "solution")[0])]
    first["source"] = "# nothing yet"
    saved(older, folder / f"{name} (1).ipynb")
    os.utime(folder / f"{name} (1).ipynb", (1_000_000_000, 1_000_000_000))


def broken_and_whole(notebook: Notebook, folder: Path, name: str) -> None:
    (folder / f"{name}.ipynb").write_bytes(b"")
    saved(plain(notebook), folder / f"{name} (1).ipynb")


def bad_timestamp(notebook: Notebook, folder: Path, name: str) -> None:
    saved(plain(notebook), folder / f"{name}.ipynb")
    (folder / "timestamp.txt").write_text("yesterday, I think\n")


def other_files(notebook: Notebook, folder: Path, name: str) -> None:
    """Files that would be in the way, were they used: modules that shadow others, a checkpoint, a gradebook."""
    saved(plain(notebook), folder / f"{name}.ipynb")
    saved(plain(notebook), folder / ".ipynb_checkpoints" / f"{name}-checkpoint.ipynb")
    for module in ("helpers.py", "torch.py", "sitecustomize.py"):
        (folder / module).write_text("raise SystemExit('shadowed')\n")
    (folder / "gradebook.db").write_bytes(b"\0" * 100)


def nothing(notebook: Notebook, folder: Path, name: str) -> None:
    """An empty folder."""


NOT = "not gradable"
BROKEN: dict[str, Case] = {
    # encodings, ends of lines
    "bom": Case(as_bytes(lambda text: text.encode("utf-8-sig"))),
    "utf-16": Case(as_bytes(lambda text: text.encode("utf-16"))),
    "utf-16-be-without-bom": Case(as_bytes(lambda text: text.encode("utf-16-be"))),
    "utf-32": Case(as_bytes(lambda text: text.encode("utf-32"))),
    "latin-1": Case(as_bytes(lambda text: text.encode("cp1252", "replace"))),
    "crlf": Case(as_bytes(lambda text: text.replace("\n", "\r\n").encode())),
    "crlf-in-cells": Case(as_bytes(lambda text: text.replace("\\n", "\\r\\n").encode())),
    "nul-padding": Case(as_bytes(lambda text: text.encode() + b"\0" * 4096)),
    "tail-of-an-older-one": Case(as_bytes(tail_of_an_older_one)),
    # damage
    "empty": Case(as_bytes(lambda text: b""), NOT),
    "only-nul": Case(as_bytes(lambda text: b"\0" * 100_000), NOT),
    "cut-off": Case(as_bytes(lambda text: text.encode()[:20_000]), NOT),
    "cut-off-at-the-end": Case(as_bytes(lambda text: text.encode()[:-2]), NOT),
    "hole": Case(as_bytes(hole), NOT),
    "merge-conflict": Case(as_bytes(conflict), NOT),
    "twice": Case(as_bytes(lambda text: (text + text).encode()), NOT),
    "noise": Case(as_bytes(lambda text: bytes(range(256)) * 200), NOT),
    "web-page": Case(as_bytes(lambda text: b"<!DOCTYPE html><html><body>Sign in</body></html>"), NOT),
    "zip": Case(as_bytes(lambda text: b"PK\x03\x04" + bytes(400)), NOT),
    "lfs-pointer": Case(as_bytes(lambda text: b"version https://git-lfs.github.com/spec/v1\n"), NOT),
    "deep": Case(as_bytes(lambda text: b'{"cells": ' + b"[" * 1_000_000), NOT),
    "deep-in-metadata": Case(as_bytes(lambda text: b'{"cells": [], "metadata": ' + b'{"a":' * 500_000), NOT),
    "a-list": Case(as_bytes(lambda text: b"[1, 2, 3]"), NOT),
    "a-number": Case(as_bytes(lambda text: b"7" * 10_000), NOT),
    "no-cells": Case(as_bytes(lambda text: b'{"nbformat": 4, "metadata": {}}'), NOT),
    "zero-cells": Case(as_json(lambda notebook: notebook["cells"].clear()), NOT),
    # older formats, odd JSON
    "format-3": Case(as_json(format_3)),
    "format-4.0": Case(as_json(minor(0))),
    "format-4.4": Case(as_json(minor(4))),
    "format-99": Case(as_json(lambda notebook: notebook.update(nbformat=99, nbformat_minor=0))),
    "no-nbformat": Case(as_json(no_nbformat)),
    "odd-ids": Case(as_json(odd_ids)),
    "equal-ids": Case(as_json(equal_ids)),
    "odd-metadata": Case(as_json(odd_metadata)),
    "odd-cells": Case(as_json(odd_cells)),
    "odd-outputs": Case(as_json(odd_outputs)),
    "halves-of-characters": Case(as_json(halves_of_characters)),
    "other-kernel": Case(as_json(other_kernel)),
    "other-marks": Case(as_json(other_marks)),
    "without-marks": Case(as_json(without_marks)),
    "without-marks-of-exercises": Case(as_json(without_marks_of_exercises)),
    # sizes
    "large-outputs": Case(as_json(large_outputs)),
    "too-large": Case(as_bytes(lambda text: text.encode() + b" " * 25_000_000), NOT),
    "long-cell": Case(as_json(long_cell)),
    "many-cells": Case(
        as_json(lambda notebook: notebook["cells"].extend(code("", f"c{i}") for i in range(100_000))), NOT
    ),
    # other notebooks
    "another-lesson": Case(as_json(another_lesson), NOT),
    "own-notebook": Case(as_json(own_notebook), NOT),
    # names and files
    "browser-copy": Case(named("{} (1).ipynb")),
    "lab-copy": Case(named("{}-Copy1.ipynb")),
    "other-case": Case(named("LESSON.IPYNB")),
    "subfolder": Case(named("my work/{}.ipynb")),
    "copy-beside": Case(named("{}.ipynb", "{}-Copy1.ipynb")),
    "two-answered": Case(two_answered, human=True),
    "broken-and-whole": Case(broken_and_whole, human=True),
    "bad-timestamp": Case(bad_timestamp),
    "other-files": Case(other_files),
    "link": Case(link, NOT),
    "fifo": Case(fifo, NOT),
    "socket": Case(listening_socket, NOT),
    "folder-for-a-file": Case(a_folder, NOT),
    "nothing": Case(nothing, NOT),
}
