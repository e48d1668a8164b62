"""Which conditions of the judges tests/submissions prove: each `if` is taken out, and the answers are graded again.

python -m tests.long.breaking 05           a minute or two a lesson; lessons 14 to 17 take several
python -m tests.long.breaking 05 prefetch  one exercise

Of each condition that the answers reach: which of them then earn something else. "nobody" is a check without an answer
that proves it; where one answer stands alone, the check has no other.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from helpers.classroom import build
from helpers.classroom import master as masters
from helpers.classroom.master import Master
from helpers.classroom.runner import Runner

SUBMISSIONS = Path(__file__).parents[1] / "submissions"


class Without(ast.NodeTransformer):
    """A module without the `if` of this line; its `else` is always taken."""

    def __init__(self, line: int) -> None:
        self.line = line

    def visit_If(self, node: ast.If) -> Any:
        return (node.orelse or ast.Pass()) if node.lineno == self.line else self.generic_visit(node)


def judge_of(master: Master, exercise: str) -> ModuleType:
    """The module that the exercise's tests import their checks from."""
    for cell in master.cells:
        if cell.exercise == exercise and cell.kind in ("test", "hidden"):
            for node in ast.walk(ast.parse(cell.source)):
                if isinstance(node, ast.ImportFrom) and any("check_" in name.name for name in node.names):
                    return importlib.import_module(str(node.module))
    raise ValueError(f"the tests of {exercise} import no check")


def conditions(source: str) -> Iterator[tuple[int, int]]:
    """Line of an `if`, and of the first statement in it, of each one that says something: returns, raises or yields."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return | ast.Raise | ast.Expr):
            yield node.lineno, node.body[0].lineno


def functions(module: ModuleType) -> Iterator[FunctionType]:
    owners = [module, *(v for v in vars(module).values() if inspect.isclass(v))]
    for value in [v for owner in owners for v in vars(owner).values() if callable(v)]:
        inner = inspect.unwrap(value)
        if inspect.isfunction(inner) and inner.__module__ == module.__name__:
            yield inner


def codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    yield (code.co_name, code.co_firstlineno), code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from codes(inner)


@contextmanager
def broken(module: ModuleType, source: str, line: int) -> Iterator[None]:
    """In this process, where judges run: where answers run, the module is whole."""
    tree = ast.fix_missing_locations(Without(line).visit(ast.parse(source)))
    new = dict(codes(compile(tree, str(module.__file__), "exec", dont_inherit=True)))
    before = [(one, one.__code__) for one in functions(module)]
    try:
        for one, code in before:
            one.__code__ = new.get((code.co_name, code.co_firstlineno), code)
        yield
    finally:
        for one, code in before:
            one.__code__ = code


def prove(runner: Runner, master: Master, exercise: str) -> None:
    module = judge_of(master, exercise)
    source = inspect.getsource(module)
    answers = sorted((SUBMISSIONS / master.name / exercise).glob("*.py"))
    reached: set[int] = set()

    def line(frame: FrameType, _: str, __: Any) -> Any:
        if frame.f_code.co_filename != module.__file__:
            return None
        reached.add(frame.f_lineno)
        return line

    earned, lines = {}, {}
    for path in answers:
        sys.settrace(line)
        earned[path] = runner.grade(master, exercise, path.read_text(encoding="utf-8")).earned
        sys.settrace(None)
        lines[path] = {*reached}
        reached.clear()
    print(f"{master.name}, {exercise}: {len(answers)} answers")
    for at, first in sorted(conditions(source)):
        meet = [path for path in answers if first in lines[path]]
        with broken(module, source, at):
            notice = [
                path.stem
                for path in meet
                if runner.grade(master, exercise, path.read_text(encoding="utf-8")).earned != earned[path]
            ]
        if meet:
            print(f"  line {at}: {', '.join(notice) or 'nobody'}", flush=True)


def main() -> None:
    with Runner() as runner:
        for path in build.find(sys.argv[1:2]):
            master = masters.read(path)
            for exercise in master.exercises:
                if exercise.id in (sys.argv[2:] or [exercise.id]):
                    prove(runner, master, exercise.id)


if __name__ == "__main__":
    main()
