"""Run every lesson as a learner has it, with nothing solved and nothing predicted: Run All must get to the end.

python -m tests.long.fresh 01 07     these; without a number all of them
"""

import os
import sys
import tempfile
import time

import nbformat
from nbclient import NotebookClient

from helpers.classroom import build
from helpers.classroom.settings import NOTEBOOKS, QUIET_KERNEL


def main() -> int:
    wrong = 0
    for path in build.find(sys.argv[1:]):
        book = nbformat.read(NOTEBOOKS / path.stem / f"{path.stem}.ipynb", as_version=4)
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as state:
            client = NotebookClient(
                book,
                timeout=180,
                allow_errors=True,
                extra_arguments=QUIET_KERNEL,
                resources={"metadata": {"path": str(NOTEBOOKS / path.stem)}},
            )
            client.execute(env=os.environ | {"XDG_STATE_HOME": state})
        failed = [
            f"  cell {place}: {out.ename}: {out.evalue[:200]}"
            for place, cell in enumerate(book.cells)
            for out in cell.get("outputs", [])
            if out.output_type == "error"
        ]
        open_tests = sum("not written yet" in str(cell.get("outputs", "")) for cell in book.cells)
        took = time.monotonic() - began
        print(
            f"{path.stem}: {len(failed)} cells raise, {open_tests} tests say 'not written yet', {took:.0f} s",
            flush=True,
        )
        print("".join(f"{line}\n" for line in failed), end="")
        wrong += bool(failed)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
