"""The course's measures for any cell of a notebook of your own: ``%load_ext helpers``, then a line above the cell.

%%count                    operators, copies, bytes, syncs of the cell: the same on every machine
%%bench                    its time, run again and again, each time in the notebook's own variables
%%run_on H100              a cell that trains, on a simulated card: where its steps' time goes, line by line
%%trace mine.json.gz       run once under torch.profiler: the verdict, the picture, and the file for Perfetto
"""

import os
from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class


@magics_class
class Measures(Magics):
    """What ``%load_ext helpers`` adds."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._counted = set[str]()

    @cell_magic
    def count(self, line: str, cell: str) -> Any:
        """%%count: run the cell once and show what it did. Its variables stay, as without the line above it."""
        from helpers.counters import count

        self._no_words("count", line)
        run = self._compiled(cell)
        with count() as found:
            run()
        if cell not in self._counted:
            print(
                "a first run also makes what later ones find (an optimizer's state, a cache): run it again to count without"
            )
        self._counted.add(cell)
        return found

    @cell_magic
    def bench(self, line: str, cell: str) -> Any:
        """%%bench: the median time of the cell on this machine. It runs many times: each run changes your variables."""
        from helpers.timing import bench

        self._no_words("bench", line)
        return bench(self._compiled(cell))

    @cell_magic
    def trace(self, line: str, cell: str) -> Any:
        """%%trace [file.json.gz]: run the cell once under torch.profiler; show the verdict and the picture."""
        import torch

        from helpers import trace
        from helpers.__main__ import trace_shown

        run, kept = self._compiled(cell), line.strip()
        if kept and not kept.endswith((".json", ".json.gz")):
            raise UsageError(f"%%trace writes a .json or .json.gz, not {kept!r}")
        with torch.profiler.profile() as profile:
            run()
        if kept:  # a profile can be written once
            profile.export_chrome_trace(kept)
        return trace_shown(trace.read(kept or profile))

    @cell_magic
    def run_on(self, line: str, cell: str) -> Any:
        """%%run_on H100: run a cell that trains on that simulated card; where its steps' time goes, line by line."""
        from helpers import own_script

        run = self._compiled(cell)
        try:
            with own_script.on(line.strip() or "H100") as noted:
                run()
            return own_script.findings(noted)
        except ValueError as problem:
            raise UsageError(f"%%run_on: {problem}") from problem

    def _no_words(self, name: str, line: str) -> None:
        if line.strip():
            raise UsageError(
                f"%%{name} takes nothing on its line, not {line.strip()!r}: the code goes below it"
            )

    def _compiled(self, cell: str) -> Callable[[], None]:
        """The cell, IPython's own syntax (%time, !ls, ?) included, as a function that runs in the notebook."""
        shell = self.shell
        assert shell is not None
        source = shell.transform_cell(cell)
        name = shell.compile.cache(source, raw_code=cell)  # so that a traceback shows its lines
        code = compile(source, name, "exec")

        def run() -> None:
            exec(code, shell.user_ns)  # noqa: S102 - the learner's own cell

        return run


def load(shell: Any) -> None:
    """For `helpers.load_ipython_extension`."""
    # the profiler's library else writes time-stamped lines of its own below %%trace
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    shell.register_magics(Measures)
