"""Every public name of the tools has a short example that runs: the tool's own docstring first, whose names the others use.

No example reads a clock: counters, shapes, arithmetic, and the simulated GPU's times are the same on every machine.
"""

import doctest
import importlib
import inspect
import linecache
import re
import time
from typing import Any

import pytest

TOOLS = (
    "helpers",
    "helpers.trace",
    "helpers.memory",
    "helpers.compiling",
    "helpers.ranks",
    "helpers.kernels",
)
#: what the result of a function leaves to that function's example
SEE = re.compile(r"See :func:`(\w+)`\.")
LINES = 8
#: seconds of processor time, of one tool
MOST_S = 15


def examples(thing: Any) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(thing) or "")


def without(tool: Any) -> list[str]:
    """The public names of a tool that have no example, and do not name the function whose result they are."""
    public = {name: getattr(tool, name) for name in tool.__all__}
    shown = "".join(e.source for thing in (tool, *public.values()) for e in examples(thing))
    missing = []
    for name, thing in public.items():
        see = SEE.search(inspect.getdoc(thing) or "")
        if not (
            inspect.isclass(thing) or inspect.isroutine(thing)
        ):  # a constant has no docstring: some example uses it
            good = f".{name}" in shown
        else:
            good = bool(examples(thing)) or bool(see and examples(public.get(see[1])))
        missing += [] if good else [name]
    return missing


@pytest.mark.parametrize("name", TOOLS)
def test_examples_run(name: str) -> None:
    tool = importlib.import_module(name)
    assert not (missing := without(tool)), f"{name}: no example of {missing}"
    began = time.process_time()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    names: dict[str, Any] = {"__name__": "__main__"}
    for public in ("", *tool.__all__):
        thing = getattr(tool, public) if public else tool
        if not (found := examples(thing)):
            continue
        assert public == "" or len(found) <= LINES, f"{name}.{public}: {len(found)} lines of example"
        told: list[str] = []
        where = f"{name}.{public}".rstrip(".")
        test = doctest.DocTest(found, names, where, None, None, inspect.getdoc(thing))
        runner.run(test, out=told.append, clear_globs=False)
        assert not runner.failures, "".join(told)
        names = names if public else test.globs
        for i, example in enumerate(found):  # a kernel's source is read where later examples launch it
            file = f"<doctest {where}[{i}]>"
            linecache.cache[file] = len(example.source), None, example.source.splitlines(keepends=True), file
    assert time.process_time() - began < MOST_S


def test_a_name_without_an_example_is_found() -> None:
    class Tool:
        """>>> 1
        1
        """

        __all__ = ["bare", "shown", "result", "lost"]

        def bare(self) -> None:
            """Nothing to see."""

        def shown(self) -> None:
            """>>> 2
            2
            """

        class result:
            """What comes of it. See :func:`shown`."""

        class lost:
            """See :func:`bare`."""

    assert without(Tool) == ["bare", "lost"]
